"""`manage.py reindex`: rebuild the index tables of all kinds from the stored documents."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from manciple.store.objects import reindex


class Command(BaseCommand):
    help = "Rebuild the index tables of all kinds from the stored documents."

    def handle(self, *_args: Any, **_options: Any) -> None:
        for resource, count in reindex().items():
            self.stdout.write(f"{resource}: {count}")
