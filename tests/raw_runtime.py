"""What tests of a runtime's bare calls share: kernels, arguments and buffers that are returned in the end."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from hipgraphdsl.runtimes.base import Runtime
from hipgraphdsl.runtimes.data import MemcpyKind

Array = TypeVar("Array", bound=npt.NDArray[Any])

HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Raw:
    """A runtime, a stream, and whatever a test makes of them.

    Attributes
    ----------
    stream : int
        A stream of its own.
    """

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.stream = runtime.stream_create()
        self._memory: list[int] = []
        self._host_memory: list[int] = []
        self._modules: list[int] = []
        self._kept: list[Any] = []

    def compile(self, source: str, *names: str, symbols: tuple[str, ...] = (), options: tuple[str, ...] = ()) -> int:
        """Compile and load; return the module."""
        code = self.runtime.rtc_compile(source, names, symbols, options)
        module = self.runtime.module_load_data(code.image)
        self._modules.append(module)
        self._lowered = code.lowered
        return module

    def kernel(self, source: str, name: str, **options: Any) -> int:
        """Compile, load and return one function."""
        module = self.compile(source, name, **options)
        return self.runtime.module_get_function(module, self._lowered[name])

    def upload(self, array: npt.NDArray[Any]) -> int:
        """Return a device pointer to a copy."""
        pointer = self.runtime.malloc(array.nbytes)
        self._memory.append(pointer)
        self.runtime.memcpy(pointer, array.ctypes.data, array.nbytes, MemcpyKind.HOST_TO_DEVICE)
        return pointer

    def download(self, pointer: int, like: Array) -> Array:
        """Return what is at a device pointer, in the form of `like`."""
        result = np.empty_like(like)
        self.runtime.memcpy(result.ctypes.data, pointer, result.nbytes, MemcpyKind.DEVICE_TO_HOST)
        return cast(Array, result)

    def host(self, array: Array) -> Array:
        """Return a copy in page-locked memory."""
        pointer = self.runtime.host_malloc(array.nbytes)
        self._host_memory.append(pointer)
        buffer = (ctypes.c_char * array.nbytes).from_address(pointer)
        locked: Any = np.frombuffer(memoryview(buffer), dtype=array.dtype).reshape(array.shape)
        locked[...] = array
        return cast(Array, locked)

    def args(self, *values: Any) -> int:
        """Return the address of an array of pointers to ctypes values; an int stands for a pointer."""
        holders = [ctypes.c_void_p(value) if isinstance(value, int) else value for value in values]
        pointers = (ctypes.c_void_p * len(holders))(*(ctypes.addressof(holder) for holder in holders))
        self._kept += [holders, pointers]
        return ctypes.addressof(pointers)

    def callback(self, function: Any) -> int:
        """Return the C address of a function of one integer."""
        made = HOST_FUNCTION(function)
        self._kept.append(made)
        return ctypes.cast(made, ctypes.c_void_p).value or 0

    def launch(self, function: int, grid: int, block: int, *values: Any, shared_bytes: int = 0) -> None:
        """Launch in one dimension and wait."""
        self.runtime.module_launch_kernel(function, (grid, 1, 1), (block, 1, 1), shared_bytes, self.stream, self.args(*values))
        self.runtime.stream_synchronize(self.stream)

    def run(self, graph: int, launches: int = 1) -> None:
        """Instantiate, launch, wait and destroy both."""
        runtime = self.runtime
        graph_exec = runtime.graph_instantiate(graph)
        for _ in range(launches):
            runtime.graph_launch(graph_exec, self.stream)
        runtime.stream_synchronize(self.stream)
        runtime.graph_exec_destroy(graph_exec)
        runtime.graph_destroy(graph)

    def close(self) -> None:
        """Return everything."""
        self.runtime.stream_synchronize(self.stream)
        self.runtime.stream_destroy(self.stream)
        for pointer in self._memory:
            self.runtime.free(pointer)
        for pointer in self._host_memory:
            self.runtime.host_free(pointer)
        for module in self._modules:
            self.runtime.module_unload(module)


@contextmanager
def raw(runtime: Runtime) -> Iterator[Raw]:
    """Yield a `Raw` and close it where the test did not fail."""
    made = Raw(runtime)
    yield made
    made.close()
