"""What people do on pages is in the audit trail object by object, with the API's verbs, also where it fails."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urlencode

import pytest
from django.test import Client

from claims.kinds.pods import Pod
from inventory.kinds.devices import DeviceTaintRule
from manciple.audit import searching
from manciple.audit.models import Entry
from manciple.audit.searching import Search
from manciple.notifications.models import NotificationRule
from manciple.store import hooks
from manciple.store.hooks import Write
from manciple.wire.errors import Forbidden
from tests.builders import (
    DRIVER,
    make_claim,
    make_namespace,
    make_pod,
    make_quota,
    make_taint_rule,
    make_template,
)
from tests.dashboard.browsing import admin, viewer
from tests.dashboard.tools.test_manifests import opened
from tests.manciple.audit.reading import look
from tests.scheduling.cluster import Cluster

__all__ = ["admin", "viewer"]

PODS, TEMPLATES = "pods", "resourceclaimtemplates.resource.k8s.io"
RULES = "devicetaintrules.resource.k8s.io"
ROLES = "clusterroles.rbac.authorization.k8s.io"
POD = """apiVersion: v1
kind: Pod
metadata: {name: NAME, namespace: default}
spec:
  containers: [{name: main, image: example.com/main}]
"""
QUOTA = {"namespace": "default", "name": "few", "device_class": "gpu", "devices": "8", "sure": "on"}

Did = list[tuple[str, str, int]]
Form = Mapping[str, object]


def told(entry: Entry) -> tuple[str, str, int]:
    below = f"/{entry.subresource}" if entry.subresource else ""
    where = "/".join(filter(None, (entry.namespace, entry.name)))
    return entry.verb, f"{entry.resource}{below} {where}".strip(), entry.code


def did(client: Client, path: str, form: Form, *, verb: str = "") -> Did:
    """What the trail says that ada did by this request, in its order."""
    answer = client.post(path, dict(form), headers={"Audit-Id": "the-act"})
    assert answer.status_code < 500
    entries = [entry for entry in reversed(look(Search(audit_id="the-act", verb=verb))) if entry.username == "ada"]
    Entry.objects.all().delete()
    return [told(entry) for entry in entries]


def undo(client: Client, back: str) -> Did:
    (offer,) = re.findall(r'name="offer" value="([^"]+)"', client.get(back).content.decode())
    return did(client, "/undo", {"offer": offer, "back": back})


@pytest.fixture
def filled(cluster: Cluster) -> Cluster:
    cluster.create(make_namespace("default"))
    cluster.with_gpus("node-1", "node-2", each=2)
    return cluster


def test_a_pod_that_is_created_changed_and_deleted(admin: Client, filled: Cluster) -> None:
    form = {"yaml": POD.replace("NAME", "web"), "action": "create"}
    assert did(admin, "/pods/new", form) == [("create", "pods default/web", 201)]
    pod = filled.get(Pod, "web", "default")
    change = opened(admin, f"/yaml/{PODS}/web?ns=default")
    change["text"] = change["text"].replace("  name: web\n", "  name: web\n  labels: {a: b}\n", 1)
    path = f"/yaml/{PODS}/web?ns=default"
    assert did(admin, path, change | {"act": "save"}) == [("update", "pods default/web", 200)]
    assert undo(admin, path) == [("patch", "pods default/web", 200)]
    uid = pod.metadata.uid
    assert did(admin, "/pods/default/web/delete", {"uid": uid}) == [("delete", "pods default/web", 200)]


def test_a_text_is_checked_while_it_is_written_without_an_entry_unless_it_is_forbidden(
    admin: Client, filled: Cluster
) -> None:
    filled.create(make_pod("web"))
    texts = (POD.replace("NAME", "web"), POD.replace("NAME", "Not a name"), "kind: Pod")
    for text in texts:
        assert did(admin, "/pods/new/diagnostics", {"text": text}) == []
        assert admin.post("/pods/new/diagnostics", {"text": text}).json() != []
    assert did(admin, "/pods/new", {"yaml": texts[0], "action": "create"}) == [("create", "pods default/web", 409)]

    def refuse(_writer: object, _write: Write) -> None:
        raise Forbidden.of(PODS, "new", "it is Sunday")

    hooks.register_rule(refuse, operations={"CREATE"}, resources={PODS})
    try:
        denied = did(admin, "/pods/new/diagnostics", {"text": POD.replace("NAME", "new")})
    finally:
        hooks.unregister_rule(refuse)
    assert denied == [("create", "pods default/new", 403)]


def test_each_object_of_an_act_has_an_entry(admin: Client, filled: Cluster) -> None:
    """Several documents at once, a bulk deletion that is refused in part, and its undoing."""
    text = "---\n".join(POD.replace("NAME", name) for name in ("a", "b"))
    made = did(admin, "/pods/new", {"yaml": text, "action": "create"})
    assert made == [("create", "pods default/a", 201), ("create", "pods default/b", 201)]
    for name in ("t1", "t2"):
        filled.create(make_template(name))

    def refuse(_writer: object, write: Write) -> None:
        if write.old.metadata.name == "t2":
            raise Forbidden.of(TEMPLATES, "t2", "it is needed")

    hooks.register_rule(refuse, operations={"DELETE"}, resources={TEMPLATES})
    try:
        gone = did(
            admin, f"/bulk/{TEMPLATES}/delete", {"pick": ["default/t1", "default/t2"], "sure": "1"}, verb="delete"
        )
    finally:
        hooks.unregister_rule(refuse)
    assert sorted(gone) == [("delete", f"{TEMPLATES} default/t1", 200), ("delete", f"{TEMPLATES} default/t2", 403)]
    assert undo(admin, "/templates") == [("create", f"{TEMPLATES} default/t1", 201)]


def test_devices_nodes_and_evictions(admin: Client, filled: Cluster) -> None:
    filled.create(make_claim("first"))
    filled.create(make_pod("first", claims={"gpu": "first"}))
    filled.settle()
    node = filled.pod("first").spec.node_name
    at = {"at": f"{DRIVER}/{node}/gpu-1", "sure": "1"}
    (made,) = did(admin, "/devices/act/cordon", at)
    assert (made[0], made[1].split()[0], made[2]) == ("create", RULES, 201)
    assert [one[0] for one in undo(admin, "/devices")] == ["delete"]
    assert did(admin, f"/nodes/{node}/change", {"change": "cordon"}) == [("patch", f"nodes {node}", 200)]
    drained = did(admin, f"/nodes/{node}/change", {"change": "drain"})
    assert ("create", "pods/eviction default/first", 201) in [(verb, what, 201) for verb, what, _ in drained]
    assert did(admin, "/nodes/node-1/change", {"change": "uncordon"})[-1][:2] == ("patch", "nodes node-1")


OTHERS: dict[str, tuple[str, Form, Did]] = {
    "a namespace": ("/namespaces", {"name": "lab"}, [("create", "namespaces lab", 201)]),
    "a quota": (
        "/quotas",
        QUOTA,
        [("create", "resourcequotas default/few", 201)],
    ),
    "a taint rule": (
        "/taint-rules/new",
        {"name": "repair", "driver": DRIVER, "key": "a", "value": "b", "effect": "NoSchedule"},
        [("create", f"{RULES} repair", 201)],
    ),
    "a role": (
        "/roles/new/make",
        {"name": "readers", "namespace": "", "verbs": "read", "resources": "pods"},
        [("create", f"{ROLES} readers", 201)],
    ),
    "somebody new": ("/people/invite", {"name": "bob", "groups": ""}, [("create", "people.manciple.dev bob", 201)]),
    "a token": ("/account/tokens", {"title": "laptop", "days": "90"}, [("create", "tokens.manciple.dev ada", 201)]),
    "the address of a webhook": (
        "/notifications/webhook",
        {"url": "https://hooks.example.org/", "format": "json"},
        [("update", "notificationaddresses.manciple.dev ada", 200)],
    ),
    "a saved view": (
        "/views/save",
        {"path": "/pods", "query": "state=Waiting", "name": "Waiting"},
        [("create", "savedviews.manciple.dev ada/Waiting", 201)],
    ),
}


def test_other_things_that_pages_make(admin: Client, filled: Cluster) -> None:
    assert {what: did(admin, path, form) for what, (path, form, _) in OTHERS.items()} == {
        what: expected for what, (_, _, expected) in OTHERS.items()
    }


def test_a_notification_rule_from_its_beginning_to_its_end(admin: Client, filled: Cluster) -> None:
    rule = {"happening": "pod-waits", "scope": "in:default", "minutes": "90", "channels": ["browser"]}
    ((verb, what, code),) = did(admin, "/notifications/rules", rule)
    number = NotificationRule.objects.get().pk
    assert (verb, what, code) == ("create", f"notificationrules.manciple.dev ada/{number}", 201)
    assert did(admin, "/notifications/rules", rule | {"rule": number, "minutes": "5"})[0][0] == "update"
    assert did(admin, "/notifications/rules/delete", {"rule": number})[0][0] == "delete"


FAILURES: dict[str, tuple[str, Form, tuple[str, str, int]]] = {
    "it is there already": (
        "/quotas",
        QUOTA | {"name": "taken"},
        ("create", "resourcequotas default/taken", 409),
    ),
    "it is another by now": (
        "/taint-rules/repair/delete",
        {"uid": "another"},
        ("delete", f"{RULES} repair", 409),
    ),
    "it is not valid": (
        "/pods/new",
        {"yaml": POD.replace("NAME", "web").replace("main,", "Main,"), "action": "create"},
        ("create", "pods default/web", 422),
    ),
}


def test_a_write_that_fails_is_there_with_its_code_and_once(admin: Client, filled: Cluster) -> None:
    filled.create(make_quota({"pods": "1"}, name="taken"))
    filled.create(make_taint_rule("repair"))
    for why, (path, form, expected) in FAILURES.items():
        assert did(admin, path, form) == [expected], why
    assert filled.find(DeviceTaintRule, "repair") is not None


DENIED: dict[str, tuple[str, Form, tuple[str, str, int]]] = {
    "deleting a pod": ("/pods/default/web/delete", {}, ("delete", "pods default/web", 403)),
    "deleting a rule": ("/taint-rules/repair/delete", {}, ("delete", f"{RULES} repair", 403)),
    "changing a node": ("/nodes/node-1/change", {"change": "cordon"}, ("update", "nodes node-1", 403)),
    "making a quota": ("/quotas", QUOTA, ("create", "resourcequotas default", 403)),
}


def test_what_a_page_refuses_is_a_denial_of_what_was_asked_for(viewer: Client, filled: Cluster) -> None:
    filled.create(make_taint_rule("repair"))
    filled.create(make_pod("web"))
    for path, form, expected in DENIED.values():
        assert viewer.post(path, dict(form)).status_code == 403
        (entry,) = look(Search(outcome="denied"))
        assert (entry.username, *told(entry)) == ("vic", *expected)
        Entry.objects.all().delete()


def test_looking_leaves_nothing_and_who_created_a_pod_is_known_to_notifications(admin: Client, filled: Cluster) -> None:
    admin.post("/pods/new", {"yaml": POD.replace("NAME", "made"), "action": "create"})
    uid = filled.get(Pod, "made", "default").metadata.uid
    assert searching.creators([uid]) == {uid: "ada"}
    Entry.objects.all().delete()
    before = len(look())
    for path in ("/overview", "/devices", "/pods", "/pods/new", "/nodes/node-1", "/taint-rules", "/audit"):
        assert admin.get(path).status_code == 200
    query = urlencode({"at": f"{DRIVER}/node-1/gpu-1"})
    assert admin.get(f"/devices/act/cordon?{query}").status_code == 200
    admin.post("/pods/new", {"yaml": POD.replace("NAME", "web"), "action": "check"})
    assert len(look()) == before
