"""Why a process does not start. Standard library only: the agent's programs and Django's settings come by here."""

from __future__ import annotations


class StartRefused(Exception):
    """What is kept on disk cannot be used. Its text says which file, why, and what to do; nobody needs a traceback."""
