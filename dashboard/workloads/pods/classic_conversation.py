"""What the scheduler and the drivers of a pod's claims said to each other about its node (KEP-3063), by the log.

The scheduler offers nodes in the pod's PodSchedulingContext and selects one; drivers answer there which do not suit,
and allocate in the claims. The context goes when the pod has its node: what it was stands in the log for an hour.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import cast

from claims.classic.kinds import PodSchedulingContext
from claims.classic.ownership import controller_of
from claims.kinds.pods import Pod
from claims.kinds.resource_claims import IMMEDIATE, AllocationResult, ResourceClaim
from claims.pod_claims import is_controlled_by, is_done
from dashboard.workloads.pods.conversation import (
    CLAIM_CONTROLLER,
    SCHEDULER,
    STEPS,
    AwaitedTurn,
    Conversation,
    NegotiationTurn,
    OfferedNode,
    What,
    answered,
    in_words,
    timed,
    took,
)
from dashboard.workloads.whatif.query import named
from inventory.classic.values import ResourceClass
from inventory.kinds import gates
from manciple.durations import moment
from manciple.store import history, objects
from manciple.store.history import Revised
from manciple.store.objects import decoded
from manciple.wire.resources import CLAIMS, CONTEXTS, PODS, RESOURCE_CLASSES, kind


@dataclass(frozen=True, slots=True, kw_only=True)
class _Driven:
    """A claim of the pod that a driver's controller allocates."""

    claim: ResourceClaim
    driver: str


def read_classic_conversation(pod: Pod, classic: Mapping[str, ResourceClaim]) -> Conversation | None:
    """classic: by entry, the claims that name a driver's controller or a resource class.

    None if the scheduler allocates all of them.
    """
    driven = _driven(classic)
    if not driven:
        return None
    bindings = list(_bindings(pod))
    contexts = _contexts(pod, bindings[0] if bindings else None)
    began = moment(pod.metadata.creation_timestamp)
    bound = bindings[0].at if bindings else None
    said = [
        *_of_contexts(contexts, driven, bound),
        *(step for entry, one in driven.items() for step in _of_claim(entry, one, bound)),
        *(_binding(one, pod) for one in bindings[:1]),
    ]
    in_order = sorted((one for one in said if began is None or one.at >= began), key=lambda one: one.at)
    steps = timed(in_order, driven)
    latest = _context(contexts[-1]) if contexts else None
    ended = next((one.at for one in steps if one.what == "binds"), None)
    return Conversation(
        awaited=_awaited(pod, driven, latest, steps),
        nodes=_nodes(latest, driven),
        steps=tuple(steps[-STEPS:]),
        earlier=len(steps) > STEPS or (bool(contexts) and contexts[0].type != "ADDED"),
        node=pod.spec.node_name,
        lasted=took(steps[0].at, ended) if ended and steps[0].at < ended else "",
    )


# Reading --------------------------------------------------------------------------------------------------------------


def _driven(classic: Mapping[str, ResourceClaim]) -> dict[str, _Driven]:
    """entry -> the claim, with the driver that allocates it or has done so."""
    wanted = {("", one.spec.resource_class_name) for one in classic.values() if one.spec.resource_class_name}
    classes = {one.name: decoded(one, ResourceClass) for one in objects.get_many(kind(RESOURCE_CLASSES), wanted)}
    found: dict[str, _Driven] = {}
    for entry, claim in classic.items():
        gave = claim.status.allocation.controller_name if claim.status.allocation else ""
        driver = gave or controller_of(claim, classes.get(claim.spec.resource_class_name))
        if driver:
            found[entry] = _Driven(claim=claim, driver=driver)
    return found


def _bindings(pod: Pod) -> Iterator[Revised]:
    """The writes of the pod from the one that gave it its node; none where the log begins later."""
    if pod.spec.node_name:
        revisions = history.of_object(pod.metadata.uid)
        bound = [bool(cast("Pod", objects.decode(kind(PODS), one.text)).spec.node_name) for one in revisions]
        if bound and (not bound[0] or revisions[0].type == "ADDED"):
            yield from (one for one, has in zip(revisions, bound, strict=True) if has)


