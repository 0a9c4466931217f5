"""Why a workload is not what it should be, as its page says: what is wrong with most of its pods, with their number and
one of them, and what to do about it; then what else is wrong with others.

The same for all kinds: pods that are refused, that wait, that fail or do not start, whose nodes are unreachable, that
are not ready. Where its pods are well, its conditions speak.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.db.models import Count, QuerySet

from claims.causes.causes import decode
from claims.causes.messages import brief
from claims.kinds.pods import Pod as PodObject
from claims.models import Pod
from claims.pod_troubles import USUAL_WAITS
from dashboard.kit.mirrored import agent
from dashboard.templatetags.kit import counted, joined, node_url, pod_url
from dashboard.workloads.next_steps import StepLine, step_lines
from dashboard.workloads.pods import queries as pods
from dashboard.workloads.pods.why import PodVerdict, read_why
from dashboard.workloads.workloads.queries import UNSETTLED, Problem, worst_first
from dashboard.workloads.workloads.refusals import last_refusals
from insight.advice import Advice, RaiseQuota, Step
from insight.start_estimates import never_started
from manciple.people import Person
from manciple.store import objects
from manciple.store.objects import decoded
from manciple.wire.errors import NotFound
from manciple.wire.resources import FINISHED_PHASES, NEW_PHASES, PODS
from manciple.wire.resources import kind as kind_of
from manciple.wire.validation import natural
from scheduling.models import QueuedPod
from scheduling.rehearsal.explanations import explain_pod
from scheduling.rehearsal.quota_refusals import raises_for_pods
from scheduling.rehearsal.workload import Changes
from workloads.kinds.summaries import State, Summary
from workloads.kinds.templates import pod_of
from workloads.models import Workload

#: Kinds of troubles that are shown; waiting pods that are looked at, those that wait longest.
SHOWN, MOST_WAITING = 5, 500
#: Unreachable nodes that are named.
NAMED = 3
#: Missing pods that are imagined.
MOST_IMAGINED = 20
#: What to do about a Job that waited until its time limit was over.
LIMIT_COUNTS = "Run it again with a longer time limit: the limit also counts while its pods wait."


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadVerdict:
    """of: (uid, namespace, name) of the pod that the verdict is about; waits: that pod is in the queue. others: what
    else is wrong with its pods.
    """

    verdict: PodVerdict
    of: tuple[str, str, str] | None = None
    waits: bool = False
    others: Sequence[Problem] = ()


def read_verdict(
    workload: Any, summary: Summary, rows: QuerySet[Pod], unreachable: Collection[str], person: Person
) -> WorkloadVerdict | None:
    """rows: its pods. unreachable: nodes. None where all is well."""
    if summary.state in UNSETTLED:
        found = worst_first(_problems(workload, summary, rows, unreachable))
        if found:
            worst, *others = found
            return replace(_verdict(worst, workload, summary, person), others=others)
    if summary.state == State.FAILED:
        return _of_failed(workload, rows, summary, person)
    return WorkloadVerdict(verdict=PodVerdict(good=False, title=summary.reason)) if summary.reason else None


def _problems(workload: Any, summary: Summary, rows: QuerySet[Pod], unreachable: Collection[str]) -> Iterator[Problem]:
    """Of its pods, each kind once, with their number."""
    meta = workload.metadata
    if refusal := last_refusals([meta.uid], meta.namespace).get(meta.uid, ""):
        yield Problem(number=max(_missing(workload, summary, rows), 1), text=refusal, refused=True)
    there = rows.filter(deleting=False)
    yield from _of_waiting(there)
    lost = there.filter(node_name__in=unreachable).exclude(phase__in=FINISHED_PHASES)
    if nodes := sorted(lost.order_by().values_list("node_name", flat=True).distinct(), key=natural):
        names = joined([f"`{name}`" for name in nodes], NAMED)
        text = f"Node {names} is unreachable." if len(nodes) == 1 else f"Nodes {names} are unreachable."
        yield Problem(number=lost.count(), text=text, pod=_first(lost.filter(node_name=nodes[0])), lost=nodes[0])
    troubled = there.exclude(trouble="").exclude(node_name__in=unreachable)
    groups = troubled.order_by().values_list("trouble").annotate(number=Count("uid"))
    for text, number in groups.order_by("-number", "trouble")[:SHOWN]:
        yield Problem(number=number, text=text, pod=_first(troubled.filter(trouble=text)))
    yield from _of_starting(there.filter(trouble="", phase__in=NEW_PHASES).exclude(node_name=""))
    failed = rows.filter(phase="Failed")
    if workload.kind == "Job" and summary.state == State.STARTING and (number := failed.count()):
        yield Problem(number=number, text="Failed. The next is made after a delay.", pod=_last(failed))


def _first(rows: QuerySet[Pod]) -> tuple[str, str, str] | None:
    found: tuple[str, str, str] | None = rows.order_by("name").values_list("uid", "namespace", "name").first()
    return found


def _last(failed: QuerySet[Pod]) -> tuple[str, str, str] | None:
    """The pod that failed last."""
    order = failed.order_by("-started_at", "-name")
    found: tuple[str, str, str] | None = order.values_list("uid", "namespace", "name").first()
    return found


def _of_waiting(rows: QuerySet[Pod]) -> Iterator[Problem]:
    """By what they wait for; the pod that waits longest stands for those that wait for the same."""
    waiting = rows.filter(pods.IS_WAITING)
    number = waiting.count()
    queued = QueuedPod.objects.filter(uid__in=waiting.values("uid")).exclude(cause="").order_by("created_at", "name")
    groups: dict[str, list[tuple[str, str, str]]] = {}
    for uid, namespace, name, cause in queued.values_list("uid", "namespace", "name", "cause")[:MOST_WAITING]:
        groups.setdefault(brief(decode(cause), names_claim=False), []).append((uid, namespace, name))
    unseen = max(number - sum(map(len, groups.values())), 0) if number > MOST_WAITING else 0
    for text, those in groups.items():
        yield Problem(number=len(those) + unseen, text=text, waits=True, pod=those[0])
        unseen = 0


def _of_starting(rows: QuerySet[Pod]) -> Iterator[Problem]:
    """What the last warning about the first of them says: a volume, a claim or a network that is not ready."""
    first = _first(rows)
    stored = objects.get(kind_of(PODS), *first[1:]) if first is not None else None
    if stored is None:
        return
    moments = pods.read_moments(decoded(stored, PodObject))
    if moments and moments[-1].warning:
        yield Problem(number=rows.count(), text=f"{moments[-1].text.rstrip('.')}.", pod=first)


def _verdict(worst: Problem, workload: Any, summary: Summary, person: Person) -> WorkloadVerdict:
    """What to do about it: of a pod that waits what its page says, of a lost one its node, of a failing one its log."""
    is_one = summary.wanted <= 1 or worst.refused
    if worst.refused:
        steps = _raised(workload, worst.number, person)
        return WorkloadVerdict(verdict=PodVerdict(good=False, title=worst.text, steps=steps))
    assert worst.pod is not None  # noqa: S101 - what exists has a name
    _, namespace, name = worst.pod
    if worst.waits:
        try:
            explained = explain_pod(namespace, name)
        except NotFound:
            explained = None
        if explained is not None and explained.waits and explained.cause is not None:
            verdict = read_why(explained, person, Changes()).verdict
            if not is_one and worst.number > 1:
                verdict = replace(verdict, title=worst.sentence)
            return WorkloadVerdict(verdict=verdict, of=worst.pod, waits=True)
    title = worst.alone if is_one else worst.sentence
    if worst.lost:  # no log can be read there
        start = StepLine(
            word=f"Start the {agent()} on `{worst.lost}`",
            follows="",
            do_word="Show node",
            do_url=node_url(worst.lost),
        )
        return WorkloadVerdict(verdict=PodVerdict(good=False, title=title, steps=(start,)), of=worst.pod)
    return _of_pod(worst.pod, title, person)


def _raised(workload: Any, missing: int, person: Person) -> tuple[StepLine, ...]:
    """The quota limits to raise for the missing pods; none where something else refuses them."""
    template = getattr(workload.spec, "template", None)
    if template is None:
        return ()
    number = min(missing, MOST_IMAGINED)
    raised = raises_for_pods(kind_of(PODS).prepare_create(pod_of(template, workload)), number)
    then = f"{counted(number, 'more pod')} can be made"
    act = Step(act=RaiseQuota(workload.metadata.namespace, raised), then=then)
    return step_lines(Advice(steps=(act,)), person) if raised else ()


def _missing(workload: Any, summary: Summary, rows: QuerySet[Pod]) -> int:
    """Pods that are to be made. They are counted: the quota has those that the workload's status does not show yet."""
    if workload.kind == "CronJob":
        return 1
    there = rows.filter(deleting=False).exclude(phase__in=FINISHED_PHASES).count()
    wanted = summary.wanted
    if workload.kind == "Job":
        wanted = min(workload.spec.parallelism or 0, wanted - summary.ready)
    return int(wanted - there)


