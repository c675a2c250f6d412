"""Rewrite kernels with warp operations so that they can be split at them (split.py).

Each operation becomes a separate statement of its block, ``hgcpu_op__shfl_down(result, value, delta, width)``, and ``result``
replaces it in its expression. Functions that lead to operations or barriers are inlined, with new names for everything that
they declare. A statement may have one operation or call, and nothing whose value or effect could depend on being evaluated
before or after it; anything else raises `Unknown`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence, Set
from typing import Final

from .syntax import Node, bare, called, children, edited, end_of, is_read, is_write, parents, start_of, type_of, walk, write_of
from .uniform import CASTS, LITERALS, LOOPS, SCALAR, Unknown, is_constant

#: Prefixes in the rewritten text: of an operation's name, and of the names of results and operands.
OPERATION: Final = "hgcpu_op"
RESULT: Final = "hgcpu_w"
_FUNCTION: Final = "hgcpu_synced_f_"
#: Types of an operation's operands, without the mask that precedes them in the ``_sync`` operations; "" is the result's type.
OPERANDS: Final = {
    "__shfl": ("", "int", "int"), "__shfl_up": ("", "unsigned", "int"), "__shfl_down": ("", "unsigned", "int"),
    "__shfl_xor": ("", "int", "int"), "__ballot": ("int",), "__any": ("int",), "__all": ("int",), "__activemask": (),
}  # fmt: skip
#: Kinds of expressions that have no side effects, unless they assign.
QUIET: Final = CASTS | LITERALS | set(
    """DeclRefExpr ParenExpr ConstantExpr BinaryOperator UnaryOperator ConditionalOperator ArraySubscriptExpr MemberExpr
    UnaryExprOrTypeTraitExpr""".split()  # noqa: SIM905
)  # fmt: skip
#: Functions of device.h without side effects; their names are reserved.
PURE: Final = frozenset({"__popc", "__popcll", "__ffs", "__ffsll", "__clz", "__clzll", "__brev", "__brevll", "__lane_id"})
_INDICES: Final = frozenset({"threadIdx", "blockIdx", "blockDim", "gridDim"})
#: Names that only generated code may have; the excluded ones are those of weave.py and device.h, which the tree may have.
OWN: Final = re.compile(rb"hgcpu_(?!synced_|own_|dynamic\b|assert_failed\b)")
_WORD: Final = re.compile(rb"(?<![\w.])(?<!->)[^\W\d]\w*")
_MOST: Final = 500  # limit on the number of results and operands

#: (name, type) of a function -> how often it is named.
Calls = Counter[tuple[str, str]]


def calls_of(node: Node) -> Calls:
    """Count the functions that are named, by name and type, except those that `Flat` replaces or adds."""
    found = (n["referencedDecl"] for n in walk(node) if n["kind"] == "DeclRefExpr")
    return Counter(
        (d["name"], d["type"]["qualType"])
        for d in found
        if d["kind"] in ("FunctionDecl", "CXXMethodDecl") and not d["name"].startswith(OPERATION) and not _leads(d["name"])
    )


def _leads(name: str) -> bool:
    """Return whether a function is a supported warp operation, or leads to one or to a barrier."""
    return name.startswith(_FUNCTION) or name.removesuffix("_sync") in OPERANDS or name == "__syncwarp"


class Flat:
    """Rewrites a kernel; `trees` has the kernels of the text `data`, and the functions that lead to operations."""

    def __init__(self, data: bytes, trees: Sequence[Node], leading: Set[str]) -> None:
        self.data, self.leading = data, leading
        self.count = 0
        self.calls: Calls = Counter()
        self.names: set[bytes] = set()  # names that the kernel declares
        self.functions: dict[str, Node] = {}  # by the tree's id, and by name and type
        for node in trees:
            if node["kind"] == "FunctionDecl" and any(n["kind"] == "CompoundStmt" for n in children(node)):
                self.functions[node["id"]] = self.functions[node["name"] + node["type"]["qualType"]] = node

    def kernel(self, node: Node) -> tuple[str, Calls]:
        """Return a kernel's rewritten text, and the functions that it names; raise Unknown if it is not supported."""
        self.names = {n["name"].encode() for n in walk(node) if n["kind"].endswith("Decl") and "name" in n and n is not node}
        body = _Body(self, node, ())
        return self.data[start_of(node) : start_of(body.node)].decode() + body.text(), self.calls

    def name(self) -> str:
        self.count += 1
        if self.count > _MOST:
            raise Unknown("too much")
        return f"{RESULT}{self.count}"


