"""Why pods wait: real messages of the scheduler come to the cause that they tell of."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from scheduling.models import QueuedPod
from scheduling.pages.overview.waiting import CAUSES, WaitingPod, by_cause, cause_of, clause_of
from scheduling.reasons import Reason
from tests.builders import (
    DRIVER,
    make_claim,
    make_class,
    make_device,
    make_device_taint,
    make_devices,
    make_node,
    make_pod,
    make_request,
    make_slice,
)
from tests.scheduling.cluster import Cluster, with_spec

NOW = datetime(2026, 11, 21, 10, 20, tzinfo=UTC)


def _cause_in(cluster: Cluster, name: str = "web", **request: object) -> str:
    """The cause of a pod that wants this."""
    cluster.create(make_claim(name, requests=[make_request(**request)]))  # type: ignore[arg-type]
    cluster.create(make_pod(name, claims={"gpu": name}))
    cluster.settle()
    return _cause(name)


def _cause(name: str) -> str:
    row = QueuedPod.objects.get(name=name)
    return cause_of(row.message, row.held_by).key


def test_every_device_is_held(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=2)
    cluster.create(make_claim("first", requests=[make_request(count=2)]))
    cluster.create(make_pod("first", claims={"gpu": "first"}))
    cluster.settle()
    assert _cause_in(cluster) == "held"


def test_no_single_node_has_enough(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", "node-2", each=2)
    assert _cause_in(cluster, count=3) in {"one-node", "too-few"}
    assert _cause_in(cluster, "more", count=4) == _cause("web")


def test_the_pool_is_not_whole(cluster: Cluster) -> None:
    cluster.create(make_class())
    cluster.create(make_node("node-1"))
    cluster.create(make_slice(slices=2))
    assert _cause_in(cluster) == "pool"


def test_nobody_publishes_a_device(cluster: Cluster) -> None:
    cluster.create(make_class())
    cluster.create(make_node("node-1"))
    assert _cause_in(cluster) == "no-devices"


def test_the_devices_are_tainted(cluster: Cluster) -> None:
    cluster.create(make_class())
    cluster.create(make_node("node-1"))
    cluster.create(make_slice(devices=[make_device(taints=[make_device_taint("example.com/maintenance")])]))
    assert _cause_in(cluster) == "tainted"


def test_the_selector_refuses_all(cluster: Cluster) -> None:
    cluster.with_gpus("node-1")
    assert _cause_in(cluster, expressions=[f'device.attributes["{DRIVER}"].index > 7']) == "selector"


def test_the_class_is_not_there(cluster: Cluster) -> None:
    cluster.with_gpus("node-1")
    assert _cause_in(cluster, device_class="gpu-h100") == "class-missing"


def test_the_claim_is_not_there(cluster: Cluster) -> None:
    cluster.with_gpus("node-1")
    cluster.create(make_pod("web", claims={"gpu": "nothing"}))
    cluster.settle()
    assert _cause("web") == "claim-missing"


def test_no_node_takes_it(cluster: Cluster) -> None:
    node = cluster.create(make_node("node-1"))
    cluster.create(make_slice(devices=make_devices(1)))
    cluster.update(with_spec(node, unschedulable=True))
    cluster.create(make_pod("web"))
    cluster.settle()
    assert _cause("web") == "nodes"


def test_there_is_no_node(cluster: Cluster) -> None:
    cluster.create(make_pod("web"))
    cluster.settle()
    assert _cause("web") == "no-nodes"


@pytest.mark.parametrize(
    ("message", "held_by", "cause"),
    [
        ("", 0, "turn"),
        ("Scheduling is blocked due to non-empty scheduling gates", int(Reason.GATED), "gated"),
        ("0/2 nodes are available: 2 Insufficient cpu. still not schedulable", 0, "room"),
        ("0/2 nodes are available: 2 Too many pods. still not schedulable", 0, "room"),
        (
            "0/2 nodes are available: 2 resourceclaim not available on the node. still not schedulable",
            0,
            "claim-elsewhere",
        ),
        ("0/2 nodes are available: claim shared is in use. still not schedulable", 0, "claim-busy"),
        ("nobody has ever said this", 0, "other"),
    ],
)
def test_other_messages(message: str, held_by: int, cause: str) -> None:
    assert cause_of(message, held_by).key == cause


def test_every_cause_says_what_to_do_next() -> None:
    for cause in CAUSES.values():
        assert cause.next_step.endswith("."), cause
        assert cause.title[0].isupper(), cause


def test_the_sentence_is_the_scheduler_s_without_what_all_have() -> None:
    text = (
        "0/2 nodes are available: 2 cannot allocate all claims. Request gpu accepts only 2 devices and both are held."
    )
    assert clause_of(f"{text} still not schedulable") == "Request gpu accepts only 2 devices and both are held"


def test_causes_that_most_pods_wait_for_come_first_and_turns_last() -> None:
    def pod(name: str, minutes: int, message: str) -> WaitingPod:
        return WaitingPod(namespace="a", name=name, since=NOW - timedelta(minutes=minutes), message=message, held_by=0)

    held = "0/1 nodes are available: 1 cannot allocate all claims. It accepts only 2 devices and both are held."
    pods = [pod("new", 0, ""), pod("newer", 0, ""), pod("new-2", 0, "")]
    pods += [pod("one", 3, "0/1 nodes are available: 1 Insufficient cpu."), pod("a", 1, held), pod("b", 9, held)]
    found = by_cause(pods)
    assert [(group.cause.key, group.count) for group in found] == [("held", 2), ("room", 1), ("turn", 3)]
    assert [pod.name for pod in found[0].named] == ["b", "a"]
