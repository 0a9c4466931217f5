"""`manage.py support_bundle`: a file for whoever helps from afar, without secrets."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from manciple.processes.home import Home
from manciple.processes.support import bundle
from manciple.processes.support.contents import MEMBERS
from manciple.processes.support.scrubbing import Scrubber, secrets_of_installation


class Command(BaseCommand):
    help = "Write what somebody who helps needs to know of this installation into a file, without secrets."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--output", type=Path, metavar="FILE", help="(default: ./manciple-support-TIME.tar.gz)")
        log = "a log to include, or its end; repeatable"
        parser.add_argument("--log", action="append", default=[], type=Path, metavar="FILE", help=log)

    def handle(self, *_args: Any, **options: Any) -> None:
        path = options["output"] or Path(f"manciple-support-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.tar.gz")
        scrubber = Scrubber(secrets_of_installation(Home(Path(settings.HOME))))
        try:
            names = bundle.write(path, MEMBERS, options["log"], scrubber)
        except OSError as error:
            raise CommandError(str(error)) from error
        self.stdout.write("\n".join([*names, "", f"{path.resolve()}: look through it before you hand it on"]))
