"""What all tests share."""

from __future__ import annotations

import os
from contextlib import suppress
from importlib import import_module

import pytest
from hypothesis import HealthCheck, settings

from hipgraphdsl import RuntimeUnavailable
from hipgraphdsl.runtimes import open_runtime

# A shared machine may stall for seconds, so no example has a deadline; with a fixed seed a failure is everyone's.
settings.register_profile("ci", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.register_profile("explore", deadline=None, max_examples=1000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


ON_GPUS = ("amd", "nvidia")


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep a user's own choice of runtime out of the tests."""
    monkeypatch.delenv("HIPGRAPHDSL_RUNTIME", raising=False)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--runtime", metavar="NAME", help="only the tests that are parametrised by this runtime, which must be there"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Load torch, where it is installed, before any runtime for NVIDIA: afterwards its import may fail."""
    marks = str(config.option.markexpr)
    if config.getoption("--runtime") == "nvidia" or ("gpu" in marks and "not gpu" not in marks):
        with suppress(ImportError):
            import_module("torch")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if _is_for_a_gpu(item):
            item.add_marker("gpu")
    _select_runtime(config, items)


def _is_for_a_gpu(item: pytest.Item) -> bool:
    """Return whether a test runs on a device: it has a runtime for GPUs as parameter, or as the fixture of its file."""
    if item.path.parent.name in ("unit", "error_checks") or item.path.name == "test_layers.py":
        return False
    given = getattr(item, "callspec", None)
    if given is not None and any(isinstance(value, str) and value in ON_GPUS for value in given.params.values()):
        return True
    return item.path.name.startswith("test_amd") and "runtime" in getattr(item, "fixturenames", ())


def _select_runtime(config: pytest.Config, items: list[pytest.Item]) -> None:
    chosen = config.getoption("--runtime")
    if not chosen:
        return
    try:
        open_runtime(chosen)
    except RuntimeUnavailable as error:
        raise pytest.UsageError(str(error)) from error
    kept, left = [], []
    for item in items:
        params = getattr(item, "callspec", None)
        mine = params is not None and any(isinstance(value, str) and value == chosen for value in params.params.values())
        (kept if mine else left).append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=left)
