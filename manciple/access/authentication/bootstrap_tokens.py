"""Bootstrap tokens: with one, a machine asks for the certificate of a node, and nothing else.

    abcdef.0123456789abcdef        an id that may be shown, and a secret of 82 random bits

They live for hours. One may be made for a single node, then no other comes in by it. Only the SHA-256 of the secret is
stored. Who shows one is `system:bootstrap:ID` in the group `system:bootstrappers`; what that may do is the roles' to
say, and which requests are granted the certificate controller's.
Source: plugin/pkg/auth/authenticator/token/bootstrap, cluster-bootstrap/token/api of Kubernetes 1.36.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import string
from collections.abc import Sequence
from datetime import timedelta

from django.db.models import QuerySet
from django.utils import timezone

from manciple.access.authentication.chain import API_AUDIENCE, Authenticated
from manciple.access.models import BootstrapToken
from manciple.wire.identity import AUTHENTICATED, BOOTSTRAPPERS, Identity, check_node_name

USER_PREFIX = "system:bootstrap:"
#: What the identity says of the only node for which its token was made.
NODE_NAME = "manciple.dev/bootstrap-node"

_FORM = re.compile(r"([a-z0-9]{6})\.([a-z0-9]{16})")
_ALPHABET = string.digits + string.ascii_lowercase


class BootstrapTokens:
    """The authenticator of these tokens. Shown a few times in the life of a node, so nothing is remembered."""

    def authenticate(self, token: str, audiences: Sequence[str], address: str) -> Authenticated | None:  # noqa: ARG002
        identity = identify(token) if API_AUDIENCE in audiences else None
        return Authenticated(identity) if identity else None

    def remembered(self, token: str) -> Identity | None:  # noqa: ARG002
        return None


def issue(*, lifetime: timedelta, node: str = "", description: str = "", creator: str = "") -> str:
    """A new token, shown once. node: the only one that may join with it, "" for any.

    Raises: ValueError for an invalid node name.
    """
    if node:
        check_node_name(node)
    key, secret = _drawn(6), _drawn(16)
    BootstrapToken.objects.create(
        key=key,
        digest=_digest(secret),
        node=node,
        description=description,
        creator=creator,
        created=timezone.now(),
        expires=timezone.now() + lifetime,
    )
    return f"{key}.{secret}"


def identify(token: str) -> Identity | None:
    """Whose token this is; None for one that is unknown, expired or revoked."""
    form = _FORM.fullmatch(token)
    row = live().filter(key=form[1]).first() if form else None
    if form is None or row is None or not secrets.compare_digest(row.digest, _digest(form[2])):
        return None
    extra = ((NODE_NAME, (row.node,)),) if row.node else ()
    return Identity(f"{USER_PREFIX}{row.key}", (BOOTSTRAPPERS, AUTHENTICATED), extra=extra)


def live() -> QuerySet[BootstrapToken]:
    return BootstrapToken.objects.filter(expires__gt=timezone.now())


def revoke(key: str) -> bool:
    """End the token with this id; False where there is none."""
    return bool(BootstrapToken.objects.filter(key=key).delete()[0])


def _drawn(length: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
