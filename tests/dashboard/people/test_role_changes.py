"""Roles are made, given and taken away on their pages, with the rights of whoever does it, and can be undone."""

from __future__ import annotations

import pytest
from django.test import Client

from manciple.access.kinds import roles
from manciple.access.kinds.roles import ClusterRole, PolicyRule, Role, RoleBinding, Subject
from manciple.store import objects
from manciple.wire.base import ObjectMeta
from manciple.wire.machinery import Namespace
from manciple.wire.resources import NAMESPACES, kind
from tests.dashboard import texts
from tests.dashboard.browsing import admin, said, signed_in, viewer, words
from tests.dashboard.people.test_roles import bind, make_role, user

__all__ = ["admin", "viewer"]

pytestmark = pytest.mark.django_db

NEW = {"name": "readers", "namespace": "", "verbs": "read", "resources": "pods, pods/log deviceclasses"}
READ = ("get", "list", "watch")


@pytest.fixture(autouse=True)
def lab(db: None) -> None:
    with objects.writing() as writer:
        meta = ObjectMeta(name="lab")
        writer.create(kind(NAMESPACES), Namespace(api_version="v1", kind="Namespace", metadata=meta))


def bindings(namespace: str = "lab") -> list[RoleBinding]:
    return [
        one
        for one in objects.listed(roles.ROLE_BINDING.resource, RoleBinding)[1]
        if one.metadata.namespace == namespace
    ]


def test_a_new_role_has_a_rule_for_each_api_group(admin: Client) -> None:
    answer = admin.post("/roles/new/make", NEW)
    assert answer.headers["location"] == "/roles/readers"
    _, found = objects.listed(roles.CLUSTER_ROLE.resource, ClusterRole)
    (made,) = [one for one in found if one.metadata.name == "readers"]
    assert made.rules == (
        PolicyRule(verbs=READ, api_groups=("",), resources=("pods", "pods/log")),
        PolicyRule(verbs=READ, api_groups=("resource.k8s.io",), resources=("deviceclasses",)),
    )
    assert texts.ROLE_WITHOUT_HOLDERS in words(admin, "/roles/readers")
    admin.post("/roles/new/make", NEW | {"namespace": "lab", "verbs": "write"})
    _, inside = objects.listed(roles.ROLE.resource, Role)
    assert "delete" in next(one for one in inside if one.metadata.name == "readers").rules[0].verbs


WRONG = (
    ({"resources": "pods, weather"}, texts.RESOURCE_MISSING("weather")),
    ({"name": "a/b"}, "Invalid value"),
    ({"name": ""}, "This field is required."),
)


def test_what_a_role_or_its_holder_cannot_be_is_told_at_its_field(admin: Client) -> None:
    for change, says in WRONG:
        answer = admin.post("/roles/new/make", NEW | change)
        assert answer.status_code == 422
        assert says in answer.content.decode()
    answer = admin.post("/roles/view/give", {"to": "ServiceAccount", "name": "robot", "namespace": "lab"})
    assert answer.status_code == 422
    assert "NAMESPACE:NAME." in said(answer.content.decode())


def test_a_role_is_given_taken_away_and_had_again(admin: Client) -> None:
    make_role("logs", "lab")
    page = "/roles/logs?ns=lab"
    given = {"to": "ServiceAccount", "name": "lab:robot", "namespace": "lab", "sure": "on"}
    assert admin.post("/roles/logs/give?ns=lab", given).status_code == 302
    (binding,) = bindings()
    assert binding.role_ref.kind == "Role"
    assert binding.subjects == (Subject(kind="ServiceAccount", name="robot", namespace="lab"),)
    assert "/access?user=system%3Aserviceaccount%3Alab%3Arobot" in admin.get(page).content.decode()
    taken = {
        "binding": binding.metadata.name,
        "where": "lab",
        "kind": "ServiceAccount",
        "name": "robot",
        "account": "lab",
    }
    assert admin.post("/roles/logs/take?ns=lab", taken).status_code == 302
    assert not bindings()
    assert texts.ROLE_TAKEN_AWAY("logs", "robot") in words(admin, page)
    assert admin.post("/roles/logs/take?ns=lab", taken).status_code == 404


def test_taking_a_role_from_one_leaves_it_to_the_others_of_the_binding(admin: Client) -> None:
    bind("view", "lab", user("bob"), user("eve"))
    taken = {"binding": "view-bound", "where": "lab", "kind": "User", "name": "bob", "account": ""}
    assert admin.post("/roles/view/take", taken).status_code == 302
    assert [one.name for one in bindings()[0].subjects] == ["eve"]


def test_nobody_gives_more_than_they_may() -> None:
    binder = PolicyRule(verbs=("list", "create"), api_groups=(roles.GROUP,), resources=("roles", "rolebindings"))
    make_role("binder", "lab", binder)
    make_role("strong", "lab", PolicyRule(verbs=("delete",), api_groups=("",), resources=("pods",)))
    bind("binder", "lab", user("len"), to="Role")
    len_ = signed_in("len")
    answer = len_.post("/roles/strong/give?ns=lab", {"to": "User", "name": "len", "namespace": "lab"})
    assert answer.status_code == 422
    assert "attempting to grant" in answer.content.decode()


#: (kind, what is typed) -> what is meant
MISTYPED = {
    ("User", "vik"): "vic",
    ("Group", "manciple:viewer"): "manciple:viewers",
    ("Group", "namespace:labb"): "namespace:lab",
    ("ServiceAccount", "labb:default"): "lab",
    ("User", "nobody-like-this"): "",
}


@pytest.mark.parametrize("case", MISTYPED)
def test_a_role_is_given_to_a_name_that_nobody_has_only_by_who_is_sure(
    admin: Client, viewer: Client, case: tuple[str, str]
) -> None:
    make_role("logs", "lab")
    form = {"to": case[0], "name": case[1], "namespace": "lab"}
    answer = admin.post("/roles/logs/give?ns=lab", form)
    assert (answer.status_code, answer.context["form"].doubts) == (422, True)
    (message,) = answer.context["form"].errors["name"]
    meant = MISTYPED[case]
    assert (f"Did you mean {meant}?" in message) is bool(meant), message
    assert bindings() == []
    assert admin.post("/roles/logs/give?ns=lab", form | {"sure": "on"}).status_code == 302
    assert len(bindings()) == 1
