"""Leases of the cluster that a mirror copies, as this process saw them renewed; none in an installation of its own.

    heard = renewals.value
    heard.of_nodes(now)                 # name -> when its kubelet last renewed its Lease
    heard.silent_nodes()                # those whose Lease is overdue
    heard.silent_since("volcano")       # when that scheduler last renewed its Lease, if that is overdue

Leases are renewed every few seconds, so they are never stored. When one was renewed is said by our own clock, since
that of its holder may be minutes off: it came in another version. It is overdue only by what was heard after it: while
the server says nothing, or we slept, everything is as it was.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from manciple.per_process import PerProcess

#: Where kubelets and schedulers keep their Leases.
OF_NODES, OF_SCHEDULERS = "kube-node-lease", "kube-system"
#: --node-monitor-grace-period, and how long a scheduler may take to be replaced by another of its replicas.
_GRACE: Final = {OF_NODES: timedelta(seconds=50), OF_SCHEDULERS: timedelta(seconds=30)}
#: Servers say something at least every minute: after a longer silence, the connection was broken, or we slept.
_UNBROKEN: Final = timedelta(seconds=90)
#: schedulerName -> its Lease; others are called the same.
_LEASE_OF: Final = {"default-scheduler": "kube-scheduler"}


@dataclass(slots=True)
class _Lease:
    """holds: its leaseDurationSeconds."""

    renewed_at: datetime
    holds: timedelta


@dataclass(slots=True)
class _Heard:
    """Of one namespace. since: without a break; at: last."""

    since: datetime
    at: datetime


class Renewals:
    """One thread for each namespace writes; any thread reads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._leases: dict[str, dict[str, _Lease]] = {OF_NODES: {}, OF_SCHEDULERS: {}}
        self._heard: dict[str, _Heard] = {}

    # What is heard ---------------------------------------------------------------------------------------------------

    def hear(self, namespace: str, at: datetime) -> None:
        """The server said something of the Leases there."""
        with self._lock:
            before = self._heard.get(namespace)
            unbroken = before is not None and timedelta(0) <= at - before.at <= _UNBROKEN
            self._heard[namespace] = _Heard(since=before.since if before and unbroken else at, at=at)

    def renew(self, namespace: str, name: str, at: datetime, *, seconds: int) -> None:
        with self._lock:
            self._leases[namespace][name] = _Lease(at, timedelta(seconds=seconds))

    def forget(self, namespace: str, name: str) -> None:
        with self._lock:
            self._leases[namespace].pop(name, None)

    # What follows ----------------------------------------------------------------------------------------------------

    def of_nodes(self, now: datetime) -> Mapping[str, datetime]:
        """Without those of which it is not known whether they are overdue."""
        grace = _GRACE[OF_NODES]
        with self._lock:
            leases = self._leases[OF_NODES]
            return {
                name: lease.renewed_at
                for name, lease in leases.items()
                if now - lease.renewed_at <= grace or self._is_overdue(OF_NODES, lease)
            }

    def silent_nodes(self) -> Mapping[str, datetime]:
        """name -> when its Lease was last renewed."""
        with self._lock:
            leases = self._leases[OF_NODES]
            return {name: one.renewed_at for name, one in leases.items() if self._is_overdue(OF_NODES, one)}

    def silent_since(self, scheduler: str) -> datetime | None:
        """None where it has no Lease, which proves nothing, or renews it."""
        with self._lock:
            lease = self._leases[OF_SCHEDULERS].get(_LEASE_OF.get(scheduler, scheduler))
            return lease.renewed_at if lease is not None and self._is_overdue(OF_SCHEDULERS, lease) else None

    def _is_overdue(self, namespace: str, lease: _Lease) -> bool:
        heard = self._heard.get(namespace)
        if heard is None:
            return False
        return heard.at - max(lease.renewed_at, heard.since) > max(_GRACE[namespace], 2 * lease.holds)


renewals = PerProcess(Renewals)
