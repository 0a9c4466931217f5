"""What is to be said first of a claim that somebody should look at, what to do next, and the Events it rests on."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from claims.causes.messages import sentence
from claims.controllers.reservations import FINALIZER
from claims.event_recorder import DEFAULT_NAMESPACE
from dashboard.workloads.claims.reading import ClaimRow
from dashboard.workloads.claims.states import ClaimFacts, ClaimVerdict, User
from manciple.durations import age, clock, moment
from manciple.store import objects
from manciple.store.objects import decoded
from manciple.wire.machinery import Event
from manciple.wire.resources import EVENTS, kind
from scheduling.rehearsal.explanations import Explanation

#: Who sets well-known finalizers.
HOLDERS_OF_FINALIZERS = {
    FINALIZER: "the claim controller, once no pod uses the claim",
    "foregroundDeletion": "the garbage collector, once what the claim owns is gone",
    "orphan": "the garbage collector, once the objects that the claim owns are gone",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """One sentence, the facts behind it, and the next step. Backticks mark code."""

    title: str
    text: str = ""
    next_step: str = ""
    alarming: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Complaint:
    """A warning of the node about what it cannot do. last: when it said so last."""

    message: str
    times: int
    last: datetime | None
    about_preparing: bool = False


def holder_of(finalizer: str) -> str:
    """Who removes a finalizer."""
    return HOLDERS_OF_FINALIZERS.get(finalizer, "the controller that set it; see its name")


def advise(
    verdict: ClaimVerdict,
    facts: ClaimFacts,
    *,
    devices: int,
    complaint: Complaint | None,
    explained: Explanation | None,
) -> Advice | None:
    """What is to be said; None where everything goes its way."""
    if verdict.state == "stuck":
        return _of_stuck(verdict.cause, facts, devices, complaint)
    if complaint is not None and complaint.about_preparing and verdict.state == "preparing":
        return Advice(
            title="The node cannot prepare its devices.",
            text=_said(complaint),
            next_step="Fix what is named here; the node retries by itself.",
            alarming=True,
        )
    if verdict.state == "pending" and explained is not None:
        return _of_waiting(explained)
    if verdict.state == "unused":
        return Advice(title=f"{_it_holds(devices)}, and no pod is reserved for it.", next_step=_of_unused(facts))
    if verdict.state == "allocated" and not any(user.is_pod for user in facts.users):
        return _of_foreign(facts, devices)
    return None


def _of_unused(facts: ClaimFacts) -> str:
    if facts.immediate:
        kept = "Its allocation mode is Immediate, so it keeps its devices until it is deleted."
        return f"{kept} Create a pod that names the claim, or delete the claim."
    if facts.driver:
        kept = f"The controller of driver `{facts.driver}` allocated it, and only that controller can deallocate it."
        return f"{kept} Create a pod that names the claim, or delete the claim."
    return "Create a pod that names the claim. Without one, its devices are released after a minute."


def _of_foreign(facts: ClaimFacts, devices: int) -> Advice:
    """A claim that only such things use whose end is not known here: it may be in use, it may be forgotten."""
    since = f" It has been allocated since {clock(facts.allocated_at)}." if facts.allocated_at else ""
    return Advice(
        title=f"{_it_holds(devices)} for {facts.users[0].title}, and no pod uses it.",
        text=f"Only its owner knows when that is done, and then removes it from `status.reservedFor`.{since}",
        next_step="Ask them. If the work is done, remove the entry yourself; that releases the devices.",
    )


def _of_waiting(explained: Explanation) -> Advice:
    if explained.state == "Waiting":
        return Advice(title=f"It waits because {explained.reason}.", next_step=explained.next_step)
    return Advice(title=f"{sentence(explained.reason)}.", next_step=explained.next_step)


def _of_stuck(cause: str, facts: ClaimFacts, devices: int, complaint: Complaint | None) -> Advice:
    said = _said(complaint) if complaint else ""
    makers = {
        "pod-gone": _pod_gone,
        "pod-stays": _pod_stays,
        "node-gone": _node_gone,
        "node-silent": _node_silent,
        "finalizer": _finalizer,
        "controller": _controller,
        "leaked": _leaked,
        "driver": _driver,
    }
    title, text, step = makers[cause](facts, devices)
    if said and cause in ("pod-gone", "pod-stays"):
        step = f"Fix what {_place(facts)} reports here; it retries by itself."
    return Advice(title=title, text=f"{text} {said}".strip(), next_step=step, alarming=True)


def _pod_gone(facts: ClaimFacts, devices: int) -> tuple[str, str, str]:
    user = _first(facts, over=True)
    what = "has ended" if user.fate == "ended" else "no longer exists"
    other = " Another pod of that name is there now." if user.fate == "replaced" else ""
    return (
        f"{_it_holds(devices)} for a pod that {what}.",
        f"It is reserved for pod {user.name}, uid {user.uid}.{other} The claim controller removes such a reservation.",
        "Check that a worker runs; the overview shows when each last reported.",
    )


def _pod_stays(facts: ClaimFacts, devices: int) -> tuple[str, str, str]:
    user = next(user for user in facts.users if user.fate == "overdue")
    late = f" {age(user.ends_at)} ago" if user.ends_at else ""
    return (
        f"{_it_holds(devices)} for a pod that does not end.",
        f"Pod {user.name} should have ended{late}. {_place(facts).capitalize()} has not confirmed that its containers"
        " ended and its devices are unprepared.",
        f"Check the agent and the drivers on {user.node or 'its node'}.",
    )


def _node_gone(facts: ClaimFacts, devices: int) -> tuple[str, str, str]:
    node = facts.gone_nodes[0]
    return (
        f"{_it_holds(devices)} on node {node}, which no longer exists.",
        "Nobody can unprepare them there.",
        "Delete the pods that are bound to that node; the claim controller then releases the devices.",
    )


def _node_silent(facts: ClaimFacts, devices: int) -> tuple[str, str, str]:
    node = facts.silent_nodes[0]
    return (
        f"{_it_holds(devices)} on node {node}, which is not ready.",
        "What runs there is not known. Its pods are evicted when their tolerations end, and the devices are released "
        "once the node confirms that they ended.",
        f"Start the agent on {node} again.",
    )


def _finalizer(facts: ClaimFacts, _devices: int) -> tuple[str, str, str]:
    name = facts.foreign_finalizers[0]
    return (
        f"It is deleted, and finalizer `{name}` holds it.",
        f"Deletion was requested {_ago(facts.deleted_at)}. The finalizer is removed by {holder_of(name)}.",
        "Check that controller. If it is gone for good, preview the forced release.",
    )


def _controller(facts: ClaimFacts, devices: int) -> tuple[str, str, str]:
    return (
        "It is deleted, nobody uses it, and it is still there.",
        f"Deletion was requested {_ago(facts.deleted_at)}, and {_it_holds(devices).lower()}. The claim controller"
        " removes such a claim at once.",
        "Check that a worker runs; the overview shows when each last reported.",
    )


def _leaked(facts: ClaimFacts, devices: int) -> tuple[str, str, str]:
    since = f"since {clock(facts.allocated_at)}" if facts.allocated_at else "for a while"
    if FINALIZER in facts.finalizers:
        why = "The claim controller releases such devices after a minute."
        step = "Check that a worker runs; the overview shows when each last reported."
    else:
        why = f"It lacks the finalizer `{FINALIZER}`, so the claim controller leaves its allocation alone."
        step = "Delete the claim; nobody uses it."
    return f"{_it_holds(devices)} that nobody uses, {since}.", why, step


def _driver(facts: ClaimFacts, devices: int) -> tuple[str, str, str]:
    return (
        f"{_it_holds(devices)} that nobody uses, and driver {facts.driver} does not deallocate it.",
        "Its last pod has ended, and `status.deallocationRequested` is set. Only the driver's controller can clear "
        "the allocation.",
        f"Check the log of the controller of driver `{facts.driver}`.",
    )


def _first(facts: ClaimFacts, *, over: bool) -> User:
    return next(user for user in facts.users if user.is_over == over)


def _it_holds(devices: int) -> str:
    return f"This claim holds {devices} device{'' if devices == 1 else 's'}"


def _place(facts: ClaimFacts) -> str:
    return f"the agent on {facts.nodes[0]}" if facts.nodes else "the node's agent"


def _ago(at: datetime | None) -> str:
    return f"{age(at)} ago" if at else "a while ago"


def _said(complaint: Complaint) -> str:
    often = (
        f" ({complaint.times} times, last {clock(complaint.last)})" if complaint.times > 1 and complaint.last else ""
    )
    return f"The node says: {complaint.message}{often}."


# The Events about a claim, and what its node complains of ------------------------------------------------------------


#: What the agents complain of, by the reason of their Events.
UNPREPARE, PREPARE = "FailedUnprepareDynamicResources", "FailedPrepareDynamicResources"


@dataclass(frozen=True, slots=True)
class _About:
    """Selects the Events about objects with one of these uids (of a node: its name)."""

    uids: frozenset[str]

    def matches(self, values: Mapping[str, str], /) -> bool:
        return values.get("involvedObject.uid", "") in self.uids


def events_about(namespace: str, uids: Collection[str]) -> list[Event]:
    """The Events of the namespace about those objects."""
    found = objects.list(kind(EVENTS), namespace=namespace, fields=_About(frozenset(uids)))
    return [decoded(stored, Event) for stored in found.items]


def complaint_of(line: ClaimRow, events: Sequence[Event]) -> Complaint | None:
    """What the node says it cannot do for this claim. A pod that is gone cannot be complained about: its node is."""
    users = {user.uid for user in line.users}
    own = [event for event in events if event.involved_object.uid in users and event.reason in (UNPREPARE, PREPARE)]
    if not own and line.verdict.cause == "pod-gone" and line.nodes:
        own = [event for event in _events_of_nodes(line.nodes) if any(uid in event.message for uid in users)]
    latest = max(own, key=lambda event: event.last_timestamp or "", default=None)
    if latest is None:
        return None
    return Complaint(
        message=latest.message.rstrip("."),
        times=latest.count,
        last=moment(latest.last_timestamp),
        about_preparing=latest.reason == PREPARE,
    )


def _events_of_nodes(names: Collection[str]) -> Iterable[Event]:
    """Those about the nodes: an agent names its node in the place of the uid, as the kubelet does."""
    found = events_about(DEFAULT_NAMESPACE, names)
    return [event for event in found if event.involved_object.kind == "Node" and event.reason == UNPREPARE]
