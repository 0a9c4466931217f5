"""The timeline's page and its export, from what is held now and what was given back."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db.models.signals import post_init
from django.test import Client

from claims.models import PastAllocation
from dashboard.capacity import timeline
from dashboard.capacity.timeline import HEADER, STEPS, Timeline, TimelineQuery
from dashboard.kit.lists import csv_cell
from inventory.models import Impairment
from manciple.people import ALL_NAMESPACES, Person
from manciple.store import sql
from manciple.wire.identity import MASTERS, Identity
from tests.dashboard import texts
from tests.dashboard.browsing import exported, signed_in, words
from tests.dashboard.claim_scene import pages, runs
from tests.scheduling.cluster import Cluster

__all__ = ["pages"]

NOW = datetime.now(UTC)


@pytest.fixture(autouse=True)
def _it_is_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the test begins: on a busy machine the module was imported half an hour ago."""
    monkeypatch.setitem(globals(), "NOW", datetime.now(UTC))


def past(device: str = "gpu-0", *, hours: tuple[float, float] = (6, 3), **fields: Any) -> PastAllocation:
    """A device that was held; hours before now."""
    values: dict[str, Any] = {
        "driver": "gpu.example.com", "pool": "node-1", "device": device, "device_class": "gpu", "claim_uid": "u-past",
        "namespace": "default", "claim": "training", "pods": ["job-1"], "admin_access": False, "share_id": "",
        "consumed_capacity": {}, "began_at": NOW - timedelta(hours=hours[0]),
        "ended_at": NOW - timedelta(hours=hours[1]),
    }  # fmt: skip
    return PastAllocation(**values | fields)


def keep(*rows: PastAllocation) -> None:
    PastAllocation.objects.bulk_create(rows)


def everything(**query: Any) -> Timeline:
    """The timeline of somebody who sees all namespaces."""
    asked = TimelineQuery(**query)
    window, _ = asked.time.window(datetime.now(UTC) + timedelta(seconds=1))
    return Timeline(Person(Identity("ada", (MASTERS,)), ALL_NAMESPACES), asked, window)


def test_what_is_held_now_and_what_was_given_back_stand_together(pages: Client, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=2)
    runs(cluster, "web")
    keep(past(), past("gpu-1", hours=(60, 50)))
    shown = pages.get("/timeline").content.decode()
    assert texts.ALLOCATIONS_IN(2, "24 hours") in words(pages, "/timeline")
    assert re.search(r'"default/job-1 [^"]* gpu-0 [^"]*"', shown)
    assert re.search(r'"default/web [^"]* gpu-0 [^"]*"', shown)
    assert 'href="/claims/default/web"' in shown
    assert texts.NEVER_HELD("1 other device") in words(pages, "/timeline")
    assert "3 allocations" in words(pages, "/timeline?range=7d")
    text = words(pages, "/timeline?view=table")
    assert texts.TIMELINE_COLUMNS in text
    assert "training (gone) default job-1" in text
    assert re.search(texts.TIMELINE_ROW("web default", r"\S+"), text)


FILTERS = {
    "ns=other": 0,
    "ns=default": 2,
    "class=nothing": 0,
    "driver=gpu.example.com": 2,
    "node=node-1": 2,
    "node=x": 0,
}


def test_filters_narrow_page_and_export_alike(pages: Client) -> None:
    keep(past(), past("gpu-1"))
    for query, expected in FILTERS.items():
        found = re.search(r"(\d+) allocations?", words(pages, f"/timeline?{query}"))
        assert (int(found[1]) if found else 0) == expected, query
        assert len(exported(pages, f"/timeline.csv?{query}")) == expected, query


@pytest.mark.parametrize(("by", "name"), [("class", "gpu"), ("namespace", "default")])
def test_classes_and_namespaces_show_how_many_were_held(pages: Client, by: str, name: str) -> None:
    keep(past("gpu-0", hours=(12, 6)), past("gpu-1", hours=(12, 3)), past("gpu-2", hours=(48, 47)))
    text = words(pages, f"/timeline?by={by}")
    assert re.search(rf"{name} 0 .* 2 .* 0\.6 .* 15\.0 ", text)
    assert "2 allocations" in text
    shown = pages.get(f"/timeline?by={by}").content.decode()
    assert shown.count('<path d="M0 40') == 1


def test_the_level_is_right_at_every_step(pages: Client, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=1)
    runs(cluster, "web")
    keep(past("gpu-0", hours=(30, 12)), past("gpu-1", hours=(18, 6)))
    (level,) = everything(by="namespace").levels(["default"]).values()
    hour = STEPS // 24
    assert (level[0], level[7 * hour], level[13 * hour], level[19 * hour], level[-1]) == (1, 2, 1, 0, 1)


