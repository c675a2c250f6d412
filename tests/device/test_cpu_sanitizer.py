"""The sanitizer of the CPU runtime: what it finds, what it names, and what it leaves alone."""

from __future__ import annotations

import functools
import re
import shlex
import sys

import numpy as np
import planted
import pytest
from specimens import compile_whole

import hipgraphdsl as hg

SANITIZE = hg.DebugOptions(sanitize=True)
SOURCE = "".join(f'#line 1 "{fault.name}.cu"\nnamespace fault_{fault.name} {{ {fault.source}}}\n' for fault in planted.FAULTS)


@functools.cache
def module() -> hg.Module:
    """Return one module of all faults, which is compiled once."""
    return compile_whole(hg.Module(SOURCE, name="planted.cu"), fast=False, sanitize=True)


def graph(fault: planted.Fault) -> hg.Graph:
    g = hg.Graph("faulty")
    a = g.device_array("a", np.arange(fault.n, dtype=np.int32))
    b = g.alloc("b", (fault.n,), "i4") if fault.fresh else g.device_array("b", np.arange(fault.n, dtype=np.int32))
    g.kernel(
        module()[f"fault_{fault.name}::k"], fault.grid, fault.block, (a, b, fault.n),
        shared_bytes=fault.shared_bytes, name="culprit",
    )  # fmt: skip
    return g


@pytest.mark.parametrize("fault", planted.FAULTS, ids=lambda fault: fault.name)
def test_sanitize_finds_a_planted_fault(fault: planted.Fault) -> None:
    with graph(fault).compile("cpu", debug=SANITIZE, check=False) as exe:
        for _ in range(2):  # the Executable stays usable
            with pytest.raises(hg.HipError) as caught:
                exe.run()
        assert exe.read("a").size == fault.n
    error = caught.value
    assert error.node == "culprit"
    kinds = "out of bounds|unwritten memory|race|divergent barrier|division by zero"
    kernel = f"in kernel 'fault_{fault.name}::k'"
    found = re.match(rf"({kinds}) at (.*?): thread \((.*?)\) of block \((.*?)\) (.*), {kernel}$", error.text, re.DOTALL)
    assert found is not None, error.text
    kind, place, thread, block, rest = found.groups()
    assert (kind, place) == (fault.kind, f"{fault.name}.cu:{fault.line}"), error.text
    assert (block, thread) == (", ".join(map(str, fault.block_at)), ", ".join(map(str, fault.thread))), error.text
    assert fault.said in rest


@pytest.mark.parametrize("ranges", [((0, 20), (10, 40)), ((10, 40), (0, 20)), ((0, 40), (10, 20)), ((0, 20), (30, 50), (15, 35))])
def test_external_arrays_may_overlap(ranges: tuple[tuple[int, int], ...]) -> None:
    increase = hg.Module("__global__ void increase(int* x, int n) { if (threadIdx.x < n) ++x[threadIdx.x]; }")["increase"]
    base = np.zeros(64, np.int32)
    g = hg.Graph("overlapping")
    for number, (first, end) in enumerate(ranges):
        part = g.external_array(f"part{number}", base[first:end])
        g.kernel(increase, 1, 64, (part, end - first), name=f"node{number}")
    with g.compile("cpu", debug=SANITIZE) as exe:
        exe.run()
    wanted = np.zeros(64, np.int32)
    for first, end in ranges:
        wanted[first:end] += 1
    assert np.array_equal(base, wanted)


