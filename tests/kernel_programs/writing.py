"""Trees as HIP C++."""

from __future__ import annotations

from collections.abc import Sequence

from .tree import (
    BOOL,
    I32,
    I64,
    PARAMETER,
    U32,
    U64,
    Assign,
    Assigned,
    Atomic,
    Barrier,
    Binary,
    Block,
    Builtin,
    Call,
    Cast,
    Choice,
    Closure,
    Comma,
    Decl,
    Declare,
    Define,
    Expand,
    Expr,
    For,
    Function,
    If,
    Index,
    Kernel,
    Leave,
    Literal,
    Load,
    Logic,
    Macro,
    Record,
    Return,
    Spelled,
    Step,
    Stmt,
    Switch,
    Text,
    Type,
    Unary,
    Use,
    Vote,
    Warp,
    While,
    walk,
)  # fmt: skip

HEAD = """#include <hip/hip_runtime.h>
#define ONE_LINE(...) __VA_ARGS__
#define PASTE(a, b) a##b
#define SPELL(x) #x
#define EACH(i, n) for (int i = 0; i < (n); ++i)
#define SHARED __shared__
struct Both { int a; unsigned x; };
static constexpr int LIMIT = 3;
"""


def write_source(kernels: Sequence[Kernel]) -> str:
    return HEAD + "".join(map(write_kernel, kernels))


def write_kernel(kernel: Kernel) -> str:
    return _Writer(kernel).kernel()


def _suffix(kind: Type) -> str:
    return {U32: "u", I64: "ll", U64: "ull"}.get(kind, "")


