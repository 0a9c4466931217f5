"""The API's certificate authority, kept as PEM files in one folder, and what it signs: servers and clients.

`ensure` makes what is missing and renews what will not do: a server certificate near its end, or one that does not
name a host it is asked for. The authority is made once: kubeconfig files carry its certificate. kubectl sends no
bearer token without TLS, which is why even a laptop needs this.

`sign_client` signs what a client asks for (a PKCS#10 request), under a name that the caller has seen to.

`ServingCertificate` follows files that others replace while a server uses them (cert-manager, mounted Secrets).
"""

from __future__ import annotations

import hashlib
import ipaddress
import logging
import os
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from manciple.access.authentication.external import BACKDATED
from manciple.refusals import StartRefused

log = logging.getLogger(__name__)

AUTHORITY_LIFETIME = timedelta(days=3650)
SERVER_LIFETIME = timedelta(days=365)
#: A server certificate with less than this left is renewed.
RENEW_BEFORE = timedelta(days=30)
#: Hosts that every server certificate names.
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
#: A new authority would end the trust of every kubeconfig file and node.
_RESTORE_CA = (
    "Restore ca.crt and ca.key from the backup of the home (docs/how-to/keys.md, Lost keys). If they are lost, "
    "move both away:\na new authority is made at the next start, and kubeconfig files, certificates and nodes need "
    "renewal."
)


