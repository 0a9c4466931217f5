"""`manage.py signing_keys`: the keys that sign tokens of service accounts."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from manciple.access.authentication import signing_keys
from manciple.audit.commands import SIGNING_KEYS, note_command


class Command(BaseCommand):
    """Lists them; with an option, changes them first."""

    help = "List the keys that sign tokens of service accounts; add a new one, remove an old one."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--add", action="store_true", help="create a key that signs from now on")
        parser.add_argument(
            "--remove", metavar="NAME", help="remove a key and invalidate the tokens that it has signed"
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        if options["add"]:
            note_command("signing_keys --add", "create", SIGNING_KEYS, signing_keys.add())
        if name := options["remove"]:
            if not signing_keys.remove(name):
                raise CommandError(f"there is no signing key {name}")
            note_command("signing_keys --remove", "delete", SIGNING_KEYS, name)
        keys = signing_keys.listed()
        for name, created in keys:
            signs = "  signs" if name == keys[-1][0] else ""
            self.stdout.write(f"{name}  made {created:%Y-%m-%d %H:%M}{signs}")
