"""C++ types of parameters and variables, and numbers that have one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from ..arrays import as_dtype
from ..errors import DeclarationError


@dataclass(frozen=True, slots=True)
class CType:
    """The C++ type of a kernel parameter or a device variable."""

    spelling: str  # the base type as written, without const and pointers
    dtype: np.dtype[Any] | None = None  # of one element; None for void and for types whose layout is unknown
    lanes: int = 1  # elements of a vector type (float4: 4)
    size: int = 0  # bytes of the base type; 0 where the layout is unknown
    align: int = 1
    const: bool = False  # the base type is const
    pointers: int = 0  # levels of indirection above the base type
    opaque: str = ""  # "void", "struct" or "enum" where dtype is None
    const_pointers: frozenset[int] = frozenset()  # the const levels of indirection below the last: {1} in T* const*

    def __str__(self) -> str:
        """Return the type as C++ spells it, ``const float* const*``, without const of the value itself."""
        levels = (" const" * (n in self.const_pointers and n < self.pointers) for n in range(1, self.pointers + 1))
        return ("const " if self.const else "") + self.spelling + "".join(f"*{const}" for const in levels)

    @property
    def target_const(self) -> bool:
        """Whether what a pointer points at is const."""
        return self.const if self.pointers < 2 else self.pointers - 1 in self.const_pointers

    @property
    def integer(self) -> tuple[int, bool]:
        """Bits (1 for `bool`) and unsignedness of an integer type; 0 bits for all other types."""
        if self.pointers or self.dtype is None or self.lanes > 1 or self.dtype.kind not in "biu":
            return 0, False
        return 1 if self.dtype.kind == "b" else 8 * self.size, self.dtype.kind != "i"

    @property
    def nbytes(self) -> int:
        """Size of a variable of this type in bytes; 0 if unknown."""
        return 8 if self.pointers else self.size


class Value(NamedTuple):
    """A number with its C++ type: its width in `bits` (1 for `bool`) and whether it is unsigned."""

    number: int
    bits: int = 32
    unsigned: bool = False

    def wrapped(self) -> Value:
        """Return the value wrapped to its type: modulo 2**bits."""
        number = self.number & ((1 << self.bits) - 1)
        if not self.unsigned and number >> (self.bits - 1):
            number -= 1 << self.bits
        return self._replace(number=number)

    @property
    def fits(self) -> bool:
        """Whether the number is in the range of its type."""
        return self.wrapped().number == self.number

    def converted(self, bits: int, unsigned: bool) -> Value:
        """Return the number converted to an integer type; `bool` has 1 bit."""
        return Value(int(self.number != 0), 1, unsigned=True) if bits == 1 else Value(self.number, bits, unsigned).wrapped()


def _scalar(spelling: str, dtype: str, align: int = 0) -> CType:
    kind = np.dtype(dtype)
    return CType(spelling, kind, 1, kind.itemsize, align or kind.alignment)


#: Names of scalar types by NumPy type code.
_SCALARS: Final = {
    "?": "bool",
    "i1": "char, signed char",  # HIP's char is signed on every device
    "u1": "unsigned char, uchar, byte",
    "i2": "short",
    "u2": "unsigned short, ushort",
    "i4": "int",
    "u4": "unsigned int, uint",
    "i8": "long, long long, longlong, ssize_t, ptrdiff_t, intptr_t, intmax_t, clock_t, time_t",
    "u8": "unsigned long, unsigned long long, ulong, ulonglong, size_t, uintptr_t, uintmax_t",
    "f2": "half, __half, _Float16, __fp16",
    "f4": "float",
    "f8": "double",
}
_SIZED: Final = {"i": ("int{}_t", "int_least{}_t", "__int{}_t", "__int{}"), "u": ("uint{}_t", "uint_least{}_t", "__uint{}_t")}
_VECTORS: Final = ("char", "uchar", "short", "ushort", "int", "uint", "long", "ulong", "longlong", "ulonglong", "float", "double")


def _make_types() -> dict[str, CType]:
    types = {name: _scalar(name, code) for code, names in _SCALARS.items() for name in names.split(", ")}
    for bits in (8, 16, 32, 64):
        for sign, families in _SIZED.items():
            for name in (family.format(bits) for family in families):
                types[name] = _scalar(name, f"{sign}{bits // 8}")
    for name in ("hipFloatComplex", "hipComplex", "cuFloatComplex", "cuComplex"):
        types[name] = _scalar(name, "c8", 8)
    for name in ("hipDoubleComplex", "cuDoubleComplex"):
        types[name] = _scalar(name, "c16", 16)
    for stem in ("complex", "std::complex", "thrust::complex"):
        types[f"{stem}<float>"] = _scalar(f"{stem}<float>", "c8")
        types[f"{stem}<double>"] = _scalar(f"{stem}<double>", "c16")
    for stem in _VECTORS:
        size = types[stem].size
        for lanes in (1, 2, 3, 4):
            # HIP aligns vectors of 2 and 4 to their size, and vectors of 3 to their element.
            align = size * (1 if lanes == 3 else lanes)
            types[f"{stem}{lanes}"] = CType(f"{stem}{lanes}", types[stem].dtype, lanes, size * lanes, align)
    for name in ("half2", "__half2"):
        types[name] = CType(name, np.dtype("f2"), 2, 4, 4)
    types["dim3"] = CType("dim3", np.dtype("u4"), 3, 12, 4)
    types["void"] = CType("void", opaque="void")
    types["hipDeviceptr_t"] = CType("void", opaque="void", pointers=1)
    return types


KNOWN_TYPES: Final = _make_types()
_BFLOAT16_LANES: Final = {
    **dict.fromkeys(("hip_bfloat16", "__hip_bfloat16", "__nv_bfloat16", "__bf16"), 1),
    **dict.fromkeys(("__hip_bfloat162", "__nv_bfloat162"), 2),
}
"""Lanes of the types made of bfloat16, whose dtype comes from an optional package."""
BUILTIN_WORDS: Final = frozenset(
    {"void", "bool", "char", "short", "int", "long", "float", "double", "signed", "unsigned", "__int64", "_Bool"}
)
IGNORED_WORDS: Final = frozenset(
    {
        "volatile", "__volatile__", "register", "__restrict__", "__restrict", "restrict", "static", "inline",
        "__inline__", "__inline", "__forceinline__", "__noinline__", "extern", "constexpr", "constinit", "thread_local",
        "mutable", "typename", "__global__", "__device__", "__host__", "__constant__", "__shared__", "__managed__",
        "__grid_constant__", "__extension__", "__maybe_unused__",
    }
)  # fmt: skip


def known_type(name: str) -> CType | None:
    """Return a type that HIP's headers or C++ define, else None; raises ValueError if the package of its dtype is missing."""
    lanes = _BFLOAT16_LANES.get(name)
    if lanes is None:
        return KNOWN_TYPES.get(name)
    try:
        dtype = as_dtype("bfloat16")
    except DeclarationError as error:
        raise ValueError(f"type {name!r}: {error}") from None
    return CType(name, dtype, lanes, 2 * lanes, 2 * lanes)


