"""Compile an exported HIP C++ program for this CPU: its kernels as the runtime compiles them, the rest as C++."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ...compiler import find_compiler
from ...errors import DeclarationError
from .rtc import ADD_FOLDER, IMAGE_PREFIX, compile_kernels
from .runtime import runtime_library

_KERNELS: Final = re.compile(
    r"^#if !defined\(HIP_CPU\)  // kernels begin[^\n]*\n(.*?)^#endif  // kernels end", re.MULTILINE | re.DOTALL
)
_USES: Final = re.compile(r"\bKERNEL\(((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\)|\bSYMBOL\(([^(),]*),")


def build_program(source: Path, output: Path, options: Sequence[str] = ()) -> None:
    """Compile a program that `Graph.export` wrote as ``.hip``, for the CPU runtime.

    Parameters
    ----------
    source : path
        The program, as exported or edited since.
    output : path
        The executable. It uses the CPU runtime and the kernels from the cache directory.
    options : sequence of str
        Options for the C++ compiler, in addition to ``-std=c++17 -O2``, for the program and its kernels.

    Raises
    ------
    DeclarationError
        If the file cannot be read or does not compile (the compiler's message is in it), or the executable cannot be written.
    RuntimeUnavailable
        If there is no C++ compiler.
    """
    try:
        text = source.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DeclarationError(f"program {str(source)!r} cannot be read: {error}") from None
    found = _KERNELS.search(text)
    kernels = "\n" * text.count("\n", 0, found.start(1)) + found.group(1) if found else ""
    code = re.sub(r"^[ \t]*//[^\n]*|^#define[^\n]*", "", text[found.end() :] if found else text, flags=re.MULTILINE)
    uses = [(" ".join(kernel.split()), symbol.strip()) for kernel, symbol in _USES.findall(code)]  # as the preprocessor's # does
    used_kernels, used_symbols = (list(dict.fromkeys(filter(None, names))) for names in zip(("", ""), *uses))
    compiler = find_compiler()
    flags = ["-std=c++17", "-O2", "-DHIP_CPU", f"-I{Path(__file__).parent / 'include'}", *options]
    if used_kernels or used_symbols:
        try:
            made = compile_kernels(kernels, used_kernels, used_symbols, options, name=source.name)
        except DeclarationError as error:
            raise DeclarationError(str(error).replace(ADD_FOLDER, "--cxx-option=-I/folder")) from None
        library = made.image.removeprefix(IMAGE_PREFIX).rstrip(b"\0").decode()
        quoted = library.replace("\\", "\\\\").replace('"', '\\"')
        flags.append(f'-DHIP_CPU_KERNELS="{quoted}"')
    runtime = runtime_library()
    try:
        with tempfile.TemporaryDirectory(prefix=f".{output.name}.", dir=output.resolve().parent) as folder:
            beside = Path(folder) / output.name
            command = [*compiler.command, *flags, "-x", "c++", str(source), "-x", "none", str(runtime), "-o", str(beside)]
            done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
            if done.returncode:
                said = done.stderr.strip()
                raise DeclarationError(f"program {str(source)!r} does not compile with {compiler}:\n{said}")
            beside.replace(output)
    except OSError as error:
        raise DeclarationError(f"{str(output)!r} cannot be written: {error.strerror or error}") from None
