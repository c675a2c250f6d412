"""AMD GPUs: libamdhip64, located by hip-python, and hip-python's hiprtc.

hip-python determines the path of libamdhip64 and loads it too; `HipAbiRuntime` calls the same copy of the library, so
that handles created here and by hip-python are interchangeable.
"""

from __future__ import annotations

import ctypes
import importlib
import itertools
import os
import re
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from ctypes import byref
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from ..cache import wanted_folder
from ..defects import defects_for, with_quirks
from ..errors import HipError, RuntimeUnavailable, lacks
from ..target import Target
from .code_object import read_code_object
from .data import CodeObject, FunctionInfo, MemOp
from .hip_abi import HipAbiRuntime
from .hip_calls import MEM_CONDITIONS
from .hiprtc import HipRtc, mapped_libraries

# hipDeviceAttribute_t, the same in all releases from 6.0 on.
_ASYNC_ENGINE_COUNT = 2
_MAX_BLOCK_DIM_X = 26
_MAX_GRID_DIM_X = 29
_MAX_THREADS_PER_BLOCK = 56
_MULTIPROCESSOR_COUNT = 63
_MAX_SHARED_MEMORY_PER_BLOCK = 74
_WARP_SIZE = 87

# hipDeviceProp_tR0600: a buffer size with reserve, and the offset of gcnArchName[256].
_PROPERTIES_SIZE = 4096
_ARCHITECTURE_OFFSET = 1160

_INSTALL_LIBRARY = "install ROCm 6.4 or newer, or set LD_LIBRARY_PATH (hip-python 10: ROCM_PATH) to where it is"
_NO_BINDING = "needs hip-python: pip install hip-python"

# Environment variables that change how graphs run; `describe` reports those that are set.
SWITCHES = (
    "DEBUG_HIP_GRAPH_CLASSIC_PATH", "DEBUG_HIP_GRAPH_SEGMENT_SCHEDULING", "DEBUG_HIP_GRAPH_MIN_OVERLAP",
    "DEBUG_HIP_GRAPH_BATCH_SIZE", "DEBUG_HIP_GRAPH_DOT_PRINT", "DEBUG_HIP_FORCE_GRAPH_QUEUES", "DEBUG_HIP_FORCE_ASYNC_QUEUE",
    "DEBUG_HIP_DYNAMIC_QUEUES", "DEBUG_HIP_KERNARG_COPY_OPT", "DEBUG_CLR_GRAPH_PACKET_CAPTURE", "GPU_MAX_HW_QUEUES",
    "HIP_FORCE_DEV_KERNARG", "HIP_LAUNCH_BLOCKING", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HSA_OVERRIDE_GFX_VERSION",
    "AMD_LOG_LEVEL", "AMD_SERIALIZE_KERNEL", "ROCM_PATH",
)  # fmt: skip


