"""Argument and result types of the protocol: HIP's enumerations and structures, as plain data."""

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
ERROR_NOT_READY = 600
ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712
ERROR_STREAM_CAPTURE_IMPLICIT = 906
SANITIZE = "-fsanitize=kernels"  # the compiler option of modules whose kernels the sanitizer checks (`Runtime.sanitizes`)
LAUNCH_STREAM: Final = 2**64 - 1  # placeholder for the launch's stream in a `LaunchCall`; never a stream's handle


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
    CONDITIONAL = 0x1000  # not in HIP; 13 in CUDA


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
    """The capture state of a stream; `graph` is 0 and `dependencies` empty unless status is ACTIVE."""

    status: CaptureStatus
    id: int
    graph: int
    dependencies: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Copy3D:
    """One pitched copy (hipMemcpy3DParms): `depth` slices of `height` rows of `width_bytes` bytes.

    Byte `x` of row `y` of slice `z` is at ``pointer + x + pitch_bytes * (y + pos[1] + rows * (z + pos[2])) + pos[0]``, where
    `rows` is the number of rows that a slice of the allocation has. Positions are (bytes, rows, slices).
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
        If `element_size` is another value, which some drivers would treat as one of these.
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
    """One entry of a batch memory operation: write `value`, or wait until memory and `value` satisfy `condition`."""

    op: str  # "write" | "wait"
    address: int
    value: int
    size: int  # 4 or 8 bytes
    condition: str = "eq"  # wait: "eq" | "geq" | "and" | "nor"


@dataclass(frozen=True, slots=True)
class KernelParams:
    """The launch parameters of a kernel node, as read back (hipKernelNodeParams).

    `args` is the address of an array of pointers to the arguments; if it is 0, `extra` is the address of a
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
    """A function's name and parameters, as far as the platform reports them."""

    name: str  # as in the code object; empty if the platform does not report it
    parameters: tuple[tuple[int, int], ...] | None
    """Offset in packed argument memory and size in bytes of each; None if the platform does not report them."""


@dataclass(frozen=True, slots=True)
class MemoryRange:
    """One allocation: its first byte, its size, and whether it is host memory."""

    pointer: int
    nbytes: int
    on_host: bool


@dataclass(frozen=True, slots=True)
class CodeObject:
    """A compiled module."""

    image: bytes  # argument of `module_load_data`, which may need it as long as the module is loaded
    lowered: dict[str, str] = field(default_factory=dict)
    """For each kernel asked for (``"scale"``, ``"scale<float>"``) and each symbol, the name inside the image."""
    log: str = ""  # the compiler's warnings, with the user's line numbers


class LaunchAttribute(NamedTuple):
    """An attribute of kernel launches."""

    number: int  # hipLaunchAttributeID, and CUlaunchAttributeID, which has the same numbers
    form: struct.Struct  # layout of its hipLaunchAttributeValue
    platforms: tuple[str, ...] = ("amd", "nvidia", "cpu")  # those that support it; launches on others omit it

    def packed(self, value: Any) -> bytes:
        """Pack a value as a hipLaunchAttributeValue."""
        return self.form.pack(*value) if isinstance(value, tuple) else self.form.pack(value)


LAUNCH_ATTRIBUTES: Final = {
    "cooperative": LaunchAttribute(2, struct.Struct("=i60x")),
    "priority": LaunchAttribute(8, struct.Struct("=i60x")),
    "cluster": LaunchAttribute(4, struct.Struct("=3I52x"), ("nvidia",)),
}
"""Keys are the names of `KernelNode`'s fields."""


class FailedMark(NamedTuple):
    """What is known of failures of operations with some marks; all 0: nothing."""

    mark: int = 0  # of the operation that failed last
    cause: int = 0  # of what failed inside of it, or, if none failed and some did not start, before them; 0 if unknown
    code: int = 0  # of the failure


class ForeignCall(NamedTuple):
    """A function of another library that takes at most eight addresses, handles and integers, and returns 0 or an error code."""

    function: Callable[..., int]  # a ctypes function
    failed: Callable[[int], object]  # raises the error for a code
    stop: int = 0
    """Address of a 32-bit word, or 0: while the word is not 0, the function is not called and the code is -1."""

    def make(self, *args: int) -> None:
        """Call the function, as compiled code does; raise through `failed` for an error code."""
        code = -1 if self.stop and ctypes.c_int32.from_address(self.stop).value else self.function(*args)
        if code:
            self.failed(code)


class LaunchCall(NamedTuple):
    """One call that each launch makes."""

    what: str | ForeignCall | Callable[[int], None]
    """The name of a runtime method, another library's function, or a host function, which is called with the stream."""
    args: tuple[int, ...]
