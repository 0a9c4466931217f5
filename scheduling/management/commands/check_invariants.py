"""`manage.py check_invariants`: prints each promise with "ok" or what violates it; exits with 1 when any is violated.

A system at work is between two states now and then (a pod just ended, its claim not yet released), so a violation
counts when it is still there after `--patience` seconds. Where nodes keep their files under the home folder (`--home
DIR`), their disks are checked too.
"""

from __future__ import annotations

import time
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from manciple.controllers.coordination import utc_now
from scheduling.cluster_facts import gather
from scheduling.invariants import violations

#: Seconds between two looks.
LOOK_AGAIN = 0.5


class Command(BaseCommand):
    """See the module's docstring."""

    help = "Check the invariants against the database: no device is allocated twice, and the others."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--patience", type=float, default=10.0, help="seconds that a violation may take to heal")

    def handle(self, *_args: Any, **options: Any) -> None:
        home = Path(settings.HOME)
        nodes_here = (home / "cdi").is_dir()
        found = persisting(home if nodes_here else None, patience=options["patience"])
        for name, sentences in found.items():
            for line in [f"VIOLATED {name}: {sentence}" for sentence in sentences] or [f"ok       {name}"]:
                self.stdout.write(line)
        if any(found.values()):
            raise CommandError("an invariant is violated", returncode=1)


def persisting(home: Path | None, *, patience: float) -> dict[str, tuple[str, ...]]:
    """The violations that were there at every look for `patience` seconds."""
    end = time.monotonic() + patience
    found = violations(gather(utc_now(), home))
    while any(found.values()) and time.monotonic() < end:
        time.sleep(LOOK_AGAIN)
        again = violations(gather(utc_now(), home))
        found = {name: tuple(s for s in again[name] if s in sentences) for name, sentences in found.items()}
    return found
