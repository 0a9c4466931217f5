"""Writing from inside the process, as the pages do: retries, admission."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from manciple.api import verbs
from manciple.store import hooks, objects
from manciple.store.hooks import Write
from manciple.wire import codec
from manciple.wire.errors import Conflict, Forbidden, Invalid
from manciple.wire.identity import Identity
from manciple.wire.registry import Kind, registry
from tests.manciple.api.requests import LEASES, Api, lease

ALICE = Identity("alice", ("system:masters",))


@pytest.fixture
def kind(api: Api) -> Kind:
    """Leases, of which `l` exists."""
    api.made(LEASES, lease())
    return registry.by_resource("leases.coordination.k8s.io")


def held_by(obj: Any, holder: str) -> Any:
    return structs.replace(obj, spec=structs.replace(obj.spec, holder_identity=holder))


def interfere(kind: Kind, number: int) -> None:
    """Somebody else's write."""
    with objects.writing() as writer:
        obj: Any = writer.get(kind, "default", "l")
        writer.update(kind, structs.replace(obj, spec=structs.replace(obj.spec, lease_transitions=number)))


def test_a_change_is_worked_out_anew_when_somebody_was_quicker(kind: Kind) -> None:
    seen: list[int | None] = []

    def change(old: Any) -> Any:
        seen.append(old.spec.lease_transitions)
        if len(seen) < 3:
            interfere(kind, len(seen))
        return held_by(old, "bob")

    written = verbs.modify(kind, change, namespace="default", name="l", identity=ALICE)
    assert seen == [None, 1, 2]
    assert (written.object.spec.holder_identity, written.object.spec.lease_transitions) == ("bob", 2)


def test_a_change_that_never_comes_first_is_a_conflict(kind: Kind) -> None:
    attempts: list[int] = []

    def change(old: Any) -> Any:
        attempts.append(len(attempts))
        interfere(kind, len(attempts))
        return held_by(old, "bob")

    with pytest.raises(Conflict):
        verbs.modify(kind, change, namespace="default", name="l", identity=ALICE)
    assert len(attempts) == verbs.ATTEMPTS


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Write]:
    """What admission was asked; a lease held by "mallory" is refused."""
    requests: list[Write] = []

    def check(request: Write) -> None:
        requests.append(request)
        if request.new is not None and request.new.spec.holder_identity == "mallory":
            raise Forbidden("not mallory")

    monkeypatch.setattr(hooks, "_checks", dict(hooks._checks))
    hooks.register_check(check)
    return requests


def test_admission_is_asked_before_every_write(kind: Kind, asked: list[Write]) -> None:
    made = codec.decode_value(kind.type, lease("m"))
    verbs.create(kind, made, namespace="default", identity=ALICE)
    verbs.modify(kind, lambda old: held_by(old, "bob"), namespace="default", name="m", identity=ALICE)
    verbs.delete(kind, namespace="default", name="m", identity=ALICE)
    assert [request.operation for request in asked] == ["CREATE", "UPDATE", "DELETE"]
    assert {request.identity for request in asked} == {ALICE}
    assert asked[1].old.spec.holder_identity == "alice"
    assert asked[1].new.spec.holder_identity == "bob"


def test_what_admission_refuses_is_not_written(kind: Kind, asked: list[Write]) -> None:
    with pytest.raises(Forbidden):
        verbs.modify(kind, lambda old: held_by(old, "mallory"), namespace="default", name="l", identity=ALICE)
    assert verbs.current(kind, "default", "l").spec.holder_identity == "alice"


def test_what_a_client_sent_is_shown_before_it_is_validated_and_where_nothing_would_change(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[Write] = []
    monkeypatch.setattr(hooks, "_gates", {})
    hooks.register_check(shown.append, resources={kind.resource}, first=True)
    hooks.register_check(lambda _write: pytest.fail("not of this kind"), resources={"pods"}, first=True)
    verbs.modify(kind, lambda old: old, namespace="default", name="l", identity=ALICE, verb="update")
    wrong = codec.decode_value(kind.type, lease("Not A Name"))
    with pytest.raises(Invalid):
        verbs.create(kind, wrong, namespace="default", identity=ALICE)
    assert [(write.operation, write.verb) for write in shown] == [("UPDATE", "update"), ("CREATE", "create")]
    assert shown[0].new == shown[0].old
