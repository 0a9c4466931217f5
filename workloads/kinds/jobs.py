"""batch/v1 Job: pods of one template that run until so many have succeeded. PURE.

Sources: k8s.io/api/batch/v1, pkg/apis/batch/{v1/defaults.go,validation/validation.go}, pkg/registry/batch/job,
pkg/api/job/warnings.go and pkg/printers/internalversion/printers.go of Kubernetes 1.36.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from typing import Annotated

from msgspec.structs import replace

from claims.kinds.containers import Container
from claims.kinds.pods import Affinity
from manciple.wire.base import (
    ApiObject,
    Int32,
    Int64,
    LabelSelector,
    TimeText,
    Value,
    always,
    condition_of,
    pb,
)
from manciple.wire.errors import (
    OMITTED,
    FieldError,
    duplicate,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
)
from manciple.wire.registry import Column, Kind, Subresource
from manciple.wire.selectors import as_label_selector, validate_label_selector
from manciple.wire.tables import AGE_COLUMN, NAME_COLUMN, human_duration
from manciple.wire.validation import (
    METADATA,
    SPEC,
    STATUS,
    Path,
    check_dns_label,
    check_dns_subdomain,
    check_label_key,
    each,
    validate_immutable,
    validate_object_meta,
    validate_object_meta_update,
)
from workloads.kinds import templates
from workloads.kinds.indexes import check_disjoint, check_indexes
from workloads.kinds.replica_sets import CONTAINERS_COLUMN, IMAGES_COLUMN, SELECTOR_COLUMN, not_negative
from workloads.kinds.templates import PodTemplateSpec, validate_template

PACKAGE = "io.k8s.api.batch.v1"

Errors = list[FieldError]

#: On the pods of a Job as long as they are not counted in its status.
TRACKED = "batch.kubernetes.io/job-tracking"
#: Labels of a Job's pods; the second of each is what they were called before.
UID_LABELS = ("batch.kubernetes.io/controller-uid", "controller-uid")
NAME_LABELS = ("batch.kubernetes.io/job-name", "job-name")
#: Label and annotation of the pods of an Indexed Job.
INDEX = "batch.kubernetes.io/job-completion-index"
FAILURES = "batch.kubernetes.io/job-index-failure-count"
IGNORED_FAILURES = "batch.kubernetes.io/job-index-ignored-failure-count"
#: Who looks after Jobs that name nobody else.
CONTROLLER_NAME = "kubernetes.io/job-controller"

INDEXED, NON_INDEXED = "Indexed", "NonIndexed"
REPLACE_FAILED, REPLACE_TERMINATING = "Failed", "TerminatingOrFailed"
COUNT, FAIL_INDEX, FAIL_JOB, IGNORE = "Count", "FailIndex", "FailJob", "Ignore"
ACTIONS = (COUNT, FAIL_INDEX, FAIL_JOB, IGNORE)
IN, NOT_IN = "In", "NotIn"
COMPLETE, FAILED, FAILURE_TARGET, SUSPENDED = "Complete", "Failed", "FailureTarget", "Suspended"
SUCCESS_MET = "SuccessCriteriaMet"

BACKOFF_LIMIT, MOST_INT32 = 6, 2**31 - 1
MOST_PARALLEL = MOST_FAILED_INDEXES = MANY_COMPLETIONS = 100_000
#: Of Jobs with more than `MANY_COMPLETIONS`.
MOST_AMONG_MANY = 10_000
MOST_RULES = MOST_CONDITIONS = 20
MOST_EXIT_CODES = 255
MOST_INDEXES_TEXT = 64 * 1024
MOST_MANAGER = 63


class PodFailurePolicyOnExitCodesRequirement(Value):
    """container_name: of this container only. operator: In or NotIn. values: exit codes, ascending; not 0 for In."""

    container_name: Annotated[str | None, pb(1)] = None
    operator: Annotated[str, pb(2)] = always("")
    values: Annotated[tuple[Int32, ...], pb(3)] = always(())


class PodFailurePolicyOnPodConditionsPattern(Value):
    """type, status: of a condition that the pod has; True where no status is said."""

    type: Annotated[str, pb(1)] = always("")
    status: Annotated[str, pb(2)] = always("")


class PodFailurePolicyRule(Value):
    """What a pod's failure means that one of these describes.

    action: FailJob ends the Job, FailIndex the pod's index, Ignore does not count the failure, Count does.
    on_exit_codes, on_pod_conditions: one of them.
    """

    action: Annotated[str, pb(1)] = always("")
    on_exit_codes: Annotated[PodFailurePolicyOnExitCodesRequirement | None, pb(2)] = None
    on_pod_conditions: Annotated[tuple[PodFailurePolicyOnPodConditionsPattern, ...], pb(3)] = ()


class PodFailurePolicy(Value):
    """rules: the first that matches says what a pod's failure means; where none does, it counts."""

    rules: Annotated[tuple[PodFailurePolicyRule, ...], pb(1)] = always(())


