"""Which of the nodes that have the devices gets a pod: the cluster's setting, and devices that are scarce."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from pathlib import Path

import pytest
from pytest_django.fixtures import Settings

from claims.event_recorder import PLACEMENT
from inventory.kinds.devices import Device
from inventory.kinds.nodes import Taint
from scheduling.allocator.placement import NodeChoice
from scheduling.placement.fragmentation import policy as fragmentation
from scheduling.placement.policies import POLICY_ANNOTATION
from scheduling.rehearsal.explanations import pod_document
from scheduling.state.nodes import Resident, Residents
from tests.builders import (
    CLASS,
    DRIVER,
    NAMESPACE,
    make_claim,
    make_class,
    make_container,
    make_device,
    make_devices,
    make_node,
    make_pod,
    make_request,
    make_slice,
)
from tests.claims.devices.scene import signed_in
from tests.manciple.api.conftest import api
from tests.manciple.api.requests import Api
from tests.outlines import Outline
from tests.scheduling.cluster import Cluster

__all__ = ["api"]


def publish(cluster: Cluster, node: str, devices: Sequence[Device]) -> None:
    cluster.create(make_node(node))
    cluster.create(make_slice(node=node, devices=devices))


def placed(cluster: Cluster, name: str, *, device_class: str = CLASS, count: int = 1) -> str:
    """The node of a new pod that asks for devices of the class."""
    cluster.create(make_claim(name, requests=[make_request(device_class=device_class, count=count)]))
    cluster.create(make_pod(name, claims={"gpu": name}))
    cluster.settle()
    return cluster.pod(name).spec.node_name


def models(count: int, model: str, memory: str = "24Gi") -> list[Device]:
    return [
        make_device(f"{model}-{at}", attributes={"model": model}, capacity={"memory": memory}) for at in range(count)
    ]


@pytest.mark.parametrize(
    ("setting", "nodes", "why"),
    {
        "pack": (
            "pack",
            ["node-small", "node-small", "node-large"],
            "pack: the most packed of 2 nodes with enough free devices, 2 free devices",
        ),
        "spread": (
            "spread",
            ["node-large", "node-large", "node-large"],
            "spread: the emptiest … 2 …, 5 …",
        ),
        "first-fit": (
            "first-fit",
            ["node-large", "node-large", "node-large"],
            "first-fit: the first by name … 2 …, 5 …",
        ),
        "fragmentation": (
            "fragmentation",
            ["node-small", "node-small", "node-large"],
            "fragmentation: … 2 … gpu-0: 0.02 … (as on node-large, which is less packed); 2 …",
        ),
    }.values(),
)
def test_a_pod_goes_where_the_setting_says_and_its_event_says_why(
    cluster: Cluster, settings: Settings, setting: str, nodes: list[str], why: str
) -> None:
    settings.SCHEDULER_PLACEMENT = setting
    cluster.create(make_class())
    publish(cluster, "node-small", make_devices(2))
    publish(cluster, "node-large", make_devices(5))
    assert [placed(cluster, name) for name in ("a", "b", "c")] == nodes
    told = {one.involved_object.name: one.metadata.annotations.get(PLACEMENT) for one in cluster.events("Scheduled")}
    assert told["a"] == Outline(why)
    assert pod_document(NAMESPACE, "a")["placement"] == told["a"]
    page = signed_in("ada", staff=True).get(f"/pods/{NAMESPACE}/a").content.decode()
    assert f": {told['a']}." in page


def test_best_fit_gives_the_smallest_device_that_will_do(cluster: Cluster, settings: Settings) -> None:
    cluster.create(make_class())
    publish(cluster, "node-1", models(1, "h100", "80Gi"))
    publish(cluster, "node-2", models(3, "a10", "24Gi"))
    settings.SCHEDULER_PLACEMENT = "best-fit"
    assert [placed(cluster, name) for name in ("a", "b", "c", "d")] == ["node-2", "node-2", "node-2", "node-1"]
    settings.SCHEDULER_PLACEMENT = "pack"
    cluster.finish("d")
    cluster.finish("a")
    cluster.finish("b")
    cluster.settle()
    assert placed(cluster, "e") == "node-1"


@pytest.mark.parametrize("setting", ["pack", "spread", "best-fit", "fragmentation"])
def test_who_takes_any_device_leaves_the_scarce_ones(cluster: Cluster, settings: Settings, setting: str) -> None:
    settings.SCHEDULER_PLACEMENT = setting
    of_model = f'device.attributes["{DRIVER}"].model == "{{}}"'
    cluster.create(make_class())
    for model in ("a10", "h100"):
        cluster.create(make_class(model, expressions=[of_model.format(model)]))
    publish(cluster, "node-1", models(1, "h100"))
    publish(cluster, "node-2", models(8, "a10"))
    assert [placed(cluster, name) for name in ("a", "b")] == ["node-2", "node-2"]
    assert placed(cluster, "needs-it", device_class="h100") == "node-1"


def test_where_nothing_else_is_left_the_scarce_device_is_given(cluster: Cluster) -> None:
    of_model = f'device.attributes["{DRIVER}"].model == "h100"'
    cluster.create(make_class())
    cluster.create(make_class("h100", expressions=[of_model]))
    publish(cluster, "node-1", models(1, "h100"))
    publish(cluster, "node-2", models(2, "a10"))
    assert placed(cluster, "both", count=2) == "node-2"
    assert placed(cluster, "one") == "node-1"


def annotated(policy: str) -> dict[str, str]:
    return {POLICY_ANNOTATION: policy}


@pytest.mark.parametrize(
    ("of_class", "of_claim", "node"),
    {
        "the setting, where nobody says otherwise": ("", "", "node-small"),
        "the class before the setting": ("spread", "", "node-large"),
        "the claim before the class": ("spread", "pack", "node-small"),
        "a policy that there is not says nothing": ("spread", "scatter", "node-large"),
    }.values(),
)
def test_a_class_or_a_claim_has_a_policy_of_its_own(
    cluster: Cluster, settings: Settings, of_class: str, of_claim: str, node: str
) -> None:
    settings.SCHEDULER_PLACEMENT = "pack"
    cluster.create(make_class(annotations=annotated(of_class)))
    publish(cluster, "node-small", make_devices(2))
    publish(cluster, "node-large", make_devices(5))
    cluster.create(make_claim("a", annotations=annotated(of_claim)))
    cluster.create(make_pod("a", claims={"gpu": "a"}))
    cluster.settle()
    assert cluster.pod("a").spec.node_name == node


UNKNOWN = (
    'metadata.annotations[manciple.dev/placement-policy]: \\"{}\\" is not a placement policy and is ignored; '
    "there are first-fit, pack, spread, best-fit, fragmentation"
)
MISPLACED = (
    "metadata.annotations[manciple.dev/placement-policy]: ignored; what is for the claims belongs in "
    "spec.metadata.annotations"
)


def test_who_names_a_policy_that_there_is_not_is_warned(api: Api) -> None:
    """At creation and at every change, of a claim, a class and a template; who names one that there is, is not."""
    group, spec = (
        "/apis/resource.k8s.io/v1",
        {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}},
    )
    template = {"metadata": {"annotations": annotated("scatter")}, "spec": spec}
    for path, body, told in (
        ("namespaces/default/resourceclaims", {"spec": spec}, UNKNOWN),
        ("deviceclasses", {"spec": {}}, UNKNOWN),
        ("namespaces/default/resourceclaimtemplates", {"spec": template}, f"spec.{UNKNOWN}"),
    ):
        own = {} if "template" in path else annotated("scatter")
        made = api.post(f"{group}/{path}", {"metadata": {"name": "a", "annotations": own}, **body})
        assert (made.code, made.header("Warning")) == (201, f'299 - "{told.format("scatter")}"')
        labelled = api.patch(f"{group}/{path}/a", {"metadata": {"labels": {"a": "b"}}})
        assert (labelled.code, labelled.header("Warning")) == (200, f'299 - "{told.format("scatter")}"')
    known = api.patch(f"{group}/deviceclasses/a", {"metadata": {"annotations": annotated("spread")}})
    assert (known.code, known.header("Warning")) == (200, "")
    misplaced = {"metadata": {"name": "b", "annotations": annotated("pack")}, "spec": {"spec": spec}}
    answer = api.post(f"{group}/namespaces/default/resourceclaimtemplates", misplaced)
    assert (answer.code, answer.header("Warning")) == (201, f'299 - "{MISPLACED}"')


def test_a_gpu_is_not_left_without_a_core_beside_it(cluster: Cluster) -> None:
    """Who asks for no device leaves the cores that GPUs need; who asks for few cores goes where there are few."""
    cluster.create(make_class())
    for node, cpu in (("node-1", "8"), ("node-2", "40")):
        cluster.create(make_node(node, capacity={"cpu": cpu, "memory": "64Gi", "pods": "110"}))
        cluster.create(make_slice(node=node, devices=make_devices(2)))
    cpus = {"no-gpu": "7", "gpu-0": "4", "gpu-1": "14", "gpu-2": "14", "gpu-3": "4"}
    for name, cpu in cpus.items():
        container = make_container(claims=["gpu"] if "no" not in name else (), requests={"cpu": cpu})
        if "no" not in name:
            cluster.create(make_claim(name))
        cluster.create(make_pod(name, claims={"gpu": name} if "no" not in name else {}, containers=[container]))
    cluster.settle()
    where = {name: cluster.pod(name).spec.node_name for name in cpus}
    assert where == {"no-gpu": "node-2", "gpu-0": "node-1", "gpu-1": "node-2", "gpu-2": "node-2", "gpu-3": "node-1"}


def test_what_pods_ask_for_may_be_declared(cluster: Cluster, settings: Settings, tmp_path: Path) -> None:
    """Pairs are declared, none has come: whoever asks for one device leaves them whole."""
    declared = tmp_path / "demands.yaml"
    declared.write_text(
        """
        - share: 3
          cpu: "2"
          claims: [{devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.example.com}}]}}]
        - claims:
          - devices:
              requests: [{name: gpu, exactly: {deviceClassName: gpu.example.com, count: 2}}]
              constraints: [{matchAttribute: gpu.example.com/link}]
        """
    )
    settings.SCHEDULER_DEMANDS = str(declared)
    cluster.create(make_class())
    publish(cluster, "node-1", [make_device(f"gpu-{at}", attributes={"link": at % 2}) for at in range(4)])
    for name in ("a", "b"):
        placed(cluster, name)
    held = [cluster.claim(name).status.allocation.devices.results[0].device for name in ("a", "b")]  # type: ignore[union-attr]
    assert held == ["gpu-0", "gpu-2"]


def test_the_latest_pods_are_the_same_in_whatever_order_they_are_listed() -> None:
    started = {"a": "2026-01-03", "b": "2026-01-01", "c": "2026-01-02", "d": "2026-01-02"}
    pods = [
        make_pod(name, meta={"uid": name, "creation_timestamp": f"{day}T00:00:00Z"}) for name, day in started.items()
    ]
    for listed in (pods, pods[::-1]):
        placed = Residents()
        for pod in listed:
            placed.put(Resident.of(pod, "node-1"))
        assert [one.name for one in placed.latest(3)] == ["a", "d", "c"]


def test_the_next_best_node_is_told(cluster: Cluster) -> None:
    """Both have two devices free; on the second one of them has no core beside it by now."""
    cluster.create(make_class())
    for node, cpu in (("node-1", "8"), ("node-2", "4")):
        cluster.create(make_node(node, capacity={"cpu": cpu, "memory": "64Gi", "pods": "110"}))
        cluster.create(make_slice(node=node, devices=make_devices(2)))
    for name in ("a", "b", "c"):
        cluster.create(make_claim(name))
        container = make_container(claims=["gpu"], requests={"cpu": "4"})
        cluster.create(make_pod(name, claims={"gpu": name}, containers=[container]))
    cluster.settle()
    told = {one.involved_object.name: one.metadata.annotations.get(PLACEMENT) for one in cluster.events("Scheduled")}
    assert cluster.pod("a").spec.node_name == "node-1"
    assert told["a"] == Outline(
        "fragmentation: … 2 … the pod strands the least here, by gpu-0: 0.02 devices less than before (on node-2, the "
        "next best, no more than before); 2 …"
    )


@pytest.mark.parametrize("next_best", [None, ("node-2", 0.5)])
@pytest.mark.parametrize("prefers", [False, True])
def test_a_node_without_an_estimate_has_no_number_of_stranded_devices(
    prefers: bool, next_best: tuple[str, float] | None
) -> None:
    choice = NodeChoice(free=5, nodes=2, cost=inf, next_best=next_best, prefers=prefers)
    told = fragmentation.POLICY.reason(choice, [])
    assert "no estimate" in told
    assert "inf" not in told
    assert "5 free devices" in told


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ("pack", "pack: … 3 …, among those that the pod prefers, 4 …"),
        ("fragmentation", "fragmentation: … 3 …, … gpu-0: 0.02 … (… node-3, …); 4 …"),
    ],
)
def test_what_the_pod_prefers_is_told_and_no_node_as_the_next_best_that_it_does_not(
    cluster: Cluster, settings: Settings, setting: str, why: str
) -> None:
    """The most packed node has a taint that pods would rather avoid."""
    settings.SCHEDULER_PLACEMENT = setting
    cluster.create(make_class())
    for node, devices, taints in (
        ("node-1", 2, [Taint(key="old", effect="PreferNoSchedule")]),
        ("node-2", 4, []),
        ("node-3", 5, []),
    ):
        cluster.create(make_node(node, taints=taints))
        cluster.create(make_slice(node=node, devices=make_devices(devices)))
    assert placed(cluster, "a") == "node-2"
    (event,) = cluster.events("Scheduled")
    assert event.metadata.annotations.get(PLACEMENT) == Outline(why)
