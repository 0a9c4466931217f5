"""What the cluster is at one moment, for the checks of `scheduling.invariants`: all documents, what the log says beside
what the store holds, and what lies on the nodes' disks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from claims.kinds.pod_groups import PodGroup
from claims.kinds.pods import Pod
from claims.kinds.quotas import ResourceQuota
from claims.kinds.resource_claims import ResourceClaim
from claims.kinds.resource_usage import ExtendedNames
from claims.quotas import extended_names
from inventory.kinds.devices import DeviceClass, ResourceSlice
from inventory.kinds.nodes import Node
from manciple.store import event_log, objects
from manciple.store.objects import listed
from manciple.store.records import EventRecord, Stored
from manciple.wire.registry import registry
from manciple.wire.resources import CLAIMS, CLASSES, NODES, POD_GROUPS, PODS, QUOTAS, SLICES

#: Events read at a time.
BATCH = 1000
CDI_FILE = re.compile(r"k8s\..+-claim_(?P<uid>[^/]+)\.json")


@dataclass(slots=True)
class Replay:
    """What the event log says, object by object, against what the store holds.

    Fed with the log from its floor on, then compared with the objects, read after it. An object that changed between
    the two readings is left out: it is judged the next time.
    """

    #: every event above this revision was fed
    floor: int = 0
    #: uid -> its last event
    last: dict[str, EventRecord] = field(default_factory=dict)
    live: dict[str, Stored] = field(default_factory=dict)
    #: objects that changed while we were reading
    unsettled: set[str] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)
    _newest: int = 0

    def feed(self, events: Iterable[EventRecord]) -> None:
        """Take the next events; what contradicts the ones before is a fault."""
        for event in events:
            label = f"{event.resource} {event.uid}"
            if event.revision <= self._newest:
                self.faults.append(f"revision {event.revision} of {label} comes after revision {self._newest}")
            known = self.last.get(event.uid)
            if known is not None and (known.type == "DELETED" or event.type == "ADDED"):
                self.faults.append(f"revision {event.revision} of {label} is {event.type} after {known.type}")
            self._newest = max(self._newest, event.revision)
            self.last[event.uid] = event

    def compare_with(self, objects: Iterable[Stored], later: Iterable[EventRecord]) -> None:
        """The live objects, read after the events; `later`: events that came while they were read."""
        self.live = {held.uid: held for held in objects}
        self.unsettled = {event.uid for event in later}

    def differences(self) -> Iterator[str]:
        yield from self.faults
        for uid in sorted((self.last.keys() | self.live.keys()) - self.unsettled):
            if problem := self._difference(self.last.get(uid), self.live.get(uid)):
                resource = (self.live.get(uid) or self.last[uid]).resource
                yield f"{resource} {uid} {problem}"

    def _difference(self, event: EventRecord | None, held: Stored | None) -> str:
        if held is None:
            return "" if event is None or event.type == "DELETED" else "is gone, but the log does not say so"
        if event is None:
            return "" if held.revision <= self.floor else "exists, but the log does not tell of it"
        if event.type == "DELETED":
            return "exists, but the log says it was deleted"
        return "" if event.text == held.text else "differs from its last event"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFiles:
    """What lies on a node's disk: uids of claims."""

    prepared: frozenset[str]  # by the checkpoint
    described: frozenset[str]  # by CDI files; or by their plugins alone, which write their own, or none


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """The documents of one moment."""

    now: datetime
    claims: tuple[ResourceClaim, ...] = ()
    pods: tuple[Pod, ...] = ()
    nodes: tuple[Node, ...] = ()
    slices: tuple[ResourceSlice, ...] = ()
    groups: tuple[PodGroup, ...] = ()
    quotas: tuple[ResourceQuota, ...] = ()
    #: which classes serve extended resources
    extended: ExtendedNames = field(default_factory=dict)
    replay: Replay = field(default_factory=Replay)
    #: node -> what lies on its disk; empty where nobody said where to look
    files: Mapping[str, NodeFiles] = field(default_factory=dict)

    def stored(self, resource: str) -> list[Stored]:
        """The objects of any resource, for the kinds that only extensions of the scheduler know."""
        return [obj for obj in self.replay.live.values() if obj.resource == resource]


# Reading --------------------------------------------------------------------------------------------------------------


def gather(now: datetime, home: Path | None = None) -> ClusterFacts:
    """Everything of this moment; the nodes' disks where `home` holds them."""
    return ClusterFacts(
        now=now,
        claims=tuple(listed(CLAIMS, ResourceClaim)[1]),
        pods=tuple(listed(PODS, Pod)[1]),
        nodes=tuple(listed(NODES, Node)[1]),
        groups=tuple(listed(POD_GROUPS, PodGroup)[1]),
        slices=tuple(listed(SLICES, ResourceSlice)[1]),
        quotas=tuple(listed(QUOTAS, ResourceQuota)[1]),
        extended=extended_names(listed(CLASSES, DeviceClass)[1]),
        replay=replayed(),
        files={} if home is None else node_files(home),
    )


def replayed() -> Replay:
    """The log from its floor on, beside the objects of every kind."""
    replay = Replay(floor=event_log.floor())
    position = replay.floor
    for records in _batches(position):
        replay.feed(records)
        position = records[-1].revision
    held = [stored for kind in registry for stored in objects.list(kind).items]
    replay.compare_with(held, [record for records in _batches(position) for record in records])
    return replay


def _batches(position: int) -> Iterator[list[EventRecord]]:
    while records := event_log.read_after(position, limit=BATCH):
        yield records
        position = records[-1].revision


def node_files(home: Path) -> dict[str, NodeFiles]:
    """What lies under `home`: nodes/NODE/claims/UID.json and cdi/NODE/k8s.DRIVER-claim_UID.json."""
    names = {path.name for folder in ("nodes", "cdi") for path in (home / folder).glob("*") if path.is_dir()}
    found: dict[str, NodeFiles] = {}
    for name in sorted(names):
        prepared = dict(_prepared(home / "nodes" / name / "claims"))
        theirs = frozenset(uid for uid, by_agent in prepared.items() if not by_agent)
        found[name] = NodeFiles(prepared=frozenset(prepared), described=theirs.union(_described(home / "cdi" / name)))
    return found


def _prepared(folder: Path) -> Iterator[tuple[str, bool]]:
    """Claims that the checkpoint calls prepared, not those on the way there or back; whether the agent wrote a file."""
    for path in folder.glob("*.json"):
        record = json.loads(path.read_text()).get("claim", {})
        if record.get("state") == "Prepared":
            yield record["uid"], any(one.get("cdiFile") for one in record.get("drivers", ()))


def _described(folder: Path) -> Iterator[str]:
    for path in folder.glob("*.json"):
        if match := CDI_FILE.fullmatch(path.name):
            yield match["uid"]
