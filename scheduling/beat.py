"""What Celery is told of the controllers: which task each is, when beat asks for it, and on which queue it waits."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from scheduling.controllers.declaration import Controller


def task_name(controller: str) -> str:
    """The name under which Celery knows a controller."""
    return f"scheduling.tasks.{controller}"


def beat_schedule(controllers: Iterable[Controller]) -> dict[str, dict[str, Any]]:
    """Celery's beat_schedule: the periodic runs, so that a lost message costs at most one interval."""
    return {one.name: {"task": task_name(one.name), "schedule": timedelta(seconds=one.every)} for one in controllers}


def task_routes(controllers: Iterable[Controller]) -> dict[str, dict[str, str]]:
    """Celery's task_routes."""
    return {task_name(one.name): {"queue": one.queue.value} for one in controllers}
