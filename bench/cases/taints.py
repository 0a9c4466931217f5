"""Pods at a steady rate on healthy nodes, while thousands of devices of others are tainted NoExecute at once.

Every tainted device is held by a pod's claim that does not tolerate the taint. First drivers taint half of the devices
in their slices; then as many DeviceTaintRules, one for each device, taint the other half.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from msgspec import structs

from cases import cluster, cpu, documents
from cases.connection import running
from cases.figures import Figure
from cases.fleet import fleet
from cases.installation import Installation, installed
from cases.latency import watch
from cases.silent_nodes import Phase, creating, figures, until
from claims.controllers.reservations import FINALIZER
from claims.models import Pod
from claims.pod_claims import consumer
from manciple.store import objects, sql
from manciple.store.objects import to_read
from manciple.wire.base import ApiObject
from manciple.wire.registry import registry
from tests.builders import (
    DRIVER,
    make_allocation,
    make_claim,
    make_device_taint,
    make_pod,
    make_result,
    make_taint_rule,
)

#: Nodes that are well; the first by name. Their devices last for two minutes of new pods at the usual rate.
HEALTHY = 300
#: Seconds of creating pods after the start, and again before anything is tainted.
BEFORE = 5.0
#: What an eviction of all may take, in seconds.
BUDGET = 5.0


@dataclass(frozen=True, slots=True)
class _Place:
    """A device on a node that is going to be tainted."""

    node: str
    device: str

    @property
    def name(self) -> str:
        return f"resident-{self.node}-{self.device}"


def measure(*, taints: int, devices: int, rate: float) -> list[Figure]:
    nodes = documents.node_names(HEALTHY + taints // devices)
    tainted = nodes[HEALTHY:]
    cluster.fill(nodes=len(nodes), devices=devices)
    places = [_Place(node, f"gpu-{number}") for node, number in product(tainted, range(devices))]
    for chunk in sql.chunks(places, cluster.BATCH):
        _occupy(chunk)
    cluster.stand_for_a_minute()
    half = len(tainted) // 2 * devices
    cluster.renew(nodes)
    with installed(workers=2) as installation:
        return asyncio.run(_measure_alive(installation, nodes, places[:half], places[half:], rate=rate))


def _occupy(places: Iterable[_Place]) -> None:
    """A claim that holds the device, and a pod that runs with it."""
    with objects.writing() as writer:
        for place in places:
            pod: Any = _create(writer, make_pod(place.name, node=place.node, claims={"gpu": place.name}))
            claim: Any = _create(writer, make_claim(place.name))
            allocation = make_allocation(make_result(place.device, pool=place.node), node=place.node)
            status = structs.replace(claim.status, allocation=allocation, reserved_for=(consumer(pod),))
            metadata = structs.replace(claim.metadata, finalizers=(FINALIZER,))
            _update(writer, structs.replace(claim, metadata=metadata, status=status))
            _update(writer, structs.replace(pod, status=structs.replace(pod.status, phase="Running")))


def _create(writer: objects.Writer, obj: ApiObject) -> ApiObject:
    kind = cluster.kind_of(obj)
    return writer.create(kind, kind.prepare_create(obj))


def _update(writer: objects.Writer, obj: ApiObject) -> None:
    writer.update(cluster.kind_of(obj), obj)


async def _measure_alive(
    installation: Installation, nodes: list[str], first: list[_Place], second: list[_Place], *, rate: float
) -> list[Figure]:
    """No agent falls silent: a broken device does not stop it."""
    async with running(*fleet(installation.connect, nodes)):
        return await _measure(installation, first, second, rate=rate, bound={})


async def _measure(
    installation: Installation, first: list[_Place], second: list[_Place], *, rate: float, bound: dict[str, float]
) -> list[Figure]:
    threading.Thread(target=watch, args=(installation, bound), daemon=True).start()
    phases: dict[str, Phase] = {}
    # The first ones wait until the workers have listed the cluster, and pay for it.
    for name in ("just started", "before"):
        phase = phases[name] = Phase()
        async with creating(installation, phase, name.replace(" ", "-"), rate):
            await asyncio.sleep(BEFORE)
        await until(lambda posted=phase.posted: posted.keys() <= bound.keys())  # type: ignore[misc]
        phase.cpu = cpu.since(phase.cpu)
    during = Phase()
    async with creating(installation, during, "during", rate):
        found = [
            *await _evicted("slices", _taint_slices, first, by=len(first)),
            *await _evicted("rules", _taint_by_rules, second, by=len(first) + len(second)),
        ]
    during.cpu = cpu.since(during.cpu)
    await until(lambda: during.posted.keys() <= bound.keys())
    told = [figure for name, phase in phases.items() for figure in figures(name, phase, bound)]
    return [*told, *figures("while pods are evicted", during, bound, budget=1000), *found]


async def _evicted(name: str, taint: Callable[[list[_Place]], None], places: list[_Place], *, by: int) -> list[Figure]:
    """Taint the places and wait until `by` pods are being deleted."""
    began, spent = time.perf_counter(), cpu.by_role()
    await asyncio.to_thread(taint, places)
    written = time.perf_counter()
    await until(lambda: Pod.objects.filter(deleting=True).count() >= by)
    ended = time.perf_counter()
    spent = cpu.since(spent)
    count = f"{len(places):,} taints in {name}"
    return [
        Figure(name=f"{count}: written in", value=written - began, unit="s"),
        Figure(name=f"{count}: last pod evicted after", value=ended - began, unit="s", budget=BUDGET),
        *(Figure(name=f"{count}: CPU of {role}", value=seconds, unit="s") for role, seconds in spent.items()),
    ]


def _taint_slices(places: list[_Place]) -> None:
    kind = registry.by_resource("resourceslices.resource.k8s.io")
    taint = make_device_taint(effect="NoExecute")
    for nodes in sql.chunks(sorted({place.node for place in places}), cluster.BATCH):
        with objects.writing(reads=to_read((kind, [("", f"{node}-{DRIVER}") for node in nodes]))) as writer:
            for node in nodes:
                known: Any = writer.get(kind, "", f"{node}-{DRIVER}")
                broken = tuple(structs.replace(device, taints=(taint,)) for device in known.spec.devices)
                writer.update(kind, structs.replace(known, spec=structs.replace(known.spec, devices=broken)))


def _taint_by_rules(places: list[_Place]) -> None:
    cluster.create(_rules(places))


def _rules(places: Iterable[_Place]) -> Iterator[ApiObject]:
    for place in places:
        yield make_taint_rule(
            f"broken-{place.name}", effect="NoExecute", driver=DRIVER, pool=place.node, device=place.device
        )
