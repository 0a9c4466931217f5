"""Extended resources that devices stand for (KEP-5004): a container asks for `example.com/gpu: 1` and gets a device.

`Extended` is what one pod asks for by names that DeviceClasses serve (`pod_claims.ServingClasses`), and tells for each
node which special claim would get it there.

A node that advertises an amount of the resource itself (a device plugin's) serves it from that amount; on any other the
devices of the class do. So the claim's requests differ by node, and it exists in memory alone until the commit that
places the pod writes it, with allocation, reservation and the pod's status. There is at most one for a pod; it is known
by its annotation and by the uid of the pod that controls it.

One that exists before the pod has its node (its devices must be attached first, or another scheduler left it) is used
as it is where it asks for the same, and given back where it does not.
Sources: plugins/dynamicresources/extendeddynamicresources.go, deviceclass/extendedresourcecache of 1.36. PURE.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec import structs

from claims.causes.shortage_clauses import EXTENDED_RESOURCES
from claims.kinds.containers import Container
from claims.kinds.pod_resources import is_sidecar
from claims.kinds.pods import ContainerExtendedResourceRequest, Pod, PodExtendedResourceClaimStatus
from claims.kinds.resource_claims import (
    EXTENDED_CLAIM_ANNOTATION,
    DeviceClaim,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
    class_of,
)
from claims.pod_claims import controlled_by, controller_of, is_reserved_for
from manciple.wire.base import ObjectMeta
from manciple.wire.quantity import Quantity
from scheduling.state.node_fit import ServingClasses

IN_MEMORY = EXTENDED_RESOURCES


def owner_uid(claim: ResourceClaim) -> str:
    """Of the pod for whose extended resources `claim` was made; "" where it was made for something else."""
    if claim.metadata.annotations.get(EXTENDED_CLAIM_ANNOTATION) != "true":
        return ""
    owner = controller_of(claim.metadata)
    return owner[1] if owner is not None else ""


def is_in_memory(claim: ResourceClaim) -> bool:
    return claim.metadata.name == IN_MEMORY


class ServedRequest(NamedTuple):
    """What one container asks for of a resource, and what serves it. claim: its name; "" before it is made."""

    container: str
    resource: str
    device_class: str
    request: str
    claim: str


def served_requests(
    mappings: Iterable[ContainerExtendedResourceRequest], claim: ResourceClaim
) -> tuple[ServedRequest, ...]:
    """From resource to class to request, container by container."""
    name = "" if is_in_memory(claim) else claim.metadata.name
    return tuple(
        ServedRequest(
            container=one.container_name,
            resource=one.resource_name,
            device_class=class_of(claim.spec.devices.requests, one.request_name),
            request=one.request_name,
            claim=name,
        )
        for one in mappings
    )


# What a pod asks for --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecialClaim:
    """The claim that serves a pod's extended resources on some nodes: in memory, or the one that exists.

    mappings: which of its requests is for which container.
    """

    claim: ResourceClaim
    mappings: tuple[ContainerExtendedResourceRequest, ...]

    def status_of(self, made: ResourceClaim) -> PodExtendedResourceClaimStatus:
        """For the pod's status. made: the claim as it was written."""
        return PodExtendedResourceClaimStatus(resource_claim_name=made.metadata.name, request_mappings=self.mappings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Extended:
    """classes: resource -> class, of what the pod asks for and a class serves. known: its claim that exists already."""

    pod: Pod
    classes: Mapping[str, str]
    known: ResourceClaim | None = None
    _variants: dict[frozenset[str], SpecialClaim | None] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, pod: Pod, serving: ServingClasses, known: ResourceClaim | None) -> Extended | None:
        """None where classes serve nothing that the pod asks for, and no claim is left from a time when they did.

        While the gate is off classes serve nothing: what a pod without a node has from before is given back.
        """
        classes = asked_of(serving, pod)
        return cls(pod=pod, classes=classes, known=known) if classes or known is not None else None

    @property
    def held(self) -> tuple[ResourceClaim, ...]:
        """The claim that exists, where it has devices."""
        known = self.known
        return () if known is None or known.status.allocation is None else (known,)

    def from_devices(self, allocatable: Mapping[str, str]) -> frozenset[str]:
        """The resources that devices must serve on a node: those of which it advertises nothing itself."""
        return frozenset(name for name in self.classes if not advertises(allocatable, name))

    def claim_on(self, allocatable: Mapping[str, str]) -> SpecialClaim | None:
        """What serves the pod on a node with so much of everything; None where devices need not."""
        served = self.from_devices(allocatable)
        if served not in self._variants:
            self._variants[served] = self._claim_of(served)
        return self._variants[served]

    def _claim_of(self, served: frozenset[str]) -> SpecialClaim | None:
        requests, mappings = requests_for(self.pod, {name: self.classes[name] for name in served})
        if not requests:
            return None
        made = _in_memory(self.pod, requests)
        known = self.known
        same = known is not None and known.spec == made.spec and known.metadata.deletion_timestamp is None
        return SpecialClaim(claim=known if same and known is not None else made, mappings=mappings)

    def is_usable_on(self, allocatable: Mapping[str, str]) -> bool:
        """Whether nothing stands in the way of the pod there: no claim with devices that asks for something else."""
        if not self.held:
            return True
        (known,) = self.held
        wanted = self.claim_on(allocatable)
        reusable = known.metadata.deletion_timestamp is None and is_reserved_for(known, self.pod.metadata.uid)
        return reusable and wanted is not None and wanted.claim is known


