"""What allocation needs to know of a node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node's name and labels."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
