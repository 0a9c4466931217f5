"""The pod pages as the server draws them; Chromium looks at them in tests/e2e."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

import pytest
from django.template import Context, Template
from django.test import Client

from claims.models import Pod
from dashboard.workloads.pods import views
from dashboard.workloads.pods.queries import COLUMNS
from dashboard.workloads.pods.why import short_form
from tests.builders import DRIVER, make_class, make_devices, make_node, make_pod, make_slice
from tests.dashboard import texts
from tests.dashboard.browsing import close_words
from tests.dashboard.browsing import viewer as pages
from tests.dashboard.claim_scene import wants
from tests.scheduling.cluster import Cluster

__all__ = ["pages"]


def test_those_that_wait_come_first_with_the_reason(pages: Client, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=1)
    wants(cluster, "a")
    wants(cluster, "z")
    cluster.create(make_pod("theirs", namespace="other"))
    text = close_words(pages, "/pods?ns=default")
    assert "2 pods, 1 waits" in text
    assert text.index("z default Waiting") < text.index("a default Starting node-1")
    assert f"Request gpu {texts.ONLY_DEVICE_HELD}" in text
    assert "still not schedulable" not in text
    assert "theirs" not in text
    assert "theirs" in close_words(pages, "/pods")


def test_the_tab_of_waiting_pods_has_no_column_that_is_empty_for_all_of_them(pages: Client, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=1)
    wants(cluster, "a")
    wants(cluster, "z")
    of_placed = {"node", "devices"}
    for query, drawn in {"": True, "state=Waiting": False, "state=Starting": True}.items():
        answer = pages.get(f"/pods?{query}")
        heads = {head.title.lower() for head in answer.context["table"].heads}
        assert heads & of_placed == (of_placed if drawn else set()), query
        row = answer.content.decode().partition('<tr id="p-default-')[2].partition("</tr>")[0]
        assert row.count("<td") == len(heads) + bool(answer.context["table"].acts), query
    chosen = pages.get("/pods?state=Waiting&cols=pod,node").context["table"]
    assert [head.title for head in chosen.heads][-2:] == ["Node", "Why it waits"]
    assert {"node", "devices"} <= pages.get("/pods.json?state=Waiting").json()["items"][0].keys()


def test_a_waiting_pod_says_who_holds_the_devices_and_their_holder_shows_them(pages: Client, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=2)
    wants(cluster, "first", count=2)
    wants(cluster, "second")
    text = close_words(pages, "/pods/default/second")
    assert texts.WAITS_AS_REQUEST("gpu") + texts.BOTH_DEVICES_HELD(1) in text
    assert texts.NEXT_WAIT_FOR("default/first", "node-1", "2 devices", "node-1") in text
    assert "Not held0all 2 held" in text
    assert "Who holds the 2" in text
    assert "node-1 gpu-0, gpu-1 first default" in text
    assert "All held" in text
    text = close_words(pages, "/pods/default/first")
    assert "It waits" not in text
    assert "on node node-1" in text
    assert f'href="/devices/d/{DRIVER}/node-1/gpu-0"' in pages.get("/pods/default/first").content.decode()


def test_the_decisive_step_is_marked_and_selectors_are_shown_as_written(pages: Client, cluster: Cluster) -> None:
    cluster.create(make_class())
    cluster.create(make_node("node-1"))
    cluster.create(make_slice(devices=make_devices(3, capacity={"memory": "80Gi"})))
    expression = f'device.capacity["{DRIVER}"].memory.compareTo(quantity("200Gi")) >= 0'
    wants(cluster, "web", expressions=[expression])
    answer = pages.get("/pods/default/web").content.decode()
    (decisive,) = re.findall(r'<li class="key[^"]*">(.*?)</li>', answer, re.DOTALL)
    assert "<code>memory &gt;= 200Gi</code>" in decisive
    assert "3 have 80Gi" in decisive
    text = close_words(pages, "/pods/default/web")
    assert f"1 · keeps 0 of 3 {expression}" in text
    assert texts.SELECTOR_REFUSES_ALL("memory >= 200Gi", 3, "80Gi") in text
    assert texts.OFFER_WITHOUT_SELECTOR(1, "node-1") in text


def test_nodes_that_refuse_the_pod_and_a_claim_that_is_not_there_are_told(pages: Client, cluster: Cluster) -> None:
    for number in range(9):
        cluster.create(make_node(f"node-{number}", unschedulable=True))
    cluster.create(make_pod("web"))
    text = close_words(pages, "/pods/default/web")
    assert texts.NO_NODE_AS_CORDONED("9 nodes") in text
    assert "3 more, such as node-6" in text
    cluster.create(make_pod("lost", claims={"gpu": "nothing"}))
    text = close_words(pages, "/pods/default/lost")
    assert texts.WAITS_FOR_MISSING_CLAIM("nothing") in text
    assert "Does not exist" in text


def test_what_users_write_is_escaped() -> None:
    drawn = Template("{{ text|with_code }}").render(Context({"text": "a `<b>` & <i>"}))
    assert drawn == "a <code>&lt;b&gt;</code> &amp; &lt;i&gt;"


def test_selectors_are_shortened_to_what_they_compare() -> None:
    text = f'device.driver == "{DRIVER}" && device.attributes["{DRIVER}"].model in ["A", "B"]'
    assert short_form(text) == f'driver == "{DRIVER}" && device.attributes["{DRIVER}"].model in ["A", "B"]'


def test_a_page_reads_the_rows_that_it_shows_in_any_order(
    pages: Client, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(7):
        cluster.create(make_pod(f"pod-{number}"))
    monkeypatch.setattr(views, "PAGE", 3)
    read: list[str] = []
    from_db = Pod.from_db

    def counted(db: str | None, names: Collection[str], values: Collection[Any]) -> Pod:
        pod = from_db(db, names, values)
        read.append(pod.name)
        return pod

    monkeypatch.setattr(Pod, "from_db", counted)
    for column in COLUMNS:
        for order in (column.sort, f"-{column.sort}") if column.sort else ("",):
            read.clear()
            rows = pages.get(f"/pods?sort={order}&page=2").context["table"].rows
            assert [row.name for row in rows] == read, order
            assert len(read) == 3, order
    names = [row.name for row in pages.get("/pods?sort=-name").context["table"].rows]
    assert names == ["pod-6", "pod-5", "pod-4"]
