"""Modules, and the kernels and variables that they declare."""

from __future__ import annotations

import hashlib
import re
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import WeakValueDictionary

import numpy as np

from ..arrays import Array
from ..errors import DeclarationError
from ..source import (
    Budget,
    Declarations,
    Headers,
    KernelDeclaration,
    Token,
    spell,
    split_commas,
    tokenize,
)
from .instances import find_kernel, variable_layout
from .layouts import dtype_data, dtype_from_json, struct_layouts
from .origins import Origin
from .packing import said
from .shared_memory import static_shared_bytes, uses_dynamic_shared
from .signature import Signature, read_parameters

if TYPE_CHECKING:
    from ..runtimes.code_object import Blocks


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """A kernel of a module. Obtain one by ``module["scale"]`` or ``module["scale<float>"]``.

    Two kernels are equal if their modules and names are equal; the reference is not compared.

    Attributes
    ----------
    module : Module
        The module that defines it.
    name : str
        Its name, template arguments included.
    signature : Signature or None
        None for a kernel of a code object without a given signature; its pointer arguments count as updated.
    reference : callable or None
        NumPy function with the same arguments, which writes its array arguments in place.
    launch_bounds : int or None
        Maximum threads per block, from ``__launch_bounds__``.
    static_shared_bytes : int or None
        Bytes of the ``__shared__`` variables of fixed size; None if the source does not determine them.
    symbols : tuple of (Symbol, bool)
        Variables of the module that it may access, each with a flag whether the access is read-only.
    dynamic_shared : bool
        Whether its own body uses an array of dynamic shared memory (``extern __shared__``), so that `shared_bytes` is required.
    unread : str
        Why it counts as accessing every variable of the module; empty if the accessed variables are known.
    launches : dict
        What nodes that launch it alike have in common; filled by `nodes.kernel`.
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
    launches: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)

    def with_reference(self, fn: Callable[..., object]) -> Kernel:
        """Return the same kernel with a NumPy reference.

        Parameters
        ----------
        fn : callable
            Takes the kernel's arguments in order, arrays as NumPy copies, and writes the kernel's results in place.
        """
        if not callable(fn):
            raise DeclarationError(
                f"kernel {self.name!r}: a reference is a function of the kernel's arguments (got {said(fn)})",
                array=self.name,
            )
        return replace(self, reference=fn)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Kernel):
            return NotImplemented
        return self.name == other.name and self.module == other.module

    def __hash__(self) -> int:
        return hash(self.name)  # the name alone suffices: modules rarely share kernel names

    def __reduce__(self) -> tuple[Any, ...]:
        return _kernel_again, (self.module, self.name, self.reference)

    def __deepcopy__(self, memo: Any = None) -> Kernel:
        return self  # like its module, it never changes

    __copy__ = __deepcopy__

    def __repr__(self) -> str:
        said = str(self.signature) if self.signature is not None else f"{self.name}(...)"
        return f"<Kernel {said} of {self.module.name!r}>"


def _kernel_again(module: Module, name: str, reference: Callable[..., object] | None) -> Kernel:
    """Return the kernel that was pickled."""
    return module[name] if reference is None else module[name].with_reference(reference)


@dataclass(frozen=True, eq=False, repr=False)
class Symbol(Array):
    """A ``__constant__``, ``__device__`` or ``__managed__`` variable of a module; memcpy accepts it on either side.

    It belongs to the module as loaded on a device, not to a graph. Obtain one by ``module.symbol("table")``, which returns the
    same object each time.

    Attributes
    ----------
    module : Module
        The module that declares it.
    name, dtype, shape
        As declared; a vector type adds a last axis of its lanes.
    constant : bool
        Whether kernels can only read it (``__constant__``).
    hidden : bool
        Whether it represents variables that have no name to copy them by, such as static variables of functions: it orders
        kernels, and nothing can copy it.
    lanes : int
        Elements of a vector type (4 for ``float4``), which form the last axis; else 1.
    """

    module: Module = field(kw_only=True)
    constant: bool = field(default=False, kw_only=True)
    hidden: bool = field(default=False, kw_only=True)
    lanes: int = field(default=1, kw_only=True)

    kind = "symbol"

    @property
    def hazard_key(self) -> Any:
        """Identifies the variable by module and name, in every graph that uses it."""
        return (self.module, self.name)

    def __reduce__(self) -> tuple[Any, ...]:
        return Module.variable, (self.module, self.name, self.hidden)

    def __repr__(self) -> str:
        dtype = self.dtype.name if self.dtype.names is None else f"struct({', '.join(self.dtype.names)})"
        return f"<Symbol {dtype} {self.name}{list(self.shape)} of {self.module.name!r}>"


#: Longer bodies, in characters, are neither searched for shared memory nor parsed.
LONGEST_BODY: Final = 200_000

_MAX_FILE: Final = 2**30  # bytes of a module; libraries with code for many architectures have some hundred MB


def _content(path: Path) -> bytes:
    """Return the contents of a module's file; only regular files are opened, because reading a pipe may never end."""
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


