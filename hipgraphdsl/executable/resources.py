"""Everything that one Executable owns: made together, and returned together."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from itertools import pairwise
from typing import Any

from ..backends import Scope, SharedHandles, backend_named
from ..backends.callbacks import HostCalls
from ..plan import Plan
from ..runtimes.base import Runtime
from ..watch import MODULE, WatchedPlan
from ..workflow import Workflow
from .changes import Changes
from .compiled import CompiledPath, LongWay
from .devices import Home, grant_access
from .in_flight import InFlight
from .instance import Instance
from .memory import Memory
from .parameters import Parameters
from .scopes import fill, modules_of
from .state import Change, State
from .stats import Stats
from .uses import Uses

_log = logging.getLogger(__name__)


class Resources:
    """The owners of an Executable's data; none of them knows the Executable, and each only those that are made before it.

    Attributes
    ----------
    stats : Stats
    home : Home
    memory : Memory
    parameters : Parameters
    compiled : CompiledPath
    hosts : HostCalls
    shared : SharedHandles
    scope : Scope
    in_flight : InFlight
    changes : Changes
    instance : Instance
    """

    def __init__(
        self,
        workflow: Workflow,
        plan: Plan,
        runtime: Runtime,
        backend: str,
        options: Mapping[str, Any],
        guard: int,
        long_way: LongWay,
        *,
        sanitize: bool = False,
    ) -> None:
        device = plan.device
        self.stats = Stats(len(plan.steps), plan.edges, len(plan.lanes))
        self.home = Home(runtime, device, sanitize=sanitize)
        self.memory = Memory(workflow, self.home, guard, self.stats)
        self.parameters = Parameters(workflow.name, self.home, self.memory)
        self.compiled = CompiledPath(self.home, long_way)
        self.hosts = HostCalls(runtime, self.parameters.lend, self.compiled.launcher)
        self.shared = SharedHandles(runtime, device, plan.devices, self.hosts, sanitize=sanitize)
        self.scope = Scope(runtime, self.shared)
        self.in_flight = InFlight(workflow.name, self.home, self.compiled)
        self.changes = Changes(runtime.target, self.scope)
        self.instance = Instance(
            State(workflow, plan, frozenset(), options, Uses(workflow, plan.steps, self.scope)),
            backend_named(backend), self.scope, self.home, self.memory, self.parameters, self.in_flight, self.compiled,
            self.stats,
        )  # fmt: skip

    def open(self, report: Callable[[str], None]) -> None:
        """Make streams, load, allocate, lower and instantiate, on the current device; `report` is called with each stage."""
        state, runtime = self.instance.state, self.home.runtime
        workflow, plan = state.workflow, state.plan
        self.shared.peers = grant_access(workflow, runtime, plan.device, plan.devices)
        self.in_flight.open()
        times = [time.perf_counter()]
        modules = modules_of(workflow)
        if isinstance(plan, WatchedPlan):
            modules[MODULE] = (list(MODULE.kernels), [])
        self.shared.load(modules, report)
        times.append(time.perf_counter())
        report("allocate")
        fill(self.scope, workflow, self.memory, self.parameters)
        times.append(time.perf_counter())
        report("lower and instantiate")
        self.instance.become(Change(state))
        times.append(time.perf_counter())
        _log.debug(
            "graph %r: %d modules loaded in %.3f s, memory allocated in %.3f s, graph built in %.3f s",
            workflow.name, len(modules), *(stop - start for start, stop in pairwise(times)),
        )  # fmt: skip

    def close(self) -> None:
        """Return everything; nothing may be in flight."""
        program = self.instance.take_out()
        with ExitStack() as returned:  # in reverse order; all of them, even if one call fails
            if self.in_flight.stream:
                returned.callback(self.home.runtime.stream_destroy, self.in_flight.stream)
            if self.in_flight.end:
                returned.callback(self.home.runtime.event_destroy, self.in_flight.end)
            self.memory.return_into(returned)
            self.parameters.return_into(returned)
            returned.callback(self.shared.close)
            returned.callback(self.hosts.close)
            if program is not None:
                returned.callback(program.close)
