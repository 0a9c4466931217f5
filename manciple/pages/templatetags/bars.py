"""Stacked bars in templates: `{% bar row.parts label=row.said %}`.

A mark says how much stands before it, and the stylesheet puts it there with a transform: when counts change the marks
slide, and a browser sees no layout that shifts.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from django import template
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

register = template.Library()

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
