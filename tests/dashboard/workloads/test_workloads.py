"""The pages of workloads: the list, one workload, and what people do with it; Chromium looks in tests/e2e."""

from __future__ import annotations

import csv
import io

import pytest
from django.test import Client
from msgspec.structs import replace

from claims.causes.messages import brief
from claims.kinds.pods import Pod
from dashboard.workloads.workloads import queries
from tests.builders import make_node, make_pod
from tests.dashboard import texts
from tests.dashboard.browsing import admin, member, plain, signed_in, undo, viewer, words
from tests.dashboard.workload_scene import deploys, let_run, work
from tests.scheduling.cluster import Cluster
from tests.workloads.cluster import make_daemon_set, make_replica_set, make_stateful_set
from workloads.kinds.deployments import Deployment
from workloads.kinds.replica_sets import ReplicaSet
from workloads.models import Workload

__all__ = ["admin", "viewer"]

WEB = "/workloads/deployments/default/web"


def listed(client: Client, query: str = "") -> list[dict[str, str]]:
    text = client.get(f"/workloads.csv{query}").content.decode()
    return list(csv.DictReader(io.StringIO(text, newline="")))


def stuck(cluster: Cluster) -> None:
    """Two GPUs, and a Deployment whose three pods want one each: one waits."""
    cluster.with_gpus("node-1", each=2)
    deploys(cluster, replicas=3, gpus=1)
    let_run(cluster)


def set_image(cluster: Cluster, image: str) -> None:
    now = cluster.get(Deployment, "web")
    template, (container,) = now.spec.template, now.spec.template.spec.containers
    changed = replace(template, spec=replace(template.spec, containers=(replace(container, image=image),)))
    cluster.update(replace(now, spec=replace(now.spec, template=changed)))
    work(cluster)


# The list ------------------------------------------------------------------------------------------------------------


def test_a_deployment_stands_for_its_replica_sets_with_its_devices_and_why_it_is_not_ready(
    admin: Client, cluster: Cluster
) -> None:
    stuck(cluster)
    cluster.create(make_daemon_set("agents"))
    work(cluster)
    (waiting,) = (pod for pod in cluster.all(Pod) if not pod.spec.node_name)
    rows = {row["Workload"]: row for row in listed(admin)}
    assert {name: (row["Kind"], row["State"]) for name, row in rows.items()} == {
        "web": ("Deployment", "Starting"),
        "agents": ("DaemonSet", "Not ready" if rows["agents"]["Ready"] != "0/0" else "No pods"),
    }
    assert (rows["web"]["Ready"], rows["web"]["Devices"]) == ("2/3", "2")
    why = brief(cluster.cause(waiting.metadata.name), names_claim=False)
    assert rows["web"]["Why not ready"] == f"1 pod waits: {plain(why)}"
    assert [row["Kind"] for row in listed(admin, "?kind=ReplicaSet")] == ["ReplicaSet"]


def test_the_list_is_filtered_by_kind_namespace_state_and_name(admin: Client, cluster: Cluster) -> None:
    deploys(cluster, "web", replicas=1)
    deploys(cluster, "empty", replicas=0)
    cluster.create(make_replica_set("lone", replicas=1))
    work(cluster)

    def names(query: str) -> set[str]:
        return {row["Workload"] for row in listed(admin, query)}

    assert names("") == {"web", "empty", "lone"}
    assert names("?kind=Deployment") == {"web", "empty"}
    assert names("?state=No+pods") == {"empty"}
    assert names("?q=on") == {"lone"}
    assert names("?ns=other") == set()
    assert names("?kind=Nonsense&state=x") == {"web", "empty", "lone"}, "what is not understood is ignored"
    for sort in ("name", "-state", "kind", "ready", "-devices", "age", "namespace", "nonsense"):
        assert names(f"?sort={sort}") == {"web", "empty", "lone"}
    assert [row["Workload"] for row in listed(admin, "?sort=-name&kind=Deployment")] == ["web", "empty"]


def test_whoever_may_not_list_a_kind_does_not_see_it(cluster: Cluster, admin: Client) -> None:
    deploys(cluster, replicas=1)
    assert listed(member("mia", "default"))[0]["Workload"] == "web"
    sam = signed_in("sam", "namespace:other")
    assert listed(sam) == []
    assert sam.get(WEB).status_code == 404
    for path in (f"{WEB}/scale", f"{WEB}/delete"):
        assert sam.get(path).status_code == 404, path
        assert sam.post(path, {"pods": "5", "uid": "x"}).status_code == 404, path
    assert WEB not in sam.get("/find?q=web").content.decode()
    assert WEB in admin.get("/find?q=web").content.decode()


