"""People whom somebody else vouches for: an identity provider, or a proxy in front of the pages.

Whoever a provider means by the same issuer and subject is the same person here, under whatever name. A name alone is no
proof: who has an account of that name already is not taken for the one whom a provider calls so, so nobody comes into
`admin` by calling themselves that elsewhere. Groups follow what is told at each sign-in; those that an administrator
gave beside the provider's prefix stay, and so do `manciple:` groups, which are nobody else's to give.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.db import transaction

from manciple.access.models import OutsideAccount
from manciple.access.people import LOCAL, namesake
from manciple.wire.identity import AUTHENTICATED, MASTERS, Identity

#: As many characters as the name of a person or of a group may have.
LONGEST = 150


class PersonRefused(Exception):
    """Who was vouched for does not come in. Its text says why, and what to do."""


@transaction.atomic
def person_of_provider(issuer: str, subject: str, identity: Identity) -> Any:
    """The person whom a provider means; made at their first sign-in. Raises: PersonRefused."""
    link = OutsideAccount.objects.select_related("person").filter(issuer=issuer, subject=subject).first()
    if link is None:
        link = OutsideAccount.objects.create(issuer=issuer, subject=subject, person=_new(identity.name))
    person: Any = link.person
    if person.get_username() != identity.name:
        _check_free(identity.name, but=person)
        person.username = identity.name
        person.save(update_fields=["username"])
    return _admitted(person, identity, prefix=settings.OIDC_GROUPS_PREFIX, told=bool(settings.OIDC_GROUPS_CLAIM))


@transaction.atomic
def person_of_proxy(identity: Identity) -> Any:
    """The person of that name, whoever made the account: the proxy is trusted to know. Raises: PersonRefused."""
    person = get_user_model().objects.filter(username=identity.name).first() or _new(identity.name)
    return _admitted(person, identity, prefix="", told=bool(settings.PROXY_GROUP_HEADER))


def _new(name: str) -> Any:
    """Raises: PersonRefused."""
    _check_free(name)
    if len(name) > LONGEST:
        raise PersonRefused(f"The name {name[:40]}… is longer than {LONGEST} characters.")
    model: Any = get_user_model()
    return model.objects.create_user(name)  # without a password


def _check_free(name: str, *, but: Any = None) -> None:
    """Raises: PersonRefused for the name of somebody but `but`, in whatever case."""
    if known := namesake(name, but=but):
        raise PersonRefused(
            f"There is an account {known} already, which is not known to be yours. An administrator can rename or "
            f"remove it, or set a prefix for the provider's names."
        )


def _admitted(person: Any, identity: Identity, *, prefix: str, told: bool) -> Any:
    """With the groups that were told. Raises: PersonRefused for one who may not sign in."""
    if not person.is_active:
        raise PersonRefused(f"The account {person.get_username()} is closed. An administrator can open it again.")
    if told:
        _follow(person, [one for one in identity.groups if one not in (MASTERS, AUTHENTICATED)], prefix=prefix)
    return person


def _follow(person: Any, groups: Collection[str], *, prefix: str) -> None:
    wanted = {one for one in groups if len(one) <= LONGEST}
    current = {group.name: group for group in person.groups.all() if not group.name.startswith(LOCAL)}
    person.groups.remove(*(group for name, group in current.items() if name.startswith(prefix) and name not in wanted))
    person.groups.add(*(Group.objects.get_or_create(name=name)[0] for name in sorted(wanted - set(current))))
    administers = settings.ADMINISTRATORS_GROUP
    if administers and (administers in wanted) != person.is_staff:
        person.is_staff = person.is_superuser = administers in wanted
        person.save(update_fields=["is_staff", "is_superuser"])
