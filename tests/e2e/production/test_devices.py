"""Alternatives, partitions, shares, taints and conditions of binding. Names as in Kubernetes' integration cases."""

from __future__ import annotations

from typing import Any

import pytest

from inventory.kinds.devices import Device, DeviceTaint, DeviceToleration
from tests.builders import (
    make_alternative,
    make_alternatives,
    make_claim_config,
    make_constraint,
    make_device,
    make_device_taint,
    make_devices,
    make_taint_rule,
)
from tests.e2e.api_client import Document
from tests.e2e.production.installation import NODES
from tests.e2e.production.scene import Scene
from tests.e2e.production.simulated import EVERYTHING, half, share, whole

pytestmark = [pytest.mark.e2e, pytest.mark.postgres]


# Prioritized lists ---------------------------------------------------------------------------------------------------


def sized(scene: Scene, *sizes: str, node: str = "node-1") -> None:
    """A device of each size, named after it."""
    scene.publish(*(make_device(size, attributes={"size": size}) for size in sizes), node=node)


def one_of(scene: Scene, *sizes: str, counts: tuple[int, ...] = ()) -> Any:
    """A request for the first of the sizes that can be had; alternatives are named after them."""
    many = counts or (1,) * len(sizes)
    alternatives = [
        make_alternative(
            size,
            device_class=scene.name,
            count=count,
            expressions=[f"device.attributes['{scene.driver}'].size == '{size}'"],
        )
        for size, count in zip(sizes, many, strict=True)
    ]
    return make_alternatives("gpu", *alternatives)


def test_selects_the_first_subrequest_that_can_be_satisfied(scene: Scene) -> None:
    scene.device_class()
    sized(scene, "middle", "small")
    scene.claim("training", one_of(scene, "large", "middle", "small"))
    scene.pod("web", "training")
    scene.bound("web")
    assert scene.devices("training") == [f"gpu/middle {scene.name}-node-1/middle"]


@pytest.mark.long
def test_uses_the_config_for_the_selected_subrequest(scene: Scene) -> None:
    scene.device_class()
    sized(scene, "small")
    configs = [make_claim_config({"for": size}, requests=[f"gpu/{size}"]) for size in ("large", "small")]
    scene.claim("training", one_of(scene, "large", "small"), config=configs)
    scene.pod("web", "training")
    scene.bound("web")
    assert parameters(scene, "training") == [{"for": "small"}]


def parameters(scene: Scene, claim: str) -> list[Document]:
    return [one["opaque"]["parameters"] for one in scene.allocation(claim)["devices"].get("config", ())]


@pytest.mark.long
def test_chooses_the_correct_subrequest_subject_to_constraints(scene: Scene) -> None:
    """The large one hangs on another switch than the only device of the other request."""
    scene.device_class()
    placed = {"large": "left", "small": "right", "nic": "right"}
    scene.publish(*(make_device(name, attributes={"size": name, "switch": at}) for name, at in placed.items()))
    nic = scene.request("nic", expressions=[f"device.attributes['{scene.driver}'].size == 'nic'"])
    constraint = make_constraint(f"{scene.driver}/switch", requests=["gpu", "nic"])
    scene.claim("training", nic, one_of(scene, "large", "small"), constraints=[constraint])
    scene.pod("web", "training")
    scene.bound("web")
    pool = f"{scene.name}-node-1"
    assert scene.devices("training") == [f"nic {pool}/nic", f"gpu/small {pool}/small"]


@pytest.mark.long
def test_filters_config_correctly_for_multiple_devices(scene: Scene) -> None:
    """Of three requests, one with alternatives: each config is kept where what it is for was chosen."""
    scene.device_class()
    sized(scene, "small", "x", "y")
    plain = [scene.request(one, expressions=[f"device.attributes['{scene.driver}'].size == '{one}'"]) for one in "xy"]
    wanted = {"large": ["gpu/large"], "small": ["gpu/small"], "x": ["x"], "both": ["y", "gpu"]}
    configs = [make_claim_config({"for": name}, requests=requests) for name, requests in wanted.items()]
    scene.claim("training", one_of(scene, "large", "small"), *plain, config=configs)
    scene.pod("web", "training")
    scene.bound("web")
    kept = [(one["requests"], one["opaque"]["parameters"]["for"]) for one in configs_of(scene, "training")]
    assert kept == [(["gpu/small"], "small"), (["x"], "x"), (["y", "gpu"], "both")]


def configs_of(scene: Scene, claim: str) -> list[Document]:
    return list(scene.allocation(claim)["devices"]["config"])


