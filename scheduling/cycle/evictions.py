"""Evicts the victims of a preemption that still helps, as a part of the scheduler's commit (Executor.PreemptPod)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from claims import event_recorder
from claims.causes import messages
from claims.controllers.reservations import deallocated, not_reserved
from claims.event_recorder import EventNote
from claims.kinds.disruption_budgets import disrupted
from claims.kinds.pods import Pod
from claims.kinds.resource_claims import ResourceClaim
from manciple.store.objects import Writer
from manciple.wire.base import timestamp
from manciple.wire.errors import Conflict
from manciple.wire.resources import CLAIMS, EVENTS, PODS, Key, kind
from scheduling.allocator import Deadline
from scheduling.claims import special_claims
from scheduling.claims.extended_resources import owner_uid
from scheduling.cycle.decisions import nominated
from scheduling.cycle.preemption import Asking, OnNode
from scheduling.metrics import PREEMPTION_VICTIMS
from scheduling.state.cluster import ClusterState
from scheduling.state.residents import PlannedEviction, Resident

#: Seconds for a last look at the devices; it is part of the transaction.
RECHECK_SECONDS = 0.5


def still_helps(state: ClusterState, asking: Asking, eviction: PlannedEviction, now: datetime) -> bool:
    """Whether the pod still fits without the victims, and not with them, on a state that has moved on."""
    known = {one.uid: state.residents.get(one.uid) for one in eviction.victims}
    victims = {uid: one for uid, one in known.items() if one is not None and one.node == eviction.node}
    view = state.nodes.view(eviction.node)
    if view is None or len(victims) < len(eviction.victims):
        return False
    others = [one for one in state.residents.on(eviction.node) if one.uid not in victims]
    leaving = {one.uid: one for one in others if state.overlay.is_leaving(one, now)}
    on = OnNode(state, asking, view, snapshot=state.snapshot(), deadline=Deadline.after(RECHECK_SECONDS))
    if any(one.going is not None for one in victims.values()) or on.refusals(leaving | victims):
        return False
    return not victims or bool(on.refusals(leaving))


def withdraw_nomination(writer: Writer, known: Pod) -> None:
    """`known` waits for room that others get. Part of the writer's transaction."""
    pod = writer.get(kind(PODS), *known.key)
    if isinstance(pod, Pod) and pod.metadata.uid == known.metadata.uid and not pod.spec.node_name:
        writer.update(kind(PODS), nominated(pod, ""), subresource="status")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Victim:
    """A victim as it is now."""

    pod: Pod
    claims: tuple[Key, ...]


class PreemptionEvictions:
    """All of one pod: `preemptor`, for which there will be room on `node`.

    One that runs is deleted, with its own grace period, and told why; one that only waits for its devices to be
    attached gives them back and waits for others.
    """

    def __init__(self, writer: Writer, *, preemptor: Pod, node: str, now: datetime) -> None:
        self._writer = writer
        self._preemptor = preemptor
        self._node = node
        self._now = now

    def evict(self, placed: Iterable[Resident]) -> None:
        """All of them, or none. Raises: Conflict when one is gone, or another pod by now."""
        victims = [_Victim(pod=self._read(one), claims=one.claims) for one in placed]
        if victims:
            PREEMPTION_VICTIMS.observe(len(victims))
        self._writer.load(kind(EVENTS), [event_recorder.key_of(self._note(victim.pod)) for victim in victims])
        for victim in victims:
            event_recorder.record(self._writer, self._note(victim.pod), now=self._now)
            if victim.pod.spec.node_name:
                self._delete(victim.pod)
            else:
                self._send_back(victim)

    def _read(self, known: Resident) -> Pod:
        pod = self._writer.get(kind(PODS), known.namespace, known.name)
        if isinstance(pod, Pod) and pod.metadata.uid == known.uid and pod.metadata.deletion_timestamp is None:
            return pod
        raise Conflict.of(PODS, known.name, "the pod has changed in the meantime")

    def _delete(self, pod: Pod) -> None:
        scheduler = self._preemptor.spec.scheduler_name or messages.SCHEDULER_NAME
        message = f"{scheduler}: preempting to accommodate a higher priority pod"
        told = disrupted(pod, reason="PreemptionByScheduler", message=message, now=timestamp(self._now))
        self._writer.delete(kind(PODS), *pod.key, uid=pod.metadata.uid, told=told)

    def _send_back(self, victim: _Victim) -> None:
        pod = special_claims.without_claim(victim.pod)
        self._writer.update(kind(PODS), nominated(pod, ""), subresource="status")
        for key in victim.claims:
            claim = self._writer.get(kind(CLAIMS), *key)
            if isinstance(claim, ResourceClaim) and owner_uid(claim) == victim.pod.metadata.uid:
                special_claims.give_back(self._writer, claim)
            elif isinstance(claim, ResourceClaim):
                kept = not_reserved(claim, victim.pod.metadata.uid)
                self._writer.update(kind(CLAIMS), kept if kept.status.reserved_for else deallocated(claim))

    def _note(self, pod: Pod) -> EventNote:
        return EventNote(
            regarding=pod,
            reason="Preempted",
            message=f"Preempted by pod {self._preemptor.metadata.uid} on node {self._node}",
            component=messages.SCHEDULER_NAME,
            action="Preempting",
            related=self._preemptor,
        )
