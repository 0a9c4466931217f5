"""Roles, who has them, and why somebody may do something."""

from __future__ import annotations

import re
from urllib.parse import urlencode

import pytest
from django.test import Client

from dashboard.people.roles import find_kind, in_short, verbs_in_words
from manciple.access.kinds import roles
from manciple.access.kinds.roles import (
    ClusterRoleBinding,
    PolicyRule,
    Role,
    RoleBinding,
    RoleRef,
    Subject,
)
from manciple.store import objects
from manciple.wire.base import ObjectMeta
from tests.builders import make_namespace
from tests.dashboard import texts
from tests.dashboard.browsing import admin, signed_in, viewer, words
from tests.scheduling.cluster import Cluster

__all__ = ["admin", "viewer"]

pytestmark = pytest.mark.django_db

LOGS = PolicyRule(verbs=("get",), api_groups=("",), resources=("pods/log",), resource_names=("web",))


def user(name: str) -> Subject:
    return Subject(kind="User", api_group=roles.GROUP, name=name)


def group(name: str) -> Subject:
    return Subject(kind="Group", api_group=roles.GROUP, name=name)


def make_role(name: str, namespace: str, *rules: PolicyRule) -> None:
    kind, meta = roles.ROLE, ObjectMeta(name=name, namespace=namespace)
    with objects.writing() as writer:
        writer.create(kind, Role(api_version=kind.api_version, kind=kind.kind, metadata=meta, rules=rules))


def bind(role: str, namespace: str, *subjects: Subject, to: str = "ClusterRole") -> None:
    """Everywhere without a namespace."""
    kind = roles.ROLE_BINDING if namespace else roles.CLUSTER_ROLE_BINDING
    type_ = RoleBinding if namespace else ClusterRoleBinding
    binding = type_(
        api_version=kind.api_version,
        kind=kind.kind,
        metadata=ObjectMeta(name=f"{role}-bound", namespace=namespace),
        subjects=subjects,
        role_ref=RoleRef(api_group=roles.GROUP, kind=to, name=role),
    )
    with objects.writing() as writer:
        writer.create(kind, binding)


@pytest.fixture
def bound() -> None:
    make_role("logs", "lab", LOGS)
    robot = Subject(kind="ServiceAccount", name="robot", namespace="lab")
    bind("logs", "lab", user("bob"), robot, to="Role")
    bind("view", "", group("readers"))
    bind("gone", "lab", user("bob"))


# Roles ----------------------------------------------------------------------------------------------------------------


NARROWED = {
    "?ns=lab": (["logs"], ["view"]),
    "?ns=Everywhere": (["view"], ["logs"]),
    "?q=LOG": (["logs"], ["view"]),
    "?q=nothing": (["No role matches"], ["logs"]),
    "?sort=-held&page=9": (["logs", "view"], []),
}


@pytest.mark.usefixtures("bound")
def test_the_list_says_what_each_role_allows_and_how_many_have_it_and_is_narrowed(admin: Client) -> None:
    text = words(admin, "/roles")
    assert texts.ROLE_ROW("logs", "lab", 2) in text
    assert "cluster-admin default everywhere Everything 1" in text
    assert "system:node" not in text
    assert "system:node" in words(admin, "/roles?system=1")
    assert "system:node" in words(admin, "/roles?q=system:node")
    for query, (shown, hidden) in NARROWED.items():
        page = admin.get(f"/roles{query}").content.decode()
        assert [name for name in (*shown, *hidden) if f">{name}<" in page] == shown, query


@pytest.mark.usefixtures("bound")
def test_a_role_tells_its_rules_and_who_has_it_where(admin: Client) -> None:
    text = words(admin, "/roles/logs?ns=lab")
    assert "get pods/log core web" in text
    assert texts.ROLE_HOLDER_USER("bob", "lab", "logs-bound") in text
    assert texts.ROLE_HOLDER_SERVICE_ACCOUNT("robot", "lab", "lab") in text
    page = admin.get("/roles/logs?ns=lab").content.decode()
    assert "/access?user=system%3Aserviceaccount%3Alab%3Arobot" in page
    assert "readers group , everywhere" in words(admin, "/roles/view").replace("group,", "group ,")
    for missing in ("/roles/logs", "/roles/logs?ns=other", "/roles/none"):
        assert admin.get(missing).status_code == 404


