"""Graph: a workflow under construction, and everything that can be done with it.

Methods import what declaring does not need at their first call, so that a program that only declares starts fast.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from .declaring import Declaring, caller
from .draft import Draft
from .errors import DeclarationError, HipGraphError
from .nodes import Node
from .nodes.workflow import Workflow
from .parts import load
from .progress import hidden, progress_bar
from .runtimes import RuntimeName, opened_runtime, target_of
from .target import Target

if TYPE_CHECKING:
    import networkx as nx
    from typing_extensions import Never

    from . import Family, Link, Ranks, Timeline
    from .checks import Report
    from .executable import Executable
    from .executable.arena import Arena
    from .plan.options import Batch, DebugOptions, Lanes, PlanOptions
    from .plan.steps import Plan
    from .runtimes.base import Runtime

_DRAWN_NODES = 80  # a notebook shows larger graphs as a table

Backend = Literal["explicit", "capture", "streams", "serial"]


class Graph(Declaring):
    """A workflow under construction.

    Nodes are declared in order; each method checks its own arguments, adds one node and returns its model. Edges are inferred
    from the bytes that each node reads and writes, in order of declaration.

    Parameters
    ----------
    name : str
        Name in messages, drawings and files.
    infer : bool
        False uses declared edges only; `check` then says which pairs of nodes race.
    """

    def __init__(self, name: str = "graph", *, infer: bool = True) -> None:
        self._draft = Draft(name, infer)

    @classmethod
    def from_workflow(cls, workflow: Workflow) -> Graph:
        """Return a graph that starts with the nodes, arrays and parameters of a workflow and can be extended.

        Raises
        ------
        DeclarationError
            If `workflow` is not a Workflow.
        """
        if not isinstance(workflow, Workflow):
            raise DeclarationError(f"a graph is made from a Workflow (got {type(workflow).__name__})")
        graph = cls.__new__(cls)
        graph._draft = Draft.of(workflow)
        return graph

    # -- what a graph can do -------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._draft.nodes)

    def __getitem__(self, name: str) -> Node:
        if not isinstance(name, str) or name not in self._draft.index:
            raise self._draft.no_node(name)
        return self._draft.nodes[self._draft.index[name]]

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    def __contains__(self, node: object) -> bool:
        if isinstance(node, Node):
            return any(known is node for known in self)
        return isinstance(node, str) and node in self._draft.index

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The models of all nodes in order of declaration."""
        return tuple(self._draft.nodes)

    def workflow(self) -> Workflow:
        """Return the current state as a frozen document; the same object until something changes.

        Raises
        ------
        DeclarationError
            If a node was added to `dag`, or removed from it, directly.
        """
        return Workflow.of(self._draft)

    def repeat(self, count: int, *, name: str | None = None) -> Graph:
        """Return a graph whose one launch does the work of `count` launches of this one, one after another.

        All passes share arrays and parameters. Node ``x`` becomes ``x.0``, ``x.1``, ... and waits for the nodes that its
        accesses depend on, in earlier passes too, so passes may overlap. Host, captured and eager nodes, events, semaphores and
        memory operations wait for those of the previous pass; so do nodes that access an array that others access as a
        parameter's default, and with ``infer=False`` all nodes. Array ``t`` of an alloc node becomes ``t.0``, ``t.1``, ..., and
        array ``x`` that child ``c`` does not share with its parent becomes ``c: x``, one for all passes.

        Parameters
        ----------
        count : int
            Number of launches whose work one launch does, at least 1.
        name : str, optional
            Name of the new graph; by default this one's and the count.

        Raises
        ------
        DeclarationError
            If `count` is not an int from 1, or there would be more than a million nodes.
        """
        from .repeating import repeated

        return Graph.from_workflow(repeated(self.workflow(), count, name))

    def check(self, target: str | Target | None = None) -> Report:
        """Check the workflow for faults; no device is needed.

        Parameters
        ----------
        target : str or Target, optional
            Also check the limits and known defects of a device: ``"cpu"``, ``"amd:gfx942"``, ``"amd:gfx942@7.2"``,
            ``"nvidia:sm_90"``.
        """
        from .checks import check_workflow

        return check_workflow(self.workflow(), None if target is None else Target.named(target))

    def plan(
        self,
        *,
        target: str | Target | None = None,
        options: PlanOptions | None = None,
        lanes: Lanes = "auto",
        batch: Batch = "auto",
        **unknown: Never,
    ) -> Plan:
        """Return the plan that `compile` would build: reduced edges, order, lanes, and the placement of temporaries.

        Parameters
        ----------
        target : str or Target, optional
            A device by name, as for `check`; by default the one that `compile` chooses.
        options : PlanOptions, optional
            What `compile` takes as `plan`.
        lanes, batch
            Short for these fields of `options`.

        Raises
        ------
        RuntimeUnavailable
            If no target is given and no runtime is available.
        """
        from .plan.options import PlanOptions, refuse_keywords
        from .plan.planning import make_plan

        if unknown:
            refuse_keywords(Graph.plan, "options", unknown)
        return make_plan(self.workflow(), target_of(target), PlanOptions.of(options, lanes, batch))

    def compile(
        self,
        runtime: RuntimeName | Runtime = "auto",
        backend: Backend = "explicit",
        *,
        plan: PlanOptions | None = None,
        lanes: Lanes = "auto",
        batch: Batch = "auto",
        device: int = 0,
        check: bool = True,
        debug: DebugOptions | None = None,
        memory: Arena | Family | None = None,
        arena: Arena | None = None,
        ranks: Ranks | None = None,
        progress: bool | None = None,
        **unknown: Never,
    ) -> Executable:
        """Build a relaunchable Executable from a snapshot of this graph.

        Parameters
        ----------
        runtime : {"auto", "amd", "nvidia", "cpu", "recorder"} or Runtime
            ``"auto"`` chooses amd if such a device is available, else nvidia likewise, else cpu.
        backend : {"explicit", "capture", "streams", "serial"}
        plan : PlanOptions, optional
            How the plan is made: lanes, copies and empty nodes joined, memory shared, launches merged.
        lanes, batch
            Short for these fields of `plan`: ``lanes=4`` for ``plan=PlanOptions(lanes=4)``.
        device : int
            The device of all arrays and nodes that do not name one.
        check : bool
            Raise CheckError if `check` finds an error.
        debug : DebugOptions, optional
            What finds faults while the workflow runs: marks of the nodes that have finished (`watch`), the sanitizer of runtime
            ``"cpu"`` (`sanitize`).
        memory, arena : Arena, optional
            Memory for temporaries that several Executables share, one of which runs at a time; both names mean the same.
        ranks : Ranks, optional
            The processes that share the graph's devices, from `hipgraphdsl.ranks`; each makes the same graph and calls. Devices
            are numbered across ranks, and copies between ranks become messages. The result is a `RankExecutable`.
        progress : bool, optional
            Show a progress bar; by default after a second, on a terminal or in a notebook. Logger ``hipgraphdsl`` reports times.

        Raises
        ------
        CheckError, RuntimeUnavailable, HipError, DeclarationError
        """
        from .checks import require_sound
        from .plan.options import DebugOptions, PlanOptions, refuse_keywords

        if unknown:
            refuse_keywords(Graph.compile, "plan", unknown)
        shared = {} if memory is None and arena is None else _shared(memory, arena, ranks)
        chosen = partial(PlanOptions.of, plan, lanes, batch)
        build, rank, heard = _builder(self.name, ranks, chosen, device)
        with heard, hidden(progress is False or rank > 0):
            options, debugging = chosen(), DebugOptions.of(debug)
            workflow, opened = self.workflow(), opened_runtime(runtime, device)
        if check and ranks is None:  # with ranks, each rank checks its own part
            require_sound(workflow, opened.target, device, backend)
        with progress_bar(f"compile {workflow.name}", progress if rank == 0 else False, 3 + len(workflow.modules)) as advance:
            note = ""
            if isinstance(options.lanes, str) and options.lanes == "measure":
                from .measuring import with_fastest_lanes

                advance("measure lanes")
                options, note = with_fastest_lanes(workflow, opened, backend, options, device=device)
            given = {"options": options, "debug": debugging, "device": device, "note": note, **shared}
            return build(workflow, opened, backend, check=check, report=advance, **given)

    def simulate(
        self,
        durations: Mapping[str, float] | Callable[[Node], float],
        engines: Mapping[str, int] | None = None,
        *,
        target: str | Target | None = None,
        batch: Batch = "auto",
        ranks: int | Sequence[int] | Ranks | None = None,
        link: Link | None = None,
        conditions: Mapping[str, int | bool] | None = None,
    ) -> Timeline:
        """Predict when each node runs on a machine with a few engines (list scheduling).

        Parameters
        ----------
        durations : mapping or callable
            Time of each node, by name, by kind (``"H2D"``, ``"D2H"``, ``"kernel"``, ...) or as a function of the node; any unit.
        engines : mapping, optional
            Number of engines of each kind; by default one each for ``"H2D"``, ``"D2H"`` and ``"kernel"``, on each device.
        target : str or Target, optional
            A device by name, as for `check`: nodes share a launch if `compile` would merge them there; without a target, none do.
        batch : bool or "auto"
            As for `compile`. A batch takes as long as its longest node, a chain as long as all of its nodes together; to change
            that, give the duration of the launch by its span's name.
        ranks : int, sequence of int or Ranks, optional
            Divide the devices among several processes, which need not exist: the number of processes with one device each, or
            each one's number of devices. Messages between them take the time that `link` gives; durations are microseconds then.
        link : Link, optional
            The link between every two ranks; required if there are messages.
        conditions : mapping, optional
            What conditional nodes run, by full name: ``{"loop": 3, "choose": 1, "maybe": True}`` runs the body of a loop three
            times, the body of a switch with that index (an index beyond the last body runs none), and the first body of an if.
            Each of these is expanded: its bodies' nodes are spans, ``"loop/0/x (pass 1)"`` in the second pass, as is each test of
            the condition, which takes ``durations["condition"]`` or no time. Any other such node is one span with a duration.

        Returns
        -------
        Timeline
            `Timeline.ranks` says how each rank spends the launch, `Timeline.links` has the messages between each two.
        """
        timeline: Timeline = load("timeline").simulated(
            self.workflow(), durations, engines, target=target, batch=batch, ranks=ranks, link=link, conditions=conditions
        )
        return timeline

    def export(self, path: str | os.PathLike[str], **options: Any) -> None:
        """Write the workflow to a file atomically; the extension selects the format.

        ======================  ============================================================================================
        ``.json``, ``.yaml``    the workflow itself, versioned; `from_json` loads it again
        ``.graphml``            for graph tools; `from_networkx` loads it again
        ``.hip``                a HIP C++ program that builds and launches the graph; options `backend`, `target`, `lanes`
        ``.py``                 a Python program that declares the workflow; reads ``STEM.NAME.npy`` for arrays of more than 4096
                                elements, which are written too
        ``.svg``, ``.png``      a drawing, by Graphviz; options `direction` (``"TB"``, ``"LR"``), `timeout_s`, for PNG `dpi`
        ``.dot``, ``.mmd``      the same drawing for Graphviz and Mermaid
        ``.html``               one interactive page, which needs no network
        ======================  ============================================================================================

        Parameters
        ----------
        path : str or path
        **options
            Those of the format. Drawings also take `fold` (equal parts become one box), `edges` (which are drawn), `lanes`
            (True, a number or a Plan), `critical` (durations: marks the longest path), `faults` (what `check` finds), `target`.

        Raises
        ------
        DeclarationError
            If the format or an option is unknown (the message lists the known ones), a package is missing, or the file cannot
            be written.
        """
        from .export import export_graph

        export_graph(self.workflow(), path, **options)

    def to_json(self) -> str:
        """Return the workflow as versioned JSON, one node a line."""
        return self.workflow().model_dump_json()

    @staticmethod
    def from_json(
        text: str,
        arrays: Mapping[str, Any] | None = None,
        callbacks: Mapping[str, Callable[..., Any]] | None = None,
        *,
        file: str | os.PathLike[str] | None = None,
    ) -> Graph:
        """Load a workflow; nothing is run, compiled or imported.

        Parameters
        ----------
        text : str
            What `to_json` returned.
        arrays : mapping, optional
            Values, by name, of arrays that the file holds only as a hash, and objects of external arrays.
        callbacks : mapping, optional
            Callables by import path, by function name or by node name.
        file : str or path, optional
            The file that the text was read from: `check` reports the line of a node in it. It is not opened.

        Raises
        ------
        DeclarationError
            If the text is not a workflow, has a newer version, is truncated or exceeds the limits.
        """
        return Graph.from_workflow(Workflow.model_validate_json(text, arrays=arrays, callbacks=callbacks, file=file))

    @staticmethod
    def from_networkx(dag: nx.DiGraph[Any], *, name: str | None = None, infer: bool = True) -> Graph:
        """Make a graph from a networkx graph whose nodes carry models (attribute `node`), or that was read from GraphML.

        Parameters
        ----------
        dag : networkx.DiGraph
            Nodes in order of declaration; its edges are kept.
        name : str, optional
            By default the networkx graph's.
        infer : bool
            Whether edges are also inferred from what nodes read and write.
        """
        return Graph.from_workflow(load("formats").from_networkx(dag, name=name, infer=infer))

    @staticmethod
    def from_capture(
        fn: Callable[..., Any],
        runtime: RuntimeName | Runtime = "auto",
        *,
        name: str = "captured",
        arrays: Executable | Mapping[str, Any] | None = None,
    ) -> Graph:
        """Capture the work that ``fn(stream)`` enqueues, and read it back as models.

        Parameters
        ----------
        fn : callable
            As for `captured`: `int(stream)` is the raw handle, `stream.runtime` the protocol's calls.
        runtime, name, arrays
            As for `from_handle`.

        Raises
        ------
        HipError
            If a call that `fn` makes cannot be captured, or `fn` leaves a forked stream unjoined.
        """
        return Graph.from_workflow(load("imports").import_capture(fn, runtime, name, arrays, caller()))

    @staticmethod
    def from_handle(
        handle: Any,
        runtime: RuntimeName | Runtime = "auto",
        *,
        name: str = "imported",
        arrays: Executable | Mapping[str, Any] | None = None,
    ) -> Graph:
        """Read a graph that exists in a runtime back into models; node names are derived from its nodes and reproducible.

        Edges are the graph's own (``infer=False``). Kernels are used by their handles, so the result compiles only for the
        same runtime, and their owner must keep them loaded. No runtime tells what a kernel reads and writes: its array
        arguments are addresses only, and `check` says so (HG604).

        Parameters
        ----------
        handle : int or object
            A hipGraph_t or CUgraph, as a number or an object of hip-python or cuda-bindings. It is only read, and not needed
            afterwards.
        runtime : str or Runtime
            The runtime that it belongs to.
        name : str
            Name of the new graph.
        arrays : dict or Executable, optional
            Known memory: names mapped to external arrays, to objects that share memory (as `external_array` takes them) or to
            Executables that have arrays of these names; or one Executable with all its arrays. Other memory of copies, fills
            and pointer arguments becomes external arrays of bytes, ``memory``, ``memory_2``, ...

        Raises
        ------
        DeclarationError
            If a node is of a kind that cannot be read back; it is named by its number and type.
        HipError
            If the runtime does not return a node's parameters.
        """
        return Graph.from_workflow(load("imports").import_handle(handle, runtime, name, arrays, caller()))

    def __str__(self) -> str:
        from .export import text

        return text.table(self.workflow())

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        """Show small graphs as a drawing in notebooks, where the extra `viz` is installed."""
        bundle = {"text/plain": str(self)}
        if 0 < len(self) <= _DRAWN_NODES:
            from .export import render

            with suppress(HipGraphError):  # without Graphviz the table is shown
                bundle["image/svg+xml"] = str(render(self.workflow(), ".svg"))
        return bundle

    def __repr__(self) -> str:
        return f"Graph({self.name!r}, {len(self)} nodes, {self._draft.number_of_edges} edges)"


