"""What a rehearsal says is what the scheduler then does; and nothing of it stays."""

from __future__ import annotations

from dataclasses import replace

import pytest

from claims.causes.causes import ClassMissing
from claims.causes.messages import clause
from claims.kinds.pods import Pod
from claims.kinds.resource_claims import ResourceClaim, ResourceClaimTemplate
from manciple.store.event_log import latest_revision
from manciple.wire.errors import NotFound
from scheduling.metrics import EVALUATIONS
from scheduling.rehearsal import explanations as current
from scheduling.rehearsal import simulation
from scheduling.rehearsal.explanations import cluster as warm
from scheduling.rehearsal.simulation import Question, SimulationAnswer, simulate
from scheduling.rehearsal.workload import Changes, Workload, of_claim
from tests.builders import (
    make_claim,
    make_class,
    make_constraint,
    make_container,
    make_device_taint,
    make_devices,
    make_node,
    make_pod,
    make_request,
    make_slice,
    make_template,
)
from tests.scheduling.cluster import Cluster

EVEN = 'device.attributes["gpu.example.com"].index % 2 == 0'


def _workload(pod: Pod, template: ResourceClaimTemplate) -> Workload:
    """What a pod whose only entry is made from `template` comes to."""
    claim = make_claim(requests=template.spec.spec.devices.requests, constraints=template.spec.spec.devices.constraints)
    return Workload(pod=pod, own={pod.spec.resource_claims[0].name: claim})


def _would(answer: SimulationAnswer) -> list[list[str]]:
    return [[f"{one.pool}/{one.device}" for one in placed.devices] for placed in answer.placed]


def _hold(cluster: Cluster, name: str, **request: object) -> None:
    cluster.create(make_claim(name, requests=[make_request(**request)]))  # type: ignore[arg-type]
    cluster.create(make_pod(name, claims={"gpu": name}))
    cluster.settle()


def _state_of_all() -> object:
    """All that scheduling would see, to be compared before and after."""
    with warm() as state:
        found = [state.snapshot().on_node(node) for node in state.nodes.views]
        usage = [
            (view.key, state.snapshot().pool_usage(view.key).taken, dict(state.snapshot().pool_usage(view.key).shares))
            for devices in found
            for view in devices.pools
        ]
        loads = [state.nodes.pods_on(node.name) for node in state.nodes.views]
        return state.nodes.views, usage, loads, sorted(state.pending)


@pytest.mark.parametrize(
    "request_of_each",
    [
        make_request(),
        make_request(count=2),
        make_request(expressions=[EVEN]),
        make_request(count=3, expressions=['device.attributes["gpu.example.com"].index < 3']),
    ],
    ids=["one", "two", "even ones", "three of the first"],
)
def test_what_is_rehearsed_is_what_then_happens(cluster: Cluster, request_of_each: object) -> None:
    cluster.with_gpus("node-1", "node-2", "node-3", each=4)
    _hold(cluster, "there-before")
    template = cluster.create(make_template("gpus", requests=[request_of_each]))  # type: ignore[list-item]
    pods = [make_pod(f"web-{number:02}", templates={"gpu": "gpus"}) for number in range(14)]
    answer = simulate(Question(workload=_workload(pods[0], template), replicas=14))
    for pod in pods:
        cluster.create(pod)
    cluster.settle()
    bound = [pod.metadata.name for pod in pods if cluster.pod(pod.metadata.name).spec.node_name]
    assert len(bound) == answer.fits == len(answer.placed)
    assert 0 < answer.fits < 14
    assert answer.counted_all
    assert [cluster.pod(name).spec.node_name for name in bound] == [one.node for one in answer.placed]
    assert [cluster.devices(cluster.generated_claim(name)) for name in bound] == _would(answer)
    waiting = next(pod.metadata.name for pod in pods if pod.metadata.name not in bound)
    assert answer.cause is not None
    explained = current.explain_pod("default", waiting)
    assert explained.reason == clause(answer.cause)


