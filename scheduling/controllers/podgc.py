"""Removes pods that nobody will ever run or report on again.

    bound to a node that does not exist     -> marked Failed, removed without grace
    being deleted, never bound              -> removed without grace
    being deleted, node out of service      -> removed without grace (KEP-4381 "non graceful node shutdowns")

A node may register a moment after its pods were bound by hand, so a pod is given up only when its node is still
missing after a while. Upstream: pkg/controller/podgc/gc_controller.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import cast

from django.db.models import Exists, OuterRef, Q
from msgspec import structs

from claims import models
from claims.kinds.pods import Pod
from inventory.kinds.nodes import Node
from inventory.models import Node as NodeRow
from manciple.store import objects, sql
from manciple.store.objects import Writer
from manciple.wire.errors import NotFound
from manciple.wire.identity import controller
from scheduling.controllers.declaration import DELETED, Controller, batches
from scheduling.hints import FINISHED_PHASES
from scheduling.resources import NODES, PODS, Key, decoded, key_of, kind

#: Who writes (upstream: the service account of that name in kube-controller-manager).
IDENTITY = controller("pod-garbage-collector")
#: How long a pod may wait for its node to appear (upstream: quarantineTime).
QUARANTINE = timedelta(seconds=40)
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
BATCH = 100
#: Pods in one sweep.
MOST = 1000


def sweep(now: datetime) -> int:
    """Returns how many pods went, at most about `MOST`."""
    removed = 0
    for batch in batches(_lost(now), BATCH):
        removed += _remove(batch, now)
        if removed >= MOST:
            break
    return removed


def _lost(now: datetime) -> Iterator[Key]:
    """The candidates that are lost by what can be read without a lock; the transaction decides."""
    for chunk in sql.chunks(_candidates(), BATCH):
        pods = [decoded(stored, Pod) for stored in objects.get_many(kind(PODS), chunk)]
        names = {("", pod.spec.node_name) for pod in pods}
        nodes = [decoded(stored, Node) for stored in objects.get_many(kind(NODES), names)]
        known = {node.metadata.name: node for node in nodes}
        yield from (key_of(pod) for pod in pods if is_lost(pod, known, now))


def _candidates() -> Sequence[Key]:
    """The pods that the index cannot tell to be well. Two queries."""
    tainted = NodeRow.objects.exclude(taints=[]).values_list("name", "taints")
    out = [name for name, taints in tainted if any(taint["key"] == OUT_OF_SERVICE for taint in taints)]
    has_node = Exists(NodeRow.objects.filter(name=OuterRef("node_name")))
    leaving = Q(deleting=True) & (Q(node_name="") | Q(node_name__in=out))
    found = models.Pod.objects.filter(leaving | (~Q(node_name="") & ~has_node))
    return list(found.order_by("namespace", "name").values_list("namespace", "name"))


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
    created = pod.metadata.creation_timestamp
    return now - datetime.fromisoformat(created) if created else timedelta()


def _remove(keys: list[Key], now: datetime) -> int:
    with objects.writing(identity=IDENTITY) as writer:
        writer.load(kind(PODS), keys)
        pods = [pod for key in keys if isinstance(pod := writer.get(kind(PODS), *key), Pod)]
        writer.load(kind(NODES), {("", pod.spec.node_name) for pod in pods if pod.spec.node_name})
        return sum(_remove_one(writer, key, now) for key in keys)


def _remove_one(writer: Writer, key: Key, now: datetime) -> bool:
    pod = cast("Pod | None", writer.get(kind(PODS), *key))
    if pod is None or not is_lost(pod, _node_of(writer, pod), now):
        return False
    if pod.status.phase not in FINISHED_PHASES:
        status = structs.replace(pod.status, phase="Failed", reason="NodeLost" if pod.spec.node_name else "")
        pod = cast("Pod", writer.update(kind(PODS), structs.replace(pod, status=status), subresource="status"))
    try:
        writer.delete(kind(PODS), *key, uid=pod.metadata.uid, grace_seconds=0)
    except NotFound:
        return False
    return True


def _node_of(writer: Writer, pod: Pod) -> dict[str, Node]:
    node = cast("Node | None", writer.get(kind(NODES), "", pod.spec.node_name)) if pod.spec.node_name else None
    return {} if node is None else {node.metadata.name: node}


CONTROLLER = Controller(
    name="sweep_pods",
    does="removes pods whose node is gone or out of service, and deleted ones that never had a node",
    reconcile=sweep,
    every=20,
    wakes_on=frozenset({(NODES, DELETED)}),
    most_per_turn=MOST,
)
