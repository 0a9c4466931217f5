"""What becomes of a Job next: which of its pods count, which go, how many are missing, whether it has ended. PURE.

    progress = Progress(job, pods, now, most=100)
    progress.step()      # now it knows what is to be written, and `missing`: pods to create
    progress.ended(made) # the status, once so many of them were created; and the events that tell of it

A pod has a finalizer until it is counted. Counting it and taking the finalizer off is one transaction here, so the list
of uncounted pods, which other control planes need between the two, stays empty, unless another one has left some in it.

At most `most` pods are created, deleted or counted in one step; `is_more` says that there are others.

Sources: pkg/controller/job/{job_controller,backoff_utils,indexed_job_utils,pod_failure_policy,success_policy}.go of
Kubernetes 1.36.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from msgspec.structs import replace

from manciple.wire.base import condition_of, timestamp
from workloads.kinds.indexes import IndexSet
from workloads.kinds.jobs import (
    COMPLETE,
    FAIL_INDEX,
    FAIL_JOB,
    FAILED,
    FAILURE_TARGET,
    IGNORE,
    IN,
    REPLACE_FAILED,
    SUCCESS_MET,
    SUSPENDED,
    Job,
    JobCondition,
    JobSpec,
    JobStatus,
    PodFailurePolicy,
    PodFailurePolicyRule,
    UncountedTerminatedPods,
)
from workloads.kinds.pod_facts import JobPodFacts, PodFacts

#: Seconds before a pod that failed is replaced: after the first failure, and at most. It doubles with each.
FIRST_BACKOFF, LONGEST_BACKOFF = 10.0, 600.0

#: (reason, message) of a condition
Why = tuple[str, str]

_SUSPENDED: Why = ("JobSuspended", "Job suspended")
_RESUMED: Why = ("JobResumed", "Job resumed")
_REACHED: Why = ("CompletionsReached", "Reached expected number of succeeded pods")
_BACKOFF: Why = ("BackoffLimitExceeded", "Job has reached the specified backoff limit")
_DEADLINE: Why = ("DeadlineExceeded", "Job was active longer than specified deadline")
_TOO_MANY_INDEXES: Why = (
    "MaxFailedIndexesExceeded",
    "Job has exceeded the specified maximal number of failed indexes",
)
_FAILED_INDEXES: Why = ("FailedIndexes", "Job has failed indexes")


@dataclass(frozen=True, slots=True)
class JobEvent:
    reason: str
    message: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class Missing:
    """A pod to create. index: -1 in a Job without indexes. failures, ignored: of the index so far; None where the Job
    does not count them by index.
    """

    index: int = -1
    failures: int | None = None
    ignored: int = 0


# What a failure means -------------------------------------------------------------------------------------------------


def judge(policy: PodFailurePolicy | None, pod: PodFacts, namespace: str) -> tuple[str, str]:
    """(the action of the first rule that the failed pod matches, why the Job fails where that is FailJob)."""
    for place, rule in enumerate(policy.rules if policy else ()):
        if why := _match(rule, pod, namespace):
            return rule.action, f"{why} matching {rule.action} rule at index {place}"
    return "", ""


def _match(rule: PodFailurePolicyRule, pod: PodFacts, namespace: str) -> str:
    """What of the pod matches; "" where nothing does."""
    facts, codes = _of_job(pod), rule.on_exit_codes
    for name, code in facts.exits if codes else ():
        if codes.container_name in (None, name) and (code in codes.values) == (codes.operator == IN):  # type: ignore[union-attr]  # codes is not None
            return f"Container {name} for pod {namespace}/{pod.name} failed with exit code {code}"
    wanted = {(one.type, one.status) for one in rule.on_pod_conditions}
    for condition in facts.conditions if not codes else ():
        if condition in wanted:
            return f"Pod {namespace}/{pod.name} has condition {condition[0]}"
    return ""


def _of_job(pod: PodFacts) -> JobPodFacts:
    if pod.job is None:
        raise ValueError(f"pod {pod.name} is no pod of a Job")
    return pod.job


def backoff_after(failures: int) -> float:
    """Seconds between the last of so many failures and the next pod."""
    return min(FIRST_BACKOFF * 2 ** min(failures - 1, 10), LONGEST_BACKOFF) if failures > 0 else 0.0


def enough_succeeded(spec: JobSpec, succeeded: IndexSet) -> str:
    """Which rule of the success policy is met; "" where none is."""
    for place, rule in enumerate(spec.success_policy.rules if spec.success_policy and succeeded else ()):
        found, needed = len(succeeded), rule.succeeded_count
        if rule.succeeded_indexes is not None:
            wanted = IndexSet.read(rule.succeeded_indexes, spec.completions or 0)
            found = succeeded.shared_with(wanted)
            needed = len(wanted) if needed is None else min(needed, len(wanted))
            if not wanted:
                continue
        if needed is not None and found >= needed:
            return f"Matched rules at index {place}"
    return ""


# The step -------------------------------------------------------------------------------------------------------------


class Progress:
    """One step of a Job. What is to be written is in the attributes after `step`.

    counted: pods that lose the finalizer. going: pods that are deleted; those that are in `dropped` lose the finalizer
    without being counted. missing: pods to create. later: when to look again by itself, as POSIX seconds.
    """

    def __init__(self, job: Job, pods: Iterable[PodFacts], now: datetime, *, most: int) -> None:
        self.job, self.spec, self.status = job, job.spec, job.status
        self._namespace = job.metadata.namespace
        self._now, self._most = now, most
        self._pods = list(pods)
        self._active = [pod for pod in self._pods if pod.is_active]
        self._completions = job.spec.completions
        self._only_failed = job.spec.pod_replacement_policy == REPLACE_FAILED or job.spec.pod_failure_policy is not None
        self._by_index = job.spec.is_indexed and job.spec.backoff_limit_per_index is not None
        self._succeeded_indexes = self._failed_indexes = IndexSet()
        #: how the Job ends: the condition that says so first, and why
        self._end: tuple[str, Why] | None = None
        self._waiting: dict[int, PodFacts] = {}
        #: (exits, conditions) of failed pods -> what the policy says of them
        self._actions: dict[tuple[object, object], str] = {}
        self.counted: list[PodFacts] = []
        self.going: list[PodFacts] = []
        self.dropped: list[PodFacts] = []
        self.missing: list[Missing] = []
        self.events: list[JobEvent] = []
        self.is_more = False
        self._times: list[float] = []

    @property
    def later(self) -> float | None:
        return self._now.timestamp() if self.is_more else min(self._times, default=None)

    def step(self) -> None:
        self._sort_out()
        self._begin()
        self._decide()
        if self._end is not None:
            self._stop()
        elif self.job.metadata.deletion_timestamp is None:
            self._manage()
        self._count()

    # 1. What there is -------------------------------------------------------------------------------------------------

    def _sort_out(self) -> None:
        uncounted = self.status.uncounted_terminated_pods or UncountedTerminatedPods()
        known = {*uncounted.succeeded, *uncounted.failed}
        fresh = [pod for pod in self._pods if _of_job(pod).is_tracked and pod.uid not in known and self._is_valid(pod)]
        self._new_successes = [pod for pod in fresh if pod.phase == "Succeeded"]
        self._new_failures = [pod for pod in fresh if self._has_failed(pod)]
        ignored = sum(self._action(pod) == IGNORE for pod in self._new_failures)
        self._succeeded = self.status.succeeded + len(self._new_successes) + len(uncounted.succeeded)
        self._failed = self.status.failed + len(self._new_failures) - ignored + len(uncounted.failed)
        if not self.spec.is_indexed:
            return
        before = IndexSet.read(self.status.completed_indexes, self._completions or 0)
        self._succeeded_indexes = before.union(IndexSet.of(_of_job(pod).index for pod in self._new_successes))
        self._succeeded = len(self._succeeded_indexes)
        if self._by_index:
            failed = IndexSet.of(_of_job(pod).index for pod in fresh if self._ends_index(pod))
            self._failed_indexes = IndexSet.read(self.status.failed_indexes or "", self._completions or 0).union(failed)
            self._waiting = self._failures_to_pass_on()

    def _action(self, pod: PodFacts) -> str:
        """What the policy says of the failed pod; of thousands that ended alike it is asked once."""
        facts = _of_job(pod)
        end = facts.exits, facts.conditions
        if end not in self._actions:
            self._actions[end] = judge(self.spec.pod_failure_policy, pod, self._namespace)[0]
        return self._actions[end]

    def _is_valid(self, pod: PodFacts) -> bool:
        return not self.spec.is_indexed or 0 <= _of_job(pod).index < (self._completions or 0)

    def _has_failed(self, pod: PodFacts) -> bool:
        """Pods that are being deleted count as failed, as they may never say how they ended, unless only those that
        have failed are replaced.
        """
        return pod.phase == "Failed" or (not self._only_failed and pod.is_deleting and pod.phase != "Succeeded")

    def _ends_index(self, pod: PodFacts) -> bool:
        if not self._has_failed(pod):
            return False
        action = self._action(pod)
        limit = self.spec.backoff_limit_per_index or 0
        return action == FAIL_INDEX or (action != IGNORE and _of_job(pod).failures >= limit)

    def _failures_to_pass_on(self) -> dict[int, PodFacts]:
        """index -> the pod that failed last; it stays uncounted until the next pod of the index knows its failures."""
        running = {_of_job(pod).index for pod in self._active}
        found: dict[int, PodFacts] = {}
        for pod in self._new_failures:
            facts = _of_job(pod)
            if facts.index in self._succeeded_indexes or facts.index in self._failed_indexes or facts.index in running:
                continue
            other = found.get(facts.index)
            if other is None or (_attempts(other), _of_job(other).finished) <= (_attempts(pod), facts.finished):
                found[facts.index] = pod
        return found

    def _begin(self) -> None:
        if self.status.start_time is None and not self.spec.suspend:
            self.status = replace(self.status, start_time=timestamp(self._now))

    # 2. Whether it ends -----------------------------------------------------------------------------------------------

    def _decide(self) -> None:
        for type_ in (SUCCESS_MET, FAILURE_TARGET):
            known = condition_of(self.status.conditions, type_)
            if known is not None and known.status == "True":
                self._end = (type_, (known.reason, known.message))
                return
        if (why := self._why_failed()) is not None:
            self._end = (FAILURE_TARGET, why)
        elif message := enough_succeeded(self.spec, self._succeeded_indexes):
            self._end = (SUCCESS_MET, ("SuccessPolicy", message))

    def _why_failed(self) -> Why | None:
        spec = self.spec
        for pod in self._pods if spec.pod_failure_policy else ():
            # One that is counted was judged then.
            if self._has_failed(pod) and _of_job(pod).is_tracked and self._action(pod) == FAIL_JOB:
                return "PodFailurePolicy", judge(spec.pod_failure_policy, pod, self._namespace)[1]
        limit = spec.backoff_limit or 0
        if self._failed > limit or self._restarts_reach(limit):
            return _BACKOFF
        if self._is_overdue():
            return _DEADLINE
        if self._by_index and self._failed_indexes:
            if spec.max_failed_indexes is not None and len(self._failed_indexes) > spec.max_failed_indexes:
                return _TOO_MANY_INDEXES
            if len(self._failed_indexes) + len(self._succeeded_indexes) >= (self._completions or 0):
                return _FAILED_INDEXES
        return None

    def _restarts_reach(self, limit: int) -> bool:
        if self.spec.template.spec.restart_policy != "OnFailure":
            return False
        return sum(_of_job(pod).restarts for pod in self._pods) >= max(limit, 1)

    def _is_overdue(self) -> bool:
        seconds, start = self.spec.active_deadline_seconds, self.status.start_time
        if seconds is None or start is None or self.spec.suspend:
            return False
        due = datetime.fromisoformat(start).timestamp() + seconds
        if due <= self._now.timestamp():
            return True
        self._times.append(due)
        return False

    # 3. Pods ----------------------------------------------------------------------------------------------------------

    def _stop(self) -> None:
        """It ends: no pod may go on."""
        self.going = self._first(self._active)

    def _manage(self) -> None:
        spec, active = self.spec, len(self._active)
        if spec.suspend:
            self.going = self.dropped = self._first(self._active)
            return
        wanted = spec.parallelism or 0
        if self._completions is not None:
            wanted = max(0, min(wanted, self._completions - self._succeeded))
        elif self._succeeded:
            wanted = active  # those that run may go on
        surplus = self._surplus(active - wanted)
        if surplus:
            self.going = self.dropped = self._first(surplus)
            return
        terminating = sum(pod.is_deleting and not pod.has_ended for pod in self._pods) if self._only_failed else 0
        number = wanted - active - terminating
        if number <= 0:
            return
        if not self._by_index and (delay := self._backoff()) is not None:
            self._times.append(delay)
            return
        found = self._next_indexes(number) if spec.is_indexed else [Missing()] * min(number, self._most + 1)
        self.missing = found[: self._most]
        self.is_more = self.is_more or len(found) > self._most

    def _surplus(self, number: int) -> list[PodFacts]:
        """So many active pods, and all whose index is no index of the Job or one that another has; the least done
        first.
        """
        ranked = sorted(self._active, key=_progress_of)
        found: list[PodFacts] = []
        if self.spec.is_indexed:
            left = Counter(_of_job(pod).index for pod in ranked if self._is_valid(pod))
            for pod in ranked:
                index = _of_job(pod).index
                if left[index] != 1:
                    found.append(pod)
                    left[index] -= 1
        taken = {pod.uid for pod in found}
        rest = (pod for pod in ranked if pod.uid not in taken)
        return found + list(islice(rest, max(0, number - len(found))))

    def _backoff(self) -> float | None:
        """When the next pod may be created; None: at once. It goes by the failures since the last success."""
        success = max((_of_job(pod).finished for pod in self._pods if pod.phase == "Succeeded"), default=0.0)
        ends = [_of_job(pod).finished for pod in self._pods if self._has_failed(pod)]
        ends = [end for end in ends if end > success]
        due = max(ends, default=0.0) + backoff_after(len(ends))
        return due if due > self._now.timestamp() else None

    def _next_indexes(self, number: int) -> list[Missing]:
        taken = [
            _of_job(pod).index for pod in self._pods if pod.is_active or (self._only_failed and _is_terminating(pod))
        ]
        busy = self._succeeded_indexes.union(self._failed_indexes).union(IndexSet.of(one for one in taken if one >= 0))
        found: list[Missing] = []
        delays: list[float] = []
        for index in islice(busy.missing(self._completions or 0), number):
            if len(found) > self._most:
                break
            if not self._by_index:
                found.append(Missing(index))
                continue
            last = self._waiting.get(index)
            if last is None:
                found.append(Missing(index, failures=0))
                continue
            due = _of_job(last).finished + backoff_after(_attempts(last) + 1)
            if due > self._now.timestamp():
                delays.append(due)
                continue
            is_ignored = self._action(last) == IGNORE
            facts = _of_job(last)
            found.append(Missing(index, facts.failures + (not is_ignored), facts.ignored_failures + is_ignored))
        self._times += delays
        return found

    def _first(self, pods: Sequence[PodFacts]) -> list[PodFacts]:
        self.is_more = self.is_more or len(pods) > self._most
        return list(pods[: self._most])

    # 4. The numbers ---------------------------------------------------------------------------------------------------

    def _count(self) -> None:
        """Take up to `most` pods into the numbers of the status, those of the first indexes first."""
        uncounted = self.status.uncounted_terminated_pods or UncountedTerminatedPods()
        known = {*uncounted.succeeded, *uncounted.failed}
        passed = {pod.uid for pod in self._waiting.values()} if not self._ends_now() else set()
        dropped = {pod.uid for pod in self.dropped}
        done = [
            pod
            for pod in sorted(self._pods, key=lambda pod: _of_job(pod).index)
            if _of_job(pod).is_tracked and pod.uid not in dropped and pod.uid not in passed and self._may_leave(pod)
        ]
        self.counted = self._first(done)
        ready = {pod.uid for pod in self.counted}
        left = {pod.uid for pod in self._pods if _of_job(pod).is_tracked and pod.uid not in ready}
        successes, failures = 0, 0
        indexes: list[int] = []
        for pod in self.counted:
            if pod.uid in known or not self._is_valid(pod):
                continue
            if pod.phase == "Succeeded":
                successes += 1
                indexes.append(_of_job(pod).index)
            elif self._counts_as_failed(pod):
                failures += 1
        kept = UncountedTerminatedPods(
            succeeded=tuple(uid for uid in uncounted.succeeded if uid in left),
            failed=tuple(uid for uid in uncounted.failed if uid in left),
        )
        successes += len(uncounted.succeeded) - len(kept.succeeded)
        failures += len(uncounted.failed) - len(kept.failed)
        status = replace(self.status, failed=self.status.failed + failures, uncounted_terminated_pods=kept)
        if self.spec.is_indexed:
            before = IndexSet.read(status.completed_indexes, self._completions or 0)
            completed = before.union(IndexSet.of(indexes))
            failed_indexes = str(self._failed_indexes) if self._by_index else None
            status = replace(
                status, succeeded=len(completed), completed_indexes=str(completed), failed_indexes=failed_indexes
            )
        else:
            status = replace(status, succeeded=status.succeeded + successes)
        self.status = status
        self._all_counted = len(self.counted) == len(done) and not kept.succeeded and not kept.failed

    def _ends_now(self) -> bool:
        return self._end is not None or self.job.metadata.deletion_timestamp is not None

    def _may_leave(self, pod: PodFacts) -> bool:
        """Whether nothing is to be learned from the pod any more."""
        return self._ends_now() or pod.phase == "Succeeded" or self._has_failed(pod)

    def _counts_as_failed(self, pod: PodFacts) -> bool:
        """Pods that a failing Job stops have failed, too."""
        stopped = self._end is not None and self._end[0] == FAILURE_TARGET
        if not self._has_failed(pod) and not stopped:
            return False
        return self._action(pod) != IGNORE

    # 5. What the status says ------------------------------------------------------------------------------------------

    def ended(self, made: int) -> JobStatus:
        """The status, with so many pods created; adds to `events`."""
        going = {pod.uid for pod in self.going}
        staying = [pod for pod in self._active if pod.uid not in going]
        terminating = sum(map(_is_terminating, self._pods)) + len(going)
        status = replace(
            self.status,
            active=len(staying) + made,
            ready=sum(pod.is_ready for pod in staying),
            terminating=terminating,
        )
        end = self._end
        if end is None and self._is_complete(status):
            end = (SUCCESS_MET, _REACHED)
        if end is not None:
            status = _with_condition(status, end[0], "True", end[1], self._now)
            if self._all_counted and not status.active and not terminating:
                status = self._finished(status, *end)
        elif self.job.metadata.deletion_timestamp is None:
            status = self._suspended_or_not(status)
        return status

    def _is_complete(self, status: JobStatus) -> bool:
        if status.active:
            return False
        return self._succeeded > 0 if self._completions is None else self._succeeded >= self._completions

    def _finished(self, status: JobStatus, type_: str, why: Why) -> JobStatus:
        if type_ == FAILURE_TARGET:
            self.events.append(JobEvent(*why, warning=True))
            return _with_condition(status, FAILED, "True", why, self._now)
        if self._completions is not None and status.succeeded > self._completions:
            message = "Too many succeeded pods running after completion count reached"
            self.events.append(JobEvent("TooManySucceededPods", message, warning=True))
        self.events.append(JobEvent("Completed", "Job completed"))
        status = _with_condition(status, COMPLETE, "True", why, self._now)
        return replace(status, completion_time=timestamp(self._now))

    def _suspended_or_not(self, status: JobStatus) -> JobStatus:
        known = condition_of(status.conditions, SUSPENDED)
        if self.spec.suspend:
            if known is None or known.status != "True":
                self.events.append(JobEvent("Suspended", _SUSPENDED[1]))
            return replace(_with_condition(status, SUSPENDED, "True", _SUSPENDED, self._now), start_time=None)
        if known is not None and known.status != "False":
            self.events.append(JobEvent("Resumed", _RESUMED[1]))
            status = _with_condition(status, SUSPENDED, "False", _RESUMED, self._now)
            return replace(status, start_time=timestamp(self._now))
        return status


def _attempts(pod: PodFacts) -> int:
    """How often the pod's index has failed before it, whatever that counts."""
    return _of_job(pod).failures + _of_job(pod).ignored_failures


