#!/usr/bin/env bash
# Zarr's format 3 stores the fields of structured arrays without their byte order: 1 of `>i4` comes back as 16777216.
#
# Versions: zarr 3.1.6, numcodecs 0.16.6, NumPy 2.4.6, CPython 3.11
# Guess: a structured array of the other byte order, as FITS tables and np.rec files give, is converted to the order that the
#   metadata says, as `>i4` alone is, and as format 2 keeps it.
# What happens: the metadata names fields int32 and float64 and no order, the codec `bytes` has none either, and the bytes are
#   those of the array: the array that wrote them reads them, the file read again has other values, without an error. Records
#   assigned to an array of the machine's order are not converted, so that this array has other values at once. A warning
#   (hidden here) says that format 3 has no specification of structured types and that other libraries may not read them.
#
# Output seen, which this script compares with what it prints:
#> format 2, records: written [(1, 2.5)], read again [(1, 2.5)] of [('a', '>i4'), ('b', '>f8')]
#> format 3, >i4: written [1], read again [1] of int32
#>   codec: {'name': 'bytes', 'configuration': {'endian': 'little'}}
#> format 3, records: written [(1, 2.5)], read again [(16777216, 5.375e-321)] of [('a', '<i4'), ('b', '<f8')]
#>   fields: [['a', 'int32'], ['b', 'float64']] codec: {'name': 'bytes'}
#> format 3, records into an array of <: written [(16777216, 5.375e-321)], read again [(16777216, 5.375e-321)] of [('a', '<i4'), ('b', '<f8')]
#> format 3, >i4 into an array of <i4: written [1], read again [1] of int32
#> format 3, records.astype of <: written [(1, 2.5)], read again [(1, 2.5)] of [('a', '<i4'), ('b', '<f8')]
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check zarr==3.1.6 numcodecs==0.16.6 numpy==2.4.6
cat >"$folder/program.py" <<'PROGRAM'
import json
import pathlib
import tempfile
import numpy as np
import zarr

def show(text, value, dtype=None, zarr_format=3):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "x.zarr"
        array = zarr.create_array(path, shape=value.shape, dtype=dtype or value.dtype, zarr_format=zarr_format)
        array[...] = value
        again = zarr.open_array(path)
        print(f"{text}: written {array[...].tolist()}, read again {again[...].tolist()} of {again.dtype}")
        metadata = path / "zarr.json"
        return json.loads(metadata.read_text()) if metadata.exists() else {}

records = np.array([(1, 2.5)], [("a", ">i4"), ("b", ">f8")])
show("format 2, records", records, zarr_format=2)
plain = show("format 3, >i4", np.array([1], ">i4"))
print("  codec:", plain["codecs"][0])
metadata = show("format 3, records", records)
print("  fields:", metadata["data_type"]["configuration"]["fields"], "codec:", metadata["codecs"][0])
show("format 3, records into an array of <", records, [("a", "<i4"), ("b", "<f8")])
show("format 3, >i4 into an array of <i4", np.array([1], ">i4"), "<i4")
show("format 3, records.astype of <", records.astype(records.dtype.newbyteorder("<")))
PROGRAM
"$folder/venv/bin/python" -W ignore "$folder/program.py" | tee "$folder/seen"
diff <(sed -n 's/^#> //p' "$0") "$folder/seen"
