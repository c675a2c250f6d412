"""HIP C++ as a user writes it to C++ that a host compiler takes.

Kernels, and device functions that use threadIdx, a barrier or shared memory, are wrapped where they stand in structs that
derive from one another, the first from ``hgcpu_thread`` of device.h: so threadIdx and its kin are members of one object per
thread. Everything else stays as it is, on the same line, so that the compiler's messages name the user's own lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final

from ...errors import DeclarationError
from ...source import (
    Conditionals,
    Item,
    Macro,
    Token,
    closing_angle,
    closing_index,
    expand_macros,
    include_folders,
    option_macros,
    scan,
    space_words,
    spell,
    split_commas,
    tokenize,
    without_attributes,
)
from .affine import Lines, find_lines, is_wide_integer
from .body import ASSIGNMENTS, BUILTIN, Hazards, NotUnderstood, holds_no_address, split_declaration
from .phases import split_phases

__all__ = ["ADD_FOLDER", "BARRIERS", "WARP_OPERATIONS", "KernelText", "Translation", "translate"]

_INDICES: Final = frozenset({"threadIdx", "blockIdx", "blockDim", "gridDim"}) | frozenset(
    f"hip{name}_{axis}" for name in ("ThreadIdx", "BlockIdx", "BlockDim", "GridDim") for axis in "xyz"
)
ADD_FOLDER: Final = "options=['-I/folder'] to the module"
BARRIERS: Final = frozenset({"__syncthreads", "__syncthreads_count", "__syncthreads_or", "__syncthreads_and"})
_WARP = ("__shfl", "__shfl_up", "__shfl_down", "__shfl_xor", "__ballot", "__any", "__all", "__match_any")
WARP_OPERATIONS: Final = frozenset({*_WARP, *(f"{name}_sync" for name in _WARP), "__activemask", "__syncwarp"})
#: A kernel that uses one of these stops early, and only a fiber can be left in the middle.
_STOPS: Final = frozenset({"assert", "__trap", "abort"})
#: Threads of a block that use one of these are run one after the other, never as lanes of a vector.
_SERIAL: Final = frozenset(
    {
        "printf", "malloc", "free", "volatile", "asm", "clock", "clock64", "__clock64", "__clock", "wall_clock64",
        "__threadfence", "__threadfence_block", "__threadfence_system", "__shared__", "HIP_DYNAMIC_SHARED", "goto",
    }
)  # fmt: skip
_CONTEXT: Final = _INDICES | BARRIERS | WARP_OPERATIONS | _STOPS | {"__shared__", "HIP_DYNAMIC_SHARED", "__lane_id"}

_REFUSED: Final = {
    "asm": "inline assembly",
    "__asm__": "inline assembly",
    "__asm": "inline assembly",
    "cooperative_groups": "cooperative groups; use __syncthreads() and the warp intrinsics",
    "texture": "textures; read an array instead",
    "__nanosleep": "sleeping inside a kernel",
    "hipLaunchKernelGGL": "kernels launched by kernels",
    "__match_all": "__match_all; use __match_any",
    "__match_all_sync": "__match_all_sync; use __match_any_sync",
}
_REFUSED_PATTERNS: Final = (
    (re.compile(r"(tex[123]D|surf[123]D|tex[123]DLod|texCubemap)\w*"), "textures and surfaces; read an array instead"),
    (re.compile(r"__builtin_(amdgcn|nvvm|ptx)_\w+"), "builtins of one GPU; put them behind #if !defined(HGCPU_CPU)"),
    (re.compile(r"hip(Malloc|Free|Memcpy|Memset|Device|Stream|Event|Graph)\w*"), "HIP's host calls inside kernel source"),
    (re.compile(r"__(w?mma|nvvm)_\w+"), "matrix instructions"),
)

#: Headers whose contents device.h has.
_KNOWN_HEADERS: Final = frozenset(
    {
        "hip/hip_runtime.h", "hip/hip_runtime_api.h", "hip/hip_fp16.h", "hip/hip_bf16.h", "hip/hip_bfloat16.h",
        "hip/hip_complex.h", "hip/hip_vector_types.h", "hip/hip_math_constants.h", "hip/math_functions.h",
        "hip/device_functions.h", "hip/hip_common.h", "hip/hiprtc.h", "hip/amd_detail/amd_hip_atomic.h",
        "hip/hip_atomic.h", "cuda_runtime.h", "cuda_fp16.h", "cuda_bf16.h", "math.h", "cmath", "stdint.h", "cstdint",
        "stddef.h", "cstddef", "stdio.h", "cstdio", "assert.h", "cassert", "float.h", "cfloat", "limits.h", "climits",
        "string.h", "cstring", "stdbool.h", "math_constants.h",
    }
)  # fmt: skip
#: Headers of the C++ library of which device.h has what kernels commonly use.
_LIGHT_HEADERS: Final = frozenset({"algorithm", "limits", "type_traits", "utility"})


@dataclass(slots=True)
class KernelText:
    """A kernel in the translated source.

    Attributes
    ----------
    name : str
        With its namespaces, e.g. ``"fluid::step"``.
    struct : str
        The struct that holds it.
    member : str
        Its name inside that struct.
    parameters : int
        How many it takes.
    words : frozenset of str
        Every name that it and the device functions it calls mention.
    lines : Lines or None
        Indices that are lines in the thread's number. The struct then has ``hgcpu_probe_<member>``, which stores them, and
        ``hgcpu_linear_<member>``, which takes the index; for a loop with a stride also ``hgcpu_more_<member>`` and
        ``hgcpu_next_<member>``, its condition and its step.
    mark : str
        Where the kernel was split at its barriers (see `phases.py`): the macro that stands before each loop over
        threadIdx.x. The struct then has ``hgcpu_block_<member>``, which runs a block.
    """

    name: str
    struct: str
    member: str
    parameters: int
    words: frozenset[str]
    lines: Lines | None = None
    mark: str = ""

    @property
    def waits(self) -> bool:
        """Whether its threads wait for each other, or may stop early."""
        return bool(self.words & (BARRIERS | WARP_OPERATIONS | _STOPS))

    @property
    def needs_fibers(self) -> bool:
        """Whether its threads run as fibers."""
        return self.waits and not self.mark

    @property
    def serial(self) -> bool:
        """Whether its threads must run one after the other."""
        # Between barriers threads use shared memory without meeting each other.
        words = self.words - {"__shared__", "HIP_DYNAMIC_SHARED"} if self.mark else self.words
        return bool(words & _SERIAL) or any(
            word.startswith(("atomic", "__hip_atomic", "unsafeAtomic", "safeAtomic")) for word in self.words
        )

    @property
    def dynamic_shared(self) -> bool:
        """Whether it reads the block's dynamic shared memory."""
        return "extern __shared__" in self.words or "HIP_DYNAMIC_SHARED" in self.words


