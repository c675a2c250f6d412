"""Calls of runtime nvidia, on a driver of C callbacks: each is made in the Executable's context, whichever thread makes it."""

from __future__ import annotations

import ctypes
import gc
import itertools
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import hipgraphdsl as hg
from hipgraphdsl.executable import Executable
from hipgraphdsl.parts import find
from hipgraphdsl.runtimes import cuda_driver, nvidia
from hipgraphdsl.runtimes.data import CodeObject
from hipgraphdsl.runtimes.hip_calls import PROTOTYPES
from hipgraphdsl.runtimes.nvidia import NvidiaRuntime

PRIMARY = 0x1000  # of device 0; the next device's follows
FOREIGN = 0x9000
SOURCE = """
__device__ int total[4];
extern "C" __global__ void scale(float* x, float a) { x[threadIdx.x] *= a; }
extern "C" __global__ void other(float* x, float a) { x[threadIdx.x] += a; }
"""
ANYWHERE = {
    "cuInit", "cuDriverGetVersion", "cuGetErrorName", "cuGetErrorString", "cuDeviceGet", "cuDeviceGetCount", "cuDeviceGetName",
    "cuDeviceGetAttribute", "cuDevicePrimaryCtxRetain", "cuDeviceCanAccessPeer", "cuCtxSetCurrent", "cuCtxGetCurrent",
    "cuCtxGetDevice",
}  # fmt: skip
_HANDLES = {
    "cuStreamCreateWithPriority", "cuEventCreate", "cuModuleLoadData", "cuModuleGetFunction", "cuGraphCreate",
    "cuGraphAddKernelNode_v2", "cuGraphAddMemcpyNode", "cuGraphAddMemsetNode", "cuGraphAddHostNode", "cuGraphAddMemAllocNode",
    "cuGraphAddMemFreeNode", "cuGraphAddEmptyNode", "cuGraphAddChildGraphNode", "cuGraphAddEventRecordNode",
    "cuGraphAddEventWaitNode", "cuGraphInstantiateWithFlags",
}  # fmt: skip
"""Functions that write a new handle where their first argument points."""


class FakeCuda:
    """The driver's library. It has memory and handles, and runs nothing.

    Attributes
    ----------
    before : int
        The context that threads begin with in these tests.
    calls : list of (str, int)
        What was called where that matters, and the calling thread's context then.
    """

    def __init__(self, devices: int, before: int) -> None:
        self.devices = devices
        self.before = before
        self.calls: list[tuple[str, int]] = []
        self._thread = threading.local()
        self._handles = itertools.count(0x10000, 16)
        self._memory: dict[int, Any] = {}
        self._nodes = (ctypes.c_void_p * 1)(next(self._handles))

    @property
    def context(self) -> int:
        """The thread's current context."""
        return getattr(self._thread, "context", 0)

    @context.setter
    def context(self, context: int) -> None:
        self._thread.context = context

    def __getattr__(self, name: str) -> Any:
        hip = next((hip for hip, cuda in cuda_driver.NAMES.items() if cuda == name), name)
        prototype = cuda_driver.DRIVER.get(name) or PROTOTYPES.get(hip)
        if prototype is None or name in PROTOTYPES:
            raise AttributeError(name)

        def call(*args: Any) -> int:
            if name not in ANYWHERE:
                self.calls.append((name, self.context))
            return int(self._do(name, args) or 0)

        function = ctypes.CFUNCTYPE(ctypes.c_int, *prototype)(call)
        setattr(self, name, function)
        return function

    def _do(self, name: str, args: tuple[Any, ...]) -> int | None:
        match name:
            case "cuDriverGetVersion":
                _write(args[0], 13000, ctypes.c_int)
            case "cuDeviceGetCount":
                _write(args[0], self.devices, ctypes.c_int)
            case "cuDeviceGet":
                _write(args[0], args[1], ctypes.c_int)
            case "cuDeviceGetAttribute":
                _write(args[0], {75: 9, 76: 0}.get(args[1], 1024), ctypes.c_int)
            case "cuDevicePrimaryCtxRetain":
                _write(args[0], PRIMARY + args[1])
            case "cuDeviceCanAccessPeer":
                _write(args[0], 1, ctypes.c_int)
            case "cuCtxGetCurrent":
                _write(args[0], self.context)
            case "cuCtxSetCurrent":
                self.context = args[0] or 0
            case "cuCtxGetDevice":
                if not self.context:
                    return 201
                _write(args[0], max(0, self.context - PRIMARY) if self.context != FOREIGN else 0, ctypes.c_int)
            case "cuStreamGetCtx":
                _write(args[1], self.context)  # as for the null stream
            case "cuMemAlloc_v2" | "cuMemHostAlloc" | "cuMemAllocAsync":
                block = ctypes.create_string_buffer(args[1])
                self._memory[ctypes.addressof(block)] = block
                _write(args[0], ctypes.addressof(block))
            case "cuMemFree_v2" | "cuMemFreeHost" | "cuMemFreeAsync":
                del self._memory[args[0]]
            case "cuMemcpy":
                ctypes.memmove(args[0], args[1], args[2])
            case "cuModuleGetGlobal_v2":
                _write(args[0], ctypes.addressof(self._nodes))
                _write(args[1], 1 << 20)
            case "cuPointerGetAttribute" | "cuFuncGetParamInfo":
                return 1
            case "cuGraphGetNodes" | "cuGraphGetEdges":
                _write(args[-1], 0)
            case "cuStreamGetCaptureInfo_v2":
                _write(args[1], 1, ctypes.c_int)
                _write(args[3], next(self._handles))
                _write(args[4], ctypes.addressof(self._nodes))
                _write(args[5], 1)
            case "cuStreamEndCapture":
                _write(args[1], next(self._handles))
            case "cuEventElapsedTime":
                _write(args[0], 1, ctypes.c_float)
            case "cuDeviceGetGraphMemAttribute":
                _write(args[2], 0)
            case _ if name in _HANDLES:
                _write(args[0], next(self._handles))
        return None


