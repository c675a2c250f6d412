"""The compiled call path of one Executable: it replaces `launch`, `synchronize` and `run` where a compiled launcher is available.

A launch without arguments, or with new values of parameters that only kernel launches use, runs without a Python frame, also
where expressions and views are computed from them (`formulas`). Every other call goes to the Python method (the slow path), which
first reads back what the fast path has launched and set (`values`), lets it set new values in kernel launches (`launcher.set`),
and afterwards tells it what it may set (`register`).
A wait runs without a Python frame if it is short and only the Executable's own stream has to be waited for (`can_wait`).
"""

from __future__ import annotations

import ctypes
import struct
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Final

from ...arrays import Parameter
from ...backends import Environment, Program
from ...backends.environment import Owned
from ...backends.operations import Launch, Nothing, Operation
from ...backends.program import GraphProgram
from ...errors import HipGraphError
from ...executable.call_path import CallPath, serve
from ...executable.devices import Home
from ...kernels import ArgumentPacker
from ...runtimes.base import Runtime
from .formulas import NoFormula, kind_of_slot, places_of

_COST: Final = 16  # launches for which a registration is worth its time
_MOST_USES: Final = 8192  # kernel nodes whose argument memory is kept for the launcher
_NONE: Final[frozenset[int]] = frozenset()


Use = tuple[Any, ...]
"""Where the launcher writes a parameter's value, or what a formula comes to: an item of `Launcher.slots`."""


class _Arguments:
    """The parameters of one kernel node, in memory at a fixed address that the launcher writes to."""

    def __init__(self, operation: Launch, runtime: Runtime) -> None:
        self.packer = ArgumentPacker(operation.packer.signature)
        self._runtime = runtime
        self._params = ctypes.create_string_buffer(self._written(operation))

    @property
    def address(self) -> int:
        return ctypes.addressof(self._params)

    def address_of(self, place: int) -> int:
        """Return where an argument stands, or with a number behind theirs an axis of grid or block."""
        offsets = self.packer.signature.offsets
        if place < len(offsets):
            return self.packer.memory + offsets[place]
        which, axis = divmod(place - len(offsets), 3)
        return self.address + self._runtime.kernel_extents()[which] + 4 * axis

    def follow(self, operation: Operation) -> bool:
        """Copy the launch parameters of a node; False unless it is a kernel launch with arguments of the same types."""
        if not isinstance(operation, Launch) or operation.packer.signature is not self.packer.signature or operation.cooperative:
            return False
        params = self._written(operation)
        ctypes.memmove(self._params, params, len(params))
        return True

    def _written(self, operation: Launch) -> bytes:
        table = self.packer.place(operation.packed)
        return self._runtime.kernel_params(operation.function, operation.grid, operation.block, operation.shared_bytes, table)


class SlowPath:
    """The slow path: Python methods for calls that the compiled path does not handle; weakly references its Executable."""

    def __init__(self, executable: weakref.ref[Any], graph: str) -> None:
        self._executable = executable
        self._graph = graph
        self._served: Any = None
        """The launcher that serves the Executable's calls; None while its own methods do."""

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        self._required("launch")._launch(*args, **kwargs)

    def synchronize(self, *args: Any, **kwargs: Any) -> None:
        """Wait."""
        self._required("synchronize")._synchronize(*args, **kwargs)

    def run(self, *args: Any, **kwargs: Any) -> None:
        """Launch and wait."""
        executable = self._required("run")
        type(executable).run(executable, *args, **kwargs)

    def failed(self, code: int) -> None:
        """Raise the error for a return code of hipGraphLaunch."""
        self._required("launch")._launch_failed(code)

    def wait_failed(self, code: int) -> None:
        """Raise the error for a return code of a compiled wait."""
        executable = self._required("synchronize")
        executable._own.in_flight.failed(code)
        executable._synchronize()

    def _required(self, action: str) -> Any:
        """Return the Executable; raise if it was deleted and only its method was kept."""
        executable = self._executable()
        if executable is None:
            raise HipGraphError(
                f"{action}: the Executable of graph {self._graph!r} was deleted, and what it owned has been returned; keep the"
                f" Executable, not its method alone"
            )
        return executable

    def by_program(self, stream: int) -> tuple[Any, ...]:
        """Return what the launcher launches a program with that is not one graph (`Launcher.python`); empty if it may not."""
        reference, executable = self._executable, self._required("launch")
        if not executable._alone:
            return ()

        def launch(stream: int) -> None:
            executable: Any = reference()  # nothing deletes it meanwhile
            own = executable._own
            try:
                own.program.launch(stream)
            except BaseException as error:
                own.launch_failed(error, stream)

        lock, outermost = executable._lock, executable._outermost
        return launch, stream, lock.acquire, outermost.acquire, lock.release, outermost.release

    def serve_by(self, launcher: Any) -> None:
        """Let a launcher serve the Executable's calls; None restores its own methods."""
        executable = self._executable()
        if launcher is not self._served and executable is not None:
            serve(executable, launcher)
        self._served = launcher


