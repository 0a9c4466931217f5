"""Which pools a claim's event touches: those it holds, and those it held."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

import pytest

from claims.live import ClaimTopics, claim_topics, pod_topics
from manciple.store.records import EventRecord

EventType = Literal["ADDED", "MODIFIED", "DELETED"]

pytestmark = pytest.mark.django_db


def event(type_: EventType, pools: Iterable[str] = (), uid: str = "u1") -> EventRecord:
    results = [{"driver": "gpu.example.com", "pool": pool, "device": "gpu-0"} for pool in pools]
    status = {"allocation": {"devices": {"results": results}}} if results else {}
    return EventRecord(
        revision=1,
        type=type_,
        resource="resourceclaims.resource.k8s.io",
        namespace="default",
        name="c",
        uid=uid,
        document=json.dumps({"status": status}),
    )


def test_an_allocation_touches_its_pools_and_so_does_its_end() -> None:
    topics = ClaimTopics()
    assert set(topics(event("ADDED"))) == set()
    both = {"pool:gpu.example.com/n1", "pool:gpu.example.com/n2"}
    assert set(topics(event("MODIFIED", ["n1", "n2"]))) == both
    assert set(topics(event("MODIFIED"))) == both
    assert set(topics(event("MODIFIED"))) == set()


def test_deleting_an_allocated_claim_touches_its_pools_though_the_last_document_still_names_them() -> None:
    topics = ClaimTopics()
    topics(event("ADDED", ["n1"]))
    assert set(topics(event("DELETED", ["n1"]))) == {"pool:gpu.example.com/n1"}
    assert set(topics(event("MODIFIED", uid="u1"))) == set()


def test_claims_are_kept_apart() -> None:
    topics = ClaimTopics()
    topics(event("ADDED", ["n1"], uid="u1"))
    topics(event("ADDED", ["n2"], uid="u2"))
    assert set(topics(event("MODIFIED", uid="u2"))) == {"pool:gpu.example.com/n2"}


def test_pods_touch_their_list_and_themselves_and_claims_their_namespace() -> None:
    assert set(pod_topics(event("ADDED"))) == {"pods:default", "pod:default/c"}
    assert set(claim_topics(event("ADDED"))) == {"claims:default"}


def pod_event(phase: str, *, node: str = "n1", type_: EventType = "MODIFIED") -> EventRecord:
    text = json.dumps({"spec": {"nodeName": node}, "status": {"phase": phase}})
    return replace(event(type_, uid="p1"), resource="pods", document=text)


def test_a_pod_that_begins_to_run_touches_the_pools_of_its_claim_and_its_later_news_do_not() -> None:
    topics = ClaimTopics()
    results = [{"driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"}]
    status = {"allocation": {"devices": {"results": results}}, "reservedFor": [{"uid": "p1", "name": "web"}]}
    topics(replace(event("MODIFIED"), document=json.dumps({"status": status})))
    pool = {"pool:gpu.example.com/n1"}
    assert set(topics.of_pod(pod_event("Pending"))) == pool
    assert set(topics.of_pod(pod_event("Pending"))) == set()
    assert set(topics.of_pod(pod_event("Running"))) == pool
    assert set(topics.of_pod(pod_event("Running"))) == set()
    assert set(topics.of_pod(pod_event("Running", type_="DELETED"))) == pool
    topics(event("DELETED"))
    assert set(topics.of_pod(pod_event("Pending"))) == set()
