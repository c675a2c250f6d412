"""The Executable itself: its public methods; one lock serialises those that launch or change it."""

from __future__ import annotations

import _thread
import logging
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn

import numpy as np

from ..arrays import Array, as_int
from ..backends import Program, backend_named
from ..backends.callbacks import refuse_inside, running
from ..backends.capturing import keep_recorded, recordings
from ..backends.program import GraphProgram
from ..errors import CallbackError, DeclarationError, HipError, HipGraphError, UpdateError, WaitTimeout
from ..nodes import Node
from ..nodes.workflow import Workflow
from ..parts import load
from ..plan.options import DEFAULT_PLAN, NO_DEBUGGING, DebugOptions, PlanOptions
from ..plan.steps import Plan
from ..progress import no_progress
from ..runtimes.base import Runtime
from ..waiting import Deadline, note, require_seconds
from .call_path import call_path_of
from .changing import Users, changing, left_running, living, using
from .in_flight import stream_handle
from .instance import Instance
from .memory import ALONE, Memory, Sharing
from .state import Planned, plan_for
from .stats import Stats

if TYPE_CHECKING:
    from typing_extensions import Self

    from .. import Timeline
    from ..backends.interop import CapturedArray
    from ..graph_pool import GraphMemory
    from ..plan.memory import MemoryUse
    from ..update import HasWorkflow

_log = logging.getLogger("hipgraphdsl")
_CLOSE_WARNING_S: Final = 10.0  # seconds between two warnings of a waiting close()
_SANITIZER_GUARD: Final = 4096  # bytes before and after each array that the sanitizer treats as out of bounds
_LEAVE_S: Final = 10.0  # seconds to wait for launches when an exception leaves the `with` block
_ABORT_S: Final = 2.0  # seconds that the running node of an aborted launch may take to finish


