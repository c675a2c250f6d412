"""Views whose place or length a launch decides: ``cache[pos]``, ``x[:n]``, ``y[pos * 64 : pos * 64 + 64]``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ..lazy import lazy
from .parameters import Expression, Parameter, Range, difference, if_known, terms_of, value_at, with_other
from .regions import Region
from .views import ArrayView, Root, selector_text


class MovingView(ArrayView):
    """A view with an expression in its selection.

    What orders nodes is its `region`: the bytes of all views that it can be, as the bounds of its parameters say. `shape` is
    that of the longest one; `selection` selects `region`.

    Attributes
    ----------
    chosen : tuple of int, Expression or slice
        As `ArrayView.selection`, with expressions.
    terms : tuple of Parameter
        The parameters in it, each once.
    """

    chosen: tuple[Any, ...]
    terms: tuple[Parameter, ...]

    def __init__(self, root: Root, chosen: tuple[Any, ...]) -> None:
        hull = ArrayView(root, tuple(_hull(selector) for selector in chosen))
        steps: list[int] = []
        step_bytes = root.dtype.itemsize
        for extent in root.shape[::-1]:
            steps.insert(0, step_bytes)
            step_bytes *= extent
        slices = [(selector, step) for selector, step in zip(chosen, steps) if isinstance(selector, slice)]
        strides = tuple(selector.step * step for selector, step in slices)
        longest = tuple(_length(selector)[1] for selector, _ in slices)
        # A length that a launch decides may be shorter than all of a dimension, and then the rows are apart.
        moving = [k for k, (selector, _) in enumerate(slices) if _length(selector)[0] is None and longest[k] > 1]
        shapes = [longest, *((*longest[:k], longest[k] - 1, *longest[k + 1 :]) for k in moving)]
        regions = [Region.strided(0, shape, strides, root.dtype.itemsize) for shape in shapes]
        bounds = (bound for selector in chosen for bound in _bounds_in(selector))
        self.__dict__.update(
            root=root, selection=hull.selection, offset_bytes=hull.offset_bytes, shape=longest, strides=strides, dtype=root.dtype,
            region=hull.region, contiguous=not any(region.dims for region in regions), chosen=chosen,
            terms=tuple(dict.fromkeys(term for bound in bounds for term in terms_of(bound))),
        )  # fmt: skip

    @property
    def has_fixed_shape(self) -> bool:
        """Whether a launch decides its place alone, not how long it is."""
        return all(_length(selector)[0] is not None for selector in self.chosen if isinstance(selector, slice))

    @property
    def is_whole(self) -> bool:
        return False

    @lazy
    def name(self) -> str:  # an attribute in the base class
        return self.spelled(lambda parameter: parameter.name)

    def spelled(self, name_of: Callable[[Parameter], str], prefix: str = "") -> str:
        """Return its text with other names of its parameters, and `prefix` before functions."""

        def text(bound: Any) -> Any:
            if isinstance(bound, Expression):
                return bound.spelled(name_of, prefix)
            return name_of(bound) if isinstance(bound, Parameter) else bound

        return f"{self.root.name}[{', '.join(map(selector_text, _changed(self.chosen, text)))}]"

    def at(self, value_of: Callable[[Parameter], Any]) -> ArrayView:
        """Return the view that it is for the values of its parameters; it may have no element."""
        selection: list[int | slice] = []
        for selector in self.chosen:
            if isinstance(selector, slice):
                start = value_at(selector.start, value_of)
                selection.append(slice(start, max(start, value_at(selector.stop, value_of)), selector.step))
            else:
                selection.append(value_at(selector, value_of))
        return ArrayView(self.root, tuple(selection))

    def default_at(self, value_of: Callable[[Parameter], Any]) -> ArrayView | None:
        """Return the view; None where a parameter's value is None, or it divides by zero."""
        return if_known(self.at, self.terms, value_of)

    def on(self, root: Root) -> ArrayView:
        return self if root is self.root else MovingView(root, self.chosen)

    def replaced(self, root: Root, by: Callable[[Parameter], Any]) -> ArrayView:
        """Return the same selection of another root, with other parameters, expressions or integers in place of its own."""
        return made_of(root, tuple(_changed(self.chosen, lambda bound: with_other(bound, by))))

    def same_as(self, other: MovingView, same_root: Callable[[Any, Any], bool]) -> bool:
        """Return whether another one has the same text, of roots and parameters that `same_root` finds to be the same."""
        return self.name == other.name and same_root(self.root, other.root) and all(map(same_root, self.terms, other.terms))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MovingView) and self.same_as(other, lambda a, b: a is b)

    def __hash__(self) -> int:
        return hash((id(self.root), self.name))

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "chosen": self.chosen, "terms": self.terms}

    def _selected(self, key: Any) -> ArrayView:
        return select(self, self.chosen, key)


