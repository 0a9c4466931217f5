"""Counts what is used of quotas, where the transactions that change it cannot tell (`claims.quotas`).

    a quota has limits that are not counted yet       -> its namespace is counted
    a deleted pod has not ended in time               -> it is marked, and counts no longer
    another class serves an extended resource         -> claims count under other names: everything is counted
    not counted by this process for five minutes      -> counted, whatever may have gone wrong

Upstream: pkg/controller/resourcequota/resource_quota_controller.go.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Container, Iterable, Sequence, Set
from datetime import UTC, datetime, timedelta
from typing import ClassVar, cast

from msgspec import structs

from claims import models
from claims.kinds.pods import Pod, PodCondition
from claims.kinds.quotas import ResourceQuota
from claims.kinds.resource_usage import OVERDUE, ExtendedNames, is_charged, is_overdue
from claims.quotas import EXTENDED, IDENTITY, is_counted, recount
from manciple.controllers.declaration import Controller, batches
from manciple.per_process import PerProcess
from manciple.store import objects
from manciple.store.event_log import Follower, View
from manciple.store.objects import decoded
from manciple.store.records import Written
from manciple.wire.base import ApiObject, timestamp
from manciple.wire.errors import Expired
from manciple.wire.identity import controller
from manciple.wire.resources import ADDED, CLASSES, DELETED, FINISHED_PHASES, MODIFIED, PODS, QUOTAS, kind

log = logging.getLogger(__name__)

#: Who writes to pods that do not end.
COLLECTOR = controller("pod-garbage-collector")
#: How long a namespace goes uncounted (--resource-quota-sync-period).
SYNC_PERIOD = timedelta(minutes=5)
#: Pods marked in one transaction.
BATCH = 100
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


class QuotaView(View):
    """Which quotas there are, and which of them are not counted."""

    resources: ClassVar[Sequence[str]] = (QUOTAS,)

    def __init__(self) -> None:
        #: namespace -> quota -> whether its status tells of all of its limits
        self._counted: dict[str, dict[str, bool]] = defaultdict(dict)
        #: the namespaces with one that does not
        self.uncounted: set[str] = set()

    def fill(self, resource: str, objects: Iterable[ApiObject]) -> None:  # noqa: ARG002 - there is one
        for quota in objects:
            self._put(cast("ResourceQuota", quota))

    def apply(self, changes: Sequence[Written]) -> None:
        for change in changes:
            if change.type == DELETED:
                self._remove(change.object)
            else:
                self._put(cast("ResourceQuota", change.object))

    def _put(self, quota: ResourceQuota) -> None:
        namespace = quota.metadata.namespace
        self._counted[namespace][quota.metadata.name] = is_counted(quota)
        self._note(namespace)

    def _remove(self, quota: ApiObject) -> None:
        namespace, name = quota.metadata.namespace, quota.metadata.name
        self._counted[namespace].pop(name, None)
        self._note(namespace)
        if not self._counted[namespace]:
            del self._counted[namespace]

    def _note(self, namespace: str) -> None:
        if all(self._counted[namespace].values()):
            self.uncounted.discard(namespace)
        else:
            self.uncounted.add(namespace)

    @property
    def namespaces(self) -> Set[str]:
        """Those with quotas."""
        return self._counted.keys()


following = Follower(QuotaView)


class QuotaCounts:
    """When this process counted each namespace last, and by which classes. due: none of them is late before."""

    def __init__(self) -> None:
        self.counted_at: dict[str, datetime] = {}
        self.due = LONG_AGO
        self.classes: ExtendedNames = {}


counts = PerProcess(QuotaCounts)


def reconcile(now: datetime) -> int:
    """Returns how many quotas said something wrong, and how many pods count no longer."""
    with following.view() as view:
        namespaces, uncounted = frozenset(view.namespaces), frozenset(view.uncounted)
    if not namespaces:
        counts.reset()
        return 0
    wrong = _give_up(namespaces, now)
    for (namespace,) in batches(_due(namespaces, uncounted, now), 1):
        try:
            wrong += recount(namespace)
        except Expired as error:
            log.warning("recounting the quotas of %s: %s", namespace, error.message)
        else:
            counts.value.counted_at[namespace] = now
    return wrong


def _due(namespaces: frozenset[str], uncounted: frozenset[str], now: datetime) -> list[str]:
    """The namespaces that have to be counted now, those first that are not counted."""
    classes, known = _classes(), counts.value
    if classes != known.classes:
        known.counted_at, known.classes = {}, classes
    late = set(namespaces - known.counted_at.keys())
    if now >= known.due:
        known.counted_at = {name: at for name, at in known.counted_at.items() if name in namespaces}
        late |= {name for name, at in known.counted_at.items() if at <= now - SYNC_PERIOD}
        known.due = min([now, *known.counted_at.values()]) + SYNC_PERIOD
    return list(dict.fromkeys(sorted(uncounted) + sorted(late)))


def _classes() -> ExtendedNames:
    with objects.writing(identity=IDENTITY, dry_run=True) as reader:
        return EXTENDED.of(reader)


def _give_up(namespaces: Container[str], now: datetime) -> int:
    """Mark the deleted pods that have not ended in time. Returns how many."""
    leaving = models.Pod.objects.filter(deleting=True).exclude(phase__in=FINISHED_PHASES)
    keys = [key for key in leaving.values_list("namespace", "name") if key[0] in namespaces]
    stored = (decoded(one, Pod) for one in objects.get_many(kind(PODS), keys))
    overdue = [pod.key for pod in stored if is_charged(pod) and is_overdue(pod, now)]
    given_up = 0
    for batch in batches(overdue, BATCH):
        with objects.writing(identity=COLLECTOR) as writer:
            writer.load(kind(PODS), batch)
            pods = [pod for key in batch if isinstance(pod := writer.get(kind(PODS), *key), Pod)]
            for pod in pods:
                if is_charged(pod) and is_overdue(pod, now):
                    writer.update(kind(PODS), _given_up(pod, now), subresource="status")
                    given_up += 1
    return given_up


def _given_up(pod: Pod, now: datetime) -> Pod:
    condition = PodCondition(
        type=OVERDUE,
        status="True",
        reason="GracePeriodExceeded",
        message="The pod was deleted and has not ended in time; quotas do not count it any more",
        last_transition_time=timestamp(now),
    )
    others = [one for one in pod.status.conditions if one.type != OVERDUE]
    return structs.replace(pod, status=structs.replace(pod.status, conditions=(*others, condition)))


CONTROLLER = Controller(
    name="recount_quotas",
    does="counts the usage of new quotas, and of all quotas every five minutes",
    reconcile=reconcile,
    every=5,
    # Not when a quota changes: every write that is charged changes one.
    wakes_on=frozenset({(QUOTAS, ADDED), *((CLASSES, change) for change in (ADDED, MODIFIED, DELETED))}),
)
