"""Webhooks at work: an AdmissionReview is posted to all that match, at once, and each may refuse the request.

A configuration is somebody else's word, and the API server stands where he does not: the address must pass
`manciple.access.addresses`, the certificate must be vouched for by the configuration's caBundle (or the system), no
redirect is followed and no proxy asked, and what is read is bounded in size and time. A webhook that cannot be asked
refuses the request too, unless its failurePolicy is Ignore.
Sources: apiserver/pkg/admission/plugin/webhook/{validating/dispatcher,request/admissionreview,errors/statuserror}.go.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any
from unicodedata import category
from urllib.parse import urlsplit

import orjson

from manciple.access import addresses
from manciple.access.addresses import AddressRefused
from manciple.admission import environment
from manciple.admission.expressions import BOOLEAN, Composition, EvaluationFailed
from manciple.admission.kinds.rules import EXACT, IGNORE, MatchCondition
from manciple.admission.kinds.webhooks import (
    SIDE_EFFECTS,
    TIMEOUT,
    TIMEOUT_MAX,
    ValidatingWebhook,
    ValidatingWebhookConfiguration,
)
from manciple.admission.matching import Matcher
from manciple.admission.policies import Compiled, conditions_hold
from manciple.admission.requests import AdmissionRequest
from manciple.cel.errors import CompileError
from manciple.per_process import PerProcess
from manciple.store import records
from manciple.wire.base import LabelSelector, new_uid
from manciple.wire.errors import ApiError, BadRequest, Forbidden
from manciple.wire.selectors import as_label_selector
from manciple.wire.validation import check_label_key

if TYPE_CHECKING:
    import httpx

log = logging.getLogger(__name__)

API_VERSION, KIND = "admission.k8s.io/v1", "AdmissionReview"
FAILED_OPEN = "failed-open.validating.webhook.admission.k8s.io/round_0_index_"
#: Bytes of an answer that are read.
ANSWER_MAX = 1024 * 1024
#: Characters of a wrong word in an answer that are shown.
SHOWN = 100
HTTPS_PORT = 443
_OK = range(200, 300)
_ERRORS = range(400, 600)


class WebhookCallFailed(Exception):
    """A webhook could not be asked, or gave no answer; `why` is for a person."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class WebhookFailed(ApiError):
    """500: a webhook could not be asked, and its failurePolicy is Fail."""

    @classmethod
    def of(cls, name: str, why: str) -> WebhookFailed:
        message = f'failed calling webhook "{name}": {why}'
        return cls(f"Internal error occurred: {message}", details={"causes": [{"message": message}]})


class WebhookDenied(ApiError):
    """A webhook refuses the request, with the Status that it gave."""

    def __init__(self, name: str, result: Mapping[str, Any]) -> None:
        denied = f'admission webhook "{name}" denied the request'
        why = result.get("message") or result.get("reason")
        super().__init__(f"{denied}: {why}" if why else f"{denied} without explanation", details=result.get("details"))
        code = result.get("code")
        self.code = code if isinstance(code, int) and code in _ERRORS else BadRequest.code
        self.reason = str(result.get("reason") or "")


class CompiledWebhook:
    """A webhook of a configuration, with what is needed to match it."""

    def __init__(self, configuration: ValidatingWebhookConfiguration, hook: ValidatingWebhook) -> None:
        self.hook = hook
        self.name = hook.name
        self.configuration = configuration.metadata.name
        self.matcher = Matcher(
            rules=hook.rules,
            excluded=(),
            namespaces=as_label_selector(hook.namespace_selector or LabelSelector()),
            objects=as_label_selector(hook.object_selector or LabelSelector()),
            exact=hook.match_policy == EXACT,
        )
        self.ignores_errors = hook.failure_policy == IGNORE

    @cached_property
    def composition(self) -> Composition:
        return Composition(composed=False)

    @cached_property
    def conditions(self) -> list[tuple[MatchCondition, Compiled]]:
        return [(one, self._compiled(one.expression)) for one in self.hook.match_conditions]

    def _compiled(self, expression: str) -> Compiled:
        try:
            return self.composition.compile(expression, BOOLEAN)
        except CompileError as error:
            return error


@dataclass(frozen=True, slots=True)
class _Call:
    webhook: CompiledWebhook
    uid: str
    body: bytes


