"""Batching: one kernel that executes the launches of several nodes of another kernel.

The text of the user's kernel is repeated after it as a device function whose first parameters, `blockIdx` and `gridDim`, shadow
the built-in variables. An entry point looks up in a table which launch its block belongs to, and calls that function with the
block index, grid and arguments of that launch. The table is the only parameter of the entry point.

An entry point with few blocks allows its successor to be launched early, to wait while it runs: on an H200, levels of eight
short kernels then take 0.84 of the time. With many blocks it does not: waiting blocks would occupy the slots of running ones.

A kernel is batched only if its source is fully understood: the compiler must see the same body as is parsed here, and the body
may use no variable of the module and nothing that depends on the whole grid.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from ...kernels.bodies import asked_once, body_of, declaration_of
from ...kernels.module import Kernel, Module
from ...source import TemplateParameter, Token, names_in, spell, split_commas

BATCH_HEAD_BYTES: Final = 16
"""Header of a table: the number of launches, the blocks per launch if all have equally many (else 0), and padding."""

_PLACES: Final = frozenset({"blockIdx", "gridDim"})
_OF_THE_GRID: Final = frozenset(
    {"asm", "__asm__", "cooperative_groups", "this_grid", "clusterIdx", "clusterDim", "__builtin_amdgcn_workgroup_id_x"}
    | {f"hip{what}_{axis}" for what in ("BlockIdx", "GridDim") for axis in "xyz"}
)
_OF_THE_TEXT: Final = frozenset({"__LINE__", "__COUNTER__", "__func__", "__FUNCTION__", "__PRETTY_FUNCTION__"})
_DIRECTIVE: Final = re.compile(r"#(?!\s*pragma\b)")
_RECORDS: Final = frozenset({"struct", "class", "union"})
MACROS: Final = """
#ifdef __CUDACC__
#define HG_GRID_CONSTANT const __grid_constant__
#else
#define HG_GRID_CONSTANT const
#endif
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define HG_WAIT if (gridDim.x <= 256) asm volatile("griddepcontrol.launch_dependents;"); \
  asm volatile("griddepcontrol.wait;" ::: "memory");
#else
#define HG_WAIT
#endif
"""
FIND: Final = """\
  unsigned int at = blockIdx.x, low = 0, high = table.count;
  if (table.each) {
    low = at / table.each;
  } else {
    while (low < high) {
      const unsigned int middle = (low + high) / 2;
      if (at < table.launches[middle].end) high = middle; else low = middle + 1;
    }
  }
  if (low >= table.count) {
    HG_WAIT
    return;
  }
  const auto &own = table.launches[low];
  if (low) at -= table.launches[low - 1].end;
  const dim3 extent(own.x, own.y, own.z);
  uint3 place;
  place.x = at % own.x;
  place.y = at / own.x % own.y;
  place.z = at / own.x / own.y;
  HG_WAIT
"""
"""Finds the launch that a block belongs to and the block's index in it; only then waits for the preceding kernel."""
_BODY: Final = "static __device__ __forceinline__ void hg_body_{plain}({parameters}) {body}\n"
_ENTRY: Final = """\
{templates}struct hg_table_{count}_{plain} {{
  unsigned int count, each, rest[2];
  struct hg_launch {{
    unsigned int end, x, y, z;
    struct hg_arguments {{ {fields} }} args;
  }} launches[{count}];
}};
{templates}__global__ void {bounds}hg_batch_{count}_{plain}(HG_GRID_CONSTANT hg_table_{count}_{plain}{given} table) {{
{find}\
{asserted}\
  hg_body_{plain}{given}(place, extent{arguments});
}}
"""


def words_of(*texts: str) -> frozenset[str]:
    """Return the names in text that is added to a source; a macro of the same name would break it."""
    return frozenset(re.findall(r"[^\W\d]\w*", "".join((MACROS, *texts))))


_WORDS: Final = words_of(FIND, _BODY, _ENTRY)


class Row(NamedTuple):
    """Layout of one launch in a table: one past its last block and its grid, if placed; its arguments; its kind, if any.

    Attributes
    ----------
    nbytes : int
    arguments_at, kind_at : int
        Offsets in bytes.
    arguments_nbytes : int
        Bytes of the arguments of any of the kernels.
    """

    nbytes: int
    arguments_at: int
    arguments_nbytes: int
    kind_at: int


