"""Every dtype of torch, jax and cupy through each door between them and us, on the CPU and on a GPU."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from places import DTYPES, EXTRA_DTYPES, other_library, runtime_or_skip

import hipgraphdsl as hg
from hipgraphdsl.arrays import EXTRAS, as_dtype
from hipgraphdsl.runtimes.base import Runtime

N = 8
BITS = np.arange(3, 3 + 16 * N, dtype=np.uint8)  # the bytes that memory holds, whatever their type
PLAIN = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
    "complex64", "complex128",
)  # fmt: skip
OF_TORCH = (
    *PLAIN, "bfloat16", "complex32", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
)  # fmt: skip
OF_JAX = (
    *(name for name in PLAIN if not name.endswith(("64", "128"))), "complex64", "bfloat16", "float8_e3m4", "float8_e4m3",
    "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
)  # fmt: skip
TORCH, JAX = ([name for name in names if name in DTYPES] for names in (OF_TORCH, OF_JAX))
PACKED = ("int4", "uint4", "int2", "uint2", "float4_e2m1fn")


def bits_of(name: str) -> np.ndarray[Any, Any]:
    if name == "bool":
        return np.arange(N, dtype=np.uint8) % 2
    return BITS[: N * as_dtype(name).itemsize]


def is_taken(runtime: Runtime, obj: Any, name: str, *, writeable: bool = True) -> None:
    """Require that memory goes through an external array and, as an array parameter, to each of two launches."""
    g = hg.Graph("taken")
    x = g.external_array("x", obj)
    assert (x.dtype, x.shape, x.writeable) == (as_dtype(name), (N,), writeable)
    out, given = g.host_array("out", shape=N, dtype=name), g.host_array("given", shape=N, dtype=name)
    g.memcpy(out, x)
    g.memcpy(given, g.param("p", name, shape=N))
    with g.compile(runtime) as exe:
        exe.run(p=obj)
        assert exe.read("out").tobytes() == bits_of(name).tobytes()
        assert exe.read("given").tobytes() == bits_of(name).tobytes()
        assert exe.read("given").dtype == as_dtype(name)


def values_are_taken(runtime: Runtime, values: Any, name: str) -> None:
    """Require that host memory gives initial values, values to write, and those of a parameter that copies."""
    g = hg.Graph("values")
    x, z = g.device_array("x", values), g.host_array("z", shape=N, dtype=name)
    g.host_array("y", shape=N, dtype=name)
    assert x.dtype == as_dtype(name)
    g.memcpy(z, g.param("p", name, values, shape=N, copy=True))
    with g.compile(runtime) as exe:
        exe.write("y", values)
        exe.run()
        exe.run(p=values)
        for array in ("x", "y", "z"):
            assert exe.read(array).tobytes() == bits_of(name).tobytes()


def lent(runtime: Runtime, name: str) -> Any:
    g = hg.Graph("lent")
    g.device_array("x", bits_of(name).view(as_dtype(name)))
    return g.compile(runtime)


# -- torch -----------------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["cpu", pytest.param("nvidia", marks=pytest.mark.gpu)])
def runtime(request: pytest.FixtureRequest) -> Runtime:
    return runtime_or_skip(request.param)


@pytest.fixture
def torch(runtime: Runtime) -> Any:
    found = other_library("torch")
    if runtime.name == "nvidia" and not found.cuda.is_available():
        pytest.skip("torch sees no GPU")
    return found


@pytest.fixture
def place(runtime: Runtime) -> str:
    """Where the memory of a library is that the runtime reaches."""
    return "cuda" if runtime.name == "nvidia" else "cpu"


def tensor(torch: Any, name: str, place: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls complex32 experimental
        found = torch.tensor(bits_of(name).tolist(), dtype=torch.uint8, device=place).view(getattr(torch, name))
    if place == "cuda":
        torch.cuda.synchronize()
    return found


@pytest.mark.parametrize("name", TORCH)
def test_tensor_of_torch_is_taken(torch: Any, runtime: Runtime, place: str, name: str) -> None:
    made = tensor(torch, name, place)
    is_taken(runtime, made, name)
    assert hg.Graph("at").external_array("x", made).pointer == made.data_ptr()


@pytest.mark.parametrize("name", TORCH)
def test_values_of_torch_are_taken(torch: Any, runtime: Runtime, name: str) -> None:
    values_are_taken(runtime, tensor(torch, name, "cpu"), name)


@pytest.mark.parametrize("name", TORCH)
def test_torch_takes_our_arrays(torch: Any, runtime: Runtime, name: str) -> None:
    with lent(runtime, name) as exe:
        shared = exe.array("x")
        got = torch.from_dlpack(shared)
        assert (got.dtype, got.data_ptr()) == (getattr(torch, name), shared.ptr)
        assert got.view(torch.uint8).cpu().numpy().tobytes() == bits_of(name).tobytes()
        again = hg.Graph("again").external_array("x", shared)
        assert (again.dtype, again.pointer) == (as_dtype(name), shared.ptr)


@pytest.mark.parametrize("name", TORCH)
def test_captured_node_has_the_dtype(torch: Any, runtime: Runtime, name: str) -> None:
    seen: list[Any] = []

    def work(stream: Any, x: Any) -> None:
        seen.append(torch.from_dlpack(x))

    g = hg.Graph("captured")
    g.eager(work, args=(hg.reads(g.device_array("x", bits_of(name).view(as_dtype(name)))),))
    with g.compile(runtime) as exe:
        exe.run()
        assert seen[0].dtype == getattr(torch, name)


def test_tensor_whose_memory_is_not_its_value_is_refused(torch: Any, runtime: Runtime, place: str) -> None:
    one = torch.ones(N, device=place)
    lazy = {
        r"it requires a gradient.*; give x\.detach\(\)": one.clone().requires_grad_(),
        r"conjugates of its values; give x\.resolve_conj\(\)": torch.ones(N, dtype=torch.complex64, device=place).conj(),
        r"negatives of its values; give x\.resolve_neg\(\)": torch._neg_view(one),
    }
    for message, made in lazy.items():
        dtype = "complex64" if made.is_complex() else "float32"
        g = hg.Graph("lazy")
        p = g.param("p", dtype, shape=N)
        g.memcpy(g.host_array("y", shape=N, dtype=dtype), p)
        with pytest.raises(hg.DeclarationError, match=message):
            g.external_array("x", made)
        with pytest.raises(hg.DeclarationError, match=message):
            g.device_array("x", made)
        with g.compile(runtime) as exe:
            with pytest.raises(hg.DeclarationError, match=message):
                exe.run(p=made)
            with pytest.raises(hg.DeclarationError, match=message):
                exe.write("y", made)
    hg.Graph("plain").external_array("x", lazy.popitem()[1].resolve_neg())


def test_packed_tensor_is_refused(torch: Any, place: str) -> None:
    if not hasattr(torch, "float4_e2m1fn_x2"):
        pytest.skip("this torch has no packed type")
    made = torch.zeros(N, dtype=torch.uint8, device=place).view(torch.float4_e2m1fn_x2)
    g = hg.Graph("packed")
    with pytest.raises(hg.DeclarationError, match="elements of 4 bits, which share bytes"):
        g.external_array("x", made)
    assert g.external_array("x", made.view(torch.uint8)).dtype == np.uint8


# -- jax -------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def jax(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # it takes three quarters of the memory otherwise
    found = other_library("jax")
    if runtime.name == "nvidia" and found.default_backend() != "gpu":
        pytest.skip("jax sees no GPU")
    return found


def array_of_jax(jax: Any, name: str, place: str) -> Any:
    device = jax.devices("gpu" if place == "cuda" else "cpu")[0]
    return jax.block_until_ready(jax.device_put(bits_of(name).view(as_dtype(name)), device))


@pytest.mark.parametrize("name", JAX)
def test_array_of_jax_is_taken_and_read_only(jax: Any, runtime: Runtime, place: str, name: str) -> None:
    is_taken(runtime, array_of_jax(jax, name, place), name, writeable=False)


@pytest.mark.parametrize("name", [*JAX, *PACKED])
def test_values_of_jax_are_taken(jax: Any, runtime: Runtime, name: str) -> None:
    made = array_of_jax(jax, name, "cpu") if name in JAX else jax.numpy.ones(N, name, device=jax.devices("cpu")[0])
    if name in JAX:
        values_are_taken(runtime, made, name)
    else:
        x = hg.Graph("packed").device_array("x", made)
        assert (x.dtype, x.initial.tolist()) == (as_dtype(name), [1] * N)  # type: ignore[union-attr]


@pytest.mark.parametrize("name", PACKED)
def test_packed_array_of_jax_is_refused(jax: Any, place: str, name: str) -> None:
    made = jax.numpy.ones(N, name, device=jax.devices("gpu" if place == "cuda" else "cpu")[0])
    with pytest.raises(hg.DeclarationError, match=r"share bytes|offers no memory that can be shared"):
        hg.Graph("packed").external_array("x", made)


# -- cupy ------------------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("name", PLAIN)
def test_array_of_cupy_goes_both_ways(name: str) -> None:
    runtime, cupy = runtime_or_skip("nvidia"), other_library("cupy")
    made = cupy.asarray(bits_of(name)).view(name)
    cupy.cuda.Device().synchronize()
    is_taken(runtime, made, name)
    with lent(runtime, name) as exe:
        for got in (cupy.asarray(exe.array("x")), cupy.from_dlpack(exe.array("x"))):
            assert got.dtype == as_dtype(name)
            assert got.get().tobytes() == bits_of(name).tobytes()


@pytest.mark.gpu
def test_bfloat16_of_cupy_is_taken() -> None:
    runtime, cupy = runtime_or_skip("nvidia"), other_library("cupy")
    try:
        made = cupy.asarray(bits_of("bfloat16")).view(as_dtype("bfloat16"))
    except (TypeError, ValueError) as error:
        pytest.skip(f"this cupy has no bfloat16: {error}")
    cupy.cuda.Device().synchronize()
    is_taken(runtime, made, "bfloat16")


# -- ours ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DTYPES)
def test_numpy_takes_the_dtype_of_our_arrays(name: str) -> None:
    with lent(runtime_or_skip("cpu"), name) as exe:
        shared = exe.array("x")
        got = np.asarray(shared)
        assert (got.dtype, got.ctypes.data, got.tobytes()) == (as_dtype(name), shared.ptr, bits_of(name).tobytes())
        again = hg.Graph("again").external_array("x", shared)
        assert (again.dtype, again.pointer, again.writeable) == (as_dtype(name), shared.ptr, True)


@pytest.mark.parametrize("name", [name for name in EXTRA_DTYPES if EXTRAS[name].code is None or EXTRAS[name].bits < 8])
def test_dtype_without_a_code_of_its_own_is_not_exported(name: str) -> None:
    with lent(runtime_or_skip("cpu"), name) as exe, pytest.raises(BufferError, match=f"no code for dtype {name}"):
        exe.array("x").__dlpack__()


def test_what_a_consumer_asks_for_is_given_or_refused() -> None:
    with lent(runtime_or_skip("cpu"), "float32") as exe:
        shared = exe.array("x")
        assert np.from_dlpack(shared).ctypes.data == shared.ptr
        with pytest.raises(BufferError, match="copy=True"):
            shared.__dlpack__(copy=True)
        with pytest.raises(BufferError, match=r"dl_device=\(2, 0\)"):
            shared.__dlpack__(dl_device=(2, 0))
