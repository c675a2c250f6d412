"""Compile HIP C++ kernels to a shared library for this CPU.

How the threads of a block run is chosen for each kernel by what it and the device functions it calls mention:

- a loop over the threads, marked independent so that clang makes vector code of it, where possible through all blocks of a
  row of the grid (`affine.py`): no barrier, no warp operation, no atomic;
- the same loop, not marked: atomics, printf, shared memory without barriers;
- one such loop for each stretch between barriers (`phases.py`), where all threads meet the same barriers for certain;
- fibers, one per thread, switched at each barrier and warp operation (`fibers.cpp`).

Threads of a warp do not run in lockstep: code that counts on that without __syncwarp() or __syncthreads(), as on a GPU it
must not either, gives other results here.

Results follow IEEE 754 as NumPy's do: multiplications and additions are not contracted to fused ones (GPUs do that by
default; ``options=["-ffp-contract=fast"]`` does it here), nothing is reassociated, and errno and floating-point traps are not
looked at, because vector code needs that and no kernel can see it.
"""

from __future__ import annotations

import functools
import logging
import os
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from ...errors import DeclarationError
from ...source import spell, split_commas, tokenize
from ..base import CodeObject
from .affine import Lines
from .compiler import BuildFailed, Compiler, build, build_log, find_compiler
from .translate import KernelText, Translation, translate

__all__ = ["IMAGE_PREFIX", "compile_kernels"]

log = logging.getLogger("hipgraphdsl")

#: Begins a code object of this runtime; the path of the library and a zero byte follow.
IMAGE_PREFIX: Final = b"HGCPU:"

_OPTIONS: Final = ("-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fsigned-char", "-UNDEBUG")
_CLANG_OPTIONS: Final = (
    "-Wno-pass-failed",
    "-Wno-unknown-attributes",
    "-Wno-ignored-attributes",
    "-mllvm",
    "-inline-threshold=20000",
)
#: No loop of the user's own becomes vector code that needs a run-time check: see `_masked_indices`.
_UNCHECKED: Final = (
    "-mllvm",
    "-vectorize-scev-check-threshold=0",
    "-mllvm",
    "-loop-load-elimination-scev-check-threshold=0",
)
_UNCHECKED_PRAGMA: Final = ("-mllvm", "-pragma-vectorize-scev-check-threshold=0")
_GCC_OPTIONS: Final = ("-Wno-unknown-pragmas", "-Wno-attributes", "-Wno-psabi")
#: Options for a GPU's compiler that mean nothing here.
_GPU_OPTIONS: Final = re.compile(
    r"--?(offload-arch|gpu-architecture|amdgpu-target|cuda-gpu-arch|gpu-code|arch)\b.*|-m(cumode|no-cumode|wavefrontsize64|"
    r"no-wavefrontsize64|unsafe-fp-atomics|code-object-version.*)|-x.*|--?(hip|rocm|cuda)-.*|-fgpu-.*|-fhip-.*|-nogpu.*|"
    r"-std=(c\+\+|gnu\+\+)(98|03|0x|11|14|1y|1z)|--use_fast_math|-use_fast_math"
)


@functools.cache
def _header(name: str) -> str:
    return (Path(__file__).parent / name).read_text()


def _user_options(options: Sequence[str]) -> tuple[str, ...]:
    kept: list[str] = []
    skip = False
    for n, option in enumerate(options):
        if skip:
            skip = False
        elif option == "-I":
            skip = n + 1 < len(options)  # included files are put into the source
        elif option.startswith("-I") or _GPU_OPTIONS.fullmatch(option):
            continue
        else:
            kept.append(option)
    return tuple(kept)


