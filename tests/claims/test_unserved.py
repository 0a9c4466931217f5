"""What is not done for pods is refused, or dropped with a warning, when they are made."""

from __future__ import annotations

from typing import Any

import pytest

from claims.kinds.pods import Pod, PodSchedulingGroup
from manciple.store import records
from manciple.wire.errors import Forbidden
from tests.builders import make_pod
from tests.scheduling.cluster import Cluster, with_spec

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a runtime class": ({"runtime_class_name": "kata"}, 'RuntimeClass "kata" not found (none is served here)'),
    "an overhead": (
        {"overhead": {"cpu": "250m"}},
        "Pod Overhead set without corresponding RuntimeClass defined Overhead",
    ),
}


@pytest.mark.django_db
@pytest.mark.parametrize("case", REFUSED)
def test_a_pod_is_refused_that_asks_for(case: str) -> None:
    fields, why = REFUSED[case]
    with pytest.raises(Forbidden) as refusal:
        Cluster().create(with_spec(make_pod("web"), **fields))
    assert refusal.value.message == f'pods "web" is forbidden: pod rejected: {why}'


@pytest.mark.django_db
def test_a_group_of_pods_is_dropped_with_a_warning() -> None:
    cluster = Cluster()
    with records.collecting() as told:
        cluster.create(with_spec(make_pod("web"), scheduling_group=PodSchedulingGroup(pod_group_name="all")))
    assert told.warnings == ("spec.schedulingGroup is dropped: the feature gate GenericWorkload is off",)
    found = cluster.find(Pod, "web")
    assert found is not None
    assert found.spec.scheduling_group is None
