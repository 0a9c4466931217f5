"""The controllers as Celery tasks. A message only says "reconcile": it carries nothing, and losing one loses nothing.

Every controller that is declared (`scheduling.controllers`) gets a task, which may run in any number of workers at
once; of a singleton's, all but one return at once. What they came for is not lost: they leave word, and the one at work
asks for itself again when it is done.
"""

from __future__ import annotations

from typing import Any

from celery import Celery, Task
from celery.signals import worker_process_shutdown
from celery.utils import uuid

from scheduling import heartbeats, turns, wakeups
from scheduling.controllers import node_lifecycle, scheduler
from scheduling.controllers.declaration import Controller, Queue, controllers, task_name
from scheduling.controllers.followers import utc_now
from scheduling.looked_after import looked_after

#: How often a controller that was asked again runs on one message.
MOST_IN_A_ROW = 20


def work(controller: Controller) -> bool:
    """Let it reconcile once, which is a sign of life. Returns whether it should be asked again soon."""
    with heartbeats.heart().look():
        if not controller.singleton:
            return _reconcile(controller)
        for _attempt in range(2):
            with turns.alone(controller.name) as ours:
                unfinished = ours and _reconcile(controller)
            if ours:
                return unfinished or wakeups.pending().asked_again(controller.name)
            # Whoever is at work asks after us when it has let go; if it just did both, the second attempt succeeds.
            wakeups.pending().ask_again(controller.name)
        return False


def _reconcile(controller: Controller) -> bool:
    """Returns whether there may be more to do than one run does."""
    changed = controller.reconcile(utc_now())
    return 0 < controller.most_per_turn <= changed


class ControllerTask(Task):  # type: ignore[misc]  # Celery is untyped
    """Sends at most one message at a time, whoever asks (see `scheduling.wakeups`)."""

    abstract = True
    controller: Controller

    def run(self) -> None:
        message = self.request.id or ""
        if message and not wakeups.pending().leave(self.controller.name, message):
            return
        # Whoever waits for scheduling need not wait for another message; a sweep lets the others have its thread.
        turns_in_a_row = MOST_IN_A_ROW if self.controller.queue is Queue.SCHEDULING else 1
        if all(work(self.controller) for _ in range(turns_in_a_row)):
            self.apply_async()

    def apply_async(self, args: Any = None, kwargs: Any = None, task_id: str | None = None, **options: Any) -> Any:
        message, controller = task_id or uuid(), self.controller
        if not wakeups.pending().enter(controller.name, message, controller.pending_for):
            return None
        options.setdefault("expires", controller.pending_for)
        try:
            return super().apply_async(args, kwargs, task_id=message, **options)
        except BaseException:
            wakeups.pending().leave(controller.name, message)
            raise


def register(app: Celery, controller: Controller) -> ControllerTask:
    """Make it a task of `app`."""
    members = {"name": task_name(controller.name), "controller": controller, "ignore_result": True}
    made: ControllerTask = app.register_task(type(controller.name, (ControllerTask,), members)())
    return made


def run(name: str) -> None:
    """What a worker does when it takes up a message for the controller of that name."""
    (controller,) = (one for one in controllers() if one.name == name)
    while work(controller):
        pass


def _process_ends(**_signal: object) -> None:
    """A forked worker process that ends on purpose is not missed."""
    heartbeats.stop()


worker_process_shutdown.connect(_process_ends)


def forget_process() -> None:
    """Give up what this process knows of the cluster; used where its database is another one from now on."""
    scheduler.worker.forget()
    node_lifecycle.known.forget()
    looked_after.forget()
    wakeups.pending.forget()
