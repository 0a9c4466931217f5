"""ClusterRoles that gather their rules from those with a label."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from manciple.access import aggregation
from manciple.access.bootstrap import ensure_roles
from manciple.access.kinds import roles
from manciple.access.kinds.roles import AggregationRule, ClusterRole, PolicyRule
from manciple.controllers import housekeeping
from manciple.store import event_log, objects
from manciple.wire import codec
from manciple.wire.base import LabelSelector, ObjectMeta
from manciple.wire.identity import SYSTEM

THINGS = PolicyRule(verbs=("get",), api_groups=("example.com",), resources=("things",))
TO_VIEW = {"rbac.authorization.k8s.io/aggregate-to-view": "true"}


def extra(name: str = "things", rule: PolicyRule = THINGS, **labels: str) -> ClusterRole:
    return ClusterRole(metadata=ObjectMeta(name=name, labels=labels or TO_VIEW), rules=(rule,))


def create(role: ClusterRole) -> None:
    with objects.writing(identity=SYSTEM) as writer:
        writer.create(roles.CLUSTER_ROLE, role)


def stored(name: str) -> ClusterRole:
    found = objects.get(roles.CLUSTER_ROLE, "", name)
    assert found is not None
    return codec.decode_text(ClusterRole, found.text)


def test_what_is_up_to_date_is_left_alone() -> None:
    assert aggregation.outdated([]) == []
    gathers = replace(extra("all", a="b"), rules=(THINGS,), aggregation_rule=selecting(a="b"))
    assert aggregation.outdated([gathers, extra(a="b")]) == []


def selecting(**labels: str) -> AggregationRule:
    return AggregationRule(cluster_role_selectors=(LabelSelector(match_labels=labels),))


def test_a_role_gathers_from_those_that_gather() -> None:
    first = replace(extra("first", level="one"), rules=(), aggregation_rule=selecting(level="two"))
    second = replace(extra("second", level="two"), rules=(), aggregation_rule=selecting(level="three"))
    found = aggregation.outdated([first, second, extra(level="three")])
    assert {role.metadata.name: role.rules for role in found} == {"first": (THINGS,), "second": (THINGS,)}


def test_roles_that_gather_from_each_other_come_to_an_end() -> None:
    one = replace(extra("one", a="x", b="y"), aggregation_rule=selecting(a="x"))
    two = replace(extra("two", a="x", b="y"), rules=(), aggregation_rule=selecting(b="y"))
    found = aggregation.outdated([one, two])
    assert len(found) <= 2


@pytest.mark.django_db
def test_a_role_with_the_label_widens_those_that_gather_it_and_its_deletion_narrows_them() -> None:
    ensure_roles()
    now = datetime.now(UTC)
    assert housekeeping.aggregate_cluster_roles(now) == 0
    create(extra())
    assert housekeeping.aggregate_cluster_roles(now) == 3
    assert all(THINGS in stored(name).rules for name in ("view", "edit", "admin"))
    revision = event_log.latest_revision()
    assert housekeeping.aggregate_cluster_roles(now) == 0
    ensure_roles()
    assert event_log.latest_revision() == revision, "a start keeps what was gathered"
    with objects.writing(identity=SYSTEM) as writer:
        writer.delete(roles.CLUSTER_ROLE, "", "things")
    assert housekeeping.aggregate_cluster_roles(now) == 3
    assert not any(THINGS in stored(name).rules for name in ("view", "edit", "admin"))


@pytest.mark.django_db
def test_a_start_gathers_what_came_while_nobody_did() -> None:
    create(extra())
    ensure_roles()
    assert THINGS in stored("admin").rules
