"""The claim pages as the server draws them; Chromium looks at them in tests/e2e."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.test import Client
from msgspec import structs

from claims.causes.messages import brief
from dashboard.workloads.claims import queries
from inventory.kinds.nodes import NodeCondition
from manciple.wire.base import ObjectMeta, ObjectReference
from manciple.wire.machinery import Event
from tests.builders import make_claim, make_request, make_template
from tests.dashboard import texts
from tests.dashboard.browsing import plain, signed_in, words
from tests.dashboard.claim_scene import is_held_by_a_finalizer, later, pages, runs, starts
from tests.scheduling.cluster import Cluster

__all__ = ["later", "pages"]


# The list -----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("later")
def test_the_list_begins_with_what_is_stuck_then_what_waits(pages: Client, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=4)
    runs(cluster, "a-runs", count=2)
    starts(cluster, "a-runs")
    runs(cluster, "b-starts")
    runs(cluster, "c-lost")
    runs(cluster, "d-waits")
    cluster.delete(cluster.pod("c-lost"))
    text = words(pages, "/claims")
    assert texts.CLAIMS_SUMMARY("3 claims", "4 devices", 1, 1) in text
    assert texts.CLAIM_STATE_FILTERS(4, 1, 1, 1, 1) in text
    rows = [text.index(one) for one in ("c-lost default", "d-waits default", "b-starts default", "a-runs default")]
    assert rows == sorted(rows)
    assert texts.POD_GONE("c-lost") in text
    assert plain(brief(cluster.cause("d-waits"), names_claim=False)) in text
    cluster.settle()


FILTERS = {
    "?ns=other": {"theirs"},
    "?ns=default": {"mine", "waits"},
    "?state=pending": {"theirs", "waits"},
    "?state=preparing": {"mine"},
    "?q=node-1": {"mine"},
    "?q=OTHER": {"theirs"},
    "?class=gpu.example.com&state=pending": {"theirs", "waits"},
    "?class=nothing": set(),
    "?state=nonsense&page=x": {"mine", "theirs", "waits"},
}


def test_filters_stand_in_the_address(pages: Client, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=1)
    runs(cluster, "mine")
    runs(cluster, "waits")
    cluster.create(make_claim("theirs", namespace="other"))
    for query, expected in FILTERS.items():
        shown = pages.get(f"/claims{query}").content.decode()
        assert set(re.findall(r'data-own="/claims/\w+/(\w+)"', shown)) == expected, query


def test_long_lists_are_paged(pages: Client, cluster: Cluster) -> None:
    for number in range(101):
        cluster.create(make_claim(f"claim-{number}"))
    assert "1 to 100 of 101" in words(pages, "/claims")
    answer = pages.get("/claims?page=2&ns=default").content.decode()
    assert "101 to 101 of 101" in answer
    assert 'rel="prev" href="/claims?ns=default"' in answer
    assert "101 to 101 of 101" in words(pages, "/claims?page=99")


# One claim ----------------------------------------------------------------------------------------------------------


def test_a_claim_that_waits_says_why_and_what_next(pages: Client, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=1)
    runs(cluster, "first")
    runs(cluster, "second")
    text, cause = words(pages, "/claims/default/second"), cluster.cause("second")
    assert cause is not None
    assert plain(brief(cause, names_claim=False))[1:] in text
    verdict = pages.get("/pods/default/second").context["verdict"]
    assert pages.get("/claims/default/second").context["sheet"].advice.next_step == verdict.next_step
    assert verdict.next_step.startswith("Wait until")
    assert texts.WAITED_FOR_BY("second") in text
    shown = pages.get("/claims/default/second").content.decode()
    assert 'href="/what-if?claim=default/second"' in shown
    assert 'href="/pods/default/second"' in shown


def test_a_claim_that_no_pod_uses_says_that_first(pages: Client, cluster: Cluster) -> None:
    """The list and the page say the same of it, though a pod would wait, too."""
    cluster.with_gpus("node-1", each=1)
    cluster.create(make_claim("early", requests=[make_request(count=2)]))
    assert queries.NO_POD_YET in words(pages, "/claims")
    page = words(pages, "/claims/default/early")
    assert f"{queries.NO_POD_YET}. {texts.POD_WOULD_WAIT}" in page
    assert texts.IT_WAITS not in page


def test_a_claim_shows_what_it_got_and_the_way_to_the_cdi_file(pages: Client, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=2)
    claim = runs(cluster, "web", count=2)
    runs(cluster, "waits")
    shown = pages.get("/claims/default/web").content.decode()
    assert re.search(r'<a class="ent"\s+href="/devices/d/gpu.example.com/node-1/gpu-0">node-1 / gpu-0</a>', shown)
    assert f"k8s.gpu.example.com-claim_{claim.metadata.uid}.json" in shown
    assert 'href="/nodes/node-1"' in shown
    text = words(pages, "/claims/default/web")
    assert "Allocated gpu-0, gpu-1 of node-1" in text
    *_, reserved = pages.get("/claims/default/web").context["sheet"].steps
    assert "web" in reserved.text
    assert reserved.text in text
    assert texts.WAITERS_OF_CLAIM("waits", "gpu.example.com") in text


def test_the_sheet_stands_beside_the_list_and_the_object_is_shown_as_yaml(pages: Client, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=1)
    runs(cluster, "web")
    text = words(pages, "/claims?at=default/web")
    assert texts.CLAIM_TO_FILE_HEADING not in text
    assert texts.CLAIM_TO_FILE("web", "web", "node-1", "gpu-0", 1) in text
    assert "default/nothing not found" in words(pages, "/claims?at=default/nothing")
    assert "apiVersion: resource.k8s.io/v1 kind: ResourceClaim" in words(pages, "/claims/default/web?tab=yaml")


def test_a_claim_for_a_pod_that_is_gone_is_called_out_after_a_moment(
    pages: Client, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.with_gpus("node-1", each=2)
    runs(cluster, "web", count=2)
    cluster.delete(cluster.pod("web"))
    assert "Stuck 0" in words(pages, "/claims")
    assert "Releasing" in words(pages, "/claims/default/web")
    monkeypatch.setattr(queries, "MOMENT", timedelta(0))
    text = words(pages, "/claims/default/web")
    assert texts.LEAKED("2 devices") in text
    assert "Pod, gone web" in text
    assert "Not found." in text
    assert texts.NEXT_CHECK_WORKERS in text
    cluster.settle()
    assert "Pending" in words(pages, "/claims/default/web")


def test_what_the_node_says_of_a_pod_that_does_not_end_is_told(
    pages: Client, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.with_gpus("node-1", each=1)
    runs(cluster, "web")
    pod = cluster.pod("web")
    event = Event(
        api_version="v1", kind="Event", metadata=ObjectMeta(name="web.1", namespace="default"),
        involved_object=ObjectReference(kind="Pod", namespace="default", name="web", uid=pod.metadata.uid),
        reason="FailedUnprepareDynamicResources", message="gpu.example.com: device lost", type="Warning", count=219,
        first_timestamp="2026-01-01T00:00:00Z", last_timestamp="2026-01-01T01:00:00Z",
    )  # fmt: skip
    cluster.create(event)
    cluster.delete(pod, grace=1)
    monkeypatch.setattr(queries, "PATIENCE", timedelta(minutes=-1))
    text = words(pages, "/claims/default/web")
    assert texts.STUCK_IN_RELEASE in text
    assert texts.NODE_SAYS("gpu.example.com: device lost", 219) in text
    assert texts.NEXT_FIX_ON_NODE("node-1") in text


def test_a_silent_node_or_a_foreign_finalizer_that_holds_a_claim_is_named(pages: Client, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=1)
    runs(cluster, "web")
    node = cluster.node()
    silent = NodeCondition(type="Ready", status="Unknown")
    cluster.update(structs.replace(node, status=structs.replace(node.status, conditions=(silent,))))
    assert texts.ON_AN_UNREACHABLE_NODE("node-1") in words(pages, "/claims/default/web")
    is_held_by_a_finalizer(cluster, "held")
    text = words(pages, "/claims/default/held")
    assert texts.HELD_BY_FINALIZER("example.org/report") in text
    assert texts.NEXT_SEE_FINALIZERS_CONTROLLER in text


# Who sees what -------------------------------------------------------------------------------------------------------


def test_a_person_of_one_namespace_learns_nothing_of_others(pages: Client, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=1)
    cluster.create(make_claim("secret", namespace="other"))
    cluster.create(make_template("workload", namespace="other"))
    runs(cluster, "mine")
    theirs = signed_in("omar", "namespace:other")
    assert "mine" not in words(theirs, "/claims")
    assert "secret" in words(theirs, "/claims?state=pending")
    assert "default" not in words(theirs, "/claims")
    assert theirs.get("/claims?at=default/mine").context["sheet"] is None
    assert theirs.get("/claims/default/mine").status_code == 404
    mine = signed_in("mia", "namespace:default")
    assert "secret" not in words(mine, "/claims?q=secret")
    assert "workload" not in words(mine, "/templates")
    assert mine.get("/templates/other/workload").status_code == 404
    assert mine.get("/claims/default/mine").context["sheet"].rivals == [], "who waits is of another namespace"
