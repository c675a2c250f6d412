"""README.md and docs/ cannot rot: their Python runs, prints what they say it prints, and their links lead somewhere.

The Python blocks of one page run one after the other, as one program. A ``text`` block right after a Python block is
what that block prints; with HIPGRAPHDSL_UPDATE_DOCS=1 it is written anew instead of compared. A block after ``<!--
from PATH -->`` stands in that file of the project, word for word.
"""

from __future__ import annotations

import ast
import importlib
import io
import os
import re
import textwrap
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import hipgraphdsl

ROOT = Path(__file__).parent.parent
DIAGNOSTICS = sorted((ROOT / "docs" / "diagnostics").glob("*.md"))  # tests/unit/test_checks_pages.py runs their code
PAGES = [ROOT / "README.md", *sorted(set((ROOT / "docs").rglob("*.md")) - set(DIAGNOSTICS))]

FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ORIGIN = re.compile(r"<!-- from (\S+) -->\s*\Z")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)|<img[^>]+src=\"([^\"]+)\"")


PICTURE = re.compile(r"<!-- picture of (.*?) -->", re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    text: str
    line: int
    origin: str
    follows: bool  # nothing but space lies between it and the block before


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found: list[Any] = []
    end = 0
    for match in FENCE.finditer(text):
        before = text[end : match.start()]
        origin = ORIGIN.search(before)
        found.append(
            Block(
                language=match[1],
                text=match[2],
                line=text.count("\n", 0, match.start()) + 1,
                origin=origin[1] if origin else "",
                follows=bool(found) and not before.strip(),
            )
        )
        end = match.end()
    return found


def page_id(page: Path) -> str:
    return str(page.relative_to(ROOT))


def unpadded(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_python_of_page_runs_and_prints_what_the_page_says(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HIPGRAPHDSL_RUNTIME", "cpu")
    names: dict[str, Any] = {"__name__": "page"}
    printed = ""
    text = page.read_text(encoding="utf-8")
    pictures = [(text.count("\n", 0, match.start()) + 1, match[1]) for match in PICTURE.finditer(text)]
    for block in blocks(page):
        while pictures and pictures[0][0] < block.line:
            require_drawn(names, pictures.pop(0)[1])
        if block.language == "python" and not block.origin:
            out = io.StringIO()
            code = compile("\n" * block.line + block.text, str(page), "exec")
            with redirect_stdout(out):
                exec(code, names)
            printed = out.getvalue()
        elif block.language == "text" and block.follows:
            if os.environ.get("HIPGRAPHDSL_UPDATE_DOCS"):
                text = text.replace(f"```text\n{block.text}```", f"```text\n{unpadded(printed)}\n```", 1)
                page.write_text(text, encoding="utf-8")
            else:
                assert unpadded(printed) == unpadded(block.text), f"{page_id(page)}:{block.line}"

    for _, wanted in pictures:
        require_drawn(names, wanted)


def require_drawn(names: dict[str, Any], wanted: str) -> None:
    """Draw what a comment on a page asks for, `g, lanes=True: what it shows`, which the built site shows (docs/directives.py)."""
    called, _, alt = wanted.partition(": ")
    assert alt.strip()
    call = ast.parse(f"draw({called})", mode="eval").body
    assert isinstance(call, ast.Call)
    drawn = names[ast.unparse(call.args[0])]
    options = {word.arg: ast.literal_eval(word.value) for word in call.keywords if word.arg}
    if isinstance(drawn, hipgraphdsl.Timeline):
        assert isinstance(drawn.rows(**options), list)
    else:
        assert isinstance(drawn, hipgraphdsl.Graph)
        drawn.export(Path("picture.dot"), **options)


def test_every_public_name_has_an_entry_in_the_reference() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs" / "reference").glob("*.rst")))
    named = {name.rpartition(".")[2] for name in re.findall(r"^\.\. auto(?:class|function|data):: (\S+)", text, re.MULTILINE)}
    for module in re.findall(r"^\.\. automodule:: (\S+)\n   :members:", text, re.MULTILINE):
        named |= set(importlib.import_module(module).__all__)
    assert set(hipgraphdsl.__all__) - {"__version__"} - named == set()


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_block_that_names_a_file_stands_in_it(page: Path) -> None:
    missing = []
    for block in blocks(page):
        if block.origin:
            source = textwrap.dedent((ROOT / block.origin).read_text(encoding="utf-8"))
            lines = [line.strip() for line in source.splitlines()]
            wanted = [line.strip() for line in block.text.strip("\n").splitlines()]
            if not any(lines[i : i + len(wanted)] == wanted for i in range(len(lines))):
                missing.append(f"line {block.line}: not in {block.origin}")
    assert missing == []


@pytest.mark.parametrize("page", [*PAGES, *DIAGNOSTICS], ids=page_id)
def test_links_of_page_lead_to_files_of_the_project(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    targets = [next(filter(None, match)) for match in LINK.findall(text)]
    local = [target.partition("#")[0] for target in targets if not re.match(r"https?://|mailto:|#", target)]
    assert [target for target in local if not (page.parent / target).exists()] == []


def test_annotations_hold_no_f_string() -> None:
    """Sphinx cannot read a module that has one, and leaves its source out of the site."""
    found = []
    for path in sorted((ROOT / "hipgraphdsl").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.AnnAssign) and any(isinstance(part, ast.JoinedStr) for part in ast.walk(node.annotation)):
                found.append(f"{page_id(path)}:{node.lineno}")
    assert found == []
