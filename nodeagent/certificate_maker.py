"""Makes a self-signed certificate and its key: `python certificate_maker.py FOLDER HOST...`.

Run by `https` in a process of its own: the cryptography library would cost the agent 10 MB for as long as it
runs. So this file imports nothing of ours. The certificate is its own authority; who trusts it knows its SHA-256.
"""

from __future__ import annotations

import ipaddress
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = timedelta(days=3650)


def make(folder: Path, hosts: Sequence[str], now: datetime) -> None:
    """Write agent.key, then agent.crt; the first of `hosts` (DNS names, IP addresses) becomes its subject."""
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _certificate(key, hosts, now)
    pem = serialization.Encoding.PEM
    key_pem = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    _write(folder / "agent.key", key_pem, mode=0o600)
    _write(folder / "agent.crt", certificate.public_bytes(pem), mode=0o644)


def _certificate(key: ec.EllipticCurvePrivateKey, hosts: Sequence[str], now: datetime) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0][:64])])
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))  # a client's clock may lag behind
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_general_name(host) for host in hosts]), critical=False)
        .sign(key, hashes.SHA256())
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write(path: Path, content: bytes, *, mode: int) -> None:
    """Replace `path`, never readable to others and never half written."""
    draft = path.with_name(f".{path.name}.tmp")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
    draft.replace(path)


if __name__ == "__main__":
    make(Path(sys.argv[1]), sys.argv[2:], datetime.now(UTC))
