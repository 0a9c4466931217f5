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
from manciple.wire.validation import METADATA, SPEC, check_dns_label
from workloads.kinds.daemon_sets import DAEMON_SET
from workloads.kinds.deployments import DEPLOYMENT
from workloads.kinds.replica_sets import REPLICA_SET
from workloads.kinds.stateful_sets import STATEFUL_SET, StatefulSet
from workloads.kinds.templates import TEMPLATE, PodTemplateSpec


def warn_of_workload(write: Write) -> None:
    if write.subresource or write.operation not in ("CREATE", "UPDATE"):
        return
    new: Any = write.new
    template: PodTemplateSpec = new.spec.template
    if isinstance(new, StatefulSet):
        _warn_of_stateful_set(new)
    if write.operation == "CREATE" and (messages := check_dns_label(new.metadata.name)):
        why = "this is used in Pod names and hostnames, which can result in surprising behavior"
        records.warn(f"{METADATA.child('name')}: {why}; a DNS label is recommended: [{', '.join(messages)}]")
    elif write.operation == "UPDATE" and write.old is not None and write.old.spec.template == template:
        return
    pod = Pod(metadata=replace(template.metadata, name=""), spec=template.spec)
    for text in islice(warnings_of(pod), MOST_WARNINGS):
        records.warn(f"{TEMPLATE.child(text)}" if text.startswith("metadata") else f"{TEMPLATE}.{text}")


def _warn_of_stateful_set(new: StatefulSet) -> None:
    for position, one in enumerate(new.spec.volume_claim_templates[:MOST_WARNINGS]):
        for text in claim_warnings(one.spec, SPEC.child("volumeClaimTemplates").at(position)):
            records.warn(text)
    if (new.spec.revision_history_limit or 0) < 0:
        at = SPEC.child("revisionHistoryLimit")
        records.warn(f"{at}: a negative value retains all historical revisions; a value >= 0 is recommended")


def register() -> None:
    kinds = (DAEMON_SET, DEPLOYMENT, REPLICA_SET, STATEFUL_SET)
    hooks.register_check(warn_of_workload, resources={kind.resource for kind in kinds})
