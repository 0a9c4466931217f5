"""ValidatingWebhookConfiguration and MutatingWebhookConfiguration, as the API server serves them. PURE.

Sources: k8s.io/api/admissionregistration/v1; pkg/apis/admissionregistration/{v1/defaults.go,validation/validation.go};
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, TypeVar

from msgspec.structs import replace

from manciple.access.kinds.webhook_clients import validate_client
from manciple.admission.kinds.rules import (
    EQUIVALENT,
    EVERYTHING,
    FAIL,
    FAILURE_POLICIES,
    GROUP,
    MATCH_POLICIES,
    VERSION,
    MatchCondition,
    RuleWithOperations,
    validate_choice,
    validate_match_conditions,
    validate_rule,
    with_scope,
)
from manciple.wire import machinery
from manciple.wire.base import ApiObject, Int32, LabelSelector, Value, always, pb
from manciple.wire.errors import duplicate, invalid, not_supported, required
from manciple.wire.registry import Column, Kind
from manciple.wire.selectors import validate_label_selector
from manciple.wire.tables import AGE_COLUMN, NAME_COLUMN
from manciple.wire.validation import (
    Errors,
    Path,
    check_dns_1035_label,
    check_dns_subdomain,
    each,
    validate_list,
    validate_object_meta,
    validate_object_meta_update,
)

PACKAGE = "io.k8s.api.admissionregistration.v1"

NEVER, IF_NEEDED = "Never", "IfNeeded"
REINVOCATION_POLICIES = (IF_NEEDED, NEVER)
NONE, NONE_ON_DRY_RUN = "None", "NoneOnDryRun"
SIDE_EFFECTS = (NONE, NONE_ON_DRY_RUN)
#: versions of AdmissionReview that upstream speaks; we speak v1
REVIEW_VERSIONS = ("v1", "v1beta1")
SPOKEN = "v1"
#: seconds
TIMEOUT, TIMEOUT_MAX = 10, 30
_SEGMENTS_MIN = 3

# Types ----------------------------------------------------------------------------------------------------------------


class ServiceReference(machinery.ServiceReference):
    """A Service, which is called at its endpoints."""


class WebhookClientConfig(machinery.WebhookClientConfig):
    """Where a webhook is."""

    service: Annotated[ServiceReference | None, pb(1)] = None


class ValidatingWebhook(Value):
    """A webhook, and which requests it is asked about.

    name: a domain of three segments at least. client_config: where it is. rules: what is done to which resources;
    one must match. failure_policy: whether an error on the way refuses the request (Fail, the default) or not (Ignore).
    match_policy: Equivalent (the default) or Exact. namespace_selector: the labels of the object's namespace.
    object_selector: the labels of the object before or after. side_effects: None, or NoneOnDryRun.
    timeout_seconds: 1 to 30, 10 unless given. admission_review_versions: that the webhook understands, v1 among them.
    match_conditions: further conditions, in CEL.
    """

    name: Annotated[str, pb(1)] = always("")
    client_config: Annotated[WebhookClientConfig, pb(2)] = always(WebhookClientConfig())
    rules: Annotated[tuple[RuleWithOperations, ...], pb(3)] = ()
    failure_policy: Annotated[str | None, pb(4)] = None
    match_policy: Annotated[str | None, pb(9)] = None
    namespace_selector: Annotated[LabelSelector | None, pb(5)] = None
    object_selector: Annotated[LabelSelector | None, pb(10)] = None
    side_effects: Annotated[str | None, pb(6)] = None
    timeout_seconds: Annotated[Int32 | None, pb(7)] = None
    admission_review_versions: Annotated[tuple[str, ...], pb(8)] = always(())
    match_conditions: Annotated[tuple[MatchCondition, ...], pb(11, merge_key="name")] = ()


class ValidatingWebhookConfiguration(ApiObject):
    """Webhooks that are called for writes, and may refuse them. Cluster scoped.

    webhooks: all of them are asked at once.
    """

    SCHEMA: ClassVar = f"{PACKAGE}.ValidatingWebhookConfiguration"

    webhooks: Annotated[tuple[ValidatingWebhook, ...], pb(2, merge_key="name")] = ()


class MutatingWebhook(Value):
    """A webhook, and which requests it is asked about; its answer may patch the object.

    name: a domain of three segments at least. client_config: where it is. rules: what is done to which resources;
    one must match. failure_policy: whether an error on the way refuses the request (Fail, the default) or not (Ignore).
    match_policy: Equivalent (the default) or Exact. namespace_selector: the labels of the object's namespace.
    object_selector: the labels of the object before or after. side_effects: None, or NoneOnDryRun.
    timeout_seconds: 1 to 30, 10 unless given. admission_review_versions: that the webhook understands, v1 among them.
    reinvocation_policy: whether it is asked again where others have changed the object after it (IfNeeded) or not
    (Never, the default). match_conditions: further conditions, in CEL.
    """

    name: Annotated[str, pb(1)] = always("")
    client_config: Annotated[WebhookClientConfig, pb(2)] = always(WebhookClientConfig())
    rules: Annotated[tuple[RuleWithOperations, ...], pb(3)] = ()
    failure_policy: Annotated[str | None, pb(4)] = None
    match_policy: Annotated[str | None, pb(9)] = None
    namespace_selector: Annotated[LabelSelector | None, pb(5)] = None
    object_selector: Annotated[LabelSelector | None, pb(11)] = None
    side_effects: Annotated[str | None, pb(6)] = None
    timeout_seconds: Annotated[Int32 | None, pb(7)] = None
    admission_review_versions: Annotated[tuple[str, ...], pb(8)] = always(())
    reinvocation_policy: Annotated[str | None, pb(10)] = None
    match_conditions: Annotated[tuple[MatchCondition, ...], pb(12, merge_key="name")] = ()


class MutatingWebhookConfiguration(ApiObject):
    """Webhooks that are called for writes, and may change or refuse them. Cluster scoped.

    webhooks: they are asked one after the other, configurations by name.
    """

    SCHEMA: ClassVar = f"{PACKAGE}.MutatingWebhookConfiguration"

    webhooks: Annotated[tuple[MutatingWebhook, ...], pb(2, merge_key="name")] = ()


Webhook = ValidatingWebhook | MutatingWebhook
WebhookConfiguration = ValidatingWebhookConfiguration | MutatingWebhookConfiguration
HookT = TypeVar("HookT", ValidatingWebhook, MutatingWebhook)

# Defaults -------------------------------------------------------------------------------------------------------------


def prepare(new: ValidatingWebhookConfiguration) -> ValidatingWebhookConfiguration:
    return replace(new, webhooks=tuple(map(_defaulted, new.webhooks)))


def prepare_mutating(new: MutatingWebhookConfiguration) -> MutatingWebhookConfiguration:
    return replace(new, webhooks=tuple(_reinvoked(_defaulted(hook)) for hook in new.webhooks))


def _reinvoked(hook: MutatingWebhook) -> MutatingWebhook:
    return hook if hook.reinvocation_policy is not None else replace(hook, reinvocation_policy=NEVER)


def _defaulted(hook: HookT) -> HookT:
    service = hook.client_config.service
    config = hook.client_config
    if service is not None and service.port is None:
        config = replace(config, service=replace(service, port=443))
    return replace(
        hook,
        client_config=config,
        rules=tuple(map(with_scope, hook.rules)),
        failure_policy=FAIL if hook.failure_policy is None else hook.failure_policy,
        match_policy=EQUIVALENT if hook.match_policy is None else hook.match_policy,
        namespace_selector=EVERYTHING if hook.namespace_selector is None else hook.namespace_selector,
        object_selector=EVERYTHING if hook.object_selector is None else hook.object_selector,
        timeout_seconds=TIMEOUT if hook.timeout_seconds is None else hook.timeout_seconds,
    )


# What is wrong --------------------------------------------------------------------------------------------------------


def validate(configuration: WebhookConfiguration) -> Errors:
    return validate_object_meta(configuration.metadata, namespaced=False, any_finalizers=True) + _validate_webhooks(
        configuration.webhooks
    )


def validate_update(new: WebhookConfiguration, old: WebhookConfiguration) -> Errors:
    return validate_object_meta_update(new.metadata, old.metadata, any_finalizers=True) + _validate_webhooks(
        new.webhooks
    )


def _validate_webhooks(hooks: Sequence[Webhook]) -> Errors:
    found: Errors = []
    for position, hook in enumerate(hooks):
        path = Path("webhooks").at(position)
        found += _validate_webhook(hook, path)
        found += _validate_versions(hook.admission_review_versions, path.child("admissionReviewVersions"))
        if hook.name and hook.name in [other.name for other in hooks[:position]]:
            found.append(duplicate(path.child("name"), hook.name))
    return found


def _validate_webhook(hook: Webhook, path: Path) -> Errors:
    found = _validate_name(hook.name, path.child("name"))
    found += validate_list(hook.rules, path.child("rules"), validate_rule)
    found += validate_choice(hook.failure_policy, path.child("failurePolicy"), FAILURE_POLICIES)
    found += validate_choice(hook.match_policy, path.child("matchPolicy"), MATCH_POLICIES)
    if isinstance(hook, MutatingWebhook):
        found += validate_choice(hook.reinvocation_policy, path.child("reinvocationPolicy"), REINVOCATION_POLICIES)
    found += _validate_side_effects(hook.side_effects, path.child("sideEffects"))
    if hook.timeout_seconds is not None and not 1 <= hook.timeout_seconds <= TIMEOUT_MAX:
        message = "the timeout value must be between 1 and 30 seconds"
        found.append(invalid(path.child("timeoutSeconds"), hook.timeout_seconds, message))
    found += validate_label_selector(hook.namespace_selector, path.child("namespaceSelector"))
    found += validate_label_selector(hook.object_selector, path.child("objectSelector"))
    found += validate_client(hook.client_config, path.child("clientConfig"))
    return found + validate_match_conditions(hook.match_conditions, path.child("matchConditions"), params=False)


def _validate_name(name: str, path: Path) -> Errors:
    if not name:
        return [required(path)]
    messages = check_dns_subdomain(name)
    if messages:
        return [invalid(path, name, ",".join(messages))]
    if name.count(".") + 1 < _SEGMENTS_MIN:
        return [invalid(path, name, "should be a domain with at least three segments separated by dots")]
    return []


def _validate_side_effects(value: str | None, path: Path) -> Errors:
    if value is None:
        return [required(path, f"must specify one of {', '.join(SIDE_EFFECTS)}")]
    return [] if value in SIDE_EFFECTS else [not_supported(path, value, SIDE_EFFECTS)]


def _validate_versions(versions: tuple[str, ...], path: Path) -> Errors:
    """v1 must be among them: no other is spoken here."""
    listed = ", ".join(REVIEW_VERSIONS)
    if not versions:
        return [required(path, f"must specify one of {listed}")]
    found: Errors = []
    for position, version in enumerate(versions):
        if version in versions[:position]:
            found.append(invalid(path.at(position), version, "duplicate version"))
        else:
            found += each(check_dns_1035_label(version), path.at(position), version)
    if not set(REVIEW_VERSIONS) & set(versions):
        found.append(invalid(path, versions, f"must include at least one of {listed}"))
    elif SPOKEN not in versions:
        found.append(invalid(path, versions, f"must include {SPOKEN}, the version that this server speaks"))
    return found


# Kind -----------------------------------------------------------------------------------------------------------------


_WEBHOOK_COUNT = Column(
    name="Webhooks",
    type="integer",
    description="How many webhooks it configures",
    cell=lambda configuration, _now: len(configuration.webhooks),
)

WEBHOOKS = Kind(
    group=GROUP,
    version=VERSION,
    plural="validatingwebhookconfigurations",
    categories=("api-extensions",),
    namespaced=False,
    type=ValidatingWebhookConfiguration,
    prepare_create=prepare,
    prepare_update=lambda new, _old: prepare(new),
    validate_create=validate,
    validate_update=validate_update,
    columns=(NAME_COLUMN, _WEBHOOK_COUNT, AGE_COLUMN),
    generation_of=lambda configuration: configuration.webhooks,
    description="Webhooks that are called for writes, and may refuse them.",
)

MUTATING_WEBHOOKS = Kind(
    group=GROUP,
    version=VERSION,
    plural="mutatingwebhookconfigurations",
    categories=("api-extensions",),
    namespaced=False,
    type=MutatingWebhookConfiguration,
    prepare_create=prepare_mutating,
    prepare_update=lambda new, _old: prepare_mutating(new),
    validate_create=validate,
    validate_update=validate_update,
    columns=(NAME_COLUMN, _WEBHOOK_COUNT, AGE_COLUMN),
    generation_of=lambda configuration: configuration.webhooks,
    description="Webhooks that are called for writes, and may change or refuse them.",
)
