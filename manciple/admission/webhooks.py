"""Webhooks at work: an AdmissionReview is posted to those that match, and each may refuse the request.

Validating ones are asked all at once (`ask`). Mutating ones are asked one after the other (`WebhookMutation`), each
about what those before it left, and may answer with a JSON patch. A webhook that cannot be asked refuses the request
too, unless its failurePolicy is Ignore; a patch that does not fit refuses it always. Patches are bounded in size,
depth, operations and what they copy (`manciple.wire.patch`), calls by `manciple.access.webhook_client`.
Sources: apiserver/pkg/admission/plugin/webhook/{validating,mutating}/dispatcher.go,
.../webhook/{request/admissionreview,errors/statuserror}.go.
"""

from __future__ import annotations

import base64
import binascii
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from unicodedata import category

import orjson

from manciple.access import webhook_client
from manciple.access.webhook_client import CallFailed
from manciple.admission.expressions import BOOLEAN, Composition, EvaluationFailed
from manciple.admission.kinds.rules import EXACT, IGNORE, MatchCondition
from manciple.admission.kinds.webhooks import (
    IF_NEEDED,
    SIDE_EFFECTS,
    TIMEOUT,
    TIMEOUT_MAX,
    MutatingWebhook,
    Webhook,
    WebhookConfiguration,
)
from manciple.admission.matching import Matcher
from manciple.admission.policies import Compiled, conditions_hold
from manciple.admission.requests import AdmissionRequest
from manciple.cel.errors import CompileError
from manciple.store import records
from manciple.wire import codec
from manciple.wire.base import LabelSelector, new_uid
from manciple.wire.errors import ApiError, BadRequest, Forbidden, GatewayTimeout
from manciple.wire.limits import Deadline, TimeLimitExceeded, time_limit
from manciple.wire.patch import json_patch
from manciple.wire.selectors import as_label_selector
from manciple.wire.validation import check_label_key

log = logging.getLogger(__name__)

API_VERSION, KIND = "admission.k8s.io/v1", "AdmissionReview"
FAILED_OPEN = "failed-open.validating.webhook.admission.k8s.io/round_0_index_"
MUTATION = "mutation.webhook.admission.k8s.io/round_{}_index_{}"
JSON_PATCH = "JSONPatch"
#: Seconds of processor time that applying one patch may take.
PATCH_SECONDS = 2.0
#: Characters of a wrong word in an answer that are shown.
SHOWN = 100
_ERRORS = range(400, 600)


class WebhookFailed(ApiError):
    """500: a webhook could not be asked, and its failurePolicy is Fail."""

    @classmethod
    def of(cls, name: str, why: str) -> WebhookFailed:
        return cls.because(f'failed calling webhook "{name}": {why}')

    @classmethod
    def because(cls, message: str) -> WebhookFailed:
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

    def __init__(self, configuration: WebhookConfiguration, hook: Webhook) -> None:
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
    version: str
    body: bytes


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
    return _Call(webhook, uid, version, orjson.dumps({"kind": KIND, "apiVersion": API_VERSION, "request": asked}))


def _answers(calls: Sequence[_Call], *, mutating: bool, most: float) -> list[Mapping[str, Any] | CallFailed]:
    """The responses, in order; all are asked at once. most: seconds."""
    sent = [
        webhook_client.Call(
            call.webhook.hook.client_config, call.body, seconds=min(call.webhook.hook.timeout_seconds or TIMEOUT, most)
        )
        for call in calls
    ]
    return [
        answer if isinstance(answer, CallFailed) else _response(answer, call.uid, mutating=mutating)
        for call, answer in zip(calls, webhook_client.call(sent), strict=True)
    ]


def _conditions_hold(webhook: CompiledWebhook, request: AdmissionRequest, version: str) -> bool:
    try:
        return conditions_hold(webhook.composition, webhook.conditions, request.values(version))
    except EvaluationFailed as error:
        if webhook.ignores_errors:
            return False
        kind, name = request.kind, request.name
        details = {"name": name, "group": kind.group, "kind": kind.plural}
        raise Forbidden(
            f'{kind.resource} "{name}" is forbidden: {error.message}',
            details={key: value for key, value in details.items() if value},
        ) from None


def _pass_on(webhook: CompiledWebhook, response: Mapping[str, Any]) -> None:
    """The warnings and annotations of an answer."""
    for key, text in (response.get("auditAnnotations") or {}).items():
        if "/" not in key and not check_label_key(key):  # upstream leaves out the others too
            records.annotate(f"{webhook.name}/{key}", text)
    for text in response.get("warnings") or ():
        if text and not any(category(character) == "Cc" for character in text):  # no header could carry it
            records.warn(text)


def _excused(webhook: CompiledWebhook, failure: CallFailed, annotation: str) -> WebhookFailed | None:
    """None where the failurePolicy lets the request go on."""
    if not webhook.ignores_errors:
        return WebhookFailed.of(webhook.name, failure.why)
    log.warning("webhook %s of %s is left out: %s", webhook.name, webhook.configuration, failure.why)
    records.annotate(annotation, webhook.name)
    return None


# Validating -----------------------------------------------------------------------------------------------------------


def ask(webhooks: Sequence[CompiledWebhook], request: AdmissionRequest) -> None:
    """Ask those that match. Raises: WebhookDenied, WebhookFailed, Forbidden where a match condition fails."""
    calls = [call for webhook in webhooks if (call := _call_of(webhook, request)) is not None]
    if not calls:
        return
    answers = _answers(calls, mutating=False, most=TIMEOUT_MAX)
    refusals = [
        refusal
        for position, (call, answer) in enumerate(zip(calls, answers, strict=True))
        if (refusal := _refusal(call.webhook, answer, position)) is not None
    ]
    if refusals:
        raise refusals[0]


