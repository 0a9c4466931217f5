#!/usr/bin/env python
"""Django's command line for Manciple: `manage.py up`, `migrate`, `reindex`, `check_invariants`, ...

`--home DIR` is read here, before Django starts, because the settings look into that folder; every command takes it.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from manciple.processes import home


def take_home(arguments: list[str]) -> list[str]:
    """The arguments without `--home DIR`, which goes to the environment as MANCIPLE_HOME."""
    rest: list[str] = []
    words = iter(arguments)
    for word in words:
        if word == "--home":
            os.environ["MANCIPLE_HOME"] = str(Path(next(words, "")).expanduser().resolve())
        elif word.startswith("--home="):
            os.environ["MANCIPLE_HOME"] = str(Path(word.removeprefix("--home=")).expanduser().resolve())
        else:
            rest.append(word)
    return rest


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "manciple.settings")
    sys.argv[1:] = take_home(sys.argv[1:])
    if sys.argv[1:2] in (["up"], ["serve"], ["demo"], ["screenshots"]):
        # Until they listen for it themselves. Python's own handler raises KeyboardInterrupt wherever an import is at,
        # and some places there swallow it.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if sys.argv[1] != "serve":  # its terminal is for what a person must know
            os.environ.setdefault("MANCIPLE_LOG_LEVEL", "WARNING")
        in_production = os.environ.get("MANCIPLE_DATABASE_URL") or os.environ.get("MANCIPLE_REDIS_URL")
        folder = Path(os.environ.get("MANCIPLE_HOME", Path(__file__).parent / "var"))
        home.prepare(folder, with_key=not in_production)
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
