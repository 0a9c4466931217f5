"""Where people are told: their webhook with its secret, and an e-mail address once they have shown that it is theirs.

A webhook's address and its secret are encrypted in the database: whoever knows the address of a Slack channel can post
there. Pages show the secret once, when it is made, and of the address only its host. An e-mail address is confirmed by
a link that works for a day; until then nothing but that link is sent there, and that seldom.
"""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core import signing

from manciple.access import addresses
from manciple.access.addresses import AddressPolicy
from manciple.notifications.models import NotificationAddress, WebhookFormat
from manciple.store import sealing

#: How a secret begins, as https://www.standardwebhooks.com has it.
SECRET_MARK = "whsec_"  # noqa: S105 - what all secrets begin with
#: How long a link to confirm an address is good, and how often one is sent.
CONFIRM_WITHIN, ASKED_AGAIN = timedelta(days=1), timedelta(minutes=2)
_CONFIRM, _UNSUBSCRIBE = "manciple.notifications.confirm", "manciple.notifications.unsubscribe"


class AddressProblem(Exception):
    """An address that cannot be used; its text is for the person who wrote it."""


def address_of(person: Any) -> NotificationAddress:
    """What is not kept yet is as a new row would be."""
    return NotificationAddress.objects.filter(person=person).first() or NotificationAddress(person=person)


# Webhooks ------------------------------------------------------------------------------------------------------------


class WebhookPolicy(AddressPolicy):
    """Anybody who signs in may name a webhook: nothing but the internet, and what the operator allows, is called."""

    __slots__ = ()

    def refusal(self, address: addresses.Address) -> str:
        refused = super().refusal(address)
        if refused or address.is_global or (self.local and address.is_loopback):
            return refused
        if any(address in network for network in settings.WEBHOOK_NETWORKS):
            return ""
        return "is a private address; an administrator allows its network with MANCIPLE_WEBHOOK_NETWORKS"


def webhook_policy() -> WebhookPolicy:
    return WebhookPolicy(local=settings.LOCAL_CONNECTIONS, forbidden=settings.FORBIDDEN_NETWORKS)


def check_webhook(url: str) -> None:
    """Raises: AddressProblem. That the name resolves is found out when it is called."""
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = 0
    if parts.scheme not in ("https", "http") or not parts.hostname or port == 0:
        raise AddressProblem("Write a whole address, such as https://hooks.example.org/manciple.")
    if parts.username or parts.password:
        raise AddressProblem("Leave out name and password: requests are signed, and whoever hears them checks that.")
    local = settings.LOCAL_CONNECTIONS and _is_loopback(parts.hostname)
    if parts.scheme == "http" and not local:
        raise AddressProblem("The address has to begin with https://.")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def set_webhook(person: Any, url: str, *, format: WebhookFormat = WebhookFormat.JSON, integration_key: str = "") -> str:
    """Store where and in which format to post, "" for nowhere.

    Returns the new secret that requests are signed with; "" where the secret is the same as before, or there is none.
    integration_key: PagerDuty's.
    Raises: AddressProblem.
    """
    known = address_of(person)
    if not url:
        known.webhook, known.webhook_secret, known.webhook_format = "", "", WebhookFormat.JSON
        known.save()
        return ""
    check_webhook(url)
    had_secret = bool(known.webhook_secret) and known.webhook_format == WebhookFormat.JSON
    known.webhook, known.webhook_format = sealing.sealed(url, _place_of_url(known)), format
    secret = ""
    if format == WebhookFormat.PAGERDUTY:
        known.webhook_secret = sealing.sealed(integration_key, _place(known))
    elif format != WebhookFormat.JSON:
        known.webhook_secret = ""
    elif not had_secret:
        secret = new_secret(known)
    known.save()
    return secret


def new_secret(known: NotificationAddress) -> str:
    """Put another secret in its place, to be saved by the caller."""
    text = SECRET_MARK + secrets.token_urlsafe(32)
    known.webhook_secret = sealing.sealed(text, _place(known))
    return text


def secret_of(known: NotificationAddress) -> str:
    """What requests are signed with, or PagerDuty's integration key. Raises: Undecipherable."""
    return sealing.opened(known.webhook_secret, _place(known))


def url_of(known: NotificationAddress) -> str:
    """The webhook's address. Raises: Undecipherable."""
    if not known.webhook.startswith(sealing.MARK):  # written by an older version
        return known.webhook
    return sealing.opened(known.webhook, _place_of_url(known))


def host_of(known: NotificationAddress) -> str:
    """What a page shows of the webhook's address: `https://hooks.slack.com/…`; "" without one."""
    if not known.webhook:
        return ""
    try:
        parts = urlsplit(url_of(known))
    except sealing.Undecipherable:
        return "an unreadable address"
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{addresses.in_url(parts.hostname or '')}{port}/…"


def reseal() -> int:
    """Bring the secrets under the newest key. Returns how many rows changed."""
    outdated = [
        row
        for row in NotificationAddress.objects.exclude(webhook="", webhook_secret="")
        if any(text and not sealing.is_current(text) for text in (row.webhook, row.webhook_secret))
    ]
    for row in outdated:
        if row.webhook_secret:
            row.webhook_secret = sealing.sealed(secret_of(row), _place(row))
        if row.webhook:
            row.webhook = sealing.sealed(url_of(row), _place_of_url(row))
        row.save(update_fields=["webhook", "webhook_secret"])
    return len(outdated)


def _place(known: NotificationAddress) -> str:
    return f"webhook secret of {known.person_id}"


def _place_of_url(known: NotificationAddress) -> str:
    return f"webhook of {known.person_id}"


# E-mail --------------------------------------------------------------------------------------------------------------


def set_email(person: Any, email: str, now: datetime) -> str:
    """Keep the address, "" for none. Returns the token of the link that confirms it, "" where none is needed.

    Raises: AddressProblem where one was sent a moment ago.
    """
    known = address_of(person)
    if known.email == email and known.email_confirmed:
        return ""
    if email and known.email_asked_at is not None and now - known.email_asked_at < ASKED_AGAIN:
        raise AddressProblem("A link was sent a moment ago. Wait two minutes before another one is.")
    known.email, known.email_confirmed = email, False
    known.email_asked_at = now if email else None
    known.save()
    return signing.dumps([known.person_id, email], salt=_CONFIRM) if email else ""


def confirm_email(token: str) -> NotificationAddress | None:
    """None for a link that is too old, or of an address that is not the person's any more."""
    try:
        person, email = signing.loads(token, salt=_CONFIRM, max_age=CONFIRM_WITHIN)
    except (signing.BadSignature, ValueError):
        return None
    known = NotificationAddress.objects.filter(person_id=person, email=email).first()
    if known is not None and not known.email_confirmed:
        known.email_confirmed = True
        known.save(update_fields=["email_confirmed"])
    return known


def unsubscribe_token(rule: int) -> str:
    """Of a link by which whoever reads the mail ends it, signed in or not."""
    return signing.dumps(rule, salt=_UNSUBSCRIBE)


def unsubscribed_rule(token: str) -> int | None:
    """The rule that a link names; None for what is no such link."""
    try:
        rule = signing.loads(token, salt=_UNSUBSCRIBE)
    except signing.BadSignature:
        return None
    return rule if isinstance(rule, int) else None
