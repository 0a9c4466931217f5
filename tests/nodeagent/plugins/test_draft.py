"""Claims of KEP-3063's first draft on the node: its plugin is asked about one claim by its uid, and answers with CDI
devices; what the document says that kubelet and plugin MUST do stands in the names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import grpc
import pytest

from manciple.wire import protobuf
from manciple.wire.base import Value
from nodeagent.plugins.protocol import CDIDevice, DraftDevices, DraftResource, Empty
from tests.nodeagent.objects import NODE, pod
from tests.nodeagent.plugins.conftest import PluginNode, until
from tests.nodeagent.plugins.plugin import Methods, Plugin

PLUGIN, UID = "gpu.acme.com", "claim-of-p"
SERVICE = "cdi.v1alpha1.ResourceNodePlugin"


class DraftPlugin(Plugin):
    """ACME's node plugin: a GPU, and a control device for each claim. asked_about: (call, uid) as they came."""

    def __init__(self, folder: Path, cdi_dir: Path) -> None:
        super().__init__(folder, PLUGIN, kind="CDIPlugin", versions=(SERVICE,), serves=("draft",))
        self.asked_about: list[tuple[str, str]] = []
        self._cdi_dir = cdi_dir
        #: what a call that has done its work fails with
        self.loses_answers: tuple[grpc.StatusCode, str] | None = None

    @property
    def prepared(self) -> set[str]:
        return {path.stem.removeprefix("acme-") for path in self._cdi_dir.glob("acme-*.json")}

    def _node(self, _version: str) -> grpc.GenericRpcHandler:
        handlers = {"NodePrepareResource": self._prepare, "NodeUnprepareResource": self._unprepare}
        methods: Methods = {
            name: grpc.unary_unary_rpc_method_handler(handle, response_serializer=protobuf.encode)
            for name, handle in handlers.items()
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    def _prepare(self, request: bytes, context: grpc.ServicerContext) -> Value:
        uid = self._uid("prepare", request, context)
        devices = [{"name": name, "containerEdits": {"env": [f"GPU={uid}"]}} for name in ("gpu0", uid)]
        self._cdi_dir.mkdir(parents=True, exist_ok=True)
        document = {"cdiVersion": "0.5.0", "kind": "acme.com/gpu", "devices": devices}
        (self._cdi_dir / f"acme-{uid}.json").write_text(json.dumps(document))
        if self.loses_answers is not None:
            context.abort(*self.loses_answers)
        return DraftDevices(devices=tuple(CDIDevice(kind="acme.com/gpu", name=name) for name in ("gpu0", uid)))

    def _unprepare(self, request: bytes, context: grpc.ServicerContext) -> Value:
        uid = self._uid("unprepare", request, context)
        (self._cdi_dir / f"acme-{uid}.json").unlink(missing_ok=True)
        return Empty()

    def _uid(self, call: str, request: bytes, context: grpc.ServicerContext) -> str:
        uid = protobuf.decode(DraftResource, request).resource_uid
        with self.changed:
            self.asked_about.append((call, uid))
            self.changed.notify_all()
        if self.fail is not None:
            context.abort(*self.fail)
        return uid


@pytest.fixture
def plugin(node: PluginNode) -> Any:
    node.start()
    made = DraftPlugin(node.plugin_dir, node.cdi_dir).start()
    made.wait_for(lambda: made.registered)
    yield made
    made.stop()


def claim(*, users: tuple[str, ...] = ("uid-p",), phase: str = "Allocated", owner: str = "") -> dict[str, Any]:
    pods = [{"apiVersion": "v1", "kind": "Pod", "name": uid.removeprefix("uid-"), "uid": uid} for uid in users]
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": owner}] if owner else []
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [NODE]}]}]
    return {
        "apiVersion": "cdi.k8s.io/v1alpha1",
        "kind": "ResourceClaim",
        "metadata": {"name": "p-gpu", "namespace": "default", "uid": UID, "ownerReferences": owners},
        "spec": {"resourceClassName": "acme-gpu"},
        "status": {
            "phase": phase,
            "pluginName": PLUGIN,
            "usedBy": pods,
            "availableOnNodes": {"nodeSelectorTerms": terms},
        },
    }


def come(node: PluginNode, document: dict[str, Any], *, template: bool = False) -> None:
    node.api.put("resourceclaims", document)
    coming = pod("p")
    entry = {"template": {"resourceClassName": "acme-gpu"}} if template else {"resourceClaimName": "p-gpu"}
    coming["spec"]["resources"] = [{"name": "gpu", **entry}]
    first = coming["spec"]["containers"][0]
    coming["spec"]["containers"] = [{**first, "podResources": ["gpu"]}, {**first, "name": "aside"}]
    node.api.put("pods", coming)


def devices(node: PluginNode, container: str) -> tuple[str, ...]:
    assert node.agent is not None
    return node.agent.runtime.runs("uid-p")[container].cdi_devices


def environment(node: PluginNode, container: str) -> dict[str, str]:
    assert node.agent is not None
    return dict(node.agent.runtime.runs("uid-p")[container].environment)


