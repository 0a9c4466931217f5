"""Whether a toleration of a pod covers a taint of a node. PURE."""

from __future__ import annotations

from claims.kinds.pods import Toleration
from inventory.kinds.nodes import Taint


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Upstream: v1.Toleration.ToleratesTaint, with the comparisons Lt and Gt of whole numbers."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    if toleration.operator in ("Lt", "Gt"):
        return _compares(taint.value, toleration.operator, toleration.value)
    return toleration.operator in ("", "Equal") and toleration.value == taint.value


def _compares(value: str, operator: str, bound: str) -> bool:
    try:
        left, right = int(value), int(bound)
    except ValueError:
        return False
    return left < right if operator == "Lt" else left > right
