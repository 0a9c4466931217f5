"""The overview as the server draws it; Chromium looks at it in tests/e2e."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.test import Client

from claims.causes.messages import brief
from claims.causes.next_steps import topic_of
from insight.usage import ALL, minute_of
from manciple.controllers import coordination, tasks
from scheduling.models import UsageSample
from tests.builders import (
    CLASS,
    make_claim,
    make_class,
    make_device,
    make_device_taint,
    make_devices,
    make_namespace,
    make_node,
    make_pod,
    make_slice,
    make_template,
)
from tests.dashboard import texts
from tests.dashboard.browsing import member, plain, signed_in
from tests.dashboard.claim_scene import wants
from tests.scheduling.cluster import Cluster, with_spec


@pytest.fixture
def pages(db: None) -> Client:
    """A browser of one who sees everything."""
    return signed_in("alice", staff=True)


def html(pages: Client, path: str = "/overview") -> str:
    answer = pages.get(path)
    assert answer.status_code == 200
    return answer.content.decode().partition("<main")[2].partition("</main>")[0]


def text(pages: Client, path: str = "/overview", part: str = "") -> str:
    """The page's words, or those of the part with this id; tags become blanks."""
    found = html(pages, path)
    if part:
        found = found.partition(f'id="{part}"')[2].partition(">")[2]
        found = re.split(r'<(?:section|div|dl)[^>]* id="', found)[0]
    words = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", found))
    return re.sub(r" ([.,:])", r"\1", words).replace("&quot;", '"').replace("&#x27;", "'").strip()


def test_the_brand_leads_to_the_overview_and_the_overview_to_sign_in(db: None) -> None:
    assert Client().get("/").headers["Location"] == "/overview"
    assert Client().get("/overview").headers["Location"].startswith("/login")
    assert Client().get("/events").headers["Location"].startswith("/login")


def test_an_empty_cluster_is_taught_the_first_steps(pages: Client, cluster: Cluster) -> None:
    steps = text(pages, part="first-steps")
    assert "step 1 of 3" in steps
    assert "python -m nodeagent" in steps
    assert "Define a class" in steps
    cluster.create(make_node("node-1"))
    cluster.create(make_slice())
    assert "step 2 of 3" in text(pages, part="first-steps")
    assert "python -m nodeagent" not in text(pages, part="first-steps")
    cluster.create(make_class())
    cluster.create(make_pod("web"))
    assert text(pages, part="first-steps") == ""


def test_figures_count_devices_by_state_and_lead_to_them(pages: Client, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=3)
    cluster.create(make_node("node-2"))
    cluster.create(make_slice(node="node-2", devices=[make_device(taints=[make_device_taint("a.b/maintenance")])]))
    wants(cluster, "web")
    figures = text(pages, part="figures")
    assert texts.FREE_DEVICES("2 devices", 4) in figures
    assert "Preparing 1" in figures
    assert "Tainted 1 on 1 node" in figures
    assert "Unhealthy" not in figures, "what there is none of and seldom is, is left out"
    assert 'href="/devices?state=free"' in html(pages)
    assert "2 nodes, 4 devices, 1 driver." in text(pages)


def test_capacity_tells_of_each_class_what_is_free_held_and_asked_for(pages: Client, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=3)
    cluster.create(make_class("none", expressions=["false"]))
    wants(cluster, "web", count=2)
    wants(cluster, "late", count=2)
    wants(cluster, "later", count=2)
    capacity = text(pages, part="capacity")
    assert f"{CLASS} 1 1 2 0 3 2" in capacity  # free, fit, held, out of use, all, waited for
    assert texts.CLASS_WITHOUT_DEVICES("none", "0 0 0 0 0 0") in capacity
    assert 'role="img" aria-label="2 preparing, 1 free"' in html(pages)


def test_waiting_pods_are_grouped_by_cause_with_the_next_step_and_lead_to_just_those(
    pages: Client, cluster: Cluster
) -> None:
    cluster.with_gpus("node-1", each=1)
    wants(cluster, "first")
    assert texts.NO_POD_WAITS in text(pages, part="waiting")
    for number in range(5):
        wants(cluster, f"late-{number}")
    wants(cluster, "lost", device_class="gpu-h100")
    waiting = text(pages, part="waiting")
    assert texts.WHY_PODS_WAIT("6 pods") in waiting
    assert texts.CAUSE_ALL_HELD(5) in waiting
    held = pages.get("/overview").context["reasons"][0]
    assert plain(held.sentence) in waiting
    assert f"Next {plain(held.topic.next_step)}" in waiting
    assert "late-0, late-1, late-2, and 2 more" in waiting
    assert texts.CAUSE_CLASS_MISSING(1) in waiting
    for link in ("/pods?reason=held", "/pods/default/lost", f"/pods?class={CLASS}", "/events"):
        assert f'href="{link}"' in html(pages), link
    events = text(pages, part="events")
    assert "Warning: FailedScheduling" in events
    assert texts.SCHEDULED_EVENT("default/first", "node-1 default/first") in events

    def listed(query: str) -> list[str]:
        return sorted(pod.name for pod in pages.get(f"/pods?{query}").context["table"].rows)

    late = [f"late-{number}" for number in range(5)]
    assert listed("reason=held") == late
    assert listed("reason=class-missing") == ["lost"]
    assert listed(f"class={CLASS}") == late
    assert listed("reason=nonsense") == ["first", *late, "lost"]
    topic = held.topic.title[0].lower() + held.topic.title[1:]
    assert texts.ONLY_PODS_THAT_WAIT(topic) in text(pages, "/pods?reason=held")


