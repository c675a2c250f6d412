"""A Python program that declares the workflow: ``build()`` returns a Graph equal to it."""

from __future__ import annotations

import base64
import keyword
import math
import re
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import attrgetter
from typing import Any

import numpy as np

from ...arrays import (
    EXTRAS,
    Access,
    AllocArray,
    Array,
    ArrayView,
    Expression,
    ExternalArray,
    HostArray,
    MovingView,
    Parameter,
    Root,
    UnboundValues,
    Viewable,
    is_extra,
)
from ...errors import DeclarationError
from ...export.files import npy_file
from ...kernels import Kernel, Module, Symbol
from ...nodes import Event, MemoryOp, Node, Semaphore, UnboundCallback
from ...nodes.base import Field
from ...nodes.fields import quoted
from ...nodes.host import callback_path
from ...nodes.values import MAX_VALUES, unique
from ...nodes.workflow import Workflow

_EXTRAS = "|".join(EXTRAS)
_RESERVED = {
    "g", "hg", "np", "base64", "cache", "import_module", "Path", "build", "main", "OUTSIDE", "stored", "values_of", "float",
    "complex", "bytes", "print",
}  # fmt: skip
_HELPERS = {
    "stored": '''
def stored(text, dtype, shape):
    """Return values that have no short form as text."""
    return np.frombuffer(base64.b64decode(text), np.dtype(dtype)).reshape(shape).copy()
''',
    "values_of": '''
def values_of(name, dtype):
    """Return the values of a large array, which stand in a file beside this program."""
    values = np.load(Path(__file__).with_suffix(f".{name}.npy"), allow_pickle=False)
    return values.view(dtype) if values.dtype.kind == "V" else values
''',
}
"""Helper functions that a program includes only if its values need them, by name."""


def render(workflow: Workflow) -> str:
    """Return a workflow as a Python program.

    Refuses objects that program text cannot name: a lambda, a closure, an object of another library.
    """
    return _Program(workflow).text()


def companions(workflow: Workflow, *, stem: str) -> dict[str, bytes]:
    """Return the ``.npy`` files that program ``STEM.py`` reads, by name: the values of arrays with more than 4096 elements."""
    arrays = _in_files(workflow).items()
    return {f"{stem}.{end}.npy": npy_file(a.initial) for a, end in arrays if not isinstance(a.initial, UnboundValues)}


def _in_files(workflow: Workflow) -> dict[Any, str]:
    """Return the arrays whose values the program reads from files, each with the unique part of its file name."""
    found: dict[Any, str] = {}
    for array in (array for document in workflow.documents for array in document.arrays.values()):
        initial = getattr(array, "initial", None)
        if isinstance(initial, UnboundValues) or (initial is not None and initial.size > MAX_VALUES):
            found[array] = unique(re.sub(r"\W", "_", array.name, flags=re.ASCII)[:100], found.values())
    return found


