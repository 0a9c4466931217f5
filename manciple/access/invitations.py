"""Links by which a person sets a password: at the first sign-in, and when it is forgotten.

A link is good once and for a day (`MANCIPLE_INVITATION_HOURS`): it is signed over the password as it is, the last
sign-in and the last closing of the account, so using it, signing in, setting a password in any other way, or closing
the account ends it. After a backup was restored all links end (`end_all`), since it undoes what had ended some of them.
No link is stored. A newer link does not end an older one; whichever is used first ends both.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.contrib.auth.tokens import PasswordResetTokenGenerator
from django.core.exceptions import ValidationError
from django.db import transaction
from django.urls import reverse
from django.utils import timezone
from django.utils.encoding import force_bytes
from django.utils.http import urlsafe_base64_encode

from manciple.access.authentication import tokens
from manciple.access.models import AccountClosing
from manciple.access.people import RESERVED, namesake

#: The URL's name of the page that a link leads to.
PAGE = "welcome"


class NameRefused(Exception):
    """Nobody can be invited under that name, or into that group. Its text is for who asked."""


class GroupRefused(NameRefused):
    """It is the group that is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Invitation:
    """path: of the link, below the dashboard's address. new: the person was made for it.

    named_tokens: that were issued to the name with groups of their own; whoever has one acts under the person's name.
    """

    person: Any
    path: str
    new: bool
    named_tokens: int

    @property
    def warning(self) -> str:
        """What an administrator should know of the name; "" where there is nothing."""
        if not (count := self.named_tokens):
            return ""
        issued, one, own = ("1 token was", "it", "its") if count == 1 else (f"{count} tokens were", "one", "their")
        name = self.person.get_username()
        return (
            f"{issued} issued to the name {name}, with groups of {own} own: who has {one} acts as {name}. See /people."
        )


class _LinkTokens(PasswordResetTokenGenerator):
    """Django's, for people who may sign in. Closing the account ends every link, for good."""

    key_salt = "manciple.access.invitations"

    def _make_hash_value(self, user: Any, timestamp: int) -> str:
        closed = AccountClosing.objects.filter(person=user).values_list("at", flat=True).first()
        return f"{super()._make_hash_value(user, timestamp)}{closed.isoformat() if closed else ''}"

    def check_token(self, user: Any, token: str | None) -> bool:
        return bool(user is not None and user.is_active and super().check_token(user, token))


LINK_TOKENS = _LinkTokens()


@transaction.atomic
def invite(name: str, *, groups: Collection[str] = (), administers: bool | None = None) -> Invitation:
    """A link for `name`, who is made where they are new. groups: that they are added to.

    administers: None leaves that as it is. Raises: NameRefused.
    """
    model: Any = get_user_model()
    name = model.normalize_username(name)  # as it is stored: in another script it is the same name
    person = model.objects.filter(username=name).first()
    new = person is None
    if person is None:
        person = _make(name)
    if administers is not None and administers != person.is_staff:
        person.is_staff = person.is_superuser = administers
        person.save(update_fields=["is_staff", "is_superuser"])
    for group in groups:
        if group.startswith(RESERVED):
            raise GroupRefused(f'Groups that begin with "{RESERVED}" are the system\'s: nobody is added to {group}.')
        person.groups.add(Group.objects.get_or_create(name=group)[0])
    return Invitation(person=person, path=link_of(person), new=new, named_tokens=tokens.named(name).count())


def end_all() -> None:
    """From now on no link works that was made before."""
    now = timezone.now()
    people = get_user_model()._default_manager.values_list("pk", flat=True)
    AccountClosing.objects.bulk_create(
        (AccountClosing(person_id=person, at=now) for person in people),
        update_conflicts=True,
        unique_fields=["person"],
        update_fields=["at"],
        batch_size=500,
    )


def _make(name: str) -> Any:
    """Raises: NameRefused."""
    model: Any = get_user_model()
    try:
        model._meta.get_field("username").clean(name, None)
    except ValidationError as error:
        raise NameRefused(f"{name!r} is not a valid name: {' '.join(map(str.strip, error.messages))}") from error
    if len(scripts := _scripts(name)) > 1:
        raise NameRefused(f"{name!r} has letters of several scripts that look alike: {', '.join(scripts)}. Use one.")
    if known := namesake(name):
        raise NameRefused(f"{name!r} is too much like {known}, who has an account already. Choose another name.")
    return model.objects.create_user(name)  # without a password: only the link lets them in


def _scripts(name: str) -> list[str]:
    """Those of the letters that pass for one another: a Cyrillic \u0430 is read as a Latin a."""
    found = {unicodedata.name(one, "").partition(" ")[0] for one in name}
    return sorted(found & {"LATIN", "CYRILLIC", "GREEK"})


def link_of(person: Any) -> str:
    """The path of a new link for a person who exists."""
    uid = urlsafe_base64_encode(force_bytes(person.pk))
    return reverse(PAGE, kwargs={"uidb64": uid, "token": LINK_TOKENS.make_token(person)})
