"""Pages for users of a mirrored cluster who may read one namespace: nothing on any page is named of another.

On the demo's laboratory, which has incidents, leaked claims, evictions and waits of many namespaces. What a person may
see of nodes and devices says who holds them only by "another namespace".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from django.test import Client
from pytest_django.fixtures import Settings

from manciple import gaps
from manciple.access import cluster_users
from manciple.processes.demolab.pages import every_page
from manciple.store import objects
from manciple.wire.registry import registry
from manciple.wire.resources import NAMESPACES, NODES, kind
from tests.examples import sample
from tests.laboratory import furnish
from tests.manciple.mirror.reviewing import INVENTORY, ReviewingCluster, mirror_of

MINE = "nlp-lab"
#: A shorter name may be a word; and these are words of the pages' own.
SHORTEST, WORDS = 6, {"kubernetes", "vision"}
#: Every cluster has its controllers there.
CONTROLLER = re.compile(r"system:serviceaccount:kube-system:[a-z-]+-controller")


@pytest.fixture
def cluster(db: None, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> ReviewingCluster:
    furnish()
    monkeypatch.setattr(cluster_users, "PATIENCE", 120.0)
    made = ReviewingCluster()
    for who in ("nora", "noel"):
        made.open(who, MINE)
    for verb in ("get", "list", "watch"):
        made.allow("nora", verb, *INVENTORY)
    mirror_of(made, settings, monkeypatch)
    monkeypatch.setattr(gaps, "sources", [])  # all of it was copied
    return made


def entered(cluster: ReviewingCluster, name: str) -> Client:
    client = Client()
    assert client.post("/login", {"token": cluster.token_of(name)}).status_code == 302
    return client


def names_of_others() -> set[str]:
    """Of all objects of other namespaces, and of these, but for names that something else has, too."""
    theirs, known = set[str](), {one.name for one in objects.list(kind(NODES)).items}
    for one in registry:
        for stored in objects.list(one).items:
            place = stored.name if one.resource == NAMESPACES else stored.namespace
            (theirs if place not in ("", MINE) else known).add(stored.name)
    return {name for name in theirs - known - WORDS if len(name) >= SHORTEST}


def mentioned(names: set[str], page: str) -> set[str]:
    """Those of the names that stand in it, as words of their own."""
    return names & set(re.findall(r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?", CONTROLLER.sub("", page)))


def content_of(answer: object) -> str:
    if getattr(answer, "streaming", False):
        return b"".join(answer.streaming_content).decode(errors="replace")  # type: ignore[attr-defined]
    return answer.content.decode(errors="replace")  # type: ignore[attr-defined, no-any-return]


def leaks(client: Client, names: set[str]) -> Iterator[tuple[str, set[str]]]:
    for page in sample(every_page(), 60):
        answer = client.get(page.path)
        asked = mentioned(names, page.path.replace("/", " ").replace("=", " ").replace("&", " ").replace("%2F", " "))
        if found := mentioned(names, content_of(answer)) - asked:
            yield page.path, found


@pytest.mark.parametrize("who", ["nora", "noel"], ids=["who may list nodes and devices", "who may not"])
def test_no_page_names_anything_of_another_namespace(cluster: ReviewingCluster, who: str) -> None:
    names = names_of_others()
    assert len(names) > 100
    client = entered(cluster, who)
    assert not dict(leaks(client, names))


def test_the_question_finds_names_where_they_may_be_seen(cluster: ReviewingCluster) -> None:
    cluster.allow("vera", "list", "*")
    client = entered(cluster, "vera")
    names = names_of_others()
    assert mentioned(names, content_of(client.get("/pods")))
    assert mentioned(names, content_of(client.get("/claims.csv")))


def test_a_person_of_one_namespace_is_told_why_their_pod_waits_and_not_for_whom(cluster: ReviewingCluster) -> None:
    client = entered(cluster, "nora")
    page = content_of(client.get("/devices"))
    assert "another namespace" in page or "other namespaces" in page


def test_nodes_are_named_to_those_who_may_list_them(cluster: ReviewingCluster) -> None:
    shown = {}
    for who in ("nora", "noel"):
        cluster.open(who, "climate-ml")
        answer = entered(cluster, who).get("/pods/climate-ml/downscale-era5-full-1")
        assert "Why it waits" in content_of(answer)
        shown[who] = "Per node" in content_of(answer)
    assert shown == {"nora": True, "noel": False}
