"""Draft: a workflow under construction. Adding a node checks it against earlier declarations and infers its edges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import numpy as np

from .arrays import (
    AllocArray,
    Array,
    Parameter,
    Viewable,
    array_by_default,
    array_values,
    as_dtype,
    as_shape,
    checked_limits,
    converted,
    lacking,
    naming,
    ndarray_of,
    own_copy,
    require_fit,
    whole_array,
)
from .errors import DeclarationError, at_field, listed, node_error
from .hazards import AFTER, HazardTracker, Pending, Reason, near_before
from .kernels import Symbol
from .nodes.base import Node, a_or_an, check_name
from .nodes.kernel import Launches
from .nodes.memory import kept_value

if TYPE_CHECKING:
    import networkx as nx

A = TypeVar("A", bound=Array)

_RESERVED = ("stream", "after", "timeout_s")  # keywords of launch that are not parameters


@cache
def _says(kind: type[Node]) -> bool:
    """Return whether nodes of a class make an array, or record or await an event."""
    return any(getattr(kind, fact) is not getattr(Node, fact) for fact in ("made", "recorded", "awaited"))


class Draft:
    """The arrays, parameters and nodes declared so far, with the inferred and explicit edges.

    Attributes
    ----------
    name : str
    infer : bool
        Whether edges are inferred from accesses.
    arrays, parameters : dict
        By name, including arrays of alloc nodes.
    nodes : list of Node
        In order of declaration.
    index : dict of str to int
        Index of each node in `nodes`, by name.
    predecessors, reasons : list
        Per node, as in `Workflow`.
    ordered : list of (str, str)
        Plain edges that `order` added.
    snapshot : Workflow or None
        The result of `Workflow.of`; None if the draft has changed since.
    launches : Launches
        The kernel nodes that later ones may repeat.
    """

    def __init__(self, name: str = "graph", infer: bool = True) -> None:
        self.name = check_name(name, "graph")
        self.infer = infer
        self.arrays: dict[str, Array] = {}
        self.parameters: dict[str, Parameter] = {}
        self.nodes: list[Node] = []
        self.index: dict[str, int] = {}
        self.predecessors: list[tuple[int, ...]] = []
        self.reasons: list[tuple[Reason, ...]] = []
        self.ordered: list[tuple[str, str]] = []
        self.snapshot: Any = None
        self.launches = Launches()
        self._hazards: HazardTracker[int] | None = HazardTracker() if infer else None
        self._noted = 0  # number of nodes recorded in `_hazards` and `_recorded`
        self._recorded: dict[str, int] = {}  # the last node that records each event
        self._counts: dict[str, int] = {}
        self._proposed = ("", "", 0)  # the last default name, its base and number; committed when a node uses it
        self._dag: nx.DiGraph[str] | None = None
        self._removed: dict[int, dict[int, Reason]] = {}  # inferred edges that the user removed in `dag`, by target and source

    @classmethod
    def of(cls, workflow: Any) -> Draft:
        """Return a draft that continues a workflow."""
        draft = cls(workflow.name, workflow.infer)
        draft.arrays.update(workflow.arrays)
        draft.parameters.update(workflow.parameters)
        draft.nodes += workflow.nodes
        draft.index.update(workflow.index)
        draft.predecessors += workflow.predecessors
        draft.reasons += workflow.reasons
        draft.ordered += workflow.ordered
        draft.snapshot = workflow
        return draft

    def rename(self, name: str) -> None:
        """Rename the workflow."""
        self.name, self.snapshot = check_name(name, "graph"), None
        if self._dag is not None:
            self._dag.graph["name"] = name

    # -- arrays and parameters

    def add_array(self, array: A) -> A:
        """Add an array; the caller has checked that its name is new."""
        self.arrays[array.name] = array
        self.snapshot = None
        return array

    def add_parameter(
        self, name: str, dtype: Any, default: Any = None, shape: Any = (), copy: bool = False, least: Any = None, most: Any = None
    ) -> Parameter:
        """Add a parameter; see `Graph.param`."""
        self.require_new(name, "parameter", self.parameters)
        if not name.isidentifier() or name in _RESERVED:
            why = "is reserved for an option of launch" if name in _RESERVED else "is no Python identifier"
            raise DeclarationError(
                f"parameter {name!r} {why}, and parameters are launch keywords; choose another name", array=name
            )
        with naming("parameter", name):
            dtype, shape = as_dtype(dtype), as_shape(shape)
        if copy and not shape:
            raise DeclarationError(
                f"parameter {name!r}: copy=True is for parameters with a shape; scalars are always copied", array=name
            )
        with at_field("default"):
            default = self._kept_default(name, dtype, default, shape, copy)
        limits = checked_limits(name, dtype, shape, default, least, most)
        parameter = Parameter(name, dtype, default, shape, bool(copy), min=limits[0], max=limits[1])
        with at_field("default"):
            standing = array_by_default(parameter, self.arrays)
            if standing is not None:
                require_fit(name, parameter, standing)
        self.snapshot = None
        self.parameters[name] = parameter
        return parameter

    def _kept_default(self, name: str, dtype: np.dtype[Any], default: Any, shape: tuple[int, ...], copy: bool) -> Any:
        """Return the default of a parameter as it is kept; None stays None."""
        if copy and default is not None:
            values = own_copy(array_values(f"parameter {name!r}: default", default, dtype, shape, name))
            values.flags.writeable = False
            return values
        if default is not None and not shape:
            return kept_value(default, dtype, f"parameter {name!r}: default")
        if isinstance(default, Viewable):
            default = whole_array(name, default)
            if default.kind != "external" and self.arrays.get(default.name) is not default:
                raise DeclarationError(
                    f"parameter {name!r}: default: graph {self.name!r} does not declare this {default.kind} array"
                    f" {default.name!r}; its arrays are {listed(self.arrays)}",
                    array=name,
                )
        elif isinstance(default, (int, float, complex, np.generic)):
            raise DeclarationError(
                f"parameter {name!r} stands for an array of {dtype}{list(shape)}, and so does its default: the name of an array"
                f" of the graph, or an object with memory (got {default!r})",
                array=name,
            )
        return default

    def require_new(self, name: str, what: str, known: Mapping[str, Any]) -> None:
        """Raise DeclarationError if the name of an array or a parameter is invalid or taken."""
        check_name(name, what)
        if name in known:
            raise DeclarationError(f"graph {self.name!r} already has {a_or_an(what)} {name!r}; choose another name", array=name)

    def declare_used(self, node: Node, arrays: Mapping[str, Array]) -> None:
        """Add the arrays and parameters that a node uses and that the draft does not have.

        `arrays` are those that the default of a parameter may name.
        """
        for parameter in node.parameters:
            self.parameters.setdefault(parameter.name, parameter)
            default = parameter.default
            standing = arrays.get(default) if isinstance(default, str) else default
            if isinstance(standing, Array) and parameter.shape:
                self.arrays.setdefault(standing.name, standing)
        for view in chain((access.view for access in node.accesses), node.addresses):
            if isinstance(view.root, Array) and not isinstance(view.root, (Symbol, AllocArray)):
                self.arrays.setdefault(view.root.name, view.root)

    # -- nodes

    def add(self, node: Node) -> None:
        """Add a node with its edges; if it is rejected, the draft is unchanged."""
        name, index, arrays = node.name, self.index, self.arrays
        if name in index:
            raise DeclarationError(f"graph {self.name!r} already has a node {name!r}; choose another name", node=name)
        after = node.after
        for source in after:
            if source not in index:
                raise self.no_node(source)
        last, repeats = self.launches.made
        if last is not node:
            repeats = None  # else a launch that the draft has accepted
        made = awaited = recorded = None
        if repeats is None:
            if _says(type(node)):
                made, awaited, recorded = node.made, node.awaited, node.recorded
            self._require_declared(node, made)
        if made is not None:
            if arrays.get(made.name, made) is not made:
                self.require_new(made.name, "array", arrays)
            arrays[made.name] = made
        nodes, hazards = self.nodes, self._hazards
        at = len(nodes)
        if self._noted < at:
            self._note_earlier()
        edges: dict[int, Reason] = {}
        pending: Pending[int] | None = None
        if hazards is not None:
            touched = None if repeats is None else repeats.touched
            if touched is None:
                touched = hazards.touched(node.accesses)
                if repeats is not None:
                    repeats.touched = touched
            edges, pending = hazards.edges(touched)
        if awaited is not None and awaited.name in self._recorded:
            edges.setdefault(self._recorded[awaited.name], Reason("event", awaited.name))
        for source in after:
            edges.setdefault(index[source], AFTER)
        proposed, base, count = self._proposed
        if proposed == name:
            self._counts[base] = count
        index[name] = at
        nodes.append(node)
        self.predecessors.append(tuple(edges))
        self.reasons.append(tuple(edges.values()))
        self.snapshot = None
        if hazards is not None and pending is not None:
            hazards.record(at, pending, self._unfollowed)
        if recorded is not None:
            self._recorded[recorded.name] = at
        self._noted = at + 1
        if repeats is None:
            self.launches.keep(node)
        if self._dag is not None:
            self._dag.add_node(name, node=node)
            self._dag.add_edges_from([(nodes[i].name, name, {"reason": str(reason)}) for i, reason in edges.items()])

    def _require_declared(self, node: Node, made: AllocArray | None) -> None:
        """Raise DeclarationError if a node uses arrays or parameters that the draft does not have, or cannot use defaults."""
        arrays = self.arrays
        for access in node.accesses:
            root = access.view.root
            if arrays.get(root.name) is not root and root is not made:
                self._require_known(root, node)
        for view in node.addresses:
            root = view.root
            if arrays.get(root.name) is not root and root is not made:
                self._require_known(root, node)
        parameters = node.parameters
        for parameter in parameters:
            if self.parameters.get(parameter.name) is not parameter:
                self._require_known(parameter, node)
        if parameters:
            self._require_usable_defaults(node, parameters)
            if not node.takes_moving and (moving := node.moving) is not None:
                raise node_error(
                    node.name,
                    f"where {moving.name!r} lies, a launch decides, and nodes of kind {node.kind} take views that are fixed;"
                    " copy it to an array of its own first",
                    array=moving.root.name,
                )

    def _require_usable_defaults(self, node: Node, parameters: Iterable[Parameter]) -> None:
        """Raise DeclarationError if a node cannot use what one of its array parameters stands for by default."""
        standing = {p: array_by_default(p, self.arrays) for p in parameters if p.shape and p.default is not None}
        for view, need, who in node.needs if standing else ():
            array = standing.get(view.root)  # type: ignore[call-overload]  # other roots are no keys
            if array is not None and (fault := lacking(array.as_view(), need)):
                root = view.root
                raise node_error(
                    node.name,
                    f"parameter {root.name!r} stands for {array.kind} array {array.name!r} by default, which {who!r} cannot use:"
                    f" {fault}",
                    array=root.name,
                )

    def default_name(self, base: str) -> str:
        """Return `base`, with a number appended if nodes already use it."""
        count = self._counts.get(base, 0) + 1
        if count == 1:
            if not base.isprintable() or "[" in base or "/" in base:  # such as the name of a kernel template instance
                base = "".join(c if c.isprintable() and c not in "[/" else "_" for c in base)
            base = base.strip()[:180].rstrip() or "node"  # leaves room for a number
            count = self._counts.get(base, 0) + 1
        name = base if count == 1 else f"{base}_{count}"
        while name in self.index:
            count += 1
            name = f"{base}_{count}"
        self._proposed = (name, base, count)
        return name

    def _note_earlier(self) -> None:
        """Note the nodes of the workflow that the draft was created from for the edges of later ones."""
        for at in range(self._noted, len(self.nodes)):
            earlier = self.nodes[at]
            if self._hazards is not None:
                self._hazards.record(at, ((), (), self._hazards.touched(earlier.accesses)), self._unfollowed)
            if earlier.recorded is not None:
                self._recorded[earlier.recorded.name] = at
            self._noted = at + 1

    def _unfollowed(self, readers: list[int]) -> list[int]:
        """Return those of earlier nodes that the node now being recorded does not follow closely."""
        near = near_before(self.predecessors, self._noted)
        return [reader for reader in readers if reader not in near]

    def _require_known(self, root: Any, node: Node) -> None:
        """Raise DeclarationError for an array or parameter of another graph, except module variables and a child's own arrays."""
        inside = (document for _, held, _ in node.held for document in held.documents)
        if isinstance(root, Symbol) or any(document.arrays.get(root.name) is root for document in inside):
            return
        what, known = ("parameter", self.parameters) if isinstance(root, Parameter) else ("array", self.arrays)
        if known.get(root.name) is root:
            return
        if root.name in known:
            raise node_error(
                node.name,
                f"{what} {root.name!r} belongs to another graph; graph {self.name!r} has its own of that name",
                array=root.name,
            )
        why = f"graph {self.name!r} has no {what} {root.name!r}; its {what}s are {listed(known)}"
        raise node_error(node.name, why, array=root.name)

    def no_node(self, name: Any) -> DeclarationError:
        """Return the error that there is no node with this name."""
        if isinstance(name, str) and (name in self.arrays or name in self.parameters):
            where = "arrays" if name in self.arrays else "parameters"
            return DeclarationError(f"graph {self.name!r} has no node {name!r}; that is g.{where}[{name!r}]", node=name)
        return DeclarationError(f"graph {self.name!r} has no node {name!r}; its nodes are {listed(self.index)}", node=name)

    def names_of(self, nodes: Any) -> tuple[str, ...]:
        """Return the names of nodes of the draft, given as models or by name."""
        if isinstance(nodes, (str, Node)):
            nodes = (nodes,)
        elif not isinstance(nodes, Iterable):
            raise DeclarationError(f"graph {self.name!r}: after is a list of nodes or of their names (got {nodes!r})")
        names = []
        for item in nodes:
            name = item if isinstance(item, str) else getattr(item, "name", None)
            at = self.index.get(name) if isinstance(name, str) else None
            if at is None or (isinstance(item, Node) and type(self.nodes[at]) is not type(item)):
                raise self.no_node(str(name if name is not None else item))
            names.append(name)
        return tuple(names)  # type: ignore[arg-type]  # every name was found among the nodes

    def order(self, *names: str) -> None:
        """Add an edge from each of these nodes to the next; if one is rejected, the draft is unchanged."""
        pairs = list(pairwise(names))
        for source, target in pairs:
            if source == target:
                raise DeclarationError(f"graph {self.name!r}: node {source!r} cannot wait for itself", node=source)
        self.follow_dag()
        for source, target in pairs:
            at, waiting = self.index[source], self.index[target]
            if at not in self.predecessors[waiting]:
                self.predecessors[waiting] += (at,)
                self.reasons[waiting] += (AFTER,)
                if self._dag is not None:
                    self._dag.add_edge(source, target, reason=str(AFTER))
            self.ordered.append((source, target))
            self.snapshot = None

    # -- the whole

    @property
    def dag(self) -> nx.DiGraph[str]:
        """The nodes and edges as a networkx graph, built at first use and extended by `add` and `order`; see `follow_dag`."""
        if self._dag is None:
            import networkx as nx  # a fifth of the time that importing this package takes

            dag = self._dag = nx.DiGraph(name=self.name, arrays=self.arrays)
            dag.add_nodes_from((node.name, {"node": node}) for node in self.nodes)
            dag.add_edges_from((source, target, {"reason": reason}) for source, target, reason in self.edges())
        return self._dag

    @property
    def number_of_edges(self) -> int:
        """The number of edges."""
        return sum(map(len, self.predecessors)) if self._dag is None else self._dag.number_of_edges()

    def edges(self) -> Iterator[tuple[str, str, str]]:
        """Yield every edge as (source name, target name, text of the reason)."""
        names = [*self.index]
        texts = {reason: str(reason) for reason in set(chain.from_iterable(self.reasons))}
        for target, sources, reasons in zip(names, self.predecessors, self.reasons):
            for source, reason in zip(sources, reasons):
                yield names[source], target, texts[reason]

    @property
    def infers_all(self) -> bool:
        """Whether edges are inferred and the user removed none of them in `dag`, so that a file may omit them."""
        return self.infer and not self._removed

    def follow_dag(self) -> None:
        """Apply edges that the user added to or removed from `dag`; DeclarationError for added, removed or replaced nodes."""
        dag = self._dag
        if dag is None:
            return
        models = dict(dag.nodes(data="node"))
        if models.keys() != self.index.keys():
            self._refuse_nodes_by_hand(dag)
        for name, node in zip(self.index, self.nodes):
            if models[name] is not node:
                raise DeclarationError(
                    f"graph {self.name!r}: the model of node {name!r} was replaced in g.dag by hand, and edges were inferred with"
                    " the one before; declare the graph with the new one, or compile it and use set",
                    node=name,
                )
        if [*dag.in_edges(data="reason")] != [*self.edges()]:
            self._take_edges(dag)

    def _take_edges(self, dag: nx.DiGraph[str]) -> None:
        """Make the edges those of `dag`; those that the user has left alone keep their reasons."""
        found: list[dict[int, str]] = [{} for _ in self.nodes]
        for source, target, reason in dag.in_edges(data="reason"):
            found[self.index[target]][self.index[source]] = str(reason or AFTER)
        for at, (node, texts) in enumerate(zip(self.nodes, found)):
            known = self._removed.pop(at, {}) | dict(zip(self.predecessors[at], self.reasons[at]))
            edges = {
                source: known[source] if source in known and str(known[source]) == text else _by_hand(text)
                for source, text in texts.items()
            }
            removed = {source: reason for source, reason in known.items() if reason.inferred and edges.get(source) is not reason}
            if removed:
                self._removed[at] = removed
            sources, reasons = tuple(edges), tuple(edges.values())
            if (sources, reasons) == (self.predecessors[at], self.reasons[at]):
                continue
            self.predecessors[at], self.reasons[at], self.snapshot = sources, reasons, None
            after = tuple([name for name in node.after if self.index[name] in edges])
            if after != node.after:
                self.nodes[at] = dag.nodes[node.name]["node"] = node.changed(after=after)
        self.ordered = [pair for pair in self.ordered if dag.has_edge(*pair)]

    def _refuse_nodes_by_hand(self, dag: nx.DiGraph[str]) -> NoReturn:
        added = [name for name in dag if name not in self.index]
        if added:
            raise DeclarationError(
                f"graph {self.name!r}: node {added[0]!r} was put into g.dag by hand, where no model or accesses of it are known;"
                " declare it by a method, such as g.empty, or by g.add",
                node=str(added[0]),
            )
        missing = min(self.index.keys() - set(dag))
        raise DeclarationError(
            f"graph {self.name!r}: node {missing!r} was taken out of g.dag by hand, and other nodes' edges were inferred with it;"
            " declare the graph without it",
            node=missing,
        )


