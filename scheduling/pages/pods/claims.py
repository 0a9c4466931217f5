"""A pod's claims and containers as its page shows them: what each claim holds, which container was given what."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from claims.devices.holdings import Other
from claims.kinds.containers import Container
from claims.kinds.pods import ContainerState, ContainerStatus, Pod
from claims.kinds.resource_claims import ResourceClaim
from manciple.store import objects
from scheduling.pod_claims import Reference, references
from scheduling.resources import CLAIMS, decoded, kind


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldDevice:
    """One device that a claim of the pod holds."""

    request: str
    driver: str
    pool: str
    device: str
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
    #: (entry, request or "" for all of the claim's, devices)
    uses: tuple[tuple[str, str, tuple[HeldDevice, ...]], ...]
    #: resourceID -> health, of the devices that their driver tells about
    health: Mapping[str, str]


def read_claims(pod: Pod) -> tuple[ClaimLine, ...]:
    """One query."""
    wanted = [one for one in references(pod) if one.needed]
    keys = [(pod.metadata.namespace, one.claim) for one in wanted if one.claim]
    found = {one.name: decoded(one, ResourceClaim) for one in objects.get_many(kind(CLAIMS), keys)}
    templates = {entry.name: entry.resource_claim_template_name or "" for entry in pod.spec.resource_claims}
    return tuple(_claim(pod, one, found.get(one.claim or ""), templates[one.entry]) for one in wanted)


def _claim(pod: Pod, reference: Reference, claim: ResourceClaim | None, template: str) -> ClaimLine:
    if claim is None:
        state = "Does not exist" if reference.claim else "Not created yet"
        return ClaimLine(entry=reference.entry, name=reference.claim or "", template=template, state=state, requests=0)
    results = claim.status.allocation.devices.results if claim.status.allocation else ()
    devices = tuple(
        HeldDevice(
            request=one.request, driver=one.driver, pool=one.pool, device=one.device, admin=bool(one.admin_access)
        )
        for one in results
    )
    return ClaimLine(
        entry=reference.entry,
        name=claim.metadata.name,
        template=template,
        state="Allocated" if claim.status.allocation else "Pending",
        requests=len(claim.spec.devices.requests),
        devices=devices,
        others=tuple(
            Other(one.full_resource, one.name) for one in claim.status.reserved_for if one.uid != pod.metadata.uid
        ),
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
        uses=tuple(
            (use.name, use.request, _seen(claims.get(use.name), use.request)) for use in container.resources.claims
        ),
        health={one.resource_id: one.health for resource in health for one in resource.resources},
    )


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
