"""The processes that share the devices of a graph: how they were started, how they connect, and what they must agree on."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import zip_longest
from typing import Any, Final

from ...arrays import as_int
from ...errors import DeclarationError, RankError, RuntimeUnavailable
from ...nodes.workflow import Workflow
from ...runtimes.base import Runtime
from ...settings import setting
from .sharing import Layout, device_counts
from .transports import WORLDS, SingleTransport, Transport
from .transports.mpi import MpiTransport
from .transports.nccl import LIBRARY, Nccl, found_by_all
from .transports.store import StoreTransport, torch_store

_log = logging.getLogger("hipgraphdsl")

_SIZES: Final = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "PMIX_SIZE")
"""Environment variables in which MPI launchers give the number of processes."""
_SLURM: Final = "SLURM_STEP_NUM_TASKS"
"""The same for srun, where `SLURM_PROCID` is there too."""
_DIGEST: Final = 16  # bytes
_REFUSED: Final = bytes(_DIGEST)
"""Sent in place of a digest by a rank that refuses the graph."""
_REASON: Final = 1000  # bytes of a rank's refusal reason that the ranks exchange
_LABEL: Final = 200  # most characters of a differing entry in an error message

_MODULE: Final = "module "
"""How the label of a module begins."""

_LONGEST_S: Final = 1e9  # 30 years: all that threads, MPI and torch's store can wait

_TORCHRUN: Final = ("RANK", "MASTER_ADDR", "MASTER_PORT")

_transports: dict[str | int, Transport] = {}
"""Transports of this process, by name or by the id of a store, which its transport keeps alive. Each is created once, because
MPI can be initialised only once and the keys of a store can be used only once."""
_opening: Final[defaultdict[str | int, threading.Lock]] = defaultdict(threading.Lock)
"""Held while a transport is created, by the same keys."""


class _NamesRank(logging.Filter):
    """Prefixes each log message of the package with the rank of this process."""

    def filter(self, record: logging.LogRecord) -> bool:
        ranks = {transport.rank for transport in _transports.values() if transport.size > 1}
        if len(ranks) == 1:  # tests run several ranks as threads of one process; their messages get no prefix
            rank = record.__dict__["rank"] = ranks.pop()
            record.msg = f"rank {rank}: {record.msg}"
        return True


_NAMES_RANK: Final = _NamesRank()


class Ranks:
    """The processes that a program was started as. Made by `ranks`.

    Attributes
    ----------
    rank : int
        Number of this process, from 0.
    size : int
        Number of processes.
    counts : tuple of int
        Number of devices of each process.
    timeout_s : float
        How long a rank waits for another before it gives up.
    nccl : bool or None
        As given to `ranks`.
    transport : Transport
    """

    def __init__(self, transport: Transport, counts: tuple[int, ...], timeout_s: float, *, nccl: bool | None = None) -> None:
        self.transport = transport
        self.rank, self.size = transport.rank, transport.size
        self.counts = counts
        self.timeout_s = timeout_s
        self._tags = 0
        self._world = transport.new_world()
        self.nccl = nccl
        self._links: dict[str, tuple[Nccl | None, str]] = {}

    def layout(self, runtime: Runtime) -> Layout:
        """Return which rank each device belongs to, with the runtime's number of this rank's first device."""
        mine, there = self.counts[self.rank], runtime.get_device_count()
        first = sum(self.counts[rank] for rank in self.transport.before_here)
        return Layout(self.counts, first if first + mine <= there else 0)

    def link(self, runtime: Runtime) -> tuple[Nccl | None, str]:
        """Return the link between the devices of ranks, or None and why messages go through the host; every rank must call it.

        Raises
        ------
        RuntimeUnavailable
            If ``nccl=True`` demands the link and not every rank has it.
        RankError
        """
        if self.size == 1 or self.nccl is False:
            return None, "hg.ranks(nccl=False) leaves it out" if self.size > 1 else "there is one rank"
        if runtime.name not in self._links:
            self._links[runtime.name] = self._make_link(runtime)
        found = self._links[runtime.name]
        if found[0] is None and self.nccl:
            raise RuntimeUnavailable(f"hg.ranks(nccl=True): {found[1]}", runtime="nccl", missing="library")
        return found

    def _make_link(self, runtime: Runtime) -> tuple[Nccl | None, str]:
        if runtime.target.dlpack_device == 1 and not setting(LIBRARY):
            return None, "the memory of the CPU's devices is the host's"
        several = (
            "" if set(self.counts) == {1} else "a rank has several devices, and a launch on several by one process may block"
        )
        device = self.layout(runtime).first_local
        library, why_not = found_by_all(self.all_gather, runtime, device, several)
        if library is None:
            _log.info("messages between devices go through the host: %s", why_not)
            return None, why_not
        return Nccl(library, self.transport, self.all_gather, runtime, device, self.timeout_s), ""

    def all_gather(self, data: bytes, what: str) -> list[bytes]:
        """Return the data of every rank, of equal length on all; calls of other `Ranks` of this process do not interfere."""
        return self.transport.all_gather(data, what, self.timeout_s, self._world)

    def refusals(self, refused: Exception | None, what: str) -> dict[int, str]:
        """Exchange whether each rank can do a common operation; return the ranks that cannot, with their reasons.

        Raises `refused` itself if the ranks can no longer communicate.
        """
        if refused is not None and self.transport.broken:
            raise refused
        said = "" if refused is None else f"{type(refused).__name__}: {refused}"
        told = self.all_gather(said.encode()[:_REASON].ljust(_REASON, b"\0"), what)
        reasons = (reason.rstrip(b"\0").decode(errors="ignore") for reason in told)
        return {rank: reason for rank, reason in enumerate(reasons) if reason}

    def take_tags(self, count: int) -> int:
        """Reserve `count` message numbers and return the first; every rank must reserve the same."""
        first, self._tags = self._tags, self._tags + count
        return first

    def tag(self, number: int) -> int:
        """Return the tag of a message number, distinct from those of up to `WORLDS` - 1 other `Ranks` of this process."""
        return number * WORLDS + self._world

    def __repr__(self) -> str:
        return f"Ranks({self.rank} of {self.size}, by {self.transport.name})"


def require_ranks(ranks: Any) -> Ranks:
    """Return `ranks`; refuse other types."""
    if not isinstance(ranks, Ranks):
        raise DeclarationError(f"compile: ranks is what hipgraphdsl.ranks() returns (got {ranks!r})")
    return ranks


def require_options(device: int, lanes: Any) -> None:
    """Refuse options of `Graph.compile` that make no sense for one rank of several."""
    if device or (isinstance(lanes, str) and lanes == "measure"):
        said = f"device={device!r}, because a rank's devices follow from its number" if device else "lanes='measure'"
        raise DeclarationError(f"compile: ranks= does not go with {said}; leave one of them out")


def ranks(
    *,
    rank: int | None = None,
    size: int | None = None,
    store: Any = None,
    devices_per_rank: int | Sequence[int] = 1,
    timeout_s: float = 300.0,
    nccl: bool | None = None,
) -> Ranks:
    """Detect how this program was started, and connect to the other processes.

    Under ``mpiexec`` or ``srun`` they connect by MPI (extra ``mpi``), with torchrun's environment (``RANK``, ``WORLD_SIZE``,
    ``MASTER_ADDR``, ``MASTER_PORT``) by torch's store. A program started without a launcher is a single rank.

    Parameters
    ----------
    rank, size : int, optional
        Number of this process, from 0, and number of processes; only together with `store`.
    store : object, optional
        Key-value store by which the processes connect, however they were started, with ``set(key, bytes)``, ``get(key)``,
        ``check([key, ...])`` and ``delete_key(key)`` as in torch's Store. No earlier run may have used it.
    devices_per_rank : int or sequence of int
        How many devices of a graph belong to each process; a sequence gives one number per process.
    timeout_s : float
        How long a rank waits for another before it gives up, in seconds.
    nccl : bool, optional
        Whether messages and collectives between devices use NCCL or RCCL, if each rank has one device: True demands it,
        False sends everything through the host, None uses it if every rank has it.

    Raises
    ------
    RuntimeUnavailable
        If there are several processes and a package that they need to connect is not installed.
    RankError
        If not all processes connect.
    DeclarationError
        If arguments are invalid or do not fit together.
    """
    if not isinstance(timeout_s, (int, float)) or isinstance(timeout_s, bool) or not 0 < timeout_s <= _LONGEST_S:
        raise DeclarationError(f"ranks: timeout_s is a number of seconds above 0 and up to {_LONGEST_S:g} (got {timeout_s!r})")
    if nccl is not None and not isinstance(nccl, bool):
        raise DeclarationError(f"ranks: nccl is True, False or None (got {nccl!r})")
    if any(given is not None for given in (rank, size, store)):
        number, count = as_int(rank), as_int(size)
        if store is None or number is None or count is None or not 0 <= number < count:
            raise DeclarationError(
                f"ranks: rank, size and store go together, rank from 0 to size - 1 (got rank={rank!r}, size={size!r},"
                f" store={store!r})"
            )
        transport = _opened(id(store), lambda: StoreTransport(store, number, count, timeout_s))
        if (number, count) != (transport.rank, transport.size):
            raise DeclarationError(
                f"ranks: this process is rank {transport.rank} of {transport.size} of this store already (got rank={number},"
                f" size={count}); start a process for each rank"
            )
    else:
        transport = _opened(*_found(timeout_s))
    return Ranks(transport, _counts(devices_per_rank, transport.size), float(timeout_s), nccl=nccl)


def _found(timeout_s: float) -> tuple[str, Callable[[], Transport]]:
    """Return the name of the transport that this program's environment calls for, and its factory."""
    sizes = {name: _number(os.environ.get(name)) or 0 for name in _SIZES}
    if "SLURM_PROCID" in os.environ:
        sizes[_SLURM] = _number(os.environ.get(_SLURM)) or 0
    variable, by_mpi = max(sizes.items(), key=lambda entry: entry[1])
    by_torch = _number(os.environ.get("WORLD_SIZE")) or 0
    absent = [name for name in _TORCHRUN if name not in os.environ]
    if by_torch > 1 and by_torch != by_mpi and not absent:  # srun may start torchrun
        return "torch", lambda: StoreTransport(*torch_store(timeout_s), timeout_s)
    if by_mpi > 1:
        return "mpi", lambda: MpiTransport(timeout_s, f"{variable}={by_mpi}")
    if by_torch > 1 and len(absent) < len(_TORCHRUN):
        raise DeclarationError(
            f"ranks: the environment has WORLD_SIZE={by_torch}, as torchrun sets it, and not {' and '.join(absent)}; set"
            f" {' and '.join(absent)} too, call hg.ranks(rank=, size=, store=), or unset WORLD_SIZE for one rank alone"
        )
    return "none", SingleTransport


