"""The timeline as CSV: RFC 4180 in UTF-8, times in RFC 3339, no cell that a spreadsheet would take for a formula."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from asgiref.sync import sync_to_async

from manciple.pages.people import Person
from scheduling.pages.timeline.reading import Timeline

HEADER = (
    "driver", "pool", "device", "node", "class", "namespace", "claim", "claim_uid", "pods", "share_id",
    "consumed_capacity", "from", "to", "seconds",
)  # fmt: skip
#: Rows of the past that are read at a time.
BATCH = 2000
#: What a spreadsheet would begin a formula with.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
#: Who holds a device whose namespace the person does not see.
HIDDEN = "another namespace"


def safe(cell: Any) -> str:
    """A cell's text; one that a spreadsheet would calculate gets an apostrophe, which makes it text there."""
    text = str(cell)
    return f"'{text}" if text.startswith(_FORMULA) else text


def moment_text(at: datetime | None) -> str:
    """RFC 3339 in UTC; empty while it goes on."""
    return at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z") if at else ""


def cells(row: Sequence[Any], person: Person, nodes: Mapping[tuple[str, str], str], now: datetime) -> list[str]:
    """One line of the file, from the columns of `timeline_reading.EXPORTED`."""
    driver, pool, device, device_class, namespace, claim, uid, pods, share, consumed, began, ended = row
    if not person.sees(namespace):
        namespace, claim, uid, pods, share, consumed = HIDDEN, "", "", (), "", {}
    amounts = " ".join(f"{name}={amount}" for name, amount in consumed.items())
    lasted = int(((ended or now) - began).total_seconds())
    return [
        *map(safe, (driver, pool, device, nodes.get((driver, pool), ""), device_class, namespace, claim, uid)),
        safe(" ".join(pods)), safe(share), safe(amounts),
        moment_text(began), moment_text(ended), str(max(lasted, 0)),
    ]  # fmt: skip


def lines(rows: Iterable[Sequence[str]]) -> str:
    """Rows as RFC 4180 text, with CRLF."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\r\n").writerows(rows)
    return text.getvalue()


def parts(timeline: Timeline, drawn: Callable[[Sequence[Any]], list[str]]) -> Iterator[str]:
    """The file, piece by piece: header, what is held now, then the past in batches."""
    yield lines([HEADER])
    yield lines(drawn(row) for row in timeline.rows_now())
    after = 0
    while rows := timeline.rows_past(after=after, limit=BATCH):
        after = rows[-1][0]
        yield lines(drawn(row) for _, row in rows)


async def streamed(pieces: Iterator[str]) -> AsyncIterator[bytes]:
    """`pieces` without holding up the server: each is made in a thread, when the reader wants it."""
    following = sync_to_async(lambda: next(pieces, None))
    while (piece := await following()) is not None:
        yield piece.encode()
