"""Arrays, views and regions: what they say of memory."""

from __future__ import annotations

import pickle
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import hipgraphdsl as hg
from hipgraphdsl.arrays import Access, DeviceArray, ExternalArray, Region, as_dtype, as_shape, as_view


@pytest.fixture
def u() -> DeviceArray:
    return DeviceArray("u", (6, 8), np.dtype("f4"))


@pytest.mark.parametrize(
    "given",
    ["float32", "f4", np.float32, np.dtype("f4"), float, "bool", "complex128", "bfloat16", "V8", [("a", "i4"), ("b", "f8")]],
)
def test_dtypes_are_given_in_any_form_that_numpy_takes(given: Any) -> None:
    dtype = as_dtype(given)
    assert isinstance(dtype, np.dtype)
    assert as_dtype(dtype) == dtype


def test_dtypes_of_foreign_byte_order_become_native_and_bfloat16_is_that_of_ml_dtypes() -> None:
    assert as_dtype(">i4") == np.dtype("i4")
    assert as_dtype("bfloat16") == np.dtype(ml_dtypes.bfloat16)


@pytest.mark.parametrize(
    ("given", "shape"), [(3, (3,)), ((), ()), ([2, 3], (2, 3)), (np.int64(4), (4,)), ((np.int32(2), 5), (2, 5))]
)
def test_shapes_are_integers_or_sequences_of_them(given: Any, shape: tuple[int, ...]) -> None:
    assert as_shape(given) == shape


def test_views_select_as_numpy_does_and_say_so(u: DeviceArray) -> None:
    row, box, one = u[3], u[1:4, ::2], u[-1, -1]
    assert (row.name, row.shape, row.offset_bytes, row.contiguous) == ("u[3, 0:8]", (8,), 96, True)
    assert (box.name, box.shape, box.strides, box.contiguous) == ("u[1:4, 0:7:2]", (3, 4), (32, 8), False)
    assert (one.name, one.shape, one.nbytes, one.size) == ("u[5, 7]", (), 4, 1)
    assert u[...].is_whole
    assert u[..., 0].shape == (6,)
    assert u[:].name == "u"
    assert u[2:5][1][3:] == u[3, 3:]
    assert [view.name for view in u[:2, 0]] == ["u[0, 0]", "u[1, 0]"]
    assert len(u) == 6
    assert len(u[0]) == 8


def test_arrays_and_views_are_true_and_of_no_length_without_dimensions(u: DeviceArray) -> None:
    assert u
    assert u[0, 0]
    with pytest.raises(TypeError, match="has no dimensions"):
        len(u[0, 0])


def test_arrays_of_one_name_are_different_arrays() -> None:
    a, b = (DeviceArray("x", (2,), np.dtype("i4")) for _ in range(2))
    assert a != b
    assert a[:1] != b[:1]
    assert len({a, b}) == 2


def test_regions_join_dimensions_that_lie_side_by_side(u: DeviceArray) -> None:
    assert u.as_view().region == Region(0, 192, 192)
    assert u[2:4].region == Region(64, 128, 64)
    assert u[:, 2:4].region == Region(8, 176, 8, ((6, 32),))
    assert u[::2, ::4].region == Region(0, 148, 4, ((3, 64), (2, 16)))
    assert u[:, ::4].region == Region(0, 180, 4, ((12, 16),))
    assert str(u[:, 0].region) == "bytes 0..164 (6 every 32 of 4)"
    assert u[:, 0].region.nbytes == 24


