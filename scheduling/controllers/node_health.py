"""What a node's silence means, and when its taints evict a pod, as values. PURE.

    heard of within the grace, Ready True     -> no taints of ours
    heard of within the grace, Ready not True -> not-ready taints
    silent                                    -> conditions Unknown, unreachable taints
    back again                                -> its own report stands, taints removed

Each state has a NoSchedule and a NoExecute taint; a pod leaves when the seconds that it tolerates the latter are over.
A node that reports pressure (on disk, memory, process ids) is tainted NoSchedule for as long as it does. Only when a
sign of life was seen counts, never the time that the node writes into it: its clock may be a day off.
Upstream: pkg/controller/nodelifecycle/node_lifecycle_controller.go, pkg/controller/tainteviction/taint_eviction.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from msgspec import structs

from claims.kinds.pods import Pod, Toleration
from inventory.kinds.nodes import Node, NodeCondition, Taint
from manciple.wire.base import timestamp
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
#: condition that is True -> the key of its NoSchedule taint (upstream: nodeConditionToTaintKeyStatusMap)
PRESSURES = {
    "MemoryPressure": "node.kubernetes.io/memory-pressure",
    "DiskPressure": "node.kubernetes.io/disk-pressure",
    "PIDPressure": "node.kubernetes.io/pid-pressure",
}
#: The taints that are put on and taken off here, and by nobody else.
OURS = frozenset({NOT_READY, UNREACHABLE, *PRESSURES.values()})


@dataclass(frozen=True, slots=True)
class Signs:
    """When the server saw the node's Lease renewed, and its conditions reported, last; None for never."""

    renewed_at: datetime | None = None
    reported_at: datetime | None = None

    @property
    def heard_at(self) -> datetime | None:
        return max((moment for moment in (self.renewed_at, self.reported_at) if moment is not None), default=None)


def judged(node: Node, signs: Signs, now: datetime) -> Node:
    """`node` as its signs of life make it; the same value where that changes nothing."""
    if is_silent(node, signs, now):
        return _tainted(_with_unknown_conditions(node, now), UNREACHABLE, now)
    ready = ready_condition(node)
    if ready is None:
        return _tainted(node, "", now)  # still starting
    return _tainted(node, "" if ready.status == "True" else NOT_READY, now)


def is_silent(node: Node, signs: Signs, now: datetime) -> bool:
    """Whether nothing was heard of the node for longer than the grace."""
    if signs.heard_at is not None:
        return now - signs.heard_at > GRACE
    created = _moment(node.metadata.creation_timestamp)
    return created is not None and now - created > STARTUP_GRACE


def ready_condition(node: Node) -> NodeCondition | None:
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


def _tainted(node: Node, state: str, now: datetime) -> Node:
    """`node` with both taints of `state` ("" for none), with those of its pressures, and with no other of ours."""
    wanted = [(state, effect) for effect in EFFECTS if state]
    pressing = {condition.type for condition in node.status.conditions if condition.status == "True"}
    wanted += [(key, "NoSchedule") for type_, key in PRESSURES.items() if type_ in pressing]
    known = {(taint.key, taint.effect): taint for taint in node.spec.taints}
    fresh = {(key, effect): Taint(key=key, effect=effect, time_added=timestamp(now)) for key, effect in wanted}
    others = (taint for taint in node.spec.taints if taint.key not in OURS)
    taints = (*others, *(known.get(one, fresh[one]) for one in wanted))
    if set(taints) == set(node.spec.taints):
        return node
    return structs.replace(node, spec=structs.replace(node.spec, taints=taints))


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
