"""What a pod may take from Secrets, ConfigMaps and itself. The answers are those of Kubernetes 1.36."""

from __future__ import annotations

from typing import Any

import pytest

from claims.kinds.pods import Pod
from claims.kinds.registration import POD
from claims.kinds.source_rules import validate_no_tokens
from claims.kinds.volumes import Volume
from manciple.wire import codec
from manciple.wire.validation import Path

Document = dict[str, Any]
#: (reason, field below the volume or container, message)
Told = list[tuple[str, str, str]]

MODE = "must be a number between 0 and 0777 (octal), both inclusive"
REQUIRED = "Required value"
DUPLICATE = 'Invalid value: "a": conflicting duplicate paths'
QUALIFIED = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
AMOUNTS = (
    '"limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage", '
    '"requests.memory"'
)
FILE_FIELDS = '"metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"'
VARIABLE_FIELDS = (
    '"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName", '
    '"status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"'
)


def secret(*items: Document, **fields: Any) -> Document:
    return {"secret": {"secretName": "s", "items": list(items), **fields}}


def item(path: str, **fields: Any) -> Document:
    return {"key": "a", "path": path, **fields}


def shown(*items: Document, **fields: Any) -> Document:
    return {"downwardAPI": {"items": list(items), **fields}}


def field(path: str, name: str, **fields: Any) -> Document:
    return {"path": path, "fieldRef": {"fieldPath": name, **fields}}


def amount(path: str, resource: str, **fields: Any) -> Document:
    return {"path": path, "resourceFieldRef": {"resource": resource, **fields}}


def projected(*sources: Document, **fields: Any) -> Document:
    return {"projected": {"sources": list(sources), **fields}}


def token(**fields: Any) -> Document:
    return {"serviceAccountToken": fields}


def of(kind: str, path: str) -> Document:
    return {kind: {"name": "a", "items": [{"key": "k", "path": path}]}}


