"""The tutorial of HIP's documentation: three kernels on two arrays, declared once and built in both of HIP's ways.

The source is the page "HIP graphs" of AMD's HIP documentation. It writes the same program twice, recorded from a
stream and built node by node. Here it is declared once, and `backend="explicit"` or `backend="capture"` chooses the
way.

A host function fills an array with 2. It is copied to the device, kernel A doubles it, kernel B fills another array
with 3, kernel C adds the two, and the result is copied back: every element is 7.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

import hipgraphdsl as hg

SOURCE = r"""
extern "C" __global__ void kernelA(double* a, size_t n) {
    const size_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) a[i] *= 2.0;
}
extern "C" __global__ void kernelB(int* b, size_t n) {
    const size_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) b[i] = 3;
}
extern "C" __global__ void kernelC(double* a, const int* b, size_t n) {
    const size_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) a[i] += b[i];
}
"""
SIZE = 1 << 20
THREADS = 1024
INITIAL = 2.0
EXPECTED = 2.0 * INITIAL + 3.0


def set_vector(vector: np.ndarray, value: float) -> None:
    """Fill the host array; the graph calls this between two nodes of the device."""
    vector[:] = value


def build(size: int = SIZE) -> hg.Graph:
    """Declare the tutorial's workflow; the order of its nodes follows from what they read and write."""
    module = hg.Module(SOURCE)
    blocks = -(-size // THREADS)

    g = hg.Graph("tutorial")
    host = g.host_array("host", shape=size, dtype="float64")
    a = g.alloc("a", shape=size, dtype="float64")
    b = g.alloc("b", shape=size, dtype="int32")
    g.host(set_vector, args=(host, INITIAL), writes=[host])
    g.memcpy(a, host, name="copy_in")
    g.kernel(module["kernelA"], grid=blocks, block=THREADS, args=(a, size))
    # An `int*` may be read and written. Kernel B only writes it, which a signature cannot say.
    g.kernel(module["kernelB"], grid=blocks, block=THREADS, args=(hg.writes(b), size))
    g.kernel(module["kernelC"], grid=blocks, block=THREADS, args=(a, b, size))
    g.memcpy(host, a, name="copy_out")
    g.free(a)
    g.free(b)
    return g


def build_as_written(size: int = SIZE) -> hg.Graph:
    """Declare the same nodes with the edges that the document's explicit program really passes.

    Its calls for the copy in and for kernel C name two dependencies each, but give their number as 1, so the second of
    each is not used: the copy does not wait for the host function, nor kernel C for kernel B.
    """
    module = hg.Module(SOURCE)
    blocks = -(-size // THREADS)

    g = hg.Graph("tutorial as written", infer=False)
    host = g.host_array("host", shape=size, dtype="float64")
    a = g.alloc("a", shape=size, dtype="float64")
    b = g.alloc("b", shape=size, dtype="int32")
    g.host(set_vector, args=(host, INITIAL), writes=[host])
    g.memcpy(a, host, name="copy_in", after=["alloc_a"])  # and not "set_vector"
    g.kernel(module["kernelA"], grid=blocks, block=THREADS, args=(a, size), after=["copy_in"])
    g.kernel(module["kernelB"], grid=blocks, block=THREADS, args=(hg.writes(b), size), after=["alloc_b"])
    g.kernel(module["kernelC"], grid=blocks, block=THREADS, args=(a, b, size), after=["kernelA"])  # and not "kernelB"
    g.memcpy(host, a, name="copy_out", after=["kernelC"])
    g.free(a, after=["copy_out"])
    g.free(b, after=["kernelC"])
    return g


def main(argv: list[str] | None = None) -> int:
    """Run the workflow in both ways, and look for the mistake in the document's edges."""
    parser = argparse.ArgumentParser(description="HIP's graph tutorial, by explicit construction and by capture.")
    parser.add_argument("--runtime", default="auto", help="auto, amd, nvidia or cpu (default: %(default)s)")
    parser.add_argument("--size", type=int, default=SIZE, help="elements of each array (default: %(default)s)")
    parser.add_argument("--picture", metavar="FILE", help="also draw the workflow: .svg, .png, .html, .dot or .mmd")
    options = parser.parse_args(argv)

    g = build(options.size)
    right = True
    for backend in ("explicit", "capture"):
        with g.compile(runtime=options.runtime, backend=backend) as exe:
            exe.run()
            result = exe.read("host")
        wrong = np.count_nonzero(result != EXPECTED)
        right &= wrong == 0
        verdict = f"every element is {EXPECTED:g}" if wrong == 0 else f"{wrong} elements are not {EXPECTED:g}"
        print(f"{backend:<8} {len(result)} elements: {verdict}")

    print("\nThe document's explicit program passes 1 as the number of dependencies where it lists 2. check() says:")
    report = build_as_written(options.size).check()
    for diagnostic in report.errors:
        print(f"  {diagnostic}")
    races = {frozenset(d.nodes) for d in report.errors}
    right &= {frozenset(("set_vector", "copy_in")), frozenset(("kernelB", "kernelC"))} <= races

    if options.picture:
        g.export(options.picture)
        print(f"\nThe workflow is drawn in {options.picture}")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
