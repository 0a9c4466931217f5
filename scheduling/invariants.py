"""What must hold whatever happened: the promises of docs/explanation/architecture.md, checked against documents.

Each check takes the facts of one moment (`scheduling.cluster_facts`) and yields a sentence per violation. `CHECKS`
names them as `manage.py check_invariants` prints them. Extensions of the scheduler (`scheduling.state.extensions`) add
to these checks; what they leave behind is checked while their gates are off as well (`scheduling.claims.kept`).

    1  no exclusive device in two allocations; consumed capacity and counters never above what is published
    2  every allocated claim has the delete-protection finalizer; every reserved claim is allocated
    3  a pod with a node has all its claims allocated, reserved for it, and available on that node
    4  what quotas tell as used is what the objects of their namespaces add up to
    5  claims that nobody holds are deallocated within one controller sweep
    6  on a node: prepared claims of the checkpoint = CDI files = claims of pods that may run there (with a home only)
    7  the event log, replayed, gives the current state of every kind
    8  of a gang as many pods have a node as it needs, or none has (unless it was whole once); claims are reserved for
       groups that exist
    9  what drivers' controllers allocate is reserved for no pod while it is to be deallocated
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator

from claims.controllers.reservations import FINALIZER, decide, is_idle
from claims.kinds.allocated_usage import Draws, drawn_by, draws_nothing
from claims.kinds.pod_groups import (
    CLAIMS_GATE,
    GANG_GATE,
    group_name,
    is_group,
    is_reserved_for_group_of,
    is_scheduled,
    min_count,
)
from claims.kinds.pods import Pod
from claims.kinds.quotas import ResourceQuota
from claims.kinds.resource_claims import (
    DeviceRequestAllocationResult,
    DrawnCounters,
    ResourceClaim,
    highest,
    is_allocated_by_controller,
    node_of,
    pools_allocated_from,
    pools_in_use,
    recorded_draw,
)
from claims.kinds.resource_usage import IGNORED, MEASURED, NONE, QuotaLimits, Usage, parsed, plus, usage_of
from claims.pod_claims import claim_names, is_done, is_reserved_for
from claims.quotas import owning_pod
from inventory.kinds import gates
from inventory.kinds.devices import Device, ResourceSlice
from inventory.kinds.nodes import Node
from inventory.kinds.pools import PoolKey
from manciple.store.objects import decoded
from manciple.wire.base import ApiObject, condition_of
from manciple.wire.quantity import Quantity
from manciple.wire.resources import CLAIMS, DRAFT_CLAIMS, PODS
from manciple.wire.selectors import node_selector_matches
from scheduling.claims import kept
from scheduling.claims.extended_resources import owner_uid
from scheduling.cluster_facts import ClusterFacts
from scheduling.queue.verdicts import POD_SCHEDULED
from scheduling.state import extensions

#: (pool, device)
DeviceKey = tuple[PoolKey, str]


Check = Callable[[ClusterFacts], Iterator[str]]


def results_of(claim: ResourceClaim) -> tuple[DeviceRequestAllocationResult, ...]:
    return claim.status.allocation.devices.results if claim.status.allocation else ()


def in_use(facts: ClusterFacts) -> Iterator[tuple[ResourceClaim, DeviceRequestAllocationResult, DeviceKey]]:
    """What claims hold, with its pool; with each, if it may be of several. Admin access holds nothing."""
    published: dict[tuple[str, str], set[str]] = defaultdict(set)
    for one in facts.slices:
        published[one.spec.driver, one.spec.pool.name].add(one.spec.node_name or "")
    for claim in facts.claims:
        node = node_of(claim.status.allocation) if claim.status.allocation else ""
        for result in (one for one in results_of(claim) if not one.admin_access):
            nodes = published.get((result.driver, result.pool), ())
            for pool in pools_allocated_from(result.driver, result.pool, node, nodes):
                yield claim, result, (pool, result.device)


def name_of(obj: ResourceClaim | Pod | ResourceQuota) -> str:
    return f"{obj.metadata.namespace}/{obj.metadata.name}"


# 1 -------------------------------------------------------------------------------------------------------------------


def devices_are_given_once(facts: ClusterFacts) -> Iterator[str]:
    holders: dict[DeviceKey, list[str]] = defaultdict(list)
    controllers: dict[DeviceKey, set[str]] = defaultdict(set)
    sharers: dict[DeviceKey, list[str]] = defaultdict(list)
    for claim, result, key in in_use(facts):
        (sharers if result.share_id else holders)[key].append(name_of(claim))
        if claim.status.allocation is not None and not result.share_id:
            controllers[key].add(claim.status.allocation.controller_name)
    for key, names in sorted(holders.items()):
        pool, device = key
        if len(names) > 1 and (len(controllers[key]) > 1 or "" in controllers[key]):
            yield f"device {pool}/{device} is allocated to {', '.join(sorted(names))}"
        elif key in sharers:
            yield f"device {pool}/{device} is allocated to {names[0]} and shared by {', '.join(sorted(sharers[key]))}"
    yield from _capacity_is_kept(facts)
    yield from _counters_are_kept(facts)


def _published(facts: ClusterFacts) -> dict[PoolKey, list[ResourceSlice]]:
    """The slices of each pool's newest generation."""
    pools: dict[PoolKey, list[ResourceSlice]] = defaultdict(list)
    for published in facts.slices:
        spec = published.spec
        pools[PoolKey(spec.driver, spec.pool.name, spec.node_name or "")].append(published)
    newest = {key: max(one.spec.pool.generation for one in slices) for key, slices in pools.items()}
    return {key: [s for s in slices if s.spec.pool.generation == newest[key]] for key, slices in pools.items()}


