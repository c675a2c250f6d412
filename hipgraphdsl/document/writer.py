"""Convert a workflow to the data of a workflow file."""

from __future__ import annotations

from typing import Any

from ..arrays import AllocArray
from ..nodes.values import Data, Names
from .parts import VERSION, array_data, module_data, parameter_data


def data_of(workflow: Any, *, strict: bool = True, values: bool = True) -> tuple[dict[str, Data], dict[str, Any]]:
    """Return what `Workflow.document` returns, with its parameters and errors, and a dict of the children by their keys in it."""
    names = Names(strict=strict, values=values)
    bodies: dict[str, dict[str, Data]] = {}
    done: set[Any] = set()

    def write(workflow: Any) -> dict[str, Data]:
        plain = len(workflow.documents) == 1
        for module in workflow.modules if plain else ():  # in order of first use
            names.key_of_module(module)
        for node in () if plain else workflow.nodes:
            for module in node.modules:
                names.key_of_module(module)
            for _, inner, _ in () if node.derives else node.held:
                if inner not in done:
                    done.add(inner)
                    data = write(inner)
                    key = names.key_of_workflow(inner)
                    bodies[key] = ({} if key == inner.name else {"name": inner.name}) | data
        return _body(workflow, names)

    body = write(workflow)
    out: dict[str, Data] = {"hipgraphdsl": VERSION, "name": workflow.name, "infer": body.pop("infer")}
    out["modules"] = {key: module_data(module, key, strict=strict) for key, module in names.modules.items()}
    out.update(body)
    if bodies:
        out["workflows"] = bodies
    return out, dict(names.workflows)


def _body(workflow: Any, names: Names) -> dict[str, Data]:
    """Return the data of one workflow alone; `names` collects modules and children."""
    return {
        "infer": workflow.infer,
        "arrays": [array_data(a, values=names.values) for a in workflow.arrays.values() if not isinstance(a, AllocArray)],
        "parameters": [parameter_data(parameter, names) for parameter in workflow.parameters.values()],
        "nodes": [node.to_data(names) for node in workflow.nodes],
        "order": [list(pair) for pair in workflow.plain_edges],
    }
