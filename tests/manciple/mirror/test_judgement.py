"""Nothing is concluded from a kind that may not be read: every explanation, with each kind unreadable in each way."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import combinations
from typing import Any

import pytest
from msgspec import structs

from claims.causes import causes
from manciple.mirror import explaining
from manciple.mirror.explaining import Answer
from manciple.mirror.failures import RemoteFailure
from manciple.mirror.listing import Found
from manciple.mirror.sources import DEVICES, SLICE, WHY, Source
from scheduling import judgement
from scheduling.allocator.outcome import FREE
from tests.manciple.mirror.clusters import (
    NAMESPACE,
    Objects,
    claim,
    cluster,
    device_class,
    devices_of,
    explained,
    holding,
    pod,
)
from tests.manciple.mirror.replay import copied
from tests.manciple.mirror.test_explaining import EVERY_DEVICE, SCENARIOS, train

pytestmark = pytest.mark.django_db

MORE: dict[str, Objects] = {
    "it fits": cluster(*train()),
    "a pod without devices fits": cluster(("pods", pod("train"))),
    "its claim is its own template's": cluster(
        ("pods", pod("train", template="t")),
        (
            "resourceclaimtemplates",
            {"metadata": {"name": "t", "namespace": NAMESPACE, "uid": "t"}, "spec": {"spec": {}}},
        ),
    ),
    "it runs": cluster(
        ("resourceclaims", claim("gpus", "n1/gpu-0", pod="train")), ("pods", pod("train", "gpus", on="n1"))
    ),
}
OBJECTS = {**{phrase: made() for phrase, (made, _, _) in SCENARIOS.items()}, **MORE}
#: how a kind is unreadable -> what the server does
WAYS = ("forbidden", "one namespace", "fails", "an object cannot be read")
_known: dict[str, Answer] = {}


def whole(phrase: str) -> Answer:
    if phrase not in _known:
        _known[phrase] = explained(OBJECTS[phrase], rules="v1beta2")[0]
    return _known[phrase]


def server(way: str, source: Source, objects: Objects) -> tuple[Objects, dict[str, Any]]:
    """(the objects, how the server is then)."""
    plural = source.plural
    if way == "forbidden":
        return objects, {"forbidden": frozenset({plural})}
    if way == "one namespace":
        return objects, {"forbidden": frozenset({plural}), "only": NAMESPACE}
    if way == "fails":
        listed = {source.path(version) for version in source.versions}
        body = json.dumps({"kind": "Status", "message": "etcd is away"}).encode()
        return objects, {"answer": lambda path: (500, {}, body) if path in listed else None}
    spoilt = copied(objects)
    broken: Mapping[str, Any] = {"metadata": {"name": ["no name"]}, "spec": 7}
    spoilt[plural] = [*spoilt.get(plural, ()), dict(broken)]
    return spoilt, {}


@pytest.mark.sample(30)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("source", WHY, ids=lambda source: source.plural)
@pytest.mark.parametrize("phrase", OBJECTS)
def test_what_is_said_with_a_kind_unreadable_is_said_with_all_of_it(phrase: str, source: Source, way: str) -> None:
    objects, options = server(way, source, OBJECTS[phrase])
    judged, found = explained(objects, rules="v1beta2", **options)
    assert_judged(judged, found, whole(phrase), source)


@pytest.mark.sample(30)
@pytest.mark.parametrize("only", ["", NAMESPACE], ids=["forbidden", "one namespace"])
@pytest.mark.parametrize("sources", combinations(WHY, 2), ids=lambda two: "+".join(one.plural for one in two))
@pytest.mark.parametrize("phrase", OBJECTS)
def test_what_is_said_with_two_kinds_unreadable_is_said_with_all_of_it(
    phrase: str, sources: tuple[Source, Source], only: str
) -> None:
    forbidden = frozenset(one.plural for one in sources)
    judged, found = explained(OBJECTS[phrase], rules="v1beta2", forbidden=forbidden, only=only)
    assert_judged(judged, found, whole(phrase), *sources)


def assert_judged(judged: Answer, found: Found, known: Answer, *sources: Source) -> None:
    """known: the answer where everything may be read."""
    unread = [source for source in sources if not found.states[source.resource].is_whole]
    if not unread:  # the server has no such kind
        return
    if judged.unknown:
        assert judged.explained.state == "Unknown"
        assert isinstance(judged.explained.cause, causes.NotJudged)
        assert any(source.plural in explaining.reason(judged) for source in unread)
    else:
        assert judged.explained.state == known.explained.state
        assert without_time(judged.explained.cause) == without_time(known.explained.cause)
    for step in judged.advice.steps:
        (same,) = (one for one in known.advice.steps if one.act == step.act)
        assert step.node in ("", same.node)
    if judged.explained.preemption is not None:
        assert judged.explained.preemption == known.explained.preemption
    counts = {
        (request.plan.full_name, stage.name): stage.left
        for request in (known.explained.report.requests if known.explained.report else ())
        for stage in request.funnel
    }
    for request in judged.explained.report.requests if judged.explained.report else ():
        for stage in request.funnel:
            assert stage.left == counts[request.plan.full_name, stage.name]
    for source in unread:
        assert source.plural in "\n".join(explaining.lines(judged))
        assert source.plural in json.dumps(explaining.document(judged))


def without_time(cause: causes.Cause | None) -> causes.Cause | None:
    return structs.replace(cause, seconds=0) if isinstance(cause, causes.NotPlaced) else cause


def test_what_does_not_depend_on_a_kind_is_still_said() -> None:
    """Who may not list the claims of others still learns that no device passes a selector."""
    judged, _ = explained(
        OBJECTS["no device passes its selector"], forbidden=frozenset({"resourceclaims"}), only=NAMESPACE
    )
    assert isinstance(judged.explained.cause, causes.NotSelected)
    assert judged.explained.report is not None
    (request,) = judged.explained.report.requests
    assert FREE not in [stage.name for stage in request.funnel]
    assert not judged.advice.steps
    said = "\n".join(explaining.lines(judged))
    assert "Not judged: you may list resourceclaims.resource.k8s.io of one namespace only." in said


def test_the_role_view_of_one_namespace_gets_no_false_answer() -> None:
    """Kubernetes' own role reads no nodes, slices and classes: the class is not missing."""
    hidden = frozenset({"nodes", "resourceslices", "deviceclasses", "devicetaintrules", "namespaces", "storageclasses"})
    mine = hidden | {"pods", "resourceclaims", "resourceclaimtemplates", "resourcequotas", "priorityclasses"}
    judged, _ = explained(OBJECTS["it fits"], forbidden=mine, only=NAMESPACE)
    reason = explaining.reason(judged)
    assert reason.startswith("It cannot be judged: ")
    for plural in ("nodes", "resourceslices", "deviceclasses"):
        assert f"you may not list {plural}" in reason
    assert "role" in explaining.next_step(judged)
    document = explaining.document(judged)
    assert document["state"] == "Unknown"
    assert document["cause"]["code"] == "not-judged"
    assert "met" not in str(document.get("requests", ""))
    assert {one["resource"] for one in document["notReadable"]} >= {"nodes", "pods"}
    # What stands in the pod itself holds without any other right.
    judged, _ = explained(OBJECTS["it has a scheduling gate"], forbidden=mine, only=NAMESPACE)
    assert isinstance(judged.explained.cause, causes.Gated)
    assert "what follows cannot be told" in explaining.next_step(judged)


