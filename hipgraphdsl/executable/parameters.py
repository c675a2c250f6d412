"""The parameters of one Executable: their values, and the memory that they are bound to."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack
from itertools import chain
from typing import Any

from ..arrays import (
    AllocArray,
    Array,
    ArrayView,
    ExternalArray,
    Parameter,
    Viewable,
    array_values,
    no_array,
    require_fit,
    whole_array,
    within,
)
from ..backends import Environment
from ..backends.lent import Lent
from ..errors import DeclarationError, listed, suggested
from ..kernels import Symbol
from ..nodes import element_value
from ..nodes.workflow import Level, Workflow
from .devices import Home
from .memory import Block, Memory, bind_external, hold
from .state import Name
from .uses import Uses

_MOST_APART = 256  # combinations of addresses that `Uses.apart` caches


class Parameters:
    """Parameters by launch keyword, ``"child/p"`` inside children; the scopes that declare them store their values."""

    def __init__(self, name: str, home: Home, memory: Memory) -> None:
        self.table: dict[str, tuple[Environment, Parameter]] = {}
        self.missing: set[str] = set()
        """Parameters that have no value yet; `required` returns those that a launch must give."""
        self.chosen: set[str] = set()
        """Parameters that a launch has given; the others have their defaults, which an update may change."""
        self.kept: dict[str, dict[int, Block]] = {}
        """External memory that array parameters are or were bound to, by address, kept alive while a launch may use it."""
        self.keeps_replaced = False
        """Whether `kept` has memory that its parameter is no longer bound to."""
        self.defaults: dict[str, int] = {}
        """Addresses of array parameters whose default is an array of the graph, or that have memory of their own."""
        self.own: dict[str, Block] = {}
        """The memory of parameters that copy their values."""
        self.whole: Workflow | None = None
        """The graph of all ranks, if there are several; a launch may also give parameters that only other ranks use."""
        self.foreign: Mapping[str, int] = {}
        """The arrays of other ranks, each with its rank; a parameter that no node of this rank uses may be given one."""
        self._name = name
        self._home = home
        self._memory = memory
        self.standing: Mapping[str, Array] = {}
        """What array parameters are bound to; it is replaced, never changed, so that a failed launch can restore it."""

    # -- values --------------------------------------------------------------------------------------------------------

    def checked(self, params: Mapping[str, Any], uses: Uses, *, all_given: bool) -> dict[str, Any]:
        """Convert launch arguments to scalar values and array addresses; refuse unknown and invalid ones.

        Arguments for other ranks only are left out. With `all_given`, refuse if a required parameter has no value.
        """
        values: dict[str, Any] = {}
        for name, value in params.items():
            if self.whole is None or not (self._is_elsewhere(name, self.whole) or self._is_foreign(name, value, uses)):
                values[name] = self._value(name, value)
        if all_given and self.missing and (missing := self.required(uses) - values.keys()):
            names = ", ".join(map(repr, sorted(missing)))
            raise DeclarationError(
                f"graph {self._name!r}: the first launch must give {names}, which"
                f" {'have' if len(missing) > 1 else 'has'} no default",
                array=min(missing),
            )
        return values

    def required(self, uses: Uses) -> set[str]:
        """Return the parameters without a value that a launch must give: all scalars, and arrays that a node uses."""
        tables = ((name, *self.table[name]) for name in self.missing)
        return {name for name, scope, p in tables if not p.shape or (scope, p) in uses.steps_by_parameter}

    def _is_elsewhere(self, name: str, whole: Workflow) -> bool:
        if name in self.table:
            return False
        level, inner = Level(whole).at(name)
        return inner in level.workflow.parameters and inner not in level.bind

    def _is_foreign(self, name: str, value: Any, uses: Uses) -> bool:
        """Return whether a value is an array of another rank; refuse that for a parameter that nodes of this rank use."""
        array = value.name if isinstance(value, Array) else value
        rank = self.foreign.get(array) if isinstance(array, str) else None
        if rank is None or name not in self.table:
            return False
        if self.table[name] not in uses.steps_by_parameter:
            return True
        raise DeclarationError(
            f"parameter {name!r} is given array {array!r}, which belongs to rank {rank}, and nodes of this rank use it; give an"
            " array of this rank",
            array=name,
        )

    def _value(self, name: str, value: Any) -> Any:
        found = self.table.get(name)
        if found is None:
            names = listed(self.table, 20)
            meant = suggested(name, [*self.table, "stream", "timeout_s"])
            raise DeclarationError(
                f"graph {self._name!r} has no parameter {name!r}{meant}; its parameters are {names}", array=name
            )
        _, parameter = found
        if name in self.own:
            if isinstance(value, (str, Viewable)):
                raise DeclarationError(f"parameter {name!r} copies values (copy=True); {no_array(value)}", array=name)
            return array_values(f"parameter {name!r}", value, parameter.dtype, parameter.shape, name)
        if parameter.shape:
            return self.address_for(name, parameter, value)
        return within(parameter, element_value(value, parameter.dtype, f"parameter {name!r}"), f"parameter {name!r}")

    def address_for(self, name: str, parameter: Parameter, value: Any) -> int:
        """Return the address of a value for an array parameter; an external object is kept alive until it is replaced."""
        if isinstance(value, Viewable):
            value = whole_array(name, value)
        if isinstance(value, Array) and not isinstance(value, ExternalArray):
            value = value.name
        if isinstance(value, str):
            block = self._memory.find(value)
            array, pointer = block.array, block.pointer
        else:
            array = value if isinstance(value, ExternalArray) else ExternalArray.wrap(name, value, what="parameter")
            pointer = bind_external(array, "")
        require_fit(name, parameter, array)
        self.standing = {**self.standing, name: array}
        kept = self.kept.get(name)
        if isinstance(array, ExternalArray) and (kept is None or pointer not in kept):
            kept = self.kept.setdefault(name, {})
            kept[pointer] = hold(array, pointer, self._home)
        if kept and kept.keys() != {pointer}:
            self.keeps_replaced = True
        return pointer

    def given(self) -> list[str]:
        """Return the array parameters that are bound to memory other than their default array."""
        return [
            name
            for name, (scope, parameter) in self.table.items()
            if parameter.shape and scope.addresses.get(parameter) not in (None, self.defaults.get(name))
        ]

    def require_usable(self, names: Iterable[str], uses: Uses) -> None:
        """Refuse memory of array parameters that a node which is given them could not be given directly."""
        for name in names:
            scope, parameter = self.table[name]
            array = self.standing.get(name)
            if array is None and parameter in scope.defaults:
                array = scope.behind(parameter)[1]
                if isinstance(array, AllocArray):
                    require_fit(name, parameter, array)
            if isinstance(array, Array):
                uses.require_usable((scope, parameter), array)

    def require_safe(self, names: Collection[str], uses: Uses) -> None:
        """Refuse memory of array parameters that their nodes cannot use safely.

        A node may be unable to use it directly or to reach its device, or access it unordered under another name.
        """
        bound = {root: root[0].addresses[root[1]] for root in self.table.values() if root[1] in root[0].addresses}
        together = tuple(bound.values())
        if together in uses.apart:
            return
        if self._home.several:
            for name in names:
                self._require_reached(name, bound[self.table[name]], uses)
        uses.aliases.require_ordered([self.table[name] for name in names], bound)
        if len(uses.apart) >= _MOST_APART:
            uses.apart.clear()
        uses.apart.add(together)

    def _require_reached(self, name: str, address: int, uses: Uses) -> None:
        """Refuse device memory that a node which uses a parameter cannot reach from its device."""
        foreign = self.kept.get(name, {}).get(address)
        block = self._holding(name, address)
        if block is None:
            return
        array, owner = block.array, block.device
        peers = self.table[name][0].shared.peers.get(owner, ())
        for device, node in {} if array.on_host else uses.devices_of(self.table[name]).items():
            let_in = device in array.access
            if device == owner or (let_in and (device in peers or self._home.let_reach(device, owner))):
                continue
            what = "memory" if foreign else f"array {array.name!r}"
            advice = f"bind memory of device {device}"
            if let_in:
                why = ", and between these two devices there is no peer access"
            else:
                why = ""
                advice = advice if foreign else f"declare {array.name!r} with access=[{device}], or {advice}"
            raise DeclarationError(
                f"parameter {name!r} is bound to {what} of device {owner}, which {node!r} reaches from device {device}{why};"
                f" {advice}",
                node=node,
                array=name,
            )

    def current(self, name: str) -> Any:
        """Return a parameter's current value or address; None if it has none."""
        scope, parameter = self.table[name]
        return scope.addresses.get(parameter) if parameter.shape else scope.values.get(parameter)

    def make_own(self, name: str, scope: Environment, parameter: Parameter) -> None:
        """Allocate the memory of a parameter that copies its values."""
        block = self.own[name] = self._memory.make_own(name, parameter)
        self.defaults[name] = scope.addresses[parameter] = block.pointer

    def lose(self, names: Iterable[str]) -> None:
        """Unbind array parameters that no node uses, because a launch has given them arrays of other ranks."""
        for name in names:
            scope, parameter = self.table[name]
            scope.addresses.pop(parameter, None)
            self.standing = {known: array for known, array in self.standing.items() if known != name}
            self.missing.add(name)

    def copy(self, values: Mapping[str, Any]) -> None:
        """Copy values into the memory of parameters; no launch may be in flight."""
        for name, given in values.items():
            self._memory.write(self.own[name], given)

    def name(self, name: str, value: Any) -> Name:
        """Return the scope entry that assigns a value or an address to a parameter."""
        scope, parameter = self.table[name]
        return (scope.addresses if parameter.shape else scope.values), parameter, value

    def kept_blocks(self) -> Iterator[Block]:
        """Yield the memory that array parameters are or were bound to."""
        return chain.from_iterable(map(dict.values, self.kept.values()))

    def bound(self, names: Iterable[str]) -> dict[str, Any]:
        """Return what another Executable may be given for array parameters of these names, to have the same memory or values."""
        found: dict[str, Any] = {}
        for name in names:
            array = self.standing.get(name)
            if name in self.own:
                found[name] = self._memory.read(self.own[name])
            elif array is not None:
                found[name] = array if isinstance(array, ExternalArray) else array.name
        return found

    def scalars(self) -> dict[str, Any]:
        """Return the values of the scalar parameters."""
        return {name: scope.values.get(parameter) for name, (scope, parameter) in self.table.items() if not parameter.shape}

    def as_given_to(self, other: Parameters, *, defaults: bool) -> dict[str, Any]:
        """Return the values that another Executable's parameters of the same name take over from these.

        Memory of an array here becomes the same part of the array of that name there, if that one is alike. With `defaults` the
        other one takes over the values of parameters that no launch has given, too, where it has a default of its own. A scalar
        that a launch has given is taken over whatever the dtype is there. Raises DeclarationError if a launch has given memory or
        values to an array parameter that has another shape or dtype there.
        """
        given: dict[str, Any] = {}
        for name, (_, parameter) in self.table.items():
            value = self.current(name)
            _, twin = other.table.get(name, (None, None))
            if value is None or twin is None:
                continue
            if (twin.shape, twin.dtype) != (parameter.shape, parameter.dtype):
                if name in self.chosen:
                    given[name] = _as_other(name, value, parameter, twin)
                continue
            if name not in self.chosen and twin.default is not None and not defaults:
                continue
            if parameter.copy or twin.copy:
                if name in self.own and name in other.own and name not in self.missing:
                    given[name] = self._memory.read(self.own[name])
            elif not parameter.shape:
                given[name] = value
            else:
                found = self._elsewhere(name, value, twin, other)
                if found is not None:
                    given[name] = found
        return given

    def _elsewhere(self, name: str, address: int, twin: Parameter, other: Parameters) -> str | Array | None:
        """Return what stands in another Executable for the memory that an array parameter is bound to; None if nothing does."""
        owned = self._memory.holding(address, twin.nbytes)
        foreign = self.kept.get(name, {}).get(address)
        if owned is None or (foreign is not None and isinstance(owned[1].array, ExternalArray)):
            return None if foreign is None else foreign.array
        array, block = owned
        there = other._memory.arrays.get(array)
        if there is None or there.array.nbytes != block.array.nbytes:
            return block.part(twin, address)
        whole = block.array.nbytes == twin.nbytes and block.array.dtype == twin.dtype
        return array if whole else there.part(twin, there.pointer + address - block.pointer)

    def _holding(self, name: str, address: int) -> Block | None:
        """Return the memory that an array parameter with an address is in: its own, what it was given, or that of an array."""
        nbytes = self.table[name][1].nbytes
        mine = (*self.kept.get(name, {}).values(), *((self.own[name],) if name in self.own else ()))
        found = next((block for block in mine if block.holds(address, nbytes)), None)
        owned = self._memory.holding(address, nbytes) if found is None else None
        return owned[1] if owned is not None else found

    def lend(self, scope: Environment, view: ArrayView) -> Lent | None:
        """Lend the memory behind a view; None for memory that lives only while the graph runs, and for variables of modules."""
        owner, root, _ = scope.behind(view.root)
        name = owner.prefix + root.name
        if isinstance(root, Parameter):
            block = self._holding(name, owner.addresses.get(root, 0))
        else:
            block = None if isinstance(root, Symbol) else self._memory.arrays.get(name)
        return None if block is None else block.lend()

    # -- external memory -------------------------------------------------------------------------------------------------

    def forget_replaced(self, recorded: Collection[int]) -> None:
        """Release the memory of array parameters that they are not bound to now, unless its address is `recorded`.

        No launch may be in flight.
        """
        self.keeps_replaced = False
        for name, kept in self.kept.items():
            current = self.current(name)
            replaced = [pointer for pointer in kept if pointer != current]
            self.keeps_replaced |= any(pointer in recorded for pointer in replaced)
            for pointer in replaced:
                if pointer not in recorded:
                    with self._home.there():
                        kept.pop(pointer).give_back(self._home)

    def return_into(self, stack: ExitStack) -> None:
        """Register the release of all kept memory with an exit stack."""
        for block in (*self.kept_blocks(), *self.own.values()):
            stack.callback(block.give_back, self._home)
        for table in (self.kept, self.own, self.table):  # the last refers to scopes, and these to what lends this memory
            stack.callback(table.clear)
        stack.callback(setattr, self, "standing", {})


def _as_other(name: str, value: Any, parameter: Parameter, twin: Parameter) -> Any:
    """Return a given scalar as a value for a parameter of another dtype; refuse what was given to an array parameter."""
    if not parameter.shape and not twin.shape:
        return value
    before, after = (f"shape {each.shape} and dtype {each.dtype}" for each in (parameter, twin))
    raise DeclarationError(
        f"parameter {name!r} has {after} in the new graph and {before} in this one, where a launch has given it memory or values,"
        " which would be lost; keep its shape and dtype, rename it, or compile the new graph",
        array=name,
    )