def compile_kernels(
    source: str,
    names: Sequence[str],
    symbols: Sequence[str] = (),
    options: Sequence[str] = (),
    *,
    name: str = "kernels",
    compiler: Compiler | None = None,
    improve: bool = True,
) -> CodeObject:
    """Compile HIP C++ source for this CPU, or find the library in the cache.

    Parameters
    ----------
    source : str
        HIP C++.
    names : sequence of str
        Kernels and template instantiations, ``"scale"``, ``"scale<float>"``.
    symbols : sequence of str
        Device variables.
    options : sequence of str
        Compiler options. Those that only a GPU's compiler knows are left out.
    name : str
        File name for the compiler's messages.
    compiler : Compiler, optional
        Another than `find_compiler` finds.
    improve : bool
        Whether kernels may be split at their barriers and through blocks, which only makes them faster.

    Returns
    -------
    CodeObject
        Its image is ``HGCPU:``, the library's path and a zero byte.

    Raises
    ------
    DeclarationError
        If a name is not there, the source uses what a CPU cannot do, or it does not compile: the message holds the
        compiler's own, with the user's line numbers.
    RuntimeUnavailable
        If there is no compiler.
    """
    if compiler is None:
        compiler = find_compiler()
    predefined = _predefined(compiler, asked_for=_ASKS_FOR_MACROS.search(source) is not None)
    translation = translate(source, name, options, predefined, improve=improve)
    for symbol in symbols:
        if symbol.removeprefix("::") not in translation.variables:
            raise DeclarationError(f"kernel source {name!r} has no variable {symbol!r}", array=symbol)
    asked = tuple(dict.fromkeys(names))
    try:
        library, said = _compile(compiler, translation, asked, symbols, options, name)
    except BuildFailed as failed:
        log.debug("kernel source %r is compiled again as it stands: %s", name, failed.log)
        # The user's own text, compiled as it stands, gives the message; and should what makes kernels faster have been at
        # fault, it is the way out.
        translation = translate(source, name, options, predefined, improve=False)
        try:
            library, said = _compile(compiler, translation, asked, symbols, options, name)
        except BuildFailed as failed:
            if not (translation.light and re.search(r"\bstd\b", failed.log)):
                raise _does_not_compile(compiler, name, source, failed) from None
            translation = translate(source, name, options, predefined, improve=False, real_headers=True)
            try:
                library, said = _compile(compiler, translation, asked, symbols, options, name)
            except BuildFailed as again:
                raise _does_not_compile(compiler, name, source, again) from None
    return CodeObject(
        image=IMAGE_PREFIX + str(library).encode() + b"\0",
        lowered={key: key for key in (*asked, *symbols)},
        log=_clean(_without_dump(said)),
    )


def _does_not_compile(compiler: Compiler, name: str, source: str, failed: BuildFailed) -> DeclarationError:
    lines = source.splitlines()
    said = []
    for line in _clean(_without_dump(failed.log)).splitlines():
        said.append(line)
        at = re.match(rf"{re.escape(name)}:(\d+):\d+: (?:fatal )?error: ", line)
        if at and not compiler.is_clang and int(at[1]) <= len(lines):  # gcc looks for a file of that name
            said.append(f"{at[1]:>6} | {lines[int(at[1]) - 1]}")
    return DeclarationError(f"kernel source {name!r} does not compile:\n" + "\n".join(said))


def _compile(
    compiler: Compiler,
    translation: Translation,
    names: Sequence[str],
    symbols: Sequence[str],
    options: Sequence[str],
    name: str,
) -> tuple[Path, str]:
    """Build the library; return it and what the compiler said."""
    wanted = {asked: _find(translation, asked, name) for asked in names}
    serial: frozenset[str] = frozenset()
    scalar: frozenset[str] = frozenset()
    unchecked = False
    while True:
        entries = _Entries(translation, wanted, symbols, serial, scalar)
        more: tuple[str, ...] = _UNCHECKED if unchecked else ()
        if unchecked and re.search(r"\bclang\s+loop\b|\bomp\b", translation.text):
            more += _UNCHECKED_PRAGMA
        library = _build(compiler, translation, entries, (*options, *more), name)
        said = build_log(library)
        unsafe = _private_memory(said, entries) if compiler.is_clang else frozenset()
        masked = _masked_indices(said, entries) if compiler.is_clang else frozenset()
        rounds = compiler.is_clang and any(_goes_round(found.group(2)) for found in _DUMP.finditer(said))
        if unsafe <= serial and masked <= scalar and rounds <= unchecked:
            return library, said
        serial |= unsafe
        scalar |= masked
        unchecked = unchecked or rounds


#: A condition that asks for what a compiler defines, or a header that may hold one.
_ASKS_FOR_MACROS: Final = re.compile(r'^[ \t]*#[ \t]*(?:(?:el)?if.*\b_[_A-Z]|include[ \t]*")', re.MULTILINE)