def ask(webhooks: Sequence[CompiledWebhook], request: AdmissionRequest) -> None:
    """Ask those that match. Raises: WebhookDenied, WebhookFailed, Forbidden where a match condition fails."""
    calls = [call for webhook in webhooks if (call := _call_of(webhook, request)) is not None]
    if not calls:
        return
    # Each call ends by its own timeout.
    answers = asyncio.run_coroutine_threadsafe(_call_all(calls), _loop.value).result()
    refusals = [
        refusal
        for position, (call, answer) in enumerate(zip(calls, answers, strict=True))
        if (refusal := _refusal(call, answer, position)) is not None
    ]
    if refusals:
        raise refusals[0]


def _call_of(webhook: CompiledWebhook, request: AdmissionRequest) -> _Call | None:
    """None where the webhook is not concerned."""
    version = webhook.matcher.version(request) if webhook.matcher.rules else None
    if version is None or not _conditions_hold(webhook, request, version):
        return None
    if request.write.dry_run and webhook.hook.side_effects not in SIDE_EFFECTS:
        raise BadRequest(f'admission webhook "{webhook.name}" does not support dry run')
    uid = new_uid()
    asked = {
        "uid": uid,
        **request.attributes(version),
        "object": request.document(version),
        "oldObject": request.document(version, old=True),
    }
    return _Call(webhook, uid, orjson.dumps({"kind": KIND, "apiVersion": API_VERSION, "request": asked}))


def _conditions_hold(webhook: CompiledWebhook, request: AdmissionRequest, version: str) -> bool:
    values = {**request.values(version), environment.NAMESPACE: lambda: None}
    try:
        return conditions_hold(webhook.composition, webhook.conditions, values)
    except EvaluationFailed as error:
        if webhook.ignores_errors:
            return False
        kind, name = request.kind, request.name
        details = {"name": name, "group": kind.group, "kind": kind.plural}
        raise Forbidden(
            f'{kind.resource} "{name}" is forbidden: {error.message}',
            details={key: value for key, value in details.items() if value},
        ) from None


def _refusal(call: _Call, answer: Mapping[str, Any] | WebhookCallFailed, position: int) -> ApiError | None:
    """What the answer means; its warnings and annotations are passed on."""
    webhook = call.webhook
    if isinstance(answer, WebhookCallFailed):
        if not webhook.ignores_errors:
            return WebhookFailed.of(webhook.name, answer.why)
        log.warning("webhook %s of %s is left out: %s", webhook.name, webhook.configuration, answer.why)
        records.annotate(f"{FAILED_OPEN}{position}", webhook.name)
        return None
    for key, text in (answer.get("auditAnnotations") or {}).items():
        if "/" not in key and not check_label_key(key):  # upstream leaves out the others too
            records.annotate(f"{webhook.name}/{key}", text)
    for text in answer.get("warnings") or ():
        if text and not any(category(character) == "Cc" for character in text):  # no header could carry it
            records.warn(text)
    return None if answer.get("allowed") is True else WebhookDenied(webhook.name, answer.get("status") or {})


# The call -------------------------------------------------------------------------------------------------------------


def _started_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="webhooks", daemon=True).start()
    return loop


#: Calls webhooks in a thread of its own, so that no request waits for a silent name server.
_loop = PerProcess(_started_loop, stop=lambda loop: loop.call_soon_threadsafe(loop.stop))


async def _call_all(calls: Sequence[_Call]) -> list[Mapping[str, Any] | WebhookCallFailed]:
    return list(await asyncio.gather(*map(_call, calls)))


async def _call(call: _Call) -> Mapping[str, Any] | WebhookCallFailed:
    """The response of the AdmissionReview that the webhook answers."""
    import httpx  # noqa: PLC0415 - takes 8 MiB; few processes need it

    seconds = call.webhook.hook.timeout_seconds or TIMEOUT
    url = f"{call.webhook.hook.client_config.url}?timeout={seconds}s"
    try:
        async with asyncio.timeout(seconds):
            content = await _posted(call.webhook, url, call.body)
    except TimeoutError:
        return WebhookCallFailed(f'failed to call webhook: Post "{url}": context deadline exceeded')
    except (httpx.HTTPError, ssl.SSLError, OSError, AddressRefused, WebhookCallFailed) as error:
        return WebhookCallFailed(f'failed to call webhook: Post "{url}": {error or type(error).__name__}')
    try:
        return _response(content, call.uid)
    except WebhookCallFailed as error:
        return WebhookCallFailed(f"received invalid webhook response: {error.why}")