@dataclass(slots=True, eq=False, repr=False)
class KnownClaims:
    """The claims that exist for the extended resources of pods.

    A pod may have two for a moment: one that takes the place of another, and that one until it is gone.
    """

    #: pod uid -> the keys of its claims by their uids; read directly, so that a pod without any costs one look-up
    by_pod: dict[str, dict[str, tuple[str, str]]] = field(default_factory=dict)

    def put(self, claim: ResourceClaim) -> str:
        """Returns the uid of the pod."""
        uid = owner_uid(claim)
        self.by_pod.setdefault(uid, {})[claim.metadata.uid] = claim.key
        return uid

    def remove(self, claim: ResourceClaim) -> str:
        """Returns the uid of the pod. Unknown ones are nothing new."""
        keys = self.by_pod.get(uid := owner_uid(claim), {})
        keys.pop(claim.metadata.uid, None)
        if not keys:
            self.by_pod.pop(uid, None)
        return uid

    def of(self, pod: Pod, find: Callable[[str, str], ResourceClaim | None]) -> ResourceClaim | None:
        """The pod's claim: rather the one that holds devices, then one that is not being deleted.

        A claim that others use was not made by a scheduler: giving it back would take their devices.
        """
        if (keys := self.by_pod.get(pod.metadata.uid)) is None:
            return None
        claims = [claim for key in keys.values() if (claim := find(*key)) is not None]
        uid = pod.metadata.uid
        own = (claim for claim in claims if all(user.uid == uid for user in claim.status.reserved_for))
        return min(own, key=_standing, default=None)


def _standing(claim: ResourceClaim) -> tuple[bool, bool, str]:
    """The first is used."""
    meta = claim.metadata
    return claim.status.allocation is None, meta.deletion_timestamp is not None, meta.name


def advertises(allocatable: Mapping[str, str], resource: str) -> bool:
    """Whether a node has any of the resource to give, through a device plugin."""
    text = allocatable.get(resource)
    return text is not None and Quantity.parse(text).nanos > 0


def asked_of(classes: ServingClasses, pod: Pod) -> dict[str, str]:
    """resource -> class, of what containers of the pod ask for, not nothing of it. Ephemeral ones cannot ask."""
    served = classes.by_resource
    return {
        name: served[name]
        for container in containers_of(pod)
        for name, text in container.resources.requests.items()
        if name in served and Quantity.parse(text).nanos
    }


def containers_of(pod: Pod) -> Sequence[Container]:
    return (*pod.spec.init_containers, *pod.spec.containers)


