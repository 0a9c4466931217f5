"""How long a pod rests after a failed attempt: 1 s, doubling to 10 s, as kube-scheduler's defaults. PURE."""

from __future__ import annotations

INITIAL_SECONDS = 1.0
LONGEST_SECONDS = 10.0
_DOUBLINGS = 4  # 1, 2, 4, 8, then the longest


def backoff_seconds(attempts: int) -> float:
    """The rest after the `attempts`-th attempt (1 is the first); 0 before any."""
    if attempts <= 0:
        return 0.0
    doublings = min(attempts - 1, _DOUBLINGS)
    return min(INITIAL_SECONDS * (1 << doublings), LONGEST_SECONDS)
