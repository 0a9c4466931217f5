"""The order of API versions: v2 before v1, both before v1beta2, that before v1alpha1, others last. PURE.

Source: apimachinery/pkg/version/helpers.go.
"""

from __future__ import annotations

import re

_VERSION = re.compile(r"v([1-9][0-9]*)(?:(alpha|beta)([1-9][0-9]*))?")
_STAGES = {"": 0, "beta": 1, "alpha": 2}


def priority(version: str) -> tuple[int, int, int, str]:
    """A sorting key: what clients should prefer comes first."""
    match = _VERSION.fullmatch(version)
    if match is None:
        return (len(_STAGES), 0, 0, version)
    major, stage, minor = match.groups()
    return (_STAGES[stage or ""], -int(major), -int(minor or 0), version)
