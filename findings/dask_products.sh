#!/usr/bin/env bash
# Dask's products of integers and bool have values and a dtype that depend on the chunks; the norm of four uint8 200 is 16.
#
# Versions: dask 2026.8.0, NumPy 2.4.6, CPython 3.11
# Guess: `@` and einsum of Dask arrays have NumPy's dtype and values, which chunks do not change (floats but for rounding);
#   computing an array twice gives the same values.
# What happens: products wrap in uint8 within a chunk and are added in uint64 between chunks, so that 200 + 200 is 144 or 400; if
#   there are several chunks, or in einsum, the dtype is uint64, and int64 for bool. `norm` squares in uint8. `mean` of
#   float16 sums in float16. `map_blocks` gives a function the memory that the graph holds: if it writes in
#   place, each computation starts from the results of the one before, and the array it came from changes too.
#
# Output seen, which this script compares with what it prints:
#> uint8 [200, 200] @ [1, 1]: NumPy uint8 144
#>   one chunk: uint8 144
#>   two chunks: uint64 400
#> einsum of the same: NumPy uint8 144
#>   one chunk: uint64 144
#>   two chunks: uint64 400
#> bool [True, True] @ [True, True]: NumPy bool True
#>   one chunk: bool True
#>   two chunks: int64 2
#> int32 [2**31 - 1, 1] @ [1, 1]: NumPy int32 -2147483648
#>   one chunk: int32 -2147483648
#>   two chunks: int64 2147483648
#> norm of uint8 [200] * 4: NumPy float64 400.0
#>   one chunk: float64 16.0
#>   two chunks: float64 16.0
#> mean of float16 [100] * 5000: NumPy float16 100.0
#>   one chunk: float16 inf
#>   two chunks: float16 inf
#> add 1 in place to 0, computed: [1. 1.], again: [2. 2.], its source: [2. 2.], [0. 0.]
#> add 1 in place to [0. 1.]: [1. 2.], less that array: [0. 0.]
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check dask==2026.8.0 numpy==2.4.6
cat >"$folder/program.py" <<'PROGRAM'
import warnings
import dask
import dask.array
import numpy as np

warnings.simplefilter("ignore")  # overflow in float16
dask.config.set(scheduler="synchronous")

def show(text, function, *arrays):
    result = function(*arrays)
    print(f"{text}: NumPy {result.dtype} {result}")
    for name, parts in ("one chunk", 1), ("two chunks", 2):
        inputs = [dask.array.from_array(array, array.size // parts) for array in arrays]
        result = function(*inputs)
        computed = np.asarray(result.compute())
        assert computed.dtype == result.dtype
        print(f"  {name}: {computed.dtype} {computed}")

x, y = np.array([200, 200], np.uint8), np.array([1, 1], np.uint8)
show("uint8 [200, 200] @ [1, 1]", lambda x, y: x @ y, x, y)
show("einsum of the same", lambda x, y: np.einsum("i,i->", x, y), x, y)
show("bool [True, True] @ [True, True]", lambda x, y: x @ y, np.ones(2, bool), np.ones(2, bool))
show("int32 [2**31 - 1, 1] @ [1, 1]", lambda x, y: x @ y, np.array([2**31 - 1, 1], np.int32), np.ones(2, np.int32))
show("norm of uint8 [200] * 4", np.linalg.norm, np.full(4, 200, np.uint8))
show("mean of float16 [100] * 5000", np.mean, np.full(5000, 100, np.float16))

def add_one(block):
    block += 1
    return block

source = np.zeros(2)
array = dask.array.from_array(source, 1)
result = array.map_blocks(add_one, dtype=float)
print(f"add 1 in place to 0, computed: {result.compute()}, again: {result.compute()}, its source: {array.compute()}, {source}")
product = dask.array.from_array(np.arange(2.0), 1) * 1
result = product.map_blocks(add_one, dtype=float)
print(f"add 1 in place to {product.compute()}: {result.compute()}, less that array: {(result - product).compute()}")
PROGRAM
"$folder/venv/bin/python" "$folder/program.py" | tee "$folder/seen"
diff <(sed -n 's/^#> //p' "$0") "$folder/seen"
