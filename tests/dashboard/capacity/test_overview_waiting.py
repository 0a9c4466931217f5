"""Why pods wait, sorted: what the scheduler really finds comes to the topic that it belongs to."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import structs

from claims.causes import causes
from claims.causes.causes import (
    AnyCause,
    CannotAllocate,
    ClaimNotCreated,
    DevicesInUse,
    NodeRefusal,
    NoNodeFits,
    TroubledPool,
)
from claims.causes.messages import brief
from claims.causes.next_steps import TOPICS, topic_of
from dashboard.workloads.waiting import WaitingPod, by_topic, said_of
from inventory.kinds.devices import ResourceSlice
from scheduling.models import QueuedPod
from scheduling.rehearsal.repairs import ForgottenClaim, IncompletePool, Mended, Mending
from tests.builders import (
    DRIVER,
    make_claim,
    make_class,
    make_device,
    make_device_taint,
    make_node,
    make_pod,
    make_request,
    make_slice,
)
from tests.dashboard import texts
from tests.outlines import Outline
from tests.scheduling.cluster import Cluster, with_spec

NOW = datetime(2026, 11, 21, 10, 20, tzinfo=UTC)


def two_gpus(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=2)


def all_held(cluster: Cluster) -> None:
    two_gpus(cluster)
    cluster.create(make_claim("first", requests=[make_request(count=2)]))
    cluster.create(make_pod("first", claims={"gpu": "first"}))
    cluster.settle()


def node_that_publishes(cluster: Cluster, *slices: ResourceSlice) -> None:
    cluster.create(make_class())
    cluster.create(make_node("node-1"))
    for published in slices:
        cluster.create(published)


TAINTED = make_device(taints=[make_device_taint("example.com/maintenance")])
NEVER = f'device.attributes["{DRIVER}"].index > 7'
#: what there is -> (how it comes about, what the pod's claim asks for, the topic)
WORLDS: dict[str, tuple[Callable[[Cluster], None], dict[str, Any], str]] = {
    "every device is held": (all_held, {}, "held"),
    "no single node has enough": (lambda cluster: cluster.with_gpus("node-1", "node-2"), {"count": 3}, "one-node"),
    "the pool is not whole": (lambda cluster: node_that_publishes(cluster, make_slice(slices=2)), {}, "pool"),
    "nobody publishes a device": (node_that_publishes, {}, "no-devices"),
    "the devices are tainted": (
        lambda cluster: node_that_publishes(cluster, make_slice(devices=[TAINTED])), {}, "tainted",
    ),
    "the selector refuses all": (two_gpus, {"expressions": [NEVER]}, "selector"),
    "the class is not there": (two_gpus, {"device_class": "gpu-h100"}, "class-missing"),
}  # fmt: skip


@pytest.mark.parametrize("case", WORLDS)
def test_what_a_pod_waits_for_belongs_to_a_topic(cluster: Cluster, case: str) -> None:
    world, request, topic = WORLDS[case]
    world(cluster)
    cluster.create(make_claim("web", requests=[make_request(**request)]))
    cluster.create(make_pod("web", claims={"gpu": "web"}))
    cluster.settle()
    assert topic_of(cluster.cause("web")).key == topic


def test_without_a_node_a_claim_or_a_node_that_takes_it_a_pod_waits_for_just_that(cluster: Cluster) -> None:
    cluster.create(make_pod("alone"))
    cluster.settle()
    assert topic_of(cluster.cause("alone")).key == "no-nodes"
    cluster.with_gpus("node-1")
    cluster.create(make_pod("web", claims={"gpu": "nothing"}))
    cluster.update(with_spec(cluster.node(), unschedulable=True))
    cluster.create(make_pod("plain"))
    cluster.settle()
    assert [topic_of(cluster.cause(name)).key for name in ("web", "plain")] == ["claim-missing", "nodes"]


def test_nobody_is_told_to_create_a_claim_that_comes_from_a_template() -> None:
    topic = topic_of(ClaimNotCreated(pod="default/web", entry="gpu"))
    assert topic.key == "claim-not-created"
    assert "Create" not in topic.next_step


NO_CPU = NoNodeFits(nodes=2, refused=((NodeRefusal("NodeResourcesFit", "cpu", resolvable=True), 2),))
HELD = DevicesInUse(claim="a/b", request="gpu", wanted=1, before=2, left=0, most=0)
NO_DEVICES = NoNodeFits(nodes=1, refused=((CannotAllocate(), 1),), because=HELD)


@pytest.mark.parametrize(
    ("cause", "topic"),
    [
        (None, "turn"),
        (causes.Gated(), "gated"),
        (NO_CPU, "room"),
        (NoNodeFits(nodes=1, refused=((NodeRefusal("NodeResourcesFit", "pods"), 1),)), "room"),
        (
            NoNodeFits(nodes=2, refused=((NodeRefusal("NodeName"), 1), (NodeRefusal("NodeResourcesFit", "cpu"), 1))),
            "room",
        ),
        (NoNodeFits(nodes=2, refused=((NodeRefusal("DynamicResources"), 2),)), "claim-elsewhere"),
        (NoNodeFits(nodes=2, refused=((NodeRefusal("TaintToleration", "k", "v"), 2),)), "nodes"),
        (NoNodeFits(nodes=2, because=causes.ClaimInUse()), "claim-busy"),
        (NoNodeFits(nodes=9, refused=((CannotAllocate(), 9),), because=structs.replace(HELD, nodes=(4, 9))), "held"),
        (causes.Interrupted("overtaken"), "retry"),
    ],
)
def test_other_causes(cause: AnyCause | None, topic: str) -> None:
    assert topic_of(cause).key == topic


def test_every_topic_says_what_to_do_next() -> None:
    for topic in TOPICS.values():
        assert topic.next_step.endswith("."), topic
        assert topic.title[0].isupper(), topic


def test_pods_stand_under_what_would_start_them_and_the_others_under_what_they_lack_even_then() -> None:
    short = IncompletePool(driver="gpu.example.com", pool="gpu-b04", node="gpu-b04", seen=1, expected=2, devices=8)
    of_pool = structs.replace(HELD, pools=(TroubledPool("gpu.example.com", "gpu-b04", "incomplete", "1 of 2 slices"),))
    waiting = NoNodeFits(nodes=1, refused=((CannotAllocate(), 1),), because=of_pool)
    pods = [
        WaitingPod(namespace="a", name=f"p{at}", since=NOW + timedelta(minutes=at), cause=waiting, uid=str(at))
        for at in range(9)
    ]
    assert [(group.topic.key, group.count) for group in by_topic(pods)] == [("pool", 9)]
    mending = Mending(trouble=short, starts=frozenset({"0", "1"}))
    rest = {str(at): NO_DEVICES for at in range(2, 9)}
    first, second = by_topic(pods, Mended(waiting=9, mendings=(mending,), rest=rest))
    assert (first.topic.title, first.count, first.of) == (texts.CAUSE_SLICE_MISSING("`gpu-b04`", "1 slice"), 2, 9)
    assert first.sentence == texts.FIX_WOULD_START(2, 9)
    assert texts.DEVICES_CAN_BE_GIVEN_AGAIN("8 devices") in first.topic.next_step
    assert (second.topic.key, second.count) == ("held", 7)
    assert second.sentence.startswith(texts.STILL_WAIT_WHEN_FIXED("Request `gpu`"))


def test_what_is_wrong_in_another_namespace_is_not_named() -> None:
    forgotten = ForgottenClaim(namespace="secret", claim="run", devices=2)
    title, _, url = said_of(forgotten, lambda namespace: namespace != "secret")
    assert (title, url) == (texts.CAUSE_HELD_UNUSED("2 devices"), "")
    assert said_of(forgotten, lambda _: True)[2] == "/claims/secret/run"


def test_the_sentence_is_the_scheduler_s_without_what_all_have() -> None:
    assert brief(NO_DEVICES) == Outline("… `gpu` of claim `a/b` …")
    assert brief(NO_DEVICES, names_claim=False) == brief(NO_DEVICES).replace(" of claim `a/b`", "")
    assert brief(NO_CPU) == "2 Insufficient cpu."


def test_what_most_pods_wait_for_come_first_and_turns_last() -> None:
    def pod(name: str, minutes: int, cause: AnyCause | None) -> WaitingPod:
        return WaitingPod(namespace="a", name=name, since=NOW - timedelta(minutes=minutes), cause=cause)

    pods = [pod("new", 0, None), pod("newer", 0, None), pod("new-2", 0, None)]
    pods += [pod("one", 3, NO_CPU), pod("a", 1, NO_DEVICES), pod("b", 9, NO_DEVICES)]
    found = by_topic(pods)
    assert [(group.topic.key, group.count) for group in found] == [("held", 2), ("room", 1), ("turn", 3)]
    assert [pod.name for pod in found[0].named] == ["b", "a"]


def test_a_pod_that_is_gone_waits_no_more_although_the_queue_does_not_know_yet(cluster: Cluster) -> None:
    pod = cluster.create(make_pod("gone", claims={"gpu": "missing"}))
    cluster.settle()
    assert [row.name for row in QueuedPod.objects.waiting()] == ["gone"]
    cluster.delete(pod)
    assert [row.name for row in QueuedPod.objects.all()] == ["gone"]
    assert list(QueuedPod.objects.waiting()) == []
    cluster.settle()
