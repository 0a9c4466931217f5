"""The worker's consumer: Celery's own, except for messages that only workers of another version understand.

During an upgrade, workers of two versions share the queues, and some messages are for controllers that one of them
lacks. Celery logs an error with a traceback for each; this consumer drops it with one line and removes the note of it
(`coordination.wakeups`), so that the next message, which a worker of the other version may take, can be sent at once.
"""

from __future__ import annotations

import logging
from typing import Any

from celery.worker.consumer import Consumer

from manciple.controllers import coordination
from manciple.controllers.declaration import controller_name

log = logging.getLogger(__name__)


class TaskConsumer(Consumer):  # type: ignore[misc]  # Celery is untyped
    """Named by the setting `CELERY_WORKER_CONSUMER`."""

    def on_unknown_task(self, body: Any, message: Any, exc: Exception) -> None:
        name = controller_name(str(message.headers.get("task", "")))
        if not name:
            super().on_unknown_task(body, message, exc)
            return
        log.info("a message for %s is dropped: this version has no such controller", name)
        message.reject_log_error(log, self.connection_errors)
        coordination.wakeups.value.leave(name, str(message.headers.get("id", "")))
