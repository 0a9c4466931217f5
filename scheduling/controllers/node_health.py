"""What a node's silence means, and when its taints evict a pod, as values. PURE.

    heard of within the grace, Ready True     -> no taints of ours
    heard of within the grace, Ready not True -> not-ready taints
    silent                                    -> conditions Unknown, unreachable taints
    back again                                -> its own report stands, taints removed

Each state has a NoSchedule and a NoExecute taint; a pod leaves when the seconds that it tolerates the latter are over.
Upstream: pkg/controller/nodelifecycle/node_lifecycle_controller.go, pkg/controller/tainteviction/taint_eviction.go.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec import structs

from claims.kinds.affinity import Toleration
from claims.kinds.pods import Pod
from inventory.kinds.nodes import Node, NodeCondition, Taint
from manciple.wire.machinery import Lease
from scheduling.event_recorder import timestamp
from scheduling.policy import tolerates

#: --node-monitor-grace-period
GRACE = timedelta(seconds=40)
#: A node that has never reported gets this long after its creation (--node-startup-grace-period).
STARTUP_GRACE = timedelta(seconds=60)
#: What the DefaultTolerationSeconds admission of Kubernetes gives every pod that says nothing about these taints.
DEFAULT_TOLERATION_SECONDS = 300

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
EFFECTS = ("NoSchedule", "NoExecute")
#: The conditions that an agent reports; without it nobody knows them.
REPORTED = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")


def judged(node: Node, lease: Lease | None, now: datetime) -> Node:
    """`node` as its signs of life make it; the same value where that changes nothing."""
    if is_silent(node, lease, now):
        return _tainted(_with_unknown_conditions(node, now), UNREACHABLE, now)
    ready = _ready(node)
    if ready is None:
        return node  # still starting
    return _tainted(node, "" if ready.status == "True" else NOT_READY, now)


def is_silent(node: Node, lease: Lease | None, now: datetime) -> bool:
    """Whether nothing was heard of the node for longer than the grace."""
    ready = _ready(node)
    heard = [_moment(lease.spec.renew_time)] if lease is not None else []
    if ready is not None:
        heard.append(_moment(ready.last_heartbeat_time))
    times = [moment for moment in heard if moment is not None]
    if times:
        return now - max(times) > GRACE
    born = _moment(node.metadata.creation_timestamp)
    return born is not None and now - born > STARTUP_GRACE


def _ready(node: Node) -> NodeCondition | None:
    return next((condition for condition in node.status.conditions if condition.type == "Ready"), None)


def _moment(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def _with_unknown_conditions(node: Node, now: datetime) -> Node:
    known = {condition.type: condition for condition in node.status.conditions}
    wanted = [type_ for type_ in REPORTED if type_ == "Ready" or type_ in known]
    changes = {type_: _unknown(known.get(type_), type_, now) for type_ in wanted}
    conditions = tuple({**known, **changes}.values())
    if conditions == node.status.conditions:
        return node
    return structs.replace(node, status=structs.replace(node.status, conditions=conditions))


def _unknown(known: NodeCondition | None, type_: str, now: datetime) -> NodeCondition:
    if known is not None and known.status == "Unknown":
        return known
    return NodeCondition(
        type=type_,
        status="Unknown",
        last_heartbeat_time=known.last_heartbeat_time if known else None,
        last_transition_time=timestamp(now),
        reason="NodeStatusUnknown" if known else "NodeStatusNeverUpdated",
        message="Kubelet stopped posting node status." if known else "Kubelet never posted node status.",
    )


def _tainted(node: Node, key: str, now: datetime) -> Node:
    """`node` with both taints of `key`, and none of the other state's; `key` "" means neither state's."""
    others = [taint for taint in node.spec.taints if taint.key not in (NOT_READY, UNREACHABLE)]
    known = {taint.effect: taint for taint in node.spec.taints if taint.key == key}
    fresh = {effect: Taint(key=key, effect=effect, time_added=timestamp(now)) for effect in EFFECTS}
    taints = (*others, *(known.get(effect, fresh[effect]) for effect in EFFECTS if key))
    if set(taints) == set(node.spec.taints):
        return node
    return structs.replace(node, spec=structs.replace(node.spec, taints=tuple(taints)))


# Eviction ------------------------------------------------------------------------------------------------------------


def eviction_time(pod: Pod, node: Node) -> datetime | None:
    """When the NoExecute taints of `node` end `pod`'s stay; None while they do not."""
    times = [_end_of_patience(pod, taint) for taint in node.spec.taints if taint.effect == "NoExecute"]
    return min((moment for moment in times if moment is not None), default=None)


def _end_of_patience(pod: Pod, taint: Taint) -> datetime | None:
    tolerating = [one for one in _tolerations(pod) if tolerates(one, taint)]
    since = _moment(taint.time_added) or _moment(pod.metadata.creation_timestamp)
    if since is None or (tolerating and all(one.toleration_seconds is None for one in tolerating)):
        return None
    seconds = [one.toleration_seconds for one in tolerating if one.toleration_seconds is not None]
    return since + timedelta(seconds=max(min(seconds, default=0), 0))


def _tolerations(pod: Pod) -> list[Toleration]:
    """The pod's tolerations, and the default ones where it has none of its own for a taint of ours."""
    own = list(pod.spec.tolerations)
    for key in (NOT_READY, UNREACHABLE):
        if not any(tolerates(one, Taint(key=key, effect="NoExecute")) for one in pod.spec.tolerations):
            default = DEFAULT_TOLERATION_SECONDS
            own.append(Toleration(key=key, operator="Exists", effect="NoExecute", toleration_seconds=default))
    return own
