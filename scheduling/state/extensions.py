"""Extensions of the scheduler: each adds a form of claims or devices, in one module, behind a feature gate.

`EXTENSIONS` says which class belongs to which gate. Only this table refers to the module, which is imported once its
gate is on, and by no process while it is off. An `Extension` is a part of the scheduler's state. It declares:

    follows, put, remove   which resources of the log it keeps in memory
    wakes                  which of their events may help which waiting pods, besides `scheduling.queue.hints.RULES`
    provides               objects that the scheduler sees although they are not stored
    devices                puts ResourceSlices there to publish devices, ResourceClaims with an allocation to hold some
    seen                   a claim as the allocator reads it
    hold                   PreFilter: why a pod with these claims cannot be placed anywhere yet
    negotiation            Filter, Score, Bind: its part in placing one pod (`scheduling.claims.negotiation`)
    placed                 Reserve: what it adds to a placement
    invariants             what `manage.py check_invariants` checks besides, by the name of the check

A `Controller` that the module declares exists while the gate is on. What remains once the gate is turned off, and must
work without the module, is in `scheduling.claims.kept`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from django.utils.module_loading import import_string

from claims.kinds.pods import Pod
from claims.kinds.resource_claims import ResourceClaim
from inventory.kinds import gates
from manciple.wire.base import ApiObject
from scheduling.claims.negotiation import Negotiation, NegotiationWrites
from scheduling.cluster_facts import ClusterFacts
from scheduling.queue import hints
from scheduling.queue.hints import Event, Rule
from scheduling.queue.reasons import Hold
from scheduling.queue.verdicts import Placement
from scheduling.state.part import Part

#: Feature gate -> the extension that exists while the gate is on.
EXTENSIONS: dict[str, str] = {
    gates.STRUCTURED_PARAMETERS_DRAFT: "scheduling.earlier.structured_claims.StructuredClaims",
    gates.CONTROL_PLANE_CONTROLLER: "scheduling.earlier.classic.ClassicNegotiator",
    gates.CLAIMS_DRAFT: "scheduling.earlier.draft_claims.DraftNegotiator",
}


@dataclass(slots=True, eq=False, repr=False)
class Extension(Part):
    """See the module's docstring. The defaults change nothing. devices: the `Devices` of `scheduling.state.cluster`."""

    follows: ClassVar[tuple[str, ...]] = ()
    wakes: ClassVar[Mapping[Event, Rule]] = {}
    provides: ClassVar[Sequence[tuple[str, ApiObject]]] = ()
    invariants: ClassVar[Mapping[str, Callable[[ClusterFacts], Iterator[str]]]] = {}

    devices: Part

    def put(self, obj: Any) -> None:
        pass

    def remove(self, obj: Any) -> None:
        pass

    def seen(self, claim: ResourceClaim) -> ResourceClaim:
        return claim

    def hold(self, claims: Sequence[ResourceClaim]) -> Hold | None:  # noqa: ARG002 - most extensions hold no pod
        return None

    def negotiation(self, pod: Pod, claims: Sequence[ResourceClaim]) -> Negotiation | Hold | None:  # noqa: ARG002
        """None for a pod that does not concern the extension. A Hold: the pod cannot be placed anywhere yet."""
        return None

    def undecided(self, pod: Pod, claims: Sequence[ResourceClaim]) -> Hold | None:
        """Why it is not known yet where the pod fits, also for a pod that a rehearsal imagines."""
        negotiation = self.negotiation(pod, claims)
        return negotiation if isinstance(negotiation, Hold) else None

    def placed(self, placement: Placement) -> Placement:
        return placement

    def reserve(self, writes: NegotiationWrites) -> object:  # noqa: ARG002 - most objects are for one pod alone
        """Show the next pods of the batch the objects as they will be written. Returns what `unreserve` needs."""
        return None

    def unreserve(self, before: Any) -> None:
        """Take back the last `reserve` that is not taken back yet. before: what it returned."""


def enabled() -> tuple[type[Extension], ...]:
    """The extensions whose gates are on. Imports them and registers their queueing hints."""
    extensions = tuple(import_string(path) for gate, path in EXTENSIONS.items() if gates.enabled(gate))
    for extension in extensions:
        hints.register(extension.wakes)
    return extensions


def modules() -> list[str]:
    """The modules of the extensions whose gates are on."""
    return [extension.__module__ for extension in enabled()]


def changes() -> frozenset[Event]:
    """The events for which an extension wakes the scheduler."""
    return frozenset(event for extension in enabled() for event in extension.wakes)
