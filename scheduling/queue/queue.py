"""The scheduling queue: a table of the pods that have no node yet, fed from the event log.

A row's way (the whole of it; `settle` and `feed` are the only ones who move a row):

    new, PreEnqueue passes            -> active
    new, PreEnqueue refuses           -> unschedulable, held by its reasons
    unschedulable, an event may help  -> active, or backoff while the rest of its last attempt lasts
    unschedulable for 5 minutes       -> active
    unschedulable until a moment      -> tried at it
    active, or backoff that is over   -> tried
    backoff after an event            -> tried if nobody else is to be (kube-scheduler's SchedulerPopFromBackoffQ)
    tried, placed or gone             -> no row
    tried, no place                   -> unschedulable, held by its reasons
    tried, conflict                   -> active, a few times; then backoff
    tried, fault                      -> backoff
    tried, database away              -> as before
    no time left to try it            -> as before

Workers share one cursor into the log, and take turns (`manciple.controllers.coordination`), so that one at a time tries
pods. Nothing here decides correctness: a pod that two workers try is bound once, by the commit.

Locks are taken in the order revision counter (by the commit), cursor, queue rows.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from operator import attrgetter
from typing import Any, Protocol

from django.db import transaction
from django.db.models import F, Q

from claims.causes import causes
from claims.causes.causes import AnyCause
from claims.kinds.pods import Pod
from manciple.controllers.models import Cursor
from manciple.store import event_log, sql
from manciple.store.event_log import Stretch, since
from scheduling import metrics as told
from scheduling.models import QueuedPod
from scheduling.queue import hints
from scheduling.queue.hints import News, ParkedPod, Wakes
from scheduling.queue.reasons import Hold, Reason

#: Attempts after which a pod that lost a race rests like any other.
MOST_AT_ONCE = 5
#: Pods that are tried during their rest at a time: whoever comes meanwhile waits for these.
MOST_EARLY = 32
#: Events read in one step.
BATCH = 2000

CURSOR = "queue"
#: Whether any pod is in the queue.
ANYBODY_WAITS: sql.Query = ("SELECT EXISTS (SELECT 1 FROM scheduling_queuedpod)", ())
#: What PreEnqueue refuses: kube-scheduler calls these pods gated.
GATED = int(Reason.GATED | Reason.CLAIM_MISSING | Reason.GROUP)
#: Who failed so rests to the end, whatever happens: what it sets in motion itself would wake it on and on.
ALWAYS_RESTS = Reason.ERROR | Reason.NEGOTIATION
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
    """The cluster as one worker knows it (`scheduling.state.cluster`): what the queue asks of it."""

    @property
    def revision(self) -> int: ...
    def news_after(self, revision: int) -> Sequence[News] | None: ...
    def candidates(self) -> Iterable[Candidate]: ...
    def candidate(self, uid: str) -> Candidate | None: ...
    def pre_enqueue(self, uid: str) -> Hold | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The pod needs no scheduling any more: it is bound, finished or gone."""

    uid: str
    #: bound by this very attempt
    placed: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parked:
    """The pod does not fit; it waits for an event. until: then it is tried again, whatever happened."""

    uid: str
    generation: int
    hold: Hold
    until: datetime | None = None

    @property
    def waits_for_driver(self) -> bool:
        """Nothing failed."""
        return self.hold.reasons in (Reason.BINDING, Reason.NEGOTIATION)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Somebody else was faster, or something broke: try again after a rest."""

    uid: str
    cause: AnyCause | None
    #: nothing is wrong with the pod: try again without a rest, unless that has not helped before
    at_once: bool = False
    #: something broke: what the worker knows of the cluster may be wrong
    broken: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NotTried:
    """The pod's turn did not come: nothing changes for it."""

    uid: str


Outcome = Done | Parked | Retry | NotTried


def is_for_now(outcome: Outcome) -> bool:
    """Whether the pod is tried again without a rest."""
    return isinstance(outcome, NotTried) or (isinstance(outcome, Retry) and outcome.at_once)


def is_progress(outcome: Outcome) -> bool:
    """Whether trying the pod was of use, or is not over."""
    waits = isinstance(outcome, Parked) and outcome.waits_for_driver
    return waits or isinstance(outcome, Done) or is_for_now(outcome)


def feed(view: ClusterView, now: datetime) -> int:
    """Carry what the log says, up to `view.revision`, over to the queue. Returns how many events were read."""
    total = 0
    while True:
        began = time.perf_counter()
        read = _feed_once(view, now)
        if not read:
            break
        told.EVENT_HANDLING["ClusterEvents"].observe(time.perf_counter() - began)
        total += read
        if read < BATCH:
            break
    return total


