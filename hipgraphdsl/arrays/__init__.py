"""The operands of nodes: arrays, views of them, and parameters.

An array is a frozen description: a name, a shape, a dtype and a memory location. Memory exists only in an `Executable`.
An `ArrayView` selects elements of one array by basic slices with positive steps; its `Region`, an exact set of bytes, is
the unit of dependency.
"""

from .arrays import AllocArray, Array, DeviceArray, ExternalArray, HostArray, Parameter, UnboundValues
from .coercion import (
    array_values,
    as_device,
    as_devices,
    as_dict,
    as_handle,
    as_int,
    as_rank,
    as_shape,
    converted,
    int_from,
    naming,
    own_copy,
    require_flags,
)
from .dlpack import ndarray_of
from .dtypes import (
    CODES,
    EXTRAS,
    NAMES,
    as_dtype,
    dtype_named,
    float_overflow,
    has_extras,
    int_range,
    is_complex,
    is_extra,
    kind_of,
    part_of,
    unheld,
    widened,
)
from .regions import Region
from .views import Access, ArrayView, Mode, Root, Viewable, as_view, no_array, reads, updates, writes

__all__ = [
    "CODES",
    "EXTRAS",
    "NAMES",
    "Access",
    "AllocArray",
    "Array",
    "ArrayView",
    "DeviceArray",
    "ExternalArray",
    "HostArray",
    "Mode",
    "Parameter",
    "Region",
    "Root",
    "UnboundValues",
    "Viewable",
    "array_values",
    "as_device",
    "as_devices",
    "as_dict",
    "as_dtype",
    "as_handle",
    "as_int",
    "as_rank",
    "as_shape",
    "as_view",
    "converted",
    "dtype_named",
    "float_overflow",
    "has_extras",
    "int_from",
    "int_range",
    "is_complex",
    "is_extra",
    "kind_of",
    "naming",
    "ndarray_of",
    "no_array",
    "own_copy",
    "part_of",
    "reads",
    "require_flags",
    "unheld",
    "updates",
    "widened",
    "writes",
]
