"""Random lives of several Executables that share memory: each launch does to memory what its interpreter does to NumPy arrays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from places import HERE
from property.lives import play
from property.programs import MODULE
from property.stories import Story, stories
from specimens import compile_whole

import hipgraphdsl as hg
from hipgraphdsl.parts.cpu.runtime import CpuRuntime
from hipgraphdsl.runtimes.recorder import RecorderRuntime

BACKENDS = ("explicit", "capture", "streams", "serial")
# What hypothesis would explain of a failure, it finds by tracing every line.
PHASES = (Phase.explicit, Phase.generate, Phase.shrink)


@pytest.fixture(scope="module", autouse=True)
def _prepared() -> Iterator[None]:
    """Let the CPU be two devices, for stories that place arrays."""
    compile_whole(MODULE)
    if "cpu" not in HERE:
        yield
        return
    runtime = hg.open_runtime("cpu")
    assert isinstance(runtime, CpuRuntime)
    before = runtime.get_device_count()
    runtime.set_device_count(2)
    yield
    runtime.set_device_count(before)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("runtime", HERE)
@settings(max_examples=480, phases=PHASES)
@given(story=stories(5, 8))
def test_any_story_of_executables_does_what_numpy_does(runtime: str, backend: Any, story: Story) -> None:
    play(story, hg.open_runtime(runtime), backend)


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=30, phases=PHASES)
@given(story=stories(5, 8))
def test_any_story_returns_all_handles(backend: Any, story: Story) -> None:
    recorder = RecorderRuntime()
    play(story, recorder, backend)
    assert recorder.live == {}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("runtime", HERE)
@settings(max_examples=200, phases=PHASES)
@given(story=stories(8, 20))
def test_any_long_story_of_executables_does_what_numpy_does(runtime: str, backend: Any, story: Story) -> None:
    play(story, hg.open_runtime(runtime), backend)