def _feed_once(view: ClusterView, now: datetime) -> int:
    known = sql.fetch("SELECT revision FROM scheduling_cursor WHERE name = %s", [CURSOR])
    if known and known[0][0] >= view.revision:
        return 0
    news = since(known[0][0], partial(_news, view)) if known else None
    if news is None:
        reseed(view, now)
        return 0
    seen = [one for one in news.changes if one.revision <= view.revision]
    pods, wakes = dict.fromkeys(one.uid for one in seen if one.resource == "pods"), Wakes(seen)
    rows = sql.selecting(QueuedPod, ["uid"], ["uid"], [(uid,) for uid in {**pods, **wakes.by_uid}])
    reached = max(known[0][0], min(news.revision, view.revision))
    with transaction.atomic():
        # Who moves the cursor on has its lock.
        queries = [(_MOVE, [reached, CURSOR, known[0][0]]), (_WAITING, [int(wakes.reasons)]), *rows]
        moved, waiting, *found = sql.fetch_together(queries)
        if moved:
            present = {uid for answer in found for (uid,) in answer}
            _enter(view, pods, now, present=present)
            if waiting[0][0] or not present.isdisjoint(wakes.by_uid):
                _wake(view, wakes, now)
            return len(seen)
    return _feed_once(view, now)  # somebody else was first; what they left is read


_MOVE = "UPDATE scheduling_cursor SET revision = %s WHERE name = %s AND revision = %s RETURNING name"
#: Whether a row may wait for what is lifted.
_WAITING = "SELECT EXISTS (SELECT 1 FROM scheduling_queuedpod WHERE state = 'unschedulable' AND held_by & %s > 0)"


def _news(view: ClusterView, revision: int) -> Stretch[News]:
    """At most BATCH events after `revision`: as the worker remembers them, else from the log. Raises: Expired."""
    remembered = view.news_after(revision)
    if remembered is None:
        return _logged(revision)
    more = len(remembered) > BATCH
    return Stretch(remembered[:BATCH], remembered[BATCH - 1].revision if more else view.revision, more)


def _logged(revision: int) -> Stretch[News]:
    """Raises: Expired."""
    found = event_log.stretch_after(revision, resources=hints.RESOURCES, limit=BATCH)
    return Stretch([hints.news_of(record) for record in found.changes], found.revision, found.more)


def reseed(view: ClusterView, now: datetime) -> None:
    """Make the rows match the pods of `view`: the first start, or the log was pruned past the cursor."""
    with transaction.atomic():
        Cursor.objects.get_or_create(name=CURSOR)
        cursor = Cursor.objects.select_for_update().get(name=CURSOR)
        wanted = {candidate.uid for candidate in view.candidates()}
        present = set(QueuedPod.objects.values_list("uid", flat=True))
        # Whoever waits may have been woken by what cannot be read any more.
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
            _enter(view, astray, now, present={uid for (uid,) in _present(astray)})
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

    def is_more_to_do(self, outcomes: Sequence[Outcome], limit: int) -> bool:
        """Whether to look again after the `next` ended so, of `limit` at most.

        Trying early ends when it is of no use: each event that wakes many costs one attempt in vain of a few of them.
        """
        if not self.due:
            return any(map(is_progress, outcomes))
        return len(outcomes) >= limit or bool(self.early) or any(map(is_for_now, outcomes))


