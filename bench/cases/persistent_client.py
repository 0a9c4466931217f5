"""A client that gets its objects made while servers come and go, as programs on client-go do it.

Where a create was not confirmed, it waits (as long as the server asks), looks whether the object exists, and repeats
the create if not. It keeps count of what it was told, and of what nobody should have been told.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import dataclass, field

from cases.connection import Answer, Connection

#: Answers that an outage explains.
COME_BACK = frozenset({429, 503, 504})
#: What each method may be answered; a 409 is looked at more closely.
ACCEPTABLE = {
    "POST": COME_BACK | {201, 409},
    "GET": COME_BACK | {200, 404},
    "PATCH": COME_BACK | {200},
}
#: Content types of what is sent.
MEDIA = {"POST": "application/json", "GET": "", "PATCH": "application/merge-patch+json"}
#: Seconds between two attempts where the server named none.
PAUSE = 0.25
#: Seconds after which a request without an answer is given up: three times what the server may wait for a lock.
PATIENCE = 30.0


@dataclass(slots=True)
class Heard:
    """What all clients were told."""

    #: (method, status) -> answers
    codes: Counter[tuple[str, int]] = field(default_factory=Counter)
    #: connections that broke, or could not be opened
    broken: int = 0
    #: requests that nobody answered within `PATIENCE`
    unanswered: int = 0
    #: answers that should not have been, in words
    wrong: list[str] = field(default_factory=list)

    def of_status(self, status: int) -> int:
        return sum(count for (_method, code), count in self.codes.items() if code == status)


class PersistentClient:
    """One request at a time over one connection, which is opened again whenever it breaks."""

    def __init__(self, connection: Connection, heard: Heard) -> None:
        self._connection = connection
        self._heard = heard

    def close(self) -> None:
        self._connection.close()

    async def create(self, path: str, name: str, body: bytes) -> None:
        """Returns once the object certainly exists."""
        in_doubt = False
        while True:
            answer = await self._ask("POST", path, body)
            if answer is not None and answer.status == 201:
                return
            if answer is not None and answer.status == 409:
                self._note_conflict(name, answer, in_doubt=in_doubt)
                return
            in_doubt = in_doubt or answer is None or answer.status == 504
            await asyncio.sleep(answer.retry_after if answer and answer.retry_after else PAUSE)
            found = await self.get(f"{path}/{name}")
            if found is not None and found.status == 200:
                if not in_doubt:
                    self._heard.wrong.append(f"{name} was refused with 503 and exists")
                return

    async def patch(self, path: str, body: bytes) -> None:
        """Returns once the merge patch `body`, which may be made twice, is certainly made."""
        while (answer := await self._ask("PATCH", path, body)) is None or answer.status != 200:
            await asyncio.sleep(answer.retry_after if answer and answer.retry_after else PAUSE)

    async def get(self, path: str) -> Answer | None:
        """One attempt. None where the connection broke, or nobody answered in time."""
        return await self._ask("GET", path)

    def _note_conflict(self, name: str, answer: Answer, *, in_doubt: bool) -> None:
        reason = json.loads(answer.body)["reason"]
        if reason != "AlreadyExists" or not in_doubt:
            self._heard.wrong.append(f"the create of {name}, not in doubt, was answered 409 {reason}")

    async def _ask(self, method: str, path: str, body: bytes = b"") -> Answer | None:
        """None where the connection broke, or nobody answered in time."""
        try:
            async with asyncio.timeout(PATIENCE):
                answer = await self._connection.request(method, path, body, media=MEDIA[method])
        except TimeoutError:
            self._connection.close()
            self._heard.unanswered += 1
            return None
        except (OSError, EOFError):
            self._heard.broken += 1
            return None
        self._heard.codes[method, answer.status] += 1
        if answer.status not in ACCEPTABLE[method]:
            self._heard.wrong.append(f"{method} {path}: {answer.status} {answer.body[:300].decode(errors='replace')}")
        elif answer.status == 503 and not answer.retry_after:
            self._heard.wrong.append(f"{method} {path}: 503 without Retry-After")
        return answer