_known: Final[WeakValueDictionary[tuple[Any, ...], Module]] = WeakValueDictionary()
"""The modules of source that exist, by all that they were read from."""


def _key(
    source: str, name: str, options: Sequence[str], structs: Mapping[str, Any], headers: Mapping[str, str]
) -> tuple[Any, ...]:
    """Return the key of a module in `_known`."""
    return source, name, tuple(options), repr(sorted(structs.items())), tuple(sorted(headers.items()))


class KernelHandle(NamedTuple):
    """A kernel that a runtime has loaded, of which only the function's handle is known."""

    function: int
    owner: Any  # the Runtime that it is loaded in
    sizes: tuple[int, ...] | None  # bytes of each parameter; None if the platform does not report them


class Module:
    """HIP C++ source, or a code object, with its declarations.

    The constructor parses the source and compiles nothing; each runtime compiles it for its own device.

    Parameters
    ----------
    source : str
        HIP C++ with ``__global__`` functions, ``__device__`` and ``__constant__`` variables.
    name : str, optional
        Name in messages and, as file name, in compiler errors. Default: ``kernels_`` and the start of the digest.
    options : sequence of str
        Compiler options, e.g. ``"-DTILE=16"``; they are part of the digest.
    structs : mapping of str to numpy.dtype
        Layouts of struct types that kernels take by value or by pointer, e.g.
        ``{"Params": np.dtype([("a", "f4"), ("n", "i8")], align=True)}``.

    Raises
    ------
    DeclarationError
        If the source has no kernel and no variable, or cannot be split into declarations (the message names the line).
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
            raise DeclarationError(f"a module's source is a str of HIP C++ (got {said(source)}); for files use Module.from_file")
        if isinstance(options, str):
            raise DeclarationError(f"a module's options are a list of strings: options=[{options!r}] (got one string)")
        self._read(source.removeprefix("\ufeff"), name, options, structs, Headers(options), None)
        frame = sys._getframe(1)
        self._origin = Origin(frame.f_code.co_filename, frame.f_lineno)

    # A code object, and a kernel read back from a graph, have no source.
    _source = ""
    _options: tuple[str, ...] = ()
    _headers: Mapping[str, str] = MappingProxyType({})
    _path: Path | None = None
    _origin: Origin | None = None
    _image: bytes | None = None
    _blocks: Mapping[str, Blocks] | None = None
    handle: KernelHandle | None = None
    """Of a module whose one kernel was read back from a graph."""

    def _begin(self, name: str, structs: Mapping[str, Any] | None) -> None:
        if not isinstance(name, str) or not name.isprintable() or len(name) > 1000:
            raise DeclarationError(f"the name of a module is a str of at most 1000 printable characters (got {said(name)})")
        self._name = name
        self._structs = struct_layouts(structs, name)
        self._signatures: dict[str, tuple[str, ...]] = {}
        self._made: dict[str, Kernel] = {}
        self._symbols: dict[str, Symbol] = {}
        self._known: dict[tuple[Callable[[Kernel], Any], str], Any] = {}
        """Results of the rules that `asked_once` caches, by rule and kernel name."""

    def _read(
        self,
        source: str,
        name: str | None,
        options: Sequence[str],
        structs: Mapping[str, Any] | None,
        headers: Headers,
        budget: Budget | None,
    ) -> None:
        self._begin(name or "kernels", structs)
        self._source = source
        self._options = tuple(options)
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
        _known[_key(source, self._name, self._options, self._structs, headers.texts)] = self

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
        """Load a module from a file: HIP C++ source or a code object, depending on the file extension.

        Parameters
        ----------
        path : path
            ``.hip``, ``.cpp``, ``.cc``, ``.cxx``, ``.cu``, ``.cuh``, ``.h``, ``.hpp`` are source; ``.hsaco``, ``.co``,
            ``.ptx``, ``.cubin``, ``.fatbin``, ``.so`` are code objects.
        signatures : mapping, for code objects
            Parameters of each kernel, ``{"scale": "float*, float, size_t"}`` or lists of types. A kernel without an entry can be
            used too: its arguments are passed as given, and memory behind its pointers counts as updated.
        structs : mapping of str to numpy.dtype
            As for `Module`.

        Raises
        ------
        DeclarationError
            If the file cannot be read, its extension is unknown, or a signature cannot be parsed.
        """
        path = Path(path)
        data = _content(path)
        if path.suffix in (".hip", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".cc", ".cxx"):
            if signatures:
                raise DeclarationError(f"module file {str(path)!r} is source: its signatures are read from it, give none")
            module = cls(data.decode("utf-8-sig", errors="replace"), name=name or path.name, options=options, structs=structs)
            module._origin = Origin(str(path))
            return module
        if path.suffix not in (".hsaco", ".co", ".ptx", ".cubin", ".fatbin", ".so"):
            raise DeclarationError(
                f"module file {str(path)!r} has an ending that is not known; source ends in .hip, .cpp or .cu, code "
                "objects in .hsaco, .co, .ptx, .cubin, .fatbin or .so"
            )
        if not data:
            raise DeclarationError(f"module file {str(path)!r} has 0 bytes where a code object is expected; compile it again")
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
        module._begin(name, structs)
        module._path = path
        module._image = image
        module._digest = digest
        module._declared = Declarations("", f"module {name!r}", (), module._structs)
        for kernel, parameters in signatures.items():
            parts = (parameters,) if isinstance(parameters, str) else tuple(parameters)
            pieces = [p for part in parts for p in split_commas(tokenize(part, f"signature of kernel {kernel!r}"))]
            if [spell(piece) for piece in pieces] == ["void"]:
                pieces = []
            module._signatures[kernel] = tuple(spell(piece) for piece in pieces)
            read = read_parameters(module._declared.scope, pieces, kernel, module._declared.where)
            module._made[kernel] = Kernel(module, kernel, Signature(kernel, read))
        return module

    # -- properties ------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Its name in messages."""
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
    def origin(self) -> Origin | None:
        """Where its source was written; None for one that a workflow file stores, and for a code object."""
        return self._origin

    @property
    def headers(self) -> Mapping[str, str]:
        """Texts of its own headers, by path; empty for a code object."""
        return dict(self._headers)

    @property
    def digest(self) -> str:
        """SHA-256, in hexadecimal, of everything that affects compilation; for a code object, of its bytes."""
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
    def blocks(self) -> Mapping[str, Blocks]:
        """For each kernel of an AMD GPU code object whose file has been read, the blocks that it is built for."""
        if self._blocks is None and self._image is not None:
            from ..runtimes.code_object import read_blocks  # source does not need it

            self._blocks = read_blocks(self._image)
        return self._blocks or {}

    @property
    def kernels(self) -> tuple[str, ...]:
        """Names of the kernels in source order; templates without arguments, overloads once."""
        return tuple(self._signatures) if self._path is not None else tuple(self._declared.kernels)

    @property
    def symbols(self) -> tuple[str, ...]:
        """Names of the ``__constant__``, ``__device__`` and ``__managed__`` variables in source order."""
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

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what it was made from: what has been read and cached since is read again."""
        if self._path is not None:
            return self._of_code, (self._path, self._digest, self._image, self._signatures, self._name, self._structs)
        return self.stored, (self._source, self._name, self._options, self._structs, self._headers)

    def __deepcopy__(self, memo: Any = None) -> Module:
        return self  # it never changes, and its kernels and variables refer to it

    __copy__ = __deepcopy__

    def __repr__(self) -> str:
        return f"<Module {self._name!r}: {', '.join(self.kernels) or 'no kernels'}>"

    # -- kernels and variables -------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> Kernel:
        """Return the kernel ``"scale"``, or the template instantiation ``"scale<float, 4>"``.

        Names are qualified as in C++: ``"space::scale"``, and ``"Tiles<float>::scale"`` for a static member. An overload is named
        with the types of its parameters, ``"scale(float*, int)"``.

        Raises
        ------
        DeclarationError
            If there is no such kernel or several (the message lists all), if template arguments are missing or too many, or if a
            parameter's type is not understood (the message names kernel, parameter, type and remedy).
        """
        if not isinstance(name, str):
            raise DeclarationError(f"module {self._name!r}: a kernel's name is a str (got {said(name)})")
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
        declared, scope, full = find_kernel(self._declared, name)
        parameters = read_parameters(scope, split_commas(declared.parameters), full, self._declared.where)
        bounds: int | None = None
        if declared.bounds:
            try:
                bounds = scope.evaluate(declared.bounds)
            except ValueError:
                bounds = None
        reached, pasted = self._declared.kernel_reaches(declared, full)
        shared = self._declared.dynamic | {"__shared__", "HIP_DYNAMIC_SHARED"}
        body: list[Token] | None = []
        if reached & shared:
            short = sum(len(token.text) for token in declared.body) <= LONGEST_BODY
            body = self._declared.unit.tokens_of(declared.body) if short else None
        symbols, unread = self._touched(declared, reached, pasted)
        return Kernel(
            self,
            full,
            Signature(full, parameters),
            launch_bounds=bounds,
            static_shared_bytes=static_shared_bytes(body, scope) if body is not None else None,
            symbols=symbols,
            dynamic_shared=body is not None and uses_dynamic_shared(body, self._declared.dynamic),
            unread=unread,
        )

    def mentions(self, words: frozenset[str]) -> bool:
        """Return whether the source or its headers contain one of some words."""
        return not words.isdisjoint(self._words)

    @cached_property
    def _words(self) -> frozenset[str]:
        return frozenset(word for text in (self._source, *self._headers.values()) for word in re.findall(r"\w+", text))

    @property
    def declared(self) -> Declarations:
        """The declarations of its source."""
        return self._declared

    def declares(self, name: str) -> bool:
        """Return whether the source or its own headers declare a function or a variable of this name."""
        return self._declared.declares(name)

    def takes_values(self, function: str) -> bool:
        """Return whether all functions of this name in the source take only values and pointers, no references."""
        found = self._declared.functions.get(function, [])
        return bool(found) and all(token.text not in ("&", "&&", "...") for tokens in found for token in tokens)

    def _touched(self, kernel: KernelDeclaration, names: set[str], pasted: bool) -> tuple[tuple[tuple[Symbol, bool], ...], str]:
        """Return the variables that a kernel may access: those that it names, and those named by functions, which it may call.

        If that is undecidable, return all variables, and the reason.
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
                found.append((self.variable(name), symbol.space == "__constant__"))
        hidden = [name for name, word in declared.hidden.items() if unread or word in names or word in outside]
        hidden += self._static_locals
        hidden += [f"static {name} of {kernel.name}" for name in declared.static_locals(kernel.body)]
        if declared.unread:
            hidden.append(f"variables of {declared.unread[0]}")
        found += [(self.variable(name, hidden=True), False) for name in hidden]
        return tuple(found), unread

    @cached_property
    def _outside(self) -> tuple[set[str], bool]:
        """Names outside kernels, and whether macros there paste names (##)."""
        return self._declared.functions_reach() if self._declared.symbols or self._declared.hidden else (set(), False)

    @cached_property
    def _static_locals(self) -> list[str]:
        return [f"static {name}" for name in dict.fromkeys(self._declared.static_locals())]

    def variable(self, name: str, hidden: bool = False) -> Symbol:
        """Return a variable that kernels may access, also one without a known layout, or a hidden one."""
        if hidden:
            return self._symbols.setdefault(f" {name}", Symbol(name, (), np.dtype("u1"), module=self, hidden=True))
        try:
            return self.symbol(name)
        except DeclarationError:  # its layout is unknown, but it still orders kernels
            space = self._declared.symbols[name].space
            return self._symbols.setdefault(name, Symbol(name, (), np.dtype("u1"), module=self, constant=space == "__constant__"))

    def symbol(self, name: str) -> Symbol:
        """Return a ``__constant__``, ``__device__`` or ``__managed__`` variable.

        Raises
        ------
        DeclarationError
            If there is no such variable (the message lists all), or its type or shape cannot be determined.
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
        shape, dtype, lanes = variable_layout(self._declared, declared)
        symbol = Symbol(name, shape, dtype, module=self, constant=declared.space == "__constant__", lanes=lanes)
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
        """Return the module of stored source, with the texts of its headers by path; no other header is searched.

        Source that the process has already read is not read again: the module is then that one. `budget` limits the total macro
        expansion of several modules.
        """
        module = _known.get(_key(source, name, options, structs, headers))
        if module is None:
            module = cls.__new__(cls)
            module._read(source, name, options, structs, Headers(options, headers), budget)
        return module

    # -- JSON ------------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return the module as JSON data: the full source, or for a code object its path and SHA-256."""
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
            out["structs"] = {key: dtype_data(dtype) for key, dtype in self._structs.items()}
        return out

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Module:
        """Return the module that `to_dict` wrote; a code object's file is read when its image is first used.

        Raises
        ------
        DeclarationError
            If a field is missing or of the wrong kind.
        """
        try:
            structs = {str(key): dtype_from_json(value) for key, value in data.get("structs", {}).items()}
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
