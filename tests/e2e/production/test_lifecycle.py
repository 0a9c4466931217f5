"""What a Kubernetes 1.36 control plane made of the same scenarios, part for part; why ours differs where it does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from claims.kinds.pods import PodSchedulingGate
from claims.kinds.resource_claims import CapacityRequirements
from inventory.kinds.devices import CapacityRequestPolicy, CapacityRequestPolicyRange, DeviceCapacity, DeviceToleration
from tests.builders import (
    make_alternative,
    make_alternatives,
    make_claim,
    make_claim_config,
    make_class,
    make_container,
    make_device,
    make_device_taint,
    make_pod,
    make_priority,
    make_quota,
    make_taint_rule,
)
from tests.e2e.api_client import Hands
from tests.e2e.production.installation import Installation
from tests.e2e.production.lifecycle import Stage

pytestmark = [pytest.mark.e2e, pytest.mark.postgres]

SAYS_WHY = "a pod whose claim or template is missing tells its owner so; the reference's says nothing"
SCHEDULED_ONTO_TAINT = (
    "the reference gives a new pod a device that a rule has tainted, and evicts it at once; here it waits, as KEP-5055 "
    "has it"
)
ATTEMPTED = "the reference's first attempt met the taint that a new node has there for a moment"
TAKES = "devices are preempted here with the gate DRAPreemption, which the reference has from 1.37 on"
#: What the reference said, word for word.
REFUSED = {
    "p3": 'pods "p3" is forbidden: no PriorityClass with name no-such-class was found',
    "p4": 'pods "p4" is forbidden: the integer value of priority (5) must not be provided in pod spec; '
    "priority admission controller computed 0 from the given PriorityClass name",
}
#: Of the reference, word for word.
TOO_MANY = "claim lc-ext-zero/<extended-resources>: number of requested devices 33 exceeds the claim limit of 32"
ALL_REQUESTS = "`requests` is left empty where a configuration covers all of them, as the reference does from 1.37 on"


@pytest.fixture
def stage(request: pytest.FixtureRequest, installation: Installation, api: Hands) -> Iterator[Stage]:
    """The test's own scenario: `test_template_lifecycle` plays template-lifecycle."""
    stage = Stage(api, request.node.name.removeprefix("test_").replace("_", "-"))
    yield stage
    stage.end()
    installation.check_invariants()


def test_template_lifecycle(stage: Stage) -> None:
    node = stage.node("n1")
    stage.device_class_named()
    stage.devices_on(node, make_device("d0"), make_device("d1"))
    stage.template("t", stage.wanted(), claim_meta={"labels": {"from": "t"}})
    stage.use("p1", templates=["t"])
    stage.compare("bound")
    stage.agent_says("Running", "p1")
    stage.agent_says("Succeeded", "p1")
    stage.compare("succeeded")
    stage.delete("Pod", "p1")
    stage.compare("deleted")


def test_shared_claim(stage: Stage) -> None:
    node = stage.node("n1")
    stage.device_class_named()
    stage.devices_on(node, make_device("d0"))
    stage.claim("cl", stage.wanted())
    stage.use("p1", "cl")
    stage.bound("p1")
    stage.use("p2", "cl")
    stage.compare("bound")
    stage.delete("ResourceClaim", "cl")
    stage.compare("claim deleted in use")
    stage.delete("Pod", "p1")
    stage.delete("Pod", "p2")
    stage.compare("end")


@pytest.mark.long
def test_messages(stage: Stage) -> None:
    node = stage.node("n1")
    stage.node("n2", unschedulable=True)
    stage.device_class_named()
    stage.devices_on(node, make_device("d0", attributes={"m": "A"}))
    attribute = 'device.attributes["messages.example.com"]'
    wanted = {
        "toomany": stage.wanted(count=3),
        "noclass": stage.wanted("none"),
        "celerr": stage.wanted(expressions=[f"{attribute}.nope == 1"]),
        "nomatch": stage.wanted(expressions=[f'{attribute}.m == "B"']),
        "all": stage.wanted(all_devices=True, expressions=["false"]),
    }
    for name, request in wanted.items():
        stage.claim(name, request)
    for name in (*wanted, "missing"):
        stage.use(f"p-{name}", name)
    stage.use("p-notemplate", templates=["notmpl"])
    stage.use("p-selector", "toomany", node_selector={"nope": "x"})
    stage.use("p-gated", "toomany", scheduling_gates=(PodSchedulingGate(name="example.com/g"),))
    stage.use("p-cpu", containers=[make_container(limits={"cpu": "100"})])
    stage.use("p-other", scheduler_name="other")
    stage.compare("pending", {f"pods.p-{name}.scheduled": SAYS_WHY for name in ("missing", "notemplate")})


