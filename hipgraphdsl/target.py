"""Target: the device properties that check and plan use; no device needs to be present."""

from __future__ import annotations

import json
import math
import re
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from .cache import private_folder, wanted_folder, write_whole
from .errors import unknown_name

_FIRST_WITH_CLUSTERS = 90  # compute capability 9.0
_FIRST_WITH_PROGRAMMATIC_LAUNCH = 90
_FIRST_WITH_EDGE_DATA = (12, 3)  # CUDA version
_FIRST_WITH_WIDE_PARAMETERS = (12, 1)  # CUDA version
_FIRST_CHIP_WITH_WIDE_PARAMETERS = 70


@dataclass(frozen=True, slots=True)
class CostModel:
    """Cost constants that `plan` uses, in microseconds and bytes.

    The defaults are rounded values of an H200, without the savings of batches: they stand for an NVIDIA device that has not been
    measured. ``hipgraphdsl bench calibrate`` measures the device at hand.

    Attributes
    ----------
    launch_us : float
        Host time of one graph launch, independent of its contents.
    branch_us : float
        Additional host time of each parallel branch of a launch.
    node_us : float
        Device time of a node in addition to its work.
    copy_us : float
        Time of a copy node in addition to the transfer of its bytes.
    stream_launch_us : float
        Host time of launching one kernel on a stream, which a graph saves.
    link_gb_s : float
        Bandwidth of the link between host and device, 10^9 bytes per second, one direction.
    batched_us : float
        Time that a batch saves per kernel node, compared with the same nodes in lanes; 0 if that has not been measured or
        nothing is saved.
    entry_us : float
        Host time of compiling the batch entry point of a kernel that is not cached.
    node_bytes : float
        Device memory of an instantiated graph for each node; 0 if that has not been measured.
    """

    launch_us: float = 1.0
    branch_us: float = 0.7
    node_us: float = 0.5
    copy_us: float = 2.2
    stream_launch_us: float = 2.5
    link_gb_s: float = 50.0
    batched_us: float = 0.0
    entry_us: float = 100_000.0
    node_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class Target:
    """Limits, engines and defects of a device.

    Attributes
    ----------
    name : str
        ``"cpu"``, ``"amd:gfx942"``, ``"nvidia:sm_90"``; with the runtime's version if known, ``"amd:gfx942@7.2"``.
    max_threads : int
        Threads in a block.
    max_block, max_grid : tuple of int
        Extent along x, y, z: threads of a block, blocks of a grid.
    max_shared_bytes : int
        Shared memory (LDS) of a block, static and dynamic together.
    warp_size : int
        Threads that run in lockstep.
    multiprocessors : int
        Multiprocessors (compute units); 0 if unknown.
    copy_engines : int
        Number of copies that can run concurrently with kernels and each other.
    hardware_queues : int
        Number of streams that actually run concurrently.
    concurrent_kernels : int
        Number of kernels that can run concurrently if each uses few resources.
    resident_threads : int
        Maximum number of resident threads of the device; 0 if unknown.
    copy_kernel_bytes : int
        Many device-to-host copies of up to this size are faster by a kernel that writes page-locked memory than by the copy
        engine; 0 if that has not been measured.
    bypass_edges : int
        Maximum number of edges from an empty node's predecessors to its successors that cost less than the node; 0 if that has
        not been measured.
    clusters : bool
        Whether blocks can be grouped in thread block clusters.
    conditional_nodes : bool
        Whether graphs can have conditional nodes.
    max_axis_threads : int
        Threads of a whole grid along one axis, blocks times threads; 0 if only `max_grid` and `max_block` limit them.
    on_host : bool
        Whether the device is the host: one memory, no pageable copies, no limit of branches and cooperative blocks.
    version : tuple of int
        Runtime version, (major, minor, patch); empty if unknown.
    quirks : frozenset of str
        Names of the platform's defects that plan and the backends work around (see ``defects.py``).
    """

    name: str
    max_threads: int = 1024
    max_block: tuple[int, int, int] = (1024, 1024, 1024)
    max_grid: tuple[int, int, int] = (2**31 - 1, 65535, 65535)
    max_shared_bytes: int = 65536
    warp_size: int = 64
    multiprocessors: int = 0
    copy_engines: int = 2
    hardware_queues: int = 4
    concurrent_kernels: int = 8
    resident_threads: int = 0
    copy_kernel_bytes: int = 0
    bypass_edges: int = 0
    clusters: bool = False
    conditional_nodes: bool = True
    max_axis_threads: int = 0
    on_host: bool = False
    version: tuple[int, ...] = ()
    quirks: frozenset[str] = frozenset()
    costs: CostModel = field(default_factory=CostModel)

    @property
    def platform(self) -> str:
        """``"cpu"``, ``"amd"`` or ``"nvidia"``."""
        return self.name.partition(":")[0]

    @property
    def architecture(self) -> str:
        """``"gfx942"``, ``"sm_90"``, or empty for the CPU."""
        return self.name.partition(":")[2].partition("@")[0]

    @property
    def parameter_bytes(self) -> int:
        """Maximum bytes of a kernel's parameters: 4096 in HIP; 32764 on the CPU and in CUDA from 12.1 and sm_70 on."""
        return (
            32764 if self.on_host or self._is_nvidia_from(_FIRST_WITH_WIDE_PARAMETERS, _FIRST_CHIP_WITH_WIDE_PARAMETERS) else 4096
        )

    @property
    def programmatic_launch(self) -> bool:
        """Whether a kernel of a graph can start while its predecessor ends (programmatic launch): CUDA from 12.3, sm_90 on."""
        return self._is_nvidia_from(_FIRST_WITH_EDGE_DATA, _FIRST_WITH_PROGRAMMATIC_LAUNCH)

    def _is_nvidia_from(self, version: tuple[int, int], chip: int) -> bool:
        """Return whether it is an NVIDIA chip of at least `chip` with CUDA of at least `version` or of unknown version."""
        known = self.platform == "nvidia" and (not self.version or self.version >= version)
        return known and int("0" + re.sub(r"\D", "", self.architecture)) >= chip

    @property
    def dlpack_device(self) -> int:
        """DLPack's number for the kind of memory that `malloc` returns: 1 host, 2 CUDA, 10 ROCm."""
        return {"amd": 10, "nvidia": 2}.get(self.platform, 1)

    @staticmethod
    def named(name: str | Target) -> Target:
        """Return the target with this name; needs no device.

        Parameters
        ----------
        name : str or Target
            Such as ``"cpu"``, ``"amd:gfx942"`` or ``"nvidia:sm_90"``, with or without ``@version`` of the runtime. The platform
            may be omitted, and a product name such as ``"mi300x"`` or ``"h100"`` is an alias of its architecture. An
            architecture without an entry of its own has the limits of all of its maker's devices, the default costs, and 0
            for whatever is unknown or unmeasured.

        Raises
        ------
        DeclarationError
            If the name is unknown.
        """
        if isinstance(name, Target):
            return name
        if isinstance(name, str) and name in _KNOWN:
            return _KNOWN[name]
        given, at, version = name.partition("@") if isinstance(name, str) else ("", "", "")
        match = re.fullmatch("(?:(amd|nvidia):)?([^:]+)", given.lower())
        platform, chip = match.groups() if match else ("", "")
        chip = _PRODUCTS.get(chip, chip)
        maker = next((maker for maker, form in _ARCHITECTURES.items() if re.fullmatch(form, chip)), "")
        if not maker or maker != (platform or maker) or (at and not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,6}){0,2}", version)):
            raise unknown_name("target", name, _KNOWN, others=" and others of their kind")
        base = f"{maker}:{chip}" if maker != chip else chip
        name = base + at + version
        if base in _KNOWN:
            target = _KNOWN[base]
        elif maker == "amd":
            target = replace(_KNOWN["amd:gfx942" if chip.startswith("gfx9") else "amd:gfx1100"], name=base, multiprocessors=0)
        else:
            clusters = int(re.sub("[^0-9]", "", base)) >= _FIRST_WITH_CLUSTERS
            target = replace(_KNOWN["nvidia:sm_90"], name=base, clusters=clusters, **_UNKNOWN_OF_NVIDIA)
        if version:
            target = replace(target, name=name, version=tuple(int(part) for part in version.split(".")))
        return target


