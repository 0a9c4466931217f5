"""What clients may write as a name, or as an object with that name: the encoding "name" of a field. PURE."""

from __future__ import annotations

from typing import Any, Protocol


class _Findings(Protocol):
    """What is found on the way (`manciple.wire.codec.Findings`)."""

    def warn(self, text: str) -> None: ...

    def mismatch(self, raw: Any, path: str, expected: str) -> None: ...


def normalize(raw: Any, path: str, findings: _Findings) -> Any:
    """The name; what else the object says is told and dropped."""
    if isinstance(raw, dict):
        for key in raw.keys() - {"name"}:
            findings.warn(f'unknown field "{path}.{key}"')
        raw, path = raw.get("name", ""), f"{path}.name"
    return raw if isinstance(raw, str) else findings.mismatch(raw, path, "string")