class CertificatesRefused(StartRefused):
    """Files of certificates and keys that cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    """Where the files lie: the authority's certificate (public), the server's certificate chain and key."""

    authority: Path
    certificate: Path
    key: Path

    @property
    def ca_pem(self) -> str:
        return self.authority.read_text()


def ensure(folder: Path, *, hosts: Iterable[str] = (), now: datetime | None = None) -> Certificates:
    """The files in `folder`, made or renewed; they name `hosts` (DNS names, IP addresses) and the local ones.

    Raises: CertificatesRefused where files are damaged, or half of the authority is missing.
    """
    now = now or datetime.now(UTC)
    folder.mkdir(parents=True, exist_ok=True)
    authority = _Authority.load_or_make(folder, now)
    files = Certificates(authority=folder / "ca.crt", certificate=folder / "server.crt", key=folder / "server.key")
    wanted = _alternative_names((*LOCAL_HOSTS, *hosts))
    if not _will_do(files, authority, wanted=wanted, now=now):
        _issue(files, authority, wanted=wanted, now=now)
    return files


@dataclass(frozen=True, slots=True)
class _Authority:
    certificate: x509.Certificate
    key: PrivateKey

    @classmethod
    def load(cls, certificate: Path, key: Path) -> _Authority:
        """Of any kind that signs. Raises: OSError, ValueError."""
        signing = serialization.load_pem_private_key(key.read_bytes(), password=None)
        if not isinstance(signing, PrivateKey):
            raise ValueError(f"{key} does not hold a key that can sign certificates")  # noqa: TRY004 - the file is wrong
        return cls(x509.load_pem_x509_certificate(certificate.read_bytes()), signing)

    @classmethod
    def kept(cls, folder: Path) -> _Authority | None:
        """The one in `folder`; None where there is none yet. Raises: CertificatesRefused."""
        certificate_file, key_file = folder / "ca.crt", folder / "ca.key"
        for missing, other in ((key_file, certificate_file), (certificate_file, key_file)):
            if other.exists() and not missing.exists():
                raise CertificatesRefused(f"{missing} is missing, and {other} is of no use without it\n{_RESTORE_CA}")
        if certificate_file.exists():
            try:
                certificate = x509.load_pem_x509_certificate(certificate_file.read_bytes())
            except ValueError as error:
                raise CertificatesRefused(f"{certificate_file} is not a certificate\n{_RESTORE_CA}") from error
            try:
                key = _read_key(key_file)
            except (ValueError, TypeError, UnsupportedAlgorithm) as error:
                raise CertificatesRefused(f"{key_file} is not the key of a certificate\n{_RESTORE_CA}") from error
            if key.public_key() != certificate.public_key():
                raise CertificatesRefused(f"{key_file} is not the key of {certificate_file}\n{_RESTORE_CA}")
            return cls(certificate, key)
        return None

    @classmethod
    def load_or_make(cls, folder: Path, now: datetime) -> _Authority:
        """Raises: CertificatesRefused."""
        kept = cls.kept(folder)
        if kept is not None and kept.certificate.not_valid_after_utc - now > RENEW_BEFORE:
            return kept
        certificate_file, key_file = folder / "ca.crt", folder / "ca.key"
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name("manciple-ca")
        certificate = (
            _builder(subject=name, issuer=name, public_key=key.public_key(), now=now, lifetime=AUTHORITY_LIFETIME)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(authority=True), critical=True)
            .sign(key, hashes.SHA256())
        )
        _write(key_file, _pem(key), mode=0o600)
        _write(certificate_file, certificate.public_bytes(serialization.Encoding.PEM), mode=0o644)
        return cls(certificate, key)


def check(folder: Path) -> None:
    """Whether what `ensure` would find there can be used. Raises: CertificatesRefused."""
    _Authority.kept(folder)
    _server_pair(
        Certificates(authority=folder / "ca.crt", certificate=folder / "server.crt", key=folder / "server.key")
    )


def _server_pair(files: Certificates) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None:
    """Raises: CertificatesRefused."""
    if not (files.certificate.exists() and files.key.exists()):
        return None
    try:
        return x509.load_pem_x509_certificate(files.certificate.read_bytes()), _read_key(files.key)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise CertificatesRefused(
            f"{files.certificate} or {files.key} is damaged: {str(error).partition('.')[0]}\n"
            "Restore both from the backup of the home, or move both away: new ones are made at the next start."
        ) from error


def _will_do(files: Certificates, authority: _Authority, *, wanted: list[x509.GeneralName], now: datetime) -> bool:
    kept = _server_pair(files)
    if kept is None:
        return False
    certificate, key = kept
    try:
        named = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return False
    return (
        certificate.not_valid_after_utc - now > RENEW_BEFORE
        and set(wanted) <= set(named)
        and _signed_by(certificate, authority)
        and certificate.public_key() == key.public_key()
    )


def _signed_by(certificate: x509.Certificate, authority: _Authority) -> bool:
    try:
        certificate.verify_directly_issued_by(authority.certificate)
    except Exception:
        return False
    return True


def _issue(files: Certificates, authority: _Authority, *, wanted: list[x509.GeneralName], now: datetime) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        _builder(
            subject=_name("manciple-api"),
            issuer=authority.certificate.subject,
            public_key=key.public_key(),
            now=now,
            lifetime=SERVER_LIFETIME,
        )
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(wanted), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()), critical=False)
        .sign(authority.key, hashes.SHA256())
    )
    _write(files.key, _pem(key), mode=0o600)
    _write(files.certificate, certificate.public_bytes(serialization.Encoding.PEM), mode=0o644)


# Clients --------------------------------------------------------------------------------------------------------------


#: Keys of authorities that we can sign with; those of clients may be of these kinds, too.
PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
#: The least that an RSA key of a client has.
RSA_BITS = 2048
PublicKey = ec.EllipticCurvePublicKey | rsa.RSAPublicKey | ed25519.Ed25519PublicKey


def ensure_authority(folder: Path, *, now: datetime | None = None) -> None:
    """Make ca.crt and ca.key in `folder` where they are missing or near their end."""
    folder.mkdir(parents=True, exist_ok=True)
    _Authority.load_or_make(folder, now or datetime.now(UTC))


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningAuthority:
    """Where the files of the authority lie that signs clients."""

    certificate: Path
    key: Path


def sign_client(
    request: x509.CertificateSigningRequest,
    *,
    authority: SigningAuthority,
    lifetime: timedelta,
    usages: x509.KeyUsage | None = None,
    now: datetime | None = None,
) -> bytes:
    """A client's certificate (PEM) for the subject and key of `request`; it ends before its authority does.

    Raises: OSError, ValueError where the authority's files or the request's key will not do.
    """
    signer, now = _Authority.load(authority.certificate, authority.key), now or datetime.now(UTC)
    key = request.public_key()
    if not isinstance(key, PublicKey) or (isinstance(key, rsa.RSAPublicKey) and key.key_size < RSA_BITS):
        raise ValueError(f"the key must be an elliptic curve key, Ed25519, or RSA with at least {RSA_BITS} bits")
    lifetime = min(lifetime, signer.certificate.not_valid_after_utc - now)
    certificate = (
        _builder(subject=request.subject, issuer=signer.certificate.subject, public_key=key, now=now, lifetime=lifetime)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usages or _key_usage(authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.key.public_key()), critical=False)
        .sign(signer.key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM)


def fingerprint(certificate: Path) -> str:
    """`sha256:...` of the public key in a certificate file, as kubeadm names an authority to those who join."""
    parsed = x509.load_pem_x509_certificate(certificate.read_bytes())
    spki = parsed.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return f"sha256:{hashlib.sha256(spki).hexdigest()}"


# Making ---------------------------------------------------------------------------------------------------------------


def _builder(
    *, subject: x509.Name, issuer: x509.Name, public_key: PublicKey, now: datetime, lifetime: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + lifetime)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _key_usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative_names(hosts: Iterable[str]) -> list[x509.GeneralName]:
    return [_general_name(host) for host in dict.fromkeys(hosts) if host]


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError(f"{path} does not hold an elliptic curve key")
    return key


def _write(path: Path, content: bytes, *, mode: int) -> None:
    """Replace `path`, never readable to others and never half written."""
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
    draft.replace(path)


class ServingCertificate:
    """A server's certificate chain and its key. Raises: OSError where a file is missing."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._files = (certificate, key)
        self._loaded = self._stamp()

    def load(self, context: ssl.SSLContext) -> None:
        """Raises: OSError (ssl.SSLError is one) where the files cannot be used."""
        context.load_cert_chain(*self._files)

    def renew(self, context: ssl.SSLContext) -> None:
        """Use files that were replaced for new connections; while they cannot be used, the last certificate stays."""
        try:
            if (stamp := self._stamp()) == self._loaded:
                return
            # Into another context first: files that do not match would leave this one without a key.
            self.load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
            self.load(context)
        except OSError as error:  # half replaced, for example
            log.warning("the certificate in %s cannot be used, so the last one stays: %s", self._files[0], error)
        else:
            self._loaded = stamp
            log.info("the certificate in %s was replaced", self._files[0])

    def _stamp(self) -> tuple[tuple[int, int, int], ...]:
        found = [file.stat() for file in self._files]
        return tuple((one.st_ino, one.st_mtime_ns, one.st_size) for one in found)
