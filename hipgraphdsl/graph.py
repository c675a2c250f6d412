"""Graph: the networkx DAG and the methods that declare its nodes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, TypeVar

import networkx as nx

from .arrays import (
    AllocArray,
    Array,
    DeviceArray,
    ExternalArray,
    HostArray,
    Parameter,
    Viewable,
    as_device,
    as_devices,
    as_dict,
    as_dtype,
    as_shape,
)
from .checks import OF_GRAPHS, Report, check_workflow
from .draft import Draft, array_arguments
from .errors import CheckError, DeclarationError, HipGraphError
from .executable import Executable
from .export import export_graph, graphml, render, text
from .importing import Arrays, import_capture, import_handle
from .kernels import Kernel
from .measuring import fastest_lanes
from .nodes import (
    AllocNode,
    CapturedNode,
    EmptyNode,
    Event,
    EventRecordNode,
    EventWaitNode,
    FreeNode,
    HostNode,
    KernelNode,
    MemcpyNode,
    MemoryOp,
    MemoryOpsNode,
    MemsetNode,
    Node,
    Semaphore,
    SemaphoreSignalNode,
    SemaphoreWaitNode,
    callable_name,
)
from .plan import Lanes, Plan, make_plan
from .progress import progress_bar
from .runtimes import RuntimeName, opened_runtime, target_of
from .target import Target
from .timeline import Timeline, simulate
from .workflow import ChildGraphNode, ConditionalNode, Workflow, is_node

if TYPE_CHECKING:
    from types import FrameType

    from numpy.typing import ArrayLike, DTypeLike

    from .runtimes.base import Runtime

__all__ = ["Graph"]

_DRAWN_NODES = 80  # more are a table in a notebook

N = TypeVar("N", bound=Node)
After = Node | str | Sequence[Node | str]
Ignore = Mapping[str, str] | None
Shape = SupportsIndex | Sequence[SupportsIndex]
Extents = SupportsIndex | Parameter | Sequence[SupportsIndex | Parameter]
Devices = SupportsIndex | Iterable[SupportsIndex]
Backend = Literal["explicit", "capture", "streams", "serial"]


class Graph:
    """A workflow while it is being described.

    Nodes are declared in order; each method checks what one call can decide, adds one node and returns its model. Edges are
    inferred from what each node reads and writes, byte for byte, in order of declaration.

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
        """Return a graph that goes on where a workflow ends, with the same nodes, arrays and parameters.

        Raises
        ------
        DeclarationError
            If it is no workflow.
        """
        if not isinstance(workflow, Workflow):
            raise DeclarationError(f"a graph is made from a Workflow (got {type(workflow).__name__})")
        graph = cls.__new__(cls)
        graph._draft = Draft.of(workflow)
        return graph

    @property
    def name(self) -> str:
        """Name in messages, drawings and files."""
        return self._draft.name

    @name.setter
    def name(self, name: str) -> None:
        self._draft.rename(name)

    @property
    def infer(self) -> bool:
        """Whether edges are inferred from what nodes read and write."""
        return self._draft.infer

    @property
    def arrays(self) -> dict[str, Array]:
        """Arrays by name, those of alloc nodes included."""
        return self._draft.arrays

    @property
    def parameters(self) -> dict[str, Parameter]:
        """Parameters by name."""
        return self._draft.parameters

    @property
    def dag(self) -> nx.DiGraph[str]:
        """As networkx has it: node attribute `node`, the model; edge attribute `reason`, such as ``"RAW x"`` or ``"after"``.

        Edges that are put in or taken out by hand count from then on; nodes are declared by the methods only.
        """
        return self._draft.dag

    # -- arrays and parameters ---------------------------------------------------------------------------------------

    def host_array(
        self,
        name: str,
        initial: ArrayLike | None = None,
        shape: Shape | None = None,
        dtype: DTypeLike | None = None,
        *,
        pinned: bool = True,
        device: int | None = None,
    ) -> HostArray:
        """Declare host memory that lives as long as the Executable.

        Parameters
        ----------
        name : str
            Unique among the graph's arrays.
        initial : array_like, optional
            Values copied in now, written when the graph is compiled. Shape and dtype follow from it. An integer or a tuple of
            integers is refused, because it is most likely meant as `shape`.
        shape, dtype : optional
            Without `initial`; the memory is then zero at first. `dtype` also converts `initial`.
        pinned : bool
            Page-locked, so that copies are asynchronous and the kernels of every device reach it; False makes it pageable.
        device : int, optional
            The device that is current when the memory is made, which may decide where in the machine it lies.

        Raises
        ------
        DeclarationError
            If the name is taken, or shape and dtype are missing or impossible.
        """
        self._draft.require_new(name, "array", self.arrays)
        values, shape, dtype = array_arguments(name, initial, shape, dtype)
        return self._draft.add_array(HostArray(name, shape, dtype, pinned, values, device=as_device(device, f"array {name!r}")))

    def device_array(
        self,
        name: str,
        initial: ArrayLike | None = None,
        shape: Shape | None = None,
        dtype: DTypeLike | None = None,
        *,
        device: int | None = None,
        access: Devices = (),
    ) -> DeviceArray:
        """Declare device memory that lives as long as the Executable.

        Parameters
        ----------
        name, initial, shape, dtype
            As for `host_array`.
        device : int, optional
            The device that owns it; by default the one that the graph is compiled for.
        access : int or sequence of int, optional
            Other devices whose kernels may reach it. Copies between devices need none.
        """
        self._draft.require_new(name, "array", self.arrays)
        values, shape, dtype = array_arguments(name, initial, shape, dtype)
        where = f"array {name!r}"
        return self._draft.add_array(
            DeviceArray(name, shape, dtype, values, device=as_device(device, where), access=as_devices(access, where))
        )

    def external_array(self, name: str, obj: Any, *, device: int | None = None, access: Devices = ()) -> ExternalArray:
        """Use somebody else's memory in place: ``__cuda_array_interface__``, DLPack or the buffer protocol.

        The object is kept alive by the graph and its Executables. No copy is made. `device` and `access` are as for
        `device_array`; without `device` what the object's ``__dlpack_device__`` says is taken, where it has one.
        """
        self._draft.require_new(name, "array", self.arrays)
        where = f"array {name!r}"
        return self._draft.add_array(
            ExternalArray.wrap(name, obj, device=as_device(device, where), access=as_devices(access, where))
        )

    def param(self, name: str, dtype: DTypeLike, default: Any = None, shape: Shape = (), *, copy: bool = False) -> Parameter:
        """Declare a value that is bound at launch.

        Parameters
        ----------
        name : str
            The keyword of `Executable.launch`; an identifier other than ``stream``, ``after`` and ``timeout_s``.
        dtype : dtype
        default : optional
            Value of the first launch; without one that launch must give it.
        shape : optional
            Makes it stand where an array may; it is then bound to an array of that shape and dtype, which is used in place.
        copy : bool
            With a shape: launches give values, which are copied into page-locked memory of the Executable's own, and so is
            `default`. A launch that gives them waits for those before it, which may still read the values of theirs.

        Raises
        ------
        DeclarationError
            If the name is taken, reserved or no identifier, or the default is no value of the dtype.
        """
        return self._draft.add_parameter(name, dtype, default, shape, copy)

    # -- nodes -------------------------------------------------------------------------------------------------------

    def kernel(
        self,
        kernel: Kernel,
        grid: Extents,
        block: Extents,
        args: Sequence[Any] = (),
        *,
        shared_bytes: int = 0,
        cooperative: bool = False,
        priority: int | None = None,
        cluster: Shape | None = None,
        device: int | None = None,
        name: str | None = None,
        after: After = (),
        ignore: Ignore = None,
    ) -> KernelNode:
        """Add a kernel launch.

        Parameters
        ----------
        kernel : Kernel
            ``module["name"]``.
        grid, block : int, Parameter or a tuple of one to three of them
            Blocks of the grid, threads of a block.
        args : sequence
            One for each parameter of the kernel. ``const T*`` is read, ``T*`` is read and written, unless wrapped in
            `hg.reads`, `hg.writes` or `hg.updates`. So wrapped, a view may have gaps (a tile of a matrix): the kernel gets the
            address of its first element, and edges follow from the exact bytes of its elements.
        shared_bytes : int
            Dynamic shared memory of a block, in bytes.
        cooperative : bool
            All blocks are resident at once and may synchronise with each other.
        priority : int, optional
            Lower runs first, where the platform has priorities.
        cluster : int or a tuple of one to three int, optional
            Blocks of a thread block cluster, on NVIDIA from sm_90; at most 8, and divisors of the grid's extents.
        device : int, optional
            The device that runs it; by default the one whose memory its arrays are.
        name, after, ignore
            As for every node: its unique name, nodes that it must follow, diagnostics to leave out with the reason.

        Raises
        ------
        DeclarationError
            If an extent is 0, a block has over 1024 threads, or an argument's count, kind, dtype or range is wrong.
        """
        return self._new(
            KernelNode,
            name,
            getattr(kernel, "name", "kernel"),
            after,
            ignore,
            kernel=kernel,
            grid=grid,
            block=block,
            args=args,
            shared_bytes=shared_bytes,
            cooperative=cooperative,
            priority=priority,
            cluster=cluster,
            device=device,
        )

    def memcpy(
        self,
        dst: Viewable,
        src: Viewable,
        *,
        device: int | None = None,
        name: str | None = None,
        after: After = (),
        ignore: Ignore = None,
    ) -> MemcpyNode:
        """Add a copy of elements; the direction follows from the arrays. Between devices it is a peer copy.

        Parameters
        ----------
        device : int, optional
            The device that does it; by default the destination's, else the source's.

        Raises
        ------
        DeclarationError
            If dtypes or shapes differ, or no single 3-D pitched copy can express it.
        """
        return self._new(MemcpyNode, name, "memcpy_" + _root_name(dst), after, ignore, dst=dst, src=src, device=device)

    def memset(
        self,
        dst: Viewable,
        value: Any = 0,
        *,
        device: int | None = None,
        name: str | None = None,
        after: After = (),
        ignore: Ignore = None,
    ) -> MemsetNode:
        """Set every element of an array or view to `value`, in its dtype."""
        return self._new(MemsetNode, name, "memset_" + _root_name(dst), after, ignore, dst=dst, value=value, device=device)

    def alloc(
        self,
        array: str,
        shape: Shape,
        dtype: DTypeLike,
        *,
        device: int | None = None,
        access: Devices = (),
        name: str | None = None,
        after: After = (),
        ignore: Ignore = None,
    ) -> AllocNode:
        """Add a node that makes device memory while the graph runs; the node stands wherever an array may.

        Parameters
        ----------
        array : str
            Name of the array.
        device, access : optional
            As for `device_array`.
        """
        self._draft.require_new(array, "array", self.arrays)
        where = f"array {array!r}"
        memory = AllocArray(
            array, as_shape(shape), as_dtype(dtype), device=as_device(device, where), access=as_devices(access, where)
        )
        return self._new(AllocNode, name, "alloc_" + array, after, ignore, array=memory)

    def free(self, array: Viewable, *, name: str | None = None, after: After = (), ignore: Ignore = None) -> FreeNode:
        """Add a node that returns what an alloc node made."""
        return self._new(FreeNode, name, "free_" + _root_name(array), after, ignore, array=array)

    def host(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        *,
        reads: Sequence[Any] | None = None,
        writes: Sequence[Any] | None = None,
        name: str | None = None,
        after: After = (),
        ignore: Ignore = None,
    ) -> HostNode:
        """Add a Python callable, called with one NumPy view for each array in `args`.

        Without `reads` and `writes` it updates every array in `args`. Its exception is raised at the next `synchronize()`.
        """
        return self._new(
            HostNode, name, callable_name(fn).strip("<>"), after, ignore, fn=fn, args=args, reads=reads, writes=writes
        )

    def captured(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        *,
        reads: Sequence[Any] | None = None,
        writes: Sequence[Any] | None = None,
        device: int | None = None,
        name: str | None = None,
        after: After = (),
        ignore: Ignore = None,
    ) -> CapturedNode:
        """Add whatever ``fn(stream, *args)`` issues on a stream, as one node."""
        return self._new(
            CapturedNode,
            name,
            callable_name(fn).strip("<>"),
            after,
            ignore,
            fn=fn,
            args=args,
            reads=reads,
            writes=writes,
            device=device,
        )

    def record(self, event: str | Event, *, name: str | None = None, after: After = (), ignore: Ignore = None) -> EventRecordNode:
        """Add an event record; `after` says what it marks the end of."""
        return self._new(EventRecordNode, name, "record_" + getattr(event, "name", str(event)), after, ignore, event=event)

    def wait(self, event: str | Event, *, name: str | None = None, after: After = (), ignore: Ignore = None) -> EventWaitNode:
        """Add an event wait; it follows the last earlier record of the event in this graph."""
        return self._new(EventWaitNode, name, "wait_" + getattr(event, "name", str(event)), after, ignore, event=event)

    def empty(self, *, name: str | None = None, after: After = (), ignore: Ignore = None) -> EmptyNode:
        """Add a node that does nothing but order others."""
        return self._new(EmptyNode, name, "empty", after, ignore)

    def child(
        self,
        graph: Graph | Workflow,
        bind: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        after: After = (),
        ignore: Ignore = None,
    ) -> ChildGraphNode:
        """Add a snapshot of another graph as one node.

        Parameters
        ----------
        graph : Graph or Workflow
        bind : mapping, optional
            The child's arrays and parameters, by name, to this graph's arrays, views, parameters or values.
        """
        return self._new(ChildGraphNode, name, getattr(graph, "name", "child"), after, ignore, workflow=graph, bind=bind)

    def signal_semaphore(
        self, semaphore: str | Semaphore, value: int = 1, *, name: str | None = None, after: After = (), ignore: Ignore = None
    ) -> SemaphoreSignalNode:
        """Add a node that raises an external semaphore to `value`."""
        return self._new(
            SemaphoreSignalNode,
            name,
            "signal_" + getattr(semaphore, "name", str(semaphore)),
            after,
            ignore,
            semaphore=semaphore,
            value=value,
        )

    def wait_semaphore(
        self, semaphore: str | Semaphore, value: int = 1, *, name: str | None = None, after: After = (), ignore: Ignore = None
    ) -> SemaphoreWaitNode:
        """Add a node that waits until an external semaphore has reached `value`."""
        return self._new(
            SemaphoreWaitNode,
            name,
            "wait_" + getattr(semaphore, "name", str(semaphore)),
            after,
            ignore,
            semaphore=semaphore,
            value=value,
        )

    def memory_ops(
        self, ops: MemoryOp | Sequence[MemoryOp], *, name: str | None = None, after: After = (), ignore: Ignore = None
    ) -> MemoryOpsNode:
        """Add writes and waits of single 4- or 8-byte elements, made by `hg.write_value` and `hg.wait_value`."""
        return self._new(MemoryOpsNode, name, "memory_ops", after, ignore, ops=ops)

    def conditional(
        self,
        mode: Literal["if", "while", "switch"],
        condition: Viewable,
        bodies: Graph | Workflow | Sequence[Graph | Workflow],
        bind: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        after: After = (),
        ignore: Ignore = None,
    ) -> ConditionalNode:
        """Add workflows that run as a 32-bit integer says, which the device reads when the node is reached.

        Parameters
        ----------
        mode : {"if", "while", "switch"}
            ``"if"`` runs the first body where the condition is not 0, else the second if there is one; ``"while"`` runs its
            body again and again, until the condition is 0; ``"switch"`` runs the body of that number, if there is one.
        condition : array or view
            One 32-bit integer in memory that kernels reach.
        bodies : Graph, Workflow, or sequence of them
            Snapshots. A graph runs kernels, copies, fills, child graphs and conditionals there; backends ``"streams"`` and
            ``"serial"`` run anything, and let the host read the condition.
        bind : mapping, optional
            As for `child`, for all bodies. What is not bound is called ``<node>/<number of the body>/<array>``.
        """
        return self._new(
            ConditionalNode,
            name,
            f"{mode}_{_root_name(condition)}",
            after,
            ignore,
            mode=mode,
            condition=condition,
            bodies=bodies,
            bind=bind,
        )

    def add(self, node: Node, after: After = ()) -> Node:
        """Add a model made by hand, or one of another graph that uses only arrays of this one.

        Returns
        -------
        Node
            The model that was added: `node`, or a copy with the additional `after`.
        """
        if not isinstance(node, Node):
            raise DeclarationError(f"graph {self.name!r} takes node models (got {type(node).__name__})")
        if not is_node(node):
            raise DeclarationError(
                f"graph {self.name!r} takes nodes of the package's own classes, which checks, backends and files know;"
                f" {node.name!r} is a {type(node).__name__}: use the class that it inherits from",
                node=node.name,
            )
        extra = self._draft.names_of(after)
        if extra or node.source is None:
            node = node.changed(after=tuple(dict.fromkeys((*node.after, *extra))), source=node.source or _caller())
        self._draft.add(node)
        return node

    def order(self, *nodes: Node | str) -> None:
        """Make each of the nodes wait for the one before it."""
        for source, target in pairwise(self._draft.names_of(nodes)):
            self._draft.order(source, target)

    # -- how nodes are added -------------------------------------------------------------------------------------------

    def _new(self, kind: type[N], name: str | None, base: str, after: After, ignore: Ignore, **fields: Any) -> N:
        """Add a node of these fields; without a name it is called `base`, with a number behind it if that is taken."""
        draft = self._draft
        if after is not None and (type(after) is not tuple or after):
            fields["after"] = draft.names_of(after)
        if ignore is not None:
            fields["ignore"] = as_dict(ignore, f"graph {self.name!r}: ignore", " from codes to reasons") or None
        node = kind(name=draft.default_name(base) if name is None else name, source=_caller(), **fields)
        draft.add(node)
        return node

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
        """All models in order of declaration."""
        return tuple(self._draft.nodes)

    def workflow(self) -> Workflow:
        """Return the frozen document as it stands now; the same one until something has changed.

        Raises
        ------
        DeclarationError
            If a node was put into `dag`, or taken out of it, by hand.
        """
        return Workflow.of(self._draft)

    def check(self, target: str | Target | None = None) -> Report:
        """Look for faults in the description; no device is needed.

        Parameters
        ----------
        target : str or Target, optional
            Also check the limits and known defects of a device: ``"cpu"``, ``"amd:gfx942"``, ``"amd:gfx942@7.2"``,
            ``"nvidia:sm_90"``.
        """
        return check_workflow(self.workflow(), None if target is None else Target.named(target))

    def plan(self, *, target: str | Target | None = None, lanes: Lanes = "auto", join: bool = True, pack: bool = True) -> Plan:
        """Return what would be lowered: reduced edges, order, lanes, and where temporaries lie.

        Parameters
        ----------
        target : str or Target, optional
            A device by name, as for `check`; by default the one that `compile` takes.
        lanes, join, pack
            As for `compile`.

        Raises
        ------
        RuntimeUnavailable
            If no target is given and no runtime is there.
        """
        return make_plan(self.workflow(), target_of(target), lanes=lanes, join=join, pack=pack)

    def compile(
        self,
        runtime: RuntimeName | Runtime = "auto",
        backend: Backend = "explicit",
        *,
        lanes: Lanes = "auto",
        join: bool = True,
        device: int = 0,
        check: bool = True,
        pack: bool = True,
        watch: bool = False,
        progress: bool | None = None,
    ) -> Executable:
        """Build a relaunchable Executable from a snapshot of this graph.

        Parameters
        ----------
        runtime : {"auto", "amd", "nvidia", "cpu", "recorder"} or Runtime
            ``"auto"`` takes amd where a device answers, else nvidia, else cpu.
        backend : {"explicit", "capture", "streams", "serial"}
        lanes : "auto", int, None or "measure"
            How many sequences the nodes are gathered into; None keeps the declared shape. ``"measure"`` tries a handful on the
            device, without host callbacks, and keeps the fastest.
        join : bool
            False keeps one runtime node for each declared node.
        device : int
            The device of all that names none.
        check : bool
            Raise CheckError if `check` finds an error.
        pack : bool
            Let arrays of alloc nodes share memory where the plan's order keeps all of their uses apart; the Executable then holds
            them, and their nodes are left out. False makes and returns each by its own nodes, as backend ``"streams"`` always
            does, because its launches may run beside each other.
        watch : bool
            Let each node leave a mark in page-locked memory when it has finished, so that a timeout, Ctrl-C or a device's fault
            names the nodes that had not, on every runtime. A kernel of one thread follows each node, and the nodes of children
            stand in their place; `stats.nodes` counts these kernels.
        progress : bool, optional
            Show a bar with what is being done. By default it appears after a second, on a terminal or in a notebook only. Logger
            ``hipgraphdsl`` says what was compiled and how long it took (INFO), and each stage's time (DEBUG).

        Raises
        ------
        CheckError, RuntimeUnavailable, HipError, DeclarationError
        """
        workflow = self.workflow()
        opened = opened_runtime(runtime, device)
        if check:
            report = check_workflow(workflow, opened.target, device)
            if any(d.code not in OF_GRAPHS or backend in ("explicit", "capture") for d in report.errors):
                raise CheckError(report)
        note = ""
        stages = 3 + len({kernel.module for node in workflow.nodes for kernel in node.kernels})
        with progress_bar(f"compile {self.name}", progress, stages) as advance:
            if isinstance(lanes, str) and lanes == "measure":
                advance("measure lanes")
                lanes, note = fastest_lanes(workflow, opened, backend, join=join, device=device)
            return Executable.build(
                workflow, opened, backend, lanes=lanes, join=join, device=device, pack=pack, note=note, watch=watch,
                report=advance,
            )  # fmt: skip

    def simulate(
        self, durations: Mapping[str, float] | Callable[[Node], float], engines: Mapping[str, int] | None = None
    ) -> Timeline:
        """Predict when each node runs on a machine with a few engines (list scheduling).

        Parameters
        ----------
        durations : mapping or callable
            Time of each node, by name, by kind (``"H2D"``, ``"D2H"``, ``"kernel"``, ...) or as a function of the node; any unit.
        engines : mapping, optional
            How many of each engine there are; by default one for ``"H2D"``, ``"D2H"`` and ``"kernel"`` each.
        """
        return simulate(self.workflow(), durations, engines)

    def export(self, path: str | os.PathLike[str], **options: Any) -> None:
        """Write the workflow as a file, whole or not at all; the extension names the format.

        ======================  ============================================================================================
        ``.json``, ``.yaml``    the workflow itself, versioned; `from_json` loads it again
        ``.graphml``            for graph tools; loads again
        ``.hip``                a HIP C++ program that builds and launches the graph; options `backend`, `target`, `lanes`
        ``.py``                 a Python program that declares the workflow
        ``.svg``, ``.png``      a drawing, by Graphviz; options `direction` (``"TB"``, ``"LR"``), `timeout_s`, for PNG `dpi`
        ``.dot``, ``.mmd``      the same drawing for Graphviz and Mermaid
        ``.html``               one page to look around in, which needs no network
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
            If there is no such format or option (it names those that are there), a package is missing, or the file cannot be
            written.
        """
        export_graph(self.workflow(), path, **options)

    def to_json(self) -> str:
        """Return the workflow as versioned JSON, one node a line."""
        return self.workflow().model_dump_json()

    @staticmethod
    def from_json(
        text: str, arrays: Mapping[str, Any] | None = None, callbacks: Mapping[str, Callable[..., Any]] | None = None
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

        Raises
        ------
        DeclarationError
            If the text is no workflow, of a newer version, truncated or beyond the limits.
        """
        return Graph.from_workflow(Workflow.model_validate_json(text, arrays=arrays, callbacks=callbacks))

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
        return Graph.from_workflow(graphml.from_networkx(dag, name=name, infer=infer))

    @staticmethod
    def from_capture(
        fn: Callable[..., Any], runtime: RuntimeName | Runtime = "auto", *, name: str = "captured", arrays: Arrays = None
    ) -> Graph:
        """Capture what ``fn(stream)`` issues, and read it back as models.

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
        return Graph.from_workflow(import_capture(fn, runtime, name, arrays, _caller()))

    @staticmethod
    def from_handle(
        handle: Any, runtime: RuntimeName | Runtime = "auto", *, name: str = "imported", arrays: Arrays = None
    ) -> Graph:
        """Read a graph that exists in a runtime back into models; names follow from its nodes and are the same each time.

        Edges are the graph's own (``infer=False``). Kernels are used by their handles, so the result compiles only for the
        same runtime, and whoever loaded them must keep them. No runtime tells what a kernel reads and writes: its array
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
            What memory is known: names with external arrays, with objects that share memory (as `external_array` takes them) or
            with the Executables that have arrays of these names; or one Executable with all that it has. Other memory of
            copies, fills and pointer arguments becomes external arrays of bytes, ``memory``, ``memory_2``, ...

        Raises
        ------
        DeclarationError
            If a node is of a kind that cannot be read back; it is named by its number and type.
        HipError
            If the runtime refuses to tell a node's parameters.
        """
        return Graph.from_workflow(import_handle(handle, runtime, name, arrays, _caller()))

    def __str__(self) -> str:
        return text.table(self.workflow())

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        """Show small graphs as a drawing in notebooks, where the extra `viz` is installed."""
        bundle = {"text/plain": str(self)}
        if 0 < len(self) <= _DRAWN_NODES:
            with suppress(HipGraphError):  # without Graphviz the table is shown
                bundle["image/svg+xml"] = str(render(self.workflow(), ".svg"))
        return bundle

    def __repr__(self) -> str:
        return f"Graph({self.name!r}, {len(self)} nodes, {self._draft.number_of_edges} edges)"


def _root_name(obj: Any) -> str:
    root = getattr(obj, "root", None) or getattr(obj, "array", None) or obj
    return str(getattr(root, "name", "array"))


def _caller() -> tuple[str, int]:
    """Return file and line of the first frame outside this module."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    return ("<unknown>", 0) if frame is None else (frame.f_code.co_filename, frame.f_lineno)
