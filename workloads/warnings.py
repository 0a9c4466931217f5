"""What the author of a workload is warned of: its name, and what its pods have without effect.

Source: the strategies' WarningsOnCreate (pkg/registry/apps/*/strategy.go) and GetWarningsForPodTemplate
(pkg/api/pod/warnings.go) of Kubernetes 1.36.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

from msgspec.structs import replace

from claims.admission import MOST_WARNINGS
from claims.kinds.pod_strategy import claim_warnings, warnings_of
from claims.kinds.pods import Pod
from manciple.store import hooks, records
from manciple.store.hooks import Write
from manciple.wire.validation import METADATA, SPEC, Path, check_dns_label
from workloads.kinds.cron_jobs import CRON_JOB, CronJobSpec
from workloads.kinds.daemon_sets import DAEMON_SET
from workloads.kinds.deployments import DEPLOYMENT
from workloads.kinds.jobs import JOB, MANY_COMPLETIONS, MOST_AMONG_MANY, JobSpec
from workloads.kinds.replica_sets import REPLICA_SET
from workloads.kinds.stateful_sets import STATEFUL_SET, StatefulSet
from workloads.kinds.templates import PodTemplateSpec


def warn_of_workload(write: Write) -> None:
    if write.subresource or write.operation not in ("CREATE", "UPDATE"):
        return
    new: Any = write.new
    if isinstance(new, StatefulSet):
        _warn_of_stateful_set(new)
    if write.operation == "CREATE" and (messages := check_dns_label(new.metadata.name)):
        why = "this is used in Pod names and hostnames, which can result in surprising behavior"
        records.warn(f"{METADATA.child('name')}: {why}; a DNS label is recommended: [{', '.join(messages)}]")
    spec, path = _pod_making(new)
    old = None if write.old is None else _pod_making(write.old)[0]
    if isinstance(spec, JobSpec) and spec != old and _is_hard_to_track(spec):
        records.warn(f"{path}: {_HARD_TO_TRACK}")
    template: PodTemplateSpec = spec.template
    if old is not None and old.template == template:
        return
    pod, path = Pod(metadata=replace(template.metadata, name=""), spec=template.spec), path.child("template")
    for text in islice(warnings_of(pod), MOST_WARNINGS):
        records.warn(f"{path.child(text)}" if text.startswith("metadata") else f"{path}.{text}")


def _pod_making(workload: Any) -> tuple[Any, Path]:
    """The part of the spec that has the template of pods, and where it is."""
    if isinstance(workload.spec, CronJobSpec):
        return workload.spec.job_template.spec, SPEC.child("jobTemplate", "spec")
    return workload.spec, SPEC


_HARD_TO_TRACK = (
    "In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, "
    "Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
)


def _is_hard_to_track(spec: JobSpec) -> bool:
    is_large = (spec.completions or 0) > MANY_COMPLETIONS and (spec.parallelism or 0) > MOST_AMONG_MANY
    return spec.is_indexed and is_large


def _warn_of_stateful_set(new: StatefulSet) -> None:
    for position, one in enumerate(new.spec.volume_claim_templates[:MOST_WARNINGS]):
        for text in claim_warnings(one.spec, SPEC.child("volumeClaimTemplates").at(position)):
            records.warn(text)
    if (new.spec.revision_history_limit or 0) < 0:
        at = SPEC.child("revisionHistoryLimit")
        records.warn(f"{at}: a negative value retains all historical revisions; a value >= 0 is recommended")


def register() -> None:
    kinds = (CRON_JOB, DAEMON_SET, DEPLOYMENT, JOB, REPLICA_SET, STATEFUL_SET)
    hooks.register_check(warn_of_workload, resources={kind.resource for kind in kinds})