@dataclass(slots=True)
class Translation:
    """What `translate` makes.

    Attributes
    ----------
    text : str
        C++ that follows ``#include "device.h"``, with ``#line`` directives.
    kernels : dict of str to KernelText
        By name; explicit specialisations by name and arguments.
    variables : frozenset of str
        Names of the device variables.
    standard : bool
        Whether the C++ library's own headers are included.
    light : bool
        Whether device.h stands in for headers of the C++ library that the source includes.
    """

    text: str
    kernels: dict[str, KernelText] = field(default_factory=dict)
    variables: frozenset[str] = frozenset()
    standard: bool = False
    light: bool = False


class _Edits:
    """Replacements by offset, applied together."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._edits: list[tuple[int, int, int, str]] = []

    def replace(self, start: int, end: int, text: str) -> None:
        # What is cut keeps its line breaks, so that all that follows stays on its line.
        cut = self.text[start:end].count("\n") - text.count("\n")
        self._edits.append((start, end, len(self._edits), text + "\n" * max(0, cut)))

    def blank(self, start: int, end: int) -> None:
        self.replace(start, end, "\n" * self.text[start:end].count("\n") or " ")

    def insert(self, at: int, text: str) -> None:
        self.replace(at, at, text)

    def apply(self) -> str:
        return self.apply_to(0, len(self.text))

    def apply_to(self, at: int, stop: int) -> str:
        """Return the part of the text from `at` to `stop` with the edits that lie in it."""
        out = []
        for start, end, _, text in sorted(self._edits):
            if start < at or end > stop:
                continue  # inside a piece that is replaced as a whole
            out += [self.text[at:start], text]
            at = end
        out.append(self.text[at:stop])
        return "".join(out)


def _line_at(text: str, offset: int) -> tuple[str, int]:
    """Return the file and the line of an offset, by the ``#line`` directive before it."""
    before = text[:offset]
    found = list(re.finditer(r'^#line (\d+) "([^"]*)"\n', before, re.MULTILINE))
    if not found:
        return "", before.count("\n") + 1
    last = found[-1]
    return last.group(2), int(last.group(1)) + before.count("\n", last.end())


