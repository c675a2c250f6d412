"""Parts of other packages: found by their entry points, read when they are asked for, and refused by name."""

from __future__ import annotations

import dataclasses
import importlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from specimens import EXTENSIONS, pipeline

import hipgraphdsl as hg
from hipgraphdsl import cli, extensions, parts, runtimes
from hipgraphdsl.checks import CATALOGUE
from hipgraphdsl.export import render
from hipgraphdsl.extensions import Part, installed
from hipgraphdsl.nodes import KINDS
from hipgraphdsl.nodes.workflow import Workflow

HEAD = """
import hipgraphdsl as hg
from hipgraphdsl.checks import Entry
from hipgraphdsl.runtimes.recorder import RecorderRuntime
from hipgraphdsl.nodes import Node
seen = []
"""

CODE = {
    "runtimes": """
class Tpu(RecorderRuntime):
    pass
PART = hg.Part(protocol=1, runtimes={"tpu": Tpu})
""",
    "formats": """
def names(workflow, *, upper: bool = False):
    text = " ".join(node.name for node in workflow.nodes)
    return text.upper() if upper else text
PART = hg.Part(protocol=1, does="lists of names", formats={".names": names})
""",
    "commands": """
class Command:
    DESCRIPTION = "Count nodes."
    EXAMPLES = ("3",)
    add_arguments = staticmethod(lambda parser: parser.add_argument("status", type=int))
    run = staticmethod(lambda options: options.status)
PART = hg.Part(protocol=1, commands={"count-nodes": Command})
""",
    "checks": """
def find(scope):
    for node in scope.workflow.nodes:
        if node.kind == "empty":
            scope.found("REV101", f"{scope.name(node)!r} does nothing", node)
PART = hg.Part(protocol=1, checks={"REV101": Entry("warning", "empty node", "A node does nothing.", find)})
""",
    "passes": """
def look(plan, target):
    seen.append((plan, target))
    return plan
PART = hg.Part(protocol=1, passes={"look": look})
""",
    "kinds": """
class MarkNode(Node):
    kind = "review.mark"
    work = reach = placed = ""
    in_body = True
    idle = True
    def operation(self, scope, device):
        from hipgraphdsl.backends.operations import Nothing
        return Nothing()
    def describe(self):
        return "a mark"
PART = hg.Part(protocol=1, kinds={"review.mark": MarkNode})
""",
}
"""For each mapping of a part a module with one that fills it."""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """Put a package with a part on the path, as pip would; afterwards nothing knows of it."""
    made: list[str] = []
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    tables: tuple[dict[Any, Any], ...] = (
        CATALOGUE, KINDS, parts.ENABLED, extensions._read, extensions._offered, runtimes._opened,
    )  # fmt: skip
    before = [dict(table) for table in tables]

    def put(code: str, part: str = "review", package: str = "acme-review") -> str:
        module = f"{package.replace('-', '_')}_{abs(hash(str(tmp_path)))}"
        (tmp_path / f"{module}.py").write_text(HEAD + code, encoding="utf-8")
        folder = tmp_path / f"{package.replace('-', '_')}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n", encoding="utf-8")
        (folder / "entry_points.txt").write_text(f"[hipgraphdsl.parts]\n{part} = {module}:PART\n", encoding="utf-8")
        importlib.invalidate_caches()
        made.append(module)
        return module

    yield put
    for table, known in zip(tables, before):
        table.clear()
        table.update(known)
    for module in made:
        sys.modules.pop(module, None)


def with_empty() -> hg.Graph:
    g = hg.Graph("g")
    g.memset(g.device_array("x", shape=4, dtype="f4"), 0, name="fill")
    g.empty(name="nothing")
    return g


def command(*arguments: str) -> int:
    try:
        return cli.main([*arguments])
    except SystemExit as error:  # argparse ends the program itself
        return int(error.code or 0)


def test_part_has_a_mapping_for_each_row_of_these_tests() -> None:
    assert {item.name for item in dataclasses.fields(Part)} == {"protocol", "does", *CODE}
    assert list(extensions._FORMS) == list(CODE) == list(ASKED)


# -- what each mapping brings ------------------------------------------------------------------------------------------


