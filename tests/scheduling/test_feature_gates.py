"""A feature is turned off and on again while pods that use it run (KEP-4381, "Feature Enablement and Rollback")."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.test import override_settings
from prometheus_client.parser import text_string_to_metric_families

from claims.kinds.resource_claims import CapacityRequirements, DeviceRequest
from inventory.kinds import gates
from inventory.kinds.devices import Device, DeviceCapacity
from manciple.telemetry import metrics
from tests.builders import (
    CLASS,
    make_alternative,
    make_alternatives,
    make_claim,
    make_class,
    make_device,
    make_node,
    make_pod,
    make_request,
    make_slice,
)
from tests.scheduling.cluster import Cluster


@contextmanager
def restarted_with(cluster: Cluster, **changed: bool) -> Iterator[None]:
    """Everything is started again with these gates; afterwards again, as it was."""
    wanted = {**gates.DEFAULTS, **changed}
    with override_settings(FEATURE_GATES=wanted), gates.using(**changed):
        cluster.worker = cluster.new_worker()
        yield
    cluster.worker = cluster.new_worker()


def prioritized() -> DeviceRequest:
    return make_alternatives("gpu", make_alternative("big", device_class=CLASS))


def shared() -> DeviceRequest:
    return make_request(capacity=CapacityRequirements(requests={"memory": "10Gi"}))


def plain_devices() -> tuple[Device, ...]:
    return tuple(make_device(f"gpu-{number}") for number in range(3))


def shared_device() -> tuple[Device, ...]:
    capacity = {"memory": DeviceCapacity(value="40Gi")}
    return (make_device("gpu-0", allow_multiple_allocations=True, capacity=capacity),)


#: gate -> (devices, what a claim asks for that needs the feature)
USED = {
    "DRAPrioritizedList": (plain_devices, prioritized),
    "DRAConsumableCapacity": (shared_device, shared),
}


@pytest.mark.parametrize("gate", sorted(USED))
def test_pods_run_on_while_their_feature_is_off_and_others_get_it_when_it_is_on_again(
    cluster: Cluster, gate: str
) -> None:
    devices, request = USED[gate]
    cluster.create(make_class())
    cluster.create(make_node())
    published = cluster.create(make_slice(devices=devices()))
    for name in ("running", "waiting"):
        cluster.create(make_claim(name, requests=[request()]))
    cluster.create(make_pod("running", claims={"gpu": "running"}))
    cluster.settle()
    before = cluster.claim("running")
    assert cluster.pod("running").spec.node_name == "node-1"
    with restarted_with(cluster, **{gate: False}):
        cluster.create(make_pod("waiting", claims={"gpu": "waiting"}))
        cluster.retry()
        assert cluster.pod("running").spec.node_name == "node-1"
        assert cluster.claim("running").status == before.status
        assert cluster.pod("waiting").spec.node_name == ""
        assert cluster.claim("waiting").status.allocation is None
        cluster.label(published, "looked-at", "yes")
    cluster.retry()
    assert cluster.pod("waiting").spec.node_name == "node-1"
    cluster.finish("running")
    cluster.settle()
    assert cluster.claim("running").status.allocation is None


def test_attributes_that_are_lists_need_their_gate(cluster: Cluster) -> None:
    """Alpha in Kubernetes 1.36, so off unless somebody turns it on."""
    device = make_device("gpu-0", attributes={"models": ("a", "b")})
    with gates.using(DRAListTypeAttributes=True):
        kept = cluster.create(make_slice("kept", node="node-1", pool="kept", devices=[device]))
    assert kept.spec.devices[0].attributes["models"].string_values == ("a", "b")
    with pytest.raises(AssertionError, match="models"):  # nothing is left of it, and that is no attribute
        cluster.create(make_slice("dropped", node="node-1", pool="dropped", devices=[device]))
    assert cluster.label(kept, "looked-at", "yes").spec == kept.spec


def test_gates_are_told_as_metrics() -> None:
    with gates.using(DRADeviceTaints=False):
        text = metrics.text(metrics.REGISTRY).decode()
    told: dict[Any, float] = {
        (sample.labels["name"], sample.labels["stage"]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "kubernetes_feature_enabled"
    }
    assert told.keys() == {(name, "" if gate.stage == "GA" else gate.stage) for name, gate in gates.KNOWN.items()}
    assert (
        told["DRADeviceTaints", "BETA"],
        told["DRAPrioritizedList", ""],
        told["DRAListTypeAttributes", "ALPHA"],
    ) == (0, 1, 0)
