"""Instances of drivers come and go: rolling updates, drivers that stay away, what is published meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from nodeagent.drivers.simulated import SimulatedDriver
from nodeagent.plugins.driver import PluginDriver
from nodeagent.plugins.registration import accept
from tests.nodeagent.machine import Clock
from tests.nodeagent.objects import DRIVER, NODE
from tests.nodeagent.plugins.conftest import PluginNode, until
from tests.nodeagent.plugins.plugin import NAME, TIMEOUT, Plugin


def publish(node: PluginNode, name: str, driver: str = NAME) -> None:
    """As the driver itself does."""
    document: dict[str, Any] = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {
            "driver": driver,
            "nodeName": NODE,
            "pool": {"name": NODE, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "dev-0"}],
        },
    }
    node.api.put("resourceslices", document)


def slices(node: PluginNode, driver: str = NAME) -> set[str]:
    return {one["metadata"]["name"] for one in node.api.all("resourceslices") if one["spec"]["driver"] == driver}


def draft_slice(node: PluginNode, name: str, driver: str = NAME) -> None:
    """As drivers of the KEP-4381 draft publish."""
    document: dict[str, Any] = {
        "apiVersion": "resource.k8s.io/v1alpha2",
        "kind": "NodeResourceSlice",
        "metadata": {"name": name},
        "spec": {"driverName": driver, "nodeName": NODE, "namedResourcesWithAttributes": [{"name": "card"}]},
    }
    node.api.put("noderesourceslices", document)


def test_ResourceSlices_removed_on_kubelet_startup(node: PluginNode) -> None:  # noqa: N802
    """Before the node takes pods: none could start with the devices of a driver that is not there."""
    node.grace_seconds = 3600.0
    publish(node, "of-yesterday")
    draft_slice(node, "of-the-draft", "draft.example.com")
    node.start()
    assert slices(node) == set()
    assert node.api.all("noderesourceslices") == []
    deleted = [at for at, asked in enumerate(node.api.requests) if asked.startswith("DELETE ")]
    registered = next(at for at, asked in enumerate(node.api.requests) if asked.startswith("PUT /api/v1/nodes/"))
    assert max(deleted) < registered, node.api.requests


def test_slices_of_a_driver_that_is_there_when_the_agent_starts_stay(node: PluginNode) -> None:
    """A stock driver does not notice for its cache's minute that somebody deleted what it has just written."""
    plugin = node.plugin().start()
    publish(node, "of-the-living")
    publish(node, "of-yesterday", "gone.example.com")
    before = node.api.find("resourceslices", "of-the-living")
    agent = node.start()
    assert node.api.find("resourceslices", "of-the-living") == before
    assert slices(node, "gone.example.com") == set()
    assert plugin.registered
    for key in agent.everything():
        agent.work(key)
    assert node.api.find("resourceslices", "of-the-living") == before


def hang(plugin: Plugin) -> None:
    plugin.hold = threading.Event()
    plugin.start()


def leave_sockets_behind(plugin: Plugin) -> None:
    plugin.start()
    plugin.crash()


#: what the driver does -> (its name, how it does that)
SILENT: dict[str, tuple[str, Callable[[Plugin], object]]] = {
    "it was killed": (NAME, leave_sockets_behind),
    "it hangs": (NAME, hang),
    "it registers under another name": ("renamed.example.com", Plugin.start),
}


