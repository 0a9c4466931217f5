"""The pods on tainted nodes, and when each has to go: worked out once for a pod, not in every sweep.

Which pods there are is asked of the index. A pod's document is read when it is first seen, when the taints of its node
change, and again after a while, because tolerations may be added; so a thousand silent nodes whose pods stay for five
minutes cost one question a sweep, and each pod one read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from claims import models
from claims.kinds.pods import Pod
from inventory.kinds.nodes import Node, Taint
from manciple.store import bulk, objects
from scheduling.controllers.node_health import eviction_time
from scheduling.hints import FINISHED_PHASES
from scheduling.resources import PODS, Key, decoded, kind

#: Documents read in one sweep; the rest is read by the next ones.
MOST_READ = 2000
#: How long what a pod tolerates is believed.
BELIEVED_FOR = timedelta(minutes=5)


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
    found = bulk.select(models.Pod, columns, ["node_name"], [(name,) for name in nodes])
    return [Resident(*rest) for *rest, phase, deleting in found if not deleting and phase not in FINISHED_PHASES]


@dataclass(frozen=True, slots=True)
class _Stay:
    """How long a pod may stay under such taints: None for ever."""

    taints: tuple[Taint, ...]
    until: datetime | None
    read_at: datetime


class Residents:
    """When the pods that were seen in the last sweep have to go, by uid."""

    def __init__(self) -> None:
        self._stays: dict[str, _Stay] = {}

    def due(self, residents: Sequence[Resident], nodes: Mapping[str, Node], now: datetime) -> list[Resident]:
        """Those of `residents` that have to go now, as far as is known. nodes: of all of them, by name."""
        self._stays = {one.uid: self._stays[one.uid] for one in residents if one.uid in self._stays}
        unknown = [one for one in residents if not self._knows(one, nodes[one.node], now)]
        self._read(unknown[:MOST_READ], nodes, now)
        stays = ((one, self._stays.get(one.uid)) for one in residents)
        return [one for one, stay in stays if stay is not None and stay.until is not None and stay.until <= now]

    def forget(self, uids: Iterable[str]) -> None:
        """Read them anew when they are seen again."""
        for uid in uids:
            self._stays.pop(uid, None)

    def _knows(self, one: Resident, node: Node, now: datetime) -> bool:
        stay = self._stays.get(one.uid)
        return stay is not None and stay.taints == node.spec.taints and now - stay.read_at < BELIEVED_FOR

    def _read(self, residents: Sequence[Resident], nodes: Mapping[str, Node], now: datetime) -> None:
        wanted = {one.uid: one for one in residents}
        for stored in objects.get_many(kind(PODS), [one.key for one in residents]):
            if (one := wanted.get(stored.uid)) is not None:
                node = nodes[one.node]
                until = eviction_time(decoded(stored, Pod), node)
                self._stays[one.uid] = _Stay(node.spec.taints, until, now)