class _Program:
    def __init__(self, workflow: Workflow) -> None:
        self.root = workflow
        self.modules: dict[Module, str] = {}
        self.children: dict[int, str] = {}
        self.functions: list[str] = []
        self.callbacks: dict[str, str] = {}
        self.classes: dict[type[Node], str] = {}
        self.imports: dict[str, None] = {}
        self.outside: dict[str, str] = {}
        self.outside_keys: dict[Array, str] = {}
        self.files = _in_files(workflow)
        self.globals = set(_RESERVED)
        self.needs: set[str] = set()
        self.enabled: dict[str, None] = {}  # parts of other packages whose kinds of node it has

    def text(self) -> str:
        for n, module in enumerate(self.root.modules):
            self.modules[module] = _identifier("module" if n == 0 else f"module_{n + 1}", self.globals)
        self._function(self.root, "build")
        body = "\n\n".join(self.functions)
        modules = [line for module, variable in self.modules.items() for line in (*self._module(module, variable), "")]
        head = [
            quoted(f"Workflow {self.root.name}, as hipgraphdsl wrote it."),
            *self._warning(),
            "",
            "from __future__ import annotations",
            "",
        ]
        needed = {
            "import base64": "stored" in self.needs,
            "from functools import cache": self.children,
            "from importlib import import_module": "import_module" in self.needs,
            "from pathlib import Path": "values_of" in self.needs,
        }
        standard = [line for line, used in needed.items() if used]
        head += [*standard, ""] if standard else []
        if re.search(rf"['\"](?:{_EXTRAS})['\"]", "\n".join((body, *modules, *self.outside.values()))):
            head.append("import ml_dtypes  # noqa: F401  # NumPy knows bfloat16 and other types through it")
        if re.search(r"\bnp\.", "\n".join((body, *self.outside.values()))) or self.needs & {"stored", "values_of", "numpy"}:
            head += ["import numpy as np", ""]
        head += ["import hipgraphdsl as hg", *sorted(self.imports), ""]
        if self.enabled:
            head += [f"hg.enable({', '.join(map(quoted, self.enabled))})", ""]
        head += modules
        if self.outside:
            head.append("# Somebody else's memory, used in place: put the objects here.")
            head += ["OUTSIDE = {", *(f"    {name!r}: {value}," for name, value in self.outside.items()), "}", ""]
        head += [line for name, text in _HELPERS.items() if name in self.needs for line in text.split("\n")]
        tail = [
            "",
            "",
            'if __name__ == "__main__":',
            "    with build().compile() as exe:",
            "        exe.run()",
            "        print(exe.stats)",
            "",
        ]
        return "\n".join([*head, "", body, *tail])

    def outside_key(self, array: ExternalArray) -> str:
        """Return the key of external memory in `OUTSIDE`: its name, with a number if another graph uses that name too."""
        if array not in self.outside_keys:
            self.outside_keys[array] = unique(array.name, self.outside)
        return self.outside_keys[array]

    def _warning(self) -> list[str]:
        """Return the comment that lists the foreign code that the program runs: the workflow may come from an untrusted file."""
        if not self.callbacks:
            return []
        text = (
            "Importing this file imports, and so runs, what the workflow names as callbacks; running it calls them:"
            f" {', '.join(map(ascii, self.callbacks))}. Where the workflow comes from somebody else, look at them first."
        )
        return textwrap.wrap(text, 120, initial_indent="# ", subsequent_indent="# ", break_long_words=False)

    # -- modules and functions -----------------------------------------------------------------------------------------

    def _module(self, module: Module, variable: str) -> list[str]:
        if module.handle is not None:
            module.to_dict()  # raises DeclarationError
        options = []
        if not re.fullmatch(r"kernels_[0-9a-f]{8}", module.name):
            options.append(f"name={module.name!r}")
        if module.path is not None:
            signatures = module.to_dict().get("signatures")
            parts = [repr(str(module.path)), *([f"signatures={signatures!r}"] if signatures else []), *options]
            return [f"{variable} = hg.Module.from_file({', '.join(parts)})"]
        if module.options:
            options.append(f"options={list(module.options)!r}")
        if module.structs:
            layouts = ", ".join(f"{name!r}: {_dtype(dtype)}" for name, dtype in module.structs.items())
            options.append(f"structs={{{layouts}}}")
            self.needs.add("numpy")
        source = module.source
        # A raw string ends at three quotes, and Python converts "\r\n" to "\n"; both are rare in sources.
        plain = '"""' not in source and not source.endswith(("\\", '"')) and "\r" not in source
        if plain and all(c == "\n" or c == "\t" or c.isprintable() for c in source):
            text = f'r"""{source}"""'
        else:
            text = repr(source)
        more = "".join(f", {option}" for option in options)
        return [f"{variable} = hg.Module({text}{more})"]

    def _function(self, workflow: Workflow, name: str) -> None:
        """Append the function of a workflow, after those of its children."""
        body = _Body(self, workflow)
        lines = body.lines()
        decorator = "" if workflow is self.root else "@cache\n"
        self.functions.append(
            f"\n{decorator}def {name}() -> hg.Graph:\n"
            f'    """Declare the workflow."""\n' + "\n".join(f"    {line}" for line in lines) + "\n    return g"
        )

    def child(self, workflow: Workflow) -> str:
        known = self.children.get(id(workflow))
        if known is None:
            known = self.children[id(workflow)] = _identifier(f"build_{workflow.name}", self.globals)
            self._function(workflow, known)
        return f"{known}()"

    def node_class(self, cls: type[Node]) -> str:
        """Return the text of a class of nodes: a public name of this package, or one that is imported from another."""
        name = cls.__name__
        if cls.__module__.startswith(f"{__name__.partition('.')[0]}."):
            return f"hg.{name}"
        known = self.classes.get(cls)
        if known is None:
            known = self.classes[cls] = _identifier(name, self.globals)
            self.imports[f"from {cls.__module__} import {name}" + (f" as {known}" if known != name else "")] = None
            part, dot, _ = cls.kind.partition(".")
            if dot:
                self.enabled[part] = None
        return known

    def callback(self, fn: Any) -> str:
        path = callback_path(fn)
        known = self.callbacks.get(path)
        if known is None:
            module, _, name = path.partition(":")
            importable = all(part.isidentifier() and not keyword.iskeyword(part) for part in module.split("."))
            if "." in name or not importable:
                self.needs.add("import_module")
                known = f"import_module({module!r}).{name}"
            else:
                known = _identifier(name, self.globals)
                self.imports[f"from {module} import {name}" + (f" as {known}" if known != name else "")] = None
            self.callbacks[path] = known
        return known