def _resolve(source: str, name: str, macros: dict[str, Macro], folders: Sequence[Path], headers: set[str], depth: int = 0) -> str:
    """Take away what conditionals leave out and put included files in; `headers` collects those of the C++ library."""
    where = f"kernel source {name!r}"
    conditionals = Conditionals(macros, where)
    edits = _Edits(source)
    for token in tokenize(source, where):
        was_reading = conditionals.reading
        if token.kind != "directive":
            if not was_reading:
                edits.blank(token.start, token.end)
            continue
        word = conditionals.directive(token.text, token.line)
        conditionals.headers = conditionals.headers or word == "include"
        if not was_reading or word in ("if", "ifdef", "ifndef", "elif", "else", "endif"):
            edits.blank(token.start, token.end)
        elif word == "include":
            edits.replace(token.start, token.end, _included(token, name, macros, folders, headers, depth))
        elif word == "pragma" and "once" in token.text:
            edits.blank(token.start, token.end)
    return edits.apply()


def _included(token: Token, name: str, macros: dict[str, Macro], folders: Sequence[Path], headers: set[str], depth: int) -> str:
    match = re.match(r'#\s*include\s*(?:<([^>]+)>|"([^"]+)")', token.text)
    if match is None:
        raise DeclarationError(f"kernel source {name!r}, line {token.line}: {token.text.strip()!r} is not understood")
    system, quoted = match.groups()
    header = (system or quoted).strip()
    if header in _KNOWN_HEADERS:
        return " "
    if "cooperative_groups" in header:
        raise DeclarationError(
            f"kernel source {name!r}, line {token.line}: runtime 'cpu' does not support cooperative groups; use "
            "__syncthreads() and the warp intrinsics"
        )
    if header.startswith(("hip/", "rocprim/", "hipcub/", "thrust/", "cub/", "rocwmma/", "cuda/")):
        raise DeclarationError(
            f"kernel source {name!r}, line {token.line}: runtime 'cpu' does not have the header <{header}>; put what needs "
            "it behind #if !defined(HGCPU_CPU)"
        )
    for folder in folders:
        path = folder / header
        if path.is_file():
            if depth >= 32:
                raise DeclarationError(f"kernel source {name!r}, line {token.line}: includes are nested too deeply")
            text = path.read_text(errors="replace")
            if re.search(r"^\s*#\s*pragma\s+once", text, re.MULTILINE):
                if str(path.resolve()) in headers:
                    return " "
                headers.add(str(path.resolve()))
            inner = _resolve(text, header, macros, [path.parent, *folders], headers, depth + 1)
            return f'\n#line 1 "{header}"\n{inner}\n#line {token.line + 1} "{name}"\n'
    if quoted:
        raise DeclarationError(
            f'kernel source {name!r}, line {token.line}: #include "{header}" is found in none of the folders given; '
            f"add {ADD_FOLDER}, or put its text into the source"
        )
    headers.add(f"<{header}>")
    return " " if header in _LIGHT_HEADERS and "real headers" not in headers else token.text


def _directive_macros(tokens: Iterable[Token]) -> tuple[dict[str, Macro], list[Token]]:
    macros: dict[str, Macro] = {}
    plain = []
    conditionals = Conditionals(macros, "kernel source")
    for token in tokens:
        if token.kind == "directive":
            conditionals.directive(token.text)
        else:
            plain.append(token)
    return macros, plain


def _expand(text: str) -> str:
    """Expand those uses of macros that make declarations or braces, or that name anything."""
    edits = _Edits(text)
    macros: dict[str, Macro] = {}
    conditionals = Conditionals(macros, "kernel source")
    tokens = tokenize(text, "kernel source")
    i = 0
    while i < len(tokens):
        token = tokens[i]
        if token.kind == "directive":
            conditionals.directive(token.text)
            i += 1
            continue
        macro = macros.get(token.text) if token.kind == "name" else None
        if macro is None:
            i += 1
            continue
        end = i + 1
        if macro.parameters is not None:
            if end >= len(tokens) or tokens[end].text != "(":
                i += 1
                continue
            end = min(closing_index(tokens, end) + 1, len(tokens))
        made = expand_macros([t for t in tokens[i:end] if t.kind != "directive"], macros)
        names = {t.text for t in made}
        # Numbers and types may stay; what names variables or functions must be seen.
        if any(t.kind == "name" and t.text not in BUILTIN for t in made) or ("{" in names) != ("}" in names):
            edits.replace(token.start, tokens[end - 1].end, " ".join(t.text for t in made))
        i = end
    return edits.apply()


