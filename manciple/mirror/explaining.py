"""What `manciple why` says: the explanation that pages and API have, as far as it holds for this reader.

`document` is the API's `Explanation` with `steps`, `scheduler` and `notReadable`; `lines` is the same for a terminal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from claims.causes.causes import NotJudged
from claims.causes.messages import preemption_clause, sentence
from claims.devices.cache import read_devices
from claims.kinds.pods import Pod
from insight.advice import Act, Advice, Step, advice_of, follows, told
from insight.selector_matches import keep_views
from manciple.mirror.commands import command_of, how
from manciple.mirror.failures import RemoteFailure
from manciple.mirror.judgement import may_not
from manciple.mirror.listing import Found, Wanted
from manciple.mirror.sources import POD, KindState
from manciple.wire.base import condition_of
from manciple.wire.errors import NotFound
from scheduling.claims.readiness import scheduler_of
from scheduling.cycle.post_filter import eviction_cause
from scheduling.rehearsal import explanations
from scheduling.rehearsal.explanations import (
    Explanation,
    RequestReport,
    explain_claim,
    explain_pod,
    waiting_seconds,
    with_time,
)
from scheduling.state.nodes import PlannedEviction

#: Steps that are named.
STEPS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """gaps: the kinds that are not known entirely."""

    explained: Explanation
    advice: Advice
    gaps: tuple[KindState, ...]

    @property
    def unknown(self) -> tuple[str, ...]:
        """Why it is not known what keeps the pod; () if it is."""
        cause = self.explained.cause
        return cause.why if isinstance(cause, NotJudged) else ()


def explain(found: Found, wanted: Wanted) -> Answer:
    """Of an object in the store. Raises: RemoteFailure."""
    explained_by = explain_pod if wanted.source is POD else explain_claim
    try:
        explained = explained_by(wanted.namespace, wanted.name)
    except NotFound as error:
        unread = found.states[wanted.source.resource].unread
        text = f"{wanted.source.resource} {wanted.namespace}/{wanted.name} cannot be read" if unread else str(error)
        raise RemoteFailure(text) from error
    if explained.state == "Waiting":
        keep_views(read_devices())  # for what is rehearsed
    gaps = tuple(state for state in found.states.values() if not state.is_whole)
    return Answer(explained=with_time(explained), advice=advice_of(explained), gaps=gaps)


# The document ---------------------------------------------------------------------------------------------------------


def document(answer: Answer) -> dict[str, Any]:
    """The API's Explanation, and: unknown: why the cause is not known. steps: what was rehearsed. scheduler: who places
    the pod, what it says, and for how many seconds it has not. notReadable: kinds that are not known entirely.
    """
    explained = answer.explained
    made = explanations.document(explained)
    # The revision of a store that is gone.
    made["metadata"] = {name: text for name, text in made["metadata"].items() if name != "resourceVersion"}
    made["reason"] = reason(answer)
    made["nextStep"] = next_step(answer)
    if answer.unknown:
        made["unknown"] = list(answer.unknown)
    if answer.gaps:
        made["notReadable"] = [
            {"resource": state.source.resource, "reach": state.reach.value, "reason": may_not(state)}
            for state in answer.gaps
        ]
    if answer.advice.steps:
        made["steps"] = [_step(one, answer) for one in answer.advice.steps]
    if isinstance(explained.about, Pod) and (scheduler := _scheduler(explained.about)):
        made["scheduler"] = scheduler
    return made


def _step(step: Step, answer: Answer) -> dict[str, Any]:
    made = {
        "text": f"{told(step, answer.advice.claims, _everything)}: {follows(step)}.",
        "nodeName": step.node,
        "fits": step.fits,
        "how": how(step.act, answer.explained.about),
        "command": command_of(step.act, answer.explained.about),
    }
    return {name: value for name, value in made.items() if value}


def _scheduler(pod: Pod) -> dict[str, Any]:
    """Of a pod that has no node."""
    if pod.spec.node_name:
        return {}
    condition = condition_of(pod.status.conditions, "PodScheduled")
    made: dict[str, Any] = {"name": scheduler_of(pod)}
    if condition is not None and condition.status == "False" and condition.message:
        made["message"] = condition.message
    return made | {"seconds": int(waiting_seconds(pod))}


def _everything(_namespace: str) -> bool:
    return True


# In words -------------------------------------------------------------------------------------------------------------


def reason(answer: Answer) -> str:
    """A sentence about the object."""
    return f"{sentence(answer.explained.reason)}."


def next_step(answer: Answer) -> str:
    return answer.advice.sentence() or answer.explained.advice


def lines(answer: Answer) -> Iterator[str]:
    explained = answer.explained
    about = explained.about
    yield f"{about.kind} {about.metadata.namespace}/{about.metadata.name}: {explained.state}"
    yield ""
    if isinstance(about, Pod) and not about.spec.node_name and scheduler_of(about) != "default-scheduler":
        yield (
            f"Scheduler `{scheduler_of(about)}` places it, by rules of its own too; this is what Kubernetes' rules say."
        )
    yield reason(answer)
    if explained.preemption is not None:
        found = explained.preemption
        cause = eviction_cause(found, sees=_everything) if isinstance(found, PlannedEviction) else found
        yield f"{sentence(preemption_clause(cause))}."
    yield from _of_pod(explained)
    for claim in explained.held:
        results = claim.status.allocation.devices.results if claim.status.allocation else ()
        devices = ", ".join(f"{one.driver}/{one.pool}/{one.device}" for one in results)
        yield f"Claim {claim.metadata.name}: {devices or 'no device'}"
    if explained.report is not None and explained.state != "Schedulable":
        for request in sorted(explained.report.requests, key=lambda one: (not one.decisive, one.met)):
            yield ""
            yield from _funnel(request)
        yield from (f"\n{hint}" for hint in explained.report.notes)
    if step := next_step(answer):
        yield ""
        yield f"Next step: {step}"
        if answer.advice.steps:
            yield from _indented(answer.advice.steps[0].act, explained)
    yield from _other_steps(answer)
    if isinstance(about, Pod) and (said := _scheduler(about).get("message")):
        yield ""
        yield f"{scheduler_of(about)} says: {said}"
    # Everything that could not be judged is listed, even if it does not affect this answer.
    rest = [may_not(state) for state in answer.gaps if may_not(state) not in answer.unknown]
    if rest:
        yield ""
        yield f"Not judged: {'; '.join(rest)}."


def _of_pod(explained: Explanation) -> Iterator[str]:
    """Of a pod that has a node: what its containers wait for."""
    pod = explained.about
    if not isinstance(pod, Pod) or not pod.spec.node_name:
        return
    if pod.status.phase:
        yield f"Phase: {pod.status.phase}"
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        waiting = status.state.waiting if status.state else None
        if waiting is not None:
            yield f"Container {status.name}: {waiting.reason}{f': {waiting.message}' if waiting.message else ''}"


def _funnel(request: RequestReport) -> Iterator[str]:
    plan = request.plan
    wanted = "all devices" if plan.everything else f"{request.wanted} device{'' if request.wanted == 1 else 's'}"
    of_class = f" of class {plan.class_name}" if plan.class_name else ""
    claim = plan.claim.rpartition("/")[2]
    yield f"Request {plan.full_name} of claim {claim}: {wanted}{of_class}"
    width = len(str(request.funnel[0].left)) if request.funnel else 1
    for stage in request.funnel:
        name = stage.name
        if stage.selector is not None:  # people count from 1
            name = f"{name.partition(' #')[0]} {stage.selector.index + 1}: {stage.clause}"
        yield f"  {stage.left:>{width}}  {name}"
    for step in request.constraints:
        yield f"  {step.left:>{width}}  {'different' if step.distinct else 'same'} {step.attribute}"


def _other_steps(answer: Answer) -> Iterator[str]:
    others: Sequence[Step] = answer.advice.steps[1:STEPS]
    if others:
        yield ""
        yield "What would start it, too (rehearsed; nothing was changed):"
    for step in others:
        yield f"  - {told(step, answer.advice.claims, _everything)}: {follows(step)}."
        yield from _indented(step.act, answer.explained)


def _indented(act: Act, explained: Explanation) -> Iterator[str]:
    for text in filter(None, (how(act, explained.about), command_of(act, explained.about))):
        yield f"    {text}"
