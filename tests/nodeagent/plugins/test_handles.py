"""Claims that a driver's controller allocated: its plugin gets the handles, by the services of Kubernetes 1.27 to 1.31.

Source of the rules: kubernetes v1.30 pkg/kubelet/cm/dra; what differs stands in docs/reference/plugin-protocol.md.
"""

from __future__ import annotations

from typing import Any

import pytest

from nodeagent.plugins.protocol import Claim, Device, PreparedClaim, UnpreparedClaim
from tests.nodeagent.fake_api import Refused
from tests.nodeagent.objects import NODE, claim, pod
from tests.nodeagent.plugins.conftest import PluginNode
from tests.nodeagent.plugins.plugin import NAME, Plugin, cdi_device

UID = "claim-of-p"
Document = dict[str, Any]


def handle(data: str = "", driver: str = "", structured: Document | None = None) -> Document:
    given = {"driverName": driver, "data": data, "structuredData": structured}
    return {name: value for name, value in given.items() if value}


def classic(document: Document) -> Document:
    """A claim as v1alpha2 shows it: its allocation has the handles that `allocated` kept beside it."""
    if "status" not in document:
        return document  # a list
    status = document["status"]
    allocation = {"resourceHandles": document["handles"], "availableOnNodes": status["allocation"]["nodeSelector"]}
    return {
        "apiVersion": "resource.k8s.io/v1alpha2",
        "kind": "ResourceClaim",
        "metadata": document["metadata"],
        "spec": {"resourceClassName": "accelerator"},
        "status": {**status, "driverName": NAME, "allocation": {**allocation, "shareable": True}},
    }


def allocated(node: PluginNode, *handles: Document, name: str = "of-p", pods: tuple[str, ...] = ("uid-p",)) -> None:
    """A claim that driver NAME allocated; v1 shows no devices in it."""
    node.api.views["v1alpha2"] = classic
    document = {**claim(name, pods=pods), "handles": list(handles)}
    document["metadata"]["finalizers"] = [f"{NAME}/deletion-protection"]
    node.api.put("resourceclaims", document)


def come(node: PluginNode, *handles: Document) -> None:
    allocated(node, *handles)
    node.api.put("pods", pod("p", claims={"gpus": "of-p"}))


def stock(node: PluginNode, name: str = NAME, **options: Any) -> Plugin:
    """As drivers on the library of Kubernetes 1.28 to 1.30 are."""
    return node.registered(name, **{"versions": ("1.0.0",), "serves": ("v1alpha3", "v1alpha2"), **options})


def asked(plugin: Plugin) -> list[tuple[str, str]]:
    """(call, handle), in order; one for each claim of each call."""
    calls = zip(plugin.calls, plugin.requests, strict=True)
    return [(call, one.resource_handle) for (call, _), request in calls for one in request.claims]


@pytest.mark.parametrize(
    ("versions", "served", "used"),
    [
        (("1.0.0",), ("v1alpha3", "v1alpha2"), "v1alpha3"),
        (("1.0.0",), ("v1alpha2",), "v1alpha2"),
        (("v1alpha2.Node",), ("v1alpha3", "v1alpha2"), "v1alpha2"),
        (("v1.DRAPlugin", "1.0.0"), ("v1alpha3",), "v1alpha3"),
    ],
)
def test_the_plugin_gets_the_handle_and_the_container_what_it_answers(
    node: PluginNode, versions: tuple[str, ...], served: tuple[str, ...], used: str
) -> None:
    node.start()
    plugin = stock(node, versions=versions, serves=served)
    come(node, handle('{"slot":7}'))
    node.runs()
    assert plugin.requests[0].claims == (
        Claim(namespace="default", uid=UID, name="of-p", resource_handle='{"slot":7}'),
    )
    assert node.agent is not None
    assert node.agent.runtime.runs("uid-p")["main"].cdi_devices == (cdi_device(UID),)

    node.api.delete("pods", "p")
    node.ends()
    assert asked(plugin) == [(f"{used} prepare", '{"slot":7}'), (f"{used} unprepare", '{"slot":7}')]
    assert plugin.devices.held == set()