def function_name(item: Item) -> str:
    """Return the name of a function, ``operator+`` included, with the arguments of an explicit specialisation."""
    head = without_attributes(item.head)
    for n, token in enumerate(head):
        if token.text == "operator":
            end = next((m for m in range(n + 1, len(head)) if head[m].text == "(" and m > n + 1), len(head))
            return "operator" + "".join(t.text for t in head[n + 1 : end])
        if token.kind == "name" and n + 1 < len(head):
            if head[n + 1].text == "(":
                return token.text
            if head[n + 1].text == "<" and item.templates == ():
                close = closing_angle(head, n + 1)
                if close + 1 < len(head) and head[close + 1].text == "(":
                    return spell(head[n : close + 1])
    return ""


def _parameter_count(item: Item) -> int:
    return len(split_commas(_parameters(item)))


def _refuse(text: str, tokens: Sequence[Token]) -> None:
    for n, token in enumerate(tokens):
        if token.kind != "name":
            if token.text == "<<" and n + 1 < len(tokens) and tokens[n + 1].text == "<":
                file, line = _line_at(text, token.start)
                raise DeclarationError(f"{file}:{line}: runtime 'cpu' does not support kernels launched by kernels (<<<)")
            continue
        reason = _REFUSED.get(token.text)
        if reason is None:
            reason = next((why for pattern, why in _REFUSED_PATTERNS if pattern.fullmatch(token.text)), None)
        if reason is not None:
            file, line = _line_at(text, token.start)
            raise DeclarationError(f"{file}:{line}: runtime 'cpu' does not support {reason} ({token.text})")


def translate(
    source: str,
    name: str,
    options: Sequence[str] = (),
    predefined: Mapping[str, str] | None = None,
    *,
    improve: bool = True,
    real_headers: bool = False,
) -> Translation:
    """Translate HIP C++ source.

    Parameters
    ----------
    source : str
        HIP C++.
    name : str
        File name for the compiler's messages.
    options : sequence of str
        Compiler options; ``-D`` and ``-I`` are followed.
    predefined : mapping, optional
        Macros of the host compiler that conditionals may ask for.
    improve : bool
        Whether to add what only makes kernels faster.
    real_headers : bool
        Whether ``<algorithm>`` and its like are the C++ library's own, which takes longer to compile, and with zig a
        minute the first time.

    Raises
    ------
    DeclarationError
        If the source uses what a CPU cannot do; file, line and construct are named.
    """
    name = re.sub(r'["\\\n]', "_", name)
    macros = option_macros([*(f"-D{key}={value}" for key, value in (predefined or {}).items()), *options])
    headers = {"real headers"} if real_headers else set()
    text = f'#line 1 "{name}"\n' + _resolve(space_words(source), name, macros, include_folders(options), headers) + "\n"
    text = _expand(text)
    defined, tokens = _directive_macros(tokenize(text, f"kernel source {name!r}"))
    _refuse(text, tokens)
    items = list(scan(tokens, f"kernel source {name!r}"))
    constants = _integer_constants({**macros, **defined}, items)
    made = _wrap(text, items, constants, improve)
    included = {header[1:-1] for header in headers if header.startswith("<")}
    made.light = bool(included & _LIGHT_HEADERS) and not real_headers
    made.standard = bool(included - _LIGHT_HEADERS) or (real_headers and bool(included))
    if made.light and made.standard:
        return translate(source, name, options, predefined, improve=improve, real_headers=True)
    return made


def _words(item: Item) -> set[str]:
    return {t.text for t in (*item.head, *(item.body or [])) if t.kind == "name"}


def _needing_context(items: Sequence[Item], shared: frozenset[str]) -> dict[str, set[str]]:
    """Return, for each function that must become a member, every name that it or what it calls mentions."""
    functions = [item for item in items if item.kind in ("kernel", "function") and item.body is not None]
    mentions: dict[str, set[str]] = {}
    for item in functions:
        found = mentions.setdefault(function_name(item).partition("<")[0], set())
        found |= _words(item)
        if _extern_shared(item.body or []) or found & shared:
            found.add("extern __shared__")
    kernels = {function_name(item).partition("<")[0] for item in functions if item.kind == "kernel"}
    context = {name for name, words in mentions.items() if name in kernels or words & (_CONTEXT | shared)}
    changed = True
    while changed:
        changed = False
        for name, words in mentions.items():
            for called in words & mentions.keys():
                if not mentions[called] <= words:
                    words |= mentions[called]
                    changed = True
                if called in context and name not in context:
                    context.add(name)
                    changed = True
    return {name: mentions[name] for name in context}


