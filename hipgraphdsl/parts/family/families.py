"""Family: a graph for each of several sizes, behind the methods of one Executable."""

from __future__ import annotations

import copy
import inspect
import itertools
import logging
import math
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, TypeVar

import numpy as np

from ...arrays import Array, ExternalArray, Parameter, as_int
from ...collecting import collector_paused
from ...errors import CallbackError, DeclarationError, HipError, HipGraphError, WaitTimeout, listed, suggested
from ...executable import Executable
from ...executable.arena import Arena
from ...executable.memory import Block, Sharing
from ...graph import Graph
from ...parts import load
from ...progress import progress_bar
from ...target import Target
from ...waiting import Deadline, require_seconds
from .arrays import CommonArrays

if TYPE_CHECKING:
    from ...backends.interop import CapturedArray
    from ...checks import Report
    from ...runtimes.base import Runtime

_log = logging.getLogger("hipgraphdsl")

Fit = Literal["smallest", "exact", "refuse"]
Key = tuple[int, ...]
"""A size for each name, in the order of the names."""

_FITS: Final = ("smallest", "exact", "refuse")
_OURS: Final = ("self", "memory", "arena", "ranks", "progress", "unknown")
"""Arguments of `Graph.compile` that a family gives itself, or cannot have."""
_ARGUMENTS: Final = ("stream", "timeout_s", "name", "values")
"""Arguments of a family's methods that take sizes, too."""
_PLAIN: Final = (int, float)
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Member:
    """What one size has cost.

    Attributes
    ----------
    nbytes : int
        Memory that it alone takes: arrays that no other member has, and the instantiated graph.
    seconds : float
        Time to declare and compile it.
    launches : int
    """

    nbytes: int
    seconds: float
    launches: int


class Reports(dict[Any, R]):
    """A report for each size."""

    @property
    def ok(self) -> bool:
        """Whether all reports are."""
        return all(report.ok for report in self.values())  # type: ignore[attr-defined]  # of `check` or `verify`

    def __str__(self) -> str:
        return "\n".join(f"{size}: {report}" for size, report in self.items())