def test_a_pod_that_may_be_read_though_pods_may_not_be_listed() -> None:
    judged, _ = explained(OBJECTS["it has a scheduling gate"], forbidden=frozenset({"pods"}))
    assert isinstance(judged.explained.cause, causes.Gated)


def test_every_cause_says_what_it_needs_or_needs_everything() -> None:
    for cause in judgement._NEEDS:
        assert issubclass(cause, causes.Cause)
    for source in WHY:
        assert source.resource not in ("secrets", "configmaps")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("source", DEVICES, ids=lambda source: source.plural)
def test_no_device_is_called_free_that_may_not_be(source: Source, way: str) -> None:
    objects = cluster(*holding("n1/gpu-0"))
    known = {(one.node, one.name): one for one in devices_of(objects, rules="v1beta2").devices}
    assert known["n1", "gpu-0"].state == "reserved"
    spoilt, options = server(way, source, objects)
    if source is SLICE and way != "an object cannot be read":
        with pytest.raises(RemoteFailure, match="resourceslices"):
            devices_of(spoilt, rules="v1beta2", **options)
        return
    table = devices_of(spoilt, rules="v1beta2", **options)
    assert [state.source for state in table.gaps] == [source]
    for one in table.devices:
        assert one.state in ("unknown", known[one.node, one.name].state)
        assert one.classes in (None, known[one.node, one.name].classes)
    assert source.plural in "\n".join(table.lines())
    if source.plural in ("resourceclaims", "devicetaintrules", "nodes"):
        assert "free" not in {one.state for one in table.devices}


