"""Which objects a node has to do with: those that the pods bound to it name, the pods themselves, and its slices.

A view of all pods and slices that keeps of each only the names it needs: for the 50,000 pods of a large cluster some
30 MiB, in the processes that nodes ask for such objects (`tests/claims/access/test_graph.py` measures it).

A question is answered from what the process knows. A yes may be `TRUSTED` seconds old where an announcement was lost; a
no is given only after looking at the log, because an agent asks for a claim as soon as it has seen its pod bound.
Upstream: plugin/pkg/auth/authorizer/node/graph.go, which waits for informers and lets the agent try again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from sys import intern
from typing import Any, ClassVar, NamedTuple

from claims.kinds.references import Reference, references
from inventory.kinds import gates
from manciple.store.follower import Follower, View
from manciple.store.records import Written
from manciple.store.tail import POLL_INTERVAL
from manciple.wire.base import ApiObject

PODS, SLICES = "pods", "resourceslices.resource.k8s.io"
#: As the draft of KEP-4381 has them.
NODE_SLICES = "noderesourceslices.resource.k8s.io"
#: Seconds for which announcements are trusted to tell of every change.
TRUSTED = POLL_INTERVAL

#: (resource, namespace, name)
ObjectKey = tuple[str, str, str]


class _Bound(NamedTuple):
    """What one pod or slice gives its node. The first of `objects` is itself."""

    node: str
    objects: tuple[ObjectKey, ...]


class NodeGraph(View):
    """node -> what it has to do with."""

    resources: ClassVar[Sequence[str]] = (PODS, SLICES)

    def __init__(self) -> None:
        if gates.enabled(gates.STRUCTURED_PARAMETERS_DRAFT):
            self.resources = (PODS, SLICES, NODE_SLICES)  # type: ignore[misc]  # of a view of this process
        self._bound: dict[ObjectKey, _Bound] = {}
        #: node -> object -> how many pods on the node name it
        self._objects: dict[str, dict[ObjectKey, int]] = {}

    def fill(self, resource: str, objects: Iterable[ApiObject]) -> None:
        for obj in objects:
            self._add(resource, obj)

    def apply(self, changes: Sequence[Written]) -> None:
        for change in changes:
            meta = change.object.metadata
            self._remove((change.resource, meta.namespace, meta.name))
            if change.type != "DELETED":
                self._add(change.resource, change.object)

    def related(self, node: str, key: ObjectKey) -> bool:
        """Whether the object is one of the node's pods or slices, or a pod of the node names it."""
        return key in self._objects.get(node, ())

    def __len__(self) -> int:
        """How many pods and slices are on nodes."""
        return len(self._bound)

    def _add(self, resource: str, obj: Any) -> None:
        node = obj.spec.node_name
        if not node:
            return
        namespace = intern(obj.metadata.namespace)
        named: Iterable[Reference] = references(obj) if resource == PODS else ()
        key = (resource, namespace, obj.metadata.name)
        bound = _Bound(intern(node), (key, *((one.resource, namespace, one.name) for one in named)))
        self._bound[key] = bound
        counts = self._objects.setdefault(bound.node, {})
        for one in bound.objects:
            counts[one] = counts.get(one, 0) + 1

    def _remove(self, key: ObjectKey) -> None:
        bound = self._bound.pop(key, None)
        if bound is None:
            return
        counts = self._objects[bound.node]
        for one in bound.objects:
            counts[one] -= 1
            if not counts[one]:
                del counts[one]
        if not counts:
            del self._objects[bound.node]


_following = Follower(NodeGraph)


def is_related(node: str, key: ObjectKey) -> bool:
    """Whether `node` has to do with the object, as things are now."""
    with _following.view(within=TRUSTED) as graph:
        if graph.related(node, key):
            return True
    with _following.view() as graph:
        return graph.related(node, key)
