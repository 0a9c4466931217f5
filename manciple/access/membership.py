"""What administrators decide about a person: their groups, whether they administer, whether they may come in.

Each counts at once: for the pages, for the person's tokens, and for what is open (see `people.watch_changes`). Somebody
who can administer is always left.

Closing an account ends its credentials for good, however it is closed: opening it again brings back none of them, and
nor does an account that is created under the name of a deleted one.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.db import transaction
from django.db.models.signals import post_save, pre_delete
from django.utils import timezone

from manciple.access import sign_ins
from manciple.access.authentication import chain, tokens
from manciple.access.models import AccountClosing, CertificateRevocation, SignIn
from manciple.access.people import RESERVED

#: Administrators that are named to who needs one, at most.
NAMED = 5


def administrators() -> list[str]:
    """Some people who could allow what somebody may not, by name."""
    found = get_user_model()._default_manager.filter(is_staff=True, is_active=True).order_by("username")
    return list(found.values_list("username", flat=True)[:NAMED])


class ChangeRefused(Exception):
    """Nothing was changed. Its text is for who asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What a person is to be. active: whether they may come in."""

    groups: Collection[str]
    administers: bool
    active: bool


def watch_closings() -> None:
    """From now on, closing or deleting an account ends its credentials, whatever code does it."""
    user: Any = get_user_model()
    post_save.connect(_note_save, sender=user)
    pre_delete.connect(_note_deletion, sender=user)


def _note_save(instance: Any, created: bool, **_: Any) -> None:
    if not instance.is_active and not created:
        end_credentials(instance)


def _note_deletion(instance: Any, **_: Any) -> None:
    end_credentials(instance)


@transaction.atomic
def end_credentials(person: Any) -> None:
    """End everything with which somebody is `person`: tokens, sessions, invitations, client certificates.

    A token counts that was issued to the name before there was an account: who made it may still have it.
    """
    now = timezone.now()
    tokens.of_person(person).delete()
    sign_ins.end(SignIn.objects.filter(person=person))
    AccountClosing.objects.update_or_create(person=person, defaults={"at": now})
    CertificateRevocation.objects.update_or_create(name=person.get_username(), defaults={"before": now})
    chain.advance_epoch()


def change(person: Any, standing: Standing, *, by: str) -> None:
    """by: the name of who changes it. Raises: ChangeRefused."""
    if person.get_username() == by and not (standing.active and standing.administers) and person.is_staff:
        raise ChangeRefused(
            "You cannot close your own account or give up being an administrator. Ask another administrator."
        )
    reserved = sorted(name for name in standing.groups if name.startswith(RESERVED))
    if reserved:
        raise ChangeRefused(f'Groups that begin with "{RESERVED}" are the system\'s: nobody is put into {reserved[0]}.')
    with transaction.atomic():
        _write(person, standing)
        if not get_user_model()._default_manager.filter(is_staff=True, is_active=True).exists():
            raise ChangeRefused("This is the last administrator. Appoint another one first.")
        chain.advance_epoch()
    chain.settle_epoch()


def _write(person: Any, standing: Standing) -> None:
    """The administrators are locked first, so that two of them cannot put each other out."""
    reopened = standing.active and not person.is_active
    administrators = get_user_model()._default_manager.select_for_update().filter(is_staff=True).order_by("pk")
    list(administrators.values_list("pk", flat=True))
    person.is_staff = person.is_superuser = standing.administers
    person.is_active = standing.active
    person.save(update_fields=["is_staff", "is_superuser", "is_active"])
    if reopened:  # whatever an account kept that an older version closed, or that began while it was being closed
        end_credentials(person)
    person.groups.set([Group.objects.get_or_create(name=name)[0] for name in sorted(standing.groups)])
