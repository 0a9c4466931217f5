"""Every setting of an installation: its name, what its value may be, and a file (TOML) that may say it.

    audit_days = 30                         # MANCIPLE_AUDIT_DAYS
    database_url = {file = "/run/secrets/database-url"}

    [oidc]                                  # a table's name goes before those of its keys: MANCIPLE_OIDC_ISSUER_URL
    issuer_url = "https://idp.example.org"

    [feature_gates]                         # settings of pairs are tables
    DRAListTypeAttributes = true

Whatever the file says becomes part of the environment, where nothing is set yet, before Django's settings are read; so
a value from the environment wins, and nobody else knows of the file. Standard library only.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

PREFIX: Final = "MANCIPLE_"
#: Names the file. Empty: none.
VARIABLE: Final = "MANCIPLE_CONFIG"
#: Where an installed `manciple` looks for it unless told otherwise.
USUAL: Final = Path("/etc/manciple/manciple.toml")

#: Value -> what it must be, for a sentence with the setting's name before it; "" where it is that.
Check = Callable[[str], str]


def _anything(_value: str) -> str:
    return ""


#: Of a setting that has no meaning when it is empty.
_EMPTY: Final = "is empty: leave it out for its default"


def something(value: str) -> str:
    return "" if value.strip(" ,") else _EMPTY


#: Characters of a key that signs or encrypts.
SHORTEST_KEY: Final = 16


def key(value: str) -> str:
    """Where one is needed, settings say."""
    return f"must have {SHORTEST_KEY} characters at least" if 0 < len(value.strip()) < SHORTEST_KEY else ""


def newest_key(value: str) -> str:
    """Of several keys the first one; older ones only open what they encrypted."""
    return key(value.strip(" ,").partition(",")[0])


def number(value: str) -> str:
    if not value:
        return _EMPTY
    try:
        float(value)
    except ValueError:
        return f"must be a number, not {value!r}"
    return "" if float(value) >= 0 else f"must be 0 or more, not {value}"


def whole_number(value: str) -> str:
    if not value:
        return _EMPTY
    return "" if value.isdecimal() else f"must be a whole number, 0 or more, not {value!r}"


def switch(value: str) -> str:
    return "" if value.strip() in ("", "0", "1") else f"must be 0 or 1, not {value!r}"


def one_of(*choices: str) -> Check:
    def check(value: str) -> str:
        if not value:
            return _EMPTY
        return "" if value in choices else f"must be one of {', '.join(choices)}, not {value!r}"

    return check


#: The placement policies that have a short name -> where each is declared (`scheduling.placement.policies`).
PLACEMENT_POLICIES: Final[Mapping[str, str]] = {
    "first-fit": "scheduling.placement.policies.FIRST_FIT",
    "pack": "scheduling.placement.policies.PACK",
    "spread": "scheduling.placement.policies.SPREAD",
    "best-fit": "scheduling.placement.policies.BEST_FIT",
    "fragmentation": "scheduling.placement.fragmentation.policy.POLICY",
}


def placement_policy(value: str) -> str:
    if not value:
        return _EMPTY
    is_dotted_path = "." in value and all(part.isidentifier() for part in value.split("."))
    if value in PLACEMENT_POLICIES or is_dotted_path:
        return ""
    return f"must be one of {', '.join(PLACEMENT_POLICIES)}, or the dotted path of another policy, not {value!r}"


def url_of(*schemes: str) -> Check:
    def check(value: str) -> str:
        known = not value or value.startswith(tuple(f"{scheme}://" for scheme in schemes))
        return "" if known else f"must begin with {' or '.join(f'{scheme}://' for scheme in schemes)}"

    return check


def address(value: str) -> str:
    host, colon, port = value.rpartition(":")
    return "" if not value or (host and colon and port.isdecimal()) else f"must be HOST:PORT, not {value!r}"


@dataclass(frozen=True, slots=True)
class DeclaredSetting:
    """check: of one value. secret: never shown. separator: between several, which the file lists; "" for one value.

    pairs: each of these is NAME=VALUE, which the file has as a table. attribute: of Django's settings, which has the
    value in effect; "" for what is read elsewhere.
    """

    name: str
    check: Check = _anything
    secret: bool = False
    separator: str = ""
    pairs: bool = False
    attribute: str = ""

    @property
    def key(self) -> str:
        """In the file."""
        return self.name.removeprefix(PREFIX).lower()


def _settings() -> Iterator[DeclaredSetting]:
    def one(name: str, check: Check = _anything, attribute: str = "", *, secret: bool = False) -> DeclaredSetting:
        return DeclaredSetting(PREFIX + name, check, secret, attribute=attribute or name)

    def several(
        name: str, attribute: str = "", check: Check = _anything, *, pairs: bool = False, secret: bool = False
    ) -> DeclaredSetting:
        return DeclaredSetting(PREFIX + name, check, secret, ",", pairs, attribute or name)

    yield one("HOME")
    yield one("DATABASE_URL", url_of("postgresql", "postgres"), secret=True)
    yield one("REDIS_URL", url_of("redis", "rediss", "unix"), secret=True)
    yield one("SECRET_KEY", key, secret=True)
    yield several("ENCRYPTION_KEYS", check=newest_key, secret=True)
    yield one("CA_FILE", something)
    yield one("SERVICE_ACCOUNT_ISSUER", something)
    yield one("EXTEND_POD_TOKENS", switch)
    yield one("SECURE_COOKIES", switch, "SESSION_COOKIE_SECURE")
    yield several("ALLOWED_HOSTS", check=something)
    yield one("PAGES_URL", url_of("http", "https"))
    yield one("API_URL", url_of("https", "http"))
    yield DeclaredSetting(PREFIX + "INVITATION_HOURS", number)
    yield DeclaredSetting(PREFIX + "SESSION_HOURS", number)
    yield one("HSTS_SECONDS", whole_number, "SECURE_HSTS_SECONDS")
    for name in ("TOKEN_DAYS", "TOKEN_MAX_DAYS", "AUDIT_DAYS", "AUDIT_SYSTEM_DAYS", "CERTIFICATE_DAYS"):
        yield one(name, number)
    yield one("CLIENT_CA", something, "CLIENT_CA_FILE")
    yield one("CLIENT_CA_KEY", something, "CLIENT_CA_KEY_FILE")
    for name in ("AUDIT_ENTRIES", "AUDIT_REFUSALS"):
        yield one(name, whole_number)
    yield one("AUDIT_LOG")
    yield one("BACKUP_DIR")
    yield one("BACKUP_HOURS", number)
    yield from _provider_and_proxy(one, several)
    yield from _limits_of_requests(one)
    yield one("LOCK_TIMEOUT", number)
    yield several("FEATURE_GATES", pairs=True)
    yield several("RUNTIME_CONFIG", pairs=True)
    for name in ("FILTER_TIMEOUT", "SEARCH_SLICE", "BINDING_TIMEOUT"):
        yield one(name, number, f"SCHEDULER_{name}")
    yield one("PLACEMENT", placement_policy, "SCHEDULER_PLACEMENT")
    yield one("DEMANDS", attribute="SCHEDULER_DEMANDS")
    yield one("FAIRNESS_SECONDS", number, "SCHEDULER_FAIRNESS")
    yield one("FAIR_SHARE", switch, "SCHEDULER_FAIR_SHARE")
    yield one("DEFRAGMENTATION", switch, "SCHEDULER_DEFRAGMENTATION")
    yield one("LOCAL_CONNECTIONS", switch)
    yield several("FORBIDDEN_NETWORKS")
    yield several("WEBHOOK_NETWORKS")
    yield DeclaredSetting(PREFIX + "MAIL_URL", url_of("smtp", "smtps"), secret=True)
    yield one("MAIL_FROM", attribute="DEFAULT_FROM_EMAIL")
    yield from _what_may_be_written(one, several)
    yield one("METRICS_LISTEN", address)
    yield DeclaredSetting(PREFIX + "TRACES_ENDPOINT", url_of("http", "https"))
    yield DeclaredSetting(PREFIX + "TRACES_PART", number)
    yield one("LOG_FORMAT", one_of("text", "json"))
    yield DeclaredSetting(PREFIX + "LOG_LEVEL", one_of("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"))


def _limits_of_requests(one: Callable[..., DeclaredSetting]) -> Iterator[DeclaredSetting]:
    for name in ("API_THREADS", "NODE_THREADS", "PAGE_THREADS", "CONNECTIONS"):
        yield one(name, whole_number)
    for name in (
        "REQUEST_QUEUE",
        "IDENTITY_QUEUE",
        "IDENTITY_WATCHES",
        "WRITE_RATE",
        "WRITE_BURST",
        "LOG_BYTES",
        "DATABASE_BYTES",
        "DATABASE_RESERVE",
    ):
        yield one(name, whole_number)
    for name in ("API_WORK_SECONDS", "PAGE_WORK_SECONDS", "IDENTITY_RATE", "HEAD_SECONDS", "BODY_SECONDS"):
        yield one(name, number)


def _what_may_be_written(
    one: Callable[..., DeclaredSetting], several: Callable[..., DeclaredSetting]
) -> Iterator[DeclaredSetting]:
    yield one("DRIVER_RESTRICTION", switch)
    yield several("LIMITED_PRIORITY_CLASSES")
    yield several("POD_SECURITY", pairs=True)
    yield several("POD_SECURITY_EXEMPT_NAMESPACES")


def _provider_and_proxy(
    one: Callable[..., DeclaredSetting], several: Callable[..., DeclaredSetting]
) -> Iterator[DeclaredSetting]:
    yield one("OIDC_ISSUER_URL", url_of("https"), "OIDC_ISSUER")
    for name in ("NAME", "USERNAME_CLAIM"):
        yield one(f"OIDC_{name}", something)
    for name in ("CLIENT_ID", "CA_FILE", "USERNAME_PREFIX", "GROUPS_CLAIM", "GROUPS_PREFIX"):
        yield one(f"OIDC_{name}")
    yield one("OIDC_CLIENT_SECRET", secret=True)
    yield several("OIDC_REQUIRED_CLAIMS", pairs=True)
    yield several("OIDC_SIGNING_ALGS", "OIDC_ALGORITHMS", something)
    yield DeclaredSetting(PREFIX + "OIDC_SCOPES", separator=" ", attribute="OIDC_SCOPES")
    yield one("ADMINISTRATORS_GROUP")
    yield one("PROXY_USER_HEADER")
    yield one("PROXY_GROUP_HEADER")
    yield several("PROXY_ADDRESSES")
    yield several("PROXY_CERTIFICATE_NAMES")
    yield one("PROXY_SECRET", secret=True)


#: By name.
SETTINGS: Final[Mapping[str, DeclaredSetting]] = {setting.name: setting for setting in _settings()}
_BY_KEY: Final[Mapping[str, DeclaredSetting]] = {setting.key: setting for setting in SETTINGS.values()}


class ConfigurationRefused(Exception):
    """Nothing starts with such settings. problems: one sentence each, with the setting and where it was said."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


