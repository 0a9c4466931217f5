"""A claim is bound to a volume, or gets a folder on the node of its first pod, where all its pods then go."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import pytest
from django.db import OperationalError
from msgspec import structs

from claims.controllers import ephemeral_volumes
from claims.controllers import volume_claims as binder
from claims.kinds.persistent_volumes import (
    FOLDER_FINALIZER,
    NODE_LABEL,
    PersistentVolume,
    PersistentVolumeSpec,
    VolumeNodeAffinity,
)
from claims.kinds.pods import MOST_CLAIMED_VOLUMES, Pod
from claims.kinds.quotas import ResourceQuota, ResourceQuotaSpec
from claims.kinds.storage_classes import LOCAL, StorageClass
from claims.kinds.volume_claims import PersistentVolumeClaim
from claims.kinds.volumes import (
    HostPathVolumeSource,
    PersistentVolumeClaimSpec,
    Volume,
    VolumeResourceRequirements,
    claim_volume,
)
from inventory.kinds.nodes import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from manciple.store import sql
from manciple.wire import codec
from manciple.wire.base import LabelSelector, ObjectMeta, ObjectReference
from tests.builders import NAMESPACE, make_node, make_pod
from tests.scheduling.cluster import Cluster, with_spec


def make_volume_claim(name: str = "data", **spec: Any) -> PersistentVolumeClaim:
    filled = {"access_modes": ("ReadWriteOnce",), "storage_class_name": "local", **spec}
    size = VolumeResourceRequirements(requests={"storage": "1Gi"})
    return PersistentVolumeClaim(
        api_version="v1",
        kind="PersistentVolumeClaim",
        metadata=ObjectMeta(name=name, namespace=NAMESPACE),
        spec=PersistentVolumeClaimSpec(resources=size, **filled),
    )


def make_volume(name: str = "disk", *, size: str = "1Gi", node: str = "", **spec: Any) -> PersistentVolume:
    term = NodeSelectorTerm(
        match_expressions=(NodeSelectorRequirement(key="kubernetes.io/hostname", operator="In", values=(node,)),)
    )
    affinity = VolumeNodeAffinity(required=NodeSelector(node_selector_terms=(term,))) if node else None
    filled = {"access_modes": ("ReadWriteOnce",), "capacity": {"storage": size}, "node_affinity": affinity, **spec}
    return PersistentVolume(
        api_version="v1",
        kind="PersistentVolume",
        metadata=ObjectMeta(name=name),
        spec=PersistentVolumeSpec(host_path=HostPathVolumeSource(path="/srv"), **filled),
    )


def make_user(name: str, *claims: str) -> Pod:
    volumes = tuple(claim_volume(f"v{at}", one) for at, one in enumerate(claims))
    return with_spec(make_pod(name), volumes=volumes)


@pytest.fixture
def stored(cluster: Cluster) -> Cluster:
    """Three nodes and the class of folders."""
    for number in range(3):
        name = f"node-{number}"
        node = make_node(name)
        labels = {**node.metadata.labels, "kubernetes.io/hostname": name}
        cluster.create(structs.replace(node, metadata=structs.replace(node.metadata, labels=labels)))
    cluster.create(LOCAL)
    return cluster


def bind(cluster: Cluster) -> None:
    """Let the binder and the scheduler do all that they have to do."""
    for _ in range(20):
        cluster.settle()
        if not ephemeral_volumes.reconcile(cluster.now) + binder.reconcile(cluster.now):
            cluster.retry()
            return
    raise AssertionError("the binder finds no rest")


def make_ephemeral(name: str = "web", volume: str = "disk", **spec: Any) -> Pod:
    filled = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec}
    metadata = {"labels": {"tier": "scratch"}, "annotations": {"why": "fast"}}
    source = {"volumeClaimTemplate": {"metadata": metadata, "spec": filled}}
    declared = codec.decode_value(Volume, {"name": volume, "ephemeral": source})
    return with_spec(make_pod(name), volumes=(declared,))


def claim_of(cluster: Cluster, name: str = "data") -> PersistentVolumeClaim:
    return cluster.get(PersistentVolumeClaim, name)


def told(cluster: Cluster, reason: str) -> set[str]:
    return {event.message for event in cluster.events(reason)}


# Folders --------------------------------------------------------------------------------------------------------------


def test_a_claim_waits_for_its_first_pod_and_gets_a_folder_on_its_node(stored: Cluster) -> None:
    stored.create(make_volume_claim())
    bind(stored)
    assert claim_of(stored).status.phase == "Pending"
    assert told(stored, "WaitForFirstConsumer") == {"waiting for first consumer to be created before binding"}
    stored.create(make_user("web", "data"))
    bind(stored)
    claim, pod = claim_of(stored), stored.pod("web")
    volume = stored.get(PersistentVolume, claim.spec.volume_name)
    assert (claim.status.phase, volume.status.phase) == ("Bound", "Bound")
    assert volume.metadata.name == f"pvc-{claim.metadata.uid}"
    assert volume.is_folder
    assert volume.node == volume.metadata.labels[NODE_LABEL] == pod.spec.node_name
    assert claim.status.capacity == volume.spec.capacity == {"storage": "1Gi"}
    assert volume.spec.claim_ref is not None
    assert volume.spec.claim_ref.uid == claim.metadata.uid


@pytest.mark.parametrize("step", ["of_claim", "_carry_out"])
@pytest.mark.parametrize("fault", [TypeError("a fault"), OperationalError("the database is away")])
def test_a_fault_with_one_claim_costs_neither_it_nor_the_others_their_volumes(
    stored: Cluster, monkeypatch: pytest.MonkeyPatch, step: str, fault: Exception
) -> None:
    real = getattr(binder, step)

    def failing(*given: Any) -> Any:
        about = [given[1]] if step == "of_claim" else [old or new for _, old, new in given[0].writes]
        if any(isinstance(one, PersistentVolumeClaim) and one.metadata.name == "a" for one in about):
            raise fault
        return real(*given)

    for name in ("a", "b"):
        stored.create(make_volume_claim(name))
        stored.create(make_user(name, name))
    stored.settle()
    monkeypatch.setattr(binder, step, failing)
    began = time.monotonic()
    with suppress(OperationalError):
        binder.reconcile(stored.now)
    assert binder.CONTROLLER.rests_until(began) == 0.0
    assert isinstance(fault, OperationalError) or claim_of(stored, "b").status.phase == "Bound"
    monkeypatch.setattr(binder, step, real)
    bind(stored)
    assert [claim_of(stored, name).status.phase for name in ("a", "b")] == ["Bound", "Bound"]


def test_all_pods_of_a_claim_go_to_one_node_even_in_one_batch(stored: Cluster) -> None:
    stored.create(make_volume_claim())
    for name in ("a", "b", "c", "d"):
        stored.create(make_user(name, "data"))
    stored.settle()  # nothing is bound meanwhile
    nodes = {stored.pod(name).spec.node_name for name in "abcd"}
    assert len(nodes) == 1
    assert "" not in nodes
    bind(stored)
    stored.create(make_user("late", "data"))
    bind(stored)
    assert stored.pod("late").spec.node_name in nodes


def test_a_pod_whose_claims_are_on_different_nodes_says_so(stored: Cluster) -> None:
    for number in (0, 1):
        stored.create(make_volume_claim(f"c{number}", storage_class_name="", volume_name=f"v{number}"))
        stored.create(make_volume(f"v{number}", node=f"node-{number}"))
    stored.create(make_user("web", "c0", "c1"))
    bind(stored)
    why = stored.why_pending("web")
    assert "3 node(s) didn't match PersistentVolume's node affinity" in why
    assert not stored.pod("web").spec.node_name


def test_the_folder_goes_with_its_claim_or_is_retained(stored: Cluster) -> None:
    keeping = structs.replace(LOCAL, metadata=ObjectMeta(name="keep"), reclaim_policy="Retain")
    stored.create(keeping)
    for name, kind in (("gone", "local"), ("kept", "keep")):
        stored.create(make_volume_claim(name, storage_class_name=kind))
        stored.create(make_user(f"of-{name}", name))
    bind(stored)
    volumes = {name: claim_of(stored, name).spec.volume_name for name in ("gone", "kept")}
    for name in volumes:
        stored.delete(claim_of(stored, name))
    bind(stored)
    assert {claim_of(stored, name).status.phase for name in volumes} == {"Bound"}  # pods use them
    for name in volumes:
        stored.delete(stored.pod(f"of-{name}"))
    bind(stored)
    assert not stored.all(PersistentVolumeClaim)
    assert [one.metadata.name for one in stored.all(PersistentVolume)] == [volumes["kept"]]
    assert stored.get(PersistentVolume, volumes["kept"]).status.phase == "Released"


@pytest.mark.parametrize("state", ["ready", "not ready", "gone"])
def test_a_volume_stays_until_its_node_has_removed_the_folder_or_says_why(stored: Cluster, state: str) -> None:
    stored.create(make_volume_claim())
    stored.create(make_user("web", "data"))
    bind(stored)
    volume = stored.get(PersistentVolume, claim_of(stored).spec.volume_name)
    finalizers = (*volume.metadata.finalizers, FOLDER_FINALIZER)
    stored.update(structs.replace(volume, metadata=structs.replace(volume.metadata, finalizers=finalizers)))
    node = stored.node(stored.pod("web").spec.node_name)
    stored.delete(stored.pod("web"))
    stored.delete(claim_of(stored))
    if state == "not ready":
        conditions = tuple(structs.replace(one, status="Unknown") for one in node.status.conditions)
        stored.update(structs.replace(node, status=structs.replace(node.status, conditions=conditions)))
    if state == "gone":
        stored.delete(node)
    bind(stored)
    left = [one.metadata.finalizers for one in stored.all(PersistentVolume)]
    assert left == ([] if state == "gone" else [(FOLDER_FINALIZER,)])
    notices = told(stored, "VolumeFailedDelete")
    assert [f"node {node.metadata.name}" in one for one in notices] == ([True] if state == "not ready" else [])
    if state == "not ready":
        stored.delete(stored.node(node.metadata.name))
        bind(stored)
        assert not stored.all(PersistentVolume)


def test_a_folder_grows_with_its_claim(stored: Cluster) -> None:
    stored.create(structs.replace(LOCAL, metadata=ObjectMeta(name="growing"), allow_volume_expansion=True))
    stored.create(make_volume_claim(storage_class_name="growing"))
    stored.create(make_user("web", "data"))
    bind(stored)
    claim = claim_of(stored)
    size = VolumeResourceRequirements(requests={"storage": "3Gi"})
    stored.update(structs.replace(claim, spec=structs.replace(claim.spec, resources=size)))
    bind(stored)
    volume = stored.get(PersistentVolume, claim.spec.volume_name)
    assert claim_of(stored).status.capacity == volume.spec.capacity == {"storage": "3Gi"}


@pytest.mark.parametrize("policy", ["Delete", "Recycle"])
def test_a_volume_that_nothing_here_can_remove_fails_with_words(stored: Cluster, policy: str) -> None:
    stored.create(make_volume(persistent_volume_reclaim_policy=policy))
    stored.create(make_volume_claim(storage_class_name=""))
    bind(stored)
    stored.delete(claim_of(stored))
    bind(stored)
    volume = stored.get(PersistentVolume, "disk")
    assert volume.status.phase == "Failed"
    assert told(stored, f"VolumeFailed{policy}") == {volume.status.message}
    stored.delete(volume)
    bind(stored)
    assert not stored.all(PersistentVolume)


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"access_modes": ("ReadWriteMany",)}, "not ReadWriteMany"),
        ({"volume_mode": "Block"}, "not Block"),
        ({"selector": LabelSelector(match_labels={"a": "b"})}, "no selector"),
        ({"storage_class_name": "foreign"}, "none is served here"),
        ({"storage_class_name": "at-once"}, "needs volumeBindingMode WaitForFirstConsumer"),
        ({"storage_class_name": "missing"}, 'storageclass.storage.k8s.io "missing" not found'),
        ({"storage_class_name": None}, "no storage class is set"),
        ({"storage_class_name": ""}, "no storage class is set"),
        ({"volume_name": "nowhere"}, 'volume "nowhere" not found'),
    ],
)
def test_a_claim_that_nothing_serves_says_why_and_so_does_its_pod(
    stored: Cluster, spec: dict[str, Any], why: str
) -> None:
    foreign = structs.replace(LOCAL, metadata=ObjectMeta(name="foreign"), provisioner="csi.example.com")
    stored.create(foreign)
    stored.create(structs.replace(LOCAL, metadata=ObjectMeta(name="at-once"), volume_binding_mode="Immediate"))
    stored.create(make_volume_claim(**spec))
    stored.create(make_user("web", "data"))
    bind(stored)
    assert any(why in one for one in told(stored, "ProvisioningFailed") | told(stored, "FailedBinding"))
    pending = stored.why_pending("web")
    assert "pod has unbound immediate PersistentVolumeClaims" in pending
    assert ("its events say why" if "volume_name" in spec else why) in pending
    assert not stored.pod("web").spec.node_name


# Volumes that are there -----------------------------------------------------------------------------------------------


def test_a_claim_gets_the_smallest_volume_that_would_do(stored: Cluster) -> None:
    for name, size in (("small", "512Mi"), ("fitting", "2Gi"), ("large", "9Gi")):
        stored.create(make_volume(name, size=size))
    stored.create(make_volume("other-class", storage_class_name="local"))
    stored.create(make_volume_claim(storage_class_name=""))
    bind(stored)
    assert claim_of(stored).spec.volume_name == "fitting"
    phases = {one.metadata.name: one.status.phase for one in stored.all(PersistentVolume)}
    assert phases == {"small": "Available", "fitting": "Bound", "large": "Available", "other-class": "Available"}


def test_a_pod_waits_for_its_claim_and_goes_where_the_volume_is(stored: Cluster) -> None:
    stored.create(make_user("web", "data"))
    bind(stored)
    assert 'persistentvolumeclaim "data" not found' in stored.why_pending("web")
    stored.create(make_volume_claim(storage_class_name=""))
    bind(stored)
    assert "pod has unbound immediate PersistentVolumeClaims" in stored.why_pending("web")
    stored.create(make_volume(node="node-2"))
    bind(stored)
    assert stored.pod("web").spec.node_name == "node-2"


def test_two_claims_do_not_get_one_volume(stored: Cluster) -> None:
    stored.create(make_volume())
    for name in ("one", "two"):
        stored.create(make_volume_claim(name, storage_class_name=""))
    bind(stored)
    phases = sorted(claim_of(stored, name).status.phase for name in ("one", "two"))
    assert phases == ["Bound", "Pending"]


def test_a_volume_can_be_kept_for_a_claim(stored: Cluster) -> None:
    reference = ObjectReference(namespace=NAMESPACE, name="data")
    stored.create(make_volume(claim_ref=reference))
    stored.create(make_volume_claim("other", storage_class_name=""))
    bind(stored)
    assert claim_of(stored, "other").status.phase == "Pending"
    stored.create(make_volume_claim(storage_class_name=""))
    bind(stored)
    assert claim_of(stored).spec.volume_name == "disk"


def test_a_claim_whose_volume_is_gone_is_lost(stored: Cluster) -> None:
    stored.create(make_volume())
    stored.create(make_volume_claim(storage_class_name=""))
    bind(stored)
    volume = stored.get(PersistentVolume, "disk")
    stored.delete(volume)
    bind(stored)
    assert stored.find(PersistentVolume, "disk") is not None  # its claim holds it
    volume = stored.get(PersistentVolume, "disk")
    stored.update(structs.replace(volume, metadata=structs.replace(volume.metadata, finalizers=())))
    bind(stored)
    assert claim_of(stored).status.phase == "Lost"
    stored.create(make_user("web", "data"))
    bind(stored)
    assert 'bound to non-existent persistentvolume "disk"' in stored.why_pending("web")


def test_too_many_claims_are_refused_with_words(stored: Cluster) -> None:
    names = [f"c{number}" for number in range(MOST_CLAIMED_VOLUMES + 2)]
    for name in names:
        stored.create(make_volume_claim(name))
    stored.create(make_user("many", *names))
    bind(stored)
    assert f"{MOST_CLAIMED_VOLUMES} PersistentVolumeClaims at most" in stored.why_pending("many")


def test_a_deleted_claim_that_no_pod_uses_goes_at_once(stored: Cluster) -> None:
    stored.create(make_volume_claim())
    stored.delete(claim_of(stored))
    bind(stored)
    assert not stored.all(PersistentVolumeClaim)


def test_a_class_that_comes_later_serves_the_claims_that_wait(stored: Cluster) -> None:
    stored.create(make_volume_claim(storage_class_name="late"))
    stored.create(make_user("web", "data"))
    bind(stored)
    assert not stored.pod("web").spec.node_name
    late: StorageClass = structs.replace(LOCAL, metadata=ObjectMeta(name="late"))
    stored.create(late)
    bind(stored)
    assert stored.pod("web").spec.node_name
    assert claim_of(stored).status.phase == "Bound"


# Ephemeral volumes ----------------------------------------------------------------------------------------------------


def has_ephemeral_work() -> bool:
    return bool(sql.fetch(*ephemeral_volumes.ANY)[0][0])


def test_the_claim_of_an_ephemeral_volume_is_made_and_goes_with_its_pod(stored: Cluster) -> None:
    assert not has_ephemeral_work()
    pod = stored.create(make_ephemeral(storageClassName="local"))
    stored.settle()
    assert 'ephemeral volume controller to create the persistentvolumeclaim "web-disk"' in stored.why_pending("web")
    assert has_ephemeral_work()
    bind(stored)
    claim, pod = claim_of(stored, "web-disk"), stored.pod("web")
    assert pod.spec.node_name
    assert claim.status.phase == "Bound"
    (owner,) = claim.metadata.owner_references
    assert (owner.kind, owner.name, owner.uid) == ("Pod", "web", pod.metadata.uid)
    assert owner.controller
    assert owner.block_owner_deletion
    assert claim.metadata.labels == {"tier": "scratch"}
    assert claim.metadata.annotations["why"] == "fast"
    assert stored.get(PersistentVolume, claim.spec.volume_name).node == pod.spec.node_name
    assert not has_ephemeral_work()

    stored.delete(claim)  # it is protected while the pod uses it
    bind(stored)
    assert claim_of(stored, "web-disk").metadata.deletion_timestamp is not None
    stored.delete(pod)
    bind(stored)
    assert not stored.all(PersistentVolumeClaim)


def test_the_claim_of_another_is_not_taken_for_an_ephemeral_volume(stored: Cluster) -> None:
    stored.create(make_volume_claim("web-disk"))
    stored.create(make_ephemeral())
    bind(stored)
    why = f"PVC {NAMESPACE}/web-disk was not created for pod {NAMESPACE}/web (pod is not owner)"
    assert why in stored.why_pending("web")
    assert told(stored, "FailedBinding") == {f"ephemeral volume disk: {why}"}
    before = stored.events("FailedBinding")
    ephemeral_volumes.reconcile(stored.now)
    assert stored.events("FailedBinding") == before, "said once, not at each look"
    stored.delete(claim_of(stored, "web-disk"))
    bind(stored)
    assert stored.pod("web").spec.node_name
    assert claim_of(stored, "web-disk").metadata.owner_references


def test_the_claim_of_a_former_pod_is_not_taken_either(stored: Cluster) -> None:
    first = stored.create(make_ephemeral())
    bind(stored)
    stored.delete(stored.pod("web"))
    stored.create(make_ephemeral())
    stored.settle()
    assert "(pod is not owner)" in stored.why_pending("web")
    stored.delete(claim_of(stored, "web-disk"))  # as the garbage collector does, in time
    bind(stored)
    (owner,) = claim_of(stored, "web-disk").metadata.owner_references
    assert owner.uid == stored.pod("web").metadata.uid != first.metadata.uid


def test_a_claim_that_cannot_be_made_is_told_and_made_later(stored: Cluster) -> None:
    quota = ResourceQuota(
        api_version="v1",
        kind="ResourceQuota",
        metadata=ObjectMeta(name="no-volumes", namespace=NAMESPACE),
        spec=ResourceQuotaSpec(hard={"persistentvolumeclaims": "0"}),
    )
    quota = stored.create(quota)
    stored.create(make_ephemeral())
    stored.create(make_ephemeral("other"))
    bind(stored)
    assert not stored.all(PersistentVolumeClaim)
    said = sorted(told(stored, "FailedBinding"))
    assert len(said) == 2
    assert said[0].startswith("ephemeral volume disk: create PVC other-disk: ")
    assert "exceeded quota: no-volumes" in said[0]
    stored.delete(quota)
    bind(stored)
    assert {claim.metadata.name for claim in stored.all(PersistentVolumeClaim)} == {"web-disk", "other-disk"}
    assert stored.pod("web").spec.node_name


def test_pods_that_end_or_are_being_deleted_get_no_claim(stored: Cluster) -> None:
    stored.create(make_ephemeral("ended"))
    stored.finish("ended")
    stored.create(make_ephemeral("leaving"))
    stored.delete(stored.pod("leaving"), grace=30)
    ephemeral_volumes.reconcile(stored.now)
    assert not has_ephemeral_work()
    assert not stored.all(PersistentVolumeClaim)


# Volumes of a class that an administrator makes, one a disk -----------------------------------------------------------

DISKS = structs.replace(LOCAL, metadata=ObjectMeta(name="disks"), provisioner="kubernetes.io/no-provisioner")


@pytest.fixture
def disks(stored: Cluster) -> Cluster:
    stored.create(DISKS)
    return stored


def add_disk(cluster: Cluster, name: str, node: str, size: str = "1Gi") -> None:
    cluster.create(make_volume(name, size=size, node=node, storage_class_name="disks"))


def add_claims(cluster: Cluster, *names: str) -> None:
    for name in names:
        cluster.create(make_volume_claim(name, storage_class_name="disks"))


def test_a_pod_goes_where_a_volume_of_the_class_is_free(disks: Cluster) -> None:
    add_claims(disks, "data")
    disks.create(make_user("web", "data"))
    bind(disks)
    assert "no persistent volumes available" in disks.why_pending("web")
    add_disk(disks, "d1", "node-1")
    bind(disks)
    assert disks.pod("web").spec.node_name == "node-1"
    assert claim_of(disks).spec.volume_name == "d1"


def test_a_pod_gets_a_volume_for_each_of_its_claims_or_waits(disks: Cluster) -> None:
    add_claims(disks, "a", "b")
    for name, node in (("d0", "node-0"), ("d1", "node-1"), ("d2", "node-2")):
        add_disk(disks, name, node)
    disks.create(make_user("web", "a", "b"))
    bind(disks)
    assert "didn't match PersistentVolume's node affinity" in disks.why_pending("web")
    add_disk(disks, "e2", "node-2", "5Gi")
    bind(disks)
    assert disks.pod("web").spec.node_name == "node-2"
    assert {claim_of(disks, name).spec.volume_name for name in "ab"} == {"d2", "e2"}


def test_pods_do_not_go_where_others_are_about_to_take_the_volume(disks: Cluster) -> None:
    add_disk(disks, "d0", "node-0")
    add_disk(disks, "d1", "node-1")
    add_claims(disks, "a", "b", "c")
    for name in "abc":
        disks.create(make_user(name, name))
    bind(disks)
    placed = [name for name in "abc" if disks.pod(name).spec.node_name]
    assert len(placed) == 2
    for name in placed:
        volume = disks.get(PersistentVolume, claim_of(disks, name).spec.volume_name)
        assert volume.selector is not None
        assert volume.selector.node_selector_terms[0].match_expressions[0].values == (disks.pod(name).spec.node_name,)


def test_a_claim_for_one_pod_alone_is_used_by_one_at_a_time(stored: Cluster) -> None:
    stored.create(make_volume_claim(access_modes=("ReadWriteOncePod",)))
    for name in ("one", "two"):
        stored.create(make_user(name, "data"))
    bind(stored)
    (first,) = (name for name in ("one", "two") if stored.pod(name).spec.node_name)
    second = {"one": "two", "two": "one"}[first]
    assert "in-use by another pod" in stored.why_pending(second)
    stored.delete(stored.pod(first))
    bind(stored)
    assert stored.pod(second).spec.node_name


@pytest.mark.parametrize("is_long", [False, True])
def test_an_event_about_a_claim_that_waits_is_written_once_in_a_while(stored: Cluster, is_long: bool) -> None:
    stored.create(make_volume_claim(storage_class_name="missing"))
    bind(stored)
    if is_long:
        stored.later(binder.REPEAT.total_seconds() + 1)
    stored.create(structs.replace(LOCAL, metadata=ObjectMeta(name="another")))
    bind(stored)
    (event,) = stored.events("ProvisioningFailed")
    assert event.count == (2 if is_long else 1)
