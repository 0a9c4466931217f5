"""The pages of a mirror that acts: what they offer, what they do in the cluster, and what they show of its answers."""

from __future__ import annotations

import html
import json
import logging
import re
from collections.abc import Iterator
from copy import deepcopy

import msgspec
import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django.fixtures import Settings

from manciple.access import mirrored
from manciple.access.authentication import tokens
from manciple.api.verbs import elsewhere
from manciple.audit import trail
from manciple.audit.models import Entry
from manciple.store.event_log import latest_revision
from manciple.store.records import Note
from manciple.wire.identity import MASTERS
from tests.acting import Scene, acting_mirror
from tests.dashboard import texts
from tests.dashboard.browsing import said, signed_in, undo, words
from tests.manciple.mirror.clusters import claim, cluster, node, pod
from tests.manciple.mirror.test_acting import FUTURE, TAINTS, template
from tests.manciple.mirror.writable import Writable

pytestmark = pytest.mark.django_db

TOKEN = "kubeconfig-token-of-ola"
CORDON = {"change": "cordon"}
NEEDED = "the budget needs it"


@pytest.fixture
def server() -> Iterator[Writable]:
    made = cluster(
        ("nodes", {**node("tainted", taints=deepcopy(TAINTS)), **deepcopy(FUTURE)}),
        ("pods", pod("train", template="gpus")),
        ("pods", pod("runs", on="n1")),
        ("pods", pod("stays", on="n1")),
        ("resourceclaims", claim("idle")),
        ("resourceclaimtemplates", template()),
    )
    with Writable(made, rules="v1beta2", token=TOKEN) as server:
        yield server


@pytest.fixture
def scene(server: Writable, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    with acting_mirror(server, settings, monkeypatch) as scene:
        yield scene


@pytest.fixture
def ola(scene: Scene) -> Client:
    assert scene.server.url
    return signed_in("ola", mirrored.OWNERS)


def spec(scene: Scene, plural: str, name: str, namespace: str = "") -> dict[str, object]:
    found = scene.server.get(plural, namespace, name)
    assert found is not None
    return dict(found["spec"])


def told(client: Client, path: str, values: dict[str, str]) -> str:
    """What the page says to which a form leads."""
    return said(client.post(path, values, follow=True).content.decode())


# What is offered ------------------------------------------------------------------------------------------------------

#: page -> the words of its buttons
OFFERED = {"/nodes/n1": "Cordon", "/classes": "New class", "/taint-rules": "New rule", "/pods/team-a/train": "Delete"}


@pytest.mark.parametrize("path", OFFERED)
def test_pages_offer_what_the_cluster_allows(scene: Scene, ola: Client, path: str) -> None:
    assert OFFERED[path] in words(ola, path)
    scene.server.may = lambda _wanted: False
    scene.wait_out()
    assert OFFERED[path] not in words(ola, path)


@pytest.mark.parametrize("path", OFFERED)
def test_while_it_is_away_they_offer_nothing(scene: Scene, ola: Client, path: str) -> None:
    scene.know(away=True)
    assert OFFERED[path] not in words(ola, path)


@pytest.mark.parametrize("path", OFFERED)
def test_a_mirror_that_only_reads_offers_nothing(scene: Scene, ola: Client, path: str) -> None:
    elsewhere.reset()
    mirrored.act_by(None)
    assert OFFERED[path] not in words(ola, path)
    before = latest_revision()
    assert ola.post("/nodes/n1/change", CORDON).status_code == 403
    assert not scene.server.written
    assert latest_revision() == before


def test_every_page_says_that_it_acts(scene: Scene, ola: Client) -> None:
    assert texts.ACTS in ola.get("/devices").content.decode()
    mirrored.act_by(None)
    assert texts.ACTS not in ola.get("/devices").content.decode()


def test_what_the_cluster_refuses_is_refused_here_and_not_sent(scene: Scene, ola: Client) -> None:
    scene.server.may = lambda _wanted: False
    for path in ("/nodes/n1/change", "/classes/new", "/taint-rules/new", "/pods/team-a/train/delete"):
        assert ola.post(path, CORDON).status_code == 403, path
    assert not scene.server.written


@pytest.mark.parametrize(
    "path", ["/pods/team-a/train/move", "/claims/team-a/idle/release", "/namespaces", "/people", "/quotas"]
)
def test_what_no_mirror_does_stays_refused(scene: Scene, ola: Client, path: str) -> None:
    before = latest_revision()
    assert ola.post(path, {"name": "x", "uid": "x"}).status_code in (403, 405)
    assert latest_revision() == before
    assert not scene.server.written


def test_the_api_of_the_mirror_never_acts(scene: Scene, client: Client) -> None:
    token = tokens.issue("ola", [mirrored.OWNERS])
    admin = tokens.issue("root", [MASTERS])
    body = json.dumps({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "mine"}})
    before = latest_revision()
    for bearer in (token, admin):
        answer = client.post(
            "/apis/resource.k8s.io/v1/deviceclasses",
            body,
            content_type="application/json",
            headers={"Authorization": f"Bearer {bearer}"},
        )
        assert answer.status_code == 403
    assert latest_revision() == before
    assert not scene.server.written