def test_memory_of_a_parameter_may_overlap_other_arrays() -> None:
    increase = hg.Module("__global__ void increase(int* x, int n) { if (threadIdx.x < n) ++x[threadIdx.x]; }")["increase"]
    base = np.zeros(64, np.int32)
    g = hg.Graph("overlapping")
    part = g.param("part", np.int32, shape=(20,))
    first = g.kernel(increase, 1, 64, (hg.updates(part), 20), name="part")
    g.kernel(increase, 1, 64, (g.external_array("whole", base), 64), name="whole", after=[first])
    with (
        g.compile("cpu", debug=SANITIZE) as exe,
        g.compile("cpu", debug=SANITIZE) as other,
    ):
        other.run(part=base[44:])
        for start in (0, 10, 20, 10):
            exe.run(part=base[start : start + 20])
        other.close()
        exe.run(part=base[44:])
    wanted = np.full(64, 6, np.int32)
    for start in (0, 10, 20, 10, 44, 44):
        wanted[start : start + 20] += 1
    assert np.array_equal(base, wanted)


def test_memory_that_an_executable_has_left_is_no_array() -> None:
    base = np.zeros(64, np.int32)
    source = "__global__ void k(int* x, int n) { if (threadIdx.x < 64) ++x[threadIdx.x]; }"

    def graph(name: str, end: int) -> hg.Graph:
        g = hg.Graph(name)
        g.kernel(hg.Module(source)["k"], 1, 64, (g.external_array(name, base[:end]), end))
        return g

    graph("whole", 64).compile("cpu", debug=SANITIZE).close()
    with (
        graph("half", 32).compile("cpu", debug=SANITIZE) as exe,
        pytest.raises(hg.HipError, match="out of bounds"),
    ):
        exe.run()


RIGHT = r"""
struct Pair { char tag; int value; };
__global__ void reduce(const int* x, int* y, int n) {
  __shared__ int sums[2]; __shared__ bool any;
  int v = x[threadIdx.x];
  for (int d = 32; d > 0; d >>= 1) v += __shfl_down(v, d);
  if (threadIdx.x % 64 == 0) sums[threadIdx.x / 64] = v;
  if (threadIdx.x < 2) any = false;
  __syncthreads();
  if (v > 3) any = true;  // all write the same
  __syncthreads();
  if (threadIdx.x == 0) y[0] = any ? sums[0] + sums[1] : -1;
}
__global__ void exchange(const int* x, int* y, int n) {
  __shared__ int lane[64];
  lane[threadIdx.x] = x[threadIdx.x];
  __syncwarp();
  y[threadIdx.x] = lane[63 - threadIdx.x];
}
__global__ void pairs(const int* x, int* y, int n) {
  __shared__ Pair p[64], q[64];
  p[threadIdx.x].tag = 1;
  p[threadIdx.x].value = x[threadIdx.x];
  q[threadIdx.x] = p[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = q[63 - threadIdx.x].value;
}
__device__ int last;
__global__ void last_block(int* part, int* y, int n) {
  part[blockIdx.x] = blockIdx.x + 1;
  __threadfence();
  if (atomicAdd(&last, 1) == (int)gridDim.x - 1) {
    int s = 0;
    for (int k = 0; k < (int)gridDim.x; ++k) s += part[k];
    y[0] = s;
  }
}
__global__ void widths(const int* x, int* y, int n) {
  __shared__ __align__(16) long long words[64];
  const int i = threadIdx.x;
  words[i] = 0x0102030405060708LL * (i + 1);
  __syncthreads();
  ((int*)words)[2 * (63 - i)] = i;  // cells of eight bytes become such of four
  __syncthreads();
  ((char*)words)[8 * i + 7] = 1;  // and of one
  __syncthreads();
  y[i] = ((int*)words)[2 * (63 - i)] + x[i] - ((char*)words)[8 * i + 7];  // the pages of x are new then
  __syncthreads();
  y[64 + i] = ((short*)words)[4 * (63 - i)] + (int)(words[i] >> 56) + x[127 - i];
}
"""


