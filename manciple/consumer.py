"""What takes a worker's messages from the broker: Celery's own, but for those that only another version understands.

While an installation is upgraded, workers of two versions take messages from the same lists, and some are for
controllers that only one of them has. To Celery that is an error, told with a traceback for each. Here it is what
happens in an upgrade: a message carries nothing, so losing one loses nothing, and the note that it was on its way is
crossed out, so that the next may be sent at once, which a worker of the other version may get.
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
        coordination.wakeups().leave(name, str(message.headers.get("id", "")))
