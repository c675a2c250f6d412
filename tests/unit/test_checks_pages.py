"""The pages of docs/diagnostics against the catalogue: each example yields its code, each repair does not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from hipgraphdsl import checks
from hipgraphdsl.checks import CATALOGUE, Report

PAGES = Path(__file__).parents[2] / "docs" / "diagnostics"
NEEDS = {**dict.fromkeys(("HG207", "HG409", "HG606"), ("bounds",)), "HG604": ("cpu", "imports")}
"""Codes whose pages run parts."""
CODES = [pytest.param(code, marks=pytest.mark.needs(*NEEDS.get(code, ()))) for code in CATALOGUE]


def blocks(code: str, heading: str) -> str:
    text = (PAGES / f"{code}.md").read_text()
    section = text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    found = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    assert len(found) == 1, f"{code}: one block of Python under {heading}"
    return str(found[0])


def report_of(code: str, heading: str) -> Report:
    names: dict[str, Any] = {}
    exec(compile(blocks(code, heading), f"{code}.md, {heading}", "exec"), names)
    report = names.get("report") or names["g"].check()
    assert isinstance(report, Report)
    return report


def test_catalogue_and_pages_name_the_same_codes() -> None:
    pages = {path.stem for path in PAGES.glob("HG*.md")}
    assert pages == set(CATALOGUE)


@pytest.mark.parametrize("code", CATALOGUE)
def test_page_says_what_the_catalogue_says(code: str) -> None:
    entry = CATALOGUE[code]
    text = (PAGES / f"{code}.md").read_text()
    assert text.startswith(f"# {code}: {entry.title}\n\n**{entry.severity.capitalize()}.** {entry.summary}\n")
    assert f"| [{code}]({code}.md) | {entry.severity} | {entry.title} | {entry.summary} |" in (PAGES / "index.md").read_text()


@pytest.mark.parametrize("code", CODES)
def test_example_yields_exactly_its_code(code: str) -> None:
    report = report_of(code, "Example")
    assert report.codes == (code,), str(report)
    assert report.diagnostics[0].severity == CATALOGUE[code].severity


@pytest.mark.parametrize("code", CODES)
def test_repair_yields_no_fault(code: str) -> None:
    report = report_of(code, "Repair")
    assert code not in report.codes, str(report)
    faults = (*report.errors, *report.warnings)
    assert not faults, str(report)


@pytest.mark.parametrize("heading", ["Example", "Repair"])
@pytest.mark.parametrize("code", CODES)
def test_what_compile_asks_for_are_all_errors(code: str, heading: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check, asked = checks.check_workflow, []

    def both(*args: Any, **options: Any) -> Report:
        found, errors = (check(*args, **{**options, "errors_only": only}) for only in (False, True))
        assert errors.errors == found.errors
        assert {*errors.diagnostics} <= {*found.diagnostics}
        asked.append(errors)
        return errors if options.get("errors_only") else found

    monkeypatch.setattr(checks, "check_workflow", both)
    report_of(code, heading)
    assert asked
