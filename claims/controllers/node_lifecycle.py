"""Watches the nodes' signs of life and moves pods away from nodes whose taints they do not tolerate.

    heard of within the grace, Ready True     -> no taints of ours
    heard of within the grace, Ready not True -> not-ready taints
    silent                                    -> conditions Unknown, unreachable taints, event NodeNotReady;
                                                 its pods' Ready condition becomes False
    back again                                -> its own report stands, taints removed; its agent reports its pods

Each state has a NoSchedule and a NoExecute taint; a pod leaves when the seconds that it tolerates the latter are over.
A node that reports pressure (on disk, memory, process ids) is tainted NoSchedule for as long as it does. Only when a
sign of life was seen counts, never the time that the node writes into it: its clock may be a day off. That moment is
read from the log, which every worker shares and no restart loses. (Upstream keeps in memory when it saw the Lease
change, and begins anew when it restarts.) Time passes without events, so this is a sweep only.
Upstream: pkg/controller/nodelifecycle/node_lifecycle_controller.go, pkg/controller/tainteviction/taint_eviction.go.

A sweep asks the log which nodes were written since the last one, and reads these. It judges them, and the nodes whose
Lease was old when it was last looked at; all nodes only once the oldest of the other Leases may be overdue. Only of
nodes whose Lease is old, and that are not marked for it yet, the log is asked for their last report: all of them
together, one state further back with each question. Which pods are on tainted nodes is asked of the index; a pod's
document is read when it is first seen, when the taints of its node change, and again after a while, because tolerations
may be added. So a thousand silent nodes whose pods stay for five minutes cost one question a sweep, and each pod one
read. Nodes are marked, and pods evicted, so many in a transaction; between two of these everybody else may write.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from msgspec import structs

from claims import event_recorder, models
from claims.event_recorder import EventNote
from claims.evictions import NODE_TAINT, disrupt
from claims.kinds.pods import Pod, Toleration, tolerates
from claims.pod_claims import is_done
from inventory.kinds.nodes import (
    LIFECYCLE_TAINTS,
    NOT_READY,
    PRESSURES,
    UNREACHABLE,
    Node,
    NodeCondition,
    NodeSpec,
    NodeStatus,
    Taint,
)
from inventory.reachability import GRACE, LEASE_NAMESPACE, SignsOfLife, is_silent
from manciple.controllers import metrics
from manciple.controllers.coordination import looked_after
from manciple.controllers.declaration import DELETING, Controller, batches
from manciple.per_process import PerProcess
from manciple.store import event_log, history, objects, records, sql
from manciple.store.objects import Writer, decoded
from manciple.wire import codec
from manciple.wire.base import ObjectMeta, condition_of, timestamp
from manciple.wire.identity import controller
from manciple.wire.resources import EVENTS, FINISHED_PHASES, LEASES, MODIFIED, NODES, PODS, Key, kind

#: What the DefaultTolerationSeconds admission of Kubernetes gives every pod that says nothing about these taints.
DEFAULT_TOLERATION_SECONDS = 300

EFFECTS = ("NoSchedule", "NoExecute")
#: The conditions that an agent reports; without it nobody knows them.
REPORTED = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")


def judged(node: Node, signs: SignsOfLife, now: datetime) -> Node:
    """`node` as its signs of life make it; the same value where that changes nothing."""
    if is_silent(_moment(node.metadata.creation_timestamp), signs, now):
        return _tainted(_with_unknown_conditions(node, now), UNREACHABLE, now)
    ready = ready_condition(node)
    if ready is None:
        return _tainted(node, "", now)  # still starting
    return _tainted(node, "" if ready.status == "True" else NOT_READY, now)


def ready_condition(node: Node) -> NodeCondition | None:
    return condition_of(node.status.conditions, "Ready")


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
    others = (taint for taint in node.spec.taints if taint.key not in LIFECYCLE_TAINTS)
    taints = (*others, *(known.get(one, fresh[one]) for one in wanted))
    if set(taints) == set(node.spec.taints):
        return node
    return structs.replace(node, spec=structs.replace(node.spec, taints=taints))


# When a taint ends a stay --------------------------------------------------------------------------------------------


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


#: Documents read in one sweep; the rest is read by the next ones.
MOST_READ = 2000
#: How long what a pod tolerates is cached.
CACHED_FOR = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Resident:
    """A living pod on a node."""

    uid: str
    namespace: str
    name: str
    node: str

    @property
    def key(self) -> Key:
        return (self.namespace, self.name)


def residents_of(nodes: Collection[str]) -> list[Resident]:
    """The pods on these nodes that have not ended and are not on their way out. A query for each thousand nodes."""
    columns = ("uid", "namespace", "name", "node_name", "phase", "deleting")
    found = sql.select(models.Pod, columns, ["node_name"], [(name,) for name in nodes])
    return [Resident(*rest) for *rest, phase, deleting in found if not deleting and phase not in FINISHED_PHASES]


@dataclass(frozen=True, slots=True)
class _Stay:
    """How long a pod may stay under such taints: None for ever. ready: its Ready condition is True."""

    taints: tuple[Taint, ...]
    until: datetime | None
    read_at: datetime
    ready: bool


class Residents:
    """When the pods that were seen in the last sweep have to go, by uid."""

    def __init__(self) -> None:
        self._stays: dict[str, _Stay] = {}

    def read(self, residents: Sequence[Resident], nodes: Mapping[str, Node], now: datetime) -> None:
        """Read those that are not known yet. nodes: of all of them, by name."""
        self._stays = {one.uid: self._stays[one.uid] for one in residents if one.uid in self._stays}
        unknown = [one for one in residents if not self._knows(one, nodes[one.node], now)]
        self._read(unknown[:MOST_READ], nodes, now)

    def due(self, residents: Sequence[Resident], now: datetime) -> list[Resident]:
        """Those that have to go now, as far as is known."""
        stays = ((one, self._stays.get(one.uid)) for one in residents)
        return [one for one, stay in stays if stay is not None and stay.until is not None and stay.until <= now]

    def ready(self, residents: Sequence[Resident]) -> list[Resident]:
        """Those that say that they are ready, as far as is known."""
        return [one for one in residents if one.uid in self._stays and self._stays[one.uid].ready]

    def forget(self, uids: Iterable[str]) -> None:
        """Read them anew when they are seen again."""
        for uid in uids:
            self._stays.pop(uid, None)

    def _knows(self, one: Resident, node: Node, now: datetime) -> bool:
        stay = self._stays.get(one.uid)
        return stay is not None and stay.taints == node.spec.taints and now - stay.read_at < CACHED_FOR

    def _read(self, residents: Sequence[Resident], nodes: Mapping[str, Node], now: datetime) -> None:
        wanted = {one.uid: one for one in residents}
        for stored in objects.get_many(kind(PODS), [one.key for one in residents]):
            if (one := wanted.get(stored.uid)) is not None:
                node, pod = nodes[one.node], decoded(stored, Pod)
                until = eviction_time(pod, node)
                self._stays[one.uid] = _Stay(node.spec.taints, until, now, _is_ready(pod))


#: Who writes (upstream: the service account of that name in kube-controller-manager).
IDENTITY_NAME = "node-controller"
IDENTITY = controller(IDENTITY_NAME)
COMPONENT = "taint-eviction-controller"
#: Nodes or pods in one transaction: other writers wait no longer than these take.
BATCH = 100
#: Nodes and pods changed in one sweep.
MOST = 1000
#: How many states back the last report of a node is searched for; where it is older still, the next sweep knows.
DEPTH = 10
#: Writes of nodes, and deletions, that one question to the log tells of.
MOST_TOLD = 1000
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
#: What the sweep itself goes on to look at.
LOOKING = frozenset({"sweep_nodes"})


class NodeCache:
    """What this process knows of the nodes: as much of each as its health depends on, and when its pods have to go.

    nodes: by name. tainted: those of them that pods have to leave. doubtful: the names of those that are to be judged
    now. The others need not be before `due`: their Leases, renewed since or not, are not overdue until then.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.tainted: dict[str, Node] = {}
        self.residents = Residents()
        self.doubtful: set[str] = set()
        self.judged_at = self.due = LONG_AGO
        self._revision: int | None = None

    def read(self) -> None:
        """Bring the nodes up to date; documents are read of those that were written since the last call."""
        written = event_log.since(self._revision, self._written_after)
        if written is None:
            self._revision = event_log.latest_revision()
            revisions = history.revisions(kind(NODES))
            names = self.nodes.keys() | revisions.keys()
        else:
            names = {one.fields["metadata.name"] for one in written.changes}
            revisions = history.revisions(kind(NODES), names=_if_few(names)) if names else {}
            self._revision = written.revision
        self.doubtful |= names
        for name in names - revisions.keys():
            self._forget(name)
        known = {name: self.nodes[name].metadata.resource_version for name in names & self.nodes.keys()}
        stale = {revisions[name] for name in names & revisions.keys() if known.get(name) != str(revisions[name])}
        for state in history.states_at(stale).values():
            node = _abridged(codec.decode_text(Node, state.text))
            self._forget(name := node.metadata.name)
            self.nodes[name] = node
            if any(taint.effect == "NoExecute" for taint in node.spec.taints):
                self.tainted[name] = node

    def _written_after(self, revision: int) -> event_log.Stretch[records.Sketch]:
        changes, more = list[records.Sketch](), True
        while more:
            stretch = event_log.sketches_after(revision, resources=(NODES,), limit=MOST_TOLD)
            changes += (one for one in stretch.changes if one.resource == NODES)
            revision, more = stretch.revision, stretch.more
        return event_log.Stretch(changes, revision)

    def _forget(self, name: str) -> None:
        self.nodes.pop(name, None)
        self.tainted.pop(name, None)


