"""What kubectl says of workloads and their neighbours, command by command, is what it says of Kubernetes.

`kubectl_commands.json` has commands in their order, each with its exit code and a line of what it printed: the first
one; the last one of `rollout status`, which says first whatever it happens to see; of a failure the last one.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import pytest

from tests import conformance
from tests.e2e.kubectl import LEAN, Kubectl
from tests.e2e.processes import PATIENCE, Up, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.long]

NAMESPACE, NODE = "commands", "node-1"
#: The node of the reference, and what varies from run to run.
MASKS = (
    (re.compile(rf"\b{NODE}\b"), "kubectl-n1"),
    (re.compile(rf"\b{NAMESPACE}\b"), "NS"),
    (re.compile(r"/tmp/[\w.-]+(/[\w.]+)?"), "TMP"),
    (re.compile(r"^eyJ\S+"), "TOKEN"),
    (re.compile(r"-[a-z0-9]{8,10}\b"), "-HASH"),
    (re.compile(r"-[a-z0-9]{5}\b"), "-XXXXX"),
    (re.compile(r"\s+"), " "),
)


class Said(NamedTuple):
    """code: None where it is a matter of luck."""

    code: int | None
    line: str

    def agrees(self, other: Said) -> bool:
        """Whether `other` has this code, and this as a part of its line."""
        return self.code in (None, other.code) and self.line in other.line


DRAINING = "--ignore-daemonsets --force --delete-emptydir-data --timeout=15s"
#: Why -> (command, what it says here).
DIFFERENT: dict[str, tuple[tuple[str, Said], ...]] = {
    "a class of storage is there from the start": (("kubectl get sc", Said(0, "NAME PROVISIONER")),),
    "a budget allows the last pod's eviction if it is not ready yet": (
        (f"kubectl drain kubectl-n1 {DRAINING}", Said(None, "cordoned")),
    ),
    "the reference ran without kubelets": (
        ("kubectl top pods", Said(None, "")),
        ("kubectl logs deployment/web", Said(0, "simulated container")),
        ("kubectl delete pod bare --grace-period=0 --force", Said(1, "not found")),
    ),
}
HERE = {command: said for told in DIFFERENT.values() for command, said in told}
#: What a simulated container cannot do: the reason alone differs.
UNABLE = ("kubectl exec ", "kubectl attach ", "kubectl cp ")
RECORDED: list[dict[str, Any]] = json.loads(conformance.read("kubectl_commands.json"))

#: Containers with the image `ok` end at once.
ENDS = """
apiVersion: admissionregistration.k8s.io/v1beta1
kind: MutatingAdmissionPolicy
metadata: {name: ends}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  matchConditions: [{name: ok, expression: "object.spec.containers.exists(one, one.image == 'ok')"}]
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: "Object{metadata: Object.metadata{annotations: {'manciple.dev/run-seconds': '0'}}}"
---
apiVersion: admissionregistration.k8s.io/v1beta1
kind: MutatingAdmissionPolicyBinding
metadata: {name: ends}
spec: {policyName: ends}
"""


def workload(kind: str, name: str, label: str, image: str, **spec: Any) -> str:
    container = {"name": "app", "image": image, "ports": [{"containerPort": 80}]}
    of_pod = {"containers": [container], "nodeSelector": {"sc": "kubectl"}, "terminationGracePeriodSeconds": 1}
    template = {"metadata": {"labels": {"app": label}}, "spec": of_pod}
    whole = {"selector": {"matchLabels": {"app": label}}, "template": template, **spec}
    return json.dumps({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": whole})


def manifest(what: str) -> str | None:
    """What a command reads: "web IMAGE", "db" or "agent"."""
    name, _, image = what.partition(" ")
    if name == "web":
        return workload("Deployment", "web", "x", image, replicas=2)
    if name == "db":
        return workload("StatefulSet", "db", "db", "run", replicas=2, serviceName="db")
    return workload("DaemonSet", "agent", "agent", "run") if name else None


def masked(text: str) -> str:
    for pattern, mask in MASKS:
        text = pattern.sub(mask, text)
    return text.strip()


@pytest.fixture
def own(tmp_path_factory: pytest.TempPathFactory, kubectl_program: str) -> Iterator[Kubectl]:
    """A system with one node, whose namespace kubectl takes when none is named."""
    up = Up(home=tmp_path_factory.mktemp("home"), nodes=1).start()
    kubectl = Kubectl(up.kubeconfig, kubectl_program)
    kubectl("create", "namespace", NAMESPACE)
    kubectl("config", "set-context", "--current", f"--namespace={NAMESPACE}")
    kubectl("label", "node", NODE, "sc=kubectl")
    kubectl("apply", "-f", "-", stdin=ENDS)
    yield kubectl
    up.check_invariants()
    assert up.process.stop() == 0, "\n".join(up.process.output)


def say(kubectl: Kubectl, one: dict[str, Any]) -> Said:
    command = one["command"].replace("kubectl-n1", NODE).replace("kubectl ", f"{kubectl.program} ", 1)
    # The reference's few seconds are too short for a machine that is busy with other tests.
    command = re.sub(r"--timeout=(5|10|20)s", f"--timeout={PATIENCE:.0f}s", command)
    environment = {"KUBECONFIG": str(kubectl.kubeconfig), "HOME": str(kubectl.kubeconfig.parent), "KUBE_EDITOR": "true"}
    done = subprocess.run(
        ["sh", "-c", command],
        env={**os.environ, **environment, **LEAN},
        input=manifest(one.get("stdin", "")),
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    failed = done.returncode and not lines
    chosen = done.stderr.splitlines()[-1:] if failed else lines[-1:] if "rollout status" in command else lines[:1]
    return Said(done.returncode, masked(chosen[0]) if chosen else "")


def is_said(kubectl: Kubectl, one: dict[str, Any], expected: Said) -> bool:
    return expected.agrees(say(kubectl, one))


def test_every_command_ends_and_begins_as_with_kubernetes(own: Kubectl) -> None:
    wrong = []
    for one in RECORDED:
        command = one["command"]
        expected = HERE.get(command) or Said(one["rc"], "" if command.startswith(UNABLE) else one["line"])
        said = say(own, one)
        if "rollout undo" in command and not expected.agrees(said):
            # The controller has not seen yet what the command before it did.
            wait_for(command, partial(is_said, own, one, expected))
            continue
        if not expected.agrees(said):
            wrong.append((command, said, expected))
    assert wrong == []


def test_the_commands_that_differ_are_among_the_recorded() -> None:
    assert HERE.keys() <= {one["command"] for one in RECORDED}