def _extern_shared(tokens: Sequence[Token]) -> list[tuple[int, int]]:
    """Return the index ranges of the statements ``extern __shared__ ...;``."""
    found = []
    for n, token in enumerate(tokens):
        if token.text == "__shared__":
            start = n
            while start and tokens[start - 1].text not in (";", "{", "}"):
                start -= 1
            end = n
            while end < len(tokens) and tokens[end].text != ";":
                end += 1
            if any(t.text == "extern" for t in tokens[start:end]):
                found.append((start, end))
    return found


def _dynamic_declaration(statement: Sequence[Token]) -> tuple[str, str]:
    """Return the name, and a declaration of it as a pointer into the block's dynamic shared memory."""
    plain = [t for t in without_attributes(statement) if t.text not in ("extern", "__shared__", "static", ";")]
    bracket = next((n for n, t in enumerate(plain) if t.text == "["), len(plain))
    name = plain[bracket - 1].text
    kind = " ".join(t.text for t in plain[: bracket - 1])
    rest = plain[closing_index(plain, bracket) + 1 :] if bracket < len(plain) else []
    bounds = " ".join(t.text for t in rest)
    pointer = f"{kind} (*{{}}){bounds}" if bounds else f"{kind}* {{}}"
    return name, f"{pointer.format(name)} = reinterpret_cast<{pointer.format('')}>(hgcpu_dynamic);"


def _parameters(item: Item) -> list[Token]:
    """Return the tokens between the parentheses of a function's parameters."""
    head = without_attributes(item.head)
    for n, token in enumerate(head):
        if token.text == "(" and n and (head[n - 1].kind == "name" or head[n - 1].text == ">"):
            inside = head[n + 1 : closing_index(head, n)]
            return [] if [t.text for t in inside] == ["void"] else inside
    return []


def _linear_copies(
    text: str, item: Item, constants: frozenset[str], context: Iterable[str], hazards: Hazards
) -> tuple[str, Lines | None]:
    """Return the text of a kernel's probe and of its copy with lines in place of indices, and the lines."""
    body = item.body or []
    parameters = _parameters(item)
    integers = set(constants)
    taken = {}
    for part in split_commas(parameters):
        for declared in split_declaration(part) or []:
            taken[declared.name.text] = declared
            if is_wide_integer(declared.type) and not declared.pointers and not declared.bounds:
                integers.add(declared.name.text)
            else:
                integers.discard(declared.name.text)
    found = find_lines(body, integers, context, taken, hazards=hazards)
    if found is None or integers & set(found.names):
        return "", None
    name = function_name(item)
    template = text[item.tokens[0].start : item.head[0].start]
    listed = text[parameters[0].start : parameters[-1].end] + ", " if parameters else ""
    start, end, count = body[0].start, body[-1].end, len(found.names)
    stores = "".join(
        f" hgcpu_at[{n}] = (unsigned long long)({v}); hgcpu_at[{count + n}] = hgcpu_sign_bit<decltype({v})>;"
        for n, v in enumerate(found.names)
    )
    edits = _Edits(text)
    for token in found.consts:
        edits.blank(token.start, token.end)
    for n, (v, place) in enumerate(zip(found.names, found.places)):
        along = "hgcpu_along" if n == 0 else f"(hgcpu_from[{n}] + hgcpu_along)"
        edits.insert(place, f" {v} = (decltype({v})){along};")
    stride = found.stride
    if stride is not None:
        # The loop's own first part belongs to what is run to measure.
        init = text[slice(*stride.init)] + ";" if stride.init[1] else ""
        along = f" {found.names[0]} = (decltype({found.names[0]}))hgcpu_along;"
        writable = _Edits(text)
        for token in found.consts:
            writable.blank(token.start, token.end)
        prefix = writable.apply_to(start, stride.start) + init
        given = f"{listed}{found.type} hgcpu_along"
        condition, step, inner = (text[slice(*part)] for part in (stride.condition, stride.step, stride.body))
        once = f"for (bool hgcpu_once = true; hgcpu_once && ({condition}); hgcpu_once = false)"
        return (
            f"{template} inline void hgcpu_probe_{name}({listed}unsigned long long* hgcpu_at) {{ {prefix}{stores} }}\n"
            f"{template} inline bool hgcpu_more_{name}({given}) {{ {prefix}{along} return {condition}; }}\n"
            f"{template} inline {found.type} hgcpu_next_{name}({given}) "
            f"{{ {prefix}{along} {step}; return ({found.type}){found.names[0]}; }}\n"
            f"{template} inline void hgcpu_linear_{name}({listed}const unsigned long long*, {found.type} hgcpu_along) "
            f"{{ {prefix}{along}\n{once} {inner} }}",
            found,
        )
    return (
        f"{template} inline void hgcpu_probe_{name}({listed}unsigned long long* hgcpu_at) "
        f"{{ {text[start : found.end]}{stores} }}\n"
        f"{template} inline void hgcpu_linear_{name}({listed}const unsigned long long* hgcpu_from, {found.type} hgcpu_along) "
        f"{{ {edits.apply_to(start, end)} }}",
        found,
    )


