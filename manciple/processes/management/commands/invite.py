"""`manage.py invite NAME`: a link by which somebody sets their password, at first or when it is forgotten."""

from __future__ import annotations

from argparse import ArgumentParser, BooleanOptionalAction
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from manciple.access.invitations import NameRefused, invite
from manciple.audit.commands import note_command
from manciple.audit.sign_ins import PEOPLE
from manciple.processes.accounts import link_hours
from manciple.wire.identity import NAMESPACE_GROUP, VIEWERS


class Command(BaseCommand):
    help = "Print a link with which a person sets their password. New people are created."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", help="the name for signing in")
        parser.add_argument(
            "--administrator", action=BooleanOptionalAction, help="make them an administrator (default: unchanged)"
        )
        parser.add_argument("--group", action="append", default=[], help="to add them to; repeatable")
        parser.add_argument("--url", default=settings.PAGES_URL, help="the dashboard's URL (default %(default)s)")

    def handle(self, *_args: Any, **options: Any) -> None:
        try:
            made = invite(options["name"], groups=options["group"], administers=options["administrator"])
        except NameRefused as error:
            raise CommandError(str(error)) from error
        note_command("invite", "create" if made.new else "update", PEOPLE, options["name"])
        self.stdout.write(f"{options['url'].rstrip('/')}{made.path}")
        who = f"{options['name']} is new" if made.new else f"For {options['name']}"
        self.stderr.write(f"{who}: the link works once, within {link_hours():g} hours.")
        if made.warning:
            self.stderr.write(made.warning)
        if not made.person.is_staff and not made.person.groups.exists():
            self.stderr.write(
                f"{options['name']} is in no group and sees no namespace. Add one (--group {VIEWERS} to see all, "
                f"--group {NAMESPACE_GROUP}NAME to work in one), or bind a role to them."
            )
