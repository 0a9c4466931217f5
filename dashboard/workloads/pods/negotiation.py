"""How the scheduler and the drivers of a pod's claims agreed on its node (KEP-3063 and its first draft).

Read from the log of changes, which keeps each version of an object for an hour. Classic DRA: the scheduler offers nodes
in the pod's PodSchedulingContext and selects one; drivers answer there with the nodes that do not suit, and allocate in
the claims. First draft: all of that is in the status of the claims of cdi.k8s.io.

Imported only for pods with such claims (`queries.read_conversation`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple, cast

from claims.classic.kinds import PodSchedulingContext
from claims.classic.ownership import controller_of
from claims.drafts.cdi.values import ALLOCATED, REALLOCATE
from claims.drafts.cdi.values import ResourceClaim as DraftClaim
from claims.drafts.cdi.values import ResourceClaimStatus as DraftStatus
from claims.kinds.pods import Pod, claim_of, listed_resources
from claims.kinds.resource_claims import IMMEDIATE, ResourceClaim
from claims.pod_claims import is_controlled_by, is_done
from dashboard.templatetags.kit import joined
from dashboard.workloads.pods.queries import AwaitedTurn, Conversation, NegotiationTurn, OfferedNode, Step
from inventory.classic.values import ResourceClass
from inventory.kinds import gates
from manciple.durations import duration, moment
from manciple.store import history, objects
from manciple.store.history import Revised
from manciple.store.objects import decoded
from manciple.wire.resources import CLAIMS, CONTEXTS, DRAFT_CLAIMS, PODS, RESOURCE_CLASSES, kind

#: Steps that are shown, the latest; nodes that a step names.
STEPS, NAMED = 40, 4
#: The author of our writes before the pod has its node, and after.
SCHEDULER, CLAIM_CONTROLLER = "Scheduler", "Claim controller"
#: step -> the steps that answer it
_ANSWERS: Mapping[Step, tuple[Step, ...]] = {
    "offers": ("answers",), "selects": ("allocates",), "asks back": ("gives back",)
}  # fmt: skip


def answered(was: frozenset[str] | None, now: frozenset[str], entry: str) -> Iterator[tuple[str, bool]]:
    """(words, whether it refuses). was: None before the first answer."""
    if was is None and not now:
        yield f"Refuses no node for claim `{entry}`", False
    if refused := sorted(now - (was or frozenset())):
        yield f"Refuses {_nodes_in_words(refused)} for claim `{entry}`", True
    if freed := sorted((was or frozenset()) - now):
        yield f"Refuses {_nodes_in_words(freed)} no longer for claim `{entry}`", False


def _nodes_in_words(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{len(names)} nodes: {joined(names, NAMED)}"


def timed(pod: Pod, steps: Iterable[NegotiationTurn], entries: Iterable[str]) -> list[NegotiationTurn]:
    """The steps since the pod was created, in order, each with the time that it took."""
    began = moment(pod.metadata.creation_timestamp)
    in_order = sorted((one for one in steps if began is None or one.at >= began), key=lambda one: one.at)
    done: list[NegotiationTurn] = []
    asked: dict[tuple[Step, str], datetime] = {}
    for one in in_order:
        before = done[-1].at if done else one.at
        done.append(replace(one, took=took(asked.get((one.what, one.entry), before), one.at)))
        for what in _ANSWERS.get(one.what, ()):
            asked |= {(what, entry): one.at for entry in ([one.entry] if one.entry else entries)}
    return done


def took(began: datetime, ended: datetime) -> str:
    """Drivers answer in milliseconds or in minutes. "" if one write was both."""
    seconds = (ended - began).total_seconds()
    if seconds < 0.001:  # noqa: PLR2004 - one write was both
        return ""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 10 else duration(seconds)  # noqa: PLR2004 - a decimal while it matters


def _in_order(nodes: Iterable[OfferedNode]) -> tuple[OfferedNode, ...]:
    """The selected node first, then those that may still be selected, then the refused ones."""
    return tuple(sorted(nodes, key=lambda one: (not one.selected, bool(one.refused_by), one.name)))


class _Driven(NamedTuple):
    """A claim of the pod that the controller of a driver allocates."""

    claim: ResourceClaim
    driver: str


def read_classic_conversation(pod: Pod, classic: Mapping[str, ResourceClaim]) -> Conversation | None:
    """classic: by entry, the claims that name a driver's controller or a resource class.

    None if the scheduler allocates all of them.
    """
    names = {("", one.spec.resource_class_name) for one in classic.values() if one.spec.resource_class_name}
    classes = {one.name: decoded(one, ResourceClass) for one in objects.get_many(kind(RESOURCE_CLASSES), names)}
    driven: dict[str, _Driven] = {}
    for entry, claim in classic.items():
        allocated_by = claim.status.allocation.controller_name if claim.status.allocation else ""
        if driver := allocated_by or controller_of(claim, classes.get(claim.spec.resource_class_name)):
            driven[entry] = _Driven(claim, driver)
    if not driven:
        return None
    binding = _binding(pod)
    contexts = _contexts(pod, binding)
    bound = binding.at if binding else None
    steps = [*_of_contexts(contexts, driven, bound)]
    for entry, one in driven.items():
        steps += _of_claim(entry, one, bound)
    if binding:
        who = SCHEDULER if binding.type != "ADDED" else "The pod's author"
        steps.append(
            NegotiationTurn(at=binding.at, who=who, what="binds", text=f"Binds the pod to {pod.spec.node_name}")
        )
    steps = timed(pod, steps, driven)
    context = _context(contexts[-1]) if contexts else None
    nodes = _classic_nodes(context, driven)
    ended = next((one.at for one in steps if one.what == "binds"), None)
    return Conversation(
        awaited=_classic_awaited(pod, driven, context, nodes, steps),
        nodes=nodes,
        steps=tuple(steps[-STEPS:]),
        earlier=len(steps) > STEPS or (bool(contexts) and contexts[0].type != "ADDED"),
        node=pod.spec.node_name,
        lasted=took(steps[0].at, ended) if ended and steps[0].at < ended else "",
    )


def _binding(pod: Pod) -> Revised | None:
    """The write that gave the pod its node; None if the log begins later."""
    if not pod.spec.node_name:
        return None
    revisions = history.of_object(pod.metadata.uid)
    bound = [bool(cast("Pod", objects.decode(kind(PODS), one.text)).spec.node_name) for one in revisions]
    if not bound or (bound[0] and revisions[0].type != "ADDED"):
        return None
    return next((one for one, has_node in zip(revisions, bound, strict=True) if has_node), None)


def _contexts(pod: Pod, binding: Revised | None) -> list[Revised]:
    """The versions of the pod's context, the oldest first. It is deleted when the pod has its node."""
    stored = objects.get(kind(CONTEXTS), *pod.key)
    if stored is not None:
        versions = history.of_object(stored.uid)
    else:
        versions = history.of_gone(CONTEXTS, *pod.key, near=binding.revision) if binding is not None else []
    return versions if versions and is_controlled_by(_context(versions[-1]).metadata, pod) else []


