"""What the templates of the device pages use: names of states, values as JSON for the page's script."""

from __future__ import annotations

import json
from typing import Any

from django import template

from dashboard.inventory.devices.grid import STATES

register = template.Library()


@register.filter
def state_name(state: str) -> str:
    """What the legend calls it."""
    return STATES[state]


@register.filter
def last_part(name: str) -> str:
    """A qualified name without its domain."""
    return name.rpartition("/")[2]


@register.filter
def as_json(value: Any) -> str:
    """For a data attribute; escaped by the template as any text."""
    return json.dumps(value, separators=(",", ":"))
