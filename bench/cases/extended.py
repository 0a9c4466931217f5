"""Pods a second that ask for extended resources which devices serve, beside as many with claims from a template.

All in one process and one cluster, one kind of pods after the other, in the same numbers: what a pod asks for by the
name of one of 25, then of 50 classes (as kube-scheduler's own benchmark has it) must not cost more than a template.
"""

from __future__ import annotations

import time

from cases import cluster, documents
from cases.figures import Figure
from claims import models
from claims.kinds.pods import Pod
from manciple.controllers.coordination import utc_now
from scheduling.cycle.scheduler import SchedulingWorker
from tests.builders import make_class, make_container, make_pod

CLASSES = (25, 50)


def measure(*, nodes: int, devices: int, pods: int) -> list[Figure]:
    """pods: of each kind. The worker is warm: it has scheduled one of each."""
    cluster.fill(nodes=nodes, devices=devices)
    cluster.create(
        make_class(f"class-{number}", extended_resource_name=_name(number)) for number in range(max(CLASSES))
    )
    worker = SchedulingWorker(utc_now)
    cluster.create(
        [*documents.pods(1, prefix="warm"), *(_asking("first", number, max(CLASSES)) for number in range(max(CLASSES)))]
    )
    _seconds(worker)
    size = f"{nodes} nodes x {devices}"
    cluster.create(documents.pods(pods))
    template = pods / _seconds(worker)
    figures = [Figure(name=f"{size}: claims from a template", value=template, unit="pods/s")]
    for classes in CLASSES:
        cluster.create(_asking(f"of-{classes}", number, classes) for number in range(pods))
        rate = pods / _seconds(worker)
        name = f"{size}: {classes} extended resources"
        figures.append(Figure(name=name, value=rate, unit="pods/s", budget=template, at_least=True))
    bound = models.Pod.objects.exclude(node_name="").count()
    assert bound == models.AllocatedDevice.objects.count() == 3 * pods + 1 + max(CLASSES), f"{bound} pods are bound"
    return figures


def _name(number: int) -> str:
    return f"example.com/gpu-{number}"


def _asking(prefix: str, number: int, classes: int) -> Pod:
    container = make_container(limits={_name(number % classes): "1"})
    return make_pod(f"{prefix}-{number:06}", containers=[container])


def _seconds(worker: SchedulingWorker) -> float:
    """Until all pods that wait have their claims and their nodes."""
    start = time.perf_counter()
    worker.run()
    return time.perf_counter() - start
