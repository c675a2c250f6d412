"""Split a kernel at its barriers into loops over the threads of a block.

A block then needs no fibers: what stands between two barriers is a loop over its threads, which the compiler turns into
vector code, and loops around barriers run once for the block. That is right where every thread meets the same barriers, which
is certain when each barrier stands at the top level of the body, or in loops and conditions that depend only on what is the
same for all threads of the block: parameters, blockIdx, blockDim, gridDim, constants, and variables made of these.

A variable of a thread that is used after a barrier is kept in an array with one element a thread; if it is made of threadIdx
and of what is the same for all, it is computed again instead, so that the compiler sees through it. Where anything is in doubt
(`NotUnderstood`) the kernel runs in fibers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from ...source import Token, split_commas, without_attributes
from .body import (
    ASSIGNMENTS,
    BUILTIN,
    Declared,
    Hazards,
    NotUnderstood,
    Statement,
    changes,
    for_header,
    holds_no_address,
    is_member_address,
    is_plain,
    read_statements,
    referred_to,
    split_declaration,
    takes_address,
)

__all__ = ["split_phases"]

_BARRIER: Final = frozenset({"__syncthreads"})
_UNIFORM_NAMES: Final = frozenset({"blockIdx", "blockDim", "gridDim", "warpSize", "true", "false", "nullptr"}) | frozenset(
    f"hip{name}_{axis}" for name in ("BlockIdx", "BlockDim", "GridDim") for axis in "xyz"
)
_THREAD_NAMES: Final = frozenset({"threadIdx", "hipThreadIdx_x", "hipThreadIdx_y", "hipThreadIdx_z"})
_PURE_CALLS: Final = frozenset(
    {"min", "max", "abs", "sizeof", "static_cast", "reinterpret_cast", "__mul24", "__umul24", "size_t", "uint32_t", "int32_t"}
) | (BUILTIN - {"auto"})
_BLOCK_LEVEL: Final = frozenset({"typedef", "using", "struct", "class", "enum", "static_assert", "HIP_DYNAMIC_SHARED"})


@dataclass(eq=False, slots=True)
class _Variable:
    """A variable that statements of several phases may name."""

    name: str
    declared: Declared | None  # None for a parameter
    number: int
    pointer: bool = False
    shared: bool = False
    in_header: bool = False
    plain: bool = True  # a number or numbers, not an address nor an object
    uniform: bool = True
    again: bool = False  # computed again in each phase that names it
    kept: bool = False  # in an array with one element a thread
    sources: list[tuple[tuple[Token, ...], dict[str, _Variable]]] = field(default_factory=list)
    changed_in_leaf: bool = False
    changed_in_region: bool = False

    @property
    def is_const(self) -> bool:
        return self.declared is not None and bool(self.declared.qualifiers & {"const", "constexpr"})

    @property
    def is_reference(self) -> bool:
        return self.declared is not None and "&" in self.declared.pointers

    @property
    def is_array(self) -> bool:
        return self.declared is not None and bool(self.declared.bounds)


@dataclass(slots=True)
class _Phase:
    """Statements that each thread runs between two barriers, with what names mean before the first of them."""

    statements: list[Statement]
    before: dict[str, _Variable]
    declares: list[_Variable] = field(default_factory=list)


@dataclass(slots=True)
class _Text:
    """Something that runs once for the block; as it stands, or around `body`."""

    text: str
    body: list[_Node] | None = None
    after: str = ""


_Node = _Phase | _Text


def split_phases(
    text: str,
    body: Sequence[Token],
    parameters: Sequence[Token],
    constants: Iterable[str],
    context: Iterable[str],
    *,
    hazards: Hazards,
    mark: str,
    dynamic: Callable[[Sequence[Token]], str],
) -> str:
    """Return the body of a function that runs a whole block.

    Parameters
    ----------
    text : str
        The source that the tokens are of.
    body : sequence of Token
        Between the braces of the kernel.
    parameters : sequence of Token
        Between the parentheses.
    constants : iterable of str
        Names of constants and template parameters.
    context : iterable of str
        Names of device functions that ask for threadIdx.
    hazards : Hazards
        Through what the source may change a variable without an assignment.
    mark : str
        Macro that stands before the loop over threadIdx.x.
    dynamic : callable
        Gives the text that stands for a declaration of dynamic shared memory.

    Raises
    ------
    NotUnderstood
        If the barriers are not met by all threads alike for certain.
    """
    splitter = _Splitter(text, frozenset(constants), frozenset(context), hazards, mark, dynamic)
    return splitter.run(read_statements(body), parameters)


class _Splitter:
    def __init__(
        self,
        text: str,
        constants: frozenset[str],
        context: frozenset[str],
        hazards: Hazards,
        mark: str,
        dynamic: Callable[[Sequence[Token]], str],
    ) -> None:
        self.text = text
        self.constants = constants
        self.context = context
        self.hazards = hazards
        self.mark = mark
        self.dynamic = dynamic
        self.variables: list[_Variable] = []
        self.environment: dict[str, _Variable] = {}
        self.returns = False

    # -- reading -----------------------------------------------------------------------------------------------------

    def run(self, statements: list[Statement], parameters: Sequence[Token]) -> str:
        for part in split_commas(parameters):
            declared = split_declaration(part)
            if not declared:
                raise NotUnderstood
            pointer = bool(declared[0].pointers or declared[0].bounds)
            self._new(declared[0].name.text, None, pointer=pointer, plain=is_plain(declared[0]))
        if any(t.text in ("goto", "asm", "__asm__") for s in statements for t in s.tokens):
            raise NotUnderstood
        outer = dict(self.environment)
        self._survey(statements)
        self._settle()
        self.environment = outer
        self._numbers = iter(self.variables[len(outer) :])
        nodes = self._region(statements)
        self._keep(nodes)
        return self._write(nodes)

    def _new(
        self,
        name: str,
        declared: Declared | None,
        *,
        pointer: bool = False,
        shared: bool = False,
        in_header: bool = False,
        plain: bool = True,
    ) -> _Variable:
        if declared is not None:
            plain = is_plain(declared)
        made = _Variable(name, declared, len(self.variables), pointer, shared, in_header, plain)
        self.variables.append(made)
        self.environment = {**self.environment, name: made}
        return made

    def _survey(self, statements: Sequence[Statement]) -> None:
        """Find the variables of the regions and all that changes them."""
        outside = self.environment
        for statement in statements:
            if _is_barrier(statement):
                continue
            if statement.mentions(_BARRIER):
                self._survey_control(statement)
                continue
            declared = _declaration(statement)
            if declared is not None:
                for at in referred_to(statement.tokens):
                    if statement.tokens[at].text in self.environment:
                        self.environment[statement.tokens[at].text].changed_in_leaf = True
                for item in declared:
                    shared = "__shared__" in item.qualifiers
                    made = self._new(item.name.text, item, shared=shared, pointer="*" in item.pointers)
                    made.sources.append((item.initializer, self.environment))
                    if item.initializer:
                        self._note_leaf(item.initializer)
                continue
            target = _assigned(statement)
            if target is not None and target[0] in self.environment:
                variable = self.environment[target[0]]
                variable.changed_in_region = True
                variable.sources.append((target[1], self.environment))
                self._note_leaf(target[1])
                continue
            self._note_statement(statement, frozenset())
        self.environment = outside

    def _survey_control(self, statement: Statement) -> None:
        outside = self.environment
        if statement.kind == "block":
            self._survey(statement.children)
        elif statement.kind == "for":
            init, _, step = for_header(statement)
            for item in (split_declaration(init) or []) if init else []:
                made = self._new(item.name.text, item, in_header=True)
                made.sources.append((item.initializer, self.environment))
            for part in split_commas(step):
                target = _assigned_tokens(part)
                if target is None or target[0] not in self.environment:
                    raise NotUnderstood
                variable = self.environment[target[0]]
                variable.changed_in_region = variable.changed_in_region or not variable.in_header
                variable.sources.append((target[1], self.environment))
            if init and not split_declaration(init):
                target = _assigned_tokens(init)
                if target is None or target[0] not in self.environment:
                    raise NotUnderstood
                self.environment[target[0]].changed_in_region = True
                self.environment[target[0]].sources.append((target[1], self.environment))
            self._survey(_children(statement.children[0]))
        elif statement.kind in ("while", "do", "if"):
            for child in statement.children:
                self._survey(_children(child))
        else:
            raise NotUnderstood
        self.environment = outside

    def _note_statement(self, statement: Statement, hidden: frozenset[str]) -> None:
        """Note what a leaf changes, minding names that it declares itself."""
        if statement.kind == "block":
            for child in statement.children:
                self._note_statement(child, hidden)
                if child.kind == "simple":
                    hidden |= {d.name.text for d in split_declaration(child.tokens) or []}
            return
        if statement.kind == "for":
            semicolon = next((n for n, t in enumerate(statement.head) if t.text in (";", ":")), len(statement.head))
            hidden |= {d.name.text for d in split_declaration(statement.head[:semicolon]) or []}
        self._note_leaf(statement.head if statement.children else statement.tokens, hidden)
        for child in statement.children:
            self._note_statement(child, hidden)

    def _note_leaf(self, tokens: Sequence[Token], hidden: frozenset[str] = frozenset()) -> None:
        for name in ({t.text for t in tokens} & self.environment.keys()) - hidden:
            variable = self.environment[name]
            if changes(tokens, name, self.hazards, variable.pointer, variable.plain) or (
                variable.is_array and not variable.is_const and not variable.shared
            ):
                variable.changed_in_leaf = True

    def _settle(self) -> None:
        """Find which variables are the same for all threads, and which can be computed again."""
        for variable in self.variables:
            if variable.changed_in_leaf or variable.shared or variable.is_reference:
                variable.uniform = False
            if variable.is_array and not variable.is_const:
                variable.uniform = False
            if self._is_object(variable):
                variable.changed_in_leaf = True
                variable.uniform = False
            if variable.declared is not None and variable.declared.qualifiers & {"static", "volatile", "extern"}:
                variable.uniform = False
        again = True
        while again:
            again = False
            for variable in self.variables:
                if variable.uniform and not all(self._uniform(tokens, seen) for tokens, seen in variable.sources):
                    variable.uniform = False
                    again = True
        again = True
        while again:
            again = False
            for variable in self.variables:
                if variable.again or variable.uniform or variable.declared is None or variable.shared:
                    continue
                if variable.changed_in_leaf or variable.changed_in_region or variable.is_array or variable.is_reference:
                    continue
                tokens, seen = variable.sources[0]
                if tokens and self._pure(tokens, seen):
                    variable.again = again = True

    def _may_hold_address(self, variable: _Variable) -> bool:
        declared = variable.declared
        if declared is None:
            return not variable.plain
        return bool(declared.pointers) or not holds_no_address(declared.type, self.hazards.values)

    def _is_object(self, variable: _Variable) -> bool:
        """Return whether it is a struct that may change in ways that its name does not show."""
        if variable.declared is None or variable.is_const or variable.plain or variable.pointer:
            return False
        if [t.text for t in variable.declared.type] != ["auto"]:
            return True
        tokens, seen = variable.sources[0]
        whole = (t.text for n, t in enumerate(tokens) if [x.text for x in tokens[n + 1 : n + 2]] not in (["."], ["["]))
        return any(name in seen and not seen[name].plain and not seen[name].pointer for name in whole)

    def _uniform(self, tokens: Sequence[Token], seen: dict[str, _Variable]) -> bool:
        def known(name: str) -> bool:
            if name in seen:
                return seen[name].uniform
            return name in self.constants or name in _UNIFORM_NAMES

        return _made_of(tokens, known)

    def _pure(self, tokens: Sequence[Token], seen: dict[str, _Variable]) -> bool:
        def known(name: str) -> bool:
            if name in seen:
                variable = seen[name]
                return variable.again or (variable.uniform and not variable.changed_in_region)
            return name in self.constants or name in _UNIFORM_NAMES or name in _THREAD_NAMES

        return _made_of(tokens, known)

    # -- regions and phases ------------------------------------------------------------------------------------------

    def _region(self, statements: Sequence[Statement]) -> list[_Node]:
        outside = self.environment
        nodes: list[_Node] = []
        phase = _Phase([], self.environment)

        def flush() -> None:
            nonlocal phase
            if phase.statements:
                nodes.append(phase)
            phase = _Phase([], self.environment)

        for statement in statements:
            if _is_barrier(statement):
                flush()
                continue
            if statement.mentions(_BARRIER):
                flush()
                nodes.append(self._control(statement))
                continue
            if statement.tokens[0].text in _BLOCK_LEVEL:
                nodes.append(_Text(self._slice(statement)))
                continue
            declared = _declaration(statement)
            if declared is not None:
                made = [next(self._numbers) for _ in declared]
                ahead = {v.name: v for v in made if v.uniform or v.shared}
                if any(_names(s.tokens) & ahead.keys() for s in phase.statements):
                    flush()  # they name another variable, which this one hides
                if ahead and _may_trap(statement) and any("return" in _leaves(s) for s in phase.statements):
                    flush()  # what no thread is left to divide is not divided
                phase.before = {**phase.before, **ahead}
                self.environment = {**self.environment, **{v.name: v for v in made}}
                if all(v.shared for v in made) and any(t.text == "extern" for t in statement.tokens):
                    nodes.append(_Text(self.dynamic(statement.tokens)))
                elif all(v.uniform or v.shared for v in made):
                    nodes.append(_Text(_without_static(self._slice(statement)) if made[0].shared else self._slice(statement)))
                elif any(v.uniform or v.shared for v in made):
                    self._separate(made, nodes, phase)
                else:
                    phase.statements.append(statement)
                    phase.declares += made
                continue
            target = _assigned(statement)
            if target is not None and target[0] in self.environment and self.environment[target[0]].uniform:
                if any(_names(s.tokens) & {target[0]} for s in phase.statements):
                    flush()
                if _may_trap(statement) and any("return" in _leaves(s) for s in phase.statements):
                    flush()
                nodes.append(_Text(self._slice(statement)))
                continue
            left = _leaves(statement)
            if left and self._leaves_uniformly(statement):
                flush()
                nodes.append(_Text(self._slice(statement)))
                continue
            if "jump" in left:
                raise NotUnderstood
            if any(_returns_inside(inner) for inner in statement.walk()):
                raise NotUnderstood
            self.returns = self.returns or "return" in left
            phase.statements.append(statement)
        flush()
        self.environment = outside
        return nodes

    def _separate(self, made: list[_Variable], nodes: list[_Node], phase: _Phase) -> None:
        """Write the variables of one declaration one by one, where some run once for the block and others do not."""
        for variable in made:
            assert variable.declared is not None
            text = self._declaration_text(variable, variable.declared.qualifiers)
            if variable.uniform or variable.shared:
                nodes.append(_Text(text))
            else:
                tokens = [*variable.declared.type, variable.declared.name, *variable.declared.initializer]
                phase.statements.append(_Written("simple", tokens, [], [], text))
                phase.declares.append(variable)

    def _leaves_uniformly(self, statement: Statement) -> bool:
        """Return whether it is ``if (uniform) return;`` or break or continue, alone or in braces."""
        if statement.kind in ("jump", "return"):
            return True
        if statement.kind != "if" or len(statement.children) != 1 or not self._uniform_here(statement.head):
            return False
        inner = _children(statement.children[0])
        return len(inner) == 1 and inner[0].kind in ("jump", "return")

    def _uniform_here(self, tokens: Sequence[Token]) -> bool:
        return self._uniform(tokens, self.environment)

    def _control(self, statement: Statement) -> _Text:
        outside = self.environment
        made: _Text
        if statement.kind == "block":
            return _Text("{", self._region(statement.children), "}")
        if statement.kind == "for":
            init, condition, step = for_header(statement)
            for item in (split_declaration(init) or []) if init else []:
                variable = next(self._numbers)
                assert variable.name == item.name.text
                self.environment = {**self.environment, variable.name: variable}
                if not variable.uniform:
                    raise NotUnderstood
            targets = [_assigned_tokens(part) for part in split_commas(step)]
            if init and not split_declaration(init):
                targets.append(_assigned_tokens(init))
            for target in targets:
                if target is None or not self.environment[target[0]].uniform:
                    raise NotUnderstood
            if condition and not self._uniform_here(condition):
                raise NotUnderstood
            head = self.text[statement.head[0].start : statement.head[-1].end]
            made = _Text(f"for ({head}) {{", self._region(_children(statement.children[0])), "}")
        elif statement.kind == "while":
            if not self._uniform_here(statement.head):
                raise NotUnderstood
            made = _Text(f"while ({self._between(statement.head)}) {{", self._region(_children(statement.children[0])), "}")
        elif statement.kind == "do":
            if not self._uniform_here(statement.head):
                raise NotUnderstood
            inner = self._region(_children(statement.children[0]))
            made = _Text("do {", inner, f"}} while ({self._between(statement.head)});")
        elif statement.kind == "if":
            if not self._uniform_here(statement.head) or statement.tokens[1].text == "constexpr":
                raise NotUnderstood
            then = self._region(_children(statement.children[0]))
            made = _Text(f"if ({self._between(statement.head)}) {{", then, "}")
            if len(statement.children) > 1:
                other = self._region(_children(statement.children[1]))
                made = _Text("{", [made, _Text("else {", other, "}")], "}")
        else:
            raise NotUnderstood
        self.environment = outside
        return made

    # -- what lives across barriers ------------------------------------------------------------------------------------

    def _keep(self, nodes: list[_Node]) -> None:
        """Decide which variables of threads are kept: those named in a phase that does not declare them."""
        for phase in _phases(nodes):
            for variable in self._named(phase):
                if variable.uniform or variable.shared:
                    continue
                if variable.again:
                    continue
                if variable.declared is not None and variable.declared.qualifiers & {"static", "volatile"}:
                    raise NotUnderstood
                variable.kept = True
        self._check_addresses(nodes)

    def _check_addresses(self, nodes: list[_Node]) -> None:
        """Refuse where a kept pointer might point at a variable of a thread, which is another in each phase."""
        holders = {v.name for v in self.variables if v.kept and self._may_hold_address(v)}
        if not holders:
            return
        own = {v.name: v for v in self.variables if not (v.shared or v.uniform)}
        for phase in _phases(nodes):
            for statement in phase.statements:
                tokens = statement.tokens
                named = any(t.text in holders for t in tokens)
                for n, token in enumerate(tokens):
                    if token.text not in own or (n and tokens[n - 1].text in (".", "->", "::")):
                        continue
                    variable = own[token.text]
                    following = tokens[n + 1].text if n + 1 < len(tokens) else ""
                    reached = variable.pointer and not variable.is_array and following in ("[", "->")
                    taken = n and takes_address(tokens, n - 1) and not reached
                    if not variable.plain and not variable.pointer:
                        taken = taken or is_member_address(tokens, n, self.hazards) or (named and _calls_member(tokens, n))
                    decays = variable.is_array and following != "["
                    passed = named and following in (")", ",") and n and tokens[n - 1].text in ("(", ",")
                    if taken or decays or (passed and self.hazards.references and not variable.pointer):
                        raise NotUnderstood
        for variable in self.variables:
            if variable.kept and variable.is_reference:
                root = next((t for t in variable.sources[0][0] if t.kind == "name"), None)
                if root is None or root.text in own:
                    raise NotUnderstood

    def _named(self, phase: _Phase) -> list[_Variable]:
        """Return the variables of earlier phases that this one names, those that others are computed from first."""
        out: list[_Variable] = []

        def add(variable: _Variable) -> None:
            if variable in out:
                return
            if variable.again:
                tokens, seen = variable.sources[0]
                for name in sorted(_names(tokens) & seen.keys()):
                    if seen[name] is not variable:
                        add(seen[name])
            out.append(variable)

        names = set().union(*(_names(s.tokens) for s in phase.statements))
        for name in sorted(names & phase.before.keys(), key=lambda n: phase.before[n].number):
            add(phase.before[name])
        return out

    # -- writing -----------------------------------------------------------------------------------------------------

    def _slice(self, statement: Statement) -> str:
        if isinstance(statement, _Written):
            return statement.text
        start, end = statement.tokens[0].start, statement.tokens[-1].end
        # A pragma that stands before a statement is about it.
        pragmas = re.search(r"((?:^[ \t]*#[ \t]*pragma[^\n]*\n)+)[ \t]*\Z", self.text[max(0, start - 400) : start], re.MULTILINE)
        return ("\n" + pragmas.group(1) if pragmas else "") + self.text[start:end]

    def _between(self, tokens: Sequence[Token]) -> str:
        return self.text[tokens[0].start : tokens[-1].end]

    def _type_text(self, variable: _Variable) -> str:
        """Return the type of one element, without const and reference."""
        declared = variable.declared
        if declared is None:
            return f"typename hgcpu_plain<decltype({variable.name})>::type"
        if [t.text for t in declared.type] == ["auto"]:
            return f"typename hgcpu_plain<decltype(hgcpu_types::{variable.name})>::type"
        pointers = "".join(p for p in declared.pointers.split() if p == "*")
        # What a pointer points at keeps its const.
        const = "const " if pointers and "const" in declared.qualifiers else ""
        if variable.is_reference and "const" in declared.qualifiers:
            const = "const "
        return f"{const}{' '.join(t.text for t in declared.type)}{pointers}"

    def _declaration_text(self, variable: _Variable, qualifiers: Iterable[str]) -> str:
        declared = variable.declared
        assert declared is not None
        words = " ".join(sorted(qualifiers))
        bounds = self._between(declared.bounds) if declared.bounds else ""
        text = f"{words} {' '.join(t.text for t in declared.type)} {declared.pointers} {variable.name}{bounds}"
        if declared.initializer:
            first = declared.initializer[0].start
            last = (declared.bounds or (declared.name,))[-1].end
            text += f" {self.text[last:first].strip()} {self._between(declared.initializer)}"
        return text + ";"

    def _bounds(self, variable: _Variable) -> str:
        assert variable.declared is not None
        return self._between(variable.declared.bounds)

    def _write(self, nodes: list[_Node]) -> str:
        # Where threads leave in the last phase and no loop runs it again, nobody asks who left.
        self.flags = self.returns and (
            any("return" in _leaves(s) for node in nodes[:-1] if isinstance(node, _Phase) for s in node.statements)
            or any(isinstance(node, _Text) and node.body for node in nodes)
        )
        out = []
        kept = [v for v in self.variables if v.kept]
        if any(v.declared is not None and [t.text for t in v.declared.type] == ["auto"] for v in kept):
            out.append(self._types())
        for variable in kept:
            kind = self._type_text(variable)
            if variable.is_array:
                out.append(
                    f"typedef {kind} hgcpu_a{variable.number}{self._bounds(variable)}; "
                    f"static thread_local hgcpu_kept_array<{kind}, sizeof(hgcpu_a{variable.number}) / sizeof({kind})> "
                    f"hgcpu_k{variable.number};"
                )
            elif variable.is_reference:
                out.append(f"static thread_local {kind}* hgcpu_k{variable.number}[1024];")
            else:
                out.append(f"alignas(64) static thread_local {kind} hgcpu_k{variable.number}[1024];")
        if self.flags:
            out.append(
                "static thread_local unsigned char hgcpu_done[1024]; uint32_t hgcpu_left; "
                "for (uint32_t hgcpu_n = 0; hgcpu_n < blockDim.x * blockDim.y * blockDim.z; ++hgcpu_n) hgcpu_done[hgcpu_n] = 0;"
            )
        for variable in kept:
            if variable.declared is None:
                out.append(
                    "for (uint32_t hgcpu_n = 0; hgcpu_n < blockDim.x * blockDim.y * blockDim.z; ++hgcpu_n) "
                    f"hgcpu_k{variable.number}[hgcpu_n] = {variable.name};"
                )
        out += self._write_nodes(nodes)
        return "\n".join(out)

    def _types(self) -> str:
        """Return a struct whose members have the variables' names, so that ``auto`` can be asked what it stands for."""
        names = [v.name for v in self.variables]
        if len(set(names)) != len(names):
            raise NotUnderstood
        members = []
        for variable in self.variables:
            declared = variable.declared
            if declared is None or variable.shared or variable.is_array:
                continue
            if [t.text for t in declared.type] == ["auto"]:
                kind = f"typename hgcpu_plain<decltype({self._between(declared.initializer)})>::type"
                if declared.pointers:
                    raise NotUnderstood
            else:
                kind = self._type_text(variable)
            members.append(f"{kind} {variable.name};")
        return f"struct hgcpu_types {{ {' '.join(members)} }};"

    def _write_nodes(self, nodes: list[_Node]) -> Iterator[str]:
        for node in nodes:
            if isinstance(node, _Phase):
                yield self._write_phase(node)
            elif node.body is None:
                yield node.text
            elif node.text == "{" and node.body and isinstance(node.body[-1], _Text) and node.body[-1].text == "else {":
                yield from self._write_nodes(node.body)
            else:
                yield node.text
                yield from self._write_nodes(node.body)
                yield node.after

    def _write_phase(self, phase: _Phase) -> str:
        tokens = [t for s in phase.statements for t in s.tokens]
        before, after = [], []
        for variable in self._named(phase):
            if variable.again:
                assert variable.declared is not None
                before.append(self._declaration_text(variable, variable.declared.qualifiers))
            elif variable.kept:
                loaded, stored = self._exchange(variable, tokens)
                before.append(loaded)
                after.append(stored)
        inside = [self._store(v) for v in phase.declares if v.kept]
        body = "\n".join(self._slice(s) for s in phase.statements)
        begin = ["const dim3 threadIdx(hgcpu_x, hgcpu_y, hgcpu_z);", "(void)threadIdx;"]
        if any(t.text in self.context for t in tokens):
            begin.insert(1, "this->threadIdx = threadIdx;")
        if self.flags:
            begin.append("if (!hgcpu_done[hgcpu_t]) {")
            after.append("}")
        statements = f"{{ {body}\n{' '.join(inside)} }}"
        if any(t.text == "return" for t in tokens):
            # A return leaves what runs for one thread, not the block.
            changed = self._returning(phase)
            statements = f"[&]() __attribute__((always_inline)) {{ {changed}\n{' '.join(inside)} }}();"
        end = ""
        if self.flags and any("return" in _leaves(s) for s in phase.statements):
            # Once the last thread has left, conditions of loops are not asked and nothing is divided any more.
            end = (
                "\nhgcpu_left = 0; for (uint32_t hgcpu_n = 0; hgcpu_n < blockDim.x * blockDim.y * blockDim.z; ++hgcpu_n) "
                "hgcpu_left += !hgcpu_done[hgcpu_n];\nif (!hgcpu_left) return;"
            )
        return (
            "for (uint32_t hgcpu_z = 0; hgcpu_z < blockDim.z; ++hgcpu_z) "
            "for (uint32_t hgcpu_y = 0; hgcpu_y < blockDim.y; ++hgcpu_y) {\n"
            "const uint32_t hgcpu_row = (hgcpu_z * blockDim.y + hgcpu_y) * blockDim.x;\n"
            f"{self.mark}\n"
            "for (uint32_t hgcpu_x = 0; hgcpu_x < blockDim.x; ++hgcpu_x) {\n"
            "const uint32_t hgcpu_t = hgcpu_row + hgcpu_x; (void)hgcpu_t;\n"
            f"{' '.join(begin)}\n{' '.join(before)}\n{statements}\n{' '.join(after)}\n}}\n}}{end}"
        )

    def _returning(self, phase: _Phase) -> str:
        """Return the text of a phase in which ``return;`` also notes that the thread is done."""
        out = []
        for statement in phase.statements:
            text = self._slice(statement)
            if isinstance(statement, _Written) or not any(t.text == "return" for t in statement.tokens):
                out.append(text)
                continue
            offset = statement.tokens[-1].end - len(text)
            pieces = []
            at = 0
            for n, token in enumerate(statement.tokens):
                if token.text == "return":
                    if statement.tokens[n + 1].text != ";":
                        raise NotUnderstood
                    pieces += [
                        text[at : token.start - offset],
                        "{ hgcpu_done[hgcpu_t] = 1; return; }" if self.flags else "return;",
                    ]
                    at = statement.tokens[n + 1].end - offset
            out.append("".join([*pieces, text[at:]]))
        return "\n".join(out)

    def _exchange(self, variable: _Variable, tokens: Sequence[Token]) -> tuple[str, str]:
        """Return the text that takes a kept variable out of its array, and that puts it back."""
        store = f"hgcpu_k{variable.number}"
        name = variable.name
        if variable.is_array:
            return (
                f"hgcpu_a{variable.number} {name}; {store}.load((void*){name}, hgcpu_t);",
                f"{store}.store((const void*){name}, hgcpu_t);",
            )
        if variable.is_reference:
            return f"{self._type_text(variable)}& {name} = *{store}[hgcpu_t];", ""
        if variable.is_const and not (variable.declared is not None and variable.declared.pointers):
            return f"const {self._type_text(variable)} {name} = {store}[hgcpu_t];", ""
        changed = not (variable.plain or variable.pointer) or changes(tokens, name, Hazards(references=True), variable.pointer)
        return (
            f"{self._type_text(variable) if variable.declared else 'auto'} {name} = {store}[hgcpu_t];",
            f"{store}[hgcpu_t] = {name};" if changed else "",
        )

    def _store(self, variable: _Variable) -> str:
        store = f"hgcpu_k{variable.number}"
        if variable.is_array:
            return f"{store}.store((const void*){variable.name}, hgcpu_t);"
        if variable.is_reference:
            return f"{store}[hgcpu_t] = &{variable.name};"
        return f"{store}[hgcpu_t] = {variable.name};"


