"""What a person may not do is refused where its form would be sent to, and no page offers it."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client

from manciple.access.models import Token
from manciple.store.event_log import latest_revision
from tests.builders import (
    CLASS,
    DRIVER,
    make_claim,
    make_namespace,
    make_pod,
    make_quota,
    make_taint_rule,
    make_template,
)
from tests.dashboard import texts
from tests.dashboard.browsing import admin, signed_in, viewer, words
from tests.scheduling.cluster import Cluster

__all__ = ["admin", "viewer"]

RULE = "/yaml/devicetaintrules.resource.k8s.io/repair"
DEVICES = {"at": f"{DRIVER}/node-1/gpu-0", "sure": "1"}
SELECTOR = {"name": CLASS, "selector": "true", "yaml": "x"}
TAINT = {"name": "mine", "key": "a", "effect": "None"}
QUOTA = {"namespace": "lab", "name": "gpus", "device_class": "gpu", "devices": "8", "sure": "on"}
ROLE = {"name": "readers", "namespace": "", "verbs": "read", "resources": "pods"}
PERSON = {"who": "bob", "name": "eve", "all": "1", "administers": "on", "active": "on"}

#: What somebody who only looks sends by hand.
FORMS: dict[str, dict[str, str]] = {
    "/bulk/pods/delete": {"pick": "default/web", "sure": "1"},
    "/claims/default/spare/delete": {},
    "/claims/default/spare/release": {},
    "/classes/new": SELECTOR,
    f"/classes/c/{CLASS}": SELECTOR,
    f"/classes/c/{CLASS}/yaml": SELECTOR,
    f"/classes/c/{CLASS}/delete": {},
    **{f"/devices/act/{act}": DEVICES for act in ("taint", "cordon", "drain", "untaint")},
    "/namespaces": {"name": "x"},
    "/namespaces/lab/change": {"admin_access": "true"},
    "/namespaces/lab/delete": {},
    "/namespaces/lab/tokens": {"account": "default", "lifetime": "3600"},
    "/nodes/node-1/change": {"change": "cordon"},
    "/people/change": PERSON,
    "/people/invite": PERSON,
    "/people/revoke": PERSON,
    "/pods/default/web/delete": {},
    "/pods/new": {"yaml": "kind: Pod"},
    "/quotas": QUOTA,
    "/quotas/lab/most/change": {"hard.pods": "9"},
    "/roles/new/make": ROLE,
    "/roles/view/give": {"to": "User", "name": "vic", "namespace": ""},
    "/taint-rules/new": TAINT,
    "/taint-rules/repair/change": TAINT,
    "/taint-rules/repair/delete": {},
    "/templates/default/one/delete": {},
    RULE: {"act": "save", "text": "x", "base": "", "version": "1"},
}
#: What a member of namespace lab may not do in it.
IN_HER_NAMESPACE: dict[str, dict[str, str]] = {
    path: FORMS[path] for path in ("/namespaces/lab/change", "/namespaces/lab/delete", "/quotas/lab/most/change")
}
#: page -> what only those see who may do it
OFFERED = {
    "/claims/default/spare": ("Delete…",),
    "/classes": ("New class",),
    f"/classes/c/{CLASS}": ("Save class", "Delete…", "Add driver config"),
    "/devices/act/list?matching=": ("/devices/act/drain",),
    "/namespaces/lab": ("Delete…", texts.NEW_TOKEN_HEADING),
    "/nodes/node-1": ("change=cordon",),
    "/pods": ("New pod", 'name="pick"'),
    "/pods/default/web": ("Delete…",),
    "/quotas": ("New quota",),
    "/quotas/lab/most?try=1&hard.pods=3": ("Set these limits",),
    "/taint-rules/repair": ("/change", "/delete"),
    RULE: ('value="save"',),
}


@pytest.fixture
def scene(cluster: Cluster) -> None:
    cluster.with_gpus("node-1")
    for made in (
        make_namespace("lab"),
        make_claim("spare"),
        make_claim("spare", namespace="lab"),
        make_template("one"),
        make_pod("web"),
        make_quota({"pods": "5"}, namespace="lab"),
        make_taint_rule("repair"),
    ):
        cluster.create(made)
    User.objects.create_user("bob")


@pytest.mark.usefixtures("scene")
def test_a_form_sent_by_somebody_who_may_not_use_it_changes_nothing(viewer: Client) -> None:
    mia = signed_in("mia", "namespace:lab")
    people, revision = list(User.objects.values_list("username", "is_staff")), latest_revision()
    for client, forms in ((viewer, FORMS), (mia, IN_HER_NAMESPACE), (mia, {"/claims/lab/spare/release": {}})):
        for path, form in forms.items():
            assert client.post(path, form).status_code == 403, path
    assert latest_revision() == revision
    assert list(User.objects.values_list("username", "is_staff")) == people
    assert not Token.objects.exists()


@pytest.mark.usefixtures("scene")
def test_nothing_is_offered_to_somebody_who_may_not_do_it(admin: Client, viewer: Client) -> None:
    for path, parts in OFFERED.items():
        may, may_not = (client.get(path).content.decode().partition("<main")[2] for client in (admin, viewer))
        assert [part for part in parts if part not in may] == [], path
        assert [part for part in parts if part in may_not] == [], path
    for path in ("/claims/default/spare/delete", "/nodes/node-1?change=cordon", "/classes/new", "/pods/new"):
        assert viewer.get(path).status_code == 403, path
    assert "Administrators save classes" in words(viewer, f"/classes/c/{CLASS}")
    assert "/devices/act/selector" in viewer.get("/devices/act/list?matching=").content.decode()
    mia = signed_in("mia", "namespace:lab")
    assert "Delete…" in words(mia, "/claims/lab/spare")
    assert "Set these limits" not in words(mia, "/quotas/lab/most?try=1&hard.pods=3")
    assert texts.ADMIN_ACCESS_OPEN not in words(mia, "/namespaces/lab")
