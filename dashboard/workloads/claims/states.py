"""The one state that a claim is shown in, and what is to be said of it in half a line. PURE.

stuck       it should end or change by itself and does not: somebody has to look
pending     it has no devices yet
preparing   it has devices, and a pod on its node waits until they are prepared
allocated   it has devices, and a pod uses them: "Reserved", as its devices are
unused      it has devices that nobody reserved: "Allocated", as its devices are
deleting    it goes when the pods that use it have ended
releasing   its last pod ended a moment ago; its devices are being taken back
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from claims.controllers.reservations import FINALIZER
from manciple.wire.resources import FINISHED_PHASES, PODS

#: state -> what it is called, in the order in which the list shows them
STATES = {
    "stuck": "Stuck",
    "pending": "Pending",
    "preparing": "Preparing",
    "allocated": "Reserved",
    "unused": "Allocated",
    "deleting": "Deleting",
    "releasing": "Releasing",
}
#: What comes first in the list: what needs somebody, then what waits, then what changes.
URGENCY = {state: rank for rank, state in enumerate(
    ("stuck", "pending", "unused", "preparing", "deleting", "releasing", "allocated")
)}  # fmt: skip

#: How long after its end a pod may still be written as a holder, and a deleted claim be there, before that is strange.
MOMENT = timedelta(seconds=10)
#: How long after its grace period a pod may take to end.
PATIENCE = timedelta(seconds=30)
#: An allocation that nobody reserved is taken back after a minute; this much later it is strange.
FORGOTTEN = timedelta(minutes=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """One entry of status.reservedFor, and what became of it.

    fate: preparing, running, ended, ending (being deleted, in time), overdue (should have ended by now), gone (no such
    pod), replaced (another pod has the name now) or other (no pod, so only its own controller knows).
    """

    resource: str
    name: str
    uid: str
    fate: str
    node: str = ""
    phase: str = ""
    ends_at: datetime | None = None  # when the pod's grace period is over
    lately: bool = False  # something happened to it in the last moments

    @property
    def is_pod(self) -> bool:
        return self.resource == PODS

    @property
    def is_linked(self) -> bool:
        """Whether it has a page."""
        return self.is_pod and not self.is_over

    @property
    def title(self) -> str:
        """A pod by its name, anything else with what it is."""
        return self.name if self.is_pod else f"{self.resource} {self.name}"

    @property
    def is_over(self) -> bool:
        return self.fate in ("ended", "gone", "replaced")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimFacts:
    """What decides a claim's state."""

    allocated: bool
    allocated_at: datetime | None = None
    users: tuple[User, ...] = ()
    nodes: tuple[str, ...] = ()
    gone_nodes: tuple[str, ...] = ()  # of `nodes`, those without a Node
    silent_nodes: tuple[str, ...] = ()  # of `nodes`, those that are not ready
    deleted_at: datetime | None = None
    finalizers: tuple[str, ...] = field(default=())
    immediate: bool = False  # allocated without a pod, and kept until it is deleted (allocationMode Immediate)
    driver: str = ""  # whose controller allocated it, and alone takes it back (KEP-3063)
    deallocation_requested: bool = False  # of that driver
    lately: bool = False  # that was requested in the last minutes

    @property
    def foreign_finalizers(self) -> tuple[str, ...]:
        return tuple(name for name in self.finalizers if name != FINALIZER)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimVerdict:
    """cause: why a claim is stuck, as one word for the advice; "" otherwise."""

    state: str
    note: str = ""
    cause: str = ""

    @property
    def label(self) -> str:
        return STATES[self.state]


def fate_of(phase: str, *, node: str, ends_at: datetime | None, deleting: bool, now: datetime) -> str:
    """What became of a pod that still exists."""
    if phase in FINISHED_PHASES or (deleting and not node):
        return "ended"
    if deleting:
        return "overdue" if ends_at is not None and now > ends_at + PATIENCE else "ending"
    return "running" if phase == "Running" else "preparing"