@pytest.mark.long
def test_taint_rule(stage: Stage) -> None:
    node = stage.node("n1")
    stage.device_class_named()
    stage.devices_on(node, make_device("d0"), make_device("d1"))
    for_a_while = DeviceToleration(key="example.com/bad", operator="Exists", effect="NoExecute", toleration_seconds=5)
    stage.claim("c1", stage.wanted())
    stage.claim("c2", stage.wanted(tolerations=[for_a_while]))
    stage.use("p1", "c1")
    stage.use("p2", "c2")
    stage.bound("p1", "p2")
    stage.agent_says("Running", "p1", "p2")
    rule = make_taint_rule(
        "taint-rule-r", key="example.com/bad", value="x", effect="NoExecute", driver=stage.driver, time_added=""
    )
    stage.make(replace(rule, spec=replace(rule.spec, taint=replace(rule.spec.taint, time_added=None))))
    stage.compare("after NoExecute")
    stage.compare("p2 after its 5 seconds")
    stage.claim("c3", stage.wanted())
    stage.use("p3", "c3")
    stage.waits("p3")
    evicts_one_more = {"pods.p3": SCHEDULED_ONTO_TAINT, "rules": SCHEDULED_ONTO_TAINT, "events": SCHEDULED_ONTO_TAINT}
    stage.compare("new pod", evicts_one_more)
    stage.delete("DeviceTaintRule", "taint-rule-r")
    differs = ("pods.p3", "claims.c3", "events")
    stage.compare("rule removed", dict.fromkeys(differs, SCHEDULED_ONTO_TAINT))


@pytest.mark.long
def test_taint_noschedule(stage: Stage) -> None:
    node = stage.node("n1")
    stage.device_class_named()
    taints = {"d0": "NoSchedule", "d1": "None"}
    stage.devices_on(
        node,
        *(
            make_device(name, taints=[make_device_taint("example.com/t", effect=effect)])
            for name, effect in taints.items()
        ),
    )
    stage.claim("c1", stage.wanted(count=2))
    stage.claim("c2", stage.wanted(count=2, tolerations=[DeviceToleration(operator="Exists")]))
    stage.use("p1", "c1")
    stage.waits("p1")
    stage.use("p2", "c2")
    stage.compare("tolerated")


def test_binding(stage: Stage) -> None:
    stage.node("n1")
    stage.device_class_named()
    device = make_device(
        "b0", binds_to_node=True, binding_conditions=("attached",), binding_failure_conditions=("failed",)
    )
    stage.devices_on(None, device, pool="binding-pool")
    stage.claim("c1", stage.wanted())
    stage.use("p1", "c1")
    stage.compare("waiting for attached", {"pods.p1.scheduled": ATTEMPTED})
    attached = {"type": "attached", "status": "True", "reason": "Ok", "message": ""}
    reported = {
        "driver": stage.driver,
        "pool": "binding-pool",
        "device": "b0",
        "conditions": [{**attached, "lastTransitionTime": "2026-11-22T00:00:00Z"}],
    }
    stage.change("ResourceClaim", "c1", {"status": {"devices": [reported]}}, part="status")
    stage.compare("attached")


@pytest.mark.long
def test_two_claims_release(stage: Stage) -> None:
    nodes = [stage.node(short) for short in ("n1", "n2")]
    stage.device_class_named("a")
    for node in nodes:
        stage.devices_on(node, make_device("d0"))
    stage.claim("c1", stage.wanted("a"))
    stage.claim("c2", stage.wanted("a", expressions=["false"]))
    stage.use("p1", "c1", "c2")
    stage.compare("one cannot")


@pytest.mark.long
def test_hand_bound(stage: Stage) -> None:
    node = stage.node("n1")
    stage.device_class_named()
    stage.devices_on(node, make_device("d0"))
    stage.claim("c1", stage.wanted())
    stage.template("t", stage.wanted(), claim_meta={"labels": {"from": "t"}})
    stage.use("p1", "c1", node=node)
    stage.use("p2", templates=["t"], node=node)
    stage.compare("nodeName set by the user")