def test_runtime_of_another_package_runs_a_graph_by_its_name(install: Any) -> None:
    module = install(CODE["runtimes"])
    with with_empty().compile(hg.open_runtime("tpu")) as exe:
        exe.run()
        assert type(exe.runtime).__module__ == module
    assert exe.runtime is hg.open_runtime("tpu")
    name: Any = "tpu"  # type checkers know the package's own names alone
    with_empty().compile(name).close()


@pytest.mark.parametrize("made", ["lambda device: 3", "lambda device: type('Other', (), {'target': None})()"])
def test_runtime_of_another_package_must_be_a_runtime(install: Any, made: str) -> None:
    install(f"PART = hg.Part(protocol=1, runtimes={{'tpu': {made}}})")
    with pytest.raises(
        hg.HipGraphError, match=r"runtime 'tpu' of another package is to be a hipgraphdsl\.runtimes\.base\.Runtime"
    ):
        with_empty().compile(hg.open_runtime("tpu"))


def test_format_of_another_package_is_exported_with_its_options(install: Any, tmp_path: Path) -> None:
    install(CODE["formats"])
    with_empty().export(tmp_path / "g.names", upper=True)
    assert (tmp_path / "g.names").read_text() == "FILL NOTHING"
    with_empty().export(tmp_path / "g.NAMES")
    assert (tmp_path / "g.NAMES").read_text() == "fill nothing"
    with pytest.raises(hg.DeclarationError, match=r"a \.names file takes no option 'lower'; its options are 'upper'"):
        with_empty().export(tmp_path / "g.names", lower=True)
    with pytest.raises(hg.DeclarationError, match="upper is True or False"):
        render(with_empty().workflow(), ".names", upper=3)


def test_format_of_another_package_must_return_text_or_bytes(install: Any, tmp_path: Path) -> None:
    install("PART = hg.Part(protocol=1, formats={'.names': lambda workflow: 3})")
    with pytest.raises(hg.HipGraphError, match=r"the function of the format '\.names' returns str or bytes \(got int\)"):
        with_empty().export(tmp_path / "g.names")
    assert not (tmp_path / "g.names").exists()


def test_command_of_another_package_is_run_with_its_status(install: Any, capsys: pytest.CaptureFixture[str]) -> None:
    install(CODE["commands"])
    assert command("count-nodes", "3") == 3
    assert command("count-nodes", "--help") == 0
    assert "hipgraphdsl count-nodes 3" in capsys.readouterr().out
    assert command("count-nodes") == 2


def test_check_of_an_enabled_part_reports_and_is_ignored_by_its_code(install: Any) -> None:
    install(CODE["checks"])
    assert "REV101" not in str(with_empty().check())
    hg.enable("review")
    hg.enable("review")
    g = with_empty()
    g.empty(name="meant", ignore={"REV101": "a place to wait for"})
    outer = hg.Graph("outer")
    outer.child(g, name="inner")
    found = [d for d in outer.check().diagnostics if d.code == "REV101"]
    assert [(d.severity, d.title, d.nodes) for d in found] == [("warning", "empty node", ("inner/nothing",))]
    rules = json.loads(outer.check().to_sarif())["runs"][0]["tool"]["driver"]["rules"]
    assert "A node does nothing." in [rule["help"]["text"] for rule in rules]
    with g.compile("recorder"):
        pass


def test_error_of_an_enabled_check_stops_compile(install: Any) -> None:
    install(CODE["checks"].replace('"warning"', '"error"'))
    hg.enable("review")
    with pytest.raises(hg.CheckError, match="REV101"):
        with_empty().compile("recorder")


def test_pass_of_an_enabled_part_sees_and_changes_each_plan(install: Any) -> None:
    module = importlib.import_module(install(CODE["passes"]))
    with_empty().plan(target="cpu")
    assert module.seen == []
    hg.enable("review")
    plan = with_empty().plan(target="cpu")
    assert module.seen == [(plan, hg.Target.named("cpu"))]
    with with_empty().compile("recorder") as exe:
        assert exe.plan is module.seen[-1][0]


