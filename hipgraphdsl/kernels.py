"""Kernel and Module: HIP C++ source or a code object, and the signatures that stand in it.

A `Module` reads its source (`source.py`) and never compiles anything. What is not understood is refused by name when
that kernel is asked for, so that a source file may hold kernels which other programs use.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
import re
import stat
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from os import PathLike
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from .arrays import Array, Viewable, as_dtype
from .errors import DeclarationError
from .source import (
    IGNORED_WORDS,
    OPENING,
    PLATFORM_MACROS,
    Budget,
    CType,
    Declarations,
    Headers,
    KernelDeclaration,
    Scope,
    Token,
    bfloat16_dtype,
    closing_angle,
    closing_index,
    is_bfloat16,
    natural_alignment,
    spell,
    split_commas,
    tokenize,
)

__all__ = [
    "ArgumentPacker",
    "ForeignModule",
    "Kernel",
    "KernelParameter",
    "Module",
    "Signature",
    "Symbol",
    "check_argument",
    "struct_fields",
]

PackedValue = int | float | bytes
"""What `ArgumentPacker.pack` writes: an int, a float, or bytes prepared by `check_argument`."""


# -- signatures ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KernelParameter:
    """One parameter of a kernel.

    Attributes
    ----------
    name : str
        As written; ``arg0`` and so on where the source gives none.
    ctype : str
        The type as written, normalised: ``"const float*"``.
    pointer : bool
        Whether an address is passed.
    const : bool
        Whether what it points at is const, so that the kernel only reads it.
    dtype : numpy.dtype or None
        Type of one element behind the pointer, or of the value; None for ``void*``.
    lanes : int
        Elements of a vector type: ``float4`` has dtype float32 and 4 lanes; else 1.
    size, align : int
        Bytes of the argument itself, in C's natural layout on 64 bits.
    target_align : int
        Alignment of what a pointer points at, in bytes: 16 for ``float4*``; 1 where it is not known.
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
    def format(self) -> str:
        """The `struct` code of the argument; types that `struct` lacks are bytes prepared beforehand."""
        if self.pointer:
            return "Q"
        assert self.dtype is not None
        return _format(self.dtype, self.lanes, self.size)


@lru_cache(maxsize=256)
def _format(dtype: np.dtype[Any], lanes: int, size: int) -> str:
    if lanes == 1 and not is_bfloat16(dtype) and dtype.kind in "biuf":
        return _FORMATS[dtype.kind, dtype.itemsize]
    return f"{size}s"


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
        """Bytes of all arguments together, padding between them included."""
        return self.offsets[-1] + self.parameters[-1].size if self.parameters else 0

    @cached_property
    def format(self) -> str:
        """`struct` format of the arguments, native byte order, with the padding written out."""
        at, out = 0, ["="]
        for parameter, offset in zip(self.parameters, self.offsets, strict=True):
            if offset > at:
                out.append(f"{offset - at}x")
            out.append(parameter.format)
            at = offset + parameter.size
        return "".join(out)

    @cached_property
    def places(self) -> bytes:
        """For each argument its offset and its kind, packed as ``=Ic3x``: a `struct` code, P for a pointer, s for bytes."""
        return b"".join(
            struct.pack("=Ic3x", offset, b"P" if parameter.pointer else parameter.format[-1:].encode())
            for parameter, offset in zip(self.parameters, self.offsets, strict=True)
        )

    def __str__(self) -> str:
        return f"{self.kernel}({', '.join(str(p) for p in self.parameters)})"

    @staticmethod
    def of_values(kernel: str, dtypes: Sequence[np.dtype[Any] | None]) -> Signature:
        """Return the signature that arguments themselves imply, for a kernel of a code object that came without one.

        Parameters
        ----------
        kernel : str
            The kernel's name.
        dtypes : sequence of numpy.dtype or None
            For each argument its type, or None for an address; what an address points at counts as updated.
        """
        made = []
        for n, dtype in enumerate(dtypes):
            if dtype is None:
                made.append(KernelParameter(f"arg{n}", "void*", True, False, None, 1, 8, 8))
            else:
                size, align = dtype.itemsize, natural_alignment(dtype)
                made.append(KernelParameter(f"arg{n}", dtype.name, False, False, dtype, 1, size, align))
        return Signature(kernel, tuple(made))


def _parameter(scope: Scope, tokens: list[Token], n: int, kernel: str, where: str) -> KernelParameter:
    """Parse parameter number `n`; raises DeclarationError naming kernel and parameter."""
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
    ctype = ("const " if kind.const else "") + kind.spelling + "*" * pointers
    if declared.reference:
        raise refuse(f"{ctype}& is a reference, and a kernel cannot take one; pass a value or a pointer", name)
    if pointers > 1:
        raise refuse(f"{ctype} is a pointer to a pointer; declare it as void* and cast inside the kernel", name)
    if pointers == 1:
        return KernelParameter(name, ctype, True, kind.const, kind.dtype, kind.lanes, 8, 8, kind.align)
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
    return KernelParameter(name, ctype, False, False, kind.dtype, kind.lanes, kind.size, kind.align)


# -- values ----------------------------------------------------------------------------------------------------------