class SuccessPolicyRule(Value):
    """succeeded_indexes: these must succeed, all or so many of them. succeeded_count: so many, of those or of all."""

    succeeded_indexes: Annotated[str | None, pb(1)] = None
    succeeded_count: Annotated[Int32 | None, pb(2)] = None


class SuccessPolicy(Value):
    """rules: the Job succeeds as soon as one of them is met."""

    rules: Annotated[tuple[SuccessPolicyRule, ...], pb(1)] = always(())


class JobSpec(Value):
    """parallelism: at most so many pods at a time. completions: so many must succeed; unset: one, and then those that
    run may end. active_deadline_seconds: the Job fails that takes longer. pod_failure_policy: what failures mean.
    success_policy: which successes are enough; of Indexed Jobs. backoff_limit: so many pods may fail.
    backoff_limit_per_index, max_failed_indexes: so often an index may fail, and so many indexes may. selector:
    generated, unless manual_selector. template: what the pods look like; they end, so their restartPolicy is not
    Always. ttl_seconds_after_finished: so long the Job stays. completion_mode: NonIndexed, or Indexed: each pod has a
    number. suspend: no pod runs. pod_replacement_policy: whether a pod that is being deleted is replaced at once.
    managed_by: another controller that looks after it; immutable.

    manual_selector: whether the selector is the author's own; false lets one be made.
    """

    parallelism: Annotated[Int32 | None, pb(1)] = None
    completions: Annotated[Int32 | None, pb(2)] = None
    active_deadline_seconds: Annotated[Int64 | None, pb(3)] = None
    pod_failure_policy: Annotated[PodFailurePolicy | None, pb(11)] = None
    success_policy: Annotated[SuccessPolicy | None, pb(16)] = None
    backoff_limit: Annotated[Int32 | None, pb(7)] = None
    backoff_limit_per_index: Annotated[Int32 | None, pb(12)] = None
    max_failed_indexes: Annotated[Int32 | None, pb(13)] = None
    selector: Annotated[LabelSelector | None, pb(4)] = None
    manual_selector: Annotated[bool | None, pb(5)] = None
    template: Annotated[PodTemplateSpec, pb(6)] = always(PodTemplateSpec())
    ttl_seconds_after_finished: Annotated[Int32 | None, pb(8)] = None
    completion_mode: Annotated[str | None, pb(9)] = None
    suspend: Annotated[bool | None, pb(10)] = None
    pod_replacement_policy: Annotated[str | None, pb(14)] = None
    managed_by: Annotated[str | None, pb(15)] = None

    @property
    def is_indexed(self) -> bool:
        return self.completion_mode == INDEXED


class JobCondition(Value):
    """type: Suspended, FailureTarget or SuccessCriteriaMet (the Job is about to end), Failed or Complete."""

    type: Annotated[str, pb(1)] = always("")
    status: Annotated[str, pb(2)] = always("")
    last_probe_time: Annotated[TimeText | None, pb(3, encoding="time")] = None
    last_transition_time: Annotated[TimeText | None, pb(4, encoding="time")] = None
    reason: Annotated[str, pb(5)] = ""
    message: Annotated[str, pb(6)] = ""


class UncountedTerminatedPods(Value):
    """The uids of pods that have ended and are not in the numbers yet.

    succeeded: the uids of those that succeeded. failed: the uids of the others.
    """

    succeeded: Annotated[tuple[str, ...], pb(1)] = ()
    failed: Annotated[tuple[str, ...], pb(2)] = ()


class JobStatus(Value):
    """start_time: when it began, or was resumed. active, succeeded, failed, ready: numbers of pods. terminating: those
    that are being deleted. completed_indexes, failed_indexes: such as "0,2-4".

    completion_time: when it succeeded.
    """

    conditions: Annotated[tuple[JobCondition, ...], pb(1, merge_key="type")] = ()
    start_time: Annotated[TimeText | None, pb(2, encoding="time")] = None
    completion_time: Annotated[TimeText | None, pb(3, encoding="time")] = None
    active: Annotated[Int32, pb(4)] = 0
    succeeded: Annotated[Int32, pb(5)] = 0
    failed: Annotated[Int32, pb(6)] = 0
    terminating: Annotated[Int32 | None, pb(11)] = None
    completed_indexes: Annotated[str, pb(7)] = ""
    failed_indexes: Annotated[str | None, pb(10)] = None
    uncounted_terminated_pods: Annotated[UncountedTerminatedPods | None, pb(8)] = None
    ready: Annotated[Int32 | None, pb(9)] = None

    def has(self, condition: str) -> bool:
        return any(one.type == condition and one.status == "True" for one in self.conditions)

    @property
    def is_finished(self) -> bool:
        return self.has(COMPLETE) or self.has(FAILED)


