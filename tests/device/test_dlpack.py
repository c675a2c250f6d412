"""Memory of a device that an object offers by DLPack alone, as arrays and as parameters."""

from __future__ import annotations

import ctypes
import gc
import weakref
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from places import EXTRA_DTYPES, runtime_or_skip

import hipgraphdsl as hg
from hipgraphdsl.arrays import EXTRAS, as_dtype
from hipgraphdsl.backends.lent import memory_view
from hipgraphdsl.runtimes.base import Runtime
from hipgraphdsl.runtimes.data import MemcpyKind

N = 1024
TWICE = hg.Module(r"""
extern "C" __global__ void twice(float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= 2;
}""")["twice"]
# dlpack.h, by hand: DLTensor has data 0, device 8, ndim 16, dtype 20, shape 24, strides 32, byte_offset 40; it begins a
# DLManagedTensor, and in a DLManagedTensorVersioned it follows version 0, manager_ctx 8, deleter 16 and flags 24.
DEVICE_AT, TYPE_AT, FLAGS_AT, VERSIONED = 8, 20, 24, 32
pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))


class Tensor:
    """Values that are said to be on a GPU, with capsules of NumPy; `patches` maps offsets in the capsule's tensor to bytes."""

    def __init__(self, values: Any, *, versioned: bool, kind: int = 2, device: int = 0, patches: Any = ()) -> None:
        self.values, self.versioned, self.kind, self.device, self.patches = values, versioned, kind, device, dict(patches)
        self.asked: list[dict[str, Any]] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.kind, self.device

    def __dlpack__(self, *, stream: Any = None, **options: Any) -> Any:
        self.asked.append({"stream": stream, **options})
        if options and not self.versioned:
            raise TypeError("__dlpack__() got an unexpected keyword argument 'max_version'")
        made = self.values.__dlpack__(**options)
        at = VERSIONED if self.versioned else 0
        start = (pointer_of(made, b"dltensor_versioned" if self.versioned else b"dltensor") or 0) + at
        told = np.array(self.__dlpack_device__(), "i4").tobytes()
        for offset, patch in {DEVICE_AT: told, **self.patches}.items():
            ctypes.memmove(start + offset, patch, len(patch))
        return made


@pytest.fixture(params=["cpu", "nvidia", "amd"])
def runtime(request: pytest.FixtureRequest) -> Runtime:
    return runtime_or_skip(request.param)


@pytest.fixture
def memory(runtime: Runtime) -> Iterator[Any]:
    """Memory of the device, as an array of NumPy that only the CPU runtime can read."""
    address = runtime.malloc(4 * N)
    start = np.arange(N, dtype="f4")
    runtime.memcpy(address, start.ctypes.data, 4 * N, MemcpyKind.HOST_TO_DEVICE)
    yield memory_view(address, 4 * N, (N,), np.dtype("f4"))
    runtime.free(address)


@pytest.fixture(params=[False, True], ids=["unversioned", "versioned"])
def versioned(request: pytest.FixtureRequest) -> bool:
    if request.param:
        try:
            np.zeros(1).__dlpack__(max_version=(1, 0))
        except TypeError:
            pytest.skip(f"NumPy {np.__version__} makes no versioned capsules")
    return bool(request.param)


