"""Thirty kernels with one planted fault each, for the sanitizer of the CPU runtime and for NVIDIA's compute-sanitizer.

Each is ``k(int* a, int* b, int n)`` with `n` elements in `a` and in `b`; element i is i. ``// fault`` marks the line at fault.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["FAULTS", "Fault"]

Kind = Literal["out of bounds", "unwritten memory", "race", "divergent barrier", "division by zero"]


@dataclass(frozen=True)
class Fault:
    """One kernel.

    Attributes
    ----------
    group : str
        One of six, of five kernels each.
    said : str
        What the report calls the memory, and the offset, where the fault has one.
    block_at, thread : tuple of int
        Where it is found first.
    fresh : bool
        Whether `b` is memory that nothing has written.
    """

    name: str
    kind: Kind
    group: str
    body: str
    said: str = ""
    block_at: tuple[int, int, int] = (0, 0, 0)
    thread: tuple[int, int, int] = (0, 0, 0)
    grid: tuple[int, int, int] = (1, 1, 1)
    block: tuple[int, int, int] = (64, 1, 1)
    n: int = 64
    shared_bytes: int = 0
    fresh: bool = False

    @property
    def source(self) -> str:
        """The kernel."""
        index = "const int i = blockIdx.x * blockDim.x + threadIdx.x;"
        return f"__global__ void k(int* a, int* b, int n) {{\n  {index}\n{self.body}}}\n"

    @property
    def line(self) -> int:
        """The line that is marked."""
        return next(number for number, line in enumerate(self.source.splitlines(), 1) if "// fault" in line)


FAULTS: Final = (
    # -- out of bounds ------------------------------------------------------------------------------------------------
    Fault(
        "past_the_end", "out of bounds", "out of bounds", "  b[i] = a[i + 1];  // fault\n",
        "reads 4 bytes at offset 256 of array 'a', which has 256 bytes", thread=(63, 0, 0),
    ),
    Fault(
        "before_the_start", "out of bounds", "out of bounds", "  if (i < n)\n    a[i - 1] = b[i];  // fault\n",
        "writes 4 bytes at offset -4 of array 'a'",
    ),
    Fault(
        "into_the_neighbour", "out of bounds", "out of bounds", "  a[i] = b[i];\n  const long d = b - a;\n  (a + d)[i] += 0;\n"
        "  a[i * 3 > 100 ? 100 + n * 8 : i] = 1;  // fault\n",
        "writes 4 bytes at offset 2448 of array 'a'", thread=(34, 0, 0),
    ),
    Fault(
        "strided_2d", "out of bounds", "out of bounds", "  const int x = threadIdx.x, y = threadIdx.y, pitch = 9;\n"
        "  b[y * 8 + x] = a[y * pitch + x];  // fault\n",
        "reads 4 bytes at offset 256 of array 'a'", thread=(1, 7, 0), block=(8, 8, 1),
    ),
    Fault(
        "shared_array", "out of bounds", "out of bounds", "  __shared__ int tile[64];\n  __shared__ int other[64];\n"
        "  other[i] = i;\n  tile[i] = a[i];\n  __syncthreads();\n  b[i] = tile[i + 1] + other[63 - i];  // fault\n",
        "reads 4 bytes at offset 256 of shared 'tile'", thread=(63, 0, 0),
    ),
    # -- shared memory that nobody has written ----------------------------------------------------------------------------
    Fault(
        "half_a_tile", "unwritten memory", "unwritten shared", "  __shared__ int tile[64];\n  if (i < 32) tile[i] = a[i];\n"
        "  __syncthreads();\n  b[i] = tile[63 - i];  // fault\n",
        "reads 4 bytes at offset 252 of shared 'tile', which no thread of the block has written",
    ),
    Fault(
        "counter_not_zeroed", "unwritten memory", "unwritten shared", "  __shared__ int count;\n"
        "  atomicAdd(&count, a[i]);  // fault\n  __syncthreads();\n  if (i == 0) b[0] = count;\n",
        "reads atomically 4 bytes at offset 0 of shared 'count'",
    ),
    Fault(
        "dynamic_rest", "unwritten memory", "unwritten shared", "  extern __shared__ int rest[];\n  rest[i] = a[i];\n"
        "  __syncthreads();\n  b[i] = rest[2 * i];  // fault\n",
        "reads 4 bytes at offset 256 of dynamic shared memory", thread=(32, 0, 0), shared_bytes=1024,
    ),
    Fault(
        "block_before_it", "unwritten memory", "unwritten shared", "  __shared__ int kept[32];\n"
        "  if (blockIdx.x == 0) kept[threadIdx.x] = a[i];\n  __syncthreads();\n"
        "  b[i] = kept[threadIdx.x];  // fault\n",
        "reads 4 bytes at offset 0 of shared 'kept'", block_at=(1, 0, 0), grid=(2, 1, 1), block=(32, 1, 1),
    ),
    Fault(
        "halo", "unwritten memory", "unwritten shared", "  __shared__ float tile[66];\n  tile[threadIdx.x + 1] = a[i];\n"
        "  if (threadIdx.x == 0) tile[0] = 0;\n  __syncthreads();\n"
        "  b[i] = tile[threadIdx.x] + tile[threadIdx.x + 2];  // fault\n",
        "reads 4 bytes at offset 260 of shared 'tile'", thread=(63, 0, 0),
    ),
    # -- allocated memory that nobody has written -------------------------------------------------------------------------
    Fault(
        "fresh_value", "unwritten memory", "unwritten alloc", "  a[i] = b[i];  // fault\n",
        "reads 4 bytes at offset 0 of array 'b', which nothing has written", fresh=True,
    ),
    Fault(
        "fresh_branch", "unwritten memory", "unwritten alloc", "  if (i > 0) b[i] = i;\n  if (i == 5 && b[0] > 3)  // fault\n"
        "    a[i] = 0;\n",
        "reads 4 bytes at offset 0 of array 'b'", thread=(5, 0, 0), fresh=True,
    ),
    Fault(
        "fresh_address", "unwritten memory", "unwritten alloc", "  a[b[i] & 63] = i;  // fault\n",
        "reads 4 bytes at offset 0 of array 'b'", fresh=True,
    ),
    Fault(
        "fresh_sum", "unwritten memory", "unwritten alloc", "  if (i < n - 1) b[i] = a[i];\n  if (i == 0)\n"
        "    for (int k = n - 1; k < n; ++k)\n      b[0] += b[k];  // fault\n",
        "reads 4 bytes at offset 252 of array 'b'", fresh=True,
    ),
    Fault(
        "fresh_counter", "unwritten memory", "unwritten alloc", "  atomicAdd(b + i % 4, a[i]);  // fault\n",
        "reads atomically 4 bytes at offset 0 of array 'b'", fresh=True,
    ),
    # -- races in shared memory -------------------------------------------------------------------------------------------
    Fault(
        "no_barrier", "race", "race", "  __shared__ int tile[64];\n  tile[i] = a[i];\n  if (i > 0)\n"
        "    b[i] = tile[i - 1];  // fault\n",
        "reads 4 bytes at offset 0 of shared 'tile', which thread (0, 0, 0) writes", thread=(1, 0, 0),
    ),
    Fault(
        "no_barrier_between_turns", "race", "race", "  __shared__ int tile[64];\n  tile[i] = a[i];\n  __syncthreads();\n"
        "  for (int k = 1; k < 4; ++k) {\n    const int v = tile[(i + k) % 64];\n    __syncthreads();\n"
        "    tile[i] = v + k;  // fault\n    if (k == 2) __syncthreads();\n    a[i] += k;\n  }\n  b[i] = a[i];\n",
        "writes 4 bytes at offset 8 of shared 'tile', which thread (0, 0, 0) reads", thread=(2, 0, 0),
    ),
    Fault(
        "one_word_of_all", "race", "race", "  __shared__ int last;\n  last = a[i];  // fault\n  __syncthreads();\n"
        "  b[i] = last;\n",
        "writes 4 bytes at offset 0 of shared 'last', which thread (0, 0, 0) writes", thread=(1, 0, 0),
    ),
    Fault(
        "last_steps_without_barrier", "race", "race", "  __shared__ int sum[64];\n  sum[i] = a[i];\n  __syncthreads();\n"
        "  for (int half = 32; half > 0; half >>= 1) {\n    if (i < half)\n      sum[i] += sum[i + half];  // fault\n"
        "    if (half > 4) __syncthreads();\n  }\n  if (i == 0) b[0] = sum[0];\n",
        "writes 4 bytes at offset 4 of shared 'sum', which thread (0, 0, 0) reads", thread=(1, 0, 0),
    ),
    Fault(
        "neighbours_byte", "race", "race", "  __shared__ unsigned char flag[64];\n  flag[i] = (unsigned char)a[i];\n"
        "  __syncthreads();\n  if (i < 32)\n    flag[i + (i == 7)] = (unsigned char)(90 + i);  // fault\n"
        "  __syncthreads();\n  b[i] = flag[i];\n",
        "writes 1 bytes at offset 8 of shared 'flag', which thread (7, 0, 0) writes", thread=(8, 0, 0),
    ),
    # -- divergent barriers -----------------------------------------------------------------------------------------------
    Fault(
        "barrier_in_a_branch", "divergent barrier", "divergent barrier", "  if (i < 40)\n"
        "    __syncthreads();  // fault\n  b[i] = i;\n",
        "waits there, and thread (40, 0, 0) has ended",
    ),
    Fault(
        "two_barriers", "divergent barrier", "divergent barrier", "  if (i % 2) {\n    a[i] = 1;\n"
        "    __syncthreads();\n  } else {\n"
        "    a[i] = 2;\n    __syncthreads();  // fault\n  }\n",
        "waits there, and thread (1, 0, 0) waits at",
    ),
    Fault(
        "early_return", "divergent barrier", "divergent barrier", "  if (i >= n - 10) return;\n  b[i] = a[i];\n"
        "  __syncthreads();  // fault\n  a[i] = b[i];\n",
        "waits there, and thread (54, 0, 0) has ended",
    ),
    Fault(
        "turns_of_a_loop", "divergent barrier", "divergent barrier", "  for (int k = 0; k < i / 32 + 1; ++k) {\n"
        "    a[i] += k;\n"
        "    __syncthreads();  // fault\n  }\n",
        "waits there, and thread (0, 0, 0) has ended", thread=(32, 0, 0),
    ),
    Fault(
        "counted_by_some", "divergent barrier", "divergent barrier", "  int c = 0;\n  if (threadIdx.y == 0)\n"
        "    c = __syncthreads_count(a[i] > 2);  // fault\n  b[i] = c;\n",
        "waits there, and thread (0, 1, 0) has ended", block=(32, 2, 1),
    ),
    # -- integer division by zero -----------------------------------------------------------------------------------------
    Fault("quotient", "division by zero", "division by zero", "  b[i] = 100 / a[i];  // fault\n"),
    Fault("remainder", "division by zero", "division by zero", "  b[i] = i % (a[i] - 7);  // fault\n", thread=(7, 0, 0)),
    Fault(
        "unsigned_words", "division by zero", "division by zero", "  const unsigned d = (unsigned)(a[i] >> 3);\n"
        "  if (i > 0)\n    b[i] = (unsigned)i / d;  // fault\n",
        thread=(1, 0, 0),
    ),
    Fault(
        "long_words", "division by zero", "division by zero", "  const long long d = (long long)a[i] - 40;\n"
        "  b[i] = (int)(1000000000000LL / d);  // fault\n",
        block_at=(1, 0, 0), thread=(8, 0, 0), grid=(2, 1, 1), block=(32, 1, 1),
    ),
    Fault(
        "turn_of_a_loop", "division by zero", "division by zero", "  int s = 0;\n  for (int k = 4; k >= 0; --k)\n"
        "    s += a[i] / k;  // fault\n  b[i] = s;\n",
    ),
)  # fmt: skip
