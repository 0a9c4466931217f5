"""A Secret for TLS whose certificate and key do not belong together is accepted, and its author warned."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from tests.manciple.api.requests import MERGE, Api

SECRETS = "/api/v1/namespaces/default/secrets"


@cache
def pair(name: str) -> tuple[bytes, bytes]:
    """A certificate and its key, the same for each name."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return made.public_bytes(Encoding.PEM), text


def make_secret(certificate: bytes, key: bytes, type_: str = "kubernetes.io/tls") -> dict[str, Any]:
    data = {"tls.crt": base64.b64encode(certificate).decode(), "tls.key": base64.b64encode(key).decode()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "type": type_, "data": data}


def cases() -> dict[str, tuple[bytes, bytes, str]]:
    (certificate, key), (_, other) = pair("one"), pair("other")
    broken = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    return {
        "a pair": (certificate, key, ""),
        "no certificate": (b"x", key, "any PEM data in certificate"),
        "no key": (certificate, b"", "any PEM data in key"),
        "another's key": (certificate, other, "does not match"),
        "a broken certificate": (broken, key, "failed to parse"),
        "a certificate for a key": (certificate, certificate, "failed to parse"),
    }


@pytest.mark.parametrize("what", cases())
def test_the_author_is_warned_of(api: Api, what: str) -> None:
    certificate, key, text = cases()[what]
    answer = api.post(SECRETS, make_secret(certificate, key))
    assert answer.code == 201, answer.text
    warned = answer.header("Warning")
    assert text in warned
    assert bool(text) == bool(warned)
    labelled = api.patch(f"{SECRETS}/s", {"metadata": {"labels": {"a": "b"}}}, content_type=MERGE)
    assert not labelled.header("Warning")  # nothing new is wrong


def test_other_secrets_hold_what_they_like(api: Api) -> None:
    assert not api.post(SECRETS, make_secret(b"x", b"y", "Opaque")).header("Warning")
