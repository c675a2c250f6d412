"""The memory of one Executable: its arrays, guard zones, and the blocks in which arrays of alloc nodes are packed."""

from __future__ import annotations

import ctypes
import mmap
import threading
import weakref
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import numpy as np

from ..arrays import AllocArray, Array, DeviceArray, ExternalArray, HostArray, Parameter, UnboundValues, array_values
from ..backends.lent import Lent, bytes_at, memory_view
from ..errors import DeclarationError, HipError, listed
from ..nodes.workflow import Level, Workflow
from ..runtimes.base import Runtime
from ..runtimes.data import ERROR_HOST_MEMORY_ALREADY_REGISTERED, MemcpyKind
from .devices import Home
from .stats import Stats

if TYPE_CHECKING:
    from ..plan.memory import MemoryUse
    from ..plan.temporaries import Packing
    from .arena import Arena

_MOST_LOCKED: Final = 64 << 20  # bytes of the largest base array that is page-locked as a whole when a view of it is used

_lending: Final = threading.RLock()
"""Held while a block makes the buffer that it lends, or counts who holds it: several threads may ask for the same memory.

The collector may close an Executable, which gives its memory back, while this thread holds it.
"""


@dataclass(slots=True)
class Block:
    """The memory of one array."""

    array: Array
    pointer: int
    release: Callable[[int], None] | None = None
    """Frees or unregisters the allocation; called with its start, `guard` bytes before `pointer`."""
    keep: Any = None
    """The owner of memory that `release` does not free."""
    device: int = 0
    guard: int = 0
    """Guard bytes of the allocation before `pointer`; as many follow the array."""
    pageable: bool = False
    """Host memory that is not page-locked."""
    refused: HipError | None = None
    """Why it could not be page-locked."""
    lent: weakref.ref[Any] | None = None
    """Weak reference to the buffer that keeps the memory alive for all to whom it is lent."""
    holders: int = 1
    """How many have it: two `Memory` objects while an Executable is being rebuilt, and all Executables of a family."""

    def lend(self) -> Lent:
        """Lend the memory: it lives as long as the buffer, beyond `give_back`."""
        with _lending:
            buffer: Any = None if self.lent is None else self.lent()
            if buffer is None:
                buffer = (ctypes.c_char * self.array.nbytes).from_address(self.pointer)  # an address; it is not read here
                buffer.owner = self.keep
                self.lent = weakref.ref(buffer)
        array = self.array
        return Lent(buffer, self.pointer, array.on_host, self.device, array.access, array.writeable)

    def shared(self) -> Block:
        """Return the block for one more holder."""
        with _lending:
            self.holders += 1
        return self

    def holds(self, address: int, nbytes: int = 1) -> bool:
        """Return whether bytes from an address on lie in the memory."""
        return self.pointer <= address and address + nbytes <= self.pointer + self.array.nbytes

    def part(self, parameter: Parameter, address: int) -> ExternalArray:
        """Return the memory from an address in it on as external memory for a parameter; it keeps the memory alive."""
        buffer, _, on_host, device, access, writeable = self.lend()
        name, shape, dtype = parameter.name, parameter.shape, parameter.dtype
        if on_host:
            return ExternalArray(name, shape, dtype, buffer, address, "host", writeable)
        return ExternalArray(name, shape, dtype, buffer, address, "device", writeable, device=device, access=access)

    def give_back(self, home: Home) -> None:
        """Free the allocation on its device if the Executable owns it; lent memory is freed when nobody has its buffer."""
        with _lending:
            self.holders -= 1
            if self.holders:
                return
        if home.sanitize:
            home.runtime.name_array(self.pointer, self.array.nbytes, None)
        if self.release is None:
            return
        buffer = None if self.keep is not None or self.lent is None else self.lent()
        if buffer is not None:
            self.holders = 1
            home.release_after(buffer, partial(self.give_back, home), f"the memory of array {self.array.name!r}", self.device)
            return
        with nullcontext() if self.device == home.device else home.returning(self.device):
            self.release(self.pointer - self.guard)

    def lock(self, runtime: Runtime) -> None:
        """Page-lock host memory until `give_back`; on failure `pageable` stays True and `refused` has the error.

        For a view of a NumPy array the whole base array is locked, up to 64 MiB, because other Executables may use other parts
        of it: no copy may cross the end of a registration.
        """
        start, nbytes = self.pointer - self.guard, self.array.nbytes
        if isinstance(self.array, HostArray):  # its own memory, in pages that hold nothing else
            nbytes = _pages(nbytes + 2 * self.guard)
        else:
            start, nbytes = _base(self.keep, start, nbytes)
        with runtime.relaxed():  # a launch that gives new memory is permitted while somebody captures
            try:
                registered = runtime.host_register(start, nbytes)
            except HipError as error:
                if error.code == ERROR_HOST_MEMORY_ALREADY_REGISTERED:
                    raise DeclarationError(
                        f"array {self.array.name!r} lies partly in memory that an Executable has page-locked, and no copy reaches"
                        " across the end of that part; give both the same array, or memory that does not overlap",
                        array=self.array.name,
                    ) from error
                self.refused = error
                return
        self.pageable = False
        if registered:
            self.release = lambda _: runtime.host_unregister(registered)


