"""The package's layers: a module imports only what stands above it, and each runtime alone imports its binding."""

from __future__ import annotations

import ast
import functools
import importlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import networkx as nx
import pytest
from specimens import OWN_KINDS

import hipgraphdsl
from hipgraphdsl.nodes import Node
from hipgraphdsl.parts import OWN

PACKAGE = Path(__file__).parent.parent / "hipgraphdsl"

# Each may import those before it. A name stands for the module or for the whole package of that name.
ORDER = (
    "printed",
    "checks.catalogue",
    "checks.report",
    "errors",
    "settings",
    "parts",
    "extensions",
    "cache",
    "progress",
    "compiler",
    "waiting",
    "collecting",
    "lazy",
    "arrays.dtypes",
    "arrays.dlpack",
    "arrays.coercion",
    "arrays.wrapping",
    "arrays.regions",
    "arrays.views",
    "arrays.parameters",
    "arrays.moving",
    "arrays.arrays",
    "arrays.needs",
    "arrays",
    "source.tokens",
    "source.types",
    "source.trees",
    "source.expressions",
    "source.constants",
    "source.macros",
    "source.preprocessor",
    "source.unit",
    "source.scope",
    "source.names",
    "source.declarations",
    "source",
    "runtimes.code_object",
    "kernels.signature",
    "kernels.packing",
    "kernels.instances",
    "kernels.layouts",
    "kernels.origins",
    "kernels.shared_memory",
    "kernels",
    "target",
    "defects",
    "nodes.reading",
    "nodes.values",
    "nodes.comparing",
    "nodes.facets",
    "nodes.arguments",
    "nodes.fields",
    "nodes.schema",
    "nodes.base",
    "nodes.kinds",
    "nodes",
    "order",
    "hazards",
    "draft",
    "document",
    "document.writer",
    "document.schema",
    "document.text",
    "document.reader",
    "nodes.bindings",
    "nodes.workflow",
    "nodes.children",
    "nodes.collective",
    "enabling",
    "repeating",
    "export.files",
    "deciding",
    "plan",
    "plan.options",
    "plan.inlining",
    "placement",
    "checks",
    "plan.temporaries",
    "plan.memory",
    "plan.lanes",
    "plan.merged",
    "plan.segments",
    "plan.steps",
    "plan.suited",
    "plan.reuse",
    "plan.planning",
    "plan.launches",
    "plan.watch",
    "update",
    "runtimes.data",
    "runtimes.base",
    "graph_pool",
    "backends",
    "executable.stats",
    "executable.devices",
    "executable.peers",
    "executable.call_path",
    "executable.arena",
    "executable.memory",
    "executable.aliases",
    "executable.uses",
    "executable.state",
    "executable.elapsed",
    "executable.in_flight",
    "executable.parameters",
    "executable.page_locking",
    "executable.scopes",
    "executable.changes",
    "executable.instance",
    "executable",
    "measuring",
    "runtimes",
    "export.text",
    "export.fold",
    "drawing",
    "export",
    "declaring",
    "graph",
    "__init__",
    "cli.status",
    "cli.tables",
    "cli.files",
    "cli.workflows",
    "cli.arguments",
    "cli.supplies",
    "cli.info",
    "cli.check",
    "cli.show",
    "cli.run",
    "cli.schema",
    "cli.entry",
    "cli.parts",
    "cli",
    "__main__",
    "parts.bounds",
    "parts.cpu",
    "parts.recorder",
    "parts.fast",
    "parts.merge",
    "parts.family",
    "parts.imports",
    "parts.formats",
    "parts.program",
    "parts.verify",
    "parts.ranks",
    "parts.pages",
    "parts.timeline",
    "parts.bench",
)

# Foreign packages that only some modules may import.
ONLY_IN = {
    "hip": ("runtimes.amd",),
    "rocm": ("runtimes.amd",),
    "cuda": ("runtimes.nvidia", "runtimes.nvrtc", "parts.bench.peers"),
    "ziglang": ("compiler",),
    "networkx": ("draft", "nodes.workflow", "checks", "declaring", "graph", "drawing", "parts.formats"),
    "matplotlib": ("parts.timeline",),
    "pygraphviz": ("drawing",),
    "mpi4py": ("parts.ranks.transports.mpi",),
}

PLATFORMS = {"amd": "runtimes.amd", "nvidia": "runtimes.nvidia", "cpu": "parts.cpu", "recorder": "parts.recorder"}
"""Each with the module that makes its calls."""

DOORS = ("__init__", "runtimes.recorder")
"""Modules of the core whose names are, for type checkers, those of parts."""

MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}


@functools.cache
def imports(module: str) -> tuple[tuple[str, int], ...]:
    return tuple(imported(module))


