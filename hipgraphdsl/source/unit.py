"""A translation unit as tokens: headers inserted, conditionals evaluated, macros expanded, bodies left unparsed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..errors import DeclarationError
from .macros import NAME, Budget, expand_macros, option_macros, parse_define
from .tokens import MOST_TOKENS, Doubt, Lexer, Token

if TYPE_CHECKING:
    from .preprocessor import Conditionals

_MOST_DIRECTIVES: Final = 50_000
_MOST_INCLUDED: Final = 16_000_000  # characters of all headers together

_GUARD: Final = re.compile(
    r"#[ \t]*(?:ifndef[ \t]+|if[ \t]+![ \t]*defined[ \t]*\(?[ \t]*)(\w+)[^\n]*\n(?:\s|//[^\n]*|/\*.*?\*/)*"
    r"#[ \t]*define[ \t]+\1[ \t]*(?:1[ \t]*)?(?=[\r\n]|/[/*])",
    re.DOTALL,
)
_INCLUDE: Final = re.compile(r'#\s*(?:include|include_next|import)\s*(?:<([^>]+)>|"([^"]+)")')
_SYSTEM: Final = re.compile(
    r"(hip|hiprtc|cuda|cub|thrust|rocprim|rocwmma|hipcub|rocm|nv|cooperative_groups|mma|cuda_\w+|crt|std\w+)/.*|[a-z_]+"
    r"|(cuda\w*|cooperative_groups|cub|curand\w*|cuComplex)\.(h|hpp|cuh)|hip\w*\.h|device_(launch_parameters|functions)\.h"
    r"|(assert|complex|ctype|errno|fenv|float|inttypes|iso646|limits|locale|math|math_constants|math_functions|mma|signal|stdalign"
    r"|stdarg|stdatomic|stdbool|stddef|stdint|stdio|stdlib|string|tgmath|time|uchar|unistd|vector_types|wchar)\.h|(sys|bits)/.*"
)
#: Inside a function body, search only for braces and for whatever may hide one.
_EVENT: Final = re.compile(r"[{}\"'#]|/[/*]")
_LITERAL: Final = re.compile(r"//[^\n]*|/\*.*?\*/|\"[^\"\\\n]*(?:\\.[^\"\\\n]*)*\"|'[^'\\\n]*(?:\\.[^'\\\n]*)*'", re.DOTALL)
_RAW: Final = re.compile(r"\"([^()\\\s]{0,16})\(.*?\)\1\"", re.DOTALL)
_RAW_PREFIX: Final = re.compile(r"(?<![\w$])(?:u8|[uUL])?R\Z")
_SEPARATED: Final = re.compile(r"(?<![\w$.])\.?[0-9][\w.']*\Z")
_SKIPPED: Final = re.compile(r"/\*.*?\*/|//[^\n]*|\"[^\"\\\n]*(?:\\.[^\"\\\n]*)*\"|\n[ \t]*(?=#)", re.DOTALL)
_DIGRAPH: Final = re.compile(_LITERAL.pattern + r"|<%|%>|<:(?!:[^:>])|:>|%:", re.DOTALL)
_DIGRAPHS: Final = {"<%": "{ ", "%>": " }", "<:": "[ ", ":>": " ]", "%:": "# "}
_SPACE_ATTRIBUTE: Final = re.compile(r"__attribute(?:__)?\s*\(\(\s*(?:__)?(device|constant|managed|global|shared)(?:__)?\s*\)\)")
_SPLICE: Final = re.compile(r"\\[ \t]*\r?\n")

UNDECIDED_TEXT: Final = re.compile("\x01([^\x02]*)\x02")
"""Marks, in the text of a block, the branches of undecided conditionals."""


def include_folders(options: Sequence[str]) -> list[Path]:
    """Return the folders of ``-Ifolder`` and ``-I folder``."""
    found = (option[2:] or following for option, following in pairwise([*options, ""]) if option.startswith("-I"))
    return [Path(folder) for folder in found if folder]


class Headers:
    """The project's own headers: files in the ``-I`` folders, or the `texts` by path that a workflow file stores."""

    def __init__(self, options: Sequence[str] = (), texts: Mapping[str, str] | None = None) -> None:
        self.folders = include_folders(options)
        self.texts = dict(texts or {})
        self._stored = texts is not None
        self._left = _MOST_INCLUDED

    def find(self, header: str, folders: Sequence[Path]) -> str | None:
        """Return the path of a header and store its text in `texts`; None if it is not found."""
        for folder in (*folders, *self.folders):
            path = str(folder / header)
            if path not in self.texts and not self._stored and Path(path).is_file():
                self.texts[path] = Path(path).read_text(encoding="utf-8-sig", errors="replace")
            if path in self.texts:
                self._left -= len(self.texts[path])
                if self._left < 0:
                    raise DeclarationError(f"header {header!r}: the headers have more than {_MOST_INCLUDED} characters")
                return path
        return None


