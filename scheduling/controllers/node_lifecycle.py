"""Watches the nodes' signs of life and moves pods away from nodes whose taints they do not tolerate.

Every node is judged by its Lease and its Ready condition (`node_health`), then the pods on nodes with NoExecute taints
are evicted when their time is over. Time passes without events, so this is a sweep only.

When a sign of life was seen is read from the log, which every worker shares and no restart loses. (Upstream keeps in
memory when it saw the Lease change, probeTimestamp in node_lifecycle_controller.go, and begins anew when it restarts.)

A sweep asks once for the age of all Leases and once for the revisions of all nodes, and reads the nodes that were
written since the last sweep. Only of nodes whose Lease is old, and that are not marked for it yet, the log is asked for
their last report: all of them together, one state further back with each question. Nodes are marked, and pods evicted,
so many in a transaction; between two of these everybody else may write.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from msgspec import structs

from claims.kinds.pods import Pod, PodCondition
from inventory.kinds.nodes import Node, NodeSpec, NodeStatus
from manciple.store import history, objects
from manciple.store.objects import Writer
from manciple.wire import codec
from manciple.wire.base import ObjectMeta, timestamp
from manciple.wire.identity import controller
from scheduling import event_recorder
from scheduling.controllers.batches import batches
from scheduling.controllers.declaration import DELETING, MODIFIED, Controller
from scheduling.controllers.node_health import GRACE, Signs, eviction_time, judged, ready_condition
from scheduling.controllers.release import is_done
from scheduling.controllers.residents import Resident, Residents, residents_of
from scheduling.event_recorder import Note
from scheduling.looked_after import looked_after
from scheduling.resources import EVENTS, LEASES, NODES, PODS, Key, key_of, kind

#: Where agents keep their leases (corev1.NamespaceNodeLease).
LEASE_NAMESPACE = "kube-node-lease"
#: Who writes (upstream: the service account of that name in kube-controller-manager).
IDENTITY = controller("node-controller")
EVICTING_IDENTITY = controller("taint-eviction-controller")
COMPONENT = "taint-eviction-controller"
#: Nodes or pods in one transaction: other writers wait no longer than these take.
BATCH = 100
#: Nodes and pods changed in one sweep.
MOST = 1000
#: How many states back the last report of a node is searched for; where it is older still, the next sweep knows.
DEPTH = 10
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
#: What the sweep itself goes on to look at.
LOOKING = frozenset({"sweep_nodes"})


class KnownNodes:
    """What this process knows of the nodes: as much of each as its health depends on, and when its pods have to go."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self.residents = Residents()

    def read(self) -> Mapping[str, Node]:
        """All nodes as they are now, by name; documents are read of those that were written since the last call."""
        revisions = history.revisions(kind(NODES))
        stale = {
            revision
            for name, revision in revisions.items()
            if name not in self._nodes or self._nodes[name].metadata.resource_version != str(revision)
        }
        for state in history.states_at(stale).values():
            node = _abridged(codec.decode_text(Node, state.text))
            self._nodes[node.metadata.name] = node
        self._nodes = {name: node for name, node in self._nodes.items() if name in revisions}
        return self._nodes

    def forget(self) -> None:
        self._nodes = {}
        self.residents = Residents()


known = KnownNodes()


def _abridged(node: Node) -> Node:
    meta = node.metadata
    kept = ObjectMeta(
        name=meta.name, creation_timestamp=meta.creation_timestamp, resource_version=meta.resource_version
    )
    spec, status = NodeSpec(taints=node.spec.taints), NodeStatus(conditions=node.status.conditions)
    return structs.replace(node, metadata=kept, spec=spec, status=status)


def sweep(now: datetime) -> int:
    """Returns how many nodes and pods were changed, at most about `MOST`."""
    nodes = known.read()
    changed = _judge(nodes, now)
    return changed + _evict(nodes, now, most=MOST - changed)


# Health --------------------------------------------------------------------------------------------------------------


def _judge(nodes: Mapping[str, Node], now: datetime) -> int:
    """Mark nodes that fell silent or came back."""
    renewed = history.last_written(kind(LEASES), LEASE_NAMESPACE)
    suspects = [
        node for name, node in nodes.items() if judged(node, _presumed(renewed.get(name), now), now) is not node
    ]
    signs = _signs(suspects, renewed, now)
    wrong = [node.metadata.name for node in suspects if judged(node, signs[node.metadata.name], now) is not node]
    return sum(_judge_batch(batch, now) for batch in batches(wrong[:MOST], BATCH))


def _presumed(renewed_at: datetime | None, now: datetime) -> Signs:
    """The signs of a node with such a Lease, if it has not reported since. No report can make a difference to a node
    that is marked as silent already: one that came since would have taken the mark off its conditions."""
    fresh = renewed_at is not None and now - renewed_at <= GRACE
    return Signs(renewed_at=renewed_at if fresh else LONG_AGO)