def test_pass_must_return_a_plan(install: Any) -> None:
    install("PART = hg.Part(protocol=1, passes={'lose': lambda plan, target: None})")
    hg.enable("review")
    with pytest.raises(hg.HipGraphError, match=r"pass 'lose' of part 'review' returns a Plan \(got NoneType\)"):
        with_empty().plan(target="cpu")


def marked(module: Any) -> hg.Graph:
    g = with_empty()
    g.add(module.MarkNode(name="mark"), after=["fill"])
    return g


@pytest.mark.parametrize("backend", ["explicit", "capture", "streams", "serial"])
def test_kind_of_an_enabled_part_runs_on_each_backend(install: Any, backend: Any) -> None:
    module = importlib.import_module(install(CODE["kinds"]))
    with pytest.raises(hg.DeclarationError, match=r"hipgraphdsl\.enable its part"):
        marked(module)
    hg.enable("review")
    with marked(module).compile("recorder", backend) as exe:
        exe.run()


@pytest.mark.parametrize("extension", EXTENSIONS)
def test_exports_show_a_kind_of_an_enabled_part(install: Any, extension: str) -> None:
    module = importlib.import_module(install(CODE["kinds"]))
    hg.enable("review")
    text = render(marked(module).workflow(), extension)
    assert "mark" in text
    if extension == ".mmd":
        assert "review.mark fill" not in text  # a full stop ends the name of a class there
        assert ":::review_mark" in text


@pytest.mark.needs("formats")
def test_file_and_program_of_a_kind_load_where_its_part_is_enabled(install: Any, tmp_path: Path) -> None:
    module = importlib.import_module(install(CODE["kinds"]))
    hg.enable("review")
    workflow = marked(module).workflow()
    text = workflow.model_dump_json()
    assert Workflow.model_validate_json(text).model_dump_json() == text
    pytest.importorskip("jsonschema").Draft202012Validator(Workflow.model_json_schema()).validate(json.loads(text))
    (tmp_path / "program.py").write_text(str(render(workflow, ".py")), encoding="utf-8")
    program = f"import sys; sys.path[:0] = {sys.path!r}; import program; print(program.build().to_json())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == json.loads(text)


# -- when a part is read -----------------------------------------------------------------------------------------------


@pytest.mark.needs("formats")
def test_nothing_is_read_by_declaring_checking_compiling_and_files(install: Any, tmp_path: Path) -> None:
    modules = [install(code, f"part_{name}", f"acme-{name}") for name, code in CODE.items()]
    g = pipeline()
    g.check("amd:gfx942")
    with g.compile("recorder") as exe:
        exe.run()
    for extension in (".json", ".dot", ".yaml"):
        g.export(tmp_path / f"g{extension}")
    hg.Graph.from_json((tmp_path / "g.json").read_text())
    assert command("check", str(tmp_path / "g.json")) == 0
    assert command("show", str(tmp_path / "g.json"), "--enable", "part_checks") == 0
    assert [module for module in modules if module in sys.modules] == [m for m in modules if "acme_checks" in m]


