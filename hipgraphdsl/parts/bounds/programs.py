"""Kernels parsed for the interpreter: their bodies as syntax trees, and static facts about them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, NamedTuple

from ...errors import DeclarationError
from ...kernels import Kernel, body_of
from ...source import Scope, Value
from ...source import trees as syntax
from .bodies import parse_body

_MOST_TOKENS: Final = 5000  # per body

#: Functions that return, and that change nothing but what a pointer argument points to.
_HARMLESS: Final = frozenset(
    {
        "__syncthreads", "__threadfence", "__threadfence_block", "__threadfence_system", "__syncwarp", "__ballot",
        "__ballot_sync", "__popc", "__popcll", "__clz", "__clzll", "__ffs", "__ffsll", "__brev", "__all", "__any", "__all_sync",
        "__any_sync", "__activemask", "__mul24", "__umul24", "__mulhi", "__umulhi", "__float2int_rn", "__float2int_rz",
        "__int2float_rn", "__float2half", "__half2float", "__float_as_int", "__int_as_float", "__fdividef", "__fmaf_rn", "__expf",
        "__logf", "__sinf", "__cosf", "__powf", "__saturatef", "printf", "clock", "clock64", "wall_clock64",
        *(f"__shfl{kind}{sync}" for kind in ("", "_up", "_down", "_xor") for sync in ("", "_sync")),
        *(
            f"{name}{suffix}"
            for name in (
                "sqrt", "rsqrt", "exp", "exp2", "exp10", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin",
                "acos", "atan", "atan2", "sinh", "cosh", "tanh", "pow", "fabs", "floor", "ceil", "round", "trunc", "rint", "fmin",
                "fmax", "fma", "fmod", "hypot", "erf", "erfc", "cbrt", "copysign", "isnan", "isinf", "tgamma", "lgamma",
            )
            for suffix in ("", "f")
        ),
        *(f"make_{stem}{n}" for stem in ("float", "double", "int", "uint", "short", "char", "uchar") for n in (1, 2, 3, 4)),
    }
)  # fmt: skip
ATOMICS: Final = frozenset(
    f"atomic{name}{scope}"
    for name in ("Add", "Sub", "Exch", "Min", "Max", "Inc", "Dec", "CAS", "And", "Or", "Xor")
    for scope in ("", "_system", "_block")
)
#: Tokens that show that a function may not return.
_ENDING: Final = frozenset({"asm", "__asm", "__asm__", "__trap", "__builtin_trap", "abort", "exit", "__builtin_unreachable"})


@dataclass(frozen=True, eq=False)
class Program:
    """A parsed kernel."""

    kernel: Kernel
    body: syntax.Block
    escaped: frozenset[int]  # variables whose address is taken: they may change at any time
    scope: Scope
    deciding: frozenset[int]  # arguments on which addresses or conditions depend
    plain: frozenset[int]  # arguments declared without [] and (), thus not pointers to arrays
    returning: bool  # whether all functions that it may call return
    _ending: dict[int, bool] = field(default_factory=dict)
    _assigned: dict[int, set[int]] = field(default_factory=dict)

    def ends(self, node: Any) -> bool:
        """Return whether a thread that executes a part of the body may fail to reach the code after it."""
        found = self._ending.get(id(node))
        if found is None:
            found = self._ending[id(node)] = any(
                isinstance(part, (syntax.Leave, syntax.Unread)) or (isinstance(part, syntax.Call) and not self._returns(part))
                for part in syntax.walk(node)
            )
        return found

    def _returns(self, call: syntax.Call) -> bool:
        returning = self.returning and call.name not in ("assert", "__builtin_assume")
        return returning or known_function(self.kernel, call.name)

    def assigned(self, node: Any) -> set[int]:
        """Return the variables that may change in a part of the body."""
        found = self._assigned.get(id(node))
        if found is None:
            found = self._assigned[id(node)] = set()
            for part in syntax.walk(node):
                match part:
                    case syntax.Assign():
                        found |= syntax.variables(part.target)
                    case syntax.Declare():
                        found.add(part.slot)
                    case syntax.Binary(operator=">>"):
                        found |= syntax.variables(part.right)
        return found


def program_of(kernel: Kernel) -> Program | None:
    """Parse a kernel; None if its source is missing or does not determine the compiled code."""
    return _read(kernel) if kernel.module.source else None  # one without a source may hold what it was read back from


@lru_cache(maxsize=512)
def _read(kernel: Kernel) -> Program | None:
    signature, module = kernel.signature, kernel.module
    assert signature is not None
    try:
        found = body_of(kernel)
        if found is None or len(found.tokens) > _MOST_TOKENS:
            return None
        names = [parameter.name for parameter in signature.parameters]
        body, escaped = parse_body(found.tokens, names, found.scope)
        deciding = _deciding(body)
    except (DeclarationError, RecursionError):
        return None
    for node in syntax.walk(body):  # a function may keep a reference to an argument
        if not isinstance(node, syntax.Call) or known_function(kernel, node.name):
            continue
        if not module.takes_values(node.name.removesuffix("<>")):
            escaped = escaped.union(*map(syntax.variables, node.arguments))
    values = {n for n, p in enumerate(signature.parameters) if not p.pointer}
    plain = frozenset(n for n, part in enumerate(found.parameters) if not {"[", "("} & {token.text for token in part})
    return Program(kernel, body, escaped, found.scope, frozenset(deciding & values), plain, not module.mentions(_ENDING))


def known_function(kernel: Kernel, name: str) -> bool:
    """Return whether a name is that of a C++ or HIP function which returns and keeps no reference to its arguments."""
    name = name.removeprefix("std::")
    known = name in _HARMLESS or name in ATOMICS or name in ("min", "max", "abs", "__ldg")
    return known and not kernel.module.declares(name)


def _deciding(body: Any) -> set[int]:
    """Return the variables on which an address or a condition may depend."""
    found: set[int] = set()
    uses: dict[int, set[int]] = {}
    for node in syntax.walk(body):
        match node:
            case syntax.Index():
                found |= _slots([node.base, node.index])
            case syntax.Member():
                found |= _slots([node.base])
            case syntax.If() | syntax.Choice() | syntax.Loop():
                found |= _slots([node.condition])
            case syntax.Binary(operator="&&" | "||"):
                found |= _slots([node.left])
            case syntax.Call():
                found |= _slots(node.arguments)
            case syntax.Declare():
                found |= _slots(node.bounds)
                uses.setdefault(node.slot, set()).update(_slots([node.initializer]))
            case syntax.Assign():
                for slot in syntax.variables(node.target):
                    uses.setdefault(slot, set()).update(_slots([node.value]))
    waiting = list(found)
    while waiting:
        more = uses.get(waiting.pop(), set()) - found
        found |= more
        waiting += more
    return found


def _slots(nodes: Iterable[Any]) -> set[int]:
    return {part.slot for node in nodes for part in syntax.walk(node) if isinstance(part, syntax.Name)} - {-1}


class Counter(NamedTuple):
    """A counting loop: it runs while ``slot comparison limit`` holds, and ends each turn with ``slot += sign * step``."""

    slot: int
    comparison: str
    limit: Any
    step: Any
    sign: int


_COMPUTED: Final = (syntax.Name, Value, syntax.Binary, syntax.Unary, syntax.Member, syntax.Cast)


def counting(node: syntax.Loop, changed: set[int]) -> Counter | None:
    """Return how a loop counts; None if it does not count, or if `changed`, the variables its body changes, affect the count."""
    match node.condition, node.step:
        case (
            syntax.Binary("<" | "<=" | ">" | ">=" as comparison, syntax.Name(slot=slot), limit),
            syntax.Assign("+" | "-" as way, syntax.Name(slot=other), step),
        ) if slot == other >= 0 and slot not in changed:
            pass
        case _:
            return None
    fixed = all(isinstance(part, _COMPUTED) for part in syntax.walk((limit, step)))
    if not fixed or _slots([limit, step]) & (changed | {slot}):
        return None
    return Counter(slot, comparison, limit, step, 1 if way == "+" else -1)
