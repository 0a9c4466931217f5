"""Everything that is shown of one claim: what it asks for, what it got, who uses it, what happened, what is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import orjson
import yaml

from claims.kinds.pods import Pod
from claims.kinds.resource_claims import (
    POD_CLAIM_ANNOTATION,
    AllocatedDeviceStatus,
    DeviceClaim,
    DeviceConstraint,
    DeviceRequest,
    ResourceClaim,
)
from claims.models import AllocatedDevice, PastAllocation
from claims.pod_claims import controller_of, requested_classes
from dashboard.workloads.claims.advice import Advice, Complaint, advise, complaint_of, events_about, holder_of
from dashboard.workloads.claims.devices import CdiFile, GivenDevice, cdi_files, given_devices
from dashboard.workloads.claims.reading import ClaimRow, pending_documents, read_claims
from dashboard.workloads.claims.states import User
from dashboard.workloads.claims.steps import ClaimRevision, Past, Step, steps
from manciple.people import Person
from manciple.store import history, objects
from manciple.store.objects import decoded
from manciple.store.records import Stored
from manciple.wire import codec
from manciple.wire.base import ObjectMeta
from manciple.wire.resources import CLAIMS, PODS, kind
from scheduling.rehearsal.explanations import explain_claim

#: Claims that wait for the same classes: so many are looked through, and so many named.
LOOKED_THROUGH, NAMED = 400, 6

#: What is said of each user, after its name.
FATES = {
    "preparing": "Its devices are being prepared.",
    "running": "Running.",
    "ended": "It has ended.",
    "ending": "It is being deleted.",
    "overdue": "It is being deleted and does not end.",
    "gone": "Not found.",
    "replaced": "Not found; another pod has that name now.",
    "other": "Its own controller says when it is done.",
}


def find_claim(person: Person, namespace: str, name: str) -> Stored | None:
    """The claim, where there is one and `person` may know."""
    return objects.get(kind(CLAIMS), namespace, name) if person.sees(namespace) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedDevices:
    """What a claim or a template asks for, as `claims/spec.html` shows it. configs: (requests, driver, YAML)."""

    requests: tuple[DeviceRequest, ...]
    constraints: tuple[DeviceConstraint, ...]
    configs: tuple[tuple[tuple[str, ...], str, str], ...]

    @classmethod
    def of(cls, devices: DeviceClaim) -> AskedDevices:
        configs = (
            (one.requests, one.opaque.driver, as_yaml(one.opaque.parameters)) for one in devices.config if one.opaque
        )
        return cls(requests=devices.requests, constraints=devices.constraints, configs=tuple(configs))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rivals:
    """The pending claims that ask for `classes`, as a claim which holds devices of these. more: those not named."""

    classes: list[str]
    claims: list[ResourceClaim]
    more: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimSheet:
    """One claim, for one person. rivals: None where it holds nothing."""

    line: ClaimRow
    claim: ResourceClaim
    spec: AskedDevices
    template: str
    advice: Advice | None
    complaint: Complaint | None
    given: list[GivenDevice]
    rivals: Rivals | None
    steps: list[Step]
    yaml: str
    may_edit: bool
    may_force: bool

    @property
    def meta(self) -> ObjectMeta:
        return self.claim.metadata

    @property
    def finalizers(self) -> list[tuple[str, str]]:
        """(name, who takes it off)"""
        return [(name, holder_of(name)) for name in self.meta.finalizers]

    @property
    def cdi(self) -> list[CdiFile]:
        return cdi_files(self.claim)

    @property
    def users(self) -> list[tuple[User, str]]:
        return [(user, FATES[user.fate]) for user in self.line.users]

    @property
    def reports(self) -> Sequence[AllocatedDeviceStatus]:
        return self.claim.status.devices

    @property
    def topics(self) -> str:
        return _topics(self.line)


def read_sheet(person: Person, stored: Stored, *, now: datetime | None = None) -> ClaimSheet | None:
    """None where the claim went in between."""
    now = now or datetime.now(UTC)
    line = next(iter(read_claims(person, uid=stored.uid, now=now)), None)
    if line is None:
        return None
    claim = decoded(stored, ResourceClaim)
    pods = _pods(claim, line)
    events = events_about(stored.namespace, {stored.uid, *pods, *(user.uid for user in line.users)})
    complaint = complaint_of(line, events)
    explained = explain_claim(stored.namespace, stored.name) if line.state == "pending" else None
    return ClaimSheet(
        line=line,
        claim=claim,
        spec=AskedDevices.of(claim.spec.devices),
        template=_template(claim, pods),
        advice=advise(line.verdict, line.facts, devices=line.devices, complaint=complaint, explained=explained),
        complaint=complaint,
        given=given_devices(claim, line, pods.values()),
        rivals=_rivals(person, claim) if line.state != "pending" else None,
        steps=steps(claim, _revisions(stored.uid), events, _past(stored.uid)),
        yaml=document_yaml(stored.text),
        may_edit=person.may_edit(stored.namespace),
        may_force=person.administers and line.state in ("stuck", "unused", "deleting"),
    )


def _topics(line: ClaimRow) -> str:
    names = [user.name for user in line.users if user.is_pod] or line.wanted_by
    pods = {f"pod:{line.namespace}/{name}" for name in names}
    waits = {"slices", "classes", "pool:"} if line.state == "pending" else set()
    return " ".join(sorted({f"claim:{line.key}", f"events:{line.namespace}", "nodes"} | pods | waits))


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


def _rivals(person: Person, claim: ResourceClaim) -> Rivals:
    rows = AllocatedDevice.objects.filter(claim=claim.metadata.uid).values_list("device_class", flat=True)
    classes = sorted(set(rows) - {""})
    waiting = [
        other
        for other in (pending_documents(person, most=LOOKED_THROUGH) if classes else ())
        if not {name for _, name in requested_classes(other)}.isdisjoint(classes)
    ]
    oldest = sorted(waiting, key=lambda other: other.metadata.creation_timestamp or "")
    return Rivals(classes=classes, claims=oldest[:NAMED], more=max(0, len(oldest) - NAMED))


def _revisions(uid: str) -> list[ClaimRevision]:
    return [
        ClaimRevision(at=one.at, claim=codec.decode_text(ResourceClaim, one.text), first=one.type == "ADDED")
        for one in history.of_object(uid)
    ]


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