@functools.cache
def _predefined(compiler: Compiler, *, asked_for: bool) -> dict[str, str]:
    macros = _host_macros(compiler) if asked_for else {}
    macros |= {"HGCPU_CPU": "1", "__GNUC__": "4", "__LP64__": "1", "__linux__": "1", "__HIP_CPU_RT__": "1"}
    if compiler.is_clang:
        macros["__clang__"] = "1"
    return macros


def _host_macros(compiler: Compiler) -> dict[str, str]:
    """Return the macros that the compiler defines by itself."""
    command = [*compiler.command, "-std=c++17", "-dM", "-E", "-x", "c++", os.devnull]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return dict(re.findall(r"^#define (\w+) ?(.*)$", done.stdout, re.MULTILINE))


def _find(translation: Translation, asked: str, name: str) -> tuple[KernelText, str]:
    """Return the kernel of a name expression, and the expression inside its struct."""
    tokens = tokenize(asked, f"kernel name {asked!r}")
    angle = next((n for n, t in enumerate(tokens) if t.text == "<"), len(tokens))
    stem = spell(tokens[:angle]).removeprefix("::")
    whole = spell(tokens).removeprefix("::")
    for key in (whole, stem):
        matches = [k for full, k in translation.kernels.items() if full == key or full.endswith(f"::{key}")]
        exact = [k for k in matches if k.name == key]
        found = (exact or matches)[:1]
        if found:
            member = found[0].member
            if key == stem and angle < len(tokens):
                arguments = ", ".join(spell(part) for part in split_commas(tokens[angle + 1 : -1]))
                member += f"<{arguments}>"
            return found[0], member
    known = ", ".join(repr(known) for known in translation.kernels) or "none"
    raise DeclarationError(f"kernel source {name!r} has no kernel {asked!r}; its kernels are {known}", array=asked)


