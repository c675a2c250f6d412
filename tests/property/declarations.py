"""Random workflows of every kind of node, and random sequences of changes to them; all of it prints as what one would type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st
from property.strategies import booleans, integers, one_of, permutations, sampled_from, sets

import hipgraphdsl as hg
from hipgraphdsl.runtimes.data import Fill2D, MemcpyKind

Values = dict[str, npt.NDArray[Any]]

SHAPE = (2, 3, 6)
N = 6  # int32 elements of what children and temporaries hold
ARRAYS: dict[str, tuple[str, tuple[int, ...]]] = {
    **dict.fromkeys("abhw", ("i4", SHAPE)),  # on the device, page-locked, pageable
    **dict.fromkeys(("q0", "q1"), ("i4", (N,))),  # what the array parameter is bound to
    "s": ("i2", (2, 5)), "c": ("u1", (7,)), "d": ("f8", (2, 4)), "z": ("c16", (3,)), "f": ("?", (5,)), "u": ("u4", (4,)),
}  # fmt: skip
DEVICE, KERNEL, HOST, COPIED, FILLED = ("a", "b"), ("a", "b", "h"), ("h", "w"), ("a", "b", "h", "w"), tuple("abhscdzfu")
FILLS: dict[str, tuple[Any, ...]] = {
    "i4": (0, -1, 7, 0x01010101), "i2": (0, 3, -2), "u1": (0, 9, 255), "u4": (0, 5), "?": (False, True),
    "f8": (0.0, -0.0, 1.5, np.frombuffer(b"\x07" * 8)[0].item(), float("nan")), "c16": (0, 1 - 2j, 3.25),
}  # fmt: skip
"""Values that one memset writes, and others that only a kernel can."""
PARAMETERS: dict[str, Any] = {"k": 5, "by": 3, "blocks": 2, "q": "q0"}
MODULE = hg.Module(
    r"""
__constant__ int table[4];
extern "C" __global__ void mix(int* y, const int* x, int k, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = (int)(31u * (unsigned)y[i] + 7u * (unsigned)x[i] + (unsigned)k + 1000u * gridDim.x + 100u * blockDim.x);
}
extern "C" __global__ void stir(int* y, const int* x, int k, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = (int)(13u * (unsigned)y[i] + 11u * (unsigned)x[n - 1 - i] - (unsigned)k);
}
extern "C" __global__ void looked_up(int* y, int n) {
  if (threadIdx.x < n) y[threadIdx.x] = (int)(5u * (unsigned)y[threadIdx.x] + (unsigned)table[threadIdx.x % 4]);
}
extern "C" __global__ void given(unsigned* n, int k) { *n = (unsigned)k & 3u; }
extern "C" __global__ void less(unsigned* n) { if (*n) *n -= 1; }
""",
    name="declarations",
)
OUTSIDE = np.arange(N, dtype="i4") * 17 + 5
"""Memory of the user's own, for the array parameter; nothing writes it."""
Part = tuple[str, str, dict[str, Any]]
"""Suffix of a node's name, method of Graph, and the fields."""


