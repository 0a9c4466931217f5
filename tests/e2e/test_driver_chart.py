"""A driver from nothing to a running pod, as docs/how-to/drivers.md has it: installed by manifests alone.

Its DaemonSet's pod is a real container, in whose image is what `pip install manciple-agent` brings. It finds the API
and its account as in a cluster, registers at the agent's sockets through directories of the node, publishes, prepares.
Changed in the manifests are the image and directories, so that nothing of this machine's own is touched.
"""

from __future__ import annotations

import base64
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.driver_image import make_driver_rootfs
from tests.e2e.kubectl import Kubectl
from tests.e2e.processes import ROOT, Up, wait_for
from tests.e2e.real_node import RealNode
from tests.manciple.admission.webhook_server import self_signed
from tests.nodeagent.runtimes.containers import needs_podman

pytestmark = pytest.mark.e2e

EXAMPLE = ROOT / "docs" / "examples" / "scratch-driver"
NAME, NODE = "scratch.example.com", "drivers"
OBJECTS = ("get", "pods,daemonsets,resourceclaims,resourceclaimtemplates,deviceclasses,namespaces", "-A", "-o", "name")


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A short one: the paths of sockets are."""
    with tempfile.TemporaryDirectory(prefix="mdrv") as made:
        yield Path(made)


@pytest.fixture(scope="module")
def node(system: Up, folder: Path) -> Iterator[RealNode]:
    """Beside the simulated nodes of the system, whose pods of the DaemonSet are simulated as well."""
    needs_podman()
    options = ("--plugin-dir", str(folder / "kubelet"), "--plugin-grace-seconds", "1")
    made = RealNode(system, NODE, folder, options=options)
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


# A webhook of a chart -------------------------------------------------------------------------------------------------

#: Answers every review with a label.
HOOK = """
import base64, json, ssl
from http.server import BaseHTTPRequestHandler, HTTPServer

class Hook(BaseHTTPRequestHandler):
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["request"]
        patch = json.dumps([{"op": "add", "path": "/metadata/labels", "value": {"seen-by": self.headers["Host"][:4]}}])
        response = {"uid": asked["uid"], "allowed": True, "patchType": "JSONPatch"}
        response["patch"] = base64.b64encode(patch.encode()).decode()
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
        body = json.dumps(review).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("/cert/tls.crt", "/cert/tls.key")
server = HTTPServer(("0.0.0.0", 8443), Hook)
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"""


def hook_documents(image: str, certificate: bytes, key: bytes) -> list[dict[str, Any]]:
    """A Deployment with a server, its certificate, its Service, and the configuration that leads there."""
    encoded = [base64.b64encode(one).decode() for one in (certificate, key)]
    container = {
        "name": "hook",
        "image": image,
        "command": [str(Path(sys.executable).resolve()), "/hook/hook.py"],
        "ports": [{"name": "https", "containerPort": 8443}],
        "readinessProbe": {"tcpSocket": {"port": "https"}, "periodSeconds": 1},
        "volumeMounts": [{"name": "cert", "mountPath": "/cert"}, {"name": "hook", "mountPath": "/hook"}],
    }
    volumes = [{"name": "cert", "secret": {"secretName": "hook"}}, {"name": "hook", "configMap": {"name": "hook"}}]
    meta, labels = {"name": "hook", "namespace": "default"}, {"app": "hook"}
    pod = {
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
        "volumes": volumes,
        "nodeSelector": {"kubernetes.io/hostname": NODE},
    }
    hook = {
        "name": "hook.example.com",
        "clientConfig": {"service": {"name": "hook", "namespace": "default", "path": "/"}, "caBundle": encoded[0]},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "objectSelector": {"matchLabels": {"watched": "yes"}},
    }
    return [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/tls",
            "metadata": meta,
            "data": dict(zip(("tls.crt", "tls.key"), encoded, strict=True)),
        },
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"hook.py": HOOK}},
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": meta,
            "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}},
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": meta,
            "spec": {"selector": labels, "ports": [{"port": 443, "targetPort": "https"}]},
        },
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "hook"},
            "webhooks": [hook],
        },
    ]


def test_a_webhook_in_a_pod_is_asked_by_its_service(kubectl: Kubectl, node: RealNode, folder: Path) -> None:
    documents = yaml.safe_dump_all(hook_documents(f"rootfs:{folder}/driver", *self_signed()))
    kubectl("apply", "-f", "-", stdin=documents)
    kubectl("rollout", "status", "deployment/hook", "--timeout=60s")
    watched = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "w", "labels": {"watched": "yes"}}}

    def labels() -> dict[str, str]:
        kubectl("create", "-f", "-", stdin=yaml.safe_dump(watched), check=False)
        found = kubectl.json("get", "configmaps")["items"]
        return next((one["metadata"]["labels"] for one in found if one["metadata"]["name"] == "w"), {})

    assert wait_for("the Service to have an endpoint", labels) == {"seen-by": "hook"}
    kubectl("delete", "configmap", "w")
    kubectl("delete", "--wait=false", "-f", "-", stdin=documents)
    wait_for("the containers to go", lambda: not node.containers())
