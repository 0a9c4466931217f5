"""In a mirror nobody changes an object of the cluster, and its owner reads all of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client
from pytest_django.fixtures import Settings

from manciple.access import authorization
from manciple.access.authentication import tokens
from manciple.access.authorization import Attributes
from manciple.access.mirrored import OWNERS
from manciple.api import verbs
from manciple.api.namespaces import ensure_namespaces
from manciple.store.event_log import latest_revision
from manciple.wire.errors import Forbidden
from manciple.wire.identity import MASTERS, SYSTEM, Identity
from manciple.wire.registry import registry
from tests.builders import make_class
from tests.mirrors import PROD, become_mirror

OWNER, ADMIN, STRANGER = Identity("ola", (OWNERS,)), Identity("root", (MASTERS,)), Identity("eve")
WRITES = ("create", "update", "patch", "delete", "deletecollection", "*")


@pytest.fixture
def _mirror(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    become_mirror(settings, monkeypatch)


def decided(identity: Identity, verb: str, resource: str = "pods", **more: Any) -> authorization.Decision:
    return authorization.decide(identity, Attributes(verb=verb, version="v1", resource=resource, **more))


@pytest.mark.django_db
@pytest.mark.usefixtures("_mirror")
class TestInAMirror:
    @pytest.mark.parametrize("verb", ["get", "list", "watch"])
    @pytest.mark.parametrize("resource", ["pods", "nodes", "events", "namespaces"])
    def test_its_owner_reads_everything_that_is_copied(self, verb: str, resource: str) -> None:
        assert decided(OWNER, verb, resource).allowed

    @pytest.mark.parametrize("who", [OWNER, ADMIN], ids=lambda who: who.name)
    @pytest.mark.parametrize("resource", ["secrets", "configmaps", "services", "serviceaccounts"])
    def test_that_there_is_none_of_what_is_not_copied_is_not_said(self, who: Identity, resource: str) -> None:
        assert "without" in decided(who, "list", resource).reason

    def test_a_stranger_reads_nothing(self) -> None:
        assert not decided(STRANGER, "list").allowed

    @pytest.mark.parametrize("who", [OWNER, ADMIN, SYSTEM], ids=lambda who: who.name)
    @pytest.mark.parametrize("verb", WRITES)
    @pytest.mark.parametrize("subresource", ["", "status", "eviction", "binding", "scale", "token"])
    def test_nobody_writes(self, who: Identity, verb: str, subresource: str) -> None:
        decision = decided(who, verb, subresource=subresource, namespace="default", name="web")
        assert decision.denied
        assert f"kubectl --context {PROD}" in decision.reason

    @pytest.mark.parametrize("subresource", ["log", "exec", "attach", "portforward", "proxy"])
    def test_nobody_reaches_a_node(self, subresource: str) -> None:
        """Reading a log is a `get`, and so is what `kubectl exec` begins with."""
        assert not decided(ADMIN, "get", subresource=subresource).allowed

    @pytest.mark.parametrize(
        ("group", "resource", "verb"),
        [
            ("authorization.k8s.io", "selfsubjectaccessreviews", "create"),
            ("authentication.k8s.io", "selfsubjectreviews", "create"),
            ("manciple.dev", "incidents", "update"),
        ],
    )
    def test_what_is_no_object_of_the_cluster_stays_possible(self, group: str, resource: str, verb: str) -> None:
        assert decided(OWNER, verb, resource, group=group).allowed

    def test_what_the_owner_may_do_is_listed_as_reading(self) -> None:
        (rule,) = authorization.rules_of(OWNER, "default").rules
        assert set(rule.verbs) == {"get", "list", "watch"}

    def test_a_write_that_asked_for_no_right_is_refused_as_well(self) -> None:
        classes, before = registry.by_resource("deviceclasses.resource.k8s.io"), latest_revision()
        with pytest.raises(Forbidden, match=PROD):
            verbs.create(classes, make_class("spare"), identity=ADMIN)
        assert latest_revision() == before


def send(client: Client, method: str, path: str, body: object, token: str) -> tuple[int, dict[str, Any]]:
    answer = client.generic(
        method, path, json.dumps(body), content_type="application/json", headers={"Authorization": f"Bearer {token}"}
    )
    return answer.status_code, json.loads(answer.content)


@pytest.mark.django_db
def test_the_api_answers_a_write_with_a_status_that_says_where_to_go(
    client: Client, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    ensure_namespaces()
    token, path = tokens.issue("root", [MASTERS]), "/apis/scheduling.k8s.io/v1/priorityclasses"
    made = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "made"}, "value": 1}
    code, _ = send(client, "POST", path, made, token)
    assert code == 201
    become_mirror(settings, monkeypatch)
    for method, where in (("POST", path), ("PUT", f"{path}/made"), ("PATCH", f"{path}/made"), ("DELETE", path)):
        code, status = send(client, method, where, made, token)
        assert (code, status["kind"], status["reason"]) == (403, "Status", "Forbidden"), method
        assert f"this is a mirror of {PROD}" in status["message"]
    assert client.get(f"{path}/made", headers={"Authorization": f"Bearer {token}"}).status_code == 200


@pytest.mark.django_db
def test_elsewhere_the_group_of_owners_means_nothing() -> None:
    assert not decided(OWNER, "list").allowed
    assert decided(ADMIN, "delete").allowed
