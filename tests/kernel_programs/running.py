"""Compile generated kernels, many to a module, and compare what they compute with the model; shrink those that differ."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from device.test_cpu_kernels import Library

import hipgraphdsl as hg
from hipgraphdsl.compiler import Compiler, find_compiler
from hipgraphdsl.errors import DeclarationError
from hipgraphdsl.parts.cpu.rtc import compile_kernels

from .model import Array, InvalidKernel, arguments, run
from .near import make_kernel
from .tree import Arm, Barrier, Call, Decl, Declare, Define, Expand, Expr, Function, Kernel, Load, Stmt, Switch, Use, walk
from .writing import write_source

Mode = Literal["fast", "base", "sanitize"]


@dataclass(frozen=True)
class Way:
    """How kernels are compiled on the CPU. With mode ``"sanitize"`` a graph runs them, and whatever is reported is wrong."""

    mode: Mode = "fast"
    warp_size: int = 64
    options: tuple[str, ...] = ()
    compiler: Compiler | None = None

    @property
    def all_options(self) -> tuple[str, ...]:
        return ("-w", *self.options, *["-mno-wavefrontsize64"] * (self.warp_size == 32))

    def __str__(self) -> str:
        name = (self.compiler or find_compiler()).kind
        return f"{name}, mode {self.mode!r}, warps of {self.warp_size}{''.join(' ' + o for o in self.options)}"


def make_kernels(seeds: Sequence[int], *, gpu: bool = False) -> list[Kernel]:
    return [make_kernel(seed, f"k{seed}", gpu=gpu) for seed in seeds]


def expected(kernel: Kernel, warp_size: int) -> list[Array]:
    """Return what the model says of the arrays that a kernel writes."""
    arrays, scalars = arguments(kernel)
    run(kernel, arrays, scalars, warp_size)
    return [arrays["out"], arrays["bins"]]


def computed(kernel: Kernel, library: Library) -> list[Array]:
    """Return what the CPU runtime computes."""
    arrays, scalars = arguments(kernel)
    given = [arrays[d.name] if d.size else d.type.dtype.type(scalars[d.name]) for d in kernel.parameters]
    library.run(kernel.name, kernel.grid, kernel.block, *given, shared_bytes=kernel.shared_bytes)
    return [arrays["out"], arrays["bins"]]


def compile_together(kernels: Sequence[Kernel], way: Way) -> Library:
    made = compile_kernels(
        write_source(kernels), [k.name for k in kernels], options=way.all_options, compiler=way.compiler, mode=way.mode,
        name="generated.hip",
    )  # fmt: skip
    return Library(made.image)


def graph_of(kernels: Sequence[Kernel], options: Sequence[str]) -> hg.Graph:
    """Return one graph of kernels of one module that do not depend on each other; arrays are ``<kernel>_<parameter>``."""
    module = hg.Module(write_source(kernels), name="generated.hip", options=options)
    graph = hg.Graph("generated")
    for k in kernels:
        arrays, scalars = arguments(k)
        given: list[Any] = []
        for d in k.parameters:
            if not d.size:
                given.append(scalars[d.name])
                continue
            array = graph.device_array(f"{k.name}_{d.name}", arrays[d.name])
            given.append(hg.reads(array) if d.fixed else hg.updates(array))
        graph.kernel(module[k.name], k.grid, k.block, given, name=k.name, shared_bytes=k.shared_bytes)
    return graph


def reports(kernels: Sequence[Kernel], way: Way) -> dict[str, str]:
    """Return what the sanitizer says of kernels, by name; ``"differs"`` where one computes what the model does not."""
    graph = graph_of(kernels, way.all_options)
    said: dict[str, str] = {}
    with graph.compile("cpu", debug=hg.DebugOptions(sanitize=True)) as executable:
        start = {name: executable.read(name) for name in graph.arrays}
        while True:
            try:
                executable.run()
                break
            except hg.HipError as error:
                if error.node is None:
                    raise
                said[error.node] = str(error)
                executable.disable(error.node)
            for name, values in start.items():
                executable.write(name, values)
        for k in kernels:
            for name, wanted in zip(("out", "bins"), expected(k, way.warp_size)):
                if (executable.read(f"{k.name}_{name}") != wanted).any():
                    said.setdefault(k.name, "differs")
    return said


def differing(kernels: Sequence[Kernel], way: Way) -> list[Kernel]:
    """Return the kernels that do not compute what the model says."""
    if way.mode == "sanitize":
        said = reports(kernels, way)
        return [k for k in kernels if k.name in said]
    library = compile_together(kernels, way)
    return [k for k in kernels if not _same(k, way, library)]


def _same(kernel: Kernel, way: Way, library: Library) -> bool:
    wanted = expected(kernel, way.warp_size)
    try:
        return all((a == b).all() for a, b in zip(wanted, computed(kernel, library)))
    except AssertionError:  # a fault ended the launch
        return False


# -- smaller kernels that differ as well ---------------------------------------------------------------------------------


def _lists(node: Any) -> Iterator[list[Any]]:
    """Yield the lists of statements, arms and functions in a kernel."""
    for given in fields(node):
        value = getattr(node, given.name)
        if isinstance(value, list) and value and isinstance(value[0], (Stmt, Arm, Function)):
            yield value
            for item in value:
                yield from _lists(item)
        elif isinstance(value, (Stmt, Function)) and not isinstance(node, Call):
            yield from _lists(value)


def _smaller(kernel: Kernel) -> Iterator[Kernel]:
    """Yield a kernel without each of its statements, then with what a statement holds in its place."""
    lists = list(_lists(kernel))
    for size in (8, 4, 2, 1):
        for where, items in enumerate(lists):
            for n in range(0, len(items) - size + 1, max(1, size // 2)):
                made = copy.deepcopy(kernel)
                del list(_lists(made))[where][n : n + size]
                yield made
    for where, items in enumerate(lists):
        for n, item in enumerate(items):
            for inner in range(len([x for x in _lists(item) if isinstance(x[0], Stmt)]) if isinstance(item, Stmt) else 0):
                made = copy.deepcopy(kernel)
                target = list(_lists(made))[where]
                target[n : n + 1] = [x for x in _lists(target[n]) if isinstance(x[0], Stmt)][inner]
                yield made
    yield from _simpler(kernel)


def _simpler(kernel: Kernel) -> Iterator[Kernel]:
    """Yield a kernel with one expression replaced by a part of it."""
    places = list(_places(kernel))
    for n in range(len(places)):
        parts = [x for x in vars(getattr(*places[n])).values() if isinstance(x, Expr)]
        for part in range(len(parts)):
            made = copy.deepcopy(kernel)
            node, name = list(_places(made))[n]
            setattr(node, name, [x for x in vars(getattr(node, name)).values() if isinstance(x, Expr)][part])
            yield made


def _places(kernel: Kernel) -> Iterator[tuple[Any, str]]:
    """Yield where expressions stand."""
    for node in _nodes(kernel):
        if not _is_kept(node):
            yield from (
                (node, given.name)
                for given in fields(node)
                if isinstance(getattr(node, given.name), Expr) and given.name != "target"
            )


_KEPT = ("total", "t", "g", "lane", "many", "m0")


def _is_kept(node: Any) -> bool:
    """Return whether a declaration says who a thread is: another value would make threads store to one place."""
    return isinstance(node, Declare) and node.decl.name in _KEPT


def _nodes(kernel: Kernel) -> Iterator[Any]:
    for top in (*kernel.before, *kernel.functions, *kernel.body):
        yield from walk(top)


def is_whole(kernel: Kernel) -> bool:
    """Return whether everything that is used is declared, and each macro is the one of its name."""
    macros: dict[str, Any] = {}
    declared: set[int] = {id(d) for d in (*kernel.constants, *kernel.parameters)}
    written: set[int] = set()
    for node in _nodes(kernel):
        if isinstance(node, Define):
            macros[node.macro.name] = node.macro
        for value in vars(node).values():
            if isinstance(value, Decl) and not isinstance(node, Use) and not hasattr(node, "array"):
                declared.add(id(value))
            if isinstance(value, list):
                declared.update(id(d) for d in value if isinstance(d, Decl))
        if isinstance(node, Function):
            written.add(id(node))
            declared.update(id(d) for d in node.parameters)
        if isinstance(node, Use) and id(node.decl) not in declared:
            return False
        if hasattr(node, "array") and id(node.array) not in declared:
            return False
        if isinstance(node, Call) and id(node.function) not in written:
            return False
        if isinstance(node, Expand) and macros.get(node.macro.name, node.macro) is not node.macro:
            return False
        if isinstance(node, Switch) and not node.arms:
            return False
    return True


def shrink(kernel: Kernel, differs: Callable[[Sequence[Kernel]], list[Kernel]], most: int = 60) -> Kernel:
    """Return a smaller kernel of which `differs` says the same; it is asked for several at a time, `most` times at most."""
    asked = 0
    while asked < most:
        batch: list[Kernel] = []
        found: Kernel | None = None
        waits = _waits(kernel)
        for made in _smaller(kernel):
            if not is_whole(made) or _waits(made) not in (waits, (0, 0)):
                continue
            _rename(made, f"{kernel.name.partition('_')[0]}_{len(batch)}")
            try:
                expected(made, 64)
            except InvalidKernel:
                continue
            batch.append(made)
            if len(batch) == 24:
                found, batch, asked = _first(batch, differs), [], asked + 1
                if found or asked >= most:
                    break
        if not found and batch:
            found, asked = _first(batch, differs), asked + 1
        if not found:
            return kernel
        kernel = found
    return kernel


def _waits(kernel: Kernel) -> tuple[int, int]:
    """Return how often shared memory is named and barriers stand: fewer barriers would be a race."""
    shared = sum(isinstance(n, Load) and n.array.where in ("shared", "dynamic") for n in _nodes(kernel))
    return min(shared, 1), shared and sum(isinstance(n, Barrier) for n in _nodes(kernel))


def _rename(kernel: Kernel, name: str) -> None:
    """Give a kernel, and what stands beside it, names of its own."""
    old, kernel.name = kernel.name, name
    for constant in kernel.constants:
        constant.name = constant.name.replace(old, name)
    for function in kernel.functions:
        function.name = function.name.replace(old, name)
        function.space = function.space.replace(old, name)


def _first(batch: Sequence[Kernel], differs: Callable[[Sequence[Kernel]], list[Kernel]]) -> Kernel | None:
    try:
        found = differs(batch)
    except DeclarationError:  # one of them does not compile
        if len(batch) == 1:
            return None
        half = len(batch) // 2
        return _first(batch[:half], differs) or _first(batch[half:], differs)
    return found[0] if found else None


def describe(kernel: Kernel, warp_size: int, got: Sequence[Array] | None = None) -> str:
    """Return a failing kernel's source, its launch and its values."""
    arrays, scalars = arguments(kernel)
    lines = [
        write_source([kernel]),
        f"// launched with {scalars}, shared_bytes={kernel.shared_bytes}, src={arrays['src'].tolist()}",
    ]
    wanted = expected(kernel, warp_size)
    for name, values in (("expected", wanted), ("got", got)):
        if values is not None:
            lines.append(f"// {name} out={values[0].tolist()} bins={values[1].tolist()}")
    lines.append(f"// again: python -m kernel_programs --first {kernel.seed} --count 1")
    return "\n".join(lines)
