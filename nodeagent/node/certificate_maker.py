"""Makes keys, certificates and requests for them, and reads certificates; a program that prints its result as JSON.

    python certificate_maker.py serving FOLDER HOST...  makes a self-signed certificate, agent.crt, and agent.key
    python certificate_maker.py request KEY_FILE NODE   {"request": base64 of the PEM, "key": SHA-256 of the public key}
    python certificate_maker.py read PEM_FILE           {"name", "begins", "ends" (seconds since 1970), "key"}

A serving certificate is its own authority: clients verify its SHA-256. `request` creates the key unless the file
exists. The agent runs this in a process of its own: the cryptography library would cost it 10 MB for as long as it
runs. So this file imports no other module of this project.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import json
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = timedelta(days=3650)
PEM = serialization.Encoding.PEM


def serving(folder: Path, hosts: Sequence[str], now: datetime) -> None:
    """Write agent.key, then agent.crt; the first of `hosts` (DNS names, IP addresses) becomes its subject."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0][:64])])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))  # a client's clock may be behind
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_general_name(host) for host in hosts]), critical=False)
        .sign(key, hashes.SHA256())
    )
    _write(folder / "agent.key", _private_pem(key), mode=0o600)
    _write(folder / "agent.crt", certificate.public_bytes(PEM), mode=0o644)


def request(key_file: Path, node: str) -> dict[str, Any]:
    """Source of the subject: kubelet's, for kubernetes.io/kube-apiserver-client-kubelet."""
    if key_file.exists():
        key = serialization.load_pem_private_key(key_file.read_bytes(), password=None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise TypeError(f"{key_file} holds no elliptic curve key")
    else:
        key = ec.generate_private_key(ec.SECP256R1())
        _write(key_file, _private_pem(key), mode=0o600)
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes"),
            x509.NameAttribute(NameOID.COMMON_NAME, f"system:node:{node}", _validate=False),
        ]
    )
    signed = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    return {"request": base64.b64encode(signed.public_bytes(PEM)).decode(), "key": _digest(key.public_key())}


def read(file: Path) -> dict[str, Any]:
    """The first certificate in the file."""
    certificate = x509.load_pem_x509_certificates(file.read_bytes())[0]
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return {
        "name": str(names[0].value) if names else "",
        "begins": certificate.not_valid_before_utc.timestamp(),
        "ends": certificate.not_valid_after_utc.timestamp(),
        "key": _digest(certificate.public_key()),
    }


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


def _digest(key: Any) -> str:
    spki = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(spki).hexdigest()


def _write(path: Path, content: bytes, *, mode: int) -> None:
    """Replace `path`, never readable to others and never half written, and durable when this returns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.tmp")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serving", folder, *hosts]:
            serving(Path(folder), hosts, datetime.now(UTC))
        case ["request", key_file, node]:
            print(json.dumps(request(Path(key_file), node)))
        case ["read", file]:
            print(json.dumps(read(Path(file))))