def imported(module: str) -> Iterator[tuple[str, int]]:
    """Yield (absolute name, line) of what a module imports, what is for type checkers and what is imported late included."""
    path = MODULES[module]
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    is_package = path.name == "__init__.py" and module != "__init__"
    parts = ["hipgraphdsl", *([] if module == "__init__" else module.split("."))]
    if not is_package and module != "__init__":
        parts.pop()
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(parts[: len(parts) - node.level + 1]) if node.level else ""
            origin = ".".join(filter(None, (base, node.module)))
            for alias in node.names:
                inner = f"{origin}.{alias.name}"
                is_module = inner.removeprefix("hipgraphdsl.") in MODULES
                yield (inner if is_module else origin), node.lineno
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("importlib.import_module", "import_module"):
            match node.args:
                case [ast.Constant(value=str(name)), *_]:
                    yield name, node.lineno
        pending.extend(ast.iter_child_nodes(node))


def inside(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def layer(module: str) -> int:
    found = [name for name in ORDER if inside(module, name)]
    assert found, f"hipgraphdsl/{module} stands nowhere in ORDER; give it its place"
    return ORDER.index(max(found, key=len))


def own_imports(module: str) -> Iterator[tuple[str, int]]:
    """Yield (module of the package, line), without the public names, which annotations may use."""
    for name, line in imports(module):
        other = name.removeprefix("hipgraphdsl").removeprefix(".") or "__init__"
        if inside(name, "hipgraphdsl") and other in MODULES and other != "__init__":
            yield other, line


def part_of(module: str) -> str | None:
    """Return the part that a module belongs to; None for the core."""
    return module.split(".")[1] if module.startswith("parts.") else None


def test_modules_import_only_what_stands_above_them() -> None:
    below = [
        f"{module} line {line}: {other} stands below it"
        for module in MODULES
        for other, line in own_imports(module)
        if layer(other) > layer(module) and module not in DOORS
    ]
    assert below == [], "\n".join(below)


def test_core_imports_no_part() -> None:
    found = [
        f"{module} line {line}: {other}"
        for module in MODULES
        if part_of(module) is None and module not in DOORS
        for other, line in own_imports(module)
        if part_of(other) is not None
    ]
    assert found == []


def test_parts_are_those_that_the_core_knows_and_use_those_that_they_name() -> None:
    folders = {path.name for path in (PACKAGE / "parts").iterdir() if (path / "__init__.py").exists()}
    assert folders == set(OWN)
    uses = {name: set[str]() for name in OWN}
    for module in MODULES:
        own = part_of(module)
        for other, _ in own_imports(module) if own is not None else ():
            if (used := part_of(other)) not in (None, own):
                uses[own].add(used)  # type: ignore[index]
    assert uses == {name: set(part.uses) for name, part in OWN.items()}


def test_docs_list_every_module_in_this_order() -> None:
    text = (PACKAGE.parent / "docs" / "modules.md").read_text(encoding="utf-8")
    rows = [
        line.split("|")[1] for line in re.findall(r"^\| `.*", text.partition("| module |")[2].partition("\n\n")[0], re.MULTILINE)
    ]
    listed = [name.rstrip("/").replace("/", ".") for row in rows for name in re.findall(r"`([^`]+)`", row)]
    assert {module.partition(".")[0] for module in MODULES} - {"__init__", "__main__"} == {
        name.partition(".")[0] for name in listed
    }
    assert [name for name in ORDER if name in listed] == listed


def test_no_name_of_a_door_is_a_module_of_its_part() -> None:
    for part in OWN:
        assert {path.stem for path in (PACKAGE / "parts" / part).glob("*.py")}.isdisjoint(door_names(part)), part


def door_names(part: str) -> set[str]:
    """Return the names in the table of `lazily`."""
    tree = ast.parse(MODULES[f"parts.{part}"].read_text(encoding="utf-8"))
    tables = [node for node in ast.walk(tree) if isinstance(node, ast.Dict)]
    return {key.value for table in tables for key in table.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}


def test_modules_import_each_other_in_no_circle() -> None:
    graph = nx.DiGraph((module, other) for module in MODULES for other, _ in own_imports(module) if module != other)
    assert [sorted(circle) for circle in nx.strongly_connected_components(graph) if len(circle) > 1] == []


def test_foreign_packages_are_imported_only_where_they_belong() -> None:
    wrong = []
    for module in MODULES:
        for name, line in imports(module):
            allowed = ONLY_IN.get(name.partition(".")[0])
            if allowed is not None and not any(inside(module, place) for place in allowed):
                wrong.append(f"{module} line {line} imports {name}; only {', '.join(allowed)} may")
    assert wrong == [], "\n".join(wrong)


def test_platforms_are_imported_by_no_other_module() -> None:
    users = [
        f"{module} line {line} imports {name}"
        for platform in PLATFORMS
        for module in MODULES
        if not inside(module, f"runtimes.{platform}") and layer(module) <= ORDER.index("runtimes")
        for name, line in imports(module)
        # The host's C++ compiler also builds what is not the CPU runtime's.
        if inside(name, f"hipgraphdsl.runtimes.{platform}") and not inside(name, "hipgraphdsl.compiler")
    ]
    assert users == [], "\n".join(users)


def test_backends_name_no_platform() -> None:
    named = []
    for module, path in MODULES.items():
        if not inside(module, "backends"):
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        documentation = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and node.body and isinstance(node.body[0], ast.Expr)
        }
        named += [
            f"{module} line {node.lineno}: {node.value!r}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and node.value in PLATFORMS and id(node) not in documentation
        ]
    assert named == [], "\n".join(named)


