"""`/metrics/resources`: what each pod requests and may take, as kube-scheduler reports it there.

One sample for each pod and resource, so it has a path of its own: who scrapes `/metrics` does not pay for it. The pods
are followed from the first scrape on. Source: pkg/scheduler/metrics/resources/resources.go of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, NamedTuple

from prometheus_client.core import Metric

from claims.kinds.pods import Pod
from claims.kinds.resource_usage import is_hugepages, limits_of, requests_of
from manciple.store.event_log import Follower, View
from manciple.store.records import Written
from manciple.telemetry import metrics
from manciple.wire.base import ApiObject
from manciple.wire.resources import FINISHED_PHASES, PODS

_LABELS = ("namespace", "pod", "node", "scheduler", "priority", "resource", "unit")
_UNITS = {"cpu": "cores", "memory": "bytes", "storage": "bytes", "ephemeral-storage": "bytes"}
_ATTACHABLE = "attachable-volumes-"
_NANO = 10**9
_SHOWN = (
    "broken down by pod. This shows the resource usage the scheduler and kubelet expect per pod for resources along "
    "with the unit for the resource if any."
)


class _PodSamples(NamedTuple):
    requests: tuple[metrics.Sample, ...]
    limits: tuple[metrics.Sample, ...]


class PodResources(View):
    """Pod -> its samples; pods that have ended take nothing and have none."""

    resources: ClassVar[Sequence[str]] = (PODS,)

    def __init__(self) -> None:
        self._samples: dict[tuple[str, str], _PodSamples] = {}

    def fill(self, resource: str, objects: Iterable[ApiObject]) -> None:  # noqa: ARG002 - there is one
        for obj in objects:
            self._put(obj)

    def apply(self, changes: Sequence[Written]) -> None:
        for change in changes:
            if change.type == "DELETED":
                self._samples.pop(change.object.key, None)
            else:
                self._put(change.object)

    def _put(self, pod: ApiObject) -> None:
        if not isinstance(pod, Pod) or pod.status.phase in FINISHED_PHASES:
            self._samples.pop(pod.key, None)
            return
        self._samples[pod.key] = _PodSamples(_samples(pod, requests_of(pod)), _samples(pod, limits_of(pod)))

    def metrics(self) -> Iterator[Metric]:
        known = [samples for _, samples in sorted(self._samples.items())]
        yield metrics.gauges(
            "kube_pod_resource_request",
            f"Resources requested by workloads on the cluster, {_SHOWN}",
            _LABELS,
            (sample for one in known for sample in one.requests),
        )
        yield metrics.gauges(
            "kube_pod_resource_limit",
            f"Resources limit for workloads on the cluster, {_SHOWN}",
            _LABELS,
            (sample for one in known for sample in one.limits),
        )


def _samples(pod: Pod, amounts: Mapping[str, int]) -> tuple[metrics.Sample, ...]:
    """amounts: in nanos, without zeros."""
    meta, spec = pod.metadata, pod.spec
    priority = "" if spec.priority is None else str(spec.priority)
    of_pod = (meta.namespace, meta.name, spec.node_name, spec.scheduler_name, priority)
    return tuple(((*of_pod, name, _unit(name)), amount / _NANO) for name, amount in sorted(amounts.items()))


def _unit(resource: str) -> str:
    if is_hugepages(resource):
        return "bytes"
    return "integer" if resource.startswith(_ATTACHABLE) else _UNITS.get(resource, "")


_following = Follower(PodResources)


@metrics.describe_pods
def of_pods() -> Sequence[Metric]:
    with _following.view() as pods:
        return tuple(pods.metrics())