def test_nothing_is_written_and_nothing_stays(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", "node-2", each=4)
    _hold(cluster, "there-before", count=3)
    cluster.create(make_pod("waits", claims={"gpu": "missing"}))
    cluster.settle()
    before, revision = _state_of_all(), latest_revision()
    changes = Changes(without=frozenset({("claim/gpu", 0)}), tolerate_devices=True, tolerate_nodes=True)
    workload = of_claim(make_claim(requests=[make_request(count=2, expressions=[EVEN])]))
    question = Question(workload=workload, replicas=30, changes=changes, shape="node-2", more_nodes=3)
    answer = simulate(question)
    assert answer.fits > 3
    assert answer.missing is not None
    assert latest_revision() == revision
    assert _state_of_all() == before
    assert replace(simulate(question), report=None) == replace(answer, report=None)


def test_a_request_that_fits_everywhere_is_counted_to_the_end(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", "node-2", each=5)
    answer = simulate(Question(workload=of_claim(make_claim()), replicas=3))
    assert (len(answer.placed), answer.fits, answer.counted_all, answer.left) == (3, 10, True, 0)
    assert answer.cause is not None
    assert answer.departure is None
    assert answer.missing is None


@pytest.mark.parametrize(
    ("changes", "fits"),
    [
        (Changes(), 0),
        (Changes(without=frozenset({("claim/gpu", 1)})), 1),
        (Changes(without=frozenset({("claim/gpu", 0)})), 0),
        (Changes(without=frozenset({("claim/gpu", 0), ("claim/gpu", 1)}), counts={"claim/gpu": 1}), 4),
        (Changes(classes={"claim/gpu": "all"}, without=frozenset({("claim/gpu", 1)})), 1),
        (Changes(classes={"claim/gpu": "none"}, without=frozenset({("claim/gpu", 1)})), 0),
    ],
)
def test_what_is_changed_counts(cluster: Cluster, changes: Changes, fits: int) -> None:
    cluster.with_gpus("node-1", each=4)
    cluster.create(make_class("all", expressions=["true"]))
    cluster.create(make_class("none", expressions=["false"]))
    never = 'device.attributes["gpu.example.com"].index > 100'
    workload = of_claim(make_claim(requests=[make_request(count=2, expressions=[EVEN, never])]))
    assert simulate(Question(workload=workload, changes=changes)).fits == fits


def test_taints_can_be_tolerated(cluster: Cluster) -> None:
    cluster.create(make_class())
    cluster.create(make_node(unschedulable=True))
    cluster.create(make_slice(devices=make_devices(1, taints=[make_device_taint()])))
    workload = of_claim(make_claim())
    tried = [
        simulate(Question(workload=workload, changes=Changes(tolerate_devices=devices, tolerate_nodes=nodes))).fits
        for devices, nodes in ((False, False), (True, False), (False, True), (True, True))
    ]
    assert tried == [0, 0, 0, 1]


def test_more_nodes_of_a_shape_are_filled_and_counted(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=4)
    workload = of_claim(make_claim(requests=[make_request(count=2)]))
    answer = simulate(Question(workload=workload, replicas=9, shape="node-1", more_nodes=1))
    assert [one.on_new_node for one in answer.placed] == [False, False, True, True]
    assert answer.missing is not None
    assert (answer.missing.nodes, answer.missing.each, answer.missing.tried) == (3, 2, True)
    enough = simulate(Question(workload=workload, replicas=9, shape="node-1", more_nodes=4))
    assert enough.left == 0


def test_a_new_node_has_none_of_the_trouble_of_its_model(cluster: Cluster) -> None:
    cluster.create(make_class())
    cluster.create(make_node(unschedulable=True))
    cluster.create(make_slice(devices=make_devices(2, taints=[make_device_taint()])))
    answer = simulate(Question(workload=of_claim(make_claim()), replicas=2, shape="node-1", more_nodes=1))
    assert [one.node for one in answer.placed] == ["node-1~1", "node-1~1"]


def test_a_shape_that_does_not_help_is_said(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=2)
    answer = simulate(Question(workload=of_claim(make_claim(requests=[make_request(count=3)])), shape="node-1"))
    assert answer.missing is not None
    assert answer.missing.nodes == 0


def test_a_shape_that_is_no_node_is_refused(cluster: Cluster) -> None:
    cluster.with_gpus("node-1")
    with pytest.raises(NotFound):
        simulate(Question(workload=of_claim(make_claim()), shape="nothing", more_nodes=1))


@pytest.mark.parametrize("replicas", [0, simulation.MOST_REPLICAS + 1])
def test_more_than_may_be_asked_is_refused(replicas: int) -> None:
    with pytest.raises(ValueError, match="replicas"):
        simulate(Question(workload=of_claim(make_claim()), replicas=replicas))


def test_the_cheapest_holders_that_would_have_to_leave_are_named(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", "node-2", each=4)
    _hold(cluster, "large", count=4)
    for name in ("a", "b", "c", "d"):
        _hold(cluster, name)
    two = simulate(Question(workload=of_claim(make_claim(requests=[make_request(count=2)])))).departure
    one = simulate(Question(workload=of_claim(make_claim()))).departure
    assert one is not None
    assert [holder.claim.metadata.name for holder in one.holders] == ["a"]
    assert two is not None
    assert [holder.claim.metadata.name for holder in two.holders] == ["large"]  # one pod rather than two
    assert [pod.metadata.name for pod in two.pods] == ["large"]
    cluster.delete(cluster.pod("large"))
    cluster.settle()
    cluster.create(make_claim("next", requests=[make_request(count=2)]))
    cluster.create(make_pod("next", claims={"gpu": "next"}))
    cluster.settle()
    assert cluster.pod("next").spec.node_name == two.node


def test_nobody_is_named_where_nobodys_going_would_help(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=2)
    _hold(cluster, "a", count=2)
    matched = make_constraint("gpu.example.com/index")  # no two devices have the same
    workload = of_claim(make_claim(requests=[make_request(count=2)], constraints=[matched]))
    answer = simulate(Question(workload=workload))
    assert answer.fits == 0
    assert answer.departure is None


def test_replicas_share_a_claim_that_the_pod_names(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", "node-2", each=1)
    claim = cluster.create(make_claim("ours"))
    workload = Workload(pod=make_pod("web", claims={"gpu": "ours"}), shared={"gpu": claim})
    answer = simulate(Question(workload=workload, replicas=3))
    assert [one.node for one in answer.placed] == ["node-1"] * 3
    assert [len(one.devices) for one in answer.placed] == [1, 0, 0]
    assert cluster.claim("ours").status.allocation is None


def test_a_hold_is_the_reason(cluster: Cluster) -> None:
    cluster.with_gpus("node-1")
    workload = of_claim(make_claim(requests=[make_request(device_class="nothing")]))
    answer = simulate(Question(workload=workload))
    assert answer.report is None
    assert isinstance(answer.cause, ClassMissing)
    assert answer.cause.name == "nothing"


def test_time_is_bounded(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=4)
    answer = simulate(Question(workload=of_claim(make_claim()), replicas=4), timeout=0)
    assert (answer.fits, answer.counted_all) == (0, False)


def test_progress_is_told_and_can_stop_it(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.with_gpus("node-1", each=20)
    monkeypatch.setattr(simulation, "STEP", 5)
    told: list[int] = []
    simulate(Question(workload=of_claim(make_claim()), replicas=20), progress=told.append)
    assert told == [5, 10, 15, 20]

    def stop(_placed: int) -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        simulate(Question(workload=of_claim(make_claim()), replicas=20), progress=stop)
    assert simulate(Question(workload=of_claim(make_claim()), replicas=20)).fits == 20
    assert cluster.all(ResourceClaim) == []


def test_what_the_first_replica_meets_can_be_asked_for(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=4)
    question = Question(workload=of_claim(make_claim()), replicas=4, with_first=True)
    answer = simulate(question)
    assert answer.first is not None
    assert answer.report is not None
    free = [one.requests[0].funnel[-1].left for one in (answer.first, answer.report)]
    assert free == [4, 0]


def test_what_is_rehearsed_is_no_work_of_the_scheduler(cluster: Cluster) -> None:
    """Metrics tell of pods that wait; a page that asks, or an autoscaler, tries none of them."""
    cluster.with_gpus("node-1", each=4)
    _hold(cluster, "there-before")
    before = _evaluations()
    assert simulate(Question(workload=of_claim(make_claim()), replicas=5)).fits == 3
    assert _evaluations() == before
    _hold(cluster, "after")
    assert _evaluations() > before


def _evaluations() -> float:
    told = (sample for child in EVALUATIONS.values() for family in child.collect() for sample in family.samples)
    return sum(sample.value for sample in told if sample.name.endswith("_total"))


def test_pods_that_ask_for_extended_resources_are_rehearsed_too(cluster: Cluster) -> None:
    cluster.create(make_class(extended_resource_name="example.com/gpu"))
    cluster.create(make_node(capacity={"cpu": "8", "memory": "32Gi", "pods": "110", "example.com/gpu": "2"}))
    cluster.create(make_node("node-2"))
    cluster.create(make_slice(node="node-2", devices=make_devices(3)))
    one = {"example.com/gpu": "1"}
    pod = make_pod("web", containers=[make_container(requests=one, limits=one)])
    answer = simulate(Question(workload=Workload(pod=pod, own={}), replicas=9))
    assert sorted(one.node for one in answer.placed) == ["node-1"] * 2 + ["node-2"] * 3
    assert sorted(filter(None, _would(answer))) == [["node-2/gpu-0"], ["node-2/gpu-1"], ["node-2/gpu-2"]]
    assert answer.cause is not None
