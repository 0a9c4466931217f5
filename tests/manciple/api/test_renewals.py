"""Leases of nodes are renewed together, and answered as every other patch is."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from django.conf import settings
from msgspec import structs

from manciple.access.authentication import tokens
from manciple.api import connections, lanes, verbs
from manciple.api.connections import PatientConnection
from manciple.api.flow_control import FlowLimits
from manciple.api.verbs import Edit, WriteAnswer, made_together
from manciple.audit import trail
from manciple.audit.models import Entry
from manciple.store import objects
from manciple.wire.errors import NotFound
from manciple.wire.identity import Identity
from manciple.wire.registry import registry
from tests.e2e.processes import wait_for
from tests.manciple.api.requests import lease
from tests.manciple.api.server import ApiServer

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
MERGE = "application/merge-patch+json"
NODES = 12
ADMIN = Identity("admin", ("system:masters",))


def scope(method: str = "PATCH", path: str = f"{LEASES}/a", query: str = "", media: str = MERGE) -> dict[str, Any]:
    headers = [(b"content-type", media.encode())]
    return {"method": method, "path": path, "query_string": query.encode(), "headers": headers}


PATCHES = {
    "a merge patch of a node's Lease": (scope(), True),
    "a JSON patch": (scope(media="application/json-patch+json"), True),
    "a strategic one": (scope(media="application/strategic-merge-patch+json"), True),
    "apply, which may create": (scope(media="application/apply-patch+yaml"), False),
    "with a parameter": (scope(query="dryRun=All"), False),
    "an unknown form": (scope(media="text/plain"), False),
    "a PUT": (scope(method="PUT", media="application/vnd.kubernetes.protobuf"), True),
    "a PUT with a parameter": (scope(method="PUT", query="fieldManager=me"), False),
    "a GET": (scope(method="GET"), False),
    "the Lease of something else": (scope(path=LEASES.replace("kube-node-lease", "default") + "/a"), False),
    "all of them": (scope(path=LEASES), False),
    "something below": (scope(path=f"{LEASES}/a/status"), False),
    "a strange name": (scope(path=f"{LEASES}/A B"), False),
}


@pytest.mark.parametrize(("asked", "taken"), PATCHES.values(), ids=PATCHES)
def test_only_plain_changes_of_the_leases_of_nodes_are_renewals(asked: dict[str, Any], taken: bool) -> None:
    assert lanes.is_renewal(asked) is taken


@pytest.fixture
def client(api_server: ApiServer) -> Iterator[httpx.Client]:
    """Of an administrator; `NODES` nodes have Leases."""
    with api_server.client() as client:
        for number in range(NODES):
            made = {**lease(f"node-{number}"), "metadata": {"name": f"node-{number}"}}
            assert client.post(LEASES, json=made).status_code == 201
        yield client


def renew(client: httpx.Client, node: str, body: Any = None, **headers: str) -> httpx.Response:
    content = {"spec": {"holderIdentity": node}} if body is None else body
    return client.patch(f"{LEASES}/{node}", json=content, headers={"Content-Type": MERGE, **headers})


def together(client: httpx.Client, nodes: Sequence[str]) -> list[httpx.Response]:
    with ThreadPoolExecutor(len(nodes)) as threads:
        return list(threads.map(partial(renew, client), nodes))


def test_those_that_come_within_a_moment_share_a_commit(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "BATCH_DELAY", 20.0)
    monkeypatch.setattr(lanes, "BODY_DELAY", 20.0)
    monkeypatch.setattr(connections, "LARGEST_BATCH", NODES)
    committed: list[int] = []
    commit = objects._commit

    def counted(group: Sequence[objects.PendingWrite[object]]) -> None:
        committed.append(len(group))
        commit(group)

    monkeypatch.setattr(objects, "_commit", counted)
    nodes = [f"node-{number}" for number in range(NODES)]
    answers = together(client, nodes)
    assert [one.json()["spec"]["holderIdentity"] for one in answers] == nodes
    assert committed == [NODES]


def test_they_are_answered_as_other_patches_are(client: httpx.Client) -> None:
    usual = client.patch(
        f"{LEASES}/node-0?fieldValidation=Warn",
        json={"spec": {"holderIdentity": "node-0"}},
        headers={"Content-Type": MERGE, "User-Agent": "agent/1"},
    )
    renewed = renew(client, "node-1", **{"User-Agent": "agent/1"})
    assert (usual.status_code, renewed.status_code) == (200, 200)
    assert {*renewed.headers} - {*usual.headers} <= {"content-length"}
    assert usual.headers["content-type"] == renewed.headers["content-type"]

    def told(answer: httpx.Response) -> Any:
        document = answer.json()
        return {**document, "metadata": sorted(document["metadata"]), "spec": sorted(document["spec"])}

    assert told(usual) == told(renewed)


def test_nobody_waits_for_longer_than_a_moment(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "BATCH_DELAY", 0.01)
    assert renew(client, "node-0").status_code == 200


def test_a_lone_write_is_not_held_up_by_renewals_that_wait(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "BATCH_DELAY", 20.0)
    monkeypatch.setattr(connections, "LARGEST_BATCH", 2)
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(renew, client, "node-0")
        elsewhere = client.post(LEASES.replace("kube-node-lease", "default"), json=lease())
        assert elsewhere.status_code == 201
        assert not waiting.done()
        assert renew(client, "node-1").status_code == 200
        assert waiting.result().status_code == 200


def test_only_renewals_wait_for_others(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "BATCH_DELAY", 20.0)
    monkeypatch.setattr(connections, "HELD_BYTES", 2048)
    began = time.monotonic()
    document = client.get(f"{LEASES}/node-0").json()
    assert client.put(f"{LEASES}/node-0?timeout=10s", json=document).status_code == 200
    large = {"metadata": {"annotations": {"large": "x" * 4096}}}
    assert renew(client, "node-0", large).status_code == 200
    assert time.monotonic() - began < 20.0


@pytest.mark.parametrize("limit", ["between requests", "for the head"])
def test_a_renewal_that_waits_does_not_run_out_of_time(
    api_server: ApiServer, client: httpx.Client, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """It has arrived; a connection that ended meanwhile would leave its client without an answer."""
    monkeypatch.setattr(connections, "BATCH_DELAY", 1.0)
    document = client.get(f"{LEASES}/node-0").json()
    (connection,) = connections_of(api_server)
    if limit == "between requests":
        monkeypatch.setattr(connection, "timeout_keep_alive", 0.2)
        assert client.get(f"{LEASES}/node-0").status_code == 200
    else:
        monkeypatch.setattr(settings, "HEAD_SECONDS", 0.2)
        connection.loop.call_soon_threadsafe(connection._expect_head)
        connection.loop.call_soon_threadsafe(connection._wait_for_head)
    assert client.put(f"{LEASES}/node-0", json=document).status_code == 200


def connections_of(server: ApiServer) -> list[PatientConnection]:
    holders = [holder for level in tuple(server.table._holders.values()) for holder in tuple(level.values())]
    found = (entry.protocol for holder in holders for entry in tuple(holder))
    return [connection for connection in found if isinstance(connection, PatientConnection)]


def test_renewals_that_wait_are_served_when_the_server_stops(
    api_server: ApiServer, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "BATCH_DELAY", 20.0)
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(renew, client, "node-0")
        (connection,) = wait_for("the renewal to arrive", lambda: held_by(api_server))
        assert connection.busy, "it would be dropped for another one, where there are too many"
        connection.loop.call_soon_threadsafe(connection.shutdown)  # as a server does that stops
        assert waiting.result().status_code == 200


def held_by(server: ApiServer) -> list[PatientConnection]:
    """The connections on which a renewal waits."""
    return [connection for connection in connections_of(server) if connection._held is not None]


def test_one_that_cannot_be_received_ends_its_connection_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "LARGEST_BATCH", 3)
    received, aborted = list[str](), list[str]()

    def connection(name: str) -> Any:
        def receive() -> None:
            if name == "broken":
                raise RuntimeError
            received.append(name)

        transport = SimpleNamespace(abort=lambda: aborted.append(name))
        loop = SimpleNamespace(call_later=lambda _seconds, _call: SimpleNamespace(cancel=lambda: None))
        return SimpleNamespace(receive_held=receive, transport=transport, loop=loop)

    batch = connections.RenewalBatch()
    for name in ("first", "broken", "last"):
        batch.add(connection(name))
    assert (received, aborted) == (["first", "last"], ["broken"])


def test_a_whole_fleet_may_come_with_one_credential() -> None:
    """What one identity may have in line is more than a commit takes: it never waits for itself."""
    assert FlowLimits(seats=lanes.RENEWAL_SEATS).flow_seats > connections.LARGEST_BATCH


def replaced(client: httpx.Client, node: str, *, code: int, **changes: Any) -> Any:
    """changes: of the spec, of the Lease as it is stored or, where there is none, as it is to be."""
    found = client.get(f"{LEASES}/{node}")
    document = found.json() if found.status_code == 200 else {**lease(node), "metadata": {"name": node}}
    document["spec"] = {**document["spec"], **changes}
    answer = client.put(f"{LEASES}/{node}", json=document)
    assert answer.status_code == code, answer.text
    return answer.json()


def test_a_put_replaces_a_lease_and_creates_one_that_is_missing(client: httpx.Client) -> None:
    assert replaced(client, "node-0", code=200, holderIdentity="node-0")["spec"]["holderIdentity"] == "node-0"
    assert replaced(client, "node-new", code=201)["metadata"]["uid"]
    assert replaced(client, "node-new", code=200, leaseTransitions=2)["spec"]["leaseTransitions"] == 2


def test_a_put_of_a_revision_that_is_past_is_a_conflict(client: httpx.Client) -> None:
    stored = client.get(f"{LEASES}/node-0").json()
    renew(client, "node-0")
    answer = client.put(f"{LEASES}/node-0", json=stored)
    assert (answer.status_code, answer.json()["reason"]) == (409, "Conflict")
    del stored["metadata"]["resourceVersion"]
    answer = client.put(f"{LEASES}/node-0", json=stored)
    assert (answer.status_code, answer.json()["details"]["causes"][0]["field"]) == (422, "metadata.resourceVersion")


def test_an_unchanged_lease_is_answered_as_it_stands(client: httpx.Client) -> None:
    first, second = renew(client, "node-0"), renew(client, "node-0")
    assert second.json() == first.json()


REFUSED = {
    "no JSON": (b"{", 400, "BadRequest"),
    "what cannot be": (b'{"spec": {"leaseDurationSeconds": -1}}', 422, "Invalid"),
    "another object": (b'{"metadata": {"uid": "x"}}', 422, "Invalid"),
    "a revision that is past": (b'{"metadata": {"resourceVersion": "1"}}', 409, "Conflict"),
}


@pytest.mark.parametrize(("body", "code", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_is_wrong_is_refused_to_its_sender_alone(
    client: httpx.Client, body: bytes, code: int, reason: str
) -> None:
    with ThreadPoolExecutor(1) as thread:
        beside = thread.submit(renew, client, "node-1")
        answer = client.patch(f"{LEASES}/node-0", content=body, headers={"Content-Type": MERGE})
    assert (answer.status_code, answer.json()["reason"]) == (code, reason)
    assert beside.result().status_code == 200


def test_a_lease_that_is_not_there_is_not_found(client: httpx.Client) -> None:
    answer = renew(client, "node-x")
    assert answer.json()["message"] == 'leases.coordination.k8s.io "node-x" not found'
    assert answer.status_code == 404


def test_unknown_fields_are_warned_of(client: httpx.Client) -> None:
    answer = renew(client, "node-0", {"spec": {"renewedAt": "now"}})
    assert answer.headers["warning"] == '299 - "unknown field \\"spec.renewedAt\\""'


def test_a_node_renews_its_own_lease_and_no_other(client: httpx.Client, api_server: ApiServer) -> None:
    token = tokens.issue("system:node:node-1", ("system:nodes", "system:authenticated"))
    with api_server.client(token=token) as node:
        own, other = renew(node, "node-1"), renew(node, "node-2")
    assert (own.status_code, other.status_code) == (200, 403)
    assert "node-1" in other.json()["message"]
    assert client.get(f"{LEASES}/node-2").json()["spec"].get("holderIdentity") != "node-2"


def test_strangers_are_turned_away_and_noted(client: httpx.Client, api_server: ApiServer) -> None:
    with api_server.client(token="no such token") as stranger:
        answer = renew(stranger, "node-1")
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")


def test_who_has_no_right_is_in_the_trail(client: httpx.Client, api_server: ApiServer) -> None:
    token = tokens.issue("mallory", ())
    with api_server.client(token=token) as mallory:
        answer = renew(mallory, "node-1")
    assert answer.status_code == 403
    trail.flush()
    assert Entry.objects.filter(username="mallory", code=403).exists()


# Edits together -------------------------------------------------------------------------------------------------------


def held(name: str, holder: str) -> Edit:
    kind = registry.by_resource(lanes.NODE_LEASES[0])

    def change(old: Any) -> Any:
        return structs.replace(old, spec=structs.replace(old.spec, holder_identity=holder))

    return Edit(kind, change, lanes.NODE_LEASES[1], name, identity=ADMIN)


def holder(outcome: WriteAnswer | Exception) -> str:
    assert isinstance(outcome, WriteAnswer), outcome
    return str(outcome.object.spec.holder_identity)


def test_each_edit_has_its_own_end(client: httpx.Client) -> None:
    first, missing, second = made_together([held("node-0", "a"), held("node-x", "b"), held("node-1", "c")])
    assert isinstance(missing, NotFound)
    assert [holder(one) for one in (first, second)] == ["a", "c"]


def test_two_edits_of_one_object_come_one_after_the_other(client: httpx.Client) -> None:
    before = client.get(f"{LEASES}/node-0").json()["metadata"]["resourceVersion"]
    outcomes = made_together([held("node-0", "a"), held("node-0", "b")])
    assert [holder(one) for one in outcomes] == ["a", "b"]
    found = client.get(f"{LEASES}/node-0").json()
    assert found["spec"]["holderIdentity"] == "b"
    assert int(found["metadata"]["resourceVersion"]) >= int(before) + 2


def test_a_wrong_guess_of_what_is_stored_is_read_again(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = registry.by_resource(lanes.NODE_LEASES[0])
    old = verbs.current(kind, lanes.NODE_LEASES[1], "node-0")
    renew(client, "node-0", {"spec": {"leaseTransitions": 7}})
    monkeypatch.setattr(objects, "cached", lambda *_: old)
    (outcome,) = made_together([held("node-0", "a")])
    assert holder(outcome) == "a"
    assert verbs.current(kind, lanes.NODE_LEASES[1], "node-0").spec.lease_transitions == 7
