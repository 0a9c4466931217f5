"""`manage.py token issue|list|revoke`: bearer tokens of people, nodes and drivers."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError

from manciple.access.authentication import tokens
from manciple.access.authentication.chain import AccountClosed
from manciple.access.authentication.tokens import LifetimeRefused, Purpose
from manciple.access.models import Token
from manciple.api import kubeconfig
from manciple.api.kubeconfig import Server
from manciple.audit.commands import OPERATOR, note_command
from manciple.audit.sign_ins import TOKENS
from manciple.processes.accounts import server_named
from manciple.processes.home import write_private
from manciple.wire.identity import node_of


class Command(BaseCommand):
    help = "Issue, list and revoke bearer tokens."

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        issue = actions.add_parser("issue", help="print a new token; it is shown only once")
        issue.add_argument("name", help="a person who signs in to the pages, or any other name")
        issue.add_argument(
            "--group",
            action="append",
            default=[],
            help="of a name that is no person's; repeatable",
        )
        issue.add_argument("--title", default="", help='what it is for, such as "laptop"')
        issue.add_argument("--description", default="")
        lifetime = issue.add_mutually_exclusive_group()
        lifetime.add_argument("--days", type=float, default=settings.TOKEN_DAYS, help="lifetime (default %(default)g)")
        lifetime.add_argument("--never-expires", action="store_true", help="valid until it is revoked")
        issue.add_argument("--kubeconfig", type=Path, metavar="FILE", help="write a kubeconfig with the token instead")
        issue.add_argument("--server", metavar="URL", help="the API's in it (default: that of HOME/kubeconfig)")
        listing = actions.add_parser("list", help="list the tokens: what for, last use and from where, end")
        listing.add_argument("name", nargs="?", default="", help="only those of this name")
        revoke = actions.add_parser("revoke", help="revoke a name's tokens, at once in every process")
        revoke.add_argument("name")
        revoke.add_argument("--token", default="", help="only the token whose listed beginning or digest is this")

    def handle(self, *_args: Any, **options: Any) -> None:
        {"issue": self._issue, "list": self._list, "revoke": self._revoke}[options["action"]](options)

    def _issue(self, options: dict[str, Any]) -> None:
        file: Path | None = options["kubeconfig"]
        server = server_named(options["server"]) if file else Server(url="")
        text = _issued(options)
        note_command("token issue", "create", TOKENS, options["name"])
        if file is None:
            self.stdout.write(text)
            return
        write_private(file, kubeconfig.render(server, user=options["name"], token=text))
        if file.is_file():
            self.stdout.write(f"wrote {file}")

    def _list(self, options: dict[str, Any]) -> None:
        found = Token.objects.order_by("name", "created")
        for token in found.filter(name=options["name"]) if options["name"] else found:
            groups = "of the account" if token.person_id else ",".join(token.groups) or "-"
            used = f"{_day(token.last_used, 'never')} {f'from {token.last_address}' if token.last_address else ''}"
            cells = (
                token.name,
                f"{token.hint}…" if token.hint else token.digest[:12],
                token.title or "-",
                f"groups {groups}",
                f"made {_day(token.created)} by {token.creator or '-'}",
                f"used {used}".rstrip(),
                f"expires {_day(token.expires, 'never')}",
            )
            self.stdout.write("\t".join(cells))

    def _revoke(self, options: dict[str, Any]) -> None:
        found = Token.objects.filter(name=options["name"])
        if wanted := options["token"].removesuffix("…"):
            found = found.filter(hint=wanted) | found.filter(digest__startswith=wanted)
        if not (ended := tokens.revoke_all(found)):
            raise CommandError(f"no such token of {options['name']}")
        note_command("token revoke", "delete", TOKENS, options["name"])
        self.stdout.write(f"{ended} revoked")


def _issued(options: dict[str, Any]) -> str:
    """The text of the new token. Raises: CommandError."""
    purpose = Purpose(title=options["title"], description=options["description"])
    name: str = options["name"]
    person = get_user_model().objects.filter(username=name).first()
    if person and options["group"]:
        raise CommandError(f"{name} signs in to the pages: their tokens have the groups of their account, no --group")
    try:
        node_of(name)
    except ValueError as error:
        raise CommandError(str(error)) from error
    lifetime = _lifetime(options)
    try:
        if person is None:
            return tokens.issue(name, options["group"], lifetime=lifetime, purpose=purpose, creator=OPERATOR)
        return tokens.issue_for_person(person, lifetime=lifetime, purpose=purpose, creator=OPERATOR)[0]
    except AccountClosed as error:
        raise CommandError(str(error)) from error


def _lifetime(options: dict[str, Any]) -> timedelta | None:
    try:
        return tokens.lifetime_of(None if options["never_expires"] else options["days"])
    except LifetimeRefused as error:
        raise CommandError(f"{error} MANCIPLE_TOKEN_MAX_DAYS sets this.") from error


def _day(moment: datetime | None, otherwise: str = "-") -> str:
    return f"{moment:%Y-%m-%d %H:%M}" if moment else otherwise
