"""Split kernels at their barriers: loops over the threads of a block in place of threads that wait for each other.

clang prints the syntax tree of a kernel. Where the tree shows that all threads of a block reach each ``__syncthreads()``
together, a second function is written beside the kernel that runs a whole block: what stands between two barriers is a loop
over the threads, which can become vector code, and no thread ever waits. The parts are the user's own text; of it only the
names of variables that live across a barrier are replaced, and ``return``. See docs/cpu_kernels.md for what is split.

Whatever is not understood raises `_Unknown`, and the kernel stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from .syntax import Node, bare, children, documents, end_of, is_write, named, start_of, walk, writes_of

#: Threads of a block at most, and a cache line more, so that variables do not lie a multiple of the page apart.
_THREADS: Final = 1024 + 16
#: Bytes of a stack for what lives across barriers.
_KEPT_BYTES: Final = 512 * 1024
_BARRIER: Final = "__syncthreads"
_MARK: Final = "hgcpu_synced_"
_INDICES: Final = frozenset({"blockIdx", "blockDim", "gridDim"})
_CASTS: Final = frozenset(
    {"ImplicitCastExpr", "CStyleCastExpr", "CXXStaticCastExpr", "CXXFunctionalCastExpr", "CXXReinterpretCastExpr"}
)
_PLAIN_CASTS: Final = frozenset(
    """NoOp IntegralCast IntegralToFloating FloatingToIntegral FloatingCast IntegralToBoolean FloatingToBoolean PointerToBoolean
    BooleanToSignedIntegral BitCast NullToPointer""".split()  # noqa: SIM905
)
_LITERALS: Final = frozenset(
    {"IntegerLiteral", "FloatingLiteral", "CXXBoolLiteralExpr", "CharacterLiteral", "CXXNullPtrLiteralExpr"}
)
#: Two braces close it.
_LOOPS_OPEN: Final = (
    "\nfor (uint32_t hgcpu_z = 0; hgcpu_z < hgcpu_n.z; ++hgcpu_z) for (uint32_t hgcpu_y = 0; hgcpu_y < hgcpu_n.y; ++hgcpu_y) {"
    "threadIdx.y = hgcpu_y; threadIdx.z = hgcpu_z;"
    "const size_t hgcpu_row = ((size_t)hgcpu_z * hgcpu_n.y + hgcpu_y) * hgcpu_n.x;"
    "HGCPU_ROW for (uint32_t hgcpu_x = 0; hgcpu_x < hgcpu_n.x; ++hgcpu_x) {"
    "threadIdx.x = hgcpu_x; const size_t hgcpu_t = hgcpu_row + hgcpu_x; (void)hgcpu_t;"
)
_LOOPS: Final = frozenset({"ForStmt", "WhileStmt", "DoStmt"})
_JUMPS: Final = frozenset({"BreakStmt", "ContinueStmt"})
#: What is not looked into: code of its own, jumps, types of its own.
_REFUSED: Final = frozenset(
    """GotoStmt IndirectGotoStmt LabelStmt LambdaExpr GCCAsmStmt MSAsmStmt CXXTryStmt CXXForRangeStmt StmtExpr CXXRecordDecl
    RecordDecl FunctionDecl DecompositionDecl BlockExpr CXXThrowExpr CoroutineBodyStmt""".split()  # noqa: SIM905
)
_NOT_READ: Final = re.compile(
    r"\b(decltype|__typeof__|__typeof|typeof|asm|__asm__|__asm|volatile|alloca|__builtin_alloca\w*)\b|"
    r"^\s*#\s*pragma\s+(?!unroll|nounroll|GCC\s+unroll)", re.MULTILINE,
)  # fmt: skip
_TAKEN: Final = re.compile(r"\bhgcpu_(?!synced_|own_|dynamic\b|assert_failed\b)")  # a user's name that may be one of ours
_SCALAR: Final = re.compile(
    r"(?:(?:const|unsigned|signed|char|short|int|long|float|double|bool|_Float16|__int128) ?)+(?:\*(?:const|__restrict| )*)*"
)


class _Unknown(Exception):
    """The tree has something that is not understood."""


@dataclass(slots=True, eq=False)
class _Variable:
    """A parameter, or a variable that is declared between barriers (not inside of a statement there).

    Attributes
    ----------
    node : dict
        Its declaration.
    uses : list of int
        Where it is named: offsets.
    changes : list of int
        Those of them that do more than read it.
    writes : list of dict
        Statements that change it, beside its initialiser.
    exposed : bool
        Whether its address, or a reference to it, may be somewhere.
    how : {"local", "uniform", "fixed", "kept", "again"}
        It stays in its part; it is the same for all threads, and one for the block; it is declared as it was, outside of
        threads; each thread's is kept in an array; or it is computed again in each part that needs it.
    pure : bool
        Whether computing it again gives the same, at any time after its declaration.
    part : _Part or None
        Where it is declared, if a thread declares it.
    """

    node: Node
    number: int
    uses: list[int] = field(default_factory=list)
    changes: list[int] = field(default_factory=list)
    writes: list[Node] = field(default_factory=list)
    exposed: bool = False
    how: str = "local"
    pure: bool = False
    part: _Part | None = None

    @property
    def name(self) -> str:
        return str(self.node["name"])

    @property
    def type(self) -> str:
        kind = self.node["type"]
        return str(kind.get("desugaredQualType", kind["qualType"]))

    @property
    def is_scalar(self) -> bool:
        return bool(_SCALAR.fullmatch(self.type))

    @property
    def initial(self) -> Node | None:
        inner = [n for n in children(self.node) if not str(n["kind"]).endswith("Attr")]
        return inner[-1] if inner and "init" in self.node else None


@dataclass(slots=True, eq=False)
class _Part:
    """Statements between barriers, in a loop over the threads."""

    number: int
    statements: list[Node] = field(default_factory=list)
    returns: bool = False
    repeats: bool = False  # in a loop


def split(
    marked: str, kernels: Sequence[str], wanted: Container[str], tree: Callable[[str, str], str]
) -> tuple[str, dict[str, str]]:
    """Write a function beside each kernel that can be split.

    Parameters
    ----------
    marked : str
        What `weave` made, with marks at the kernels' names.
    kernels : sequence of str
        Kernels with their namespaces, whose only waits are barriers in their own bodies: `Woven.synced`.
    wanted : container of str
        Kernels that somebody asked for.
    tree : callable
        Gives clang's syntax tree of a text, as JSON: of the functions whose names contain a word.

    Returns
    -------
    text : str
        With the functions.
    functions : dict
        The function of each kernel that was split.
    """
    data = marked.encode()
    found: dict[str, str] = {}
    edits: list[tuple[int, bytes]] = []
    for node in documents(tree(marked, _MARK)) if any(k in wanted for k in kernels) else ():
        mark = re.search(rf"{_MARK}(\d+)_", node.get("name", ""))
        name = kernels[int(mark[1])] if mark else ""
        if name not in wanted or node["kind"] != "FunctionDecl":
            continue
        made = f"hgcpu_split_{len(found)}"
        try:
            function = _Kernel(data, node).function(made)
            end = end_of(node)
            # As of a system header: the compiler's warnings are about the kernel itself.
            edits.append((end, f'\n# 1 "hgcpu split" 3\n{function}\n{_marker(data, end)}'.encode()))
        except (_Unknown, KeyError):
            continue
        space, colons, _ = name.rpartition("::")
        found[name] = f"{space}{colons}{made}"
    for at, more in sorted(edits, reverse=True):
        data = data[:at] + more + data[at:]
    return re.sub(rf"{_MARK}\d+_", "", data.decode()), found


def _marker(data: bytes, at: int) -> str:
    """Return a marker that gives what follows its own line again."""
    last = None
    for last in re.finditer(rb'^# (\d+) ("[^"\n]*")[^\n]*\n', data[:at], re.MULTILINE):  # noqa: B007
        pass
    if last is None:
        raise _Unknown("no line")
    line = int(last[1]) + data.count(b"\n", last.end(), at)
    return f"# {line} {last[2].decode()}\n"


class _Kernel:
    def __init__(self, data: bytes, node: Node) -> None:
        self.data = data
        self.node = node
        bodies = [n for n in children(node) if n["kind"] == "CompoundStmt"]
        if not bodies:
            raise _Unknown("a declaration")
        self.body = bodies[0]
        self.parent: dict[int, Node] = {}
        self.barriers: set[int] = set()  # nodes with one inside
        self.variables: dict[str, _Variable] = {}
        self.at_level: set[int] = set()  # statements that stand between barriers, and not inside of others
        self.parts: list[_Part] = []
        self.part: _Part | None = None
        self.loops = 0

    def function(self, name: str) -> str:
        """Return the function that runs a block."""
        text = self.text(start_of(self.body), end_of(self.body))
        if (
            _NOT_READ.search(text)
            or _TAKEN.search(self.text(start_of(self.node), end_of(self.node)))
            or "..." in self.text(start_of(self.node), start_of(self.body))
        ):
            raise _Unknown("words")
        for node in walk(self.body):
            if node["kind"] in _REFUSED:
                raise _Unknown(node["kind"])
            for child in children(node):
                self.parent[id(child)] = node
        calls = [n for n in walk(self.body) if self.is_barrier(n)]
        mentions = [n for n in walk(self.body) if n.get("referencedDecl", {}).get("name") == _BARRIER]
        if not calls or len(calls) != len(mentions) or len(calls) != len(re.findall(rf"\b{_BARRIER}\b", text)):
            raise _Unknown("barriers")
        for call in calls:
            node = call
            while node is not self.body:
                self.barriers.add(id(node))
                node = self.parent[id(node)]
        for parameter in children(self.node):
            if parameter["kind"] == "ParmVarDecl" and "name" in parameter:
                self.variables[parameter["id"]] = _Variable(parameter, len(self.variables), how="uniform")
        self.level(children(self.body))
        self.find_uses()
        self.find_uniform()
        written = self.region(children(self.body), start_of(self.body) + 1)
        self.find_kept()
        if any(p.returns and (p.repeats or p is not self.parts[-1]) for p in self.parts):
            written = [f"bool hgcpu_gone[{_THREADS}] = {{}};", *written]
        kept = [v for v in self.variables.values() if v.how == "kept"]
        declared = [f"alignas(64) hgcpu_plain<{v.type}>::type hgcpu_kept_{v.number}[{_THREADS}];" for v in kept]
        if kept:
            sizes = " + ".join(f"sizeof hgcpu_kept_{v.number}" for v in kept)
            declared.append(f'static_assert({sizes} <= {_KEPT_BYTES}, "too much for a stack");')
        head = self.text(int(self.node["loc"]["offset"]) + int(self.node["loc"]["tokLen"]), start_of(self.body))
        body = "".join(piece if isinstance(piece, str) else self.loop(piece) for piece in (*declared, *written))
        return (
            f"static inline __attribute__((always_inline, unused)) void {name}{head}{{ const dim3 hgcpu_n = blockDim; {body}\n}}"
        )

    def text(self, start: int, end: int) -> str:
        return self.data[start:end].decode()

    def is_barrier(self, node: Node) -> bool:
        if node["kind"] != "CallExpr":
            return False
        called = children(node)[0]
        called = children(called)[0] if called["kind"] == "ImplicitCastExpr" else called
        reference = called.get("referencedDecl", {})
        return bool(reference.get("kind") == "FunctionDecl" and reference.get("name") == _BARRIER)

    # -- what stands between barriers ---------------------------------------------------------------------------------------

    def level(self, statements: Sequence[Node]) -> None:
        """Find the variables and statements between barriers."""
        for node in statements:
            kind = node["kind"]
            self.at_level.add(id(node))
            if kind == "DeclStmt":
                for declared in children(node):
                    if declared["kind"] == "VarDecl":
                        self.declare(declared)
                    elif declared["kind"] not in ("TypedefDecl", "TypeAliasDecl", "StaticAssertDecl", "EmptyDecl"):
                        raise _Unknown(declared["kind"])
            if id(node) not in self.barriers or self.is_barrier(node):
                continue
            if kind == "CompoundStmt":
                self.level(children(node))
            elif kind == "IfStmt" or kind in _LOOPS:
                if any(node.get(key) for key in ("hasInit", "hasVar", "isConsteval", "isConstexpr")):
                    raise _Unknown(kind)
                for child in self.header(node):
                    if child and child["kind"] == "DeclStmt":
                        self.level([child])
                    elif child:
                        self.at_level.add(id(child))
                for child in self.branches(node):
                    self.level(children(child) if child["kind"] == "CompoundStmt" else [child])
            else:
                raise _Unknown(kind)

    def declare(self, node: Node) -> None:
        if "name" not in node or node["name"].startswith("hgcpu_") or node.get("storageClass") == "extern":
            raise _Unknown("declaration")
        how = "fixed" if node.get("storageClass") == "static" or node.get("constexpr") else "local"
        self.variables[node["id"]] = _Variable(node, len(self.variables), how=how)

    @staticmethod
    def header(node: Node) -> list[Node]:
        """Return what stands in the parentheses of a statement; the condition last, and of `for` the step behind it."""
        inner = node["inner"]
        if node["kind"] == "ForStmt":
            return [inner[0], inner[2], inner[3]]
        return [inner[1] if node["kind"] == "DoStmt" else inner[0]]

    @staticmethod
    def branches(node: Node) -> list[Node]:
        inner = node["inner"]
        if node["kind"] == "DoStmt":
            return [inner[0]]
        return inner[1:] if node["kind"] == "IfStmt" else [inner[-1]]

    # -- variables --------------------------------------------------------------------------------------------------------

    def find_uses(self) -> None:
        for node in walk(self.body):
            if node["kind"] != "DeclRefExpr":
                continue
            found = self.variables.get(node["referencedDecl"]["id"])
            if found is None:
                if node["referencedDecl"].get("name") in (*_INDICES, "threadIdx") and not self.is_read(node):
                    raise _Unknown("an index that is changed")
                continue
            found.uses.append(start_of(node))
            if not self.is_read(node):
                found.changes.append(start_of(node))
                write = self.write_of(node)
                if write is None:
                    found.exposed = True
                else:
                    found.writes.append(write)

    def place(self, node: Node) -> Node:
        """Return the outermost part of what is named by members and indices of a variable."""
        while True:
            above = self.parent[id(node)]
            kind = above["kind"]
            if kind == "ParenExpr" or (kind == "MemberExpr" and not above["isArrow"]):
                node = above
            elif kind == "ImplicitCastExpr" and above["castKind"] == "ArrayToPointerDecay":
                subscript = self.parent[id(above)]
                if subscript["kind"] != "ArraySubscriptExpr" or children(subscript)[0] is not above:
                    return node
                node = subscript
            else:
                return node

    def is_read(self, node: Node) -> bool:
        above = self.parent[id(self.place(node))]
        return bool(
            (above["kind"] == "ImplicitCastExpr" and above["castKind"] == "LValueToRValue")
            or above["kind"] == "UnaryExprOrTypeTraitExpr"
        )

    def write_of(self, node: Node) -> Node | None:
        """Return the statement that changes a variable; None where it may do anything with it."""
        node = self.place(node)
        above = self.parent[id(node)]
        if not is_write(above) or children(above)[0] is not node:
            return None
        outer = self.parent[id(above)]
        while outer["kind"] == "ParenExpr" or (outer["kind"] == "BinaryOperator" and outer["opcode"] == ","):
            outer = self.parent[id(outer)]
        ends = above.get("valueCategory") == "prvalue" or outer["kind"].endswith("Stmt")
        return above if ends or (outer["kind"] == "ImplicitCastExpr" and outer["castKind"] == "LValueToRValue") else None

    def find_uniform(self) -> None:
        """Find the variables that are the same for all threads."""
        # Writes that may be made once for the block.
        places = {id(w) for n in walk(self.body) if id(n) in self.at_level for w in writes_of(n)}
        for variable in self.variables.values():
            whole = all(id(w) in places for w in variable.writes)
            if variable.how == "uniform":  # a parameter
                if variable.exposed or not whole:
                    raise _Unknown("a parameter that is changed")
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
                if all(self.is_uniform(n) for n in given):
                    continue
                if variable.node["kind"] == "ParmVarDecl":
                    raise _Unknown("a parameter that differs")
                variable.how = "local"
                changed = True

    def is_uniform(self, node: Node, fixed: bool = False, threads: bool = False) -> bool:
        """Return whether a value is the same for all threads, and computing it changes nothing.

        With `fixed`, also at any time; with `threads`, threadIdx may be in it, and what is computed from that.
        """
        node = bare(node)
        kind = node["kind"]
        if kind in _LITERALS:
            return True
        if kind in _CASTS:
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
        kind = declared["type"]["qualType"]
        return declared["kind"] == "VarDecl" and kind.startswith("const ") and bool(_SCALAR.fullmatch(kind)) and "*" not in kind

    def is_shared(self, node: Node) -> bool:
        """Return whether an array is the block's."""
        if node["kind"] != "DeclRefExpr":
            return False
        declared = node["referencedDecl"]
        found = self.variables.get(declared["id"])
        return declared["name"] == "hgcpu_dynamic" if found is None else found.how == "fixed" and "tls" in found.node

    # -- parts ------------------------------------------------------------------------------------------------------------

    def region(self, statements: Sequence[Node], before: int) -> list[Any]:
        """Return pieces of text and the parts of a list of statements; `before` is where the text before them ends."""
        out: list[Any] = []
        for node in statements:
            kind = node["kind"]
            if self.is_barrier(node):
                self.part = None
            elif id(node) in self.barriers and kind == "CompoundStmt":
                self.part = None
                out += ["{", *self.region(children(node), start_of(node) + 1), "}"]
                self.part = None
            elif id(node) in self.barriers:
                self.part = None
                out += self.control(node)
                self.part = None
            elif kind == "DeclStmt":
                self.declaration(node, out)
            elif (writes := writes_of(node)) and all(self.is_uniform_write(w) for w in writes):
                self.part = None
                out.append(f"\n{self.text(start_of(node), end_of(node))};")
            elif kind != "NullStmt":
                out += self.statement(node)
        return out

    def statement(self, node: Node) -> list[Any]:
        out = []
        if self.part is None:
            self.part = _Part(len(self.parts), repeats=self.loops > 0)
            self.parts.append(self.part)
            out.append(self.part)
        for inner in walk(node):
            if inner["kind"] == "ReturnStmt":
                self.part.returns = True
            if inner["kind"] in _JUMPS and not self.within(inner, node):
                raise _Unknown("a jump out of a part")
        self.part.statements.append(node)
        return out

    def within(self, jump: Node, statement: Node) -> bool:
        """Return whether what a `break` or `continue` leaves is inside of a statement."""
        node = jump
        while node is not statement:
            node = self.parent[id(node)]
            if node["kind"] in _LOOPS or (node["kind"] == "SwitchStmt" and jump["kind"] == "BreakStmt"):
                return True
        return False

    def declaration(self, node: Node, out: list[Any]) -> None:
        declared = [self.variables.get(n["id"]) for n in children(node)]
        whole = all(v is None or v.how in ("uniform", "fixed") for v in declared)
        fixed = [f"\n{self.text(start_of(node), end_of(node))}\n"] if whole else []
        if not whole:
            if any(v is None or v.how == "fixed" for v in declared):
                raise _Unknown("declarations of two kinds")
            for variable in declared:
                if variable is not None and variable.how == "uniform":
                    first = variable.initial
                    value = f" = {self.text(start_of(first), end_of(first))}" if first else ""
                    fixed.append(f"\n{variable.type} {variable.name}{value};\n")
        if fixed:
            # Declared before the part that has begun, where nothing changes what it is computed from; but not where it would hide
            # another variable, or a type, from that part.
            names = "|".join(re.escape(str(n["name"])) for n in children(node) if "name" in n)
            before = self.part.statements if self.part is not None else []
            hides = any(re.search(rf"\b(?:{names})\b", self.text(start_of(s), end_of(s))) for s in before)
            if self.part is not None and (self.part.returns or hides):
                self.part = None
            at = len(out) if self.part is None else out.index(self.part)
            out[at:at] = fixed
        if not whole:
            out += self.statement(node)
            for variable in declared:
                if variable is not None and variable.how != "uniform":
                    variable.part = self.part

    def is_uniform_write(self, node: Node) -> bool:
        target = bare(children(node)[0])
        variable = self.variables.get(target["referencedDecl"]["id"])
        return variable is not None and variable.how == "uniform"

    def control(self, node: Node) -> list[Any]:
        """Return an `if` or a loop that all threads go through together."""
        header = self.header(node)
        condition = header[1] if node["kind"] == "ForStmt" else header[0]
        if condition and not self.is_uniform(condition):
            raise _Unknown("a condition that may differ")
        if node["kind"] == "ForStmt":
            first, _, step = header
            if first and first["kind"] == "DeclStmt":
                if any(self.variables[n["id"]].how != "uniform" for n in children(first)):
                    raise _Unknown("a loop's variable that may differ")
            elif first and not self.only_uniform_writes(first):
                raise _Unknown("a loop that begins with more")
            if step and not self.only_uniform_writes(step):
                raise _Unknown("a loop's step that may differ")
        branches = self.branches(node)
        self.loops += node["kind"] in _LOOPS
        out: list[Any] = []
        at = start_of(node)
        for branch in branches:
            compound = branch["kind"] == "CompoundStmt"
            self.part = None
            out += [f"\n{self.text(at, start_of(branch))}{{"]
            out += self.region(children(branch) if compound else [branch], start_of(branch) + compound)
            out.append("}")
            at = end_of(branch)
            while self.data[at : at + 1] in (b";", b" ", b"\n") and not compound:
                at += 1
        self.loops -= node["kind"] in _LOOPS
        if node["kind"] == "DoStmt":
            out.append(f"{self.text(at, end_of(node))};")
        return out

    def only_uniform_writes(self, node: Node) -> bool:
        writes = writes_of(node)
        return bool(writes) and all(self.is_uniform_write(w) for w in writes)

    # -- what lives across barriers -------------------------------------------------------------------------------------------

    def find_kept(self) -> None:
        """Find what lives across barriers, and which of it can be computed again."""
        names = [n["name"] for n in walk(self.node) if n["kind"] in ("VarDecl", "ParmVarDecl") and "name" in n]
        types = any(n["kind"] in ("TypedefDecl", "TypeAliasDecl") for n in walk(self.body))
        for variable in self.variables.values():
            if variable.how != "local":
                continue
            first = variable.initial
            variable.pure = (
                first is not None and variable.is_scalar and not variable.writes and not variable.exposed
                and self.is_uniform(first, fixed=True, threads=True)
                # Its names mean the same wherever it is computed again.
                and all(names.count(d["name"]) == (d["id"] in self.variables) for d in named(first))
                and not (types and any(n["kind"] in _CASTS - {"ImplicitCastExpr"} for n in walk(first)))
            )  # fmt: skip
            elsewhere = any(not self.is_in(use, variable.part) for use in variable.uses)
            if not elsewhere and ("&" in variable.type or not variable.exposed):
                continue
            if "&" in variable.type:
                raise _Unknown("a reference")
            variable.how = "again" if variable.pure else "kept"
            self.must_be_known(variable)

    def is_in(self, use: int, part: _Part | None) -> bool:
        return part is not None and any(start_of(s) <= use < end_of(s) for s in part.statements)

    def must_be_known(self, variable: _Variable) -> None:
        """Ask that the tree has each mention of a variable's name, and none where it is declared would need its new name."""
        known = set()
        for node in walk(self.node):
            if node.get("referencedDecl", node).get("name") == variable.name:
                known.add(int((node["loc"] if "loc" in node else node["range"]["begin"])["offset"]))
                known.add(int(node["range"]["end"]["offset"]))
        spelled = re.compile(rf"\b{re.escape(variable.name)}\b".encode())
        if any(m.start() not in known for m in spelled.finditer(self.data, start_of(self.body), end_of(self.body))):
            raise _Unknown("a name that the tree does not have")
        statement = self.parent[id(variable.node)]
        if any(start_of(statement) <= use < end_of(statement) for use in variable.changes):
            raise _Unknown("a variable that is changed where it is declared")

    def loop(self, part: _Part) -> str:
        """Return a part as a loop over the threads."""
        edits: dict[tuple[int, int], str] = {}
        again: list[_Variable] = []
        for variable in self.variables.values():
            if variable.how not in ("kept", "again"):
                continue
            statement = self.parent[id(variable.node)]
            for use in variable.uses:
                if not self.is_in(use, part) or start_of(statement) <= use < end_of(statement):
                    continue
                place = use, use + len(variable.name.encode())
                if variable.how == "kept":
                    edits[place] = f"hgcpu_kept_{variable.number}[hgcpu_t]"
                elif variable.part is not part:
                    edits[place] = f"hgcpu_again_{variable.number}"
                    again.append(variable)
        final = part is self.parts[-1] and not part.repeats
        gone = any(p.returns and (p.number < part.number or part.repeats) for p in self.parts)
        leave = f"goto hgcpu_end_{part.number}" if final else f"for (hgcpu_gone[hgcpu_t] = true;;) goto hgcpu_end_{part.number}"
        edits |= {(start_of(n), end_of(n)): leave for s in part.statements for n in walk(s) if n["kind"] == "ReturnStmt"}
        renamed = {
            (use, use + len(v.name.encode())): f"hgcpu_again_{v.number}"
            for v in self.variables.values() if v.pure for use in v.uses
        }  # fmt: skip
        body = []
        for variable in self.needed(again):
            assert variable.initial is not None
            value = self.edited(variable.initial, renamed)
            body.append(f"const hgcpu_plain<{variable.type}>::type hgcpu_again_{variable.number} = {value};")
        for statement in part.statements:
            declares = statement["kind"] == "DeclStmt"
            body.append(f"\n{self.edited(statement, edits)}{'' if declares else ';'}")
            body += [self.keep(n) for n in children(statement)] if declares else []
        check = "if (hgcpu_gone[hgcpu_t]) continue;" if gone else ""
        end = f"hgcpu_end_{part.number}:;" if part.returns else ""
        ended = "if (hgcpu_all(hgcpu_gone, hgcpu_n)) return;" if part.returns and not final else ""
        return f"{_LOOPS_OPEN}{check}{{{''.join(body)}\n}}{end}}}}}{ended}"

    def needed(self, wanted: Sequence[_Variable]) -> list[_Variable]:
        """Return the variables to compute again, each after those that it needs."""
        out: list[_Variable] = []

        def add(variable: _Variable) -> None:
            initial = variable.initial
            assert initial is not None
            for declared in named(initial):
                other = self.variables.get(declared["id"])
                if other is not None and other.pure:
                    add(other)
            if variable not in out:
                out.append(variable)

        for variable in wanted:
            add(variable)
        return out

    def keep(self, declared: Node) -> str:
        variable = self.variables.get(declared["id"])
        if variable is None or (variable.is_scalar and variable.how != "kept"):
            return ""
        if variable.how == "kept" and variable.initial is not None:
            return f" hgcpu_keep(hgcpu_kept_{variable.number}[hgcpu_t], {variable.name});"
        if "&" in variable.type:
            return ""
        return f' static_assert(__is_trivially_copyable(__typeof__({variable.name})), "ends with its part");'

    def edited(self, node: Node, edits: dict[tuple[int, int], str]) -> str:
        out, at = [], start_of(node)
        for (start, end), text in sorted(edits.items()):
            if at <= start < end_of(node):
                out += [self.text(at, start), text]
                at = end
        return "".join([*out, self.text(at, end_of(node))])
