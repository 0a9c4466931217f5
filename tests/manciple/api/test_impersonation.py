"""Acting as somebody else."""

from __future__ import annotations

import pytest

from manciple.access.authentication import tokens
from manciple.access.impersonation import acting
from manciple.wire.errors import BadRequest, Forbidden
from manciple.wire.identity import Identity
from tests.manciple.api.requests import NAMESPACES
from tests.manciple.api.server import ApiServer

ALICE = Identity("alice", ("system:masters", "system:authenticated"))
BOB = Identity("bob", ("team", "system:authenticated"))

ACTING = {
    "nobody is named": ({}, ALICE),
    "a user": ({"impersonate-user": "bob"}, Identity("bob", ("system:authenticated",))),
    "a user and groups": ({"impersonate-user": "bob", "impersonate-group": "team"}, BOB),
    "a group twice": (
        {"impersonate-user": "bob", "impersonate-group": "team, crew,team"},
        Identity("bob", ("team", "crew", "system:authenticated")),
    ),
}


@pytest.mark.parametrize(("headers", "as_whom"), ACTING.values(), ids=ACTING.keys())
def test_an_administrator_acts_as_whom_the_headers_name(headers: dict[str, str], as_whom: Identity) -> None:
    assert acting(ALICE, headers) == as_whom


@pytest.mark.django_db
def test_nobody_else_may_act_as_others() -> None:
    with pytest.raises(Forbidden, match='User "bob" cannot impersonate resource "users"'):
        acting(BOB, {"impersonate-user": "alice"})
    assert acting(BOB, {}) == BOB


def test_groups_need_a_user() -> None:
    with pytest.raises(BadRequest, match="without impersonating a user"):
        acting(ALICE, {"impersonate-group": "team"})


def test_requests_and_watches_heed_the_headers(api_server: ApiServer) -> None:
    as_charlie = [("Impersonate-User", "charlie"), ("Impersonate-Group", "team"), ("Impersonate-Group", "crew")]
    with api_server.client() as alice:
        review = alice.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", json={}, headers=as_charlie)
    assert review.json()["status"]["userInfo"] == {
        "username": "charlie",
        "groups": ["team", "crew", "system:authenticated"],
    }
    token = tokens.issue("bob", ["team"])
    with api_server.client(token=token) as bob:
        for query in ("", "?watch=true"):
            assert bob.get(NAMESPACES + query, headers=as_charlie).status_code == 403