class AmdRuntime(HipAbiRuntime):
    """One AMD GPU; construction makes its device current in the calling thread.

    Attributes
    ----------
    architecture : str
        Its full target identifier, ``"gfx942:sramecc+:xnack-"``.

    Raises
    ------
    RuntimeUnavailable
        If hip-python, libamdhip64 or the device is missing, or if the process has loaded two HIP runtimes.
    """

    name = "amd"

    def __init__(self, device: int = 0) -> None:
        binding, library, self._library_path = _load_library()
        super().__init__(library, f"libamdhip64 ({self._library_path})")
        self.binding = binding
        self.device = device
        self._rtc: HipRtc | None = None
        self._functions: dict[int, tuple[int, str]] = {}
        """Function handle -> (module, name), for functions that were looked up through this runtime."""
        self._callbacks = _Callbacks(self)
        self._retired: list[int] = []
        """Executables that are to be destroyed once the callbacks of their launches have run."""
        self._retiring = threading.Lock()
        self._kernel_name = self._text_function(library, "hipKernelNameRef", ctypes.c_void_p)
        version = self.runtime_get_version()
        try:
            count = self.get_device_count()
        except HipError as error:
            # Older runtimes return hipErrorInvalidDevice or hipErrorNotInitialized if there is no device.
            raise lacks("amd", "device", f"has hip-python and libamdhip64, but no device answers: {error}") from error
        if not 0 <= device < count:
            found = f"{count} device{'s' if count != 1 else ''}" if count else "no device"
            hint = "" if count else "; see /dev/kfd, the groups video and render, and HIP_VISIBLE_DEVICES"
            raise lacks(
                "amd",
                "device",
                f"has hip-python and libamdhip64 (HIP {_dotted(version)}), but there is {found} where device {device} is asked"
                f" for{hint}",
            )
        self.set_device(device)
        self.architecture = self._device_architecture(device)
        self.target = self._device_target(version)

    def _device_architecture(self, device: int) -> str:
        properties = ctypes.create_string_buffer(_PROPERTIES_SIZE)
        self._call("hipGetDevicePropertiesR0600", properties, device)
        text = properties.raw[_ARCHITECTURE_OFFSET : _ARCHITECTURE_OFFSET + 256].partition(b"\0")[0]
        architecture = text.decode(errors="replace")
        if not re.fullmatch(r"gfx[0-9a-f]+(:[a-z]+[+-])*", architecture):
            raise HipError(
                "hipGetDevicePropertiesR0600", 0, "hipSuccess", f"its architecture reads {architecture!r}, not 'gfx...'"
            )
        return architecture

    def _device_target(self, version: tuple[int, ...]) -> Target:
        def ask(attribute: int) -> int:
            return self.device_get_attribute(attribute, self.device)

        processor = self.architecture.partition(":")[0]
        block_x, block_y, block_z = (ask(_MAX_BLOCK_DIM_X + axis) for axis in range(3))
        grid_x, grid_y, grid_z = (ask(_MAX_GRID_DIM_X + axis) for axis in range(3))
        target = replace(
            Target.named(f"amd:{processor}"),
            name=f"amd:{processor}@{version[0]}.{version[1]}",
            version=version,
            max_threads=ask(_MAX_THREADS_PER_BLOCK),
            max_block=(block_x, block_y, block_z),
            max_grid=(grid_x, grid_y, grid_z),
            max_shared_bytes=ask(_MAX_SHARED_MEMORY_PER_BLOCK),
            warp_size=ask(_WARP_SIZE),
            multiprocessors=ask(_MULTIPROCESSOR_COUNT),
            copy_engines=max(1, ask(_ASYNC_ENGINE_COUNT)),
            hardware_queues=_hardware_queues(),
        )
        return with_quirks(target, _classic_executor_chosen(version))

    # -- memory ----------------------------------------------------------------------------------------------------
    def stream_batch_mem_op(self, stream: int, ops: Sequence[MemOp]) -> None:
        # hipStreamBatchMemOp of HIP 7.2 rejects all operations, because of a bug in its check of them.
        for op in ops:
            bits = op.size * 8
            if op.op == "write":
                self._call(f"hipStreamWriteValue{bits}", stream, op.address, op.value, 0)
            else:
                flags = MEM_CONDITIONS[op.condition]
                self._call(f"hipStreamWaitValue{bits}", stream, op.address, op.value, flags, 2**bits - 1)

    # -- modules ---------------------------------------------------------------------------------------------------
    def rtc_compile(
        self, source: str, names: Sequence[str], symbols: Sequence[str] = (), options: Sequence[str] = (), *, name: str = "module"
    ) -> CodeObject:
        if self._rtc is None:
            self._rtc = load_hiprtc(self.target.version)
        return self._rtc.compile(source, names, symbols, options, architecture=self.architecture, name=name)

    def module_get_function(self, module: int, name: str) -> int:
        function = super().module_get_function(module, name)
        self._functions[function] = (module, name)
        return function

    def module_unload(self, module: int) -> None:
        super().module_unload(module)
        self._functions = {function: found for function, found in self._functions.items() if found[0] != module}

    def func_get_info(self, function: int) -> FunctionInfo:
        """Return a function's name and, if this runtime loaded its module, its parameters from the code object's metadata."""
        module, name = self._functions.get(function, (0, ""))
        if not name and self._kernel_name is not None:
            # For a kernel launched by the <<<>>> syntax, the node holds the address of its host stub.
            of_symbol = ctypes.c_void_p()
            if not self._hip.exports("hipGetFuncBySymbol") or self._hip.hipGetFuncBySymbol(byref(of_symbol), function):
                self._clear_last_error()
            name = (self._kernel_name(of_symbol.value or function) or b"").decode(errors="replace").removesuffix(".kd")
        image = self._images.get(module)
        return FunctionInfo(name, read_code_object(image).get(name) if image is not None else None)

    def between_devices(self) -> tuple[str, Sequence[str]]:
        beside = str(Path(self._library_path).with_name("librccl.so.1"))
        try:
            named = [_library_name("rccl")[1]]
        except RuntimeUnavailable:  # hip-python 7 may have been built without it
            named = []
        return "RCCL", (*mapped_libraries("rccl"), *named, beside, "librccl.so.1")

    # -- graphs --------------------------------------------------------------------------------------------------------
    def graph_exec_destroy(self, graph_exec: int) -> None:
        """Destroy an executable graph once no callback of the runtime holds it.

        A launch holds its executable until a callback has run, in the one thread that also runs host functions. If that callback
        drops the last reference, the destructor waits in that thread for hardware queues, which may wait for a host function of
        another launch: a deadlock (defect ``exec-destroyed-by-callback``).
        """
        with self._retiring:
            self._retired.append(graph_exec)
            destroys = True  # also if `have_run` raises
            try:
                destroys = self._callbacks.have_run()  # False while a host function runs for long: destroyed by a later call
            finally:
                while destroys and self._retired:
                    self._call("hipGraphExecDestroy", self._retired.pop())

    # -- what `info` prints --------------------------------------------------------------------------------------------
    def describe(self) -> dict[str, Any]:
        """Return versions, paths, device, executor, environment switches and the known defects that apply."""
        free, total = self.mem_get_info()
        return {
            "runtime": "amd",
            "binding": self.binding,
            "version": _dotted(self.target.version),
            "library": self._library_path,
            "device": self.device,
            "devices": self.get_device_count(),
            "name": self.get_device_name(self.device),
            "architecture": self.architecture,
            "multiprocessors": self.target.multiprocessors,
            "memory_bytes": total,
            "free_bytes": free,
            "executor": self.executor(),
            "kernel cache": str(wanted_folder("hiprtc")),
            "switches": {name: os.environ[name] for name in SWITCHES if name in os.environ},
            "defects": [d.facts for d in defects_for(self.target, _classic_executor_chosen(self.target.version))],
        }

    def executor(self) -> str:
        """Return how this library runs graphs, judged by its version, its switches and the strings in its file."""
        if _classic_executor_chosen(self.target.version):
            return "classic (chosen by an environment switch)"
        if self.target.version >= (7, 15):
            return "segmented"
        with open(self._library_path, "rb") as file:
            segmented = b"DEBUG_HIP_GRAPH_SEGMENT_SCHEDULING" in file.read()
        return "segmented, classic for complex graphs" if segmented else "classic"


