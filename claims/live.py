"""Which live topics the events of claims and pods touch: the pools that a claim holds or held devices of; the pod."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from claims.models import AllocatedDevice, Reservation
from inventory.live import pool_topic
from manciple.store.records import EventRecord


@dataclass(frozen=True, slots=True)
class _Held:
    """What a claim holds: topics of pools, and the uids of the pods that may use it."""

    pools: frozenset[str]
    pods: frozenset[str]


_NOTHING = _Held(frozenset(), frozenset())


class ClaimTopics:
    """Remembers the pools of each allocated claim, because the event that frees a device no longer names it."""

    def __init__(self) -> None:
        self._claims: dict[str, _Held] | None = None
        self._claims_of_pod: dict[str, set[str]] = defaultdict(set)
        #: uids of the pods that were on their node and did not run, when last heard of
        self._preparing: dict[str, bool] = {}

    def __call__(self, record: EventRecord) -> Iterable[str]:
        """An event of a claim."""
        claims = self._known()
        before = claims.pop(record.uid, _NOTHING)
        now = _NOTHING if record.type == "DELETED" else _held(json.loads(record.text).get("status", {}))
        for pod in before.pods - now.pods:
            self._claims_of_pod[pod].discard(record.uid)
            if not self._claims_of_pod[pod]:
                del self._claims_of_pod[pod]
        for pod in now.pods:
            self._claims_of_pod[pod].add(record.uid)
        if now.pools:
            claims[record.uid] = now
        return before.pools | now.pools

    def of_pod(self, record: EventRecord) -> Iterable[str]:
        """An event of a pod: the pools of its claims, when it begins to prepare or has done so."""
        claims = self._known()
        held = [claims[claim] for claim in self._claims_of_pod.get(record.uid, ()) if claim in claims]
        if record.type == "DELETED":
            self._preparing.pop(record.uid, None)
        elif not self._turns(record):
            return frozenset()
        return frozenset().union(*(one.pools for one in held))

    def _turns(self, record: EventRecord) -> bool:
        """Whether it prepares now and did not before, or the other way round."""
        pod = json.loads(record.text)
        on_node = bool(pod.get("spec", {}).get("nodeName"))
        preparing = on_node and pod.get("status", {}).get("phase", "Pending") == "Pending"
        before = self._preparing.get(record.uid)
        self._preparing[record.uid] = preparing
        return before is not preparing

    def _known(self) -> dict[str, _Held]:
        if self._claims is None:
            self._claims = _in_use()
            for uid, held in self._claims.items():
                for pod in held.pods:
                    self._claims_of_pod[pod].add(uid)
        return self._claims


def claim_topics(record: EventRecord) -> Iterable[str]:
    """The claims of a namespace."""
    return (f"claims:{record.namespace}",)


def pod_topics(record: EventRecord) -> Iterable[str]:
    """The pods of a namespace, and this one."""
    return (f"pods:{record.namespace}", f"pod:{record.namespace}/{record.name}")


def _held(status: dict[str, Any]) -> _Held:
    allocation = status.get("allocation") or {}
    results = allocation.get("devices", {}).get("results", ())
    return _Held(
        frozenset(pool_topic(result["driver"], result["pool"]) for result in results),
        frozenset(user["uid"] for user in status.get("reservedFor", ())),
    )


def _in_use() -> dict[str, _Held]:
    pools: dict[str, set[str]] = defaultdict(set)
    pods: dict[str, set[str]] = defaultdict(set)
    for uid, driver, pool in AllocatedDevice.objects.values_list("claim__uid", "driver", "pool"):
        pools[uid].add(pool_topic(driver, pool))
    for uid, pod in Reservation.objects.values_list("claim_id", "uid"):
        pods[uid].add(pod)
    return {uid: _Held(frozenset(found), frozenset(pods[uid])) for uid, found in pools.items()}
