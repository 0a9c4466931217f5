"""Icons in templates: `{% icon "i-pod" 13 %}` draws one of `kit/icons.html`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any

from django import template
from django.utils import timezone
from django.utils.html import escape, format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from dashboard.kit import links
from dashboard.kit.lists import ListQuery, Table
from manciple import durations

register = template.Library()


@register.simple_tag
def icon(name: str, size: int) -> SafeString:
    """size: in pixels. Words beside it say what it means, so it is hidden from who hears the page."""
    return format_html('<svg width="{}" height="{}" aria-hidden="true"><use href="#{}"/></svg>', size, size, name)


@register.filter
def number(value: Any) -> Any:
    """With thousands apart; what is no whole number stays as it is."""
    return f"{value:,}" if isinstance(value, int) else value


@register.filter
def counted(number: int, words: str) -> str:
    """words: `singular` (its plural takes an s), or `singular,verb,plural,verb`; a verb may be empty."""
    singular, _, rest = words.partition(",")
    if not rest:
        return f"{number:,} {singular}{'' if number == 1 else 's'}"
    verb, plural, verbs = rest.split(",")
    return (f"{number:,} {singular} {verb}" if number == 1 else f"{number:,} {plural} {verbs}").rstrip()


@register.filter
def with_code(text: str) -> SafeString:
    """`request `gpu` waits` -> `request <code>gpu</code> waits`; everything is escaped."""
    parts = [
        f"<code>{escape(part)}</code>" if index % 2 else escape(part) for index, part in enumerate(text.split("`"))
    ]
    return mark_safe("".join(parts))  # noqa: S308 - every part is escaped above


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


for _tag in (
    *(links.pod_url, links.claim_url, links.template_url, links.quota_url),
    *(links.device_url, links.device_in_grid_url, links.yaml_url),
):
    register.simple_tag(_tag)
for _filter in (
    *(links.node_url, links.class_url, links.driver_url, links.namespace_url),
    *(links.role_url, links.access_url, links.person_url, links.incident_url, links.taint_rule_url),
):
    register.filter(_filter.__name__, _filter)


@register.simple_tag
def list_url(query: ListQuery, **changes: Any) -> str:
    return query.url(**changes)


@register.simple_tag(name="help")
def help_link(place: str, word: str) -> SafeString:
    """place: a part of the documentation. word: what it explains, for who hears the page."""
    said = f"What is meant by “{word}”"
    return format_html(
        '<a class="help" href="{}" title="{}" aria-label="{}">?</a>', links.manual_url(place), said, said
    )


@register.simple_tag
def heads(*columns: str) -> SafeString:
    """columns: a title each, with classes before it where it has any: `"Claim"`, `"num: Age"`."""
    cells = []
    for column in columns:
        classes, _, title = column.rpartition(": ")
        cells.append((format_html(' class="{}"', classes) if classes else "", title))
    return format_html("<thead><tr>{}</tr></thead>", format_html_join("", '<th scope="col"{}>{}</th>', cells))


@register.simple_tag
def pick(table: Table[Any], at: str, name: str) -> SafeString | str:
    """The row's first cell; nothing in a list whose rows nobody acts on. at: what the form sends."""
    if not table.acts:
        return ""
    return format_html(
        '<td class="pick"><input type="checkbox" name="pick" value="{}" form="bulk" aria-label="Choose {}"></td>',
        at,
        name,
    )


#: (state, count), or (state, word, count) where whoever points at the mark reads "4 free".
Part = tuple[str, int] | tuple[str, str, int]


@register.simple_tag
def bar(parts: Sequence[Part], label: str = "") -> SafeString:
    """label: what the bar says to those who do not see it; without one the page says it in words beside it."""
    parts = list(parts)
    befores = accumulate((part[-1] for part in parts), initial=0)
    marks = format_html_join(
        "",
        '<span class="mark" data-s="{}" style="--v:{};--b:{};--i:{}"{}></span>',
        (
            (part[0], part[-1], before, place, _title(part))
            for place, (part, before) in enumerate(zip(parts, befores, strict=False))
        ),
    )
    said = format_html('role="img" aria-label="{}"', label) if label else SafeString('aria-hidden="true"')
    total = sum(part[-1] for part in parts)
    # A cross wants room. Said here, because to ask with :has() costs every change of a tile all tiles' styles.
    kinds = "bar broken" if any(part[0] == "bad" for part in parts) else "bar"
    return format_html('<div class="{}" {} style="--of:{};--n:{}">{}</div>', kinds, said, total, len(parts), marks)


def _title(part: Part) -> SafeString:
    _, *words, count = part
    return format_html(' title="{} {}"', count, words[0]) if words else SafeString()
