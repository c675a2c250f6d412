"""Modules, functions, symbols and events of one Executable: created on demand, released together."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from ..errors import DeclarationError, UpdateError, node_error
from ..kernels import ArgumentPacker, Kernel, Module, Signature, Symbol
from ..kernels.module import KernelHandle
from ..parts import find
from ..progress import no_progress
from ..runtimes.base import Runtime
from ..runtimes.data import SANITIZE, CodeObject, LaunchCall, MemcpyKind
from ..waiting import Deadline

if TYPE_CHECKING:
    from ..nodes import Event, Semaphore
    from ..nodes.facets import KernelLaunch, UserCall

_log = logging.getLogger("hipgraphdsl")

BUILT_IN: Final = Module(Path(__file__).with_name("built_in.h").read_text(), name="built_in")


EagerCall = tuple[Callable[[int], None], bool, Callable[[int], Sequence[LaunchCall] | None] | None]
"""The fields of `CallEager`."""


class Calls(Protocol):
    """The user's functions that nodes call; `callbacks.HostCalls` implements it."""

    failures: list[tuple[str, BaseException]]

    def register(self, name: str, node: UserCall, scope: Any, /) -> tuple[int, int]:
        """Return the C function and its argument that call a host node with its current arguments."""

    def captured(self, name: str, node: UserCall, scope: Any, /) -> Callable[[int], None]:
        """Return a function that calls the user's code with a stream."""

    def eager(self, name: str, node: UserCall, scope: Any, /) -> EagerCall:
        """Return the fields of `CallEager` for an eager node."""

    def names(self) -> dict[int, str]:
        """Return the names of host nodes by the argument of the C function."""


class Generated(Hashable, Protocol):
    """A kernel that the package generates from the user's kernels, with a table of as many launches as its entry point holds."""

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The user's kernels."""

    @property
    def module(self) -> Module:
        """Their module."""

    def name(self, count: int, /) -> str:
        """Return the name of the entry point for a number of launches."""

    def source(self, counts: Iterable[int], /) -> str:
        """Return the source of the module with these entry points."""


