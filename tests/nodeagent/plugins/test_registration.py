"""Drivers register over sockets: those that are there, come late, are replaced, or have to be told what is wrong."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest

from nodeagent.drivers.simulated import SimulatedDriver
from nodeagent.plugins import host
from nodeagent.plugins.protocol import PluginInfo
from nodeagent.plugins.registration import RegistrationRefused, accept, find_sockets
from tests.nodeagent.objects import DRIVER, NODE
from tests.nodeagent.plugins.conftest import PluginNode
from tests.nodeagent.plugins.plugin import NAME, TIMEOUT, Plugin

V1 = ("v1.DRAPlugin",)


def info(**fields: object) -> PluginInfo:
    given = {"type": "DRAPlugin", "name": NAME, "endpoint": "/dra.sock", "supported_versions": V1, **fields}
    return PluginInfo(**given)  # type: ignore[arg-type]  # each test gives what its field holds


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            info(type="CSIPlugin"),
            "plugins of type 'CSIPlugin' are not handled here, only DRAPlugin, ResourcePlugin, CDIPlugin",
        ),
        (info(name=""), "driver name ''"),
        (info(name="under_score"), "driver name 'under_score'"),
        (info(name="a" * 64), "must be no more than 63 bytes"),
        (info(supported_versions=()), r"none of its services is supported \(none\)"),
        (
            info(supported_versions=("2.0.0",)),
            r"\(2.0.0\); .* v1.DRAPlugin",
        ),
        (
            info(supported_versions=("v1alpha1.Node", "v1.DRAResourceHealth")),
            r"v1alpha1.Node, v1.DRAResourceHealth",
        ),
    ],
)
def test_a_plugin_that_cannot_be_worked_with_is_told_why(given: PluginInfo, said: str) -> None:
    with pytest.raises(RegistrationRefused, match=said):
        accept(given, Path("/reg.sock"))


@pytest.mark.parametrize(
    ("listed", "service", "health"),
    [
        (V1, "v1.DRAPlugin", ["v1", "v1beta1", "v1alpha1"]),
        (("v1beta1.DRAPlugin",), "v1beta1.DRAPlugin", ["v1", "v1beta1", "v1alpha1"]),
        ((*V1, "v1beta1.DRAResourceHealth"), "v1.DRAPlugin", ["v1beta1"]),
        ((*V1, "v1alpha1.DRAResourceHealth", "v1.DRAResourceHealth"), "v1.DRAPlugin", ["v1", "v1alpha1"]),
        (("1.0.0",), "v1alpha3.Node", ["v1", "v1beta1", "v1alpha1"]),
        (("v1alpha2.Node",), "v1alpha2.Node", ["v1", "v1beta1", "v1alpha1"]),
        (("v1alpha4.Node", "v1beta1.DRAPlugin"), "v1beta1.DRAPlugin", ["v1", "v1beta1", "v1alpha1"]),
        (("v2.DRAPlugin", "v1beta1.DRAPlugin", *V1), "v1.DRAPlugin", ["v1", "v1beta1", "v1alpha1"]),
    ],
)
def test_the_newest_services_are_chosen(listed: tuple[str, ...], service: str, health: list[str]) -> None:
    plugin = accept(info(supported_versions=listed), Path("/reg.sock"))
    assert plugin.service.names[0] == service
    assert [one.name.partition(".")[0] for one in plugin.health] == health


def test_a_plugin_may_have_the_type_that_kep_4381_names() -> None:
    assert accept(info(type="ResourcePlugin"), Path("/reg.sock")).service.names[0] == "v1.DRAPlugin"


def test_claims_with_handles_go_to_a_service_that_takes_them_whatever_else_a_plugin_has() -> None:
    both = accept(info(supported_versions=("1.0.0", *V1)), Path("/reg.sock"))
    assert (both.service.names[0], both.handling and both.handling.names[0]) == ("v1.DRAPlugin", "v1alpha3.Node")
    assert accept(info(), Path("/reg.sock")).handling is None


def test_a_plugin_without_an_endpoint_is_called_where_it_registered() -> None:
    assert accept(info(endpoint=""), Path("/reg.sock")).endpoint == "/reg.sock"


def listen(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def test_sockets_are_found_at_any_depth_but_hidden_ones(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("s")
    for name in ("a.sock", "deep/er/b", ".hidden.sock", ".hidden/c.sock"):
        listen(folder / name)
    (folder / "file.sock").write_text("no socket")
    (folder / "round").symlink_to(folder)
    (folder / "broken.sock").symlink_to(folder / "gone")
    assert find_sockets(folder).keys() == {folder / "a.sock", folder / "deep/er/b"}
    assert find_sockets(folder / "missing") == {}


def test_a_link_to_a_socket_is_as_good_as_one_as_for_kubelet(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder, elsewhere = tmp_path_factory.mktemp("s"), tmp_path_factory.mktemp("e") / "driver.sock"
    listen(elsewhere)
    link = folder / "link.sock"
    link.symlink_to(elsewhere)
    first = find_sockets(folder)
    assert first.keys() == {link}
    elsewhere.unlink()
    assert find_sockets(folder) == {}
    listen(elsewhere)
    os.utime(elsewhere, ns=(first[link].made_ns + 1, first[link].made_ns + 1))
    assert find_sockets(folder).keys() == {link}
    assert find_sockets(folder) != first


def test_a_socket_that_was_made_anew_is_another_one_and_one_whose_mode_changed_is_not(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("s")
    path = folder / "a.sock"
    listen(path)
    first = find_sockets(folder)
    path.chmod(0o600)
    assert find_sockets(folder) == first
    path.unlink()
    listen(path)
    os.utime(path, ns=(first[path].made_ns + 1, first[path].made_ns + 1))  # clocks of file systems may be coarse
    assert find_sockets(folder) != first


def test_must_register_after_kubelet_restart(node: PluginNode) -> None:
    node.start()
    plugin = node.registered()
    node.stop()
    plugin.statuses.clear()
    node.start()
    plugin.wait_for(lambda: plugin.registered)
    node.come()
    node.runs()


def test_must_register_after_plugin_restart(node: PluginNode) -> None:
    node.start()
    plugin = node.registered()
    plugin.stop()
    plugin.statuses.clear()
    plugin.start()
    plugin.wait_for(lambda: plugin.registered)
    node.come()
    node.runs()


def test_a_plugin_that_crashed_and_left_its_sockets_registers_again(
    node: PluginNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "POLL_SECONDS", 0.25)  # the agent does not see that the sockets are not the same
    node.start()
    plugin = node.registered()
    plugin.crash()
    for path in (plugin.socket, plugin.endpoint):
        if not path.exists():
            listen(path)  # as a process that is killed leaves them: nobody listens there any more
    node.come()
    node.says(NAME, "UNAVAILABLE")
    plugin.statuses.clear()
    plugin.start()
    plugin.wait_for(lambda: plugin.registered)
    node.runs()


def test_a_driver_that_is_there_before_the_agent_registers_from_a_folder_of_its_own(node: PluginNode) -> None:
    plugin = node.plugin()
    plugin.socket = plugin.socket.parent / "of-mine" / "reg.sock"
    plugin.start()
    node.start()
    plugin.wait_for(lambda: plugin.registered)


def test_a_registration_that_fails_is_tried_again(node: PluginNode) -> None:
    node.start()
    plugin = node.plugin(kind="DevicePlugin").start()
    plugin.wait_for(lambda: plugin.statuses)
    assert not plugin.registered
    assert "'DevicePlugin'" in plugin.statuses[0].error
    plugin.info = info(endpoint=str(plugin.endpoint))
    plugin.wait_for(lambda: plugin.registered)


def test_a_name_that_belongs_to_a_driver_in_the_agent_is_refused(node: PluginNode) -> None:
    node.start(SimulatedDriver(NODE))
    plugin = node.plugin(DRIVER).start()
    plugin.wait_for(lambda: plugin.statuses)
    assert plugin.statuses[0].error == f"driver {DRIVER} runs inside the node agent; give this one another name"


def test_an_instance_cannot_take_over_the_endpoint_of_another(node: PluginNode) -> None:
    node.start()
    node.registered()
    thief = Plugin(node.plugin_dir, instance="2")
    thief.info = info(endpoint=str(node.plugin_dir / "plugins" / NAME / "dra.sock"))
    try:
        thief.start(endpoint=False)
        thief.wait_for(lambda: thief.statuses)
        assert "is already registered" in thief.statuses[0].error
    finally:
        thief.crash()


def test_a_plugin_that_says_nothing_holds_up_no_other(node: PluginNode) -> None:
    node.start()
    mute = node.plugin("mute.example.com")
    speak = threading.Event()
    mute.hold = speak
    mute.start()
    mute.wait_for(lambda: mute.asked)
    node.registered()
    assert not mute.statuses
    speak.set()
    mute.wait_for(lambda: mute.registered)


def test_a_plugin_that_went_while_it_was_being_asked_is_not_kept(node: PluginNode) -> None:
    agent = node.start()
    plugin = node.plugin()
    plugin.hold = threading.Event()
    plugin.start()
    plugin.wait_for(lambda: plugin.asked)
    plugin.socket.unlink()
    assert agent.plugins is not None
    agent.plugins.reconcile()
    left = threading.Event()
    agent.registry.subscribe(lambda: left.set() if plugin.statuses and not agent.registry.get(NAME) else None)
    plugin.hold.set()
    assert left.wait(TIMEOUT)


def test_a_driver_whose_name_cannot_be_remembered_is_not_registered(node: PluginNode) -> None:
    """It might prepare claims that nobody would give back after a crash."""
    (node.folder / "state").mkdir()
    agent = node.start()
    (node.folder / "state" / "drivers.json").mkdir()
    plugin = node.plugin().start()
    plugin.wait_for(lambda: plugin.statuses)
    assert "the names of the node's drivers cannot be written" in plugin.statuses[0].error
    assert agent.registry.get(NAME) is None
    (node.folder / "state" / "drivers.json").rmdir()
    plugin.wait_for(lambda: plugin.registered)