def check_argument(param: KernelParameter, value: object, where: str) -> PackedValue:
    """Check a value against a parameter and return it ready for `ArgumentPacker.pack`.

    Parameters
    ----------
    param : KernelParameter
        The parameter; for a pointer only None (a null pointer) is a value.
    value : object
        A Python or NumPy scalar; for a vector type a sequence of `lanes` numbers; for a struct a `numpy.void`, a
        0-dimensional structured array or a tuple of its fields.
    where : str
        Who passes it, for messages: ``"node 'scale'"``.

    Raises
    ------
    DeclarationError
        If the value is of another kind, or does not fit: the message names the range.
    """
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if param.pointer:
        if value is None:
            return 0
        raise DeclarationError(
            f"{where}: parameter '{param}' takes an array (got {_said(value)}); make one with device_array, "
            "host_array, alloc or external_array",
            array=param.name,
        )
    dtype = param.dtype
    assert dtype is not None
    if param.lanes > 1:
        if isinstance(value, (str, bytes)) or not isinstance(value, (Sequence, np.ndarray)) or len(value) != param.lanes:
            raise DeclarationError(
                f"{where}: parameter '{param}' takes {param.lanes} numbers, e.g. a tuple (got {_said(value)})",
                array=param.name,
            )
        return np.array([_number(dtype, part, param, where) for part in value], dtype).tobytes()
    if dtype.names is not None:
        return _struct_bytes(dtype, value, param, where)
    if dtype.kind == "V" and isinstance(value, np.void) and value.dtype == dtype:  # bytes whose meaning is not known
        return value.tobytes()
    number = _number(dtype, value, param, where)
    if dtype.kind == "c" or is_bfloat16(dtype):
        return np.array(number, dtype).tobytes()
    assert not isinstance(number, complex)
    return number


def _said(value: object) -> str:
    text = repr(value)
    return f"{text if len(text) <= 60 else text[:57] + '...'} of type {type(value).__name__}"


def _number(dtype: np.dtype[Any], value: object, param: KernelParameter, where: str) -> int | float | complex:
    """Return the Python number that stands for `value` in `dtype`, or refuse it."""

    def refuse(wanted: str) -> DeclarationError:
        return DeclarationError(f"{where}: parameter '{param}' takes {wanted} (got {_said(value)})", array=param.name)

    if isinstance(value, np.generic) and not isinstance(value, np.void):
        kind = "f" if is_bfloat16(value.dtype) else value.dtype.kind
        plain: object = float(value) if kind == "f" else value.item()
    else:
        plain = value
    if dtype.kind == "b":
        if isinstance(plain, bool) or (isinstance(plain, int) and plain in (0, 1)):
            return bool(plain)
        raise refuse("True or False")
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        if not isinstance(plain, int):
            hint = "; convert it with int()" if isinstance(plain, float) else ""
            raise DeclarationError(f"{where}: parameter '{param}' takes an int (got {_said(value)}){hint}", array=param.name)
        if not info.min <= plain <= info.max:
            raise refuse(f"an int from {info.min} to {info.max}")
        return int(plain)
    if dtype.kind == "c":
        if isinstance(plain, (int, float, complex)) and not isinstance(plain, bool):
            return complex(plain)
        raise refuse("a complex number")
    if not isinstance(plain, (int, float)) or isinstance(plain, bool):
        raise refuse("a float")
    try:
        number = float(plain)
    except OverflowError:
        raise refuse(f"a number that {dtype.name} can hold") from None
    if math.isfinite(number) and dtype.itemsize < 8:
        if dtype.char == "f":
            rounded = ctypes.c_float(number).value
        else:
            with np.errstate(over="ignore"):
                rounded = float(np.array(number).astype(dtype))
        if math.isinf(rounded):
            raise refuse(f"a number that {dtype.name} can hold")
        return rounded
    return number


def struct_fields(dtype: np.dtype[Any], value: object, where: str) -> object:
    """Return a struct that is given by its fields' names as a tuple in their order; anything else is as it was.

    Raises
    ------
    DeclarationError
        If an array or a parameter stands in a field.
    """
    names = dtype.names or ()
    if isinstance(value, Mapping) and set(value) == set(names):
        value = tuple(value[name] for name in names)
    if not isinstance(value, tuple) or len(value) != len(names):
        return value
    for name, part in zip(names, value):
        if isinstance(part, Viewable):
            raise DeclarationError(
                f"{where}: field {name!r} is an array, and a struct with pointers takes none: no edge would follow from it; pass"
                " the array as an argument of its own"
            )
    return tuple(struct_fields(dtype[name], part, where) for name, part in zip(names, value))


def _struct_bytes(dtype: np.dtype[Any], value: object, param: KernelParameter, where: str) -> bytes:
    if isinstance(value, np.void) and value.dtype == dtype:
        return value.tobytes()
    value = struct_fields(dtype, value, f"{where}: parameter '{param}'")
    if isinstance(value, tuple) and len(value) == len(dtype.names or ()):
        try:
            return np.array(value, dtype).tobytes()
        except (TypeError, ValueError, OverflowError) as error:
            raise DeclarationError(f"{where}: parameter '{param}': {error}", array=param.name) from None
    fields = ", ".join(dtype.names or ())
    raise DeclarationError(
        f"{where}: parameter '{param}' takes a struct ({fields}): a numpy.void of its dtype, a tuple or a dict "
        f"(got {_said(value)})",
        array=param.name,
    )


class ArgumentPacker:
    """Argument memory of one kernel signature, made once and written before each call.

    `pack` turns the arguments into bytes, `place` writes those and returns the address of the table of pointers to them,
    which HIP's calls take as ``kernelParams`` and copy before they return. The memory lives as long as the packer. One packer
    must not be used by two threads at once: a lock around `place` and the call that reads the table is the caller's.

    Attributes
    ----------
    signature : Signature
    address : int
        Of the table of pointers.
    memory : int
        Address of the arguments.
    """

    __slots__ = ("_buffer", "_keep", "_struct", "_view", "address", "memory", "signature")

    def __init__(self, signature: Signature) -> None:
        self.signature = signature
        # Vector types of 32 bytes may be read with aligned instructions.
        buffer = bytearray(signature.nbytes + 64)
        self._buffer = ctypes.c_char.from_buffer(buffer)
        base = ctypes.addressof(self._buffer)
        offset = -base % 64
        self.memory = base + offset
        self._view = memoryview(buffer)[offset : offset + signature.nbytes]
        table = (ctypes.c_void_p * max(1, len(signature.parameters)))(*(self.memory + at for at in signature.offsets))
        self._keep = table
        self._struct = struct.Struct(signature.format)
        self.address = ctypes.addressof(table)

    def pack(self, values: Sequence[PackedValue]) -> bytes:
        """Return the bytes of the arguments, each given as `check_argument` returned it or as an address."""
        return self._struct.pack(*values)

    def unpack(self, packed: bytes) -> tuple[Any, ...]:
        """Return the arguments that `pack` was given, as far as their types can tell."""
        return self._struct.unpack(packed)

    def place(self, packed: bytes) -> int:
        """Write packed arguments to where the table points, and return the table's address."""
        self._view[:] = packed
        return self.address


