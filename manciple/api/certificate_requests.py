"""What the API server adds to certificate requests, and who may approve and sign them.

It notes who asks: nobody says that for themselves. To approve takes the right to `approve` the signer by its name, to
sign the right to `sign` it; for nobody is a certificate asked that would make its holder a member of system:masters.
Sources: plugin/pkg/admission/certificates/{approval,signing,subjectrestriction}/admission.go.
"""

from __future__ import annotations

from cryptography.x509.oid import NameOID
from msgspec.structs import replace

from manciple.access import authorization
from manciple.access.authorization import Attributes
from manciple.access.kinds.certificate_requests import CLIENT_SIGNER, FAILED, GROUP, RESOURCE, CertificateSigningRequest
from manciple.access.kinds.certificate_rules import parsed_request
from manciple.store import hooks
from manciple.store.hooks import Write
from manciple.wire.errors import Forbidden
from manciple.wire.identity import MASTERS, Identity


def register() -> None:
    hooks.register_completion(RESOURCE, with_requester)
    hooks.register_check(check, resources={RESOURCE})


def with_requester(write: Write) -> CertificateSigningRequest:
    """The new request, saying who makes it."""
    request: CertificateSigningRequest = write.new
    who = write.identity
    spec = replace(request.spec, username=who.name, uid=who.uid, groups=who.groups, extra=dict(who.extra))
    return replace(request, spec=spec)


def check(write: Write) -> None:
    """Raises: Forbidden."""
    match (write.operation, write.subresource):
        case ("CREATE", _):
            _check_subject(write.new)
        case ("UPDATE", "approval"):
            _demand_signer(write.identity, "approve", write.old)
        case ("UPDATE", "status") if _signs(write.new, write.old):
            _demand_signer(write.identity, "sign", write.old)


def _check_subject(request: CertificateSigningRequest) -> None:
    if request.spec.signer_name != CLIENT_SIGNER:
        return
    organizations = parsed_request(request.spec.request).subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    if any(one.value == MASTERS for one in organizations):
        raise _refusal(request, f"use of {CLIENT_SIGNER} signer with {MASTERS} group is not allowed")


def _signs(new: CertificateSigningRequest, old: CertificateSigningRequest) -> bool:
    """Whether that is the signer's answer: a certificate, or that there will be none."""
    return new.status.certificate != old.status.certificate or bool(new.condition(FAILED)) != bool(
        old.condition(FAILED)
    )


def _demand_signer(identity: Identity, verb: str, request: CertificateSigningRequest) -> None:
    signer = request.spec.signer_name
    names = (signer, f"{signer.partition('/')[0]}/*")
    if not any(authorization.decide(identity, _right(verb, name)).allowed for name in names):
        raise _refusal(request, f'user not permitted to {verb} requests with signerName "{signer}"')


def _right(verb: str, signer: str) -> Attributes:
    return Attributes(verb=verb, group=GROUP, version="*", resource="signers", name=signer)


def _refusal(request: CertificateSigningRequest, why: str) -> Forbidden:
    name = request.metadata.name or request.metadata.generate_name
    details = {"name": name, "group": GROUP, "kind": "certificatesigningrequests"}
    return Forbidden(f'{RESOURCE} "{name}" is forbidden: {why}', details=details)
