"""Switching: kernels whose table says of each launch which of several kernels does it.

Behind each kernel its text is put once more, as a device function (see `batching`), and the entry point stands at the end of the
module. Links of a chain are launches of one block, done one behind the other, with a barrier behind each, which makes what one
has written visible to the next. No kernel may take its arrays for read-only or apart from each other then, because an earlier one
may have written them: ``__restrict__`` is left out, and kernels that say more are not chained. Launches of a mixed batch are done
beside each other, as those of one kernel are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from .batching import FIND, MACROS, Tabled, alignment, copied, launch_layout, put_behind, reason_against, words_of
from .bodies import asked_once, declaration_of
from .module import Kernel, Module

_RESTRICT: Final = frozenset({"__restrict__", "__restrict", "restrict"})
_READ_ONLY: Final = frozenset({"__ldg", "__builtin_nontemporal_load", "tex1Dfetch"})
_BODY: Final = "static __device__ __forceinline__ void hg_link_{name}({parameters}) {body}\n"
_CASE: Final = """\
      case {kind}: {{
        struct hg_arguments {{ {fields} }};
        const hg_arguments &own = *reinterpret_cast<const hg_arguments *>(table.launches[low].args);
{asserted}\
        hg_link_{name}(place, extent{arguments});
        break;
      }}
"""
_CHAIN: Final = """
struct hg_table_{name} {{
  unsigned int count, rest[3];
  struct hg_launch {{
    alignas({align}) unsigned char args[{nbytes}];
    unsigned short kind;
  }} launches[{count}];
}};
extern "C" __global__ void __launch_bounds__({threads}, 1) {name}(HG_GRID_CONSTANT hg_table_{name} table) {{
  HG_WAIT
  uint3 place;
  place.x = place.y = place.z = 0;
  const dim3 extent(1, 1, 1);
  for (unsigned int low = 0; low < table.count; ++low) {{
    switch (table.launches[low].kind) {{
{cases}    }}
    __syncthreads();
  }}
}}
"""
_MIX: Final = """
struct hg_table_{name} {{
  unsigned int count, each, rest[2];
  struct hg_launch {{
    unsigned int end, x, y, z;
    alignas({align}) unsigned char args[{nbytes}];
    unsigned short kind;
  }} launches[{count}];
}};
extern "C" __global__ void __launch_bounds__({threads}, 1) {name}(HG_GRID_CONSTANT hg_table_{name} table) {{
{find}\
  switch (own.kind) {{
{cases}  }}
}}
"""
_WORDS: Final = words_of(FIND, _BODY, _CASE, _CHAIN, _MIX)


@dataclass(frozen=True)
class Switching(Tabled):
    """How launches of some kernels become one.

    Attributes
    ----------
    launch : numpy.dtype
        What it does: its arguments, its kind.
    kernels : tuple of Kernel
        Of one module; the n-th is kind n + 1 in the table, and 0 does nothing.
    threads : int
        Most threads of a block.
    """

    kernels: tuple[Kernel, ...]
    threads: int

    prefix: ClassVar[str]
    entry: ClassVar[str]
    left_out: ClassVar[frozenset[str]] = frozenset()
    """Words of declared parameters that the bodies do not have."""

    @property
    def module(self) -> Module:
        """Where the kernels stand."""
        return self.kernels[0].module

    def name(self, count: int) -> str:
        """Return the name of the entry point of so many launches."""
        return f"{self.prefix}_{count}"

    def source(self, counts: Iterable[int]) -> str:
        """Return the module's source with the kernels' bodies and an entry point of so many launches each."""
        cases, bodies = [], {}
        for kind, kernel in enumerate(self.kernels, 1):
            stop, said = copied(kernel, "own", self.left_out)
            name = f"{kind}_{declaration_of(kernel).name}"
            cases.append(_CASE.format(kind=kind, name=name, **said))
            bodies[stop] = "\n" + _BODY.format(name=name, **said)
        layout = {"nbytes": self.launch["args"].itemsize, "align": alignment(self.kernels), "threads": self.threads, "find": FIND}
        layout["cases"] = "".join(cases)
        entries = "".join(self.entry.format(count=count, name=self.name(count), **layout) for count in counts)
        return f"{put_behind(self.module, bodies)}\n{MACROS}{entries}"


@dataclass(frozen=True)
class Chaining(Switching):
    """How launches of one block, one behind the other, become one."""

    prefix = "hg_chain"
    entry = _CHAIN
    left_out = _RESTRICT


@dataclass(frozen=True)
class Mixing(Switching):
    """How launches beside each other become one; a launch in the table begins as one of `Batching` does."""

    prefix = "hg_mix"
    entry = _MIX


def chaining(kernels: Sequence[Kernel], threads: int) -> Chaining:
    """Return how launches of kernels of one module become a chain; `unchained` has nothing against any of them."""
    return Chaining(launch_layout(kernels, placed=False, kinds=True), tuple(kernels), threads)


def mixing(kernels: Sequence[Kernel], threads: int) -> Mixing:
    """Return how launches of kernels of one module become a mixed batch; `unswitched` has nothing against any of them."""
    return Mixing(launch_layout(kernels, placed=True, kinds=True), tuple(kernels), threads)


@asked_once
def unswitched(kernel: Kernel) -> str:
    """Return why launches of a kernel cannot be some of several kernels' batch; empty if they can."""
    why = reason_against(kernel, _WORDS)
    if why:
        return why
    declared = declaration_of(kernel)
    if "::" in declared.name or declared.templates:
        return "it is a template, or in a namespace"
    return "how much shared memory it uses is said at launch" if kernel.dynamic_shared else ""


@asked_once
def unchained(kernel: Kernel) -> str:
    """Return why launches of a kernel cannot be links of a chain; empty if they can."""
    why = unswitched(kernel)
    if why:
        return why
    module = kernel.module
    if module.mentions(_READ_ONLY):
        return "its module reads memory as read-only"
    names = module.declared.kernel_reaches(declaration_of(kernel))[0] | module.declared.functions_reach()[0]
    return "a function of its module takes arrays for apart from each other" if _RESTRICT & names else ""
