"""A claim of a group is made once, shared by its pods, reserved for the group, and given back with it (KEP-5729)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from claims.controllers import pod_groups, taint_eviction
from claims.kinds.pod_groups import PodGroup, is_group, owning_group
from claims.kinds.pods import Pod, PodSchedulingGroup
from claims.kinds.resource_claims import ResourceClaim
from inventory.kinds import gates
from inventory.kinds.devices import DeviceTaintRule
from manciple.wire.base import condition_of, timestamp
from nodeagent.claims.prepare import check_claim, claims_used
from nodeagent.failures import PrepareRefused
from tests.builders import (
    make_claim,
    make_devices,
    make_node,
    make_pod,
    make_quota,
    make_request,
    make_slice,
    make_taint_rule,
    make_template,
)
from tests.builders.groups import make_group
from tests.scheduling.cluster import Cluster, with_spec

ON = {"GenericWorkload": True, "GangScheduling": True, "DRAWorkloadResourceClaims": True}


@pytest.fixture(autouse=True)
def _workload_claims(cluster: Cluster) -> Iterator[None]:
    with gates.using(**ON):
        yield
        assert not cluster.violations()


@pytest.fixture
def gpus(cluster: Cluster) -> Cluster:
    cluster.with_gpus("node-1", each=2)
    cluster.create(make_template("both", requests=[make_request(count=2)]))
    return cluster


def member(name: str, **entries: object) -> Pod:
    named = PodSchedulingGroup(pod_group_name="train")
    return make_pod(name, scheduling_group=named, **(entries or {"templates": {"gpu": "both"}}))  # type: ignore[arg-type]


def settle(cluster: Cluster) -> None:
    while pod_groups.reconcile(cluster.now):
        cluster.settle()
    cluster.settle()


def test_one_claim_is_made_for_the_group_and_all_of_its_pods_run_with_it(gpus: Cluster) -> None:
    group = gpus.create(make_group("train", 3, templates={"gpu": "both"}))
    for number in range(3):
        gpus.create(member(f"w-{number}"))
    settle(gpus)
    (claim,) = gpus.all(ResourceClaim)
    assert owning_group(claim) == "train"
    assert claim.metadata.name.startswith("train-gpu-")
    (user,) = claim.status.reserved_for
    assert is_group(user)
    assert user.uid == group.metadata.uid
    for number in range(3):
        pod = gpus.pod(f"w-{number}")
        assert pod.spec.node_name == "node-1"
        assert [one.resource_claim_name for one in pod.status.resource_claim_statuses] == [claim.metadata.name]
        (use,) = claims_used(pod)
        check_claim(pod, use, claim, node=make_node("node-1", labels={"kubernetes.io/hostname": "node-1"}))


def test_a_pod_of_no_group_is_refused_the_claim_on_its_node(gpus: Cluster) -> None:
    gpus.create(make_group("train", 1, templates={"gpu": "both"}))
    gpus.create(member("w-0"))
    settle(gpus)
    (claim,) = gpus.all(ResourceClaim)
    stranger = make_pod("stranger", claims={"gpu": claim.metadata.name})
    (use,) = claims_used(stranger)
    with pytest.raises(PrepareRefused, match="stranger"):
        check_claim(stranger, use, claim, node=make_node("node-1"))


def test_the_claim_stays_while_pods_come_and_go_and_goes_with_the_group(gpus: Cluster) -> None:
    gpus.create(make_group("train", 2, templates={"gpu": "both"}))
    for number in range(2):
        gpus.create(member(f"w-{number}"))
    settle(gpus)
    (before,) = gpus.all(ResourceClaim)
    gpus.finish("w-0")
    gpus.finish("w-1")
    settle(gpus)
    assert gpus.claim(before.metadata.name).status.allocation is not None
    gpus.create(member("w-2"))
    gpus.delete(gpus.get(PodGroup, "train"))
    settle(gpus)
    assert gpus.get(PodGroup, "train").metadata.deletion_timestamp is not None
    gpus.finish("w-2")
    settle(gpus)
    assert gpus.find(PodGroup, "train") is None
    settle(gpus)
    assert gpus.all(ResourceClaim) == []


def test_a_claim_that_is_named_is_reserved_for_the_group_once_for_any_number_of_pods(gpus: Cluster) -> None:
    gpus.create(make_claim("named", requests=[make_request(count=2)]))
    gpus.create(make_group("train", 4, claims={"gpu": "named"}))
    for number in range(4):
        gpus.create(member(f"w-{number}", claims={"gpu": "named"}))
    settle(gpus)
    assert [one.resource for one in gpus.claim("named").status.reserved_for] == ["podgroups"]
    for number in range(4):
        gpus.finish(f"w-{number}")
    gpus.delete(gpus.get(PodGroup, "train"))
    settle(gpus)
    settle(gpus)
    assert gpus.find(PodGroup, "train") is None
    assert gpus.claim("named").status.allocation is None
    assert gpus.claim("named").status.reserved_for == ()


def test_what_a_group_without_pods_holds_where_new_ones_cannot_run_is_given_back_for_them(gpus: Cluster) -> None:
    gpus.create(make_group("train", 2, templates={"gpu": "both"}))
    for number in range(2):
        gpus.create(member(f"w-{number}"))
    settle(gpus)
    for number in range(2):
        gpus.finish(f"w-{number}")
    settle(gpus)
    gpus.create(make_node("node-2"))
    gpus.create(make_slice(node="node-2", devices=make_devices(2)))
    for number in range(2, 4):
        gpus.create(with_spec(member(f"w-{number}"), node_selector={"kubernetes.io/hostname": "node-2"}))
    settle(gpus)
    gpus.retry()
    assert [gpus.pod(f"w-{number}").spec.node_name for number in range(2, 4)] == ["node-2", "node-2"]
    (claim,) = gpus.all(ResourceClaim)
    assert [one.resource for one in claim.status.reserved_for] == ["podgroups"]


def test_a_pod_that_cannot_run_where_its_group_does_takes_nothing_from_it(gpus: Cluster) -> None:
    gpus.create(make_group("train", 1, templates={"gpu": "both"}))
    gpus.create(make_node("node-2"))
    gpus.create(make_slice(node="node-2", devices=make_devices(2)))
    gpus.create(with_spec(member("w-0"), node_selector={"kubernetes.io/hostname": "node-1"}))
    gpus.create(with_spec(member("w-1"), node_selector={"kubernetes.io/hostname": "node-2"}))
    settle(gpus)
    gpus.retry()
    placed = [gpus.pod(name).spec.node_name for name in ("w-0", "w-1")]
    assert sorted(placed) in (["", "node-1"], ["", "node-2"])
    (claim,) = gpus.all(ResourceClaim)
    assert claim.status.allocation is not None


def test_a_pod_with_another_entry_gets_a_claim_of_its_own(gpus: Cluster) -> None:
    gpus.create(make_template("one", requests=[make_request()]))
    gpus.create(make_group("train", 1, templates={"gpu": "both"}))
    gpus.create(member("w-0", templates={"gpu": "one"}))
    settle(gpus)
    claim = gpus.generated_claim("w-0")
    assert owning_group(claim) == ""
    assert [one.resource for one in claim.status.reserved_for] == ["pods"]


def test_a_template_that_is_missing_is_told_at_the_group_and_waited_for(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=2)
    cluster.create(make_group("train", 1, templates={"gpu": "both"}))
    cluster.create(member("w-0"))
    settle(cluster)
    (event,) = cluster.events("FailedResourceClaimCreation")
    assert event.involved_object.kind == "PodGroup"
    assert event.message.startswith('PodGroupResourceClaim gpu: resource claim template "both": ')
    cluster.create(make_template("both", requests=[make_request(count=2)]))
    settle(cluster)
    assert cluster.pod("w-0").spec.node_name == "node-1"


def test_a_quota_counts_the_claim_of_a_group_once(gpus: Cluster) -> None:
    gpus.create(make_quota({"count/resourceclaims.resource.k8s.io": "1"}))
    gpus.create(make_group("train", 3, templates={"gpu": "both"}))
    for number in range(3):
        gpus.create(member(f"w-{number}"))
    settle(gpus)
    assert len(gpus.all(ResourceClaim)) == 1
    assert all(gpus.pod(f"w-{number}").spec.node_name for number in range(3))


def test_with_the_gate_off_pods_that_run_go_on_and_new_ones_get_claims_of_their_own(gpus: Cluster) -> None:
    gpus.create(make_group("train", 1, templates={"gpu": "both"}))
    gpus.create(member("w-0"))
    settle(gpus)
    (shared,) = gpus.all(ResourceClaim)
    gpus.finish("w-0", "Running")
    with gates.using(DRAWorkloadResourceClaims=False):
        gpus.worker = gpus.new_worker()
        gpus.create(member("w-1"))
        settle(gpus)
        assert gpus.claim(shared.metadata.name).status == shared.status
        assert gpus.generated_claim("w-1").metadata.name != shared.metadata.name
        assert gpus.pod("w-1").spec.node_name == ""
        gpus.delete(gpus.pod("w-1"))
        settle(gpus)
    gpus.worker = gpus.new_worker()
    gpus.create(member("w-2"))
    settle(gpus)
    assert gpus.pod("w-2").spec.node_name == "node-1"
    assert gpus.generated_claim("w-2").metadata.name == shared.metadata.name


def test_a_turn_with_nothing_to_do_reads_no_groups(gpus: Cluster) -> None:
    """However many there are: it runs every five seconds."""
    for number in range(4):
        gpus.create(make_group(f"group-{number}", 1, templates={"gpu": "both"}))
    settle(gpus)
    with CaptureQueriesContext(connection) as queries:
        assert not pod_groups.reconcile(gpus.now)
    assert len(queries) <= 3
    assert not any("store_storedobject" in query["sql"] for query in queries)
    claims = gpus.all(ResourceClaim)
    gpus.delete(claims[0])
    settle(gpus)
    assert len(gpus.all(ResourceClaim)) == 4


def test_a_taint_evicts_the_pods_that_share_a_claim_of_their_group_and_nobody_else(gpus: Cluster) -> None:
    gpus.create(make_group("train", 2, templates={"gpu": "both"}))
    for number in range(2):
        gpus.create(member(f"w-{number}"))
    settle(gpus)
    (claim,) = gpus.all(ResourceClaim)
    gpus.create(make_pod("stranger", claims={"gpu": claim.metadata.name}, node="node-1"))
    gpus.create(make_taint_rule("dry", effect="None", device="gpu-0"))
    gpus.later(3)
    taint_eviction.reconcile(gpus.now)
    told = condition_of(gpus.get(DeviceTaintRule, "dry").status.conditions, taint_eviction.CONDITION)
    assert told is not None
    assert "2 pods would be evicted in 1 namespace" in told.message
    gpus.create(make_taint_rule("broken", effect="NoExecute", device="gpu-0", time_added=timestamp(gpus.now)))
    taint_eviction.reconcile(gpus.now)
    going = {one.metadata.name for one in gpus.all(Pod) if one.metadata.deletion_timestamp is not None}
    assert going == {"w-0", "w-1"}