def _details(pod: PodObject) -> str:
    """What its containers say of themselves, or its last warning; ""."""
    name = pod.metadata.name
    if said := _failure(pod) or pod.status.message.rstrip(".") or pod.status.reason:
        return f"Pod `{name}`: {said}."
    warnings = [one.text for one in pods.read_moments(pod) if one.warning]
    return f"Pod `{name}`: {warnings[-1].rstrip('.')}." if warnings else ""


def _of_failed(workload: Any, rows: QuerySet[Pod], summary: Summary, person: Person) -> WorkloadVerdict:
    """Of a Job that has failed, with its last pod that did."""
    waited = never_started(Workload.objects.filter(uid=workload.metadata.uid)).get(workload.metadata.uid)
    if waited:
        return WorkloadVerdict(verdict=PodVerdict(good=False, title=waited, next_step=LIMIT_COUNTS))
    failed = rows.filter(phase="Failed")
    if (last := _last(failed)) is None:
        return WorkloadVerdict(verdict=PodVerdict(good=False, title=summary.reason))
    return _of_pod(last, summary.reason, person, before=f"{counted(failed.count(), 'pod')} failed. ")


def _failure(pod: PodObject) -> str:
    """What its first container that fails says of itself; ""."""
    for line in pods.container_lines(pod, (), unreachable=False):
        fails = line.state == "Failed" or (line.state == "Not started" and not line.detail.startswith(USUAL_WAITS[1:]))
        if fails and line.detail:
            return f"container `{line.name}`: {line.detail.rstrip('.')}"
    return ""


