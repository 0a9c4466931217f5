"""List, then watch, for as long as the agent runs.

The list gives a revision, the watch continues from it; when a connection breaks, the watch is opened again at the last
revision seen, and only when that has been pruned (410) is everything listed again. Failures wait, each time longer.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic

from nodeagent.client import Change, Client, Watch
from nodeagent.failures import ApiFailure
from nodeagent.resources import Object, Resource

log = logging.getLogger(__name__)

#: Seconds after which a watch is opened anew; spread, so that a fleet does not come back at once.
WATCH_SECONDS = (300, 600)
#: Short enough for an agent to be at work again half a minute after a server that was away.
LONGEST_DELAY = 10.0


class Follower(Generic[Object]):
    """Calls `replace` with every full list and `change` with every event in between, in one thread, in order.

    returned: called when the server answers again after it did not.
    """

    def __init__(
        self,
        client: Client,
        resource: Resource[Object],
        *,
        field_selector: str,
        replace: Callable[[Sequence[Object]], None],
        change: Callable[[Change[Object]], None],
        returned: Callable[[], None] = lambda: None,
    ) -> None:
        self._client = client
        self._resource = resource
        self._field_selector = field_selector
        self._replace = replace
        self._change = change
        self._returned = returned
        self._away = False
        self._version = ""
        self._watch: Watch[Object] | None = None
        self._stop = threading.Event()

    def run(self) -> None:
        """Follow until `stop`."""
        failures = 0
        while not self._stop.is_set():
            started = time.monotonic()
            try:
                self._round()
            except ApiFailure as failure:
                self._note(failure)
            # A round that ends at once did no good, whatever it says.
            failures = failures + 1 if time.monotonic() - started < 1.0 else 0
            delay = min(0.1 * 2.0 ** min(failures, 10), LONGEST_DELAY) if failures else 0.0
            self._stop.wait(delay * random.uniform(0.5, 1.0))  # noqa: S311 - spreads load, guards nothing

    def stop(self) -> None:
        """Make `run` return, also out of a watch on which nothing happens."""
        self._stop.set()
        if (watch := self._watch) is not None:
            watch.interrupt()

    def relist(self) -> None:
        """Take everything anew; the next watch continues from there. Raises: ApiFailure."""
        listing = self._client.list(self._resource, field_selector=self._field_selector)
        self._replace(listing.items)
        self._version = listing.resource_version

    def _round(self) -> None:
        """One watch, after a list where none continues."""
        if not self._version:
            self.relist()
        seconds = random.randint(*WATCH_SECONDS)  # noqa: S311 - spreads load, guards nothing
        with self._client.watch(
            self._resource, field_selector=self._field_selector, resource_version=self._version, seconds=seconds
        ) as watch:
            self._watch = watch
            try:
                self._note_answer()
                # `stop` may have come before it could see the watch.
                if not self._stop.is_set():
                    self._consume(watch)
            finally:
                self._watch = None

    def _consume(self, watch: Watch[Object]) -> None:
        for change in watch:
            if change.type != "BOOKMARK":
                self._change(change)
            self._version = change.object.metadata.resource_version
            if self._stop.is_set():
                return

    def _note_answer(self) -> None:
        if self._away:
            self._away = False
            self._returned()

    def _note(self, failure: ApiFailure) -> None:
        if failure.expired:
            self._version = ""
        elif not failure.code:
            self._away = True
        if not self._stop.is_set():
            level = logging.DEBUG if failure.expired else logging.WARNING
            log.log(level, "following %s: %s; trying again", self._resource.plural, failure)
