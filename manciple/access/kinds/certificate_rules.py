"""CertificateSigningRequest as the API server serves it: what may be asked for, approved and signed.

Its spec never changes. Approval and status are written apart: who approves cannot sign, nor the other way round.
Sources: pkg/apis/certificates/validation, pkg/registry/certificates/certificates/strategy.go, pkg/printers
(printCertificateSigningRequest) of Kubernetes 1.36; messages as an API server of that version gives them.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from msgspec.structs import replace

from manciple.access.kinds.certificate_requests import (
    APPROVED,
    DENIED,
    FAILED,
    GROUP,
    VERSION,
    CertificateSigningRequest,
    CertificateSigningRequestCondition,
    CertificateSigningRequestStatus,
)
from manciple.wire.base import timestamp
from manciple.wire.errors import FieldError, duplicate, forbidden, invalid, not_supported, required
from manciple.wire.registry import Column, Kind, Subresource
from manciple.wire.tables import AGE_COLUMN, NAME_COLUMN, human_duration
from manciple.wire.validation import (
    Errors,
    Path,
    check_dns_label,
    check_dns_subdomain,
    check_path_segment,
    each,
    validate_object_meta,
    validate_object_meta_update,
)

LEGACY_SIGNER = "kubernetes.io/legacy-unknown"
USAGES = frozenset(
    (
        "any", "cert sign", "client auth", "code signing", "content commitment", "crl sign", "data encipherment",
        "decipher only", "digital signature", "email protection", "encipher only", "ipsec end system", "ipsec tunnel",
        "ipsec user", "key agreement", "key encipherment", "microsoft sgc", "netscape sgc", "ocsp signing", "s/mime",
        "server auth", "signing", "timestamping",
    )
)  # fmt: skip
LEAST_SECONDS = 600
STATUSES = ("True", "False", "Unknown")
#: Conditions that are true or not there.
_ALWAYS_TRUE = (APPROVED, DENIED, FAILED)

# PEM ------------------------------------------------------------------------------------------------------------------


_BLOCK = re.compile(rb"-----BEGIN ([^\n-]*)-----[ \t\r]*\n(.*?)-----END \1-----", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Block:
    type: str
    headed: bool
    content: bytes


def _blocks(encoded: str) -> Iterator[_Block]:
    """The PEM blocks in base64 text; what is none is passed over, as Go does."""
    for type_, body in _BLOCK.findall(base64.b64decode(encoded)):
        headers, blank, rest = body.partition(b"\n\n")
        headed = bool(blank) and b":" in headers
        try:
            content = base64.b64decode(b"".join((rest if headed else body).split()), validate=True)
        except binascii.Error:
            continue
        if content:
            yield _Block(type_.decode(errors="replace"), headed, content)


def parsed_request(encoded: str) -> x509.CertificateSigningRequest:
    """A PKCS#10 request that is signed with its own key. Raises: ValueError saying what is wrong."""
    first = next(_blocks(encoded), None)
    if first is None or first.type != "CERTIFICATE REQUEST":
        raise ValueError("PEM block type must be CERTIFICATE REQUEST")
    try:
        request = x509.load_der_x509_csr(first.content)
        valid = request.is_signature_valid
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ValueError(f"the certificate request cannot be read: {error}") from error
    if not valid:
        raise ValueError("the certificate request is not signed with the key in it")
    return request


# Rules ----------------------------------------------------------------------------------------------------------------


def prepare(new: CertificateSigningRequest) -> CertificateSigningRequest:
    return replace(new, status=CertificateSigningRequestStatus())


def validate(new: CertificateSigningRequest) -> Errors:
    spec, path = new.spec, Path("spec")
    found = validate_object_meta(new.metadata, namespaced=False, name_rule=check_path_segment)
    try:
        parsed_request(spec.request)
    except ValueError as error:
        found.append(invalid(path.child("request"), spec.request, str(error)))
    found += _validate_usages(spec.usages, path.child("usages"))
    found += _validate_signer(spec.signer_name, path.child("signerName"))
    if spec.expiration_seconds is not None and spec.expiration_seconds < LEAST_SECONDS:
        told = f"may not specify a duration less than {LEAST_SECONDS} seconds (10 minutes)"
        found.append(invalid(path.child("expirationSeconds"), spec.expiration_seconds, told))
    return found + _validate_status(new.status)


