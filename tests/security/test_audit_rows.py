"""An entry of the audit trail for each write, exactly when it is committed; and one for each denial."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from manciple.access.authentication import tokens
from manciple.audit.models import Entry
from manciple.audit.searching import Search
from manciple.store import event_log, hooks, objects
from manciple.store.hooks import Write
from manciple.wire.errors import Forbidden
from manciple.wire.identity import MASTERS, Identity
from tests.builders import make_class
from tests.manciple.api.conftest import api
from tests.manciple.api.requests import CLAIMS, NAMESPACES, PODS, Api, claim, namespace, pod
from tests.manciple.audit.reading import about, look
from tests.scheduling.cluster import kind_of

__all__ = ["api"]


class Undo(Exception):
    """Ends a transaction that shall leave nothing."""


def written() -> list[Entry]:
    return [entry for entry in look() if entry.revision is not None]


def make(name: str, *, undone: bool) -> None:
    with objects.writing(identity=Identity("alice", (MASTERS,))) as writer:
        writer.create(kind_of(made := make_class(name)), made)
        if undone:
            raise Undo


def test_a_write_and_its_entry_come_and_go_together(api: Api) -> None:
    """What is undone leaves no entry, and what is committed one, though both went the same way."""
    before = len(written())
    with pytest.raises(Undo):
        make("undone", undone=True)
    assert len(written()) == before
    make("kept", undone=False)
    newest, *others = written()
    assert (newest.username, newest.name, newest.revision) == ("alice", "kept", event_log.latest_revision())
    assert len(others) == before


@pytest.fixture
def _nobody_makes_a_namespace(api: Api) -> Iterator[None]:
    def refuse(_writer: object, write: Write) -> None:
        raise Forbidden.of(write.kind.resource, write.new.metadata.name, "not today")

    hooks.register_rule(refuse, operations={"CREATE"}, resources={"namespaces"})
    yield
    hooks.unregister_rule(refuse)


@pytest.mark.usefixtures("_nobody_makes_a_namespace")
def test_a_rule_that_refuses_in_the_transaction_leaves_a_denial_and_no_write(api: Api) -> None:
    revision = event_log.latest_revision()
    assert api.post(NAMESPACES, namespace("n")).code == 403
    assert event_log.latest_revision() == revision
    (entry,) = look(Search(outcome="denied"))
    assert about(entry) == ("alice", "create", "namespaces:/n", 403)
    assert entry.revision is None


#: what somebody without any right asks -> the verb that is told
DENIED = {
    "reading": ("get", f"{PODS}/p", None, "get"),
    "listing": ("get", PODS, None, "list"),
    "watching": ("get", f"{PODS}?watch=1", None, "watch"),
    "creating": ("post", CLAIMS, claim(), "create"),
    "replacing": ("put", f"{PODS}/p", pod(), "update"),
    "patching": ("patch", f"{PODS}/p", {}, "patch"),
    "deleting": ("delete", f"{PODS}/p", None, "delete"),
    "deleting many": ("delete", PODS, None, "deletecollection"),
    "reporting a status": ("put", f"{PODS}/p/status", pod(), "update"),
}


@pytest.mark.parametrize("what", DENIED)
def test_a_denial_is_told_with_who_and_what(api: Api, what: str) -> None:
    api.made(PODS, pod())
    method, path, body, verb = DENIED[what]
    answer = Api(tokens.issue("mallory", [])).send(method, path, body=body)
    assert (answer.code, answer.reason) == (403, "Forbidden")
    (entry,) = look(Search(outcome="denied"))
    assert (entry.username, entry.verb, entry.code, entry.revision) == ("mallory", verb, 403, None)
    assert entry.namespace == "default"
