"""The scheduling queue: a table of the pods that have no node yet, fed from the event log.

All transitions of a row (only `feed`, `settle` and `sweep` make them; `scheduling.queue.verdicts` has the verdicts):

    new, PreEnqueue passes            -> active
    new, PreEnqueue refuses           -> unschedulable, held by its reasons; tried after 5 s, which writes its condition
    unschedulable, an event may help  -> active, or backoff while that of its last attempt lasts; held as a new one
                                         where PreEnqueue refuses
    unschedulable for 5 minutes       -> active
    unschedulable until a moment      -> tried at it
    active, or backoff that is over   -> tried
    backoff after an event            -> tried if no pod is due (kube-scheduler's SchedulerPopFromBackoffQ)
    tried: Placement, Gone            -> no row
    tried: Wait                       -> unschedulable, held by its reasons
    tried: Retry at once (conflict)   -> active, a few times; then backoff
    tried: Retry (error)              -> backoff
    tried, database away              -> as before
    Retry untried (no time left)      -> as before

Workers share one cursor into the log, and take turns (`manciple.controllers.coordination`), so that one at a time tries
pods. Nothing here decides correctness: a pod that two workers try is bound once, by the commit.

Locks are taken in the order revision counter (by the commit), cursor, queue rows.
"""

from __future__ import annotations

import json
import time
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from operator import attrgetter
from typing import Any, Protocol

from django.db import transaction
from django.db.models import F, Q

from claims.causes import causes
from claims.causes.causes import NoNodeFits
from claims.kinds.pods import Pod
from inventory.kinds import gates
from manciple.controllers.models import Cursor
from manciple.store import event_log, sql
from manciple.store.event_log import Stretch, since
from scheduling import metrics
from scheduling.models import QueuedPod
from scheduling.queue import hints
from scheduling.queue.hints import News, WaitingPod, Wakes
from scheduling.queue.reasons import Hold, Reason
from scheduling.queue.verdicts import Gone, Placement, Retry, Verdict, Wait

#: Attempts after which a pod that lost a race backs off like any other.
MOST_AT_ONCE = 5
#: Pods that are tried during their backoff at a time: new pods wait for these.
MOST_EARLY = 32
#: Events read in one step.
BATCH = 2000
#: An unschedulable pod is tried again after this long, whatever happened (upstream: flushUnschedulablePodsLeftover).
FLUSH_AFTER = timedelta(minutes=5)
#: A pod whose claims or group are missing for so long gets one attempt, which writes its condition.
EXPLAIN_AFTER = timedelta(seconds=5)
EXPLAINED = (int(Reason.CLAIM_MISSING), int(Reason.GROUP))

CURSOR = "queue"
#: In place of a revision, this cursor has a checksum of the features that are on.
GATES = "feature gates"
#: Whether any pod is in the queue.
ANYBODY_WAITS: sql.Query = ("SELECT EXISTS (SELECT 1 FROM scheduling_queuedpod)", ())
#: What PreEnqueue refuses: kube-scheduler calls these pods gated.
GATED = int(Reason.GATED | Reason.CLAIM_MISSING | Reason.GROUP)
#: Reasons that always serve the full backoff: the pod's own writes would wake it again and again.
FULL_BACKOFF = Reason.ERROR | Reason.NEGOTIATION
ACTIVE, BACKOFF, UNSCHEDULABLE = QueuedPod.State.ACTIVE, QueuedPod.State.BACKOFF, QueuedPod.State.UNSCHEDULABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A pod that wants a node."""

    uid: str
    namespace: str
    name: str
    generation: int
    priority: int
    created_at: datetime
    #: its resourceVersion
    revision: int

    @classmethod
    def of(cls, pod: Pod) -> Candidate:
        meta = pod.metadata
        created = datetime.fromisoformat(meta.creation_timestamp) if meta.creation_timestamp else datetime.now(UTC)
        return cls(
            uid=meta.uid,
            namespace=meta.namespace,
            name=meta.name,
            generation=meta.generation,
            priority=pod.spec.priority or 0,
            created_at=created,
            revision=int(meta.resource_version or 0),
        )


class ClusterView(Protocol):
    """The part of a worker's cluster state (`scheduling.state.cluster`) that the queue reads."""

    @property
    def revision(self) -> int: ...
    def news_after(self, revision: int) -> Sequence[News] | None: ...
    def candidates(self) -> Iterable[Candidate]: ...
    def candidate(self, uid: str) -> Candidate | None: ...
    def pre_enqueue(self, uid: str) -> Hold | None: ...


