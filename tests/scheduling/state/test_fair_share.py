"""With fair share on, what namespaces hold comes to their weights as devices are given; alone, one gets everything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest_django.fixtures import Settings

from claims.kinds.pods import Pod
from scheduling.models import UsageSample
from scheduling.queue import queue
from scheduling.queue.queue import ReadyPod
from scheduling.state.fair_share import MOST_WEIGHT, WEIGHT, FairShare, weight_of
from tests.builders import (
    make_allocation,
    make_claim,
    make_namespace,
    make_pod,
    make_priority,
    make_request,
    make_result,
    make_template,
)
from tests.scheduling.cluster import Cluster

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)


def weighing(weights: Mapping[str, int], **sizes: int) -> FairShare:
    """No query is made for the sizes of the classes."""
    shares = FairShare()
    shares.sizes, shares._sized_at = sizes, NOW
    for name, weight in weights.items():
        shares.put(make_namespace(name, labels={WEIGHT: str(weight)}))
    return shares


def waiting(namespace: str, number: int, priority: int = 0) -> ReadyPod:
    since = NOW + timedelta(seconds=number)
    uid = f"{namespace}-{number}"
    return ReadyPod(uid=uid, attempts=0, ready_since=since, flushed=False, namespace=namespace, priority=priority)


def give(shares: FairShare, namespace: str, name: str, *classes: str) -> None:
    requests = [make_request(one, device_class=one) for one in classes]
    results = [make_result(f"{name}-{one}", request=one) for one in classes]
    shares.put(make_claim(name, namespace=namespace, requests=requests, allocation=make_allocation(*results)))


def take_back(shares: FairShare, namespace: str, name: str) -> None:
    shares.remove(make_claim(name, namespace=namespace))


def test_namespaces_that_are_gone_leave_nothing_behind() -> None:
    shares = weighing({"team": 3}, gpu=4)
    give(shares, "team", "one", "gpu")
    give(shares, "team", "two", "gpu", "link")
    assert shares.share("team") == 1 / 3  # of one link all
    for name in ("one", "two"):
        take_back(shares, "team", name)
    shares.remove(make_namespace("team"))
    assert (shares._weights, shares._held, shares._of_claim, shares._all) == ({}, {}, {}, {})


# The order ------------------------------------------------------------------------------------------------------------


@given(
    weights=st.lists(st.integers(1, 9), min_size=1, max_size=5),
    devices=st.integers(1, 60),
    seed=st.integers(0, 1000),
)
def test_what_is_held_comes_to_the_weights_and_is_given_in_the_order_of_age(
    weights: list[int], devices: int, seed: int
) -> None:
    """Pods of every namespace wait all the time; devices are given back at random, and given again in turn."""
    random = Random(seed)
    named = {f"team-{at}": weight for at, weight in enumerate(weights)}
    shares = weighing(named, gpu=devices)
    held: list[tuple[str, str]] = []
    given_to: dict[str, list[int]] = {name: [] for name in named}
    for number in range(devices * 6):
        if len(held) == devices:
            take_back(shares, *held.pop(random.randrange(devices)))
        ready = [
            waiting(name, number) for name in named for number in range(len(given_to[name]), len(given_to[name]) + 2)
        ]
        ready.sort(key=lambda pod: (pod.ready_since, random.random()))
        (uid,) = shares.turns(ready, 1, NOW)
        namespace, _, place = uid.rpartition("-")
        given_to[namespace].append(int(place))
        give(shares, namespace, f"claim-{number}", "gpu")
        held.append((namespace, f"claim-{number}"))
    for name, weight in named.items():
        holds = sum(namespace == name for namespace, _ in held)
        # What was given back last may be missing: one device, or what one turn of all the others comes to.
        assert abs(holds - devices * weight / sum(weights)) <= len(weights)
        assert given_to[name] == sorted(given_to[name])


def test_turns_go_by_what_was_given_meanwhile_and_priority_comes_first() -> None:
    shares = weighing({"a": 1, "b": 3}, gpu=8)
    ready = [waiting("a", 0, priority=5), *(waiting(name, at) for at in range(4) for name in ("a", "b"))]
    order = []
    for number, uid in enumerate(shares.turns(ready, 6, NOW)):
        order.append(uid)
        give(shares, uid[0], f"claim-{number}", "gpu")
    assert order == ["a-0", "b-0", "b-1", "b-2", "a-0", "b-3"]
    assert shares.has_the_turn("a", 5)
    assert shares.has_the_turn("b", 0)
    assert not shares.has_the_turn("a", 0)


def test_of_several_classes_the_one_counts_of_which_most_is_held() -> None:
    shares = weighing({}, gpu=10, nic=100)
    for number in range(4):
        give(shares, "many-nics", f"nic-{number}", "nic")
    give(shares, "one-gpu", "gpu", "gpu", "nic")
    assert shares.share("many-nics") == pytest.approx(0.04)
    assert shares.share("one-gpu") == pytest.approx(0.1)
    assert list(shares.turns([waiting("one-gpu", 0), waiting("many-nics", 1)], 9, NOW)) == ["many-nics-1", "one-gpu-0"]


@pytest.mark.parametrize(
    ("label", "weight"),
    [("3", 3), ("1000", MOST_WEIGHT), ("0", 1), ("1001", 1), ("-2", 1), ("2.5", 1), ("", 1), ("²", 1)],
)
def test_a_weight_is_a_whole_number_and_whoever_says_none_weighs_one(label: str, weight: int) -> None:
    assert weight_of({WEIGHT: label}) == weight
    assert weight_of({}) == 1


@pytest.mark.django_db
def test_how_many_devices_a_class_has_is_what_was_sampled_last() -> None:
    now = datetime.now(UTC)
    for minutes, free in ((5, 1), (1, 3)):
        at = now - timedelta(minutes=minutes)
        UsageSample.objects.create(at=at, device_class="gpu", counts={"free": free, "reserved": 5}, waiting=0)
    shares = FairShare()
    list(shares.turns([], 1, now))
    assert shares.sizes == {"gpu": 8}


# The scheduler --------------------------------------------------------------------------------------------------------


@pytest.fixture
def fair(cluster: Cluster, settings: Settings) -> Cluster:
    settings.SCHEDULER_FAIR_SHARE = True
    cluster.worker = cluster.new_worker()
    return cluster


def crowd(cluster: Cluster, namespace: str, pods: int, weight: int = 1, **spec: Any) -> None:
    cluster.label_namespace(namespace, {WEIGHT: str(weight)})
    cluster.create(make_template(namespace=namespace))
    for number in range(pods):
        cluster.create(make_pod(f"{namespace}-{number}", namespace=namespace, templates={"gpu": "template"}, **spec))


def running(cluster: Cluster) -> Counter[str]:
    return Counter(pod.metadata.namespace for pod in cluster.all(Pod) if pod.spec.node_name)


def test_namespaces_that_weigh_one_and_three_hold_devices_one_to_three(fair: Cluster) -> None:
    fair.with_gpus(each=8)
    crowd(fair, "modest", 14)
    crowd(fair, "heavy", 14, weight=3)
    fair.settle()
    assert running(fair) == {"modest": 2, "heavy": 6}
    random = Random(1)
    for _ in range(6):
        fair.delete(random.choice([pod for pod in fair.all(Pod) if pod.spec.node_name]))
        fair.retry()
    assert running(fair) == {"modest": 2, "heavy": 6}


def test_without_fair_share_age_alone_decides(cluster: Cluster) -> None:
    cluster.with_gpus(each=4)
    crowd(cluster, "early", 6)
    crowd(cluster, "late", 6, weight=100)
    cluster.settle()
    assert running(cluster) == {"early": 4}


def test_a_namespace_alone_gets_everything_and_gives_way_as_its_pods_end(fair: Cluster) -> None:
    fair.with_gpus(each=4)
    crowd(fair, "alone", 8)
    fair.settle()
    assert running(fair) == {"alone": 4}
    crowd(fair, "later", 8)
    for pod in [pod for pod in fair.all(Pod) if pod.spec.node_name][:2]:
        fair.delete(pod)
        fair.retry()
    assert running(fair) == {"alone": 2, "later": 2}


def test_priority_comes_before_shares_and_room_is_kept_for_whose_turn_it_is(fair: Cluster) -> None:
    fair.with_gpus(each=4)
    fair.create(make_priority("high", 1000))
    crowd(fair, "greedy", 6)
    fair.settle()
    crowd(fair, "urgent", 1, priority_class_name="high")
    fair.settle()
    assert len(fair.events("Preempted")) == 1
    fair.later(120)
    fair.settle()
    crowd(fair, "fresh", 1)
    fair.retry()
    nominated = {pod.metadata.namespace for pod in fair.all(Pod) if pod.status.nominated_node_name}
    assert "greedy" not in nominated


def test_of_a_namespace_with_many_pods_no_more_are_looked_at_than_a_batch_takes(fair: Cluster) -> None:
    for namespace, pods in {"many": 5, "few": 1}.items():
        for number in range(pods):
            fair.create(make_pod(f"{namespace}-{number}", namespace=namespace))
    fair.worker.sweep()
    found = queue.ready(2, fair.now, of_each=True).due
    assert Counter(pod.namespace for pod in found) == {"many": 2, "few": 1}
    assert Counter(pod.namespace for pod in queue.ready(2, fair.now).due) == {"many": 2}