def _is_terminating(pod: PodFacts) -> bool:
    return pod.is_deleting and not pod.has_ended


def _progress_of(pod: PodFacts) -> tuple[object, ...]:
    """In this order they are deleted: without a node, pending, not ready, ready or existing for a shorter time."""
    return (
        bool(pod.node),
        pod.phase == "Running",
        pod.is_ready,
        -(datetime.fromisoformat(pod.ready_since).timestamp() if pod.ready_since else 0.0),
        -pod.restarts,
        -(datetime.fromisoformat(pod.created).timestamp() if pod.created else 0.0),
        pod.name,
    )


def _with_condition(status: JobStatus, type_: str, value: str, why: Why, now: datetime) -> JobStatus:
    known = condition_of(status.conditions, type_)
    if known is not None and (known.status, known.reason, known.message) == (value, *why):
        return status
    at = timestamp(now)
    made = JobCondition(
        type=type_, status=value, last_probe_time=at, last_transition_time=at, reason=why[0], message=why[1]
    )
    others = tuple(made if one.type == type_ else one for one in status.conditions)
    return replace(status, conditions=others if known is not None else (*others, made))


def due_after(status: JobStatus, seconds: int | None) -> float | None:
    """When a Job that has ended is deleted by itself, as POSIX seconds."""
    ends = [one for one in status.conditions if one.type in (COMPLETE, FAILED) and one.status == "True"]
    if seconds is None or not ends or ends[0].last_transition_time is None:
        return None
    return datetime.fromisoformat(ends[0].last_transition_time).timestamp() + seconds