def _if_few(names: Set[str]) -> frozenset[str] | None:
    """None for so many that all are asked for."""
    return frozenset(names) if len(names) <= MOST else None


node_cache = PerProcess(NodeCache)


def _abridged(node: Node) -> Node:
    meta = node.metadata
    kept = ObjectMeta(
        name=meta.name, creation_timestamp=meta.creation_timestamp, resource_version=meta.resource_version
    )
    spec, status = NodeSpec(taints=node.spec.taints), NodeStatus(conditions=node.status.conditions)
    return structs.replace(node, metadata=kept, spec=spec, status=status)


def sweep(now: datetime) -> int:
    """Returns how many nodes and pods were changed, at most about `MOST`."""
    cache = node_cache.value
    cache.read()
    if changed := _judge(cache, now):
        cache.read()
    tainted = cache.tainted
    if not tainted:
        return changed
    residents, stays = residents_of(tainted), cache.residents
    stays.read(residents, tainted, now)
    unreachable = [one for one in residents if is_marked(tainted[one.node])]
    changed += _doubt(stays.ready(unreachable)[: max(MOST - changed, 0)], now)
    due = stays.due(residents, now)[: max(MOST - changed, 0)]
    return changed + sum(_evict_batch(batch, now) for batch in batches(due, BATCH))


