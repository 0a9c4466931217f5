"""`manage.py demo`: fills an empty home with a realistic laboratory, to try the pages and take screenshots."""

from __future__ import annotations

import secrets
from argparse import ArgumentParser
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError

from inventory.kinds import gates
from manciple.processes.accounts import ADMIN
from manciple.processes.demolab import filling
from manciple.processes.demolab.hardware import LeaseRenewal
from manciple.processes.demolab.views import save_views
from manciple.processes.home import write_private
from manciple.processes.listeners import Address, AddressInUse
from manciple.processes.system import Options, StartedSystem, System
from manciple.wire.identity import NAMESPACE_GROUP, VIEWERS

#: Who may sign in beside the administrator: name -> their group.
PEOPLE = {"visitor": VIEWERS, "nora": f"{NAMESPACE_GROUP}nlp-lab"}


class Command(BaseCommand):
    """Fills, and with --serve runs the system on what was filled in, without nodes of its own."""

    help = "Fill an empty home with a realistic laboratory: nodes, devices, jobs, and pods that wait for real reasons."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--size", choices=filling.SIZES, default="lab", help="40 nodes, or 625 with 5,000 devices")
        parser.add_argument(
            "--seed", type=int, default=1, help="seed of the demo: another number gives another cluster (default 1)"
        )
        parser.add_argument(
            "--serve", action="store_true", help="then run the API, the dashboard and the workers on it"
        )
        parser.add_argument("--api", default="127.0.0.1:6443", metavar="HOST:PORT", help="where the API listens (TLS)")
        parser.add_argument("--web", default="127.0.0.1:8000", metavar="HOST:PORT", help="where the dashboard listens")
        # --home DIR is taken by manage.py before the settings are read; it stands here for --help.
        parser.add_argument("--home", metavar="DIR", help="where everything is kept (default ./var)")

    def handle(self, *_args: Any, **options: Any) -> None:
        if not gates.enabled(gates.DYNAMIC_RESOURCE_ALLOCATION):
            raise CommandError(f"the laboratory needs the feature gate {gates.DYNAMIC_RESOURCE_ALLOCATION}")
        call_command("migrate", verbosity=0, interactive=False)
        try:
            filling.fill(filling.plan(size=options["size"], seed=options["seed"], now=datetime.now(UTC)))
            self._say(f"Filled {settings.HOME} with the demo's laboratory.")
        except filling.NotEmpty as error:
            if not options["serve"]:
                raise CommandError(f"{error}. Choose an empty one with --home DIR.") from error
        people = Path(settings.HOME) / "demo-people"
        _make_people(people)
        self._say(f"Others who may sign in: {', '.join(PEOPLE)}; all passwords are in {people}.")
        if options["serve"]:
            self._serve(options)

    def _serve(self, options: dict[str, Any]) -> None:
        heartbeat = LeaseRenewal()
        heartbeat.start()
        try:
            api, web = Address.parse(options["api"]), Address.parse(options["web"])
            wanted = Options(home=Path(settings.HOME), api=api, web=web, nodes=0, mixed_nodes=0, demo=False)
            System(wanted, say=self._say).run(self._tell)
        except (AddressInUse, ValueError) as error:
            raise CommandError(f"{error}. Choose another with --api HOST:PORT or --web HOST:PORT.") from error
        finally:
            heartbeat.stop()

    def _say(self, line: str) -> None:
        self.stdout.write(line)
        self.stdout.flush()

    def _tell(self, started: StartedSystem) -> None:
        people = dict(line.split() for line in (Path(settings.HOME) / "demo-people").read_text().splitlines())
        self._say(
            f"\nDashboard  {started.web_url}\nSign in    {ADMIN} / {people[ADMIN]}\n"
            f"API        {started.api_url}\n\nStop with Ctrl-C."
        )


def _make_people(file: Path) -> None:
    """An administrator, one who may look at everything and change nothing, and one who sees a single namespace."""
    users = get_user_model().objects
    missing = [name for name in (ADMIN, *PEOPLE) if not users.filter(username=name).exists()]
    for name in missing:
        password = secrets.token_urlsafe(9)
        administers = name == ADMIN
        user = users.create_user(name, password=password, is_staff=administers, is_superuser=administers)
        if name in PEOPLE:
            group, _ = Group.objects.get_or_create(name=PEOPLE[name])
            user.groups.add(group)
        if administers:
            save_views(user)
        known = file.read_text() if file.exists() else ""
        write_private(file, f"{known}{name} {password}\n")
