"""The exported HIP C++ program: one call a node, names that stay names, options, files, refusals, and that compilers take it."""

from __future__ import annotations

import gc
import itertools
import os
import re
import shlex
import shutil
import subprocess
import weakref
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import hip_programs
import numpy as np
import pytest
from hip_programs import MAKERS, ON_CPU, Written, example, export
from hypothesis import given
from hypothesis import strategies as st
from specimens import OWN_KINDS, module, report

import hipgraphdsl as hg
from hipgraphdsl.arrays import Array
from hipgraphdsl.backends import explicit, operations, program, resolve
from hipgraphdsl.cli import main
from hipgraphdsl.compiler import find_compiler
from hipgraphdsl.errors import DeclarationError
from hipgraphdsl.export import render
from hipgraphdsl.nodes import UnboundCallback
from hipgraphdsl.parts.cpu import program as cpu_program
from hipgraphdsl.parts.cpu.program import build_program
from hipgraphdsl.parts.program import parts as hip_parts
from hipgraphdsl.parts.program import text as hip_text
from hipgraphdsl.parts.program.parts import INCLUDES
from hipgraphdsl.runtimes.data import MemcpyKind

ADDS = re.compile(
    r"\badd_(?:kernel|captured|copy|copy_3d|memset|fill|alloc|free|host|empty|record|wait|child|memory_ops)\(graph,"
)
NAN = float("nan")
NVCC, HIPCC = shutil.which("nvcc"), shutil.which("hipcc")


def text_of(graph: hg.Graph, **options: Any) -> str:
    return str(render(graph.workflow(), ".hip", **options))


def calls(text: str) -> int:
    """Count the calls that add nodes; those in a loop as often as it goes round."""
    total, times = 0, 1
    for line in text.partition("// ---- The graph")[2].splitlines():
        if loop := re.search(r"for \(long n = (\d+); n < (\d+);", line):
            times = int(loop[2]) - int(loop[1])
        elif line == "  }":
            times = 1
        total += times * len(ADDS.findall(line))
    return total


def graph_part(text: str) -> str:
    return text.partition("// ---- The graph")[2].partition("// ---- Before and after")[0]


@pytest.fixture(scope="module")
def precompiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """Precompile what every program includes, which takes g++ half of the time, and return the options that use it."""
    compiler = find_compiler()
    if compiler.kind != "gcc":
        return ()
    header = tmp_path_factory.mktemp("precompiled") / "standard.h"
    header.write_text("".join(f"{line}\n" for line in INCLUDES if "complex" not in line))
    compiled([*compiler.command, "-std=c++17", "-O2", "-DHIP_CPU", "-O0", "-x", "c++-header", str(header), "-o", f"{header}.gch"])
    return ("-include", str(header))