@pytest.mark.parametrize(
    ("name", "grid", "block", "wanted"),
    [
        ("reduce", 1, 128, 8128), ("exchange", 1, 64, 63), ("pairs", 1, 64, 63), ("last_block", 8, 1, 36), ("widths", 1, 64, -1),
    ],
)  # fmt: skip
def test_sanitize_leaves_right_kernels_alone(name: str, grid: int, block: int, wanted: int) -> None:
    g = hg.Graph("right")
    x, y = g.device_array("x", np.arange(128, dtype=np.int32)), g.device_array("y", np.zeros(128, np.int32))
    g.kernel(compile_whole(hg.Module(RIGHT), fast=False, sanitize=True)[name], grid, block, (x, y, 128))
    with g.compile("cpu", debug=SANITIZE) as exe:
        exe.run()
        assert exe.read("y")[0] == wanted


# Loads of what nobody has written, or not all of it, that decide nothing: compilers leave out or move what is not used.
HARMLESS = r"""
struct Pair { char tag; int value; };
struct __align__(16) Wide { float x, y, z; };
__global__ void chosen(int* x, int n) {
  __shared__ int t[64], u;
  const int i = threadIdx.x;
  if (i < 8) t[i] = 1;
  if (n > 99) u = 1;
  __syncthreads();
  x[i] = (i < 8 ? t[i] : 0) + (n > 99 ? u : 3);
}
__global__ void padding(int* x, int n) {
  __shared__ Pair p[64];
  __shared__ Wide w[64];
  const int i = threadIdx.x;
  p[i].tag = 1, p[i].value = i, w[i].x = 1, w[i].y = 2, w[i].z = 3;
  Pair q = p[i];
  p[i] = q;
  Wide v = w[i];
  w[i] = v;
  const float4 f = *(float4*)&w[i];
  __syncthreads();
  x[i] = p[63 - i].value + (int)w[63 - i].z + (int)f.x;
}
__global__ void idle_lanes(int* x, int n) {
  __shared__ int s[64];
  const int i = threadIdx.x;
  if (i < 4) s[i] = i;
  __syncthreads();
  const int v = s[i];
  if (i < 4) x[i] = v;
}
__global__ void rest_of_a_vector(int* x, int n) {
  __shared__ __align__(16) int s[64];
  const int i = threadIdx.x;
  if (i < 62) s[i] = i;
  __syncthreads();
  if (i < 16) {
    const int4 v = ((int4*)s)[i];
    x[i] = v.x + v.y;
  }
}
"""


@pytest.mark.parametrize("name", ["chosen", "padding", "idle_lanes", "rest_of_a_vector"])
def test_sanitize_leaves_loads_alone_that_decide_nothing(name: str) -> None:
    g = hg.Graph("harmless")
    kernels = compile_whole(hg.Module(HARMLESS), fast=False, sanitize=True)
    g.kernel(kernels[name], 1, 64, (g.device_array("x", np.zeros(64, np.int32)), 5))
    with g.compile("cpu", debug=SANITIZE) as exe:
        exe.run()


FORGOTTEN = r"""
template <int N> __device__ int loaded() { __shared__ int part[N]; return part[threadIdx.x]; }
__global__ void k(int* x) { __shared__ int tile[64]; x[threadIdx.x] = tile[threadIdx.x]; }
__global__ void by_template(int* x) { x[threadIdx.x] = loaded<64>(); }
"""


@pytest.mark.parametrize(("name", "variable"), [("k", "tile"), ("by_template", "part")])
def test_sanitize_finds_loads_of_shared_memory_that_nothing_writes(name: str, variable: str) -> None:
    g = hg.Graph("forgotten")
    g.kernel(hg.Module(FORGOTTEN)[name], 1, 64, (g.device_array("x", np.zeros(64, np.int32)),))
    with g.compile("cpu", debug=SANITIZE) as exe, pytest.raises(hg.HipError) as caught:
        exe.run()
    assert f"reads 4 bytes at offset 0 of shared '{variable}', which no thread of the block has written" in caught.value.text


