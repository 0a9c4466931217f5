"""The head of a table whose columns are always the same; lists that are sorted by theirs have `table.heads`."""

from __future__ import annotations

from django import template
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

register = template.Library()


@register.simple_tag
def heads(*columns: str) -> SafeString:
    """columns: a title each, with classes before it where it has any: `"Claim"`, `"num: Age"`."""
    cells = []
    for column in columns:
        classes, _, title = column.rpartition(": ")
        cells.append((format_html(' class="{}"', classes) if classes else "", title))
    return format_html("<thead><tr>{}</tr></thead>", format_html_join("", '<th scope="col"{}>{}</th>', cells))
