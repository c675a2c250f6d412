"""What the names of a workflow stand for where it is held: a node's binding of its arrays and parameters, through all levels."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from itertools import repeat
from typing import TYPE_CHECKING, Any

from ..arrays import Array, ArrayView, Parameter
from .base import Node

if TYPE_CHECKING:
    from typing_extensions import Self


class Binding:
    """Resolves the names of one occurrence of a workflow, outermost or inside a node, to what they are bound to outside."""

    __slots__ = ("parent", "prefix")

    def __init__(self, prefix: str, parent: Self | None) -> None:
        self.prefix = prefix
        self.parent = parent

    @abstractmethod
    def bound(self, root: Any) -> Any:
        """Return the parent's view, parameter or value that an array or parameter is bound to; None if it is not bound."""

    @abstractmethod
    def default_of(self, parameter: Parameter) -> Array | None:
        """Return the array that a parameter from here stands for by default, where the parent binds that array; else None."""

    def resolve(self, root: Any) -> tuple[Self, Any, int]:
        """Resolve an array or parameter through all levels of binding.

        Returns
        -------
        binding, root, offset_bytes
            The binding that owns the result; the array, parameter or value; and the byte offset in it of the given root.
        """
        at, offset = self, 0
        while at.parent is not None and (outer := at.bound(root)) is not None:
            at, root = at.parent, outer
            if isinstance(outer, ArrayView):
                root = outer.root
                offset += outer.offset_bytes
            elif not isinstance(outer, Parameter):
                break
        return at, root, offset

    def _behind_all(self, terms: Iterable[Parameter]) -> Iterator[tuple[Self, Parameter]]:
        """Yield the parameters that those of an expression here stand for, each with the binding that owns it."""
        for term in terms:
            at, found, _ = self.resolve(term)
            if isinstance(found, Parameter):
                yield from at._behind_all(found.terms) if found.terms else ((at, found),)

    def parameters_of(self, node: Node) -> list[tuple[Self, Parameter]]:
        """Return the parameters that a node here depends on, each with the binding that owns it.

        A parameter may stand for an array of a child, or for the default of another one: then the nodes do not mention it.
        """
        if self.parent is None:  # nothing is bound
            return list(zip(repeat(self), node.parameters))
        used: list[tuple[Self, Parameter]] = []
        for root in node.roots:
            at, found, _ = self.resolve(root)
            while isinstance(found, Parameter):
                if found.terms:
                    used += at._behind_all(found.terms)
                    break
                used.append((at, found))
                default = at.default_of(found)
                if default is None:
                    break
                at, found, _ = at.resolve(default)
        return used


def bound(root: Any, workflow: Any, bind: Mapping[str, Any]) -> Any:
    """Return what an array or parameter of a held workflow is bound to, or None; roots of other workflows are not bound."""
    name = root.name
    if name not in bind:
        return None
    own = workflow.arrays.get(name, workflow.parameters.get(name))
    return bind[name] if own is root else None
