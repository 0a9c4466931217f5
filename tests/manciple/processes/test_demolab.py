"""The demo's laboratory: always the same for a seed, nothing given twice, and pods that wait for real reasons."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from claims.causes.causes import AnyCause, ClassMissing, DevicesInUse, NotSelected, PoolsUnusable
from claims.controllers import generated_claims, podgc, reservations
from claims.devices.states import DeviceState
from claims.kinds.pods import Pod
from claims.kinds.quotas import ResourceQuota
from claims.models import AllocatedDevice, Claim, PastAllocation
from claims.models import Pod as PodRow
from inventory.models import Device, Node, Pool
from manciple.processes.demolab import filling, hardware, jobs, past
from manciple.processes.demolab.jobs import Planner
from manciple.store import objects
from manciple.store.objects import listed
from manciple.wire.registry import registry
from manciple.wire.resources import QUOTAS
from scheduling.cluster_facts import gather
from scheduling.invariants import violations
from scheduling.models import UsageSample
from scheduling.rehearsal.explanations import explain_pod
from tests.laboratory import NOW, furnish


def causes_of_waiting() -> list[AnyCause | None]:
    """Of the pods that have their claims."""
    kind = registry.by_resource("pods")
    pods = [objects.decode(kind, stored.text) for stored in objects.list(kind).items]
    return [
        explain_pod(*pod.key).cause
        for pod in pods
        if isinstance(pod, Pod) and not pod.spec.node_name and pod.key != jobs.REFUSED_POD
    ]


@pytest.fixture
def lab(db: None) -> filling.Lab:
    return furnish()


def test_a_laboratory_is_what_it_says(lab: filling.Lab) -> None:
    assert Node.objects.count() == 40
    assert Device.objects.values("driver").distinct().count() == 3
    assert Device.objects.exclude(name__contains="-mig-").count() == 395
    assert set(Pool.objects.filter(complete=False).values_list("name", "driver")) == {
        ("gpu-b04", "gpu.nvidia.com"),
        ("gpu-c03", "dra.net"),
    }
    assert Claim.objects.filter(allocated=True).count() > 80
    waiting = causes_of_waiting()
    kinds = {DevicesInUse: 10, PoolsUnusable: 2, NotSelected: 1, ClassMissing: 1}
    assert Counter(type(cause) for cause in waiting) == kinds
    assert [one.wanted for one in waiting if isinstance(one, DevicesInUse) and one.left].count(8) == 4
    assert Claim.objects.filter(namespace="teaching", name__startswith=jobs.REFUSED_POD[1]).count() == 0
    quotas = {one.key: one.status for one in listed(QUOTAS, ResourceQuota)[1]}
    assert quotas.keys() == jobs.QUOTAS.keys()
    assert quotas["teaching", "course"].used == quotas["teaching", "course"].hard
    assert {name: found for name, found in violations(gather(NOW)).items() if found} == {}
    assert PodRow.objects.filter(phase="Pending").exclude(node_name="").count() == 3  # preparing
    assert Claim.objects.filter(deleting=True).count() == 1


def test_what_is_stuck_stays_stuck_under_the_controllers(lab: filling.Lab) -> None:
    for sweep in (generated_claims.sweep, reservations.sweep, podgc.sweep):
        sweep(datetime.now(UTC))
    leaked = Claim.objects.get(namespace=jobs.LEAKED_CLAIM[0], name=jobs.LEAKED_CLAIM[1])
    assert leaked.allocated
    assert Claim.objects.filter(namespace=jobs.KEPT_CLAIM[0], name=jobs.KEPT_CLAIM[1]).exists()
    assert PodRow.objects.filter(deleting=True, node_name=jobs.ENDLESS_MACHINE).count() == 1


def test_history_ends_before_what_is_held_now_begins(lab: filling.Lab) -> None:
    held = {
        (one.pool, one.device): one.claim.allocated_at
        for one in AllocatedDevice.objects.filter(exclusive=True).select_related("claim")
    }
    rows = list(PastAllocation.objects.order_by("began_at"))
    assert len(rows) > 1000
    last: dict[tuple[str, str], datetime] = {}
    for row in rows:
        key = (row.pool, row.device)
        assert row.began_at < row.ended_at <= (held.get(key) or NOW)
        assert last.get(key, row.began_at) <= row.began_at, "two held it at once"
        last[key] = row.ended_at
    assert rows[0].began_at < NOW - timedelta(days=6)


def test_no_device_was_unreachable_all_day(lab: filling.Lab) -> None:
    samples = list(UsageSample.objects.values_list("counts", flat=True))
    assert len(samples) > filling.MINUTES
    assert not any(DeviceState.UNREACHABLE in counts for counts in samples)


def test_a_home_with_nodes_is_left_alone(lab: filling.Lab) -> None:
    with pytest.raises(filling.NotEmpty):
        filling.fill(filling.plan(size="lab", seed=2, now=NOW))


def test_leases_are_renewed(lab: filling.Lab) -> None:
    kind = registry.by_resource("leases.coordination.k8s.io")
    before = {stored.name: stored.text for stored in objects.list(kind).items}
    hardware.renew()
    after = {stored.name: stored.text for stored in objects.list(kind).items}
    assert len(before) == 40
    assert all(after[name] != before[name] for name in before)


@pytest.mark.parametrize("seed", range(4))
def test_every_seed_makes_a_plan_that_fits(seed: int) -> None:
    lab = filling.plan(size="lab", seed=seed, now=NOW)
    again = filling.plan(size="lab", seed=seed, now=NOW)
    assert lab.jobs == again.jobs
    taken = Counter((job.machine.name, device) for job in lab.jobs for device in job.devices)
    assert max(taken.values()) == 1
    shares = Counter((job.machine.name, job.nic) for job in lab.jobs if job.nic)
    assert max(shares.values()) <= 2
    held_in_rack_2 = [job for job in lab.jobs if job.machine.rack == "r2" and job.machine.model is hardware.H100]
    assert sum(len(job.devices) for job in held_in_rack_2) == 32


def test_the_large_one_has_five_thousand_devices() -> None:
    machines = hardware.large_machines()
    assert len(machines) * hardware.GPUS_PER_NODE == 5000
    jobs = Planner(Random(1)).jobs(machines)
    assert 3500 < sum(len(job.devices) for job in jobs) < 4800
    assert sum(1 for _ in past.past(machines[:2], {}, now=NOW, random=Random(1))) > 20
