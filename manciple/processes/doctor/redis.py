"""Examines Redis: is it there, and may it forget what it must not."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

from django.conf import settings

from manciple.processes.doctor.database import clock_skew
from manciple.processes.doctor.diagnoses import Diagnosis, problem, warning

#: Seconds that Redis may take to answer.
TIMEOUT: Final = 2.0
#: The part of its memory that may be used.
MOST_MEMORY: Final = 0.8


def examine_redis(_now: datetime) -> Iterator[Diagnosis]:
    if not settings.REDIS_URL:
        return  # `cluster.examine_processes` says whether one is needed
    import redis  # noqa: PLC0415 - a process without Redis need not hold its library

    client = redis.Redis.from_url(settings.REDIS_URL, socket_timeout=TIMEOUT, socket_connect_timeout=TIMEOUT)
    try:
        yield from _of_server(client)
    except redis.RedisError as error:
        yield problem(
            "Redis",
            f"it does not answer: {error}",
            "start it: without it nothing is lost, but pods are placed by polling, up to a few seconds later",
        )
    finally:
        client.close()


def _of_server(client: Any) -> Iterator[Diagnosis]:
    before = datetime.now(UTC)
    seconds, micros = client.time()
    told = datetime.fromtimestamp(seconds + micros / 1e6, UTC)
    yield from clock_skew(told, before, datetime.now(UTC), whose="Redis' server")
    memory = client.info("memory")
    most, policy = int(memory.get("maxmemory", 0)), str(memory.get("maxmemory_policy", "noeviction"))
    if most and policy != "noeviction":
        yield problem(
            "Redis", f"maxmemory-policy is {policy}: it throws away messages", "set maxmemory-policy noeviction"
        )
    if most and int(memory["used_memory"]) > MOST_MEMORY * most:
        yield warning(
            "Redis",
            f"{int(memory['used_memory']) >> 20} of {most >> 20} MiB are used",
            "raise maxmemory: once it is full every message is refused",
        )
    if int(client.config_get("timeout").get("timeout", 0)):
        yield warning("Redis", "it closes connections that are quiet (timeout)", "set timeout 0")
