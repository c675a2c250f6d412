"""The embedded CPU runtime: HIP's calls executed by threads of this machine, so that every workflow runs anywhere.

The C++ sources in this folder implement HIP's C API. They are compiled on first use, by the compiler that also compiles
the kernels, and the library is kept in the cache directory.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import logging
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_uint32, c_uint64, c_void_p
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from ...cache import wanted_folder
from ...compiler import ABI_VERSION, BuildFailed, build, find_compiler
from ...errors import DeclarationError, HipError, lacks
from ...runtimes.data import ERROR_NOT_READY, SANITIZE, CodeObject, ConditionalMode, FailedMark, FunctionInfo
from ...runtimes.hip_abi import HipAbiRuntime
from ...runtimes.hip_calls import address_of, does
from ...settings import setting
from ...target import Target

log = logging.getLogger("hipgraphdsl")

#: Longest time that a wait stays outside Python, in microseconds: Ctrl-C is handled within this time.
_SLICE_US = 50_000
#: hipErrorIllegalAddress, hipErrorAssert, hipErrorLaunchFailure.
_KERNEL_FAULTS = frozenset({700, 710, 719})
#: Precedes each code location in a fault's text.
_PLACE_BEGINS = "\x01"

_EXTENSIONS: dict[str, tuple[Any, ...]] = {
    "hgcpuStreamWait": (c_void_p, c_uint64),
    "hgcpuStreamRoom": (c_void_p, c_uint64),
    "hgcpuRoomForLaunch": (c_void_p, c_uint64),
    "hgcpuUnfinishedMarks": (c_uint64, c_uint64, c_void_p, c_void_p),
    "hgcpuGraphExecAbort": (c_void_p,),
    "hgcpuLastFault": (c_char_p, c_size_t),
    "hgcpuNameArray": (c_void_p, c_size_t, c_char_p),
    "hgcpuSetDeviceCount": (c_int,),
    "hgcpuSetSchedule": (c_uint64, c_int),
    "hgcpuGraphAddConditionalNode": (c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_void_p, c_uint32, c_void_p),
    "hgcpuFunctionInfo": (c_void_p, c_void_p, c_void_p, c_void_p),
    "hgcpuSemaphoreCreate": (c_void_p, c_uint64),
    "hgcpuSemaphoreDestroy": (c_void_p,),
    "hgcpuSemaphoreValue": (c_void_p, c_void_p),
    "hgcpuSemaphoreSignal": (c_void_p, c_uint64),
}


@functools.cache
def runtime_library() -> Path:
    """Return the runtime's shared library, building it if needed; all devices of the process share it.

    Raises
    ------
    RuntimeUnavailable
        If there is no compiler, or it cannot build the library.
    """
    if not sys.platform.startswith(("linux", "darwin")):
        raise lacks("cpu", "library", f"runs on Linux and macOS, not on {sys.platform!r}; on Windows use WSL")
    folder = Path(__file__).parent
    # `runtime.cpp` includes the headers, so one unit is compiled and calls between its parts can be inlined.
    sources = {path.name: path.read_text() for path in (folder / "runtime.cpp", *folder.glob("*.h"))}
    compiler = find_compiler()
    try:
        return build(compiler, sources, ("-O2",), stem="runtime", what="the CPU runtime")
    except BuildFailed as error:
        why = (
            f"could not build its library with {compiler}: {error.log.strip()[:2000]}; choose another compiler"
            " by HIPGRAPHDSL_CXX, or `pip install ziglang`"
        )
        raise lacks("cpu", "compiler", why) from error


class CpuRuntime(HipAbiRuntime):
    """The CPU as a device of HIP.

    Parameters
    ----------
    device : int
        The environment variable HIPGRAPHDSL_CPU_DEVICES sets the number of devices, by default one. They share the threads
        and the memory of the machine, but each allocation, stream, event and module belongs to one device, as in HIP.

    Raises
    ------
    RuntimeUnavailable
        If there is no C++ compiler, or no such device.
    """

    #: The sanitizer finds shared variables by the library's ELF symbols.
    sanitizes = sys.platform.startswith("linux")

    def __init__(self, device: int = 0) -> None:
        try:
            for name in ("DEVICES", "THREADS", "QUEUE"):
                setting(f"HIPGRAPHDSL_CPU_{name}")
        except DeclarationError as error:
            raise lacks("cpu", "device", f"cannot be opened: {error}") from None
        self.path = runtime_library()
        library = ctypes.CDLL(str(self.path))
        super().__init__(library, "the CPU runtime")
        self._ext = library
        for api, prototype in _EXTENSIONS.items():
            function = getattr(library, api)
            function.argtypes, function.restype = prototype, c_int
            setattr(self._hip, api, function)
        for api in ("hgcpuHostFuncFailed", "hgcpuShutdown"):
            getattr(library, api).argtypes, getattr(library, api).restype = (), None
        library.hgcpuWorkers.argtypes, library.hgcpuWorkers.restype = (), c_uint
        library.hgcpuKnowsFailures.argtypes = ()
        library.hgcpuMarks.argtypes, library.hgcpuMarks.restype = (), c_void_p
        library.hgcpuFailedMark.argtypes, library.hgcpuFailedMark.restype = (c_uint64, c_uint64, c_void_p), None
        self._here = threading.local()
        self._call("hipInit", 0)
        count = self.get_device_count()
        if not 0 <= device < count:
            there = f"has {count} device{'s' * (count != 1)}, from number 0 (got {device})"
            raise lacks("cpu", "device", there + self.more_devices())
        self.name = "cpu"
        self.workers = int(library.hgcpuWorkers())
        self.target = replace(Target.named("cpu"), multiprocessors=self.workers)
        self._pid = os.getpid()
        # Before the interpreter shuts down: a host function that started later would wait for the GIL forever.
        atexit.register(self._shutdown)

    def _shutdown(self) -> None:
        if os.getpid() == self._pid:
            self._ext.hgcpuShutdown()

    def more_devices(self) -> str:
        now = os.environ.get("HIPGRAPHDSL_CPU_DEVICES") or "1"
        late = f"; it is {now!r} now, and was read when the runtime was opened: set it before that"
        return "; HIPGRAPHDSL_CPU_DEVICES says how many" + (late if now != str(self.get_device_count()) else "")

    def describe(self) -> dict[str, Any]:
        """Return the compiler, the library's path, the cache and the number of workers."""
        compiler = find_compiler()
        return {
            "runtime": "cpu",
            "device": self.get_device_name(0),
            "workers": self.workers,
            "compiler": str(compiler),
            "compiler version": compiler.version,
            "compiler choice": compiler.why,
            "library": str(self.path),
            "cache": str(wanted_folder()),
            "abi": ABI_VERSION,
        }

    # -- compiling -------------------------------------------------------------------------------------------------
    def rtc_compile(
        self, source: str, names: Sequence[str], symbols: Sequence[str] = (), options: Sequence[str] = (), *, name: str = "module"
    ) -> CodeObject:
        from .rtc import compile_kernels

        if SANITIZE not in options:
            return compile_kernels(source, names, symbols, options, name=name)
        kept = [option for option in options if option != SANITIZE]
        return compile_kernels(source, names, symbols, kept, name=name, mode="sanitize")

    def name_array(self, pointer: int, nbytes: int, name: str | None) -> None:
        self._call("hgcpuNameArray", pointer, nbytes, None if name is None else name.encode())

    def func_get_info(self, function: int) -> FunctionInfo:
        name, count, params = c_char_p(), c_uint(), ctypes.POINTER(c_uint32 * 2)()
        self._call("hgcpuFunctionInfo", function, byref(name), byref(count), byref(params))
        parameters = tuple((offset, nbytes) for offset, nbytes in params[: count.value])
        return FunctionInfo((name.value or b"").decode(), parameters)

    # -- waiting ---------------------------------------------------------------------------------------------------
    def stream_synchronize(self, stream: int) -> None:
        self.stream_wait(stream, math.inf)  # in slices, so that Ctrl-C ends the wait

    def stream_wait(self, stream: int, timeout_s: float) -> bool:
        wait = self._ext.hgcpuStreamWait
        deadline = time.monotonic() + timeout_s
        left_us = timeout_s * 1e6
        while code := wait(stream, int(left_us) if 0 <= left_us <= _SLICE_US else _SLICE_US * (left_us > 0)):
            if code != ERROR_NOT_READY:
                self._fail("hipStreamSynchronize", code)
            left_us = (deadline - time.monotonic()) * 1e6
            if left_us <= 0:
                return False
        return True

    def wait_addresses(self) -> tuple[int, int]:
        return (0, 0) if vars(self).keys() & {"stream_query", "stream_wait"} else (address_of(self._ext.hgcpuStreamWait), 0)

    def wait_for_room(self, stream: int, others: Sequence[int], timeout_s: float) -> bool:
        room = self._ext.hgcpuRoomForLaunch
        if room(stream, 0) != ERROR_NOT_READY and not others:
            return True
        deadline = time.monotonic() + timeout_s
        for each in (stream, *others):
            left_us = 0.0
            while room(each, math.ceil(min(left_us, _SLICE_US))) == ERROR_NOT_READY:  # in slices, so that Ctrl-C ends the wait
                left_us = (deadline - time.monotonic()) * 1e6
                if left_us <= 0:
                    return False
        return True

    def room_address(self) -> int:
        return 0 if "wait_for_room" in vars(self) else address_of(self._ext.hgcpuRoomForLaunch)

    def host_func_failed(self) -> None:
        """Report, inside a host function, that it failed: no later work starts, and the next synchronize raises."""
        self._ext.hgcpuHostFuncFailed()

    def graph_add_conditional_node(
        self, graph: int, deps: Sequence[int], mode: ConditionalMode, condition: int, fill: Sequence[Callable[[int], None]]
    ) -> int:
        bodies = (c_void_p * len(fill))()
        node = self._add("hgcpuGraphAddConditionalNode", graph, deps, mode, condition, len(fill), bodies)
        for add, body in zip(fill, bodies):
            add(body or 0)
        return node

    def mark_words(self) -> memoryview:
        try:
            words: memoryview = self._here.words
        except AttributeError:
            there = (c_uint64 * 3).from_address(self._ext.hgcpuMarks())
            words = self._here.words = memoryview(there).cast("B").cast("Q")  # written faster than the array
        return words

    def unfinished_marks(self, first: int, count: int) -> frozenset[int]:
        room, have = c_size_t(), c_size_t(64)
        while have.value > room.value:  # more may be issued between two calls
            room.value = have.value = 2 * have.value
            found = (c_uint64 * room.value)()
            self._call("hgcpuUnfinishedMarks", first, count, found, byref(have))
        return frozenset(found[: have.value])

    def knows_failures(self) -> bool:
        return bool(self._ext.hgcpuKnowsFailures())

    def failed_mark(self, first: int, count: int) -> FailedMark:
        found = (c_uint64 * 3)()
        self._ext.hgcpuFailedMark(first, count, found)
        return FailedMark(*found)

    def _fail(self, api: str, code: int, detail: str = "") -> NoReturn:
        if code in _KERNEL_FAULTS and not detail:
            text = ctypes.create_string_buffer(1280)
            self._ext.hgcpuLastFault(text, len(text))
            detail = text.value.decode(errors="replace")
            if _PLACE_BEGINS in detail:
                from .sanitizer import told

                name = self._error_name(code) if self._error_name else None
                self._clear_last_error()
                raise HipError(api, code, name.decode() if name else f"hipError {code}", told(detail))
        super()._fail(api, code, detail)

    def graph_exec_abort(self, graph_exec: int) -> bool:
        """Stop launches in flight from starting more nodes; the stream's next synchronize raises hipErrorLaunchFailure."""
        self._call("hgcpuGraphExecAbort", graph_exec)
        return True

    def set_device_count(self, count: int) -> None:
        """Set the number of devices from now on, 1 to 16, and reset peer access: none can access another's memory.

        Resources of the devices that are removed must have been released.
        """
        self._call("hgcpuSetDeviceCount", count)

    # -- schedule --------------------------------------------------------------------------------------------------
    def set_schedule(self, seed: int, mode: int) -> None:
        """Choose how graphs launched from now on are scheduled.

        Parameters
        ----------
        seed : int
            The same seed replays the same choices; the k-th launch after this call uses the k-th part of its sequence.
        mode : {0, 1, 2}
            0: as fast as possible. 1: each launch on one worker, in a random topological order. 2: like 0, with random
            delays.
        """
        self._call("hgcpuSetSchedule", seed & (2**64 - 1), mode)

    # -- semaphores ------------------------------------------------------------------------------------------------
    def semaphore_create(self, value: int = 0) -> int:
        """Create a timeline semaphore; its value only grows."""
        return self._new("hgcpuSemaphoreCreate", value)

    #: Release the handle; nodes that use the semaphore keep the semaphore alive.
    semaphore_destroy = does("hgcpuSemaphoreDestroy")

    def semaphore_value(self, semaphore: int) -> int:
        """Return the value that the semaphore has reached."""
        out = c_uint64()
        self._call("hgcpuSemaphoreValue", semaphore, byref(out))
        return out.value

    #: Raise the semaphore to a value from the host.
    semaphore_signal = does("hgcpuSemaphoreSignal")
