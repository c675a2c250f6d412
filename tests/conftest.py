"""What all tests share."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

from hipgraphdsl import RuntimeUnavailable
from hipgraphdsl.runtimes import open_runtime

# A shared machine may stall for seconds, so no example has a deadline; with a fixed seed a failure is everyone's.
settings.register_profile("ci", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.register_profile("explore", deadline=None, max_examples=1000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep a user's own choice of runtime out of the tests."""
    monkeypatch.delenv("HIPGRAPHDSL_RUNTIME", raising=False)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--runtime", metavar="NAME", help="only the tests that are parametrised by this runtime, which must be there"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
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