def test_the_older_service_is_asked_once_it_is_known_and_the_newer_again_after_the_driver_was_updated(
    node: PluginNode,
) -> None:
    node.start()
    plugin = stock(node, serves=("v1alpha2",))
    come(node, handle("h"))
    node.runs()
    assert node.agent is not None
    plugin.stop()
    plugin.serves = ("v1alpha3",)
    plugin.statuses.clear()
    plugin.start()
    plugin.wait_for(lambda: plugin.registered)
    node.api.delete("pods", "p")
    node.ends()
    assert asked(plugin) == [("v1alpha2 prepare", "h"), ("v1alpha3 unprepare", "h")]


def test_an_allocation_without_handles_is_for_the_driver_that_made_it(node: PluginNode) -> None:
    node.start()
    plugin = stock(node)
    come(node)
    node.runs()
    assert asked(plugin) == [("v1alpha3 prepare", "")]


def test_handles_of_several_drivers_go_to_each_and_what_one_did_is_undone_when_the_other_fails(
    node: PluginNode,
) -> None:
    node.start()
    plugin, other = stock(node), stock(node, "other.example.com")
    well, other.prepare = other.prepare, lambda _claim: PreparedClaim(error="the cable is loose")
    come(node, handle("mine"), handle("theirs", "other.example.com"))
    node.says("ResourceClaim default/of-p", "driver other.example.com", "the cable is loose")
    plugin.wait_for(lambda: plugin.count("v1alpha3 unprepare"))

    other.prepare = well
    node.runs()
    assert {call for call in asked(plugin) if "unprepare" not in call[0]} == {("v1alpha3 prepare", "mine")}
    assert asked(other)[0] == ("v1alpha3 prepare", "theirs")


@pytest.mark.parametrize("version", ["v1alpha3", "v1alpha2"])
def test_several_handles_of_one_driver_are_asked_each_and_a_container_gets_what_all_of_them_give(
    node: PluginNode, version: str
) -> None:
    """Kubelet 1.30 asks for them in one call, and takes the answer, which names claims by uid, for incomplete."""
    node.start()
    plugin = stock(node, serves=(version,))
    ids = {"a": "ext.example.com/dev=a", "b": "ext.example.com/dev=b"}

    def prepare(one: Claim) -> PreparedClaim:
        plugin.devices.prepare(one)
        return PreparedClaim(devices=(Device(cdi_device_ids=(ids[one.resource_handle],)),))

    plugin.prepare = prepare
    (node.cdi_dir).mkdir(parents=True, exist_ok=True)
    edits = ", ".join(f'{{"name": "{name}", "containerEdits": {{"env": ["D={name}"]}}}}' for name in ids)
    document = f'{{"cdiVersion": "0.5.0", "kind": "ext.example.com/dev", "devices": [{edits}]}}'
    (node.cdi_dir / "both.json").write_text(document)
    come(node, handle("a"), handle("b"))
    node.runs()
    assert node.agent is not None
    assert node.agent.runtime.runs("uid-p")["main"].cdi_devices == tuple(ids.values())
    node.api.delete("pods", "p")
    node.ends()
    assert asked(plugin) == [(f"{version} {what}", data) for what in ("prepare", "unprepare") for data in "ab"]


def test_a_structured_handle_is_handed_over_as_it_stands(node: PluginNode) -> None:
    """What 1.30's scheduler allocated, for a driver whose plugin is of that time."""
    results = [{"vendorRequestParameters": {"mode": "x"}, "namedResources": {"name": "gpu-0"}}]
    structured: Document = {"vendorClassParameters": {"a": [1]}, "nodeName": NODE, "results": results}
    node.start()
    plugin = stock(node)
    come(node, handle(structured=structured))
    node.runs()
    (told,) = plugin.requests[0].claims[0].structured_resource_handle
    assert (told.vendor_class_parameters, told.node_name) == ({"a": [1]}, NODE)
    (result,) = told.results
    assert result.named_resources is not None
    assert (result.vendor_request_parameters, result.named_resources.name) == ({"mode": "x"}, "gpu-0")