def test_of_several_namespaces_a_viewer_of_one_sees_its_workloads_and_whoever_has_no_role_none(
    cluster: Cluster,
) -> None:
    deploys(cluster, replicas=1)
    other = make_replica_set("theirs", replicas=0)
    cluster.create(replace(other, metadata=replace(other.metadata, namespace="other")))
    work(cluster)
    mia = member("mia", "other")
    assert [(row["Workload"], row["Namespace"]) for row in listed(mia)] == [("theirs", "other")]
    assert mia.get("/workloads/replicasets/other/theirs").status_code == 200
    assert mia.get(WEB).status_code == 404
    stranger = signed_in("stranger", "nobodies")
    for path in ("/workloads", "/workloads.csv", WEB, f"{WEB}/scale", "/workloads/replicasets/other/theirs"):
        assert stranger.get(path).status_code == 403, path
        assert "theirs" not in stranger.get(path).content.decode().replace(path, ""), path


def test_a_viewer_reads_and_changes_nothing(viewer: Client, cluster: Cluster) -> None:
    made = deploys(cluster, replicas=1)
    page = viewer.get(WEB).context["page"]
    assert page.acts == []
    for act in ("scale", "restart", "pause", "delete"):
        assert viewer.get(f"{WEB}/{act}").status_code == 403, act
        assert viewer.post(f"{WEB}/{act}", {"uid": made.metadata.uid, "pods": "3"}).status_code == 403, act
    assert cluster.get(Deployment, "web").spec.replicas == 1


# One workload --------------------------------------------------------------------------------------------------------


def test_a_workload_says_what_its_waiting_pod_says_and_shows_its_pods(admin: Client, cluster: Cluster) -> None:
    stuck(cluster)
    (waiting,) = (pod for pod in cluster.all(Pod) if not pod.spec.node_name)
    page = admin.get(WEB).context["page"]
    verdict = admin.get(f"/pods/default/{waiting.metadata.name}").context["verdict"]
    assert (page.why.verdict.title, page.why.of[0]) == (verdict.title, waiting.metadata.uid)
    assert page.why.verdict.steps == verdict.steps
    assert (page.ready_words, page.devices, page.number, page.more) == ("2 of 3 pods ready", 2, 3, 0)
    assert dict(page.counts) == {"Waiting": 1, "Running": 2}
    assert page.shown[0].line.name == waiting.metadata.name, "what waits comes first"
    assert sorted([name for name, _ in one.devices] for one in page.shown[1:]) == [["gpu-0"], ["gpu-1"]]


def test_more_pods_than_a_page_shows_are_a_list_of_their_own(
    admin: Client, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "SHOWN", 2)
    deploys(cluster, replicas=5)
    cluster.create(make_pod("other"))
    page = admin.get(WEB).context["page"]
    assert (len(page.shown), page.more) == (2, 3)
    lines = admin.get(page.pods_url).context["table"].rows
    assert len(lines) == 5
    assert {line.owner.title for line in lines} == {"Deployment web"}


def test_pods_claims_find_timeline_and_namespace_lead_to_the_deployment(admin: Client, cluster: Cluster) -> None:
    stuck(cluster)
    running = next(pod for pod in cluster.all(Pod) if pod.spec.node_name)
    claim = cluster.generated_claim(running.metadata.name)
    paths = ("/pods", f"/pods/default/{running.metadata.name}", f"/claims/default/{claim.metadata.name}")
    for path in (*paths, "/find?q=web", "/timeline?view=table"):
        assert f'href="{WEB}"' in admin.get(path).content.decode(), path
    assert "1 starting" in words(admin, "/namespaces/default")


def test_revisions_are_listed_with_what_changed_and_can_be_taken_back(admin: Client, cluster: Cluster) -> None:
    made = deploys(cluster, replicas=1)
    set_image(cluster, "app:2")
    newest, oldest = admin.get(f"{WEB}?tab=rollout").context["page"].revisions
    assert (newest.number, newest.current, oldest.number, oldest.current) == (2, True, 1, False)
    assert {line.text.strip() for line in newest.lines if line.kind} == {"image: app:1", "image: app:2"}
    assert admin.get(f"{WEB}/undo?to=7").status_code == 404
    assert admin.get(f"{WEB}/undo?to=2").context["preview"].effect.refused
    preview = admin.get(f"{WEB}/undo?to=1").context["preview"]
    assert "app:1" in str(preview.effect.differences)
    answer = admin.post(f"{WEB}/undo", {"to": "1", "uid": made.metadata.uid})
    assert answer["Location"] == WEB
    assert cluster.get(Deployment, "web").spec.template.spec.containers[0].image == "app:1"
    work(cluster)
    assert admin.get(f"{WEB}?tab=rollout").context["page"].revisions[0].number == 3


