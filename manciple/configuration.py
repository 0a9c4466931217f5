"""The configuration file (TOML), and refusing what is wrong with it or with the environment before anything starts.

    audit_days = 30                         # MANCIPLE_AUDIT_DAYS
    database_url = {file = "/run/secrets/database-url"}

    [oidc]                                  # a table's name goes before those of its keys: MANCIPLE_OIDC_ISSUER_URL
    issuer_url = "https://idp.example.org"

    [feature_gates]                         # settings of pairs are tables
    DRAListTypeAttributes = true

The settings are declared in `manciple.declared_settings`. The file's values become part of the environment, where
nothing is set yet, before Django's settings are read: a value from the environment wins, and no other module knows of
the file. Standard library only.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from manciple.declared_settings import PREFIX, SETTINGS, Setting

#: Names the file. Empty: none.
VARIABLE: Final = f"{PREFIX}CONFIG"
#: The file of an installed `manciple`, unless another one is named.
USUAL: Final = Path("/etc/manciple/manciple.toml")
_BY_KEY: Final[Mapping[str, Setting[Any]]] = {setting.key: setting for setting in SETTINGS.values()}


class ConfigurationRefused(Exception):
    """Nothing starts with such settings. problems: a sentence each, with the setting and where its value comes from."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


# The file -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ConfigurationFile:
    """The file's values: name of the setting -> value, as the environment would have it."""

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
    if wrong := setting.problem(value):
        raise ValueError(wrong)
    return setting.name, value


def _text(setting: Setting[Any], raw: Any) -> str:
    """As the environment would have it. Raises: ValueError, OSError."""
    match raw:
        case {"file": str(path)} if len(raw) == 1:
            return Path(path).read_text().strip()
        case dict() if setting.type.pairs:
            return setting.type.separator.join(f"{name}={_pair_value(value)}" for name, value in raw.items())
        case list() if setting.type.separator:
            return setting.type.separator.join(_scalar(one) for one in raw)
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
        if value is not None and (wrong := setting.problem(value)):
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
