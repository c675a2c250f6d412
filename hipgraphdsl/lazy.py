"""Properties that are computed once, and tuples that are copied at first access."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

_MOST_EDITS: Final = 64  # replaced entries of a tuple that has not been copied


class lazy(Generic[T]):  # noqa: N801  # used as a decorator, like functools.cached_property
    """A property that is computed once; `functools.cached_property` without the lock that it takes before Python 3.12."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self._name = compute.__name__
        self.__doc__ = compute.__doc__

    def __get__(self, owner: Any, kind: type[Any]) -> T:
        if owner is None:
            return self  # type: ignore[return-value]  # accessed on the class
        value = owner.__dict__[self._name] = self._compute(owner)
        return value


class Entries:
    """A field of a frozen dataclass that is a tuple, of which `replaced` replaces entries without a copy of all others.

    The new object copies them when its field is first read. It has those of the other attributes that are `kept`.
    """

    def __init__(self, kind: type[Any], name: str, kept: Collection[str]) -> None:
        self._name = name
        self._kept = frozenset(kept)
        self._edits = f"_{name}_edits"
        setattr(kind, name, self)  # found where an object has no value of its own

    def __get__(self, owner: Any, kind: type[Any]) -> Any:
        if owner is None:
            return self  # accessed on the class
        known, edits = owner.__dict__[self._edits]
        entries = list(known)
        for i, entry in edits.items():
            entries[i] = entry
        made = owner.__dict__[self._name] = tuple(entries)
        return made

    def at(self, owner: Any, index: int) -> Any:
        """Return one entry of an object whose field has not been read, without a copy of all."""
        known, edits = owner.__dict__[self._edits]
        return edits[index] if index in edits else known[index]

    def replaced(self, owner: Any, entries: Mapping[int, Any]) -> Any:
        """Return a copy of an object with some entries replaced."""
        known = owner.__dict__
        base, edits = (None, {}) if self._name in known else known[self._edits]
        if base is None or len(edits) + len(entries) > _MOST_EDITS:
            base, edits = getattr(owner, self._name), {}
        return self.over(owner, base, {**edits, **entries})

    def over(self, owner: Any, entries: Iterable[Any], edits: Mapping[int, Any]) -> Any:
        """Return a copy of an object with other entries, which may be indexed, some of them replaced by `edits`."""
        made, known = object.__new__(type(owner)), owner.__dict__
        for name in known.keys() & self._kept:
            made.__dict__[name] = known[name]
        made.__dict__[self._edits] = entries, edits
        return made
