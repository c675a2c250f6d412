"""ChildGraphNode and ConditionalNode: nodes that hold workflows."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

from pydantic import ValidationInfo

from ..arrays import (
    Access,
    AllocArray,
    Array,
    ArrayView,
    ExternalArray,
    MovingView,
    Need,
    Parameter,
    Region,
    as_view,
    device_need,
    lacking,
    unlike,
)
from ..errors import listed, node_error
from ..kernels import Symbol
from ..lazy import lazy
from ..printed import human_count
from .base import Node, parameters_of, require_met, views_of
from .bindings import bound
from .fields import BoundValues, Integer, Stored, View, items, names_in, node_in
from .kinds import add_kind
from .memory import element_value
from .values import list_of, ref
from .workflow import MAX_DEPTH, Workflow

if TYPE_CHECKING:
    from typing_extensions import Self


def _held(value: Any, info: ValidationInfo) -> Workflow:
    """Return the workflow that a node is to hold."""
    names = names_in(info)
    given = value if names is None else names.workflow(value)
    found = given.workflow() if callable(getattr(given, "workflow", None)) else given
    node = node_in(info)
    if not isinstance(found, Workflow):
        what = "workflow is" if info.field_name == "workflow" else f"each of {info.field_name} is"
        raise node_error(node, f"{what} a Graph or a Workflow (got {type(given).__name__})")
    if found.depth >= MAX_DEPTH:
        raise node_error(
            node,
            f"child graphs and bodies are nested at most {MAX_DEPTH} deep, and {found.name!r} holds {found.depth} levels already;"
            " declare some of them in one graph",
        )
    return found


HELD = Stored(_held, lambda held, names, _: names.key_of_workflow(held), ref("name"))
"""A workflow, stored as its key in the file."""

HELD_BODIES = Stored(
    lambda value, info: tuple([_held(each, info) for each in items(value, info)]),
    lambda held, names, _: [names.key_of_workflow(each) for each in held],
    list_of(ref("name"), minItems=1),
    lambda held, _: list(held),
)
"""Workflows, at least one."""


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

    workflow: Annotated[Workflow, HELD]
    bind: BoundValues = {}  # noqa: RUF012  # Pydantic copies defaults

    def model_post_init(self, _: Any) -> None:
        name, workflow = self.name, self.workflow
        bound: dict[str, Any] = {}
        for inner, value in self.bind.items():
            if inner in workflow.arrays and inner in workflow.parameters:
                raise node_error(
                    name,
                    f"child graph {workflow.name!r} has an array and a parameter {inner!r}, and bind cannot tell which is meant;"
                    " rename one of them",
                )
            if inner in workflow.arrays:
                bound[inner] = _bound_array(workflow.arrays[inner], value, name)
            elif inner in workflow.parameters:
                parameter = workflow.parameters[inner]
                bound[inner] = _bound_array(parameter, value, name) if parameter.shape else _bound_value(parameter, value, name)
            else:
                names = listed((*workflow.arrays, *workflow.parameters))
                raise node_error(name, f"child graph {workflow.name!r} has no array or parameter {inner!r}; it has {names}")
        self.__dict__["bind"] = bound
        for root, outer, need, who in _needs_behind(workflow, bound):
            if fault := lacking(outer, need):
                why = f"{root.name!r} of the child stands for {outer.name!r}, which {who!r} cannot use: {fault}"
                raise node_error(name, why, array=outer.root.name)

    @lazy
    def needs(self) -> tuple[tuple[ArrayView, Need, str], ...]:
        return _needs_inside(self)

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

    mode: Literal["if", "while", "switch"]
    condition: View
    bodies: Annotated[tuple[Workflow, ...], HELD_BODIES]
    bind: BoundValues = {}  # noqa: RUF012  # Pydantic copies defaults
    decide: Literal["auto", "device", "host"] = "auto"
    check_every: Annotated[int, Integer(1, 4096)] = 1

    def model_post_init(self, _: Any) -> None:
        name, mode, condition, bodies = self.name, self.mode, self.condition, self.bodies
        if condition.size != 1 or condition.dtype.kind not in "iu" or condition.dtype.itemsize != 4:
            raise node_error(
                name, f"condition is one 32-bit integer; {condition.name!r} has {condition.size} of {condition.dtype}"
            )
        require_met(name, condition, _CONDITION)
        most, wanted = {"if": (2, "one or two bodies"), "while": (1, "one body"), "switch": (None, "one or more bodies")}[mode]
        if not bodies or (most is not None and len(bodies) > most):
            raise node_error(name, f"mode {mode!r} takes {wanted} (got {len(bodies)})")
        children = _children(name, bodies, self.bind)
        for inner in self.bind:
            if not any(inner in child.bind for child in children):
                raise node_error(name, f"no body has an array or parameter {inner!r}")
        self.__dict__["bind"] = {k: v for child in children for k, v in child.bind.items()}
        if mode != "while" and self.check_every > 1:
            raise node_error(name, f"check_every is for mode 'while' (got mode {mode!r})")

    @lazy
    def needs(self) -> tuple[tuple[ArrayView, Need, str], ...]:
        return ((self.condition, _CONDITION, self.name), *_needs_inside(self))

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


# -- what names of a held workflow may be bound to, and what its nodes need of that -------------------------------------


def _needs_behind(workflow: Any, bind: Mapping[str, Any]) -> Iterator[tuple[Any, ArrayView, Need, str]]:
    """Yield what the nodes of a held workflow need of the views that it is bound to: array or parameter, view, need, node.

    A parameter that is not bound stands for its default array, which may be bound.
    """
    if not any(isinstance(value, ArrayView) for value in bind.values()):
        return
    for root, needs in workflow.needs.items():
        outer = bound(root, workflow, bind)
        if outer is None and isinstance(root, Parameter) and (default := workflow.default_view(root)) is not None:
            outer = bound(default.root, workflow, bind)
        if outer is not None:
            for need, who in needs.items():
                yield root, outer, need, who


def _needs_inside(node: Node) -> tuple[tuple[ArrayView, Need, str], ...]:
    """Return what the workflows that a node holds need of the memory that they are bound to."""
    return tuple(
        (outer, need, f"{key}/{who}")
        for key, document, bind in node.held
        for _, outer, need, who in _needs_behind(document, bind)
    )


def _bound_array(inner: Array | Parameter, value: Any, node: str) -> ArrayView:
    """Validate and return the view bound to an array or an array parameter of a child."""
    outer = as_view(value, f"node {node!r}: an array for {inner.name!r} of the child")
    if isinstance(outer, MovingView):
        raise node_error(
            node, f"{inner.name!r} of the child is bound to {outer.name!r}, and where that lies, a launch decides; bind the array"
            " and give the child the index as a parameter", array=outer.root.name,
        )  # fmt: skip
    if isinstance(inner, AllocArray):
        raise node_error(node, f"{inner.name!r} is made by an alloc node of the child and cannot be bound")
    wanted = found = ""
    if unlike(inner, outer) or not outer.contiguous:
        wanted = f"{inner.dtype}{list(inner.shape)} and takes a contiguous array of the same dtype and shape"
        found = f"{outer.dtype}{list(outer.shape)}" + ("" if outer.contiguous else " and not contiguous")
    elif isinstance(inner, Parameter):
        pass  # what its nodes need decides
    elif inner.on_host and not outer.root.on_host:
        wanted, found = "a host array", f"{outer.root.kind} memory"
    elif inner.on_device and not outer.root.on_device:
        wanted, found = "reached by the device", "pageable host memory"
    if wanted:
        raise node_error(node, f"{inner.name!r} of the child is {wanted}; {outer.name!r} is {found}", array=outer.root.name)
    return outer


def _bound_value(inner: Parameter, value: Any, node: str) -> Any:
    """Validate and return the value or parameter bound to a scalar parameter of a child."""
    if not isinstance(value, Parameter):
        number = element_value(value, inner.dtype, f"node {node!r}: parameter {inner.name!r}")
        if inner.limits:
            _require_within(inner, number, number, f"it is bound to {value}", node)
        return deepcopy(value)
    if not value.shape and value.dtype.kind in "iub":
        low, high = value.bounds
        _require_within(inner, low, high, f"{value.name} can be {low} to {high}", node)
    if value.terms and inner.dtype.kind in "iu":
        return value
    if value.dtype != inner.dtype or value.shape:
        raise node_error(node, f"parameter {inner.name!r} of the child is {inner.dtype}; {value!r} is not")
    return value


def _require_within(inner: Parameter, low: int, high: int, given: str, node: str) -> None:
    """Refuse values from `low` to `high` that can be beyond the bounds of the scalar parameter that they are bound to."""
    if (inner.min is not None and low < inner.min) or (inner.max is not None and high > inner.max):
        least, most = inner.bounds
        raise node_error(node, f"parameter {inner.name!r} of the child is from {least} to {most}, and {given}", array=inner.name)