class Family:
    """One graph for each of several sizes, compiled when it is first needed; a launch runs the one that fits.

    The members share their temporaries (see `Arena`) and all device and host arrays of equal name, kind, shape and dtype, which
    exist once, initialised by the first member that is compiled. Arrays whose shape depends on the size are each member's own.
    They also share a stream, on which launches follow each other.

    Parameters
    ----------
    build : callable
        ``build(batch=...)`` returns the Graph of one size. A graph that declares a scalar parameter of the size's name is
        given, at each launch, the size that the launch asks for.
    fit : {"smallest", "exact", "refuse"}
        What a launch runs: the member of the smallest size in the list that is not smaller; one of exactly this size, in the list
        or not; or one of exactly this size, which the list must have.
    limit_bytes : int, optional
        Memory that the family may take: beyond it the members that have not been used for longest are closed, and compiled again
        when they are needed.
    background : bool
        Compile all members from now on, in another thread, largest first.
    memory : Arena, optional
        An arena that is shared with other graphs too.
    **sizes_and_options
        Sizes, as sequences of integers: ``batch=[1, 2, 4]``; of several names, all combinations. What is no sequence is an
        option of `Graph.compile`.

    Raises
    ------
    DeclarationError
        If there are no sizes, one is not an integer from 1, or an option is not one of `Graph.compile`.
    """

    def __init__(
        self,
        build: Callable[..., Graph],
        *,
        fit: Fit = "smallest",
        limit_bytes: int | None = None,
        background: bool = False,
        memory: Arena | None = None,
        **sizes_and_options: Any,
    ) -> None:
        if not callable(build):
            raise DeclarationError(f"Family takes a function that returns the graph of one size (got {build!r})")
        if fit not in _FITS:
            raise DeclarationError(f"fit is one of {', '.join(map(repr, _FITS))} (got {fit!r})")
        if limit_bytes is not None and ((limit := as_int(limit_bytes)) is None or limit < 0):
            raise DeclarationError(f"limit_bytes is a number of bytes (got {limit_bytes!r})")
        self._build, self._fit, self._limit = build, fit, None if limit_bytes is None else limit
        sizes = {name: value for name, value in sizes_and_options.items() if _is_sizes(value)}
        self._options = {name: value for name, value in sizes_and_options.items() if name not in sizes}
        _require_options(self._options)
        if not sizes:
            given = ", ".join(f"{name}={value!r}" for name, value in self._options.items()) or "none"
            raise DeclarationError(
                f"Family takes the sizes that its graphs are built for, such as batch=[1, 2, 4, 8] (got {given})"
            )
        if taken := next(filter(sizes.__contains__, _ARGUMENTS), ""):
            raise DeclarationError(f"{taken}: launch, read and write have an argument of this name; name the size otherwise")
        self._sizes = {name: _sorted_sizes(name, value) for name, value in sizes.items()}
        self._arrays = CommonArrays()
        arena = Arena() if memory is None else memory
        if not isinstance(arena, Arena):
            raise DeclarationError(f"memory is a hipgraphdsl.Arena (got {memory!r})")
        self.sharing = Sharing(arena, self._arrays)
        """What the members share; `Graph.compile` asks for it."""
        self._members: dict[Key, Executable] = {}
        """The members that are compiled, the most recently used last if there is a limit."""
        self._seconds: dict[Key, float] = {}
        self._launched: dict[Key, int] = {}
        """Launches of members that were closed, to stay within the limit."""
        self._fitting: dict[Key, Executable] = {}
        """For sizes that a launch has asked for, the member that runs them; a cache."""
        self._last: Executable | None = None
        """The member that was launched last."""
        self._given: dict[str, Any] = {}
        """The values of parameters that launches have given, which hold for all members."""
        self._untold: CallbackError | HipError | None = None
        """The error of a launch of a member that was closed to make room, until `synchronize` raises it."""
        self._lock = threading.RLock()
        """Held while members are compiled or closed."""
        self._closed = False
        _families.add(self)
        if background:
            threading.Thread(target=self._compile_behind, name=f"compile {self!r}", daemon=True).start()

    # -- members -------------------------------------------------------------------------------------------------------

    @property
    def sizes(self) -> list[Any]:
        """The sizes that it was made for, largest first: numbers, or tuples if there are several names."""
        return [self._shown(key) for key in self._keys()]

    def _keys(self) -> list[Key]:
        return sorted(itertools.product(*self._sizes.values()), key=lambda key: (math.prod(key), key), reverse=True)

    def _shown(self, key: Key) -> Any:
        return key[0] if len(key) == 1 else key

    def graph(self, **sizes: int) -> Graph:
        """Return the graph of one size, as `build` makes it."""
        return self._graph(self._asked("graph", sizes))

    def _graph(self, key: Key) -> Graph:
        made = self._build(**dict(zip(self._sizes, key)))
        if not isinstance(made, Graph):
            raise DeclarationError(f"build({self._text(key)}) returns a Graph (got {made!r})")
        return made

    def _text(self, key: Key) -> str:
        return ", ".join(f"{name}={value}" for name, value in zip(self._sizes, key))

    def member(self, **sizes: int) -> Executable:
        """Return the Executable that a launch of these sizes runs; compile it if needed. The family closes it."""
        return self._member(self._fit_for(self._asked("member", sizes)))

    def compile(self, *, progress: bool | None = None) -> Family:
        """Compile all members that are not yet, largest first, and return the family.

        Parameters
        ----------
        progress : bool, optional
            Show a progress bar; by default after a second, on a terminal or in a notebook.
        """
        wanted = [key for key in self._keys() if key not in self._members]
        with progress_bar("compile family", progress, len(wanted)) as advance:
            for key in wanted:
                advance(self._text(key))
                self._member(key)
        return self

    def _compile_behind(self) -> None:
        for key in self._keys():
            try:
                with self._lock:
                    if self._closed or (self._limit is not None and self.nbytes > self._limit):
                        return
                    self._member(key)
            except Exception as error:  # whoever launches it is told
                _log.warning("%r: %s could not be compiled in the background: %s", self, self._text(key), error)

    def _member(self, key: Key, deadline: Deadline | None = None) -> Executable:
        found = self._members.get(key)
        if found is not None and self._limit is None and not found._closed:
            return found
        with self._held(deadline):
            if self._closed:
                raise HipGraphError(f"{self!r} is closed; make it again")
            found = self._members.pop(key, None)
            if found is None or found._closed:  # the user has closed it
                began = time.perf_counter()
                try:
                    with collector_paused():
                        found = self._graph(key).compile(memory=self, progress=False, **self._options)
                except BaseException:
                    self._arrays.drop_unused()
                    raise
                self._seconds[key] = self._seconds.get(key, 0.0) + time.perf_counter() - began
            self._members[key] = found
            self._stay_within(key, deadline)
            return found

    @contextmanager
    def _held(self, deadline: Deadline | None) -> Iterator[None]:
        """Hold the lock; wait for it until a deadline."""
        held = list[bool]()
        try:
            # Atomic: Ctrl-C cannot come between taking the lock and noting it.
            held += map(self._lock.acquire, (True,), (-1 if deadline is None else deadline.left(),))
            if False in held:
                raise WaitTimeout(
                    f"launch: another thread compiles or closes members of {self!r}, and has not returned in time", ()
                )
            yield
        finally:
            if True in held:
                self._lock.release()

    def _stay_within(self, key: Key, deadline: Deadline | None) -> None:
        """Close the members that have not been used for longest, but for one, until the limit holds."""
        while self._limit is not None and len(self._members) > 1 and self.nbytes > self._limit:
            oldest = next(other for other in self._members if other != key)
            try:
                self._members[oldest].synchronize(None if deadline is None else deadline.left())
            except (CallbackError, HipError) as error:  # not of the launch that needs the room
                self._untold = self._untold or error
            self._close(oldest)

    def _close(self, key: Key) -> None:
        executable = self._members[key]
        try:
            executable.close()
        finally:
            if executable._closed:
                del self._members[key]
                self._fitting = {asked: member for asked, member in self._fitting.items() if member is not executable}
                self._launched[key] = self._launched.get(key, 0) + executable.stats.launches
                self._arrays.drop_unused()

    @property
    def members(self) -> dict[Any, Member]:
        """What each size has cost that has been compiled."""
        with self._lock:
            open_now = dict(self._members)
        return {
            self._shown(key): Member(
                self._own_bytes(open_now[key]) if key in open_now else 0,
                self._seconds[key],
                self._launched.get(key, 0) + (open_now[key].stats.launches if key in open_now else 0),
            )
            for key in sorted(self._seconds)
        }

    def _own_bytes(self, executable: Executable) -> int:
        own = (block.array.nbytes for block in _own_blocks(executable) if not self._arrays.shares(block))
        return executable.plan.memory.graph + sum(own)

    @property
    def nbytes(self) -> int:
        """Memory that it has now: arrays, temporaries, and the instantiated graphs as far as that is known."""
        assert self.sharing.arena is not None
        with self._lock:
            blocks = [*self._arrays.blocks, *itertools.chain.from_iterable(map(_own_blocks, self._members.values()))]
            arrays = sum(array.nbytes for array in dict.fromkeys(block.array for block in blocks))
            graphs = sum(executable.plan.memory.graph for executable in self._members.values())
            return self.sharing.arena.nbytes + arrays + graphs

    # -- which one -----------------------------------------------------------------------------------------------------

    def _asked(self, action: str, sizes: Mapping[str, Any]) -> Key:
        """Return the sizes that a call asks for, in order."""
        missing = [name for name in self._sizes if name not in sizes]
        unknown = [name for name in sizes if name not in self._sizes]
        if unknown:
            raise DeclarationError(f"{action}: {self!r} has no size {unknown[0]!r}{suggested(unknown[0], [*self._sizes])}")
        if missing:
            raise DeclarationError(f"{action}: say which size, as {missing[0]}={self._sizes[missing[0]][0]}")
        found = []
        for name in self._sizes:
            number = as_int(sizes[name])
            if number is None or number < 0:
                raise DeclarationError(f"{action}: {name} is a size, an integer from 0 (got {sizes[name]!r})")
            found.append(number)
        return tuple(found)

    def _fit_for(self, asked: Key) -> Key:
        """Return the sizes of the member that runs the sizes asked for."""
        if self._fit == "smallest":
            found = []
            for (name, sizes), size in zip(self._sizes.items(), asked):
                fitting = next((known for known in sizes if known >= size), None)
                if fitting is None:
                    raise DeclarationError(f"{name}={size} is larger than the largest of {self!r}, {sizes[-1]}")
                found.append(fitting)
            return tuple(found)
        for (name, sizes), size in zip(self._sizes.items(), asked):
            if self._fit == "refuse" and size not in sizes:
                raise DeclarationError(f"{self!r} has no member of {name}={size}; it has {listed(sizes)}")
            if size < 1:
                raise DeclarationError(f"{name}={size}: with fit={self._fit!r} the smallest size is 1")
        return asked

    # -- running -------------------------------------------------------------------------------------------------------

    def launch(self, /, stream: Any = None, timeout_s: float | None = None, **params: Any) -> None:
        """Enqueue one run of the member that fits, after compiling it if needed; see `Executable.launch`.

        Parameters
        ----------
        stream, timeout_s
        **params
            The sizes, by name, and values of parameters. A parameter that is not given keeps the value of the last launch of any
            member.

        Raises
        ------
        DeclarationError
            If a size is missing, or no member has it.
        """
        deadline = None
        if timeout_s is not None:
            require_seconds(timeout_s)
            deadline = Deadline.after(timeout_s, tuple)
        sizes = {name: params.pop(name) for name in self._sizes if name in params}
        key = tuple(sizes.values())
        if self._limit is not None:  # a member may be closed to make room, but not between its choice and its launch
            with self._held(deadline):
                self._run(self._choose(sizes, deadline), sizes, stream, deadline, params)
            return
        known = len(key) == len(self._sizes) and set(map(type, key)) == {int}
        chosen = self._fitting.get(key) if known else None
        if chosen is None or chosen._closed:
            chosen = self._choose(sizes, deadline)
        self._run(chosen, sizes, stream, deadline, params)

    def _choose(self, sizes: Mapping[str, Any], deadline: Deadline | None) -> Executable:
        asked = self._asked("launch", sizes)
        chosen = self._member(self._fit_for(asked), deadline)
        if len(self._fitting) < 4096:
            self._fitting[asked] = chosen
        return chosen

    def _run(
        self, chosen: Executable, sizes: Mapping[str, int], stream: Any, deadline: Deadline | None, params: dict[str, Any]
    ) -> None:
        table = chosen._own.parameters.table
        given = params
        if chosen is not self._last and self._given:
            given = {name: value for name, value in tuple(self._given.items()) if name in table} | params
        given = given | {name: size for name, size in sizes.items() if name in table}
        try:
            if stream is None and deadline is None:
                chosen.launch(**given)
            else:
                chosen.launch(stream, None if deadline is None else deadline.left(), **given)
        except (CallbackError, HipError, WaitTimeout, KeyboardInterrupt):
            if params and not chosen._closed:  # it may have begun
                scalars = {name: value for name, value in chosen.parameters.items() if name in params and value is not None}
                self._given |= scalars | chosen._own.parameters.bound(params)
            raise
        self._last = chosen
        if params:
            kept = self._given
            for name, value in params.items():
                kept[name] = value if type(value) in _PLAIN else _value_kept(value, table[name][1])

    def run(self, /, **params: Any) -> None:
        """Launch and wait; arguments are those of `launch`."""
        self.launch(**params)
        self.synchronize()

    def synchronize(self, timeout_s: float | None = None) -> None:
        """Wait until all launches of all members have finished; see `Executable.synchronize`."""
        require_seconds(timeout_s)
        deadline = None if timeout_s is None else Deadline.after(timeout_s, tuple)
        for executable in self._open():
            with _unless_closed(executable):
                executable.synchronize(None if deadline is None else deadline.left())
        self._raise_untold()

    def _raise_untold(self) -> None:
        untold, self._untold = self._untold, None
        if untold is not None:
            raise untold from untold.__cause__

    def done(self) -> bool:
        """Return whether all launches of all members have finished."""
        for executable in self._open():
            with _unless_closed(executable):
                if not executable.done():
                    return False
        return True

    def _kept(self) -> AbstractContextManager[object]:
        """Return what keeps members from being closed to make room."""
        return nullcontext() if self._limit is None else self._lock

    def _open(self) -> list[Executable]:
        with self._lock:
            return list(self._members.values())

    def read(self, name: str, **sizes: int) -> np.ndarray[Any, Any]:
        """Wait, and return a copy of an array's values.

        Parameters
        ----------
        name : str
        **sizes
            The member, for an array that each has of its own; by default the one that was launched last, or the largest.
        """
        with self._kept():
            return self._holder("read", sizes).read(name)

    def write(self, name: str, values: Any, **sizes: int) -> None:
        """Wait, and set an array's values; of an array that the members share, for all of them. Arguments as for `read`."""
        with self._kept():
            self._holder("write", sizes).write(name, values)

    def array(self, name: str, **sizes: int) -> CapturedArray:
        """Return an array's memory itself; see `Executable.array`. Arguments as for `read`."""
        with self._kept():
            return self._holder("array", sizes).array(name)

    def _holder(self, action: str, sizes: Mapping[str, int]) -> Executable:
        """Return the member whose arrays a call means."""
        if sizes:
            return self._member(self._fit_for(self._asked(action, sizes)))
        last = self._last
        return last if last is not None and not last._closed else self._member(self._keys()[0])

    # -- checks --------------------------------------------------------------------------------------------------------

    def check(self, target: str | Target | None = None) -> Reports[Report]:
        """Check the graph of each size, as `Graph.check` does; return the reports by size, with an `ok` of all."""
        return Reports({self._shown(key): self._graph(key).check(target) for key in self._keys()})

    def verify(self, runtime: str | Runtime = "auto", **options: Any) -> Reports[Any]:
        """Verify the graph of each size, as `hipgraphdsl.verify` does; return the reports by size, with an `ok` of all."""
        verify, found, params = load("verify").verify, Reports[Any](), options.pop("params", None) or {}
        for key in self._keys():
            graph = self._graph(key)
            sizes = {name: size for name, size in zip(self._sizes, key) if name in graph.workflow().parameters}
            found[self._shown(key)] = verify(graph, runtime, params=sizes | params, **options)
        return found

    # -- the end -------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Wait, and free everything; a second call does nothing. A family of which a member cannot be closed stays open."""
        with self._lock:
            try:
                with ExitStack() as stack:  # calls all, even if one fails
                    for key in list(self._members):
                        stack.callback(self._close, key)
            finally:
                if not self._members:
                    self._closed = True
                    self._arrays.close()
            self._raise_untold()

    def __enter__(self) -> Family:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            for executable in self._open():
                executable.__exit__(kind)  # which waits for a limited time
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Family holds device handles and cannot be copied or pickled; make it again")

    def __repr__(self) -> str:
        sizes = " x ".join(f"{name} {listed(sizes, 8)}" for name, sizes in self._sizes.items())
        built = getattr(self._build, "__name__", "build")
        return f"<Family of {built}: {sizes}; {len(self._members)} compiled>"


