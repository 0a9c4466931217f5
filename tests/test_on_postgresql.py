"""What leans on the database once more, on PostgreSQL: same tests, other engine, in one process and one database."""

from __future__ import annotations

import pytest

from tests.examples import ALL
from tests.services import RERUN_TIMEOUT, Server, assert_pass_on_postgresql

STORE = [
    "tests/manciple/store",
    "tests/manciple/audit",
    "tests/inventory/test_impairments.py",
    "tests/inventory/test_projectors.py",
    "tests/claims/test_projectors.py",
    "tests/claims/test_lookup_plans.py",
    "tests/manciple/mirror/test_copying.py",
    "tests/manciple/mirror/test_guard.py",
    "tests/manciple/mirror/test_replicator.py",
    "tests/manciple/mirror/test_leadership.py",
    "tests/manciple/mirror/test_steering.py",
]
#: What leans on its locks and transactions.
SCHEDULING = [
    f"tests/scheduling/{name}"
    for name in (
        "cycle/test_planned_claims.py",
        "cycle/test_races.py",
        "cycle/test_query_budgets.py",
        "state/test_quotas.py",
        "state/test_fair_share.py",
        "cycle/test_turns.py",
        "queue/test_arrivals.py",
        "queue/test_queue.py",
        "test_flows.py",
        "queue/test_namespace_time.py",
        "controllers",
    )
] + [f"tests/manciple/controllers/test_{name}.py" for name in ("singletons", "dispatch")]
#: Every page, and the tests of what asks the database in its own words.
PAGES = [
    "tests/claims/test_history.py",
    "tests/inventory/test_meters.py",
    "tests/scheduling/test_idle_devices.py",
    "tests/scheduling/test_usage.py",
    "tests/manciple/controllers/test_usage_heartbeats.py",
    *(
        f"tests/dashboard/{name}.py"
        for name in (
            "test_every_page",
            "tools/test_events",
            "tools/test_saved_views",
            "test_list_costs",
            "inventory/test_class_pages",
            "test_rest",
            "capacity/test_timeline",
            "capacity/test_usage",
            "inventory/test_nodes",
            "inventory/test_incidents",
        )
    ),
    "tests/scheduling/test_waiting_times.py",
    "tests/workloads/test_horizontal_pod_autoscalers.py",
]


#: Whatever comes through the front door; `make fuzz` sends much more.
SECURITY = [
    "tests/security/fuzz/test_hostile_requests.py",
    "tests/security/test_disk_filling.py",
    "tests/security/test_strange_requests.py",
]


#: What `make test` runs: writes, the log and its order, locks of the scheduler's transactions, queries that are written
#: for one engine. Quotas and preemption run on PostgreSQL in tests/e2e/production. A flood is counted in memory.
QUICK = [
    "tests/manciple/store",
    *(f"tests/manciple/audit/test_{name}.py" for name in ("commands", "denials", "keeping", "writes")),
    "tests/inventory/test_impairments.py",
    "tests/scheduling/cycle/test_races.py",
    "tests/scheduling/cycle/test_query_budgets.py",
    "tests/manciple/controllers/test_singletons.py",
    "tests/manciple/mirror/test_leadership.py",
    "tests/claims/test_history.py",
    "tests/scheduling/test_usage.py",
    "tests/dashboard/capacity/test_timeline.py",
    "tests/security/test_strange_requests.py",
]


@pytest.mark.postgres
@pytest.mark.timeout(RERUN_TIMEOUT + 60)
def test_everything_holds_on_postgresql(postgresql: Server) -> None:
    tests = [*STORE, *SCHEDULING, *PAGES, *SECURITY] if ALL else QUICK
    assert_pass_on_postgresql(postgresql, tests)
