"""Which nodes are unreachable: the one place that decides it, for controllers, pages, counts and lists in SQL.

    the Lease was not renewed within the grace period              -> unreachable, from that moment
    the node lifecycle controller set the Ready condition Unknown  -> unreachable, until the agent reports again
    the agent never reported, and the time for that is over        -> unreachable
    the Node was deleted, and its pods are not given up yet        -> what it runs is not known either (`lost_nodes`)

Ages are those of writes, by the clock of whoever wrote the log: what a node writes into its Lease may be a day off. The
controller marks the Node a few seconds after the Lease is overdue, and only while a worker runs; the read model does
not wait for it, so a page never calls a device free, healthy or in use while nobody knows.

In a mirror, the Leases are those that were seen renewed there (`manciple.renewals`), and a node that never reported is
its cluster's to judge: its clock is not ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import DateTimeField, Q, QuerySet, Value

from inventory.models import DepartedNode, Node
from manciple.per_process import PerProcess
from manciple.renewals import renewals
from manciple.store import history
from manciple.wire.resources import LEASES, kind

#: --node-monitor-grace-period
GRACE = timedelta(seconds=settings.NODE_GRACE_SECONDS)
#: A node that has never reported gets this long after its creation (--node-startup-grace-period).
STARTUP_GRACE = timedelta(seconds=60)
#: Where agents keep their leases (corev1.NamespaceNodeLease).
LEASE_NAMESPACE = "kube-node-lease"


@dataclass(frozen=True, slots=True)
class SignsOfLife:
    """When the server saw the node's Lease renewed, and its conditions reported, last; None for never."""

    renewed_at: datetime | None = None
    reported_at: datetime | None = None

    @property
    def heard_at(self) -> datetime | None:
        return max((moment for moment in (self.renewed_at, self.reported_at) if moment is not None), default=None)


def is_silent(created_at: datetime | None, signs: SignsOfLife, now: datetime) -> bool:
    """Whether nothing was heard of the node for longer than the grace period."""
    if signs.heard_at is not None:
        return now - signs.heard_at > GRACE
    return created_at is not None and now - created_at > STARTUP_GRACE


def is_unreachable(condition: str, created_at: datetime | None, renewed_at: datetime | None, now: datetime) -> bool:
    """condition: the status of the Ready condition, "" where there is none."""
    if condition == "Unknown" or settings.MIRROR:
        return condition == "Unknown" or (renewed_at is not None and is_silent(None, SignsOfLife(renewed_at), now))
    # Without a Lease there is only the report: the controller knows how old that is, and says Unknown in time.
    return (renewed_at is not None or not condition) and is_silent(created_at, SignsOfLife(renewed_at), now)


def renewed_at(now: datetime, *, names: frozenset[str] | None = None) -> Mapping[str, datetime]:
    """When the Lease of each node was last renewed, or only of those of `names`; in a mirror, as far as it is known."""
    if settings.MIRROR:
        return renewals.value.of_nodes(now)
    return history.last_written(kind(LEASES), LEASE_NAMESPACE, names=names)


def nodes_with_leases() -> QuerySet[Any]:
    """All nodes with `renewed_at`, for `unreachable`; None in a mirror."""
    if settings.MIRROR:
        return Node.objects.annotate(renewed_at=Value(None, DateTimeField()))
    return Node.objects.annotate(renewed_at=history.last_write_of(kind(LEASES), LEASE_NAMESPACE, "name"))


def unreachable(now: datetime) -> Q:
    """`is_unreachable` for rows of `nodes_with_leases`."""
    if settings.MIRROR:
        return Q(condition="Unknown") | Q(name__in=list(renewals.value.silent_nodes()))
    never = Q(condition="", renewed_at=None, created_at__lt=now - STARTUP_GRACE)
    return Q(condition="Unknown") | Q(renewed_at__lt=now - GRACE) | never


#: Nodes whose Leases are all looked at each time. Of more, a Lease is looked at again when it may be overdue.
SMALL = 100
#: For how long an answer is good in a mirror.
COPIED_FOR = timedelta(seconds=5)
#: How long the number of nodes is cached.
COUNTED_FOR = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class _Scan:
    """All nodes were looked at. Until `due` only these can have become unreachable: a Lease that is renewed, or comes,
    later than `at` is overdue later, too.
    """

    at: datetime
    due: datetime
    overdue: frozenset[str]


_last_scan = PerProcess[_Scan | None](lambda: None)
#: (when, how many nodes there were)
_last_count = PerProcess[tuple[datetime, int] | None](lambda: None)
#: (of which moment, which): a page that asks for one moment several times reads it once
_last_answer = PerProcess[tuple[datetime, frozenset[str]] | None](lambda: None)


def looked_at(now: datetime) -> tuple[frozenset[str], datetime]:
    """(the lost nodes, until when that stays so unless a Node is written): a Lease that is renewed meanwhile is
    overdue later. Where there are any the answer is of this moment alone: they may come back.
    """
    found, scan = lost_nodes(now), _last_scan.value
    if settings.MIRROR:
        return found, now + COPIED_FOR
    return found, now if found or scan is None else scan.due


#: In this time after a Node's deletion its pods are given up, or it comes back (`claims.controllers.podgc`).
GIVEN_UP_WITHIN = timedelta(minutes=2)


def lost_nodes(now: datetime) -> frozenset[str]:
    """Of which nobody knows what runs there: the unreachable, and those that were deleted lately. One query more."""
    deleted = DepartedNode.objects.filter(at__gt=now - GIVEN_UP_WITHIN).values_list("name", flat=True)
    return unreachable_nodes(now) | frozenset(deleted)


def unreachable_nodes(now: datetime) -> frozenset[str]:
    """Their names. One query, and one a minute."""
    answer = _last_answer.value
    if answer is None or answer[0] != now:
        answer = _last_answer.value = (now, _unreachable_nodes(now))
    return answer[1]


def _unreachable_nodes(now: datetime) -> frozenset[str]:
    if settings.MIRROR:
        return frozenset(nodes_with_leases().filter(unreachable(now)).values_list("name", flat=True))
    counted, scan = _last_count.value, _last_scan.value
    if counted is None or not counted[0] <= now < counted[0] + COUNTED_FOR:
        counted = _last_count.value = (now, Node.objects.count())
    if counted[1] > SMALL and scan is not None and scan.at <= now < scan.due:
        suspects = Q(condition="Unknown") | Q(name__in=scan.overdue)
        lost = nodes_with_leases().filter(unreachable(now)).filter(suspects)
        return frozenset(lost.values_list("name", flat=True))
    rows = list(nodes_with_leases().values_list("name", "condition", "created_at", "renewed_at"))
    found = frozenset(
        name for name, condition, created, renewed in rows if is_unreachable(condition, created, renewed, now)
    )
    renewals = (renewed for name, _, _, renewed in rows if renewed is not None and name not in found)
    starts = (created for name, condition, created, _ in rows if not condition and created and name not in found)
    due = min([now, *renewals]) + GRACE, min([now, *starts]) + STARTUP_GRACE
    _last_scan.value = _Scan(at=now, due=min(due), overdue=found)
    return found
