"""Workflow: the frozen document made by a Graph, stored in a file and turned into a Plan; nodes that hold workflows."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

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
    as_dict,
    device_need,
    lacking,
)
from ..binding import bound, bound_array, bound_value, needs_behind, needs_inside
from ..document.parts import document_schema
from ..document.text import written
from ..document.writer import data_of
from ..draft import Draft
from ..errors import listed, node_error
from ..hazards import Reason
from ..kernels import Kernel, Module, Symbol
from ..lazy import lazy
from ..order import successors, topological_order
from ..printed import human_count
from . import KINDS, Node, UnboundCallback, add_kind
from .base import parameters_of, require_met, views_of
from .bindings import Binding
from .facets import Asked
from .fields import UNCHANGED, BoundValues, Choice, Integer, View, WorkflowKey, WorkflowKeys
from .values import Data, as_core_schema

if TYPE_CHECKING:
    import networkx as nx
    from typing_extensions import Self

MAX_DEPTH: Final = 64
"""How deep child graphs and bodies may be nested: passes that follow them recursively stay far from Python's limit."""

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


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
        if len(self.documents) == 1:
            return self.own_modules
        found: dict[Module, None] = {}
        for node in self.nodes:
            found.update(dict.fromkeys(node.modules))
            found.update(dict.fromkeys(module for _, document, _ in node.held for module in document.modules))
        return tuple(found)

    @property
    def own_modules(self) -> tuple[Module, ...]:
        """Modules of the kernels and symbols of its own nodes, in order of first use."""
        return tuple(dict.fromkeys([use.module for use in self.used if isinstance(use, (Kernel, Symbol))]))

    @cached_property
    def used(self) -> tuple[Any, ...]:
        """The kernels of its own nodes, and the arrays, parameters and symbols that they name, in order of first use."""
        found: dict[int, Any] = {}  # by identity: the hash of a kernel costs more than the rest
        for node in self.nodes:
            for kernel in node.kernels:
                found[id(kernel)] = kernel
            for access in node.own_accesses:
                root = access.view.root
                found[id(root)] = root
            for view in node.addresses:
                root = view.root
                found[id(root)] = root
        return tuple(found.values())

    @property
    def documents(self) -> tuple[Workflow, ...]:
        """The workflow itself and all workflows held by its nodes at any depth, without repeats."""
        return (self, *self._inside)

    @cached_property
    def _inside(self) -> tuple[Workflow, ...]:  # without itself, which would create a reference cycle
        found = [document for node in self.nodes for _, inner, _ in node.held for document in inner.documents]
        return tuple(dict.fromkeys(found))

    @cached_property
    def depth(self) -> int:
        """How many levels of child graphs and bodies are nested in it; 0 if it holds none."""
        return max((1 + inner.depth for node in self.nodes if not node.derives for _, inner, _ in node.held), default=0)

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
            waiting += reversed([inner for node in level.workflow.nodes for inner in level.inner(node)])

    def walk(self) -> Iterator[tuple[Level, Node]]:
        """Yield every node of every level; ``level.name(node)`` is its full name."""
        for level in self.levels():
            for node in level.workflow.nodes:
                yield level, node

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

        return Loader(KINDS, Workflow.of, arrays, callbacks, file).text(text)

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

        return Loader(KINDS, Workflow.of, arrays, callbacks).data(found)

    @staticmethod
    def model_json_schema() -> dict[str, Any]:
        """Return the JSON Schema (2020-12) of a workflow file."""
        return document_schema(KINDS)

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
        return handler(as_core_schema(cls.model_json_schema()))


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


# -- nodes that hold workflows


