"""Watches that begin with much: large objects, a long log, clients that take nothing, selectors that are equal."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from manciple.access.authentication import tokens
from manciple.access.bootstrap import let_edit
from manciple.api import requests, streams, watch
from manciple.store import event_log, objects, sql
from manciple.store.records import EventRecord, EventType
from tests.manciple.api.requests import CLAIMS, claim
from tests.manciple.api.server import ApiServer, api_server, server_certificates
from tests.manciple.store.kinds import NOTES, note

__all__ = ["api_server", "server_certificates"]

#: Objects, bytes of each, and bytes that are read at once.
MANY, LARGE, READ = 12, 3_000, 10_000


@pytest.fixture
def most_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes of each read of documents."""
    monkeypatch.setattr(objects, "READ_BYTES", READ)
    read: list[int] = []

    def texts(revisions: Any, found: Any = sql.texts) -> Any:
        answer = found(revisions)
        read.append(sum(map(len, answer.values())))
        return answer

    def fetch(statement: str, parameters: Any = (), found: Any = sql.fetch) -> Any:
        answer = found(statement, parameters)
        if "previous_labels" in statement:  # of the log, with documents
            read.append(sum(len(str(row)) for row in answer))
        return answer

    monkeypatch.setattr(sql, "texts", texts)
    monkeypatch.setattr(sql, "fetch", fetch)
    return read


def fill(client: httpx.Client) -> None:
    for number in range(MANY):
        body = claim(f"c{number:02}")
        body["metadata"]["annotations"] = {"x": "y" * LARGE}
        assert client.post(CLAIMS, json=body).status_code == 201


STARTS = {
    "the state": "watch=1",
    "the state again": "watch=1&resourceVersion=0",
    "an informer": "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
    "the log": "watch=1&resourceVersion=1",
}


@pytest.mark.parametrize("query", STARTS.values(), ids=STARTS.keys())
def test_what_a_watch_begins_with_is_read_in_portions(api_server: ApiServer, most_read: list[int], query: str) -> None:
    with api_server.client() as client:
        fill(client)
        most_read.clear()
        with client.stream("GET", f"{CLAIMS}?{query}&timeoutSeconds=1") as answer:
            lines = [json.loads(line) for line in answer.iter_lines()]
    names = [line["object"]["metadata"]["name"] for line in lines if line["type"] == "ADDED"]
    assert names == [f"c{number:02}" for number in range(MANY)]
    assert most_read
    assert max(most_read) < READ + 2 * LARGE, most_read


