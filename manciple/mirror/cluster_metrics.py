"""Metrics of the cluster that a mirror copies: whether it answers, and how far each resource is known.

It is read from the database, so every replica says the same. What each of them does is counted where it is done
(`following`, `stored_copy`, `leadership`). Imported in a mirror alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from django.db.models import Count
from prometheus_client.core import Metric

from manciple.controllers.coordination import utc_now
from manciple.mirror import standing
from manciple.mirror.models import RemoteVersion
from manciple.mirror.sources import Reach
from manciple.telemetry import metrics

#: Nothing is expected to be heard of these.
_SILENT = (Reach.FORBIDDEN, Reach.ABSENT)


@metrics.describe_cluster
def of_mirror() -> Iterator[Metric]:
    if (remote := standing.remote()) is None:
        return
    yield metrics.gauges(
        "manciple_mirror_remote_reachable",
        "1 while the cluster that is copied answers.",
        (),
        [((), float(remote.away_since is None))],
    )
    kinds, now = standing.kinds(), utc_now()
    yield metrics.gauges(
        "manciple_mirror_kind_state",
        "1 for what of a resource may be read: everywhere, namespace, forbidden, failed or absent.",
        ("resource", "state"),
        (((name, one.reach.value), 1.0) for name, one in kinds.items()),
    )
    yield metrics.gauges(
        "manciple_mirror_news_age_seconds",
        "Time since the cluster last confirmed that nothing of a resource is missing.",
        ("resource",),
        metrics.by_one(
            {
                name: max(0.0, (now - one.heard_at).total_seconds())
                for name, one in kinds.items()
                if one.heard_at is not None and one.reach not in _SILENT
            }
        ),
    )
    counted = dict(RemoteVersion.objects.values_list("resource").annotate(Count("uid")).order_by())
    yield metrics.gauges(
        "manciple_mirror_objects",
        "Objects of a resource in the copy.",
        ("resource",),
        metrics.by_one({name: counted.get(name, 0) for name in kinds}),
    )
    yield metrics.gauges(
        "manciple_mirror_unread_objects",
        "Objects of a resource that could not be understood, and are left out.",
        ("resource",),
        metrics.by_one({name: one.unread for name, one in kinds.items()}),
    )