# -- Kernel and Module -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """A kernel of a module. Obtain one by ``module["scale"]`` or ``module["scale<float>"]``.

    Two kernels are equal when their modules are and their names are; the reference does not count.

    Attributes
    ----------
    module : Module
        Where its code stands.
    name : str
        Its name, template arguments included.
    signature : Signature or None
        None for a kernel of a code object whose signature was not given; its pointers count as updated.
    reference : callable or None
        NumPy function of the same arguments, which writes its array arguments in place.
    launch_bounds : int or None
        Most threads a block may have, from ``__launch_bounds__``.
    static_shared_bytes : int or None
        Bytes of the ``__shared__`` variables of fixed size; None where the source does not tell.
    symbols : tuple of (Symbol, bool)
        Variables of the module that it may touch, each with whether it can only read it.
    dynamic_shared : bool
        Whether its own body uses an array of dynamic shared memory (``extern __shared__``), so that it needs `shared_bytes`.
    unread : str
        Why it counts as touching every variable of the module; empty where those it touches are known.
    """

    module: Module
    name: str
    signature: Signature | None
    reference: Callable[..., object] | None = None
    launch_bounds: int | None = None
    static_shared_bytes: int | None = None
    symbols: tuple[tuple[Symbol, bool], ...] = ()
    dynamic_shared: bool = False
    unread: str = ""

    def with_reference(self, fn: Callable[..., object]) -> Kernel:
        """Return the same kernel with a NumPy reference.

        Parameters
        ----------
        fn : callable
            Takes the kernel's arguments in order, arrays as NumPy copies, and writes what the kernel writes in place.
        """
        if not callable(fn):
            raise DeclarationError(
                f"kernel {self.name!r}: a reference is a function of the kernel's arguments (got {_said(fn)})",
                array=self.name,
            )
        return replace(self, reference=fn)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Kernel):
            return NotImplemented
        return self.name == other.name and self.module == other.module

    def __hash__(self) -> int:
        return hash((self.module.digest, self.name))

    def __repr__(self) -> str:
        said = str(self.signature) if self.signature is not None else f"{self.name}(...)"
        return f"<Kernel {said} of {self.module.name!r}>"


@dataclass(frozen=True, eq=False, repr=False)
class Symbol(Array):
    """A ``__constant__``, ``__device__`` or ``__managed__`` variable of a module; memcpy takes it on either side.

    It belongs to the module as a device has loaded it, not to a graph. Obtain one by ``module.symbol("table")``; a
    module gives the same object each time.

    Attributes
    ----------
    module : Module
        Where it stands.
    name, dtype, shape
        As declared; a vector type adds one axis of its lanes.
    constant : bool
        Whether kernels can only read it (``__constant__``).
    hidden : bool
        Whether it stands for variables that have no name of their own, such as a function's static ones: kernels are ordered by
        it, and nothing can copy it.
    """

    module: Module = field(kw_only=True)
    constant: bool = field(default=False, kw_only=True)
    hidden: bool = field(default=False, kw_only=True)

    kind = "symbol"

    @property
    def hazard_key(self) -> Any:
        """The variable of this module, whichever graph uses it."""
        return (self.module, self.name)

    def __repr__(self) -> str:
        return f"<Symbol {self.dtype.name} {self.name}{list(self.shape)} of {self.module.name!r}>"


_MAX_FILE: Final = 2**30  # bytes of a module; libraries with code for many architectures have some hundred MB


def _content(path: Path) -> bytes:
    """Return the bytes of a module's file; what is no regular file, such as a pipe, may have no end and is not opened."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise OSError(0, "it is no regular file")
        if found.st_size > _MAX_FILE:
            raise OSError(0, f"it has {found.st_size} bytes; at most {_MAX_FILE} are read")
        with path.open("rb") as file:
            return file.read(found.st_size)
    except (OSError, ValueError) as error:  # ValueError: a NUL or half a surrogate pair in the path
        why = getattr(error, "strerror", None) or error
        raise DeclarationError(f"module file {str(path)!r} cannot be read: {why}") from None


class Body(NamedTuple):
    """What stands between the braces of a kernel.

    Attributes
    ----------
    tokens : list of Token
        Macros expanded.
    scope : Scope
        What names mean in it.
    parameters : list of list of Token
        The kernel's parameters as written.
    """

    tokens: list[Token]
    scope: Scope
    parameters: list[list[Token]]