def _opened(key: str | int, make: Callable[[], Transport]) -> Transport:
    """Return the transport for a key, created on first use, by one thread."""
    with _opening[key]:
        if key not in _transports:
            _transports[key] = make()
            _log.addFilter(_NAMES_RANK)
        return _transports[key]


def _number(text: str | None) -> int | None:
    """Return the text of an environment variable as an int; None if it is not 1 to 9 digits."""
    return int(text) if text is not None and re.fullmatch(r"\d{1,9}", text) else None


def _counts(given: Any, size: int) -> tuple[int, ...]:
    counts = device_counts(given if isinstance(given, (list, tuple)) else [given] * size)
    if len(counts) != size:
        raise DeclarationError(
            f"ranks: devices_per_rank is how many devices each rank has, from 1, or a list of {size} such numbers (got {given!r})"
        )
    return counts


# -- agreement between ranks


@contextmanager
def told_before_agreeing(ranks: Ranks, what: str) -> Iterator[None]:
    """Report an error raised in the block to the other ranks, which wait for this one in `agree`."""
    try:
        yield
    except Exception as error:
        if ranks.size > 1 and not ranks.transport.broken:
            with suppress(RankError):
                ranks.all_gather(_REFUSED, what)
                ranks.refusals(error, what)
        raise


