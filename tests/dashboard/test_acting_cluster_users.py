"""A mirror in the cluster that acts: each user's write is theirs there, whatever a request says of who sends it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client
from pytest_django.fixtures import Settings

from manciple.access import mirrored
from manciple.access.authentication.chain import OF_CLUSTER
from manciple.access.mirrored import ClusterRights
from manciple.api.verbs import elsewhere
from manciple.audit import trail
from manciple.audit.models import Entry
from manciple.mirror.acting import Acting
from manciple.mirror.failures import RemoteFailure
from manciple.mirror.naming import impersonating
from manciple.mirror.reviews import FRESH
from manciple.store.event_log import latest_revision
from manciple.wire.identity import AUTHENTICATED, MASTERS
from tests.acting import Scene, acting_mirror
from tests.dashboard.browsing import said, words
from tests.dashboard.test_acting_mirror import CORDON, OFFERED, noted_of
from tests.manciple.mirror.clusters import cluster, pod
from tests.manciple.mirror.reviewing import INVENTORY, ReviewingCluster, mirror_of
from tests.manciple.mirror.writable import Writable

pytestmark = pytest.mark.django_db

ACCOUNT_TOKEN = "the-service-accounts-own"


class Scenery(Scene):
    """With the cluster's answers about its users."""

    users: ReviewingCluster

    def enter(self, name: str, *groups: str, **more: Any) -> Client:
        client = Client()
        assert client.post("/login", {"token": self.users.token_of(name, *groups, **more)}).status_code == 302
        return client

    def sent(self) -> list[dict[str, list[str]]]:
        """Of each write: the headers of impersonation."""
        found = []
        for request in self.server.written:
            headers: dict[str, list[str]] = {}
            for name, value in request.headers_as_sent:
                if name.startswith("impersonate-"):
                    headers.setdefault(name, []).append(value)
            found.append(headers)
        return found


@pytest.fixture
def scene(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scenery]:
    made = cluster(("pods", pod("train", template="gpus")))
    with (
        Writable(made, rules="v1beta2", token=ACCOUNT_TOKEN) as server,
        acting_mirror(server, settings, monkeypatch) as scene,
    ):
        users, now = ReviewingCluster(), scene.now
        mirror_of(users, settings, monkeypatch, clock=lambda: now[0])
        for who in ("ola", "bo"):
            users.open(who, "team-a")
            for verb in ("get", "list", "watch"):
                users.allow(who, verb, *INVENTORY)
        for verb in ("create", "patch", "delete"):
            users.allow("ola", verb, "nodes", "deviceclasses", "devicetaintrules", "pods", "resourceclaims")
        mirrored.act_by(ClusterRights())
        elsewhere.value = Acting(scene.remote, named=impersonating, keep=scene.keep, clock=lambda: now[0])
        found = Scenery(
            **{name: getattr(scene, name) for name in ("server", "remote", "mirror", "acting", "rights", "now")}
        )
        found.users = users
        yield found


# In whose name --------------------------------------------------------------------------------------------------------


def test_a_write_is_theirs_with_all_that_the_cluster_said_of_them(scene: Scenery) -> None:
    ola = scene.enter("ola", "devs", "ou=ß,dc=lab", uid="u-1", extra={"Example.com/Scope": ["a", "b"]})
    ola.post("/nodes/n1/change", CORDON)
    node = scene.server.get("nodes", "", "n1")
    assert node is not None
    assert node["spec"]["unschedulable"] is True
    assert (
        scene.sent()
        == [
            {
                "impersonate-user": ["ola"],
                "impersonate-uid": ["u-1"],
                "impersonate-group": ["devs", "ou=ß,dc=lab"],
                "impersonate-extra-%45xample.com%2f%53cope": ["a", "b"],
            }
        ]
        * 2
    ), "the dry run and the act"
    tokens = {request.headers["Authorization"] for request in scene.server.written}
    assert tokens == {f"Bearer {ACCOUNT_TOKEN}"}, "their own token goes nowhere but to the review"
    scene.agree("nodes")


@pytest.mark.parametrize(
    "shown",
    [
        {"Impersonate-User": "root", "Impersonate-Group": MASTERS},
        {"Impersonate-Group": MASTERS},
        {"X-Remote-User": "root", "X-Remote-Group": MASTERS},
        {"Impersonate-Extra-scopes": "all"},
    ],
    ids=str,
)
def test_nobody_chooses_who_they_are_by_a_header_or_a_field(scene: Scenery, shown: dict[str, str]) -> None:
    ola = scene.enter("ola", "devs")
    ola.post("/nodes/n1/change", {**CORDON, "user": "root", "identity": "root", "as": "root"}, headers=shown)
    assert scene.sent() == [{"impersonate-user": ["ola"], "impersonate-group": ["devs"]}] * 2


@pytest.mark.parametrize("groups", [(), (MASTERS,), ("system:nodes", "system:serviceaccounts")], ids=str)
def test_groups_of_the_system_are_those_that_the_cluster_gave_and_no_others(
    scene: Scenery, groups: tuple[str, ...]
) -> None:
    scene.enter("ola", *groups).post("/nodes/n1/change", CORDON)
    assert [one.get("impersonate-group", []) for one in scene.sent()] == [list(groups)] * 2


