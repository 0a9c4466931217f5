"""Whose an object is says only who may delete it: what lost its owner is deleted."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from manciple.access import authorization
from manciple.access.authorization import Attributes, Decision
from manciple.api import verbs
from manciple.wire import codec
from manciple.wire.base import OwnerReference
from manciple.wire.errors import Forbidden
from manciple.wire.identity import Identity
from manciple.wire.registry import registry
from tests.manciple.api.conftest import api
from tests.manciple.api.requests import LEASES, Api, lease

__all__ = ["api"]

ALICE = Identity("alice")
NOBODY = OwnerReference(api_version="v1", kind="Namespace", name="gone", uid="gone")


@pytest.fixture
def asked(api: Api, monkeypatch: pytest.MonkeyPatch) -> list[Attributes]:
    """What the authorizers were asked; they allow to delete "hers"."""
    questions: list[Attributes] = []

    def authorizer(_who: Identity, wanted: Attributes) -> Decision:
        questions.append(wanted)
        return Decision(wanted.name == "hers" and wanted.verb == "delete", "no role")

    monkeypatch.setattr(authorization, "_authorizers", {"rbac": authorizer})
    for name in ("hers", "theirs"):
        api.made(LEASES, lease(name))
    questions.clear()
    return questions


def own(name: str, *owners: OwnerReference) -> Any:
    def changed(old: Any) -> Any:
        return structs.replace(old, metadata=structs.replace(old.metadata, owner_references=owners))

    kind = registry.by_resource("leases.coordination.k8s.io")
    return verbs.modify(kind, changed, namespace="default", name=name, identity=ALICE.let_in()).object


def test_who_may_not_delete_an_object_gives_it_no_owner(asked: list[Attributes]) -> None:
    with pytest.raises(Forbidden) as refusal:
        own("theirs", NOBODY)
    assert refusal.value.message == (
        'leases.coordination.k8s.io "theirs" is forbidden: '
        "cannot set an ownerRef on a resource you can't delete: no role"
    )
    assert [(one.verb, one.combined, one.namespace, one.name) for one in asked] == [
        ("delete", "leases", "default", "theirs")
    ]


def test_who_may_delete_it_does_and_what_stays_is_not_asked_about(asked: list[Attributes]) -> None:
    assert own("hers", NOBODY).metadata.owner_references == (NOBODY,)
    asked.clear()
    own("hers", NOBODY)
    assert asked == []


def test_whoever_creates_an_object_names_its_owner(asked: list[Attributes]) -> None:
    kind = registry.by_resource("leases.coordination.k8s.io")
    made = codec.decode_value(kind.type, lease("new"))
    owned = structs.replace(made, metadata=structs.replace(made.metadata, owner_references=(NOBODY,)))
    verbs.create(kind, owned, namespace="default", identity=ALICE.let_in())
    assert asked == []
