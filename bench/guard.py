"""The guard's own time for an allocation: `python bench/guard.py [--rate N] [--seconds S] [--nodes N] [--sqlite]`.

A copy of `--nodes` nodes with eight devices each, half of them held, in a database of its own (PostgreSQL, or SQLite).
An API server in a process of its own sends reviews over HTTPS, `--rate` a second, on connections that it keeps: claims
get free devices, and the writes come back into the copy, as the replicator stores them, while the next are judged.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import ssl
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "manciple.settings")
os.environ["MANCIPLE_HOME"] = tempfile.mkdtemp()
os.environ.setdefault("MANCIPLE_LOG_LEVEL", "WARNING")
os.environ["MANCIPLE_SECRET_KEY"] = os.environ["MANCIPLE_ENCRYPTION_KEYS"] = (
    "a-key-of-a-benchmark-that-protects-nothing-at-all"
)

from tests import services

#: Milliseconds that 99 of 100 take at most.
BUDGET = 2.0
#: Of the API server.
CONNECTIONS = 4
#: As the process of a mirror has it.
SWITCH_SECONDS = 0.001


def api_server(port: int, authority: str, bodies: Sequence[bytes], rate: float, results: Connection) -> None:
    """Send each at its time. Tells the number of each that is admitted, and at last how many seconds each took."""
    context = ssl.create_default_context(cadata=authority)
    took, lock = [0.0] * len(bodies), threading.Lock()
    numbers, began = iter(range(len(bodies))), time.perf_counter() + 0.5

    def work() -> None:
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=30, context=context)
        connection.connect()
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            time.sleep(max(0.0, began + number / rate - time.perf_counter()))
            sent = time.perf_counter()
            connection.request("POST", "/guard", bodies[number], {"Content-Type": "application/json"})
            answer = json.loads(connection.getresponse().read())["response"]
            took[number] = time.perf_counter() - sent
            if not answer["allowed"]:
                raise AssertionError(answer)
            with lock:
                results.send(number)

    threads = [threading.Thread(target=work) for _ in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results.send(took)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rate", type=float, default=100.0)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--sqlite", action="store_true")
    options = parser.parse_args()
    with ExitStack() as stack:
        if not options.sqlite:
            os.environ["MANCIPLE_DATABASE_URL"] = stack.enter_context(services.postgresql()).url
        import django  # noqa: PLC0415 - its settings read the environment

        django.setup()
        from cases import guarded_writes  # noqa: PLC0415
        from django.core.management import call_command  # noqa: PLC0415

        call_command("migrate", verbosity=0, interactive=False)
        sys.setswitchinterval(SWITCH_SECONDS)
        own, answered = guarded_writes.measured(
            api_server, nodes=options.nodes, rate=options.rate, seconds=options.seconds
        )
    print(
        f"{len(own)} allocations, {options.rate:g} a second, {options.nodes} nodes of {guarded_writes.DEVICES} devices"
    )
    for name, seconds in (("the guard's own time", own), ("until the answer is there", answered)):
        ordered = sorted(1000 * one for one in seconds)
        median, most, nearly_all = (ordered[int(len(ordered) * part)] for part in (0.5, 0.9, 0.99))
        print(f"{name:26} median {median:.2f}, p90 {most:.2f}, p99 {nearly_all:.2f}, worst {ordered[-1]:.2f} ms")
    kept = sorted(own)[int(len(own) * 0.99)] * 1000 <= BUDGET
    print(f"p99 of its own time within {BUDGET:g} ms: {'yes' if kept else 'NO'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
