"""What an allocation waits for the guard: `python bench/guard.py [--rate N] [--seconds S] [--changes N] [--sqlite]`.

A copy of `--nodes` nodes with eight devices each, half of them held, in a database of its own (PostgreSQL, or SQLite).
This process is the mirror: it starts the guard as `manciple mirror --guard` does, and stores `--changes` changes of
pods a second, and what the guard admits. An API server in another process sends reviews over HTTPS, `--rate` a second
(0: as fast as they are answered), on connections that it keeps; no answer is left out, not the first one either.
"""

from __future__ import annotations

import argparse
import os
import socket
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
os.environ["MANCIPLE_HOME"] = tempfile.mkdtemp(prefix="guard-")
os.environ["MANCIPLE_MIRROR_OF"] = "lab"
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
    """Send each at its time. Reports the number of each that is admitted, and at last how many seconds each took."""
    context = ssl.create_default_context(cadata=authority)
    took, lock = [0.0] * len(bodies), threading.Lock()
    numbers, began = iter(range(len(bodies))), time.perf_counter() + 0.5

    def work() -> None:
        plain = socket.create_connection(("127.0.0.1", port), timeout=30)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = context.wrap_socket(plain, server_hostname="127.0.0.1")
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            body = bodies[number]
            head = (
                "POST /guard?timeout=5s HTTP/1.1\r\nHost: manciple-guard.manciple-mirror.svc:443\r\n"
                f"User-Agent: kube-apiserver-admission\r\nContent-Length: {len(body)}\r\n"
                "Accept: application/json, */*\r\nContent-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n"
            )
            if rate:
                time.sleep(max(0.0, began + number / rate - time.perf_counter()))
            sent = time.perf_counter()
            connection.sendall(head.encode() + body)
            answer = connection.recv(16384)
            while b"}}" not in answer:
                answer += connection.recv(16384)
            took[number] = time.perf_counter() - sent
            if b'"allowed":true' not in answer or b"warnings" in answer:
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
    parser.add_argument("--rate", type=float, default=50.0)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--changes", type=float, default=100.0)
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
        found = guarded_writes.measured(
            api_server, nodes=options.nodes, rate=options.rate, seconds=options.seconds, changes=options.changes
        )
    speed = f"{options.rate:g} a second" if options.rate else f"{found.per_second:.0f} a second, as fast as they came"
    print(
        f"{len(found.answered)} allocations, {speed}, {options.changes:g} other changes a second, {options.nodes} nodes"
    )
    ordered = sorted(1000 * one for one in found.answered)
    median, most, nearly_all = (ordered[int(len(ordered) * part)] for part in (0.5, 0.9, 0.99))
    times = f"median {median:.2f}, p90 {most:.2f}, p99 {nearly_all:.2f}, worst {ordered[-1]:.2f} ms"
    print(f"until the answer is there: {times}")
    print(
        f"the guard's own time within {BUDGET:g} ms: {found.within(BUDGET / 1000):.2%}; mean {found.mean * 1000:.2f} ms"
    )
    print(f"CPU: {found.cpu * 1000:.2f} ms an allocation, in the process that serves the guard")
    print(f"p99 of its own time within {BUDGET:g} ms: {'yes' if found.within(BUDGET / 1000) >= 0.99 else 'NO'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