class _Written(Statement):
    """A statement whose text is not the source's."""

    __slots__ = ("text",)

    def __init__(self, kind: str, tokens: list[Token], head: list[Token], children: list[Statement], text: str) -> None:
        super().__init__(kind, tokens, head, children)
        self.text = text


# -- questions about tokens ------------------------------------------------------------------------------------------------


def _phases(nodes: Iterable[_Node]) -> Iterator[_Phase]:
    for node in nodes:
        if isinstance(node, _Phase):
            yield node
        elif node.body is not None:
            yield from _phases(node.body)


def _is_barrier(statement: Statement) -> bool:
    texts = [t.text for t in statement.tokens]
    return texts == ["__syncthreads", "(", ")", ";"]


def _children(statement: Statement) -> list[Statement]:
    return statement.children if statement.kind == "block" else [statement]


def _names(tokens: Sequence[Token]) -> set[str]:
    """Return the names in the tokens, members of something left out."""
    return {t.text for n, t in enumerate(tokens) if t.kind == "name" and not (n and tokens[n - 1].text in (".", "->", "::"))}


def _declaration(statement: Statement) -> list[Declared] | None:
    if statement.kind != "simple" or statement.tokens[0].text in _BLOCK_LEVEL:
        return None
    return split_declaration(without_attributes(statement.tokens))