class _Entries:
    """The part of the source that the runtime calls: one entry a kernel, and the tables."""

    def __init__(
        self,
        translation: Translation,
        wanted: dict[str, tuple[KernelText, str]],
        symbols: Sequence[str],
        serial: frozenset[str],
        scalar: frozenset[str],
    ) -> None:
        # The whole source is compiled, so what a kernel mentions that nobody asks for must be there as well.
        self.fibers = any(k.waits or k.dynamic_shared or "printf" in k.words for k in translation.kernels.values())
        self.parallel: dict[str, str] = {}
        self.marks = {k.mark: "" if k.serial else "HGCPU_PARALLEL_PHASE" for k in translation.kernels.values() if k.mark}
        parts = ['#line 1 "entries"\n']
        rows = []
        for n, (asked, (kernel, member)) in enumerate(wanted.items()):
            entry = f"hgcpu_entry_{n}"
            arguments = ", ".join(f"a{k}" for k in range(kernel.parameters))
            values = [
                f"hgcpu_traits_{n}::type<{k}> a{k} = *(const hgcpu_traits_{n}::type<{k}>*)args[{k}];"
                for k in range(kernel.parameters)
            ]
            parts.append(f"typedef hgcpu_traits<decltype(&{kernel.struct}::{member})> hgcpu_traits_{n};\n")
            if kernel.needs_fibers:
                parts.append(self._fibers(n, kernel, member, arguments))
            else:
                marked = not kernel.serial and asked not in serial | scalar
                otherwise = "HGCPU_SCALAR" if asked in scalar else ""
                if kernel.mark and not marked and self.marks[kernel.mark] != "HGCPU_SCALAR":
                    self.marks[kernel.mark] = otherwise
                if marked:
                    self.parallel[entry] = asked
                parts.append(self._loop(n, kernel, member, arguments, values, marked, otherwise))
            rows.append(f'{{"{asked}", {entry}, hgcpu_traits_{n}::count, hgcpu_traits_{n}::sizes, 0, 0, 0}},\n')
        parts.append(f"static const hgcpu_kernel_info hgcpu_kernels[] = {{\n{''.join(rows)}{{}}}};\n")
        variables = "".join(
            f'{{"{symbol}", (void*)&::{symbol.removeprefix("::")}, sizeof(::{symbol.removeprefix("::")})}},\n'
            for symbol in symbols
        )
        parts.append(f"static const hgcpu_symbol_info hgcpu_symbols[] = {{\n{variables}{{}}}};\n")
        parts.append(
            f"static const hgcpu_module_info hgcpu_info = {{1, {len(rows)}, hgcpu_kernels, {len(symbols)}, "
            "hgcpu_symbols};\n"
            'extern "C" __attribute__((visibility("default"))) const hgcpu_module_info* hgcpu_module(void) '
            "{ return &hgcpu_info; }\n"
        )
        self.text = "".join(parts)

    @staticmethod
    def _loop(
        n: int, kernel: KernelText, member: str, arguments: str, values: list[str], marked: bool, otherwise: str
    ) -> str:
        dynamic = ""
        pointer = "nullptr"
        if kernel.dynamic_shared:
            dynamic = (
                "  hgcpu_worker* worker = hgcpu_this_worker(launch->shared_bytes);\n"
                "  if (!worker) return 2;\n  char* const dynamic = worker->dynamic;\n"
            )
            pointer = "dynamic"
        flush = "  hgcpu_flush();\n" if "printf" in kernel.words else ""
        loads = "".join(f"  {value}\n" for value in values)

        def row(block: str, index: str, call: str, more: str = "", result: str = "") -> str:
            return f"""\
          {kernel.struct} thread;
          blocks.place(thread);
          thread.blockIdx.x = {block};
          thread.threadIdx = dim3({index}, y, z);
          thread.hgcpu_dynamic = {pointer};
          thread.hgcpu_self = nullptr;
          {result}thread.{call}({arguments}{more});
"""

        if kernel.mark:
            loop = f"""\
  if (launch->block[0] * launch->block[1] * launch->block[2] > 1024) return 9;
  for (; first < last; ++first, blocks.advance(1)) {{
    {kernel.struct} thread;
    blocks.place(thread);
    thread.hgcpu_dynamic = {pointer};
    thread.hgcpu_self = nullptr;
    thread.hgcpu_block_{member}({arguments});
  }}
"""
        elif kernel.lines is None or not marked:
            loop = f"""\
  for (; first < last; ++first, blocks.advance(1)) {{
    for (uint32_t z = 0; z < blocks.block.z; ++z) {{
      for (uint32_t y = 0; y < blocks.block.y; ++y) {{
        {"HGCPU_PARALLEL" if marked else otherwise}
        for (uint32_t x = 0; x < blocks.block.x; ++x) {{
{row("blocks.at.x", "x", member)}        }}
      }}
    }}
  }}
"""
        else:
            loop = _lines_loop(kernel.lines, kernel.lines.across, member, row, ", " if arguments else "")
        return f"""
extern "C" {{ int hgcpu_entry_{n}(const hgcpu_launch* launch, void* const* args, uint64_t first, uint64_t last) {{
{loads}{dynamic}  hgcpu_blocks blocks(launch, first);
{loop}{flush}  (void)args;
  return 0;
}} }}
"""

    @staticmethod
    def _fibers(n: int, kernel: KernelText, member: str, arguments: str) -> str:
        members = "".join(f"  hgcpu_traits_{n}::type<{k}> a{k};\n" for k in range(kernel.parameters))
        values = "".join(f", *(const hgcpu_traits_{n}::type<{k}>*)args[{k}]" for k in range(kernel.parameters))
        given = ", ".join(f"job->a{k}" for k in range(kernel.parameters))
        flush = "  hgcpu_flush();\n" if "printf" in kernel.words else ""
        return f"""
struct hgcpu_job_{n} {{
  hgcpu_blocks blocks;
  char* dynamic;
{members}}};
static void hgcpu_body_{n}(void* pointer, hgcpu_fiber* self) {{
  const hgcpu_job_{n}* job = (const hgcpu_job_{n}*)pointer;
  {kernel.struct} thread;
  job->blocks.place(thread);
  const dim3 block = job->blocks.block;
  thread.threadIdx = dim3(self->thread % block.x, self->thread / block.x % block.y, self->thread / block.x / block.y);
  thread.hgcpu_dynamic = job->dynamic;
  thread.hgcpu_self = self;
  thread.{member}({given});
}}
extern "C" {{ int hgcpu_entry_{n}(const hgcpu_launch* launch, void* const* args, uint64_t first, uint64_t last) {{
  hgcpu_worker* worker = hgcpu_this_worker(launch->shared_bytes);
  if (!worker) return 2;
  hgcpu_job_{n} job = {{hgcpu_blocks(launch, first), worker->dynamic{values}}};
  const uint32_t threads = launch->block[0] * launch->block[1] * launch->block[2];
  int status = 0;
  for (; first < last && !status; ++first, job.blocks.advance(1))
    status = hgcpu_run_block(worker, threads, hgcpu_body_{n}, &job);
{flush}  (void)args;
  return status;
}} }}
"""


