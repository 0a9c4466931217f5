"""Takes secrets out of texts: those that this installation has, wherever they stand, and whatever looks like one.

What is told is chosen so that no secret should be among it; this is the second line.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from django.db import DatabaseError, InterfaceError
from django.urls import get_resolver

from manciple import configuration
from manciple.access.authentication import tokens
from manciple.access.authorization import routes
from manciple.access.kinds.secrets import Secret
from manciple.api import kubeconfig
from manciple.declared_settings import SETTINGS
from manciple.notifications.addresses import SECRET_MARK, secret_of, url_of
from manciple.notifications.models import NotificationAddress
from manciple.processes.home import Home
from manciple.store import history
from manciple.store.sealing import Undecipherable

REMOVED: Final = "[removed]"
#: Shorter values are words: to take them out would tell nothing and spoil everything.
SHORTEST: Final = 6
#: Names whose value is a secret, in whatever notation: `X_TOKEN=...`, `"password": "..."`, `?code=...`.
_NAMES: Final = (
    r"[\w-]*(?:password|passwd|passphrase|secret|token|credential|api[_-]?key|access[_-]?key|private[_-]?key|key-data"
    r"|session[_-]?(?:id|key)|csrf\w*|signature)[\w-]*"
)
#: What secrets look like, whoever's they are. The first group of a pattern, where it has one, is kept.
_PATTERNS: Final = (
    re.compile(
        r"-----BEGIN [A-Z ]*PRIVATE KEY[A-Z ]*-----.*?(?:-----END [A-Z ]*PRIVATE KEY[A-Z ]*-----|\Z)", re.DOTALL
    ),
    re.compile(r"(?i)(?<=bearer )[A-Za-z0-9._~+/=-]{8,}"),
    re.compile(r"(?i)(?<=basic )[A-Za-z0-9+/=_-]{8,}"),
    re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"),
    re.compile(r"\b[a-z0-9]{6}\.[a-z0-9]{16}\b"),
    re.compile(rf"\b{re.escape(tokens.PREFIX)}[A-Za-z0-9]{{16,}}"),
    re.compile(rf"\b{re.escape(SECRET_MARK)}[A-Za-z0-9_+/=-]{{8,}}"),
    # Django's tokens of links, and what it signs.
    re.compile(r"\b[a-z0-9]{6,7}-[0-9a-f]{32,64}\b"),
    re.compile(r"(?<![\w-])[\w.-]+:[A-Za-z0-9]{6}:[A-Za-z0-9_-]{43}(?![\w-])"),
    re.compile(r"(?<=://)[^\s/@:\"']*:[^\s/@\"']+(?=@)"),
    re.compile(r"(?<=://)[^\s/@:\"']{8,}(?=@)"),
    re.compile(r"(?i)(\b(?:set-)?cookie[\"']?\s*[:=]\s*[\"']?)[^\s\"'][^\n\"']*"),
    # In double quotes that JSON within JSON has escaped, in double quotes, in single ones, in none.
    re.compile(rf"(?i)(\b{_NAMES}(\\+)[\"']\s*[:=]\s*\\+\")(?!\[removed\])(?:(?!\2\")[^\n]){{4,}}"),
    re.compile(rf"(?i)(\b{_NAMES}[\"']?\s*[:=]\s*\")(?!\[removed\])(?:\\.|[^\n\"\\]){{6,}}"),
    re.compile(rf"(?i)(\b{_NAMES}[\"']?\s*[:=]\s*')(?!\[removed\])[^\n']{{6,}}"),
    re.compile(rf"(?i)(\b{_NAMES}\\*[\"']?\s*[:=]\s*\\*[\"']?)(?!\[removed\])[^\s&\"',;}}\]\\]{{6,}}"),
    # Options of programs: `--token VALUE`, as a shell or a list of words has it.
    re.compile(
        rf"(?i)(?<![\w-])(--?{_NAMES}\\*[\"']?(?:,\s*|\s+|=)\\*)"
        r"(?![\"']?(?:\[removed\]|-))(?:\"[^\n\"]*|'[^\n']*|[^\s\"',\\]+)"
    ),
    re.compile(r"((?<![\w-])(?:-u|--user)[ =][\"']?[^\s:\"']+:)[^\s\"'\\]+"),
    # An Authorization header of any scheme; those of Digest and AWS4 have parameters in quotes.
    re.compile(r"(?i)(\bauthorization\\*[\"']?\s*[:=]\s*\\*[\"']?(?:digest|aws4[\w-]*)\s+)[^\n]+"),
    re.compile(r"(?i)(\bauthorization\\*[\"']?\s*[:=]\s*\\*[\"']?(?:[a-z][\w-]*[ ]+)?)(?!\[removed\])[^\s\"'\\]{8,}"),
    # Credentials of GitHub, GitLab, Slack and AWS.
    re.compile(r"\b(?:gh[opusr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}|xox[a-z]-[\w-]{8,})"),
    re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}"),
    re.compile(r"(?i)(\baws\W[^\n]{0,40}?key[^\n]{0,12}?(?<![A-Za-z0-9/+]))[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+])"),
    re.compile(r"(?i)([?&](?:code|state|sig|key|auth)=)[^\s&\"']+"),
    # Keys of sessions, of which the database has digests alone; digests have no letter beyond f.
    re.compile(r"\b(?=[a-z0-9]*[g-z])(?=[a-z0-9]*[0-9])[a-z0-9]{32}\b"),
    # Webhooks are known by their address alone.
    re.compile(r"(?i)(https?://[^\s/\"']*hook[^\s/\"']*/)[^\s\"']+"),
    re.compile(r"(?i)(https?://[^\s\"'?]*/(?:web)?hooks?/)[^\s\"']+"),
)


def _link_patterns() -> Iterator[re.Pattern[str]]:
    """Every address of a page that carries a token: all after the part that never changes is a secret."""
    for route, _ in routes(get_resolver().url_patterns):
        fixed, parameter, rest = route.partition("<")
        if parameter and re.search(r"\b(?:\w+:)?\w*token>", parameter + rest):
            yield re.compile(rf"(/{re.escape(fixed)})[^\s\"'<>]+")


class Scrubber:
    """secrets: texts to take out."""

    def __init__(self, secrets: Iterable[str]) -> None:
        known = {one for secret in secrets for one in (secret, secret.strip()) if len(one) >= SHORTEST}
        # The longest first: one may be a part of another.
        listed = sorted(known, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, listed))) if listed else None
        self._links = tuple(_link_patterns())

    def scrub(self, text: str) -> str:
        if self._known is not None:
            text = self._known.sub(REMOVED, text)
        for pattern in (*self._links, *_PATTERNS):
            text = pattern.sub(rf"\1{REMOVED}" if pattern.groups else REMOVED, text)
        return text

    def scrub_leaves(self, value: Any) -> Any:
        """The same of every text in something that becomes JSON: there, escapes would hide what a secret looks like."""
        if isinstance(value, Mapping):
            return {self.scrub(str(key)): self.scrub_leaves(one) for key, one in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.scrub_leaves(one) for one in value]
        return value if value is None or isinstance(value, (bool, int, float)) else self.scrub(str(value))


def secrets_of_installation(home: Home) -> Iterator[str]:
    """All that this process can find."""
    yield from _of_settings()
    yield from _of_home(home)
    yield from _of_objects()
    yield from _of_people()


def _of_settings() -> Iterator[str]:
    """The environment has what a configuration file says, too."""
    file = configuration.file_of(os.environ)
    for setting in SETTINGS.values():
        if not setting.secret:
            continue
        for value in (os.environ.get(setting.name, ""), file.values.get(setting.name, "") if file else ""):
            yield from value.split(",")
            password = urlsplit(value).password if "://" in value else None
            if password:
                yield from (password, unquote(password))


def _of_home(home: Home) -> Iterator[str]:
    for path in (home.secret_key, home.encryption_keys):
        if path.is_file():
            yield from path.read_text(errors="replace").split()
    passwords = home.path / "demo-people"
    if passwords.is_file():
        yield from (line.partition(" ")[2] for line in passwords.read_text(errors="replace").splitlines())
    configs = [home.kubeconfig, home.kubeconfig_user, *home.path.glob("nodes/*/kubeconfig")]
    for path in configs:
        if path.is_file() and (token := kubeconfig.read_token(path.read_text(errors="replace"))):
            yield token
    for path in _keys(home.path):
        yield from (line for line in path.read_text(errors="replace").splitlines() if not line.startswith("-----"))


def _keys(folder: Path) -> Iterator[Path]:
    yield from folder.glob("*.key")
    yield from folder.glob("nodes/*/*.pem")


def _of_objects() -> Iterator[str]:
    """Of Secrets: as they stand in documents, and what that means."""
    with suppress(DatabaseError, InterfaceError):
        for secret in history.each("secrets", Secret):
            for value in secret.data.values():
                yield value
                with suppress(binascii.Error, UnicodeDecodeError):
                    yield base64.b64decode(value).decode()


def _of_people() -> Iterator[str]:
    """What people's notifications are sent to: an address may be all that a webhook asks for."""
    with suppress(DatabaseError, InterfaceError):
        for address in NotificationAddress.objects.exclude(webhook=""):
            with suppress(Undecipherable):
                url = url_of(address)
                parts = urlsplit(url)
                yield from (url, f"{parts.path}?{parts.query}" if parts.query else parts.path)
            with suppress(Undecipherable):
                yield secret_of(address)