@pytest.mark.parametrize("sources", combinations(DEVICES, 2), ids=lambda two: "+".join(one.plural for one in two))
def test_no_device_is_called_free_where_two_kinds_may_not_be_read(sources: tuple[Source, Source]) -> None:
    objects, forbidden = cluster(*holding("n1/gpu-0")), frozenset(one.plural for one in sources)
    if SLICE in sources:
        with pytest.raises(RemoteFailure, match="resourceslices"):
            devices_of(objects, rules="v1beta2", forbidden=forbidden)
        return
    table = devices_of(objects, rules="v1beta2", forbidden=forbidden)
    assert {state.source for state in table.gaps} == set(sources)
    states = {(one.node, one.name): one.state for one in table.devices}
    assert states.pop(("n1", "gpu-0")) in ("reserved", "unknown")
    assert set(states.values()) <= {"unknown"} or {"resourceclaims", "devicetaintrules", "nodes"}.isdisjoint(forbidden)
    free = [line.split()[3] for line in table.lines() if line.startswith(("gpu ", "unknown "))]
    assert "0" not in free, "nor are none called free"


def test_devices_that_two_claims_hold_are_told() -> None:
    twice = ("resourceclaims", claim("second", EVERY_DEVICE[0], namespace="team-c"))
    table = devices_of(cluster(*holding(*EVERY_DEVICE[:2]), twice))
    states = {(one.node, one.name): one.state for one in table.devices}
    assert states["n1", "gpu-0"] == "held-twice"
    assert states["n1", "gpu-1"] == "reserved"
    assert states["n2", "gpu-0"] == "free"
    assert table.stock["gpu", "H100"] == {"devices": 4, "held": 2, "free": 2}


def test_devices_of_a_class_and_of_a_node() -> None:
    objects = cluster(*holding(EVERY_DEVICE[0]), ("deviceclasses", device_class("none", "false")))
    assert [(one.node, one.name) for one in devices_of(objects, device_class="gpu", node="n2").devices] == [
        ("n2", "gpu-0"),
        ("n2", "gpu-1"),
    ]
    assert not devices_of(objects, device_class="none").devices
    with pytest.raises(RemoteFailure, match='no DeviceClass "tpu"'):
        devices_of(objects, device_class="tpu")
    broken = cluster(("deviceclasses", device_class("broken", "device.")))
    assert any("DeviceClass broken" in line for line in devices_of(broken).lines())


def test_a_server_without_devices_is_told() -> None:
    with pytest.raises(RemoteFailure, match=r"Kubernetes 1\.31"):
        devices_of(cluster(), dra="")
