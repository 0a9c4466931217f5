"""Times in templates: `{{ pod.created|age }}`, `{{ event.at|clock }}`, `{% time event.at %}`."""

from __future__ import annotations

from datetime import datetime

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from manciple.pages import durations

register = template.Library()


@register.filter
def age(value: datetime | str | None) -> str:
    return durations.age(value)


@register.filter
def clock(value: datetime | str | None) -> str:
    return durations.clock(value)


@register.filter
def duration(seconds: float | None) -> str:
    return durations.duration(seconds) if seconds is not None else ""


@register.simple_tag
def time(value: datetime | str | None) -> SafeString | str:
    """The short form, with the exact time for whoever points at it."""
    at = durations.moment(value)
    if at is None:
        return ""
    exact = at.isoformat(timespec="seconds").replace("+00:00", "Z")
    return format_html('<time datetime="{}" title="{}">{}</time>', exact, exact, durations.clock(at))
