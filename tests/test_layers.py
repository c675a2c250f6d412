"""The package's layers: a module imports only what stands above it, and each runtime alone imports its binding."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "hipgraphdsl"

# Each may import those before it. A name stands for the module or for the whole package of that name.
ORDER = (
    "errors",
    "cache",
    "progress",
    "arrays",
    "source.tokens",
    "source.expressions",
    "source.macros",
    "source.preprocessor",
    "source.unit",
    "source.types",
    "source.declarations",
    "source",
    "kernels",
    "target",
    "defects",
    "nodes",
    "order",
    "workflow",
    "inlining",
    "placement",
    "hazards",
    "checks",
    "temporaries",
    "lanes",
    "plan",
    "watch",
    "timeline",
    "update",
    "runtimes.base",
    "graph_memory",
    "backends",
    "executable.stats",
    "executable.devices",
    "executable.memory",
    "executable.compiled",
    "executable.in_flight",
    "executable.overlaps",
    "executable.parameters",
    "executable.locking",
    "executable.scopes",
    "executable.built",
    "executable.known",
    "executable.changes",
    "executable.profiling",
    "executable.arrangement",
    "executable",
    "measuring",
    "runtimes",
    "verify",
    "export",
    "importing",
    "graph",
    "bench",
    "__init__",
    "cli.status",
    "cli.help",
    "cli.tables",
    "cli.files",
    "cli.workflows",
    "cli.arguments",
    "cli.supplies",
    "cli.info",
    "cli.check",
    "cli.show",
    "cli.run",
    "cli.timeline",
    "cli.verify",
    "cli.bench",
    "cli.diff",
    "cli.build",
    "cli.schema",
    "cli",
    "__main__",
)

# A timeline writes itself, as a graph does; the formats, which know timelines, are imported when a file is asked for.
LATE = {("timeline", "export.timelines")}

# Foreign packages that only some modules may import.
ONLY_IN = {
    "hip": ("runtimes.amd",),
    "rocm": ("runtimes.amd",),
    "cuda": ("runtimes.nvidia", "bench.peers"),
    "ziglang": ("runtimes.cpu",),
    "networkx": ("workflow", "hazards", "checks", "plan", "graph", "export"),
    "matplotlib": ("export", "bench"),
    "pygraphviz": ("export",),
}

PLATFORMS = ("amd", "nvidia", "cpu", "recorder")

MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}


def imports(module: str) -> Iterator[tuple[str, int]]:
    """Yield (absolute name, line) of what a module imports when it runs; what is only for type checkers is left out."""
    path = MODULES[module]
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    is_package = path.name == "__init__.py" and module != "__init__"
    parts = ["hipgraphdsl", *([] if module == "__init__" else module.split("."))]
    if not is_package and module != "__init__":
        parts.pop()
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            pending.extend(node.orelse)
            continue
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


@pytest.mark.parametrize("module", MODULES)
def test_module_imports_only_what_stands_above_it(module: str) -> None:
    below = []
    for name, line in imports(module):
        if not inside(name, "hipgraphdsl"):
            continue
        other = name.removeprefix("hipgraphdsl").removeprefix(".") or "__init__"
        if other not in MODULES:
            continue
        here, there = layer(module), layer(other)
        if there > here and (module, other) not in LATE:
            below.append(f"line {line}: {module} imports {other}, which stands below it")
    assert below == []


@pytest.mark.parametrize("module", MODULES)
def test_foreign_package_is_imported_only_where_it_belongs(module: str) -> None:
    wrong = []
    for name, line in imports(module):
        allowed = ONLY_IN.get(name.partition(".")[0])
        if allowed is not None and not any(inside(module, place) for place in allowed):
            wrong.append(f"line {line}: {module} imports {name}; only {', '.join(allowed)} may")
    assert wrong == []


@pytest.mark.parametrize("platform", PLATFORMS)
def test_platform_is_imported_by_no_other_module(platform: str) -> None:
    own = f"runtimes.{platform}"
    users = [
        f"{module} line {line}"
        for module in MODULES
        if not inside(module, own) and layer(module) <= ORDER.index("runtimes")
        for name, line in imports(module)
        # The host's C++ compiler also builds what is not the CPU runtime's.
        if inside(name, f"hipgraphdsl.{own}") and not inside(name, "hipgraphdsl.runtimes.cpu.compiler")
    ]
    assert users == []


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
    assert named == []


def test_late_imports_stand_inside_functions() -> None:
    for module, other in LATE:
        tree = ast.parse(MODULES[module].read_text(encoding="utf-8"))
        at_once = {ast.unparse(node) for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))}
        assert not any(other.partition(".")[0] in line for line in at_once)
        assert other in {name.removeprefix("hipgraphdsl.") for name, _ in imports(module)}


def loaded_by(statement: str) -> set[str]:
    """Return the names of the modules that a fresh interpreter has after a statement."""
    program = f"import json, sys\n{statement}\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=PACKAGE.parent)
    return set(json.loads(done.stdout))


def test_importing_the_package_loads_no_binding_and_no_drawing_library() -> None:
    loaded = loaded_by("import hipgraphdsl")
    heavy = {"hip", "rocm", "cuda", "ziglang", "matplotlib", "pygraphviz", "PIL", "scipy", "ml_dtypes", "yaml"}
    assert loaded & (heavy | {"jsonschema", "torch", "cupy"}) == set()


def test_importing_the_package_loads_no_runtime() -> None:
    loaded = {name for name in loaded_by("import hipgraphdsl") if inside(name, "hipgraphdsl.runtimes")}
    assert loaded <= {"hipgraphdsl.runtimes", "hipgraphdsl.runtimes.base"}