def agree(ranks: Ranks, workflow: Workflow, options: Mapping[str, Any], action: str) -> None:
    """Compare a call, its workflow and options with those of all ranks; if they differ, raise on every rank and name the first.

    Values of arrays are not compared: the values of a host array are those on the rank that has it.

    Raises
    ------
    DeclarationError
        On every rank, if they differ.
    RankError
        If another rank does not make the call in time, or has raised before it.
    """
    if ranks.size > 1:
        _compare(ranks, workflow.name, action, digest(workflow, options, action), partial(_entries, workflow, options))


def agree_on_gather(ranks: Ranks, workflow: Workflow, wanted: str, key: str) -> None:
    """Compare what is gathered from the Executable of key `key` with what all ranks gather; see `agree`."""
    entry = f"{wanted} of graph {workflow.name!r}"
    if ranks.size > 1:
        _compare(ranks, workflow.name, "gather", _digest(f"gather {entry} {key}"), lambda: iter([(entry, None, key)]))


def _compare(ranks: Ranks, name: str, action: str, mine: bytes, entries: Callable[[], Iterator[_Entry]]) -> None:
    """Compare a digest with those of all ranks; if they differ, raise with the first entry that does."""
    what = f"{action} of {name!r}"
    told = set(ranks.all_gather(mine, what))
    if _REFUSED in told:
        rank, why = next(iter(ranks.refusals(None, what).items()))
        raise RankError(f"rank {rank} has refused {what}: {why}", rank=rank)
    if len(told) == 1:
        return
    listed = [(action, None, ""), *entries()]
    said = json.dumps([(label, node, _digest(text).hex()) for label, node, text in listed]).encode()
    most = max(int.from_bytes(size, "little") for size in ranks.all_gather(len(said).to_bytes(8, "little"), what))
    lists = [json.loads(given) for given in ranks.all_gather(said.ljust(most), what)]
    there = _first_difference(lists)
    other = next(rank for rank, entry in enumerate(there) if entry != there[0])
    of_first, of_other = there[0][0][:_LABEL], there[other][0][:_LABEL]
    if there[0] == lists[0][0]:
        raise DeclarationError(
            f"the ranks make different calls: rank 0 calls {of_first} where rank {other} calls {of_other}; make the same calls in"
            " the same order on each"
        )
    difference = f"rank 0 has {of_first} where rank {other} has {of_other}"
    if action == "gather":
        difference += ", of another Executable" if of_first == of_other else ""
        raise DeclarationError(f"the ranks gather different arrays: {difference}; give the same names and root on each")
    if of_first == of_other:
        difference = f"{of_first} of rank 0 is not that of rank {other}"
    raise DeclarationError(
        f"graph {name!r} is not the same on all ranks: {difference}; declare the same graph on each, whatever its rank",
        node=there[ranks.rank][1],
    )


