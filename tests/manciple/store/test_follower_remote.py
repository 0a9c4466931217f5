"""A follower of another source than the log: the lists and watches of an API server, over HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit
from urllib.request import urlopen

from manciple.store.event_log import Follower, Source, Stretch
from manciple.store.records import Written
from manciple.wire import codec
from manciple.wire.base import ApiObject
from manciple.wire.errors import Expired
from manciple.wire.registry import registry
from tests.manciple.store.kinds import NOTES, SHELVES
from tests.manciple.store.test_follower import Names


class Remote:
    """Lists and watches over HTTP, one resource each, as an API server serves them."""

    def __init__(self, server: str) -> None:
        self._server = server

    def list(self, resource: str) -> tuple[int, Iterable[ApiObject]]:
        found = json.loads(self._get(f"{resource}"))
        type_ = registry.by_resource(resource).type
        items = [codec.decode_text(type_, json.dumps(item)) for item in found["items"]]
        return int(found["metadata"]["resourceVersion"]), items

    def changes(self, resources: Sequence[str], after: int) -> Stretch[Written]:
        """Several watches of different moments: together they tell everything up to the earliest."""
        watched = [self._watch(resource, after) for resource in resources]
        reached = min(revision for revision, _ in watched)
        found = sorted(change for _, changes in watched for change in changes if change[0] <= reached)
        return Stretch(
            [Written(*change) for change in found], reached, any(revision > reached for revision, _ in watched)
        )

    def _watch(self, resource: str, after: int) -> tuple[int, Sequence[tuple[int, Any, str, ApiObject]]]:
        """(the revision of the bookmark that ends the watch, what happened up to there)."""
        changes, reached = [], after
        type_ = registry.by_resource(resource).type
        for line in self._get(f"{resource}?watch=1&resourceVersion={after}").splitlines():
            event = json.loads(line)
            if event["type"] == "ERROR":
                assert event["object"]["code"] == 410
                raise Expired(event["object"]["message"])
            reached = int(event["object"]["metadata"]["resourceVersion"])
            if event["type"] != "BOOKMARK":
                obj = codec.decode_text(type_, json.dumps(event["object"]))
                changes.append((reached, event["type"], resource, obj))
        return reached, changes

    def _get(self, path: str) -> str:
        with urlopen(f"{self._server}/{path}") as answer:
            text: str = answer.read().decode()
        return text


class ApiServer:
    """Objects in memory, served as lists and as watches that end when they have told what there is."""

    def __init__(self) -> None:
        self.revision = 1
        self.floor = 0
        self.events: list[tuple[str, str, dict[str, Any]]] = []  # (resource, type, document)

    def write(self, resource: str, type_: str, name: str) -> None:
        self.revision += 1
        namespace = {} if resource == SHELVES.resource else {"namespace": "home"}
        meta = {"name": name, **namespace, "uid": f"uid-{name}", "resourceVersion": str(self.revision)}
        self.events.append((resource, type_, {"metadata": meta}))

    def live(self, resource: str) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for of, type_, document in self.events:
            if of == resource:
                found.pop(document["metadata"]["name"], None)
                if type_ != "DELETED":
                    found[document["metadata"]["name"]] = document
        return found

    def answer(self, path: str) -> str:
        parts = urlsplit(path)
        resource, asked = parts.path.strip("/"), parse_qs(parts.query)
        if "watch" not in asked:
            meta = {"resourceVersion": str(self.revision)}
            return json.dumps({"metadata": meta, "items": list(self.live(resource).values())})
        after = int(asked["resourceVersion"][0])
        if not self.floor <= after <= self.revision:
            return json.dumps({"type": "ERROR", "object": {"code": 410, "message": "too old resource version"}})
        told = [
            {"type": type_, "object": document}
            for of, type_, document in self.events
            if of == resource and int(document["metadata"]["resourceVersion"]) > after
        ]
        bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(self.revision)}}}
        return "\n".join(map(json.dumps, [*told, bookmark]))


@contextmanager
def serving(server: ApiServer) -> Iterator[Source]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = server.answer(self.path).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_args: object) -> None:
            """Tests are quiet."""

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=listener.serve_forever)
    thread.start()
    try:
        yield Remote(f"http://127.0.0.1:{listener.server_port}")
    finally:
        listener.shutdown()
        thread.join()
        listener.server_close()


def test_a_remote_api_server_is_followed_in_the_same_way() -> None:
    server = ApiServer()
    server.write(NOTES.resource, "ADDED", "a")
    with serving(server) as source:
        following = Follower(Names, source=source)
        with following.view() as view:
            assert set(view.objects) == {(NOTES.resource, "a")}
        server.write(SHELVES.resource, "ADDED", "B")
        server.write(NOTES.resource, "MODIFIED", "a")
        server.write(NOTES.resource, "DELETED", "a")
        with following.view() as same:
            assert same is view
            assert same.news == ["ADDED B", "MODIFIED a", "DELETED a"]
        server.write(NOTES.resource, "ADDED", "c")
        server.floor = server.revision  # its log is pruned past the follower
        with following.view() as anew:
            assert anew is not view
            assert set(anew.objects) == {(SHELVES.resource, "B"), (NOTES.resource, "c")}
            assert anew.revision == server.revision