class _Callbacks:
    """Waits until the runtime has run the callbacks of all finished work."""

    def __init__(self, runtime: AmdRuntime) -> None:
        self._runtime = runtime
        self._numbers = itertools.count(1)
        self._called: set[int] = set()
        self._changed = threading.Condition()
        self._function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._call)
        self._blocked: list[int] = []
        """Streams whose host function did not run before the timeout."""

    def _call(self, number: int) -> None:
        with self._changed:
            self._called.add(number)
            self._changed.notify_all()

    def have_run(self, timeout_s: float = 1.0) -> bool:
        """Wait for the callbacks of finished work, and return whether all have run.

        A host function is queued after them, but callbacks that are ready together are called in any order: a second host
        function, enqueued when the first has run, is certain to be called after them.
        """
        runtime, address = self._runtime, ctypes.cast(self._function, ctypes.c_void_p).value or 0
        self._return_blocked()
        stream = runtime.stream_create()  # a permanent one would keep other streams off its hardware queue
        with ExitStack() as returned:
            returned.callback(runtime.stream_destroy, stream)
            for number in itertools.islice(self._numbers, 2):
                runtime.launch_host_func(stream, address, number)
                if not self._has_called(number, timeout_s):
                    returned.pop_all()
                    self._blocked.append(stream)
                    return False
        return True

    def _has_called(self, number: int, timeout_s: float) -> bool:
        with self._changed:
            found = self._changed.wait_for(lambda: number in self._called, timeout_s)
            self._called.discard(number)
        return found

    def _return_blocked(self) -> None:
        """Destroy the streams that are idle by now; destroying a busy one would block."""
        for stream in [stream for stream in self._blocked if self._runtime.stream_query(stream)]:
            self._blocked.remove(stream)
            self._runtime.stream_destroy(stream)