def test_memory_of_dlpack_alone_is_used_in_place(runtime: Runtime, memory: Any, versioned: bool) -> None:
    kind = runtime.target.dlpack_device if runtime.target.dlpack_device != 1 else 2
    tensor = Tensor(memory, versioned=versioned, kind=kind)
    g = hg.Graph("dlpack")
    x = g.external_array("x", tensor)
    assert (x.location, x.pointer, x.shape, x.dtype, x.device) == ("device", memory.ctypes.data, (N,), np.dtype("f4"), 0)
    assert x.writeable
    assert tensor.asked[0] == {"stream": -1, "max_version": (1, 0)}
    half = g.external_array("half", Tensor(memory[N // 2 :], versioned=versioned, kind=kind))
    p = g.param("p", "f4", shape=N)
    g.kernel(TWICE, N // 256, 256, (x, N), name="all")
    g.kernel(TWICE, N // 512, 256, (half, N // 2), name="half")
    g.kernel(TWICE, N // 256, 256, (p, N), name="param", after=["half"])
    assert ("all", "half") in g.dag.edges
    with g.compile(runtime) as exe:
        exe.run(p=tensor)
        assert exe.read("x").tolist() == [4.0 * i * (1 + (i >= N // 2)) for i in range(N)]


def test_a_producer_lives_as_long_as_a_graph_or_executable_uses_it(versioned: bool) -> None:
    values = np.arange(N, dtype="f4")
    tensor = Tensor(values, versioned=versioned)
    told: list[weakref.ref[Any]] = [weakref.ref(values), weakref.ref(tensor)]
    g = hg.Graph("kept")
    g.kernel(TWICE, N // 256, 256, (g.external_array("x", tensor), N))
    exe = g.compile("cpu")
    del values, tensor, g
    gc.collect()
    assert all(ref() is not None for ref in told)
    exe.run()
    assert exe.read("x")[3] == 6.0
    exe.close()
    del exe
    gc.collect()
    assert [ref() for ref in told] == [None, None]  # NumPy's deleter has released the values


@pytest.mark.parametrize("versioned", [False, True], ids=["unversioned", "versioned"])
def test_the_deleter_of_a_capsule_is_called_once(versioned: bool) -> None:
    called: list[int] = []
    deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(called.append)
    values, shape = np.arange(6, dtype="i2"), (ctypes.c_int64 * 2)(2, 3)
    tensor = b"".join(
        part.tobytes()
        for part in (
            np.uint64(values.ctypes.data - 4),
            np.array([10, 1, 2], "i4"),
            np.array([0, 16], "u1"),
            np.array([1], "u2"),
            np.array([ctypes.addressof(shape), 0, 4], "u8"),  # without strides: in C order; the data begins 4 bytes further
        )
    )
    address_of_deleter = ctypes.cast(deleter, ctypes.c_void_p).value
    managed = np.array([0, address_of_deleter], "u8").tobytes()
    parts = np.array([1, 3], "u4").tobytes() + managed + bytes(8) + tensor if versioned else tensor + managed
    buffer = ctypes.create_string_buffer(parts, len(parts))
    name = b"dltensor_versioned" if versioned else b"dltensor"

    def destroyed(capsule: int) -> None:
        """As every producer's destructor: call the deleter if nobody has renamed the capsule."""
        taken = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
        if taken(capsule, name):
            deleter(ctypes.addressof(buffer))

    destroy = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(destroyed)
    new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
        ("PyCapsule_New", ctypes.pythonapi)
    )

    class Producer:
        def __dlpack_device__(self) -> tuple[int, int]:
            return (10, 1)

        def __dlpack__(self, **options: Any) -> Any:
            return new(ctypes.addressof(buffer), name, ctypes.cast(destroy, ctypes.c_void_p))

    g = hg.Graph("once")
    x = g.external_array("x", Producer())
    assert (x.pointer, x.shape, x.dtype, x.device) == (values.ctypes.data, (2, 3), np.dtype("i2"), 1)
    gc.collect()
    assert called == []
    del x, g
    gc.collect()
    assert called == [ctypes.addressof(buffer)]


@pytest.mark.parametrize("dtype", ["bool", "i1", "u2", "i4", "u8", "f2", "f4", "f8", "c8", "c16"])
def test_types_of_dlpack_are_those_of_numpy(dtype: str) -> None:
    g = hg.Graph("types")
    assert g.external_array("x", Tensor(np.zeros((2, 3), dtype), versioned=False)).dtype == np.dtype(dtype)
    zero = g.external_array("zero", Tensor(np.zeros((), dtype), versioned=False))
    assert (zero.shape, zero.dtype) == ((), np.dtype(dtype))


def test_producers_that_know_no_streams_are_taken() -> None:
    class Old(Tensor):
        def __dlpack__(self) -> Any:  # type: ignore[override]  # as before there were streams
            return super().__dlpack__()

    assert hg.Graph("old").external_array("x", Old(np.zeros(8, "f4"), versioned=False)).shape == (8,)


def test_bfloat16_and_the_device_come_from_the_capsule() -> None:
    g = hg.Graph("types")
    half = Tensor(np.zeros(8, "u2"), versioned=False, kind=10, device=3, patches={TYPE_AT: bytes([4, 16, 1, 0])})
    x = g.external_array("x", half)
    assert (x.dtype, x.device) == (np.dtype(ml_dtypes.bfloat16), 3)
    assert g.external_array("y", half, device=1).device == 1


def test_the_flags_of_a_versioned_capsule_are_heeded(versioned: bool) -> None:
    if not versioned:
        pytest.skip("it has no flags")
    values = np.zeros(8, "f4")
    values.flags.writeable = False
    g = hg.Graph("flags")
    assert not g.external_array("x", Tensor(values, versioned=True)).writeable
    copied = {FLAGS_AT - VERSIONED: np.uint64(2).tobytes()}
    with pytest.raises(hg.DeclarationError, match="external array 'y': its __dlpack__ gives a copy, and not its memory"):
        g.external_array("y", Tensor(values, versioned=True, patches=copied))
    newer = {-VERSIONED: np.uint32(2).tobytes()}
    with pytest.raises(hg.DeclarationError, match=r"'y': its __dlpack__ has version 2\.0, and 1 is known"):
        g.external_array("y", Tensor(values, versioned=True, patches=newer))


def test_what_is_no_memory_of_an_array_is_refused() -> None:
    g = hg.Graph("refused")
    values = np.zeros((4, 4), "f4")

    def wrap(**options: Any) -> None:
        g.external_array("x", Tensor(options.pop("values", values), versioned=False, **options))

    with pytest.raises(hg.DeclarationError, match=r"'x': it has shape \(4, 4\) and strides \(4, 16\), and only C-contiguous"):
        wrap(values=values.T)
    with pytest.raises(hg.DeclarationError, match="'x': its __dlpack__ has type code 99, 8 bits and 1 lanes, and no dtype has"):
        wrap(patches={TYPE_AT: bytes([99, 8, 1, 0])})
    with pytest.raises(hg.DeclarationError, match="'x': its __dlpack__ has address 0, where no memory is"):
        wrap(patches={0: bytes(8)})

    class Refuses(Tensor):
        def __dlpack__(self, **options: Any) -> Any:
            raise BufferError("it has a gradient")

    class GivesNone(Tensor):
        def __dlpack__(self, **options: Any) -> Any:
            return None

    with pytest.raises(hg.DeclarationError, match=r"'x': Refuses offers no memory that can be shared \(it has a gradient\)"):
        g.external_array("x", Refuses(values, versioned=False))
    with pytest.raises(hg.DeclarationError, match=r"'x': its __dlpack__ returns no tensor \(got None\)"):
        g.external_array("x", GivesNone(values, versioned=False))
    assert not g.arrays


@pytest.mark.parametrize("name", [name for name in EXTRA_DTYPES if EXTRAS[name].code is not None])
@pytest.mark.parametrize("kind", [1, 2, 3], ids=["host", "gpu", "page-locked"])
def test_types_of_dlpack_are_those_of_ml_dtypes(name: str, kind: int) -> None:
    code, bits = EXTRAS[name].code, EXTRAS[name].bits
    assert code is not None
    values = np.arange(1, 9, dtype=f"u{as_dtype(name).itemsize}")
    told = {TYPE_AT: bytes([code, bits, 1, 0])}
    g = hg.Graph("types")
    if bits < 8:  # packed, unless the flag of a versioned capsule says otherwise
        with pytest.raises(hg.DeclarationError, match=f"'packed': its __dlpack__ has elements of {bits} bits, which share bytes"):
            g.external_array("packed", Tensor(values, versioned=False, kind=kind, patches=told))
        told[FLAGS_AT - VERSIONED] = np.uint64(4).tobytes()
        if np.lib.NumpyVersion(np.__version__) < "2.1.0":
            pytest.skip("this NumPy makes no versioned capsules")
    x = g.external_array("x", Tensor(values, versioned=bits < 8, kind=kind, patches=told))
    assert (x.dtype, x.shape, x.pointer) == (as_dtype(name), (8,), values.ctypes.data)
    assert x.location == ("device" if kind == 2 else "host")


@pytest.mark.parametrize("error", [KeyError("torch.float8_e4m3fn"), RuntimeError("no"), TypeError("no"), ValueError("no")])
def test_interface_that_fails_gives_way_to_dlpack(error: Exception) -> None:
    class Fails(Tensor):
        @property
        def __cuda_array_interface__(self) -> Any:
            raise error

    g = hg.Graph("fails")
    assert g.external_array("x", Fails(np.zeros(8, "f4"), versioned=False)).shape == (8,)

    class Alone:
        __cuda_array_interface__ = Fails.__cuda_array_interface__

    with pytest.raises(hg.DeclarationError, match=f"its __cuda_array_interface__ raises {type(error).__name__}"):
        g.external_array("y", Alone())


def test_raw_bytes_of_an_interface_are_named_by_dlpack_or_the_object() -> None:
    class Raw(Tensor):
        @property
        def __cuda_array_interface__(self) -> Any:
            at = self.values.__array_interface__
            return {"typestr": "<V2", "shape": at["shape"], "data": at["data"], "version": 3}

    class Named:
        def __init__(self, dtype: Any) -> None:
            self.dtype = np.dtype(dtype)
            size = self.dtype.itemsize
            self.__cuda_array_interface__ = {"typestr": f"|V{size}", "shape": (8,), "data": (4096, False), "version": 3}

    g = hg.Graph("raw")
    values = np.zeros(8, "u2")
    x = g.external_array("x", Raw(values, versioned=False, patches={TYPE_AT: bytes([4, 16, 1, 0])}))
    assert (x.dtype, x.location, x.pointer) == (np.dtype(ml_dtypes.bfloat16), "device", values.ctypes.data)
    layout = [("a", "f4"), ("n", "i4")]
    assert g.external_array("y", Named(layout)).dtype == np.dtype(layout)
    unnamed = Raw(np.zeros(8, "u2"), versioned=False, patches={TYPE_AT: bytes([99, 16, 1, 0])})
    assert g.external_array("z", unnamed).dtype == np.dtype("V2")


def test_memory_of_another_device_is_refused() -> None:
    with pytest.raises(hg.DeclarationError, match=r"__dlpack_device__ is \(14, 0\), neither the host nor a GPU"):
        hg.Graph("elsewhere").external_array("x", Tensor(np.zeros(8, "f4"), versioned=False, kind=14))


def test_arrays_of_jax_are_read_only_and_given_no_stream() -> None:
    """jax makes capsules without flags, and takes any number for the handle of a stream, -1 too."""
    kind = type("ArrayImpl", (Tensor,), {"__module__": "jaxlib._jax"})
    made = kind(np.zeros(8, "f4"), versioned=False)
    assert not hg.Graph("jax").external_array("x", made).writeable
    assert [asked["stream"] for asked in made.asked] == [None] * len(made.asked)