def _validate_usages(usages: tuple[str, ...], path: Path) -> Errors:
    if not usages:
        return [required(path)]
    found: Errors = []
    for at, usage in enumerate(usages):
        if usage not in USAGES:
            found.append(not_supported(path.at(at), usage, sorted(USAGES)))
        elif usage in usages[:at]:
            found.append(duplicate(path.at(at), usage))
    return found


def _validate_signer(name: str, path: Path) -> Errors:
    if not name:
        return [required(path)]
    if name == LEGACY_SIGNER:
        return [invalid(path, name, "the legacy signerName is not allowed via this API version")]
    domain, slash, rest = name.partition("/")
    if not slash or "/" in rest:
        told = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
        return [invalid(path, name, told)]
    return _validate_domain(domain, path) + _told(check_dns_subdomain(rest), rest, rest, path)


def _validate_domain(domain: str, path: Path) -> Errors:
    labels = domain.split(".")
    if len(labels) == 1:
        return [invalid(path, domain, "should be a domain with at least two segments separated by dots")]
    return [error for label in labels for error in _told(check_dns_label(label), label, domain, path)]


def _told(messages: tuple[str, ...], label: str, value: str, path: Path) -> Errors:
    return each((f'validating label "{label}": {message}' for message in messages), path, value)


def _validate_status(status: CertificateSigningRequestStatus) -> Errors:
    path = Path("status")
    found: Errors = []
    for at, condition in enumerate(status.conditions):
        found += _validate_condition(condition, path.child("conditions").at(at))
        if condition.type and any(one.type == condition.type for one in status.conditions[:at]):
            found.append(duplicate(path.child("conditions").at(at).child("type"), condition.type))
    types = {one.type for one in status.conditions}
    if {APPROVED, DENIED} <= types:
        found.append(invalid(path.child("conditions"), DENIED, "Approved and Denied conditions are mutually exclusive"))
    return found + (_validate_certificate(status.certificate, path.child("certificate")) if status.certificate else [])


def _validate_condition(condition: CertificateSigningRequestCondition, path: Path) -> Errors:
    found: Errors = [] if condition.type else [required(path.child("type"))]
    allowed = ("True",) if condition.type in _ALWAYS_TRUE else STATUSES
    if not condition.status:
        return [*found, required(path.child("status"))]
    if condition.status not in allowed:
        found.append(not_supported(path.child("status"), condition.status, sorted(allowed)))
    return found


def _validate_certificate(encoded: str, path: Path) -> Errors:
    def wrong(told: str) -> list[FieldError]:
        return [invalid(path, "<certificate data>", told)]

    blocks = list(_blocks(encoded))
    for block in blocks:
        if block.headed:
            return wrong("no PEM block headers are permitted")
        if block.type != "CERTIFICATE":
            return wrong(f'only CERTIFICATE PEM blocks are allowed, found "{block.type}"')
        try:
            x509.load_der_x509_certificate(block.content)
        except ValueError as error:
            return wrong(f"unable to parse certificate: {error}")
    return [] if blocks else wrong("must contain at least one CERTIFICATE PEM block")


def validate_update(new: CertificateSigningRequest, old: CertificateSigningRequest) -> Errors:
    return [
        *validate(new),
        *validate_object_meta_update(new.metadata, old.metadata),
        *_validate_certificate_stays(new, old),
    ]


def _validate_certificate_stays(new: CertificateSigningRequest, old: CertificateSigningRequest) -> Errors:
    if old.status.certificate and new.status.certificate != old.status.certificate:
        return [forbidden("status.certificate", "updates may not modify existing certificate content")]
    return []


