"""What the calls of the protocol take and return: HIP's enumerations and structures, as plain data."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, NamedTuple

from ..errors import DeclarationError

Dim3 = tuple[int, int, int]

ERROR_INVALID_HANDLE = 400
ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712
SANITIZE = "-fsanitize=kernels"  # the compiler option of modules whose kernels are judged (`Runtime.sanitizes`)
LAUNCH_STREAM: Final = 2**64 - 1  # stands for the stream of a launch in a `LaunchCall`; no stream has it for a handle


class MemcpyKind(IntEnum):
    """hipMemcpyKind."""

    HOST_TO_HOST = 0
    HOST_TO_DEVICE = 1
    DEVICE_TO_HOST = 2
    DEVICE_TO_DEVICE = 3
    DEFAULT = 4


class NodeType(IntEnum):
    """hipGraphNodeType."""

    KERNEL = 0
    MEMCPY = 1
    MEMSET = 2
    HOST = 3
    GRAPH = 4
    EMPTY = 5
    WAIT_EVENT = 6
    EVENT_RECORD = 7
    EXT_SEMAPHORE_SIGNAL = 8
    EXT_SEMAPHORE_WAIT = 9
    MEM_ALLOC = 10
    MEM_FREE = 11
    MEMCPY_FROM_SYMBOL = 12
    MEMCPY_TO_SYMBOL = 13
    BATCH_MEM_OP = 14
    CONDITIONAL = 0x1000  # HIP has none; 13 in CUDA


class ConditionalMode(IntEnum):
    """CUgraphConditionalNodeType."""

    IF = 0
    WHILE = 1
    SWITCH = 2


class GraphMemAttribute(IntEnum):
    """hipGraphMemAttributeType."""

    USED = 0
    USED_HIGH = 1
    RESERVED = 2
    RESERVED_HIGH = 3


class CaptureMode(IntEnum):
    """hipStreamCaptureMode."""

    GLOBAL = 0
    THREAD_LOCAL = 1
    RELAXED = 2


class CaptureStatus(IntEnum):
    """hipStreamCaptureStatus."""

    NONE = 0
    ACTIVE = 1
    INVALIDATED = 2


@dataclass(frozen=True, slots=True)
class CaptureInfo:
    """What a stream answers while it captures; `graph` is 0 and `dependencies` empty unless status is ACTIVE."""

    status: CaptureStatus
    id: int
    graph: int
    dependencies: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Copy3D:
    """One pitched copy (hipMemcpy3DParms): `depth` slices of `height` rows of `width_bytes` bytes.

    Row `y` of slice `z` begins at ``pointer + x + pitch_bytes * (y + pos[1] + rows * (z + pos[2])) + pos[0]``, where `rows`
    is the number of rows that a slice of the allocation has. Positions are (bytes, rows, slices).
    """

    dst: int
    dst_pitch_bytes: int
    dst_rows: int
    src: int
    src_pitch_bytes: int
    src_rows: int
    width_bytes: int
    height: int
    depth: int
    kind: MemcpyKind
    dst_pos: Dim3 = (0, 0, 0)
    src_pos: Dim3 = (0, 0, 0)


@dataclass(frozen=True, slots=True)
class Fill2D:
    """One memset (hipMemsetParams): `height` rows of `width` elements of `element_size` (1, 2, 4) bytes.

    Raises
    ------
    DeclarationError
        If `element_size` is another, which some drivers would take for one of these.
    """

    dst: int
    element_size: int
    value: int
    width: int
    height: int = 1
    pitch_bytes: int = 0

    def __post_init__(self) -> None:
        if self.element_size not in (1, 2, 4):
            raise DeclarationError(f"Fill2D: an element has 1, 2 or 4 bytes (got {self.element_size!r})")


@dataclass(frozen=True, slots=True)
class MemOp:
    """One entry of a batch memory operation: write `value`, or wait until memory compares with it."""

    op: str  # "write" | "wait"
    address: int
    value: int
    size: int  # 4 or 8 bytes
    condition: str = "eq"  # wait: "eq" | "geq" | "and" | "nor"


@dataclass(frozen=True, slots=True)
class KernelParams:
    """What a kernel node launches, as read back (hipKernelNodeParams).

    `args` is the address of an array of pointers to the arguments; where it is 0, `extra` is that of a
    HIP_LAUNCH_PARAM list.
    """

    function: int
    grid: Dim3
    block: Dim3
    shared_bytes: int
    args: int
    extra: int = 0


@dataclass(frozen=True, slots=True)
class HostParams:
    """The C function of a host node and its argument, as read back (hipHostNodeParams)."""

    fn: int
    user_data: int


@dataclass(frozen=True, slots=True)
class FunctionInfo:
    """What a platform tells of a function."""

    name: str  # as the code object has it; empty where the platform does not tell
    parameters: tuple[tuple[int, int], ...] | None
    """Offset in packed argument memory and size in bytes of each; None where the platform does not tell."""


@dataclass(frozen=True, slots=True)
class MemoryRange:
    """One allocation: its first byte, its size, and whether it is host memory."""

    pointer: int
    nbytes: int
    on_host: bool


@dataclass(frozen=True, slots=True)
class CodeObject:
    """A compiled module."""

    image: bytes  # what `module_load_data` takes, which may need it for as long as the module is loaded
    lowered: dict[str, str] = field(default_factory=dict)
    """For each kernel asked for (``"scale"``, ``"scale<float>"``) and each symbol, the name inside the image."""
    log: str = ""  # the compiler's warnings, with the user's line numbers


class LaunchAttribute(NamedTuple):
    """An attribute of kernel launches."""

    number: int  # hipLaunchAttributeID, and CUlaunchAttributeID, which has the same numbers
    form: struct.Struct  # of its hipLaunchAttributeValue
    platforms: tuple[str, ...] = ("amd", "nvidia", "cpu")  # those that know it; launches elsewhere leave it out

    def packed(self, value: Any) -> bytes:
        """Return a value as the platform reads it."""
        return self.form.pack(*value) if isinstance(value, tuple) else self.form.pack(value)


LAUNCH_ATTRIBUTES: Final = {
    "cooperative": LaunchAttribute(2, struct.Struct("=i60x")),
    "priority": LaunchAttribute(8, struct.Struct("=i60x")),
    "cluster": LaunchAttribute(4, struct.Struct("=3I52x"), ("nvidia",)),
}
"""By the names of `KernelNode`'s fields."""


class ForeignCall(NamedTuple):
    """A function of another library, which takes addresses, handles and integers, at most eight, and returns 0 or a code."""

    function: Callable[..., int]  # of ctypes
    failed: Callable[[int], object]  # raises for a code
    stop: int = 0
    """Address of a 32-bit word, or 0: while it holds another number than 0 the function is not called, and the code is -1."""

    def make(self, *args: int) -> None:
        """Call it, as compiled code does."""
        code = -1 if self.stop and ctypes.c_int32.from_address(self.stop).value else self.function(*args)
        if code:
            self.failed(code)


class LaunchCall(NamedTuple):
    """What each launch does at one place."""

    what: str | ForeignCall | Callable[[int], None]
    """The name of the runtime's method, another library's function, or one of the host, which gets the stream."""
    args: tuple[int, ...]
    always: bool = False
    """Whether a function of the host is called even after a callback has raised; all else is."""