# The file -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ConfigurationFile:
    """What a file says: name of the setting -> value, as the environment would have it."""

    path: Path
    values: Mapping[str, str]
    problems: tuple[str, ...]


def read(path: Path) -> ConfigurationFile:
    """Never raises: what is wrong is among the problems."""
    try:
        document = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        return ConfigurationFile(path, {}, (f"{path} cannot be read: {reason}",))
    values: dict[str, str] = {}
    problems: list[str] = []
    for key, raw in _entries(document):
        try:
            name, value = _entry(key, raw, values)
            values[name] = value
        except (ValueError, OSError) as error:
            problems.append(f"{path}: {key} {error}")
    return ConfigurationFile(path, values, tuple(problems))


def _entries(table: Mapping[str, Any], within: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """(dotted key, value), tables within tables first taken apart."""
    for name, value in table.items():
        place = (*within, name)
        if isinstance(value, dict) and "_".join(place) not in _BY_KEY:
            yield from _entries(value, place)
        else:
            yield ".".join(place), value


def _entry(key: str, raw: Any, known: Mapping[str, str]) -> tuple[str, str]:
    """Raises: ValueError, OSError for a key or a value that cannot be."""
    setting = _BY_KEY.get(key.replace(".", "_"))
    if setting is None:
        close = difflib.get_close_matches(key.replace(".", "_"), _BY_KEY, n=1)
        raise ValueError(f"is not a setting{f'; did you mean {close[0]}?' if close else ''}")
    if setting.name in known:
        raise ValueError("is said twice")
    value = _text(setting, raw)
    if wrong := setting.check(value):
        raise ValueError(wrong)
    return setting.name, value


def _text(setting: DeclaredSetting, raw: Any) -> str:
    """As the environment would have it. Raises: ValueError, OSError."""
    match raw:
        case {"file": str(path)} if len(raw) == 1:
            return Path(path).read_text().strip()
        case dict() if setting.pairs:
            return setting.separator.join(f"{name}={_pair_value(value)}" for name, value in raw.items())
        case list() if setting.separator:
            return setting.separator.join(_scalar(one) for one in raw)
        case dict() | list():
            raise ValueError('must be one value, or {file = "PATH"} to read it from there')
    return _scalar(raw)


def _pair_value(raw: Any) -> str:
    return str(raw).lower() if isinstance(raw, bool) else _scalar(raw)


def _scalar(raw: Any) -> str:
    if isinstance(raw, bool):
        return str(int(raw))
    if isinstance(raw, str | int | float):
        return str(raw)
    raise ValueError(f"must be text or a number, not {raw!r}")


# Into effect ----------------------------------------------------------------------------------------------------------


def file_of(environment: Mapping[str, str]) -> ConfigurationFile | None:
    """The one that the environment names."""
    named = environment.get(VARIABLE, "").strip()
    return read(Path(named)) if named else None


def in_environment(environment: Mapping[str, str]) -> Iterator[str]:
    """What is wrong with the values there."""
    for setting in SETTINGS.values():
        value = environment.get(setting.name)
        if value is not None and (wrong := setting.check(value)):
            yield f"{setting.name} {wrong}"


def apply(environment: MutableMapping[str, str] = os.environ) -> None:
    """Bring what the file says into the environment. May be called again.

    Raises: ConfigurationRefused with everything that is wrong, in the file and in the environment.
    """
    file = file_of(environment)
    problems = [*(file.problems if file else ()), *in_environment(environment)]
    if problems:
        raise ConfigurationRefused(problems)
    for name, value in (file.values if file else {}).items():
        environment.setdefault(name, value)