def is_for_now(verdict: Verdict | Gone) -> bool:
    """Whether the pod is tried again without a backoff."""
    return isinstance(verdict, Retry) and (verdict.untried or verdict.at_once)


def is_progress(verdict: Verdict | Gone) -> bool:
    """Whether trying the pod was of use, or is not over."""
    waits = isinstance(verdict, Wait) and verdict.waits_for_driver
    return waits or isinstance(verdict, Placement | Gone) or is_for_now(verdict)


def feed(view: ClusterView, now: datetime) -> int:
    """Carry what the log says, up to `view.revision`, over to the queue. Returns how many events were read."""
    total = 0
    while True:
        began = time.perf_counter()
        read = _feed_once(view, now)
        if not read:
            break
        metrics.EVENT_HANDLING["ClusterEvents"].observe(time.perf_counter() - began)
        total += read
        if read < BATCH:
            break
    return total


def _feed_once(view: ClusterView, now: datetime) -> int:
    cursor = sql.fetch("SELECT revision FROM scheduling_cursor WHERE name = %s", [CURSOR])
    if cursor and cursor[0][0] >= view.revision:
        return 0
    news = since(cursor[0][0], partial(_news, view)) if cursor else None
    if news is None:
        reseed(view, now)
        return 0
    seen = [one for one in news.changes if one.revision <= view.revision]
    pods, wakes = dict.fromkeys(one.uid for one in seen if one.resource == "pods"), Wakes(seen)
    rows = sql.selecting(QueuedPod, ["uid"], ["uid"], [(uid,) for uid in {**pods, **wakes.by_uid}])
    reached = max(cursor[0][0], min(news.revision, view.revision))
    with transaction.atomic():
        # Moving the cursor takes its lock.
        queries = [(_MOVE, [reached, CURSOR, cursor[0][0]]), (_WAITING, [int(wakes.reasons)]), *rows]
        moved, waiting, *stored = sql.fetch_together(queries)
        if moved:
            present = {uid for answer in stored for (uid,) in answer}
            _enter(view, pods, now, present=present)
            if waiting[0][0] or not present.isdisjoint(wakes.by_uid):
                _wake(view, wakes, now)
            return len(seen)
    return _feed_once(view, now)  # another worker was first; what it left is read


_MOVE = "UPDATE scheduling_cursor SET revision = %s WHERE name = %s AND revision = %s RETURNING name"
#: Whether a row is held by one of these reasons.
_WAITING = "SELECT EXISTS (SELECT 1 FROM scheduling_queuedpod WHERE state = 'unschedulable' AND held_by & %s > 0)"


def _news(view: ClusterView, revision: int) -> Stretch[News]:
    """At most BATCH events after `revision`: from the worker's memory, else from the log. Raises: Expired."""
    remembered = view.news_after(revision)
    if remembered is None:
        return _logged(revision)
    more = len(remembered) > BATCH
    return Stretch(remembered[:BATCH], remembered[BATCH - 1].revision if more else view.revision, more)


def _logged(revision: int) -> Stretch[News]:
    """Raises: Expired."""
    stretch = event_log.stretch_after(revision, resources=hints.RESOURCES, limit=BATCH)
    return Stretch([hints.news_of(record) for record in stretch.changes], stretch.revision, stretch.more)


def reseed(view: ClusterView, now: datetime) -> None:
    """Make the rows match the pods of `view`: the first start, or the log was pruned past the cursor."""
    with transaction.atomic():
        Cursor.objects.get_or_create(name=CURSOR)
        cursor = Cursor.objects.select_for_update().get(name=CURSOR)
        wanted = {candidate.uid for candidate in view.candidates()}
        present = set(QueuedPod.objects.values_list("uid", flat=True))
        # Events that cannot be read any more may have woken any of them.
        QueuedPod.objects.filter(state=UNSCHEDULABLE).update(state=ACTIVE, held_by=0, awaited=[])
        _enter(view, wanted ^ present, now, present=present)
        cursor.revision = max(cursor.revision, view.revision)
        cursor.save(update_fields=["revision"])


def mend(view: ClusterView, now: datetime) -> int:
    """Add pods that have no row, drop rows that have no pod; returns how many."""
    wanted = {candidate.uid for candidate in view.candidates()}
    astray = wanted ^ set(QueuedPod.objects.values_list("uid", flat=True))
    if astray:
        with transaction.atomic():
            Cursor.objects.select_for_update().filter(name=CURSOR).first()
            rows: list[tuple[str]] = sql.select(QueuedPod, ["uid"], ["uid"], [(uid,) for uid in astray])
            _enter(view, astray, now, present={uid for (uid,) in rows})
    return len(astray)


