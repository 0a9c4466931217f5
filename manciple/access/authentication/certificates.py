"""Client certificates: the common name is the user, the organizations are the groups.

The TLS listener asks for one and takes only what our authority signed (`manciple.api.certificates`); here it is looked
at anew with each request, because a connection may outlive its certificate. It must be meant for clients: what a server
shows, our own too, signs nobody in.

A certificate cannot be taken back, so those of nodes live for days and are renewed; and all that were issued to a name
up to a moment can be ended (`revoke`), which holds in every process when it returns, as for tokens.
Source: apiserver/pkg/authentication/request/x509/x509.go.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from django.db import transaction
from django.utils import timezone

from manciple.access.authentication import epoch
from manciple.access.authentication.chain import Credentials
from manciple.access.models import CertificateRevocation
from manciple.access.people import closed_names_if_known, is_closed
from manciple.per_process import PerProcess
from manciple.wire.identity import AUTHENTICATED, Identity

#: By how much the start of a certificate that we sign lies before its issue: a client's clock may be behind.
BACKDATED = timedelta(minutes=5)
#: What an identity says of its credential (upstream: user.CredentialIDKey).
CREDENTIAL_ID = "authentication.kubernetes.io/credential-id"


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """What a certificate says. begins, ends: in seconds since 1970."""

    identity: Identity
    begins: float
    ends: float

    @property
    def issued(self) -> float:
        return self.begins + BACKDATED.total_seconds()


@lru_cache(maxsize=4096)
def read(certificate: bytes) -> ClientCertificate | None:
    """What a certificate (DER) says; None for one that names nobody, or is not meant for clients."""
    try:
        parsed = x509.load_der_x509_certificate(certificate)
        usages = parsed.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except (ValueError, x509.ExtensionNotFound):
        return None
    names = _values(parsed.subject, NameOID.COMMON_NAME)
    if ExtendedKeyUsageOID.CLIENT_AUTH not in usages or len(names) != 1 or not names[0]:
        return None
    groups = tuple(dict.fromkeys((*_values(parsed.subject, NameOID.ORGANIZATION_NAME), AUTHENTICATED)))
    credential = f"X509SHA256={hashlib.sha256(certificate).hexdigest()}"
    return ClientCertificate(
        Identity(names[0], groups, extra=((CREDENTIAL_ID, (credential,)),)),
        parsed.not_valid_before_utc.timestamp(),
        parsed.not_valid_after_utc.timestamp(),
    )


def _values(name: x509.Name, oid: x509.ObjectIdentifier) -> tuple[str, ...]:
    return tuple(str(one.value) for one in name.get_attributes_for_oid(oid))


class ClientCertificates:
    """The authenticator of these."""

    def shows(self, credentials: Credentials) -> bool:
        return credentials.certificate is not None

    def authenticate(self, credentials: Credentials) -> Identity | None:
        found = _current(credentials)
        if found is None or _is_revoked(found, _revocations(epoch.current())) or is_closed(found.identity.name):
            return None
        return found.identity

    def remembered(self, credentials: Credentials) -> Identity | None:
        found, revoked, closed = _current(credentials), _revocations_if_known(epoch.known()), closed_names_if_known()
        if found is None or revoked is None or closed is None:
            return None
        return None if _is_revoked(found, revoked) or found.identity.name in closed else found.identity


def _current(credentials: Credentials) -> ClientCertificate | None:
    """None without a certificate that holds now."""
    found = read(credentials.certificate) if credentials.certificate else None
    return found if found is not None and found.begins <= time.time() <= found.ends else None


# Revocations ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Revocations:
    """The revocations as of one epoch. before: name -> up to when, in seconds since 1970."""

    epoch: int = -1
    before: Mapping[str, float] = field(default_factory=dict)


_last = PerProcess(_Revocations)


def revoke(name: str, *, now: datetime | None = None) -> None:
    """End every certificate that was issued to `name` up to now."""
    with transaction.atomic():
        CertificateRevocation.objects.update_or_create(name=name, defaults={"before": now or timezone.now()})
        epoch.advance()
    epoch.settle()


def _revocations(current: int) -> Mapping[str, float]:
    known = _revocations_if_known(current)
    if known is not None:
        return known
    before = {one.name: one.before.timestamp() for one in CertificateRevocation.objects.all()}
    _last.value = _Revocations(current, before)
    return before


def _revocations_if_known(current: int | None) -> Mapping[str, float] | None:
    last = _last.value
    return last.before if current == last.epoch else None


def _is_revoked(found: ClientCertificate, before: Mapping[str, float]) -> bool:
    return found.issued <= before.get(found.identity.name, 0.0)
