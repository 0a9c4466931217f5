"""The pages of namespaces as the server draws them, and what administrators do there."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

from django.test import Client

from claims.admission import ADMIN_ACCESS_LABEL
from claims.kinds.pods import Pod
from dashboard.people.namespaces import AccountToken, read_namespaces
from manciple.access.authentication.chain import identify_token
from manciple.access.kinds.roles import Subject
from manciple.access.kinds.secrets import Secret
from manciple.access.kinds.service_accounts import ServiceAccount
from manciple.api import namespaces
from manciple.audit import trail
from manciple.audit.models import Entry
from manciple.people import ALL_NAMESPACES, Person
from manciple.wire.base import LocalObjectReference, ObjectMeta
from manciple.wire.identity import MASTERS, Identity
from manciple.wire.machinery import Namespace
from tests.builders import make_allocation, make_claim, make_namespace, make_pod, make_result
from tests.dashboard import texts
from tests.dashboard.browsing import admin, signed_in, viewer, words
from tests.dashboard.people.test_roles import bind
from tests.scheduling.cluster import Cluster

__all__ = ["admin", "viewer"]


EVERYTHING = Person(Identity("ada", (MASTERS,)), ALL_NAMESPACES)


def _fill(cluster: Cluster, name: str = "lab") -> None:
    """A namespace with a device held, a pod on it, and a pod that waits."""
    cluster.create(make_namespace(name))
    cluster.with_gpus("node-1", each=2)
    cluster.create(make_claim("training", namespace=name))
    cluster.create(make_pod("web", namespace=name, claims={"gpu": "training"}))
    cluster.create(make_pod("late", namespace=name, claims={"gpu": "nowhere"}))
    cluster.settle()


def test_a_namespace_is_a_row_and_a_page_with_what_it_holds(viewer: Client, cluster: Cluster) -> None:
    _fill(cluster)
    text = words(viewer, "/namespaces")
    assert texts.NAMESPACE_ROW("lab 1 gpu.example.com 1 1", 1, 1) in text
    assert texts.WHY_PODS_WAIT_LINK in text
    assert "claim" in text.partition("1 starting")[2]
    (cause,) = (found for found, _ in read_namespaces(EVERYTHING, name="lab")[0].causes)
    text = words(viewer, "/namespaces/lab")
    assert texts.NAMESPACE_SUMMARY(1, 1, 2, 1) in text
    assert f"1 {cause.title} Show 1 pod".replace("`", "") in text
    page = viewer.get("/namespaces/lab").content.decode()
    assert 'href="/pods?ns=lab"' in page
    assert 'href="/claims?ns=lab"' in page


def test_a_namespace_that_is_not_there_or_not_to_be_seen_is_not_found(viewer: Client, cluster: Cluster) -> None:
    cluster.create(make_namespace("secret"))
    mia = signed_in("mia", "namespace:lab")
    assert viewer.get("/namespaces/secret").status_code == 200
    assert mia.get("/namespaces/secret").status_code == 404
    assert "secret" not in words(mia, "/namespaces")


# What administrators do ----------------------------------------------------------------------------------------------


def test_a_new_namespace_is_made_and_opened(admin: Client, cluster: Cluster) -> None:
    assert admin.post("/namespaces", {"name": "fresh"}).headers["Location"] == "/namespaces/fresh"
    assert "Created namespace fresh." in words(admin, "/namespaces/fresh")
    assert "fresh" in cluster.all_namespaces()


WRONG = {"Not A Name": "Invalid name:", "fresh": "Namespace fresh already exists. Choose another name."}


def test_a_name_that_is_refused_stands_in_the_form_with_why(admin: Client, cluster: Cluster) -> None:
    cluster.create(make_namespace("fresh"))
    for name, why in WRONG.items():
        answer = admin.post("/namespaces", {"name": name})
        assert answer.status_code == 422
        assert why in answer.content.decode()
        assert f'value="{name}"' in answer.content.decode()
        assert "Invalid value" not in answer.content.decode(), "it stands beside the field"


def test_admin_access_is_explained_then_opened_then_closed(admin: Client, cluster: Cluster) -> None:
    cluster.create(make_namespace("lab", labels={"team": "a"}))
    assert texts.ADMIN_ACCESS_QUESTION("lab") in words(admin, "/namespaces/lab?admin=1")
    admin.post("/namespaces/lab/change", {"admin_access": "true"})
    assert cluster.all_namespaces()["lab"].metadata.labels[ADMIN_ACCESS_LABEL] == "true"
    assert "admin access" in words(admin, "/namespaces")
    admin.post("/namespaces/lab/change", {"admin_access": "false"})
    labels = cluster.all_namespaces()["lab"].metadata.labels
    assert ADMIN_ACCESS_LABEL not in labels
    assert labels["team"] == "a"


def test_a_deletion_counts_what_goes_first(admin: Client, cluster: Cluster) -> None:
    _fill(cluster)
    text = words(admin, "/namespaces/lab?delete=1")
    assert "Delete namespace lab?" in text
    assert "2 Pods, " in text
    assert "1 ResourceClaim" in text
    assert "and 1 that waits." in text
    assert "1 device: 1 of gpu.example.com" in text
    assert "lab" in cluster.all_namespaces()
    answer = admin.post("/namespaces/lab/delete")
    assert answer.headers["Location"] == "/namespaces/lab"
    text = words(admin, "/namespaces/lab")
    assert "Being deleted" in text
    assert "Delete…" not in text
    for name in ("web", "late"):
        pod = cluster.find(Pod, name, "lab")
        assert pod is not None
        cluster.delete(pod)
    cluster.later(6)
    cluster.settle()
    namespaces.sweep(cluster.now)
    assert "lab" not in cluster.all_namespaces()


def test_an_empty_namespace_goes_at_once_unless_the_system_needs_it(admin: Client, cluster: Cluster) -> None:
    cluster.create(make_namespace("lab"))
    cluster.create(make_namespace("default"))
    assert admin.post("/namespaces/lab/delete").headers["Location"] == "/namespaces"
    assert "Delete…" not in words(admin, "/namespaces/default")
    assert admin.post("/namespaces/default/delete").status_code == 422
    assert {"lab", "default"} & set(cluster.all_namespaces()) == {"default"}


def test_what_is_held_where_no_namespace_is_is_told(viewer: Client, cluster: Cluster) -> None:
    cluster.with_gpus()
    cluster.create_allocated(make_claim("lost", namespace="ghost"), make_allocation(make_result("gpu-0")))
    cluster.delete(cluster.get(Namespace, "ghost"))
    assert texts.CLASS_MISSING_ROW("ghost", 1) in words(viewer, "/namespaces")


# Service accounts -----------------------------------------------------------------------------------------------------


def _account(name: str, **members: Any) -> ServiceAccount:
    meta = ObjectMeta(name=name, namespace="lab")
    return ServiceAccount(api_version="v1", kind="ServiceAccount", metadata=meta, **members)


def _accounts(cluster: Cluster) -> None:
    cluster.create(make_namespace("lab"))
    cluster.create(_account("idle", automount_service_account_token=False))
    cluster.create(_account("robot", image_pull_secrets=(LocalObjectReference(name="registry"),)))
    secret = Secret(api_version="v1", kind="Secret", metadata=ObjectMeta(name="registry", namespace="lab"))
    cluster.create(secret)
    robot = Subject(kind="ServiceAccount", name="robot", namespace="lab")
    bind("edit", "lab", robot)
    bind("view", "", robot)


def test_service_accounts_are_told_with_what_bindings_give_to_them_to_whoever_may_list_these(
    admin: Client, viewer: Client, cluster: Cluster
) -> None:
    _accounts(cluster)
    cluster.create(make_pod("web", namespace="lab"))
    text = words(admin, "/namespaces/lab")
    assert texts.ACCOUNT_WITHOUT_TOKEN_OR_ROLE("idle") in text
    assert texts.ACCOUNT_WITH_ROLES("robot", "registry") in text
    assert 'href="/access?user=system%3Aserviceaccount%3Alab%3Arobot"' in admin.get("/namespaces/lab").content.decode()
    looking, working = words(viewer, "/namespaces/lab"), words(signed_in("mia", "namespace:lab"), "/namespaces/lab")
    assert ("Secret 1" in looking, "Secret 1" in working) == (False, True), "no number of what one may not list"
    assert "Pod 1" in looking
    assert texts.ACCOUNT_WITHOUT_ROLE("robot", "registry") in looking, "view shows no bindings"


def test_a_token_of_an_account_is_made_by_a_button_shown_once_and_audited(admin: Client, cluster: Cluster) -> None:
    _accounts(cluster)
    assert "kubectl" not in words(admin, "/namespaces/lab")
    for account, lifetime, told in (
        ("gone", "3600", "gone does not exist"),
        ("robot", "5", "5 is not one of the available choices"),
    ):
        refused = admin.post("/namespaces/lab/tokens", {"account": account, "lifetime": lifetime})
        assert (refused.status_code, refused.context["token"]) == (422, None)
        assert told in refused.content.decode()
    before = int(time.time())
    answer = admin.post("/namespaces/lab/tokens", {"account": "robot", "lifetime": "3600"})
    token: AccountToken = answer.context["token"]
    assert token.text in answer.content.decode()
    assert "no-store" in answer.headers["Cache-Control"]
    found = identify_token(token.text)
    assert found is not None
    assert found.identity.name == "system:serviceaccount:lab:robot"
    assert 3600 <= datetime.fromisoformat(token.expires).timestamp() - before < 3700
    assert token.text not in admin.get("/namespaces/lab").content.decode()
    trail.flush()
    row = Entry.objects.latest("at")
    assert (row.resource, row.subresource, row.namespace, row.name) == ("serviceaccounts", "token", "lab", "robot")


# Who works in it -----------------------------------------------------------------------------------------------------


def test_administrators_see_who_works_in_a_namespace_and_invite_into_it(
    admin: Client, viewer: Client, cluster: Cluster
) -> None:
    cluster.create(make_namespace("lab"))
    signed_in("bob", "namespace:lab")
    signed_in("eve", "namespace:other")
    context = admin.get("/namespaces/lab").context
    assert context["members"] == [("bob", "/people?who=bob")]
    people = admin.get(context["invite_url"]).context
    assert people["invitation"]["groups"].value() == "namespace:lab"
    assert people["table"].told == "1 person"
    assert viewer.get("/namespaces/lab").context["members"] is None
