"""Sign-ins with wrong passwords: each is a slow hash. An address has one at a time, and pages keep their threads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Any

from django.conf import settings

from manciple.api.flow_control import MOST_HEAVY, FlowLimits
from manciple.api.lanes import Intake, ThreadedWsgi
from tests.manciple.api.test_intake import Conversation

SECONDS = 0.05


class Pages:
    """Stands in for the pages. A sign-in takes `SECONDS` of a thread, as a hash does."""

    def __init__(self) -> None:
        self.hashing = self.most_at_once = 0

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] == "POST":
            self.hashing += 1
            self.most_at_once = max(self.most_at_once, self.hashing)
            time.sleep(SECONDS)
            self.hashing -= 1
        start("200 OK", [])
        return [b""]


class FromAddress(Conversation):
    address = "192.0.2.1"

    @property
    def scope(self) -> dict[str, Any]:
        return super().scope | {"client": (self.address, 5)}


def sign_in(address: str) -> Conversation:
    attempt = FromAddress(settings.LOGIN_URL, token="")
    attempt.address = address
    return attempt


def served(pages: Pages, *requests: Conversation) -> float:
    """Seconds until the last of `requests` was answered; all of them are sent at once."""

    async def serve() -> float:
        door = Intake({"pages": ThreadedWsgi(pages, FlowLimits(seats=4), name="pages")})
        began = time.monotonic()
        answers = [asyncio.create_task(one.held(door)) for one in requests]
        await answers[-1]
        took = time.monotonic() - began
        await asyncio.gather(*answers)
        return took

    return asyncio.run(serve())


def test_passwords_from_one_address_are_hashed_one_after_the_other() -> None:
    pages = Pages()
    served(pages, *(sign_in("192.0.2.1") for _ in range(6)))
    assert pages.most_at_once == 1


def test_passwords_from_many_addresses_leave_threads_to_the_pages() -> None:
    pages = Pages()
    flood = [sign_in(f"192.0.2.{number}") for number in range(12)]
    took = served(pages, *flood, Conversation("/pods", method="GET", token="", pieces=[b""]))
    assert pages.most_at_once == MOST_HEAVY
    assert took < 2 * SECONDS
