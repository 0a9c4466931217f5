"""The formats of texts that structural schemas may ask for, as go-openapi's strfmt reads them. PURE.

`FORMATS` is by the name without hyphens: `date-time` is `datetime`. Others are ignored, as upstream does. Sources:
kube-openapi/pkg/validation/strfmt, apiextensions-apiserver/pkg/apiserver/validation/formats.go.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime

from manciple.cel.kubernetes import parse_url
from manciple.wire.validation import check_dns_label, check_dns_subdomain

Check = Callable[[str], bool]

_HEX = "[0-9a-fA-F]"
_ISBN_WEIGHTS = (1, 3)


def _matches(pattern: str) -> Check:
    compiled = re.compile(pattern)
    return lambda text: compiled.fullmatch(text) is not None


def _passes(parse: Callable[[str], object], *errors: type[Exception]) -> Check:
    def check(text: str) -> bool:
        with suppress(*errors):
            parse(text)
            return True
        return False

    return check


def _uuid(version: str) -> Check:
    variant = "[89abAB]" if version in "45" else _HEX
    middle = f"{version}{_HEX}{{3}}-?{variant}{_HEX}{{3}}"
    return _matches(f"{_HEX}{{8}}-?{_HEX}{{4}}-?{middle}-?{_HEX}{{12}}")


def _isbn10(text: str) -> bool:
    digits = re.sub(r"[\s-]+", "", text)
    if not re.fullmatch(r"[0-9]{9}[0-9X]", digits):
        return False
    return sum((10 if one == "X" else int(one)) * (at + 1) for at, one in enumerate(digits)) % 11 == 0


def _isbn13(text: str) -> bool:
    digits = re.sub(r"[\s-]+", "", text)
    if not re.fullmatch(r"[0-9]{13}", digits):
        return False
    return sum(int(one) * _ISBN_WEIGHTS[at % 2] for at, one in enumerate(digits)) % 10 == 0


def _creditcard(text: str) -> bool:
    digits = re.sub(r"[^0-9]+", "", text)
    pattern = (
        r"4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}"
        r"|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11}"
    )
    if not re.fullmatch(pattern, digits):
        return False
    doubled = [int(one) * (2 if at % 2 else 1) for at, one in enumerate(reversed(digits))]
    return sum(one - 9 if one > 9 else one for one in doubled) % 10 == 0  # noqa: PLR2004 - Luhn's


def _byte(text: str) -> bool:
    with suppress(binascii.Error, ValueError):
        base64.b64decode(text, validate=True)
        return True
    return False


def _email(text: str) -> bool:
    address = re.fullmatch(r"(?:[^<>]*<([^<>]+)>|([^<>\s]+))", text.strip())
    if address is None:
        return False
    return re.fullmatch(r"[^@\s\"(),:;<>\[\\\]]+@[^@\s]+", address[1] or address[2]) is not None


def _date(text: str) -> bool:
    with suppress(ValueError):
        return bool(re.fullmatch(r"\d{4}-\d{2}-\d{2}", text)) and bool(datetime.fromisoformat(text))
    return False


_DATE_TIME = re.compile(
    r"(\d{4}-\d{2}-\d{2})[Tt](\d{2}:\d{2}:\d{2})(?:\.\d+)?(?:[Zz]|[+-]\d{2}:\d{2}|[+-]\d{4})?", re.ASCII
)


def _datetime(text: str) -> bool:
    match = _DATE_TIME.fullmatch(text)
    if match is None:
        return False
    with suppress(ValueError):
        datetime.fromisoformat(f"{match[1]}T{match[2]}")
        return True
    return False


_GO_DURATION = r"[+-]?(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:ns|us|µs|μs|ms|s|m|h))+|[+-]?0"
_WORDS = (
    "ns|nanos?|nanoseconds?|us|µs|micros?|microseconds?|ms|millis?|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|"
    "h|hrs?|hours?|d|days?|w|weeks?|wks?"
)
_duration = _matches(rf"(?:{_GO_DURATION})|[0-9]+\s*(?:{_WORDS})")


def _cidr(text: str) -> bool:
    address, slash, _prefix = text.partition("/")
    return (
        bool(slash)
        and _passes(lambda one: ipaddress.ip_network(one, strict=False), ValueError)(text)
        and "%" not in address
    )


def _mac(text: str) -> bool:
    for parts, digits, separators in (((6, 8, 20), 2, ":-"), ((3, 4, 10), 4, ".")):
        for separator in separators:
            found = text.split(separator)
            if len(found) in parts and all(re.fullmatch(f"{_HEX}{{{digits}}}", one) for one in found):
                return True
    return False


_LABEL = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"

FORMATS: Mapping[str, Check] = {
    "bsonobjectid": _matches(f"{_HEX}{{24}}"),
    "uri": _passes(parse_url, ValueError),
    "email": _email,
    "hostname": lambda text: len(text) <= 255 and re.fullmatch(rf"{_LABEL}(?:\.{_LABEL})*\.?", text) is not None,  # noqa: PLR2004 - RFC 1035's
    "ipv4": _passes(ipaddress.IPv4Address, ValueError),
    "ipv6": _passes(ipaddress.IPv6Address, ValueError),
    "cidr": _cidr,
    "mac": _mac,
    "uuid": _matches(f"{_HEX}{{8}}-?{_HEX}{{4}}-?{_HEX}{{4}}-?{_HEX}{{4}}-?{_HEX}{{12}}"),
    "uuid3": _uuid("3"),
    "uuid4": _uuid("4"),
    "uuid5": _uuid("5"),
    "isbn": lambda text: _isbn10(text) or _isbn13(text),
    "isbn10": _isbn10,
    "isbn13": _isbn13,
    "creditcard": _creditcard,
    "ssn": _matches(r"[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}"),
    "hexcolor": _matches(f"#?(?:{_HEX}{{3}}|{_HEX}{{6}})"),
    "rgbcolor": _matches(r"rgb\(\s*(?:\d{1,3})\s*,\s*(?:\d{1,3})\s*,\s*(?:\d{1,3})\s*\)"),
    "byte": _byte,
    "password": lambda _text: True,
    "date": _date,
    "duration": _duration,
    "datetime": _datetime,
    "k8sshortname": lambda text: not check_dns_label(text),
    "k8slongname": lambda text: not check_dns_subdomain(text),
}
#: Formats of numbers: the least and the greatest.
INTEGERS: Mapping[str, tuple[int, int]] = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}
FLOATS = ("float", "double")


def is_known(format_: str, type_: str) -> bool:
    """Whether a schema of this type may have the format; of others clients are warned."""
    if type_ == "integer":
        return format_ in INTEGERS
    if type_ == "number":
        return format_ in FLOATS
    return type_ in ("", "string") and format_.replace("-", "") in FORMATS
