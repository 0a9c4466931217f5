"""What is there before the first request (scene.yaml), and the documents and addresses that requests are made of."""

from __future__ import annotations

import base64
import copy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from manciple.wire import codec
from manciple.wire.registry import Served, registry
from tests.manciple.access.client_keys import subject

#: Namespaces and names: one of each kind is named "one", the others may come to be.
NAMESPACE = "default"
NAMESPACES = (NAMESPACE, "other", "new")
NAMES = ("one", "two", "three")


@dataclass(frozen=True, slots=True)
class Place:
    """A kind in one of its versions, and a valid document of it."""

    served: Served
    document: dict[str, Any]

    @property
    def collection(self) -> str:
        kind = self.served.kind
        root = f"/apis/{self.served.api_version}" if kind.group else "/api/v1"
        return f"{root}/namespaces/{NAMESPACE}/{kind.plural}" if kind.namespaced else f"{root}/{kind.plural}"

    @property
    def copy(self) -> dict[str, Any]:
        return copy.deepcopy(self.document)


@cache
def documents() -> tuple[dict[str, Any], ...]:
    """In the order in which they are made."""
    found = tuple(yaml.safe_load_all((Path(__file__).parent / "scene.yaml").read_text()))
    for document in found:
        if document["kind"] == "CertificateSigningRequest":
            document["spec"]["request"] = _signing_request()
    return found


def _signing_request() -> str:
    key = ec.derive_private_key(1, ec.SECP256R1())
    request = x509.CertificateSigningRequestBuilder().subject_name(subject("carol")).sign(key, hashes.SHA256())
    return base64.b64encode(request.public_bytes(serialization.Encoding.PEM)).decode()


@cache
def places() -> tuple[Place, ...]:
    """Every kind in every version that is served, with each of its documents."""
    found = []
    for document in documents():
        kind = registry.find_kind(document["apiVersion"], document["kind"])
        assert kind is not None, document["kind"]
        stored = codec.to_builtins(codec.decode_value(kind.type, document))
        for served in (one for one in registry.in_version(kind.group, kind.version) if one.kind is kind):
            found.append(Place(served, document))
        for version in kind.served_versions:
            other = registry.served(kind.group, version, kind.plural)
            if other is None:  # a feature that is off
                continue
            found.append(Place(other, {**other.document(stored), "apiVersion": other.api_version}))
    return tuple(found)
