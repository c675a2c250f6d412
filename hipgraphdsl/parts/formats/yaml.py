"""The JSON document as YAML, with kernel source as plain text; needs PyYAML."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NoReturn

from ...document.reader import Loader
from ...document.text import MAX_NESTING, Place
from ...errors import DeclarationError
from ...export.files import need
from ...nodes import all_kinds
from ...nodes.workflow import Workflow

_LINES = ("arrays", "parameters", "nodes", "order")
_MAX_BYTES = 16 * 2**20
_MAX_BYTES_SLOW = 2**20  # without libyaml, which is 20 times faster than pure Python
_MAX_VALUES = 2_000_000  # about 2 us and 100 bytes each
_TAKEN = re.compile(r"[-+.0-9]|(?:y|n|yes|no|on|off|true|false|null)\Z", re.IGNORECASE)
"""Text that readers of some version of YAML take for a number, a date, a truth value or nothing."""
_BREAKS = frozenset("\x85\u2028\u2029")  # line breaks in YAML, besides "\r" and "\n"


class _Line(dict[str, Any]):
    """A mapping written on one line."""


class _Pair(list[Any]):
    """A list written on one line."""


def render(workflow: Workflow) -> str:
    """Return a workflow as YAML, one array, parameter or node per line; refuses what the JSON form refuses."""
    yaml = need("yaml", "pyyaml")

    class Dumper(yaml.SafeDumper):  # type: ignore[misc,name-defined]  # of a package that is loaded when needed
        def ignore_aliases(self, data: Any) -> bool:
            return True

    def text(dumper: Any, value: str) -> Any:
        style: str | None = None
        if _BREAKS & {*value}:
            style = '"'  # escaped: the other styles lose these characters
        elif "\n" in value:
            style = "|"
        elif _TAKEN.match(value) or not isinstance(_scalar(value), str):
            style = "'"
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    Dumper.add_representer(_Line, lambda d, v: d.represent_mapping("tag:yaml.org,2002:map", v, flow_style=True))
    Dumper.add_representer(_Pair, lambda d, v: d.represent_sequence("tag:yaml.org,2002:seq", v, flow_style=True))
    data = workflow.document()
    for section in (data, *data.get("workflows", {}).values()):
        for key in _LINES:
            section[key] = [_Pair(item) if isinstance(item, list) else _Line(item) for item in section[key]]
    for module in data["modules"].values():
        if "source" in module:
            module["source"] = "\n".join(module["source"])
    written: str = yaml.dump(data, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=float("inf"))
    return written


def loads(
    text: str, arrays: Mapping[str, Any] | None = None, callbacks: Mapping[str, Callable[..., Any]] | None = None
) -> Workflow:
    """Return the workflow of a YAML text that `render` wrote; parameters as for `Graph.from_json`.

    Scalars are interpreted as in JSON, so that ``no`` and ``12:30`` are text. Anchors, aliases and tags are refused: an
    untrusted file must not expand when it is read. In addition to the limits of JSON, a file has at most 16 MB (1 MB if
    PyYAML is built without libyaml) and two million values.
    """
    yaml = need("yaml", "pyyaml")
    fast = getattr(yaml, "CSafeLoader", None)
    most = _MAX_BYTES if fast else _MAX_BYTES_SLOW
    if len(text) > most:
        why = "" if fast else "; PyYAML is built without libyaml here"
        raise DeclarationError(
            f"a YAML file has at most {most // 2**20} MB (got {len(text) / 2**20:.1f} MB){why}; write the workflow as .json"
        )
    try:
        data = _data(yaml, yaml.parse(text, Loader=fast or yaml.SafeLoader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
        raise DeclarationError(f"workflow file, {where}{getattr(error, 'problem', None) or error}") from None
    return Loader(all_kinds(), Workflow.of, arrays, callbacks).data(data, partial(_line_of, yaml, text, fast or yaml.SafeLoader))


def _line_of(yaml: Any, text: str, loader: Any, place: Place) -> int:
    """Return the line where an element begins; of the one that should hold it, if it is missing."""
    node = yaml.compose(text, Loader=loader)
    for step in place:
        pairs = enumerate(node.value) if isinstance(step, int) else ((key.value, value) for key, value in node.value)
        node = next((value for key, value in pairs if key == step), node)
    return int(node.start_mark.line) + 1


def _refuse(event: Any, message: str) -> NoReturn:
    raise DeclarationError(f"workflow file, line {event.start_mark.line + 1}: {message}")


def _data(yaml: Any, events: Iterator[Any]) -> Any:
    """Return one document's events as JSON data."""
    root: list[Any] = []
    open_: list[Any] = [root]  # the list or mapping that an event belongs to, and the enclosing ones
    keys: list[str | None] = [None]  # for each of them, the key whose value comes next
    documents = 0
    for count, event in enumerate(events):
        kind = type(event)
        inside = open_[-1]
        if kind is yaml.SequenceEndEvent or kind is yaml.MappingEndEvent:
            open_.pop()
            keys.pop()
            continue
        if kind is yaml.DocumentStartEvent:
            documents += 1
        if kind not in (yaml.ScalarEvent, yaml.SequenceStartEvent, yaml.MappingStartEvent, yaml.AliasEvent) and documents < 2:
            continue
        if documents > 1:
            _refuse(event, "a second document begins; a file holds one workflow")
        if kind is yaml.AliasEvent or event.anchor:
            _refuse(event, "anchors and aliases are not read")
        if event.tag:
            _refuse(event, f"tags are not read (got {event.tag})")
        if count > _MAX_VALUES:
            _refuse(event, f"a YAML file has at most {_MAX_VALUES} values; write the workflow as .json")
        value: Any
        if kind is yaml.ScalarEvent:
            value = event.value if event.style else _scalar(event.value)
        else:
            value = [] if kind is yaml.SequenceStartEvent else {}
        if type(inside) is list:
            inside.append(value)
        elif keys[-1] is None:
            if kind is not yaml.ScalarEvent or event.value in inside:
                _refuse(event, f"key {str(event.value)[:60] if kind is yaml.ScalarEvent else value!r} stands twice or is no text")
            keys[-1] = event.value
            continue
        else:
            inside[keys[-1]] = value
            keys[-1] = None
        if kind is not yaml.ScalarEvent:
            if len(open_) > MAX_NESTING:
                _refuse(event, f"it is nested deeper than {MAX_NESTING}")
            open_.append(value)
            keys.append(None)
    return root[0] if root else None


def _scalar(text: str) -> Any:
    """Return a plain scalar as JSON interprets it: null, true, false, a number, else text."""
    words = {"null": None, "~": None, "": None, "true": True, "false": False}
    if text in words:
        return words[text]
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit() and len(digits) <= 40:
        return int(text)
    if digits[:1].isdigit() and set(digits) <= set("0123456789.eE+-"):
        try:
            return float(text)
        except ValueError:
            return text
    return text