class CompiledPath(CallPath):
    """A compiled launcher that is bound to a program; without a launcher every call takes the slow path."""

    def __init__(self, home: Home, slow_path: SlowPath) -> None:
        self._home = home
        self._runtime = home.runtime
        self._slow_path = slow_path
        self.launcher: Any = home.runtime.launcher(slow_path)
        """The compiled launcher, which counts its launches and updates, or None."""
        self.bound = False
        """Whether the launcher can launch the current program."""
        self.wanted = False
        """Whether launches give parameter values, so that `register` is worth its time."""
        self.blocked = False
        """Whether every launch must take the slow path, because a transport between ranks must act before it."""
        self._by_calls = False
        """Whether it is bound to a program that is not a graph; the next call of a `changing` method unbinds it."""
        self._counted = (0, 0)
        """The launcher's counts at the last call of `counts`."""
        self._stale = True
        """Whether what the launcher may set must be registered again."""
        self._kinds: dict[str, str] = {}
        """Struct codes of the parameters that the launcher can set alone, because only kernel launches use them."""
        self._steps: dict[str, frozenset[int]] = {}
        """For each registered parameter the steps whose launches the launcher sets."""
        self._kept: dict[int, _Arguments] = {}
        """The launch parameters that the launcher writes to, by step."""
        self._idle: frozenset[int] = frozenset()
        """Kernel launches that had nothing to do at the last registration."""
        self._credit, self._served = 2 * _COST, 0
        """Launches to spend on registrations after refusals, and the launcher's count at the last one; see `refused`."""

    def take_over(self, other: CallPath) -> None:
        assert isinstance(other, CompiledPath)
        self._slow_path, self.launcher = other._slow_path, other.launcher
        self.blocked, self._counted = other.blocked, other._counted

    def bind(self, program: Program | None, stream: int) -> None:
        """Make the launcher launch this program in place of the Python method; None unbinds it."""
        if self.launcher is None:
            return
        self.launcher.ready = False
        self._clear()
        self._stale, self._by_calls = True, False
        python = () if program is None or isinstance(program, GraphProgram) else self._slow_path.by_program(stream)
        self.bound = bool(python) or isinstance(program, GraphProgram)
        if program is None or not self.bound:
            self._slow_path.serve_by(None)
            return
        self._bind(program, *self._runtime.launch_addresses(), program.handle, stream)
        if python:
            self.launcher.python = python

    def bind_calls(self, program: Program, stream: int) -> bool:
        """Bind to a program that is not a graph, if it is recorded calls without functions; the next change unbinds it."""
        if self.launcher is None or self.bound:
            return self.bound
        entry = program.entry()
        if entry is not None:
            self._bind(program, entry[0], 0, entry[1], stream)
            self.bound = self._by_calls = True
            self._slow_path.serve_by(self.launcher)
        return self.bound

    def _bind(self, program: Program, *calls: int) -> None:
        runtime = self._runtime
        current = runtime.current_addresses(self._home.device)
        lanes = struct.pack(f"={len(program.streams)}Q", *program.streams)
        self.launcher.bind(*calls, *current, *runtime.wait_addresses(), runtime.room_address(), lanes)

    def block(self) -> None:
        """Send all launches through the slow path, without waiting for calls in progress."""
        self.blocked = True
        self.disable()

    def unblock(self) -> None:
        """Allow the fast path again; the caller ensures that no change is in progress."""
        self.blocked = False
        self.launcher.ready = self.bound

    def disable(self) -> None:
        """Disable the fast path, without waiting for calls in progress."""
        if self.launcher is not None:
            self.launcher.ready = False

    def pause(self) -> bool:
        """Disable the fast path and wait for calls in progress; return whether it may have launched or set something."""
        if not self.bound:
            return False
        self.launcher.ready = False
        self.launcher.can_wait = False
        self.drain()
        if self._by_calls:
            self.bound = self._by_calls = False
        return True

    @property
    def can_wait(self) -> bool:
        return not self.bound or self.launcher.can_wait

    def allow_wait(self, *, allowed: bool) -> None:
        if self.bound:
            self.launcher.can_wait = allowed and self._runtime.wait_addresses()[0] != 0

    def drain(self) -> None:
        """Wait for calls in progress."""
        while self.launcher is not None and self.launcher.inside:
            time.sleep(0)

    def counts(self) -> tuple[int, int]:
        """Return how many launches and node updates the launcher has made since the last call of this method."""
        launcher = self.launcher
        if launcher is None:
            return 0, 0
        before, self._counted = self._counted, (launcher.launches, launcher.updates)
        return self._counted[0] - before[0], self._counted[1] - before[1]

    def values(self) -> dict[str, Any]:
        """Return the parameter values that launches have given on the fast path, also where they are the current ones."""
        if self._stale:  # a failed change has been rolled back without the launcher
            return {}
        given = ((name, kind, self.launcher.value(name)) for name, kind in self._kinds.items())
        return {name: struct.unpack("=" + kind, value)[0] for name, kind, value in given if value is not None}

    def steps_of(self, name: str) -> frozenset[int]:
        """Return the steps that the launcher sets when it gives a parameter a value."""
        return _NONE if self._stale else self._steps.get(name, _NONE)

    def resume(
        self, program: Callable[[], Program], users: Callable[[], Mapping[str, tuple[Environment, Parameter, list[int]]]]
    ) -> None:
        """Enable the bound fast path again; if launches give values, register from these callables what has changed.

        Its first call comes after the first launch or change, so `graph.compile().run()` calls the method of the class: those of
        the launcher do not keep the Executable, and nothing else holds it there.
        """
        self._slow_path.serve_by(self.launcher)
        if self._stale and self.wanted and self._credit >= 0:
            self.wanted = False
            self.register(program(), users())
        elif self._stale and self._steps:  # the next launch with values registers again: more changes may come before it
            self._clear()
        if self._stale and self.wanted:
            self.wanted, self._credit = False, self._credit + 1
        self.launcher.ready = not self.blocked
        if self.blocked:  # checked after enabling, too, because another thread may call `block` meanwhile
            self.launcher.ready = False

    def register(self, program: Program, users: Mapping[str, tuple[Environment, Parameter, list[int]]]) -> None:
        """Tell the launcher which parameters it may set, and where in the bound program.

        `users` maps launch keywords to the scope that declares the parameter, the parameter, and the enabled steps that depend
        on it.
        """
        self._clear()
        kinds = {name: kind_of_slot(parameter) for name, (_, parameter, _) in users.items()}
        names = [name for name, (scope, parameter, _) in users.items() if kinds[name] and scope.values.get(parameter) is not None]
        numbers: dict[Owned, int] = {users[name][:2]: number for number, name in enumerate(names)}
        steps = dict.fromkeys(index for name in names for index in users[name][2])
        places = {index: self._places(program, index, numbers) for index in steps}
        slots = []
        for name in names:
            scope, parameter, indices = users[name]
            found = {i: places[i][scope, parameter] for i in indices if (scope, parameter) in places[i]}
            kind, whole, limits = kinds[name] or "", len(found) == len(indices), parameter.bounds if parameter.limits else ()
            value, uses = struct.pack("=" + kind, scope.values[parameter]), [use for each in found.values() for use in each]
            slots.append((name, kind, len(value), value, uses, whole, limits))
            if found:
                self._steps[name] = frozenset(found)
                if whole:
                    self._kinds[name] = kind
        self.launcher.slots(slots, list(self._kept.values()))
        idle = (index for index in steps if isinstance(program.operations[index], Nothing))
        self._idle = frozenset(index for index in idle if program.plan.step(index).node.launched is not None)
        self._stale = False

    def _clear(self) -> None:
        """Stop the launcher from setting parameters until the next `register`."""
        self.launcher.slots([], [])  # first: the launcher may set only what the tables below list
        self._kinds, self._steps, self._kept = {}, {}, {}

    def invalidate(self) -> None:
        """Mark what is registered as outdated, as another graph or a failed change leaves it."""
        self._stale, self._credit = True, max(0, self._credit)

    def refused(self) -> None:
        """Mark what is registered as outdated; where that happens again and again, launches go Python's way in between."""
        served, self._served = self.launcher.launches - self._served, self.launcher.launches
        self._stale, self._credit = True, min(self._credit + served, 2 * _COST) - _COST

    def note_step(self, index: int, operation: Operation) -> None:
        """Update the launcher's copy of a step's launch parameters; mark what is registered as outdated if that is impossible."""
        kept = self._kept.get(index)
        if not self._stale and (index in self._idle or (kept is not None and not kept.follow(operation))):
            self.refused()

    def _places(self, whole: Program, index: int, numbers: Mapping[Owned, int]) -> Mapping[Owned, list[Use]]:
        """Return the uses of parameters in a step, without those that others than the launcher must write, too.

        If the launcher computes something in the step, it can set all of its parameters, or none: a formula has several.
        """
        program, place = whole.graph_of(index)
        if program is None:
            return {}
        step, operation = program.plan.steps[place], whole.operations[index]
        node = step.node.launched
        if node is None or not isinstance(operation, Launch) or not program.nodes[place]:
            return {}
        if operation.cooperative or place in program.disabled:
            return {}
        try:
            places = places_of(node, operation.packer.signature, program.scope_of(step), program.place_of(step), numbers)
        except NoFormula:
            return {}
        count, batch = len(node.args), program.batches.get(place)
        if not places or ((batch is not None or operation.attributes) and any(each.at >= count for each in places)):
            return {}
        if batch is not None:
            first, offsets = batch.arguments_of(place), operation.packer.signature.offsets
            addresses = [first + offsets[each.at] for each in places]
            where = batch.node, batch.params(self._runtime), program.handle
        else:
            kept = self._kept.get(index)
            if kept is None:
                if len(self._kept) == _MOST_USES:
                    return {}
                kept = self._kept[index] = _Arguments(operation, self._runtime)
            addresses = [kept.address_of(each.at) for each in places]
            where = program.nodes[place], kept.address, program.handle
        found: dict[Owned, list[Use]] = {}
        for address, each in zip(addresses, places):
            for owner in each.owners:
                found.setdefault(owner, []).append((address, *where, *each.computed))
        return found
