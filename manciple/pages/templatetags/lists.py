"""What rows of a list have in common: `{% pick table row.key row.name %}` is the box that chooses a row."""

from __future__ import annotations

from typing import Any

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from manciple.pages.lists import Table

register = template.Library()


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
