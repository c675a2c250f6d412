"""Kernels that are known only by a handle."""

from __future__ import annotations

import hashlib
from typing import Any, NoReturn

from ...errors import DeclarationError
from ...kernels import Kernel, Module, Signature
from ...kernels.module import KernelHandle
from ...source import Declarations


class ForeignModule(Module):
    """A kernel read back from a graph, known only by its handle: it has neither source nor image.

    It is valid only in the runtime that returned it, and while its owner keeps it loaded. Its memory accesses are unknown, so
    an array argument is a plain address unless it is wrapped in `hg.reads`, `hg.writes` or `hg.updates`.

    Parameters
    ----------
    name : str
        The kernel's name, as the platform reports it.
    function : int
        The runtime's function handle.
    owner : Runtime
        The runtime that the handle belongs to.
    sizes : tuple of int or None
        Bytes of each parameter; None if the platform does not report them, and then the kernel cannot be launched again.
    signature : Signature, optional
        Types of the parameters, if known.
    kept : object, optional
        What keeps the kernel loaded, as far as that is known; it lives as long as the module.
    """

    handle: KernelHandle

    def __init__(
        self,
        name: str,
        function: int,
        owner: Any,
        sizes: tuple[int, ...] | None,
        signature: Signature | None = None,
        kept: Any = None,
    ) -> None:
        self.handle = KernelHandle(function, owner, sizes)
        self._kept = kept
        self._begin(name, None)
        self._digest = hashlib.sha256(f"{owner.name}:{function}:{name}".encode()).hexdigest()
        self._declared = Declarations("", f"kernel {name!r}", (), {})
        self._made[name] = Kernel(self, name, signature)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"kernel {self._name!r} was read from a graph: it is a handle of this process and cannot be pickled; declare it anew"
        )

    @property
    def kernels(self) -> tuple[str, ...]:
        """The name of its one kernel."""
        return (self._name,)

    def _make(self, name: str) -> Kernel:
        raise DeclarationError(f"module {self._name!r} has no kernel {name!r}; its kernels are {self._name!r}", array=name)

    def to_dict(self) -> dict[str, Any]:
        """Refuse: a file cannot store the kernel.

        Raises
        ------
        DeclarationError
            Always; names the kernel.
        """
        raise DeclarationError(
            f"kernel {self._name!r} was read from a graph of runtime {self.handle.owner.name!r}: there is only a handle of it,"
            " and a file cannot hold that; declare the kernel from its source",
            array=self._name,
        )