class _Body:
    """The statements of one function."""

    def __init__(self, program: _Program, workflow: Workflow) -> None:
        self.program = program
        self.child, self.callback = program.child, program.callback
        self.workflow = workflow
        self.variables: dict[int, str] = {}
        for node in workflow.nodes:  # name these functions first: variables must not shadow them
            for _, inner, _ in node.held:
                self.child(inner)
            if node.callback is not None:
                with _of_node(node):
                    self.callback(node.callback)
        self.used = set(program.globals)

    def lines(self) -> list[str]:
        workflow = self.workflow
        infer = "" if workflow.infer else ", infer=False"
        lines = [f"g = hg.Graph({quoted(workflow.name)}{infer})"]
        for array in workflow.arrays.values():
            if not isinstance(array, AllocArray):
                lines.append(f"{self.variable(array)} = {self._array(array)}")
        for parameter in workflow.parameters.values():
            extra = f", default={self.value(parameter.default)}" if parameter.default is not None else ""
            extra += f", shape={parameter.shape!r}" if parameter.shape else ""
            extra += ", copy=True" if parameter.copy else ""
            extra += "".join(f", {key}={value}" for key, value in parameter.limits.items())
            lines.append(
                f"{self.variable(parameter)} = g.param({quoted(parameter.name)}, dtype={_dtype(parameter.dtype)}{extra})"
            )
        for node in workflow.nodes:
            with _of_node(node):
                lines.append(self._node(node))
        lines += [f"g.order({quoted(source)}, {quoted(target)})" for source, target in workflow.plain_edges]
        return lines

    def place(self, array: Array) -> str:
        """Return the arguments for an array's device and for the devices that have access to it."""
        device = f", device={array.device}" if array.device is not None else ""
        return device + (f", access={list(array.access)}" if array.access else "")

    def variable(self, thing: Root) -> str:
        if id(thing) not in self.variables:
            self.variables[id(thing)] = _identifier(thing.name, self.used)
        return self.variables[id(thing)]

    def _array(self, array: Array) -> str:
        device = self.place(array)
        if isinstance(array, ExternalArray):
            made = f"np.zeros({array.shape!r}, {_dtype(array.dtype)})"
            if array.location == "device":
                made = f"None,  # device memory of {array.dtype}{list(array.shape)}".rstrip(",")
            elif not array.writeable:
                made = f"np.frombuffer(bytes({array.nbytes}), {_dtype(array.dtype)}).reshape({array.shape!r})"
            key = self.program.outside_key(array)
            self.program.outside[key] = made
            return f"g.external_array({quoted(array.name)}, OUTSIDE[{quoted(key)}]{device})"
        method = "host_array" if isinstance(array, HostArray) else "device_array"
        where = ""
        if isinstance(array, HostArray):
            where = ", pinned=False" * (not array.pinned) + f", rank={array.rank!r}" * (array.rank != 0)
        initial: Any = getattr(array, "initial", None)
        dtype = f"dtype={_dtype(array.dtype)}"
        if initial is None:
            given = f"shape={array.shape!r}, {dtype}"
        elif array in self.program.files:
            self.program.needs.add("values_of")
            given = f"values_of({quoted(self.program.files[array])}, {_dtype(array.dtype)}), {dtype}"
        elif initial.dtype.kind in "biuf" and not is_extra(initial.dtype) and bool(np.isfinite(initial).all()):
            values = _nested(initial)
            given = f"{values if initial.ndim else f'np.array({values})'}, {dtype}"  # a plain number would be taken for a shape
        else:
            given = self._stored(initial)
        return f"g.{method}({quoted(array.name)}, {given}{where}{device})"

    def _stored(self, values: np.ndarray[Any, Any]) -> str:
        self.program.needs.add("stored")
        return f"stored({base64.b64encode(values.tobytes()).decode()!r}, {_dtype(values.dtype)}, {values.shape!r})"

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def _node(self, node: Node) -> str:
        common = ("device", *Node.model_fields)
        fields = node.stored()
        own = [self._field(field, node) for field in fields if field.name not in common]
        rest = [self._field(field, node) for field in fields if field.name in common]
        arguments = ", ".join([*own, f"name={quoted(node.name)}", *rest])
        if not node.method:
            return f"g.add({self.program.node_class(type(node))}({arguments}))"
        made = "" if node.made is None else f"{self.variable(node.made)} = "
        return f"{made}g.{node.method}({arguments})"

    def _field(self, field: Field, node: Node) -> str:
        """Return a field as an argument of the node's method or, if it has none, of its class."""
        value = getattr(node, field.name)
        if node.method and field.name == "access":
            reads, writes = ([a.view for a in value if touches(a)] for touches in (attrgetter("is_read"), attrgetter("is_write")))
            return f"reads={self.value(reads)}, writes={self.value(writes)}"
        if node.method and node.made is not None:
            return f"{quoted(value.name)}, shape={value.shape!r}, dtype={_dtype(value.dtype)}{self.place(value)}"
        text = self._spelled(field.spelled(value, node))
        return text if node.method and field.always and not field.rule.keyword else f"{field.name}={text}"

    def _spelled(self, value: Any) -> str:
        """Return the value of a field."""
        if isinstance(value, Workflow):
            return self.child(value)
        if isinstance(value, Kernel):
            return f"{self.program.modules[value.module]}[{quoted(value.name)}]"
        if isinstance(value, (Event, Semaphore)):
            return f"hg.Event({quoted(value.name)}, shared=True)" if getattr(value, "shared", False) else quoted(value.name)
        if isinstance(value, MemoryOp):
            condition = f", {quoted(value.condition)}" if value.op == "wait" else ""
            return f"hg.{value.op}_value({self.view(value.view)}, {value.value}{condition})"
        if isinstance(value, list):
            return f"[{', '.join(map(self._spelled, value))}]"
        if isinstance(value, (Callable, UnboundCallback)):  # type: ignore[arg-type]  # collections.abc.Callable is a class
            return self.callback(value)
        return self.value(value)

    # -- values --------------------------------------------------------------------------------------------------------

    def view(self, view: ArrayView) -> str:
        root = view.root
        if isinstance(root, Symbol):
            name = f"{self.program.modules[root.module]}.symbol({quoted(root.name)})"
        else:
            name = self.variable(root)
        if isinstance(view, MovingView):
            return name + view.spelled(self.variable, "hg.")[len(root.name) :]
        return name + view.name[len(root.name) :]

    def value(self, value: Any) -> str:
        kind = type(value)
        if isinstance(value, ArrayView):
            return self.view(value)
        if isinstance(value, Expression):
            return value.spelled(self.variable, "hg.")
        if isinstance(value, Parameter):
            return self.variable(value)
        if isinstance(value, Access):
            return f"hg.{value.mode}s({self.view(value.view)})"
        if value is None or kind in (bool, int, str, bytes):
            return quoted(value) if kind is str else repr(value)
        if kind is float:
            return repr(value) if math.isfinite(value) else f"float({str(value)!r})"
        if kind is complex:
            return f"complex({self.value(value.real)}, {self.value(value.imag)})"
        if kind is tuple:
            return f"({', '.join(map(self.value, value))}{',' if len(value) == 1 else ''})"
        if kind is list:
            return f"[{', '.join(map(self.value, value))}]"
        if kind is dict:
            return f"{{{', '.join(f'{self.value(k)}: {self.value(v)}' for k, v in value.items())}}}"
        if kind is np.ndarray:
            if value.size > MAX_VALUES:
                raise DeclarationError(f"an argument of {value.size} elements; declare it as host_array instead")
            return self._stored(value)
        if isinstance(value, np.generic):
            return f"{self._stored(np.asarray(value))}[()]"
        if isinstance(value, Viewable):
            return self.view(value.as_view())
        raise DeclarationError(f"an argument of type {kind.__name__} has no form in program text")


