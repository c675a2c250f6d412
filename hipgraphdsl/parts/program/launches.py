"""The graphs of a HIP C++ program; if there are several, also the order of their launches and the host's work between them.

Data flow: a plan -> the backend's program, with one graph per segment of a plan that is cut -> a function that builds each
graph (`blocks`), and the statements of one launch, all on one stream. Bodies of conditional nodes are plans themselves; their
statements are nested in a loop or a branch.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...backends.operations import CallEager, RunConditional
from ...backends.program import GraphProgram, Program
from ...backends.segmented import SegmentedProgram
from ...runtimes.data import ConditionalMode
from .blocks import GraphFunctions
from .calls import Block
from .scopes import Handles
from .text import Piece, Statement, function_text, quoted, sized, wrapped


class LaunchWriter:
    """Writes the functions that build a program's graphs and perform its launches."""

    def __init__(self, handles: Handles, graphs: GraphFunctions) -> None:
        self.handles = handles
        self.graphs = graphs
        self.entry = "build_graphs, launch_all"
        """The initializers of the last members of `Program` in parts/program/program.h."""
        self._made: dict[str, str] = {}
        """Variable of an executable graph -> expression that creates it; graphs with alloc nodes precede those that use them."""

    @property
    def count(self) -> int:
        """Number of graphs."""
        return len(self._made)

    def text(self, program: Program) -> list[str]:
        """Return the functions that build the graphs of a backend's program and, if there are several, perform one launch."""
        if isinstance(program, GraphProgram):
            block = self._block(program)
            self.graphs.build(block, "build_graph", self.graphs.loads())
            self.entry = f"build_graph, {block.instantiation}"
            return self.graphs.functions
        launch = self._lines(program)
        made = [f"{name} = {expression};" for name, expression in self._made.items()]
        kept = [
            f'CHECK(hipMalloc((void**)&{place.name}, {sized(nbytes, place.dtype)}), "");' for place, nbytes in self.handles.kept()
        ]
        return [
            *self.graphs.functions,
            *(f"static hipGraphExec_t {name};" for name in self._made),
            "",
            *function_text("build_graphs()", [*self.graphs.loads(), *kept, *made], "void"),
            "// One launch: everything is put on one stream, in an order that the edges allow.",
            *function_text("launch_all(hipStream_t stream)", [part for line in launch for part in wrapped(line)], "void"),
        ]

    def _lines(self, program: Program) -> list[str]:
        """Return the statements that launch a graph, or segments with the host's work between them."""
        prefix = program.scope.prefix
        if isinstance(program, GraphProgram):
            return [self._graph(program, prefix[:-1])] if program.plan.steps else []
        assert isinstance(program, SegmentedProgram)
        lines: list[str] = []
        for step, done, bodies in program.parts():
            name = prefix + step.name
            if isinstance(done, GraphProgram):
                lines.append(self._graph(done, name))
            elif isinstance(done, CallEager):
                if done.waits:
                    lines.append(f"CHECK(hipStreamSynchronize(stream), {quoted(name)});")
                done.call(0)
                lines.append(_plain([*self.handles.writer.between.pop(), ";"]))
            elif isinstance(done, RunConditional):
                lines += self._conditional(done, bodies, name)
        return lines

    def _graph(self, program: GraphProgram, name: str) -> str:
        """Generate the function that builds a graph, and return the statement that launches it."""
        block = self._block(program)
        block.prefix = program.scope.prefix
        variable = self.handles.new_outer(name, "graph")
        function = self.handles.new_outer(f"build_{variable}", "graph")
        self.graphs.build(block, function)
        self._made[variable] = f"instantiate({function}(), {block.instantiation})"
        return f'CHECK(hipGraphLaunch({variable}, stream), "");'

    def _block(self, program: GraphProgram) -> Block:
        """Return the block of a graph, with the steps that it consists of."""
        block = self.handles.writer.blocks[program.graph]
        block.steps, block.nodes, block.scope = program.plan.steps, program.nodes, program.scope
        return block

    def _conditional(self, run: RunConditional, programs: Sequence[Program], name: str) -> list[str]:
        """Return the loop or branch that implements a conditional node."""
        word = _plain(["word_of(", *self.handles.writer.places.pointer(run.condition), f", stream, {quoted(name)})"])
        bodies = [_indented(self._lines(program)) for program in programs]
        if run.mode is ConditionalMode.SWITCH:
            cases = [_indented([f"case {k}:", *body, "  break;"]) for k, body in enumerate(bodies) if body]
            return [f"switch ({word}) {{", *(line for case in cases for line in case), "}"]
        if run.mode is ConditionalMode.WHILE:
            if run.times > 1:
                bodies[0] = _indented([f"for (int n = 0; n < {run.times}; ++n) {{", *bodies[0], "}"])
            return [f"while ({word}) {{", *bodies[0], "}"]
        otherwise = ["} else {", *bodies[1]] if bodies[1:] else []
        return [f"if ({word}) {{", *bodies[0], *otherwise, "}"]


def _indented(lines: list[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def _plain(pieces: list[Piece]) -> str:
    return Statement(pieces, "").plain()