@dataclass(frozen=True)
class Tabled:
    """Several launches merged into one, which looks them up in a table.

    Attributes
    ----------
    row : Row
        Layout of one launch in the table.
    """

    row: Row

    def capacity(self, nbytes: int) -> int:
        """Return how many launches fit into a parameter of `nbytes` bytes."""
        return max(0, (nbytes - BATCH_HEAD_BYTES) // self.row.nbytes)


@dataclass(frozen=True)
class Batching(Tabled):
    """Several launches of one kernel merged into one.

    Attributes
    ----------
    row : Row
        One past its last block, its grid, its arguments.
    kernel : Kernel
    threads : int
        Upper bound on threads per block, if a batch has so few blocks that they need not save registers; else 0.
    """

    kernel: Kernel
    threads: int = 0

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The one kernel."""
        return (self.kernel,)

    @property
    def module(self) -> Module:
        """The module of the kernel."""
        return self.kernel.module

    def name(self, count: int) -> str:
        """Return the name of the entry point for `count` launches."""
        name, angle, arguments = self.kernel.name.partition("<")
        space, colons, plain = name.rpartition("::")
        return f"{space}{colons}hg_batch_{count}_{plain}{angle}{arguments}"

    def source(self, counts: Iterable[int]) -> str:
        """Return the module's source with one entry point for each of `counts` launches."""
        declared = declaration_of(self.kernel)
        kinds = declared.templates or ()
        bounds = spell(declared.bounds) if declared.bounds else f"{self.threads}, 1" if self.threads else ""
        stop, said = copied(self.kernel, "own.args")
        said |= {
            "plain": declared.name.rpartition("::")[2],
            "templates": f"template <{', '.join(map(_spelled, kinds))}>\n" if kinds else "",
            "given": f"<{', '.join(t.name for t in kinds)}>" if kinds else "",
            "bounds": f"__launch_bounds__({bounds}) " if bounds else "",
            "find": FIND,
        }
        entries = "".join(_ENTRY.format(count=count, **said) for count in counts)
        text = f"{MACROS}{said['templates']}{_BODY.format(**said)}{entries}"
        return put_behind(self.module, {stop: text})


@asked_once
def batching(kernel: Kernel) -> Batching | str:
    """Return how to merge launches of a kernel into one, or the reason why that is impossible."""
    return reason_against(kernel, _WORDS) or Batching(row_of([kernel], placed=True, kinds=False), kernel)


def entry_of(kernel: Kernel) -> Batching:
    """Return how to merge launches of a kernel that can be merged."""
    how = batching(kernel)
    assert isinstance(how, Batching)
    return how


def row_of(kernels: Sequence[Kernel], *, placed: bool, kinds: bool) -> Row:
    """Return a launch's layout: if `placed` one past its last block and its grid; its arguments; if `kinds` its kind."""
    align = alignment(kernels)
    nbytes = max(1, *(kernel.signature.nbytes for kernel in kernels if kernel.signature))  # an empty struct takes one byte
    arguments_at = -(-16 // align) * align if placed else 0
    stop = arguments_at + nbytes
    kind_at = stop + stop % 2
    if kinds:
        stop = kind_at + 2
    return Row(-(-stop // align) * align, arguments_at, nbytes, kind_at)


def alignment(kernels: Iterable[Kernel]) -> int:
    """Return the alignment, in a table, of launches of these kernels."""
    return max([4, *(parameter.align for kernel in kernels if kernel.signature for parameter in kernel.signature.parameters)])


def put_behind(module: Module, texts: Mapping[int, str]) -> str:
    """Return the module's source with text inserted after the given body ends, and with all kernel bodies emptied.

    An entry point has its own copies, and compiling the other kernels could take longer than compiling it. Bodies with directives
    are kept: a conditional that begins in one may end elsewhere.
    """
    source = module.source
    braces = {known.braces for kernels in module.declared.kernels.values() for known in kernels if known.braces is not None}
    for start, stop in sorted(braces, reverse=True):
        body = source[start:stop]
        left = body if _DIRECTIVE.search(body) else "{}"
        source = f"{source[:start]}{left}{texts.get(stop, '')}{source[stop:]}"
    return source


def copied(kernel: Kernel, own: str, left_out: frozenset[str] = frozenset()) -> tuple[int, dict[str, str]]:
    """Return the end of a kernel's body, and the parts of a copy that takes its arguments from members of `own` in a table.

    Words in `left_out` are dropped from the parameters. The static assertions check that structs are aligned in the table as
    they are packed: a dtype does not give the alignment that C++ uses.
    """
    declared, signature = declaration_of(kernel), kernel.signature
    assert declared.braces is not None
    assert signature is not None
    start, stop = declared.braces
    parts = split_commas(declared.parameters)
    parameters = [spell([token for token in part if token.text not in left_out]) for part in parts]
    structs = [p for p in signature.parameters if not p.pointer and p.dtype is not None and p.dtype.names]
    return stop, {
        "fields": " ".join(f"{parameter};" for parameter in parameters),
        "arguments": "".join(f", {own}.{known.name}" for known in signature.parameters),
        "parameters": ", ".join(["const uint3 blockIdx", "const dim3 gridDim", *parameters]),
        "body": kernel.module.source[start:stop],
        "asserted": "".join(f'  static_assert(alignof(decltype({own}.{p.name})) == {p.align}, "{p.name}");\n' for p in structs),
    }


def reason_against(kernel: Kernel, words: frozenset[str]) -> str:
    """Return why launches of a kernel cannot be merged by added text that uses these words; empty if they can."""
    module, signature = kernel.module, kernel.signature
    if signature is None or not module.source:
        return "its source is not known"
    declared, body = declaration_of(kernel), body_of(kernel)
    if len(module.declared.kernels[declared.name]) > 1:
        return "there are other kernels of its name"
    if declared.braces is None or body is None:
        return "what a compiler reads as its body cannot be told"
    if kernel.unread or kernel.symbols:
        return "it may touch variables of its module" if kernel.unread else f"it touches variable {kernel.symbols[0][0].name!r}"
    if module.mentions(_OF_THE_GRID):
        return "its module speaks of the whole grid, or in assembly"
    if macros := words & module.declared.unit.macros.history.keys():
        return f"macro {min(macros)!r} replaces a name that batching needs"
    if not all(parameter.name for parameter in declared.templates or ()):
        return "a parameter of its template has no name"
    names, pasted = module.declared.kernel_reaches(declared)
    outside, outside_pasted = module.declared.functions_reach()
    if pasted or outside_pasted:
        return "a macro puts names together with ##"
    if "<" in declared.name or declared.name.rpartition("::")[2] in names:
        return "it names itself" if "<" not in declared.name else "it is an explicit specialization"
    if _OF_THE_TEXT & (names | outside):
        return f"{min(_OF_THE_TEXT & (names | outside))} asks where text stands"
    if (_PLACES & names and _RECORDS & names) or _hides_places(body.tokens):
        return "blockIdx or gridDim may be another one in a part of it"
    if _PLACES & outside:
        return f"a function of its module reads {min(_PLACES & outside)}"
    if any(token.text in ("[", "(", "=", "...") for token in declared.parameters):
        return "a parameter is no plain value or pointer"
    if not all(parameter.name for parameter in signature.parameters):
        return "a parameter has no name"
    align = alignment([kernel])
    if align > BATCH_HEAD_BYTES:  # the launches follow the header
        return f"a parameter is aligned to {align} bytes"
    if names_in(declared.parameters) & _PLACES or any("hg_" in name for name in names):
        return "its names are those that batching needs"
    return ""


def _spelled(parameter: TemplateParameter) -> str:
    return f"{parameter.spelling} = {spell(parameter.default)}" if parameter.default else parameter.spelling


def _hides_places(tokens: Sequence[Token]) -> bool:
    """Return whether a body may redeclare `blockIdx` or `gridDim`, or has a lambda without a default capture."""
    texts = ["", *(token.text for token in tokens), "", ""]
    if _PLACES.isdisjoint(texts):
        return False
    for before, token, first, second in zip(texts, tokens, texts[2:], texts[3:]):
        if (
            token.text in _PLACES
            and first != "."
            and before != "return"
            and (before[-1:].isalnum() or before in ("*", "&", ">", ","))
        ):
            return True
        is_lambda = token.text == "[" and first != "[" and not (before[-1:].isalnum() or before in ("_", "]", ")", "["))
        if is_lambda and not (first in ("=", "&") and second in ("]", ",")):
            return True
    return False
