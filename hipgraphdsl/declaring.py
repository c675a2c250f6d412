"""Declaring: the methods that declare the arrays, parameters and nodes of a graph."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import CodeType
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, TypedDict, TypeVar

from . import nodes
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
    as_int,
    as_rank,
    as_shape,
    ceil_div,
    naming,
)
from .draft import Draft, array_arguments
from .errors import DeclarationError, suggested
from .kernels import Kernel
from .nodes import AllocNode, FreeNode, KernelNode, MemcpyNode, MemsetNode, Node, is_node
from .nodes.workflow import Workflow

if TYPE_CHECKING:
    from types import FrameType

    import networkx as nx
    from numpy.typing import ArrayLike, DTypeLike
    from typing_extensions import Unpack

    from .nodes import (
        CapturedNode,
        EagerNode,
        EmptyNode,
        Event,
        EventRecordNode,
        EventWaitNode,
        HostNode,
        MemoryOp,
        MemoryOpsNode,
        Semaphore,
        SemaphoreSignalNode,
        SemaphoreWaitNode,
    )
    from .nodes.children import ChildGraphNode, ConditionalNode
    from .nodes.collective import CollectiveNode, Does, Fold


# Modules whose frames `caller` skips between the user's call and the node.
_OWN = (__name__, f"{__package__}.graph")

N = TypeVar("N", bound=Node)
T = TypeVar("T")
After = Node | str | Sequence[Node | str]
Ignore = Mapping[str, str] | None
Shape = SupportsIndex | Sequence[SupportsIndex]
Extents = SupportsIndex | Parameter | Sequence[SupportsIndex | Parameter]
Devices = SupportsIndex | Iterable[SupportsIndex]


_SPELLED = {
    "After": "Node | str | Sequence[Node | str]",
    "Ignore": "Mapping[str, str] | None",
    "Shape": "int | Sequence[int]",
    "Extents": "int | Parameter | Sequence[int | Parameter]",
    "Devices": "int | Iterable[int]",
    "Fold": "Literal['sum', 'prod', 'max', 'min']",
    "Viewable": "DeviceArray | HostArray | ExternalArray | AllocNode | ArrayView | Parameter | Symbol",
    "Declaring": "Graph",
    "SupportsIndex": "int",
}
"""What signatures show in place of types that only this package has names for."""


class NodeOptions(TypedDict, total=False):
    """Options of every method that adds a node: a unique name, nodes that it must follow, diagnostics to suppress."""

    name: str | None
    after: After
    ignore: Ignore


def _spelled_out(owner: type[T]) -> type[T]:
    """Make the method signatures that `help`, completion and the documentation show: public types, and the options of nodes."""

    def taken(*, name: str | None = None, after: After = (), ignore: Ignore = None) -> None: ...

    def public(parameter: inspect.Parameter) -> inspect.Parameter:
        text = re.sub(r"\b(?:" + "|".join(_SPELLED) + r")\b", lambda name: _SPELLED[name[0]], str(parameter.annotation))
        return parameter.replace(annotation=parameter.empty if parameter.annotation is parameter.empty else text)

    options = inspect.signature(taken).parameters.values()
    method: Any
    for method in filter(inspect.isfunction, vars(owner).values()):
        if method.__name__.startswith("_"):
            continue
        signature = inspect.signature(method)
        own = [parameter for parameter in signature.parameters.values() if parameter.annotation != "Unpack[NodeOptions]"]
        shown = own if len(own) == len(signature.parameters) else [*own, *options]
        method.__signature__ = signature.replace(parameters=[*map(public, shown)])
    return owner


@_spelled_out
class Declaring:
    """The methods that declare arrays, parameters and nodes; each checks what a single call can decide."""

    _draft: Draft

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
        """Arrays by name, including those of alloc nodes."""
        return self._draft.arrays

    @property
    def parameters(self) -> dict[str, Parameter]:
        """Parameters by name."""
        return self._draft.parameters

    @property
    def dag(self) -> nx.DiGraph[str]:
        """The graph in networkx: node attribute `node`, the model; edge attribute `reason`, such as ``"RAW x"`` or ``"after"``.

        It is built at its first use, which imports networkx, and the same object follows every later declaration. Edges that you
        add or remove in it take effect at the next `check`, `plan`, `compile` or export; nodes are only declared by the methods.
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
        rank: int | Literal["all"] = 0,
    ) -> HostArray:
        """Declare host memory that lives as long as the Executable.

        Parameters
        ----------
        name : str
            Unique among the graph's arrays.
        initial : array_like, optional
            Values, copied by this call and written when the graph is compiled; they determine shape and dtype. An integer or a
            tuple of integers is rejected, because it is most likely meant as `shape`.
        shape, dtype : optional
            Required without `initial`; the memory is then initialized to zero. `dtype` also converts `initial`.
        pinned : bool
            Page-locked, so that copies are asynchronous and kernels of every device can access it; False makes it pageable.
        device : int, optional
            The device that is current at allocation, which may determine where in the machine the memory is.
        rank : int or "all"
            The process that owns it if the graph is compiled for several processes; with ``"all"`` each has its own.

        Raises
        ------
        DeclarationError
            If the name is taken, or shape and dtype are missing or impossible.
        """
        self._draft.require_new(name, "array", self.arrays)
        values, shape, dtype = array_arguments(name, initial, shape, dtype)
        what = f"array {name!r}"
        array = HostArray(name, shape, dtype, pinned, values, as_rank(rank, what), device=as_device(device, what))
        return self._draft.add_array(array)

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
            Other devices whose kernels may access it. Copies between devices do not need it.
        """
        self._draft.require_new(name, "array", self.arrays)
        values, shape, dtype = array_arguments(name, initial, shape, dtype)
        return self._draft.add_array(DeviceArray(name, shape, dtype, values, **_where(name, device, access)))

    def external_array(self, name: str, obj: Any, *, device: int | None = None, access: Devices = ()) -> ExternalArray:
        """Use your own or another library's memory in place: ``__cuda_array_interface__``, DLPack or the buffer protocol.

        The graph and its Executables keep the object alive. No copy is made, and nothing waits for work that another library has
        queued on the memory. `device` and `access` are as for `device_array`; `device` defaults to the object's
        ``__dlpack_device__``, if it has one. Host memory takes no `access`. Arrays of JAX on the CPU are taken as read-only, and
        JAX copies one that it would donate while the graph holds it, without a warning.

        Raises
        ------
        DeclarationError
            If the name is taken, the object offers no memory that can be used in place, or `access` is given for host memory.
        """
        self._draft.require_new(name, "array", self.arrays)
        return self._draft.add_array(ExternalArray.wrap(name, obj, **_where(name, device, access)))

    def param(
        self,
        name: str,
        dtype: DTypeLike,
        default: Any = None,
        shape: Shape = (),
        *,
        copy: bool = False,
        min: int | None = None,  # noqa: A002  # as expressions name them: minimum and maximum
        max: int | None = None,  # noqa: A002  # likewise
    ) -> Parameter:
        """Declare a value that is bound at launch.

        Parameters
        ----------
        name : str
            The keyword of `Executable.launch`; an identifier other than ``stream``, ``after`` and ``timeout_s``.
        dtype : dtype
        default : optional
            Value of the first launch; without it, that launch must give a value.
        shape : optional
            Makes it an array parameter: it is bound to an array of that shape and dtype, which is used in place.
        copy : bool
            With a shape: the values given to a launch, and `default`, are copied into page-locked memory of the Executable. A
            launch with new values waits for earlier launches, which may still read theirs.
        min, max : int, optional
            The least and the greatest value of a scalar integer; a launch that gives another one is refused.

        Raises
        ------
        DeclarationError
            If the name is taken, reserved or not an identifier, or the default is not a value of the dtype, or out of bounds.
        """
        return self._draft.add_parameter(name, dtype, default, shape, copy, min, max)

    # -- nodes -------------------------------------------------------------------------------------------------------

    def kernel(
        self,
        kernel: Kernel,
        grid: Extents | None = None,
        block: Extents | None = None,
        args: Sequence[Any] | Mapping[str, Any] = (),
        *,
        over: Extents | None = None,
        shared_bytes: int = 0,
        cooperative: bool = False,
        priority: int | None = None,
        cluster: Shape | None = None,
        device: int | None = None,
        **options: Unpack[NodeOptions],
    ) -> KernelNode:
        """Add a kernel launch.

        Parameters
        ----------
        kernel : Kernel
            ``module["name"]``.
        grid, block : int, Parameter, Expression or a tuple of one to three of them
            Blocks of the grid, threads of a block. A launch for which an extent of the grid comes to 0 does not run the kernel.
        over : int, Parameter, Expression or a tuple of one to three of them
            In place of `grid`: threads along each axis, of which there are at least so many; the kernel leaves out those beyond.
        args : sequence or mapping
            One for each parameter of the kernel, in order or by name. ``const T*`` is read, ``T*`` is read and written, unless
            wrapped in `hg.reads`, `hg.writes` or `hg.updates`. A wrapped view may be non-contiguous (a tile of a matrix): the
            kernel gets the address of its first element, and edges follow from the exact bytes of its elements. None: a null
            pointer.
        shared_bytes : int
            Dynamic shared memory of a block, in bytes.
        cooperative : bool
            All blocks are resident at once and may synchronise with each other.
        priority : int, optional
            Lower runs first, if the platform supports priorities.
        cluster : int or a tuple of one to three int, optional
            Blocks of a thread block cluster, on NVIDIA from sm_90; at most 8, and divisors of the grid's extents.
        device : int, optional
            The device that runs it; by default the one that owns its arrays.
        name, after, ignore
            As for every node: its unique name, nodes that it must follow, diagnostics to suppress with the reason.

        Raises
        ------
        DeclarationError
            If an extent is 0, a block has over 1024 threads, or an argument's count, kind, dtype or range is wrong.
        """
        if over is not None:
            grid = grid_over(over, grid, block, getattr(kernel, "name", "kernel"))
        fields = {
            "kernel": kernel, "grid": grid, "block": block, "args": args, "shared_bytes": shared_bytes,
            "cooperative": cooperative, "priority": priority, "cluster": cluster, "device": device,
        }  # fmt: skip
        return self._add(KernelNode, getattr(kernel, "name", "kernel"), options, fields)

    def memcpy(self, dst: Viewable, src: Viewable, *, device: int | None = None, **options: Unpack[NodeOptions]) -> MemcpyNode:
        """Add a copy of elements; the direction follows from the arrays. Between devices it is a peer copy.

        Parameters
        ----------
        dst, src : array or view
            Of the same dtype and shape; extents of 1 do not count. Between contiguous arrays of equal size, one may have a single
            axis: it holds the elements of the other in C order.
        device : int, optional
            The device that performs it; by default the destination's, else the source's.

        Raises
        ------
        DeclarationError
            If dtypes or shapes differ, or no single 3-D pitched copy can express it.
        """
        return self._new(MemcpyNode, "memcpy_" + _root_name(dst), options, dst=dst, src=src, device=device)

    def memset(self, dst: Viewable, value: Any = 0, *, device: int | None = None, **options: Unpack[NodeOptions]) -> MemsetNode:
        """Add a fill: set every element of an array or view to `value`, in its dtype."""
        return self._new(MemsetNode, "memset_" + _root_name(dst), options, dst=dst, value=value, device=device)

    def alloc(
        self,
        array: str,
        shape: Shape,
        dtype: DTypeLike,
        *,
        device: int | None = None,
        access: Devices = (),
        **options: Unpack[NodeOptions],
    ) -> AllocNode:
        """Add a node that allocates device memory while the graph runs; the node can be used wherever an array can.

        Parameters
        ----------
        array : str
            Name of the array.
        device, access : optional
            As for `device_array`.
        """
        self._draft.require_new(array, "array", self.arrays)
        where = _where(array, device, access)
        with naming("array", array):
            memory = AllocArray(array, as_shape(shape), as_dtype(dtype), **where)
        return self._new(AllocNode, "alloc_" + array, options, array=memory)

    def free(self, array: Viewable, **options: Unpack[NodeOptions]) -> FreeNode:
        """Add a node that frees the memory of an alloc node."""
        return self._new(FreeNode, "free_" + _root_name(array), options, array=array)

    def host(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        *,
        reads: Sequence[Any] | None = None,
        writes: Sequence[Any] | None = None,
        **options: Unpack[NodeOptions],
    ) -> HostNode:
        """Add a Python callable, called with one NumPy view for each array in `args`.

        Without `reads` and `writes` it updates every array in `args`. Its exception is raised at the next `synchronize()`. An
        array that it only reads comes as a read-only view, which not every library heeds: ``torch.from_dlpack`` makes a tensor
        of it that can be written.
        """
        return self._call(nodes.HostNode, options, fn, args=args, reads=reads, writes=writes)

    def captured(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        *,
        reads: Sequence[Any] | None = None,
        writes: Sequence[Any] | None = None,
        device: int | None = None,
        **options: Unpack[NodeOptions],
    ) -> CapturedNode:
        """Add the work that ``fn(stream, *args)`` issues on a stream, as one node."""
        return self._call(nodes.CapturedNode, options, fn, args=args, reads=reads, writes=writes, device=device)

    def eager(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        *,
        reads: Sequence[Any] | None = None,
        writes: Sequence[Any] | None = None,
        device: int | None = None,
        **options: Unpack[NodeOptions],
    ) -> EagerNode:
        """Add ``fn(stream, *args)``, which the launching thread calls between graphs, at each launch.

        Parameters
        ----------
        fn : callable
            May do what is forbidden in captures and host callbacks: call torch, allocate, synchronize the stream, communicate,
            log. Work issued on `stream` (``int(stream)`` is the raw handle) is ordered like the node. Inside, methods of the
            calling Executable raise an error.
        args : sequence
            Device arrays are passed as objects with `ptr`, ``__cuda_array_interface__`` and ``__dlpack__``; host arrays as NumPy
            views, and `fn` is then called when all predecessors have finished; parameters as the values bound by the launch.
        reads, writes : sequence of arrays or views, optional
            What it accesses; by default it updates every array in `args`.
        device : int, optional
            The device of the stream; by default the one that owns the arrays.
        """
        return self._call(nodes.EagerNode, options, fn, args=args, reads=reads, writes=writes, device=device)

    def record(self, event: str | Event, **options: Unpack[NodeOptions]) -> EventRecordNode:
        """Add an event record; the event marks the end of the nodes in `after`."""
        return self._new(nodes.EventRecordNode, f"record_{getattr(event, 'name', event)}", options, event=event)

    def wait(self, event: str | Event, **options: Unpack[NodeOptions]) -> EventWaitNode:
        """Add an event wait; it runs after the last earlier record of the event in this graph."""
        return self._new(nodes.EventWaitNode, f"wait_{getattr(event, 'name', event)}", options, event=event)

    def empty(self, **options: Unpack[NodeOptions]) -> EmptyNode:
        """Add a node that does nothing but order others."""
        return self._new(nodes.EmptyNode, "empty", options)

    def child(
        self, graph: Declaring | Workflow, bind: Mapping[str, Any] | None = None, **options: Unpack[NodeOptions]
    ) -> ChildGraphNode:
        """Add a snapshot of another graph as one node.

        Parameters
        ----------
        graph : Graph or Workflow
        bind : mapping, optional
            From names of the child's arrays and parameters to this graph's arrays, views, parameters or values.
        """
        from .nodes.children import ChildGraphNode

        return self._new(ChildGraphNode, getattr(graph, "name", "child"), options, workflow=graph, bind=bind)

    def signal_semaphore(self, semaphore: str | Semaphore, value: int = 1, **options: Unpack[NodeOptions]) -> SemaphoreSignalNode:
        """Add a node that raises an external semaphore to `value`."""
        base = f"signal_{getattr(semaphore, 'name', semaphore)}"
        return self._new(nodes.SemaphoreSignalNode, base, options, semaphore=semaphore, value=value)

    def wait_semaphore(self, semaphore: str | Semaphore, value: int = 1, **options: Unpack[NodeOptions]) -> SemaphoreWaitNode:
        """Add a node that waits until an external semaphore has reached `value`."""
        base = f"wait_{getattr(semaphore, 'name', semaphore)}"
        return self._new(nodes.SemaphoreWaitNode, base, options, semaphore=semaphore, value=value)

    def memory_ops(self, ops: MemoryOp | Sequence[MemoryOp], **options: Unpack[NodeOptions]) -> MemoryOpsNode:
        """Add writes and waits of single 4- or 8-byte elements, made by `hg.write_value` and `hg.wait_value`."""
        return self._new(nodes.MemoryOpsNode, "memory_ops", options, ops=ops)

    def conditional(
        self,
        mode: Literal["if", "while", "switch"],
        condition: Viewable,
        bodies: Declaring | Workflow | Sequence[Declaring | Workflow],
        bind: Mapping[str, Any] | None = None,
        *,
        decide: Literal["auto", "device", "host"] = "auto",
        check_every: int = 1,
        **options: Unpack[NodeOptions],
    ) -> ConditionalNode:
        """Add workflows and a 32-bit integer that selects the one to run; it is read when the node is reached.

        Parameters
        ----------
        mode : {"if", "while", "switch"}
            ``"if"`` runs the first body if the condition is not 0, else the second if there is one; ``"while"`` repeats its
            body until the condition is 0; ``"switch"`` runs the body of that number, if there is one.
        condition : array or view
            One 32-bit integer in memory that kernels can access.
        bodies : Graph, Workflow, or sequence of them
            Snapshots. If the device decides, they may hold kernels, copies, fills, captured and empty nodes, child graphs and
            conditionals; if the host does, any node.
        bind : mapping, optional
            As for `child`, for all bodies. Unbound arrays are named ``<node>/<number of the body>/<array>``.
        decide : {"auto", "device", "host"}
            ``"device"`` adds a node to the graph (NVIDIA, CPU). ``"host"`` splits the graph: the launching thread waits, reads
            the condition and launches the body, a separate graph. ``"auto"`` selects the device if the platform and the bodies
            permit it. With backends ``"streams"`` and ``"serial"`` the host always decides.
        check_every : int
            How many times ``"while"`` runs its body before it reads the condition again. Set it only if excess iterations do no
            harm; the number of iterations is a multiple of it, the same on all platforms.
        """
        from .nodes.children import ConditionalNode

        return self._new(ConditionalNode, f"{mode}_{_root_name(condition)}", options,
            mode=mode, condition=condition, bodies=bodies, bind=bind, decide=decide, check_every=check_every,
        )  # fmt: skip

    # -- collectives -------------------------------------------------------------------------------------------------

    def all_reduce(
        self, arrays: Sequence[Viewable], op: Fold = "sum", *, exact: bool = False, **options: Unpack[NodeOptions]
    ) -> CollectiveNode:
        """Add a reduction of arrays of several devices, element by element in their order; each array receives the result.

        Parameters
        ----------
        arrays : sequence of device arrays or views
            One for each participant, of one dtype and shape; each is overwritten.
        op : {"sum", "prod", "max", "min"}
            float16 and bfloat16 are folded as float32 and rounded once.
        exact : bool
            Fold in the order of the arrays even where NCCL or RCCL would be used between ranks, whose order differs.
        """
        return self._collective("all_reduce", arrays, arrays, options, op=op, exact=exact)

    def reduce(
        self, arrays: Sequence[Viewable], op: Fold = "sum", root: int = 0, *, exact: bool = False, **options: Unpack[NodeOptions]
    ) -> CollectiveNode:
        """Add a reduction of arrays of several devices, element by element in their order, into that of participant `root`."""
        return self._collective("reduce", [_entry(arrays, root)], arrays, options, op=op, root=root, exact=exact)

    def broadcast(self, arrays: Sequence[Viewable], root: int = 0, **options: Unpack[NodeOptions]) -> CollectiveNode:
        """Add a broadcast: copy the array of participant `root` to all arrays."""
        return self._collective("broadcast", arrays, [_entry(arrays, root)], options, root=root)

    def all_gather(
        self, targets: Sequence[Viewable], sources: Sequence[Viewable], **options: Unpack[NodeOptions]
    ) -> CollectiveNode:
        """Add a gather: concatenate all sources along the first axis into each target."""
        return self._collective("all_gather", targets, sources, options)

    def reduce_scatter(
        self,
        targets: Sequence[Viewable],
        sources: Sequence[Viewable],
        op: Fold = "sum",
        *,
        exact: bool = False,
        **options: Unpack[NodeOptions],
    ) -> CollectiveNode:
        """Add a reduction of sources, element by element; each target receives its part of the result along their first axis."""
        return self._collective("reduce_scatter", targets, sources, options, op=op, exact=exact)

    def all_to_all(
        self, targets: Sequence[Viewable], sources: Sequence[Viewable], **options: Unpack[NodeOptions]
    ) -> CollectiveNode:
        """Give each target its part of every source; sources and targets have one equal part per participant."""
        return self._collective("all_to_all", targets, sources, options)

    # -- models and edges --------------------------------------------------------------------------------------------

    def add(self, node: Node, after: After = ()) -> Node:
        """Add a node model that you built, or one of another graph that uses only arrays of this one.

        Returns
        -------
        Node
            The model that was added: `node`, or a copy with the additional `after`.
        """
        if not isinstance(node, Node):
            raise DeclarationError(f"graph {self.name!r} takes node models (got {type(node).__name__})")
        if not is_node(node):
            raise DeclarationError(
                f"graph {self.name!r} takes nodes of known kinds, which checks, backends and files know;"
                f" {node.name!r} is a {type(node).__name__}: use the class that it inherits from, hipgraphdsl.enable its part,"
                " or make its kind known by hipgraphdsl.nodes.add_kind",
                node=node.name,
            )
        extra = self._draft.names_of(after)
        if extra or node.source is None:
            node = node.changed(after=tuple(dict.fromkeys((*node.after, *extra))), source=node.source or caller())
        self._draft.add(node)
        return node

    def order(self, *nodes: Node | str) -> None:
        """Make each of these nodes wait for the previous one."""
        self._draft.order(*self._draft.names_of(nodes))

    # -- how nodes are added -------------------------------------------------------------------------------------------

    def _collective(self, does: Does, targets: Any, sources: Any, options: NodeOptions, **fields: Any) -> CollectiveNode:
        from .nodes.collective import CollectiveNode

        return self._new(CollectiveNode, does, options, does=does, targets=targets, sources=sources, **fields)

    def _call(self, kind: type[N], options: NodeOptions, fn: Callable[..., Any], **fields: Any) -> N:
        """Add a node that calls a function, by default named after it."""
        return self._new(kind, nodes.callable_name(fn).strip("<>"), options, fn=fn, **fields)

    def _new(self, kind: type[N], base: str, options: NodeOptions, **fields: Any) -> N:
        return self._add(kind, base, options, fields)

    def _add(self, kind: type[N], base: str, options: NodeOptions, fields: dict[str, Any]) -> N:
        """Add a node with these fields; without a name it is named `base`, with a number appended if that is taken."""
        draft, name = self._draft, None
        if options:
            name, after, ignore = options.pop("name", None), options.pop("after", ()), options.pop("ignore", None)
            if options:
                given, known = next(iter(options)), [name for name in kind.model_fields if name != "source"]
                raise TypeError(f"{kind.__name__}: unexpected keyword argument {given!r}{suggested(given, known)}")
            if after is not None and (type(after) is not tuple or after):
                fields["after"] = draft.names_of(after)
            if ignore is not None:
                fields["ignore"] = as_dict(ignore, f"graph {self.name!r}: ignore", " from codes to reasons") or None
        fields["name"], fields["source"] = draft.default_name(base) if name is None else name, caller(3)
        node = kind.__new__(kind)
        node.take(fields, draft.launches)  # without a copy of the fields for `__init__`
        draft.add(node)
        return node


def _where(array: str, device: Any, access: Any) -> dict[str, Any]:
    """Return the validated `device` and `access` arguments of an array as a dict."""
    if device is None and type(access) is tuple and not access:
        return {}
    what = f"array {array!r}"
    return {"device": as_device(device, what), "access": as_devices(access, what)}


def _entry(arrays: Sequence[Viewable], root: Any) -> Viewable:
    """Return the array of participant `root`; raise DeclarationError if there is none."""
    number = as_int(root)
    if not isinstance(arrays, (list, tuple)) or not arrays:
        raise DeclarationError(f"arrays is a list of at least one device array or view (got {arrays!r})")
    if number is None or not 0 <= number < len(arrays):
        raise DeclarationError(f"root is the number of an array, from 0 to {len(arrays) - 1} (got {root!r})")
    entry: Viewable = arrays[number]
    return entry


def _root_name(obj: Any) -> str:
    root = obj.array if type(obj) is AllocNode else getattr(obj, "root", obj)
    return str(getattr(root, "name", "array"))


_places: dict[int, tuple[CodeType, dict[int, tuple[str, int]]]] = {}
"""File and line of calls by their place in a function's code, by the code's identity; a frame looks for its line for long."""
_MOST_PLACES = 256  # functions


def caller(depth: int = 2) -> tuple[str, int]:
    """Return file and line of the innermost frame outside of this module and `graph.py`; it is at least `depth` frames away."""
    frame: FrameType | None = sys._getframe(depth)
    while frame is not None and frame.f_globals.get("__name__") in _OWN:
        frame = frame.f_back
    if frame is None:
        return "<unknown>", 0
    code, at = frame.f_code, frame.f_lasti
    known = _places.get(id(code))
    if known is None:
        if len(_places) >= _MOST_PLACES:
            _places.clear()
        known = _places[id(code)] = code, {}
    found = known[1].get(at)
    if found is None:
        found = known[1][at] = code.co_filename, frame.f_lineno
    return found


def grid_over(over: Any, grid: Any, block: Any, kernel: str) -> tuple[Any, ...]:
    """Return the grid whose threads are at least so many along each axis."""
    if grid is not None:
        raise DeclarationError(f"kernel {kernel!r}: over= says the grid, so grid= is left out (got grid={grid!r}, over={over!r})")
    axes, threads = (tuple(each) if isinstance(each, Sequence) else (each,) for each in (over, block))
    threads += (1,) * (len(axes) - len(threads))
    wrong = [each for each in (*axes, *threads) if not isinstance(each, (Parameter, SupportsIndex))]
    if wrong:
        what = "block= is missing" if block is None else f"over and block are integers or parameters (got {wrong[0]!r})"
        raise DeclarationError(f"kernel {kernel!r}: {what}; write over=n, block=256")
    return tuple(ceil_div(n, each) for n, each in zip(axes, threads))
