"""`manage.py prune`: remove old events from the log, as the periodic task does."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from manciple.store.space import KEEP, RETENTION, prune


class Command(BaseCommand):
    help = "Remove old events from the log. Watches that start below what is left are told to list again."

    def add_arguments(self, parser: CommandParser) -> None:
        seconds = int(RETENTION.total_seconds())
        parser.add_argument("--older-than", type=int, default=seconds, metavar="SECONDS", help=f"default: {seconds}")
        parser.add_argument("--keep", type=int, default=KEEP, metavar="EVENTS", help=f"at most; default: {KEEP}")
        parser.add_argument("--keep-bytes", type=int, metavar="BYTES", help="at most; default: MANCIPLE_LOG_BYTES")

    def handle(self, *_args: Any, **options: Any) -> None:
        removed = prune(
            older_than=timedelta(seconds=options["older_than"]), keep=options["keep"], keep_bytes=options["keep_bytes"]
        )
        self.stdout.write(f"events removed: {removed}")
