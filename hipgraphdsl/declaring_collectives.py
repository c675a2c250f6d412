"""The methods of a graph that declare collectives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .arrays import Viewable, as_int
from .collectives import CollectiveNode, Does, Fold
from .declaring import After, Declaring, Ignore
from .errors import DeclarationError


class DeclaringCollectives(Declaring):
    """What several arrays do together, as a user declares it."""

    def all_reduce(
        self,
        arrays: Sequence[Viewable],
        op: Fold = "sum",
        *,
        exact: bool = False,
        name: str | None = None,
        after: After = (),
        ignore: Ignore = None,
    ) -> CollectiveNode:
        """Fold arrays of several devices element by element, in their order, and give each the result.

        Parameters
        ----------
        arrays : sequence of device arrays or views
            One for each participant, of one dtype and shape; each is overwritten.
        op : {"sum", "prod", "max", "min"}
            float16 and bfloat16 are folded as float32 and rounded once.
        exact : bool
            Fold in the order of the arrays also where NCCL or RCCL between ranks would fold in an order of its own.
        """
        return self._collective("all_reduce", arrays, arrays, name, after, ignore, op=op, exact=exact)

    def reduce(
        self,
        arrays: Sequence[Viewable],
        op: Fold = "sum",
        root: int = 0,
        *,
        exact: bool = False,
        name: str | None = None,
        after: After = (),
        ignore: Ignore = None,
    ) -> CollectiveNode:
        """Fold arrays of several devices element by element, in their order, into that of the participant `root`."""
        return self._collective("reduce", [_entry(arrays, root)], arrays, name, after, ignore, op=op, root=root, exact=exact)

    def broadcast(
        self, arrays: Sequence[Viewable], root: int = 0, *, name: str | None = None, after: After = (), ignore: Ignore = None
    ) -> CollectiveNode:
        """Give all arrays the values of that of the participant `root`."""
        return self._collective("broadcast", arrays, [_entry(arrays, root)], name, after, ignore, root=root)

    def all_gather(
        self,
        targets: Sequence[Viewable],
        sources: Sequence[Viewable],
        *,
        name: str | None = None,
        after: After = (),
        ignore: Ignore = None,
    ) -> CollectiveNode:
        """Put all sources into each target, one after the other along its first axis."""
        return self._collective("all_gather", targets, sources, name, after, ignore)

    def reduce_scatter(
        self,
        targets: Sequence[Viewable],
        sources: Sequence[Viewable],
        op: Fold = "sum",
        *,
        exact: bool = False,
        name: str | None = None,
        after: After = (),
        ignore: Ignore = None,
    ) -> CollectiveNode:
        """Fold sources element by element, and give each target its part of the result along their first axis."""
        return self._collective("reduce_scatter", targets, sources, name, after, ignore, op=op, exact=exact)

    def all_to_all(
        self,
        targets: Sequence[Viewable],
        sources: Sequence[Viewable],
        *,
        name: str | None = None,
        after: After = (),
        ignore: Ignore = None,
    ) -> CollectiveNode:
        """Give each target its part of every source; sources and targets have as many equal parts as there are participants."""
        return self._collective("all_to_all", targets, sources, name, after, ignore)

    def _collective(
        self, does: Does, targets: Any, sources: Any, name: str | None, after: After, ignore: Ignore, **fields: Any
    ) -> CollectiveNode:
        return self._new(CollectiveNode, name, does, after, ignore, does=does, targets=targets, sources=sources, **fields)


def _entry(arrays: Sequence[Viewable], root: Any) -> Viewable:
    """Return the array of one participant."""
    number = as_int(root)
    if not isinstance(arrays, (list, tuple)) or not arrays:
        raise DeclarationError(f"arrays is a list of at least one device array or view (got {arrays!r})")
    if number is None or not 0 <= number < len(arrays):
        raise DeclarationError(f"root is the number of an array, from 0 to {len(arrays) - 1} (got {root!r})")
    entry: Viewable = arrays[number]
    return entry