@pytest.fixture
def _with_precompiled_headers(precompiled: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    own = find_compiler()
    monkeypatch.setattr(cpu_program, "find_compiler", lambda: replace(own, command=(*own.command, *precompiled)))


# -- structure -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", hip_programs.SMALL)
def test_program_has_one_call_for_each_step(name: str) -> None:
    g = example(name).build(**hip_programs.SMALL[name])
    assert calls(text_of(g)) == len(g.plan(target="amd:gfx942").steps)


def test_dependencies_are_the_plans_edges_by_name() -> None:
    text = graph_part(text_of(example("01_hip_graph_tutorial").build()))
    assert '"copy_in", {alloc_a, set_vector_node}' in text
    assert re.search(r'"kernelC", \{kernelA_node,\s+kernelB_node\}', text)


def test_parameters_become_options() -> None:
    g = hg.Graph("g")
    x = g.device_array("x", shape=64, dtype="float32")
    g.kernel(module()["scale"], 1, 64, (x, g.param("a", "float32", 2.5), 64))
    text = text_of(g)
    assert "static float a = 2.5f;" in text
    assert 'value_option("--a", a)' in text
    assert "--a VALUE  float32 (default: 2.5)" in text


def test_parameter_named_like_an_option_of_the_program_gets_another() -> None:
    g = hg.Graph("g")
    x = g.device_array("x", shape=64, dtype="float32")
    g.kernel(module()["scale"], 1, 64, (x, g.param("repeat", "float32", 2.5), 64))
    assert re.search(r'value_option\("--param-repeat", \w+\)', text_of(g))


def test_long_repetition_becomes_a_loop() -> None:
    text = text_of(example("04_wave2d").build())
    part = graph_part(text)
    assert len(text.splitlines()) < 700
    loop = re.search(r"for \(long n = (\d+); n < (\d+); \+\+n\) \{\n(.*?)\n  \}", part, re.DOTALL)
    assert loop is not None
    assert int(loop[2]) - int(loop[1]) > 600
    assert 'label("step_%ld", n)' in loop[3]
    assert "u + 65536 * (n % 5)" in loop[3]


def test_many_unlike_nodes_are_parted_into_functions() -> None:
    g = hg.Graph("g")
    x = g.device_array("x", shape=2000, dtype="int32")
    names = ["set " + "".join(letters) for letters in itertools.islice(itertools.product("abcdefgh", repeat=4), 900)]
    for i, name in enumerate(names):
        g.memset(x[i : i + 1], i, name=name, after=names[i - 1 : i] if i else [])
    text = text_of(g)
    assert "static void part_1(hipGraph_t graph)" in text
    assert "static void part_3(hipGraph_t graph)" in text
    assert calls(text) == 900


def test_program_maps_only_the_names_that_it_uses() -> None:
    text = text_of(example("03_overlap_pipeline").build())
    mapped = re.findall(r"^#define (\w+) \w+$", text, re.MULTILINE)
    rest = text.partition("#endif")[2]
    assert mapped
    assert [name for name in mapped if not re.search(rf"\b{name}\b", rest)] == []
    used = set(re.findall(r"\bhip[A-Z]\w*", re.sub(r"//[^\n]*", "", graph_part(text))))
    assert used <= set(mapped)


def launch_of(name: str, **options: Any) -> list[str]:
    """Return the statements of one launch of a row's program, without indents."""
    text = text_of(MAKERS[name]().graph, **options)
    body = text.partition("static void launch_all(hipStream_t stream) {\n")[2].partition("\n}\n")[0]
    return [line.strip() for line in body.splitlines()]


@pytest.mark.parametrize("target", ["amd:gfx942", "nvidia:sm_90"])
def test_loop_that_the_host_decides_runs_its_body_check_every_times(target: str) -> None:
    assert launch_of("conditional_while_check_every", target=target) == [
        'CHECK(hipGraphLaunch(segment_1, stream), "");',
        'while (word_of(c, stream, "loop")) {',
        "for (int n = 0; n < 3; ++n) {",
        'CHECK(hipGraphLaunch(loop_0, stream), "");',
        "}",
        "}",
        'CHECK(hipGraphLaunch(segment_2, stream), "");',
    ]


def test_eager_function_waits_for_the_stream_where_it_is_given_host_memory() -> None:
    on_device, on_host = launch_of("eager"), launch_of("eager_host")
    assert "issue(stream, y, x);" in on_device
    assert not any("hipStreamSynchronize" in line for line in on_device)
    at = on_host.index("shift(stream, page, k);")
    assert on_host[at - 1] == 'CHECK(hipStreamSynchronize(stream), "child/shift");'


@pytest.mark.parametrize("inside", [False, True])
def test_eager_function_waits_for_the_stream_where_an_option_may_give_it_host_memory(inside: bool) -> None:
    g = hg.Graph("g")
    x = g.device_array("x", shape=4, dtype="int32")
    p = g.param("p", "int32", x, shape=4)
    g.memset(p, 1)
    if inside:
        child = hg.Graph("child")
        child.eager(print, (child.device_array("a", shape=4, dtype="int32"),), name="look")
        g.child(child, {"a": p}, name="child")
    else:
        g.eager(print, (p,), name="look")
    assert f'CHECK(hipStreamSynchronize(stream), "{"child/" * inside}look");' in text_of(g)


# -- names and text that stay what they are ----------------------------------------------------------------------------------

WICKED = 'a"); system("x"); %s%n ??\' \\'


def wicked() -> hg.Graph:
    kernels = hg.Module(
        'extern "C" __global__ void y0(int* y1, int k) { y1[threadIdx.x] += k; }', name='m"??> \\', options=["-DINT= int\n#error"]
    )
    g = hg.Graph(WICKED)
    x = g.device_array(WICKED, shape=8, dtype="int32")
    other = g.device_array("y0", np.arange(8, dtype="int32"))
    class_ = g.host_array("class", shape=8, dtype="int32")
    k = g.param("ük", "int32", 3)
    g.kernel(kernels["y0"], 1, 8, (x, k), name=WICKED)
    g.kernel(kernels["y0"], 1, 8, (other, k), name="y0")
    g.memcpy(class_, x, name="main")
    g.host(report, args=(class_, WICKED + "\n\0\x85"), reads=[class_], name="return")
    return g


@pytest.mark.usefixtures("_with_precompiled_headers")
def test_options_of_modules_hold_for_their_own_source_only(tmp_path: Path) -> None:
    source = 'extern "C" __global__ void k(int* x) { x[threadIdx.x] = TIMES(WORD); }'
    first = hg.Module(source, name="first", options=["-DWORD=3", "-DTIMES(x)=((x) * 2)", "-O3"])
    second = hg.Module(source.replace("TIMES", "5 * "), name="second", options=["-DWORD=7", "-I/some where;x"])
    g = hg.Graph("g")
    x, y = g.device_array("x", shape=4, dtype="int32"), g.device_array("y", shape=4, dtype="int32")
    g.kernel(first["k"], 1, 4, (x,), name="one")
    g.kernel(second["k"], 1, 4, (y,), name="two")
    path = tmp_path / "program.hip"
    g.export(path)
    assert "hipcc -std=c++17 -O2 -O3 '-I/some where;x' program.hip" in path.read_text()
    build_program(path, tmp_path / "program", ["-O0"])
    subprocess.run([tmp_path / "program", "--out-dir", tmp_path, "--quiet"], check=True)
    assert np.load(tmp_path / "x.npy").tolist() == [6] * 4
    assert np.load(tmp_path / "y.npy").tolist() == [35] * 4


@pytest.mark.parametrize("backend", ["explicit", pytest.param("capture", marks=pytest.mark.slow)])
def test_names_cannot_become_code(tmp_path: Path, backend: str) -> None:
    path = tmp_path / "program.hip"
    wicked().export(path, backend=backend)
    for line in path.read_text().splitlines():
        if line.lstrip().startswith("//"):
            assert not line.endswith("\\")
            assert "??/" not in line
    build_program(path, tmp_path / "program", ["-trigraphs", "-O0"])
    subprocess.run([tmp_path / "program", "--ük", "4", "--out-dir", tmp_path, "--quiet"], check=True, capture_output=True)
    assert np.load(tmp_path / f"{WICKED}.npy").tolist() == [4] * 8
    assert np.load(tmp_path / "y0.npy").tolist() == list(range(4, 12))


@pytest.mark.usefixtures("_with_precompiled_headers")
@pytest.mark.parametrize("backend", ["explicit", pytest.param("capture", marks=pytest.mark.slow)])
def test_names_of_headers_stay_theirs(tmp_path: Path, backend: str) -> None:
    g = hg.Graph("g")
    names = ("hipMalloc", "hipGraph_t", "hipGraphNode_t", "hipStream_t", "hipMemcpyAsync", "int64_t", "y0", "cudaFree")
    for n, name in enumerate(names):
        x = g.device_array(name, shape=4, dtype="int64")
        g.kernel(module()["fill<long long>"], 1, 4, (x, n), name=name)
    path = tmp_path / "program.hip"
    g.export(path, backend=backend)
    build_program(path, tmp_path / "program", ["-O0"])
    subprocess.run([tmp_path / "program", "--out-dir", tmp_path, "--quiet"], check=True)
    assert [np.load(tmp_path / f"{name}.npy")[0] for name in names] == list(range(len(names)))


@pytest.mark.usefixtures("_with_precompiled_headers")
@pytest.mark.parametrize("modules", [1, 2])
def test_overloads_and_kernels_of_headers_are_called_by_their_names(tmp_path: Path, modules: int) -> None:
    (tmp_path / "mine.h").write_text(
        "#define STEP 3\nstruct V { int x; };\n__global__ void twice(int* x) { x[threadIdx.x] *= 2; }\n"
    )
    source = (
        '#include "mine.h"\nnamespace a { __global__ void add(int* x) { x[threadIdx.x] += STEP; }\n'
        "__global__ void add(V* x, int n) { x[threadIdx.x].x += n; } }\n"
    )
    module = hg.Module(source, options=[f"-I{tmp_path}"], structs={"V": np.dtype([("x", "i4")])})
    g = hg.Graph("g")
    x = g.device_array("x", shape=4, dtype="int32")
    v = g.device_array("STEP", shape=4, dtype=module.structs["V"])
    g.kernel(module["a::add(int*)"], 1, 4, (x,), name="add")
    g.kernel(module["twice"], 1, 4, (x,), name="twice")
    g.kernel(module["a::add(V*, int)"], 1, 4, (v, 5), name="V")
    if modules > 1:
        other = hg.Module("__global__ void twice(int* x) { x[0] = 40; }", name="other")
        g.kernel(other["twice"], 1, 1, (x,), name="other")
    path = tmp_path / "program.hip"
    g.export(path)
    declared = set(re.findall(r"^ *(?:const )?\w+[*&]? (\w+) = ", path.read_text(), re.MULTILINE))
    assert declared
    assert declared.isdisjoint({"add", "twice", "V", "STEP"})  # these names are the header's
    build_program(path, tmp_path / "program", ["-O0", f"-I{tmp_path}"])
    subprocess.run([tmp_path / "program", "--out-dir", tmp_path, "--quiet"], check=True)
    assert np.load(tmp_path / "x.npy").tolist() == [40 if modules > 1 else 6, 6, 6, 6]
    if NVCC is not None:
        compiled(
            [NVCC, "-std=c++17", "-O0", "-arch=sm_90", "-c", "-x", "cu", f"-I{tmp_path}", str(path), "-o", str(tmp_path / "p.o")]
        )


@pytest.mark.usefixtures("_with_precompiled_headers")
def test_arrays_whose_files_would_have_one_name_get_two(tmp_path: Path) -> None:
    child, g = hg.Graph("child"), hg.Graph("g")
    child.memset(child.device_array("x", shape=2, dtype="int32"), 1)
    g.memset(g.device_array("child.x", shape=2, dtype="int32"), 2)
    g.child(child, name="child")
    path = tmp_path / "program.hip"
    g.export(path)
    build_program(path, tmp_path / "program", ["-O0"])
    subprocess.run([tmp_path / "program", "--out-dir", tmp_path, "--quiet"], check=True)
    assert np.load(tmp_path / "child.x.npy").tolist() == [2, 2]
    assert np.load(tmp_path / "child.x_.npy").tolist() == [1, 1]


def test_commands_in_the_program_name_its_file(tmp_path: Path) -> None:
    path = tmp_path / "my first 'ü.hip"
    example("01_hip_graph_tutorial").build().export(path)
    commands = [line for line in path.read_text().splitlines() if " -o " in line]
    assert [shlex.split(line.partition("  ")[2])[-3] for line in commands] == [path.name] * 3


def test_files_of_arrays_with_long_names_have_names_that_fit_a_file_system(tmp_path: Path) -> None:
    child, g = hg.Graph("child"), hg.Graph("g")
    for letter in "xyz":
        child.memset(child.device_array("name" * 49 + letter, np.random.default_rng(3).standard_normal(500)), 0.0, name=letter)
    g.child(child, name="c" * 200)
    g.export(tmp_path / "program.hip")
    assert len([file for file in tmp_path.glob("program.*.npy") if len(file.name) < 150]) == 3


@given(st.text())
def test_comment_is_never_left(text: str) -> None:
    for line in hip_text.comment(text):
        assert line.startswith("//")
        assert line.isprintable()
        assert not line.endswith(("\\", "??/"))


@given(st.text())
def test_quoted_text_is_one_literal(text: str) -> None:
    literal = hip_text.quoted(text)
    assert re.fullmatch(r'"(?:[^"\\\n?]|\\.)*"', literal)
    assert literal.isprintable()


def test_python_source_that_ends_in_a_backslash_stays_a_comment() -> None:
    def sly() -> None:  # \
        """*/ ??/"""

    g = hg.Graph("g")
    g.host(sly, name="sly")
    shown = [line for line in text_of(g).splitlines() if "def sly" in line or "*" in line]
    assert all(line.startswith("//") and not line.endswith("\\") for line in shown if "sly" in line)


# -- values ----------------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 50), min_size=2, max_size=40), st.integers(0, 9))
def test_term_takes_the_values_that_it_stands_for(values: list[int], first: int) -> None:
    term = hip_text._term(values, first)
    if term is not None:
        assert [eval(term, {"n": first + k}) for k in range(len(values))] == values


class Long(int):
    """A ``long`` of C++, in which no sum and no product may overflow."""

    def __add__(self, other: int) -> Long:
        return self._checked(int(self) + other)

    def __sub__(self, other: int) -> Long:
        return self._checked(int(self) - other)

    def __mul__(self, other: int) -> Long:
        return self._checked(int(self) * other)

    __radd__, __rmul__ = __add__, __mul__

    def __rsub__(self, other: int) -> Long:
        return self._checked(other - int(self))

    def __mod__(self, other: int) -> Long:
        return self._checked(int(self) % other)

    @classmethod
    def _checked(cls, value: int) -> Long:
        assert -(2**63) <= value < 2**63
        return cls(value)


@given(st.integers(-(2**63), 2**64 - 1), st.integers(-(2**64), 2**64), st.integers(0, 3), st.integers(0, 2**31))
def test_term_never_overflows_a_long(start: int, step: int, period: int, first: int) -> None:
    values = [start + step * (k % period if period else k) for k in range(8)]
    term = hip_text._term(values, first)
    if term is not None:
        assert all(-(2**63) <= int(number) < 2**63 for number in re.findall(r"\d+", term))
        assert [eval(term, {"n": Long(first + k)}) for k in range(8)] == values


@pytest.mark.parametrize(
    ("values", "table"),
    [
        ([0.0, -0.0, 0.0, -0.0], "static const double v[] = {     0.0, -0.0};"),
        ([0.0, 0.0, -0.0, 0.0], "static const double v[] = {     0.0, 0.0, -0.0, 0.0};"),
        (
            [1.0, -NAN, 1.0, -NAN],
            "static const double v[] = {     1.0, from_bits<double>(0xfff8000000000000)};",
        ),
        ([NAN, 1.0, NAN, 1.0], "static const double v[] = {     NAN, 1.0};"),
    ],
)
def test_table_of_a_loop_holds_each_value_to_the_bit(values: list[float], table: str) -> None:
    rows = [[hip_text.Statement([hip_text.Hole("value", value, "double", "v")], f"node_{k}")] for k, value in enumerate(values)]
    loop = hip_text.Loop(rows, hip_text.Names(()))
    assert "v[" in "".join(loop.text())
    assert " ".join(loop.tables) == table


@pytest.mark.parametrize("form", ["step_%d", "step_%02d", "world_%02d", "100%% %d_%03d ld %%ld"])
def test_nodes_whose_numbers_have_leading_zeros_become_one_loop(form: str) -> None:
    g = hg.Graph("g")
    x = g.device_array("x", shape=4, dtype="int64")
    for k in range(30):
        g.kernel(module()["fill<long long>"], 1, 4, (x, k), name=form % ((k,) if form.count("d") < 3 else (k, 2 * k)))
    text = text_of(g)
    assert calls(text) == 30
    assert "for (long n = 1; n < 29; ++n) {" in text  # the first waits for none, and nothing waits for the last


@given(st.integers(1, 9), st.integers(0, 99), st.integers(2, 9), st.integers(0, 8), st.integers(0, 20))
def test_cycle_is_found_wherever_it_begins(step: int, low: int, period: int, shift: int, first: int) -> None:
    values = [low + step * ((k + shift) % period) for k in range(3 * period)]
    term = hip_text._term(values, first)
    assert term is not None
    assert [eval(term, {"n": first + k}) for k in range(len(values))] == values


@given(st.floats(width=32, allow_nan=False))
def test_float_literal_is_exact(value: float) -> None:
    literal = hip_text._floating(value, "float")
    plain = literal.replace("float(INFINITY)", "inf").rstrip("f" if "INF" not in literal else "")
    assert np.float32(plain).tobytes() == np.float32(value).tobytes()


def test_initial_values_stand_in_the_program_where_they_are_short_and_in_a_file_where_not(tmp_path: Path) -> None:
    g = hg.Graph("g")
    g.device_array("constant", np.full(5000, 343.0, "f4"))
    g.device_array("steps", np.arange(1, 4097, dtype="f4"))
    g.device_array("wheel", np.arange(6400, dtype="f4") % 64)
    g.device_array("few", np.array([3, 1, 4, 1, 5]))
    g.device_array("zeros", np.zeros(100))
    g.device_array("many", np.random.default_rng(1).standard_normal(3000))
    path = tmp_path / "wave.hip"
    g.export(path)
    text = path.read_text()
    assert "set(constant, 5000, [](size_t) { return 343.0f; });" in text
    assert "set(steps, 4096, [](size_t i) { return float(1.0f + float(i)); });" in text
    assert "set(wheel, 6400, [](size_t i) { return float(float(i % 64)); });" in text
    assert re.search(r"set_list\(few, 5, \{int64_t\(3\), int64_t\(1\)", text)
    assert sorted(os.listdir(tmp_path)) == ["wave.hip", "wave.many.npy"]
    assert np.load(tmp_path / "wave.many.npy").tobytes() == g.arrays["many"].initial.tobytes()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("values", "dtype"),
    [([-(2**31), 2**31 - 1, -2], "i4"), ([-(2**63), 0, 2**63 - 1], "i8"), ([2**64 - 1, 0, 1], "u8"), ([np.inf, np.inf, 0], "f4"),
     ([2**31 - 2, 2**31 - 1, -(2**31)], "i4"), ([-(2**31), -1, 2**31 - 2], "i4"), ([9, 6, 3], "i4"), ([9, 6, 3], "u4")],
)  # fmt: skip
def test_steps_between_values_do_not_overflow(values: list[Any], dtype: str) -> None:
    g = hg.Graph("g")
    g.device_array("x", np.array(values, dtype))
    assert ("set(x, 3" in text_of(g)) == (values == [9, 6, 3] and dtype == "i4")


