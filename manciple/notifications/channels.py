"""The ways out: a webhook in its receiver's format (`webhook_formats`), and e-mail by Django's settings.

A webhook's address is chosen by a person, and this process can reach what that person cannot: the address is resolved
once and checked (`addresses.WebhookPolicy`), no redirect is followed, no proxy is used, and of the answer only its
status is read. An attempt ends after `PATIENCE` seconds, whatever the receiver or its name server does.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from email.utils import parseaddr
from functools import partial
from urllib.parse import urlsplit

from django.conf import settings
from django.core.mail import EmailMessage
from django.core.mail.backends.base import BaseEmailBackend

from manciple.access import addresses as network
from manciple.access.addresses import AddressRefused
from manciple.notifications import addresses, webhook_formats
from manciple.notifications.models import NotificationAddress, WebhookFormat
from manciple.notifications.webhook_formats import Message, Post
from manciple.per_process import PerProcess
from manciple.store.sealing import Undecipherable

#: Seconds that an attempt may take altogether: resolving the name, connecting, sending, and waiting for the status.
PATIENCE = 10.0
#: Names that are resolved at once. A name server that hangs holds one of these threads, and nothing else.
RESOLVED_AT_ONCE = 16
_OK = range(200, 300)
#: Answers after which another attempt is no use: the request is wrong, or the receiver is gone for good.
_HOPELESS = (400, 410)
_PORTS = {"https": 443, "http": 80}


class DeliveryFailed(Exception):
    """It was not taken; the text says why, for the person. hopeless: trying again is no use."""

    def __init__(self, why: str, *, hopeless: bool = False) -> None:
        super().__init__(why)
        self.hopeless = hopeless


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """How one attempt went. failed: None where the message was taken. status: of a webhook's answer, None without one.

    seconds: that it took.
    """

    failed: DeliveryFailed | None = None
    status: int | None = None
    seconds: float = 0.0


# Webhook -------------------------------------------------------------------------------------------------------------


def post(known: NotificationAddress, message: Message, *, now: datetime) -> Attempt:
    """Send the message to the person's webhook. Blocks for `PATIENCE` at most. Asks no database."""
    began = time.monotonic()
    try:
        prepared = _prepared(known, message, now=now)
        status = asyncio.run(_posted(prepared))
    except DeliveryFailed as failed:
        return Attempt(failed=failed, seconds=time.monotonic() - began)
    failure = None
    if status not in _OK:
        failure = DeliveryFailed(f"the webhook answered with status {status}", hopeless=status in _HOPELESS)
    return Attempt(failed=failure, status=status, seconds=time.monotonic() - began)


def _prepared(known: NotificationAddress, message: Message, *, now: datetime) -> Post:
    """Raises: DeliveryFailed."""
    if not known.webhook:
        raise DeliveryFailed("your webhook is removed", hopeless=True)
    try:
        url = addresses.url_of(known)
        secret = addresses.secret_of(known) if known.webhook_secret else ""
    except Undecipherable as error:
        raise DeliveryFailed("its address or secret cannot be read; save the webhook again", hopeless=True) from error
    return webhook_formats.post_of(
        WebhookFormat(known.webhook_format), message, url=url, secret=secret, moment=int(now.timestamp())
    )


async def _posted(prepared: Post) -> int:
    """The status of the answer. Raises: DeliveryFailed."""
    import httpx  # noqa: PLC0415 - takes 8 MiB; few processes need it

    try:
        async with asyncio.timeout(PATIENCE):
            return await _status_of(prepared)
    except TimeoutError as error:
        raise DeliveryFailed(f"the webhook did not answer within {PATIENCE:.0f} s") from error
    except (httpx.HTTPError, httpx.InvalidURL, OSError, AddressRefused) as error:
        raise DeliveryFailed(f"the webhook cannot be reached: {error or type(error).__name__}") from error


async def _status_of(prepared: Post) -> int:
    import httpx  # noqa: PLC0415 - as above

    parts = urlsplit(prepared.url)
    host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
    sent = {**prepared.headers, "Host": parts.netloc, "Content-Type": "application/json", "User-Agent": "Manciple"}
    query = f"?{parts.query}" if parts.query else ""
    resolving = partial(network.resolve, host, port, policy=addresses.webhook_policy())
    # Not the loop's own executor: the loop would wait for a hanging name server when it ends.
    found = await asyncio.get_running_loop().run_in_executor(_resolving.value, resolving)
    failure: Exception | None = None
    async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE, verify=_trusted.value) as client:
        for address in found:
            there = f"{parts.scheme}://{network.in_url(address)}:{port}{parts.path or '/'}{query}"
            request = client.stream(
                "POST", there, content=prepared.body, headers=sent, extensions={"sni_hostname": host}
            )
            try:
                async with request as answer:
                    return answer.status_code
            except httpx.ConnectError as error:
                failure = error
    raise failure or OSError("no address")


def _trusted_authorities() -> ssl.SSLContext:
    import httpx  # noqa: PLC0415 - as above

    return httpx.create_ssl_context(trust_env=False)


#: Reading the certificates takes 20 ms, longer than most of an attempt's work.
_trusted = PerProcess(_trusted_authorities)
_resolving = PerProcess(
    lambda: ThreadPoolExecutor(RESOLVED_AT_ONCE, "webhook-names"), stop=lambda crew: crew.shutdown(wait=False)
)


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
        raise DeliveryFailed(f"the mail server did not take it: {error}") from error