class _Body:
    """The body of a kernel, or of a function that is inlined into the functions `around`."""

    def __init__(self, flat: Flat, function: Node, around: Sequence[Node], result: str = "") -> None:
        self.flat, self.function, self.around, self.result = flat, function, around, result
        self.node = next(n for n in children(function) if n["kind"] == "CompoundStmt")
        self.parent = parents(self.node)
        self.renames: dict[tuple[int, int], str] = {}
        self.holds: set[int] = set()  # nodes with a call inside
        # Scalars that can be read or changed only by their names.
        self.plain = {
            n["id"] for n in walk(function)
            if n["kind"] in ("VarDecl", "ParmVarDecl") and "storageClass" not in n and SCALAR.fullmatch(n["type"]["qualType"])
        }  # fmt: skip
        for node in walk(self.node):
            if node["kind"] in ("PredefinedExpr", "LambdaExpr", "StmtExpr"):
                raise Unknown(node["kind"])
            if node["kind"] != "DeclRefExpr":
                continue
            name = node["referencedDecl"]["name"]
            if not is_read(node, self.parent) and write_of(node, self.parent) is None:
                self.plain.discard(node["referencedDecl"]["id"])
            if not _leads(name):
                if name in flat.leading:
                    raise Unknown("a function that waits")
                continue
            call = self.parent[id(self.parent[id(node)])]
            if called(call) != name:
                raise Unknown("a function that is not called")
            above: Node | None = call
            while above is not None:
                self.holds.add(id(above))
                above = self.parent.get(id(above))
        flat.calls += calls_of(self.node)

    def rename(self) -> None:
        """Give everything that a function declares a unique name."""
        names: dict[str, str] = {}
        spelled: set[bytes] = set()
        for node in walk(self.function):
            if node["kind"].endswith("Decl") and node is not self.function and "name" in node:
                if node["kind"] not in ("VarDecl", "ParmVarDecl"):
                    raise Unknown("a declaration")
                names[node["id"]] = f"{self.flat.name()}_{node['name']}"
                spelled.add(node["name"].encode())
                at = int(node["loc"]["offset"])
                self.renames[at, at + len(node["name"])] = names[node["id"]]
        for node in walk(self.node):
            if node["kind"] == "DeclRefExpr" and node["referencedDecl"]["id"] in names:
                self.renames[start_of(node), end_of(node)] = names[node["referencedDecl"]["id"]]
        for match in _WORD.finditer(self.flat.data, start_of(self.node), end_of(self.node)):
            if match.span() not in self.renames and (match[0] in spelled | self.flat.names or OWN.match(match[0])):
                raise Unknown("a name that means something else, or that the tree does not have")

    def text(self) -> str:
        return f"{{{''.join(map(self.statement, children(self.node)))}\n}}"

    def words(self, node: Node, edits: dict[tuple[int, int], str] | None = None) -> str:
        return edited(self.flat.data, node, {**self.renames, **(edits or {})})

    # -- statements -------------------------------------------------------------------------------------------------------

    def statement(self, node: Node) -> str:
        kind = node["kind"]
        if kind == "ReturnStmt" and self.result:
            before, edits = self.call(children(node)[0])
            return f"{before}\n{self.result} = {self.words(children(node)[0], edits)};"
        if id(node) not in self.holds:
            return f"\n{self.words(node)}{'' if kind == 'DeclStmt' else ';'}"
        if any(node.get(key) for key in ("hasInit", "hasVar", "isConsteval", "isConstexpr")):
            raise Unknown(kind)
        inner = node["inner"]
        if kind == "AttributedStmt" and inner[-1]["kind"] in LOOPS:
            return self.statement(inner[-1])  # `#pragma unroll`
        if kind == "CompoundStmt":
            return self.braces(node)
        if kind == "IfStmt":
            before, edits = self.call(inner[0])
            branches = " else ".join(map(self.braces, inner[1:]))
            return f"{before}\nif ({self.words(inner[0], edits)}) {branches}"
        if kind in LOOPS:
            body = inner[0] if kind == "DoStmt" else inner[-1]
            if any(id(n) in self.holds for n in inner if n is not body):
                raise Unknown("an operation in a loop's condition")
            if kind == "DoStmt":
                return f"\ndo {self.braces(body)} while ({self.words(inner[1])});"
            head = {"range": {"begin": node["range"]["begin"], "end": {"offset": start_of(body), "tokLen": 0}}}
            return f"\n{self.words(head)} {self.braces(body)}"
        if kind == "DeclStmt":
            (declared,) = children(node) if len(children(node)) == 1 else [{"kind": ""}]
            if declared["kind"] != "VarDecl" or "storageClass" in declared:
                raise Unknown("a declaration")
            before, edits = self.call(children(declared)[-1])
            return f"{before}\n{self.words(node, edits)}"
        if kind.endswith("Stmt"):
            raise Unknown(kind)
        before, edits = self.call(node)
        return f"{before}\n{self.words(node, edits)};"

    def braces(self, node: Node) -> str:
        statements = children(node) if node["kind"] == "CompoundStmt" else [node]
        return f"{{{''.join(map(self.statement, statements))}\n}}"

    # -- calls ------------------------------------------------------------------------------------------------------------

    def call(self, root: Node) -> tuple[str, dict[tuple[int, int], str]]:
        """Return statements that make the call in an expression, and the edit that replaces the call by its result."""
        node = root
        if id(root) not in self.holds:
            return "", {}
        if is_write(root):
            target, node = children(root)  # C++17 evaluates the value before the target
            if id(target) in self.holds or any(is_write(n) or not self.is_quiet(n) for n in walk(target)):
                raise Unknown("an order that is not certain")
        while not _leads(called(node)):
            inside = [n for n in children(node) if id(n) in self.holds]
            if len(inside) != 1 or node["kind"] == "ConditionalOperator" or node.get("opcode") in ("&&", "||", ","):
                raise Unknown("an operation that may be left out, or several")
            if is_write(node) or not self.is_quiet(node) or node["kind"] == "UnaryExprOrTypeTraitExpr":
                raise Unknown("an order that is not certain")
            if not all(self.is_still(n) for child in children(node) if child is not inside[0] for n in walk(child)):
                raise Unknown("an order that is not certain")
            node = inside[0]
        arguments = children(node)[1:]
        if any(id(n) in self.holds for n in arguments) or any(is_write(n) for a in arguments for n in walk(a)):
            raise Unknown("an operation within another, or a change")
        before, name = self.inlined(node) if called(node).startswith(_FUNCTION) else self.operation(node)
        return before, {(start_of(node), end_of(node)): name}

    @staticmethod
    def is_quiet(node: Node) -> bool:
        return node["kind"] in QUIET or called(node) in PURE

    def is_still(self, node: Node) -> bool:
        """Return whether a node, without its children, has the same value before and after an operation or a call."""
        if is_write(node) or not self.is_quiet(node):
            return False
        if node.get("castKind") != "LValueToRValue":
            return True
        read = bare(children(node)[0])
        if read["kind"] == "MemberExpr" and not read["isArrow"]:
            return bool(bare(children(read)[0]).get("referencedDecl", {}).get("name") in _INDICES)
        declared = read.get("referencedDecl", {})
        return declared.get("id") in self.plain or is_constant(declared)

    def operation(self, node: Node) -> tuple[str, str]:
        """Return the statements of an operation, and the name of its result."""
        name = called(node)
        arguments = [n for n in children(node)[1:] if n["kind"] != "CXXDefaultArgExpr"]
        mask = ("unsigned long long",) if name.endswith("_sync") or name == "__syncwarp" else ()
        types = (*mask, *(OPERANDS[name.removesuffix("_sync")] if name != "__syncwarp" else ()))
        before, operands = "", []
        for argument, kind in zip(arguments, types):
            if _read(argument).get("id") in self.plain:
                operands.append(self.words(bare(children(argument)[0])))
            else:
                operands.append(self.flat.name())
                before += f"\nconst {kind or _type(node)} {operands[-1]} = {self.words(argument)};"
        if name == "__syncwarp":
            return f"{before}\n{OPERATION}{name}({operands[0] if operands else '~0ull'});", "((void)0)"
        if "*" in _type(node) or not _is_scalar(node):
            raise Unknown("an operation on more than a number")
        operands += ["::warpSize"] * (len(types) - len(operands))
        result = self.flat.name()
        return f"{before}\n{_type(node)} {result}; {OPERATION}{name}({', '.join([result, *operands])});", result

    def inlined(self, node: Node) -> tuple[str, str]:
        """Return the body of a called function after declarations of its parameters, and the name of its result."""
        flat = self.flat
        reference = children(children(node)[0])[0]["referencedDecl"]
        function = flat.functions.get(reference["id"]) or flat.functions[reference["name"] + reference["type"]["qualType"]]
        taken = [n for n in children(function) if n["kind"] == "ParmVarDecl"]
        arguments, void = children(node)[1:], _type(node) == "void"
        if function in self.around or len(taken) != len(arguments):
            raise Unknown("a function that calls itself, or has more parameters than are seen")
        if not all(map(_is_scalar, taken)) or not (void or _is_scalar(node)):
            raise Unknown("a function of more than numbers")
        result = "" if void else flat.name()
        body = _Body(flat, function, (*self.around, function), result)
        returns = [n for n in walk(body.node) if n["kind"] == "ReturnStmt"]
        if len(returns) != (not void) or (returns and returns[0] is not children(body.node)[-1]):
            raise Unknown("a function that returns elsewhere")
        if any(n["kind"] == "VarDecl" and "storageClass" in n for n in walk(body.node)):
            raise Unknown("a variable that calls share")
        body.rename()
        before = ""
        for parameter, argument in zip(taken, arguments):
            if argument["kind"] == "CXXDefaultArgExpr":
                raise Unknown("an argument that is not written")
            name = flat.name()
            if "name" in parameter:
                at = int(parameter["loc"]["offset"])
                name = body.renames[at, at + len(parameter["name"])]
            before += f"\n{_type(parameter)} {name} = {self.words(argument)};"
        if not void:
            before += f"\n{_type(node)} {result};"
        return f"{before}\n{body.text()}", result or "((void)0)"


def _read(node: Node) -> Node:
    """Return the variable that an expression does nothing but read, or an empty node for any other expression."""
    if node["kind"] != "ImplicitCastExpr" or node["castKind"] != "LValueToRValue":
        return {}
    read: Node = bare(children(node)[0]).get("referencedDecl", {})
    return read


def _type(node: Node) -> str:
    name = type_of(node)
    return name if "*" in name else name.removeprefix("const ")


def _is_scalar(node: Node) -> bool:
    return bool(SCALAR.fullmatch(_type(node)))
