"""`manage.py node_token issue|list|revoke`: tokens with which machines become nodes."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from manciple import layout
from manciple.access.authentication import tokens
from manciple.api.certificates import fingerprint
from manciple.audit.commands import NODE_TOKENS, OPERATOR, note_command
from manciple.processes.accounts import server_named


class Command(BaseCommand):
    help = "Issue, list and revoke bootstrap tokens, with which machines become nodes."

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        issue = actions.add_parser(
            "issue", help="print the command to run on the machine; the token is shown only once"
        )
        issue.add_argument("--node", default="", metavar="NAME", help="the only node that may join with it")
        issue.add_argument("--hours", type=float, default=24.0, help="lifetime (default %(default)g)")
        issue.add_argument("--description", default="")
        issue.add_argument("--server", metavar="URL", help="the API's (default: that of HOME/kubeconfig)")
        actions.add_parser("list", help="list the tokens by their ids")
        revoke = actions.add_parser("revoke", help="revoke a token; nodes that joined with it stay")
        revoke.add_argument("id", help="the part before the dot")

    def handle(self, *_args: Any, **options: Any) -> None:
        {"issue": self._issue, "list": self._list, "revoke": self._revoke}[options["action"]](options)

    def _issue(self, options: dict[str, Any]) -> None:
        if options["hours"] <= 0:
            raise CommandError("--hours must be more than 0")
        server, node = server_named(options["server"]), options["node"]
        try:
            token = tokens.issue_bootstrap(
                lifetime=timedelta(hours=options["hours"]),
                node=node,
                description=options["description"],
                creator=OPERATOR,
            )
        except ValueError as error:
            raise CommandError(str(error)) from error
        note_command("node_token issue", "create", NODE_TOKENS, token.partition(".")[0])
        known = f" --ca-hash {fingerprint(settings.CA_FILE)}" if settings.CA_FILE.is_file() else ""
        named = f" --node-name {node}" if node else ""
        self.stdout.write(f"{layout.NODE_COMMAND} join {server.url} --token {token}{known}{named}")

    def _list(self, _options: dict[str, Any]) -> None:
        for one in tokens.live_bootstrap().order_by("expires"):
            of = f"for node {one.node}" if one.node else "for any node"
            self.stdout.write(f"{one.key}\t{of}\texpires {one.expires:%Y-%m-%d %H:%M}\t{one.description or '-'}")

    def _revoke(self, options: dict[str, Any]) -> None:
        if not tokens.revoke_bootstrap(options["id"]):
            raise CommandError(f"no such token: {options['id']}")
        note_command("node_token revoke", "delete", NODE_TOKENS, options["id"])
        self.stdout.write("revoked")
