"""Modules, and the kernels and variables that they declare."""

from __future__ import annotations

import hashlib
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, Final

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
from .packing import said
from .shared_memory import static_shared_bytes, uses_dynamic_shared
from .signature import Signature, read_parameters


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
                f"kernel {self.name!r}: a reference is a function of the kernel's arguments (got {said(fn)})",
                array=self.name,
            )
        return replace(self, reference=fn)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Kernel):
            return NotImplemented
        return self.name == other.name and self.module == other.module

    def __hash__(self) -> int:
        return hash(self.name)  # kernels of one name in several modules are rare

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
    lanes : int
        Elements of a vector type (4 for ``float4``), which the last axis counts; else 1.
    """

    module: Module = field(kw_only=True)
    constant: bool = field(default=False, kw_only=True)
    hidden: bool = field(default=False, kw_only=True)
    lanes: int = field(default=1, kw_only=True)

    kind = "symbol"

    @property
    def hazard_key(self) -> Any:
        """The variable of this module, whichever graph uses it."""
        return (self.module, self.name)

    def __repr__(self) -> str:
        dtype = self.dtype.name if self.dtype.names is None else f"struct({', '.join(self.dtype.names)})"
        return f"<Symbol {dtype} {self.name}{list(self.shape)} of {self.module.name!r}>"


#: Bodies beyond this many characters are not searched for shared memory, nor read as statements.
LONGEST_BODY: Final = 200_000

_MAX_FILE: Final = 2**30  # bytes of a module; libraries with code for many architectures have some hundred MB


def _content(path: Path) -> bytes:
    """Return the bytes of a module's file; only regular files are opened, because a pipe may never end."""
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
            raise DeclarationError(f"a module's source is a str of HIP C++ (got {said(source)}); for files use Module.from_file")
        if isinstance(options, str):
            raise DeclarationError(f"a module's options are a list of strings: options=[{options!r}] (got one string)")
        self._read(source, name, options, structs, Headers(options), None)

    # Of a code object, and of a kernel that was read back, there is no source.
    _source = ""
    _options: tuple[str, ...] = ()
    _path: Path | None = None
    _image: bytes | None = None

    def _begin(self, name: str, structs: Mapping[str, Any] | None) -> None:
        if not isinstance(name, str) or not name.isprintable() or len(name) > 1000:
            raise DeclarationError(f"the name of a module is a str of at most 1000 printable characters (got {said(name)})")
        self._name = name
        self._structs = struct_layouts(structs, name)
        self._signatures: dict[str, tuple[str, ...]] = {}
        self._made: dict[str, Kernel] = {}
        self._symbols: dict[str, Symbol] = {}
        self._known: dict[tuple[Callable[[Kernel], Any], str], Any] = {}
        """What rules of `asked_once` say of its kernels."""

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

    # -- what it is ------------------------------------------------------------------------------------------------

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
        """Names of the kernels in order of the source; templates without arguments."""
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
        """What its source declares."""
        return self._declared

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
        """Names outside of kernels, and whether macros there paste names (##)."""
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
            out["structs"] = {key: dtype_data(dtype) for key, dtype in self._structs.items()}
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


class ForeignModule(Module):
    """A kernel of a graph that was read back: only its handle is known, neither source nor image.

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
        self._begin(name, None)
        self._digest = hashlib.sha256(f"{owner.name}:{function}:{name}".encode()).hexdigest()
        self._declared = Declarations("", f"kernel {name!r}", (), {})
        self._made[name] = Kernel(self, name, signature)

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
