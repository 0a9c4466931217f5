"""A rehearsal on a cluster state: replicas are placed by the code that schedules, nodes come, holders go.

Nothing is written. What is imagined is laid over a copy of the state, which is thrown away when the rehearsal ends
(`explanations.current.apart`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from claims.kinds.pods import Pod
from claims.kinds.resource_claims import ResourceClaim
from manciple.wire.base import ApiObject
from scheduling.causes import Refusal as NodeRefusal
from scheduling.cycle import decide
from scheduling.explanations.current import Apart
from scheduling.plans import Placement, Refusal
from scheduling.reasons import Hold
from scheduling.resources import CLAIMS, NODES, SLICES
from scheduling.simulation_moulds import Mould, replica
from scheduling.simulation_shapes import NewNode


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """One replica as the scheduler would look at it now: what keeps it from being tried, or which nodes refuse it."""

    pod: Pod
    hold: Hold | None
    wanting: tuple[ResourceClaim, ...] = ()
    refused: Mapping[str, tuple[NodeRefusal, ...]] = field(default_factory=dict)


class Overlay:
    """What is imagined on a state, with the way back."""

    def __init__(self, apart: Apart) -> None:
        self.state = apart.state
        #: to be called before each step: explanations that are asked for meanwhile do not wait for the rehearsal's end
        self.give_way = apart.give_way
        self._undo: list[Callable[[], None]] = []

    def imagine(self, resource: str, obj: ApiObject, *, instead_of: ApiObject | None = None) -> None:
        """`obj` is there; afterwards `instead_of` is there again, or nothing."""
        self.state.imagine(resource, obj)
        if instead_of is None:
            self._undo.append(lambda: self.state.imagine(resource, obj, gone=True))
        else:
            self._undo.append(lambda: self.state.imagine(resource, instead_of))

    def leave_out(self, resource: str, obj: ApiObject) -> None:
        """`obj` is gone; afterwards it is there again."""
        self.state.imagine(resource, obj, gone=True)
        self._undo.append(lambda: self.state.imagine(resource, obj))

    @contextmanager
    def once(self) -> Iterator[None]:
        """What is imagined inside is taken back at its end."""
        before = len(self._undo)
        yield
        self.undo(before)

    def undo(self, down_to: int = 0) -> None:
        while len(self._undo) > down_to:
            self._undo.pop()()


class Rehearsal(Overlay):
    """Replicas of one mould on a state."""

    def __init__(self, apart: Apart, mould: Mould) -> None:
        super().__init__(apart)
        self.mould = mould
        self._tried = 0

    def share(self, known: Callable[[ResourceClaim], ResourceClaim | None]) -> None:
        """Lay the claims that all replicas share over the state. known: what is really there of each."""
        for claim in self.mould.shared.values():
            there = known(claim)
            if there != claim:
                self.imagine(CLAIMS, claim, instead_of=there)

    def add_node(self, new: NewNode) -> None:
        self.imagine(NODES, new.node)
        for published in new.slices:
            self.imagine(SLICES, published)

    def place_next(self) -> Placement | Refusal:
        """Try one more replica. A placement is kept; what was refused is not."""
        self.give_way()
        pod, claims = self._next()
        for claim in claims:
            self.state.imagine(CLAIMS, claim)
        decision = decide(self.state, pod)
        if not isinstance(decision, Placement):
            self._withdraw(claims)
            self._tried -= 1
        return decision

    @contextmanager
    def asking(self) -> Iterator[Asking]:
        """The next replica, as it would be looked at; its claims are there for as long."""
        pod, claims = self._next()
        self._tried -= 1
        with self.once():
            for claim in claims:
                self.imagine(CLAIMS, claim)
            found = self.state.pre_filter(pod)
            if isinstance(found, Hold):
                yield Asking(pod=pod, hold=found)
            else:
                yield self._asked(pod, found)

    def _asked(self, pod: Pod, claims: Sequence[ResourceClaim]) -> Asking:
        allocated = [claim for claim in claims if claim.status.allocation is not None]
        wanting = tuple(claim for claim in claims if claim.status.allocation is None)
        refused = dict(self.state.nodes.filter(pod, allocated).refused)
        return Asking(pod=pod, hold=None, wanting=wanting, refused=refused)

    def _next(self) -> tuple[Pod, tuple[ResourceClaim, ...]]:
        self._tried += 1
        return replica(self.mould, self._tried)

    def _withdraw(self, claims: Sequence[ResourceClaim]) -> None:
        for claim in claims:
            self.state.imagine(CLAIMS, claim, gone=True)
