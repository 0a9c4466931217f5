"""The same (`pods.conversation`) with plugins of KEP-3063's first draft: it stands in the status of the claims."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import cast

from claims.drafts.cdi.values import ALLOCATED, REALLOCATE, ResourceClaim, ResourceClaimStatus
from claims.kinds.pods import Pod, claim_of, listed_resources
from claims.pod_claims import is_done
from dashboard.workloads.pods.conversation import (
    SCHEDULER,
    STEPS,
    AwaitedTurn,
    Conversation,
    NegotiationTurn,
    OfferedNode,
    answered,
    in_words,
    timed,
)
from manciple.durations import moment
from manciple.store import history, objects
from manciple.wire.resources import DRAFT_CLAIMS, kind


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimState:
    """What a claim was from `at` on. refused: by its plugin, of the nodes that it was told of; None: no answer yet."""

    at: datetime
    status: ResourceClaimStatus
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
        status = cast("ResourceClaim", objects.decode(kind(DRAFT_CLAIMS), revised.text)).status
        if status.suitable_nodes != suitable:
            suitable = status.suitable_nodes
            refused = frozenset(status.potential_nodes) - frozenset(suitable) if suitable else None
        yield ClaimState(at=revised.at, status=status, refused=refused)


def draft_conversation(pod: Pod, talks: Mapping[str, tuple[ClaimState, ...]]) -> Conversation:
    """talks: what each claim was, by its entry, the oldest first; before the pod it was about others. PURE."""
    began = moment(pod.metadata.creation_timestamp)
    said = [step for entry, states in talks.items() for step in _steps(entry, states)]
    in_order = sorted((one for one in said if began is None or one.at >= began), key=lambda one: one.at)
    steps = timed(in_order, talks)
    waits = () if pod.spec.node_name or is_done(pod) else tuple(_awaited(talks))
    return Conversation(
        awaited=waits,
        nodes=_nodes({entry: states[-1] for entry, states in talks.items()}),
        steps=tuple(steps[-STEPS:]),
        earlier=len(steps) > STEPS,
        node=pod.spec.node_name,
        lasted="",
    )


def _steps(entry: str, states: Iterable[ClaimState]) -> Iterator[NegotiationTurn]:
    before = ClaimState(at=datetime.min, status=ResourceClaimStatus())  # noqa: DTZ901 - nothing is compared with it
    for after in states:
        yield from _offers(entry, before, after)
        yield from _selections(entry, before, after)
        yield from _phases(entry, before, after)
        before = after


def _offers(entry: str, before: ClaimState, after: ClaimState) -> Iterator[NegotiationTurn]:
    known = before.status.potential_nodes
    if offered := [name for name in after.status.potential_nodes if name not in known]:
        text = f"Offers {in_words(offered)} for claim `{entry}`"
        yield NegotiationTurn(at=after.at, who=SCHEDULER, what="offers", text=text, entry=entry)
    if after.status.suitable_nodes != before.status.suitable_nodes and after.refused is not None:
        for text, refuses in answered(before.refused, after.refused, entry):
            yield NegotiationTurn(
                at=after.at, who=after.plugin, what="answers", text=text, entry=entry, refuses=refuses
            )


def _selections(entry: str, before: ClaimState, after: ClaimState) -> Iterator[NegotiationTurn]:
    was, now = before.status.selected_node, after.status.selected_node
    if now and now != was:
        text = f"Selects {now} for claim `{entry}`"
        yield NegotiationTurn(at=after.at, who=SCHEDULER, what="selects", text=text, entry=entry)
    elif was and not now and before.status.phase == after.status.phase != ALLOCATED:
        who = f"{SCHEDULER} or {after.plugin}"  # a plugin may unset it, and so does the scheduler when the node is gone
        text = f"{was} is selected no longer for claim `{entry}`"
        yield NegotiationTurn(at=after.at, who=who, what="withdraws", text=text, entry=entry, refuses=True)


def _phases(entry: str, before: ClaimState, after: ClaimState) -> Iterator[NegotiationTurn]:
    was, now = before.status.phase, after.status.phase
    if now == was:
        return
    if now == ALLOCATED:
        text = f"Allocates claim `{entry}`"
        yield NegotiationTurn(at=after.at, who=after.plugin, what="allocates", text=text, entry=entry)
    elif now == REALLOCATE:
        text = f"Requests that claim `{entry}` be deallocated"
        yield NegotiationTurn(at=after.at, who=SCHEDULER, what="asks back", text=text, entry=entry)
    elif was in {ALLOCATED, REALLOCATE}:
        text = f"Deallocates claim `{entry}`"
        yield NegotiationTurn(at=after.at, who=after.plugin, what="gives back", text=text, entry=entry)


def _awaited(talks: Mapping[str, tuple[ClaimState, ...]]) -> Iterator[AwaitedTurn]:
    for entry, states in talks.items():
        now = states[-1]
        status = now.status
        if status.phase == REALLOCATE:
            yield AwaitedTurn(who=now.plugin, text=f"to deallocate claim `{entry}`", since=now.at)
        elif status.phase == ALLOCATED:
            continue
        elif status.selected_node:
            text = f"to allocate claim `{entry}` for {status.selected_node}"
            yield AwaitedTurn(who=now.plugin, text=text, since=now.at)
        elif status.potential_nodes and now.refused is None:
            text = f"to say which nodes suit claim `{entry}`"
            yield AwaitedTurn(who=now.plugin, text=text, since=now.at)


def _nodes(now: Mapping[str, ClaimState]) -> tuple[OfferedNode, ...]:
    """As in the other form: the selected one first, then those that may still be selected, then the refused ones."""
    names = {name for one in now.values() for name in (*one.status.potential_nodes, one.status.selected_node)} - {""}
    lines = [
        OfferedNode(
            name=name,
            selected=any(one.status.selected_node == name for one in now.values()),
            refused_by=tuple((one.plugin, entry) for entry, one in now.items() if name in (one.refused or ())),
        )
        for name in names
    ]
    return tuple(sorted(lines, key=lambda one: (not one.selected, bool(one.refused_by), one.name)))
