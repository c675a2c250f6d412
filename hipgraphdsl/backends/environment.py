"""Environment: the addresses and values that the names of one workflow resolve to in one Executable."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..arrays import Array, ArrayView, Expression, MovingView, Parameter
from ..errors import DeclarationError
from ..kernels import Symbol
from ..nodes import Node, element_value
from ..nodes.bindings import Binding
from ..nodes.workflow import Level, Workflow
from ..plan.steps import Step
from .handles import SharedHandles
from .lent import Lent


class Environment(Binding):
    """Addresses and values of the names of one workflow in one Executable; `prefix` is ``"child/"`` inside a child graph."""

    __slots__ = ("addresses", "bound_from", "children", "defaults", "runtime", "shared", "values")

    def __init__(self, shared: SharedHandles, prefix: str = "", parent: Environment | None = None) -> None:
        super().__init__(prefix, parent)
        self.runtime = shared.runtime
        self.shared = shared
        """Modules, functions, events and callbacks, common to a workflow and its children."""
        self.addresses: dict[Any, int] = {}
        """Address of each array, symbol and bound array parameter."""
        self.bound_from: dict[Any, Any] = {}
        """Inside a child: its arrays and parameters -> the parent's views, parameters or values."""
        self.defaults: dict[Parameter, Array] = {}
        """Array parameters of this scope -> the arrays that they stand for by default, where the parent binds these."""
        self.values: dict[Parameter, Any] = {}
        """Current value of each scalar parameter that belongs to this scope."""
        self.children: dict[str, Environment] = {}

    def inside(self, path: Sequence[Node]) -> Environment:
        """Return the scope inside nested child graphs, which `path` lists outermost first."""
        scope = self
        for child in path:
            scope = scope.children[child.name]
        return scope

    def levels(self, workflow: Workflow) -> Iterator[tuple[Environment, Level]]:
        """Yield the levels of a workflow, each with its scope; create scopes that do not exist yet."""
        scopes: dict[Level, Environment] = {}
        for level in workflow.levels():
            scope = self
            if level.parent is not None:
                outer = scopes[level.parent]
                inner = outer.children.get(level.key)
                if inner is None:
                    inner = outer.children[level.key] = Environment(outer.shared, f"{outer.prefix}{level.key}/", outer)
                scope = inner
            scopes[level] = scope
            yield scope, level

    def all_inside(self) -> Iterator[Environment]:
        """Yield this scope and all scopes inside it, outermost first."""
        waiting = [self]
        for found in waiting:
            waiting += found.children.values()
            yield found

    def snapshot(self) -> Callable[[], None]:
        """Return a function that restores the current addresses of names in this scope and in all scopes inside it."""
        known = [(inner.addresses, dict(inner.addresses)) for inner in self.all_inside()]

        def restore() -> None:
            for table, addresses in known:
                table.update(addresses)  # one call, which Ctrl-C cannot interrupt halfway

        return restore

    def address(self, view: ArrayView, device: int | None = None) -> int:
        """Return the address of the first element of a view; a module's variable has one on each `device`."""
        if isinstance(view, MovingView):
            view = view.at(self.value)
        root = view.root
        found = self.addresses.get(root)
        offset = view.offset_bytes
        if found is None:
            scope, root, inner = self.behind(root)
            offset += inner
            found = scope.addresses.get(root)
        if found is not None:
            return found + offset
        if isinstance(root, Symbol):
            return self.shared.symbol(root, self.shared.device if device is None else device) + offset
        if isinstance(root, Parameter):
            raise DeclarationError(
                f"parameter {scope.prefix + root.name!r} stands for an array and has not been given; pass it to launch",
                array=root.name,
            )
        raise DeclarationError(f"array {scope.prefix + root.name!r} has no memory where it is used", array=root.name)

    def here(self, view: ArrayView) -> ArrayView:
        """Return the view that one stands for now: itself, unless a launch decides its place or length."""
        return view.at(self.value) if isinstance(view, MovingView) else view

    def behind(self, root: Any) -> tuple[Environment, Any, int]:
        """Resolve an array or parameter to what has its memory now: as `resolve`, and beyond defaults that the parent binds.

        A parameter stands for its default until a launch gives it memory.
        """
        at, root, offset = self.resolve(root)
        default = at.defaults.get(root)
        if default is None or root in at.addresses:
            return at, root, offset
        at, root, inner = at.behind(default)
        return at, root, offset + inner

    def default_of(self, parameter: Parameter) -> Array | None:
        return self.defaults.get(parameter)

    def value(self, parameter: Parameter) -> Any:
        """Return the current value of a scalar parameter, converted to its dtype."""
        if parameter in self.values:
            return self.values[parameter]
        if isinstance(parameter, Expression):
            return parameter.at(self.value)
        scope, root, _ = self.resolve(parameter)
        what = f"parameter {self.prefix + parameter.name!r}"
        if isinstance(root, Expression):
            what, root = f"{what} is {root.told(scope.value)}, and", root.at(scope.value)
        elif isinstance(root, Parameter):
            return scope.values[root]
        return element_value(root, parameter.dtype, what)

    def device_of(self, node: Node) -> int:
        """Return the device that a node runs on; for a node that needs none, the device that the graph was compiled for."""
        shared = self.shared
        if len(shared.devices) == 1:
            return shared.device
        from ..placement import device_of  # only with several devices

        found = device_of(node, shared.device, self)
        return shared.device if found is None else found

    def place_of(self, step: Step) -> int:
        """Return the device that a step runs on, found from its node if the step's child graph was planned for any binding."""
        shared = self.shared
        if len(shared.devices) == 1:
            return shared.device
        return self.device_of(step.node) if step.device is None else step.device

    def owner(self, view: ArrayView) -> int:
        """Return the device that owns the memory of a view; if none does, the device that the graph was compiled for."""
        device = self.resolve(view.root)[1].device
        return self.shared.device if device is None else int(device)

    def is_host(self, view: ArrayView, lent: Lent | None = None) -> bool:
        """Return whether the memory of a view, which is `lent` if that is given, is known to be host memory."""
        if lent is not None:
            return lent.on_host
        root = self.resolve(view.root)[1]
        return isinstance(root, Array) and root.on_host

    def is_given(self, view: ArrayView) -> bool:
        """Return whether a launch may give the memory of a view, which is then host or device memory."""
        return isinstance(self.resolve(view.root)[1], Parameter)

    def bound(self, root: Any) -> Any:
        return self.bound_from.get(root)


Owned = tuple[Environment, Any]
"""An array or parameter, with the scope that owns it."""


def named(root: Owned) -> str:
    """Return the quoted full name of an array or parameter, as errors give it."""
    scope, array = root
    return repr(scope.prefix + array.name)
