"""Times in templates: `{{ pod.created|age }}`, `{{ event.at|clock }}`, `{% time event.at %}`, `{% zone %}`."""

from __future__ import annotations

from datetime import UTC, datetime

from django import template
from django.utils import timezone
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
def ago(value: datetime | str | None, after: str = "") -> SafeString | str:
    """How long ago, which ages.js keeps true. after: what stands behind it, such as "ago"."""
    at = durations.moment(value)
    if at is None:
        return ""
    behind = format_html(' data-after=" {}"', after) if after else ""
    shown = f"{durations.age(at)} {after}".rstrip()
    return format_html('<span class="age" data-ago="{}"{}>{}</span>', _exact(at), behind, shown)


@register.simple_tag
def time_of_server() -> str:
    """By whose clock ages are counted."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _exact(at: datetime) -> str:
    return at.isoformat(timespec="seconds").replace("+00:00", "Z")


@register.simple_tag
def time(value: datetime | str | None) -> SafeString | str:
    """The short form, with the exact time for whoever points at it."""
    at = durations.moment(value)
    if at is None:
        return ""
    local = timezone.localtime(at)
    exact = f"{local:%Y-%m-%d %H:%M:%S} {durations.offset(local)}"
    return format_html('<time datetime="{}" title="{}">{}</time>', _exact(at), exact, durations.clock(at))


@register.simple_tag
def zone() -> str:
    """The name of the zone in which the page's times are: `Europe/Berlin`."""
    return timezone.get_current_timezone_name()


@register.simple_tag
def zone_and_offset() -> str:
    """`Europe/Berlin (UTC+1)`."""
    return durations.zone_label(timezone.get_current_timezone(), now=datetime.now(UTC))