def _value_kept(value: Any, parameter: Parameter) -> Any:
    """Return a value that a launch has given as later launches of other members are given it."""
    if isinstance(value, Array) and not isinstance(value, ExternalArray):
        return value.name
    changes = parameter.copy or (isinstance(value, np.ndarray) and not parameter.shape)
    return copy.deepcopy(value) if changes else value


@contextmanager
def _unless_closed(executable: Executable) -> Iterator[None]:
    """Do nothing more if another thread has closed the Executable to make room, for which it has waited."""
    try:
        yield
    except HipGraphError as error:
        if type(error) is not HipGraphError or not executable._closed:
            raise


def _own_blocks(executable: Executable) -> list[Block]:
    """Return the memory of the arrays of an Executable, without that of the user."""
    return [block for block in executable._own.memory.arrays.values() if not isinstance(block.array, ExternalArray)]


def _is_sizes(value: Any) -> bool:
    """Whether a keyword argument lists sizes; others are options of `Graph.compile`."""
    return isinstance(value, (Sequence, np.ndarray)) and not isinstance(value, (str, bytes))


def _sorted_sizes(name: str, values: Any) -> tuple[int, ...]:
    found = set()
    for value in values:
        number = as_int(value)
        if number is None or number < 1:
            raise DeclarationError(f"{name}: a size is an integer from 1 (got {value!r})")
        found.add(number)
    if not found:
        raise DeclarationError(f"{name}: at least one size is needed")
    return tuple(sorted(found))


def _require_options(options: Mapping[str, Any]) -> None:
    """Refuse a keyword that is neither a list of sizes nor an option of `Graph.compile`."""
    known = [name for name in inspect.signature(Graph.compile).parameters if name not in _OURS]
    for name, value in options.items():
        if name not in known:
            raise DeclarationError(
                f"{name}={value!r} is neither a list of sizes, as {name}=[1, 2, 4], nor an option of Graph.compile"
                f"{suggested(name, known)}"
            )


_families: Final[weakref.WeakSet[Family]] = weakref.WeakSet()


def _after_fork() -> None:
    for family in _families:
        if family._lock.acquire(blocking=False):
            family._lock.release()
        else:  # the owner is a thread that does not exist in this process
            family._lock = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)
