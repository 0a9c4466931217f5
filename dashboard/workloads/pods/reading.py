"""A pod's claims, containers and past as its page shows them: what each claim holds, what each container was given."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from claims.causes.messages import brief, sentence
from claims.devices.holdings import Other
from claims.event_recorder import cause_in
from claims.kinds.containers import Container
from claims.kinds.pods import ContainerState, ContainerStatus, Pod
from claims.kinds.resource_claims import ResourceClaim, node_of
from claims.pod_claims import ClaimReference, references
from dashboard.tools.events import outsider, said_by
from manciple.durations import moment
from manciple.store import history, objects
from manciple.store.objects import decoded
from manciple.store.records import Actor, author_of
from manciple.wire.machinery import Event
from manciple.wire.resources import CLAIMS, EVENTS, kind
from scheduling.claims.extended_resources import ServedRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldDevice:
    """One device that a claim of the pod holds."""

    request: str
    driver: str
    pool: str
    device: str
    node: str
    admin: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimLine:
    """One entry of the pod's claims: the claim, if it is there, and what it holds."""

    entry: str
    name: str  # "" while the claim is to be made
    template: str  # "" for a claim that the pod names
    state: str
    requests: int
    devices: tuple[HeldDevice, ...] = ()
    others: tuple[Other, ...] = ()  # who uses it as well
    #: of the claim for its extended resources, which no entry names: what it serves
    serves: tuple[ServedRequest, ...] = ()
    claim: ResourceClaim | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerUse:
    """What a container sees of one claim, or of one extended resource (`name`).

    request: "" for all of the claim's. given_by: the driver whose controller allocated, which need not tell devices.
    """

    name: str
    request: str = ""
    devices: tuple[HeldDevice, ...] = ()
    given_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerLine:
    """One container: what it does, and the devices that it sees."""

    name: str
    role: str  # "", "init" or "sidecar"
    image: str
    state: str
    detail: str
    since: str | None
    restarts: int
    uses: tuple[ContainerUse, ...]
    #: resourceID -> health, of the devices that their driver tells about
    health: Mapping[str, str]


def read_claims(pod: Pod, extended: tuple[ServedRequest, ...] = ()) -> tuple[ClaimLine, ...]:
    """One query. extended: what serves its extended resources, where devices do."""
    wanted = [one for one in references(pod) if one.needed]
    keys = [(pod.metadata.namespace, one.claim) for one in wanted if one.claim]
    special = extended[0].claim if extended else ""
    if special:
        keys.append((pod.metadata.namespace, special))
    found = {one.name: decoded(one, ResourceClaim) for one in objects.get_many(kind(CLAIMS), keys)}
    templates = {entry.name: entry.resource_claim_template_name or "" for entry in pod.spec.resource_claims}
    lines = [_claim(pod, one, found.get(one.claim or ""), templates[one.entry]) for one in wanted]
    if extended:
        reference = ClaimReference(entry="", claim=special or None, generated=True)
        lines.append(replace(_claim(pod, reference, found.get(special), ""), serves=extended))
    return tuple(lines)


def _claim(pod: Pod, reference: ClaimReference, claim: ResourceClaim | None, template: str) -> ClaimLine:
    if claim is None:
        state = "Does not exist" if reference.claim else "Not created yet"
        return ClaimLine(entry=reference.entry, name=reference.claim or "", template=template, state=state, requests=0)
    results = claim.status.allocation.devices.results if claim.status.allocation else ()
    node = node_of(claim.status.allocation) if claim.status.allocation else ""
    devices = tuple(
        HeldDevice(
            request=one.request,
            driver=one.driver,
            pool=one.pool,
            device=one.device,
            node=node,
            admin=bool(one.admin_access),
        )
        for one in results
    )
    return ClaimLine(
        entry=reference.entry,
        name=claim.metadata.name,
        template=template,
        state="Pending" if not claim.status.allocation else "Reserved" if claim.status.reserved_for else "Allocated",
        requests=len(claim.spec.devices.requests),
        devices=devices,
        others=tuple(
            Other(one.full_resource, one.name) for one in claim.status.reserved_for if one.uid != pod.metadata.uid
        ),
        claim=claim,
    )


# Containers ----------------------------------------------------------------------------------------------------------


def container_lines(pod: Pod, claims: Iterable[ClaimLine]) -> tuple[ContainerLine, ...]:
    """Those that run first stand first."""
    by_entry = {claim.entry: claim for claim in claims}
    known = {one.name: one for one in (*pod.status.init_container_statuses, *pod.status.container_statuses)}
    first = [(one, "sidecar" if one.restart_policy == "Always" else "init") for one in pod.spec.init_containers]
    return tuple(
        _container(one, role, known.get(one.name), by_entry)
        for one, role in (*first, *((one, "") for one in pod.spec.containers))
    )


