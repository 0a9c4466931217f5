"""Draws a lane's bars without a template, because a page may hold fifteen hundred of them."""

from __future__ import annotations

from django import template
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

from dashboard.capacity.timeline import ImpairedStretch, Lane, TimelineBar
from dashboard.kit import links
from dashboard.kit.windows import Window

register = template.Library()


@register.simple_tag
def bars(lane: Lane, window: Window) -> SafeString:
    """All bars of a lane. They are no tab stops: the table has the same links."""
    drawn = [*(_drawn(one, live=window.live) for one in lane.bars), *map(_out_of_order, lane.impaired)]
    return mark_safe("".join(drawn))  # noqa: S308 - every value is escaped below


def _out_of_order(one: ImpairedStretch) -> str:
    words = escape(one.label)
    attributes = f'class="out" data-s="{one.span.state}" style="{one.style}" title="{words}"'
    url = escape(links.incident_url(one.span.incident))
    return f'<a {attributes} href="{url}" tabindex="-1"><span class="sr">{words}</span></a>'


def _drawn(one: TimelineBar, *, live: bool) -> str:
    holding = one.holding
    classes = "b" + (" on" if holding.ended is None and live else "") + ("" if holding.known else " hidden-holder")
    words = escape(one.label)
    attributes = f'class="{classes}" style="{one.style}" title="{words}"'
    if holding.claim_uid:
        attributes += f' data-c="{escape(holding.claim_uid)}"'
    text = f"<i>{escape(one.word)}</i>" if one.word else ""
    said = f'<span class="sr">{words}</span>'
    if one.url:
        return f'<a {attributes} href="{escape(one.url)}" tabindex="-1">{text}{said}</a>'
    return f"<span {attributes}>{text}{said}</span>"
