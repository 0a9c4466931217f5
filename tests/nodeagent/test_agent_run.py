"""The agent with its threads: it watches, survives broken and expired watches, and stops at once when told to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from nodeagent.agent import Agent
from nodeagent.config import AgentConfig
from nodeagent.drivers.simulated import SimulatedDriver
from tests.nodeagent.fake_api import FakeApi
from tests.nodeagent.objects import NODE, claim, pod

TIMEOUT = 60.0


def eventually(api: FakeApi, condition: Callable[[], Any]) -> None:
    """Wait until `condition` holds; it is looked at after every change in the API."""
    with api.changed:
        assert api.changed.wait_for(condition, TIMEOUT)


def is_ready(api: FakeApi, name: str) -> bool:
    found = api.find("pods", name) or {"status": {}}
    return any(c["type"] == "Ready" and c["status"] == "True" for c in found["status"].get("conditions", []))


def agent_of(api: FakeApi, folder: Path, node: str = NODE) -> Agent:
    config = AgentConfig(
        server="http://api", token="t", node_name=node, state_dir=folder / node, cdi_dir=folder / "cdi" / node
    )
    return Agent(config, [SimulatedDriver(node)], transport=api)


@contextmanager
def running(*agents: Agent) -> Iterator[None]:
    stop = threading.Event()
    threads = [threading.Thread(target=agent.run, args=(stop,)) for agent in agents]
    for thread in threads:
        thread.start()
    try:
        for agent in agents:
            assert agent.ready.wait(TIMEOUT)
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(TIMEOUT)
    assert not any(thread.is_alive() for thread in threads)


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


def come(api: FakeApi, name: str, device: str = "gpu-0") -> None:
    api.put("resourceclaims", claim(f"of-{name}", device, pods=(f"uid-{name}",)))
    api.put("pods", pod(name, claims={"gpus": f"of-{name}"}))


def test_a_pod_comes_and_goes(api: FakeApi, tmp_path: Path) -> None:
    with running(agent_of(api, tmp_path)):
        come(api, "p")
        eventually(api, lambda: is_ready(api, "p"))
        assert len(list((tmp_path / "cdi" / NODE).glob("*.json"))) == 1

        api.delete("pods", "p")
        eventually(api, lambda: not api.all("pods"))
        assert list((tmp_path / "cdi" / NODE).glob("*.json")) == []


def test_several_agents_live_in_one_process(api: FakeApi, tmp_path: Path) -> None:
    agents = [agent_of(api, tmp_path, node) for node in ("alpha", "beta", "gamma")]
    with running(*agents):
        come(api, "p")
        eventually(api, lambda: is_ready(api, "p"))

    assert [n["metadata"]["name"] for n in api.all("nodes")] == ["alpha", "beta", "gamma"]
    assert [s["spec"]["nodeName"] for s in api.all("resourceslices")] == ["alpha", "beta", "gamma"]
    assert sorted(path.name for path in (tmp_path / "cdi").iterdir()) == ["alpha"]


@pytest.mark.parametrize("trouble", ["disconnect", "prune"])
def test_a_watch_that_breaks_or_expires_is_taken_up_again(api: FakeApi, tmp_path: Path, trouble: str) -> None:
    with running(agent_of(api, tmp_path)):
        come(api, "p")
        eventually(api, lambda: is_ready(api, "p"))
        {"disconnect": api.disconnect, "prune": api.prune}[trouble]()

        come(api, "q", "gpu-1")
        api.delete("pods", "p")

        eventually(api, lambda: is_ready(api, "q") and not api.find("pods", "p"))


def test_an_agent_waits_for_an_api_server_that_is_away(api: FakeApi, tmp_path: Path) -> None:
    refused = 0

    def away(_request: httpx.Request) -> None:
        nonlocal refused
        if refused < 3:
            refused += 1
            raise httpx.ConnectError("connection refused")

    api.before = away
    with running(agent_of(api, tmp_path)):
        come(api, "p")
        eventually(api, lambda: is_ready(api, "p"))


def test_containers_outlive_the_agent(api: FakeApi, tmp_path: Path) -> None:
    with running(agent_of(api, tmp_path)):
        come(api, "p")
        eventually(api, lambda: is_ready(api, "p"))
    before = api.find("pods", "p")

    again = agent_of(api, tmp_path)
    with running(again):
        come(api, "q", "gpu-1")
        eventually(api, lambda: is_ready(api, "q"))

    assert api.find("pods", "p") == before


def test_a_container_that_ends_by_itself_is_reported(api: FakeApi, tmp_path: Path) -> None:
    short = {"annotations": {"manciple.dev/run-seconds": "0.05"}}
    with running(agent_of(api, tmp_path)):
        api.put("pods", pod("p", metadata=short, spec={"restartPolicy": "Never"}))

        eventually(api, lambda: (api.find("pods", "p") or {})["status"]["phase"] == "Succeeded")


def test_a_device_that_changes_is_published(api: FakeApi, tmp_path: Path) -> None:
    driver = SimulatedDriver(NODE)
    config = AgentConfig(
        server="http://api", token="t", node_name=NODE, state_dir=tmp_path / "s", cdi_dir=tmp_path / "c"
    )
    with running(Agent(config, [driver], transport=api)):
        driver.set_devices(driver.pools()[0].devices[:3])

        eventually(api, lambda: [len(s["spec"]["devices"]) for s in api.all("resourceslices")] == [3])


def test_the_node_is_registered_with_a_lease(api: FakeApi, tmp_path: Path) -> None:
    api.put("nodes", {"metadata": {"name": NODE, "labels": {"rack": "7"}}, "spec": {"unschedulable": True}})

    with running(agent_of(api, tmp_path)):
        pass

    node = api.find("nodes", NODE, "")
    assert node is not None
    assert node["metadata"]["labels"].items() >= {"rack": "7", "kubernetes.io/hostname": NODE}.items()
    assert node["spec"] == {"unschedulable": True}, "a cordon stays"
    assert {c["type"]: c["status"] for c in node["status"]["conditions"]}["Ready"] == "True"
    assert node["status"]["allocatable"]["pods"] == "110"
    lease = api.find("leases", NODE, "kube-node-lease")
    assert lease is not None
    assert lease["spec"]["holderIdentity"] == NODE
    assert lease["metadata"]["ownerReferences"][0]["uid"] == node["metadata"]["uid"]


def test_a_node_that_somebody_deletes_stays_away_until_somebody_wants_it_back(api: FakeApi, tmp_path: Path) -> None:
    with running(agent_of(api, tmp_path)):
        before = api.find("nodes", NODE, "")
        api.delete("nodes", NODE, "", grace=0)
        eventually(api, lambda: [e["reason"] for e in api.all("events")] == ["NodeGone"])
        for slice_ in api.all("resourceslices"):  # as the server does with what the Node owned
            api.delete("resourceslices", slice_["metadata"]["name"], "", grace=0)
        come(api, "p")
        eventually(api, lambda: is_ready(api, "p"))
        assert api.all("nodes") == api.all("resourceslices") == []

        cordoned = {"metadata": {"name": NODE, "labels": {"rack": "7"}}, "spec": {"unschedulable": True}}
        api.put("nodes", cordoned)
        eventually(api, lambda: api.all("resourceslices"))
        eventually(api, lambda: "status" in (api.find("nodes", NODE, "") or {}))

    after = api.find("nodes", NODE, "")
    assert before is not None
    assert after is not None
    assert after["metadata"]["labels"].items() >= {"rack": "7", "kubernetes.io/hostname": NODE}.items()
    assert after["spec"] == {"unschedulable": True}, "what the administrator says stays"
    assert {c["type"]: c["status"] for c in after["status"]["conditions"]}["Ready"] == "True"
    (owner,) = api.all("resourceslices")[0]["metadata"]["ownerReferences"]
    assert owner["uid"] == after["metadata"]["uid"]


def statuses(api: FakeApi) -> dict[str, str]:
    return {one["type"]: one["status"] for one in (api.find("nodes", NODE, "") or {})["status"]["conditions"]}


@pytest.mark.parametrize("watched", [True, False], ids=["while it watches", "while the watch was down"])
def test_a_node_that_was_called_unknown_is_reported_at_once(api: FakeApi, tmp_path: Path, *, watched: bool) -> None:
    """An outage that is over, of the network or of the API server, keeps no node out of use until its next report."""
    with running(agent_of(api, tmp_path)):
        healthy, node = statuses(api), api.find("nodes", NODE, "")
        assert healthy["Ready"] == "True"
        assert node is not None
        for condition in node["status"]["conditions"]:
            condition["status"] = "Unknown"
        with api.changed:  # no watch tells of the change before the log is pruned
            api.put("nodes", node)
            if not watched:
                api.prune()

        eventually(api, lambda: statuses(api) == healthy)


def test_an_agent_that_is_restarted_registers_a_node_that_was_deleted(api: FakeApi, tmp_path: Path) -> None:
    with running(agent_of(api, tmp_path)):
        api.delete("nodes", NODE, "", grace=0)
        eventually(api, lambda: api.all("events"))
    with running(agent_of(api, tmp_path)):
        eventually(api, lambda: "status" in (api.find("nodes", NODE, "") or {}))


def test_a_label_that_the_node_got_later_counts_for_allocations(api: FakeApi, tmp_path: Path) -> None:
    on_rack = claim("c", "gpu-0", pods=("uid-p",))
    rack = {"key": "rack", "operator": "In", "values": ["7"]}
    on_rack["status"]["allocation"]["nodeSelector"] = {"nodeSelectorTerms": [{"matchExpressions": [rack]}]}
    with running(agent_of(api, tmp_path)):
        node = api.find("nodes", NODE, "")
        assert node is not None
        node["metadata"]["labels"]["rack"] = "7"
        api.put("nodes", node)

        api.put("resourceclaims", on_rack)
        api.put("pods", pod("p", claims={"gpus": "c"}))

        eventually(api, lambda: is_ready(api, "p"))
