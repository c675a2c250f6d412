#!/usr/bin/env bash
# tinygrad rewrites NaN * 0 to 0, x / x to 1 and x - x to 0, and compares sums of uint8 as if they did not wrap.
#
# Versions: tinygrad 0.14.0 (its PYTHON device, which needs no compiler), NumPy 2.4.6, CPython 3.11
# Guess: rewrites keep the results of the types' arithmetic, as those of XLA and of compilers without -ffast-math do:
#   NaN * 0 is NaN, and uint8 sums wrap.
# What happens: NaN and infinity disappear in x * 0, x - x and x / x, so that a check for NaN or a masked product says
#   that all is well; a zero in another tensor yields NaN. 200 + 100 is 44, and the same sum is not below 50. a / b is
#   a * (1 / b) and differs from the nearest float32. An integer above 32 bits in a list loses its upper bits in silence.
#
# Output seen, which this script compares with what it prints:
#> x: [nan, inf, 2.0]
#> x * 0: [0.0, 0.0, 0.0]
#> x * zeros: [nan, nan, 0.0]
#> x - x: [0.0, 0.0, 0.0]
#> x / x: [1.0, 1.0, 1.0]
#> u + 100: [200, 44]
#> u + 100 < 50: [False, False]
#> (u + 100).realize() < 50: [False, True]
#> exact quotients k / 49 of float32, k = 1..199: 146
#> Tensor([2**40 + 1]): [1]
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check tinygrad==0.14.0 numpy==2.4.6
cat >"$folder/program.py" <<'PROGRAM'
import numpy as np
from tinygrad import Tensor

def show(name, tensor):
    print(f"{name}: {tensor.numpy().tolist()}")

x = Tensor(np.array([np.nan, np.inf, 2], "float32"))
show("x", x)
show("x * 0", x * 0)
show("x * zeros", x * Tensor(np.zeros(3, "float32")))
show("x - x", x - x)
show("x / x", x / x)
u = Tensor(np.array([100, 200], "uint8"))
show("u + 100", u + 100)
show("u + 100 < 50", u + 100 < 50)
show("(u + 100).realize() < 50", (u + 100).realize() < 50)
k = np.arange(1, 200).astype("float32")
exact = (Tensor(k) / 49).numpy() == k / np.float32(49)
print("exact quotients k / 49 of float32, k = 1..199:", exact.sum())
show("Tensor([2**40 + 1])", Tensor([2**40 + 1]))
PROGRAM
XDG_CACHE_HOME="$folder/cache" DEV=PYTHON "$folder/venv/bin/python" "$folder/program.py" | tee "$folder/seen"
diff <(sed -n 's/^#> //p' "$0") "$folder/seen"
