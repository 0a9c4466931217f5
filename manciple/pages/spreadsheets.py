"""Files for spreadsheets (CSV, RFC 4180)."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

from django.http import HttpResponse

CONTENT_TYPE = "text/csv; charset=utf-8; header=present"
#: What a spreadsheet would begin a formula with.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def safe(cell: Any) -> str:
    """A cell's text; one that a spreadsheet would calculate gets an apostrophe, which makes it text there."""
    text = str(cell)
    return f"'{text}" if text.startswith(_FORMULA) else text


def lines(rows: Iterable[Sequence[str]]) -> str:
    """Rows as text, with CRLF."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\r\n").writerows(rows)
    return text.getvalue()


def csv_answer(name: str, rows: Iterable[Sequence[Any]]) -> HttpResponse:
    """A whole file. name: without its ending; rows: the head first."""
    answer = HttpResponse(lines([*map(safe, row)] for row in rows), content_type=CONTENT_TYPE)
    answer["Content-Disposition"] = f'attachment; filename="{name}.csv"'
    return answer
