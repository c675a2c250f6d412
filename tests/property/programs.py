"""Random programs over a few small arrays: what they do as a graph, and what they do to NumPy arrays."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st
from property.strategies import integers, permutations, sampled_from

import hipgraphdsl as hg
from hipgraphdsl.runtimes.data import MemcpyKind

SHAPE = (4, 6)
DEVICE = ("a", "b", "c")
HOST = ("h", "k")
NAMES = DEVICE + HOST
FAULT = 99
"""The number with which a kernel traps and a function raises; no step has it of its own."""
KINDS = ("mix", "copy", "set", "call", "mix", "copy", "set", "eager", "issue")
SOURCE = r"""
extern "C" __global__ void mix(int* y, const int* x, int k, int n) {
  int i = threadIdx.x;
  if (k == 99) __trap();
  if (i < n) y[i] = (int)(31u * (unsigned)y[i] + 7u * (unsigned)x[i] + (unsigned)k);
}
__device__ int table[4][6];
extern "C" __global__ void less(int* word) { if (*word > 0) *word -= 1; }
"""
MODULE = hg.Module(SOURCE, name="programs")
Values = dict[str, npt.NDArray[np.int32]]
Box = tuple[Any, ...]


@dataclass(frozen=True)
class Step:
    """One node: `kind` is one of `KINDS`; `to` and `origin` are (array, slices); `by` is a number.

    ``eager`` and ``issue`` are eager nodes: NumPy on host arrays, and a copy that the function puts on its stream.
    """

    kind: str
    to: tuple[str, Box]
    origin: tuple[str, Box]
    by: int

    def apply(self, v: Values, by: int | None = None) -> None:
        """Do it to NumPy arrays; `by` takes the place of the number."""
        number = self.by if by is None else by
        to, origin = v[self.to[0]][self.to[1]], v[self.origin[0]][self.origin[1]]
        if self.kind == "mix":
            to[...] = _wrapped(31 * to.astype(np.int64) + 7 * origin.astype(np.int64) + number)
        elif self.kind in ("copy", "issue"):
            to[...] = origin
        elif self.kind == "set":
            to[...] = number
        else:
            to[...] = _called(to, origin, number)

    def fields(self, arrays: dict[str, Any], by: Any = None) -> dict[str, Any]:
        """Return the fields of the node's model that the step decides."""
        number = self.by if by is None else by
        to, origin = arrays[self.to[0]][self.to[1]], arrays[self.origin[0]][self.origin[1]]
        if self.kind == "mix":
            return {"args": (to, hg.reads(origin), number, to.size)}
        if self.kind == "copy":
            return {"dst": to, "src": origin}
        if self.kind == "set":
            return {"dst": to, "value": number}
        if self.kind == "issue":
            return {"args": (to, origin), "reads": [origin], "writes": [to]}
        return {"args": (to, origin, number), "reads": [to, origin], "writes": [to]}

    def declare(self, g: hg.Graph, name: str, by: Any = None) -> hg.Node:
        """Add the node to a graph."""
        fields = self.fields({**g.arrays, **g.parameters}, by)
        if self.kind == "mix":
            return g.kernel(MODULE["mix"], 1, 32, name=name, **fields)
        if self.kind == "copy":
            return g.memcpy(name=name, **fields)
        if self.kind == "set":
            return g.memset(name=name, **fields)
        if self.kind == "call":
            return g.host(called, name=name, **fields)
        return g.eager(issued if self.kind == "issue" else called_between, name=name, **fields)


class Broken(ValueError):
    """What a function raises that is called with `FAULT`."""


def called(to: Any, origin: Any, by: int) -> None:
    """Be a callback whose order matters."""
    if by == FAULT:
        raise Broken
    to[...] = _called(to, origin, by)


def _called(to: Any, origin: Any, by: int) -> npt.NDArray[np.int32]:
    return _wrapped(13 * to.astype(np.int64) + 5 * origin.astype(np.int64) + by)


def called_between(stream: Any, to: Any, origin: Any, by: int) -> None:
    """Be an eager function whose order matters."""
    called(to, origin, by)


def issued(stream: Any, to: Any, origin: Any) -> None:
    """Be a library that copies on the stream that it is given; a parameter may stand for host memory, which is NumPy's."""
    at, start = (array.ctypes.data if isinstance(array, np.ndarray) else array.ptr for array in (to, origin))
    stream.runtime.memcpy_async(at, start, to.nbytes, MemcpyKind.DEFAULT, int(stream))