@dataclass(frozen=True, repr=False)
class Do:
    """What one node, or a few that belong together, do.

    Attributes
    ----------
    kind : str
        kernel, copy, fill, call, captured, eager, between (an eager node with host arrays), child, conditional, temporary,
        events, ops or variable.
    to, origin : str
        Views, as one would type them.
    number : int or str
        A value, or the name of a parameter.
    how : tuple
        What else the kind has.
    """

    kind: str
    to: str = ""
    origin: str = ""
    number: Any = 0
    how: tuple[Any, ...] = ()

    def __repr__(self) -> str:
        return f"Do({', '.join(map(repr, (self.kind, self.to, self.origin, self.number, self.how)))})"

    def parts(self, arrays: Mapping[str, Any], params: Mapping[str, Any], values: Values, name: str) -> list[Part]:
        """Return the nodes that say it, with arrays and parameters of one graph; `values` are the start of a child's own."""
        names = {**arrays, **params}
        to: Any
        to, origin = (eval(view, {}, names) if view else None for view in (self.to, self.origin))
        number = params.get(self.number, self.number) if isinstance(self.number, str) else self.number
        match self.kind:
            case "kernel":
                function, blocks, threads = self.how
                grid = params[blocks] if isinstance(blocks, str) else blocks
                args = (hg.updates(to), hg.reads(origin), number, to.size)
                return [("", "kernel", {"kernel": MODULE[function], "grid": grid, "block": threads, "args": args})]
            case "copy":
                return [("", "memcpy", {"dst": to, "src": origin})]
            case "fill":
                return [("", "memset", {"dst": to, "value": number})]
            case "call":
                return [("", "host", {"fn": called, "args": (to, origin, number), "reads": [to, origin], "writes": [to]})]
            case "captured":
                return [("", "captured", {"fn": issued, "args": (to, origin), "reads": [origin], "writes": [to]})]
            case "eager":
                return [("", "eager", {"fn": issued_and_set, "args": (to, origin, number), "reads": [origin], "writes": [to]})]
            case "between":
                return [
                    ("", "eager", {"fn": called_between, "args": (to, origin, number), "reads": [to, origin], "writes": [to]})
                ]
            case "conditional":
                mode, decide, every, number, on_host = self.how
                count = {"kernel": MODULE["given"], "grid": 1, "block": 1, "args": (origin, number)}
                bodies = tuple(inner(number, on_host, values.get(f"{name}/{i}/own"), mode) for i in range(1 + (mode != "while")))
                bind = {"x": to, "k": params["k"], **({"n": origin} if mode == "while" else {})}
                fields = {"mode": mode, "condition": origin, "bodies": bodies, "bind": bind}
                return [("_count", "kernel", count), ("", "conditional", {**fields, "decide": decide, "check_every": every})]
            case "child":
                number, on_host = self.how
                child = inner(number, on_host, values.get(f"{name}/own"))
                return [("", "child", {"graph": child, "bind": {"x": to, "k": number}})]
            case "temporary":
                t = arrays.get(f"t_{name}") or hg.Graph().alloc(f"t_{name}", N, "i4").array
                mixed = {"kernel": MODULE["mix"], "grid": 1, "block": 8, "args": (hg.updates(t), hg.reads(origin), number, N)}
                copied = {"dst": to, "src": t}
                return [("_fill", "memset", {"dst": t, "value": 1}), ("_mix", "kernel", mixed), ("_out", "memcpy", copied)]
            case "events":
                return [("_record", "record", {"event": self.how[0]}), ("_wait", "wait", {"event": self.how[0]})]
            case "ops":
                return [("", "memory_ops", {"ops": (hg.write_value(to, number),)})]
            case "variable":
                table = MODULE.symbol("table")
                looked_up = {"kernel": MODULE["looked_up"], "grid": 1, "block": 8, "args": (hg.updates(to), to.size)}
                return [("_table", "memcpy", {"dst": table, "src": origin}), ("", "kernel", looked_up)]
        raise AssertionError(self.kind)

    def declare(self, g: hg.Graph, name: str, values: Values, off: frozenset[str] = frozenset()) -> None:
        """Add the nodes to a graph; those in `off` as nodes that do nothing."""
        if self.kind == "temporary":
            g.alloc(f"t_{name}", N, "i4", name=f"{name}_alloc")
        for suffix, method, fields in self.parts(g.arrays, g.parameters, values, name):
            if name + suffix in off:
                g.empty(name=name + suffix)
            else:
                getattr(g, method)(name=name + suffix, **fields)
        if self.kind == "temporary":
            g.free(g.arrays[f"t_{name}"], name=f"{name}_free")

    @property
    def toggles(self) -> tuple[str, ...]:
        """Suffixes of the nodes that may be disabled; without others, memory of the graph would be read unset."""
        found = {"temporary": ("_mix", "_out"), "events": ("_record", "_wait"), "conditional": ("", "_count")}
        return found.get(self.kind, ("",))

    def own(self, name: str) -> tuple[str, ...]:
        """Return the names of the arrays that are the node's own."""
        bodies = {"child": [""], "conditional": ["/0", "/1"][: 1 + (self.how[:1] != ("while",))]}
        return tuple(f"{name}{body}/own" for body in bodies.get(self.kind, ()))


def arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return launch keywords as they are passed."""
    return {name: OUTSIDE if value == "outside" else value for name, value in given.items()}


def called(to: Any, origin: Any, by: int) -> None:
    """Be a callback whose order matters."""
    wide = 13 * to.astype(np.int64) + 5 * origin.astype(np.int64) + by
    to[...] = wide.astype(np.uint64).astype(np.uint32).view(np.int32)


def issued(stream: Any, to: Any, origin: Any) -> None:
    """Be a library that copies."""
    stream.runtime.memcpy_async(to.ptr, origin.ptr, to.nbytes, MemcpyKind.DEFAULT, int(stream))


def issued_and_set(stream: Any, to: Any, origin: Any, by: int) -> None:
    """Be a library that copies and sets one element."""
    issued(stream, to, origin)
    stream.runtime.memset_async(Fill2D(to.ptr, 4, by & 0xFF, 1), int(stream))


def called_between(stream: Any, to: Any, origin: Any, by: int) -> None:
    """Be a callback that the launching thread calls."""
    called(to, origin, by)


def called_alone(*args: Any) -> None:
    """Be a callback of one array, of a host node or an eager one."""
    called(args[-2], args[-2], args[-1])


def inner(number: int, on_host: bool, own: Any = None, mode: str = "") -> hg.Graph:
    """Return a child or the body of a conditional node of a mode: `x`, `k` and `n` are bound, `own` is its own.

    A number stands in the node ``down``. Where it is `on_host`, it holds what no graph can, a body memory of its own too.
    """
    g = hg.Graph("inner")
    x, mine = g.device_array("x", shape=N, dtype="i4"), g.device_array("own", np.arange(N, dtype="i4") if own is None else own)
    k = g.param("k", "int32", 1)
    g.kernel(MODULE["mix"], 1, 8, (mine, x, k, N), name="up")
    g.memset(mine[:1], k, name="first")
    if on_host:
        h, t = g.host_array("h", shape=N, dtype="i4", pinned=False), g.alloc("t", N, "i4") if mode else x
        if mode:
            g.memcpy(t, x, name="kept")
        g.memcpy(h, t, name="out")
        g.host(called_alone, (h, k), name="call")
        g.eager(called_alone, (h, 2), name="between")
        g.memcpy(x, h, name="in")
        if mode:
            g.free(t, name="free")
    g.kernel(MODULE["stir"], 1, 8, (x, mine, number, N), name="down")
    if mode == "while":
        g.kernel(MODULE["less"], 1, 1, (g.device_array("n", shape=(), dtype="u4"),), name="less")
    return g


@dataclass
class Declaration:
    """What an Executable has been told so far.

    Attributes
    ----------
    nodes : dict of str to Do
        In order of declaration.
    off : set of str
        Nodes that are disabled, by their names in the graph.
    parameters : dict
        Current values.
    values : dict
        Current values of all arrays.
    """

    nodes: dict[str, Do]
    off: set[str] = field(default_factory=set)
    parameters: dict[str, Any] = field(default_factory=lambda: dict(PARAMETERS))
    values: Values = field(default_factory=dict)

    def __post_init__(self) -> None:
        for i, (name, (dtype, shape)) in enumerate(ARRAYS.items()):
            count = (np.arange(int(np.prod(shape))) * 7 + 3 * i + 1) % (2 if dtype == "?" else 97)
            self.values.setdefault(name, count.astype(dtype).reshape(shape))

    def graph(self, off: frozenset[str] = frozenset()) -> hg.Graph:
        """Return a new graph that says the same; nodes in `off` are declared as doing nothing."""
        g = hg.Graph("declared")
        for name in ARRAYS:
            if name in HOST:
                g.host_array(name, self.values[name], pinned=name == "h")
            else:
                g.device_array(name, self.values[name])
        g.param("k", "int32", 5)
        g.param("by", "int32", 3)
        g.param("blocks", "uint32", 2)
        g.param("q", "int32", "q0", shape=N)
        for name, do in self.nodes.items():
            do.declare(g, name, self.values, off)
        return g

    def afresh(self, runtime: Any, launches: list[dict[str, Any]]) -> Values:
        """Return the values of all arrays after those launches of a newly compiled graph."""
        known = self.parameters
        with self.graph(frozenset(self.off)).compile(runtime=runtime, backend="serial") as exe:
            for given in launches:
                known = {**known, **given}
                exe.launch(**arguments(known))
            self.parameters = known
            return {name: exe.read(name) for name in self.names}

    @property
    def names(self) -> list[str]:
        """Names of all arrays that last."""
        off = self.off
        return [*ARRAYS, *(own for name, do in self.nodes.items() if name not in off for own in do.own(name))]


# -- drawing -------------------------------------------------------------------------------------------------------------------


def _slice(draw: Any, extent: int, count: int, step: int) -> str:
    start = draw(integers(0, extent - (count - 1) * step - 1))
    stop = start + (count - 1) * step + 1
    return f"{start}:{stop}" + (f":{step}" if step > 1 else "")


def _box(draw: Any, name: str, counts: tuple[int, ...]) -> str:
    """Return a view with that many elements along each axis that one pitched copy can take."""
    shape = ARRAYS[name][1]
    steps = [1] * len(shape)
    if counts[-1] == 1 or all(count == 1 for count in counts[:-1]):  # strided elements of one row are a pitched copy too
        most = (shape[-1] - 1) // max(1, counts[-1] - 1)
        steps[-1] = draw(integers(1, max(1, min(most, 2)))) if len(counts) == 1 or counts[-1] > 1 else 1
    elif len(shape) == 2 or counts[0] == 1:
        steps[-2] = draw(integers(1, max(1, (shape[-2] - 1) // max(1, counts[-2] - 1))))
    return f"{name}[{', '.join(_slice(draw, *one) for one in zip(shape, counts, steps))}]"


def _row(draw: Any, name: str, count: int) -> str:
    """Return a contiguous view of one row."""
    plane, line = draw(integers(0, SHAPE[0] - 1)), draw(integers(0, SHAPE[1] - 1))
    return f"{name}[{plane}, {line}, {_slice(draw, SHAPE[2], count, 1)}]"


def _scalar(draw: Any, *params: str) -> Any:
    return draw(one_of(integers(-9, 9), sampled_from(params)))


def _inside(draw: Any) -> tuple[int, bool]:
    return draw(integers(-9, 9)), draw(booleans())


KINDS = (
    "kernel", "copy", "fill", "call", "captured", "child", "temporary", "events", "ops", "variable", "eager", "between",
    "conditional",
)  # fmt: skip


@st.composite
def doing(draw: Any, kind: str | None = None) -> Do:
    """Return a random node."""
    kind = kind or draw(sampled_from(KINDS))
    if kind == "kernel":
        to, source = draw(permutations(KERNEL))[:2]
        count = draw(integers(1, SHAPE[2]))
        origin = _row(draw, source, count) if draw(integers(0, 2)) else f"q[:{count}]"
        how = (draw(sampled_from(("mix", "stir"))), draw(sampled_from((1, 3, "blocks"))), draw(sampled_from((2, 8))))
        return Do(kind, _row(draw, to, count), origin, _scalar(draw, "k"), how)
    if kind == "copy":
        to, origin = draw(permutations(COPIED))[:2]
        counts = tuple(draw(integers(1, extent)) for extent in SHAPE)
        if counts[:2] == (1, 1) and to in DEVICE and draw(booleans()):
            return Do(kind, _row(draw, to, counts[2]), f"q[:{counts[2]}]")
        return Do(kind, _box(draw, to, counts), _box(draw, origin, counts))
    if kind == "fill":
        to = draw(sampled_from(FILLED))
        dtype, shape = ARRAYS[to]
        values: Any = st.sampled_from(FILLS[dtype])
        counts = tuple(draw(integers(1, extent)) for extent in shape)
        steps = [draw(integers(1, max(1, (extent - 1) // max(1, n - 1)))) for extent, n in zip(shape, counts)]
        view = ", ".join(_slice(draw, *one) for one in zip(shape, counts, steps))
        return Do(kind, f"{to}[{view}]", "", draw(st.one_of(values, st.just("k")) if dtype == "i4" else values))
    if kind in ("call", "between"):
        to, origin = draw(permutations(HOST))
        counts = tuple(draw(integers(1, extent)) for extent in SHAPE)
        return Do(kind, _box(draw, to, counts), _box(draw, origin, counts), _scalar(draw, "k", "by"))
    if kind == "child":
        return Do(kind, _row(draw, draw(sampled_from(DEVICE)), N), "", _scalar(draw, "k", "by"), _inside(draw))
    if kind == "conditional":
        mode, decide = draw(sampled_from(("if", "while", "switch"))), draw(sampled_from(("auto", "host")))
        every = draw(integers(1, 3)) if mode == "while" else 1
        to, origin = _row(draw, draw(sampled_from(DEVICE)), N), f"u[{draw(integers(0, 3))}]"
        return Do(kind, to, origin, _scalar(draw, "k", "by"), (mode, decide, every, *_inside(draw)))
    if kind == "events":
        return Do(kind, how=(draw(sampled_from(("e", "v"))),))
    if kind == "ops":
        return Do(kind, f"u[{draw(integers(0, 3))}]", "", draw(integers(0, 9)))
    to, origin = draw(permutations(DEVICE))
    count = {"temporary": N, "variable": 4}.get(kind) or draw(integers(1, SHAPE[2]))
    number = _scalar(draw, "k") if kind in ("temporary", "eager") else 0
    return Do(kind, _row(draw, to, count), _row(draw, origin, count), number)


@st.composite
def another(draw: Any, do: Do) -> Do:
    """Return a node of the same kind: mostly with one thing other than before, so that a change is often possible in place."""
    new: Do = draw(doing(do.kind))
    parts = [part for part in ("number", "how", "origin", "to") if getattr(new, part) != getattr(do, part)]
    if do.kind == "fill" and "number" in parts:  # a number is of the array's type
        return new if ARRAYS[new.to[0]] != ARRAYS[do.to[0]] else replace(do, number=new.number)
    alone = [part for part in parts if part in ("number", "how")]
    if alone and draw(integers(0, 2)):
        part = draw(sampled_from(tuple(alone)))
        return replace(do, **{part: getattr(new, part)})
    return new


Action = tuple[Any, ...]
ACTIONS = ("launch", "set", "disable", "enable", "update", "launch", "set", "clone", "write", "profile", "add", "drop")


def _launches(draw: Any) -> list[dict[str, Any]]:
    numbers: dict[str, Any] = {"k": integers(-9, 9), "by": integers(-9, 9), "blocks": integers(1, 4),
                               "q": sampled_from(("q0", "q1", "outside"))}  # fmt: skip
    return [
        {name: draw(numbers[name]) for name in sorted(draw(sets(sampled_from(tuple(sorted(numbers))), max_size=3)))}
        for _ in range(draw(integers(1, 3)))
    ]


@st.composite
def actions(draw: Any, nodes: list[Do], count: int) -> list[Action]:
    """Return what happens to an Executable of these nodes, by their names ``n0``, ``n1``, ..."""
    known = {f"n{i}": do for i, do in enumerate(nodes)}
    found: list[Action] = []
    for _ in range(draw(integers(1, count))):
        what = draw(sampled_from(ACTIONS))
        if what == "launch":
            found.append((what, _launches(draw)))
        elif what == "profile":
            found.append((what, _launches(draw)[:1]))
        elif what == "write":
            name = draw(sampled_from(tuple(sorted(ARRAYS))))
            found.append((what, name, draw(integers(0, 9)) if ARRAYS[name][0] != "?" else draw(booleans())))
        elif what == "clone":
            found.append((what, draw(sampled_from(("go on with the first", "go on with the second"))), _launches(draw)))
        elif what == "add":
            name = f"n{len(known)}"
            known[name] = draw(doing())
            found.append((what, name, known[name]))
        elif known:
            name = draw(sampled_from(tuple(sorted(known))))
            if what == "set":
                known[name] = draw(another(known[name]))
                found.append((what, name, known[name]))
            elif what == "update":
                chosen = draw(sets(sampled_from(tuple(sorted(known))), min_size=1, max_size=2))
                changed = {name: draw(another(known[name])) for name in sorted(chosen)}
                known.update(changed)
                found.append((what, changed, draw(sampled_from(("in place", "afresh")))))
            elif what == "drop":
                found.append((what, name))
            else:
                found.append((what, name + draw(sampled_from(known[name].toggles))))
    return [*found, ("launch", _launches(draw))]


@dataclass
class Story:
    """Nodes and what happens to them."""

    nodes: list[Do]
    actions: list[Action]
    join: bool

    def __repr__(self) -> str:
        lines = [f"n{i} = {do!r}" for i, do in enumerate(self.nodes)]
        return "\n        ".join(["", f"join={self.join}", *lines, *map(repr, self.actions)])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))


@st.composite
def stories(draw: Any, most_nodes: int, most_actions: int) -> Story:
    nodes = draw(st.lists(doing(), min_size=1, max_size=most_nodes))
    return Story(nodes, draw(actions(nodes, most_actions)), draw(booleans()))
