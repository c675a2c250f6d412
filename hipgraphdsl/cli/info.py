"""``hipgraphdsl info``."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.text import Text

from ..defects import DEFECTS, defects_for
from ..errors import HipGraphError, PartMissing, RuntimeUnavailable
from ..printed import human_bytes
from ..runtimes import open_runtime
from ..settings import remark
from ..target import Target
from .arguments import add_device, add_target
from .status import GOOD
from .tables import plain_console

if TYPE_CHECKING:
    from ..runtimes.base import Runtime

DESCRIPTION = "Show what is on this machine: versions, runtimes, devices, compilers, known defects."
EXAMPLES = ("", "--json")

_PACKAGES = (
    "numpy", "networkx", "pydantic", "rich", "hip-python", "cuda-bindings", "ziglang", "matplotlib", "pygraphviz", "PyYAML",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_device(parser)
    add_target(parser, "list the known defects of this target instead, e.g. amd:gfx942@7.2")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Print what is on this machine, or a target's known defects."""
    if options.target:
        return _info_target(Target.named(options.target), options.json)
    report = {
        "hipgraphdsl": importlib.import_module("hipgraphdsl").__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: _package_version(name) for name in _PACKAGES},
        "runtimes": _runtimes(options.device),
        "environment": {name: os.environ[name] for name in sorted(os.environ) if name.startswith("HIPGRAPHDSL_")},
    }
    if options.json:
        print(json.dumps(report, indent=1, default=str))
    else:
        _print(report)
    return GOOD


def _runtimes(device: int) -> dict[str, Any]:
    try:
        auto = open_runtime("auto", device).name
    except (PartMissing, RuntimeUnavailable):
        auto = ""
    found: dict[str, Any] = {}
    for name in ("amd", "nvidia", "cpu"):
        try:
            runtime = open_runtime(name, device)
        except HipGraphError as error:
            found[name] = {"available": False, "why": str(error)}
            continue
        found[name] = {"available": True, "auto": name == auto, **_runtime_facts(runtime)}
    return found


def _print(report: Mapping[str, Any]) -> None:
    console = plain_console()
    console.print(
        Text(f"hipgraphdsl {report['hipgraphdsl']}", style="bold") + Text(f", Python {report['python']} on {report['platform']}")
    )
    console.print("packages: " + ", ".join(f"{name} {found or 'not installed'}" for name, found in report["packages"].items()))
    for name, facts in report["runtimes"].items():
        if not facts["available"]:
            console.print(Text(f"\n{name}: not available", style="yellow"))
            console.print(Text(f"  {facts['why']}"))
            continue
        auto = ", taken by runtime='auto'" if facts["auto"] else ""
        console.print(Text(f"\n{name}: {facts['target']}{auto}", style="green"))
        for key, value in facts.items():
            if key not in ("available", "auto", "target", "defects", "runtime"):
                console.print(Text(f"  {key}: {_plain(value)}"))
        for defect in facts["defects"]:
            console.print(Text(f"  known defect {defect['id']}: {defect['title']}; {defect['handling']}"))
    for name, value in report["environment"].items():
        why = remark(name, value)
        console.print(Text(f"{name}={value}" + f": {why}" * bool(why), style="yellow" if why else ""))


def _runtime_facts(runtime: Runtime) -> dict[str, Any]:
    target = runtime.target
    facts: dict[str, Any] = {"target": target.name}
    described = runtime.describe()
    facts.update((key, value) for key, value in described.items() if key not in ("runtime", "target", "defects"))
    facts["devices"] = [f"{n}: {runtime.get_device_name(n)}" for n in range(runtime.get_device_count())]
    facts["limits"] = (
        f"{target.max_threads} threads a block, {human_bytes(target.max_shared_bytes)} shared memory, warp size"
        f" {target.warp_size}"
    )
    facts["defects"] = described.get("defects", [])
    return facts


def _info_target(target: Target, as_json: bool) -> int:
    found = [defect.facts for defect in defects_for(target)]
    if as_json:
        print(json.dumps({"target": target.name, "version": list(target.version), "defects": found}, indent=1))
        return GOOD
    print(f"{target.name}: {len(found)} of {len(DEFECTS)} known defects and limits")
    for defect in found:
        print(f"  {defect['id']}\n    {defect['title']}\n    handling: {defect['handling']}\n    source: {defect['source']}")
    if not target.version:
        print("  (without a version, only those that all versions have; add one: amd:gfx942@7.2)")
    return GOOD


def _package_version(name: str) -> str | None:
    import importlib.metadata

    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_plain(item)}" for key, item in value.items()) or "none"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_plain, value)) or "none"
    return str(value)
