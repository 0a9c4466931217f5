"""A real runtime takes our files: the lowest version that the fields need is one that podman knows.

podman 4.3 knows versions up to 0.5.0 and looks in the directories of the specification alone, so each case puts a file
of its own there, with a kind that nobody else uses, and takes it away again.
"""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from nodeagent.cdi import (
    CdiDevice,
    CdiFolder,
    ContainerEdits,
    DeviceNode,
    Hook,
    Mount,
    Spec,
    file_name,
    kind_of,
    qualified_name,
)
from nodeagent.storage import Disk
from tests.nodeagent.runtimes.containers import make_rootfs, needs_podman

#: Where podman looks; it cannot be told to look elsewhere.
DYNAMIC = Path("/var/run/cdi")


@dataclass(frozen=True)
class Case:
    """version: the lowest. script: run in the container, must print `prints`. common: edits of the whole spec.

    letter: whether the device's name begins with one.
    """

    edits: ContainerEdits
    version: str
    script: str
    prints: str
    common: ContainerEdits | None = None
    letter: bool = True


CASES = {
    "environment": Case(ContainerEdits(env=("A=one two", "B=")), "0.3.0", 'echo "$A|$B|"', "one two||"),
    "environment of the spec": Case(
        ContainerEdits(env=("A=1",)), "0.3.0", "echo $A$B", "12", common=ContainerEdits(env=("B=2",))
    ),
    "a name that starts with a digit": Case(ContainerEdits(env=("A=1",)), "0.5.0", "echo $A", "1", letter=False),
    "a device node": Case(
        ContainerEdits(device_nodes=(DeviceNode(path="/dev/full", permissions="rw"),)),
        "0.3.0",
        "echo > /dev/full || echo full",
        "full",
    ),
    "a device node under another name": Case(
        ContainerEdits(device_nodes=(DeviceNode(path="/dev/mine", host_path="/dev/zero", permissions="r"),)),
        "0.5.0",
        "dd if=/dev/mine bs=3 count=1 2>/dev/null | wc -c",
        "3",
    ),
    "a device node with its numbers": Case(
        ContainerEdits(device_nodes=(DeviceNode(path="/dev/zero2", type="c", major=1, minor=5, file_mode=0o666),)),
        "0.3.0",
        "stat -c %t:%T /dev/zero2",
        "1:5",
    ),
    "a mount": Case(
        ContainerEdits(mounts=(Mount(host_path="/etc", container_path="/host", options=("ro", "bind")),)),
        "0.3.0",
        "test -e /host/passwd && ! touch /host/x 2>/dev/null && echo read-only",
        "read-only",
    ),
    "a mount with a type": Case(
        ContainerEdits(
            mounts=(Mount(host_path="tmpfs", container_path="/scratch", type="tmpfs", options=("size=64k",)),)
        ),
        "0.4.0",
        "grep -c ' /scratch tmpfs ' /proc/mounts",
        "1",
    ),
    "a hook": Case(
        ContainerEdits(hooks=(Hook(hook_name="createRuntime", path="/bin/true", args=("true",), timeout=5),)),
        "0.3.0",
        "echo started",
        "started",
    ),
}


@pytest.fixture(scope="module")
def rootfs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    needs_podman()
    return make_rootfs(tmp_path_factory.mktemp("rootfs"))


@pytest.fixture
def driver() -> Iterator[str]:
    """The name of a driver that nobody else has; its files are gone afterwards."""
    name = f"{uuid.uuid4().hex[:12]}.example.com"
    yield name
    for path in DYNAMIC.glob(f"k8s.{name}-claim_*"):
        path.unlink()


def podman_run(rootfs: Path, device: str, script: str) -> subprocess.CompletedProcess[str]:
    options = "--cgroup-manager=cgroupfs --runtime runc run --rm --network none"
    limits = "--ulimit nofile=1024:1024 --ulimit nproc=1024:1024"
    container = ["--device", device, "--rootfs", str(rootfs), "sh", "-c", script]
    return subprocess.run(
        ["podman", *options.split(), *limits.split(), *container],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", CASES)
def test_podman_accepts_the_lowest_version_that_the_fields_need(rootfs: Path, driver: str, name: str) -> None:
    case = CASES[name]
    uid = ("c" if case.letter else "0") + uuid.uuid4().hex
    spec = Spec.of(kind_of(driver), (CdiDevice(name=f"{uid}-x", container_edits=case.edits),), edits=case.common)
    assert spec.cdi_version == case.version

    CdiFolder(DYNAMIC, Disk()).write(driver, uid, spec)
    done = podman_run(rootfs, qualified_name(spec.kind, f"{uid}-x"), case.script)

    assert (done.returncode, done.stdout.strip()) == (0, case.prints), done.stderr


def test_podman_refuses_what_we_call_invalid(rootfs: Path, driver: str) -> None:
    """The same file with one rule broken: the rule is not ours alone."""
    uid = f"c{uuid.uuid4().hex}"
    device = CdiDevice(name=f"{uid}-x", container_edits=ContainerEdits(env=("A=1",)))
    spec = Spec.of(kind_of(driver), (device,))
    folder = CdiFolder(DYNAMIC, Disk())
    folder.write(driver, uid, spec)
    path, name = DYNAMIC / file_name(driver, uid), qualified_name(spec.kind, device.name)
    assert podman_run(rootfs, name, "echo $A").stdout == "1\n"

    path.write_text(path.read_text().replace('"A=1"', '"=1"'))
    assert not folder.has(driver, uid)
    done = podman_run(rootfs, name, "echo $A")

    assert done.returncode != 0
    assert "unresolvable CDI devices" in done.stderr
