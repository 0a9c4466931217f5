"""`python -m tests.security.limited_server FILES`: the listeners of an API process that may have so many files."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[1])))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "manciple.settings")

import django

django.setup()

from manciple.processes.listeners import Address, Listeners, bind  # noqa: E402

#: It writes no more lines to standard error, however many connections come.
LINES = 4
#: Seconds after which /exhaust takes every file, when its own connection has ended, and for which it holds them.
DELAY, SECONDS = 0.3, 1.5
#: Seconds in which it ends.
END_SECONDS = 4.0
_THREADS = ThreadPoolExecutor(1)


def exhaust() -> None:
    held: list[int] = []
    with suppress(OSError):
        while True:
            held.append(os.dup(0))
    asyncio.get_running_loop().call_later(SECONDS, close, held)


def close(descriptors: list[int]) -> None:
    for one in descriptors:
        os.close(one)


async def application(scope: Any, _receive: Any, send: Any) -> None:
    if scope["path"] == "/exhaust":
        asyncio.get_running_loop().call_later(DELAY, exhaust)
    if scope["path"] == "/stuck":
        print("stuck", flush=True)
        await asyncio.get_running_loop().run_in_executor(_THREADS, time.sleep, 60)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok", "more_body": False})


async def nothing() -> None:
    """There are no streams."""


if __name__ == "__main__":
    listener = bind(Address("127.0.0.1", 0))
    listeners = Listeners(application, on_stop=nothing, end_seconds=END_SECONDS)
    listeners.add(listener)
    print(json.dumps({"port": listener.getsockname()[1]}), flush=True)
    listeners.run()
