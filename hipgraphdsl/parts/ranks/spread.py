"""Spread: what several ranks execute, child graphs and bodies of conditional nodes, in parts that each belong to one rank.

A child is replaced by its own nodes, each of which belongs to one rank. A conditional node stays one node, on all ranks: each
rank executes its part of the bodies, and all ranks must take the same decision. Each rank other than the condition's owner
therefore has a copy of the condition, a word, which the owner sends before the node and, in a loop, after the body's nodes that
write the condition. The host reads the words, because the host sends the messages in bodies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...arrays import Array, ArrayView, DeviceArray, HostArray
from ...draft import Draft
from ...errors import node_error
from ...hazards import Reason
from ...nodes import Node, node_of
from ...nodes.facets import Branch
from ...nodes.values import fitting, unused
from ...nodes.workflow import Level, Workflow


def replaced(workflow: Workflow, which: set[int], put: Callable[[Any, Draft], object]) -> Workflow:
    """Return a workflow in which several nodes replace each node of `which`, and each of them gets the edges of that node.

    Parameters
    ----------
    put : callable
        Takes a node to replace, and adds its replacements to a draft that has all arrays.
    """
    arrays, parameters = dict(workflow.arrays), dict(workflow.parameters)
    nodes: list[Any] = []
    made: dict[int, range] = {}
    edges: list[dict[int, Reason]] = []
    for i in workflow.order:
        first = len(nodes)
        before = {at: reason for p, reason in zip(workflow.predecessors[i], workflow.reasons[i]) for at in made[p]}
        if i in which:
            draft = Draft(workflow.name)
            draft.arrays, draft.parameters = arrays, parameters
            put(workflow.nodes[i], draft)
            nodes += draft.nodes
            for sources, reasons in zip(draft.predecessors, draft.reasons):
                edges.append({**before, **{first + source: reason for source, reason in zip(sources, reasons)}})
        else:
            nodes.append(workflow.nodes[i])
            edges.append(before)
        made[i] = range(first, len(nodes))
    found = Workflow(
        workflow.name, arrays, parameters, tuple(nodes),
        tuple(tuple(found) for found in edges), tuple(tuple(found.values()) for found in edges), workflow.infer, workflow.ordered,
    )  # fmt: skip
    if len(found.index) < len(nodes):
        name = next(node.name for i, node in enumerate(nodes) if found.index[node.name] != i)
        raise node_error(name, "what takes the place of a node that several ranks do needs this name; choose another one")
    return found


def word_name(node: str, rank: int) -> str:
    """Return the name of the array that holds a rank's copy of a condition."""
    return fitting(f"{node} (condition of rank {rank})")


def put_child(level: Level, reasons: Sequence[tuple[Reason, ...]], draft: Draft) -> None:
    """Add the nodes inside a child graph node to a draft, with bindings resolved; ``child/x`` is named ``child: x``.

    `reasons` are those of the child's edges. Unbound arrays are renamed in the same way; unbound parameters get their full
    names, ``child/x``.
    """
    inner, key = level.workflow, level.key
    own_arrays = {
        name: replace(array, name=fitting(f"{key}: {name}")) for name, array in inner.arrays.items() if name not in level.bind
    }
    own_parameters = {
        name: replace(value, name=f"{key}/{name}") for name, value in inner.parameters.items() if name not in level.bind
    }
    for array in own_arrays.values():
        _add_array(array, key, draft)
    draft.parameters.update((parameter.name, parameter) for parameter in own_parameters.values())
    arrays, parameters = {**level.bind, **own_arrays}, {**level.bind, **own_parameters}
    for node in inner.nodes:
        made = node.translated(arrays, parameters).changed(name=fitting(f"{key}: {node.name}"), after=())
        draft.nodes.append(made)
    draft.predecessors += inner.predecessors
    draft.reasons += reasons