def _calls_member(tokens: Sequence[Token], n: int) -> bool:
    """Return whether a member function of what stands there is called, which may give its address."""
    while n + 2 < len(tokens) and tokens[n + 1].text == ".":
        n += 2
    return n + 1 < len(tokens) and tokens[n + 1].text == "("


def _may_trap(statement: Statement) -> bool:
    """Return whether it divides whole numbers, or may."""
    return any(t.text in ("/", "%", "/=", "%=") for t in statement.tokens)


def _returns_inside(statement: Statement) -> bool:
    """Return whether the statement holds a return that is not the kernel's own: one of a lambda."""
    return statement.kind not in ("return", "block", "if", "for", "while", "do") and any(
        t.text == "return" for t in statement.tokens
    )


def _without_static(text: str) -> str:
    return re.sub(r"\bstatic\b", "", text)


def _assigned(statement: Statement) -> tuple[str, tuple[Token, ...]] | None:
    """Return the variable and the value of ``x = value;``, ``x += value;``, ``x++;``; None for any other statement."""
    return _assigned_tokens(statement.tokens[:-1]) if statement.kind == "simple" else None


def _assigned_tokens(tokens: Sequence[Token]) -> tuple[str, tuple[Token, ...]] | None:
    texts = [t.text for t in tokens]
    if len(texts) == 2 and texts[0] in ("++", "--") and tokens[1].kind == "name":
        return texts[1], ()
    if len(texts) == 2 and texts[1] in ("++", "--") and tokens[0].kind == "name":
        return texts[0], ()
    if len(texts) > 2 and tokens[0].kind == "name":
        if texts[1] in ASSIGNMENTS:
            return texts[0], tuple(tokens[2:])
        if texts[1] == ">" and texts[2] == ">=":  # the tokenizer splits >>=
            return texts[0], tuple(tokens[3:])
    return None


