"""As many generated requests as one likes, on both databases: `python -m tests.security.fuzz --requests 5000`.

Each of the tests here sends so many requests, as an administrator and as an ordinary user, on SQLite and then on a
PostgreSQL that is started for it. What is drawn follows from the seed, which is a new one each time and is told, so
that a fault can be looked at again with --seed.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests import services

#: Seconds that one test may take.
LONGEST = 6 * 3600


@contextmanager
def database(name: str) -> Iterator[dict[str, str]]:
    """The environment of a test run that uses it."""
    if name == "sqlite":
        yield {}
        return
    with services.postgresql(**services.FOR_TESTS) as server:
        yield {
            "MANCIPLE_DATABASE_URL": server.url,
            "MANCIPLE_LOCAL_CONNECTIONS": "1",
            "MANCIPLE_SECRET_KEY": "for the test run only, forty characters long",
            "MANCIPLE_ENCRYPTION_KEYS": "for the test run only",
        }


def fuzz(name: str, *, requests: int, seed: int, more: list[str]) -> int:
    """The exit code of the test run."""
    asked = {"MANCIPLE_FUZZ_REQUESTS": str(requests), "MANCIPLE_FUZZ_SEED": str(seed)}
    options = ["-q", "-s", "--tb=short", "--show-capture=no", "-o", f"timeout={LONGEST}", *more]
    with database(name) as environment:
        command = [sys.executable, "-m", "pytest", "tests/security/fuzz", *options]
        return subprocess.run(command, env={**os.environ, **environment, **asked}, check=False).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=5000, help="of each test and each sender")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    parser.add_argument("--database", choices=("sqlite", "postgresql"), action="append")
    given, more = parser.parse_known_args()
    failed = 0
    for name in given.database or ("sqlite", "postgresql"):
        print(f"== {name}: {given.requests} requests of each kind and sender, seed {given.seed}", flush=True)
        failed |= fuzz(name, requests=given.requests, seed=given.seed, more=more)
    return failed


if __name__ == "__main__":
    sys.exit(main())