@dataclass(frozen=True, slots=True)
class ReadyPod:
    """A pod that may be tried now. attempts: those before.

    ready_since: when it could first be tried, what had to be there before it being there.
    flushed: it is tried because it has waited for long, not because something may have helped.
    """

    uid: str
    attempts: int
    ready_since: datetime
    flushed: bool
    namespace: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyPods:
    """due: by priority, then age. early: those that were woken, by the end of their rest."""

    due: Sequence[ReadyPod]
    early: Sequence[ReadyPod]

    @property
    def next(self) -> Sequence[ReadyPod]:
        return self.due or self.early

    def is_more_to_do(self, settled: Sequence[Verdict | Gone], limit: int) -> bool:
        """Whether to go on after these verdicts on the `next`, of `limit` at most.

        Trying early ends when it is of no use: each event that wakes many costs one futile attempt of a few of them.
        """
        if not self.due:
            return any(map(is_progress, settled))
        return len(settled) >= limit or bool(self.early) or any(map(is_for_now, settled))


_ORDER = "backs_off_until NULLS FIRST, priority DESC, created_at, revision"
_COLUMNS = "uid, attempts, created_at, parked_at, state, held_by, namespace, priority, not_before, backs_off_until"
_TRIABLE = (
    "SELECT *, CASE WHEN state = 'backoff' AND woken AND not_before > %s THEN not_before END AS backs_off_until "
    "FROM scheduling_queuedpod WHERE state = 'active' OR not_before <= %s OR (state = 'backoff' AND woken)"
)
_READY = f"SELECT {_COLUMNS} FROM ({_TRIABLE}) AS candidates ORDER BY {{}} LIMIT %s"  # noqa: S608
_READY_OF_EACH = (
    f"SELECT {_COLUMNS} FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY namespace ORDER BY {_ORDER}) AS place "  # noqa: S608
    f"FROM ({_TRIABLE}) AS found) AS ready WHERE place <= %s ORDER BY {{}}"
)


def ready(
    limit: int, now: datetime, *, of_each: bool = False, slow: Sequence[str] = (), busy: Sequence[str] = ()
) -> ReadyPods:
    """Up to `limit` pods that may be tried now. of_each: so many of each namespace.

    slow, busy: namespaces whose pods come last; of busy ones, among pods of their priority.
    """
    at = sql.adapted(now)
    due, early = list[ReadyPod](), list[tuple[datetime, ReadyPod]]()
    order = _ORDER
    if slow:
        order = order.replace("priority", f"namespace IN ({', '.join(['%s'] * len(slow))}), priority")
    if busy:
        order = order.replace("created_at", f"namespace IN ({', '.join(['%s'] * len(busy))}), created_at")
    limited = [*slow, *busy, limit] if not of_each else [limit, *slow, *busy]
    rows = sql.fetch((_READY_OF_EACH if of_each else _READY).format(order), [at, at, *limited])
    for uid, attempts, created, parked, state, held, namespace, priority, not_before, backs_off_until in rows:
        pod = ReadyPod(
            uid=uid,
            attempts=attempts,
            # `parked_at` is when an untried pod became ready; later attempts overwrite it.
            ready_since=(created if attempts or parked is None else parked).replace(tzinfo=UTC),
            flushed=state == ACTIVE and held > 0,
            namespace=namespace,
            priority=priority,
        )
        if backs_off_until is None:
            due.append(pod)
        else:
            early.append((not_before.replace(microsecond=0), pod))
    # Of backoffs that end in the same second the most important comes first (upstream: backoffQOrderingWindowDuration).
    early.sort(key=lambda one: (one[0], -one[1].priority, one[1].ready_since))
    return ReadyPods(due=due, early=[pod for _, pod in early[:MOST_EARLY]])


