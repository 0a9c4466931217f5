"""Removes pods that nobody will ever run or report on again.

    bound to a node that does not exist     -> marked Failed, removed without grace
    being deleted, never bound              -> removed without grace
    being deleted, node out of service      -> removed without grace (KEP-4381 "non graceful node shutdowns")

A node may register a moment after its pods were bound by hand, so a pod is given up only when its node is still
missing after a while. Upstream: pkg/controller/podgc/gc_controller.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import cast

from msgspec import structs

from claims.kinds.pods import Pod
from inventory.kinds.nodes import Node
from manciple.store import objects
from manciple.store.objects import Writer
from manciple.wire.errors import NotFound
from scheduling.hints import FINISHED_PHASES
from scheduling.resources import NODES, PODS, Key, key_of, kind, listed

#: How long a pod may wait for its node to appear (upstream: quarantineTime).
QUARANTINE = timedelta(seconds=40)
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
BATCH = 100


def sweep(now: datetime) -> int:
    """Returns how many pods went."""
    _, nodes = listed(NODES, Node)
    _, pods = listed(PODS, Pod)
    known = {node.metadata.name: node for node in nodes}
    lost = [key_of(pod) for pod in pods if is_lost(pod, known, now)]
    return sum(_remove(lost[start : start + BATCH], now) for start in range(0, len(lost), BATCH))


def is_lost(pod: Pod, nodes: Mapping[str, Node], now: datetime) -> bool:
    """Whether `pod` is one of the cases of the module's table."""
    deleting = pod.metadata.deletion_timestamp is not None
    if not pod.spec.node_name:
        return deleting
    node = nodes.get(pod.spec.node_name)
    if node is None:
        return _age(pod, now) > QUARANTINE
    return deleting and any(taint.key == OUT_OF_SERVICE for taint in node.spec.taints)


def _age(pod: Pod, now: datetime) -> timedelta:
    born = pod.metadata.creation_timestamp
    return now - datetime.fromisoformat(born) if born else timedelta()


def _remove(keys: list[Key], now: datetime) -> int:
    with objects.writing() as writer:
        writer.load(kind(PODS), keys)
        return sum(_remove_one(writer, key, now) for key in keys)


def _remove_one(writer: Writer, key: Key, now: datetime) -> bool:
    pod = cast("Pod | None", writer.get(kind(PODS), *key))
    if pod is None or not is_lost(pod, _node_of(writer, pod), now):
        return False
    if pod.status.phase not in FINISHED_PHASES:
        status = structs.replace(pod.status, phase="Failed", reason="NodeLost" if pod.spec.node_name else "")
        pod = cast("Pod", writer.update(kind(PODS), structs.replace(pod, status=status)))
    try:
        writer.delete(kind(PODS), *key, uid=pod.metadata.uid, grace_seconds=0)
    except NotFound:
        return False
    return True


def _node_of(writer: Writer, pod: Pod) -> dict[str, Node]:
    node = cast("Node | None", writer.get(kind(NODES), "", pod.spec.node_name)) if pod.spec.node_name else None
    return {} if node is None else {node.metadata.name: node}
