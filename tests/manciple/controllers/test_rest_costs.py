"""What a controller's run costs while nothing happens does not grow with the objects that are there.

Counted are the steps of the database, statements, and lines of Python that run: a busy machine does not change them. A
controller that comes once a minute or less often may compare all there is, but only within the database: it finds what
a lost message or a restored database left behind.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from types import FrameType
from typing import Any

import pytest
from django.db import connection

from claims.controllers import disruption, node_lifecycle
from claims.kinds.pods import Pod
from insight import usage
from inventory import reachability
from inventory.reachability import LEASE_NAMESPACE
from manciple import memory
from manciple.api import verbs
from manciple.controllers import tasks
from manciple.controllers.declaration import Controller, controllers
from manciple.controllers.tasks import WakeTable
from manciple.wire.base import ObjectMeta
from manciple.wire.identity import SYSTEM
from manciple.wire.machinery import Event, Lease, LeaseSpec
from networking.kinds.services import SERVICE
from scheduling.models import UsageSample
from tests.builders import (
    NAMESPACE,
    make_budget,
    make_claim,
    make_devices,
    make_namespace,
    make_node,
    make_pod,
    make_quota,
    make_request,
    make_slice,
    make_template,
)
from tests.dashboard.workload_scene import deploys, let_run, work
from tests.networking.cluster import make_service
from tests.scheduling.cluster import Cluster, with_spec
from tests.scheduling.test_volume_claims import make_volume_claim
from tests.workloads.cluster import make_job
from workloads.kinds.deployments import Deployment
from workloads.kinds.jobs import JOB

FEW, MANY = 4, 24
#: An interval in seconds from which on all there is may be looked at; and what each object may cost in such a look.
SELDOM, MOST_STEPS, MOST_LINES = 60, 250, 3


@dataclass(frozen=True, slots=True)
class Cost:
    steps: int  # of SQLite's virtual machine, which goes by each row of a plan in a few of them
    statements: int
    lines: int


def cost_of(work: Callable[[], object]) -> Cost:
    """Of one call of it in this thread."""
    steps, statements, lines = list[None](), 0, 0

    def count_statement(execute: Any, *arguments: Any) -> Any:
        nonlocal statements
        statements += 1
        return execute(*arguments)

    def count_line(_frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return count_line

    database, others = connection.connection, sys.gettrace()
    gc.collect()
    gc.disable()  # what others have left would be cleared up by lines of Python
    database.set_progress_handler(partial(steps.append, None), 1)
    sys.settrace(count_line)
    try:
        with connection.execute_wrapper(count_statement):
            work()
    finally:
        sys.settrace(others)
        gc.enable()
        database.set_progress_handler(None, 1)
    return Cost(len(steps), statements, lines)


# What is at rest ------------------------------------------------------------------------------------------------------


def pods(cluster: Cluster, numbers: range, *, devices: int = 1) -> None:
    """Each with a claim of its own; as many run as there are devices."""
    for number in numbers:
        cluster.create(make_claim(f"pod-{number}", requests=[make_request(count=devices)]))
        cluster.create(make_pod(f"pod-{number}", claims={"gpu": f"pod-{number}"}))
    cluster.settle()
    let_run(cluster)
    running = [one.metadata.name for one in cluster.all(Pod) if one.status.phase == "Running"]
    assert {f"pod-{number}" for number in numbers}.issubset(running) is (devices == 1)


def pods_that_wait(cluster: Cluster, numbers: range) -> None:
    pods(cluster, numbers, devices=101)


def pods_that_ended(cluster: Cluster, numbers: range) -> None:
    pods(cluster, numbers)
    for number in numbers:
        cluster.finish(f"pod-{number}")
    cluster.settle()


def pods_of_workloads(cluster: Cluster, numbers: range) -> None:
    """A Job each, and a Deployment of as many pods, with devices."""
    for number in numbers:
        verbs.create(JOB, make_job(f"job-{number}"), namespace=NAMESPACE, identity=SYSTEM)
    web = cluster.find(Deployment, "web")
    if web is None:
        deploys(cluster, replicas=len(numbers), gpus=1)
    else:
        cluster.update(with_spec(web, replicas=numbers.stop))
        work(cluster)
    let_run(cluster)


def services_and_volumes(cluster: Cluster, numbers: range) -> None:
    pods(cluster, numbers)
    for number in numbers:
        verbs.create(SERVICE, make_service(f"web-{number}"), namespace=NAMESPACE, identity=SYSTEM)
        cluster.create(make_volume_claim(f"data-{number}"))
    cluster.settle()


def others(cluster: Cluster, numbers: range) -> None:
    for number in numbers:
        cluster.create(make_claim(f"unused-{number}"))
        cluster.create(make_template(f"template-{number}"))
        meta = ObjectMeta(name=f"event-{number}", namespace=NAMESPACE)
        cluster.create(Event(api_version="v1", kind="Event", metadata=meta))


def nodes(cluster: Cluster, numbers: range) -> None:
    """With a device each, and agents that are heard of."""
    for number in numbers:
        name = f"node-of-{number}"
        cluster.create(make_node(name))
        cluster.create(make_slice(node=name, devices=make_devices(1)))
        meta = ObjectMeta(name=name, namespace=LEASE_NAMESPACE)
        spec = LeaseSpec(holder_identity=name, lease_duration_seconds=40)
        cluster.create(Lease(api_version="coordination.k8s.io/v1", kind="Lease", metadata=meta, spec=spec))
    cluster.settle()


def namespaces(cluster: Cluster, numbers: range) -> None:
    """With a quota, a limit range, a Service, a budget and a priority of their own, and a pod that runs."""
    for number in numbers:
        name = f"team-{number}"
        cluster.create(make_namespace(name))
        cluster.create(make_quota({"pods": "10"}, namespace=name))
        cluster.create(make_budget(namespace=name, max_unavailable=1))
        cluster.create(make_claim("own", namespace=name))
        cluster.create(make_pod("own", namespace=name, claims={"gpu": "own"}))
    cluster.settle()
    let_run(cluster)


SCENES = (pods, pods_that_wait, pods_that_ended, pods_of_workloads, services_and_volumes, others, nodes, namespaces)
#: What may grow.
EXCEPT = {
    # A minute's sample tells which classes pods wait for: it reads the claims of the first 2,000 in the queue.
    ("sample_usage", pods_that_wait),
    # And what is free on each node.
    ("sample_usage", nodes),
}


def run(controller: Controller) -> int:
    UsageSample.objects.all().delete()  # as a minute later
    return controller.reconcile(datetime.now(UTC))


def costs_at_rest(monkeypatch: pytest.MonkeyPatch) -> Mapping[str, tuple[float, Cost]]:
    """What does something by itself -> (its interval in seconds, what its second run in a row costs)."""
    monkeypatch.setattr(usage, "WARMING_UP", 0.0)
    for module in (node_lifecycle, reachability):
        monkeypatch.setattr(module, "GRACE", timedelta(days=1))  # however long the test takes
    monkeypatch.setattr(reachability, "SMALL", 0)
    monkeypatch.setattr(disruption, "IN_TURN", 1)
    declared = controllers.value
    while [one.name for one in declared if one.name != "sample_usage" and run(one)]:
        pass
    for one in declared:
        run(one)
    costs = {one.name: (one.every, cost_of(partial(run, one))) for one in declared}
    asked = partial(WakeTable(declared).with_work, [one.name for one in declared if one.rests_without_work])
    costs["the dispatcher's questions"] = (tasks.LOOK_EVERY, cost_of(asked))
    for step in memory._steps:
        costs[f"{step.__module__}.{step.__qualname__}"] = (memory.EVERY, cost_of(step))
    return costs


@pytest.mark.skipif(connection.vendor != "sqlite", reason="only SQLite tells its steps")
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_a_run_in_which_nothing_happens_costs_the_same_however_much_there_is(
    scene: Callable[[Cluster, range], None], cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.with_gpus("node-1", each=100)
    scene(cluster, range(FEW))
    few = costs_at_rest(monkeypatch)
    scene(cluster, range(FEW, MANY))
    began = time.monotonic()
    many = costs_at_rest(monkeypatch)
    grown = {}
    for name, (every, cost) in many.items():
        before, (most_steps, most_lines) = few[name][1], (MOST_STEPS, MOST_LINES) if every >= SELDOM else (1, 1)
        if (name, scene) not in EXCEPT and not (
            cost.steps < before.steps + most_steps * (MANY - FEW)
            and cost.lines < before.lines + most_lines * (MANY - FEW)
            and cost.statements <= before.statements
        ):
            grown[name] = (before, cost)
    assert grown == {}
    # Who looks after something of which nothing is due asks nobody until something happens.
    may_rest = {one.name: one for one in controllers.value if one.rests_without_work}
    with_work = WakeTable(controllers.value).with_work(may_rest)
    assert [name for name in with_work if may_rest[name].rests_until(began) <= time.time()] == []