def _lines_loop(lines: Lines, across: bool, member: str, row: Callable[..., str], comma: str) -> str:
    """Return the loops of a kernel whose indices are lines: one loop through the blocks of a row of the grid."""
    count = len(lines.names)
    block = "blocks.at.x + x / blocks.block.x"
    index = "x % blocks.block.x"
    find = f"""\
        segment.find([=](uint32_t x, unsigned long long* at) {{
          {"" if lines.per_row else "const uint32_t y = 0, z = 0;"}
{row(block, index, f"hgcpu_probe_{member}", comma + "at")}        }});
        const {lines.type} begin = ({lines.type})(segment.from[0] + segment.first);
        const {lines.type} end = ({lines.type})(segment.from[0] + segment.last);
        const unsigned long long from[{count}] = {{
            {", ".join(f"segment.from[{k}] - segment.from[0]" for k in range(count))}}};
"""
    low, high = ("low", "high") if lines.stride is not None else ("begin", "end")
    # Where the blocks of a row are one loop, nothing asks for the thread's number.
    thread = "0" if across else f"(uint32_t)(v - ({lines.type})segment.from[0])"
    inner = f"""\
        HGCPU_PARALLEL_PART
        for ({lines.type} v = {low}; v != {high}; ++v) {{
{row("blocks.at.x", thread, f"hgcpu_linear_{member}", comma + "from, v")}        }}"""
    if lines.stride is not None:
        # Round by round: the first thread is the last to go on, because its index is the smallest.
        inner = f"""\
        auto more = [=]({lines.type} v) {{
{row("blocks.at.x", "0", f"hgcpu_more_{member}", comma + "v", result="return ")}        }};
        auto next = [=]({lines.type} v) {{
{row("blocks.at.x", "0", f"hgcpu_next_{member}", comma + "v", result="return ")}        }};
        {lines.type} low = begin, high = end;
        while (low != high && more(low)) {{
{inner}
          low = next(low);
          high = next(high);
        }}"""
    return f"""\
  hgcpu_segment<{count}> segment;
  while (first < last) {{
    const uint32_t run = {"blocks.run(last - first)" if across else "1"};
    segment.begin(blocks.at.x, run * blocks.block.x);
{"" if lines.per_row else find}    for (uint32_t z = 0; z < blocks.block.z; ++z) {{
      for (uint32_t y = 0; y < blocks.block.y; ++y) {{
{find if lines.per_row else ""}{inner}
        for (hgcpu_rest rest(segment.first, segment.last, blocks.block.x); rest.x < segment.extent; rest.advance()) {{
{row("blocks.at.x + rest.block", "rest.thread", member)}        }}
      }}
    }}
    first += run;
    blocks.advance(run);
  }}
"""


def _build(compiler: Compiler, translation: Translation, entries: _Entries, options: Sequence[str], name: str) -> Path:
    marks = [f"#define {mark} {said}\n" for mark, said in entries.marks.items()]
    sources = {
        "kernels.cpp": "".join(['#include "device.h"\n', *marks, translation.text, entries.text]),
        "device.h": _header("device.h"),
    }
    flags = [*_OPTIONS, *(_CLANG_OPTIONS if compiler.is_clang else _GCC_OPTIONS)]
    if entries.fibers:
        sources |= {"fibers.h": _header("fibers.h"), "fibers.cpp": _header("fibers.cpp")}
        flags.append("-DHGCPU_FIBERS=1")
    if translation.standard:
        flags.append("-DHGCPU_STD=1")
        if compiler.kind == "zig":
            flags.append("-lc++")  # else zig does not even look for its C++ headers
    else:
        flags.append("-nostdinc++")
    if compiler.is_clang:
        flags += ["-mllvm", "-print-before=loop-vectorize"]
    return build(compiler, sources, (*flags, *_user_options(options)), stem="kernels", what=f"kernels of {name!r}")