def _devices(slices: Iterable[ResourceSlice]) -> dict[str, Device]:
    return {device.name: device for published in slices for device in published.spec.devices}


def _capacity_is_kept(facts: ClusterFacts) -> Iterator[str]:
    consumed: dict[DeviceKey, Counter[str]] = defaultdict(Counter)
    for _, result, key in in_use(facts):
        for name, amount in result.consumed_capacity.items():
            consumed[key][name] += Quantity.parse(amount).nanos
    published = {key: _devices(slices) for key, slices in _published(facts).items()}
    for (pool, name), amounts in sorted(consumed.items()):
        device = published.get(pool, {}).get(name)
        for capacity, total in sorted(amounts.items()):
            known = device.capacity.get(capacity) if device is not None else None
            if known is not None and total > Quantity.parse(known.value).nanos:
                yield f"capacity {capacity} of device {pool}/{name} is consumed beyond what is published"


def _counters_are_kept(facts: ClusterFacts) -> Iterator[str]:
    #: pool -> device -> what it drew when it was allocated
    allocated: dict[PoolKey, dict[str, list[DrawnCounters]]] = defaultdict(lambda: defaultdict(list))
    for claim, result, (pool, device) in in_use(facts):
        allocated[pool][device] += _draws_of(claim, result)
    pools: dict[PoolKey, list[ResourceSlice]] = defaultdict(list)
    for key, slices in _published(facts).items():
        # Parts of a pool that is spread over nodes may draw on each other's counters.
        adds_up = len(slices) == slices[0].spec.pool.resource_slice_count
        pools[key if adds_up else key._replace(node="several")] += slices
        if not adds_up:
            for device, draws in allocated[key].items():
                allocated[key._replace(node="several")][device] += draws
    for key, slices in sorted(pools.items()):
        devices, drawn = _devices(slices), Counter[tuple[str, str]]()
        counter_sets = {one.name: one.counters for published in slices for one in published.spec.shared_counters}
        for name, draws in allocated[key].items():
            now = [DrawnCounters(consumes=devices[name].consumes_counters)] if name in devices else []
            amounts = (recorded_draw(one, counter_sets, device_is_published=bool(now)) for one in (*now, *draws))
            drawn.update(highest(amounts))
        available = {
            (one.name, counter): Quantity.parse(amount.value).nanos
            for published in slices
            for one in published.spec.shared_counters
            for counter, amount in one.counters.items()
        }
        for counter_key, total in sorted(drawn.items()):
            if total > available.get(counter_key, 0):
                yield f"counter {'/'.join(counter_key)} of pool {key} is drawn beyond what is published"


def _draws_of(claim: ResourceClaim, result: DeviceRequestAllocationResult) -> list[DrawnCounters]:
    recorded = claim.status.allocation.drawn_counters if claim.status.allocation else ()
    device = (result.driver, result.pool, result.device)
    return [one for one in recorded if (one.driver, one.pool, one.device) == device]


# 2, 3, 5 -------------------------------------------------------------------------------------------------------------


def claims_are_protected(facts: ClusterFacts) -> Iterator[str]:
    for claim in facts.claims:
        of_driver = is_allocated_by_controller(claim)  # which protects it with a finalizer of its own
        if claim.status.allocation is not None and not of_driver and FINALIZER not in claim.metadata.finalizers:
            yield f"claim {name_of(claim)} is allocated without the finalizer {FINALIZER}"
        if claim.status.reserved_for and claim.status.allocation is None:
            yield f"claim {name_of(claim)} is reserved but not allocated"


