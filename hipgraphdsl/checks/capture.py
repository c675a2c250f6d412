"""What stream capture refuses or supports only partly, and nodes with unknown accesses or variables (HG6xx)."""

from __future__ import annotations

from ..arrays import Array, HostArray
from ..kernels import Module
from ..nodes import Node
from ..target import Target
from .levels import CheckedLevel


def check_capture(scope: CheckedLevel, target: Target | None) -> None:
    """Report nodes that stream capture refuses or supports only partly, and nodes with unknown accesses or variables."""
    unread: dict[tuple[Module, str], list[Node]] = {}
    calling = any(kind.calls == "capture" for kind in scope.workflow.kinds)
    launching = any(launch.kernel.unread or launch.kernel.module.handle for launch in scope.launches.values())
    asked = scope.workflow.nodes if calling else [node for _, node in scope.having("copied", *["launched"] * launching)]
    for node in asked:
        launch = node.launched
        if node.copied and (target is None or not target.on_host):
            _check_pageable(scope, node)
        if node.calls == "capture" and not node.accesses:
            scope.found(
                "HG602",
                f"captured node {scope.name(node)!r} names no array that it reads or writes, so only declared edges order it",
                node,
                hint="give args=, or reads=[...] and writes=[...]",
            )
        elif launch is not None:
            if launch.kernel.unread:
                unread.setdefault((launch.kernel.module, launch.kernel.unread), []).append(node)
            elif launch.kernel.module.handle is not None and not node.accesses:
                scope.found(
                    "HG604",
                    f"{scope.name(node)!r} launches {launch.kernel.name!r}, of which only a handle is known: what it reads and"
                    " writes is not checked",
                    node,
                    hint="wrap its arguments in hg.reads, hg.writes or hg.updates",
                )

    for (module, why), nodes in unread.items():
        scope.found(
            "HG605",
            f"{scope.name(nodes[0])!r} counts as using every variable of module {module.name!r}, because {why}; kernels of the"
            " module are ordered by that",
            *nodes,
            hint="add the folder with options=['-I/folder'], or write the names out",
        )


def _check_pageable(scope: CheckedLevel, node: Node) -> None:
    sides = [side for dst, src in node.copied for side in ((src, dst, "from"), (dst, src, "to"))]
    for view, other, verb in sides:
        root, facing = (scope.resolve(v.root)[1] for v in (view, other))
        if isinstance(root, HostArray) and not root.pinned and not (isinstance(facing, Array) and facing.on_host):
            scope.found(
                "HG601",
                f"{scope.name(node)!r} copies {verb} {root.name!r}, which is pageable: the copy waits for a staging buffer and"
                " does not overlap with other work",
                node,
                arrays=[root.name],
                hint=f"declare {root.name!r} with pinned=True",
            )
