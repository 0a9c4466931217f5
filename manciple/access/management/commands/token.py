"""`manage.py token issue|list|revoke`: bearer tokens for users, nodes and drivers."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from manciple.access.authentication import tokens
from manciple.access.models import Token


class Command(BaseCommand):
    help = "Issue, list and revoke bearer tokens."

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        issue = actions.add_parser("issue", help="print a new token; it is shown only once")
        issue.add_argument("name")
        issue.add_argument("--group", action="append", default=[], help="may be given several times")
        issue.add_argument("--hours", type=float, help="lifetime; without it, until revoked")
        actions.add_parser("list", help="list the tokens and when each was last used")
        revoke = actions.add_parser("revoke", help="revoke a name's tokens")
        revoke.add_argument("name")
        revoke.add_argument("--digest", default="", help="only the token whose listed digest starts with this")

    def handle(self, *_args: Any, **options: Any) -> None:
        {"issue": self._issue, "list": self._list, "revoke": self._revoke}[options["action"]](options)

    def _issue(self, options: dict[str, Any]) -> None:
        lifetime = timedelta(hours=options["hours"]) if options["hours"] else None
        self.stdout.write(tokens.issue(options["name"], options["group"], lifetime=lifetime))

    def _list(self, _options: dict[str, Any]) -> None:
        for token in Token.objects.order_by("name", "created"):
            used = f"{token.last_used:%Y-%m-%d %H:%M}" if token.last_used else "never"
            ends = f"{token.expires:%Y-%m-%d %H:%M}" if token.expires else "-"
            groups = ",".join(token.groups) or "-"
            self.stdout.write(f"{token.name}\t{token.digest[:12]}\tgroups {groups}\tused {used}\texpires {ends}")

    def _revoke(self, options: dict[str, Any]) -> None:
        ended = tokens.revoke(options["name"], digest_prefix=options["digest"])
        if not ended:
            raise CommandError(f"no such token of {options['name']}")
        self.stdout.write(f"{ended} revoked")
