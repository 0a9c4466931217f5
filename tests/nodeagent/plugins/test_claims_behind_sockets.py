"""Claims of drivers behind sockets: prepared and given back over gRPC, whatever the driver answers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace

import grpc
import msgspec
import pytest

from claims.kinds.resource_claims import ResourceClaim
from nodeagent.claims.prepare import DriverCalls, DriverRegistry, intended_record, with_pod
from nodeagent.drivers.simulated import SimulatedDriver
from nodeagent.http.metrics import AgentMetrics
from nodeagent.plugins.protocol import Claim, Device, PreparedClaim, UnpreparedClaim
from nodeagent.work import WorkQueue
from tests.exposition import samples
from tests.nodeagent.objects import DRIVER, NODE, claim, pod
from tests.nodeagent.plugins.conftest import PluginNode, until
from tests.nodeagent.plugins.plugin import NAME, TIMEOUT, Plugin, cdi_device

UID = "claim-of-p"


@pytest.mark.parametrize(
    ("offered", "used"),
    [
        (("v1.DRAPlugin",), "v1"),
        (("v1beta1.DRAPlugin",), "v1beta1"),
        (("v1beta1.DRAPlugin", "v1.DRAPlugin"), "v1"),
    ],
)
def test_a_claim_is_prepared_and_given_back_with_the_newest_service_of_the_driver(
    node: PluginNode, offered: tuple[str, ...], used: str
) -> None:
    node.start()
    plugin = node.registered(versions=offered)
    node.come()
    node.runs()
    assert plugin.requests[0].claims == (Claim(namespace="default", uid=UID, name="of-p"),)
    assert node.agent is not None
    assert node.agent.runtime.runs("uid-p")["main"].cdi_devices == (cdi_device(UID),)

    node.api.delete("pods", "p")
    node.ends()
    assert plugin.calls == [(f"{used} prepare", ("of-p",)), (f"{used} unprepare", ("of-p",))]
    assert plugin.devices.held == set()


def test_runs_pod_after_driver_starts(node: PluginNode) -> None:
    node.start()
    node.come()
    node.says(f"DRA driver {NAME}", NODE)
    node.registered()
    node.runs()


def test_a_driver_that_comes_wakes_what_waits_for_it(node: PluginNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long before what failed would be tried again."""
    monkeypatch.setattr("nodeagent.agent.AgentQueue", partial(WorkQueue, first_delay=3600.0, longest_delay=3600.0))
    node.start()
    node.come()
    node.says(NAME)
    plugin = node.registered()
    node.runs()
    plugin.crash(plugin.endpoint)
    node.api.delete("pods", "p")
    node.says("UNAVAILABLE", reason="FailedUnprepareDynamicResources")
    plugin.start(registration=False)
    node.ends()


def refuse(_claim: Claim) -> PreparedClaim:
    return PreparedClaim(error="the device is on fire")


def leave_out(_claim: Claim) -> None:
    return None


def broken(device: Device) -> Callable[[Claim], PreparedClaim]:
    return lambda _claim: PreparedClaim(devices=(device,))


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (refuse, "the device is on fire"),
        (leave_out, "its answer does not cover this claim"),
        (broken(Device(cdi_device_ids=("dev-7",))), "device number 1: 'dev-7' is no CDI device id"),
        (broken(Device(device_name="dev-7", pool_name="a", cdi_device_ids=("dev-7",))), "'dev-7'"),
        (broken(Device(device_name="d", pool_name="a", cdi_device_ids=("a/b=",))), "'a/b='"),
    ],
)
def test_must_retry_NodePrepareResources(  # noqa: N802 - the name of the reference's scenario
    node: PluginNode, answer: Callable[[Claim], PreparedClaim | None], said: str
) -> None:
    node.start()
    plugin = node.registered()
    well, plugin.prepare = plugin.prepare, answer
    node.come()
    node.says(NAME, said)
    assert plugin.count("v1 unprepare") > 0  # what a driver may have done is undone before it is asked again

    plugin.prepare = well
    node.runs()