@pytest.mark.usefixtures("_with_precompiled_headers")
def test_fields_that_no_npy_file_can_describe_are_kept_as_bytes(tmp_path: Path) -> None:
    union = np.dtype({"names": ["a", "b"], "formats": ["i4", "f4"], "offsets": [0, 0], "itemsize": 8})
    random = np.random.default_rng(3).integers(256, size=(100, 8), dtype="u1")
    random[:, 4:] = 0  # padding, which is zero in every array
    values = random.reshape(-1).view(union)
    g = hg.Graph("g")
    g.device_array("x", values)
    y = g.device_array("y", shape=100, dtype=np.dtype([("u", union)]))
    g.memset(y, np.zeros((), y.dtype)[()])
    path = tmp_path / "program.hip"
    g.export(path)
    build_program(path, tmp_path / "program", ["-O0"])
    subprocess.run([tmp_path / "program", "--out-dir", tmp_path, "--data-dir", tmp_path, "--quiet"], check=True)
    assert np.load(tmp_path / "x.npy").tobytes() == values.tobytes()
    assert np.load(tmp_path / "y.npy").tobytes() == bytes(y.nbytes)


def test_values_that_a_file_only_names_are_read_from_a_file_by_the_program() -> None:
    g = hg.Graph("g")
    g.device_array("big", np.random.default_rng(1).standard_normal(5000))
    again = hg.Graph.from_json(g.to_json())
    assert '"g.big.npy"' in text_of(again)