def _shared(memory: Arena | Family | None, arena: Arena | None, ranks: Ranks | None) -> dict[str, Any]:
    """Return the argument of `Executable.build` for what an Executable shares with others."""
    given = memory if arena is None else arena
    from .executable.arena import Arena
    from .executable.memory import Sharing

    sharing = Sharing(given) if isinstance(given, Arena) else getattr(given, "sharing", None)
    if not isinstance(sharing, Sharing) or (memory is not None and memory is not given):
        raise DeclarationError(f"memory, or arena, is one hipgraphdsl.Arena (got memory={memory!r}, arena={arena!r})")
    if ranks is not None:
        raise DeclarationError("compile: an arena holds temporaries of one process; leave out memory or ranks")
    return {"sharing": sharing}


def _builder(
    name: str, ranks: Ranks | None, options: Callable[[], PlanOptions], device: int
) -> tuple[Callable[..., Executable], int, AbstractContextManager[Any]]:
    """Return the function that builds the Executable, this rank's number, and a context that tells other ranks of errors."""
    if ranks is None and not options().capture_collectives:
        from .executable import Executable

        return Executable.build, 0, nullcontext()
    built: tuple[Callable[..., Executable], int, AbstractContextManager[Any]] = load("ranks").builder(
        name, ranks, options, device
    )
    return built
