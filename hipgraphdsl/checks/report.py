"""Diagnostic and Report: the findings of `check`, as text for people and as JSON and SARIF for tools."""

from __future__ import annotations

import html
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ..printed import Printed, counted
from .catalogue import CATALOGUE, Severity

_RANK = {"error": 0, "warning": 1, "info": 2}
_LEVELS = {"error": "error", "warning": "warning", "info": "note"}
_STYLES = {"error": "bold red", "warning": "yellow", "info": "cyan"}
_COLOURS = {"error": "#c0392b", "warning": "#b9770e", "info": "#2471a3"}
_DOCS = "docs/diagnostics"
_MOST_SHOWN = 60  # printed per severity; to_json and to_sarif return all


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding.

    Attributes
    ----------
    code : str
        A key of the catalogue, ``"HG201"``.
    severity : {"error", "warning", "info"}
    message : str
        The node, the fault and the value found.
    nodes : tuple of str
        Nodes involved; inside a child graph ``child/x``.
    arrays : tuple of str
        Arrays and parameters involved.
    hint : str
        How to fix it; may be empty.
    sources : tuple of (str, int)
        File and line of the declaration of each of `nodes`, if known.
    """

    code: str
    severity: Severity
    message: str
    nodes: tuple[str, ...] = ()
    arrays: tuple[str, ...] = ()
    hint: str = ""
    sources: tuple[tuple[str, int], ...] = ()

    @property
    def title(self) -> str:
        """The title of its code in the catalogue."""
        return CATALOGUE[self.code].title

    def __str__(self) -> str:
        return f"{self.code} {self.severity}: {self.message}" + (f"; {self.hint}" if self.hint else "")

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "code": self.code, "severity": self.severity, "title": self.title,
            "message": self.message, "hint": self.hint,
            "nodes": list(self.nodes), "arrays": list(self.arrays),
            "sources": [{"file": file, "line": line} for file, line in self.sources],
        }  # fmt: skip


@dataclass(frozen=True, repr=False)
class Report(Printed):
    """All findings about one graph, errors first.

    A Report is always truthy, like most objects; use `ok` or `errors` to test it.

    Attributes
    ----------
    graph : str
        The graph's name.
    target : str or None
        The target whose limits were checked too.
    diagnostics : tuple of Diagnostic
        Errors, then warnings, then infos; each in the order of the checks, and within a check in order of declaration.
    ignored : tuple of (Diagnostic, str)
        Diagnostics that a node's `ignore` suppressed, with the reason.
    """

    graph: str
    target: str | None = None
    diagnostics: tuple[Diagnostic, ...] = ()
    ignored: tuple[tuple[Diagnostic, str], ...] = field(default=())

    def __post_init__(self) -> None:
        ordered = tuple(sorted(self.diagnostics, key=lambda d: _RANK[d.severity]))
        object.__setattr__(self, "diagnostics", ordered)

    def __iter__(self) -> Iterator[Diagnostic]:
        return iter(self.diagnostics)

    @cached_property
    def errors(self) -> tuple[Diagnostic, ...]:
        """Faults for which compile refuses the graph."""
        return self._of("error")

    @cached_property
    def warnings(self) -> tuple[Diagnostic, ...]:
        """Findings that are almost certainly unintended."""
        return self._of("warning")

    @cached_property
    def infos(self) -> tuple[Diagnostic, ...]:
        """Advice, and findings that only the user can judge."""
        return self._of("info")

    def _of(self, severity: Severity) -> tuple[Diagnostic, ...]:
        return tuple(d for d in self.diagnostics if d.severity == severity)

    @property
    def ok(self) -> bool:
        """Whether there is no error; warnings and infos do not count."""
        return not self.errors

    @property
    def exit_code(self) -> int:
        """0 without errors, else 1: the exit status of a command that checks a graph."""
        return int(not self.ok)

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes that occur, without repeats."""
        return tuple(dict.fromkeys(d.code for d in self.diagnostics))

    # -- for people ----------------------------------------------------------------------------------------------------

    def _headline(self) -> str:
        found = {"error": self.errors, "warning": self.warnings, "info": self.infos}
        parts = [counted(len(some), word) for word, some in found.items() if some]
        if self.ignored:
            parts.append(f"{len(self.ignored)} ignored")
        on = f" on {self.target}" if self.target else ""
        return f"graph {self.graph!r}{on}: {', '.join(parts) or 'nothing found'}"

    def _shown(self) -> Iterator[Diagnostic | str]:
        """Yield the printed diagnostics; beyond `_MOST_SHOWN` of one severity, one line counts the rest."""
        for found in (self.errors, self.warnings, self.infos):
            yield from found[:_MOST_SHOWN]
            if len(found) > _MOST_SHOWN:
                yield f"... {len(found) - _MOST_SHOWN} more, see .diagnostics or to_json()"

    def _pieces(self) -> Iterator[tuple[str, str]]:
        yield self._headline(), "bold red" if self.errors else "yellow" if self.warnings else "green"
        for d in self._shown():
            if isinstance(d, str):
                yield f"\n  {d}", "dim"
                continue
            yield f"\n  {d.code} {d.severity:<7}", _STYLES[d.severity]
            yield f" {d.message}", "default"
            if d.hint:
                yield f"\n{'':16}{d.hint}", "green"
            if d.sources:
                yield f"\n{'':16}at {_places(d)}", "dim"

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        rows = ""
        for d in self._shown():
            if isinstance(d, str):
                rows += f"<tr><td></td><td style='text-align:left'>{html.escape(d)}</td></tr>"
                continue
            lines = [html.escape(d.message)]
            if d.hint:
                lines.append(f"<i>{html.escape(d.hint)}</i>")
            if d.sources:
                lines.append(f"<small>at {html.escape(_places(d))}</small>")
            rows += (
                f"<tr><td style='color:{_COLOURS[d.severity]};white-space:nowrap'><b>{d.code}</b> {d.severity}</td>"
                f"<td style='text-align:left'>{'<br>'.join(lines)}</td></tr>"
            )
        table = f"<table>{rows}</table>" if rows else ""
        return {"text/plain": str(self), "text/html": f"<p>{html.escape(self._headline())}</p>{table}"}

    # -- for tools -----------------------------------------------------------------------------------------------------

    def to_json(self) -> str:
        """Return the report as JSON."""
        document = {
            "version": 1,
            "graph": self.graph,
            "target": self.target,
            "ok": self.ok,
            "diagnostics": [d.to_dict() for d in self.diagnostics],
            "ignored": [{**d.to_dict(), "reason": reason} for d, reason in self.ignored],
        }
        return json.dumps(document, indent=1)

    def to_sarif(self, file: str | os.PathLike[str] | None = None) -> str:
        """Return the report as SARIF 2.1.0, for code hosts and editors.

        Diagnostics that `ignore` suppressed are included, as suppressed in source with their justification. Code hosts refuse a
        finding without a file, and some findings concern no node, or one whose line is not known.

        Parameters
        ----------
        file : str or path, optional
            The file that such findings name. Default: that of the first finding with a line in a file, else the graph's name.
        """
        places = [place for d in self for place in _files(d)]
        nowhere = [_location(os.fspath(file) if file is not None else places[0][0] if places else self.graph)]
        found = [(d, "") for d in self.diagnostics] + list(self.ignored)
        codes = sorted({d.code for d, _ in found})
        rules = [
            {
                "id": code,
                "name": "".join(word.capitalize() for word in CATALOGUE[code].title.replace("'", "").split()),
                "shortDescription": {"text": CATALOGUE[code].title},
                "fullDescription": {"text": CATALOGUE[code].summary},
                "help": {"text": CATALOGUE[code].summary + ("" if CATALOGUE[code].check else f" See {_DOCS}/{code}.md.")},
                "defaultConfiguration": {"level": _LEVELS[CATALOGUE[code].severity]},
            }
            for code in codes
        ]
        results = []
        for d, reason in found:
            result: dict[str, Any] = {
                "ruleId": d.code,
                "ruleIndex": codes.index(d.code),
                "level": _LEVELS[d.severity],
                "message": {"text": d.message + (f"; {d.hint}" if d.hint else "")},
            }
            names = [{"name": name, "fullyQualifiedName": f"{self.graph}/{name}", "kind": "element"} for name in d.nodes]
            first, *others = [_location(file, line) for file, line in _files(d)] or nowhere
            result["locations"] = [{**first, "logicalLocations": names} if names else first]
            if others:
                result["relatedLocations"] = [{"id": n, **place} for n, place in enumerate(others, 1)]
            if reason:
                result["suppressions"] = [{"kind": "inSource", "justification": reason}]
            results.append(result)
        package = sys.modules[__name__.partition(".")[0]]  # which is below this module, and imports it
        driver = {"name": package.__name__, "version": package.__version__, "rules": rules}
        document = {
            "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
            "version": "2.1.0",
            "runs": [{"tool": {"driver": driver}, "results": results}],
        }
        return json.dumps(document, indent=1)


def _files(diagnostic: Diagnostic) -> list[tuple[str, int]]:
    """Return a diagnostic's places in files: none in a text (``<workflow file>``) or in an interactive session (``<stdin>``)."""
    return [place for place in diagnostic.sources if not (place[0].startswith("<") and place[0].endswith(">"))]


def _places(diagnostic: Diagnostic) -> str:
    return ", ".join(f"{_short_path(file)}:{line}" for file, line in diagnostic.sources)


def _short_path(file: str) -> str:
    """Return a path relative to the working directory if it is inside it."""
    try:
        relative = os.path.relpath(file)
    except ValueError:  # another drive
        return file
    return file if relative.startswith("..") else relative


def _location(file: str, line: int = 1) -> dict[str, Any]:
    short = _short_path(file)
    uri = Path(file).as_uri() if os.path.isabs(short) else quote(Path(short).as_posix())
    return {"physicalLocation": {"artifactLocation": {"uri": uri}, "region": {"startLine": max(line, 1)}}}
