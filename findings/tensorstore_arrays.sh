#!/usr/bin/env bash
# tensorstore.array reads arrays of the other byte order as the machine's, and a median depends on where NaN stands.
#
# Versions: tensorstore 0.1.86, NumPy 2.4.6, CPython 3.11
# Guess: an array of the other byte order is converted or refused, by each function alike; NaN makes a median, a maximum
#   and a minimum NaN, or is left out of all of them; the median of two numbers is their mean.
# What happens: `ts.array` takes the bytes: 1 of `>i4` is 16777216 and 1.0 of `>f4` is 4.6e-41, but with `dtype=` the values
#   are right, and so are those given to `write` and to an index. downsample leaves NaN out of `max` and `min` and not out
#   of `mean`; the median of NaN, 1, 2 is 1, that of 1, NaN, 2 is NaN and that of 1, 2, NaN is 2. Of an even number of
#   elements it is the lower of the middle ones. A cast of float64 to float16 rounds twice, where NumPy's rounds once.
#
# Output seen, which this script compares with what it prints:
#> 1 of >i4: array 1.67772e+07, array with dtype 1, write 1
#> 1 of >f4: array 4.6006e-41, array with dtype 1, write 1
#> 1 of >i8: array 7.20576e+16, array with dtype 1, write 1
#> elements 1, 2 by an index of >i8: 1 2
#> nan, 1, 2: median 1.0, max 2.0, min 1.0, mean nan
#> nan, 2, 1: median 1.0, max 2.0, min 1.0, mean nan
#> 1, nan, 2: median nan, max 2.0, min 1.0, mean nan
#> 1, 2, nan: median 2.0, max 2.0, min 1.0, mean nan
#> 2, nan, 1: median 2.0, max 2.0, min 1.0, mean nan
#> 2, 1, nan: median 2.0, max 2.0, min 1.0, mean nan
#> median of 2, 1: 1.0
#> float16 of 1 + 2**-11 + 2**-40: tensorstore 1.0 NumPy 1.0009765625
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check tensorstore==0.1.86 numpy==2.4.6
cat >"$folder/program.py" <<'PROGRAM'
from itertools import permutations
import numpy as np
import tensorstore as ts

for name in (">i4", ">f4", ">i8"):
    array = np.array([1, 2], name)
    native = array.dtype.newbyteorder("=")
    written = ts.array(np.zeros(2, native))
    written.write(array).result()
    values = ts.array(array), ts.array(array, dtype=ts.dtype(native)), written
    array_of, with_dtype, written_to = (store.read().result()[0].item() for store in values)
    print(f"1 of {name}: array {array_of:.6g}, array with dtype {with_dtype:.6g}, write {written_to:.6g}")
print("elements 1, 2 by an index of >i8:", *ts.array(np.arange(4))[np.array([1, 2], ">i8")].read().result().tolist())

def downsampled(values, method):
    array = ts.array(np.array(values, np.float32))
    return ts.downsample(array, [len(values)], method).read().result().item()

nan = float("nan")
for values in permutations((nan, 1, 2)):
    results = (f"{method} {downsampled(values, method)}" for method in ("median", "max", "min", "mean"))
    print(f"{', '.join(map(str, values))}: {', '.join(results)}")
print("median of 2, 1:", downsampled((2, 1), "median"))
above = np.array([1 + 2**-11 + 2**-40])
cast = ts.cast(ts.array(above), ts.float16).read().result()
print("float16 of 1 + 2**-11 + 2**-40: tensorstore", cast.item(), "NumPy", above.astype(np.float16).item())
PROGRAM
"$folder/venv/bin/python" "$folder/program.py" | tee "$folder/seen"
diff <(sed -n 's/^#> //p' "$0") "$folder/seen"