# Who may ask which platform there is: targets and defects are data by platform; benchmarks measure what one platform does.
ASKS_PLATFORM = ("runtimes", "target", "defects", "parts.bench", "parts.cpu", "parts.recorder")


def test_package_asks_targets_for_attributes_and_quirks_not_for_the_platform() -> None:
    asked = []
    for module, path in MODULES.items():
        if any(inside(module, place) for place in ASKS_PLATFORM):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Attribute(attr="platform", value=value):
                    found = ast.unparse(value) not in ("sys", "platform")
                case ast.Compare(left=left, comparators=others):
                    found = any(isinstance(side, ast.Constant) and side.value in PLATFORMS for side in (left, *others))
                case ast.MatchValue(value=ast.Constant(value=value)):
                    found = value in PLATFORMS
                case _:
                    continue
            if found:
                asked.append(f"{module} line {node.lineno}: {ast.unparse(node)}")
    assert asked == []


# What knows kinds of nodes: their own modules, the public names, the methods that declare, graphs read back, and the one place
# that makes operations of steps. All other modules ask a node what it does (`nodes/facets`).
KNOWS_KINDS = ("nodes", "__init__", "declaring", "parts.imports", "backends.resolve", "backends.resolve_rare")


def test_package_asks_nodes_what_they_do_and_not_for_their_class() -> None:
    classes = {cls.__name__ for cls in OWN_KINDS.values()}
    assert {"KernelNode", "ChildGraphNode", "CollectiveNode"} < classes
    named = []
    for module, path in MODULES.items():
        if any(inside(module, place) for place in KNOWS_KINDS):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name) if name in classes:
                    named.append(f"{module} line {node.lineno}: {name}")
    assert named == []


