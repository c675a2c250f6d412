"""The calls of a launch of several graphs, made by compiled code (`calls.h`)."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, cast

from ...runtimes.data import ForeignCall, LaunchCall

_CALL: Final = struct.Struct("=4Q")  # calls.h: call_t, the address or list index of the function, two arguments, kind
_FUNCTION: Final = 2  # calls.h: kFunction
_WORDS: Final = 3  # calls.h: kWords
_EIGHT: Final = struct.Struct("=8Q")  # the arguments of another library's function
_HEAD: Final = struct.Struct("=QQ")  # list_t: count, failed


class CompiledCalls:
    """Makes the calls of a list: `run` on a stream.

    `known` maps each runtime method to the address of its C function and its call kind in calls.h; `fail` raises for a method
    and an error code.
    """

    def __init__(
        self,
        module: Any,
        calls: Sequence[LaunchCall],
        known: Mapping[str, tuple[int, int]],
        fail: Callable[[str, int], object],
    ) -> None:
        packed = bytearray()
        functions: list[Callable[[int], None]] = []
        at: dict[int, str | ForeignCall] = {}  # index of a call in the packed list -> what it calls
        for what, args in calls:
            place = len(packed) // _CALL.size
            if isinstance(what, str):
                address, kind = known[what]
                packed += _CALL.pack(address, *args, kind)
                at[place] = what
            elif isinstance(what, ForeignCall):
                packed += _CALL.pack(ctypes.cast(cast(Any, what.function), ctypes.c_void_p).value, what.stop, 0, _WORDS)
                packed += _EIGHT.pack(*args, *[0] * (8 - len(args)))
                at[place] = what
            else:
                packed += _CALL.pack(len(functions), *args, 0, _FUNCTION)
                functions.append(what)
        self._raise = partial(_raise, at, fail)
        self.run: Callable[[int], None] = partial(module.make_all, bytes(packed), tuple(functions), self._raise)
        self._runner = module.runner()
        self._list: ctypes.Array[ctypes.c_char] | None = None
        """The packed list for `Launcher`, which cannot call host functions; None if there are any."""
        if not functions:
            self._list = ctypes.create_string_buffer(_HEAD.pack(len(packed) // _CALL.size, 0) + bytes(packed))

    @property
    def entry(self) -> tuple[int, int] | None:
        """Arguments of `Launcher.bind` in place of hipGraphLaunch and a graph; None if host functions are among the calls."""
        return None if self._list is None else (self._runner, ctypes.addressof(self._list))

    def failed(self, code: int) -> None:
        """Raise the error for a code that running the entry returned."""
        assert self._list is not None
        self._raise(_HEAD.unpack_from(self._list)[1], code)


def _raise(at: Mapping[int, str | ForeignCall], fail: Callable[[str, int], object], place: int, code: int) -> None:
    what = at[place]
    if isinstance(what, str):
        fail(what, code)
    else:
        what.failed(code)
