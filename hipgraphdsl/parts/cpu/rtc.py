"""Compile HIP C++ kernels to a shared library for this CPU.

The host compiler preprocesses the source with device.h and HIP's headers, `weave` inserts the code that the runtime needs, and
the host compiler compiles the result with an entry for each kernel. fibers.h and docs/cpu_kernels.md describe how blocks run.

Results follow IEEE 754 as NumPy's do: multiplications and additions are not contracted to fused ones (HIP's clang and NVRTC do
that by default, IREE does not; ``options=["-ffp-contract=fast"]`` does it here), nothing is reassociated, and errno and
floating-point traps are ignored, because vector code requires that and no kernel can observe them.
"""

from __future__ import annotations

import functools
import platform
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple

from ...compiler import BuildFailed, Compiler, Reading, build, build_log, find_compiler, reads_files, syntax_tree
from ...errors import DeclarationError
from ...runtimes.data import CodeObject
from ...settings import setting
from ...source import KernelName
from .reading import read_trees
from .split import refused, split
from .syntax import Node, documents
from .tokens import place_behind, read_tokens
from .weave import weave

#: Prefix of this runtime's code objects; the path of the library and a zero byte follow.
IMAGE_PREFIX: Final = b"HGCPU:"
#: Advice in the error for a missing header; program.py replaces it by the command-line option.
ADD_FOLDER: Final = "options=['-I/folder'] to the module"

