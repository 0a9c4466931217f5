"""How a resource is followed: what its server refuses, lacks or breaks off."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from inventory.kinds import gates
from manciple.mirror.client import Remote
from manciple.mirror.following import ASKED_AGAIN_AFTER, POLLED_EVERY, SILENCE
from manciple.mirror.kubeconfig import Access, Cluster, User
from manciple.mirror.sources import Reach
from tests.manciple.mirror.clusters import claim, node, pod, remote_of
from tests.manciple.mirror.living import Living, _line
from tests.manciple.mirror.replay import Answer
from tests.manciple.mirror.test_copying import Mirror, assert_equal, stored

pytestmark = pytest.mark.django_db


@pytest.fixture
def cluster() -> Iterator[Living]:
    with gates.using(), Living({"pods": [pod("a"), pod("b", namespace="team-b")]}) as cluster:
        yield cluster


def asked(cluster: Living, *texts: str) -> list[str]:
    """The requests since the last look that contain all of these texts."""
    found = [path for path in cluster.asked if all(text in path for text in texts)]
    cluster.asked.clear()
    return found


def test_a_server_that_can_begins_the_watch_with_the_state(cluster: Living) -> None:
    mirror = Mirror(remote_of(cluster), "pods")
    mirror.turn()
    assert asked(cluster, "sendInitialEvents=true", "allowWatchBookmarks=true")
    assert mirror.standing("pods").reach is Reach.EVERYWHERE
    assert mirror.standing("pods").listed_at is not None
    assert_equal(cluster, "pods")
    mirror.turn()
    assert asked(cluster, f"resourceVersion={cluster.objects['pods'][-1]['metadata']['resourceVersion']}")


def test_another_server_is_listed_in_pages_and_is_not_asked_for_more_again(cluster: Living) -> None:
    cluster.watch_lists = False
    for number in range(3):
        cluster.put("pods", pod(f"p{number}"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("manciple.mirror.listing.PAGE", 2)
        mirror = Mirror(remote_of(cluster), "pods")
        mirror.turn()
        assert len(asked(cluster, "limit=2")) == 3
        assert_equal(cluster, "pods")
        cluster.prune()
        cluster.put("pods", pod("late"))
        for _ in range(3):
            mirror.turn()
        assert not asked(cluster, "sendInitialEvents")
        assert_equal(cluster, "pods")


def test_bookmarks_move_the_point_from_which_a_watch_resumes(cluster: Living) -> None:
    """Otherwise a quiet resource would be listed again whenever the server forgets."""
    mirror = Mirror(remote_of(cluster), "pods")
    mirror.turn()
    cluster.put("nodes", node("n1"))
    mirror.turn()
    cluster.prune()
    asked(cluster)
    mirror.turn()
    cluster.put("pods", pod("late"))
    mirror.turn()
    assert not asked(cluster, "sendInitialEvents")
    assert_equal(cluster, "pods")


def test_a_resource_that_may_be_read_in_one_namespace_is_followed_there(cluster: Living) -> None:
    mirror = Mirror(remote_of(cluster), "pods", namespace="team-a")
    mirror.turn()
    cluster.forbidden, cluster.only = frozenset({"pods"}), "team-a"
    mirror.restart()
    mirror.turn()
    standing = mirror.standing("pods")
    assert (standing.reach, "forbidden" in standing.detail) == (Reach.NAMESPACE, True)
    cluster.delete("pods", "team-a", "a")
    cluster.delete("pods", "team-b", "b")
    cluster.put("pods", pod("c"))
    mirror.turn()
    assert stored("pods").keys() == {"team-a/c", "team-b/b"}, "nothing is known of others: they stay as they were"
    assert mirror.standing("pods").detail == standing.detail


def test_a_resource_that_may_not_be_read_is_asked_for_again_after_minutes_and_followed_once_it_may(
    cluster: Living,
) -> None:
    cluster.forbidden = frozenset({"pods"})
    mirror = Mirror(remote_of(cluster), "pods", namespace="team-a")
    wait = mirror.followers["pods"].turn()
    assert ASKED_AGAIN_AFTER / 2 < wait < 2 * ASKED_AGAIN_AFTER
    assert (mirror.standing("pods").reach, mirror.copy.failing["pods"]) == (Reach.FORBIDDEN, "")
    cluster.forbidden = frozenset()
    mirror.turn()
    assert (mirror.standing("pods").reach, mirror.standing("pods").detail) == (Reach.EVERYWHERE, "")
    assert_equal(cluster, "pods")


def test_a_resource_that_may_not_be_watched_is_listed_every_minute(cluster: Living) -> None:
    cluster.unwatchable = frozenset({"pods"})
    mirror = Mirror(remote_of(cluster), "pods")
    waits = [mirror.followers["pods"].turn() for _ in range(4)]
    assert waits[-1] == POLLED_EVERY
    assert "watched" in mirror.standing("pods").detail
    cluster.delete("pods", "team-a", "a")
    mirror.turn()
    assert_equal(cluster, "pods")


def test_what_is_not_served_any_more_is_gone(cluster: Living) -> None:
    mirror = Mirror(remote_of(cluster), "pods")
    mirror.turn()
    mirror = Mirror(remote_of(cluster), "pods", versions={"pods": ""})
    assert mirror.followers["pods"].turn() == ASKED_AGAIN_AFTER
    assert mirror.standing("pods").reach is Reach.ABSENT
    assert stored("pods") == {}


def test_a_server_that_has_another_version_only_is_read_in_that(cluster: Living) -> None:
    cluster.dra = "v1beta2"
    cluster.put("resourceclaims", claim("c"))
    mirror = Mirror(remote_of(cluster), "resourceclaims", versions={"resourceclaims": "v1beta2"})
    mirror.turn()
    assert mirror.standing("resourceclaims").version == "v1beta2"
    assert_equal(cluster, "resourceclaims")


def test_failures_are_told_and_tried_again_after_growing_pauses_and_what_was_known_stays_known(cluster: Living) -> None:
    mirror = Mirror(remote_of(cluster), "pods")
    mirror.turn()
    listed_at = mirror.standing("pods").listed_at
    cluster.busy = 100
    waits = [mirror.followers["pods"].turn() for _ in range(8)]
    assert waits[0] < 1
    assert 15 < waits[-1] < 60
    assert "too many requests" in mirror.copy.failing["pods"]
    standing = mirror.standing("pods")
    assert (standing.reach, standing.listed_at) == (Reach.EVERYWHERE, listed_at)
    cluster.busy = 0
    mirror.turn()
    assert (mirror.copy.failing["pods"], mirror.standing("pods").detail) == ("", "")


def test_a_watch_that_breaks_off_is_resumed_and_is_no_failure(cluster: Living) -> None:
    mirror = Mirror(remote_of(cluster), "pods")
    mirror.turn()
    for number in range(3):
        cluster.put("pods", pod(f"p{number}"))
        cluster.broken_after = 0
        assert mirror.followers["pods"].turn() < 1
        assert mirror.copy.failing["pods"] == ""
    mirror.turn()
    assert_equal(cluster, "pods")


def test_a_watch_that_is_silent_for_too_long_ends(cluster: Living) -> None:
    mirror = Mirror(remote_of(cluster), "pods")
    mirror.turn()
    cluster.silent = True
    mirror.followers["pods"]._silence = 0.2
    mirror.turn()
    mirror.followers["pods"]._silence = SILENCE
    cluster.silent = False
    cluster.put("pods", pod("late"))
    mirror.turn()
    assert_equal(cluster, "pods")


def test_credentials_that_expired_are_read_again_for_lists_and_for_watches(cluster: Living) -> None:
    tokens = iter(["second", "third"])

    def access(token: str) -> Access:
        return Access(cluster=Cluster(server=cluster.url), user=User(name="me", token=token))

    cluster.token = "first"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("manciple.mirror.client.RENEWED_FOR", 0.0)
        mirror = Mirror(Remote(access("first"), renew=lambda: access(next(tokens))), "pods")
        mirror.turn()
        cluster.token = "second"
        cluster.put("pods", pod("late"))
        mirror.turn()
        mirror.turn()
        assert_equal(cluster, "pods")
        cluster.watch_lists, cluster.token = False, "third"
        cluster.put("pods", pod("later"))
        mirror.restart()
        mirror.turn()
        mirror.turn()
        assert_equal(cluster, "pods")
    cluster.token = "fourth"
    mirror.turn()
    mirror.turn()
    assert "does not accept the credentials" in mirror.copy.failing["pods"]


# Servers that behave strangely ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("strict", [True, False], ids=["refuses", "waits"])
@pytest.mark.parametrize("watch_lists", [True, False], ids=["watch-list", "pages"])
@pytest.mark.parametrize("is_new", [True, False], ids=["the mirror restarts", "the mirror goes on"])
def test_a_server_that_was_restored_from_a_backup_is_copied_as_it_is_then(
    cluster: Living, strict: bool, watch_lists: bool, is_new: bool
) -> None:
    """Though an object has the version again that it had before, and is another."""
    cluster.strict, cluster.watch_lists = strict, watch_lists
    cluster.backup()
    mirror = Mirror(remote_of(cluster), "pods")
    before = cluster.put("pods", pod("a", cpu="7"))["metadata"]["resourceVersion"]
    for name in ("late", "later"):
        cluster.put("pods", pod(name))
    mirror.turn()
    cluster.restore()
    assert cluster.put("pods", pod("a", cpu="5"))["metadata"]["resourceVersion"] == before
    if is_new:
        mirror.restart()
    for _ in range(2):
        mirror.turn()
    assert_equal(cluster, "pods")
    cluster.put("pods", pod("after"))
    mirror.turn()
    assert_equal(cluster, "pods")


def test_a_list_whose_pages_expire_begins_again_and_keeps_nothing_that_is_gone(
    cluster: Living, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.watch_lists = False
    monkeypatch.setattr("manciple.mirror.listing.PAGE", 1)
    listed, gone = cluster._list, [True]

    def later(plural: str, namespace: str, query: Mapping[str, list[str]]) -> Answer:
        if "continue" in query and gone.pop():
            cluster.delete("pods", "team-a", "a")
            cluster.put("pods", pod("z"))
            cluster.prune()
        return listed(plural, namespace, query)

    monkeypatch.setattr(cluster, "_list", later)
    mirror = Mirror(remote_of(cluster), "pods")
    mirror.turn()
    assert not gone
    assert mirror.copy.failing["pods"] == ""
    assert_equal(cluster, "pods")


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"7",
        b"\xff\xfe",
        b'{"type":"ADDED","object":7}',
        b'{"type":"ADDED","object":{"metadata":{"name":"\xff"}}}',
        b'{"type":"ERROR","object":"no status"}',
        b'{"type":"ERROR","object":{"code":504,"message":"Too large resource version"}}',
        b'{"object":{}}',
        b"[" * 5000,
    ],
)
def test_a_line_of_a_watch_that_is_no_event_leads_to_a_listing(cluster: Living, line: bytes) -> None:
    mirror = Mirror(remote_of(cluster), "pods")
    mirror.turn()
    cluster.put("pods", pod("late"))
    cluster.answer = lambda _path: (200, {}, iter([line + b"\n"]))
    mirror.turn()
    cluster.answer = lambda _path: None
    asked(cluster)
    mirror.turn()
    assert asked(cluster, "sendInitialEvents")
    assert_equal(cluster, "pods")


@pytest.mark.parametrize("body", [b"", b"{", b"7", b"\xff", b'{"items":7}', b'{"items":[7]}', b"[" * 5000])
@pytest.mark.parametrize("watch_lists", [True, False], ids=["watch-list", "pages"])
def test_a_list_that_is_none_is_a_failure_and_nothing_is_lost(cluster: Living, watch_lists: bool, body: bytes) -> None:
    mirror = Mirror(remote_of(cluster), "pods")
    mirror.turn()
    mirror.restart()
    mirror.followers["pods"]._watch_lists = watch_lists
    cluster.answer = lambda _path: (200, {}, body)
    mirror.turn()
    assert mirror.copy.failing["pods"]
    assert len(stored("pods")) == 2
    cluster.answer = lambda _path: None
    mirror.turn()
    assert_equal(cluster, "pods")


@pytest.mark.parametrize("watch_lists", [True, False], ids=["watch-list", "pages"])
@pytest.mark.parametrize("depth", [150, 900, 9000])
def test_what_nests_deeper_than_anybody_reads_costs_only_its_own_depths(
    cluster: Living, watch_lists: bool, depth: int
) -> None:
    """Opaque parameters of a claim may: whoever writes one must not blind a mirror."""
    cluster.watch_lists = watch_lists
    one = claim("deep")
    cluster.put("resourceclaims", one)
    deep = json.dumps(one["spec"])[:-1] + ', "xDeep": {"a":' + "[" * depth + "]" * depth + ', "b": 1}}'
    answered = cluster.respond

    def respond(target: str, headers: Any) -> Answer:
        code, more, body = answered(target, headers)
        plain, replaced = json.dumps(one["spec"]).encode(), deep.encode()
        if isinstance(body, bytes):
            return code, more, body.replace(plain, replaced)
        return code, more, (part.replace(plain, replaced) for part in body)

    cluster.respond = respond  # type: ignore[method-assign]  # json cannot write it
    mirror = Mirror(remote_of(cluster), "resourceclaims")
    mirror.turn()
    cluster.put("resourceclaims", claim("other", count=2))
    mirror.turn()
    copied = stored("resourceclaims")
    assert copied.keys() == {"team-a/deep", "team-a/other"}
    assert copied["team-a/deep"]["spec"]["xDeep"]["b"] == 1
    assert not any(mirror.copy.unread.values())


def test_what_is_too_long_for_a_line_of_a_watch_is_listed(cluster: Living, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("manciple.mirror.client.LONGEST_LINE", 10_000)
    mirror = Mirror(remote_of(cluster), "pods")
    mirror.turn()
    large = pod("large")
    large["metadata"]["annotations"] = {"long": "x" * 20_000}
    cluster.put("pods", large)
    for _ in range(2):
        mirror.turn()
    assert_equal(cluster, "pods")
    cluster.put("pods", pod("after"))
    mirror.turn()
    assert_equal(cluster, "pods")


def test_an_answer_without_an_end_is_given_up(cluster: Living, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("manciple.mirror.client.LARGEST_ANSWER", 10_000)
    cluster.watch_lists = False
    mirror = Mirror(remote_of(cluster), "pods")
    mirror.followers["pods"]._watch_lists = False
    cluster.answer = lambda _path: (200, {}, (b" " * 1000 for _ in range(1000)))
    mirror.turn()
    assert "longer than" in mirror.copy.failing["pods"]


def test_lines_come_whole_however_they_are_cut(cluster: Living) -> None:
    mirror = Mirror(remote_of(cluster), "pods")
    mirror.turn()
    body = b"".join(_line("ADDED", cluster.put("pods", pod(f"p{number}"))) + b"\n" for number in range(5))
    for size in (1, 7, 100, len(body)):
        parts = [body[at : at + size] for at in range(0, len(body), size)]
        cluster.answer = lambda _path, parts=parts: (200, {}, iter(parts))  # type: ignore[misc]
        mirror.restart()
        mirror.followers["pods"]._resume = ("v1", "", "1")
        mirror.turn()
        assert mirror.copy.failing.get("pods", "") == ""
        assert {f"team-a/p{number}" for number in range(5)} <= stored("pods").keys()
