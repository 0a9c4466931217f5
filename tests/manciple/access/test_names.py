"""Names of new people: none is read as somebody else's."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from manciple.access.invitations import NameRefused, invite

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("name", ["Admin", "ADMIN", "\uff21dmin", "\u0430dmin", "adm\u03b9n", "GROUPIE", "stra\u00dfe"])
def test_a_name_that_is_read_as_somebody_elses_is_refused(name: str) -> None:
    for known in ("admin", "groupie", "STRASSE", "\u0438\u0432\u0430\u043d"):
        invite(known)
    with pytest.raises(NameRefused):
        invite(name)
    assert User.objects.count() == 4
    invite("\u0438\u0432\u0430\u043d-2")  # one script and digits
    invite("zo\u00eb")


def test_who_has_such_a_name_already_keeps_it() -> None:
    for name in ("admin", "Admin", "\u0430dmin"):
        User.objects.create_user(name)
        assert not invite(name).new