def _first_difference(lists: Sequence[Sequence[Any]]) -> tuple[Any, ...]:
    """Return the first entries of all ranks that differ; a module, which may be named after its source, only if no node does."""
    for modules in (False, True):
        kept = ([entry for entry in entries if entry[0].startswith(_MODULE) == modules] for entries in lists)
        for found in zip_longest(*kept, fillvalue=["nothing more", None, ""]):
            if any(entry != found[0] for entry in found):
                return found
    raise AssertionError("digests differ, so entries do")


def digest(workflow: Workflow, options: Mapping[str, Any], action: str = "compile") -> bytes:
    """Return a digest of everything that must be the same on all ranks."""
    return _digest(_text([action, _said(options), workflow.document(strict=False, values=False)]))


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=_DIGEST).digest()


def _said(options: Mapping[str, Any]) -> dict[str, str]:
    return {name: repr(value) for name, value in options.items()}


_Entry = tuple[str, str | None, str]
"""Label, name of the node if it is one, and content as text."""


def _entries(workflow: Workflow, options: Mapping[str, Any]) -> Iterator[_Entry]:
    """Yield the entries that must be the same on all ranks, one by one."""
    yield from ((f"option {name}={value}", None, value) for name, value in _said(options).items())
    document = workflow.document(strict=False, values=False)
    modules, children = document.pop("modules", {}), document.pop("workflows", {})
    for name, child in children.items():
        yield from _inside(child, f"child graph {name!r}", f" in child graph {name!r}")
    yield from _inside(document, f"graph {workflow.name!r}")
    yield from ((f"module {name!r}", None, _text(data)) for name, data in modules.items())


def _inside(document: dict[str, Any], whole: str, where: str = "") -> Iterator[_Entry]:
    """Yield the entries of a graph itself and of its parts."""
    parts = {kind: document.pop(f"{kind}s") for kind in ("array", "parameter", "node")}
    order = document.pop("order")
    yield (whole, None, _text(document))
    for kind, entries in parts.items():
        for data in entries:
            yield (f"{kind} {data['name']!r}{where}", data["name"] if kind == "node" else None, _text(data))
    yield from ((f"edge {edge[0]!r} -> {edge[1]!r}{where}", None, _text(edge)) for edge in order)


def _text(data: Any) -> str:
    """Return data as JSON text that is the same in every process, without memory addresses."""
    return re.sub(r" at 0x[0-9a-f]+", "", json.dumps(data, sort_keys=True, default=str, check_circular=False))