UNCARRIED = ["x\r\nImpersonate-Group: system:masters", "x\n", " x", "x ", "\tx", "x\0", "x\u2028y", "\u00a0x", "x\x7f"]


@pytest.mark.parametrize("text", UNCARRIED, ids=ascii)
def test_what_no_header_carries_unchanged_is_not_sent(scene: Scenery, text: str) -> None:
    scene.users.allow(text, "list", *INVENTORY)
    scene.users.allow(text, "patch", "nodes")
    scene.users.open(text, "team-a")
    for user in (
        {"name": text, "groups": ()},
        {"name": "ola", "groups": (text,)},
        {"name": "ola", "groups": (), "uid": text},
        {"name": "ola", "groups": (), "extra": {"scopes": [text]}},
    ):
        client = scene.enter(user.pop("name"), *user.pop("groups"), **user)  # type: ignore[arg-type]
        client.post("/nodes/n1/change", CORDON)
    assert not scene.server.written
    found = scene.server.get("nodes", "", "n1")
    assert found is not None
    assert "unschedulable" not in found["spec"]


# What they may do -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", OFFERED)
def test_each_is_offered_what_the_cluster_lets_them_do(scene: Scenery, path: str) -> None:
    scene.users.allow("ola", "create", "pods", namespace="team-a")
    assert OFFERED[path] in words(scene.enter("ola"), path)
    assert OFFERED[path] not in words(scene.enter("bo"), path)


def test_whoever_may_not_is_refused_and_nothing_is_sent(scene: Scenery) -> None:
    bo = scene.enter("bo")
    for path in ("/nodes/n1/change", "/classes/new", "/taint-rules/new", "/pods/team-a/train/delete"):
        assert bo.post(path, CORDON).status_code == 403, path
    assert not scene.server.written


def test_a_right_that_is_taken_away_ends_within_seconds(scene: Scenery) -> None:
    ola = scene.enter("ola")
    ola.post("/nodes/n1/change", CORDON)
    done = len(scene.server.written)
    assert done
    scene.users.rights = {one for one in scene.users.rights if one[1] != "patch"}
    scene.now[0] += FRESH + 1
    assert ola.post("/nodes/n1/change", {"change": "uncordon"}).status_code == 403
    assert len(scene.server.written) == done


@pytest.mark.parametrize("ended", ["the token is revoked", "the cluster is away"])
def test_a_session_that_nobody_vouches_for_does_nothing(scene: Scenery, ended: str) -> None:
    ola = scene.enter("ola")
    if ended == "the token is revoked":
        scene.users.tokens.clear()
    else:
        scene.users.failure = RemoteFailure("connection refused", unreachable=True)
    scene.now[0] += OF_CLUSTER + FRESH + 1
    assert ola.post("/nodes/n1/change", CORDON).status_code in (302, 503)
    assert not scene.server.written


def test_a_token_that_becomes_somebody_elses_acts_for_neither(scene: Scenery) -> None:
    ola = scene.enter("ola")
    (token,) = scene.users.tokens
    scene.users.tokens[token] = {"username": "root", "groups": [MASTERS, AUTHENTICATED]}
    scene.now[0] += FRESH + 1
    assert ola.post("/nodes/n1/change", CORDON).status_code == 302
    assert not scene.server.written


def test_forms_of_other_pages_do_nothing(scene: Scenery) -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = scene.enter("ola").cookies
    for headers in ({}, {"Origin": "https://evil.example"}, {"X-CSRFToken": "x" * 32}):
        assert strict.post("/nodes/n1/change", CORDON, headers=headers).status_code == 403
    assert not scene.server.written


def test_the_api_of_the_mirror_acts_for_nobody(scene: Scenery) -> None:
    token, before = scene.users.token_of("ola"), latest_revision()
    body = json.dumps({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "mine"}})
    for more in ({}, {"Impersonate-User": "root"}):
        answer = Client().post(
            "/apis/resource.k8s.io/v1/deviceclasses",
            body,
            content_type="application/json",
            headers={"Authorization": f"Bearer {token}", **more},
        )
        assert answer.status_code == 403
    assert latest_revision() == before
    assert not scene.server.written


# What is said of it ---------------------------------------------------------------------------------------------------


def test_refusals_of_the_cluster_are_shown_as_received(scene: Scenery) -> None:
    why = 'groups "devs" is forbidden: User "system:serviceaccount:tools:mirror" cannot impersonate resource "groups"'
    scene.server.refuses = {"PATCH": (403, "Forbidden", why)}
    page = said(scene.enter("ola", "devs").post("/nodes/n1/change", CORDON, follow=True).content.decode())
    assert why in page
    scene.agree("nodes")


def test_the_trail_here_names_them_and_the_clusters_own_entry(scene: Scenery) -> None:
    scene.enter("ola").post("/nodes/n1/change", CORDON)
    trail.flush()
    (entry,) = Entry.objects.filter(resource="nodes", username="ola")
    assert (entry.name, entry.code) == ("n1", 200)
    assert noted_of(entry).endswith("200, Audit-Id audit-2")
