"""Which few pods would have to move so that a pod, or a gang, that waits can start: rehearsed, never estimated.

    with apart() as copy, imagined():
        moves = MoveRehearsal(copy, now=now, deadline=deadline)
        plan = moves.plan(pod)                # the cheapest that was found; None where there is none
        plan = moves.verified(pod, victims)   # whether these very moves still do it: a plan, or why not

A move is an eviction: the pod ends, its controller creates a replacement, and that finds another place. So a pod is
moved only where a controller owns it, where its claims are its own and go with it, and where its replacement was placed
in the rehearsal, by the code that schedules, after the waiting pod. No pod moves for a less important one, nor one that
a disruption budget keeps: all moves of a plan count against it.

On a node where only pods are in the way, all that may move are removed first, and put back as long as the waiting pod
still fits, as for preemption (`scheduling.cycle.post_filter`): those that stay away are tried. The plan with the fewest
moves is chosen, then the one that moves the least important, then the fewest devices. Bounds: `MOST` moves in a plan,
`NODES` nodes for each pod, `TRIED` waiting pods that are tried behind it. A plan that is found works; the search may
miss one.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime

from msgspec import structs

from claims.causes.causes import CannotAllocate, OfNode
from claims.kinds.pods import Pod, PodResourceClaim, PodStatus
from claims.kinds.resource_claims import EXTENDED_CLAIM_ANNOTATION, ResourceClaim, ResourceClaimStatus
from claims.pod_claims import has_group, is_done, may_be_negotiated, references
from manciple.store import objects
from manciple.store.objects import decoded
from manciple.wire.resources import CLAIMS, PODS, Key, kind
from scheduling.allocator import Deadline
from scheduling.claims.readiness import PodRequest, request_of
from scheduling.cycle import post_filter
from scheduling.cycle.gangs import TopologyDomain, need_of, to_try
from scheduling.cycle.post_filter import OnNode, Supply, can_pass, gist_of
from scheduling.cycle.scheduler import decide
from scheduling.queue.reasons import Hold
from scheduling.queue.verdicts import Placement, Verdict, nominated
from scheduling.rehearsal.decisions import WaitingPods
from scheduling.rehearsal.departures import StartedPod, queue_order
from scheduling.rehearsal.explanations import Apart
from scheduling.rehearsal.workload import IMAGINED
from scheduling.state.budgets import ImaginedEvictions, KeptPod, room_in
from scheduling.state.nodes import Resident, cost_of, fewest_of

#: Moves in one plan, nodes that are emptied in thought for one pod, pods of a node that are tried alone.
MOST, NODES, ALONE = 4, 24, 16
#: Waiting pods that are tried once a plan is found.
TRIED = 200


#: The annotation by which a pod keeps its node, or does not. Source: cluster-autoscaler, simulator/drainability.
SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One pod that is evicted; its replacement would be on `target`, with `devices`.

    budget: the disruption budget that counts it, and how many that lets go now; None where none does.
    """

    pod: Pod
    target: str
    devices: tuple[str, ...] = ()
    budget: tuple[str, int] | None = None

    @property
    def source(self) -> str:
        return self.pod.spec.node_name

    @property
    def owner(self) -> str:
        """`ReplicaSet web`: what creates it again."""
        return next((f"{one.kind} {one.name}" for one in self.pod.metadata.owner_references if one.controller), "")


#: (moves, highest priority, sum of the priorities, devices, when the earliest of the most important started, negated)
MoveCost = tuple[int, int, int, int, float]


def cost_of_moves(pods: Sequence[Resident], devices: int) -> MoveCost:
    highest, total, number, started = cost_of(pods)
    return number, highest, total, devices, started


