"""URLs as Go's url.ParseRequestURI takes them apart: absolute, or a path that starts with a slash."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, unquote, unquote_plus

from scheduling.cel.values import Strict

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.%]*\]|[^\[\]\s<>\"^`{|}\\]*?)(?::[0-9]*)?")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True, eq=False)
class Url(Strict):
    text: str
    scheme: str
    host: str
    path: str
    query: str

    def same(self, other: Url) -> bool:
        return self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    @property
    def hostname(self) -> str:
        if self.host.startswith("["):
            return self.host[1:].partition("]")[0]
        return self.host.partition(":")[0]

    @property
    def port(self) -> str:
        rest = self.host.rpartition("]")[2] if self.host.startswith("[") else self.host
        return rest.partition(":")[2]

    @property
    def escaped_path(self) -> str:
        """The path as it was written, where that is a valid escaping of it."""
        return quote(self.path, safe="/%:@!$&'()*+,;=~-._[]")

    def parameters(self) -> dict[str, list[str]]:
        """Every value of every parameter of the query, in order; a pair with a bad escape is left out."""
        found: dict[str, list[str]] = {}
        for pair in filter(None, self.query.split("&")):
            if ";" not in pair and not _BAD_ESCAPE.search(pair):
                name, _, value = pair.partition("=")
                found.setdefault(unquote_plus(name), []).append(unquote_plus(value))
        return found


def parse_url(text: str) -> Url:
    """Raises: ValueError with Kubernetes' message."""
    reason = _refusal(text)
    if reason:
        raise ValueError(f'URL parse error during conversion from string: parse "{text}": {reason}')
    scheme, rest = _split_scheme(text)
    rest, _, query = rest.partition("?")
    host = ""
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        rest = slash + path
        host = unquote(host.rpartition("@")[2])
    return Url(text, scheme, host, rest, query)


def _split_scheme(text: str) -> tuple[str, str]:
    match = _SCHEME.fullmatch(text)
    return (match.group(1).lower(), match.group(2)) if match else ("", text)


def _refusal(text: str) -> str:
    """Why the text is no URL, or ""."""
    scheme, rest = _split_scheme(text)
    before_query = rest.partition("?")[0]
    authority = before_query[2:].partition("/")[0].rpartition("@")[2] if before_query.startswith("//") else ""
    faults = (
        (not text, "empty url"),
        (_CONTROL.search(text), "net/url: invalid control character in URL"),
        (text.startswith(":"), "missing protocol scheme"),
        (not scheme and not text.startswith("/"), "invalid URI for request"),
        (not before_query.startswith("/"), "invalid URI for request"),
        (_BAD_ESCAPE.search(before_query), "invalid URL escape"),
        (not _HOST.fullmatch(authority), "invalid character in host name"),
    )
    return next((reason for is_wrong, reason in faults if is_wrong), "")
