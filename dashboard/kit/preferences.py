"""What a person chose for their pages, and in which time zone these are drawn.

A person's own choice comes first; without one it is the zone of their browser, which a script writes into a cookie
(`static/manciple/kit/theme.js`), and UTC where that is not known. Django's current zone is set for the length of the
request: `durations.clock`, the template filter `date` and the charts go by it. What machines read (CSV, JSON, the
`datetime` of a `<time>`) stays in UTC.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from dashboard.models import Preferences

#: The cookie in which the browser says its zone.
ZONE_COOKIE = "time-zone"
UTC_NAME = "UTC"


def preferences_of(request: HttpRequest) -> Preferences:
    """Of who is signed in, read with their account. What is not kept yet is as a new row would be."""
    user: Any = request.user
    known: Preferences | None = getattr(user, "preferences", None)
    return known or Preferences(person=user)


def choose(request: HttpRequest, **chosen: Any) -> None:
    """Keep what the person chose from now on."""
    known = preferences_of(request)
    for name, value in chosen.items():
        setattr(known, name, value)
    known.save()


@lru_cache(maxsize=1)
def _all_zones() -> frozenset[str]:
    """Names in the machine's database of time zones, which takes a moment to read."""
    return frozenset(available_timezones())


@lru_cache(maxsize=1)
def zone_names() -> tuple[str, ...]:
    """All that may be chosen: places by continent, and UTC."""
    return (UTC_NAME, *sorted(name for name in _all_zones() if _is_a_place(name)))


def _is_a_place(name: str) -> bool:
    """Not the old names without a continent, nor those of POSIX."""
    continent, slash, _ = name.partition("/")
    return bool(slash) and continent not in ("Etc", "SystemV", "US", "Canada", "Brazil", "Chile", "Mexico")


def known_zone(name: str) -> ZoneInfo | None:
    """None for what is no zone: a cookie may say anything."""
    return ZoneInfo(name) if name in _all_zones() else None


def zone_of(request: HttpRequest) -> ZoneInfo:
    chosen = preferences_of(request).time_zone if request.user.is_authenticated else ""
    told = request.COOKIES.get(ZONE_COOKIE, "")
    return known_zone(chosen) or known_zone(told) or ZoneInfo(UTC_NAME)


class ReadersZone:
    """A middleware: what follows is drawn in the reader's time zone."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        with timezone.override(zone_of(request)):
            return self._get_response(request)
