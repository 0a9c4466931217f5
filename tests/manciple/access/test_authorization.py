"""The chain of authorizers, and how a refusal reads."""

from __future__ import annotations

import pytest

from manciple.access import authorization
from manciple.access.authorization import Attributes, Decision, refusal
from manciple.wire.errors import Forbidden
from manciple.wire.identity import MASTERS, Identity

ALICE = Identity("alice")
GET_POD = Attributes(verb="get", version="v1", resource="pods", namespace="team-a", name="p")


@pytest.fixture(autouse=True)
def _own_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorization, "_authorizers", {})


def test_who_is_allowed_by_nobody_is_refused() -> None:
    with pytest.raises(Forbidden):
        authorization.demand(ALICE, GET_POD)


def test_the_first_that_allows_ends_it() -> None:
    authorization.register_authorizer("no", lambda _who, _what: Decision(False, "not mine"))
    authorization.register_authorizer("yes", lambda _who, _what: Decision(True, "a rule"))
    assert authorization.decide(ALICE, GET_POD) == Decision(True, "a rule")


def test_nodes_are_asked_before_roles_whoever_was_registered_first() -> None:
    refusing: dict[str, authorization.Authorizer] = {
        "third": lambda _who, _what: Decision(False, "third"),
        "rbac": lambda _who, _what: Decision(False, "rbac"),
        "node": lambda _who, _what: Decision(False, "node"),
    }
    for name, authorizer in refusing.items():
        authorization.register_authorizer(name, authorizer)
    assert authorization.decide(ALICE, GET_POD).reason == "node; rbac; third"


def test_what_each_has_to_say_against_it_is_the_reason() -> None:
    authorization.register_authorizer("node", lambda _who, _what: Decision(False, "no such pod here"))
    authorization.register_authorizer("rbac", lambda _who, _what: Decision(False))
    authorization.register_authorizer("third", lambda _who, _what: Decision(False, "nor here"))
    assert authorization.decide(ALICE, GET_POD) == Decision(False, "no such pod here; nor here")


def test_masters_may_do_everything() -> None:
    assert authorization.decide(Identity("root", (MASTERS,)), GET_POD).allowed


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        (
            GET_POD,
            'pods "p" is forbidden: User "alice" cannot get resource "pods" in API group "" in the namespace "team-a"',
        ),
        (
            Attributes(verb="create", group="resource.k8s.io", resource="deviceclasses"),
            'deviceclasses.resource.k8s.io is forbidden: User "alice" cannot create resource "deviceclasses" in API '
            'group "resource.k8s.io" at the cluster scope',
        ),
        (
            Attributes(verb="patch", resource="nodes", subresource="status", name="n1"),
            'nodes "n1" is forbidden: User "alice" cannot patch resource "nodes/status" in API group "" at the cluster '
            "scope",
        ),
        (Attributes(verb="get", path="/metrics"), 'forbidden: User "alice" cannot get path "/metrics"'),
    ],
)
def test_a_refusal_names_who_what_and_where(wanted: Attributes, text: str) -> None:
    assert refusal(ALICE, wanted).message == text
    assert refusal(ALICE, wanted, "why").message == f"{text}: why"