# What compilers tell of in different ways: loops that clang makes vector code of, of which its instrumentation sees nothing, and
# accesses of local variables, of which no compiler tells where nobody else has their address.
COMPILED = r"""
__global__ void down(int* x, int n) { for (int k = 64; k >= n; --k) x[k] = 1; }
__global__ void nested(int* x, int n) { for (int a = 0; a < 40; ++a) for (int b = 0; b < 40; ++b) x[a * 8 + b] = 1; }
__global__ void barrier(int* x, int n) {
  __shared__ int t[64];
  t[threadIdx.x] = x[threadIdx.x];
  x[threadIdx.x] = t[threadIdx.x / 2];
}
__global__ void unwritten(int* x, int n) {
  __shared__ int t[64];
  if (threadIdx.x > 3) t[threadIdx.x] = 1;
  x[threadIdx.x] = t[threadIdx.x];
}
__global__ void divided(int* x, int n) { x[threadIdx.x] = 64 / ((int)threadIdx.x - 5); }
__global__ void overrun(int* x, int n) {
  int l[8];
  for (int k = 0; k <= 20 + n; ++k) l[k] = k;
  x[0] = l[x[1]];
}
__global__ void by_pointer(int* x, int n) {
  int l[8], *p = l;
  for (int k = 0; k <= 20 + n; ++k) p[k] = k;
  x[0] = l[x[1]];
}
__device__ int table[4][8];
__global__ void right(int* x, int n) {
  __shared__ int t[4][8];
  int l[3][4], *end = &l[3][0];
  for (int i = 0; i < 32 + n; ++i) t[0][i] = table[0][i] = i;
  for (int* p = &l[0][0]; p < end; ++p) *p = 2;
  for (int i = 0; i < 12 + n; ++i) l[0][i] += i;
  x[0] = t[3][7] + table[2][7] + l[2][3];
}
"""


@functools.cache
def compiled(compiler: str) -> hg.Module:
    """Return the module of these kernels, which each compiler compiles once."""
    return compile_whole(hg.Module(COMPILED, name=f"{compiler}.cu"), fast=False, sanitize=True)


@pytest.fixture(params=["chosen", "ziglang"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> hg.Module:
    """Return the kernels for the compiler of all tests, and for ziglang's clang."""
    if request.param == "ziglang":
        pytest.importorskip("ziglang")
        hg.open_runtime("cpu")  # its own library may be of the other compiler
        monkeypatch.setenv("HIPGRAPHDSL_CXX", f"{shlex.quote(sys.executable)} -m ziglang c++")
    return compiled(request.param)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("down", "4 bytes at offset 256 of array 'x', which has 256 bytes"),
        ("nested", "4 bytes at offset 256 of array 'x', which has 256 bytes"),
        ("barrier", "reads 4 bytes at offset 0 of shared 't', which thread (0, 0, 0) writes at"),
        ("unwritten", "reads 4 bytes at offset 0 of shared 't', which no thread of the block has written"),
        ("divided", "thread (5, 0, 0) of block (0, 0, 0) divides an integer by zero"),
        ("overrun", ".cu:17: thread (0, 0, 0) of block (0, 0, 0) uses index 8 of a local variable of type 'int"),
        ("by_pointer", "thread (0, 0, 0) of block (0, 0, 0) has written behind a local variable"),
    ],
)
def test_sanitize_finds_the_same_with_each_compiler(kernels: hg.Module, name: str, said: str) -> None:
    g = hg.Graph("compiled")
    block = 64 if name in ("barrier", "unwritten", "divided") else 1
    g.kernel(kernels[name], 1, block, (g.device_array("x", np.zeros(64, np.int32)), 0))
    with g.compile("cpu", debug=SANITIZE, check=False) as exe:
        for _ in range(2):
            with pytest.raises(hg.HipError) as caught:
                exe.run()
            assert said in caught.value.text


def test_sanitize_judges_memory_and_not_the_extents_of_arrays_in_arrays(kernels: hg.Module) -> None:
    g = hg.Graph("compiled")
    g.kernel(kernels["right"], 1, 1, (g.device_array("x", np.zeros(64, np.int32)), 0))
    with g.compile("cpu", debug=SANITIZE, check=False) as exe:
        exe.run()
        assert exe.read("x")[0] == 31 + 23 + 13