@pytest.mark.long
def test_kinds_of_results(stage: Stage) -> None:
    node = stage.node("n1")
    stage.device_class_named(parameters={"from": "class"})
    policy = CapacityRequestPolicy(default="1Gi", valid_range=CapacityRequestPolicyRange(min="1Gi", step="1Gi"))
    shared = make_device(
        "share",
        attributes={"k": "share"},
        capacity={"memory": DeviceCapacity(value="10Gi", request_policy=policy)},
        allow_multiple_allocations=True,
    )
    stage.devices_on(node, make_device("plain", attributes={"k": "plain"}), shared)

    def of_kind(kind: str) -> list[str]:
        return [f'device.attributes["{stage.driver}"].k == "{kind}"']

    alternatives = {"big": "none", "small": "plain"}
    listed = make_alternatives(
        "r",
        *(
            make_alternative(name, device_class=f"{stage.name}-gpu", expressions=of_kind(kind))
            for name, kind in alternatives.items()
        ),
    )
    config = [
        make_claim_config({"a": at}, driver=stage.driver, requests=[f"r/{name}"])
        for at, name in enumerate(("small", "big"), start=1)
    ]
    stage.claim("first", listed, config=config)
    some = CapacityRequirements(requests={"memory": "2500Mi"})
    stage.claim("sh1", stage.wanted(expressions=of_kind("share"), capacity=some))
    stage.claim("sh2", stage.wanted(expressions=of_kind("share")))
    for pod, claim in {"p1": "first", "p2": "sh1", "p3": "sh2"}.items():
        stage.use(pod, claim)
    paths = (f"claims.{claim}.status.allocation.devices.config" for claim in ("first", "sh1", "sh2"))
    stage.compare("results", dict.fromkeys(paths, ALL_REQUESTS))


@pytest.mark.long
def test_preemption(stage: Stage) -> None:
    node = stage.node("n1")
    stage.device_class_named()
    stage.devices_on(node, make_device("d0"))
    stage.make(make_priority("preemption-high", 1000))
    stage.template("t", stage.wanted(), claim_meta={"labels": {"from": "t"}})
    stage.use("p1", templates=["t"])
    stage.bound("p1")
    stage.agent_says("Running", "p1")
    stage.use("p2", templates=["t"], priority_class_name="preemption-high")
    differs = ("pods.p1", "pods.p2.node", "pods.p2.scheduled", "claims", "events")
    stage.compare("high priority waits or takes", dict.fromkeys(differs, TAKES))
    for pod in (make_pod("p3", priority_class_name="no-such-class"), make_pod("p4", priority=5)):
        assert stage.refused(pod) == REFUSED[pod.metadata.name]


def test_pod_replaced(stage: Stage) -> None:
    node = stage.node("n1")
    stage.device_class_named()
    stage.devices_on(node, make_device("d0"))
    stage.claim("c1", stage.wanted())
    stage.use("p1", "c1")
    stage.bound("p1")
    stage.delete("Pod", "p1")
    stage.use("p1", "c1")
    stage.compare("same name again")


@pytest.mark.long
def test_ext_explicit(stage: Stage) -> None:
    node = stage.node("n1")
    stage.device_class_named(extended_resource_name="example.com/ext1")
    stage.devices_on(node, *(make_device(f"d{number}") for number in range(4)))
    stage.use("p1", containers=[stage.asking("c0", {"example.com/ext1": 2})])
    stage.compare("bound")
    stage.use("p2", containers=[stage.asking("c0", {"example.com/ext1": 3})])
    stage.compare("p2 too many")
    stage.agent_says("Running", "p1")
    stage.agent_says("Succeeded", "p1")
    stage.compare("p1 done, p2 bound")
    stage.delete("Pod", "p1")
    stage.delete("Pod", "p2")
    stage.compare("end")


@pytest.mark.long
def test_ext_implicit(stage: Stage) -> None:
    node = stage.node("n1")
    stage.device_class_named()
    stage.devices_on(node, *(make_device(f"d{number}") for number in range(4)))
    name = "deviceclass.resource.kubernetes.io/ext-implicit-gpu"
    stage.use("p1", containers=[stage.asking("c0", {name: 1})])
    stage.compare("bound")


@pytest.mark.long
def test_ext_multi(stage: Stage) -> None:
    node = stage.node("n1")
    a, b = "example.com/ma", "example.com/mb"
    for short, name in (("a", a), ("b", b)):
        stage.device_class_named(short, extended_resource_name=name)
    stage.devices_on(node, *(make_device(f"d{number}") for number in range(12)))
    amounts = ({a: 1, b: 2}, {b: 1}, None)
    stage.use("p1", containers=[stage.asking(f"c{at}", one) for at, one in enumerate(amounts)])
    stage.compare("three containers")
    containers = [stage.asking("c0", {a: 1}), stage.asking("c1", {a: 2})]
    first = [stage.asking("c100", {a: 2}), stage.asking("c101", {a: 1})]
    stage.use("p2", containers=containers, init_containers=first)
    stage.compare("init containers")


