"""Objects as YAML: shown to who may see them, checked, saved, and merged with what others changed meanwhile."""

from __future__ import annotations

import html
import re

import pytest
from django.test import Client
from msgspec import structs

from inventory.kinds.devices import DeviceTaintRule
from tests.builders import make_claim, make_node, make_taint_rule
from tests.dashboard import texts
from tests.dashboard.browsing import admin, said, signed_in, undo, viewer, words
from tests.scheduling.cluster import Cluster

__all__ = ["admin", "viewer"]

RULES = "devicetaintrules.resource.k8s.io"
PATH = f"/yaml/{RULES}/repair"


def form_of(page: str) -> dict[str, str]:
    """What the page's form would send."""
    fields = dict(re.findall(r'<input type="hidden" name="(ns|version)" value="([^"]*)"', page))
    texts = dict(re.findall(r'<textarea[^>]*?name="(\w+)"[^>]*>(.*?)</textarea>', page, re.S))
    return {name: html.unescape(value) for name, value in (fields | texts).items()}


def opened(client: Client, path: str = PATH) -> dict[str, str]:
    answer = client.get(path)
    assert answer.status_code == 200
    return form_of(answer.content.decode())


def changed_by_another(cluster: Cluster, **fields: str) -> None:
    rule = cluster.get(DeviceTaintRule, "repair")
    taint = structs.replace(rule.spec.taint, **fields)
    cluster.update(structs.replace(rule, spec=structs.replace(rule.spec, taint=taint)))


@pytest.fixture
def rule(cluster: Cluster) -> DeviceTaintRule:
    return cluster.create(make_taint_rule("repair", pool="node-1", value="fan"))


def test_check_writes_nothing_and_shows_the_difference_and_save_writes_and_is_undone(
    admin: Client, cluster: Cluster, rule: DeviceTaintRule
) -> None:
    form = opened(admin)
    assert "managedFields" not in form["text"]
    assert "resourceVersion" not in form["text"]
    form["text"] = form["text"].replace("value: fan", "value: heat")
    page = admin.post(PATH, form | {"act": "check"}).content.decode()
    assert texts.MANIFEST_ACCEPTED("1 line") in said(page)
    assert "value: heat" in said(page)
    assert cluster.get(DeviceTaintRule, "repair").spec == rule.spec
    assert admin.post(PATH, form | {"act": "save"}).headers["Location"] == PATH
    assert cluster.get(DeviceTaintRule, "repair").spec.taint.value == "heat"
    assert "Saved DeviceTaintRule repair." in words(admin, PATH)
    undo(admin, PATH)
    assert cluster.get(DeviceTaintRule, "repair").spec.taint.value == "fan"


def test_what_another_changed_elsewhere_in_it_is_merged_and_shown_before_it_is_saved(
    admin: Client, cluster: Cluster, rule: DeviceTaintRule
) -> None:
    form = opened(admin)
    changed_by_another(cluster, effect="NoExecute")
    form["text"] = form["text"].replace("value: fan", "value: heat")
    answer = admin.post(PATH, form | {"act": "save"})
    assert answer.status_code == 409
    assert texts.MANIFEST_MERGED in said(answer.content.decode())
    assert cluster.get(DeviceTaintRule, "repair").spec.taint.value == "fan"
    admin.post(PATH, form_of(answer.content.decode()) | {"act": "save"})
    taint = cluster.get(DeviceTaintRule, "repair").spec.taint
    assert (taint.value, taint.effect) == ("heat", "NoExecute")


def test_what_both_changed_is_asked_and_theirs_stands_until_mine_is_chosen(
    admin: Client, cluster: Cluster, rule: DeviceTaintRule
) -> None:
    form = opened(admin)
    changed_by_another(cluster, value="theirs")
    form["text"] = form["text"].replace("value: fan", "value: mine")
    page = admin.post(PATH, form | {"act": "save"}).content.decode()
    assert "Both changed 1 field" in said(page)
    assert texts.MANIFEST_CONFLICT("spec.taint.value fan") in said(page)
    merged = form_of(page)
    assert "value: theirs" in merged["text"]
    page = admin.post(PATH, merged | {"act": "merge", "take": "spec.taint.value"}).content.decode()
    assert texts.MANIFEST_MERGED_BY_CHOICE in said(page)
    again = form_of(page)
    assert "value: mine" in again["text"]
    assert cluster.get(DeviceTaintRule, "repair").spec.taint.value == "theirs"
    admin.post(PATH, again | {"act": "save"})
    assert cluster.get(DeviceTaintRule, "repair").spec.taint.value == "mine"


def test_a_status_that_was_told_meanwhile_is_no_conflict_and_is_kept(admin: Client, cluster: Cluster) -> None:
    cluster.create(make_node())
    path = "/yaml/nodes/node-1"
    form = opened(admin, path)
    node = cluster.node()
    cluster.update(structs.replace(node, status=structs.replace(node.status, allocatable={"cpu": "7"})))
    form["text"] = form["text"].replace("metadata:\n", "metadata:\n  annotations: {note: mine}\n", 1)
    assert admin.post(path, form | {"act": "save"}).status_code == 302
    after = cluster.node()
    assert after.metadata.annotations["note"] == "mine"
    assert after.status.allocatable == {"cpu": "7"}


#: what is typed -> (in the place of what, what is said of it)
WRONG = {
    "metadata: [": (None, "Line 1"),
    "name: other": ("name: repair", "The name stays repair"),
    "spec:\n  taints: {}\n": ("spec:\n", 'unknown field "spec.taints"'),
}


def test_what_cannot_be_saved_is_told_and_stays_in_the_editor(
    admin: Client, cluster: Cluster, rule: DeviceTaintRule
) -> None:
    form = opened(admin)
    for typed, (before, told) in WRONG.items():
        text = form["text"].replace(before, typed) if before else typed
        answer = admin.post(PATH, form | {"text": text, "act": "save"})
        assert answer.status_code == 422
        page = answer.content.decode()
        assert told in said(page)
        assert form_of(page)["text"].strip() == text.strip()
    assert cluster.get(DeviceTaintRule, "repair").spec == rule.spec


def test_who_may_not_see_or_change_it_does_not(viewer: Client, cluster: Cluster, rule: DeviceTaintRule) -> None:
    assert viewer.post(PATH, opened(viewer) | {"act": "save"}).status_code == 403
    cluster.create(make_claim("hidden", namespace="secret-lab"))
    mia = signed_in("mia", "namespace:mine")
    assert mia.get("/yaml/resourceclaims.resource.k8s.io/hidden?ns=secret-lab").status_code == 404
    assert viewer.get("/yaml/secrets/token?ns=default").status_code == 404
    assert "hidden" in words(viewer, "/yaml/resourceclaims.resource.k8s.io/hidden?ns=secret-lab")