class SharedHandles:
    """Handles that a workflow and all of its children share; released together when the Executable is closed.

    Modules are loaded per device, so functions and addresses of variables are looked up by device. `device` is the device that
    the graph is compiled for, `devices` are all devices that it uses.
    """

    def __init__(
        self, runtime: Runtime, calls: Calls, device: int = 0, devices: tuple[int, ...] = (0,), *, sanitize: bool = False
    ) -> None:
        self.runtime = runtime
        self.graph = ""
        """Name of the graph, in errors of others."""
        self.device = device
        self.devices = devices
        self.peers: Mapping[int, Sequence[int]] = {}
        """Per device, the devices that can access its memory."""
        self.calls = calls
        self.sanitize = sanitize
        """Whether modules are compiled for the sanitizer, with which the addresses of arrays are registered."""
        self.deadline: Deadline | None = None
        """Time at which a launch stops waiting; None for no limit."""
        self._modules: dict[tuple[Module, int], tuple[int, Mapping[str, str]]] = {}
        """By module and device: its handle, and the lowered names of the kernels and symbols of its first compilation."""
        self._added: dict[tuple[Module, str, int], tuple[int, Mapping[str, str]]] = {}
        """The same for kernels that were compiled later, by module, kernel name and device."""
        self._names: dict[Module, set[str]] = {}
        """Names of the kernels compiled so far, by module."""
        self._handles: list[tuple[int, int]] = []
        """Device and handle of each loaded module."""
        self._functions: dict[tuple[int, int], tuple[int, ArgumentPacker]] = {}
        """By the identity of a kernel, whose hash costs more, and the device."""
        self._kernels: dict[int, Kernel] = {}
        """Those kernels by identity, which keeps them alive."""
        self._entries: dict[tuple[Generated, int, int], int] = {}
        """Entry points that the package generates by how, capacity and device; 0 where the compiler refused one."""
        self._early = find("merge") if runtime.target.programmatic_launch else None
        """The part that lets kernels wait for their predecessors."""
        self.waiting: set[int] = set()
        """Functions of kernels that begin by waiting for their predecessors, where the platform has programmatic edges."""
        self._symbols: dict[tuple[Symbol, int], int] = {}
        self._events: dict[Event, int] = {}

    def on(self, device: int) -> AbstractContextManager[None]:
        """Return a context in which a device is current; a no-op with a single device."""
        return self.runtime.using_device(device) if len(self.devices) > 1 else nullcontext()

    def returning_on(self, device: int) -> AbstractContextManager[None]:
        """Return such a context for releasing handles; its body runs even if the device cannot be made current."""
        return self.runtime.returning_on(device) if len(self.devices) > 1 else nullcontext()

    def load(self, kernels: Mapping[Module, tuple[list[str], list[str]]], report: Callable[[str], None] = no_progress) -> None:
        """Compile and load modules, each with the kernels and symbols that are needed from it; report each module first."""
        for number, (module, (names, symbols)) in enumerate(kernels.items(), 1):
            report(f"kernels, module {number} of {len(kernels)}")
            if module.handle is not None:
                continue
            first = (module, self.device) not in self._modules
            more = names if first else [name for name in names if name not in self._names.get(module, names)]
            if not first and more and module.symbols:
                raise UpdateError(
                    f"kernel {more[0]!r} was not compiled with the graph, and module {module.name!r} has variables"
                    f" ({', '.join(module.symbols)}) that a second copy would not share; compile the graph again"
                )
            if first and module.image is not None:
                self._modules |= {(module, device): (handle, {}) for device, handle in self._load(module.image)}
            elif first or more:
                source = module.source if self._early is None else self._early.waiting_source(module)
                code = self._compile(module, source, more, symbols if first else (), ", ".join(more))
                for device, handle in self._load(code.image):
                    found = (handle, code.lowered)
                    if first:
                        self._modules[module, device] = found
                    else:
                        self._added |= dict.fromkeys(((module, name, device) for name in more), found)
                self._names.setdefault(module, set()).update(more)

    def _compile(self, module: Module, source: str, names: Sequence[str], symbols: Sequence[str], what: str) -> CodeObject:
        # Do not sanitize built-in kernels: a copy of uninitialised memory is not the user's error.
        options = (*module.options, SANITIZE) if self.sanitize and module is not BUILT_IN else tuple(module.options)
        started = time.perf_counter()
        try:
            code = self.runtime.rtc_compile(source, names, symbols, options, name=module.name)
        except DeclarationError as error:
            if module.origin is None:
                raise
            said = module.origin.placed(str(error), module.name, module.source)
            raise DeclarationError(said, node=error.node, array=error.array) from None
        _log.debug("module %r: compiled %s in %.3f s", module.name, what, time.perf_counter() - started)
        return code

    def _load(self, image: bytes) -> list[tuple[int, int]]:
        """Load a code object on every device; return each device with its module handle."""
        first = len(self._handles)
        for device in self.devices:
            with self.on(device):
                self._handles.append((device, self.runtime.module_load_data(image)))
        return self._handles[first:]

    def function(self, kernel: Kernel, node: KernelLaunch, device: int, prefix: str = "") -> tuple[int, ArgumentPacker]:
        """Return the function handle of a kernel on a device and its argument packer; errors name the node with `prefix`."""
        found = self._functions.get((id(kernel), device))
        if found is None and kernel.module.handle is not None:
            return self._foreign(kernel, kernel.module.handle, node.signature, prefix + node.name)
        return found or self._function(kernel, node.signature, device)

    def _function(self, kernel: Kernel, signature: Signature, device: int) -> tuple[int, ArgumentPacker]:
        added = self._added.get((kernel.module, kernel.name, device)) if self._added else None
        handle, lowered = added or self._modules[kernel.module, device]
        function = self.runtime.module_get_function(handle, lowered.get(kernel.name, kernel.name))
        if signature.has_structs and kernel.signature is not None:
            self._require_layouts(kernel, signature, function)
        if self._early is not None and self._early.waits(kernel):
            self.waiting.add(function)
        found = (function, ArgumentPacker(signature))
        if kernel.signature is not None:  # without one, dtypes of arguments may differ between nodes
            self._functions[id(kernel), device], self._kernels[id(kernel)] = found, kernel
        return found

    def entry(self, how: Generated, capacity: int, capacities: Callable[[], Sequence[int]], device: int) -> int:
        """Return the entry point of a generated kernel for a capacity, compiled on first use together with other `capacities()`.

        Return 0 if the compiler refuses the generated source, which extends the user's; each launch then stays a separate node.
        """
        known = self._entries.get((how, capacity, device))
        if known is None:
            names = {size: how.name(size) for size in capacities()}
            kernels = ", ".join(kernel.name for kernel in how.kernels)
            try:
                code = self._compile(how.module, how.source(names), list(names.values()), (), f"batches of {kernels}")
            except DeclarationError as error:
                _log.warning(
                    "module %r: launches of %s stay alone, because their batch is refused: %s", how.module.name, kernels, error
                )
                self._entries |= {(how, size, place): 0 for size in names for place in self.devices}
                return 0
            for place, handle in self._load(code.image):
                with self.on(place):
                    for size, name in names.items():
                        found = self.runtime.module_get_function(handle, code.lowered.get(name, name))
                        self._entries[how, size, place] = found
            known = self._entries[how, capacity, device]
        return known

    def _require_layouts(self, kernel: Kernel, signature: Signature, function: int) -> None:
        """Raise if a struct's dtype differs in size from the compiled kernel's parameter, if the platform reports its size."""
        for parameter, (_, size) in zip(signature.parameters, self.runtime.func_get_info(function).parameters or ()):
            if parameter.size != size:
                if parameter.dtype is None or not parameter.dtype.isalignedstruct:
                    advice = "give align=True for padding as in C++"
                else:
                    advice = (
                        "where C++ aligns a field more than NumPy does (double2, float4 and int4 to 16 bytes, float2 to 8, or"
                        " alignas), give the places: np.dtype({'names': [...], 'formats': [...], 'offsets': [...],"
                        f" 'itemsize': {size}}})"
                    )
                raise DeclarationError(
                    f"kernel {kernel.name!r} of module {kernel.module.name!r}: parameter '{parameter}' has {size} bytes where it"
                    f" is compiled, and {parameter.size} by structs=; list all fields, and {advice}",
                    array=kernel.name,
                )

    def _foreign(self, kernel: Kernel, handle: KernelHandle, signature: Signature, name: str) -> tuple[int, ArgumentPacker]:
        if handle.owner is not self.runtime:
            raise node_error(
                name,
                f"kernel {kernel.name!r} is loaded in runtime {handle.owner.name!r} and in no other; compile for that runtime, in"
                " the process that it was read in",
            )
        sizes = tuple(parameter.size for parameter in signature.parameters)
        if sizes != handle.sizes:
            wanted = "unknown, because the platform does not tell" if handle.sizes is None else str(list(handle.sizes))
            raise node_error(name, f"the bytes of each argument of kernel {kernel.name!r} are {wanted} (got {list(sizes)})")
        return handle.function, ArgumentPacker(signature)

    def symbol(self, symbol: Symbol, device: int) -> int:
        """Return the address of a module's variable on a device."""
        known = self._symbols.get((symbol, device))
        if known is not None:
            return known
        pointer, nbytes = self._variable(symbol.module, symbol.name, device)
        if nbytes < symbol.nbytes:
            raise DeclarationError(
                f"variable {symbol.name!r} has {nbytes} bytes on the device, {symbol.nbytes} by its declaration",
                array=symbol.name,
            )
        self._symbols[symbol, device] = pointer
        return pointer

    def _variable(self, module: Module, name: str, device: int) -> tuple[int, int]:
        """Return the address of a loaded module's variable on a device, and its bytes there."""
        handle, lowered = self._modules[module, device]
        return self.runtime.module_get_global(handle, lowered.get(name, name))

    def copy_variables(self, other: SharedHandles) -> None:
        """Give the variables of modules the values that they have in another Executable; no launch may be in flight."""
        for module, device in filter(self._modules.__contains__, other._modules):
            kept = self._modules[module, device][1].keys() & other._modules[module, device][1].keys()
            for name in module.symbols:
                if module.image is None and name not in kept:
                    continue  # the compiler was not asked to keep it
                with self.on(device):
                    src, nbytes = other._variable(module, name, device)
                    dst, _ = self._variable(module, name, device)
                    values = np.empty(nbytes, np.uint8)  # a copy from device to device may go on after its call
                    self.runtime.memcpy(values.ctypes.data, src, nbytes, MemcpyKind.DEVICE_TO_HOST)
                    self.runtime.memcpy(dst, values.ctypes.data, nbytes, MemcpyKind.HOST_TO_DEVICE)

    def built_in(self, name: str, device: int) -> tuple[int, ArgumentPacker]:
        """Return the function handle and argument packer of a built-in kernel, compiled on first use."""
        if (BUILT_IN, device) not in self._modules:
            self.load({BUILT_IN: (list(BUILT_IN.kernels), [])})
        kernel = BUILT_IN[name]
        assert kernel.signature is not None
        return self._functions.get((id(kernel), device)) or self._function(kernel, kernel.signature, device)

    def event(self, event: Event) -> int:
        """Return the handle of an event; all belong to the device that the graph was compiled for."""
        handle = self._events.get(event)
        if handle is None:
            with self.on(self.device):
                handle = event.handle
                if handle is None:
                    handle = self.runtime.shared_event(event.name) if event.shared else self.runtime.event_create(timing=True)
                self._events[event] = handle
        return handle

    def semaphore(self, semaphore: Semaphore, node: str) -> int:
        """Return the handle of a semaphore that a node of this name uses."""
        if semaphore.handle is None:
            raise node_error(node, f"semaphore {semaphore.name!r} has no handle; give hg.Semaphore(name, handle)")
        return int(semaphore.handle)

    def events(self) -> dict[int, Event]:
        """Return all events by their handles."""
        return {handle: event for event, handle in self._events.items()}

    def kernels(self) -> dict[int, Kernel]:
        """Return the kernels looked up so far, by function handle."""
        return {function: self._kernels[kernel] for (kernel, _), (function, _) in self._functions.items()}

    def event_named(self, name: str) -> int | None:
        """Return the handle of an event by its name, if a node of the Executable uses it."""
        return next((handle for event, handle in self._events.items() if event.name == name), None)

    def return_into(self, stack: ExitStack) -> None:
        """Register the release of events and modules with an exit stack."""
        for device, handle in self._handles:
            stack.callback(self._unload, device, handle)
        for event, handle in self._events.items():
            if not event.shared and event.handle is None:
                stack.callback(self.runtime.event_destroy, handle)

    def _unload(self, device: int, module: int) -> None:
        with self.returning_on(device):
            self.runtime.module_unload(module)