def test_regions_that_interleave_do_not_overlap(u: DeviceArray) -> None:
    assert not u[:, ::2].region.overlaps(u[:, 1::2].region)
    assert u[:, ::2].region.overlaps(u[:, ::3].region)
    assert not u[:, :4].region.overlaps(u[:, 4:].region)
    assert u[1:5, :4].region.contains(u[2:4, 1:3].region) is False
    assert u[1:5].region.contains(u[2:4, 1:3].region)
    assert u[:, :4].region.contains(u[2:4, :4].region)


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (1, True),
        (1, 1.0),
        (1, np.int64(1)),
        (slice(0, 1), slice(False, True)),
        ((0, 1), (False, True)),
        ((1, 2), (1, 2, 1)),
        ((slice(0, 2), 1), ((0, 2, None), 1)),
        ((slice(0, 2), 1), slice(0, 2, 1)),
        (slice(0, 2), (0, 2, None)),
        (slice(0, 2), slice(0, 2, 1)),
        (slice(0, 2), slice(0, np.int64(2))),
        (1, (1,)),
        ((1, ...), (1, None)),
    ],
)
def test_a_view_that_was_selected_before_is_taken_for_the_same_key_only(first: Any, then: Any) -> None:
    def selected(key: Any, *earlier: Any) -> str:
        u = DeviceArray("u", (8, 8), np.dtype("f4"))
        for each in earlier:
            selected_before.append(u[each])
        try:
            return repr(u[key])
        except hg.DeclarationError as error:
            return str(error)

    selected_before: list[Any] = []
    assert selected(then, first) == selected(then)
    assert selected(first, first) == selected(first)


def test_a_view_selected_again_is_the_same_one_and_is_not_pickled() -> None:
    u = DeviceArray("u", (8, 8), np.dtype("f4"))
    assert u[1:3, 2] is u[1:3, 2]
    assert hg.reads(u[1]) is hg.reads(u[1])
    size = len(pickle.dumps(u))
    for i in range(8):
        assert hg.updates(u[i]).view is u[i]
    assert len(pickle.dumps(u)) == size
    again = pickle.loads(pickle.dumps(u[3]))
    assert (again.selection, again.shape, again.region) == (u[3].selection, u[3].shape, u[3].region)


def test_modes_of_access_are_said_in_words(u: DeviceArray) -> None:
    for access, read, write in ((hg.reads(u), True, False), (hg.writes(u[0]), False, True), (hg.updates(u), True, True)):
        assert (access.is_read, access.is_write) == (read, write)
    assert repr(hg.updates(u[0])) == "updates(u[0, 0:8])"
    assert hg.reads(u).as_view() == u.as_view()
    assert u[0].accessed("read") is not None
    assert Access(u[0], "read").bytes == u[0].region
    with pytest.raises(hg.DeclarationError, match=r"hg\.reads: an array is expected"):
        hg.reads(3)
    with pytest.raises(hg.DeclarationError, match="an array is expected"):
        as_view(np.zeros(3))


class _Interface:
    def __init__(self, interface: Any) -> None:
        self.__cuda_array_interface__ = interface


def test_external_arrays_take_memory_as_it_is() -> None:
    values = np.arange(6, dtype="i4").reshape(2, 3)
    shared: Any = values
    for obj in (values, memoryview(shared), bytearray(values.tobytes()), _DLPack(values)):
        array = ExternalArray.wrap("x", obj)
        assert array.on_host
        assert array.nbytes == 24
    assert ExternalArray.wrap("x", values).pointer == values.ctypes.data
    assert not ExternalArray.wrap("x", values.tobytes()).writeable
    device = ExternalArray.wrap(
        "d", _Interface({"version": 3, "typestr": "<f4", "shape": (4, 2), "strides": None, "data": (4096, True)})
    )
    assert (device.location, device.pointer, device.writeable, device.shape, device.on_host) == (
        "device",
        4096,
        False,
        (4, 2),
        False,
    )


class _DLPack:
    def __init__(self, values: Any) -> None:
        self._values = values

    def __dlpack__(self, **options: Any) -> Any:
        return self._values.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._values.__dlpack_device__()


def test_initial_values_are_copied_in_and_frozen() -> None:
    values = np.arange(3.0)
    x = hg.Graph("g").device_array("x", values)
    values[0] = 9
    assert isinstance(x.initial, np.ndarray)
    assert x.initial.tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="read-only"):
        x.initial[0] = 1


@pytest.mark.parametrize("dtype", ["i4", [("a", "i4"), ("b", "f4")]])
def test_a_default_is_the_value_that_was_given(dtype: Any) -> None:
    """What the caller does with the memory later changes nothing."""
    values = np.zeros(2, dtype)
    g = hg.Graph("defaults")
    parameters = [g.param("whole", dtype, values[0].reshape(()) if dtype == "i4" else values[0])]
    parameters.append(g.param("array", dtype, values[:1].reshape(())))
    values.view("i4")[:] = 7
    assert [np.asarray(p.default).tobytes() for p in parameters] == [bytes(values.itemsize)] * 2
