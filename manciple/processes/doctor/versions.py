"""Examines whether all parts are of one version: in an upgrade they are not, for as long as it takes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from typing import Final

from django.conf import settings

from manciple import layout
from manciple.processes.doctor.diagnoses import Diagnosis, warning
from manciple.telemetry import processes

#: What a process is called that is older than the metric by which they tell their version.
UNTOLD: Final = "an earlier version"


def examine_versions(_now: datetime) -> Iterator[Diagnosis]:
    """What is installed here counts as well: whoever upgrades begins with it. Of a Redis that is away others tell."""
    if not settings.REDIS_URL:
        return
    try:
        present = processes.present(settings.REDIS_URL)
    except processes.RedisAway:
        return
    of_version: dict[str, list[str]] = defaultdict(list)
    for one in sorted(present, key=lambda one: (one.role, one.process)):
        of_version[one.version or UNTOLD].append(f"{one.role} {one.process}")
    of_version[layout.version()].append("this command")
    if len(of_version) > 1:
        told = "; ".join(f"{version}: {', '.join(names)}" for version, names in sorted(of_version.items()))
        yield warning(
            "versions",
            f"{len(of_version)} run side by side: {told}",
            "while you upgrade, go on; else replace the processes of the other version (docs/how-to/upgrading.md)",
        )
