"""Names of a workflow in a HIP C++ program: scopes and handles with which the backends' `resolve` lowers its steps.

Data flow: arrays, parameters, kernels, events, callbacks -> names of the program -> addresses and handles that represent them in
`NamedScope` and `Handles` -> operations, whose calls `calls.WritingRuntime` writes with these names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, NoReturn

import numpy as np

from ...arrays import AllocArray, Array, ArrayView, Expression, Parameter
from ...backends.environment import Environment
from ...backends.handles import BUILT_IN, SharedHandles
from ...kernels import ArgumentPacker, Kernel, Signature, Symbol
from ...nodes import Event, Semaphore, element_bytes
from ...nodes.facets import KernelLaunch, UserCall
from ...nodes.workflow import Level, Workflow
from ...target import Target
from .arrays import Arrays
from .calls import Block, Place, Places, WritingRuntime
from .functions import Functions
from .kernels import Kernels
from .parts import FIXED_NAMES
from .text import KEYWORDS, Names, Piece, arithmetic_text, ctype_of, is_plain, joined, literal_of, narrowed

_PORTABLE: Final = frozenset({"host_copy_kind", "memset_2d_elements", "memset_2d_whole_rows", "batch_unordered"})
"""Defects that a program avoids for every target, because any compiler may compile it."""


class NamedScope(Environment):
    """Maps the names of a workflow to names of the program, for one use of the workflow."""

    __slots__ = ("level", "named")
    addresses: _Addresses

    def __init__(self, handles: Handles, level: Level, parent: NamedScope | None) -> None:
        super().__init__(handles, level.prefix, parent)
        self.level = level
        self.addresses = _Addresses(self, handles.writer.places)
        self.named: dict[Parameter, str] = {}
        """Scalar parameters that are variables of the program; all others are bound to values."""
        if parent is not None:
            parent.children[level.key] = self

    def value(self, parameter: Parameter) -> Any:
        """Return a placeholder value for a parameter, and record the query, so that the writer prints the variable instead."""
        self.shared.runtime.asked.append((self.variable(parameter), parameter))  # type: ignore[attr-defined]  # a WritingRuntime
        return self.stand_in(parameter)

    def stand_in(self, parameter: Parameter) -> Any:
        """Return the placeholder value of a scalar parameter or an expression of variables."""
        if not isinstance(parameter, Expression):
            return self.values[parameter]
        return parameter.at(self.stand_in) if self.variable(parameter) is None else 1  # which every type and extent takes

    def variable(self, parameter: Parameter) -> str | None:
        """Return the variable of a scalar parameter, or an expression of variables as C++; None for what is bound to a value."""
        if isinstance(parameter, Expression):
            known = any(self.variable(term) for term in parameter.terms)
            return arithmetic_text(parameter, self.text_of) if known else None
        return self.named.get(parameter)

    def text_of(self, parameter: Parameter) -> str:
        """Return a scalar parameter as C++: its variable or a literal."""
        value, dtype = self.stand_in(parameter), parameter.dtype
        return self.variable(parameter) or literal_of(element_bytes(value, dtype, f"parameter {parameter.name!r}"), dtype)

    def declare(self, root: Any, name: str, phase: int = 0) -> None:
        """Map an array or a parameter to a variable of the program."""
        if isinstance(root, Parameter) and not root.shape:
            self.named[root] = name
            self.values[root] = _stand_in(root, self.level.workflow)
        else:
            dict.__setitem__(self.addresses, root, self.addresses.places.new(Place(name, root.dtype, phase)))

    def inherit(self, root: Any) -> None:
        """Resolve a bound array or parameter to the object that it is bound to."""
        outer, bound = self.parent, self.bound_from[root]
        assert outer is not None
        if not isinstance(root, Parameter) or root.shape:
            self.addresses[root] = outer.address(bound)
        elif isinstance(bound, Parameter):
            self.values[root], variable = outer.stand_in(bound), outer.variable(bound)
            if variable is not None:
                self.named[root] = narrowed(variable, bound, ctype_of(root.dtype))
        else:
            self.values[root] = bound


class _Addresses(dict[Any, int]):
    """Addresses of a scope; memory that a call allocates is merged with the place already declared for its array."""

    def __init__(self, scope: NamedScope, places: Places) -> None:
        self.scope = scope
        self.places = places

    def __setitem__(self, root: Any, address: int) -> None:
        if isinstance(root, AllocArray) and root in self:
            self.places.merge(address, self[root])
        else:
            super().__setitem__(root, address)


def _stand_in(parameter: Parameter, workflow: Workflow) -> Any:
    """Return a placeholder value for a parameter while steps are lowered.

    Its bytes differ, so that no memset is lowered to a byte fill; as a grid extent, it is divisible by most cluster sizes.
    """
    dtype = parameter.dtype
    if not is_plain(dtype):
        return np.frombuffer(bytes(k % 255 + 1 for k in range(dtype.itemsize)), dtype)[0]
    launches = (node.launched for node in workflow.nodes)
    clustered = any(launch is not None and launch.cluster and parameter in launch.grid for launch in launches)
    return dtype.type(720720 if clustered and dtype.itemsize >= 4 else 1)


class _Packer(ArgumentPacker):
    """Stores packed arguments for the call that follows."""

    __slots__ = ("writer",)

    def __init__(self, signature: Signature, writer: WritingRuntime) -> None:
        super().__init__(signature)
        self.writer = writer

    def place(self, packed: bytes) -> int:
        self.writer.placed = tuple(zip(self.signature.parameters, self.unpack(packed)))
        return 1


class Handles(SharedHandles):
    """All named objects of a program: arrays, parameters, kernels, events, device variables and user functions."""

    def __init__(self, workflow: Workflow, target: Target, stem: str, captures: bool) -> None:
        # The program itself omits clusters on devices without them.
        target = replace(target, quirks=target.quirks | _PORTABLE, clusters=True)
        self.writer = WritingRuntime(target, captures)
        super().__init__(self.writer, _Calls(self))
        self.sources = Kernels(workflow)
        self.fixed = FIXED_NAMES | self.sources.names | KEYWORDS
        self.names = Names(self.fixed)
        """All names of the program at namespace scope."""
        self.outer: set[str] = set()
        """Names that functions which build graphs refer to, and must not shadow."""
        self.symbols: dict[Symbol, str] = {}
        self.events_by_name: dict[str, str] = {}
        self.arrays = Arrays(workflow, self.names, stem)
        self.functions = Functions(self.new_outer)
        self._by_text: dict[str, int] = {}
        self._packers: dict[Signature, _Packer] = {}
        self.top = self._opened(workflow)

    def _opened(self, workflow: Workflow) -> NamedScope:
        """Declare everything that a workflow and its children own, and return the outermost scope."""
        scopes: dict[Level, NamedScope] = {}
        for level in workflow.levels():
            scope = scopes[level] = NamedScope(self, level, scopes[level.parent] if level.parent is not None else None)
            for name, root in (*level.workflow.arrays.items(), *level.workflow.parameters.items()):
                if name in level.bind:
                    scope.bound_from[root] = level.bind[name]
                    scope.inherit(root)
                elif isinstance(root, Parameter):
                    self._declare_parameter(scope, root)
                elif isinstance(root, Array) and not isinstance(root, Symbol):
                    scope.declare(root, self.arrays.declare(scope.prefix + name, root))
        return next(iter(scopes.values()))

    def _declare_parameter(self, scope: NamedScope, parameter: Parameter) -> None:
        """Declare a parameter as an option; one whose default the parent binds stands for what that is bound to."""
        array = scope.level.workflow.default_array(parameter)
        if array is not None and array in scope.bound_from:
            scope.addresses[parameter] = scope.address(array.as_view())
            return
        name = scope.prefix + parameter.name
        scope.declare(parameter, self.arrays.declare_parameter(name, parameter, scope.prefix + array.name if array else ""))

    def enter(self, block: Block, scope: NamedScope) -> None:
        """Make a function for a child graph: objects that the child owns, or that are bound to it, become function parameters.

        Children that share a plan but are bound to different objects then become calls of the same function.
        """
        names = Names(self.fixed | self.outer)
        for inner in scope.all_inside():
            assert isinstance(inner, NamedScope)
            for root in (*inner.level.workflow.arrays.values(), *inner.level.workflow.parameters.values()):
                if inner is not scope and root in inner.bound_from:
                    inner.inherit(root)
                elif isinstance(root, Symbol) and root not in inner.bound_from:
                    continue
                else:
                    name = names.new((inner.prefix + root.name).removeprefix(scope.prefix))
                    self.names.used.add(name)  # prevents later names at namespace scope from colliding with it
                    self._make_parameter(block, inner, root, name)

    def _make_parameter(self, block: Block, scope: NamedScope, root: Any, name: str) -> None:
        if isinstance(root, Parameter) and not root.shape:
            block.given[name] = (f"{ctype_of(root.dtype)} {name}", [scope.text_of(root)])
            scope.declare(root, name)
        else:
            address = scope.addresses[root]
            block.given[name] = (f"{ctype_of(root.dtype)}* {name}", self.writer.places.pointer(address))
            scope.declare(root, name, address % 64)

    def new_outer(self, wish: str, suffix: str) -> str:
        """Return a new name for an object that functions which build graphs refer to."""
        name = self.names.new(wish, suffix)
        self.outer.add(name)
        return name

    def kept(self) -> list[tuple[Place, int]]:
        """Return the arrays of alloc nodes that several graphs share, with their bytes, and mark them for their declarations."""
        found = [(self.writer.places.at(pointer), nbytes) for pointer, nbytes in self.writer.kept.items()]
        self.arrays.kept.update(place.name for place, _ in found)
        return found

    def close(self) -> None:
        """Drop what refers back here or to a scope, so that the user's memory is released with the last reference to it."""
        for scope in self.top.all_inside():
            scope.children.clear()
            del scope.addresses
        self.writer.blocks.clear()
        vars(self).clear()

    # -- called by `resolve` -----------------------------------------------------------------------------------------------

    def _kernel(self, text: str, signature: Signature) -> tuple[int, ArgumentPacker]:
        if text not in self._by_text:
            self._by_text[text] = self.writer.kernel(text)
        if signature not in self._packers:
            self._packers[signature] = _Packer(signature, self.writer)
        return self._by_text[text], self._packers[signature]

    def function(self, kernel: Kernel, node: KernelLaunch, device: int, prefix: str = "") -> tuple[int, ArgumentPacker]:
        self.writer.node = node
        return self._kernel(self.sources.kernel(node), node.signature)

    def built_in(self, name: str, device: int) -> tuple[int, ArgumentPacker]:
        self.writer.node = None
        self.sources.built_in.add(name)
        signature = BUILT_IN[name].signature
        assert signature is not None
        return self._kernel(name, signature)

    def symbol(self, symbol: Symbol, device: int) -> int:
        known = self._symbols.get((symbol, device))
        if known is None:
            name = self.symbols[symbol] = self.new_outer(symbol.name, "symbol")
            known = self._symbols[symbol, device] = self.writer.places.new(Place(name, symbol.dtype))
        return known

    def event(self, event: Event) -> int:
        if event.handle is not None:
            raise self.writer.refused(f"event {event.name!r} is a handle of this process; declare the event by its name")
        known = self._events.get(event)
        if known is None:
            if event.name not in self.events_by_name:
                self.events_by_name[event.name] = self.new_outer(event.name, "event")
            known = self._events[event] = self.writer.keep([self.events_by_name[event.name]], self.runtime.event_create())
        return known

    def semaphore(self, semaphore: Semaphore, node: str) -> NoReturn:
        raise self.writer.refused(
            f"semaphore {semaphore.name!r} is imported from another program, which an exported one cannot do for itself;"
            " leave the node out, or order the programs on the host"
        )