@pytest.mark.long
def test_ext_with_claim(stage: Stage) -> None:
    node = stage.node("n1")
    stage.device_class_named(extended_resource_name="example.com/wc")
    stage.devices_on(node, *(make_device(f"d{number}") for number in range(3)))
    stage.claim("cl", stage.wanted())
    stage.use("p1", "cl", containers=[make_container("c0", claims=["cl"], limits={"example.com/wc": "1"})])
    stage.compare("both")


@pytest.mark.long
def test_ext_zero(stage: Stage) -> None:
    node = stage.node("n1")
    stage.device_class_named(extended_resource_name="example.com/z")
    stage.devices_on(node, make_device("d0"))
    stage.use("p1", containers=[stage.asking("c0", {"example.com/z": 0})])
    stage.compare("zero")
    stage.use("p2", containers=[stage.asking("c0", {"example.com/z": 33})])
    stage.compare("33")
    assert stage.waits("p2").endswith(TOO_MANY)
    stage.use("p3", containers=[stage.asking("c0", {"example.com/none": 1})])
    stage.compare("no such resource")
    assert stage.waits("p3").startswith("0/4 nodes are available: 1 Insufficient example.com/none")
    for bad, name in (("bad", "cpu"), ("bad2", "kubernetes.io/x")):
        assert stage.refused(make_class(f"ext-zero-{bad}", extended_resource_name=name)) == (
            f'DeviceClass.resource.k8s.io "ext-zero-{bad}" is invalid: spec.extendedResourceName: '
            f'Invalid value: "{name}": must be a valid extended resource name'
        )


@pytest.mark.long
def test_ext_late_class(stage: Stage) -> None:
    node = stage.node("n1")
    stage.devices_on(node, make_device("d0"))
    stage.use("p1", containers=[stage.asking("c0", {"example.com/late": 1})])
    stage.compare("before")
    stage.device_class_named(extended_resource_name="example.com/late")
    stage.compare("after")


@pytest.mark.long
def test_quota_ext(stage: Stage) -> None:
    """Pods and claims count the same devices by an explicit name, by an implicit one, and by their class."""
    explicit, implicit = "requests.example.com/q", "requests.deviceclass.resource.kubernetes.io/quota-ext-gpu"
    devices = "quota-ext-gpu.deviceclass.resource.k8s.io/devices"
    limits = {explicit: "5", implicit: "4", devices: "6", "count/resourceclaims.resource.k8s.io": "10", "pods": "9"}

    def counts(part: str, pods: int, claims: int, each: int) -> None:
        stage.compare(part)
        used = {"count/resourceclaims.resource.k8s.io": str(claims), "pods": str(pods)}
        used |= dict.fromkeys((explicit, implicit, devices), str(each))
        assert stage.find("ResourceQuota", "most")["status"] == {"hard": limits, "used": used}

    node = stage.node("n1")
    stage.device_class_named(extended_resource_name="example.com/q")
    stage.devices_on(node, *(make_device(f"d{number}") for number in range(8)))
    stage.make(make_quota(limits))
    counts("empty", pods=0, claims=0, each=0)
    stage.use("p1", containers=[stage.asking("c0", {"example.com/q": 2})])
    counts("explicit 2", pods=1, claims=1, each=2)
    stage.use("p2", containers=[stage.asking("c0", {implicit.removeprefix("requests."): 1})])
    counts("implicit 1", pods=2, claims=2, each=3)
    stage.claim("cl", stage.wanted(count=1))
    counts("claim 1", pods=2, claims=3, each=4)
    four = make_pod("p3", containers=[stage.asking("c0", {"example.com/q": 4})])
    assert f"requested: {explicit}=4, used: {explicit}=4, limited: {explicit}=5" in stage.refused(four)
    everything = make_claim("cl2", requests=[stage.wanted(all_devices=True)])
    assert f"requested: {devices}=32,{implicit}=32,{explicit}=32, used: {devices}=4" in stage.refused(everything)
    counts("more", pods=2, claims=3, each=4)
    stage.delete("Pod", "p1")
    stage.delete("ResourceClaim", "cl")
    counts("given back", pods=1, claims=1, each=1)
    stage.finish()