class Module:
    """HIP C++ source, or a code object, and what is declared in it.

    Making one parses the source and compiles nothing; each runtime compiles it for its own device.

    Parameters
    ----------
    source : str
        HIP C++ with ``__global__`` functions, ``__device__`` and ``__constant__`` variables.
    name : str, optional
        What messages call it; compiler errors use it as the file name. Default: ``kernels_`` and part of the digest.
    options : sequence of str
        Compiler options, e.g. ``"-DTILE=16"``; they are part of the digest.
    structs : mapping of str to numpy.dtype
        Layouts of struct types that kernels take by value or point at, e.g.
        ``{"Params": np.dtype([("a", "f4"), ("n", "i8")], align=True)}``.

    Raises
    ------
    DeclarationError
        If the source has no kernel and no variable, or cannot be split into declarations (the line is named).
    """

    def __init__(
        self,
        source: str,
        *,
        name: str | None = None,
        options: Sequence[str] = (),
        structs: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(source, str):
            raise DeclarationError(f"a module's source is a str of HIP C++ (got {_said(source)}); for files use Module.from_file")
        if isinstance(options, str):
            raise DeclarationError(f"a module's options are a list of strings: options=[{options!r}] (got one string)")
        self._read(source, name, options, structs, Headers(options), None)

    def _read(
        self,
        source: str,
        name: str | None,
        options: Sequence[str],
        structs: Mapping[str, Any] | None,
        headers: Headers,
        budget: Budget | None,
    ) -> None:
        self._source = source
        self._options = tuple(options)
        self._name = name or "kernels"
        self._structs = _layouts(structs, self._name)
        self._path: Path | None = None
        self._image: bytes | None = None
        self._signatures: dict[str, tuple[str, ...]] = {}
        self._made: dict[str, Kernel] = {}
        self._symbols: dict[str, Symbol] = {}
        hashed = hashlib.sha256()
        try:
            for part in (source, *self._options):
                hashed.update(part.encode() + b"\0")
            for key in sorted(self._structs):
                hashed.update(f"{key}={self._structs[key]!r}\0".encode())
        except UnicodeEncodeError as error:
            raise DeclarationError(
                f"module {self._name!r}: {error.object[error.start]!r} in source, options or structs is no character of"
                " any text; take it out"
            ) from None
        self._name = name or f"kernels_{hashed.hexdigest()[:8]}"
        try:
            self._declared = Declarations(source, f"module {self._name!r}", self._options, self._structs, headers, budget)
        except RecursionError:
            raise DeclarationError(f"module {self._name!r}: the source is nested too deeply to be read") from None
        for text in headers.texts.values():
            hashed.update(text.encode(errors="replace") + b"\0")
        self._digest = hashed.hexdigest()
        self._headers = headers.texts
        if not self._declared.kernels and not self._declared.symbols:
            raise DeclarationError(
                f"module {self._name!r} has no __global__ function and no __device__ or __constant__ variable"
                + (f"; to read a file, Module.from_file({source!r})" if re.fullmatch(r"\S+\.\w+", source) else "")
            )

    @classmethod
    def from_file(
        cls,
        path: str | PathLike[str],
        signatures: Mapping[str, str | Sequence[str]] | None = None,
        *,
        name: str | None = None,
        structs: Mapping[str, Any] | None = None,
        options: Sequence[str] = (),
    ) -> Module:
        """Return the module of a file: HIP C++ source by its ending, else a code object.

        Parameters
        ----------
        path : path
            ``.hip``, ``.cpp``, ``.cc``, ``.cxx``, ``.cu``, ``.cuh``, ``.h``, ``.hpp`` are source; ``.hsaco``, ``.co``,
            ``.ptx``, ``.cubin``, ``.fatbin``, ``.so`` are code objects.
        signatures : mapping, for code objects
            Each kernel's parameters, ``{"scale": "float*, float, size_t"}`` or lists of types. A kernel without one can
            be used too: its arguments are passed as they come and what its pointers point at counts as updated.
        structs : mapping of str to numpy.dtype
            As for `Module`.

        Raises
        ------
        DeclarationError
            If the file cannot be read, its ending is unknown, or a signature cannot be parsed.
        """
        path = Path(path)
        data = _content(path)
        if path.suffix in (".hip", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".cc", ".cxx"):
            if signatures:
                raise DeclarationError(f"module file {str(path)!r} is source: its signatures are read from it, give none")
            return cls(data.decode(errors="replace"), name=name or path.name, options=options, structs=structs)
        if path.suffix not in (".hsaco", ".co", ".ptx", ".cubin", ".fatbin", ".so"):
            raise DeclarationError(
                f"module file {str(path)!r} has an ending that is not known; source ends in .hip, .cpp or .cu, code "
                "objects in .hsaco, .co, .ptx, .cubin, .fatbin or .so"
            )
        digest = hashlib.sha256(data).hexdigest()
        return cls._of_code(path, digest, data, signatures or {}, name or path.name, structs)

    @classmethod
    def _of_code(
        cls,
        path: Path,
        digest: str,
        image: bytes | None,
        signatures: Mapping[str, str | Sequence[str]],
        name: str,
        structs: Mapping[str, Any] | None,
    ) -> Module:
        module = cls.__new__(cls)
        module._source = ""
        module._options = ()
        module._structs = _layouts(structs, name)
        module._path = path
        module._image = image
        module._digest = digest
        module._name = name
        module._made = {}
        module._symbols = {}
        module._signatures = {}
        module._declared = Declarations("", f"module {name!r}", (), module._structs)
        for kernel, parameters in signatures.items():
            parts = (parameters,) if isinstance(parameters, str) else tuple(parameters)
            pieces = [p for part in parts for p in split_commas(tokenize(part, f"signature of kernel {kernel!r}"))]
            if [spell(piece) for piece in pieces] == ["void"]:
                pieces = []
            module._signatures[kernel] = tuple(spell(piece) for piece in pieces)
            scope, where = module._declared.scope, f"module {name!r}"
            read = (_parameter(scope, piece, n, kernel, where) for n, piece in enumerate(pieces))
            module._made[kernel] = Kernel(module, kernel, Signature(kernel, tuple(read)))
        return module

    # -- what it is ------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """What messages call it."""
        return self._name

    @property
    def source(self) -> str:
        """The HIP C++ source; empty for a code object."""
        return self._source

    @property
    def options(self) -> tuple[str, ...]:
        """Compiler options."""
        return self._options

    @property
    def structs(self) -> Mapping[str, np.dtype[Any]]:
        """Layouts of struct types by name."""
        return dict(self._structs)

    @property
    def digest(self) -> str:
        """SHA-256, in hexadecimal, of all that decides what is compiled; of a code object, of its bytes."""
        return self._digest

    @property
    def path(self) -> Path | None:
        """File of a code object; None for source."""
        return self._path

    @property
    def image(self) -> bytes | None:
        """Bytes of a code object, None for source.

        A module loaded from JSON reads its file here, and refuses one whose contents have changed.
        """
        if self._path is not None and self._image is None:
            data = _content(self._path)
            if hashlib.sha256(data).hexdigest() != self._digest:
                raise DeclarationError(
                    f"module file {str(self._path)!r} is not the file that the workflow was made with (SHA-256 differs)"
                )
            self._image = data
        return self._image

    @property
    def kernels(self) -> tuple[str, ...]:
        """Names of the kernels in order of the source; templates stand without arguments."""
        return tuple(self._signatures) if self._path is not None else tuple(self._declared.kernels)

    @property
    def symbols(self) -> tuple[str, ...]:
        """Names of the ``__constant__``, ``__device__`` and ``__managed__`` variables in order of the source."""
        return tuple(self._declared.symbols)

    def __contains__(self, name: object) -> bool:
        return name in self.kernels

    def __iter__(self) -> Iterator[str]:
        return iter(self.kernels)

    def __len__(self) -> int:
        return len(self.kernels)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Module):
            return NotImplemented
        return self._digest == other._digest and self._signatures == other._signatures

    def __hash__(self) -> int:
        return hash(self._digest)

    def __repr__(self) -> str:
        return f"<Module {self._name!r}: {', '.join(self.kernels) or 'no kernels'}>"

    # -- what it holds ---------------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> Kernel:
        """Return the kernel ``"scale"``, or the template instantiation ``"scale<float, 4>"``.

        Raises
        ------
        DeclarationError
            If there is none (those that exist are named), if template arguments are missing or too many, or if a
            parameter's type is not understood (kernel, parameter, type and repair are named).
        """
        if not isinstance(name, str):
            raise DeclarationError(f"module {self._name!r}: a kernel's name is a str (got {_said(name)})")
        made = self._made.get(name)
        if made is None:
            try:
                made = self._make(name)
            except RecursionError:
                raise DeclarationError(f"kernel {name!r} of module {self._name!r} is nested too deeply to be read") from None
            self._made[name] = made = self._made.setdefault(made.name, made)
        return made

    def _make(self, name: str) -> Kernel:
        if self._path is not None:
            return Kernel(self, name, None)
        declared, scope, full = self._resolve(name)
        where = f"module {self._name!r}"
        parts = split_commas(declared.parameters)
        signature = Signature(full, tuple(_parameter(scope, part, n, full, where) for n, part in enumerate(parts)))
        bounds: int | None = None
        if declared.bounds:
            try:
                bounds = scope.evaluate(declared.bounds)
            except ValueError:
                bounds = None
        reached, pasted = self._declared.kernel_reaches(declared)
        shared = self._declared.dynamic | {"__shared__", "HIP_DYNAMIC_SHARED"}
        body: list[Token] | None = []
        if reached & shared:
            short = sum(len(token.text) for token in declared.body) <= _LONGEST_BODY
            body = self._declared.unit.tokens_of(declared.body) if short else None
        symbols, unread = self._touched(declared, reached, pasted)
        return Kernel(
            self,
            full,
            signature,
            launch_bounds=bounds,
            static_shared_bytes=_static_shared_bytes(body, scope) if body is not None else None,
            symbols=symbols,
            dynamic_shared=body is not None and _uses_dynamic_shared(body, self._declared.dynamic),
            unread=unread,
        )

    def _resolve(self, name: str) -> tuple[KernelDeclaration, Scope, str]:
        """Return a kernel's declaration, what names mean in it, and its full name."""
        tokens = tokenize(name, f"kernel name {name!r}")
        angle = next((n for n, t in enumerate(tokens) if t.text == "<"), len(tokens))
        stem, written = spell(tokens[:angle]), spell(tokens)
        found = self._find(written) if angle < len(tokens) else []
        arguments: list[list[Token]] = []
        if not found:
            found = self._find(stem)
            if angle < len(tokens):
                close = closing_angle(tokens, angle)
                if close != len(tokens) - 1:
                    raise DeclarationError(f"kernel name {name!r} of module {self._name!r}: '<' is not closed", array=name)
                arguments = split_commas(tokens[angle + 1 : close])
        if not found:
            names = ", ".join(repr(known) for known in self.kernels) or "none"
            raise DeclarationError(f"module {self._name!r} has no kernel {name!r}; its kernels are {names}", array=name)
        if len(found) > 1:
            raise DeclarationError(
                f"module {self._name!r} has {len(found)} kernels {name!r}; give overloads different names", array=name
            )
        declared = found[0]
        where = f"module {self._name!r}"
        if declared.fault:
            raise DeclarationError(f"kernel {name!r} of {where}, line {declared.line}: {declared.fault}", array=name)
        scope = self._declared.scope
        full = declared.name
        if declared.templates is not None:
            scope = self._bind(declared, arguments, name)
            full = f"{declared.name}<{', '.join(spell(part) for part in arguments)}>"
        elif arguments or (angle < len(tokens) and declared.name != written):
            raise DeclarationError(
                f"kernel {declared.name!r} of {where} is no template; ask for module[{declared.name!r}]", array=name
            )
        return declared, scope, full

    def body(self, kernel: Kernel) -> Body | None:
        """Return what stands between a kernel's braces; None where a compiler may see something else."""
        declared, scope, _ = self._resolve(kernel.name)
        unit = self._declared.unit
        redefined = any(t.kind == "block" and t.start in unit.redefining for t in declared.body)
        if declared.doubt or redefined or self._declared.unread or self.mentions(PLATFORM_MACROS):
            return None
        if sum(len(token.text) for token in declared.body) > _LONGEST_BODY:
            return None
        return Body(unit.tokens_of(declared.body), scope, split_commas(declared.parameters))

    def mentions(self, words: frozenset[str]) -> bool:
        """Return whether one of some words stands anywhere in the source or its headers."""
        return not words.isdisjoint(self._words)

    @cached_property
    def _words(self) -> frozenset[str]:
        return frozenset(word for text in (self._source, *self._headers.values()) for word in re.findall(r"\w+", text))

    def declares(self, name: str) -> bool:
        """Return whether the source itself declares a function or a variable of a name."""
        return self._declared.declares(name)

    def takes_values(self, function: str) -> bool:
        """Return whether all functions of a name in the source take values and pointers, and no references."""
        found = self._declared.functions.get(function, [])
        return bool(found) and all(token.text not in ("&", "&&", "...") for tokens in found for token in tokens)

    def _touched(self, kernel: KernelDeclaration, names: set[str], pasted: bool) -> tuple[tuple[tuple[Symbol, bool], ...], str]:
        """Return the variables that a kernel names, and those that any function names, since it may call it.

        Where that cannot be told these are all variables, and why is said.
        """
        declared = self._declared
        outside, outside_pasted = self._outside
        unread = f"header {declared.unread[0]!r} is in no folder of -I" if declared.unread else ""
        if (pasted or outside_pasted) and (declared.symbols or declared.hidden):
            unread = unread or "a macro puts names together with ##"
        found = []
        for name, symbol in declared.symbols.items():
            plain = name.rpartition("::")[2]
            if unread or plain in names or plain in outside:
                found.append((self._symbol_of_any_layout(name), symbol.space == "__constant__"))
        hidden = [name for name, word in declared.hidden.items() if unread or word in names or word in outside]
        hidden += self._static_locals
        hidden += [f"static {name} of {kernel.name}" for name in declared.static_locals(kernel.body)]
        if declared.unread:
            hidden.append(f"variables of {declared.unread[0]}")
        for name in hidden:
            made = self._symbols.setdefault(f" {name}", Symbol(name, (), np.dtype("u1"), module=self, hidden=True))
            found.append((made, False))
        return tuple(found), unread

    @cached_property
    def _outside(self) -> tuple[set[str], bool]:
        """Names that stand outside of kernels, and whether macros there put names together."""
        return self._declared.functions_reach() if self._declared.symbols or self._declared.hidden else (set(), False)

    @cached_property
    def _static_locals(self) -> list[str]:
        return [f"static {name}" for name in dict.fromkeys(self._declared.static_locals())]

    def _symbol_of_any_layout(self, name: str) -> Symbol:
        try:
            return self.symbol(name)
        except DeclarationError:  # of a type whose layout is unknown: still one thing that kernels order themselves by
            space = self._declared.symbols[name].space
            return self._symbols.setdefault(name, Symbol(name, (), np.dtype("u1"), module=self, constant=space == "__constant__"))

    def _find(self, name: str) -> list[KernelDeclaration]:
        kernels = self._declared.kernels
        name = name.removeprefix("::")
        if name in kernels:
            return kernels[name]
        return [d for key, found in kernels.items() if key.endswith(f"::{name}") for d in found]

    def _bind(self, declared: KernelDeclaration, arguments: list[list[Token]], name: str) -> Scope:
        templates = declared.templates or ()
        wanted = ", ".join(t.spelling for t in templates)
        if any("..." in t.spelling for t in templates):
            raise DeclarationError(
                f"kernel {declared.name!r} of module {self._name!r} takes a template parameter pack ({wanted}), which "
                "is not supported; write the parameters out",
                array=name,
            )
        needed = sum(1 for t in templates if not t.default)
        if not needed <= len(arguments) <= len(templates):
            raise DeclarationError(
                f"kernel {declared.name!r} of module {self._name!r} is a template of ({wanted}); "
                f"ask for module['{declared.name}<...>'] (got {len(arguments)} arguments)",
                array=name,
            )
        scope = self._declared.scope.inner()
        for n, parameter in enumerate(templates):
            value = arguments[n] if n < len(arguments) else list(parameter.default)
            if not parameter.name:
                continue
            try:
                if parameter.type:
                    scope.specifiers(value)
                    # Resolved now, because an argument may have the name of a parameter: k<T> inside another template.
                    scope.aliases[parameter.name] = value
                else:
                    number = value[0]._replace(kind="number", text=str(scope.evaluate(value)))
                    words = tokenize(parameter.spelling)[:-1]
                    scope.define_constants([*words, value[0]._replace(kind="name", text=parameter.name),
                                            number._replace(kind="punct", text="="), number])  # fmt: skip
            except ValueError as error:
                if parameter.type or not value:
                    raise DeclarationError(
                        f"kernel {name!r} of module {self._name!r}: template argument {parameter.spelling!r}: {error}",
                        array=name,
                    ) from None
                scope.constants.pop(parameter.name, None)
        return scope

    def symbol(self, name: str) -> Symbol:
        """Return a ``__constant__``, ``__device__`` or ``__managed__`` variable.

        Raises
        ------
        DeclarationError
            If there is none of that name (those that exist are named), or its type or shape cannot be told.
        """
        if self._path is not None:
            raise DeclarationError(
                f"module {self._name!r} is a code object, which does not tell the types of its variables; use source",
                array=name,
            )
        made = self._symbols.get(name)
        if made is not None:
            return made
        declared = self._declared.symbols.get(name)
        if declared is None:
            names = ", ".join(repr(known) for known in self.symbols) or "none"
            raise DeclarationError(f"module {self._name!r} has no variable {name!r}; its variables are {names}", array=name)
        scope = self._declared.scope
        try:
            if f"variable {name}" in scope.doubts:
                raise ValueError(scope.doubts[f"variable {name}"])
            declarators = scope.declarators(self._declared.unit.tokens_of(declared.tokens))
            found = next(d for d in declarators if d.name == name.rpartition("::")[2])
            kind = found.type
            if kind.pointers:
                kind = CType(kind.spelling, np.dtype("u8"), 1, 8, 8)
            if kind.dtype is None:
                raise ValueError(
                    f"the layout of {kind.opaque} {kind.spelling!r} is not known; give it with "
                    f"Module(structs={{{kind.spelling!r}: numpy dtype}})"
                )
            shape = []
            for n, bound in enumerate(found.bounds):
                if bound:
                    shape.append(scope.evaluate(bound))
                elif n == 0 and found.initializer:
                    shape.append(_initializer_length(found.initializer))
                else:
                    raise ValueError("an array bound is missing")
        except (ValueError, StopIteration) as error:
            raise DeclarationError(
                f"variable {name!r} of module {self._name!r}, line {declared.line}: {error or 'it is not understood'}",
                array=name,
            ) from None
        if kind.lanes > 1:
            shape.append(kind.lanes)
        symbol = Symbol(name, tuple(shape), kind.dtype, module=self, constant=declared.space == "__constant__")
        return self._symbols.setdefault(name, symbol)

    @classmethod
    def stored(
        cls,
        source: str,
        name: str,
        options: Sequence[str],
        structs: Mapping[str, Any],
        headers: Mapping[str, str],
        budget: Budget | None = None,
    ) -> Module:
        """Return the module of a file, which holds the headers' texts by path: no other header is looked for.

        `budget` bounds what the macros of several modules become together.
        """
        module = cls.__new__(cls)
        module._read(source, name, options, structs, Headers(options, headers), budget)
        return module

    # -- JSON ------------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return the module as JSON can hold it: source whole, a code object by its path and SHA-256."""
        out: dict[str, Any] = {"name": self._name}
        if self._path is not None:
            out |= {"file": str(self._path), "sha256": self._digest}
            out["signatures"] = {key: ", ".join(parts) for key, parts in self._signatures.items()}
        else:
            out["source"] = self._source
            if self._options:
                out["options"] = list(self._options)
            if self._headers:
                out["headers"] = dict(self._headers)
        if self._structs:
            out["structs"] = {key: _dtype_to_json(dtype) for key, dtype in self._structs.items()}
        return out

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Module:
        """Return the module that `to_dict` described; a code object's file is read when its image is first needed.

        Raises
        ------
        DeclarationError
            If a field is missing or of the wrong kind.
        """
        try:
            structs = {str(key): _dtype_from_json(value) for key, value in data.get("structs", {}).items()}
            name = str(data["name"])
            if "source" in data:
                options = [str(option) for option in data.get("options", [])]
                texts = {str(path): str(text) for path, text in data.get("headers", {}).items()}
                if not isinstance(data["source"], str):
                    raise ValueError("'source' is no text")
                return cls.stored(data["source"], name, options, structs, texts)
            signatures = {str(key): str(value) for key, value in data.get("signatures", {}).items()}
            digest = str(data["sha256"])
            if not re.fullmatch("[0-9a-f]{64}", digest):
                raise ValueError("'sha256' is not 64 hexadecimal digits")
            return cls._of_code(Path(str(data["file"])), digest, None, signatures, name, structs)
        except DeclarationError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            what = f"field {error} is missing" if isinstance(error, KeyError) else str(error)
            raise DeclarationError(f"a stored module cannot be read: {what}") from None


