"""`manage.py audit`: export the audit trail as lines of JSON, follow it, prune it."""

from __future__ import annotations

import signal
import sys
import threading
from argparse import ArgumentParser, ArgumentTypeError
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from manciple.audit import retention, shipping
from manciple.audit.searching import Search
from manciple.audit.shipping import Shipment

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
OUTCOMES = ("done", "denied", "failed")


def moment(text: str) -> datetime:
    """A moment, or how long ago it was: "2026-11-23T08:00:00Z", "90m", "7d". Raises: ArgumentTypeError."""
    if text[:-1].isdigit() and text[-1] in _UNITS:
        return datetime.now(UTC) - timedelta(seconds=int(text[:-1]) * _UNITS[text[-1]])
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is neither a time (2026-11-23T08:00:00Z) nor an age (90m, 7d)") from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


class Command(BaseCommand):
    help = "Export the audit trail as lines of JSON (audit.k8s.io/v1 Event), follow it, prune it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        export = actions.add_parser("export", help="write the entries that match, oldest first")
        _add_filters(export)
        follow = actions.add_parser("follow", help="append new entries to a file until stopped; SIGHUP reopens it")
        _add_filters(follow)
        for one in (export, follow):
            one.add_argument("--output", type=Path, metavar="FILE", help="default: standard output")
        prune = actions.add_parser("prune", help="delete old entries")
        prune.add_argument("--days", type=float, default=settings.AUDIT_DAYS, help="default: %(default)s")
        prune.add_argument(
            "--system-days", type=float, default=settings.AUDIT_SYSTEM_DAYS, help="of the system's work: %(default)s"
        )
        prune.add_argument(
            "--keep", type=int, default=settings.AUDIT_ENTRIES, help="entries that changed something: %(default)s"
        )
        prune.add_argument(
            "--keep-refusals",
            type=int,
            default=settings.AUDIT_REFUSALS,
            help="refusals, failures, dry runs and reads: %(default)s",
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        {"export": self._export, "follow": self._follow, "prune": self._prune}[options["action"]](options)

    def _export(self, options: dict[str, Any]) -> None:
        target = options["output"]
        with target.open("wb") if target else open(sys.stdout.fileno(), "wb", closefd=False) as file:
            for line in shipping.lines(_search(options)):
                file.write(line)

    def _follow(self, options: dict[str, Any]) -> None:
        shipment, stopping = Shipment(options["output"], _search(options)), threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: stopping.set())
        signal.signal(signal.SIGINT, lambda *_: stopping.set())
        signal.signal(signal.SIGHUP, lambda *_: shipment.reopen())
        shipment.follow(stopping)
        shipment.close()

    def _prune(self, options: dict[str, Any]) -> None:
        gone = retention.prune(
            datetime.now(UTC),
            older_than=timedelta(days=options["days"]),
            routine_older_than=timedelta(days=options["system_days"]),
            keep=options["keep"],
            keep_refusals=options["keep_refusals"],
        )
        self.stdout.write(f"deleted {gone} entries")


def _add_filters(parser: ArgumentParser) -> None:
    for name in ("since", "until"):
        parser.add_argument(f"--{name}", type=moment, metavar="WHEN", help="2026-11-23T08:00:00Z, or an age: 90m, 7d")
    parser.add_argument("--user", default="", help="the user, or who impersonated that user")
    parser.add_argument("--verb", default="")
    parser.add_argument("--resource", default="", metavar="PLURAL.GROUP", help="resourceclaims.resource.k8s.io")
    parser.add_argument("--namespace", default="")
    parser.add_argument("--name", default="")
    parser.add_argument("--audit-id", default="", help="of one request: the Audit-Id header of its answer")
    parser.add_argument("--outcome", default="", choices=OUTCOMES)
    parser.add_argument("--routine", action="store_true", help="include the routine work of the system's parts")


def _search(options: dict[str, Any]) -> Search:
    fields = ("since", "until", "user", "verb", "resource", "namespace", "name", "audit_id", "outcome", "routine")
    return Search(**{name: options[name] for name in fields})
