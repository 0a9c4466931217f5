"""The door: every write that a client wants is shown to the policies and webhooks that it concerns.

Those that mutate are asked between the preparation and the validation of the object (`mutate`), the others last of the
first stage of `manciple.store.hooks` (`check`): before the transaction, and what they have seen may be different by the
time of the write, but not the object that is written. First the policies, which cost microseconds; what they refuse no
webhook is asked about. Nobody is asked about these configurations themselves
(upstream: IsExemptAdmissionConfigurationResource): who has locked himself out can open again.

One follower keeps what is configured for a process, compiled. Most writes concern nobody: what is found for an
operation on a resource is kept, so that asking again is one look-up in a dict, until a policy, binding or webhook
changes.

Warnings and audit annotations go to whoever collects what is said of the request (`manciple.store.hooks`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from manciple.admission import webhooks
from manciple.admission.kinds.bindings import AUDIT, BINDING, WARN, ValidatingAdmissionPolicyBinding
from manciple.admission.kinds.mutating_policies import MUTATING_BINDING, MUTATING_POLICY, MutatingAdmissionPolicyBinding
from manciple.admission.kinds.policies import POLICY
from manciple.admission.kinds.rules import GROUP
from manciple.admission.kinds.webhooks import MUTATING_WEBHOOKS, WEBHOOKS
from manciple.admission.mutating_policies import CompiledMutatingPolicy, PolicyMutation
from manciple.admission.mutation import Mutation, mutated
from manciple.admission.policies import BindingT, CompiledBinding, CompiledPolicy, Denial, judge
from manciple.admission.requests import AdmissionRequest
from manciple.admission.webhooks import CompiledWebhook, WebhookMutation
from manciple.api.namespaces import NAMESPACES
from manciple.store import records
from manciple.store.event_log import Follower, View
from manciple.store.hooks import Write
from manciple.store.records import Written
from manciple.wire.base import ApiObject
from manciple.wire.errors import ApiError, NotFound

# What is in effect ----------------------------------------------------------------------------------------------------


#: Seconds for which a process trusts the announcements to tell it of changes; upstream takes as long to notice one.
TRUSTED = 1.0


@dataclass(frozen=True, slots=True)
class PolicyInEffect:
    policy: CompiledPolicy
    bindings: tuple[CompiledBinding[ValidatingAdmissionPolicyBinding], ...]


@dataclass(frozen=True, slots=True)
class Concerned:
    """Who might have something to say: policies with bindings, and webhooks, each by name."""

    policies: tuple[PolicyInEffect, ...] = ()
    webhooks: tuple[CompiledWebhook, ...] = ()
    #: those that may change the object, in the order in which they are asked; () where nobody does
    mutations: tuple[Sequence[Mutation], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.policies or self.webhooks or self.mutations)

    @property
    def take_their_time(self) -> bool:
        """Whether webhooks are asked, or the object may be changed: not for whoever is in a hurry."""
        return bool(self.webhooks or self.mutations)


Asked = tuple[str, str, str, str]


class Configured(View):
    """What is in effect."""

    resources: ClassVar[Sequence[str]] = (
        POLICY.resource,
        BINDING.resource,
        WEBHOOKS.resource,
        MUTATING_POLICY.resource,
        MUTATING_BINDING.resource,
        MUTATING_WEBHOOKS.resource,
    )

    def __init__(self) -> None:
        self._policies: dict[str, CompiledPolicy] = {}
        self._bindings: dict[str, CompiledBinding[ValidatingAdmissionPolicyBinding]] = {}
        self._mutating_policies: dict[str, CompiledMutatingPolicy] = {}
        self._mutating_bindings: dict[str, CompiledBinding[MutatingAdmissionPolicyBinding]] = {}
        self._webhooks: dict[str, tuple[CompiledWebhook, ...]] = {}
        self._mutating: dict[str, tuple[CompiledWebhook, ...]] = {}
        self._concerned: dict[Asked, Concerned] = {}

    def fill(self, resource: str, objects: Iterable[ApiObject]) -> None:
        for obj in objects:
            self._keep(resource, obj)

    def apply(self, changes: Sequence[Written]) -> None:
        self._concerned.clear()
        for change in changes:
            if change.type == "DELETED":
                self._of(change.resource).pop(change.object.metadata.name, None)
            else:
                self._keep(change.resource, change.object)

    def concerned(self, write: Write) -> Concerned:
        key = (write.operation, write.kind.group, write.kind.plural, write.subresource)
        found = self._concerned.get(key)
        if found is None:
            found = self._concerned[key] = self._found(key)
        return found

    def _of(self, resource: str) -> dict[str, Any]:
        found: dict[str, dict[str, Any]] = {
            POLICY.resource: self._policies,
            BINDING.resource: self._bindings,
            MUTATING_POLICY.resource: self._mutating_policies,
            MUTATING_BINDING.resource: self._mutating_bindings,
            WEBHOOKS.resource: self._webhooks,
            MUTATING_WEBHOOKS.resource: self._mutating,
        }
        return found[resource]

    def _keep(self, resource: str, obj: Any) -> None:
        compiled: Any
        if resource == POLICY.resource:
            compiled = CompiledPolicy(obj)
        elif resource == MUTATING_POLICY.resource:
            compiled = CompiledMutatingPolicy(obj)
        elif resource in (BINDING.resource, MUTATING_BINDING.resource):
            compiled = CompiledBinding(obj)
        else:
            compiled = tuple(CompiledWebhook(obj, hook) for hook in obj.webhooks)
        self._of(resource)[obj.metadata.name] = compiled

    def _found(self, key: Asked) -> Concerned:
        policies = [policy for _, policy in sorted(self._policies.items()) if policy.matcher.concerns(*key)]
        in_effect = (PolicyInEffect(policy, _bound(self._bindings, policy.name)) for policy in policies)
        changing = [
            PolicyMutation(policy, binding)
            for _, policy in sorted(self._mutating_policies.items())
            if policy.matcher.concerns(*key)
            for binding in _bound(self._mutating_bindings, policy.name)
        ]
        calling = [WebhookMutation(hook, at) for at, hook in enumerate(_concerned(self._mutating, key))]
        return Concerned(
            tuple(one for one in in_effect if one.bindings),
            _concerned(self._webhooks, key),
            (changing, calling) if changing or calling else (),
        )


def _bound(bindings: Mapping[str, CompiledBinding[BindingT]], policy: str) -> tuple[CompiledBinding[BindingT], ...]:
    return tuple(one for _, one in sorted(bindings.items()) if one.binding.spec.policy_name == policy)


def _concerned(configured: Mapping[str, Sequence[CompiledWebhook]], key: Asked) -> tuple[CompiledWebhook, ...]:
    """By name of the configuration, then by position in it."""
    hooks = (hook for _, found in sorted(configured.items()) for hook in found)
    return tuple(hook for hook in hooks if hook.matcher.concerns(*key))


FOLLOWER = Follower(Configured)


def concerned(write: Write) -> Concerned:
    """Who might have something to say about the write."""
    with FOLLOWER.view(within=TRUSTED) as configured:
        return configured.concerned(write)


# Asking them ----------------------------------------------------------------------------------------------------------


#: reason -> HTTP code
CODES = {"Forbidden": 403, "Invalid": 422, "RequestEntityTooLarge": 413}
FAILURE_ANNOTATION = "validation.policy.admission.k8s.io/validation_failure"


class PolicyDenied(ApiError):
    """A policy refuses a request; code and reason are those that its validation names."""

    def __init__(self, message: str, *, reason: str, details: dict[str, object]) -> None:
        super().__init__(message, details=details)
        self.reason = reason
        self.code = CODES[reason]


def mutate(write: Write, prepare: Callable[[Any], Any]) -> Any:
    """What is to be written, as policies and webhooks want it. prepare: completes what one of them has changed.

    Raises: ApiError.
    """
    if write.kind.group == GROUP or not (mutations := concerned(write).mutations):
        return write.new
    return mutated(_request(write), mutations, prepare)


def check(write: Write) -> None:
    """Raises: PolicyDenied; ApiError, from a webhook."""
    if write.kind.group == GROUP:
        return
    found = concerned(write)
    if not (found.policies or found.webhooks):
        return
    request = _request(write)
    _ask_policies(found.policies, request)
    webhooks.ask(found.webhooks, request)


def _request(write: Write) -> AdmissionRequest:
    """Raises: NotFound, as the writer would: no webhook or policy is asked about a namespace that does not exist."""
    request = AdmissionRequest(write)
    if write.operation == "CREATE" and request.namespace and request.in_namespace is None:
        raise NotFound.of(NAMESPACES, request.namespace)
    return request


def _ask_policies(policies: Iterable[PolicyInEffect], request: AdmissionRequest) -> None:
    refusals: list[Denial] = []
    noted: list[dict[str, Any]] = []
    for one in policies:
        verdict = judge(one.policy, one.bindings, request)
        for denial in verdict.denials:
            if denial.refuses:
                refusals.append(denial)
            noted += _told(denial)
        for key, values in verdict.annotations.items():
            records.annotate(f"{one.policy.name}/{key}", ", ".join(values))
    if noted:
        records.annotate(FAILURE_ANNOTATION, json.dumps(noted, separators=(",", ":"), ensure_ascii=False))
    if refusals:
        raise _refusal(refusals[0], request)


def _told(denial: Denial) -> Iterator[dict[str, Any]]:
    """Warns as the binding says; gives what it wants to be noted."""
    if WARN in denial.actions:
        where = f"ValidatingAdmissionPolicy '{denial.policy}' with binding '{denial.binding_name}'"
        records.warn(f"Validation failed for {where}: {denial.message}")
    if AUDIT in denial.actions:
        yield {
            "message": denial.message,
            "policy": denial.policy,
            "binding": denial.binding_name,
            "expressionIndex": denial.index,
            "validationActions": list(denial.actions),
        }


def _refusal(denial: Denial, request: AdmissionRequest) -> PolicyDenied:
    bound = f" with binding '{denial.binding_name}'" if denial.binding is not None else ""
    why = f"ValidatingAdmissionPolicy '{denial.policy}'{bound} denied request: {denial.message}"
    kind, name = request.kind, request.name or "Unknown"
    details = {"name": name, "group": kind.group, "kind": kind.plural, "causes": [{"message": why}]}
    return PolicyDenied(
        f'{kind.resource} "{name}" is forbidden: {why}',
        reason=denial.reason or "Invalid",
        details={key: value for key, value in details.items() if value},
    )
