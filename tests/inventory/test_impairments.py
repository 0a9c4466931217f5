"""What kept claims away from devices is recorded with the writes that say so; what failed together is one incident."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from claims.kinds.pods import ContainerStatus, ResourceHealth, ResourceStatus
from claims.kinds.registration import POD, RESOURCE_CLAIM
from inventory import impairments
from inventory.impairments import KEPT_FOR, TOGETHER
from inventory.kinds import gates
from inventory.kinds.devices import Device, DeviceTaint
from inventory.kinds.registration import DEVICE_TAINT_RULE, RESOURCE_SLICE
from inventory.models import Impairment, Incident
from manciple.store import hooks, objects, sql
from manciple.store.models import Event
from manciple.store.objects import Sources
from manciple.store.records import Change, EventType
from manciple.wire.base import ApiObject
from manciple.wire.registry import Kind, registry
from tests.builders import (
    DRIVER,
    make_allocation,
    make_claim,
    make_device,
    make_pod,
    make_result,
    make_slice,
    make_taint_rule,
)
from tests.examples import some

pytestmark = pytest.mark.django_db

START = datetime(2026, 11, 24, 10, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
XID = "gpu.example.com/xid"


@dataclass
class Cluster:
    """Writes at a time of its own."""

    now: datetime = START
    sources: Sources = field(init=False)

    def __post_init__(self) -> None:
        self.sources = Sources(now=lambda: self.now)

    def write(self, kind: Kind, *written: Any) -> None:
        """Create or replace them, all in one transaction."""
        with objects.writing(sources=self.sources) as writer:
            for one in written:
                known = writer.get(kind, one.metadata.namespace, one.metadata.name)
                (writer.create if known is None else writer.update)(kind, one)

    def delete(self, kind: Kind, name: str, namespace: str = "") -> None:
        with objects.writing(sources=self.sources) as writer:
            writer.delete(kind, namespace, name)

    def publish(self, *tainted: str, of: Sequence[str] = ("gpu-0", "gpu-1", "gpu-2"), **fields: Any) -> None:
        """One slice of the pool; `tainted` of its devices are broken."""
        self.write(RESOURCE_SLICE, a_slice(*tainted, of=of, **fields))

    def later(self, by: timedelta) -> None:
        self.now += by


def a_slice(
    *tainted: str, of: Sequence[str] = ("gpu-0", "gpu-1", "gpu-2"), name: str = "s", taint: DeviceTaint | None = None,
    **fields: Any,
) -> Any:  # fmt: skip
    taint = taint or DeviceTaint(key=XID, value="79", effect="NoSchedule")
    devices = [broken(make_device(one), taint) if one in tainted else make_device(one) for one in of]
    return make_slice(name, devices=devices, **fields)


def broken(device: Device, taint: DeviceTaint) -> Device:
    return structs.replace(device, taints=(taint,))


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def history() -> list[tuple[str, str, float, float | None]]:
    """(device, key, minutes from the start when it began and ended)."""
    return [
        (row.device, row.key, minutes(row.began_at) or 0.0, minutes(row.ended_at))
        for row in Impairment.objects.order_by("began_at", "pool", "device", "id")
    ]


def minutes(at: datetime | None) -> float | None:
    return None if at is None else (at - START) / MINUTE


def incidents() -> list[tuple[list[str], bool]]:
    """(its devices, whether it goes on), the oldest first."""
    return [
        (sorted({one.device for one in incident.impairments.all()}), incident.ended_at is None)
        for incident in Incident.objects.order_by("began_at", "pool", "key")
    ]


# Drivers' taints ------------------------------------------------------------------------------------------------------


def test_a_taint_in_a_slice_lasts_until_it_is_published_without(cluster: Cluster) -> None:
    cluster.publish()
    cluster.later(5 * MINUTE)
    cluster.publish("gpu-1")
    cluster.later(5 * MINUTE)
    cluster.publish("gpu-1", of=("gpu-1", "gpu-3"))
    assert history() == [("gpu-1", XID, 5, None)]
    cluster.later(5 * MINUTE)
    cluster.publish(of=("gpu-1", "gpu-3"))
    assert history() == [("gpu-1", XID, 5, 15)]
    row = Impairment.objects.get()
    assert (row.source, row.node, row.value, row.effect, row.unhealthy) == (
        "driver",
        "node-1",
        "79",
        "NoSchedule",
        True,
    )


def test_a_taint_is_as_old_as_it_says_but_not_of_the_future(cluster: Cluster) -> None:
    times = (START - 30 * MINUTE, START + 30 * MINUTE)
    old, ahead = (DeviceTaint(key=XID, value="1", effect="NoExecute", time_added=at.isoformat()) for at in times)
    cluster.publish("gpu-0", taint=old)
    cluster.publish("gpu-0", name="t", pool="node-2", taint=ahead)
    assert [row[2] for row in history()] == [-30, 0]


def test_devices_that_nobody_publishes_any_more_are_no_longer_impaired(cluster: Cluster) -> None:
    cluster.publish("gpu-0", "gpu-1")
    cluster.later(MINUTE)
    cluster.publish("gpu-0", of=("gpu-0",))
    cluster.later(MINUTE)
    cluster.delete(RESOURCE_SLICE, "s")
    assert history() == [("gpu-0", XID, 0, 2), ("gpu-1", XID, 0, 1)]


def test_while_a_pool_is_incomplete_what_it_lacks_stays_as_it_was(cluster: Cluster) -> None:
    cluster.write(RESOURCE_SLICE, a_slice("gpu-0", name="a", of=("gpu-0",), slices=2))
    cluster.write(RESOURCE_SLICE, a_slice("gpu-1", name="b", of=("gpu-1",), slices=2))
    cluster.later(MINUTE)
    # A new generation, one slice after the other.
    cluster.write(RESOURCE_SLICE, a_slice("gpu-0", name="a", of=("gpu-0",), slices=2, generation=2))
    assert [row[3] for row in history()] == [None, None]
    cluster.write(RESOURCE_SLICE, a_slice(name="b", of=("gpu-1",), slices=2, generation=2))
    assert history() == [("gpu-0", XID, 0, None), ("gpu-1", XID, 0, 1)]


def test_what_only_informs_is_not_recorded_and_nothing_is_while_the_gate_is_off(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.publish("gpu-0", taint=DeviceTaint(key="example.com/note", effect="None"))
    cluster.write(DEVICE_TAINT_RULE, make_taint_rule("note", effect="None"))
    gates.use({"DRADeviceTaints": False, "DRADeviceTaintRules": False})
    try:
        cluster.publish("gpu-0")
        cluster.write(DEVICE_TAINT_RULE, make_taint_rule("repair"))
    finally:
        gates.use({})
    assert history() == []


# Rules ----------------------------------------------------------------------------------------------------------------


def test_a_rule_is_one_row_however_much_it_taints(cluster: Cluster) -> None:
    cluster.publish(of=[f"gpu-{number}" for number in range(64)])
    cluster.write(DEVICE_TAINT_RULE, make_taint_rule("repair", driver=DRIVER, time_added=""))
    cluster.later(7 * MINUTE)
    cluster.delete(DEVICE_TAINT_RULE, "repair")
    row = Impairment.objects.get()
    assert (row.source, row.reporter, row.driver, row.pool, row.device) == ("rule", "repair", DRIVER, "", "")
    assert (row.began_at, row.ended_at) == (START, START + 7 * MINUTE)
    assert incidents() == [([""], False)]


def test_a_rule_that_taints_harder_goes_on_in_its_incident(cluster: Cluster) -> None:
    cluster.write(DEVICE_TAINT_RULE, make_taint_rule("repair", pool="node-1", time_added=""))
    cluster.later(3 * TOGETHER)
    cluster.write(DEVICE_TAINT_RULE, make_taint_rule("repair", pool="node-1", effect="NoExecute", time_added=""))
    assert [(row[2], row[3]) for row in history()] == [(0, 30), (30, None)]
    assert [still for _, still in incidents()] == [True]


# Reports --------------------------------------------------------------------------------------------------------------


def using(
    cluster: Cluster,
    health: str = "Unhealthy",
    resource: str = "",
    *,
    name: str = "web",
    node: str = "node-1",
    pool: str = "node-1",
) -> None:
    """A pod, whose claim holds gpu-1, with what its agent reports of that."""
    claim = f"{name}-training"
    if objects.get(RESOURCE_CLAIM, "default", claim) is None:
        allocation = make_allocation(make_result("gpu-1", pool=pool), node=node)
        cluster.write(RESOURCE_CLAIM, make_claim(claim, allocation=allocation))
    stored = objects.get(RESOURCE_CLAIM, "default", claim)
    assert stored is not None
    resource = resource.format(uid=stored.uid) or f"{DRIVER}/{pool}/gpu-1"
    told = ResourceHealth(resource_id=resource, health=health, message="XID 79")
    status = ContainerStatus(
        name="main", allocated_resources_status=(ResourceStatus(name="claim:gpu", resources=(told,)),)
    )
    pod = make_pod(name, claims={"gpu": claim}, node=node)
    cluster.write(POD, structs.replace(pod, status=structs.replace(pod.status, container_statuses=(status,))))


@pytest.mark.parametrize("resource", ["", "vendor.com/gpu={uid}-gpu-1"])
def test_what_an_agent_reports_lasts_as_long_as_it_reports_it(cluster: Cluster, resource: str) -> None:
    using(cluster, resource=resource)
    using(cluster, resource=resource)
    cluster.later(4 * MINUTE)
    using(cluster, health="Healthy", resource=resource)
    assert history() == [("gpu-1", "", 0, 4)]
    row = Impairment.objects.get()
    assert (row.source, row.node, row.message, row.unhealthy) == ("report", "node-1", "XID 79", True)


def test_a_report_ends_with_its_pod(cluster: Cluster) -> None:
    using(cluster)
    cluster.later(MINUTE)
    cluster.delete(POD, "web", "default")
    assert [row[3] for row in history()] == [1]


def test_a_device_that_its_driver_taints_and_its_agent_reports_is_one_incident(cluster: Cluster) -> None:
    using(cluster)
    cluster.later(2 * TOGETHER)
    cluster.publish("gpu-1")
    assert incidents() == [(["gpu-1"], True)]
    cluster.later(MINUTE)
    using(cluster, health="Healthy")
    assert incidents() == [(["gpu-1"], True)]
    cluster.publish()
    assert incidents() == [(["gpu-1"], False)]


def test_other_statuses_of_pods_ask_nothing(cluster: Cluster) -> None:
    cluster.write(POD, make_pod("web"))
    with CaptureQueriesContext(
        connection,
    ) as asked:
        cluster.write(POD, make_pod("web", meta={"labels": {"a": "b"}}))
    assert not [one for one in asked.captured_queries if "impairment" in one["sql"]]


# Incidents ------------------------------------------------------------------------------------------------------------


def test_devices_of_one_pool_that_fail_together_are_one_incident(cluster: Cluster) -> None:
    cluster.publish("gpu-0")
    cluster.later(TOGETHER)
    cluster.publish("gpu-0", "gpu-1")
    cluster.later(TOGETHER + MINUTE)
    cluster.publish("gpu-0", "gpu-1", "gpu-2")
    assert incidents() == [(["gpu-0", "gpu-1"], True), (["gpu-2"], True)]
    cluster.publish()
    assert [still for _, still in incidents()] == [False, False]


def test_other_causes_and_other_pools_are_other_incidents(cluster: Cluster) -> None:
    cluster.publish("gpu-0")
    cluster.publish("gpu-0", name="other", pool="node-2")
    cluster.publish("gpu-0", name="third", pool="node-3", taint=DeviceTaint(key="x/maintenance", effect="NoSchedule"))
    assert len(incidents()) == 3


@pytest.mark.parametrize("how", ["taints", "reports", "both"])
def test_equally_named_pools_of_two_nodes_have_incidents_of_their_own(cluster: Cluster, how: str) -> None:
    for node in ("node-1", "node-2"):
        tainted = () if how == "reports" else ("gpu-1",)
        cluster.publish(*tainted, name=f"of-{node}", pool="gpus", node=node)
    if how != "taints":
        for node in ("node-1", "node-2"):
            using(cluster, name=f"on-{node}", node=node, pool="gpus")
    found = {incident.node: {one.node for one in incident.impairments.all()} for incident in Incident.objects.all()}
    assert found == {"node-1": {"node-1"}, "node-2": {"node-2"}}
    if how != "reports":
        cluster.later(MINUTE)
        cluster.publish("gpu-0", "gpu-1", name="of-node-2", pool="gpus", node="node-2")
        assert Incident.objects.count() == 2


def test_devices_of_several_nodes_in_one_pool_have_one_incident(cluster: Cluster) -> None:
    taint = DeviceTaint(key=XID, value="79", effect="NoSchedule")
    devices = [
        structs.replace(broken(make_device(f"gpu-{number}"), taint), node_name=f"node-{number}") for number in (1, 2)
    ]
    devices_of_both = make_slice("fabric", node=None, pool="fabric", per_device_node_selection=True, devices=devices)
    cluster.write(RESOURCE_SLICE, devices_of_both)
    assert incidents() == [(["gpu-1", "gpu-2"], True)]


def test_a_device_that_comes_and_goes_is_one_incident(cluster: Cluster) -> None:
    for _ in range(4):
        cluster.publish("gpu-0")
        cluster.later(MINUTE)
        cluster.publish()
        cluster.later(MINUTE)
    assert len(history()) == 4
    assert incidents() == [(["gpu-0"], False)]
    cluster.later(TOGETHER)
    cluster.publish("gpu-0")
    assert len(incidents()) == 2


def test_what_one_person_taints_here_and_there_is_one_incident(cluster: Cluster) -> None:
    for number in range(3):
        rule = make_taint_rule(f"repair-{number}", driver=DRIVER, pool=f"node-{number}", device="gpu-0", time_added="")
        cluster.write(DEVICE_TAINT_RULE, rule)
    assert len(incidents()) == 1


def test_an_acknowledgement_outlasts_what_comes_back(cluster: Cluster) -> None:
    cluster.publish("gpu-0")
    Incident.objects.update(acknowledged_by="ada", note="seen")
    cluster.publish()
    cluster.publish("gpu-0")
    incident = Incident.objects.get()
    assert (incident.acknowledged_by, incident.note, incident.ended_at) == ("ada", "seen", None)


# All together ---------------------------------------------------------------------------------------------------------


def test_a_thousand_devices_cost_as_many_queries_as_one(cluster: Cluster) -> None:
    slices = [[f"gpu-{number}" for number in range(start, start + 64)] for start in range(0, 1024, 64)]

    def published(*tainted: str) -> list[Any]:
        return [a_slice(*tainted, name=f"s{at}", of=names, slices=16) for at, names in enumerate(slices)]

    def queries(*tainted: str) -> int:
        with CaptureQueriesContext(connection) as asked:
            cluster.write(RESOURCE_SLICE, *published(*tainted))
        return sum("impairment" in one["sql"] or "incident" in one["sql"] for one in asked.captured_queries)

    cluster.write(RESOURCE_SLICE, *published())
    one = queries("gpu-0")
    queries()
    cluster.later(2 * TOGETHER)
    many = queries(*(name for names in slices for name in names))
    assert Impairment.objects.filter(ended_at=None).count() == 1024
    assert len(incidents()) == 2
    assert many <= one + 2, "a statement may take several trips, and no more"


def rows() -> list[Any]:
    columns = [field.attname for field in Impairment._meta.concrete_fields if field.attname != "id"]
    return [
        sorted(Impairment.objects.values_list(*columns), key=repr),
        sorted(Incident.objects.values_list(), key=repr),
    ]


def changes_of_the_log() -> Iterator[tuple[str, list[Change]]]:
    """As the projectors are told of them: by transaction and resource."""
    last: dict[tuple[str, str], ApiObject] = {}
    together: dict[tuple[datetime, str], list[Change]] = {}
    for event in Event.objects.order_by("revision"):
        kind = registry.by_resource(event.resource)
        obj = objects.decode(kind, event.document)
        key = (event.resource, event.name)
        change = Change(
            type=cast("EventType", event.type), object=obj, previous=last.pop(key, None), at=event.created_at
        )
        if event.type != "DELETED":
            last[key] = obj
        together.setdefault((event.created_at, event.resource), []).append(change)
    for (_, resource), changes in together.items():
        yield resource, changes


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["publish", "withdraw", "rule", "no rule"]),
        st.sampled_from(["node-1", "node-2"]),
        st.sets(st.sampled_from(["gpu-0", "gpu-1", "gpu-2"])),
        st.integers(1, 15),
    ),
    max_size=12,
)


@settings(max_examples=some(15), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_the_same_log_gives_the_same_rows_and_the_index_rebuilt_changes_none(steps: list[Any]) -> None:
    cluster = Cluster()
    for resource in ("resourceslices.resource.k8s.io", "devicetaintrules.resource.k8s.io"):
        kind = registry.by_resource(resource)
        for stored in objects.list(kind).items:
            cluster.delete(kind, stored.name)
    for model in (Impairment, Incident, Event):
        sql.clear(model)
    for what, pool, tainted, wait in steps:
        cluster.later(wait * MINUTE)
        if what == "publish":
            cluster.publish(*sorted(tainted), name=pool, pool=pool)
        elif what == "withdraw" and objects.get(RESOURCE_SLICE, "", pool):
            cluster.delete(RESOURCE_SLICE, pool)
        elif what == "rule":
            cluster.write(DEVICE_TAINT_RULE, make_taint_rule(pool, pool=pool, key="x/repair", time_added=""))
        elif what == "no rule" and objects.get(DEVICE_TAINT_RULE, "", pool):
            cluster.delete(DEVICE_TAINT_RULE, pool)
    known = rows()
    objects.reindex()
    assert rows() == known
    for projector in hooks.PROJECTORS.values():
        projector.clear()
    for model in (Impairment, Incident):
        sql.clear(model)
    for resource, changes in changes_of_the_log():
        hooks.PROJECTORS[resource].project(changes)
    assert rows() == known


def test_what_ended_long_ago_is_forgotten_and_what_lasts_is_not(cluster: Cluster) -> None:
    cluster.publish("gpu-0")
    cluster.publish("gpu-0", "gpu-1", name="t", pool="node-2")
    cluster.later(MINUTE)
    cluster.publish()
    assert impairments.prune(START + KEPT_FOR) == 0
    assert impairments.prune(START + KEPT_FOR + 2 * MINUTE) == 2
    assert incidents() == [(["gpu-0", "gpu-1"], True)]