# Health --------------------------------------------------------------------------------------------------------------


def _judge(cache: NodeCache, now: datetime) -> int:
    """Mark nodes that fell silent or came back."""
    if cache.judged_at <= now < cache.due:
        names = frozenset(cache.doubtful & cache.nodes.keys())
        renewed = history.last_written(kind(LEASES), LEASE_NAMESPACE, names=_if_few(names)) if names else {}
    else:
        renewed = history.last_written(kind(LEASES), LEASE_NAMESPACE)
        names, cache.judged_at, cache.due = frozenset(cache.nodes), now, now + GRACE
    nodes = [cache.nodes[name] for name in names]
    cache.doubtful = {name for name in names if (at := renewed.get(name)) is None or now - at > GRACE}
    cache.due = min([cache.due, *(renewed[name] + GRACE for name in names - cache.doubtful)])
    suspects = [
        node for node in nodes if judged(node, _presumed(renewed.get(node.metadata.name), now), now) is not node
    ]
    cache.doubtful |= {node.metadata.name for node in suspects}
    signs = _signs(suspects, renewed, now)
    wrong = [node.metadata.name for node in suspects if judged(node, signs[node.metadata.name], now) is not node]
    return sum(_judge_batch(batch, now) for batch in batches(wrong[:MOST], BATCH))


def _presumed(renewed_at: datetime | None, now: datetime) -> SignsOfLife:
    """The signs of a node with such a Lease, if it has not reported since. No report can make a difference to a node
    that is marked as silent already: one that came since would have taken the mark off its conditions."""
    fresh = renewed_at is not None and now - renewed_at <= GRACE
    return SignsOfLife(renewed_at=renewed_at if fresh else LONG_AGO)


def _judge_batch(names: Sequence[str], now: datetime) -> int:
    """Judge once more, on what is true inside the transaction. Returns how many nodes were changed."""
    changed = 0
    with objects.writing(identity=IDENTITY) as writer, looked_after.value.noted(writer, LOOKING):
        writer.load(kind(NODES), [("", name) for name in names])
        nodes = [node for name in names if isinstance(node := writer.get(kind(NODES), "", name), Node)]
        renewed = history.last_written(kind(LEASES), LEASE_NAMESPACE, names=frozenset(names))
        signs = _signs(nodes, renewed, now)
        stopped = []
        for node in nodes:
            following = judged(node, signs[node.metadata.name], now)
            if following is not node:
                writer.update(kind(NODES), following)
                changed += 1
                if is_marked(following) and (ready := ready_condition(node)) is not None and ready.status == "True":
                    stopped.append(_stopped(node))
        _record(writer, stopped, now)
    return changed


def _record(writer: Writer, notes: Sequence[EventNote], now: datetime) -> None:
    writer.load(kind(EVENTS), [event_recorder.key_of(note) for note in notes])
    for note in notes:
        event_recorder.record(writer, note, now=now)


def is_marked(node: Node) -> bool:
    """Whether it is marked as unreachable."""
    ready = ready_condition(node)
    return ready is not None and ready.status == "Unknown"