def test_a_group_is_called_what_its_sentence_says(pages: Client, cluster: Cluster) -> None:
    """Even with its node open the pod would wait, for something else: that is no title for why it waits now."""
    cluster.with_gpus("node-1", each=1)
    cluster.update(with_spec(cluster.node(), unschedulable=True))
    for name in ("one", "two"):
        cluster.create(make_claim(name))
    cluster.create(make_pod("web", claims={"a": "one", "b": "two"}))
    cluster.settle()
    (group,) = pages.get("/overview").context["reasons"]
    assert group.sentence == brief(cluster.cause("web"))
    assert group.topic.title == topic_of(cluster.cause("web")).title


def test_the_last_day_is_drawn_with_a_table_behind_it_or_that_of_the_class_in_the_address(
    pages: Client, cluster: Cluster
) -> None:
    cluster.with_gpus("node-1", each=4)
    wants(cluster, "web")
    at = minute_of(cluster.now) - timedelta(hours=2)
    UsageSample.objects.create(at=at, device_class=ALL, counts={"reserved": 3, "free": 1}, waiting=7)
    UsageSample.objects.create(at=at, device_class=CLASS, counts={"reserved": 2}, waiting=0)
    use = text(pages, part="use")
    assert f"Peak 3 at {at:%H:%M}" in use
    assert "now 1 of 4" in use
    assert f"{at:%a %H:%M} 3 1 0 7" in use
    assert '<path class="of-held"' in html(pages)
    assert "Peak 2 at" in text(pages, f"/overview?class={CLASS}", part="use")
    assert "Peak 3 at" in text(pages, "/overview?class=unknown", part="use")


def test_health_tells_of_nodes_drivers_and_workers(pages: Client, cluster: Cluster) -> None:
    cluster.with_gpus("node-1")
    cluster.create(make_node("node-2", ready=False))
    cluster.create(make_slice(node="node-2", slices=2))
    health, context = text(pages, part="health"), pages.get("/overview").context
    assert "4 need attention" in health
    troubles = [trouble for line in context["health"] for trouble in line.troubles]
    assert [trouble.url for trouble in troubles] == ["/nodes/node-2", "/nodes/node-2", ""]
    assert "`node-2`" in troubles[0].what
    assert re.search("`node-2` .* 2 devices ", troubles[1].what)
    for trouble in troubles:
        assert f"{plain(trouble.what)} Next {plain(trouble.step)}" in health
    tasks.run("schedule")
    health = text(pages, part="health")
    assert "2 need attention" in health
    assert re.search(rf"{coordination.name_of_process()} seen \d+ s ago", health)
    coordination.stop_heart()


def test_a_member_of_a_namespace_learns_nothing_of_others(cluster: Cluster) -> None:
    for name in ("mine", "theirs"):
        cluster.create(make_namespace(name))
    cluster.with_gpus("node-1", each=1)
    wants(cluster, "held", namespace="theirs")
    wants(cluster, "secret-1", namespace="theirs")
    wants(cluster, "secret-2", namespace="theirs", device_class="unheard-of")
    wants(cluster, "own", namespace="mine")
    at = minute_of(cluster.now) - timedelta(hours=1)
    UsageSample.objects.create(at=at, device_class=ALL, counts={"reserved": 1}, waiting=4141)
    page = member("of-mine", "mine")
    found = html(page)
    for word in ("theirs", "secret", "unheard-of", "4141", "attempts in the last minute"):
        assert word not in found, word
    assert page.get("/overview").context["waiting"] == 1
    assert f"{CLASS} 0 0 1 0 1 1" in text(page, part="capacity")
    assert "Pods waiting" not in found
    assert "queue 1," in text(page, part="health")


def test_the_overview_says_how_many_pods_a_mending_would_start(cluster: Cluster, pages: Client) -> None:
    cluster.with_gpus("node-1", each=1)
    cluster.create(make_node("node-2"))
    cluster.create(make_slice(node="node-2", devices=make_devices(2), slices=2))
    cluster.create(make_template("one"))
    for number in range(6):
        cluster.create(make_pod(f"web-{number}", templates={"gpu": "one"}))
    cluster.settle()
    for _ in range(20):
        page = pages.get("/overview")
        if not page.context["rehearsing"]:
            break  # a busy machine takes several looks to find it out
    fixable, held = page.context["reasons"]
    assert (fixable.topic.key, fixable.count, fixable.of) == ("mend:pool/gpu.example.com/node-2", 2, 5)
    assert (held.topic.key, held.count, held.of) == ("held", 3, 0)
    shown = text(pages, part="waiting")
    for group, count in ((fixable, "2 of 5"), (held, "3")):
        assert f"{count} {plain(group.topic.title)} {plain(group.sentence)}" in shown
    listed = text(pages, "/pods?reason=mend:pool/gpu.example.com/node-2")
    assert plain(fixable.topic.title)[1:] in listed
    assert ("web-1" in listed, "web-3" in listed) == (True, False)
