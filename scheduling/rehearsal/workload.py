"""The subject of a rehearsal: a pod, the claims that each replica of it gets, and changes to try.

A replica is made as the API and the claim controller would make it: a claim from a template is each replica's own, a
claim that the pod names is shared by all of them. Their names and those of imagined nodes carry a character that no
real name has, so that nothing imagined can be taken for something that exists.

It is read from stored objects or from documents: a pod with its claims, a claim, a template. References of a document
are resolved among the other documents first, then in the cluster.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from msgspec import structs

from claims.admission import KnownPriorities, with_priority
from claims.kinds.containers import Container
from claims.kinds.pods import Pod, PodResourceClaim, PodSpec, Toleration
from claims.kinds.priority_classes import PRIORITY_CLASS, PriorityClass
from claims.kinds.resource_claims import (
    DeviceConstraint,
    DeviceRequest,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimStatus,
    ResourceClaimTemplate,
)
from claims.pod_claims import claim_for, references
from inventory.kinds.devices import CELDeviceSelector, DeviceSelector, DeviceToleration
from manciple.store import objects
from manciple.store.objects import decoded
from manciple.wire.base import ApiObject, ObjectMeta
from manciple.wire.errors import NotFound
from manciple.wire.resources import CLAIMS, PODS, TEMPLATES, kind

#: Stands in names of what is only imagined.
IMAGINED = "~"
#: The selector that every device passes: it stands where one was left out, so that the others keep their numbers.
LEFT_OUT = "true"
#: The entry under which a pod that was made up for a claim uses it.
ONLY = "claim"


def is_imagined(node: str) -> bool:
    return IMAGINED in node


#: Each part begins where a name does, and gives nothing back: a long text takes no longer than its length.
_NEW = re.compile(rf"(?:(?<![\w./-])[\w./-]++{IMAGINED})?(?<![\w.-])([\w.-]++){IMAGINED}(\d+)")


#: In the name of a claim that was made for a replica: `web~1-gpus`.
_REPLICA = re.compile(rf"{IMAGINED}\d+-")


def spoken(text: str) -> str:
    """A text in which imagined nodes and their pools are called what they are, `new node 2 like gpu-a19`, and claims of
    replicas as they would be.
    """
    return _NEW.sub(r"new node \2 like \1", _REPLICA.sub("-", text)) if IMAGINED in text else text


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What is tried instead of what is written. Requests are named `entry/request`."""

    #: (request, index of its selector)
    without: frozenset[tuple[str, int]] = frozenset()
    #: (entry, index of a constraint of its claim): dropped; with another attribute
    unconstrained: frozenset[tuple[str, int]] = frozenset()
    attributes: Mapping[tuple[str, int], str] = field(default_factory=dict)
    classes: Mapping[str, str] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    tolerate_devices: bool = False
    tolerate_nodes: bool = False
    anywhere: bool = False  # without the pod's nodeSelector and required node affinity

    @property
    def any(self) -> bool:
        return self != Changes()

    def concern(self, entry: str) -> bool:
        """Whether anything about the claim of this entry is changed."""
        named = {*(key for key, _ in self.without), *self.classes, *self.counts}
        entries = {key.partition("/")[0] for key in named} | {key for key, _ in (*self.unconstrained, *self.attributes)}
        return self.tolerate_devices or entry in entries


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A pod, with the claims of its entries: those that each replica gets, and those that all of them share."""

    pod: Pod
    own: Mapping[str, ResourceClaim] = field(default_factory=dict)
    shared: Mapping[str, ResourceClaim] = field(default_factory=dict)

    @property
    def claims(self) -> Mapping[str, ResourceClaim]:
        """Of every entry, in the order of the pod's."""
        found = {**self.shared, **self.own}
        return {entry.name: found[entry.name] for entry in self.pod.spec.resource_claims if entry.name in found}

    def changed(self, changes: Changes) -> Workload:
        """The same with what is tried instead. An allocated claim has its devices: it stays as it is."""
        pod = self.pod
        if changes.tolerate_nodes:
            anything = (*pod.spec.tolerations, Toleration(operator="Exists"))
            pod = structs.replace(pod, spec=structs.replace(pod.spec, tolerations=anything))
        if changes.anywhere:
            affinity = pod.spec.affinity and structs.replace(pod.spec.affinity, node_affinity=None)
            pod = structs.replace(pod, spec=structs.replace(pod.spec, node_selector={}, affinity=affinity))
        return Workload(
            pod=pod,
            own={entry: _changed(claim, entry, changes) for entry, claim in self.own.items()},
            shared={entry: _changed(claim, entry, changes) for entry, claim in self.shared.items()},
        )


