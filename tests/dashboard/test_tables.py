"""Every list is a table that can be sorted, shown otherwise, kept as a view and taken as a file; and rows acted on."""

from __future__ import annotations

import csv
import io
import json
import re

from django.test import Client
from django.urls import get_resolver

from claims.kinds.resource_claims import ResourceClaimTemplate
from dashboard.kit.navigation import MORE, PLACES
from dashboard.models import SavedView
from dashboard.tools.saved_views import PAGES
from manciple.access.authentication import tokens
from manciple.access.authorization import routes
from manciple.store import objects
from manciple.wire.identity import MASTERS
from manciple.wire.resources import CLAIMS, NODES, PODS, TEMPLATES, kind
from tests.builders import make_claim, make_node, make_pod, make_template
from tests.dashboard import texts
from tests.dashboard.browsing import admin, signed_in, undo, viewer, words
from tests.laboratory import furnish
from tests.scheduling.cluster import Cluster

__all__ = ["admin", "viewer"]

#: All but the audit trail, which has files of its own.
LISTS = (
    *("claims", "templates", "pods", "classes", "nodes", "quotas", "incidents", "taint-rules", "drivers"),
    *("namespaces", "events", "roles", "people", "ended", "workloads", "autoscalers"),
)
#: Files of pages that are no lists of objects.
OTHER_FILES = {"audit", "devices", "timeline", "usage"}
#: Rows of a list and the cells of each.
ROW = re.compile(r"<tbody>(.*)</tbody>", re.DOTALL)


def rows(text: str) -> list[str]:
    found = ROW.search(text)
    return re.findall(r"<tr[ >].*?</tr>", found[1], re.DOTALL) if found else []


def cells(row: str) -> int:
    return len(re.findall(r"<t[dh][ >]", row))


def test_every_list_is_known_wherever_lists_are_named() -> None:
    """What a new list needs besides its route: docs/how-to/pages.md."""
    named = {pattern.name or "" for _, pattern in routes(get_resolver().url_patterns)}
    found = {name.removesuffix("-csv") for name in named if name.endswith("-csv")} - OTHER_FILES
    assert found - set(LISTS) == set(), "LISTS of this file"
    assert found - set(PAGES) == set(), "PAGES of dashboard/tools/saved_views.py: without it no view can be saved"
    navigated = {place for place, _, _ in (*PLACES, *MORE)} | {"roles", "people"}  # in the menu of administrators
    assert found - navigated == set(), "PLACES or MORE of dashboard/kit/rendering.py"


def test_every_list_of_the_laboratory_has_a_cell_for_each_column_and_a_file_in_the_same_order(db: None) -> None:
    furnish()  # before somebody signs in: what there is by then belongs to the laboratory
    admin = signed_in("ada", staff=True)
    for name in LISTS:
        text = admin.get(f"/{name}").content.decode()
        head = re.search(r"<thead>(.*?)</thead>", text, re.DOTALL)
        assert head, name
        columns = cells(head[1])
        assert {cells(row) for row in rows(text)} == {columns}, f"/{name} has rows of other columns than its head"
        sorts = re.findall(r"sort=(-?[a-z_]+)", head[1])
        sorts = sorts if name == "pods" else sorts[-1:]  # pods alone are sorted by the database
        files = [
            list(csv.reader(io.StringIO(admin.get(f"/{name}.csv?sort={sort}").content.decode())))
            for sort in sorts or [""]
        ]
        assert min(map(len, files)) == max(map(len, files)) > len(rows(text)), name
        assert all(len(line) == len(file[0]) for file in files for line in file), name


def test_the_file_of_a_list_is_what_the_filters_let_through_of_what_one_sees(admin: Client, cluster: Cluster) -> None:
    for number in range(3):
        cluster.create(make_pod(f"web-{number}"))
    cluster.create(make_pod("other"))
    answer = admin.get("/pods.csv?q=web&cols=pod,status,uid&sort=-name")
    assert answer["Content-Type"].startswith("text/csv")
    head, *lines = csv.reader(io.StringIO(answer.content.decode()))
    assert head == ["Pod", "Status", "UID"]
    assert [line[:2] for line in lines] == [["web-2", "Waiting"], ["web-1", "Waiting"], ["web-0", "Waiting"]]
    assert Client().get("/pods.csv").status_code == 302
    mia = signed_in("mia", "namespace:other")
    assert "web" not in mia.get("/pods.csv").content.decode()
    mia.post("/bulk/pods/delete", {"pick": "default/other", "sure": "1"})
    assert all("deletionTimestamp" not in one.text for one in objects.list(kind(PODS)).items)


