"""Regions and views are exact: compared with sets of bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hipgraphdsl.arrays import ArrayView, DeviceArray, Region


def bytes_of(region: Region) -> set[int]:
    found = {region.start}
    for count, stride in region.dims:
        found = {at + i * stride for at in found for i in range(count)}
    return {at + b for at in found for b in range(region.run)}


@st.composite
def views(draw: Any) -> ArrayView:
    """A view of an array of up to three dimensions, sliced up to twice."""
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=0, max_size=3)))
    array = DeviceArray("x", shape, np.dtype(draw(st.sampled_from(["u1", "i2", "f4"]))))
    view = array.as_view()
    for _ in range(draw(st.integers(0, 2))):
        key: list[Any] = []
        for extent in view.shape:
            if draw(st.booleans()) and draw(st.booleans()):
                key.append(draw(st.integers(-extent, extent - 1)))
            else:
                start = draw(st.integers(0, extent - 1))
                key.append(slice(start, draw(st.integers(start + 1, extent)), draw(st.integers(1, 4))))
        view = view[tuple(key)]
    return view


@st.composite
def regions(draw: Any) -> Region:
    """A region as slices and shifts make them, not always inside one array."""
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=0, max_size=3)))
    itemsize = draw(st.integers(1, 4))
    strides: list[int] = []
    least = itemsize
    for extent in reversed(shape):
        stride = draw(st.integers(least, least + 6))
        strides.insert(0, stride)
        least = stride * extent
    return Region.strided(draw(st.integers(0, 40)), shape, tuple(strides), itemsize)


@given(views())
def test_a_view_selects_what_numpy_selects(view: ArrayView) -> None:
    shape, itemsize = view.root.shape, view.dtype.itemsize
    addresses = np.arange(int(np.prod(shape)) * itemsize).reshape(*shape, itemsize)[view.selection]
    assert addresses.shape[:-1] == view.shape
    assert bytes_of(view.region) == {int(b) for b in addresses.flat}
    assert view.region.nbytes == view.nbytes == len(bytes_of(view.region))
    assert view.offset_bytes == int(addresses.flat[0])
    assert view.contiguous == (view.region.stop - view.region.start == view.nbytes)


@given(views())
def test_the_name_of_a_view_selects_it_again(view: ArrayView) -> None:
    x = view.root
    again = eval(view.name, {"x": x})
    assert again.as_view().region == view.region
    assert again.shape == view.shape or view.is_whole


@settings(max_examples=400)
@given(regions(), regions())
def test_overlaps_is_exact(a: Region, b: Region) -> None:
    assert a.overlaps(b) == bool(bytes_of(a) & bytes_of(b))
    assert b.overlaps(a) == a.overlaps(b)


def test_overlaps_of_more_bytes_than_numpy_addresses_is_assumed() -> None:
    a, b = (Region.strided(start, (2**61, 1), (stride, 8), 8) for start, stride in ((0, 16), (8, 24)))
    assert a.overlaps(b)


@settings(max_examples=400)
@given(regions(), regions())
def test_contains_never_says_yes_wrongly_and_knows_contiguous_regions(a: Region, b: Region) -> None:
    really = bytes_of(b) <= bytes_of(a)
    assert not a.contains(b) or really
    if not a.dims:
        assert a.contains(b) == really


@given(regions(), st.integers(0, 100))
def test_shifting_moves_every_byte(region: Region, offset: int) -> None:
    assert bytes_of(region.shifted(offset)) == {b + offset for b in bytes_of(region)}


@given(views(), views())
def test_views_are_equal_when_they_select_alike(a: ArrayView, b: ArrayView) -> None:
    twin = ArrayView(a.root, a.selection)
    assert twin == a
    assert hash(twin) == hash(a)
    assert (a == b) == (a.root is b.root and a.selection == b.selection)
