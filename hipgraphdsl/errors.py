"""The exceptions of hipgraphdsl.

::

    HipGraphError
    |-- DeclarationError (also a ValueError)   invalid arguments of one call, which has no effect
    |-- CheckError                             `check` found errors in the graph; carries the Report
    |-- RuntimeUnavailable                     no binding, no library or no device; says what to install
    |-- PartMissing (also an ImportError)      a part of the package that a call needs is not there; carries its name
    |-- PartRefused                            a part of another package cannot be used; carries its name, its package and why
    |-- HipError                               a HIP call failed; carries API name, code and node
    |-- UpdateError                            an Executable cannot take a change; carries node and field
    |-- CallbackError                          the function of a host or captured node raised; also an instance of what it raised
    |-- WaitTimeout (also a TimeoutError)      a wait timed out; carries the unfinished nodes
    |-- RankError                              another process did not arrive or has failed; carries its rank

Every message says who, what is wrong, what was given and what to do; the same parts are available as attributes.
If a call that creates something raises, nothing has been created.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from difflib import get_close_matches
from types import GetSetDescriptorType, MemberDescriptorType
from typing import TYPE_CHECKING, Any, Final, Literal

from .printed import short

if TYPE_CHECKING:
    from .checks.report import Report

# Codes by which HIP and CUDA report that a kernel, copy or host function has failed after its call returned: ECC error, illegal
# address, time limit, assertion, and stack, instruction, alignment, address space, program counter and launch failures.
_FAULTS: Final = frozenset({214, 700, 702, 710, *range(714, 720)})
_HEAP_TYPE: Final = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class created by a class statement

__all__ = [
    "CallbackError",
    "CheckError",
    "DeclarationError",
    "HipError",
    "HipGraphError",
    "PartMissing",
    "PartRefused",
    "RankError",
    "RuntimeUnavailable",
    "UpdateError",
    "WaitTimeout",
    "listed",
    "node_error",
    "shown",
    "unknown_name",
]


class HipGraphError(Exception):
    """Base class of the package's exceptions."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickle calls the constructor with the message alone. Only classes of this module can be imported by name.
        kind = next(kind for kind in type(self).__mro__ if kind.__module__ == __name__)
        return kind.__new__, (kind,), {**self.__dict__, "args": self.args}


class DeclarationError(HipGraphError, ValueError):
    """A single call declared something invalid.

    Attributes
    ----------
    node : str or None
        Name of the node that was being declared.
    array : str or None
        Name of the invalid array, parameter or kernel.
    field : str or None
        Name of the invalid field of the node or the parameter.
    """

    def __init__(self, message: str, *, node: str | None = None, array: str | None = None, field: str | None = None) -> None:
        super().__init__(message)
        self.node = node
        self.array = array
        self.field = field

    def inside(self, node: str) -> DeclarationError:
        """Return the error of the same node by its full name, which begins with those of the nodes that hold it."""
        said = str(self).replace(f"node {node.rpartition('/')[2]!r}", f"node {node!r}", 1)
        return DeclarationError(said, node=node, array=self.array, field=self.field)


class at_field:  # noqa: N801  # used in a with statement, as `naming` is
    """Name in a DeclarationError that is raised inside, and names no field, this field of what is declared."""

    __slots__ = ("field",)

    def __init__(self, field: str) -> None:
        self.field = field

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, _: Any) -> None:
        if isinstance(error, DeclarationError):
            error.field = error.field or self.field


def node_error(node: str, why: str, *, array: str | None = None) -> DeclarationError:
    """Return the error that a node of this name is invalid, with the reason."""
    return DeclarationError(f"node {node!r}: {why}", node=node, array=array)


def shown(value: object, most: int = 60) -> str:
    """Return the ``repr`` of a value for a message, truncated to `most` characters."""
    return short(repr(value), most)


def listed(names: Iterable[object], most: int = 10) -> str:
    """Return names for a message: the first `most`, and the number of the others."""
    known = list(names)
    more = f" and {len(known) - most} more" if len(known) > most else ""
    return ", ".join(map(repr, known[:most])) + more or "none"


