"""Conversion webhooks: objects of one version of a kind become those of another, as somebody else's server says.

Several objects share a call, within bounds of size, and all calls for one list share `SECONDS`. What comes back is the
same object: its name, uid and all other metadata are kept, but for labels and annotations.
Source: apiextensions-apiserver/pkg/apiserver/conversion/webhook_converter.go.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import orjson

from manciple.access import webhook_client
from manciple.access.webhook_client import Call, CallFailed
from manciple.extensions.definitions import CustomResourceDefinition, WebhookClientConfig
from manciple.store import objects
from manciple.wire import documents
from manciple.wire.base import new_uid
from manciple.wire.errors import ApiError
from manciple.wire.validation import METADATA, validate_annotations, validate_labels

Document = dict[str, Any]

REVIEW = {"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1"}
#: Seconds for all objects of one request (upstream: for each call).
SECONDS = 30.0
#: Objects in one call, and bytes of their documents; one may be larger.
MOST, MOST_BYTES = 500, 1 << 20
#: How many times as large as the question an answer may be, and bytes that it always may be.
GROWTH, ANSWER_MAX = 4, 1 << 20
#: Characters of a wrong word in an answer that are shown.
SHOWN = 100
#: Metadata that must be as it was.
_KEPT = ("name", "namespace", "uid")


class ConversionFailed(ApiError):
    """500: the webhook gave no answer, or a wrong one."""

    @classmethod
    def of(cls, group_version: str, kind: str, why: str) -> ConversionFailed:
        message = f"conversion webhook for {group_version}, Kind={kind} {why}"
        return cls(message, details={"causes": [{"message": message}]})


class _Wrong(Exception):
    """What is wrong with an object that came back."""


def convert(definition: CustomResourceDefinition, found: Sequence[Document], api_version: str) -> list[Document]:
    """`found` in that version, in order. Raises: ConversionFailed."""
    converted = list(found)
    places = [at for at, document in enumerate(found) if document.get("apiVersion") != api_version]
    until = time.monotonic() + SECONDS
    for portion in _portions(places, found):
        asked = [found[at] for at in portion]
        for at, document in zip(portion, _answered(definition, asked, api_version, until), strict=True):
            converted[at] = document
    return converted


def _portions(places: Sequence[int], found: Sequence[Document]) -> Iterator[Sequence[int]]:
    yield from objects.portions(places, lambda at: len(orjson.dumps(found[at])), most=MOST, most_bytes=MOST_BYTES)


def _answered(
    definition: CustomResourceDefinition, asked: Sequence[Document], api_version: str, until: float
) -> list[Document]:
    config, kind = client_config(definition), definition.spec.names.kind
    uid, source = new_uid(), str(asked[0].get("apiVersion", ""))
    request = {"uid": uid, "desiredAPIVersion": api_version, "objects": asked}
    body = orjson.dumps(REVIEW | {"request": request})

    def failed(why: str) -> ConversionFailed:
        return ConversionFailed.of(source, kind, why)

    left = until - time.monotonic()
    if left <= 0:
        raise failed("failed: it took too long")
    most = ANSWER_MAX + GROWTH * len(body)
    (answer,) = webhook_client.call([Call(config, body, seconds=left, with_timeout=False, answer_max=most)])
    if isinstance(answer, CallFailed):
        raise failed(f"failed: {answer.why.removeprefix('failed to call webhook: ')}")
    try:
        review = orjson.loads(answer)
    except orjson.JSONDecodeError as error:
        raise failed(f"failed: no JSON: {error}") from None
    response = _response(review, uid, failed)
    found = response.get("convertedObjects")
    count = len(found) if isinstance(found, list) else 0
    if not isinstance(found, list) or count != len(asked):
        raise failed(f"returned {count} objects, expected {len(asked)}")
    checked = []
    for at, (before, after) in enumerate(zip(asked, found, strict=True)):
        try:
            checked.append(_checked(before, after, api_version))
        except _Wrong as why:
            what = "invalid object" if len(asked) == 1 else f"invalid converted object at index {at}"
            raise failed(f"returned {what}: {why}") from None
    return checked


def _response(review: Any, uid: str, failed: Callable[[str], ConversionFailed]) -> Document:
    """Raises: ConversionFailed."""
    head = review if isinstance(review, dict) else {}
    group, _, version = str(head.get("apiVersion", "")).rpartition("/")
    if {name: head.get(name) for name in REVIEW} != REVIEW:
        shown = f"{group}/{version}, Kind={head.get('kind', '')}"[:SHOWN]
        raise failed(f"failed: expected webhook response of {REVIEW['apiVersion']}, Kind={REVIEW['kind']}, got {shown}")
    response = head.get("response")
    if not isinstance(response, dict):
        raise failed("failed: no response provided")
    if response.get("uid") != uid:
        raise failed(f'failed: expected response.uid="{uid}", got "{str(response.get("uid", ""))[:SHOWN]}"')
    result = response.get("result")
    status = result.get("status") if isinstance(result, dict) else None
    if status != "Success":
        said = result.get("message") if isinstance(result, dict) else None
        told = said if isinstance(said, str) and said else f"response.result.status was '{status or ''}', not 'Success'"
        raise failed(f"failed: {told[: 10 * SHOWN]}")
    return response


def _checked(before: Document, after: Any, api_version: str) -> Document:
    """What came back, with the metadata of before. Raises: _Wrong."""
    if not isinstance(after, dict):
        raise _Wrong("it is no object")
    if (got := after.get("apiVersion")) != api_version:
        raise _Wrong(f"invalid groupVersion (expected {api_version}, received {str(got or '')[:SHOWN]})")
    if (got := after.get("kind")) != before.get("kind"):
        raise _Wrong(f"invalid kind (expected {before.get('kind')}, received {str(got or '')[:SHOWN]})")
    old, new = before.get("metadata") or {}, after.get("metadata")
    if not isinstance(new, dict):
        raise _Wrong("invalid metadata of type NoneType in converted object" if new is None else "invalid metadata")
    for name in _KEPT:
        if (old.get(name) or "") != (new.get(name) or ""):
            raise _Wrong(f"must have the same {name if name != 'uid' else 'UID'}: {old.get(name)} != {new.get(name)}")
    metadata = {name: value for name, value in old.items() if name not in ("labels", "annotations")}
    for name, validate in (("labels", validate_labels), ("annotations", validate_annotations)):
        texts = new.get(name) or {}
        if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
            raise _Wrong(f"invalid metadata.{name}")
        if wrong := validate(texts, METADATA.child(name)):
            raise _Wrong(str(wrong[0]))
        if texts:
            metadata[name] = texts
    try:
        documents.check_size(after)
    except ApiError as error:
        raise _Wrong(error.message) from None
    return {**after, "metadata": metadata}


def client_config(definition: CustomResourceDefinition) -> WebhookClientConfig:
    """Raises: ConversionFailed where the definition has none, which its validation excludes."""
    conversion = definition.spec.conversion
    webhook = conversion.webhook if conversion is not None else None
    if webhook is None or webhook.client_config is None:
        raise ConversionFailed.of(definition.spec.group, definition.spec.names.kind, "failed: none is configured")
    return webhook.client_config
