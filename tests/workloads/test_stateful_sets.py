"""The pods of a StatefulSet keep their names and claims, come and go in order, and are updated from the last down."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from claims.kinds.pods import Pod
from claims.kinds.registration import POD
from claims.kinds.volume_claims import VOLUME_CLAIM, PersistentVolumeClaim
from claims.kinds.volumes import PersistentVolumeClaimSpec, VolumeResourceRequirements
from manciple.store import garbage, objects
from manciple.store.objects import decoded
from manciple.wire.base import LabelSelector, ObjectMeta
from manciple.wire.machinery import Event
from manciple.wire.registry import registry
from tests.workloads.cluster import NAMESPACE, Cluster, make_pod_template, make_stateful_set
from workloads.controllers import stateful_sets
from workloads.controllers.stateful_sets import ordinal_of
from workloads.kinds.controller_revisions import CONTROLLER_REVISION, ControllerRevision
from workloads.kinds.pod_facts import PodFacts
from workloads.kinds.stateful_sets import (
    STATEFUL_SET,
    RollingUpdateStatefulSetStrategy,
    StatefulSetOrdinals,
    StatefulSetPersistentVolumeClaimRetentionPolicy,
    StatefulSetUpdateStrategy,
)
from workloads.revisions import HASH

PARALLEL = "Parallel"
ON_DELETE = StatefulSetUpdateStrategy(type="OnDelete")
DATA = PersistentVolumeClaim(
    metadata=ObjectMeta(name="data"),
    spec=PersistentVolumeClaimSpec(
        access_modes=("ReadWriteOnce",), resources=VolumeResourceRequirements(requests={"storage": "1Gi"})
    ),
)


def rolling(*, partition: int = 0, unavailable: int | str = 1) -> StatefulSetUpdateStrategy:
    strategy = RollingUpdateStatefulSetStrategy(partition=partition, max_unavailable=unavailable)
    return StatefulSetUpdateStrategy(rolling_update=strategy)


def retention(*, deleted: str = "Retain", scaled: str = "Retain") -> StatefulSetPersistentVolumeClaimRetentionPolicy:
    return StatefulSetPersistentVolumeClaimRetentionPolicy(when_deleted=deleted, when_scaled=scaled)


def present(cluster: Cluster) -> dict[str, Pod]:
    """The pods that are not being deleted, by name."""
    return {pod.metadata.name: pod for pod in cluster.pods() if pod.metadata.deletion_timestamp is None}


def images(cluster: Cluster) -> dict[str, str]:
    return {name: pod.spec.containers[0].image for name, pod in sorted(present(cluster).items())}


def claims() -> dict[str, PersistentVolumeClaim]:
    stored = objects.list(VOLUME_CLAIM, namespace=NAMESPACE).items
    return {one.metadata.name: one for one in (decoded(item, PersistentVolumeClaim) for item in stored)}


def revisions() -> dict[str, int]:
    stored = objects.list(CONTROLLER_REVISION, namespace=NAMESPACE).items
    found = (decoded(one, ControllerRevision) for one in stored)
    return {one.metadata.name: one.revision for one in found}


def messages(reason: str) -> set[str]:
    stored = objects.list(registry.by_resource("events"), namespace=NAMESPACE).items
    return {one.message for one in (decoded(item, Event) for item in stored) if one.reason == reason}


def run_one(cluster: Cluster, name: str, *, ready: bool = True) -> None:
    cluster.let_run([present(cluster)[name]], ready=ready)
    cluster.run()


# Names ----------------------------------------------------------------------------------------------------------------


def test_a_pod_has_its_name_as_host_name_and_labels(cluster: Cluster) -> None:
    cluster.create(STATEFUL_SET, make_stateful_set(replicas=1, ordinals=StatefulSetOrdinals(start=7)))
    cluster.run()
    (pod,) = cluster.pods()
    assert (pod.metadata.name, pod.spec.hostname, pod.spec.subdomain) == ("db-7", "db-7", "db")
    revision = cluster.stateful_set().status.update_revision
    assert pod.metadata.labels == {
        "app": "x",
        "apps.kubernetes.io/pod-index": "7",
        "statefulset.kubernetes.io/pod-name": "db-7",
        HASH: revision,
    }
    assert revisions() == {revision: 1}


@pytest.mark.parametrize(
    ("name", "ordinal"),
    [
        ("db-0", 0),
        ("db-12", 12),
        ("db-012", None),
        ("db-", None),
        ("db-x", None),
        ("db-a-0", None),
        ("other-0", None),
        ("db--1", None),
        (f"db-{2**31}", None),
        ("db-" + "9" * 5000, None),
        ("db-0\n", None),
        ("db-\u0661", None),
    ],
)
def test_the_ordinal_is_in_the_name(name: str, ordinal: int | None) -> None:
    assert ordinal_of(make_stateful_set("db"), name) == ordinal


# One after the other, or all at once ----------------------------------------------------------------------------------


def test_pods_come_one_after_the_other_and_the_last_goes_first(cluster: Cluster) -> None:
    cluster.create(STATEFUL_SET, make_stateful_set())
    cluster.run()
    assert set(present(cluster)) == {"db-0"}
    run_one(cluster, "db-0", ready=False)
    assert set(present(cluster)) == {"db-0"}
    run_one(cluster, "db-0")
    assert set(present(cluster)) == {"db-0", "db-1"}
    run_one(cluster, "db-1")
    run_one(cluster, "db-2")
    status = cluster.stateful_set().status
    assert (status.replicas, status.ready_replicas, status.available_replicas, status.current_replicas) == (3, 3, 3, 3)
    assert "Create Pod db-2 in StatefulSet db successful" in messages("SuccessfulCreate")
    cluster.scale("db", 0, STATEFUL_SET)
    for left in ({"db-0", "db-1"}, {"db-0"}, set[str]()):
        cluster.run()
        assert set(present(cluster)) == left
        cluster.reap()
    assert "Delete Pod db-2 in StatefulSet db successful" in messages("SuccessfulDelete")


def test_nothing_is_taken_away_while_a_pod_is_not_ready(cluster: Cluster) -> None:
    cluster.create(STATEFUL_SET, make_stateful_set())
    cluster.settle()
    run_one(cluster, "db-0", ready=False)
    cluster.scale("db", 2, STATEFUL_SET)
    cluster.run()
    assert set(present(cluster)) == {"db-0", "db-1", "db-2"}
    run_one(cluster, "db-0")
    assert set(present(cluster)) == {"db-0", "db-1"}


def test_the_last_pod_goes_though_it_never_ran(cluster: Cluster) -> None:
    cluster.create(STATEFUL_SET, make_stateful_set(replicas=2))
    cluster.run()
    run_one(cluster, "db-0")
    cluster.scale("db", 1, STATEFUL_SET)
    cluster.settle()
    assert set(present(cluster)) == {"db-0"}


def test_in_parallel_all_come_and_go_at_once(cluster: Cluster) -> None:
    cluster.create(STATEFUL_SET, make_stateful_set(replicas=5, pod_management_policy=PARALLEL))
    cluster.run()
    assert set(present(cluster)) == {f"db-{at}" for at in range(5)}
    cluster.scale("db", 1, STATEFUL_SET)
    cluster.run()
    assert set(present(cluster)) == {"db-0"}


def test_a_pod_counts_after_it_was_ready_for_long_enough(cluster: Cluster) -> None:
    cluster.create(STATEFUL_SET, make_stateful_set(replicas=2, min_ready_seconds=30))
    cluster.run()
    run_one(cluster, "db-0")
    status = cluster.stateful_set().status
    assert (set(present(cluster)), status.ready_replicas, status.available_replicas) == ({"db-0"}, 1, 0)
    cluster.pass_time(31)
    cluster.run()
    assert set(present(cluster)) == {"db-0", "db-1"}
    assert cluster.stateful_set().status.available_replicas == 1


@pytest.mark.parametrize("policy", ["OrderedReady", PARALLEL])
def test_the_first_ordinal_moves(cluster: Cluster, policy: str) -> None:
    cluster.create(STATEFUL_SET, make_stateful_set(pod_management_policy=policy))
    cluster.settle()

    def moved(one: Any) -> Any:
        return replace(one, spec=replace(one.spec, ordinals=StatefulSetOrdinals(start=2)))

    cluster.edit(STATEFUL_SET, "db", moved)
    cluster.settle()
    assert set(present(cluster)) == {"db-2", "db-3", "db-4"}
    assert cluster.stateful_set().status.replicas == 3


@pytest.mark.parametrize("policy", ["OrderedReady", PARALLEL])
@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_a_pod_that_has_ended_comes_back_under_its_name(cluster: Cluster, phase: str, policy: str) -> None:
    cluster.create(STATEFUL_SET, make_stateful_set(replicas=2, pod_management_policy=policy))
    cluster.settle()
    before = present(cluster)["db-0"]
    cluster.end(before, phase)
    cluster.settle()
    after = present(cluster)["db-0"]
    assert after.metadata.uid != before.metadata.uid
    assert after.status.phase == "Running"


# Updates --------------------------------------------------------------------------------------------------------------


def test_an_update_goes_from_the_last_pod_down(cluster: Cluster) -> None:
    cluster.create(STATEFUL_SET, make_stateful_set())
    cluster.settle()
    first = cluster.stateful_set().status.current_revision
    cluster.set_image("db", "app:2", STATEFUL_SET)
    cluster.run()
    assert images(cluster) == {"db-0": "app:1", "db-1": "app:1"}
    cluster.reap()
    cluster.run()
    assert images(cluster) == {"db-0": "app:1", "db-1": "app:1", "db-2": "app:2"}
    status = cluster.stateful_set().status
    assert (status.current_revision, status.current_replicas, status.updated_replicas) == (first, 2, 1)
    run_one(cluster, "db-2")
    assert images(cluster) == {"db-0": "app:1", "db-2": "app:2"}
    cluster.settle()
    assert set(images(cluster).values()) == {"app:2"}
    status = cluster.stateful_set().status
    assert status.current_revision == status.update_revision != first
    assert (status.current_replicas, status.updated_replicas) == (3, 3)


@pytest.mark.parametrize("start", [0, 5])
def test_a_partition_keeps_the_former_template(cluster: Cluster, start: int) -> None:
    ordinals = StatefulSetOrdinals(start=start)
    cluster.create(STATEFUL_SET, make_stateful_set(update_strategy=rolling(partition=2), ordinals=ordinals))
    cluster.settle()
    cluster.set_image("db", "app:2", STATEFUL_SET)
    cluster.settle()
    kept = {f"db-{start}": "app:1", f"db-{start + 1}": "app:1", f"db-{start + 2}": "app:2"}
    assert images(cluster) == kept
    cluster.delete(POD, f"db-{start}")
    cluster.settle()
    assert images(cluster) == kept
    cluster.edit(
        STATEFUL_SET, "db", lambda one: replace(one, spec=replace(one.spec, update_strategy=rolling(partition=0)))
    )
    cluster.settle()
    assert set(images(cluster).values()) == {"app:2"}


def test_without_a_partition_pods_that_an_update_has_not_reached_come_back_as_they_were(cluster: Cluster) -> None:
    cluster.create(STATEFUL_SET, make_stateful_set(update_strategy=StatefulSetUpdateStrategy(type="RollingUpdate")))
    cluster.settle()
    cluster.set_image("db", "app:2", STATEFUL_SET)
    cluster.run()
    cluster.reap()
    cluster.run()
    cluster.delete(POD, "db-0")
    cluster.run()
    assert images(cluster) == {"db-0": "app:1", "db-1": "app:1", "db-2": "app:2"}
    cluster.settle()
    assert set(images(cluster).values()) == {"app:2"}


def test_on_delete_a_pod_is_replaced_when_somebody_deletes_it(cluster: Cluster) -> None:
    cluster.create(STATEFUL_SET, make_stateful_set(replicas=2, update_strategy=ON_DELETE))
    cluster.settle()
    cluster.set_image("db", "app:2", STATEFUL_SET)
    cluster.settle()
    assert set(images(cluster).values()) == {"app:1"}
    cluster.delete(POD, "db-0")
    cluster.settle()
    assert images(cluster) == {"db-0": "app:2", "db-1": "app:1"}


def test_a_broken_update_is_stuck_until_the_broken_pod_is_deleted(cluster: Cluster) -> None:
    cluster.create(STATEFUL_SET, make_stateful_set(replicas=2))
    cluster.settle()
    cluster.set_image("db", "bad", STATEFUL_SET)
    cluster.run()
    cluster.reap()
    cluster.run()
    cluster.set_image("db", "app:1", STATEFUL_SET)
    cluster.run()
    assert images(cluster) == {"db-0": "app:1", "db-1": "bad"}
    status = cluster.stateful_set().status
    assert (status.current_revision, status.current_replicas) == (status.update_revision, 1)
    assert sorted(revisions().values()) == [2, 3]
    cluster.delete(POD, "db-1")
    cluster.settle()
    assert images(cluster) == {"db-0": "app:1", "db-1": "app:1"}


def test_in_parallel_a_broken_update_heals(cluster: Cluster) -> None:
    cluster.create(STATEFUL_SET, make_stateful_set(pod_management_policy=PARALLEL))
    cluster.settle()
    cluster.set_image("db", "bad", STATEFUL_SET)
    cluster.run()
    cluster.reap()
    cluster.run()
    assert images(cluster) == {"db-0": "app:1", "db-1": "app:1", "db-2": "bad"}
    cluster.set_image("db", "app:3", STATEFUL_SET)
    cluster.run()
    assert images(cluster) == {"db-0": "app:1", "db-1": "app:1", "db-2": "app:3"}
    cluster.settle()
    assert set(images(cluster).values()) == {"app:3"}


@pytest.mark.parametrize("unavailable", [1, 2, "50%", "1%", 9])
def test_an_update_in_parallel_keeps_enough_pods_available(cluster: Cluster, unavailable: int | str) -> None:
    strategy = rolling(unavailable=unavailable)
    cluster.create(
        STATEFUL_SET, make_stateful_set(replicas=5, pod_management_policy=PARALLEL, update_strategy=strategy)
    )
    cluster.settle()
    cluster.set_image("db", "app:2", STATEFUL_SET)
    least = 5 - cluster.stateful_set().max_unavailable
    for _ in range(30):
        cluster.run()
        assert sum(PodFacts.of(pod).is_ready for pod in present(cluster).values()) >= least
        cluster.reap()
        cluster.run()
        waiting = [pod for pod in present(cluster).values() if not PodFacts.of(pod).is_ready]
        if not waiting:
            break
        cluster.let_run(waiting[:1])
    assert set(images(cluster).values()) == {"app:2"}


def test_only_so_many_revisions_are_kept(cluster: Cluster) -> None:
    cluster.create(STATEFUL_SET, make_stateful_set(replicas=1, revision_history_limit=1))
    cluster.settle()
    for number in range(2, 6):
        cluster.set_image("db", f"app:{number}", STATEFUL_SET)
        cluster.settle()
    assert sorted(revisions().values()) == [4, 5]


# What is whose --------------------------------------------------------------------------------------------------------


def test_orphans_are_adopted_with_their_revisions(cluster: Cluster) -> None:
    cluster.create(STATEFUL_SET, make_stateful_set(replicas=2))
    cluster.settle()
    before = {name: pod.metadata.uid for name, pod in present(cluster).items()}
    with objects.writing() as writer:
        writer.delete(STATEFUL_SET, NAMESPACE, "db", propagation="Orphan")
    while garbage.collect():
        pass
    assert set(present(cluster)) == {"db-0", "db-1"}
    cluster.create(STATEFUL_SET, make_stateful_set(replicas=3))
    cluster.settle()
    after = {name: pod.metadata.uid for name, pod in present(cluster).items()}
    assert before.items() < after.items()
    assert list(revisions().values()) == [1]


def test_pods_of_other_names_are_not_adopted_and_a_taken_name_is_waited_for(cluster: Cluster) -> None:
    template = make_pod_template()
    for name, labels in (("stranger", {"app": "x"}), ("db-1", {"other": "y"})):
        metadata = ObjectMeta(name=name, namespace=NAMESPACE, labels=labels)
        cluster.create(POD, Pod(metadata=metadata, spec=template.spec))
    cluster.create(STATEFUL_SET, make_stateful_set(replicas=2, pod_management_policy=PARALLEL))
    cluster.run()
    owned = {name for name, pod in present(cluster).items() if pod.metadata.owner_references}
    assert owned == {"db-0"}
    cluster.delete(POD, "db-1")
    cluster.pass_time(10)
    cluster.run()
    assert present(cluster)["db-1"].metadata.owner_references


def test_a_pod_that_is_not_selected_any_more_is_released(cluster: Cluster) -> None:
    cluster.create(STATEFUL_SET, make_stateful_set(replicas=1))
    cluster.settle()

    def renamed(one: Any) -> Any:
        return replace(one, metadata=replace(one.metadata, labels={"app": "y"}))

    cluster.edit(POD, "db-0", renamed)
    cluster.run()
    assert not present(cluster)["db-0"].metadata.owner_references


def test_a_revision_whose_name_is_taken_gets_another(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.create(STATEFUL_SET, make_stateful_set(replicas=1))
    cluster.settle()
    (name,) = revisions()
    cluster.delete(STATEFUL_SET, "db")
    with objects.writing() as writer:
        taken = writer.get(CONTROLLER_REVISION, NAMESPACE, name)
        assert isinstance(taken, ControllerRevision)
        other = replace(taken.metadata, labels={}, owner_references=())
        writer.update(CONTROLLER_REVISION, replace(taken, metadata=other, data={"spec": {}}))
    cluster.create(STATEFUL_SET, make_stateful_set(replicas=1))
    cluster.settle()
    status = cluster.stateful_set().status
    assert (status.collision_count, len(revisions())) == (1, 2)
    assert status.current_revision != name


def test_a_selector_over_everything_else_is_left_alone(cluster: Cluster) -> None:
    selector = LabelSelector(match_labels={"app": "y"})
    cluster.create(STATEFUL_SET, make_stateful_set(replicas=1))
    cluster.create(
        STATEFUL_SET,
        make_stateful_set("other", replicas=1, selector=selector, template=make_pod_template(labels={"app": "y"})),
    )
    cluster.settle()
    assert set(present(cluster)) == {"db-0", "other-0"}
    assert len(revisions()) == 2


# Claims of volumes ----------------------------------------------------------------------------------------------------


def test_each_pod_has_a_claim_that_outlives_it(cluster: Cluster) -> None:
    cluster.create(STATEFUL_SET, make_stateful_set(replicas=2, volume_claim_templates=(DATA,)))
    cluster.settle()
    before = {name: claim.metadata.uid for name, claim in claims().items()}
    assert set(before) == {"data-db-0", "data-db-1"}
    volume: Any = present(cluster)["db-1"].spec.volumes[0]
    assert (volume.name, volume.persistentVolumeClaim.claimName) == ("data", "data-db-1")
    assert claims()["data-db-0"].metadata.labels == {"app": "x"}
    assert "Create Claim data-db-1 Pod db-1 in StatefulSet db success" in messages("SuccessfulCreate")
    cluster.scale("db", 0, STATEFUL_SET)
    cluster.settle()
    cluster.scale("db", 2, STATEFUL_SET)
    cluster.settle()
    assert {name: claim.metadata.uid for name, claim in claims().items()} == before


@pytest.mark.parametrize(
    ("policy", "owners_before", "owners_scaled_down"),
    [
        (retention(), (), ()),
        (retention(deleted="Delete"), ("StatefulSet",), ("StatefulSet",)),
        (retention(scaled="Delete"), (), ("Pod",)),
        (retention(deleted="Delete", scaled="Delete"), ("StatefulSet",), ("Pod",)),
    ],
    ids=["retain", "deleted", "scaled", "both"],
)
def test_the_retention_policy_says_with_what_claims_go(
    cluster: Cluster, policy: Any, owners_before: tuple[str, ...], owners_scaled_down: tuple[str, ...]
) -> None:
    wanted = make_stateful_set(
        replicas=2, volume_claim_templates=(DATA,), persistent_volume_claim_retention_policy=policy
    )
    cluster.create(STATEFUL_SET, wanted)
    cluster.settle()

    def owners(name: str) -> tuple[str, ...]:
        return tuple(one.kind for one in claims()[name].metadata.owner_references)

    assert owners("data-db-1") == owners_before
    cluster.scale("db", 1, STATEFUL_SET)
    cluster.run()
    assert (owners("data-db-0"), owners("data-db-1")) == (owners_before, owners_scaled_down)
    cluster.edit(
        STATEFUL_SET,
        "db",
        lambda one: replace(one, spec=replace(one.spec, persistent_volume_claim_retention_policy=retention())),
    )
    cluster.run()
    assert owners("data-db-0") == owners("data-db-1") == ()


def test_a_claim_that_goes_with_a_former_pod_is_waited_for(cluster: Cluster) -> None:
    policy = retention(scaled="Delete")
    wanted = make_stateful_set(
        replicas=2, volume_claim_templates=(DATA,), persistent_volume_claim_retention_policy=policy
    )
    cluster.create(STATEFUL_SET, wanted)
    cluster.settle()
    cluster.scale("db", 1, STATEFUL_SET)
    cluster.run()
    cluster.reap()
    cluster.scale("db", 2, STATEFUL_SET)
    cluster.run()
    assert set(present(cluster)) == {"db-0"}
    cluster.delete(VOLUME_CLAIM, "data-db-1")
    with objects.writing() as writer:
        claim = writer.get(VOLUME_CLAIM, NAMESPACE, "data-db-1")
        if claim is not None:
            writer.update(VOLUME_CLAIM, replace(claim, metadata=replace(claim.metadata, finalizers=())))
    cluster.pass_time(10)
    cluster.settle()
    assert set(present(cluster)) == {"db-0", "db-1"}
    assert claims()["data-db-1"].metadata.deletion_timestamp is None


def test_a_claim_that_is_being_deleted_is_told_of(cluster: Cluster) -> None:
    cluster.create(STATEFUL_SET, make_stateful_set(replicas=1, volume_claim_templates=(DATA,)))
    cluster.settle()
    cluster.scale("db", 0, STATEFUL_SET)
    cluster.settle()
    cluster.delete(VOLUME_CLAIM, "data-db-0")  # its finalizer holds it
    cluster.scale("db", 1, STATEFUL_SET)
    cluster.run()
    assert not present(cluster)
    assert any("pvc data-db-0 is being deleted" in one for one in messages("FailedCreate"))


def test_a_pod_that_waits_gets_back_a_claim_that_somebody_deleted(cluster: Cluster) -> None:
    cluster.create(STATEFUL_SET, make_stateful_set(replicas=1, volume_claim_templates=(DATA,)))
    cluster.run()
    with objects.writing() as writer:
        claim = writer.get(VOLUME_CLAIM, NAMESPACE, "data-db-0")
        assert claim is not None
        writer.update(VOLUME_CLAIM, replace(claim, metadata=replace(claim.metadata, finalizers=())))
        writer.delete(VOLUME_CLAIM, NAMESPACE, "data-db-0")
    cluster.edit(STATEFUL_SET, "db", lambda one: replace(one, metadata=replace(one.metadata, labels={"a": "b"})))
    cluster.run()
    assert set(claims()) == {"data-db-0"}


# Any order of events --------------------------------------------------------------------------------------------------


def test_a_turn_that_is_cut_off_leaves_nothing(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.create(STATEFUL_SET, make_stateful_set(volume_claim_templates=(DATA,)))

    def cut(*_args: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(stateful_sets, "_without", cut)
        with pytest.raises(KeyboardInterrupt):
            cluster.run()
    assert not cluster.pods()
    assert not claims()
    cluster.settle()
    assert set(present(cluster)) == {"db-0", "db-1", "db-2"}


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("scale"), st.integers(0, 4)),
        st.tuples(st.just("image"), st.integers(1, 3)),
        st.tuples(st.just("ready"), st.integers(0, 4)),
        st.tuples(st.just("fail"), st.integers(0, 4)),
        st.tuples(st.just("delete"), st.integers(0, 4)),
        st.tuples(st.just("reap"), st.just(0)),
    ),
    max_size=12,
)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, policy=st.sampled_from(["OrderedReady", PARALLEL]))
def test_whatever_happens_it_ends_with_the_pods_it_wants(
    cluster: Cluster, steps: list[tuple[str, int]], policy: str
) -> None:
    """And in order, no pod comes before the ones with lower numbers."""
    for kind in (STATEFUL_SET, POD):
        for stored in objects.list(kind, namespace=NAMESPACE).items:
            cluster.delete(kind, stored.name)
    cluster.create(STATEFUL_SET, make_stateful_set(replicas=2, pod_management_policy=policy))
    for step, number in steps:
        pod = present(cluster).get(f"db-{number}")
        if step == "scale":
            cluster.scale("db", number, STATEFUL_SET)
        elif step == "image":
            cluster.set_image("db", f"app:{number}", STATEFUL_SET)
        elif step == "reap":
            cluster.reap()
        elif pod is not None and step == "ready":
            cluster.let_run([pod])
        elif pod is not None and step == "fail":
            cluster.end(pod)
        elif pod is not None:
            cluster.delete(POD, pod.metadata.name)
        known = {one.metadata.name for one in cluster.pods()}
        cluster.run()
        if policy != PARALLEL:
            assert len({one.metadata.name for one in cluster.pods()} - known) <= 1
    for pod in present(cluster).values():  # nobody leaves a broken pod for good
        cluster.let_run([pod])
    cluster.settle()
    wanted = cluster.stateful_set()
    assert set(present(cluster)) == {f"db-{at}" for at in wanted.ordinals}
    image = wanted.spec.template.spec.containers[0].image
    assert set(images(cluster).values()) <= {image}
