"""`manciple-agent`, in a checkout `python -m nodeagent`: the programs of a node under one name.

Options without a program's name are those of `run`.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import signal
import sys
from collections.abc import Sequence
from typing import Final

from manciple import layout

#: Words -> (module with a `main`, one line for `--help`). The modules are imported on demand.
PROGRAMS: Final = {
    "run": ("nodeagent.run", "the agent of a node, until SIGINT or SIGTERM"),
    "join": ("nodeagent.node.joining", "make this machine a node"),
    "driver serve": ("nodeagent.serve", "serve a driver in Python to a kubelet"),
    "driver check": (
        "nodeagent.driver_check.command",
        "check a driver of the kubelet's plugin protocol, without Kubernetes",
    ),
}
#: The extra that has `driver check`.
EXTRA: Final = "driver-check"


def help_text() -> str:
    widest = max(map(len, PROGRAMS))
    lines = [f"  {name.ljust(widest)}  {does}" for name, (_, does) in PROGRAMS.items()]
    return "\n".join([f"usage: {layout.NODE_COMMAND} PROGRAM ...", "", *lines, "", "PROGRAM --help lists its options."])


def main(arguments: Sequence[str] | None = None) -> int:
    os.umask(0o077)  # what drivers, runtimes and containers read gets its mode where it is written
    words = sys.argv[1:] if arguments is None else list(arguments)
    match words:
        case ["--help" | "-h" | "help", *_]:
            print(help_text())
            return 0
        case ["--version"]:
            print(f"manciple-agent {layout.version()}")
            return 0
        case ["driver", kind, *rest]:
            name = f"driver {kind}"
        case [str(name), *rest] if not name.startswith("-"):
            pass
        case _:
            name, rest = "run", words
    if name not in PROGRAMS:
        print(f"manciple-agent: {name} is not one of {', '.join(PROGRAMS)}", file=sys.stderr)
        return 2
    module, _ = PROGRAMS[name]
    if importlib.util.find_spec(module.rpartition(".")[0]) is None:
        print(f"manciple-agent: {name} is an extra: pip install 'manciple-agent[{EXTRA}]'", file=sys.stderr)
        return 2
    status: int = importlib.import_module(module).main(rest)
    return status


def program() -> int:
    """The entry point `manciple-agent`."""
    # Python's own handler raises KeyboardInterrupt wherever an import is at, and some places there swallow it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return main()


if __name__ == "__main__":
    sys.exit(program())
