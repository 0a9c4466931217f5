"""Scheduling time, shared between namespaces.

A worker decides about one pod at a time, so a pod whose selectors take long to evaluate, or whose devices take long to
find, keeps every other pod waiting. Four rules limit that wait:

- Slices. A decision that has taken `MANCIPLE_SEARCH_SLICE` seconds is cut off as soon as pods of other namespaces wait;
  until then it may go on (`MANCIPLE_FILTER_TIMEOUT`). The pod says so and backs off. The verdicts of its selectors so
  far are kept, so its next attempt goes on from there.
- Batches. A batch takes up no more pods, and is committed, after `BATCH_SECONDS` of decisions, after one that was cut
  off, and before the first of a slow namespace, or of one that used much time. One with a slow decision, or with pods
  of a namespace that used much time, ends as soon as pods of others have come.
- Turns. A worker takes up no more batches after `TURN_SECONDS`, nor after one that ended because others wait. It then
  sends itself a message, so that other controllers, above all the one that makes claims for new pods, get their turn.
- Order. Time is counted by namespace and halves every `HALF_LIFE` seconds. Namespaces with slow decisions, by processor
  time (`NamespaceTimes.slow`), go last, whatever their priority. Of one priority, those that used much time go last, by
  the clock and commits included: thousands of pods that fit nowhere are quick to decide, but each status is written.

Whoever spreads slow pods over several namespaces still gets one slice at a time, and all of these namespaces go last.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial

from django.conf import settings

from claims.kinds.pods import Pod
from manciple.store import event_log, sql
from manciple.wire.errors import Expired
from manciple.wire.limits import Clock, Deadline, time_limit
from manciple.wire.resources import DELETED, PODS
from scheduling.metrics import NAMESPACE_TIME
from scheduling.queue import hints
from scheduling.queue.hints import Wakes
from scheduling.queue.queue import ReadyPod
from scheduling.queue.reasons import Reason

#: Seconds of decisions after which a batch takes up no more pods.
BATCH_SECONDS = 0.5
#: Seconds after which a worker takes up no more batches in one turn.
TURN_SECONDS = 0.25
#: Seconds between two looks at whether pods of other namespaces wait.
LOOK_EVERY = 0.05
#: Events read in one look.
LOOKED_AT = 100
#: The slice of a gang is longer, by the slice of one pod for so many pods, up to so many seconds.
GANG_PODS, GANG_SLICE = 50, 1.0

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

    def add(self, namespace: str, seconds: float, *, cut_off: bool = False) -> None:
        """A decision took so much processor time."""
        NAMESPACE_TIME[namespace].inc(seconds)
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
            ((rested, wait),) = sql.fetch(_OTHERS, [namespace, self._since, now, namespace])
            if rested or not wait:
                return bool(rested)
            news = event_log.stretch_after(self._judged, resources=hints.RESOURCES, limit=LOOKED_AT)
        except Expired:
            return True
        self._judged = news.revision
        self._lifted |= Wakes(map(hints.news_of, news.changes)).reasons
        return bool(sql.fetch(_MAY_FIT, [namespace, int(self._lifted)])[0][0])


#: Whether the backoff of a pod of other namespaces has ended meanwhile, and whether one waits for an event.
_OTHERS = (
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
            # Others may wait for their claims: they are not in the queue yet.
            self.gave_way = self._newcomers.of_others(namespace)
            self._next_look = time.monotonic() + LOOK_EVERY
        return self.gave_way

    @contextmanager
    def deciding(self, pod: Pod, *, group: int = 0) -> Iterator[None]:
        """Around the decision about a pod; group: how many pods its group has. Raises: TimeLimitExceeded within."""
        namespace, began = pod.metadata.namespace, time.thread_time()
        self._last = namespace
        self._decided[namespace] += 1
        limit = SearchSlice(slice_seconds(group), partial(self._others_wait, namespace))
        try:
            with time_limit(limit.deadline):
                yield
        finally:
            took = time.thread_time() - began
            self.gave_way = limit.has_cut_off
            self._was_slow |= took > NOT_SLOW
            self._times.add(namespace, took, cut_off=limit.has_cut_off)

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
