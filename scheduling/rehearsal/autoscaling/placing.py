"""Places many pods on an imagined state, with the code that schedules."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from manciple.wire.resources import CLAIMS, Key
from scheduling.allocator import Deadline
from scheduling.cycle.gangs import GangNeed, need_of
from scheduling.queue.reasons import Hold
from scheduling.queue.verdicts import Placement
from scheduling.rehearsal.autoscaling.subjects import SimulatedSubject, group_of
from scheduling.rehearsal.decisions import rehearse
from scheduling.state.cluster import ClusterState

GiveWay = Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectPlacement:
    """Where one pod would go."""

    subject: SimulatedSubject
    placement: Placement

    @property
    def node(self) -> str:
        return self.placement.node


@dataclass(frozen=True, slots=True)
class SubjectRefusal:
    """One that fits nowhere, and what keeps it out; None where it was not tried for lack of time."""

    subject: SimulatedSubject
    hold: Hold | None


@dataclass(slots=True)
class Attempt:
    """What came of trying some pods. `complete`: all of them were tried."""

    placed: list[SubjectPlacement] = field(default_factory=list)
    refused: list[SubjectRefusal] = field(default_factory=list)
    complete: bool = True

    @property
    def left(self) -> list[SimulatedSubject]:
        return [one.subject for one in self.refused]


def place_all(
    state: ClusterState, subjects: Sequence[SimulatedSubject], deadline: Deadline, give_way: GiveWay
) -> Attempt:
    """Place as many as fit, in this order; a placement stays on the state.

    One that was refused is tried again when others were placed after it: it may want to stand beside them.
    """
    placed: list[SubjectPlacement] = []
    waiting = list(subjects)
    while True:
        found = _once(state, waiting, deadline, give_way)
        placed += found.placed
        waiting = found.left
        if not found.placed or not waiting or not found.complete:
            return Attempt(placed, found.refused, found.complete)


def _once(state: ClusterState, subjects: Sequence[SimulatedSubject], deadline: Deadline, give_way: GiveWay) -> Attempt:
    found = Attempt()
    refusals: dict[bytes, Hold] = {}
    for subject in subjects:
        if subject.group in refusals:
            found.refused.append(SubjectRefusal(subject, refusals[subject.group]))
            continue
        give_way()
        if deadline.has_passed:
            found.complete = False
            found.refused.append(SubjectRefusal(subject, None))
            continue
        verdict = _decide(state, subject, refusals)
        if isinstance(verdict, Placement):
            found.placed.append(SubjectPlacement(subject=subject, placement=verdict))
        else:
            found.refused.append(SubjectRefusal(subject, verdict))
    return found


class Gang(NamedTuple):
    """Pods that are to be placed and belong to a gang which needs some of them."""

    need: GangNeed
    members: list[SimulatedSubject]


def gangs_of(state: ClusterState, subjects: Iterable[SimulatedSubject]) -> list[Gang]:
    """As long as none of them is placed."""
    found: dict[Key, Gang] = {}
    for subject in subjects:
        if (need := need_of(state, subject.pod)) is not None:
            found.setdefault(need.group.key, Gang(need, [])).members.append(subject)
    return list(found.values())


def torn_by(
    placed: Iterable[SubjectPlacement], gangs: Iterable[Gang], untried: Collection[Key] = ()
) -> dict[Key, Hold | None]:
    """The pods of gangs of which too few are `placed`, and what they are told: the scheduler would place none.

    None where not all of a gang were tried.
    """
    fits, found = {one.subject.key for one in placed}, dict[Key, Hold | None]()
    for gang in gangs:
        keys = [one.key for one in gang.members]
        hold = gang.need.short_of(sum(key in fits for key in keys))
        if hold is not None:
            found |= dict.fromkeys(keys, None if any(key in untried for key in keys) else hold)
    return found


def _decide(state: ClusterState, subject: SimulatedSubject, refusals: dict[bytes, Hold]) -> Placement | Hold:
    """refusals: what groups of pods were refused."""
    mark = state.overlay.mark()
    for claim in subject.claims:
        state.overlay.imagine(CLAIMS, claim)
    claims = state.pre_filter(subject.pod)
    if not isinstance(claims, Hold):
        subject.group = subject.group or group_of(subject.pod, claims)
        if subject.group not in refusals:
            verdict = rehearse(state, subject.pod)
            if isinstance(verdict, Placement):
                return verdict
            refusals[subject.group] = verdict.hold
        claims = refusals[subject.group]
    state.overlay.undo(mark)
    return claims