_ARCHITECTURES = {"cpu": "cpu", "amd": "gfx[0-9a-f]{1,8}", "nvidia": "sm_[0-9]{1,4}[a-z]?"}

_PRODUCTS = {
    **dict.fromkeys(("mi210", "mi250", "mi250x"), "gfx90a"),
    **dict.fromkeys(("mi300", "mi300a", "mi300x", "mi325x"), "gfx942"),
    **dict.fromkeys(("mi350x", "mi355x"), "gfx950"),
    "v100": "sm_70",
    "t4": "sm_75",
    "a100": "sm_80",
    **dict.fromkeys(("l4", "l40", "l40s"), "sm_89"),
    **dict.fromkeys(("h100", "h200", "gh200", "sm_90a"), "sm_90"),
    **dict.fromkeys(("b200", "gb200"), "sm_100"),
}

# Sources: AMD's "Hardware features" and accelerator specification tables (LDS 64 KiB, CU counts), the CUDA programming
# guide's table of technical specifications (sm_90: 227 KiB a block by opt-in), HIP's rule grid * block <= 2^32 - 1.
_OF_AMD: dict[str, Any] = {"max_grid": (2**31 - 1,) * 3, "conditional_nodes": False, "max_axis_threads": 2**32 - 1}
_OF_RDNA: dict[str, Any] = {**_OF_AMD, "warp_size": 32}
_UNKNOWN_OF_NVIDIA: dict[str, Any] = {
    "max_shared_bytes": 49152,  # what every device takes without opting in
    **dict.fromkeys(("multiprocessors", "resident_threads", "copy_kernel_bytes", "bypass_edges"), 0),
    "costs": CostModel(),
}
_TARGETS = (
    Target(
        "cpu",
        max_grid=(2**31 - 1, 2**31 - 1, 2**31 - 1),
        hardware_queues=64,
        copy_engines=64,
        concurrent_kernels=64,
        on_host=True,
        costs=CostModel(3.0, 0.5, 1.0, 0.5, 3.0, 10.0),
    ),
    Target("amd:gfx90a", **_OF_AMD, multiprocessors=104, costs=CostModel(3.0, 2.0, 1.0, 4.0, 4.0, 50.0)),
    Target("amd:gfx942", **_OF_AMD, multiprocessors=304, costs=CostModel(3.0, 2.0, 1.0, 4.0, 4.0, 55.0)),
    Target("amd:gfx1100", **_OF_RDNA, multiprocessors=96, costs=CostModel(4.0, 3.0, 4.0, 5.0, 15.0, 25.0)),
    Target("amd:gfx1201", **_OF_RDNA, multiprocessors=64, costs=CostModel(4.0, 3.0, 4.0, 5.0, 15.0, 50.0)),
    Target(
        "nvidia:sm_90",
        max_block=(1024, 1024, 64),
        max_shared_bytes=232448,
        warp_size=32,
        multiprocessors=132,
        hardware_queues=32,
        concurrent_kernels=128,
        resident_threads=132 * 2048,
        copy_kernel_bytes=4 << 20,
        bypass_edges=1024,
        clusters=True,
        costs=CostModel(1.0, 0.7, 0.53, 2.2, 2.5, 55.5, 0.17, node_bytes=2300),
    ),
)
_KNOWN = {target.name: target for target in _TARGETS}


def costs_path(target: Target) -> Path:
    """Return the path of the file of measured costs; there is one per target name and runtime version."""
    name = target.name.partition("@")[0].replace(":", "-")
    return wanted_folder("costs") / f"{name}-{'.'.join(map(str, target.version)) or 'any'}.json"


def store_costs(target: Target, costs: CostModel) -> Path:
    """Store measured costs in a private folder for `calibrated`; the file is written atomically."""
    path = costs_path(target)
    private_folder("costs")
    data = {"target": target.name, "version": list(target.version), "costs": asdict(costs)}
    write_whole(path, json.dumps(data, indent=1).encode())
    return path


def calibrated(target: Target) -> Target:
    """Return the target with the costs measured by ``hipgraphdsl bench calibrate``; unchanged if there are none."""
    try:
        private_folder("costs", make=False)
        costs = json.loads(costs_path(target).read_text(encoding="utf-8"))["costs"]
        values = {item.name: float(costs.get(item.name, getattr(target.costs, item.name))) for item in fields(CostModel)}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # no file, or one of another version: use the defaults
        return target
    if not all(math.isfinite(value) and value >= 0 for value in values.values()):
        return target
    return replace(target, costs=CostModel(**values))
