"""Random kernels do the same whether they are split at their barriers and through blocks, or each thread runs by itself."""

from __future__ import annotations

import random

import numpy as np
import pytest
from device.test_cpu_kernels import Library, compiler_of
from hypothesis import given, settings
from hypothesis import strategies as st

from hipgraphdsl.parts.cpu.rtc import compile_kernels

TOGETHER = 12  # kernels of one source, because starting the compiler costs most
STARTS = ("int g = blockIdx.x * blockDim.x + threadIdx.x;", "unsigned g = threadIdx.x + blockIdx.x * blockDim.x;")
CLAMPED = ("min((int)g, n)", "max((int)g - 2, m)", "max(min((int)g - 2, n + 20), 0)", "min((unsigned)g - 3u, 10u)", "(int)g + m")
CHANGES = ("{v} = {e};", "{v} += {e} & 7;", "({v}) ^= {e};", "({v})++;", "--{v};", "{v} >>= 1;", "*(&{v}) = {e};",
           "{{ auto& r = {v}; r += {e} & 3; }}", "{{ auto f = [&](int w) {{ {v} += w; }}; f({e} & 3); }}",
           "switch ({e} & 3) {{ case 0: {v} = 1; break; default: {v} ^= 4; }}")  # fmt: skip


class Writer:
    """Writes one kernel; `uniform` variables and conditions are the same for all threads of a block."""

    def __init__(self, seed: int, name: str, barriers: bool) -> None:
        self.chance = random.Random(seed)
        self.barriers = barriers
        shared = "__shared__ int s[64];" if barriers else ""
        clamped = f"int c = {self.chance.choice(CLAMPED)};"
        start = f"{shared} {self.chance.choice(STARTS)} {clamped} y[g] += x[(unsigned)c % 64u];"
        body = self.block({"g": False, "c": False}, {"g"}, 0, True)
        self.text = f"__global__ void {name}(int* y, const int* x, int n, int m) {{\n{start}\n{body}\ny[g] += 1;\n}}\n"

    def value(self, known: dict[str, bool], uniform: bool, depth: int = 2) -> str:
        chance = self.chance
        if depth == 0 or chance.random() < 0.3:
            some = ["n", "m", str(chance.randint(0, 7)), "(int)blockIdx.x", "(int)blockDim.x"]
            some += [f"(int){name}" for name, alike in known.items() if alike or not uniform] * 2
            return chance.choice(some if uniform else [*some, "(int)threadIdx.x", "x[threadIdx.x]"])
        left, right = self.value(known, uniform, depth - 1), self.value(known, uniform, depth - 1)
        form = chance.choice(["({} ^ {})", "({} & {})", "min({}, {})", "(int)((unsigned){} + (unsigned){})", "({} < {})"])
        return form.format(left, right)

    def block(self, known: dict[str, bool], fixed: set[str], depth: int, uniform: bool) -> str:
        chance, out, own = self.chance, [], set(fixed)
        known = dict(known)
        for _ in range(chance.randint(2, 7 - 2 * depth)):
            alike = uniform and chance.random() < 0.5
            condition = f"({self.value(known, alike, 1)} & 3) > {chance.randint(0, 2)}"
            kind = chance.choice(["new", "new", "change", "change", "change", "store", "if", "for", "barrier", "exchange"])
            if kind == "new":
                name = chance.choice("abkqv") + chance.choice(["", "1", "2"])
                if name in own:
                    continue
                value = self.value({k: v for k, v in known.items() if k != name}, alike)
                out.append(f"{chance.choice(['int', 'unsigned', 'const int', 'long'])} {name} = {value};")
                own.add(name)
                known[name] = alike
                fixed = fixed | {name} if "const" in out[-1] else fixed - {name}
            elif kind == "change":
                names = [name for name, same in known.items() if name not in fixed and (uniform or not same)]
                if names:
                    name = chance.choice(names)
                    form = chance.choice(CHANGES[:7] if known[name] else CHANGES)
                    out.append(form.format(v=name, e=self.value(known, known[name])))
            elif kind == "store":
                out.append(f"y[g] = (int)((unsigned)y[g] * 31u + (unsigned){self.value(known, False)});")
            elif kind == "if" and depth < 2:
                out.append(f"if ({condition}) {{\n{self.block(known, fixed, depth + 1, alike)}\n}}")
            elif kind == "for" and depth < 2:
                loop = f"i{depth}"
                inner = self.block({**known, loop: alike}, fixed | {loop}, depth + 1, alike)
                out.append(f"for (int {loop} = 0; {loop} < ({self.value(known, alike, 1)} & 3); ++{loop}) {{\n{inner}\n}}")
            elif self.barriers and uniform and kind == "barrier":
                out.append("__syncthreads();")
            elif self.barriers and uniform and kind == "exchange":
                other = f"s[(threadIdx.x + {chance.randint(1, 5)}) % blockDim.x]"
                out.append(f"s[threadIdx.x] = {self.value(known, False)}; __syncthreads(); y[g] ^= {other}; __syncthreads();")
        return "\n".join(out)


def compare(seed: int) -> None:
    names = [f"k{n}" for n in range(TOGETHER)]
    writers = [Writer(seed * TOGETHER + n, name, barriers=n % 3 > 0) for n, name in enumerate(names)]
    source = "#include <hip/hip_runtime.h>\n" + "".join(writer.text for writer in writers)
    improved, plain = (
        Library(compile_kernels(source, names, compiler=compiler_of("clang"), mode=mode).image) for mode in ("fast", "base")
    )
    x = np.arange(64, dtype=np.int32) * 7 - 20
    for name, writer in zip(names, writers):
        for grid, block, n in ((3, 8, 5), (2, 32, 9), (4, 5, 2), (1, 64, 30)):
            results = []
            for library in (improved, plain):
                y = np.zeros(256, np.int32)
                library.run(name, grid, block, y, x, np.int32(n), np.int32(3))
                results.append(y.tolist())
            assert results[0] == results[1], writer.text


@settings(max_examples=4)
@given(seed=st.integers(0, 2**24))
def test_random_kernels_do_the_same_split_and_thread_by_thread(seed: int) -> None:
    compare(seed)


@pytest.mark.slow
@settings(max_examples=40)
@given(seed=st.integers(0, 2**24))
def test_many_random_kernels_do_the_same_split_and_thread_by_thread(seed: int) -> None:
    compare(seed)