def _context(one: Revised) -> PodSchedulingContext:
    return cast("PodSchedulingContext", objects.decode(kind(CONTEXTS), one.text))


def _our_side(at: datetime, bound: datetime | None) -> str:
    return CLAIM_CONTROLLER if bound is not None and at > bound else SCHEDULER


def _of_contexts(
    contexts: Sequence[Revised], driven: Mapping[str, _Driven], bound: datetime | None
) -> Iterator[NegotiationTurn]:
    before: PodSchedulingContext | None = None
    for revised in contexts:
        after, at = _context(revised), revised.at
        if revised.type == "DELETED" or (before is None and revised.type != "ADDED"):
            before = after
            continue
        us = _our_side(at, bound)
        offered_before = before.spec.potential_nodes if before else ()
        if offered := [name for name in after.spec.potential_nodes if name not in offered_before]:
            yield NegotiationTurn(at=at, who=us, what="offers", text=f"Offers {_nodes_in_words(offered)}")
        was, now = before.spec.selected_node if before else "", after.spec.selected_node
        if now and now != was:
            text = f"Selects {now}" + (f" in place of {was}" if was else "")
            yield NegotiationTurn(at=at, who=us, what="selects", text=text)
        elif was and not now:
            yield NegotiationTurn(at=at, who=us, what="withdraws", text=f"Selects {was} no longer")
        refused_before = _refusals(before)
        for entry, refused in _refusals(after).items():
            if refused == refused_before.get(entry):
                continue
            who = driven[entry].driver if entry in driven else f"driver of {entry}"
            for text, refuses in answered(refused_before.get(entry), refused, entry):
                yield NegotiationTurn(at=at, who=who, what="answers", text=text, entry=entry, refuses=refuses)
        before = after


