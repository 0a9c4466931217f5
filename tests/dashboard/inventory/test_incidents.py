"""The pages of incidents, and what device, timeline and overview tell of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.test import Client
from msgspec import structs
from pytest_django.fixtures import Settings

from claims.controllers import incidents as incident_controller
from claims.devices.cache import read_devices
from claims.devices.states import DeviceState
from claims.kinds.registration import RESOURCE_CLAIM
from claims.models import Ending, PastAllocation
from dashboard.inventory import incidents
from dashboard.inventory.devices.queries import strip_of
from dashboard.inventory.handling import is_rated, severity_of
from dashboard.inventory.incidents import ImpairedSpan
from dashboard.kit import preferences
from dashboard.models import IncidentComment, IncidentHandling
from dashboard.templatetags.kit import clock
from inventory.kinds.devices import DeviceTaint
from inventory.kinds.pools import PoolKey
from inventory.models import Impairment, Incident
from manciple.access import authorization
from manciple.access.authorization import Attributes, Decision
from manciple.audit import trail
from manciple.audit.models import Entry
from manciple.mirror.guard import findings
from manciple.mirror.models import GuardFinding
from manciple.store import objects
from manciple.wire import codec
from manciple.wire.identity import Identity
from manciple.wire.resources import CLAIMS
from tests.builders import (
    DRIVER,
    make_allocation,
    make_claim,
    make_class,
    make_device,
    make_result,
    make_slice,
    make_taint_rule,
)
from tests.dashboard import texts
from tests.dashboard.browsing import admin, exported, member, signed_in, viewer, words
from tests.dashboard.claim_scene import runs
from tests.scheduling.cluster import Cluster

__all__ = ["admin", "viewer"]

XID = "gpu.example.com/xid"
NOW = datetime.now(UTC)


def publish(cluster: Cluster, *broken: str, node: str = "node-1", of: Sequence[str] = ("gpu-0", "gpu-1")) -> None:
    taint = DeviceTaint(key=XID, value="79", effect="NoSchedule")
    devices = [structs.replace(one, taints=(taint,)) if one.name in broken else one for one in map(make_device, of)]
    made = make_slice(f"{node}-{DRIVER}", node=node, devices=devices)
    known = next((one for one in cluster.all(type(made)) if one.metadata.name == made.metadata.name), None)
    if known is None:
        cluster.create(made)
    else:
        cluster.update(structs.replace(known, spec=made.spec))


@pytest.fixture
def scene(cluster: Cluster) -> Cluster:
    """Pod web holds a device of node-1; both devices of it broke, one of node-2 did and works again."""
    cluster.with_gpus("node-1", "node-2", each=2)
    runs(cluster, "web")
    publish(cluster, "gpu-0", "gpu-1")
    publish(cluster, "gpu-0", node="node-2")
    publish(cluster, node="node-2")
    return cluster


def ids() -> dict[str, str]:
    return dict(Incident.objects.values_list("pool", "id"))


def test_what_goes_on_stands_first_with_whom_it_hit_and_devices_together(admin: Client, scene: Cluster) -> None:
    shown = words(admin, "/incidents")
    assert texts.INCIDENT_FILTERS(2, 1, 0, 1) in shown
    first, second = shown.index("2 devices of node-1"), shown.index("node-2 / gpu-0")
    assert first < second
    assert "node-1 / gpu-0 node-1 / gpu-1" in shown[first:second]
    assert texts.INCIDENT_ROW(f"{XID}=79", DRIVER) in shown[first:second]
    assert "nobody held it" in shown[second:]
    assert "2 devices of node-1 unhealthy" in words(admin, f"/incidents/{ids()['node-1']}")
    assert admin.get("/incidents/none").status_code == 404


FILTERS = {
    "state=open": ["node-1"],
    "state=closed": ["node-2"],
    "node=node-2": ["node-2"],
    "node=node-9": [],
    f"device={DRIVER}/node-1/gpu-1": ["node-1"],
    "device=nonsense": [],
    "class=second": ["node-1", "node-2"],
    "class=none": [],
    f"cause={XID}=79": ["node-1", "node-2"],
    "cause=other": [],
}


def test_filters_leave_what_they_name(admin: Client, scene: Cluster) -> None:
    scene.create(make_class("second"))
    for query, expected in FILTERS.items():
        answer = admin.get(f"/incidents?{query}")
        page, table = answer.content.decode(), answer.context["table"]
        assert table.page.total == len(expected), query
        assert [pool for pool, name in sorted(ids().items()) if f'id="incident-{name}"' in page] == expected, query


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "Pacific/Pago_Pago"])
def test_incidents_are_filtered_by_the_days_on_which_they_lasted(
    admin: Client, scene: Cluster, zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preferences, "zone_of", lambda _request: ZoneInfo(zone))
    midnight = datetime.now(ZoneInfo(zone)).replace(hour=0, minute=0, second=0, microsecond=0)
    over = Incident.objects.filter(id=ids()["node-2"])
    #: (days before this midnight, seconds after that) when it ended -> under which names it is found
    expected = {
        (0, 1): {"Today", "Since yesterday", "7 days", "30 days"},
        (0, -1): {"Since yesterday", "7 days", "30 days"},
        (1, -1): {"7 days", "30 days"},
        (6, -1): {"30 days"},
        (29, -1): set(),
    }
    for (days, seconds), names in expected.items():
        ended = midnight - timedelta(days=days) + timedelta(seconds=seconds)
        over.update(began_at=ended - timedelta(hours=1), ended_at=ended)
        found = {}
        for within in incidents.WITHIN:
            table = admin.get("/incidents", {"within": within}).context["table"]
            found[within] = {row.incident.pool for row in table.rows}
            assert table.tabs[0].count == len(table.rows)
        assert {name for name, pools in found.items() if "node-2" in pools} == names, (days, seconds)
        assert all("node-1" in pools for pools in found.values()), "it still lasts"
    assert admin.get("/incidents?within=nonsense").context["table"].page.total == 2


def test_acknowledging_is_told_to_all_with_a_note_and_stands_in_the_audit_trail(admin: Client, scene: Cluster) -> None:
    name = ids()["node-1"]
    answer = admin.post(f"/incidents/{name}/acknowledge", {"note": "seen to", "back": "//evil.example"})
    assert answer["Location"] == f"/incidents/{name}"
    assert re.search(r" 2 \w+ 0 \w+ 1 \w+ 1 ", words(admin, "/incidents"))
    assert "ada, " in words(admin, "/incidents")
    assert "seen to" in words(admin, f"/incidents/{name}")
    trail.flush()
    entry = Entry.objects.get(resource="incidents.manciple.dev")
    assert (entry.username, entry.verb, entry.name) == ("ada", "update", name)
    form = {"withdraw": "1", "back": "/incidents?state=open"}
    assert admin.post(f"/incidents/{name}/acknowledge", form)["Location"] == form["back"]
    assert "All 2 Open 1" in words(admin, "/incidents")


def test_who_may_not_has_no_button_and_is_refused(
    scene: Cluster, viewer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = ids()["node-1"]
    let_in(monkeypatch, {("list", "resourceslices")})
    assert "not yet" in words(viewer, "/incidents")
    assert "Acknowledge:" not in viewer.get("/incidents").content.decode()
    assert "Comment</button>" not in viewer.get(f"/incidents/{name}").content.decode()
    for act in ("acknowledge", "handle", "comment"):
        assert viewer.post(f"/incidents/{name}/{act}").status_code == 403, act
    let_in(monkeypatch, {("list", "resourceslices"), ("update", "incidents")})
    assert viewer.post(f"/incidents/{name}/acknowledge").status_code == 302


def test_severity_assignee_and_comments_are_kept_shown_and_audited(admin: Client, scene: Cluster) -> None:
    name = ids()["node-1"]
    incident = Incident.objects.get(id=name)
    assert (severity_of(incident), is_rated(incident)) == ("major", False)
    for path, form in (
        ("handle", {"severity": "critical", "assignee": "ada"}),
        ("comment", {"comment": "<b>Fan</b>"}),
    ):
        assert admin.post(f"/incidents/{name}/{path}", form)["Location"] == f"/incidents/{name}"
    shown = admin.get(f"/incidents/{name}")
    assert [(one.author, one.text) for one in shown.context["comments"]] == [("ada", "<b>Fan</b>")]
    assert "<b>Fan</b>" not in shown.content.decode()
    row = admin.get("/incidents?state=open").context["table"].rows[0]
    assert (row.severity, row.assignee) == ("critical", "ada")
    trail.flush()
    entries = Entry.objects.filter(resource="incidents.manciple.dev", username="ada", name=name)
    assert set(entries.values_list("verb", flat=True)) == {"update", "create"}
    admin.post(f"/incidents/{name}/handle", {"severity": "", "assignee": "", "mine": "1"})
    assert IncidentHandling.objects.get().assignee == "ada"
    Incident.objects.filter(id=name).delete()
    assert (IncidentHandling.objects.count(), IncidentComment.objects.count()) == (0, 0), "they go with it"


def test_what_is_wrong_with_handling_is_said_at_its_field(admin: Client, scene: Cluster) -> None:
    name = ids()["node-1"]
    answer = admin.post(f"/incidents/{name}/handle", {"severity": "major", "assignee": "adda"})
    assert answer.status_code == 422
    assert "ada" in answer.context["handling"].errors["assignee"][0]
    assert admin.post(f"/incidents/{name}/handle", {"severity": "huge"}).context["handling"].errors.keys() == {
        "severity"
    }
    for text in ("  ", "x" * 4001):
        assert admin.post(f"/incidents/{name}/comment", {"comment": text}).status_code == 422, text
    assert (IncidentHandling.objects.count(), IncidentComment.objects.count()) == (0, 0)
    assert admin.post("/incidents/none/comment", {"comment": "x"}).status_code == 404


HANDLED = {
    "severity=critical": ["node-1"],
    "severity=major": [],
    "severity=minor": [],
    "assignee=ada": ["node-1"],
    "assignee=nobody": ["node-2"],
    "assignee=eve": [],
}


def test_incidents_are_filtered_and_sorted_by_how_they_are_handled(admin: Client, scene: Cluster) -> None:
    names = ids()
    admin.post(f"/incidents/{names['node-1']}/handle", {"severity": "critical", "assignee": "ada"})
    Incident.objects.filter(id=names["node-2"]).update(unhealthy=False)
    expected = HANDLED | {"severity=minor": ["node-2"]}
    for query, pools in expected.items():
        answer = admin.get(f"/incidents?{query}")
        assert [row.incident.pool for row in answer.context["table"].rows] == pools, query
        assert answer.context["table"].tabs[0].count == len(pools), query
    for sort, first in (("-severity", "node-1"), ("severity", "node-2")):
        assert admin.get(f"/incidents?sort={sort}").context["table"].rows[0].incident.pool == first


@pytest.mark.parametrize("worst", ["node-1", "node-2"])
def test_the_most_severe_of_what_goes_on_comes_first(admin: Client, scene: Cluster, worst: str) -> None:
    publish(scene, "gpu-1", node="node-2")
    for pool, name in Incident.objects.filter(ended_at=None).values_list("pool", "id"):
        severity = "critical" if pool == worst else "minor"
        assert admin.post(f"/incidents/{name}/handle", {"severity": severity}).status_code == 302
    rows = [row.incident for row in admin.get("/incidents").context["table"].rows]
    assert [one.pool for one in rows[:2]] == [worst, "node-1" if worst == "node-2" else "node-2"]
    assert all(one.ended_at is None for one in rows[:2])


def let_in(monkeypatch: pytest.MonkeyPatch, allowed: set[tuple[str, str]]) -> None:
    """Everybody may do this, and nothing else."""

    def decide(_identity: Identity, wanted: Attributes) -> Decision:
        return Decision(allowed=(wanted.verb, wanted.resource) in allowed, reason="")

    monkeypatch.setattr(authorization, "decide", decide)


def test_holders_elsewhere_have_no_name(scene: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    stranger = signed_in("sam")
    let_in(monkeypatch, {("list", "resourceslices")})
    for path in ("/incidents", f"/incidents/{ids()['node-1']}"):
        page = stranger.get(path).content.decode()
        assert "another namespace" in page
        assert "default/web" not in page
        assert ">web<" not in page


@pytest.mark.django_db
def test_a_device_that_a_copied_cluster_gave_twice_stands_there_with_both_claims(
    admin: Client, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    settings.MIRROR = True
    Cluster().with_gpus("node-1", each=2)  # its fixture allows no such thing
    with objects.writing() as writer:
        for name in ("first", "second"):
            made = make_claim(name, allocation=make_allocation(make_result("gpu-0")))
            meta = structs.replace(made.metadata, uid=f"{name}-uid", creation_timestamp="2026-01-01T00:00:00Z")
            copied = structs.replace(made, metadata=meta)
            writer.replicate(RESOURCE_CLAIM, copied, codec.to_builtins(copied))
    incident_controller.reconcile(datetime.now(UTC))
    (incident,) = Incident.objects.all()
    for path in ("/incidents", f"/incidents/{incident.id}"):
        shown = words(admin, path)
        assert "node-1 / gpu-0" in shown
        assert "held twice" in shown.lower()
        assert "first" in shown
        assert "second" in shown
    stranger = signed_in("sam")
    let_in(monkeypatch, {("list", "resourceslices")})
    hidden = stranger.get(f"/incidents/{incident.id}").content.decode()
    assert "another namespace" in hidden
    assert ">second<" not in hidden


def test_a_closed_incident_has_the_holders_of_every_span_of_a_device(admin: Client, scene: Cluster) -> None:
    """Whoever holds it still, and whoever gave it back; nobody who held it before, or between."""
    Impairment.objects.all().delete()
    incident = Incident.objects.get(pool="node-1")
    Incident.objects.filter(pk=incident.pk).update(ended_at=NOW)
    still = read_devices().pools[PoolKey(DRIVER, "node-1", "node-1")].holders
    ((_, _, device, _),) = still

    def moment(minutes: int) -> datetime:
        return NOW + timedelta(minutes=minutes)

    for began, ended in ((-60, -50), (-40, -30), (-20, 5)):
        Impairment.objects.create(
            incident=incident, source="driver", reporter="", driver=DRIVER, pool="node-1", device=device,
            node="node-1", key=XID, value="79", effect="NoSchedule", message="", unhealthy=True,
            began_at=moment(began), ended_at=moment(ended),
        )  # fmt: skip
    for name, began, ended in (("before", -90, -61), ("first", -58, -52), ("between", -49, -41), ("second", -35, -25)):
        PastAllocation.objects.create(
            driver=DRIVER, pool="node-1", device=device, node="node-1", device_class="", claim_uid=name,
            namespace="default", claim=name, pods=[f"pod-{name}"], admin_access=False, share_id="",
            consumed_capacity={}, began_at=moment(began), ended_at=moment(ended),
        )  # fmt: skip
    Ending.objects.create(
        resource=CLAIMS, uid="second", namespace="default", name="second", node="", reason=Ending.Reason.DELETED,
        message="", owner="", others=["pod-second"], created_at=moment(-36), ended_at=moment(-25), revision=1,
        author="",
    )  # fmt: skip
    answer = admin.get(f"/incidents/{incident.id}")
    row = answer.context["row"]
    (found,) = row.devices
    assert [(one.claim, one.lasts, one.url) for one in found.holders] == [
        ("web", True, "/claims/default/web"),
        ("second", False, "/ended/second"),
        ("first", False, ""),  # neither the claim nor a record of it is left
    ]
    for page in (answer, admin.get("/incidents?state=closed")):
        assert 'href="/ended/second"' in page.content.decode()
    assert (found.times, row.pods, row.standing) == (3, 3, "closed")
    shown = words(admin, "/incidents?state=closed")
    assert "web" in shown
    assert "between" not in shown


def test_later_holders_of_a_busy_device_do_not_displace_those_of_the_time(
    admin: Client, scene: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incidents, "PAST", 2)
    scene.delete(scene.pod("web"))
    publish(scene)
    scene.settle()
    began = Incident.objects.get(pool="node-1").began_at
    (old,) = PastAllocation.objects.filter(claim="web")
    for number in range(5):
        at = datetime.now(UTC) + timedelta(minutes=number)
        PastAllocation.objects.create(
            driver=DRIVER, pool="node-1", device=old.device, node="node-1", device_class="", claim_uid=f"u{number}",
            namespace="default", claim=f"later-{number}", pods=[], admin_access=False, share_id="",
            consumed_capacity={}, began_at=at, ended_at=at + timedelta(seconds=30),
        )  # fmt: skip
    row = admin.get(f"/incidents/{ids()['node-1']}").context["row"]
    assert row.began == began
    assert {one.claim for one in row.holders} == {"web"}


@pytest.mark.parametrize("source", ["node", "pool", "rule"])
def test_an_incident_of_a_whole_node_or_pool_keeps_who_held_devices_that_have_gone_since(
    admin: Client, scene: Cluster, source: str
) -> None:
    began, ended = NOW - timedelta(hours=3), NOW - timedelta(hours=2)
    Incident.objects.all().delete()
    Incident.objects.create(
        id="whole", unhealthy=False, driver=DRIVER if source == "pool" else "", pool="old" if source == "pool" else "",
        node="" if source == "rule" else "node-9", key="k", value="", began_at=began, ended_at=ended, touched_at=ended,
    )  # fmt: skip
    Impairment.objects.create(
        incident_id="whole", source=source, reporter="r", driver=DRIVER if source != "node" else "",
        pool="old" if source != "node" else "", device="", node="" if source == "rule" else "node-9", key="k", value="",
        effect="", message="m", unhealthy=False, began_at=began, ended_at=ended,
    )  # fmt: skip
    held = {"then": (began, ended), "long before": (began - timedelta(hours=2), began - timedelta(hours=1))}
    for name, (start, end) in held.items():
        PastAllocation.objects.create(
            driver=DRIVER, pool="old", device="gpu-7", node="node-9", device_class="", claim_uid=name,
            namespace="default", claim=name, pods=["p"], admin_access=False, share_id="", consumed_capacity={},
            began_at=start, ended_at=end,
        )  # fmt: skip
    row = admin.get("/incidents/whole").context["row"]
    assert [one.name for one in row.devices] == ["gpu-7"]
    assert [one.claim for one in row.holders] == ["then"]


def test_the_wallboard_shows_what_nobody_has_acknowledged_and_what_is_broken_first(
    admin: Client, cluster: Cluster
) -> None:
    cluster.with_gpus("node-1", each=1)
    at = {"broken": 5, "maintenance": 4, "tainted": 3, "again": 2, "newest": 1}
    for name, minutes in at.items():
        acknowledged = NOW if name in ("maintenance", "again") else None
        began = NOW - timedelta(minutes=minutes)
        Incident.objects.create(
            id=name, unhealthy=name == "broken", driver="d", pool=name, node="", key="k", value="", began_at=began,
            touched_at=began, acknowledged_at=acknowledged,
        )  # fmt: skip
    context = admin.get("/wallboard").context
    assert [one.incident.id for one in context["incidents"]] == ["broken", "newest", "tainted"]
    assert (context["open_incidents"], context["acknowledged"]) == (3, 2)


def test_a_list_costs_as_many_queries_for_many_incidents_as_for_one(
    admin: Client, cluster: Cluster, django_assert_max_num_queries: Any
) -> None:
    for number in range(12):
        publish(cluster, "gpu-0", node=f"node-{number}")
    admin.get("/incidents")
    with django_assert_max_num_queries(20):
        assert admin.get("/incidents").content.decode().count('id="incident-') == 12


# Elsewhere ------------------------------------------------------------------------------------------------------------


def span(state: DeviceState, began: float, ended: float | None) -> ImpairedSpan:
    """began, ended: days from now."""
    return ImpairedSpan(Impairment(
        incident_id="1", driver=DRIVER, pool="node-1", device="gpu-0", node="node-1", source="driver",
        unhealthy=state == DeviceState.UNHEALTHY, key=XID, effect="NoSchedule", began_at=NOW + timedelta(days=began),
        ended_at=None if ended is None else NOW + timedelta(days=ended),
    ))  # fmt: skip


BAD, TAINTED = DeviceState.UNHEALTHY, DeviceState.TAINTED


@pytest.mark.parametrize(
    ("held", "impaired", "marks"),
    [
        ([], [(BAD, -2, None)], ["free", "bad"]),
        ([(-4, -1)], [(TAINTED, -3, -2)], ["free", "reserved", "taint+", "reserved", "free"]),
        ([(-9, -3)], [(TAINTED, -5, None), (BAD, -4, -1)], ["reserved", "taint+", "bad+", "bad", "taint"]),
        ([], [(BAD, -2, -1), (BAD, -1.5, -0.5)], ["free", "bad", "free"]),
        ([], [(BAD, -20, -10)], ["free"]),
    ],
    ids=["broken now", "tainted while held", "broken before tainted", "two causes", "long ago"],
)
def test_the_strip_shows_what_was_out_of_order(
    held: list[tuple[float, float]], impaired: list[tuple[DeviceState, float, float | None]], marks: list[str]
) -> None:
    spans = [(NOW + timedelta(days=began), NOW + timedelta(days=ended)) for began, ended in held]
    strip = strip_of(spans, [span(*one) for one in impaired], start=NOW - timedelta(days=7), now=NOW)
    assert [f"{mark.state}{'+' if mark.held else ''}" for mark in strip.marks] == marks
    assert sum(mark.weight for mark in strip.marks) == 7 * 86400


def test_a_device_the_overview_and_a_rule_tell_of_incidents(admin: Client, scene: Cluster) -> None:
    page = admin.get(f"/devices/d/{DRIVER}/node-2/gpu-0").content.decode()
    assert f'href="/incidents/{ids()["node-2"]}"' in page
    assert "out of service" in page
    began = clock(Incident.objects.get(pool="node-1").began_at)
    assert texts.INCIDENTS_OPEN(began, 1) in words(admin, "/overview")
    Incident.objects.update(acknowledged_at=NOW, acknowledged_by="ada")
    assert texts.INCIDENTS_ALL_ACKNOWLEDGED(1) in words(admin, "/overview")
    assert Impairment.objects.count() == 3
    scene.create(make_taint_rule("repair", driver=DRIVER, key="x/repair"))
    shown = words(admin, "/incidents?cause=x/repair")
    assert "4 devices on 2 nodes" in shown
    assert "by DeviceTaintRule repair" in shown
    assert "4 devices on 2 nodes" in words(admin, "/incidents?node=node-2&cause=x/repair")


def test_the_timeline_draws_lists_and_exports_it(admin: Client, scene: Cluster) -> None:
    scene.create(make_taint_rule("repair", driver=DRIVER, pool="node-2", key="x/repair"))
    shown = admin.get("/timeline?range=1h").content.decode()
    assert 'class="out" data-s="bad"' in shown
    assert "Unhealthy since" in shown
    assert f": {XID}=79" in shown
    assert "1 allocation and 4 impairments" in words(admin, "/timeline?range=1h")
    table = words(admin, "/timeline?range=1h&view=table")
    assert f"Unhealthy {XID}=79" in table
    assert "node-2 / gpu-1 Tainted x/repair" in table
    rows = exported(admin, "/timeline.csv?range=1h")
    told = {(row["node"], row["device"], row["state"], row["cause"]) for row in rows if row["state"] != "held"}
    assert told == {
        *(("node-1", device, "unhealthy", f"{XID}=79:NoSchedule") for device in ("gpu-0", "gpu-1")),
        ("node-2", "gpu-0", "unhealthy", f"{XID}=79:NoSchedule"),
        *(("node-2", device, "tainted", "x/repair:NoSchedule") for device in ("gpu-0", "gpu-1")),
    }
    assert {row["state"] for row in exported(admin, "/timeline.csv?range=1h&ns=default")} == {"held"}
    assert {row["node"] for row in exported(admin, "/timeline.csv?range=1h&node=node-2")} == {"node-2"}


def test_a_contested_device_shows_the_allocations_as_far_as_the_person_sees_their_namespaces(
    cluster: Cluster, admin: Client
) -> None:
    """The newest 20, of this incident alone; a cordon would only move them to another node."""
    publish(cluster)
    kept = {"driver": DRIVER, "pool": "node-1", "node": "node-1", "message": "held by team-b/secret"}
    for number in range(22):
        GuardFinding.objects.create(
            at=NOW, namespace="team-a", claim=f"a{number}", author="sched-2", refused=True, device="gpu-0", **kept
        )
    GuardFinding.objects.create(
        at=NOW, namespace="team-b", claim="hidden", author="bob", refused=False, device="gpu-1", **kept
    )
    long_ago = NOW - timedelta(days=1)
    GuardFinding.objects.create(
        at=long_ago, namespace="team-a", claim="ancient", author="ann", refused=True, device="gpu-0", **kept
    )
    findings.keep(NOW)
    page = f"/incidents/{Incident.objects.get().pk}"
    shown = words(admin, page)
    assert "hidden team-b bob gpu-1" in shown
    assert "let through" in shown
    assert "a21 team-a sched-2 gpu-0" in shown
    assert "a2 " not in shown
    assert "ancient" not in shown
    assert "cordon" not in shown
    seen = words(member("meg", "team-a"), page)
    assert "a21 team-a sched-2" in seen
    assert "team-b not shown gpu-1" in seen
    for name in ("hidden", "bob", "secret"):
        assert name not in seen
