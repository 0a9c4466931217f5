"""`/wallboard`: what a team reads from across the room. Nothing on it is to be clicked; it is dark, and always true.

What it says is what the overview says, to the same person: who signs in on the wall sees no more there than elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from dashboard.capacity.overview import (
    OK,
    CapacityRow,
    HealthLine,
    UseOfDay,
    capacity_row,
    lines,
    read_signs,
    use_of_day,
    waiting_groups,
)
from dashboard.inventory.incidents import IncidentRow, described, going_on
from dashboard.kit.guards import listing
from dashboard.kit.rendering import PageContext, render_page
from dashboard.workloads.waiting import WaitingGroup
from insight.capacity import read_census
from insight.usage import ALL
from manciple.people import person_of
from manciple.store.event_log import latest_revision
from manciple.wire.resources import CLASSES, NODES, SLICES
from scheduling.rehearsal.repairs import UNKNOWN, read_mendings

#: Rows that are read from across a room: of classes the largest, of the others the first.
SHOWN_CLASSES, CAUSES, INCIDENTS, TROUBLES = 8, 4, 3, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class WallboardContext(PageContext):
    """more_classes, more_waiting, more_troubles: how many are not shown. oldest: since when the first pod waits.

    ready: of `nodes` those that are. acknowledged: incidents that go on, and are no longer open.
    """

    use: UseOfDay
    held_percent: int
    classes: Sequence[CapacityRow]
    more_classes: int
    waiting: int
    oldest: datetime | None
    reasons: Sequence[WaitingGroup]
    more_waiting: int
    incidents: Sequence[IncidentRow]
    open_incidents: int
    acknowledged: int
    nodes: int
    ready: int
    troubles: Sequence[HealthLine]
    more_troubles: int


@listing(NODES, SLICES, CLASSES)
@require_safe
def show_wallboard(request: HttpRequest) -> HttpResponse:
    revision, now, person = latest_revision(), datetime.now(UTC), person_of(request)
    census = read_census(person)
    signs = read_signs(census.snapshot, person, now=now)
    groups = waiting_groups(person, read_mendings() if census.waiting else UNKNOWN)
    rows = sorted((capacity_row(one) for one in census.classes), key=lambda row: (-row.total, row.name))
    standing = going_on()
    troubles = [line for line in lines(signs) if line.severity != OK and line.name != "Incidents"]
    use = use_of_day(person, census, ALL, now)
    context = WallboardContext(
        place="overview",
        revision=revision,
        use=use,
        held_percent=round(100 * use.held / use.total) if use.total else 0,
        classes=rows[:SHOWN_CLASSES],
        more_classes=max(len(rows) - SHOWN_CLASSES, 0),
        waiting=census.waiting,
        oldest=signs.queue.oldest,
        reasons=groups[:CAUSES],
        more_waiting=sum(group.count for group in groups[CAUSES:]),
        incidents=described(person, standing[:INCIDENTS], census.snapshot),
        open_incidents=signs.incidents.unseen,
        acknowledged=signs.incidents.total - signs.incidents.unseen,
        nodes=len(signs.nodes),
        ready=sum(node.ready for node in signs.nodes),
        troubles=troubles[:TROUBLES],
        more_troubles=max(len(standing) - INCIDENTS, 0) + max(len(troubles) - TROUBLES, 0),
    )
    return render_page(request, "capacity/wallboard.html", context)