def test_a_device_that_the_driver_tells_by_its_cdi_ids_alone_is_given(node: PluginNode) -> None:
    """Kubelet looks at no more; drivers on Kubernetes' library answer so."""
    node.start()
    plugin = node.registered()
    well = plugin.prepare

    def nameless(claim: Claim) -> PreparedClaim | None:
        return PreparedClaim(devices=(Device(cdi_device_ids=(cdi_device(claim.uid),)),)) if well(claim) else None

    plugin.prepare = nameless
    node.come()
    node.runs()
    assert node.agent is not None
    assert node.agent.runtime.runs("uid-p")["main"].cdi_devices == (cdi_device(UID),)


def test_a_call_that_fails_is_tried_again(node: PluginNode) -> None:
    node.start()
    plugin = node.registered()
    plugin.fail = (grpc.StatusCode.INTERNAL, "no memory")
    node.come()
    node.says("NodePrepareResources: no memory (INTERNAL)")
    plugin.fail = None
    node.runs()


def test_an_answer_that_is_no_message_is_a_failure(node: PluginNode) -> None:
    node.start()
    plugin = node.registered()
    plugin.garbage = b"\x0a\xff"  # field 1, longer than the message
    node.come()
    node.says("NodePrepareResources", "PrepareResponse")
    plugin.garbage = b""
    node.runs()


def test_keep_pod_pending_if_NodePrepareResources_times_out(node: PluginNode) -> None:  # noqa: N802
    node.call_seconds = 0.5
    node.start()
    plugin = node.registered()
    hanging, well = threading.Event(), plugin.prepare

    def hang(claim: Claim) -> PreparedClaim | None:
        hanging.wait(TIMEOUT)
        return well(claim)

    plugin.prepare = hang
    node.come()
    node.says("NodePrepareResources: no answer within 0.5 s")
    assert not node.is_ready()
    hanging.set()
    node.runs()


def test_run_pod_if_NodeUnprepareResources_fails_then_succeeds(node: PluginNode) -> None:  # noqa: N802
    node.start()
    plugin = node.registered()
    node.come()
    node.runs()
    well, plugin.unprepare = plugin.unprepare, lambda _claim: UnpreparedClaim(error="it is still busy")
    node.api.delete("pods", "p")
    node.says(NAME, "it is still busy", reason="FailedUnprepareDynamicResources")
    assert node.api.find("pods", "p") is not None

    plugin.unprepare = well
    node.ends()
    assert plugin.devices.held == set()


def test_a_pod_whose_driver_has_left_waits_and_says_so(node: PluginNode) -> None:
    agent = node.start()
    plugin = node.registered()
    node.come()
    node.runs()
    left = threading.Event()
    agent.registry.subscribe(lambda: None if agent.registry.get(NAME) else left.set())
    plugin.stop()
    assert left.wait(TIMEOUT)
    node.api.delete("pods", "p")
    node.says(NAME, reason="FailedUnprepareDynamicResources")
    plugin.start()
    node.ends()
    assert plugin.devices.held == set()


def test_two_drivers_of_one_claim_are_both_asked_and_what_one_did_is_undone_when_the_other_fails(
    node: PluginNode,
) -> None:
    node.start()
    one, two = node.registered("one.example.com"), node.registered("two.example.com")
    well, two.prepare = two.prepare, refuse
    document = claim("of-p", "dev-0", "dev-1", pods=("uid-p",), driver="one.example.com")
    document["status"]["allocation"]["devices"]["results"][1]["driver"] = "two.example.com"
    node.api.put("resourceclaims", document)
    node.api.put("pods", pod("p", claims={"gpus": "of-p"}))
    node.says("two.example.com", "the device is on fire")
    one.wait_for(lambda: one.count("v1 unprepare"))

    two.prepare = well
    node.runs()
    assert one.devices.held == two.devices.held == {UID}


