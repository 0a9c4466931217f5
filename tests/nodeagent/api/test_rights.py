"""What an agent asks of the API, which is no more than it may; and what it makes of a refusal."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from claims.access import node_rights
from inventory.kinds.device_readings import Meters
from inventory.kinds.devices import Device
from manciple.access.authorization import Attributes
from manciple.api import requests
from manciple.wire.identity import AUTHENTICATED, NODES, Identity
from manciple.wire.selectors import parse_field_selector
from nodeagent.drivers.simulated import DeviceFaults, Faults
from nodeagent.failures import ApiFailure
from tests.nodeagent.fake_api import Refused
from tests.nodeagent.machine import Machine, release, run_pod
from tests.nodeagent.objects import NODE, pod

AGENT = Identity(f"system:node:{NODE}", (NODES, AUTHENTICATED))

# What it asks ---------------------------------------------------------------------------------------------------------

#: All that an agent does, in the words of a role.
ASKED = {
    "create events",
    "create leases",
    "create nodes",
    "create nodes/devicereadings",
    "create resourceslices",
    "delete pods",
    "delete resourceslices",
    "deletecollection resourceslices",
    "get nodes",
    "get resourceclaims",
    "list noderesourceslices",
    "list nodes",
    "list pods",
    "list resourceslices",
    "patch events",
    "patch leases",
    "patch nodes",
    "update nodes/status",
    "update pods/status",
    "update resourceslices",
    "watch noderesourceslices",
    "watch nodes",
    "watch pods",
    "watch resourceslices",
}
_VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def attributes(request: httpx.Request) -> Attributes:
    """As the API server's authorizers see it."""
    path = requests.parse_path(request.url.path)
    assert path is not None, request.url.path
    fields = parse_field_selector(request.url.params.get("fieldSelector", ""))
    verb = _VERBS[request.method]
    if not path.name and verb in ("get", "delete"):
        verb = {"get": "list", "delete": "deletecollection"}[verb]
    named = next((one.value for one in fields.requirements if one.field == "metadata.name"), "")
    return Attributes(
        verb=verb,
        group=path.group,
        version=path.version,
        resource=path.plural,
        subresource=path.subresource,
        namespace=path.namespace,
        name=path.name or named,
        fields=fields,
    )


def live(machine: Machine) -> None:
    """All that befalls a node: pods come and go, one gets no claim, devices change, labels, drivers, the agent."""
    machine.api.connects["devicereadings"] = lambda _address, _body: {"kind": "Status", "status": "Success"}
    machine.driver.set_faults(Faults(devices={"gpu-0": DeviceFaults(meters=Meters(utilization=35))}))
    machine.start()
    run_pod(machine)
    machine.api.put("pods", pod("waits", claims={"gpus": "not-there"}))
    for count in (1, 300, 2):
        machine.driver.set_devices([Device(name=f"gpu-{number}") for number in range(count)])
        machine.look()
    node = machine.api.find("nodes", NODE)
    assert node is not None
    node["metadata"]["labels"] = {}
    machine.api.put("nodes", node)
    published = machine.api.all("resourceslices")[0]
    gone = {"metadata": {"name": "gone"}, "spec": {**published["spec"], "driver": "gone.example.com"}}
    machine.api.put("resourceslices", gone)
    machine.restart()
    for name in ("p", "waits"):
        machine.api.delete("pods", name)
    machine.look()
    machine.settle()
    release(machine)


def test_an_agent_asks_for_nothing_that_it_may_not_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And for nothing that is not on the list above. Which of its pods name what is the authorizer's own test."""
    asked: list[Attributes] = []
    machine = Machine(tmp_path)
    machine.api.before = lambda request: asked.append(attributes(request))
    live(machine)
    asked += [dataclasses.replace(wanted, verb="watch") for wanted in asked if wanted.verb == "list"]
    monkeypatch.setattr(node_rights, "is_related", lambda node, _key: node == NODE)
    refused = [wanted for wanted in asked if not node_rights.authorize(AGENT, wanted).allowed]
    assert refused == []
    assert {f"{wanted.verb} {wanted.combined}" for wanted in asked} == ASKED


# What it makes of a refusal -------------------------------------------------------------------------------------------


def refusing(machine: Machine, *, first: Callable[[], Any] = lambda: None, times: int = 1, **wanted: str) -> list[str]:
    """Refuse requests with these attributes, `times` times; `first` is what happened just before the first."""
    refused: list[str] = []

    def before(request: httpx.Request) -> None:
        asked = attributes(request)
        if len(refused) < times and all(getattr(asked, name) == value for name, value in wanted.items()):
            refused.append(f"{asked.verb} {asked.combined}")
            if len(refused) == 1:
                first()
            raise Refused(403, "Forbidden", "you may not")

    machine.api.before = before
    return refused


def test_a_status_that_is_refused_because_others_changed_the_pod_is_reported_anew(machine: Machine) -> None:
    machine.start()
    machine.api.put("pods", pod("p"))

    def label() -> None:
        document = machine.pod("p")
        document["metadata"]["labels"] = {"team": "a"}
        machine.api.put("pods", document)

    assert refusing(machine, first=label, verb="update", resource="pods") == []
    machine.settle()
    assert machine.condition("p", "Ready") == "True"
    assert machine.pod("p")["metadata"]["labels"] == {"team": "a"}


def test_a_status_that_is_refused_though_nothing_changed_is_a_failure(machine: Machine) -> None:
    machine.start()
    machine.api.put("pods", pod("p"))
    refusing(machine, verb="update", resource="pods")
    assert machine.look() == ["you may not"]


def test_a_pod_whose_name_another_node_took_is_gone(machine: Machine) -> None:
    machine.start()
    machine.api.put("pods", pod("p"))
    machine.settle()
    machine.api.delete("pods", "p")

    def elsewhere() -> None:
        machine.api.delete("pods", "p", grace=0)
        machine.api.put("pods", pod("p", metadata={"uid": "uid-other"}, spec={"nodeName": "beta"}))

    assert refusing(machine, first=elsewhere, times=2, namespace="default", name="p") == []
    machine.settle()
    assert machine.failures == []
    assert machine.agent.runtime.pod_uids() == frozenset()
    assert machine.pod("p")["metadata"]["uid"] == "uid-other"


def test_a_deletion_that_is_refused_though_the_pod_is_there_is_a_failure(machine: Machine) -> None:
    machine.start()
    machine.api.put("pods", pod("p"))
    machine.settle()
    machine.api.delete("pods", "p")
    refusing(machine, verb="delete", resource="pods")
    assert machine.look() == ["you may not"]
    machine.settle()
    assert machine.agent.runtime.pod_uids() == frozenset()


def test_a_node_that_was_tainted_meanwhile_is_reported_anew(machine: Machine) -> None:
    machine.start()

    def taint() -> None:
        document = machine.api.find("nodes", NODE)
        assert document is not None
        document.setdefault("spec", {})["taints"] = [{"key": "k", "effect": "NoSchedule"}]
        machine.api.put("nodes", document)

    refusing(machine, first=taint, verb="update", resource="nodes")
    machine.agent.report()
    assert (machine.api.find("nodes", NODE) or {})["spec"]["taints"] == [{"key": "k", "effect": "NoSchedule"}]
    refusing(machine, verb="update", resource="nodes")
    with pytest.raises(ApiFailure):
        machine.agent.report()
