"""Build a workflow from the elements of a workflow file: replay the declarations and validate every field."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from ..arrays import as_dict
from ..arrays.coercion import as_path
from ..draft import Draft
from ..errors import DeclarationError, listed, shown
from ..extensions import who_knows
from ..kernels import Module
from ..nodes.base import Node, check_name
from ..nodes.values import Data, Fault, Members, Names
from ..source import Budget
from .parts import VERSION, array_of, module_of, parameter_of
from .text import MAX_NODES, Item, Reader, Section, guard

W = TypeVar("W")


class Loader(Generic[W]):
    """Loads one document, children first.

    Parameters
    ----------
    kinds : mapping of str to type
        Classes of nodes by kind.
    make : callable
        Turns a Draft into a workflow.
    arrays : mapping
        By array name (in a child ``<workflow>/<array>``): values for arrays, which may differ from those that the file was
        written with (a warning is logged if the file holds a different hash), and objects for external arrays.
    callbacks : mapping
        Callables by import path, by function name or by node name. A node without one holds an `UnboundCallback`, for which
        compile raises an error that names it.
    file : str or path
        Name of the file, for the places of nodes; it is not opened.
    """

    def __init__(
        self,
        kinds: Mapping[str, type[Node]],
        make: Callable[[Draft], W],
        arrays: Mapping[str, Any] | None,
        callbacks: Mapping[str, Callable[..., Any]] | None,
        file: str | os.PathLike[str] | None = None,
    ) -> None:
        self.kinds = kinds
        self.make = make
        self.file = "<workflow file>" if file is None else str(as_path(file, "file"))
        self.arrays = as_dict(arrays, "arrays")
        self.callbacks = as_dict(callbacks, "callbacks")
        self.used: set[str] = set()
        """Keys of `callbacks` that a node uses."""
        self.known_arrays: dict[str, None] = {}
        self.known_callbacks: dict[str, None] = {}
        self.modules: dict[str, Module] = {}
        self.children: dict[str, W] = {}
        self.declared: Mapping[str, Section] = {}
        self.sizes: dict[str, int] = {}
        """Number of nodes of each workflow; a child's nodes count once per use."""
        for name, fn in self.callbacks.items():
            if not callable(fn):
                raise DeclarationError(f"callbacks[{name!r}] is a callable (got {shown(fn)})")

    def text(self, text: Any) -> W:
        """Return the workflow that a text describes; errors name line and field. Does not run, compile or import anything."""
        if not isinstance(text, str):
            raise DeclarationError(f"a workflow file is text (got {type(text).__name__})")
        text = text.removeprefix("\ufeff")
        guard(text)
        if not text.strip():
            raise DeclarationError("the workflow file is empty")
        return self._document(Reader(text).document())

    def data(self, data: Data) -> W:
        """Return the workflow that plain data describes; errors as for `text`, without lines."""
        try:
            text = json.dumps(data, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise DeclarationError(f"this is no workflow: {error}") from None
        guard(text)
        return self._document(Reader(text, numbered=False).document())

    def _document(self, root: Section) -> W:
        version = root.scalars.get("hipgraphdsl")
        if version is None:
            root.item.refuse("this is no hipgraphdsl workflow: it has no field 'hipgraphdsl' with the version of the format")
        if type(version.value) is not int or version.value < 1:
            version.refuse(f"the version is an integer from 1 (got {shown(version.value)})")
        if version.value > VERSION:
            version.refuse(
                f"the file has version {version.value} of the format, and this hipgraphdsl reads up to {VERSION}; install a newer"
                " hipgraphdsl"
            )
        del root.scalars["hipgraphdsl"]
        budget = Budget()  # shared by all modules, so that many small ones cost no more than a large one
        for key, item in root.modules.items():
            with item:
                self.modules[key] = module_of(item.value, key, budget)
        self.declared = root.children
        for key, section in root.children.items():
            with section.item:
                check_name(key, "workflow")
            self.children[key] = self.make(_Section(self, section, key, f"{key}/").draft())
        workflow = self.make(_Section(self, root, "", "").draft())
        self._refuse_unused()
        return workflow

    def _refuse_unused(self) -> None:
        for name in self.arrays:
            if name not in self.known_arrays:
                why = f"which the file does not declare; its arrays are {listed(self.known_arrays)}"
                raise DeclarationError(f"arrays has {name!r}, {why}", array=name)
        for name in self.callbacks:
            if name not in self.used:
                why = f"which no node of the file uses; its callbacks are {listed(self.known_callbacks)}"
                raise DeclarationError(f"callbacks has {name!r}, {why}")

    def array(self, name: str) -> Any:
        """Return the value supplied for an array, or None."""
        self.known_arrays[name] = None
        return self.arrays.get(name)

    def callback(self, path: str, node: str, prefix: str) -> Any:
        """Return the callable supplied for a node, or None."""
        self.known_callbacks[path] = None
        found: Any = None
        for key in (prefix + node, node, path, path.rpartition(":")[2]):
            if key in self.callbacks:
                self.used.add(key)
                found = found or self.callbacks[key]
        return found


def _taken(lists: dict[str, list[Item]], key: str) -> Iterator[Item]:
    """Yield a list's elements and release each, so that parsed data and workflow are not in memory at the same time."""
    items = lists.pop(key, [])
    items.reverse()
    while items:
        yield items.pop()


class _Section(Names):
    """Reads one workflow of a document."""

    def __init__(self, loader: Loader[Any], section: Section, key: str, prefix: str) -> None:
        self.loader = loader
        self.key = key
        self.prefix = prefix
        self.lists = section.lists
        scalars = section.scalars
        name = scalars.pop("name", None)
        if name is None and not key:
            section.item.refuse("field 'name' is missing")
        infer = scalars.pop("infer", None)
        if infer is not None and type(infer.value) is not bool:
            infer.refuse(f"'infer' is true or false (got {shown(infer.value)})")
        for unknown, item in scalars.items():
            item.refuse(f"a workflow has no field {unknown[:60]!r}")
        with name or section.item:
            self.made = Draft(name.value if name else key, infer.value if infer else True)
        super().__init__(self.made.arrays, self.made.parameters, loader.modules, loader.children)

    def draft(self) -> Draft:
        """Return the draft that the section declares."""
        for item in _taken(self.lists, "arrays"):
            with item:
                self.made.add_array(array_of(item.value, self.arrays, self.prefix, self.loader.array))
        for item in _taken(self.lists, "parameters"):
            with item:
                self.made.add_parameter(*parameter_of(item.value, self))
        for item in _taken(self.lists, "nodes"):
            with item:
                self._node(item)
        for item in _taken(self.lists, "order"):
            with item:
                pair = item.value
                if not (isinstance(pair, list) and len(pair) == 2 and all(type(name) is str for name in pair)):
                    raise Fault(f"an edge is [earlier node, later node] (got {shown(pair)})")
                self.made.order(*self.made.names_of(pair))
        return self.made

    def _node(self, item: Item) -> None:
        members = Members(item.value, "a node")
        kind = members.take("kind", str)
        if kind not in self.loader.kinds:
            who = who_knows(kind[:60]) or f"kinds are {', '.join(self.loader.kinds)}"
            raise Fault(f"there is no kind {kind[:60]!r}; {who}")
        self._count(1)
        self.made.add(self.loader.kinds[kind].from_data(members, self, (self.loader.file, item.line)))

    # -- resolving names

    def callback(self, path: str, node: str) -> Any:
        return self.loader.callback(path, node, self.prefix)

    def workflow(self, key: Data) -> Any:
        if type(key) is str and key in self.loader.declared and key not in self.workflows:
            raise Fault(f"workflow {key[:60]!r} stands after this one; inner workflows come first")
        workflow = super().workflow(key)
        self._count(self.loader.sizes.get(key, 0))
        return workflow

    def _count(self, nodes: int) -> None:
        sizes = self.loader.sizes
        sizes[self.key] = sizes.get(self.key, 0) + nodes
        if sizes[self.key] > MAX_NODES:
            raise Fault(f"a workflow holds at most {MAX_NODES} nodes, those of child graphs counted as often as they are used")
