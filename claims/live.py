"""Which live topics the events of claims and pods touch: the pools that a claim holds or held devices of; the pod."""

from __future__ import annotations

import json
from collections.abc import Iterable

from claims.models import AllocatedDevice
from claims.pages.grid import pool_topic
from manciple.store.tail import EventRecord


class ClaimTopics:
    """Remembers the pools of each allocated claim, because the event that frees a device no longer names it."""

    def __init__(self) -> None:
        self._pools: dict[str, frozenset[str]] | None = None

    def __call__(self, record: EventRecord) -> Iterable[str]:
        if self._pools is None:
            self._pools = _pools_in_use()
        before = self._pools.pop(record.uid, frozenset())
        now = frozenset() if record.type == "DELETED" else pools_of(record.text)
        if now:
            self._pools[record.uid] = now
        return before | now


def claim_topics(record: EventRecord) -> Iterable[str]:
    """The claims of a namespace."""
    return (f"claims:{record.namespace}",)


def pod_topics(record: EventRecord) -> Iterable[str]:
    """The list of pods, and this one."""
    return ("pods", f"pod:{record.namespace}/{record.name}")


def pools_of(text: str) -> frozenset[str]:
    """The topics of the pools that a claim's document allocates devices from."""
    allocation = json.loads(text).get("status", {}).get("allocation") or {}
    results = allocation.get("devices", {}).get("results", ())
    return frozenset(pool_topic(result["driver"], result["pool"]) for result in results)


def _pools_in_use() -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    rows = AllocatedDevice.objects.values_list("claim__uid", "driver", "pool")
    for uid, driver, pool in rows:
        found.setdefault(uid, set()).add(pool_topic(driver, pool))
    return {uid: frozenset(topics) for uid, topics in found.items()}
