"""Read the arguments of kernels, and the blocks that they are built for, from an AMD GPU code object (.hsaco, .co).

A code object is an ELF file for the machine EM_AMDGPU. Its note NT_AMDGPU_METADATA holds a MessagePack map with each
kernel's arguments ("Code Object V3 Metadata" and later, in LLVM's user guide for the AMDGPU back end). hipcc puts
several code objects, one for each architecture, into a bundle (clang's documentation of its offload bundler).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from io import BytesIO
from typing import Any, BinaryIO, NamedTuple, TypeVar

from ..errors import DeclarationError

_BUNDLE_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
_COMPRESSED_MAGIC = b"CCOB"
_EM_AMDGPU = 224
_SHT_NOTE = 7
_NT_AMDGPU_METADATA = 32
_DEEPEST = 32

# MessagePack's type bytes, with the `struct` form of the number that follows, big-endian.
_NUMBERS = {
    0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q",
    0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q",
}  # fmt: skip
_LENGTHS = {
    0xC4: ("bytes", ">B"), 0xC5: ("bytes", ">H"), 0xC6: ("bytes", ">I"),
    0xD9: ("text", ">B"), 0xDA: ("text", ">H"), 0xDB: ("text", ">I"),
    0xDC: ("array", ">H"), 0xDD: ("array", ">I"), 0xDE: ("map", ">H"), 0xDF: ("map", ">I"),
}  # fmt: skip
_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}


_T = TypeVar("_T")


class Blocks(NamedTuple):
    """The blocks that a kernel is built for.

    Attributes
    ----------
    required : tuple of int or None
        The only extents that it takes (``.reqd_workgroup_size``), along x, y and z.
    most : int or None
        The most threads that it takes (``.max_flat_workgroup_size``).
    """

    required: tuple[int, ...] | None = None
    most: int | None = None


def read_code_object(image: bytes) -> dict[str, tuple[tuple[int, int], ...]]:
    """Return, for each kernel, (offset, bytes) of each argument, without the hidden ones that the compiler adds.

    Keys are the names that `module_get_function` takes. In a bundle, the first code object for a GPU is read.

    Raises
    ------
    DeclarationError
        If the image is neither a code object nor an uncompressed bundle with one for a GPU, or is damaged.
    """
    return _of_kernels(image, _arguments)


def read_blocks(image: bytes) -> dict[str, Blocks]:
    """Return, for each kernel, the blocks that it is built for; keys as for `read_code_object`, none of other kinds of code."""
    try:
        return _of_kernels(image, _blocks)
    except DeclarationError:
        return {}


def _of_kernels(image: bytes, read: Callable[[dict[str, Any]], _T]) -> dict[str, _T]:
    try:
        return {kernel[".symbol"].removesuffix(".kd"): read(kernel) for kernel in metadata(image)["amdhsa.kernels"]}
    except (
        struct.error, LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError
    ) as error:  # fmt: skip
        raise DeclarationError(f"the code object is damaged: {type(error).__name__} while reading it ({error})") from error


def _arguments(kernel: dict[str, Any]) -> tuple[tuple[int, int], ...]:
    given = (argument for argument in kernel.get(".args", ()) if not argument[".value_kind"].startswith("hidden_"))
    return tuple((argument[".offset"], argument[".size"]) for argument in given)


def _blocks(kernel: dict[str, Any]) -> Blocks:
    required, most = kernel.get(".reqd_workgroup_size"), kernel.get(".max_flat_workgroup_size")
    return Blocks(None if required is None else tuple(map(int, required)), None if most is None else int(most))


def metadata(image: bytes) -> dict[str, Any]:
    """Return the metadata map in a code object's note; an empty one if there is no such note."""
    image = _unbundled(image)
    if image[:5] != b"\x7fELF\x02":
        raise DeclarationError(f"this is no AMD GPU code object: it begins with {image[:8]!r}, not as a 64-bit ELF file")
    (machine,) = struct.unpack_from("<H", image, 18)
    if machine != _EM_AMDGPU:
        raise DeclarationError(f"this is no AMD GPU code object: its ELF machine is {machine}, not {_EM_AMDGPU} (AMDGPU)")
    (sections_at,) = struct.unpack_from("<Q", image, 40)
    entry_size, entries = struct.unpack_from("<HH", image, 58)
    for index in range(entries):
        _, kind, _, _, offset, nbytes = struct.unpack_from("<IIQQQQ", image, sections_at + index * entry_size)
        notes, at = image[offset : offset + nbytes], 0
        while kind == _SHT_NOTE and at + 12 <= len(notes):
            name_size, content_size, type_of_note = struct.unpack_from("<III", notes, at)
            content = at + 12 + -(-name_size // 4) * 4
            if type_of_note == _NT_AMDGPU_METADATA:
                found: dict[str, Any] = _value(BytesIO(notes[content : content + content_size]))
                return found
            at = content + -(-content_size // 4) * 4
    return {"amdhsa.kernels": []}


def _unbundled(image: bytes) -> bytes:
    if image.startswith(_COMPRESSED_MAGIC):
        raise DeclarationError(
            "the code object is a compressed bundle, whose arguments cannot be read here; "
            "build it with hipcc --no-offload-compress"
        )
    if not image.startswith(_BUNDLE_MAGIC):
        return image
    (count,) = struct.unpack_from("<Q", image, len(_BUNDLE_MAGIC))
    at = len(_BUNDLE_MAGIC) + 8
    for _ in range(min(count, 1024)):
        offset, nbytes, length = struct.unpack_from("<QQQ", image, at)
        name = image[at + 24 : at + 24 + length].decode()
        at += 24 + length
        # "hipv4-amdgcn-amd-amdhsa--gfx942:xnack-"; the host's entry is empty.
        if name.startswith("hip") and name.rpartition("--")[2].partition(":")[0]:
            return image[offset : offset + nbytes]
    raise DeclarationError("the bundle has no code object for a GPU")


def _value(data: BinaryIO, depth: int = 0) -> Any:
    """Read one MessagePack value of any kind except extensions, which LLVM does not write."""
    if depth > _DEEPEST:
        raise IndexError(f"metadata nested deeper than {_DEEPEST}")
    tag = data.read(1)[0]
    if tag < 0x80:
        return tag
    if tag >= 0xE0:
        return tag - 256
    if tag in _CONSTANTS:
        return _CONSTANTS[tag]
    if tag in _NUMBERS:
        return _number(data, _NUMBERS[tag])
    if tag < 0xC0:
        kind = "map" if tag < 0x90 else "array" if tag < 0xA0 else "text"
        count = tag & (0x1F if kind == "text" else 0x0F)
    else:
        kind, form = _LENGTHS[tag]
        count = _number(data, form)
    if kind == "map":
        return {_value(data, depth + 1): _value(data, depth + 1) for _ in range(count)}
    if kind == "array":
        return [_value(data, depth + 1) for _ in range(count)]
    content = data.read(count)
    if len(content) < count:
        raise IndexError(f"{kind} of {count} in {len(content)} bytes")
    return content.decode() if kind == "text" else content


def _number(data: BinaryIO, form: str) -> Any:
    return struct.unpack(form, data.read(struct.calcsize(form)))[0]
