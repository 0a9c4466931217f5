"""Steering beside a mirror (`manciple.mirror.steering`): what it is made of, started and stopped in order."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from manciple.durations import duration
from manciple.mirror import standing
from manciple.mirror.client import Remote
from manciple.mirror.leadership import Leadership
from manciple.mirror.steering import names, rights
from manciple.mirror.steering.choosing import Choosing
from manciple.mirror.steering.options import SteeringOptions
from manciple.mirror.steering.releasing import Releasing
from scheduling import steering


class MirrorSteering:
    """Every replica chooses nodes; the one that copies the cluster writes there."""

    def __init__(self, options: SteeringOptions, remote: Remote, leadership: Leadership, *, context: str) -> None:
        self._limit, self._remote, self._leadership, self._context = options.limit, remote, leadership, context

    def demand_rights(self) -> None:
        """Raises: StartRefused, RemoteFailure."""
        rights.demand(self._remote, self._context)

    @property
    def description(self) -> str:
        limit = duration(self._limit.total_seconds())
        return f"Nodes are chosen for pods with {names.LABEL}={names.LABEL_VALUE}, which wait for {limit} at most."

    @contextmanager
    def running(self) -> Iterator[None]:
        choosing, stopping = Choosing(limit=self._limit), threading.Event()
        releasing = Releasing(self._remote, keep=self._leadership.keep)
        work = partial(releasing.run, stopping, choosing.noted, may_act=self._may_act)
        thread = threading.Thread(target=work, name="steering", daemon=True)
        steering.chooser.value = choosing
        thread.start()
        try:
            yield
        finally:
            stopping.set()
            choosing.noted.set()
            thread.join()
            steering.chooser.reset()

    def _may_act(self) -> bool:
        remote = standing.remote()
        return self._leadership.is_current and remote is not None and remote.away_since is None
