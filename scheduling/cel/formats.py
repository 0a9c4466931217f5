"""The named string formats of Kubernetes' CEL library: each says what is wrong with a text."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date

from manciple.wire import names
from scheduling.cel.urls import parse_url
from scheduling.cel.values import Strict

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
        ("dns1123Label", "DNS1123Label", names.check_dns_label, 30),
        ("dns1123Subdomain", "DNS1123Subdomain", names.check_dns_subdomain, 60),
        ("dns1035Label", "DNS1035Label", names.check_dns_1035_label, 30),
        ("qualifiedName", "QualifiedName", names.check_label_key, 60),
        ("dns1123LabelPrefix", "DNS1123LabelPrefix", _prefix(names.check_dns_label), 30),
        ("dns1123SubdomainPrefix", "DNS1123SubdomainPrefix", _prefix(names.check_dns_subdomain), 60),
        ("dns1035LabelPrefix", "DNS1035LabelPrefix", _prefix(names.check_dns_1035_label), 30),
        ("labelValue", "LabelValue", names.check_label_value, 40),
        ("uri", "URI", _check_uri, 1310),
        ("uuid", "uuid", _matching(_UUID, "does not match the UUID format"), 84),
        ("byte", "byte", _check_byte, 84),
        ("date", "date", _check_date, _DATETIME_PATTERN_SIZE),
        ("datetime", "datetime", _check_datetime, _DATETIME_PATTERN_SIZE),
    )
}
