"""The variables of a kernel that is split (split.py): where they change, and which are the same for all threads of a block."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from .syntax import Node, bare, children, control_of, is_read, is_write, parents, start_of, type_of, walk, write_of

_INDICES: Final = frozenset({"blockIdx", "blockDim", "gridDim"})
CASTS: Final = frozenset(
    {"ImplicitCastExpr", "CStyleCastExpr", "CXXStaticCastExpr", "CXXFunctionalCastExpr", "CXXReinterpretCastExpr"}
)
_PLAIN_CASTS: Final = frozenset(
    """NoOp IntegralCast IntegralToFloating FloatingToIntegral FloatingCast IntegralToBoolean FloatingToBoolean PointerToBoolean
    BooleanToSignedIntegral BitCast NullToPointer""".split()  # noqa: SIM905
)
LITERALS: Final = frozenset(
    {"IntegerLiteral", "FloatingLiteral", "CXXBoolLiteralExpr", "CharacterLiteral", "CXXNullPtrLiteralExpr"}
)
LOOPS: Final = frozenset({"ForStmt", "WhileStmt", "DoStmt"})
SCALAR: Final = re.compile(
    r"(?:(?:const|unsigned|signed|char|short|int|long|float|double|bool|_Float16|__int128) ?)+(?:\*(?:const|__restrict| )*)*"
)


def is_constant(declared: Node) -> bool:
    """Return whether a declaration is that of a constant number."""
    kind = declared.get("type", {}).get("qualType", "")
    return declared.get("kind") == "VarDecl" and kind.startswith("const ") and bool(SCALAR.fullmatch(kind)) and "*" not in kind


class Unknown(Exception):
    """The tree has a construct that is not supported."""


@dataclass(slots=True, eq=False)
class Variable:
    """A parameter, or a variable that is declared between barriers (not inside of a statement there).

    `how` is the way it is compiled: it stays in its part (``local``); it has the same value for all threads, and exists once per
    block (``uniform``); its declaration is unchanged, outside of the loops over threads (``fixed``); an array keeps the value of
    each thread (``kept``); or each part that needs it recomputes it (``again``).
    """

    node: Node  # its declaration
    number: int
    uses: list[int] = field(default_factory=list)  # offsets at which it is named
    changes: list[int] = field(default_factory=list)  # offsets of the uses that do more than read it
    writes: list[Node] = field(default_factory=list)  # assignments, increments and decrements of it, without its initializer
    exposed: bool = False  # its address, or a reference to it, may escape
    how: str = "local"
    pure: bool = False  # recomputing it gives the same value, at any time after its declaration
    part: Part | None = None  # the part that declares it, if threads declare it
    met: bool = False  # it is an operand of a warp operation
    of_warp: bool = False  # no region (regions.py) has its value from another one

    @property
    def name(self) -> str:
        return str(self.node["name"])

    @property
    def type(self) -> str:
        return type_of(self.node)

    @property
    def is_scalar(self) -> bool:
        return bool(SCALAR.fullmatch(self.type))

    @property
    def places(self) -> list[int]:
        """Where it is declared and named."""
        return [start_of(self.node), *self.uses]

    @property
    def index(self) -> str:
        """The C++ expression for a thread's place in the array that keeps it."""
        return "hgcpu_lane" if self.of_warp else "hgcpu_t"

    @property
    def initial(self) -> Node | None:
        inner = [n for n in children(self.node) if not str(n["kind"]).endswith("Attr")]
        return inner[-1] if inner and "init" in self.node else None


@dataclass(slots=True, eq=False)
class Part:
    """Statements between barriers, in a loop over the threads.

    If `mask` is not 0, the only statement is a condition, and threads for which it is false are recorded in the mask of that
    number. Threads in the mask `off` skip the part.
    """

    number: int
    statements: list[Node] = field(default_factory=list)
    returns: bool = False
    repeats: bool = False  # in a loop
    off: int = 0
    mask: int = 0
    rare: bool = False  # an `if` that depends on the threads' indices alone: whole warps may leave it out