def test_what_a_claim_held_together_is_one_bar_of_its_namespace_unless_it_only_looks_on(pages: Client) -> None:
    keep(past("looked-at", admin_access=True))
    assert pages.get("/timeline").context["count"] == 0
    keep(*(past(f"gpu-{number}") for number in range(8)))
    assert pages.get("/timeline?by=namespace").content.decode().count(" 8 devices ") == 2  # title and text


def test_others_devices_are_held_by_somebody(pages: Client, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=1)
    runs(cluster, "web")
    keep(past(namespace="secret", claim="hidden-claim", pods=["hidden-pod"], claim_uid="u-hidden"))
    stranger = signed_in("omar", "namespace:other")
    for path in (
        "/timeline",
        "/timeline?by=class",
        "/timeline?by=namespace",
        "/timeline?view=table",
        "/timeline?ns=secret",
    ):
        shown = stranger.get(path).content.decode()
        told = shown.replace("ns=secret", "")  # what the person wrote comes back in links
        assert not re.search("secret|hidden-(?!holder)|default/|>default<", told), path
    assert re.search(r'"another namespace [^"]* gpu-0 [^"]*"', stranger.get("/timeline").content.decode())
    assert "Other namespaces" in words(stranger, "/timeline?by=namespace")
    rows = exported(stranger)
    assert {(row["namespace"], row["claim"], row["pods"]) for row in rows} == {("another namespace", "", "")}
    assert len(rows) == 2
    assert "secret" not in json.dumps(rows)


# The export ----------------------------------------------------------------------------------------------------------


def test_the_export_tells_everything_with_exact_times(pages: Client, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=1)
    runs(cluster, "web")
    began = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=6)
    keep(
        past(began_at=began, ended_at=began + timedelta(hours=3), share_id="s-1", consumed_capacity={"memory": "10Gi"})
    )
    now, then = exported(pages)
    assert tuple(now) == HEADER
    assert (now["claim"], now["to"], now["node"]) == ("web", "", "node-1")
    assert then == {
        "driver": "gpu.example.com", "pool": "node-1", "device": "gpu-0", "node": "node-1", "class": "gpu",
        "namespace": "default", "claim": "training", "claim_uid": "u-past", "pods": "job-1", "share_id": "s-1",
        "consumed_capacity": "memory=10Gi", "from": f"{began:%Y-%m-%dT%H:%M:%SZ}",
        "to": f"{began + timedelta(hours=3):%Y-%m-%dT%H:%M:%SZ}", "seconds": "10800",
        "state": "held", "cause": "",
    }  # fmt: skip


CELLS = {"=1+1": "'=1+1", "+1": "'+1", "-1": "'-1", "@SUM(A1)": "'@SUM(A1)", "\t=1": "'\t=1", "web-1": "web-1", "": ""}


def test_the_export_is_a_file_of_its_window_and_no_cell_of_it_a_formula(pages: Client) -> None:
    answer = pages.get("/timeline.csv?from=2026-01-01T00:00&to=2026-01-02T00:00")
    assert answer["Content-Type"] == "text/csv; charset=utf-8; header=present"
    assert answer["Content-Disposition"] == 'attachment; filename="allocations-20260101T0000Z-20260102T0000Z.csv"'
    assert {text: csv_cell(text) for text in CELLS} == CELLS
    keep(past(pods=['a,"b"', "=cmd"]))
    assert exported(pages)[0]["pods"] == 'a,"b" =cmd'


# Many ----------------------------------------------------------------------------------------------------------------


def test_more_rows_than_are_drawn_are_read_in_good_time(pages: Client) -> None:
    columns = [field.attname for field in PastAllocation._meta.concrete_fields if not field.primary_key]
    step, row = timedelta(hours=700) / 20_000, vars(past())
    sql.insert(
        PastAllocation,
        columns,
        [
            _values(
                columns, row, device=f"gpu-{number % 8}", pool=f"node-{number % 500 // 8}", claim=f"claim-{number}",
                claim_uid=f"u-{number}", namespace=f"team-{number % 9}", pods="[]", consumed_capacity="{}",
                began_at=NOW - number * step - timedelta(hours=1), ended_at=NOW - number * step,
            )
            for number in range(20_000)
        ],
    )  # fmt: skip
    for query in ("range=30d", "by=class&range=30d", "by=namespace&range=30d", "range=24h"):
        began = time.process_time()
        text = words(pages, f"/timeline?{query}")
        assert time.process_time() - began < 1, query
        assert re.search(r"[\d,]+ allocations in", text)
    assert texts.ONLY_LATEST_DRAWN("1500 allocations") in words(pages, "/timeline?by=namespace&range=30d")


