"""Fills what pages are drawn from when a web process starts, so that the first person does not wait for it.

In the background: the process serves meanwhile, and a page that is asked for before the shelf is full waits for the
same filling as it would have without. Where the database is away nothing is lost: the first page fills the shelf.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from django.db import Error, connections

from claims.devices.cache import read_devices
from scheduling.pages.classes.shelf import shelf

log = logging.getLogger(__name__)

#: What the pages of devices, nodes and classes ask first. The state that explanations are made from is not among it:
#: it is large, and only who asks why something waits needs it.
SHELVES: tuple[Callable[[], object], ...] = (read_devices, shelf)


def begin(shelves: Sequence[Callable[[], object]] = SHELVES) -> threading.Thread:
    """Fill them in a thread that keeps nobody from stopping."""
    thread = threading.Thread(target=_fill, args=(shelves,), name="warming", daemon=True)
    thread.start()
    return thread


def _fill(shelves: Sequence[Callable[[], object]]) -> None:
    try:
        for fill in shelves:
            fill()
    except Error as error:
        log.warning("The first page will be slow: what it is drawn from could not be read yet: %s", error)
    finally:
        connections.close_all()
