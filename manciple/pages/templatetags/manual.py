"""What a hard word means, one click away: `{% help "dashboard#free-and-how-many-more-fit" "Fits" %}`."""

from __future__ import annotations

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from manciple.pages.manual import address_of

register = template.Library()


@register.simple_tag(name="help")
def help_link(place: str, word: str) -> SafeString:
    """place: a part of the documentation. word: what it explains, for who hears the page."""
    said = f"What is meant by “{word}”"
    return format_html('<a class="help" href="{}" title="{}" aria-label="{}">?</a>', address_of(place), said, said)