def _stopped(node: Node) -> EventNote:
    """As upstream words it (controllerutil.RecordNodeStatusChange)."""
    message = f"Node {node.metadata.name} status is now: NodeNotReady"
    return EventNote(regarding=node, reason="NodeNotReady", message=message, component=IDENTITY_NAME)


def _signs(nodes: Sequence[Node], renewed: Mapping[str, datetime], now: datetime) -> dict[str, SignsOfLife]:
    """When something was heard of each; reports are looked up only where the Lease has not been renewed in time."""
    silent = [node for node in nodes if (moment := renewed.get(node.metadata.name)) is None or now - moment > GRACE]
    reported = _reported_at(silent, now)
    names = [node.metadata.name for node in nodes]
    return {name: SignsOfLife(renewed_at=renewed.get(name), reported_at=reported.get(name)) for name in names}


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


# Pods that nobody vouches for -----------------------------------------------------------------------------------------


def _doubt(residents: Sequence[Resident], now: datetime) -> int:
    """The pods of unreachable nodes are not ready for anybody: a Service must not send them anything. Their phase and
    their containers stay as they were last reported. Returns how many were changed.

    Upstream does so once, as the node stops (controllerutil.MarkPodsNotReady): an agent that is back corrects it.
    """
    return sum(_doubt_batch(batch, now) for batch in batches(residents, BATCH))


def _doubt_batch(residents: Sequence[Resident], now: datetime) -> int:
    notes = []
    with objects.writing(identity=IDENTITY) as writer:
        writer.load(kind(PODS), [one.key for one in residents])
        writer.load(kind(NODES), {("", one.node) for one in residents})
        for one in residents:
            pod, node = writer.get(kind(PODS), *one.key), writer.get(kind(NODES), "", one.node)
            if not isinstance(pod, Pod) or pod.metadata.uid != one.uid or not _is_ready(pod):
                continue
            if not isinstance(node, Node) or not is_marked(node):
                continue
            writer.update(kind(PODS), _not_ready(pod, now), subresource="status")
            note = EventNote(
                regarding=pod,
                type="Warning",
                reason="NodeNotReady",
                message="Node is not ready",
                component=IDENTITY_NAME,
            )
            notes.append(note)
        _record(writer, notes, now)
    # What they say now is read when they are seen again.
    node_cache.value.residents.forget(one.uid for one in residents)
    return len(notes)


def _is_ready(pod: Pod) -> bool:
    ready = condition_of(pod.status.conditions, "Ready")
    return ready is not None and ready.status == "True"


def _not_ready(pod: Pod, now: datetime) -> Pod:
    conditions = tuple(
        structs.replace(one, status="False", last_transition_time=timestamp(now)) if one.type == "Ready" else one
        for one in pod.status.conditions
    )
    return structs.replace(pod, status=structs.replace(pod.status, conditions=conditions))


# Eviction ------------------------------------------------------------------------------------------------------------


def _evict_batch(residents: Sequence[Resident], now: datetime) -> int:
    with objects.writing(identity=IDENTITY) as writer:
        writer.load(kind(PODS), [one.key for one in residents])
        writer.load(kind(NODES), {("", one.node) for one in residents})
        pods = [pod for one in residents if (pod := _due(writer, one.key, one.uid, now)) is not None]
        writer.load(kind(EVENTS), [event_recorder.key_of(_note(pod)) for pod in pods])
        late = [_late(writer, pod, now) for pod in pods]
        for pod in pods:
            disrupt(writer, pod, NODE_TAINT, now=now, note=_note(pod))
    # Whoever was not due after all has new tolerations, or its node has other taints.
    node_cache.value.residents.forget(one.uid for one in residents)
    for seconds in late:
        metrics.FROM_NODES.tell(seconds)
    return len(pods)


def _late(writer: Writer, pod: Pod, now: datetime) -> float:
    """Seconds since it had to go."""
    node = writer.get(kind(NODES), "", pod.spec.node_name)
    moment = eviction_time(pod, node) if isinstance(node, Node) else None
    return (now - (moment or now)).total_seconds()


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


def _note(pod: Pod) -> EventNote:
    full_name = f"{pod.metadata.namespace}/{pod.metadata.name}"
    message = f"Marking for deletion Pod {full_name}"
    return EventNote(regarding=pod, reason="TaintManagerEviction", message=message, component=COMPONENT)


CONTROLLER = Controller(
    name="sweep_nodes",
    does="marks nodes that stopped or resumed reporting, or are under pressure; evicts pods from tainted nodes",
    reconcile=sweep,
    every=5,
    wakes_on=frozenset({(NODES, MODIFIED), (NODES, DELETING)}),
    most_per_turn=MOST,
)