VOLUMES: dict[str, tuple[Document, Told]] = {
    "a secret without a name": ({"secret": {}}, [("Required", "secret.secretName", REQUIRED)]),
    "a mode that is too large": (
        secret(defaultMode=512),
        [("Invalid", "secret.defaultMode", f"Invalid value: 512: {MODE}")],
    ),
    "a mode below zero": (secret(defaultMode=-1), [("Invalid", "secret.defaultMode", f"Invalid value: -1: {MODE}")]),
    "a file of no key": (secret({"path": "a"}), [("Required", "secret.items[0].key", REQUIRED)]),
    "a file without a path": (secret({"key": "a"}), [("Required", "secret.items[0].path", REQUIRED)]),
    "a file above the volume": (
        secret(item("../x")),
        [("Invalid", "secret.items[0].path", "Invalid value: \"../x\": must not contain '..'")],
    ),
    "a file on a way above the volume": (
        secret(item("a/../x")),
        [("Invalid", "secret.items[0].path", "Invalid value: \"a/../x\": must not contain '..'")],
    ),
    "a file anywhere": (
        secret(item("/x")),
        [("Invalid", "secret.items[0].path", 'Invalid value: "/x": must be a relative path')],
    ),
    "a file where the agent's own stand": (
        secret(item("..x")),
        [("Invalid", "secret.items[0].path", "Invalid value: \"..x\": must not start with '..'")],
    ),
    "a file's mode": (
        secret(item("x", mode=512)),
        [("Invalid", "secret.items[0].mode", f"Invalid value: 512: {MODE}")],
    ),
    "two keys in one file": (secret(item("x"), item("x", key="b")), []),
    "a config map without a name": (
        {"configMap": {"defaultMode": 512, "items": [{}]}},
        [
            ("Required", "configMap.name", REQUIRED),
            ("Invalid", "configMap.defaultMode", f"Invalid value: 512: {MODE}"),
            ("Required", "configMap.items[0].key", REQUIRED),
            ("Required", "configMap.items[0].path", REQUIRED),
        ],
    ),
    "nothing of the pod": (shown(), []),
    "a file of nothing": (
        shown({}),
        [
            ("Required", "downwardAPI.path", REQUIRED),
            ("Required", "downwardAPI", f"{REQUIRED}: one of fieldRef and resourceFieldRef is required"),
        ],
    ),
    "a file of two things": (
        shown(field("a", "metadata.name") | amount("a", "limits.cpu", containerName="c")),
        [
            (
                "Invalid",
                "downwardAPI",
                'Invalid value: "resource": fieldRef and resourceFieldRef can not be specified simultaneously',
            )
        ],
    ),
    "a field that files do not show": (
        shown(field("a", "spec.nodeName")),
        [
            (
                "NotSupported",
                "downwardAPI.fieldRef.fieldPath",
                f'Unsupported value: "spec.nodeName": supported values: {FILE_FIELDS}',
            )
        ],
    ),
    "no field of a pod": (
        shown(field("a", "spec.foo")),
        [
            (
                "Invalid",
                "downwardAPI.fieldRef.fieldPath",
                'Invalid value: "spec.foo": error converting fieldPath: field label not supported: spec.foo',
            )
        ],
    ),
    "another version": (
        shown(field("a", "metadata.name", apiVersion="v2")),
        [
            (
                "Invalid",
                "downwardAPI.fieldRef.fieldPath",
                'Invalid value: "metadata.name": error converting fieldPath: unsupported pod version: v2',
            )
        ],
    ),
    "no field": (shown({"path": "a", "fieldRef": {}}), [("Required", "downwardAPI.fieldRef.fieldPath", REQUIRED)]),
    "labels": (
        shown(field("a", "metadata.labels"), field("b", "metadata.labels['x']"), field("c", "metadata.labels['-x']")),
        [("Invalid", "downwardAPI.fieldRef", f'Invalid value: "-x": {QUALIFIED}')],
    ),
    "amounts": (
        shown(
            amount("a", "limits.cpu"),
            amount("b", "foo", containerName="c"),
            amount("c", "limits.cpu", containerName="c", divisor="3"),
            amount("d", "limits.cpu", containerName="c", divisor="1m"),
        ),
        [
            ("Required", "downwardAPI.resourceFieldRef.containerName", REQUIRED),
            (
                "NotSupported",
                "downwardAPI.resourceFieldRef.resource",
                f'Unsupported value: "foo": supported values: {AMOUNTS}',
            ),
            (
                "Invalid",
                "downwardAPI.resourceFieldRef.divisor",
                'Invalid value: "limits.cpu": only divisor\'s values 1m and 1 are supported with the cpu resource',
            ),
        ],
    ),
    "modes of shown files": (
        shown(
            field(
                "a",
                "metadata.name",
            )
            | {"mode": 9999},
            defaultMode=999,
        ),
        [
            ("Invalid", "downwardAPI.defaultMode", f"Invalid value: 999: {MODE}"),
            ("Invalid", "downwardAPI.mode", f"Invalid value: 9999: {MODE}"),
        ],
    ),
    "nothing projected": (projected(), []),
    "a projection of nothing": (projected({}), []),
    "a projection of two": (
        projected({"secret": {"name": "a"}, "configMap": {"name": "b"}}),
        [("Forbidden", "projected.sources[0]", "Forbidden: may not specify more than 1 volume type per source")],
    ),
    "projections without names": (
        projected({"secret": {}}, {"configMap": {}}, defaultMode=512),
        [
            ("Invalid", "projected.defaultMode", f"Invalid value: 512: {MODE}"),
            ("Required", "projected.sources[0].secret.name", REQUIRED),
            ("Required", "projected.sources[1].configMap.name", REQUIRED),
        ],
    ),
    "a token nowhere": (projected(token()), [("Required", "projected.path", REQUIRED)]),
    "a token for a second": (
        projected(token(expirationSeconds=1, path="../x")),
        [
            (
                "Invalid",
                "projected.sources[0].serviceAccountToken.expirationSeconds",
                "Invalid value: 1: may not specify a duration less than 10 minutes",
            ),
            ("Invalid", "projected.path", "Invalid value: \"../x\": must not contain '..'"),
        ],
    ),
    "a token for ever": (
        projected(token(expirationSeconds=2**33, path="x")),
        [
            (
                "Invalid",
                "projected.sources[0].serviceAccountToken.expirationSeconds",
                "Invalid value: 8589934592: may not specify a duration larger than 2^32 seconds",
            )
        ],
    ),
    "one file of two sources": (
        projected(of("secret", "x"), of("configMap", "x")),
        [("Invalid", "projected", DUPLICATE)],
    ),
    "a file where another has a directory": (projected(of("secret", "x"), of("secret", "x/y")), []),
    "trust anchors": (projected({"clusterTrustBundle": {"path": "x", "name": "a"}}), []),
}

NAME = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
KEY = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    "'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)


def variable(**source: Document) -> Document:
    return {"env": [{"name": "A", "valueFrom": source}]}


