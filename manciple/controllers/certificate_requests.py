"""Approves the requests of nodes for their certificate, signs what is approved, and clears away what is settled.

    a node asks for its own name, with the certificate that it has      -> approved (renewal)
    a bootstrapper asks for a node without a living credential           -> approved (it joins)
    a bootstrapper asks for a node that has one, with another key        -> denied
    a bootstrapper asks for another node than its token was made for     -> denied
    anybody else, or for a client that is no node                        -> left to `kubectl certificate approve`

Whether somebody may have such a certificate at all is the roles' to say, as upstream. The third line is ours: where
anybody with a bootstrap token could ask for any node's name, one machine's token would be as good as every machine's
identity. A credential lives while a certificate that we signed for the name holds and was not revoked, or a token of
that name does; who still has its key is the same machine, which did not get, or lost, its certificate on the way. A
machine that was lost or set up anew is let in again by `manage.py certificate revoke system:node:NAME`.

Certificates of nodes live for days (`MANCIPLE_CERTIFICATE_DAYS`) and agents renew them; they are noted as long as they
last. Deciding, signing and noting take place in one transaction, so two requests for one name cannot both be granted.
Sources: pkg/controller/certificates/{approver,signer,cleaner} of Kubernetes 1.36.
"""

from __future__ import annotations

import base64
import hashlib
import logging
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID
from django.conf import settings
from msgspec.structs import replace

from manciple.access import authorization
from manciple.access.authentication import tokens
from manciple.access.authentication.tokens import BOOTSTRAP_NODE
from manciple.access.authorization import Attributes
from manciple.access.kinds.certificate_requests import (
    APPROVED,
    CLIENT_SIGNER,
    DENIED,
    FAILED,
    GROUP,
    NODE_SIGNER,
    NODE_USAGES,
    RESOURCE,
    CertificateSigningRequest,
    CertificateSigningRequestCondition,
)
from manciple.access.kinds.certificate_rules import parsed_request
from manciple.access.models import BootstrapToken, CertificateRevocation, IssuedCertificate
from manciple.api.certificates import SigningAuthority, sign_client
from manciple.controllers.declaration import Controller
from manciple.store import objects
from manciple.store.objects import Writer, listed
from manciple.wire.base import timestamp
from manciple.wire.identity import NODE_PREFIX, NODES, Identity, controller, node_of
from manciple.wire.resources import ADDED, MODIFIED, kind

log = logging.getLogger(__name__)

#: Who writes (upstream: the service account of that name in kube-controller-manager).
IDENTITY = controller("certificate-controller")
#: A client may ask for less, but not for less than this (upstream: signer.go, duration).
SHORTEST = timedelta(minutes=10)
#: How long a request is kept after it was signed, denied or failed; and one that nobody decided on (upstream: cleaner).
SETTLED_FOR, PENDING_FOR = timedelta(hours=1), timedelta(hours=24)
_CLIENT_AUTH = "client auth"
#: What the keys of clients may be for.
_CLIENT_USAGES = frozenset({_CLIENT_AUTH, "digital signature", "key encipherment"})


class RequestRefused(Exception):
    """The request is no proper one for its signer. Its text goes into the request's condition."""


def reconcile(now: datetime) -> int:
    """Returns how many requests were decided on, signed or removed."""
    IssuedCertificate.objects.filter(expires__lt=now).delete()
    BootstrapToken.objects.filter(expires__lt=now).delete()
    return sum(_treated(request, now) for request in _requests())


def _requests() -> Iterator[CertificateSigningRequest]:
    _, found = listed(RESOURCE, CertificateSigningRequest)
    yield from found


def _treated(request: CertificateSigningRequest, now: datetime) -> bool:
    """Whether anything was written."""
    if _is_over(request, now):
        objects.write(
            lambda writer: writer.delete(kind(RESOURCE), "", request.metadata.name, uid=request.metadata.uid),
            identity=IDENTITY,
        )
        return True
    if request.condition(DENIED) or request.condition(FAILED) or request.status.certificate:
        return False
    if not request.condition(APPROVED) and not _may_have(request):
        return False
    return objects.write(
        lambda writer: _decide(writer, request, now),
        identity=IDENTITY,
        reads=[objects.Read(kind(RESOURCE), "", request.metadata.name)],
    )