@dataclass(frozen=True, slots=True, kw_only=True)
class MovePlan:
    """What moves, and what starts then: `subject` (of a gang, all of it), for which it is made, and `others`."""

    subject: tuple[StartedPod, ...]
    moves: tuple[Move, ...]
    others: tuple[StartedPod, ...] = ()
    gang: str = ""

    @property
    def cost(self) -> MoveCost:
        """Less is better."""
        devices = sum(len(one.devices) for one in self.moves)
        return cost_of_moves([Resident.of(one.pod, one.source) for one in self.moves], devices)

    @property
    def victims(self) -> frozenset[str]:
        """The uids of the pods that move."""
        return frozenset(one.pod.metadata.uid for one in self.moves)


def why_it_stays(pod: Pod, claims: Iterable[ResourceClaim | None]) -> str:
    """Why a pod with a place is never moved; "" for one that may be. claims: those that it uses, None for unknown."""
    meta, used = pod.metadata, list(claims)
    owner = next((one.kind for one in meta.owner_references if one.controller), "")
    running = bool(pod.spec.node_name) and not is_done(pod) and meta.deletion_timestamp is None
    shared = any(one is None or any(user.uid != meta.uid for user in one.status.reserved_for) for one in used)
    reasons = (
        (not running, "it is not running"),
        (not owner, "nothing would create it again: no controller owns it"),
        (owner in ("DaemonSet", "Node"), f"a {owner} keeps it on its node"),
        (meta.annotations.get(SAFE_TO_EVICT) == "false", f"its annotation {SAFE_TO_EVICT} says so"),
        (has_group(pod), "its gang would lose it"),
        # Whoever comes in its place may share the claim before it is released, and be kept where it is.
        (any(one.claim and not one.generated for one in references(pod)), "it names a claim that keeps its devices"),
        (shared, "others use its claims"),
        (may_be_negotiated(pod, [one for one in used if one]), "a driver decides where its claims may be"),
    )
    return next((why for holds, why in reasons if holds), "")


# The rehearsal --------------------------------------------------------------------------------------------------------


