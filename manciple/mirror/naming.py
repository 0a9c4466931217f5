"""Whose a request to the cluster is, as its headers say it.

On a laptop there is one user, whose kubeconfig it is: the credential names them (`own_credential`). A service account
that serves several people names them by impersonation (`impersonating`), which the cluster must allow it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from urllib.parse import quote

from manciple.access.mirrored import OWNERS
from manciple.wire.errors import Forbidden
from manciple.wire.identity import AUTHENTICATED, Identity

#: Who is signed in here -> the headers that make a request theirs. Raises: Forbidden for whoever may make none.
Naming = Callable[[Identity], Sequence[tuple[str, str]]]


def own_credential(identity: Identity) -> Sequence[tuple[str, str]]:
    if OWNERS not in identity.groups:
        raise Forbidden(f'User "{identity.name}" does not own this mirror, so they cannot act by its credential')
    return ()


def impersonating(identity: Identity) -> Sequence[tuple[str, str]]:
    """The cluster adds AUTHENTICATED itself. Source: apiserver/pkg/endpoints/filters/impersonation, Kubernetes 1.36."""
    if not identity.name or _breaks_lines(identity.name):
        raise Forbidden("no signed-in user could be named to the cluster")
    headers = [("Impersonate-User", identity.name)]
    if identity.uid:
        headers.append(("Impersonate-Uid", identity.uid))
    headers += [
        ("Impersonate-Group", one) for one in identity.groups if one != AUTHENTICATED and not _breaks_lines(one)
    ]
    for key, values in identity.extra:
        name = f"Impersonate-Extra-{quote(key, safe='')}"
        headers += [(name, value) for value in values if not _breaks_lines(value)]
    return headers


def _breaks_lines(text: str) -> bool:
    return any(not (one.isprintable() or one == "\t") for one in text)
