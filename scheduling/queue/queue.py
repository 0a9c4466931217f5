"""The scheduling queue: a table of the pods that have no node yet, fed from the event log; and the order of its pods.

All transitions of a row (only `feed`, `settle`, `flush`, `try_again` and `mend` make them; the verdicts are in
`scheduling.queue.verdicts`):

    new, PreEnqueue passes            -> active; where nothing else is to be tried it is tried without a row, which only
                                         those get that stay (`Arrivals`)
    new, PreEnqueue refuses           -> unschedulable, held by its reasons; tried after 5 s, which writes its condition
    unschedulable, an event may help  -> active, or backoff while that of its last attempt lasts; held as a new one
                                         where PreEnqueue refuses
    unschedulable for 5 minutes       -> active
    unschedulable until a moment      -> tried at it
    active, or backoff that is over   -> tried
    backoff after an event            -> tried if no pod is due (kube-scheduler's SchedulerPopFromBackoffQ)
    tried: Placement, Gone            -> no row
    tried: Wait                       -> unschedulable, held by its reasons (in a mirror a Placement, too)
    tried: Retry at once (conflict)   -> active, a few times; then backoff
    tried: Retry (error)              -> backoff
    tried, database away              -> as before
    Retry untried (no time left)      -> as before

Workers share one cursor into the log, and take turns (`manciple.controllers.coordination`), so that one at a time tries
pods. Nothing here decides correctness: a pod that two workers try is bound once, by the commit.

Locks are taken in the order revision counter (by the commit), cursor, queue rows.

The last section shares scheduling time between namespaces.
"""

from __future__ import annotations

import json
import time
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from operator import attrgetter
from typing import Any, Protocol, cast

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q

from claims.causes import causes
from claims.causes.causes import NoNodeFits
from claims.kinds.pods import Pod
from inventory.kinds import gates
from manciple import gaps
from manciple.controllers.models import Cursor
from manciple.store import event_log, sql
from manciple.store.event_log import Stretch, since
from manciple.wire.errors import Expired
from manciple.wire.limits import Clock, Deadline, time_limit
from manciple.wire.resources import DELETED, PODS
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
#: Revisions of which none concerns any pod, from which the cursor moves past them all the same: the log is pruned.
UNMOVED = 1000
#: An unschedulable pod is tried again after this long, whatever happened (upstream: flushUnschedulablePodsLeftover).
FLUSH_AFTER = timedelta(minutes=5)
#: A pod whose claims or group are missing for so long gets one attempt, which writes its condition.
EXPLAIN_AFTER = timedelta(seconds=5)
EXPLAINED = (int(Reason.CLAIM_MISSING), int(Reason.GROUP))

CURSOR = "queue"
#: In place of a revision, this cursor has a checksum of the features that are on, and of what is not known.
GATES = "feature gates"
#: Whether any pod is in the queue.
ANYBODY_WAITS: sql.Query = ("SELECT EXISTS (SELECT 1 FROM scheduling_queuedpod)", ())
#: Whether a pod is held that may lack claims: these are not made with its placement.
ANYBODY_LACKS_CLAIMS: sql.Query = (
    "SELECT EXISTS (SELECT 1 FROM scheduling_queuedpod AS row WHERE state = 'unschedulable' AND (held_by & %s > 0 "
    "OR (held_by & %s > 0 AND EXISTS (SELECT 1 FROM claims_podclaim JOIN claims_pod ON uid = pod_id "
    "WHERE pod_id = row.uid AND template <> '' AND claim_names = '[]'))))",
    (int(Reason.CLAIM_MISSING), int(Reason.GATED | Reason.GROUP)),
)
#: What PreEnqueue refuses: kube-scheduler calls these pods gated.
GATED = int(Reason.GATED | Reason.CLAIM_MISSING | Reason.GROUP)
#: Reasons that always serve the full backoff: the pod's own writes would wake it again and again.
FULL_BACKOFF = Reason.ERROR | Reason.NEGOTIATION | Reason.NOT_PLACED
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

    #: where the cursor stood when the queue was last fed from this view; 0 where that is not known
    fed: int

    @property
    def revision(self) -> int: ...
    def news_after(self, revision: int) -> Sequence[News] | None: ...
    def waiting(self) -> Set[str]: ...
    def candidate(self, uid: str) -> Candidate | None: ...
    def pre_enqueue(self, uid: str) -> Hold | None: ...


