"""Moves that make room: proposed by overview and what-if, reviewed, and carried out by a person or a policy."""

from __future__ import annotations

import re
import time

import pytest
from django.test import Client
from msgspec import structs

from claims.kinds.pod_groups import GANG, GANG_SIZE
from claims.kinds.pods import Pod
from dashboard.workloads import moves
from manciple.wire.base import OwnerReference
from scheduling.rehearsal import moving, repairs
from scheduling.rehearsal import moving as policy
from scheduling.rehearsal.move_proposals import Proposals, read_proposals
from scheduling.rehearsal.moves import MovePlan, MoveRehearsal
from tests.builders import (
    make_claim,
    make_devices,
    make_node,
    make_pod,
    make_request,
    make_slice,
    make_template,
)
from tests.dashboard import texts
from tests.dashboard.browsing import admin, signed_in
from tests.dashboard.browsing import close_words as words
from tests.scheduling.cluster import Cluster

__all__ = ["admin"]

OWNER = OwnerReference(api_version="example.com/v1", kind="Fleet", name="web", uid="web-uid", controller=True)


@pytest.fixture
def halves(cluster: Cluster) -> Cluster:
    """Three nodes of two GPUs, on each of them a pod with one; and a pod that wants two of one node."""
    cluster.with_gpus("node-1", "node-2", "node-3")
    cluster.create(make_template("one"))
    for at in (1, 2, 3):
        cluster.create(owned(make_pod(f"held-{at}", templates={"gpu": "one"}, node_selector=host(at))))
    cluster.settle()
    for at in (1, 2, 3):  # they were sent there, and could have gone elsewhere
        pod = cluster.pod(f"held-{at}")
        cluster.update(structs.replace(pod, spec=structs.replace(pod.spec, node_selector={})))
    cluster.create(make_claim("two", requests=[make_request(count=2)]))
    cluster.create(make_pod("large", claims={"gpu": "two"}))
    cluster.settle()
    return cluster


def host(at: int) -> dict[str, str]:
    return {"kubernetes.io/hostname": f"node-{at}"}


def owned(pod: Pod) -> Pod:
    return structs.replace(pod, metadata=structs.replace(pod.metadata, owner_references=(OWNER,)))


def form(client: Client, pod: str = "large") -> dict[str, list[str]]:
    """What the page for moving pods sends."""
    text = client.get(f"/pods/default/{pod}/move").content.decode()
    return {name: re.findall(rf'name="{name}" value="([^"]+)"', text) for name in ("uid", "move")}


def leaving(cluster: Cluster) -> list[str]:
    return sorted(pod.metadata.name for pod in cluster.all(Pod) if pod.metadata.deletion_timestamp is not None)


def known(client: Client) -> str:
    """The overview, once everything is found out."""
    for _ in range(20):
        text = words(client, "/overview")
        if read_proposals(1.0).complete:
            return text if "Moves that would make room" in text else words(client, "/overview")
    raise AssertionError("nothing is found out")