@pytest.mark.parametrize("offset", [64, -1])
def test_sanitize_finds_writes_beside_the_variable_of_a_module(offset: int) -> None:
    source = "__device__ int kept[64]; __global__ void k(int n) { kept[(int)threadIdx.x + n] = 1; }"
    g = hg.Graph("variable")
    g.kernel(hg.Module(source)["k"], 1, 1, (offset,))
    with g.compile("cpu", debug=SANITIZE, check=False) as exe, pytest.raises(hg.HipError) as caught:
        exe.run()
    assert f"writes 4 bytes at offset {4 * offset} of variable 'kept', which has 256 bytes" in caught.value.text


def test_sanitize_finds_races_between_blocks() -> None:
    source = "__global__ void k(int* x) { if (blockIdx.x == 1) x[0] = x[0] + 1; else x[0] = 7; }"
    g = hg.Graph("blocks")
    g.kernel(hg.Module(source)["k"], 2, 1, (g.device_array("x", np.zeros(1, np.int32)),), name="both")
    with (
        g.compile("cpu", debug=SANITIZE) as exe,
        pytest.raises(hg.HipError, match=r"race at .*in any order") as caught,
    ):
        exe.run()
    assert caught.value.node == "both"


# Blocks of a cooperative launch run beside each other: the first to the last wait until all have written.
GRID = r"""
__device__ int arrived;
__global__ void k(const int* x, int* y, int* z) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = x[i];
  __syncthreads();
  if (threadIdx.x == 0) {
    FENCE;
    atomicAdd(&arrived, 1);
    while (atomicAdd(&arrived, 0) < (int)gridDim.x) {}
  }
  __syncthreads();
  z[i] = y[gridDim.x * blockDim.x - 1 - i];
}
"""


@pytest.mark.parametrize("fence", ["__threadfence()", ""])
def test_sanitize_orders_the_blocks_of_a_cooperative_launch(fence: str) -> None:
    g = hg.Graph("grid")
    x = g.device_array("x", np.arange(64, dtype=np.int32))
    y, z = (g.device_array(name, np.zeros(64, np.int32)) for name in "yz")
    source = GRID.replace("FENCE", fence)
    g.kernel(hg.Module(source, name="grid.cu")["k"], 4, 16, (x, y, z), cooperative=True, name="grid")
    with g.compile("cpu", debug=SANITIZE) as exe:
        if fence:
            exe.run()
            assert exe.read("z").tolist() == list(range(63, -1, -1))
            return
        with pytest.raises(hg.HipError) as caught:
            exe.run()
    said = r"race at grid\.cu:13: thread .* reads 4 bytes .* of array 'y', which thread .* of block .* writes at grid\.cu:5, in"
    assert re.match(said, caught.value.text), caught.value.text


def test_sanitize_holds_for_clones_and_for_what_update_builds_afresh() -> None:
    kernel = hg.Module("__global__ void k(int* x, int n) { x[n] = 1; }")["k"]

    def declared(*names: str) -> hg.Graph:
        g = hg.Graph("again")
        x, n = g.device_array("x", np.zeros(4, np.int32)), g.param("n", "int32", 0)
        for name in names:
            g.kernel(kernel, 1, 1, (x, n), name=name)
        return g

    with declared("k").compile("cpu", debug=SANITIZE) as exe, exe.clone() as clone:
        exe.update(declared("k", "more"), rebuild=True)
        for each in (clone, exe):
            with pytest.raises(hg.HipError, match="out of bounds"):
                each.run(n=4)


def test_sanitize_takes_the_cpu() -> None:
    g = hg.Graph("elsewhere")
    g.device_array("x", np.zeros(1, np.int32))
    with pytest.raises(hg.DeclarationError, match="runtime='cpu'"):
        g.compile("recorder", debug=SANITIZE)


