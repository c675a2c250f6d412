"""Known defects and limits of platforms by version: `info` lists them, `check` warns, plan and backends work around them.

Data only. A workaround tests for a quirk flag in `Target.quirks`, never for a platform or a version.
Versions are those of the HIP runtime: ROCm 10.0 has HIP 7.15, and ROCm 7.2.0 to 7.2.4 have HIP 7.2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from .target import Target


@dataclass(frozen=True, slots=True)
class Defect:
    """One defect or limit of a runtime."""

    id: str  # short and stable
    title: str  # what happens, in one sentence
    handling: str  # what hipgraphdsl does about it
    source: str  # where it is reported, or the code that shows it
    since: tuple[int, ...] | None = None  # the first affected version; None: all earlier ones too
    until: tuple[int, ...] | None = None  # the first version without it; None: all later ones have it
    architecture: str = ""  # prefix of the names of affected architectures; empty: all
    quirk: str | None = None  # the flag in `Target.quirks` that plan and backends test; None if they do the same everywhere
    classic_executor: bool = False  # it also affects newer versions if a switch selects the old (classic) executor

    @property
    def facts(self) -> dict[str, str]:
        """The fields that reports show."""
        return {"id": self.id, "title": self.title, "handling": self.handling, "source": self.source}

    def affects(self, target: Target, classic_executor: bool = False) -> bool:
        """Return whether a target has it; a target without a version has only the defects of all versions."""
        if target.platform != "amd" or not target.architecture.startswith(self.architecture):
            return False
        if self.classic_executor and classic_executor:
            return True
        if not target.version:
            return self.since is None and self.until is None
        return (self.since or ()) <= target.version and (self.until is None or target.version < self.until)


_SYSTEMS = "https://github.com/ROCm/rocm-systems"
_CLR = "https://github.com/ROCm/clr, hipamd/src"

DEFECTS: tuple[Defect, ...] = (
    Defect(
        "disabled-drops-edges",
        "a disabled node drops its edges: what follows it may start before what precedes it",
        "disable() instantiates again without the node and with its edges bridged",
        f"{_SYSTEMS}/issues/11359; before HIP 7.15 complex graphs fall back to the classic executor",
        until=(7, 15),
        quirk="disabled_drops_edges",
        classic_executor=True,
    ),
    Defect(
        "disabled-loses-params",
        "parameters set on a disabled node are lost when it is enabled",
        "parameters are set again when a node is enabled",
        f"{_SYSTEMS}/pull/9063",
        until=(7, 15),
    ),
    Defect(
        "fan-out-over-4",
        "the fifth and later consumer of a node may start before the node has finished",
        "an empty node is put between, so that no node has more than four consumers",
        f"{_SYSTEMS}/issues/11499",
        until=(7, 11),
        quirk="fan_out_4",
        classic_executor=True,
    ),
    Defect(
        "parallel-roots",
        "of a graph with several roots only one waits for the work that precedes the launch on its stream",
        "an empty node is put before all roots",
        f"{_SYSTEMS}/pull/3131; observed on HIP 7.2 (tests/device/test_amd.py)",
        since=(7, 2),
        until=(7, 14),
        quirk="parallel_roots",
    ),
    Defect(
        "captured-alloc-unregistered",
        "hipGraphAddMemFreeNode refuses a pointer that a captured hipMallocAsync returned",
        "a captured allocation is freed by hipFreeAsync in the same capture",
        "https://github.com/ROCm/legacy-rocm-build/issues/6682",
    ),
    Defect(
        "captured-alloc-leaks",
        "an allocation that was captured and not freed outlives the executable",
        "captured allocations are freed in the graph",
        f"{_SYSTEMS}, release notes of 7.14",
        until=(7, 14),
    ),
    Defect(
        "alloc-instantiates-once",
        "a graph with alloc or free nodes can be instantiated once, and cannot be cloned or updated",
        "the graph is built again for each instantiation",
        f"{_CLR}/hip_graph.cpp: hipGraphInstantiate answers hipErrorNotSupported",
    ),
    Defect(
        "alloc-relaunch",
        "a graph that leaves an allocation cannot be launched again unless it frees on launch",
        "such graphs are instantiated with hipGraphInstantiateFlagAutoFreeOnLaunch",
        f"{_CLR}/hip_graph_internal.cpp",
    ),
    Defect(
        "pool-reuse-early",
        "hipMallocAsync may return memory that is in use: a stream counts as safe once it has waited for any event of a stream "
        "that the memory was used on, even one recorded before the use",
        "the backends streams and serial keep the memory of alloc nodes from launch to launch",
        f"{_CLR}/hip_mempool_impl.hpp: MemoryTimestamp::AddSafeStream; observed on HIP 7.2",
        quirk="pool_reuse_early",
    ),
    Defect(
        "child-order",
        "work after a child graph with parallel branches may start before all branches have finished",
        "child graphs are inlined",
        f"{_SYSTEMS}/pull/658 and the release notes of 7.14",
        until=(7, 14),
        quirk="child_order",
    ),
    Defect(
        "child-fallback-crash",
        "hipGraphLaunch crashes on a graph of many child graphs, where it falls back to the older executor",
        "graphs of 16 nodes or more with captured or cooperative nodes are recorded from streams, as backend 'capture' does",
        "observed on AMD's runtime 7.2.4 (tests/device/test_amd.py); 7.14 and later have not been tried",
        since=(7, 2),
        until=(7, 14),
        quirk="child_fallback_crash",
    ),
    Defect(
        "exec-destroyed-by-callback",
        "launches hang: a callback destroys the executable of an ended launch, and waits for a queue that waits for a host node",
        "an executable is destroyed when the callbacks of its launches have run",
        f"{_CLR}/hip_graph_internal.cpp: GraphExec::DecrementRefCount; observed on HIP 7.2 (tests/device/test_amd.py)",
        since=(6, 4),
    ),
    Defect(
        "child-update-lost",
        "hipGraphExecUpdate loses changes inside child graphs",
        "child graphs are updated by hipGraphExecChildGraphNodeSetParams",
        f"{_CLR}/hip_graph_internal.hpp: ChildGraphNode::SetParams",
        until=(7, 11),
    ),
    Defect(
        "update-counts-only",
        "hipGraphExecUpdate compares only how many dependencies a node has: a rewired graph passes and runs old edges",
        "the topologies are compared before the call",
        f"{_CLR}/hip_graph.cpp: hipGraphExecUpdate",
    ),
    Defect(
        "update-leaks",
        "each update of a kernel node takes new argument memory, freed with the executable",
        "updates are counted, and the graph is instantiated again after a number of them",
        f"{_SYSTEMS}/issues/10713 and /issues/10021",
        quirk="update_leaks",
    ),
    Defect(
        "host-update-in-flight",
        "new parameters of a host node also reach launches that have not got to the node yet",
        "launches in flight are waited for before a host node is changed, enabled or disabled",
        "observed on HIP 7.2 (tests/device/test_amd.py)",
        quirk="host_update_in_flight",
    ),
    Defect(
        "update-device",
        "updating a kernel node uses the current device, whatever device the node was added for",
        "the executable's device is made current first",
        f"{_CLR}/hip_graph_internal.hpp: GraphKernelNode::SetParams",
        quirk="update_device",
    ),
    Defect(
        "capture-silent",
        "calls that a capture forbids may be accepted, and the graph is then wrong",
        "only calls that are recorded are made while capturing, with garbage collection held off",
        "https://github.com/pytorch/pytorch/issues/155684 and /issues/155720",
        until=(7, 14),
    ),
    Defect(
        "capture-mode-leaks",
        "the capture mode of other threads decides what this thread may call",
        "one capture at a time, in thread-local mode",
        "https://github.com/ROCm/hip/issues/3876",
        until=(7, 3),
    ),
    Defect(
        "capture-other-threads",
        "hipEventQuery or a synchronous copy in another thread invalidates a capture, in thread-local mode too",
        "captures are short, and a capture that was invalidated from outside says so",
        f"{_SYSTEMS}/issues/3176 and /issues/11698",
    ),
    Defect(
        "capture-not-reset",
        "a stream whose capture was invalidated stays so after hipStreamEndCapture",
        "the streams of a failed capture are thrown away",
        f"{_SYSTEMS}/issues/6509",
        until=(7, 14),
    ),
    Defect(
        "capture-unjoined",
        "after hipErrorStreamCaptureUnjoined both streams stay capturing, and ending again crashes",
        "every fork is joined before hipStreamEndCapture, also after a failure",
        "observed on AMD's runtime 7.2.4 (tests/device/test_amd.py)",
    ),
    Defect(
        "capture-wait-ring",
        "hipStreamEndCapture recurses without end after three or more forked streams waited for events in a ring",
        "forked streams are ordered by hipStreamUpdateCaptureDependencies; events only fork them and join them",
        "observed on AMD's runtime 7.2.4 (tests/device/test_amd.py)",
    ),
    Defect(
        "capture-host-func",
        "hipLaunchHostFunc fails while capturing",
        "use backend='explicit' for graphs with host nodes",
        "release notes of ROCm 7.0.2, which mends it; the HIP version does not tell 7.0.2 from 7.0.0",
        since=(7, 0),
        until=(7, 1),
        quirk="capture_host_func",
    ),
    Defect(
        "capture-mem-ops",
        "stream memory operations are executed instead of recorded while capturing",
        "use backend='explicit' for graphs with memory operations",
        "release notes of ROCm 10.0",
        until=(7, 15),
    ),
    Defect(
        "host-stale-memory",
        "a host node may see host memory as it was before the copy that precedes it",
        "the stream is synchronised, or the writing kernel calls __threadfence_system()",
        "https://github.com/ROCm/legacy-rocm-build/issues/6343",
        since=(7, 1),
        until=(7, 15),
        architecture="gfx12",
    ),
    Defect(
        "host-copy-blocks",
        "a copy from host to host runs inside hipGraphLaunch, which then waits for the stream",
        "check() says that the launch will block",
        f"{_CLR}/hip_graph_internal.hpp: GraphMemcpyNode",
    ),
    Defect(
        "pageable-read-at-launch",
        "a copy from pageable memory may read it when the graph is launched, and miss what other nodes write",
        "pageable memory that is both copied and written by nodes is page-locked, or refused",
        f"{_SYSTEMS}/pull/10639: small copies are staged by memcpy when they are submitted; not measured",
        quirk="pageable_read_at_launch",
    ),
    Defect(
        "interior-host-pointer",
        "an asynchronous copy to or from the inside of a page-locked allocation may copy wrongly",
        "such copies are made as 3-D copies with a position from the allocation's first byte",
        "T. Potter, 'Optimising compute with concurrent IO in HIP', Pawsey Supercomputing Centre (seen with ROCm 5)",
        until=(6, 0),
        quirk="interior_host_pointer",
    ),
    Defect(
        "memset-2d-elements",
        "a 2-D memset of 2- or 4-byte elements writes as many elements into each row as the row has bytes",
        "such fills are made of 1-byte elements where all bytes are equal, and else row by row",
        "observed on HIP 7.2 (tests/device/test_amd.py); https://github.com/ROCm/clr: __amd_fillBufferAligned2D",
        quirk="memset_2d_elements",
    ),
    Defect(
        "memset-2d-whole-rows",
        "a 2-D memset node is refused if its rows, each with its whole pitch, would exceed the allocation",
        "such fills are done by a kernel",
        f"{_CLR}/hip_memory.cpp: ihipGraphMemsetParams_validate",
        quirk="memset_2d_whole_rows",
    ),
    Defect(
        "host-copy-kind",
        "a copy node between page-locked and other host memory is refused if it is called a host-to-host copy",
        "copies within host memory are called hipMemcpyDefault",
        "observed on HIP 7.2 (tests/device/test_amd.py)",
        quirk="host_copy_kind",
    ),
    Defect(
        "batch-refused",
        "hipStreamBatchMemOp refuses every operation",
        "the operations are issued one by one",
        f"{_CLR}/hip_stream_ops.cpp: ihipBatchMemOperation (HIP 7.2)",
        until=(7, 15),
    ),
    Defect(
        "batch-unordered",
        "the operations of one batch of memory operations run at once, not in order",
        "each operation is a node, or a call, of its own",
        f"{_SYSTEMS}/pull/8911 and /pull/9334",
        until=(7, 15),
        quirk="batch_unordered",
    ),
    Defect(
        "batch-node-borrows",
        "a batch memory operation node keeps the address of its operations, not a copy",
        "the operations are kept as long as the process",
        "observed on HIP 7.2 (tests/device/test_amd.py)",
    ),
    Defect(
        "priority-refused",
        "hipGraphKernelNodeSetAttribute refuses every priority",
        "priority= is left out, with a warning",
        f"{_CLR}/hip_graph_internal.hpp: the range check is inverted",
        until=(7, 11),
        quirk="priority_refused",
    ),
    Defect(
        "cooperative-ignored",
        "the attribute Cooperative does not make an explicit kernel node cooperative",
        "cooperative kernels are recorded by capture of hipModuleLaunchCooperativeKernel",
        f"{_CLR}/hip_graph_internal.hpp: GraphKernelNode",
        quirk="cooperative_ignored",
    ),
    Defect(
        "branches-collapse",
        "a graph whose branches promise little overlap runs on one stream",
        "no speed-up from parallel branches is promised; DEBUG_HIP_GRAPH_MIN_OVERLAP decides",
        f"{_SYSTEMS}/pull/7679",
        since=(7, 15),
    ),
    Defect(
        "replay-nondeterministic",
        "replays were reported to give wrong results now and then",
        "use hipgraphdsl verify, or HIP 7.1 or 7.13",
        "https://github.com/ROCm/clr/issues/279",
        since=(7, 2),
        until=(7, 3),
        architecture="gfx942",
    ),
    Defect(
        "stale-read-after-copy",
        "a kernel may read what was in memory before a copy on the default stream",
        "copies and launches go to non-blocking streams of the executable",
        "https://github.com/ROCm/hip/issues/3902",
        since=(7, 2),
        until=(7, 3),
        architecture="gfx950",
    ),
    Defect(
        "stale-pointers-200",
        "graphs of more than about 200 nodes were reported to use old pointers",
        "use hipgraphdsl verify, or child graphs of fewer nodes",
        "https://github.com/ROCm/hip/issues/3887",
        since=(7, 2),
        until=(7, 3),
        architecture="gfx1201",
    ),
    Defect(
        "flags-exclusive",
        "hipGraphInstantiateWithFlags refuses combinations of flags, and the flag Upload",
        "one flag at most is passed",
        f"{_CLR}/hip_graph.cpp",
    ),
    Defect(
        "several-devices-crash",
        "a graph over several devices dispatches kernels to a device that they are not loaded on, two in a row suffice",
        "the plan is issued on streams of each device at each launch, as backend 'streams' does",
        f"{_SYSTEMS}/pull/7661; observed on HIP 7.2.4 (tests/amd_on_cpu/test_standin.py)",
        quirk="several_devices_crash",
    ),
    Defect(
        "other-device-crash",
        "hipGraphLaunch crashes on a stream of another device than was current at hipGraphInstantiate",
        "such a launch goes to the executable's own stream, which waits for the other, and the other for it",
        f"{_SYSTEMS}/pull/8611; observed on HIP 7.2.4 (tests/amd_on_cpu/test_standin.py)",
        quirk="other_device_crash",
    ),
    Defect(
        "launches-overlap",
        "launches of one executable on different streams do not wait for each other",
        "each launch waits for the one before by an event",
        "observed on HIP 7.2.4 over a stand-in device (tests/conformance/test_in_flight.py)",
        quirk="launches_overlap",
    ),
    Defect(
        "upload-does-nothing",
        "hipGraphUpload checks its arguments and uploads nothing, so the first launch is slower",
        "a warm-up launch is left to the user",
        f"{_CLR}/hip_graph.cpp",
    ),
    Defect(
        "build-not-thread-safe",
        "node numbers were drawn without a lock, so that graphs built by several threads at once could be mixed up",
        "graphs are built under a lock",
        f"{_SYSTEMS}, release notes of 7.14",
        until=(7, 14),
    ),
)


@lru_cache(maxsize=32)
def defects_for(target: Target, classic_executor: bool = False) -> tuple[Defect, ...]:
    """Return the defects of a target; with `classic_executor` (set by an environment switch) also those of that executor."""
    return tuple(defect for defect in DEFECTS if defect.affects(target, classic_executor))


def with_quirks(target: Target, classic_executor: bool = False) -> Target:
    """Return the target with the quirk flags of its defects."""
    flags = frozenset(defect.quirk for defect in defects_for(target, classic_executor) if defect.quirk)
    return replace(target, quirks=target.quirks | flags)
