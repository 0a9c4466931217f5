"""Nodes as far as devices are concerned: whether a pod that tolerates nothing may still come, and their labels.

`closed_devices` says which devices of a pool no claim can be given because no node that sees them accepts pods.

Pure: told of nodes and pods one after the other, in any order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from sys import intern

from claims.devices.published import CandidateDevice, DevicePool, nanos
from claims.kinds.pods import Pod
from inventory.kinds.devices import HARD_EFFECTS, Device, ResourceSliceSpec
from inventory.kinds.nodes import Node, has_reported
from manciple.wire.resources import FINISHED_PHASES
from manciple.wire.selectors import parsed_node_terms

_ONE = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """One node. closed: cordoned, tainted so that pods keep away, unreachable, or never heard of.

    most_pods: None for any number.
    """

    name: str
    labels: Mapping[str, str]
    cordoned: bool
    closed: bool
    most_pods: int | None
    pods: int = 0

    @property
    def room(self) -> int | None:
        """How many more pods it takes; None for any number."""
        if self.closed:
            return 0
        return None if self.most_pods is None else max(0, self.most_pods - self.pods)

    @property
    def accepts_pods(self) -> bool:
        return self.room != 0


def closed_devices(pool: DevicePool, nodes: Mapping[str, NodeState]) -> frozenset[CandidateDevice]:
    """The devices of a pool that only nodes see which accept no pods, or no node at all."""
    if pool.node:  # that of all its devices
        node = nodes.get(pool.node)
        return frozenset() if node is not None and node.accepts_pods else frozenset(pool.candidates)
    accepting = [node for node in nodes.values() if node.accepts_pods] if pool.slices else []
    closed: list[CandidateDevice] = []
    for one in pool.slices:
        spec = one.spec
        if not spec.per_device_node_selection:
            if not _is_seen(spec, accepting):
                closed += one.candidates
            continue
        closed += (each for each in one.candidates if not _is_seen(each.device, accepting))
    return frozenset(closed)


def _is_seen(published: ResourceSliceSpec | Device, nodes: Iterable[NodeState]) -> bool:
    """Whether the slice, or the device that selects its nodes itself, is for one of the nodes."""
    terms = parsed_node_terms(published.node_selector) if published.node_selector else ()
    return any(
        published.all_nodes
        or published.node_name == node.name
        or any(term.matches(node.name, node.labels) for term in terms)
        for node in nodes
    )


class Nodes:
    """See the module's docstring. What changes answers whether anything looks different now."""

    def __init__(self) -> None:
        self._nodes: dict[str, NodeState] = {}
        #: those that are unreachable; they may have no Node any more
        self.unreachable: frozenset[str] = frozenset()
        #: nodes that are closed for another reason
        self._fenced: set[str] = set()
        #: pod's uid -> its node
        self._node_of: dict[str, str] = {}
        self._pods: Counter[str] = Counter()
        self._now: Mapping[str, NodeState] | None = None
        #: the nodes that came, went, opened, closed or got other labels since `take_changed`
        self._changed: set[str] = set()

    @property
    def now(self) -> Mapping[str, NodeState]:
        """By name; the same mapping as long as nothing changes."""
        if self._now is None:
            self._now = dict(self._nodes)
        return self._now

    def put(self, node: Node) -> bool:
        name, most = node.metadata.name, node.status.allocatable.get("pods")
        fenced = not HARD_EFFECTS.isdisjoint(taint.effect for taint in node.spec.taints)
        closed = node.spec.unschedulable or fenced or not has_reported(node)
        (self._fenced.add if closed else self._fenced.discard)(name)
        return self._set(
            NodeState(
                name=name,
                labels=node.metadata.labels,
                cordoned=node.spec.unschedulable,
                closed=closed or name in self.unreachable,
                most_pods=None if most is None else nanos(most) // _ONE,
                pods=self._pods[name],
            )
        )

    def are_unreachable(self, names: frozenset[str]) -> frozenset[str]:
        """These nodes are, and no others. Returns those of which that is news."""
        news = names ^ self.unreachable
        self.unreachable = names
        for name in news & self._nodes.keys():
            self._set(replace(self._nodes[name], closed=name in names or name in self._fenced))
        return news

    def remove(self, name: str) -> bool:
        self._now = None
        self._fenced.discard(name)
        self._changed.add(name)
        return self._nodes.pop(name, None) is not None

    def take_changed(self) -> set[str]:
        """The nodes whose devices may be closed now, or no longer, since this was last asked."""
        changed, self._changed = self._changed, set()
        return changed

    def pod_is(self, uid: str, node: str) -> bool:
        """node: "" where the pod is on none, or is over."""
        before = self._node_of.pop(uid, "")
        if node:
            self._node_of[uid] = intern(node)
        if before == node:
            return False
        for name, change in ((before, -1), (node, 1)):
            self._pods[name] += change
        left, came = self._recount(before), self._recount(node)
        return left or came

    def _recount(self, name: str) -> bool:
        known = self._nodes.get(name)
        if not self._pods[name] or not name:
            del self._pods[name]
        if known is None:
            return False
        return self._set(replace(known, pods=self._pods[name]))

    def _set(self, node: NodeState) -> bool:
        before = self._nodes.get(node.name)
        if before == node:
            return False
        if before is None or (before.accepts_pods, before.labels) != (node.accepts_pods, node.labels):
            self._changed.add(node.name)
        self._nodes[node.name] = node
        self._now = None
        return True


def node_of(pod: Pod) -> str:
    """The node on which it takes a place; "" where it takes none."""
    return "" if pod.status.phase in FINISHED_PHASES else pod.spec.node_name
