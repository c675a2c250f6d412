"""Write a workflow file's text from its data; read it as elements with line numbers; reject hostile text."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from json import encoder
from typing import Any, NoReturn

import numpy as np

from ..errors import DeclarationError
from ..nodes.values import MAX_DIGITS, Data, Fault

MAX_BYTES = 64 * 2**20
MAX_NODES = 1_000_000
MAX_NESTING = 64
_MAX_BRACKETS = 4_000_000  # each becomes a Python object of up to 300 bytes before it is validated
_MAX_COMMAS = 10_000_000  # outside of strings; limits the Python objects for numbers
_MAX_CHILDREN = 10_000  # distinct child graphs of a file
_MAX_FIELDS = 100  # of a workflow, which has three; unknown ones are reported once the version is known


@dataclass(slots=True)
class Item:
    """One element of a document with its place, and its index in a list; ``with item:`` adds them to errors raised inside."""

    value: Data
    place: str
    line: int = 0
    index: int | None = None

    def refuse(self, message: str, *, node: str | None = None, array: str | None = None) -> NoReturn:
        """Raise DeclarationError with the element's place."""
        where = self.place if self.index is None else f"{self.place}[{self.index}]"
        name = self.value.get("name") if isinstance(self.value, dict) else None
        if isinstance(name, str) and self.place.endswith("nodes"):
            where += f" ({name[:60]!r})"
        where = f"line {self.line}, {where}" if self.line else where
        raise DeclarationError(f"workflow file, {where}: {message}", node=node, array=array)

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, Fault):
            self.refuse(str(error))
        if isinstance(error, DeclarationError):
            self.refuse(str(error), node=error.node, array=error.array)
        if isinstance(error, RecursionError):
            self.refuse("it is nested too deeply")


class Section:
    """One workflow of a document: its elements by section."""

    def __init__(self, place: str, line: int = 0) -> None:
        self.item = Item(None, place, line)
        self.scalars: dict[str, Item] = {}
        self.lists: dict[str, list[Item]] = {}
        self.modules: dict[str, Item] = {}
        self.children: dict[str, Section] = {}


_LISTS = {
    "arrays": "an array is an object {...}",
    "parameters": "a parameter is an object {...}",
    "nodes": "a node is an object {...}",
    "order": "an edge is a pair [earlier node, later node]",
}
_SPACE = re.compile(r"[ \t\r\n]*")


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise Fault(f"key {twice[:60]!r} stands twice")
    return found


def _parse_int(text: str) -> int:
    if len(text) > MAX_DIGITS + 1:
        raise Fault(f"an integer of {len(text)} digits is too long")
    return int(text)


def _parse_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise Fault(f"{text[:40]} is too large for a float")
    return value


def _parse_constant(text: str) -> NoReturn:
    raise Fault(f'{text} is no JSON; write {{"float": "{text.replace("Infinity", "inf").lower()}"}}')


_decoder = json.JSONDecoder(object_pairs_hook=_pairs, parse_constant=_parse_constant)
_judging_decoder = json.JSONDecoder(  # five times slower for numbers
    object_pairs_hook=_pairs, parse_int=_parse_int, parse_float=_parse_float, parse_constant=_parse_constant
)
_LARGE_NUMBER = re.compile(rf"[0-9]{{{MAX_DIGITS + 1}}}|[eE]\+?[0-9]{{3}}")  # any number that is too large matches