class _Calls:
    """Calls of the user's functions in the program."""

    def __init__(self, handles: Handles) -> None:
        self._handles = handles
        self.failures: list[tuple[str, BaseException]] = []

    def register(self, name: str, node: UserCall, scope: NamedScope) -> tuple[int, int]:
        """Return a handle that represents the call of a host node."""
        return 1, self._handles.writer.keep(self._call(name, node, scope, []))

    def captured(self, name: str, node: UserCall, scope: NamedScope) -> Callable[[int], None]:
        """Return a function that writes the call of a captured node."""
        writer = self._handles.writer
        return lambda stream: writer.call_user(stream, self._call(name, node, scope, writer.on(stream)))

    def eager(self, name: str, node: UserCall, scope: NamedScope) -> tuple[Callable[[int], None], bool, None]:
        """Return a function that writes the call of an eager node, and whether the call may use host memory."""
        call = self._call(name, node, scope, ["stream"])
        waits = any(scope.is_host(view) or scope.is_given(view) for view in node.addresses)
        return lambda _: self._handles.writer.between.append(call), waits, None

    def names(self) -> dict[int, str]:
        """Return an empty dict: a program is written, not launched."""
        return {}

    def _call(self, name: str, node: UserCall, scope: NamedScope, first: list[Piece]) -> list[Piece]:
        def pointer(view: ArrayView) -> list[Piece]:
            return self._handles.writer.places.pointer(scope.address(view))

        function, arguments = self._handles.functions.call(name, node, pointer, scope.text_of)
        return [f"{function}(", *joined([*([first] if first else []), *arguments]), ")"]