class _Unconditional:
    """What `Unit.conditionals` is before the first preprocessor line."""

    reading, doubtful, doubt, depth = True, False, None, 0
    headers = unread = False

    def alternative(self, outside: int) -> bool:
        """Return False: no branch is open."""
        return False


class Unit:
    """The tokens of a translation unit: headers inserted, conditionals evaluated, macros expanded, bodies left unparsed.

    Everything between the braces of a function, a struct or an initialiser is one token of kind ``block``: its text without
    preprocessor lines and skipped branches; `start` is the `clock` of `macros` at its end. `tokens_of` splits it.
    """

    def __init__(self, source: str, where: str, options: Sequence[str] = (), headers: Headers | None = None,
                 budget: Budget | None = None) -> None:  # fmt: skip
        self.where = where
        self.source = source
        self.macros = option_macros(options)
        self.headers = headers or Headers(options)
        self.budget = budget or Budget()
        self.unread: list[str] = []  # project headers that were not found
        #: The `start` of each block in which macros change: the text before the change may be expanded wrongly.
        self.redefining: set[int] = set()
        self.conditionals: Conditionals | _Unconditional = _Unconditional()
        self._once: set[str] = set()
        self._count = 0
        self._directives = 0
        self._flat: set[str] = set()  # macros that open or close braces, so that braces cannot be matched in text that uses them

    def __iter__(self) -> Iterator[Token]:
        pending: list[Token] = []
        depth = 0
        for token in self._raw(self.source, self.where, (), 0):
            if token is not None:
                pending.append(token)
                self._count += 1
                self.budget.read(1, self.where)
                if self._count > MOST_TOKENS:
                    raise DeclarationError(
                        f"{self.where}: more than {MOST_TOKENS} tokens stand outside of function bodies; split the source"
                    )
                if token.text == "(":
                    depth += 1
                elif token.text == ")":
                    depth -= 1
                if depth > 0 or token.text not in (";", "{", "}"):
                    continue
            yield from expand_macros(pending, self.macros.get, self.budget)
            pending.clear()
            depth = max(depth, 0) if token is None else 0
        yield from expand_macros(pending, self.macros.get, self.budget)

    def _raw(self, text: str, where: str, folders: Sequence[Path], depth: int) -> Iterator[Token | None]:
        """Yield the tokens of a file before macro expansion, and None before each preprocessor line."""
        lexer = Lexer(_plain(text), where)
        head: list[Token] = []  # the first tokens of the current declaration
        flat, last = 0, -1  # how many macros of braces are known, and where the text uses one last
        for token in lexer:
            if token.kind == "directive":
                yield None
                yield from self._line(token, lexer, folders, depth)
                if not self.conditionals.reading:
                    _skip(lexer)
                continue
            if self.conditionals.doubt is not None:
                token = token._replace(doubt=self.conditionals.doubt)
            yield token
            if token.text in (";", "}"):
                head.clear()
                continue
            if token.text != "{":
                if len(head) < 8:
                    head.append(token)
                continue
            if flat != len(self._flat):
                flat, last = (
                    len(self._flat),
                    max((m.start() for m in NAME.finditer(lexer.text) if m.group() in self._flat), default=-1),
                )
            if last >= lexer.position or self._opens_scope(head):
                head.clear()
            else:
                yield self._block(lexer, token)

    def _opens_scope(self, head: list[Token]) -> bool:
        if any(token.text in self.macros for token in head):
            head = expand_macros(head, self.macros.get, self.budget)
        texts = [token.text for token in head]
        return "namespace" in texts[:2] or (texts[:1] == ["extern"] and len(head) == 2 and head[1].kind == "string")

    def _line(self, token: Token, lexer: Lexer, folders: Sequence[Path], depth: int) -> Iterator[Token | None]:
        """Process a preprocessor line; yield the tokens of the header that it includes."""
        path = self._included(token.text, folders) if self._follow(token, lexer) == "include" else None
        if path is not None:
            if depth >= 32:
                raise DeclarationError(f"{lexer.where}, line {token.line}: includes are nested more than 32 deep")
            yield from self._raw(self.headers.texts[path], f"header {path!r}", [Path(path).parent], depth + 1)
            yield None

    def _follow(self, token: Token, lexer: Lexer) -> str:
        self._directives += 1
        if self._directives > _MOST_DIRECTIVES:
            raise DeclarationError(f"{lexer.where}, line {token.line}: more than {_MOST_DIRECTIVES} preprocessor lines")
        conditionals = self.conditionals
        if isinstance(conditionals, _Unconditional):
            from .preprocessor import Conditionals

            conditionals = self.conditionals = Conditionals(self.macros, lexer.where, self.budget)
        reading = conditionals.reading
        guard = _GUARD.match(lexer.text, token.start)
        conditionals.where = lexer.where
        word = conditionals.directive(token.text, token.line, guard.group(1) if guard else "")
        if word == "define" and reading and token.text.count("{") != token.text.count("}"):
            found = parse_define(token.text)
            self._flat |= self.macros.named_by(found[0]) if found else frozenset()
        return word if reading else ""

    def _included(self, text: str, folders: Sequence[Path]) -> str | None:
        """Return the path of the header of an `#include`; None if it is not to be read."""
        match = _INCLUDE.match(text)
        header = (match.group(1) or match.group(2)).strip() if match else text.partition("include")[2].strip()
        path = self.headers.find(header, folders) if match and not _SYSTEM.fullmatch(header) else None
        if path is not None:
            once = re.search(r"^[ \t]*#[ \t]*pragma[ \t]+once\b", self.headers.texts[path], re.MULTILINE) is not None
            if once and path in self._once:
                return None
            self._once.add(path)
        elif match and (match.group(1) or _SYSTEM.fullmatch(header)):
            self.conditionals.headers = True
        else:
            self.conditionals.unread = True
            self.unread.append(header)
        return path

    def _block(self, lexer: Lexer, opening: Token) -> Token:
        """Skip to the brace that closes `opening` and return the block; the lexer is left at that brace."""
        text = lexer.text
        base = self.conditionals.doubt
        begun = at = counted = lexer.position
        clock = self.macros.clock
        outside = self.conditionals.depth
        uneven = ""  # the first branch that leaves braces open
        depths: list[int] = []  # brace depth at which each conditional in the block begins
        parts: list[str] = []
        depth, line = 1, opening.line

        def keep(stop: int) -> None:
            part = text[begun:stop]
            parts.append(part if self.conditionals.doubt is base else f"\x01{part}\x02")

        while True:
            found = _EVENT.search(text, at)
            if found is None:
                raise DeclarationError(uneven or f"{lexer.where}, line {opening.line}: '{{' is not closed")
            event, at = found.group(), found.end()
            if event in "{}":
                if depths and self.conditionals.alternative(outside):  # braces are those of the first branch
                    continue
                depth += 1 if event == "{" else -1
                if depth == 0:
                    break
            elif event == "#":
                if not _begins_line(text, found.start()):
                    continue
                keep(found.start())
                line += text.count("\n", counted, found.start())
                lexer.position, lexer.line, lexer.line_start = found.start(), line, True
                token = lexer.directive()
                word = re.sub(r"#\s*(\w*).*", r"\1", token.text, flags=re.DOTALL)
                ends = word in ("elif", "elifdef", "elifndef", "else", "endif")
                doubt = self.conditionals.doubt if self.conditionals.doubtful else None
                if ends and doubt is not None and depth != (depths or [0])[-1]:
                    uneven = uneven or (
                        f"{lexer.where}, line {token.line}: {doubt.reason}, and this branch does not close the"
                        " braces that it opens; let each branch close its own"
                    )
                    if not depths:  # the conditional begins outside of the block
                        raise DeclarationError(uneven)
                followed = self._follow(token, lexer)
                if word in ("if", "ifdef", "ifndef"):
                    depths.append(depth)
                elif word == "endif" and depths:
                    depths.pop()
                if followed == "include" and self._included(token.text, ()) is not None:
                    self.unread.append(token.text.partition("include")[2].strip())
                if not self.conditionals.reading:
                    _skip(lexer)
                parts.append("\n" * (lexer.line - line))  # keep the line numbers of the source
                begun = at = lexer.position
                line, counted = lexer.line, lexer.position
            else:
                at = self._literal_end(lexer, found, opening)
        keep(at - 1)
        lexer.position, lexer.line, lexer.line_start = at - 1, line + text.count("\n", counted, at - 1), False
        if self.macros.clock != clock:
            self.redefining.add(self.macros.clock)
        return Token("block", " " + "".join(parts), self.macros.clock, at - 1, opening.line, self.conditionals.doubt)

    def _literal_end(self, lexer: Lexer, found: re.Match[str], opening: Token) -> int:
        """Return the end of a comment, a string or a character literal."""
        text, at = lexer.text, found.start()
        before = text[max(0, at - 48) : at]
        if text[at] == "'" and _SEPARATED.search(before) and not before.endswith("u8"):
            return at + 1
        match = _RAW.match(text, at) if text[at] == '"' and _RAW_PREFIX.search(before) else None
        match = match or _LITERAL.match(text, at)
        if match is None:
            line = opening.line + text.count("\n", opening.end, at)
            what = "comment" if text[at] == "/" else "string or character"
            raise DeclarationError(f"{lexer.where}, line {line}: unterminated {what}")
        return match.end()

    # -- contents of blocks -----------------------------------------------------------------------------------------

    def tokens_of(self, body: Sequence[Token], *, expand: bool = True) -> list[Token]:
        """Return the tokens between braces, by default with the macros expanded that were defined there.

        Tokens in undecided branches carry a doubt.
        """
        out: list[Token] = []
        for token in body:
            if token.kind != "block":
                out.append(token)
                continue
            tokens: list[Token] = []
            doubt = token.doubt or Doubt("a conditional inside it", 0)
            line = token.line
            for n, part in enumerate(UNDECIDED_TEXT.split(token.text)):  # parts with odd index are undecided
                read = (t for t in Lexer(part, self.where, line) if t.kind != "directive")
                tokens += (t._replace(doubt=doubt) for t in read) if n % 2 else read
                line += part.count("\n")
            out += expand_macros(tokens, self.macros.at(token.start), self.budget) if expand else tokens
        return out

    def reach(self, names: set[str]) -> tuple[set[str], bool]:
        """Return the names and all names that their macros expand to, and whether one of these macros pastes names (##)."""
        found: set[str] = set()
        waiting, pasted = list(names), False
        while waiting:
            name = waiting.pop()
            if name in found:
                continue
            found.add(name)
            for macro in self.macros.meanings(name):
                pasted = pasted or "##" in macro.text
                waiting += macro.words - found
        return found, pasted