@add_kind
class ChildGraphNode(Node):
    """A whole workflow as one node (hipGraphAddChildGraphNode).

    Attributes
    ----------
    workflow : Workflow
        A snapshot: later changes of the original graph have no effect.
    bind : dict of str to view, Parameter or value
        From names of the child's arrays and parameters to the parent's arrays or views (contiguous, same dtype and shape, and
        such as each node of the child could be given directly), parameters, or values. Unbound arrays belong to the parent's
        Executable as ``<node>/<array>``; unbound parameters keep their defaults.
    """

    kind: ClassVar[str] = "child"
    is_child = True
    work = "kernel"
    reach = ""
    placed = ""
    in_body = True

    workflow: Annotated[Workflow, WorkflowKey()]
    bind: Annotated[dict[str, Any], BoundValues()] = {}  # noqa: RUF012  # Pydantic copies defaults

    @classmethod
    def _prepare(cls, data: dict[str, Any]) -> None:
        name = data["name"]
        workflow = data["workflow"] = _as_workflow(data.get("workflow"), name)
        bind = as_dict(data.get("bind"), f"node {name!r}: bind", " from the child's names")
        bound: dict[str, Any] = {}
        for inner, value in bind.items():
            if inner in workflow.arrays and inner in workflow.parameters:
                raise node_error(
                    name,
                    f"child graph {workflow.name!r} has an array and a parameter {inner!r}, and bind cannot tell which is meant;"
                    " rename one of them",
                )
            if inner in workflow.arrays:
                bound[inner] = bound_array(workflow.arrays[inner], value, name)
            elif inner in workflow.parameters:
                parameter = workflow.parameters[inner]
                bound[inner] = bound_array(parameter, value, name) if parameter.shape else bound_value(parameter, value, name)
            else:
                names = listed((*workflow.arrays, *workflow.parameters))
                raise node_error(name, f"child graph {workflow.name!r} has no array or parameter {inner!r}; it has {names}")
        data["bind"] = bound
        for root, outer, need, who in needs_behind(workflow, bound):
            if fault := lacking(outer, need):
                why = f"{root.name!r} of the child stands for {outer.name!r}, which {who!r} cannot use: {fault}"
                raise node_error(name, why, array=outer.root.name)

    @lazy
    def needs(self) -> tuple[tuple[ArrayView, Need, str], ...]:
        return needs_inside(self)

    @lazy
    def accesses(self) -> tuple[Access, ...]:
        """The child's accesses to the parent's arrays and to external memory and module variables, exact to the byte."""
        found: dict[tuple[Any, str, Region], Access] = {}
        for access in self.workflow.accesses:
            root, offset = self._behind(access.view.root)
            outer: ArrayView | None = bound(root, self.workflow, self.bind)
            if outer is not None:
                region = access.bytes.shifted(offset + outer.offset_bytes)
                whole = region == outer.region
                result = Access(outer, access.mode, None if whole else region)
            elif root is access.view.root and isinstance(root, (ExternalArray, Symbol)):
                result = access
            elif isinstance(root, ExternalArray):
                result = Access(root.as_view(), access.mode, access.bytes.shifted(offset))
            else:
                continue
            found[(result.view.root, result.mode, result.bytes)] = result
        return tuple(found.values())

    def _behind(self, root: Any) -> tuple[Any, int]:
        """Resolve an unbound parameter to its default array and a byte offset in it; return any other root with offset 0."""
        if not isinstance(root, Parameter) or bound(root, self.workflow, self.bind) is not None:
            return root, 0
        default = self.workflow.default_view(root)
        return (root, 0) if default is None else (default.root, default.offset_bytes)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return parameters_of(self.bind.values())

    @property
    def addresses(self) -> tuple[ArrayView, ...]:
        return views_of(self.bind.values())

    @property
    def own_accesses(self) -> tuple[Access, ...]:
        return ()

    @property
    def held(self) -> tuple[tuple[str, Workflow, Mapping[str, Any]], ...]:
        return ((self.name, self.workflow, self.bind),)

    def holding(self, workflows: Sequence[Workflow]) -> dict[str, Any]:
        return {"workflow": workflows[0]}

    def describe(self) -> str:
        bound = ", ".join(f"{inner}={getattr(value, 'name', value)}" for inner, value in self.bind.items())
        return f"{self.workflow.name}({bound})"

    @property
    def details(self) -> tuple[str, ...]:
        return (f"{self.workflow.name} · {human_count(len(self.workflow.nodes), 'node')}",)

    @property
    def frame_label(self) -> str:
        return "" if self.workflow.name in (self.name, self.name.rpartition("_")[0]) else self.workflow.name


def _as_workflow(value: Any, node: str) -> Workflow:
    found = value.workflow() if callable(getattr(value, "workflow", None)) else value
    if not isinstance(found, Workflow):
        raise node_error(node, f"workflow is a Graph or a Workflow (got {type(value).__name__})")
    if found.depth >= MAX_DEPTH:
        raise node_error(
            node,
            f"child graphs and bodies are nested at most {MAX_DEPTH} deep, and {found.name!r} holds {found.depth} levels already;"
            " declare some of them in one graph",
        )
    return found


_CONDITION: Final = device_need(4)