def _wrapped(value: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    return value.astype(np.uint64).astype(np.uint32).view(np.int32)


def initial() -> Values:
    """Return values that all differ."""
    size = int(np.prod(SHAPE))
    return {name: (np.arange(size, dtype="i4") + 100 * i + 1).reshape(SHAPE) for i, name in enumerate(NAMES)}


def declared(name: str = "random", devices: tuple[int, ...] = ()) -> hg.Graph:
    """Return a graph with the arrays and no nodes; `devices` are those of the device arrays, which all others may reach."""
    g = hg.Graph(name)
    for array, values in initial().items():
        if array in HOST:
            g.host_array(array, values)
        elif devices:
            g.device_array(array, values, device=devices[DEVICE.index(array)], access=devices)
        else:
            g.device_array(array, values)
    return g


def built(steps: list[Step], names: list[str] | None = None, devices: tuple[int, ...] = ()) -> hg.Graph:
    """Return the graph of a program."""
    g = declared(devices=devices)
    for i, step in enumerate(steps):
        step.declare(g, f"n{i}" if names is None else names[i])
    return g


def _extent(draw: Any, extent: int, count: int, step: int) -> slice:
    start = draw(integers(0, extent - (count - 1) * step - 1))
    return slice(start, start + (count - 1) * step + 1, step)


@st.composite
def boxes(draw: Any, shape: tuple[int, int], pitched: bool) -> Box:
    """Return slices of `SHAPE` with that many rows and columns; `pitched` if one copy must be able to take them."""
    found = []
    for axis, (extent, count) in enumerate(zip(SHAPE, shape)):
        most = (extent - 1) // (count - 1) if count > 1 and not (pitched and axis and shape[0] > 1) else 1
        found.append(_extent(draw, extent, count, draw(integers(1, most))))
    return tuple(found)


_boxes = cache(boxes)


@st.composite
def steps(draw: Any, kind: str | None = None, device: tuple[str, ...] = DEVICE, host: tuple[str, ...] = HOST) -> Step:
    """Return one random step over arrays of `SHAPE`, or longer ones."""
    kind = kind or draw(sampled_from(KINDS))
    by = draw(integers(-(2**31), 2**31 - 1)) if kind == "set" else draw(integers(-9, 9))
    if kind in ("mix", "issue"):  # contiguous views: whole rows, or a part of one
        rows = draw(integers(1, 3))
        first, second = draw(integers(0, SHAPE[0] - rows)), draw(integers(0, SHAPE[0] - rows))
        columns = slice(0, SHAPE[1], 1)
        if rows == 1:
            columns = _extent(draw, SHAPE[1], draw(integers(1, SHAPE[1])), 1)
        to, origin = draw(permutations(device + host if kind == "mix" else device))[:2]
        return Step(
            kind, (to, (slice(first, first + rows, 1), columns)), (origin, (slice(second, second + rows, 1), columns)), by
        )
    names = host if kind in ("call", "eager") else device + host
    to, origin = draw(permutations(names))[:2]
    shape = (draw(integers(1, SHAPE[0])), draw(integers(1, SHAPE[1])))
    return Step(kind, (to, draw(_boxes(shape, kind == "copy"))), (origin, draw(_boxes(shape, kind == "copy"))), by)


step_of = cache(steps)


@dataclass(frozen=True)
class Temporary:
    """Memory of the graph, or a variable, that is written from one array, mixed with it and copied to another.

    The kernel is in the graph, or `inside` another graph whose array parameters are bound to that memory and to the array: a
    ``"child"``, or the body of a conditional node, ``"if"``, that the host runs unless the memory's first element is 0. A child
    of ``"arrays"`` has arrays instead of array parameters, and one with a ``"default"`` reads a parameter that stands for one.
    """

    to: str
    origin: str
    by: int
    inside: str = ""
    variable: bool = False

    def apply(self, v: Values) -> None:
        """Do it to NumPy arrays."""
        origin = v[self.origin]
        mixed = _wrapped(31 * origin.astype(np.int64) + 7 * origin.astype(np.int64) + self.by)
        v[self.to][...] = mixed if self.inside != "if" or origin[0, 0] else origin

    def declare(self, g: hg.Graph, name: str) -> None:
        """Add the nodes to a graph."""
        names: dict[str, Any] = {**g.arrays, **g.parameters}
        t: Any = MODULE.symbol("table") if self.variable else g.alloc(f"{name}_t", SHAPE, "i4", name=f"{name}_make").array
        size = int(np.prod(SHAPE))
        g.memcpy(t, names[self.origin], name=f"{name}_in")
        if self.inside:
            child = hg.Graph("inside")
            declare: Any = child.device_array if self.inside in ("arrays", "default") else child.param
            y, x = declare("y", dtype="i4", shape=t.shape), declare("x", dtype="i4", shape=SHAPE)
            if self.inside == "default":
                x = child.param("of_x", "i4", x, shape=SHAPE)
            child.kernel(MODULE["mix"], 1, 32, (hg.updates(y), hg.reads(x), self.by, size), name="mix")
            bind = {"y": t, "x": names[self.origin]}
            if self.inside != "if":
                g.child(child, bind=bind, name=f"{name}_mix")
            else:
                g.conditional("if", t[0, :1], [child], bind, decide="host", name=f"{name}_mix")
        else:
            g.kernel(MODULE["mix"], 1, 32, (hg.updates(t), hg.reads(names[self.origin]), self.by, size), name=f"{name}_mix")
        g.memcpy(names[self.to], t, name=f"{name}_out")
        if not self.variable:
            g.free(t, name=f"{name}_free")


@dataclass(frozen=True)
class Block:
    """A conditional node whose condition is a number, or a child graph where `mode` is ``"child"``."""

    mode: str
    number: int
    decide: str
    every: int
    bodies: tuple[tuple[Part, ...], ...]

    def apply(self, v: Values) -> None:
        """Do it to NumPy arrays."""
        times, body = 1, 0
        if self.mode == "while":
            times = -(-self.number // self.every) * self.every
        elif self.mode == "if":
            body = int(not self.number)
        elif self.mode == "switch":
            body = self.number
        for _ in range(times if body < len(self.bodies) else 0):
            for part in self.bodies[body]:
                part.apply(v)

    def declare(self, g: hg.Graph, name: str) -> None:
        """Add the nodes to a graph that holds all arrays of a program."""
        bind = {array: g.arrays[array] for array in NAMES}
        bodies = [declared(f"{name}_{i}") for i in range(len(self.bodies))]
        for body, parts in zip(bodies, self.bodies):
            for i, part in enumerate(parts):
                part.declare(body, f"n{i}")
        if self.mode == "child":
            g.child(bodies[0], bind=bind, name=name)
            return
        word = g.device_array(f"{name}_word", shape=1, dtype="i4")
        g.memset(word, self.number, name=f"{name}_given")
        if self.mode == "while":
            bodies[0].kernel(MODULE["less"], 1, 1, (bodies[0].device_array("word", shape=1, dtype="i4"),), name="less")
            bind["word"] = word
        mode: Any = self.mode
        decide: Any = self.decide
        g.conditional(mode, word, bodies, bind, decide=decide, check_every=self.every, name=name)


Part = Step | Temporary | Block
IN_GRAPHS = ("mix", "copy", "set")
"""Kinds of steps that a body may hold where the device decides."""


@cache
def _parts(deep: int, decide: str) -> st.SearchStrategy[list[Part]]:
    """Return what may stand in the body of a conditional node."""
    kinds = st.sampled_from(IN_GRAPHS if decide == "device" else KINDS)
    part: st.SearchStrategy[Part] = kinds.flatmap(step_of)
    if decide != "device":
        part = part | st.builds(Temporary, st.sampled_from(NAMES), st.sampled_from(NAMES), st.integers(-9, 9))
    if deep:
        part = part | blocks(deep - 1, decide)
    return st.lists(part, max_size=4)


@st.composite
def blocks(draw: Any, deep: int, decide: str = "") -> Block:
    """Return a random conditional node, whose bodies may hold others `deep` levels down.

    `decide` is who decides on the node that this one stands in; what the device runs holds only what a graph can.
    """
    mode = draw(sampled_from(("if", "while", "while", "switch", *["child"] * (decide != "device"))))
    decide = "device" if decide == "device" else draw(sampled_from(("auto", "host", "device") if mode != "child" else ("auto",)))
    every = draw(integers(1, 3)) if mode == "while" else 1
    count = {"if": draw(integers(1, 2)), "switch": draw(integers(1, 3))}.get(mode, 1)
    bodies = tuple(tuple(draw(_parts(deep, decide))) for _ in range(count))
    return Block(mode, draw(integers(0, 4)), decide, every, bodies)


def programs(most: int = 14) -> st.SearchStrategy[list[Step]]:
    return st.lists(steps(), min_size=1, max_size=most)


def touched(step: Step) -> tuple[set[tuple[str, int]], set[tuple[str, int]]]:
    """Return the elements that a step reads and writes, by array and flat index."""
    index = np.arange(int(np.prod(SHAPE))).reshape(SHAPE)
    to = {(step.to[0], int(i)) for i in index[step.to[1]].flat}
    origin = {(step.origin[0], int(i)) for i in index[step.origin[1]].flat}
    reads = set() if step.kind == "set" else origin
    if step.kind in ("mix", "call", "eager"):
        reads = reads | to
    return reads, to


def with_number(step: Step, by: int) -> Step:
    return replace(step, by=by)