# -- refusals --------------------------------------------------------------------------------------------------------------


def refused(g: hg.Graph, **options: Any) -> DeclarationError:
    with pytest.raises(DeclarationError) as caught:
        text_of(g, **options)
    return caught.value


def test_signal_semaphore_is_refused_by_node() -> None:
    g = hg.Graph("g")
    g.signal_semaphore("s", 1, name="raise")
    error = refused(g)
    assert error.node == "raise"
    assert "order the programs on the host" in str(error)


@pytest.mark.parametrize("backend", ["explicit", "capture"])
@pytest.mark.parametrize("target", ["amd:gfx942", "nvidia:sm_90"])
def test_conditional_that_the_device_decides_is_refused_by_node(backend: str, target: str) -> None:
    g = hg.Graph("g")
    c = g.device_array("c", shape=1, dtype="int32")
    body = hg.Graph("body")
    body.empty(name="nothing")
    g.conditional("if", c, [body], decide="device", name="maybe")
    error = refused(g, backend=backend, target=target)
    assert error.node == "maybe"
    assert "leave decide='device' out" in str(error)


@pytest.mark.parametrize("backend", ["explicit", "capture"])
def test_node_of_a_body_is_refused_by_name(backend: str) -> None:
    g, body = hg.Graph("g"), hg.Graph("body")
    body.signal_semaphore("s", 1, name="raise")
    g.conditional("if", g.device_array("c", shape=1, dtype="int32"), [body], name="maybe")
    assert refused(g, backend=backend).node == "maybe/0/raise"


def test_dynamic_shared_memory_of_no_bytes_is_refused_by_node() -> None:
    source = "__global__ void k(int* x) { extern __shared__ int s[]; s[threadIdx.x] = 1; x[threadIdx.x] = s[threadIdx.x]; }"
    g = hg.Graph("g")
    g.kernel(hg.Module(source)["k"], 1, 4, (g.device_array("x", shape=4, dtype="i4"),), name="sharing")
    for backend in ("explicit", "capture"):
        error = refused(g, backend=backend)
        assert error.node == "sharing"
        assert "dynamic shared memory" in str(error)


def test_code_object_is_refused_by_node(tmp_path: Path) -> None:
    (tmp_path / "k.hsaco").write_bytes(b"code")
    kernel = hg.Module.from_file(tmp_path / "k.hsaco", signatures={"k": "float*"})["k"]
    g = hg.Graph("g")
    g.kernel(kernel, 1, 1, (g.device_array("x", shape=4, dtype="float32"),), name="foreign")
    error = refused(g)
    assert error.node == "foreign"
    assert "from its source" in str(error)


def test_external_device_memory_is_refused_by_name() -> None:
    class OnDevice:
        __cuda_array_interface__ = {"shape": (4,), "typestr": "<f4", "data": (4096, False), "version": 3}  # noqa: RUF012

    g = hg.Graph("g")
    g.external_array("outside", OnDevice())
    error = refused(g)
    assert error.array == "outside"
    assert "device_array" in str(error)


def test_graph_of_several_devices_is_refused_by_what_is_on_another() -> None:
    g = hg.Graph("g")
    g.memset(g.device_array("here", shape=4, dtype="int32"), 1)
    g.device_array("there", shape=4, dtype="int32", device=1)
    assert "array 'there' is on device 1" in str(refused(g))


def test_external_arrays_that_half_overlap_are_refused() -> None:
    memory = np.zeros(12, "f4")
    g = hg.Graph("g")
    g.external_array("first", memory[:8])
    g.external_array("second", memory[4:])
    assert refused(g).array == "second"


def test_pageable_memory_that_nodes_copy_and_write_is_page_locked_in_the_program() -> None:
    g = hg.Graph("pageable")
    w, left, out = (g.host_array(name, np.zeros(4, "i4"), pinned=False) for name in ("w", "left", "out"))
    inner = hg.Graph("inner")
    inner.host(lambda v: None, args=(inner.host_array("v", shape=4, dtype="i4", pinned=False),), name="write")
    d = g.device_array("d", shape=4, dtype="i4")
    g.child(inner, bind={"v": w})
    for source in (w, left):
        g.memcpy(d, source)
    g.memcpy(out, d)
    places = dict(re.findall(r'^    \{"(\w+)", .*?, (PINNED|PAGEABLE),', text_of(g), re.MULTILINE))
    assert places == {"w": "PINNED", "left": "PAGEABLE", "out": "PAGEABLE"}


def test_unknown_backend_is_refused() -> None:
    assert "'explicit' or 'capture'" in str(refused(hg.Graph("g"), backend="streams"))


def test_refused_export_writes_nothing(tmp_path: Path) -> None:
    g = hg.Graph("g")
    g.device_array("many", np.random.default_rng(1).standard_normal(3000))
    g.signal_semaphore("s", 1)
    with pytest.raises(DeclarationError):
        g.export(tmp_path / "g.hip")
    assert os.listdir(tmp_path) == []


# -- functions of the user ---------------------------------------------------------------------------------------------------


def test_host_function_is_marked_and_holds_its_python_source() -> None:
    text = text_of(example("01_hip_graph_tutorial").build())
    part = text.partition("// ---- Functions for you to write")[2].partition("// ---- The graph")[0]
    assert "//         vector[:] = value" in part
    assert "static void set_vector(double* vector, double value) {" in part
    assert 'NOT_WRITTEN("set_vector");' in part


