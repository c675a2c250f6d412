"""Nodes that hold workflows: child graphs and conditionals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from ..arrays import Access, AllocArray, Array, ArrayView, ExternalArray, HostArray, Parameter, Region, as_dict, as_view
from ..errors import DeclarationError
from ..kernels import Symbol
from .base import Node, lazy
from .fields import Choice, Form, TextWriter, View
from .memory import element_bytes
from .values import Data, Names, list_of, ref

if TYPE_CHECKING:
    from ..workflow import Workflow

__all__ = ["ChildGraphNode", "ConditionalNode", "bound", "held"]

Bound = ArrayView | Parameter | Any


class WorkflowKey(Form):
    """A workflow by its key in the file."""

    schema = ref("name")
    json_types = (str,)

    def dump(self, value: Workflow, names: Names, node: Node) -> Data:
        return names.key_of_workflow(value)

    def load(self, data: Data, names: Names, node: str) -> Workflow:
        return names.workflow(data)  # type: ignore[no-any-return]  # Workflow stands below nodes

    def text(self, value: Workflow, writer: TextWriter, node: Node) -> str:
        return writer.child(value)


class WorkflowKeys(Form):
    """Workflows by their keys in the file."""

    schema = list_of(ref("name"), minItems=1)
    json_types = (list,)

    def dump(self, value: tuple[Workflow, ...], names: Names, node: Node) -> Data:
        return [names.key_of_workflow(workflow) for workflow in value]

    def load(self, data: Data, names: Names, node: str) -> tuple[Workflow, ...]:
        return tuple([names.workflow(key) for key in data])

    def text(self, value: tuple[Workflow, ...], writer: TextWriter, node: Node) -> str:
        return f"[{', '.join(map(writer.child, value))}]"


class Binding(Form):
    """Values by names of a child."""

    schema = {"type": "object", "additionalProperties": ref("value")}  # noqa: RUF012
    json_types = (dict,)

    def dump(self, value: dict[str, Any], names: Names, node: Node) -> Data:
        return {inner: names.value_data(outer) for inner, outer in value.items()}

    def load(self, data: Data, names: Names, node: str) -> dict[str, Any]:
        return {inner: names.value(outer) for inner, outer in data.items()}

    def text(self, value: dict[str, Any], writer: TextWriter, node: Node) -> str:
        return f"{{{', '.join(f'{inner!r}: {writer.value(outer)}' for inner, outer in value.items())}}}"


class ChildGraphNode(Node):
    """A whole workflow as one node (hipGraphAddChildGraphNode).

    Attributes
    ----------
    workflow : Workflow
        A snapshot: later changes of the graph that it came from are not seen.
    bind : dict of str to view, Parameter or value
        The child's arrays and parameters, by name, to the parent's arrays or views (contiguous, same dtype and size),
        parameters, or values. Arrays that are not bound belong to the parent's Executable as ``<node>/<array>``; parameters
        that are not bound keep their defaults.
    """

    kind: ClassVar[str] = "child"
    work = "kernel"

    workflow: Annotated[Any, WorkflowKey()]
    bind: Annotated[dict[str, Any], Binding()] = {}  # noqa: RUF012  # Pydantic copies defaults

    @classmethod
    def _prepare(cls, data: dict[str, Any]) -> None:
        name = data["name"]
        workflow = data["workflow"] = _as_workflow(data.get("workflow"), name)
        bind = as_dict(data.get("bind"), f"node {name!r}: bind", " from the child's names")
        bound: dict[str, Bound] = {}
        for inner, value in bind.items():
            if inner in workflow.arrays:
                bound[inner] = _bind_array(workflow.arrays[inner], value, name)
            elif inner in workflow.parameters:
                parameter = workflow.parameters[inner]
                bound[inner] = _bind_array(parameter, value, name) if parameter.shape else _bind_value(parameter, value, name)
            else:
                names = ", ".join(map(repr, [*workflow.arrays, *workflow.parameters])) or "none"
                raise DeclarationError(
                    f"node {name!r}: child graph {workflow.name!r} has no array or parameter {inner!r}; it has {names}", node=name
                )
        data["bind"] = bound

    @lazy
    def accesses(self) -> tuple[Access, ...]:
        """What the child touches of the parent's arrays, byte for byte; its own arrays are nobody else's business."""
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
        """Return the array that an unbound parameter stands for by default, and where in it; any other root is itself."""
        if not isinstance(root, Parameter) or bound(root, self.workflow, self.bind) is not None:
            return root, 0
        default = self.workflow.default_view(root)
        return (root, 0) if default is None else (default.root, default.offset_bytes)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return _parameters(self.bind.values())

    def describe(self) -> str:
        bound = ", ".join(f"{inner}={getattr(value, 'name', value)}" for inner, value in self.bind.items())
        return f"{self.workflow.name}({bound})"


def _as_workflow(value: Any, node: str) -> Workflow:
    if hasattr(value, "workflow") and callable(value.workflow):
        value = value.workflow()
    if not hasattr(value, "predecessors"):
        raise DeclarationError(f"node {node!r}: workflow is a Graph or a Workflow (got {type(value).__name__})", node=node)
    return value  # type: ignore[no-any-return]  # told by its attributes, because Workflow stands below nodes


def _bind_array(inner: Array | Parameter, value: Any, node: str) -> ArrayView:
    outer = as_view(value, f"node {node!r}: an array for {inner.name!r} of the child")
    if isinstance(inner, AllocArray):
        raise DeclarationError(
            f"node {node!r}: {inner.name!r} is made by an alloc node of the child and cannot be bound", node=node
        )
    if outer.dtype != inner.dtype or outer.nbytes != inner.nbytes or not outer.contiguous:
        raise DeclarationError(
            f"node {node!r}: {inner.name!r} of the child is {inner.dtype}{list(inner.shape)} and takes a contiguous array of the"
            f" same dtype and size; {outer.name!r} is {outer.dtype}{list(outer.shape)}"
            + ("" if outer.contiguous else " and not contiguous"),
            node=node,
            array=outer.root.name,
        )
    if isinstance(inner, HostArray) and not outer.root.on_host:
        raise DeclarationError(
            f"node {node!r}: {inner.name!r} of the child is a host array; {outer.name!r} is {outer.root.kind} memory",
            node=node,
            array=outer.root.name,
        )
    if inner.on_device and not outer.root.on_device:
        raise DeclarationError(
            f"node {node!r}: {inner.name!r} of the child is reached by the device; {outer.name!r} is pageable host memory",
            node=node,
            array=outer.root.name,
        )
    return outer


def _bind_value(inner: Parameter, value: Any, node: str) -> Any:
    if isinstance(value, Parameter):
        if value.dtype != inner.dtype or value.shape:
            raise DeclarationError(
                f"node {node!r}: parameter {inner.name!r} of the child is {inner.dtype}; {value!r} is not", node=node
            )
        return value
    element_bytes(value, inner.dtype, f"node {node!r}: parameter {inner.name!r}")
    return value


class ConditionalNode(Node):
    """Run workflows as a condition in device memory says (cudaGraphConditionalHandle; HIP has none up to 10.0).

    Attributes
    ----------
    mode : {"if", "while", "switch"}
    condition : ArrayView
        One 32-bit integer where kernels reach it: not 0 for ``if`` and ``while``, the index of the body for ``switch``. It is
        read when the node is reached, and by ``while`` again whenever the body has ended.
    bodies : tuple of Workflow
        One for ``while``, one or two (then, else) for ``if``, one or more for ``switch``.
    bind : dict
        As for a child graph, for all bodies. What is not bound is called ``<node>/<number of the body>/<array>``.
    """

    kind: ClassVar[str] = "conditional"
    work = "kernel"
    fixed = "nodes of kind conditional are recorded once"

    mode: Annotated[Literal["if", "while", "switch"], Choice("if", "while", "switch")]
    condition: Annotated[ArrayView, View()]
    bodies: Annotated[tuple[Any, ...], WorkflowKeys()]
    bind: Annotated[dict[str, Any], Binding()] = {}  # noqa: RUF012  # Pydantic copies defaults

    @classmethod
    def _prepare(cls, data: dict[str, Any]) -> None:
        name = data["name"]
        mode = data.get("mode")
        if not isinstance(mode, str) or mode not in ("if", "while", "switch"):
            raise DeclarationError(f"node {name!r}: mode is 'if', 'while' or 'switch' (got {mode!r})", node=name)
        condition = data["condition"] = as_view(data.get("condition"), f"node {name!r}: condition: an array")
        if condition.size != 1 or condition.dtype.kind not in "iu" or condition.dtype.itemsize != 4:
            raise DeclarationError(
                f"node {name!r}: condition is one 32-bit integer; {condition.name!r} has {condition.size} of {condition.dtype}",
                node=name,
            )
        if isinstance(condition.root, Array) and not condition.root.on_device:
            raise DeclarationError(
                f"node {name!r}: the device reads the condition; {condition.name!r} is pageable host memory",
                node=name,
                array=condition.root.name,
            )
        bodies = data.get("bodies", ())
        bodies = tuple(bodies) if isinstance(bodies, (tuple, list)) else (bodies,)
        data["bodies"] = tuple(_as_workflow(body, name) for body in bodies)
        most: int | None = {"if": 2, "while": 1, "switch": None}[mode]
        if not bodies or (most is not None and len(bodies) > most):
            wanted = {"if": "one or two bodies", "while": "one body", "switch": "one or more bodies"}[mode]
            raise DeclarationError(f"node {name!r}: mode {mode!r} takes {wanted} (got {len(bodies)})", node=name)
        bind = as_dict(data.get("bind"), f"node {name!r}: bind", " from the bodies' names")
        children = [
            ChildGraphNode(name=name, workflow=body, bind={k: v for k, v in bind.items() if _has(body, k)})
            for body in data["bodies"]
        ]
        for inner in bind:
            if not any(inner in child.bind for child in children):
                raise DeclarationError(f"node {name!r}: no body has an array or parameter {inner!r}", node=name)
        data["bind"] = {k: v for child in children for k, v in child.bind.items()}

    @lazy
    def children(self) -> tuple[ChildGraphNode, ...]:
        """The bodies as child graph nodes, bound."""
        return tuple(
            ChildGraphNode(name=self.name, workflow=body, bind={k: v for k, v in self.bind.items() if _has(body, k)})
            for body in self.bodies
        )

    @lazy
    def accesses(self) -> tuple[Access, ...]:
        found = [Access(self.condition, "read")]
        for child in self.children:
            # A body may be skipped, so what it writes keeps its earlier value: an update.
            found += [Access(a.view, "update" if a.is_write else "read", a.region) for a in child.accesses]
        return tuple(found)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return _parameters((self.condition, *self.bind.values()))

    def describe(self) -> str:
        return f"{self.mode} {self.condition.name}: {', '.join(body.name for body in self.bodies)}"


def held(node: Node) -> tuple[tuple[str, Workflow, Mapping[str, Any]], ...]:
    """Return the workflows that a node holds: what names inside begin with, the document, and what is bound."""
    if isinstance(node, ChildGraphNode):
        return ((node.name, node.workflow, node.bind),)
    if isinstance(node, ConditionalNode):
        return tuple((f"{node.name}/{n}", body.workflow, body.bind) for n, body in enumerate(node.children))
    return ()


def bound(root: Any, workflow: Workflow, bind: Mapping[str, Any]) -> Any:
    """Return what an array or parameter of a held workflow is bound to, or None; a name of another workflow is not bound."""
    name = root.name
    if name not in bind:
        return None
    own = workflow.arrays.get(name, workflow.parameters.get(name))
    return bind[name] if own is root else None


def _parameters(values: Iterable[Any]) -> tuple[Parameter, ...]:
    roots = (value.root if isinstance(value, ArrayView) else value for value in values)
    return tuple(dict.fromkeys(root for root in roots if isinstance(root, Parameter)))


def _has(workflow: Workflow, name: str) -> bool:
    return name in workflow.arrays or name in workflow.parameters
