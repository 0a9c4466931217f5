"""Texts of which a test checks a part: the wording of the rest is checked elsewhere."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, eq=False)
class Outline:
    """Equal to any text that has the outline's parts in their order, with anything in place of each "…"."""

    outline: str

    def __eq__(self, text: object) -> bool:
        pattern = ".*".join(map(re.escape, self.outline.split("…")))
        return isinstance(text, str) and re.fullmatch(pattern, text, re.DOTALL) is not None

    def __hash__(self) -> int:
        return hash(self.outline)
