"""A standalone HIP C++ program: kernels, arrays, the graph built node by node or captured, options, files and timing.

Data flow: `Workflow` -> `Plan` -> a backend's own `build`, on a runtime that writes its calls (`calls`) with the names from
`scopes` -> functions that build graphs (`blocks`) and launch them (`launches`) -> the program.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from typing import Any, Final

from ...backends import backend_named
from ...defects import with_quirks
from ...errors import DeclarationError, HipError, node_error
from ...nodes.workflow import Workflow
from ...plan.options import Lanes, PlanOptions
from ...plan.planning import make_plan
from ...printed import counted
from ...target import Target
from .blocks import GraphFunctions
from .kernels import HEADERS
from .launches import LaunchWriter
from .parts import INCLUDES, PARTS, SEGMENT_PARTS, cuda_names, needed_parts
from .scopes import Handles
from .text import comment, ctype_of, quoted, section, without_double_blanks


def render(
    workflow: Workflow,
    *,
    backend: str = "explicit",
    target: str = "amd:gfx942",
    lanes: Lanes = "auto",
    stem: str | None = None,
) -> str:
    """Return a workflow as a HIP C++ program.

    Parameters
    ----------
    backend : {"explicit", "capture"}
        Whether the program builds the graph node by node, or records it from streams.
    target : str
        The device to plan for.
    lanes : "auto", int or None
        As for `Graph.compile`.
    stem : str, optional
        Prefix of the names of the files that the program reads; on export, the file's own stem.

    Raises
    ------
    DeclarationError
        If the backend or target is unknown, or a node cannot be part of a program; the message names it and a remedy.
    """
    program = Program(workflow, backend, target, lanes, stem)
    try:
        return program.text()
    finally:
        program.handles.close()


def companions(workflow: Workflow, *, stem: str) -> dict[str, bytes]:
    """Return the ``.npy`` files that the program reads, by name: the initial values of arrays that have no short form."""
    handles = Handles(workflow, Target.named("cpu"), _plain(stem or workflow.name), captures=False)
    try:
        return handles.arrays.files()
    finally:
        handles.close()


def _plain(stem: str) -> str:
    return re.sub(r"[^\w.-]", "_", stem, flags=re.ASCII)


class Program:
    """One program, with methods that generate its parts."""

    def __init__(self, workflow: Workflow, backend: str, target: str, lanes: Lanes, stem: str | None) -> None:
        if backend not in ("explicit", "capture"):
            raise DeclarationError(f"a .hip program's backend is 'explicit' or 'capture' (got {backend!r})")
        self.workflow = workflow
        self.backend = backend
        self.target = replace(with_quirks(Target.named(target)), conditional_nodes=False)
        _require_one_device(workflow)
        _require_fixed_views(workflow)
        self.stem = _plain(stem or workflow.name)
        self.file = f"{stem or self.stem}.hip"
        self.handles = Handles(workflow, self.target, self.stem, backend == "capture")
        self.arrays = self.handles.arrays
        self.kernels = self.handles.sources
        self.graphs = GraphFunctions(self.handles)
        self.launches = LaunchWriter(self.handles, self.graphs)
        inline = backend != "explicit" or "child_order" in self.target.quirks
        options = PlanOptions(lanes=lanes, pack=False, batch=False, programmatic=False, inline=inline)
        self.plan = make_plan(workflow, self.target, options)

    def _build(self) -> list[str]:
        """Run the backend, and return the functions that repeat its calls."""
        try:
            program = backend_named(self.backend)(self.plan, self.handles.top)
        except HipError as error:
            raise DeclarationError(f"node {error.node!r}: {error.text}", node=error.node) from None
        return self.launches.text(program)

    def text(self) -> str:
        """Return the text of the program."""
        build = self._build()
        own = self._own_things()
        functions = self.handles.functions.text()
        declarations = self._declarations()
        parts = _used_parts([*declarations, *functions, *build, *own])
        kernels = self.kernels.text()
        sections: dict[str, list[str]] = {}
        for part in needed_parts(parts, SEGMENT_PARTS if self.plan.cut else PARTS):
            sections.setdefault(part.section, []).extend((*part.lines, ""))
        helpers, files = sections.values()
        inner = "\n".join([*helpers, *declarations, *files, *functions, *build, *own, *kernels])
        shim = cuda_names(inner, "\n".join(kernels), self.handles.functions.any_on_stream)
        driver = "add_memory_ops" in parts
        tables = ["// What differs from node to node in loops.", *self.graphs.tables, ""] if self.graphs.tables else []
        lines = [
            *self._head(" -lcuda" if driver else "", bool(functions)),
            *_includes(shim, driver, self.kernels.headers, inner),
            *kernels,
            "namespace program {",
            "",
            "static int device = 0;  // that everything runs on: --device N",
            *section("Errors and helpers"),
            *helpers,
            *declarations,
            *(section("Functions for you to write") if functions else []),
            *functions,
            *section("The graph" if self.plan.cut is None else "The graphs"),
            *tables,
            *build,
            *section("Files and options"),
            *files,
            *section("Before and after"),
            *own,
            "}  // namespace program",
            "",
            "int main(int argc, char** argv) { return program::run(program::itself, argc, argv); }",
            "",
        ]
        return "\n".join(line.rstrip() for line in without_double_blanks(lines)) + "\n"

    def _head(self, cuda: str, to_write: bool) -> list[str]:
        name, stem, file = self.workflow.name, self.stem, shlex.quote(self.file)
        how = "recorded from streams" if self.backend == "capture" else "built node by node"
        if self.plan.cut is None:
            what = f"A HIP graph of {counted(len(self.plan.steps), 'node')}, {how}, as a program of its own"
        else:
            graphs = counted(self.launches.count, "HIP graph")
            what = f"{graphs}, {how}, and what the host does between them, as a program of its own"
        extra = "".join(f" {shlex.quote(option)}" for option in self.kernels.flags)
        own = "".join(f" --cxx-option={shlex.quote(option)}" for option in self.kernels.flags)
        lines = [
            name,
            "",
            f"{what}. Written by hipgraphdsl.",
            "",
            f"  AMD GPUs     hipcc -std=c++17 -O2{extra} {file} -o {stem}",
            f"  NVIDIA GPUs  nvcc -std=c++17 -O2 -arch=native{extra} -x cu {file} -o {stem}{cuda}",
            f"  any CPU      hipgraphdsl build {file} -o {stem}{own}",
            "",
            f"./{stem} --help says which options it takes; --repeat 100 measures it.",
        ]
        if to_write:
            lines += ["", "Its host functions are yours to write: look for NOT_WRITTEN."]
        if files := self.arrays.files():
            lines += ["", f"It reads {', '.join(files)} from the current folder, or from --data-dir."]
        return [*comment("\n".join(lines)), ""]

    def _declarations(self) -> list[str]:
        symbols, events = self.handles.symbols, self.handles.events_by_name
        variables = [f"static {ctype_of(symbol.dtype)}* {name};" for symbol, name in symbols.items()]
        named = [f"static hipEvent_t {name};  {comment(event)[0]}" for event, name in events.items()]
        return [
            *self.arrays.declarations(["", "// Variables of the device: their addresses.", *variables] if variables else []),
            *self.arrays.parameters(),
            *(section("Events") if named else []),
            *named,
            "",
        ]

    def _own_things(self) -> list[str]:
        """Return the program-specific input of the shared `run`: initial values, options and their help, events."""
        symbols, events = self.handles.symbols, self.handles.events_by_name
        first = [
            *(f"SYMBOL({self.kernels.reference(symbol)}, {name});" for symbol, name in symbols.items()),
            *self.arrays.first_values(),
            *(f'CHECK(hipEventCreate(&{name}), "");' for name in events.values()),
        ]
        options, told, arrays = self.arrays.options()
        text = [f"usage: {self.stem} [options]", "", *told, *_USAGE, "", "arrays:", *arrays]
        return [
            "// Gives arrays their first values; an array without any holds zeros.",
            "static void initialise() {",
            *(f"  {line}" for line in first),
            "}",
            "",
            "static const Program itself = {",
            *(f'    {quoted(line)[:-1]}\\n"' for line in text[:-1]),
            f'    {quoted(text[-1])[:-1]}\\n",',
            "    arrays, {" + ",\n    ".join(options) + f"}}, initialise, {self.launches.entry}}};",
            "",
        ]


_USAGE: Final = [
    "  --in NAME=FILE.npy    first values of an array",
    "  --out NAME=FILE.npy   write an array after the last launch",
    "  --out-dir DIR         write every array there, each as NAME.npy",
    "  --data-dir DIR        where the program's own .npy files are (default: the current folder)",
    "  --repeat N            launches (default: 1); each goes on from what the one before has left",
    "  --warm-up N           launches before those that are measured (default: 0)",
    "  --device N            the device that it runs on (default: 0)",
    "  --quiet               print nothing but errors",
]


def _used_parts(lines: list[str]) -> set[str]:
    """Return the helpers that the program's own lines use."""
    text = "\n".join(line for line in lines if not line.lstrip().startswith("//"))
    return {"run"} | (set(re.findall(r"\b[A-Za-z_]\w*(?=[({<])", text)) & set(PARTS))


