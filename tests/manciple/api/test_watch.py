"""Watches through a real server: where they start, what they send, how they end."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import httpx
import pytest

from manciple.access.authentication import tokens
from manciple.api import streams, watch
from manciple.store import space
from manciple.store.records import EventRecord
from manciple.wire.selectors import FieldRequirement
from tests.manciple.api.requests import CLAIMS, LEASES, METADATA, NAMESPACES, PODS, TABLE, claim, lease, pod
from tests.manciple.api.server import ApiServer
from tests.manciple.extensions.builders import DEFINITIONS, WIDGETS, definition, version, widget

INFORMER = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"


class Watch:
    """The events of one open watch, read as they come."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._lines = response.iter_lines()

    def next(self) -> Any:
        return json.loads(next(self._lines))

    def take(self, count: int) -> list[tuple[str, str]]:
        """(type, name) of the next events."""
        events = [self.next() for _ in range(count)]
        return [(event["type"], event["object"]["metadata"].get("name", "")) for event in events]

    def rest(self) -> list[Any]:
        return [json.loads(line) for line in self._lines]


class Server:
    """Requests to the server under test."""

    def __init__(self, api_server: ApiServer) -> None:
        self.client = api_server.client()

    @contextmanager
    def watch(self, path: str, query: str = "watch=true", *, accept: str = "application/json") -> Iterator[Watch]:
        with self.client.stream("GET", f"{path}?{query}", headers={"Accept": accept}) as response:
            yield Watch(response)

    def made(self, path: str, body: Any) -> Any:
        answer = self.client.post(path, json=body)
        assert answer.status_code == 201, answer.text
        return answer.json()

    def patch(self, path: str, body: Any) -> None:
        answer = self.client.patch(path, json=body, headers={"Content-Type": "application/merge-patch+json"})
        assert answer.status_code == 200, answer.text

    def revision(self, path: str) -> str:
        return str(self.client.get(path).json()["metadata"]["resourceVersion"])


@pytest.fixture
def server(api_server: ApiServer) -> Iterator[Server]:
    made = Server(api_server)
    yield made
    made.client.close()


