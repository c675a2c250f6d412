"""Workflow: the frozen document made by a Graph, stored in a file and turned into a Plan."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import chain
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from pydantic import GetJsonSchemaHandler
from pydantic_core import core_schema

from ..arrays import (
    Access,
    Array,
    ArrayView,
    ExternalArray,
    Need,
    Parameter,
    Region,
    UnboundValues,
    array_by_default,
)
from ..document.writer import data_of, written
from ..draft import Draft
from ..hazards import Reason
from ..kernels import Kernel, Module, Symbol
from ..lazy import Entries
from ..order import successors, topological_order
from . import Node, UnboundCallback, all_kinds
from .bindings import Binding, bound
from .fields import UNCHANGED
from .values import Data

if TYPE_CHECKING:
    import networkx as nx
    from typing_extensions import Self

    from .facets import Asked

MAX_DEPTH: Final = 64
"""How deep child graphs and bodies may be nested: passes that follow them recursively stay far from Python's limit."""

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
_USED: Final = (attrgetter("kernels"), attrgetter("addresses"), attrgetter("accesses"))
_ROOT, _VIEW_ROOT = attrgetter("root"), attrgetter("view.root")


@dataclass(frozen=True, eq=False)
class Workflow:
    """A frozen workflow.

    Nodes are in order of declaration and are referred to by index.

    Attributes
    ----------
    name : str
    arrays : mapping of str to Array
        By name, including arrays of alloc nodes.
    parameters : mapping of str to Parameter
    nodes : tuple of Node
    predecessors : tuple of tuple of int
        For each node, the indices of the nodes that must finish before it starts.
    reasons : tuple of tuple of Reason
        The reason of each of those edges.
    infer : bool
        Whether edges were inferred from accesses.
    ordered : tuple of (str, str)
        Plain edges that `order` added, by name.
    """

    name: str
    arrays: Mapping[str, Array]
    parameters: Mapping[str, Parameter]
    nodes: tuple[Node, ...]
    predecessors: tuple[tuple[int, ...], ...]
    reasons: tuple[tuple[Reason, ...], ...]
    infer: bool = True
    ordered: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, draft: Draft) -> Workflow:
        """Return the current state of a draft as a workflow; cached until the draft changes."""
        draft.follow_dag()
        if draft.snapshot is None:
            draft.snapshot = cls(
                draft.name,
                dict(draft.arrays),
                dict(draft.parameters),
                tuple(draft.nodes),
                tuple(draft.predecessors),
                tuple(draft.reasons),
                draft.infers_all,
                tuple(draft.ordered),
            )
        return draft.snapshot  # type: ignore[no-any-return]  # the draft's module does not know this class

    def __repr__(self) -> str:
        return f"Workflow({self.name!r}, {len(self.nodes)} nodes, {sum(map(len, self.predecessors))} edges)"

    @cached_property
    def index(self) -> dict[str, int]:
        """Node indices by name."""
        return {node.name: i for i, node in enumerate(self.nodes)}

    @cached_property
    def successors(self) -> tuple[tuple[int, ...], ...]:
        """For each node, the indices of the nodes that wait for it."""
        return tuple(map(tuple, successors(self.predecessors)))

    @cached_property
    def modules(self) -> tuple[Module, ...]:
        """Modules of all kernels and symbols, including those of children, in order of first use."""
        if not self.holding:
            return tuple(dict.fromkeys([use.module for use in self.used]))
        found: dict[Module, None] = {}
        for node in self.nodes:
            inside = [module for _, document, _ in node.held for module in document.modules]
            found.update(dict.fromkeys((*node.modules, *inside)))
        return tuple(found)

    @cached_property
    def used(self) -> tuple[Kernel | Symbol, ...]:
        """The kernels of its own nodes, then the symbols that they name, in order of first use."""
        # By identity: the hash of a kernel costs more than the rest, and repeated launches have all of this in common.
        distinct = []
        for of in _USED:
            values = list(map(of, self.nodes))
            distinct.append(chain.from_iterable(dict(zip(map(id, values), values)).values()))
        kernels, views, accesses = distinct
        found: dict[int, Kernel | Symbol] = {}
        for kernel in kernels:
            found[id(kernel)] = kernel
        for root in chain(map(_ROOT, views), map(_VIEW_ROOT, accesses)):
            if type(root) is Symbol:
                found[id(root)] = root
        return tuple(found.values())

    @property
    def documents(self) -> tuple[Workflow, ...]:
        """The workflow itself and all workflows held by its nodes at any depth, without repeats."""
        return (self, *self._inside) if self.holding else (self,)

    @cached_property
    def _inside(self) -> tuple[Workflow, ...]:  # without itself, which would create a reference cycle
        found = [document for node in self.holding for _, inner, _ in node.held for document in inner.documents]
        return tuple(dict.fromkeys(found))

    @cached_property
    def depth(self) -> int:
        """How many levels of child graphs and bodies are nested in it; 0 if it holds none."""
        return max((1 + inner.depth for node in self.holding if not node.derives for _, inner, _ in node.held), default=0)

    @cached_property
    def kinds(self) -> frozenset[type[Node]]:
        """The classes of its nodes."""
        return frozenset(map(type, self.nodes))

    @cached_property
    def holding(self) -> tuple[Node, ...]:
        """Its nodes of the kinds that hold workflows."""
        able = {kind for kind in self.kinds if kind.held is not Node.held}
        return tuple([node for node in self.nodes if type(node) in able]) if able else ()

    @cached_property
    def devices(self) -> frozenset[int]:
        """The devices that its arrays, its nodes and the workflows inside them name."""
        found = {array.device for array in self.arrays.values()}.union([node.__dict__.get("device") for node in self.nodes])
        for node in self.holding:
            for _, inner, _ in () if node.derives else node.held:  # a derived workflow is on the devices of the node's fields
                found |= inner.devices
        found.discard(None)
        return frozenset(found)  # type: ignore[arg-type]  # without None

    def devices_with(self, default: int) -> tuple[int, ...]:
        """Return the devices that it names, and `default`, in ascending order."""
        return tuple(sorted({default, *self.devices}))

    @cached_property
    def accesses(self) -> tuple[Access, ...]:
        """The accesses of all nodes, without repeats."""
        found: dict[tuple[Any, str, Region], Access] = {}
        for node in self.nodes:
            for access in node.accesses:
                found.setdefault((access.view.root, access.mode, access.bytes), access)
        return tuple(found.values())

    @cached_property
    def needs(self) -> Mapping[Any, Mapping[Need, str]]:
        """What nodes need of the memory that an array or a parameter stands for: each need with the name of a node that has it.

        The names of nodes inside children are full names.
        """
        found: dict[Any, dict[Need, str]] = {}
        for node in self.nodes:
            for view, need, who in node.needs:
                found.setdefault(view.root, {}).setdefault(need, who)
        return found

    @cached_property
    def order(self) -> tuple[int, ...]:
        """A topological order; the declaration order if that is one; empty if there is a cycle."""
        return topological_order(self.predecessors)

    @cached_property
    def dag(self) -> nx.DiGraph[str]:
        """A networkx graph of the workflow: node attribute `node`, edge attribute `reason`. Changing it changes nothing else."""
        return Draft.of(self).dag

    def unbound(self) -> tuple[tuple[str, str], ...]:
        """Return what a file names but was not supplied, as (node or array, what is missing); including that of children."""
        found: list[tuple[str, str]] = []
        for level in self.levels():
            for name, array in level.own_arrays():
                values = getattr(array, "initial", None)
                if isinstance(values, UnboundValues):
                    what = f"initial values of {array.dtype}{list(array.shape)} (SHA-256 {values.sha256[:12]}...)"
                    found.append((name, what))
                elif isinstance(array, ExternalArray) and array.obj is None:
                    found.append((name, f"external memory of {array.dtype}{list(array.shape)}"))
            for node in level.workflow.nodes:
                if isinstance(node.callback, UnboundCallback):
                    found.append((level.name(node), f"callback {node.callback.path}"))
        return tuple(found)

    def default_array(self, parameter: Parameter) -> Array | None:
        """Return the array of this workflow that an array parameter stands for by default; None if there is none."""
        default = parameter.default
        name = default.name if isinstance(default, Array) else default
        return self.arrays.get(name) if isinstance(name, str) and parameter.shape else None

    def default_view(self, parameter: Parameter) -> ArrayView | None:
        """Return the view that an array parameter defaults to; None if its default is no array or array name."""
        default = parameter.default
        if not isinstance(default, (str, Array)) or parameter.copy:
            return None
        found = array_by_default(parameter, self.arrays)
        return None if found is None else found.as_view()

    def levels(self) -> Iterator[Level]:
        """Yield this workflow and all workflows held by its nodes, in pre-order, once per occurrence."""
        waiting = [Level(self)]
        while waiting:
            level = waiting.pop()
            yield level
            if level.workflow.holding:
                waiting += reversed([inner for node in level.workflow.holding for inner in level.inner(node)])

    def walk(self) -> Iterator[tuple[Level, Node]]:
        """Yield every node of every level; ``level.name(node)`` is its full name."""
        return ((level, node) for level in self.levels() for node in level.workflow.nodes)

    def node(self, name: str) -> Node | None:
        """Return the node with this name, or None."""
        at = self.index.get(name)
        return None if at is None else self.nodes[at]

    def workflow(self) -> Workflow:
        """Return itself, so that a Workflow is accepted wherever a Graph is."""
        return self

    # -- as a document

    @property
    def plain_edges(self) -> tuple[tuple[str, str], ...]:
        """Edges that do not follow from the nodes, by name: those of `Graph.order`, and those that the user added to the DAG."""
        found = dict.fromkeys(self.ordered)
        for node, sources, reasons in zip(self.nodes, self.predecessors, self.reasons):
            for source, reason in zip(sources, reasons):
                follows = reason.kind == "event" or (self.infer and reason.inferred)
                if not follows and (name := self.nodes[source].name) not in node.after:
                    found[(name, node.name)] = None
        return tuple(found)

    def document(self, *, strict: bool = True, values: bool = True) -> dict[str, Data]:
        """Return the whole file as plain data, in the order of the text.

        Parameters
        ----------
        strict : bool
            False writes ``{"python": text}`` for what cannot be stored in a file; such data is for display and does not load.
        values : bool
            Whether arrays are written with their values.

        Raises
        ------
        DeclarationError
            As `model_dump_json`.
        """
        return data_of(self, strict=strict, values=values)[0]

    def model_dump_json(self) -> str:
        """Return the workflow as versioned JSON, with one array, parameter or node per line.

        Raises
        ------
        DeclarationError
            If it holds something that cannot be stored: a lambda, a closure or a bound method (the error names the node), or an
            argument of a type that JSON cannot represent.
        """
        return written(self.document())

    @staticmethod
    def model_validate_json(
        text: str,
        *,
        arrays: Mapping[str, Any] | None = None,
        callbacks: Mapping[str, Callable[..., Any]] | None = None,
        file: str | os.PathLike[str] | None = None,
    ) -> Workflow:
        """Return the workflow that JSON describes; does not run, compile or import anything.

        Parameters
        ----------
        text : str
        arrays, callbacks, file : optional
            As for `Graph.from_json`.

        Raises
        ------
        DeclarationError
            If it is not a workflow, has a newer version, is truncated or exceeds a limit; the error names line and field.
        """
        from ..document.reader import Loader

        return Loader(all_kinds(), Workflow.of, arrays, callbacks, file).text(text)

    @classmethod
    def model_validate(
        cls, value: Any, *, arrays: Mapping[str, Any] | None = None, callbacks: Mapping[str, Callable[..., Any]] | None = None
    ) -> Workflow:
        """Return the workflow that a document (plain data, as `document` gives it), a Graph or a Workflow is.

        Parameters
        ----------
        value : object
        arrays, callbacks : optional
            As for `Graph.from_json`, for a document.

        Raises
        ------
        DeclarationError
            If it is none of these, or as for JSON; the error names the field.
        """
        found = value.workflow() if callable(getattr(value, "workflow", None)) else value
        if isinstance(found, cls):
            return found
        from ..document.reader import Loader

        return Loader(all_kinds(), Workflow.of, arrays, callbacks).data(found)

    @staticmethod
    def model_json_schema() -> dict[str, Any]:
        """Return the JSON Schema (2020-12) of a workflow file."""
        from ..document.schema import document_schema

        return document_schema(all_kinds())

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> core_schema.CoreSchema:
        """Let Pydantic models have workflow fields: they take what `model_validate` takes, and JSON holds the document."""
        return core_schema.no_info_plain_validator_function(
            lambda value: cls.model_validate(value),
            serialization=core_schema.wrap_serializer_function_ser_schema(
                lambda workflow, _: workflow.document(), schema=core_schema.any_schema(serialization=UNCHANGED), when_used="json"
            ),
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, _: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        from ..document.schema import as_core_schema

        return handler(as_core_schema(cls.model_json_schema()))


NODES: Final = Entries(Workflow, "nodes", {each.name for each in fields(Workflow)} - {"nodes"} | {"index", "successors", "order"})
"""Replaces nodes by others of the same names; the edges stay."""


class Level(Binding):
    """One occurrence of a workflow: the outermost one, or one held by a child graph node or a conditional node of a level.

    Attributes
    ----------
    workflow : Workflow
    parent : Level or None
    node : Node or None
        The node of `parent` that holds it.
    key : str
        Prefix of names inside, relative to `parent`: ``"child"``, or ``"loop/0"`` for the first body of a conditional node.
    bind : mapping
        From names of its arrays and parameters to the parent's views, parameters or values.
    prefix : str
        Prefix of full names inside: empty, or ``"outer/child/"``.
    """

    __slots__ = ("bind", "key", "node", "workflow")

    def __init__(
        self,
        workflow: Workflow,
        parent: Self | None = None,
        node: Node | None = None,
        key: str = "",
        bind: Mapping[str, Any] = _NOTHING,
    ) -> None:
        super().__init__("" if parent is None else f"{parent.prefix}{key}/", parent)
        self.workflow = workflow
        self.node = node
        self.key = key
        self.bind = bind

    def name(self, node: Asked) -> str:
        """Return the full name of one of its nodes."""
        return self.prefix + node.name

    def inner(self, node: Node) -> Iterator[Self]:
        """Yield the levels of the workflows that a node holds."""
        for key, document, bind in node.held:
            yield type(self)(document, self, node, key, bind)

    def bound(self, root: Any) -> Any:
        return bound(root, self.workflow, self.bind)

    def default_of(self, parameter: Parameter) -> Array | None:
        array = self.workflow.default_array(parameter)
        return array if array is not None and array.name in self.bind else None

    def at(self, name: str) -> tuple[Level, str]:
        """Return the innermost level that a full name such as ``"child/x"`` or ``"loop/0/x"`` refers to, and the name in it."""
        rest = name.removeprefix(self.prefix)
        node = self.workflow.node(rest.partition("/")[0])
        for level in () if node is None else self.inner(node):
            if name.startswith(level.prefix):
                return level.at(name)
        return self, rest

    def own_arrays(self) -> Iterator[tuple[str, Array]]:
        """Yield the arrays that the parent does not bind, with their full names."""
        return ((self.prefix + name, array) for name, array in self.workflow.arrays.items() if name not in self.bind)

    def own_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """Yield the parameters that the parent does not bind, with their full names."""
        return ((self.prefix + name, value) for name, value in self.workflow.parameters.items() if name not in self.bind)
