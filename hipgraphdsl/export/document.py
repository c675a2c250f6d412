"""A workflow as plain data: what JSON and YAML hold. The forms are described in `json.py`."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from ..arrays import AllocArray, Array, DeviceArray, ExternalArray, HostArray, Parameter, UnboundValues
from ..errors import DeclarationError
from ..kernels import ForeignModule, Module
from ..nodes.values import MAX_VALUES, Data, Names, Unstorable, base64_text, dtype_data, memory_data
from ..workflow import Workflow

__all__ = ["MAX_CHILD_DEPTH", "VERSION", "document", "documents", "ordered_edges", "sha256_of"]

VERSION = 1
"""Version of the format; a file of a newer one is refused."""

MAX_CHILD_DEPTH = 16
"""Child graphs inside child graphs."""


def document(workflow: Workflow, *, strict: bool = True) -> dict[str, Data]:
    """Return a workflow as plain data, in the order in which `dumps` writes it.

    Parameters
    ----------
    strict : bool
        False puts ``{"python": text}`` where something has no form in a file; such data is for people and does not
        load.

    Raises
    ------
    DeclarationError
        As `dumps`.
    """
    return _Writer(workflow, strict).document()


def documents(workflow: Workflow) -> tuple[dict[str, Data], dict[str, Workflow]]:
    """Return `document`, not strict, and the child workflows by their key in it."""
    writer = _Writer(workflow, strict=False)
    data = writer.document()
    return data, dict(writer.workflows)


class _Writer(Names):
    """Turns one workflow, with its children and modules, into plain data."""

    def __init__(self, workflow: Workflow, strict: bool) -> None:
        super().__init__(strict=strict)
        self.root = workflow
        self.bodies: dict[int, dict[str, Data]] = {}
        self.depth = 0

    def document(self) -> dict[str, Data]:
        for module in self.root.modules:
            self.key_of_module(module)
        body = self._body(self.root)
        out: dict[str, Data] = {"hipgraphdsl": VERSION, "name": self.root.name}
        out["infer"] = body.pop("infer")
        out["modules"] = {key: self._module(module, key) for key, module in self.modules.items()}
        out.update(body)
        if self.workflows:
            out["workflows"] = {
                key: ({} if key == child.name else {"name": child.name}) | self.bodies[id(child)]
                for key, child in self.workflows.items()
            }
        return out

    def _module(self, module: Module, key: str) -> Data:
        if isinstance(module, ForeignModule) and not self.strict:
            return {"foreign": module.owner.name}
        return _module_data(module, key)

    def _body(self, workflow: Workflow) -> dict[str, Data]:
        if self.depth > MAX_CHILD_DEPTH:
            raise DeclarationError(f"graph {self.root.name!r} has child graphs nested deeper than {MAX_CHILD_DEPTH}")
        out: dict[str, Data] = {"infer": workflow.infer}
        out["arrays"] = [_array_data(array) for array in workflow.arrays.values() if not isinstance(array, AllocArray)]
        out["parameters"] = [self._parameter(parameter) for parameter in workflow.parameters.values()]
        out["nodes"] = [node.to_data(self) for node in workflow.nodes]
        out["order"] = [list(pair) for pair in ordered_edges(workflow)]
        return out

    def _prepare_workflow(self, workflow: Workflow) -> None:
        self.depth += 1
        self.bodies[id(workflow)] = self._body(workflow)
        self.depth -= 1

    def _parameter(self, parameter: Parameter) -> dict[str, Data]:
        out: dict[str, Data] = {"name": parameter.name, "dtype": dtype_data(parameter.dtype)}
        if parameter.shape:
            out["shape"] = list(parameter.shape)
        if parameter.copy:
            out["copy"] = True
        if parameter.default is not None:
            try:
                out["default"] = self.value_data(parameter.default)
            except Unstorable as fault:
                raise DeclarationError(
                    f"the default of parameter {parameter.name!r} cannot be stored in a file: {fault}", array=parameter.name
                ) from None
        return out


def ordered_edges(workflow: Workflow) -> list[tuple[str, str]]:
    """Return the plain edges: those of `order`, and those that were put into the DAG by hand."""
    found = dict.fromkeys(workflow.ordered)
    for node, sources, reasons in zip(workflow.nodes, workflow.predecessors, workflow.reasons):
        for source, reason in zip(sources, reasons):
            if not reason.startswith(("RAW ", "WAR ", "WAW ", "event ")[3 * (not workflow.infer) :]):
                name = workflow.nodes[source].name
                if name not in node.after:
                    found[(name, node.name)] = None
    return list(found)


def _array_data(array: Array) -> dict[str, Data]:
    out: dict[str, Data] = {"name": array.name, "kind": array.kind, **memory_data(array)}
    if isinstance(array, HostArray) and not array.pinned:
        out["pinned"] = False
    if isinstance(array, ExternalArray):
        out["location"] = array.location
        if not array.writeable:
            out["writeable"] = False
    if isinstance(array, (HostArray, DeviceArray)) and array.initial is not None:
        initial = array.initial
        if isinstance(initial, UnboundValues):
            out["sha256"] = initial.sha256
        elif initial.size > MAX_VALUES:
            out["sha256"] = sha256_of(initial)
        else:
            values = _numbers(initial)
            if values is None:
                out["base64"] = base64_text(initial.tobytes())
            else:
                out["values"] = values
    return out


def sha256_of(values: np.ndarray[Any, Any]) -> str:
    """Return the hash of the bytes, C order, in hexadecimal."""
    return hashlib.sha256(np.ascontiguousarray(values).reshape(-1).view("u1").data).hexdigest()


def _numbers(values: np.ndarray[Any, Any]) -> list[Any] | None:
    """Return the elements, C order, as numbers that load to the same bytes, or None where there are none."""
    kind = values.dtype.kind
    if kind in "biu":
        return values.reshape(-1).tolist()
    if kind == "f" and bool(np.isfinite(values).all()):
        if values.dtype.itemsize == 8:
            return values.reshape(-1).tolist()
        return [float(str(value)) for value in values.reshape(-1)]
    return None


def _module_data(module: Module, key: str) -> dict[str, Data]:
    out = module.to_dict()
    if out["name"] == key:
        del out["name"]
    if "source" in out:
        out["source"] = out["source"].split("\n")
    if "structs" in out:
        out["structs"] = {name: dtype_data(dtype) for name, dtype in module.structs.items()}
    return out