def test_programs_read_every_list_with_a_token_as_their_person_may(db: None) -> None:
    furnish()
    admin = signed_in("ada", staff=True)
    person, stranger = (f"Bearer {tokens.issue(*one)}" for one in (("root", [MASTERS]), ("sam", [])))
    for name in (*LISTS, "devices", "usage"):
        files = {}
        for ending in ("csv", "json"):
            path = f"/{name}.{ending}"
            answer = Client().get(path, headers={"Authorization": person})
            assert answer.status_code == 200, path
            if name not in ("people", "roles", "usage"):  # which say who has signed in, and how long
                assert answer.content == admin.get(path).content, path
            refused = Client().get(path, headers={"Authorization": "Bearer wrong"})
            assert (refused.status_code, refused.json()["kind"]) == (401, "Status"), path
            of_stranger = Client().get(path, headers={"Authorization": stranger})
            assert of_stranger.status_code == 403, path
            assert of_stranger.json()["reason"] == "Forbidden", path
            assert admin.get(path, headers={"Authorization": stranger}).status_code == 403, "the session does not count"
            assert Client().post(path, headers={"Authorization": person}).status_code in (403, 405), path
            files[ending] = answer
        head, *lines = csv.reader(io.StringIO(files["csv"].content.decode()))
        items = files["json"].json()["items"]
        assert len(items) == len(lines), name
        assert all(len(item) == len(head) for item in items), name


def test_a_token_opens_nothing_but_files(admin: Client, cluster: Cluster) -> None:
    shown = {"Authorization": f"Bearer {tokens.issue('root', [MASTERS])}"}
    for path in ("/pods", "/people", "/account", "/pods/new"):
        assert Client().get(path, headers=shown).status_code == 302, path


def test_the_schema_names_the_filters_of_each_list(admin: Client, cluster: Cluster) -> None:
    schema = json.loads(admin.get("/api/inventory/schema/").content)
    for name in LISTS:
        for ending in ("csv", "json"):
            named = {one["name"] for one in schema["paths"][f"/{name}.{ending}"]["get"]["parameters"]}
            assert {"sort", "cols"} <= named, name
    assert {"ns", "q", "state", "node"} <= {one["name"] for one in schema["paths"]["/pods.json"]["get"]["parameters"]}


# Saved views ---------------------------------------------------------------------------------------------------------


def saved(client: Client, **asked: str) -> SavedView:
    values = {"path": "/pods", "query": "?state=Waiting&page=3&cols=pod,status", "name": "Mine"} | asked
    answer = client.post("/views/save", values)
    view = SavedView.objects.get(name=values["name"])
    assert answer["Location"].endswith(f"saved={view.id}")
    return view


def test_a_view_is_kept_under_a_name_and_its_address_opens_it(admin: Client, db: None) -> None:
    view = saved(admin)
    assert view.query == "cols=pod,status&state=Waiting", "the page that was turned to is no part of it"
    assert admin.get(f"/views/{view.id}")["Location"] == f"/pods?{view.query}&saved={view.id}"
    text = admin.get(f"/pods?{view.query}&saved={view.id}").content.decode()
    assert re.search(r'aria-current="true"><span>Mine', text)
    assert "(changed)" not in text
    assert "(changed)" in admin.get(f"/pods?state=Running&saved={view.id}").content.decode()
    saved(admin, query="state=Running")
    assert SavedView.objects.get(id=view.id).query == "state=Running", "saving it again changes it"


def test_a_view_is_its_owners_alone_until_it_is_shared(admin: Client, viewer: Client) -> None:
    view = saved(admin)
    assert viewer.get(f"/views/{view.id}").status_code == 404
    assert "Mine" not in words(viewer, "/views")
    admin.post(f"/views/{view.id}/change", {"name": "Ours", "shared": "on"})
    assert viewer.get(f"/views/{view.id}")["Location"].startswith("/pods?")
    assert "Ours by" in words(viewer, "/views")
    assert "Ours" in words(viewer, "/pods")
    assert viewer.post(f"/views/{view.id}/change", {"delete": "1"}).status_code == 404
    admin.post(f"/views/{view.id}/change", {"delete": "1"})
    assert not SavedView.objects.exists()


def test_the_usual_view_opens_where_nothing_is_asked_for(admin: Client, viewer: Client) -> None:
    view = saved(admin, usual="on", shared="on")
    assert admin.get("/pods")["Location"].endswith(f"saved={view.id}")
    assert admin.get("/pods?saved=").status_code == 200
    assert viewer.get("/pods").status_code == 200, "of others it is not"
    other = saved(admin, name="Other", usual="on")
    assert [one.id for one in SavedView.objects.filter(usual=True)] == [other.id]


