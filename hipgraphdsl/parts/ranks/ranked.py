"""The Executable of one rank, returned by `Graph.compile` when several processes share the graph's devices."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from itertools import count, islice
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import numpy as np

from ...arrays import Array, as_int
from ...backends.interop import CapturedArray
from ...checks import require_sound
from ...errors import CallbackError, DeclarationError, HipGraphError, RankError, UpdateError, WaitTimeout
from ...executable import Executable
from ...executable.changes import require_free, require_switchable
from ...executable.changing import changing
from ...executable.in_flight import stream_handle
from ...executable.rebuilding import afresh, replace_by
from ...nodes import Node
from ...nodes.comparing import translated
from ...nodes.workflow import Level, Workflow
from ...plan.options import PlanOptions
from ...runtimes.base import Runtime
from ...update import HasWorkflow
from ...waiting import Deadline, require_seconds
from .crossings import Exchange, OnStream, connect
from .partition import Part, partition
from .sharing import ALL, Between, Message, Sharing
from .transports import Calls, Transfer, listed
from .transports.nccl import CAPTURES, Nccl, does
from .world import Ranks, agree, agree_on_gather, told_before_agreeing

if TYPE_CHECKING:
    from ... import Timeline

_log = logging.getLogger("hipgraphdsl")

T = TypeVar("T")


class RankExecutable(Executable):
    """One rank's part of a workflow, instantiated. Made by `Graph.compile(ranks=...)`.

    Every rank makes the same calls in the same order. `launch` returns when this rank's messages through the host are done;
    messages on a stream may still be in flight. Changing a node or writing an array of another rank has no effect on this rank.

    Attributes
    ----------
    ranks : Ranks
    part : Part
        The part of this rank, and the messages of all ranks.
    """

    ranks: Ranks
    _alone = False
    part: Part
    _whole: Workflow
    _first_tag: int
    _link: Nccl | None = None
    _captures: bool = False
    _shown = ""
    _told = False
    """Whether a call has raised that ranks have come apart; then `synchronize` does not, so that own arrays can be read."""
    _calls: Calls
    """Count of its launches, for the other ranks; `_gathers` counts the calls of `gather`."""
    _gathers: Calls

    @staticmethod
    def compile(
        ranks: Ranks, whole: Workflow, runtime: Runtime, backend: str, *, options: PlanOptions, check: bool, **given: Any
    ) -> RankExecutable:
        """Compare the workflow with those of the other ranks, extract this rank's part, check it, and build.

        Raises
        ------
        CheckError
            If this rank's part has faults.
        DeclarationError
            If the ranks declare different graphs, or a node other than a copy or collective accesses memory of two ranks.
        RankError
            If another rank does not make the call in time, or cannot compile its part.
        """
        first_tag, captures = ranks.take_tags(0), options.capture_collectives
        part, link = _part("compile", whole, ranks, runtime, backend, first_tag, captures)
        device, graph = part.layout.first_local, f"graph {whole.name!r}"

        def build() -> RankExecutable:
            if check:
                require_sound(part.workflow, runtime.target, device, backend)
            return RankExecutable.build(
                part.workflow, runtime, backend, options=options, **{**given, "check": check, "device": device}
            )

        try:
            with link.watched(graph) if link is not None else nullcontext():
                if link is not None:
                    connect(link, ranks, part.messages, runtime, device, captured=captures)
                made, refused = _attempt(build)
            refusals = ranks.refusals(refused, f"compile of {whole.name!r}")
        except BaseException as error:
            ranks.transport.fail(f"it cannot compile its part of {whole.name!r}: {type(error).__name__}: {error}")
            raise
        if made is None or refusals:
            if made is not None:
                made.close()
            rank, why = next(iter(refusals.items()))
            raise refused or RankError(f"rank {rank} says that it cannot compile its part of {whole.name!r}: {why}", rank=rank)
        ranks.take_tags(len(part.messages) + 1)  # the first tag is unique to this Executable, even without messages
        made.ranks, made._first_tag = ranks, first_tag
        direct = [message for message in part.messages if link is not None and message.on_devices]
        mine = [message for message in direct if message.together or ranks.rank in (message.source, message.target)]
        partners = {rank for m in mine for rank in (range(ranks.size) if m.together else (m.source, m.target))} - {ranks.rank}
        made._calls = Calls(f"{ranks.tag(first_tag)}", f"a launch of {graph}", frozenset(partners), made._own.compiled.launcher)
        made._gathers = Calls(f"{ranks.tag(first_tag)} gather", f"a gather of {graph}", frozenset(), None)
        made._follow(part, whole)
        made._captures = captures
        ranks.transport.absences.follow(made._calls, made._gathers)
        if link is not None and direct:
            made._link = link
            made._shown = f"{graph} ({listed([message.name for message in mine])})"
            made._own.compiled.blocked = True
            if captures:
                link.before_close(partial(_close, weakref.ref(made)))
        return made

    def _follow(self, part: Part, whole: Workflow) -> None:
        """Record the graph of all ranks and this rank's part of it."""
        self.part, self._whole = part, whole
        self._calls.closed = False
        parameters, owners = self._own.parameters, part.owners.items()
        parameters.whole = whole
        parameters.foreign = {name: owner for name, owner in owners if owner not in (ALL, self.ranks.rank)}

    # -- running

    def _launch(self, /, stream: Any = None, timeout_s: float | None = None, **params: Any) -> None:
        """Launch this rank's part, and return when its messages through the host are done; see `Executable.launch`.

        Raises
        ------
        RankError
            If another rank is late, has failed or has died; names the rank and the node. No further message can be sent then.
        """
        link = self._link
        self._raise_broken()
        with self._told_where_refused(self._calls):
            if self._closed:
                self._refuse_closed("launch")
            require_seconds(timeout_s)
            handle = self._own.in_flight.stream if stream is None else stream_handle(stream)
            if link is not None:
                link.begin(self._shown, handle, own=stream is None, partners=self._calls.partners)
        try:
            self._together(super()._launch, stream, timeout_s, **params)
        except WaitTimeout as error:  # the rest of the launch is not issued, and other ranks wait for it
            self._leave_others(error)
            raise
        finally:
            if link is not None:
                link.end(handle)
        if link is None:
            return
        self._raise_broken()
        if stream is None and not self._own.hosts.names():  # a host node's failure must be reported before the next launch
            self._go_by_compiled_code(link, handle)

    def _give(self, params: Mapping[str, Any], stream: int | None = None, deadline: Deadline | None = None) -> bool:
        with self._told_where_refused(self._calls):
            captured = super()._give(params, stream, deadline)
        self._calls.made += 1
        return captured

    @contextmanager
    def _told_where_refused(self, calls: Calls) -> Iterator[None]:
        """Report a refused launch or other call to the other ranks, which may make that call."""
        try:
            yield
        except HipGraphError as error:
            with suppress(RankError):
                self.ranks.transport.refuse(calls, str(error))
            raise

    def _go_by_compiled_code(self, link: Nccl, stream: int) -> None:
        """Let later launches on the own stream take the compiled fast path, if there is one."""
        with self._lock:
            program = self._program
            if not self._closed and program is not None and self._own.compiled.bind_calls(program, stream):
                link.hold(self._own.compiled, stream)

    def profile(self, /, **params: Any) -> Timeline:
        """Launch an instrumented copy of this rank's part once; every rank must call it. See `Executable.profile`."""
        return self._together(super().profile, **params)

    def _launch_failed(self, code: int) -> None:
        self._together(super()._launch_failed, code)

    def _synchronize(self, timeout_s: float | None = None) -> None:
        self._together(super()._synchronize, timeout_s)
        if not self._told:
            self._raise_broken()

    def _raise_broken(self) -> None:
        """Raise the error that broke the link, if any."""
        if self._link is not None and self._link.broken:
            self._told = True
            self._link.raise_broken()

    def _together(self, call: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Make a call; if it fails, report that to the other ranks, which would otherwise wait for this one."""
        try:
            returned = call(*args, **kwargs)
            for node, error in self._own.hosts.failures:  # nothing after the failed node has run
                self.ranks.transport.fail(f"host node {node!r}: {type(error).__name__}: {error}")
            return returned
        except BaseException as error:
            goes_on = isinstance(error, (DeclarationError, WaitTimeout)) and not isinstance(error, CallbackError)
            if goes_on or self._closed or self._forked:  # refused before anything ran, or the wait timed out
                raise
            if isinstance(error, HipGraphError):
                self._raise_broken()
            self._leave_others(error)
            raise

    def _leave_others(self, error: BaseException) -> None:
        self._told = True
        if not isinstance(error, RankError):
            self.ranks.transport.fail(f"{type(error).__name__}: {error}")

    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> None:
        error = rest[0] if rest else None
        if isinstance(error, BaseException) and not isinstance(error, SystemExit):  # SystemExit is no failure
            self._leave_others(error)
        super().__exit__(kind, *rest)

    def close(self, timeout_s: float | None = None) -> None:
        """Wait for the device and free all but memory that a failed message may still write to; see `Executable.close`."""
        ranks = getattr(self, "ranks", None)
        if ranks is not None and ranks.transport.still_writes and not self._closed:
            self._leave_open()
            _log.warning("graph %r: its memory is kept, because a message that failed may still arrive", self.workflow.name)
            return
        if self._link is not None and not self._closed:
            self._link.release(self._own.compiled)
            self._link.forget(self._own.in_flight.stream)
        try:
            super().close(timeout_s)
        finally:
            if ranks is not None:
                self._calls.closed = self._closed

    # -- data

    def read(self, name: str | Array) -> np.ndarray[Any, Any]:
        """Wait, and return a copy of an array's values, on the rank that has it.

        Raises
        ------
        DeclarationError
            If it belongs to another rank, which is named, or there is no array of that name.
        """
        return super().read(self._mine(name, "read"))

    def write(self, name: str | Array, values: Any) -> None:
        """Wait, and set an array's values on the rank that has it; a no-op on the other ranks."""
        found = self._name(name, "write")
        if self._closed:
            self._refuse_closed("write")
        if self.part.owners.get(found, ALL) in (ALL, self.ranks.rank):
            super().write(found, values)

    def array(self, name: str | Array) -> CapturedArray:
        """Return an array's memory without a copy, on the rank that has it; see `Executable.array`."""
        return super().array(self._mine(name, "array"))

    def gather(self, *names: str, root: int = 0) -> tuple[np.ndarray[Any, Any], ...] | None:
        """Wait, and return copies of arrays of any ranks on one rank; every rank must call it.

        Parameters
        ----------
        *names : str
            If each rank has its own instance of an array, that of `root` is returned.
        root : int
            The rank that gets the copies, in the order of the names; the others get None.

        Raises
        ------
        DeclarationError
            If there is no array of that name.
        RankError
            If another rank does not make the call in time.
        """
        ranks = self.ranks
        with self._told_where_refused(self._gathers):
            wanted, values = self._to_exchange(names, root)
        self._gathers.made += 1
        arrays = ", ".join(repr(name) for name, *_ in wanted) or "nothing"
        agree_on_gather(ranks, self._whole, f"{arrays} to rank {root}", self._calls.key)
        found: list[np.ndarray[Any, Any]] = []
        transfers: list[Transfer] = []
        for (name, array, owner), number in zip(wanted, count(ranks.take_tags(len(wanted)))):
            if ranks.rank not in (owner, root):
                continue
            found.append(next(values) if ranks.rank == owner else np.empty(array.shape, array.dtype))
            if owner != root:
                sends, other, kept = ranks.rank == owner, owner + root - ranks.rank, found[-1]
                tag = ranks.tag(number)
                transfers.append(Transfer(f"gather {name}", other, sends, tag, kept.ctypes.data, kept.nbytes, kept))
        if transfers:
            ranks.transport.exchange(transfers, ranks.timeout_s)
        return tuple(found) if ranks.rank == root else None

    def _to_exchange(
        self, names: Sequence[str], root: int
    ) -> tuple[list[tuple[str, Array, int]], Iterator[np.ndarray[Any, Any]]]:
        """Return the arrays of a `gather`, each with its name and the rank that gives it, and copies of what this rank gives."""
        if self._closed:
            self._refuse_closed("gather")
        if (number := as_int(root)) is None or not 0 <= number < self.ranks.size:
            raise DeclarationError(f"gather: root is the number of a rank, from 0 to {self.ranks.size - 1} (got {root!r})")
        wanted = []
        for name, array in map(self._to_gather, names):
            owner = self.part.owners[name]
            wanted.append((name, array, root if owner == ALL else owner))
        return wanted, iter([super(RankExecutable, self).read(name) for name, _, owner in wanted if owner == self.ranks.rank])

    def _to_gather(self, wanted: str | Array) -> tuple[str, Array]:
        """Return the name of an array of the whole graph and the declared array."""
        name = self._name(wanted, "gather")
        level, inner = Level(self._whole).at(wanted if isinstance(wanted, str) else name)
        array = level.workflow.arrays.get(inner)
        if array is None or name not in self.part.owners:
            known = (name for level in self._whole.levels() for name, _ in level.own_arrays())
            names = ", ".join(map(repr, islice(known, 20))) or "none"
            raise DeclarationError(
                f"gather: graph {self._whole.name!r} has no array {wanted!r}; its arrays are {names}", array=name
            )
        return name, array

    def _name(self, name: str | Array, action: str) -> str:
        """Return the name of an array of the whole graph."""
        if isinstance(name, Array) and self._whole.arrays.get(name.name) is name:
            return name.name
        if isinstance(name, str):
            return self.part.inside(name)
        raise DeclarationError(
            f"{action}: the name of an array of graph {self._whole.name!r} is expected, or the declared array itself"
            f" (got {name!r})"
        )

    def _mine(self, name: str | Array, action: str) -> str:
        found = self._name(name, action)
        owner = self.part.owners.get(found, ALL)
        if owner not in (ALL, self.ranks.rank):
            raise DeclarationError(
                f"{action}: array {found!r} belongs to rank {owner}, and this is rank {self.ranks.rank}; call {action} there,"
                f" or let every rank call gather({found!r})",
                array=found,
            )
        return found

    # -- changes

    def set(self, node: str | Node, /, **fields: Any) -> None:
        """Change fields of a node, on the rank that runs it; see `Executable.set`.

        Every rank refuses unknown fields and invalid values. Only the rank that runs the node refuses values that conflict with
        the rest of the graph or with that rank's memory.
        """
        name, elsewhere = self._done_here(node, "set")
        if elsewhere is None:
            super().set(name, **{key: self._translated(value, name) for key, value in fields.items()})
        else:
            require_free(name, elsewhere, fields)
            elsewhere.changed(**fields)

    def _translated(self, value: Any, node: str) -> Any:
        """Return a field's value with this rank's arrays and parameters."""
        try:
            return translated(value, self.workflow.arrays, self.workflow.parameters, node)
        except DeclarationError as error:
            name, here = error.array or "", f"node {node!r} runs on rank {self.ranks.rank}"
            owner = self.part.owners.get(name, ALL)
            if owner not in (ALL, self.ranks.rank):
                raise UpdateError(f"set: {here}, and array {name!r} belongs to rank {owner}", node=node) from None
            raise

    def enable(self, node: str | Node) -> None:
        """Run a disabled node again, on the rank that runs it."""
        name, elsewhere = self._done_here(node, "enable")
        if elsewhere is None:
            super().enable(name)
        else:
            require_switchable(name, elsewhere, enabled=True)

    def disable(self, node: str | Node) -> None:
        """Skip a node, on the rank that runs it."""
        name, elsewhere = self._done_here(node, "disable")
        if elsewhere is None:
            super().disable(name)
        else:
            require_switchable(name, elsewhere, enabled=False)

    def _done_here(self, node: str | Node, action: str) -> tuple[str, Node | None]:
        """Return a node's name in this part, and the node itself if other ranks run it; refuse nodes that cannot change."""
        if self._closed:
            self._refuse_closed(action)
        given = node if isinstance(node, str) else str(getattr(node, "name", node))
        name = self.part.inside(given)
        if name in self.part.inlined and "/" not in name:  # nodes in conditional bodies get an error of their own
            raise UpdateError(f"{action}: several ranks do child graph {given!r}; {action} its nodes one by one", node=given)
        if name in self.part.fixed:
            raise UpdateError(
                f"{action}: node {given!r} copies from one rank to another, which is fixed when the graph is compiled", node=given
            )
        level, inner = Level(self._whole).at(given)
        here = name.partition("/")[0] in self.workflow.index
        return name, None if here else level.workflow.node(inner)

    def update(self, graph: HasWorkflow, *, rebuild: bool = False) -> None:
        """Change to another graph of the same shape; every rank must call it. See `Executable.update`.

        Raises
        ------
        UpdateError
            Also if the messages between ranks, or their order, would change.
        """
        with told_before_agreeing(self.ranks, f"update of {self._whole.name!r}"):
            if not callable(getattr(graph, "workflow", None)):
                raise DeclarationError(f"update takes a Graph or a Workflow (got {graph!r})")
            whole = graph.workflow()
        part, _ = _part("update", whole, self.ranks, self.runtime, self.backend, self._first_tag, self._captures)
        if [message.content for message in part.messages] != [message.content for message in self.part.messages]:
            raise UpdateError(
                f"graph {self._whole.name!r} cannot take {whole.name!r}: what crosses between ranks is fixed when it is compiled;"
                " compile the other graph"
            )
        self._update(part.workflow, whole.name, rebuild)
        self._follow(part, whole)

    def _update(self, workflow: Workflow, name: str, rebuild: bool) -> None:
        """Update all ranks or none; if a HIP call then fails on some ranks only, close the Executable on every rank."""
        ranks, what, graphs = self.ranks, f"update of {self._whole.name!r}", f"graph {self._whole.name!r} cannot take {name!r}"
        replacement = None
        try:
            replacement, refused = _attempt(self._ready, workflow, rebuild)
            refusals = ranks.refusals(refused, what)
            if not refusals:
                _, refused = _attempt(self._take, workflow, replacement)
                refusals = ranks.refusals(refused, what)
                if 0 < len(refusals) < ranks.size:
                    self.close()
        except BaseException as error:
            self._leave_others(error)
            raise
        finally:
            if replacement is not None:
                replacement.close()  # a no-op if this Executable has taken it over
        if refused is not None:
            raise refused
        if refusals:
            rank, why = next(iter(refusals.items()))
            if self._closed:
                raise UpdateError(f"{graphs} on rank {rank}, and is closed on all ranks; compile it again: {why}")
            if rebuild or not why.startswith("UpdateError"):
                raise UpdateError(f"{graphs} on rank {rank}, so no rank takes it: {why}")
            raise UpdateError(
                f"{graphs} in place on rank {rank}, so no rank takes it; let every rank call update(graph, rebuild=True) to"
                f" rebuild it: {why}"
            )

    @changing("update")
    def _ready(self, workflow: Workflow, rebuild: bool) -> Executable | None:
        """Return a replacement Executable if the workflow cannot be updated in place, else None; raise before any change."""
        try:
            self._own.changes.with_workflow(self._own.state, workflow)
        except UpdateError:
            if not rebuild:
                raise
            made: Executable = afresh(self, Executable.build, workflow)
            return made
        return None

    @changing("update")
    def _take(self, workflow: Workflow, replacement: Executable | None) -> None:
        if self._link is not None:
            self._link.release(self._own.compiled)  # the updated Executable starts on the slow path
        if replacement is None:
            super().update(workflow)
        else:
            replace_by(self, replacement)

    def clone(self) -> NoReturn:
        """Refuse: all ranks must be able to distinguish the messages of two Executables.

        Raises
        ------
        UpdateError
        """
        raise UpdateError(f"clone: graph {self._whole.name!r} runs on several ranks; let each compile it again")


def _attempt(call: Callable[..., T], *args: Any, **kwargs: Any) -> tuple[T | None, Exception | None]:
    """Make a call; return what it returns, or the error that it raises."""
    try:
        return call(*args, **kwargs), None
    except Exception as error:
        return None, error


def _part(
    action: str, whole: Workflow, ranks: Ranks, runtime: Runtime, backend: str, first_tag: int, captures: bool
) -> tuple[Part, Nccl | None]:
    """Return this rank's part of the graph that all ranks declare, and the link between devices, or None."""
    options = {
        "backend": backend,
        "runtime": runtime.name,
        "devices_per_rank": ranks.counts,
        "nccl": ranks.nccl,
        "capture_collectives": captures,
    }
    agree(ranks, whole, options, action)
    link, why_not = ranks.link(runtime)
    if captures and ranks.size > 1:
        _require_captures(link, why_not)
    reaches = runtime.target.dlpack_device == 1

    def made(messages: tuple[Message, ...], direct: bool) -> Exchange | OnStream:
        return OnStream(ranks, messages, link) if direct and link is not None else Exchange(ranks, messages, first_tag)

    def take() -> Part:
        sharing = Sharing(whole, ranks.layout(runtime), None if link is None else Between(does, captures))
        return partition(sharing, ranks.rank, made, through_host=not reaches)

    part, refused = _attempt(take)
    if refused is not None:  # the others may have their parts, and wait for this rank's
        ranks.refusals(refused, f"{action} of {whole.name!r}")
        raise refused
    assert part is not None
    return part, link


def _require_captures(link: Nccl | None, why_not: str) -> None:
    if link is None:
        raise DeclarationError(f"compile: PlanOptions(capture_collectives=True) needs NCCL or RCCL on all ranks: {why_not}")
    if link.version < CAPTURES:
        raise DeclarationError(
            f"compile: PlanOptions(capture_collectives=True) needs {link.name} {_shown(CAPTURES)} or later (got"
            f" {_shown(link.version)}); leave it out"
        )


def _shown(version: int) -> str:
    return f"{version // 10000}.{version // 100 % 100}.{version % 100}"


def _close(reference: weakref.ref[RankExecutable]) -> None:
    """Close an Executable whose graph contains work of a communicator that is about to be destroyed."""
    executable = reference()
    if executable is not None:
        executable.close()
