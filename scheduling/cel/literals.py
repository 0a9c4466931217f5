"""What the text of a literal stands for: escapes of strings and bytes, ranges of numbers."""

from __future__ import annotations

import re

MIN_INT = -(2**63)
MAX_INT = 2**63 - 1
MAX_UINT = 2**64 - 1

_SIMPLE = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "`": "`",
    "?": "?",
}
_ESCAPE = re.compile(
    r"\\(?:([abfnrtv\\'\"`?])|([0-3][0-7]{2})|[xX]([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([\s\S]?))"
)
MAX_CODE_POINT = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)


def string_value(text: str) -> str:
    """The string that a literal with its quotes and prefix stands for. Raises: ValueError for a bad escape."""
    raw = text[0] in "rR"
    body = _unquoted(text[1:] if raw else text)
    return body if raw else _ESCAPE.sub(_escaped_text, body)


def bytes_value(text: str) -> bytes:
    """As string_value; \\x and octal escapes are bytes, all else is UTF-8. Raises: ValueError for a bad escape."""
    quoted = text.lstrip("bBrR")
    body = _unquoted(quoted)
    if "r" in text[: len(text) - len(quoted)].lower():
        return body.encode()
    return b"".join(_byte_pieces(body))


def int_value(text: str) -> int:
    """Raises: ValueError beyond 2**63, which only a minus sign makes valid."""
    value = int(text, 16) if text.startswith("0x") else int(text)
    if value > MAX_INT + 1:
        raise ValueError("invalid int literal")
    return value


def uint_value(text: str) -> int:
    """Raises: ValueError beyond 64 bits."""
    digits = text[:-1]
    value = int(digits, 16) if digits.startswith("0x") else int(digits)
    if value > MAX_UINT:
        raise ValueError("invalid uint literal")
    return value


def _unquoted(text: str) -> str:
    # Two quotes alone are the empty text; the grammar lets no third one follow unless three more end it.
    width = 3 if text.startswith(('"""', "'''")) else 1
    return text[width:-width].replace("\r\n", "\n").replace("\r", "\n")


def _escaped_text(match: re.Match[str]) -> str:
    simple, octal, hexadecimal, short, long, unknown = match.groups()
    if simple:
        return _SIMPLE[simple]
    if octal:
        return chr(int(octal, 8))
    if unknown is not None:
        raise ValueError("unable to unescape string")
    code = int(hexadecimal or short or long, 16)
    if code > MAX_CODE_POINT or code in _SURROGATES:
        raise ValueError("invalid unicode code point")
    return chr(code)


def _byte_pieces(body: str) -> list[bytes]:
    pieces: list[bytes] = []
    end = 0
    for match in _ESCAPE.finditer(body):
        pieces.append(body[end : match.start()].encode())
        octal, hexadecimal, short, long = match.group(2, 3, 4, 5)
        if short or long:
            raise ValueError("unable to unescape string")
        pieces.append(
            bytes([int(octal, 8) if octal else int(hexadecimal, 16)])
            if octal or hexadecimal
            else _escaped_text(match).encode()
        )
        end = match.end()
    pieces.append(body[end:].encode())
    return pieces