def _contexts(pod: Pod, binding: Revised | None) -> list[Revised]:
    """What the pod's context was, the oldest first."""
    stored = objects.get(kind(CONTEXTS), *pod.key)
    if stored is not None:
        found = history.of_object(stored.uid)
    elif binding is not None:
        found = history.of_gone(CONTEXTS, *pod.key, near=binding.revision)
    else:
        found = []
    return found if found and is_controlled_by(_context(found[-1]).metadata, pod) else []


def _context(one: Revised) -> PodSchedulingContext:
    return cast("PodSchedulingContext", objects.decode(kind(CONTEXTS), one.text))


# Steps ----------------------------------------------------------------------------------------------------------------


def _of_contexts(
    contexts: Sequence[Revised], driven: Mapping[str, _Driven], bound: datetime | None
) -> Iterator[NegotiationTurn]:
    before: PodSchedulingContext | None = None
    for revised in contexts:
        after = _context(revised)
        if revised.type != "DELETED" and (before is not None or revised.type == "ADDED"):
            yield from _of_spec(before, after, revised.at, _our_side(revised.at, bound))
            yield from _of_status(before, after, revised.at, driven)
        before = after


def _our_side(at: datetime, bound: datetime | None) -> str:
    return CLAIM_CONTROLLER if bound is not None and at > bound else SCHEDULER


def _of_spec(
    before: PodSchedulingContext | None, after: PodSchedulingContext, at: datetime, who: str
) -> Iterator[NegotiationTurn]:
    known = before.spec.potential_nodes if before else ()
    offered = [name for name in after.spec.potential_nodes if name not in known]
    if offered:
        text = f"Offers {in_words(offered)}"
        yield NegotiationTurn(at=at, who=who, what="offers", text=text)
    was, now = before.spec.selected_node if before else "", after.spec.selected_node
    if now and now != was:
        text = f"Selects {now}" + (f" in place of {was}" if was else "")
        yield NegotiationTurn(at=at, who=who, what="selects", text=text)
    elif was and not now:
        yield NegotiationTurn(at=at, who=who, what="withdraws", text=f"Selects {was} no longer")


def _of_status(
    before: PodSchedulingContext | None,
    after: PodSchedulingContext,
    at: datetime,
    driven: Mapping[str, _Driven],
) -> Iterator[NegotiationTurn]:
    known = _refusals(before)
    for entry, now in _refusals(after).items():
        was = known.get(entry)
        if now == was:
            continue
        texts = list(answered(was, now, entry))
        who = driven[entry].driver if entry in driven else f"driver of {entry}"
        for text, refuses in texts:
            yield NegotiationTurn(at=at, who=who, what="answers", text=text, entry=entry, refuses=refuses)


def _refusals(context: PodSchedulingContext | None) -> dict[str, frozenset[str]]:
    answers = context.status.resource_claims if context else ()
    return {one.name: frozenset(one.unsuitable_nodes) for one in answers}


def _of_claim(entry: str, driven: _Driven, bound: datetime | None) -> Iterator[NegotiationTurn]:
    before: ResourceClaim | None = None
    for revised in history.of_object(driven.claim.metadata.uid):
        after = cast("ResourceClaim", objects.decode(kind(CLAIMS), revised.text))
        if before is not None:
            had, has = before.status.allocation, after.status.allocation
            at, driver = revised.at, driven.driver
            if has is not None and had is None:
                text = f"Allocates claim `{entry}`{_where(has)}"
                yield NegotiationTurn(at=at, who=driver, what="allocates", text=text, entry=entry)
            if after.status.deallocation_requested and not before.status.deallocation_requested:
                text = f"Requests that claim `{entry}` be deallocated"
                yield NegotiationTurn(at=at, who=_our_side(at, bound), what="asks back", text=text, entry=entry)
            if had is not None and has is None:
                text = f"Deallocates claim `{entry}`"
                yield NegotiationTurn(at=at, who=driver, what="gives back", text=text, entry=entry)
        before = after