def _container(
    container: Container, role: str, status: ContainerStatus | None, claims: Mapping[str, ClaimLine]
) -> ContainerLine:
    state, detail, since = _state(status.state if status else ContainerState())
    health = status.allocated_resources_status if status else ()
    return ContainerLine(
        name=container.name,
        role=role,
        image=container.image,
        state=state,
        detail=detail,
        since=since,
        restarts=status.restart_count if status else 0,
        uses=(
            *(_use(use.name, use.request, claims.get(use.name)) for use in container.resources.claims),
            *_served(container.name, claims.get("")),
        ),
        health={one.resource_id: one.health for resource in health for one in resource.resources},
    )


def _use(entry: str, request: str, claim: ClaimLine | None) -> ContainerUse:
    allocation = claim.claim.status.allocation if claim and claim.claim else None
    given_by = allocation.controller_name if allocation else ""
    return ContainerUse(name=entry, request=request, devices=_seen(claim, request), given_by=given_by)


def _served(container: str, claim: ClaimLine | None) -> Iterator[ContainerUse]:
    """The extended resources that it asks for, each with the devices that serve it. claim: the one for these."""
    devices: dict[str, tuple[HeldDevice, ...]] = {}
    for one in claim.serves if claim is not None else ():
        if one.container == container:
            devices[one.resource] = (*devices.get(one.resource, ()), *_seen(claim, one.request))
    return (ContainerUse(name=resource, devices=seen) for resource, seen in devices.items())


def _seen(claim: ClaimLine | None, request: str) -> tuple[HeldDevice, ...]:
    """The devices of the claim that a container sees: all, or those of one request and its alternatives."""
    devices = claim.devices if claim else ()
    return tuple(one for one in devices if not request or one.request.partition("/")[0] == request)


def _state(state: ContainerState) -> tuple[str, str, str | None]:
    """(word, what more there is to say, since when)."""
    if state.running is not None:
        return "Running", "", state.running.started_at
    if state.terminated is not None:
        ended = state.terminated
        why = ended.reason if ended.reason not in ("Completed", "Error", "") else ""
        parts = [why, f"exit code {ended.exit_code}" if ended.exit_code else "", ended.message]
        return "Succeeded" if not ended.exit_code else "Failed", "; ".join(filter(None, parts)), ended.finished_at
    waiting = state.waiting
    return "Not started", "; ".join(filter(None, (waiting.reason, waiting.message))) if waiting else "", None


# What happened, as a list of moments ---------------------------------------------------------------------------------


#: Moments beside the reasons; the tab has all of them.
SHOWN_BESIDE = 12

#: Reasons that say why something waits.
_WAITING = frozenset({"FailedScheduling", "FailedResourceClaimCreation", "Unhealthy", "BackOff"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One thing that happened. count: how often; about: the claim, where it is not about the pod itself."""

    at: str | None
    first: str | None
    text: str
    reason: str
    source: str
    about: str
    count: int
    warning: bool


class _About:
    """Selects the Events about one pod and some claims of its namespace."""

    def __init__(self, uid: str, claims: Collection[str]) -> None:
        self._uid, self._claims = uid, claims

    def matches(self, values: Any, /) -> bool:
        if values.get("involvedObject.uid") == self._uid:
            return True
        return values.get("involvedObject.kind") == "ResourceClaim" and values["involvedObject.name"] in self._claims


def read_moments(pod: Pod, claims: Collection[str]) -> list[Moment]:
    """The oldest first."""
    meta = pod.metadata
    page = objects.list(kind(EVENTS), namespace=meta.namespace, fields=_About(meta.uid, claims))
    notes = history.notes([one.revision for one in page.items])
    found = [_moment(decoded(one, Event), pod, author_of(notes.get(one.revision, ""))) for one in page.items]
    owner = next((f" by {one.kind} {one.name}" for one in meta.owner_references if one.controller), "")
    made = Moment(
        at=meta.creation_timestamp,
        first=None,
        text=f"Pod created{owner}",
        reason="",
        source="",
        about="",
        count=1,
        warning=False,
    )
    return sorted([made, *found], key=lambda one: (one.at or "", one is not made, one.text))


def _moment(event: Event, pod: Pod, author: Actor) -> Moment:
    about = event.involved_object
    last = event.last_timestamp or event.event_time or event.metadata.creation_timestamp
    first = event.first_timestamp if event.count > 1 and event.first_timestamp != last else None
    waits = event.reason in _WAITING
    cause = cause_in(event.metadata.annotations)
    text = f"Waits: {brief(cause, names_claim=False)}" if cause else sentence(event.message.strip())
    return Moment(
        at=last,
        first=first,
        text=text,
        reason=event.reason,
        source=said_by(event.source.component or event.reporting_component, outsider(author)),
        about=about.name if about.uid != pod.metadata.uid else "",
        count=max(event.count, 1),
        warning=waits or event.type == "Warning",
    )


def latest(moments: list[Moment]) -> list[Moment]:
    """Those that are shown beside the reasons."""
    return [one for one in moments if moment(one.at)][-SHOWN_BESIDE:]
