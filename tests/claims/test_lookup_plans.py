"""Few keys are looked up in an index, also by a planner without statistics of a table that has just grown."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from claims import device_taints
from claims.controllers import reservations
from claims.kinds.registration import POD
from claims.models import AllocatedDevice, Claim, Pod, PodClaim, Reservation
from claims.projectors import holders_of
from inventory import impairments
from inventory.impairments import IncidentGroup
from inventory.kinds.pools import PoolKey
from inventory.models import Device, Impairment, Incident, PublishedSlice
from manciple.controllers.declaration import controllers
from manciple.store import garbage, objects, sql, writer
from manciple.store.models import Event, OwnerLink, StoredObject

pytestmark = pytest.mark.django_db

#: Rows of each table, so many that reading a whole index is no alternative; keys that are looked up; rows that a plan
#: may read for them: an index still has what other tests have rolled back.
ROWS, KEYS, MOST_READ = 1000, range(5), 200
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


@pytest.fixture
def grown() -> None:
    """Claims c0, c1, ... of pods p0, p1, ..., each with a device of a pool of its own that is impaired."""
    numbers = range(ROWS)
    Claim.objects.bulk_create(
        Claim(uid=f"c{n}", namespace="ns", name=f"c{n}", allocated=True, deleting=False, created_at=NOW)
        for n in numbers
    )
    Reservation.objects.bulk_create(
        Reservation(claim_id=f"c{n}", resource="pods", name=f"p{n}", uid=f"p{n}") for n in numbers
    )
    Pod.objects.bulk_create(
        Pod(uid=f"p{n}", namespace="ns", name=f"p{n}", node_name=f"n{n}", deleting=False, claim_names=[f"c{n}"])
        for n in numbers
    )
    PodClaim.objects.bulk_create(PodClaim(pod_id=f"p{n}", namespace="ns", claim=f"c{n}") for n in numbers)
    place = {"driver": "d", "pool": "p"}
    AllocatedDevice.objects.bulk_create(
        AllocatedDevice(
            claim_id=f"c{n}", **place, device=f"g{n}", admin_access=False, consumed_capacity={}, exclusive=True
        )
        for n in numbers
    )
    PublishedSlice.objects.bulk_create(
        PublishedSlice(
            name=f"s{n}", driver="d", pool=f"n{n}", generation=1, slices_expected=1, node_name=f"n{n}", device_count=1
        )
        for n in numbers
    )
    nothing = {"attributes": {}, "capacity": {}, "taints": [], "shared": False}
    Device.objects.bulk_create(
        Device(driver="d", pool=f"n{n}", name=f"g{n}", position=0, slice_name=f"s{n}", node_name=f"n{n}", **nothing)
        for n in numbers
    )
    Incident.objects.bulk_create(
        Incident(id=f"i{n}", unhealthy=False, driver="d", pool=f"n{n}", node=f"n{n}", began_at=NOW, touched_at=NOW)
        for n in numbers
    )
    Impairment.objects.bulk_create(
        Impairment(
            incident_id=f"i{n}",
            source="rule",
            reporter=f"r{n}",
            driver="d",
            pool=f"n{n}",
            node=f"n{n}",
            unhealthy=False,
            began_at=NOW,
        )
        for n in numbers
    )
    columns = ("revision", "type", "resource", "namespace", "name", "uid", "deleting", "created_at", "labels", "fields")
    events = [(10_000 + n, "ADDED", "pods", "ns", f"p{n}", f"p{n}", False, NOW, "{}", "{}") for n in numbers]
    sql.insert(Event, (*columns, "document", "actor"), [(*event, "{}", "") for event in events])
    of_objects = ("uid", "resource", "namespace", "name", "event_id", "propagation")
    sql.insert(StoredObject, of_objects, [(f"p{n}", "pods", "ns", f"p{n}", 10_000 + n, "") for n in numbers])
    of_links = ("object_id", "owner_uid", "resolvable", "gone", "controller", "blocking")
    sql.insert(OwnerLink, of_links, [(f"p{n}", f"c{n}", True, False, True, True) for n in numbers])


POOLS = [PoolKey("d", f"n{n}", f"n{n}") for n in KEYS]
#: what looks `KEYS` up
LOOKUPS: dict[str, Callable[[], object]] = {
    "who holds devices": lambda: holders_of([("d", "p", f"g{n}", "") for n in KEYS]),
    "which claims bound pods name": lambda: reservations.named_by_bound_pods([("ns", f"c{n}") for n in KEYS]),
    "rows by a key": lambda: sql.select(Claim, ["uid"], ["namespace", "name"], [("ns", f"c{n}") for n in KEYS]),
    "rows to delete": lambda: sql.delete(Reservation, ["claim_id"], [(f"c{n}",) for n in KEYS]),
    "owner links to delete": lambda: writer.unlink(f"p{n}" for n in KEYS),
    "objects by name": lambda: list(sql.by_keys("pods", [("ns", f"p{n}") for n in KEYS])),
    "objects that a transaction reads": lambda: [
        sql.fetch(*query) for query in sql.references_queries(("pods", "ns", f"p{n}", "") for n in KEYS)
    ],
    "objects of owners": lambda: objects.dependents([f"c{n}" for n in KEYS], POD),
    "uses of devices by pods": lambda: list(device_taints._uses_by(f"p{n}" for n in KEYS)),
    "uses of named devices": lambda: list(
        device_taints._uses_of(("driver", "pool", "device"), [("d", "p", f"g{n}") for n in KEYS])
    ),
    "impairments of pools": lambda: impairments._of_pools(POOLS),
    "impairments of rules": lambda: impairments._of_reporters("rule", [f"r{n}" for n in KEYS]),
    "recent incidents": lambda: impairments._recent([IncidentGroup(*pool, "", "") for pool in POOLS], NOW),
    "published devices": lambda: list(impairments._published(POOLS)),
}


def rows_read(statement: str) -> Iterator[tuple[str, int]]:
    """(step, rows) of the statement's plan; on SQLite, which does not count, all rows of a table for a scan of it."""
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute(f"EXPLAIN QUERY PLAN {statement}")
            steps = [row[-1] for row in cursor.fetchall()]
            yield from ((step, ROWS) for step in steps if re.match("SCAN (?!given|[0-9]|found|CONSTANT)", step))
            return
        cursor.execute(f"EXPLAIN ANALYZE {statement.replace('%', '%%')}")
        for (step,) in cursor.fetchall():
            yield from rows_of(step)