def of_claim(claim: ResourceClaim) -> Workload:
    """A claim by itself: each replica is a pod that asks for nothing but a claim like it."""
    container = Container(name="main", image="example.com/main")
    pod = Pod(
        api_version="v1",
        kind="Pod",
        metadata=ObjectMeta(namespace=claim.metadata.namespace, name=claim.metadata.name or ONLY),
        spec=PodSpec(containers=(container,), resource_claims=(PodResourceClaim(name=ONLY, resource_claim_name=ONLY),)),
    )
    return Workload(pod=pod, own={ONLY: claim})


def replica(workload: Workload, number: int) -> tuple[Pod, tuple[ResourceClaim, ...]]:
    """Replica `number` (from 1), and the claims that are its own."""
    name = f"{workload.pod.metadata.name or workload.pod.metadata.generate_name}{IMAGINED}{number}"
    namespace = workload.pod.metadata.namespace
    claims = {entry: _own(claim, f"{name}-{entry}", namespace) for entry, claim in workload.own.items()}
    entries = tuple(
        PodResourceClaim(name=entry.name, resource_claim_name=claims[entry.name].metadata.name)
        if entry.name in claims
        else entry
        for entry in workload.pod.spec.resource_claims
    )
    meta = ObjectMeta(namespace=namespace, name=name, uid=name, labels=workload.pod.metadata.labels)
    spec = structs.replace(workload.pod.spec, resource_claims=entries, node_name="", scheduling_gates=())
    return Pod(api_version="v1", kind="Pod", metadata=meta, spec=spec), tuple(claims.values())


def _own(claim: ResourceClaim, name: str, namespace: str) -> ResourceClaim:
    meta = ObjectMeta(namespace=namespace, name=name, uid=name)
    return ResourceClaim(
        api_version=claim.api_version, kind=claim.kind, metadata=meta, spec=claim.spec, status=ResourceClaimStatus()
    )


def entry_of(claim: str, workload: Workload) -> str:
    """Which entry of the pod's a claim of a replica, "namespace/name", is; "" for none."""
    name = claim.rpartition("/")[2]
    shared = next((entry for entry, one in workload.shared.items() if one.metadata.name == name), "")
    return shared or name.rpartition(IMAGINED)[2].partition("-")[2]


# Changes -------------------------------------------------------------------------------------------------------------


def _changed(claim: ResourceClaim, entry: str, changes: Changes) -> ResourceClaim:
    if claim.status.allocation is not None or not changes.concern(entry):
        return claim
    requests = tuple(_request(one, f"{entry}/{one.name}", changes) for one in claim.spec.devices.requests)
    constraints = tuple(
        _with_attribute(one, changes.attributes.get((entry, at), ""))
        for at, one in enumerate(claim.spec.devices.constraints)
        if (entry, at) not in changes.unconstrained
    )
    devices = structs.replace(claim.spec.devices, requests=requests, constraints=constraints)
    return structs.replace(claim, spec=structs.replace(claim.spec, devices=devices))


def _with_attribute(constraint: DeviceConstraint, name: str) -> DeviceConstraint:
    if not name:
        return constraint
    if constraint.match_attribute is not None:
        return structs.replace(constraint, match_attribute=name)
    return structs.replace(constraint, distinct_attribute=name)


