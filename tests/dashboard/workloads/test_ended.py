"""What ended: why and by whom pods and claims were deleted, and how people come there from stale links and Find."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

import pytest
from django.test import Client
from msgspec import structs

from claims import endings, evictions
from claims.evictions import Disruption
from claims.kinds.pods import (
    ContainerState,
    ContainerStateTerminated,
    ContainerStatus,
    Pod,
)
from claims.models import Ending
from manciple.api import namespaces, verbs
from manciple.audit.models import Entry
from manciple.controllers import housekeeping
from manciple.store import objects
from manciple.wire.base import OwnerReference, timestamp
from manciple.wire.identity import AUTHENTICATED, MASTERS, NODES, Identity, controller
from manciple.wire.machinery import DeleteOptions
from manciple.wire.resources import CLAIMS, PODS, kind
from tests.builders import make_claim, make_device, make_node, make_pod, make_request, make_slice, make_template
from tests.dashboard.browsing import admin, signed_in, words
from tests.scheduling.cluster import Cluster
from tests.workloads.cluster import make_deployment

__all__ = ["admin"]

Reason = Ending.Reason
ANN = Identity("ann", (MASTERS,))
SCHEDULER = Identity("system:kube-scheduler", (AUTHENTICATED,))
AGENT = Identity("system:node:node-1", (NODES, AUTHENTICATED))


def exported(client: Client, path: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(client.get(path).content.decode())))


def record(name: str = "web", namespace: str = "team-a", resource: str = PODS) -> Ending:
    """The latest of this name, with its author."""
    endings.note_authors()
    found = Ending.objects.filter(name=name, namespace=namespace, resource=resource).order_by("-pk").first()
    assert found is not None
    return found


def delete(name: str, *, by: Identity = ANN, grace: int | None = None, resource: str = PODS) -> None:
    with objects.writing(identity=by) as writer:
        writer.delete(kind(resource), "team-a", name, grace_seconds=grace)


def reports(cluster: Cluster, phase: str, *, exit_code: int = 0, reason: str = "", at: str = "") -> Pod:
    """What the agent says of the pod at the end of its only container."""
    pod = cluster.get(Pod, "web", "team-a")
    ended = ContainerStateTerminated(exit_code=exit_code, reason=reason, finished_at=at or timestamp(cluster.now))
    container = ContainerStatus(name="main", state=ContainerState(terminated=ended))
    status = structs.replace(pod.status, phase=phase, container_statuses=(container,))
    return cluster.update(structs.replace(pod, status=status))


@pytest.fixture
def scene(cluster: Cluster) -> Cluster:
    """A pod on a node."""
    cluster.create(make_node("node-1"))
    cluster.create(make_pod("web", namespace="team-a", node="node-1"))
    return cluster


# Why and who ---------------------------------------------------------------------------------------------------------


def agent_ends(cluster: Cluster, *, phase: str = "Failed") -> None:
    """The agent reports that a deletion has ended the containers, and removes the pod."""
    reports(cluster, phase, exit_code=143, at=timestamp(cluster.now + timedelta(seconds=5)))
    delete("web", by=AGENT, grace=0)


def deleted(cluster: Cluster) -> None:
    delete("web")
    agent_ends(cluster)


def deleted_and_ended_well(cluster: Cluster) -> None:
    delete("web")
    agent_ends(cluster, phase="Succeeded")


def finished(cluster: Cluster) -> None:
    reports(cluster, "Succeeded")
    delete("web")


def out_of_memory(cluster: Cluster) -> None:
    reports(cluster, "Failed", exit_code=137, reason="OOMKilled")
    delete("web")


def finished_while_a_finalizer_held_it(cluster: Cluster) -> None:
    pod = reports(cluster, "Succeeded", at=timestamp(cluster.now - timedelta(hours=1)))
    held = cluster.update(structs.replace(pod, metadata=structs.replace(pod.metadata, finalizers=("x.example/y",))))
    delete("web", grace=0)
    held = cluster.get(Pod, "web", "team-a")
    cluster.update(structs.replace(held, metadata=structs.replace(held.metadata, finalizers=())))


def disrupted_by(why: Disruption, by: Identity) -> Callable[[Cluster], None]:
    def disrupt(cluster: Cluster) -> None:
        with objects.writing(identity=by) as writer:
            pod = writer.get(kind(PODS), "team-a", "web")
            assert isinstance(pod, Pod)
            evictions.disrupt(writer, pod, why, now=cluster.now)
        if cluster.find(Pod, "web", "team-a") is not None:
            agent_ends(cluster)

    return disrupt


def cleaned_up(cluster: Cluster) -> None:
    with objects.writing(identity=controller("pod-garbage-collector")) as writer:
        pod = writer.get(kind(PODS), "team-a", "web")
        assert isinstance(pod, Pod)
        failed = structs.replace(pod, status=structs.replace(pod.status, phase="Failed"))
        writer.update(kind(PODS), failed, subresource="status")
        writer.delete(kind(PODS), "team-a", "web", grace_seconds=0)


def owner_deleted(cluster: Cluster) -> None:
    claim = cluster.create(make_claim("owner", namespace="team-a"))
    pod = cluster.get(Pod, "web", "team-a")
    owner = OwnerReference(
        api_version="resource.k8s.io/v1", kind="ResourceClaim", name="owner", uid=claim.metadata.uid, controller=True
    )
    cluster.update(structs.replace(pod, metadata=structs.replace(pod.metadata, owner_references=(owner,))))
    cluster.delete(claim)
    housekeeping.collect_garbage(cluster.now)
    agent_ends(cluster)


def namespace_deleted(cluster: Cluster) -> None:
    verbs.delete(kind("namespaces"), namespace="", name="team-a", identity=ANN)
    namespaces.sweep(cluster.now + namespaces.PATIENCE + timedelta(minutes=1))
    if cluster.find(Pod, "web", "team-a") is not None:
        agent_ends(cluster)


#: what happened -> (why it ended, who began it, a part of the details)
ENDINGS: dict[str, tuple[Callable[[Cluster], None], Ending.Reason, str, str]] = {
    "a person deleted it": (deleted, Reason.DELETED, "ann", ""),
    "a person deleted it, and it ended well": (deleted_and_ended_well, Reason.DELETED, "ann", ""),
    "it finished": (finished, Reason.SUCCEEDED, "ann", ""),
    "it finished long before it went": (finished_while_a_finalizer_held_it, Reason.SUCCEEDED, "ann", ""),
    "it failed": (out_of_memory, Reason.FAILED, "ann", "container main: OOMKilled, exit code 137"),
    "a node's taint": (
        disrupted_by(evictions.NODE_TAINT, controller("node-controller")), Reason.NODE_TAINT,
        "node-controller", "NoExecute taint",
    ),
    "a device's taint": (
        disrupted_by(evictions.DEVICE_TAINT, controller("device-taint-eviction-controller")), Reason.DEVICE_TAINT,
        "device-taint-eviction-controller", "Device Taint manager",
    ),
    "preemption": (
        disrupted_by(evictions.preemption_by("default-scheduler"), SCHEDULER), Reason.PREEMPTED,
        "kube-scheduler", "higher priority",
    ),
    "a move": (
        disrupted_by(evictions.DEFRAGMENTATION, SCHEDULER), Reason.MOVED, "kube-scheduler", "fits elsewhere",
    ),
    "a lost node": (
        disrupted_by(evictions.NODE_LOST, controller("pod-garbage-collector")), Reason.NODE_LOST,
        "pod-garbage-collector", "no longer exists",
    ),
    "the system's cleaning": (cleaned_up, Reason.CLEANED_UP, "pod-garbage-collector", ""),
    "its owner went": (owner_deleted, Reason.OWNER, "generic-garbage-collector", ""),
    "its namespace went": (namespace_deleted, Reason.NAMESPACE, "namespace-controller", ""),
}  # fmt: skip


@pytest.mark.parametrize("happened", ENDINGS)
def test_a_pod_that_ended_says_why_and_by_whom(scene: Cluster, admin: Client, happened: str) -> None:
    act, reason, author, details = ENDINGS[happened]
    act(scene)
    found = record()
    assert (found.reason, found.node) == (reason.value, "node-1")
    assert (found.author or "").rpartition(":")[2] == author, found.author
    assert details in found.message
    assert Ending.objects.filter(name="web").count() == 1
    for page in (words(admin, f"/ended/{found.uid}"), words(admin, "/pods/team-a/web", 404)):
        assert str(reason.label) in page
        assert details in page
    assert str(reason.label) in words(admin, "/ended")


def test_a_pod_that_is_deleted_on_its_page_is_found_by_its_old_link(scene: Cluster, admin: Client) -> None:
    pod = scene.get(Pod, "web", "team-a")
    uid = pod.metadata.uid
    assert admin.post("/pods/team-a/web/delete?force=1", {"uid": uid}).status_code == 302
    for path in ("/pods/team-a/web", "/pods/team-a/web/delete", "/pods/team-a/web?tab=logs"):
        answer = admin.get(path)
        assert answer.status_code == 404
        assert f'href="/ended/{uid}"' in answer.content.decode(), path
        title = answer.content.decode().partition("<title>")[2].partition("</title>")[0]
        assert "team-a/web" in title, "what the tab says of an object that was there"
    page = words(admin, f"/ended/{uid}")
    assert "Deleted by ada" in page
    assert record().author == "ada"


def test_an_eviction_by_request_names_who_asked_for_it(scene: Cluster, admin: Client) -> None:
    answer = admin.post("/nodes/node-1/change", {"change": "drain"})
    assert answer.status_code == 302, answer.content
    agent_ends(scene)
    found = record()
    assert (found.reason, found.author) == (Reason.EVICTED.value, "ada")


def test_a_claim_that_ended_says_who_held_what_and_links_to_its_pod(cluster: Cluster, admin: Client) -> None:
    cluster.with_gpus("node-1")
    cluster.create(make_template("one", namespace="team-a", requests=[make_request()]))
    cluster.create(make_pod("web", namespace="team-a", templates={"gpu": "one"}))
    cluster.settle()
    name = cluster.get(Pod, "web", "team-a").status.resource_claim_statuses[0].resource_claim_name or ""
    delete("web", grace=0)
    cluster.settle()
    pod, claim = record(), record(name, resource=CLAIMS)
    assert claim.reason == Reason.OWNER.value
    assert (claim.owner, claim.node, claim.others) == ("Pod web", "node-1", ["web"])
    page = admin.get(f"/ended/{claim.uid}").content.decode()
    assert f'href="/ended/{pod.uid}"' in page
    assert "gpu-0" in page
    page = admin.get(f"/ended/{pod.uid}").content.decode()
    assert f'href="/ended/{claim.uid}"' in page
    assert "gpu-0" in page
    assert f'href="/ended/{claim.uid}"' in admin.get(f"/claims/team-a/{name}").content.decode()


def test_a_name_that_is_used_again_has_all_its_records_and_the_living_one(scene: Cluster, admin: Client) -> None:
    uids = [scene.get(Pod, "web", "team-a").metadata.uid]
    delete("web", grace=0)
    uids.append(scene.create(make_pod("web", namespace="team-a")).metadata.uid)
    delete("web", grace=0)
    missing = admin.get("/pods/team-a/web").content.decode()
    assert missing.index(uids[1]) < missing.index(uids[0]), "the latest first"
    scene.create(make_pod("web", namespace="team-a"))
    page = admin.get(f"/ended/{uids[0]}").content.decode()
    assert 'href="/pods/team-a/web"' in page
    assert f'href="/ended/{uids[1]}"' in page


def test_nothing_is_recorded_of_what_was_not_deleted(scene: Cluster) -> None:
    verbs.delete(kind(PODS), namespace="team-a", name="web", identity=ANN, options=DeleteOptions(dry_run=("All",)))
    with suppress(ZeroDivisionError), objects.writing() as writer:
        writer.delete(kind(PODS), "team-a", "web", grace_seconds=0)
        raise ZeroDivisionError
    delete("web")
    assert not Ending.objects.exists(), "it is being deleted, and still there"


# Rights --------------------------------------------------------------------------------------------------------------


def test_a_person_sees_only_what_ended_in_namespaces_that_they_see(scene: Cluster) -> None:
    uid = scene.get(Pod, "web", "team-a").metadata.uid
    delete("web", grace=0)
    ann, eve = signed_in("ann", "namespace:team-a"), signed_in("eve", "namespace:team-b")
    assert "web" in words(ann, "/ended")
    assert words(ann, f"/ended/{uid}")
    assert "Nothing has ended" in words(eve, "/ended")
    assert exported(eve, "/ended.csv") == []
    for path in (f"/ended/{uid}", "/pods/team-a/web", "/pods/nowhere/web", "/claims/team-a/web"):
        page = words(eve, path, 404)
        assert "Deleted" not in page
        assert uid not in page
    assert uid not in eve.get("/find?q=web").content.decode()
    hidden, absent = words(eve, "/pods/team-a/web", 404), words(eve, "/pods/nowhere/web", 404)
    assert hidden.replace("team-a", "X") == absent.replace("nowhere", "X"), "one says no more than the other"
    assert Client().get("/pods/team-a/web").status_code == 302, "to sign in"


# Finding -------------------------------------------------------------------------------------------------------------


def test_find_leads_to_what_ended(scene: Cluster, admin: Client) -> None:
    uid = scene.get(Pod, "web", "team-a").metadata.uid
    assert f"/ended/{uid}" not in admin.get("/find?q=web").content.decode()
    delete("web", grace=0)
    for question in ("web", "we", "team-a/web", "WEB"):
        assert f"/ended/{uid}" in admin.get(f"/find?q={question}").content.decode(), question
    assert f"/ended/{uid}" in admin.get("/find/suggestions?q=web").content.decode()


#: what is there, the address, what is offered
NEAR: tuple[tuple[str, str], ...] = (
    ("/pods/team-a/train-7f9c-zzzzz", "/pods/team-a/train-7f9c-abcde"),
    ("/pods/team-b/train-7f9c-abcde", "/pods/team-a/train-7f9c-abcde"),
    ("/pods/team-a/trian-7f9c-abcde", "/pods/team-a/train-7f9c-abcde"),
    ("/pods/team-a/train-7f9c-abcde-x?tab=logs", "/pods/team-a/train-7f9c-abcde"),
    ("/claims/team-a/shraed", "/claims/team-a/shared"),
    ("/templates/team-a/one-gpus", "/templates/team-a/one-gpu"),
    ("/nodes/gpu-a17x", "/nodes/gpu-a17"),
    ("/namespaces/team-aa", "/namespaces/team-a"),
    ("/workloads/deployments/default/webs", "/workloads/deployments/default/web"),
    ("/workloads/deployments/default/webb/scale", "/workloads/deployments/default/web"),
    ("/yaml/deployments.apps/webs?ns=default", "/workloads/deployments/default/web"),
    ("/yaml/nodes/gpu-a17x", "/nodes/gpu-a17"),
    ("/devices/d/gpu.example.com/gpu-a17/gpu-9", "/devices/d/gpu.example.com/gpu-a17/gpu-0"),
    ("/drivers/gpu.exmaple.com", "/drivers/gpu.example.com"),
)
#: the address of something that is not there -> what the page calls it
MISSED = {
    "/devices/d/gpu.example.com/gpu-a17/gpu-9": "device gpu-a17/gpu-9",
    "/workloads/jobs/team-a/fit": "Job team-a/fit",
    "/workloads/none/team-a/fit": "",
    "/autoscalers/team-a/fit": "autoscaler team-a/fit",
    "/yaml/pods/fit?ns=team-a": "pod team-a/fit",
    "/drivers/none": "driver none",
    "/incidents/none": "incident none",
    "/roles/none": "role none",
    "/views/none": "saved view none",
}


def test_a_page_that_is_not_found_offers_near_names(cluster: Cluster, admin: Client) -> None:
    cluster.create(make_node("gpu-a17"))
    cluster.create(make_pod("train-7f9c-abcde", namespace="team-a"))
    cluster.create(make_claim("shared", namespace="team-a"))
    cluster.create(make_template("one-gpu", namespace="team-a"))
    cluster.create(make_deployment("web", replicas=0))
    cluster.create(make_slice(node="gpu-a17", driver="gpu.example.com", devices=[make_device("gpu-0")]))
    eve = signed_in("eve", "namespace:team-c")
    for path, offered in NEAR:
        answer = admin.get(path)
        assert answer.status_code == 404, path
        assert f'href="{offered}"' in answer.content.decode(), path
        if "/team-a" in offered or "/default/" in offered:
            assert f'href="{offered}"' not in eve.get(path).content.decode(), path
    assert 'id="near"' not in admin.get("/pods/team-a/quite-different").content.decode()


@pytest.mark.parametrize("path", MISSED)
def test_a_page_that_is_not_found_says_of_what_it_was(cluster: Cluster, admin: Client, path: str) -> None:
    answer = admin.get(path)
    assert (answer.status_code, answer.context["what"]) == (404, MISSED[path])


@pytest.mark.parametrize(
    "path", ["/nothing", "/pods/a/b/c/d", "/pods/%00/x", "/pods/team-a/" + "x" * 3000, "/ended/none", "/pods/-/%25"]
)
def test_any_other_address_is_simply_not_found(cluster: Cluster, admin: Client, path: str) -> None:
    cluster.create(make_pod("web", namespace="team-a"))
    assert admin.get(path).status_code == 404


# Keeping -------------------------------------------------------------------------------------------------------------


def test_old_records_are_pruned_and_pages_say_how_long_they_are_kept(scene: Cluster, admin: Client) -> None:
    uid = scene.get(Pod, "web", "team-a").metadata.uid
    delete("web", grace=0)
    ended_at = record().ended_at
    assert endings.prune(ended_at + endings.KEPT_FOR) == 0
    assert endings.prune(ended_at + endings.KEPT_FOR + timedelta(seconds=1)) == 1
    for path, status in (("/ended", 200), ("/pods/team-a/web", 404)):
        assert "30 days" in words(admin, path, status) or path == "/ended"
    assert admin.get(f"/ended/{uid}").status_code == 404


def test_a_namespace_that_makes_pods_without_end_shortens_its_own_history_only(
    scene: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endings, "MOST", 3)
    scene.create(make_pod("quiet", namespace="team-b"))
    scene.delete(scene.get(Pod, "quiet", "team-b"))
    for number in range(5):
        scene.create(make_pod(f"many-{number}", namespace="team-a"))
        delete(f"many-{number}", grace=0)
    assert endings.prune(scene.now) == 2
    kept = Ending.objects.order_by("pk").values_list("name", flat=True)
    assert list(kept) == ["quiet", "many-2", "many-3", "many-4"]


def test_who_deleted_something_outlives_the_audit_trail_or_is_said_to_be_unknown(scene: Cluster, admin: Client) -> None:
    delete("web", grace=0)
    assert record().author == "ann"
    scene.create(make_pod("later", namespace="team-a"))
    delete("later", grace=0)
    housekeeping.keep_audit_trail(scene.now)
    Entry.objects.all().delete()
    assert record().author == "ann"
    later = record("later")
    assert (later.author, later.reason) == ("", Reason.DELETED.value)
    assert "audit trail" in words(admin, f"/ended/{later.uid}")


def test_the_list_is_filtered_sorted_and_exported(scene: Cluster, admin: Client) -> None:
    scene.create(make_claim("data", namespace="team-a"))
    delete("data", resource=CLAIMS)
    deleted(scene)
    assert [row["Name"] for row in exported(admin, "/ended.csv?sort=name")] == ["data", "web"]
    assert [row["Name"] for row in exported(admin, "/ended.csv?state=Claims")] == ["data"]
    assert [row["By"] for row in exported(admin, "/ended.csv?by=an&q=we")] == ["ann"]
    assert exported(admin, "/ended.csv?why=Preempted") == []
    assert exported(admin, "/ended.csv?ns=team-b") == []
