"""Simulates replicas of a pod or claim: where they would land, how many fit in all, why the next one does not.

    answer = simulate(Question(workload=workload, replicas=8))
    answer.placed     # where each of them would go, in the order in which they would be scheduled
    answer.fits       # how many fit in all; at least so many where not `answer.counted_all`
    answer.report     # the funnels of the next one, which does not fit
    answer.departure  # the cheapest set of holders on one node that would have to leave for the next one
    answer.preemption # the pods that the next one would evict by its priority, or why none
    answer.missing    # how many more nodes of a shape the rest needs
    answer.moves      # the few pods that would have to move so that the next one, or all of the gang, starts
    answer.gang       # of a pod whose gang has not started: where that fits whole, or how many of it fit

It is the scheduler's own code on the state that explanations are made from, with nothing committed: what it says is
what the scheduler would do next if nothing else happened.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

from claims.causes.causes import AnyCause, OfPreemption
from claims.kinds.pod_groups import shown_name, topology_of
from claims.kinds.pods import Pod
from claims.pod_claims import references
from inventory.kinds.devices import ResourceSlice
from inventory.kinds.nodes import Node
from inventory.models import PublishedSlice
from manciple.controllers.coordination import utc_now
from manciple.store import objects
from manciple.store.objects import decoded
from manciple.wire.errors import NotFound
from manciple.wire.limits import TimeLimitExceeded, check_time
from manciple.wire.resources import NODES, PODS, SLICES, kind
from scheduling.allocator import Deadline
from scheduling.cycle.gangs import GangNeed, GangSearch, TopologyDomain, in_turn, need_of
from scheduling.cycle.post_filter import preview
from scheduling.metrics import imagined
from scheduling.queue.reasons import Hold
from scheduling.queue.verdicts import Placement
from scheduling.rehearsal.departures import Departure, cheapest_departure
from scheduling.rehearsal.explanations import Apart, NodeReport, Report, apart, refusals_of, report
from scheduling.rehearsal.moves import MovePlan, MoveRehearsal
from scheduling.rehearsal.rehearsal import NewNode, Rehearsal, like
from scheduling.rehearsal.workload import Changes, Workload, is_imagined, known_claim
from scheduling.state.cluster import ClusterState
from scheduling.state.nodes import PlannedEviction

#: Replicas that may be asked for.
MOST_REPLICAS = 10_000
#: Nodes that may be added.
MOST_NODES = 200
#: How many are counted beyond those that were asked for.
COUNTED = 2_000
#: Seconds for all of it.
TIMEOUT = 8.0
#: Seconds for who would have to move.
MOVE_SECONDS = 1.0
#: Placements between two reports of progress.
STEP = 250


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is to be rehearsed. shape: the node that more nodes are like; "" leaves the choice to the answer."""

    workload: Workload
    changes: Changes = field(default_factory=Changes)
    replicas: int = 1
    shape: str = ""
    more_nodes: int = 0
    #: whether the answer tells what the first replica meets as well
    with_first: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsedDevice:
    """One device that a replica would be given. entry: of the pod's claims."""

    entry: str
    request: str
    driver: str
    pool: str
    device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """One replica, from 1: where it would go, and what it would be given (nothing, where its claims had it)."""

    number: int
    node: str
    devices: tuple[RehearsedDevice, ...]

    @property
    def on_new_node(self) -> bool:
        return is_imagined(self.node)


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """`nodes` more nodes like `shape` would do for the rest: `each` takes so many. `tried`: all of it was rehearsed."""

    shape: str
    nodes: int
    each: int
    tried: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GangPreview:
    """What would become of the gang as a whole. placed: of its pods that have a place by now; fits: with those.

    where: the label of the nodes (`KEY=VALUE`) that hold it, or most of it; "" where it is not kept to one value.
    tried: each that was tried by itself, and how many fit there. preferred: the label key that it prefers. waiting: of
    its pods that wait now; replicas stand for the others. domains: of the topology that it requires, tried or not.
    """

    name: str
    wanted: int
    placed: int
    fits: int
    where: str = ""
    tried: tuple[tuple[str, int], ...] = ()
    preferred: str = ""
    waiting: int = 0
    domains: int = 0

    @property
    def whole(self) -> bool:
        return self.fits >= self.wanted

    @property
    def lacks(self) -> int:
        return max(self.wanted - self.fits, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationAnswer:
    """See the module's docstring. `cause` and what follows is about the first replica that does not fit."""

    revision: int
    replicas: int
    placed: tuple[Placed, ...]
    fits: int
    counted_all: bool
    cause: AnyCause | None = None
    report: Report | None = None
    departure: Departure | None = None
    missing: Missing | None = None
    #: whom it would evict by its priority, or why nobody
    preemption: PlannedEviction | OfPreemption | None = None
    #: what the first replica meets, before any is placed
    first: Report | None = None
    gang: GangPreview | None = None
    moves: MovePlan | None = None

    @property
    def left(self) -> int:
        """How many of the replicas do not fit."""
        return max(self.replicas - self.fits, 0)


#: Called with the number of replicas that are placed by now; may raise to stop.
Progress = Callable[[int], None]


def simulate(
    question: Question, *, timeout: float = TIMEOUT, progress: Progress = lambda _placed: None
) -> SimulationAnswer:
    """Raises: NotFound for a shape that is no node; ValueError for more than may be asked."""
    if not 1 <= question.replicas <= MOST_REPLICAS:
        raise ValueError(f"between 1 and {MOST_REPLICAS} replicas can be tried")
    if not 0 <= question.more_nodes <= MOST_NODES:
        raise ValueError(f"between 0 and {MOST_NODES} nodes can be added")
    workload = question.workload.changed(question.changes)
    with apart() as copy:
        deadline = Deadline.after(timeout)
        rehearsal = Rehearsal(copy, workload)
        rehearsal.share(known_claim)
        if question.more_nodes:
            make = shape_of(question.shape)
            for number in range(question.more_nodes):
                make(number + 1).imagine(rehearsal.overlay)
        filling = _Filling(rehearsal, question, deadline, progress)
        try:
            return filling.answer()
        except TimeLimitExceeded:  # selectors take too long
            return filling.so_far()


def try_one(workload: Workload) -> Placed | AnyCause | None:
    """Where one replica would go now; else why it would wait, None where that is not known."""
    with apart() as copy:
        rehearsal = Rehearsal(copy, workload)
        rehearsal.share(known_claim)
        if need_of(copy.state, workload.pod) is not None:
            answer = _Filling(rehearsal, Question(workload=workload), Deadline.after(TIMEOUT), lambda _: None).answer()
            return answer.placed[0] if answer.placed else answer.cause
        verdict = rehearsal.place_next()
    return placed(1, verdict, workload) if isinstance(verdict, Placement) else verdict.hold.cause


class _Filling:
    """One rehearsal, from the first replica to what is said of the next."""

    def __init__(self, rehearsal: Rehearsal, question: Question, deadline: Deadline, progress: Progress) -> None:
        self._rehearsal = rehearsal
        self._question = question
        self._deadline = deadline
        self._progress = progress
        self._placed: list[Placed] = []
        self._fits = 0
        self._gang = need_of(rehearsal.state, rehearsal.workload.pod)
        #: so many have to fit: of a gang those at least that it lacks
        self._wanted = max(question.replicas, self._gang.lacks if self._gang else 0)

    def answer(self) -> SimulationAnswer:
        first = self._next_one()[1] if self._question.with_first else None
        if self._gang is not None:
            return self._of_gang(self._gang, first)
        full = self._fill(self._wanted) or self._fill(min(self._wanted + COUNTED, MOST_REPLICAS))
        cause, found = self._next_one() if full else (None, None)
        departure = missing = moves = None
        by_priority: PlannedEviction | OfPreemption | None = None
        if found is not None and self._fits < self._wanted:
            by_priority = self._preemption(found)
            departure = cheapest_departure(self._rehearsal, found, deadline=self._deadline)
            moves = self._moves(self._rehearsal.bring(1)[0])
            missing = self._missing(found)  # the last: it lays nodes over the state
        return SimulationAnswer(
            revision=self._rehearsal.state.revision,
            replicas=self._wanted,
            placed=tuple(self._placed),
            fits=self._fits,
            counted_all=full,
            cause=cause,
            report=found,
            departure=departure,
            missing=missing,
            preemption=by_priority,
            first=first,
            moves=moves,
        )

    def so_far(self) -> SimulationAnswer:
        """What was placed until time was up."""
        return SimulationAnswer(
            revision=self._rehearsal.state.revision,
            replicas=self._wanted,
            placed=tuple(self._placed),
            fits=self._fits,
            counted_all=False,
        )

    # A gang ----------------------------------------------------------------------------------------------------------

    def _of_gang(self, need: GangNeed, first: Report | None) -> SimulationAnswer:
        """All of it or nothing: its pods that wait, and replicas for those that it lacks."""
        rehearsal, state = self._rehearsal, self._rehearsal.state
        known = state.pending.get(rehearsal.workload.pod.metadata.uid)
        asked = known is not None and not self._question.changes.any
        pods = _ready(state, need) if asked else []
        waiting = len(pods)
        pods += rehearsal.bring(max(self._wanted - waiting, 0))
        search = self._search(need, pods)
        found = search.run()
        preview = GangPreview(
            name=shown_name(need.group.metadata.name),
            wanted=need.wanted,
            placed=need.placed,
            fits=found.fits,
            where="" if found.domain is None else str(found.domain),
            tried=tuple(sorted(((str(one), fits) for one, fits in search.tried), key=lambda pair: -pair[1])),
            preferred=topology_of(need.group).preferred,
            waiting=waiting,
            domains=search.domains,
        )
        if found.whole:
            made = [one for one in found.verdicts if isinstance(one, Placement)]
            self._placed = [placed(at, one, rehearsal.workload) for at, one in enumerate(made, 1)]
            return self._answered(preview, fits=len(made), first=first)
        moves = self._moves(known) if known is not None and waiting >= need.lacks else None
        return replace(self._torn(need, preview, found.domain, first), moves=moves)

    def _search(self, need: GangNeed, pods: Sequence[Pod]) -> GangSearch:
        rehearsal = self._rehearsal
        return GangSearch(
            state=rehearsal.state,
            group=need.group,
            pods=pods,
            decide_one=rehearsal.decide_one,
            deadline=self._deadline,
            now=utc_now(),
        )

    def _torn(
        self, need: GangNeed, preview: GangPreview, domain: TopologyDomain | None, first: Report | None
    ) -> SimulationAnswer:
        """What keeps the next of the gang out where most of it fits, and what would help."""
        hold = need.short_of(preview.fits - need.placed, where=preview.where, domains=preview.domains)
        departure, by_priority = None, None
        kept = nullcontext() if domain is None else self._rehearsal.state.nodes.within(domain.nodes, domain.refusal)
        with kept:
            report = self._next_one()[1] if self._fill(self._wanted) else None
            if report is not None and preview.lacks == 1:  # whoever makes room for one helps no gang that lacks more
                by_priority = self._preemption(report)
                departure = cheapest_departure(self._rehearsal, report, deadline=self._deadline)
        missing = None if report is None or domain is not None else self._missing(report)
        self._placed = []
        answer = self._answered(preview, fits=0, first=first)
        cause = None if hold is None else hold.cause
        return replace(answer, cause=cause, report=report, departure=departure, preemption=by_priority, missing=missing)

    def _answered(self, preview: GangPreview, *, fits: int, first: Report | None) -> SimulationAnswer:
        return SimulationAnswer(
            revision=self._rehearsal.state.revision,
            replicas=self._wanted,
            placed=tuple(self._placed),
            fits=fits,
            counted_all=True,
            first=first,
            gang=preview,
        )

    # Replicas --------------------------------------------------------------------------------------------------------

    def _fill(self, up_to: int) -> bool:
        """Place replicas. Returns whether one was refused; False where all fit, or time is up."""
        while self._fits < up_to and not self._deadline.has_passed:
            check_time()
            verdict = self._rehearsal.place_next(briefly=True)
            if not isinstance(verdict, Placement):
                return True
            self._fits += 1
            if self._fits <= self._question.replicas:
                self._placed.append(placed(self._fits, verdict, self._rehearsal.workload))
            if self._fits % STEP == 0:
                self._progress(self._fits)
        return False

    def _next_one(self) -> tuple[AnyCause | None, Report | None]:
        """Why the next replica does not fit."""
        state = self._rehearsal.state
        with self._rehearsal.next_replica() as replica:
            if replica.hold is not None:
                return replica.hold.cause, None
            found = report(state.snapshot(), replica.wanting, nodes=state.nodes.views, refused=replica.refused)
        return found.cause, found

    def _preemption(self, found: Report) -> PlannedEviction | OfPreemption:
        with self._rehearsal.next_replica() as replica:
            return preview(self._rehearsal.state, replica.request, refusals_of(found), utc_now())

    def _moves(self, pod: Pod) -> MovePlan | None:
        """Those by which the pod, or all of its gang, would start."""
        rehearsal, deadline = self._rehearsal, Deadline.after_work(MOVE_SECONDS)
        with rehearsal.overlay.undone(), imagined():
            if pod.metadata.uid not in rehearsal.state.pending:
                rehearsal.overlay.imagine(PODS, pod)
            apart_from_it = Apart(rehearsal.state, rehearsal.give_way)
            return MoveRehearsal(apart_from_it, now=utc_now(), deadline=deadline).plan(pod)

    def _missing(self, found: Report) -> Missing | None:
        # Like the nodes that were asked for; else one on which a replica landed, or that has the devices, taken or not.
        landed = (one.node for one in self._placed if not one.on_new_node)
        able = (node.name for node in found.nodes if _has_what_it_takes(node))
        likely = next(landed, "") or next(able, "")
        shapes = list(dict.fromkeys(one for one in (self._question.shape, likely) if one))
        left = self._wanted - self._fits
        if not shapes or not left:
            return None
        number = self._question.more_nodes + 1
        for shape in shapes:
            make = shape_of(shape)
            if each := self._placed_with(make(number), left):
                break
        else:
            return Missing(shape=shapes[0], nodes=0, each=0, tried=True)
        nodes, rest = -(-left // each), left - each
        while rest > 0 and number < self._question.more_nodes + nodes and number < MOST_NODES:
            number += 1
            rest -= self._placed_with(make(number), rest)
            if self._deadline.has_passed:
                break
        return Missing(shape=shape, nodes=nodes, each=each, tried=rest <= 0)

    def _placed_with(self, new: NewNode, most: int) -> int:
        """How many more replicas fit with this node."""
        new.imagine(self._rehearsal.overlay)
        count = 0
        while count < most and not self._deadline.has_passed:
            check_time()
            if not isinstance(self._rehearsal.place_next(briefly=True), Placement):
                break
            count += 1
        return count


def _ready(state: ClusterState, need: GangNeed) -> list[Pod]:
    """The pods of a gang that wait and have their claims, however many it still lacks."""
    known = (state.pending.get(uid) for uid in state.groups.members(need.group))
    pods = [pod for pod in known if pod is not None and not pod.spec.scheduling_gates]
    return in_turn(pod for pod in pods if not isinstance(state.pre_filter(pod), Hold))


def _has_what_it_takes(node: NodeReport) -> bool:
    requests = [one for one in node.examination.requests if not one.plan.parent]
    return bool(requests) and all(one.funnel[-2].left >= one.wanted for one in requests)


def placed(number: int, placement: Placement, workload: Workload) -> Placed:
    """A placement of replica `number`, as the answer tells it."""
    uids = {claim.metadata.name: claim.metadata.uid for claim in placement.claims}
    entries = {
        uids[one.claim]: one.entry
        for one in references(placement.pod)
        if one.claim and one.claim in uids and one.entry in workload.claims
    }
    devices = tuple(
        RehearsedDevice(
            entry=entries.get(uid, ""), request=one.request, driver=one.driver, pool=one.pool, device=one.device
        )
        for uid, allocation in placement.allocations.items()
        for one in allocation.devices.results
    )
    return Placed(number=number, node=placement.node, devices=devices)


def shape_of(node: str, called: str = "") -> Callable[[int], NewNode]:
    """What makes nodes like `node`, by number; see `like`. Raises: NotFound for a node that does not exist."""
    stored = objects.get(kind(NODES), "", node)
    if stored is None:
        raise NotFound.of("nodes", node)
    model = decoded(stored, Node)
    keys = [("", name) for name in PublishedSlice.objects.filter(node_name=node).values_list("name", flat=True)]
    slices = [decoded(one, ResourceSlice) for one in objects.get_many(kind(SLICES), keys)]
    return lambda number: like(model, slices, number, called=called)
