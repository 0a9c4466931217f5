"""Many objects that are deleted together go in portions: whoever else writes waits for one of these, not for all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from msgspec.structs import replace

from claims.kinds.pods import Pod, PodResourceClaim
from claims.kinds.resource_claims import ResourceClaim
from manciple.api import verbs
from manciple.api.requests import ListOptions
from manciple.controllers.declaration import controllers
from manciple.store import objects, sql
from manciple.wire.identity import SYSTEM
from manciple.wire.machinery import DeleteOptions
from tests.builders import NAMESPACE, make_template
from tests.dashboard.workload_scene import work
from tests.scheduling.cluster import Cluster
from tests.workloads.cluster import make_job, make_job_template
from workloads.kinds.jobs import JOB

JOBS = 2 * objects.PORTION
#: Of one transaction: those of a portion, and as many of what goes with it; and the statements that it takes.
MOST_ENTRIES, MOST_STATEMENTS = 2 * objects.PORTION, 24


@contextmanager
def transactions(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, int]]]:
    """(entries of the log, statements) of each that takes the log's lock."""
    seen, real = list[tuple[int, int]](), sql.locked_counter

    @contextmanager
    def locked_counter(*arguments: Any) -> Iterator[Any]:
        with CaptureQueriesContext(connection) as queries:
            with real(*arguments) as locked:
                yield locked
            seen.append((sql.counter().current - locked.counter.current, len(queries)))

    monkeypatch.setattr(sql, "locked_counter", locked_counter)
    yield seen


def test_jobs_that_are_deleted_together_go_in_portions(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.with_gpus("node-1", each=JOBS)
    cluster.create(make_template("gpu"))
    template = make_job_template()
    entry = PodResourceClaim(name="gpu", resource_claim_template_name="gpu")
    spec = replace(template.spec, resource_claims=(entry,), termination_grace_period_seconds=0)
    for number in range(JOBS):
        job = make_job(f"job-{number}", template=replace(template, spec=spec))
        verbs.create(JOB, job, namespace=NAMESPACE, identity=SYSTEM)
    work(cluster)
    assert sum(bool(pod.spec.node_name) for pod in cluster.all(Pod)) == JOBS

    options = DeleteOptions(api_version="v1", kind="DeleteOptions", propagation_policy="Background")
    with transactions(monkeypatch) as seen:
        verbs.delete_all(JOB, namespace=NAMESPACE, selected=ListOptions(), identity=SYSTEM, options=options)
        while sum([one.reconcile(datetime.now(UTC)) for one in controllers.value if one.name != "sample_usage"]):
            pass
    assert cluster.all(Pod) == []
    assert cluster.all(ResourceClaim) == []
    assert max(entries for entries, _ in seen) <= MOST_ENTRIES
    assert max(statements for _, statements in seen) <= MOST_STATEMENTS