def _where(allocation: AllocationResult) -> str:
    terms = allocation.node_selector.node_selector_terms if allocation.node_selector else ()
    names = [name for term in terms for field in term.match_fields for name in field.values]
    if allocation.node_selector is None:
        return ", for every node"
    return f" for {named(names)}" if names else ""


def _binding(binding: Revised, pod: Pod) -> NegotiationTurn:
    who = SCHEDULER if binding.type != "ADDED" else "The pod's author"
    return NegotiationTurn(at=binding.at, who=who, what="binds", text=f"Binds the pod to {pod.spec.node_name}")


# As it stands now -----------------------------------------------------------------------------------------------------


def _nodes(context: PodSchedulingContext | None, driven: Mapping[str, _Driven]) -> tuple[OfferedNode, ...]:
    """The selected one first, then those that may still be selected, then the refused ones."""
    if context is None:
        return ()
    refusals = _refusals(context)
    selected = context.spec.selected_node
    names = {*context.spec.potential_nodes, *frozenset().union(*refusals.values()), selected} - {""}
    lines = [
        OfferedNode(
            name=name,
            selected=name == selected,
            refused_by=tuple(
                (driven[entry].driver if entry in driven else "", entry)
                for entry, refused in refusals.items()
                if name in refused
            ),
        )
        for name in names
    ]
    return tuple(sorted(lines, key=lambda one: (not one.selected, bool(one.refused_by), one.name)))


def _awaited(
    pod: Pod, driven: Mapping[str, _Driven], context: PodSchedulingContext | None, steps: Sequence[NegotiationTurn]
) -> tuple[AwaitedTurn, ...]:
    """Nobody for a pod that has all it needs, and none where nobody can answer as the feature gate is off."""
    if is_done(pod) or not gates.enabled(gates.CONTROL_PLANE_CONTROLLER):
        return ()
    turns = [turn for entry, one in driven.items() if (turn := _turn_of_driver(entry, one, context, steps))]
    if turns or pod.spec.node_name:
        return tuple(turns)
    since = steps[-1].at if steps else None
    nodes = _nodes(context, driven)
    if nodes and all(one.refused_by for one in nodes):
        who = ", ".join(sorted({driver for one in nodes for driver, _ in one.refused_by}))
        return (AwaitedTurn(who=who, text="to accept a node: it refused all that were offered", since=since),)
    return (AwaitedTurn(who="the scheduler", text="to try the pod", since=since),)


def _turn_of_driver(
    entry: str, driven: _Driven, context: PodSchedulingContext | None, steps: Sequence[NegotiationTurn]
) -> AwaitedTurn | None:
    claim, who = driven.claim, driven.driver
    if claim.status.deallocation_requested:
        return AwaitedTurn(who=who, text=f"to deallocate claim `{entry}`", since=_last(steps, "asks back", entry))
    if claim.status.allocation is None and claim.spec.allocation_mode == IMMEDIATE:
        created = moment(claim.metadata.creation_timestamp)
        return AwaitedTurn(who=who, text=f"to allocate claim `{entry}`, for which it needs no node", since=created)
    if claim.status.allocation is not None or context is None:
        return None
    refusals, selected = _refusals(context), context.spec.selected_node
    if selected and not any(selected in refused for refused in refusals.values()):
        text = f"to allocate claim `{entry}` for {selected}"
        return AwaitedTurn(who=who, text=text, since=_last(steps, "selects"))
    if entry in refusals:
        return None
    text = f"to say which nodes do not suit claim `{entry}`"
    return AwaitedTurn(who=who, text=text, since=_last(steps, "offers"))


def _last(steps: Sequence[NegotiationTurn], what: What, entry: str = "") -> datetime | None:
    return next((one.at for one in reversed(steps) if one.what == what and (not entry or one.entry == entry)), None)
