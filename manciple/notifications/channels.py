"""The ways out: a webhook, signed as https://www.standardwebhooks.com says, and e-mail by Django's settings.

A webhook is somebody's word, and this process stands where they do not: its address is resolved once and judged
(`addresses.WebhookPolicy`), no redirect is followed and no proxy asked, and of the answer nothing but its status is
read, so that whoever names an address learns nothing of what stands there.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from email.utils import parseaddr
from urllib.parse import urlsplit

import orjson
from django.conf import settings
from django.core.mail import EmailMessage
from django.core.mail.backends.base import BaseEmailBackend

from manciple.access import addresses as network
from manciple.access.addresses import AddressRefused
from manciple.notifications import addresses
from manciple.notifications.models import NotificationAddress
from manciple.store.sealing import Undecipherable

#: Seconds for which a receiver may take.
PATIENCE = 10.0
_OK = range(200, 300)
_PORTS = {"https": 443, "http": 80}


class DeliveryFailed(Exception):
    """It was not taken; the text says why, for the person. hopeless: trying again is no use."""

    def __init__(self, why: str, *, hopeless: bool = False) -> None:
        super().__init__(why)
        self.hopeless = hopeless


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What goes out. id: the same at each attempt; unsubscribe: a link that ends the rule's mails, "" of a test."""

    id: str
    happening: str
    title: str
    text: str
    url: str
    at: datetime
    unsubscribe: str = ""

    def as_json(self) -> bytes:
        return orjson.dumps(
            {
                "type": f"manciple.{self.happening}",
                "timestamp": self.at,
                "data": {"title": self.title, "text": self.text, "url": self.url},
            },
            option=orjson.OPT_UTC_Z,
        )


# Webhook -------------------------------------------------------------------------------------------------------------


def signed_headers(secret: str, message_id: str, moment: int, body: bytes) -> dict[str, str]:
    """moment: POSIX seconds; whoever hears the request refuses what is signed long ago."""
    key = secret.removeprefix(addresses.SECRET_MARK)
    key_bytes = base64.urlsafe_b64decode(key + "=" * (-len(key) % 4))
    signed = f"{message_id}.{moment}.".encode() + body
    signature = base64.b64encode(hmac.new(key_bytes, signed, hashlib.sha256).digest()).decode()
    return {"webhook-id": message_id, "webhook-timestamp": str(moment), "webhook-signature": f"v1,{signature}"}


def post(known: NotificationAddress, message: Message, *, now: datetime) -> None:
    """Raises: DeliveryFailed."""
    if not known.webhook:
        raise DeliveryFailed("you have no webhook any more", hopeless=True)
    body = message.as_json()
    try:
        headers = signed_headers(addresses.secret_of(known), message.id, int(now.timestamp()), body)
    except Undecipherable as error:
        raise DeliveryFailed("its secret cannot be read; make a new one", hopeless=True) from error
    status = _posted(known.webhook, body, headers)
    if status not in _OK:
        raise DeliveryFailed(f"the webhook answered with status {status}")


def _posted(url: str, body: bytes, headers: Mapping[str, str]) -> int:
    """The status of the answer."""
    import httpx  # noqa: PLC0415 - takes 8 MiB; few processes need it

    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
    sent = {**headers, "Host": parts.netloc, "Content-Type": "application/json", "User-Agent": "Manciple"}
    query = f"?{parts.query}" if parts.query else ""
    failure: Exception | None = None
    try:
        found = network.resolve(host, port, policy=addresses.webhook_policy())
        with httpx.Client(trust_env=False, timeout=PATIENCE) as client:
            for address in found:
                there = f"{parts.scheme}://{network.in_url(address)}:{port}{parts.path or '/'}{query}"
                request = client.stream("POST", there, content=body, headers=sent, extensions={"sni_hostname": host})
                try:
                    with request as answer:
                        return answer.status_code
                except httpx.ConnectError as error:
                    failure = error
    except (httpx.HTTPError, OSError, AddressRefused) as error:
        failure = error
    raise DeliveryFailed(f"the webhook cannot be reached: {failure or 'no address'}")


# E-mail --------------------------------------------------------------------------------------------------------------


def mails() -> bool:
    """Whether this installation sends e-mail."""
    return bool(settings.EMAIL_HOST)


def mail(known: NotificationAddress, message: Message, *, connection: BaseEmailBackend | None = None) -> None:
    """Raises: DeliveryFailed."""
    if not known.email or not known.email_confirmed:
        raise DeliveryFailed("you have no confirmed e-mail address", hopeless=True)
    text = f"{message.text}\n\n{message.url}\n"
    headers: dict[str, str] = {}
    if message.unsubscribe:
        text += f"\n-- \nNo more of these mails: {message.unsubscribe}\n"
        headers = {
            "List-Unsubscribe": f"<{message.unsubscribe}>",
            "List-Unsubscribe-Post": "List-Unsubscribe=One-Click",
        }
    _send(known.email, message.title, text, message_id=message.id, headers=headers, connection=connection)


def mail_confirmation(email: str, url: str) -> None:
    """Raises: DeliveryFailed."""
    text = (
        f"Somebody wants notifications from Manciple to be sent to this address. If that is you, follow this link "
        f"within a day:\n\n{url}\n\nIf not, nothing more is sent here.\n"
    )
    _send(email, "Confirm your address for notifications from Manciple", text)


def _send(
    to: str,
    subject: str,
    text: str,
    *,
    message_id: str = "",
    headers: Mapping[str, str] | None = None,
    connection: BaseEmailBackend | None = None,
) -> None:
    if not mails():
        raise DeliveryFailed("this installation sends no e-mail (MANCIPLE_MAIL_URL)", hopeless=True)
    domain = parseaddr(settings.DEFAULT_FROM_EMAIL)[1].rpartition("@")[2]
    given = {**(headers or {}), **({"Message-ID": f"<{message_id}@{domain}>"} if message_id else {})}
    line = " ".join(subject.split())
    letter = EmailMessage(f"[Manciple] {line}", text, to=[to], headers=given, connection=connection)
    try:
        letter.send()
    except OSError as error:  # smtplib's errors too
        raise DeliveryFailed(f"the mail was not taken: {error}") from error
