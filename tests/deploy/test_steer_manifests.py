"""Steering: the policy that adds the gate, the process that ends gates, and their rights; plain, and from the chart."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from claims.kinds.pod_security import LevelVersion, violations
from claims.kinds.pods import Pod
from claims.kinds.registration import POD
from manciple.mirror import kubeconfig
from manciple.mirror.client import Remote
from manciple.mirror.kubeconfig import Choice
from manciple.mirror.steering import end_gates
from manciple.mirror.steering.end_gates import REASON, GateEnder, GateTable
from manciple.mirror.steering.names import GATE, LABEL, LABEL_VALUE, TIME_LIMIT
from manciple.mirror.steering.rights import NEEDED
from manciple.processes import command_line, mirror
from manciple.wire import codec
from manciple.wire.patch import json_patch
from tests.deploy.test_manifests import CLIENT_NAMES, wrong
from tests.deploy.test_mirror_manifests import DOCUMENTS as MIRROR
from tests.deploy.test_mirror_manifests import (
    NAME,
    Document,
    Render,
    every_renderer,
    granted,
    read,
    the,
)
from tests.e2e.kubectl import Kubectl, find_kubectl
from tests.manciple.api.server import ApiServer
from tests.manciple.mirror.test_replicator import until

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes" / "mirror-steer"
OVERLAY = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
FILES = {name: read((FOLDER / name).read_text()) for name in ("steer.yaml", "policy.yaml", "end-gates.yaml")}
PLAIN = [document for documents in FILES.values() for document in documents]
ENDER = FILES["end-gates.yaml"]
ACCOUNT = f"system:serviceaccount:{NAME}:{the('ServiceAccount', ENDER)['metadata']['name']}"


def steered_mirror() -> list[Document]:
    """The mirror's own manifests with the overlay's patch."""
    (patch,) = OVERLAY["patches"]
    patched = json_patch(dict(the("Deployment", MIRROR)), yaml.safe_load(patch["patch"]))
    assert patch["target"] == {"kind": "Deployment", "name": patched["metadata"]["name"]}
    leaves_out = ("Namespace", "Ingress", "Deployment")
    return [*(one for one in MIRROR if one["kind"] not in leaves_out), patched]


def test_the_overlay_names_every_file_and_the_mirror_steers() -> None:
    assert set(OVERLAY["resources"]) == {"../mirror", *FILES}
    assert {path.name for path in FOLDER.iterdir()} == {"kustomization.yaml", *FILES}
    (container,) = the("Deployment", steered_mirror())["spec"]["template"]["spec"]["containers"]
    assert mirror.parser().parse_args(container["args"][1:]).steer


@every_renderer
def test_the_chart_renders_the_plain_manifests_where_it_steers(render: Render) -> None:
    def sorted_without_namespace(documents: list[Document]) -> list[Document]:
        return sorted(documents, key=lambda one: (one["kind"], one["metadata"]["name"]))

    rendered = read(render({"steer": {"enabled": True}}))
    assert sorted_without_namespace(rendered) == sorted_without_namespace([*steered_mirror(), *PLAIN])


@every_renderer
def test_values_of_steering_end_where_they_belong(render: Render) -> None:
    values = {
        "labels": {"team": "platform"},
        "networkPolicy": {"enabled": False},
        "steer": {
            "enabled": True,
            "policyVersion": "v1beta1",
            "endAfter": 60,
            "resources": {"limits": {"memory": "1Gi"}},
        },
    }
    documents = read(render(values))
    assert {document["metadata"]["labels"]["team"] for document in documents} == {"platform"}
    policies = [one for one in documents if one["kind"].startswith("MutatingAdmissionPolicy")]
    assert [one["apiVersion"] for one in policies] == ["admissionregistration.k8s.io/v1beta1"] * 3
    (deployment,) = (
        one for one in documents if one["metadata"]["name"].endswith("-end-gates") and "template" in one.get("spec", {})
    )
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert end_gates.parser().parse_args(container["args"][1:]).after == 60
    assert container["resources"]["limits"]["memory"] == "1Gi"
    assert "NetworkPolicy" not in {document["kind"] for document in documents}
    without = read(render({"steer": {"enabled": True, "policyVersion": ""}}))
    assert not {one["kind"] for one in without} & {one["kind"] for one in policies}
    assert "Deployment" in {one["kind"] for one in without}


@pytest.mark.parametrize("document", PLAIN, ids=[f"{one['kind']} {one['metadata']['name']}" for one in PLAIN])
def test_every_field_is_one_of_kubernetes(document: Document) -> None:
    version, kind = document["apiVersion"], document["kind"]
    assert list(wrong(document, CLIENT_NAMES.get((version, kind), f"V1{kind}"), kind)) == []


def test_the_process_that_ends_gates_may_do_what_it_does_and_nothing_else() -> None:
    assert set().union(*map(granted, the("ClusterRole", ENDER)["rules"])) == {
        ("", "pods", "list"), ("", "pods", "watch"), ("", "pods", "patch"), ("", "events", "create"),
    }  # fmt: skip
    (subject,) = the("ClusterRoleBinding", ENDER)["subjects"]
    assert f"system:serviceaccount:{subject['namespace']}:{subject['name']}" == ACCOUNT
    assert the("ClusterRoleBinding", ENDER)["roleRef"]["name"] == the("ClusterRole", ENDER)["metadata"]["name"]
    steering = FILES["steer.yaml"]
    assert set().union(*map(granted, the("ClusterRole", steering)["rules"])) == {
        ("", "/".join(filter(None, one)), "patch") for one in NEEDED
    }
    (subject,) = the("ClusterRoleBinding", steering)["subjects"]
    assert (subject["namespace"], subject["name"]) == (NAME, the("ServiceAccount", MIRROR)["metadata"]["name"])


def test_its_pods_are_valid_and_a_restricted_namespace_takes_them() -> None:
    deployment = the("Deployment", ENDER)
    template = deployment["spec"]["template"]
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "end-gates", "namespace": NAME}}
    pod: Pod = codec.decode_document(POD, {**document, "spec": template["spec"]}, strictness="Strict").object
    pod = POD.prepare_create(pod)
    assert list(POD.validate_create(pod)) == []
    assert violations(LevelVersion("restricted"), pod) == ()
    (container,) = template["spec"]["containers"]
    verb = command_line.find(container["args"])
    assert verb is not None
    assert verb.name == "end_gates"
    assert end_gates.parser().parse_args(container["args"][1:]).after == end_gates.AFTER > TIME_LIMIT
    selectors = [deployment["spec"]["selector"], the("NetworkPolicy", ENDER)["spec"]["podSelector"]]
    selectors += [one["labelSelector"] for one in template["spec"]["topologySpreadConstraints"]]
    labels = template["metadata"]["labels"]
    assert all(one["matchLabels"] == labels for one in selectors)
    assert not the("Service", MIRROR)["spec"]["selector"].items() <= labels.items(), "nobody is sent there for pages"
    assert template["spec"]["serviceAccountName"] == the("ServiceAccount", ENDER)["metadata"]["name"]


# In a second Manciple -------------------------------------------------------------------------------------------------


@pytest.fixture
def kubectl(api_server: ApiServer) -> Kubectl:
    return Kubectl(api_server.kubeconfig, find_kubectl())


def pod(name: str, *, label: str = "", claims: bool = True, **spec: Any) -> Document:
    container: dict[str, Any] = {"name": "c", "image": "i"}
    if claims:
        container["resources"] = {"claims": [{"name": "gpu"}]}
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "gpu"}]
    meta = {"name": name, **({"labels": {LABEL: label}} if label else {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [container], **spec}}


QUOTA = {"name": "example.com/quota"}
OURS = {"name": GATE}
#: Namespace, pod -> its gates.
PODS: dict[str, tuple[str, Document, list[Document]]] = {
    "the label": ("default", pod("labelled", label=LABEL_VALUE), [OURS]),
    "the label, without claims": ("default", pod("plain", label=LABEL_VALUE, claims=False), [OURS]),
    "no label": ("default", pod("unlabelled"), []),
    "another value": ("default", pod("other", label="yes"), []),
    "a gate of somebody else": (
        "default", pod("quota", label=LABEL_VALUE, schedulingGates=[QUOTA]), [QUOTA, OURS],
    ),
    "the gate already": ("default", pod("gated", label=LABEL_VALUE, schedulingGates=[OURS]), [OURS]),
    "a node already": ("default", pod("bound", label=LABEL_VALUE, nodeName="n1"), []),
    "a namespace with the label": ("steered", pod("inner"), [OURS]),
    "such a namespace, without claims": ("steered", pod("web", claims=False), []),
    "such a namespace, kept out": ("steered", pod("out", label="false"), []),
    "such a namespace, and the label": ("steered", pod("both", label=LABEL_VALUE), [OURS]),
}  # fmt: skip


def test_pods_that_opt_in_get_the_gate_and_others_stay_as_they_are(kubectl: Kubectl) -> None:
    kubectl("apply", "-k", str(FOLDER))
    kubectl("create", "namespace", "steered")
    kubectl("label", "namespace", "steered", f"{LABEL}={LABEL_VALUE}")
    for namespace, document, _ in PODS.values():
        kubectl("create", "-n", namespace, "-f", "-", stdin=yaml.safe_dump(document))
    made = {
        (namespace, one["metadata"]["name"]): one
        for namespace in ("default", "steered")
        for one in kubectl.json("get", "pods", "-n", namespace)["items"]
    }
    for case, (namespace, document, gates) in PODS.items():
        one = made[namespace, document["metadata"]["name"]]
        assert one["spec"].get("schedulingGates", []) == gates, case
        if gates:
            assert one["metadata"]["labels"][LABEL] == LABEL_VALUE, f"{case}: by which the ender finds it"
    # A gate cannot be added later, so updates are let alone: they would be refused.
    kubectl("label", "pod", "unlabelled", f"{LABEL}={LABEL_VALUE}")
    assert "schedulingGates" not in kubectl.json("get", "pod", "unlabelled")["spec"]
    removed = [{"op": "remove", "path": "/spec/schedulingGates"}]
    kubectl("patch", "pod", "labelled", "--type=json", f"-p={removed}".replace("'", '"'))
    assert "schedulingGates" not in kubectl.json("get", "pod", "labelled")["spec"]


@pytest.fixture
def ending(api_server: ApiServer) -> Iterator[GateEnder]:
    """With the rights of its service account."""
    remote = Remote(kubeconfig.read(Choice(kubeconfig=str(api_server.kubeconfig_of(ACCOUNT)))))
    ender = GateEnder(remote, GateTable(0.2))
    threads = [threading.Thread(target=loop) for loop in (ender.follow, ender.end)]
    for thread in threads:
        thread.start()
    yield ender
    ender.stop()
    for thread in threads:
        thread.join(20)
    remote.close()


def test_with_its_rights_gates_end_and_the_pod_says_so(kubectl: Kubectl, ending: GateEnder) -> None:
    kubectl("create", "namespace", NAME)
    kubectl("apply", "-f", str(FOLDER / "end-gates.yaml"))
    kubectl("create", "-f", "-", stdin=yaml.safe_dump(pod("train", label=LABEL_VALUE, schedulingGates=[QUOTA, OURS])))
    until(lambda: kubectl.json("get", "pod", "train")["spec"]["schedulingGates"] == [QUOTA])
    until(lambda: REASON in kubectl("describe", "pod", "train"))
    may = ("auth", "can-i", f"--as={ACCOUNT}")
    for refused in (
        ("get", "secrets"),
        ("delete", "pods"),
        ("create", "pods"),
        ("patch", "pods", "--subresource=status"),
    ):
        assert kubectl(*may, *refused, check=False).splitlines()[0] == "no", refused
