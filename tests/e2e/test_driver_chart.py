"""A driver from nothing to a running pod, as docs/how-to/drivers.md has it: installed by manifests alone.

Its DaemonSet's pod is a real container, in whose image is what `pip install manciple-agent` brings. It finds the API
and its account as in a cluster, registers at the agent's sockets through directories of the node, publishes, prepares.
Changed in the manifests are the image and directories, so that nothing of this machine's own is touched.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.driver_image import make_driver_rootfs
from tests.e2e.kubectl import Kubectl
from tests.e2e.processes import ROOT, Up, wait_for
from tests.e2e.real_node import RealNode
from tests.nodeagent.runtimes.containers import needs_podman

pytestmark = pytest.mark.e2e

EXAMPLE = ROOT / "docs" / "examples" / "scratch-driver"
NAME, NODE = "scratch.example.com", "drivers"
OBJECTS = ("get", "pods,daemonsets,resourceclaims,resourceclaimtemplates,deviceclasses,namespaces", "-A", "-o", "name")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short one: the paths of sockets are."""
    with tempfile.TemporaryDirectory(prefix="mdrv") as made:
        yield Path(made)


@pytest.fixture
def node(up: Up, folder: Path) -> Iterator[RealNode]:
    """Beside the simulated nodes of the system, whose pods of the DaemonSet are simulated as well."""
    needs_podman()
    options = ("--plugin-dir", str(folder / "kubelet"), "--plugin-grace-seconds", "1")
    made = RealNode(up, NODE, folder, options=options)
    make_driver_rootfs(folder / "driver", ROOT / "docs" / "examples" / "scratch_driver.py")
    yield made.start()
    made.end()


def manifest(file: str, folder: Path) -> str:
    text = (EXAMPLE / file).read_text()
    for given, ours in {
        "localhost/scratch-driver:1": f"rootfs:{folder}/driver",
        "docker.io/library/busybox": f"rootfs:{folder}/rootfs",
        "/var/lib/kubelet": f"{folder}/kubelet",
        "/var/run/cdi": f"{folder}/cdi",
        "/var/lib/scratch": f"{folder}/scratch",
    }.items():
        text = text.replace(given, ours)
    return text


def slices(kubectl: Kubectl) -> list[dict[str, Any]]:
    return [one for one in kubectl.json("get", "resourceslices")["items"] if one["spec"]["driver"] == NAME]


def test_a_driver_is_installed_serves_a_pod_and_goes_without_a_trace(
    kubectl: Kubectl, node: RealNode, folder: Path
) -> None:
    before = kubectl(*OBJECTS)
    kubectl("apply", "-f", "-", stdin=manifest("driver.yaml", folder))
    kubectl("rollout", "status", "daemonset/scratch-driver", "-n", "scratch-driver", "--timeout=60s")
    (published,) = wait_for("the driver to publish", lambda: slices(kubectl))
    assert (published["spec"]["nodeName"], len(published["spec"]["devices"])) == (NODE, 4)

    kubectl("apply", "-f", "-", stdin=manifest("pod.yaml", folder))
    kubectl("wait", "--for=condition=Ready", "pod/scratch", "--timeout=60s")
    (started,) = wait_for("the pod to write", lambda: list((folder / "scratch").glob("*/*/started")))
    assert kubectl("exec", "scratch", "--", "cat", "/data/started") == started.read_text()
    assert NAME in kubectl("describe", "resourceclaims")
    # A second driver takes over without a gap, and knows what the first one has prepared.
    kubectl("rollout", "restart", "daemonset/scratch-driver", "-n", "scratch-driver")
    kubectl("rollout", "status", "daemonset/scratch-driver", "-n", "scratch-driver", "--timeout=60s")
    kubectl("delete", "-f", "-", stdin=manifest("pod.yaml", folder))
    wait_for("the space to be given back", lambda: not started.parent.exists())

    kubectl("delete", "-f", "-", stdin=manifest("driver.yaml", folder))
    wait_for("the slices to go", lambda: not slices(kubectl))
    wait_for("the containers to go", lambda: not node.containers())
    left = [path for path in (*(folder / "kubelet").rglob("*"), *node.cdi_dir.iterdir()) if not path.is_dir()]
    assert [path.name for path in left] in ([], ["serialize.lock"])  # as Kubernetes' library leaves it
    assert kubectl(*OBJECTS) == before