def unknown_name(
    what: str, given: Any, known: Iterable[str], called: Mapping[str, str] | None = None, *, source: str = "", others: str = ""
) -> DeclarationError:
    """Return the error for a name that is not in `known`; it suggests the probably intended name.

    Parameters
    ----------
    what : str
        What it names: ``"runtime"``, ``"backend"``, ...
    given : object
    known : iterable of str
    called : mapping of str to str, optional
        From names used by other software, in lower case, to the names in `known`.
    source : str
        Text that says where the name comes from, if not from the call.
    others : str
        Text after the known names.
    """
    names = list(known)
    listed = f"{what}s are {', '.join(map(repr, names))}{others}"
    if not isinstance(given, str):
        return DeclarationError(f"{what} is a name (got {given!r}){source}; {listed}")
    meant = (called or {}).get(given.lower())
    if meant is not None:
        return DeclarationError(f"{what} {given!r} is called {meant!r} here{source}; {listed}")
    return DeclarationError(f"there is no {what} {given!r}{suggested(given, names)}{source}; {listed}")


def suggested(given: str, known: Iterable[str]) -> str:
    """Return a question for the probably intended name, in parentheses and after a space; empty if no known name is close."""
    names = {name.lower(): name for name in known}
    close = get_close_matches(given.lower(), names, 1)
    return f" (did you mean {names[close[0]]!r}?)" if close else ""


class CheckError(HipGraphError):
    """`check` found errors, so the graph was not compiled.

    Attributes
    ----------
    report : Report
        All diagnostics, errors first.
    """

    def __init__(self, report: Report) -> None:
        errors = report.errors
        lines = [f"graph {report.graph!r} has {len(errors)} error{'s' if len(errors) != 1 else ''}:"]
        lines += [f"  {d.code} {d.message}" + (f"; {d.hint}" if d.hint else "") for d in errors[:20]]
        if len(errors) > 20:
            lines.append(f"  ... and {len(errors) - 20} more: see .report")
        super().__init__("\n".join(lines))
        self.report = report


Missing = Literal["binding", "library", "device", "compiler"]


class RuntimeUnavailable(HipGraphError):
    """A runtime cannot be opened on this machine.

    Attributes
    ----------
    runtime : str
        ``"amd"``, ``"nvidia"`` or ``"cpu"``.
    missing : {"binding", "library", "device", "compiler"}
        The missing requirement.
    """

    def __init__(self, message: str, *, runtime: str, missing: Missing) -> None:
        super().__init__(message)
        self.runtime = runtime
        self.missing = missing


def lacks(runtime: str, missing: Missing, why: str) -> RuntimeUnavailable:
    """Return the error that a runtime of this name cannot be opened, with the reason."""
    return RuntimeUnavailable(f"runtime {runtime!r} {why}", runtime=runtime, missing=missing)


class PartMissing(HipGraphError, ImportError):
    """A part of the package that a call needs is not there.

    Attributes
    ----------
    part : str
        Name of the part, which is also that of its folder in ``hipgraphdsl/parts``.
    """

    def __init__(self, part: str, does: str) -> None:
        what = f" ({does})" if does else ""
        super().__init__(
            f"this needs the part {part!r} of hipgraphdsl{what}, which is not there:"
            f" hipgraphdsl/parts/{part}; install hipgraphdsl whole"
        )
        self.part = part


class PartRefused(HipGraphError):
    """A part of another package cannot be used.

    Its import fails, it is written for another protocol, or it adds what cannot be taken.

    Attributes
    ----------
    part : str
        Name of the part, which is that of its entry point.
    package : str
        Name and version of the package.
    why : str
    """

    def __init__(self, part: str, package: str, why: str) -> None:
        super().__init__(f"part {part!r} of {package} cannot be used: {why}")
        self.part, self.package, self.why = part, package, why


