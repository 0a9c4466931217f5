"""Examines the backups: are they made, and is the log between them kept."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Final

from django.conf import settings

from manciple.processes import backup
from manciple.processes.doctor.diagnoses import Diagnosis, problem, warning
from manciple.store import sql

_HOW: Final = "`manciple backup` makes one; unit manciple-backup.timer does so every night"


def examine_backups(now: datetime) -> Iterator[Diagnosis]:
    if settings.BACKUP_DIR:
        yield from _of_folder(Path(settings.BACKUP_DIR), now)
    elif settings.PRODUCTION:
        yield warning("backups", "MANCIPLE_BACKUP_DIR is not set, so nobody can tell whether there are any", _HOW)


def _of_folder(folder: Path, now: datetime) -> Iterator[Diagnosis]:
    note = backup.newest(folder)
    if note is None:
        yield problem(f"backups in {folder}", "there is none that is whole", _HOW)
        return
    hours = backup.age_hours(note, now)
    if hours > settings.BACKUP_HOURS:
        yield problem(
            f"backups in {folder}",
            f"the newest is of {note.at:%Y-%m-%d %H:%M}, {hours:.0f} hours ago; there should be one every "
            f"{settings.BACKUP_HOURS:g}",
            f"see why it was missed (journalctl -u manciple-backup); {_HOW}",
        )


def examine_archive(_now: datetime) -> Iterator[Diagnosis]:
    if not sql.on_postgresql():
        return
    (mode,) = sql.fetch("SELECT current_setting('archive_mode')")[0]
    if mode == "off":
        yield warning(
            "PostgreSQL",
            "its log is not archived: what came after the last backup cannot be restored",
            "set archive_mode = on and archive_command (docs/how-to/high-availability.md)",
        )
        return
    failed, archived, name = sql.fetch(
        "SELECT last_failed_time, last_archived_time, last_failed_wal FROM pg_stat_archiver"
    )[0]
    if failed is not None and (archived is None or failed > archived):
        yield problem(
            "PostgreSQL",
            f"archiving {name} failed at {failed:%Y-%m-%d %H:%M}, and none has been archived since",
            "see the server's log; its disk fills up until archive_command works again",
        )