_ORDER = "rests_until NULLS FIRST, priority DESC, created_at, revision"
_COLUMNS = "uid, attempts, created_at, parked_at, state, held_by, namespace, priority, not_before, rests_until"
_FOUND = (
    "SELECT *, CASE WHEN state = 'backoff' AND woken AND not_before > %s THEN not_before END AS rests_until "
    "FROM scheduling_queuedpod WHERE state = 'active' OR not_before <= %s OR (state = 'backoff' AND woken)"
)
_READY = f"SELECT {_COLUMNS} FROM ({_FOUND}) AS found ORDER BY {{}} LIMIT %s"  # noqa: S608
_READY_OF_EACH = (
    f"SELECT {_COLUMNS} FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY namespace ORDER BY {_ORDER}) AS place "  # noqa: S608
    f"FROM ({_FOUND}) AS found) AS ready WHERE place <= %s ORDER BY {{}}"
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
    found = sql.fetch((_READY_OF_EACH if of_each else _READY).format(order), [at, at, *limited])
    for uid, attempts, created, parked, state, held, namespace, priority, not_before, rests_until in found:
        pod = ReadyPod(
            uid=uid,
            attempts=attempts,
            # What was never tried was parked when it became ready; later that is told by nothing but its age.
            ready_since=(created if attempts or parked is None else parked).replace(tzinfo=UTC),
            flushed=state == ACTIVE and held > 0,
            namespace=namespace,
            priority=priority,
        )
        if rests_until is None:
            due.append(pod)
        else:
            early.append((not_before.replace(microsecond=0), pod))
    # Of rests that end in the same second the most important comes first (upstream: backoffQOrderingWindowDuration).
    early.sort(key=lambda one: (one[0], -one[1].priority, one[1].ready_since))
    return ReadyPods(due=due, early=[pod for _, pod in early[:MOST_EARLY]])


def settle(outcomes: Sequence[Outcome], *, revision: int, now: datetime) -> None:
    """Record how attempts ended that were made on the state of `revision`; part of the caller's transaction.

    An event that the feed read while the attempt ran found no waiting row to wake, so a pod that is parked here is
    held against everything since `revision` once more.
    """
    _drop(o.uid for o in outcomes if isinstance(o, Done))
    others = {o.uid: o for o in outcomes if isinstance(o, (Parked, Retry))}
    if not others:
        return
    told.INCOMING[("unschedulable", "ScheduleAttemptFailure")].inc(sum(isinstance(o, Parked) for o in others.values()))
    told.INCOMING[("backoff", "ScheduleAttemptFailure")].inc(sum(isinstance(o, Retry) for o in others.values()))
    missed = _missed(revision) if any(isinstance(o, Parked) for o in others.values()) else Wakes(())
    rows = list(QueuedPod.objects.select_for_update().filter(uid__in=others))
    for row in rows:
        row.attempts += 1
        row.parked_at = now
        outcome = others[row.uid]
        if isinstance(outcome, Parked):
            _park(row, outcome, missed, now)
        elif isinstance(outcome, Retry):
            row.cause = causes.encode(outcome.cause)
            _rest(row, now)
            if outcome.at_once and row.attempts <= MOST_AT_ONCE:
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
    """What the feed read after `revision`; None when that is no longer known."""
    cursor = Cursor.objects.select_for_update().filter(name=CURSOR).first()
    if cursor is None or cursor.revision <= revision:
        return Wakes(())
    news = since(revision, _logged)
    if news is None or news.more:
        return None
    return Wakes(one for one in news.changes if one.revision <= cursor.revision)


def _park(row: QueuedPod, outcome: Parked, missed: Wakes | None, now: datetime) -> None:
    row.generation, row.cause = outcome.generation, causes.encode(outcome.hold.cause)
    if outcome.waits_for_driver:
        row.attempts = 0  # it takes no rest once the driver has done its part
    waiting = ParkedPod(uid=row.uid, generation=outcome.generation, hold=outcome.hold)
    if missed is None or missed.helps(waiting):
        _rest(row, now, woken=not outcome.hold.reasons & ALWAYS_RESTS)
    else:
        _hold(row, outcome.hold, until=outcome.until)


def _hold(row: QueuedPod, hold: Hold, *, until: datetime | None = None) -> None:
    row.state, row.not_before = UNSCHEDULABLE, until
    row.held_by, row.awaited = int(hold.reasons), sorted(hold.awaited)
    row.cause = causes.encode(hold.cause)


def _rest(row: QueuedPod, now: datetime, *, woken: bool = False) -> None:
    """To the active queue, by way of what is left of the rest after the last attempt."""
    if not row.attempts:
        row.parked_at = now
    rested = (row.parked_at or now) + timedelta(seconds=backoff_seconds(row.attempts))
    row.state, row.not_before = (ACTIVE, None) if rested <= now else (BACKOFF, rested)
    row.held_by, row.awaited, row.woken = 0, [], woken


def _present(uids: Iterable[str]) -> list[tuple[str]]:
    return sql.select(QueuedPod, ["uid"], ["uid"], [(uid,) for uid in uids])


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
        told.INCOMING[(state, "PodAdd")].inc(count)


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
        _hold(row, hold)
    return row


def _wake(view: ClusterView, wakes: Wakes, now: datetime) -> None:
    """Move on the waiting rows that the events may help and that PreEnqueue lets pass."""
    lifted = int(wakes.reasons)
    if not lifted and not wakes.by_uid:
        return
    began = time.perf_counter()
    rows = QueuedPod.objects.select_for_update().filter(state=UNSCHEDULABLE).alias(lifted=F("held_by").bitand(lifted))
    changed = []
    for row in rows.filter(Q(lifted__gt=0) | Q(uid__in=wakes.by_uid)):
        if wakes.helps(ParkedPod(uid=row.uid, generation=row.generation, hold=_hold_of(row))):
            _reconsider(row, view, now)
            changed.append(row)
    told.HINTS[("DynamicResources", "ClusterEvents", "Queue" if changed else "Skip")].observe(
        time.perf_counter() - began
    )
    for state, count in Counter(_part(row) for row in changed).items():
        told.INCOMING[(state, "ClusterEvents")].inc(count)
    _store(changed)


def _reconsider(row: QueuedPod, view: ClusterView, now: datetime) -> None:
    hold = view.pre_enqueue(row.uid)
    if hold is None:
        _rest(row, now, woken=not row.held_by & ALWAYS_RESTS)
    else:
        _hold(row, hold)


def _hold_of(row: QueuedPod) -> Hold:
    return Hold(reasons=Reason(row.held_by), awaited=frozenset(row.awaited))


# Rests ---------------------------------------------------------------------------------------------------------------


INITIAL_SECONDS = 1.0
LONGEST_SECONDS = 10.0
_DOUBLINGS = 4  # 1, 2, 4, 8, then the longest


def backoff_seconds(attempts: int) -> float:
    """The rest after the `attempts`-th attempt (1 is the first); 0 before any."""
    if attempts <= 0:
        return 0.0
    doublings = min(attempts - 1, _DOUBLINGS)
    return min(INITIAL_SECONDS * (1 << doublings), LONGEST_SECONDS)
