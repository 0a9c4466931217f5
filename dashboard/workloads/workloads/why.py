"""Why a workload is not what it should be, as its page says: the pod that waits longest, pods that cannot be made, pods
that fail, or what its conditions say, with what to do about it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet

from claims.kinds.pods import Pod as PodObject
from claims.models import Pod
from dashboard.templatetags.kit import counted, pod_url
from dashboard.workloads.next_steps import StepLine, step_lines
from dashboard.workloads.pods import queries as pods
from dashboard.workloads.pods.why import PodVerdict, read_why
from dashboard.workloads.workloads.queries import UNSETTLED
from insight.advice import Advice, RaiseQuota, Step
from manciple.people import Person
from manciple.store import objects
from manciple.store.objects import decoded
from manciple.wire.base import condition_of
from manciple.wire.errors import NotFound
from manciple.wire.resources import FINISHED_PHASES, PODS
from manciple.wire.resources import kind as kind_of
from scheduling.rehearsal.explanations import explain_pod
from scheduling.rehearsal.quota_refusals import raises_for_pods
from scheduling.rehearsal.workload import Changes
from workloads.kinds.deployments import REPLICA_FAILURE
from workloads.kinds.summaries import State, Summary, meaning
from workloads.kinds.templates import pod_of
from workloads.pod_control import FAILED_CREATE

#: Pods that are looked at for one whose containers fail.
LOOKED_AT = 20
#: Missing pods that are imagined.
MOST_IMAGINED = 20
#: What containers wait for as each does in the beginning.
_USUAL = ("ContainerCreating", "PodInitializing")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadVerdict:
    """of: (uid, name) of the pod that the verdict is about; waits: that pod is in the queue."""

    verdict: PodVerdict
    of: tuple[str, str] | None = None
    waits: bool = False


def read_verdict(workload: Any, summary: Summary, rows: QuerySet[Pod], person: Person) -> WorkloadVerdict | None:
    """rows: its pods. None where all is well."""
    if summary.state in UNSETTLED:
        found = _of_waiting(rows, person) or _of_refused(workload, summary, person) or _of_failing(rows, person)
        if found is not None:
            return found
    if summary.state == State.FAILED and (found := _of_failed(rows, summary, person)) is not None:
        return found
    return WorkloadVerdict(verdict=PodVerdict(good=False, title=summary.reason)) if summary.reason else None


def _of_waiting(rows: QuerySet[Pod], person: Person) -> WorkloadVerdict | None:
    """What the page of the pod says that waits longest."""
    waiting = rows.filter(pods.IS_WAITING).order_by(pods.SINCE.asc(nulls_last=True), "name")
    for uid, namespace, name in waiting.values_list("uid", "namespace", "name")[:1]:
        try:
            explained = explain_pod(namespace, name)
        except NotFound:
            return None
        if explained.state == "Waiting":
            return WorkloadVerdict(verdict=read_why(explained, person, Changes()).verdict, of=(uid, name), waits=True)
    return None


def _of_refused(workload: Any, summary: Summary, person: Person) -> WorkloadVerdict | None:
    """Why its next pod is not created: the last refusal its controller got, and the quota limits to raise for the
    missing pods.
    """
    template = getattr(workload.spec, "template", None)
    told = _last_refusal(workload)
    if not told or template is None:
        return None
    number = min(max(_missing(workload, summary), 1), MOST_IMAGINED)
    raised = raises_for_pods(kind_of(PODS).prepare_create(pod_of(template, workload)), number)
    then = f"{counted(number, 'more pod')} can be made"
    act = Step(act=RaiseQuota(workload.metadata.namespace, raised), then=then)
    steps = step_lines(Advice(steps=(act,)), person) if raised else ()
    return WorkloadVerdict(verdict=PodVerdict(good=False, title=told, steps=steps))


def _last_refusal(workload: Any) -> str:
    """What the API said against its next pod, as its conditions tell, or its last event about making pods; ""."""
    condition = condition_of(getattr(workload.status, "conditions", ()), REPLICA_FAILURE)
    if condition is not None and condition.status == "True":
        return meaning(condition)
    made = [one for one in pods.read_moments(workload) if one.reason in (FAILED_CREATE, "SuccessfulCreate")]
    return made[-1].text if made and made[-1].reason == FAILED_CREATE else ""


def _missing(workload: Any, summary: Summary) -> int:
    """Pods that are to be made."""
    if workload.kind == "Job":
        left = summary.wanted - summary.ready
        return int(min(workload.spec.parallelism or 0, left) - workload.status.active)
    there = getattr(workload.status, "replicas", None)
    return int(summary.wanted - (workload.status.current_number_scheduled if there is None else there))


def _of_failing(rows: QuerySet[Pod], person: Person) -> WorkloadVerdict | None:
    """A pod whose container has failed or does not start; of those that run, the first by name."""
    keys = rows.exclude(node_name="").exclude(phase__in=FINISHED_PHASES).filter(deleting=False).order_by("name")
    for pod in _read(keys):
        if said := _failure(pod):
            return _of_pod(pod, f"Pod `{pod.metadata.name}` does not run: {said}.", person)
    return None


def _of_failed(rows: QuerySet[Pod], summary: Summary, person: Person) -> WorkloadVerdict | None:
    """Of a Job that has failed, with its last pod that did."""
    for pod in _read(rows.filter(phase="Failed").order_by("-started_at", "-name")):
        said = _failure(pod) or pod.status.message.rstrip(".") or pod.status.reason
        text = f"Pod `{pod.metadata.name}` failed{f': {said}' if said else ''}."
        return _of_pod(pod, summary.reason, person, text=text)
    return None


def _read(rows: QuerySet[Pod]) -> list[PodObject]:
    keys = list(rows.values_list("namespace", "name")[:LOOKED_AT])
    by_key = {one.key: one for one in (decoded(stored, PodObject) for stored in objects.get_many(kind_of(PODS), keys))}
    return [by_key[key] for key in keys if key in by_key]


def _failure(pod: PodObject) -> str:
    """What its first container that fails says of itself; ""."""
    for line in pods.container_lines(pod, (), unreachable=False):
        fails = line.state == "Failed" or (line.state == "Not started" and not line.detail.startswith(_USUAL))
        if fails and line.detail:
            return f"container `{line.name}`: {line.detail.rstrip('.')}"
    return ""


def _of_pod(pod: PodObject, title: str, person: Person, *, text: str = "") -> WorkloadVerdict:
    namespace, name = pod.key
    url = f"{pod_url(namespace, name)}?tab=logs"
    log = StepLine(word=f"Read the log of pod `{name}`", follows="", do_word="Open log", do_url=url)
    steps = (log,) if pod.spec.node_name and person.may("get", "pods/log", namespace) else ()
    return WorkloadVerdict(
        verdict=PodVerdict(good=False, title=title, text=text, steps=steps), of=(pod.metadata.uid, name)
    )