def settle(verdicts: Sequence[Verdict | Gone], *, revision: int, now: datetime) -> None:
    """Record verdicts reached on the state of `revision`; part of the caller's transaction.

    An event that the feed read during the attempt found no waiting row to wake, so a pod that waits from now on is
    matched against everything since `revision` once more.
    """
    _drop(verdict.uid for verdict in verdicts if isinstance(verdict, Placement | Gone))
    waits = {verdict.uid: verdict for verdict in verdicts if isinstance(verdict, Wait)}
    retries = {verdict.uid: verdict for verdict in verdicts if isinstance(verdict, Retry) and not verdict.untried}
    if not waits and not retries:
        return
    metrics.INCOMING[("unschedulable", "ScheduleAttemptFailure")].inc(len(waits))
    metrics.INCOMING[("backoff", "ScheduleAttemptFailure")].inc(len(retries))
    missed = _missed(revision) if waits else Wakes(())
    rows = list(QueuedPod.objects.select_for_update().filter(uid__in=[*waits, *retries]))
    for row in rows:
        row.attempts += 1
        row.parked_at = now
        if (wait := waits.get(row.uid)) is not None:
            _wait(row, wait, missed, now)
            continue
        retry = retries[row.uid]
        row.cause = causes.encode(retry.cause)
        _back_off(row, now)
        if retry.at_once and row.attempts <= MOST_AT_ONCE:
            row.state, row.not_before = ACTIVE, None
    _store(rows)


#: Written as text and as JSON, and last.
_MADE_TEXT = ("state", "awaited")
_CHANGING = ("generation", "attempts", "not_before", "held_by", "cause", "parked_at", "woken")
_changing = attrgetter("uid", *_CHANGING)


def _store(rows: Sequence[QueuedPod]) -> None:
    """Write what may have changed of `rows`. (Django's bulk_update spends more on the statement than all else here.)"""
    sql.update(QueuedPod, "uid", (*_CHANGING, *_MADE_TEXT), [_values(row, _changing) for row in rows])


def _missed(revision: int) -> Wakes | None:
    """What the feed read after `revision`; None when the log is pruned past it."""
    cursor = Cursor.objects.select_for_update().filter(name=CURSOR).first()
    if cursor is None or cursor.revision <= revision:
        return Wakes(())
    news = since(revision, _logged)
    if news is None or news.more:
        return None
    return Wakes(one for one in news.changes if one.revision <= cursor.revision)


def _wait(row: QueuedPod, wait: Wait, missed: Wakes | None, now: datetime) -> None:
    generation = wait.pod.metadata.generation
    row.generation, row.cause = generation, causes.encode(wait.hold.cause)
    if wait.waits_for_driver:
        row.attempts = 0  # no backoff once the driver has done its part
    if missed is None or missed.helps(WaitingPod(uid=row.uid, generation=generation, hold=wait.hold)):
        _back_off(row, now, woken=not wait.hold.reasons & FULL_BACKOFF)
    else:
        _hold(row, wait.hold, until=wait.until)


def _hold(row: QueuedPod, hold: Hold, *, until: datetime | None = None) -> None:
    row.state, row.not_before = UNSCHEDULABLE, until
    row.held_by, row.awaited = int(hold.reasons), sorted(hold.awaited)
    row.cause = causes.encode(hold.cause)


def _back_off(row: QueuedPod, now: datetime, *, woken: bool = False) -> None:
    """To the active queue, after what is left of the backoff of the last attempt."""
    if not row.attempts:
        row.parked_at = now
    rested = (row.parked_at or now) + timedelta(seconds=backoff_seconds(row.attempts))
    row.state, row.not_before = (ACTIVE, None) if rested <= now else (BACKOFF, rested)
    row.held_by, row.awaited, row.woken = 0, [], woken


def _enter(view: ClusterView, uids: Collection[str], now: datetime, *, present: Collection[str]) -> None:
    """Add rows for the candidates among `uids`, drop those of the others. The caller holds the cursor's lock.

    present: those that have a row.
    """
    candidates = [candidate for uid in uids if (candidate := view.candidate(uid)) is not None]
    staying = {candidate.uid for candidate in candidates}
    _drop(uid for uid in uids if uid in present and uid not in staying)
    new = [
        _new_row(candidate, view.pre_enqueue(candidate.uid), now)
        for candidate in candidates
        if candidate.uid not in present
    ]
    sql.insert(QueuedPod, (*_OTHERS, *_MADE_TEXT), [_values(row, _others) for row in new])
    for state, count in Counter(_part(row) for row in new).items():
        metrics.INCOMING[(state, "PodAdd")].inc(count)


def _drop(uids: Iterable[str]) -> None:
    sql.delete(QueuedPod, ["uid"], [(uid,) for uid in uids])


def _part(row: QueuedPod) -> str:
    """Which part of the queue, as kube-scheduler has it."""
    return "gated" if row.held_by & GATED else str(row.state)


