"""What a bench runs in: a PostgreSQL (and Redis) of its own on free ports, an empty home, and Django set up on them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests import services


@dataclass(frozen=True, slots=True)
class Servers:
    postgresql: services.Server
    redis: services.Server | None


@contextmanager
def servers(*, redis: bool, without: str = "") -> Iterator[Servers]:
    """Once in a process, as Django can be set up once. `without`: guards that are left out (bench/without)."""
    with ExitStack() as stack:
        os.environ["DJANGO_SETTINGS_MODULE"] = "manciple.settings"
        os.environ["MANCIPLE_HOME"] = stack.enter_context(tempfile.TemporaryDirectory())
        os.environ["MANCIPLE_SECRET_KEY"] = "of a benchmark, forty characters long...."
        os.environ["MANCIPLE_ENCRYPTION_KEYS"] = "of a benchmark and not a secret"
        os.environ["MANCIPLE_LOG_LEVEL"] = "WARNING"
        if without:
            os.environ["DJANGO_SETTINGS_MODULE"] = "without.settings"
            os.environ["MANCIPLE_BENCH_WITHOUT"] = without
            os.environ["PYTHONPATH"] = str(Path(__file__).parents[1])
        started = Servers(
            stack.enter_context(services.postgresql()),
            stack.enter_context(services.redis_server()) if redis else None,
        )
        os.environ["MANCIPLE_DATABASE_URL"] = started.postgresql.url
        if started.redis is not None:
            os.environ["MANCIPLE_REDIS_URL"] = started.redis.url
        import django  # noqa: PLC0415 - its settings are read from the environment
        from django.core.management import call_command  # noqa: PLC0415

        django.setup()
        call_command("migrate", verbosity=0)
        yield started
