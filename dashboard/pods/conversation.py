"""What the scheduler and the drivers of a pod's claims said to each other about its node (KEP-3063), by the log.

The scheduler offers nodes in the pod's PodSchedulingContext and selects one; drivers answer there which do not suit,
and allocate in the claims. The context goes when the pod has its node: what it was stands in the log for an hour.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal, cast

from claims.classic.kinds import PodSchedulingContext
from claims.classic.ownership import IMMEDIATE, controller_of
from claims.kinds.pods import Pod
from claims.kinds.resource_claims import AllocationResult, ResourceClaim, names_controller
from claims.pod_claims import is_controlled_by, is_done
from dashboard.pods.reading import ClaimLine
from dashboard.whatif.query import named
from inventory.classic.values import ResourceClass
from inventory.kinds import gates
from manciple.pages.durations import duration, moment
from manciple.store import history, objects
from manciple.store.history import Revised
from manciple.store.objects import decoded
from manciple.wire.resources import CLAIMS, CONTEXTS, PODS, RESOURCE_CLASSES, kind

#: Steps and nodes that are shown at once; of more steps the latest, of more nodes the others folded.
STEPS, NODES = 40, 8
#: Who writes before the pod has its node, and who after.
SCHEDULER, CLAIM_CONTROLLER = "Scheduler", "Claim controller"

What = Literal["offers", "selects", "withdraws", "answers", "allocates", "asks back", "gives back", "binds"]
#: What answers it.
_ANSWERS: Mapping[What, tuple[What, ...]] = {
    "offers": ("answers",), "selects": ("allocates",), "asks back": ("gives back",)
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class NegotiationTurn:
    """One thing that somebody said or did.

    took: since what it answers was said, or of what answers nothing since the step before; "" where nothing was, and
    where both are of one write.
    """

    at: datetime
    who: str
    what: What
    text: str
    entry: str = ""
    refuses: bool = False
    took: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitedTurn:
    """Who is to say or do what. since: None where the log does not reach back."""

    who: str
    text: str
    since: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedNode:
    """refused_by: (driver, entry of the claim)."""

    name: str
    selected: bool
    refused_by: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """earlier: whether there were steps before the first that is shown."""

    awaited: tuple[AwaitedTurn, ...]
    nodes: tuple[OfferedNode, ...]
    steps: tuple[NegotiationTurn, ...]
    earlier: bool
    node: str
    lasted: str

    @property
    def shown_nodes(self) -> tuple[OfferedNode, ...]:
        return self.nodes[:NODES]

    @property
    def folded_nodes(self) -> tuple[OfferedNode, ...]:
        return self.nodes[NODES:]

    @property
    def refused(self) -> int:
        return sum(bool(one.refused_by) for one in self.nodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Driven:
    """A claim of the pod that a driver's controller allocates."""

    claim: ResourceClaim
    driver: str


def read_conversation(pod: Pod, lines: Iterable[ClaimLine]) -> Conversation | None:
    """None where no driver's controller has a part in it, which costs no query unless a claim names a class of such."""
    classic = {one.entry: one.claim for one in lines if one.claim is not None and names_controller(one.claim)}
    driven = _driven(classic) if classic else {}
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
        lasted=_took(steps[0].at, ended) if ended and steps[0].at < ended else "",
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


def answered(was: frozenset[str] | None, now: frozenset[str], entry: str) -> Iterator[tuple[str, bool]]:
    """(words, whether it refuses)."""
    if was is None and not now:
        yield f"Refuses no node for claim `{entry}`", False
    if refused := sorted(now - (was or frozenset())):
        yield f"Refuses {in_words(refused)} for claim `{entry}`", True
    if freed := sorted((was or frozenset()) - now):
        yield f"Refuses {in_words(freed)} no longer for claim `{entry}`", False


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


def timed(steps: Iterable[NegotiationTurn], entries: Iterable[str]) -> list[NegotiationTurn]:
    found: list[NegotiationTurn] = []
    asked: dict[tuple[What, str], datetime] = {}
    for one in steps:
        before = found[-1].at if found else one.at
        found.append(replace(one, took=_took(asked.get((one.what, one.entry), before), one.at)))
        for what in _ANSWERS.get(one.what, ()):
            asked |= {(what, entry): one.at for entry in ([one.entry] if one.entry else entries)}
    return found


def _took(began: datetime, ended: datetime) -> str:
    """Drivers answer in milliseconds or in minutes. "" where both were said at once."""
    seconds = (ended - began).total_seconds()
    if seconds < 0.001:  # noqa: PLR2004 - one write said both
        return ""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 10 else duration(seconds)  # noqa: PLR2004 - a digit more while it tells


def in_words(names: Sequence[str]) -> str:
    if len(names) == 1:
        return names[0]
    return f"{len(names)} nodes: {named(names)}"


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
