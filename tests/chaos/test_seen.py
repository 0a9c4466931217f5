"""What is noticed in the events of a watch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, cast

import httpx

from tests.chaos.clients import Client, Holdings, Stays, Watcher


def claim(name: str, *devices: str, revision: int = 1, **more: Any) -> dict[str, Any]:
    results = [{"driver": "d", "pool": "p", "device": device, **more} for device in devices]
    metadata = {"name": name, "uid": name, "resourceVersion": str(revision)}
    return {"metadata": metadata, "status": {"allocation": {"devices": {"results": results}}} if devices else {}}


def pod(node: str, phase: str) -> dict[str, Any]:
    return {"metadata": {"name": "p", "uid": "p"}, "spec": {"nodeName": node}, "status": {"phase": phase}}


def test_a_device_that_two_claims_have_at_one_revision_is_noticed() -> None:
    found = Holdings()
    found.seen({}, claim("a", "gpu-0"))
    found.seen({}, claim("b", "gpu-0", revision=7))
    assert found.wrong == ["at revision 7 d/p/gpu-0 is given to b b and a a"]


def test_a_device_may_go_from_one_to_another_and_be_shared() -> None:
    found = Holdings()
    found.seen({}, claim("a", "gpu-0", "gpu-1"))
    found.seen(claim("a", "gpu-0", "gpu-1"), claim("a", "gpu-1"))
    found.seen({}, claim("b", "gpu-0"))
    for name in "cd":
        found.seen({}, claim(name, "nic-0", shareID=name))
        found.seen({}, claim(name, "gpu-0", adminAccess=True))
    assert (found.wrong, found.most) == ([], 2)


def test_a_pod_that_moves_or_comes_back_is_noticed() -> None:
    found = Stays()
    for node, phase in (("", "Pending"), ("n1", "Pending"), ("n1", "Running"), ("n1", "Failed")):
        found.seen({}, pod(node, phase))
    assert found.wrong == []
    found.seen({}, pod("n2", "Failed"))
    found.seen({}, pod("n2", "Running"))
    assert found.wrong == ["pod p was on n1 and is on n2", "pod p was Failed and is Running"]


def versions(*objects: tuple[str, int], revision: int) -> dict[str, Any]:
    """A list, as it is answered: (name, revision) of each object, and the revision of all."""
    items = [{"metadata": {"name": name, "resourceVersion": str(at)}} for name, at in objects]
    return {"metadata": {"resourceVersion": str(revision)}, "items": items}


class Answers:
    """In place of a client: lists are answered one after the other (None: not at all), watches as long as there are."""

    def __init__(self, lists: list[dict[str, Any] | None], watches: list[list[dict[str, Any]]]) -> None:
        self._lists, self._watches = iter(lists), iter(watches)
        #: where each watch began
        self.begun: list[str] = []

    def ask(self, _method: str, _path: str) -> httpx.Response | None:
        found = next(self._lists)
        return None if found is None else httpx.Response(200, json=found)

    def lines(self, _path: str, **params: str) -> Iterator[str]:
        self.begun.append(params["resourceVersion"])
        yield from map(json.dumps, next(self._watches, []))


def watcher_of(client: Answers) -> Watcher:
    made = Watcher("Pod", cast(Client, client), 1, wrong=[], seen=lambda _before, _now: None)
    made.stopped.set()  # it pauses for nobody
    return made


def event(kind: str, name: str, revision: int) -> dict[str, Any]:
    return {"type": kind, "object": {"metadata": {"name": name, "resourceVersion": str(revision)}}}


def test_a_watch_that_has_missed_a_change_or_an_end_is_noticed() -> None:
    client = Answers([versions(("a", 3), ("b", 4), revision=5)], [[event("MODIFIED", "a", 6)]])
    watcher = watcher_of(client)
    watcher.act()
    assert watcher.missed(versions(("a", 6), ("b", 4), revision=6)) == []
    assert watcher.missed(versions(("a", 7), ("b", 4), ("c", 8), revision=8)) == ["a at 7", "c at 8"]
    assert watcher.missed(versions(("a", 6), revision=9)) == ["the end of b"]


def test_what_a_watch_knows_already_of_later_moments_is_not_missed() -> None:
    events = [event("ADDED", "b", 6), event("MODIFIED", "a", 7)]
    watcher = watcher_of(Answers([versions(("a", 3), revision=5)], [events[:1], events[1:]]))
    watcher.act()
    watcher.act()
    assert watcher.missed(versions(("a", 3), revision=5)) == []


def test_nothing_is_watched_until_a_list_says_from_where() -> None:
    client = Answers([None, versions(revision=5)], [[]])
    watcher = watcher_of(client)
    watcher.act()
    assert client.begun == []
    watcher.act()
    assert client.begun == ["5"]
