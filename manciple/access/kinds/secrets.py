"""Secret and ConfigMap: what they hold, their rules, and how they are stored.

Messages never repeat what a Secret holds. Sources: k8s.io/api/core/v1; pkg/apis/core/validation (ValidateSecret,
ValidateConfigMap), pkg/registry/core/{secret,configmap}/strategy.go and pkg/apis/core/v1/{defaults,conversion}.go of
Kubernetes 1.36.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, ClassVar

from msgspec.structs import replace

from manciple.wire.base import ApiObject, pb
from manciple.wire.errors import FieldError, forbidden, invalid, required, too_long
from manciple.wire.registry import Column, Kind
from manciple.wire.tables import AGE_COLUMN, NAME_COLUMN
from manciple.wire.validation import (
    DNS_SUBDOMAIN_MAX,
    METADATA,
    Path,
    each,
    regex_message,
    too_long_message,
    validate_immutable,
    validate_object_meta,
    validate_object_meta_update,
)

PACKAGE = "io.k8s.api.core.v1"

#: Bytes that a Secret or a ConfigMap holds at most.
SIZE_MAX = 1024 * 1024

OPAQUE = "Opaque"
SERVICE_ACCOUNT_TOKEN = "kubernetes.io/service-account-token"  # noqa: S105 - the name of a type
#: On a Secret of that type: whose token it is to hold.
SERVICE_ACCOUNT_NAME = "kubernetes.io/service-account.name"

#: Types whose one value is a JSON object, and its key.
_DOCUMENTS = {"kubernetes.io/dockercfg": ".dockercfg", "kubernetes.io/dockerconfigjson": ".dockerconfigjson"}
TLS, TLS_CERTIFICATE, TLS_KEY = "kubernetes.io/tls", "tls.crt", "tls.key"
#: Types that need all of these keys.
_KEYS_OF_TYPE = {TLS: (TLS_CERTIFICATE, TLS_KEY)}
_BASIC_AUTH, _SSH_AUTH = "kubernetes.io/basic-auth", "kubernetes.io/ssh-auth"
_REDACTED = "<secret contents redacted>"

_KEY = "[-._a-zA-Z0-9]+"
_KEY_RE = re.compile(_KEY)
_KEY_RULE = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"
_FROZEN = "field is immutable when `immutable` is set"

Errors = list[FieldError]


class Secret(ApiObject):
    """Small amounts of sensitive data: passwords, tokens, keys. Namespaced.

    data: base64, by key. string_data: the same as text, for writing only: it is merged into data. type: what programs
    expect in data; cannot change. immutable: true keeps data as it is until the Secret is deleted.
    """

    SCHEMA: ClassVar = "io.k8s.api.core.v1.Secret"

    immutable: Annotated[bool | None, pb(5)] = None
    data: Annotated[dict[str, str], pb(2, encoding="bytes")] = {}
    string_data: Annotated[dict[str, str], pb(4)] = {}
    type: Annotated[str, pb(3)] = ""


class ConfigMap(ApiObject):
    """Configuration for pods: texts by key. Namespaced.

    data: text, by key. binary_data: what is no text, in base64; no key stands in both. immutable: true keeps both as
    they are until the ConfigMap is deleted.
    """

    SCHEMA: ClassVar = "io.k8s.api.core.v1.ConfigMap"

    immutable: Annotated[bool | None, pb(4)] = None
    data: Annotated[dict[str, str], pb(2)] = {}
    binary_data: Annotated[dict[str, str], pb(3, encoding="bytes")] = {}


# Keys and sizes -------------------------------------------------------------------------------------------------------


def check_key(text: str) -> tuple[str, ...]:
    """A key of a Secret or ConfigMap; each may become the name of a file."""
    found = [too_long_message(DNS_SUBDOMAIN_MAX)] if len(text.encode()) > DNS_SUBDOMAIN_MAX else []
    if not _KEY_RE.fullmatch(text):
        found.append(regex_message(_KEY_RULE, _KEY, "key.name", "KEY_NAME", "key-name"))
    if text in (".", ".."):
        found.append(f"must not be '{text}'")
    elif text.startswith(".."):
        found.append("must not start with '..'")
    return tuple(found)


def _validate_keys(keys: Iterable[str], path: Path) -> Errors:
    return [error for key in sorted(keys) for error in each(check_key(key), path.key(key), key)]


def _decoded_size(values: Mapping[str, str]) -> int:
    """Bytes that base64 texts stand for."""
    return sum(len(text) // 4 * 3 - text[-2:].count("=") for text in values.values())


def _unfrozen(new: bool | None, old: bool | None) -> Errors:
    return [forbidden("immutable", _FROZEN)] if old and not new else []


# Secret ---------------------------------------------------------------------------------------------------------------


def prepare_secret(secret: Secret) -> Secret:
    """Texts become data; a Secret of no type is Opaque."""
    texts = {key: base64.b64encode(text.encode()).decode() for key, text in secret.string_data.items()}
    return replace(secret, data={**secret.data, **texts}, string_data={}, type=secret.type or OPAQUE)


def validate_secret(secret: Secret) -> Errors:
    path = Path("data")
    found = validate_object_meta(secret.metadata, namespaced=True) + _validate_keys(secret.data, path)
    if _decoded_size(secret.data) > SIZE_MAX:
        found.append(too_long(path, SIZE_MAX))
    return found + _validate_type(secret, path)


def _validate_type(secret: Secret, path: Path) -> Errors:
    """What programs expect of a Secret of its type."""
    data = secret.data
    if secret.type == SERVICE_ACCOUNT_TOKEN and not secret.metadata.annotations.get(SERVICE_ACCOUNT_NAME):
        return [required(METADATA.child("annotations").key(SERVICE_ACCOUNT_NAME))]
    if key := _DOCUMENTS.get(secret.type):
        return _validate_document(data.get(key), path.key(key))
    if secret.type == _BASIC_AUTH and not data.keys() & {"username", "password"}:
        return [required(path.key("username")), required(path.key("password"))]
    if secret.type == _SSH_AUTH and not data.get("ssh-privatekey"):
        return [required(path.key("ssh-privatekey"))]
    return [required(path.key(key)) for key in _KEYS_OF_TYPE.get(secret.type, ()) if key not in data]


def _validate_document(encoded: str | None, path: Path) -> Errors:
    if encoded is None:
        return [required(path)]
    try:
        document: object = json.loads(base64.b64decode(encoded))
    except ValueError:
        return [invalid(path, _REDACTED, "not a JSON object")]
    return [] if isinstance(document, dict) or document is None else [invalid(path, _REDACTED, "not a JSON object")]


def validate_secret_update(new: Secret, old: Secret) -> Errors:
    found = validate_object_meta_update(new.metadata, old.metadata)
    found += validate_immutable(new.type, old.type, Path("type"))
    found += _unfrozen(new.immutable, old.immutable)
    if old.immutable and new.data != old.data:
        found.append(forbidden("data", _FROZEN))
    return found + validate_secret(new)


SECRET = Kind(
    group="",
    version="v1",
    plural="secrets",
    type=Secret,
    prepare_create=prepare_secret,
    prepare_update=lambda new, _old: prepare_secret(new),
    validate_create=validate_secret,
    validate_update=validate_secret_update,
    selectable=lambda secret: {"type": secret.type},
    confidential=True,
    columns=(
        NAME_COLUMN,
        Column(name="Type", description="What programs expect in it", cell=lambda secret, _now: secret.type),
        Column(name="Data", description="How many values it holds", cell=lambda secret, _now: len(secret.data)),
        AGE_COLUMN,
    ),
    description="Small amounts of sensitive data: passwords, tokens, keys.",
)


# ConfigMap ------------------------------------------------------------------------------------------------------------


def validate_config_map(config: ConfigMap) -> Errors:
    found = validate_object_meta(config.metadata, namespaced=True)
    data, binary = Path("data"), Path("binaryData")
    found += _validate_keys(config.data, data)
    twice = sorted(config.data.keys() & config.binary_data.keys())
    found += [invalid(data.key(key), key, "duplicate of key present in binaryData") for key in twice]
    found += _validate_keys(config.binary_data, binary)
    size = sum(len(text.encode()) for text in config.data.values()) + _decoded_size(config.binary_data)
    if size > SIZE_MAX:
        found.append(too_long("[]", SIZE_MAX))  # as upstream's path without a name is written
    return found


def validate_config_map_update(new: ConfigMap, old: ConfigMap) -> Errors:
    found = validate_object_meta_update(new.metadata, old.metadata) + _unfrozen(new.immutable, old.immutable)
    if old.immutable and new.data != old.data:
        found.append(forbidden("data", _FROZEN))
    if old.immutable and new.binary_data != old.binary_data:
        found.append(forbidden("binaryData", _FROZEN))
    return found + validate_config_map(new)


CONFIG_MAP = Kind(
    group="",
    version="v1",
    plural="configmaps",
    short_names=("cm",),
    type=ConfigMap,
    validate_create=validate_config_map,
    validate_update=validate_config_map_update,
    columns=(
        NAME_COLUMN,
        Column(
            name="Data",
            description="How many values it holds",
            cell=lambda config, _now: len(config.data) + len(config.binary_data),
        ),
        AGE_COLUMN,
    ),
    description="Configuration for pods: texts by key.",
)