# What they do ---------------------------------------------------------------------------------------------------------


def test_a_node_is_cordoned_and_that_is_undone(scene: Scene, ola: Client) -> None:
    assert "cordoned" in told(ola, "/nodes/tainted/change", CORDON)
    assert spec(scene, "nodes", "tainted")["unschedulable"] is True
    scene.agree("nodes")
    undo(ola, "/nodes/tainted")
    assert "unschedulable" not in spec(scene, "nodes", "tainted")
    assert spec(scene, "nodes", "tainted")["taints"] == TAINTS
    scene.agree("nodes")


def test_a_taint_is_removed_and_comes_back_with_all_it_had(scene: Scene, ola: Client) -> None:
    told(ola, "/nodes/tainted/change", {"change": "untaint", "key": "a", "effect": "NoSchedule"})
    assert spec(scene, "nodes", "tainted")["taints"] == TAINTS[1:]
    undo(ola, "/nodes/tainted")
    taints = spec(scene, "nodes", "tainted")["taints"]
    assert taints == TAINTS, "also with what our types do not know"
    scene.agree("nodes")


def test_a_node_is_drained_and_a_budget_keeps_a_pod(scene: Scene, ola: Client) -> None:
    def keep(request: object) -> None:
        path = getattr(request, "path", "")
        scene.server.refuses = {"eviction": (429, "TooManyRequests", NEEDED)} if "stays" in path else {}

    scene.server.before = keep
    page = told(ola, "/nodes/n1/change", {"change": "drain"})
    assert "1 pod is evicted" in page
    assert texts.POD_KEPT("team-a/stays", NEEDED) in page
    assert scene.server.get("pods", "team-a", "runs") is None
    assert scene.server.get("pods", "team-a", "stays") is not None
    assert spec(scene, "nodes", "n1")["unschedulable"] is True
    scene.agree("nodes", "pods")


RULE = {"name": "rack-7", "driver": "gpu.example.com", "pool": "n1", "key": "example.com/repair", "effect": "NoExecute"}


def test_a_taint_rule_is_made_changed_deleted_and_brought_back(scene: Scene, ola: Client) -> None:
    told(ola, "/taint-rules/new", RULE)
    rule = scene.server.get("devicetaintrules", "", "rack-7")
    assert rule is not None
    scene.server.put("devicetaintrules", rule | {"spec": rule["spec"] | deepcopy(FUTURE)})
    scene.look()
    version = ola.get("/taint-rules/rack-7/change").context["before"].metadata.resource_version
    told(ola, "/taint-rules/rack-7/change", {**RULE, "effect": "NoSchedule", "version": version})
    changed = spec(scene, "devicetaintrules", "rack-7")
    assert (changed["taint"]["effect"], changed["futureField"]) == ("NoSchedule", FUTURE["futureField"])  # type: ignore[index]
    uid = re.search(r'name="uid" value="([^"]+)"', ola.get("/taint-rules/rack-7/delete").content.decode())
    assert uid is not None
    told(ola, "/taint-rules/rack-7/delete", {"uid": uid.group(1)})
    assert scene.server.get("devicetaintrules", "", "rack-7") is None
    undo(ola, "/taint-rules")
    assert spec(scene, "devicetaintrules", "rack-7") == changed
    scene.agree("devicetaintrules")


def test_a_class_is_made_and_deleted(scene: Scene, ola: Client) -> None:
    answer = ola.post("/classes/new", {"name": "mine", "selector": 'device.driver == "gpu.example.com"'})
    assert answer.status_code == 302, said(answer.content.decode())
    made = scene.server.get("deviceclasses", "", "mine")
    assert made is not None
    told(ola, "/classes/c/mine/delete", {"uid": made["metadata"]["uid"]})
    assert scene.server.get("deviceclasses", "", "mine") is None
    scene.agree("deviceclasses")


