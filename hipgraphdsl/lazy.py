"""Properties that are computed once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


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