def put_conditional(node: Node, level: Level, owner: int, firsts: Sequence[int], draft: Draft) -> None:
    """Add a conditional node of all ranks to a draft, with the copies that send the owner's condition to the other ranks.

    `level` is the level that contains the node; `firsts` are the numbers of the ranks' first devices.
    """
    branch = node.branch
    assert branch is not None
    if branch.decide == "device":
        raise node_error(
            node.name,
            "its bodies do work of several ranks, whose messages the host sends, so the host decides too; leave decide='device'"
            " out",
        )
    words: dict[int, Array] = {}
    for rank, first in enumerate(firsts):
        if rank != owner:
            word = DeviceArray(word_name(node.name, rank), (1,), branch.condition.dtype, device=first)
            words[rank] = _add_array(word, node.name, draft)
    told = _copies(node.name, branch.condition, words)
    bind: dict[str, Any] = {**branch.bind}
    loops = branch.mode == "while"
    bodies = [_telling(branch, inner, words, bind) if loops else _placed(inner) for inner in level.inner(node)]
    made = node.changed(**node.holding(bodies), bind=bind if loops else branch.bind, decide="host", after=())
    draft.nodes += (*told, made)
    draft.predecessors += (*((),) * len(told), tuple(range(len(told))))
    draft.reasons += (*((),) * len(told), tuple(Reason("RAW", word.name) for word in words.values()))


def _add_array(array: Array, node: str, draft: Draft) -> Array:
    """Add a generated array to a draft; refuse a name that the draft already has."""
    if array.name in draft.arrays:
        raise node_error(
            node, f"several ranks do it, which needs the name of array {array.name!r}; choose another one", array=array.name
        )
    draft.arrays[array.name] = array
    return array


def _copies(name: str, condition: ArrayView, words: Mapping[int, Array]) -> list[Node]:
    """Return the nodes that copy a condition to the words of other ranks."""
    return [
        node_of("memcpy", name=fitting(f"{name} (condition to rank {rank})"), dst=word.as_view(), src=condition)
        for rank, word in words.items()
    ]


def _telling(node: Branch, inner: Level, words: Mapping[int, Array], bind: dict[str, Any]) -> Workflow:
    """Return a loop body with copies of the condition after the nodes that write it; add their bindings to `bind`."""
    body, root = _placed(inner), inner.parent.resolve(node.condition.root)[1] if inner.parent is not None else node.condition.root
    taken = {name.partition(" (condition")[0] for name in (*body.index, *body.arrays)}
    label = unused(node.name, taken)  # a conditional node of the same name in the body would give its words the same names
    inside = {rank: replace(word, name=word_name(label, rank)) for rank, word in words.items()}
    bind.update((inside[rank].name, word.as_view()) for rank, word in words.items())
    name = fitting(f"{label} (condition)")
    kind: Any = HostArray if node.condition.root.on_host else DeviceArray
    condition = kind(name, (1,), node.condition.dtype, device=node.condition.root.device)
    bind[name] = node.condition
    copies = _copies(label, condition.as_view(), inside)
    writers = tuple(
        i
        for i, member in enumerate(inner.workflow.nodes)
        if any(access.is_write and inner.resolve(access.view.root)[1] is root for access in member.accesses)
    )
    return replace(
        body,
        arrays={**body.arrays, name: condition, **{word.name: word for word in inside.values()}},
        nodes=(*body.nodes, *copies),
        predecessors=(*body.predecessors, *(writers,) * len(copies)),
        reasons=(*body.reasons, *((Reason("RAW", name),) * len(writers),) * len(copies)),
    )


def _placed(inner: Level) -> Workflow:
    """Return a body whose bound arrays have the devices of the arrays that they are bound to."""
    body = inner.workflow
    arrays = {name: _on_device(array, inner.resolve(array)[1]) for name, array in body.arrays.items()}
    if all(array is body.arrays[name] for name, array in arrays.items()):
        return body
    nodes = tuple(node.translated(arrays, body.parameters) for node in body.nodes)
    return replace(body, arrays=arrays, nodes=nodes)


def _on_device(array: Array, outer: Any) -> Array:
    moves = isinstance(array, DeviceArray) and isinstance(outer, Array) and (array.device or 0) != (outer.device or 0)
    return replace(array, device=outer.device) if moves else array


def bindings(node: Branch, bodies: Iterable[Workflow], arrays: Mapping[str, Array]) -> dict[str, Any]:
    """Return the bindings of a node that any of the bodies uses, with a rank's own arrays."""
    known = list(bodies)
    found: dict[str, Any] = {}
    for name, value in node.bind.items():
        if any(name in body.arrays or name in body.parameters for body in known):
            found[name] = value.on(arrays.get(value.root.name, value.root)) if isinstance(value, ArrayView) else value
    return found