class ForeignModule(Module):
    """One kernel that somebody else has loaded: what a graph that was read back launches, without source or image.

    It exists only in the runtime that it was found in and as long as its owner keeps it loaded. Nothing is known of what it
    reads and writes, so an array argument is only an address unless it is wrapped in `hg.reads`, `hg.writes` or `hg.updates`.

    Parameters
    ----------
    name : str
        The kernel's name, as the platform tells it.
    function : int
        The runtime's handle.
    owner : Runtime
        The runtime that it belongs to.
    sizes : tuple of int or None
        Bytes of each parameter; None where the platform does not tell, and then it cannot be launched anew.
    signature : Signature, optional
        Types of the parameters, where they are known.
    """

    def __init__(
        self, name: str, function: int, owner: Any, sizes: tuple[int, ...] | None, signature: Signature | None = None
    ) -> None:
        self.function = function
        self.owner = owner
        self.sizes = sizes
        self._source = ""
        self._options = ()
        self._structs = {}
        self._path = None
        self._image = None
        self._signatures = {}
        self._symbols = {}
        self._name = name
        self._digest = hashlib.sha256(f"{owner.name}:{function}:{name}".encode()).hexdigest()
        self._declared = Declarations("", f"kernel {name!r}", (), {})
        self._made = {name: Kernel(self, name, signature)}

    @property
    def kernels(self) -> tuple[str, ...]:
        """The name of its one kernel."""
        return (self._name,)

    def _make(self, name: str) -> Kernel:
        raise DeclarationError(f"module {self._name!r} has no kernel {name!r}; its kernels are {self._name!r}", array=name)

    def to_dict(self) -> dict[str, Any]:
        """Refuse: a file could not hold it.

        Raises
        ------
        DeclarationError
            Always; names the kernel.
        """
        raise DeclarationError(
            f"kernel {self._name!r} was read from a graph of runtime {self.owner.name!r}: there is only a handle of it, and a"
            " file cannot hold that; declare the kernel from its source",
            array=self._name,
        )


