"""Split kernels at their barriers into loops over the threads of a block, so that no thread has to wait for others.

If clang's syntax tree of a kernel shows that all threads of a block reach each ``__syncthreads()`` together, a second function
that runs a whole block is added to the source. In it, each part between two barriers is a loop over the threads, which the
compiler can vectorize, and no thread ever waits. The parts are the user's own text, in which only ``return`` and the names of
variables that live across a barrier are replaced. docs/cpu_kernels.md lists what is split.

Any construct that is not supported raises `Unknown`, and the kernel is not split.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence, Set
from itertools import groupby
from typing import Final

from .regions import Piece, Region, regions
from .syntax import Node, bare, called, children, control_of, edited, end_of, is_write, named, start_of, walk
from .tokens import place_behind
from .uniform import CASTS, LOOPS, SCALAR, Part, Unknown, Variable, Variables, is_constant
from .warps import OPERATION, OWN, PURE, QUIET, Calls, Flat, calls_of

#: Maximum number of threads of a block.
_THREADS: Final = 1024
#: Maximum bytes on the stack for variables that live across barriers.
_KEPT_BYTES: Final = 512 * 1024
_BARRIER: Final = "__syncthreads"
_MARK: Final = "hgcpu_synced_"
#: File name of a kernel's split function in the compiler's messages; the kernel's number follows.
_NAMED: Final = "hgcpu split "
_MARKS: Final = re.compile(rf"{_MARK}(\d+|f)_")
_JUMPS: Final = frozenset({"BreakStmt", "ContinueStmt"})
#: Kinds of nodes that need no per-thread memory themselves.
_STEPS: Final = _JUMPS | LOOPS | {"DeclStmt", "CompoundStmt", "IfStmt", "ReturnStmt", "NullStmt", "CompoundAssignOperator"}
#: Kinds of nodes that are not supported: nested code, jumps, local types.
_REFUSED: Final = frozenset(
    """GotoStmt IndirectGotoStmt LabelStmt LambdaExpr GCCAsmStmt MSAsmStmt CXXTryStmt CXXForRangeStmt StmtExpr CXXRecordDecl
    RecordDecl FunctionDecl DecompositionDecl BlockExpr CXXThrowExpr CoroutineBodyStmt""".split()  # noqa: SIM905
)
_NOT_READ: Final = re.compile(
    r"\b(decltype|__typeof__|__typeof|typeof|asm|__asm__|__asm|volatile|alloca|__builtin_alloca\w*)\b|"
    r"^\s*#\s*pragma\s+(?!unroll|nounroll|GCC\s+unroll)", re.MULTILINE,
)  # fmt: skip

_INLINE: Final = "__attribute__((always_inline))"
_GONE: Final = "hgcpu_gone + hgcpu_warp.first"
_ENDED: Final = "if (hgcpu_all(hgcpu_gone, hgcpu_n.x * hgcpu_n.y * hgcpu_n.z)) return;"
#: Steps of loops that turn at most 64 times for a positive number.
_FEW_STEPS: Final = frozenset({"/=", "*=", ">>=", "<<="})

Trees = Callable[[str, str], list[Node]]


def split(
    text: str, marked: str, kernels: Sequence[str], wanted: Container[str], leading: Set[str], tree: Trees
) -> tuple[str, dict[str, str]]:
    """Add a function that runs a whole block for each of the `wanted` kernels that can be split.

    `text`, `marked`, `kernels` (there `synced`) and `leading` are fields of `Woven`. ``tree(text, word)`` returns the
    syntax trees of the functions whose names contain a word. Returns the text with the functions, and for each split
    kernel the additional template argument of `hgcpu_kernel`.
    """
    data = marked.encode()
    trees = tree(marked, _MARK) if any(k in wanted for k in kernels) else []
    own = {
        k: node for k, node in _numbered(trees).items()
        if kernels[k] in wanted and not OWN.search(data, start_of(node), end_of(node))
    }  # fmt: skip
    sources = {k: (data, node) for k, node in own.items()}
    flat = {}
    for k, node in own.items():
        if leading & set(re.findall(r"\w+", _MARKS.sub("", data[start_of(node) : end_of(node)].decode()))):
            del sources[k]
            try:
                flat[k] = Flat(data, trees, leading).kernel(node)
            except (Unknown, LookupError, RecursionError):
                continue
    sources |= _flattened(data, {k: own[k] for k in sorted(flat, key=lambda k: start_of(own[k]))}, flat, tree)
    found: dict[str, str] = {}
    for k, (source, node) in sources.items():
        made = f"hgcpu_split_{k}"
        space = kernels[k].rpartition("::")[:2]
        try:
            kernel = _Kernel(source, node)
            file, line = place_behind(data[: end_of(own[k])].decode())
            # Marked as a system header, so that warnings are only about the kernel itself; then the user's line is restored.
            function = f'\n# 1 "{_NAMED}{k}" 3\n{_MARKS.sub("", kernel.function(made))}\n# {line} "{file}"\n'
        except (Unknown, LookupError, RecursionError):
            continue
        text = text.replace(f"/*{made}*/", function)
        found[kernels[k]] = f"hgcpu_pick(&::{''.join(space)}{made})"
    return text, found


def refused(said: str, kernels: Sequence[str]) -> set[str]:
    """Return the kernels whose split functions the compiler's messages name."""
    return {kernels[int(k)] for k in re.findall(rf"^{_NAMED}(\d+):", said, re.MULTILINE)}


