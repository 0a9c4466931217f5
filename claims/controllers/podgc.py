"""Removes pods that nobody will ever run or report on again.

    bound to a node that does not exist     -> marked Failed, removed without grace
    being deleted, never bound              -> removed without grace
    being deleted, node out of service and not ready
                                            -> removed without grace (KEP-4381 "non graceful node shutdowns")

Removing a pod frees its devices before its node has unprepared them. So the taint node.kubernetes.io/out-of-service is
not enough: while the node is Ready, its agent ends the pod and unprepares its claims first.

A node may register a moment after its pods were bound by hand, and one that was deleted may be made again, so a pod is
given up only when its node has been missing for a while. Upstream: pkg/controller/podgc/gc_controller.go.

Every few seconds only the pods of nodes that were deleted lately are looked at, and those being deleted: both are few,
and have an index. All pods are compared with all nodes once a minute.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db.models import Exists, OuterRef, QuerySet
from msgspec import structs

from claims import event_recorder, models
from claims.controllers.node_lifecycle import ready_condition
from claims.event_recorder import EventNote
from claims.evictions import NODE_LOST, disrupt
from claims.kinds.pods import Pod
from inventory.kinds.nodes import Node
from inventory.models import DepartedNode
from inventory.models import Node as NodeRow
from inventory.reachability import GIVEN_UP_WITHIN
from manciple.controllers.declaration import Controller, batches
from manciple.store import objects, sql
from manciple.store.objects import Writer, decoded
from manciple.wire.errors import NotFound
from manciple.wire.identity import controller
from manciple.wire.resources import DELETED, EVENTS, FINISHED_PHASES, NODES, PODS, Key, kind

#: Who writes (upstream: the service account of that name in kube-controller-manager).
IDENTITY = controller("pod-garbage-collector")
COMPONENT = "pod-garbage-collector"
#: How long a pod waits for its node to appear, or to come back (upstream: quarantineTime).
QUARANTINE = timedelta(seconds=40)
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
BATCH = objects.PORTION
#: Pods in one sweep.
MOST = 1000


def reconcile(now: datetime) -> int:
    """Look at the pods that may be lost by what happened lately. Returns how many went, at most about `MOST`."""
    # Their names come first: mostly there are none, and PostgreSQL, which has no statistics of so few rows, would go
    # through all pods.
    departed = DepartedNode.objects.filter(at__gt=now - GIVEN_UP_WITHIN).values_list("name", flat=True)
    pods = (models.Pod.objects.filter(node_name__in=names) for names in sql.chunks(list(departed), BATCH))
    missing = (key for of_some in pods for key in _missing(of_some))
    return _sweep([*_leaving(), *missing], now)


def sweep(now: datetime) -> int:
    """Look at all pods. Returns how many went, at most about `MOST`."""
    return _sweep([*_leaving(), *_missing(models.Pod.objects.exclude(node_name=""))], now)


def _sweep(candidates: Iterable[Key], now: datetime) -> int:
    removed = 0
    for batch in batches(_lost(candidates, now), BATCH):
        removed += _remove(batch, now)
        if removed >= MOST:
            break
    return removed


def _lost(candidates: Iterable[Key], now: datetime) -> Iterator[Key]:
    """The candidates that are lost by what can be read without a lock; the transaction decides."""
    for chunk in sql.chunks(sorted(set(candidates)), BATCH):
        pods = [decoded(stored, Pod) for stored in objects.get_many(kind(PODS), chunk)]
        names = {pod.spec.node_name for pod in pods}
        nodes = [decoded(stored, Node) for stored in objects.get_many(kind(NODES), {("", name) for name in names})]
        known = NodesAndDepartures({node.metadata.name: node for node in nodes}, _departures(names))
        yield from (pod.key for pod in pods if is_lost(pod, known, now))


def _departures(names: Iterable[str]) -> dict[str, datetime]:
    """When the Nodes of these names were deleted, as far as it is remembered. One query."""
    rows: Any = DepartedNode.objects.filter(name__in=set(names)).values_list("name", "at")
    return dict(rows)


def _leaving() -> Iterable[Key]:
    """The pods being deleted that never had a node, or whose node may be out of service. A query, and one for each
    hundred of their nodes.
    """
    leaving = list(models.Pod.objects.filter(deleting=True).values_list("namespace", "name", "node_name"))
    out = {""}
    for names in sql.chunks(sorted({node for *_, node in leaving} - out), BATCH):
        tainted = NodeRow.objects.filter(ready=False, name__in=names).exclude(taints=[]).values_list("name", "taints")
        out |= {name for name, taints in tainted if any(taint["key"] == OUT_OF_SERVICE for taint in taints)}
    return [(namespace, name) for namespace, name, node in leaving if node in out]


def _missing(pods: QuerySet[models.Pod]) -> Iterable[Key]:
    """Those of the bound pods whose node does not exist. One query."""
    has_node = Exists(NodeRow.objects.filter(name=OuterRef("node_name")))
    return pods.filter(~has_node).values_list("namespace", "name")


class NodesAndDepartures(NamedTuple):
    """nodes: those that there are, by name. departed: when others were deleted."""

    nodes: Mapping[str, Node]
    departed: Mapping[str, datetime]


def is_lost(pod: Pod, known: NodesAndDepartures, now: datetime) -> bool:
    """Whether `pod` is one of the cases of the module's table."""
    deleting, name = pod.metadata.deletion_timestamp is not None, pod.spec.node_name
    if not name:
        return deleting
    node = known.nodes.get(name)
    if node is None:
        return _missing_since(pod, known.departed.get(name), now) < now - QUARANTINE
    ready = ready_condition(node)
    is_ready = ready is not None and ready.status == "True"
    return deleting and not is_ready and any(taint.key == OUT_OF_SERVICE for taint in node.spec.taints)


