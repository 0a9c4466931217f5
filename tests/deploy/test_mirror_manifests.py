"""A mirror within its cluster: the chart renders the plain manifests, whose rights are what the program asks for."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from claims.kinds.pod_security import LevelVersion, violations
from claims.kinds.pods import Pod
from claims.kinds.registration import POD
from manciple.mirror import naming
from manciple.mirror.sources import COPIED, LEASE
from manciple.processes import command_line, mirror
from manciple.wire import codec
from tests.deploy.go_templates import Chart, Failed
from tests.deploy.test_manifests import CLIENT_NAMES, misplaced, wrong
from tests.e2e.kubectl import Kubectl, find_kubectl
from tests.manciple.api.server import ApiServer
from tests.manciple.api.test_charts import lost, revisions

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
PLAIN, CHART = DEPLOY / "kubernetes" / "mirror", DEPLOY / "helm" / "manciple-mirror"
NAME = "manciple-mirror"
Document = Mapping[str, Any]


def read(text: str) -> list[Document]:
    return [document for document in yaml.safe_load_all(text) if document]


FILES = {path.name: read(path.read_text()) for path in PLAIN.glob("*.yaml")}
DOCUMENTS = [*FILES["namespace.yaml"], *FILES["mirror.yaml"], *FILES["ingress.yaml"]]


def the(kind: str, documents: list[Document] = DOCUMENTS) -> Document:
    (found,) = (document for document in documents if document["kind"] == kind)
    return found


# The chart ------------------------------------------------------------------------------------------------------------


def by_us(values: Mapping[str, Any]) -> str:
    return Chart(CHART).render(NAME, NAME, values)


def by_helm(values: Mapping[str, Any]) -> str:
    options = [f"--set-json={name}={json.dumps(value)}" for name, value in values.items()]
    command = [HELM, "template", NAME, str(CHART), "--namespace", NAME, "--kube-version", "1.34.0", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(done.stderr)
    return done.stdout


HELM = os.environ.get("MANCIPLE_HELM") or shutil.which("helm") or ""
Render = Callable[[Mapping[str, Any]], str]
#: Helm itself, where it is installed.
RENDERERS: Mapping[str, Render] = {"ours": by_us, **({"helm": by_helm} if HELM else {})}
every_renderer = pytest.mark.parametrize("render", RENDERERS.values(), ids=RENDERERS)


@every_renderer
def test_the_chart_renders_the_plain_manifests(render: Render) -> None:
    assert sorted(read(render({})), key=str) == sorted(FILES["mirror.yaml"], key=str)
    rendered = read(render({"ingress": {"enabled": True}}))
    assert the("Ingress", rendered) == the("Ingress")


@every_renderer
def test_values_end_where_they_belong(render: Render) -> None:
    values = {
        "image": "registry.lab/manciple",
        "tag": "1.2",
        "secretName": "keys",
        "context": "prod: eu",
        "host": "gpus.lab",
        "redisUrl": "redis://redis:6379/0",
        "oidc": {"issuerUrl": "https://idp.lab", "clientId": "manciple"},
        "settings": {"MANCIPLE_OIDC_GROUPS_CLAIM": "roles", "MANCIPLE_AUDIT_DAYS": 7},
        "resources": {"requests": {"cpu": "1"}},
        "labels": {"team": "platform"},
        "ingress": {"enabled": True, "className": "nginx", "annotations": {"a/b": "c"}, "tlsSecretName": "tls"},
        "networkPolicy": {"enabled": False},
    }
    documents = read(render(values))
    assert {document["metadata"]["labels"]["team"] for document in documents} == {"platform"}
    template = the("Deployment", documents)["spec"]["template"]
    assert template["metadata"]["labels"]["team"] == "platform"
    assert "team" not in the("Deployment", documents)["spec"]["selector"]["matchLabels"], "which cannot change later"
    (container,) = template["spec"]["containers"]
    assert container["image"] == "registry.lab/manciple:1.2"
    assert container["args"][container["args"].index("--context") + 1] == "prod: eu"
    assert container["resources"]["requests"]["cpu"] == "1"
    assert {"secretRef": {"name": "keys"}} in container["envFrom"]
    assert (
        the("ConfigMap", documents)["data"].items()
        >= {
            "MANCIPLE_ALLOWED_HOSTS": "gpus.lab",
            "MANCIPLE_PAGES_URL": "https://gpus.lab",
            "MANCIPLE_REDIS_URL": "redis://redis:6379/0",
            "MANCIPLE_OIDC_ISSUER_URL": "https://idp.lab",
            "MANCIPLE_OIDC_CLIENT_ID": "manciple",
            "MANCIPLE_OIDC_GROUPS_CLAIM": "roles",
            "MANCIPLE_AUDIT_DAYS": "7",
        }.items()
    )
    ingress = the("Ingress", documents)
    assert ingress["metadata"]["annotations"] == {"a/b": "c"}
    assert ingress["spec"]["ingressClassName"] == "nginx"
    assert ingress["spec"]["tls"] == [{"hosts": ["gpus.lab"], "secretName": "tls"}]
    assert ingress["spec"]["rules"][0]["host"] == "gpus.lab"
    assert "NetworkPolicy" not in {document["kind"] for document in documents}


@every_renderer
def test_one_replica_needs_no_database_and_two_do(render: Render) -> None:
    documents = read(render({"replicas": 1, "secretName": ""}))
    (container,) = the("Deployment", documents)["spec"]["template"]["spec"]["containers"]
    assert [list(one) for one in container["envFrom"]] == [["configMapRef"]]
    assert "PodDisruptionBudget" not in {document["kind"] for document in documents}, (
        "it would keep its node from draining"
    )
    with pytest.raises(Failed, match="PostgreSQL"):
        render({"secretName": ""})


def test_a_chart_that_is_cut_or_asks_for_more_is_not_rendered(tmp_path: Path) -> None:
    (tmp_path / "templates").mkdir()
    (tmp_path / "values.yaml").write_text("a: 1")
    template = tmp_path / "templates" / "a.yaml"
    for text in ("{{ if .Values.a }}", "{{ .Values.b }}", "{{ upper .Values.a }}"):
        template.write_text(text)
        with pytest.raises((AssertionError, KeyError)):
            Chart(tmp_path).render("a", "b", {})
    loop = "{{- range $n, $v := .Values.c }} {{ $n }}={{ $v }}{{ end }}"
    template.write_text(f"x: {{{{ .Values.a | quote }}}}{{{{- if not .Values.a }}}} no{{{{ end }}}}\n{loop}")
    assert Chart(tmp_path).render("a", "b", {"c": {"z": 1, "y": True}}) == 'x: "1" y=true z=1'


# Rights ---------------------------------------------------------------------------------------------------------------


def granted(rule: Document) -> set[tuple[str, str, str]]:
    """(group, resource, verb)"""
    return {(g, r, v) for g in rule.get("apiGroups", ()) for r in rule.get("resources", ()) for v in rule["verbs"]}


def test_the_mirror_may_read_what_it_copies_or_follows_and_ask_about_people_and_nothing_else() -> None:
    rules = the("ClusterRole")["rules"]
    assert set().union(*map(granted, rules)) == {
        *((source.group, source.plural, verb) for source in (*COPIED, LEASE) for verb in ("get", "list", "watch")),
        ("authentication.k8s.io", "tokenreviews", "create"),
        ("authorization.k8s.io", "subjectaccessreviews", "create"),
    }
    paths = {(path, verb) for rule in rules for path in rule.get("nonResourceURLs", ()) for verb in rule["verbs"]}
    assert paths == {("/version", "get"), ("/metrics", "get")}
    assert not {name for rule in rules for name in rule.get("resources", ())} & {"secrets", "configmaps", "*"}
    binding = the("ClusterRoleBinding")
    assert binding["roleRef"]["name"] == the("ClusterRole")["metadata"]["name"]
    (subject,) = binding["subjects"]
    assert (subject["kind"], subject["name"]) == ("ServiceAccount", the("ServiceAccount")["metadata"]["name"])
    assert the("Deployment")["spec"]["template"]["spec"]["serviceAccountName"] == subject["name"]


# The pods -------------------------------------------------------------------------------------------------------------


def test_its_pods_are_valid_and_a_restricted_namespace_takes_them() -> None:
    template = the("Deployment")["spec"]["template"]
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "mirror", "namespace": NAME}}
    pod: Pod = codec.decode_document(POD, {**document, "spec": template["spec"]}, strictness="Strict").object
    pod = POD.prepare_create(pod)
    assert list(POD.validate_create(pod)) == []
    assert violations(LevelVersion("restricted"), pod) == ()
    level = the("Namespace")["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
    assert level == "restricted"
    (container,) = pod.spec.containers
    assert container.security_context is not None
    assert container.security_context.read_only_root_filesystem
    verb = command_line.find(list(container.args))
    assert verb is not None
    assert verb.name == "mirror"
    assert mirror.parser().parse_args(container.args[1:]).in_cluster


def test_names_lead_to_each_other() -> None:
    labels = the("Deployment")["spec"]["template"]["metadata"]["labels"]
    (container,) = the("Deployment")["spec"]["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    for selector in (
        the("Deployment")["spec"]["selector"]["matchLabels"],
        the("Service")["spec"]["selector"],
        the("PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        the("NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
    ):
        assert selector.items() <= labels.items()
    assert {port["targetPort"] for port in the("Service")["spec"]["ports"]} == {"pages"}
    probes = [container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")]
    assert {probe["port"] for probe in probes} == {"pages"}
    opened = {port["port"] for rule in the("NetworkPolicy")["spec"]["ingress"] for port in rule["ports"]}
    assert opened == ports.keys()
    config = the("ConfigMap")["data"]
    assert config["MANCIPLE_METRICS_LISTEN"].rpartition(":")[2] == str(ports["metrics"])
    assert container["args"][container["args"].index("--listen") + 1].rpartition(":")[2] == str(ports["pages"])
    annotations = the("Deployment")["spec"]["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == str(ports["metrics"])
    backend = the("Ingress")["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]
    assert (backend["name"], backend["port"]) == (the("Service")["metadata"]["name"], {"name": "pages"})
    assert misplaced(config) == {"FORWARDED_ALLOW_IPS"}, "uvicorn's own"


@pytest.mark.parametrize("document", DOCUMENTS, ids=[one["kind"] for one in DOCUMENTS])
def test_every_field_is_one_of_kubernetes(document: Document) -> None:
    version, kind = document["apiVersion"], document["kind"]
    assert list(wrong(document, CLIENT_NAMES.get((version, kind), f"V1{kind}"), kind)) == []


def test_both_are_applied_as_they_are_and_are_the_same(api_server: ApiServer, tmp_path: Path) -> None:
    kubectl = Kubectl(api_server.kubeconfig, find_kubectl())
    answer = kubectl("apply", "-k", str(PLAIN)).splitlines()
    assert [line.rsplit(" ", 1)[-1] for line in answer] == ["created"] * len(
        [*FILES["namespace.yaml"], *FILES["mirror.yaml"]]
    )
    chart = tmp_path / "chart.yaml"
    chart.write_text(by_us({}))
    kept = kubectl.json("get", "-n", NAME, "-f", str(chart))["items"]
    for document, one in zip(read(chart.read_text()), kept, strict=True):
        assert lost(document, one) == [], document["kind"]
    kubectl("apply", "-n", NAME, "-f", str(chart))
    assert revisions(kubectl.json("get", "-n", NAME, "-f", str(chart))) == revisions({"items": kept})
    may = ("auth", "can-i", f"--as=system:serviceaccount:{NAME}:{NAME}")
    assert kubectl(*may, "list", "resourceclaims.resource.k8s.io", "--all-namespaces").strip() == "yes"
    for refused in (("get", "secrets"), ("list", "configmaps"), ("create", "pods"), ("delete", "nodes")):
        assert kubectl(*may, *refused, "--all-namespaces", check=False).splitlines()[0] == "no", refused


# Acting ---------------------------------------------------------------------------------------------------------------


def test_the_component_lets_it_impersonate_what_it_asks_about_and_nothing_else() -> None:
    folder = DEPLOY / "kubernetes" / "mirror-act"
    role, binding = read((folder / "act.yaml").read_text())
    (component,) = read((folder / "kustomization.yaml").read_text())
    wanted = {(group, resource, "impersonate") for group, resource in naming.PARTS}
    wanted |= {("authentication.k8s.io", f"userextras/{key}", "impersonate") for key in naming.ACCOUNT_EXTRAS}
    assert set().union(*map(granted, role["rules"])) == wanted
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert binding["subjects"] == the("ClusterRoleBinding")["subjects"]
    (patch,) = component["patches"]
    assert patch["target"]["name"] == the("Deployment")["metadata"]["name"]
    assert [one["value"] for one in yaml.safe_load(patch["patch"])] == ["--act"]
