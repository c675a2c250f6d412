"""AMD GPU code objects that hold nothing but the metadata of their kernels, as LLVM writes them."""

from __future__ import annotations

import struct
from typing import Any


def packed(value: Any) -> bytes:
    """Write MessagePack as LLVM does."""
    if isinstance(value, dict):
        return bytes([0x80 | len(value)]) + b"".join(packed(k) + packed(v) for k, v in value.items())
    if isinstance(value, list):
        return b"\xdc" + struct.pack(">H", len(value)) + b"".join(map(packed, value))
    if isinstance(value, str):
        return b"\xd9" + bytes([len(value)]) + value.encode()
    return b"\xcd" + struct.pack(">H", value) if value > 127 else bytes([value])


def code_object(kernels: list[dict[str, Any]], machine: int = 224, target: str = "amdgcn-amd-amdhsa--gfx942") -> bytes:
    """Return an ELF file with one note."""
    content = packed({"amdhsa.kernels": kernels, "amdhsa.target": target})
    note = struct.pack("<III", 7, len(content), 32) + b"AMDGPU\0\0" + content + bytes(-len(content) % 4)
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 3, machine, 1, 0, 0, 64, 0x4C, 64, 0, 0, 64, 1, 0)
    section = struct.pack("<IIQQQQIIQQ", 0, 7, 0, 0, 128, len(note), 0, 0, 4, 0)
    return header + section + note


def kernel(**changes: Any) -> dict[str, Any]:
    """Return the metadata of a kernel of a pointer and a number, with what the compiler adds."""
    arguments = [
        {".name": "x", ".offset": 0, ".size": 8, ".value_kind": "global_buffer", ".actual_access": "read_only"},
        {".offset": 8, ".size": 4, ".value_kind": "by_value"},
        {".offset": 16, ".size": 8, ".value_kind": "hidden_global_offset_x"},
    ]
    return {
        ".symbol": "scale.kd", ".args": arguments, ".group_segment_fixed_size": 256,
        ".max_flat_workgroup_size": 1024, ".wavefront_size": 64, **changes,
    }  # fmt: skip