def _is_over(request: CertificateSigningRequest, now: datetime) -> bool:
    approved = request.condition(APPROVED)
    settled = request.condition(DENIED) or request.condition(FAILED) or (request.status.certificate and approved)
    if approved and not settled:
        return False  # it waits for its signer, who may be another than us
    since = (settled and settled.last_update_time) or request.metadata.creation_timestamp
    return since is not None and now - datetime.fromisoformat(since) > (SETTLED_FOR if settled else PENDING_FOR)


def _may_have(request: CertificateSigningRequest) -> bool:
    """Whether the roles allow who asks to have the certificate of a node without anybody looking at it."""
    try:
        name = _checked_node(parsed_request(request.spec.request), request)
    except (RequestRefused, ValueError):
        return False
    who = _requester(request)
    if who.name == name and _is_allowed(who, "selfnodeclient"):
        return True
    return _is_allowed(who, "nodeclient")


def _requester(request: CertificateSigningRequest) -> Identity:
    spec = request.spec
    return Identity(spec.username, spec.groups, spec.uid, tuple(spec.extra.items()))


def _is_allowed(who: Identity, subresource: str) -> bool:
    wanted = Attributes(
        verb="create", group=GROUP, version="*", resource="certificatesigningrequests", subresource=subresource
    )
    return authorization.decide(who, wanted).allowed


# In the transaction ---------------------------------------------------------------------------------------------------


def _decide(writer: Writer, seen: CertificateSigningRequest, now: datetime) -> bool:
    """Whether anything was written."""
    if writer.get(kind(RESOURCE), "", seen.metadata.name) != seen:
        return False  # it is another one by now, and will be looked at as such
    if seen.condition(APPROVED):
        return _sign(writer, seen, now)
    objection = _objection(seen, now)
    verdict = _condition(DENIED, "NodeHasCredential", objection) if objection else _approval(seen)
    decided: Any = writer.update(kind(RESOURCE), _with(seen, verdict, now), subresource="approval")
    if not objection:
        _sign(writer, decided, now)
    return True


def _approval(request: CertificateSigningRequest) -> CertificateSigningRequestCondition:
    own = "self " if request.spec.username == _name_in(parsed_request(request.spec.request)) else ""
    return _condition(
        APPROVED, "AutoApproved", f"Auto approving {own}kubelet client certificate after SubjectAccessReview."
    )


def _objection(request: CertificateSigningRequest, now: datetime) -> str:
    """Why who asks may not have this node's certificate, though they may have a node's; "" where they may."""
    parsed = parsed_request(request.spec.request)
    name = _name_in(parsed)
    if request.spec.username == name:
        return ""
    bound = _requester(request).extras(BOOTSTRAP_NODE)
    if bound and f"{NODE_PREFIX}{bound[0]}" != name:
        return f"the bootstrap token was made for node {bound[0]} alone"
    if living_keys(name, now) - {key_digest(parsed)} or tokens.live().filter(name=name).exists():
        return (
            f"{name} has a valid credential with another key; to replace that machine, revoke "
            f"what it has: manage.py certificate revoke {name}; manage.py token revoke {name}"
        )
    return ""


def living_keys(name: str, now: datetime) -> set[str]:
    """Digests of the keys in certificates that were signed for `name` and hold."""
    revoked = CertificateRevocation.objects.filter(name=name).first()
    found = IssuedCertificate.objects.filter(name=name, expires__gt=now)
    return set((found.filter(issued__gt=revoked.before) if revoked else found).values_list("key", flat=True))


def key_digest(request: x509.CertificateSigningRequest) -> str:
    spki = request.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(spki).hexdigest()


def _sign(writer: Writer, request: CertificateSigningRequest, now: datetime) -> bool:
    """Whether it was one of ours to sign, or to fail."""
    check = _SIGNERS.get(request.spec.signer_name)
    if check is None:
        return False
    try:
        parsed = parsed_request(request.spec.request)
        name, lifetime = check(parsed, request), _lifetime(request)
        issued = _date(name, now)
        certificate = sign_client(parsed, authority=_authority(), lifetime=lifetime, now=issued)
    except OSError as error:
        log.warning("request %s waits for a worker that has the authority's files: %s", request.metadata.name, error)
        return False
    except (RequestRefused, ValueError) as error:
        failed = _condition(FAILED, "SignerValidationFailure", str(error))
        writer.update(kind(RESOURCE), _with(request, failed, now), subresource="status")
        return True
    status = replace(request.status, certificate=base64.b64encode(certificate).decode())
    writer.update(kind(RESOURCE), replace(request, status=status), subresource="status")
    IssuedCertificate.objects.create(name=name, key=key_digest(parsed), issued=issued, expires=issued + lifetime)
    return True