def _by_hand(text: str) -> Reason:
    """Return the reason of an edge that the user added to `dag` with this text."""
    return AFTER if text == str(AFTER) else Reason("", text)


_Described = tuple[np.ndarray[Any, Any] | None, tuple[int, ...], np.dtype[Any]]


def array_arguments(name: str, initial: Any, shape: Any, dtype: Any) -> _Described:
    """Return initial values (or None), shape and dtype of an array; omitted ones follow from the initial values."""
    with naming("array", name):
        if isinstance(shape, (str, type, np.dtype)):
            raise DeclarationError(
                f"a shape is an integer or a tuple of integers (got {shape!r}); the arguments are name, initial values, shape,"
                " dtype, so say shape= and dtype="
            )
        if initial is None:
            if shape is None or dtype is None:
                raise DeclarationError(
                    f"array {name!r} needs initial values, or shape= and dtype= (got shape={shape!r}, dtype={dtype!r})",
                    array=name,
                )
            return None, as_shape(shape), as_dtype(dtype)
        extents = initial if isinstance(initial, tuple) else (initial,)
        if shape is None and all(isinstance(extent, (int, np.integer)) for extent in extents):
            # np.zeros((16, 16)) is in everybody's fingers, and the same here would be an array of two values.
            raise DeclarationError(
                f"the second argument holds initial values, and {initial!r} looks like a shape; say shape={initial!r}, or give"
                " the values as a list or a NumPy array"
            )
        wanted_dtype = None if dtype is None else as_dtype(dtype)
        try:
            values = converted(initial, ndarray_of(initial).dtype if wanted_dtype is None else wanted_dtype)
        except (TypeError, ValueError, OverflowError) as error:
            raise DeclarationError(f"the initial values cannot be taken: {error}") from None
        values = own_copy(values.astype(as_dtype(values.dtype), copy=False))
        wanted = as_shape(values.shape if shape is None else shape)
        if wanted != values.shape:
            raise DeclarationError(
                f"array {name!r} has shape {wanted}, its initial values {values.shape}; give one of them", array=name
            )
        values.flags.writeable = False
        return values, values.shape, values.dtype
