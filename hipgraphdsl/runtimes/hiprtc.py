"""hiprtc: HIP C++ to a code object for one architecture, kept in a cache on disk.

It needs no device, because the architecture is always given. Without one, hiprtc queries the device, and fails with an empty
log if there is none.
"""

from __future__ import annotations

import importlib
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from ..errors import DeclarationError
from .data import CodeObject
from .rtc import Rtc, kept

_CACHE_FORMAT = 1

# hiprtc before 7 terminates the process if it does not know the architecture, so only these are accepted.
_KNOWN_BEFORE_7 = {
    "gfx900", "gfx906", "gfx908", "gfx90a", "gfx940", "gfx941", "gfx942", "gfx1010", "gfx1011", "gfx1012", "gfx1030", "gfx1031",
    "gfx1032", "gfx1033", "gfx1034", "gfx1035", "gfx1036", "gfx1100", "gfx1101", "gfx1102", "gfx1103",
}  # fmt: skip


class HipRtc(Rtc):
    """The compiler library, called through hip-python; `version` is the HIP runtime's, as hiprtc returns 9.0 in all releases.

    Raises
    ------
    RuntimeError
        If hip-python does not find libhiprtc.
    """

    prefix = "hiprtc"

    def __init__(self, binding: ModuleType, version: tuple[int, ...]) -> None:
        super().__init__(binding)
        self.version = version
        self._call("hiprtcVersion")  # makes hip-python load the library
        self._identity = [".".join(map(str, version)), *_file_identity()]

    def compile(
        self, source: str, names: Sequence[str], symbols: Sequence[str] = (), options: Sequence[str] = (), *,
        architecture: str, name: str = "module",
    ) -> CodeObject:  # fmt: skip
        """Compile, or load from the disk cache; the other arguments and the errors are those of `Runtime.rtc_compile`.

        Parameters
        ----------
        architecture : str
            ``"gfx942"``, or a target identifier, ``"gfx942:sramecc+:xnack-"``; no option may name another.
        """
        for option in options:
            if option.startswith(("--offload-arch", "--gpu-architecture", "-mcpu", "--cuda-gpu-arch")):
                raise DeclarationError(
                    f"compiler option {option!r} names an architecture; leave it out: the device's is {architecture}"
                )
        processor = architecture.partition(":")[0]
        if self.version < (7,) and processor not in _KNOWN_BEFORE_7:
            raise DeclarationError(
                f"hiprtc of HIP {'.'.join(map(str, self.version[:2]))} does not know the architecture {processor!r}; "
                f"install ROCm 7 or newer"
            )
        wanted = (source, tuple(names), tuple(symbols), tuple(options), architecture)
        key = json.dumps([_CACHE_FORMAT, self._identity, *wanted, name])  # messages and __FILE__ have the name
        return kept("hiprtc", key, source, options, lambda: self._compile(*wanted, name))

    def _compile(
        self, source: str, names: Sequence[str], symbols: Sequence[str], options: Sequence[str], architecture: str, name: str
    ) -> CodeObject:
        file_name = re.sub(r"[^\w.+-]", "_", name) + ".hip"
        program = self._call("hiprtcCreateProgram", source.encode(), file_name.encode(), 0, None, None)
        try:
            expressions = self._add_expressions(program, names, symbols)
            given = [f"--offload-arch={architecture}", *options]
            # hip-python 7.2 converts a list to an array and frees it before the call, so the array is created here.
            array = self._list_of_bytes([option.encode() for option in given])
            (code,) = self._binding.hiprtcCompileProgram(program, len(given), array)
            log = self._program_log(program, file_name)
            if code == self._binding.hiprtcResult.HIPRTC_ERROR_COMPILATION:
                raise DeclarationError(_explain(log, source, architecture, name, file_name))
            self._require(code, "hiprtcCompileProgram")
            image = bytearray(self._call("hiprtcGetCodeSize", program))
            if not image:
                raise DeclarationError("hiprtc made no code object; the option -fgpu-rdc is not supported")
            self._call("hiprtcGetCode", program, image)
            return CodeObject(bytes(image), self._lowered(program, expressions), log)
        finally:
            self._binding.hiprtcDestroyProgram(program.createRef())

    def _list_of_bytes(self, items: list[bytes]) -> Any:
        package = self._binding.__name__.rpartition(".")[0]
        types = importlib.import_module(f"{package}.{'_util' if package == 'hip' else 'util'}.types")
        return types.ListOfBytes(items)

    def _program_log(self, program: Any, file_name: str) -> str:
        log = bytearray(self._call("hiprtcGetProgramLogSize", program))
        if len(log) <= 1:
            return ""
        self._call("hiprtcGetProgramLog", program, log)
        text = log.partition(b"\0")[0].decode(errors="replace")
        # hiprtc compiles a copy in a temporary folder, whose name is meaningless to the user and differs from run to run.
        return re.sub(rf"\S*/{re.escape(file_name)}\b", file_name, text).strip()


def mapped_libraries(library: str) -> list[str]:
    """Return the files of a library that this process has loaded."""
    lines = (line.split(maxsplit=5) for line in Path("/proc/self/maps").read_text().splitlines())
    files = dict.fromkeys(fields[5] for fields in lines if len(fields) == 6)
    return [file for file in files if re.fullmatch(rf"lib{library}\.so[.\d-]*", os.path.basename(file))]


def _file_identity() -> list[str]:
    # Distributions rebuild a release without changing its version, so the file itself is part of the cache's key.
    for path in mapped_libraries("hiprtc")[:1]:
        state = os.stat(path)
        return [path, str(state.st_size), str(state.st_mtime_ns)]
    return []


def _explain(log: str, source: str, architecture: str, name: str, file_name: str) -> str:
    """Return the compiler's message, with the source line that it refers to."""
    failed = f"module {name!r} does not compile for {architecture}"
    if not log:
        return f"{failed}, and the compiler does not say why"
    first = re.search(rf"^{re.escape(file_name)}:(\d+):\d+: (?:fatal )?error: (.*)$", log, re.MULTILINE)
    if first is None:
        return f"{failed}:\n{log}"
    number = int(first.group(1))
    lines = source.splitlines()
    if number > len(lines):
        # hiprtc appends a line for each requested kernel and variable.
        return f"module {name!r} lacks what is asked of it ({first.group(2)}); does it declare that name?\n{log}"
    return f"{failed}: line {number}, {first.group(2)}: {lines[number - 1].strip()}\n{log}"