_COMPLEX: Final = "#include <complex>"
"""This header includes C++'s streams, a sixth of the compile time; few programs need it."""


def _includes(shim: list[str], driver: bool, headers: list[str], code: str) -> list[str]:
    cuda = ["#include <cuda.h>"] * driver + ["#include <cuda_runtime.h>"]
    cuda += [f"#include <{HEADERS[name][0]}>" for name in headers]
    return [
        "#if defined(__CUDACC__)  // HIP's names on CUDA: those that stand below",
        *dict.fromkeys(cuda),
        *shim,
        "#else",
        "#include <hip/hip_runtime.h>",
        *(["#if !defined(HIP_CPU)", *(f"#include <{name}>" for name in headers), "#endif"] if headers else []),
        "#endif",
        "",
        *(line for line in INCLUDES if "std::complex" in code or line != _COMPLEX),
        "",
    ]


def _require_fixed_views(workflow: Workflow) -> None:
    """Refuse a workflow in which launches decide where views lie."""
    for document in workflow.documents:
        for node in document.nodes:
            view = node.moving if node.takes_moving else None
            if view is not None:
                raise node_error(
                    node.name,
                    f"where {view.name!r} lies, a launch decides, and an exported program has its views fixed; give the kernel"
                    " the array and the index",
                    array=view.root.name,
                )


def _require_one_device(workflow: Workflow) -> None:
    """Refuse a workflow that uses several devices, or a device other than the first; name the array or node that does so."""
    if len(workflow.devices_with(0)) == 1:
        return
    named: list[tuple[str, Any]] = [("array", array) for document in workflow.documents for array in document.arrays.values()]
    named += [("node", node) for document in workflow.documents for node in document.nodes]
    for kind, thing in named:
        if device := getattr(thing, "device", None):
            raise DeclarationError(
                f"{kind} {thing.name!r} is on device {device}, and an exported program runs on one, which its option --device"
                " chooses; leave device= out of arrays and nodes"
            )
