"""GraphML, by networkx: for graph tools, and back.

Each node and edge has attributes that a tool can show (kind, what it does, why it waits); the attribute `data` is the
node's line of the JSON form, and the graph's attribute `hipgraphdsl` holds the rest of that document, so that loading
is exact. An edge that a tool adds becomes one of `order`.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from typing import Any, Final
from xml.etree import ElementTree

import networkx as nx

from ..document.text import MAX_BYTES
from ..draft import Draft
from ..errors import DeclarationError
from ..workflow import Workflow, is_node


def render(workflow: Workflow) -> str:
    """Return a workflow as GraphML; refuses what the JSON form does."""
    return "\n".join(nx.generate_graphml(to_networkx(workflow))) + "\n"


def to_networkx(workflow: Workflow) -> nx.DiGraph[str]:
    """Return a networkx graph whose attributes are all text, as graph formats want them."""
    data = workflow.document()
    nodes = data.pop("nodes")
    dag: nx.DiGraph[str] = nx.DiGraph(name=workflow.name, hipgraphdsl=json.dumps(data))
    for node, line in zip(workflow.nodes, nodes):
        dag.add_node(node.name, kind=node.kind, what=node.describe(), data=json.dumps(line))
    for node, sources, reasons in zip(workflow.nodes, workflow.predecessors, workflow.reasons):
        for source, reason in zip(sources, reasons):
            dag.add_edge(workflow.nodes[source].name, node.name, reason=reason)
    return dag


def loads(
    text: str, arrays: Mapping[str, Any] | None = None, callbacks: Mapping[str, Callable[..., Any]] | None = None
) -> Workflow:
    """Return the workflow that a GraphML text from `render` describes; parameters as for `Graph.from_json`."""
    if len(text) > MAX_BYTES:
        raise DeclarationError(f"a GraphML file has at most {MAX_BYTES // 2**20} MB (got {len(text) / 2**20:.1f} MB)")
    if "<!DOCTYPE" in text:  # which what `render` wrote holds only as escaped text
        raise _refusal("a document type or entities are not read")
    try:
        dag = _read(text)
    except (ElementTree.ParseError, UnicodeEncodeError) as error:
        raise _refusal(str(error)) from None
    return from_networkx(dag, arrays=arrays, callbacks=callbacks)


def _refusal(why: str) -> DeclarationError:
    return DeclarationError(f"this is no GraphML of a workflow: {why}")


_NEEDED: Final = {"key": {"id"}, "node": {"id"}, "edge": {"source", "target"}, "data": {"key"}}
"""Attributes that elements must have."""


def _read(text: str) -> nx.DiGraph[str]:
    """Return a graph that `render` wrote, and that a tool may have written again, each node with its attribute `data`.

    A node without data is refused where it stands, so that a hostile file does not become a graph first.
    """
    dag: nx.DiGraph[str] = nx.DiGraph()
    names: dict[str, str] = {}  # of attributes, by key
    edges = []
    for _, element in ElementTree.iterparse(io.BytesIO(text.encode())):  # when it ends
        tag, attributes = element.tag.rpartition("}")[2], element.attrib
        if lacking := _NEEDED.get(tag, set()) - attributes.keys():
            raise _refusal(f"an element {tag!r} lacks {', '.join(map(repr, sorted(lacking)))}")
        if tag == "key":
            names[attributes["id"]] = attributes.get("attr.name", "")
        elif tag == "edge":
            if attributes.get("directed") == "false":
                raise _refusal("an edge is undirected")
            edges.append((attributes["source"], attributes["target"]))
        elif tag in ("node", "graph"):
            said = {names.get(inner.attrib["key"], ""): inner.text or "" for inner in element.iterfind("{*}data")}
            if tag == "graph":
                if attributes.get("edgedefault") != "directed":
                    raise _refusal("its edges are undirected")
                dag.graph.update(said)
            elif "data" in said:
                dag.add_node(attributes["id"], data=said["data"])
            else:
                raise _refusal(f"node {attributes['id']!r} has no attribute 'data'; nodes cannot be added in another tool")
        if tag != "data":
            element.clear()
    if "hipgraphdsl" not in dag.graph:
        raise _refusal("the graph has no attribute 'hipgraphdsl'")
    dag.add_edges_from(edges)
    return dag


def from_networkx(
    dag: nx.DiGraph[Any],
    *,
    name: str | None = None,
    infer: bool = True,
    arrays: Mapping[str, Any] | None = None,
    callbacks: Mapping[str, Callable[..., Any]] | None = None,
) -> Workflow:
    """Return a workflow with the nodes and edges of a networkx graph; all as for `Graph.from_networkx`.

    `dag` has node models as node attribute `node`, in order of declaration, as `Graph.dag` has them, or is what networkx read
    from a file that `render` wrote. With `infer` edges are also inferred from what nodes read and write.
    """
    if not isinstance(dag, nx.Graph) or not dag.is_directed() or dag.is_multigraph():
        raise DeclarationError(f"a workflow is made from a networkx.DiGraph (got {type(dag).__name__})")
    if "hipgraphdsl" in dag.graph:
        draft = Draft.of(_from_attributes(dag, arrays, callbacks))
    else:
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
            draft.declare_used(node)
            draft.add(node)
    known = {(source, target) for source, target, _ in draft.edges()}
    for source, target in dag.edges():
        if (source, target) not in known:
            draft.order(source, target)
    return Workflow.of(draft)


def _from_attributes(
    dag: nx.DiGraph[Any], arrays: Mapping[str, Any] | None, callbacks: Mapping[str, Callable[..., Any]] | None
) -> Workflow:
    try:
        data = {**json.loads(dag.graph["hipgraphdsl"])}
        nodes = {key: json.loads(attributes.get("data", "null")) for key, attributes in dag.nodes(data=True)}
    except (ValueError, TypeError, RecursionError) as error:
        raise DeclarationError(f"the workflow inside the networkx graph is damaged: {error}") from None
    for key, node in nodes.items():
        if node is None:
            raise DeclarationError(f"node {key!r} has no attribute 'data'; nodes cannot be added in another tool", node=str(key))
        if not isinstance(node, dict) or node.get("name") != key:
            raise DeclarationError(f"node {key!r} holds the data of another node", node=str(key))
    return Workflow.from_data({**data, "nodes": [*nodes.values()]}, arrays, callbacks)
