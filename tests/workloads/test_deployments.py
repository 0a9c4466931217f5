"""A Deployment goes from one template to the next within its bounds, back again, and says how far it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from claims.kinds.pods import Pod
from claims.kinds.quotas import RESOURCE_QUOTA
from claims.kinds.registration import POD
from manciple.store import objects
from manciple.store.objects import decoded
from manciple.wire.base import condition_of
from manciple.wire.machinery import Event
from manciple.wire.resources import EVENTS, FINISHED_PHASES, kind
from tests.builders import make_quota
from tests.workloads.cluster import NAMESPACE, Cluster, make_deployment, make_pod_template, make_replica_set
from workloads.kinds.deployments import (
    DEPLOYMENT,
    Deployment,
    DeploymentStrategy,
    RollingUpdateDeployment,
    surge_and_unavailable,
)
from workloads.kinds.replica_sets import REPLICA_SET
from workloads.rollouts import DESIRED, HASH, HISTORY, MAXIMUM, Rollout

RECREATE = DeploymentStrategy(type="Recreate")


def rolling(surge: int | str, unavailable: int | str) -> DeploymentStrategy:
    return DeploymentStrategy(rolling_update=RollingUpdateDeployment(max_surge=surge, max_unavailable=unavailable))


def images(cluster: Cluster) -> list[str]:
    return sorted(pod.spec.containers[0].image for pod in cluster.pods())


def said(deployment: Deployment, type_: str) -> tuple[str, str]:
    """(status, reason)"""
    found = condition_of(deployment.status.conditions, type_)
    assert found is not None
    return found.status, found.reason


def ready(pod: Pod) -> bool:
    return any(one.type == "Ready" and one.status == "True" for one in pod.status.conditions)


def live(cluster: Cluster) -> list[Pod]:
    return [pod for pod in cluster.pods() if pod.metadata.deletion_timestamp is None]


def test_it_makes_a_replica_set_whose_pods_run(cluster: Cluster) -> None:
    cluster.create(DEPLOYMENT, make_deployment(replicas=3))
    cluster.settle()
    deployment, (replica_set,) = cluster.deployment(), cluster.replica_sets().values()
    assert replica_set.metadata.labels[HASH] == replica_set.metadata.name.removeprefix("web-")
    assert all(pod.metadata.labels == replica_set.metadata.labels for pod in cluster.pods())
    assert replica_set.metadata.annotations == {
        "deployment.kubernetes.io/revision": "1",
        DESIRED: "3",
        MAXIMUM: "4",
    }
    status = deployment.status
    assert (status.replicas, status.updated_replicas, status.ready_replicas, status.available_replicas) == (3, 3, 3, 3)
    assert deployment.metadata.annotations["deployment.kubernetes.io/revision"] == "1"
    assert (said(deployment, "Available"), said(deployment, "Progressing")) == (
        ("True", "MinimumReplicasAvailable"),
        ("True", "NewReplicaSetAvailable"),
    )
    assert deployment.metadata.generation == status.observed_generation == 1


@pytest.mark.parametrize("strategy", [rolling(1, 0), rolling(0, 1), rolling("50%", "25%"), rolling(9, 9), RECREATE])
def test_an_update_replaces_every_pod(cluster: Cluster, strategy: DeploymentStrategy) -> None:
    cluster.create(DEPLOYMENT, make_deployment(replicas=4, strategy=strategy))
    cluster.settle()
    cluster.set_image("web", "app:2")
    cluster.settle()
    assert images(cluster) == ["app:2"] * 4
    assert cluster.sizes() == {"1": 0, "2": 4}
    assert said(cluster.deployment(), "Progressing") == ("True", "NewReplicaSetAvailable")


@pytest.mark.parametrize("bounds", [(1, 0), (0, 1), (2, 1), ("25%", "25%")])
def test_a_rolling_update_stays_within_its_bounds(cluster: Cluster, bounds: tuple[int | str, int | str]) -> None:
    strategy = rolling(*bounds)
    cluster.create(DEPLOYMENT, make_deployment(replicas=5, strategy=strategy))
    cluster.settle()
    surge, unavailable = surge_and_unavailable(cluster.deployment())
    cluster.set_image("web", "app:2")
    while True:
        cluster.run()
        assert len(live(cluster)) <= 5 + surge
        assert sum(map(ready, live(cluster))) >= 5 - unavailable
        starting = [pod for pod in live(cluster) if not ready(pod)]
        if not starting:
            break
        cluster.let_run(starting[:1])
        cluster.reap()
    cluster.reap()
    assert images(cluster) == ["app:2"] * 5


def test_an_update_with_recreate_waits_for_the_old_pods_to_go(cluster: Cluster) -> None:
    cluster.create(DEPLOYMENT, make_deployment(replicas=2, strategy=RECREATE))
    cluster.settle()
    cluster.set_image("web", "app:2")
    cluster.run()
    assert images(cluster) == ["app:1", "app:1"]
    assert not live(cluster)
    cluster.reap()
    cluster.run()
    assert images(cluster) == ["app:2", "app:2"]


def test_going_back_to_a_former_template_takes_its_replica_set_again(cluster: Cluster) -> None:
    cluster.create(DEPLOYMENT, make_deployment())
    cluster.settle()
    first = cluster.replica_sets()["1"].metadata.uid
    cluster.set_image("web", "app:2")
    cluster.settle()
    cluster.set_image("web", "app:1")
    cluster.settle()
    found = cluster.replica_sets()["3"]
    assert (found.metadata.uid, found.metadata.annotations[HISTORY]) == (first, "1")
    assert cluster.deployment().metadata.annotations["deployment.kubernetes.io/revision"] == "3"


def test_replica_sets_of_the_past_are_kept_up_to_a_limit(cluster: Cluster) -> None:
    cluster.create(DEPLOYMENT, make_deployment(revision_history_limit=1))
    for number in range(1, 5):
        cluster.set_image("web", f"app:{number}")
        cluster.settle()
    assert set(cluster.sizes()) == {"3", "4"}


def test_a_paused_one_keeps_its_pods_and_is_scaled(cluster: Cluster) -> None:
    cluster.create(DEPLOYMENT, make_deployment(replicas=2))
    cluster.settle()

    def pause(paused: bool) -> Callable[[Deployment], Deployment]:
        return lambda one: replace(one, spec=replace(one.spec, paused=paused))

    cluster.edit(DEPLOYMENT, "web", pause(True))
    cluster.settle()
    cluster.set_image("web", "app:2")
    cluster.scale("web", 3)
    cluster.settle()
    assert images(cluster) == ["app:1"] * 3
    assert said(cluster.deployment(), "Progressing") == ("Unknown", "DeploymentPaused")
    cluster.edit(DEPLOYMENT, "web", pause(False))
    cluster.settle()
    assert images(cluster) == ["app:2"] * 3


def test_one_that_is_scaled_in_the_middle_of_an_update_shares_its_size_out(cluster: Cluster) -> None:
    """The example of Kubernetes' documentation, "Proportional scaling": 10 replicas, 3 surge, 2 away."""
    cluster.create(DEPLOYMENT, make_deployment(replicas=10, strategy=rolling(3, 2)))
    cluster.settle()
    cluster.set_image("web", "bad:1")
    cluster.run()
    cluster.reap()
    cluster.run()
    assert cluster.sizes() == {"1": 8, "2": 5}
    cluster.scale("web", 15)
    cluster.run()
    assert cluster.sizes() == {"1": 11, "2": 7}


