"""The sanitizer of the CPU runtime: what it finds, what it names, and what it leaves alone."""

from __future__ import annotations

import re

import numpy as np
import planted
import pytest

import hipgraphdsl as hg


def graph(fault: planted.Fault) -> hg.Graph:
    g = hg.Graph("faulty")
    a = g.device_array("a", np.arange(fault.n, dtype=np.int32))
    b = g.alloc("b", (fault.n,), "i4") if fault.fresh else g.device_array("b", np.arange(fault.n, dtype=np.int32))
    g.kernel(
        hg.Module(fault.source, name=f"{fault.name}.cu")["k"], fault.grid, fault.block, (a, b, fault.n),
        shared_bytes=fault.shared_bytes, name="culprit",
    )  # fmt: skip
    return g


@pytest.mark.parametrize("fault", planted.FAULTS, ids=lambda fault: fault.name)
def test_sanitize_finds_a_planted_fault(fault: planted.Fault) -> None:
    with graph(fault).compile("cpu", sanitize=True, check=False) as exe:
        for _ in range(2):  # the Executable stays usable
            with pytest.raises(hg.HipError) as caught:
                exe.run()
        assert exe.read("a").size == fault.n
    error = caught.value
    assert error.node == "culprit"
    kinds = "out of bounds|unwritten memory|race|divergent barrier|division by zero"
    found = re.match(rf"({kinds}) at (.*?): thread \((.*?)\) of block \((.*?)\) (.*), in kernel 'k'$", error.text, re.DOTALL)
    assert found is not None, error.text
    kind, place, thread, block, rest = found.groups()
    assert (kind, place) == (fault.kind, f"{fault.name}.cu:{fault.line}"), error.text
    assert (block, thread) == (", ".join(map(str, fault.block_at)), ", ".join(map(str, fault.thread))), error.text
    assert fault.said in rest