@contextmanager
def _of_node(node: Node) -> Iterator[None]:
    """Add the node's name to errors that are raised inside."""
    try:
        yield
    except DeclarationError as error:
        raise DeclarationError(f"node {node.name!r} cannot be written as Python: {error}", node=node.name) from None


def _identifier(name: str, used: set[str]) -> str:
    """Return an unused Python name that resembles `name`."""
    base = re.sub(r"\W", "_", name, flags=re.ASCII)
    if not base.isidentifier() or keyword.iskeyword(base) or keyword.issoftkeyword(base):
        base = f"_{base}" if base and not base[0].isidentifier() else f"{base}_"
    found = unique(base, used)
    used.add(found)
    return found


def _dtype(dtype: np.dtype[Any]) -> str:
    if dtype.names is not None:  # inside a struct, NumPy prints types of ml_dtypes as bare names, which only that defines
        words = rf"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|\b({_EXTRAS})\b"""
        text = re.sub(words, lambda m: m[1] or repr(m[2]), repr(dtype))
        return f"np.{text}"
    return quoted(dtype.str if dtype.kind == "V" and not is_extra(dtype) else dtype.name)


def _nested(values: np.ndarray[Any, Any]) -> str:
    """Return numbers as nested lists, in the shortest form that their dtype allows."""
    if values.ndim == 0:
        return str(values[()])
    return f"[{', '.join(map(_nested if values.ndim > 1 else str, values))}]"
