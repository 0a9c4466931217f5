"""The Explanation that the API serves, from a report. PURE.

kind: Explanation, apiVersion: manciple.dev/v1alpha1
involvedObject: what is explained; resourceVersion: the state that was looked at
state: Waiting, Schedulable, Bound, Allocated, Ended, Deleting or Unmanaged; reason, nextStep, hints: for people
preemption: whether evicting pods would help it, in words, and whom where
cause: why it waits, for programs: its code (see `claims.causes.causes`) and what belongs to that
extendedResources: which class and which request of its claim serve what its containers ask for by name
requests: the funnel of each over all eligible nodes; nodes: each node's answer; allocations: what is held already
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from claims.causes.causes import AnyCause, Evicting, OfPreemption
from claims.causes.messages import clause, message, preemption_clause, sentence
from claims.causes.next_steps import next_step
from claims.kinds.resource_claims import ResourceClaim
from manciple.wire.base import ApiObject
from scheduling.allocator import Allocated, Unallocatable
from scheduling.allocator.stages import Drop, Funnel, Stage, drops
from scheduling.claims.extended_resources import ServedRequest
from scheduling.cycle.post_filter import eviction_cause
from scheduling.rehearsal.explanations.report import NodeReport, Report, RequestReport
from scheduling.state.nodes import PlannedEviction

GROUP, VERSION, KIND = "manciple.dev", "v1alpha1", "Explanation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What is to be said of one pod or claim."""

    about: ApiObject
    revision: int
    state: str = "Waiting"
    cause: AnyCause | None = None  # why it waits
    #: where it does not wait: a clause, and what to do next
    remark: str = ""
    advice: str = ""
    node: str = ""  # where a pod is bound
    placement: str = ""  # why there
    report: Report | None = None
    held: tuple[ResourceClaim, ...] = field(default=())  # claims that are allocated
    #: what serves the extended resources that it asks for, where devices do
    extended: tuple[ServedRequest, ...] = ()
    #: of a pod that waits: whom it would evict, or why nobody
    preemption: PlannedEviction | OfPreemption | None = None

    @property
    def reason(self) -> str:
        """A clause."""
        return clause(self.cause) if self.cause else self.remark

    @property
    def next_step(self) -> str:
        return next_step(self.cause) if self.cause else self.advice


def document(explained: Explanation) -> dict[str, Any]:
    """The JSON document; empty fields are left out."""
    about, report = explained.about, explained.report or Report(cause=None)
    meta = about.metadata
    made = {
        "kind": KIND,
        "apiVersion": f"{GROUP}/{VERSION}",
        "metadata": {"namespace": meta.namespace, "name": meta.name, "resourceVersion": str(explained.revision)},
        "involvedObject": {
            "apiVersion": about.api_version,
            "kind": about.kind,
            "namespace": meta.namespace,
            "name": meta.name,
            "uid": meta.uid,
        },
        "state": explained.state,
        "cause": msgspec.to_builtins(explained.cause),
        "reason": f"{sentence(explained.reason)}.",
        "nextStep": explained.next_step,
        "nodeName": explained.node,
        "placement": explained.placement,
        "preemption": _preemption(explained),
        "hints": list(report.hints),
        "extendedResources": [_served(one) for one in explained.extended],
        "allocations": [_held(claim) for claim in explained.held],
        "requests": [_request(one) for one in report.requests],
        "nodes": [_node(one) for one in report.nodes],
    }
    return {name: value for name, value in made.items() if value not in ("", [], None)}


def _preemption(explained: Explanation) -> dict[str, Any] | None:
    """Pods of other namespaces than that of the pod itself are counted, and not named."""
    found = explained.preemption
    if found is None:
        return None
    namespace = explained.about.metadata.namespace
    told = eviction_cause(found, sees=namespace.__eq__) if isinstance(found, PlannedEviction) else found
    made: dict[str, Any] = {"helps": isinstance(told, Evicting), "reason": f"{sentence(preemption_clause(told))}."}
    if isinstance(told, Evicting):
        made |= {"nodeName": told.node, "victims": msgspec.to_builtins(told.victims), "moreVictims": told.more}
    return made


def _held(claim: ResourceClaim) -> dict[str, Any]:
    allocation = claim.status.allocation
    results = allocation.devices.results if allocation else ()
    return {
        "claim": f"{claim.metadata.namespace}/{claim.metadata.name}",
        "devices": [
            {"request": one.request, "driver": one.driver, "pool": one.pool, "device": one.device} for one in results
        ],
        "reservedFor": [{"resource": one.resource, "name": one.name} for one in claim.status.reserved_for],
    }


def _served(one: ServedRequest) -> dict[str, str]:
    told = {
        "containerName": one.container,
        "resourceName": one.resource,
        "deviceClassName": one.device_class,
        "requestName": one.request,
        "claim": one.claim,
    }
    return {name: value for name, value in told.items() if value}


def _request(one: RequestReport) -> dict[str, Any]:
    return {
        "claim": one.plan.claim,
        "request": one.plan.full_name,
        "deviceClassName": one.plan.class_name,
        **({"allocationMode": "All"} if one.plan.everything else {"count": one.wanted}),
        "met": one.met,
        "decisive": one.decisive,
        "stages": list(_stages(one.funnel)),
    }


def _stages(funnel: Funnel) -> Iterator[dict[str, Any]]:
    before = funnel[0]
    for stage in funnel:
        yield {**_count(stage), "lost": before.left - stage.left} | _detail(before, stage)
        before = stage


def _count(stage: Stage) -> dict[str, Any]:
    return {"name": stage.name, "left": stage.left}


def _detail(before: Stage, stage: Stage) -> dict[str, Any]:
    if stage.troubles:
        pools = [
            {"driver": one.key.driver, "pool": one.key.name, "trouble": one.trouble, "detail": one.detail}
            | {"devices": one.devices, "matching": one.matching}
            for one in stage.troubles
        ]
        return {"pools": pools}
    if stage.selector is None:
        return {"asked": stage.clause} if stage.clause else {}
    refused = drops(stage.selector, before.devices - stage.devices)
    return {"expression": stage.selector.expression, "refusedBy": [_drop(one) for one in refused]}


def _drop(drop: Drop) -> dict[str, Any]:
    made: dict[str, Any] = {"clause": drop.clause.text, "short": str(drop.clause), "devices": drop.count}
    if drop.values:
        made["values"] = [{"value": value, "devices": count} for value, count in drop.values]
    ends = {"least": drop.least, "greatest": drop.greatest}
    return made | {name: text for name, text in ends.items() if text} | {"example": drop.one_device}


def _node(node: NodeReport) -> dict[str, Any]:
    outcome = node.examination.outcome
    made: dict[str, Any] = {"name": node.name, "fits": node.fits}
    if node.refusals:
        made["refusals"] = [{"plugin": one.plugin, "message": message(one)} for one in node.refusals]
    match outcome:
        case Allocated(results=results):
            made["devices"] = [
                f"{one.driver}/{one.pool}/{one.device}" for result in results for one in result.devices.results
            ]
        case Unallocatable(reasons=reasons):
            made["reason"] = f"{sentence(clause(reasons[0].cause, names_claim=True))}." if reasons else ""
        case _:
            made["reason"] = message(outcome.cause)
    if node.examination.requests:
        made["requests"] = [
            {
                "claim": one.plan.claim,
                "request": one.plan.full_name,
                "met": not one.short,
                "stages": [_count(stage) for stage in one.funnel],
            }
            for one in node.examination.requests
        ]
    return made