def made_of(root: Root, chosen: tuple[Any, ...]) -> ArrayView:
    """Return the view of a selection, moving only if an expression is left in it."""
    fixed = not any(isinstance(bound, Parameter) for selector in chosen for bound in _bounds_in(selector))
    return ArrayView(root, chosen) if fixed else MovingView(root, chosen)


def select(view: ArrayView, chosen: tuple[Any, ...], key: Any) -> ArrayView:
    """Select from a view by indices and slices of which some are parameters or expressions of them.

    Raises
    ------
    DeclarationError
        If an index or bound may lie outside for a value that its parameters may have.
    """
    keys = [*key] if isinstance(key, tuple) else [key]
    dimensions = sum(isinstance(selector, slice) for selector in chosen)
    if Ellipsis in [each for each in keys if not isinstance(each, Root)]:
        at = next(k for k, each in enumerate(keys) if each is Ellipsis)
        keys[at : at + 1] = [slice(None)] * max(0, dimensions - (len(keys) - 1))
    if len(keys) > dimensions:
        raise view._refuse(key, f"it has {dimensions} dimension{'s' * (dimensions != 1)}")
    made: list[Any] = []
    for selector in chosen:
        if not isinstance(selector, slice) or not keys:
            made.append(selector)
            continue
        made.append(_part(view, key, selector, keys.pop(0)))
    return made_of(view.root, tuple(made))


ArrayView._by_expressions = select  # views cannot import what stands above them


def _part(view: ArrayView, key: Any, selector: slice, wanted: Any) -> Any:
    """Return what an index or a slice selects of a slice."""
    extent, _ = _length(selector)
    if extent is None:
        if isinstance(wanted, slice) and (wanted.start, wanted.stop, wanted.step) in ((None, None, None), (0, None, 1)):
            return selector
        raise view._refuse(key, f"a launch decides how long {view.name!r} is; slice the array itself")
    if not isinstance(wanted, slice):
        index = _inside(view, key, wanted, extent, extent - 1)
        return _shifted(selector.start, index, selector.step)
    step = 1 if wanted.step is None else wanted.step
    if type(step) is not int or step < 1:
        raise view._refuse(key, f"steps are positive integers (got {getattr(step, 'name', step)})")
    start = 0 if wanted.start is None else _inside(view, key, wanted.start, extent, extent)
    stop = extent if wanted.stop is None else _inside(view, key, wanted.stop, extent, extent)
    first, stride = _shifted(selector.start, start, selector.step), step * selector.step
    least, length = difference(stop, start)
    if length <= 0:
        raise view._refuse(key, "it selects no element")
    if least != length:
        return slice(first, _shifted(selector.start, stop, selector.step), stride)
    count = -(-length // step)
    return slice(first, _shifted(first, (count - 1) * stride + 1, 1), stride if count > 1 else 1)


def _inside(view: ArrayView, key: Any, bound: Any, extent: int, most: int) -> Any:
    """Return an index or a bound of a slice, from 0 to `most`; refuse one that can lie outside."""
    if not isinstance(bound, Parameter):
        index = view._index(key, bound)
        if not -extent <= index <= most:
            raise view._refuse(key, f"{index} is out of range for an extent of {extent}")
        return index + extent * (index < 0)
    if bound.shape or bound.dtype.kind not in "iu":
        raise view._refuse(key, f"an index is a scalar integer parameter (got {bound!r})")
    low, high = bound.bounds
    if low < 0 or high > most:
        names = ", ".join(repr(term.name) for term in terms_of(bound))
        raise view._refuse(
            key,
            f"{bound.name} can be {low} to {high}, and here it is 0 to {most}; give {names} bounds by g.param(..., min=, max=)",
        )
    return bound


def _shifted(start: Any, by: Any, step: int) -> Any:
    """Return ``start + by * step``, as short as it can be written."""
    far = by if step == 1 else by * step
    if type(far) is int and far == 0:
        return start
    return far if type(start) is int and start == 0 else start + far


def _range(bound: Any) -> Range:
    return bound.bounds if isinstance(bound, Parameter) else (bound, bound)


def _length(selector: slice) -> tuple[int | None, int]:
    """Return how many elements a slice has, None if a launch decides that, and how many at most."""
    least, most = difference(selector.stop, selector.start)
    count = -(-most // selector.step)
    return (count if least == most else None), count


def _hull(selector: Any) -> slice:
    """Return the slice of all that a selector can select."""
    if not isinstance(selector, slice):
        low, high = _range(selector)
        return slice(low, high + 1, 1)
    low, high = _range(selector.start)
    end = min(_range(selector.stop)[1], high + difference(selector.stop, selector.start)[1])
    return slice(low, end, selector.step if low == high else 1)


def _changed(chosen: tuple[Any, ...], new: Callable[[Any], Any]) -> Iterator[Any]:
    """Yield selectors with `new` of each index and bound."""
    return (slice(new(each.start), new(each.stop), each.step) if isinstance(each, slice) else new(each) for each in chosen)


def _bounds_in(selector: Any) -> tuple[Any, ...]:
    return (selector.start, selector.stop) if isinstance(selector, slice) else (selector,)