def written_anew(claim: ResourceClaim, entry: str, changes: Changes) -> ResourceClaimSpec:
    """What the claim has to ask for, so that it is what was tried: selectors that are left out are not written."""
    changed = _changed(claim, entry, changes).spec

    def kept(key: str, one: AskedT) -> AskedT:
        selectors = (selector for at, selector in enumerate(one.selectors) if (key, at) not in changes.without)
        return structs.replace(one, selectors=tuple(selectors))

    requests = tuple(_each(request, f"{entry}/{request.name}", kept) for request in changed.devices.requests)
    return structs.replace(changed, devices=structs.replace(changed.devices, requests=requests))


def _request(request: DeviceRequest, key: str, changes: Changes) -> DeviceRequest:
    tolerations = (DeviceToleration(operator="Exists"),) if changes.tolerate_devices else ()

    def changed(key: str, one: AskedT) -> AskedT:
        count = changes.counts.get(key)
        return structs.replace(
            one,
            device_class_name=changes.classes.get(key, one.device_class_name),
            selectors=tuple(
                DeviceSelector(cel=CELDeviceSelector(expression=LEFT_OUT)) if (key, at) in changes.without else selector
                for at, selector in enumerate(one.selectors)
            ),
            tolerations=(*one.tolerations, *tolerations),
            **({} if count is None else {"allocation_mode": "ExactCount", "count": count}),
        )

    return _each(request, key, changed)


AskedT = TypeVar("AskedT", ExactDeviceRequest, DeviceSubRequest)


class _Change(Protocol):
    def __call__(self, key: str, one: AskedT, /) -> AskedT: ...


def _each(request: DeviceRequest, key: str, change: _Change) -> DeviceRequest:
    """With `change` of what it asks for: of each alternative, where it has some."""
    if request.exactly is not None:
        return structs.replace(request, exactly=change(key, request.exactly))
    alternatives = tuple(change(f"{key}/{one.name}", one) for one in request.first_available)
    return structs.replace(request, first_available=alternatives)


def asked_of(claim: ResourceClaim, entry: str) -> Iterator[tuple[str, ExactDeviceRequest | DeviceSubRequest]]:
    """What the claim asks for, by the key that changes name it by: `entry/request`, `entry/request/alternative`."""
    for request in claim.spec.devices.requests:
        if request.exactly is not None:
            yield f"{entry}/{request.name}", request.exactly
        yield from ((f"{entry}/{request.name}/{one.name}", one) for one in request.first_available)


# From what is stored or written by hand ------------------------------------------------------------------------------


class NotRehearsable(Exception):
    """What was given cannot be rehearsed; the text says why, and what to do."""


def stored_pod(namespace: str, name: str) -> Workload:
    """Raises: NotFound for a pod, template or claim that does not exist."""
    stored = objects.get(kind(PODS), namespace, name)
    if stored is None:
        raise NotFound.of(PODS, name)
    return of_pod(decoded(stored, Pod))


def stored_claim(namespace: str, name: str) -> Workload:
    """A claim like this one, whether it has devices by now or not. Raises: NotFound."""
    stored = objects.get(kind(CLAIMS), namespace, name)
    if stored is None:
        raise NotFound.of(CLAIMS, name)
    return of_claim(structs.replace(decoded(stored, ResourceClaim), status=ResourceClaimStatus()))


def stored_template(namespace: str, name: str) -> Workload:
    """Raises: NotFound."""
    stored = objects.get(kind(TEMPLATES), namespace, name)
    if stored is None:
        raise NotFound.of(TEMPLATES, name)
    return of_template(decoded(stored, ResourceClaimTemplate))


def of_template(template: ResourceClaimTemplate) -> Workload:
    """A claim as it would be made from the template."""
    meta = template.metadata
    claim = ResourceClaim(api_version="resource.k8s.io/v1", kind="ResourceClaim", spec=template.spec.spec)
    return of_claim(structs.replace(claim, metadata=structs.replace(meta, uid="", resource_version="")))