def load_hiprtc(version: tuple[int, ...]) -> HipRtc:
    """Load the compiler library that hip-python finds, for a HIP runtime of the given version; it works without a device."""
    try:
        binding = _binding("hiprtc")
    except ImportError as error:
        raise lacks("amd", "binding", _NO_BINDING) from error
    try:
        return HipRtc(binding, version)
    except RuntimeError as error:
        why = f"needs libhiprtc to compile kernels, and hip-python does not load it: {error}; {_INSTALL_LIBRARY}"
        raise lacks("amd", "library", why) from error


def _binding(name: str) -> ModuleType:
    """Import a module of hip-python, by its name in release 10 or, failing that, in earlier releases."""
    try:
        return importlib.import_module(f"rocm.bindings.{name}")
    except ModuleNotFoundError:
        return importlib.import_module(f"hip.{name}")


def _library_name(library: str = "amdhip64") -> tuple[str, str]:
    """Return hip-python's version and the name by which it loads a library."""
    try:
        paths = importlib.import_module("rocm.bindings.util.paths")
    except ModuleNotFoundError:
        pass
    else:
        version = importlib.import_module("rocm.version").ROCM_VERSION_NAME
        return f"hip-python {version}", os.fsdecode(paths.get_library_path(library))
    try:
        wrapper = importlib.import_module("hip.chip" if library == "amdhip64" else f"hip.c{library}")
        version = importlib.import_module("hip").ROCM_VERSION_NAME
    except (ImportError, AttributeError) as error:
        raise lacks("amd", "binding", _NO_BINDING) from error
    return f"hip-python {version}", os.fsdecode(wrapper.DLL)


def _load_library() -> tuple[str, ctypes.CDLL, str]:
    """Return hip-python's version, the library, and the path of its file."""
    binding, name = _library_name()
    # Use the HIP runtime that another package has already loaded into this process: its handles must be valid here.
    present = mapped_libraries("amdhip64")
    chosen = present[0] if len(present) == 1 else name
    try:
        library = ctypes.CDLL(chosen)
    except OSError as error:
        why = f"has {binding}, but loading {chosen!r} fails: {error}; {_INSTALL_LIBRARY}"
        raise lacks("amd", "library", why) from error
    if chosen == name:  # any call makes hip-python load its library, and only then is a second copy detectable
        try:
            _binding("hip").hipRuntimeGetVersion()
        except RuntimeError as error:
            why = f"has hip-python, which does not load libamdhip64: {error}; {_INSTALL_LIBRARY}"
            raise lacks("amd", "library", why) from error
    mapped = mapped_libraries("amdhip64")
    if len(mapped) != 1:
        raise lacks(
            "amd",
            "library",
            f"would mix {len(mapped)} HIP runtimes in one process, {' and '.join(mapped)}, whose handles are not exchangeable;"
            " let LD_LIBRARY_PATH (hip-python 10: ROCM_PATH) lead to one of them",
        )
    return binding, library, mapped[0]


def _classic_executor_chosen(version: tuple[int, ...]) -> bool:
    if os.environ.get("DEBUG_HIP_GRAPH_CLASSIC_PATH", "0") not in ("", "0"):
        return True
    # From 7.15 on, 0 is the default and lets the runtime choose; those versions have the switch above.
    return version < (7, 15) and os.environ.get("DEBUG_HIP_GRAPH_SEGMENT_SCHEDULING") == "0"


def _hardware_queues() -> int:
    text = os.environ.get("GPU_MAX_HW_QUEUES", "")
    return int(text) if text.isdigit() and int(text) else 4


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