def test_verify_reports_what_the_sanitizer_finds_and_runs_nothing_else() -> None:
    report = hg.verify(graph(planted.FAULTS[1]), "cpu")
    assert [(f.kind, f.nodes, f.arrays) for f in report.findings] == [("out of bounds", ("culprit",), ("a",))]
    assert any(said.startswith("everything else") for said in report.left_out)


MANY = r"""
__global__ void beyond(int* x) { x[threadIdx.x + 1] = 1; }
__global__ void divided(int* x) { x[threadIdx.x] = 7 / x[threadIdx.x]; }
__global__ void raced(int* x) { x[0] = threadIdx.x; }
__global__ void right(int* x) { x[threadIdx.x] += 1; }
"""


def test_verify_reports_what_the_sanitizer_finds_in_each_node() -> None:
    g, module = hg.Graph("many"), hg.Module(MANY, name="many.cu")
    arrays = [g.device_array(name, np.zeros(8, np.int32)) for name in "abcd"]
    for kernel, array in zip(("right", "beyond", "divided", "raced"), arrays):
        g.kernel(module[kernel], 1, 8, (array,), name=kernel)
    g.kernel(module["right"], 1, 8, (arrays[1],), name="after")
    report = hg.verify(g, "cpu")
    found = [(f.kind, *f.nodes) for f in report.findings]
    assert found == [("out of bounds", "beyond"), ("failure", "divided"), ("race", "raced")]
    assert [said for said in report.left_out if "sanitizer" in said] == ["under the sanitizer: 'after' behind a finding"]


def test_verify_ends_the_sanitized_run_at_twenty_findings() -> None:
    g, module = hg.Graph("most"), hg.Module(MANY, name="many.cu")
    for n in range(25):
        kernel = module["beyond" if n % 2 else "raced"]
        g.kernel(kernel, 1, 8, (g.device_array(f"x{n}", np.zeros(8, np.int32)),), name=f"n{n}")
    report = hg.verify(g, "cpu")
    assert len(report.findings) == 20
    assert "under the sanitizer: 'n20', 'n21', 'n22', 'n23', 'n24' behind a finding" in report.left_out


def test_verify_names_nodes_without_an_order_behind_many_findings_of_the_sanitizer() -> None:
    g, module = hg.Graph("most", infer=False), hg.Module(MANY, name="many.cu")
    for n in range(20):
        g.kernel(module["raced"], 1, 8, (g.device_array(f"x{n}", np.zeros(8, np.int32)),), name=f"n{n}")
    x = g.device_array("x", np.zeros(8, np.int32))
    g.memset(x, 1, name="first")
    g.memset(x, 2, name="second")
    assert [f.nodes for f in hg.verify(g, "cpu", orders=1).findings if f.kind == "order"] == [("first", "second")]


ATOMICS = r"""
__global__ void k(int* a, float* f, int n) {
  const int i = threadIdx.x;
  atomicAdd(a, 1); atomicMax(a + 1, i); atomicAnd(a + 2, ~1); atomicOr(a + 3, i); atomicExch(a + 4, 4); atomicCAS(a + 5, 0, 5);
  atomicAdd(f, 1.5f);
  __hip_atomic_store(a + 6, 4, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
  a[7 + i] = __hip_atomic_load(a + 6, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT);
}
"""


def test_sanitize_keeps_what_atomic_operations_do() -> None:
    g = hg.Graph("atomics")
    a, f = g.device_array("a", np.zeros(16, np.int32)), g.device_array("f", np.zeros(1, np.float32))
    g.kernel(hg.Module(ATOMICS)["k"], 1, 8, (a, f, 0))
    with g.compile("cpu", debug=SANITIZE) as exe:
        exe.run()
        assert exe.read("a").tolist() == [8, 7, 0, 7, 4, 5, 4, *[4] * 8, 0]
        assert exe.read("f")[0] == 12.0