def names_in(body: Sequence[Token]) -> set[str]:
    """Return every name in a body; comments and strings are skipped."""
    found: set[str] = set()
    for token in body:
        if token.kind == "block":
            text = without_literals(token.text)
            at = 0
            while at < len(text):  # in pieces, because a list of all names would be larger than the text
                stop = min(at + 100_000, len(text))
                while stop < len(text) and (text[stop].isalnum() or text[stop] == "_"):
                    stop += 1
                found.update(NAME.findall(text, at, stop))
                at = stop
        elif token.kind == "name":
            found.add(token.text)
    return found


def without_literals(text: str) -> str:
    """Return the text with each comment and string replaced by a blank."""
    if "'" in text:
        text = re.sub(r"(?<=[0-9a-fA-F])'(?=[0-9a-fA-F])", "", text)  # digit separators
    return _LITERAL.sub(" ", text)


def _begins_line(text: str, at: int) -> bool:
    at -= 1
    while at >= 0 and text[at] in " \t":
        at -= 1
    return at < 0 or text[at] == "\n"


def _skip(lexer: Lexer) -> None:
    """Advance to the next preprocessor line."""
    stop = len(lexer.text)
    for match in _SKIPPED.finditer(lexer.text, lexer.position):
        if match.group()[0] == "\n":
            stop = match.end()
            break
    lexer.line += lexer.text.count("\n", lexer.position, stop)
    lexer.position, lexer.line_start = stop, True


def _plain(text: str) -> str:
    """Join spliced lines, replace digraphs by brackets, and ``__attribute__((device))`` etc. by HIP's keywords.

    All line breaks are kept, so that line numbers stay the same.
    """
    if _SPLICE.search(text):
        out: list[str] = []
        breaks = 0
        for n, part in enumerate(_SPLICE.split(text)):
            breaks += n > 0
            line, end, rest = part.partition("\n")
            out += [line, end * (breaks + 1), rest] if end else [line]
            breaks = 0 if end else breaks
        text = "".join(out)
    return _SPACE_ATTRIBUTE.sub(lambda m: f"__{m.group(1)}__" + "\n" * m.group().count("\n"), without_digraphs(text))


def without_digraphs(text: str) -> str:
    """Return the text with digraphs replaced by the brackets they represent; all offsets stay the same."""
    if re.search(r"<%|%>|<:|:>|%:", text) is None:
        return text
    return _DIGRAPH.sub(lambda m: _DIGRAPHS.get(m.group(), m.group()), text)
