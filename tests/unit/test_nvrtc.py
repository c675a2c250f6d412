"""What runtime nvidia does with NVRTC, which needs no device, and what both GPU platforms' compilers keep."""

from __future__ import annotations

import ctypes
import sys
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import hip_programs
import pytest

import hipgraphdsl as hg
from hipgraphdsl.nodes.workflow import Workflow
from hipgraphdsl.runtimes.data import CodeObject
from hipgraphdsl.runtimes.hiprtc import HipRtc
from hipgraphdsl.runtimes.nvidia import NvidiaRuntime
from hipgraphdsl.runtimes.nvrtc import Nvrtc
from hipgraphdsl.runtimes.rtc import kept
from hipgraphdsl.source import KernelName


@pytest.mark.parametrize("text", [b"", b"x", b"one\n"])
def test_logs_are_read_into_bytes_of_their_own(text: bytes) -> None:
    said = text + b"\0"

    def size_of(_: Any) -> tuple[int, int]:
        return 0, len(said)

    def read(_: Any, into: bytes) -> tuple[int]:  # as cuda-bindings do it
        address = ctypes.cast(ctypes.c_char_p(into), ctypes.c_void_p).value or 0
        ctypes.memmove(address, said, len(said))
        return (0,)

    binding = SimpleNamespace(nvrtcGetProgramLogSize=size_of, nvrtcGetProgramLog=read)
    for _ in range(2):
        assert Nvrtc(binding, "sm_90")._bytes(None, "nvrtcGetProgramLog") == said
        # Python shares its strings of one byte: none of them may have become another.
        assert [bytes([n])[0] for n in range(256)] == list(range(256))
        assert [chr(n).encode("latin1")[0] for n in range(256)] == list(range(256))


@pytest.mark.parametrize(
    ("name", "expression"),
    [
        ("k", "k"),
        ("a::k<float, 4>", "a::k<float, 4>"),
        ("R<int>::k", "R<int>::k"),
        ("k(int*)", "*(void (*)(int*))&k"),
        ("a::k<float>(const float*, a::V* const*)", "*(void (*)(const float*, a::V*const*))&a::k<float>"),
        ("k()", "*(void (*)())&k"),
    ],
)
def test_kernels_are_registered_by_expressions_that_hold_for_overloads(name: str, expression: str) -> None:
    given: list[bytes] = []
    binding = SimpleNamespace(
        nvrtcAddNameExpression=lambda _, text: given.append(text) or (0,),  # type: ignore[func-returns-value]
        nvrtcGetLoweredName=lambda _, text: (0, b"lowered of " + text),
    )
    compiler = Nvrtc(binding, "sm_90")
    expressions = compiler._add_expressions(None, [name], [])
    assert given == [expression.encode()]
    assert compiler._lowered(None, expressions) == {name: f"lowered of {expression}"}
    assert KernelName.of(expression).expression == expression


def test_a_missing_library_is_said_with_what_to_install() -> None:
    class Absent:
        def nvrtcVersion(self) -> None:  # noqa: N802 - its name
            raise RuntimeError("Failed to dlopen libnvrtc.so.12")

    with pytest.raises(hg.RuntimeUnavailable, match=r"NVRTC, .*nvidia-cuda-nvrtc .*libnvrtc\.so\.12") as caught:
        Nvrtc(Absent(), "sm_90").compile("", [])
    assert caught.value.missing == "library"


def test_modules_for_hip_in_place_of_cuda_bindings_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both packages write cuda/bindings/nvrtc; AMD's documents the mark HIP_PYTHON."""
    amds = ModuleType("cuda.bindings.nvrtc")
    amds.HIP_PYTHON = True  # type: ignore[attr-defined]
    for name, module in (("cuda", ModuleType("cuda")), ("cuda.bindings", ModuleType("cuda.bindings")), (amds.__name__, amds)):
        monkeypatch.setitem(sys.modules, name, module)
    with pytest.raises(hg.RuntimeUnavailable, match=r"pip uninstall hip-python-interop; pip install .* cuda-bindings") as caught:
        NvidiaRuntime()
    assert caught.value.missing == "binding"


def kernels_of(workflow: Workflow) -> dict[hg.Module, set[str]]:
    found: dict[hg.Module, set[str]] = {}
    for node in workflow.nodes:
        if isinstance(node, hg.KernelNode):
            found.setdefault(node.kernel.module, set()).add(node.kernel.name)
        for _, inner, _ in node.held:
            for module, names in kernels_of(inner).items():
                found.setdefault(module, set()).update(names)
    return found


@pytest.mark.parametrize("architecture", ["sm_75", "sm_90", "sm_100"])
def test_every_kernel_of_examples_and_conformance_compiles(architecture: str) -> None:
    nvrtc = pytest.importorskip("cuda.bindings.nvrtc", reason="cuda-bindings are not installed (extra nvidia)")
    try:
        nvrtc.nvrtcVersion()
    except RuntimeError as error:
        pytest.skip(f"no NVRTC library: {error}")
    compiler = Nvrtc(nvrtc, architecture)
    count = 0
    for make in hip_programs.MAKERS.values():
        for module, names in kernels_of(make().graph.workflow()).items():
            if module.source is not None:
                code = compiler._compile(module.source, sorted(names), list(module.symbols), module.options, module.name)
                assert code.image[:4] == b"\x7fELF"
                assert set(code.lowered) == {*names, *module.symbols}
                count += 1
    assert count > len(hip_programs.SMALL)


def test_kept_code_is_that_of_its_module_s_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name is in the compiler's warnings, and as __FILE__ in the code, where `assert` prints it."""
    monkeypatch.setenv("HIPGRAPHDSL_CACHE_DIR", str(tmp_path))

    def compiled(*given: Any) -> CodeObject:
        return CodeObject(given[-1].encode(), {}, f"{given[-1]}.hip:1:2: warning")

    hiprtc_module: Any = SimpleNamespace(hiprtcVersion=lambda: (0, 9, 0))
    nvrtc, hiprtc = Nvrtc(SimpleNamespace(nvrtcVersion=lambda: (0, 13, 0)), "sm_90"), HipRtc(hiprtc_module, (7, 2))
    monkeypatch.setattr(nvrtc, "_compile", compiled)
    monkeypatch.setattr(hiprtc, "_compile", compiled)
    for compile_it in (nvrtc.compile, partial(hiprtc.compile, architecture="gfx942")):
        for name in ("one", "two", "one"):
            code = compile_it("source", ["k"], name=name)
            assert (code.image, code.log) == (name.encode(), f"{name}.hip:1:2: warning")


@pytest.mark.parametrize(
    ("source", "options", "times"),
    [("k", ["-O3"], 1), ("k", ["-Iheaders"], 2), ("k", ["--pre-include=a.h"], 2), ('#include "/somewhere/a.h"\nk', [], 2)],
)
def test_what_includes_files_is_compiled_each_time(
    source: str, options: list[str], times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIPGRAPHDSL_CACHE_DIR", str(tmp_path))
    compiled: list[CodeObject] = []

    def compile_it() -> CodeObject:
        compiled.append(CodeObject(b"image"))
        return compiled[-1]

    for _ in range(2):
        assert kept("nvidia", source, source, options, compile_it).image == b"image"
    assert len(compiled) == times
