"""What copying a cluster costs the database: statements a transaction, not an object."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from inventory.models import Device
from manciple.mirror.listing import Found
from manciple.mirror.sources import CLAIM, NODE, POD, SLICE, KindState, Reach, Source
from manciple.mirror.stored_copy import Change, StoredCopy
from manciple.store import history
from manciple.store.models import OwnerLink, StoredObject
from manciple.wire.resources import kind
from tests.indexes import assert_rebuilt_the_same
from tests.manciple.mirror.clusters import claim, in_store, node, pod, slice_of
from tests.manciple.mirror.replay import Document

pytestmark = pytest.mark.django_db

#: As many objects take so many statements, however many they are; chunks of keys add a few.
MOST, MOST_MORE = 32, 6
FEW, MANY = 20, 256


def objects(count: int, first: int = 0) -> dict[Source, list[Document]]:
    """A node, a slice of two devices, a claim of one of them, and its pod, so many times."""
    numbers = range(first, first + count)
    return {
        NODE: [node(f"n{one}") for one in numbers],
        SLICE: [slice_of(f"n{one}", 2) for one in numbers],
        CLAIM: [claim(f"c{one}", f"n{one}/gpu-0", pod=f"p{one}") for one in numbers],
        POD: [pod(f"p{one}", f"c{one}", on=f"n{one}") for one in numbers],
    }


def changes(source: Source, documents: Sequence[Document]) -> list[Change]:
    made = []
    for document in documents:
        meta, text = document["metadata"], msgspec.json.encode(document)
        made.append(Change(source, "v1", meta["uid"], meta.get("namespace", ""), meta["name"], "1", text))
    return made


@pytest.mark.parametrize("source", [NODE, SLICE, CLAIM, POD], ids=lambda source: source.plural)
def test_a_transaction_has_as_many_statements_for_many_objects_as_for_few(source: Source) -> None:
    copy, taken = StoredCopy(), []
    copy.apply(changes(source, objects(1)[source]))  # caches are filled
    for count, first in ((FEW, 1), (MANY, 100)):
        with CaptureQueriesContext(connection) as queries:
            copy.apply(changes(source, objects(count, first)[source]))
        taken.append(len(queries))
    few, many = taken
    assert few <= MOST
    assert many <= few + MOST_MORE, Counter(one["sql"][:60] for one in queries.captured_queries)
    assert StoredObject.objects.filter(resource=source.resource).count() == 1 + FEW + MANY


def test_when_something_changed_is_known_only_of_what_was_watched() -> None:
    copy, slices = StoredCopy(), changes(SLICE, [slice_of("n1", 2), slice_of("n2", 2)])
    copy.apply([one._replace(found=True) for one in slices])
    names, fields = frozenset({"n1-slice", "n2-slice"}), {"spec.nodeName": "n1"}
    assert history.last_change(SLICE.resource, fields, after=0) is None
    assert history.last_written(kind(SLICE.resource), names=names, seen=True) == {}
    copy.apply([one._replace(version="2") for one in changes(SLICE, [slice_of("n1", 3)])])
    assert history.last_change(SLICE.resource, fields, after=0) is not None
    assert history.last_written(kind(SLICE.resource), names=names, seen=True).keys() == {"n1-slice"}
    assert history.last_written(kind(SLICE.resource), names=names).keys() == names


def test_what_has_not_changed_is_not_written_again() -> None:
    copy = StoredCopy()
    everything = objects(50)
    for source, documents in everything.items():
        copy.apply(changes(source, documents))
    for source, documents in everything.items():
        with CaptureQueriesContext(connection) as queries:
            copy.apply(changes(source, documents))
        written = [one["sql"] for one in queries.captured_queries if "store_event" in one["sql"]]
        assert all(one.startswith(("SELECT", "WITH")) for one in written)


def listed(objects: Mapping[Source, Sequence[Document]]) -> Found:
    found = Found("team-a", version="v1.36.0")
    for source, documents in objects.items():
        found.states[source.resource] = KindState(source, Reach.EVERYWHERE, "v1")
        found.pages[source.resource] = [msgspec.Raw(msgspec.json.encode(one)) for one in documents]
    return found


def owned(document: Document, kind: str, name: str, uid: str) -> Document:
    version = "apps/v1" if kind == "ReplicaSet" else "v1"
    owner = {"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": True}
    return {**document, "metadata": {**document["metadata"], "ownerReferences": [owner]}}


def test_a_command_links_what_it_copies_to_owners_that_come_later_or_never() -> None:
    of_pods = objects(3)
    of_pods[CLAIM] = [owned(claim(f"c{one}"), "Pod", f"p{one}", f"team-a-p{one}") for one in range(3)]
    of_pods[POD] = [owned(pod(f"p{one}", f"c{one}"), "ReplicaSet", "train", "gone") for one in range(3)]
    with in_store(listed(of_pods)):
        assert sorted(OwnerLink.objects.values_list("owner_uid", "gone")) == [
            *(("gone", True) for _ in range(3)),
            *((f"team-a-p{one}", False) for one in range(3)),
        ]
        assert_rebuilt_the_same()


def test_a_command_copies_each_kind_in_few_statements() -> None:
    found = listed(objects(200))
    with CaptureQueriesContext(connection) as queries, in_store(found):
        assert Device.objects.count() == 400
        assert not found.pages  # nothing is kept twice
    assert len(queries) <= 4 * MOST