def test_file_with_a_kind_that_is_not_enabled_says_what_to_do_and_imports_nothing(
    install: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = json.dumps({**json.loads(with_empty().to_json()), "nodes": [{"name": "mark", "kind": "review.mark"}]})
    (tmp_path / "g.json").write_text(text)
    with pytest.raises(hg.DeclarationError, match="of the part 'review' of another package, which is not installed"):
        hg.Graph.from_json(text)
    module = install(CODE["kinds"])
    said = r"of the part 'review' of acme-review 1\.0, which is not enabled: call hipgraphdsl\.enable\('review'\)"
    with pytest.raises(hg.DeclarationError, match=said):
        hg.Graph.from_json(text)
    assert command("check", str(tmp_path / "g.json")) == 1
    assert "--enable review" in capsys.readouterr().err
    assert module not in sys.modules
    assert command("check", str(tmp_path / "g.json"), "--enable", "review") == 0
    with pytest.raises(hg.DeclarationError, match=r"'review' of acme-review 1\.0 has none: its kinds are 'review\.mark'"):
        hg.Graph.from_json(text.replace("review.mark", "review.tick"))


def test_enable_option_makes_the_checks_of_a_part_apply(install: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(CODE["checks"].replace('"warning"', '"error"'))
    with_empty().export(tmp_path / "g.json")
    assert command("check", str(tmp_path / "g.json")) == 0
    assert command("check", str(tmp_path / "g.json"), "--enable", "review") == 1
    assert "REV101" in capsys.readouterr().out
    assert command("check", str(tmp_path / "g.json"), "--enable", "revue") == 1
    assert "no installed package has a part 'revue' (did you mean 'review'?)" in capsys.readouterr().err


# -- parts that cannot be used -----------------------------------------------------------------------------------------


def asked_of_command(name: str) -> None:
    assert command(name) == 2


ASKED: dict[str, Callable[[], object]] = {
    "runtimes": lambda: hg.open_runtime("vpu"),
    "formats": lambda: render(with_empty().workflow(), ".nam"),
    "commands": lambda: asked_of_command("count"),
    "checks": lambda: hg.enable("review"),
    "passes": lambda: hg.enable("review"),
    "kinds": lambda: hg.enable("review"),
}
"""For each mapping a call that reads parts for the sake of it, and that has no part that it asks for."""

FAULTS = {
    "protocol": (
        "PART = hg.Part(protocol=2, looms={})",
        "the part is written for protocol 2 of hipgraphdsl.parts, and this hipgraphdsl",
    ),
    "import": ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
    "code": ("PART = 1 / 0", "ZeroDivisionError: division by zero"),
    "absent": ("", "AttributeError: "),
    "class": ("PART = hg", "PART is no hipgraphdsl.Part (got module)"),
    "name": (
        "PART = hg.Part(protocol=1, runtimes={'T P U': print})",
        "runtimes of a part have names such as 'tpu' (got 'T P U')",
    ),
    "code of a check": (
        "PART = hg.Part(protocol=1, checks={'HG999': 1})",
        "checks of a part have names such as 'REV101' (got 'HG999')",
    ),
    "extension": (
        "PART = hg.Part(protocol=1, formats={'csv': print})",
        "formats of a part have names such as '.csv' (got 'csv')",
    ),
    "function": ("PART = hg.Part(protocol=1, passes={'spread': 3})", "called as change(plan, target); 'spread' is 3"),
    "command": (
        "PART = hg.Part(protocol=1, commands={'count': hg})",
        "it has no 'DESCRIPTION', 'EXAMPLES', 'add_arguments', 'run'",
    ),
    "kind of another": ("PART = hg.Part(protocol=1, kinds={'other.mark': int})", "its kinds begin with 'review.'"),
}
"""Modules with a part that cannot be used, and why."""


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("mapping", ASKED)
def test_part_that_cannot_be_used_is_refused_by_name(
    install: Any, mapping: str, fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, why = FAULTS[fault]
    install(code)
    try:
        ASKED[mapping]()
        said = capsys.readouterr().err
    except hg.HipGraphError as error:
        said = str(error)
    assert "part 'review' of acme-review 1.0 cannot be used: " in said
    assert why in said
    assert parts.ENABLED == {}


@pytest.mark.parametrize("mapping", ASKED)
def test_parts_of_one_name_are_refused_by_name(install: Any, mapping: str, capsys: pytest.CaptureFixture[str]) -> None:
    modules = [install(CODE[mapping]), install(CODE[mapping], package="zeta-review")]
    try:
        ASKED[mapping]()
        said = capsys.readouterr().err
    except hg.HipGraphError as error:
        said = str(error)
    assert "has a part of this name too: uninstall one of them" in said
    assert "acme-review 1.0" in said
    assert "zeta-review 1.0" in said
    assert not any(module in sys.modules for module in modules)


@pytest.mark.parametrize("mapping", ["runtimes", "formats", "commands"])
def test_unknown_name_lists_what_other_packages_add(install: Any, mapping: str, capsys: pytest.CaptureFixture[str]) -> None:
    install(CODE[mapping])
    install("import no_such_module", "broken", "acme-broken")
    try:
        ASKED[mapping]()
        said = capsys.readouterr().err
    except hg.HipGraphError as error:
        said = str(error)
    (part,) = (part for part in installed() if part.name == "review")
    (name,) = part.read().adds()[mapping]
    assert f"part 'review' of acme-review 1.0 adds {name!r}" in said
    assert "part 'broken' of acme-broken 1.0 cannot be used: ModuleNotFoundError" in said


@pytest.mark.parametrize(("mapping", "name"), [("runtimes", "tpu"), ("formats", ".names"), ("commands", "count-nodes")])
def test_name_that_two_parts_add_is_refused(install: Any, mapping: str, name: str) -> None:
    install(CODE[mapping], "first", "acme-first")
    install(CODE[mapping], "second", "acme-second")
    with pytest.raises(hg.DeclarationError, match=f"'{name}' is among the {mapping} of the parts 'first', 'second'"):
        extensions.offered(mapping, name)


TAKEN = {
    "a code": (CODE["checks"], CODE["checks"], "another part has the code 'REV101'"),
    "a class of another kind": (
        "", CODE["kinds"].replace('kind = "review.mark"', 'kind = "mark"'), "a class of nodes of this kind",
    ),
    "no class": ("", "PART = hg.Part(protocol=1, kinds={'review.mark': 3})", "derives from hipgraphdsl.Node (got 3)"),
    "no entry": ("", "PART = hg.Part(protocol=1, checks={'REV101': print})", "a hipgraphdsl.checks.Entry with a function"),
    "an entry without a check": (
        "", "PART = hg.Part(protocol=1, checks={'REV101': Entry('info', 'a', 'b')})", "a hipgraphdsl.checks.Entry with",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", TAKEN)
def test_enable_takes_all_parts_or_none(install: Any, what: str) -> None:
    first, second, why = TAKEN[what]
    install(first or CODE["passes"], "first", "acme-first")
    install(second, "review")
    before = (dict(CATALOGUE), dict(KINDS))
    with pytest.raises(hg.PartRefused) as caught:
        hg.enable("first", "review")
    assert (caught.value.part, caught.value.package) == ("review", "acme-review 1.0")
    assert why in caught.value.why
    assert (*before, {}) == (CATALOGUE, KINDS, parts.ENABLED)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("revue", "no installed package has a part 'revue' (did you mean 'review'?); parts of other packages are 'review'"),
        ("verify", "part 'verify' is of hipgraphdsl itself and needs no enabling"),
        (3, r"a part is named by the str of its entry point (got 3)"),
    ],
)
def test_enable_refuses_what_names_no_part(install: Any, name: Any, said: str) -> None:
    install(CODE["checks"])
    with pytest.raises(hg.DeclarationError) as caught:
        hg.enable(name)
    assert said in str(caught.value)


# -- hipgraphdsl parts -------------------------------------------------------------------------------------------------


@pytest.mark.needs("cpu", "imports")
def test_parts_command_lists_what_is_there_and_why_one_is_not(install: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("parts") == 0
    said = capsys.readouterr().out
    assert "no other package has a part" in said
    assert "the CPU runtime" in said
    install(CODE["formats"])
    install("import no_such_module", "broken", "acme-broken")
    install("PART = hg.Part(protocol=1, formats={'.svg': print})", "again", "acme-again")
    assert command("parts") == 0
    said = capsys.readouterr().out
    assert "lists of names (formats: .names)" in said
    assert "cannot be used: ModuleNotFoundError: No module named 'no_such_module'" in said
    assert "not used: .svg, which hipgraphdsl has itself" in said
    assert command("parts", "--json") == 0
    others = {part["name"]: part for part in json.loads(capsys.readouterr().out)["others"]}
    assert others["review"]["package"] == "acme-review 1.0"
    assert others["review"]["adds"] == {"formats": [".names"]}
    assert others["broken"]["adds"] == {}
    assert others["again"]["unused"] == [".svg"]


@pytest.mark.needs("cpu", "imports")
def test_parts_command_says_which_own_part_is_absent(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "hipgraphdsl.parts.imports", None)
    assert command("parts", "--json") == 0
    own = json.loads(capsys.readouterr().out)["own"]
    assert [name for name, part in own.items() if part["why"]] == ["imports", "verify"]
    assert own["cpu"]["adds"] == {"runtimes": ["cpu"], "commands": ["build"]}
    assert all(part["does"] for part in own.values())
