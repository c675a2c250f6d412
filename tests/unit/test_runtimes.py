"""Opening runtimes, the ctypes layer's refusals, known defects, and reading code objects."""

from __future__ import annotations

import ctypes
import os
import re
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest
from code_objects import code_object, kernel
from struct_layouts import STRUCT_LAYOUTS

from hipgraphdsl import parts, runtimes
from hipgraphdsl.defects import DEFECTS, defects_for, with_quirks
from hipgraphdsl.errors import DeclarationError, HipError, RuntimeUnavailable
from hipgraphdsl.parts.cpu.runtime import CpuRuntime
from hipgraphdsl.runtimes.code_object import metadata, read_blocks, read_code_object
from hipgraphdsl.runtimes.data import Fill2D
from hipgraphdsl.runtimes.hip_abi import HipAbiRuntime
from hipgraphdsl.runtimes.hip_calls import PROTOTYPES, HipCalls
from hipgraphdsl.settings import SETTINGS, remark, setting
from hipgraphdsl.target import Target


# -- opening -----------------------------------------------------------------------------------------------------------
def test_a_runtime_is_opened_once_per_device() -> None:
    assert runtimes.open_runtime("recorder") is runtimes.open_runtime("recorder", 0)
    assert runtimes.open_runtime("recorder", 1) is not runtimes.open_runtime("recorder", 0)


def test_an_unknown_runtime_is_refused_with_the_known_ones() -> None:
    with pytest.raises(DeclarationError, match=r"no runtime 'vulkan'; runtimes are 'auto', 'amd', 'nvidia', 'cpu'"):
        runtimes.open_runtime("vulkan")


@pytest.mark.parametrize(("given", "meant"), [("cuda", "nvidia"), ("ROCm", "amd"), ("gpu", "auto"), ("cpus", "cpu")])
def test_a_runtimes_name_of_elsewhere_is_answered_with_the_one_that_is_meant(given: str, meant: str) -> None:
    with pytest.raises(DeclarationError, match=f"runtime '{given}' is called '{meant}' here; runtimes are"):
        runtimes.open_runtime(given)
    with pytest.raises(DeclarationError, match=r"no runtime 'nvida' \(did you mean 'nvidia'\?\); runtimes are"):
        runtimes.open_runtime("nvida")


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("gfx942", "amd:gfx942"),
        ("gfx942@7.2", "amd:gfx942@7.2"),
        ("MI300X", "amd:gfx942"),
        ("amd:mi250x", "amd:gfx90a"),
        ("sm_90", "nvidia:sm_90"),
        ("h100", "nvidia:sm_90"),
        ("nvidia:h200", "nvidia:sm_90"),
        ("a100", "nvidia:sm_80"),
    ],
)
def test_a_target_may_be_named_by_its_architecture_or_product(given: str, meant: str) -> None:
    assert Target.named(given) == Target.named(meant)
    assert Target.named(given).name == meant


def test_the_environment_decides_what_auto_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIPGRAPHDSL_RUNTIME", "recorder")
    assert runtimes.open_runtime() is runtimes.open_runtime("recorder")
    monkeypatch.setenv("HIPGRAPHDSL_RUNTIME", "vulkan")
    with pytest.raises(DeclarationError, match="from HIPGRAPHDSL_RUNTIME"):
        runtimes.open_runtime()


