"""`manage.py reseal`: encrypt with the newest key what another one was used for, or none."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from manciple.store.resealing import reseal


class Command(BaseCommand):
    help = "Encrypt what is confidential in the database with the newest of MANCIPLE_ENCRYPTION_KEYS."

    def handle(self, *_args: Any, **_options: Any) -> None:
        self.stdout.write(f"re-encrypted {reseal()} documents")
