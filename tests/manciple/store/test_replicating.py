"""`Writer.replicate`: objects of another cluster are taken over as they are there."""

from __future__ import annotations

import pytest
from msgspec import structs

from claims.kinds.registration import RESOURCE_CLAIM
from claims.kinds.resource_claims import ResourceClaim
from manciple.store import hooks, objects
from manciple.store.event_log import read_after
from manciple.store.objects import decoded
from manciple.wire import codec
from tests.builders import make_claim

pytestmark = pytest.mark.django_db


def remote(name: str = "gpus", **meta: object) -> ResourceClaim:
    claim = make_claim(name)
    kept = {"uid": f"{name}-uid", "creation_timestamp": "2020-01-01T00:00:00Z", "generation": 7, "resource_version": ""}
    return structs.replace(claim, metadata=structs.replace(claim.metadata, **{**kept, **meta}))


def replicate(claim: ResourceClaim) -> ResourceClaim:
    with objects.writing() as writer:
        copied = writer.replicate(RESOURCE_CLAIM, claim, codec.to_builtins(claim))
    assert isinstance(copied, ResourceClaim)
    return copied


def stored() -> ResourceClaim:
    found = objects.get(RESOURCE_CLAIM, "default", "gpus")
    assert found is not None
    return decoded(found, ResourceClaim)


def test_everything_but_the_revision_is_the_other_clusters() -> None:
    copied = replicate(remote(finalizers=("example.com/mine",)))
    meta = stored().metadata
    assert (meta.uid, meta.creation_timestamp, meta.generation) == ("gpus-uid", "2020-01-01T00:00:00Z", 7)
    assert meta.finalizers == ("example.com/mine",)
    assert meta.resource_version == copied.metadata.resource_version != ""
    assert not meta.managed_fields


def test_no_rule_is_asked() -> None:
    def refuse(_writer: object, _write: object) -> None:
        raise AssertionError("nobody here may refuse it")

    hooks.register_rule(refuse, operations=("CREATE", "UPDATE", "DELETE"))
    try:
        replicate(remote())
        replicate(remote(labels={"a": "b"}))
        replicate(remote(uid="another"))
    finally:
        hooks.unregister_rule(refuse)
    assert stored().metadata.uid == "another"


def test_the_log_tells_of_it_as_of_any_write() -> None:
    first = replicate(remote())
    replicate(remote(generation=8))
    replicate(remote(uid="another"))
    told = [(one.type, one.uid) for one in read_after(int(first.metadata.resource_version) - 1)]
    assert told == [("ADDED", "gpus-uid"), ("MODIFIED", "gpus-uid"), ("DELETED", "gpus-uid"), ("ADDED", "another")]