REFUSED = {
    "a page of which there are none": {"path": "/account"},
    "no name": {"name": "  "},
    "a name that is too long": {"name": "x" * 81},
}


def test_a_view_is_not_kept_without_a_name_or_a_list_and_there_are_no_other_acts(admin: Client, db: None) -> None:
    for what, asked in REFUSED.items():
        values = {"path": "/pods", "query": "", "name": "Mine"} | asked
        assert admin.post("/views/save", values).status_code in (302, 404), what
    assert not SavedView.objects.exists()
    for path in ("/bulk/pods/cordon", "/bulk/nodes/delete", "/bulk/secrets/delete", "/bulk/pods/eat"):
        assert admin.post(path).status_code == 404


# Acting on many ------------------------------------------------------------------------------------------------------


def picks(client: Client, path: str) -> list[str]:
    return re.findall(r'name="pick" value="([^"]+)"', client.get(path).content.decode())


def preview(client: Client, path: str, *picked: str) -> tuple[str, list[str]]:
    """Its words, and what its form would send."""
    text = client.post(path, {"pick": picked}).content.decode()
    plain = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", text.partition("<main")[2]))
    return plain, re.findall(r'name="pick" value="([^"]+)"', text)


def test_pods_are_deleted_together_after_it_is_said_what_they_free(admin: Client, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=2)
    for name in ("a", "b", "c"):
        cluster.create(make_claim(name))
        cluster.create(make_pod(name, claims={"gpu": name}))
        cluster.settle()
    assert picks(admin, "/pods") == ["default/c", "default/a", "default/b"]
    said, sure = preview(admin, "/bulk/pods/delete", "default/a", "default/b", "default/gone")
    assert "Delete 2 pods?" in said
    assert "2 devices: gpu-0, gpu-1 of node-1." in said
    assert "default/c on node-1 would start." in said
    assert "default/gone" in said
    answer = admin.post("/bulk/pods/delete", {"pick": sure, "sure": "1", "back": "/pods?state=Waiting"})
    assert answer["Location"] == "/pods?state=Waiting"
    assert "2 pods are deleted." in words(admin, "/pods")
    assert {one.name for one in objects.list(kind(PODS)).items if "deletionTimestamp" not in one.text} == {"c"}


def test_of_claims_and_templates_each_says_what_follows_and_templates_come_back(
    admin: Client, cluster: Cluster
) -> None:
    cluster.create(make_claim("spare"))
    cluster.create(make_template("one"))
    ((claim, follows),) = admin.post(f"/bulk/{CLAIMS}/delete", {"pick": "default/spare"}).context["preview"].each
    assert claim.title == "default/spare"
    assert follows
    _, sure = preview(admin, f"/bulk/{TEMPLATES}/delete", "default/one")
    cluster.delete(cluster.get(ResourceClaimTemplate, "one"))
    cluster.create(make_template("one"))
    admin.post(f"/bulk/{TEMPLATES}/delete", {"pick": sure, "sure": "1"})
    assert objects.list(kind(TEMPLATES)).items, "another one of that name"
    _, sure = preview(admin, f"/bulk/{TEMPLATES}/delete", "default/one")
    admin.post(f"/bulk/{TEMPLATES}/delete", {"pick": sure, "sure": "1"})
    assert not objects.list(kind(TEMPLATES)).items
    undo(admin, "/templates")
    assert [one.name for one in objects.list(kind(TEMPLATES)).items] == ["one"]


def test_nodes_are_cordoned_drained_and_opened_together(admin: Client, cluster: Cluster) -> None:
    for name in ("node-1", "node-2"):
        cluster.create(make_node(name))
    cluster.create(make_pod("web", node="node-1"))
    said, sure = preview(admin, f"/bulk/{NODES}/drain", "node-1", "node-2")
    assert "default/web" in said
    admin.post(f"/bulk/{NODES}/drain", {"pick": sure, "sure": "1"})
    assert all('"unschedulable":true' in one.text for one in objects.list(kind(NODES)).items)
    assert "deletionTimestamp" in objects.list(kind(PODS)).items[0].text
    said, _ = preview(admin, f"/bulk/{NODES}/cordon", "node-1", "node-2")
    assert texts.ALL_CORDONED_ALREADY in said
    _, sure = preview(admin, f"/bulk/{NODES}/uncordon", "node-1", "node-2")
    admin.post(f"/bulk/{NODES}/uncordon", {"pick": sure, "sure": "1"})
    assert texts.NODES_OPEN_AGAIN("2 nodes") in words(admin, "/nodes")
