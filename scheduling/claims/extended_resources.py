"""Extended resources that devices serve (KEP-5004): a container requests `example.com/gpu: 1` and gets a device.

A node that advertises an amount of the resource itself (a device plugin's) serves the request from that amount; on any
other node, devices of the class with that name do (`node_fit.ServingClasses`). So the pod's claim for them, its special
claim, differs by node. It exists in memory until the commit that places the pod writes it, with allocation, reservation
and the pod's status. A pod has at most one; it is recognised by its annotation and its owner, the pod. From top to
bottom:

    `Extended`             a pod's requests for extended resources, and the special claim for each node
    `Extended.place`       the best node and its devices
    `KnownClaims`          the special claims that exist
    `requests_for`         from containers to the requests of the claim
    `asked`, `check`, `make`, `give_back`, `with_claim`    the commit
    `ServedTwiceEvents`    nodes that advertise a resource and have devices for it, too

A special claim that exists before the pod has its node (its devices must be attached first, or another scheduler left
it) is used as it is if it requests the same, and given back if it does not.
Sources: plugins/dynamicresources/extendeddynamicresources.go, deviceclass/extendedresourcecache,
noderesources/resource_allocation.go of 1.36.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice
from typing import NamedTuple, Protocol, cast

from msgspec import structs

from claims import event_recorder
from claims.causes.causes import NodeRefusal
from claims.causes.messages import SCHEDULER_NAME
from claims.controllers.reservations import deallocated
from claims.event_recorder import EventNote
from claims.kinds.containers import Container
from claims.kinds.pod_groups import PodGroup
from claims.kinds.pods import ContainerExtendedResourceRequest, Pod
from claims.kinds.resource_claims import (
    EXTENDED_CLAIM_ANNOTATION,
    DeviceClaim,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
    class_of,
)
from claims.kinds.resource_usage import is_sidecar
from claims.pod_claims import controlled_by, controller_of, is_reserved_for
from claims.quotas import QuotaExceeded
from manciple.admission import door
from manciple.store import objects
from manciple.store.hooks import Write
from manciple.store.objects import Writer
from manciple.telemetry import metrics
from manciple.wire.base import ObjectMeta
from manciple.wire.errors import ApiError, Conflict
from manciple.wire.identity import SCHEDULER
from manciple.wire.quantity import Quantity
from manciple.wire.resources import CLAIMS, NODES, PODS, kind
from scheduling import allocator
from scheduling.allocator import (
    Allocated,
    AllocationFailed,
    Deadline,
    Fit,
    NodeChoice,
    NodePlacement,
    NodeView,
    Score,
    Snapshot,
)
from scheduling.claims.refusals import NotMade, refusal_by
from scheduling.queue.verdicts import (
    IN_MEMORY,
    AnyVerdict,
    GroupVerdict,
    Placement,
    Retry,
    SpecialClaim,
    Verdict,
    Wait,
    singles,
)
from scheduling.state.node_fit import ServingClasses
from scheduling.state.nodes import NOT_HERE, FilterResult, NodeTable

CREATES = metrics.counter(
    "scheduler_resourceclaim_creates_total",
    "Claims created for extended resources, and failures to create them.",
    "status",
)

#: Seconds for policies and webhooks about the claims of one batch: a webhook that is down must not delay other pods.
PATIENCE = 5.0
#: Nodes that serve a resource twice that one sweep reports.
MOST_REPORTED = 16


class ClusterView(Protocol):
    """The part of a worker's cluster state (`scheduling.state.cluster`) that extended resources depend on."""

    @property
    def nodes(self) -> NodeTable: ...
    def snapshot(self) -> Snapshot: ...
    def placed_of(self, group: PodGroup) -> set[str]: ...