def test_callback_that_a_file_only_names_is_not_imported() -> None:
    g = hg.Graph("g")
    g.add(hg.HostNode(name="call", fn=UnboundCallback("no_such_module:gone")))
    assert "no_such_module:gone" in text_of(g)


def test_command_line_writes_and_builds_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = hip_programs.EXAMPLES / "03_overlap_pipeline.py"
    assert main(["show", str(path), "-o", "pipeline.hip", "--backend", "capture"]) == 0
    assert "hipStreamBeginCapture" in Path("pipeline.hip").read_text()
    assert main(["build", "pipeline.hip"]) == 0
    done = subprocess.run(["./pipeline", "--out", "h_out=out.npy", "--repeat", "2"], check=True, capture_output=True, text=True)
    assert done.stdout.startswith("2 launches, us: submit ")
    assert np.array_equal(np.load("out.npy"), np.sqrt(np.arange(1, 4097, dtype="f4")))
    assert main(["build", "missing.hip"]) == 2


@pytest.mark.usefixtures("_with_precompiled_headers")
def test_program_says_what_is_wrong_with_its_options(tmp_path: Path) -> None:
    path = export(MAKERS["large_values"](), tmp_path, "explicit")
    build_program(path, tmp_path / "program", ["-O0"])

    def said(*options: str) -> str:
        done = subprocess.run([tmp_path / "program", *options], capture_output=True, text=True, check=False, cwd=tmp_path)
        assert done.returncode == 2
        return done.stderr

    np.save(tmp_path / "shape.npy", np.zeros((20, 50), "f4"))
    np.save(tmp_path / "dtype.npy", np.zeros((50, 20)))
    np.save(tmp_path / "fortran.npy", np.asfortranarray(np.zeros((50, 20), "f4")))
    whole = (tmp_path / "program.h.npy").read_bytes()
    (tmp_path / "short.npy").write_bytes(whole[:-1])
    assert "there is no option --nothing" in said("--nothing", "1")
    assert "option --nothing is not there, or needs a value" in said("--nothing")
    assert "there is no array 'x'" in said("--in", "x=shape.npy")
    assert "array 'h' has dtype '<f4' and shape (50,20); the file says {'descr':'<f4'" in said("--in", "h=shape.npy")
    assert "the file says {'descr':'<f8'" in said("--in", "h=dtype.npy")
    assert "Fortran order" in said("--in", "h=fortran.npy")
    assert "ends too early" in said("--in", "h=short.npy")
    assert "missing.npy" in said("--in", "h=missing.npy")
    assert "cannot be written" in said("--out", "h=/nowhere/out.npy")
    assert "takes a number" in said("--repeat", "1x")
    helped = subprocess.run([tmp_path / "program", "--help"], capture_output=True, text=True, check=True).stdout
    assert "  h: float32[50, 20]" in helped


@pytest.mark.usefixtures("_with_precompiled_headers")
def test_options_take_every_name_and_every_value(tmp_path: Path) -> None:
    g = hg.Graph("g")
    x = g.device_array("a=b", np.arange(4.0))
    g.memset(g.device_array("a", shape=4, dtype="f8")[:2], 0.0)
    g.kernel(module()["fill<double>"], 1, 2, (x[2:], g.param("small", "f8", 1.0)), name="fill")
    g.kernel(
        module()["fill<bool>"], 1, 1, (g.device_array("flags", shape=1, dtype="?"), g.param("flag", "?", False)), name="flag"
    )
    whole = g.device_array("whole", shape=3, dtype="i4")
    for k, name in enumerate(("n", "hex")):
        g.memset(whole[k : k + 1], g.param(name, "i4", 0), name=f"set_{name}")
    child = hg.Graph("child")
    child.memset(child.device_array("x", shape=1, dtype="i4"), child.param("p", "i4", 0))
    g.child(child, bind={"x": whole[2:]}, name="n=1")
    nans = g.device_array("nans", shape=4, dtype="f4")
    g.memset(nans[:2], -NAN, name="set_nan")
    g.kernel(module()["fill<float>"], 1, 2, (nans[2:], g.param("nan", "f4", -NAN)), name="fill_nan")
    g.kernel(module()["fill<float>"], 1, 1, (nans[3:], -NAN), name="last_nan")
    path = tmp_path / "program.hip"
    g.export(path)
    build_program(path, tmp_path / "program", ["-O0"])
    np.save(tmp_path / "b=c.npy", np.arange(4.0) + 5)
    options = ["--in", "a=b=b=c.npy", "--out", "a=b=x.npy", "--out-dir", str(tmp_path), "--small", "3e-310", "--flag=True"]
    options += ["--n=-010", "--hex=-0x1F", "--n=1/p", "011"]
    subprocess.run([tmp_path / "program", *options, "--quiet"], check=True, cwd=tmp_path)
    assert np.load(tmp_path / "x.npy").tolist() == [5.0, 6.0, 3e-310, 3e-310]
    assert np.load(tmp_path / "flags.npy").tolist() == [True]
    assert np.load(tmp_path / "whole.npy").tolist() == [-10, -31, 11]
    assert np.load(tmp_path / "nans.npy").view("u4").tolist() == [0xFFC00000] * 4


# -- fields ----------------------------------------------------------------------------------------------------------------