def test_an_update_that_makes_no_progress_has_failed_after_its_deadline(cluster: Cluster) -> None:
    cluster.create(DEPLOYMENT, make_deployment(replicas=1, progress_deadline_seconds=60))
    cluster.settle()
    cluster.set_image("web", "bad:1")
    cluster.run()
    assert said(cluster.deployment(), "Progressing") == ("True", "ReplicaSetUpdated")
    cluster.pass_time(62)
    cluster.run()
    assert said(cluster.deployment(), "Progressing") == ("False", "ProgressDeadlineExceeded")
    assert said(cluster.deployment(), "Available") == ("True", "MinimumReplicasAvailable")
    cluster.set_image("web", "app:1")
    cluster.settle()
    assert said(cluster.deployment(), "Progressing") == ("True", "NewReplicaSetAvailable")


def test_pods_that_are_not_available_go_first(cluster: Cluster) -> None:
    cluster.create(DEPLOYMENT, make_deployment(replicas=3, strategy=rolling(1, 0)))
    cluster.settle()
    cluster.set_image("web", "bad:1")
    cluster.run()
    cluster.set_image("web", "app:3")
    cluster.run()
    assert cluster.sizes()["2"] == 0


def test_it_adopts_and_releases_replica_sets(cluster: Cluster) -> None:
    template = make_pod_template()
    orphan = make_replica_set("orphan", replicas=2, template=template)
    cluster.create(REPLICA_SET, replace(orphan, metadata=replace(orphan.metadata, labels={"app": "x"})))
    cluster.settle()
    before = {pod.metadata.uid for pod in cluster.pods()}
    cluster.create(DEPLOYMENT, make_deployment(replicas=2))
    cluster.settle()
    assert {pod.metadata.uid for pod in cluster.pods()} == before
    assert [one.name for one in cluster.replica_set("orphan").metadata.owner_references] == ["web"]
    cluster.edit(REPLICA_SET, "orphan", lambda one: replace(one, metadata=replace(one.metadata, labels={"app": "y"})))
    cluster.settle()
    assert cluster.replica_set("orphan").metadata.owner_references == ()