def of_pod(pod: Pod, beside: Sequence[ApiObject] = ()) -> Workload:
    """beside: documents that come with it. Raises: NotFound for a claim or template that is nowhere."""
    own: dict[str, ResourceClaim] = {}
    shared: dict[str, ResourceClaim] = {}
    made = {one.entry: one.claim for one in references(pod) if one.claim and one.generated}
    for entry in pod.spec.resource_claims:
        if entry.resource_claim_name:
            shared[entry.name] = _claim(pod.metadata.namespace, entry.resource_claim_name, beside)
        elif entry.resource_claim_template_name:
            own[entry.name] = _made(pod, entry, made.get(entry.name), beside)
    return Workload(pod=pod, own=own, shared=shared)


def of_documents(documents: Iterable[ApiObject]) -> Workload:
    """The pod among them with the claims it names; without one, the only claim or template.

    Raises: NotRehearsable, NotFound.
    """
    found = list(documents)
    pods = [one for one in found if isinstance(one, Pod)]
    if len(pods) > 1:
        raise NotRehearsable("Rehearse one pod at a time: choose how many replicas of it beside the text.")
    if pods:
        return of_pod(_prioritized(pods[0], found), found)
    claims = [one for one in found if isinstance(one, ResourceClaim | ResourceClaimTemplate)]
    if len(claims) != 1:
        text = "Rehearse one claim at a time, or write the pod that uses them all." if claims else ""
        raise NotRehearsable(text or "Write a Pod, a ResourceClaim or a ResourceClaimTemplate.")
    only = claims[0]
    return of_claim(only) if isinstance(only, ResourceClaim) else of_template(only)


def _prioritized(pod: Pod, beside: Iterable[ApiObject]) -> Pod:
    """With the priority that its class gives it. Raises: NotRehearsable for a class that there is not."""
    stored = (decoded(one, PriorityClass) for one in objects.list(PRIORITY_CLASS).items)
    classes = {one.metadata.name: one for one in stored}
    classes |= {one.metadata.name: one for one in beside if isinstance(one, PriorityClass)}
    try:
        return with_priority(pod, KnownPriorities.read(list(classes.values())))
    except ValueError as error:
        raise NotRehearsable(f"The pod would be refused: {error}.") from error


def known_claim(claim: ResourceClaim) -> ResourceClaim | None:
    """What is really there of a claim."""
    stored = objects.get(kind(CLAIMS), claim.metadata.namespace, claim.metadata.name)
    return None if stored is None else decoded(stored, ResourceClaim)


def _claim(namespace: str, name: str, beside: Sequence[ApiObject]) -> ResourceClaim:
    for one in beside:
        if isinstance(one, ResourceClaim) and one.metadata.name == name:
            meta = structs.replace(one.metadata, namespace=namespace, uid=one.metadata.uid or f"{name}~")
            return structs.replace(one, metadata=meta)
    stored = objects.get(kind(CLAIMS), namespace, name)
    if stored is None:
        raise NotFound.of(CLAIMS, name)
    return decoded(stored, ResourceClaim)


def _made(pod: Pod, entry: PodResourceClaim, made: str | None, beside: Sequence[ApiObject]) -> ResourceClaim:
    """The claim that is made for an entry; where one was made already, one like it: its template may be another now."""
    namespace, wanted = pod.metadata.namespace, entry.resource_claim_template_name or ""
    if made and (stored := objects.get(kind(CLAIMS), namespace, made)) is not None:
        return decoded(stored, ResourceClaim)
    for one in beside:
        if isinstance(one, ResourceClaimTemplate) and one.metadata.name == wanted:
            return claim_for(pod, entry, one)
    template = objects.get(kind(TEMPLATES), namespace, wanted)
    if template is None:
        raise NotFound.of(TEMPLATES, wanted)
    return claim_for(pod, entry, decoded(template, ResourceClaimTemplate))
