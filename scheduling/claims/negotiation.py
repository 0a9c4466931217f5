"""Claims about which somebody else decides: what scheduler, commit, explanations and simulations know of that. PURE.

    a `Negotiator`     one form of negotiating, as far as the cluster's objects tell: registered, by its gate, in
                       `ClusterState.forms`, and followed only while that is on
    a `Negotiation`    how it stands for one pod
    `StillNegotiating` the pod waits (`hold`)
    `writes`           what is said with that, or with the binding: in the transaction of the decision

For a pod that has such claims (`claims.pod_claims.may_be_negotiated`) the cycle asks, in this order: what
the scheduler allocates itself (`left`); which nodes are left, or that none need be searched yet (`restricted`); which
of them to try first (`preferred`); and once a node is chosen, what follows (`next`). Other pods never come here.

The forms: PodSchedulingContexts of KEP-3063 (`scheduling.earlier.classic_negotiation`), and the claims of cdi.k8s.io of
its first draft (`scheduling.earlier.draft_claims`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from claims.kinds.pods import Pod
from claims.kinds.resource_claims import ResourceClaim
from claims.pod_claims import may_be_negotiated
from manciple.wire.base import ApiObject
from scheduling.allocator import NodeView
from scheduling.queue.reasons import Hold
from scheduling.state.nodes import FilterResult, NodeTable
from scheduling.state.part import Part


@dataclass(frozen=True, slots=True, kw_only=True)
class NegotiationWrite:
    """An object in which something is said.

    known: as it was when that was decided, of which nothing is written if it has changed since; None: it is made.
    wanted: None: it has served its purpose once the pod is bound, and goes.
    """

    resource: str
    known: ApiObject | None = None
    wanted: ApiObject | None = None
    subresource: str = ""


NegotiationWrites = tuple[NegotiationWrite, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StillNegotiating:
    """hold: why the pod waits. writes: what is said to those for whom it does."""

    hold: Hold
    writes: NegotiationWrites = ()


class Negotiation(Protocol):
    """One pod's, as it stands."""

    @property
    def awaited(self) -> frozenset[str]:
        """Keys of what may bring it on, if nodes refuse the pod meanwhile; empty where that would not help."""
        ...

    def left(self, wanting: Iterable[ResourceClaim]) -> tuple[ResourceClaim, ...]:
        """Those of the claims that the scheduler allocates itself."""
        ...

    def restricted(self, found: FilterResult, nodes: NodeTable) -> FilterResult | StillNegotiating:
        """`found` without the nodes that are refused here; or why no node is to be chosen yet."""
        ...

    def preferred(self, fitting: tuple[NodeView, ...]) -> tuple[NodeView, ...]:
        """Those that are tried first; all of them where it is all the same."""
        ...

    def next(self, node: str, possible: Callable[[], Sequence[str]], /) -> StillNegotiating | NegotiationWrites:
        """Why the pod waits, or what is written with its binding.

        node: the scheduler's choice. possible: all that would take the pod.
        """
        ...

    def giving_back(self, claims: Iterable[ResourceClaim], /) -> NegotiationWrites:
        """What is said with it where idle allocations of the pod are given back."""
        ...


@dataclass(slots=True, eq=False, repr=False)
class Negotiator(Part):
    """See the module's docstring. `Hold` in place of a negotiation: what keeps the pod from every node at once."""

    gate: ClassVar[str]

    @abstractmethod
    def of(self, pod: Pod, claims: Sequence[ResourceClaim], /) -> Negotiation | Hold | None:
        """None where the pod has none of these claims."""

    @staticmethod
    @abstractmethod
    def while_off(pod: Pod, claims: Sequence[ResourceClaim], /) -> Hold | None:
        """The same while the gate is off: what pods are told that wait for nobody."""

    @staticmethod
    @abstractmethod
    def tell_of_kept(claims: Iterable[ResourceClaim], /) -> None:
        """Say in the log that claims from before the gate was turned off keep what they have."""

    @abstractmethod
    def undecided(self, pod: Pod, claims: Sequence[ResourceClaim], /) -> Hold | None:
        """What keeps everybody from knowing where the pod fits; None where that is known."""

    def reserve(self, writes: Iterable[NegotiationWrite], /) -> object:  # noqa: ARG002 - most objects are for one pod
        """The next pod of the batch finds the objects as they will be. Returns what was there before."""
        return None

    def unreserve(self, before: Any, /) -> None:
        """Take back the last `reserve` that isn't taken back yet."""


class NegotiatedState:
    """A part of `scheduling.state.cluster.ClusterState`."""

    forms: ClassVar[Sequence[type[Negotiator]]] = ()
    #: of the forms whose gates are on
    negotiators: tuple[Negotiator, ...]
    nodes: NodeTable

    def negotiations(self, pod: Pod, claims: Sequence[ResourceClaim]) -> tuple[Negotiation, ...] | Hold:
        """How it stands in each form in which somebody decides about the pod's claims."""
        found = [one.of(pod, claims) for one in self.negotiators]
        found += [form.while_off(pod, claims) for form in self._off()]
        return next(_holds(found), None) or tuple(one for one in found if one is not None and not isinstance(one, Hold))

    def undecided(self, pod: Pod, claims: Sequence[ResourceClaim]) -> Hold | None:
        """What keeps everybody from knowing where the pod fits: a driver decides. None where that is known."""
        if not may_be_negotiated(pod, claims):
            return None
        found = [one.undecided(pod, claims) for one in self.negotiators]
        return next(_holds([*found, *(form.while_off(pod, claims) for form in self._off())]), None)

    def restricted(self, pod: Pod, claims: Sequence[ResourceClaim], found: FilterResult) -> FilterResult | Hold:
        """`found` without the nodes that are refused where others have decided already, or why that leaves none."""
        talks = self.negotiations(pod, claims) if may_be_negotiated(pod, claims) else ()
        if isinstance(talks, Hold):
            return talks
        for one in talks:
            left = one.restricted(found, self.nodes)
            if isinstance(left, StillNegotiating):
                return left.hold
            found = left
        return found

    def tell_of_kept(self, claims: Iterable[ResourceClaim]) -> None:
        """Say in the log what goes on though its gate is off."""
        for form in self._off():
            form.tell_of_kept(claims)

    def _off(self) -> Iterator[type[Negotiator]]:
        """Those whose gates are off."""
        on = {type(one) for one in self.negotiators}
        return (form for form in self.forms if form not in on)


def _holds(found: Iterable[Negotiation | Hold | None]) -> Iterator[Hold]:
    return (one for one in found if isinstance(one, Hold))


def agreed(
    talks: Iterable[Negotiation], node: str, possible: Callable[[], Sequence[str]]
) -> StillNegotiating | NegotiationWrites:
    """Whether all agree about the node that was chosen (`Negotiation.next`): the first for which the pod waits, or all
    that is to be written with its binding.
    """
    writes: NegotiationWrites = ()
    for one in talks:
        found = one.next(node, possible)
        if isinstance(found, StillNegotiating):
            return found
        writes += found
    return writes
