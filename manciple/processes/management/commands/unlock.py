"""`manage.py unlock NAME|ADDRESS`: ends a lockout after too many failed attempts to sign in."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from manciple.access import people
from manciple.audit.commands import LOCKOUTS, note_command


class Command(BaseCommand):
    help = "End the lockout of a name or an address after too many failed attempts to sign in."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("subject", metavar="NAME|ADDRESS")

    def handle(self, *_args: Any, **options: Any) -> None:
        subject: str = options["subject"]
        found = people.lift_lockout(subject)
        if found:
            note_command("unlock", "delete", LOCKOUTS, subject)
        self.stdout.write(f"{subject} may try again" if found else f"no failed attempts were counted for {subject}")
