"""The package's own names where a part is not there: tools look at them, and their use says which part is missing."""

from __future__ import annotations

import copy
import inspect
import pydoc
import sys
import types
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

import hipgraphdsl as hg

NAMES = {
    "family": ("Family",),
    "ranks": ("Link", "RankExecutable", "Ranks", "ranks"),
    "timeline": ("Timeline",),
    "verify": ("verify",),
}


@pytest.fixture(params=NAMES)
def absent(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Take a part away, and what the package remembers of it; return its name."""
    part: str = request.param
    monkeypatch.setitem(sys.modules, f"hipgraphdsl.parts.{part}", None)
    for names in NAMES.values():
        for name in names:
            monkeypatch.delitem(vars(hg), name, raising=False)
    yield part
    for names in NAMES.values():
        for name in names:
            vars(hg).pop(name, None)


def test_part_missing_table_has_all_names_of_parts() -> None:
    later = {name: place.split(".")[1] for name, place in hg._LATER.items() if place.startswith("parts.")}
    assert later == {name: part for part, names in NAMES.items() for name in names}


def test_part_missing_is_no_fault_of_tools_that_look_at_the_package(absent: str) -> None:
    found = dict(inspect.getmembers(hg))
    scope: dict[str, Any] = {}
    exec("from hipgraphdsl import *", scope)
    assert set(hg.__all__) <= found.keys() & scope.keys()
    said = pydoc.render_doc(hg)
    for name in NAMES[absent]:
        assert hasattr(hg, name)
        assert f"part {absent!r}" in repr(scope[name])
        assert f"part {absent!r}" in said
        assert repr(copy.deepcopy(scope[name])) == repr(scope[name])
        assert not isinstance(3, scope[name])


def test_part_missing_is_raised_by_each_use(absent: str) -> None:
    for name in NAMES[absent]:
        value = getattr(hg, name)
        for use in (value, partial(getattr, value, "anything"), partial(types.new_class, "Mine", (value,))):
            with pytest.raises(hg.PartMissing, match=f"needs the part '{absent}'") as caught:
                use()
            assert caught.value.part == absent


@pytest.mark.needs("ranks", "timeline", "verify")
def test_part_missing_is_not_remembered(absent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    values = [getattr(hg, name) for name in NAMES[absent]]
    monkeypatch.undo()
    assert all(getattr(hg, name) is not value for name, value in zip(NAMES[absent], values))
    assert hg.verify is hg.verify