def _refusal(webhook: CompiledWebhook, answer: Mapping[str, Any] | CallFailed, position: int) -> ApiError | None:
    if isinstance(answer, CallFailed):
        return _excused(webhook, answer, f"{FAILED_OPEN}{position}")
    _pass_on(webhook, answer)
    return None if answer.get("allowed") is True else WebhookDenied(webhook.name, answer.get("status") or {})


# Mutating -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WebhookMutation:
    """A mutating webhook as a step of `manciple.admission.mutation`. position: among the webhooks of the request."""

    webhook: CompiledWebhook
    position: int

    @property
    def is_reinvoked(self) -> bool:
        hook = self.webhook.hook
        return isinstance(hook, MutatingWebhook) and hook.reinvocation_policy == IF_NEEDED

    def changed(self, request: AdmissionRequest, *, again: int, until: float) -> Any:
        """The object as the webhook wants it; None where it is not concerned. until: by the monotonic clock.

        Raises: WebhookDenied, WebhookFailed, GatewayTimeout; Forbidden where a match condition fails.
        """
        call = _call_of(self.webhook, request)
        if call is None:
            return None
        left = until - time.monotonic()
        if left <= 0:
            raise GatewayTimeout("Timeout: request did not complete within requested timeout")
        (answer,) = _answers([call], mutating=True, most=left)
        new, name = request.write.new, MUTATION.format(again, self.position)
        patch: Any = None
        if not isinstance(answer, CallFailed):
            _pass_on(self.webhook, answer)
            if answer.get("allowed") is not True:
                raise WebhookDenied(self.webhook.name, answer.get("status") or {})
            answer = patch = _patch_of(answer)
        if isinstance(answer, CallFailed):
            if (failed := _excused(self.webhook, answer, f"failed-open.{name}")) is not None:
                raise failed
        elif patch:
            new = self._patched(request, call.version, patch)
        told = {
            "configuration": self.webhook.configuration,
            "webhook": self.webhook.name,
            "mutated": new != request.write.new,
        }
        records.annotate(name, orjson.dumps(told).decode())
        return new

    def _patched(self, request: AdmissionRequest, version: str, patch: Any) -> Any:
        """Raises: WebhookFailed."""
        document = request.document(version)
        if document is None:
            why = f'admission webhook "{self.webhook.name}" attempted to modify the object, which is not supported for '
            raise WebhookFailed.because(f"{why}this operation")
        try:
            with time_limit(Deadline.after_work(PATCH_SECONDS)):
                return request.decoded(json_patch(dict(document), patch), version)
        except ApiError as error:
            raise WebhookFailed.because(error.message) from None
        except TimeLimitExceeded:
            raise WebhookFailed.because("applying the patch took too long") from None


def _patch_of(response: Mapping[str, Any]) -> Any:
    """The operations; CallFailed where they cannot be read."""
    if not (encoded := response.get("patch")):
        return ()
    if (kind := response["patchType"]) != JSON_PATCH:
        return CallFailed(f'unsupported patch type "{_shown(kind)}"')
    try:
        found = codec.read_document(base64.b64decode(encoded, validate=True), content_type="application/json")
    except (binascii.Error, ValueError, ApiError) as error:
        return CallFailed(f"received undecodable patch in webhook response: {error}")
    if isinstance(found, list) and all(isinstance(one, dict) for one in found):
        return found
    return CallFailed("received undecodable patch in webhook response: it is no list of operations")


# The answer --------------------------------------------------------------------------------------------------------


def _response(content: bytes, uid: str, *, mutating: bool) -> Mapping[str, Any] | CallFailed:
    """The response of the AdmissionReview that the webhook answers, or what is wrong with it in upstream's words."""
    try:
        review = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        return _misfit(f"no JSON: {error}")
    response = review.get("response") if isinstance(review, dict) else None
    if not isinstance(response, dict):
        return _misfit("webhook response was absent")
    if response.get("uid") != uid:
        return _misfit(f'expected response.uid="{uid}", got "{_shown(response.get("uid", ""))}"')
    group, _, version = str(review.get("apiVersion", "")).rpartition("/")
    if (group, version, review.get("kind")) != ("admission.k8s.io", "v1", KIND):
        found = _shown(f"{group}/{version}, Kind={review.get('kind', '')}")
        return _misfit(f"expected webhook response of admission.k8s.io/v1, Kind={KIND}, got {found}")
    if wrong := [name for name, holds in _SHAPES.items() if not holds(response.get(name))]:
        return _misfit(f"response.{wrong[0]} is of another type than admission.k8s.io/v1 has it")
    why = _wrong_patch(response.get("patch"), response.get("patchType"), mutating=mutating)
    return _misfit(why) if why else response


def _wrong_patch(patch: str | None, patch_type: str | None, *, mutating: bool) -> str:
    if not mutating:
        given = "patch" if patch else "patchType" if patch_type is not None else ""
        return f"validating webhook may not return response.{given}" if given else ""
    if patch and patch_type is None:
        return "webhook returned response.patch but not response.patchType"
    if not patch and patch_type is not None:
        return "webhook returned response.patchType but not response.patch"
    return 'webhook returned invalid response.patchType of ""' if patch_type == "" else ""


def _misfit(why: str) -> CallFailed:
    return CallFailed(f"received invalid webhook response: {why}")


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
    "patch": lambda found: found is None or isinstance(found, str),
    "patchType": lambda found: found is None or isinstance(found, str),
    "warnings": _texts_or_none,
    "auditAnnotations": _text_map_or_none,
}
