"""Client certificates: whom they name, when they end, and what the TLS listener takes."""

from __future__ import annotations

import ssl
import time
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from django.core.management import call_command

from manciple.access.authentication import chain, tokens
from manciple.access.authentication import external as client_certificates
from manciple.access.authentication.chain import Credentials
from manciple.access.models import CertificateRevocation, CredentialEpoch
from manciple.api import certificates, kubeconfig
from manciple.api.certificates import SigningAuthority, sign_client
from manciple.api.kubeconfig import Server
from manciple.processes.home import Home, write_private
from manciple.wire.errors import Unauthorized
from tests.e2e.kubectl import Kubectl, find_kubectl
from tests.manciple.access.client_keys import Pair, signed, subject
from tests.manciple.api.server import ApiServer, api_server, server_certificates

__all__ = ["api_server", "server_certificates"]

WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where an authority lies."""
    made = tmp_path_factory.mktemp("authority")
    certificates.ensure(made)
    return made


def shown(pair: Pair | bytes, token: str = "") -> Credentials:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    return Credentials(headers=headers, certificate=pair if isinstance(pair, bytes) else pair.der)


# Whom a certificate names.


@pytest.mark.django_db
def test_the_common_name_is_the_user_and_the_organizations_are_the_groups(folder: Path) -> None:
    identity = chain.identify(shown(signed(folder, "alice", ["team-a", "team-b", "team-a"])))
    assert identity is not None
    assert (identity.name, identity.groups) == ("alice", ("team-a", "team-b", "system:authenticated"))
    (credential,) = identity.extras("authentication.kubernetes.io/credential-id")
    assert credential.startswith("X509SHA256=")


def server_certificate(folder: Path) -> bytes:
    made = x509.load_pem_x509_certificate((folder / "server.crt").read_bytes())
    return made.public_bytes(serialization.Encoding.DER)


NOBODY = {
    "what our server shows": server_certificate,
    "one without a name": lambda folder: signed(folder, "").der,
    "what is no certificate": lambda folder: b"nothing",
    "one that has ended": lambda folder: signed(folder, "a", now=datetime.now(UTC) - timedelta(days=2)).der,
    "one that has not begun": lambda folder: signed(folder, "a", now=datetime.now(UTC) + timedelta(hours=1)).der,
}


@pytest.mark.django_db
@pytest.mark.parametrize("make", NOBODY.values(), ids=NOBODY.keys())
def test_what_names_nobody_lets_nobody_in(folder: Path, make: Any) -> None:
    with pytest.raises(Unauthorized):
        chain.identify(shown(make(folder)))
    token = tokens.issue("bob", [])
    identity = chain.identify(shown(make(folder), token))
    assert identity is not None
    assert identity.name == "bob", "who also shows a token comes in by it"


@pytest.mark.django_db
def test_a_certificate_goes_before_a_token(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain, "EPOCH_WINDOW", 3600.0)
    credentials = shown(signed(folder, "alice"), tokens.issue("bob", []))
    tokens.identify(credentials.bearer)
    for ask in (chain.identify, chain.remembered):
        identity = ask(credentials)
        assert identity is not None
        assert identity.name == "alice"


@pytest.mark.django_db
def test_without_the_database_a_certificate_is_known_as_long_as_nothing_may_have_been_revoked(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain, "EPOCH_WINDOW", 3600.0)
    credentials = shown(signed(folder, "alice"), tokens.issue("bob", []))
    assert chain.remembered(credentials) is None, "and the token does not go before it"
    chain.identify(credentials)
    assert chain.remembered(credentials) is not None
    chain._last_epoch.reset()
    assert chain.remembered(credentials) is None


# Revocation.


@pytest.mark.django_db
def test_all_certificates_of_a_name_are_ended_and_later_ones_are_good(folder: Path) -> None:
    credentials, other = shown(signed(folder, "alice")), shown(signed(folder, "bob"))
    assert chain.identify(credentials) is not None
    client_certificates.revoke_certificates("alice")
    with pytest.raises(Unauthorized):
        chain.identify(credentials)
    assert chain.identify(other) is not None
    later = signed(folder, "alice", now=datetime.now(UTC) + timedelta(seconds=2))
    assert chain.identify(shown(later)) is not None


@pytest.mark.django_db
def test_a_revocation_in_another_process_is_felt_when_it_has_returned(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    credentials = shown(signed(folder, "alice"))
    assert chain.identify(credentials) is not None
    CertificateRevocation.objects.create(name="alice", before=datetime.now(UTC))
    CredentialEpoch.objects.update_or_create(pk=1, defaults={"current": 9})
    later = time.monotonic() + chain.EPOCH_WINDOW
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert chain.remembered(credentials) is None
    with pytest.raises(Unauthorized):
        chain.identify(credentials)


# Signing.


def test_a_certificate_never_outlives_its_authority(folder: Path) -> None:
    pair = signed(folder, "alice", lifetime=timedelta(days=9999))
    authority = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
    assert x509.load_pem_x509_certificate(pair.certificate).not_valid_after_utc == authority.not_valid_after_utc


@pytest.mark.parametrize("kind", ["authority of RSA", "client of RSA", "client of Ed25519"])
def test_keys_of_other_kinds_are_signed_and_sign(folder: Path, tmp_path: Path, kind: str) -> None:
    authority = SigningAuthority(certificate=folder / "ca.crt", key=folder / "ca.key")
    key: Any = ec.generate_private_key(ec.SECP256R1())
    match kind:
        case "authority of RSA":
            authority = rsa_authority(tmp_path)
        case "client of RSA":
            key = rsa.generate_private_key(65537, 2048)
        case _:
            key = ed25519.Ed25519PrivateKey.generate()
    digest = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    request = x509.CertificateSigningRequestBuilder().subject_name(subject("alice")).sign(key, digest)
    made = x509.load_pem_x509_certificate(sign_client(request, authority=authority, lifetime=timedelta(days=1)))
    made.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.certificate.read_bytes()))


def rsa_authority(folder: Path) -> SigningAuthority:
    key, now = rsa.generate_private_key(65537, 2048), datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject("corporate"))
        .issuer_name(subject("corporate"))
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=30))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "ca.crt").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "ca.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return SigningAuthority(certificate=folder / "ca.crt", key=folder / "ca.key")


def test_a_weak_key_is_not_signed(folder: Path) -> None:
    request = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(subject("alice"))
        .sign(rsa.generate_private_key(65537, 1024), hashes.SHA256())
    )
    authority = SigningAuthority(certificate=folder / "ca.crt", key=folder / "ca.key")
    with pytest.raises(ValueError, match="at least 2048 bits"):
        sign_client(request, authority=authority, lifetime=timedelta(days=1))


# Through a real server.


def connection(server: ApiServer, pair: Pair | None, folder: Path, *, token: str = "") -> httpx.Client:
    context = ssl.create_default_context(cafile=str(server.ca_file))
    if pair is not None:
        context.load_cert_chain(*pair.written(folder))
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return httpx.Client(base_url=server.url, verify=context, headers=headers, timeout=30)


def name_of(client: httpx.Client) -> str:
    answer = client.post(WHO, json={})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["status"]["userInfo"]["username"])


def test_every_request_on_a_kept_connection_is_the_certificates(api_server: ApiServer, tmp_path: Path) -> None:
    pair = signed(api_server.ca_file.parent, "alice", ["system:masters"])
    with connection(api_server, pair, tmp_path) as alice, connection(api_server, None, tmp_path) as nobody:
        for _ in range(3):
            assert name_of(alice) == "alice"
            assert nobody.get("/api/v1/pods").status_code in (401, 403)
        with alice.stream("GET", "/api/v1/pods?watch=true&timeoutSeconds=1") as watching:
            assert watching.status_code == 200
        client_certificates.revoke_certificates("alice")
        assert alice.post(WHO, json={}).status_code == 401, "on the connection that was open, too"


def test_a_certificate_of_another_authority_is_not_taken(api_server: ApiServer, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    certificates.ensure(tmp_path / "other")
    stranger = signed(tmp_path / "other", "alice", ["system:masters"])
    with connection(api_server, stranger, tmp_path) as client, pytest.raises(httpx.TransportError):
        client.get("/version")


HEADERS = ("X-Client-Certificate", "X-SSL-Client-Cert", "Manciple.Certificate", "manciple_certificate")


@pytest.mark.parametrize("name", HEADERS)
def test_no_header_says_that_a_certificate_was_shown(api_server: ApiServer, tmp_path: Path, name: str) -> None:
    pair = signed(api_server.ca_file.parent, "alice", ["system:masters"])
    with connection(api_server, None, tmp_path) as client:
        headers = {name: pair.certificate.decode().replace("\n", "")}
        assert client.get("/api/v1/namespaces", headers=headers).status_code in (401, 403)


def test_kubectl_signs_in_with_a_certificate_that_the_command_wrote(
    api_server: ApiServer, tmp_path: Path, settings: Any
) -> None:
    settings.HOME = tmp_path
    settings.CLIENT_CA_FILE = api_server.ca_file
    settings.CLIENT_CA_KEY_FILE = api_server.ca_file.parent / "ca.key"
    server = Server(url=api_server.url, ca_pem=api_server.ca_file.read_text())
    write_private(Home(tmp_path).kubeconfig, kubeconfig.render(server, user="admin", token="t"))
    file = tmp_path / "alice.kubeconfig"
    call_command(
        "certificate", "issue", "alice", "--group", "system:masters", "--kubeconfig", str(file), stdout=StringIO()
    )
    assert file.stat().st_mode & 0o777 == 0o600
    kubectl = Kubectl(file, find_kubectl())
    assert "alice" in kubectl("auth", "whoami")
    assert "default" in kubectl("get", "namespaces")
    call_command("certificate", "revoke", "alice", stdout=StringIO())
    assert "Unauthorized" in kubectl("get", "namespaces", check=False)
