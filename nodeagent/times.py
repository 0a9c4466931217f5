"""Points in time as the API writes them."""

from __future__ import annotations

from datetime import UTC, datetime


def seconds_text(now: float) -> str:
    """POSIX seconds as metav1.Time: RFC 3339 in UTC, whole seconds."""
    return datetime.fromtimestamp(int(now), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_text(now: float) -> str:
    """POSIX seconds as metav1.MicroTime: RFC 3339 in UTC with six digits."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def posix_seconds(text: str | None) -> float:
    """A metav1.Time as POSIX seconds; 0 where there is none."""
    return datetime.fromisoformat(text).timestamp() if text else 0.0