def test_the_name_of_a_replica_set_that_is_taken_is_not_used(cluster: Cluster) -> None:
    probe = Rollout(DEPLOYMENT.prepare_create(make_deployment()), (), {})
    probe.step(cluster.now)
    assert probe.created is not None
    squatter = make_replica_set(probe.created.metadata.name, replicas=0, template=make_pod_template("other:1"))
    cluster.create(REPLICA_SET, squatter)
    cluster.create(DEPLOYMENT, make_deployment())
    cluster.settle()
    assert cluster.deployment().status.collision_count == 1
    assert images(cluster) == ["app:1", "app:1"]


def test_events_tell_of_every_size(cluster: Cluster) -> None:
    cluster.create(DEPLOYMENT, make_deployment(replicas=1))
    cluster.settle()
    cluster.set_image("web", "app:2")
    cluster.settle()
    events = [decoded(one, Event) for one in objects.list(kind(EVENTS), namespace=NAMESPACE).items]
    told = [one.message for one in events if one.reason == "ScalingReplicaSet"]
    assert sum("Scaled up" in text for text in told) == 2
    assert sum("Scaled down" in text for text in told) == 1


# Whatever happens -----------------------------------------------------------------------------------------------------


@dataclass
class Play:
    """What clients, agents and accidents do to one Deployment. most: the largest size that it had."""

    cluster: Cluster
    name: str
    most: int = 3

    def image(self, number: int) -> None:
        self.cluster.set_image(self.name, f"app:{number}")

    def scale(self, replicas: int) -> None:
        self.cluster.scale(self.name, replicas)
        self.most = max(self.most, replicas)

    def run(self, _number: int) -> None:
        self.cluster.run()

    def start(self, number: int) -> None:
        self.cluster.let_run([pod for pod in live(self.cluster) if not ready(pod)][:number])

    def fail(self, number: int) -> None:
        for pod in live(self.cluster)[number : number + 1]:
            self.cluster.end(pod)

    def lose(self, number: int) -> None:
        for pod in live(self.cluster)[number : number + 1]:
            self.cluster.delete(POD, pod.metadata.name)

    def reap(self, _number: int) -> None:
        self.cluster.reap()

    def wait(self, number: int) -> None:
        self.cluster.pass_time(200 * number)


ACTIONS = st.sampled_from(["image", "scale", "run", "start", "fail", "lose", "reap", "wait"])


def clear(cluster: Cluster) -> None:
    for kind_ in (DEPLOYMENT, REPLICA_SET, POD):
        for leftover in objects.list(kind_, namespace=NAMESPACE).items:
            cluster.delete(kind_, leftover.name)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    bounds=st.tuples(st.integers(0, 2), st.integers(0, 2)).filter(any),
    actions=st.lists(st.tuples(ACTIONS, st.integers(0, 4)), max_size=14),
)
def test_whatever_happens_it_ends_with_the_pods_it_wants(
    cluster: Cluster, bounds: tuple[int, int], actions: list[tuple[str, int]]
) -> None:
    clear(cluster)
    cluster.create(DEPLOYMENT, make_deployment(replicas=3, strategy=rolling(*bounds)))
    play = Play(cluster, "web")
    for what, number in actions:
        getattr(play, what)(number)
        active = [pod for pod in live(cluster) if pod.status.phase not in FINISHED_PHASES]
        assert len(active) <= play.most + bounds[0]
    cluster.settle()
    spec, status = cluster.deployment().spec, cluster.deployment().status
    running = [pod for pod in live(cluster) if pod.status.phase == "Running"]
    image = spec.template.spec.containers[0].image
    assert [pod.spec.containers[0].image for pod in running] == [image] * (spec.replicas or 0)
    assert status.available_replicas == spec.replicas


def test_pods_that_were_never_made_are_unavailable_too(cluster: Cluster) -> None:
    with objects.writing() as writer:
        writer.create(RESOURCE_QUOTA, make_quota({"pods": "1"}))
    cluster.create(DEPLOYMENT, make_deployment(replicas=3))
    cluster.run()
    status = cluster.deployment().status
    assert (status.replicas, status.unavailable_replicas) == (1, 3)
    cluster.let_run()
    cluster.run()
    assert cluster.deployment().status.unavailable_replicas == 2
