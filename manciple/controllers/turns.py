"""Controllers that look after one object after the other: a fault with one costs the others nothing."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TypeVar

from django.db import Error

from manciple.per_process import PerProcess
from manciple.store import event_log
from manciple.wire.errors import ApiError, Conflict, NotFound
from manciple.wire.resources import Key

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Seconds after which an object is looked at again that the API refused to write, or that a fault of ours kept us from
#: looking after.
RETRY_AFTER, REST_AFTER_FAULT = 5.0, 60.0


@dataclass(frozen=True, slots=True)
class Failed:
    """Nothing was done. seconds: after how many the object is looked at again. error: None where somebody else has
    written meanwhile, which the log tells.
    """

    seconds: float
    error: Exception | None = None


def attempt(resource: str, key: Key, step: Callable[[], T]) -> T | Failed:
    """Take a step for one object. Raises: django.db.Error, where the database is away, for all of them."""
    try:
        return step()
    except (Conflict, NotFound):
        return Failed(0.0)
    except Error:
        raise
    except Exception as error:
        log.warning("%s %s could not be looked after", resource, "/".join(filter(None, key)), exc_info=error)
        return Failed(RETRY_AFTER if isinstance(error, ApiError) else REST_AFTER_FAULT, error)


class Rest:
    """Until when nothing but a change of `resources` gives a controller work, as this process knows."""

    def __init__(self, resources: Collection[str]) -> None:
        self._resources = resources
        #: see `note`
        self._noted = PerProcess[tuple[float, int, float]](lambda: (-math.inf, 0, 0.0))

    def note(self, began: float, revision: int, until: float) -> None:
        """A run that began then, by the monotonic clock, left nothing of what there was up to that revision.

        until: when the next turn comes by itself, as POSIX seconds; 0.0 where something is left.
        """
        self._noted.value = began, revision, until

    def until(self, since: float) -> float:
        """`Controller.rests_until`."""
        began, revision, until = self._noted.value
        return until if began >= since and event_log.newest(self._resources) <= revision else 0.0
