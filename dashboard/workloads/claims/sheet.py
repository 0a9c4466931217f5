"""Everything that is shown of one claim: what it asks for, what it got, its users, what happened, what is wrong.

What happened comes from its revisions, and from the Events about it and its pods. The log keeps an hour, and Events go
too; where it was pruned, the claim's own times stand in.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import orjson
import yaml
from django.conf import settings

from claims.causes.causes import OfOthers
from claims.causes.messages import brief, clause
from claims.causes.next_steps import topic_of
from claims.controllers.reservations import FINALIZER
from claims.devices.cache import read_devices
from claims.devices.published import DevicePool, pool_of
from claims.event_recorder import DEFAULT_NAMESPACE, cause_in
from claims.kinds.pods import Pod
from claims.kinds.resource_claims import (
    POD_CLAIM_ANNOTATION,
    AllocatedDeviceStatus,
    AllocationResult,
    DeviceClaim,
    DeviceRequestAllocationResult,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
    class_of,
    node_of,
)
from claims.models import AllocatedDevice, Claim, PastAllocation
from claims.pod_claims import controller_of
from dashboard.inventory.devices.grid import STATES as DEVICE_STATES
from dashboard.kit.mirrored import agent
from dashboard.kit.previews import Link
from dashboard.templatetags.kit import age, claim_url, class_url, clock, counted, listed
from dashboard.workloads.claims.queries import (
    NO_POD_YET,
    ClaimRow,
    User,
    pending_documents,
    read_claims,
    waiting_pods,
)
from dashboard.workloads.next_steps import StepLine, step_lines
from dashboard.workloads.owners import Owner, owners_of_pods
from insight.advice import Advice as StepsAdvice
from insight.advice import advice_of
from insight.selector_matches import class_selectors, passing
from manciple.durations import moment
from manciple.people import Person
from manciple.store import history, objects
from manciple.store.objects import decoded
from manciple.store.records import Stored
from manciple.wire import codec
from manciple.wire.base import ObjectMeta
from manciple.wire.limits import TimeLimitExceeded
from manciple.wire.machinery import Event
from manciple.wire.resources import EVENTS, PODS, kind
from scheduling.cel import CompileError, compile_selector
from scheduling.rehearsal.explanations import Explanation, explain_claim

#: Pending claims that are looked through for those that would accept the devices of a claim.
LOOKED_THROUGH = 400
#: Topics of pods that wait until somebody releases devices.
AWAITING_RELEASE = {"held", "few-free", "one-node", "together"}

#: What is said of each user, after its name.
FATES = {
    "preparing": "Its devices are being prepared.",
    "running": "Running.",
    "unreachable": "Its node is unreachable.",
    "ended": "It has ended.",
    "ending": "It is being deleted.",
    "overdue": "Its deletion does not end.",
    "gone": "Not found.",
    "unseen": "You may not see it.",
    "replaced": "Replaced by another pod.",
    "other": "Ended by its controller.",
}


def configurations(devices: DeviceClaim) -> list[tuple[tuple[str, ...], str, str]]:
    """(requests, driver, YAML) of the configurations of a claim or a template."""
    return [(one.requests, one.opaque.driver, as_yaml(one.opaque.parameters)) for one in devices.config if one.opaque]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimSheet:
    """One claim, for one person. classes: of the devices it holds; rivals: the pending claims that ask for these."""

    line: ClaimRow
    claim: ResourceClaim
    template: str
    advice: Advice | None
    complaint: Complaint | None
    given: list[GivenDevice]
    classes: list[Link]
    rivals: list[Link]
    steps: list[Step]
    yaml: str
    may_edit: bool
    may_force: bool
    owners: Sequence[Owner]

    @property
    def meta(self) -> ObjectMeta:
        return self.claim.metadata

    @property
    def finalizers(self) -> list[tuple[str, str]]:
        """(name, who takes it off)"""
        return [(name, holder_of(name)) for name in self.meta.finalizers]

    @property
    def cdi(self) -> list[str]:
        """The drivers for which the node's agent writes a CDI file, which is on the node and nowhere else. In a mirror
        the drivers write theirs, under names that are not known."""
        if settings.MIRROR:
            return []
        return list(dict.fromkeys(one.result.driver for one in self.given))

    @property
    def users(self) -> list[tuple[User, str]]:
        return [(user, FATES[user.fate]) for user in self.line.users]

    @property
    def configurations(self) -> list[tuple[tuple[str, ...], str, str]]:
        return configurations(self.claim.spec.devices)

    @property
    def topics(self) -> str:
        line = self.line
        names = [user.name for user in line.users if user.is_pod] or line.wanted_by
        pods = {f"pod:{line.namespace}/{name}" for name in names}
        waits = {"slices", "classes", "pool:"} if line.state == "pending" else set()
        return " ".join(sorted({f"claim:{line.key}", f"events:{line.namespace}", "nodes"} | pods | waits))


def read_sheet(person: Person, stored: Stored, *, now: datetime | None = None) -> ClaimSheet | None:
    """None where the claim went in between."""
    now = now or datetime.now(UTC)
    line = next(iter(read_claims(Claim.objects.restrict(person).filter(uid=stored.uid), now=now)), None)
    if line is None:
        return None
    claim = decoded(stored, ResourceClaim)
    pods = _pods(claim, line)
    events = events_about(stored.namespace, {stored.uid, *pods, *(user.uid for user in line.users)})
    complaint = complaint_of(line, events)
    revisions = [
        ClaimRevision(at=one.at, claim=codec.decode_text(ResourceClaim, one.text), first=one.type == "ADDED")
        for one in history.of_object(stored.uid)
    ]
    explained = explain_claim(stored.namespace, stored.name) if line.state == "pending" else None
    classes, rivals = _rivals(person, claim) if line.state != "pending" else ([], [])
    return ClaimSheet(
        line=line,
        claim=claim,
        template=_template(claim, pods),
        advice=advise(
            line,
            complaint=complaint,
            explained=explained,
            found=advice_of(explained) if explained else None,
            person=person,
        ),
        complaint=complaint,
        given=given_devices(claim, line, pods.values()),
        classes=classes,
        rivals=rivals,
        steps=steps(claim, revisions, events, _past(stored.uid)),
        yaml=document_yaml(stored.text),
        may_edit=person.may_edit(stored.namespace),
        may_force=person.administers and line.state in ("stuck", "unused", "deleting"),
        owners=owners_of_pods(pods.values(), person),
    )


def _pods(claim: ResourceClaim, line: ClaimRow) -> dict[str, Pod]:
    """uid -> pod: those that it is reserved for and the one it was made for, as far as they exist."""
    names = {user.name for user in line.users} | set(line.wanted_by)
    owner = controller_of(claim.metadata)
    names |= {owner[0]} if owner else set()
    found = objects.get_many(kind(PODS), {(line.namespace, name) for name in names}) if names else ()
    return {stored.uid: decoded(stored, Pod) for stored in found}


def _template(claim: ResourceClaim, pods: Mapping[str, Pod]) -> str:
    """The ResourceClaimTemplate that it was made from, as its pod tells."""
    entry, owner = claim.metadata.annotations.get(POD_CLAIM_ANNOTATION), controller_of(claim.metadata)
    pod = pods.get(owner[1]) if owner else None
    entries = pod.spec.resource_claims if pod else ()
    return next((one.resource_claim_template_name or "" for one in entries if one.name == entry), "")


def _rivals(person: Person, claim: ResourceClaim) -> tuple[list[Link], list[Link]]:
    """The classes of the devices that it holds, and the pending claims whose pods wait until such a device is released,
    the oldest first: by whatever class, a request of theirs accepts one of these.
    """
    rows = AllocatedDevice.objects.filter(claim=claim.metadata.uid).values_list("device_class", flat=True)
    classes = sorted(set(rows) - {""})
    pending = {other.key: other for other in pending_documents(person, most=LOOKED_THROUGH)}
    waiting = waiting_pods(pending)
    for_release = [
        other
        for key, other in pending.items()
        if any(cause is not None and topic_of(cause).key in AWAITING_RELEASE for _, cause in waiting.get(key, ()))
    ]
    held = _held_places(claim) if for_release else {}
    selectors = class_selectors() if for_release else {}
    rivals = [other.metadata for other in for_release if _accepts_one(other, held, selectors)]
    oldest = sorted(rivals, key=lambda meta: meta.creation_timestamp or "")
    links = [(meta.name, claim_url(meta.namespace, meta.name)) for meta in oldest]
    return [(name, class_url(name)) for name in classes], links


def _held_places(claim: ResourceClaim) -> Mapping[DevicePool, int]:
    """The published devices that it holds: pool -> a bit each, by `DevicePool.candidates`."""
    snapshot, allocation = read_devices(), claim.status.allocation
    held: dict[DevicePool, int] = defaultdict(int)
    for one in allocation.devices.results if allocation else ():
        key = snapshot.find(one.driver, one.pool, one.device, node_of(allocation) if allocation else "")
        state = snapshot.pools.get(pool_of(key))
        if state is not None and not one.admin_access:
            held[state.pool] |= sum(1 << place for place, known in enumerate(state.candidates) if known.key == key)
    return held


def _accepts_one(other: ResourceClaim, held: Mapping[DevicePool, int], classes: Mapping[str, Sequence[str]]) -> bool:
    """Whether some request of a claim would take one of these devices if it were released."""
    for request in other.spec.devices.requests:
        asked: Sequence[ExactDeviceRequest | DeviceSubRequest] = request.first_available
        for wanted in (request.exactly,) if request.exactly else asked:
            if wanted.device_class_name not in classes:
                continue
            own = (selector.cel.expression for selector in wanted.selectors if selector.cel)
            texts = (*classes[wanted.device_class_name], *own)
            with suppress(CompileError, TimeLimitExceeded):
                compiled = [compile_selector(text) for text in texts]
                if any(passing(pool, compiled).match & devices for pool, devices in held.items()):
                    return True
    return False


def _past(uid: str) -> list[Past]:
    found: dict[tuple[datetime, datetime], list[str]] = {}
    rows = PastAllocation.objects.filter(claim_uid=uid).order_by("-ended_at")[:64]
    for began, ended, device in rows.values_list("began_at", "ended_at", "device"):
        found.setdefault((began, ended), []).append(device)
    return [Past(began=began, ended=ended, devices=tuple(names)) for (began, ended), names in found.items()]


def as_yaml(value: Any) -> str:
    return str(yaml.safe_dump(value, sort_keys=False, allow_unicode=True)).rstrip("\n")


def document_yaml(text: str) -> str:
    """The document as `kubectl get -o yaml` shows it: without managedFields."""
    document = orjson.loads(text)
    document.get("metadata", {}).pop("managedFields", None)
    return as_yaml(document)


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenDevice:
    """One allocated device. share: what it consumes of a shared one; model, device_class: "" if not known."""

    result: DeviceRequestAllocationResult
    node: str
    device_class: str
    model: str
    state: str
    label: str
    share: str
    prepared: datetime | None


def given_devices(claim: ResourceClaim, line: ClaimRow, pods: Iterable[Pod]) -> list[GivenDevice]:
    """One query, and what the log has since for the devices."""
    if claim.status.allocation is None:
        return []
    snapshot, node = read_devices(), node_of(claim.status.allocation)
    reported = {
        (report.driver, report.pool, report.device): at
        for report in claim.status.devices
        for condition in report.conditions
        if (condition.type, condition.status) == ("Ready", "True") and (at := moment(condition.last_transition_time))
    }
    started = _first_start(pods, line.users)
    given = []
    for one in claim.status.allocation.devices.results:
        key = snapshot.find(one.driver, one.pool, one.device, node)
        device, state = snapshot.candidate(key), snapshot.state(key)
        consumed = (f"{amount} {name.rpartition('/')[2]}" for name, amount in one.consumed_capacity.items())
        given.append(
            GivenDevice(
                result=one,
                node=key[3],
                device_class=class_of(claim.spec.devices.requests, one.request),
                model=device.model if device and device.model != one.driver else "",
                state=state,
                label=DEVICE_STATES[state],
                share=", ".join(consumed),
                prepared=reported.get((one.driver, one.pool, one.device), started),
            )
        )
    return given


def _first_start(pods: Iterable[Pod], users: Sequence[User]) -> datetime | None:
    """When the first container of a pod that uses the claim started: its devices were prepared by then."""
    uids = {user.uid for user in users}
    times = [
        moment(ran.started_at)
        for pod in pods
        if pod.metadata.uid in uids
        for status in pod.status.container_statuses
        if (ran := status.state.running or status.state.terminated or status.last_state.terminated)
    ]
    return min(filter(None, times), default=None)


#: Who sets well-known finalizers.
HOLDERS_OF_FINALIZERS = {
    FINALIZER: "the claim controller, once unused",
    "foregroundDeletion": "the garbage collector, once its dependents are gone",
    "orphan": "the garbage collector, once its dependents are free",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """One sentence, the facts behind it, and the next step. Backticks mark code."""

    title: str
    text: str = ""
    next_step: str = ""
    alarming: bool = False
    steps: tuple[StepLine, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Complaint:
    """A warning of the node about what it cannot do. last: when it said so last."""

    message: str
    times: int
    last: datetime | None
    about_preparing: bool = False

    @property
    def text(self) -> str:
        often = f" ({self.times} times, last {clock(self.last)})" if self.times > 1 and self.last else ""
        return f"The node says: {self.message}{often}."


def holder_of(finalizer: str) -> str:
    return HOLDERS_OF_FINALIZERS.get(finalizer, "the controller that set it")


def advise(
    row: ClaimRow,
    *,
    complaint: Complaint | None,
    explained: Explanation | None,
    found: StepsAdvice | None = None,
    person: Person,
) -> Advice | None:
    """What is to be said; None where everything goes its way. found: what would start the pod that waits with it."""
    if row.state == "stuck":
        return _of_stuck(row, complaint)
    if complaint is not None and complaint.about_preparing and row.state == "preparing":
        return Advice(
            title="The node cannot prepare its devices.",
            text=complaint.text,
            next_step="Fix this; the node retries.",
            alarming=True,
        )
    if row.state == "pending" and explained is not None:
        return _of_waiting(row, explained, found, person)
    if row.state == "unused":
        step = "Create a pod that names it, or delete it."
        if row.immediate:
            step = f"Mode Immediate keeps its devices. {step}"
        elif row.driver:
            only = f"Only driver `{row.driver}` can deallocate it."
            step = f"{only} {step}"
        else:
            step = "Create a pod that names it, or it releases its devices within a minute."
        return Advice(title=f"{_it_holds(row)}, reserved for no pod.", next_step=step)
    if row.state == "allocated" and not any(user.is_pod for user in row.users):
        # The end of the users is not known here: the claim may be in use, or forgotten.
        return Advice(
            title=f"{_it_holds(row)} for {row.users[0].title}, and no pod uses it.",
            text=f"Only its owner knows when it is done. Allocated since {clock(row.allocated_at)}.",
            next_step="Ask them. If the work is done, remove the entry from `status.reservedFor`.",
        )
    return None


def _of_waiting(row: ClaimRow, explained: Explanation, found: StepsAdvice | None, person: Person) -> Advice:
    title, text = explained.sentence, ""
    if row.is_unused and not row.immediate and explained.cause is not None:
        would = f"A pod with it would wait because {clause(explained.cause)}."
        title, text = f"{NO_POD_YET}.", explained.sentence if isinstance(explained.cause, OfOthers) else would
    if found is None or found.subject is None:
        return Advice(title=title, text=text, next_step=explained.advice)
    return Advice(title=title, text=text, next_step=found.sentence(person.sees), steps=step_lines(found, person))


def _of_stuck(row: ClaimRow, complaint: Complaint | None) -> Advice:
    holds, text = _it_holds(row), ""
    worker = f"Check that {'kube-controller-manager' if settings.MIRROR else 'a worker'} runs."
    place = f"the {agent()} on {row.nodes[0]}" if row.nodes else f"the node's {agent()}"
    asked = f"Deletion was requested {f'{age(row.deleted_at)} ago' if row.deleted_at else 'a while ago'}"
    match row.cause:
        case "pod-gone":
            user = next(user for user in row.users if user.is_over)
            title = f"{holds} for a pod that {'has ended' if user.fate == 'ended' else 'no longer exists'}."
            other = " Another pod has its name." if user.fate == "replaced" else ""
            text = f"Pod {user.name}, uid {user.uid}.{other}"
            step = worker
        case "pod-stays":
            user = next(user for user in row.users if user.fate == "overdue")
            late = f" {age(user.ends_at)} ago" if user.ends_at else ""
            title = f"{holds} for a pod that does not end."
            text = f"Pod {user.name} should have ended{late}. {place.capitalize()} has not unprepared its devices."
            step = f"Check the {agent()} and the drivers on {user.node or 'its node'}."
        case "node-gone":
            title = f"{holds} on node {row.gone_nodes[0]}, which no longer exists."
            step = "Delete the pods of that node to release the devices."
        case "node-silent":
            title = (
                f"{holds} on node {row.silent_nodes[0]}, which is {'unreachable' if row.unreachable else 'not ready'}."
            )
            text = "Its pods are evicted when their tolerations end; the devices follow once the node confirms it."
            step = f"Start the {agent()} on {row.silent_nodes[0]} again."
        case "finalizer":
            name = row.foreign_finalizers[0]
            title = f"Deletion is blocked by finalizer `{name}`."
            text = f"{asked}. It is removed by {holder_of(name)}."
            step = "Check that controller; if it is gone, release by force."
        case "controller":
            title = "It is deleted and unused, but still there."
            text = f"{asked}, and {holds.lower()}."
            step = worker
        case "driver":
            title = f"{holds} that nobody uses, and driver {row.driver} does not deallocate it."
            text = "`status.deallocationRequested` is set."
            step = "See the log of its controller."
        case "leaked":
            title = f"{holds} that nobody uses, since {clock(row.allocated_at)}."
            step = worker
            if FINALIZER not in row.finalizers:
                text = f"Finalizer `{FINALIZER}` is missing."
                step = "Delete the claim."
        case unknown:
            raise KeyError(unknown)
    if complaint:
        text = f"{text} {complaint.text}".strip()
        if row.cause in ("pod-gone", "pod-stays"):
            step = f"Fix what {place} reports; it retries."
    return Advice(title=title, text=text, next_step=step, alarming=True)


def _it_holds(row: ClaimRow) -> str:
    """A driver's controller need not say which devices it allocated."""
    if not row.devices:
        return f"This claim holds {f'what driver {row.driver} allocated' if row.driver else 'no device'}"
    return f"This claim holds {counted(row.devices, 'device')}"


