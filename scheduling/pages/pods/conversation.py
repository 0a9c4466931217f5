"""What scheduler and drivers' controllers have said to each other about a pod's node (KEP-3063), turn by turn.

It is read out of the log: each state of the pod's PodSchedulingContext, and of the claims since that was made, beside
the one before it. The log forgets, so the beginning may be missing. Once the pod has its node the context is gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import cast

from claims.classic.kinds import PodSchedulingContext, PodSchedulingContextSpec, PodSchedulingContextStatus
from claims.classic.ownership import controller_of, is_on
from claims.kinds.pods import Pod
from claims.kinds.resource_claims import ResourceClaim, names_controller
from inventory.classic.values import ResourceClass
from manciple.store import history, objects
from manciple.store.objects import decoded
from scheduling.classic.negotiation import is_of
from scheduling.pages.whatif.query import named
from scheduling.pod_claims import references
from scheduling.resources import CLAIMS, CONTEXTS, RESOURCE_CLASSES, kind

SCHEDULER = "Scheduler"
UNKNOWN = "A driver"


@dataclass(frozen=True, slots=True, kw_only=True)
class NegotiationTurn:
    """One thing that one of them said. after: seconds since the scheduler had asked, of an answer."""

    at: datetime
    speaker: str
    says: str
    after: float | None = None
    refuses: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """What a driver was asked and has not done. since: when it was asked, as far as the log tells."""

    since: datetime
    speaker: str
    says: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """The oldest turn first."""

    turns: tuple[NegotiationTurn, ...]
    waits: tuple[Wait, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NegotiatedClaim:
    """A claim of the pod. entry: of its spec.resourceClaims."""

    entry: str
    driver: str
    claim: ResourceClaim


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A state that was written: of the context, or of the claim of an entry."""

    revision: int
    at: datetime
    context: PodSchedulingContext | None = None
    entry: str = ""
    claim: ResourceClaim | None = None


def read_conversation(pod: Pod) -> Conversation | None:
    """None where nothing is said about the pod. Four queries, and one for each of its claims that drivers allocate."""
    stored = objects.get(kind(CONTEXTS), *pod.key) if is_on() else None
    if stored is None or not is_of(context := decoded(stored, PodSchedulingContext), pod):
        return None
    said = [
        Said(
            revision=one.revision,
            at=one.at,
            context=cast("PodSchedulingContext", objects.decode(kind(CONTEXTS), one.text)),
        )
        for one in history.of_object(context.metadata.uid)
    ]
    claims = _claims_of(pod)
    for one in claims:
        said += _states(one)
    return conversation(sorted(said, key=lambda state: state.revision), claims)


def _claims_of(pod: Pod) -> list[NegotiatedClaim]:
    namespace = pod.metadata.namespace
    entries = {one.claim: one.entry for one in references(pod) if one.claim}
    found = objects.get_many(kind(CLAIMS), [(namespace, name) for name in entries])
    claims = [claim for one in found if names_controller(claim := decoded(one, ResourceClaim))]
    names = {claim.spec.resource_class_name for claim in claims} - {""}
    stored = objects.get_many(kind(RESOURCE_CLASSES), [("", name) for name in names])
    classes = {one.name: decoded(one, ResourceClass) for one in stored}
    made = [
        NegotiatedClaim(
            entry=entries[claim.metadata.name],
            driver=controller_of(claim, classes.get(claim.spec.resource_class_name)),
            claim=claim,
        )
        for claim in claims
    ]
    return sorted((one for one in made if one.driver), key=lambda one: one.entry)


def _states(one: NegotiatedClaim) -> Iterator[Said]:
    for state in history.of_object(one.claim.metadata.uid):
        claim = cast("ResourceClaim", objects.decode(kind(CLAIMS), state.text))
        yield Said(revision=state.revision, at=state.at, entry=one.entry, claim=claim)


# As turns ------------------------------------------------------------------------------------------------------------


def conversation(said: Iterable[Said], claims: Iterable[NegotiatedClaim]) -> Conversation:
    """said: in their order. PURE."""
    hearing = _Hearing({one.entry: one.driver for one in claims})
    for state in said:
        hearing.hear(state)
    return Conversation(turns=tuple(hearing.turns), waits=tuple(hearing.waits(claims)))


