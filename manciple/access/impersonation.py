"""`kubectl --as`: the request names somebody else in its headers, and everything after authentication takes place in
that identity's name.

Whoever does so needs the right to `impersonate` each part of it: the user or the service account, each group, the uid,
and each value of what else its credential would say. A service account for which no groups are named belongs to those
of its kind and of its namespace, and whoever is not anonymous to `system:authenticated`.
Source: apiserver/pkg/endpoints/filters/impersonation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from urllib.parse import unquote

from manciple.access import authorization
from manciple.access.attributes import Attributes
from manciple.wire.errors import BadRequest
from manciple.wire.identity import (
    ANONYMOUS_USER,
    AUTHENTICATED,
    UNAUTHENTICATED,
    Identity,
    account_groups,
    account_of,
)

USER, GROUP, UID, EXTRA = "impersonate-user", "impersonate-group", "impersonate-uid", "impersonate-extra-"
_AUTHENTICATION = "authentication.k8s.io"


def acting(identity: Identity, headers: Mapping[str, str]) -> Identity:
    """In whose name `identity` makes a request. headers: names in lower case or in any; repeated ones joined by commas.

    Raises: Forbidden for whoever may not act as them; BadRequest for groups or a uid without a user.
    """
    user = headers.get(USER, "")
    if not user:
        for name in (GROUP, UID):
            if given := headers.get(name, ""):
                raise BadRequest(f"requested {name.removeprefix('impersonate-')} {given} without impersonating a user")
        return identity
    named = _named(user, headers)
    for wanted in _parts(named):
        authorization.demand(identity, wanted)
    return _completed(named)


def _named(user: str, headers: Mapping[str, str]) -> Identity:
    """Whom the headers name, as they name them."""
    extra = {
        unquote(name[len(EXTRA) :].lower()): _listed(text)
        for name, text in headers.items()
        if name.lower().startswith(EXTRA)
    }
    return Identity(user, _listed(headers.get(GROUP, "")), headers.get(UID, ""), tuple(extra.items()))


def _listed(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part for one in text.split(",") if (part := one.strip())))


def _parts(named: Identity) -> Iterator[Attributes]:
    """Each right that it takes to act as `named`."""
    account = account_of(named.name)
    if account:
        namespace, name = account
        yield Attributes(verb="impersonate", version="v1", resource="serviceaccounts", namespace=namespace, name=name)
    else:
        yield Attributes(verb="impersonate", version="v1", resource="users", name=named.name)
    for group in named.groups:
        yield Attributes(verb="impersonate", version="v1", resource="groups", name=group)
    if named.uid:
        yield Attributes(verb="impersonate", group=_AUTHENTICATION, version="v1", resource="uids", name=named.uid)
    for key, values in named.extra:
        for value in values:
            yield Attributes(
                verb="impersonate",
                group=_AUTHENTICATION,
                version="v1",
                resource="userextras",
                subresource=key,
                name=value,
            )


def _completed(named: Identity) -> Identity:
    """With the groups that the identity has without anybody naming them."""
    account = account_of(named.name)
    groups = named.groups or (account_groups(account[0]) if account else ())
    common = UNAUTHENTICATED if named.name == ANONYMOUS_USER else AUTHENTICATED
    if common not in groups and UNAUTHENTICATED not in groups:
        groups = (*groups, common)
    return Identity(named.name, groups, named.uid, named.extra)
