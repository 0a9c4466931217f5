"""The sockets of a served driver: their names, stale ones, two instances at once, and what stopping leaves."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from nodeagent.serving.sockets import SOCKET_PATH_MAX, endpoints
from tests.nodeagent.objects import DRIVER
from tests.nodeagent.serving.conftest import SECONDS, Node
from tests.nodeagent.serving.test_calls import Slow

UID = "6f6d4c0e-3b1f-4d55-9f0e-6d1c2f3a4b5c"
NAMES = {
    "alone": ("gpu.example.com", "/r", "", "gpu.example.com-reg.sock"),
    "one of two": ("gpu.example.com", "/r", UID, f"gpu.example.com-{UID}-reg.sock"),
    "one of two, the uid too long": ("g" * 63, "/r" * 6, UID, f"{'g' * 63}-imOBWxWM7zM-reg.sock"),
    "one of two, the driver's name too long": ("g" * 63, "/r" * 15, UID, "dra-pamDq3gD4Zou8rBAWrTr7A-reg.sock"),
}


@pytest.mark.parametrize("case", NAMES)
def test_sockets_are_named_as_kubernetes_own_library_names_them(case: str) -> None:
    driver, folder, uid, name = NAMES[case]

    found = endpoints(driver, registrar_dir=Path(folder), plugin_dir=Path("/p"), uid=uid)

    assert found.registration.parent == Path(folder)
    assert len(str(found.registration)) <= SOCKET_PATH_MAX
    assert found.registration.name == name
    assert found.service == Path("/p") / (f"dra-{uid}.sock" if uid else "dra.sock")


def test_a_path_that_no_socket_can_have_is_refused() -> None:
    with pytest.raises(ValueError, match="longer than the 107 bytes"):
        endpoints("d" * 63, registrar_dir=Path("/" + "r" * 60), plugin_dir=Path("/p"))


def test_without_a_kubelet_it_says_so(node: Node) -> None:
    node.registrar_dir.rmdir()

    with pytest.raises(FileNotFoundError, match="is there a kubelet here"):
        node.plugin().start()


def test_stopping_takes_both_sockets_away(node: Node) -> None:
    node.serve()
    (plugin,) = node.plugins

    plugin.stop()

    assert not plugin.endpoints.registration.exists()
    assert not plugin.endpoints.service.exists()


def test_what_a_killed_predecessor_left_is_in_nobodys_way(node: Node) -> None:
    node.plugin_dir.mkdir()
    for path in (node.registrar_dir / f"{DRIVER}-reg.sock", node.plugin_dir / "dra.sock"):
        path.touch()

    assert node.serve().info.name == DRIVER


def test_two_instances_serve_at_once_while_one_replaces_the_other(node: Node) -> None:
    node.claim("c", "gpu-0")
    old = node.serve(rolling_update="old")
    new = node.serve(rolling_update="new")
    assert old.info.endpoint != new.info.endpoint

    assert old.prepare("c")["claim-c"].error == ""
    node.plugins[0].stop()
    assert new.unprepare("c") == {"claim-c": ""}

    assert sorted(path.name for path in node.registrar_dir.iterdir()) == [f"{DRIVER}-new-reg.sock"]
    assert sorted(path.name for path in node.plugin_dir.glob("*.sock")) == ["dra-new.sock"]
    assert node.files() == []


def test_two_instances_take_turns(node: Node) -> None:
    for name in ("a", "b"):
        node.claim(name, "gpu-0")
    driver = Slow(1)  # the same object in both: it sees all calls
    kubelets = [node.serve(driver, rolling_update=uid) for uid in ("old", "new")]

    threads = [
        threading.Thread(target=kubelet.prepare, args=(name,)) for kubelet, name in zip(kubelets, "ab", strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)

    assert driver.most == 1
    assert driver.held == {"claim-a", "claim-b"}


def test_a_predecessor_that_stops_late_leaves_the_sockets_of_its_successor(node: Node) -> None:
    node.serve()
    successor = node.plugin()
    successor.start()

    node.plugins[0].stop()

    assert successor.endpoints.registration.is_socket()
    assert node.kubelet(successor).info.name == DRIVER