def bound_pods_have_their_claims(facts: ClusterFacts) -> Iterator[str]:
    """Of the pods that a scheduler bound; those that a user bound by hand are refused by their node instead.

    Pods that were bound while DynamicResourceAllocation was off are found once it is on: they must be deleted.
    """
    if not gates.enabled(gates.DYNAMIC_RESOURCE_ALLOCATION):
        return
    claims = {claim.key: claim for claim in facts.claims}
    nodes = {node.metadata.name: node for node in facts.nodes}
    for pod in facts.pods:
        scheduled = condition_of(pod.status.conditions, POD_SCHEDULED)
        if not pod.spec.node_name or is_done(pod) or scheduled is None or scheduled.status != "True":
            continue
        for name in claim_names(pod):
            claim = claims.get((pod.metadata.namespace, name))
            if problem := _problem(pod, claim, nodes.get(pod.spec.node_name)):
                yield f"pod {name_of(pod)} on {pod.spec.node_name}: claim {name} {problem}"
    special = [(owner_uid(claim), claim) for claim in facts.claims if claim.status.allocation]
    owners = Counter(uid for uid, claim in special if uid and is_reserved_for(claim, uid))
    for uid, count in owners.items():
        if count > 1:
            yield f"{count} claims hold devices for the extended resources of the pod with uid {uid}"


def _problem(pod: Pod, claim: ResourceClaim | None, node: Node | None) -> str:
    if claim is None:
        return "does not exist"
    if claim.status.allocation is None:
        return "is not allocated"
    if not is_reserved_for(claim, pod.metadata.uid) and not is_reserved_for_group_of(claim, pod):
        return "is not reserved for it"
    selector = claim.status.allocation.node_selector
    if selector is None or node is None:
        return ""
    fits = node_selector_matches(selector, node.metadata.name, node.metadata.labels)
    return "" if fits else "is not available there"


def unheld_claims_are_free(facts: ClusterFacts) -> Iterator[str]:
    pods: dict[str, dict[str, Pod]] = defaultdict(dict)
    for pod in facts.pods:
        pods[pod.metadata.namespace][pod.metadata.name] = pod
    for claim in facts.claims:
        step = decide(claim, pods[claim.metadata.namespace].get, idle=is_idle(claim, facts.now))
        if step is not None and claim.status.allocation is not None and step.claim.status.allocation is None:
            yield f"claim {name_of(claim)} is allocated, and nobody holds it"


# 4 -------------------------------------------------------------------------------------------------------------------


def quotas_tell_what_is_used(facts: ClusterFacts) -> Iterator[str]:
    for quota in facts.quotas:
        told, used = parsed(quota.status.used), _added_up(facts, quota)
        for key, amount in sorted(told.items()):
            counted = used.get(key, NONE)
            if amount != counted:
                yield f"quota {name_of(quota)} tells {key}={amount.canonical()}, and {counted.canonical()} is used"


def _added_up(facts: ClusterFacts, quota: ResourceQuota) -> Usage:
    limits, namespace, total = QuotaLimits.of(quota), quota.metadata.namespace, dict[str, Quantity]()
    pods = {pod.metadata.name: pod for pod in facts.pods if pod.metadata.namespace == namespace}
    claims = [claim for claim in facts.claims if claim.metadata.namespace == namespace]
    found: list[tuple[str, ApiObject | None, Pod | None]] = [(PODS, pod, None) for pod in pods.values()]
    found += [(CLAIMS, claim, owning_pod(claim, pods.get)) for claim in claims]
    others = (DRAFT_CLAIMS, *MEASURED)
    for resource in others:
        measured = (stored for stored in facts.stored(resource) if stored.namespace == namespace)
        found += [(resource, decoded(stored, ApiObject), None) for stored in measured]
    found += [
        (held.resource, None, None)
        for held in facts.replay.live.values()
        if held.namespace == namespace and held.resource not in {PODS, CLAIMS, *others, *IGNORED}
    ]
    draws = _published_draws(facts) if limits.of_counters else draws_nothing
    for resource, obj, owner in found:
        usage = usage_of(resource, obj, classes=facts.extended, owner=owner, draws=draws)
        total = plus(total, limits.share(resource, obj, usage, facts.extended, owner))
    return total


def _published_draws(facts: ClusterFacts) -> Draws:
    """By the newest generation of each pool; of slices that publish one name, the first by name."""
    published: dict[PoolKey, dict[str, Device]] = defaultdict(dict)
    for pool, slices in _published(facts).items():
        for one in sorted(slices, key=lambda one: one.metadata.name, reverse=True):
            published[pool].update((device.name, device) for device in one.spec.devices)

    def draws(result: DeviceRequestAllocationResult, node: str) -> Usage:
        nodes = [pool.node for pool in published if pool[:2] == (result.driver, result.pool)]
        found = (published[pool].get(result.device) for pool in pools_in_use(result.driver, result.pool, node, nodes))
        return next((drawn_by(device.consumes_counters) for device in found if device is not None), {})

    return draws