@pytest.mark.parametrize("number", ["0", "2000000000", "two", "2.5", "-1", "²"])
@pytest.mark.parametrize(("name", "takes"), [("DEVICES", "1 to 16"), ("THREADS", "1 to 512"), ("QUEUE", "1 to 1000000000")])
def test_a_number_for_the_cpu_runtime_that_cannot_be_is_refused(
    name: str, takes: str, number: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hipgraphdsl.parts.cpu.runtime import CpuRuntime

    monkeypatch.setenv(f"HIPGRAPHDSL_CPU_{name}", number)
    wanted = f"'cpu' cannot be opened: .* HIPGRAPHDSL_CPU_{name} is '{number}'; it takes a number of [a-z]+, {takes}$"
    with pytest.raises(RuntimeUnavailable, match=wanted):
        CpuRuntime()


@pytest.mark.parametrize("value", ["no", "off", "2"])
def test_the_switch_of_the_compiled_path_is_0_or_1(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIPGRAPHDSL_NATIVE", value)
    with pytest.raises(DeclarationError, match=f"HIPGRAPHDSL_NATIVE is '{value}'; it takes 0 or 1"):
        parts.find("fast")


@pytest.mark.parametrize("name", SETTINGS)
def test_a_variable_that_is_set_to_nothing_is_not_set(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "")
    assert setting(name) == remark(name, "") == ""


def test_every_variable_that_the_package_reads_is_in_the_table_and_in_the_docs() -> None:
    root = Path(parts.__file__).parent.parent
    sources = [path for path in root.rglob("*.*") if path.suffix in (".py", ".h", ".cpp")]
    said = {name for path in sources for name in re.findall(r"HIPGRAPHDSL_[A-Z_]*[A-Z]", path.read_text(encoding="utf-8"))}
    assert said - {"HIPGRAPHDSL_CPU"} == {*SETTINGS}
    documented = re.findall(r"^\| `(HIPGRAPHDSL_\w+)`", (root.parent / "docs" / "runtimes.md").read_text(encoding="utf-8"), re.M)
    assert documented == [*SETTINGS]


def test_a_misspelt_variable_is_remarked_with_the_name_that_was_meant() -> None:
    assert remark("HIPGRAPHDSL_CPU_THREAD", "4") == "hipgraphdsl does not read it (did you mean 'HIPGRAPHDSL_CPU_THREADS'?)"
    assert remark("HIPGRAPHDSL_CPU_QUEUE", "-3") == "it takes a number of operations, 1 to 1000000000"
    assert remark("HIPGRAPHDSL_CPU_QUEUE", "3") == ""


def test_auto_goes_on_where_a_runtime_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = runtimes.open_runtime("recorder")

    def only_cpu(name: str, device: int) -> Any:
        if name != "cpu":
            raise RuntimeUnavailable(f"no {name}", runtime=name, missing="device")
        return recorder

    monkeypatch.setattr(runtimes, "_open", only_cpu)
    monkeypatch.setattr(runtimes, "_missing", {})
    assert runtimes.open_runtime() is recorder


def test_auto_asks_again_for_what_was_not_there_after_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    there = {"cpu": runtimes.open_runtime("recorder")}
    another = runtimes.open_runtime("recorder", 1)
    now = [100.0]

    def answers(name: str, device: int) -> Any:
        asked.append(name)
        if name not in there:
            raise RuntimeUnavailable(f"no {name}", runtime=name, missing="library")
        return there[name]

    monkeypatch.setattr(runtimes, "_open", answers)
    monkeypatch.setattr(runtimes, "_missing", {})
    monkeypatch.setattr(runtimes, "_opened", {})
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    for _ in range(3):
        runtimes.open_runtime()
    assert asked == ["amd", "nvidia", "cpu", "cpu", "cpu"]
    there["nvidia"] = another  # it was installed
    now[0] += 1.0
    asked.clear()
    assert runtimes.open_runtime() is there["nvidia"]
    assert asked == ["amd", "nvidia"]


def test_auto_takes_at_once_what_somebody_opened_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = runtimes.open_runtime("recorder")
    monkeypatch.setattr(runtimes, "_missing", {("amd", 0): float("inf"), ("nvidia", 0): float("inf")})
    monkeypatch.setattr(runtimes, "_opened", {("nvidia", 0): runtimes._opened["recorder", 0]})
    assert runtimes.open_runtime() is recorder


def test_a_fork_cannot_use_what_its_parent_opened() -> None:
    if not hasattr(os, "fork"):
        pytest.skip("this platform does not fork")
    # In a process with one thread: elsewhere the child may wait for ever for a lock that a thread held when it was forked.
    text = """
import os
from hipgraphdsl import HipGraphError, open_runtime
open_runtime("recorder")
if not os.fork():
    try:
        open_runtime("recorder")
    except HipGraphError as error:
        print(error, flush=True)
    os._exit(0)
os.wait()
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120, check=True)
    assert "was opened in process" in done.stdout
    assert "'spawn'" in done.stdout


# -- the ctypes layer --------------------------------------------------------------------------------------------------
def test_a_function_that_the_library_lacks_is_refused_when_it_is_needed() -> None:
    calls = HipCalls(ctypes.CDLL(None), "HIP 5.0")
    assert not calls.exports("hipGraphLaunch")
    with pytest.raises(HipError, match=r"hipGraphLaunch failed: hipErrorNotSupported \(801\), HIP 5.0 does not export"):
        calls.hipGraphLaunch(0, 0)
    with pytest.raises(AttributeError):
        calls.hipNoSuchCall  # noqa: B018


def test_structures_have_the_sizes_of_hips_header() -> None:
    sizes = {name: layout.size for name, (layout, _) in STRUCT_LAYOUTS.items()}
    assert sizes["hipKernelNodeParams"] == 64
    assert sizes["hipMemsetParams"] == 48
    assert sizes["hipMemcpy3DParms"] == 160
    assert sizes["hipMemAllocNodeParams"] == 120
    assert sizes["hipStreamBatchMemOpParams"] == 48
    assert sizes["hipLaunchAttributeValue"] == 64


@pytest.mark.parametrize("size", [0, 3, 8])
def test_a_fill_of_elements_that_no_driver_has_is_refused(size: int) -> None:
    with pytest.raises(DeclarationError, match=rf"1, 2 or 4 bytes \(got {size}\)"):
        Fill2D(64, size, 1, 1)


def test_every_prototype_is_used() -> None:
    package = Path(runtimes.__file__).parent
    text = "".join(path.read_text(encoding="utf-8") for path in package.rglob("*.py"))
    by_width = ("hipStreamWriteValue", "hipStreamWaitValue")
    unused = [api for api in PROTOTYPES if text.count(f'"{api}"') + text.count(f".{api}(") == 0]
    assert [api for api in unused if not api.startswith(by_width)] == []


# -- defects -----------------------------------------------------------------------------------------------------------
def test_defects_follow_the_version_and_architecture() -> None:
    old, new = Target.named("amd:gfx942@7.2"), Target.named("amd:gfx942@7.15")
    assert {"disabled-drops-edges", "fan-out-over-4", "replay-nondeterministic"} <= {d.id for d in defects_for(old)}
    assert not {"disabled-drops-edges", "fan-out-over-4", "child-order"} & {d.id for d in defects_for(new)}
    assert "stale-pointers-200" not in {d.id for d in defects_for(old)}
    assert "stale-pointers-200" in {d.id for d in defects_for(Target.named("amd:gfx1201@7.2"))}


def test_the_classic_executor_brings_its_defects_back() -> None:
    target = Target.named("amd:gfx942@7.15")
    assert "disabled_drops_edges" not in with_quirks(target).quirks
    assert {"disabled_drops_edges", "fan_out_4"} <= with_quirks(target, classic_executor=True).quirks


def test_other_platforms_have_none_and_unknown_versions_only_what_all_have() -> None:
    assert defects_for(Target.named("cpu")) == defects_for(Target.named("nvidia:sm_90")) == ()
    unknown = defects_for(Target.named("amd:gfx942"))
    assert unknown
    assert all(defect.since is None and defect.until is None for defect in unknown)


def test_each_defect_says_what_where_and_what_is_done() -> None:
    assert len({defect.id for defect in DEFECTS}) == len(DEFECTS)
    for defect in DEFECTS:
        assert defect.title
        assert defect.handling
        assert defect.source
        assert defect.quirk is None or defect.quirk == defect.quirk.lower().replace("-", "_")


def test_quirks_are_all_read_by_the_plan_the_backends_or_the_executable() -> None:
    package = Path(runtimes.__file__).parent.parent
    text = "\n".join(path.read_text() for path in package.rglob("*.py") if path.name != "defects.py")
    assert [defect.quirk for defect in DEFECTS if defect.quirk and f'"{defect.quirk}"' not in text] == []


# -- code objects ------------------------------------------------------------------------------------------------------
def test_a_code_object_is_read_without_the_arguments_that_the_compiler_adds() -> None:
    assert read_code_object(code_object([kernel()])) == {"scale": ((0, 8), (8, 4))}


@pytest.mark.parametrize(
    "target", ["amdgcn-amd-amdhsa--gfx942", "amdgcn-amd-amdhsa--gfx942:sramecc+:xnack-", "amdgpu9.42-amd-amdhsa-unknown-gfx942"]
)
def test_a_code_object_is_read_whatever_its_target_is_called(target: str) -> None:
    """Triton 3.9 writes the last of them."""
    image = code_object([kernel()], target=target)
    assert metadata(image)["amdhsa.target"] == target
    assert read_code_object(image) == read_code_object(code_object([kernel()]))


def test_a_code_object_tells_the_blocks_that_its_kernels_are_built_for() -> None:
    """IREE requires one block; what Triton's kernels take besides their arguments, two scratch pointers, are arguments too."""
    scratch = [{".offset": 16 + 8 * i, ".size": 8, ".value_kind": "global_buffer"} for i in range(2)]
    image = code_object(
        [
            kernel(**{".symbol": "iree.kd", ".reqd_workgroup_size": [64, 2, 1], ".max_flat_workgroup_size": 128}),
            kernel(**{".symbol": "triton.kd", ".max_flat_workgroup_size": 256, ".args": kernel()[".args"][:2] + scratch}),
            {".symbol": "silent.kd"},
        ]
    )
    assert read_blocks(image) == {"iree": ((64, 2, 1), 128), "triton": (None, 256), "silent": (None, None)}
    assert [offset for offset, _ in read_code_object(image)["triton"]] == [0, 8, 16, 24]
    for other in (b"\x7fELF\x02", b".version 8.0", image[:150], code_object([{".symbol": "k", ".reqd_workgroup_size": ["x"]}])):
        assert read_blocks(other) == {}


@pytest.mark.parametrize("name", [b"hipv4-amdgcn-amd-amdhsa--gfx942:xnack-", b"host-x86_64-unknown-linux--"])
def test_a_bundle_is_searched_for_what_is_for_a_gpu(name: bytes) -> None:
    image = code_object([kernel()])
    names = [b"host-x86_64-unknown-linux--", name]
    head = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", 2)
    offset = len(head) + sum(24 + len(name) for name in names)
    for entry, nbytes in zip(names, (0, len(image))):
        head += struct.pack("<QQQ", offset, nbytes, len(entry)) + entry
    if name.startswith(b"hip"):
        assert "scale" in read_code_object(head + image)
    else:
        with pytest.raises(DeclarationError, match="no code object for a GPU"):
            read_code_object(head + image)


@pytest.mark.parametrize(
    ("image", "said"),
    [
        (b"", "no AMD GPU code object"),
        (b"#!/bin/sh", "no AMD GPU code object"),
        (b"CCOB\x02\x00", "compressed bundle"),
        (code_object([kernel()], machine=62), "machine is 62"),
        (code_object([kernel()])[:150], "damaged"),
        (code_object([{"no": "symbol"}]), "damaged"),
    ],
)
def test_what_is_no_code_object_is_refused(image: bytes, said: str) -> None:
    with pytest.raises(DeclarationError, match=said):
        read_code_object(image)


class Registering:
    """A library that page-locks: byte ranges that do not overlap, one of them somebody else's, none beyond `limit`."""

    def __init__(self, others: tuple[int, int] = (0, 0), limit: int = 1 << 20) -> None:
        held = {others[0]: others[1]} if others[1] else {}

        def register(pointer: int, nbytes: int, flags: int) -> int:
            if pointer + nbytes > limit:
                return 1
            if any(pointer < stop and start < pointer + nbytes for start, stop in held.items()):
                return 712
            held[pointer] = pointer + nbytes
            return 0

        def unregister(pointer: int) -> int:
            return 0 if held.pop(pointer, 0) else 713

        self.held, self.hipHostRegister, self.hipHostUnregister = held, register, unregister

    def opened(self) -> CpuRuntime:
        runtime = object.__new__(CpuRuntime)
        HipAbiRuntime.__init__(runtime, cast(Any, self), "registering")
        return runtime


def test_host_register_counts_what_runtimes_of_several_devices_share() -> None:
    library = Registering()
    one, two = library.opened(), library.opened()
    asked = [(one, 100, 50), (two, 100, 50), (two, 120, 10)]
    registered = [runtime.host_register(pointer, nbytes) for runtime, pointer, nbytes in asked]
    assert library.held == {100: 150}
    for (runtime, *_), each in zip(asked[:-1], registered):
        runtime.host_unregister(each)
    assert library.held == {100: 150}
    two.host_unregister(registered[-1])
    assert not library.held


@pytest.mark.parametrize(("pointer", "nbytes"), [(140, 20), (90, 20), (90, 200)])
def test_host_register_refuses_what_is_registered_in_part(pointer: int, nbytes: int) -> None:
    library = Registering()
    runtime = library.opened()
    registered = runtime.host_register(100, 50)
    with pytest.raises(HipError, match="a part of it is page-locked already") as caught:
        library.opened().host_register(pointer, nbytes)
    assert caught.value.code == 712
    runtime.host_unregister(registered)
    assert not library.held


def test_host_register_leaves_what_others_have_registered() -> None:
    library = Registering(others=(100, 150))
    assert library.opened().host_register(100, 50) == 0
    assert library.held == {100: 150}


def test_host_register_keeps_nothing_of_memory_that_is_refused() -> None:
    library = Registering(limit=200)
    runtime = library.opened()
    kept = runtime.host_register(100, 50)
    with pytest.raises(HipError):
        runtime.host_register(150, 300)
    assert library.held == {100: 150}
    runtime.host_unregister(kept)
    assert not library.held
