"""`manage.py controllers`: what runs in the workers, as it is declared."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.core.management.base import BaseCommand

from manciple.controllers.declaration import ANY, Controller, controllers

_HEAD = ("CONTROLLER", "QUEUE", "EVERY", "AT ONCE", "DOES", "WOKEN BY")


class Command(BaseCommand):
    """Reads no database."""

    help = "List the controllers: queue, interval, whether one runs at a time, what each does and what wakes it."
    requires_system_checks: list[str] = []

    def handle(self, *_args: Any, **_options: Any) -> None:
        self.stdout.write(told(controllers.value))


def told(declared: Iterable[Controller]) -> str:
    """A line for each, in columns."""
    rows = [_HEAD, *(_row(one) for one in declared)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _row(one: Controller) -> tuple[str, ...]:
    changes: dict[str, list[str]] = {}
    for resource, change in sorted(one.wakes_on):
        changes.setdefault("anything" if resource == ANY else resource, []).append(change.lower())
    woken = "; ".join(f"{resource} {'/'.join(found)}" for resource, found in changes.items())
    return one.name, one.queue.value, f"{one.every:g} s", "one" if one.singleton else "any", one.does, woken or "-"
