"""Whatever has been set, enabled, disabled, updated, cloned and launched: the next launch is that of a newly compiled graph."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import Phase, given, settings
from places import HERE
from property.declarations import MODULE, Declaration, Do, Story, Values, arguments, stories
from specimens import compile_whole

import hipgraphdsl as hg
from hipgraphdsl.runtimes.base import Runtime


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    compile_whole(MODULE)


def require_equal(exe: hg.Executable, wanted: Values, after: object) -> None:
    for name, values in wanted.items():
        found = exe.read(name)
        assert found.tobytes() == values.tobytes(), f"array {name!r} after {after}: {found} instead of {values}"


def put(exe: hg.Executable, name: str, new: Do, known: Do) -> None:
    """Set every node of a `Do`, or none of them."""
    workflow = exe.workflow
    fields = [do.parts(workflow.arrays, workflow.parameters, {}, name) for do in (new, known)]
    done: list[tuple[str, dict[str, Any]]] = []
    try:
        for (suffix, method, now), (_, _, before) in zip(*fields):
            if method == "child":
                child = workflow.nodes[workflow.index[name]]
                assert isinstance(child, hg.ChildGraphNode)
                if new.how[1] != known.how[1]:
                    raise hg.UpdateError(f"{name!r}: another child")
                if new.how != known.how:
                    own = (child.workflow.arrays["x"], child.workflow.arrays["own"])
                    exe.set(f"{name}/down", args=(*own, new.how[0], own[0].size))
                    done.append((f"{name}/down", {"args": (*own, known.how[0], own[0].size)}))
                now, before = {"bind": now["bind"]}, {"bind": before["bind"]}
            if method == "conditional":
                bound = [(do.to, do.how[0], do.how[3:], do.origin if do.how[0] == "while" else "") for do in (new, known)]
                if bound[0] == bound[1]:  # else the fields that say so are refused
                    now, before = ({k: v for k, v in one.items() if k not in ("mode", "bodies", "bind")} for one in (now, before))
            exe.set(name + suffix, **now)
            done.append((name + suffix, before))
    except hg.UpdateError:
        for node, before in reversed(done):
            exe.set(node, **before)
        raise


def changed(declared: Declaration, nodes: dict[str, Do]) -> Declaration:
    off = {name for name in declared.off if name.partition("_")[0] in nodes}
    before, after = ({own for name, do in known.items() for own in do.own(name)} for known in (declared.nodes, nodes))
    values = {name: array for name, array in declared.values.items() if name not in before - after}
    return Declaration(nodes, off, declared.parameters, values)


def update(exe: hg.Executable, declared: Declaration, nodes: dict[str, Do], rebuild: bool) -> Declaration:
    """Let the Executable be that of other nodes, if it can; return what it is then."""
    new = changed(declared, nodes)
    graph = new.graph()
    in_place = hg.explain_update(exe.workflow, graph).in_place
    try:
        exe.update(graph, rebuild=rebuild)
    except hg.UpdateError:
        assert not rebuild
        return declared
    assert rebuild or in_place
    for name in new.names:  # a child that is new has its own array, as declared
        if name not in new.values:
            new.values[name] = exe.read(name)
    return new


def play(story: Story, runtime: Runtime, backend: Any) -> None:
    declared = Declaration({f"n{i}": do for i, do in enumerate(story.nodes)})
    exe = declared.graph().compile(runtime=runtime, backend=backend, plan=hg.PlanOptions(join=story.join))
    try:
        for action in story.actions:
            match action:
                case ("launch", launches):
                    for given_ in launches:
                        exe.launch(**arguments(given_))
                    declared.values |= declared.afresh(runtime, launches)
                    require_equal(exe, declared.values, action)
                case ("profile", launches):
                    exe.profile(**arguments(launches[0]))
                    declared.values |= declared.afresh(runtime, launches)
                    require_equal(exe, declared.values, action)
                case ("write", name, value):
                    exe.write(name, value)
                    declared.values[name] = exe.read(name)
                case ("set", name, do) if name in declared.nodes:
                    try:
                        put(exe, name, do, declared.nodes[name])
                    except hg.UpdateError:  # what it would touch is not ordered by the graph's edges
                        continue
                    declared.nodes[name] = do
                case ("enable" | "disable" as what, node) if node.partition("_")[0] in declared.nodes:
                    getattr(exe, what)(node)
                    (declared.off.discard if what == "enable" else declared.off.add)(node)
                case ("update", nodes, how):
                    found = {name: do for name, do in nodes.items() if name in declared.nodes}
                    declared = update(exe, declared, {**declared.nodes, **found}, how == "afresh")
                case ("add", name, do):
                    declared = update(exe, declared, {**declared.nodes, name: do}, rebuild=True)
                case ("drop", name) if name in declared.nodes:
                    left = {known: do for known, do in declared.nodes.items() if known != name}
                    declared = update(exe, declared, left, rebuild=True)
                case ("clone", which, launches):
                    twin = exe.clone()
                    try:
                        if which == "go on with the second":
                            exe, twin = twin, exe
                        for given_ in launches:
                            exe.launch(**arguments(given_))
                            twin.launch()
                        before = declared.values
                        declared.values = before | declared.afresh(runtime, launches)
                        require_equal(exe, declared.values, action)
                    finally:
                        twin.close()
    finally:
        exe.close()


# To shrink a story may take minutes; what hypothesis would then explain, it finds by tracing every line.
PHASES = (Phase.explicit, Phase.generate, Phase.shrink)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("backend", ["explicit", "capture", "streams", "serial"])
@pytest.mark.parametrize("runtime", HERE)
@settings(max_examples=50, phases=PHASES)
@given(story=stories(5, 8))
def test_every_launch_is_that_of_a_new_graph(runtime: str, backend: Any, story: Story) -> None:
    play(story, hg.open_runtime(runtime), backend)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("backend", ["explicit", "capture", "streams", "serial"])
@pytest.mark.parametrize("runtime", HERE)
@settings(max_examples=400, phases=PHASES)
@given(story=stories(9, 25))
def test_every_launch_in_a_long_life_is_that_of_a_new_graph(runtime: str, backend: Any, story: Story) -> None:
    play(story, hg.open_runtime(runtime), backend)
