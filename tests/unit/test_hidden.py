"""HG606: kernels that reach memory by addresses inside of their data, and what is none of these."""

from __future__ import annotations

from itertools import cycle, product
from typing import Any

import numpy as np
import pytest

import hipgraphdsl as hg

pytestmark = pytest.mark.needs("bounds")

PAIR = np.dtype([("from", "u8"), ("to", "u8"), ("n", "i4")], align=True)
SOURCE = r"""
typedef float* address;
struct Pair { const float* from; float* to; int n; };
struct Holder { int n; Pair pair; };
typedef struct { address first; } Named;
struct Plain { int n; float half(float* x) const { return *x / 2; } };
__device__ float* target;
__constant__ Pair pairs[2];
__constant__ float factors[2];
#define K extern "C" __global__ void
K plain(float* x) { x[threadIdx.x] = 1; }
K by_value(Pair p) { p.to[threadIdx.x] = p.from[threadIdx.x]; }
K by_alias(Named p) { p.first[threadIdx.x] = 1; }
K nested(const Holder* h) { h->pair.to[threadIdx.x] = 1; }
K table(void* t) { float** rows = (float**)t; rows[0][threadIdx.x] = 1; }
K const_table(const void* t, float* x) { x[0] = static_cast<const float* const*>(t)[1][0]; }
K numbers(const unsigned long long* t) { float* row = reinterpret_cast<float*>(t[1]); row[0] = 1; }
K number(unsigned long long t) { ((float*)t)[0] = 1; }
K variable(float v) { target[0] = v; }
K variables(float v) { pairs[1].to[0] = v; }
K no_pointer(Plain p, float* x) { x[0] = p.n; }
K cast(void* t) { float* x = (float*)t; x[0] = 1; }
K wider(float* t) { float4* x = (float4*)t; x[0].x = 1; }
K factor(float* x) { x[0] = factors[1]; }
K index(const unsigned long long* t, float* x) { x[t[0]] = (float)t[1]; }
"""
STRUCTS = {
    "Pair": PAIR,
    "Named": np.dtype([("first", "u8")]),
    "Holder": np.dtype([("n", "i4"), ("pair", PAIR)], align=True),
    "Plain": np.dtype([("n", "i4")]),
}
MODULE = hg.Module(SOURCE, structs=STRUCTS)

HIDDEN: dict[str, list[Any]] = {
    "by_value": [np.array((8, 8, 1), PAIR)[()]],
    "by_alias": [np.array((8,), STRUCTS["Named"])[()]],
    "nested": [STRUCTS["Holder"]],
    "table": ["u8"],
    "const_table": ["u8", "f4"],
    "numbers": ["u8"],
    "number": [12345],
    "variable": [1.0],
    "variables": [1.0],
}
VISIBLE: dict[str, list[Any]] = {
    "no_pointer": [np.array((8,), STRUCTS["Plain"])[()], "f4"],
    "cast": ["f4"],
    "wider": ["f4"],
    "factor": ["f4"],
    "index": ["u8", "f4"],
    "by_value": [np.zeros((), PAIR)[()]],
    "number": [0],
    "table": [None],
}
"""Arguments by kernel; a dtype stands for an array of it."""


def declared(g: hg.Graph, kernel: str, args: list[Any], **more: Any) -> Any:
    given = [g.device_array(f"a{n}", shape=8, dtype=a) if isinstance(a, str | np.dtype) else a for n, a in enumerate(args)]
    return g.kernel(MODULE[kernel], 1, 8, given, name="k", **more)


def found(g: hg.Graph) -> list[Any]:
    return [d for d in g.check().warnings if d.code == "HG606"]


def beside() -> tuple[hg.Graph, Any]:
    g = hg.Graph("g")
    return g, g.kernel(MODULE["plain"], 1, 8, (g.device_array("x", np.zeros(8, "f4")),), name="other")


@pytest.mark.parametrize(("kernel", "args"), HIDDEN.items(), ids=HIDDEN)
def test_addresses_in_data_are_said_until_the_nodes_are_ordered(kernel: str, args: list[Any]) -> None:
    g, other = beside()
    declared(g, kernel, args)
    (said,) = found(g)
    assert said.nodes == ("k",)
    assert "'other'" in said.message
    assert "after=['other']" in said.hint
    g, other = beside()
    declared(g, kernel, args, after=[other])
    assert not found(g)
    g, other = beside()
    g.order(declared(g, kernel, args), other)
    assert not found(g)
    g = hg.Graph("alone")
    declared(g, kernel, args)
    assert not found(g)


@pytest.mark.parametrize(("kernel", "args"), VISIBLE.items(), ids=VISIBLE)
def test_data_without_addresses_is_no_case(kernel: str, args: list[Any]) -> None:
    g, _ = beside()
    declared(g, kernel, args)
    assert not found(g)


