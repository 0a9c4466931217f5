"""Examines this machine: the configuration, disks, who may read what, certificates."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from django.conf import settings
from django.db import DatabaseError, InterfaceError

from manciple import descriptors
from manciple.api.certificates import CertificatesRefused, check
from manciple.processes import backup, keys
from manciple.processes.config_check import checked_configuration
from manciple.processes.doctor.diagnoses import Diagnosis, problem, warning
from manciple.processes.home import RESTORE, Home, open_to_others, wrong_keys

#: Bytes that must be free, and the part of the disk.
LEAST_FREE: Final = 1 << 30
LEAST_PART: Final = 0.05
#: What the command line of a process of ours begins with, after Python.
_PROGRAMS: Final = ("manciple", "manage.py")
#: How long before its end a certificate is told of.
ENDS_SOON: Final = timedelta(days=21)


def examine_configuration(_now: datetime) -> Iterator[Diagnosis]:
    checked = checked_configuration(os.environ)
    advice = "`manciple config check` shows every setting and where it comes from"
    for text in checked.problems:
        yield problem("configuration", text, advice)
    for text in checked.warnings:
        yield warning("configuration", text, advice)


def examine_disks(_now: datetime) -> Iterator[Diagnosis]:
    folders = {Path(settings.HOME), Path(settings.AUDIT_LOG).parent if settings.AUDIT_LOG else Path(settings.HOME)}
    for folder in sorted(folders):
        if not folder.is_dir():
            yield problem(f"folder {folder}", "does not exist", "create it, owned by the user that runs Manciple")
            continue
        if not os.access(folder, os.W_OK | os.X_OK):
            yield problem(
                f"folder {folder}",
                f"user {os.geteuid()} may not write there",
                "run this as the user that runs Manciple, or change the folder's owner",
            )
        used = shutil.disk_usage(folder)
        if used.free < max(LEAST_FREE, LEAST_PART * used.total):
            yield problem(
                f"disk of {folder}",
                f"{_size(used.free)} of {_size(used.total)} are free",
                "make room before it is full: a database on a full disk refuses every write",
            )


def examine_files(_now: datetime) -> Iterator[Diagnosis]:
    """The limit of this command, which a service shares if it is started alike, and of processes that run here."""
    limits = {"this command": descriptors.limit()} | dict(_limits_of_processes())
    for about, limit in limits.items():
        if limit < descriptors.LEAST:
            yield warning(
                about,
                f"may have {limit} files open, so an API process keeps {limit * 3 // 4} connections at most, and "
                f"{limit * 3 // 16} watches of one user",
                f"set LimitNOFILE={descriptors.RECOMMENDED} in the systemd unit, ulimits (nofile) in the compose file, "
                f"or `ulimit -n {descriptors.RECOMMENDED}` in the shell that starts it",
            )


def _limits_of_processes() -> Iterator[tuple[str, int]]:
    """Of our processes on this machine that this user may look into."""
    for folder in sorted(Path("/proc").glob("[0-9]*")):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            served = {b"serve", b"up", b"worker"} & set(words[1:4])
            if not served or not any(Path(os.fsdecode(word)).name in _PROGRAMS for word in words[:3]):
                continue
            lines = (folder / "limits").read_text().splitlines()
        except OSError:  # it has ended, or is somebody else's
            continue
        (limit,) = (line.split()[3] for line in lines if line.startswith("Max open files"))
        if limit.isdigit():
            yield f"process {folder.name} ({served.pop().decode()})", int(limit)


def _size(number: float) -> str:
    return f"{number / (1 << 30):.1f} GiB"


def examine_permissions(_now: datetime) -> Iterator[Diagnosis]:
    home = Path(settings.HOME)
    for path in open_to_others(home):
        what, mode = ("folder", 700) if path.is_dir() else ("file", 600)
        yield problem(
            f"{what} {path}",
            "others on this machine can read it, and it opens the installation",
            f"chmod {mode} {path}",
        )
    if settings.BACKUP_DIR:
        yield from _readable_backups(Path(settings.BACKUP_DIR))
    for path in sorted(home.glob("nodes/*/kubeconfig")):
        if path.stat().st_mode & stat.S_IRWXO:
            yield problem(f"file {path}", "others can read it, and be that node", f"chmod 600 {path}")
    if settings.PRODUCTION and os.geteuid() == 0:
        yield warning(
            "this process",
            "runs as root",
            "run the API and workers as a user of their own (deploy/systemd: User=manciple); agents need root",
        )


def _readable_backups(folder: Path) -> Iterator[Diagnosis]:
    if not folder.is_dir() or not folder.stat().st_mode & stat.S_IXOTH:
        return
    for path, _ in backup.notes(folder):
        if path.stat().st_mode & stat.S_IRWXO:
            yield problem(f"backup {path}", "others can read it, and with it the whole database", f"chmod 700 {path}")


def examine_keys(_now: datetime) -> Iterator[Diagnosis]:
    """The files of the home, and whether what is encrypted opens."""
    if not settings.PRODUCTION:
        for path, why in wrong_keys(Home(Path(settings.HOME))):
            yield problem(f"key {path}", why, RESTORE)
    try:
        check(Path(settings.HOME))
    except CertificatesRefused as refusal:
        why, _, advice = str(refusal).partition("\n")
        yield problem("certificates", why, " ".join(advice.split()))
    # The checkup of the database tells where it is away.
    with suppress(DatabaseError, InterfaceError):
        if found := list(keys.unopened()):
            yield problem(f"keys in {keys.where()}", keys.lacking(found), RESTORE)


def examine_certificates(now: datetime) -> Iterator[Diagnosis]:
    home = Path(settings.HOME)
    authority = "nothing that it signed is accepted afterwards: make a new one, and new kubeconfig files, before then"
    server = (
        "restart the API processes: they make a new one; one of your own (--tls-cert) is renewed where it came from"
    )
    advice = {home / "server.crt": server, settings.CA_FILE: authority, settings.CLIENT_CA_FILE: authority}
    for path, what_to_do in advice.items():
        if not path.exists():
            continue
        try:
            ends = x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc
        except ValueError:
            yield problem(f"certificate {path}", "is not a certificate", "restore it from the backup of the home")
            continue
        if ends <= now:
            yield problem(f"certificate {path}", f"ended on {ends:%Y-%m-%d}", what_to_do)
        elif ends - now < ENDS_SOON:
            yield warning(f"certificate {path}", f"ends on {ends:%Y-%m-%d}", what_to_do)
