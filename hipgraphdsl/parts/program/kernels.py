"""The modules of a workflow as one section of a HIP C++ program."""

from __future__ import annotations

import itertools
import re
from typing import Final

from ...backends.handles import BUILT_IN
from ...errors import DeclarationError
from ...kernels import Module, Symbol
from ...nodes.facets import KernelLaunch
from ...nodes.workflow import Workflow
from ...source import KernelName, tokenize
from .parts import FIXED_NAMES
from .text import CTYPES, KEYWORDS, Names, comment, section

HEADERS: Final = {
    "hip/hip_fp16.h": ("cuda_fp16.h", re.compile(r"\b(?:__)?half2?\b")),
    "hip/hip_bf16.h": ("cuda_bf16.h", re.compile(r"\b__hip_bfloat16\b")),
    "hip/hip_bfloat16.h": ("cuda_bf16.h", re.compile(r"\bhip_bfloat16\b")),
    "hip/hip_complex.h": ("cuComplex.h", re.compile(r"\bhip(?:Float|Double)?Complex\b")),
    "hip/hip_cooperative_groups.h": ("cooperative_groups.h", re.compile(r"\bcooperative_groups\b")),
}


class Kernels:
    """The modules of a workflow in one program."""

    def __init__(self, workflow: Workflow) -> None:
        self.modules = [m for m in workflow.modules if m.handle is None and m.path is None]
        self.built_in: set[str] = set()
        self.names: set[str] = set()
        for module in self.modules:
            self.names |= _outer_names(module)
        space = Names(FIXED_NAMES | self.names | set(KEYWORDS))
        self.spaces = {m: space.new(m.name) if len(self.modules) > 1 else "" for m in self.modules}
        self.names |= set(self.spaces.values())
        given = dict.fromkeys(tuple(o for o in m.options if not o.startswith("-D")) for m in self.modules)
        self.flags = list(itertools.chain.from_iterable(given))  # keep duplicates: -Xclang -a -Xclang -b
        words = "\n".join(m.source for m in self.modules)
        self.headers = [name for name, (_, word) in HEADERS.items() if name in words or word.search(words)]

    def kernel(self, node: KernelLaunch) -> str:
        """Return the name of a kernel in the program."""
        module = node.kernel.module
        if module.handle is not None or module.path is not None:
            what = "was read from a graph of another program" if module.handle is not None else "is a code object"
            raise DeclarationError(
                f"node {node.name!r}: kernel {node.kernel.name!r} {what}, of which there is no source to put into a program;"
                " declare the kernel from its source",
                node=node.name,
            )
        name = KernelName.of(node.kernel.name)
        return name.address(self._qualified(module, name.written), f"{self.spaces[module]}::" if self.spaces[module] else "")

    def reference(self, symbol: Symbol) -> str:
        """Return the name of a device variable in the program."""
        return self._qualified(symbol.module, symbol.name)

    def _qualified(self, module: Module, name: str) -> str:
        space = self.spaces[module]
        name = name.removeprefix("::")
        if space:
            return f"{space}::{name}"
        return f"::{name}" if re.match(r"\w*", name).group() in FIXED_NAMES else name  # type: ignore[union-attr]

    def text(self) -> list[str]:
        """Return the section with the kernels."""
        lines: list[str] = []
        several = len(self.modules) > 1
        for module in self.modules:
            source = _without_headers(module.source, several)
            given = []
            for option in module.options:
                if option.startswith("-D"):
                    name, _, value = " ".join(option[2:].split()).partition("=")
                    if found := re.fullmatch(r"([A-Za-z_]\w*)(\([\w, .]*\))?", name):
                        given.append((found[1], f"{found[2] or ''} {value or '1'}"))
            lines += comment(f"Module {module.name}") if several else []
            lines += [f"#define {name}{value}" for name, value in given]
            if self.spaces[module]:
                source = _without_c_names(source)
                lines.append(f"namespace {self.spaces[module]} {{")
            lines += source.replace("\r\n", "\n").strip("\n").split("\n")
            if self.spaces[module]:
                lines.append(f"}}  // namespace {self.spaces[module]}")
            defined = re.findall(r"^[ \t]*#[ \t]*define[ \t]+([A-Za-z_]\w*)", source, re.MULTILINE)
            lines += [f"#undef {name}" for name in dict.fromkeys([*(name for name, _ in given), *defined])]
            lines.append("")
        for part in re.split(r"\n(?=// )", BUILT_IN.source.strip("\n")):
            if any(re.search(rf"\b{name}\b", part) for name in self.built_in):
                lines += [*part.strip("\n").split("\n"), ""]
        if not lines:
            return []
        return [
            *section("Kernels"),
            "#if !defined(HIP_CPU)  // kernels begin: for a CPU they are compiled apart",
            *lines,
            "#endif  // kernels end",
            "",
        ]


def _outer_names(module: Module) -> set[str]:
    """Return the names that a source and its headers declare outside functions, and their macros; of nested scopes, all names."""
    return set().union(*(_names_outside(text, module.name) for text in (module.source, *module.headers.values())))


def _names_outside(text: str, where: str) -> set[str]:
    names: set[str] = set()
    depth = 0
    tokens = tokenize(text, where)
    nested = any(t.text == "namespace" or (t.text == '"C"' and tokens[k + 1].text == "{") for k, t in enumerate(tokens[:-1]))
    for token in tokens:
        if token.kind == "directive":
            names |= set(re.findall(r"#\s*define\s+(\w+)", token.text))
        elif token.text in "({[" and token.kind == "punct":
            depth += 1
        elif token.text in ")}]" and token.kind == "punct":
            depth -= 1
        elif token.kind == "name" and (nested or depth == 0):
            names.add(token.text)
    return names - set(KEYWORDS) - set(CTYPES.values())


def _without_headers(source: str, every: bool) -> str:
    """Remove HIP's headers, which the top of the program includes depending on the platform; with `every`, all ``<...>``."""
    pattern = r"^[ \t]*#[ \t]*include[ \t]*<(hip/[^>\n]*)>[^\n]*$"
    text = re.sub(pattern, "", source, flags=re.MULTILINE)
    if every:  # a header must not be included inside a namespace
        text = re.sub(r"^[ \t]*#[ \t]*(?:include[ \t]*<[^>\n]*>|pragma[ \t]+once)[^\n]*$", "", text, flags=re.MULTILINE)
    return text


def _without_c_names(source: str) -> str:
    """Give functions C++ linkage: kernels of the same name in two modules would otherwise be the same function."""
    out, at = [], 0
    tokens = tokenize(source)
    for before, token in itertools.pairwise(tokens):
        if before.text == "extern" and token.text == '"C"':
            out += [source[at : token.start], '"C++"']
            at = token.end
    return "".join([*out, source[at:]])