@pytest.mark.long
def test_scoring(scene: Scene) -> None:
    """Of the nodes that can meet a claim, the one where the earliest alternative can be had."""
    scene.device_class()
    for node, size in zip(NODES, ("small", "large", "middle"), strict=True):
        sized(scene, size, node=node)
    expected = {"first": "node-2", "second": "node-3", "third": "node-1"}
    for name, node in expected.items():
        scene.claim(name, one_of(scene, "large", "middle", "small"))
        scene.pod(name, name)
        assert scene.bound(name) == node


# Partitions and shares -----------------------------------------------------------------------------------------------


def test_must_consume_and_free_up_counters(scene: Scene) -> None:
    """Of a simulated GPU in partitions: whole, it leaves nothing of itself; given back, it can be cut."""
    scene.device_class(expressions=[EVERYTHING])
    scene.claim("whole", whole(scene))
    scene.pod("whole", "whole")
    scene.runs("whole")
    scene.template("half", half(scene))
    for name in ("left", "right"):
        scene.pod(name, templates=["half"])
    scene.waits("left", "cannot allocate all claims")
    scene.delete("Pod", "whole")
    scene.runs("left", "right")
    scene.pod("third", templates=["half"])
    scene.waits("third", "cannot allocate all claims")
    scene.delete("Pod", "left")
    scene.runs("third")


def test_must_allow_multiple_allocations_and_consume_capacity(scene: Scene) -> None:
    """Of a simulated network interface of 100G: 60 and 30 go, another 60 waits until the first is given back."""
    scene.device_class(expressions=[EVERYTHING])
    for name, amount in {"wide": "60G", "narrow": "30G", "late": "60G"}.items():
        scene.claim(name, share(scene, amount))
        scene.pod(name, name)
        if name != "late":
            scene.runs(name)
    results = [scene.allocation(name)["devices"]["results"][0] for name in ("wide", "narrow")]
    assert len({one["device"] for one in results}) == 1
    assert len({one["shareID"] for one in results}) == 2
    assert [one["consumedCapacity"]["bandwidth"] for one in results] == ["60G", "30G"]
    scene.waits("late", "cannot allocate all claims")
    scene.delete("Pod", "wide")
    scene.runs("late")


# Taints --------------------------------------------------------------------------------------------------------------

KEY = "example.com/broken"
TOLERATES = (DeviceToleration(key=KEY, operator="Exists"),)


def tainted(scene: Scene, effect: str) -> None:
    """The scene's only device, with a taint."""
    scene.device_class()
    scene.publish(make_device("a", taints=[make_device_taint(KEY, effect=effect)]))


@pytest.mark.long
@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_taint_keeps_pod_pending(scene: Scene, effect: str) -> None:
    tainted(scene, effect)
    scene.claim("training", scene.request())
    scene.pod("web", "training")
    scene.waits("web", f"tainted (`{KEY}:{effect}`)")
    assert scene.allocation("training") == {}


@pytest.mark.long
@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_taint_can_be_tolerated(scene: Scene, effect: str) -> None:
    tainted(scene, effect)
    scene.claim("training", scene.request(tolerations=TOLERATES))
    scene.pod("web", "training")
    scene.bound("web")
    assert scene.allocation("training")["devices"]["results"][0]["tolerations"]


def test_device_taint_rule_evicts_pod(scene: Scene) -> None:
    """And the pod that tolerates it stays, and the rule tells how far it is."""
    scene.device_class()
    scene.publish(*make_devices(2))
    scene.claim("leaves", scene.request())
    scene.claim("stays", scene.request(tolerations=TOLERATES))
    for name in ("leaves", "stays"):
        scene.pod(name, name)
    scene.bound("leaves", "stays")
    scene.make(make_taint_rule(scene.name, key=KEY, effect="NoExecute", driver=scene.driver))
    scene.gone("Pod", "leaves")
    scene.free("leaves")
    assert "DeviceTaintManagerEviction: Marking for deletion" in scene.events("leaves")
    (condition,) = scene.find("DeviceTaintRule", scene.name)["status"]["conditions"]
    assert (condition["type"], condition["message"]) == (
        "EvictionInProgress",
        "1 pod needs to be evicted in 1 namespace.",
    )
    assert scene.node_of("stays")


def cluster_of_pods(scene: Scene) -> list[str]:
    """Pods on devices of all nodes."""
    scene.device_class()
    for node in NODES:
        scene.publish(*make_devices(4), node=node)
    scene.template("gpu", scene.request())
    names = [f"pod-{number}" for number in range(4 * len(NODES))]
    for name in names:
        scene.pod(name, templates=["gpu"])
    scene.bound(*names)
    return names


