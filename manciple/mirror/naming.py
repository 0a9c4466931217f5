"""Whose a request to the cluster is, as its headers say it.

On a laptop there is one user, whose kubeconfig it is: the credential names them (`own_credential`). In the cluster the
mirror's service account names whoever is signed in by impersonation (`impersonating`), which the cluster must allow it
(`deploy/kubernetes/mirror-act`; `not_impersonated` says whether it does). Who that is comes from a token that the
cluster or its provider has just vouched for (`manciple.access.cluster_users`), never from the request: an identity of
any other origin is refused here.

Everything that was vouched for is sent, or nothing: a group that is left out may be one that the cluster refuses. So
whoever has a name, group or value that no header carries unchanged cannot act. Servers strip blanks from both ends of a
header, by which " root" would become "root".
Source: apiserver/pkg/endpoints/filters/impersonation, Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final
from urllib.parse import quote

import msgspec

from manciple.access.mirrored import OWNERS
from manciple.mirror.client import Remote
from manciple.mirror.failures import RemoteFailure
from manciple.wire.errors import Forbidden
from manciple.wire.identity import AUTHENTICATED, Identity

#: Of what an identity consists besides extra values: (API group, resource).
PARTS: Final = (
    *(("", one) for one in ("users", "groups", "serviceaccounts")),
    ("authentication.k8s.io", "uids"),
)
#: The extra keys of service accounts' tokens, each a resource below `userextras`.
ACCOUNT_EXTRAS: Final = tuple(
    f"authentication.kubernetes.io/{one}" for one in ("credential-id", "node-name", "node-uid", "pod-name", "pod-uid")
)
_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
#: Seconds that a question may take.
PATIENCE: Final = 5.0

#: Who is signed in here -> the headers that make a request theirs. Raises: Forbidden for whoever may make none.
Naming = Callable[[Identity], Sequence[tuple[str, str]]]


def own_credential(identity: Identity) -> Sequence[tuple[str, str]]:
    if OWNERS not in identity.groups:
        raise Forbidden(f'User "{identity.name}" does not own this mirror, so they cannot act by its credential')
    return ()


def impersonating(identity: Identity) -> Sequence[tuple[str, str]]:
    """The cluster adds AUTHENTICATED itself."""
    if not identity.remote or AUTHENTICATED not in identity.groups:
        raise Forbidden(f'User "{identity.name}" is not signed in by the cluster, so nobody acts in their name')
    headers = list(_headers(identity))
    for name, value in headers:
        if not value or not value.isprintable() or value != value.strip():
            raise Forbidden(f"the header {name} cannot carry {value!r}, so nobody acts in the name of that user")
    return headers


def _headers(identity: Identity) -> Iterator[tuple[str, str]]:
    yield "Impersonate-User", identity.name
    if identity.uid:
        yield "Impersonate-Uid", identity.uid
    for group in identity.groups:
        if group != AUTHENTICATED:
            yield "Impersonate-Group", group
    for key, values in identity.extra:
        for value in values:
            yield f"Impersonate-Extra-{_escaped(key)}", value


def _escaped(key: str) -> str:
    """Servers put the name of a header into lower case, and then decode it."""
    return "".join(f"%{ord(one):02X}" if "A" <= one <= "Z" else quote(one, safe="") for one in key)


# Whether the mirror may do it -----------------------------------------------------------------------------------------


class _Status(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _Status


def not_impersonated(remote: Remote) -> Sequence[str]:
    """The parts of an identity that the mirror's account may not impersonate freely; a role may still name some values.

    Raises: RemoteFailure.
    """
    wanted = [(group, resource, "") for group, resource in PARTS]
    wanted += [("authentication.k8s.io", "userextras", key) for key in ACCOUNT_EXTRAS]
    return [
        f"{resource}/{below}" if below else resource
        for group, resource, below in wanted
        if not _may(remote, {"verb": "impersonate", "group": group, "resource": resource, "subresource": below})
    ]


def _may(remote: Remote, attributes: Mapping[str, str]) -> bool:
    """Raises: RemoteFailure."""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    try:
        answer = msgspec.json.decode(
            remote.review(_REVIEWS, msgspec.json.encode(review), timeout=PATIENCE), type=_Review
        )
    except msgspec.MsgspecError as unreadable:
        raise RemoteFailure("the cluster answered something else than a review") from unreadable
    return answer.status.allowed