def _flattened(
    data: bytes, own: Mapping[int, Node], flat: Mapping[int, tuple[str, Calls]], tree: Trees
) -> dict[int, tuple[bytes, Node]]:
    """Return, for each kernel that `Flat` rewrote, the rewritten text and its tree, except kernels whose calls changed by it.

    clang prints no tree of a text with an error, so bisect the kernels to find those with an error.
    """
    if not own:
        return {}
    whole, at = b"", 0
    for k, node in own.items():
        whole += data[at : start_of(node)] + flat[k][0].encode()
        at = end_of(node)
    whole += data[at:]
    again = _numbered(tree(whole.decode(), _MARK))
    if not again and len(own) > 1:
        numbers = list(own)
        halves = numbers[: len(own) // 2], numbers[len(own) // 2 :]
        first, second = (_flattened(data, {k: own[k] for k in half}, flat, tree) for half in halves)
        return first | second
    return {k: (whole, again[k]) for k in own if k in again and calls_of(again[k]) == flat[k][1]}


def _numbered(trees: Iterable[Node]) -> dict[int, Node]:
    """Return the definitions of the kernels by their numbers."""
    marks = [(re.search(rf"{_MARK}(\d+)_", n.get("name", "")), n) for n in trees]
    return {int(mark[1]): n for mark, n in marks if mark and n["kind"] == "FunctionDecl"}


def _array(kind: str, name: str, value: str = "", *, of_warp: bool = False) -> str:
    """Declare an array over the threads of the block, or of a warp.

    Extra elements keep the distance of the block's arrays from being a multiple of the page size.
    """
    return f"alignas(64) {kind} {name}[{'::warpSize' if of_warp else _THREADS + 16}]{value};"


def _joined(pieces: Iterable[Piece]) -> str:
    return "".join(piece if isinstance(piece, str) else piece() for piece in pieces)


class _Kernel(Variables):
    def __init__(self, data: bytes, node: Node) -> None:
        super().__init__(node, data)
        self.points: set[int] = set()  # nodes with a barrier or a warp operation inside
        self.parts: list[Part] = []
        self.part: Part | None = None
        self.loops = 0
        self.masks = 0
        self.off = 0  # number of the mask of the threads that skip the current code, 0 for none
        self.regions: list[Region] = []  # with warp operations
        self.here: Region | None = None  # that the current code is in
        self.warps = False  # whether there are warp operations
        self.gone = False  # whether threads that have returned are recorded

    def function(self, name: str) -> str:
        """Return the function that runs a block."""
        text = self.text(start_of(self.body), end_of(self.body))
        if _NOT_READ.search(text) or "..." in self.text(start_of(self.node), start_of(self.body)):
            raise Unknown("words")
        for node in walk(self.body):
            if node["kind"] in _REFUSED:
                raise Unknown(node["kind"])
        calls = [n for n in walk(self.body) if called(n) == _BARRIER]
        operations = [n for n in walk(self.body) if called(n).startswith(OPERATION)]
        mentions = [n for n in walk(self.body) if n.get("referencedDecl", {}).get("name", "").startswith((_BARRIER, OPERATION))]
        found = len(re.findall(rf"\b(?:{_BARRIER}\b|{OPERATION})", text))
        self.warps = bool(operations)
        if not mentions or not len(calls) + len(operations) == len(mentions) == found:
            raise Unknown("barriers")
        for call in (*calls, *operations):
            node = call
            while node is not self.body:
                self.points.add(id(node))
                node = self.parent[id(node)]
        for parameter in children(self.node):
            if parameter["kind"] == "ParmVarDecl" and "name" in parameter:
                self.variables[parameter["id"]] = Variable(parameter, len(self.variables), how="uniform")
        self.level(children(self.body))
        self.find_uses()
        self.find_uniform()
        self.find_pure()
        written = self.region(children(self.body))
        self.find_kept()
        self.gone = any(p.returns and (p.repeats or p is not self.parts[-1]) for p in self.parts)
        gone = _array("bool", "hgcpu_gone", " = {}") if self.gone else ""
        head = self.text(int(self.node["loc"]["offset"]) + int(self.node["loc"]["tokLen"]), start_of(self.body))
        body = gone + self.arrays(None) + _joined(written)
        before = "static inline __attribute__((always_inline, unused))"
        return f"{before} void {name}{head}{{ const dim3 hgcpu_n = blockDim; {body}\n}}"

    def text(self, start: int, end: int) -> str:
        return self.data[start:end].decode()

    def arrays(self, region: Region | None, mask: int = 0) -> str:
        """Declare the variables that threads keep: those of the whole block, or of a region, there those declared in a mask."""
        kept = [v for v in self.variables.values() if v.how == "kept" and v.of_warp == (region is not None)]
        if region is not None:
            kept = [v for v in kept if (v.part.off if v.part else 0) == mask and any(map(region.has, v.places))]
        out = [_array(f"hgcpu_plain<{v.type}>::type", f"hgcpu_kept_{v.number}", of_warp=v.of_warp) for v in kept]
        if kept:
            sizes = " + ".join(f"sizeof hgcpu_kept_{v.number}" for v in kept)
            most = _KEPT_BYTES if region is None else _KEPT_BYTES // 8  # a region is compiled several times
            out.append(f'static_assert({sizes} <= {most}, "too much for a stack");')
        return "".join(out)

    # -- code between barriers ----------------------------------------------------------------------------------------------

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
                        raise Unknown(declared["kind"])
            if id(node) not in self.points or self.is_point(node):
                continue
            if kind == "CompoundStmt":
                self.level(children(node))
            elif kind == "IfStmt" or kind in LOOPS:
                if any(node.get(key) for key in ("hasInit", "hasVar", "isConsteval", "isConstexpr")):
                    raise Unknown(kind)
                first, condition, step, bodies = control_of(node)
                self.level([n for n in (first, condition, step) if n])
                for child in bodies:
                    self.level(children(child) if child["kind"] == "CompoundStmt" else [child])
            else:
                raise Unknown(kind)

    @staticmethod
    def is_point(node: Node) -> bool:
        return called(node) == _BARRIER or called(node).startswith(OPERATION)

    def declare(self, node: Node) -> None:
        if "name" not in node or node.get("storageClass") == "extern":
            raise Unknown("declaration")
        how = "fixed" if node.get("storageClass") == "static" or node.get("constexpr") else "local"
        self.variables[node["id"]] = Variable(node, len(self.variables), how=how)

    # -- parts ------------------------------------------------------------------------------------------------------------

    def region(self, statements: Sequence[Node]) -> list[Piece]:
        """Return the pieces of a list of statements; in a kernel with warp operations, those of each region run warp by warp."""
        if not self.warps or self.here:
            return self.sequence(statements)
        out: list[Piece] = []
        for whole, group in groupby(statements, self.is_for_warps):
            for some in regions(self, list(group)) if whole else [list(group)]:
                out += self.by_warps(some) if whole else self.sequence(some)
        return out

    def is_for_warps(self, node: Node) -> bool:
        """Return whether warps can run a statement one after another: no barrier, and nothing changes for the block."""
        start, end = start_of(node), end_of(node)
        return (
            not any(called(n) == _BARRIER for n in walk(node)) and not self.is_uniform_write(node)
            and not any(
                start <= use < end for v in self.variables.values()
                if v.how == "uniform" and not start <= start_of(v.node) < end for use in v.changes
            )
        )  # fmt: skip

    def by_warps(self, statements: Sequence[Node]) -> list[Piece]:
        """Return the pieces of a region."""
        self.here = region = Region(self, statements)
        self.regions.append(region)
        parts, self.part = len(self.parts), None
        written = self.sequence(statements)
        self.here = self.part = None

        def text() -> str:
            inner, before = _joined(written), _joined(region.before)
            if not inner.strip():
                return before
            returns = [p for p in self.parts[parts : parts + region.parts] if p.returns]
            if self.gone:
                fact = f"hgcpu_fact<{str(bool(returns)).lower()}>()"
                inner = f"hgcpu_branch(hgcpu_warp, {fact}, {_GONE}, [&](const auto hgcpu_checks_0) {_INLINE} {{{inner}}});"
            ended = _ENDED if any(not self.is_last(p) for p in returns) else ""
            each = f"[&](const auto hgcpu_warp) {_INLINE} {{{self.arrays(region)}{inner}\n}}"
            return f"{before}\nhgcpu_warps(hgcpu_n, {each});{ended}"

        region.parts = len(self.parts) - parts
        return [text]

    def sequence(self, statements: Sequence[Node]) -> list[Piece]:
        """Return the pieces of statements one after another."""
        out: list[Piece] = []
        for node in statements:
            kind = node["kind"]
            if called(node) == _BARRIER:
                self.part = None
            elif self.is_point(node):
                self.part = None
                out.append(self.operation(node))
            elif id(node) in self.points and kind == "CompoundStmt":
                self.part = None
                out += ["{", *self.region(children(node)), "}"]
                self.part = None
            elif id(node) in self.points:
                self.part = None
                out += self.control(node)
                self.part = None
            elif kind == "DeclStmt":
                self.declaration(node, out)
            elif self.is_uniform_write(node):
                self.part = None
                out.append(f"\n{self.text(start_of(node), end_of(node))};")
            elif kind != "NullStmt":
                self.statement(node, out)
        return out

    def begin(self, part: Part) -> Piece:
        """Add a part, and return its piece."""
        self.parts.append(part)
        return lambda: self.loop(part)

    def statement(self, node: Node, out: list[Piece]) -> None:
        rare = self.warps and node["kind"] == "IfStmt" and not node.get("hasElse") and self.depends_on_index(control_of(node)[1])
        if rare or (self.part and self.part.rare):
            self.part = None
        if self.part is None:
            self.part = Part(len(self.parts), repeats=self.loops > 0, off=self.off, rare=rare)
            out.append(self.begin(self.part))
        for inner in walk(node):
            if inner["kind"] == "ReturnStmt":
                if self.off:
                    raise Unknown("a return that only some threads may reach")
                self.part.returns = True
            if inner["kind"] in _JUMPS and not self.within(inner, node):
                raise Unknown("a jump out of a part")
        self.part.statements.append(node)

    def depends_on_index(self, condition: Node) -> bool:
        return bool(condition) and self.is_uniform(condition, threads=True)

    def within(self, jump: Node, statement: Node) -> bool:
        """Return whether the loop or `switch` that a `break` or `continue` refers to is a statement or inside of it."""
        node = jump
        while node is not statement:
            node = self.parent[id(node)]
            if node["kind"] in LOOPS or (node["kind"] == "SwitchStmt" and jump["kind"] == "BreakStmt"):
                return True
        return False

    def declaration(self, node: Node, out: list[Piece]) -> None:
        declared = [self.variables.get(n["id"]) for n in children(node)]
        ahead = self.here.before if self.here and self.here.is_ahead(node) else None
        if all(v is None or v.how in ("uniform", "fixed") for v in declared):
            self.part = self.part if ahead is not None else None
            (out if ahead is None else ahead).append(f"\n{self.text(start_of(node), end_of(node))}\n")
            return
        if any(v is None or v.how == "fixed" for v in declared):
            raise Unknown("declarations of two kinds")
        for variable in declared:
            if variable is not None and variable.how == "uniform":
                self.part = self.part if ahead is not None else None
                first = variable.initial
                value = f" = {self.text(start_of(first), end_of(first))}" if first else ""
                (out if ahead is None else ahead).append(f"\n{variable.type} {variable.name}{value};\n")
        self.statement(node, out)
        for variable in declared:
            if variable is not None and variable.how != "uniform":
                variable.part = self.part

    def is_uniform_write(self, node: Node) -> bool:
        """Return whether a statement changes a uniform variable."""
        node = bare(node)
        target = bare(children(node)[0]) if is_write(node) else {}
        variable = self.variables.get(target.get("referencedDecl", {}).get("id", ""))
        return variable is not None and variable.how == "uniform"

    def control(self, node: Node) -> list[Piece]:
        """Return the pieces of an `if` or a loop; one that only some threads run is masked or refused."""
        first, condition, step, branches = control_of(node)
        if condition and not self.is_uniform(condition):
            return self.masked(node, condition)
        if first and first["kind"] == "DeclStmt":
            if any(self.variables[n["id"]].how != "uniform" for n in children(first)):
                raise Unknown("a loop's variable that may differ")
        elif first and not self.is_uniform_write(first):
            raise Unknown("a loop that begins with more")
        if step and not self.is_uniform_write(step):
            raise Unknown("a loop's step that may differ")
        self.loops += node["kind"] in LOOPS
        out: list[Piece] = []
        at = start_of(node)
        for branch in branches:
            compound = branch["kind"] == "CompoundStmt"
            self.part = None
            steps = "HGCPU_STEPS " if self.here and step and self.has_few_turns(node) else ""
            out += [f"\n{steps}{self.text(at, start_of(branch))}{{"]
            out += self.region(children(branch) if compound else [branch])
            out.append("}")
            at = end_of(branch)
            while self.data[at : at + 1] in (b";", b" ", b"\n") and not compound:
                at += 1
        self.loops -= node["kind"] in LOOPS
        if node["kind"] == "DoStmt":
            out.append(f"{self.text(at, end_of(node))};")
        return out

    @staticmethod
    def has_few_turns(node: Node) -> bool:
        """Return whether a loop halves or doubles a number between constants, as the steps of a reduction do."""
        first, condition, step, _ = control_of(node)
        own = {d["id"] for d in children(first)} if first else set()
        constant = all(d["id"] in own or is_constant(d) for part in (first, condition) if part for d in named(part))
        return constant and bare(step).get("opcode") in _FEW_STEPS

    def masked(self, node: Node, condition: Node) -> list[Piece]:
        """Return the pieces of an `if` whose body some threads of the block skip."""
        if node["kind"] != "IfStmt" or node.get("hasElse") or any(called(n) == _BARRIER for n in walk(node)):
            raise Unknown("a loop, a barrier or an `else` that only some threads may reach")
        around = self.off
        self.masks += 1
        mask = self.masks
        asked = self.begin(Part(len(self.parts), [condition], repeats=self.loops > 0, off=around, mask=mask))
        self.off, here = mask, self.here
        inner = self.region(control_of(node)[3])
        self.off = around
        return [
            _array("bool", f"hgcpu_off_{mask}", of_warp=True),
            lambda: f"hgcpu_leave_out(hgcpu_warp, hgcpu_off_{mask}, {self.mask(around)});", asked,
            lambda: f"hgcpu_branch(hgcpu_warp, {self.checks(around) or 'hgcpu_fact<false>()'}, hgcpu_off_{mask}, "
            f"[&](const auto hgcpu_checks_{mask}) {_INLINE} {{{self.inside(mask, here, node, inner)}}});",
        ]  # fmt: skip

    def inside(self, mask: int, region: Region | None, node: Node, pieces: Sequence[Piece]) -> str:
        """Return the body of an `if` that becomes a mask, behind the arrays over the lanes that it declares or shares."""
        start, end = start_of(node), end_of(node)
        shared = [
            v for v in self.variables.values()
            if v.of_warp and not start <= start_of(v.node) < end and any(start <= use < end for use in v.uses)
        ]  # fmt: skip
        before, names, behind = "", "", ""
        for v in shared:
            room, kept = f"hgcpu_inside_{mask}_{v.number}", f"hgcpu_kept_{v.number}"
            before += f"hgcpu_inside<hgcpu_checks_{mask}.value, hgcpu_plain<{v.type}>::type> {room}; "
            before += f"auto& {room}_of = {room}.of({kept});"
            names += f"auto& {kept} = {room}_of;"
            behind += f"{room}.back({kept});"
        return f"{before}{{{names}{self.arrays(region, mask)}{_joined(pieces)}}}{behind}"

    def checks(self, mask: int) -> str:
        """Return the C++ name of the fact that threads may skip code outside of all masks or in one; empty if none may."""
        return f"hgcpu_checks_{mask}" if mask or self.gone else ""

    def mask(self, number: int) -> str:
        skips = f"hgcpu_off_{number}" if number else _GONE
        return f"{checks} ? {skips} : nullptr" if (checks := self.checks(number)) else "nullptr"

    def operation(self, node: Node) -> Piece:
        """Return the piece that makes a warp operation for the whole block."""
        name, off = called(node).removeprefix(OPERATION), self.off
        arguments = [bare(n) for n in children(node)[1:]]
        masked = "_sync" in name or name == "__syncwarp"
        if masked and (off or not self.is_uniform(arguments[name != "__syncwarp"])):
            raise Unknown("lanes that a mask names may be elsewhere")
        variables = {}
        for argument in arguments:
            if not self.is_uniform(argument):
                variable = self.variables[named(argument)[0]["id"]]
                variable.met = True
                variables[id(argument)] = variable

        def value(argument: Node) -> str:
            variable = variables.get(id(argument))
            if variable is None:
                return self.text(start_of(argument), end_of(argument))
            return f"hgcpu_kept_{variable.number}{'' if variable.of_warp else ' + hgcpu_warp.first'}"

        def text() -> str:
            return f"\nhgcpu_lanes{name}({', '.join(['hgcpu_warp', *map(value, arguments), self.mask(off)])});"

        return text

    # -- variables that live across barriers ----------------------------------------------------------------------------------

    def find_pure(self) -> None:
        """Find the variables that can be recomputed."""
        names = [n["name"] for n in walk(self.node) if n["kind"] in ("VarDecl", "ParmVarDecl") and "name" in n]
        types = any(n["kind"] in ("TypedefDecl", "TypeAliasDecl") for n in walk(self.body))
        for variable in self.variables.values():
            if variable.how != "local":
                continue
            first = variable.initial
            variable.pure = (
                first is not None and variable.is_scalar and not variable.writes and not variable.exposed
                and self.is_uniform(first, fixed=True, threads=True)
                # The names in the initializer refer to the same variables wherever it is recomputed.
                and all(names.count(d["name"]) == (d["id"] in self.variables) for d in named(first))
                and not (types and any(n["kind"] in CASTS - {"ImplicitCastExpr"} for n in walk(first)))
            )  # fmt: skip

    def find_kept(self) -> None:
        """Find the variables that live across barriers: the code between barriers is known."""
        for variable in self.variables.values():
            if variable.how != "local":
                continue
            elsewhere = any(not self.is_in(use, variable.part) for use in variable.uses)
            if not elsewhere and ("&" in variable.type or not variable.exposed):
                continue
            if "&" in variable.type:
                raise Unknown("a reference")
            variable.how = "again" if variable.pure and not variable.met else "kept"
            around = [region for region in self.regions if any(map(region.has, variable.places))]
            variable.of_warp = bool(around) and all(region.begins(variable) for region in around)
            self.must_be_known(variable)

    def is_in(self, use: int, part: Part | None) -> bool:
        return part is not None and any(start_of(s) <= use < end_of(s) for s in part.statements)

    def must_be_known(self, variable: Variable) -> None:
        """Require that the tree has each mention of a variable's name, and that its own declaration does not change it."""
        known = set()
        for node in walk(self.node):
            if node.get("referencedDecl", node).get("name") == variable.name:
                known.add(int((node["loc"] if "loc" in node else node["range"]["begin"])["offset"]))
                known.add(int(node["range"]["end"]["offset"]))
        spelled = re.compile(rf"\b{re.escape(variable.name)}\b".encode())
        if any(m.start() not in known for m in spelled.finditer(self.data, start_of(self.body), end_of(self.body))):
            raise Unknown("a name that the tree does not have")
        statement = self.parent[id(variable.node)]
        if any(start_of(statement) <= use < end_of(statement) for use in variable.changes):
            raise Unknown("a variable that is changed where it is declared")

    def loop(self, part: Part) -> str:
        """Return a part as a loop over the threads."""
        declared = [d for n in part.statements for d in (children(n) if n["kind"] == "DeclStmt" else [n])]
        given = [self.variables.get(d.get("id", "")) for d in declared]
        if all(v is not None and v.how == "kept" and v.initial is None for v in given):
            return ""
        edits: dict[tuple[int, int], str] = {}
        again: list[Variable] = []
        for variable in self.variables.values():
            if variable.how not in ("kept", "again"):
                continue
            statement = self.parent[id(variable.node)]
            for use in variable.uses:
                if not self.is_in(use, part) or start_of(statement) <= use < end_of(statement):
                    continue
                place = use, use + len(variable.name.encode())
                if variable.how == "kept":
                    edits[place] = f"hgcpu_kept_{variable.number}[{variable.index}]"
                elif variable.part is not part:
                    edits[place] = f"hgcpu_again_{variable.number}"
                    again.append(variable)
        final = self.is_last(part)
        gone = part.off or any(p.returns and (p.number < part.number or part.repeats) for p in self.parts)
        leave = "return" if final else "for (hgcpu_gone[hgcpu_t] = true;;) return"
        edits |= {(start_of(n), end_of(n)): leave for s in part.statements for n in walk(s) if n["kind"] == "ReturnStmt"}
        renamed = {
            (use, use + len(v.name.encode())): f"hgcpu_again_{v.number}"
            for v in self.variables.values() if v.pure for use in v.uses
        }  # fmt: skip
        body: list[str] = []
        for variable in reversed(self.variables.values()):  # a variable comes before those that it depends on
            if variable in again and variable.initial is not None:
                again += [v for d in named(variable.initial) if (v := self.variables.get(d["id"])) and v.pure]
                value = edited(self.data, variable.initial, renamed)
                body.insert(0, f"const hgcpu_plain<{variable.type}>::type hgcpu_again_{variable.number} = {value};")
        again_here = "".join(body)
        for statement in part.statements:
            declares = statement["kind"] == "DeclStmt"
            text = edited(self.data, statement, edits)
            text = f"hgcpu_off_{part.mask}[hgcpu_lane] = !({text})" if part.mask else text
            body.append(f"\n{text}{'' if declares else ';'}")
            body += [self.keep(n) for n in children(statement)] if declares else []
        skips = f"hgcpu_off_{part.off}[hgcpu_lane]" if part.off else "hgcpu_gone[hgcpu_t]"
        checks = f"{self.checks(part.off)} && " * self.warps
        skipped = f"{checks}{skips}" if gone else "false"
        head = f"[&](const size_t hgcpu_t{', const uint32_t hgcpu_lane' * self.warps}) {_INLINE}"
        each = f"{head} {{(void)hgcpu_t;if ({skipped}) return;{{{''.join(body)}\n}}}}"
        ended = ""
        if part.returns and not final:
            ended = f"if (hgcpu_all({_GONE}, hgcpu_warp.lanes())) return;" if self.warps else _ENDED
        if self.warps:
            some = ""
            if part.rare:
                condition = edited(self.data, control_of(part.statements[0])[1], edits)
                once = f"{{(void)hgcpu_t;(void)hgcpu_lane;if ({skipped}) return false;{again_here}return (bool)({condition});}}"
                some = f"if (hgcpu_some(hgcpu_warp, {head} {once})) "
            return f"\n{some}hgcpu_lanes<{str(self.is_apart(part)).lower()}>(hgcpu_warp, {each});{ended}"
        return f"\nhgcpu_threads(hgcpu_n, {each});{ended}"

    def is_last(self, part: Part) -> bool:
        return part is self.parts[-1] and not part.repeats

    @staticmethod
    def is_apart(part: Part) -> bool:
        """Return whether a part has no per-thread data in memory: scalars that are accessed only by name are in registers."""
        return all(
            (n["kind"] in QUIET | _STEPS and not (n["kind"] == "UnaryOperator" and n["opcode"] == "&"))
            or (n["kind"] == "VarDecl" and SCALAR.fullmatch(n["type"]["qualType"])) or called(n) in PURE
            for statement in part.statements for n in walk(statement)
        )  # fmt: skip

    def keep(self, declared: Node) -> str:
        variable = self.variables.get(declared["id"])
        if variable is None or (variable.is_scalar and variable.how != "kept"):
            return ""
        if variable.how == "kept" and variable.initial is not None:
            return f" hgcpu_keep(hgcpu_kept_{variable.number}[{variable.index}], {variable.name});"
        if "&" in variable.type:
            return ""
        return f' static_assert(__is_trivially_copyable(__typeof__({variable.name})), "ends with its part");'