class HipError(HipGraphError):
    """A HIP call returned an error code.

    Attributes
    ----------
    api : str
        Name of the call, e.g. ``"hipGraphAddKernelNode"``.
    code : int
        The runtime's own error code.
    name : str
        The code's name, e.g. ``"hipErrorInvalidValue"``.
    node : str or None
        Name of the node on whose behalf the call was made.
    graph : str or None
        Name of the graph whose launch failed.
    """

    graph: str | None = None

    def __init__(
        self, api: str, code: int, name: str, text: str = "", *, node: str | None = None, hint: str | None = None
    ) -> None:
        where = f" for node {node!r}" if node else ""
        said = f", {text}" if text and text != name else ""
        super().__init__(f"{api} failed{where}: {name} ({code}){said}" + (f"; {hint}" if hint else ""))
        self.api = api
        self.code = code
        self.name = name
        self.text = text
        self.node = node
        self.hint = hint

    @property
    def is_fault(self) -> bool:
        """Whether earlier work on the device failed: any later call may report that, whatever node it is made for."""
        return self.code in _FAULTS

    def at(self, node: str, hint: str | None = None) -> HipError:
        """Return a copy of the error that names the node of the call; the error itself if it names one or is a fault."""
        return self if self.node or self.is_fault else self.of(node, hint)

    def of(self, node: str, hint: str | None = None) -> HipError:
        """Return a copy of the error that names the node at fault."""
        return HipError(self.api, self.code, self.name, self.text, node=node, hint=hint or self.hint)

    def met_by(self, node: str) -> HipError:
        """Return the error that names the node whose function met this one; where this names a node, it is another graph's."""
        if self.node is None:
            return self.at(node)
        met = f"its function met this for node {self.node!r}" + (f" of graph {self.graph!r}" if self.graph else "")
        return self.of(node, f"{self.hint}; {met}" if self.hint else met)

    def hinted(self, hint: str) -> HipError:
        """Return a copy of the error with a hint appended."""
        return HipError(self.api, self.code, self.name, self.text, node=self.node, hint=hint)


class UpdateError(HipGraphError):
    """An Executable cannot apply a change in place.

    Attributes
    ----------
    node : str or None
        Name of the node whose change was refused.
    field : str or None
        Field of that node.
    """

    def __init__(self, message: str, *, node: str | None = None, field: str | None = None) -> None:
        super().__init__(message)
        self.node = node
        self.field = field


class CallbackError(HipGraphError):
    """The user's function of a host or captured node raised an exception.

    The raised error is also an instance of the original exception's class, with its fields (``errno``, ``returncode``), if
    Python permits that, so ``except ValueError`` catches a ValueError of a callback. The original is its ``__cause__``.

    Attributes
    ----------
    node : str
        Name of the node.
    """

    node: str

    # First in the MRO: the original class's methods may need attributes that only its constructor sets.
    def __str__(self) -> str:
        return Exception.__str__(self)

    def __setattr__(self, name: str, value: Any) -> None:
        Exception.__setattr__(self, name, value)

    @staticmethod
    def of(node: str, original: BaseException, kind_of_node: str = "host") -> CallbackError:
        """Return the error to raise for an exception of the function of `node`."""
        kind = type(original)
        try:
            said = str(original)
        except Exception as error:
            said = f"(its text cannot be had: __str__ raises {type(error).__name__})"
        message = f"{kind_of_node} node {node!r}: {kind.__name__}: {said}"
        raised = CallbackError(message)
        with suppress(Exception):  # the class may refuse to be inherited from
            bases = (kind,) if issubclass(kind, CallbackError) else (CallbackError, kind)
            combined: Any = type(kind.__name__, bases, {"__module__": kind.__module__})
            made_by = combined
            while made_by.__flags__ & _HEAP_TYPE:  # skip constructors written in Python: they may need other arguments
                made_by = made_by.__base__
            candidate = made_by.__new__(combined, *original.args)
            _copy_fields(original, candidate)
            candidate.args = (message,)
            if str(candidate) == message:
                raised = candidate
        raised.node = node
        raised.__cause__ = original
        return raised


def _copy_fields(original: BaseException, other: BaseException) -> None:
    """Copy the original's fields to an exception of a derived class, without calling a constructor."""
    for kind in type(original).__mro__:
        if kind not in (BaseException, object):
            for name, member in vars(kind).items():
                if isinstance(member, (MemberDescriptorType, GetSetDescriptorType)) and name != "__dict__":
                    with suppress(AttributeError, TypeError):  # not set, or read-only
                        setattr(other, name, getattr(original, name))
    other.__dict__.update(original.__dict__)


class RankError(HipGraphError):
    """Another of the processes that share a graph did not arrive in time, has failed or has died.

    The group of processes is broken: no more data is sent, and each process raises this error. Local data stays usable.

    Attributes
    ----------
    rank : int or None
        The rank of the process at fault, if known.
    """

    def __init__(self, message: str, *, rank: int | None = None) -> None:
        super().__init__(message)
        self.rank = rank


class WaitTimeout(HipGraphError, TimeoutError):
    """A wait timed out before the work was done; the work continues.

    Attributes
    ----------
    unfinished : tuple of str
        Names of the nodes that had not finished, if the runtime can tell.
    """

    def __init__(self, message: str, unfinished: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.unfinished = unfinished