class Executable:
    """An instantiated workflow. Made by `Graph.compile`; a context manager.

    It owns the memory of its arrays and keeps everything that the graph refers to alive until it is closed and the device
    has finished. Launches are ordered on their stream.

    Attributes
    ----------
    workflow : Workflow
        The snapshot that it was compiled from, with the changes that `set` and `update` made.
    plan : Plan
    runtime : Runtime
    backend : str
    stats : Stats
    """

    _alone: ClassVar[bool] = True
    """Whether no other process takes part in its launches, so that they need not take the Python method."""

    def __init__(
        self, workflow: Workflow, runtime: Runtime, made: Planned, guard: int, shares: Sharing, debug: DebugOptions
    ) -> None:
        self._closed = True  # until `build` opens it
        self._forked = False
        self.runtime = runtime
        self.backend = made[1]
        self.device = made[0].device
        self._users = Users()
        self._lock = threading.RLock()
        self._outermost = threading.Lock()
        """Held by the outermost of the nested calls that hold `_lock`."""
        calls = partial(call_path_of, weakref.ref(self), workflow.name)
        self._own = Instance(workflow, runtime, made, guard, calls, shares, sanitize=debug.sanitize)

    @classmethod
    def build(
        cls,
        workflow: Workflow,
        runtime: Runtime,
        backend: str,
        *,
        options: PlanOptions = DEFAULT_PLAN,
        debug: DebugOptions = NO_DEBUGGING,
        device: int = 0,
        guard: int = 0,
        note: str = "",
        check: bool = False,
        report: Callable[[str], None] = no_progress,
        made: Planned | None = None,
        inherit: Memory | None = None,
        sharing: Sharing = ALONE,
    ) -> Self:
        """Plan with these options (or use the plan `made`), load, allocate, lower and instantiate.

        On failure everything is freed.

        `sharing` has what it shares with others. Each allocated array has `guard` bytes of zeros, a multiple of 256, before and
        after it. `note` is added to the plan's notes, and `report` is called with each stage's name. With `debug.sanitize` the
        runtime checks kernels: arrays have guards and share no memory. With `check`, the Executable's `update` checks workflows
        that it rebuilds. Arrays that are alike in `inherit` use its memory.
        """
        backend_named(backend)
        refuse_inside("compile", workflow.name)
        if debug.sanitize:
            options = options.changed(pack=False, batch=False)
            guard = guard or _SANITIZER_GUARD
        started = time.perf_counter()
        report("plan")
        made = made or plan_for(
            workflow, runtime.target, backend, device, note, options, watch=debug.watch, shared=sharing.arena is not None
        )
        after_plan = time.perf_counter()
        executable = cls(workflow, runtime, made, guard, sharing, debug)
        executable._own.memory.inherit(inherit)
        executable._own.kept = {"guard": guard, "debug": debug, "check": check, "sharing": sharing}
        executable._closed = False
        try:
            with executable._own.home.there():
                executable._own.open(report)
        except BaseException:
            with suppress(HipError):  # the first error says more
                executable.close()
            raise
        own = executable._own
        own.stats.plan_us = (after_plan - started) * 1e6
        living.add(executable)
        if sharing.arena is not None:
            sharing.arena.add(executable)
        _log.info(
            "graph %r: compiled for %s by backend %s in %.3f s: %r, %d bytes on the device",
            workflow.name, runtime.target.name, executable.backend, time.perf_counter() - started, own.state.plan,
            own.stats.device_bytes,
        )  # fmt: skip
        return executable

    # -- running -------------------------------------------------------------------------------------------------------

    def launch(self, /, stream: Any = None, timeout_s: float | None = None, **params: Any) -> None:
        """Enqueue one run of the workflow on a stream and return at once, or as soon as the stream takes another launch.

        Host steps run in the calling thread: it calls the functions of eager nodes, and for a conditional node that the host
        evaluates it waits, reads the condition and launches the body. With host steps, `launch` returns when they are done and
        all other work has been enqueued. Ctrl-C interrupts it.

        Parameters
        ----------
        stream : int or stream object, optional
            A raw handle, or an object of torch, cupy or another library that has one, which is kept until the launch has been
            waited for; by default the Executable's own, which waits for launches on others: those may be destroyed meanwhile.
        timeout_s : float, optional
            Limit in seconds for waits: of host steps and of backend ``"serial"``, for a stream that takes no more work, for
            earlier launches, where new values need them to end, and for another thread that launches. When it has passed,
            enqueued work goes on and nothing more is enqueued; a launch that has not begun has given no values.
        **params
            Values of parameters, by name (inside children ``**{"child/a": 1}``); a parameter that is not given keeps its last
            value. An array parameter takes the name of an array, a declared array, or an object with memory (NumPy, torch, ...)
            of its shape and dtype. This launch and later ones use that memory in place and keep it alive: change it only when
            they have finished. A parameter with ``copy=True`` copies the values.

        Raises
        ------
        DeclarationError
            If a parameter is missing, unknown or of the wrong kind, if it is bound to memory that a node which uses it could not
            be given directly, or to memory that unordered nodes access, one of them writing; or if the stream captures: only
            backend ``"streams"`` can be recorded, without alloc, eager and conditional nodes. The graph is unchanged then, and
            the capture goes on.
        CallbackError
            If the function of an eager node raised; also an instance of the raised exception's class (a HipError is raised as it
            is), with the node's name. Enqueued work has finished then, and nothing more is enqueued.
        WaitTimeout
            When `timeout_s` has passed; names the unfinished nodes, first the one that waited for others.
        HipGraphError
            After `close`, in a forked process, or in a function that this Executable calls.
        """
        # `launch = exe.launch` may have been asked for before compiled code served it.
        served = self.__dict__.get("launch") if stream is None and timeout_s is None else None
        self._launch(stream, timeout_s, **params) if served is None else served(**params)

    @changing("launch", limited=1)
    def _launch(self, /, stream: Any = None, timeout_s: float | None = None, **params: Any) -> None:
        """Launch by Python; compiled code calls it for what it does not do itself."""
        require_seconds(timeout_s)
        own, in_flight = self._own, self._own.in_flight  # none may interleave: it may give other values, or take several calls
        handle = in_flight.stream if stream is None else stream_handle(stream)
        deadline = None if timeout_s is None else Deadline.after(timeout_s, own.unfinished)
        if deadline and own.arena is not None and own.arena.in_turn(own, deadline, partial(self._launch, stream, **params)):
            return
        own.wait_for_room(handle, deadline)  # a launch that does not begin gives no values
        captured = self._give(params, handle, deadline)
        own.compiled.wanted = bool(params)
        if recordings:
            keep_recorded(self.runtime, handle, own.record)
        own.shared.deadline = deadline
        if stream is not None:
            in_flight.keep(handle, stream)
        noted, outer = object(), None
        try:
            if deadline is not None:
                outer = note(deadline)
            own.launch(handle)
        except BaseException as error:
            own.launch_failed(error, handle)
        finally:  # not earlier: a thread that waits meanwhile would see the launch as done
            own.shared.deadline = None
            with in_flight.lock:  # noted without a call of any function, which Ctrl-C could interrupt
                in_flight.pending[handle] = noted
            in_flight.take_over(handle, captured=captured)
            if deadline is not None:
                note(outer)
        own.stats.launches += 1

    def _give(self, params: Mapping[str, Any], stream: int | None = None, deadline: Deadline | None = None) -> bool:
        """Bind a launch's parameters, and build the program if needed; return whether the stream captures.

        A launch that its stream's capture cannot record is refused.
        """
        own = self._own
        captured = stream is not None and own.in_flight.require_recorded(stream, self.backend, own.state.plan)
        own.shared.deadline = deadline
        try:
            own.give(params)
        finally:
            own.shared.deadline = None
        return captured

    @using("launch")
    def _launch_failed(self, code: int) -> None:
        """Raise the error for a return code of the compiled call path; another thread may call `close` meanwhile."""
        own = self._own
        assert own.program is not None
        try:
            own.program.entry_failed(code, own.in_flight.stream)
        except HipError as error:
            told = own.told(error)
            raise told from told.__cause__
        finally:
            if self.plan.cut is not None:
                own.in_flight.drain(own.in_flight.stream)

    def run(self, /, **params: Any) -> None:
        """Launch on the Executable's own stream and wait."""
        self.launch(**params)
        self.synchronize()

    @changing("prepared")
    def prepared(self, /, **params: Any) -> Program:
        """Bind parameters and build, as `launch` does, and return the program; `verify` runs its steps one by one."""
        self._own.give(params)
        assert self._program is not None
        return self._program.refreshed()

    def synchronize(self, timeout_s: float | None = None) -> None:
        """Wait until all launches have finished; Ctrl-C interrupts.

        Parameters
        ----------
        timeout_s : float, optional
            Stop waiting after this many seconds; the work goes on.

        Raises
        ------
        WaitTimeout
            When `timeout_s` has passed; names the unfinished nodes.
        CallbackError
            If a host callback raised; also an instance of the raised exception's class, with the node's name.
        HipError
            If the device failed.
        """
        served = None if timeout_s is not None else self.__dict__.get("synchronize")
        self._synchronize(timeout_s) if served is None else served()

    @using("synchronize")
    def _synchronize(self, timeout_s: float | None = None) -> None:
        """Wait by Python; compiled code calls it for what it does not do itself."""
        require_seconds(timeout_s)
        own = self._own
        stale = own.stale()
        try:
            own.wait(timeout_s)
        except HipError:
            own.hosts.raise_failure()
            raise
        own.hosts.raise_failure()
        if stale:
            own.hosts.forget(stale)
        own.rest(self._lock)

    def done(self) -> bool:
        """Return whether all launches have finished; errors are kept for `synchronize`.

        Inside a host callback, where HIP calls are forbidden: return whether all launches have been waited for.
        """
        inside = running.get(threading.get_ident())
        if inside is not None:
            if self._closed or self._forked:
                self._refuse_closed("done")
            return inside[1] is not self._own.hosts and not self._own.in_flight.any
        in_eager = threading.get_ident() in self._own.hosts.inside  # of this launch, which nothing can close meanwhile
        return self._own.in_flight.done() if in_eager else self._all_done()

    @using("done")
    def _all_done(self) -> bool:
        return self._own.in_flight.done()

    # -- data ----------------------------------------------------------------------------------------------------------

    @using("read")
    def read(self, name: str | Array) -> np.ndarray[Any, Any]:
        """Wait, and return a copy of an array's values.

        Parameters
        ----------
        name : str or array
            ``"x"``, ``"child/x"`` inside a child graph, or the declared array itself.

        Raises
        ------
        DeclarationError
            If there is no array of that name, or it lives only while the graph runs.
        """
        block = self._own.memory.find(name, "read")
        self.synchronize()
        return self._own.memory.read(block)

    def gather(self, *names: str, root: int = 0) -> tuple[np.ndarray[Any, Any], ...] | None:
        """Wait, and return copies of arrays' values; with several ranks (`RankExecutable`), only on rank `root`.

        Raises
        ------
        DeclarationError
            If there is no array of that name, or it lives only while the graph runs.
        """
        if as_int(root) != 0:
            raise DeclarationError(f"gather: there is one rank, 0 (got root={root!r})")
        return tuple(map(self.read, names))

    @using("write")
    def write(self, name: str | Array, values: Any) -> None:
        """Wait, and set an array's values.

        Parameters
        ----------
        name : str or array
            As for `read`.
        values : array_like
            Broadcast to the array's shape.

        Raises
        ------
        DeclarationError
            If there is no array of that name, or the values have another shape or cannot be converted.
        """
        block = self._own.memory.find(name, "write")
        source = self._own.memory.values_for(name if isinstance(name, str) else name.name, block.array, values)
        self.synchronize()
        self._own.memory.write(block, source)

    @using("array")
    def array(self, name: str | Array) -> CapturedArray:
        """Return an array's memory itself, for other libraries: `ptr`, ``__cuda_array_interface__``, ``__dlpack__``, no copy.

        Memory that the host can access also has ``__array_interface__``. This call does not wait: synchronize before you read the
        memory. The returned object, and whatever wraps it, keeps the memory alive, also after `close`; an address alone does not.

        Raises
        ------
        DeclarationError
            If there is no array of that name, or it lives only while the graph runs.
        """
        from ..backends.interop import CapturedArray

        block = self._own.memory.find(name, "array")
        return CapturedArray(block.pointer, block.array.as_view(), self._own.scope, block.lend())

    @using("known")
    def known(self) -> Any:
        """Return the names of this Executable's addresses and handles; `Graph.from_handle` uses them."""
        return load("imports").known_of(self, self._own)

    # -- changes -------------------------------------------------------------------------------------------------------

    @changing("set")
    def set(self, node: str | Node, /, **fields: Any) -> None:
        """Change fields of a node, from the next launch on.

        Parameters
        ----------
        node : str or Node
        **fields
            Fields of its model: ``grid=``, ``args=``, ``src=``, ``value=``, ``fn=``, ... ``args={"a": 2.0}`` of a kernel sets
            single arguments by the kernel's parameter names, and so does ``a=2.0`` where no field has that name.

        Raises
        ------
        UpdateError
            If the node's new accesses are not ordered by the graph's edges, or the field cannot change.
        DeclarationError
            If a field is unknown or its value is invalid.
        """
        own = self._own
        own.become(own.changes.with_fields(own.state, node, fields))

    @changing("enable")
    def enable(self, node: str | Node) -> None:
        """Run a disabled node again, from the next launch on."""
        own = self._own
        own.become(own.changes.enabled(own.state, node, enabled=True))

    @changing("disable")
    def disable(self, node: str | Node) -> None:
        """Skip a node, from the next launch on; its predecessors and successors stay ordered."""
        own = self._own
        own.become(own.changes.enabled(own.state, node, enabled=False))

    @changing("update")
    def update(self, graph: HasWorkflow, *, rebuild: bool = False) -> None:
        """Change to another graph of the same shape.

        Parameters
        ----------
        graph : Graph or Workflow
            Matched by node names; arrays and parameters are matched by name, and keep their memory and the values that they
            were given (an external array with other memory cannot change in place). A parameter that no launch has given takes
            the graph's default.
        rebuild : bool
            If a change cannot be applied in place, or the platform's call for it fails, rebuild the graph instead of raising.
            Arrays of the same kind, dtype, shape and device keep their memory then; others get new memory, with their values if
            dtype and shape agree. The value that a launch gave to a scalar parameter is converted if its dtype has changed.

        Raises
        ------
        UpdateError
            Names the first node and field that cannot change in place; nothing has changed then.
        DeclarationError
            If a parameter's new default is memory that its nodes cannot use, as for `launch`, or if a parameter has another dtype
            or shape, and cannot take what a launch has given it; nothing has changed then.
        CheckError
            If the workflow to rebuild has faults, unless it was compiled with ``check=False``; nothing has changed then.
        """
        if not callable(getattr(graph, "workflow", None)):
            raise DeclarationError(f"update takes a Graph or a Workflow (got {graph!r})")
        new, state = graph.workflow(), self._own.state
        if not rebuild or state.workflow.index.keys() == new.index.keys():  # else no two nodes need to be compared
            try:
                self._own.adopt(self._own.changes.with_workflow(state, new), new)
                return
            except (UpdateError, HipError):  # a rule of the package or of the platform
                if not rebuild:
                    raise
        from .rebuilding import afresh, replace_by

        replace_by(self, afresh(self, Executable.build, new))

    @changing("move")
    def _leave_area(self) -> None:
        """Let the arena free older memory that temporaries lie in; called by other Executables that share it."""
        self._own.leave_area()

    @changing("clone")
    def clone(self) -> Executable:
        """Return a second Executable of the same workflow with its own memory, holding the same values."""
        from .rebuilding import twin

        made: Executable = twin(self, Executable.build, None)
        return made

    # -- looking -------------------------------------------------------------------------------------------------------

    @changing("profile")
    def profile(self, /, **params: Any) -> Timeline:
        """Launch an instrumented copy once and return when each node ran.

        The plan is issued on one stream per lane with an event before and after each node, so that it works on every runtime
        and each span has its node's name; the events add some time. Nodes that share a launch have one span, with their names as
        `members`. Times are in microseconds; those of different devices are aligned to a few microseconds.
        """
        self._give(params)
        self.synchronize()
        found: Timeline = load("timeline").profile(self, self._own)
        return found

    @changing("elapsed_us")  # another thread's launch would record the events again meanwhile
    def elapsed_us(self, start: Any, stop: Any) -> float:
        """Wait, and return microseconds between two events that the last launch recorded, given by name or as Event.

        A shared event has the time of whoever recorded it last: launch a clone or a graph that records it too after this call.

        Raises
        ------
        DeclarationError
            If no node of the graph uses such an event.
        HipGraphError
            If the last launch did not record both, because there was none or the nodes that record one were disabled; or if a
            launch of another graph, which shares an event, is recording it.
        """
        from .elapsed import elapsed_us

        self.synchronize()
        own = self._own
        return elapsed_us(own.state, own.switched, self.stats.launches, own.shared, self.runtime, start, stop)

    @property
    def workflow(self) -> Workflow:
        """The snapshot that it was compiled from, with the changes that `set` and `update` made."""
        return self._own.workflow

    @property
    def plan(self) -> Plan:
        """The workflow's steps in order, with their reduced edges and their lanes."""
        return self._own.state.plan

    @property
    def stats(self) -> Stats:
        """Counts and times so far."""
        return self._own.counted()

    @property
    def memory(self) -> MemoryUse:
        """The memory that it has; `unpacked` is taken by each launch."""
        return self._own.memory.use(self.plan.memory)

    @property
    def _program(self) -> Program | None:
        return self._own.program

    @property
    def handle(self) -> int:
        """The raw hipGraphExec_t; 0 for the streams and serial backends. HipGraphError if there are several: see `handles`."""
        program, graphs = self._program, len(self.handles)
        if graphs and program is not None and not program.handle:
            said = f"a launch of graph {self.workflow.name!r} launches {graphs} graph{'s' * (graphs > 1)}; `handles` has them"
            raise HipGraphError(f"handle: {said}")
        return program.handle if program is not None else 0

    @property
    def handles(self) -> tuple[int, ...]:
        """The raw hipGraphExec_t of each segment, in launch order; without those of conditional bodies."""
        return self._program.handles if self._program is not None else ()

    @property
    def graph_handle(self) -> int:
        """The raw hipGraph_t that `handle` was instantiated from; 0 for the streams and serial backends.

        The Executable owns it, and a change that rebuilds the graph replaces it.
        """
        return self._program.graph if isinstance(self._program, GraphProgram) else 0

    @property
    def graph_memory(self) -> GraphMemory:
        """The memory that all graphs of the device use and reserve for alloc nodes."""
        from ..graph_pool import GraphMemory

        return GraphMemory(self.runtime, self.device)

    @property
    def stream(self) -> int:
        """The raw handle of the Executable's own stream."""
        return self._own.in_flight.lend()

    @property
    @changing("parameters", when_closed=True)
    def parameters(self) -> dict[str, Any]:
        """Current values of the scalar parameters by launch keyword; None for a parameter without a value."""
        return self._own.parameters.scalars()  # `changing` has read back what the fast path set

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{self.stats.launches} launch{'es' * (self.stats.launches != 1)}"
        return (
            f"<Executable of {self.workflow.name!r}: {self.backend} on {self.runtime.name}, {self.stats.nodes} nodes,"
            f" {self.stats.lanes} lanes, {state}>"
        )

    # -- the end -------------------------------------------------------------------------------------------------------

    @changing("close", when_closed=True, limited=0)
    def close(self, timeout_s: float | None = None) -> None:
        """Wait for the device and free everything; a second call does nothing.

        An exception that a callback raised since the last `synchronize` is raised after everything has been freed.

        Parameters
        ----------
        timeout_s : float, optional
            Stop waiting after this many seconds. If the runtime can abort a launch (graphs on the CPU), the launch is aborted:
            no node and no block of a kernel starts any more, and everything is freed when what runs has ended. If that takes
            more than 2 s, or the runtime cannot abort, the Executable stays open, because the device may still use its memory; so
            it does where another thread that launches it has not returned by then.

        Raises
        ------
        WaitTimeout
            When `timeout_s` has passed; names the unfinished nodes and says how much memory stays allocated.
        CallbackError
            If a host callback raised and no `synchronize` has reported it.
        """
        require_seconds(timeout_s)
        if self._closed:
            return
        if self._forked:  # the handles belong to the parent process
            self._closed = True
            return
        cut = self._own.wait_to_close(timeout_s, _CLOSE_WARNING_S, _ABORT_S)
        returned, recorded = ExitStack(), self._own.recorded  # calls all in reverse order, even if one fails
        self._closed = True
        try:
            self._users.wait_for_others()
            self._own.return_into(returned)
        except BaseException:
            self._closed = False
            raise
        try:
            self._own.release(returned, recorded)
        finally:
            self._own.release(returned, recorded)  # the rest, if Ctrl-C came between two calls
        if cut is not None:
            raise cut from self._own.hosts.take_failure()
        self._own.hosts.raise_failure()

    def _leave(self, timeout_s: float | None = None) -> None:
        """Close with a time limit, where an endless wait could not be interrupted; leak unfinished work with a warning."""
        try:
            self.close(timeout_s=_LEAVE_S if timeout_s is None else timeout_s)
        except CallbackError:
            raise
        except WaitTimeout as error:
            self._leave_open()
            _log.warning("%s", error)

    @changing("close", when_closed=True)
    def _leave_interrupted(self) -> None:
        """Close after Ctrl-C: start nothing more if the runtime can do that, and wait only for what runs."""
        if not self._closed:
            ended = not self._forked and self._program is not None and self._program.abort()
            self._leave(0 if ended else _ABORT_S)

    def _leave_open(self) -> None:
        """Refuse further calls, but keep all resources until the process ends."""
        if not self._closed:
            self._closed = True
            self._own.compiled.disable()
            left_running.append(self)

    def __enter__(self) -> Executable:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            try:
                self.close()
                return
            except KeyboardInterrupt as error:
                self.__exit__(type(error))
                raise
        try:  # an exception is being raised, and the caller must receive it
            if issubclass(kind, KeyboardInterrupt):
                self._leave_interrupted()
            else:
                self._leave()
        except CallbackError as error:
            _log.warning("graph %r: nobody has waited for the exception of a callback: %s", self.workflow.name, error)

    def __del__(self, _ends: Callable[[], bool] = sys.is_finalizing) -> None:
        if getattr(self, "_closed", True):
            return
        try:
            warnings.warn(f"{self!r} was never closed; use it as a context manager", ResourceWarning, stacklevel=2)
            if threading.get_ident() in running:  # inside a host callback, where waiting is forbidden
                _thread.start_new_thread(self._leave, ())
            else:
                self._leave()  # Python reports its exceptions through sys.unraisablehook
        except (AttributeError, TypeError):
            if not _ends():  # else modules have been cleared, and the process, which ends, frees everything
                raise

    def __reduce__(self) -> NoReturn:
        raise TypeError("an Executable holds device handles and cannot be pickled; pickle graph.to_json() and compile again")

    def _refuse_closed(self, action: str) -> NoReturn:
        if self._forked:
            raise HipGraphError(
                f"{action}: graph {self.workflow.name!r} was compiled before this process was forked, and device handles do not"
                " survive a fork; compile it here, or start processes by spawn"
            )
        raise HipGraphError(f"{action}: the Executable of graph {self.workflow.name!r} is closed; compile it again")
