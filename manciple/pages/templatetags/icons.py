"""Icons in templates: `{% icon "i-pod" 13 %}` draws one of `includes/icons.html`."""

from __future__ import annotations

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

register = template.Library()


@register.simple_tag
def icon(name: str, size: int) -> SafeString:
    """size: in pixels. Words beside it say what it means, so it is hidden from who hears the page."""
    return format_html('<svg width="{}" height="{}" aria-hidden="true"><use href="#{}"/></svg>', size, size, name)