def test_a_value_given_at_launch_may_hold_addresses() -> None:
    g, _ = beside()
    g.kernel(MODULE["by_value"], 1, 8, (g.param("p", PAIR),), name="k")
    assert found(g)


def test_an_order_through_other_nodes_is_enough() -> None:
    g, other = beside()
    middle = g.empty(after=[other])
    declared(g, "table", ["u8"], after=[middle])
    assert not found(g)


def test_inside_a_child_graph_the_child_is_beside_others_too() -> None:
    inner = hg.Graph("inner")
    declared(inner, "table", ["u8"])
    g, other = beside()
    g.child(inner, name="c")
    assert [d.nodes for d in found(g)] == [("c",)]
    g, other = beside()
    g.child(inner, name="c", after=[other])
    assert not found(g)


def test_each_of_two_tables_is_said_and_may_be_ignored() -> None:
    g = hg.Graph("g")
    table = g.device_array("t", shape=8, dtype="u8")
    for n in range(2):
        g.kernel(MODULE["table"], 1, 8, (hg.reads(table),), name=f"k{n}", ignore={"HG606": "rows of its own"} if n else None)
    report = g.check()
    assert [d.nodes for d in report.warnings if d.code == "HG606"] == [("k0",)]
    assert [d.nodes for d, _ in report.ignored if d.code == "HG606"] == [("k1",)]


MEMBERS = {
    "pointer": ("float* p;", "int p;"),
    "second declarator": ("float n, *p;", "float n, p;"),
    "pointer to an array": ("float (*p)[4];", "float p[4];"),
    "reference": ("float& p;", "float p;"),
    "restrict and const": ("const float* const __restrict__ p;", "const float p = 2 * 3;"),
    "alias": ("using address = float*; address p;", "using address = float*; float p;"),
    "anonymous union": ("union { float* p; unsigned long u; };", "union { float p; unsigned long u; };"),
    "anonymous in another": ("struct { int n; union { int* p; }; };", "struct { int n; union { int p; }; };"),
    "struct of its own": ("struct Own { float* p; } p;", "struct Own { float* p; }; int p;"),
    "array of structs": ("struct Own { float* p; }; Own p[2];", "struct Own { float p; }; Own p[2 * 2];"),
    "function and pointer": ("int f(int* x) { return *x; } int* p;", "int f(int* x) { return *x; } static int* s; int p;"),
    "private": ("private: float* p;", "private: float p : 3; public: T(float* x) : p(*x) {}"),
    "itself": ("T* next;", "static T* next; int p;"),
}
"""Members of a struct T: some with an address in them, and their like without one."""
TYPES = {
    "struct": "struct T { %s };",
    "class": "class T { public: %s };",
    "union": "union T { %s };",
    "typedef struct": "typedef struct T { %s } T;",
    "namespace": "namespace a { struct T { %s }; } using a::T;",
    "template": "template<class U> struct T_ { U u; %s }; struct T : T_<int> {};",
}
OUTSIDE = {
    "directly": ("", "T"),
    "using": ("using Args = T;", "Args"),
    "typedef": ("typedef T Args, *Pointer;", "Args"),
    "typedef of using": ("using A = T; typedef A Args;", "Args"),
    "base": ("struct Args : T { int n; };", "Args"),
    "second base": ("struct E {}; struct Args final : E, public T {};", "Args"),
    "member": ("struct Args { int n; T t[2]; };", "Args"),
    "template's argument": ("template<class U> struct Wrap { U u; };", "Wrap<T>"),
    "alias template": ("template<class U> using Same = U; using Args = Same<T>;", "Args"),
    "base of a template": ("template<class U> struct Args_ : U {}; struct Args : Args_<T> {};", "Args"),
    "inner type": ("struct Outer { int* other; struct Args { T t; }; };", "Outer::Args"),
}


@pytest.mark.parametrize(("of", "member"), [*zip(product(TYPES, OUTSIDE), cycle(MEMBERS))])
def test_addresses_are_found_in_every_type_that_holds_them_and_in_no_other(of: tuple[str, str], member: str) -> None:
    made, around = of
    for text, holds in zip(MEMBERS[member], (True, False)):
        outside, name = OUTSIDE[around]
        source = f'{TYPES[made] % text} {outside} extern "C" __global__ void k({name} t, float* y) {{ y[0] = 1; }}'
        module = hg.Module(source, structs={name: np.dtype([("p", "u8")])})
        g, _ = beside()
        g.kernel(module["k"], 1, 1, (g.param("t", module.structs[name]), g.device_array("y", shape=1, dtype="f4")), name="k")
        assert bool(found(g)) == holds, source


