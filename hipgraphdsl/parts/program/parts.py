"""Parts of an exported HIP C++ program that do not depend on the workflow: a program contains those that it uses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...backends.handles import BUILT_IN

_FOLDER: Final = Path(__file__).parent
_COMMENT_OR_STRING: Final = re.compile(r"//[^\n]*|\"(?:\\.|[^\"\\\n])*\"")


@dataclass(frozen=True, slots=True)
class Part:
    """A group of lines of a header."""

    names: tuple[str, ...]  # the names that they declare
    section: str  # the section heading that they belong to
    lines: list[str]

    @property
    def words(self) -> set[str]:
        """All words of its code, including the names that it uses."""
        return set(re.findall(r"\w+", _COMMENT_OR_STRING.sub("", "\n".join(self.lines))))


def _parts(text: str) -> dict[str, Part]:
    """Return the parts of a header by declared name, in order."""
    found: dict[str, Part] = {}
    section = ""
    for block in re.split(r"^//@", text.partition("\n//@end")[0], flags=re.MULTILINE)[1:]:
        head, _, body = block.partition("\n")
        kind, _, said = head.partition(" ")
        if kind == "section":
            section = said
            continue
        part = Part(tuple(said.split()), section, body.strip("\n").split("\n"))
        found.update(dict.fromkeys(part.names, part))
    return found


_TEXT: Final = (_FOLDER / "program.h").read_text(encoding="utf-8")
_BRANCHES: Final = re.compile(r"^#if defined\(SEGMENTS\)\n(.*?)^#else\n(.*?)^#endif\n", re.MULTILINE | re.DOTALL)
INCLUDES: Final = re.findall(r"^#include <\w+>$", _TEXT, re.MULTILINE)
"""Standard C++ headers that the parts need."""
PARTS: Final = _parts(_BRANCHES.sub(r"\2", _TEXT))
SEGMENT_PARTS: Final = _parts(_BRANCHES.sub(r"\1", _TEXT))
"""The same for programs of several graphs."""
_OF_CUDA: Final = _parts((_FOLDER / "cuda.h").read_text(encoding="utf-8"))

FIXED_NAMES: Final[frozenset[str]] = frozenset(
    {
        "Array", "arrays", "build_graph", "build_graphs", "launch_all", "initialise", "main", "options", "help", "program",
        "itself", "graph", "stream", "streams", "parameters", "argc", "argv", "std", "n", "KERNEL", "SYMBOL", "HIP_CPU",
        "HIP_VERSION", "device", "dim3", "size_t", "NAN", "INFINITY", "open_events", "capture", *BUILT_IN.kernels, *PARTS,
    }
)  # fmt: skip
"""Names that are reserved: identifiers of a program must differ from them."""

_SPECIAL: Final = {
    "hipHostMalloc": "cudaHostAlloc",
    "hipHostMallocDefault": "cudaHostAllocDefault",
    "hipHostFree": "cudaFreeHost",
    "hipGraphAddBatchMemOpNode": "cuGraphAddBatchMemOpNode",
    "hipBatchMemOpNodeParams": "CUDA_BATCH_MEM_OP_NODE_PARAMS",
    "hipStreamBatchMemOpParams": "CUstreamBatchMemOpParams",
    "hipDeviceptr_t": "CUdeviceptr",
    "hipStreamMemOpWriteValue32": "CU_STREAM_MEM_OP_WRITE_VALUE_32",
    "hipStreamMemOpWriteValue64": "CU_STREAM_MEM_OP_WRITE_VALUE_64",
    "hipStreamMemOpWaitValue32": "CU_STREAM_MEM_OP_WAIT_VALUE_32",
    "hipStreamMemOpWaitValue64": "CU_STREAM_MEM_OP_WAIT_VALUE_64",
    "hipDevicePrimaryCtxRetain": "",  # used only in code for HIP
    "hipFunction_t": "",  # used only in code for the CPU
}

# Device functions and types of HIP that CUDA lacks or spells differently. CUDA warps have 32 threads.
_DEVICE: Final = {
    **{f"hip{a}_{x}": f"{a[0].lower()}{a[1:]}.{x}" for a in ("ThreadIdx", "BlockIdx", "BlockDim", "GridDim") for x in "xyz"},
    "HIP_DYNAMIC_SHARED(type, name)": "extern __shared__ type name[];",
    "__shfl(value, ...)": "__shfl_sync(0xffffffffu, value, __VA_ARGS__)",
    "__shfl_up(value, ...)": "__shfl_up_sync(0xffffffffu, value, __VA_ARGS__)",
    "__shfl_down(value, ...)": "__shfl_down_sync(0xffffffffu, value, __VA_ARGS__)",
    "__shfl_xor(value, ...)": "__shfl_xor_sync(0xffffffffu, value, __VA_ARGS__)",
    "__ballot(predicate)": "((unsigned long long)__ballot_sync(__activemask(), predicate))",
    "__any(predicate)": "__any_sync(__activemask(), predicate)",
    "__all(predicate)": "__all_sync(__activemask(), predicate)",
    "hipFloatComplex": "cuFloatComplex",
    "hipDoubleComplex": "cuDoubleComplex",
    "hipComplex": "cuComplex",
    "hip_bfloat16": "__nv_bfloat16",
    "__hip_bfloat16": "__nv_bfloat16",
}
_COMPLEX: Final = re.compile(
    r"^(make_)?hip((?:Float|Double)?Complex|C(?:add|sub|mul|div|fma|abs|real|imag|onj)f?|Complex(?:FloatToDouble|DoubleToFloat))$"
)
_WORD: Final = re.compile(r"\b(?:make_)?hip[A-Z]\w*")


_USERS: Final = (
    "hipEventCreateWithFlags", "hipEventDisableTiming", "hipEventRecord", "hipEvent_t", "hipLaunchKernel", "hipMemcpyAsync",
    "hipMemcpyDefault", "hipMemset2DAsync", "hipMemsetAsync", "hipStreamWaitEvent",
)  # fmt: skip


def cuda_names(program: str, kernels: str, captured: bool) -> list[str]:
    """Return the lines that map HIP names to CUDA names, for the names that a program and its kernels use.

    With `captured`, user functions put work on a stream: also map the names that they are likely to need.
    """
    code = _COMMENT_OR_STRING.sub("", program)
    words = sorted({*_WORD.findall(code), *(_USERS if captured else ())})
    names = set(re.findall(r"\w+", kernels + code))  # types of template arguments may occur in the program alone
    lines = []
    for word in words:
        if word in _OF_CUDA or (word in _DEVICE and word in names):
            continue
        cuda = _SPECIAL[word] if word in _SPECIAL else _COMPLEX.sub(r"\1cu\2", word).replace("hip", "cuda", 1)
        if cuda:
            lines.append(f"#define {word} {cuda}")
    if "hipGetSymbolAddress" in words:
        lines.append("#define HIP_SYMBOL(name) name")
    lines += [line for word in words if word in _OF_CUDA for line in _OF_CUDA[word].lines]
    lines += [f"#define {left} {right}" for left, right in _DEVICE.items() if left.partition("(")[0] in names]
    return lines


def needed_parts(wanted: set[str], parts: Mapping[str, Part] = PARTS) -> list[Part]:
    """Return the parts that declare these names, and the parts that those use, in order."""
    found: set[str] = set()
    queue = list(wanted)
    while queue:
        part = parts[queue.pop()]
        if not found.issuperset(part.names):
            found.update(part.names)
            queue += part.words & parts.keys()
    return list({id(part): part for name, part in parts.items() if name in found}.values())