def test_a_watch_without_a_revision_starts_with_the_state(server: Server) -> None:
    server.made(CLAIMS, claim("a"))
    with server.watch(CLAIMS) as watching:
        assert watching.take(1) == [("ADDED", "a")]
        server.made(CLAIMS, claim("b"))
        server.patch(f"{CLAIMS}/a", {"metadata": {"labels": {"x": "y"}}})
        server.client.delete(f"{CLAIMS}/b")
        assert watching.take(3) == [("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "b")]


def test_a_watch_from_a_revision_sends_what_came_after(server: Server) -> None:
    server.made(CLAIMS, claim("a"))
    revision = server.revision(CLAIMS)
    server.made(CLAIMS, claim("b"))
    server.made(LEASES, lease())
    with server.watch(CLAIMS, f"watch=1&resourceVersion={revision}") as watching:
        assert watching.take(1) == [("ADDED", "b")]
        server.made(CLAIMS, claim("c"))
        assert watching.take(1) == [("ADDED", "c")]


#: path -> the code
WATCHED_BY_NOBODY = {
    "/apis/metrics.k8s.io/v1beta1/nodes": 405,
    "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods": 405,
    "/apis/metrics.k8s.io/v1beta1/watch/pods": 404,
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews": 405,
    "/apis/nosuch.example.com/v1/things": 404,
    f"{CLAIMS}/a/status": 200,  # the query means nothing to it
}


@pytest.mark.parametrize("path", WATCHED_BY_NOBODY)
def test_what_cannot_be_watched_says_so(server: Server, path: str) -> None:
    server.made(CLAIMS, claim("a"))
    answer = server.client.get(f"{path}?watch=true&timeoutSeconds=1")
    assert answer.status_code == WATCHED_BY_NOBODY[path], answer.text
    assert answer.status_code != 405 or answer.json()["reason"] == "MethodNotAllowed"


def test_a_watch_in_its_old_spelling(server: Server) -> None:
    server.made(CLAIMS, claim("a"))
    with server.watch(CLAIMS.replace("/v1/", "/v1/watch/"), "timeoutSeconds=1") as watching:
        assert watching.take(1) == [("ADDED", "a")]
        assert watching.rest() == []


def test_a_watch_of_one_object(server: Server) -> None:
    server.made(CLAIMS, claim("a"))
    server.made(CLAIMS, claim("b"))
    with server.watch(f"{CLAIMS}/b", "watch=true&timeoutSeconds=1") as watching:
        assert watching.take(1) == [("ADDED", "b")]
        assert watching.rest() == []


def test_a_watch_ends_with_its_version_and_others_go_on(server: Server) -> None:
    server.made(DEFINITIONS, definition(version(), version("v2")))
    server.made(WIDGETS, widget())
    with server.watch(WIDGETS) as stays, server.watch(WIDGETS.replace("/v1/", "/v2/")) as ends:
        assert stays.take(1) == ends.take(1) == [("ADDED", "one")]
        last = {"spec": {"versions": [version(), version("v2", served=False)]}}
        server.patch(f"{DEFINITIONS}/widgets.example.com", last)
        assert ends.rest() == []
        server.made(WIDGETS, widget("two"))
        assert stays.take(1) == [("ADDED", "two")]


def test_an_informer_is_told_when_it_has_the_state(server: Server) -> None:
    server.made(CLAIMS, claim("a"))
    with server.watch(CLAIMS, INFORMER) as watching:
        assert watching.take(1) == [("ADDED", "a")]
        bookmark = watching.next()
        assert bookmark["type"] == "BOOKMARK"
        assert bookmark["object"]["kind"] == "ResourceClaim"
        assert bookmark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert bookmark["object"]["metadata"]["resourceVersion"] == server.revision(CLAIMS)


def test_an_informer_may_start_without_the_state(server: Server) -> None:
    server.made(CLAIMS, claim("a"))
    query = INFORMER.replace("sendInitialEvents=true", "sendInitialEvents=false")
    with server.watch(CLAIMS, query) as watching:
        server.made(CLAIMS, claim("b"))
        assert watching.take(1) == [("ADDED", "b")]


def test_a_quiet_watch_gets_bookmarks_that_move_on(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "BOOKMARK_INTERVAL", 0.05)
    with server.watch(CLAIMS, "watch=true&allowWatchBookmarks=true") as watching:
        made = server.made(LEASES, lease())
        wanted = int(made["metadata"]["resourceVersion"])
        bookmark = watching.next()
        while int(bookmark["object"]["metadata"]["resourceVersion"]) < wanted:
            bookmark = watching.next()
        assert bookmark["type"] == "BOOKMARK"
        assert "annotations" not in bookmark["object"]["metadata"]


def test_a_watch_gets_a_bookmark_shortly_before_its_end(server: Server) -> None:
    with server.watch(CLAIMS, "watch=true&allowWatchBookmarks=true&timeoutSeconds=3") as watching:
        made = server.made(LEASES, lease())
        (bookmark,) = watching.rest()
    assert bookmark["type"] == "BOOKMARK"
    assert int(bookmark["object"]["metadata"]["resourceVersion"]) >= int(made["metadata"]["resourceVersion"])


def test_a_short_watch_gets_no_bookmark(server: Server) -> None:
    with server.watch(CLAIMS, "watch=true&allowWatchBookmarks=true&timeoutSeconds=1") as watching:
        assert watching.rest() == []


def test_objects_come_into_a_selection_and_leave_it(server: Server) -> None:
    server.made(CLAIMS, claim("a", labels={"team": "blue"}))
    with server.watch(CLAIMS, "watch=true&labelSelector=team=red") as watching:
        server.patch(f"{CLAIMS}/a", {"metadata": {"labels": {"team": "red"}}})
        server.patch(f"{CLAIMS}/a", {"metadata": {"labels": {"size": "big"}}})
        server.patch(f"{CLAIMS}/a", {"metadata": {"labels": {"team": "blue"}}})
        assert watching.take(3) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]


def test_a_node_watches_the_pods_that_are_bound_to_it(server: Server) -> None:
    server.made(PODS, pod("p"))
    with server.watch("/api/v1/pods", "watch=true&fieldSelector=spec.nodeName=n1") as watching:
        binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}}
        assert server.client.post(f"{PODS}/p/binding", json=binding).status_code == 201
        assert watching.take(1) == [("ADDED", "p")]


def test_a_watch_as_tables_names_the_columns_once(server: Server) -> None:
    server.made(CLAIMS, claim("a"))
    with server.watch(CLAIMS, accept=TABLE) as watching:
        first = watching.next()["object"]
        server.made(CLAIMS, claim("b"))
        second = watching.next()["object"]
    assert [first["kind"], second["kind"]] == ["Table", "Table"]
    shown = [column["name"] for column in first["columnDefinitions"] if not column["priority"]]
    assert shown == ["Name", "State", "Age"]
    assert second["columnDefinitions"] == []
    assert [first["rows"][0]["cells"][0], second["rows"][0]["cells"][0]] == ["a", "b"]


def test_a_watch_of_metadata(server: Server) -> None:
    server.made(CLAIMS, claim("a"))
    with server.watch(CLAIMS, accept=METADATA) as watching:
        assert watching.next()["object"]["kind"] == "PartialObjectMetadata"


