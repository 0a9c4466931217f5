"""The string functions: cel-go's strings library, version 2. Positions and sizes count code points."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from scheduling.cel.errors import EvaluationError
from scheduling.cel.functions.operators import guard_size
from scheduling.cel.functions.printf import format_text

#: The white space that trim() takes away (Unicode's White_Space).
_SPACE = "".join(
    map(chr, [*range(9, 14), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000])
)
_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_UPPER = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}
_QUOTED = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
    '"': '\\"',
}


def _out_of_range(position: int) -> EvaluationError:
    return EvaluationError(f"index out of range: {position}")


def char_at(text: str, position: int) -> str:
    if not 0 <= position <= len(text):
        raise _out_of_range(position)
    return text[position : position + 1]


def index_of(text: str, part: str, start: int = 0) -> int:
    if not part:
        return start
    if not 0 <= start < max(len(text), 1):
        raise _out_of_range(start)
    return text.find(part, start)


def last_index_of(text: str, part: str, last: int | None = None) -> int:
    """The last place at which `part` begins, at or before `last`."""
    if last is None:
        return text.rfind(part) if part else len(text)
    if not part:
        return last
    if not 0 <= last < max(len(text), 1):
        raise _out_of_range(last)
    return text.rfind(part, 0, last + len(part))


def replace(text: str, old: str, new: str, count: int = -1) -> str:
    occurrences = text.count(old) if old else len(text) + 1
    guard_size(len(text) + (min(occurrences, count) if count >= 0 else occurrences) * len(new))
    return text.replace(old, new, count)


def split(text: str, separator: str, count: int = -1) -> list[str]:
    """At most `count` pieces, the last one unsplit; all where it is negative."""
    if count == 0:
        return []
    if not separator:
        pieces = list(text)
        return pieces if count < 0 or len(pieces) <= count else [*pieces[: count - 1], "".join(pieces[count - 1 :])]
    return text.split(separator, count - 1 if count > 0 else -1)


def substring(text: str, start: int, end: int | None = None) -> str:
    if end is None:
        end = len(text)
        if not 0 <= start <= end:
            raise _out_of_range(start)
    if start > end:
        raise EvaluationError(f"invalid substring range. start: {start}, end: {end}")
    if start < 0 or start > len(text):
        raise _out_of_range(start)
    if end > len(text):
        raise _out_of_range(end)
    return text[start:end]


def join(parts: list[Any], separator: str = "") -> str:
    if not all(type(part) is str for part in parts):
        raise EvaluationError("join: list elements must be strings")
    guard_size(sum(map(len, parts)) + len(separator) * len(parts))
    return separator.join(parts)


def quote(text: str) -> str:
    guard_size(2 * len(text))
    return f'"{"".join(_QUOTED.get(character, character) for character in text)}"'


IMPLEMENTATIONS: Mapping[str, Callable[..., Any]] = {
    "contains_string": lambda text, part: part in text,
    "ends_with_string": str.endswith,
    "starts_with_string": str.startswith,
    "string_char_at_int": char_at,
    "string_index_of_string": index_of,
    "string_index_of_string_int": index_of,
    "string_last_index_of_string": last_index_of,
    "string_last_index_of_string_int": last_index_of,
    "string_lower_ascii": lambda text: text.translate(_LOWER),
    "string_upper_ascii": lambda text: text.translate(_UPPER),
    "string_replace_string_string": replace,
    "string_replace_string_string_int": replace,
    "string_split_string": split,
    "string_split_string_int": split,
    "string_substring_int": substring,
    "string_substring_int_int": substring,
    "string_trim": lambda text: text.strip(_SPACE),
    "list_join": join,
    "list_join_string": join,
    "strings_quote": quote,
    "string_format": format_text,
}