class Reader:
    """Reads a document element by element, so that each has its line number.

    Parameters
    ----------
    text : str
    numbered : bool
        False if the user does not see the text, so that messages omit line numbers.
    """

    def __init__(self, text: str, *, numbered: bool = True) -> None:
        self.text = text
        self.numbered = numbered
        self.decoder = _judging_decoder if _LARGE_NUMBER.search(text) else _decoder
        self.at = 0
        self._line = 1
        self._counted = 0
        self.nodes = 0

    @property
    def line(self) -> int:
        """Line of the next element, 0 if not `numbered`; counts on from the last query, as the position only moves forward."""
        if not self.numbered:
            return 0
        self._line += self.text.count("\n", self._counted, self.at)
        self._counted = self.at
        return self._line

    def refuse(self, message: str, at: int | None = None) -> NoReturn:
        """Raise DeclarationError with line and column of a position, by default the current one."""
        at = self.at if at is None else at
        if at >= len(self.text.rstrip()):
            message = f"the text ends too early ({message}); is the file truncated?"
        if not self.numbered:
            raise DeclarationError(f"workflow file: {message}")
        line = self.text.count("\n", 0, at) + 1
        column = at - self.text.rfind("\n", 0, at)
        raise DeclarationError(f"workflow file, line {line}, column {column}: {message}")

    @property
    def next(self) -> str:
        """The text at the current position, for a message."""
        return self.text[self.at : self.at + 20]

    def peek(self) -> str:
        """Skip white space and return the next character; an empty string at the end."""
        found = _SPACE.match(self.text, self.at)
        assert found is not None
        self.at = found.end()
        return self.text[self.at : self.at + 1]

    def expect(self, character: str, what: str) -> None:
        """Skip white space and read this character; raise DeclarationError if another follows."""
        if self.peek() != character:
            self.refuse(f"{what} begins with {character!r} (got {self.next!r})")
        self.at += 1

    def value(self) -> Data:
        """Read one JSON value, which begins at the current position."""
        try:
            value, self.at = self.decoder.raw_decode(self.text, self.at)
        except json.JSONDecodeError as error:
            if error.msg.startswith("Unterminated string"):
                self.refuse("the text ends too early (a string has no end); is the file truncated?", error.pos)
            self.refuse(error.msg.lower(), error.pos)
        except Fault as fault:
            self.refuse(str(fault))
        except (RecursionError, ValueError) as error:
            self.refuse(str(error))
        return value

    def item(self, place: str, index: int | None = None) -> Item:
        """Read one JSON value, with its place."""
        self.peek()
        line = self.line
        return Item(self.value(), place, line, index)

    def entries(self, opening: str, closing: str, what: str) -> Iterator[None]:
        """Yield before each entry of an object or a list; the caller reads the entry."""
        self.expect(opening, what)
        end = self.peek()
        if end == closing:
            self.at += 1
        while end != closing:
            yield
            end = self.peek()
            if end not in (",", closing):
                self.refuse(f"',' or {closing!r} is expected in {what} (got {self.next!r})")
            self.at += 1

    def members(self, what: str) -> Iterator[str]:
        """Yield the keys of an object; the caller reads the value of each."""
        seen: set[str] = set()
        for _ in self.entries("{", "}", what):
            if self.peek() != '"':
                self.refuse(f"{what} holds names in quotes (got {self.next!r})")
            key = self.value()
            if key in seen:
                self.refuse(f"key {key[:60]!r} stands twice in {what}")
            seen.add(key)
            if self.peek() != ":":
                self.refuse(f"':' is expected after {key[:60]!r}")
            self.at += 1
            yield key

    def document(self) -> Section:
        """Read the whole text."""
        section = self.section("the file", "", "document")
        if self.peek():
            self.refuse(f"something follows the end of the workflow ({self.next!r})")
        return section

    def section(self, place: str, prefix: str, what: str) -> Section:
        """Read one workflow: the document itself, or a child."""
        self.peek()
        section = Section(place, self.line)
        for key in self.members(what):
            self.peek()
            if key in _LISTS:
                found = section.lists[key] = []
                place = f"{prefix}{key}"
                for index, _ in enumerate(self.entries("[", "]", place)):
                    # Checked here, so that a million invalid elements are never stored.
                    if self.peek() != ("[" if key == "order" else "{"):
                        self.refuse(f"{place}[{index}]: {_LISTS[key]} (got {self.next!r})")
                    item = self.item(place, index)
                    if not item.value:
                        item.refuse(f"{_LISTS[key]} (got an empty one)")
                    found.append(item)
                    if key == "nodes":
                        self.nodes += 1
                        if self.nodes > MAX_NODES:
                            self.refuse(f"a file holds at most {MAX_NODES} nodes")
            elif key == "modules":
                if prefix:
                    self.refuse("modules stand at the top of the file")
                for name in self.members("modules"):
                    item = section.modules[name] = self.item(f"modules[{name[:60]!r}]")
                    if not isinstance(item.value, dict) or not item.value:
                        item.refuse("a module is an object {...} with its source or its file")
            elif key == "workflows" and not prefix:
                for name in self.members("workflows"):
                    if len(section.children) == _MAX_CHILDREN:
                        self.refuse(f"a file holds at most {_MAX_CHILDREN} child graphs, each of which may be used many times")
                    where = f"workflows[{name[:60]!r}]"
                    section.children[name] = self.section(where, f"{where}.", where)
            else:
                if len(section.scalars) == _MAX_FIELDS:
                    self.refuse(f"a workflow has no {_MAX_FIELDS} fields")
                section.scalars[key] = self.item(f"{prefix}{key[:60]}")
        return section