def rows_of(step: str) -> Iterator[tuple[str, int]]:
    """The same of one step of PostgreSQL's."""
    if counted := re.search(r"actual time=.* rows=(\d+) loops=(\d+)", step):
        yield step, int(counted[1]) * int(counted[2])
    if removed := re.search(r"Rows Removed by .*: (\d+)", step):
        yield step, int(removed[1])


@pytest.mark.parametrize("what", LOOKUPS)
@pytest.mark.usefixtures("grown")
def test_a_few_keys_read_a_few_rows(what: str) -> None:
    with CaptureQueriesContext(connection) as queries:
        LOOKUPS[what]()
    statements = [query["sql"] for query in queries if re.match("WITH|SELECT", query["sql"])]
    assert statements
    read = [found for statement in statements for found in rows_read(statement)]
    assert [step for step, rows in read if rows > MOST_READ] == []


@pytest.mark.usefixtures("grown")
def test_whether_a_controller_has_work_is_told_by_a_few_rows() -> None:
    """They are asked all the time, mostly in vain: PostgreSQL then plans them once for whatever they are asked with."""
    if connection.vendor == "sqlite":
        return  # it does not tell at which row it stops
    kinds = ("pods", "nodes", "events", "leases.coordination.k8s.io")
    of_objects = ("uid", "resource", "namespace", "name", "event_id", "propagation")
    rows = [(f"{kind}{n}", kind, "all", f"n{n}", 10_000, "") for kind in kinds for n in range(ROWS)]
    sql.insert(StoredObject, of_objects, rows)
    asked = {one.has_work for one in controllers.value if one.has_work is not None}
    asked.discard(garbage.HAS_WORK)  # of the few that it is for, statistics soon tell that they are few
    read = []
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE store_storedobject")
        cursor.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        for number, (statement, parameters) in enumerate(sorted(asked)):
            places = [f"${place}" for place in range(1, len(parameters) + 1)]
            cursor.execute(f"PREPARE asked_{number} AS {statement % tuple(places)}")
            values = f"({', '.join(repr(value) for value in parameters)})" if parameters else ""
            cursor.execute(f"EXPLAIN ANALYZE EXECUTE asked_{number}{values}")
            read += [found for (step,) in cursor.fetchall() for found in rows_of(step)]
            cursor.execute(f"DEALLOCATE asked_{number}")
    assert len(asked) > 5
    assert [step for step, rows in read if rows > MOST_READ] == []


@pytest.mark.usefixtures("grown")
def test_the_claims_that_bound_pods_name() -> None:
    Pod.objects.filter(uid="p1").update(node_name="")
    Pod.objects.filter(uid="p2").update(phase="Succeeded")
    Pod.objects.filter(uid="p3").update(deleting=True)
    asked = [("ns", "c0"), ("other", "c0"), ("ns", "c1"), ("ns", "c2"), ("ns", "c3"), ("ns", "c")]
    assert reservations.named_by_bound_pods(asked) == {("ns", "c0"), ("ns", "c3")}
    assert reservations.named_by_bound_pods([]) == frozenset()