POD = """\
apiVersion: v1
kind: Pod
metadata: {name: mine, namespace: team-a}
spec:
  containers: [{name: c, image: i}]
"""


def test_a_pod_is_made_and_deleted(scene: Scene, ola: Client) -> None:
    answer = ola.post("/pods/new", {"from": "yaml", "yaml": POD, "namespace": "team-a", "action": "create"})
    made = scene.server.get("pods", "team-a", "mine")
    assert made is not None, said(answer.content.decode())
    assert made["spec"] == {"containers": [{"name": "c", "image": "i", "resources": {}}]}, "nothing of our defaults"
    told(ola, "/pods/team-a/mine/delete", {"uid": made["metadata"]["uid"]})
    assert scene.server.get("pods", "team-a", "mine") is None
    scene.agree("pods")


def test_a_pod_is_replaced(scene: Scene, ola: Client) -> None:
    there = deepcopy(scene.server.get("pods", "team-a", "train"))
    assert there is not None
    path = "/pods/team-a/train/replace?count.made/gpu=2"
    assert "Comes" in words(ola, path)
    assert not scene.server.done, "it was tried, and nothing done"
    told(ola, path, {"uid": there["metadata"]["uid"]})
    made = scene.server.get("pods", "team-a", "train")
    assert made is not None
    assert made["metadata"]["uid"] != there["metadata"]["uid"]
    assert made["spec"]["containers"][0]["env"] == there["spec"]["containers"][0]["env"]
    claim_spec = spec(scene, "resourceclaimtemplates", "gpus", "team-a")["spec"]
    assert claim_spec["devices"]["requests"][0]["exactly"]["count"] == 2  # type: ignore[index]
    scene.agree("pods", "resourceclaimtemplates")


def test_several_are_cordoned_and_deleted_at_once(scene: Scene, ola: Client) -> None:
    picks = {"pick": ["n1@-n1", "n2@-n2"], "sure": "1"}
    assert "2 nodes are cordoned" in said(ola.post("/bulk/nodes/cordon", picks, follow=True).content.decode())
    assert all(spec(scene, "nodes", name)["unschedulable"] for name in ("n1", "n2"))
    undo(ola, "/nodes")
    assert not any(spec(scene, "nodes", name).get("unschedulable") for name in ("n1", "n2"))
    template_ = {"pick": ["team-a/gpus@template-gpus"], "sure": "1"}
    ola.post("/bulk/resourceclaimtemplates.resource.k8s.io/delete", template_)
    assert scene.server.get("resourceclaimtemplates", "team-a", "gpus") is None
    undo(ola, "/templates")
    assert spec(scene, "resourceclaimtemplates", "gpus", "team-a") == template()["spec"]
    scene.agree("nodes", "resourceclaimtemplates")


def test_of_many_the_rest_is_not_waited_for_once_the_cluster_is_silent(scene: Scene, ola: Client) -> None:
    scene.server.loses = frozenset({"PATCH"})
    page = said(
        ola.post("/bulk/nodes/cordon", {"pick": ["n1", "n2", "tainted"], "sure": "1"}, follow=True).content.decode()
    )
    assert "not known whether" in page
    assert "nothing was sent" in page
    assert len(scene.server.written) == 1


# What the cluster answers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "reason", "message"),
    [
        (409, "Conflict", "the object has been modified"),
        (403, "Forbidden", 'User "ola" cannot patch resource "nodes"'),
        (400, "BadRequest", 'admission webhook "friday.example.com" denied the request: not on Fridays'),
        (422, "Invalid", "spec.unschedulable: Invalid value"),
        (500, "InternalError", 'failed calling webhook "friday.example.com"'),
    ],
)
def test_a_refusal_stands_on_the_page_as_received(
    scene: Scene, ola: Client, code: int, reason: str, message: str
) -> None:
    scene.server.refuses = {"PATCH": (code, reason, message)}
    page = told(ola, "/nodes/n1/change", CORDON)
    assert message in page
    assert not scene.server.done, "the dry run was refused"
    scene.agree("nodes")


def test_the_cluster_is_asked_by_a_dry_run_first(scene: Scene, ola: Client) -> None:
    told(ola, "/nodes/n1/change", CORDON)
    assert [one.dry for one in scene.server.written] == [True, False]