def _hazards(items: Sequence[Item], used: frozenset[str] | set[str]) -> Hazards:
    """Return through what the source, or a function of C++'s own that it uses, may change a variable without an assignment."""
    references = bool(used & {"swap", "exchange", "tie", "ref", "addressof", "__builtin_addressof"})
    operators = False
    members: dict[str, int] = {}
    values: set[str] = set()
    for item in items:
        if item.kind == "record" and _is_value(item, frozenset(values)):
            values |= {t.text for t in (*item.head, *item.trailing) if t.kind == "name"} - {"struct", "class", "typedef"}
        if item.kind == "function":
            writes = _writable(_parameters(item))
            references = references or any(t.text in ("&", "&&") for t in _parameters(item))
            operators = operators or (writes and _is_operator(item.head))
        body = item.body or []
        record = item.kind == "record"
        for n, token in enumerate(body):
            following = body[n + 1].text if n + 1 < len(body) else ""
            if token.text == "(" and n and (body[n - 1].text == "]" or record):
                close = closing_index(body, n)
                references = references or any(t.text in ("&", "&&") for t in body[n:close])
            elif record and token.text in ("&", "&&") and body[n + 2 : n + 3] and body[n + 2].text in (";", ",", "="):
                references = True  # a member
            elif record and token.text == "operator":
                operators = operators or _is_operator(body[n:])
            elif record and token.kind == "name" and following == "[":
                end, count = n, 0
                while end + 1 < len(body) and body[end + 1].text == "[":
                    end, count = closing_index(body, end + 1), count + 1
                members[token.text] = max(count, members.get(token.text, 0))
    return Hazards(references, operators, members, frozenset(values))


def _is_value(item: Item, values: frozenset[str]) -> bool:
    """Return whether all members of a struct are numbers, or structs of numbers."""
    plain: list[Token] = []
    body = item.body or []
    n = 0
    while n < len(body):
        plain.append(body[n])
        n = closing_index(body, n) + 1 if body[n].text in ("(", "{", "[") else n + 1
    others = {"*", "&", "&&", "auto", "using", "typedef", ":"}
    if item.templates is not None or any(t.text in others for t in (*item.head, *plain)):
        return False
    kinds = (a for a, b in pairwise(plain) if a.kind == b.kind == "name")
    skipped = {"const", "constexpr", "static", "inline", "struct", "__device__", "__host__", "__forceinline__"}
    return all(kind.text in skipped or holds_no_address([kind], values) for kind in kinds)


def _writable(parameters: Sequence[Token]) -> bool:
    """Return whether one of the parameters is a reference that can write."""
    return any(
        any(t.text in ("&", "&&") for t in part) and not any(t.text == "const" for t in part)
        for part in split_commas(parameters)
    )


def _is_operator(tokens: Sequence[Token]) -> bool:
    """Return whether the first operator there is neither an assignment nor [], both of which are seen, nor const."""
    at = next((n for n, t in enumerate(tokens) if t.text == "operator"), len(tokens))
    start = at + 3 if [t.text for t in tokens[at + 1 : at + 3]] == ["(", ")"] else at + 1
    opening = next((n for n in range(start, len(tokens)) if tokens[n].text == "("), len(tokens))
    if opening == len(tokens):
        return False
    spelled = "".join(t.text for t in tokens[at + 1 : opening])
    if spelled in ASSIGNMENTS | {">>=", "[]", "++", "--"}:
        return False
    after = tokens[closing_index(tokens, opening) + 1 :][:1]
    return not (after and after[0].text == "const" and "*" not in spelled and "&" not in spelled)


