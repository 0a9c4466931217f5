"""`{% early_forms %}`: what a list's page shows of early forms (`dashboard.kit.early_forms`)."""

from __future__ import annotations

from typing import Any

from django import template

from dashboard.kit.early_forms import early_lists

register = template.Library()


@register.inclusion_tag("kit/early_forms.html", takes_context=True)
def early_forms(context: dict[str, Any]) -> dict[str, Any]:
    return {"lists": early_lists(context["person"], context["place"])}