class Common(Protocol):
    """Arrays that several Executables use, each of which one of them has allocated."""

    def find(self, name: str, array: Array, device: int) -> Block | None:
        """Return the memory of an array for one more holder; None if it has to be allocated."""

    def offer(self, name: str, block: Block, home: Home) -> None:
        """Take note of an array that was allocated."""


class Sharing(NamedTuple):
    """What an Executable shares with others."""

    arena: Arena | None = None  # memory of temporaries, and a stream
    common: Common | None = None  # memory of arrays


ALONE: Final = Sharing()
"""Nothing is shared."""


def _base(owner: Any, start: int, nbytes: int) -> tuple[int, int]:
    """Return start and size of the contiguous base array around the memory; the arguments if it is too large or none."""
    while isinstance(getattr(owner, "base", None), np.ndarray):
        owner = owner.base
    if not isinstance(owner, np.ndarray) or owner.nbytes > _MOST_LOCKED or not owner.flags.forc:
        return start, nbytes
    first = owner.ctypes.data
    return (first, owner.nbytes) if first <= start and start + nbytes <= first + owner.nbytes else (start, nbytes)


class Memory:
    """Allocates, fills, copies and frees arrays; each has `guard` bytes of zeros before and after it."""

    def __init__(self, workflow: Workflow, home: Home, guard: int, stats: Stats, sharing: Sharing) -> None:
        self.arrays: dict[str, Block] = {}
        """By name, ``"child/x"`` inside children."""
        self._workflow = workflow
        self._home = home
        self._runtime = home.runtime
        self._guard = guard
        self._stats = stats
        self._arena, self._common = sharing
        self._packed: dict[int, Block] = {}
        """Blocks in which packed arrays of alloc nodes share memory, by device."""
        self._words: list[Block] = []
        """Blocks for the progress words of watched plans; the last one is the largest."""
        self._before: Memory | None = None
        self._taken: dict[str, Array] = {}
        """Arrays whose memory comes from there, as the former graph declares them."""

    def inherit(self, before: Memory | None) -> None:
        """Use the memory of another Executable for arrays that are alike, instead of allocating; both hold it then."""
        self._before = before

    def keep_inherited(self) -> None:
        """Note that the other Executable has been closed, so that this one alone holds the memory."""
        self._before = None
        self._taken.clear()

    def find(self, asked: str | Array, action: str = "") -> Block:
        """Return the memory of an array, by name or as declared; refuse unknown arrays and those that exist only in a launch."""
        name = asked if isinstance(asked, str) else self._name_of(asked, action)
        block = self.arrays.get(name)
        if block is None:
            level, inner = Level(self._workflow).at(name)
            if isinstance(level.workflow.arrays.get(inner), AllocArray):
                raise DeclarationError(
                    f"array {name!r} is made by an alloc node and lives only while the graph runs; copy it to a host or"
                    " device array",
                    array=name,
                )
            names = listed(self.arrays, 20)
            raise DeclarationError(f"graph {self._workflow.name!r} has no array {name!r}; its arrays are {names}", array=name)
        return block

    def holding(self, address: int, nbytes: int = 1) -> tuple[str, Block] | None:
        """Return the array that bytes lie in, with its name; the Executable's own memory before external memory."""
        found = [(name, block) for name, block in self.arrays.items() if block.holds(address, nbytes)]
        return min(found, key=lambda pair: isinstance(pair[1].array, ExternalArray), default=None)

    def _name_of(self, array: Any, action: str) -> str:
        if not isinstance(array, Array):
            raise DeclarationError(f"{action}: the name of an array is expected, or the declared array itself (got {array!r})")
        if self._workflow.arrays.get(array.name) is not array:
            raise DeclarationError(
                f"{action}: graph {self._workflow.name!r} does not declare this array {array.name!r}; an array inside a child"
                f" is named, as {'child/' + array.name!r}",
                array=array.name,
            )
        return array.name

    def allocate(self, name: str, array: Array, prefix: str) -> int:
        """Allocate an array on its device, or bind an external array, and return its address."""
        home = self._home
        device = home.device if array.device is None else array.device
        known = None if self._before is None else self._before.arrays.get(name)
        if known is not None and known.device == device and alike(known.array, array):
            self.arrays[name] = known.shared()  # counted first: Ctrl-C in between leaks it, and does not free it twice
            self._taken[name], known.array = known.array, array
            self._count(array.nbytes + 2 * known.guard, on_host=array.on_host)
            return known.pointer
        if self._common is not None and (found := self._common.find(name, array, device)) is not None:
            self.arrays[name] = found
            return found.pointer
        with nullcontext() if device == home.device else self._runtime.using_device(device):
            block = self.arrays[name] = self._allocate_here(name, array, prefix, device)
            block.device = device
        if self._common is not None:
            self._common.offer(name, block, home)
        return block.pointer

    def _allocate_here(self, name: str, array: Array, prefix: str, device: int) -> Block:
        runtime, guard = self._runtime, self._guard
        nbytes = array.nbytes + 2 * guard
        match array:
            case DeviceArray():
                values = _as_bytes(_initial(name, array), guard)
                start = runtime.malloc(nbytes)
                block = self.arrays[name] = Block(array, start + guard, runtime.free, device=device, guard=guard)
                self._count(nbytes, on_host=False)
                runtime.memcpy(start, values.ctypes.data, nbytes, MemcpyKind.HOST_TO_DEVICE)
            case HostArray():
                values = _as_bytes(_initial(name, array), guard)
                if array.pinned:
                    start = runtime.host_malloc(nbytes)
                    block = Block(array, start + guard, runtime.host_free, guard=guard)
                else:
                    pages = np.empty(_pages(nbytes) + mmap.PAGESIZE, np.uint8)
                    start = _pages(pages.ctypes.data)
                    block = Block(array, start + guard, None, pages, guard=guard, pageable=True)
                self._count(nbytes, on_host=True)
                bytes_at(start, nbytes)[...] = values
            case ExternalArray():
                block = hold(array, bind_external(array, prefix), self._home)
            case _:
                raise DeclarationError(f"array {name!r} is of an unknown kind {array.kind!r}", array=name)
        if self._home.sanitize and not isinstance(array, ExternalArray):
            runtime.name_array(block.pointer, array.nbytes, name)
        return block

    def _count(self, nbytes: int, *, on_host: bool) -> None:
        if on_host:
            self._stats.host_bytes += nbytes
        else:
            self._stats.device_bytes += nbytes

    def make_own(self, name: str, parameter: Parameter) -> Block:
        """Allocate page-locked memory for a parameter that copies its values; the caller must free it."""
        array = HostArray(name, parameter.shape, parameter.dtype, initial=parameter.default)
        return self._allocate_here(name, array, "", self._home.device)

    def read(self, block: Block) -> np.ndarray[Any, Any]:
        """Return a copy of an array's values; no launch may be in flight."""
        array = block.array
        if array.on_host:
            return bytes_at(block.pointer, array.nbytes).copy().view(array.dtype).reshape(array.shape)
        values = np.empty(array.shape, array.dtype)
        with self._home.there(block.device):
            self._runtime.memcpy(values.ctypes.data, block.pointer, array.nbytes, MemcpyKind.DEVICE_TO_HOST)
        return values

    def write(self, block: Block, values: np.ndarray[Any, Any]) -> None:
        """Set an array's values to the result of `values_for`; no launch may be in flight."""
        array = block.array
        if array.on_host:
            bytes_at(block.pointer, array.nbytes)[...] = _as_bytes(values)
        else:
            with self._home.there(block.device):
                self._runtime.memcpy(block.pointer, values.ctypes.data, array.nbytes, MemcpyKind.HOST_TO_DEVICE)

    def copy_from(self, other: Memory) -> None:
        """Copy the values of another Executable's own arrays of equal name, shape and dtype; no launch may be in flight."""
        for name, block in other.arrays.items():
            mine = self.arrays.get(name)
            if mine is None or mine is block or isinstance(block.array, ExternalArray) or isinstance(mine.array, ExternalArray):
                continue
            if mine.array.shape == block.array.shape and mine.array.dtype == block.array.dtype:
                self.write(mine, other.read(block))

    @staticmethod
    def values_for(name: str, array: Array, values: Any) -> np.ndarray[Any, Any]:
        """Convert values to an array's shape and dtype; refuse those that do not fit, and any for a read-only array."""
        if isinstance(array, ExternalArray) and not array.writeable:
            raise DeclarationError(f"external array {name!r} is read-only", array=name)
        return array_values(f"array {name!r}", values, array.dtype, array.shape, name)

    # -- packed arrays -------------------------------------------------------------------------------------------------

    def make_packed(self, packing: Packing) -> dict[int, Block]:
        """Return blocks, by device, for a plan's packed arrays; existing blocks are reused if they are large enough."""
        found: dict[int, Block] = {}
        try:
            for device, nbytes in packing.blocks:
                known = self._packed.get(device)
                if self._arena is not None:
                    area = self._arena.area(device, nbytes, 0 if known is None else known.pointer)
                    if area is not None:
                        found[device] = _packed_block(device, *area)
                elif known is None or known.array.nbytes < nbytes:
                    with self._home.there(device):
                        found[device] = _packed_block(device, self._runtime.malloc(nbytes), nbytes, self._runtime.free)
                if device not in found and known is not None:
                    found[device] = known
        except BaseException:
            self.drop_packed(found)
            raise
        return found

    def drop_packed(self, blocks: dict[int, Block]) -> None:
        """Free the new blocks of `make_packed`."""
        for device, block in blocks.items():
            if block is not self._packed.get(device):
                block.give_back(self._home)

    def use_packed(self, blocks: dict[int, Block]) -> None:
        """Make these blocks current and free the previous ones."""
        old, self._packed = self._packed, blocks
        for device in {*old, *blocks}:
            before, now = old.get(device), blocks.get(device)
            if before is not now:
                if self._arena is None:  # which counts its own
                    self._stats.device_bytes += (now.array.nbytes if now else 0) - (before.array.nbytes if before else 0)
                if before is not None:
                    before.give_back(self._home)

    def use(self, planned: MemoryUse) -> MemoryUse:
        """Return what it has taken, of what a plan takes."""
        packed, stats = sum(block.array.nbytes for block in self._packed.values()), self._stats
        arrays = stats.device_bytes - (packed if self._arena is None else 0)
        return replace(planned, arrays=arrays, temporaries=packed, staging=stats.host_bytes)

    @property
    def moves(self) -> bool:
        """Whether the arena has newer memory for the packed arrays."""
        arena = self._arena
        if arena is None or not arena.grown:
            return False
        return not all(arena.is_newest(device, block.pointer) for device, block in self._packed.items())

    def leave(self) -> None:
        """Give back the memory of packed arrays; the program must be built again."""
        self.use_packed({})

    # -- marks of watched plans ----------------------------------------------------------------------------------------

    def words(self, marks: HostArray) -> int:
        """Return the address of the words with the marks of a watched plan, all set to 1; no launch may be in flight."""
        if not self._words or self._words[-1].array.nbytes < marks.nbytes:
            start = self._runtime.host_malloc(marks.nbytes)
            self._words.append(Block(marks, start, self._runtime.host_free, device=self._home.device))
            self._count(marks.nbytes, on_host=True)
        start = self._words[-1].pointer
        memory_view(start, marks.nbytes, marks.shape, marks.dtype)[...] = 1
        return start

    # -- the end -------------------------------------------------------------------------------------------------------

    def return_into(self, stack: ExitStack) -> None:
        """Register the release of everything with an exit stack."""
        stack.callback(self._hand_back)
        for block in (*self.arrays.values(), *self._packed.values(), *self._words):
            stack.callback(block.give_back, self._home)
        for table in (self.arrays, self._packed, self._words):
            stack.callback(table.clear)

    def _hand_back(self) -> None:
        """Let what was inherited be described by the graph of the Executable that keeps it."""
        if self._before is not None:
            for name in self._taken.keys() & self._before.arrays:  # none if that one has been closed first
                self._before.arrays[name].array = self._taken[name]
            self.keep_inherited()