def test_all_claims_of_a_pod_are_one_call_and_one_that_fails_does_not_undo_the_other(node: PluginNode) -> None:
    node.start()
    plugin = node.registered()
    well = plugin.prepare
    plugin.prepare = lambda asked: refuse(asked) if asked.name == "second" else well(asked)
    for index, name in enumerate(("first", "second")):
        node.api.put("resourceclaims", claim(name, f"dev-{index}", pods=("uid-p",), driver=NAME))
    node.api.put("pods", pod("p", claims={"a": "first", "b": "second"}))
    node.says("ResourceClaim default/second", "the device is on fire")
    assert plugin.calls[0] == ("v1 prepare", ("first", "second"))

    plugin.prepare = well
    node.runs()
    assert plugin.calls.count(("v1 prepare", ("first", "second"))) == 1  # first was not asked for again


def test_drivers_in_the_agent_and_behind_sockets_serve_one_node(node: PluginNode) -> None:
    node.start(SimulatedDriver(NODE))
    node.registered()
    node.come("p")
    node.come("q", device="gpu-0", driver=DRIVER)
    node.runs("p")
    node.runs("q")


# What is counted ------------------------------------------------------------------------------------------------------


def failed_calls(node: PluginNode, operation: str) -> set[str]:
    """The gRPC codes other than OK that KEP-4381's metric has of the driver."""
    assert node.agent is not None
    labels = {"driver_name": NAME, "method_name": f"Node{operation}Resources"}
    found = samples(node.agent.metrics.text().decode(), "dra_operations_seconds_count")
    return {one.labels["grpc_status_code"] for one in found if one.value and labels.items() <= one.labels.items()} - {
        "OK"
    }


def leave(node: PluginNode, plugin: Plugin) -> None:
    plugin.stop()
    until(lambda: node.agent is not None and node.agent.registry.get(NAME) is None)


def crash(_node: PluginNode, plugin: Plugin) -> None:
    plugin.crash()


def refuse_calls(_node: PluginNode, plugin: Plugin) -> None:
    plugin.fail = (grpc.StatusCode.RESOURCE_EXHAUSTED, "full")


#: what the driver does -> (how, the code that is counted)
FAILURES: dict[str, tuple[Callable[[PluginNode, Plugin], None], str]] = {
    "it is gone": (leave, "Unavailable"),
    "it was killed": (crash, "Unavailable"),
    "it refuses the call": (refuse_calls, "ResourceExhausted"),
}


@pytest.mark.parametrize("case", FAILURES)
@pytest.mark.parametrize("operation", ["Prepare", "Unprepare"])
def test_a_call_that_fails_or_cannot_be_made_is_counted_as_a_failure(
    node: PluginNode, operation: str, case: str
) -> None:
    act, code = FAILURES[case]
    node.start()
    plugin = node.registered()
    node.come("other")
    node.runs("other")
    if operation == "Unprepare":
        node.come(device="dev-1")
        node.runs()
    act(node, plugin)
    if operation == "Unprepare":
        node.api.delete("pods", "p")
    else:
        node.come(device="dev-1")
    until(lambda: failed_calls(node, operation) == {code})


def test_a_driver_that_was_never_there_since_the_agent_started_is_counted_as_unavailable(node: PluginNode) -> None:
    node.start()
    plugin = node.registered()
    node.come()
    node.runs()
    node.stop()
    plugin.stop()
    node.start()
    node.api.delete("pods", "p")
    node.come("q", device="dev-1")
    until(lambda: failed_calls(node, "Unprepare") == failed_calls(node, "Prepare") == {"Unavailable"})


def test_an_answer_that_leaves_claims_out_is_a_failure_of_a_driver_in_the_agents_process(node: PluginNode) -> None:
    metrics = AgentMetrics()
    silent = SimpleNamespace(name=NAME, prepare=lambda _claims: {}, unprepare=lambda _claims: {}, health=lambda: ())
    calls = DriverCalls(DriverRegistry([silent]), node=NODE, metrics=metrics)
    made = msgspec.convert(claim("c", "dev-0", driver=NAME), ResourceClaim)
    record = with_pod(None, intended_record(made), pod="uid-p")
    calls.prepare([(made, record)])
    calls.unprepare([record])
    found = [one.labels for one in samples(metrics.text().decode(), "dra_operations_seconds_count")]
    assert [one["grpc_status_code"] for one in found] == ["Unknown", "Unknown"]
