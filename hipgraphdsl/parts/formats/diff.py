"""Differences between two workflows, by name: added, removed, changed field by field, rewired."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from ...document.writer import data_of
from ...nodes.workflow import Workflow
from ...printed import Printed, short
from ...update import paired

How = Literal["added", "removed", "changed", "rewired"]
_MARKS: dict[How, str] = {"added": "+", "removed": "-", "changed": "~", "rewired": "*"}
_STYLES = {"added": "green", "removed": "red", "changed": "yellow", "rewired": "cyan"}


@dataclass(frozen=True, slots=True)
class Entry:
    """One difference."""

    how: How
    what: str  # "graph", "module", "array", "parameter", "node" or "workflow"
    name: str  # inside a child graph "<workflow>/<name>"
    field: str = ""  # what changed: "grid", "args[1] (a)", "waits for"; empty if the whole object was added or removed
    old: Any = None  # as stored in a file; None if absent
    new: Any = None

    def __str__(self) -> str:
        head = f"{_MARKS[self.how]} {self.what} {self.name!r}"
        if self.how in ("added", "removed"):
            summary = _summary(self.new if self.how == "added" else self.old)
            return head + (f"  {summary}" if summary else "")
        if self.how == "rewired":
            parts = [f"no longer waits for {edge}" for edge in self.old] + [f"now waits for {edge}" for edge in self.new]
            return f"{head} {'; '.join(parts)}"
        if self.field == "source" and self.what == "module":
            return "\n".join([f"{head} source:", *("    " + line for line in source_diff(self.old, self.new))])
        return f"{head} {self.field}: {_shown(self.old)} -> {_shown(self.new)}"

    def to_dict(self) -> dict[str, Any]:
        """Return the entry as plain data."""
        left_out = {"field": not self.field, "old": self.how == "added", "new": self.how == "removed"}
        return {field.name: getattr(self, field.name) for field in fields(self) if not left_out.get(field.name)}


@dataclass(frozen=True, repr=False)
class Difference(Printed):
    """All differences between two workflows."""

    old: str  # names of the two graphs
    new: str
    entries: tuple[Entry, ...]  # in the order of the new workflow, removed ones last

    @property
    def same(self) -> bool:
        """Whether there are no differences."""
        return not self.entries

    def of(self, how: How) -> tuple[Entry, ...]:
        """Return the entries of one kind."""
        return tuple(entry for entry in self.entries if entry.how == how)

    def _pieces(self) -> Iterator[tuple[str, str]]:
        if self.same:
            yield f"{self.old!r} and {self.new!r} are the same workflow", "green"
            return
        counts = ", ".join(f"{len(self.of(how))} {how}" for how in _MARKS if self.of(how))
        yield f"{self.old!r} -> {self.new!r}: {counts}", "bold"
        for entry in self.entries:
            yield f"\n  {entry}", _STYLES[entry.how]

    def to_json(self) -> str:
        """Return the differences as JSON, one per line."""
        lines = [json.dumps(entry.to_dict(), ensure_ascii=False) for entry in self.entries]
        body = ",\n  ".join(lines)
        facts = {"version": 1, "old": self.old, "new": self.new, "same": self.same}
        head = "".join(f" {json.dumps(key)}: {json.dumps(value)},\n" for key, value in facts.items())
        return f'{{\n{head} "differences": [' + (f"\n  {body}\n ]\n}}\n" if lines else "]\n}\n")


def compare(old: Any, new: Any) -> Difference:
    """Return the differences between two workflows or graphs.

    Nodes, arrays and parameters are paired by name, so a changed position is no difference. Modules whose names are only a hash
    of their contents are paired in order.
    """
    first: Workflow = old.workflow()
    second: Workflow = new.workflow()
    (a, children_a), (b, children_b) = data_of(first, strict=False), data_of(second, strict=False)
    entries: list[Entry] = []
    if a["name"] != b["name"]:
        entries.append(Entry("changed", "graph", b["name"], "name", a["name"], b["name"]))
    modules_a, modules_b = a["modules"], b["modules"]
    pairs = _paired_modules(modules_a, modules_b)
    if any(x != y for x, y in pairs.items()):
        a = _renamed(a, pairs)
        modules_a = {pairs.get(key, key): module for key, module in modules_a.items()}
    entries += _compare_named("module", "", modules_a, modules_b)
    entries += _compare_workflows("", a, b, first, second)
    inner_a, inner_b = a.get("workflows", {}), b.get("workflows", {})
    for key, body in inner_b.items():
        if key in inner_a:
            entries += _compare_workflows(f"{key}/", inner_a[key], body, children_a[key], children_b[key])
        else:
            entries.append(Entry("added", "workflow", key, new={"nodes": len(body["nodes"])}))
    entries += [
        Entry("removed", "workflow", key, old={"nodes": len(body["nodes"])})
        for key, body in inner_a.items()
        if key not in inner_b
    ]
    return Difference(first.name, second.name, tuple(entries))


def source_diff(old: list[str], new: list[str]) -> list[str]:
    """Return a unified diff of two sources, without its header."""
    return list(difflib.unified_diff(old, new, lineterm="", n=1))[2:]


def _paired_modules(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, str]:
    """Return old key -> new key of modules that are versions of each other."""
    pairs = {key: key for key in old if key in new}

    def unnamed(keys: Mapping[str, Any]) -> list[str]:
        return [key for key in keys if key not in pairs and re.fullmatch(r"kernels_[0-9a-f]{8}", key)]

    pairs.update(zip(unnamed(old), unnamed(new)))
    return pairs


def _renamed(data: Any, names: Mapping[str, str]) -> Any:
    """Return data with references to modules renamed."""
    if isinstance(data, list):
        return [_renamed(item, names) for item in data]
    if not isinstance(data, dict):
        return data
    out = {}
    for key, value in data.items():
        if key in ("kernel", "symbol") and isinstance(value, str) and ":" in value:
            module, _, member = value.partition(":")
            out[key] = f"{names.get(module, module)}:{member}"
        else:
            out[key] = _renamed(value, names) if key != "modules" else value
    return out


def _compare_workflows(prefix: str, a: Any, b: Any, old: Workflow, new: Workflow) -> list[Entry]:
    entries = []
    if a["infer"] != b["infer"]:
        entries.append(Entry("changed", "graph", prefix.rstrip("/") or new.name, "infer", a["infer"], b["infer"]))
    for section, what in (("arrays", "array"), ("parameters", "parameter")):
        entries += _compare_named(what, prefix, _by_name(a[section]), _by_name(b[section]))
    nodes_a, nodes_b = _by_name(a["nodes"]), _by_name(b["nodes"])
    for name, before, after, lost, come in paired(old, new):
        full = prefix + name
        if after is None:
            entries.append(Entry("removed", "node", full, old=nodes_a[name]))
        elif before is None:
            entries.append(Entry("added", "node", full, new=nodes_b[name]))
        else:
            declared = all(kernel.signature is not None for kernel in after.kernels)  # otherwise the names are generated
            names = after.argument_names if declared else ()
            entries += _changes("node", full, nodes_a[name], nodes_b[name], names)
            if lost or come:
                edges = [[f"{source!r} ({why})" for source, why in found.items()] for found in (lost, come)]
                entries.append(Entry("rewired", "node", full, "waits for", *edges))
    return entries


def _by_name(items: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {item["name"]: item for item in items}


def _compare_named(what: str, prefix: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Entry]:
    entries = []
    for name, data in new.items():
        if name in old:
            entries += _changes(what, prefix + name, old[name], data, ())
        else:
            entries.append(Entry("added", what, prefix + name, new=data))
    return entries + [Entry("removed", what, prefix + name, old=data) for name, data in old.items() if name not in new]


def _changes(what: str, name: str, old: Mapping[str, Any], new: Mapping[str, Any], arguments: Sequence[str]) -> list[Entry]:
    entries = []
    for field in dict.fromkeys((*old, *new)):
        before, after = old.get(field), new.get(field)
        if _same(before, after) or field == "name":
            continue
        if field in ("args", "values") and isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
            for i, (x, y) in enumerate(zip(before, after)):
                if not _same(x, y):
                    known = f" ({arguments[i]})" if field == "args" and i < len(arguments) else ""
                    entries.append(Entry("changed", what, name, f"{field}[{i}]{known}", x, y))
        else:
            entries.append(Entry("changed", what, name, field, before, after))
    return entries


def _same(a: Any, b: Any) -> bool:
    """Return whether two stored values are equal and of the same type: 1, 1.0 and true differ, and so do 0.0 and -0.0."""
    return type(a) is type(b) and a == b and json.dumps(a) == json.dumps(b)


def _summary(data: Any) -> str:
    if "source" in data:
        return f"{len(data['source'])} lines"
    return " ".join(f"{key}={_shown(value)}" for key, value in data.items() if key not in ("name", "values", "base64"))


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, dict) and len(value) == 1:
        ((tag, inner),) = value.items()
        if isinstance(inner, str) and tag in ("param", "symbol", "read", "write", "update", "float", "python"):
            return inner if tag in ("param", "symbol", "float", "python") else f"{tag}s({inner})"
    return short(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), 100)
