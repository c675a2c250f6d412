"""What the launching thread does between graphs or stream calls: it waits, calls eager nodes, and reads conditions."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace

from ..errors import HipError, WaitTimeout
from ..plan.steps import Plan, Step
from ..runtimes.data import ConditionalMode, MemcpyKind
from ..waiting import has_passed, slice_s, unfinished_text
from .callbacks import Stopped
from .environment import Environment
from .operations import CallEager, RunChild, RunConditional
from .program import Program


class HostSteps:
    """The host's part of one program; ``build(plan, scope, device=)`` builds a body's program for streams of that device."""

    def __init__(self, scope: Environment, build: Callable[..., Program]) -> None:
        self._runtime = scope.runtime
        self._shared = scope.shared
        self._build = build
        self._bodies: dict[Environment, Program] = {}
        """Programs of the bodies built so far, by scope."""
        self._word = 0
        """Address of 4 bytes of page-locked memory that conditions are copied to; 0 before the first."""
        self.at = ""
        """Name of the node before which the thread waits, or whose wait timed out or was interrupted; else empty."""

    def failed(self) -> bool:
        """Return whether a callback has raised."""
        return bool(self._shared.calls.failures)

    def wait(self, stream: int, name: str, *, itself: bool = False) -> None:
        """Wait for the work on a stream before a node starts, or for the node `itself`; Ctrl-C and the launch's deadline end it.

        Raises
        ------
        Stopped
            If a callback has raised.
        """
        wait, deadline = self._runtime.stream_wait, self._shared.deadline
        self.at = name
        try:
            while not wait(stream, slice_s(deadline)):
                if deadline is not None and has_passed(deadline):
                    names = tuple(dict.fromkeys((name, *deadline.unfinished())))
                    said = f"the launch has not come past {name!r}" + ", which waits for the nodes before it" * (not itself)
                    raise WaitTimeout(said + unfinished_text(names[1:]), names)
        except KeyboardInterrupt:
            raise KeyboardInterrupt("while a launch waited " + "before " * (not itself) + repr(name)) from None
        except HipError:
            self.at = ""
            if not self.failed():
                raise
        self.at = ""
        if self.failed():
            raise Stopped

    def do(
        self, operation: CallEager | RunConditional, stream: int, program: Program, step: Step, *, refresh: bool = False
    ) -> None:
        """Call the function of an eager node, or run the bodies that a conditional node selects; `Stopped` as for `wait`."""
        if isinstance(operation, RunConditional):
            for body in self.chosen(operation, stream, program.full_name(step), program.place_of(step), refresh=refresh):
                body.launch(stream)
        else:
            if operation.waits:
                self.wait(stream, program.full_name(step))
            operation.call(stream)

    def chosen(self, operation: RunConditional, stream: int, name: str, device: int, *, refresh: bool) -> Iterator[Program]:
        """Yield the program of each body that a conditional node runs, in order; the caller launches it on `stream` of `device`.

        Set `refresh` if names inside bodies may resolve to other addresses or values than at the last call.
        """
        runtime = self._runtime
        if not self._word:
            self._word = runtime.host_malloc(4)
        word = ctypes.c_uint32.from_address(self._word)
        times = operation.times if operation.mode is ConditionalMode.WHILE else 1
        while True:
            runtime.memcpy_async(self._word, operation.condition, 4, MemcpyKind.DEFAULT, stream)
            self.wait(stream, name)
            body = operation.chosen(word.value)
            if body is None:
                return
            program = self._program_of(body, device, refresh=refresh)
            for _ in range(times):
                yield program
            if operation.mode is not ConditionalMode.WHILE:
                return
            refresh = False

    def _program_of(self, body: RunChild, device: int, *, refresh: bool) -> Program:
        program = self._bodies.get(body.scope)
        if program is None:
            with self._shared.on(self._shared.device):  # as for every program that is built
                program = self._build(placed(body.plan, body.scope), body.scope, device=device)
            self._bodies[body.scope] = program
        elif refresh:
            program.refresh()
        return program

    def build(self, operation: RunConditional, device: int) -> None:
        """Build all bodies of a conditional node now, instead of each when it is first selected."""
        for body in operation.bodies:
            self._program_of(body, device, refresh=False)

    def programs(self, operation: RunConditional) -> tuple[Program, ...]:
        """Return the programs of a conditional node's bodies, which must have been built."""
        return tuple(self._bodies[body.scope] for body in operation.bodies)

    def refresh(self, operation: RunConditional) -> bool:
        """Resolve the steps of a conditional node's bodies again; return False if a body must be rebuilt."""
        return all(self._bodies[body.scope].refresh() for body in operation.bodies if body.scope in self._bodies)

    def unfinished(self) -> tuple[str, ...]:
        """Return the node that the thread waits before, if any, and the unfinished nodes inside bodies."""
        inside = tuple(name for body in self._bodies.values() for name in body.unfinished())
        return ((self.at,) if self.at else ()) + inside

    def bodies(self) -> tuple[Program, ...]:
        """Return the programs of the bodies built so far."""
        return tuple(self._bodies.values())

    def close(self) -> None:
        """Release everything; the device must have finished."""
        with ExitStack() as returned:  # release all of them, even if one call fails
            if self._word:
                returned.callback(self._runtime.host_free, self._word)
            for body in self._bodies.values():
                returned.callback(body.close)
            self._bodies, self._word = {}, 0


def placed(plan: Plan, scope: Environment) -> Plan:
    """Return the plan of a body with the devices that its binding determines, and each lane on a single device."""
    if len(scope.shared.devices) == 1:
        return plan
    keys = [(step.lane, scope.inside(step.path).place_of(step)) for step in plan.steps]
    number = {key: lane for lane, key in enumerate(dict.fromkeys(keys))}
    steps = tuple(step._replace(lane=number[key], device=key[1]) for step, key in zip(plan.steps, keys))
    owners = tuple(device for _, device in number)
    shared = scope.shared
    return replace(plan, steps=steps, device=shared.device, devices=tuple(sorted(shared.devices)), lane_devices=owners)