class Job(ApiObject):
    """Pods of one template that run until so many have succeeded. Namespaced."""

    spec: Annotated[JobSpec, pb(2)] = always(JobSpec())
    status: Annotated[JobStatus, pb(3)] = always(JobStatus())


# How they are stored --------------------------------------------------------------------------------------------------


def prepared_spec(spec: JobSpec, old: JobSpec | None = None) -> JobSpec:
    """With the defaults that hold in the templates of CronJobs, too."""
    policy = spec.pod_failure_policy
    if policy is not None:
        policy = replace(policy, rules=tuple(map(_with_statuses, policy.rules)))
    template = templates.prepared(spec.template, None if old is None else old.template)
    return replace(spec, template=template, pod_failure_policy=policy)


def _with_statuses(rule: PodFailurePolicyRule) -> PodFailurePolicyRule:
    patterns = tuple(replace(one, status=one.status or "True") for one in rule.on_pod_conditions)
    return replace(rule, on_pod_conditions=patterns)


def _with_defaults(job: Job, old: JobSpec | None = None) -> Job:
    spec = prepared_spec(job.spec, old)
    counts = (spec.completions, spec.parallelism)
    completions, parallelism = (1, 1) if counts == (None, None) else (counts[0], 1 if counts[1] is None else counts[1])
    limit = BACKOFF_LIMIT if spec.backoff_limit_per_index is None else MOST_INT32
    replacement = REPLACE_TERMINATING if spec.pod_failure_policy is None else REPLACE_FAILED
    spec = replace(
        spec,
        completions=completions,
        parallelism=parallelism,
        backoff_limit=limit if spec.backoff_limit is None else spec.backoff_limit,
        manual_selector=bool(spec.manual_selector),
        completion_mode=NON_INDEXED if spec.completion_mode is None else spec.completion_mode,
        suspend=bool(spec.suspend),
        pod_replacement_policy=replacement if spec.pod_replacement_policy is None else spec.pod_replacement_policy,
    )
    return _with_labels(replace(job, spec=spec))


def _with_labels(job: Job) -> Job:
    """With its template's labels, where it has none."""
    if job.metadata.labels or not (labels := job.spec.template.metadata.labels):
        return job
    return replace(job, metadata=replace(job.metadata, labels=labels))


def create_job(new: Job) -> Job:
    return replace(_with_defaults(new), status=JobStatus())


def with_selector(job: Job) -> Job:
    """A new Job with its name and uid: unless the selector is manual, its pods have both as labels, and it selects
    them by the second.
    """
    if job.spec.manual_selector:
        return job
    meta, template = job.metadata, job.spec.template
    generated = {**dict.fromkeys(NAME_LABELS, meta.name), **dict.fromkeys(UID_LABELS, meta.uid)}
    selector = job.spec.selector or LabelSelector()
    spec = replace(
        job.spec,
        selector=replace(selector, match_labels={UID_LABELS[0]: meta.uid, **selector.match_labels}),
        template=replace(
            template, metadata=replace(template.metadata, labels={**generated, **template.metadata.labels})
        ),
    )
    # Labels that the Job took from its template were the template's own map, so it gets what that gets.
    shared = bool(meta.labels) and meta.labels == template.metadata.labels
    labels = spec.template.metadata.labels if shared else meta.labels
    return _with_labels(replace(job, spec=spec, metadata=replace(meta, labels=labels)))


def update_job(new: Job, old: Job) -> Job:
    return replace(_with_defaults(new, old.spec), status=old.status)


def update_job_status(new: Job, old: Job) -> Job:
    return replace(new, spec=old.spec)  # its metadata, too, may be written so


# Rules ----------------------------------------------------------------------------------------------------------------


def validate_job(new: Job) -> Errors:
    # Labels that only the server has made are wrong in the template alone.
    is_made = set(new.metadata.labels) <= {*UID_LABELS, *NAME_LABELS}
    meta = replace(new.metadata, labels={}) if is_made and not new.spec.manual_selector else new.metadata
    found = validate_object_meta(meta, namespaced=True)
    found += _validate_generated_selector(new) + _validate_spec(new.spec)
    if new.spec.is_indexed and (new.spec.completions or 0) > 0:
        hostname = f"{new.metadata.name}-{(new.spec.completions or 0) - 1}"
        if check_dns_label(hostname):
            message = f"will not able to create pod with invalid DNS label: {hostname}"
            found.append(invalid(METADATA.child("name"), new.metadata.name, message))
    return found


