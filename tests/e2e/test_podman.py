"""A pod's containers really run, and each has the devices that it names: API, scheduler, an agent process, podman."""

from __future__ import annotations

import importlib
import json
import ssl
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.e2e.kubectl import Kubectl
from tests.e2e.processes import PATIENCE, Up, wait_for
from tests.e2e.real_node import INVENTORY, RealNode
from tests.nodeagent.runtimes import box_driver
from tests.nodeagent.runtimes.containers import needs_podman

pytestmark = pytest.mark.e2e

NODE = "real"
NAMESPACE = "boxes"


@pytest.fixture
def real(system: Up, tmp_path: Path) -> Iterator[RealNode]:
    needs_podman()
    driver = {"driver": f"{box_driver.__name__}:BoxDriver", "settings": {"root": str(tmp_path / "boxes")}}
    node = RealNode(system, NODE, tmp_path, driver).start()
    yield node
    node.end()


@pytest.fixture
def boxes(kubectl: Kubectl, real: RealNode) -> Iterator[Kubectl]:
    """A namespace and a class; both are gone after the test."""
    selector = {"cel": {"expression": f'device.driver == "{box_driver.NAME}"'}}
    requests = [{"name": name, "exactly": {"deviceClassName": "box"}} for name in ("first", "second")]
    template = {"metadata": {"name": "boxes"}, "spec": {"spec": {"devices": {"requests": requests}}}}
    apply(kubectl, {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": NAMESPACE}})
    dra = {"apiVersion": "resource.k8s.io/v1"}
    apply(kubectl, {**dra, "kind": "DeviceClass", "metadata": {"name": "box"}, "spec": {"selectors": [selector]}})
    apply(kubectl, {**dra, "kind": "ResourceClaimTemplate", **template})
    yield kubectl
    kubectl("delete", "pods", "--all", "-n", NAMESPACE, "--force", "--grace-period=0")
    kubectl("delete", "namespace", NAMESPACE)
    kubectl("delete", "deviceclass", "box")


def apply(kubectl: Kubectl, document: dict[str, Any]) -> None:
    namespaced = document["kind"] not in ("Namespace", "DeviceClass")
    kubectl("apply", *(("-n", NAMESPACE) if namespaced else ()), "-f", "-", stdin=yaml.safe_dump(document))


def container(real: RealNode, name: str, script: str, *requests: str) -> dict[str, Any]:
    claims = [{"name": "boxes", "request": request} for request in requests]
    command = {"image": f"rootfs:{real.rootfs}", "command": ["sh", "-c"], "args": [script]}
    return {"name": name, **command, "resources": {"claims": claims}}


def pod(name: str, *containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    claims = [{"name": "boxes", "resourceClaimTemplateName": "boxes"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": list(containers), "resourceClaims": claims, **spec},
    }


def test_a_container_sees_exactly_the_environment_device_nodes_and_mounts_of_its_allocated_device(
    boxes: Kubectl, real: RealNode
) -> None:
    """And a sibling container that names another request does not see them."""
    names = {"alpha": ("first",), "beta": ("second",), "neither": ()}
    apply(boxes, pod("inventory", *(container(real, name, INVENTORY, *of) for name, of in names.items())))
    boxes("wait", "--for=condition=Ready", "-n", NAMESPACE, "pod/inventory")
    claim = boxes.json("get", "resourceclaims", "-n", NAMESPACE)["items"][0]
    given = {r["request"]: r["device"] for r in claim["status"]["allocation"]["devices"]["results"]}
    assert sorted(given.values()) == sorted(box_driver.NODES)

    plain_env, plain_devices, plain_mounts = real.inventory("neither")
    for name, request in (("alpha", "first"), ("beta", "second")):
        env, devices, mounts = real.inventory(name)
        box = given[request]
        numbers = "1:3" if box == "box-0" else "1:5"
        assert env.items() - plain_env.items() == {(box.upper().replace("-", "_"), "yes")}
        assert devices - plain_devices == {f"/dev/{box} {numbers}"}
        assert {mount.split()[0] for mount in mounts - plain_mounts} == {f"/boxes/{box}"}
        assert plain_env.keys() - env.keys() == set()
        assert plain_devices - devices == set()
        assert plain_mounts - mounts == set()
    assert not [variable for variable in plain_env if "BOX" in variable]

    boxes("delete", "pod", "inventory", "-n", NAMESPACE, "--grace-period=1")
    wait_for("the pod's containers to be removed", lambda: not real.containers())
    assert list(real.cdi_dir.glob("*.json")) == []
    links = f"manciple-{real.mark}-*"
    wait_for("podman to be shown no CDI file any more", lambda: not list(Path("/run/cdi").glob(links)))


@pytest.mark.long
def test_containers_run_on_while_their_agent_is_killed_and_are_taken_over_by_the_next(
    boxes: Kubectl, real: RealNode
) -> None:
    script = "echo started; while ! test -e /boxes/box-0/end && ! test -e /boxes/box-1/end; do sleep 0.2; done; exit 7"
    apply(boxes, pod("lasting", container(real, "main", script, "first"), restartPolicy="Never"))
    boxes("wait", "--for=condition=Ready", "-n", NAMESPACE, "pod/lasting")
    before = boxes.json("get", "pod", "-n", NAMESPACE, "lasting")["status"]["containerStatuses"][0]

    real.process.kill()
    assert len(real.containers("running")) == 1
    real.start()
    real.process.line("starting with drivers")
    for box in box_driver.NODES:
        (real.folder / "boxes" / box / "end").touch()

    boxes("wait", "--for=jsonpath={.status.phase}=Failed", "-n", NAMESPACE, "pod/lasting")
    after = boxes.json("get", "pod", "-n", NAMESPACE, "lasting")["status"]["containerStatuses"][0]
    assert (after["containerID"], after["restartCount"]) == (before["containerID"], 0)
    assert after["state"]["terminated"]["exitCode"] == 7
    assert after["state"]["terminated"]["reason"] == "Error"
    assert real.log("main") == "started\n"


@pytest.mark.long
def test_a_taint_that_says_out_of_service_frees_no_device_of_a_living_node_before_its_container_has_ended(
    boxes: Kubectl, real: RealNode
) -> None:
    """The container ends later than the next sweep; another pod waits for its device until then."""
    script = "trap 'echo stopping; sleep 24; exit 0' TERM; while true; do sleep 0.1; done"
    holding = pod("holding", container(real, "main", script, "first"), terminationGracePeriodSeconds=60)
    apply(boxes, holding)
    boxes("wait", "--for=condition=Ready", "-n", NAMESPACE, "pod/holding")
    apply(boxes, pod("waiting", container(real, "main", "sleep 1000", "first")))
    taint = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
    boxes("taint", "node", NODE, taint)
    try:
        wait_for("the container to be told to end", lambda: "stopping" in real.log("main"))
        told, seen = time.monotonic(), 0
        while real.containers("running"):
            pods = boxes.json("get", "pods", "-n", NAMESPACE)["items"]
            bound = {one["metadata"]["name"]: one["spec"].get("nodeName") for one in pods}
            claims = boxes.json("get", "resourceclaims", "-n", NAMESPACE)["items"]
            held = [one for one in claims if one.get("status", {}).get("reservedFor")]
            if not real.containers("running"):
                break  # it ended while the API was asked
            assert bound == {"holding": NODE, "waiting": None}
            assert [one["metadata"]["ownerReferences"][0]["name"] for one in held] == ["holding"]
            seen += 1
        assert seen
        assert time.monotonic() - told > 22, "it was not left the time to end"
        wait_for("the pod to go", lambda: "holding" not in boxes("get", "pods", "-n", NAMESPACE))
    finally:
        boxes("taint", "node", NODE, f"{taint}-", check=False)
    boxes("wait", "--for=condition=Ready", "-n", NAMESPACE, "pod/waiting")


@pytest.mark.long
def test_what_a_pod_prints_can_be_read_and_it_is_started_again_as_its_policy_says(
    boxes: Kubectl, real: RealNode
) -> None:
    init = container(real, "prepare", "echo prepared > /shared/file")
    main = container(real, "main", "cat /shared/file; ls /again && sleep 1000; echo failing; exit 1", "first")
    shared = {"volumeMounts": [{"name": "shared", "mountPath": "/shared"}]}
    spec = {"initContainers": [init | shared], "volumes": [{"name": "shared", "emptyDir": {}}]}
    apply(boxes, pod("restarting", main | shared, **spec))

    def restarted() -> dict[str, Any] | None:
        statuses = boxes.json("get", "pod", "-n", NAMESPACE, "restarting")["status"].get("containerStatuses") or [{}]
        return statuses[0] if statuses[0].get("restartCount", 0) >= 1 else None

    status = wait_for("the container to be started again", restarted)

    assert status["lastState"]["terminated"]["exitCode"] == 1
    assert "prepared" in real.log("main")


def test_a_pod_has_what_it_names_and_a_token_that_ends_with_it(boxes: Kubectl, real: RealNode) -> None:
    boxes("create", "secret", "generic", "login", "-n", NAMESPACE, "--from-literal=password=hunter2")
    boxes("create", "configmap", "colours", "-n", NAMESPACE, "--from-literal=sky=blue")
    place = "/var/run/secrets/kubernetes.io/serviceaccount"
    words = f"$PASSWORD $(cat /colours/sky) $(cat {place}/namespace) $(cat {place}/token)"
    script = f"echo {words}; cat {place}/ca.crt; sleep 1000"
    source = {"secretKeyRef": {"name": "login", "key": "password"}}
    given = {
        "env": [{"name": "PASSWORD", "valueFrom": source}],
        "volumeMounts": [{"name": "colours", "mountPath": "/colours"}],
    }
    volumes = [{"name": "colours", "configMap": {"name": "colours"}}]
    apply(boxes, pod("known", container(real, "main", script) | given, volumes=volumes))
    boxes("wait", "--for=condition=Ready", "-n", NAMESPACE, "pod/known")

    def printed() -> str | None:
        text = real.log("main")
        return text if "END CERTIFICATE" in text else None

    first, authority = wait_for("what the container was given", printed).split("\n", 1)
    password, sky, namespace, token = first.split()
    assert (password, sky, namespace) == ("hunter2", "blue", NAMESPACE)

    server = boxes.json("config", "view")["clusters"][0]["cluster"]["server"]
    trusted = ssl.create_default_context(cadata=authority)
    with httpx.Client(base_url=server, verify=trusted, headers={"Authorization": f"Bearer {token}"}) as client:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        answer = client.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", json=review)
        user = answer.json()["status"]["userInfo"]
        assert user["username"] == f"system:serviceaccount:{NAMESPACE}:default"
        assert user["extra"]["authentication.kubernetes.io/pod-name"] == ["known"]
        assert user["extra"]["authentication.kubernetes.io/node-name"] == [NODE]

        boxes("delete", "pod", "known", "-n", NAMESPACE, "--grace-period=1")
        assert client.get("/api").status_code == 401


#: A program with the official client, as in any cluster; it goes on until it sees the second colour.
ASKING = """
import json, time
from kubernetes import client, config
config.load_incluster_config()
api = client.CoreV1Api()
own = open("/var/run/secrets/kubernetes.io/serviceaccount/namespace").read()
print(json.dumps([pod.metadata.name for pod in api.list_namespaced_pod(own).items]), flush=True)
for refused in (lambda: api.read_namespaced_secret("login", own), lambda: api.list_namespaced_pod("default")):
    try:
        refused()
    except client.rest.ApiException as error:
        print(error.status, flush=True)
print(open("/given/name").read(), open("/given/sky").read(), flush=True)
while open("/given/sky").read() == "blue":
    time.sleep(0.2)
print(open("/given/sky").read(), flush=True)
time.sleep(1000)
"""


def with_python(real: RealNode, name: str, script: str) -> dict[str, Any]:
    """A container and the volumes that it mounts: this machine's Python with the official client."""
    packages = Path(str(importlib.import_module("kubernetes").__file__)).parents[1]
    python = Path(sys.executable).resolve()
    places = {"usr": "/usr", "lib": "/lib", "lib64": "/lib64", "packages": str(packages)}
    made = container(real, name, f"exec {python} - <<'END'\n{script}END\n")
    made["env"] = [{"name": "PYTHONPATH", "value": "/packages"}]
    made["volumeMounts"] = [
        {"name": volume, "mountPath": f"/{volume}", "readOnly": True} for volume in (*places, "given")
    ]
    items = [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]
    sources = [{"configMap": {"name": "colours"}}, {"downwardAPI": {"items": items}}]
    volumes = [{"name": volume, "hostPath": {"path": path}} for volume, path in places.items()]
    return {"containers": [made], "volumes": [*volumes, {"name": "given", "projected": {"sources": sources}}]}


@pytest.mark.long
def test_a_program_in_a_pod_lists_pods_by_its_token_and_sees_its_files_change(boxes: Kubectl, real: RealNode) -> None:
    boxes("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=privileged")
    boxes("create", "secret", "generic", "login", "-n", NAMESPACE, "--from-literal=password=hunter2")
    boxes("create", "configmap", "colours", "-n", NAMESPACE, "--from-literal=sky=blue")
    boxes("create", "serviceaccount", "robot", "-n", NAMESPACE)
    boxes("create", "role", "lister", "-n", NAMESPACE, "--verb=list", "--resource=pods")
    binding = ("--role=lister", f"--serviceaccount={NAMESPACE}:robot")
    boxes("create", "rolebinding", "lister", "-n", NAMESPACE, *binding)
    here = {"resourceClaims": [], "nodeSelector": {"kubernetes.io/hostname": NODE}}
    apply(boxes, pod("asking", serviceAccountName="robot", **with_python(real, "main", ASKING), **here))
    quiet = container(real, "quiet", "ls /var/run/secrets 2>&1; sleep 1000")
    apply(boxes, pod("quiet", quiet, automountServiceAccountToken=False, **here))

    def printed() -> list[str] | None:
        lines = real.log("main").splitlines()
        assert not any("Traceback" in line for line in lines), lines
        return lines if len(lines) >= 4 else None

    listed, secret, elsewhere, given = wait_for("what the program saw", printed)[:4]
    assert "asking" in json.loads(listed)
    assert (secret, elsewhere, given) == ("403", "403", "asking blue")
    wait_for("the other container", lambda: "No such file" in real.log("quiet"))

    boxes("patch", "configmap", "colours", "-n", NAMESPACE, "-p", '{"data": {"sky": "grey"}}')
    wait_for("the new colour", lambda: "grey" in real.log("main").splitlines(), timeout=2 * PATIENCE)