CASTS = {
    "integer": ("u64 a", "((float*)a)[0] = 1;"),
    "sum": ("u64 a", "((float*)(a + 64))[0] = 1;"),
    "variable": ("u64 a", "u64 b = a + 64; b &= ~15ull; ((float*)b)[0] = 1;"),
    "deduced variable": ("u64 a", "auto b = a; auto c = b; float* p = reinterpret_cast<float*>(c); p[0] = 1;"),
    "choice": ("u64 a", "u64 b; b = y[0] ? a : 0; ((float*)b)[0] = 1;"),
    "two casts": ("u64 a", "((float*)(void*)a)[0] = 1;"),
    "signed": ("long a", "*(float*)a = 1;"),
    "member": ("S s", "((float*)s.a)[0] = 1;"),
    "member of a member": ("S s", "((float*)s.t.b[1])[0] = 1;"),
    "member by pointer": ("const S* s", "((float*)s[1].t.b[0])[0] = 1; ((float*)s->a)[0] = 1;"),
    "element": ("const u64* t", "((float*)*(t + 2))[0] = 1;"),
    "element of a variable": ("const void* t", "const u64* rows = (const u64*)t; ((float*)rows[1])[0] = 1;"),
    "element by __ldg": ("const u64* t", "((float*)__ldg(t + 1))[0] = 1;"),
    "lane of a vector": ("ulonglong2 v", "((float*)v.y)[0] = 1;"),
    "table": ("char* t", "char* later = t + 16; ((float**)later)[0][0] = 1;"),
    "address of a value": ("u64 a", "(*(float**)&a)[0] = 1;"),
    "structs with pointers": ("void* t", "y[0] = *((P*)t)->p;"),
}
NO_CASTS = {
    "offset": ("u64 a", "((float4*)((char*)y + a))[0].x = 1;"),
    "aligned": ("u64 a", "((float4*)(((u64)y + a + 15) & ~15ull))[0].x = 1;"),
    "element": ("const u64* t", "float4* p = (float4*)&y[t[1]]; p->x = 1;"),
    "variable": ("S s", "float* p = y; p += s.a; ((int*)p)[0] = 1;"),
    "four bytes": ("int a, T4 s", "((float*)(u64)a)[0] = 1; ((float*)(u64)s.n)[0] = 1;"),
    "value": ("u64 a", "y[0] = (float)a;"),
    "condition": ("u64 a", "((float*)(u64)(a < 4))[0] = 1;"),
    "structs without": ("void* t", "y[0] = ((T4*)t)->n;"),
}


@pytest.mark.parametrize(
    ("parameter", "body", "holds"),
    [(*case, True) for case in CASTS.values()] + [(*case, False) for case in NO_CASTS.values()],
    ids=[*CASTS, *(f"not {name}" for name in NO_CASTS)],
)
def test_integers_that_become_pointers_are_followed_through_the_body(parameter: str, body: str, holds: bool) -> None:
    module = hg.Module(
        "typedef unsigned long long u64; struct T { int n; u64 b[2]; }; struct S { u64 a; T t; }; struct T4 { int n; };"
        f'struct P {{ float* p; }}; extern "C" __global__ void k({parameter}, float* y) {{ {body} }}',
        structs={"S": np.dtype([("a", "u8"), ("t", [("n", "i4"), ("b", "u8", 2)])], align=True), "T4": np.dtype([("n", "i4")])},
    )
    g, _ = beside()
    signature = module["k"].signature
    assert signature is not None
    args: list[Any] = []
    for p in signature.parameters:
        dtype = p.dtype or np.dtype("u1")
        value = (7,) * p.lanes if p.lanes > 1 else g.param(p.name, dtype) if not p.pointer else None
        args.append(g.device_array(p.name, shape=64, dtype=dtype) if value is None else value)
    g.kernel(module["k"], 1, 1, args, name="k")
    assert bool(found(g)) == holds


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("ignoring", ["kernel", "child"])
def test_ignoring_in_a_child_graph_counts_for_the_child_too(depth: int, ignoring: str) -> None:
    why = {"HG606": "rows of its own"}
    inner = hg.Graph("inner")
    declared(inner, "table", ["u8"], ignore=why if ignoring == "kernel" else None)
    for n in range(depth):
        g = beside()[0] if n == depth - 1 else hg.Graph(f"level{n}")
        g.child(inner, name="c", ignore=why if ignoring == "child" and n == 0 else None)
        inner = g
    report = g.check()
    assert not found(g)
    assert [d.nodes for d, reason in report.ignored if reason == why["HG606"]] == [("c",)]


def test_a_kernel_that_does_not_ignore_is_said_beside_one_that_does() -> None:
    inner = hg.Graph("inner")
    tables = inner.device_array("t", shape=8, dtype="u8"), inner.device_array("u", shape=8, dtype="u8")
    for n, table in enumerate(tables):
        inner.kernel(MODULE["table"], 1, 8, (table,), name=f"k{n}", ignore=None if n else {"HG606": "rows of its own"})
    g, _ = beside()
    g.child(inner, name="c")
    (said,) = (d for d in found(g) if d.nodes == ("c",))
    assert "'c/k1'" in said.message
