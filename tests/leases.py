"""Leases of nodes, as agents renew them, and as old as a test says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from msgspec import structs

from claims.devices.cache import following
from inventory.reachability import GRACE, LEASE_NAMESPACE
from manciple.store.models import Event, StoredObject
from manciple.wire.base import ObjectMeta
from manciple.wire.machinery import Lease, LeaseSpec
from manciple.wire.resources import LEASES
from tests.scheduling.cluster import Cluster


def renew(cluster: Cluster, node: str) -> None:
    """As its agent does."""
    known = cluster.find(Lease, node, LEASE_NAMESPACE)
    if known is not None:
        spec = structs.replace(known.spec, renew_time=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}")
        cluster.update(structs.replace(known, spec=spec))
        return
    meta = ObjectMeta(name=node, namespace=LEASE_NAMESPACE)
    spec = LeaseSpec(holder_identity=node, lease_duration_seconds=40)
    cluster.create(Lease(api_version="coordination.k8s.io/v1", kind="Lease", metadata=meta, spec=spec))


def renewed_before(node: str, seconds: float) -> None:
    """The node's Lease was last renewed so long ago."""
    stored = StoredObject.objects.get(resource=LEASES, namespace=LEASE_NAMESPACE, name=node)
    Event.objects.filter(revision=stored.event_id).update(created_at=datetime.now(UTC) - timedelta(seconds=seconds))
    following.reset()  # it knows until when no Lease can be overdue, as none gets older by itself


def overdue(node: str) -> None:
    renewed_before(node, GRACE.total_seconds() + 1)
