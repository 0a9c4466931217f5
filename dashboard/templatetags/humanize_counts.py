"""Numbers with their nouns and verbs.

`{{ 1|counted:"device" }}` is `1 device`; `{{ 2|counted:"claim,holds,claims,hold" }}` is `2 claims hold`.
"""

from __future__ import annotations

from django import template

register = template.Library()


@register.filter
def counted(number: int, words: str) -> str:
    """words: `singular` (its plural takes an s), or `singular,verb,plural,verb`; a verb may be empty."""
    singular, _, rest = words.partition(",")
    if not rest:
        return f"{number:,} {singular}{'' if number == 1 else 's'}"
    verb, plural, verbs = rest.split(",")
    return (f"{number:,} {singular} {verb}" if number == 1 else f"{number:,} {plural} {verbs}").rstrip()