def test_a_gathered_role_names_those_that_give_it_its_rules(admin: Client) -> None:
    text = words(admin, "/roles/view")
    assert "rbac.authorization.k8s.io/aggregate-to-view=true" in text
    assert "system:aggregate-to-view" in text
    assert "Gathered" not in words(admin, "/roles/cluster-admin")
    assert texts.ROLE_HOLDER_GROUP("namespace:NAME") in words(admin, "/roles/edit")


@pytest.mark.usefixtures("bound")
def test_roles_are_shown_to_whoever_may_list_them_and_holders_to_whoever_may_list_bindings(viewer: Client) -> None:
    for path in ("/roles", "/roles/view", "/access?user=bob"):
        refused = viewer.get(path)
        assert refused.status_code == 403
        assert 'aria-label="Main"' in refused.content.decode(), path
        assert "ask an administrator" in refused.content.decode(), path

    make_role("sees", "lab", PolicyRule(verbs=("list",), api_groups=(roles.GROUP,), resources=("roles",)))
    bind("sees", "lab", user("len"), to="Role")
    len_ = signed_in("len")
    text = words(len_, "/roles")
    assert re.search(r" logs \w+ lab .* nobody ", text)
    assert "view" not in text.partition("Held by")[2]
    assert len_.get("/roles/view").status_code == 404
    assert "bob" not in words(len_, "/roles/logs?ns=lab")


# What somebody may do -------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("bound")
def test_what_somebody_may_do_is_told_by_namespace_with_its_source(admin: Client) -> None:
    text = words(admin, "/access?user=bob")
    assert "In lab: logs" in text
    assert texts.RIGHT_BY_BINDING("logs-bound/lab", "logs", "bob") in text
    assert texts.ROLE_MISSING in text
    assert text.index("In lab: logs") < text.index(texts.RIGHT_OF_ALL_USERS) < text.index("system:discovery: ")
    assert "Everywhere: view" not in text
    assert "Everywhere: view" in words(admin, "/access?user=bob&groups=readers")
    assert "In lab: logs" in words(admin, "/access?user=system:serviceaccount:lab:robot")


def test_people_are_asked_about_with_the_groups_that_they_are_in(admin: Client) -> None:
    signed_in("mia", "namespace:lab")
    assert "In lab: edit" in words(admin, "/access?user=mia")
    assert "may do everything" in words(admin, "/access?user=ada")


QUESTIONS = {
    "a rule of a role": ({"verb": "get", "resource": "pods/log", "ns": "lab", "name": "web"}, "Yes", "logs-bound/lab"),
    "the rule itself": (
        {"verb": "get", "resource": "pods/log", "ns": "lab", "name": "web"},
        "Yes",
        "pods/log, only web",
    ),
    "another object": (
        {"verb": "get", "resource": "pods/log", "ns": "lab", "name": "db"},
        "No",
        "May bob get pods/log db in lab?",
    ),
    "another namespace": ({"verb": "get", "resource": "pods/log", "ns": "other", "name": "web"}, "No", "view"),
    "a short name": ({"verb": "create", "resource": "po", "ns": "lab"}, "No", "May bob create pods in lab?"),
    "whom to ask": ({"verb": "create", "resource": "pods", "ns": "lab"}, "No", "Ask ada for a binding"),
    "a group": ({"verb": "list", "resource": "pods", "ns": "lab", "groups": "readers"}, "Yes", 'Group "readers"'),
    "a path": ({"verb": "get", "resource": "/healthz"}, "Yes", "/healthz"),
    "what is not served": ({"verb": "get", "resource": "unicorns.example.org"}, "No", "is served here"),
    "the cluster's scope": ({"verb": "list", "resource": "nodes", "ns": "lab"}, "No", "May bob list nodes?"),
}


@pytest.mark.usefixtures("bound")
def test_a_question_is_answered_with_the_rule_or_with_whom_to_ask(admin: Client) -> None:
    for case, (asked, verdict, told) in QUESTIONS.items():
        text = words(admin, f"/access?{urlencode({'user': 'bob', **asked})}")
        assert ("? ✓ Yes " in text, "? ! No " in text) == (verdict == "Yes", verdict == "No"), case
        assert told in text, case


