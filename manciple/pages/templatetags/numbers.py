"""Numbers in templates: `{{ row.total|number }}` is "5,000", everywhere."""

from __future__ import annotations

from typing import Any

from django import template

register = template.Library()


@register.filter
def number(value: Any) -> Any:
    """With thousands apart; what is no whole number stays as it is."""
    return f"{value:,}" if isinstance(value, int) else value