def judge(facts: ClaimFacts, *, now: datetime) -> ClaimVerdict:
    """The state of a claim."""
    return _stuck(facts, now) or _settled(facts)


def _stuck(facts: ClaimFacts, now: datetime) -> ClaimVerdict | None:
    """The first of the things that should not be; a claim that is being released is on its way."""
    checks = (_node_gone, _pod_stays, _pod_over, _held_back, _node_silent, _leaked)
    return next((found for check in checks if (found := check(facts, now)) is not None), None)


def _node_gone(facts: ClaimFacts, _now: datetime) -> ClaimVerdict | None:
    if not (facts.allocated and facts.gone_nodes):
        return None
    return _is_stuck("node-gone", f"Node {facts.gone_nodes[0]} no longer exists")


def _pod_stays(facts: ClaimFacts, _now: datetime) -> ClaimVerdict | None:
    overdue = next((user for user in facts.users if user.fate == "overdue"), None)
    return _is_stuck("pod-stays", f"Pod {overdue.name} does not end") if overdue else None


def _pod_over(facts: ClaimFacts, _now: datetime) -> ClaimVerdict | None:
    over = [user for user in facts.users if user.is_over]
    if not over or len(over) < len(facts.users):
        return None
    if any(user.lately for user in over):
        return ClaimVerdict(state="releasing", note=f"Pod {over[0].name} has ended")
    what = "has ended" if over[0].fate == "ended" else "no longer exists"
    return _is_stuck("pod-gone", f"Pod {over[0].name} {what}")


def _held_back(facts: ClaimFacts, now: datetime) -> ClaimVerdict | None:
    """A deleted claim that nobody uses."""
    if facts.deleted_at is None or facts.users:
        return None
    if facts.foreign_finalizers:
        return _is_stuck("finalizer", f"Finalizer {facts.foreign_finalizers[0]} holds it")
    return _is_stuck("controller", "No controller removes it") if now > facts.deleted_at + MOMENT else None


def _node_silent(facts: ClaimFacts, _now: datetime) -> ClaimVerdict | None:
    if not (facts.allocated and facts.silent_nodes):
        return None
    return _is_stuck("node-silent", f"Node {facts.silent_nodes[0]} is not ready")


def _leaked(facts: ClaimFacts, now: datetime) -> ClaimVerdict | None:
    if not facts.allocated or facts.users or facts.allocated_at is None or now <= facts.allocated_at + FORGOTTEN:
        return None
    if facts.driver and facts.deallocation_requested and facts.lately:
        return ClaimVerdict(state="releasing", note=f"Driver {facts.driver} deallocates it")
    if facts.driver and facts.deallocation_requested:
        return _is_stuck("driver", f"Driver {facts.driver} does not deallocate it")
    if facts.immediate or facts.driver:
        return None
    return _is_stuck("leaked", "Nobody uses it, and nobody releases it")


def _is_stuck(cause: str, note: str) -> ClaimVerdict:
    return ClaimVerdict(state="stuck", note=note, cause=cause)


def _settled(facts: ClaimFacts) -> ClaimVerdict:
    if facts.deleted_at is not None:
        living = [user for user in facts.users if not user.is_over]
        return ClaimVerdict(state="deleting", note=f"Waits until {_living(living)} ended" if living else "")
    if not facts.allocated:
        return ClaimVerdict(state="pending")
    if not facts.users:
        kept = "; allocated until it is deleted" if facts.immediate else ""
        return ClaimVerdict(state="unused", note=f"No pod is reserved for it{kept}")
    if all(user.fate == "preparing" or user.is_over for user in facts.users):
        return ClaimVerdict(state="preparing")
    return ClaimVerdict(state="allocated")


def _living(users: Iterable[User]) -> str:
    first, *others = users
    who = f"pod {first.name}" if first.is_pod else first.title
    return f"{who} and {len(others)} more have" if others else f"{who} has"
