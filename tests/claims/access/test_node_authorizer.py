"""What the agent of a node may do: every recorded decision, and what the table of them cannot show."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from claims.access.node_rights import authorize
from manciple.access.authorization import Attributes, Decision
from manciple.store import objects
from manciple.wire import codec
from manciple.wire.identity import AUTHENTICATED, NODES, Identity
from manciple.wire.registry import registry
from manciple.wire.selectors import parse_field_selector
from tests import conformance

pytestmark = pytest.mark.django_db


def agent(node: str) -> Identity:
    return Identity(f"system:node:{node}", (NODES, AUTHENTICATED))


@cache
def recorded() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(conformance.read("node_decisions.json"))
    return document


def build_cluster() -> None:
    with objects.writing() as writer:
        for document in recorded()["objects"]:
            kind = registry.find_kind(document["apiVersion"], document["kind"])
            assert kind is not None
            writer.create(kind, codec.decode_value(kind.type, document))


def questions() -> Iterator[tuple[Identity, Attributes, Decision]]:
    for node, verb, group, resource, subresource, namespace, name, fields, allowed, reason in recorded()["decisions"]:
        wanted = Attributes(
            verb=verb,
            group=group,
            version="v1",
            resource=resource,
            subresource=subresource,
            namespace=namespace,
            name=name,
            fields=parse_field_selector(fields),
        )
        yield agent(node), wanted, Decision(allowed, reason)


@pytest.mark.parametrize("node", ["../x", "n1/../n2", "N1", "n1 ", "n1\n", "a" * 254])
def test_an_agent_with_an_invalid_node_name_may_do_nothing(node: str) -> None:
    build_cluster()
    for resource, name in (("nodes", node), ("nodes", ""), ("pods", "p"), ("services", "s")):
        wanted = Attributes(verb="get", version="v1", resource=resource, namespace="team-b", name=name)
        decision = authorize(agent(node), wanted)
        assert decision == Decision(False, f'unknown node for user "system:node:{node}"')


def test_every_recorded_decision_is_ours_with_its_reason() -> None:
    build_cluster()
    different = [
        (who.name, wanted, ours, theirs)
        for who, wanted, theirs in questions()
        if (ours := authorize(who, wanted)) != theirs
    ]
    assert different == []


GET_CLAIM = Attributes(
    verb="get", group="resource.k8s.io", resource="resourceclaims", namespace="team-a", name="cl", version="v1"
)
#: Who looks like the agent of n1 and is not.
NOT_AGENTS = {
    "a name without the group": Identity("system:node:n1", (AUTHENTICATED,)),
    "the group without the name": Identity("n1", (NODES, AUTHENTICATED)),
    "a service account of that name": Identity("system:serviceaccount:system:node:n1", (NODES,)),
}


@pytest.mark.parametrize("phrase", NOT_AGENTS)
def test_name_and_group_together_make_an_agent(phrase: str) -> None:
    build_cluster()
    assert authorize(agent("n1"), GET_CLAIM).allowed
    assert authorize(NOT_AGENTS[phrase], GET_CLAIM) == Decision(False)


def test_an_agent_without_a_node_may_do_nothing() -> None:
    build_cluster()
    assert authorize(agent(""), GET_CLAIM) == Decision(False, 'unknown node for user "system:node:"')


@pytest.mark.parametrize(
    ("version", "fields", "allowed"),
    [
        ("v1alpha2", "nodeName=n1,driverName=d.example.com", True),
        ("v1alpha2", "nodeName=n2", False),
        ("v1alpha2", "spec.nodeName=n1", False),
        ("v1alpha3", "spec.nodeName=n1", True),
        ("v1", "nodeName=n1", False),
    ],
)
def test_slices_of_the_node_are_selected_by_the_field_that_the_version_has(
    version: str, fields: str, allowed: bool
) -> None:
    wanted = Attributes(
        verb="list",
        group="resource.k8s.io",
        resource="resourceslices",
        version=version,
        fields=parse_field_selector(fields),
    )
    assert authorize(agent("n1"), wanted).allowed is allowed
