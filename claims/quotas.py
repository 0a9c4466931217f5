"""Usage of quotas: every write is charged in its own transaction, and refused if it exceeds a quota.

    a new object would exceed a limit    -> refused, for every writer
    a new object fits                    -> written, together with the quota's status
    an object is deleted or counts less  -> the status is updated in the same transaction
    a claim is allocated                 -> like a new object, if a quota limits held devices (`allocated_usage`)
    a pod gets a deadline                -> like a new object in its new scopes, and so are devices that its claims hold

Writers are serialized, so no amount is given twice. A write is checked against the usage in the quota's status plus the
charges of the same transaction so far, which the writer notes and rolls back with the write. At the end of the
transaction (`settle`) the status is written once, from the net change of each object.

A new quota, or one with new limits, is counted at once if it covers few objects. Otherwise a controller counts
(`Tally`) outside of a transaction, and adds what changed meanwhile inside of one. Until then, uncounted keys limit
nothing, as upstream. The controller recounts everything from time to time, to correct a restored database, a status
that was written by hand, and deleted pods that stopped counting when their grace period passed. Source:
apiserver/pkg/admission/plugin/resourcequota/controller.go (v1.36).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from msgspec import structs

from claims.kinds.allocated_usage import drawn_by, draws_nothing
from claims.kinds.pods import Pod, PodExtendedResourceClaimStatus
from claims.kinds.quotas import RESOURCE_QUOTA, ResourceQuota, ResourceQuotaStatus
from claims.kinds.resource_claims import DeviceRequestAllocationResult, ResourceClaim
from claims.kinds.resource_usage import (
    ALIASES,
    CLAIMS,
    COUNT,
    DRAFT_CLAIMS,
    IGNORED,
    MEASURED,
    NONE,
    PODS,
    ExtendedNames,
    QuotaLimits,
    Usage,
    is_charged,
    keys_of,
    minus,
    missing_amounts,
    parsed,
    plus,
    usage_of,
    written,
)
from inventory.kinds.devices import Device, DeviceClass, ResourceSlice
from inventory.models import Device as PublishedDevice
from manciple.store import event_log, hooks, sql
from manciple.store import objects as store
from manciple.store.hooks import Write
from manciple.store.objects import Writer
from manciple.store.writer import held
from manciple.wire.base import ApiObject
from manciple.wire.errors import Forbidden
from manciple.wire.identity import SCHEDULER, controller
from manciple.wire.quantity import Quantity
from manciple.wire.registry import Kind, registry

#: The writer of usage (upstream: the service account of that name in kube-controller-manager).
IDENTITY = controller("resourcequota-controller")
QUOTAS = RESOURCE_QUOTA.resource
#: The maximum of objects that are counted inside a transaction; the controller counts more.
FEW = 200


class Excess(NamedTuple):
    """The first key of a quota that a write exceeds, with its amounts as text."""

    namespace: str
    quota: str
    key: str
    requested: str
    used: str
    hard: str


class QuotaExceeded(Forbidden):
    """The write exceeds a quota. It may succeed once other usage is released."""

    def __init__(self, message: str, *, details: dict[str, Any] | None, excess: Excess) -> None:
        super().__init__(message, details=details)
        self.excess = excess


def _limits(quotas: Sequence[ResourceQuota]) -> tuple[QuotaLimits, ...]:
    return tuple(sorted(map(QuotaLimits.of, quotas), key=lambda quota: quota.name))


#: The quotas of a namespace, by name.
LIMITS: hooks.PolicyCache[tuple[QuotaLimits, ...]] = hooks.PolicyCache(QUOTAS, _limits, nothing=())


# Charging -------------------------------------------------------------------------------------------------------------


#: Namespaces in which usage may have changed.
TOUCHED = "quotas: touched"
#: (namespace, name) of quotas that this transaction created or gave new limits.
FRESH = "quotas: fresh"


def charge(writer: Writer, write: Write, limits: Sequence[QuotaLimits]) -> None:
    """Raises: QuotaExceeded; Forbidden for a pod without requests or limits that a quota demands."""
    resource, new, old = write.kind.resource, write.new, write.old
    namespace = (old if new is None else new).metadata.namespace
    if resource in IGNORED:
        return
    is_removed = new is None or (new.metadata.deletion_timestamp is not None and not held(new.metadata))
    if is_removed:
        _touch(writer, namespace)
    elif old is None or _counts_differently(resource, new, old, limits):
        _check(writer, write, limits)
    elif resource == CLAIMS and new.metadata.owner_references != old.metadata.owner_references:
        _touch(writer, namespace)  # it may count by another pod, and holds nothing more


def _touch(writer: Writer, namespace: str) -> None:
    writer.note(TOUCHED, writer.noted(TOUCHED, frozenset()) | {namespace})


def _counts_differently(resource: str, new: Any, old: Any, limits: Sequence[QuotaLimits]) -> bool:
    """Whether an update can change what an object counts. A claim's spec never changes, but its allocation does.

    A pod whose status names another claim for its extended resources changes what its claims count.
    """
    if resource == PODS:
        same_spec = new.spec is old.spec or new.spec == old.spec
        named, was_named = (one.status.extended_resource_claim_status for one in (new, old))
        return not same_spec or is_charged(new) != is_charged(old) or named != was_named
    if resource == CLAIMS and any(quota.of_allocations for quota in limits):
        return bool(new.status.allocation != old.status.allocation)
    return resource in MEASURED and usage_of(resource, new, classes={}) != usage_of(resource, old, classes={})


def _check(writer: Writer, write: Write, limits: Sequence[QuotaLimits]) -> None:
    resource, new = write.kind.resource, write.new
    namespace = new.metadata.namespace
    # The scheduler creates the claim for a pod's extended resources before it writes the pod that names it.
    creates_claim = resource == CLAIMS and write.old is None and write.identity.name == SCHEDULER.name
    account = Account(writer, extended_claim=new if creates_claim else None)
    if resource == PODS and write.old is None:
        for quota in limits:
            missing = missing_amounts(new, quota.hard) if quota.concerns(resource, new) else ""
            if missing:
                why = f"failed quota: {quota.name}: {missing}"
                raise Forbidden(_forbidden(write, why), details=_details(write))
    charged: dict[str, Usage] = {}
    _touch(writer, namespace)
    moving = _moving_with(writer, write, limits)
    following = Account(writer, {namespace: {new.metadata.name: new}}) if moving else account
    for quota in limits:
        used = _used_so_far(writer, namespace, quota.name)
        wanted = minus(account.share(quota, resource, new), account.share(quota, resource, write.old))
        for claim in moving:
            held = following.share(quota, CLAIMS, claim, before=True)
            wanted = plus(wanted, minus(held, account.share(quota, CLAIMS, claim)))
        wanted = {key: amount for key, amount in wanted.items() if amount.sign > 0 and key in used}
        exceeded = sorted(key for key, amount in wanted.items() if used[key] + amount > quota.hard[key])
        if exceeded:
            key = exceeded[0]
            amounts = [one[key].canonical() for one in (wanted, used, quota.hard)]
            raise QuotaExceeded(
                _forbidden(write, _exceeded_message(quota, wanted, used, exceeded)),
                details=_details(write),
                excess=Excess(namespace, quota.name, key, *amounts),
            )
        charged[quota.name] = plus(used, wanted)
    writer.note(_ledger(namespace), {**writer.noted(_ledger(namespace), {}), **charged})


def _moving_with(writer: Writer, write: Write, limits: Sequence[QuotaLimits]) -> list[ApiObject]:
    """The generated claims of a pod whose spec changes: their devices may enter the scope of another quota with it."""
    if write.kind.resource != PODS or write.old is None or write.new.spec == write.old.spec:
        return []
    if not any(one.of_allocations and one.scopes for one in limits):
        return []
    claims = registry.by_resource(CLAIMS)
    found = (writer.get(claims, write.old.metadata.namespace, name) for name in sorted(claims_made_for(write.old)))
    return [claim for claim in found if claim is not None]


def _ledger(namespace: str) -> str:
    """The writer's note with the usage of each quota of the namespace, including this transaction's charges."""
    return f"quotas: used in {namespace}"


def _used_so_far(writer: Writer, namespace: str, name: str) -> Usage:
    noted: Mapping[str, Usage] = writer.noted(_ledger(namespace), {})
    if name in noted:
        return noted[name]
    quota = cast("ResourceQuota | None", writer.get(RESOURCE_QUOTA, namespace, name))
    return {} if quota is None else parsed(quota.status.used)


def _exceeded_message(quota: QuotaLimits, wanted: Usage, used: Usage, exceeded: Sequence[str]) -> str:
    def listed(amounts: Usage) -> str:
        return ",".join(f"{key}={amounts[key].canonical()}" for key in exceeded)

    return (
        f"exceeded quota: {quota.name}, requested: {listed(wanted)}, used: {listed(used)}, limited: "
        f"{listed(quota.hard)}"
    )


def _forbidden(write: Write, why: str) -> str:
    return f'{write.kind.resource} "{write.new.metadata.name}" is forbidden: {why}'


def _details(write: Write) -> dict[str, Any]:
    details = {"name": write.new.metadata.name, "group": write.kind.group, "kind": write.kind.plural}
    return {key: text for key, text in details.items() if text}


# At the end of a transaction ------------------------------------------------------------------------------------------


def settle(writer: Writer) -> None:
    """Write the usage of quotas in the namespaces that the transaction touched."""
    touched: frozenset[str] = writer.noted(TOUCHED, frozenset())
    changes: dict[str, list[tuple[str, Any, Any]]] = defaultdict(list)
    pods_before: dict[str, dict[str, Pod | None]] = defaultdict(dict)
    for change in writer.net_changes():
        namespace, resource = change.current.object.metadata.namespace, change.kind.resource
        if namespace in touched and resource not in IGNORED:
            new = None if change.type == "DELETED" else change.current.object
            old = change.previous and change.previous.object
            changes[namespace].append((resource, new, old))
            if resource == PODS:
                pods_before[namespace].setdefault(change.current.object.metadata.name, cast("Pod | None", old))
    for namespace in pods_before:
        changes[namespace] += _claims_of_changed_pods(writer, namespace, changes[namespace])
    account = Account(writer, pods_before)
    with writer.savepoint(identity=IDENTITY):
        for namespace, found in changes.items():
            for quota in LIMITS.of(writer, namespace):
                _settle(writer, namespace, quota, found, account)


def _claims_of_changed_pods(
    writer: Writer, namespace: str, changes: Sequence[tuple[str, Any, Any]]
) -> list[tuple[str, Any, Any]]:
    """Unchanged claims whose usage may change because their pod changed or was deleted."""
    if not any(one.of_allocations and one.scopes for one in LIMITS.of(writer, namespace)) and not EXTENDED.of(writer):
        return []
    names: set[str] = set()
    for resource, new, old in changes:
        if resource == PODS and old is not None and (new is None or _counts_differently(PODS, new, old, ())):
            names |= claims_made_for(old) | (claims_made_for(new) if new is not None else set())
    names -= {(new or old).metadata.name for resource, new, old in changes if resource == CLAIMS}
    claims = (writer.get(registry.by_resource(CLAIMS), namespace, name) for name in sorted(names))
    return [(CLAIMS, claim, claim) for claim in claims if claim is not None]


def _settle(
    writer: Writer,
    namespace: str,
    limits: QuotaLimits,
    changes: Iterable[tuple[str, Any, Any]],
    account: Account,
) -> None:
    quota = cast("ResourceQuota | None", writer.get(RESOURCE_QUOTA, namespace, limits.name))
    if quota is None or not quota.status.used:
        return
    if (namespace, limits.name) in writer.noted(FRESH, frozenset()):
        # It was counted in the middle of these changes, so count again.
        following = counted_at_once(writer, quota, known={}) or quota
    else:
        used = parsed(quota.status.used)
        before = dict(used)
        for resource, new, old in changes:
            share_before = account.share(limits, resource, old, before=True)
            changed = minus(account.share(limits, resource, new), share_before)
            used = plus(used, {key: amount for key, amount in changed.items() if key in used})
        following = quota if used == before else with_used(quota, used)
    if following != quota:
        writer.update(RESOURCE_QUOTA, following, subresource="status")


def with_used(quota: ResourceQuota, used: Usage) -> ResourceQuota:
    """`quota` with a status of its current limits, and of `used` for those that are limited."""
    hard = written(parsed(quota.spec.hard))
    usage = written({key: used[key] for key in hard if key in used})
    return structs.replace(quota, status=ResourceQuotaStatus(hard=hard, used=usage))


# Counting -------------------------------------------------------------------------------------------------------------


def counted_at_once(writer: Writer, quota: ResourceQuota, *, known: Usage) -> ResourceQuota | None:
    """`quota` with its usage, counted now, or with `known` if there are too many objects."""
    namespace, limits = quota.metadata.namespace, QuotaLimits.of(quota)
    tally = Tally(namespace, (limits,), writer)
    kinds = [registry.by_resource(resource) for resource in tally.measured]
    if sum(sql.count(kind.resource, namespace=namespace) for kind in kinds) > FEW:
        return with_used(quota, known)
    _touch(writer, namespace)
    writer.note(FRESH, writer.noted(FRESH, frozenset()) | {(namespace, quota.metadata.name)})
    for kind in kinds:
        for obj in writer.list(kind, namespace=namespace):
            tally.put(kind.resource, obj.metadata.name, obj)
    return with_used(quota, tally.used(limits, writer))


class Tally:
    """Counts a namespace for some quotas, object by object, so that single objects can be corrected later."""

    def __init__(self, namespace: str, limits: Sequence[QuotaLimits], reader: Writer) -> None:
        self.namespace, self.limits = namespace, tuple(limits)
        self._classes = EXTENDED.of(reader)
        self.read_on(reader)
        #: (resource, name) -> what the object counts for each of the quotas
        self._shares: dict[tuple[str, str], tuple[Usage, ...]] = {}
        self._totals: list[dict[str, Quantity]] = [{} for _ in self.limits]
        #: pod -> generated claims whose usage depends on it
        self._made_for: dict[str, set[str]] = defaultdict(set)

    def read_on(self, reader: Writer) -> None:
        """Read the counters of devices and the owners of claims in this transaction."""
        self._reader = reader
        counters = any(one.of_counters for one in self.limits)
        self._draws = PublishedDraws(reader).draws if counters else draws_nothing

    @property
    def measured(self) -> list[str]:
        """The resources of which objects count by what they say, as far as the quotas ask."""
        found = []
        for resource in (PODS, CLAIMS, DRAFT_CLAIMS, *MEASURED):
            for one in self.limits:
                keys = keys_of(resource, one.hard, self._classes)
                if keys - {f"{COUNT}{resource}"} or (keys and one.scopes):
                    found.append(resource)
                    break
        return found

    def made_for(self, pod: str) -> frozenset[str]:
        """The claims that may count otherwise when this pod changes."""
        return frozenset(self._made_for.get(pod, ()))

    def _owner(self, claim: ResourceClaim) -> Pod | None:
        if not any(one.asks_for_owner(claim) for one in self.limits):
            return None
        for one in claim.metadata.owner_references:
            if one.controller and one.kind == "Pod":
                self._made_for[one.name].add(claim.metadata.name)
        return owning_pod(claim, lambda name: pod_named(self._reader, self.namespace, name))

    def put(self, resource: str, name: str, obj: Any) -> None:
        """Count an object anew; None is gone."""
        before = self._shares.pop((resource, name), None)
        shares: tuple[Usage, ...] | None = None
        if obj is not None:
            owner = self._owner(obj) if resource == CLAIMS else None
            usage = usage_of(resource, obj, classes=self._classes, owner=owner, draws=self._draws)
            shares = tuple(one.share(resource, obj, usage, self._classes, owner) for one in self.limits)
            self._shares[resource, name] = shares
        for position, total in enumerate(self._totals):
            added = shares[position] if shares else {}
            self._totals[position] = minus(plus(total, added), before[position] if before else {})

    def used(self, limits: QuotaLimits, writer: Writer) -> Usage:
        """Every key of `limits`: what was put, and of other kinds how many there are in this transaction."""
        total = self._totals[self.limits.index(limits)]
        return {key: total.get(key, NONE) if key in total else self._number(key, limits, writer) for key in limits.hard}

    def _number(self, key: str, limits: QuotaLimits, writer: Writer) -> Quantity:
        """How many objects there are of the kind that `key` counts; none where it counts no whole objects."""
        resource = key.removeprefix(COUNT) if key.startswith(COUNT) else ALIASES.get(key, "")
        kind = next((one for one in registry if one.resource == resource and one.namespaced), None)
        if kind is None or resource in IGNORED or resource in self.measured or limits.scopes:
            return NONE
        return Quantity.of(_number_of(kind, self.namespace, writer))


def _number_of(kind: Kind, namespace: str, writer: Writer) -> int:
    """How many there are, what this transaction has written included."""
    number = sql.count(kind.resource, namespace=namespace)
    for change in writer.net_changes():
        if change.kind.resource == kind.resource and change.current.object.metadata.namespace == namespace:
            number += {"ADDED": 1, "MODIFIED": 0, "DELETED": -1}[change.type]
    return number


def recount(namespace: str) -> int:
    """Count the quotas of a namespace from nothing. Returns how many were wrong.

    Raises: Expired where the log does not lead from the counting to the transaction; then ask again.
    """
    revision = event_log.latest_revision()
    tally = _tallied(namespace)
    with store.writing(identity=IDENTITY) as writer:
        if LIMITS.of(writer, namespace) != tally.limits:
            return 0  # counted for limits that are none any more: the next run counts again
        tally.read_on(writer)
        for resource, name in _written_since(revision, namespace, tally):
            tally.put(resource, name, writer.get(registry.by_resource(resource), namespace, name))
        return sum(_correct(writer, namespace, limits, tally) for limits in tally.limits)


def count_for(namespace: str, limits: QuotaLimits) -> Usage:
    """What is used by now of limits that nobody has set: for a look at what they would refuse."""
    with store.writing(identity=IDENTITY, dry_run=True) as reader:
        return _tally(reader, namespace, (limits,)).used(limits, reader)


def _tallied(namespace: str) -> Tally:
    """What is committed, outside of any transaction."""
    with store.writing(identity=IDENTITY, dry_run=True) as reader:
        return _tally(reader, namespace, LIMITS.of(reader, namespace))


def _tally(reader: Writer, namespace: str, limits: Sequence[QuotaLimits]) -> Tally:
    tally = Tally(namespace, limits, reader)
    for resource in tally.measured:
        kind: Kind = registry.by_resource(resource)
        for item in store.list(kind, namespace=namespace).items:
            obj = store.decode(kind, item.text)
            tally.put(resource, item.name, obj)
    return tally


def _written_since(revision: int, namespace: str, tally: Tally) -> Iterable[tuple[str, str]]:
    """(resource, name) of what may count otherwise since, each once. Raises: Expired."""
    found: dict[tuple[str, str], None] = {}
    measured = tally.measured
    while measured and (records := event_log.read_after(revision, resources={PODS, *measured})):
        for one in records:
            if one.namespace == namespace and one.resource in measured:
                found[one.resource, one.name] = None
            if one.namespace == namespace and one.resource == PODS:
                found.update(((CLAIMS, claim), None) for claim in tally.made_for(one.name))
        revision = records[-1].revision
    return found


def _correct(writer: Writer, namespace: str, limits: QuotaLimits, tally: Tally) -> bool:
    """Write what was counted. Returns whether the status told something else."""
    quota = cast("ResourceQuota | None", writer.get(RESOURCE_QUOTA, namespace, limits.name))
    if quota is None:
        return False
    following = with_used(quota, tally.used(limits, writer))
    if same_status(following, quota):
        return False
    writer.update(RESOURCE_QUOTA, following, subresource="status")
    return True


def same_status(one: ResourceQuota, other: ResourceQuota) -> bool:
    """Whether both tell the same amounts, in whatever suffixes."""
    return all(parsed(getattr(one.status, part)) == parsed(getattr(other.status, part)) for part in ("hard", "used"))


def is_counted(quota: ResourceQuota) -> bool:
    """Whether its status tells of all of its limits."""
    status, hard = quota.status, quota.spec.hard
    return parsed(status.hard) == parsed(hard) and status.used.keys() == hard.keys()


# What an object counts, with the pods, classes and counters that a transaction sees -----------------------------------


CLASSES = "deviceclasses.resource.k8s.io"
SLICES = "resourceslices.resource.k8s.io"
#: The writer's note with the devices that this transaction has read.
PUBLISHED = "quotas: published devices"


def extended_names(classes: Sequence[DeviceClass]) -> ExtendedNames:
    return {one.metadata.name: name for one in classes if (name := one.spec.extended_resource_name)}


EXTENDED: hooks.PolicyCache[ExtendedNames] = hooks.PolicyCache(CLASSES, extended_names, nothing={})


class Account:
    """What objects count in a transaction, with the owners of claims, extended resources and counters that it sees."""

    def __init__(
        self,
        writer: Writer,
        pods_before: Mapping[str, Mapping[str, Pod | None]] | None = None,
        *,
        extended_claim: ResourceClaim | None = None,
    ) -> None:
        """pods_before: namespace -> name -> the pod before the transaction changed it.
        extended_claim: a claim that the scheduler is creating; its owner's status will name it.
        """
        self._writer = writer
        self._before = pods_before or {}
        self._extended_claim = extended_claim
        self._published = PublishedDraws.of(writer)
        #: (id, whose owner?, with counters?) -> (the object, what it counts); it is held, so the id stays its own
        self._known: dict[tuple[int, str, bool], tuple[Any, Usage]] = {}

    def share(self, quota: QuotaLimits, resource: str, obj: Any, *, before: bool = False) -> Usage:
        """What `obj` counts against `quota`; nothing for None. before: with the state of its pod before the changes."""
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
    """What devices draw from counters, as published now; nothing for unpublished devices."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        #: (driver, pool, node of the allocation) -> device -> the slice that publishes it, the first by name
        self._slices: dict[tuple[str, str, str], dict[str, str]] = {}
        self._devices: dict[str, Mapping[str, Device]] = {}

    @classmethod
    def of(cls, writer: Writer) -> PublishedDraws:
        """One per transaction: many of its claims may use devices of the same slice."""
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
    """The existing pod that controls the claim. pod: looks up a pod of the claim's namespace by name."""
    owners = [one for one in claim.metadata.owner_references if one.controller and one.kind == "Pod"]
    found = ((one, pod(one.name)) for one in owners)
    return next((owner for one, owner in found if owner is not None and owner.metadata.uid == one.uid), None)


def pod_named(writer: Writer, namespace: str, name: str) -> Pod | None:
    return cast("Pod | None", writer.get(registry.by_resource(PODS), namespace, name))


def claims_made_for(pod: Pod) -> set[str]:
    """The names of the pod's generated claims, from its status."""
    names = {one.resource_claim_name or "" for one in pod.status.resource_claim_statuses}
    extended = pod.status.extended_resource_claim_status
    return (names | {extended.resource_claim_name if extended is not None else ""}) - {""}
