"""What comes from others stays where it belongs: names in directories, answers in memory, mounts behind mounts."""

from __future__ import annotations

import resource
import socket
import stat
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from claims.kinds.resource_claims import ResourceClaim
from nodeagent.drivers.preparing import MetadataFiles
from nodeagent.drivers.protocol import DeviceMetadata, Prepared, PreparedDevice
from nodeagent.failures import ContainerFailed
from nodeagent.plugins.host import KnownDrivers, PluginHost
from nodeagent.runtimes.podman.actions import Actions
from nodeagent.runtimes.podman.folder import PodFolder
from nodeagent.runtimes.podman.kernel import PodNetworks, bind, mounts_below, unmount
from nodeagent.runtimes.podman.program import Podman
from nodeagent.runtimes.protocol import Action
from nodeagent.runtimes.simulated import EXIT_CODE, RUN_SECONDS
from nodeagent.storage import Disk, is_file_name
from tests.nodeagent.machine import Machine
from tests.nodeagent.objects import NODE, claim, container, pod
from tests.nodeagent.runtimes.containers import bare_request, needs_podman

# Names become files.

STRANGE = ("../../escaped", "/tmp/escaped", "..", ".", "", "a/b", "a\0b", ".hidden", "-x", "a" * 300, "a\nb")


@pytest.mark.parametrize("name", STRANGE)
def test_a_name_that_leads_elsewhere_is_no_files_name(name: str) -> None:
    assert not is_file_name(name)


@pytest.mark.parametrize("name", ["0b5e3a1c-1f0e-4c6e-9d0a-6f7b8c9d0e1f", "main", "gpu.example.com", "a_b-c.d"])
def test_names_of_the_api_are(name: str) -> None:
    assert is_file_name(name)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """In the middle of folders of its own, where names may lead without meeting what other tests made."""
    node = Machine(tmp_path / "around" / "node")
    node.start()
    return node


def files_of(machine: Machine) -> set[Path]:
    """Every file there is around the machine's own directories, but what each agent keeps."""
    kept = {"claims", "containers", "plugins", "serving"}
    return {path for path in machine.folder.parent.parent.rglob("*") if path.is_file() and not kept & set(path.parts)}


@pytest.mark.parametrize("where", ["uid", "container", "volume"])
def test_a_pod_with_a_name_that_leads_elsewhere_is_not_started(machine: Machine, where: str) -> None:
    strange = "../../escaped"
    document = pod("p", container(strange if where == "container" else "main"))
    if where == "uid":
        document["metadata"]["uid"] = strange
    if where == "volume":
        document["spec"]["volumes"] = [{"name": strange, "emptyDir": {}}]
    before = files_of(machine)
    machine.api.put("pods", document)

    assert machine.look()

    assert machine.agent.runtime.pod_uids() == frozenset()
    assert files_of(machine) == before
    (told,) = machine.events("Failed")
    assert "'../../escaped'" in told


@pytest.mark.parametrize("where", ["uid", "request"])
def test_a_claim_with_a_name_that_leads_elsewhere_is_not_prepared(machine: Machine, where: str) -> None:
    strange = "../../../escaped"
    document = claim("c", "gpu-0", pods=("uid-p",), uid=strange if where == "uid" else "")
    if where == "request":
        document["status"]["allocation"]["devices"]["results"][0]["request"] = strange
    before = files_of(machine)
    machine.api.put("resourceclaims", document)
    machine.api.put("pods", pod("p", claims={"gpus": "c"}))

    machine.look()

    assert machine.agent.preparer.records() == ()
    assert files_of(machine) == before
    (told,) = machine.events("FailedPrepareDynamicResources")
    assert "'.." in told


@pytest.mark.parametrize("entry", ["../../../../etc", "a/b", "A", "", "/etc"])
def test_a_claim_does_not_choose_where_its_metadata_appears_in_a_container(tmp_path: Path, entry: str) -> None:
    """The annotation is whoever wrote the claim's; the container may be another's."""
    document = claim("c", "gpu-0", driver="example.com")
    document["metadata"]["annotations"] = {"resource.kubernetes.io/pod-claim-name": entry}
    device = PreparedDevice(requests=("gpu",), pool=NODE, device="gpu-0", cdi_device_ids=())
    files = MetadataFiles("example.com", plugin_dir=tmp_path / "plugin", cdi_dir=tmp_path / "cdi", disk=Disk())

    told = {(NODE, "gpu-0"): DeviceMetadata()}
    files.write(msgspec.convert(document, ResourceClaim), Prepared((device,), None, told))

    (path,) = (tmp_path / "cdi").glob("*.json")
    expected = "/var/run/kubernetes.io/dra-device-attributes/resourceclaims/c/gpu/example.com-metadata.json"
    assert f'"containerPath":"{expected}"' in path.read_text()


# Files.


def test_a_link_in_a_files_place_is_not_written_through(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / ".record.tmp").symlink_to(victim)
    with pytest.raises(OSError, match="symbolic links"):
        Disk().write(tmp_path / "record", b"written")
    (tmp_path / "other").symlink_to(victim)
    with pytest.raises(OSError, match="symbolic links"):
        Disk().overwrite(tmp_path / "other", b"written")
    Disk().write(tmp_path / "other", b"written")  # renamed over the link
    assert (victim.read_text(), (tmp_path / "other").is_symlink()) == ("precious", False)


