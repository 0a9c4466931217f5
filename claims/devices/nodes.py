"""Nodes as far as devices are concerned: whether a pod that tolerates nothing may still come, and their labels.

Pure: told of nodes and pods one after the other, in any order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from sys import intern

from claims.devices.published import nanos
from claims.kinds.pods import Pod
from inventory.kinds.devices import HARD_EFFECTS
from inventory.kinds.nodes import Node, has_reported
from manciple.wire.resources import FINISHED_PHASES

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
        return self._nodes.pop(name, None) is not None

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
        if self._nodes.get(node.name) == node:
            return False
        self._nodes[node.name] = node
        self._now = None
        return True


def node_of(pod: Pod) -> str:
    """The node on which it takes a place; "" where it takes none."""
    return "" if pod.status.phase in FINISHED_PHASES else pod.spec.node_name
