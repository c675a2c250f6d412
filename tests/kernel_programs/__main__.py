"""Compare many generated kernels with the model on the CPU: ``python -m kernel_programs --count 20000``.

Kernels that differ are shrunk and printed, each with the command that makes it again; then the exit status is 1.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from hipgraphdsl.compiler import find_compiler
from hipgraphdsl.errors import DeclarationError

from .running import Way, compile_together, computed, describe, differing, make_kernels, reports, shrink
from .tree import Kernel

WAYS = (
    Way("fast", 64), Way("fast", 32, ("-O1",)), Way("base", 64, ("-O1",)), Way("fast", 64, ("-O1",)),
    Way("fast", 32, ("-O2",)), Way("base", 32, ("-O0",)),
)  # fmt: skip
"""How modules are compiled, one after the other; ``--all-ways`` compiles each in all of them."""
SANITIZED_WAYS = (Way("sanitize", 64), Way("sanitize", 32))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m kernel_programs", description=__doc__)
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first kernel (0)")
    parser.add_argument("--count", type=int, default=20_000, metavar="N", help="how many kernels (20000)")
    parser.add_argument("--together", type=int, default=50, metavar="N", help="kernels in one module (50)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="modules at a time")
    parser.add_argument("--all-ways", action="store_true", help="each kernel in both modes and with both warp sizes")
    parser.add_argument("--sanitize", action="store_true", help="run them under the sanitizer, which must report nothing")
    parser.add_argument("--gpu", action="store_true", help="kernels that NVIDIA's compiler takes too")
    parser.add_argument("--seconds", type=float, default=float("inf"), metavar="S", help="begin no module after this time")
    parser.add_argument("--source", action="store_true", help="print the kernels' source and end")
    args = parser.parse_args()
    seeds = range(args.first, args.first + args.count)
    if args.source:
        for seed in seeds:
            print(describe(make_kernels([seed], gpu=args.gpu)[0], 64))
        return 0
    print(f"compiler: {find_compiler().version}", flush=True)
    started, ran, found = time.monotonic(), 0, 0
    modules = [seeds[n : n + args.together] for n in range(0, len(seeds), args.together)]

    def check(number: int) -> tuple[int, list[tuple[Kernel, Way]]]:
        if time.monotonic() - started > args.seconds:
            return 0, []
        among = SANITIZED_WAYS if args.sanitize else WAYS
        ways = among if args.all_ways else (among[number % len(among)],)
        kernels = make_kernels(modules[number], gpu=args.gpu)
        try:
            return len(kernels), [(k, way) for way in ways for k in differing(kernels, way)]
        except DeclarationError as error:
            print(f"kernels {modules[number]} do not compile:\n{error}", flush=True)
            refused = "does not know which lanes" in str(error)  # by line, as a user's kernel would be
            return 0, [] if refused else [(k, ways[0]) for k in kernels[:1]]

    with ThreadPoolExecutor(args.jobs) as pool:
        for number, (count, different) in enumerate(pool.map(check, range(len(modules)))):
            ran += count
            for kernel, way in different:
                found += 1
                if count:
                    report(kernel, way)
            if number % 10 == 9:
                print(f"{ran} kernels, {found} differ, {time.monotonic() - started:.0f} s", flush=True)
    print(f"{ran} kernels, {found} differ, {time.monotonic() - started:.0f} s")
    return int(found > 0)


def report(kernel: Kernel, way: Way) -> None:
    """Shrink a kernel that differs, and print it."""
    print(f"{kernel.name} differs with {way}; shrinking it", flush=True)

    def differs(kernels: Sequence[Kernel]) -> list[Kernel]:
        return differing(kernels, way)

    small = shrink(kernel, differs)
    if way.mode == "sanitize":
        print(describe(small, way.warp_size), f"// {reports([small], way)}", sep="\n", flush=True)
        return
    try:
        got = computed(small, compile_together([small], way))
    except AssertionError:  # a fault ended the launch
        got = None
    print(describe(small, way.warp_size, got), flush=True)


if __name__ == "__main__":
    sys.exit(main())
