#!/usr/bin/env bash
# HDF5 clips float32 to the range of an integer type and wraps float16 of 32 and 64 bits; 65519 becomes infinity in float16.
#
# Versions: h5py 3.16.0 (HDF5 2.0.0), NumPy 2.4.6, CPython 3.11
# Guess: values written to a dataset of another type, or read by `astype`, are clipped to its range, as HDF5 documents and unlike
#   NumPy, whatever their type; float64 to float16 rounds to the nearest, so that infinity begins at 65520, as in NumPy.
# What happens: float16 is clipped in casts to 8 bits alone: -5.0 in float16 becomes 2**64 - 5, in float32 0, and infinity in
#   float16 becomes 0 or the smallest integer. NaN is 0, 2**63 or the smallest integer. Above 65504 everything is infinity in
#   float16, integers too. `dataset[...].astype(...)` and `dataset.astype(...)[...]` differ.
#
# Output seen, which this script compares with what it prints:
#> HDF5 2.0.0
#> [300, -1] of i8 to u1: [255, 0], NumPy [44, 255]
#> [300, -5, inf, nan] of f4 to u1: [255, 0, 255, 0]
#> [300, -5, inf, nan] of f2 to u1: [255, 0, 255, 0]
#> [300, -5, inf, nan] of f4 to u8: [300, 0, 18446744073709551615, 9223372036854775808]
#> [300, -5, inf, nan] of f2 to u8: [300, 18446744073709551611, 0, 9223372036854775808]
#> [300, -5, inf, nan] of f4 to i4: [300, -5, 2147483647, -2147483648]
#> [300, -5, inf, nan] of f2 to i4: [300, -5, -2147483648, -2147483648]
#> [65504, 65505, 65519, 65520] of f8 to f2: [65504.0, inf, inf, inf], NumPy [65504.0, 65504.0, 65504.0, inf]
#> [65504, 65505, 65519, 65520] of i4 to f2: [65504.0, inf, inf, inf], NumPy [65504.0, 65504.0, 65504.0, inf]
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check h5py==3.16.0 numpy==2.4.6
cat >"$folder/program.py" <<'PROGRAM'
import h5py
import numpy as np

np.seterr(over="ignore")
print("HDF5", h5py.version.hdf5_version)
with h5py.File("memory", "w", driver="core", backing_store=False) as file:

    def show(values, source, target):
        array = np.array(values, source)
        written = file.create_dataset(f"written {source} {target}", array.shape, target)
        written[...] = array
        read = file.create_dataset(f"read {source} {target}", data=array).astype(target)[...]
        assert np.array_equal(written[...], read)
        defined = source[0] == "i" or target == "f2"  # out of range C leaves a cast from float to integer undefined
        numpy = f", NumPy {array.astype(target).tolist()}" if defined else ""
        print(f"{values} of {source} to {target}: {read.tolist()}{numpy}")

    show([300, -1], "i8", "u1")
    show([300, -5, np.inf, np.nan], "f4", "u1")
    show([300, -5, np.inf, np.nan], "f2", "u1")
    show([300, -5, np.inf, np.nan], "f4", "u8")
    show([300, -5, np.inf, np.nan], "f2", "u8")
    show([300, -5, np.inf, np.nan], "f4", "i4")
    show([300, -5, np.inf, np.nan], "f2", "i4")
    show([65504, 65505, 65519, 65520], "f8", "f2")
    show([65504, 65505, 65519, 65520], "i4", "f2")
PROGRAM
"$folder/venv/bin/python" "$folder/program.py" | tee "$folder/seen"
diff <(sed -n 's/^#> //p' "$0") "$folder/seen"