@pytest.mark.parametrize("query", ["watch=1", "watch=1&resourceVersion=1"], ids=["the state", "the log"])
def test_watches_of_one_owner_read_one_after_the_other(
    api_server: ApiServer, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    """However many are opened, the other threads are there for others."""
    reading, most, guard, go_on = Counter[str](), Counter[str](), threading.Lock(), threading.Event()

    def watched(read: Any) -> Any:
        def counted(*values: Any, **named: Any) -> Any:
            with guard:
                reading["now"] += 1
                most["at once"] = max(most["at once"], reading["now"])
            go_on.wait(0.3)
            with guard:
                reading["now"] -= 1
            return read(*values, **named)

        return counted

    with api_server.client() as client:
        fill(client)
        monkeypatch.setattr(objects, "list_in_portions", watched(objects.list_in_portions))
        monkeypatch.setattr(event_log, "portion_after", watched(event_log.portion_after))
        with ExitStack() as stack:
            bearer = {"Authorization": f"Bearer {tokens.issue('root', ['system:masters'])}"}
            for _ in range(2 * streams.readers._max_workers):
                stack.enter_context(client.stream("GET", f"{CLAIMS}?{query}", headers=bearer))
            with client.stream("GET", f"{CLAIMS}?watch=1", headers={}) as answer:
                assert json.loads(next(answer.iter_lines()))["type"] == "ADDED"
            assert most["at once"] <= 2
            go_on.set()


@pytest.mark.django_db
def test_of_a_log_with_other_namespaces_only_ones_own_is_read() -> None:
    with objects.writing() as writer:
        for number in range(6):
            writer.create(NOTES, note(f"n{number}", namespace=("a", "b")[number % 2]))
    upto = event_log.latest_revision()
    found = event_log.portion_after(0, upto=upto, resource=NOTES.resource, namespace="a", most=2, most_bytes=10**6)
    assert ([one.name for one in found.changes], found.more) == (["n0", "n2"], True)
    rest = event_log.portion_after(
        found.revision, upto=upto, resource=NOTES.resource, namespace="a", most=2, most_bytes=10**6
    )
    assert ([one.name for one in rest.changes], rest.revision, rest.more) == (["n4"], upto, False)
    one = event_log.portion_after(0, upto=upto, resource=NOTES.resource, namespace="", most=9, most_bytes=1)
    assert [event.name for event in one.changes] == ["n0"]


def selected(number: int) -> Iterator[watch.WatchSelection]:
    for _ in range(number):
        path = requests.parse_path(CLAIMS)
        assert path is not None
        served = path.served()
        assert served is not None
        query = {"watch": "1", "labelSelector": "a!=b,c notin (d,e)", "fieldSelector": "metadata.name!=x"}
        yield watch._selection(served, path, requests.list_options(served, query, watch=True))


def test_equal_selectors_are_evaluated_once_for_an_event(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluated = list[EventRecord]()

    def counted(selection: Any, record: EventRecord, sees: Any = watch.WatchSelection.sees) -> EventType | None:
        evaluated.append(record)
        return sees(selection, record)  # type: ignore[no-any-return]

    monkeypatch.setattr(watch.WatchSelection, "sees", counted)
    event = streams.SharedEvent(
        EventRecord(
            revision=1,
            type="ADDED",
            resource="resourceclaims.resource.k8s.io",
            namespace="default",
            name="c",
            uid="u",
            document="{}",
        )
    )
    selections = list(selected(50))
    assert [event.seen_by(one) for one in selections] == ["ADDED"] * 50
    assert len(evaluated) == 1
    assert len({id(one) for one in selections}) == 1


def test_a_watch_whose_client_has_gone_reads_no_more(
    api_server: ApiServer, most_read: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    held = threading.Event()

    def slowly(self: Any, portions: Any, frames: Any = watch._Stream._state_frames) -> Any:
        held.wait(5)
        return frames(self, portions)

    with api_server.client() as client:
        fill(client)
        monkeypatch.setattr(watch._Stream, "_state_frames", slowly)
        most_read.clear()
        with client.stream("GET", f"{CLAIMS}?watch=1") as answer:
            assert answer.status_code == 200
        time.sleep(0.3)
        held.set()
        time.sleep(0.3)
    assert len([size for size in most_read if size > LARGE]) <= 1


@pytest.mark.parametrize("groups", [[], ["system:masters"]], ids=["a tenant", "an administrator"])
def test_large_objects_are_sent_in_pieces_and_to_tenants_at_a_pace(
    api_server: ApiServer, monkeypatch: pytest.MonkeyPatch, groups: list[str]
) -> None:
    monkeypatch.setattr(watch, "PIECE", LARGE // 2)
    paced, sent = list[int](), list[int]()

    async def wait(pace: Any, size: int, waits: Any = streams.SendingPace.wait) -> None:
        paced.append(size)
        await waits(pace, size)

    async def run(stream: Any, runs: Any = watch._Stream.run) -> None:
        async def send(message: Any, sends: Any = stream._send) -> None:
            sent.append(len(message.get("body", b"")))
            await sends(message)

        stream._send = send
        await runs(stream)

    monkeypatch.setattr(streams.SendingPace, "wait", wait)
    monkeypatch.setattr(watch._Stream, "run", run)
    with api_server.client() as client:
        fill(client)
    let_edit("somebody", "default")
    token = tokens.issue("somebody", ["system:authenticated", *groups])
    with (
        api_server.client(token=token) as client,
        client.stream("GET", f"{CLAIMS}?watch=1&timeoutSeconds=1") as answer,
    ):
        lines = [json.loads(line) for line in answer.iter_lines()]
    assert len(lines) == MANY
    assert max(sent) == LARGE // 2
    assert sum(paced) == (0 if groups else sum(sent))


def test_the_watches_of_a_tenant_take_a_part_of_the_time_however_many_they_are() -> None:
    size, count = 1_000_000, 8

    async def send_large(pace: streams.SendingPace) -> float:
        began = time.monotonic()
        await asyncio.gather(*(pace.wait(size) for _ in range(count)))
        return time.monotonic() - began

    async def send_little() -> float:
        pace, began = streams.SendingPace(), time.monotonic()
        for _ in range(5):
            await pace.wait(1_000)
        return time.monotonic() - began

    takes = size / streams.SENDING_SPEED
    assert asyncio.run(send_large(streams.SendingPace())) >= (count - 1) * takes / streams.SENDING_SHARE
    assert asyncio.run(send_little()) < takes
