"""clang's syntax tree in JSON: nodes are dictionaries, positions are byte offsets in the text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

Node = dict[str, Any]


def documents(text: str) -> Iterator[Node]:
    """Yield the trees in clang's output, one after another, except those that exceed Python's recursion limit."""
    for document in re.findall(r"^\{.*?^\}", text, re.MULTILINE | re.DOTALL):
        with suppress(RecursionError):
            yield json.loads(document)


def children(node: Node) -> list[Node]:
    """Return a node's children."""
    return [n for n in (*node.get("inner", ()), *node.get("array_filler", ())) if n]


def walk(node: Node) -> Iterator[Node]:
    """Yield a node and all its descendants, in preorder."""
    yield node
    for child in children(node):
        yield from walk(child)


def named(node: Node) -> list[Node]:
    """Return the declarations that an expression refers to."""
    return [n["referencedDecl"] for n in walk(node) if n["kind"] == "DeclRefExpr"]


def start_of(node: Node) -> int:
    """Return the offset of a node's first byte."""
    return int(node["range"]["begin"]["offset"])


def end_of(node: Node) -> int:
    """Return the offset just past a node's last byte."""
    end = node["range"]["end"]
    return int(end["offset"]) + int(end["tokLen"])


def bare(node: Node) -> Node:
    """Return the node inside any parentheses and constant-expression wrappers."""
    while node["kind"] in ("ParenExpr", "ConstantExpr"):
        node = children(node)[0]
    return node


def control_of(node: Node) -> tuple[Node, Node, Node, list[Node]]:
    """Return the parts of an `if` or a loop: the init statement of `for`, the condition, the step of `for`, and the bodies."""
    inner = node["inner"]
    if node["kind"] == "ForStmt":
        return inner[0], inner[2], inner[3], inner[4:]
    if node["kind"] == "DoStmt":
        return {}, inner[1], {}, inner[:1]
    return {}, inner[0], {}, inner[1:]


def is_write(node: Node) -> bool:
    """Return whether a node assigns, increments or decrements."""
    kind = node["kind"]
    return bool(
        kind == "CompoundAssignOperator"
        or (kind == "BinaryOperator" and node["opcode"] == "=")
        or (kind == "UnaryOperator" and node["opcode"] in ("++", "--"))
    )


def place(node: Node, parent: Mapping[int, Node]) -> Node:
    """Return the outermost member or index expression that selects a part of a named variable, as in ``v.rows[i]``."""
    while True:
        above = parent[id(node)]
        kind = above["kind"]
        if kind == "ParenExpr" or (kind == "MemberExpr" and not above["isArrow"]):
            node = above
        elif kind == "ImplicitCastExpr" and above["castKind"] == "ArrayToPointerDecay":
            subscript = parent[id(above)]
            if subscript["kind"] != "ArraySubscriptExpr" or children(subscript)[0] is not above:
                return node
            node = subscript
        else:
            return node


def parents(node: Node) -> dict[int, Node]:
    """Map the `id` of each descendant to its parent node."""
    return {id(child): above for above in walk(node) for child in children(above)}


def is_read(node: Node, parent: Mapping[int, Node]) -> bool:
    """Return whether a name is only read."""
    above = parent[id(place(node, parent))]
    return above.get("castKind") == "LValueToRValue" or above["kind"] == "UnaryExprOrTypeTraitExpr"


def write_of(node: Node, parent: Mapping[int, Node]) -> Node | None:
    """Return the expression that writes a named variable; None if the use may do anything else with it."""
    node = place(node, parent)
    above = parent[id(node)]
    if not is_write(above) or children(above)[0] is not node:
        return None
    outer = parent[id(above)]
    ends = above.get("valueCategory") == "prvalue" or outer["kind"].endswith("Stmt")
    return above if ends or outer.get("castKind") == "LValueToRValue" else None


def type_of(node: Node) -> str:
    """Return the type of a declaration or an expression, with typedefs resolved."""
    kind = node["type"]
    return str(kind.get("desugaredQualType", kind["qualType"]))


def called(node: Node) -> str:
    """Return the name of the function that a node calls; empty if it is not a direct call of a function."""
    if node["kind"] != "CallExpr":
        return ""
    callee = children(node)[0]
    callee = children(callee)[0] if callee["kind"] == "ImplicitCastExpr" else callee
    reference = callee.get("referencedDecl", {})
    return str(reference.get("name", "")) if reference.get("kind") == "FunctionDecl" else ""


def edited(data: bytes, node: Node, edits: Mapping[tuple[int, int], str]) -> str:
    """Return the text of a node after replacing parts of it; `edits` maps (start, end) offsets to the new texts."""
    out, at = [], start_of(node)
    for (start, end), text in sorted(edits.items()):
        if at <= start < end_of(node):
            out += [data[at:start].decode(), text]
            at = end
    return "".join([*out, data[at : end_of(node)].decode()])
