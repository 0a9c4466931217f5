"""What pages cost with a Deployment of 10,000 pods, a device each, and 2,000 Jobs: `python bench/workload_pages.py`.

In one process, on a database of its own: milliseconds of CPU of the thread that answers, the least of some. Half of the
Jobs have ended, half wait for devices; nothing is followed live meanwhile. What is looked for in the background, such
as moves and what would help, has been found before.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import tempfile
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import cases.in_memory  # noqa: F401 - before any model
from cases.figures import Figure
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connections
from django.test import Client
from msgspec.structs import replace

from claims import event_recorder
from claims.causes.causes import DevicesInUse, encode
from claims.event_recorder import EventNote
from claims.kinds.pods import Pod, PodStatus
from claims.kinds.resource_claims import ResourceClaim, ResourceClaimStatus
from manciple.api.namespaces import ensure_namespaces
from manciple.store import objects
from manciple.wire.base import timestamp
from manciple.wire.registry import registry
from manciple.wire.resources import CLAIMS, CLASSES, NODES, PODS, SLICES, kind
from scheduling.models import QueuedPod
from tests.builders import (
    make_allocation,
    make_claim,
    make_class,
    make_consumer,
    make_devices,
    make_node,
    make_pod,
    make_result,
    make_slice,
)
from tests.workloads.cluster import make_deployment, make_job, make_replica_set
from workloads.kinds.deployments import DEPLOYMENT, DeploymentStatus
from workloads.kinds.jobs import JOB, JobCondition, JobStatus
from workloads.kinds.replica_sets import REPLICA_SET, ReplicaSet, ReplicaSetStatus
from workloads.kinds.templates import owner_reference

EACH, BATCH = 8, 500
#: Seconds to wait for what goes on in the background.
PATIENCE = 60
WEB, TRAIN = "/workloads/deployments/default/web", "/workloads/jobs/default/train-0001"
POD = "/pods/default/web-1-00000"
PAGES = (
    "/overview", "/usage", "/workloads", "/workloads?sort=-devices", "/workloads?kind=Job&state=Starting&q=train",
    "/workloads.csv", WEB, f"{WEB}?tab=rollout", f"{WEB}?tab=events", f"{WEB}?tab=history", f"{WEB}/scale?pods=10001",
    f"{WEB}/delete", TRAIN, f"{TRAIN}/stop", "/pods", "/pods?sort=-devices", "/pods?workload=deployments/default/web",
    "/pods?cols=pod,estimated-start", "/pods.csv", POD, f"{POD}?tab=history", "/pods/default/train-0001-x",
    "/pods/new?kind=Job", "/claims", "/claims/default/web-1-00000-gpu", "/devices", "/nodes", "/nodes/gpu-0000",
    "/classes/c/gpu.example.com", "/namespaces", "/namespaces/default", "/events", "/find?q=web", "/find?q=train-1999",
    "/timeline?by=namespace", "/wallboard", "/autoscalers", "/find?q=scale+deployment+web",
)  # fmt: skip


def fill(pods: int, jobs: int) -> None:
    call_command("migrate", verbosity=0)
    ensure_namespaces()
    now = datetime.now(UTC)
    with objects.writing() as writer:
        writer.create(kind(CLASSES), make_class())
        web: Any = writer.create(DEPLOYMENT, DEPLOYMENT.prepare_create(make_deployment("web", replicas=pods)))
        owned = make_replica_set("web-1", replicas=pods)
        owned = replace(owned, spec=replace(owned.spec, template=web.spec.template))
        meta = replace(owned.metadata, owner_references=(owner_reference(web),))
        replicas: Any = writer.create(REPLICA_SET, REPLICA_SET.prepare_create(replace(owned, metadata=meta)))
        numbers: dict[str, Any] = {"replicas": pods, "ready_replicas": pods, "available_replicas": pods}
        writer.update(REPLICA_SET, replace(replicas, status=ReplicaSetStatus(**numbers)))
        status = DeploymentStatus(**numbers, updated_replicas=pods, observed_generation=web.metadata.generation)
        writer.update(DEPLOYMENT, replace(web, status=status))
    for first in range(0, pods, BATCH):
        with objects.writing() as writer:
            for number in range(first, min(first + BATCH, pods)):
                node = f"gpu-{number // EACH:04}"
                if number % EACH == 0:
                    writer.create(kind(NODES), kind(NODES).prepare_create(make_node(node)))
                    writer.create(kind(SLICES), make_slice(node=node, devices=make_devices(EACH)))
                _run(writer, number, replicas, now)
    for first in range(0, jobs, BATCH):
        rows = []
        with objects.writing() as writer:
            for number in range(first, min(first + BATCH, jobs)):
                rows += _job(writer, number, now)
        QueuedPod.objects.bulk_create(rows)


def _run(writer: objects.Writer, number: int, replicas: ReplicaSet, now: datetime) -> None:
    """A pod that has run for an hour, with its claim and its events."""
    name, node, device = f"web-1-{number:05}", f"gpu-{number // EACH:04}", f"gpu-{number % EACH}"
    started = timestamp(now - timedelta(hours=1))
    pod: Pod = kind(PODS).prepare_create(make_pod(name, claims={"gpu": f"{name}-gpu"}, node=node))
    meta = replace(pod.metadata, uid="", owner_references=(owner_reference(replicas),))
    made: Any = writer.create(
        kind(PODS), replace(pod, metadata=meta, status=PodStatus(phase="Running", start_time=started))
    )
    claim: ResourceClaim = kind(CLAIMS).prepare_create(make_claim(f"{name}-gpu"))
    allocation = make_allocation(make_result(device, pool=node), node=node)
    status = ResourceClaimStatus(allocation=allocation, reserved_for=(make_consumer(made),))
    writer.create(kind(CLAIMS), replace(claim, metadata=replace(claim.metadata, uid=""), status=status))
    for note in (
        {"regarding": replicas, "reason": "SuccessfulCreate", "message": f"Created pod: {name}"},
        {"regarding": made, "reason": "Scheduled", "message": f"Successfully assigned default/{name} to {node}"},
    ):
        event_recorder.record(writer, EventNote(type="Normal", component="a-controller", **note), now=now)


def _job(writer: objects.Writer, number: int, now: datetime) -> list[QueuedPod]:
    """Every other one has ended."""
    name = f"train-{number:04}"
    made = writer.create(JOB, JOB.identified(JOB.prepare_create(make_job(name, active_deadline_seconds=86_400))))
    began = timestamp(now - timedelta(hours=2))
    if number % 2 == 0:
        ended = JobCondition(type="Complete", status="True", last_transition_time=timestamp(now))
        writer.update(JOB, replace(made, status=JobStatus(succeeded=1, start_time=began, conditions=(ended,))))
        return []
    writer.update(JOB, replace(made, status=JobStatus(active=1, start_time=began)))
    claim = kind(CLAIMS).prepare_create(make_claim(f"{name}-gpu"))
    writer.create(kind(CLAIMS), replace(claim, metadata=replace(claim.metadata, uid="")))
    pod = kind(PODS).prepare_create(make_pod(f"{name}-x", claims={"gpu": f"{name}-gpu"}))
    meta = replace(pod.metadata, uid="", owner_references=(owner_reference(made),))
    waiting = writer.create(kind(PODS), replace(pod, metadata=meta)).metadata
    cause = encode(DevicesInUse(claim="default/x", request="gpu", wanted=1, before=8, left=0, most=0))
    row = QueuedPod(uid=waiting.uid, namespace="default", name=waiting.name, created_at=now, cause=cause)
    row.state, row.held_by = QueuedPod.State.UNSCHEDULABLE, 1
    return [row]


def cost(client: Client, path: str, rounds: int) -> float:
    costs = []
    for _ in range(rounds):
        began = time.thread_time()
        answer = client.get(path)
        costs.append(1000 * (time.thread_time() - began))
        assert answer.status_code == 200, (path, answer.status_code)
        for thread in threading.enumerate():
            if thread is not threading.current_thread():
                thread.join(PATIENCE)
    return min(costs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--jobs", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", metavar="PATH")
    parser.add_argument("--profile", default="", metavar="PATH", help="one page, and where its time goes")
    asked = parser.parse_args()
    assert registry.find("batch", "v1", "jobs") is not None
    with tempfile.TemporaryDirectory() as folder:
        connections.settings["default"]["NAME"] = str(Path(folder) / "db.sqlite3")  # which all threads share
        fill(asked.pods, asked.jobs)
        measure(asked)
        connections.close_all()


def measure(asked: argparse.Namespace) -> None:
    client = Client()
    client.force_login(User.objects.create_user("bench", is_staff=True))
    if asked.profile:
        client.get(asked.profile)
        with cProfile.Profile() as profile:
            assert client.get(asked.profile).status_code == 200
        pstats.Stats(profile).sort_stats("cumulative").print_stats(45)
        return
    for path in asked.only or PAGES:
        budget = None if path.endswith(".csv") else 300
        print(Figure(name=path, value=cost(client, path, asked.rounds), unit="ms", budget=budget).row(), flush=True)


if __name__ == "__main__":
    main()