def test_the_plugin_shall_create_cdi_files_and_kubelet_must_pass_device_names_and_kinds_to_the_runtime(
    node: PluginNode, plugin: DraftPlugin
) -> None:
    """For the containers that name the resource, before they are created."""
    come(node, claim())
    node.runs()
    assert plugin.prepared == {UID}
    assert list(node.cdi_dir.glob("k8s.*")) == [], "the agent writes none beside the plugin's"
    assert (devices(node, "main"), devices(node, "aside")) == (("acme.com/gpu=gpu0", f"acme.com/gpu={UID}"), ())
    assert environment(node, "main")["GPU"] == UID
    assert "GPU" not in environment(node, "aside")


def test_unprepare_shall_be_called_at_least_once_for_each_successful_prepare(
    node: PluginNode, plugin: DraftPlugin
) -> None:
    come(node, claim(owner="uid-p"), template=True)
    node.runs()
    node.api.delete("pods", "p")
    node.ends()
    assert plugin.asked_about == [("prepare", UID), ("unprepare", UID)]
    assert plugin.prepared == set()


def test_if_prepare_failed_it_may_be_called_again_once_the_resource_has_been_verified_not_to_be_deleted(
    node: PluginNode, plugin: DraftPlugin
) -> None:
    plugin.fail = (grpc.StatusCode.NOT_FOUND, "no such resource")
    come(node, claim())
    node.says("p-gpu", "no such resource")
    node.api.delete("resourceclaims", "p-gpu")
    node.says("p-gpu", "does not exist")
    asked = len(plugin.asked_about)
    plugin.fail = None
    node.api.put("resourceclaims", claim())
    node.runs()
    assert plugin.asked_about[asked:] == [("prepare", UID)]


def test_when_kubelet_does_not_know_whether_prepare_failed_it_may_call_unprepare_and_then_prepare_again(
    node: PluginNode, plugin: DraftPlugin
) -> None:
    plugin.loses_answers = (grpc.StatusCode.UNAVAILABLE, "connection reset")
    come(node, claim())
    node.says("p-gpu", "connection reset")
    plugin.loses_answers = None
    node.runs()
    assert plugin.asked_about[:3] == [("prepare", UID), ("unprepare", UID), ("prepare", UID)]
    assert plugin.prepared == {UID}


def test_prepare_must_be_idempotent_a_resource_that_has_already_been_prepared_is_prepared_once(
    node: PluginNode, plugin: DraftPlugin
) -> None:
    come(node, claim(owner="uid-p"), template=True)
    node.runs()
    before = devices(node, "main")
    node.reboot(empties_cdi=False)
    assert plugin.prepared == {UID}
    agent = node.start()
    plugin.wait_for(lambda: plugin.asked_about == [("prepare", UID)] * 2)
    until(lambda: agent.runtime.runs("uid-p").keys() == {"main", "aside"})
    assert devices(node, "main") == before
    assert plugin.prepared == {UID}
    node.api.delete("pods", "p")
    node.ends()
    assert plugin.asked_about[2:] == [("unprepare", UID)], "what was prepared twice is undone once"
    assert plugin.prepared == set()


def test_a_pod_that_starts_again_after_its_node_rebooted_has_its_claim_prepared_again_first(
    node: PluginNode, plugin: DraftPlugin
) -> None:
    come(node, claim())
    node.runs()
    node.reboot()
    assert plugin.prepared == set()
    calls = len(plugin.asked_about)
    agent = node.start()
    plugin.wait_for(lambda: ("prepare", UID) in plugin.asked_about[calls:])
    until(lambda: agent.runtime.runs("uid-p").keys() == {"main", "aside"})
    assert plugin.prepared == {UID}
    assert environment(node, "main")["GPU"] == UID
    assert ("unprepare", UID) not in plugin.asked_about, "the claim stays allocated, and used"


def test_a_resource_that_does_not_exist_any_more_needs_no_unpreparing(node: PluginNode, plugin: DraftPlugin) -> None:
    come(node, claim())
    node.runs()
    plugin.fail = (grpc.StatusCode.NOT_FOUND, "no such resource")
    node.api.delete("pods", "p")
    node.ends()


@pytest.mark.parametrize(
    ("document", "template", "why"),
    [
        (claim(phase="Pending"), False, "is not allocated"),
        (claim(users=("uid-other",)), False, "is not allowed to use"),
        (claim(), True, "was not created for pod"),
    ],
)
def test_a_pod_that_is_no_user_or_no_owner_of_the_claim_is_not_started(
    node: PluginNode, plugin: DraftPlugin, document: dict[str, Any], template: bool, why: str
) -> None:
    come(node, document, template=template)
    node.says("p-gpu", why)
    assert plugin.asked_about == []


def test_after_a_restart_of_the_agent_the_claim_is_still_given_back(node: PluginNode, plugin: DraftPlugin) -> None:
    come(node, claim())
    node.runs()
    node.stop()
    node.start()
    node.api.delete("pods", "p")
    node.ends()
    assert plugin.prepared == set()