#: What the agents complain of, by the reason of their Events.
UNPREPARE, PREPARE = "FailedUnprepareDynamicResources", "FailedPrepareDynamicResources"


@dataclass(frozen=True, slots=True)
class _About:
    """Selects the Events about objects with one of these uids (of a node: its name)."""

    uids: frozenset[str]

    def matches(self, values: Mapping[str, str], /) -> bool:
        return values.get("involvedObject.uid", "") in self.uids

    @property
    def mentions(self) -> Collection[str]:
        return self.uids


def events_about(namespace: str, uids: Collection[str]) -> list[Event]:
    found = objects.list(kind(EVENTS), namespace=namespace, fields=_About(frozenset(uids)))
    return [decoded(stored, Event) for stored in found.items]


def complaint_of(line: ClaimRow, events: Sequence[Event]) -> Complaint | None:
    """What the node says it cannot do for this claim. A pod that is gone cannot be complained about: its node is."""
    users = {user.uid for user in line.users}
    own = [event for event in events if event.involved_object.uid in users and event.reason in (UNPREPARE, PREPARE)]
    if not own and line.cause == "pod-gone" and line.nodes:
        # An agent names its node in the place of the uid, as the kubelet does.
        of_nodes = (event for event in events_about(DEFAULT_NAMESPACE, line.nodes) if event.reason == UNPREPARE)
        own = [
            event
            for event in of_nodes
            if event.involved_object.kind == "Node" and any(uid in event.message for uid in users)
        ]
    latest = max(own, key=lambda event: event.last_timestamp or "", default=None)
    if latest is None:
        return None
    return Complaint(
        message=latest.message.rstrip("."),
        times=latest.count,
        last=moment(latest.last_timestamp),
        about_preparing=latest.reason == PREPARE,
    )


