"""How the guard is started, as options of `manciple mirror`."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Final

AUDIT, ENFORCE = "audit", "enforce"
#: Where it listens unless it is told.
ADDRESS: Final = "127.0.0.1:9443"
#: Of its URL; a token may follow.
PATH: Final = "/guard"


@dataclass(frozen=True, slots=True)
class GuardOptions:
    """mode: "" for no guard. listen: HOST:PORT. certificate, key: None for the mirror's own. token: a file."""

    mode: str
    listen: str
    certificate: Path | None
    key: Path | None
    token: Path | None

    @classmethod
    def of(cls, options: argparse.Namespace) -> GuardOptions:
        return cls(
            options.guard, options.guard_listen, options.guard_tls_cert, options.guard_tls_key, options.guard_token_file
        )


def add_options(command: argparse.ArgumentParser) -> None:
    guard = command.add_argument_group("the guard")
    guard.add_argument(
        "--guard",
        nargs="?",
        const=AUDIT,
        default="",
        choices=(AUDIT, ENFORCE),
        help="a webhook against devices given twice: audit (the default) reports them, enforce refuses them",
    )
    guard.add_argument("--guard-listen", default=ADDRESS, metavar="ADDRESS:PORT", help=f"(default: {ADDRESS})")
    guard.add_argument(
        "--guard-tls-cert", type=Path, metavar="FILE", help="its certificate (default: the mirror's own)"
    )
    guard.add_argument("--guard-tls-key", type=Path, metavar="FILE", help="its key")
    guard.add_argument(
        "--guard-token-file",
        type=Path,
        metavar="FILE",
        help="what follows /guard/ in its URL; required beyond loopback",
    )
