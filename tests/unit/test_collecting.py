"""The collector of cycles is paused while plans and reports are made, and goes on afterwards whatever happens."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator

import pytest

from hipgraphdsl.collecting import collector_paused


@pytest.fixture(autouse=True)
def _enabled() -> Iterator[None]:
    was = gc.isenabled()
    gc.enable()
    yield
    (gc.enable if was else gc.disable)()


def test_last_of_nested_blocks_lets_it_go_on() -> None:
    with collector_paused():
        with collector_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_it_goes_on_after_an_error() -> None:
    @collector_paused()
    def fails() -> None:
        assert not gc.isenabled()
        raise ValueError

    for _ in range(2):
        with pytest.raises(ValueError):
            fails()
        assert gc.isenabled()


def test_collector_that_the_user_has_disabled_stays_so() -> None:
    gc.disable()
    with collector_paused():
        pass
    assert not gc.isenabled()


def test_last_of_several_threads_lets_it_go_on() -> None:
    inside, leave = threading.Event(), threading.Event()

    def other() -> None:
        with collector_paused():
            inside.set()
            leave.wait()

    thread = threading.Thread(target=other)
    with collector_paused():
        thread.start()
        inside.wait()
    assert not gc.isenabled()
    leave.set()
    thread.join()
    assert gc.isenabled()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")  # nothing but the flag is asked there
def test_it_goes_on_in_a_forked_process() -> None:
    with collector_paused():
        child = os.fork()
        if not child:
            os._exit(not gc.isenabled())
        _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