def field_of(kind: str, name: str, other: bool) -> hg.Graph:
    """Return a graph with a node 'it' of a kind, whose field has one value or another; beside it stands what the field needs."""
    g, m = hg.Graph("g"), module()
    x, y = g.device_array("x", shape=16, dtype="f4"), g.device_array("y", shape=16, dtype="f4")
    words = g.device_array("words", shape=4, dtype="u4")
    g.memset(g.device_array("apart", shape=4, dtype="f4"), 0, name="first")
    given: dict[str, Any] = {"name": "it"}
    if name in ("name", "after"):
        given[name] = ("other" if name == "name" else ["first"]) if other else given.get(name, [])
    if name == "device" and other:
        given["device"] = 1

    def pick(field: str, one: Any, two: Any) -> Any:
        return two if other and name == field else one

    match kind:
        case "kernel":
            for field, two in (("shared_bytes", 64), ("cooperative", True), ("priority", -1), ("cluster", 2)):
                if name == field and other:
                    given[field] = two
            kernel = m[pick("kernel", "fill<float>", "fill<int>")]
            target = x if kernel.name == "fill<float>" else g.device_array("ints", shape=16, dtype="i4")
            g.kernel(kernel, pick("grid", 2, 4), pick("block", 8, 4), (target, pick("args", 1, 2)), **given)
        case "memcpy":
            g.memcpy(pick("dst", x[:8], x[8:]), pick("src", y[:8], y[8:]), **given)
        case "memset":
            g.memset(pick("dst", y[:8], y[8:]), pick("value", 0, 1), **given)
        case "alloc":
            g.alloc("tmp", shape=pick("array", 4, 8), dtype="f4", **given)
        case "free":
            tmp, more = g.alloc("tmp", shape=4, dtype="f4"), g.alloc("more", shape=4, dtype="f4")
            g.free(pick("array", tmp, more), **given)
        case "host":
            access: dict[str, Any] = {"writes" if pick("access", False, True) else "reads": [x]}
            g.memset(x, 0, name="fill")
            g.host(pick("fn", report, print), args=(pick("args", 1, 2),), **access, **given)
            g.kernel(m["fill<float>"], 1, 8, (y, 1.0), name="reader", after=[])
            g.memcpy(y, x, name="last")
        case "captured":
            g.memset(x, 0, name="fill")
            g.captured(pick("fn", report, print), args=(pick("access", hg.reads, hg.writes)(pick("args", x, y)),), **given)
            g.memcpy(y, x, name="last")
        case "record":
            g.record(hg.Event(pick("event", "e", "f")), **given)
            if name == "after":
                g.wait("e")
        case "wait":
            g.record("e", name="e1")
            g.record("f", name="f1")
            g.wait(pick("event", "e", "f"), **given)
        case "empty":
            g.empty(**given)
        case "child":
            inner = hg.Graph("inner")
            z = inner.device_array("z", shape=16, dtype="f4")
            inner.memset(z, pick("workflow", 0, 1), name="fill")
            g.child(inner, bind={"z": pick("bind", x, y)}, **given)
        case "collective":
            root = 1 if name == "root" and other else 0
            if name in ("targets", "sources"):
                sources, targets = [x[0:4], x[4:8]], [y[0:4], y[4:8]]
                given |= {"targets": targets[:: -1 if name == "targets" and other else 1]}
                given |= {"sources": sources[:: -1 if name == "sources" and other else 1], "does": "all_to_all"}
            else:
                arrays = [x[0:4], x[4:8], x[8:12]] if name in ("workflow", "bind") and other else [x[0:4], x[4:8]]
                does = "broadcast" if name == "root" else pick("does", "all_reduce", "reduce")
                given |= {"does": does, "op": pick("op", "sum", "max"), "root": root}
                given["sources"] = [arrays[root]] if does == "broadcast" else arrays
                given["targets"] = [arrays[0]] if does == "reduce" else arrays
            g.add(hg.CollectiveNode(**given))
        case "eager":
            g.eager(pick("fn", report, print), (pick("args", x, y),), reads=pick("access", None, [x]), **given)
            g.memset(words, 0, name="beside", after=[])
        case "memory_ops":
            op = hg.wait_value(words[1:2], 1, "geq") if pick("ops", False, True) else hg.wait_value(words[1:2], 1, "eq")
            g.memory_ops([hg.write_value(words[0:1], 1), op], **given)
        case "signal" | "wait_semaphore":
            put = g.signal_semaphore if kind == "signal" else g.wait_semaphore
            put(pick("semaphore", "s", "t"), pick("value", 1, 2), **given)
        case _:
            body = hg.Graph("body")
            body.memset(body.device_array("z", shape=16, dtype="f4"), pick("bodies", 0, 1))
            g.conditional(
                "while" if name == "check_every" else pick("mode", "if", "while"),
                pick("condition", words[0:1], words[1:2]), body, bind={"z": pick("bind", x, y)},
                decide=pick("decide", "auto", "device"), check_every=pick("check_every", 1, 2), **given,
            )  # fmt: skip
            g.memset(g.device_array("apart 2", shape=4, dtype="f4"), 0, name="beside", after=[])
    return g


OF_PYTHON = ("ignore", "source", "exact")  # `exact` is about ranks, and a program is one process
"""Fields that mean nothing to a program: what `check` leaves out, and where a node was declared."""


@pytest.mark.parametrize("backend", ["explicit", "capture"])
@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, model in OWN_KINDS.items() for name in model.model_fields if name not in OF_PYTHON]
)
def test_every_field_of_a_node_is_in_the_program_or_refused_by_name(kind: str, name: str, backend: str) -> None:
    def said(other: bool) -> str:
        try:
            return text_of(field_of(kind, name, other), backend=backend).partition("\nnamespace program {")[2]
        except DeclarationError as error:
            return f"refused: {error}"

    before, after = said(False), said(True)
    if after.startswith("refused: "):
        assert "'it'" in after or "'other'" in after
    else:
        assert after != before


@pytest.mark.usefixtures("_with_precompiled_headers")
@pytest.mark.parametrize("options", [[], ["-D__HIP_PLATFORM_AMD__"]])
def test_a_cooperative_kernel_is_captured_where_its_attribute_is_ignored(tmp_path: Path, options: list[str]) -> None:
    written = hip_programs.cooperative()
    path = export(written, tmp_path, "explicit")
    assert 'add_captured(graph, "together", {},' in path.read_text()
    build_program(path, tmp_path / "program", ["-Wall", "-Wextra", "-Werror", "-O0", *options])
    hip_programs.run(written, tmp_path / "program", hip_programs.outputs(written, "cpu", "explicit"))


def test_priority_of_a_cooperative_kernel_is_left_out_where_it_is_captured() -> None:
    g = hg.Graph("g")
    g.kernel(module()["fill<float>"], 1, 8, (g.device_array("x", shape=8, dtype="f4"), 1.0), cooperative=True, priority=-1)
    assert "with_priority(with_cooperative(add_kernel(" in text_of(g, target="nvidia:sm_90")
    captured = text_of(g, target="amd:gfx942")
    assert "with_priority" not in captured
    assert "with_cooperative" not in captured


def test_a_cluster_is_set_on_cuda() -> None:
    text = text_of(field_of("kernel", "cluster", True))
    assert re.search(r"with_cluster\(add_kernel\(.*\), dim3\(2\), \"it\"\);", text)
    assert "cudaKernelNodeAttributeClusterDimension" in text


# -- the one lowering ------------------------------------------------------------------------------------------------------


def test_quirks_of_the_target_are_lowered_as_they_run() -> None:
    g, inner = hg.Graph("g"), hg.Graph("inner")
    x, y = g.device_array("x", shape=8, dtype="f4"), g.device_array("y", shape=8, dtype="f4")
    inner.memset(inner.device_array("z", shape=8, dtype="f4"), 0, name="zero")
    g.kernel(module()["fill<float>"], 1, 8, (x, 1.0), priority=-1, name="first")
    g.child(inner, bind={"z": y}, name="child")
    free = graph_part(text_of(g, target="amd:gfx942"))
    assert 'add_child(graph, "child", {}, build_inner(y));' in free
    assert 'with_priority(add_kernel(graph, "first", {}' in free
    bound = graph_part(text_of(g, target="amd:gfx942@7.2"))  # one root, no child graphs, no priorities
    assert 'start = add_empty(graph, "~start", {});' in bound
    assert 'add_memset(graph, "child/zero", {start}, y,' in bound
    assert 'add_kernel(graph, "first", {start}' in bound
    assert "with_priority" not in bound


@pytest.mark.usefixtures("_with_precompiled_headers")
def test_a_copy_inside_page_locked_memory_has_a_position_where_the_target_needs_it(tmp_path: Path) -> None:
    g = hg.Graph("g")
    h = g.host_array("h", np.arange(64, dtype="i4").reshape(8, 8))
    x = g.device_array("x", shape=(4, 4), dtype="i4")
    g.memcpy(x, h[2:6, 3:7])
    path = tmp_path / "program.hip"
    g.export(path, target="amd:gfx942@5.7")
    assert "box({x, 16, 4}, {h, 32, 6, 12, 2, 0}, 16, 4, 1, " in re.sub(r",\s+", ", ", path.read_text())
    build_program(path, tmp_path / "program", ["-O0"])
    subprocess.run([tmp_path / "program", "--out-dir", tmp_path, "--quiet"], check=True)
    assert np.array_equal(np.load(tmp_path / "x.npy"), np.arange(64).reshape(8, 8)[2:6, 3:7])


