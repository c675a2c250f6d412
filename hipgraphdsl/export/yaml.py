"""The JSON document as YAML, with the source of kernels as plain text; needs PyYAML."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import DeclarationError
from ..workflow import Workflow
from . import need
from .document import document
from .json import from_document
from .json_text import MAX_BYTES, MAX_NESTING

if TYPE_CHECKING:
    from ..graph import Graph

__all__ = ["loads", "render"]

_LINES = ("arrays", "parameters", "nodes", "order")


class _Line(dict[str, Any]):
    """A mapping that is written on one line."""


class _Pair(list[Any]):
    """A list that is written on one line."""


def render(workflow: Workflow) -> str:
    """Return a workflow as YAML, one array, parameter or node a line.

    Raises
    ------
    DeclarationError
        As for the JSON form; or if PyYAML is not there.
    """
    yaml = need("yaml", "pyyaml")

    class Dumper(yaml.SafeDumper):  # type: ignore[misc,name-defined]  # of a package that is loaded when needed
        def ignore_aliases(self, data: Any) -> bool:
            return True

    def text(dumper: Any, value: str) -> Any:
        style = "|" if "\n" in value else "'" if not isinstance(_scalar(value), str) else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    Dumper.add_representer(_Line, lambda d, v: d.represent_mapping("tag:yaml.org,2002:map", v, flow_style=True))
    Dumper.add_representer(_Pair, lambda d, v: d.represent_sequence("tag:yaml.org,2002:seq", v, flow_style=True))
    data = document(workflow)
    for section in (data, *data.get("workflows", {}).values()):
        for key in _LINES:
            section[key] = [_Pair(item) if isinstance(item, list) else _Line(item) for item in section[key]]
    for module in data["modules"].values():
        if "source" in module:
            module["source"] = "\n".join(module["source"])
    written: str = yaml.dump(data, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=float("inf"))
    return written


def loads(
    text: str,
    graph_type: type[Graph],
    arrays: Mapping[str, Any] | None = None,
    callbacks: Mapping[str, Callable[..., Any]] | None = None,
) -> Graph:
    """Return the graph that a YAML text from `render` describes; parameters and limits as for `json.loads`.

    Scalars are read as JSON reads them, so that ``no`` and ``12:30`` are text. Anchors, aliases and tags are refused:
    a file that comes from anywhere must not be able to grow.

    Raises
    ------
    DeclarationError
        If the text is no workflow, or PyYAML is not there.
    """
    yaml = need("yaml", "pyyaml")
    if len(text) > MAX_BYTES:
        raise DeclarationError(f"a workflow file has at most {MAX_BYTES // 2**20} MB (got {len(text) / 2**20:.1f} MB)")
    depth = 0
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            line = event.start_mark.line + 1
            if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
                raise DeclarationError(f"workflow file, line {line}: anchors and aliases are not read")
            if getattr(event, "tag", None):
                raise DeclarationError(f"workflow file, line {line}: tags are not read (got {event.tag})")
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
                if depth > MAX_NESTING:
                    raise DeclarationError(f"workflow file, line {line}: it is nested deeper than {MAX_NESTING}")
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
        data = _plain(yaml, yaml.compose(text, Loader=yaml.SafeLoader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
        raise DeclarationError(f"workflow file, {where}{getattr(error, 'problem', None) or error}") from None
    return from_document(data, graph_type, arrays, callbacks)


def _plain(yaml: Any, node: Any) -> Any:
    """Return a composed YAML node as JSON data."""
    if node is None:
        return None
    if isinstance(node, yaml.MappingNode):
        found: dict[str, Any] = {}
        for key, value in node.value:
            name = key.value
            if not isinstance(name, str) or name in found:
                raise DeclarationError(
                    f"workflow file, line {key.start_mark.line + 1}: key {str(name)[:60]!r} stands twice or is no text"
                )
            found[name] = _plain(yaml, value)
        return found
    if isinstance(node, yaml.SequenceNode):
        return [_plain(yaml, item) for item in node.value]
    return _scalar(node.value) if node.style is None else node.value


def _scalar(text: str) -> Any:
    """Return a plain scalar as JSON would read it: null, true, false, a number, else text."""
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
