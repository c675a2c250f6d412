"""What stories mean: Executables that share memory, beside NumPy arrays of which views are the same memory.

A value given at a launch stays until another is given; a default counts as long as none has been given. A binding stays with the
memory that it was given, also where its owner is rebuilt or closed; then a launch may refuse it by name. A clone has values and
bindings of its original, with its own arrays in place of the original's.
"""

from __future__ import annotations

import gc
import pickle
import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import networkx as nx
import numpy as np
import numpy.typing as npt
import pytest
from property.programs import DEVICE, FAULT, HOST, SHAPE, Step, Temporary, Values, called, called_between, issued
from property.programs import declared as arrays_declared
from property.programs import initial as initial_short
from property.stories import DEFAULTS, EQUAL, LONG, MEMORY, MOST_LIVES, NUMBERED, NUMBERS, Action, Given, Part, Program, Story

import hipgraphdsl as hg
from hipgraphdsl.parts.cpu.runtime import CpuRuntime
from hipgraphdsl.runtimes.base import Runtime
from hipgraphdsl.runtimes.data import ERROR_INVALID_HANDLE, MemcpyKind
from hipgraphdsl.runtimes.recorder import RecorderRuntime

CALLBACKS = {f"{fn.__module__}:{fn.__qualname__}": fn for fn in (called, called_between, issued)}
OWN = (*DEVICE, *HOST, *LONG, *DEFAULTS)
POISON = 0xA5
NBYTES = 4 * SHAPE[0] * SHAPE[1]
Memory = npt.NDArray[np.int32]