class Variables:
    """Analysis of the variables of a kernel."""

    def __init__(self, node: Node, data: bytes) -> None:
        self.node, self.data = node, data
        bodies = [n for n in children(node) if n["kind"] == "CompoundStmt"]
        if not bodies:
            raise Unknown("a declaration")
        self.body = bodies[0]
        self.parent = parents(self.body)
        self.variables: dict[str, Variable] = {}
        self.at_level: set[int] = set()  # statements between barriers that are not nested in others

    def find_uses(self) -> None:
        for node in walk(self.body):
            if node["kind"] != "DeclRefExpr":
                continue
            found = self.variables.get(node["referencedDecl"]["id"])
            if found is None:
                if node["referencedDecl"].get("name") in (*_INDICES, "threadIdx") and not is_read(node, self.parent):
                    raise Unknown("an index that is changed")
                continue
            found.uses.append(start_of(node))
            if not is_read(node, self.parent):
                found.changes.append(start_of(node))
                write = write_of(node, self.parent)
                if write is None:
                    found.exposed = True
                else:
                    found.writes.append(write)

    def find_uniform(self) -> None:
        """Find the variables that are the same for all threads."""
        # Nodes that, if they are writes, may be executed once for the block.
        places = {id(bare(n)) for n in walk(self.body) if id(n) in self.at_level}
        for variable in self.variables.values():
            whole = all(id(w) in places for w in variable.writes)
            if variable.how == "uniform":  # a parameter
                if variable.exposed or not whole:
                    raise Unknown("a parameter that is changed")
            elif variable.how == "local" and variable.is_scalar and not variable.exposed and whole:
                variable.how = "uniform"
        changed = True
        while changed:
            changed = False
            for variable in self.variables.values():
                if variable.how != "uniform":
                    continue
                given = [n for w in variable.writes for n in children(w)[1:]]
                if variable.initial is not None:
                    given.append(variable.initial)
                if all(self.is_uniform(n) for n in given) and not any(self.varies(w, variable) for w in variable.writes):
                    continue
                if variable.node["kind"] == "ParmVarDecl":
                    raise Unknown("a parameter that differs")
                variable.how = "local"
                changed = True

    def varies(self, write: Node, variable: Variable) -> bool:
        """Return whether some of the threads that have a variable in scope may skip a change of it."""
        declared = self.parent.get(id(variable.node))
        around = self.body if declared is None else self.parent[id(declared)]
        while write is not around:
            write = self.parent[id(write)]
            # Only `if` is checked: loops that some threads leave before others are refused.
            if write["kind"] == "IfStmt" and not self.is_uniform(control_of(write)[1]):
                return True
        return False

    def is_uniform(self, node: Node, fixed: bool = False, threads: bool = False) -> bool:
        """Return whether an expression has the same value for all threads, and no side effects.

        With `fixed`, the value must also be the same at any time; with `threads`, it may depend on threadIdx.
        """
        node = bare(node)
        kind = node["kind"]
        if kind in LITERALS:
            return True
        if kind in CASTS:
            inner = bare(children(node)[0])
            if node["castKind"] == "LValueToRValue":
                return self.is_uniform_read(inner, fixed, threads)
            if node["castKind"] == "ArrayToPointerDecay":
                return self.is_shared(inner)
            return node["castKind"] in _PLAIN_CASTS and self.is_uniform(inner, fixed, threads)
        if kind == "DeclRefExpr":
            return bool(node["referencedDecl"]["kind"] == "EnumConstantDecl")
        if kind == "UnaryExprOrTypeTraitExpr":
            return not children(node)
        known = (
            (kind == "BinaryOperator" and not is_write(node) and node["opcode"] not in (",", ".*", "->*"))
            or (kind == "UnaryOperator" and node["opcode"] in ("+", "-", "~", "!"))
            or kind == "ConditionalOperator"
        )
        return known and all(self.is_uniform(n, fixed, threads) for n in children(node))

    def is_uniform_read(self, node: Node, fixed: bool, threads: bool) -> bool:
        member = node["kind"] == "MemberExpr"
        if member:
            if node["isArrow"]:
                return False
            node = bare(children(node)[0])
        if node["kind"] != "DeclRefExpr":
            return False
        declared = node["referencedDecl"]
        found = self.variables.get(declared["id"])
        if found is not None:
            if found.how == "uniform":
                return not (fixed and found.writes)
            return (threads and found.pure) or bool(found.node.get("constexpr") and found.is_scalar)
        if member:
            return declared["name"] in _INDICES or (threads and declared["name"] == "threadIdx")
        return is_constant(declared)

    def is_shared(self, node: Node) -> bool:
        """Return whether an array is in the block's shared memory."""
        if node["kind"] != "DeclRefExpr":
            return False
        declared = node["referencedDecl"]
        found = self.variables.get(declared["id"])
        return declared["name"] == "hgcpu_dynamic" if found is None else found.how == "fixed" and "tls" in found.node
