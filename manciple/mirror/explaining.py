"""What `manciple why` says: the explanation that pages and API have, as far as it holds for this reader.

`document` is the API's `Explanation` with `steps`, `scheduler` and `notReadable`; `lines` is the same for a terminal.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from claims.causes.messages import preemption_clause, sentence
from claims.devices.cache import read_devices
from claims.kinds.pods import Pod
from insight.advice import (
    Act,
    Advice,
    Await,
    RaiseQuota,
    RemoveGates,
    Repair,
    Request,
    ServeResource,
    Step,
    advice_of,
    follows,
    told,
)
from insight.selector_matches import keep_views
from manciple.durations import duration, moment
from manciple.mirror.failures import RemoteFailure
from manciple.mirror.judgement import Judged, judge, may_not
from manciple.mirror.listing import Found, Wanted
from manciple.mirror.sources import POD, Reach
from manciple.wire.base import ApiObject, condition_of
from manciple.wire.errors import NotFound
from scheduling.claims.readiness import scheduler_of
from scheduling.cycle.post_filter import eviction_cause
from scheduling.rehearsal import explanations
from scheduling.rehearsal.explanations import Explanation, RequestReport, explain_claim, explain_pod
from scheduling.rehearsal.repairs import ClosedNode, ForgottenClaim, IncompletePool, TaintingRule
from scheduling.state.nodes import PlannedEviction

#: Nodes, steps and pools that are named.
NAMED, STEPS = 3, 6


def explain(found: Found, wanted: Wanted) -> Judged:
    """Of an object in the store. Raises: RemoteFailure."""
    explained_by = explain_pod if wanted.source is POD else explain_claim
    try:
        explained = explained_by(wanted.namespace, wanted.name)
    except NotFound as error:
        unread = found.states[wanted.source.resource].unread
        text = f"{wanted.source.resource} {wanted.namespace}/{wanted.name} cannot be read" if unread else str(error)
        raise RemoteFailure(text) from error
    waits = explained.state == "Waiting" and explained.cause is not None
    if waits:
        keep_views(read_devices())
    return judge(explained, advice_of(explained) if waits else Advice(), found)


# The document ---------------------------------------------------------------------------------------------------------


def document(judged: Judged) -> dict[str, Any]:
    """The API's Explanation, and: unknown: why the cause is not known. steps: what was rehearsed. scheduler: who places
    the pod, what it says, and for how many seconds it has not. notReadable: kinds that are not known entirely.
    """
    explained = judged.explained
    made = explanations.document(explained)
    # The revision of a store that is gone.
    made["metadata"] = {name: text for name, text in made["metadata"].items() if name != "resourceVersion"}
    made["reason"] = reason(judged)
    made["nextStep"] = next_step(judged)
    if judged.unknown:
        made["unknown"] = list(judged.unknown)
    if judged.gaps:
        for request in made.get("requests", ()):
            for name in ("met", "byItself", "decisive"):
                request.pop(name, None)
        made["notReadable"] = [
            {"resource": state.source.resource, "reach": state.reach.value, "reason": may_not(state)}
            for state in judged.gaps
        ]
    if judged.steps:
        made["steps"] = [_step(one, judged) for one in judged.steps]
    if isinstance(explained.about, Pod) and (scheduler := _scheduler(explained.about)):
        made["scheduler"] = scheduler
    return made


def _step(step: Step, judged: Judged) -> dict[str, Any]:
    made = {
        "text": f"{told(step, judged.claims, _everything)}: {follows(step)}.",
        "nodeName": step.node,
        "fits": step.fits,
        "how": how(step.act, judged.explained.about),
        "command": command_of(step.act, judged.explained),
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
    return made | {"seconds": int(_waiting(pod))}


def _waiting(pod: Pod) -> float:
    """Seconds since the scheduler could have placed it."""
    condition = condition_of(pod.status.conditions, "PodScheduled")
    since = moment(condition.last_transition_time if condition else None) or moment(pod.metadata.creation_timestamp)
    return max((datetime.now(UTC) - since).total_seconds(), 0.0) if since else 0.0


def _everything(_namespace: str) -> bool:
    return True


# In words -------------------------------------------------------------------------------------------------------------


def reason(judged: Judged) -> str:
    """A sentence about the object."""
    explained = judged.explained
    if judged.unknown:
        return f"It cannot be judged: {'; '.join(judged.unknown)}."
    if explained.state == "Schedulable" and isinstance(explained.about, Pod):
        report, pod = explained.report, explained.about
        nodes = report.fitting if report else ()
        where = f" on {_named(nodes)}" if nodes else ""
        return f"It fits{where}; {scheduler_of(pod)} has not placed it for {duration(_waiting(pod))}."
    return f"{sentence(explained.reason)}."


def next_step(judged: Judged) -> str:
    explained = judged.explained
    if judged.unknown:
        forbidden = [state for state in judged.gaps if state.reach in (Reach.FORBIDDEN, Reach.NAMESPACE)]
        return "Ask somebody who may list them, or ask for a role that may." if forbidden else ""
    if judged.steps:
        step = judged.steps[0]
        return f"{told(step, judged.claims, _everything)}: {follows(step)}."
    if explained.state == "Schedulable" and isinstance(explained.about, Pod):
        name = scheduler_of(explained.about)
        return f"See whether {name} runs, and what it logs of the pod."
    return judged.outside or explained.advice


def lines(judged: Judged) -> Iterator[str]:
    explained = judged.explained
    about = explained.about
    yield f"{about.kind} {about.metadata.namespace}/{about.metadata.name}: {explained.state}"
    yield ""
    if isinstance(about, Pod) and not about.spec.node_name and scheduler_of(about) != "default-scheduler":
        yield (
            f"Scheduler `{scheduler_of(about)}` places it, by rules of its own too; this is what Kubernetes' rules say."
        )
    yield reason(judged)
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
    if step := next_step(judged):
        yield ""
        yield f"Next step: {step}"
        if judged.steps:
            yield from _indented(judged.steps[0].act, explained)
    yield from _other_steps(judged)
    if isinstance(about, Pod) and (said := _scheduler(about).get("message")):
        yield ""
        yield f"{scheduler_of(about)} says: {said}"
    # Everything that could not be judged is listed, even if it does not affect this answer.
    rest = [may_not(state) for state in judged.gaps if may_not(state) not in judged.unknown]
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


def _other_steps(judged: Judged) -> Iterator[str]:
    others: Sequence[Step] = judged.steps[1:STEPS]
    if others:
        yield ""
        yield "What would start it, too (rehearsed; nothing was changed):"
    for step in others:
        yield f"  - {told(step, judged.claims, _everything)}: {follows(step)}."
        yield from _indented(step.act, judged.explained)


def _indented(act: Act, explained: Explanation) -> Iterator[str]:
    for text in filter(None, (how(act, explained.about), command_of(act, explained))):
        yield f"    {text}"


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(f"`{one}`" for one in names[:NAMED]) + more


def how(act: Act, about: ApiObject) -> str:
    """Where other requests are written: what they stand in cannot be changed, so it is made again, and the pod."""
    if not isinstance(act, Request) or not isinstance(about, Pod):
        return ""
    found = dict.fromkeys(
        f"template `{one.resource_claim_template_name}`"
        if one.resource_claim_template_name
        else f"claim `{one.resource_claim_name}`"
        for one in about.spec.resource_claims
        if act.changes.concern(one.name)
    )
    return f"Create {' and '.join([*found, 'the pod'])} again with that."


# Commands -------------------------------------------------------------------------------------------------------------


def command_of(act: Act, explained: Explanation) -> str:
    """What to type for it; "" where that is not one command."""
    meta = explained.about.metadata
    match act:
        case RemoveGates():
            patch = [{"op": "remove", "path": "/spec/schedulingGates"}]
            words = ["patch", "pod", "-n", meta.namespace, meta.name, "--type=json", "-p", json.dumps(patch)]
        case RaiseQuota(namespace=namespace, limits=limits) if len({one.quota for one in limits}) == 1:
            hard = {"spec": {"hard": {one.key: one.to for one in limits}}}
            words = ["patch", "resourcequota", "-n", namespace, limits[0].quota, "--type=merge", "-p", json.dumps(hard)]
        case ServeResource(device_class=name, resource=resource):
            served = {"spec": {"extendedResourceName": resource}}
            words = ["patch", "deviceclass", name, "--type=merge", "-p", json.dumps(served)]
        case Repair(trouble=trouble):
            words = _repairing(trouble)
        case Await(pods=((namespace, name),), claims=()):
            words = ["get", "pod", "-n", namespace, name]
        case _:
            return ""
    return shlex.join(["kubectl", *words]) if words else ""


def _repairing(trouble: object) -> list[str]:
    match trouble:
        case TaintingRule(name=name):
            return ["delete", "devicetaintrule", name]
        case ClosedNode(node=node, cordoned=True):
            return ["uncordon", node]
        case ClosedNode(node=node):
            return ["describe", "node", node]
        case ForgottenClaim(namespace=namespace, claim=claim):
            return ["delete", "resourceclaim", "-n", namespace, claim]
        case IncompletePool(driver=driver):
            return ["get", "resourceslices", "--field-selector", f"spec.driver={driver}"]
    return []