def _initializer_length(tokens: Sequence[Token]) -> int:
    if tokens[0].text == "{":
        return len([part for part in split_commas(tokens[1 : closing_index(tokens, 0)]) if part])
    if tokens[0].kind == "string":
        return len(re.sub(r"\\.", "x", tokens[0].text[1:-1])) + 1
    raise ValueError("an array bound is missing")


#: Bodies beyond this many characters are not searched for shared memory.
_LONGEST_BODY: Final = 200_000


def _statements(body: Sequence[Token], words: frozenset[str]) -> Iterator[list[Token]]:
    """Yield the statements that hold one of the words, from that word or a specifier before it to the semicolon."""
    i = 0
    while i < len(body):
        if body[i].text in words or (body[i].text in ("static", "extern") and i + 1 < len(body)):
            end = i
            while end < len(body) and body[end].text != ";":
                end = closing_index(body, end) if body[end].text in OPENING else end
                end += 1
            yield list(body[i:end])
            i = end
        i += 1


def _static_shared_bytes(body: Sequence[Token], scope: Scope) -> int | None:
    """Add up the ``__shared__`` variables of fixed size of a kernel's own body; None where one cannot be told."""
    scope = scope.inner()
    at = 0
    for statement in _statements(body, frozenset({"__shared__", "const", "constexpr"})):
        words = [t.text for t in statement]
        if "__shared__" in words and "extern" not in words:
            try:
                if any(t.doubt is not None for t in statement):
                    return None
                for found in scope.declarators(statement):
                    size = 8 if found.type.pointers else found.type.size
                    align = 8 if found.type.pointers else found.type.align
                    if not size:
                        return None
                    count = math.prod(scope.evaluate(bound) for bound in found.bounds)
                    at = -(-at // align) * align + size * count
            except ValueError:
                return None
        elif "__shared__" not in words:
            scope.define_constants(statement, next((t.doubt.reason for t in statement if t.doubt is not None), ""))
    return at


def _uses_dynamic_shared(body: Sequence[Token], outside: set[str]) -> bool:
    """Return whether a body uses an array of dynamic shared memory, one of its own or one of those declared outside."""
    uses = Counter(t.text for t in body if t.kind == "name" and t.doubt is None)
    own = set()
    for statement in _statements(body, frozenset({"__shared__"})):
        if {"extern", "__shared__"} <= {t.text for t in statement}:
            bracket = next((n for n, t in enumerate(statement) if t.text == "["), len(statement))
            own.add(statement[bracket - 1].text)
    for n, token in enumerate(body):
        if token.text == "HIP_DYNAMIC_SHARED":
            parts = split_commas(body[n + 2 : closing_index(body, n + 1)])
            own.update(part[-1].text for part in parts[1:2] if part)
    return any(uses[name] > 1 for name in own) or any(uses[name] for name in outside - own)


def _layouts(structs: Mapping[str, Any] | None, module: str) -> dict[str, np.dtype[Any]]:
    """Return the layouts of structs as dtypes of this machine's byte order."""
    found = {key: as_dtype(value) for key, value in (structs or {}).items()}
    for key, dtype in found.items():
        swapped = _swapped_field(dtype)
        if swapped:
            raise DeclarationError(
                f"module {module!r}: struct {key!r}: field {swapped} has the byte order of another machine, which no device"
                f" reads; give structs={{{key!r}: dtype.newbyteorder('=')}}",
                array=key,
            )
    return found


def _swapped_field(dtype: np.dtype[Any], name: str = "") -> str:
    if dtype.subdtype is not None:
        return _swapped_field(dtype.subdtype[0], name)
    if dtype.names is not None:
        assert dtype.fields is not None
        fields = dtype.fields
        inner = (_swapped_field(fields[key][0], f"{name}.{key}" if name else key) for key in dtype.names)
        return next(filter(None, inner), "")
    return "" if dtype.isnative else repr(name)


def _dtype_to_json(dtype: np.dtype[Any]) -> Any:
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return {"base": _dtype_to_json(base), "shape": list(shape)}
    if dtype.names is None:
        return dtype.name if is_bfloat16(dtype) else dtype.str
    assert dtype.fields is not None
    fields = [dtype.fields[name] for name in dtype.names]
    return {
        "names": list(dtype.names),
        "formats": [_dtype_to_json(entry[0]) for entry in fields],
        "offsets": [int(entry[1]) for entry in fields],
        "itemsize": dtype.itemsize,
        "align": bool(dtype.isalignedstruct),
    }


def _dtype_from_json(data: Any, depth: int = 0) -> np.dtype[Any]:
    if depth > 16:
        raise ValueError("a struct is nested too deeply")
    if isinstance(data, str):
        if data == "bfloat16":
            found = bfloat16_dtype()
            if found is None:
                raise ValueError("bfloat16 needs the package ml_dtypes: pip install ml_dtypes")
            return found
        return np.dtype(data)
    if "base" in data:
        return np.dtype((_dtype_from_json(data["base"], depth + 1), tuple(int(n) for n in data["shape"])))
    fields: Any = {
        "names": [str(name) for name in data["names"]],
        "formats": [_dtype_from_json(part, depth + 1) for part in data["formats"]],
        "offsets": [int(n) for n in data["offsets"]],
        "itemsize": int(data["itemsize"]),
    }
    return np.dtype(fields, align=bool(data.get("align", False)))  # type: ignore[no-any-return]
