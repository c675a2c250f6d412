"""Node: the base class of all nodes of a workflow."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    GetCoreSchemaHandler,
    SerializationInfo,
    ValidationError,
    model_serializer,
)
from pydantic.fields import FieldInfo
from pydantic_core import core_schema

from ..arrays import (
    WRITE,
    Access,
    AllocArray,
    ArrayView,
    MovingView,
    Need,
    Parameter,
    Root,
    as_view,
    lacking,
    terms_of,
)
from ..errors import DeclarationError, node_error, shown, suggested
from ..kernels import Kernel, Module, Symbol
from ..lazy import lazy
from .comparing import same, translated
from .fields import NodeNames, Reasons, Rule, Stored
from .values import MAX_NAME, Data, Names

if TYPE_CHECKING:
    from typing_extensions import Self

    from .facets import Branch, Collective, KernelLaunch, Moment, UserCall

_building = threading.Lock()


_WORDS = {"bool_type": "true or false", "dict_type": "an object", "string_type": "text"}
"""What Pydantic expects, by the type of its error."""


def check_name(name: Any, what: str) -> str:
    """Return `name` if it is a valid name, which files and drawings can show; raise DeclarationError otherwise."""
    if type(name) is str and name.isidentifier() and len(name) <= MAX_NAME:
        return name
    if not isinstance(name, str):
        raise DeclarationError(f"the name of {a_or_an(what)} is a string (got {name!r})")
    if not name or len(name) > MAX_NAME or not name.isprintable() or name != name.strip() or "[" in name or "/" in name:
        raise DeclarationError(
            f"{name[:60]!r} cannot name {a_or_an(what)}: a name has 1 to {MAX_NAME} printable characters, no '[', no '/' (which"
            " stands between a child and its nodes), no space around it"
        )
    return name


def a_or_an(what: str) -> str:
    """Return a noun with its article."""
    return f"an {what}" if what[0] in "aeiou" else f"a {what}"


class Field(NamedTuple):
    """A field of a model as files store it.

    Attributes
    ----------
    name : str
    default : object
        Its default; `...` if it is required.
    always : bool
        Whether a file stores it even if it has its default.
    write : callable or None
        Makes JSON data of a value, if that is none already.
    spelled : callable
        Returns a value as a user would write it.
    rule : Rule
    """

    name: str
    default: Any
    always: bool
    write: Callable[[Any, Names, Any], Data] | None
    spelled: Callable[[Any, Any], Any]
    rule: Rule

    @classmethod
    def of(cls, name: str, info: FieldInfo) -> Self:
        """Return a field of a model."""
        stored = next((item for item in info.metadata if isinstance(item, Stored)), None)
        rule = next((item for item in info.metadata if isinstance(item, Rule)), Rule())
        required = info.is_required()
        write, spelled = (None, lambda value, _: value) if stored is None else (stored.write, stored.spelled)
        return cls(name, ... if required else info.default, required or rule.always, write, spelled, rule)


class Node(BaseModel):
    """One node: a frozen model that holds Python objects and refers to them by name in JSON.

    Attributes
    ----------
    name : str
        Unique in its graph.
    after : tuple of str
        Names of nodes that must finish before this one starts, in addition to those that its accesses imply.
    ignore : dict of str to str
        Diagnostic codes that `check` suppresses for this node, each with the reason.
    source : tuple of (str, int) or None
        File and line that declared it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True, ignored_types=(lazy,), defer_build=True)

    kind: ClassVar[str]
    """The node's kind, as in files: ``"kernel"``, ``"memcpy"``, ..."""
    work: ClassVar[str]
    """The category of its run time: ``"kernel"``, ``"copy"``, ``"memset"`` or ``"host"``; empty if it takes no time."""
    reach: ClassVar[Literal["device", "copy", "host", ""]]
    """What touches the memory of `accesses`: code on the node's device, a copy, code on the host; empty if none of these."""
    placed: ClassVar[Literal["memory", "compiled", ""]]
    """Its device without `device`: the one that owns its memory, or the one that the graph is compiled for; empty if none."""
    in_body: ClassVar[bool]
    """Whether the body of a conditional node may contain it (CUDA's reference for cudaConditionalNodeParams)."""
    in_child: ClassVar[bool] = True
    """Whether a child graph node may contain it; if not, the child's nodes are inlined into the parent (CUDA's rule)."""
    takes_moving: ClassVar[bool] = False
    """Whether a launch may decide where its views lie (`MovingView`); what lowers it takes them as they are then."""
    copies: ClassVar[bool] = False
    """Whether it may issue copies, which read pageable host memory at the time of the call."""
    untried: ClassVar[str] = ""
    """Why a graph with it cannot be launched for measurement (``lanes="measure"``); empty if it can."""
    calls: ClassVar[Moment] = ""
    """When the user's code that `called` has is called."""
    idle: ClassVar[bool] = False
    """Whether it does nothing but order others."""
    is_child: ClassVar[bool] = False
    """Whether it holds one workflow, whose nodes run once in its place, and which is called a child graph."""
    apart: ClassVar[bool] = False
    """Whether it may have effects beyond its accesses: run the user's code, or signal."""
    derives: ClassVar[bool] = False
    """Whether the workflows that it holds follow from its other fields, so that files need not store them."""
    fixed: ClassVar[str] = ""
    """Why an Executable cannot update any of its fields in place; empty if it can."""
    offered: ClassVar[tuple[str, ...]] = ("accesses", "changed", "describe", "kind", "parameters", "reads", "writes")
    """Its members for users, besides the fields: what `dir` lists, and so what editors and notebooks complete to."""
    fields: ClassVar[tuple[Field, ...]] = ()
    """The fields that files store, in file order."""

    name: Annotated[str, BeforeValidator(partial(check_name, what="node"))]
    after: NodeNames = ()
    ignore: Reasons = None
    source: tuple[str, int] | None = None

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        for fact in ("work", "reach", "placed", "in_body") if "kind" in vars(cls) else ():
            if not hasattr(cls, fact):
                raise TypeError(f"class {cls.__name__} of nodes does not say what its {fact!r} is")
        found = [Field.of(name, info) for name, info in cls.model_fields.items() if name not in ("name", "source")]
        cls.fields = tuple(sorted(found, key=lambda field: field.name in Node.model_fields))  # its own fields come first

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        """Validate JSON in file format, with `Names` as context, and Python objects unchanged."""
        python = handler(source)
        read = core_schema.with_info_plain_validator_function(cls._from_json)
        return core_schema.json_or_python_schema(read, python, serialization=python.get("serialization"))

    def __init__(self, /, **data: Any) -> None:
        self.take(data)

    def take(self, data: dict[str, Any], launches: Any = None) -> None:
        """Validate a new node's fields and set them; `launches` has those of the draft that declares it (`nodes.kernel`)."""
        try:
            self._fill(data)
        except ValidationError as error:
            raise self._declaration_error(error, f"node {data.get('name')!r}: ") from None

    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]  # Pydantic then validates without calling it

    def _fill(self, data: dict[str, Any], names: Names | None = None) -> None:
        """Validate fields and set them; `names` resolves what the fields of a file refer to."""
        if not self.__pydantic_complete__:
            self._build()
        strict = True if names is not None else None
        self.__pydantic_validator__.validate_python(data, strict=strict, context=names, self_instance=self)

    @classmethod
    def _build(cls) -> None:
        """Build the validator at first use: building it for all kinds takes as long as the rest of the package's import.

        Pydantic before 2.14 lets two threads build the same model at once, and each discards the other's validator.
        """
        with _building:
            if not cls.__pydantic_complete__:
                cls.model_rebuild()

    @property
    def engine(self) -> str:
        """The engine that it needs: `work`, or for a copy its direction."""
        return self.work

    @property
    def method(self) -> str:
        """The `Graph` method that adds such a node; empty if no method accepts all of its fields."""
        return "" if "." in self.kind else self.kind  # a kind of a part of another package is "part.kind"

    # -- files

    def stored(self) -> list[Field]:
        """Return the fields that files and Python text hold: those without their defaults, and those that always stand."""
        mine = self.__dict__
        return [
            field
            for field in self.fields
            if field.always or not ((value := mine[field.name]) is field.default or value == field.default)
        ]

    def to_data(self, names: Names) -> dict[str, Data]:
        """Return the node in file format; fields that have their defaults are omitted.

        Raises
        ------
        DeclarationError
            If a value cannot be stored in a file.
        """
        out: dict[str, Data] = {"name": self.name, "kind": self.kind}
        mine = self.__dict__
        try:
            for name, _, _, write, _, _ in self.stored():
                value = mine[name]
                out[name] = value if write is None else write(value, names, self)
        except DeclarationError as fault:
            raise DeclarationError(f"node {self.name!r} cannot be stored in a file: {fault}", node=self.name) from None
        return out

    @classmethod
    def from_data(cls, data: dict[str, Data], names: Names, source: tuple[str, int] | None = None) -> Self:
        """Return the node stored in a file; `data` is without its kind.

        Raises
        ------
        DeclarationError
            If a field is missing, unknown or wrong; its `field` names it.
        """
        found = cls.__new__(cls)
        try:
            found._fill(data, names)
        except ValidationError as error:
            raise cls._declaration_error(error) from None
        found.__dict__["source"] = source
        return found

    @classmethod
    def _from_json(cls, data: Data, info: core_schema.ValidationInfo) -> Self:
        if not isinstance(data, dict):
            raise DeclarationError(f"a node is an object {{...}} (got {shown(data)})")
        if data.pop("kind", cls.kind) != cls.kind:
            raise DeclarationError(f"the kind of a {cls.__name__} is {cls.kind!r}")
        return cls.from_data(data, _names_of(info.context))

    @model_serializer(mode="plain", when_used="json")
    def _to_json(self, info: SerializationInfo) -> dict[str, Any]:
        return self.to_data(_names_of(info.context))

    @classmethod
    def model_json_schema(cls, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return the complete JSON Schema (2020-12) of the node in a file, with all definitions that it uses."""
        from .schema import schema_of, used_by

        schema = schema_of(cls)
        return {"title": cls.__name__, **schema, "$defs": used_by(schema)}

    @classmethod
    def _declaration_error(cls, error: ValidationError, who: str = "") -> DeclarationError:
        """Return the first of Pydantic's errors as a DeclarationError with its field; `who` is empty for a file."""
        first = error.errors(include_url=False)[0]
        cause = first.get("ctx", {}).get("error")
        where = ".".join(map(str, first["loc"]))
        field = str(first["loc"][0]) if first["loc"] else None
        if isinstance(cause, DeclarationError):
            refused = copy(cause)  # the cause refers, by its context, to `error`, which refers to it
            refused.field = field
            return refused
        if first["type"] == "extra_forbidden":
            fields = cls.model_fields
            why = f"there is no field {where!r}{suggested(where, fields)}; its fields are {', '.join(fields)}"
            if not who:
                why, field = f"{a_or_an(cls.kind)} node has no field {where[:60]!r}", None
        elif first["type"] == "missing":
            why = f"field {where!r} is missing"
        elif first["type"] == "literal_error":
            why = f"{where} is {first['ctx']['expected']} (got {shown(first['input'])})"
        elif first["type"] in _WORDS:
            why = f"{where!r} is {_WORDS[first['type']]} (got {shown(first['input'])})"
        else:
            text = "..." if isinstance(first["input"], Mapping) else shown(first["input"])
            why = f"{where}: {first['msg'].lower()} (got {text})"
        return DeclarationError(who + why, field=field)

    # -- behaviour

    @lazy
    def accesses(self) -> tuple[Access, ...]:
        """The memory that the node accesses, in the order of its arguments."""
        return ()

    @property
    def own_accesses(self) -> tuple[Access, ...]:
        """`accesses` without those of the nodes inside it."""
        return self.accesses

    @property
    def reads(self) -> tuple[ArrayView, ...]:
        """Views whose values the node uses."""
        return tuple(a.view for a in self.accesses if a.mode != "write")

    @property
    def writes(self) -> tuple[ArrayView, ...]:
        """Views whose values the node changes."""
        return tuple(a.view for a in self.accesses if a.mode != "read")

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters that the node's fields mention, without repeats."""
        return ()

    @property
    def addresses(self) -> tuple[ArrayView, ...]:
        """Views whose addresses it receives, whether or not `accesses` lists them."""
        return ()

    @lazy
    def needs(self) -> tuple[tuple[ArrayView, Need, str], ...]:
        """What it needs of the memory that it is given: views, each with a need and the name of the node that has it.

        The node is itself, or one inside it. A node whose arrays do not meet them cannot be made; parameters are judged by what
        stands for them.
        """
        name = self.name
        written = [(access.view, WRITE, name) for access in self.own_accesses if access.mode != "read"]
        return (*written, *[(view, need, name) for view, need in self._reached()])

    def _reached(self) -> Iterable[tuple[ArrayView, Need]]:
        """Return the views that its code must be able to reach, each with that need."""
        return ()

    @property
    def launched(self) -> KernelLaunch | None:
        """The kernel launch that it is, or None."""
        return None

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The kernels that it launches itself, without those of held workflows."""
        return ()

    @property
    def copied(self) -> tuple[tuple[ArrayView, ArrayView], ...]:
        """The copies that it makes, each as destination and source; with `reach` ``"copy"`` they are all that it does."""
        return ()

    @property
    def roots(self) -> tuple[Root, ...]:
        """The arrays, symbols and parameters that it uses itself or gives to held workflows, without repeats."""
        views = (*[access.view for access in self.own_accesses], *self.addresses)
        return tuple(dict.fromkeys((*self.parameters, *[view.root for view in views])))

    @property
    def moving(self) -> MovingView | None:
        """A view of it of which a launch decides where it lies; None if all are fixed."""
        views = (*[access.view for access in self.accesses], *self.addresses)
        return next((view for view in views if isinstance(view, MovingView)), None)

    @property
    def modules(self) -> tuple[Module, ...]:
        """The modules of its own kernels, and of the symbols that it accesses or gives to held workflows."""
        symbols = [root.module for root in self.roots if isinstance(root, Symbol)]
        return (*[kernel.module for kernel in self.kernels], *symbols)

    @property
    def made(self) -> AllocArray | None:
        """The array that it allocates."""
        return None

    @property
    def freed(self) -> AllocArray | None:
        """The array that it frees."""
        return None

    @property
    def waits(self) -> bool:
        """Whether it may wait for something other than its edges, such as a value in memory or a semaphore."""
        return False

    @property
    def copied_bytes(self) -> int:
        """Bytes that it copies."""
        return sum(dst.nbytes for dst, _ in self.copied)

    @property
    def duration_keys(self) -> tuple[str, ...]:
        """The keys, other than its name, under which its duration may be given; the most specific first."""
        return (self.kind,)

    @property
    def called(self) -> UserCall | None:
        """The call of the user's code that it makes, or None."""
        return None

    @property
    def callback(self) -> Any:
        """The Python function that it calls, or None."""
        return None if self.called is None else self.called.fn

    @property
    def held(self) -> tuple[tuple[str, Any, Mapping[str, Any]], ...]:
        """The workflows that it holds, each as (prefix of the names inside, `Workflow`, bindings)."""
        return ()

    def holding(self, workflows: Sequence[Any]) -> dict[str, Any]:
        """Return the fields by which it holds these workflows in place of those of `held`; empty if it has no such fields."""
        return {}

    @property
    def branch(self) -> Branch | None:
        """The choice among its held workflows that it makes, or None."""
        return None

    @property
    def collective(self) -> Collective | None:
        """The collective operation that it is, or None."""
        return None

    @property
    def recorded(self) -> Any:
        """The event that it records."""
        return None

    @property
    def awaited(self) -> Any:
        """The event that it waits for."""
        return None

    def operation(self, scope: Any, device: int) -> Any:
        """Return what backends do for it (`backends.operations`), with names resolved by an `Environment`, on a device.

        Only for kinds that `backends.resolve` does not know, those of other packages.
        """
        raise node_error(self.name, f"no backend knows nodes of kind {self.kind!r}; {type(self).__name__} lacks operation()")

    @property
    def semaphore_used(self) -> Any:
        """The external semaphore that it signals or waits for."""
        return None

    @property
    def memory_operations(self) -> tuple[Any, ...]:
        """The operations of `hg.write_value` and `hg.wait_value` that it does."""
        return ()

    @property
    def threads(self) -> int | None:
        """Threads of the whole launch; None if it launches none or if a parameter sets an extent."""
        return None

    def __setattr__(self, name: str, value: Any) -> None:
        raise DeclarationError(
            f"node {self.name!r} stays as it was declared, and {name}= cannot be set; an Executable takes changes:"
            f" exe.set({self.name!r}, {name}=...)",
            node=self.name,
        )

    def changed(self, **fields: Any) -> Self:
        """Return a copy with these fields replaced, checked like a new node."""
        return type(self)(**self._given() | fields)

    def _given(self) -> dict[str, Any]:
        """Return the fields without those that have their defaults."""
        mine = self.__dict__
        given = {field.name: mine[field.name] for field in self.fields if mine[field.name] is not field.default}
        return {"name": self.name, "source": self.source, **given}

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy with these fields replaced, like `changed`; cached values derived from fields are not copied."""
        return self.changed(**(update or {}))

    def translated(self, arrays: Mapping[str, Any], parameters: Mapping[str, Any]) -> Self:
        """Return a copy that uses the arrays and parameters of the same names in another graph."""
        return type(self)(**{name: translated(value, arrays, parameters, self.name) for name, value in self._given().items()})

    def moved(self, arrays: Mapping[str, Any], parameters: Mapping[str, Any], **fields: Any) -> Self:
        """Return `translated` with normalized `fields` replaced, unchecked: arrays differ only in their devices."""
        found, mine = type(self).__new__(type(self)), self.__dict__
        values = {name: translated(mine[name], arrays, parameters, self.name) for name in type(self).model_fields}
        set_state(found, values | fields, {*self._given(), *fields})
        return found

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return self is other or all(same(getattr(self, name), getattr(other, name)) for name in type(self).model_fields)

    def __hash__(self) -> int:
        return hash((self.kind, self.name))

    def describe(self) -> str:
        """Return what the node does in a few words, without its name."""
        return self.kind

    def in_full(self) -> str:
        """Return what the node does in one line, without its name."""
        return self.describe()

    @property
    def details(self) -> tuple[str, ...]:
        """The lines below its name in a drawing: the operation, its operands and its size."""
        said = self.describe()
        return () if said == self.kind else (said,)

    @property
    def frame_label(self) -> str:
        """The text next to its name when a drawing shows the workflows inside it."""
        return self.describe()

    @property
    def body_titles(self) -> tuple[str, ...]:
        """Titles of its held workflows in drawings; an empty string for one that needs no frame of its own."""
        return ("",) * len(self.held)

    @property
    def argument_names(self) -> tuple[str, ...]:
        """The names of the entries of its field `args`; empty if they are unnamed."""
        return ()

    @property
    def likeness(self) -> tuple[Hashable, ...]:
        """What the node does as a hashable key, without its and its arrays' names; equal for nodes that repeat each other."""
        touched = ((access.mode, access.view.shape, access.view.dtype.str) for access in self.own_accesses)
        return (self.kind, self.engine, *touched, *(inner for _, inner, _ in self.held))

    def __repr__(self) -> str:
        said = self.in_full()
        return f"{type(self).__name__}({self.name!r}{'' if said == self.kind else ': ' + said})"

    __str__ = __repr__

    def __dir__(self) -> list[str]:
        """Return the names to complete to: the fields, and `offered`; the others are for passes, backends and drawings."""
        return [*type(self).model_fields, *self.offered, *(name for name in super().__dir__() if name.startswith("_"))]


def set_state(node: Node, fields: dict[str, Any], given: set[str]) -> None:
    """Make a node that is being created one with these fields, which are valid, as Pydantic's validation does."""
    _set_fields(node, fields)
    _set_given(node, given)
    _set_extra(node, None)
    _set_private(node, None)


_set_fields, _set_given, _set_extra, _set_private = (
    vars(BaseModel)[slot].__set__  # in half the time of object.__setattr__
    for slot in ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
)


def _names_of(context: Any) -> Names:
    return context if isinstance(context, Names) else Names()


def as_accesses(reads: Any, writes: Any, args: tuple[Any, ...], node: str) -> tuple[Access, ...]:
    """Return the accesses of a node that runs the user's own code.

    Without `reads` and `writes`, it updates every array in `args`; a view in both lists is updated.
    """
    if reads is None and writes is None:
        touched = (arg for arg in args if isinstance(arg, (Access, ArrayView)))
        return tuple(arg if isinstance(arg, Access) else Access(arg, "update") for arg in touched)
    read = [as_view(v, f"node {node!r}: an array in reads=") for v in _listed(reads, "reads", node)]
    written = [as_view(v, f"node {node!r}: an array in writes=") for v in _listed(writes, "writes", node)]
    only_written = (Access(v, "write") for v in written if v not in read)
    return (*(Access(v, "update" if v in written else "read") for v in read), *only_written)


def _listed(value: Any, field: str, node: str) -> tuple[Any, ...]:
    if value is None:
        return ()
    if isinstance(value, (list, tuple)):
        return tuple(value)
    raise node_error(node, f"{field} is a list of arrays (got {value!r}); write {field}=[...]")


def parameters_of(values: Iterable[Any]) -> tuple[Parameter, ...]:
    """Return the parameters among values, and those that views and accesses among them refer to, without repeats."""
    found: dict[Parameter, None] = {}
    for value in values:
        kind = type(value)
        if kind is int or kind is float:
            continue
        view = value.view if kind is Access else value
        root = view.root if isinstance(view, ArrayView) else view
        if isinstance(root, Parameter):
            found.update(dict.fromkeys(terms_of(root)))
        if isinstance(view, MovingView):
            found.update(dict.fromkeys(view.terms))
    return tuple(found)


def views_of(values: Iterable[Any]) -> tuple[ArrayView, ...]:
    """Return the views among values, and those of accesses among them."""
    kinds = (ArrayView, Access, MovingView)
    return tuple([value.view if type(value) is Access else value for value in values if type(value) in kinds])


def require_met(node: str, view: ArrayView, need: Need, hint: str = "") -> None:
    """Raise DeclarationError if a view's memory does not meet a need of a node."""
    if fault := lacking(view, need):
        raise node_error(node, fault + hint, array=view.root.name)


def argument_text(arg: Any) -> str:
    """Return a short text for an argument: a name or a value."""
    if isinstance(arg, (ArrayView, Parameter)):
        return arg.name
    if isinstance(arg, Access):
        return arg.view.name
    return shown(arg, 20)
