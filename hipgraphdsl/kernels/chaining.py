"""Chaining: a kernel of one block that does launches of one block, each behind the one before.

Behind each kernel its text is put once more, as a device function (see `batching`), and at the end of the module an entry point
that takes a table of launches: which kernel, with which arguments. It does one after the other, with a barrier behind each, which
makes what one has written visible to the next. No kernel may take its arrays for read-only or apart from each other then, because
an earlier one may have written them: ``__restrict__`` is left out, and kernels that say more are not chained.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ..source import KernelDeclaration, spell, split_commas
from .batching import MACROS, Tabled, asserted, reason_against, words_of
from .instances import find_kernel
from .module import Kernel, Module

_RESTRICT: Final = frozenset({"__restrict__", "__restrict", "restrict"})
_READ_ONLY: Final = frozenset({"__ldg", "__builtin_nontemporal_load", "tex1Dfetch"})
_BODY: Final = "static __device__ __forceinline__ void hg_link_{name}({parameters}) {body}\n"
_CASE: Final = """\
      case {kind}: {{
        struct hg_arguments {{ {fields} }};
        const hg_arguments &own = *reinterpret_cast<const hg_arguments *>(table.links[at].args);
{asserted}\
        hg_link_{name}(place, extent{arguments});
        break;
      }}
"""
_ENTRY: Final = """
struct hg_chain_table_{count} {{
  unsigned int count, rest[3];
  struct alignas({align}) link {{
    unsigned int kind, rest[3];
    alignas({align}) unsigned char args[{nbytes}];
  }} links[{count}];
}};
extern "C" __global__ void __launch_bounds__({threads}, 1) hg_chain_{count}(HG_GRID_CONSTANT hg_chain_table_{count} table) {{
  HG_WAIT
  uint3 place;
  place.x = place.y = place.z = 0;
  const dim3 extent(1, 1, 1);
  for (unsigned int at = 0; at < table.count; ++at) {{
    switch (table.links[at].kind) {{
{cases}    }}
    __syncthreads();
  }}
}}
"""
_WORDS: Final = words_of(_BODY, _CASE, _ENTRY)


@dataclass(frozen=True)
class Chaining(Tabled):
    """How launches of some kernels, one behind the other, become one.

    Attributes
    ----------
    launch : numpy.dtype
        Its kind, its arguments.
    kernels : tuple of Kernel
        Of one module; the n-th is kind n + 1 in the table, and 0 does nothing.
    threads : int
        Most threads of a block.
    """

    kernels: tuple[Kernel, ...]
    threads: int

    @property
    def module(self) -> Module:
        """Where the kernels stand."""
        return self.kernels[0].module

    def name(self, count: int) -> str:
        """Return the name of the entry point of so many launches."""
        return f"hg_chain_{count}"

    def source(self, counts: Iterable[int]) -> str:
        """Return the module's source with an entry point of so many launches each."""
        source, cases = self.module.source, []
        bodies: list[tuple[int, str]] = []
        for kind, kernel in enumerate(self.kernels, 1):
            declared = find_kernel(self.module.declared, kernel.name).declared
            assert declared.braces is not None
            assert kernel.signature is not None
            start, stop = declared.braces
            parameters = [spell(part) for part in _parameters(declared)]
            said = {"kind": kind, "name": f"{kind}_{declared.name}", "fields": " ".join(f"{part};" for part in parameters)}
            said["asserted"] = asserted(kernel.signature, "own")
            arguments = "".join(f", own.{known.name}" for known in kernel.signature.parameters)
            cases.append(_CASE.format(arguments=arguments, **said))
            taken = ", ".join(["const uint3 blockIdx", "const dim3 gridDim", *parameters])
            bodies.append((stop, _BODY.format(name=said["name"], parameters=taken, body=source[start:stop])))
        for stop, text in sorted(bodies, reverse=True):
            source = f"{source[:stop]}\n{text}{source[stop:]}"
        fields = self.launch.fields
        assert fields is not None
        layout = {"nbytes": fields["args"][0].itemsize, "align": _align(self.kernels), "threads": self.threads}
        entries = "".join(_ENTRY.format(count=count, cases="".join(cases), **layout) for count in counts)
        return f"{source}\n{MACROS}{entries}"


def chaining(kernels: Sequence[Kernel], threads: int) -> Chaining:
    """Return how launches of kernels of one module become one; `unchained` has nothing against any of them."""
    align = _align(kernels)
    at = -(-16 // align) * align
    nbytes = max(1, *(kernel.signature.nbytes for kernel in kernels if kernel.signature is not None))
    layout: Any = {
        "names": ["kind", "args"],
        "formats": ["<u4", f"V{nbytes}"],
        "offsets": [0, at],
        "itemsize": -(-(at + nbytes) // align) * align,
    }
    return Chaining(np.dtype(layout), tuple(kernels), threads)


def unchained(kernel: Kernel) -> str:
    """Return why launches of a kernel cannot be links of a chain; empty if they can."""
    return kernel.module.known(_unchained, kernel)


def _unchained(kernel: Kernel) -> str:
    module = kernel.module
    if kernel.signature is None or not module.source:
        return "its source is not known"
    declared = find_kernel(module.declared, kernel.name).declared
    why = reason_against(kernel, declared, _WORDS)
    if why:
        return why
    if "::" in declared.name or declared.templates:
        return "it is a template, or in a namespace"
    if kernel.dynamic_shared:
        return "how much shared memory it uses is said at launch"
    if module.mentions(_READ_ONLY):
        return "its module reads memory as read-only"
    names = module.declared.kernel_reaches(declared)[0] | module.declared.functions_reach()[0]
    if _RESTRICT & names:
        return "a function of its module takes arrays for apart from each other"
    return ""


def _parameters(declared: KernelDeclaration) -> list[list[Any]]:
    """Return a kernel's parameters without what says that arrays are apart from each other."""
    return [[token for token in part if token.text not in _RESTRICT] for part in split_commas(declared.parameters)]


def _align(kernels: Sequence[Kernel]) -> int:
    return max([4, *(parameter.align for kernel in kernels if kernel.signature for parameter in kernel.signature.parameters)])