# A pod's requests for extended resources ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Extended:
    """A pod's requests that devices may serve. classes: resource -> class. known: the special claim that exists."""

    pod: Pod
    classes: Mapping[str, str]
    known: ResourceClaim | None = None
    _variants: dict[frozenset[str], SpecialClaim | None] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, pod: Pod, serving: ServingClasses, known: ResourceClaim | None) -> Extended | None:
        """None if classes serve none of the pod's requests, and no claim is left from a time when they did.

        While the gate is off classes serve nothing, so a claim of a pod without a node is given back.
        """
        classes = {
            name: serving.by_resource[name]
            for container in containers_of(pod)
            for name, text in container.resources.requests.items()
            if name in serving.by_resource and Quantity.parse(text).nanos
        }
        return cls(pod=pod, classes=classes, known=known) if classes or known is not None else None

    @property
    def held(self) -> tuple[ResourceClaim, ...]:
        """The claim that exists, if it has devices."""
        known = self.known
        return () if known is None or known.status.allocation is None else (known,)

    def from_devices(self, allocatable: Mapping[str, str]) -> frozenset[str]:
        """The resources that devices must serve on a node: those of which it advertises nothing itself."""
        return frozenset(name for name in self.classes if not Quantity.parse(allocatable.get(name, "0")).nanos > 0)

    def claim_on(self, allocatable: Mapping[str, str]) -> SpecialClaim | None:
        """The special claim for nodes with this allocatable; None if they need no devices."""
        served = self.from_devices(allocatable)
        if served not in self._variants:
            self._variants[served] = self._claim_of(served)
        return self._variants[served]

    def _claim_of(self, served: frozenset[str]) -> SpecialClaim | None:
        requests, mappings = requests_for(self.pod, {name: self.classes[name] for name in served})
        if not requests:
            return None
        spec, known = ResourceClaimSpec(devices=DeviceClaim(requests=requests)), self.known
        if known is not None and known.spec == spec and known.metadata.deletion_timestamp is None:
            return SpecialClaim(claim=known, mappings=mappings)
        metadata = ObjectMeta(
            namespace=self.pod.metadata.namespace,
            name=IN_MEMORY,
            uid=f"{IN_MEMORY}/{self.pod.metadata.uid}",
            generate_name=generate_name(self.pod),
            annotations={EXTENDED_CLAIM_ANNOTATION: "true"},
            owner_references=(controlled_by(self.pod),),
        )
        claim = ResourceClaim(api_version="resource.k8s.io/v1", kind="ResourceClaim", metadata=metadata, spec=spec)
        return SpecialClaim(claim=claim, mappings=mappings)

    def wanting_on(
        self, allocatable: Mapping[str, str], wanting: tuple[ResourceClaim, ...]
    ) -> tuple[ResourceClaim, ...]:
        """`wanting`, and the special claim if it needs devices on nodes with this allocatable."""
        special = self.claim_on(allocatable)
        if special is None or special.claim.status.allocation is not None:
            return wanting
        return (*wanting, special.claim)

    def is_usable_on(self, allocatable: Mapping[str, str]) -> bool:
        """Whether no claim with devices that requests something else is in the pod's way on such nodes."""
        if not self.held:
            return True
        (known,) = self.held
        wanted = self.claim_on(allocatable)
        reusable = known.metadata.deletion_timestamp is None and is_reserved_for(known, self.pod.metadata.uid)
        return reusable and wanted is not None and wanted.claim is known

    # Its node --------------------------------------------------------------------------------------------------------

    def filtered(self, state: ClusterView, found: FilterResult) -> FilterResult:
        """`found` without the nodes on which the pod's existing claim does not serve it."""
        if not self.held:
            return found
        fitting = [view for view in found.fitting if self.is_usable_on(state.nodes.allocatable(view.name))]
        if len(fitting) == len(found.fitting):
            return found
        staying = {view.name for view in fitting}
        away: dict[str, tuple[NodeRefusal, ...]] = {
            view.name: (NOT_HERE,) for view in found.fitting if view.name not in staying
        }
        elsewhere = {claim.metadata.uid: claim for claim in (*found.elsewhere, *self.held)}
        return replace(
            found, fitting=tuple(fitting), refused={**found.refused, **away}, elsewhere=tuple(elsewhere.values())
        )

    def place(
        self,
        state: ClusterView,
        wanting: tuple[ResourceClaim, ...],
        nodes: Sequence[NodeView],
        *,
        score: Score,
        deadline: Deadline,
    ) -> NodePlacement:
        """As `allocator.place`, with the special claim of each node. wanting: the pod's other claims without devices.

        Nodes with the same special claim are one group, nearly always the only one. The allocator searches each group,
        and the cluster's score chooses among the results: it counts a node's free devices, or what is free of what the
        node advertises (kube-scheduler scores the two alike). If one group fails with an error, another may still
        serve the pod.
        """
        groups: dict[frozenset[str], list[NodeView]] = {}
        if state.nodes.advertise(self.classes):
            for node in nodes:
                groups.setdefault(self.from_devices(state.nodes.allocatable(node.name)), []).append(node)
        results = [
            self._on_group(state, wanting, group, score=score, deadline=deadline)
            for group in (map(tuple, groups.values()) if groups else (nodes,))
        ]
        if len(results) == 1:
            return results[0]
        placed = [
            (score(Fit(node=one.node, free=0 if one.choice is None else one.choice.free)), one)
            for one in results
            if isinstance(one.outcome, Allocated) and one.node is not None
        ]
        if placed:
            return max(placed, key=lambda pair: pair[0])[1]
        failed = [one for one in results if isinstance(one.outcome, AllocationFailed)]
        if failed:
            return failed[0]
        refusals = {name: refusal for one in results for name, refusal in one.refusals.items()}
        largest = max(results, key=lambda one: len(one.refusals))
        return NodePlacement(node=None, outcome=largest.outcome, refusals=refusals)

    def _on_group(
        self,
        state: ClusterView,
        wanting: tuple[ResourceClaim, ...],
        group: Sequence[NodeView],
        *,
        score: Score,
        deadline: Deadline,
    ) -> NodePlacement:
        if wanting_here := self.wanting_on(state.nodes.allocatable(group[0].name), wanting):
            return allocator.place(state.snapshot(), wanting_here, group, score=score, deadline=deadline)
        fits = []
        for node in group:
            left = sum(state.nodes.left_of(node.name, resource) for resource in self.classes)
            fits.append(Fit(node=node, free=left // 10**9))
        best = min(fits, key=lambda fit: (-score(fit), fit.node.name))
        choice = NodeChoice(best.free, len(fits))
        return NodePlacement(node=best.node, outcome=Allocated(results=(), trials=0), choice=choice)


# The special claims that exist ----------------------------------------------------------------------------------------


def owner_uid(claim: ResourceClaim) -> str:
    """The uid of the pod whose special claim this is; "" for any other claim."""
    if claim.metadata.annotations.get(EXTENDED_CLAIM_ANNOTATION) != "true":
        return ""
    owner = controller_of(claim.metadata)
    return owner[1] if owner is not None else ""


@dataclass(slots=True, eq=False, repr=False)
class KnownClaims:
    """The special claims that exist. A pod may have two for a moment: one and its replacement."""

    #: pod uid -> the keys of its claims by their uids; read directly, so that a pod without any costs one look-up
    by_pod: dict[str, dict[str, tuple[str, str]]] = field(default_factory=dict)

    def put(self, claim: ResourceClaim) -> str:
        """Returns the uid of the pod."""
        uid = owner_uid(claim)
        self.by_pod.setdefault(uid, {})[claim.metadata.uid] = claim.key
        return uid

    def remove(self, claim: ResourceClaim) -> str:
        """Returns the uid of the pod. Removing an unknown claim does nothing."""
        keys = self.by_pod.get(uid := owner_uid(claim), {})
        keys.pop(claim.metadata.uid, None)
        if not keys:
            self.by_pod.pop(uid, None)
        return uid

    def of(self, pod: Pod, find: Callable[[str, str], ResourceClaim | None]) -> ResourceClaim | None:
        """The pod's claim: preferably one that holds devices, then one that is not being deleted.

        A claim with other users was not made by a scheduler: giving it back would take their devices.
        """
        if (keys := self.by_pod.get(pod.metadata.uid)) is None:
            return None
        claims = [claim for key in keys.values() if (claim := find(*key)) is not None]
        own = (claim for claim in claims if all(user.uid == pod.metadata.uid for user in claim.status.reserved_for))
        return min(
            own,
            key=lambda claim: (
                claim.status.allocation is None,
                claim.metadata.deletion_timestamp is not None,
                claim.metadata.name,
            ),
            default=None,
        )


class ServedRequest(NamedTuple):
    """A container's request for a resource, and what serves it. claim: its name; "" before it is made."""

    container: str
    resource: str
    device_class: str
    request: str
    claim: str


def served_requests(
    mappings: Iterable[ContainerExtendedResourceRequest], claim: ResourceClaim
) -> tuple[ServedRequest, ...]:
    """From resource to class to request, container by container."""
    return tuple(
        ServedRequest(
            container=one.container_name,
            resource=one.resource_name,
            device_class=class_of(claim.spec.devices.requests, one.request_name),
            request=one.request_name,
            claim="" if claim.metadata.name == IN_MEMORY else claim.metadata.name,
        )
        for one in mappings
    )


# The requests of a special claim --------------------------------------------------------------------------------------


def containers_of(pod: Pod) -> Sequence[Container]:
    """Those that may request extended resources: ephemeral containers may not."""
    return (*pod.spec.init_containers, *pod.spec.containers)


def generate_name(pod: Pod) -> str:
    return f"{pod.metadata.name}-extended-resources-"


class _ContainerRequest(NamedTuple):
    """One container's request for one resource. at: the container's position; name: of its own request."""

    at: int
    container: Container
    resource: str
    amount: int
    name: str

    def requested(self, class_name: str, count: int) -> DeviceRequest:
        exactly = ExactDeviceRequest(device_class_name=class_name, allocation_mode="ExactCount", count=count)
        return DeviceRequest(name=self.name, exactly=exactly)

    def served_by(self, request: str) -> ContainerExtendedResourceRequest:
        return ContainerExtendedResourceRequest(
            container_name=self.container.name, resource_name=self.resource, request_name=request
        )


def requests_for(
    pod: Pod, classes: Mapping[str, str]
) -> tuple[tuple[DeviceRequest, ...], tuple[ContainerExtendedResourceRequest, ...]]:
    """The requests, by name, and the container that each is for. classes: resource -> class.

    Containers and sidecars have one request each. An init container ends before the containers after it start and uses
    their devices; what it needs beyond them is requested once, for the init container that needs most.
    """
    requests: list[DeviceRequest] = []
    mappings: list[ContainerExtendedResourceRequest] = []
    for resource, class_name in sorted(classes.items()):
        brief: list[_ContainerRequest] = []
        lasting: dict[int, tuple[DeviceRequest, int]] = {}
        for at, container in enumerate(containers_of(pod)):
            names = container.resources.requests
            if resource not in names or not (amount := Quantity.parse(names[resource]).as_int64_ceil()):
                continue
            name = f"container-{at}-request-{sorted(names).index(resource)}"
            one = _ContainerRequest(at, container, resource, amount, name)
            if at < len(pod.spec.init_containers) and not is_sidecar(container):
                brief.append(one)
            else:
                lasting[at] = (one.requested(class_name, amount), amount)
                mappings.append(one.served_by(name))
        shared, theirs = _of_init_containers(brief, lasting, class_name)
        requests += [*shared, *(request for request, _ in lasting.values())]
        mappings += theirs
    return tuple(sorted(requests, key=lambda one: one.name)), tuple(mappings)


def _of_init_containers(
    brief: Iterable[_ContainerRequest], lasting: Mapping[int, tuple[DeviceRequest, int]], class_name: str
) -> tuple[Sequence[DeviceRequest], Sequence[ContainerExtendedResourceRequest]]:
    """lasting: the requests of containers that keep running, with their counts, by the containers' positions."""
    mappings: list[ContainerExtendedResourceRequest] = []
    own: list[tuple[int, DeviceRequest]] = []
    for one in brief:
        left = one.amount
        for at, (request, count) in lasting.items():
            if at > one.at and left > 0:
                mappings.append(one.served_by(request.name))
                left -= count
        if left > 0:
            own.append((left, one.requested(class_name, left)))
            mappings.append(one.served_by(one.name))
    if not own:
        return (), mappings
    _, largest = max(own, key=lambda pair: pair[0])
    smaller = {request.name for _, request in own}
    return (largest,), [
        structs.replace(one, request_name=largest.name) if one.request_name in smaller else one for one in mappings
    ]


# The commit -----------------------------------------------------------------------------------------------------------

# The scheduler is a client like any other: if a quota, a policy or a webhook refuses the claim, the pod is not placed.


def asked(verdicts: Sequence[AnyVerdict], state: ClusterView) -> list[AnyVerdict]:
    """Ahead of the transaction: `verdicts` with refusals in place of the placements whose claim a policy or a webhook
    refuses. A pod for whose claim there was no time left is tried again in the next batch.
    """
    if not door.concerned(_creation()):
        return list(verdicts)
    until, late, checked = time.monotonic() + PATIENCE, False, list[AnyVerdict]()
    for verdict in verdicts:
        if late and any(_claim_to_make(one) is not None for one in singles([verdict])):
            checked += (Retry(pod=one.pod, untried=True) for one in singles([verdict]))
        elif isinstance(verdict, GroupVerdict):
            refused = {
                after.uid: after
                for before in verdict.verdicts
                if (after := _ask(before)) is not before and isinstance(after, Wait)
            }
            checked.append(verdict.with_refused(refused, state.placed_of(verdict.group)) if refused else verdict)
        else:
            checked.append(_ask(verdict))
        late = time.monotonic() > until
    return checked


def _claim_to_make(verdict: Verdict) -> ResourceClaim | None:
    """The special claim that exists in memory alone."""
    special = verdict.special if isinstance(verdict, Placement) else None
    return special.claim if special is not None and special.claim.metadata.name == IN_MEMORY else None


def _creation() -> Write:
    return Write(operation="CREATE", kind=kind(CLAIMS), identity=SCHEDULER, verb="create")


def _ask(verdict: Verdict) -> Verdict:
    claim = _claim_to_make(verdict)
    if claim is None or not isinstance(verdict, Placement):
        return verdict
    try:
        door.check(structs.replace(_creation(), new=kind(CLAIMS).prepare_create(_to_create(claim))))
    except ApiError as error:
        CREATES["failure"].inc()
        return refusal_by(verdict.pod, error)
    return verdict


def _to_create(claim: ResourceClaim) -> ResourceClaim:
    """A claim in memory, as it is written: the store gives it a name and a uid."""
    return structs.replace(claim, metadata=structs.replace(claim.metadata, name="", uid=""))


def check(state: ClusterView, placement: Placement, extended: Extended | None) -> None:
    """extended: the pod's present requests.

    Raises: Conflict if they would be served in another way than was planned.
    """
    wanted = None if extended is None else extended.claim_on(state.nodes.allocatable(placement.node))
    planned = placement.special
    if wanted is None and planned is None:
        return
    if wanted is None or planned is None or wanted.claim.spec != planned.claim.spec:
        why = f"node {placement.node} serves its extended resources in another way"
        raise Conflict.of(PODS, placement.pod.metadata.name, why)
    known = None if extended is None else extended.known
    outdated = None if known is None or wanted.claim is known else known.metadata.uid
    planned_for = None if placement.outdated is None else placement.outdated.metadata.uid
    if wanted.claim.metadata.uid != planned.claim.metadata.uid or outdated != planned_for:
        raise Conflict.of(PODS, placement.pod.metadata.name, "its claim for extended resources has changed")


def make(writer: Writer, claim: ResourceClaim, given: ResourceClaim) -> ResourceClaim:
    """Write a valid claim that existed in memory. given: the same with allocation, reservation and finalizer.

    Raises: NotMade; QuotaExceeded.
    """
    claims = kind(CLAIMS)
    fresh = claims.prepare_create(_to_create(claim))
    try:
        metadata = structs.replace(fresh.metadata, finalizers=given.metadata.finalizers)
        made = writer.create(claims, structs.replace(fresh, metadata=metadata, status=given.status))
    except ApiError as error:
        CREATES["failure"].inc()
        if isinstance(error, QuotaExceeded):
            raise  # a pod that waits for a quota is woken when it has room
        raise NotMade(error.message) from error
    CREATES["success"].inc()
    return cast("ResourceClaim", made)


def give_back(writer: Writer, known: ResourceClaim) -> None:
    """Free the claim's devices and delete it. It is no error if it is gone, or replaced, by now."""
    claim = writer.get(kind(CLAIMS), *known.key)
    if not isinstance(claim, ResourceClaim) or claim.metadata.uid != known.metadata.uid:
        return
    freed = deallocated(claim)
    if freed != claim:
        writer.update(kind(CLAIMS), freed)
    if claim.metadata.deletion_timestamp is None:
        writer.delete(kind(CLAIMS), *claim.key, uid=claim.metadata.uid)


def with_claim(pod: Pod, placement: Placement, claims: Collection[ResourceClaim]) -> Pod:
    """The pod with its special claim in its status. claims: those of the placement as they were written."""
    if placement.special is None:
        return without_claim(pod) if placement.outdated is not None else pod
    *_, made = claims
    status = structs.replace(pod.status, extended_resource_claim_status=placement.special.status_of(made))
    return structs.replace(pod, status=status)


def without_claim(pod: Pod) -> Pod:
    return structs.replace(pod, status=structs.replace(pod.status, extended_resource_claim_status=None))


# Nodes that serve a resource twice ------------------------------------------------------------------------------------

#: (node, resource, class)
ServedTwice = tuple[str, str, str]


class ServedTwiceEvents:
    """Reports each node that advertises a resource and has devices for it, once for as long as it does.

    KEP-5004 has it that a node does one or the other. Here, as in Kubernetes, the node's own amount is used, so the
    devices lie idle, and an event says so.
    """

    def __init__(self) -> None:
        self._reported: set[ServedTwice] = set()
        self._found: list[ServedTwice] = []

    def look(self, state: ClusterView) -> None:
        nodes = state.nodes
        by_resource = nodes.serving.by_resource
        self._reported = {
            (node, resource, device_class)
            for node, resource, device_class in self._reported
            if by_resource.get(resource) == device_class and node in nodes.advertising(resource)
        }
        self._found = list(islice(self._unreported(state), MOST_REPORTED))

    def _unreported(self, state: ClusterView) -> Iterator[ServedTwice]:
        nodes = state.nodes
        by_resource = nodes.serving.by_resource
        for resource, device_class in sorted(by_resource.items()) if nodes.advertise(by_resource) else ():
            reported = {node for node, name, _ in self._reported if name == resource}
            names = sorted(nodes.advertising(resource) - reported)
            views = {name: view for name in names if (view := nodes.view(name)) is not None}
            while views and (node := _with_devices(state, device_class, tuple(views.values()))):
                del views[node]
                yield node, resource, device_class

    def tell(self, now: datetime) -> None:
        """Write an event for each of the nodes that `look` has found."""
        if not self._found:
            return
        with objects.writing(identity=SCHEDULER) as writer:
            for name, resource, device_class in self._found:
                node = writer.get(kind(NODES), "", name)
                if node is None:
                    continue
                message = (
                    f"node {name} advertises {resource} itself and has devices of DeviceClass {device_class}, which "
                    f"serves that name: pods that request {resource} get what the node advertises, not these devices. "
                    "Remove the device plugin, or the name from the class."
                )
                note = EventNote(
                    regarding=node,
                    type="Warning",
                    reason="ExtendedResourceServedTwice",
                    message=message,
                    component=SCHEDULER_NAME,
                )
                event_recorder.record(writer, note, now=now)
        self._reported.update(self._found)


def _with_devices(state: ClusterView, device_class: str, views: Sequence[NodeView]) -> str:
    """One of the nodes that has a device of the class, whatever holds it; "" if none has."""
    exactly = ExactDeviceRequest(
        device_class_name=device_class, allocation_mode="ExactCount", count=1, admin_access=True
    )
    spec = ResourceClaimSpec(devices=DeviceClaim(requests=(DeviceRequest(name="any", exactly=exactly),)))
    claim = ResourceClaim(metadata=ObjectMeta(name=IN_MEMORY, uid=IN_MEMORY), spec=spec)
    found = allocator.place(state.snapshot(), [claim], views)
    return found.node.name if found.node is not None and isinstance(found.outcome, Allocated) else ""