def test_memory_ops_that_the_target_would_not_order_are_nodes_one_after_the_other() -> None:
    text = graph_part(text_of(field_of("memory_ops", "ops", False)))
    found = re.search(r'(\w+) = add_memory_ops\(graph, "it", \{\}.*\n\s+add_memory_ops\(graph, "it", \{(\w+)\}', text)
    assert found is not None
    assert found[1] == found[2]


def test_a_captured_step_follows_the_plans_edges_and_not_its_lane() -> None:
    g = hg.Graph("g")
    x = g.device_array("x", shape=(5, 8), dtype="f4")
    ends = [g.memset(x[k], k, name=name) for k, name in enumerate(("first", "second"))]
    g.memset(x[2], 2, name="join", after=ends)
    for k, name in enumerate(("here", "there"), 3):
        g.memset(x[k], k, name=name, after=["join"])
    assert [(step.name, step.lane) for step in g.plan(target="amd:gfx942").steps][-1] == ("there", 1)  # behind 'second'
    text = text_of(g, backend="capture")
    assert "follow(stream[0], {first, second});" in text
    assert "follow(stream[1], {join});" in text
    assert "hipStreamSetCaptureDependencies), " in text


@pytest.mark.parametrize("backend", ["explicit", "capture"])
def test_what_a_kind_is_lowered_to_is_written_whatever_the_kind(monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    def lowered(step: Any, scope: Any, device: int) -> Any:
        done = resolve.resolve(step, scope, device)
        return operations.Fill(scope.addresses[x], 1, 7, 12) if isinstance(done, operations.Nothing) else done

    g = hg.Graph("g")
    x = g.device_array("x", shape=3, dtype="i4")
    g.empty(name="other")
    for user in (explicit, program):
        monkeypatch.setattr(user, "resolve", lowered)
    wanted = {
        "explicit": 'add_memset(graph, "other", {}, x, 1, 0x7, 12);',
        "capture": 'hipMemsetAsync(x, 0x7, 12, stream[0]), "other");',
    }
    assert wanted[backend] in graph_part(text_of(g, backend=backend))


def test_a_parameter_in_a_call_that_has_no_place_for_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def lowered(step: Any, scope: Any, device: int) -> Any:
        return operations.Copy1D(scope.addresses[x], scope.addresses[x] + 4, int(scope.value(n)), MemcpyKind.DEFAULT)

    g = hg.Graph("g")
    x, n = g.device_array("x", shape=3, dtype="i4"), g.param("n", "i4", 4)
    g.memset(x, 0, name="it")
    monkeypatch.setattr(explicit, "resolve", lowered)
    error = refused(g)
    assert error.node == "it"
    assert "parameter" in str(error)


def test_children_of_one_form_are_one_function_and_others_are_not() -> None:
    inner, g = hg.Graph("inner"), hg.Graph("g")
    z = inner.host_array("z", shape=8, dtype="f4")
    w = inner.device_array("w", shape=8, dtype="f4")
    inner.memcpy(w, z)
    d, e = g.device_array("d", shape=16, dtype="f4"), g.device_array("e", shape=16, dtype="f4")
    h = g.host_array("h", shape=16, dtype="f4")
    g.child(inner, bind={"w": d[:8], "z": h[8:]}, name="one")
    g.child(inner, bind={"w": e[8:], "z": h[:8]}, name="two")
    text = graph_part(text_of(g))
    assert text.count("static hipGraph_t build_inner") == 1
    assert 'add_child(graph, "one", {}, build_inner(h + 8, d));' in text
    assert 'add_child(graph, "two", {}, build_inner(h, e + 8));' in text


@pytest.mark.usefixtures("_with_precompiled_headers")
@pytest.mark.parametrize("backend", ["explicit", pytest.param("capture", marks=pytest.mark.slow)])
def test_children_without_nodes_are_graphs_without_nodes(tmp_path: Path, backend: str) -> None:
    g = hg.Graph("g")
    for name in ("one", "two"):
        g.child(hg.Graph(name), name=name)
    out = g.host_array("out", np.ones(4, "f4"))
    g.memset(out, 2, after=["one", "two"])
    written = hip_programs.Written(g)
    build_program(export(written, tmp_path, backend), tmp_path / "program", ["-Wall", "-Werror", "-O0"])
    hip_programs.run(written, tmp_path / "program", hip_programs.outputs(written, "cpu", backend))


def test_a_grid_that_a_parameter_gives_may_have_clusters() -> None:
    g = hg.Graph("g")
    x, n = g.device_array("x", shape=64, dtype="f4"), g.param("n", "i4", 4)
    g.kernel(module()["fill<float>"], n, 16, (x, 1.0), cluster=2, name="it")
    assert re.search(
        r'with_cluster\(add_kernel\(.*dim3\(n_parameter\), dim3\(16\).*dim3\(2\), "it"\);', text_of(g).replace("\n      ", " ")
    )


# -- compilers -------------------------------------------------------------------------------------------------------------

# Types of one size and kind are alike for what they test here.
ALIKE = {f"memset_{name}" for name in ("int8", "uint8", "int16", "uint16", "uint32", "float32", "int64", "uint64", "complex64")}
# The others, and these by the other backend, are slow tests.
QUICK = {
    "01_hip_graph_tutorial": "explicit",
    "04_wave2d": "capture",
    "memcpy_3d": "explicit",
    "child_used_twice": "capture",
    "template_arguments": "explicit",
    "complex_numbers": "capture",
    "dtypes": "explicit",
    "conditional_any_body": "capture",
}

SEGMENTED = {name for name in MAKERS if name.startswith(("conditional_", "eager"))}


def by_each_backend(names: Iterable[str]) -> list[Any]:
    """Return the parameters of a test for each name and backend."""
    return [
        pytest.param(name, backend, marks=() if QUICK.get(name) == backend else pytest.mark.slow)
        for name, backend in itertools.product(names, ("explicit", "capture"))
    ]


@pytest.mark.usefixtures("_with_precompiled_headers")
@pytest.mark.parametrize(("name", "backend"), by_each_backend(name for name in ON_CPU if name not in (*ALIKE, *SEGMENTED)))
def test_program_on_the_cpu_leaves_the_bytes_of_the_python_run(tmp_path: Path, name: str, backend: str) -> None:
    path = export(ON_CPU[name](), tmp_path, backend)
    build_program(path, tmp_path / "program", ["-Wall", "-Werror", "-O0"])
    expected = hip_programs.outputs(ON_CPU[name](), "cpu", backend)
    hip_programs.run(ON_CPU[name](), tmp_path / "program", expected)


@pytest.mark.usefixtures("_with_precompiled_headers")
@pytest.mark.parametrize(("name", "backend"), by_each_backend(sorted(SEGMENTED)))
def test_program_of_segments_leaves_the_bytes_of_two_launches(tmp_path: Path, name: str, backend: str) -> None:
    path = export(MAKERS[name](), tmp_path, backend)
    build_program(path, tmp_path / "program", ["-Wall", "-Werror", "-O0"])
    for launch in hip_programs.launches_of_row(name):
        written = replace(MAKERS[name](), launch=launch)
        hip_programs.run(written, tmp_path / "program", hip_programs.outputs(written, "cpu", backend, launches=2), launches=2)


def compiled(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "HIP_PLATFORM": "amd"})
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("more", [[], ["-D__HIP_PLATFORM_AMD__"], ["-DSEGMENTS"]])
def test_the_header_that_programs_share_compiles_without_a_warning(more: list[str], precompiled: tuple[str, ...]) -> None:
    """Every part of it, also those that few programs use."""
    package = Path(hg.__file__).parent
    flags = ["-std=c++17", "-O0", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-DHIP_CPU", '-DHIP_CPU_KERNELS=""', *more]
    include = f"-I{package / 'parts' / 'cpu' / 'include'}"
    compiled(
        [*find_compiler().command, *precompiled, *flags, include, "-x", "c++", str(package / "parts" / "program" / "program.h")]
    )


def test_each_part_of_the_header_lists_what_it_declares() -> None:
    for part in (*hip_parts.PARTS.values(), *hip_parts.SEGMENT_PARTS.values()):
        text = "\n".join(part.lines)
        declared = re.findall(r"^(?:struct|enum|using|#define) (\w+)", text, re.MULTILINE)
        declared += re.findall(r"^(?!template|using)\w[^\n(;]*?[ *&](\w+)(?:\(|;)", text, re.MULTILINE)
        assert set(declared) <= set(part.names)


@pytest.mark.slow
@pytest.mark.skipif(NVCC is None, reason="needs nvcc")
@pytest.mark.parametrize("backend", ["explicit", "capture"])
@pytest.mark.parametrize("name", [*hip_programs.SMALL, "memory_ops", "memset_complex128", "cooperative", "kernel_shared_memory"])
def test_nvcc_compiles_the_program(tmp_path: Path, name: str, backend: str) -> None:
    path = export(MAKERS[name](), tmp_path, backend)
    assert NVCC is not None
    compiled([NVCC, "-std=c++17", "-O0", "-arch=sm_90", "-c", "-x", "cu", str(path), "-o", str(tmp_path / "program.o")])


@pytest.mark.slow
@pytest.mark.skipif(HIPCC is None, reason="needs hipcc")
@pytest.mark.parametrize("backend", ["explicit", "capture"])
@pytest.mark.parametrize("name", hip_programs.SMALL)
def test_hipcc_compiles_the_program(tmp_path: Path, name: str, backend: str) -> None:
    g: Written = hip_programs.of_example(name)
    path = export(g, tmp_path, backend)
    assert HIPCC is not None
    compiled([HIPCC, "--offload-arch=gfx90a", "-std=c++17", "-O0", "-c", str(path), "-o", str(tmp_path / "program.o")])


def test_compiler_of_the_cpu_runtime_is_the_one_that_builds(tmp_path: Path) -> None:
    path = tmp_path / "broken.hip"
    path.write_text("int main() { return nothing; }\n")
    with pytest.raises(DeclarationError, match="nothing") as caught:
        build_program(path, tmp_path / "broken")
    assert f"does not compile with {shlex.join(find_compiler().command)}:" in str(caught.value)
    assert os.listdir(tmp_path) == ["broken.hip"]


@pytest.mark.usefixtures("_with_precompiled_headers")
def test_a_header_that_is_not_found_names_the_option(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "sizes.h").write_text("#define FACTOR 3\n")
    source = '#include "sizes.h"\n__global__ void k(int* x) { x[threadIdx.x] *= FACTOR; }'
    option = f"-I{tmp_path / 'mine'}"
    g = hg.Graph("g")
    g.kernel(hg.Module(source, options=[option])["k"], 1, 4, (g.device_array("x", np.arange(4, dtype="i4")),))
    g.export(tmp_path / "program.hip")
    with pytest.raises(DeclarationError, match=r'#include "sizes.h" is found in none .*add --cxx-option=-I/folder'):
        build_program(tmp_path / "program.hip", tmp_path / "program")
    build_program(tmp_path / "program.hip", tmp_path / "program", [option, "-O0"])
    assert f"--cxx-option={option}" in (tmp_path / "program.hip").read_text()


def test_complex_is_included_where_the_program_uses_it() -> None:
    for dtype, used in (("complex64", True), ("float32", False)):
        g = hg.Graph("g")
        g.memset(g.device_array("x", shape=4, dtype=dtype), 1, name="it")
        text = text_of(g)
        assert ("#include <complex>\n" in text) == ("std::complex" in text) == used


def test_options_that_repeat_stay_in_the_command() -> None:
    g = hg.Graph("g")
    options = ["-Xclang", "-one", "-Xclang", "-two"]
    g.kernel(hg.Module("__global__ void k(int* x) {}", options=options)["k"], 1, 1, (g.device_array("x", shape=1, dtype="i4"),))
    assert "-Xclang -one -Xclang -two g.hip" in text_of(g)


def test_complex_names_are_cudas_own_in_the_program() -> None:
    text = text_of(ON_CPU["complex_numbers"]().graph)
    for line in ("hipCmulf cuCmulf", "hipCrealf cuCrealf", "make_hipDoubleComplex make_cuDoubleComplex"):
        assert f"#define {line}\n" in text
    assert len(re.findall("#define hipFloatComplex ", text)) == 1


def test_where_no_executable_can_be_written_is_said(tmp_path: Path) -> None:
    try:
        find_compiler()
    except hg.RuntimeUnavailable as error:
        pytest.skip(f"runtime 'cpu' lacks its {error.missing}")
    source = tmp_path / "program.hip"
    source.write_text("int main() { return 0; }\n")
    (tmp_path / "folder").mkdir()
    for output in (tmp_path / "folder", tmp_path / "nowhere" / "program"):
        with pytest.raises(DeclarationError, match=rf"'{output}' cannot be written: "):
            build_program(source, output)
    build_program(source, tmp_path / "program")
    assert subprocess.run([tmp_path / "program"], check=False).returncode == 0


def _plain(g: hg.Graph, y: Array) -> None:
    g.memset(y[:2], 0)


def _with_child(g: hg.Graph, y: Array) -> None:
    child = hg.Graph("child")
    child.memset(child.device_array("y", shape=y.shape, dtype=y.dtype), 1)
    g.child(child, {"y": y})


def _with_body(g: hg.Graph, y: Array) -> None:
    body = hg.Graph("body")
    body.memset(body.device_array("y", shape=y.shape, dtype=y.dtype), 1)
    g.conditional("if", g.device_array("condition", shape=1, dtype="int32"), body, {"y": y})


def _with_eager(g: hg.Graph, y: Array) -> None:
    g.eager(report, (y,))


def _refused(g: hg.Graph, y: Array) -> None:
    g.signal_semaphore(hg.Semaphore("s", 1))


@pytest.mark.parametrize("backend", ["explicit", "capture"])
@pytest.mark.parametrize("add", [_plain, _with_child, _with_body, _with_eager, _refused])
def test_export_keeps_no_memory_of_the_user(add: Any, backend: str, tmp_path: Path) -> None:
    class Memory(np.ndarray[Any, Any]):
        pass

    def write() -> weakref.ref[Memory]:
        memory = np.zeros(8, "float32").view(Memory)
        g = hg.Graph("g")
        y = g.device_array("y", shape=8, dtype="float32")
        g.memcpy(y, g.external_array("x", memory))
        add(g, y)
        try:
            g.export(tmp_path / "g.hip", backend=backend)
        except hg.DeclarationError:
            assert add is _refused
        return weakref.ref(memory)

    gc.collect()
    gc.disable()
    try:
        assert write()() is None
    finally:
        gc.enable()