@add_kind
class ConditionalNode(Node):
    """Run workflows by a condition in device memory: if, while, switch (cudaGraphConditionalHandle; not in HIP up to 10.0).

    Attributes
    ----------
    mode : {"if", "while", "switch"}
    condition : ArrayView
        One 32-bit integer in memory that kernels can access: ``if`` and ``while`` test for not 0, for ``switch`` it is the index
        of the body. It is read when the node is reached, and by ``while`` again after the body (see `check_every`).
    bodies : tuple of Workflow
        One for ``while``, one or two (then, else) for ``if``, one or more for ``switch``.
    bind : dict
        As for a child graph, for all bodies. Unbound arrays are named ``<node>/<number of the body>/<array>``.
    decide : {"auto", "device", "host"}
        What reads the condition: the device, as a node of the graph, or the host between graphs; the bodies may then hold any
        node. ``"auto"`` selects the device if it supports conditional nodes and can run everything in the bodies.
    check_every : int
        How many times ``while`` runs its body before it reads the condition again.
    """

    kind: ClassVar[str] = "conditional"
    work = "kernel"
    reach = ""
    placed = "memory"
    in_body = True
    in_child = False
    untried = "branches on data, which a trial without host callbacks may not have"
    fixed = "nodes of kind conditional are recorded once"

    mode: Annotated[Literal["if", "while", "switch"], Choice("if", "while", "switch")]
    condition: Annotated[ArrayView, View()]
    bodies: Annotated[tuple[Workflow, ...], WorkflowKeys()]
    bind: Annotated[dict[str, Any], BoundValues()] = {}  # noqa: RUF012  # Pydantic copies defaults
    decide: Annotated[Literal["auto", "device", "host"], Choice("auto", "device", "host")] = "auto"
    check_every: Annotated[int, Integer(1, 4096)] = 1

    @classmethod
    def _prepare(cls, data: dict[str, Any]) -> None:
        name, mode, condition = data["name"], data["mode"], data["condition"]
        if condition.size != 1 or condition.dtype.kind not in "iu" or condition.dtype.itemsize != 4:
            raise node_error(
                name, f"condition is one 32-bit integer; {condition.name!r} has {condition.size} of {condition.dtype}"
            )
        require_met(name, condition, _CONDITION)
        bodies = data.get("bodies", ())
        bodies = tuple(bodies) if isinstance(bodies, (tuple, list)) else (bodies,)
        data["bodies"] = tuple(_as_workflow(body, name) for body in bodies)
        most, wanted = {"if": (2, "one or two bodies"), "while": (1, "one body"), "switch": (None, "one or more bodies")}[mode]
        if not bodies or (most is not None and len(bodies) > most):
            raise node_error(name, f"mode {mode!r} takes {wanted} (got {len(bodies)})")
        bind = as_dict(data.get("bind"), f"node {name!r}: bind", " from the bodies' names")
        children = _children(name, data["bodies"], bind)
        for inner in bind:
            if not any(inner in child.bind for child in children):
                raise node_error(name, f"no body has an array or parameter {inner!r}")
        data["bind"] = {k: v for child in children for k, v in child.bind.items()}
        if mode != "while" and data.get("check_every", 1) > 1:
            raise node_error(name, f"check_every is for mode 'while' (got mode {mode!r})")

    @lazy
    def needs(self) -> tuple[tuple[ArrayView, Need, str], ...]:
        return ((self.condition, _CONDITION, self.name), *needs_inside(self))

    @lazy
    def children(self) -> tuple[ChildGraphNode, ...]:
        """The bodies as child graph nodes with their bindings."""
        return _children(self.name, self.bodies, self.bind)

    @lazy
    def accesses(self) -> tuple[Access, ...]:
        found = list(self.own_accesses)
        for child in self.children:
            # A body may be skipped, and its outputs then keep their earlier values: a write counts as an update.
            found += [Access(a.view, "update" if a.is_write else "read", a.region) for a in child.accesses]
        return tuple(found)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return parameters_of((self.condition, *self.bind.values()))

    @property
    def own_accesses(self) -> tuple[Access, ...]:
        return (Access(self.condition, "read"),)

    @property
    def addresses(self) -> tuple[ArrayView, ...]:
        return views_of(self.bind.values())

    @property
    def held(self) -> tuple[tuple[str, Workflow, Mapping[str, Any]], ...]:
        return tuple((f"{self.name}/{n}", body.workflow, body.bind) for n, body in enumerate(self.children))

    def holding(self, workflows: Sequence[Workflow]) -> dict[str, Any]:
        return {"bodies": tuple(workflows)}

    @property
    def branch(self) -> Self:
        return self

    def describe(self) -> str:
        how = f", every {self.check_every} passes" if self.check_every > 1 else ""
        how += "" if self.decide == "auto" else f", by the {self.decide}"
        return f"{self.mode} {self.condition.name}{how}: {', '.join(body.name for body in self.bodies)}"

    @property
    def body_titles(self) -> tuple[str, ...]:
        cases = tuple(f"case {n}" for n in range(len(self.bodies)))
        return {"if": ("then", "else"), "while": ("do",), "switch": cases}[self.mode][: len(self.bodies)]

    @property
    def likeness(self) -> tuple[Hashable, ...]:
        return (self.mode, *super().likeness)


def _children(name: str, bodies: tuple[Workflow, ...], bind: Mapping[str, Any]) -> tuple[ChildGraphNode, ...]:
    """Return bodies as child graph nodes, each with the bindings of the names that it declares."""
    own = ({inner: bind[inner] for inner in bind if inner in body.arrays or inner in body.parameters} for body in bodies)
    return tuple(ChildGraphNode(name=name, workflow=body, bind=names) for body, names in zip(bodies, own))
