"""The kinds of workloads, in the order in which clients find them."""

from __future__ import annotations

from manciple.wire.registry import Kind
from workloads.kinds.controller_revisions import CONTROLLER_REVISION
from workloads.kinds.cron_jobs import CRON_JOB
from workloads.kinds.daemon_sets import DAEMON_SET
from workloads.kinds.deployments import DEPLOYMENT
from workloads.kinds.horizontal_pod_autoscalers import HORIZONTAL_POD_AUTOSCALER
from workloads.kinds.jobs import JOB
from workloads.kinds.pod_templates import POD_TEMPLATE
from workloads.kinds.replica_sets import REPLICA_SET
from workloads.kinds.stateful_sets import STATEFUL_SET

KINDS: tuple[Kind, ...] = (
    POD_TEMPLATE,
    CONTROLLER_REVISION,
    DAEMON_SET,
    DEPLOYMENT,
    REPLICA_SET,
    STATEFUL_SET,
    CRON_JOB,
    JOB,
    HORIZONTAL_POD_AUTOSCALER,
)
