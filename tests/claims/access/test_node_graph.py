"""What a node has to do with, as pods come, change and go; and what knowing it costs."""

from __future__ import annotations

import gc
import sys
import time
from types import FunctionType, ModuleType
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from msgspec import structs

from claims.access.node_rights import NodeGraph, is_related
from claims.kinds.containers import EnvFromSource, EphemeralContainer, SecretEnvSource
from claims.kinds.pods import Pod, PodResourceClaimStatus
from claims.kinds.registration import POD
from inventory.kinds.registration import RESOURCE_SLICE
from manciple.store import objects
from manciple.wire.resources import CLAIMS
from tests.builders import make_pod, make_slice

pytestmark = pytest.mark.django_db

CLAIM = (CLAIMS, "default", "mine")


def create(pod: Pod) -> Pod:
    with objects.writing() as writer:
        created = writer.create(POD, pod)
    assert isinstance(created, Pod)
    return created


def update(pod: Pod, **spec: Any) -> Pod:
    with objects.writing() as writer:
        updated = writer.update(POD, structs.replace(pod, spec=structs.replace(pod.spec, **spec)))
    assert isinstance(updated, Pod)
    return updated


def delete(name: str) -> None:
    with objects.writing() as writer:
        writer.delete(POD, "default", name, grace_seconds=0)


def test_a_pod_gives_its_node_what_it_names_from_its_binding_to_its_end() -> None:
    waiting = create(make_pod("p", claims={"gpu": "mine"}))
    assert not is_related("node-1", CLAIM)
    update(waiting, node_name="node-1")
    assert is_related("node-1", CLAIM)
    assert not is_related("node-2", CLAIM)
    assert not is_related("node-1", (CLAIMS, "elsewhere", "mine"))
    delete("p")
    assert not is_related("node-1", CLAIM)


def test_what_two_pods_name_stays_until_the_second_is_gone() -> None:
    for name in ("a", "b"):
        create(make_pod(name, claims={"gpu": "mine"}, node="node-1"))
    delete("a")
    assert is_related("node-1", CLAIM)
    delete("b")
    assert not is_related("node-1", CLAIM)


def test_a_claim_that_is_made_later_is_the_nodes_from_then_on() -> None:
    pod = create(make_pod("p", templates={"gpu": "template"}, node="node-1"))
    assert not is_related("node-1", CLAIM)
    made = PodResourceClaimStatus(name="gpu", resource_claim_name="mine")
    with objects.writing() as writer:
        writer.update(POD, structs.replace(pod, status=structs.replace(pod.status, resource_claim_statuses=(made,))))
    assert is_related("node-1", CLAIM)


def test_a_container_that_joins_brings_its_secrets() -> None:
    pod = create(make_pod("p", node="node-1"))
    secret = EnvFromSource(secret_ref=SecretEnvSource(name="s"))
    update(pod, ephemeral_containers=(EphemeralContainer(name="look", image="x", env_from=(secret,)),))
    assert is_related("node-1", ("secrets", "default", "s"))


def test_a_status_names_no_claim_that_the_pod_does_not_ask_for() -> None:
    pod = create(make_pod("p", claims={"gpu": "own"}, node="node-1"))
    named = tuple(PodResourceClaimStatus(name=name, resource_claim_name="mine") for name in ("gpu", "unknown"))
    with objects.writing() as writer:
        writer.update(POD, structs.replace(pod, status=structs.replace(pod.status, resource_claim_statuses=named)))
    assert not is_related("node-1", CLAIM)


def test_a_slice_is_the_nodes_that_it_names() -> None:
    with objects.writing() as writer:
        writer.create(RESOURCE_SLICE, make_slice("s", node="node-1"))
    key = (RESOURCE_SLICE.resource, "", "s")
    assert is_related("node-1", key)
    assert not is_related("node-2", key)


# What it costs --------------------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_a_warm_answer_costs_no_query_and_at_most_fifty_microseconds() -> None:
    for number in range(110):
        create(make_pod(f"p-{number}", claims={"gpu": f"claim-{number}"}, node="node-1"))
    assert is_related("node-1", (CLAIMS, "default", "claim-7"))
    with CaptureQueriesContext(connection) as queries:
        best = min(timed(100) for _ in range(5))
    assert len(queries) == 0
    assert best < 50e-6


def timed(times: int) -> float:
    """Seconds for one answer."""
    began = time.perf_counter()
    for _ in range(times):
        assert is_related("node-1", (CLAIMS, "default", "claim-7"))
    return (time.perf_counter() - began) / times


def test_a_pod_takes_less_than_a_kilobyte() -> None:
    """So 50,000 pods take less than 50 MiB; measured, it is 25."""
    count = 2000
    known = NodeGraph()
    known.fill(
        "pods",
        (
            make_pod(f"pod-{number}-abcde", claims={"gpu": f"pod-{number}-gpu-xyz12"}, node=f"node-{number % 500}")
            for number in range(count)
        ),
    )
    assert len(known) == count
    assert 100 < bytes_of(known) / count < 1000


def bytes_of(whole: object) -> int:
    """What it takes with everything that it leads to, code left aside. (Other threads make no difference to that.)"""
    seen: dict[int, object] = {}
    ahead = [whole]
    while ahead:
        one = ahead.pop()
        if id(one) not in seen and not isinstance(one, type | ModuleType | FunctionType):
            seen[id(one)] = one
            ahead += gc.get_referents(one)
    return sum(map(sys.getsizeof, seen.values()))