def test_a_machine_that_is_busy_with_others_does_not_keep_moves_from_being_proposed(
    halves: Cluster, admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is found out is kept until something changes."""
    plan = MoveRehearsal.plan

    def plan_when_the_processor_is_free(rehearsal: MoveRehearsal, pod: Pod) -> MovePlan | None:
        time.sleep(0.4)
        return plan(rehearsal, pod)

    monkeypatch.setattr("scheduling.rehearsal.move_proposals.SECONDS", 0.3)
    monkeypatch.setattr(MoveRehearsal, "plan", plan_when_the_processor_is_free)
    known(admin)
    assert read_proposals(0.0).plans


def asking_again(client: Client) -> list[str]:
    """In how many seconds each part of the overview asks for itself."""
    return re.findall(r'data-again="(\d)"', client.get("/overview").content.decode())


def test_who_is_shown_an_older_answer_is_told_to_ask_again(
    halves: Cluster, admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing may happen any more that would make a page ask."""
    monkeypatch.setattr(repairs, "REST_AT_LEAST", 60.0)
    halves.delete(halves.pod("large"))
    assert read_proposals(1.0) == Proposals()
    halves.create(make_pod("large", claims={"gpu": "two"}))
    halves.settle()
    assert read_proposals(1.0) == Proposals(outdated=True)
    assert asking_again(admin) == ["4", "4"]
    monkeypatch.setattr(repairs, "REST_AT_LEAST", 0.0)
    monkeypatch.setattr(repairs, "REST", 0.0)
    known(admin)
    assert read_proposals(1.0).plans
    assert asking_again(admin) == []


def test_the_overview_and_a_what_if_propose_who_moves_from_where_to_where_and_who_starts(
    halves: Cluster, admin: Client
) -> None:
    text = known(admin)
    assert texts.MOVES_HEADING in text
    assert re.search(texts.MOVE_ROW("1move default/large", r"default/held-\d", r"node-\d", r"node-\d \(gpu-\d\)"), text)
    assert re.search(texts.MOVE_CREATED_AGAIN("web", "default/large", r"node-\d"), text)
    text = words(admin, "/what-if?pod=default/large")
    assert re.search(texts.MOVED_POD("1 pod", r"default/held-\d", r"node-\d", r"node-\d"), text)
    assert "Review and move…" in text
    assert "Review and move…" not in words(admin, "/what-if?pod=default/large&replicas=2")


def test_a_person_moves_a_pod_and_the_one_that_waits_starts_although_others_want_the_room(
    halves: Cluster, admin: Client
) -> None:
    sent = form(admin)
    assert len(sent["move"]) == 1
    answer = admin.post("/pods/default/large/move", sent)
    assert answer.status_code == 302
    (gone,) = leaving(halves)
    node = halves.pod(gone).spec.node_name
    assert halves.pod("large").status.nominated_node_name == node
    (event,) = halves.events("Moved")
    assert event.message.startswith(texts.MOVED_EVENT(node, "default/large"))
    halves.create(owned(make_pod("again", templates={"gpu": "one"})))
    halves.create(make_claim("late"))
    halves.create(make_pod("late", claims={"gpu": "late"}))
    halves.settle()
    attempts = halves.queued("large").attempts
    halves.finish("late")  # what comes free lets it be tried again, and is not enough
    halves.retry()
    assert halves.queued("large").attempts > attempts
    assert halves.pod("large").status.nominated_node_name == node
    halves.delete(halves.pod(gone))
    halves.retry()
    assert halves.pod("large").spec.node_name == node
    assert halves.pod("again").spec.node_name not in ("", node)


def test_a_move_lets_all_of_a_gang_start_and_each_of_it_keeps_its_room(halves: Cluster, admin: Client) -> None:
    """One of two fits on the node that comes; for the other a pod has to move."""
    halves.delete(halves.pod("large"))
    halves.create(make_template("pair", requests=[make_request(count=2)]))
    halves.create(make_node("node-4"))
    halves.create(make_slice(node="node-4", devices=make_devices(2)))
    for at in range(2):
        meta = {"annotations": {GANG: "train", GANG_SIZE: "2"}}
        halves.create(make_pod(f"large-{at}", templates={"gpu": "pair"}, meta=meta))
    halves.settle()
    assert "gang train of 2" in words(admin, "/pods/default/large-0")
    result = admin.get("/what-if?pod=default/large-0").context["page"].result
    assert (result.good, result.wanted, result.left) == (False, 2, 2)
    preview = admin.get("/pods/default/large-1/move").context["preview"]
    assert (preview.subject, len(preview.picks)) == ("gang train", 1)
    admin.post("/pods/default/large-1/move", form(admin, "large-1"))
    (gone,) = leaving(halves)
    rooms = {halves.pod(f"large-{at}").status.nominated_node_name for at in range(2)}
    assert rooms == {"node-4", halves.pod(gone).spec.node_name}
    halves.create(owned(make_pod("again", templates={"gpu": "one"})))
    halves.retry()
    assert halves.pod("again").spec.node_name not in ("", *rooms)
    assert {halves.pod(f"large-{at}").spec.node_name for at in range(2)} == {""}
    halves.delete(halves.pod(gone))
    halves.retry()
    assert {halves.pod(f"large-{at}").spec.node_name for at in range(2)} == rooms


def test_nothing_moves_that_was_not_looked_at_or_would_be_in_vain(halves: Cluster, admin: Client) -> None:
    sent = form(admin)
    for changed, told in (
        ({"uid": ["other"]}, "now called large"),
        ({"move": ["default/held-1"]}, "the pods shown no longer exist"),
        ({"move": ["default/held-1@other"]}, "the pods shown no longer exist"),
        ({"move": []}, "the pods shown no longer exist"),
    ):
        answer = admin.post("/pods/default/large/move", {**sent, **changed})
        assert (answer.status_code, told in answer.content.decode()) == (409, True), changed
    for at in (1, 2, 3):
        halves.create(make_claim(f"more-{at}"))
        halves.create(make_pod(f"more-{at}", claims={"gpu": f"more-{at}"}))
    halves.settle()
    answer = admin.post("/pods/default/large/move", sent)
    assert texts.NO_LONGER_STARTS_BY_MOVES in answer.content.decode()
    assert leaving(halves) == []
    assert texts.NO_MOVES_FOUND in words(admin, "/pods/default/large/move")


def test_an_eviction_that_is_refused_or_not_allowed_stops_the_rest_and_says_so(
    halves: Cluster, admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    viewer = signed_in("viewer")
    text = words(viewer, "/pods/default/large/move")
    assert texts.MAY_NOT_EVICT("default") in text
    assert texts.MOVE_POD_FOR("1 pod", "large") in text
    assert viewer.post("/pods/default/large/move", form(viewer)).status_code == 403
    assert signed_in("stranger", "namespace:other").get("/pods/default/large/move").status_code == 404
    monkeypatch.setattr(moves, "evict", lambda _pod, _identity: "not now")
    answer = admin.post("/pods/default/large/move", form(admin))
    assert re.search(texts.MOVE_NOT_EVICTED(r"default/held-\d"), answer.content.decode())
    assert leaving(halves) == []


def test_the_policy_is_off_unless_set_and_moves_nobody_who_has_just_started(halves: Cluster, settings: object) -> None:
    halves.later(120)
    settings.SCHEDULER_DEFRAGMENTATION = True  # type: ignore[attr-defined]
    assert policy.reconcile(halves.now) == 0
    halves.later(3600)
    settings.SCHEDULER_DEFRAGMENTATION = False  # type: ignore[attr-defined]
    assert policy.reconcile(halves.now) == 0
    assert leaving(halves) == []
    settings.SCHEDULER_DEFRAGMENTATION = True  # type: ignore[attr-defined]
    assert policy.reconcile(halves.now) == 1
    (gone,) = leaving(halves)
    assert policy.reconcile(halves.now) == 0  # room is being made
    reasons = [one.reason for one in halves.pod(gone).status.conditions if one.type == "DisruptionTarget"]
    assert reasons == ["EvictionByDefragmentation"]


def test_the_policy_moves_pods_for_one_for_which_room_is_kept_as_nobody_leaves_for_it(
    halves: Cluster, settings: object
) -> None:
    """It has waited for long, so what comes free on one of the nodes is kept for it; but nothing does."""
    settings.SCHEDULER_DEFRAGMENTATION = True  # type: ignore[attr-defined]
    halves.later(3600)
    halves.worker.sweep()
    halves.settle()
    assert halves.pod("large").status.nominated_node_name
    assert policy.reconcile(halves.now) == 1
    (gone,) = leaving(halves)
    assert halves.pod("large").status.nominated_node_name == halves.pod(gone).spec.node_name
    assert policy.reconcile(halves.now) == 0


def test_between_two_evictions_the_rest_is_rehearsed_again(halves: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two pods of node-1 go for one that needs all of node-1; after the first somebody takes the last free device."""
    asked = []
    real = moving.verified

    def verified(pod: Pod, victims: list[Pod], gone: list[str]) -> object:
        asked.append(list(gone))
        return real(pod, victims, gone) if not gone else "somebody took it"

    monkeypatch.setattr(moving, "verified", verified)
    large = halves.pod("large")
    outcome = moving.carry_out(large, [halves.pod("held-1"), halves.pod("held-2")], lambda _pod: "")
    assert (len(outcome.moved), outcome.stopped) == (1, "somebody took it")
    assert [len(one) for one in asked] == [0, 1]
