"""Disruption budgets on pages: listed, edited, named by previews of drains and moves, and heeded by both."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client
from msgspec.structs import replace

from claims.controllers import disruption
from claims.kinds.disruption_budgets import PodDisruptionBudget
from claims.kinds.pods import Pod
from manciple.wire.base import OwnerReference
from scheduling.rehearsal import moving as policy
from tests.builders import make_budget, make_namespace, make_node, make_pod, make_running
from tests.dashboard import texts
from tests.dashboard.browsing import admin, linked, signed_in, viewer, words
from tests.dashboard.tools.test_manifests import opened
from tests.dashboard.workloads.test_moves import form, halves, leaving
from tests.scheduling.cluster import Cluster

__all__ = ["admin", "halves", "viewer"]

WEB = {"app": "web"}
YAML = "/yaml/poddisruptionbudgets.policy/web?ns=default"


def run(cluster: Cluster, *names: str, namespace: str = "default", node: str = "node-1") -> None:
    for name in names:
        made = cluster.create(make_pod(name, namespace=namespace, node=node, meta={"labels": WEB}))
        cluster.update(make_running(made))


def protect(cluster: Cluster, namespace: str = "default", **spec: Any) -> None:
    cluster.create(make_budget(namespace=namespace, **spec))
    disruption.sweep(cluster.now)


def test_a_namespace_lists_its_budgets_and_leads_to_their_yaml(admin: Client, viewer: Client, cluster: Cluster) -> None:
    run(cluster, "a", "b")
    protect(cluster, min_available=1)
    assert texts.BUDGET_ALLOWS("web", 1, 1) in words(viewer, "/namespaces/default")
    assert f'href="{YAML}"' in viewer.get("/namespaces/default").content.decode()
    form = opened(admin, YAML)
    form["text"] = form["text"].replace("minAvailable: 1", "maxUnavailable: 2")
    assert admin.post(YAML, form | {"act": "save"}).status_code == 302
    assert cluster.get(PodDisruptionBudget, "web").spec.max_unavailable == 2


def test_it_says_who_is_missing_or_why_it_is_not_known(viewer: Client, cluster: Cluster) -> None:
    run(cluster, "a", "b")
    protect(cluster, min_available=3)
    assert texts.BUDGET_ALLOWS_NONE("2 of 3") in words(viewer, "/namespaces/default")
    known = cluster.get(PodDisruptionBudget, "web")
    cluster.update(replace(known, spec=replace(known.spec, min_available=None, max_unavailable="10%")))
    owner = OwnerReference(api_version="example.com/v1", kind="Fleet", name="web", uid="u", controller=True)
    cluster.create(make_pod("c", node="node-1", meta={"labels": WEB, "owner_references": (owner,)}))
    disruption.sweep(cluster.now)
    text = words(viewer, "/namespaces/default")
    assert texts.BUDGET_OF_UNKNOWN_PODS("10%") in text


def test_a_drain_names_whom_a_budget_keeps_and_evicts_the_others(admin: Client, cluster: Cluster) -> None:
    cluster.create(make_node())
    run(cluster, "a", "b", "c")
    cluster.create(make_pod("free", node="node-1"))
    protect(cluster, min_available=2)
    text = words(admin, "/nodes/node-1?change=drain")
    effects = admin.get("/nodes/node-1?change=drain").context["asked"].effects
    assert [(one.pod.metadata.name, one.seconds) for one in effects.leaving] == [("a", 0), ("free", 0)]
    assert effects.staying == 2
    kept = "2 pods stay for now, as disruption budget web needs 2 ready pods and lets no more go:"
    assert f"Kept {kept} default/b , default/c" in text.replace(" ,", " ,")
    admin.post("/nodes/node-1/change", {"change": "drain"})
    page = words(admin, "/nodes/node-1")
    assert "2 pods" in page.partition("node-1 is cordoned")[2]
    assert (texts.EVICTION_REFUSED_BY_BUDGET("default/b", "web", 2, 3)) in page.replace("&#x27;", "'")
    there = {pod.metadata.name for pod in cluster.all(Pod) if pod.metadata.deletion_timestamp is None}
    assert there == {"b", "c"}


def test_a_drain_of_a_node_on_which_all_are_kept_can_be_asked_for_again(admin: Client, cluster: Cluster) -> None:
    cluster.create(make_node())
    run(cluster, "a")
    protect(cluster, min_available=1)
    admin.post("/nodes/node-1/change", {"change": "drain"})
    assert cluster.node().spec.unschedulable
    asked = admin.get("/nodes/node-1?change=drain").context["asked"]
    assert linked(asked.told) == [["default/a"]]
    assert list(asked.effects.leaving) == []
    run(cluster, "b", node="node-2")
    disruption.sweep(cluster.now)
    asked = admin.get("/nodes/node-1?change=drain").context["asked"]
    assert [one.pod.metadata.name for one in asked.effects.leaving] == ["a"]
    admin.post("/nodes/node-1/change", {"change": "drain"})
    assert cluster.pod("a").metadata.deletion_timestamp is not None


def test_a_drain_of_several_nodes_counts_on_one_budget(admin: Client, cluster: Cluster) -> None:
    for name in ("node-1", "node-2"):
        cluster.create(make_node(name))
    run(cluster, "a")
    run(cluster, "b", node="node-2")
    protect(cluster, min_available=1)
    effect = admin.get("/bulk/nodes/drain?pick=node-1&pick=node-2").context["preview"].effect
    evicted, again, kept = linked(effect.consequences)
    assert (evicted, again, kept) == (["default/a"], ["default/a"], ["default/b"])


def test_budgets_of_namespaces_that_a_person_does_not_see_are_not_named(cluster: Cluster, db: None) -> None:
    cluster.create(make_namespace("secret"))
    cluster.create(make_node())
    run(cluster, "a", namespace="secret")
    protect(cluster, "secret", min_available=1)
    stranger = signed_in("stranger", "namespace:other")
    assert stranger.get("/namespaces/secret").status_code == 404
    assert stranger.get(YAML.replace("default", "secret")).status_code == 404


# Moves ----------------------------------------------------------------------------------------------------------------


def tighten(cluster: Cluster, ready: int) -> None:
    known = cluster.get(PodDisruptionBudget, "web")
    cluster.update(replace(known, spec=replace(known.spec, min_available=ready)))
    disruption.sweep(cluster.now)


@pytest.fixture
def protected(halves: Cluster) -> Cluster:
    """The pods that hold devices are ready, and a budget lets two of the three go."""
    for at in (1, 2, 3):
        pod = halves.pod(f"held-{at}")
        halves.update(make_running(replace(pod, metadata=replace(pod.metadata, labels=WEB))))
    protect(halves, min_available=1)
    return halves


def test_a_move_is_proposed_with_its_budget_and_counts_as_its_disruption(protected: Cluster, admin: Client) -> None:
    proposed = words(admin, "/pods/default/large/move")
    assert texts.CREATED_AGAIN_WITHIN_BUDGET("web", "web", 2, "default/held-") in proposed
    admin.post("/pods/default/large/move", form(admin))
    (gone,) = leaving(protected)
    status = protected.get(PodDisruptionBudget, "web").status
    assert (status.disruptions_allowed, list(status.disrupted_pods)) == (1, [gone])


def test_a_move_that_the_budget_refuses_by_then_is_neither_made_nor_proposed(protected: Cluster, admin: Client) -> None:
    sent = form(admin)
    tighten(protected, 3)
    answer = admin.post("/pods/default/large/move", sent)
    assert re.search(texts.BUDGET_STOPS_MOVE(r".*\bweb\b.*\b3\b"), answer.content.decode())
    assert leaving(protected) == []
    effect = admin.get("/pods/default/large/move").context["preview"].effect
    assert effect.refused
    assert effect.consequences == ()


@pytest.mark.parametrize(("ready", "moved"), [(3, 0), (2, 1)])
def test_the_policy_goes_through_the_same_door(protected: Cluster, settings: Any, ready: int, moved: int) -> None:
    settings.SCHEDULER_DEFRAGMENTATION = True
    tighten(protected, ready)
    protected.later(3600)
    assert policy.reconcile(protected.now) == moved
    assert list(protected.get(PodDisruptionBudget, "web").status.disrupted_pods) == leaving(protected)
    assert len(leaving(protected)) == moved