@pytest.mark.parametrize("previews", [True, False], ids=["preview", "act"])
def test_a_warning_is_shown_once(scene: Scene, ola: Client, previews: bool) -> None:
    scene.server.warns = 'unknown field \\"spec.x\\" <b>'
    answer = ola.get("/nodes/n1?change=cordon") if previews else ola.post("/nodes/n1/change", CORDON, follow=True)
    page = html.unescape(answer.content.decode())
    assert page.count('unknown field "spec.x" <b>') == 1
    assert "<b>' warns" not in answer.content.decode()
    assert 'unknown field "spec.x"' not in html.unescape(ola.get("/nodes/n1").content.decode())


def test_without_an_answer_the_page_says_so_and_how_it_is_now(scene: Scene, ola: Client) -> None:
    scene.server.silent_on = frozenset({"PATCH"})
    page = told(ola, "/nodes/n1/change", CORDON)
    assert "not known whether" in page
    assert texts.DONE_WITHOUT_AN_ANSWER in page
    assert "Nothing was changed" not in page
    assert len(scene.server.done) == 1
    assert spec(scene, "nodes", "n1")["unschedulable"] is True
    scene.agree("nodes")


def test_a_deletion_without_an_answer_is_not_said_to_have_changed_nothing(scene: Scene, ola: Client) -> None:
    scene.server.silent_on = frozenset({"DELETE"})
    made = scene.server.get("deviceclasses", "", "gpu")
    assert made is not None
    page = told(ola, "/classes/c/gpu/delete", {"uid": made["metadata"]["uid"]})
    assert "Nothing was changed" not in page


# Who, and what is kept of it ------------------------------------------------------------------------------------------


def test_the_audit_trail_has_both_sides(scene: Scene, ola: Client) -> None:
    told(ola, "/nodes/n1/change", CORDON)
    scene.server.refuses = {"PATCH": (403, "Forbidden", "not you")}
    told(ola, "/nodes/n2/change", CORDON)
    trail.flush()
    done, refused = Entry.objects.filter(resource="nodes", username="ola").order_by("id")
    assert (done.name, done.code, done.verb) == ("n1", 200, "patch")
    noted = noted_of(done)
    assert noted.startswith("PATCH /api/v1/nodes/n1 (")
    assert "/spec/unschedulable" in noted
    assert noted.endswith("200, Audit-Id audit-2")
    assert (refused.name, refused.code, refused.message) == ("n2", 403, "not you")
    assert "403" in noted_of(refused)


def noted_of(entry: Entry) -> str:
    return " ".join(msgspec.json.decode(entry.note, type=Note).annotations.values())


def test_no_credential_and_no_value_is_written_down(
    scene: Scene, ola: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    told(ola, "/nodes/n1/change", CORDON)
    path = "/pods/team-a/train/replace?count.made/gpu=2"
    told(ola, path, {"uid": "team-a-train"})
    scene.server.token = "renewed"
    told(ola, "/nodes/n2/change", CORDON)
    trail.flush()
    kept = [f"{one.note} {one.message}" for one in Entry.objects.all()]
    assert kept
    for text in (*kept, *(record.getMessage() for record in caplog.records)):
        assert TOKEN not in text
        assert "secret-value" not in text


# Other origins --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "with_token"),
    [
        ({}, False),
        ({"Origin": "http://evil.example"}, True),
        ({"Origin": "null"}, True),
        ({"Origin": "http://testserver:8011"}, True),
        ({"Origin": "http://127.0.0.1:8011"}, True),
        ({"Origin": "https://testserver"}, True),
    ],
)
def test_a_page_of_another_origin_cannot_act(scene: Scene, headers: dict[str, str], with_token: bool) -> None:
    signed_in("ola", mirrored.OWNERS)
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(User.objects.get(username="ola"))
    page = browser.get("/nodes/n1?change=cordon").content.decode()
    token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
    assert token is not None
    scene.server.written.clear()
    values = CORDON | ({"csrfmiddlewaretoken": token.group(1)} if with_token else {})
    assert browser.post("/nodes/n1/change", values, headers=headers).status_code == 403
    assert not scene.server.written
    same = browser.post("/nodes/n1/change", CORDON | {"csrfmiddlewaretoken": token.group(1)})
    assert same.status_code == 302
    assert len(scene.server.done) == 1


def test_a_name_that_leads_here_is_no_way_in(scene: Scene, ola: Client) -> None:
    answer = ola.post("/nodes/n1/change", CORDON, headers={"Host": "rebound.evil.example"})
    assert answer.status_code == 400
    assert not scene.server.written