def initial() -> Values:
    """Return the values of all arrays of a new Executable."""
    values = initial_short()
    for i, name in enumerate(LONG):
        values[name] = np.arange(2 * NBYTES // 4, dtype="i4").reshape(2 * SHAPE[0], SHAPE[1]) * (i + 3)
    for i, name in enumerate(DEFAULTS):
        values[name] = values["a"] * (i + 5)
    return values


def copied(seed: int) -> Memory:
    """Return values for the parameter that copies them."""
    return (np.arange(NBYTES // 4, dtype="i4").reshape(SHAPE) + 1) * (10 * seed + 1)


def addresses(array: Memory) -> set[int]:
    """Return the addresses of all elements."""
    at = np.array(array.__array_interface__["data"][0])
    for extent, stride in zip(array.shape, array.strides):
        at = np.add.outer(at, np.arange(extent) * stride)
    return set(at.ravel().tolist())


class Rows:
    """Some rows of memory that another object describes, as another library would slice it."""

    def __init__(self, whole: Any, row: int) -> None:
        known = whole.__cuda_array_interface__
        start, read_only = known["data"]
        data = (start + 4 * SHAPE[1] * row, read_only)
        self.__cuda_array_interface__ = {**known, "shape": SHAPE, "strides": None, "data": data}
        self.whole = whole


def rows(whole: Any, name: str, row: int) -> Any:
    """Return an object with rows of an Executable's array; of all of an array its own object."""
    if name not in LONG:
        return np.asarray(whole) if name in (*HOST, "x", "y") else whole
    return np.asarray(whole)[row : row + SHAPE[0]] if LONG[name] == "host" else Rows(whole, row)


def with_unused(g: hg.Graph, known: hg.Graph) -> hg.Graph:
    """Declare what no node has brought along: arrays that neither nodes nor defaults of their parameters use, and parameters."""
    parameters = {parameter.name: parameter for node in known.nodes for parameter in node.parameters}
    for name, array in known.arrays.items():
        if name not in g.arrays and isinstance(array, hg.HostArray | hg.DeviceArray):
            where: dict[str, Any] = {} if array.on_host else {"device": array.device, "access": array.access}
            (g.host_array if array.on_host else g.device_array)(name, initial()[name], **where)
    for name, p in known.parameters.items():
        if name not in parameters:
            default = g.arrays[p.default.name] if isinstance(p.default, hg.HostArray | hg.DeviceArray) else p.default
            g.param(name, p.dtype, default, shape=p.shape, copy=p.copy)
    return g


class Allocations:
    """All memory of a runtime: what is freed is filled and kept aside until the end, so that its later use is always noticed."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.sizes: dict[int, int] = {}
        """What has been allocated and not freed."""
        self.aside: list[tuple[int, int, Callable[[int], None]]] = []
        self.freed = threading.Condition()

    def watch(self, patched: pytest.MonkeyPatch) -> None:
        """Stand before the runtime's methods."""
        stand_ins: dict[str, Callable[..., Any]] = {
            "malloc": self.allocate,
            "host_malloc": self.allocate,
            "free": self.free,
            "host_free": self.free,
        }
        for name, method in stand_ins.items():
            patched.setattr(self.runtime, name, partial(method, getattr(self.runtime, name)))

    def allocate(self, real: Callable[[int], int], nbytes: int) -> int:
        pointer = real(nbytes)
        self.sizes[pointer] = nbytes
        return pointer

    def free(self, real: Callable[[int], None], pointer: int) -> None:
        if pointer not in self.sizes:
            real(pointer)
            return
        with self.freed:
            junk = np.full(self.sizes.pop(pointer), POISON, np.uint8)
            self.runtime.memcpy(pointer, junk.ctypes.data, junk.nbytes, MemcpyKind.DEFAULT)
            self.aside.append((pointer, junk.nbytes, real))
            self.freed.notify_all()

    def require_returned(self) -> None:
        """Require that all has been freed, which threads do where memory was lent, and that nothing was written afterwards."""
        with self.freed:
            if self.sizes:
                gc.collect()
            assert self.freed.wait_for(lambda: not self.sizes, 20), f"{len(self.sizes)} allocations have not been freed"
        found = []
        for pointer, nbytes, real in self.aside:
            now = np.full(nbytes, POISON, np.uint8)
            self.runtime.memcpy(now.ctypes.data, pointer, nbytes, MemcpyKind.DEFAULT)
            found.append((now == POISON).all())
            real(pointer)
        assert all(found), "memory was written after it had been freed"


class Stream:
    """A stream that is destroyed with this object, as other libraries have it."""

    def __init__(self, runtime: Runtime) -> None:
        self.handle = runtime.stream_create()
        weakref.finalize(self, runtime.stream_destroy, self.handle)


class Life:
    """One Executable, and what it must be like."""

    def __init__(self, program: Program, name: str, devices: tuple[int, ...]) -> None:
        self.name, self.devices = name, devices
        self.parts = list(program.parts)
        self.numbers = program.numbers
        self.in_line = program.in_line
        self.defaults = dict(program.defaults)
        self.off: set[int] = set()
        self.own = initial()
        self.given: dict[str, int] = {}
        self.bound: dict[str, Memory] = {}
        self.copied: Memory | None = None
        self.dag: nx.DiGraph[Any]
        self.exe: hg.Executable

    def graph(self, form: str = "declared") -> hg.Graph:
        """Return a new graph that says the same, after it has been in some form."""
        g = arrays_declared(self.name, self.devices)
        values = initial()
        for name, place in {**LONG, **DEFAULTS}.items():
            if place == "device":
                g.device_array(name, values[name], device=0 if self.devices else None, access=sorted({*self.devices}))
            else:
                g.host_array(name, values[name])
        params = {name: g.param(name, "int32", self.defaults[name]) for name in NUMBERS}
        for name in MEMORY:
            kind, array = self.defaults[name]
            g.param(name, "int32", array if kind == "name" else g.arrays[array], shape=SHAPE)
        g.param("v", "int32", copied(self.defaults["v"]), shape=SHAPE, copy=True)
        before = ""
        for i, part in enumerate(self.parts):
            if isinstance(part, Temporary):
                part = replace(part, variable=part.variable and not self.devices)  # each device has its own
                part.declare(g, f"n{i}")
                first, last = f"n{i}_in", f"n{i}_out"
            else:
                part.declare(g, f"n{i}", params.get(self.parameter(i)))
                first = last = f"n{i}"
            if self.in_line and before:
                g.order(before, first)
            before = last
        return in_form(g, form)

    @property
    def scalars(self) -> dict[str, int]:
        """The values that the scalar parameters must have."""
        return {name: self.given.get(name, self.defaults[name]) for name in NUMBERS}

    @property
    def places(self) -> Values:
        """All arrays and array parameters by name; those that are the same memory are views of one array."""
        bound = {name: self.bound.get(name, self.own[self.defaults[name][1]]) for name in MEMORY}
        return {**self.own, **bound, "v": copied(self.defaults["v"]) if self.copied is None else self.copied}

    def number(self, i: int) -> int:
        """Return the number of a step."""
        parameter = self.parameter(i)
        return self.scalars[parameter] if parameter else self.parts[i].by

    def parameter(self, i: int) -> str:
        """Return the name of the parameter that is a step's number, if any."""
        return self.numbers[i] if getattr(self.parts[i], "kind", "") in NUMBERED else ""

    def node(self, i: int) -> str:
        """Return the name of the node that writes what a part writes for all others."""
        return f"n{i}_out" if isinstance(self.parts[i], Temporary) else f"n{i}"

    def views(self, part: Part) -> tuple[Memory, Memory]:
        """Return the memory that a part writes and that which it reads."""
        if isinstance(part, Temporary):
            return self.places[part.to], self.places[part.origin]
        return self.places[part.to[0]][part.to[1]], self.places[part.origin[0]][part.origin[1]]

    def is_defined(self) -> bool:
        """Return whether no node reads elements that it writes as others."""
        writing = ((part, *self.views(part)) for part in self.parts)
        return not any(np.shares_memory(to, origin) for part, to, origin in writing if getattr(part, "kind", "") != "set")

    def copies_onto_itself(self) -> bool:
        """Return whether a node reads what it writes as others, by what parameters stand for by default: no order permits it."""
        given, bound = self.given, self.bound
        self.given, self.bound = {}, {}
        try:
            return not self.is_defined()
        finally:
            self.given, self.bound = given, bound

    def has_aliases(self) -> bool:
        """Return whether two names are the same memory: nodes that have no order may then not run."""
        places = list(self.places.values())
        return any(np.shares_memory(a, b) for i, a in enumerate(places) for b in places[:i])

    def has_eager(self) -> bool:
        """Return whether the launching thread calls functions or decides, which no capture holds."""
        return any(getattr(part, "kind", "") in ("eager", "issue") or getattr(part, "inside", "") == "if" for part in self.parts)

    def faulty(self) -> set[int]:
        """Return the steps that fail in the next launch."""
        kinds = ("mix", "call", "eager")
        enabled = (i for i in range(len(self.parts)) if i not in self.off and getattr(self.parts[i], "kind", "") in kinds)
        return {i for i in enabled if self.number(i) == FAULT}

    def run(self, chosen: Callable[[int], bool] = lambda i: True) -> None:
        """Do to NumPy arrays what a launch does, or some parts of it."""
        places = self.places
        for i, part in enumerate(self.parts):
            if i not in self.off and chosen(i):
                if isinstance(part, Temporary):
                    part.apply(places)
                else:
                    part.apply(places, self.number(i))

    def behind(self, i: int) -> set[int]:
        """Return the parts that come after a part, and itself."""
        after = nx.descendants(self.dag, self.node(i))
        return {i, *(k for k in range(len(self.parts)) if self.node(k) in after)}

    def first(self, faulty: set[int]) -> set[int]:
        """Return those steps that are not behind another of them."""
        return {i for i in faulty if not any(i in self.behind(k) for k in faulty - {i})}

    def translated(self, other: Life) -> None:
        """Take over what is bound in another, with the own arrays in place of the other's."""
        for name, memory in other.bound.items():
            self.bound[name] = memory
            for array, own in other.own.items():
                if np.shares_memory(memory, own):
                    first = (memory.ctypes.data - own.ctypes.data) // own.strides[0]
                    self.bound[name] = self.own[array][first : first + SHAPE[0]]


def in_form(g: hg.Graph, form: str) -> hg.Graph:
    """Return a graph that has been a text, bytes or a networkx graph."""
    if form == "json":
        text = g.to_json()
        return hg.Graph.from_json(text, callbacks={path: fn for path, fn in CALLBACKS.items() if f'"{path}"' in text})
    if form == "pickle":
        g.check()
        found: hg.Graph = pickle.loads(pickle.dumps(g))
        return found
    return with_unused(hg.Graph.from_networkx(g.dag), g) if form == "networkx" else g


class World:
    """The Executables of a story."""

    def __init__(self, story: Story, runtime: Runtime, backend: Any) -> None:
        self.story, self.runtime, self.backend = story, runtime, backend
        self.real = [np.zeros(SHAPE, "i4") + 7 * n for n in range(2)]
        self.users: list[Memory] = [array.copy() for array in self.real]
        self.left: list[tuple[dict[str, Any], Values]] = []
        """Objects with memory of Executables that have been closed or rebuilt since, and what they hold."""
        self.gone: list[tuple[str, Values]] = []
        """Names and arrays of Executables that have been closed."""
        self.streams: list[int] = []
        self.count, self.several = 0, bool(story.devices) and runtime.get_device_count() > 1
        self.lives = [self.begun(story.program, story.form)]

    def new(self, program: Program) -> Life:
        """Return a life without its Executable."""
        self.count += 1
        return Life(program, f"life{self.count}", self.story.devices if self.several else ())

    def begun(self, program: Program, form: str) -> Life:
        """Return a new life, compiled."""
        life = self.new(program)
        g = life.graph(form)
        life.dag = g.dag
        life.exe = g.compile(self.runtime, self.backend, **self.story.options)
        return life

    def at(self, number: int) -> Life:
        return self.lives[number % len(self.lives)]

    def add(self, life: Life) -> None:
        """Add a life; where there are too many, the oldest ends."""
        self.lives.append(life)
        if len(self.lives) > MOST_LIVES:
            self.close(self.lives[0])

    def close(self, life: Life) -> None:
        self.leave(life)
        self.lives.remove(life)
        self.gone.append((life.name, life.own))
        life.exe.close()

    def leave(self, life: Life) -> None:
        """Keep objects with the memory of an Executable that is about to be closed or rebuilt."""
        self.left.append(({name: life.exe.array(name) for name in OWN}, life.own))

    def look(self) -> None:
        """Compare all that there is."""
        self.wait_for_others()
        for life in self.lives:
            assert life.exe.parameters == life.scalars, f"parameters of {life.name}"
        if isinstance(self.runtime, RecorderRuntime):  # it computes nothing
            return
        for life in self.lives:
            for name, wanted in life.own.items():
                found = life.exe.read(name)
                assert found.tobytes() == wanted.tobytes(), f"{name} of {life.name}: {found} instead of {wanted}"
        for i, (real, wanted) in enumerate(zip(self.real, self.users)):
            assert real.tobytes() == wanted.tobytes(), f"array {i} of the user: {real} instead of {wanted}"

    def look_at_left(self) -> None:
        """Compare the memory that was taken before Executables were closed or rebuilt: those that were rebuilt still use it."""
        if isinstance(self.runtime, RecorderRuntime):
            return
        for objects, values in self.left:
            for name, wanted in values.items():
                found = np.empty_like(wanted)
                self.runtime.memcpy(found.ctypes.data, objects[name].ptr, found.nbytes, MemcpyKind.DEFAULT)
                assert found.tobytes() == wanted.tobytes(), f"{name}, taken before a change: {found} instead of {wanted}"

    def wait_for_others(self, life: Life | None = None) -> None:
        """Wait for all others: memory that Executables share is the user's to order."""
        for other in self.lives:
            if other is not life:
                other.exe.synchronize()

    # -- memory --------------------------------------------------------------------------------------------------------

    def resolved(self, life: Life, given: Given) -> tuple[Any, Memory]:
        """Return what a launch is given, and the memory that it is."""
        if self.several and given[-2:][0] == "w":  # of rows of an array nobody can know whose device may reach them
            given = (*given[:-2], "c", 0)
        match given:
            case ("name", name):
                return name, life.own[name]
            case ("declared", name):
                return life.exe.workflow.arrays[name], life.own[name]
            case ("user", number):
                return self.real[number], self.users[number]
            case ("left", number, name, row) if self.left:
                objects, values = self.left[number % len(self.left)]
                return rows(objects[name], name, row), values[name][row : row + SHAPE[0]]
            case (_, number, name, row):
                owner = self.at(number)
                return rows(owner.exe.array(name), name, row), owner.own[name][row : row + SHAPE[0]]
        raise AssertionError(given)

    def owners_gone(self, life: Life) -> list[str]:
        """Return the names of closed Executables whose memory is bound."""
        memory = life.bound.values()
        return [name for name, own in self.gone if any(np.shares_memory(a, b) for a in memory for b in own.values())]

    # -- launching -----------------------------------------------------------------------------------------------------

    def launch(self, life: Life, way: str, values: Mapping[str, Any]) -> None:
        """Launch once with values, unless what that means is undefined."""
        before = dict(life.given), dict(life.bound), life.copied
        given: dict[str, Any] = {}
        for name, value in values.items():
            if name in MEMORY:
                given[name], life.bound[name] = self.resolved(life, value)
            elif name == "v":
                given[name] = life.copied = copied(value)
            else:
                given[name] = life.given[name] = life.scalars[name] if value == EQUAL else value
        faulty, gone, aliases = life.faulty(), self.owners_gone(life), life.has_aliases()
        may_fail = way == "own" and not gone and isinstance(self.runtime, CpuRuntime) and len(life.first(faulty)) == 1
        if not life.is_defined() or (faulty and not may_fail):
            life.given, life.bound, life.copied = before
            return
        self.wait_for_others(life)
        try:
            if faulty:
                self.fail(life, way, given, faulty)
            else:
                self.put(life, way, given)
                life.run()
        except (hg.CallbackError, hg.HipError):
            raise
        except hg.HipGraphError as error:
            life.given, life.bound, life.copied = before
            self.require_reason(error, gone, aliases=aliases and not life.in_line)
            if self.owners_gone(life):
                self.launch(life, way, {name: ("name", life.defaults[name][1]) for name in MEMORY})

    @staticmethod
    def require_reason(error: hg.HipGraphError, gone: list[str], *, aliases: bool) -> None:
        """Require that a refusal is of memory that has gone, which it names, or of nodes without an order that share memory."""
        assert gone or aliases, error
        assert aliases or any(repr(name) in str(error) for name in (*gone, *MEMORY)), error

    def put(self, life: Life, way: str, given: Mapping[str, Any]) -> None:
        """Launch in one of the ways."""
        exe, runtime = life.exe, self.runtime
        if way == "stream":
            stream = runtime.stream_create()
            try:
                exe.launch(stream=stream, **given)
                runtime.stream_synchronize(stream)
            finally:
                runtime.stream_destroy(stream)
        elif way == "stream object":
            self.put_on_object(exe, given)
        elif way == "other's stream":
            exe.launch(stream=self.lives[-1].exe.stream, **given)
        elif way == "profile":
            exe.profile(**given)
        elif way == "captured" and not given and not life.has_eager():
            self.put_captured(exe)
        else:
            exe.launch(**given)

    def put_on_object(self, exe: hg.Executable, given: Mapping[str, Any]) -> None:
        """Launch on a stream whose owner nobody else keeps."""
        stream = Stream(self.runtime)
        known = weakref.ref(stream)
        exe.launch(stream=stream, **given)
        del stream
        assert known() is not None, "a stream has gone before its launch was waited for"

    def put_captured(self, exe: hg.Executable) -> None:
        """Launch inside another graph's capture; where that cannot be, it is refused, and nothing is left of it."""
        outer = hg.Graph("outer")
        word = outer.device_array("word", shape=1, dtype="i4")
        outer.captured(lambda stream, _: exe.launch(stream=int(stream)), (word,), name="launches")
        try:
            launched = outer.compile(self.runtime, "explicit")
        except hg.HipGraphError:
            assert self.backend != "streams" or exe.plan.has_allocs
            exe.launch()
        else:
            with launched:
                exe.synchronize()  # the other graph is not ordered with launches that are in flight
                launched.run()

    def failing(self, life: Life, way: str, given: Mapping[str, Any]) -> hg.CallbackError | hg.HipError:
        """Launch what fails, and return the error."""
        try:
            self.put(life, way, given)
            life.exe.synchronize()
        except (hg.CallbackError, hg.HipError) as error:
            return error
        raise AssertionError(f"a launch of {life.name} has not failed")

    def fail(self, life: Life, way: str, given: Mapping[str, Any], faulty: set[int]) -> None:
        """Launch what fails: nothing behind the fault starts, all before it has run, and the error has the faulty node's name.

        Where nodes share a launch, it has the names of all.
        """
        (culprit,) = life.first(faulty)
        error, name = self.failing(life, way, given), life.node(culprit)
        shared = "share its launch" in str(error) and repr(name) in str(error)
        assert error.node == name or shared, f"{error.node!r} has failed by name, and not {name!r}"
        life.exe.synchronize()  # what failed is reported once
        before = {i for i in range(len(life.parts)) if culprit in life.behind(i) - {i}}
        never = set[int]().union(*map(life.behind, faulty))
        perhaps = {i for i in range(len(life.parts)) if i not in before | never | life.off}
        unknown = set[int]().union(*(addresses(life.views(life.parts[i])[0]) for i in perhaps))
        life.run(before.__contains__)
        self.settle(unknown)

    def settle(self, unknown: set[int]) -> None:
        """Compare all but elements that independent nodes may have written, and take those as they are."""
        known = [(real, wanted, "the user's array") for real, wanted in zip(self.real, self.users)]
        for life in self.lives:
            known += [(life.exe.read(name), wanted, f"{name} of {life.name}") for name, wanted in life.own.items()]
        for found, wanted, what in known:
            at = wanted.__array_interface__["data"][0] + np.arange(wanted.size).reshape(wanted.shape) * 4
            sure = ~np.isin(at, list(unknown))
            np.testing.assert_array_equal(found[sure], wanted[sure], err_msg=f"{what} after a fault")
            wanted[...] = found

    # -- changing ------------------------------------------------------------------------------------------------------

    def set(self, life: Life, i: int, new: Part) -> None:
        old = life.parts[i]
        if not isinstance(new, Step) or not isinstance(old, Step) or new.kind != old.kind:
            return
        life.parts[i] = new
        if life.is_defined():
            exe = life.exe
            names: dict[str, Any] = {**exe.workflow.arrays, **exe.workflow.parameters}
            try:
                exe.set(f"n{i}", **new.fields(names, names.get(life.parameter(i))))
                return
            except hg.UpdateError:  # what it touches is not ordered by the graph's edges
                pass
            except hg.DeclarationError as error:
                self.require_reason(error, self.owners_gone(life), aliases=life.has_aliases() and not life.in_line)
        life.parts[i] = old

    def update(self, life: Life, changed: Mapping[int, Part], defaults: Mapping[str, Any], form: str, rebuild: bool) -> None:
        before = list(life.parts), dict(life.defaults)
        for i, part in changed.items():
            life.parts[i] = part
        life.defaults.update(defaults)
        if life.is_defined():
            g = life.graph(form)
            in_place = hg.explain_update(life.exe.workflow, g).in_place
            self.leave(life)
            try:
                life.exe.update(g, rebuild=rebuild)
                life.dag = g.dag
                return
            except hg.UpdateError:
                assert not in_place
                assert not rebuild
            except (hg.CallbackError, hg.HipError):
                raise
            except hg.HipGraphError as error:
                aliases = life.copies_onto_itself() or (life.has_aliases() and not life.in_line)
                self.require_reason(error, self.owners_gone(life), aliases=aliases)
        life.parts, life.defaults = before

    def clone(self, life: Life) -> None:
        twin = self.new(self.story.program)
        try:
            twin.exe, twin.dag = life.exe.clone(), life.dag
        except (hg.CallbackError, hg.HipError):
            raise
        except hg.HipGraphError as error:
            self.require_reason(error, self.owners_gone(life), aliases=False)
            return
        twin.parts, twin.defaults, twin.off = list(life.parts), dict(life.defaults), set(life.off)
        twin.given, twin.copied = dict(life.given), life.copied
        twin.own = {name: array.copy() for name, array in life.own.items()}
        twin.translated(life)
        self.add(twin)

    def again(self, life: Life) -> None:
        """Compile what an Executable says that it is."""
        g = hg.Graph.from_workflow(life.exe.workflow)
        new = self.new(self.story.program)
        new.parts, new.defaults = list(life.parts), dict(life.defaults)
        new.dag = g.dag
        try:
            new.exe = g.compile(self.runtime, self.backend, **self.story.options)
        except hg.CheckError:
            assert new.has_aliases()
            assert not new.in_line or new.copies_onto_itself()
            return
        self.add(new)

    def do(self, action: Action) -> None:
        """Do what an action says."""
        life = self.at(action[1])
        self.wait_for_others(life)
        match action:
            case ("launch", _, way, launches):
                for values in launches:
                    self.launch(life, way, values)
                self.look()
            case ("set", _, i, part):
                self.set(life, i, part)
            case ("enable" | "disable" as what, _, i):
                getattr(life.exe, what)(f"n{i}")
                (life.off.discard if what == "enable" else life.off.add)(i)
            case ("update", _, changed, defaults, form, rebuild):
                self.update(life, changed, defaults, form, rebuild)
            case ("write", _, name, number):
                life.exe.write(name, number)
                life.own[name][...] = number
            case ("clone" | "again" as what, _):
                getattr(self, what)(life)
            case ("close", _) if len(self.lives) > 1:
                self.close(life)


def refuse_gone_handles(runtime: Runtime, patched: pytest.MonkeyPatch) -> None:
    """Let no call take a handle that has been destroyed: where they crash nobody may count on an error."""
    real: Callable[..., None] | None = getattr(runtime, "_fail", None)

    def fail(api: str, code: int, *detail: str) -> None:
        assert code != ERROR_INVALID_HANDLE, f"{api} was called with a handle that has been destroyed"
        assert real is not None
        real(api, code, *detail)

    if real is not None:
        patched.setattr(runtime, "_fail", fail)


def play(story: Story, runtime: Runtime, backend: Any) -> None:
    """Let a story happen, and compare."""
    allocations = Allocations(runtime)
    with pytest.MonkeyPatch.context() as patched:
        allocations.watch(patched)
        if not story.compiled:
            patched.setattr(runtime, "launcher", lambda slow: None)
        refuse_gone_handles(runtime, patched)
        happen(World(story, runtime, backend))
    allocations.require_returned()


def happen(world: World) -> None:
    """Do what a story says, and launch all Executables once more."""
    try:
        for action in world.story.actions:
            world.do(action)
        for life in tuple(world.lives):
            world.launch(life, "own", {})
        world.look()
        world.look_at_left()
    finally:
        for life in world.lives:
            life.exe.close()
        world.left.clear()