def assert_all_leave(scene: Scene, names: list[str]) -> None:
    for name in names:
        scene.gone("Pod", name)
    scene.until("the claims to be gone", lambda: not scene.all("ResourceClaim"))
    told = [event for event in scene.events() if event.startswith("DeviceTaintManagerEviction")]
    assert len(told) == len(names)


@pytest.mark.long
def test_evict_cluster_with_rule(scene: Scene) -> None:
    names = cluster_of_pods(scene)
    scene.make(make_taint_rule(scene.name, key=KEY, effect="NoExecute", driver=scene.driver))
    assert_all_leave(scene, names)


@pytest.mark.long
def test_evict_cluster_with_slices(scene: Scene) -> None:
    names = cluster_of_pods(scene)
    taint = make_device_taint(KEY, effect="NoExecute")
    for node in NODES:
        name = f"{scene.name}-{node}-0"
        spec = scene.find("ResourceSlice", name)["spec"]
        broken = [{**device, "taints": [as_document(taint)]} for device in spec["devices"]]
        scene.change("ResourceSlice", name, {"spec": {"devices": broken}})
    assert_all_leave(scene, names)


def as_document(taint: DeviceTaint) -> Document:
    return {"key": taint.key, "effect": taint.effect}


# Conditions of binding -----------------------------------------------------------------------------------------------


def attachable(name: str) -> Device:
    return make_device(
        name, binds_to_node=True, binding_conditions=("attached",), binding_failure_conditions=("failed",)
    )


@pytest.fixture
def fabric(scene: Scene) -> Scene:
    """Two devices that any node may have attached; a pod got one of them and waits."""
    scene.device_class()
    scene.publish(attachable("a"), attachable("b"), node=None)
    scene.claim("gpu", scene.request())
    scene.pod("web", "gpu")
    scene.allocated("gpu")
    return scene


def moves_from(scene: Scene, device: str) -> None:
    """Wait until the claim has another device."""
    scene.until(f"another device than {device}", lambda: scene.devices("gpu") not in ([], [device]))


def test_basic_flow(fabric: Scene) -> None:
    pod = fabric.find("Pod", "web")
    assert "nodeName" not in pod["spec"]
    assert pod["status"]["nominatedNodeName"] in NODES
    fabric.until("the event", lambda: any(one.startswith("BindingConditionsPending") for one in fabric.events("web")))
    fabric.report("gpu", "attached")
    node = fabric.bound("web")
    selector = fabric.allocation("gpu")["nodeSelector"]["nodeSelectorTerms"][0]
    assert selector["matchFields"][0]["values"] == [node]


@pytest.mark.long
def test_failure_by_taint(fabric: Scene) -> None:
    """The driver gives up, and taints the device: another one is taken."""
    (first,) = fabric.devices("gpu")
    taint(fabric, first)
    fabric.report("gpu", "failed")
    moves_from(fabric, first)
    assert any("device binding failed: claim=gpu" in one for one in fabric.events("web"))
    fabric.report("gpu", "attached")
    fabric.bound("web")


def taint(scene: Scene, device: str) -> None:
    rule = make_taint_rule(scene.name, key=KEY, effect="NoSchedule", driver=scene.driver, device=device.split("/")[1])
    scene.make(rule)


@pytest.mark.long
def test_failure_by_removal(fabric: Scene) -> None:
    """The driver gives up, and does not publish the device any more."""
    (first,) = fabric.devices("gpu")
    name = f"{fabric.name}-all-0"
    spec = fabric.find("ResourceSlice", name)["spec"]
    left = [device for device in spec["devices"] if not first.endswith(f"/{device['name']}")]
    pool = {**spec["pool"], "generation": 2}
    fabric.change("ResourceSlice", name, {"spec": {"devices": left, "pool": pool}})
    fabric.report("gpu", "failed")
    moves_from(fabric, first)
    fabric.report("gpu", "attached")
    fabric.bound("web")


@pytest.mark.long
def test_timeout_reached(fabric: Scene) -> None:
    """Nobody says anything: the device is given back, and the pod told so."""
    (first,) = fabric.devices("gpu")
    taint(fabric, first)
    fabric.until("the event", lambda: any("device binding timeout" in one for one in fabric.events("web")))
    moves_from(fabric, first)


@pytest.mark.long
def test_timeout_recovered(fabric: Scene) -> None:
    """After a timeout the pod is tried again, and bound when the device is attached this time."""
    fabric.until("the event", lambda: any("device binding timeout" in one for one in fabric.events("web")))
    fabric.report("gpu", "attached")
    fabric.bound("web")