# 6, 7 ----------------------------------------------------------------------------------------------------------------


def nodes_agree_with_their_disks(facts: ClusterFacts) -> Iterator[str]:
    running = _claims_by_node(facts, lambda pod: pod.status.phase == "Running")
    living = _claims_by_node(facts, lambda pod: not is_done(pod))
    for node, files in sorted(facts.files.items()):
        for uid in sorted(files.prepared ^ files.described):
            where = "the checkpoint but no CDI file" if uid in files.prepared else "a CDI file but not the checkpoint"
            yield f"node {node}: claim {uid} is in {where}"
        for uid in sorted(files.prepared - living[node]):
            yield f"node {node}: claim {uid} is prepared for no pod"
        for uid in sorted(running[node] - files.prepared):
            yield f"node {node}: claim {uid} is used by a running pod but not prepared"


def _claims_by_node(facts: ClusterFacts, wanted: Callable[[Pod], bool]) -> dict[str, set[str]]:
    """node -> uids of the claims that the `wanted` pods there use."""
    uids = {claim.key: claim.metadata.uid for claim in facts.claims}
    drafts = {(claim.namespace, claim.name): claim.uid for claim in facts.stored(DRAFT_CLAIMS)}
    found: dict[str, set[str]] = defaultdict(set)
    for pod in facts.pods:
        if pod.spec.node_name and wanted(pod):
            used = [uids.get((pod.metadata.namespace, name), "") for name in claim_names(pod)]
            used += [drafts.get((pod.metadata.namespace, name), "") for name in kept.draft_claims_of(pod)]
            found[pod.spec.node_name].update(filter(None, used))
    return found


def the_log_gives_the_state(facts: ClusterFacts) -> Iterator[str]:
    yield from facts.replay.differences()


# 8 -------------------------------------------------------------------------------------------------------------------


def groups_are_whole(facts: ClusterFacts) -> Iterator[str]:
    bound: Counter[tuple[str, str]] = Counter()
    for pod in facts.pods:
        bound[pod.metadata.namespace, group_name(pod)] += bool(pod.spec.node_name)
    for group in facts.groups if gates.enabled(GANG_GATE) else ():
        count, wanted = bound[group.key], min_count(group)
        if 0 < count < wanted and not is_scheduled(group):
            yield f"{count} of the {wanted} pods that group {'/'.join(group.key)} needs have a node"
    uids = {group.metadata.uid for group in facts.groups}
    for claim in facts.claims if gates.enabled(CLAIMS_GATE) else ():
        for user in claim.status.reserved_for:
            if is_group(user) and user.uid not in uids:
                yield f"claim {name_of(claim)} is reserved for group {user.name}, which is gone"


# 9 -------------------------------------------------------------------------------------------------------------------


def negotiations_end(facts: ClusterFacts) -> Iterator[str]:
    for claim in facts.claims:
        status = claim.status
        if status.deallocation_requested and (status.allocation is None or status.reserved_for):
            yield f"claim {name_of(claim)} is to be deallocated, and is reserved or not allocated"
        of_class = bool(claim.spec.resource_class_name)
        if of_class and status.allocation and not status.allocation.shareable and len(status.reserved_for) > 1:
            yield f"claim {name_of(claim)} is not shareable, and reserved {len(status.reserved_for)} times"


CHECKS: dict[str, Check] = {
    "1 no device is given twice": devices_are_given_once,
    "2 allocated claims are protected, reserved claims allocated": claims_are_protected,
    "3 bound pods have their claims": bound_pods_have_their_claims,
    "4 quotas tell what is used": quotas_tell_what_is_used,
    "5 claims that nobody holds are free": unheld_claims_are_free,
    "6 nodes agree with their disks": nodes_agree_with_their_disks,
    "7 the log gives the state": the_log_gives_the_state,
    "8 gangs are bound whole, claims reserved for groups that exist": groups_are_whole,
    "9 negotiations with drivers end": negotiations_end,
}


def violations(facts: ClusterFacts) -> dict[str, tuple[str, ...]]:
    """For each check, in order, what violates it; an empty tuple is "ok"."""
    sentences = {name: tuple(check(facts)) for name, check in CHECKS.items()}
    further = [extension.invariants for extension in extensions.enabled()]
    further += [checks for gate, checks in kept.INVARIANTS.items() if not gates.enabled(gate)]
    for checks in further:
        for name, check in checks.items():
            sentences[name] = (*sentences.get(name, ()), *check(facts))
    return sentences
