"""Another Manciple as the cluster that is copied: its lists, its watches, its bookmarks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from msgspec import structs

from claims.kinds.registration import POD, RESOURCE_CLAIM
from inventory.kinds import gates
from inventory.kinds.registration import NODE
from manciple.mirror import kubeconfig
from manciple.mirror.client import Remote
from manciple.mirror.following import KindFollower
from manciple.mirror.kubeconfig import Choice
from manciple.mirror.sources import Reach, Source
from manciple.mirror.standing import KindStanding
from manciple.mirror.stored_copy import Change, Known, StoredCopy
from manciple.store import hooks, objects, sql
from manciple.store.models import Event, OwnerLink, StoredObject
from tests.builders import make_claim, make_node, make_pod
from tests.indexes import assert_rebuilt_the_same
from tests.manciple.api.server import ApiServer
from tests.manciple.mirror.living import KINDS
from tests.manciple.mirror.test_copying import kept, stored

PLURALS = ("nodes", "resourceclaims", "pods")


class Collecting:
    """One database cannot be both clusters at once: what was read is kept for later."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.reach = Reach.FAILED

    def known(self, _source: Source) -> Mapping[str, Known]:
        return {}

    def apply(self, changes: Sequence[Change]) -> None:
        self.changes += changes

    def note(self, standing: KindStanding, *, failing: str = "") -> None:
        assert not failing
        self.reach = standing.reach


def turn(followers: Iterable[KindFollower]) -> None:
    """At the same time: each waits for the end of its watch."""
    with ThreadPoolExecutor() as pool:
        for result in [pool.submit(follower.turn) for follower in followers]:
            result.result()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("watch_lists", [True, False], ids=["watch-list", "pages"])
def test_another_manciple_is_copied(api_server: ApiServer, monkeypatch: pytest.MonkeyPatch, watch_lists: bool) -> None:
    monkeypatch.setattr("manciple.mirror.following.WATCH_SECONDS", 1)
    monkeypatch.setattr("manciple.mirror.listing.PAGE", 2)
    with objects.writing() as writer:
        for number in range(5):
            writer.create(POD, make_pod(f"p{number}"))
        node = make_node("n1")
        writer.create(NODE, node)
        writer.create(RESOURCE_CLAIM, make_claim("c"))
    remote = Remote(kubeconfig.read(Choice(kubeconfig=str(api_server.kubeconfig))))
    sinks = {plural: Collecting() for plural in PLURALS}
    followers = {
        plural: KindFollower(remote, KINDS[plural], sinks[plural], served=lambda source: source.versions[:1])
        for plural in PLURALS
    }
    for follower in followers.values():
        follower._watch_lists = watch_lists
    turn(followers.values())
    assert {sink.reach for sink in sinks.values()} == {Reach.EVERYWHERE}
    with objects.writing() as writer:
        writer.delete(POD, "default", "p0")
        writer.create(RESOURCE_CLAIM, make_claim("later"))
        writer.update(NODE, structs.replace(node, spec=structs.replace(node.spec, unschedulable=True)))
    turn(followers.values())
    remote.close()
    theirs = {plural: {key: kept(one) for key, one in stored(plural).items()} for plural in PLURALS}
    for model in (Event, StoredObject, OwnerLink):
        sql.clear(model)
    for projector in hooks.PROJECTORS.values():
        projector.clear()
    with gates.using():
        for sink in sinks.values():
            StoredCopy().apply(sink.changes)
    assert {plural: {key: kept(one) for key, one in stored(plural).items()} for plural in PLURALS} == theirs
    assert len(theirs["pods"]) == 4
    assert_rebuilt_the_same()
