"""`manage.py doctor`: what is wrong with this installation, with which object, and what to do. Changes nothing.

Exits with 1 where there is a problem; warnings alone do not count.
"""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from manciple.processes.doctor import diagnoses
from manciple.processes.doctor.checkups import CHECKUPS


class Command(BaseCommand):
    help = "Look for common mistakes of operators, and say what to do."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="as JSON")
        only = "this check; an unknown name lists them; repeatable"
        parser.add_argument("--only", action="append", default=[], metavar="NAME", help=only)

    def handle(self, *_args: Any, **options: Any) -> None:
        only = options["only"]
        names = [one.name for one in CHECKUPS]
        if unknown := set(only) - set(names):
            raise CommandError(f"--only: there is no checkup {', '.join(sorted(unknown))}, but {', '.join(names)}")
        wanted = [one for one in CHECKUPS if not only or one.name in only]
        found = tuple(diagnoses.examined(wanted, datetime.now(UTC)))
        self.stdout.write(diagnoses.as_json(found) if options["json"] else diagnoses.as_text(found))
        if number := diagnoses.count(found, "problem"):
            raise CommandError(diagnoses.number_of(number, "problem"), returncode=1)