@pytest.mark.parametrize("case", SILENT)
def test_slices_of_a_driver_whose_socket_is_there_but_that_does_not_register_go(
    node: PluginNode, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nodeagent.agent.REGISTRATION_SECONDS", 0.2)
    node.grace_seconds = 3600.0
    name, act = SILENT[case]
    act(node.plugin(name))
    publish(node, "of-yesterday")
    node.start()
    assert slices(node) == set()


def test_a_driver_that_registers_late_publishes_again(node: PluginNode) -> None:
    node.grace_seconds = 3600.0
    publish(node, "of-yesterday")
    agent = node.start()
    assert slices(node) == set()
    node.registered()
    publish(node, "of-today")
    for key in agent.everything():
        agent.work(key)
    assert slices(node) == {"of-today"}


def test_slices_that_a_driver_publishes_without_registering_go_after_the_grace_period(node: PluginNode) -> None:
    node.grace_seconds = 1.5
    publish(node, "of-yesterday")
    node.start()
    publish(node, "of-today")
    node.eventually(lambda: slices(node) == set())


@pytest.mark.parametrize("reboots", [False, True], ids=["restart", "reboot"])
def test_deleting_slices_leaves_running_pods_and_their_devices_alone(node: PluginNode, *, reboots: bool) -> None:
    node.start()
    plugin = node.registered()
    publish(node, "mine")
    node.come()
    node.runs()
    node.reboot() if reboots else node.stop()
    plugin.stop()

    agent = node.start()
    assert slices(node) == set()
    assert plugin.count("v1 unprepare") == 0
    assert [(one.pods, len(one.drivers)) for one in agent.preparer.records()] == [(("uid-p",), 1)]
    plugin.start()
    node.runs()
    node.api.delete("pods", "p")
    node.ends()
    assert plugin.count("v1 unprepare") == 1


def test_ResourceSlices_removed_after_plugin_unregistration(node: PluginNode) -> None:  # noqa: N802
    node.grace_seconds = 0.3
    node.start(SimulatedDriver(NODE))
    plugin, other = node.registered(), node.registered("other.example.com")
    publish(node, "mine")
    publish(node, "theirs", other.info.name)
    plugin.stop()
    node.eventually(lambda: not slices(node))
    assert slices(node, other.info.name) == {"theirs"}
    assert slices(node, DRIVER)


def test_slices_of_a_driver_whose_endpoint_breaks_are_removed_though_its_registration_stands(node: PluginNode) -> None:
    node.grace_seconds = 0.3
    node.start()
    plugin = node.registered()
    publish(node, "mine")
    plugin.crash(plugin.endpoint)
    node.eventually(lambda: not slices(node))


def test_slices_stay_while_a_driver_is_there_and_the_agent_writes_only_its_own(node: PluginNode) -> None:
    agent = node.start(SimulatedDriver(NODE))
    node.registered()
    publish(node, "mine")
    before = node.api.find("resourceslices", "mine")
    (own,) = slices(node, DRIVER)
    node.api.delete("resourceslices", own, "")
    node.eventually(lambda: slices(node, DRIVER) == {own})
    for key in agent.everything():
        agent.work(key)
    assert node.api.find("resourceslices", "mine") == before


def test_rolling_update(node: PluginNode) -> None:
    """The instance that registered last is asked; when it leaves, the one before it is again."""
    node.start()
    old = node.registered(instance="old")
    new = node.registered(instance="new")
    node.come("p")
    node.runs("p")
    assert (old.count("v1 prepare"), new.count("v1 prepare")) == (0, 1)

    new.stop()
    node.come("q", device="dev-1")
    node.runs("q")
    assert old.count("v1 prepare") == 1


def test_failed_update(node: PluginNode) -> None:
    """An instance that cannot be reached is not preferred for being new."""
    node.start()
    old = node.registered(instance="old")
    new = node.plugin(instance="new").start(endpoint=False)
    new.wait_for(lambda: new.registered)
    node.come()
    node.runs()
    assert old.count("v1 prepare") == 1


def test_a_driver_counts_as_away_from_the_moment_on_which_none_of_its_instances_is_connected(node: PluginNode) -> None:
    clock, changed = Clock(100.0), threading.Condition()

    def notify() -> None:
        with changed:
            changed.notify_all()

    def wait_until_away(away: bool) -> None:
        with changed:
            assert changed.wait_for(lambda: (driver.seconds_away() is not None) == away, TIMEOUT)

    driver = PluginDriver(NAME, call_seconds=1.0, changed=notify, clock=clock)
    plugins = [node.plugin(instance=name).start() for name in ("one", "two")]
    one, two = (driver.add(accept(plugin.info, plugin.socket)) for plugin in plugins)
    with changed:
        assert changed.wait_for(lambda: one.connected and two.connected, TIMEOUT)
    wait_until_away(False)
    plugins[0].crash()
    driver.remove(one)
    assert driver.seconds_away() is None
    plugins[1].crash()
    wait_until_away(True)
    clock.now += 7
    driver.remove(two)
    assert driver.seconds_away() == 7
    driver.settle()
    assert driver.seconds_away() is None

    back = driver.add(accept(plugins[0].start().info, plugins[0].socket))
    wait_until_away(False)
    driver.remove(back)
    assert driver.seconds_away() == 0


def test_one_that_comes_back_in_time_keeps_its_slices(node: PluginNode) -> None:
    node.grace_seconds = 3600.0
    agent = node.start()
    plugin = node.registered()
    publish(node, "mine")
    assert agent.plugins is not None
    gone = threading.Event()
    agent.registry.subscribe(lambda: None if agent.registry.get(NAME) else gone.set())
    plugin.stop()
    assert gone.wait(TIMEOUT)
    assert agent.plugins.away() == {NAME}
    assert 3590 < (agent.plugins.seconds_left(NAME) or 0) <= 3600
    plugin.start()
    plugin.wait_for(lambda: len(plugin.statuses) == 2)
    _wait_until_connected(plugin, node)
    assert agent.plugins.away() == set()
    assert slices(node) == {"mine"}


def _wait_until_connected(plugin: Plugin, node: PluginNode) -> None:
    node.come()
    plugin.wait_for(lambda: plugin.count("v1 prepare"))


def test_the_name_of_a_driver_is_kept_until_it_has_left_and_holds_no_claim(node: PluginNode) -> None:
    node.grace_seconds = 0.3
    node.start()
    plugin = node.registered()
    node.come()
    node.runs()
    node.stop()
    agent = node.start()
    assert NAME in agent.registry.names()  # though it is not there yet
    plugin.wait_for(lambda: len(plugin.statuses) == 2)

    publish(node, "mine")
    plugin.stop()
    node.eventually(lambda: not slices(node))
    assert (node.folder / "state" / "drivers.json").read_text() == f'["{NAME}"]'  # a claim is still prepared by it
    plugin.start()
    node.api.delete("pods", "p")
    node.ends()

    publish(node, "mine")
    plugin.stop()
    node.eventually(lambda: not slices(node))
    until(lambda: (node.folder / "state" / "drivers.json").read_text() == "[]")


def test_a_claim_whose_record_was_lost_is_given_back_by_a_driver_that_registers_later(node: PluginNode) -> None:
    node.start()
    plugin = node.registered()
    node.come()
    node.runs()
    node.stop()
    plugin.stop()
    (record,) = (node.folder / "state" / "claims").glob("*.json")
    record.write_text("{torn")
    node.api.delete("pods", "p", grace=0)

    node.start()
    plugin.start()
    plugin.wait_for(lambda: plugin.count("v1 unprepare"))
    assert plugin.requests[-1].claims[0].uid == "claim-of-p"
    assert plugin.devices.held == set()


def test_a_claim_whose_record_was_lost_and_whose_pod_runs_stays_prepared(node: PluginNode) -> None:
    node.start()
    plugin = node.registered()
    node.come()
    node.runs()
    node.stop()
    (record,) = (node.folder / "state" / "claims").glob("*.json")
    record.write_text("{torn")

    agent = node.start()
    plugin.wait_for(lambda: plugin.count("v1 prepare") == 2)
    node.stop()
    assert plugin.count("v1 unprepare") == 0
    assert [(r.state, r.pods) for r in agent.preparer.records()] == [("Prepared", ("uid-p",))]


def test_a_driver_that_starts_before_the_api_answers_finds_the_folder_for_its_socket(node: PluginNode) -> None:
    """The library does not make it: a driver that finds none ends with an error."""

    def away(_request: httpx.Request) -> None:
        raise httpx.ConnectError("Connection refused")

    there, node.api.before = node.api.before, away
    node.start(ready=False)
    for name in ("plugins", "plugins_registry"):
        until((node.plugin_dir / name).is_dir)
    plugin = node.plugin().start()

    node.api.before = there
    plugin.wait_for(lambda: plugin.registered)