def _missing_since(pod: Pod, departed: datetime | None, now: datetime) -> datetime:
    """When the pod was there and its node was not, for the first time."""
    created = pod.metadata.creation_timestamp
    since = datetime.fromisoformat(created) if created else now
    return since if departed is None else max(since, departed)


def _remove(keys: list[Key], now: datetime) -> int:
    with objects.writing(identity=IDENTITY) as writer:
        writer.load(kind(PODS), keys)
        pods = [pod for key in keys if isinstance(pod := writer.get(kind(PODS), *key), Pod)]
        names = {pod.spec.node_name for pod in pods if pod.spec.node_name}
        writer.load(kind(NODES), {("", name) for name in names})
        nodes = {name: node for name in names if isinstance(node := writer.get(kind(NODES), "", name), Node)}
        known = NodesAndDepartures(nodes, _departures(names))
        lost = [pod for pod in pods if is_lost(pod, known, now)]
        notes = {pod.metadata.uid: _note(pod) for pod in lost if pod.spec.node_name not in ("", *nodes)}
        writer.load(kind(EVENTS), [event_recorder.key_of(note) for note in notes.values()])
        return sum(_remove_one(writer, pod, notes.get(pod.metadata.uid), now) for pod in lost)


def _remove_one(writer: Writer, pod: Pod, note: EventNote | None, now: datetime) -> bool:
    """note: where its node is missing."""
    try:
        if note is not None:
            disrupt(writer, pod, NODE_LOST, now=now, note=note)
            return True
        if pod.status.phase not in FINISHED_PHASES:
            failed = structs.replace(pod, status=structs.replace(pod.status, phase="Failed"))
            writer.update(kind(PODS), failed, subresource="status")
        writer.delete(kind(PODS), *pod.key, uid=pod.metadata.uid, grace_seconds=0)
    except NotFound:
        return False
    return True


def _note(pod: Pod) -> EventNote:
    message = f"Pod is removed: its node {pod.spec.node_name} does not exist"
    return EventNote(regarding=pod, type="Warning", reason="NodeLost", message=message, component=COMPONENT)


CONTROLLER = Controller(
    name="sweep_pods",
    does="removes pods whose node is gone, or out of service and not ready, and deleted ones that never had a node",
    reconcile=reconcile,
    # A node that does not come back ends without an event.
    every=3,
    wakes_on=frozenset({(NODES, DELETED)}),
    most_per_turn=MOST,
)

RESYNC = Controller(
    name="resync_pods",
    does="removes pods whose node never existed, or was deleted while no controller ran",
    reconcile=sweep,
    every=60,
    most_per_turn=MOST,
)
