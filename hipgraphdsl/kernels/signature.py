"""Signatures: the parameters of a kernel and the memory layout of their arguments."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Final

import numpy as np

from ..arrays import is_extra
from ..errors import DeclarationError
from ..source import IGNORED_WORDS, KernelName, Scope, Token, natural_alignment, spell


@dataclass(frozen=True, slots=True)
class KernelParameter:
    """One parameter of a kernel.

    Attributes
    ----------
    name : str
        As written; ``arg0`` etc. if the source gives none.
    ctype : str
        The type as written, normalised: ``"const float*"``.
    pointer : bool
        Whether an address is passed.
    const : bool
        Whether the pointer's target is const, so that the kernel only reads it.
    dtype : numpy.dtype or None
        Type of one element of the pointer's target, or of the value; None for ``void*``. uint64 for a pointer to pointers: a
        table of addresses, and memory behind these does not count as accessed.
    lanes : int
        Elements of a vector type: ``float4`` has dtype float32 and 4 lanes; else 1.
    size, align : int
        Size and alignment of the argument itself in bytes, in C's natural layout on 64 bits.
    target_align : int
        Alignment of the pointer's target in bytes: 16 for ``float4*``; 1 if unknown.
    """

    name: str
    ctype: str
    pointer: bool
    const: bool
    dtype: np.dtype[Any] | None
    lanes: int
    size: int
    align: int
    target_align: int = 1

    def __str__(self) -> str:
        return f"{self.ctype} {self.name}"

    @property
    def value_dtype(self) -> np.dtype[Any] | None:
        """The dtype of the whole argument: for a vector type a struct of x, y, z and w."""
        return self.dtype if self.lanes == 1 else np.dtype([(name, self.dtype) for name in "xyzw"[: self.lanes]])

    @property
    def format(self) -> str:
        """The `struct` code of the argument; types that `struct` lacks are passed as bytes."""
        if self.pointer:
            return "Q"
        assert self.dtype is not None
        return _format(self.dtype, self.lanes, self.size)


@lru_cache(maxsize=256)
def _format(dtype: np.dtype[Any], lanes: int, size: int) -> str:
    if lanes == 1 and not is_extra(dtype) and dtype.kind in "biuf":
        return _FORMATS[dtype.kind, dtype.itemsize]
    return f"{size}s"


ADDRESS: Final = np.dtype("u8")
_FORMATS: Final = {
    ("b", 1): "?", ("i", 1): "b", ("u", 1): "B", ("i", 2): "h", ("u", 2): "H", ("i", 4): "i", ("u", 4): "I",
    ("i", 8): "q", ("u", 8): "Q", ("f", 2): "e", ("f", 4): "f", ("f", 8): "d",
}  # fmt: skip


@dataclass(frozen=True)
class Signature:
    """The parameters of a kernel and their layout in memory.

    Attributes
    ----------
    kernel : str
        The kernel's name.
    parameters : tuple of KernelParameter
        In order of declaration.
    """

    kernel: str
    parameters: tuple[KernelParameter, ...]

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """Byte offset of each argument in C's natural layout."""
        at, out = 0, []
        for parameter in self.parameters:
            at = -(-at // parameter.align) * parameter.align
            out.append(at)
            at += parameter.size
        return tuple(out)

    @cached_property
    def nbytes(self) -> int:
        """Bytes of all arguments together, including the padding between them."""
        return self.offsets[-1] + self.parameters[-1].size if self.parameters else 0

    @cached_property
    def format(self) -> str:
        """`struct` format of the arguments, in native byte order with explicit padding."""
        at, out = 0, ["="]
        for parameter, offset in zip(self.parameters, self.offsets, strict=True):
            if offset > at:
                out.append(f"{offset - at}x")
            out.append(parameter.format)
            at = offset + parameter.size
        return "".join(out)

    @cached_property
    def has_structs(self) -> bool:
        """Whether an argument is a struct, whose layout a dtype describes."""
        return any(p.dtype is not None and p.dtype.names and not p.pointer for p in self.parameters)

    @cached_property
    def places(self) -> bytes:
        """Offset and kind of each argument, packed as ``=Ic3x``: the kind is a `struct` code, P for a pointer or s for bytes."""
        return b"".join(
            struct.pack("=Ic3x", offset, b"P" if parameter.pointer else parameter.format[-1:].encode())
            for parameter, offset in zip(self.parameters, self.offsets, strict=True)
        )

    def __str__(self) -> str:
        name = KernelName.of(self.kernel).written if self.kernel.endswith(")") else self.kernel  # of an overload
        return f"{name}({', '.join(str(p) for p in self.parameters)})"

    @staticmethod
    def of_values(kernel: str, dtypes: Sequence[np.dtype[Any] | None]) -> Signature:
        """Infer the signature from the arguments, for a kernel of a code object without a given signature.

        Parameters
        ----------
        kernel : str
            The kernel's name.
        dtypes : sequence of numpy.dtype or None
            Type of each argument, or None for an address; memory behind an address counts as updated.
        """
        made = []
        for n, dtype in enumerate(dtypes):
            if dtype is None:
                made.append(KernelParameter(f"arg{n}", "void*", pointer=True, const=False, dtype=None, lanes=1, size=8, align=8))
            else:
                size, align = dtype.itemsize, natural_alignment(dtype)
                made.append(
                    KernelParameter(
                        f"arg{n}", dtype.name, pointer=False, const=False, dtype=dtype, lanes=1, size=size, align=align
                    )
                )
        return Signature(kernel, tuple(made))


def read_parameters(scope: Scope, parts: Sequence[list[Token]], kernel: str, where: str) -> tuple[KernelParameter, ...]:
    """Return the parameters of a kernel of `where`, each given by its tokens; refuse types that cannot be passed."""
    return tuple(_parameter(scope, part, n, kernel, where) for n, part in enumerate(parts))


def _parameter(scope: Scope, tokens: list[Token], n: int, kernel: str, where: str) -> KernelParameter:
    written = spell(tokens)

    def refuse(reason: str, name: str = "") -> DeclarationError:
        which = f"parameter {name!r}" if name else f"parameter {n} ({written})"
        return DeclarationError(f"kernel {kernel!r} of {where}: {which}: {reason}", array=kernel)

    try:
        for token in tokens:
            if token.doubt is not None and not token.doubt.branch and token.text not in IGNORED_WORDS:
                raise ValueError(f"what it is cannot be told: {token.doubt.reason}")
        found = scope.declarators(tokens)
    except ValueError as error:
        names = [t.text for n, t in enumerate(tokens) if t.kind == "name" and (n == 0 or tokens[n - 1].text != "(")]
        inner = [t.text for n, t in enumerate(tokens) if t.kind == "name" and n and tokens[n - 1].text == "*"]
        name = inner[0] if inner else names[-1] if len(names) > 1 else ""
        raise refuse(str(error), name) from None
    declared = found[0]
    name = declared.name or f"arg{n}"
    kind = declared.type
    pointers = kind.pointers + (1 if declared.bounds and not kind.pointers else 0)
    if declared.bounds and kind.pointers and "(" not in {t.text for t in tokens}:
        pointers = kind.pointers + 1
    kind = replace(kind, pointers=pointers)
    ctype = str(kind)
    if declared.reference:
        raise refuse(f"{ctype}& is a reference, and a kernel cannot take one; pass a value or a pointer", name)
    if pointers > 1:  # a table of addresses
        return KernelParameter(
            name, ctype, pointer=True, const=kind.target_const, dtype=ADDRESS, lanes=1, size=8, align=8, target_align=8
        )
    if pointers == 1:
        return KernelParameter(
            name,
            ctype,
            pointer=True,
            const=kind.const,
            dtype=kind.dtype,
            lanes=kind.lanes,
            size=8,
            align=8,
            target_align=kind.align,
        )
    if kind.opaque == "void":
        raise refuse("void has no value; did you mean void*?", name)
    if kind.opaque == "enum":
        raise refuse(f"enum {kind.spelling} is not taken by value; declare it int and cast inside the kernel", name)
    if kind.dtype is None:
        raise refuse(
            f"struct {kind.spelling} is passed by value and its layout is not known; "
            f"give it: Module(source, structs={{{kind.spelling!r}: numpy.dtype([...], align=True)}})",
            name,
        )
    return KernelParameter(
        name, ctype, pointer=False, const=False, dtype=kind.dtype, lanes=kind.lanes, size=kind.size, align=kind.align
    )
