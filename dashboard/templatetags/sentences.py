"""How the sentences of explanations are drawn: what stands in backticks becomes code."""

from __future__ import annotations

from django import template
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

register = template.Library()


@register.filter
def with_code(text: str) -> SafeString:
    """`request `gpu` waits` -> `request <code>gpu</code> waits`; everything is escaped."""
    parts = [
        f"<code>{escape(part)}</code>" if index % 2 else escape(part) for index, part in enumerate(text.split("`"))
    ]
    return mark_safe("".join(parts))  # noqa: S308 - every part is escaped above
