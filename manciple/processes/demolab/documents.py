"""A job as documents: its template, its pod, its claim with what was given, and what its node says of it."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from manciple.processes.demolab.hardware import NVIDIA, Document
from manciple.processes.demolab.jobs import JOB_BANDWIDTH, NIC_DRIVER, Job
from manciple.wire.base import timestamp
from scheduling.controllers.reservations import FINALIZER
from scheduling.pod_claims import POD_CLAIM_ANNOTATION

#: The entry of spec.resourceClaims, and the requests of a claim.
ENTRY, GPU_REQUEST, NIC_REQUEST = "gpus", "gpu", "nic"
_SHARES = uuid.UUID("f3b6e3b4-6f0e-5f3d-8a4c-0a7de3f1a9d2")


def request(device_class: str, *, name: str = GPU_REQUEST, count: int = 1, cel: Iterable[str] = ()) -> Document:
    selectors = [{"cel": {"expression": expression}} for expression in cel]
    exactly: Document = {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": count}
    return {"name": name, "exactly": exactly | ({"selectors": selectors} if selectors else {})}


def claim_spec(job: Job) -> Document:
    """What the job asks for."""
    cel = [f'device.attributes["{NVIDIA}"].profile == "{job.profile}"'] if job.profile else []
    requests = [request(job.device_class, count=len(job.devices), cel=cel)]
    if job.nic:
        nic = request("rdma-nic", name=NIC_REQUEST)
        nic["exactly"]["capacity"] = {"requests": {"bandwidth": JOB_BANDWIDTH}}
        requests.append(nic)
    return {"devices": {"requests": requests}}


def namespace(name: str) -> Document:
    labels = {"resource.kubernetes.io/admin-access": "true"} if name == "infra-ci" else {}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def template(space: str, name: str, spec: Document) -> Document:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": space},
        "spec": {"spec": spec},
    }


def pod(space: str, name: str, *, entry: Document, selector: Document | None = None, cpu: str = "8") -> Document:
    """A pod of one container that uses one claim. entry: of spec.resourceClaims, without its name."""
    container = {
        "name": "main",
        "image": f"registry.example.org/{space}/{name.rpartition('-')[0] or name}:2026.11",
        "resources": {"requests": {"cpu": cpu, "memory": "32Gi"}, "claims": [{"name": ENTRY}]},
    }
    spec = {"containers": [container], "resourceClaims": [{"name": ENTRY, **entry}], "restartPolicy": "Never"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": space, "labels": {"app": name.rpartition("-")[0] or name}},
        "spec": spec | ({"nodeSelector": selector} if selector else {}),
    }


def claim(space: str, name: str, spec: Document, *, made_for: tuple[str, str] | None = None) -> Document:
    """made_for: (name, uid) of the pod that a template's claim is made for; `name` then begins its name."""
    metadata: Document = {"namespace": space, "generateName" if made_for else "name": name}
    if made_for:
        owner = {"apiVersion": "v1", "kind": "Pod", "name": made_for[0], "uid": made_for[1], "controller": True}
        metadata |= {
            "annotations": {POD_CLAIM_ANNOTATION: ENTRY},
            "ownerReferences": [owner | {"blockOwnerDeletion": True}],
        }
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata, "spec": spec}


# What was given ------------------------------------------------------------------------------------------------------


def allocation(node: str, results: Sequence[Document], *, at: datetime) -> Document:
    here = {"key": "metadata.name", "operator": "In", "values": [node]}
    return {
        "devices": {"results": list(results)},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [here]}]},
        "allocationTimestamp": timestamp(at),
    }


def results(job: Job, claim_uid: str) -> list[Document]:
    driver, pool = job.machine.model.driver, job.machine.name
    given: list[Document] = [
        {"request": GPU_REQUEST, "driver": driver, "pool": pool, "device": device} for device in job.devices
    ]
    if job.nic:
        share = str(uuid.uuid5(_SHARES, f"{claim_uid}/{job.nic}"))
        nic = {"request": NIC_REQUEST, "driver": NIC_DRIVER, "pool": pool, "device": job.nic, "shareID": share}
        given.append(nic | {"consumedCapacity": {"bandwidth": JOB_BANDWIDTH}})
    return given


def reservation(name: str, uid: str) -> Document:
    return {"resource": "pods", "name": name, "uid": uid}


def protected(document: Document, status: Document) -> Document:
    """A claim with what was given, and the finalizer that protects it."""
    metadata = document["metadata"]
    finalizers = list(dict.fromkeys((*metadata.get("finalizers", ()), FINALIZER)))
    return document | {"metadata": metadata | {"finalizers": finalizers}, "status": status}


# What the node says --------------------------------------------------------------------------------------------------


def bound(document: Document, node: str, *, claim: str, at: datetime) -> Document:
    """A pod that the scheduler has given a node; its node has not begun to run it."""
    made = document["spec"]["resourceClaims"][0].get("resourceClaimTemplateName")
    statuses = [{"name": ENTRY, "resourceClaimName": claim}] if made else []
    return document | {
        "spec": document["spec"] | {"nodeName": node},
        "status": {
            "phase": "Pending",
            "conditions": [_condition("PodScheduled", at)],
            "resourceClaimStatuses": statuses,
            "qosClass": "Burstable",
        },
    }


def running(document: Document, *, at: datetime, starts: timedelta = timedelta(seconds=9)) -> Document:
    """A bound pod whose container runs. at: when it was bound."""
    began = at + starts
    status: dict[str, Any] = document["status"]
    first, second, third = hashlib.sha256(document["metadata"]["name"].encode()).digest()[:3]
    address = f"10.{first}.{second}.{third % 254 + 1}"
    container = document["spec"]["containers"][0]
    state = {
        "name": container["name"],
        "state": {"running": {"startedAt": timestamp(began)}},
        "ready": True,
        "started": True,
        "restartCount": 0,
        "image": container["image"],
        "imageID": "",
    }
    ready = [_condition(type_, began) for type_ in ("Initialized", "ContainersReady", "Ready")]
    return document | {
        "status": status
        | {
            "phase": "Running",
            "conditions": [*status["conditions"], *ready],
            "startTime": timestamp(at),
            "podIP": address,
            "podIPs": [{"ip": address}],
            "containerStatuses": [state],
        }
    }


def _condition(type_: str, at: datetime) -> Document:
    return {"type": type_, "status": "True", "lastTransitionTime": timestamp(at)}
