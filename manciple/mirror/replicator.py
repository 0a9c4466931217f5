"""Copies a cluster into the store and keeps the copy current, until it is told to stop.

replicator = Replicator(remote, sources=COPIED, context="prod", namespace="default")
threading.Thread(target=replicator.run, args=(stopping,)).start()
replicator.listed.wait()      # every kind that may be read was listed once
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from manciple.mirror.client import Remote
from manciple.mirror.sources import Source


class Replicator:
    """One cluster's copy; one of it writes to a store at a time.

    context: the cluster's name in the kubeconfig. namespace: where kinds are listed that may not be listed everywhere.
    """

    def __init__(self, remote: Remote, *, sources: Sequence[Source], context: str, namespace: str = "") -> None:
        self._remote = remote
        self._sources = tuple(sources)
        self._context, self._namespace = context, namespace
        #: every kind that may be read was listed once
        self.listed = threading.Event()

    def run(self, stopping: threading.Event) -> None:
        """List, then watch; returns once `stopping` is set. What fails is told by `standing`, and tried again."""
        raise NotImplementedError
