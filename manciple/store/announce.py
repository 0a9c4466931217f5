"""Telling that a revision exists, after its commit: in this process at once, in the others through Redis
(`announce_redis`, where there is one).

A message carries a revision and never an object, and may be lost: whoever listens reads the log and polls it as well.
It names the resources that were written, so that who does not care for any of them need not look.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection

from django.conf import settings
from django.utils.module_loading import import_string

from manciple.per_process import PerProcess

log = logging.getLogger(__name__)

Callback = Callable[[int], None]


class Announcer:
    """The announcements within one process."""

    def __init__(self) -> None:
        #: token -> (callback, resources that it does not care for)
        self._callbacks: dict[object, tuple[Callback, frozenset[str]]] = {}
        self._guard = threading.Lock()
        #: resource -> the newest revision that was announced of it; of "", where the resources were not told
        self._newest: dict[str, int] = {}

    def subscribe(self, callback: Callback, *, ignoring: Collection[str] = ()) -> Callable[[], None]:
        """Call `callback(revision)` after each commit of any process. Returns the function that ends it."""
        token = object()
        with self._guard:
            self._callbacks[token] = (callback, frozenset(ignoring))

        def unsubscribe() -> None:
            with self._guard:
                self._callbacks.pop(token, None)

        return unsubscribe

    def announce(self, revision: int, resources: Collection[str] = ()) -> None:
        self._tell(revision, frozenset(resources))

    def newest(self, resources: Collection[str]) -> int:
        """The newest revision that was announced of any of `resources`; 0 for none."""
        told = self._newest
        newest = told.get("", 0)
        for resource in resources:  # asked at every decision: no list, no generator
            newest = max(newest, told.get(resource, 0))
        return newest

    def stop(self) -> None:
        """End the threads, if there are any."""

    def _tell(self, revision: int, resources: frozenset[str]) -> None:
        """resources: those that were written; none where that is not known."""
        with self._guard:
            callbacks = tuple(self._callbacks.values())
            for resource in resources or ("",):
                self._newest[resource] = max(self._newest.get(resource, 0), revision)
        for callback, ignoring in callbacks:
            if resources and resources <= ignoring:
                continue
            try:
                callback(revision)
            except Exception:
                log.exception("a listener failed on revision %d", revision)


def _of_settings() -> Announcer:
    """A process without Redis need not hold its library, which takes 6 MiB."""
    url: str = settings.REDIS_URL
    made: Announcer = import_string("manciple.store.announce_redis.RedisAnnouncer")(url) if url else Announcer()
    return made


_announcer = PerProcess(_of_settings, stop=lambda announcer: announcer.stop())


def subscribe(callback: Callback, *, ignoring: Collection[str] = ()) -> Callable[[], None]:
    """Call `callback(revision)` after each commit of any process, in a thread of the store's. Returns the end of it.

    ignoring: resources; a commit that wrote nothing else is not told.
    Callbacks must be quick. A call may be missing (Redis was away) and never is the only way to learn of a revision.
    """
    return _announcer.value.subscribe(callback, ignoring=ignoring)


def newest(resources: Collection[str]) -> int:
    """The newest revision that this process was told of any of `resources`; 0 for none. Costs no query.

    An announcement may be late or lost: who relies on them must look at the log now and then (`tail.POLL_INTERVAL`).
    """
    return _announcer.value.newest(resources)


def announce(revision: int, resources: Collection[str] = ()) -> None:
    """Tell everybody that `revision` is committed. Never fails and never waits for the network.

    resources: those that the commit wrote; none means any.
    """
    _announcer.value.announce(revision, resources)
