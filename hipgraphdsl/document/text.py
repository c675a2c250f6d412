"""Read a workflow file's text as data with line numbers; reject hostile text."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple, NoReturn

import numpy as np

from ..errors import DeclarationError
from ..nodes.values import MAX_DIGITS, Data

MAX_BYTES = 64 * 2**20
MAX_NODES = 1_000_000
MAX_NESTING = 64
_MAX_BRACKETS = 4_000_000  # each becomes a Python object of up to 300 bytes before it is validated
_MAX_COMMAS = 10_000_000  # outside of strings; limits the Python objects for numbers
_MAX_CHILDREN = 10_000  # modules and distinct child graphs of a file
_MAX_FIELDS = 100  # of a workflow, which has three; unknown ones are reported once the version is known


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise DeclarationError(f"key {twice[:60]!r} stands twice")
    return found


def _parse_int(text: str) -> int:
    if len(text) > MAX_DIGITS + 1:
        raise DeclarationError(f"an integer of {len(text)} digits is too long")
    return int(text)


def _parse_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise DeclarationError(f"{text[:40]} is too large for a float")
    return value


def _parse_constant(text: str) -> NoReturn:
    raise DeclarationError(f'{text} is no JSON; write {{"float": "{text.replace("Infinity", "inf").lower()}"}}')


_decoder = json.JSONDecoder(object_pairs_hook=_pairs, parse_constant=_parse_constant)
_judging_decoder = json.JSONDecoder(  # five times slower for numbers
    object_pairs_hook=_pairs, parse_int=_parse_int, parse_float=_parse_float, parse_constant=_parse_constant
)
_LARGE_EXPONENT = re.compile(r"[eE]\+?[0-9]{3}")
_SPACE = re.compile(r"[ \t\r\n]*")

Place = tuple[str | int, ...]
"""Where an element stands in a document: the keys and indices that lead to it."""
LineOf = Callable[[Place], int]
"""Returns the line of an element, or of the one that should hold it, if it is missing."""


class Document:
    """The data of a workflow file.

    Parameters
    ----------
    text : str
    numbered : bool
        False if the user does not see the text, so that messages omit line numbers.
    line_of : callable, optional
        For a text that the user does not see: the line of an element in the file that it was made from.

    Attributes
    ----------
    data : dict
        What the text holds.
    lines : dict of Place to sequence of int
        The lines of the nodes of each workflow in the file, by the workflow's place; empty if not `numbered`.

    Raises
    ------
    DeclarationError
        If the text is no JSON object, exceeds a limit, or holds a key twice in one object.
    """

    def __init__(self, text: str, *, numbered: bool = True, line_of: LineOf | None = None) -> None:
        self._text = text
        self._numbered = numbered
        self._line_of = self._line_here if numbered else line_of
        scan = _scanned(text)
        if not text.strip():
            raise DeclarationError("the workflow file is empty")
        self._decoder = _judging_decoder if _has_large_number(text) else _decoder
        data: Data = None
        try:
            data = self._decoder.decode(text)
        except json.JSONDecodeError as error:
            self._refuse_text(error)
        except DeclarationError as fault:
            self.refuse(self._place_of_fault(()), str(fault))
        except (RecursionError, ValueError) as error:
            self.refuse((), str(error))
        if not isinstance(data, dict):
            self.refuse((), f"a workflow file begins with '{{' (got {text.strip()[:20]!r})")
        self.data: dict[str, Data] = data
        self.lines: dict[Place, Sequence[int]] = _lines_of_nodes(data, scan) if numbered else {}

    def refuse(self, place: Place, message: str, *, node: str | None = None, array: str | None = None) -> NoReturn:
        """Raise DeclarationError with the place of an element, and its line, which is looked for only here."""
        where = [f"line {self._line_of(place)}"] if self._line_of is not None else []
        if place:
            where.append(self._spelled(place))
        raise DeclarationError(": ".join((", ".join(("workflow file", *where)), message)), node=node, array=array)

    def _spelled(self, place: Place) -> str:
        """Return a place as text, with the name of the node that holds it: ``nodes[3].grid ('scale')``."""
        text, name = "", ""
        value: Any = getattr(self, "data", None)
        for key in place:
            held = isinstance(value, list) or (isinstance(value, dict) and key in value)
            value = value[key] if held else None
            if isinstance(key, int):
                text += f"[{key}]"
            elif text in ("modules", "workflows"):
                text += f"[{key[:60]!r}]"
            else:
                text += f".{key[:60]}" if text else key[:60]
            if isinstance(value, dict) and isinstance(value.get("name"), str) and "nodes" in place[:-1]:
                name = f" ({value['name'][:60]!r})"
        return text + name

    def _refuse_text(self, error: json.JSONDecodeError) -> NoReturn:
        """Raise DeclarationError for a text that is no JSON, with line and column."""
        message = error.msg.lower()
        if error.msg.startswith("Unterminated string"):
            message = "the text ends too early (a string has no end); is the file truncated?"
        elif error.pos >= len(self._text.rstrip()):
            message = f"the text ends too early ({message}); is the file truncated?"
        elif error.msg == "Extra data":
            message = f"something follows the end of the workflow ({self._text[error.pos : error.pos + 20]!r})"
        where = f", line {error.lineno}, column {error.colno}" if self._numbered else ""
        raise DeclarationError(f"workflow file{where}: {message}")

    # -- positions, which only errors need

    def _line_here(self, place: Place) -> int:
        return self._text.count("\n", 0, self._at(place)) + 1

    def _at(self, place: Place) -> int:
        """Return the position of an element; of the one that should hold it, if it is missing."""
        at = self._skipped(0)
        for step in place:
            at = next((position for key, position in self._members(at) if key == step), at)
        return at

    def _place_of_fault(self, place: Place) -> Place:
        """Return the place of the innermost object or number below a place that the decoder refuses."""
        for key, at in self._members(self._at(place)):
            try:
                self._decoder.raw_decode(self._text, at)
            except DeclarationError:
                return self._place_of_fault((*place, key))
        return place

    def _members(self, at: int) -> Iterator[tuple[str | int, int]]:
        """Yield the key or index and the position of each member of the object or list at a position."""
        text = self._text
        closing = {"{": "}", "[": "]"}.get(text[at : at + 1])
        at = self._skipped(at + 1)
        for index in count():
            key: str | int = index
            if closing is None or text[at] == closing:
                return
            if closing == "}":
                key, at = _skimming_decoder.raw_decode(text, at)
                at = self._skipped(self._skipped(at) + 1)  # past the colon
            yield key, at
            _, at = _skimming_decoder.raw_decode(text, at)
            at = self._skipped(at)
            if text[at] == ",":
                at = self._skipped(at + 1)

    def _skipped(self, at: int) -> int:
        found = _SPACE.match(self._text, at)
        assert found is not None
        return found.end()


_skimming_decoder = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)


class _Scan(NamedTuple):
    """Where objects and lists open at one level of nesting.

    Attributes
    ----------
    at, lines : ndarray
        Their positions and lines, in order.
    """

    at: np.ndarray[Any, Any]
    lines: np.ndarray[Any, Any]


_ELEMENT = 3  # the level of the elements of a workflow's lists: document, list, element
_INNER_ELEMENT = 5  # of those of a child: document, workflows, child, list, element


def _lines_of_nodes(data: Mapping[str, Data], scans: Mapping[int, _Scan]) -> dict[Place, Sequence[int]]:
    """Return the lines of the nodes of each workflow, from the order in which the elements of all lists open."""
    outer, inner = scans[_ELEMENT], scans[_INNER_ELEMENT]
    found: dict[Place, Sequence[int]] = {(): outer.lines[_among_elements(data, "nodes")].tolist()}
    children = data.get("workflows")
    if isinstance(children, dict):
        openings = range(*_among_elements(data, "workflows").indices(len(outer.at)))
        ends = np.append(outer.at, np.iinfo(np.int64).max)
        for (key, child), opening in zip(children.items(), openings):
            if isinstance(child, dict):
                first, last = np.searchsorted(inner.at, ends[opening : opening + 2])
                found["workflows", key] = inner.lines[first:last][_among_elements(child, "nodes")].tolist()
    return found


def _among_elements(workflow: Mapping[str, Data], key: str) -> slice:
    """Return which of the objects and lists inside all members of a workflow are those of one member."""
    at = 0
    for each, value in workflow.items():
        inside = value if isinstance(value, list) else value.values() if isinstance(value, dict) else ()
        kinds = [*map(type, inside)]
        here = kinds.count(list) + kinds.count(dict)
        if each == key:
            return slice(at, at + here)
        at += here
    return slice(0, 0)


def _has_large_number(text: str) -> bool:
    """Return whether a number may be too large: it has four aligned blocks of eight digits, or an exponent of three digits."""
    digits = np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8) - np.uint8(ord("0")) < 10  # others wrap around
    blocks = digits[: len(digits) // 8 * 8].view(np.uint64) == 0x0101010101010101
    return bool((blocks[3:] & blocks[2:-1] & blocks[1:-2] & blocks[:-3]).any()) or _LARGE_EXPONENT.search(text) is not None


def _scanned(text: str) -> dict[int, _Scan]:
    """Return where elements open; raise DeclarationError for a text that exceeds a limit, before it is parsed."""
    size = len(text)
    if size <= MAX_BYTES:
        data = text.encode("utf-8", "surrogatepass")
        size = len(data)
    if size > MAX_BYTES:
        raise DeclarationError(f"a workflow file has at most {MAX_BYTES // 2**20} MB (got {size / 2**20:.1f} MB)")
    if b"\\" in data:
        data = data.replace(b"\\\\", b"  ").replace(b'\\"', b"  ")
    found: dict[int, list[tuple[Any, Any]]] = {_ELEMENT: [], _INNER_ELEMENT: []}
    counts: Counter[str] = Counter()
    at, level, inside, line = 0, 0, 0, 1
    while at < len(data):
        chunk = np.frombuffer(data, np.uint8, min(2**18, len(data) - at), at)
        quotes = np.cumsum(chunk == ord('"'), dtype=np.uint8)  # only its parity is used, so it may wrap around
        outside = ((quotes + np.uint8(inside)) & 1) == 0
        lists = (chunk == ord("[")) & outside
        opened = ((chunk == ord("{")) & outside) | lists
        closed = ((chunk == ord("]")) | (chunk == ord("}"))) & outside
        levels = np.cumsum(opened.astype(np.int8) - closed.astype(np.int8), dtype=np.int32)
        levels += level
        openings = np.flatnonzero(opened)
        depths = levels[openings]
        if len(depths) and int(depths.max()) > MAX_NESTING:
            where = at + int(openings[np.argmax(depths > MAX_NESTING)])
            found_line = data.count(b"\n", 0, where) + 1
            raise DeclarationError(f"workflow file, line {found_line}: brackets are nested deeper than {MAX_NESTING}")
        newlines = np.flatnonzero(chunk == ord("\n"))
        for depth, scans in found.items():
            places = openings[depths == depth]
            scans.append((places + at, np.searchsorted(newlines, places) + line))
        elements = openings[depths == _ELEMENT]
        counts["lists"] += (listed := int(np.count_nonzero(lists[elements])))
        counts["objects"] += len(elements) - listed
        keys = levels[(chunk == ord(":")) & outside]
        counts["fields"] += int(np.count_nonzero(keys == 1))
        counts["members"] += int(np.count_nonzero(keys == 2))
        counts["brackets"] += len(openings)
        counts["commas"] += int(np.count_nonzero((chunk == ord(",")) & outside))
        _limit(counts)
        level = int(levels[-1])
        line += len(newlines)
        inside = (inside + int(quotes[-1])) & 1
        at += len(chunk)
    nothing = np.zeros(0, np.int64)
    return {depth: _Scan(*map(np.concatenate, zip(*scans or [(nothing, nothing)]))) for depth, scans in found.items()}


def _limit(counts: Mapping[str, int]) -> None:
    """Raise DeclarationError if a text holds too much of something."""
    said = {
        "fields": (_MAX_FIELDS, "a workflow has no {} fields"),
        "members": (_MAX_CHILDREN, "a file holds at most {} modules and child graphs, each of which may be used many times"),
        "objects": (MAX_NODES, "a file holds at most {} nodes, arrays and parameters"),
        "lists": (MAX_NODES, "a file holds at most {} plain edges; nodes, arrays and parameters are objects {{...}}"),
        "brackets": (_MAX_BRACKETS, "a workflow file has at most {} lists and objects"),
        "commas": (_MAX_COMMAS, "a workflow file has at most {} numbers and other elements; write values of arrays as 'base64'"),
    }
    for what, (most, message) in said.items():
        if counts[what] > most:
            raise DeclarationError(message.format(most))