def validate_approval(new: CertificateSigningRequest, old: CertificateSigningRequest) -> Errors:
    return validate_update(new, old) + _validate_removed(new, old)


def validate_status(new: CertificateSigningRequest, old: CertificateSigningRequest) -> Errors:
    """Who signs neither approves nor denies."""
    added = [
        forbidden("status.conditions", f'updates may not add a condition of type "{type_}"')
        for type_ in (APPROVED, DENIED)
        if new.condition(type_) and not old.condition(type_)
    ]
    return validate_update(new, old) + added + _validate_removed(new, old)


def _validate_removed(new: CertificateSigningRequest, old: CertificateSigningRequest) -> Errors:
    return [
        forbidden("status.conditions", f'updates may not remove a condition of type "{type_}"')
        for type_ in _ALWAYS_TRUE
        if old.condition(type_) and not new.condition(type_)
    ]


# Writes ---------------------------------------------------------------------------------------------------------------


def prepare_update(new: CertificateSigningRequest, old: CertificateSigningRequest) -> CertificateSigningRequest:
    """Labels and the like alone."""
    return replace(new, spec=old.spec, status=old.status)


def prepare_approval(new: CertificateSigningRequest, old: CertificateSigningRequest) -> CertificateSigningRequest:
    """The conditions alone."""
    return replace(new, spec=old.spec, status=replace(old.status, conditions=_dated(new, old)))


def prepare_status(new: CertificateSigningRequest, old: CertificateSigningRequest) -> CertificateSigningRequest:
    return replace(new, spec=old.spec, status=replace(new.status, conditions=_dated(new, old)))


def _dated(
    new: CertificateSigningRequest, old: CertificateSigningRequest
) -> tuple[CertificateSigningRequestCondition, ...]:
    """The conditions with the times that the client left out."""
    now = timestamp(datetime.now(UTC))
    since = {(one.type, one.status): one.last_transition_time for one in old.status.conditions}
    return tuple(
        replace(
            one,
            last_update_time=one.last_update_time or now,
            last_transition_time=one.last_transition_time or since.get((one.type, one.status)) or now,
        )
        for one in new.status.conditions
    )


# Columns --------------------------------------------------------------------------------------------------------------


def _duration_cell(request: CertificateSigningRequest, _now: float) -> str:
    seconds = request.spec.expiration_seconds
    return "<none>" if seconds is None else human_duration(seconds)


def _condition_cell(request: CertificateSigningRequest, _now: float) -> str:
    state = next((type_ for type_ in (DENIED, APPROVED) if request.condition(type_)), "Pending")
    failed = ",Failed" if request.condition(FAILED) else ""
    return f"{state}{failed}{',Issued' if request.status.certificate else ''}"


COLUMNS = (
    NAME_COLUMN,
    AGE_COLUMN,
    Column(name="SignerName", description="Who should sign it.", cell=lambda one, _now: one.spec.signer_name),
    Column(name="Requestor", description="Who asked for it.", cell=lambda one, _now: one.spec.username),
    Column(name="RequestedDuration", description="The requested lifetime, if any.", cell=_duration_cell),
    Column(name="Condition", description="Whether it was approved or denied, and issued.", cell=_condition_cell),
)

CERTIFICATE_SIGNING_REQUEST = Kind(
    group=GROUP,
    version=VERSION,
    plural="certificatesigningrequests",
    short_names=("csr",),
    namespaced=False,
    type=CertificateSigningRequest,
    prepare_create=prepare,
    prepare_update=prepare_update,
    validate_create=validate,
    validate_update=validate_update,
    subresources={
        "approval": Subresource(prepare_update=prepare_approval, validate_update=validate_approval),
        "status": Subresource(prepare_update=prepare_status, validate_update=validate_status),
    },
    selectable=lambda one: {"spec.signerName": one.spec.signer_name},
    columns=COLUMNS,
    description="A request for a certificate from a signer.",
)
