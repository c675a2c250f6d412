#!/usr/bin/env bash
# mpi4py sends a transposed array in the order of its memory: the receiver gets the array that was not transposed.
#
# Versions: mpi4py 4.1.2, mpich 5.0.2, NumPy 2.4.6, CPython 3.11; one process, no launcher
# Guess: buffers must be contiguous as NumPy's default is, so that x.T is refused as x[:, ::2] is, or it is packed.
# What happens: one block of memory is enough, in whatever order. `Sendrecv` of x.T fills the receiver with x, `Allreduce`
#   and `Allgather` of x.T yield x, and a receive into an array in Fortran order puts the elements in other places. With
#   square matrices all shapes fit. Lower-case methods pickle and are right.
#
# Output seen, which this script compares with what it prints:
#> x.T: [[0, 2], [1, 3]]
#> Sendrecv(x.T): [[0, 1], [2, 3]]
#> Sendrecv(x) into Fortran order: [[0, 2], [1, 3]]
#> Allreduce(x.T): [[0, 1], [2, 3]]
#> Reduce_local(x.T, zeros): [[0, 1], [2, 3]]
#> sendrecv(x.T): [[0, 2], [1, 3]]
#> Sendrecv(x[:, ::2]): BufferError
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check mpi4py==4.1.2 mpich==5.0.2 numpy==2.4.6
cat >"$folder/program.py" <<'PROGRAM'
import numpy as np
from mpi4py import MPI

x = np.arange(4).reshape(2, 2)

def show(name, result):
    print(f"{name}: {result.tolist()}")

def sent(array, order="C"):
    received = np.zeros(array.shape, array.dtype, order)
    MPI.COMM_SELF.Sendrecv(array, 0, recvbuf=received, source=0)
    return received

show("x.T", x.T)
show("Sendrecv(x.T)", sent(x.T))
show("Sendrecv(x) into Fortran order", sent(x, "F"))
total = np.zeros_like(x)
MPI.COMM_SELF.Allreduce(x.T, total)
show("Allreduce(x.T)", total)
total = np.zeros_like(x)
MPI.SUM.Reduce_local(x.T, total)
show("Reduce_local(x.T, zeros)", total)
show("sendrecv(x.T)", MPI.COMM_SELF.sendrecv(x.T, 0, source=0))
try:
    sent(np.arange(8).reshape(2, 4)[:, ::2])
except BufferError:
    print("Sendrecv(x[:, ::2]): BufferError")
PROGRAM
"$folder/venv/bin/python" "$folder/program.py" | tee "$folder/seen"
diff <(sed -n 's/^#> //p' "$0") "$folder/seen"
