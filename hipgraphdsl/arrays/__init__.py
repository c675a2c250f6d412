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
    as_dtype,
    as_handle,
    as_int,
    as_rank,
    as_shape,
    converted,
    float_overflow,
    int_from,
    naming,
    own_copy,
    require_flags,
)
from .needs import COLLECTIVE, HOST, WRITE, Need, array_by_default, device_need, lacking, require_fit, unlike, whole_array
from .regions import Region
from .views import Access, ArrayView, Mode, Root, Viewable, as_view, no_array, reads, updates, writes

__all__ = [
    "COLLECTIVE",
    "HOST",
    "WRITE",
    "Access",
    "AllocArray",
    "Array",
    "ArrayView",
    "DeviceArray",
    "ExternalArray",
    "HostArray",
    "Mode",
    "Need",
    "Parameter",
    "Region",
    "Root",
    "UnboundValues",
    "Viewable",
    "array_by_default",
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
    "device_need",
    "float_overflow",
    "int_from",
    "lacking",
    "naming",
    "no_array",
    "own_copy",
    "reads",
    "require_fit",
    "require_flags",
    "unlike",
    "updates",
    "whole_array",
    "writes",
]
