"""`manciple config check`: is the configuration right, what is in effect, and where does each value come from.

First the file and the environment are read by themselves, so that everything wrong is told at once; then Django's
settings are made of them, which refuse what only makes sense together. Exits with 1 where anything is wrong.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import ModuleType
from typing import Any

from manciple import configuration
from manciple.configuration import VARIABLE, ConfigurationFile
from manciple.declared_settings import PREFIX, SETTINGS, Setting

#: Where a value comes from, besides the path of a file.
ENVIRONMENT, DEFAULT = "environment", "default"
#: Of an address: user and password before the host, and a password behind it.
_PASSWORDS = re.compile(r"(?<=://).*@|(?<=password=)[^&]*")


@dataclass(frozen=True, slots=True)
class InEffect:
    """One setting. value: as people may see it."""

    name: str
    value: str
    source: str


@dataclass(frozen=True, slots=True)
class CheckedConfiguration:
    """problems: nothing starts with them. warnings: it starts, and something may not be as it was meant."""

    file: str
    settings: tuple[InEffect, ...]
    problems: tuple[str, ...]
    warnings: tuple[str, ...]


def parser() -> argparse.ArgumentParser:
    command = argparse.ArgumentParser(
        prog="manciple config", description="Checks the configuration file and the environment."
    )
    actions = command.add_subparsers(dest="action", required=True)
    check = actions.add_parser("check", help="what is wrong, what is in effect and where it comes from")
    check.add_argument("--json", action="store_true", help="as JSON")
    return command


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    checked = checked_configuration(os.environ)
    print(json.dumps(asdict(checked), indent=2) if options.json else text(checked))
    return 1 if checked.problems else 0


def checked_configuration(environment: Mapping[str, str]) -> CheckedConfiguration:
    """Imports Django's settings where nothing is wrong so far."""
    given = dict(environment)
    file = configuration.file_of(given)
    problems = [*(file.problems if file else ()), *configuration.in_environment(given)]
    settings, refused = (None, "") if problems else _django_settings()
    in_effect = [_in_effect(setting, given, file, settings) for setting in SETTINGS.values()]
    return CheckedConfiguration(
        file=str(file.path) if file else "",
        settings=tuple(in_effect),
        problems=(*problems, *filter(None, [refused])),
        warnings=(*_warnings(given, file), *_empty(in_effect, settings)),
    )


def _django_settings() -> tuple[ModuleType | None, str]:
    """Or why there are none."""
    from django.core.exceptions import ImproperlyConfigured  # noqa: PLC0415 - only where it is needed

    try:
        from manciple import settings  # noqa: PLC0415 - they are made of what this looks at
    except (ImproperlyConfigured, ValueError, OSError) as error:
        return None, str(error)
    return settings, ""


def _in_effect(
    setting: Setting[Any],
    environment: Mapping[str, str],
    file: ConfigurationFile | None,
    settings: ModuleType | None,
) -> InEffect:
    if setting.name in environment:
        return InEffect(setting.name, shown(setting, environment[setting.name]), ENVIRONMENT)
    if file and setting.name in file.values:
        return InEffect(setting.name, shown(setting, file.values[setting.name]), str(file.path))
    default = getattr(settings, setting.django_name, "") if settings and setting.django_name else ""
    return InEffect(setting.name, shown(setting, _as_text(default)), DEFAULT)


def _empty(settings: Sequence[InEffect], django: ModuleType | None) -> Iterator[str]:
    """What is said to be nothing, and counts as not said."""
    for one in settings:
        default = getattr(django, SETTINGS[one.name].django_name or "-", None)
        if one.source != DEFAULT and not one.value.strip() and default not in (None, "", (), [], {}):
            shows = shown(SETTINGS[one.name], _as_text(default))
            yield f"{one.name} is empty in the {one.source}, which is as if it were not there: {shows} is in effect"


def _as_text(value: object) -> str:
    match value:
        case bool():
            return str(int(value))
        case float():
            return f"{value:g}"
        case dict():
            return ",".join(f"{name}={_as_text(one)}" for name, one in value.items())
        case list() | tuple():
            return ",".join(map(str, value))
    return str(value)


def shown(setting: Setting[Any], value: str) -> str:
    """Nothing of a secret but that it is there; of an address with a password, the address."""
    if not setting.secret or not value:
        return value
    return (
        _PASSWORDS.sub(lambda found: "…@" if found[0].endswith("@") else "…", value)
        if "://" in value
        else f"(set, {len(value)} characters)"
    )


def _warnings(environment: Mapping[str, str], file: ConfigurationFile | None) -> Iterator[str]:
    for name in sorted(environment):
        if name.startswith(PREFIX) and name not in SETTINGS and name != VARIABLE:
            close = difflib.get_close_matches(name, SETTINGS, n=1)
            yield f"{name} in the environment is not a setting{f'; did you mean {close[0]}?' if close else ''}"
    if file is None or file.problems:
        return
    for name in file.values:
        if name in environment and environment[name] != file.values[name]:
            yield f"{name} is set in the environment, so {SETTINGS[name].key} of {file.path} has no effect"
    if _others_read_secrets(file):
        yield f"{file.path} has secrets and anybody on this machine can read it: chmod 640, and a group for the service"


def _others_read_secrets(file: ConfigurationFile) -> bool:
    readable = bool(file.path.stat().st_mode & stat.S_IROTH)
    text = file.path.read_text()
    return readable and any(SETTINGS[name].secret and value and value in text for name, value in file.values.items())


def text(checked: CheckedConfiguration) -> str:
    widest = max(len(one.name) for one in checked.settings)
    longest = max(len(one.value) for one in checked.settings)
    by_source = sorted(checked.settings, key=lambda one: one.source == DEFAULT)
    lines = [f"{one.name.ljust(widest)}  {one.value.ljust(min(longest, 48))}  {one.source}" for one in by_source]
    named = checked.file or f"none; {VARIABLE} or --config names one"
    told = [f"Configuration file: {named}", "", *lines, ""]
    told += [f"warning: {warning}" for warning in checked.warnings]
    told += [f"WRONG: {problem}" for problem in checked.problems] or ["Nothing is wrong."]
    return "\n".join(told)