def _judge_batch(names: Sequence[str], now: datetime) -> int:
    """Judge once more, on what is true inside the transaction. Returns how many nodes were changed."""
    changed = 0
    with objects.writing(identity=IDENTITY) as writer, looked_after.noted(writer, LOOKING):
        writer.load(kind(NODES), [("", name) for name in names])
        nodes = [node for name in names if isinstance(node := writer.get(kind(NODES), "", name), Node)]
        renewed = history.last_written(kind(LEASES), LEASE_NAMESPACE, names=frozenset(names))
        signs = _signs(nodes, renewed, now)
        for node in nodes:
            following = judged(node, signs[node.metadata.name], now)
            if following is not node:
                writer.update(kind(NODES), following)
                changed += 1
    return changed


def _signs(nodes: Sequence[Node], renewed: Mapping[str, datetime], now: datetime) -> dict[str, Signs]:
    """When something was heard of each; reports are looked up only where the Lease has not been renewed in time."""
    silent = [node for node in nodes if (moment := renewed.get(node.metadata.name)) is None or now - moment > GRACE]
    reported = _reported_at(silent, now)
    names = [node.metadata.name for node in nodes]
    return {name: Signs(renewed_at=renewed.get(name), reported_at=reported.get(name)) for name in names}


def _reported_at(nodes: Iterable[Node], now: datetime) -> dict[str, datetime]:
    """Since when each node's Ready condition has said what it says; exact within the grace, beyond it just older.

    Others write Nodes too (labels, taints, this controller), so the latest write that brought a new heartbeat counts.
    """
    heartbeats = {
        node.metadata.name: ready.last_heartbeat_time for node in nodes if (ready := ready_condition(node)) is not None
    }
    asked = {
        int(node.metadata.resource_version): node.metadata.name for node in nodes if node.metadata.name in heartbeats
    }
    found: dict[str, datetime] = {}
    for _ in range(DEPTH):
        further: dict[int, str] = {}
        for revision, state in history.states_at(asked).items():
            name = asked[revision]
            then = ready_condition(codec.decode_text(Node, state.text))
            if then is None or then.last_heartbeat_time != heartbeats[name]:
                continue
            found[name] = state.since
            if now - state.since <= GRACE and state.previous is not None:
                further[state.previous] = name
        asked = further
    return found


# Eviction ------------------------------------------------------------------------------------------------------------


def _evict(nodes: Mapping[str, Node], now: datetime, *, most: int) -> int:
    """Delete pods that have to leave their node. Returns how many."""
    tainted = {
        name: node for name, node in nodes.items() if any(taint.effect == "NoExecute" for taint in node.spec.taints)
    }
    if not tainted:
        return 0
    due = known.residents.due(residents_of(tainted), tainted, now)
    return sum(_evict_batch(batch, now) for batch in batches(due[: max(most, 0)], BATCH))


def _evict_batch(residents: Sequence[Resident], now: datetime) -> int:
    with objects.writing(identity=EVICTING_IDENTITY) as writer:
        writer.load(kind(PODS), [one.key for one in residents])
        writer.load(kind(NODES), {("", one.node) for one in residents})
        pods = [pod for one in residents if (pod := _due(writer, one.key, one.uid, now)) is not None]
        writer.load(kind(EVENTS), [event_recorder.key_of(_note(pod)) for pod in pods])
        for pod in pods:
            _evict_one(writer, pod, now)
    # Whoever was not due after all has new tolerations, or its node has other taints.
    known.residents.forget(one.uid for one in residents)
    return len(pods)


def _due(writer: Writer, key: Key, uid: str, now: datetime) -> Pod | None:
    pod = writer.get(kind(PODS), *key)
    if not isinstance(pod, Pod) or pod.metadata.uid != uid:
        return None
    node = writer.get(kind(NODES), "", pod.spec.node_name)
    return pod if isinstance(node, Node) and is_due(pod, node, now) else None


def is_due(pod: Pod, node: Node, now: datetime) -> bool:
    """Whether `pod` has to leave `node` now."""
    if pod.metadata.deletion_timestamp is not None or is_done(pod):
        return False
    moment = eviction_time(pod, node)
    return moment is not None and moment <= now


def _evict_one(writer: Writer, pod: Pod, now: datetime) -> None:
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
    event_recorder.record(writer, _note(pod), now=now)
    writer.delete(kind(PODS), *key_of(pod), uid=pod.metadata.uid)


def _note(pod: Pod) -> Note:
    full_name = f"{pod.metadata.namespace}/{pod.metadata.name}"
    message = f"Marking for deletion Pod {full_name}"
    return Note(regarding=pod, reason="TaintManagerEviction", message=message, component=COMPONENT)


CONTROLLER = Controller(
    name="sweep_nodes",
    does="marks nodes that fell silent, came back or are under pressure; evicts pods from tainted ones",
    reconcile=sweep,
    every=5,
    wakes_on=frozenset({(NODES, MODIFIED), (NODES, DELETING)}),
    most_per_turn=MOST,
)
