"""NVRTC: HIP C++ to a cubin for one architecture, kept in a cache on disk. It needs no device."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from ..errors import DeclarationError, lacks
from .data import CodeObject
from .rtc import Rtc, kept

# Names that HIP source may use and that CUDA lacks or spells differently. CUDA's warps have 32 threads.
_PLACES: Final = "".join(
    f"#define hip{name}_{axis} {name[0].lower()}{name[1:]}.{axis}\n"
    for name in ("ThreadIdx", "BlockIdx", "BlockDim", "GridDim")
    for axis in "xyz"
)
_SHUFFLES: Final = "".join(
    f"#define __shfl{how}(value, ...) __shfl{how}_sync(0xffffffffu, value, __VA_ARGS__)\n" for how in ("", "_up", "_down", "_xor")
)
_PRELUDE: Final = f"""#pragma once
{_PLACES}#define HIP_DYNAMIC_SHARED(type, name) extern __shared__ type name[];
#define __HIP_PLATFORM_NVIDIA__ 1
{_SHUFFLES}#define __ballot(predicate) ((unsigned long long)__ballot_sync(__activemask(), predicate))
#define __any(predicate) __any_sync(__activemask(), predicate)
#define __all(predicate) __all_sync(__activemask(), predicate)
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
"""
_EMPTY_HEADERS: Final = (
    "hip/hip_runtime.h", "hip/hip_runtime_api.h", "stdint.h", "cstdint", "stddef.h", "cstddef", "math.h", "cmath",
)  # fmt: skip
_HALF_HEADERS: Final = {
    "hip/hip_fp16.h": "#include <cuda_fp16.h>\n",
    "hip/hip_bf16.h": "#include <cuda_bf16.h>\ntypedef __nv_bfloat16 __hip_bfloat16;\ntypedef __nv_bfloat162 __hip_bfloat162;\n",
}


class Nvrtc(Rtc):
    """The compiler, through cuda-bindings' module, for an architecture such as ``"sm_90"``."""

    prefix = "nvrtc"

    def __init__(self, nvrtc: Any, architecture: str) -> None:
        super().__init__(nvrtc)
        self.architecture = architecture

    def compile(
        self, source: str, names: Sequence[str], symbols: Sequence[str] = (), options: Sequence[str] = (), *, name: str = "module"
    ) -> CodeObject:
        """Compile, or load from the disk cache; the arguments and errors are those of `Runtime.rtc_compile`."""
        wanted = (source, sorted(names), sorted(symbols), tuple(options), self.architecture, self.version(), _PRELUDE, name)
        return kept("nvidia", repr(wanted), source, options, lambda: self._compile(source, names, symbols, options, name))

    def _compile(
        self, source: str, names: Sequence[str], symbols: Sequence[str], options: Sequence[str], name: str
    ) -> CodeObject:
        headers = {"hipgraphdsl_prelude.h": _PRELUDE, **dict.fromkeys(_EMPTY_HEADERS, "#pragma once\n"), **_HALF_HEADERS}
        flags = [f"--gpu-architecture={self.architecture}", "--pre-include=hipgraphdsl_prelude.h", *options]
        if re.search(r"__half|half2|bfloat16|hip_fp16|hip_bf16", source):
            flags += [f"--include-path={folder}" for folder in _cuda_include_folders()]
        program = self._call(
            "nvrtcCreateProgram",
            source.encode(),
            f"{name}.hip".encode(),
            len(headers),
            [text.encode() for text in headers.values()],
            [header.encode() for header in headers],
        )
        try:
            expressions = self._add_expressions(program, names, symbols)
            (error,) = self._binding.nvrtcCompileProgram(program, len(flags), [flag.encode() for flag in flags])
            log = self._bytes(program, "nvrtcGetProgramLog")
            text = log.rstrip(b"\0").decode(errors="replace").strip()
            if int(error):
                raise DeclarationError(f"module {name!r} does not compile for {self.architecture}:\n{text}", array=name)
            return CodeObject(self._bytes(program, "nvrtcGetCUBIN"), self._lowered(program, expressions), text)
        finally:
            self._binding.nvrtcDestroyProgram(program)

    def version(self) -> tuple[int, int]:
        """Return (major, minor), or raise RuntimeUnavailable: the binding loads the library only at the first call."""
        try:
            major, minor = self._call("nvrtcVersion")
        except RuntimeError as missing:
            why = (
                "compiles kernels by NVRTC, which is not there: install the CUDA toolkit, or the wheel nvidia-cuda-nvrtc of the"
                f" same version as cuda-bindings ({missing})"
            )
            raise lacks("nvidia", "library", why) from None
        return major, minor

    def _bytes(self, program: Any, api: str) -> bytes:
        size = self._call(f"{api}Size", program)
        # The binding writes into the `bytes` object that is passed. Python shares a single object for each `bytes` of length 1,
        # so an empty log (one zero byte) must not be written into an object of that length.
        result = bytes(size + 2)
        if size:
            self._call(api, program, result)
        return result[:size]


def _cuda_include_folders() -> list[str]:
    """Return folders that may hold cuda_fp16.h, best first."""
    found = [os.environ[name] + "/include" for name in ("CUDA_HOME", "CUDA_PATH") if name in os.environ]
    try:
        import cuda.pathfinder

        header = cuda.pathfinder.find_nvidia_header_directory("cudart")
        found += [header] if header else []
    except (ImportError, AttributeError):
        pass
    return [folder for folder in (*found, "/usr/local/cuda/include") if Path(folder, "cuda_fp16.h").exists()]
