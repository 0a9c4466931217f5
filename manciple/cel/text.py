"""Functions of texts: cel-go's strings library (version 2), regular expressions, Kubernetes' named formats.

Positions and sizes count code points. A `NamedFormat` says what is wrong with a text.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from manciple.cel.errors import EvaluationError
from manciple.cel.kubernetes import parse_url
from manciple.cel.values import NONE, Optional, Strict, guard_size, optional
from manciple.wire import validation
from manciple.wire.limits import short_text_cache

_UUID = re.compile(r"(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_DATETIME = re.compile(r"(?i)(\d{4}-\d{2}-\d{2})t([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?(z|[+-]\d{2}:\d{2})", re.ASCII)
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")


@dataclass(frozen=True, slots=True, eq=False)
class NamedFormat(Strict):
    name: str
    #: the messages of what is wrong, empty when nothing is
    check: Callable[[str], tuple[str, ...]]
    #: the length of a pattern that could decide it; costs count with it
    pattern_size: int

    def same(self, other: NamedFormat) -> bool:
        return self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)


def _prefix(check: Callable[[str], tuple[str, ...]]) -> Callable[[str], tuple[str, ...]]:
    """The rule for the start of a name: a dash at the end is no fault, something follows it."""

    def check_prefix(text: str) -> tuple[str, ...]:
        return check(text[:-1] + "a" if text.endswith("-") and len(text) > 1 else text)

    return check_prefix


def _check_uri(text: str) -> tuple[str, ...]:
    try:
        parse_url(text)
    except ValueError as error:
        return (str(error).removeprefix("URL parse error during conversion from string: "),)
    return ()


def _matching(pattern: re.Pattern[str], message: str) -> Callable[[str], tuple[str, ...]]:
    return lambda text: () if pattern.fullmatch(text) else (message,)


def _check_byte(text: str) -> tuple[str, ...]:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return ("invalid base64",)
    return () if text and _BASE64.fullmatch(text) else ("invalid base64",)


def _check_date(text: str) -> tuple[str, ...]:
    try:
        if _DATE.fullmatch(text):
            date.fromisoformat(text)
            return ()
    except ValueError:
        pass
    return ("invalid date",)


def _check_datetime(text: str) -> tuple[str, ...]:
    match = _DATETIME.fullmatch(text)
    return () if match and not _check_date(match.group(1)) else ("invalid datetime",)


_DATETIME_PATTERN_SIZE = 70
FORMATS = {
    name: NamedFormat(title, check, size)
    for name, title, check, size in (
        ("dns1123Label", "DNS1123Label", validation.check_dns_label, 30),
        ("dns1123Subdomain", "DNS1123Subdomain", validation.check_dns_subdomain, 60),
        ("dns1035Label", "DNS1035Label", validation.check_dns_1035_label, 30),
        ("qualifiedName", "QualifiedName", validation.check_label_key, 60),
        ("dns1123LabelPrefix", "DNS1123LabelPrefix", _prefix(validation.check_dns_label), 30),
        ("dns1123SubdomainPrefix", "DNS1123SubdomainPrefix", _prefix(validation.check_dns_subdomain), 60),
        ("dns1035LabelPrefix", "DNS1035LabelPrefix", _prefix(validation.check_dns_1035_label), 30),
        ("labelValue", "LabelValue", validation.check_label_value, 40),
        ("uri", "URI", _check_uri, 1310),
        ("uuid", "uuid", _matching(_UUID, "does not match the UUID format"), 84),
        ("byte", "byte", _check_byte, 84),
        ("date", "date", _check_date, _DATETIME_PATTERN_SIZE),
        ("datetime", "datetime", _check_datetime, _DATETIME_PATTERN_SIZE),
    )
}


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


@short_text_cache(1024)
def compiled(pattern: str) -> Any:
    """An RE2 pattern. Raises: EvaluationError."""
    import re2  # noqa: PLC0415 - 2 MiB where no expression has a pattern

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options=options)
    except re2.error as error:
        reason = error.args[0].decode() if isinstance(error.args[0], bytes) else error.args[0]
        raise EvaluationError(f"error parsing regexp: {reason}") from None


def matches(text: str, pattern: str) -> bool:
    return compiled(pattern).search(text) is not None


def find(text: str, pattern: str) -> str:
    match = compiled(pattern).search(text)
    return match.group() if match else ""


def find_all(text: str, pattern: str, count: int = -1) -> list[str]:
    found: list[str] = []
    for match in compiled(pattern).finditer(text):
        if 0 <= count <= len(found):
            break
        found.append(match.group())
    return found


def validate(format_: NamedFormat, text: str) -> Optional:
    messages = format_.check(text)
    return optional(list(messages)) if messages else NONE


def named_format(name: str) -> Optional:
    return optional(FORMATS[name]) if name in FORMATS else NONE


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
    "matches": matches,
    "matches_string": matches,
    "string_find_string": find,
    "string_find_all_string": find_all,
    "string_find_all_string_int": find_all,
    **{f"format.{name}": lambda format_=format_: format_ for name, format_ in FORMATS.items()},
    "format-named": named_format,
    "format-validate": validate,
}
