"""GraphML through networkx: export for graph tools, and import.

Each node and edge has attributes that a tool can display (kind, what it does, why it waits). The attribute `data` holds the
node's line of the JSON form, and the graph's attribute `hipgraphdsl` the rest of that document, so that the import
is exact. A node's name is the one in its data: identifiers serve edges alone, and tools such as igraph write their own. Keys are
looked up for the kind of element that has them, because rustworkx numbers those of the graph, nodes and edges separately. An edge
that a tool adds becomes an `order` edge.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NoReturn
from xml.parsers import expat

import networkx as nx

from ...document.reader import Loader
from ...document.text import MAX_BYTES, LineOf, Place
from ...draft import Draft
from ...errors import DeclarationError
from ...nodes import all_kinds, is_node
from ...nodes.workflow import Workflow


def render(workflow: Workflow) -> str:
    """Return a workflow as GraphML; refuses what the JSON form refuses."""
    return "\n".join(nx.generate_graphml(to_networkx(workflow))) + "\n"


def to_networkx(workflow: Workflow) -> nx.DiGraph[str]:
    """Return a networkx graph whose attributes are all strings, as graph file formats require."""
    data = workflow.document()
    nodes = data.pop("nodes")
    dag: nx.DiGraph[str] = nx.DiGraph(name=workflow.name, hipgraphdsl=json.dumps(data))
    for node, line in zip(workflow.nodes, nodes):
        dag.add_node(node.name, kind=node.kind, what=node.describe(), data=json.dumps(line))
    for node, sources, reasons in zip(workflow.nodes, workflow.predecessors, workflow.reasons):
        for source, reason in zip(sources, reasons):
            dag.add_edge(workflow.nodes[source].name, node.name, reason=str(reason))
    return dag


def loads(
    text: str, arrays: Mapping[str, Any] | None = None, callbacks: Mapping[str, Callable[..., Any]] | None = None
) -> Workflow:
    """Return the workflow of a GraphML text that `render` wrote; parameters as for `Graph.from_json`."""
    if len(text) > MAX_BYTES:
        raise DeclarationError(f"a GraphML file has at most {MAX_BYTES // 2**20} MB (got {len(text) / 2**20:.1f} MB)")
    reader = _Reader()
    return from_networkx(reader.read(text), arrays=arrays, callbacks=callbacks, line_of=reader.line_of)


class _Reader:
    """A parser for GraphML that `render` wrote, and that a tool may have rewritten.

    A node without data is refused as soon as it is read, so that no graph is built from a hostile file.
    """

    def __init__(self) -> None:
        self.dag: nx.DiGraph[str] = nx.DiGraph()
        self.names: dict[tuple[str, str], str] = {}  # attribute names, by kind of element and key
        self.owner: dict[str, Any] = self.dag.graph  # attributes of the current element
        self.element = "graph"  # its kind
        self.node = ""
        self.key: str | None = None
        self.parts: list[str] = []
        self.edges: list[tuple[str, str]] = []
        self.lines: list[int] = []  # of the data of the nodes
        self.line = 1  # of the graph's own data
        self.parser = parser = expat.ParserCreate("utf-8", "}")
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        parser.StartDoctypeDeclHandler = lambda *_: self._refuse("a document type or entities are not read")

    def _refuse(self, why: str) -> NoReturn:
        raise DeclarationError(f"this is no GraphML of a workflow: line {self.parser.CurrentLineNumber}: {why}")

    def read(self, text: str) -> nx.DiGraph[str]:
        """Return the graph; each node has its attribute `data`."""
        try:
            self.parser.Parse(text.encode(), True)  # noqa: FBT003  # expat takes no keywords
        except (expat.ExpatError, UnicodeEncodeError) as error:
            raise DeclarationError(f"this is no GraphML of a workflow: {error}") from None
        except KeyError as error:
            self._refuse(f"an element lacks {error}")
        if "hipgraphdsl" not in self.dag.graph:
            self._refuse("the graph has no attribute 'hipgraphdsl'")
        self.dag.add_edges_from(self.edges)
        return self.dag

    def line_of(self, place: Place) -> int:
        """Return the line of the data that an element of the document is in: a node's, or the graph's."""
        match place:
            case ("nodes", int(index), *_):
                return self.lines[index]
        return self.line

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        match tag.rpartition("}")[2]:
            case "graph" if attributes.get("edgedefault") != "directed":
                self._refuse("its edges are undirected")
            case "key":
                self.names[attributes.get("for", "all"), attributes["id"]] = attributes.get("attr.name", "")
            case "node":
                self.node, self.owner, self.element = attributes["id"], {}, "node"
            case "edge":
                if attributes.get("directed") == "false":
                    self._refuse("an edge is undirected")
                self.edges.append((attributes["source"], attributes["target"]))
                self.owner, self.element = {}, "edge"
            case "data":
                key = attributes["key"]
                self.key = self.names.get((self.element, key)) or self.names.get(("all", key), "")
                if self.key == "data":
                    self.lines.append(self.parser.CurrentLineNumber)
                elif self.key == "hipgraphdsl":
                    self.line = self.parser.CurrentLineNumber
                self.parts = []

    def _text(self, text: str) -> None:
        if self.key in ("data", "hipgraphdsl"):
            self.parts.append(text)

    def _end(self, tag: str) -> None:
        match tag.rpartition("}")[2]:
            case "data" if self.key is not None:
                self.owner[self.key], self.key = "".join(self.parts), None
            case "node":
                if "data" not in self.owner:
                    self._refuse(f"node {self.node!r} has no attribute 'data'; nodes cannot be added in another tool")
                self.dag.add_node(self.node, data=self.owner["data"])
                self.owner, self.element = self.dag.graph, "graph"
            case "edge":
                self.owner, self.element = self.dag.graph, "graph"


def from_networkx(
    dag: nx.DiGraph[Any],
    *,
    name: str | None = None,
    infer: bool = True,
    arrays: Mapping[str, Any] | None = None,
    callbacks: Mapping[str, Callable[..., Any]] | None = None,
    line_of: LineOf | None = None,
) -> Workflow:
    """Return a workflow with the nodes and edges of a networkx graph; parameters as for `Graph.from_networkx`.

    `dag` either has node models as node attribute `node`, in order of declaration, like `Graph.dag`, or was read by networkx
    from a file that `render` wrote. With `infer`, edges are also inferred from what nodes read and write.
    `line_of` gives the lines of a file's elements, for errors.
    """
    if not isinstance(dag, nx.Graph) or not dag.is_directed() or dag.is_multigraph():
        raise DeclarationError(f"a workflow is made from a networkx.DiGraph (got {type(dag).__name__})")
    if "hipgraphdsl" in dag.graph:
        workflow = _from_attributes(dag, arrays, callbacks, line_of)
        draft, names = Draft.of(workflow), dict(zip(dag, workflow.index))
    else:
        names = {key: key for key in dag}
        draft = Draft(dag.graph.get("name") or "graph" if name is None else name, infer)
        for key, attributes in dag.nodes(data=True):
            node = attributes.get("node")
            if not is_node(node):
                raise DeclarationError(
                    f"node {key!r} of the networkx graph has no model; give it the attribute node=hg.KernelNode(...) or another",
                    node=str(key),
                )
            if node.name != key:
                raise DeclarationError(f"node {key!r} of the networkx graph holds a model named {node.name!r}", node=node.name)
            draft.declare_used(node, dag.graph.get("arrays", {}))
            draft.add(node)
    known = {(source, target) for source, target, _ in draft.edges()}
    for source, target in dag.edges():
        if (names[source], names[target]) not in known:
            draft.order(names[source], names[target])
    return Workflow.of(draft)


def _from_attributes(
    dag: nx.DiGraph[Any],
    arrays: Mapping[str, Any] | None,
    callbacks: Mapping[str, Callable[..., Any]] | None,
    line_of: LineOf | None,
) -> Workflow:
    nodes = []
    try:
        data = json.loads(dag.graph["hipgraphdsl"])
        for key, attributes in dag.nodes(data=True):
            if "data" not in attributes:
                raise DeclarationError(
                    f"node {key!r} has no attribute 'data'; nodes cannot be added in another tool", node=str(key)
                )
            node = json.loads(attributes["data"])
            if not isinstance(node, dict):
                raise DeclarationError(f"the data of node {key!r} is no object", node=str(key))
            nodes.append(node)
    except (ValueError, TypeError, RecursionError) as error:
        if isinstance(error, DeclarationError):
            raise
        raise DeclarationError(f"the workflow inside the networkx graph is damaged: {error}") from None
    if not isinstance(data, dict):
        raise DeclarationError("the workflow inside the networkx graph is damaged: it is no object")
    return Loader(all_kinds(), Workflow.of, arrays, callbacks).data({**data, "nodes": nodes}, line_of)