def test_each_kind_has_a_case_that_makes_its_operation() -> None:
    trees = [ast.parse(MODULES[f"backends.{name}"].read_text(encoding="utf-8")) for name in ("resolve", "resolve_rare")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    cases = [node.cls.id for node in nodes if isinstance(node, ast.MatchClass) and isinstance(node.cls, ast.Name)]
    assert sorted(cases) == sorted(cls.__name__ for cls in OWN_KINDS.values() if cls.held is Node.held)
    holding = [cls for cls in OWN_KINDS.values() if cls.held is not Node.held]
    assert all(cls.is_child != (cls.branch is not Node.branch) for cls in holding)  # each is one of the two that have a case


def loaded_by(statement: str) -> set[str]:
    """Return the names of the modules that a fresh interpreter has after a statement."""
    program = f"import json, sys\n{statement}\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=PACKAGE.parent)
    return set(json.loads(done.stdout))


def test_importing_the_package_loads_no_binding_and_no_drawing_library() -> None:
    loaded = loaded_by("import hipgraphdsl")
    heavy = {"hip", "rocm", "cuda", "ziglang", "matplotlib", "pygraphviz", "PIL", "scipy", "ml_dtypes", "yaml"}
    assert loaded & (heavy | {"jsonschema", "torch", "cupy", "networkx", "rich"}) == set()


# What a program that only declares a workflow does not need.
LATER = ("backends", "checks", "drawing", "executable", "export", "plan", "runtimes.base",
         *(f"parts.{name}" for name in OWN))  # fmt: skip


def test_importing_the_package_and_declaring_load_nothing_that_checks_or_runs() -> None:
    loaded = loaded_by("import hipgraphdsl as hg; g = hg.Graph(); g.memset(g.device_array('x', shape=4, dtype='int8'), 1)")
    assert [name for name in loaded for package in LATER if inside(name, f"hipgraphdsl.{package}")] == []


# What a program that checks, compiles and launches one kernel does not need, each with a statement that needs it.
RARE = {
    "executable.changes": "exe.set('k', grid=2)",
    "update": "exe.update(g)",
    "executable.rebuilding": "exe.clone().close()",
    "executable.aliases": "exe.launch(p=x)",
    "executable.arena": "hg.Arena",
    "plan.memory": "exe.memory",
    "executable.elapsed": "exe.disable('k')",
    "backends.streams": "g.compile('recorder', 'streams').close()",
    "backends.serial": "g.compile('recorder', 'serial').close()",
    "backends.interop": "exe.array('x')",
    "graph_pool": "exe.graph_memory",
    "plan.watch": "g.compile('recorder', debug=hg.DebugOptions(watch=True)).close()",
    "plan.temporaries": "y = g.alloc('y', shape=4, dtype='int8'); g.free(y); g.compile('recorder').close()",
    "backends.segmented": "g.eager(print, args=()); g.compile('recorder').close()",
    "arrays.wrapping": "g.external_array('e', bytearray(4))",
    "document.text": "hg.Graph.from_json(g.to_json())",
    "document.reader": "hg.Graph.from_json(g.to_json())",
    "document.schema": "hg.Workflow.model_json_schema()",
    "nodes.schema": "hg.KernelNode.model_json_schema()",
    "nodes.host": "h = hg.Graph('h'); h.host(print, args=())",
    "nodes.sync": "hg.Event",
    "backends.resolve_rare": "h.compile('recorder').close()",
    "nodes.children": "c = hg.Graph('c'); c.child(hg.Graph('inner'))",
    "nodes.collective": "hg.CollectiveNode",
    "checks.events": "e = hg.Graph('e'); e.record('r'); e.check()",
    "checks.lifetimes": "t = hg.Graph('t'); t.free(t.alloc('t', shape=4, dtype='int8')); t.check()",
    "source.preprocessor": "hg.Module('#define N 4\\nextern \"C\" __global__ void d(int* x) { x[N] = 1; }')['d']",
    "extensions": "hg.Part",
    "parts.bounds.exchange": "g.kernel(shared, 1, 4, (x,)); g.check()",
}


@pytest.mark.needs("bounds")
def test_modules_that_few_programs_need_are_loaded_by_those_alone() -> None:
    program = """
import hipgraphdsl as hg
code = "extern \\"C\\" __global__ void k(int* x, int a) { x[threadIdx.x] = a; }"
code += "extern \\"C\\" __global__ void s(int* x) { __shared__ int t[4]; t[threadIdx.x] = x[0]; x[1] = t[0]; }"
module = hg.Module(code)
g, shared = hg.Graph("g"), module["s"]
x = g.device_array("x", shape=4, dtype="int32")
p = g.param("p", "int32", shape=4, default=x)
g.kernel(module["k"], 1, 4, (p, g.param("a", "int32", 1)), name="k")
g.check()
exe = g.compile("recorder")
exe.run(a=2)
"""
    program += f"late = [name for name in {list(RARE)} if 'hipgraphdsl.' + name in sys.modules]\n"
    for name, statement in RARE.items():
        program += f"{statement}\nassert 'hipgraphdsl.{name}' in sys.modules, {name!r}\n"
    loaded_by(program + "assert late == [], late")


@pytest.mark.parametrize(("command", "needed"), [("--help", {"export"}), ("check", {"checks", "export", "parts.bounds"})])
def test_command_line_loads_what_its_command_needs(command: str, needed: set[str], tmp_path: Path) -> None:
    hipgraphdsl.Graph("g").export(tmp_path / "graph.json")
    arguments = [command, str(tmp_path / "graph.json")][: 1 + (command == "check")]
    program = "from contextlib import redirect_stdout, suppress; from hipgraphdsl.cli import main\n"
    loaded = loaded_by(f"{program}with redirect_stdout(sys.stderr), suppress(SystemExit): main({arguments})")
    assert "networkx" not in loaded
    listed = {f"hipgraphdsl.parts.{door}" for part in OWN for door in (part, f"{part}.command")} | {
        "hipgraphdsl.parts.timeline.files"
    }
    found = [name for name in loaded - listed for package in {*LATER} - needed if inside(name, f"hipgraphdsl.{package}")]
    assert found == []


def test_names_that_are_imported_late_are_those_that_type_checkers_see() -> None:
    tree = ast.parse(MODULES["__init__"].read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    seen = {alias.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert seen == hipgraphdsl._LATER
    for name, module in seen.items():
        assert getattr(hipgraphdsl, name) is getattr(importlib.import_module(f"hipgraphdsl.{module}"), name)
    assert not any(isinstance(getattr(hipgraphdsl, name), ModuleType) for name in hipgraphdsl.__all__)


def test_name_that_the_package_lacks_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'hipgraphdsl' has no attribute 'Grap'"):
        hipgraphdsl.Grap  # type: ignore[attr-defined]  # noqa: B018
