"""`manage.py backup`: a backup of the database, taken while it is in use, and those removed that are too old."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError

from manciple.processes import backup, database_file
from manciple.processes.backup import BackupFailed


class Command(BaseCommand):
    help = "Take a backup of the database. It holds no keys: keep those apart."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--to", type=Path, metavar="DIR", help="where backups are kept (default: MANCIPLE_BACKUP_DIR)"
        )
        parser.add_argument("--keep", type=int, default=14, metavar="N", help="of them, at most (default %(default)s)")

    def handle(self, *_args: Any, **options: Any) -> None:
        folder = options["to"] or (Path(settings.BACKUP_DIR) if settings.BACKUP_DIR else None)
        if folder is None:
            raise CommandError("say where: --to DIR, or MANCIPLE_BACKUP_DIR")
        if options["keep"] < 1:
            raise CommandError("--keep must be 1 or more")
        try:
            made = backup.take(folder.resolve(), datetime.now(UTC))
            gone = backup.remove_old(folder.resolve(), keep=options["keep"])
        except DatabaseError as error:
            database_file.check_configured(whole=True)
            raise CommandError(str(error)) from error
        except (BackupFailed, OSError) as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"{made}" + (f"\n{len(gone)} older ones removed" if gone else ""))
