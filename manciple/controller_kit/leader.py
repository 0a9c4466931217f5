"""One of several controllers of a driver works at a time: who holds the Lease. The rules are client-go's.

Whoever finds the Lease free, or not renewed for its whole duration by our own clock, takes it; the write's
resourceVersion lets one of several through. The holder renews it every `RETRY_SECONDS`, and stops to work when it could
not for `RENEW_SECONDS`, before anybody else may begin. A clean stop gives it back. Source: client-go
tools/leaderelection/leaderelection.go of Kubernetes 1.30.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from msgspec.structs import replace

from manciple.wire.base import ObjectMeta
from manciple.wire.machinery import Lease, LeaseSpec
from nodeagent.api.client import LEASES, Client
from nodeagent.failures import ApiFailure

log = logging.getLogger(__name__)

#: How long a Lease holds that is not renewed; for how long its holder may fail to renew it; between attempts.
LEASE_SECONDS: Final = 15
RENEW_SECONDS: Final = 10.0
RETRY_SECONDS: Final = 2.0
#: How long the last worker may take to end before somebody else may begin.
_GIVEN_BACK: Final = 1


@dataclass(slots=True)
class _Seen:
    """The Lease as last read, and when it became what it is, on our clock: those of other machines are not trusted."""

    lease: Lease
    since: float


class LeaderElector:
    """identity: of this process, unlike any other's. clock: monotonic seconds; now: POSIX seconds."""

    def __init__(
        self,
        client: Client,
        *,
        namespace: str,
        name: str,
        identity: str,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._clock = clock
        self._now = now
        self._retry_seconds = retry_seconds
        self._seen: _Seen | None = None

    def run(self, lead: Callable[[threading.Event], None], stop: threading.Event) -> None:
        """Call `lead` whenever this process is the one, with an event that is set when it is no longer."""
        while not stop.is_set():
            if self.try_to_hold():
                self._hold(lead, stop)
            else:
                stop.wait(self._retry_seconds)

    def try_to_hold(self) -> bool:
        """Take or renew the Lease; whether it is ours now."""
        try:
            return self._attempt()
        except ApiFailure as failure:
            level = logging.DEBUG if failure.conflict else logging.WARNING
            log.log(level, "lease %s/%s: %s", self._namespace, self._name, failure)
            return False

    def release(self) -> None:
        """Let somebody else begin at once."""
        if self._seen is None or self._seen.lease.spec.holder_identity != self._identity:
            return
        spec = replace(self._seen.lease.spec, holder_identity="", lease_duration_seconds=_GIVEN_BACK)
        try:
            self._client.update(LEASES, replace(self._seen.lease, spec=spec))
        except ApiFailure as failure:
            log.warning("lease %s/%s was not released: %s", self._namespace, self._name, failure)

    def _hold(self, lead: Callable[[threading.Event], None], stop: threading.Event) -> None:
        log.info("lease %s/%s: %s leads", self._namespace, self._name, self._identity)
        over = threading.Event()
        work = threading.Thread(target=_until_it_ends, args=(lead, over), name=f"leads {self._name}", daemon=True)
        work.start()
        renewed = self._clock()
        while work.is_alive() and not stop.wait(self._retry_seconds):
            if self.try_to_hold():
                renewed = self._clock()
            elif self._clock() - renewed >= RENEW_SECONDS:
                log.error("lease %s/%s: could not be renewed; stopping", self._namespace, self._name)
                break
        over.set()
        work.join()
        self.release()

    def _attempt(self) -> bool:
        """Raises: ApiFailure."""
        lease = self._read()
        if lease is None:
            self._note(self._client.create(LEASES, self._made()))
            return True
        if not self._may_take(lease):
            return False
        self._note(self._client.update(LEASES, replace(lease, spec=self._spec(lease.spec))))
        return True

    def _read(self) -> Lease | None:
        try:
            lease = self._client.get(LEASES, self._name, namespace=self._namespace)
        except ApiFailure as failure:
            if failure.not_found:
                return None
            raise
        if self._seen is None or lease.spec != self._seen.lease.spec:
            self._note(lease)
        return lease

    def _note(self, lease: Lease) -> None:
        self._seen = _Seen(lease, self._clock())

    def _may_take(self, lease: Lease) -> bool:
        holder, seconds = lease.spec.holder_identity, lease.spec.lease_duration_seconds or LEASE_SECONDS
        if not holder or holder == self._identity:
            return True
        return self._seen is not None and self._clock() - self._seen.since >= seconds

    def _made(self) -> Lease:
        return Lease(metadata=ObjectMeta(namespace=self._namespace, name=self._name), spec=self._spec(LeaseSpec()))

    def _spec(self, before: LeaseSpec) -> LeaseSpec:
        now = datetime.fromtimestamp(self._now(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        mine = before.holder_identity == self._identity
        return replace(
            before,
            holder_identity=self._identity,
            lease_duration_seconds=LEASE_SECONDS,
            acquire_time=before.acquire_time if mine else now,
            renew_time=now,
            lease_transitions=(before.lease_transitions or 0) + (0 if mine or before.holder_identity is None else 1),
        )


def _until_it_ends(lead: Callable[[threading.Event], None], over: threading.Event) -> None:
    try:
        lead(over)
    except Exception:  # it gives the lease back, and may get it again
        log.exception("the leader's work ended")
