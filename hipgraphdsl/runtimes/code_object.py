"""What an AMD GPU code object (.hsaco, .co) says about its kernels and variables.

A code object is an ELF file for the machine EM_AMDGPU. Its note NT_AMDGPU_METADATA holds a MessagePack map with each
kernel's arguments ("Code Object V3 Metadata" and later, in LLVM's user guide for the AMDGPU back end). hipcc puts
several code objects, one for each architecture, into a bundle (clang's documentation of its offload bundler).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from ..errors import DeclarationError

_BUNDLE_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
_COMPRESSED_MAGIC = b"CCOB"
_EM_AMDGPU = 224
_SHT_NOTE = 7
_SHT_DYNSYM = 11
_STT_OBJECT = 1
_NT_AMDGPU_METADATA = 32
_DEEPEST = 32

# EF_AMDGPU_MACH, the low byte of e_flags, for the architectures that HIP graphs run on (LLVM's BinaryFormat/ELF.h).
_MACHINES = {
    0x2C: "gfx900", 0x2F: "gfx906", 0x30: "gfx908", 0x32: "gfx90c", 0x3F: "gfx90a", 0x40: "gfx940", 0x4B: "gfx941",
    0x4C: "gfx942", 0x4F: "gfx950", 0x33: "gfx1010", 0x34: "gfx1011", 0x35: "gfx1012", 0x36: "gfx1030", 0x37: "gfx1031",
    0x38: "gfx1032", 0x39: "gfx1033", 0x3E: "gfx1034", 0x3D: "gfx1035", 0x45: "gfx1036", 0x41: "gfx1100",
    0x46: "gfx1101", 0x47: "gfx1102", 0x44: "gfx1103", 0x43: "gfx1150", 0x4A: "gfx1151", 0x55: "gfx1152",
    0x48: "gfx1200", 0x4E: "gfx1201",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class KernelArgument:
    """One explicit argument of a kernel.

    Attributes
    ----------
    name : str
        As in the source; empty where the compiler left it out.
    offset, nbytes : int
        Where it lies among the arguments and its size.
    is_pointer : bool
        Whether it is an address of global memory.
    is_const : bool
        Whether the compiler saw that the kernel only reads through it.
    """

    name: str
    offset: int
    nbytes: int
    is_pointer: bool
    is_const: bool


@dataclass(frozen=True, slots=True)
class KernelLayout:
    """What one kernel takes and needs.

    Attributes
    ----------
    name : str
        The name that `module_get_function` takes.
    arguments : tuple of KernelArgument
        In order, without those that the compiler adds.
    shared_bytes : int
        Static shared memory (LDS) of a block.
    max_threads : int
        Threads of a block that the kernel was compiled for.
    warp_size : int
        Threads that run in lockstep; 32 or 64.
    """

    name: str
    arguments: tuple[KernelArgument, ...]
    shared_bytes: int
    max_threads: int
    warp_size: int


@dataclass(frozen=True, slots=True)
class CodeObjectInfo:
    """What a code object holds.

    Attributes
    ----------
    architecture : str
        ``"gfx942"``; empty where it is not known here.
    kernels : dict of str to KernelLayout
        By the name that `module_get_function` takes.
    variables : dict of str to int
        Bytes of each `__device__` and `__constant__` variable.
    """

    architecture: str
    kernels: dict[str, KernelLayout]
    variables: dict[str, int]


def read_code_object(image: bytes, architecture: str = "") -> CodeObjectInfo:
    """Read the kernels and variables of a code object, or of a bundle's code object for an architecture.

    Parameters
    ----------
    image : bytes
        Content of a .hsaco or .co file.
    architecture : str
        ``"gfx942"``: which one of a bundle to read; where it is empty, the first for a GPU.

    Raises
    ------
    DeclarationError
        If the image is neither, is damaged, or has nothing for that architecture.
    """
    try:
        return _read_elf(_unbundled(image, architecture))
    except (struct.error, IndexError, KeyError, TypeError, UnicodeDecodeError, RecursionError) as error:
        raise DeclarationError(f"the code object is damaged: {type(error).__name__} while reading it ({error})") from error


def _unbundled(image: bytes, architecture: str) -> bytes:
    if image.startswith(_COMPRESSED_MAGIC):
        raise DeclarationError(
            "the code object is a compressed bundle, whose arguments cannot be read here; "
            "build it with hipcc --no-offload-compress"
        )
    if not image.startswith(_BUNDLE_MAGIC):
        return image
    (count,) = struct.unpack_from("<Q", image, len(_BUNDLE_MAGIC))
    at = len(_BUNDLE_MAGIC) + 8
    found = []
    for _ in range(min(count, 1024)):
        offset, nbytes, length = struct.unpack_from("<QQQ", image, at)
        name = image[at + 24 : at + 24 + length].decode()
        at += 24 + length
        # "hipv4-amdgcn-amd-amdhsa--gfx942:xnack-"; the host's entry is empty.
        processor = name.rpartition("--")[2].partition(":")[0]
        if name.startswith("hip") and processor:
            if processor == architecture or not architecture:
                return image[offset : offset + nbytes]
            found.append(processor)
    wanted = f"for {architecture}" if architecture else "for a GPU"
    raise DeclarationError(f"the bundle has no code object {wanted}; it has {', '.join(found) or 'none'}")


def _read_elf(image: bytes) -> CodeObjectInfo:
    if image[:5] != b"\x7fELF\x02":
        raise DeclarationError(f"this is no AMD GPU code object: it begins with {image[:8]!r}, not as a 64-bit ELF file")
    machine = struct.unpack_from("<H", image, 18)[0]
    if machine != _EM_AMDGPU:
        raise DeclarationError(f"this is no AMD GPU code object: its ELF machine is {machine}, not {_EM_AMDGPU} (AMDGPU)")
    flags = struct.unpack_from("<I", image, 48)[0]
    (section_offset,) = struct.unpack_from("<Q", image, 40)
    entry_size, entries = struct.unpack_from("<HH", image, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", image, section_offset + index * entry_size) for index in range(entries)]
    kernels: dict[str, KernelLayout] = {}
    variables: dict[str, int] = {}
    for _, kind, _, _, offset, nbytes, link, *_ in sections:
        if kind == _SHT_NOTE:
            for metadata in _metadata_notes(image[offset : offset + nbytes]):
                for kernel in metadata["amdhsa.kernels"]:
                    layout = _kernel_layout(kernel)
                    kernels[layout.name] = layout
        elif kind == _SHT_DYNSYM:
            names_offset = sections[link][4]
            for at in range(offset, offset + nbytes, 24):
                name_at, info, _, section, _, size = struct.unpack_from("<IBBHQQ", image, at)
                name = image[names_offset + name_at : image.index(b"\0", names_offset + name_at)].decode()
                # A kernel's descriptor is an object as well, called "name.kd".
                if section and info & 15 == _STT_OBJECT and not name.endswith(".kd"):
                    variables[name] = size
    return CodeObjectInfo(_MACHINES.get(flags & 0xFF, ""), kernels, variables)


def _metadata_notes(notes: bytes) -> list[dict[str, Any]]:
    found = []
    at = 0
    while at + 12 <= len(notes):
        name_size, content_size, kind = struct.unpack_from("<III", notes, at)
        content = at + 12 + -(-name_size // 4) * 4
        if kind == _NT_AMDGPU_METADATA:
            found.append(_MessagePack(notes[content : content + content_size]).value())
        at = content + -(-content_size // 4) * 4
    return found


def _kernel_layout(kernel: dict[str, Any]) -> KernelLayout:
    arguments = tuple(
        KernelArgument(
            name=argument.get(".name", ""),
            offset=argument[".offset"],
            nbytes=argument[".size"],
            is_pointer=argument[".value_kind"] == "global_buffer",
            is_const=argument.get(".actual_access") == "read_only" or bool(argument.get(".is_const", False)),
        )
        for argument in kernel.get(".args", ())
        if not argument[".value_kind"].startswith("hidden_")
    )
    return KernelLayout(
        name=kernel[".symbol"].removesuffix(".kd"),
        arguments=arguments,
        shared_bytes=kernel[".group_segment_fixed_size"],
        max_threads=kernel[".max_flat_workgroup_size"],
        warp_size=kernel[".wavefront_size"],
    )


class _MessagePack:
    """Read one MessagePack value: the kinds that LLVM writes, which are all but extensions."""

    # Type byte -> struct format of the number that follows, big-endian.
    _NUMBERS = {  # noqa: RUF012
        0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q",
        0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q",
    }  # fmt: skip
    _LENGTHS = {  # noqa: RUF012
        0xC4: ("bytes", ">B"), 0xC5: ("bytes", ">H"), 0xC6: ("bytes", ">I"),
        0xD9: ("text", ">B"), 0xDA: ("text", ">H"), 0xDB: ("text", ">I"),
        0xDC: ("array", ">H"), 0xDD: ("array", ">I"), 0xDE: ("map", ">H"), 0xDF: ("map", ">I"),
    }  # fmt: skip
    _CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}  # noqa: RUF012

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def value(self, depth: int = 0) -> Any:
        """Return the value at the reading position and go behind it."""
        if depth > _DEEPEST:
            raise IndexError(f"metadata nested deeper than {_DEEPEST}")
        tag = self._data[self._at]
        self._at += 1
        if tag < 0x80:
            return tag
        if tag >= 0xE0:
            return tag - 256
        if tag < 0x90:
            return self._many("map", tag & 0x0F, depth)
        if tag < 0xA0:
            return self._many("array", tag & 0x0F, depth)
        if tag < 0xC0:
            return self._many("text", tag & 0x1F, depth)
        if tag in self._CONSTANTS:
            return self._CONSTANTS[tag]
        if tag in self._NUMBERS:
            return self._number(self._NUMBERS[tag])
        kind, length = self._LENGTHS[tag]
        return self._many(kind, self._number(length), depth)

    def _number(self, form: str) -> Any:
        (number,) = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return number

    def _many(self, kind: str, count: int, depth: int) -> Any:
        if count > len(self._data) - self._at:
            raise IndexError(f"{kind} of {count} in {len(self._data) - self._at} bytes")
        if kind == "map":
            return {self.value(depth + 1): self.value(depth + 1) for _ in range(count)}
        if kind == "array":
            return [self.value(depth + 1) for _ in range(count)]
        content = self._data[self._at : self._at + count]
        self._at += count
        return content.decode() if kind == "text" else content
