"""The manifests for Kubernetes and the compose file: fields and settings that exist, pods for a strict namespace."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client

from claims.kinds.pod_security import LevelVersion, violations
from claims.kinds.pods import Pod
from claims.kinds.registration import POD
from manciple.declared_settings import SETTINGS
from manciple.processes import command_line
from manciple.wire import codec

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
DOCUMENTS = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "manciple.yaml").read_text()))
COMPOSE = yaml.safe_load((DEPLOY / "container" / "compose.yaml").read_text())


def templates() -> Iterator[tuple[str, Mapping[str, Any]]]:
    for document in DOCUMENTS:
        if "template" in document.get("spec", {}):
            yield document["metadata"]["name"], document["spec"]["template"]


def found(kind: str) -> list[Mapping[str, Any]]:
    return [document for document in DOCUMENTS if document["kind"] == kind]


def test_every_setting_that_is_set_exists() -> None:
    (secret,), (config,) = found("Secret"), found("ConfigMap")
    named = {*secret["stringData"], *config["data"], *COMPOSE["x-manciple"]["environment"]}
    assert named - set(SETTINGS) == set()
    assert misplaced(config["data"]) == set()


def misplaced(config: Iterable[str]) -> set[str]:
    """What is no setting, or a secret one, which belongs into a Secret."""
    return {name for name in config if name not in SETTINGS or SETTINGS[name].secret}


@pytest.mark.parametrize(("name", "template"), list(templates()), ids=[name for name, _ in templates()])
def test_pods_are_valid_and_a_restricted_namespace_takes_them(name: str, template: Mapping[str, Any]) -> None:
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "manciple"}}
    pod: Pod = codec.decode_document(POD, {**document, "spec": template["spec"]}, strictness="Warn").object
    pod = POD.prepare_create(pod)
    assert list(POD.validate_create(pod)) == []
    assert violations(LevelVersion("restricted"), pod) == ()
    (container,) = pod.spec.containers
    assert container.security_context is not None
    assert container.security_context.read_only_root_filesystem
    if container.args and not container.command:
        assert command_line.find(list(container.args)) is not None


def test_a_selector_matches_the_pods_that_it_means() -> None:
    labels = {name: template.get("metadata", {}).get("labels", {}) for name, template in templates()}
    for document in (*found("Deployment"), *found("PodDisruptionBudget")):
        wanted = document["spec"]["selector"]["matchLabels"]
        assert wanted.items() <= labels[document["metadata"]["name"]].items()
    for service in found("Service"):
        assert any(service["spec"]["selector"].items() <= one.items() for one in labels.values())


def test_every_service_of_the_compose_file_runs_a_verb() -> None:
    ours = {name: one for name, one in COMPOSE["services"].items() if "tmpfs" in one}
    assert set(ours) == {"prepare", "api", "worker"}
    for name in ("api", "worker"):
        assert command_line.find(ours[name]["command"]) is not None
    small = yaml.safe_load((DEPLOY / "container" / "compose.small.yaml").read_text())["services"]
    assert small.keys() <= COMPOSE["services"].keys()
    assert small["api"]["command"] == ["serve", "--with-worker", *COMPOSE["services"]["api"]["command"][1:]]
    assert all(one["read_only"] and one["cap_drop"] == ["ALL"] for one in ours.values())


# Kinds that we do not serve, by the schema of Kubernetes' own client --------------------------------------------------

CLIENT_NAMES = {
    ("apps/v1", "Deployment"): "V1Deployment",
    ("batch/v1", "Job"): "V1Job",
    ("policy/v1", "PodDisruptionBudget"): "V1PodDisruptionBudget",
    ("v1", "ConfigMap"): "V1ConfigMap",
    ("v1", "Namespace"): "V1Namespace",
    ("v1", "Secret"): "V1Secret",
    ("v1", "Service"): "V1Service",
}
SCALARS: dict[str, type | tuple[type, ...]] = {
    "str": str,
    "int": int,
    "bool": bool,
    "float": (int, float),
    "object": object,
}


def wrong(value: Any, type_: str, path: str) -> Iterator[str]:
    """What of `value` the client's model `type_` has not, or has as another type."""
    if inner := re.fullmatch(r"[Ll]ist\[(.+)\]", type_):
        for number, one in enumerate(value if isinstance(value, list) else [value]):
            yield from wrong(one, inner[1], f"{path}[{number}]")
    elif inner := re.fullmatch(r"[Dd]ict[\[(]str, (.+)[\])]", type_):
        for name, one in value.items():
            yield from wrong(one, inner[1], f"{path}.{name}")
    elif type_ in SCALARS:
        if not isinstance(value, SCALARS[type_]):
            yield f"{path} is {value!r}, and must be {type_}"
    else:
        model = getattr(client, type_)
        names = {key: name for name, key in model.attribute_map.items()}
        for key, one in value.items():
            if key in names:
                yield from wrong(one, model.openapi_types[names[key]], f"{path}.{key}")
            else:
                yield f"{path}.{key} is no field of {type_}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=[f"{one['kind']}-{one['metadata']['name']}" for one in DOCUMENTS])
def test_every_field_of_a_manifest_is_one_of_kubernetes(document: Mapping[str, Any]) -> None:
    type_ = CLIENT_NAMES[document["apiVersion"], document["kind"]]
    assert list(wrong(document, type_, document["kind"])) == []


def test_a_field_that_kubernetes_does_not_have_is_noticed() -> None:
    spec = {"template": {"spec": {"containers": [{"name": "a", "imagePull": "x"}]}}, "replicas": "2"}
    assert list(wrong({"spec": spec}, "V1Deployment", "d")) == [
        "d.spec.template.spec.containers[0].imagePull is no field of V1Container",
        "d.spec.replicas is '2', and must be int",
    ]
