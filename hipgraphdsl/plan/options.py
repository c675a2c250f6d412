"""Options of `Graph.compile`: how the plan is made, and what finds faults while it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from inspect import signature
from typing import Any, Final, Literal, NoReturn

from ..arrays import as_int, int_from, require_flags
from ..errors import DeclarationError, suggested

Lanes = int | None | Literal["auto", "measure"]
Batch = bool | Literal["auto"]


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """How `Graph.compile` and `Graph.plan` plan a workflow.

    Attributes
    ----------
    lanes : "auto", int, None or "measure"
        Maximum number of lanes on each device; None keeps the declared shape, ``"auto"`` gathers independent nodes into fewer
        lanes where that pays by the target's costs. With ``"measure"`` `compile` times several, with host callbacks disabled.
    join : bool
        Whether a kernel may do small device-to-host copies, and edges may replace an empty node that needs only a few; False
        keeps one runtime node for each declared node.
    pack : bool or "all"
        Let arrays of alloc nodes whose uses never overlap share memory that the Executable holds; with ``"all"``, and where
        `compile` is given `memory`, it holds those that share with no other too. With False, and with backend ``"streams"``,
        whose launches may overlap, each alloc node allocates and each free node frees.
    batch : bool or "auto"
        Merge launches of one kernel that wait for the same nodes, and consecutive launches of one block, into one launch. Each
        node is still set and disabled separately. For backends that build graphs, with ``lanes="auto"``. ``"auto"`` merges if
        `join` is set and 100 000 launches save more than compiling costs, 100 ms on NVIDIA; never where the saving is unmeasured.
    programmatic : bool
        On NVIDIA from sm_90 on: launch kernels while their predecessors are ending (programmatic dependent launch). Each is
        compiled with a wait as its first statement, so that none of its work starts early. For backends that build graphs.
    capture_collectives : bool
        With ranks: capture NCCL (from 2.28 on) or RCCL calls as nodes of the graph; else they are made between graphs.
    inline : bool
        Replace every child graph by its nodes, as backends other than ``"explicit"`` do in any case; with False, that one
        replaces only children that allocate or hold conditional nodes.

    Raises
    ------
    DeclarationError
        If a value is none of these.
    """

    lanes: Lanes = "auto"
    join: bool = True
    pack: bool | Literal["all"] = True
    batch: Batch = "auto"
    programmatic: bool = True
    capture_collectives: bool = False
    inline: bool = False

    def __post_init__(self) -> None:
        lanes, batch = self.lanes, self.batch
        if (number := as_int(lanes)) is not None:
            int_from(1, number, "lanes is at least 1")
        elif lanes is not None and (not isinstance(lanes, str) or lanes not in ("auto", "measure")):
            raise DeclarationError(f"lanes is 'auto', 'measure', a number or None (got {lanes!r})")
        if not isinstance(batch, bool) and (not isinstance(batch, str) or batch != "auto"):
            raise DeclarationError(f"batch is 'auto', True or False (got {batch!r})")
        if not isinstance(self.pack, bool) and (not isinstance(self.pack, str) or self.pack != "all"):
            raise DeclarationError(f"pack is True, 'all' or False (got {self.pack!r})")
        flags = ("join", "programmatic", "capture_collectives", "inline")
        require_flags(**{name: getattr(self, name) for name in flags})

    @classmethod
    def of(cls, given: PlanOptions | None, lanes: Lanes = "auto", batch: Batch = "auto") -> PlanOptions:
        """Return the given or the default options; `lanes` and `batch` replace their fields unless they are ``"auto"``."""
        if given is not None and not isinstance(given, PlanOptions):
            raise DeclarationError(f"how to plan is said by a PlanOptions, such as PlanOptions(join=False) (got {given!r})")
        options = given or DEFAULT_PLAN
        if not isinstance(lanes, str) or lanes != "auto":
            options = options.changed(lanes=lanes)
        return options if isinstance(batch, str) and batch == "auto" else options.changed(batch=batch)

    def changed(self, **fields: Any) -> PlanOptions:
        """Return these options with other values of some fields; itself if all are the same."""
        for name, value in fields.items():
            if getattr(self, name) is not value:
                return replace(self, **fields)
        return self


@dataclass(frozen=True, kw_only=True)
class DebugOptions:
    """What `Graph.compile` adds to find faults of a workflow while it runs.

    Attributes
    ----------
    watch : bool
        Mark each node as finished in page-locked memory, so that a timeout, Ctrl-C or a device's fault names the unfinished
        nodes on every runtime. A kernel of one thread after each node writes the mark, and child graphs are inlined;
        `stats.nodes` counts these kernels.
    sanitize : bool
        On runtime ``"cpu"``: stop a kernel before it accesses memory out of bounds, loads shared memory or memory of an alloc
        node that nothing has written, races, waits at a divergent barrier or divides an integer by zero. The HipError names
        node, kernel, line, block, thread and array. Kernels run one at a time, many times slower; arrays share no memory.

    Raises
    ------
    DeclarationError
        If a value is not a bool.
    """

    watch: bool = False
    sanitize: bool = False

    def __post_init__(self) -> None:
        require_flags(watch=self.watch, sanitize=self.sanitize)

    @classmethod
    def of(cls, given: DebugOptions | None) -> DebugOptions:
        """Return the given or the default options."""
        if given is not None and not isinstance(given, DebugOptions):
            raise DeclarationError(f"debug is a DebugOptions, such as DebugOptions(watch=True) (got {given!r})")
        return given or NO_DEBUGGING


DEFAULT_PLAN: Final = PlanOptions()
NO_DEBUGGING: Final = DebugOptions()


def refuse_keywords(call: Callable[..., Any], plan: str, given: Mapping[str, Any]) -> NoReturn:
    """Raise TypeError for keyword arguments that a call does not take; the message tells which of its arguments has them.

    `plan` is the name of the argument that takes `PlanOptions`. For a name that none has, the message suggests one.
    """
    name = next(iter(given))
    known = {p.name: p.name for p in signature(call).parameters.values() if p.kind is not p.VAR_KEYWORD and p.name != "self"}
    options = ((plan, PlanOptions), ("debug", DebugOptions)) if plan == "plan" else ((plan, PlanOptions),)
    within = {field.name: (argument, kind) for argument, kind in options for field in fields(kind)}
    where = suggested(name, [*known, *within])
    if name in within:
        argument, kind = within[name]
        where = f"; say {argument}=hipgraphdsl.{kind.__name__}({name}={given[name]!r})"
    raise TypeError(f"{call.__name__}() got an unexpected keyword argument {name!r}{where}")