#: Names in one sentence.
DEVICES_NAMED = 4
#: Steps on a page; of more, the latest.
SHOWN = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One line of the timeline."""

    at: datetime
    text: str
    warns: bool = False
    times: int = 1
    last: datetime | None = None  # of several times
    about: str = ""  # whose event it is, where it is not the claim's
    is_said: bool = False  # an Event says so


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRevision:
    """The claim as one write left it. first: the write made it."""

    at: datetime
    claim: ResourceClaim
    first: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """Devices that the claim held and gave back together."""

    began: datetime
    ended: datetime
    devices: tuple[str, ...]


def steps(
    claim: ResourceClaim, revisions: Sequence[ClaimRevision], events: Iterable[Event], past: Iterable[Past]
) -> list[Step]:
    """Everything, the oldest first."""
    told = [*_of_revisions(claim, revisions), *_of_events(claim, events)]
    seen_from = min((revision.at for revision in revisions), default=None)
    for one in past:
        names = listed(one.devices, DEVICES_NAMED)
        ends = (Step(at=one.began, text=f"Allocated {names}"), Step(at=one.ended, text=f"Released {names}"))
        told += [step for step in ends if seen_from is None or step.at < seen_from]
    # Events tell whole seconds: within one, what was written comes before what was said of it.
    return sorted(told, key=lambda step: (int(step.at.timestamp()), step.is_said, step.at))[-SHOWN:]


def _of_revisions(claim: ResourceClaim, revisions: Sequence[ClaimRevision]) -> Iterator[Step]:
    created = moment(claim.metadata.creation_timestamp)
    begins = next((one for one in revisions if one.first), None)
    if created is not None:
        owner = next((one.name for one in claim.metadata.owner_references if one.kind == "Pod"), "")
        at = min(begins.at, created) if begins else created
        yield Step(at=at, text=f"Created for pod {owner}" if owner else "Created")
    before: ResourceClaim | None = None
    for revision in revisions:
        allocation = revision.claim.status.allocation
        allocated_at = moment(allocation.allocation_timestamp) if allocation is not None else None
        if before is None and not revision.first and allocation is not None and allocated_at:
            yield Step(at=allocated_at, text=f"Allocated {names_of(allocation)}")  # before what the log still has
        at = _when(before, revision)
        for text, warns in changes(before, revision.claim) if before or revision.first else ():
            yield Step(at=at, text=text, warns=warns)
        before = revision.claim


def _when(before: ResourceClaim | None, revision: ClaimRevision) -> datetime:
    """When a write was made; what it says of itself counts where it is older, as in a claim that was brought along."""
    allocation = revision.claim.status.allocation
    had = before.status.allocation if before else None
    at = moment(allocation.allocation_timestamp) if allocation is not None and had is None else None
    if at is None and (before is None or before.metadata.deletion_timestamp is None):
        at = moment(revision.claim.metadata.deletion_timestamp)
    return min(at, revision.at) if at else revision.at


def changes(before: ResourceClaim | None, after: ResourceClaim) -> Iterator[tuple[str, bool]]:
    """What one write did: (words, whether it warns)."""
    old, new = before.status if before else None, after.status
    had, has = old.allocation if old else None, new.allocation
    if has is not None and had is None:
        yield f"Allocated {names_of(has)}", False
    was = {user.uid: user.name for user in old.reserved_for} if old else {}
    now = {user.uid: user.name for user in new.reserved_for}
    others = {user.uid: user.full_resource for user in new.reserved_for if not user.is_pod}
    for uid, resource in others.items():
        if uid not in was:
            yield f"Reserved for {resource} {now[uid]}", False
    if added := [name for uid, name in now.items() if uid not in was and uid not in others]:
        yield f"Reserved for pod{'' if len(added) == 1 else 's'} {listed(added, DEVICES_NAMED)}", False
    if before and before.metadata.deletion_timestamp is None and after.metadata.deletion_timestamp is not None:
        yield "Deletion requested", False
    if removed := [name for uid, name in was.items() if uid not in now]:
        yield f"Reservation of {listed(removed, DEVICES_NAMED)} removed", False
    if had is not None and has is None:
        yield f"Released {names_of(had)}", False
    if old is not None:
        yield from _reports(old.devices, new.devices)
    if before is not None:
        held, holds = set(before.metadata.finalizers), set(after.metadata.finalizers)
        # Delete protection comes and goes with the allocation, which has its own step.
        for name in sorted((held ^ holds) - {FINALIZER}):
            yield f"Finalizer {name} {'removed' if name in held else 'added'}", False


def _reports(old: Sequence[AllocatedDeviceStatus], new: Sequence[AllocatedDeviceStatus]) -> Iterator[tuple[str, bool]]:
    before = {(one.driver, one.pool, one.device, one.share_id): one for one in old}
    for report in new:
        known = before.get((report.driver, report.pool, report.device, report.share_id))
        if report == known:
            continue
        were = {one.type: one.status for one in known.conditions} if known else {}
        changed = [one for one in report.conditions if were.get(one.type) != one.status]
        for condition in changed:
            text = f"{report.driver} reports {condition.type} {condition.status} of {report.device}"
            yield f"{text}: {condition.message}" if condition.message else text, condition.status == "False"
        if not changed:
            yield f"{report.driver} reports on {report.device}", False


def _of_events(claim: ResourceClaim, events: Iterable[Event]) -> Iterator[Step]:
    for event in events:
        last = moment(event.last_timestamp) or moment(event.event_time) or moment(event.metadata.creation_timestamp)
        first = moment(event.first_timestamp) or last
        if first is None:
            continue
        about, cause = event.involved_object, cause_in(event.metadata.annotations)
        own = about.uid == claim.metadata.uid
        yield Step(
            at=first,
            text=f"Waits: {brief(cause)}" if cause else event.message or event.reason,
            warns=event.type == "Warning",
            times=max(event.count, 1),
            last=last if event.count > 1 else None,
            about="" if own else f"{about.kind.lower()} {about.name}",
            is_said=True,
        )


def names_of(allocation: AllocationResult) -> str:
    """`gpu-0, gpu-1 of node-1`."""
    results = allocation.devices.results
    pools = list(dict.fromkeys(one.pool for one in results))
    if not results:
        return "nothing"
    of = f" of {pools[0]}" if len(pools) == 1 else f" of {len(pools)} pools"
    return listed([one.device for one in results], DEVICES_NAMED) + of