class _Writer:
    def __init__(self, kernel: Kernel) -> None:
        self.of = kernel
        self.defined: list[str] = []

    def kernel(self) -> str:
        k = self.of
        out = [f"// {k.name}: seed {k.seed}, <<<{k.grid}, {k.block}>>>"]
        out += self.statements(k.before)
        for d in k.constants:
            given = ", ".join(map(str, d.values))
            name = f"{d.name}[{d.size}] = {{{given}}}" if d.size else f"{d.name} = {given}"
            out.append(f"{'__constant__ const' if d.size else 'static constexpr'} {d.type.name} {name};")
        for function in k.functions:
            lines = self.function(function)
            out += [f"namespace {function.space} {{", *lines, "}"] if function.space else lines
        parameters = ", ".join(self.parameter(d) for d in k.parameters)
        out += [f"__global__ void {k.name}({parameters}) {{", *self.statements(k.body), "}"]
        out += [f"#undef {name}" for name in dict.fromkeys(self.defined)]
        return "\n".join(out) + "\n"

    def parameter(self, d: Decl) -> str:
        if d.size:
            return f"{'const ' if d.fixed else ''}{d.type.name}* {d.name}"
        default = "" if d.default is None else f" = {d.default}"
        return f"{'const ' * (d.reference and d.fixed)}{d.type.name}{self.sign(d)} {d.name}{default}"

    @staticmethod
    def sign(d: Decl) -> str:
        return "*" if d.pointer else "&" if d.reference else ""

    def function(self, f: Function) -> list[str]:
        head = f"__device__ {f.inline}{f.result.name} {f.name}({', '.join(map(self.parameter, f.parameters))})"
        body = ["{", *self.statements(f.body), "}"]
        if f.form == "template":
            given = ["class T"] if any(d.type is PARAMETER for d in f.parameters) else []
            given += [f"int {f.number.name}"] if f.number else []
            return [f"template <{', '.join(given)}>", head, *body]
        if f.form == "functor":
            parameters = ", ".join(map(self.parameter, f.parameters))
            return [f"struct {f.name} {{", f"__device__ {f.result.name} operator()({parameters}) const", *body, "};"]
        if f.form == "static":
            return [f"struct {f.name}_of {{", f"static {head}", *body, "};"]
        return [head, *body]

    # -- statements ----------------------------------------------------------------------------------------------------

    def statements(self, body: Sequence[Stmt]) -> list[str]:
        out: list[str] = []
        for stmt in body:
            out += self.statement(stmt)
        return out

    def body(self, body: Sequence[Stmt], braces: bool, before_else: bool = False) -> list[str]:
        """Write what a condition or a loop holds."""
        if not braces and len(body) == 1:
            single = body[0]
            plain = isinstance(single, (Assign, Step, Leave, Return, Atomic)) or (
                not before_else and isinstance(single, (For, While))
            )
            if plain and not any(isinstance(node, (Define, Text)) for node in walk(single)):
                return self.statement(single)
        return ["{", *self.statements(body), "}"]

    def statement(self, s: Stmt) -> list[str]:
        match s:
            case Declare():
                return [self.declare(s)]
            case Record():
                given = ", ".join(f"({d.type.name})({self.expr(e)})" for d, e in zip(s.members, s.values))
                return [f"Both {s.name} = {{{given}}};"]
            case Assign():
                return [f"{self.expr(s.target)} {s.op} {self.expr(s.value)};"]
            case Step():
                name = self.expr(s.target)
                return [f"{s.op}{name};" if s.prefix else f"{name}{s.op};"]
            case If():
                first = self.declare(s.first) + " " if s.first else ""
                out = [f"if ({first}{self.expr(s.condition)})", *self.body(s.then, s.braces, s.other is not None)]
                return out if s.other is None else [*out, "else", *self.body(s.other, s.braces)]
            case For():
                return self.loop(s)
            case While():
                condition = f"{s.counter.name}-- > 0" if s.counter else self.expr(s.condition) if s.condition else "true"
                inner = ["{", *self.statements(s.body), "}"]
                return ["do", *inner[:-1], f"}} while ({condition});"] if s.last else [f"while ({condition})", *inner]
            case Leave():
                return [f"{s.word};"]
            case Return():
                return [f"return {self.expr(s.value)};" if s.value else "return;"]
            case Switch():
                lines = [f"switch ({self.expr(s.value)}) {{"]
                for arm in s.arms:
                    lines += ["default:" if label is None else f"case {label}:" for label in arm.labels]
                    inner = self.statements(arm.body)
                    if any(isinstance(x, (Declare, Closure, Record)) for x in arm.body):
                        inner = ["{", *inner, "}"]
                    # A label needs a statement behind it.
                    lines += [*[";"] * all(isinstance(x, (Text, Define)) for x in arm.body), *inner]
                return [*lines, "}"]
            case Block():
                inner = self.statements(s.body)
                if s.style == "line" and not any("#" in line or "//" in line for line in inner):
                    return [f"ONE_LINE({{ {' '.join(inner)} }})"]
                return ["{", *inner, "}"]
            case Barrier():
                return [f"__syncwarp({self.expr(s.warp)});" if s.warp else "__syncthreads();"]
            case Atomic():
                return [f"{s.name}(&{self.expr(s.target)}, {self.expr(s.value)});"]
            case Define():
                return self.define(s.macro)
            case Text():
                return s.text.split("\n")
            case Closure():
                f = s.function
                parameters = ", ".join(map(self.parameter, f.parameters))
                capture = "[=]" if s.copies else "[&]"
                return [f"auto {f.name} = {capture}({parameters}) -> {f.result.name} {{", *self.statements(f.body), "};"]
        raise AssertionError(s)

    def declare(self, s: Declare) -> str:
        d = s.decl
        kind = d.type.name
        const = "const " * (d.fixed and not d.changes)
        if d.where == "shared":
            return f"{'SHARED' if s.style else '__shared__'} {kind} {d.name}[{d.size}];"
        if d.where == "dynamic":
            return f"extern __shared__ {kind} {d.name}[];"
        if d.size:
            size = s.style or str(d.size)
            return f"{kind} {d.name}[{size}] = {{{', '.join(f'({kind})({self.expr(e)})' for e in s.values)}}};"
        assert s.value is not None
        if d.reference:
            return f"{kind}{self.sign(d)} {d.name} = {'&' * d.pointer}{self.expr(s.value)};"
        kind = f"{'volatile ' * d.volatile}{kind}"
        if s.style == "brace":
            return f"{const}{kind} {d.name}{{({kind})({self.expr(s.value)})}};"
        if s.style == "auto":
            return f"auto {d.name} = ({kind})({self.expr(s.value)});"
        return f"{const}{kind} {d.name} = {self.expr(s.value)};"

    def loop(self, s: For) -> list[str]:
        name = s.decl.name
        body = self.body(s.body, s.braces)
        if s.style == "macro" and s.decl.type == I32 and s.step == 0 and s.also is None:
            return [f"EACH({name}, {self.expr(s.end)})", *body]
        also = f" && {self.expr(s.also)}" if s.also else ""
        step = f"++{name}" if s.step == 0 else f"{name} += {s.step}"
        compare = "<"
        if s.style == "halve":
            compare, step = ">", f"{name} /= 2"
        pragma = ["#pragma unroll"] if s.style == "unroll" else []
        start = f"{s.decl.type.name} {name} = {self.expr(s.start)}"
        return [*pragma, f"for ({start}; {name} {compare} {self.expr(s.end)}{also}; {step})", *body]

    def define(self, m: Macro) -> list[str]:
        redefined = m.name in self.defined
        self.defined.append(m.name)
        names = "" if m.parameters is None else f"({', '.join('...' if m.variadic else d.name for d in m.parameters)})"
        body = self.expr(m.body, {id(d): "__VA_ARGS__" if m.variadic else f"({d.name})" for d in m.parameters or ()})
        return [*[f"#undef {m.name}"] * redefined, f"#define {m.name}{names} ({body})"]

    # -- expressions ----------------------------------------------------------------------------------------------------

    def expr(self, e: Expr, names: dict[int, str] | None = None) -> str:
        def sub(x: Expr) -> str:
            return self.expr(x, names)

        match e:
            case Literal():
                return self.literal(e)
            case Use():
                if names and id(e.decl) in names:
                    return names[id(e.decl)]
                if e.decl.pointer:
                    return f"(*{e.decl.name})"
                if e.style == "paste" and len(e.decl.name) > 1:
                    return f"PASTE({e.decl.name[0]}, {e.decl.name[1:]})"
                return e.decl.name
            case Index():
                return e.name
            case Load():
                return f"{e.array.name}[{sub(e.index)}]"
            case Unary():
                return f"({e.op}{sub(e.a)})"
            case Binary() | Logic():
                return f"({sub(e.a)} {e.op} {sub(e.b)})"
            case Choice():
                return f"({sub(e.condition)} ? {sub(e.a)} : {sub(e.b)})"
            case Assigned():
                return f"({sub(e.target)} = {sub(e.value)})"
            case Comma():
                return f"({sub(e.a)}, {sub(e.b)})"
            case Cast():
                if e.style == "static":
                    return f"static_cast<{e.type.name}>({sub(e.a)})"
                # int(x) and int(x[1]) might declare something: within parentheses, which macros add, they name a function's type.
                if e.style == "function" and " " not in e.type.name and isinstance(e.a, (Unary, Binary, Logic, Choice)):
                    return f"{e.type.name}({sub(e.a)})"
                return f"(({e.type.name})({sub(e.a)}))"
            case Builtin():
                return f"{e.name}({', '.join(map(sub, e.args))})"
            case Spelled():
                return f"(int)sizeof(SPELL({e.word}))" if e.at < 0 else f"((int)SPELL({e.word})[{e.at}])"
            case Warp():
                given = [sub(e.mask)] if e.mask is not None else []
                given += map(sub, e.args)
                given += [str(e.width)] if e.width else []
                text = f"__{e.name}{'_sync' * (e.mask is not None)}({', '.join(given)})"
                if e.name in ("any", "all"):
                    return f"((int)({text} != 0))"
                return text if e.name.startswith("shfl") else f"((unsigned long long){text})"
            case Vote():
                text = f"__syncthreads_{e.name}({sub(e.a)})"
                return text if e.name == "count" else f"((int)({text} != 0))"
            case Call():
                given = [f"{'&' * d.pointer}{sub(a)}" for d, a in zip(e.function.parameters, e.args)]
                if e.args and isinstance(e.args[-1], Literal) and e.args[-1].style == "default":
                    given.pop()
                return self.call(e, given)
            case Expand():
                return e.macro.name + ("" if e.macro.parameters is None else f"({', '.join(map(sub, e.args))})")
        raise AssertionError(e)

    def call(self, e: Call, args: list[str]) -> str:
        f = e.function
        given = ", ".join(args)
        name = f"{f.space}::{f.name}" if f.space else f.name
        if f.form == "template":
            types = [t.name for t in e.types.values()] + ([] if e.number is None else [str(e.number)])
            return f"{name}<{', '.join(types)}>({given})"
        if f.form == "functor":
            return f"{name}{{}}({given})"
        if f.form == "static":
            return f"{name}_of::{f.name}({given})"
        return f"{name}({given})"

    def literal(self, e: Literal) -> str:
        if e.type == BOOL:
            return "true" if e.value else "false"
        if e.style == "LIMIT":
            return "LIMIT"
        if e.style == "char":
            return f"'{chr(e.value)}'"
        if e.type.bits < 32:
            return f"(({e.type.name}){e.value})"
        if e.value == e.type.low and e.type.signed:
            return f"(({e.value + 1}{_suffix(e.type)}) - 1)"
        number = abs(e.value)
        text = (
            hex(number)
            if e.style == "hex"
            else f"{number // 1000}'{number % 1000:03}"
            if e.style == "'" and number > 999
            else str(number)
        )
        if e.style == "hex" and e.type in (I32, I64) and number >= 1 << (e.type.bits - 1):
            text = str(number)
        return f"(-{text}{_suffix(e.type)})" if e.value < 0 else f"{text}{_suffix(e.type)}"