def _in_memory(pod: Pod, requests: tuple[DeviceRequest, ...]) -> ResourceClaim:
    return ResourceClaim(
        api_version="resource.k8s.io/v1",
        kind="ResourceClaim",
        metadata=ObjectMeta(
            namespace=pod.metadata.namespace,
            name=IN_MEMORY,
            uid=f"{IN_MEMORY}/{pod.metadata.uid}",
            generate_name=generate_name(pod),
            annotations={EXTENDED_CLAIM_ANNOTATION: "true"},
            owner_references=(controlled_by(pod),),
        ),
        spec=ResourceClaimSpec(devices=DeviceClaim(requests=requests)),
    )


def generate_name(pod: Pod) -> str:
    return f"{pod.metadata.name}-extended-resources-"


def to_create(claim: ResourceClaim) -> ResourceClaim:
    """A claim in memory, as it is written: the store gives it a name and a uid."""
    return structs.replace(claim, metadata=structs.replace(claim.metadata, name="", uid=""))


# Its requests ---------------------------------------------------------------------------------------------------------


class _Ask(NamedTuple):
    """What one container asks for of one resource. at: its place; request: what its own request is called."""

    at: int
    container: Container
    amount: int
    request: str


def requests_for(
    pod: Pod, classes: Mapping[str, str]
) -> tuple[tuple[DeviceRequest, ...], tuple[ContainerExtendedResourceRequest, ...]]:
    """The requests, by name, and which container each is for. classes: resource -> class.

    Containers and sidecars have one each. An init container runs before those that follow it and uses their devices;
    what it needs beyond them is asked for once, for the init container that needs most.
    """
    requests: list[DeviceRequest] = []
    mappings: list[ContainerExtendedResourceRequest] = []
    for resource in sorted(classes):
        asks = list(_asks(pod, resource))
        brief = [one for one in asks if _is_brief(pod, one)]
        lasting = {one.at: _request(one, classes[resource]) for one in asks if one not in brief}
        mappings += [_mapping(one, resource, one.request) for one in asks if one.at in lasting]
        shared, theirs = _of_init_containers(brief, lasting, resource, classes[resource])
        requests += [*shared, *lasting.values()]
        mappings += theirs
    return tuple(sorted(requests, key=lambda one: one.name)), tuple(mappings)


def _asks(pod: Pod, resource: str) -> Iterator[_Ask]:
    for index, container in enumerate(containers_of(pod)):
        wanted = container.resources.requests
        if resource in wanted and (count := Quantity.parse(wanted[resource]).as_int64_ceil()):
            yield _Ask(index, container, count, f"container-{index}-request-{sorted(wanted).index(resource)}")


def _is_brief(pod: Pod, one: _Ask) -> bool:
    """Whether the container ends before those that follow it start."""
    return one.at < len(pod.spec.init_containers) and not is_sidecar(one.container)


def _of_init_containers(
    brief: Iterable[_Ask], lasting: Mapping[int, DeviceRequest], resource: str, class_name: str
) -> tuple[Sequence[DeviceRequest], Sequence[ContainerExtendedResourceRequest]]:
    mappings: list[ContainerExtendedResourceRequest] = []
    own: list[tuple[_Ask, DeviceRequest]] = []
    for one in brief:
        left = one.amount
        for at, request in lasting.items():
            if at > one.at and left > 0:
                mappings.append(_mapping(one, resource, request.name))
                left -= _count(request)
        if left > 0:
            own.append((one, _request(one, class_name, left)))
            mappings.append(_mapping(one, resource, one.request))
    if not own:
        return (), mappings
    largest = max((request for _, request in own), key=_count)
    smaller = {request.name for _, request in own}
    return (largest,), [
        structs.replace(one, request_name=largest.name) if one.request_name in smaller else one for one in mappings
    ]


def _request(one: _Ask, class_name: str, count: int = 0) -> DeviceRequest:
    exactly = ExactDeviceRequest(device_class_name=class_name, allocation_mode="ExactCount", count=count or one.amount)
    return DeviceRequest(name=one.request, exactly=exactly)


def _count(request: DeviceRequest) -> int:
    return request.exactly.count if request.exactly is not None else 0


def _mapping(one: _Ask, resource: str, request: str) -> ContainerExtendedResourceRequest:
    return ContainerExtendedResourceRequest(
        container_name=one.container.name, resource_name=resource, request_name=request
    )