def _write(address: int, value: float, kind: Any = ctypes.c_uint64) -> None:
    kind.from_address(address).value = value


class _Compiling(NvidiaRuntime):
    """Without NVRTC."""

    def rtc_compile(self, source: str, names: Any, *rest: Any, **options: Any) -> CodeObject:
        return CodeObject(b"image")


@pytest.fixture(
    params=[(1, True, 0), (1, False, 0), (2, True, FOREIGN)], ids=["no context", "no context, in Python", "another's context"]
)
def cuda(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    devices, compiled, before = request.param
    if compiled and ((fast := find("fast")) is None or fast.native() is None):
        pytest.skip("no Python headers or no compiler: the extension module cannot be built")
    if not compiled:
        monkeypatch.setattr("hipgraphdsl.runtimes.hip_abi.native", lambda: None)
    library = FakeCuda(devices, before)
    bindings = ModuleType("cuda.bindings")
    bindings.nvrtc = SimpleNamespace()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cuda.bindings", bindings)
    monkeypatch.setattr(nvidia, "ctypes", SimpleNamespace(**{**vars(ctypes), "CDLL": lambda _: library}))
    return library


@pytest.fixture
def home(cuda: FakeCuda) -> int:
    """The device that is compiled for: the last."""
    return cuda.devices - 1


@pytest.fixture
def runtime(cuda: FakeCuda) -> NvidiaRuntime:
    opened = _Compiling()
    assert cuda.context == PRIMARY, "the thread that opens it begins with a device, as those of HIP"
    return opened


@pytest.fixture(params=["explicit", "capture", "streams", "serial"])
def backend(request: pytest.FixtureRequest) -> Any:
    return request.param


MINE = np.ones(8, "f4")


def workflow(factor: float = 2.0) -> hg.Graph:
    module = hg.Module(SOURCE, name="contexts")
    g = hg.Graph("contexts")
    x, y, _ = (g.device_array(name, np.ones(8, "f4")) for name in "xyq")
    h, pages = g.host_array("h", np.ones(8, "f4")), g.host_array("pages", np.ones(8, "f4"), pinned=False)
    g.host_array("h2", np.ones(8, "f4"))
    mine = g.external_array("mine", MINE)
    a, p = g.param("a", "float32", factor), g.param("p", "float32", shape=8, default="q")
    start, stop = hg.Event("start"), hg.Event("stop")
    g.record(start, name="begin")
    g.memcpy(x, h, name="in")
    g.memset(y, 0, name="clear")
    g.kernel(module["scale"], 1, 8, (x, a), name="scale")
    g.kernel(module["other"], 1, 8, (p, a), name="other")
    t = g.alloc("t", 8, "float32")
    g.memcpy(t, x, name="to_t")
    g.memcpy(mine, t, name="out")
    g.free(t)
    inner = hg.Graph("inner")
    z = inner.device_array("z", shape=8, dtype="float32")
    inner.kernel(module["scale"], 1, 8, (z, 2.0), name="inside")
    g.child(inner, bind={"z": y}, name="child")
    g.host(print, args=(), name="say")
    g.memcpy(pages, y, name="to_pages")
    g.record(stop, name="end")
    return g


def launch(exe: Executable) -> None:
    exe.launch()
    exe.launch(a=4.0)
    exe.launch(a=5.0)
    exe.launch(p=np.ones(8, "f4"))
    exe.launch(p=np.ones(8, "f4"))
    exe.launch(stream=0)


def change(exe: Executable) -> None:
    exe.set("scale", block=4)
    exe.set("clear", value=1)
    exe.set("in", src=exe.workflow.arrays["h2"])


def update(exe: Executable) -> None:
    exe.update(workflow(3.0))
    exe.update(hg.Graph("none"), rebuild=True)


def each(*calls: Callable[[], object]) -> None:
    for call in calls:
        call()


METHODS: dict[str, Callable[[Executable], Any]] = {
    "launch": launch,
    "run": lambda exe: exe.run(a=6.0),
    "synchronize": lambda exe: each(lambda: launch(exe), exe.synchronize, exe.launch, lambda: exe.synchronize(timeout_s=1)),
    "done": lambda exe: each(exe.launch, exe.done),
    "prepared": lambda exe: exe.prepared(a=7.0),
    "read": lambda exe: [exe.read(name) for name in ("x", "h", "pages", "mine")],
    "write": lambda exe: each(*(partial(exe.write, name, 1) for name in ("x", "h", "pages", "mine"))),
    "array": lambda exe: exe.array("x").__dlpack__(),
    "known": lambda exe: exe.known(),
    "gather": lambda exe: exe.gather("x", "h"),
    "set": change,
    "disable": lambda exe: each(*(partial(exe.disable, name) for name in ("scale", "say", "child", "clear"))),
    "enable": lambda exe: [act(name) for name in ("scale", "say") for act in (exe.disable, exe.enable)],
    "update": update,
    "clone": lambda exe: exe.clone().close(),
    "profile": lambda exe: exe.profile(a=8.0),
    "elapsed_us": lambda exe: exe.elapsed_us("start", "stop"),
    "graph_memory": lambda exe: each(lambda: repr(exe.graph_memory), exe.graph_memory.reset_high, exe.graph_memory.trim),
    "parameters": lambda exe: exe.parameters,
    "close": lambda exe: each(exe.launch, exe.close),
}
SILENT = {"workflow", "plan", "memory", "stats", "handle", "handles", "graph_handle", "stream", "build"}
"""What makes no call of the driver; `build` is `Graph.compile`."""


def in_thread(work: Callable[[], Any]) -> Any:
    """Run a function in a thread of its own, and return what it returns."""
    results: list[Any] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


@pytest.fixture
def compiled(cuda: FakeCuda, runtime: NvidiaRuntime, backend: Any, home: int) -> Iterator[Executable]:
    with workflow().compile(runtime=runtime, backend=backend, device=home) as exe:
        exe.launch(a=3.0)
        yield exe


OF_PARTS = {"known": "imports", "profile": "timeline"}
"""Methods that a part does."""


def test_every_public_method_is_called_here() -> None:
    public = {name for name in dir(Executable) if not name.startswith("_")}
    assert public == METHODS.keys() | SILENT


@pytest.mark.parametrize(
    "method", [pytest.param(name, marks=pytest.mark.needs(OF_PARTS[name]) if name in OF_PARTS else ()) for name in METHODS]
)
def test_method_calls_the_driver_with_the_context_of_its_executable(
    cuda: FakeCuda, compiled: Executable, home: int, method: str
) -> None:
    def call() -> int:
        cuda.context = cuda.before
        METHODS[method](compiled)
        return cuda.context

    is_graph = bool(compiled.handle)
    cuda.calls.clear()
    assert in_thread(call) == cuda.before
    assert [called for called in cuda.calls if called[1] != PRIMARY + home] == []
    assert cuda.calls or not is_graph or method in ("array", "known", "parameters")


@pytest.mark.needs("verify")
def test_compiling_and_verifying_have_a_context(cuda: FakeCuda, runtime: NvidiaRuntime, backend: Any, home: int) -> None:
    def call() -> int:
        cuda.context = cuda.before
        with workflow().compile(runtime=runtime, backend=backend, device=home, lanes="measure") as exe:
            exe.run()
        hg.verify(workflow(), runtime=runtime, backends=(backend,), device=home, orders=1, repeats=1)
        return cuda.context

    assert in_thread(call) == cuda.before
    assert [called for called in cuda.calls if called[1] != PRIMARY + home] == []


@pytest.mark.needs("imports")
def test_graphs_are_read_back_in_a_thread_without_a_context(cuda: FakeCuda, runtime: NvidiaRuntime) -> None:
    def call() -> int:
        hg.Graph.from_capture(lambda stream: None, runtime)
        hg.Graph.from_handle(1, runtime)
        hg.graph_memory(runtime).trim()
        return cuda.context

    assert in_thread(call) == 0
    assert {context for _, context in cuda.calls} == {PRIMARY}


@pytest.mark.needs("imports")
def test_graphs_are_read_back_in_the_context_that_a_thread_has(cuda: FakeCuda, runtime: NvidiaRuntime, home: int) -> None:
    def call() -> int:
        cuda.context = PRIMARY + home
        hg.Graph.from_capture(lambda stream: None, runtime)
        return cuda.context

    assert in_thread(call) == PRIMARY + home
    assert {context for _, context in cuda.calls} == {PRIMARY + home}


@pytest.mark.filterwarnings("ignore:.*was never closed:ResourceWarning")
def test_finalizer_has_a_context(cuda: FakeCuda, runtime: NvidiaRuntime, backend: Any, home: int) -> None:
    left = [workflow().compile(runtime=runtime, backend=backend, device=home)]
    left[0].launch()

    def call() -> int:
        cuda.context = cuda.before
        cuda.calls.clear()
        left.clear()
        gc.collect()
        return cuda.context

    assert in_thread(call) == cuda.before
    assert cuda.calls
    assert {context for _, context in cuda.calls} == {PRIMARY + home}


def test_failure_to_go_there_is_raised_and_leaves_the_executable_usable(
    cuda: FakeCuda, compiled: Executable, home: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_, broken = cuda._do, [True]

    def do(name: str, args: tuple[Any, ...]) -> int | None:
        return 709 if name == "cuCtxSetCurrent" and broken[0] and args[0] else set_(name, args)

    monkeypatch.setattr(cuda, "_do", do)

    def call() -> None:
        for method in (lambda: compiled.launch(a=1.0), lambda: compiled.set("scale", block=2), lambda: compiled.read("x")):
            with pytest.raises(hg.HipError, match="709"):
                method()
        broken[0] = False
        compiled.run(a=1.0)
        compiled.set("scale", block=2)

    in_thread(call)


def test_ctrl_c_right_behind_the_change_of_device_restores_what_was_current(
    cuda: FakeCuda, runtime: NvidiaRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    went: list[int] = []
    set_context = runtime._set_context

    def interrupted(context: int) -> None:
        set_context(context)
        went.append(context)
        if len(went) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(runtime, "_set_context", interrupted)
    before = runtime._current_context()
    with pytest.raises(KeyboardInterrupt), runtime.using_device(1):
        pass
    assert len(went) == 2
    assert runtime._current_context() == before