def _block_copy(
    text: str,
    items: Sequence[Item],
    item: Item,
    kernel: KernelText,
    constants: frozenset[str],
    context: Mapping[str, set[str]],
    shared: Mapping[str, str],
    mark: str,
) -> str:
    """Return the text of a function that runs a block of the kernel, split at its barriers; empty where it cannot be."""
    body = item.body or []
    used = {t.text for t in body}
    waiting = BARRIERS | WARP_OPERATIONS | _STOPS
    if kernel.words & waiting != {"__syncthreads"} or any(context[name] & waiting for name in used & context.keys()):
        return ""
    names = {t.name for t in item.templates or () if t.name}
    try:
        split = split_phases(
            text, body, _parameters(item), constants | names, {*context, "__lane_id"}, hazards=_hazards(items, used), mark=mark,
            dynamic=lambda statement: _dynamic_declaration(statement)[1],
        )  # fmt: skip
    except NotUnderstood:
        return ""
    kernel.mark = mark
    template = text[item.tokens[0].start : item.head[0].start]
    parameters = _parameters(item)
    listed = text[parameters[0].start : parameters[-1].end] if parameters else ""
    inside = " ".join(declaration for variable, declaration in shared.items() if variable in used)
    return f"{template} inline void hgcpu_block_{function_name(item)}({listed}) {{ {inside}\n{split}\n}}"


def _integer_constants(macros: Mapping[str, Macro], items: Sequence[Item]) -> frozenset[str]:
    """Return the names of integer constants outside of functions."""
    found = set()
    for name, macro in macros.items():
        if macro.parameters is None and macro.body:
            expanded = expand_macros(macro.body, macros, frozenset({name}))
            if all(re.fullmatch(r"[0-9]+[uUlL]*|[-+*/()]|<<", t.text) for t in expanded):
                found.add(name)
    for item in items:
        words = {t.text for t in item.head}
        if item.kind == "variable" and words & {"const", "constexpr"} and not words & {"__device__", "__constant__"}:
            try:
                declared = split_declaration(item.tokens) or []
            except NotUnderstood:
                continue
            found |= {d.name.text for d in declared if is_wide_integer(d.type) and not d.pointers and not d.bounds}
    return frozenset(found)


def _wrap(text: str, items: Sequence[Item], constants: frozenset[str], improve: bool) -> Translation:
    edits = _Edits(text)
    # Shared memory of dynamic size that is declared outside of functions is declared again inside those that use it.
    shared: dict[str, str] = {}
    for item in items:
        if item.kind == "variable" and {"extern", "__shared__"} <= {t.text for t in item.head}:
            variable, declaration = _dynamic_declaration(item.head)
            shared[variable] = declaration
            edits.blank(item.tokens[0].start, item.tokens[-1].end)
    context = _needing_context(items, frozenset(shared))
    made = Translation("")
    defined = {function_name(item) for item in items if item.kind in ("kernel", "function") and item.body is not None}
    members: dict[str, str] = {}
    base = "hgcpu_thread"
    variables = set()
    count = 0
    for item in items:
        words = {t.text for t in item.head}
        first, last = item.tokens[0], item.tokens[-1]
        if item.kind in ("open", "close"):
            edits.blank(first.start, last.end)
        elif item.kind == "variable":
            if words & {"__device__", "__constant__", "__managed__"}:
                variables |= {item.space + t.text for t in item.tokens if t.kind == "name"}
            _drop_linkage(edits, item.head)
        elif item.kind == "record":
            if words & {"__device__", "__constant__", "__managed__"}:
                variables |= {item.space + t.text for t in item.trailing if t.kind == "name"}
            _check_record(text, item, context)
        elif item.kind == "instantiation":
            if words_of_instantiation(item) & context.keys():
                edits.blank(first.start, last.end)
        elif item.kind in ("kernel", "function"):
            called = function_name(item)
            stem, _, arguments = called.partition("<")
            if stem not in context:
                _drop_linkage(edits, item.head)
                continue
            if item.body is None:
                if called not in defined:
                    file, line = _line_at(text, first.start)
                    raise DeclarationError(f"{file}:{line}: {called!r} is declared and not defined")
                edits.blank(first.start, last.end)
                continue
            count += 1
            struct = f"hgcpu_c{count}"
            member = stem
            if item.templates == () and arguments:
                member = _specialise(edits, text, item, called, count)
            opening = f"struct {struct} : {base} {{ "
            if stem in members and member == stem:
                opening += f"using {members[stem]}::{stem}; "
            edits.insert(first.start, opening)
            for token in item.head:
                if token.text in ("static", "constexpr"):
                    edits.blank(token.start, token.end)
            _drop_linkage(edits, item.head)
            _rewrite_body(edits, item, shared)
            base = f"::{item.space}{struct}"
            if member == stem:
                members[stem] = base
            if item.kind == "kernel":
                kernel = KernelText(item.space + called, base, member, _parameter_count(item), frozenset(context[stem]))
                made.kernels[kernel.name] = kernel
                copies = ""
                if improve and member == stem and not kernel.waits and not kernel.serial:
                    copies, kernel.lines = _linear_copies(
                        text, item, constants, context, _hazards(items, {t.text for t in item.body})
                    )
                elif improve and member == stem and kernel.waits:
                    copies = _block_copy(text, items, item, kernel, constants, context, shared, f"HGCPU_PHASE_{count}")
                if copies:
                    # As a system header, so that the compiler does not warn about the user's statements twice.
                    file, line = _line_at(text, last.end)
                    edits.insert(last.end, f'\n# 1 "copies" 3\n{copies}\n# {line} "{file}"\n')
            edits.insert(last.end, " };")
    made.text = edits.apply()
    made.variables = frozenset(variables)
    return made


