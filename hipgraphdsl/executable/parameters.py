"""The parameters of one Executable: their values, the memory that they are bound to, and the steps that they reach."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import Any

import numpy as np

from ..arrays import Array, ArrayView, ExternalArray, Parameter, Viewable, array_values, no_array
from ..backends import Scope
from ..errors import DeclarationError
from ..nodes import element_bytes
from ..plan import Step
from ..workflow import Workflow
from .devices import Home
from .memory import Block, Memory, bind_external, hold
from .overlaps import Overlaps

__all__ = ["Parameters", "require_alike", "same"]

_MOST_APART = 256  # combinations of addresses that are remembered


class Parameters:
    """Values by launch keyword, ``"child/p"`` inside children; they stand in the scopes that declare them.

    Attributes
    ----------
    table : dict of str to (Scope, Parameter)
    missing : set of str
        Those that the first launch must give.
    users : dict of (int, Parameter) to list of int
        The steps that each reaches, by the scope that declares it (``id``).
    kept : dict of str to dict of int to Block
        Owners of the memory that array parameters are or were bound to, by address, while a launch may use it.
    keeps_replaced : bool
        Whether some of it is no longer what a parameter is bound to.
    defaults : dict of str to int
        Addresses of array parameters whose default is an array of the graph, or that have memory of their own.
    own : dict of str to Block
        The memory of parameters that copy their values.
    """

    def __init__(self, name: str, home: Home, memory: Memory) -> None:
        self.table: dict[str, tuple[Scope, Parameter]] = {}
        self.missing: set[str] = set()
        self.users: dict[tuple[int, Parameter], list[int]] = {}
        self.kept: dict[str, dict[int, Block]] = {}
        self.keeps_replaced = False
        self.defaults: dict[str, int] = {}
        self.own: dict[str, Block] = {}
        self._name = name
        self._home = home
        self._memory = memory
        self._compared: Callable[[], Overlaps]
        self._overlaps: Overlaps | None = None
        """Made when it is first needed, because only launches that bind arrays need it."""
        self._apart: set[tuple[int, ...]] = set()
        """Addresses of all array parameters that were found to be right together."""
        self._read_only: set[tuple[str, int]] = set()

    # -- values --------------------------------------------------------------------------------------------------------

    def checked(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Convert a launch's arguments for `bind`: values of scalars, addresses of arrays.

        Raises
        ------
        DeclarationError
            If a parameter is missing, unknown or of the wrong kind.
        """
        values = {name: self._value(name, value) for name, value in params.items()}
        missing = self.missing - values.keys()
        if missing:
            names = ", ".join(map(repr, sorted(missing)))
            raise DeclarationError(
                f"graph {self._name!r}: the first launch must give {names}, which"
                f" {'have' if len(missing) > 1 else 'has'} no default",
                array=min(missing),
            )
        return values

    def _value(self, name: str, value: Any) -> Any:
        found = self.table.get(name)
        if found is None:
            names = ", ".join(map(repr, self.table)) or "none"
            raise DeclarationError(f"graph {self._name!r} has no parameter {name!r}; its parameters are {names}", array=name)
        _, parameter = found
        if name in self.own:
            if isinstance(value, (str, Viewable)):
                raise DeclarationError(f"parameter {name!r} copies values (copy=True); {no_array(value)}", array=name)
            return array_values(f"parameter {name!r}", value, parameter.dtype, parameter.shape, name)
        if parameter.shape:
            return self.address_for(name, parameter, value)
        element_bytes(value, parameter.dtype, f"parameter {name!r}")
        if isinstance(value, np.generic) and not isinstance(value, np.void):
            return value.item()
        return value

    def address_for(self, name: str, parameter: Parameter, value: Any) -> int:
        """Return the address of what an array parameter is bound to; the object is kept alive until it is replaced."""
        device = self._home.device
        if isinstance(value, Viewable) and not isinstance(value, Array):
            view = value.as_view()
            raise DeclarationError(
                f"parameter {name!r} stands for a whole array of the graph, by its name, or for an object with memory; got"
                f" {view.name!r}, a view of {view.root.kind} {view.root.name!r}",
                array=name,
            )
        if isinstance(value, Array) and not isinstance(value, ExternalArray):
            value = value.name
        if isinstance(value, str):
            block = self._memory.find(value)
            array, pointer = block.array, block.pointer
        else:
            array = value if isinstance(value, ExternalArray) else ExternalArray.wrap(name, value)
            pointer = bind_external(array, "")
        require_alike(name, parameter, array)
        if not array.on_host and array.device not in (None, device) and device not in array.access:
            raise DeclarationError(
                f"parameter {name!r} stands for memory of device {device}; array {array.name!r} is on device {array.device},"
                f" without access=[{device}]",
                array=name,
            )
        if isinstance(array, ExternalArray):
            (self._read_only.discard if array.writeable else self._read_only.add)((name, pointer))
            kept = self.kept.setdefault(name, {})
            if pointer not in kept:
                kept[pointer] = hold(array, pointer, self._home)
                self.keeps_replaced |= len(kept) > 1
        return pointer

    def watch(self, workflow: Workflow, scope: Scope) -> None:
        """From now on check the memory of array parameters against the accesses of this workflow's nodes."""
        self._compared = lambda: Overlaps(workflow, scope)
        self._overlaps = None
        self._apart = set()

    def given(self) -> dict[str, int]:
        """Return the addresses of the array parameters that are not bound to their default array."""
        arrays = ((name, scope.addresses.get(parameter)) for name, (scope, parameter) in self.table.items() if parameter.shape)
        return {name: at for name, at in arrays if at is not None and at != self.defaults.get(name)}

    def require_safe(self, given: Mapping[str, int]) -> None:
        """Refuse addresses of array parameters: of read-only memory that a node writes, or that the graph touches unordered.

        Raises
        ------
        DeclarationError
            Names the nodes, the parameter and the array.
        """
        if not given:
            return
        bound: dict[tuple[Scope, Parameter], int] = {}
        for name, root in self.table.items():
            address = (given.get(name) or root[0].addresses.get(root[1])) if root[1].shape else None
            if address is not None:
                bound[root] = address
        read_only = [name for name, address in given.items() if (name, address) in self._read_only]
        together = tuple(bound.values())
        if together in self._apart and not read_only:
            return
        if self._overlaps is None:
            self._overlaps = self._compared()
        for name in read_only:
            writer = self._overlaps.writer(self.table[name])
            if writer is not None:
                raise DeclarationError(
                    f"parameter {name!r} is bound to read-only memory, and {writer!r} writes it; give memory that may be written,"
                    " or declare that the node only reads it",
                    node=writer,
                    array=name,
                )
        self._overlaps.require_ordered([self.table[name] for name in given], bound)
        if len(self._apart) >= _MOST_APART:
            self._apart.clear()
        self._apart.add(together)

    def current(self, name: str) -> Any:
        """Return the value, or the address, that a parameter has; None if none has been given."""
        scope, parameter = self.table[name]
        return scope.addresses.get(parameter) if parameter.shape else scope.values.get(parameter)

    def make_own(self, name: str, scope: Scope, parameter: Parameter) -> None:
        """Make the memory of a parameter that copies its values."""
        block = self.own[name] = self._memory.make_own(name, parameter)
        self.defaults[name] = scope.addresses[parameter] = block.pointer

    def copy(self, values: Mapping[str, Any]) -> None:
        """Copy values into the memory of parameters; no launch may be in flight."""
        for name, given in values.items():
            self._memory.write(self.own[name], given)

    def bind(self, name: str, value: Any) -> None:
        """Give a parameter a value or an address; None takes it away."""
        scope, parameter = self.table[name]
        table: dict[Any, Any] = scope.addresses if parameter.shape else scope.values
        if value is None:
            table.pop(parameter, None)
        else:
            table[parameter] = value

    def scalars(self) -> dict[str, Any]:
        """Return the values of the scalar parameters."""
        return {name: scope.values.get(parameter) for name, (scope, parameter) in self.table.items() if not parameter.shape}

    def give_to(self, other: Parameters) -> list[str]:
        """Copy the values to another Executable's parameters of the same names and kinds; return the names."""
        arrays, others = self._memory.arrays, other._memory.arrays
        owners = {block.pointer: name for name, block in arrays.items()}
        given: list[str] = []
        for name, (_, parameter) in self.table.items():
            value = self.current(name)
            _, twin = other.table.get(name, (None, None))
            if value is None or twin is None or (twin.shape, twin.dtype) != (parameter.shape, parameter.dtype):
                continue
            if parameter.copy or twin.copy:
                if name in self.own and name in other.own and name not in self.missing:
                    other._memory.write(other.own[name], self._memory.read(self.own[name]))
                    other.missing.discard(name)
                continue
            if parameter.shape and value in owners:
                if owners[value] not in others:
                    continue
                value = others[owners[value]].pointer
            elif parameter.shape:
                other.address_for(name, twin, self.kept[name][value].array)
            other.bind(name, value)
            other.missing.discard(name)
            given.append(name)
        return given

    def lend(self, scope: Scope, view: ArrayView) -> tuple[Any, int]:
        """Return the host memory that a view leads to as a buffer that keeps it, and the buffer's address."""
        owner, root, _ = scope.resolve(view.root)
        name = owner.prefix + root.name
        if isinstance(root, Parameter):
            at = owner.addresses[root]
            known = [*self.kept.get(name, {}).values(), *self._memory.arrays.values()]
            block = next(block for block in known if block.pointer <= at < block.pointer + block.array.nbytes)
        else:
            block = self._memory.arrays[name]
        return block.lend(), block.pointer

    # -- the memory of others --------------------------------------------------------------------------------------------

    def forget_replaced(self) -> None:
        """Release the memory that array parameters were bound to before; no launch may be in flight."""
        for name, kept in self.kept.items():
            if len(kept) > 1:
                current = self.current(name)
                self.kept[name] = {pointer: block for pointer, block in kept.items() if pointer == current}
                with self._home.there():
                    for pointer, block in kept.items():
                        if pointer != current and block.release is not None:
                            block.release(pointer)
        self.keeps_replaced = False
        self._read_only = {(name, pointer) for name, pointer in self._read_only if self.current(name) == pointer}

    def return_into(self, stack: ExitStack) -> None:
        """Register the release of all kept memory with an exit stack."""
        blocks = [block for kept in self.kept.values() for block in kept.values()] + [*self.own.values()]
        self.kept, self.own = {}, {}
        for block in blocks:
            stack.callback(block.give_back, self._home)

    # -- the steps that they reach ---------------------------------------------------------------------------------------

    def reach(self, steps: Iterable[Step], scope: Scope) -> None:
        """Note which parameters the steps depend on, wherever they are declared, and forget what was noted before."""
        self.users = {}
        for step in steps:
            inner = scope.inside(step.path)
            for parameter in step.node.parameters:
                self._note_user(inner, parameter, step.index)
            for name, document, _ in step.node.held:
                for at, level in inner.children[name].levels(document):
                    for parameter in (parameter for node in level.workflow.nodes for parameter in node.parameters):
                        self._note_user(at, parameter, step.index)

    def _note_user(self, scope: Scope, parameter: Parameter, index: int) -> None:
        owner, root, _ = scope.resolve(parameter)
        if isinstance(root, Parameter):
            users = self.users.setdefault((id(owner), root), [])
            if index not in users[-1:]:
                users.append(index)

    def steps_of(self, name: str) -> list[int]:
        """Return the steps that a parameter reaches."""
        scope, parameter = self.table[name]
        return self.users.get((id(scope), parameter), [])


def require_alike(name: str, parameter: Parameter, array: Array) -> None:
    """Refuse an array of another dtype or size than a parameter stands for."""
    if array.dtype != parameter.dtype or array.nbytes != parameter.nbytes:
        raise DeclarationError(
            f"parameter {name!r} takes {parameter.dtype}{list(parameter.shape)} (got {array.dtype}{list(array.shape)})",
            array=name,
        )


def same(a: Any, b: Any) -> bool:
    """Return whether two values of a parameter are the same."""
    return type(a) is type(b) and bool(np.all(a == b))