def test_an_incomplete_question_says_what_is_missing(admin: Client) -> None:
    for query in ("user=", "user=bob&verb=get", "user=bob&resource=pods", f"user={'b' * 300}"):
        answer = admin.get(f"/access?{query}")
        assert (answer.status_code, b"field-error" in answer.content) == (422, True), query


KINDS = {"pods": "pods", "po": "pods", "Pod": "pods", "deviceclasses.resource.k8s.io": "deviceclasses", "pods.x": ""}


@pytest.mark.parametrize(("named", "plural"), KINDS.items())
def test_a_kind_is_found_under_each_of_its_names(named: str, plural: str) -> None:
    found = find_kind(named)
    assert (found.plural if found else "") == plural


# Words ----------------------------------------------------------------------------------------------------------------

VERBS = {
    ("*",): "do anything",
    ("get", "list", "watch"): "read",
    ("create", "delete", "deletecollection", "patch", "update", "get", "list", "watch"): "read, write",
    ("get", "list"): "get, list",
    ("bind", "get", "list", "watch"): "read, bind",
}


@pytest.mark.parametrize(("verbs", "expected"), VERBS.items())
def test_verbs_that_belong_together_are_one_word(verbs: tuple[str, ...], expected: str) -> None:
    assert verbs_in_words(verbs) == expected


def rule(verb: str, *resources: str) -> PolicyRule:
    return PolicyRule(verbs=(verb,), api_groups=("",), resources=resources)


SHORT = {
    "everything": ((PolicyRule(verbs=("*",), api_groups=("*",), resources=("*",)),), "Everything"),
    "nothing": ((), "Nothing"),
    "reading": ((rule("get", "pods", "pods/log"),), "Reads pods"),
    "both": ((rule("get", "pods", "nodes"), rule("patch", "pods")), "Writes pods; reads nodes"),
    "many": ((rule("get", "a", "b", "c", "d", "e"),), "Reads a, b, c and 2 more"),
    "paths": ((PolicyRule(verbs=("get",), non_resource_urls=("/a", "/b")),), "Asks for /a and /b"),
}


@pytest.mark.parametrize(("rules", "expected"), SHORT.values(), ids=SHORT.keys())
def test_a_role_in_a_sentence(rules: tuple[PolicyRule, ...], expected: str) -> None:
    assert in_short(rules) == expected


#: who, and where -> whether something that does not exist is named, and what was meant
ASKED_ABOUT = {
    "user=vic": ("", ""),
    "user=vik": ("vik", "vic"),
    "user=nobody-like-this": ("nobody-like-this", ""),
    "user=system:node:none": ("none", ""),
    "user=system:serviceaccount:lab:none": ("none", ""),
    "user=system:serviceaccount:labb:x": ("labb", "lab"),
    "user=system:kube-scheduler": ("", ""),
    "user=vic&ns=labb&verb=get&resource=pods": ("labb", "lab"),
    "user=vic&groups=manciple:viewer": ("manciple:viewer", "manciple:viewers"),
}


@pytest.mark.parametrize("query", ASKED_ABOUT)
def test_access_says_so_where_what_is_asked_about_does_not_exist(
    admin: Client, viewer: Client, cluster: Cluster, query: str
) -> None:
    cluster.create(make_namespace("lab"))
    named, meant = ASKED_ABOUT[query]
    missing = admin.get(f"/access?{query}").context["missing"]
    assert [named in one for one in missing] == ([True] if named else [])
    assert (f"Did you mean {meant}?" in "".join(missing)) is bool(meant)


def test_a_question_with_a_verb_or_resource_that_no_request_has_says_what_was_probably_meant(admin: Client) -> None:
    def doubts(verb: str, resource: str) -> list[str]:
        address = f"/access?user=mia&verb={verb}&resource={resource}"
        return [one.rpartition("Did you mean ")[2] for one in admin.get(address).context["doubts"]]

    assert doubts("craete", "podz") == ["create?", "pods?"]
    assert doubts("create", "pods/log") == doubts("impersonate", "serviceaccounts") == doubts("get", "/healthz") == []
