"""An extension of the scheduler is one module, registered by its gate; while the gate is off, no process imports it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from inventory.kinds import gates
from manciple.controllers.declaration import controllers
from manciple.controllers.tasks import WakeTable
from manciple.wire.machinery import Lease, LeaseSpec
from manciple.wire.resources import LEASES
from scheduling.queue import hints
from scheduling.rehearsal.explanations import pod_document
from scheduling.state.cluster import ClusterState
from scheduling.state.extensions import EXTENSIONS
from tests.builders import DRIVER, NAMESPACE, make_claim, make_meta, make_pod
from tests.scheduling.cluster import Cluster
from tests.scheduling.placement.decide import decided

EARLIER = "scheduling.earlier"

ONE_FILE = '''
"""Bookings of nodes for teams and of devices, which are Leases; a placed pod gets a Lease that names its node."""

from dataclasses import dataclass, field, replace
from typing import ClassVar

from claims.causes.causes import NodeRefusal
from claims.kinds.resource_claims import (
    AllocationResult, DeviceAllocationResult, DeviceRequestAllocationResult, ResourceClaim, ResourceClaimStatus
)
from manciple.controllers.declaration import Controller
from manciple.wire.base import ObjectMeta
from manciple.wire.machinery import Lease, LeaseSpec
from manciple.wire.resources import LEASES
from scheduling.claims.negotiation import Negotiation, NegotiationWrite
from scheduling.queue.hints import DELETED, always
from scheduling.queue.reasons import Reason
from scheduling.state.extensions import Extension

BOOKED = NodeRefusal("Bookings", value="node(s) were booked by another team")


@dataclass(frozen=True)
class Booking(Negotiation):
    team: str
    pod: object
    teams: dict

    def restricted(self, filtered, nodes):
        others = {node.name for node in filtered.fitting if self.teams.get(node.name, self.team) != self.team}
        fitting = tuple(node for node in filtered.fitting if node.name not in others)
        return replace(filtered, fitting=fitting, refused={**filtered.refused, **dict.fromkeys(others, (BOOKED,))})

    def preferred(self, fitting):
        return tuple(node for node in fitting if node.name in self.teams) or fitting

    def next(self, node, possible):
        meta = ObjectMeta(namespace=self.pod.metadata.namespace, name=f"place-of-{self.pod.metadata.name}")
        spec = LeaseSpec(holder_identity=node)
        lease = Lease(api_version="coordination.k8s.io/v1", kind="Lease", metadata=meta, spec=spec)
        return (NegotiationWrite(resource=LEASES, after=lease),)


def teams_are_named(facts):
    for lease in facts.stored(LEASES):
        if lease.name == "booking-of-nothing":
            yield "booking-of-nothing names no team"


@dataclass(slots=True, eq=False, repr=False)
class Bookings(Extension):
    follows: ClassVar = (LEASES,)
    wakes: ClassVar = {(LEASES, DELETED): always(Reason.NODE | Reason.DEVICES)}
    invariants: ClassVar = {"10 bookings name their teams": teams_are_named}

    teams: dict[str, str] = field(default_factory=dict)

    def put(self, lease):
        if node := lease.metadata.labels.get("node"):
            self.teams[node] = lease.spec.holder_identity
        if pool := lease.metadata.labels.get("pool"):
            driver, device = lease.metadata.annotations["device"].split("/")
            result = DeviceRequestAllocationResult(request="booked", driver=driver, pool=pool, device=device)
            allocation = AllocationResult(devices=DeviceAllocationResult(results=(result,)))
            self.devices.put(self._claim(lease, allocation))

    def remove(self, lease):
        self.teams.pop(lease.metadata.labels.get("node"), None)
        if "pool" in lease.metadata.labels:
            self.devices.remove(self._claim(lease, None))

    def _claim(self, lease, allocation):
        status = ResourceClaimStatus(allocation=allocation)
        return ResourceClaim(api_version="", kind="", metadata=lease.metadata, status=status)

    def negotiation(self, pod, claims):
        return Booking(team=pod.metadata.labels.get("team", ""), pod=pod, teams=dict(self.teams))


CONTROLLER = Controller(
    name="end_bookings", does="ends bookings", in_mirror=False, reconcile=lambda now: 0, every=60, gate="SiteBookings"
)
'''


@pytest.fixture
def bookings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The one file, and the one line that registers it. Its gate is on."""
    (tmp_path / "site_bookings.py").write_text(ONE_FILE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(EXTENSIONS, "SiteBookings", "site_bookings.Bookings")
    monkeypatch.setattr(hints, "FURTHER_RULES", dict(hints.FURTHER_RULES))
    monkeypatch.setattr(hints, "RESOURCES", set(hints.RESOURCES))
    with gates.using(SiteBookings=True):
        yield
    sys.modules.pop("site_bookings", None)


@pytest.fixture
def booked(bookings: None, cluster: Cluster) -> Cluster:
    """Team red has booked node-1. Each node has one GPU."""
    cluster.with_gpus("node-1", "node-2", each=1)
    book(cluster, "red-node", holder="red", labels={"node": "node-1"})
    return cluster


def book(cluster: Cluster, name: str, *, holder: str = "", **meta: object) -> Lease:
    made = Lease(
        api_version="coordination.k8s.io/v1",
        kind="Lease",
        metadata=make_meta(name, NAMESPACE, **meta),
        spec=LeaseSpec(holder_identity=holder, lease_duration_seconds=60),
    )
    return cluster.create(made)


def apply(cluster: Cluster, name: str, team: str) -> None:
    cluster.create(make_claim(name))
    cluster.create(make_pod(name, claims={"gpu": name}, meta={"labels": {"team": team}}))
    cluster.settle()


# An extension in one file ---------------------------------------------------------------------------------------------


def test_it_filters_and_prefers_nodes_by_the_kind_that_it_follows(booked: Cluster) -> None:
    apply(booked, "blue", "blue")
    apply(booked, "red", "red")
    assert booked.pod("blue").spec.node_name == "node-2"
    assert booked.pod("red").spec.node_name == "node-1"


def test_it_writes_in_the_transaction_of_the_binding(booked: Cluster) -> None:
    apply(booked, "blue", "blue")
    assert booked.get(Lease, "place-of-blue").spec.holder_identity == "node-2"
    in_its_place = book(booked, "place-of-red")
    apply(booked, "red", "red")
    assert booked.pod("red").spec.node_name == "", "what cannot be written binds no pod"
    assert booked.claim("red").status.allocation is None
    booked.delete(in_its_place)
    booked.retry()
    assert booked.pod("red").spec.node_name == "node-1"


def test_a_refused_pod_says_why_and_the_end_of_the_booking_wakes_it(booked: Cluster) -> None:
    apply(booked, "first", "blue")
    apply(booked, "second", "blue")
    assert "1 node(s) were booked by another team" in booked.why_pending("second")
    assert "node(s) were booked by another team on 1 node" in str(pod_document(NAMESPACE, "second")["hints"])
    booked.retry()
    assert booked.pod("second").spec.node_name == ""
    booked.delete(booked.get(Lease, "red-node"))
    booked.retry()
    assert booked.pod("second").spec.node_name == "node-1"


def test_it_holds_devices(booked: Cluster) -> None:
    device = f"{DRIVER}/gpu-0"
    booking = book(booked, "device", labels={"pool": "node-2"}, annotations={"device": device})
    apply(booked, "blue", "blue")
    assert booked.pod("blue").spec.node_name == ""
    booked.delete(booking)
    booked.retry()
    assert booked.pod("blue").spec.node_name == "node-2"


def test_a_rehearsal_changes_nothing_of_its_live_state(booked: Cluster) -> None:
    state = ClusterState.captured()
    copy = state.copy()
    copy.remove(LEASES, booked.get(Lease, "red-node"))
    (live,), (imagined,) = state.extensions, copy.extensions
    assert live.teams == {"node-1": "red"}  # type: ignore[attr-defined]  # of the one file
    assert imagined.teams == {}  # type: ignore[attr-defined]
    assert imagined.devices is copy.devices


def test_its_controller_its_wake_ups_and_its_invariants_exist_while_its_gate_is_on(booked: Cluster) -> None:
    assert "end_bookings" in {controller.name for controller in controllers.value}
    assert "schedule" in WakeTable(controllers.value).concerned([(LEASES, "DELETED")])
    assert booked.violations() == {}
    booking = book(booked, "booking-of-nothing")
    assert booked.violations() == {"10 bookings name their teams": ("booking-of-nothing names no team",)}
    booked.delete(booking)


def test_while_its_gate_is_off_it_has_no_effect_and_is_not_imported(bookings: None, cluster: Cluster) -> None:
    with gates.using(SiteBookings=False):
        cluster.with_gpus("node-1", each=1)
        book(cluster, "red-node", holder="red", labels={"node": "node-1"})
        apply(cluster, "blue", "blue")
        assert cluster.pod("blue").spec.node_name == "node-1"
        assert "end_bookings" not in {controller.name for controller in controllers.value}
        assert "schedule" not in WakeTable(controllers.value).concerned([(LEASES, "DELETED")])
        assert "site_bookings" not in sys.modules


# The extensions that Manciple brings ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "imported"),
    [
        ("", []),
        ("DRAControlPlaneController=true", [EARLIER, f"{EARLIER}.classic"]),
        ("DRAStructuredParametersDraft=true", [EARLIER, f"{EARLIER}.structured_claims"]),
    ],
)
def test_a_worker_imports_the_extensions_whose_gates_are_on(tmp_path: Path, wanted: str, imported: list[str]) -> None:
    answer = decided(tmp_path, MANCIPLE_FEATURE_GATES=wanted)
    assert answer["node"] == "node-small"
    assert "scheduling.cycle.scheduler" in answer["modules"]
    assert [name for name in answer["modules"] if name.startswith(EARLIER)] == imported
