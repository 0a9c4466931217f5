"""/api/inventory/: what it answers, to whom, in which order and pages; and the documentation of the APIs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from claims.causes.messages import message
from manciple.access.authentication import tokens
from manciple.access.kinds.roles import PolicyRule
from manciple.wire.identity import VIEWERS
from tests.builders import CLASS, make_namespace, make_pod, make_quota, make_request, make_template
from tests.dashboard.browsing import admin, member, signed_in, viewer
from tests.dashboard.people.test_roles import bind, make_role, user
from tests.scheduling.cluster import Cluster

__all__ = ["admin", "viewer"]

ROOT = "/api/inventory/"
DEVICES = f"{CLASS}.deviceclass.resource.k8s.io/devices"


@pytest.fixture
def lab(cluster: Cluster) -> Cluster:
    """Three nodes with a GPU each. Two pods of the lab hold one each, a third waits; a pod elsewhere holds the last."""
    cluster.with_gpus("node-1", "node-2", "node-3", each=1)
    for namespace in ("lab", "other"):
        cluster.create(make_namespace(namespace))
        cluster.create(make_template("one-gpu", namespace=namespace, requests=[make_request()]))
    cluster.create(make_quota({DEVICES: "2", "pods": "8"}, namespace="lab"))
    for name in ("first", "second", "late"):
        cluster.create(make_pod(name, namespace="lab", templates={"gpu": "one-gpu"}))
        cluster.settle()
    cluster.create(make_pod("stranger", namespace="other", templates={"gpu": "one-gpu"}))
    cluster.settle()
    return cluster


def get(client: Client, path: str, status: int = 200, **query: Any) -> Any:
    answer = client.get(f"{ROOT}{path}", query, headers={"Accept": "application/json"})
    assert answer.status_code == status, answer.content
    return json.loads(answer.content)


def test_the_root_names_each_resource(viewer: Client, cluster: Cluster) -> None:
    assert set(get(viewer, "")) == {"pools", "devices", "classes", "claims", "pods", "quotas", "nodes"}


def test_a_device_says_who_holds_it_and_how_many_claims_of_hidden_namespaces_do(viewer: Client, lab: Cluster) -> None:
    rows = get(viewer, "devices/")["results"]
    assert {row["state"] for row in rows} == {"preparing"}
    assert {holder["namespace"] for row in rows for holder in row["holders"]} == {"lab", "other"}
    assert {tuple(holder["pods"]) for row in rows for holder in row["holders"]} == {
        ("first",),
        ("second",),
        ("stranger",),
    }
    seen = get(member("mia", "lab"), "devices/")["results"]
    assert sorted((len(row["holders"]), row["hidden_holders"]) for row in seen) == [(0, 1), (1, 0), (1, 0)]


def test_a_device_and_a_pool_are_found_by_their_paths(viewer: Client, lab: Cluster) -> None:
    (row, *_), (pool, *_) = get(viewer, "devices/")["results"], get(viewer, "pools/")["results"]
    assert get(viewer, f"devices/{row['driver']}/{row['pool']}/{row['name']}/") == row
    assert get(viewer, f"pools/{pool['driver']}/{pool['name']}/") == pool
    get(viewer, f"devices/{row['driver']}/{row['pool']}/none/", 404)
    get(viewer, "pools/nobody/nothing/", 404)


#: (list, filters, rows that they leave)
FILTERED: list[tuple[str, dict[str, Any], int]] = [
    ("devices/", {"node": "node-2"}, 1),
    ("devices/", {"held": "false"}, 0),
    ("devices/", {"device_class": CLASS}, 3),
    ("devices/", {"device_class": "another"}, 0),
    ("pools/", {"complete": "true"}, 3),
    ("nodes/", {"ready": "true", "name": "node-1"}, 1),
    ("claims/", {"namespace": "lab", "allocated": "true"}, 2),
    ("claims/", {"node": "node-2"}, 1),
    ("claims/", {"device_class": CLASS}, 3),
    ("pods/", {"waiting": "true"}, 1),
    ("quotas/", {"used_at_least": "1"}, 1),
    ("quotas/", {"resource": "pods", "used_at_least": "1"}, 0),  # the limit that is full is another
    ("quotas/", {"resource": "pods", "used_at_least": "0.3"}, 1),
    ("claims/", {"device_class": CLASS, "node": "node-2"}, 1),
    ("claims/", {"device_class": "another", "node": "node-2"}, 0),
]  # fmt: skip


def test_lists_are_filtered(viewer: Client, lab: Cluster) -> None:
    assert [(path, query, get(viewer, path, **query)["count"]) for path, query, _ in FILTERED] == FILTERED


def test_lists_come_in_pages_and_in_the_order_that_is_asked_for(viewer: Client, lab: Cluster) -> None:
    first = get(viewer, "devices/", page_size=2)
    assert (first["count"], len(first["results"])) == (3, 2)
    assert len(get(viewer, "devices/", page_size=2, page=2)["results"]) == 1
    named = [row["name"] for row in get(viewer, "pods/", ordering="-name")["results"]]
    assert named == sorted(named, reverse=True)
    assert len(get(viewer, "devices/", page_size=10**9)["results"]) == 3


@pytest.mark.parametrize("ordering", ["phase", "-phase"])
def test_no_page_repeats_or_skips_a_row_whatever_the_order(viewer: Client, lab: Cluster, ordering: str) -> None:
    with CaptureQueriesContext(connection) as queries:
        pages = [get(viewer, "pods/", ordering=ordering, page_size=1, page=page)["results"] for page in (1, 2, 3, 4)]
    assert {row["name"] for page in pages for row in page} == {"first", "second", "late", "stranger"}
    paged = [query["sql"] for query in queries if '"phase"' in query["sql"] and "ORDER BY" in query["sql"]]
    assert paged
    assert all('"uid"' in sql.partition("ORDER BY")[2] for sql in paged)


#: Moments that are dates where they are written, and none in UTC.
@pytest.mark.parametrize("moment", ["yesterday", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:00"])
def test_a_wrong_filter_is_an_error_that_names_it(viewer: Client, moment: str) -> None:
    assert "created_after" in get(viewer, "claims/", 400, created_after=moment)


@pytest.mark.parametrize(
    "path", ["pods/lab/%00/", "nodes/%00/", "classes/%00/", "devices/a/b/%00/", "pools/a/b/?node=%00", "pods/?name=%00"]
)
def test_null_characters_are_refused_on_every_database(viewer: Client, path: str) -> None:
    get(viewer, path, 400)


def test_filters_by_parts_join_nothing(viewer: Client, lab: Cluster) -> None:
    """Each joined filter would multiply a claim by its devices once more."""
    with CaptureQueriesContext(connection) as queries:
        assert get(viewer, "claims/", device_class=CLASS, driver="gpu.example.com", node="node-2")["count"] <= 1
        get(viewer, "quotas/", resource="pods", used_at_least="0")
    filtered = [query["sql"] for query in queries if "EXISTS" in query["sql"]]
    assert filtered
    assert not [sql for sql in filtered if "JOIN" in sql or "DISTINCT" in sql]


def test_a_claim_has_its_devices_and_its_users(viewer: Client, lab: Cluster) -> None:
    (row,) = (one for one in get(viewer, "claims/")["results"] if one["namespace"] == "other")
    assert [device["device_class"] for device in row["devices"]] == [CLASS]
    assert [user["name"] for user in row["reserved_for"]] == ["stranger"]
    assert get(viewer, f"claims/other/{row['name']}/") == row


def test_a_waiting_pod_says_what_it_waits_for_and_is_explained(viewer: Client, lab: Cluster) -> None:
    row = get(viewer, "pods/lab/late/")
    cause = lab.cause("late")
    assert cause is not None
    assert row["waits_for"] == message(cause)
    assert get(viewer, "pods/", waiting="true")["results"] == [row]
    assert get(viewer, "pods/lab/late/explain/")["kind"] == "Explanation"
    assert get(viewer, "pods/lab/first/")["waits_for"] == ""


def test_a_quota_says_what_is_used_of_each_limit(viewer: Client, lab: Cluster) -> None:
    (quota,) = get(viewer, "quotas/")["results"]
    limits = {limit["resource"]: (limit["used"], limit["hard"], limit["fraction"]) for limit in quota["limits"]}
    assert limits == {DEVICES: ("2", "2", 1.0), "pods": ("3", "8", 0.375)}


def test_nobody_reads_more_than_the_kubernetes_api_would_show_them(lab: Cluster) -> None:
    mia = member("mia", "lab")
    assert {row["namespace"] for row in get(mia, "claims/")["results"]} == {"lab"}
    assert {row["namespace"] for row in get(mia, "pods/")["results"]} == {"lab"}
    get(mia, "pods/other/stranger/", 404)
    get(mia, "pods/other/stranger/explain/", 404)
    other = member("otto", "other")
    assert get(other, "quotas/")["results"] == []
    nobody = signed_in("nobody", "lost")
    assert get(nobody, "claims/")["count"] == 0


def test_an_explanation_takes_the_right_to_the_subresource(lab: Cluster) -> None:
    """As in the Kubernetes API: lists do not include explanations, which name nodes."""
    make_role("lists", "lab", PolicyRule(verbs=("list",), api_groups=("", "resource.k8s.io"), resources=("*",)))
    bind("lists", "lab", user("lisa"), to="Role")
    lisa = signed_in("lisa", "lost")
    claim = get(lisa, "claims/", namespace="lab")["results"][0]["name"]
    get(lisa, "pods/lab/late/explain/", 403)
    get(lisa, f"claims/lab/{claim}/explain/", 403)
    get(member("mia", "lab"), f"claims/lab/{claim}/explain/")


def test_without_a_session_or_a_token_nothing_is_shown(lab: Cluster) -> None:
    for path in ("", "devices/", "claims/", "pods/lab/late/explain/", "schema/"):
        assert set(get(Client(), path, 401)) == {"detail"}
    answer = Client().get(f"{ROOT}devices/", headers={"Authorization": "Bearer wrong"})
    assert answer.status_code == 401


def test_an_address_without_the_final_slash_leads_to_the_one_with_it(viewer: Client, lab: Cluster) -> None:
    for path in ("pods", "pods/lab/late", "pods/lab/late/explain", "devices", "schema"):
        answer = viewer.get(f"{ROOT}{path}?page=1&name=a%2Fb")
        assert (answer.status_code, answer.headers["Location"]) == (301, f"{ROOT}{path}/?page=1&name=a%2Fb")
        assert viewer.get(f"{ROOT}{path}", follow=True, headers={"Accept": "application/json"}).status_code == 200, path


def test_what_does_not_exist_is_an_answer_for_programs(viewer: Client, lab: Cluster) -> None:
    for path in ("nowhere/", "pods/lab/late/nothing/", "nodes/a/b/"):
        assert set(get(viewer, path, 404)) == {"detail"}, path


@pytest.mark.parametrize("method", ["post", "put", "patch", "delete"])
def test_nothing_is_written_here(admin: Client, method: str) -> None:
    assert getattr(admin, method)(f"{ROOT}devices/").status_code == 405


def test_a_browser_gets_pages_to_click_through(viewer: Client, lab: Cluster) -> None:
    answer = viewer.get(f"{ROOT}devices/", headers={"Accept": "text/html"})
    assert answer.status_code == 200
    assert "text/html" in answer.headers["Content-Type"]
    assert "Device List" in answer.content.decode()


def test_a_token_gets_the_same_pages(lab: Cluster) -> None:
    """Its user is no row of Django's."""
    headers = {"Authorization": f"Bearer {tokens.issue('vera', [VIEWERS])}", "Accept": "text/html"}
    answer = Client().get(f"{ROOT}pods/", headers=headers)
    assert answer.status_code == 200
    assert "vera" in answer.content.decode()


def test_the_schema_describes_each_resource(viewer: Client, cluster: Cluster) -> None:
    document = get(viewer, "schema/")
    assert {"/api/inventory/devices/", "/api/inventory/pods/{key}/explain/"} <= set(document["paths"])


def test_the_documentation_offers_each_api_version_to_whoever_is_signed_in(viewer: Client, cluster: Cluster) -> None:
    page = viewer.get("/api/docs").content.decode()
    assert "apis/resource.k8s.io/v1" in page
    document = json.loads(viewer.get("/api/docs/documents/apis/resource.k8s.io/v1").content)
    assert document["openapi"].startswith("3.")
    assert viewer.get("/api/docs/documents/apis/none/v1").status_code == 404
    assert Client().get("/api/docs").status_code == 302