def _packed_block(device: int, start: int, nbytes: int, free: Callable[[int], None]) -> Block:
    return Block(DeviceArray("packed", (nbytes,), np.dtype("u1"), device=device), start, free, device=device)


def alike(one: Array, other: Array) -> bool:
    """Return whether two arrays of one name may have the same memory, one after the other."""
    if isinstance(one, ExternalArray) or type(one) is not type(other):
        return False
    return all(getattr(one, what, None) == getattr(other, what, None) for what in ("shape", "dtype", "pinned"))


def bind_external(array: ExternalArray, prefix: str) -> int:
    """Return the address of an external array; refuse one that was loaded from a file without memory."""
    if not array.pointer:
        raise DeclarationError(
            f"external array {prefix + array.name!r} has no memory; supply it by from_json(text, arrays={{{array.name!r}: ...}})",
            array=array.name,
        )
    return array.pointer


def hold(array: ExternalArray, pointer: int, home: Home) -> Block:
    """Return a block that keeps external memory alive; host memory is page-locked if possible and `array.lock` is set."""
    device = home.device if array.device is None else array.device
    block = Block(array, pointer, keep=array.obj, device=device, pageable=array.on_host)
    if block.pageable and array.lock:
        block.lock(home.runtime)
    if home.sanitize:
        home.runtime.name_array(pointer, array.nbytes, array.name)
    return block


def _pages(nbytes: int) -> int:
    return -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE


def _initial(name: str, array: DeviceArray | HostArray) -> np.ndarray[Any, Any]:
    if isinstance(array.initial, UnboundValues):
        raise DeclarationError(
            f"array {name!r} has no initial values: the file holds only their hash; supply them by"
            f" from_json(text, arrays={{{array.name!r}: values}})",
            array=array.name,
        )
    if array.initial is not None:
        return array.initial
    try:
        return np.zeros(array.shape, array.dtype)  # untouched pages take no physical memory
    except MemoryError as error:
        raise MemoryError(f"array {name!r}: {error}") from None
    except ValueError:
        raise DeclarationError(
            f"array {name!r} of {array.dtype}{list(array.shape)} takes {array.nbytes} bytes, more than an address space has",
            array=array.name,
        ) from None


def _as_bytes(values: np.ndarray[Any, Any], guard: int = 0) -> np.ndarray[Any, Any]:
    """Return values as bytes, with `guard` zeros before and after them.

    NumPy copies arrays of structs field by field, without the padding between them.
    """
    found = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    if not guard:
        return found
    zeros = np.zeros(guard, np.uint8)
    return np.concatenate([zeros, found, zeros])