def _refusals(context: PodSchedulingContext | None) -> dict[str, frozenset[str]]:
    answers = context.status.resource_claims if context else ()
    return {one.name: frozenset(one.unsuitable_nodes) for one in answers}


def _of_claim(entry: str, driven: _Driven, bound: datetime | None) -> Iterator[NegotiationTurn]:
    before: ResourceClaim | None = None
    for revised in history.of_object(driven.claim.metadata.uid):
        after = cast("ResourceClaim", objects.decode(kind(CLAIMS), revised.text))
        if before is not None:
            had, has, at = before.status.allocation, after.status.allocation, revised.at
            if has is not None and had is None:
                where = ", for every node"
                if has.node_selector is not None:
                    terms = has.node_selector.node_selector_terms
                    names = [name for term in terms for field in term.match_fields for name in field.values]
                    where = f" for {joined(names, NAMED)}" if names else ""
                text = f"Allocates claim `{entry}`{where}"
                yield NegotiationTurn(at=at, who=driven.driver, what="allocates", text=text, entry=entry)
            if after.status.deallocation_requested and not before.status.deallocation_requested:
                text = f"Requests that claim `{entry}` be deallocated"
                yield NegotiationTurn(at=at, who=_our_side(at, bound), what="asks back", text=text, entry=entry)
            if had is not None and has is None:
                text = f"Deallocates claim `{entry}`"
                yield NegotiationTurn(at=at, who=driven.driver, what="gives back", text=text, entry=entry)
        before = after


def _classic_nodes(context: PodSchedulingContext | None, driven: Mapping[str, _Driven]) -> tuple[OfferedNode, ...]:
    if context is None:
        return ()
    refusals, selected = _refusals(context), context.spec.selected_node
    names = {*context.spec.potential_nodes, *frozenset().union(*refusals.values()), selected} - {""}
    return _in_order(
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
    )


def _classic_awaited(
    pod: Pod,
    driven: Mapping[str, _Driven],
    context: PodSchedulingContext | None,
    nodes: Sequence[OfferedNode],
    steps: Sequence[NegotiationTurn],
) -> tuple[AwaitedTurn, ...]:
    """Nothing for a pod that has all it needs, or while the feature gate is off and nobody can answer."""
    if is_done(pod) or not gates.enabled(gates.CONTROL_PLANE_CONTROLLER):
        return ()
    turns = tuple(turn for entry, one in driven.items() if (turn := _turn_of_driver(entry, one, context, steps)))
    if turns or pod.spec.node_name:
        return turns
    since = steps[-1].at if steps else None
    if nodes and all(one.refused_by for one in nodes):
        who = ", ".join(sorted({driver for one in nodes for driver, _ in one.refused_by}))
        return (AwaitedTurn(who=who, text="to accept a node: it refused all", since=since),)
    return (AwaitedTurn(who="the scheduler", text="to try the pod", since=since),)