def words_of_instantiation(item: Item) -> set[str]:
    """Return the names that an explicit instantiation mentions."""
    return {t.text for t in item.tokens if t.kind == "name"}


def _drop_linkage(edits: _Edits, head: Sequence[Token]) -> None:
    for n, token in enumerate(head):
        if token.text == "extern" and n + 1 < len(head) and head[n + 1].kind == "string":
            edits.blank(token.start, head[n + 1].end)


def _check_record(text: str, item: Item, context: Mapping[str, set[str]]) -> None:
    for n, token in enumerate(item.body or []):
        if token.text in _CONTEXT or (token.text in context and (item.body or [])[n + 1 : n + 2] != []):
            following = (item.body or [])[n + 1 : n + 2]
            if token.text in _CONTEXT or (following and following[0].text in ("(", "<")):
                file, line = _line_at(text, token.start)
                raise DeclarationError(
                    f"{file}:{line}: runtime 'cpu' does not support {token.text} in a member function of a struct; pass what "
                    "it gives as an argument, or use a plain __device__ function"
                )


def _specialise(edits: _Edits, text: str, item: Item, called: str, count: int) -> str:
    """Turn an explicit specialisation of a kernel template into a function of its own; return its name."""
    if item.kind != "kernel":
        file, line = _line_at(text, item.tokens[0].start)
        raise DeclarationError(
            f"{file}:{line}: runtime 'cpu' does not support specialisations of device functions that use threadIdx or a "
            f"barrier ({called}); use if constexpr inside the template"
        )
    template_end = next(n for n, t in enumerate(item.tokens) if t.text == ">")
    edits.blank(item.tokens[0].start, item.tokens[template_end].end)
    stem = called.partition("<")[0]
    at = next(n for n, t in enumerate(item.head) if t.text == stem and item.head[n + 1].text == "<")
    member = f"hgcpu_specialised_{count}"
    edits.replace(item.head[at].start, item.head[closing_angle(item.head, at + 1)].end, member)
    return member


def _rewrite_body(edits: _Edits, item: Item, shared: Mapping[str, str]) -> None:
    body = item.body or []
    for start, end in _extern_shared(body):
        _, declaration = _dynamic_declaration(body[start:end])
        edits.replace(body[start].start, body[end].end if end < len(body) else body[-1].end, declaration)
    for n, token in enumerate(body):
        if token.text == "__shared__":
            near = [m for m in (n - 1, n + 1) if 0 <= m < len(body) and body[m].text == "static"]
            for m in near:
                edits.blank(body[m].start, body[m].end)
    used = {t.text for t in body}
    inside = [declaration for variable, declaration in shared.items() if variable in used]
    if inside:
        opening = len(item.tokens) - len(body) - 2  # the brace before the body
        edits.insert(item.tokens[opening].end, " " + " ".join(inside))