VARIABLES: dict[str, tuple[Document, Told]] = {
    "a key of no config map": (
        variable(configMapKeyRef={}),
        [
            ("Invalid", "env[0].valueFrom.configMapKeyRef.name", f'Invalid value: "": {NAME}'),
            ("Required", "env[0].valueFrom.configMapKeyRef.key", REQUIRED),
        ],
    ),
    "no key": (
        variable(configMapKeyRef={"name": "x", "key": "a b"}),
        [("Invalid", "env[0].valueFrom.configMapKeyRef.key", f'Invalid value: "a b": {KEY}')],
    ),
    "no key of a secret": (
        variable(secretKeyRef={"name": "x"}),
        [("Required", "env[0].valueFrom.secretKeyRef.key", REQUIRED)],
    ),
    "a field that variables do not show": (
        variable(fieldRef={"fieldPath": "metadata.labels"}),
        [
            (
                "NotSupported",
                "env[0].valueFrom.fieldRef.fieldPath",
                f'Unsupported value: "metadata.labels": supported values: {VARIABLE_FIELDS}',
            )
        ],
    ),
    "an amount of nothing": (
        variable(resourceFieldRef={"resource": "limits.foo"}),
        [
            (
                "NotSupported",
                "env[0].valueFrom.resourceFieldRef.resource",
                f'Unsupported value: "limits.foo": supported values: {AMOUNTS}',
            )
        ],
    ),
    "variables of nothing": (
        {"envFrom": [{}]},
        [("Invalid", "envFrom", 'Invalid value: "": must specify one of: `configMapRef` or `secretRef`')],
    ),
    "variables of two": (
        {"envFrom": [{"configMapRef": {"name": "a"}, "secretRef": {"name": "b"}}]},
        [("Invalid", "envFrom", 'Invalid value: "": may not have more than one field specified at a time')],
    ),
    "variables of what has no name": (
        {"envFrom": [{"configMapRef": {}}, {"secretRef": {}}]},
        [
            ("Required", "envFrom[0].configMapRef.name", REQUIRED),
            ("Required", "envFrom[1].secretRef.name", REQUIRED),
        ],
    ),
    "a prefix that no name has": (
        {"envFrom": [{"prefix": "a=b", "configMapRef": {"name": "a"}}]},
        [
            (
                "Invalid",
                "envFrom[0].prefix",
                'Invalid value: "a=b": a valid environment variable name must consist only of printable ASCII '
                "characters other than '='",
            )
        ],
    ),
}


def pod(**spec: Any) -> Pod:
    container = {"name": "c", "image": "x", **spec.pop("container", {})}
    document = {"metadata": {"name": "x", "namespace": "default"}, "spec": {"containers": [container], **spec}}
    prepared: Pod = POD.prepare_create(codec.decode_value(Pod, document))
    return prepared


def told(made: Pod, below: str) -> Told:
    return [
        (error.type.removeprefix("FieldValue"), error.field.removeprefix(below), error.body)
        for error in POD.validate_create(made)
    ]


@pytest.mark.parametrize("about", VOLUMES)
def test_files_are_made_of_what_is_named_and_stay_in_their_volume(about: str) -> None:
    source, expected = VOLUMES[about]
    assert told(pod(volumes=[{"name": "v", **source}]), "spec.volumes[0].") == expected


@pytest.mark.parametrize("about", VARIABLES)
def test_variables_are_made_of_what_is_named(about: str) -> None:
    source, expected = VARIABLES[about]
    assert told(pod(container=source), "spec.containers[0].") == expected


def test_who_has_no_account_gets_no_token() -> None:
    volume = codec.decode_value(Volume, projected(token(path="x", expirationSeconds=600)))
    (error,) = validate_no_tokens(volume, Path("v"))
    assert str(error) == (
        "v.projected.sources[0].serviceAccountToken: Forbidden: must not be specified when serviceAccountName is not "
        "set"
    )


def test_what_is_left_out_of_a_source_is_filled_in() -> None:
    field_of_pod = {"fieldPath": "metadata.name"}
    cpu = {"containerName": "c", "resource": "limits.cpu"}
    made = codec.to_builtins(
        pod(
            volumes=[
                {"name": "a", **shown({"path": "a", "fieldRef": field_of_pod}, {"path": "b", "resourceFieldRef": cpu})},
                {"name": "b", **projected(token(path="t"), shown({"path": "a", "fieldRef": field_of_pod}))},
            ],
            container=variable(resourceFieldRef={"resource": "limits.cpu"}),
        )
    )
    filled_field, filled_amount = {**field_of_pod, "apiVersion": "v1"}, {**cpu, "divisor": "0"}
    assert made["spec"]["volumes"] == [
        {
            "name": "a",
            "downwardAPI": {
                "items": [{"path": "a", "fieldRef": filled_field}, {"path": "b", "resourceFieldRef": filled_amount}],
                "defaultMode": 420,
            },
        },
        {
            "name": "b",
            "projected": {
                "sources": [
                    {"serviceAccountToken": {"expirationSeconds": 3600, "path": "t"}},
                    {"downwardAPI": {"items": [{"path": "a", "fieldRef": filled_field}]}},
                ],
                "defaultMode": 420,
            },
        },
    ]
    (variable_source,) = (one["valueFrom"] for one in made["spec"]["containers"][0]["env"])
    assert variable_source == {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "0"}}