def is_for_now(verdict: Verdict | Gone) -> bool:
    """Whether the pod is tried again without a backoff."""
    return isinstance(verdict, Retry) and (verdict.untried or verdict.at_once)


def is_progress(verdict: Verdict | Gone) -> bool:
    """Whether trying the pod was of use, or is not over."""
    waits = isinstance(verdict, Wait) and verdict.waits_for_driver
    return waits or isinstance(verdict, Placement | Gone) or is_for_now(verdict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """New pods that are tried before they have rows: most are placed at once. The transaction of their verdicts moves
    the cursor past them, and adds the rows of those that stay (`settle`); until then nothing has happened.

    since, reached: the cursor before and after.
    """

    rows: Sequence[QueuedPod]
    since: int
    reached: int

    def ready(self, *, slow: Collection[str] = (), busy: Collection[str] = ()) -> ReadyPods:
        """As the function of that name has them."""
        rows = sorted(
            self.rows,
            key=lambda row: (
                row.namespace in slow,
                -row.priority,
                row.namespace in busy,
                row.created_at,
                row.revision,
            ),
        )
        return ReadyPods(due=[_as_ready(row) for row in rows], early=[])

    def taken_over(self) -> list[sql.Query]:
        """Move the cursor past them, and find those that have rows by now."""
        rows = sql.selecting(QueuedPod, ["uid"], ["uid"], [(row.uid,) for row in self.rows])
        return [_move(self.since, self.reached), *rows]


def feed(view: ClusterView, now: datetime, *, offering: int = 0) -> Arrivals | None:
    """Carry what the log says, up to `view.revision`, over to the queue.

    offering: up to so many new pods may be returned instead, if nothing else happened and no other pod may be tried.
    """
    while True:
        began = time.perf_counter()
        read = _feed_once(view, now, offering)
        if not read:
            return None
        metrics.EVENT_HANDLING["ClusterEvents"].observe(time.perf_counter() - began)
        if isinstance(read, Arrivals):
            return read
        if read < BATCH:
            return None


def reached() -> int:
    """Up to which revision the log is carried over; 0 before the first time."""
    cursor = sql.fetch(*_PLACE)
    return cursor[0][0] if cursor else 0


def held(uids: Collection[str]) -> Collection[str]:
    """Those of the pods that PreEnqueue refuses."""
    rows = sql.select(QueuedPod, ["uid", "state", "held_by"], ["uid"], [(uid,) for uid in uids])
    return {uid for uid, state, held_by in rows if state == UNSCHEDULABLE and held_by & GATED}


def _feed_once(view: ClusterView, now: datetime, offering: int) -> int | Arrivals:
    """How many events were read; or new pods."""
    at = view.fed = view.fed or reached()
    if at >= view.revision:
        return 0
    news = since(at, partial(_news, view)) if at else None
    if news is None:
        reseed(view, now)
        return 0
    seen = [one for one in news.changes if one.revision <= view.revision]
    pods, wakes = dict.fromkeys(one.uid for one in seen if one.resource == "pods"), Wakes(seen)
    upto = max(at, min(news.revision, view.revision))
    if not seen and upto - at < UNMOVED:
        return 0  # once a second, while only Leases are renewed
    uids = {**pods, **wakes.by_uid}
    if offering and not news.more and (new := _arriving(view, pods, now, offering)):
        have_rows, values = sql.is_one_of("uid", uids)
        statement, moment = _BESIDE_ARRIVALS + have_rows + ")", sql.adapted(now)
        ((place, others),) = sql.fetch(statement, [CURSOR, int(wakes.reasons), moment, moment, *values])
        if place == at and not others:
            _count_new(new)
            return Arrivals(rows=new, since=at, reached=upto)
    rows = sql.selecting(QueuedPod, ["uid"], ["uid"], [(uid,) for uid in uids])
    with transaction.atomic():
        # Moving the cursor takes its lock.
        queries = [_move(at, upto), (_WAITING, [int(wakes.reasons)]), *rows]
        moved, waiting, *stored = sql.fetch_together(queries)
        if moved:
            present = {uid for answer in stored for (uid,) in answer}
            _enter(view, pods, now, present=present)
            if waiting[0][0] or not present.isdisjoint(wakes.by_uid):
                _wake(view, wakes, now)
            view.fed = upto
            return len(seen)
    view.fed = 0
    return _feed_once(view, now, offering)  # another worker was first; what it left is read


def _arriving(view: ClusterView, uids: Collection[str], now: datetime, most: int) -> Sequence[QueuedPod]:
    """Rows for the new pods among these; none where PreEnqueue refuses one, or they are too many."""
    new = list[QueuedPod]()
    for uid in uids:
        if (candidate := view.candidate(uid)) is None:
            continue
        if len(new) == most or view.pre_enqueue(uid) is not None:
            return ()
        new.append(_new_row(candidate, None, now))
    return new


_PLACE: sql.Query = ("SELECT revision FROM scheduling_cursor WHERE name = %s", [CURSOR])


def _move(since: int, upto: int) -> sql.Query:
    """Finds a row where the cursor stood there."""
    statement = "UPDATE scheduling_cursor SET revision = %s WHERE name = %s AND revision = %s RETURNING name"
    return statement, [upto, CURSOR, since]


#: A row that is held by one of these reasons.
_HELD_BY = "SELECT 1 FROM scheduling_queuedpod WHERE state = 'unschedulable' AND held_by & %s > 0"
_WAITING = f"SELECT EXISTS ({_HELD_BY})"


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
        wanted, present = view.waiting(), _present()
        # Events that cannot be read any more may have woken any of them.
        QueuedPod.objects.filter(state=UNSCHEDULABLE).update(state=ACTIVE, held_by=0, awaited=[])
        _enter(view, wanted ^ present, now, present=present)
        cursor.revision = max(cursor.revision, view.revision)
        cursor.save(update_fields=["revision"])
    view.fed = 0


def mend(view: ClusterView, now: datetime) -> int:
    """Add pods that have no row, drop rows that have no pod; returns how many."""
    astray = view.waiting() ^ _present()
    if astray:
        with transaction.atomic():
            Cursor.objects.select_for_update().filter(name=CURSOR).first()
            rows: list[tuple[str]] = sql.select(QueuedPod, ["uid"], ["uid"], [(uid,) for uid in astray])
            _enter(view, astray, now, present={uid for (uid,) in rows})
    return len(astray)


def _present() -> Set[str]:
    """The uids of the pods that have a row."""
    return {uid for (uid,) in sql.fetch("SELECT uid FROM scheduling_queuedpod")}


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
#: Where the cursor stands, and whether pods with rows have a part in what is new, or may be tried.
_BESIDE_ARRIVALS = (
    f"SELECT ({_PLACE[0]}), EXISTS ({_HELD_BY}) OR EXISTS ({_TRIABLE}) "  # noqa: S608 - constants only
    "OR EXISTS (SELECT 1 FROM scheduling_queuedpod WHERE "
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


def _as_ready(row: QueuedPod) -> ReadyPod:
    """One that was not tried yet."""
    return ReadyPod(
        uid=row.uid,
        attempts=0,
        ready_since=cast("datetime", row.parked_at),
        flushed=False,
        namespace=row.namespace,
        priority=row.priority,
    )


def settle(
    verdicts: Sequence[Verdict | Gone],
    *,
    revision: int,
    now: datetime,
    arrivals: Arrivals | None = None,
    stored: Sequence[Sequence[tuple[Any, ...]]] = (),
) -> None:
    """Record verdicts reached on the state of `revision`; part of the caller's transaction.

    arrivals: all that were tried, whatever part of the verdicts this is. stored: what `Arrivals.taken_over` found.

    An event that the feed read during the attempt found no waiting row to wake, so a pod that waits from now on is
    matched against everything since `revision` once more.
    """
    leaving = {verdict.uid for verdict in verdicts if isinstance(verdict, Placement | Gone)}
    if arrivals is not None:
        present = {uid for answer in stored[1:] for (uid,) in answer}  # another worker may have looked meanwhile
        new = [row for row in arrivals.rows if row.uid not in present]
        _insert([row for row in new if row.uid not in leaving])
        leaving -= {row.uid for row in new}
    _drop(leaving)
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
    generation, until = wait.pod.metadata.generation, wait.until
    if wait.leaves_claims:
        row.attempts, until = 0, _explain_at(row, wait.hold, now)  # as if PreEnqueue had refused it
    row.generation, row.cause = generation, causes.encode(wait.hold.cause)
    if wait.waits_for_driver:
        row.attempts = 0  # no backoff once the driver has done its part
    if missed is None or missed.helps(WaitingPod(uid=row.uid, generation=generation, hold=wait.hold)):
        _back_off(row, now, woken=not wait.hold.reasons & FULL_BACKOFF)
    else:
        _hold(row, wait.hold, until=until)


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
    _insert(new)
    _count_new(new)


def _insert(rows: Sequence[QueuedPod]) -> None:
    sql.insert(QueuedPod, (*_OTHERS, *_MADE_TEXT), [_values(row, _others) for row in rows])


def _count_new(rows: Iterable[QueuedPod]) -> None:
    for state, count in Counter(_part(row) for row in rows).items():
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


def flush(now: datetime) -> int:
    """Let old waits be tried: no pod waits forever. Returns how many. Where a feature gate was turned since, or more or
    less of a mirrored cluster is known, all waits are old: their reasons may not hold any more.
    """
    waiting = QueuedPod.objects.filter(state=UNSCHEDULABLE)
    old = waiting if _premises_changed() else waiting.filter(parked_at__lt=now - FLUSH_AFTER)
    return old.update(state=ACTIVE)


def try_again(uids: Collection[str] = (), *, lifted: int = 0) -> int:
    """Let pods be tried at once whose wait no event of the log ends: these, and those that a lifted reason holds."""
    held = Q(state=UNSCHEDULABLE, lifted__gt=0)
    rows = QueuedPod.objects.alias(lifted=F("held_by").bitand(lifted)).filter(held | Q(uid__in=uids))
    return rows.update(state=ACTIVE)


def _premises_changed() -> bool:
    """Whether the features that are on, or the gaps in what is known, are others than at the last sweep."""
    on = ",".join([*sorted(filter(gates.enabled, gates.KNOWN)), *map(str, gaps.gaps())])
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


# Scheduling time, shared between namespaces ---------------------------------------------------------------------------

# A worker decides about one pod at a time, so a pod whose selectors take long to evaluate, or whose devices take long
# to find, keeps every other pod waiting. Four rules limit that wait:
#
# - Slices. A decision that has taken `MANCIPLE_SEARCH_SLICE` seconds is cut off as soon as pods of other namespaces
#   wait; until then it may go on (`MANCIPLE_FILTER_TIMEOUT`). The pod's condition says so and the pod backs off. The
#   verdicts of its selectors so far are cached, so its next attempt continues from there.
#   The slice of a gang grows with its size and each time that it is cut off: it is decided about as a whole.
# - Batches. A batch takes up no more pods, and is committed, after `BATCH_SECONDS` of decisions, after a decision that
#   was cut off, and before the first pod of a slow namespace, or of one that used much time. A batch with a slow
#   decision, or with pods of a namespace that used much time, ends as soon as pods of other namespaces have come.
# - Turns. A worker takes up no more batches after `TURN_SECONDS`, nor after a batch that ended because others wait. It
#   then sends itself a message, so that other controllers get their turn.
# - Order. Time is counted by namespace and halves every `HALF_LIFE` seconds. Namespaces with slow decisions, by
#   processor time (`NamespaceTimes.slow`), go last, whatever their priority. Of one priority, those that used much time
#   go last, by the clock and commits included: thousands of pods that fit nowhere are quick to decide, but each status
#   is written.
#
# A user who spreads slow pods over several namespaces still gets one slice at a time, and all these namespaces go last.

#: Seconds of decisions after which a batch takes up no more pods.
BATCH_SECONDS = 0.5
#: Seconds after which a worker takes up no more batches in one turn.
TURN_SECONDS = 0.25
#: Seconds between two looks at whether pods of other namespaces wait.
LOOK_EVERY = 0.05
#: Events read in one look.
LOOKED_AT = 100
#: The slice of a gang is longer, by the slice of one pod for so many pods, up to so many seconds. It doubles each time
#: that the gang is cut off, up to so many, because the next attempt begins with its first pod again.
GANG_PODS, GANG_SLICE, LONGEST_GANG_SLICE = 50, 1.0, 8.0
#: Gangs of which it is known how often they were cut off.
MOST_CUT_OFF = 1000

#: Seconds in which what a namespace has used counts for half.
HALF_LIFE = 10.0
#: Seconds that a decision may take before it counts as slow; those beyond add up, at most to `MOST_SLOW`.
NOT_SLOW, MOST_SLOW = 0.02, 4.0
#: Seconds from which a namespace is slow; seconds of batches from which it has used much.
SLOW, MUCH = 0.5, 1.0
#: Namespaces that go last at a time: those that used the most.
MOST_LATE = 200


class _Decaying:
    """Seconds by namespace, halved every `HALF_LIFE` seconds."""

    def __init__(self, clock: Clock, most: float) -> None:
        self._clock = clock
        self._most = most
        self._used: dict[str, tuple[float, float]] = {}  # seconds, and when

    def add(self, namespace: str, seconds: float) -> None:
        self._used[namespace] = (min(self.of(namespace) + seconds, self._most), self._clock())

    def of(self, namespace: str) -> float:
        seconds, at = self._used.get(namespace, (0.0, 0.0))
        return seconds * 0.5 ** ((self._clock() - at) / HALF_LIFE) if seconds else 0.0

    def above(self, seconds: float) -> list[str]:
        """The namespaces with more, the most first; those with hardly any are forgotten."""
        now = {namespace: self.of(namespace) for namespace in self._used}
        self._used = {namespace: known for namespace, known in self._used.items() if now[namespace] > seconds / 100}
        return sorted((one for one in now if now[one] > seconds), key=lambda one: (-now[one], one))[:MOST_LATE]


class NamespaceTimes:
    """What the decisions and batches of one worker about pods of each namespace took. One thread at a time."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._all = _Decaying(clock, most=float("inf"))
        self._slow = _Decaying(clock, most=MOST_SLOW)
        #: uid of the first pod of a gang -> the slice in which its last attempt was cut off
        self._cut_off: dict[str, float] = {}

    def slice_of(self, uid: str, pods: int) -> float:
        """Seconds for a decision about a pod, or about a gang of so many pods of which it is the first."""
        before = self._cut_off.get(uid, 0.0) if pods else 0.0
        return max(slice_seconds(pods), min(2 * before, LONGEST_GANG_SLICE))

    def note_slice(self, uid: str, seconds: float, *, cut_off: bool) -> None:
        """Remember whether the decision about a gang was cut off after so many seconds."""
        self._cut_off.pop(uid, None)
        if cut_off:
            if len(self._cut_off) >= MOST_CUT_OFF:
                self._cut_off.clear()
            self._cut_off[uid] = seconds

    def add(self, namespace: str, seconds: float, *, cut_off: bool = False) -> None:
        """A decision took so much processor time."""
        metrics.NAMESPACE_TIME[namespace].inc(seconds)
        if cut_off or seconds > NOT_SLOW:
            self._slow.add(namespace, max(seconds - NOT_SLOW, 2 * SLOW if cut_off else 0.0))

    def add_turn(self, decided: Mapping[str, int], seconds: float) -> None:
        """Deciding about so many pods of each namespace, and committing that, took so long."""
        total = sum(decided.values())
        for namespace, count in decided.items():
            self._all.add(namespace, seconds * count / total)

    def slow(self) -> Sequence[str]:
        """Namespaces whose pods are decided about last, whatever their priority."""
        return self._slow.above(SLOW)

    def busy(self) -> Sequence[str]:
        """Namespaces whose pods are decided about last among pods of one priority."""
        return self._all.above(MUCH)


class Newcomers:
    """The namespaces whose pods became ready since a batch was taken up."""

    def __init__(self, revision: int) -> None:
        """revision: which the batch has seen."""
        #: up to where the log was read for new pods, and for what may let waiting pods fit
        self._revision = self._judged = revision
        self._new: set[str] = set()
        self._lifted = Reason(0)
        self._since = sql.adapted(datetime.now(UTC))

    def of_others(self, namespace: str) -> bool:
        """Whether pods of other namespaces are among them, or pods of theirs that waited may fit now.

        Documents are read only where others wait: a busy namespace alone writes thousands.
        """
        try:
            stretch = event_log.sketches_after(self._revision, resources=(PODS,), limit=LOOKED_AT)
            self._revision = stretch.revision
            for one in stretch.changes:
                if one.resource == PODS and one.type != DELETED and not one.fields.get("spec.nodeName"):
                    self._new.add(one.namespace)
            if self._new - {namespace}:
                return True
            now = sql.adapted(datetime.now(UTC))
            ((rested, wait),) = sql.fetch(_OTHERS_READY, [namespace, self._since, now, namespace])
            if rested or not wait:
                return bool(rested)
            news = event_log.stretch_after(self._judged, resources=hints.RESOURCES, limit=LOOKED_AT)
        except Expired:
            return True
        self._judged = news.revision
        self._lifted |= Wakes(map(hints.news_of, news.changes)).reasons
        return bool(sql.fetch(_MAY_FIT, [namespace, int(self._lifted)])[0][0])


#: Whether the backoff of a pod of other namespaces has ended meanwhile, and whether one waits for an event.
_OTHERS_READY = (
    "SELECT EXISTS (SELECT 1 FROM scheduling_queuedpod WHERE namespace <> %s AND not_before > %s AND not_before <= %s)"
    ", EXISTS (SELECT 1 FROM scheduling_queuedpod WHERE namespace <> %s AND state = 'unschedulable')"
)
#: Whether a pod waits for what was lifted.
_MAY_FIT = (
    "SELECT EXISTS (SELECT 1 FROM scheduling_queuedpod WHERE namespace <> %s AND state = 'unschedulable' "
    "AND held_by & %s > 0)"
)


class BatchTime:
    """The time of one batch of pods."""

    def __init__(self, times: NamespaceTimes, ready: Collection[ReadyPod], revision: int) -> None:
        self._times = times
        self._namespaces = {pod.namespace for pod in ready}
        self._slow, self._busy = frozenset(times.slow()), frozenset(times.busy())
        self._decided: Counter[str] = Counter()
        self._began = time.monotonic()
        self._newcomers = Newcomers(revision)
        self._next_look = self._began + LOOK_EVERY
        self._deadline = Deadline.after(BATCH_SECONDS)
        #: whether the batch ends early because pods of other namespaces wait
        self.gave_way = False
        self._was_slow = False
        #: the namespace of the last decision; "" before the first
        self._last = ""

    def is_over(self, namespace: str) -> bool:
        """Whether the batch is committed before a pod of the namespace is decided about. Never before its first pod."""
        if not self._last:
            return False
        late = namespace in self._slow and namespace != self._last
        late |= namespace in self._busy and self._last not in self._busy
        if late or self.gave_way or self._deadline.has_passed:
            return True
        may_be_long = self._was_slow or namespace in self._slow or namespace in self._busy
        if may_be_long and time.monotonic() >= self._next_look:
            # Others may have come: they are not in the queue yet.
            self.gave_way = self._newcomers.of_others(namespace)
            self._next_look = time.monotonic() + LOOK_EVERY
        return self.gave_way

    @contextmanager
    def deciding(self, pod: Pod, *, group: int = 0) -> Iterator[None]:
        """Around the decision about a pod; group: how many pods its group has. Raises: TimeLimitExceeded within."""
        namespace, began = pod.metadata.namespace, time.thread_time()
        self._last = namespace
        self._decided[namespace] += 1
        seconds = self._times.slice_of(pod.metadata.uid, group)
        limit = SearchSlice(seconds, partial(self._others_wait, namespace))
        try:
            with time_limit(limit.deadline):
                yield
        finally:
            took = time.thread_time() - began
            self.gave_way = limit.has_cut_off
            self._was_slow |= took > NOT_SLOW
            self._times.add(namespace, took, cut_off=limit.has_cut_off)
            if group:
                self._times.note_slice(pod.metadata.uid, seconds, cut_off=limit.has_cut_off)

    def end(self) -> None:
        """What was decided is committed. All pods waited for it, so the time of the clock counts."""
        if self._decided:
            self._times.add_turn(self._decided, time.monotonic() - self._began)

    def _others_wait(self, namespace: str) -> bool:
        """Pods of other namespaces in the batch wait for its commit; others came later, or did not fit into it."""
        if self._namespaces - {namespace} or self._newcomers.of_others(namespace):
            return True
        return bool(sql.fetch(_READY_BESIDE, [namespace])[0][0])


#: Whether pods of other namespaces are ready; asked where the batch has none of them.
_READY_BESIDE = "SELECT EXISTS (SELECT 1 FROM scheduling_queuedpod WHERE state = 'active' AND namespace <> %s)"


def slice_seconds(pods: int) -> float:
    """pods: of a group, 0 for a pod by itself."""
    seconds: float = settings.SCHEDULER_SEARCH_SLICE
    return max(seconds, min(seconds * (1 + pods / GANG_PODS), GANG_SLICE))


class SearchSlice:
    """A deadline that passes after so many seconds if others wait then, or as soon as they do."""

    def __init__(self, seconds: float, others_wait: Callable[[], bool], clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._others_wait = others_wait
        self._next_look = self._at = clock() + seconds
        self.has_cut_off = False
        self.deadline = Deadline(self._at, self._while_others_wait)

    def _while_others_wait(self) -> float:
        """The clock of the deadline: it stands still before it while no other pod waits."""
        now = self._clock()
        if now < self._at or self.has_cut_off:
            return now
        if now >= self._next_look:
            self.has_cut_off = self._others_wait()
            self._next_look = self._clock() + LOOK_EVERY
        return now if self.has_cut_off else self._at - LOOK_EVERY