def stored_pods(keys: Iterable[Key]) -> Iterator[Pod]:
    """One query."""
    return (decoded(one, Pod) for one in objects.get_many(kind(PODS), keys))


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A node, and how many have to leave it, at least."""

    name: str
    number: int
    leaving: Mapping[str, Resident]
    placed: Mapping[str, Resident]


@dataclass(slots=True)
class _Room:
    """What was decided for one pod: its place, and the moves that make it."""

    placement: Placement
    moves: list[Move]


@dataclass(slots=True)
class MoveRehearsal:
    """See the module's docstring. Nothing is left on the copy after a call."""

    copy: Apart
    now: datetime
    deadline: Deadline
    read_pods: Callable[[Iterable[Key]], Iterable[Pod]] = stored_pods
    #: whether a pod that asks for the same would find a place now
    _finds: dict[Hashable, bool] = field(default_factory=dict)
    #: the pods that move by the part of a plan that is made already
    _moving: tuple[Pod, ...] = ()

    def plan(self, pod: Pod) -> MovePlan | None:
        """The cheapest that was found; None also for a pod that would start without."""
        with self._taken_back():
            if pod.status.nominated_node_name and not has_group(pod):  # its own room is not to be in its way
                bare = nominated(pod, "")
                self.copy.state.overlay.imagine(PODS, bare, instead_of=pod)
                return self._planned(bare)
            return self._planned(pod)

    def verified(self, pod: Pod, victims: Sequence[Pod], gone: Iterable[str] = ()) -> MovePlan | str:
        """What comes of moving these, or what stands against it. gone: the uids of those that are evicted already."""
        state, done = self.copy.state, set(gone)
        if pod.metadata.uid not in state.pending:
            return "the pod does not wait any more"
        # Of those that are gone by now their controllers have made others, which count as what they are.
        victims = [one for one in victims if one.metadata.uid not in done or state.residents.get(one.metadata.uid)]
        there = {one.metadata.uid for one in victims}
        for one in victims:
            if one.metadata.uid not in done and (why := why_it_stays(one, self._claims_of(one).values())):
                return f"pod {one.metadata.namespace}/{one.metadata.name} does not move: {why}"
        for kept in self._kept([one for one in victims if one.metadata.uid not in done]):
            return f"pod {kept.pod.metadata.namespace}/{kept.pod.metadata.name} does not move: {kept.why}"
        with self._taken_back():
            again = self._emptied(victims)
            subject, gang = self._placed(pod)
            if not subject:
                return "these moves would no longer start the pod"
            moves = self._found_again(victims, again, done)
            if isinstance(moves, str):
                return moves
            return MovePlan(subject=subject, gang=gang, moves=tuple(moves), others=self._others(subject, there))

    # A plan ----------------------------------------------------------------------------------------------------------

    def _planned(self, pod: Pod) -> MovePlan | None:
        members, lacks, gang, domain = [pod], 1, "", None
        if has_group(pod):
            if self.copy.state.groups.hold(pod) is not None:
                return None
            if (need := need_of(self.copy.state, pod)) is not None:
                members, lacks, gang = list(to_try(self.copy.state, need.group, pod)), need.lacks, need.name
                with self._taken_back():
                    _, places = self._queue().gang(need, tuple(members))
                if places is None or places.whole:
                    return None
                domain = places.domain
        rooms: list[_Room] = []
        for one in members:
            self._moving = tuple(move.pod for room in rooms for move in room.moves)
            left = MOST - len(self._moving)
            if len(rooms) < lacks and (room := self._room(one, domain, left)) is not None:
                rooms.append(room)
        moves = [move for room in rooms for move in room.moves]
        if len(rooms) < lacks or not moves:
            return None
        subject = tuple(_started(room.placement) for room in rooms)
        moving = {move.pod.metadata.uid for move in moves}
        return MovePlan(subject=subject, gang=gang, moves=tuple(moves), others=self._others(subject, moving))

    def _room(self, pod: Pod, domain: TopologyDomain | None, left: int) -> _Room | None:
        """Its place, with moves where it has none; kept on the state."""
        verdict = self._decide(pod, domain)
        if isinstance(verdict, Placement):
            return _Room(verdict, [])
        cheapest: MoveCost | None = None
        chosen: tuple[str, Sequence[Pod]] = "", ()
        for candidate, pods in self._candidates(pod, domain, left):
            if (cheapest is not None and cheapest[0] < candidate.number) or self.deadline.has_passed:
                break
            for some in self._sets(pod, candidate, pods, left):
                held = sum(map(self._held, some))
                cost = cost_of_moves([Resident.of(one, candidate.name) for one in some], held)
                if cheapest is not None and cheapest <= cost:
                    continue
                with self._taken_back():
                    does_it = self._moved(pod, candidate.name, some) is not None
                if does_it:
                    cheapest, chosen = cost, (candidate.name, some)
        return None if cheapest is None else self._moved(pod, *chosen)

    def _moved(self, pod: Pod, node: str, victims: Sequence[Pod]) -> _Room | None:
        """`pod` on `node`, and the victims elsewhere; None where that is not what comes of it."""
        again = self._emptied(victims)
        view = self.copy.state.nodes.view(node)
        if view is None:
            return None
        verdict = self._decide(pod, TopologyDomain("", node, frozenset({node})))
        if not isinstance(verdict, Placement):
            return None
        moves = self._found_again(victims, again)
        return None if isinstance(moves, str) else _Room(verdict, moves)

    def _emptied(self, victims: Sequence[Pod]) -> list[Pod]:
        """Take the pods off their nodes, and their claims from them; returns them as they would be created again."""
        self._finds.clear()
        claims = [claim for one in victims for claim in self._claims_of(one).values()]
        for one in victims:
            self.copy.state.overlay.leave_out(PODS, one)
        for claim in filter(None, claims):
            if EXTENDED_CLAIM_ANNOTATION in claim.metadata.annotations:
                self.copy.state.overlay.leave_out(CLAIMS, claim)
            else:
                freed = structs.replace(claim, status=ResourceClaimStatus())
                self.copy.state.overlay.imagine(CLAIMS, freed, instead_of=claim)
        return [_created_again(one) for one in victims]

    def _found_again(self, victims: Sequence[Pod], again: Sequence[Pod], gone: Container[str] = ()) -> list[Move] | str:
        """The most important first, as the queue would have them.

        Those that are gone come last, and nothing hangs on them any more: the ones that were created in their place may
        have taken it already.
        """
        moves = []
        pairs = sorted(
            zip(victims, again, strict=True),
            key=lambda pair: (pair[0].metadata.uid in gone, -(pair[0].spec.priority or 0), pair[0].key),
        )
        for old, new in pairs:
            self.copy.state.overlay.imagine(PODS, new)
            verdict = self._decide(new)
            if isinstance(verdict, Placement):
                budget = room_in(old, self.copy.state.budgets.of)
                given = verdict.allocations.values()
                devices = tuple(one.device for allocation in given for one in allocation.devices.results)
                moves.append(Move(pod=old, target=verdict.node, devices=devices, budget=budget))
            elif old.metadata.uid not in gone:
                return f"pod {old.metadata.namespace}/{old.metadata.name} would find no other place"
        return moves

    def _placed(self, pod: Pod) -> tuple[tuple[StartedPod, ...], str]:
        """(where the pod, or all of its gang, would go: nothing where it would not start; the name of the gang)."""
        queue = self._queue()
        need = need_of(self.copy.state, pod) if has_group(pod) else None
        if need is None:
            verdict = self._decide(pod)
            return ((_started(verdict),) if isinstance(verdict, Placement) else ()), ""
        together, places = queue.gang(need, to_try(self.copy.state, need.group, pod))
        if places is None or not places.whole:
            return (), need.name
        return tuple(_started(one) for one in together.verdicts if isinstance(one, Placement)), need.name

    def _others(self, subject: Iterable[StartedPod], moving: Iterable[str]) -> tuple[StartedPod, ...]:
        """Those that wait besides and would start then, too."""
        seen = {(one.namespace, one.name) for one in subject}
        queue, refused, started = self._queue(), set[Hashable](), list[StartedPod]()
        pending, moved = self.copy.state.pending.values(), set(moving)
        waiting = [one for one in pending if one.key not in seen and one.metadata.uid not in moved]
        for one in sorted(waiting, key=queue_order)[:TRIED]:
            gist = self._gist(one)
            if gist in refused or self.deadline.has_passed:
                continue
            verdict = queue.decide(one)
            if isinstance(verdict, Placement):
                started.append(_started(verdict))
            else:
                refused.add(gist)
        return tuple(started)

    # Who may move ----------------------------------------------------------------------------------------------------

    def _candidates(
        self, pod: Pod, domain: TopologyDomain | None, left: int
    ) -> list[tuple[_Candidate, dict[str, Pod]]]:
        """Nodes that pods keep from it, with those that may move: where the fewest have to go first."""
        request = self._request(pod)
        if request is None or left <= 0:
            return []
        supply = Supply(self.copy.state.snapshot(), request.wanting, self.copy.state.claim)
        candidates = [
            one
            for name, against in self._refusals(request, domain).items()
            if can_pass(against, devices=True) and (one := self._candidate(request, name, supply, left)) is not None
        ]
        candidates = sorted(candidates, key=lambda one: (one.number, one.name))[:NODES]
        keys = {(one.namespace, one.name) for candidate in candidates for one in candidate.placed.values()}
        pods = {one.metadata.uid: one for one in self.read_pods(keys)}
        return [(one, {uid: pods[uid] for uid in one.placed if uid in pods}) for one in candidates]

    def _candidate(self, request: PodRequest, name: str, supply: Supply, left: int) -> _Candidate | None:
        state, view = self.copy.state, self.copy.state.nodes.view(name)
        if view is None:
            return None
        on_node = list(state.residents.on(name))
        leaving = {one.uid: one for one in on_node if state.overlay.is_leaving(one, self.now)}
        placed = {
            one.uid: one
            for one in on_node
            if one.uid not in leaving and one.going is None and one.bound and one.priority <= request.priority
        }
        if not placed:
            return None
        number = max(1, fewest_of([supply.held_by(one) for one in placed.values()], supply.short_on(view)))
        if not leaving:
            number = max(number, state.nodes.fewest_to_leave(request.pod, name, [*placed]))
        return _Candidate(name, number, leaving, placed) if number <= left else None

    def _sets(self, pod: Pod, candidate: _Candidate, pods: Mapping[str, Pod], left: int) -> Iterator[list[Pod]]:
        """Who could go: those that stay away if the others come back in three orders, then each alone."""
        request, view = self._request(pod), self.copy.state.nodes.view(candidate.name)
        if request is None or view is None:
            return
        self.copy.give_way()
        snapshot, leaving = self.copy.state.snapshot(), dict(candidate.leaving)
        movable = {uid: one for uid, one in candidate.placed.items() if uid in pods and self._may_move(pods[uid])}
        on = OnNode(self.copy.state, request, view, snapshot=snapshot, deadline=self.deadline)
        if not movable or on.refusals(leaving | movable) or (leaving and not on.refusals(leaving)):
            return
        by_importance = sorted(movable.values(), key=lambda one: (one.importance, one.uid))
        sets = self._spared(on, leaving, by_importance)
        kept = {one.pod.metadata.uid for one in self._kept([pods[one.uid] for one in reversed(by_importance)])}
        if kept:  # budgets do not let all of them go: with those that they do
            fewer = [one for one in by_importance if one.uid not in kept]
            sets += [] if on.refusals(leaving | {one.uid: one for one in fewer}) else self._spared(on, leaving, fewer)
        if any(len(one) > 1 for one in sets):
            for one in by_importance[::-1][:ALONE]:
                if not on.refusals({**leaving, one.uid: one}):
                    sets.append(frozenset({one.uid}))
        for some in sorted(set(sets), key=lambda uids: (len(uids), cost_of([movable[uid] for uid in uids]))):
            going = [pods[uid] for uid in sorted(some)]
            if some and len(some) <= left and not self._kept(going):
                yield going

    def _spared(
        self, on: OnNode, leaving: Mapping[str, Resident], by_importance: Sequence[Resident]
    ) -> list[frozenset[str]]:
        """The pods that stay away when the others are put back: the most important first, or those that hold least."""
        everybody = {**leaving, **{one.uid: one for one in by_importance}}
        orders = (by_importance, sorted(by_importance, key=lambda one: (-one.priority, len(one.claims))))
        return [frozenset(on.spare(everybody, order).keys() - leaving.keys()) for order in orders]

    def _kept(self, pods: Sequence[Pod]) -> list[KeptPod]:
        """Those of these that a disruption budget keeps; pods that move already count against it."""
        evictions = ImaginedEvictions(self.copy.state.budgets.of)
        evictions.grant(self._moving)
        return evictions.kept(pods)

    def _may_move(self, pod: Pod) -> bool:
        """Whether it may be moved at all, and one like it would find a place while it is still there."""
        claims = self._claims_of(pod)
        if why_it_stays(pod, claims.values()) or self._kept([pod]):
            return False
        with self._taken_back():
            copied, own = _copy_of(pod, claims)
            for claim in own:
                self.copy.state.overlay.imagine(CLAIMS, claim)
            self.copy.state.overlay.imagine(PODS, copied)
            gist = self._gist(copied)
            cached = self._finds.get(gist)
            finds = isinstance(self._decide(copied), Placement) if cached is None else cached
        self._finds[gist] = finds
        return finds

    def _held(self, pod: Pod) -> int:
        """How many devices it holds."""
        given = [one.status.allocation for one in self._claims_of(pod).values() if one is not None]
        return sum(len(one.devices.results) for one in given if one is not None)

    def _claims_of(self, pod: Pod) -> dict[str, ResourceClaim | None]:
        """name -> the claim as it is there."""
        special = pod.status.extended_resource_claim_status
        names = [one.claim for one in references(pod) if one.claim]
        names += [special.resource_claim_name] if special is not None else []
        return {name: self.copy.state.claim(pod.metadata.namespace, name) for name in names}

    # The state -------------------------------------------------------------------------------------------------------

    def _request(self, pod: Pod) -> PodRequest | None:
        """None for a pod that cannot be placed, or not by the scheduler alone."""
        state = self.copy.state
        request = request_of(state, pod)
        if isinstance(request, Hold) or may_be_negotiated(pod, request.claims):
            return None
        return None if state.negotiations(pod, request.claims) else request

    def _refusals(self, request: PodRequest, domain: TopologyDomain | None) -> dict[str, Sequence[OfNode]]:
        nodes = self.copy.state.nodes
        filtered = nodes.filter(request.pod, request.held)
        refused: dict[str, Sequence[OfNode]] = dict(filtered.refused)
        refused |= {view.name: (CannotAllocate(),) for view in filtered.fitting}
        return refused if domain is None else {name: one for name, one in refused.items() if name in domain.nodes}

    def _gist(self, pod: Pod) -> Hashable:
        request = self._request(pod)
        return pod.metadata.uid if request is None or has_group(pod) else gist_of(self.copy.state, request)

    def _queue(self) -> WaitingPods:
        return WaitingPods(state=self.copy.state, give_way=self.copy.give_way)

    def _decide(self, pod: Pod, domain: TopologyDomain | None = None) -> Verdict:
        self.copy.give_way()
        state = self.copy.state
        within = nullcontext() if domain is None else state.nodes.within(domain.nodes, domain.refusal)
        with state.overlay.trying(pod), within:
            return decide(state, pod)

    @contextmanager
    def _taken_back(self) -> Iterator[None]:
        """What is decided and imagined within it is undone at the end."""
        finds = dict(self._finds)
        with self.copy.state.overlay.undone():
            try:
                yield
            finally:
                self._finds = finds
        post_filter.settle(self.copy.state, self.now)


