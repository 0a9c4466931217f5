"""Acting as somebody else."""

from __future__ import annotations

import pytest

from manciple.access.authentication import tokens
from manciple.access.kinds import roles
from manciple.access.kinds.roles import ClusterRole, ClusterRoleBinding, PolicyRule, RoleRef, Subject
from manciple.api.door import acting
from manciple.store import objects
from manciple.wire.base import ObjectMeta
from manciple.wire.errors import BadRequest, Forbidden
from manciple.wire.identity import ANONYMOUS, SYSTEM, Identity, service_account
from tests.manciple.api.requests import NAMESPACES
from tests.manciple.api.server import ApiServer

ALICE = Identity("alice", ("system:masters", "system:authenticated"))
BOB = Identity("bob", ("team", "system:authenticated"))

ACTING = {
    "nobody is named": ({}, ALICE),
    "a user": ({"impersonate-user": "bob"}, Identity("bob", ("system:authenticated",))),
    "a user and groups": ({"impersonate-user": "bob", "impersonate-group": "team"}, BOB),
    "a group twice": (
        {"impersonate-user": "bob", "impersonate-group": "team\ncrew\nteam"},
        Identity("bob", ("team", "crew", "system:authenticated")),
    ),
    "a group with a comma is one": (
        {"impersonate-user": "bob", "impersonate-group": "cn=team,system:masters"},
        Identity("bob", ("cn=team,system:masters", "system:authenticated")),
    ),
    "names are in UTF-8": (
        {"impersonate-user": "b\u00c3\u00b6b", "impersonate-group": "t\u00c3\u00a9am"},
        Identity("b\u00f6b", ("t\u00e9am", "system:authenticated")),
    ),
    "a service account has the groups of one": (
        {"impersonate-user": "system:serviceaccount:drivers:plugin"},
        service_account("drivers", "plugin"),
    ),
    "a service account in other groups": (
        {"impersonate-user": "system:serviceaccount:drivers:plugin", "impersonate-group": "team"},
        Identity("system:serviceaccount:drivers:plugin", ("team", "system:authenticated")),
    ),
    "what looks like a service account and is none": (
        {"impersonate-user": "system:serviceaccount:a:b:c"},
        Identity("system:serviceaccount:a:b:c", ("system:authenticated",)),
    ),
    "somebody without a credential": ({"impersonate-user": "system:anonymous"}, ANONYMOUS),
    "a group of those without a credential": (
        {"impersonate-user": "bob", "impersonate-group": "system:unauthenticated"},
        Identity("bob", ("system:unauthenticated",)),
    ),
    "a uid and what else a credential says": (
        {
            "impersonate-user": "bob",
            "impersonate-uid": "u1",
            "Impersonate-Extra-Authentication.kubernetes.io%2FNode-Name": "n1\nn2",
        },
        Identity("bob", ("system:authenticated",), "u1", (("authentication.kubernetes.io/node-name", ("n1", "n2")),)),
    ),
}


@pytest.mark.parametrize(("headers", "as_whom"), ACTING.values(), ids=ACTING.keys())
def test_an_administrator_acts_as_whom_the_headers_name(headers: dict[str, str], as_whom: Identity) -> None:
    assert acting(ALICE, headers) == as_whom


PLUGIN = "system:serviceaccount:drivers:plugin"
EXTRA = "impersonate-extra-scopes"
#: the headers, and what bob lacks for them
RIGHTS = {
    "a user": ({"impersonate-user": "carol"}, 'users "carol" is forbidden: User "bob" cannot impersonate resource'),
    "a service account": (
        {"impersonate-user": PLUGIN},
        'serviceaccounts "plugin" is forbidden: User "bob" cannot impersonate resource "serviceaccounts" in API group '
        '"" in the namespace "drivers"',
    ),
    "a group": (
        {"impersonate-user": "alice", "impersonate-group": "system:masters"},
        'groups "system:masters" is forbidden: User "bob" cannot impersonate resource "groups"',
    ),
    "a uid": (
        {"impersonate-user": "alice", "impersonate-uid": "u1"},
        'uids.authentication.k8s.io "u1" is forbidden: User "bob" cannot impersonate resource "uids"',
    ),
    "what else a credential says": (
        {"impersonate-user": "alice", EXTRA: "deploy"},
        'userextras.authentication.k8s.io "deploy" is forbidden: User "bob" cannot impersonate resource '
        '"userextras/scopes" in API group "authentication.k8s.io" at the cluster scope',
    ),
}  # fmt: skip


@pytest.mark.django_db
@pytest.mark.parametrize(("headers", "message"), RIGHTS.values(), ids=RIGHTS.keys())
def test_others_need_a_right_for_each_part_of_whom_they_act_as(headers: dict[str, str], message: str) -> None:
    rule = PolicyRule(verbs=("impersonate",), api_groups=("",), resources=("users",), resource_names=("alice",))
    bob = Subject(kind="User", api_group=roles.GROUP, name="bob")
    reference = RoleRef(api_group=roles.GROUP, kind="ClusterRole", name="as-alice")
    with objects.writing(identity=SYSTEM) as writer:
        writer.create(roles.CLUSTER_ROLE, ClusterRole(metadata=ObjectMeta(name="as-alice"), rules=(rule,)))
        binding = ClusterRoleBinding(metadata=ObjectMeta(name="bob"), role_ref=reference, subjects=(bob,))
        writer.create(roles.CLUSTER_ROLE_BINDING, binding)
    assert acting(BOB, {"impersonate-user": "alice"}) == Identity("alice", ("system:authenticated",))
    assert acting(BOB, {}) == BOB
    with pytest.raises(Forbidden) as refusal:
        acting(BOB, headers)
    assert refusal.value.message.startswith(message)


@pytest.mark.parametrize("header", ["impersonate-group", "impersonate-uid"])
def test_a_group_or_a_uid_needs_a_user(header: str) -> None:
    with pytest.raises(BadRequest, match="without impersonating a user"):
        acting(ALICE, {header: "x"})


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
