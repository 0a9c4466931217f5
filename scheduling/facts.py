"""Reads what the invariants are checked on: the store's documents, its log, and the nodes' disks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from claims.kinds.pods import Pod
from claims.kinds.resource_claims import ResourceClaim
from inventory.kinds.devices import ResourceSlice
from inventory.kinds.nodes import Node
from manciple.store import objects, tail
from manciple.store.records import EventRecord
from manciple.wire.registry import registry
from scheduling.invariants import Facts, NodeFiles
from scheduling.replay import Replay
from scheduling.resources import CLAIMS, NODES, PODS, SLICES, listed

#: Events read at a time.
BATCH = 1000
CDI_FILE = re.compile(r"k8s\..+-claim_(?P<uid>[^/]+)\.json")


def gather(now: datetime, home: Path | None = None) -> Facts:
    """Everything of this moment; the nodes' disks where `home` holds them."""
    return Facts(
        now=now,
        claims=tuple(listed(CLAIMS, ResourceClaim)[1]),
        pods=tuple(listed(PODS, Pod)[1]),
        nodes=tuple(listed(NODES, Node)[1]),
        slices=tuple(listed(SLICES, ResourceSlice)[1]),
        replay=replayed(),
        files={} if home is None else node_files(home),
    )


def replayed() -> Replay:
    """The log from its floor on, beside the objects of every kind."""
    replay = Replay(floor=tail.floor())
    position = replay.floor
    for records in _batches(position):
        replay.feed(records)
        position = records[-1].revision
    held = [stored for kind in registry for stored in objects.list(kind).items]
    replay.compare_with(held, [record for records in _batches(position) for record in records])
    return replay


def _batches(position: int) -> Iterator[list[EventRecord]]:
    while records := tail.read_after(position, limit=BATCH):
        yield records
        position = records[-1].revision


def node_files(home: Path) -> dict[str, NodeFiles]:
    """What lies under `home`: nodes/NODE/claims/UID.json and cdi/NODE/k8s.DRIVER-claim_UID.json."""
    names = {path.name for folder in ("nodes", "cdi") for path in (home / folder).glob("*") if path.is_dir()}
    return {
        name: NodeFiles(
            prepared=frozenset(_prepared(home / "nodes" / name / "claims")),
            described=frozenset(_described(home / "cdi" / name)),
        )
        for name in sorted(names)
    }


def _prepared(folder: Path) -> Iterator[str]:
    """Claims that the checkpoint calls prepared; those on the way there or back are not."""
    for path in folder.glob("*.json"):
        record = json.loads(path.read_text()).get("claim", {})
        if record.get("state") == "Prepared":
            yield record["uid"]


def _described(folder: Path) -> Iterator[str]:
    for path in folder.glob("*.json"):
        if match := CDI_FILE.fullmatch(path.name):
            yield match["uid"]
