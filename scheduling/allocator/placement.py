"""`place`: the best node for all claims of a pod, over all the nodes that are given.

A fatal error that any node's ordered search reaches keeps the pod pending with that error, even where other nodes would
do, and whichever node is looked at first (the node first by name speaks). Otherwise the best node that fits wins:
earlier alternatives of prioritized lists first, then the score, then the order by name. A node whose search was
undecided does not hide one that fits; where none fits, the answer is undecided too.

A `NodeIndex` gives the nodes that have enough devices for every request by itself; they are searched best first, and
the first that has a solution is the answer. Where an error could come up, or the claims ask for all devices or have
more than one list of alternatives, every node is searched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from claims.kinds.resource_claims import ResourceClaim
from scheduling.allocator.allocation import answer, read_claims
from scheduling.allocator.deadline import DEFAULT_LIMIT, DEFAULT_TIMEOUT, Deadline
from scheduling.allocator.first_fit import Effort, Fitting, first_fit, index_of
from scheduling.allocator.nodeview import NodeView
from scheduling.allocator.outcome import Failed, Outcome, Unallocatable, Undecided
from scheduling.allocator.problem import Problem, pose
from scheduling.allocator.refuted import Refuted
from scheduling.allocator.requests import ClaimPlan
from scheduling.allocator.score import Fit, Score, most_packed
from scheduling.allocator.search import Solution
from scheduling.allocator.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """`outcome` is that of `node` where there is one, else what holds the pod on all of them.

    `refusals` tells, where no node fits, why each was refused: Unallocatable, Failed or Undecided.
    """

    node: NodeView | None
    outcome: Outcome
    refusals: Mapping[str, Unallocatable | Failed | Undecided] = field(default_factory=dict)


def place(
    snapshot: Snapshot,
    claims: Sequence[ResourceClaim],
    nodes: Sequence[NodeView],
    *,
    score: Score = most_packed,
    limit: int = DEFAULT_LIMIT,
    deadline: Deadline | None = None,
) -> Placement:
    """Choose among `nodes`, which fit in every other respect. The same input gives the same answer, in time.

    A higher score is better. limit: device trials per node. deadline: for all nodes together; by default
    DEFAULT_TIMEOUT from now. Fastest with the default score, and with the same `NodeView`s (best the same tuple of
    them) from call to call.
    """
    effort = Effort(limit, deadline or Deadline.after(DEFAULT_TIMEOUT))
    indexed = index_of(snapshot, nodes)
    refuted: Refuted | None = None
    if indexed is not None:
        index, among = indexed
        found = first_fit(snapshot, claims, among, index=index, score=score, effort=effort)
        if isinstance(found, Fitting):
            return Placement(node=found.node, outcome=found.outcome)
        refuted = found
    return _by_search(_Everywhere(snapshot, read_claims(snapshot, claims), effort, refuted), nodes, score=score)


@dataclass(frozen=True, slots=True)
class _Everywhere:
    """What is asked of every node."""

    snapshot: Snapshot
    plans: Sequence[ClaimPlan]
    effort: Effort
    #: what the index has shown of all nodes, where it could
    refuted: Refuted | None

    def on(self, node: NodeView) -> tuple[Problem | None, Solution | Outcome]:
        """The node's problem and its solution; or what speaks against the node, then perhaps without its problem."""
        refuted = self.refuted
        known = refuted.known(node, self.plans) if refuted else None
        if known is not None:
            return None, known
        if self.effort.deadline.has_passed:
            return None, Undecided(trials=0, timed_out=True)
        problem = pose(self.snapshot, self.plans, node, used=refuted.used_on(node) if refuted else None)
        if isinstance(problem, Failed):
            return None, problem
        if refuted is None:
            found = self.effort.solve(problem)
            return problem, found if isinstance(found, Solution) else answer(problem, found)
        return problem, refuted.keep(node, self.plans, answer(problem, refuted.verdict(node)))


def _by_search(asked: _Everywhere, nodes: Sequence[NodeView], *, score: Score) -> Placement:
    fitting: list[tuple[tuple[int, float], Problem, Solution]] = []
    refusals: dict[str, Unallocatable | Failed | Undecided] = {}
    for node in sorted(nodes, key=lambda one: one.name):
        problem, found = asked.on(node)
        if isinstance(found, Failed) and found.fatal_for_pod:
            return Placement(node=None, outcome=found, refusals={node.name: found})
        if isinstance(found, Solution) and problem is not None:
            fit = Fit(node=node, free=problem.free.bit_count())
            fitting.append(((sum(found.chosen), -score(fit)), problem, found))
        elif isinstance(found, (Unallocatable, Failed, Undecided)):
            refusals[node.name] = found
    if not fitting:
        return Placement(node=None, outcome=_overall(refusals), refusals=refusals)
    _, best, found = min(fitting, key=lambda one: one[0])
    return Placement(node=best.node, outcome=answer(best, found))


def _overall(refusals: Mapping[str, Unallocatable | Failed | Undecided]) -> Outcome:
    """Undecided before "no", since it may yet be "yes"; then the reason that most nodes give."""
    undecided = [one for one in refusals.values() if isinstance(one, Undecided)]
    if undecided:
        trials = sum(one.trials for one in undecided)
        return Undecided(trials=trials, timed_out=any(one.timed_out for one in undecided))
    if not refusals:
        return Unallocatable()
    counted = Counter(map(_gist, refusals.values()))
    commonest = max(counted, key=counted.__getitem__)
    return next(one for one in refusals.values() if _gist(one) == commonest)


def _gist(refusal: Unallocatable | Failed | Undecided) -> Hashable:
    """What tells refusals apart, without the cost of their words."""
    if isinstance(refusal, Unallocatable):
        return tuple((reason.claim, reason.request, reason.progress) for reason in refusal.reasons[:1])
    return refusal.message