def test_what_an_agent_keeps_is_its_owners_alone(machine: Machine) -> None:
    """Records of containers carry their variables, which may come from Secrets."""
    assert stat.S_IMODE((machine.folder / "state").stat().st_mode) == 0o700


def test_who_is_not_of_the_nodes_group_is_no_driver(tmp_path: Path) -> None:
    class Registry:
        def expect(self, names: frozenset[str]) -> None: ...

    known = KnownDrivers(tmp_path / "drivers.json", Disk())
    registry: Any = Registry()
    host = PluginHost(
        tmp_path, registry=registry, known=known, call_seconds=1, grace_seconds=1, away=lambda _name: None
    )
    host.make_folders()
    assert {stat.S_IMODE((tmp_path / name).stat().st_mode) & 0o007 for name in ("plugins_registry", "plugins")} == {0}


# Mounts.


def test_what_a_pod_mounted_into_its_volume_is_not_removed_with_the_volume(tmp_path: Path) -> None:
    """A privileged container may, with mountPropagation: Bidirectional."""
    needs_podman()
    folder, nodes_own = PodFolder(tmp_path / "pod with space", Disk()), tmp_path / "node"
    nodes_own.mkdir()
    (nodes_own / "precious").write_text("x")
    target = folder.volume("shared") / "deep" / "er"
    target.mkdir(parents=True)
    bind(nodes_own, target)
    assert mounts_below(folder.path) == [target]

    try:
        folder.remove()
    finally:
        if mounts_below(folder.path):
            unmount(target)

    assert (nodes_own / "precious").exists()
    assert not folder.path.exists()


# Answers of containers.


def actions(tmp_path: Path, program: str = "false") -> Actions:
    return Actions(PodNetworks(tmp_path), lambda _request: "id", files=tmp_path, runc=program)


@pytest.fixture
def endless(tmp_path: Path) -> str:
    """A podman whose containers print without end, on both streams."""
    path = tmp_path / "podman"
    path.write_text(
        f"#!{sys.executable}\nimport os\ntry:\n    while True:\n"
        "        os.write(1, b'x' * 65536); os.write(2, b'y' * 65536)\nexcept OSError:\n    pass\n"
    )
    path.chmod(0o755)
    return str(path)


def test_what_a_container_prints_under_a_probe_does_not_fill_the_agents_memory(tmp_path: Path, endless: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    trouble = actions(tmp_path, endless).perform(Action(command=("yes",)), bare_request(host_network=True), timeout=0.5)
    assert "timed out" in trouble
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000  # KiB


def test_the_last_words_of_a_command_are_kept(tmp_path: Path) -> None:
    script = tmp_path / "podman"
    script.write_text(
        "#!/bin/sh\nhead -c 100000 /dev/zero | tr '\\0' x\nhead -c 100000 /dev/zero | tr '\\0' y >&2\n"
        "echo >&2; echo 'Error: the end' >&2; exit 1\n"
    )
    script.chmod(0o755)
    with pytest.raises(ContainerFailed, match="the end"):
        Podman(str(script))("exec", keep=1024)


@pytest.fixture
def dripping() -> Iterator[int]:
    """The port of a server that answers a byte at a time, for ever."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        stopped = threading.Event()

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                while not stopped.wait(0.02):
                    try:
                        connection.sendall(b"x")
                    except OSError:
                        return

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        stopped.set()
        thread.join(10)


@pytest.mark.parametrize("tls", [False, True], ids=["http", "https"])
def test_a_container_that_answers_a_byte_at_a_time_does_not_keep_the_prober(
    tmp_path: Path, dripping: int, tls: bool
) -> None:
    began = time.monotonic()
    action = Action(host="127.0.0.1", port=dripping, path="/", tls=tls)
    assert actions(tmp_path).perform(action, bare_request(host_network=True), timeout=0.3)
    assert time.monotonic() - began < 10


def test_a_header_with_a_line_of_its_own_is_not_sent(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        headers = (("X-A", "a\r\nX-Injected: b"),)
        action = Action(host="127.0.0.1", port=server.getsockname()[1], path="/", headers=headers)
        assert "Invalid header value" in actions(tmp_path).perform(action, bare_request(host_network=True), timeout=5)


# Annotations of simulated pods.

DESTINIES = {"never": "nan", "always": "inf", "before": "-1", "long": "1e300"}


@pytest.mark.parametrize("case", DESTINIES)
def test_a_time_that_is_none_starts_nothing(machine: Machine, case: str) -> None:
    machine.api.put("pods", pod("p", metadata={"annotations": {RUN_SECONDS: DESTINIES[case]}}))
    assert machine.look()
    assert machine.agent.runtime.runs("uid-p") == {}


def test_an_exit_code_that_is_none_starts_nothing(machine: Machine) -> None:
    machine.api.put("pods", pod("p", metadata={"annotations": {RUN_SECONDS: "1", EXIT_CODE: str(2**40)}}))
    assert machine.look()
    assert machine.agent.runtime.runs("uid-p") == {}