_OTHERS = tuple(one.attname for one in QueuedPod._meta.concrete_fields if one.attname not in _MADE_TEXT)
_others = attrgetter(*_OTHERS)


def _values(row: QueuedPod, read: Callable[[QueuedPod], tuple[Any, ...]]) -> tuple[Any, ...]:
    """What `read` takes of the row, and what is made text of it."""
    return (*read(row), str(row.state), json.dumps(row.awaited))


def _new_row(candidate: Candidate, hold: Hold | None, now: datetime) -> QueuedPod:
    row = QueuedPod(
        uid=candidate.uid,
        namespace=candidate.namespace,
        name=candidate.name,
        generation=candidate.generation,
        priority=candidate.priority,
        created_at=candidate.created_at,
        revision=candidate.revision,
        parked_at=now,
    )
    if hold is not None:
        _hold(row, hold, until=_explain_at(row, hold, now))
    return row


def _wake(view: ClusterView, wakes: Wakes, now: datetime) -> None:
    """Move on the waiting rows that the events may help, if PreEnqueue lets them pass; else they are held by that."""
    lifted = int(wakes.reasons)
    if not lifted and not wakes.by_uid:
        return
    began = time.perf_counter()
    rows = QueuedPod.objects.select_for_update().filter(state=UNSCHEDULABLE).alias(lifted=F("held_by").bitand(lifted))
    changed = []
    for row in rows.filter(Q(lifted__gt=0) | Q(uid__in=wakes.by_uid)):
        before = Hold(reasons=Reason(row.held_by), awaited=frozenset(row.awaited))
        if not wakes.helps(WaitingPod(uid=row.uid, generation=row.generation, hold=before)):
            continue
        if (hold := view.pre_enqueue(row.uid)) is not None:
            _hold(row, hold, until=_explain_at(row, hold, now))
        else:
            _back_off(row, now, woken=not row.held_by & FULL_BACKOFF)
        changed.append(row)
    metrics.HINTS[("DynamicResources", "ClusterEvents", "Queue" if changed else "Skip")].observe(
        time.perf_counter() - began
    )
    for state, count in Counter(_part(row) for row in changed).items():
        metrics.INCOMING[(state, "ClusterEvents")].inc(count)
    _store(changed)


def _explain_at(row: QueuedPod, hold: Hold, now: datetime) -> datetime | None:
    """When a pod that PreEnqueue holds gets the attempt that writes its condition; None where the condition is written.

    A pod that has just come waits a moment for its claims first; so does one whose condition has another reason.
    """
    if int(hold.reasons) not in EXPLAINED:
        return None
    cause = causes.decode(row.cause) if row.cause else None
    if isinstance(cause, NoNodeFits):  # of an attempt
        cause = cause.because
    if cause is not None and cause == hold.cause:
        return row.not_before
    return min(row.not_before or now + EXPLAIN_AFTER, now + EXPLAIN_AFTER)


# Sweeping -------------------------------------------------------------------------------------------------------------


def sweep(view: ClusterView, now: datetime) -> int:
    """Flush old waits, add pods that have no row, drop rows that have no pod: no pod waits forever.

    Where a feature gate was turned since, all waits are old: their reasons may not hold any more.
    """
    waiting = QueuedPod.objects.filter(state=UNSCHEDULABLE)
    old = waiting if _gates_were_turned() else waiting.filter(parked_at__lt=now - FLUSH_AFTER)
    flushed = old.update(state=ACTIVE)
    return flushed + mend(view, now)


def _gates_were_turned() -> bool:
    """Whether the features that are on have changed since the last sweep, by whichever worker."""
    on = ",".join(sorted(filter(gates.enabled, gates.KNOWN)))
    checksum = zlib.crc32(on.encode())
    stored, created = Cursor.objects.get_or_create(name=GATES, defaults={"revision": checksum})
    turned = not created and stored.revision != checksum
    return turned and bool(Cursor.objects.filter(name=GATES).update(revision=checksum))


# Backoff --------------------------------------------------------------------------------------------------------------


INITIAL_SECONDS = 1.0
LONGEST_SECONDS = 10.0
_DOUBLINGS = 4  # 1, 2, 4, 8, then the longest


def backoff_seconds(attempts: int) -> float:
    """The backoff after the `attempts`-th attempt (1 is the first); 0 before any."""
    if attempts <= 0:
        return 0.0
    doublings = min(attempts - 1, _DOUBLINGS)
    return min(INITIAL_SECONDS * (1 << doublings), LONGEST_SECONDS)