def _date(name: str, now: datetime) -> datetime:
    """Later than what was revoked: a certificate tells whole seconds, and a new one may follow within the second."""
    revoked = CertificateRevocation.objects.filter(name=name).first()
    return max(now, revoked.before + timedelta(seconds=1)) if revoked else now


def _authority() -> SigningAuthority:
    return SigningAuthority(certificate=settings.CLIENT_CA_FILE, key=settings.CLIENT_CA_KEY_FILE)


def _lifetime(request: CertificateSigningRequest) -> timedelta:
    longest = timedelta(days=settings.CERTIFICATE_DAYS)
    asked = request.spec.expiration_seconds
    return longest if asked is None else min(longest, max(SHORTEST, timedelta(seconds=asked)))


def _condition(type_: str, reason: str, message: str) -> CertificateSigningRequestCondition:
    return CertificateSigningRequestCondition(type=type_, status="True", reason=reason, message=message)


def _with(
    request: CertificateSigningRequest, condition: CertificateSigningRequestCondition, now: datetime
) -> CertificateSigningRequest:
    dated = replace(condition, last_update_time=timestamp(now), last_transition_time=timestamp(now))
    status = replace(request.status, conditions=(*request.status.conditions, dated))
    return replace(request, status=status)


# What each signer takes -----------------------------------------------------------------------------------------------


#: (what is asked for, the object around it) -> whose certificate it is. Raises: RequestRefused.
Check = Callable[[x509.CertificateSigningRequest, CertificateSigningRequest], str]


def _checked_node(parsed: x509.CertificateSigningRequest, request: CertificateSigningRequest) -> str:
    """Raises: RequestRefused. Source: pkg/apis/certificates/helpers.go, ValidateKubeletClientCSR."""
    if request.spec.signer_name != NODE_SIGNER:
        raise RequestRefused(f"the signer is not {NODE_SIGNER}")
    if _values(parsed, NameOID.ORGANIZATION_NAME) != [NODES]:
        raise RequestRefused(f"subject organization is not {NODES}")
    if any(isinstance(one.value, x509.SubjectAlternativeName) for one in parsed.extensions):
        raise RequestRefused("subjectAltNames are not allowed")
    name = _name_in(parsed)
    if not name.startswith(NODE_PREFIX) or name == NODE_PREFIX:
        raise RequestRefused(f"subject common name does not begin with {NODE_PREFIX}")
    _check_node_name(name)
    if set(request.spec.usages) - {"key encipherment"} != set(NODE_USAGES):
        raise RequestRefused(f"usages did not match {' and '.join(NODE_USAGES)}")
    return name


def _checked_client(parsed: x509.CertificateSigningRequest, request: CertificateSigningRequest) -> str:
    """Raises: RequestRefused. Source: pkg/controller/certificates/signer/signer.go, validAPIServerClientUsages."""
    for usage in request.spec.usages:
        if usage not in _CLIENT_USAGES:
            raise RequestRefused(f"invalid usage for client certificate: {usage}")
    if _CLIENT_AUTH not in request.spec.usages:
        raise RequestRefused(f"missing required usage for client certificate: {_CLIENT_AUTH}")
    name = _name_in(parsed)
    _check_node_name(name)
    return name


def _check_node_name(name: str) -> None:
    """Raises: RequestRefused for `system:node:` with an invalid node name, whoever approved it."""
    try:
        node_of(name)
    except ValueError as error:
        raise RequestRefused(f"subject common name: {error}") from error


def _name_in(parsed: x509.CertificateSigningRequest) -> str:
    """The one common name; "" where there is none, or several."""
    names = _values(parsed, NameOID.COMMON_NAME)
    return names[0] if len(names) == 1 else ""


def _values(parsed: x509.CertificateSigningRequest, oid: x509.ObjectIdentifier) -> list[str]:
    return [str(one.value) for one in parsed.subject.get_attributes_for_oid(oid)]


_SIGNERS: dict[str, Check] = {NODE_SIGNER: _checked_node, CLIENT_SIGNER: _checked_client}

CONTROLLER = Controller(
    name="grant_certificates",
    does="approves the certificate requests of nodes, and signs what is approved",
    in_mirror=False,
    reconcile=reconcile,
    every=60,
    wakes_on=frozenset({(RESOURCE, ADDED), (RESOURCE, MODIFIED)}),
)
