"""How arguments fit the parameters of a kernel."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Final

import numpy as np

from ..arrays import (
    WRITE,
    Access,
    ArrayView,
    MovingView,
    Need,
    Parameter,
    Viewable,
    device_need,
    kind_of,
    lacking,
    no_array,
    part_of,
)
from ..errors import DeclarationError, node_error
from ..kernels import KernelParameter, Signature, check_argument

BOUNDS: Final[dict[object, tuple[int, int]]] = {
    np.dtype(f"{kind}{size}"): (-(2 ** (8 * size - 1)), 2 ** (8 * size - 1) - 1) if kind == "i" else (0, 2 ** (8 * size) - 1)
    for kind in "iu"
    for size in (1, 2, 4, 8)
}
"""The range of an int, by dtype."""


def fitting_argument(parameter: KernelParameter, arg: Any, node: str, kernel: str) -> Any:
    """Normalize one argument to an ArrayView, an Access, a Parameter, None for a null pointer, or a checked value."""
    if (
        type(arg) is int
        and (bounds := BOUNDS.get(parameter.dtype)) is not None
        and not parameter.pointer
        and bounds[0] <= arg <= bounds[1]
    ):
        return arg
    given: Any = arg
    fault, array = "", None
    if parameter.pointer:
        if isinstance(arg, Viewable):
            view = arg.as_view()
            given = arg if isinstance(arg, Access) else view
            fault, array = pointer_fault(parameter, view, given), view.root.name
        elif arg is not None:
            fault = f" is {parameter.ctype}: give an array, a view of one, or None for a null pointer; {no_array(arg)}"
    elif isinstance(arg, Parameter):
        array = arg.name
        dtype = parameter.value_dtype
        if arg.terms:
            if dtype is None or dtype.kind not in "iub":
                fault = f" is {parameter.ctype}, and {arg.name} is an integer expression; compute it in the kernel"
        elif arg.shape or dtype != arg.dtype:
            struct = parameter.dtype is not None and parameter.dtype.names
            whole = str(dtype) if parameter.lanes > 1 else repr(str(dtype))
            wanted = f"module.structs[{parameter.ctype!r}]" if struct else whole
            fault = (
                f" is {parameter.ctype}, parameter {arg.name!r} is {arg.dtype}{list(arg.shape) if arg.shape else ''}; declare it"
                f" with dtype={wanted}"
            )
    elif isinstance(arg, Viewable):
        fault = f" is {parameter.ctype}, a value; got the array {arg.as_view().name!r}"
    else:
        try:
            value = check_argument(parameter, arg, f"node {node!r}: kernel {kernel!r}")
        except DeclarationError as error:
            raise DeclarationError(str(error), node=node, array=error.array) from None
        if isinstance(value, bytes) and isinstance(arg, (int, float)):  # bfloat16 or complex passed by value
            return complex(arg) if parameter.dtype is not None and kind_of(parameter.dtype) == "c" else np.float32(arg)
        return deepcopy(arg) if isinstance(value, bytes) else value  # copied: the caller may change a dict or a record later
    if fault:
        raise node_error(node, f"argument {parameter.name!r} of kernel {kernel!r}{fault}", array=array)
    return given


def signature_of(kernel: str, args: tuple[Any, ...], node: str) -> Signature:
    """Return the signature that arguments imply, for a kernel without one."""
    dtypes: list[Any] = []
    for i, arg in enumerate(args):
        if isinstance(arg, (ArrayView, Access)):
            dtypes.append(None)
        elif isinstance(arg, (Parameter, np.generic, np.ndarray)):
            dtypes.append(arg.dtype)
        else:
            raise node_error(
                node,
                f"the signature of kernel {kernel!r} is not known, so argument {i} needs a NumPy type such as"
                f" numpy.int32({arg!r}); or give signatures= to Module.from_file",
            )
    return Signature.of_values(kernel, dtypes)


def pointer_fault(parameter: KernelParameter, view: ArrayView, given: Any) -> str:
    """Return why a view cannot be passed to a pointer, worded to follow the argument's name; empty if it can."""
    wanted = parameter.dtype
    # A float2 holds a complex64, a half2 a complex32. NumPy treats None as float64, so None is not compared.
    part = part_of(view.dtype) if parameter.lanes == 2 else None
    is_complex = part is not None and wanted is not None and wanted == part
    if wanted is not None and wanted != view.dtype and not is_complex:
        return f" is {parameter.ctype}, which takes dtype {wanted}; {view.name!r} has dtype {view.dtype}"
    if not view.contiguous and not isinstance(given, Access):
        return (
            f": the view {view.name!r} is not contiguous, and a kernel gets only the address of its first element; pass the array"
            f" and its strides, copy the view, or say what the kernel does with it: hg.reads({view.name}), hg.writes or"
            " hg.updates"
        )
    if parameter.lanes > 1 and not is_complex:
        elements = view.size if isinstance(view, MovingView) else view.region.run // view.dtype.itemsize
        if elements % parameter.lanes:
            held = f"has {elements} elements{' in a row' * (not view.contiguous)}, not a multiple of {parameter.lanes}"
            return f" is {parameter.ctype}: {view.name!r} {held}"
    mode = given.mode if isinstance(given, Access) else "read" if parameter.const else "update"
    if mode != "read" and parameter.const:
        return f" is {parameter.ctype} and cannot be written"
    fault = lacking(view, reached_by(parameter, view)) or (lacking(view, WRITE) if mode != "read" else "")
    return f": {fault}" if fault else ""


def reached_by(parameter: KernelParameter, view: ArrayView) -> Need:
    """Return what a kernel needs of memory whose address it is given: elements of a vector type are aligned as a whole."""
    return device_need(max(view.dtype.alignment, parameter.target_align))
