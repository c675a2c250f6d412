"""Switching: entry points whose table selects, for each launch, one of several kernels.

The text of each kernel is repeated after it as a device function (see `batching`); the entry point is at the end of the module.
The links of a chain are launches of one block each, executed one after another with a barrier after each, which makes the writes
of one visible to the next. No kernel may then assume that its arrays are read-only or do not alias, because an earlier link may
have written them: ``__restrict__`` is removed, and kernels that make such assumptions in other ways are not chained. The launches
of a mixed batch run concurrently, like those of a batch of one kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from ...kernels.bodies import asked_once, declaration_of
from ...kernels.module import Kernel, Module
from .batching import FIND, MACROS, Tabled, alignment, copied, put_behind, reason_against, row_of, words_of

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
    """Launches of several kernels merged into one.

    Attributes
    ----------
    row : Row
        Layout of one launch: its arguments, its kind; in a mixed batch first one past its last block and its grid.
    kernels : tuple of Kernel
        Kernels of one module; the n-th (from 0) is kind n + 1 in the table, and kind 0 does nothing.
    threads : int
        Maximum threads per block.
    """

    kernels: tuple[Kernel, ...]
    threads: int

    prefix: ClassVar[str]
    entry: ClassVar[str]
    left_out: ClassVar[frozenset[str]] = frozenset()
    """Words removed from the declared parameters."""

    @property
    def module(self) -> Module:
        """The module of the kernels."""
        return self.kernels[0].module

    def name(self, count: int) -> str:
        """Return the name of the entry point for `count` launches."""
        return f"{self.prefix}_{count}"

    def source(self, counts: Iterable[int]) -> str:
        """Return the module's source with the kernels' bodies and one entry point for each of `counts` launches."""
        cases, bodies = [], {}
        for kind, kernel in enumerate(self.kernels, 1):
            stop, said = copied(kernel, "own", self.left_out)
            name = f"{kind}_{declaration_of(kernel).name}"
            cases.append(_CASE.format(kind=kind, name=name, **said))
            bodies[stop] = "\n" + _BODY.format(name=name, **said)
        layout = {"nbytes": self.row.arguments_nbytes, "align": alignment(self.kernels), "threads": self.threads, "find": FIND}
        layout["cases"] = "".join(cases)
        entries = "".join(self.entry.format(count=count, name=self.name(count), **layout) for count in counts)
        return f"{put_behind(self.module, bodies)}\n{MACROS}{entries}"


@dataclass(frozen=True)
class Chaining(Switching):
    """Launches of one block each, executed one after another, merged into one."""

    prefix = "hg_chain"
    entry = _CHAIN
    left_out = _RESTRICT


@dataclass(frozen=True)
class Mixing(Switching):
    """Concurrent launches merged into one; a launch in the table starts with the same fields as in `Batching`."""

    prefix = "hg_mix"
    entry = _MIX


def chaining(kernels: Sequence[Kernel], threads: int) -> Chaining:
    """Return how to merge launches of kernels of one module into a chain; `unchained` must be empty for each kernel."""
    return Chaining(row_of(kernels, placed=False, kinds=True), tuple(kernels), threads)


def mixing(kernels: Sequence[Kernel], threads: int) -> Mixing:
    """Return how to merge launches of kernels of one module into a mixed batch; `unswitched` must be empty for each kernel."""
    return Mixing(row_of(kernels, placed=True, kinds=True), tuple(kernels), threads)


@asked_once
def unswitched(kernel: Kernel) -> str:
    """Return why launches of a kernel cannot be part of a mixed batch; empty if they can."""
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