def guard(text: str) -> None:
    """Raise DeclarationError for a text that is too large or nested too deeply, before it is parsed."""
    size = len(text)
    if size <= MAX_BYTES:
        data = text.encode("utf-8", "surrogatepass")
        size = len(data)
    if size > MAX_BYTES:
        raise DeclarationError(f"a workflow file has at most {MAX_BYTES // 2**20} MB (got {size / 2**20:.1f} MB)")
    if b"\\" in data:
        data = data.replace(b"\\\\", b"  ").replace(b'\\"', b"  ")
    at, level, inside, brackets, commas = 0, 0, 0, 0, 0
    while at < len(data):
        chunk = np.frombuffer(data, np.uint8, min(2**20, len(data) - at), at)
        quotes = np.cumsum(chunk == ord('"'), dtype=np.uint8)  # only its parity is used, so it may wrap around
        outside = ((quotes + np.uint8(inside)) & 1) == 0
        opened = ((chunk == ord("[")) | (chunk == ord("{"))) & outside
        closed = ((chunk == ord("]")) | (chunk == ord("}"))) & outside
        levels = np.cumsum(opened.astype(np.int8) - closed.astype(np.int8), dtype=np.int64)
        if len(levels) and level + int(levels.max()) > MAX_NESTING:
            where = at + int(np.argmax(levels > MAX_NESTING - level))
            line = data.count(b"\n", 0, where) + 1
            raise DeclarationError(f"workflow file, line {line}: brackets are nested deeper than {MAX_NESTING}")
        level += int(levels[-1])
        brackets += int(np.count_nonzero(opened))
        if brackets > _MAX_BRACKETS:
            raise DeclarationError(f"a workflow file has at most {_MAX_BRACKETS} lists and objects")
        commas += int(np.count_nonzero((chunk == ord(",")) & outside))
        if commas > _MAX_COMMAS:
            raise DeclarationError(
                f"a workflow file has at most {_MAX_COMMAS} numbers and other elements; write values of arrays as 'base64'"
            )
        inside = (inside + int(quotes[-1])) & 1
        at += len(chunk)


# -- writing


def written(data: Mapping[str, Data]) -> str:
    """Return a document as JSON, with one array, parameter, node or source line per line."""
    return f"{_block('{}', _members(data, ' '), '')}\n"


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
_encode_ascii = json.JSONEncoder(allow_nan=False).encode
_text = encoder.encode_basestring


def _line(value: Data) -> str:
    text = _encode(value)
    # A lone surrogate, which only an argument can contain, has no UTF-8 encoding.
    return text if text.isascii() or not _SURROGATE.search(text) else _encode_ascii(value)


_SURROGATE = re.compile("[\ud800-\udfff]")


def _members(data: Mapping[str, Data], pad: str) -> Iterator[str]:
    """Yield the members of one workflow as text; continuation lines are indented by `pad`."""
    inner = f"{pad} "
    for key, value in data.items():
        if key in _LISTS and value:
            text = _block("[]", map(_line, value), pad)
        elif key == "modules" and value:
            text = _block("{}", (f"{_line(name)}: {_module(module, inner)}" for name, module in value.items()), pad)
        elif key == "workflows":
            children = ((name, _block("{}", _members(child, f"{inner} "), inner)) for name, child in value.items())
            text = _block("{}", (f"{_line(name)}: {child}" for name, child in children), pad)
        else:
            text = _line(value)
        yield f"{_text(key)}: {text}"


def _module(module: Mapping[str, Data], pad: str) -> str:
    members = [f"{_text(key)}: {_line(value)}" for key, value in module.items() if key != "source"]
    if "source" in module:
        members.append(f'"source": {_block("[]", map(_line, module["source"]), pad)}')
    return f"{{{', '.join(members)}}}"


def _block(brackets: str, lines: Iterable[str], pad: str) -> str:
    """Return `lines` in brackets, comma-separated, each on its own line."""
    return f"{brackets[0]}\n{pad} " + f",\n{pad} ".join(lines) + f"\n{pad}{brackets[1]}"