def _validate_generated_selector(job: Job) -> Errors:
    spec, meta = job.spec, job.metadata
    if spec.manual_selector or spec.selector is None:
        return []
    at, labels = SPEC.child("template", "metadata", "labels"), spec.template.metadata.labels
    expected = {UID_LABELS[1]: meta.uid, NAME_LABELS[1]: meta.name, UID_LABELS[0]: meta.uid, NAME_LABELS[0]: meta.name}
    found: Errors = []
    for label, value in expected.items():
        if label not in labels:
            found.append(required(at.key(label), f"must be '{value}'"))
        elif labels[label] != value:
            found.append(invalid(at.key(label), labels, f"must be '{value}'"))
    if not validate_label_selector(spec.selector, SPEC) and not as_label_selector(spec.selector).matches(expected):
        found.append(invalid(SPEC.child("selector"), spec.selector, "`selector` not auto-generated"))
    return found


def _validate_spec(spec: JobSpec) -> Errors:
    found = validate_job_spec(spec, SPEC)
    at = SPEC.child("selector")
    wrong = [required(at)] if spec.selector is None else validate_label_selector(spec.selector, at)
    labels = spec.template.metadata.labels
    if spec.selector is None or (not wrong and not as_label_selector(spec.selector).matches(labels)):
        message = "`selector` does not match template `labels`"
        wrong.append(invalid(SPEC.child("template", "metadata", "labels"), labels or None, message))
    return found + wrong


def validate_job_spec(spec: JobSpec, path: Path) -> Errors:
    """All but its selector, which the templates of CronJobs do not have."""
    found = not_negative(
        {
            "parallelism": spec.parallelism,
            "completions": spec.completions,
            "activeDeadlineSeconds": spec.active_deadline_seconds,
            "backoffLimit": spec.backoff_limit,
            "ttlSecondsAfterFinished": spec.ttl_seconds_after_finished,
            "backoffLimitPerIndex": spec.backoff_limit_per_index,
            "maxFailedIndexes": spec.max_failed_indexes,
        },
        path,
    )
    if spec.max_failed_indexes is not None and spec.backoff_limit_per_index is None:
        found.append(required(path.child("backoffLimitPerIndex"), "when maxFailedIndexes is specified"))
    found += _validate_manager(spec.managed_by, path.child("managedBy"))
    if spec.completion_mode not in (None, INDEXED, NON_INDEXED):
        found.append(not_supported(path.child("completionMode"), spec.completion_mode, (INDEXED, NON_INDEXED)))
    found += _validate_indexed(spec, path) if spec.is_indexed else _validate_not_indexed(spec, path)
    if spec.pod_failure_policy is not None:
        found += _validate_failure_policy(spec, spec.pod_failure_policy, path.child("podFailurePolicy", "rules"))
    found += _validate_success_policy(spec, path.child("successPolicy"))
    found += _validate_replacement(spec, path.child("podReplacementPolicy"))
    found += validate_template(spec.template, path.child("template"))
    return found + _validate_restarts(spec, path.child("template", "spec", "restartPolicy"))


