"""The drivers of one node by name, in this process and behind sockets; and how they are asked about claims."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from claims.kinds.resource_claims import ResourceClaim
from nodeagent.checkpoint import ClaimRecord
from nodeagent.drivers.protocol import ClaimDriver, ClaimIdentity, Failed, Prepared
from nodeagent.metrics import AgentMetrics, Operation


class DriverRegistry:
    """Thread-safe. A name has at most one driver at a time; putting another replaces it."""

    def __init__(self, drivers: Iterable[ClaimDriver] = ()) -> None:
        self._drivers = {driver.name: driver for driver in drivers}
        self._departed: dict[str, ClaimDriver] = {}
        self._expected: frozenset[str] = frozenset()
        self._lock = threading.Lock()
        self._subscribers: list[Callable[[], None]] = []

    def get(self, name: str) -> ClaimDriver | None:
        with self._lock:
            return self._drivers.get(name)

    def names(self) -> frozenset[str]:
        """Of all that are here, were here, or are expected: each may have prepared claims."""
        with self._lock:
            return self._expected | self._drivers.keys() | self._departed.keys()

    def all(self) -> tuple[ClaimDriver, ...]:
        with self._lock:
            return tuple(self._drivers.values())

    def expect(self, names: Iterable[str]) -> None:
        """Drivers that were here before the agent's last start, and may have prepared claims."""
        self._expected = frozenset(names)

    def health_sources(self) -> tuple[ClaimDriver, ...]:
        """Also those that have left: what they said of their devices holds for a while."""
        with self._lock:
            return (*self._drivers.values(), *self._departed.values())

    def put(self, driver: ClaimDriver) -> None:
        with self._lock:
            self._departed.pop(driver.name, None)
            self._drivers[driver.name] = driver
        self.announce()

    def remove(self, name: str) -> None:
        with self._lock:
            if (driver := self._drivers.pop(name, None)) is not None:
                self._departed[name] = driver
        self.announce()

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call `changed`, from any thread, whenever a driver has come or gone, or its health is different."""
        self._subscribers.append(changed)

    def announce(self) -> None:
        """Something about a driver has changed."""
        for changed in self._subscribers:
            changed()


# Asks drivers about many claims at once, and makes every way of failing the same value. A driver may be missing, raise,
# answer with a failure, or not answer for a claim: all of it becomes `Failed` for the claims concerned, and the claims
# of other drivers go on.

Answer = TypeVar("Answer")
Claim = TypeVar("Claim")

log = logging.getLogger(__name__)

_UNANSWERED = Failed("it did not answer for this claim")


class DriverCalls:
    """The drivers of one node, by name."""

    def __init__(self, drivers: DriverRegistry, *, node: str, metrics: AgentMetrics) -> None:
        self._drivers = drivers
        self._node = node
        self._metrics = metrics

    def missing(self, name: str) -> str:
        """Why `name` cannot be asked; empty when it can."""
        return "" if self._drivers.get(name) else f"DRA driver {name} is not registered on node {self._node}"

    def prepare(self, claims: Sequence[tuple[ResourceClaim, ClaimRecord]]) -> dict[str, dict[str, Prepared | Failed]]:
        """Ask each driver once for all its claims. Returns claim uid -> driver -> answer."""
        answers: dict[str, dict[str, Prepared | Failed]] = {record.uid: {} for _, record in claims}
        for name in _driver_names(record for _, record in claims):
            its = {record.uid: claim for claim, record in claims if _uses(record, name)}
            for uid, answer in self._ask(name, "PrepareResources", its, lambda driver: driver.prepare).items():
                answers[uid][name] = answer
        return answers

    def unprepare(self, records: Sequence[ClaimRecord]) -> dict[str, str]:
        """Ask each driver once to undo all its claims. Returns claim uid -> why it failed; empty when all went well."""
        failed: dict[str, str] = {}
        for name in _driver_names(records):
            its = {record.uid: record for record in records if _uses(record, name)}
            asked = {uid: ClaimIdentity(uid, record.namespace, record.name) for uid, record in its.items()}
            answers = self._ask(name, "UnprepareResources", asked, lambda driver: driver.unprepare)
            failed |= {u: f"{its[u].label}: driver {name}: {answer.reason}" for u, answer in answers.items() if answer}
        return failed

    def _ask(
        self,
        name: str,
        operation: Operation,
        claims: Mapping[str, Claim],
        call_of: Callable[[ClaimDriver], Callable[[Sequence[Claim]], Mapping[str, Answer | Failed]]],
    ) -> Mapping[str, Answer | Failed]:
        """One call about `claims`, by uid, timed. Every one of them has an answer, whatever the driver does."""
        started, driver = time.perf_counter(), self._drivers.get(name)
        given: Mapping[str, Answer | Failed]
        if driver is None:
            given = dict.fromkeys(claims, Failed(self.missing(name)))
        else:
            try:
                given = call_of(driver)(list(claims.values()))
            except Exception as error:  # whatever a driver raises, it must not take the agent with it
                what = operation.removesuffix("Resources").lower()
                log.exception("driver %s failed to %s %d claims; they are tried again", name, what, len(claims))
                given = dict.fromkeys(claims, Failed(str(error)))
        failed = any(isinstance(answer, Failed) for answer in given.values())
        self._metrics.driver_called(name, operation, time.perf_counter() - started, failed=failed)
        return {uid: given.get(uid, _UNANSWERED) for uid in claims}


def _driver_names(records: Iterable[ClaimRecord]) -> list[str]:
    return sorted({driver.driver for record in records for driver in record.drivers})


def _uses(record: ClaimRecord, name: str) -> bool:
    return any(driver.driver == name for driver in record.drivers)
