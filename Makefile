# Everything happens in .venv, which is made on first use and again when pyproject.toml changes; no root is needed.
#
#   make demo       run examples 01 and 04 on the CPU and write the pictures to build/demo
#   make test       all tests except the slow ones; tests that need a GPU skip where there is none
#   make test-slow  the slow tests, and those of the CPU runtime's kernels and conformance again with clang (ziglang)
#   make test-parts the README's program on copies of the package without each of its parts, the core's tests on the recorder alone
#   make test-gpu   all tests on this machine's GPU, with PYTHON as it is: no .venv, no network (tests/README.md)
#   make test-amd   all tests of runtime "amd" on AMD's own HIP library without a GPU, with hip-python 7.2 and 10.0 (root on Debian)
#   make lint       ruff and mypy
#   make bench      all benchmarks that this machine can run
#   make docs       run the code of README.md and docs/, build the site build/site from them, and check its links
#   make site       the same without running the code, as `make test` does
#   make clean      remove what the above made
#
# make PYTHON=python3.12 ... chooses the interpreter.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO := build/demo
SITE := build/site
EXTRAS := dev,viz,yaml

# The stamp's name holds what the environment depends on, so a changed pyproject.toml or a moved checkout makes it anew.
READY := $(VENV)/.ready-$(shell { echo "$(CURDIR) $(PYTHON) $(EXTRAS)"; cat pyproject.toml; } | cksum | tr ' ' '-')

# Tests start hundreds of interpreters; without bytecode each would compile the package, and each worker all tests, anew.
unexport PYTHONDONTWRITEBYTECODE

PYTEST := $(BIN)/python -m pytest
# Two workers: the slowest tests wait for compilers and for each other, and more would not fit a small machine. Stealing leaves
# a file to one worker, so its fixtures are made once and no worker waits for what the other compiles.
WORKERS ?= 2

# The tests of `make test`; .ci/run leaves those out of which `make test-slow` then runs all examples.
QUICK := not slow and not parts

# What runs with clang too, without what compiles nothing or with another compiler than the chosen one, and without what a slow
# test does again with the same kernels.
BY_CLANG := -k "not gcc and not ziglang" tests/conformance/test_conformance.py $(wildcard tests/device/test_cpu_*.py) tests/property/test_cpu_kernels.py tests/device/test_kernel_programs.py \
	--deselect tests/device/test_kernel_programs.py::test_generated_kernels_compute_what_they_mean \
	$(addprefix --deselect tests/conformance/test_conformance.py::test_,every_call_that_fails_leaves_nothing_behind \
	closing_returns_everything the_recorded_graph_has_the_nodes_and_edges_of_the_plan)

# Of the GPU suite, whose processes share the GPU.
GPU_WORKERS ?= 12
# Plugins that happen to be installed stay out: pytest-benchmark, say, refuses workers. A worker that crashes is one failed test.
GPU_PYTEST = PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 $(PYTHON) -m pytest -p xdist.plugin -p pytest_timeout -p _hypothesis_pytestplugin \
	-q -m gpu -n $(GPU_WORKERS) --dist worksteal --max-worker-restart 100 --timeout 200 -o faulthandler_timeout=100 --durations 10
# What runs again while another process keeps the GPU busy.
UNDER_LOAD := $(addprefix tests/conformance/test_,conformance.py disabled_ends.py shared_events.py threads.py) tests/device/test_interop.py

.PHONY: demo test test-slow test-parts test-gpu test-amd lint bench docs site clean setup setup-docs
.DEFAULT_GOAL := test

setup: $(READY)
setup-docs: $(READY)-docs

$(READY):
	@command -v $(PYTHON) >/dev/null || { echo "make: $(PYTHON) is not there; install Python >= 3.10 (Debian: apt install python3 python3-venv) or name one: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 10) or sys.exit(f"make: hipgraphdsl needs Python >= 3.10, and $(PYTHON) is {v[0]}.{v[1]}; name a newer one: make PYTHON=python3.12")'
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "make: $(PYTHON) cannot make virtual environments, because venv or ensurepip is absent; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@echo "Making $(VENV) and installing into it (once; about a minute)"
	@rm -f $(VENV)/.ready-*
	@$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -e ".[$(EXTRAS)]"
	@# pip would compile on one core, and the packages' own tests too. What does not compile is for another version of Python.
	@$(BIN)/python -m compileall -q -j 0 -x '/tests/' $(VENV)/lib || true
	@touch $@

demo: $(READY)
	@mkdir -p $(DEMO)
	$(BIN)/python examples/01_hip_graph_tutorial.py --runtime cpu --picture $(DEMO)/tutorial.svg
	$(BIN)/python examples/04_wave2d.py --runtime cpu --picture $(DEMO)/wave2d.png
	@echo; echo "Pictures: $(DEMO)/tutorial.svg (the workflow) and $(DEMO)/wave2d.png (the wave)"

test: $(READY)
	$(PYTEST) -q -n $(WORKERS) --dist worksteal -m "$(QUICK)" --part 0.2

# The tests of the site are those of `make site`, which builds it.
test-slow: $(READY)
	@failed=0; \
	$(PYTEST) -q -n $(WORKERS) --dist worksteal -m "slow or property" --timeout 1200 --ignore tests/test_site.py || failed=1; \
	echo "Again, with clang:"; \
	zig=$$($(BIN)/python -c 'import ziglang; print(*ziglang.__path__)')/zig; \
	HIPGRAPHDSL_CXX="$$zig c++" $(PYTEST) -q -n $(WORKERS) --dist worksteal --timeout 1200 $(BY_CLANG) || failed=1; \
	exit $$failed

test-parts: $(READY)
	$(PYTEST) -q -n $(WORKERS) --dist load -m parts tests/test_parts.py

test-gpu:
	@$(PYTHON) tests/needed.py
	@failed=0; \
	$(GPU_PYTEST) --examples 200 --ignore tests/unit --ignore tests/error_checks || failed=1; \
	echo "Again, while another process keeps the GPU busy:"; \
	$(GPU_PYTEST) --load $(UNDER_LOAD) || failed=1; \
	exit $$failed

# AMD's unmodified libamdhip64 runs over a stand-in device; tests/amd_on_cpu/README.md says what is real there and what is not.
test-amd:
	WORKERS=$(WORKERS) tests/amd_on_cpu/prove $(PYTHON)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY)
	$(BIN)/hipgraphdsl bench

docs: $(READY)
	$(PYTEST) -q tests/test_docs.py
	@$(MAKE) --no-print-directory site

# A warning of Sphinx is an error here: most are links that lead nowhere.
site: $(READY)-docs
	@rm -rf $(SITE) build/doctrees
	$(BIN)/python -m sphinx -q -W --keep-going -b html -d build/doctrees docs $(SITE)
	HIPGRAPHDSL_SITE=$(SITE) $(PYTEST) -q tests/test_site.py
	@echo; echo "The site: $(SITE)/index.html"

$(READY)-docs: $(READY)
	@echo "Installing what builds the site into $(VENV) (once)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[docs]"
	@touch $@

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
