"""`manage.py restored`: to be run once after the database was set back, before anything is started on it.

Everybody who remembers a later state lists anew then; agents stop what the database does not know and say so.
"""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from manciple.access import invitations, sign_ins
from manciple.access.authentication import tokens
from manciple.audit import recording
from manciple.controllers.coordination import SILENT_AFTER
from manciple.controllers.models import Heartbeat
from manciple.store import restoring

_NEXT = """\
Revisions go on from {revision}. {sessions} sessions of the dashboard ended: everybody signs in again. All links for
setting a password ended, used or not: make new ones with `manage.py invite NAME`. Next:

  1. start the API processes and the workers
  2. every agent compares its node with the API: pods that were bound in the lost time are stopped, and their devices
     given back before others get them. What was stopped is told by events of the nodes:
         kubectl get events -A --field-selector reason=PodUnknown
  3. `manage.py check_invariants`, `manage.py doctor`
  4. tokens and certificates that were issued in the lost time are not known: issue them again
  5. what was taken away in the lost time is there again: tokens and certificates that were revoked, accounts that were
     closed, groups, roles, passwords that were changed. Take it away again:
         manage.py token list        manage.py token revoke NAME        manage.py certificate revoke NAME
     Bootstrap tokens of nodes that work again now: {joining}
"""


class Command(BaseCommand):
    help = "After the database was set back: let nobody go on from what is lost. Before anything is started."

    def add_arguments(self, parser: ArgumentParser) -> None:
        force = "although a process gave a sign of life a moment before the time that was restored"
        parser.add_argument("--force", action="store_true", help=force)

    def handle(self, *_args: Any, **options: Any) -> None:
        living = Heartbeat.objects.filter(seen_at__gt=datetime.now(UTC) - SILENT_AFTER)
        if living.exists() and not options["force"]:
            raise CommandError(
                f"{living[0].name} works on this database: stop every API process and worker first, or say "
                "--force where none runs"
            )
        recording.catch_up()
        Heartbeat.objects.all().delete()
        ended = sign_ins.end_all()  # some may have been ended in the lost time, or be in the hands of a thief
        invitations.end_all()  # a backup knows nothing of the links that were used since
        joining = [
            f"\n         {one.key}, for {one.node or 'any node'}, until {one.expires:%Y-%m-%d %H:%M}: "
            f"manage.py node_token revoke {one.key}"
            for one in tokens.live_bootstrap().order_by("key")
        ]
        self.stdout.write(
            _NEXT.format(revision=restoring.skip_lost_revisions(), sessions=ended, joining="".join(joining) or "none")
        )