async def _posted(webhook: CompiledWebhook, url: str, body: bytes) -> bytes:
    """The body of the answer. Raises: WebhookCallFailed and what the network raises."""
    import httpx  # noqa: PLC0415 - takes 8 MiB; few processes need it

    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or HTTPS_PORT
    trusted = _trusted(webhook.hook.client_config.ca_bundle)
    headers = {"Host": parts.netloc, "Content-Type": "application/json", "Accept-Encoding": "identity"}
    failure: httpx.ConnectError | None = None
    # The clock of the whole call runs outside.
    async with httpx.AsyncClient(verify=trusted, trust_env=False, timeout=TIMEOUT_MAX) as client:
        for address in await addresses.resolve_async(host, port):
            there = f"https://{addresses.in_url(address)}:{port}{parts.path or '/'}?{parts.query}"
            try:
                async with client.stream(
                    "POST", there, content=body, headers=headers, extensions={"sni_hostname": host}
                ) as answer:
                    return await _read(answer)
            except httpx.ConnectError as error:
                failure = error
    raise failure or WebhookCallFailed("no address")


async def _read(answer: httpx.Response) -> bytes:
    content = bytearray()
    async for piece in answer.aiter_raw():
        content += piece
        if len(content) > ANSWER_MAX:
            raise WebhookCallFailed(f"the answer is longer than {ANSWER_MAX} bytes")
    if answer.status_code not in _OK:
        # Not its text: who may write configurations may not read what other servers say.
        raise WebhookCallFailed(f"the webhook answered with status {answer.status_code}")
    return bytes(content)


@lru_cache(maxsize=64)
def _trusted(ca_bundle: str) -> ssl.SSLContext:
    """Who may vouch for it: the bundle (base64 of PEM), or the system where it is empty. Raises: WebhookCallFailed."""
    if not ca_bundle:
        return ssl.create_default_context()
    try:
        return ssl.create_default_context(cadata=base64.b64decode(ca_bundle).decode())
    except (binascii.Error, ValueError, ssl.SSLError) as error:
        raise WebhookCallFailed(f"clientConfig.caBundle holds no certificates in PEM: {error}") from None


def _response(content: bytes, uid: str) -> Mapping[str, Any]:
    """Raises: WebhookCallFailed, in upstream's words."""
    try:
        review = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise WebhookCallFailed(f"no JSON: {error}") from None
    response = review.get("response") if isinstance(review, dict) else None
    if not isinstance(response, dict):
        raise WebhookCallFailed("webhook response was absent")
    if response.get("uid") != uid:
        raise WebhookCallFailed(f'expected response.uid="{uid}", got "{_shown(response.get("uid", ""))}"')
    group, _, version = str(review.get("apiVersion", "")).rpartition("/")
    if (group, version, review.get("kind")) != ("admission.k8s.io", "v1", KIND):
        found = _shown(f"{group}/{version}, Kind={review.get('kind', '')}")
        raise WebhookCallFailed(f"expected webhook response of admission.k8s.io/v1, Kind={KIND}, got {found}")
    if response.get("patch"):
        raise WebhookCallFailed("validating webhook may not return response.patch")
    if response.get("patchType") is not None:
        raise WebhookCallFailed("validating webhook may not return response.patchType")
    if wrong := [name for name, holds in _SHAPES.items() if not holds(response.get(name))]:
        raise WebhookCallFailed(f"response.{wrong[0]} is of another type than admission.k8s.io/v1 has it")
    return response


def _shown(value: object) -> str:
    return str(value)[:SHOWN]


def _texts_or_none(found: Any) -> bool:
    return found is None or (isinstance(found, list) and all(isinstance(text, str) for text in found))


def _text_map_or_none(found: Any) -> bool:
    return found is None or (isinstance(found, dict) and all(isinstance(text, str) for text in found.values()))


#: member of a response -> whether it is what it should be
_SHAPES: Mapping[str, Callable[[Any], bool]] = {
    "allowed": lambda found: found is None or isinstance(found, bool),
    "status": lambda found: found is None or isinstance(found, dict),
    "warnings": _texts_or_none,
    "auditAnnotations": _text_map_or_none,
}