def natural_alignment(dtype: np.dtype[Any]) -> int:
    """Return the alignment that C gives a struct with these fields (NumPy reports 1 for a dtype made without align=True)."""
    if dtype.subdtype is not None:
        return natural_alignment(dtype.subdtype[0])
    if dtype.names:
        assert dtype.fields is not None
        return max(natural_alignment(dtype.fields[name][0]) for name in dtype.names)
    return dtype.alignment


def builtin_name(words: Sequence[str]) -> str:
    """Return the name in `KNOWN_TYPES` of a built-in C++ type, given its words in any order."""
    counted = sorted(words)
    if "_Bool" in counted:
        return "bool"
    if "__int64" in counted:
        counted = [w for w in counted if w != "__int64"] + ["long", "long"]
    unsigned = "unsigned" in counted
    for base in ("void", "bool", "float", "double"):
        if base in counted:
            if base == "double" and "long" in counted:
                raise ValueError("type 'long double' has no meaning on a device; use double")
            return base
    if "char" in counted:
        return "unsigned char" if unsigned else "signed char" if "signed" in counted else "char"
    if "short" in counted:
        size = "short"
    else:
        size = {0: "int", 1: "long", 2: "long long"}.get(counted.count("long"), "int")
    return f"unsigned {size}" if unsigned else size
