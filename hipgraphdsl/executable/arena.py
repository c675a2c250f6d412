"""Memory and a stream that several Executables share, so that one of them runs at a time.

Their resources are passed as `own`, an Instance, which is built later than what it shares.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from ..arrays import as_int
from ..errors import DeclarationError, WaitTimeout
from ..printed import counted
from ..waiting import Deadline, unfinished_text
from .devices import Home

Allocate = Callable[[int, int], int]
"""Takes bytes and the handle of the stream that will use them; returns an address, which 256 divides."""


@dataclass(slots=True)
class _Area:
    """One allocation, which the Executables that were placed in it hold."""

    pointer: int
    nbytes: int
    device: int
    users: int = 0


class Arena:
    """Memory for the temporaries of several Executables of which one runs at a time, as of ``g.compile(memory=arena)``.

    Their arrays of alloc nodes lie in the same memory: as much as the largest of them needs. They also share their own stream,
    and launches follow each other in the order of the calls on every stream, so that no two can overlap: a wait for one waits
    for what the others have launched before.

    The memory is allocated at the first compile, grows when a larger graph is compiled, and is freed when the last of its
    Executables is closed. Where it grows, the Executables that are there move: each is built again at its next launch.

    Parameters
    ----------
    allocate, free : callable, optional
        Take the memory from another library's allocator. ``allocate(nbytes, stream)`` returns the address of device memory on the
        current device, a multiple of 256; ``free(address)`` gets it back.

    Raises
    ------
    DeclarationError
        If one of them is missing or cannot be called.
    """

    def __init__(self, *, allocate: Allocate | None = None, free: Callable[[int], object] | None = None) -> None:
        given = [function for function in (allocate, free) if function is not None]
        if len(given) == 1 or not all(map(callable, given)):
            raise DeclarationError(
                f"Arena takes two functions, allocate(nbytes, stream) and free(address), or neither (got {allocate!r}, {free!r})"
            )
        self._allocate, self._free = allocate, free
        self._home: Home | None = None
        self.stream = 0
        """The own stream of all its Executables; 0 while there are none."""
        self._lock = threading.RLock()
        """Held while the fields of areas and Executables change; no other lock is taken inside."""
        self._users = 0
        """How many Executables have the stream, or are being built."""
        self._areas: dict[int, list[_Area]] = {}
        """The areas of each device that Executables lie in, the newest last."""
        self._executables: weakref.WeakSet[Any] = weakref.WeakSet()
        self._turn = threading.Lock()
        """Held by the thread that enqueues a launch by Python."""
        self._thread = 0
        """That thread."""
        self._holder: Any = None
        """The Instance that it launches."""
        self.grown = False
        """Whether Executables lie in an area that is not the newest."""
        self._by_calls = False
        """Whether a launch may take several calls, so that all must hold `_turn` and compiled code may not launch."""

    @property
    def nbytes(self) -> int:
        """Bytes of device memory that it has now."""
        with self._lock:
            return sum(area.nbytes for areas in self._areas.values() for area in areas)

    def __reduce__(self) -> NoReturn:
        raise TypeError("an Arena holds device handles and cannot be copied or pickled; make another one")

    def __repr__(self) -> str:
        where = "" if self._home is None else f" on {self._home.runtime.name} device {self._home.device}"
        return f"<Arena: {self.nbytes} bytes of {counted(len(self._open()), 'Executable')}{where}>"

    # -- Executables ---------------------------------------------------------------------------------------------------

    def enter(self, home: Home) -> int:
        """Return the stream for one more Executable; refuse one of another runtime or device."""
        with self._lock:
            known = self._home
            if self._users and known is not None and (known.runtime is not home.runtime or known.device != home.device):
                raise DeclarationError(
                    f"compile: the arena has Executables on {known.runtime.name!r} device {known.device}, and this one would be"
                    f" on {home.runtime.name!r} device {home.device}; give it an arena of its own"
                )
            self._users += 1  # first: the collector may close an Executable at any point
            try:
                if not self.stream:
                    self.stream = home.runtime.stream_create()
            except BaseException:
                self._users -= 1
                raise
            self._home = home
            return self.stream

    def leave(self) -> None:
        """Let one Executable go; the last one destroys the stream."""
        with self._lock:
            self._users -= 1
            if not self._users and self._home is not None:
                stream, self.stream, self._by_calls = self.stream, 0, False
                self._home.runtime.stream_destroy(stream)

    def add(self, executable: Any) -> None:
        """Note an Executable that is open, whose temporaries may have to move later."""
        with self._lock:
            self._executables.add(executable)
            if self._by_calls:  # since it was bound
                executable._own.compiled.block()

    def note_bound(self, own: Any) -> None:
        """Let compiled code launch an Executable only while every launch of all is one call on the shared stream."""
        with self._lock:
            if own.program is not None and not own.program.handle:
                self._order_by_calls()
            if self._by_calls:
                own.compiled.block()

    def _order_by_calls(self) -> None:
        if not self._by_calls:
            self._by_calls = True
            for executable in self._open():
                executable._own.compiled.block()
                executable._own.compiled.drain()

    def _open(self) -> list[Any]:
        return [executable for executable in self._executables if not executable._closed]

    # -- memory --------------------------------------------------------------------------------------------------------

    def area(self, device: int, nbytes: int, known: int) -> tuple[int, int, Callable[[int], None]] | None:
        """Return address and size of at least so many bytes, and the function that gives them back.

        Return None if that is what an Executable has at the address `known`.
        """
        assert self._home is not None
        with self._lock:
            areas = self._areas.setdefault(device, [])
            area = areas[-1] if areas else None
            if area is None or area.nbytes < nbytes:
                new = _Area(0, nbytes, device, users=1)
                try:
                    with self._home.there(device):
                        new.pointer = self._allocated(nbytes)
                except BaseException:
                    if new.pointer:
                        self._freed(new.pointer)
                    raise
                areas.append(new)
                self.grown, area = self.grown or area is not None, new
            elif known == area.pointer:
                return None
            else:
                area.users += 1
            return area.pointer, area.nbytes, partial(self._given_back, area)

    def _allocated(self, nbytes: int) -> int:
        assert self._home is not None
        if self._allocate is None:
            return self._home.runtime.malloc(nbytes)
        given = self._allocate(nbytes, self.stream)
        found = as_int(given)
        if found is None or found <= 0 or found % 256:
            if found is not None and found > 0 and self._free is not None:
                self._free(found)
            raise DeclarationError(
                f"compile: allocate({nbytes}, stream) of the arena returns an address that 256 divides (got {given!r})"
            )
        return found

    def _given_back(self, area: _Area, _: int) -> None:
        """Free an area when nobody has it any more."""
        with self._lock:
            area.users -= 1
            if area.users:
                return
            self._areas[area.device].remove(area)
            self.grown = any(len(areas) > 1 for areas in self._areas.values())
            self._freed(area.pointer)

    def _freed(self, pointer: int) -> None:
        assert self._home is not None
        if self._free is None:
            self._home.runtime.free(pointer)
        else:
            self._free(pointer)

    def is_newest(self, device: int, address: int) -> bool:
        """Return whether an Executable's memory is still what new ones get."""
        with self._lock:
            areas = self._areas.get(device)
            return not areas or areas[-1].pointer == address

    def move_others(self, own: Any) -> None:
        """Let all other Executables leave areas that are not the newest, as far as no thread uses them now.

        Those that are in use, or call a function that is calling this, move at their next launch.
        """
        if not self.grown:
            return
        with self._lock:
            others = [executable for executable in self._open() if executable._own is not own]
        for executable in others:
            if executable._lock.acquire(blocking=False):
                try:
                    if not (executable._closed or executable._own.hosts.inside):
                        executable._leave_area()
                finally:
                    executable._lock.release()

    # -- order ---------------------------------------------------------------------------------------------------------

    def in_turn(self, own: Any, deadline: Deadline | None, call: Callable[[float | None], object]) -> bool:
        """Call a function that launches when no other thread does, with what is left of a time limit.

        Return False if it is this Executable's turn already.
        """
        if self._holder is own:
            return False
        me, name = threading.get_ident(), own.state.workflow.name
        if self._thread == me:
            raise DeclarationError(
                f"launch: graph {name!r} shares an arena with graph {self._name_of_holder()!r}, whose launch is calling this"
                " function; launch it after that one, or compile one of them without the arena"
            )
        held = list[bool]()
        try:
            # Atomic: Ctrl-C cannot come between taking the lock and noting it.
            held += map(self._turn.acquire, (True,), (-1 if deadline is None else deadline.left(),))
            if False in held:
                names = own.unfinished()
                said = (
                    f"launch: another thread launches graph {self._name_of_holder()!r}, which shares an arena with graph {name!r}"
                )
                raise WaitTimeout(said + unfinished_text(names), names)
            self._holder, self._thread = own, me
            call(None if deadline is None else deadline.left())
        finally:
            if True in held:
                self._holder, self._thread = None, 0
                self._turn.release()
        return True

    def _name_of_holder(self) -> str:
        holder = self._holder
        return "" if holder is None else str(holder.state.workflow.name)

    def launch(self, own: Any, launch: Callable[[int], None], stream: int, *, by_calls: bool = False) -> None:
        """Enqueue a launch after everything that Executables of the arena have launched, on a stream of anybody.

        `by_calls` says that it takes several calls on the stream, though launches of this Executable do not.
        """
        here = partial(self._launch_here, own, launch, stream, by_calls)
        if not self.in_turn(own, own.shared.deadline, here):
            here(None)

    def _launch_here(self, own: Any, launch: Callable[[int], None], stream: int, by_calls: bool, _: float | None) -> None:
        if by_calls or stream != self.stream:
            with self._lock:
                self._order_by_calls()
        if stream == self.stream:
            launch(stream)
            return
        home, follow = own.home, own.in_flight.follow
        device = home.runtime.stream_get_device(stream) if home.several else home.device
        follow(stream, self.stream, home.device)
        try:
            launch(stream)
        finally:
            follow(self.stream, stream, device)