class _Hearing:
    def __init__(self, drivers: Mapping[str, str]) -> None:
        self.turns: list[NegotiationTurn] = []
        self._drivers = drivers
        self._begun = False
        self._spec = PodSchedulingContextSpec()
        self._answers: dict[str, frozenset[str]] = {}
        self._allocated: dict[str, ResourceClaim] = {}
        self._offered: datetime | None = None
        self._selected: datetime | None = None

    def hear(self, state: Said) -> None:
        if state.context is not None:
            self._begun = True
            self._hear_scheduler(state.at, state.context.spec)
            self._hear_answers(state.at, state.context.status)
        elif state.claim is not None:
            self._hear_claim(state.at, state.entry, state.claim)

    def _hear_scheduler(self, at: datetime, spec: PodSchedulingContextSpec) -> None:
        known = frozenset(self._spec.potential_nodes)
        if new := [node for node in spec.potential_nodes if node not in known]:
            self._offered = at
            self.turns.append(NegotiationTurn(at=at, speaker=SCHEDULER, says=f"asks about {_nodes(new)}"))
        if spec.selected_node != self._spec.selected_node:
            self._selected = at if spec.selected_node else None
            says = f"selects `{spec.selected_node}`" if spec.selected_node else "selects no node any more"
            self.turns.append(NegotiationTurn(at=at, speaker=SCHEDULER, says=says))
        self._spec = spec

    def _hear_answers(self, at: datetime, status: PodSchedulingContextStatus) -> None:
        for answer in status.resource_claims:
            known, refused = self._answers.get(answer.name), frozenset(answer.unsuitable_nodes)
            if refused != known:
                for says, refuses in _answered(known, refused):
                    self._answer(at, answer.name, f"{says} for claim `{answer.name}`", self._offered, refuses=refuses)
            self._answers[answer.name] = refused

    def _hear_claim(self, at: datetime, entry: str, claim: ResourceClaim) -> None:
        before, status = self._allocated.pop(entry, None), claim.status
        if status.allocation is not None:
            self._allocated[entry] = claim
            if not self._begun:
                return  # that is from another pod's time
            if before is None:
                self._answer(at, entry, f"has allocated claim `{entry}`", self._selected)
            elif status.deallocation_requested and not before.status.deallocation_requested:
                self.turns.append(
                    NegotiationTurn(at=at, speaker=SCHEDULER, says=f"asks for claim `{entry}` to be deallocated")
                )
        elif before is not None:
            self._answer(at, entry, f"has deallocated claim `{entry}`", None)

    def _answer(self, at: datetime, entry: str, says: str, asked: datetime | None, *, refuses: bool = False) -> None:
        after = (at - asked).total_seconds() if asked else None
        speaker = self._drivers.get(entry, UNKNOWN)
        self.turns.append(NegotiationTurn(at=at, speaker=speaker, says=says, after=after, refuses=refuses))

    def waits(self, claims: Iterable[NegotiatedClaim]) -> Iterator[Wait]:
        for one in claims:
            status, node = one.claim.status, self._spec.selected_node
            if status.allocation is not None:
                continue
            if self._selected and node not in self._answers.get(one.entry, ()):
                says = f"is to allocate claim `{one.entry}` for `{node}`"
                yield Wait(since=self._selected, speaker=one.driver, says=says)
            elif self._offered and one.entry not in self._answers:
                says = f"is to say which nodes do not suit claim `{one.entry}`"
                yield Wait(since=self._offered, speaker=one.driver, says=says)


def _answered(known: frozenset[str] | None, refused: frozenset[str]) -> Iterator[tuple[str, bool]]:
    """(what is said, whether it refuses nodes)."""
    before = known or frozenset()
    if new := sorted(refused - before):
        yield f"refuses {_nodes(new)}", True
    if taken_back := sorted(before - refused):
        yield f"no longer refuses {_nodes(taken_back)}", False
    if known is None and not refused:
        yield "refuses no node", False


def _nodes(names: list[str]) -> str:
    listed = named([f"`{name}`" for name in names])
    return f"node {listed}" if len(names) == 1 else f"nodes {listed}"