_OPTIONS: Final = ("-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fsigned-char", "-UNDEBUG")
_CLANG_OPTIONS: Final = (
    "-Wno-pass-failed", "-Wno-unknown-attributes", "-Wno-ignored-attributes", "-Wno-dangling-else",
    "-mllvm", "-inline-threshold=20000",
)  # fmt: skip
#: From LLVM 20 on (still in 22), a run-time check that a wide index does not wrap around is taken to imply it for a narrower one
#: (`SCEVWrapPredicate::implies` extends both), as in ``z[i % 8]``: vector code writes past the end. So disable such checks.
_WITHOUT_WRAP_CHECKS: Final = tuple(
    word
    for pass_name in ("vectorize", "pragma-vectorize", "loop-load-elimination")
    for word in ("-mllvm", f"-{pass_name}-scev-check-threshold=0")
)
#: Compilers prefer vectors of 256 bits on Intel's processors with AVX-512. Wider ones are faster: with clang wave2d takes 0.71
#: times as long, a tiled matrix product 0.76 times, block sums by shuffles 0.78 times.
_WIDE: Final = ("-mprefer-vector-width=512",) if platform.machine().lower() in {"x86_64", "amd64"} else ()
_GCC_OPTIONS: Final = ("-Wno-unknown-pragmas", "-Wno-attributes", "-Wno-psabi", "-Wno-dangling-else")
#: Insert a call before each load, store, division by zero and index beyond an array of known length, and at the end of a function
#: that has written past its local variables (instrumented.h); line numbers are DWARF 4, in which all compilers number files
#: alike. The libraries that these options imply are not linked. Accesses to vectors of more than 16 bytes get no call.
_SANITIZED: Final = ("-O1", "-gdwarf-4")
_SANITIZED_CLANG: Final = (
    *_SANITIZED, "-gline-tables-only", "-fno-vectorize", "-fno-slp-vectorize",
    "-Xclang", "-stack-protector", "-Xclang", "2",  # zig accepts the driver's own option for it only with libc
    "-Xclang", "-fsanitize=thread,integer-divide-by-zero,array-bounds", "-Xclang", "-fsanitize-recover=array-bounds",
    "-mllvm", "-tsan-instrument-read-before-write=1", "-mllvm", "-tsan-distinguish-volatile=1",
    "-mllvm", "-tsan-instrument-func-entry-exit=0",
)  # fmt: skip
_SANITIZED_GCC: Final = (
    *_SANITIZED, "-g1", "-fstack-protector-strong", "-fsanitize=thread", "-fsanitize=integer-divide-by-zero,bounds",
    "--param=tsan-distinguish-volatile=1",
    "-nodefaultlibs", "-Wl,--no-as-needed,--wrap=memcpy,--wrap=memmove,--wrap=memset", "-lstdc++", "-lm", "-lgcc_s", "-lc",
)  # fmt: skip
#: Options of GPU compilers that have no meaning here.
_GPU_OPTIONS: Final = re.compile(
    r"--?(offload-arch|gpu-architecture|amdgpu-target|cuda-gpu-arch|gpu-code|arch)\b.*|-m(cumode|no-cumode|wavefrontsize64|"
    r"no-wavefrontsize64|unsafe-fp-atomics|code-object-version.*)|-x.*|--?(hip|rocm|cuda)-.*|-fgpu-.*|-fhip-.*|-nogpu.*|"
    r"-std=(c\+\+|gnu\+\+)(98|03|0x|11|14|1y|1z)|--use_fast_math|-use_fast_math"
)
#: What AMD's compilers define by the lanes of a wave. Sources choose their wave size by the generation of the device, so the
#: macro of one whose waves are as wide is defined; those of single chips (``__gfx942__``), by which sources choose
#: instructions, are not.
_WAVE_MACROS: Final[Mapping[int, tuple[str, ...]]] = {
    lanes: (f"__AMDGCN_WAVEFRONT_SIZE__={lanes}", f"__AMDGCN_WAVEFRONT_SIZE={lanes}", f"{generation}=1")
    for lanes, generation in ((64, "__GFX9__"), (32, "__GFX10__"))
}
#: Macros that device.h and the library headers test.
_READ_BY_HEADER: Final = re.compile(r"_|NDEBUG\b|HGCPU_")
#: Headers whose contents device.h provides: HIP's and CUDA's.
_KNOWN_HEADERS: Final = (
    "hip/hip_runtime.h", "hip/hip_runtime_api.h", "hip/hip_fp16.h", "hip/hip_bf16.h", "hip/hip_bfloat16.h",
    "hip/hip_complex.h", "hip/hip_vector_types.h", "hip/hip_math_constants.h", "hip/math_functions.h",
    "hip/device_functions.h", "hip/hip_common.h", "hip/hiprtc.h", "hip/amd_detail/amd_hip_atomic.h",
    "hip/hip_atomic.h", "cuda_runtime.h", "cuda_fp16.h", "cuda_bf16.h", "math_constants.h",
)  # fmt: skip
#: C and C++ library headers of which device.h provides the commonly used parts, so that few kernels pay for the real ones.
_LIGHT_HEADERS: Final = (
    "algorithm", "limits", "type_traits", "utility", "math.h", "cmath", "cstdint", "cstddef", "stdio.h",
    "cstdio", "assert.h", "cassert", "float.h", "cfloat", "limits.h", "climits", "string.h", "cstring",
)  # fmt: skip
#: A library header that is not found, in a compiler's message; and one that is, light or the system's, in preprocessed text.
_ABSENT: Final = re.compile(r"fatal error: '?\w+(\.h)?(?:' file not found|: No such file)")
_INCLUDED: Final = re.compile(rf'^# 1 "(?:light/(?:{"|".join(map(re.escape, _LIGHT_HEADERS))})" 1|[^"]*" 1 3)', re.MULTILINE)
_HOST_CODE: Final = "put code of the host into another file, or behind #if !defined(__HIPCC_RTC__)"
#: Maximum dynamic shared memory of a block, in bytes; that of `Target` "cpu".
_DYNAMIC_BYTES: Final = 65536
_REFUSED: Final = (
    (re.compile(r"asm|__asm__|__asm"), "inline assembly of a GPU", "put it behind #if !defined(HGCPU_CPU)"),
    (re.compile(r"cooperative_groups"), "cooperative groups", "use __syncthreads() and the warp intrinsics"),
    (re.compile(r"texture|(tex[123]D|surf[123]D|tex[123]DLod|texCubemap)\w*"), "textures and surfaces", "read an array instead"),
    (re.compile(r"__nanosleep"), "sleeping inside a kernel", "leave it out"),
    (re.compile(r"hipLaunchKernelGGL|<<<"), "launches of kernels in kernel source, by the host or by kernels", _HOST_CODE),
    (re.compile(r"__match_all(_sync)?"), "__match_all", "use __match_any"),
    (re.compile(r"__builtin_(amdgcn|nvvm|ptx)_\w+"), "builtins of one GPU", "put them behind #if !defined(HGCPU_CPU)"),
    (
        re.compile(
            r"hip(Malloc|Free|Memcpy|Memset|Device|Stream|Event|Graph|Error|Success|Get|Set|Func|Host|Module|Ctx|Peek)\w*"
        ),
        "HIP's host calls in kernel source",
        _HOST_CODE,
    ),
    (re.compile(r"__(w?mma|nvvm)_\w+"), "matrix instructions", "put them behind #if !defined(HGCPU_CPU)"),
)


