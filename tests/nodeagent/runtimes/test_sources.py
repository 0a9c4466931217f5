"""What containers see of their pod, of ConfigMaps and of Secrets: as variables and as files. Words are a kubelet's."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from claims.kinds.pods import Pod
from nodeagent.config import machine_cpus
from nodeagent.pods.volumes import FileContent, files_of
from nodeagent.runtimes.protocol import Addresses, ContainerEnvironment, MissingSource, environment_of
from tests.nodeagent.objects import pod
from tests.nodeagent.pods.given_sources import GivenSources
from tests.outlines import Outline

Document = dict[str, Any]

SOURCES = GivenSources(
    secrets={"login": {"user": "ada", "password": "a b\n'c'"}},
    config_maps={"colours": {"sky": "blue", "not a=name": "x"}},
    unreadable={"away"},
)


def manifest(container: Document | None = None, **spec: Any) -> Pod:
    amounts = {"limits": {"memory": "64Mi"}, "requests": {"cpu": "250m"}}
    document = pod(
        "web",
        {"name": "main", "image": "busybox", "resources": amounts, **(container or {})},
        metadata={"labels": {"app": "web", "tier": 'a"b'}, "annotations": {"note": "x\ny"}},
        spec={"serviceAccountName": "robot", **spec},
    )
    return msgspec.convert(document, Pod)


# Variables ------------------------------------------------------------------------------------------------------------


def environment(*env: Document, env_from: tuple[Document, ...] = ()) -> ContainerEnvironment:
    made = manifest({"env": list(env), "envFrom": list(env_from)})
    return environment_of(made, made.spec.containers[0], Addresses(host="192.0.2.1", pod="10.1.2.3"), SOURCES)


def of(kind: str, name: str, key: str, **more: Any) -> Document:
    return {"name": "A", "valueFrom": {f"{kind}KeyRef": {"name": name, "key": key, **more}}}


def test_variables_are_taken_from_secrets_and_config_maps_and_secrets_are_marked() -> None:
    found = environment(
        {"name": "PLAIN", "value": "x"},
        {**of("secret", "login", "password"), "name": "PASSWORD"},
        {**of("configMap", "colours", "sky"), "name": "SKY"},
        {"name": "URL", "value": "db://$(PASSWORD)@$(SKY)"},
        {"name": "ABOVE", "value": "$(SKY)"},
        env_from=({"prefix": "L_", "secretRef": {"name": "login"}}, {"configMapRef": {"name": "colours"}}),
    )
    assert found.variables == {
        "L_password": "a b\n'c'",
        "L_user": "ada",
        "sky": "blue",
        "PLAIN": "x",
        "PASSWORD": "a b\n'c'",
        "SKY": "blue",
        "URL": "db://a b\n'c'@blue",
        "ABOVE": "blue",
    }
    assert found.confidential == {"L_password", "L_user", "PASSWORD", "URL"}
    assert found.unserved == []


def test_what_is_overwritten_by_a_plain_value_is_confidential_no_more() -> None:
    found = environment({"name": "user", "value": "eve"}, env_from=({"secretRef": {"name": "login"}},))
    assert (found.variables["user"], found.confidential) == ("eve", {"password"})


MISSING: dict[str, tuple[Document, str]] = {
    "a secret": (of("secret", "nope", "x"), 'secret "nope" not found'),
    "a config map": (of("configMap", "nope", "x"), 'configmap "nope" not found'),
    "a key of a secret": (of("secret", "login", "nope"), "couldn't find key nope in Secret default/login"),
    "a key of a config map": (of("configMap", "colours", "x"), "couldn't find key x in ConfigMap default/colours"),
}


@pytest.mark.parametrize("what", MISSING)
def test_a_variable_whose_source_is_missing_is_told(what: str) -> None:
    variable, told = MISSING[what]
    with pytest.raises(MissingSource) as refused:
        environment(variable)
    assert str(refused.value) == Outline(told)
    (kind, chosen), *_ = variable["valueFrom"].items()
    assert environment({"name": "A", "valueFrom": {kind: {**chosen, "optional": True}}}).variables == {}


def test_whole_sources_may_be_missing_only_where_they_are_optional() -> None:
    with pytest.raises(MissingSource, match='configmap "nope" not found'):
        environment(env_from=({"configMapRef": {"name": "nope"}},))
    assert environment(env_from=({"secretRef": {"name": "nope", "optional": True}},)).variables == {}


def test_what_cannot_be_read_now_is_not_taken_for_missing() -> None:
    with pytest.raises(MissingSource, match="no answer"):
        environment(of("secret", "away", "x", optional=True))
    with pytest.raises(MissingSource, match="no answer"):
        environment(env_from=({"secretRef": {"name": "away", "optional": True}},))
    with pytest.raises(MissingSource, match="no answer"):
        files({"secret": {"secretName": "away", "optional": True}})


# Files ----------------------------------------------------------------------------------------------------------------


def files(source: Document, *, container: Document | None = None, **spec: Any) -> dict[str, FileContent]:
    made = manifest(container, volumes=[{"name": "v", **source}], **spec)
    return files_of(made, made.spec.volumes[0], SOURCES, lambda wanted: f"token for {wanted.audience or 'the API'}")


def keys(*items: Document, **more: Any) -> Document:
    return {"items": list(items), **more}


VOLUMES: dict[str, tuple[Document, dict[str, FileContent]]] = {
    "a secret": (
        {"secret": {"secretName": "login", "defaultMode": 0o400}},
        {"user": FileContent(b"ada", 0o400), "password": FileContent(b"a b\n'c'", 0o400)},
    ),
    "keys of a secret": (
        {"secret": {"secretName": "login", **keys({"key": "user", "path": "in/here", "mode": 0o440, "user": 7})}},
        {"in/here": FileContent(b"ada", 0o440, 7)},
    ),
    "a secret that may be missing": ({"secret": {"secretName": "nope", "optional": True}}, {}),
    "a key that may be missing": (
        {"configMap": {"name": "colours", "optional": True, **keys({"key": "x", "path": "x"})}},
        {},
    ),
    "a config map": (
        {"configMap": {"name": "colours", **keys({"key": "sky", "path": "sky"})}},
        {"sky": FileContent(b"blue", 0o644)},
    ),
    "fields of the pod": (
        {
            "downwardAPI": {
                "items": [
                    {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
                    {"path": "notes", "mode": 0o600, "fieldRef": {"fieldPath": "metadata.annotations"}},
                    {"path": "app", "fieldRef": {"fieldPath": "metadata.labels['app']"}},
                    {
                        "path": "memory",
                        "resourceFieldRef": {"containerName": "main", "resource": "limits.memory", "divisor": "1Mi"},
                    },
                    {
                        "path": "cpu",
                        "resourceFieldRef": {"containerName": "main", "resource": "requests.cpu", "divisor": "1m"},
                    },
                    {"path": "cpus", "resourceFieldRef": {"containerName": "main", "resource": "limits.cpu"}},
                    *(
                        {"path": name, "resourceFieldRef": {"containerName": "main", "resource": name}}
                        for name in ("limits.ephemeral-storage", "requests.memory", "requests.hugepages-2Mi")
                    ),
                ]
            }
        },
        {
            "labels": FileContent(b'app="web"\ntier="a\\"b"', 0o644),
            "notes": FileContent(b'note="x\\ny"', 0o600),
            "app": FileContent(b"web", 0o644),
            "memory": FileContent(b"64", 0o644),
            "cpu": FileContent(b"250", 0o644),
            "cpus": FileContent(machine_cpus().encode(), 0o644),
            **dict.fromkeys(
                ("limits.ephemeral-storage", "requests.memory", "requests.hugepages-2Mi"), FileContent(b"0", 0o644)
            ),
        },
    ),
    "several things": (
        {
            "projected": {
                "defaultMode": 0o444,
                "sources": [
                    {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
                    {"serviceAccountToken": {"path": "vault", "audience": "vault"}},
                    {"configMap": {"name": "colours", **keys({"key": "sky", "path": "sky"})}},
                    {"secret": {"name": "login", **keys({"key": "user", "path": "user"})}},
                    {"secret": {"name": "nope", "optional": True}},
                    {"downwardAPI": {"items": [{"path": "ns", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
                ],
            }
        },
        {
            "token": FileContent(b"token for the API", 0o444),
            "vault": FileContent(b"token for vault", 0o444),
            "sky": FileContent(b"blue", 0o444),
            "user": FileContent(b"ada", 0o444),
            "ns": FileContent(b"default", 0o444),
        },
    ),
}


@pytest.mark.parametrize("what", VOLUMES)
def test_a_volume_holds_what_its_source_says(what: str) -> None:
    source, expected = VOLUMES[what]
    assert files(source) == expected


REFUSED: dict[str, tuple[Document, str]] = {
    "a secret that is missing": ({"secret": {"secretName": "nope"}}, 'secret "nope" not found'),
    "a key that is missing": (
        {"secret": {"secretName": "login", **keys({"key": "x", "path": "x"})}},
        "references non-existent secret key: x",
    ),
    "a key of a config map": (
        {"configMap": {"name": "colours", **keys({"key": "x", "path": "x"})}},
        "references non-existent config key: x",
    ),
    "several that are missing": (
        {"projected": {"sources": [{"secret": {"name": "a"}}, {"configMap": {"name": "b"}}]}},
        '[secret "a" not found, configmap "b" not found]',
    ),
    "a path that leads out": (
        {"secret": {"secretName": "login", **keys({"key": "user", "path": "a/../../x"})}},
        "the path a/../../x leads outside the volume",
    ),
    "a path of the agent's own": (
        {"configMap": {"name": "colours", **keys({"key": "sky", "path": "..data"})}},
        "… ..data …",
    ),
    "a path anywhere": (
        {"configMap": {"name": "colours", **keys({"key": "sky", "path": "/etc/passwd"})}},
        "… /etc/passwd …",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_volume_that_cannot_be_made_is_told(what: str) -> None:
    source, told = REFUSED[what]
    with pytest.raises(MissingSource) as refused:
        files(source)
    assert str(refused.value) == Outline(told)


USERS: list[tuple[Document, Document, int, int | None]] = [
    # the pod's security context, the container's, mode and owner of a token
    ({}, {}, 0o644, None),
    ({"runAsUser": 1000}, {}, 0o600, 1000),
    ({"runAsUser": 1000}, {"runAsUser": 7}, 0o600, 7),
    ({"fsGroup": 5}, {}, 0o600, None),
]


@pytest.mark.parametrize(("of_pod", "own", "mode", "user"), USERS)
def test_a_token_is_for_the_user_of_the_containers(
    of_pod: Document, own: Document, mode: int, user: int | None
) -> None:
    source = {"projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}
    made = files(source, container={"securityContext": own}, securityContext=of_pod)
    assert made["token"] == FileContent(b"token for the API", mode, user)
