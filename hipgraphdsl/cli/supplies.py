"""Values that `--param` and `--array` give."""

from __future__ import annotations

import argparse
import ast
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays import Parameter, from_file, kind_of
from ..errors import DeclarationError, listed, suggested
from ..graph import Graph
from ..nodes.workflow import Level, Workflow
from .arguments import add_repeated, pairs
from .files import load_npy
from .status import Misuse
from .workflows import FILES, load_graph


def add_supplies(parser: argparse.ArgumentParser) -> None:
    """Add the options that supply what a workflow file lacks: values of arrays, and callbacks."""
    add_repeated(parser, "--array", "NAME=FILE.npy", "values of an array that a file holds only as a hash")
    parser.add_argument(
        "--import-callbacks",
        action="store_true",
        help="import the Python callbacks that a JSON file names; only for files that you trust",
    )


def supplied_graph(options: argparse.Namespace) -> tuple[Graph, dict[str, np.ndarray[Any, Any]]]:
    """Return the graph, and the given arrays that are still to be written."""
    given = {name: load_npy(path) for name, path in pairs(options.array, "--array").items()}
    is_file = Path(options.workflow).suffix.lower() in FILES
    runs = not getattr(options, "dry_run", False)
    if options.import_callbacks and not is_file:
        raise Misuse("--import-callbacks is for workflow files; a Python file brings its own")
    graph = load_graph(options.workflow, given if is_file else None, options.import_callbacks)
    missing = graph.workflow().unbound()
    if missing and runs:
        lines = [f"graph {graph.name!r} cannot run: its file names values or callbacks that were not supplied:"]
        lines += [f"  {name}: {what}" for name, what in missing[:20]]
        lines.append("give arrays with --array NAME=FILE.npy and callbacks with --import-callbacks")
        raise DeclarationError("\n".join(lines))
    if is_file and runs:
        print(
            f"hipgraphdsl: {options.workflow} holds native code, which is compiled and run now; run only files that you trust",
            file=sys.stderr,
        )
    return graph, {} if is_file else {name: _for_array(graph, name, values) for name, values in given.items()}


def _for_array(graph: Graph, name: str, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the values of a file for an array of the graph; unchanged if it has none of that name, which `write` refuses."""
    level, inner = Level(graph.workflow()).at(name)
    array = level.workflow.arrays.get(inner)
    return values if array is None else from_file(values, array.dtype)


def parameter_values(graph: Graph, items: Sequence[str]) -> dict[str, Any]:
    """Return the values of --param, each read as its parameter's dtype."""
    found = {}
    for name, text in pairs(items, "--param").items():
        parameter = _parameter(graph.workflow(), name)
        found[name] = _parameter_value(parameter, text)
    for parameter in dict.fromkeys(used for node in graph.nodes for used in node.parameters):
        if parameter.default is None and parameter.name not in found:
            value = "@FILE.npy" if parameter.shape else "VALUE"
            raise Misuse(f"parameter {parameter.name!r} has no default: give --param {parameter.name}={value}")
    return found


def _parameter(workflow: Workflow, name: str) -> Parameter:
    level, inner = Level(workflow).at(name)
    known = level.workflow.parameters
    if inner not in known:
        meant = suggested(inner, known)
        raise Misuse(f"graph {level.workflow.name!r} has no parameter {inner!r}{meant}; its parameters are {listed(known)}")
    return known[inner]


def _parameter_value(parameter: Parameter, text: str) -> Any:
    dtype = parameter.dtype
    if parameter.shape:
        if not text.startswith("@"):
            raise Misuse(
                f"parameter {parameter.name!r} is an array of {dtype}{list(parameter.shape)}: give"
                f" --param {parameter.name}=@FILE.npy"
            )
        return from_file(np.ascontiguousarray(load_npy(text[1:])), dtype)
    try:
        kind = kind_of(dtype)
        if kind == "b":
            return {"true": True, "1": True, "false": False, "0": False}[text.lower()]
        if kind in "iu":
            return int(text, 0)
        if kind == "c":
            return complex(text)
        if dtype.names is None:
            number = float(text)
            if math.isinf(number) and "inf" not in text.lower():  # an overflow, which float() does not say
                raise ValueError
            return number
        fields = ast.literal_eval(text)
        if isinstance(fields, dict):
            if fields.keys() != set(dtype.names):
                raise ValueError
            fields = [fields[name] for name in dtype.names]
        return tuple(fields)
    except (KeyError, ValueError, TypeError, SyntaxError):
        raise Misuse(f"parameter {parameter.name!r} is {dtype}, and {text!r} is not a value of that dtype") from None
