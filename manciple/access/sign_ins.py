"""Where people are signed in: a row beside each session, so that its owner can see and end it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.signals import user_logged_in, user_logged_out
from django.contrib.sessions.models import Session
from django.http import HttpRequest
from django.utils import timezone

from manciple.access.authentication import chain
from manciple.access.models import SignIn
from manciple.access.people import address_of, stored_key

#: Sessions of one person, at most: signing in once more ends the oldest.
MOST_SESSIONS = 50
_AGENT_LENGTH = SignIn._meta.get_field("agent").max_length


def watch() -> None:
    """From now on, note who signs in, and where."""
    user_logged_in.connect(_note)
    user_logged_out.connect(_forget)


def _note(request: HttpRequest, user: Any, **_: Any) -> None:
    if request.session.session_key is None:
        request.session.save()
    request.session.set_expiry(None)  # a sign-in that was only begun lasts for minutes
    SignIn.objects.update_or_create(
        session_key=stored_key(request.session.session_key or ""),
        defaults={
            "person": user,
            "created": timezone.now(),
            "address": address_of(request),
            "agent": request.headers.get("User-Agent", "")[:_AGENT_LENGTH],
        },
    )
    end(SignIn.objects.filter(person=user).order_by("-created")[MOST_SESSIONS:])


def _forget(request: HttpRequest, **_: Any) -> None:
    """Called before the session is emptied."""
    if key := request.session.session_key:
        SignIn.objects.filter(session_key=stored_key(key)).delete()
        chain.advance_epoch()  # for the pages that are open with this session


def of_person(person: Any) -> list[SignIn]:
    """Where they are signed in, the newest first."""
    since = timezone.now() - timedelta(seconds=settings.SESSION_COOKIE_AGE)
    return list(SignIn.objects.filter(person=person, created__gt=since).order_by("-created"))


def end(found: Iterable[SignIn]) -> int:
    """End these sessions, and with them what is open in them; returns how many."""
    ended = list(found)
    Session.objects.filter(session_key__in=[one.session_key for one in ended]).delete()
    SignIn.objects.filter(pk__in=[one.pk for one in ended]).delete()
    if ended:
        chain.advance_epoch()
    return len(ended)


def end_others(person: Any, *, but: str | None) -> int:
    """End all sessions of a person, except the one with this key."""
    return end(SignIn.objects.filter(person=person).exclude(session_key=stored_key(but or "")))


def end_all() -> int:
    """Sign everybody out; returns how many sessions ended, those of nobody included."""
    ended = Session.objects.all().delete()[0]
    SignIn.objects.all().delete()
    chain.advance_epoch()
    return ended


def follow(before: str | None, after: str) -> None:
    """The session got another key."""
    SignIn.objects.filter(session_key=stored_key(before or "")).update(session_key=stored_key(after))


def prune(now: datetime) -> int:
    """Forget expired sessions; returns how many."""
    SignIn.objects.filter(created__lt=now - timedelta(seconds=settings.SESSION_COOKIE_AGE)).delete()
    return Session.objects.filter(expire_date__lt=now).delete()[0]