def _validate_manager(manager: str | None, path: Path) -> Errors:
    """Upstream: IsDomainPrefixedPath."""
    if manager is None:
        return []
    if not manager:
        return [required(path)]
    domain, slash, rest = manager.partition("/")
    if not slash or not domain or not rest:
        message = 'must be a domain-prefixed path (such as "acme.io/foo")'
        return [invalid(path, manager, message)]
    found = each(check_dns_subdomain(domain), path, domain)
    if not re.fullmatch(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+", rest):
        found.append(invalid(path, rest, "Invalid path"))
    return [*found, too_long(path, MOST_MANAGER)] if len(manager) > MOST_MANAGER else found


def _validate_indexed(spec: JobSpec, path: Path) -> Errors:
    completions, parallelism, failing = spec.completions, spec.parallelism or 0, spec.max_failed_indexes
    found: Errors = []
    if completions is None:
        found.append(required(path.child("completions"), f"when completion mode is {INDEXED}"))
    if parallelism > MOST_PARALLEL:
        message = f"must be less than or equal to {MOST_PARALLEL} when completion mode is {INDEXED}"
        found.append(invalid(path.child("parallelism"), parallelism, message))
    at = path.child("maxFailedIndexes")
    if completions is not None and failing is not None and failing > completions:
        found.append(invalid(at, failing, "must be less than or equal to completions"))
    if failing is not None and failing > MOST_FAILED_INDEXES:
        found.append(invalid(at, failing, f"must be less than or equal to {MOST_FAILED_INDEXES}"))
    if completions is None or completions <= MANY_COMPLETIONS or spec.backoff_limit_per_index is None:
        return found
    if failing is None:
        found.append(required(at, f"must be specified when completions is above {MANY_COMPLETIONS}"))
    for place, number in ((path.child("parallelism"), parallelism), (at, failing or 0)):
        if number > MOST_AMONG_MANY:
            message = (
                f"must be less than or equal to {MOST_AMONG_MANY} when completions are above {MANY_COMPLETIONS} "
                "and used with backoff limit per index"
            )
            found.append(invalid(place, number, message))
    return found


def _validate_not_indexed(spec: JobSpec, path: Path) -> Errors:
    if spec.completion_mode not in (None, NON_INDEXED):
        return []
    numbers = {"backoffLimitPerIndex": spec.backoff_limit_per_index, "maxFailedIndexes": spec.max_failed_indexes}
    return [
        invalid(path.child(name), number, "requires indexed completion mode")
        for name, number in numbers.items()
        if number is not None
    ]


def _validate_failure_policy(spec: JobSpec, policy: PodFailurePolicy, path: Path) -> Errors:
    if len(policy.rules) > MOST_RULES:
        return [too_many(path, len(policy.rules), MOST_RULES)]
    found: Errors = []
    names = {one.name for one in (*spec.template.spec.containers, *spec.template.spec.init_containers)}
    for place, rule in enumerate(policy.rules):
        at, codes, conditions = path.at(place), rule.on_exit_codes, rule.on_pod_conditions
        if not rule.action:
            found.append(required(at.child("action"), f"valid values: {_quoted(ACTIONS)}"))
        elif rule.action not in ACTIONS:
            found.append(not_supported(at.child("action"), rule.action, ACTIONS))
        elif rule.action == FAIL_INDEX and spec.backoff_limit_per_index is None:
            message = "requires the backoffLimitPerIndex to be set"
            found.append(invalid(at.child("action"), rule.action, message))
        if codes is not None:
            found += _validate_exit_codes(codes, at.child("onExitCodes"), names)
        found += _validate_patterns(conditions, at.child("onPodConditions"))
        if (codes is None) != bool(conditions):
            how = (
                "both OnExitCodes and OnPodConditions is not supported"
                if conditions
                else ("one of OnExitCodes and OnPodConditions is required")
            )
            found.append(invalid(at, OMITTED, f"specifying {how}"))
    return found


def _quoted(values: Sequence[str]) -> str:
    """As Go prints a list of strings."""
    quoted = " ".join(f'"{one}"' for one in values)
    return f"[{quoted}]"


def _validate_exit_codes(codes: PodFailurePolicyOnExitCodesRequirement, path: Path, names: set[str]) -> Errors:
    found: Errors = []
    at, values = path.child("values"), codes.values
    if not codes.operator:
        found.append(required(path.child("operator"), f"valid values: {_quoted((IN, NOT_IN))}"))
    elif codes.operator not in (IN, NOT_IN):
        found.append(not_supported(path.child("operator"), codes.operator, (IN, NOT_IN)))
    if codes.container_name is not None and codes.container_name not in names:
        message = "must be one of the container or initContainer names in the pod template"
        found.append(invalid(path.child("containerName"), codes.container_name, message))
    if not values:
        found.append(invalid(at, None, "at least one value is required"))
    elif len(values) > MOST_EXIT_CODES:
        return [*found, too_many(at, len(values), MOST_EXIT_CODES)]
    seen: set[int] = set()
    for place, value in enumerate(values):
        if codes.operator == IN and value == 0:
            found.append(invalid(at.at(place), value, "must not be 0 for the In operator"))
        if value in seen:
            found.append(duplicate(at.at(place), value))
        seen.add(value)
    if any(later < earlier for earlier, later in pairwise(values)):
        found.append(invalid(at, values, "must be ordered"))
    return found


def _validate_patterns(patterns: Sequence[PodFailurePolicyOnPodConditionsPattern], path: Path) -> Errors:
    if len(patterns) > MOST_CONDITIONS:
        return [too_many(path, len(patterns), MOST_CONDITIONS)]
    found: Errors = []
    statuses = ("False", "True", "Unknown")
    for place, pattern in enumerate(patterns):
        found += each(check_label_key(pattern.type), path.at(place).child("type"), pattern.type)
        if pattern.status not in statuses:
            found.append(not_supported(path.at(place).child("status"), pattern.status, statuses))
    return found


def _validate_success_policy(spec: JobSpec, path: Path) -> Errors:
    policy, at = spec.success_policy, path.child("rules")
    if policy is None:
        return []
    if not spec.is_indexed:
        return [invalid(path, policy, "requires indexed completion mode")]
    if not policy.rules:
        return [required(at, "at least one rules must be specified when the successPolicy is specified")]
    if len(policy.rules) > MOST_RULES:
        return [too_many(at, len(policy.rules), MOST_RULES)]
    if spec.completions is None:
        return []  # which is an error already
    found: Errors = []
    for place, rule in enumerate(policy.rules):
        found += _validate_success_rule(rule, spec.completions, at.at(place))
    return found


def _validate_success_rule(rule: SuccessPolicyRule, completions: int, path: Path) -> Errors:
    indexes, count, total = rule.succeeded_indexes, rule.succeeded_count, 0
    if indexes is None and count is None:
        return [required(path, "at least one of succeededCount or succeededIndexes must be specified")]
    found: Errors = []
    at = path.child("succeededIndexes")
    if indexes is not None and len(indexes) > MOST_INDEXES_TEXT:
        return [too_long(at, MOST_INDEXES_TEXT)]
    if indexes is not None:
        total, wrong = check_indexes(indexes, completions)
        if wrong:
            found.append(invalid(at, indexes, f"error parsing succeededIndexes: {wrong}"))
    if count is None:
        return found
    found += not_negative({"succeededCount": count}, path)
    at = path.child("succeededCount")
    if count > completions:
        message = f"must be less than or equal to {completions} (the number of specified completions)"
        found.append(invalid(at, count, message))
    if indexes is not None and count > total:
        which = "the number of indexes in the specified succeededIndexes field"
        found.append(invalid(at, count, f"must be less than or equal to {total} ({which})"))
    return found


def _validate_replacement(spec: JobSpec, path: Path) -> Errors:
    allowed = (REPLACE_FAILED,) if spec.pod_failure_policy is not None else (REPLACE_FAILED, REPLACE_TERMINATING)
    policy = spec.pod_replacement_policy
    return [] if policy is None or policy in allowed else [not_supported(path, policy, allowed)]


def _validate_restarts(spec: JobSpec, path: Path) -> Errors:
    policy = spec.template.spec.restart_policy
    if policy in ("", "Always"):
        return [required(path, 'valid values: "OnFailure", "Never"')]
    if policy not in ("OnFailure", "Never"):
        return [not_supported(path, policy, ("OnFailure", "Never"))]
    if spec.pod_failure_policy is not None and policy != "Never":
        return [invalid(path, policy, 'only "Never" is supported when podFailurePolicy is specified')]
    return []


# Rules of updates -----------------------------------------------------------------------------------------------------


def validate_job_update(new: Job, old: Job) -> Errors:
    spec, before = new.spec, old.spec
    found = validate_job(new) + validate_object_meta_update(new.metadata, old.metadata)
    if spec.completions != before.completions:
        at = SPEC.child("completions")
        if not spec.is_indexed:
            found += validate_immutable(spec.completions, before.completions, at)
        elif spec.completions is not None and spec.completions != spec.parallelism:
            found.append(invalid(at, spec.completions, "can only be modified in tandem with spec.parallelism"))
    found += validate_immutable(spec.selector, before.selector, SPEC.child("selector"))
    found += validate_immutable(spec.template, _expected_template(new, old), SPEC.child("template"))
    fields = {
        "completionMode": (spec.completion_mode, before.completion_mode),
        "podFailurePolicy": (spec.pod_failure_policy, before.pod_failure_policy),
        "backoffLimitPerIndex": (spec.backoff_limit_per_index, before.backoff_limit_per_index),
        "managedBy": (spec.managed_by, before.managed_by),
        "successPolicy": (spec.success_policy, before.success_policy),
    }
    for name, (now, earlier) in fields.items():
        found += validate_immutable(now, earlier, SPEC.child(name))
    return found


def _expected_template(new: Job, old: Job) -> PodTemplateSpec:
    """What the template may be. While no pod of a suspended Job runs, what says where and with how much its pods are
    going to may change.
    """
    wanted, status = new.spec.template, old.status
    is_still = status.start_time is None or (status.has(SUSPENDED) and status.active == 0)
    if not old.spec.suspend or not is_still:
        return old.spec.template
    pod = replace(
        old.spec.template.spec,
        affinity=_with_node_affinity(old.spec.template.spec.affinity, wanted.spec.affinity),
        node_selector=wanted.spec.node_selector,
        tolerations=wanted.spec.tolerations,
        scheduling_gates=wanted.spec.scheduling_gates,
        containers=_with_resources(old.spec.template.spec.containers, wanted.spec.containers),
        init_containers=_with_resources(old.spec.template.spec.init_containers, wanted.spec.init_containers),
    )
    meta = replace(old.spec.template.metadata, labels=wanted.metadata.labels, annotations=wanted.metadata.annotations)
    return PodTemplateSpec(metadata=meta, spec=pod)


def _with_node_affinity(old: Affinity | None, new: Affinity | None) -> Affinity | None:
    """`old` with the one part of `new` that may change."""
    if new is None and (old is None or replace(old, node_affinity=None) == Affinity()):
        return None
    return replace(old or Affinity(), node_affinity=None if new is None else new.node_affinity)


def _with_resources(old: Sequence[Container], new: Sequence[Container]) -> tuple[Container, ...]:
    """`old` with the amounts of `new`; which claims they use is as it was."""
    if [one.name for one in old] != [one.name for one in new]:
        return tuple(old)
    return tuple(
        replace(
            before,
            resources=replace(before.resources, requests=after.resources.requests, limits=after.resources.limits),
        )
        for before, after in zip(old, new, strict=True)
    )


def validate_job_status(new: Job, old: Job) -> Errors:
    found = validate_object_meta_update(new.metadata, old.metadata)
    found += _validate_numbers(new) + _validate_end(new.status, old.status)
    return found + _validate_indexes(new, old) + _validate_step(new, old)


def _validate_numbers(job: Job) -> Errors:
    status = job.status
    found = not_negative(
        {
            "active": status.active,
            "succeeded": status.succeeded,
            "failed": status.failed,
            "ready": status.ready,
            "terminating": status.terminating,
        },
        STATUS,
    )
    seen: set[str] = set()
    uncounted = status.uncounted_terminated_pods or UncountedTerminatedPods()
    for name, uids in (("succeeded", uncounted.succeeded), ("failed", uncounted.failed)):
        for place, uid in enumerate(uids):
            at = STATUS.child("uncountedTerminatedPods", name).at(place)
            if not uid:
                found.append(invalid(at, uid, "must not be empty"))
            elif uid in seen:
                found.append(duplicate(at, uid))
            seen.add(uid)
    return found


def _validate_end(status: JobStatus, before: JobStatus) -> Errors:
    """What holds of a Job that has ended; some of it is looked at only where the write changes it."""
    is_complete, is_failed, is_finished = status.has(COMPLETE), status.has(FAILED), status.is_finished
    start, end = status.start_time, status.completion_time
    completes = (is_complete, end) != (before.has(COMPLETE), before.completion_time)
    finishes = is_finished != before.is_finished
    uncounted = status.uncounted_terminated_pods
    conditions, when = STATUS.child("conditions"), STATUS.child("completionTime")
    is_too_early = start is not None and end is not None and _seconds(end) < _seconds(start)
    times = (before.start_time, before.completion_time)
    has_lost_start = finishes or before.start_time is not None
    has_changed_active = finishes or status.active != before.active
    wrong = [
        (
            is_complete and is_failed,
            invalid(conditions, OMITTED, "cannot set Complete=True and Failed=true conditions"),
        ),
        (
            is_complete and status.has(FAILURE_TARGET),
            invalid(conditions, OMITTED, "cannot set Complete=True and FailureTarget=true conditions"),
        ),
        (
            completes and end is not None and not is_complete,
            invalid(when, end, "cannot set completionTime when there is no Complete=True condition"),
        ),
        (
            completes and end is None and is_complete,
            required(when, "completionTime is required for Complete jobs"),
        ),
        (is_too_early and times != (start, end), invalid(when, end, "must be equal to or after `startTime`")),
        (
            is_failed and not status.has(FAILURE_TARGET) and not before.has(FAILED),
            invalid(conditions, OMITTED, "cannot set Failed=True condition without the FailureTarget=true condition"),
        ),
        (
            is_complete and not status.has(SUCCESS_MET) and not before.has(COMPLETE),
            invalid(
                conditions, OMITTED, "cannot set Complete=True condition without the SuccessCriteriaMet=true condition"
            ),
        ),
        (
            is_finished and status.active > 0 and has_changed_active,
            invalid(STATUS.child("active"), status.active, "active>0 is invalid for finished job"),
        ),
        (
            is_finished and start is None and has_lost_start,
            required(STATUS.child("startTime"), "startTime is required for finished job"),
        ),
        (
            is_finished and uncounted is not None and bool(uncounted.succeeded or uncounted.failed),
            invalid(
                STATUS.child("uncountedTerminatedPods"),
                uncounted,
                "uncountedTerminatedPods needs to be empty for finished job",
            ),
        ),
    ]
    return [error for is_wrong, error in wrong if is_wrong]


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _validate_indexes(new: Job, old: Job) -> Errors:
    status, before, spec = new.status, old.status, new.spec
    completed, failed, found = status.completed_indexes, status.failed_indexes, list[FieldError]()
    at, of_failed = STATUS.child("completedIndexes"), STATUS.child("failedIndexes")
    completed_changed, failed_changed = completed != before.completed_indexes, failed != before.failed_indexes
    if completed_changed and spec.completions is not None:
        _, wrong = check_indexes(completed, spec.completions)
        if wrong:
            found.append(invalid(at, completed, f"error parsing completedIndexes: {wrong}"))
    if failed_changed and failed is not None and spec.completions is not None:
        _, wrong = check_indexes(failed, spec.completions)
        if wrong and spec.backoff_limit_per_index is not None:
            found.append(invalid(of_failed, failed, f"error parsing failedIndexes: {wrong}"))
    if completed_changed and completed and not spec.is_indexed:
        message = "cannot set non-empty completedIndexes when non-indexed completion mode"
        found.append(invalid(at, completed, message))
    if failed_changed and failed is not None and spec.backoff_limit_per_index is None:
        message = "cannot set non-null failedIndexes when backoffLimitPerIndex is null"
        found.append(invalid(of_failed, failed, message))
    if (completed_changed or failed_changed) and completed and failed and spec.completions is not None:
        wrong = check_disjoint(completed, failed, spec.completions)
        if wrong:
            found.append(invalid(of_failed, failed, wrong))
    if status.is_finished and (status.terminating or 0) > 0:
        at = STATUS.child("terminating")
        found.append(invalid(at, status.terminating, "terminating>0 is invalid for finished job"))
    if status.ready is not None and status.ready > status.active:
        found.append(invalid(STATUS.child("ready"), status.ready, "cannot set more ready pods than active"))
    return found


def _validate_step(new: Job, old: Job) -> Errors:
    """From one status to the next."""
    status, before, spec, at = new.status, old.status, new.spec, STATUS.child("conditions")
    found: Errors = []
    for other in (FAILED, FAILURE_TARGET):
        if status.has(SUCCESS_MET) and status.has(other):
            shown = "Failed=true" if other == FAILED else "FailureTarget=true"
            found.append(invalid(at, OMITTED, f"cannot set SuccessCriteriaMet=True and {shown} conditions"))
    for kept in (FAILED, COMPLETE, FAILURE_TARGET):
        if before.has(kept) and not status.has(kept):
            found.append(invalid(at, OMITTED, f"cannot disable the terminal {kept}=True condition"))
    if status.failed < before.failed:
        found.append(invalid(STATUS.child("failed"), status.failed, "cannot decrease the failed counter"))
    may_shrink = spec.is_indexed and spec.completions == spec.parallelism
    if status.succeeded < before.succeeded and not may_shrink:
        found.append(invalid(STATUS.child("succeeded"), status.succeeded, "cannot decrease the succeeded counter"))
    times = (before.completion_time, status.completion_time)
    if None not in times and times[0] != times[1]:
        message = "completionTime cannot be mutated"
        found.append(invalid(STATUS.child("completionTime"), status.completion_time, message))
    if before.start_time is not None and status.start_time != before.start_time and not spec.suspend:
        message = "startTime cannot be removed for unsuspended job"
        found.append(required(STATUS.child("startTime"), message))
    if before.has(SUCCESS_MET) and not status.has(SUCCESS_MET):
        found.append(invalid(at, OMITTED, "cannot disable the SuccessCriteriaMet=True condition"))
    if before.has(COMPLETE) and not before.has(SUCCESS_MET) and status.has(SUCCESS_MET):
        message = "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions"
        found.append(invalid(at, OMITTED, message))
    return found


# Columns and kind -----------------------------------------------------------------------------------------------------


def state_of(job: Job) -> str:
    """In a word, as kubectl shows it."""
    status = job.status
    for condition in (COMPLETE, FAILED):
        if status.has(condition):
            return condition
    if job.metadata.deletion_timestamp is not None:
        return "Terminating"
    if status.has(SUSPENDED):
        return SUSPENDED
    return next((one for one in (FAILURE_TARGET, SUCCESS_MET) if status.has(one)), "Running")


def completions_cell(job: Job) -> str:
    spec = job.spec
    if spec.completions is not None:
        return f"{job.status.succeeded}/{spec.completions}"
    parallel = spec.parallelism or 0
    return f"{job.status.succeeded}/1 of {parallel}" if parallel > 1 else f"{job.status.succeeded}/1"


def _duration_cell(job: Job, now: float) -> str:
    start, end = job.status.start_time, job.status.completion_time
    if start is None:
        return ""
    if end is None and job.status.has(FAILED):
        failed = condition_of(job.status.conditions, FAILED)
        end = failed.last_transition_time if failed else None
    return human_duration((now if end is None else _seconds(end)) - _seconds(start))


JOB = Kind(
    group="batch",
    version="v1",
    plural="jobs",
    categories=("all",),
    type=Job,
    prepare_create=create_job,
    prepare_update=update_job,
    identified=with_selector,
    validate_create=validate_job,
    validate_update=validate_job_update,
    subresources={"status": Subresource(prepare_update=update_job_status, validate_update=validate_job_status)},
    selectable=lambda one: {"status.successful": str(one.status.succeeded)},
    generation_of=lambda one: one.spec,
    orphaning=(
        "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or "
        "set propagationPolicy=Orphan to suppress this warning"
    ),
    columns=(
        NAME_COLUMN,
        Column(name="Status", description="How far it is", cell=lambda one, _now: state_of(one)),
        Column(
            name="Completions",
            description="Succeeded pods of the wanted ones",
            cell=lambda one, _now: completions_cell(one),
        ),
        Column(name="Duration", description="How long it took, or has been running", cell=_duration_cell),
        AGE_COLUMN,
        CONTAINERS_COLUMN,
        IMAGES_COLUMN,
        SELECTOR_COLUMN,
    ),
    description="Pods of one template that run until so many have succeeded.",
)
