"""The periodic looks, so that a lost message costs at most one interval (seconds). Read by `manciple.celery`."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

#: task -> seconds between two looks
INTERVALS = {
    "schedule": 1.0,
    "sync_claims": 2.0,
    "release_claims": 2.0,
    "collect_garbage": 5.0,
    "sweep_namespaces": 2.0,
    "sweep_nodes": 5.0,
    "sweep_queue": 5.0,
    "sweep_pods": 20.0,
    "sweep_claims": 60.0,
    # Once a minute is enough; oftener, so that no minute is missed.
    "sample_usage": 20.0,
    "prune": 300.0,
}


def task_name(short: str) -> str:
    """The name under which Celery knows a task of `scheduling.tasks`."""
    return f"scheduling.tasks.{short}"


def beat_schedule() -> dict[str, dict[str, Any]]:
    """Celery's beat_schedule. A look that could not start within two intervals is dropped: the next one makes up."""
    return {
        short: {
            "task": task_name(short),
            "schedule": timedelta(seconds=seconds),
            "options": {"expires": 2 * seconds},
        }
        for short, seconds in INTERVALS.items()
    }
