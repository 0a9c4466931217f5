"""Pods of lower priority leave for those who matter more. Names as in Kubernetes' integration cases."""

from __future__ import annotations

import pytest

from claims.kinds.resource_claims import DeviceRequest
from tests.builders import make_device, make_priority
from tests.e2e.production.scene import Scene
from tests.e2e.production.simulated import EVERYTHING, gpu, half, share, whole

pytestmark = [pytest.mark.e2e, pytest.mark.postgres]

VALUES = {"low": 10, "middle": 20, "urgent": 1000}


@pytest.fixture
def ranked(scene: Scene) -> Scene:
    """A class of every simulated device and those of the scene, and priorities."""
    scene.device_class(expressions=[f"{EVERYTHING} || device.driver == '{scene.driver}'"])
    for name, value in VALUES.items():
        scene.make(make_priority(f"{scene.name}-{name}", value))
    return scene


def use(scene: Scene, name: str, request: DeviceRequest, priority: str = "low", node: str = "node-3") -> None:
    """A pod with a claim of its own name, on a node."""
    scene.claim(name, request)
    _pod(scene, name, priority, node)


def _pod(scene: Scene, name: str, priority: str, node: str, templates: tuple[str, ...] = ()) -> None:
    claims = () if templates else (name,)
    where = {"kubernetes.io/hostname": node}
    rank = f"{scene.name}-{priority}"
    scene.pod(name, *claims, templates=templates, priority_class_name=rank, node_selector=where)


def assert_preempted(scene: Scene, *names: str) -> None:
    """They are gone, were told why, and nobody else went."""
    for name in names:
        scene.gone("Pod", name)
    told = [event for event in scene.events() if event.startswith("Preempted: ")]
    assert len(told) == len(names)


@pytest.mark.long
def test_preemption_of_a_pod_with_a_direct_claim(ranked: Scene) -> None:
    use(ranked, "modest", gpu(ranked, 7))
    ranked.runs("modest")
    use(ranked, "important", gpu(ranked, 7), "urgent")
    ranked.runs("important")
    assert_preempted(ranked, "modest")
    assert ranked.devices("modest") == []


@pytest.mark.long
def test_preemption_of_a_pod_with_a_template(ranked: Scene) -> None:
    ranked.template("last", gpu(ranked, 7))
    for name, priority in {"modest": "low", "important": "urgent"}.items():
        _pod(ranked, name, priority, "node-1", templates=("last",))
        ranked.runs(name)
    assert_preempted(ranked, "modest")
    ranked.until("its claim to be gone", lambda: len(ranked.all("ResourceClaim")) == 1)


def test_preemption_is_priority_aware(ranked: Scene) -> None:
    """Of two that are in the way, the less important goes; an equal waits."""
    for name, priority in {"modest": "low", "better": "middle"}.items():
        use(ranked, name, gpu(ranked, 6, 7), priority)
        ranked.runs(name)
    use(ranked, "important", gpu(ranked, 6, 7), "urgent")
    ranked.runs("important")
    assert_preempted(ranked, "modest")
    use(ranked, "equal", gpu(ranked, 6, 7), "middle")
    ranked.waits("equal", "preemption: ")
    ranked.runs("better")


@pytest.mark.long
def test_preemption_disabled(ranked: Scene) -> None:
    """By the class of whoever waits."""
    use(ranked, "modest", gpu(ranked, 7))
    ranked.runs("modest")
    ranked.make(make_priority(f"{ranked.name}-gentle", 1000, preemption_policy="Never"))
    use(ranked, "gentle", gpu(ranked, 7), "gentle")
    ranked.waits("gentle", "preemptionPolicy=Never")
    assert ranked.phase("modest") == "Running"


@pytest.mark.long
def test_preemption_of_consumable_capacity(ranked: Scene) -> None:
    """Of consumable capacity: the wide share is taken, the narrow one left."""
    for name, amount in {"wide": "60G", "narrow": "30G"}.items():
        use(ranked, name, share(ranked, amount))
        ranked.runs(name)
    use(ranked, "important", share(ranked, "60G"), "urgent")
    ranked.runs("important")
    assert_preempted(ranked, "wide")
    ranked.runs("narrow")


@pytest.mark.long
def test_preemption_of_partitionable_devices(ranked: Scene) -> None:
    """Both halves go for the whole."""
    for name in ("left", "right"):
        use(ranked, name, half(ranked))
        ranked.runs(name)
    use(ranked, "important", whole(ranked), "urgent")
    ranked.runs("important")
    assert_preempted(ranked, "left", "right")


@pytest.mark.long
def test_preemption_of_a_pod_with_binding_conditions(ranked: Scene) -> None:
    """It gives the device back and waits again; nothing of it ran."""
    device = make_device("only", binding_conditions=("attached",), binding_failure_conditions=("failed",))
    ranked.publish(device, node="node-3")
    own = ranked.request(expressions=[f"device.driver == '{ranked.driver}'"])
    use(ranked, "modest", own)
    ranked.allocated("modest")
    use(ranked, "important", own, "urgent")
    ranked.allocated("important")
    ranked.free("modest")
    ranked.report("important", "attached")
    ranked.bound("important")
    assert [event for event in ranked.events("modest") if event.startswith("Preempted: ")]
    assert ranked.node_of("modest") == ""
    assert ranked.find("Pod", "modest")


def test_a_pod_that_is_evicted_is_told_why_and_keeps_its_grace(ranked: Scene) -> None:
    use(ranked, "modest", gpu(ranked, 7))
    ranked.runs("modest")
    # Somebody wants to see it off: it is there until they have.
    ranked.change("Pod", "modest", {"metadata": {"finalizers": ["example.com/farewell"]}})
    use(ranked, "important", gpu(ranked, 7), "urgent")
    ranked.until("it to go", lambda: "deletionTimestamp" in ranked.find("Pod", "modest")["metadata"])
    evicted = ranked.find("Pod", "modest")
    (told,) = [one for one in evicted["status"]["conditions"] if one["type"] == "DisruptionTarget"]
    assert (told["status"], told["reason"]) == ("True", "PreemptionByScheduler")
    assert evicted["metadata"]["deletionGracePeriodSeconds"] == 0
    ranked.change("Pod", "modest", {"metadata": {"finalizers": None}})
    ranked.runs("important")
    assert_preempted(ranked, "modest")