def _made_of(tokens: Sequence[Token], known: Callable[[str], bool]) -> bool:
    """Return whether an expression is arithmetic on names for which `known` is true, without memory or unknown calls."""
    for n, token in enumerate(tokens):
        before = tokens[n - 1] if n else None
        following = tokens[n + 1].text if n + 1 < len(tokens) else ""
        if token.text in ("[", "->", "++", "--") or token.text in ASSIGNMENTS or token.kind == "string":
            return False
        if token.text in ("*", "&"):
            unary = before is None or (before.kind == "punct" and before.text not in (")", "]"))
            # The star of a cast, (float*)p, is no memory access.
            if unary and not (token.text == "*" and following == ")"):
                return False
        elif token.kind == "name":
            if token.text in _PURE_CALLS or token.text in BUILTIN or token.text == "const" or following == "::":
                continue
            if following == "(":
                return False
            # A member of something known, or of a namespace, is as good as that.
            if not (before is not None and before.text in (".", "::")) and not known(token.text):
                return False
    return True


def _leaves(statement: Statement) -> set[str]:
    """Return ``return`` and ``jump`` if the statement returns, or breaks out of or continues a loop around it."""
    out: set[str] = set()

    def walk(inner: Statement, loops: int) -> None:
        if inner.kind == "return" or (inner.kind == "other" and any(t.text == "return" for t in inner.tokens)):
            out.add("return")
        if inner.kind == "jump" and not loops:
            out.add("jump")
        for child in inner.children:
            walk(child, loops + (inner.kind in ("for", "while", "do")))

    walk(statement, 0)
    return out
