"""`/access` in a mirror: what its cluster answers for whoever is signed in, and nothing of others."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from django.test import Client
from pytest_django.fixtures import Settings

from dashboard.people import own_rights
from manciple.access import mirrored
from manciple.access.authorization import Attributes, Decision
from manciple.access.mirrored import OWNERS, ClusterRights
from manciple.mirror.failures import RemoteFailure
from manciple.wire.identity import Identity
from tests.dashboard import texts
from tests.dashboard.browsing import signed_in, words
from tests.manciple.mirror.reviewing import INVENTORY, ReviewingCluster, mirror_of
from tests.mirrors import PROD, become_mirror

pytestmark = pytest.mark.django_db


@pytest.fixture
def cluster(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> ReviewingCluster:
    made = ReviewingCluster()
    made.open("ann", "team-a")
    made.allow("ann", "delete", "pods", namespace="team-a")
    made.allow("ann", "patch", "nodes")
    mirror_of(made, settings, monkeypatch)
    return made


def entered(cluster: ReviewingCluster, name: str, *groups: str) -> Client:
    client = Client()
    assert client.post("/login", {"token": cluster.token_of(name, *groups)}).status_code == 302
    return client


def rights(client: Client, query: str = "") -> dict[str, str]:
    """resource -> what is allowed."""
    page = client.get(f"/access{query}").content.decode()
    found = re.findall(r"<dt>([^<]+)</dt>\s*<dd>\s*(.*?)\s*</dd>", page, re.DOTALL)
    return {resource: re.sub(r"<[^>]*>", "", said).strip() for resource, said in found}


@pytest.mark.parametrize("acts", [True, False])
def test_a_user_sees_what_the_cluster_allows_whether_or_not_this_mirror_does_it(
    cluster: ReviewingCluster, acts: bool
) -> None:
    mirrored.act_by(ClusterRights() if acts else None)
    try:
        found = rights(entered(cluster, "ann", "devs"), "?ns=team-a")
    finally:
        mirrored.act_by(None)
    assert found["pods"] == "list, delete"
    assert found["resourceclaims.resource.k8s.io"] == "list"
    assert found["nodes"] == "change"
    assert found["deviceclasses.resource.k8s.io"] == "Nothing"


def test_another_namespace_is_another_answer(cluster: ReviewingCluster) -> None:
    ann = entered(cluster, "ann")
    assert rights(ann, "?ns=team-b")["pods"] == "Nothing"
    assert rights(ann, "?ns=")["pods"] == "Nothing", "in all of them"
    assert "team-b" not in words(ann, "/access")
    words(ann, "/access?ns=No+Name", 422)


def test_a_stranger_is_told_that_they_may_do_nothing(cluster: ReviewingCluster) -> None:
    found = rights(entered(cluster, "eve"))
    assert set(found.values()) == {"Nothing"}
    assert len(found) == len(own_rights.OF_CLUSTER) + len(own_rights.OF_NAMESPACES)


def test_nobody_asks_about_others(cluster: ReviewingCluster) -> None:
    cluster.allow("root", "list", *INVENTORY)
    ann = entered(cluster, "ann")
    cluster.asked.clear()
    page = ann.get("/access?user=root&groups=system:masters&verb=list&resource=secrets").content.decode()
    assert "root" not in page
    assert {spec["user"] for kind, spec in cluster.asked if kind == "SubjectAccessReview"} == {"ann"}


def test_people_and_roles_say_why_they_are_not_here(cluster: ReviewingCluster) -> None:
    ann = entered(cluster, "ann")
    assert f"mirror of {PROD}" in words(ann, "/people", 403)
    assert "/access" in ann.get("/people").content.decode()


def test_of_a_cluster_that_does_not_answer_nothing_is_said(cluster: ReviewingCluster) -> None:
    ann = entered(cluster, "ann")

    def breaks() -> None:
        if cluster.asked[-1][1].get("resourceAttributes", {}).get("verb") == "create":
            cluster.failure = RemoteFailure("connection refused", unreachable=True)

    cluster.meanwhile = breaks
    assert "connection refused" in words(ann, "/access")


def test_a_slow_cluster_is_not_waited_for_without_end(
    cluster: ReviewingCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = entered(cluster, "ann")
    monkeypatch.setattr(own_rights, "PATIENCE", -1.0)
    assert set(rights(ann).values()) == {texts.RIGHT_NOT_ANSWERED}


# On a laptop ----------------------------------------------------------------------------------------------------------


class Some(ClusterRights):
    def decide(self, identity: Identity, wanted: Attributes) -> Decision:
        return Decision(OWNERS in identity.groups and (wanted.verb, wanted.resource) == ("patch", "nodes"))


@pytest.fixture
def laptop(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    become_mirror(settings, monkeypatch)
    mirrored.ask_for_owner(Some())
    yield
    mirrored.ask_for_owner(ClusterRights())


def test_the_owner_sees_what_their_credential_may_do(laptop: None) -> None:
    found = rights(signed_in("ola", OWNERS))
    assert found["nodes"] == "change"
    assert found["pods"] == "Nothing"


def test_others_on_that_machine_have_none(laptop: None) -> None:
    assert set(rights(signed_in("vic")).values()) == {"Nothing"}
