"""The process of the guard on PostgreSQL, which the mirror starts (`mirror_guard`):

    python -m manciple.processes.guard_process LISTENER REPORTS [what the mirror was started with ...]

LISTENER and REPORTS are descriptors of the mirror's: the listening socket, and a pipe that takes a line of metrics each
second. The environment is the mirror's, too. It ends with its standard input, so also with a mirror that is killed.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from manciple import memory
from manciple.mirror.client import Remote
from manciple.mirror.failures import RemoteFailure
from manciple.mirror.guard.options import GuardOptions
from manciple.processes import mirror

#: Seconds for which a thread keeps the interpreter while others want it: each step of an answer may wait so long.
SWITCH_SECONDS: Final = 0.0002
#: What of the metrics is reported.
REPORTED: Final = "manciple_guard_"


def main(arguments: Sequence[str]) -> int:
    memory.start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the mirror, which then ends this process
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    listener, reports = socket.socket(fileno=int(arguments[0])), int(arguments[1])
    options = mirror.parser().parse_args(arguments[2:])
    guard = GuardOptions.of(options)
    access = mirror.access_found(options)
    try:
        complete = mirror.access_now(options)
    except RemoteFailure as failure:  # the cluster is asked before a refusal alone: with a credential by then, perhaps
        print(f"warning: the guard cannot ask the cluster: {failure}", file=sys.stderr)
        complete = access
    remote = Remote(complete, timeout=mirror.GUARD_TIMEOUT, renew=partial(mirror.access_now, options))

    import django  # noqa: PLC0415 - nothing before needs it

    django.setup()
    from django.conf import settings  # noqa: PLC0415 - as above

    from manciple.mirror.guard import serving  # noqa: PLC0415 - as above
    from manciple.processes import mirror_guard  # noqa: PLC0415 - as above
    from manciple.telemetry import processes  # noqa: PLC0415 - as above

    sys.setswitchinterval(SWITCH_SECONDS)
    certificate, token = mirror_guard.certificate_of(guard, Path(settings.HOME)), mirror_guard.token_of(guard)

    is_settled = threading.Event()

    def looked() -> None:
        if not is_settled.is_set():  # before it is ready: looking through the modules and the copy takes a while
            memory.settle()
            is_settled.set()
        os.write(reports, processes.packed(REPORTED))

    with serving.running(listener, certificate, remote, mode=guard.mode, token=token, after_look=looked):
        while os.read(sys.stdin.fileno(), 1):
            pass
    remote.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
