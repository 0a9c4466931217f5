"""Watches the nodes' signs of life and moves pods away from nodes whose taints they do not tolerate.

Every node is judged by its Lease and its Ready condition (`node_health`), then the pods on nodes with NoExecute taints
are evicted when their time is over. Time passes without events, so this is a sweep only.

When a sign of life was seen is read from the log, which every worker shares and no restart loses. (Upstream keeps in
memory when it saw the Lease change, probeTimestamp in node_lifecycle_controller.go, and begins anew when it restarts.)
"""

from __future__ import annotations

from datetime import datetime

from msgspec import structs

from claims.kinds.pod_statuses import PodCondition
from claims.kinds.pods import Pod
from inventory.kinds.nodes import Node
from manciple.store import objects, writings
from manciple.store.objects import Writer
from manciple.wire import codec
from manciple.wire.selectors import parse_field_selector
from scheduling import event_recorder
from scheduling.controllers.node_health import GRACE, Signs, eviction_time, judged, ready_condition
from scheduling.controllers.release import is_done
from scheduling.event_recorder import Note, timestamp
from scheduling.resources import LEASES, NODES, PODS, decoded, key_of, kind, listed

#: Where agents keep their leases (corev1.NamespaceNodeLease).
LEASE_NAMESPACE = "kube-node-lease"
COMPONENT = "taint-eviction-controller"


def sweep(now: datetime) -> int:
    """Returns how many nodes and pods were changed."""
    _, nodes = listed(NODES, Node)
    renewed = writings.last_written(kind(LEASES), LEASE_NAMESPACE)
    changed = 0
    for node in nodes:
        if judged(node, _signs(node, renewed.get(node.metadata.name), now), now) is not node:
            changed += _judge(node.metadata.name, now)
        if any(taint.effect == "NoExecute" for taint in node.spec.taints):
            changed += _evict_from(node, now)
    return changed


def read_signs(node: Node, now: datetime) -> Signs:
    """When something was heard of `node`."""
    name = node.metadata.name
    renewed = writings.last_written(kind(LEASES), LEASE_NAMESPACE, names=frozenset({name}))
    return _signs(node, renewed.get(name), now)


def _signs(node: Node, renewed_at: datetime | None, now: datetime) -> Signs:
    """The reports of a node are looked up only where its Lease has not been renewed in time."""
    if renewed_at is not None and now - renewed_at <= GRACE:
        return Signs(renewed_at=renewed_at)
    return Signs(renewed_at=renewed_at, reported_at=_reported_at(node, now))


def _reported_at(node: Node, now: datetime) -> datetime | None:
    """Since when the node's Ready condition has said what it says; exact within the grace, beyond it just older.

    Others write Nodes too (labels, taints, this controller), so the latest write that brought a new heartbeat counts.
    """
    ready = ready_condition(node)
    if ready is None:
        return None
    found = None
    for state in writings.states(kind(NODES), "", node.metadata.name):
        then = ready_condition(codec.decode_text(Node, state.text))
        if then is None or then.last_heartbeat_time != ready.last_heartbeat_time:
            break
        found = state.since
        if now - found > GRACE:
            break
    return found


def _judge(name: str, now: datetime) -> bool:
    """Judge once more, on what is true inside the transaction."""
    with objects.writing() as writer:
        node = writer.get(kind(NODES), "", name)
        if not isinstance(node, Node):
            return False
        following = judged(node, read_signs(node, now), now)
        if following is node:
            return False
        writer.update(kind(NODES), following)
        return True


def _evict_from(node: Node, now: datetime) -> int:
    on_node = parse_field_selector(f"spec.nodeName={node.metadata.name}")
    pods = [decoded(stored, Pod) for stored in objects.list(kind(PODS), fields=on_node).items]
    due = [pod for pod in pods if is_due(pod, node, now)]
    if not due:
        return 0
    with objects.writing() as writer:
        return sum(_evict(writer, pod, node, now) for pod in due)


def is_due(pod: Pod, node: Node, now: datetime) -> bool:
    """Whether `pod` has to leave `node` now."""
    if pod.metadata.deletion_timestamp is not None or is_done(pod):
        return False
    moment = eviction_time(pod, node)
    return moment is not None and moment <= now


def _evict(writer: Writer, known: Pod, node: Node, now: datetime) -> bool:
    pod = writer.get(kind(PODS), *key_of(known))
    if not isinstance(pod, Pod) or pod.metadata.uid != known.metadata.uid or not is_due(pod, node, now):
        return False
    disruption = PodCondition(
        type="DisruptionTarget",
        status="True",
        reason="DeletionByTaintManager",
        message="Taint manager: deleting due to NoExecute taint",
        last_transition_time=timestamp(now),
    )
    others = [condition for condition in pod.status.conditions if condition.type != disruption.type]
    status = structs.replace(pod.status, conditions=(*others, disruption))
    writer.update(kind(PODS), structs.replace(pod, status=status))
    full_name = f"{pod.metadata.namespace}/{pod.metadata.name}"
    note = Note(
        regarding=pod,
        reason="TaintManagerEviction",
        message=f"Marking for deletion Pod {full_name}",
        component=COMPONENT,
    )
    event_recorder.record(writer, note, now=now)
    writer.delete(kind(PODS), *key_of(pod), uid=pod.metadata.uid)
    return True