def _turn_of_driver(
    entry: str, driven: _Driven, context: PodSchedulingContext | None, steps: Sequence[NegotiationTurn]
) -> AwaitedTurn | None:
    def last(what: Step, entry: str = "") -> datetime | None:
        return next((one.at for one in reversed(steps) if one.what == what and entry in ("", one.entry)), None)

    claim, who = driven
    if claim.status.deallocation_requested:
        return AwaitedTurn(who=who, text=f"to deallocate claim `{entry}`", since=last("asks back", entry))
    if claim.status.allocation is None and claim.spec.allocation_mode == IMMEDIATE:
        created = moment(claim.metadata.creation_timestamp)
        return AwaitedTurn(who=who, text=f"to allocate claim `{entry}`, for which it needs no node", since=created)
    if claim.status.allocation is not None or context is None:
        return None
    refusals, selected = _refusals(context), context.spec.selected_node
    if selected and not any(selected in refused for refused in refusals.values()):
        return AwaitedTurn(who=who, text=f"to allocate claim `{entry}` for {selected}", since=last("selects"))
    if entry in refusals:
        return None
    return AwaitedTurn(who=who, text=f"to say which nodes do not suit claim `{entry}`", since=last("offers"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimState:
    """A claim from `at` on. refused: by its plugin, of the nodes offered to it; None: no answer yet."""

    at: datetime
    status: DraftStatus
    refused: frozenset[str] | None = None

    @property
    def plugin(self) -> str:
        return self.status.plugin_name or "its plugin"


def read_draft_conversation(pod: Pod) -> Conversation | None:
    """None for a pod that lists no resources. One query, and one for each of its claims."""
    entries = {claim_of(pod, entry): entry.name for entry in listed_resources(pod)}
    if not entries:
        return None
    stored = objects.get_many(kind(DRAFT_CLAIMS), [(pod.metadata.namespace, name) for name in entries])
    talks = {entries[one.name]: tuple(_states(one.uid)) for one in stored}
    return draft_conversation(pod, {entry: states for entry, states in talks.items() if states})


def _states(uid: str) -> Iterator[ClaimState]:
    refused, suitable = None, tuple[str, ...]()
    for revised in history.of_object(uid):
        status = cast("DraftClaim", objects.decode(kind(DRAFT_CLAIMS), revised.text)).status
        if status.suitable_nodes != suitable:
            suitable = status.suitable_nodes
            refused = frozenset(status.potential_nodes) - frozenset(suitable) if suitable else None
        yield ClaimState(at=revised.at, status=status, refused=refused)


def draft_conversation(pod: Pod, talks: Mapping[str, tuple[ClaimState, ...]]) -> Conversation:
    """talks: entry -> the states of its claim, the oldest first; those before the pod was created are ignored. PURE."""
    steps = timed(pod, (step for entry, states in talks.items() for step in _draft_steps(entry, states)), talks)
    current = {entry: states[-1] for entry, states in talks.items()}
    names = {name for one in current.values() for name in (*one.status.potential_nodes, one.status.selected_node)}
    return Conversation(
        awaited=() if pod.spec.node_name or is_done(pod) else tuple(_draft_awaited(current)),
        nodes=_in_order(
            OfferedNode(
                name=name,
                selected=any(one.status.selected_node == name for one in current.values()),
                refused_by=tuple((one.plugin, entry) for entry, one in current.items() if name in (one.refused or ())),
            )
            for name in names - {""}
        ),
        steps=tuple(steps[-STEPS:]),
        earlier=len(steps) > STEPS,
        node=pod.spec.node_name,
    )


def _draft_steps(entry: str, states: Iterable[ClaimState]) -> Iterator[NegotiationTurn]:
    before = ClaimState(at=datetime.min, status=DraftStatus())  # noqa: DTZ901 - nothing is compared with it
    for after in states:
        was, now, at = before.status, after.status, after.at

        def turn(who: str, what: Step, text: str, *, refuses: bool = False, at: datetime = at) -> NegotiationTurn:
            return NegotiationTurn(at=at, who=who, what=what, text=text, entry=entry, refuses=refuses)

        if offered := [name for name in now.potential_nodes if name not in was.potential_nodes]:
            yield turn(SCHEDULER, "offers", f"Offers {_nodes_in_words(offered)} for claim `{entry}`")
        if now.suitable_nodes != was.suitable_nodes and after.refused is not None:
            for text, refuses in answered(before.refused, after.refused, entry):
                yield turn(after.plugin, "answers", text, refuses=refuses)
        if now.selected_node and now.selected_node != was.selected_node:
            yield turn(SCHEDULER, "selects", f"Selects {now.selected_node} for claim `{entry}`")
        elif was.selected_node and not now.selected_node and was.phase == now.phase != ALLOCATED:
            # A plugin may unset it, and so does the scheduler when the node is gone.
            text = f"{was.selected_node} is selected no longer for claim `{entry}`"
            yield turn(f"{SCHEDULER} or {after.plugin}", "withdraws", text, refuses=True)
        if now.phase != was.phase:
            if now.phase == ALLOCATED:
                yield turn(after.plugin, "allocates", f"Allocates claim `{entry}`")
            elif now.phase == REALLOCATE:
                yield turn(SCHEDULER, "asks back", f"Requests that claim `{entry}` be deallocated")
            elif was.phase in {ALLOCATED, REALLOCATE}:
                yield turn(after.plugin, "gives back", f"Deallocates claim `{entry}`")
        before = after


def _draft_awaited(current: Mapping[str, ClaimState]) -> Iterator[AwaitedTurn]:
    for entry, state in current.items():
        status, text = state.status, ""
        if status.phase == REALLOCATE:
            text = f"to deallocate claim `{entry}`"
        elif status.phase == ALLOCATED:
            continue
        elif status.selected_node:
            text = f"to allocate claim `{entry}` for {status.selected_node}"
        elif status.potential_nodes and state.refused is None:
            text = f"to say which nodes suit claim `{entry}`"
        if text:
            yield AwaitedTurn(who=state.plugin, text=text, since=state.at)
