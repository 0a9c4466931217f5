"""Secret, ConfigMap, ServiceAccount and TokenRequest: how they are read and stored, and what is refused."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from manciple.access.kinds.secrets import CONFIG_MAP, SECRET, SIZE_MAX, ConfigMap, Secret
from manciple.access.kinds.service_accounts import (
    SERVICE_ACCOUNT,
    ServiceAccount,
    TokenRequest,
    TokenRequestSpec,
    validate_token_request,
)
from manciple.wire import codec, protobuf
from manciple.wire.base import ObjectReference
from manciple.wire.errors import BadRequest
from manciple.wire.registry import Kind
from manciple.wire.tables import row
from tests.builders import make_meta, stored

META = make_meta("it", "team-a")
PROTOBUF = "application/vnd.kubernetes.protobuf"


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def secret(type: str = "", **data: str) -> Secret:
    """Of texts by key; `_` in a key stands for a dot, `__` for a hyphen."""
    keyed = {key.replace("__", "-").replace("_", "."): b64(text) for key, text in data.items()}
    return Secret(api_version="v1", kind="Secret", metadata=META, data=keyed, type=type)


def refusals(kind: Kind, obj: Any) -> list[str]:
    return [str(error) for error in kind.validate_create(kind.prepare_create(obj))]


# Secret ---------------------------------------------------------------------------------------------------------------

DOCKER = "kubernetes.io/dockerconfigjson"
TLS = "kubernetes.io/tls"
OF_ACCOUNT = Secret(
    metadata=make_meta("it", "team-a", annotations={"kubernetes.io/service-account.name": "default"}),
    type="kubernetes.io/service-account-token",
)
KEY_RULE = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  "
    "or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
SECRETS = {
    "of no type": (secret(), []),
    "of a type that nobody knows": (secret("example.com/mine", a="b"), []),
    "with a key that is no file name": (
        Secret(metadata=META, data={"a b": "", "..": ""}),
        [
            "data[..]: Invalid value: \"..\": must not be '..'",
            f'data[a b]: Invalid value: "a b": {KEY_RULE}',
        ],
    ),
    "with a key that leads upwards": (
        Secret(metadata=META, data={"..x": ""}),
        ["data[..x]: Invalid value: \"..x\": must not start with '..'"],
    ),
    "as large as may be": (secret(a="x" * SIZE_MAX), []),
    "too large": (secret(a="x" * SIZE_MAX, b="y"), ["data: Too long: may not be more than 1048576 bytes"]),
    "tls without its key": (secret(TLS, tls_crt="x"), ["data[tls.key]: Required value"]),
    "tls": (secret(TLS, tls_crt="", tls_key=""), []),
    "docker without its document": (secret(DOCKER), ["data[.dockerconfigjson]: Required value"]),
    "docker that is no document": (
        secret(DOCKER, _dockerconfigjson="pass word"),
        ['data[.dockerconfigjson]: Invalid value: "<secret contents redacted>": not a JSON object'],
    ),
    "docker": (secret(DOCKER, _dockerconfigjson='{"auths": {}}'), []),
    "basic auth without either": (
        secret("kubernetes.io/basic-auth", user="x"),
        ["data[username]: Required value", "data[password]: Required value"],
    ),
    "basic auth of a password": (secret("kubernetes.io/basic-auth", password="x"), []),
    "ssh without a key": (
        secret("kubernetes.io/ssh-auth", ssh__privatekey=""),
        ["data[ssh-privatekey]: Required value"],
    ),
    "of an account that is not named": (
        secret("kubernetes.io/service-account-token"),
        ["metadata.annotations[kubernetes.io/service-account.name]: Required value"],
    ),
    "of an account": (OF_ACCOUNT, []),
}


@pytest.mark.parametrize("about", SECRETS)
def test_a_secret_is_what_its_type_says(about: str) -> None:
    made, told = SECRETS[about]
    assert refusals(SECRET, made) == told


def test_texts_become_data_and_are_not_shown_again() -> None:
    made = SECRET.prepare_create(Secret(metadata=META, data={"a": b64("old"), "b": b64("b")}, string_data={"a": "new"}))
    assert (made.data, made.string_data, made.type) == ({"a": b64("new"), "b": b64("b")}, {}, "Opaque")


def test_a_secrets_type_stays_and_an_immutable_one_stays_as_it_is() -> None:
    old = stored(SECRET.prepare_create(secret(a="1")))
    frozen = codec.decode_value(Secret, {**codec.to_builtins(old), "immutable": True})
    cases: list[tuple[Secret, Secret, list[str]]] = [
        (secret("kubernetes.io/ssh-auth", ssh__privatekey="x"), old, ["type"]),
        (frozen, old, []),
        (secret(a="1"), frozen, ["immutable"]),
        (secret(a="2"), frozen, ["immutable", "data"]),
        (frozen, frozen, []),
    ]
    for new, before, fields in cases:
        errors = SECRET.validate_update(SECRET.prepare_update(new, before), before)
        assert [error.field for error in errors] == fields


@pytest.mark.parametrize(
    ("text", "told"),
    [("aGk=", ""), ("aGk", "byte 3"), ("a!==", "byte 1"), ("aG\r\nk=", ""), ("", ""), ("====", "byte 0")],
)
def test_data_is_base64(text: str, told: str) -> None:
    body = codec.encode({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "it"}, "data": {"a": text}})
    if told:
        with pytest.raises(BadRequest, match=f"illegal base64 data at input {told}"):
            codec.decode(SECRET, body, content_type="application/json", strictness="Strict")
    else:
        read = codec.decode(SECRET, body, content_type="application/json", strictness="Strict").object
        assert read.data == {"a": text.replace("\r\n", "")}


# ConfigMap ------------------------------------------------------------------------------------------------------------

CONFIG_MAPS = {
    "with nothing in it": (ConfigMap(metadata=META), []),
    "with a key twice": (
        ConfigMap(metadata=META, data={"a": "x"}, binary_data={"a": ""}),
        ['data[a]: Invalid value: "a": duplicate of key present in binaryData'],
    ),
    "as large as may be": (ConfigMap(metadata=META, data={"a": "ä" * (SIZE_MAX // 2)}), []),
    "too large": (
        ConfigMap(metadata=META, data={"a": "ä" * (SIZE_MAX // 2)}, binary_data={"b": "AA=="}),
        ["[]: Too long: may not be more than 1048576 bytes"],
    ),
}


@pytest.mark.parametrize("about", CONFIG_MAPS)
def test_a_config_map_holds_each_key_once_and_not_too_much(about: str) -> None:
    made, told = CONFIG_MAPS[about]
    assert refusals(CONFIG_MAP, made) == told


def test_an_immutable_config_map_stays_as_it_is() -> None:
    frozen = stored(ConfigMap(metadata=META, data={"a": "1"}, immutable=True))
    changed = stored(ConfigMap(metadata=META, binary_data={"b": "AA=="}))
    assert [error.field for error in CONFIG_MAP.validate_update(changed, frozen)] == ["immutable", "data", "binaryData"]
    assert CONFIG_MAP.validate_update(frozen, changed) == []


# ServiceAccount and TokenRequest --------------------------------------------------------------------------------------


def test_of_an_accounts_secrets_only_the_names_are_kept() -> None:
    account = ServiceAccount(metadata=META, secrets=(ObjectReference(kind="Secret", namespace="other", name="s"),))
    assert SERVICE_ACCOUNT.prepare_create(account).secrets == (ObjectReference(name="s"),)


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (None, "may not specify a duration less than 10 minutes"),
        (599, "may not specify a duration less than 10 minutes"),
        (600, ""),
        (2**32, ""),
        (2**32 + 1, "may not specify a duration larger than 2^32 seconds"),
    ],
)
def test_a_token_lasts_from_ten_minutes_on(seconds: int | None, told: str) -> None:
    errors = validate_token_request(TokenRequest(spec=TokenRequestSpec(expiration_seconds=seconds)))
    assert [(error.field, error.detail) for error in errors] == ([("spec.expirationSeconds", told)] if told else [])


# All of them ----------------------------------------------------------------------------------------------------------

META_DOCUMENT = {"name": "it", "namespace": "team-a"}
DOCUMENTS: dict[str, dict[str, Any]] = {
    "Secret": {"immutable": True, "data": {"a": "AAE="}, "stringData": {"b": "c"}, "type": "Opaque"},
    "ConfigMap": {"immutable": True, "data": {"a": "b"}, "binaryData": {"c": "AAE="}},
    "ServiceAccount": {
        "secrets": [{"name": "s"}],
        "imagePullSecrets": [{"name": "p"}],
        "automountServiceAccountToken": False,
    },
}


@pytest.mark.parametrize("kind", [SECRET, CONFIG_MAP, SERVICE_ACCOUNT], ids=lambda kind: kind.kind)
def test_json_and_protobuf_come_back_without_loss(kind: Kind) -> None:
    document = {"apiVersion": "v1", "kind": kind.kind, "metadata": META_DOCUMENT, **DOCUMENTS[kind.kind]}
    read = codec.decode(kind, codec.encode(document), content_type="application/json", strictness="Strict").object
    assert codec.to_builtins(read) == document
    written = protobuf.encode_object(read)
    assert codec.decode(kind, written, content_type=PROTOBUF, strictness="Strict").object == read


def test_kubectl_shows_the_type_and_how_much_there_is() -> None:
    config = ConfigMap(metadata=META, data={"a": "1"}, binary_data={"b": ""})
    for kind, obj, told in (
        (SECRET, secret("Opaque", a="1", b="2"), ["it", "Opaque", 2, "0s"]),
        (CONFIG_MAP, config, ["it", 2, "0s"]),
    ):
        shown = row(kind.columns, stored(obj), now=1767225600.0, include="None", document=codec.to_builtins)
        assert shown["cells"] == told