def impairments(number: int, *, source: str = "driver", **fields: Any) -> list[Impairment]:
    """Of device gpu-0 of node-1, an hour each, unless said otherwise."""
    values: dict[str, Any] = {
        "incident_id": "0", "reporter": "", "driver": "gpu.example.com", "pool": "node-1", "device": "gpu-0",
        "node": "node-1", "key": "example.com/hot", "value": "", "effect": "NoSchedule", "message": "",
        "unhealthy": False,
    }  # fmt: skip
    ends = (NOW - timedelta(minutes=minutes) for minutes in range(number))
    rows = [
        Impairment(source=source, **values | fields, began_at=end - timedelta(hours=1), ended_at=end) for end in ends
    ]
    return Impairment.objects.bulk_create(rows)


def test_impairments_of_devices_that_are_not_shown_are_not_read(
    pages: Client, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeline, "DEVICES", 1)
    cluster.with_gpus("node-1", each=2)
    impairments(3)
    impairments(200, device="gpu-1")
    read = []
    post_init.connect(lambda **one: read.append(one["instance"]), sender=Impairment, weak=False, dispatch_uid="read")
    shown = pages.get("/timeline").content.decode()
    assert post_init.disconnect(sender=Impairment, dispatch_uid="read")
    assert (shown.count('class="out"'), len(read)) == (3, 3)
    assert "0 allocations and 203 impairments" in words(pages, "/timeline")


def test_of_many_impairments_the_latest_are_drawn(pages: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "BARS", 10)
    drawn = impairments(12)[10::-1]
    page = pages.get("/timeline")
    assert page.content.decode().count('class="out"') == len(drawn)
    assert page.context["drawn"].capped == ["impairments"]
    assert [span.row for span in everything().impaired_of([("gpu.example.com", "node-1", "gpu-0", "node-1")])] == drawn


def test_rules_of_many_devices_are_looked_up_together(
    pages: Client, cluster: Cluster, django_assert_max_num_queries: Any
) -> None:
    nodes = [f"node-{number}" for number in range(1, 13)]
    cluster.with_gpus(*nodes, each=2)
    for node in nodes[:10]:  # a whole pool each
        impairments(1, source="rule", pool=node, device="", node=node, reporter=node)
    impairments(1, source="rule", pool="node-11", node="", device="gpu-1", reporter="one")
    impairments(1, source="rule", driver="", pool="node-12", node="", device="", reporter="any-driver")
    impairments(1, source="rule", pool="gone", node="", device="gpu-9", reporter="gone")
    impairments(1, source="rule", pool="gone", node="", device="", reporter="gone")
    with django_assert_max_num_queries(7):
        keys = everything().devices()
    pools = Counter(pool for _, pool, _, _ in keys)
    assert pools == {**dict.fromkeys(nodes[:10], 2), "node-11": 1, "node-12": 2, "gone": 1}


def test_the_export_reads_impairments_in_batches(
    pages: Client, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeline, "BATCH", 2)
    cluster.with_gpus("node-1", each=2)
    impairments(5)
    impairments(1, source="rule", driver="", pool="", device="", node="", reporter="all")
    impairments(1, source="rule", pool="node-2", device="", node="", reporter="gone")
    rows = exported(pages)
    assert Counter(row["device"] for row in rows) == {"gpu-0": 6, "gpu-1": 1}


def _values(columns: list[str], row: dict[str, Any], **fields: Any) -> list[Any]:
    return [fields[column] if column in fields else row[column] for column in columns]


def test_device_hours_count_what_is_held_within_the_window_alone(pages: Client, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=1)
    runs(cluster, "web")
    keep(past("gpu-1", hours=(30, 20)), past("gpu-2", hours=(2.5, 1)))
    assert "5.5 device-hours" in words(pages, "/timeline?by=namespace&range=24h")
    assert texts.USE_IN_FIGURES("gpu", 0, 1, "0.2", "5.5") in words(pages, "/timeline?by=class&range=24h")


def test_more_time_around_what_is_shown_is_a_link_away(pages: Client) -> None:
    begin, end = (f"{NOW - timedelta(hours=hours):%Y-%m-%dT%H:%MZ}" for hours in (8, 6))
    page = pages.get(f"/timeline?from={begin}&to={end}").content.decode()
    wider = [f"{NOW - timedelta(hours=hours):%Y-%m-%dT%H}%3A" for hours in (10, 4)]
    assert re.search(f"from={wider[0]}.*to={wider[1]}.*Show more time", page)
    assert "Show more time" not in pages.get("/timeline").content.decode()
