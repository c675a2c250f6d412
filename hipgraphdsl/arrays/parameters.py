"""Parameters: values that are bound at launch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import DeclarationError
from .views import ArrayView, Root


@dataclass(frozen=True, eq=False)
class Parameter(Root):
    """A value bound at launch: a scalar, or with a shape, an array.

    Attributes
    ----------
    name : str
        The launch keyword.
    dtype : numpy.dtype
    default : object
        The value of the first launch; None where it must be given then.
    shape : tuple of int
        Empty for a scalar.
    copy : bool
        Whether a launch copies values into page-locked memory of the Executable's own, instead of using memory in place.
    """

    name: str
    dtype: np.dtype[Any]
    default: Any = None
    shape: tuple[int, ...] = ()
    copy: bool = False

    kind = "parameter"
    device = None

    @property
    def on_host(self) -> bool:
        """Whether host callbacks may take it; what it is bound to is judged at launch."""
        return bool(self.shape)

    def as_view(self) -> ArrayView:
        """Return the view of all elements of what it is bound to."""
        if not self.shape:
            raise DeclarationError(
                f"parameter {self.name!r} is a scalar and cannot stand where an array may; give it a shape", array=self.name
            )
        return super().as_view()

    def __repr__(self) -> str:
        shape = f", shape={self.shape}" if self.shape else ""
        default = f", default={self.default!r}" if self.default is not None else ""
        return f"Parameter({self.name!r}, {self.dtype}{default}{shape}{', copy=True' * self.copy})"
