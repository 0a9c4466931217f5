"""Keys and certificates of clients, as tests need them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from manciple.api.certificates import SigningAuthority, sign_client


@dataclass(frozen=True)
class Pair:
    """A certificate (PEM) and its key."""

    certificate: bytes
    key: bytes

    @property
    def der(self) -> bytes:
        return x509.load_pem_x509_certificate(self.certificate).public_bytes(serialization.Encoding.DER)

    def written(self, folder: Path) -> tuple[str, str]:
        """The paths of its files."""
        (folder / "client.crt").write_bytes(self.certificate)
        (folder / "client.key").write_bytes(self.key)
        return str(folder / "client.crt"), str(folder / "client.key")


def subject(name: str, groups: Sequence[str] = ()) -> x509.Name:
    names = [x509.NameAttribute(NameOID.COMMON_NAME, name)] if name else []
    return x509.Name([*names, *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups)])


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def signed(
    folder: Path,
    name: str,
    groups: Sequence[str] = (),
    *,
    lifetime: timedelta = timedelta(days=1),
    now: datetime | None = None,
) -> Pair:
    """A pair signed by the authority in `folder`."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject(name, groups))
    authority = SigningAuthority(certificate=folder / "ca.crt", key=folder / "ca.key")
    certificate = sign_client(builder.sign(key, hashes.SHA256()), authority=authority, lifetime=lifetime, now=now)
    return Pair(certificate, private_pem(key))
