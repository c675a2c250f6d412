#!/usr/bin/env bash
# PyTorch exports a lazily negated tensor by DLPack with the wrong sign.
#
# Versions: torch 2.13.0 (CPU), NumPy 2.4.6, CPython 3.11
# Guess: `x.conj().imag` is a view with the negative bit; like the conjugate bit, and as `.numpy()` does, DLPack refuses
#   it.
# What happens: `__dlpack__` raises for the conjugate bit only. For the negative bit it exports the memory as it is, so
#   each reader, torch itself included, sees every value with the opposite sign and no error. `x.resolve_neg()` first.
#
# Output seen, which this script compares with what it prints:
#> is_neg True [-2.0, 4.0]
#> np.from_dlpack [2.0, -4.0]
#> torch.from_dlpack [2.0, -4.0]
#> resolve_neg [-2.0, 4.0]
#> numpy() RuntimeError
#> conj BufferError
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 numpy==2.4.6
cat >"$folder/program.py" <<'PROGRAM'
import numpy as np
import torch

x = torch.tensor([1 + 2j, 3 - 4j])
imag = x.conj().imag
print("is_neg", imag.is_neg(), imag.tolist())
print("np.from_dlpack", np.from_dlpack(imag).tolist())
print("torch.from_dlpack", torch.from_dlpack(imag).tolist())
print("resolve_neg", np.from_dlpack(imag.resolve_neg()).tolist())
for label, export in {"numpy()": imag.numpy, "conj": lambda: np.from_dlpack(x.conj())}.items():
    try:
        export()
        print(label, "exports")
    except (RuntimeError, BufferError) as error:
        print(label, type(error).__name__)
PROGRAM
"$folder/venv/bin/python" "$folder/program.py" | tee "$folder/seen"
diff <(sed -n 's/^#> //p' "$0") "$folder/seen"
