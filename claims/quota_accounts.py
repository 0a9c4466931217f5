"""What objects count against quotas, as a transaction sees them: with the pods that claims were made for, the classes
that serve extended resources, and what devices draw from counters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from msgspec import structs

from claims.kinds.allocated_usage import drawn_by, draws_nothing
from claims.kinds.pods import Pod, PodExtendedResourceClaimStatus
from claims.kinds.quota_usage import CLAIMS, PODS, ExtendedNames, QuotaLimits, Usage, usage_of
from claims.kinds.resource_claims import DeviceRequestAllocationResult, ResourceClaim
from inventory.kinds.devices import Device, DeviceClass, ResourceSlice
from inventory.models import Device as PublishedDevice
from manciple.store import hooks
from manciple.store.objects import Writer
from manciple.wire.registry import registry

CLASSES = "deviceclasses.resource.k8s.io"
SLICES = "resourceslices.resource.k8s.io"
#: what this transaction has looked up of devices
PUBLISHED = "quotas: published devices"


def extended_names(classes: Sequence[DeviceClass]) -> ExtendedNames:
    return {one.metadata.name: name for one in classes if (name := one.spec.extended_resource_name)}


EXTENDED: hooks.PolicyCache[ExtendedNames] = hooks.PolicyCache(CLASSES, extended_names, nothing={})


class Account:
    """What objects count, as a transaction sees them."""

    def __init__(
        self,
        writer: Writer,
        pods_before: Mapping[str, Mapping[str, Pod | None]] | None = None,
        *,
        extended_claim: ResourceClaim | None = None,
    ) -> None:
        """pods_before: namespace -> name -> the pod before the transaction changed it.
        extended_claim: one that the scheduler is creating for its owner, whose status will name it.
        """
        self._writer = writer
        self._before = pods_before or {}
        self._extended_claim = extended_claim
        self._published = PublishedDraws.of(writer)
        #: (id, whose owner?, with counters?) -> (the object, what it counts); it is held, so the id stays its own
        self._known: dict[tuple[int, str, bool], tuple[Any, Usage]] = {}

    def share(self, quota: QuotaLimits, resource: str, obj: Any, *, before: bool = False) -> Usage:
        """What `obj` counts against `quota`; nothing where there is none. before: with its pod as that was."""
        if obj is None:
            return {}
        classes = EXTENDED.of(self._writer) if resource == CLAIMS else {}
        owner = self._owner(obj, before=before) if resource == CLAIMS and quota.asks_for_owner(obj) else None
        key = id(obj), "" if owner is None else str(owner.metadata.resource_version), quota.of_counters
        if key not in self._known:
            draws = self._published.draws if quota.of_counters else draws_nothing
            usage = usage_of(resource, obj, classes=classes, owner=owner, draws=draws)
            self._known[key] = (obj, usage)
        return quota.share(resource, obj, self._known[key][1], classes, owner)

    def _owner(self, claim: ResourceClaim, *, before: bool) -> Pod | None:
        known = self._before.get(claim.metadata.namespace, {}) if before else {}

        def pod(name: str) -> Pod | None:
            return known[name] if name in known else pod_named(self._writer, claim.metadata.namespace, name)

        owner = owning_pod(claim, pod)
        if owner is None or claim is not self._extended_claim:
            return owner
        named = PodExtendedResourceClaimStatus(resource_claim_name=claim.metadata.name)
        return structs.replace(owner, status=structs.replace(owner.status, extended_resource_claim_status=named))


class PublishedDraws:
    """What devices draw from counters, as it is published now. Of a device that nobody publishes, nothing is known."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        #: (driver, pool, node of the allocation) -> device -> the slice that publishes it, the first by name
        self._slices: dict[tuple[str, str, str], dict[str, str]] = {}
        self._devices: dict[str, Mapping[str, Device]] = {}

    @classmethod
    def of(cls, writer: Writer) -> PublishedDraws:
        """Of a transaction, in which many claims may ask for devices of one slice."""
        known = writer.noted(PUBLISHED) or cls(writer)
        writer.note(PUBLISHED, known)
        return cast("PublishedDraws", known)

    def draws(self, result: DeviceRequestAllocationResult, node: str) -> Usage:
        key = result.driver, result.pool, node
        if key not in self._slices:
            rows = PublishedDevice.objects.filter(driver=result.driver, pool=result.pool)
            if node:
                rows = rows.filter(node_name__in=(node, ""))
            # A later row replaces an earlier one: the node's own device that of no single node.
            self._slices[key] = dict(rows.order_by("node_name", "-slice_name").values_list("name", "slice_name"))
        device = self._of_slice(self._slices[key].get(result.device, "")).get(result.device)
        return {} if device is None else drawn_by(device.consumes_counters)

    def _of_slice(self, name: str) -> Mapping[str, Device]:
        if name not in self._devices:
            found = self._writer.get(registry.by_resource(SLICES), "", name) if name else None
            devices = found.spec.devices if isinstance(found, ResourceSlice) else ()
            self._devices[name] = {device.name: device for device in devices}
        return self._devices[name]


def owning_pod(claim: ResourceClaim, pod: Callable[[str], Pod | None]) -> Pod | None:
    """The pod that a claim was made for, while it is there. pod: one by name, in the claim's namespace."""
    owners = [one for one in claim.metadata.owner_references if one.controller and one.kind == "Pod"]
    found = ((one, pod(one.name)) for one in owners)
    return next((owner for one, owner in found if owner is not None and owner.metadata.uid == one.uid), None)


def pod_named(writer: Writer, namespace: str, name: str) -> Pod | None:
    return cast("Pod | None", writer.get(registry.by_resource(PODS), namespace, name))


def claims_made_for(pod: Pod) -> set[str]:
    """The names of the claims that were made for it, as far as it tells."""
    names = {one.resource_claim_name or "" for one in pod.status.resource_claim_statuses}
    extended = pod.status.extended_resource_claim_status
    return (names | {extended.resource_claim_name if extended is not None else ""}) - {""}
