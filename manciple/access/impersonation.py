"""`kubectl --as`: the request names somebody else in its headers, and everything after authentication takes place in
that identity's name. Only members of `system:masters` may.

Source: apiserver/pkg/endpoints/filters/impersonation.
"""

from __future__ import annotations

from collections.abc import Mapping

from manciple.wire.errors import BadRequest, Forbidden
from manciple.wire.identity import AUTHENTICATED, MASTERS, Identity

USER, GROUP = "impersonate-user", "impersonate-group"


def acting(identity: Identity, headers: Mapping[str, str]) -> Identity:
    """In whose name `identity` makes a request. headers: names in lower case or in any; repeated ones joined by commas.

    Raises: Forbidden for whoever may not act as others; BadRequest for groups without a user.
    """
    user = headers.get(USER, "")
    groups = tuple(group for text in headers.get(GROUP, "").split(",") if (group := text.strip()))
    if not user:
        if groups:
            raise BadRequest(f"requested groups {', '.join(groups)} without impersonating a user")
        return identity
    if MASTERS not in identity.groups:
        raise Forbidden(
            f'users "{user}" is forbidden: User "{identity.name}" cannot impersonate resource "users" in API group '
            f'"" at the cluster scope',
            details={"name": user, "kind": "users"},
        )
    return Identity(user, tuple(dict.fromkeys((*groups, AUTHENTICATED))))
