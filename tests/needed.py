"""Say which packages the GPU suite needs and this interpreter lacks: the wheels to carry to a machine without network.

Exit status 1 if tests cannot run without one of them.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

NEEDED = (
    "networkx", "numpy", "platformdirs", "pydantic", "pyelftools", "rich",
    "hypothesis", "ml_dtypes", "pytest", "pytest-timeout", "pytest-xdist",
)  # fmt: skip
"""Distributions."""
THEIRS = {"pydantic": ("pydantic-core", "annotated-types", "typing-extensions", "typing-inspection")}
"""What a missing one needs itself; pip answers for those that are there."""
BY_GPU = {"cuda.bindings": "runtime 'nvidia'", "hip": "runtime 'amd' (hip-python)"}
"""Modules, and what lacks without them; one of them is needed."""
OPTIONAL = ("torch", "jax", "cupy", "matplotlib", "pygraphviz", "jsonschema", "yaml")
"""Modules that some tests use, which skip without."""


def main() -> int:
    specs = dict(re.findall(r'"([A-Za-z0-9_-]+)(>=[\d.]+)', Path(__file__).parents[1].joinpath("pyproject.toml").read_text()))
    missing = [name for name in NEEDED if not fits(name, specs.get(name, ""))]
    wheels = dict.fromkeys(name + specs.get(name, "") for name in missing)
    wheels.update(dict.fromkeys(name for known in missing for name in THEIRS.get(known, ()) if not fits(name, "")))
    skipping = [name for name in OPTIONAL if not there(name)]
    bindings = [name for name in BY_GPU if there(name)]
    print(f"{sys.executable}: Python {sys.version.split()[0]}")
    if missing:
        print(f"It lacks {', '.join(missing)}. Wheels to carry, unpacked on PYTHONPATH: {' '.join(wheels)}")
    if not bindings:
        print("It has no binding of a GPU: cuda-bindings for NVIDIA, hip-python for AMD. All tests of GPUs skip")
    if skipping:
        print(f"It lacks {', '.join(skipping)}, without which some tests skip")
    return int(bool(missing))


def there(module: str) -> bool:
    """Return whether a module can be imported."""
    try:
        return find_spec(module) is not None
    except ImportError:  # of the package that it is in
        return False


def fits(name: str, spec: str) -> bool:
    """Return whether a distribution is installed in a version that a specification such as ``>=2.7`` allows."""
    try:
        found = version(name)
    except PackageNotFoundError:
        return False
    return not spec or numbers(found) >= numbers(spec)


def numbers(text: str) -> list[int]:
    """Return the leading numbers of a version."""
    return [int(number) for number in re.findall(r"\d+", text)[:3]]


if __name__ == "__main__":
    sys.exit(main())