def _created_again(pod: Pod) -> Pod:
    """As its controller would create it; its claims stand for those that would be created again."""
    status = PodStatus(resource_claim_statuses=pod.status.resource_claim_statuses)
    return structs.replace(pod, spec=structs.replace(pod.spec, node_name=""), status=status)


def _copy_of(pod: Pod, claims: Mapping[str, ResourceClaim | None]) -> tuple[Pod, list[ResourceClaim]]:
    """One like it beside it, with claims of its own."""
    entries, own = [], []
    for entry, one in zip(pod.spec.resource_claims, references(pod), strict=True):
        claim = claims.get(one.claim or "")
        if claim is None:
            entries.append(entry)
            continue
        meta = structs.replace(
            claim.metadata,
            name=f"{claim.metadata.name}{IMAGINED}",
            uid=f"{claim.metadata.uid}{IMAGINED}",
            owner_references=(),
        )
        own.append(structs.replace(claim, metadata=meta, status=ResourceClaimStatus()))
        entries.append(PodResourceClaim(name=entry.name, resource_claim_name=meta.name))
    meta = structs.replace(pod.metadata, name=f"{pod.metadata.name}{IMAGINED}", uid=f"{pod.metadata.uid}{IMAGINED}")
    spec = structs.replace(pod.spec, node_name="", resource_claims=tuple(entries))
    return structs.replace(pod, metadata=meta, spec=spec, status=PodStatus()), own


def _started(placement: Placement) -> StartedPod:
    meta = placement.pod.metadata
    return StartedPod(namespace=meta.namespace, name=meta.name, node=placement.node)
