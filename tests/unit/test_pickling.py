"""What passes between processes by pickle: before and after each public call, because calls cache what they have read."""

from __future__ import annotations

import copy
import multiprocessing
import operator
import pickle
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from places import runtime_or_skip
from specimens import batched, inner, module, report

import hipgraphdsl as hg
from hipgraphdsl.export import FORMATS, render
from hipgraphdsl.parts.imports.foreign import ForeignModule

Call = Callable[[hg.Graph], Any]


def graph() -> hg.Graph:
    """Return launches that batches and chains merge, variables, a template, a host function, and two levels."""
    g = batched(count=4)
    kernels = module()
    f, i = g.device_array("f", shape=16, dtype="f4"), g.device_array("i", np.ones(4, "i4"))
    g.memcpy(kernels.symbol("table"), f)
    g.kernel(kernels["scale"], 1, 16, (f, g.param("a", "f4", 2.0), 16))
    g.kernel(kernels["fill<int>"], 1, 4, (i, 3))
    g.host(report, (g.arrays["h"],), reads=[g.arrays["h"]])
    g.conditional("if", i[:1], [inner()], bind={"x": f})
    g.child(inner(), bind={"x": f})
    return g


def _compiled(g: hg.Graph, **options: Any) -> Any:
    with g.compile("recorder", **options) as exe:
        exe.run()
        return exe.plan, exe.workflow, exe.stats


def _proven(g: hg.Graph) -> Any:
    runtime_or_skip("cpu")
    return hg.verify(g, "cpu", orders=1, repeats=1)


def _exported(extension: str, g: hg.Graph) -> Any:
    try:
        return render(g.workflow(), extension)
    except hg.DeclarationError as error:
        if "not installed" in str(error) or "Graphviz" in str(error):
            pytest.skip(str(error))
        raise


TARGETS = ("cpu", "amd:gfx942@7.2", "nvidia:sm_90")
CALLS: dict[str, Call] = {
    "nothing": lambda g: None,
    "check": lambda g: g.check(),
    **{f"check {target}": operator.methodcaller("check", target) for target in TARGETS},
    **{f"plan {target}": operator.methodcaller("plan", target=target) for target in TARGETS},
    "plan batch": lambda g: g.plan(batch=True),
    "simulate": lambda g: g.simulate(lambda node: 1.0),
    "simulate batch": lambda g: g.simulate(lambda node: 1.0, batch=True),
    "compile": _compiled,
    "compile batch": lambda g: _compiled(g, batch=True),
    "verify": _proven,
    "dag": lambda g: g.dag,
    "print": str,
    "notebook": lambda g: g._repr_mimebundle_(),
    "json": lambda g: g.to_json(),
    **{f"export {extension}": partial(_exported, extension) for extension in FORMATS},
}


@pytest.mark.needs("cpu", "formats", "merge", "pages", "program", "timeline")
@pytest.mark.parametrize("call", CALLS)
def test_everything_pickles_after_every_call(call: str) -> None:
    g = graph()
    result = CALLS[call](g)
    kernels = [node.kernel for node in g if isinstance(node, hg.KernelNode)]
    things = (g, g.workflow(), g.plan(), g.plan(target="nvidia:sm_90", batch=True), kernels[0].module, kernels, g.nodes, result)
    for thing in things:
        pickle.loads(pickle.dumps(thing))
        copy.deepcopy(thing)
    graph_again, workflow, plan, batches, module_again, kernels_again, nodes, _ = pickle.loads(pickle.dumps(things))
    assert graph_again.to_json() == workflow.model_dump_json() == g.to_json()
    assert graph_again.check().to_json() == g.check().to_json()
    assert str(plan) == str(g.plan())
    assert str(batches) == str(things[3])
    assert module_again == kernels[0].module
    assert kernels_again == kernels
    assert [node.name for node in nodes] == [node.name for node in g.nodes]


@pytest.mark.needs("cpu")
def test_a_module_pickles_as_what_it_was_made_from(tmp_path: Path) -> None:
    """So calls change neither the size nor the hash of what is sent."""
    g = graph()
    (module, *_) = (node.kernel.module for node in g if isinstance(node, hg.KernelNode) and node.name == "scale")
    before = pickle.dumps(module)
    g.check("nvidia:sm_90")
    g.plan(batch=True)
    assert pickle.dumps(module) == before
    again = pickle.loads(before)
    assert (again.digest, again.name, again.options, dict(again.structs)) == (
        module.digest, module.name, module.options, dict(module.structs)
    )  # fmt: skip
    assert len(before) < 2 * len(module.source)


def test_variables_stay_those_of_their_module() -> None:
    kernels = hg.Module(
        """
        struct Unknown; __constant__ float table[4]; __device__ Odd odd;
        extern "C" __global__ void k(float* x) { static int calls; x[0] = table[0] + sizeof(odd); }
        """
    )
    kernel, symbol = pickle.loads(pickle.dumps((kernels["k"], kernels.symbol("table"))))
    assert symbol is kernel.module.symbol("table")
    assert kernel is kernel.module["k"]
    found = {variable.name: variable for variable, _ in kernel.symbols}
    assert found.keys() == {"table", "odd", "static calls of k"}
    assert found["table"] is symbol
    back = pickle.loads(pickle.dumps(list(found.values())))
    assert [variable.name for variable in back] == list(found)
    assert [variable.hidden for variable in back] == [variable.hidden for variable in found.values()]


def double(x: Any) -> None:
    """Do what a kernel does, as its reference."""
    x *= 2


def test_kernels_keep_their_reference_and_code_objects_their_image(tmp_path: Path) -> None:
    path = tmp_path / "k.hsaco"
    path.write_bytes(b"code")
    code = hg.Module.from_file(path, {"k": "float*, Params"}, structs={"Params": np.dtype([("a", "f4")])})
    kernel, foreign = pickle.loads(pickle.dumps((code["k"].with_reference(double), code["other"])))
    path.unlink()
    assert kernel.reference is double
    assert (kernel.module, kernel.module.image) == (code, b"code")
    assert str(kernel.signature) == str(code["k"].signature)
    assert (foreign.name, foreign.signature) == ("other", None)


def test_modules_and_kernels_are_not_copied() -> None:
    kernel = module()["add"]
    for copied in (copy.copy, copy.deepcopy):
        assert copied(kernel) is kernel
        assert copied(kernel.module) is kernel.module


def test_a_kernel_that_was_read_from_a_graph_says_why_it_cannot_be_pickled() -> None:
    foreign = ForeignModule("k", 1234, hg.open_runtime("recorder"), (8,))["k"]
    with pytest.raises(TypeError, match=r"kernel 'k' was read from a graph: .* cannot be pickled; declare it anew"):
        pickle.dumps(foreign)


@pytest.mark.needs("cpu")
def test_a_checked_graph_goes_to_a_spawned_process() -> None:
    g = graph()
    g.check("nvidia:sm_90")
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert pool.submit(operator.methodcaller("to_json"), g).result() == g.to_json()
        plan = pool.submit(operator.methodcaller("plan", batch=True), g).result()
    assert str(plan) == str(g.plan(batch=True))