def test_a_claim_with_devices_has_its_structured_handle_read_for_a_plugin_of_that_time_only(node: PluginNode) -> None:
    node.start()
    plugin, new = stock(node), node.registered("new.example.com")
    node.api.views["v1alpha2"] = classic
    for name, driver in (("p", NAME), ("q", "new.example.com")):
        document = claim(f"of-{name}", "dev-0", pods=(f"uid-{name}",), driver=driver)
        document["handles"] = [handle(driver=driver, structured={"nodeName": NODE, "results": []})]
        node.api.put("resourceclaims", document)
        node.api.put("pods", pod(name, claims={"gpus": f"of-{name}"}))
        node.runs(name)
    assert plugin.requests[0].claims[0].structured_resource_handle[0].node_name == NODE
    assert new.calls == [("v1 prepare", ("of-q",))]
    read = [one for one in node.api.requests if "/v1alpha2/namespaces/" in one]
    assert set(read) == {"GET /apis/resource.k8s.io/v1alpha2/namespaces/default/resourceclaims/of-p"}


def test_a_plugin_of_1_31_whose_claims_name_devices_needs_no_v1alpha2(node: PluginNode) -> None:
    node.start()
    plugin = stock(node, serves=("v1alpha3",))

    def not_served(request: Any) -> None:
        if "/v1alpha2/" in request.url.path:
            raise Refused(404, "NotFound", "the server could not find the requested resource")

    node.api.before = not_served
    node.come()
    node.runs()
    assert asked(plugin) == [("v1alpha3 prepare", "")]


def test_a_claim_of_a_controller_waits_with_a_reason_while_nobody_tells_its_handles(node: PluginNode) -> None:
    """A kubelet of a cluster without the feature would start the pod without its devices."""
    node.start()
    plugin = stock(node)

    def not_served(request: Any) -> None:
        if "/v1alpha2/" in request.url.path:
            raise Refused(404, "NotFound", "the server could not find the requested resource")

    node.api.before = not_served
    come(node, handle("h"))
    node.says("was allocated by driver ext.example.com", "turn on the feature gate DRAControlPlaneController")
    assert not plugin.calls

    node.api.before = lambda _request: None
    node.runs()


def test_two_pods_share_a_claim_that_is_prepared_once_and_given_back_with_the_last(node: PluginNode) -> None:
    node.start()
    plugin = stock(node)
    allocated(node, handle("h"), name="shared", pods=("uid-p", "uid-q"))
    for name in "pq":
        node.api.put("pods", pod(name, claims={"gpus": "shared"}))
        node.runs(name)
    node.api.delete("pods", "p")
    node.ends("p")
    assert asked(plugin) == [("v1alpha3 prepare", "h")]
    node.api.delete("pods", "q")
    node.ends("q")
    assert asked(plugin) == [("v1alpha3 prepare", "h"), ("v1alpha3 unprepare", "h")]


def test_the_handle_is_remembered_over_a_restart_of_the_agent_though_the_claim_is_gone(node: PluginNode) -> None:
    node.start()
    plugin = stock(node)
    come(node, handle("h"))
    node.runs()
    node.stop()
    node.api.put("resourceclaims", {**claim("of-p"), "metadata": {"name": "of-p", "namespace": "default", "uid": UID}})
    node.api.delete("resourceclaims", "of-p")
    node.api.delete("pods", "p")
    plugin.statuses.clear()
    node.start()
    node.ends()
    assert asked(plugin) == [("v1alpha3 prepare", "h"), ("v1alpha3 unprepare", "h")]


def test_what_was_left_of_an_earlier_allocation_is_given_back_with_its_own_handle(node: PluginNode) -> None:
    """The pod's claim was deallocated and allocated anew while its preparing failed."""
    node.start()
    plugin = stock(node)
    well = plugin.prepare
    plugin.prepare = lambda one: well(one) if one.resource_handle == "new" else PreparedClaim(error="not now")
    plugin.unprepare = lambda _claim: UnpreparedClaim(error="not now")
    come(node, handle("old"))
    node.says("not now")
    allocated(node, handle("new"))
    plugin.unprepare = plugin.devices.unprepare
    node.runs()
    last = asked(plugin)[-2:]
    assert last == [("v1alpha3 unprepare", "old"), ("v1alpha3 prepare", "new")]
