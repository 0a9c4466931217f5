"""`manage.py up` (`make run`): the whole system in one process."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from manciple import layout
from manciple.processes.accounts import how_to_sign_in
from manciple.processes.listeners import Address, AddressInUse
from manciple.processes.system import Options, StartedSystem, System

EXAMPLE = layout.example("two-pods.yaml")

#: Seconds for which a thread keeps the interpreter while others want it; Python's default is 0.005.
SWITCH_SECONDS = 0.001


class Command(BaseCommand):
    """Parses, starts, and tells the person at the terminal where to look and what to type."""

    help = "Run the whole system in this process: API, dashboard, workers and simulated nodes."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--api", default="127.0.0.1:6443", metavar="HOST:PORT", help="where the API listens (TLS)")
        parser.add_argument("--web", default="127.0.0.1:8000", metavar="HOST:PORT", help="where the dashboard listens")
        simulated = "simulated GPU nodes (default 3); with 0 no agent runs here, and nodes join"
        parser.add_argument("--nodes", type=int, default=3, metavar="N", help=simulated)
        parser.add_argument(
            "--mixed-nodes",
            type=int,
            metavar="N",
            help="simulated nodes with a GPU in partitions and shared network interfaces (default 1; 0 with --nodes 0)",
        )
        parser.add_argument(
            "--no-demo", action="store_true", help="do not create the demo classes, namespace and template"
        )
        # --home DIR is taken before the settings are read; it stands here for --help.
        parser.add_argument("--home", metavar="DIR", help=f"where everything is kept (default {layout.default_home()})")

    def handle(self, *_args: Any, **options: Any) -> None:
        if options["mixed_nodes"] is None:
            options["mixed_nodes"] = min(options["nodes"], 1)
        for option in ("nodes", "mixed_nodes"):
            if options[option] < 0:
                raise CommandError(f"--{option.replace('_', '-')} must be 0 or more")
        # The API shares the interpreter with the scheduler: a long search is not to delay answers for long.
        sys.setswitchinterval(SWITCH_SECONDS)
        wanted = Options(
            home=Path(settings.HOME),
            api=_address("--api", options["api"]),
            web=_address("--web", options["web"]),
            nodes=options["nodes"],
            mixed_nodes=options["mixed_nodes"],
            demo=not options["no_demo"],
        )
        try:
            System(wanted, say=self._say).run(self._tell)
        except AddressInUse as error:
            raise CommandError(f"{error}. Choose another with --api HOST:PORT or --web HOST:PORT.") from error

    def _say(self, line: str) -> None:
        self.stdout.write(line)
        self.stdout.flush()

    def _tell(self, started: StartedSystem) -> None:
        self._say(
            f"""
Manciple is ready.

  Dashboard  {started.web_url}
  Sign in    {how_to_sign_in(started.first_link)}
  API        {started.api_url}

Use kubectl:

  export KUBECONFIG={started.kubeconfig}
  kubectl get nodes,resourceslices
  kubectl apply -f {EXAMPLE}

Stop with Ctrl-C; starting again on the same home continues with what was there.
"""
        )


def _address(option: str, text: str) -> Address:
    try:
        return Address.parse(text)
    except ValueError as error:
        raise CommandError(f"{option}: {error}") from error
