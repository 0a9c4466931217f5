"""The certificates of nodes: who gets one without anybody looking at it, who does not, and for how long."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from msgspec.structs import replace

from manciple.access.authentication import chain, tokens
from manciple.access.authentication import external as client_certificates
from manciple.access.authentication.chain import Credentials
from manciple.access.kinds.certificate_requests import (
    APPROVED,
    CLIENT_SIGNER,
    DENIED,
    FAILED,
    NODE_SIGNER,
    RESOURCE,
    CertificateSigningRequest,
    CertificateSigningRequestCondition,
    CertificateSigningRequestSpec,
)
from manciple.access.models import BootstrapToken, IssuedCertificate
from manciple.api import certificates, verbs
from manciple.controllers.certificate_requests import reconcile
from manciple.store import objects
from manciple.wire.base import ObjectMeta
from manciple.wire.errors import Forbidden
from manciple.wire.identity import MASTERS, Identity
from manciple.wire.registry import registry
from tests.manciple.access.client_keys import subject

pytestmark = pytest.mark.django_db

NODE = "system:node:n1"
AGENT = Identity(NODE, ("system:nodes", "system:authenticated"))
ADMIN = Identity("admin", (MASTERS, "system:authenticated"))
Key = ec.EllipticCurvePrivateKey


@pytest.fixture(autouse=True)
def _authority(tmp_path: Path, settings: Any) -> None:
    certificates.ensure_authority(tmp_path)
    settings.CLIENT_CA_FILE, settings.CLIENT_CA_KEY_FILE = tmp_path / "ca.crt", tmp_path / "ca.key"


def new_key() -> Key:
    return ec.generate_private_key(ec.SECP256R1())


def bootstrapper(node: str = "") -> Identity:
    found = tokens.identify_bootstrap(tokens.issue_bootstrap(lifetime=timedelta(hours=1), node=node))
    assert found is not None
    return found


def ask(
    who: Identity,
    name: str = NODE,
    *,
    key: Key | None = None,
    groups: tuple[str, ...] = ("system:nodes",),
    signer: str = NODE_SIGNER,
    usages: tuple[str, ...] = ("client auth", "digital signature"),
    seconds: int | None = None,
    alternative: str = "",
) -> str:
    """The name of a new request."""
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject(name, groups))
    if alternative:
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(alternative)]), critical=False)
    pem = builder.sign(key or new_key(), hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    spec = CertificateSigningRequestSpec(
        request=base64.b64encode(pem).decode(), signer_name=signer, usages=usages, expiration_seconds=seconds
    )
    request = CertificateSigningRequest(metadata=ObjectMeta(generate_name="r-"), spec=spec)
    made = verbs.create(registry.by_resource(RESOURCE), request, identity=who.let_in())
    return str(made.metadata.name)


def outcome(name: str) -> CertificateSigningRequest:
    reconcile(datetime.now(UTC))
    stored = objects.get(registry.by_resource(RESOURCE), "", name)
    assert stored is not None
    found: Any = objects.decode(registry.by_resource(RESOURCE), stored.text)
    assert isinstance(found, CertificateSigningRequest)
    return found


def told(request: CertificateSigningRequest, type_: str) -> str:
    found = request.condition(type_)
    assert found is not None, request.status.conditions
    return found.message


def certificate_of(request: CertificateSigningRequest) -> x509.Certificate:
    return x509.load_pem_x509_certificate(base64.b64decode(request.status.certificate))


def decide(name: str, type_: str, who: Identity = ADMIN) -> None:
    """As `kubectl certificate approve` and `deny` do."""

    def decided(old: Any) -> Any:
        condition = CertificateSigningRequestCondition(type=type_, status="True")
        return replace(old, status=replace(old.status, conditions=(condition,)))

    verbs.modify(registry.by_resource(RESOURCE), decided, name=name, identity=who.let_in(), subresource="approval")


# Joining.


def test_a_machine_with_a_bootstrap_token_becomes_the_node_that_it_asks_to_be() -> None:
    request = outcome(ask(bootstrapper()))
    assert told(request, APPROVED) == "Auto approving kubelet client certificate after SubjectAccessReview."
    made = certificate_of(request)
    der = made.public_bytes(serialization.Encoding.DER)
    identity = chain.identify(Credentials(headers={}, certificate=der))
    assert identity is not None
    assert (identity.name, identity.groups) == (NODE, ("system:nodes", "system:authenticated"))


def test_a_bootstrap_token_is_no_way_to_the_name_of_a_node_that_has_a_credential() -> None:
    first, second = new_key(), new_key()
    assert outcome(ask(bootstrapper(), key=first)).status.certificate
    stolen = outcome(ask(bootstrapper(), key=second))
    assert "has a valid credential" in told(stolen, DENIED)
    assert f"manage.py certificate revoke {NODE}" in told(stolen, DENIED)
    assert not stolen.status.certificate
    assert outcome(ask(bootstrapper(), "system:node:n2", key=second)).status.certificate, "another name is free"


@pytest.mark.parametrize(
    "node", ["../x", "..", "a/../b", "/etc", "Node-1", "node_1", "node 1", "node-1\n", "-a", "a..b", "nodé"]
)
def test_nobody_gets_the_certificate_of_an_impossible_node(node: str) -> None:
    request = outcome(ask(bootstrapper(), f"system:node:{node}"))
    assert not request.status.certificate
    assert request.condition(APPROVED) is None
    for signer, groups in ((NODE_SIGNER, ("system:nodes",)), (CLIENT_SIGNER, ("system:nodes",))):
        name = ask(ADMIN, f"system:node:{node}", signer=signer, groups=groups)
        decide(name, APPROVED)
        request = outcome(name)
        assert not request.status.certificate
        assert "invalid node name" in told(request, FAILED)


def test_a_machine_that_did_not_get_its_certificate_asks_again_with_its_key() -> None:
    key = new_key()
    assert outcome(ask(bootstrapper(), key=key)).status.certificate
    assert outcome(ask(bootstrapper(), key=key)).status.certificate


def test_two_that_ask_for_one_name_at_once_do_not_both_get_it() -> None:
    names = [ask(bootstrapper()), ask(bootstrapper())]
    found = [outcome(name) for name in names]
    assert sorted(bool(one.status.certificate) for one in found) == [False, True]
    assert sum(one.condition(DENIED) is not None for one in found) == 1


LET_IN_AGAIN = {
    "its certificates were revoked": lambda: client_certificates.revoke_certificates(NODE),
    "its certificate has ended": lambda: IssuedCertificate.objects.update(
        expires=datetime.now(UTC) - timedelta(seconds=1)
    ),
}


@pytest.mark.parametrize("event", LET_IN_AGAIN.values(), ids=LET_IN_AGAIN.keys())
def test_a_machine_that_was_set_up_anew_is_let_in_again(event: Any) -> None:
    outcome(ask(bootstrapper()))
    event()
    assert outcome(ask(bootstrapper())).status.certificate


def test_a_node_with_a_token_of_its_own_has_a_credential() -> None:
    tokens.issue(NODE, ["system:nodes"])
    denied = outcome(ask(bootstrapper())).condition(DENIED)
    assert denied is not None
    assert denied.reason == "NodeHasCredential"
    tokens.revoke(NODE)
    assert outcome(ask(bootstrapper())).status.certificate


def test_a_token_that_was_made_for_one_node_lets_no_other_in() -> None:
    assert told(outcome(ask(bootstrapper("n2"))), DENIED) == "the bootstrap token was made for node n2 alone"
    assert outcome(ask(bootstrapper("n1"))).status.certificate


# Renewal.


def test_a_node_renews_its_own_certificate_with_a_new_key() -> None:
    outcome(ask(bootstrapper()))
    request = outcome(ask(AGENT))
    assert told(request, APPROVED) == "Auto approving self kubelet client certificate after SubjectAccessReview."
    assert request.status.certificate


UNDECIDED: dict[str, dict[str, Any]] = {
    "a user asks for a node": {"who": Identity("bob", ("system:authenticated",))},
    "a node asks for more groups": {"who": AGENT, "groups": ("system:nodes", "system:masters")},
    "a node asks for the names of hosts": {"who": AGENT, "alternative": "api.example.org"},
    "a node asks for a server's": {"who": AGENT, "usages": ("server auth", "digital signature")},
    "a node asks another signer": {"who": AGENT, "signer": CLIENT_SIGNER},
    "a node asks a signer that is not ours": {"who": AGENT, "signer": "example.com/other"},
    "a node without a name": {"who": Identity("system:bootstrap:x", ("system:bootstrappers",)), "name": "system:node:"},
}


@pytest.mark.parametrize("asked", UNDECIDED.values(), ids=UNDECIDED.keys())
def test_anything_else_is_for_an_administrator_to_decide(asked: dict[str, Any]) -> None:
    request = outcome(ask(**asked))
    assert request.status.conditions == ()
    assert not request.status.certificate


@pytest.mark.parametrize("name", ["system:node:n2", "admin"])
def test_a_node_does_not_even_get_to_ask_for_another_name(name: str) -> None:
    with pytest.raises(Forbidden, match="can only create a node CSR with CN=system:node:n1"):
        ask(AGENT, name)


# What an administrator approved.


def test_a_client_that_was_approved_is_signed_and_one_that_was_denied_is_not() -> None:
    alice, eve = (ask(Identity(name), name, groups=("team",), signer=CLIENT_SIGNER) for name in ("alice", "eve"))
    decide(alice, APPROVED)
    decide(eve, DENIED)
    made = certificate_of(outcome(alice))
    identity = client_certificates.read_certificate(made.public_bytes(serialization.Encoding.DER))
    assert identity is not None
    assert (identity.identity.name, identity.identity.groups) == ("alice", ("team", "system:authenticated"))
    assert not outcome(eve).status.certificate


NO_CERTIFICATE = {
    "of a node with more groups": ({"groups": ("system:nodes", "team")}, "subject organization is not system:nodes"),
    "of a node that is none": ({"name": "bob"}, "subject common name does not begin with system:node:"),
    "of a node with names of hosts": ({"alternative": "a.example.org"}, "subjectAltNames are not allowed"),
    "of a node for a server": ({"usages": ("server auth",)}, "usages did not match client auth and digital signature"),
    "of a client for a server": (
        {"signer": CLIENT_SIGNER, "usages": ("client auth", "server auth")},
        "invalid usage for client certificate: server auth",
    ),
    "of a client for nothing": (
        {"signer": CLIENT_SIGNER, "usages": ("digital signature",)},
        "missing required usage for client certificate: client auth",
    ),
}


@pytest.mark.parametrize(("asked", "why"), NO_CERTIFICATE.values(), ids=NO_CERTIFICATE.keys())
def test_what_no_signer_would_sign_fails_though_it_was_approved(asked: dict[str, Any], why: str) -> None:
    name = ask(ADMIN, **asked)
    decide(name, APPROVED)
    request = outcome(name)
    assert told(request, FAILED) == why
    assert not request.status.certificate


def test_an_approved_request_of_another_signer_is_left_to_it() -> None:
    name = ask(ADMIN, signer="example.com/other")
    decide(name, APPROVED)
    request = outcome(name)
    assert [one.type for one in request.status.conditions] == [APPROVED]


def test_without_the_authoritys_files_an_approved_request_waits(settings: Any, tmp_path: Path) -> None:
    key_file = settings.CLIENT_CA_KEY_FILE
    settings.CLIENT_CA_KEY_FILE = tmp_path / "elsewhere.key"
    name = ask(bootstrapper())
    assert [one.type for one in outcome(name).status.conditions] == [APPROVED]
    settings.CLIENT_CA_KEY_FILE = key_file
    assert outcome(name).status.certificate


LIFETIMES = {
    "nobody said": (None, timedelta(days=30)),
    "less": (3600, timedelta(hours=1)),
    "more": (365 * 86400, timedelta(days=30)),
}


@pytest.mark.parametrize(("seconds", "lifetime"), LIFETIMES.values(), ids=LIFETIMES.keys())
def test_a_certificate_lasts_as_long_as_asked_and_never_longer_than_allowed(
    seconds: int | None, lifetime: timedelta
) -> None:
    made = certificate_of(outcome(ask(bootstrapper(), seconds=seconds)))
    assert made.not_valid_after_utc - made.not_valid_before_utc == lifetime + client_certificates.BACKDATED


# Afterwards.


def test_settled_requests_go_after_an_hour_and_undecided_ones_after_a_day() -> None:
    signed, left, waiting = ask(bootstrapper()), ask(Identity("bob")), ask(ADMIN, signer="example.com/other")
    decide(waiting, APPROVED)
    now = datetime.now(UTC)
    remaining = {}
    for hours in (0, 2, 25):
        reconcile(now + timedelta(hours=hours))
        remaining[hours] = {one.name for one in objects.list(registry.by_resource(RESOURCE)).items}
    assert remaining == {0: {signed, left, waiting}, 2: {left, waiting}, 25: {waiting}}


def test_what_has_ended_is_not_kept() -> None:
    outcome(ask(bootstrapper()))
    reconcile(datetime.now(UTC) + timedelta(days=31))
    assert not IssuedCertificate.objects.exists()
    assert not BootstrapToken.objects.exists()


# The tokens themselves.


def test_a_bootstrap_token_is_a_bootstrapper_until_it_expires_or_is_revoked() -> None:
    text = tokens.issue_bootstrap(lifetime=timedelta(hours=1))
    found = chain.identify_token(text)
    assert found is not None
    key = text.partition(".")[0]
    assert found.identity == Identity(f"system:bootstrap:{key}", ("system:bootstrappers", "system:authenticated"))
    assert text.partition(".")[2] not in str(BootstrapToken.objects.values())

    BootstrapToken.objects.update(expires=datetime.now(UTC))
    assert chain.identify_token(text) is None
    BootstrapToken.objects.update(expires=datetime.now(UTC) + timedelta(hours=1))
    assert tokens.revoke_bootstrap(key)
    assert chain.identify_token(text) is None
    assert not tokens.revoke_bootstrap(key)


@pytest.mark.parametrize(
    "wrong", ["{key}.0000000000000000", "{key}.", "{KEY}.{secret}", "{key}.{secret}x", "{key} .{secret}"]
)
def test_what_is_only_like_a_bootstrap_token_is_none(wrong: str) -> None:
    key, _, secret = tokens.issue_bootstrap(lifetime=timedelta(hours=1)).partition(".")
    assert chain.identify_token(wrong.format(key=key, KEY=key.upper() + "A", secret=secret)) is None