def test_a_watch_in_an_older_version(server: Server) -> None:
    server.made(CLAIMS, claim("a"))
    with server.watch(CLAIMS.replace("/v1/", "/v1beta1/")) as watching:
        document = watching.next()["object"]
    assert document["apiVersion"] == "resource.k8s.io/v1beta1"
    assert "exactly" not in document["spec"]["devices"]["requests"][0]


def test_a_watch_below_the_pruned_log_is_expired(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    revision = server.revision(CLAIMS)
    server.made(CLAIMS, claim("a"))
    server.patch(f"{CLAIMS}/a", {"metadata": {"labels": {"x": "y"}}})
    prune_everything()
    with server.watch(CLAIMS, f"watch=true&resourceVersion={revision}") as watching:
        event = watching.next()
        assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")
        assert watching.rest() == []


def test_a_watch_from_a_revision_that_never_was_is_expired(server: Server) -> None:
    with server.watch(CLAIMS, "watch=true&resourceVersion=999999") as watching:
        assert watching.next()["object"]["code"] == 410


REFUSED = {
    "a resource that nobody serves": ("/api/v1/nonsense", "watch=true", 404),
    "a match without initial events": (CLAIMS, "watch=true&resourceVersionMatch=NotOlderThan", 422),
    "initial events without a match": (CLAIMS, "watch=true&sendInitialEvents=true", 422),
    "initial events of an exact revision": (
        CLAIMS,
        "watch=true&sendInitialEvents=true&resourceVersionMatch=Exact",
        422,
    ),
    "a selector that cannot be read": (CLAIMS, "watch=true&labelSelector=a+in", 400),
}


@pytest.mark.parametrize(("path", "query", "code"), REFUSED.values(), ids=REFUSED.keys())
def test_a_watch_that_makes_no_sense_is_refused(server: Server, path: str, query: str, code: int) -> None:
    answer = server.client.get(f"{path}?{query}")
    assert (answer.status_code, answer.json()["kind"]) == (code, "Status")


def test_nobody_watches_without_a_right(api_server: ApiServer) -> None:
    with api_server.client(token="") as stranger:
        answer = stranger.get(f"{NAMESPACES}?watch=true")
    assert answer.status_code == 403
    assert 'cannot watch resource "namespaces"' in answer.json()["message"]


def test_a_watch_ends_after_its_timeout(server: Server) -> None:
    with server.watch(CLAIMS, "watch=true&timeoutSeconds=1") as watching:
        assert watching.rest() == []


def test_no_event_is_lost_between_the_list_and_the_stream(server: Server) -> None:
    """Watches that start while somebody writes: each sees every later revision once, in order."""
    revision = server.revision(CLAIMS)
    count = 30
    writer = threading.Thread(target=lambda: [server.made(CLAIMS, claim(f"c{number}")) for number in range(count)])
    writer.start()
    for _ in range(5):
        with server.watch(CLAIMS, f"watch=true&resourceVersion={revision}") as watching:
            assert watching.take(count) == [("ADDED", f"c{number}") for number in range(count)]
    writer.join()


def test_a_client_that_does_not_keep_up_is_let_go() -> None:
    async def overflow() -> tuple[bool, int]:
        watcher = streams.Watcher("pods", limit=2)
        for _ in range(3):
            watcher.enqueue(streams.SharedEvent(record=None))  # type: ignore[arg-type]
        return watcher.closed, watcher.waiting

    assert asyncio.run(overflow()) == (True, 0)


def event(revision: int, node: str, before: str | None = None) -> EventRecord:
    """Of a pod that has this node, and had that one."""
    return EventRecord(
        revision=revision,
        type="ADDED" if before is None else "MODIFIED",
        resource="pods",
        namespace="default",
        name="p",
        uid="u",
        document="{}",
        stored_labels="{}",
        stored_fields=json.dumps({"spec.nodeName": node}),
        stored_previous_labels=None if before is None else "{}",
        stored_previous_fields=None if before is None else json.dumps({"spec.nodeName": before}),
    )


def test_an_event_wakes_the_watches_of_its_node_and_not_those_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async def follows(_hub: streams.Hub) -> None:
        """There is no log here."""

    monkeypatch.setattr(streams.Hub, "follow", follows)

    async def woken() -> list[int]:
        hub = streams.Hub(asyncio.get_running_loop())
        topics = [FieldRequirement("spec.nodeName", node) for node in ("n1", "n2", "n3")]
        watchers = [(await hub.join("pods", topic=topic))[0] for topic in (None, *topics)]
        hub._dispatch([event(1, ""), event(2, "n1", before=""), event(3, "n2", before="n1")])
        hub.leave(watchers[1])
        hub._dispatch([event(4, "n1")])
        return [watcher.waiting for watcher in watchers]

    assert asyncio.run(woken()) == [4, 2, 1, 0]


def test_an_event_for_many_watches_leaves_the_loop_to_others_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    async def follows(_hub: streams.Hub) -> None:
        """There is no log here."""

    monkeypatch.setattr(streams.Hub, "follow", follows)
    most = 5 * streams.TURN

    async def served() -> None:
        hub = streams.Hub(asyncio.get_running_loop())
        watchers = [(await hub.join("pods"))[0] for _ in range(most)]
        hub._dispatch([event(1, ""), event(2, "n1", before="")])
        hub._dispatch([event(3, "n2", before="n1")])
        assert sum(watcher.waiting for watcher in watchers) == streams.TURN
        assert hub.position == 0  # a bookmark must not tell of an event that some have not
        late, joined_at = await hub.join("pods")
        assert joined_at == 1  # who joins now reads event 1 from the log
        turns = 0
        while hub.position < 3:
            turns += 1
            await asyncio.sleep(0)
        assert turns >= 3 * most // streams.TURN - 1
        for watcher in watchers:
            assert [one.record.revision for one in await watcher.take(seconds=1)] == [1, 2, 3]
        assert [one.record.revision for one in await late.take(seconds=1)] == [2, 3]

    asyncio.run(served())


def test_of_an_identitys_watches_that_hold_too_much_the_slowest_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def follows(_hub: streams.Hub) -> None:
        """There is no log here."""

    monkeypatch.setattr(streams.Hub, "follow", follows)
    monkeypatch.setattr(streams, "SLOW", 0.01)
    monkeypatch.setattr(streams, "UNREAD_LIMIT", 2 * len("{}"))

    async def served() -> None:
        hub = streams.Hub(asyncio.get_running_loop())
        slow, quick = [(await hub.join("pods", owner="mallory"))[0] for _ in range(2)]
        other, _ = await hub.join("pods", owner="alice")
        hub._dispatch([event(1, "")])
        assert await slow.take(seconds=1)  # and its client takes nothing of it
        cut_off = asyncio.create_task(sends_for_ever(slow))
        for revision in range(2, 5):
            await quick.take(seconds=1)
            await asyncio.sleep(0.02)
            await quick.take(seconds=0)
            await other.take(seconds=0)
            hub._dispatch([event(revision, "")])
        assert (slow.closed, quick.closed, other.closed) == (True, False, False)
        await asyncio.wait_for(cut_off, 5)

    async def sends_for_ever(watcher: streams.Watcher) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60) as watcher.sending:
                await asyncio.Event().wait()

    asyncio.run(served())


