"""The guard with all that belongs to it, in this process: started and stopped in order."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from manciple.api.certificates import ServingCertificate
from manciple.mirror.client import Remote
from manciple.mirror.guard import keeping
from manciple.mirror.guard.judging import Guard, ask_cluster, knowledge
from manciple.mirror.guard.listener import GuardListener
from manciple.mirror.guard.options import ENFORCE


@contextmanager
def running(
    listener: socket.socket,
    certificate: ServingCertificate,
    remote: Remote,
    *,
    mode: str,
    token: str,
    after_look: Callable[[], None] = lambda: None,
) -> Iterator[None]:
    """remote: one that gives up soon. after_look: called every second, from a thread, once the copy was read."""
    guard, stopping = Guard(enforce=mode == ENFORCE, ask=ask_cluster(remote), know=knowledge), threading.Event()
    serving = GuardListener(listener, certificate, guard, token=token)

    def looked() -> None:
        after_look()
        serving.ready()

    keeper = threading.Thread(
        target=keeping.run, args=(guard, stopping), kwargs={"after_look": looked}, name="guard-keeper"
    )
    serving.start()
    keeper.start()
    try:
        yield
    finally:
        serving.stop()
        stopping.set()
        keeper.join()
        guard.close()
