"""The tree itself: what no file of the project may hold, and what every public name must have."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import subprocess
from pathlib import Path
from typing import Any

import hipgraphdsl

ROOT = Path(__file__).parent.parent

SKIPPED = {
    ".git",
    ".venv",
    ".hypothesis",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    "__pycache__",
    "build",
    "dist",
}
PICTURES = {".gif", ".png"}

# The patterns are written so that they do not find themselves.
PATH_OF_ONE_MACHINE = re.compile(r"(?<![\w./-])/(?:root|home|tmp|work|Users)/\w(?![\w-]*X{6})")
UNFINISHED = re.compile(r"\b(?:TO[D]O|FIX[M]E|XX[X]|HAC[K])\b")
SAYS_NOTHING = {"utils.py", "util.py", "helpers.py", "misc.py", "common.py"}


def project_files() -> list[Path]:
    """Return what belongs to the project: what git knows or would take, or every file where there is no git."""
    asked = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if asked.returncode == 0:
        found = [ROOT / name for name in asked.stdout.decode().split("\0") if name]
    else:
        found = [path for path in ROOT.rglob("*") if not SKIPPED & set(path.relative_to(ROOT).parts)]
    return sorted(path for path in found if path.is_file())


FILES = project_files()
TEXTS = [path for path in FILES if path.suffix not in PICTURES]


def lines_with(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:120]}"
        for path in TEXTS
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]


def test_no_file_names_a_path_of_one_machine() -> None:
    assert lines_with(PATH_OF_ONE_MACHINE) == []


def test_nothing_is_marked_as_unfinished() -> None:
    assert lines_with(UNFINISHED) == []


def test_every_module_has_a_noun_for_a_name() -> None:
    assert [str(path.relative_to(ROOT)) for path in FILES if path.name in SAYS_NOTHING] == []


def test_only_pictures_are_binary_and_they_are_small() -> None:
    binary = [str(path.relative_to(ROOT)) for path in TEXTS if b"\0" in path.read_bytes()]
    large = [str(path.relative_to(ROOT)) for path in FILES if path.stat().st_size > 1_000_000]
    assert binary == [], "\n".join(binary)
    assert large == [], "\n".join(large)


def test_text_files_end_with_one_newline() -> None:
    wrong = []
    for path in TEXTS:
        data = path.read_bytes()
        if data and (not data.endswith(b"\n") or data.endswith(b"\n\n") or b"\r" in data):
            wrong.append(str(path.relative_to(ROOT)))
    assert wrong == [], "\n".join(wrong)


MODULES = sorted(
    info.name for info in pkgutil.walk_packages(hipgraphdsl.__path__, "hipgraphdsl.") if not info.name.endswith(".__main__")
)


def public_members(module: Any) -> list[tuple[str, Any]]:
    """Return what a module defines under a name without an underscore, with the public methods of its classes."""
    found = []
    for name, value in vars(module).items():
        if name.startswith("_") or getattr(value, "__module__", None) != module.__name__ or not callable(value):
            continue
        found.append((name, value))
        if not inspect.isclass(value):
            continue
        for member, attribute in vars(value).items():
            if not member.startswith("_") and (inspect.isfunction(attribute) or isinstance(attribute, property)):
                found.append((f"{name}.{member}", getattr(value, member)))
    return found


RUNTIMES = ("hipgraphdsl.runtimes", "hipgraphdsl.parts.cpu", "hipgraphdsl.parts.recorder")


def test_modules_and_their_public_names_are_documented() -> None:
    missing = []
    for name in MODULES:
        module = importlib.import_module(name)
        # Methods of runtimes are HIP's calls, which HIP's own reference documents.
        members = [
            (member, value) for member, value in public_members(module) if "." not in member or not name.startswith(RUNTIMES)
        ]
        missing += [f"{name} {member}" for member, value in [("", module), *members] if not inspect.getdoc(value)]
    assert missing == [], "\n".join(missing)


def test_modules_have_at_most_700_lines_and_functions_80() -> None:
    modules, functions = set(), set()
    for path in (path for path in FILES if path.suffix == ".py" and path.is_relative_to(ROOT / "hipgraphdsl")):
        name, text = str(path.relative_to(ROOT / "hipgraphdsl")), path.read_text(encoding="utf-8")
        if text.count("\n") > 700:
            modules.add(name)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and (node.end_lineno or node.lineno) - node.lineno >= 80:
                functions.add(f"{name}: {node.name}")
    assert (modules, functions) == (set(), set())


def test_readme_of_tests_says_where_each_public_name_is_tested() -> None:
    rows = re.findall(r"^\| (`.*?) \| (\[.*) \|$", (ROOT / "tests" / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    listed = [(re.findall(r"`([\w.]+)`", names), re.findall(r"\]\((\S+)\)", files)) for names, files in rows]
    methods = [(owner, name) for owner in (hipgraphdsl.Graph, hipgraphdsl.Executable) for name in dir(owner) if name[0] != "_"]
    public = [*hipgraphdsl.__all__, *(f"{owner.__name__}.{name}" for owner, name in methods)]
    assert sorted(name for names, _ in listed for name in names) == sorted(public)
    silent = []
    for names, files in listed:
        words = re.compile(rf"(?:\b|_)({'|'.join(name.rpartition('.')[2] for name in names)})(?:\b|_)")
        silent += [f"{file}: {words.pattern}" for file in files if not words.search((ROOT / "tests" / file).read_text("utf-8"))]
    assert silent == [], "\n".join(silent)


def test_package_says_that_it_is_typed() -> None:
    assert (ROOT / "hipgraphdsl" / "py.typed").is_file()


def test_package_exports_what_it_lists() -> None:
    assert [name for name in hipgraphdsl.__all__ if not hasattr(hipgraphdsl, name)] == []
    assert sorted(hipgraphdsl.__all__) == sorted(set(hipgraphdsl.__all__))


def test_version_is_written_once() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", hipgraphdsl.__version__)
    assert f"[{hipgraphdsl.__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