_DUMP = re.compile(r"^(?:; )?\*\*\* IR Dump Before LoopVectorizePass on ([-\w.$]+) \*\*\*.*\n((?:.*\n)*?^}\n)", re.MULTILINE)


def _private_memory(said: str, entries: _Entries) -> frozenset[str]:
    """Return the kernels in which a thread's own array stays in memory where the loop over threads becomes vector code.

    All iterations of that loop share the array's memory, so marking them independent would be wrong; before LLVM 21 the
    vectoriser believes the mark. The compiler prints each entry as it stands right before; one that it has not printed (a
    compiler's own cache may forget what was said) counts as unsafe.
    """
    safe = {found.group(1) for found in _DUMP.finditer(said) if not _marks_private_memory(found.group(2))}
    return frozenset(asked for entry, asked in entries.parallel.items() if entry not in safe)


def _marks_private_memory(text: str) -> bool:
    """Return whether an instruction that is marked independent reaches memory of the function's own stack frame."""
    private = set(re.findall(r"^ *(%[-\w.]+) = alloca ", text, re.MULTILINE))
    if not private:
        return False
    derived = re.findall(r"^ *(%[-\w.]+) = (?:getelementptr|phi|select|bitcast|freeze) (.*)$", text, re.MULTILINE)
    grown = True
    while grown:
        before = len(private)
        private |= {name for name, operands in derived if private & set(re.findall(r"%[-\w.]+", operands))}
        grown = len(private) > before
    marked = (line for line in text.splitlines() if "!llvm.access.group" in line)
    return any(private & set(re.findall(r"%[-\w.]+", line)) for line in marked)


def _masked_indices(said: str, entries: _Entries) -> frozenset[str]:
    """Return the kernels in which an index that goes round, as in ``z[i % 8]``, stands where LLVM may take it for a line.

    From LLVM 20 on (still in 22) a run-time check that a wide index does not wrap stands also for a narrower one
    (`SCEVWrapPredicate::implies` extends both): the vectoriser then writes behind the end of z. The loop over threads stays
    as it is in these kernels; the user's own loops in such a source become vector code only where no check is needed.
    """
    masked = {found.group(1) for found in _DUMP.finditer(said) if _goes_round(found.group(2))}
    return frozenset(asked for entry, asked in entries.parallel.items() if entry in masked)


_NARROW = re.compile(
    r"^ *(%[-\w.]+) = (?:and i(?:16|32|64) %[-\w.]+, (\d+)|trunc .* to i(?:\d|[12]\d|3[01]))(?:,|$)", re.MULTILINE
)
_ARITHMETIC = re.compile(
    r"^ *(%[-\w.]+) = (?:zext|sext|trunc|add|sub|mul|shl|lshr|ashr|or|xor|phi|freeze|and) (.*)$", re.MULTILINE
)


def _is_mask(value: int) -> bool:
    return value & (value + 1) == 0 and value < 2**32 - 1


def _goes_round(text: str) -> bool:
    """Return whether the address of a marked access is made of an integer of fewer than 32 bits, or of one cut to so few."""
    narrow = {
        found.group(1)
        for found in _NARROW.finditer(text)
        if found.group(2) is None or _is_mask(int(found.group(2)))
    }
    if not narrow:
        return False
    made = [(name, set(re.findall(r"%[-\w.]+", operands))) for name, operands in _ARITHMETIC.findall(text)]
    places = re.findall(r"^ *%[-\w.]+ = getelementptr .*$", text, re.MULTILINE)
    indices = set().union(*(re.findall(r"i(?:32|64) (%[-\w.]+)", place) for place in places))
    grown = True
    while grown and not narrow & indices:
        before = len(narrow)
        narrow |= {name for name, operands in made if operands & narrow}
        grown = len(narrow) > before
    return bool(narrow & indices)


def _without_dump(said: str) -> str:
    return _DUMP.sub("", said)


def _clean(said: str) -> str:
    """Take the translation's own names, and what is no message, out of what the compiler said."""
    said = re.sub(r"(?:::)?(?:\w+::)?hgcpu_c\d+::", "", said)
    noise = r"^In file included from .*\n|^\d+ (?:warning|error)s?(?: and \d+ errors?)? generated\.\n?"
    return re.sub(noise, "", said, flags=re.MULTILINE).strip()
