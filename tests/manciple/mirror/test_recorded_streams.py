"""What a real API server sent: lists in every version, a watch, and a watch that begins with the state."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from inventory.kinds import gates
from manciple.mirror.sources import Reach
from manciple.store.models import Event
from tests.indexes import assert_rebuilt_the_same
from tests.manciple.mirror.clusters import remote_of
from tests.manciple.mirror.living import KINDS, Living, with_unknown_fields
from tests.manciple.mirror.replay import Document
from tests.manciple.mirror.test_copying import Mirror, kept, stored
from tests.manciple.mirror.test_versions import VERSIONS, lists

pytestmark = pytest.mark.django_db

RECORDED = Path(__file__).parents[2] / "conformance_data" / "remote_streams.json"
LISTED = ("nodes", "pods", "resourceslices", "resourceclaims")


@cache
def recorded() -> dict[str, list[Document]]:
    streams: dict[str, list[Document]] = json.loads(RECORDED.read_text())
    return streams


@pytest.fixture
def server() -> Iterator[Living]:
    with gates.using(), Living() as server:
        yield server


def plays(server: Living, name: str, path: str) -> None:
    """The next watches of the path are the recorded one."""
    lines = [json.dumps(event).encode() + b"\n" for event in recorded()[name]]
    server.answer = lambda asked: (200, {}, iter(lines)) if asked == path else None


def told(plural: str) -> list[tuple[str, str]]:
    found = Event.objects.filter(resource=KINDS[plural].resource).order_by("revision")
    return [*found.values_list("type", "name")]


def copy_of(objects: dict[str, list[Document]], version: str) -> dict[str, list[Any]]:
    """What is stored of lists in this version."""
    with gates.using(), Living(objects, dra=version) as server:
        served = {plural: version for plural in LISTED if KINDS[plural].group}
        mirror = Mirror(remote_of(server), *LISTED, versions=served)
        mirror.turn()
        assert not any(mirror.copy.unread.values())
        assert {mirror.standing(plural).version for plural in served} == {version}
    return {plural: [kept(one) for one in stored(plural).values()] for plural in LISTED}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_copy_is_the_same_in_every_version(version: str) -> None:
    copied, newest = copy_of(lists(version), version), lists("v1")
    for plural in LISTED:
        sent = {one["metadata"]["uid"]: kept(one) for one in newest[plural]}
        assert {one["metadata"]["uid"]: one for one in copied[plural]} == sent
    assert_rebuilt_the_same()


@pytest.mark.parametrize("version", VERSIONS)
def test_unknown_fields_survive_in_every_version(version: str) -> None:
    def unknown(part: Any) -> set[str]:
        if isinstance(part, list):
            return set().union(*map(unknown, part))
        if not isinstance(part, dict):
            return set()
        return {name for name in part if name.startswith("xUnknown")}.union(*map(unknown, part.values()))

    chance = random.Random(7)
    sent = {plural: with_unknown_fields(those, chance) for plural, those in lists(version).items()}
    copied = copy_of(sent, version)
    for plural in LISTED:
        names = unknown([kept(one) for one in sent[plural]])
        assert len(names) > 3
        assert unknown(copied[plural]) == names


def test_a_recorded_watch_is_followed(server: Living) -> None:
    server.objects["pods"] = []
    mirror = Mirror(remote_of(server), "pods")
    mirror.turn()
    plays(server, "pods.watch", "/api/v1/pods")
    mirror.turn()
    name = "from-manciple"
    assert told("pods") == [("ADDED", name), ("MODIFIED", name), ("MODIFIED", name), ("DELETED", name)]
    last = msgspec.json.decode(Event.objects.latest("revision").document)
    sent = next(one["object"] for one in recorded()["pods.watch"] if one["type"] == "DELETED")
    assert kept(last) == kept(sent)
    server.answer = lambda _path: None
    mirror.turn()
    assert "resourceVersion=20992" in server.asked[-1], "it goes on from the last bookmark"


def test_a_recorded_watch_that_begins_with_the_state_is_a_listing(server: Living) -> None:
    mirror = Mirror(remote_of(server), "resourceclaims")
    stale = recorded()["resourceclaims.watch"][0]["object"]
    stale["metadata"] |= {"name": "gone-meanwhile", "uid": "gone-meanwhile"}
    server.put("resourceclaims", stale)
    mirror.turn()
    mirror.restart()
    plays(server, "resourceclaims.watchlist", "/apis/resource.k8s.io/v1/resourceclaims")
    mirror.turn()
    assert mirror.standing("resourceclaims").reach is Reach.EVERYWHERE
    sent = {one["object"]["metadata"].get("name"): one["object"] for one in recorded()["resourceclaims.watchlist"]}
    names = ("big-0-gpu-sbnmf", "big-1-gpu-n9kh6", "big-2-gpu-6prfm")
    assert {one["metadata"]["name"]: kept(one) for one in stored("resourceclaims").values()} == {
        name: kept(sent[name]) for name in names
    }
    assert ("DELETED", "gone-meanwhile") in told("resourceclaims")