def compile_kernels(
    source: str,
    names: Sequence[str],
    symbols: Sequence[str] = (),
    options: Sequence[str] = (),
    *,
    name: str = "kernels",
    compiler: Compiler | None = None,
    mode: Literal["fast", "base", "sanitize"] = "fast",
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
        Compiler options. Those for GPU compilers alone are ignored; ``-mno-wavefrontsize64`` selects warps of 32 lanes.
    name : str
        File name for the compiler's messages.
    compiler : Compiler, optional
        The compiler to use instead of the one that `find_compiler` returns.
    mode : {"fast", "base", "sanitize"}
        ``"base"`` runs the threads of a block one by one; ``"fast"`` may vectorize that loop; ``"sanitize"`` is ``"base"``
        with calls by which the runtime checks each access (sanitizer.h).

    Returns
    -------
    CodeObject
        Its image is ``HGCPU:``, the library's path and a zero byte.

    Raises
    ------
    DeclarationError
        If a name does not exist, the source uses a feature that a CPU lacks, or it does not compile: the message contains
        the compiler's, with the user's line numbers.
    RuntimeUnavailable
        If there is no compiler.
    """
    asked, variables = frozenset(names), frozenset(symbols)
    compiler = compiler or find_compiler()
    known = _libraries(source, tuple(options), name, compiler, mode, setting("HIPGRAPHDSL_CACHE_DIR"))
    found = next((one for one in known if one.names >= asked and one.symbols >= variables and one.path.exists()), None)
    if found is None:
        compilation = _Compilation(source, tuple(sorted(asked)), tuple(sorted(variables)), tuple(options), name, compiler, mode)
        path = compilation.library()
        found = _Library(asked, variables, path, _clean(build_log(path)))
        _, read, directives = _split_options(options)
        if not reads_files(read, directives + source):  # the files may change
            known.append(found)
    return CodeObject(
        image=IMAGE_PREFIX + str(found.path).encode() + b"\0",
        lowered={key: key for key in (*names, *symbols)},
        log=found.log,
    )


class _Library(NamedTuple):
    names: frozenset[str]
    symbols: frozenset[str]
    path: Path
    log: str  # what the compiler said


@functools.lru_cache(maxsize=64)
def _libraries(
    source: str, options: tuple[str, ...], name: str, compiler: Compiler, mode: str, folder: str
) -> list[_Library]:  # fmt: skip
    """Return this process's list of libraries built from a source: one with more kernels than requested can be reused."""
    return []


class _Compilation:
    def __init__(
        self, source: str, names: tuple[str, ...], symbols: tuple[str, ...], options: tuple[str, ...], name: str,
        compiler: Compiler, mode: Literal["fast", "base", "sanitize"],
    ) -> None:  # fmt: skip
        self.source = source
        self.names, self.symbols, self.options = names, symbols, options
        self.name = re.sub(r'["\\\n]', "_", name)
        self.compiler = compiler
        self.mode = mode
        self.preprocessed = ""
        self.splits = mode == "fast"
        self.split: dict[str, str] = {}  # kernel -> its function that runs a whole block
        self.synced: list[str] = []  # kernels that may have such a function
        self.whole: set[str] = set()  # kernels that are not split
        self.flags: tuple[str, ...] = ()

    def library(self) -> Path:
        """Build the library, with the real library headers if it fails without them."""
        real = False
        while True:
            try:
                return self.build(real)
            except BuildFailed as failed:
                # device.h may lack declarations of the real library headers.
                own = self.preprocessed.find(f'# 1 "{self.name}"')  # behind device.h, which includes some itself
                if not real and (_ABSENT.search(failed.log) or _INCLUDED.search(self.preprocessed, max(own, 0))):
                    real = True
                    continue
                raise self.explained(failed) from None

    def leave_out(self, said: str) -> bool:
        """Drop the split functions that the compiler's messages name, or all, so that remaining messages are about user code."""
        if not self.split:
            return False
        self.whole |= refused(said, self.synced) & set(self.split) or set(self.split)
        return True

    def build(self, real: bool) -> Path:
        self.whole = set()
        flags = [*_OPTIONS, *_WIDE, *(_CLANG_OPTIONS if self.compiler.is_clang else _GCC_OPTIONS)]
        if self.compiler.is_clang and self.compiler.major >= 20:
            flags += _WITHOUT_WRAP_CHECKS
        kept, read, directives = _split_options(self.options)
        read = ["-Ilight", *read]
        if self.mode == "sanitize":
            kept += _SANITIZED_CLANG if self.compiler.is_clang else _SANITIZED_GCC
            read.append("-DHGCPU_SANITIZE=1")
        lanes = 32 if "-mno-wavefrontsize64" in self.options else 64
        read = [f"-DHGCPU_WARP_SIZE={lanes}", *(f"-D{macro}" for macro in _WAVE_MACROS[lanes]), *read]
        if re.search(r"\bvoid\s+half\s*\(", self.source):  # the source defines a function of that name, not the type
            read.append("-DHGCPU_OWN_HALF=1")
        headers = dict.fromkeys(_KNOWN_HEADERS if real else (*_KNOWN_HEADERS, *_LIGHT_HEADERS), "")
        if real:
            read.append("-DHGCPU_STD=1")
            if self.compiler.kind == "zig":
                flags.append("-lc++")  # else zig does not even search for its C++ headers
        else:
            flags.append("-nostdinc++")
        sources = {
            "kernels.cpp": f'#include "device.h"\n{directives}#line 1 "{self.name}"\n{self.source}\n',
            **{header: _header(header) for header in ("device.h", "fibers.h", "lanes.h", "launch.h", "instrumented.h")},
            **{f"light/{header}": "" for header in headers},
        }
        self.flags = (*flags, *kept)
        also = (self.mode, str(self.splits), *self.names, "", *self.symbols, *_writers())
        reading = Reading(tuple(read), self.woven, self.leave_out, also)
        return build(self.compiler, sources, (*flags, *kept), stem="kernels", what=f"kernels of {self.name!r}", reading=reading)

    def woven(self, preprocessed: str) -> str:
        """Return the text to compile, made from the preprocessed text."""
        self.preprocessed = preprocessed
        sanitizes = self.mode == "sanitize"
        made = weave(preprocessed, guards=sanitizes)
        text = made.text
        names = () if made.broken else self.names
        if self.splits:
            wanted = {self.find(asked, made.kernels)[0] for asked in names} - self.whole
            self.synced = made.synced
            text, self.split = split(text, made.marked, made.synced, wanted, made.leading, self.trees)
        parts = [
            f"#define HGCPU_APART {self.row(apart=True)}\n#define HGCPU_LANES {self.row()}\n",
            f"#define HGCPU_ROW {self.row('unroll(disable)')}\n#define HGCPU_STEPS {self.steps()}\n", text,
            f"\n#define HGCPU_SANITIZE {int(sanitizes)}\n#define HGCPU_PRINTS {int(made.prints)}\n",
            f"#define HGCPU_DYNAMIC {_DYNAMIC_BYTES * made.dynamic}\n#include \"launch.h\"\n",
        ]  # fmt: skip
        rows: list[str] = []
        for asked in names:
            stem, kernel = self.find(asked, made.kernels)
            functions = self.split.get(stem)
            runs = f", {functions}" if functions else ""
            calm = str(self.mode == "fast" and stem in made.calm).lower()
            kernel = f"hgcpu_kernel<hgcpu_pick(&{kernel}), {calm}{runs}>"
            parts.append(f'# 1 "hgcpu kernel {asked}" 3\ntypedef {kernel} hgcpu_kernel_{len(rows)};\n')
            row = f"hgcpu_kernel_{len(rows)}::"
            rows.append(
                f'{{"{asked}", {row}entry, {row}count, {row}packed.alignment, {row}packed.params, {row}direct_entry()}},\n'
            )
        parts.append(f"static const hgcpu_kernel_info hgcpu_kernels[] = {{\n{''.join(rows)}{{}}}};\n")
        parts.append("static const hgcpu_symbol_info hgcpu_symbols[] = {\n")
        for symbol in self.symbols:
            bare = symbol.removeprefix("::")
            parts.append(f'# 1 "hgcpu symbol {symbol}" 3\n{{"{symbol}", (void*)&::{bare}, sizeof(::{bare})}},\n')
        parts.append(
            f"{{}}}};\nstatic const hgcpu_module_info hgcpu_info = {{hgcpu_abi, {len(rows)}, hgcpu_kernels, {len(self.symbols)}, "
            'hgcpu_symbols};\nextern "C" __attribute__((visibility("default"))) const hgcpu_module_info* hgcpu_module(void) '
            "{ return &hgcpu_info; }\n"
        )
        return "".join(parts)

    def trees(self, text: str, word: str) -> list[Node]:
        """Return the syntax trees of the functions whose names contain a word."""
        if not self.compiler.is_clang:
            return read_trees(text, word)
        unmarked = (f"-DHGCPU_{loop}=" for loop in ("ROW", "LANES", "APART"))
        return list(documents(syntax_tree(self.compiler, text, word, (*self.flags, *unmarked))))

    def row(self, more: str = "", apart: bool = False) -> str:
        """Return the pragma for the loop over the threads of a row, or of a warp.

        Threads that do not wait are unordered, but the compiler is not told that their memory accesses are independent: LLVM
        (still 22) applies that to a thread's own arrays too, which have the same address for all threads. It has to prove it,
        except where threads have no data of their own in memory (`apart`) and LLVM does not load what they skip (22 does not).
        """
        if self.mode != "fast" or not self.compiler.is_clang:
            return ""
        how = "assume_safety" if apart and self.compiler.major >= 21 else "enable"
        return f'_Pragma("clang loop vectorize({how}) interleave_count(1) {more}")'

    def steps(self) -> str:
        """Return the pragma for a loop around warp operations with few turns: distances become constants."""
        turns = "decltype(hgcpu_warp)::whole ? 8 : 1"
        return f'_Pragma("clang loop unroll_count({turns})")' if self.compiler.is_clang else '_Pragma("GCC unroll 8")'

    def find(self, asked: str, kernels: Mapping[str, str]) -> tuple[str, str]:
        """Return a kernel's qualified name in the text, without template arguments, and the expression for it."""
        name = KernelName.of(asked)
        stem = name.stem
        found = [k for k in kernels if k == stem] or [k for k in kernels if k.endswith(f"::{stem}")]
        if not found:
            known = ", ".join(repr(known) for known in dict.fromkeys(kernels)) or "none"
            raise DeclarationError(f"kernel source {self.name!r} has no kernel {asked!r}; its kernels are {known}", array=asked)
        written = found[0] if 0 in name.arguments else kernels[found[0]]
        return written, name.address(f"::{name.at(written)}")

    def explained(self, failed: BuildFailed) -> DeclarationError:
        """Return the error for a source that the compiler rejected."""
        name = re.escape(self.name)
        absent = re.search(
            rf"^({name}):(\d+):\d+: fatal error: '?([^':\n]+)'?(?: file not found|: No such file)", failed.log, re.MULTILINE
        )
        if absent:
            where, header = f"kernel source {self.name!r}, line {absent[2]}:", absent[3]
            if "cooperative_groups" in header:
                said = f"{where} runtime 'cpu' does not support cooperative groups; use __syncthreads() and the warp intrinsics"
            elif header.startswith(("hip/", "rocprim/", "hipcub/", "thrust/", "cub/", "rocwmma/", "cuda/")):
                said = (
                    f"{where} runtime 'cpu' does not have the header <{header}>; put what needs it behind #if !defined(HGCPU_CPU)"
                )
            else:
                said = (f'{where} #include "{header}" is found in none of the folders given; '
                        f"add {ADD_FOLDER}, or put its text into the source")  # fmt: skip
            return DeclarationError(said)
        symbol = re.search(r"^hgcpu symbol ([^:\n]*(?:::[^:\n]+)*):\d+:\d+: error", failed.log, re.MULTILINE)
        if symbol:
            return DeclarationError(f"kernel source {self.name!r} has no variable {symbol[1]!r}", array=symbol[1])
        tokens = read_tokens(self.preprocessed)
        for n, token in enumerate(tokens):
            spelled = "<<<" if [t.text for t in tokens[n : n + 2]] == ["<<", "<"] else token.text
            for pattern, what, instead in _REFUSED:
                if pattern.fullmatch(spelled):
                    file, number = place_behind(self.preprocessed[: token.start])
                    return DeclarationError(f"{file}:{number}: runtime 'cpu' does not support {what} ({spelled}); {instead}")
        lines = self.source.splitlines()
        out: list[str] = []
        for line in _clean(failed.log).splitlines():
            out.append(line)
            at = re.match(rf"{name}:(\d+):\d+: (?:fatal )?error: ", line)
            if at and not self.compiler.is_clang and int(at[1]) <= len(lines):  # gcc quotes only from a file of that name
                out.append(f"{at[1]:>6} | {lines[int(at[1]) - 1]}")
        return DeclarationError(f"kernel source {self.name!r} does not compile:\n" + "\n".join(out))


@functools.cache
def _header(name: str) -> str:
    return (Path(__file__).parent / name).read_text()


@functools.cache
def _writers() -> tuple[str, ...]:
    """Return the source of the modules that generate the compiled text; it is part of the cache key."""
    own = Path(__file__).parent
    return tuple(file.read_text() for folder in (own, own.parents[1] / "source") for file in sorted(folder.glob("*.py")))


def _split_options(options: Sequence[str]) -> tuple[list[str], list[str], str]:
    """Return options for compiling, options for preprocessing, and directives that replace ``-D``, ``-U`` and ``-include``.

    Folders become absolute; options of GPU compilers are dropped. Macros are defined by directives after device.h, whose template
    parameters have names such as ``N``, except for the macros that device.h itself tests.
    """
    kept: list[str] = []
    read: list[str] = []
    directives = ""
    after = iter(options)
    for option in after:
        if option in ("-I", "-isystem", "-iquote"):
            read += [option.replace("-isystem", "-I"), str(Path(next(after, "")).absolute())]
        elif option.startswith("-I"):
            read.append(f"-I{Path(option[2:]).absolute()}")
        elif option == "-include":
            directives += f'#include "{Path(next(after, "")).absolute()}"\n'
        elif option.startswith(("-D", "-U")):
            said = (option[2:] or next(after, "")).partition("\n")[0].rstrip("\\")  # as compilers do, end it at a line break
            name, equals, value = said.partition("=")
            if _READ_BY_HEADER.match(name):
                read.append(f"{option[:2]}{name}{equals}{value}")
            else:
                directives += f"#define {name} {value if equals else 1}\n" if option[1] == "D" else f"#undef {name}\n"
        elif not _GPU_OPTIONS.fullmatch(option):
            kept.append(option)
    return kept, read, directives


def _clean(said: str) -> str:
    """Strip non-diagnostic lines from the compiler's output."""
    noise = r"^In file included from .*\n|^\d+ (?:warning|error)s?(?: and \d+ errors?)? generated\.\n?"
    return re.sub(noise, "", said, flags=re.MULTILINE).strip()
