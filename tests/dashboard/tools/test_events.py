"""The list of events: filtered, paged, and only what the person may see."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from django.test import Client

from claims import event_recorder
from claims.event_recorder import EventNote
from dashboard.tools import events
from manciple.people import ALL_NAMESPACES, Person
from manciple.store import objects
from manciple.wire.identity import MASTERS, Identity
from tests.builders import make_namespace, make_node, make_pod, make_quota, make_template
from tests.dashboard import texts
from tests.dashboard.browsing import member
from tests.dashboard.capacity.test_overview import html, pages, text
from tests.dashboard.claim_scene import wants
from tests.scheduling.cluster import Cluster

__all__ = ["pages"]

EVERYTHING = Person(Identity("ada", (MASTERS,)), ALL_NAMESPACES)


def say(
    cluster: Cluster, about: str, reason: str, message: str, *, warning: bool = False, namespace: str = "default"
) -> None:
    """An event about a pod, which need not be there, or a node (`node-...`)."""
    what = make_node(about) if about.startswith("node-") else make_pod(about, namespace=namespace)
    note = EventNote(
        regarding=what, type="Warning" if warning else "Normal", reason=reason, message=message, component="tests"
    )
    with objects.writing() as writer:
        event_recorder.record(writer, note, now=cluster.now)


@pytest.fixture
def told(cluster: Cluster) -> Cluster:
    cluster.create(make_namespace("other"))
    say(cluster, "web", "Pulled", "The image is there")
    say(cluster, "web", "Failed", "The container `main` ended", warning=True)
    say(cluster, "db", "Started", "It runs", namespace="other")
    say(cluster, "node-1", "Rebooted", "The machine was restarted")
    return cluster


def reasons(pages: Client, query: str = "") -> list[str]:
    answer = pages.get(f"/events{query}")
    return [event.reason for event in answer.context["found"].events]


def test_the_newest_come_first_with_what_they_are_about(pages: Client, told: Cluster) -> None:
    assert reasons(pages) == ["Rebooted", "Started", "Failed", "Pulled"]
    page = html(pages, "/events")
    for url in ("/nodes/node-1", "/pods/other/db", "/pods/default/web"):
        assert f'href="{url}"' in page
    assert "The container <code>main</code> ended" in page


def test_an_event_that_happens_again_is_counted_and_comes_first(pages: Client, told: Cluster) -> None:
    told.later(60)
    say(told, "web", "Pulled", "The image is there")
    assert reasons(pages)[0] == "Pulled"
    assert "2 times since" in text(pages, "/events")


def test_filters(pages: Client, told: Cluster) -> None:
    for query, found in (
        ("?ns=other", ["Started"]),
        ("?type=Warning", ["Failed"]),
        ("?type=Normal", ["Rebooted", "Started", "Pulled"]),
        ("?type=nonsense", ["Rebooted", "Started", "Failed", "Pulled"]),
        ("?kind=Node", ["Rebooted"]),
        ("?kind=Pod&name=WE", ["Failed", "Pulled"]),
        ("?q=restarted", ["Rebooted"]),
        ("?q=fail", ["Failed"]),
        ("?q=nothing", []),
        ("?before=abc", ["Rebooted", "Started", "Failed", "Pulled"]),
        ("?before=99999999999999999999", ["Rebooted", "Started", "Failed", "Pulled"]),
    ):
        assert reasons(pages, query) == found, query


def test_long_lists_are_paged_and_every_event_is_on_one_page(
    pages: Client, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "SHOWN", 3)
    monkeypatch.setattr(events.find, "__kwdefaults__", {"shown": 3, "reported": False})
    for number in range(8):
        say(cluster, f"pod-{number}", f"Reason{number}", "It happened", warning=number % 2 == 0)
    url, seen = "/events", []
    for _ in range(3):
        answer = pages.get(url)
        seen += [event.reason for event in answer.context["found"].events]
        url = answer.context["next_url"]
    assert seen == [f"Reason{number}" for number in reversed(range(8))]
    assert url == ""
    assert texts.TO_THE_NEWEST in answer.content.decode()
    first = pages.get("/events?type=Warning")
    assert [event.reason for event in first.context["found"].events] == ["Reason6", "Reason4", "Reason2"]
    assert "type=Warning&amp;before=" in first.content.decode()


def test_a_search_that_has_looked_at_enough_says_so(
    pages: Client, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "BATCH", 2)
    monkeypatch.setattr(events, "LOOKED_AT", 4)
    for number in range(6):
        say(cluster, f"pod-{number}", f"Reason{number}", "It happened")
    assert texts.NONE_AMONG_THE_NEWEST(4) in text(pages, "/events?q=reason0")
    answer = pages.get("/events?q=reason0")
    assert reasons(pages, answer.context["next_url"].removeprefix("/events")) == ["Reason0"]


def test_a_member_of_a_namespace_sees_its_events_alone(told: Cluster) -> None:
    page = member("of-other", "other")
    assert reasons(page) == ["Started"]
    assert reasons(page, "?ns=default") == []
    assert "default" not in html(page, "/events")


def test_an_event_with_no_page_of_its_own_is_named_without_a_link() -> None:
    assert events.url_of("Deployment", "default", "web") == ""
    assert events.url_of("Pod", "", "web") == ""
    assert events.url_of("ResourceClaim", "lab", "gpu") == "/claims/lab/gpu"


def test_what_the_scheduler_says_reads_as_on_other_pages_and_is_found_by_either_words(
    pages: Client, cluster: Cluster
) -> None:
    cluster.with_gpus("node-1", each=1)
    wants(cluster, "big", count=2)
    (event,) = events.find(events.EventQuery(type=events.WARNING), EVERYTHING).events
    assert event.message.startswith("0/1 nodes are available")
    shown = text(pages, "/events")
    assert event.clause.replace("`", "") in shown
    assert "nodes are available" not in shown
    assert "nodes are available" in text(pages, "/events?cols=last,what,as-recorded")
    for query in ("?q=nodes+are+available", f"?q={quote(event.clause[:30])}"):
        assert "FailedScheduling" in reasons(pages, query)


def test_a_claim_that_a_quota_refuses_is_told_in_plain_words(pages: Client, cluster: Cluster) -> None:
    key = "count/resourceclaims.resource.k8s.io"
    cluster.create(make_quota({key: "0"}))
    cluster.create(make_template("one-gpu"))
    cluster.create(make_pod("web", templates={"gpu": "one-gpu"}))
    cluster.settle()
    shown = text(pages, "/events?q=quota")
    assert texts.CLAIM_REFUSED_BY_QUOTA("gpu", "most", "0 of 0", key) in shown
    assert "is forbidden" not in shown