def _of_pod(of: tuple[str, str, str], title: str, person: Person, *, before: str = "") -> WorkloadVerdict:
    """With the pod's log, or its events where none of its containers has run. before: the text about it."""
    _, namespace, name = of
    stored = objects.get(kind_of(PODS), namespace, name)
    if stored is None:
        return WorkloadVerdict(verdict=PodVerdict(good=False, title=title, text=before), of=of)
    pod, url = decoded(stored, PodObject), pod_url(namespace, name)
    if container := _logged(pod):
        right, word, do_word, url = "pods/log", "Read the log", "Open log", f"{url}?tab=logs&container={container}"
    else:
        right, word, do_word, url = "events", "See the events", "Open events", f"{url}?tab=events"
    step = StepLine(word=f"{word} of pod `{name}`", follows="", do_word=do_word, do_url=url)
    steps = (step,) if person.may("get" if container else "list", right, namespace) else ()
    verdict = PodVerdict(good=False, title=title, text=f"{before}{_details(pod)}", steps=steps)
    return WorkloadVerdict(verdict=verdict, of=of)


def _logged(pod: PodObject) -> str:
    """The container whose log says most: one that failed, or else any that has run; "" for none."""
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    ran = [one for one in statuses if one.container_id]
    ends = ((one.name, one.state.terminated or one.last_state.terminated) for one in ran)
    failed = (name for name, end in ends if end is not None and end.exit_code)
    return next(failed, "") or next((one.name for one in ran), "")
