"""Which of the nodes that have the devices gets a pod: the cluster's setting, and devices that are scarce."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from pytest_django.fixtures import Settings

from inventory.kinds.devices import Device
from scheduling.event_recorder import PLACEMENT
from scheduling.explanations.current import pod_document
from tests.builders import (
    CLASS,
    DRIVER,
    NAMESPACE,
    make_claim,
    make_class,
    make_device,
    make_devices,
    make_node,
    make_pod,
    make_request,
    make_slice,
)
from tests.scheduling.cluster import Cluster


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
            "spread: the emptiest of 2 nodes with enough free devices, 5 free devices",
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
    assert told["a"] == why
    assert pod_document(NAMESPACE, "a")["placement"] == why


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


@pytest.mark.parametrize("setting", ["pack", "spread", "best-fit"])
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