@pytest.mark.parametrize("plural", ["daemonsets", "statefulsets"])
def test_revisions_of_other_kinds_are_taken_back_too(plural: str, admin: Client, cluster: Cluster) -> None:
    cluster.create(make_node("node-1"))
    made = cluster.create(make_daemon_set("web") if plural == "daemonsets" else make_stateful_set("web"))
    work(cluster)
    path = f"/workloads/{plural}/default/web"
    assert [line.number for line in admin.get(f"{path}?tab=rollout").context["page"].revisions] == [1]
    admin.post(f"{path}/restart", {"uid": made.metadata.uid})
    work(cluster)
    newest, oldest = admin.get(f"{path}?tab=rollout").context["page"].revisions
    assert (newest.number, newest.current, oldest.current) == (2, True, False)
    admin.post(f"{path}/undo", {"to": "1", "uid": made.metadata.uid})
    work(cluster)
    (newest, *_) = admin.get(f"{path}?tab=rollout").context["page"].revisions
    assert (newest.number, newest.current) == (3, True)


def test_events_and_history_are_tabs(admin: Client, cluster: Cluster) -> None:
    deploys(cluster, replicas=1)
    moments = admin.get(f"{WEB}?tab=events").context["page"].moments
    assert "ScalingReplicaSet" in {one.reason for one in moments}
    assert admin.get(f"{WEB}?tab=history").context["page"].history is not None
    assert admin.get("/workloads/deployments/default/none").status_code == 404
    assert admin.get("/workloads/nonsense/default/web").status_code == 404


# Acts ----------------------------------------------------------------------------------------------------------------


def acts(client: Client) -> list[str]:
    return [key for key, _, _ in client.get(WEB).context["page"].acts]


def test_scaling_says_where_the_next_pod_would_go_and_can_be_undone(admin: Client, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=2)
    made = deploys(cluster, replicas=1, gpus=1)
    preview = admin.get(f"{WEB}/scale").context["preview"]
    assert (preview.asked, preview.effect, preview.complaint) == ("1", None, "")
    for wrong in ("-1", "many", "1.5", "99999999999"):
        answer = admin.get(f"{WEB}/scale?pods={wrong}")
        assert (answer.status_code, bool(answer.context["preview"].complaint)) == (422, True), wrong
        assert admin.post(f"{WEB}/scale", {"pods": wrong, "uid": made.metadata.uid}).status_code == 422
    assert admin.get(f"{WEB}/scale?pods=1").context["preview"].effect.refused
    assert "node-1, with gpu-1" in words(admin, f"{WEB}/scale?pods=2")
    admin.post(f"{WEB}/scale", {"pods": "2", "uid": made.metadata.uid})
    assert cluster.get(Deployment, "web").spec.replicas == 2
    work(cluster)
    assert plain(texts.NEXT_POD_WOULD_WAIT) in words(admin, f"{WEB}/scale?pods=3")
    undo(admin, WEB)
    assert cluster.get(Deployment, "web").spec.replicas == 1


def test_another_workload_of_the_name_is_left_alone(admin: Client, cluster: Cluster) -> None:
    deploys(cluster, replicas=1)
    answer = admin.post(f"{WEB}/scale", {"pods": "2", "uid": "of-an-older-one"})
    assert (answer.status_code, bool(answer.context["preview"].error)) == (409, True)
    assert cluster.get(Deployment, "web").spec.replicas == 1


def test_pausing_restarting_and_resuming(admin: Client, cluster: Cluster) -> None:
    uid = {"uid": deploys(cluster, replicas=1).metadata.uid}
    assert acts(admin) == ["scale", "restart", "pause", "delete"]
    admin.post(f"{WEB}/pause", uid)
    work(cluster)
    assert admin.get(WEB).context["page"].summary.state == "Paused"
    assert acts(admin) == ["scale", "resume", "delete"]
    assert admin.get(f"{WEB}/pause").context["preview"].effect.refused == "it is paused"
    assert admin.post(f"{WEB}/pause", uid).status_code == 409
    admin.post(f"{WEB}/resume", uid)
    admin.post(f"{WEB}/restart", uid)
    work(cluster)
    assert len(cluster.all(ReplicaSet)) == 2
    assert admin.get(f"{WEB}?tab=rollout").context["page"].revisions[0].number == 2


def test_deleting_says_which_pods_end_and_what_comes_free(admin: Client, cluster: Cluster) -> None:
    stuck(cluster)
    made = cluster.get(Deployment, "web")
    effect = admin.get(f"{WEB}/delete").context["preview"].effect
    by_term = {one.term: " ".join(one.sentences) for one in effect.consequences}
    assert by_term["Pods"].startswith("3 pods end: web-")
    assert by_term["Frees"].startswith("2 devices")
    assert "After" not in by_term, "nobody makes them again"
    answer = admin.post(f"{WEB}/delete", {"uid": made.metadata.uid})
    assert answer["Location"] == "/workloads"
    work(cluster)
    assert cluster.find(Deployment, "web") is None
    assert not Workload.objects.exists()


def test_of_very_many_pods_only_their_number_is_told(
    admin: Client, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dashboard.workloads.workloads.actions.REHEARSED", 2)
    deploys(cluster, replicas=6)
    effect = admin.get(f"{WEB}/delete").context["preview"].effect
    (line,) = effect.consequences
    assert line.sentences[0].startswith("6 pods end: ")
    assert "and 4 more" in line.sentences[0]
