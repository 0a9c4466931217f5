"""What the controllers of workloads cost at rest and when little happens: `python bench/workload_turns.py`.

In one process, on an empty database in memory: milliseconds of CPU, the least of some. 2,000 Jobs with a pod each that
runs, and a Deployment of 10,000 pods.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import time
from collections.abc import Callable
from datetime import UTC, datetime

import cases.in_memory  # noqa: F401 - before any model
from cases.figures import Figure
from django.core.management import call_command
from django.db import transaction
from msgspec.structs import replace

from claims.kinds.pods import Pod, PodCondition, PodStatus
from claims.kinds.registration import POD
from manciple.api.namespaces import ensure_namespaces
from manciple.store import objects
from manciple.store.objects import decoded
from manciple.wire.base import timestamp
from tests.workloads.cluster import CONTROLLERS, NAMESPACE, make_deployment, make_job
from workloads import pod_control
from workloads.kinds.deployments import DEPLOYMENT
from workloads.kinds.jobs import JOB

BATCH, ROUNDS = 200, 5


def settle(now: datetime) -> None:
    while sum([reconcile(now) for reconcile in CONTROLLERS]):
        run_all(now)


def run_all(now: datetime) -> None:
    """Give a node to each pod that has none, where it runs."""
    waiting = [pod for one in objects.list(POD).items if not (pod := decoded(one, Pod)).spec.node_name]
    ready = PodCondition(type="Ready", status="True", last_transition_time=timestamp(now))
    for first in range(0, len(waiting), BATCH):
        with objects.writing() as writer:
            for pod in waiting[first : first + BATCH]:
                status = PodStatus(phase="Running", conditions=(ready,))
                writer.update(POD, replace(pod, spec=replace(pod.spec, node_name="node-1"), status=status))


def touch(name: str) -> None:
    """A pod becomes another: its restarts are counted."""
    with objects.writing() as writer:
        pod = writer.get(POD, NAMESPACE, name)
        assert isinstance(pod, Pod)
        annotations = {"touched": str(time.monotonic())}
        writer.update(POD, replace(pod, metadata=replace(pod.metadata, annotations=annotations)))


def least(what: Callable[[], object], before: Callable[[], object] = lambda: None) -> float:
    """Milliseconds of CPU."""
    times = []
    for _ in range(ROUNDS):
        before()
        began = time.process_time()
        what()
        times.append(time.process_time() - began)
    return min(times) * 1000


def turn() -> None:
    now = datetime.now(UTC)
    for reconcile in CONTROLLERS:
        reconcile(now)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--jobs", type=int, default=2000)
    arguments.add_argument("--pods", type=int, default=10_000)
    arguments.add_argument("--profile", action="store_true", help="where the last turn's time went")
    given = arguments.parse_args()
    call_command("migrate", verbosity=0)
    with transaction.atomic():  # what several share is else committed by a thread with a database of its own
        measure(given)


def measure(given: argparse.Namespace) -> None:
    ensure_namespaces()
    pod_control.MOST_WAITING = given.pods + given.jobs
    now = datetime.now(UTC)
    figures = [Figure(name="all controllers, no workload", value=least(turn), unit="ms")]
    for first in range(0, given.jobs, BATCH):
        with objects.writing() as writer:
            for number in range(first, min(first + BATCH, given.jobs)):
                writer.create(JOB, JOB.prepare_create(make_job(f"job-{number}")))
    began = time.process_time()
    settle(now)
    each = (time.process_time() - began) / given.jobs * 1000
    figures.append(Figure(name="a Job made, its pod created and run", value=each, unit="ms"))
    figures.append(Figure(name=f"all controllers, {given.jobs} Jobs at rest", value=least(turn), unit="ms"))
    pods = sorted(decoded(one, Pod).metadata.name for one in objects.list(POD).items)
    changed = least(turn, lambda: touch(pods[0]))
    figures.append(Figure(name="the same, a pod of one has changed", value=changed, unit="ms"))
    with objects.writing() as writer:
        writer.create(DEPLOYMENT, DEPLOYMENT.prepare_create(make_deployment(replicas=given.pods)))
    began = time.process_time()
    settle(now)
    each = (time.process_time() - began) / given.pods * 1000
    figures.append(Figure(name="a pod of a Deployment created and run", value=each, unit="ms"))
    figures.append(Figure(name=f"all at rest, {given.pods} pods of a Deployment", value=least(turn), unit="ms"))
    web = next(name for one in objects.list(POD).items if (name := decoded(one, Pod).metadata.name).startswith("web"))
    changed = least(turn, lambda: touch(web))
    figures.append(Figure(name="the same, one of its pods has changed", value=changed, unit="ms"))
    for figure in figures:
        print(figure.row())
    if given.profile:
        touch(web)
        profile = cProfile.Profile()
        profile.runcall(turn)
        pstats.Stats(profile).sort_stats("cumulative").print_stats(25)


if __name__ == "__main__":
    main()
