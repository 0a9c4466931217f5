"""The threads of a worker: some for each queue, so that sweeps never occupy those that schedule, nor the other way.

A worker fetches few messages that it cannot begin yet (Celery's prefetch), whatever their queue. Those of the sweeps
are acknowledged when they are handed over, not when they begin: they take up none of these places, and however long a
sweep runs, the messages that schedule go on coming in. At most one message a controller is on its way
(`scheduling.coordination`), so what waits here is short; losing it with the process costs one interval.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from celery.concurrency.base import apply_target
from celery.concurrency.thread import ApplyResult
from celery.concurrency.thread import TaskPool as ThreadTaskPool

from scheduling.controllers.declaration import Queue

#: Beside the worker's concurrency, which is the number of threads that schedule.
SWEEPING_THREADS = 2

Accept = Callable[[int, float], None]


class TaskPool(ThreadTaskPool):  # type: ignore[misc]  # Celery is untyped
    """Celery's threads, and a few of their own for the sweeps."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._sweeping = ThreadPoolExecutor(SWEEPING_THREADS, thread_name_prefix="sweeping")

    def on_stop(self) -> None:
        self._sweeping.shutdown(cancel_futures=True)
        super().on_stop()

    def on_apply(
        self,
        target: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Any = None,
        callback: Callable[..., Any] | None = None,
        accept_callback: Accept | None = None,
        **_: Any,
    ) -> ApplyResult:
        executor: ThreadPoolExecutor = self.executor
        if _queue_of(args) == Queue.SWEEPS:
            executor = self._sweeping
            if accept_callback is not None:
                accept_callback(os.getpid(), time.monotonic())
                accept_callback = None
        return ApplyResult(executor.submit(apply_target, target, args, kwargs, callback, accept_callback))


def _queue_of(args: Sequence[Any]) -> str | None:
    """args: (task, id, request, ...), as `celery.worker.request.Request.execute_using_pool` hands them over."""
    _task, _id, request, *_ = args
    queue: str | None = request["delivery_info"].get("routing_key")
    return queue