def prune_everything() -> None:
    """Make the log forget all that is not the latest of an object."""
    space.prune(older_than=timedelta(0))


# Rights that end while a watch is open.

RBAC = "/apis/rbac.authorization.k8s.io/v1"
VIEWER = {
    "metadata": {"name": "bob"},
    "roleRef": {"kind": "ClusterRole", "name": "view"},
    "subjects": [{"kind": "User", "name": "bob"}],
}


@contextmanager
def watched_by_bob(api_server: ApiServer, server: Server) -> Iterator[Watch]:
    """Of the claims in the namespace default, which a binding lets him see."""
    server.made(f"{RBAC}/namespaces/default/rolebindings", VIEWER)
    token = tokens.issue("bob", [])
    with (
        api_server.client(token=token) as bob,
        bob.stream("GET", f"{CLAIMS}?watch=true") as response,
    ):
        assert response.status_code == 200
        watching = Watch(response)
        server.made(CLAIMS, claim("first"))
        assert watching.take(1) == [("ADDED", "first")]
        yield watching


def test_a_watch_ends_with_the_right_to_it(api_server: ApiServer, server: Server) -> None:
    with watched_by_bob(api_server, server) as watching:
        server.made(f"{RBAC}/clusterroles", {"metadata": {"name": "x"}, "rules": []})  # changes nothing for him
        server.made(CLAIMS, claim("second"))
        assert watching.take(1) == [("ADDED", "second")]
        assert server.client.delete(f"{RBAC}/namespaces/default/rolebindings/bob").status_code == 200
        (last,) = watching.rest()
    assert (last["type"], last["object"]["code"], last["object"]["reason"]) == ("ERROR", 403, "Forbidden")
    assert 'User "bob" cannot watch resource "resourceclaims"' in last["object"]["message"]


def test_a_watch_ends_with_the_token_that_opened_it(
    api_server: ApiServer, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "ASKED_AGAIN", 0.05)
    with watched_by_bob(api_server, server) as watching:
        tokens.revoke("bob")
        (last,) = watching.rest()
    assert (last["type"], last["object"]["code"]) == ("ERROR", 401)
