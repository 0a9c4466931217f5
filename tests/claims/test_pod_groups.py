"""Workloads and PodGroups: what may be said, what is dropped, what stays, and what is told of them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from claims.kinds.pod_groups import CLAIMS_GATE, KINDS_GATE, POD_GROUP, PROTECTION, WORKLOAD, PodGroup, PodWorkload
from claims.kinds.pods import Pod, PodSchedulingGroup
from claims.kinds.registration import POD
from inventory.kinds import gates
from manciple.wire import codec
from manciple.wire.errors import Forbidden
from tests.builders import make_pod
from tests.builders.groups import make_group, make_workload
from tests.scheduling.cluster import Cluster, with_spec

GANG = {"gang": {"minCount": 2}}
CLAIM = {"name": "all", "resourceClaimTemplateName": "gpus"}


def group(**spec: Any) -> PodGroup:
    document = {"metadata": {"name": "train", "namespace": "team"}, "spec": {"schedulingPolicy": GANG, **spec}}
    return codec.decode_value(PodGroup, document)


def told(kind: Any, new: Any, old: Any = None) -> list[str]:
    found = kind.validate_create(new) if old is None else kind.validate_update(new, old)
    return [str(one) for one in found]


REFUSED: dict[str, tuple[dict[str, Any], list[str]]] = {
    "no policy": (
        {"schedulingPolicy": {}},
        ['spec.schedulingPolicy: Invalid value: "": must specify one of: `basic`, `gang`'],
    ),
    "both policies": (
        {"schedulingPolicy": {"basic": {}, **GANG}},
        ['spec.schedulingPolicy: Invalid value: "{basic, gang}": must specify exactly one of: `basic`, `gang`'],
    ),
    "no number of pods": (
        {"schedulingPolicy": {"gang": {}}},
        ["spec.schedulingPolicy.gang.minCount: Required value"],
    ),
    "fewer than one pod": (
        {"schedulingPolicy": {"gang": {"minCount": -1}}},
        ["spec.schedulingPolicy.gang.minCount: Invalid value: -1: must be greater than or equal to 1"],
    ),
    "a claim that names nothing": (
        {"resourceClaims": [{"name": "all"}]},
        [
            'spec.resourceClaims[0]: Invalid value: "": must specify one of: '
            "`resourceClaimName`, `resourceClaimTemplateName`"
        ],
    ),
    "a claim twice": (
        {"resourceClaims": [CLAIM, CLAIM]},
        ['spec.resourceClaims[1]: Duplicate value: {"name":"all","resourceClaimTemplateName":"gpus"}'],
    ),
    "more claims than four": (
        {"resourceClaims": [{**CLAIM, "name": f"claim-{number}"} for number in range(5)]},
        ["spec.resourceClaims: Too many: 5: must have at most 4 items"],
    ),
    "a template of no workload": (
        {"podGroupTemplateRef": {}},
        ['spec.podGroupTemplateRef: Invalid value: "": must specify one of: `workload`'],
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_group_is_refused_with(case: str) -> None:
    spec, wanted = REFUSED[case]
    assert told(POD_GROUP, group(**spec)) == wanted


def test_a_group_that_is_right_is_made_protected_and_never_changes() -> None:
    with gates.using(**{KINDS_GATE: True, CLAIMS_GATE: True}):
        made = POD_GROUP.prepare_create(group(resourceClaims=[CLAIM]))
        assert told(POD_GROUP, made) == []
        assert made.metadata.finalizers == (PROTECTION,)
        changed = with_spec(made, scheduling_policy=group(schedulingPolicy={"basic": {}}).spec.scheduling_policy)
        made_again = POD_GROUP.prepare_update(made, made)
    assert told(POD_GROUP, structs.replace(made_again, metadata=stored(made)), stored_group(made)) == []
    refused = told(POD_GROUP, structs.replace(changed, metadata=stored(made)), stored_group(made))
    assert refused == ["spec.schedulingPolicy: Invalid value: null: field is immutable"]


def stored(made: PodGroup) -> Any:
    return structs.replace(made.metadata, resource_version="1", uid="1")


def stored_group(made: PodGroup) -> PodGroup:
    return structs.replace(made, metadata=stored(made))


def test_claims_of_a_group_are_dropped_from_new_ones_while_their_gate_is_off_and_kept_in_those_that_have_them() -> None:
    wanted = group(resourceClaims=[CLAIM], disruptionMode="Pod", priority=3)
    with gates.using(**{KINDS_GATE: True}):
        dropped = POD_GROUP.prepare_create(wanted)
        kept = POD_GROUP.prepare_update(wanted, wanted)
    assert (dropped.spec.resource_claims, dropped.spec.disruption_mode, dropped.spec.priority) == ((), None, None)
    assert kept.spec == wanted.spec


def test_workloads_have_templates_and_no_more_than_eight() -> None:
    made = make_workload("training", "workers")
    assert told(WORKLOAD, made) == []
    none = with_spec(made, pod_group_templates=())
    assert told(WORKLOAD, none) == ["spec.podGroupTemplates: Required value"]
    nine = with_spec(made, pod_group_templates=made.spec.pod_group_templates * 9)
    assert told(WORKLOAD, nine) == ["spec.podGroupTemplates: Too many: 9: must have at most 8 items"]


def test_the_columns_of_a_group_tell_policy_workload_and_state() -> None:
    cells = {column.name: column.cell for column in POD_GROUP.columns}
    made = make_group("train", 2)
    assert [cells[name](made, 0) for name in ("Policy", "Workload", "Status")] == ["Gang", "<none>", "Pending"]
    assert cells["Policy"](make_group("train"), 0) == "Basic"


def grouped(name: str = "train") -> Pod:
    return with_spec(make_pod("web"), scheduling_group=PodSchedulingGroup(pod_group_name=name))


def test_a_pods_group_is_checked_while_the_gate_is_on_and_kept_where_it_is_while_it_is_off() -> None:
    with gates.using(**{KINDS_GATE: True}):
        made = POD.prepare_create(grouped())
        assert made.spec.scheduling_group == grouped().spec.scheduling_group
        assert told(POD, made) == []
        assert "spec.schedulingGroup.podGroupName: Invalid value: " in told(POD, POD.prepare_create(grouped("A_b")))[0]
    assert POD.prepare_update(made, made).spec.scheduling_group == made.spec.scheduling_group
    without = POD.prepare_create(make_pod("web"))
    assert POD.prepare_update(grouped(), without).spec.scheduling_group is None


@pytest.mark.django_db
def test_a_group_of_a_template_that_does_not_exist_is_forbidden() -> None:
    cluster = Cluster()
    with gates.using(**{KINDS_GATE: True}):
        with pytest.raises(Forbidden) as refusal:
            cluster.create(make_group("train", 2, template=("training", "workers")))
        message = 'podgroups.scheduling.k8s.io "train" is forbidden: PodGroup rejected: Workload "training" not found'
        assert refusal.value.message == message
        cluster.create(make_workload("training", "workers"))
        made = cluster.create(make_group("train", 2, template=("training", "workers")))
        assert made.metadata.uid
        with pytest.raises(Forbidden, match='PodGroupTemplate "others" not found in Workload "training"'):
            cluster.create(make_group("other", 2, template=("training", "others")))
        assert isinstance(cluster.find(PodWorkload, "training"), PodWorkload)
