"""JSON that another server sent, which may be anything: opaque parameters may nest ten thousand deep, and decoders give
up long before. What is deeper than `DEEPEST` is then read as null, so that one object costs only its own depths.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

T = TypeVar("T")

#: Objects and lists within each other: an object of the API has about ten.
DEEPEST: Final = 100
_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]')


class Malformed(Exception):
    """It is not what was expected."""


def decoded(decode: Callable[[bytes], T], text: bytes) -> T:
    """Raises: Malformed."""
    try:
        try:
            return decode(text)
        except RecursionError:
            return decode(cut(text))
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Malformed(str(error)) from error


def cut(text: bytes) -> bytes:
    """With null in place of what is deeper than `DEEPEST`."""
    parts, depth, begin = list[bytes](), 0, 0
    for token in _TOKEN.finditer(text):
        if token[0] in b"[{":
            depth += 1
            if depth == DEEPEST + 1:
                parts += (text[begin : token.start()], b"null")
        elif token[0] in b"]}":
            if depth == DEEPEST + 1:
                begin = token.end()
            depth -= 1
    return b"".join((*parts, text[begin:]))
