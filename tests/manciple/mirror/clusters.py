"""Clusters of somebody else, as their API server lists them, and what we answer about them.

    judged, found = explained(cluster(("pods", pod("train"))), "train")

The answer comes from the code of `manciple why`, over a `Replay`; the store is the test's database, rolled back then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from django.conf import settings
from django.db import transaction

from insight import advice, offers
from inventory.kinds import gates
from manciple import gaps
from manciple.mirror import copying, device_table, explaining, listing
from manciple.mirror.client import Remote
from manciple.mirror.device_table import DeviceTable
from manciple.mirror.explaining import Answer
from manciple.mirror.kubeconfig import Access, Cluster, User
from manciple.mirror.listing import Found, Wanted
from manciple.mirror.sources import DEVICES, POD, WHY, Source
from manciple.per_process import reset_all
from manciple.store.event_log import LOG
from scheduling.rehearsal import repairs
from tests.manciple.mirror.replay import Document, Replay
from tests.mirrors import take_its_rights

NAMESPACE, OTHER = "team-a", "team-b"
DRIVER, CLASS = "gpu.example.com", "gpu"
Objects = Mapping[str, list[Document]]


def meta(name: str, namespace: str = "", **fields: Any) -> Document:
    made = {"name": name, "uid": f"{namespace}-{name}", "creationTimestamp": "2026-11-01T08:00:00Z", **fields}
    return {**made, "namespace": namespace} if namespace else made


def node(name: str, *, cpu: str = "64", **spec: Any) -> Document:
    sizes = {"cpu": cpu, "memory": "256Gi", "pods": "110"}
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-01T08:00:00Z"}
    status = {"capacity": sizes, "allocatable": sizes, "conditions": [ready]}
    return {"metadata": meta(name, labels={"kubernetes.io/hostname": name}), "spec": spec, "status": status}


def slice_of(node_name: str, count: int, *, model: str = "H100", memory: str = "80Gi", **device: Any) -> Document:
    devices = [
        {
            "name": f"gpu-{number}",
            "attributes": {"model": {"string": model}},
            "capacity": {"memory": {"value": memory}},
            **device,
        }
        for number in range(count)
    ]
    pool = {"name": node_name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "pool": pool, "nodeName": node_name, "devices": devices}
    return {"metadata": meta(f"{node_name}-slice"), "spec": spec}


def device_class(name: str = CLASS, expression: str = f'device.driver == "{DRIVER}"') -> Document:
    return {"metadata": meta(name), "spec": {"selectors": [{"cel": {"expression": expression}}]}}


def claim(
    name: str,
    *devices: str,
    namespace: str = NAMESPACE,
    count: int = 1,
    of_class: str = CLASS,
    selector: str = "",
    pod: str = "",
) -> Document:
    """devices: `node/device`, that it holds; pod: that it is reserved for."""
    exactly: Document = {"deviceClassName": of_class, "allocationMode": "ExactCount", "count": count}
    if selector:
        exactly["selectors"] = [{"cel": {"expression": selector}}]
    made: Document = {
        "metadata": meta(name, namespace, uid=f"claim-{namespace}-{name}"),
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
        "status": {},
    }
    if devices:
        places = [one.partition("/") for one in devices]
        results = [{"request": "gpu", "driver": DRIVER, "pool": at, "device": device} for at, _, device in places]
        on = {"key": "metadata.name", "operator": "In", "values": [places[0][0]]}
        allocation = {"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [on]}]}}
        users = [{"resource": "pods", "name": pod, "uid": f"{namespace}-{pod}"}] if pod else []
        made["status"] = {"allocation": allocation, "reservedFor": users}
    return made


def template(name: str) -> Document:
    """Of a claim for one device."""
    return {"metadata": meta(name, NAMESPACE), "spec": {"spec": claim(name)["spec"]}}


def quota(name: str, *, claims: int) -> Document:
    hard = {"count/resourceclaims.resource.k8s.io": str(claims)}
    return {"metadata": meta(name, NAMESPACE), "spec": {"hard": hard}, "status": {"hard": hard, "used": hard}}


def pod(
    name: str, *claims: str, namespace: str = NAMESPACE, on: str = "", cpu: str = "1", template: str = "", **spec: Any
) -> Document:
    entries = [{"name": f"e{number}", "resourceClaimName": one} for number, one in enumerate(claims)]
    if template:
        entries.append({"name": "made", "resourceClaimTemplateName": template})
    resources: Document = {"requests": {"cpu": cpu}, "claims": [{"name": one["name"]} for one in entries]}
    container = {"name": "c", "image": "i", "resources": resources, "env": [{"name": "KEY", "value": "secret-value"}]}
    made: Document = {
        "metadata": meta(name, namespace),
        "spec": {"containers": [container], "resourceClaims": entries, "schedulerName": "default-scheduler", **spec},
        "status": {"phase": "Running" if on else "Pending"},
    }
    if on:
        made["spec"]["nodeName"] = on
    else:
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes"}
        made["status"]["conditions"] = [{**condition, "lastTransitionTime": "2026-11-01T08:00:01Z"}]
    return made


def cluster(*more: tuple[str, Document]) -> dict[str, list[Document]]:
    """Two nodes with two devices each, a class, two namespaces, and `more` of (plural, document)."""
    made: dict[str, list[Document]] = {
        "namespaces": [{"metadata": meta(NAMESPACE)}, {"metadata": meta(OTHER)}],
        "nodes": [node("n1"), node("n2")],
        "resourceslices": [slice_of("n1", 2), slice_of("n2", 2)],
        "deviceclasses": [device_class()],
        "resourceclaims": [],
        "pods": [],
    }
    for plural, document in more:
        made.setdefault(plural, []).append(document)
    return made


def holding(*devices: str, namespace: str = OTHER) -> Iterator[tuple[str, Document]]:
    """A running pod for each device, with its claim."""
    for number, device in enumerate(devices):
        name = f"holder-{number}"
        yield "resourceclaims", claim(name, device, namespace=namespace, pod=name)
        yield "pods", pod(name, name, namespace=namespace, on=device.partition("/")[0])


# Answers --------------------------------------------------------------------------------------------------------------


def remote_of(server: Replay) -> Remote:
    return Remote(Access(cluster=Cluster(server=server.url), user=User(name="me", token=server.token or "t")))


@contextmanager
def in_store(found: Found, *, kept: bool = True) -> Iterator[None]:
    """What was found is in the store; afterwards it is as before. kept: also in memory, as commands have it."""
    with pytest.MonkeyPatch.context() as patch, gates.using(), gaps.knowing(), transaction.atomic():
        patch.setattr(settings, "MIRROR", True)
        patch.setattr(settings, "SCHEDULER_NAMES", None)
        take_its_rights(patch)
        # A busy machine is no reason for another answer.
        patch.setattr(settings, "EXPLANATION_PATIENCE", 100.0)
        for module in (offers, advice):
            patch.setattr(module, "BUDGET", 60.0)
        patch.setattr(advice, "read_mendings", lambda: repairs.read_mendings(60.0))
        patch.setattr(LOG, "_kept", {})
        copied = copying.copy(found)
        if kept:
            LOG.keep(copied)
        try:
            yield
        finally:
            transaction.set_rollback(True)
            reset_all()


def explained(
    objects: Objects,
    name: str = "train",
    *,
    source: Source = POD,
    namespace: str = NAMESPACE,
    kept: bool = True,
    **server: Any,
) -> tuple[Answer, Found]:
    wanted = Wanted(source, namespace, name)
    with Replay(objects, **server) as replay:
        found = listing.read(remote_of(replay), WHY, namespace=namespace, wanted=wanted)
    with in_store(found, kept=kept):
        return explaining.explain(found, wanted), found


def devices_of(objects: Objects, *, device_class: str = "", node: str = "", **server: Any) -> DeviceTable:
    with Replay(objects, **server) as replay:
        found = listing.read(remote_of(replay), DEVICES, namespace=NAMESPACE)
    with in_store(found):
        return device_table.read(found, device_class=device_class, node=node)
