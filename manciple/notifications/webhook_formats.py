"""What is posted to a webhook: our own JSON, signed, or the format of Slack, Microsoft Teams or PagerDuty.

    JSON        signed as https://www.standardwebhooks.com says
    Slack       incoming webhook: blocks (https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks)
    Teams       webhook of a workflow: a message with an adaptive card (https://adaptivecards.io)
    PagerDuty   Events API v2: what has an end triggers an alert under a `dedup_key` and resolves it; what has none is
                a change event (https://developer.pagerduty.com/docs/events-api-v2/overview)

Names, labels and messages of drivers come from tenants: no receiver is given them as markup.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

import orjson

from manciple.notifications.addresses import SECRET_MARK
from manciple.notifications.models import Happening, WebhookFormat

#: Where PagerDuty takes events, unless the person names another address (that of the EU).
PAGERDUTY = "https://events.pagerduty.com/v2/enqueue"
#: Characters of a title and of a text that each receiver takes.
_SLACK_HEADER, _SLACK_TEXT, _PAGERDUTY_SUMMARY = 150, 3000, 1024
_SEVERITIES = {
    Happening.NODE_SILENT.value: "critical",
    Happening.DEVICE_FAILS.value: "error",
    Happening.INCIDENT.value: "error",
    Happening.POOL_INCOMPLETE.value: "error",
    Happening.POD_FAILED.value: "error",
    Happening.POD_WAITS.value: "warning",
    Happening.QUOTA_FULL.value: "warning",
}
#: What has no end.
_ENDLESS = (Happening.POD_STARTED, Happening.JOB_ENDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What goes out. id: the same at each attempt; unsubscribe: a link that ends the rule's mails, "" of a test.

    details: what the text says that the title does not.

    key: the same in the message that something is wrong and in the one that it is over, and different from all others
    of all installations. over: which of the two this is.
    """

    id: str
    happening: str
    title: str
    text: str
    url: str
    at: datetime
    details: str = ""
    key: str = ""
    over: bool = False
    unsubscribe: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    """One request."""

    url: str
    headers: Mapping[str, str]
    body: bytes


def post_of(format: WebhookFormat, message: Message, *, url: str, secret: str, moment: int) -> Post:
    """secret: what JSON is signed with, or PagerDuty's integration key. moment: POSIX seconds of the attempt."""
    headers = {"webhook-id": message.id}
    match format:
        case WebhookFormat.SLACK:
            document = _slack(message)
        case WebhookFormat.TEAMS:
            document = _teams(message)
        case WebhookFormat.PAGERDUTY:
            document = _pagerduty(message, secret)
            if message.happening in _ENDLESS and url.endswith("/v2/enqueue"):
                url = f"{url.removesuffix('/enqueue')}/change/enqueue"
        case WebhookFormat.JSON:
            body = orjson.dumps(_json(message), option=orjson.OPT_UTC_Z)
            return Post(url=url, headers=signed_headers(secret, message.id, moment, body), body=body)
    return Post(url=url, headers=headers, body=orjson.dumps(document, option=orjson.OPT_UTC_Z))


def signed_headers(secret: str, message_id: str, moment: int, body: bytes) -> dict[str, str]:
    """moment: POSIX seconds; the receiver refuses what was signed long ago."""
    key = secret.removeprefix(SECRET_MARK)
    key_bytes = base64.urlsafe_b64decode(key + "=" * (-len(key) % 4))
    signed = f"{message_id}.{moment}.".encode() + body
    signature = base64.b64encode(hmac.new(key_bytes, signed, hashlib.sha256).digest()).decode()
    return {"webhook-id": message_id, "webhook-timestamp": str(moment), "webhook-signature": f"v1,{signature}"}


def _json(message: Message) -> dict[str, Any]:
    return {
        "type": f"manciple.{message.happening}",
        "timestamp": message.at,
        "data": {
            "title": message.title,
            "text": message.text,
            "url": message.url,
            "key": message.key,
            "over": message.over,
        },
    }


def _slack(message: Message) -> dict[str, Any]:
    blocks: list[dict[str, Any]] = [
        {"type": "header", "text": {"type": "plain_text", "text": _cut(message.title, _SLACK_HEADER), "emoji": False}}
    ]
    if message.details:
        text = {"type": "plain_text", "text": _cut(message.details, _SLACK_TEXT), "emoji": False}
        blocks.append({"type": "section", "text": text})
    link = {"type": "mrkdwn", "text": f"<{_escaped_for_slack(message.url)}|Open in Manciple>"}
    blocks.append({"type": "context", "elements": [link]})
    return {"text": _escaped_for_slack(message.title), "blocks": blocks}


def _escaped_for_slack(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _teams(message: Message) -> dict[str, Any]:
    """Runs of text, because text blocks are read as Markdown."""
    body = [_run(message.title, weight="Bolder", size="Medium"), *map(_run, message.details.splitlines())]
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": body,
        "actions": [{"type": "Action.OpenUrl", "title": "Open in Manciple", "url": message.url}],
    }
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
    return {"type": "message", "attachments": [attachment]}


def _run(text: str, **style: str) -> dict[str, Any]:
    return {"type": "RichTextBlock", "inlines": [{"type": "TextRun", "text": text, **style}]}


def _pagerduty(message: Message, integration_key: str) -> dict[str, Any]:
    summary, source = _cut(message.title, _PAGERDUTY_SUMMARY), urlsplit(message.url).netloc or "manciple"
    links = [{"href": message.url, "text": "Open in Manciple"}]
    if message.happening in _ENDLESS:
        payload = {"summary": summary, "source": source, "timestamp": message.at}
        payload["custom_details"] = {"text": message.text}
        return {"routing_key": integration_key, "payload": payload, "links": links}
    event = {"routing_key": integration_key, "dedup_key": message.key}
    if message.over:
        return {**event, "event_action": "resolve"}
    severity = _SEVERITIES.get(message.happening, "info")
    payload = {"summary": summary, "source": source, "severity": severity, "timestamp": message.at}
    payload |= {"class": message.happening, "custom_details": {"text": message.text}}
    return {**event, "event_action": "trigger", "payload": payload, "links": links, "client": "Manciple"}


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
