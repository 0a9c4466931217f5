"""MutatingAdmissionPolicies at work: what a policy with one of its bindings makes of an object.

An ApplyConfiguration is merged into the object as server-side apply would, without owners; a JSON patch whose test
fails changes nothing. What goes wrong refuses the request, unless the policy's failurePolicy is Ignore.
Sources: apiserver/pkg/admission/plugin/policy/mutating/{dispatcher,patch/smd,patch/json_patch}.go.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from manciple.admission.environment import OBJECT_TYPE, PATCH_TYPE, mutating
from manciple.admission.expressions import VALIDATION_BUDGET, Evaluation, EvaluationFailed
from manciple.admission.kinds.mutating_policies import (
    APPLY_CONFIGURATION,
    RETURNS,
    MutatingAdmissionPolicy,
    MutatingAdmissionPolicyBinding,
    Mutation,
)
from manciple.admission.kinds.webhooks import IF_NEEDED
from manciple.admission.policies import (
    AnyCompiledPolicy,
    Compiled,
    CompiledBinding,
    ConfigurationError,
    conditions_hold,
    parameters_of,
)
from manciple.admission.requests import AdmissionRequest, Document
from manciple.api.requests import decode_document
from manciple.cel.documents import document_of
from manciple.cel.errors import EvaluationError
from manciple.cel.functions import Environment
from manciple.cel.values import CelMap, StructValue
from manciple.wire import managed_fields
from manciple.wire.apply import merge
from manciple.wire.errors import ApiError, Forbidden
from manciple.wire.limits import Deadline, TimeLimitExceeded, check_time, time_limit
from manciple.wire.patch import TestFailed, json_patch
from manciple.wire.registry import Splitting, registry

#: Seconds of processor time for one policy with one binding.
SECONDS = 5.0


class CompiledMutatingPolicy(AnyCompiledPolicy[MutatingAdmissionPolicy]):
    @staticmethod
    def typed(environment: Environment) -> Environment:
        return mutating(environment)

    @cached_property
    def mutations(self) -> list[tuple[Mutation, Compiled]]:
        return [(one, self._compiled(one.expression, RETURNS[one.patch_type])) for one in self.policy.spec.mutations]


class MutationFailed(Exception):
    """A policy has no answer; `message` says why."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class PolicyDenied(Forbidden):
    """403 with the reason of invalid objects, as upstream."""

    reason = "Invalid"


@dataclass(frozen=True, slots=True)
class PolicyMutation:
    """A policy with a binding as a step of `manciple.admission.mutation`."""

    policy: CompiledMutatingPolicy
    binding: CompiledBinding[MutatingAdmissionPolicyBinding]

    @property
    def is_reinvoked(self) -> bool:
        return bool(self.policy.policy.spec.reinvocation_policy == IF_NEEDED)

    def changed(self, request: AdmissionRequest, *, again: int, until: float) -> Any:  # noqa: ARG002 - of webhooks
        """The object as the policy wants it; None where it is not concerned. Raises: PolicyDenied."""
        version = self.policy.matcher.version(request)
        if request.write.new is None or version is None or not self.binding.matches(request):
            return None
        try:
            with time_limit(Deadline.after_work(SECONDS)):
                return self._changed(request, version)
        except (MutationFailed, EvaluationFailed) as error:
            if self.policy.ignores_errors:
                return request.write.new
            raise self._refusal(request, error.message) from None
        except TimeLimitExceeded:
            check_time()  # of the request as a whole
            raise self._refusal(request, "it took longer than the time allowed") from None

    def _changed(self, request: AdmissionRequest, version: str) -> Any:
        try:
            find = parameters_of(self.policy.policy.spec.param_kind)
            found = find(self.binding.binding.spec.param_ref, request.namespace)
        except ConfigurationError as error:
            raise MutationFailed(f"failed to configure binding: {error}") from None
        for params in found:
            request = self._with(request, version, params)
        return request.write.new

    def _with(self, request: AdmissionRequest, version: str, params: Document | None) -> AdmissionRequest:
        """The request after all mutations, with one parameter object."""
        policy, values = self.policy, request.values(version, params=params)
        if not conditions_hold(policy.composition, policy.conditions, values):
            return request
        for mutation, program in policy.mutations:
            evaluation = Evaluation(
                policy.composition, request.values(version, params=params), budget=VALIDATION_BUDGET
            )
            value = evaluation.run(program)
            document = dict(request.document(version) or {})
            try:
                if mutation.patch_type == APPLY_CONFIGURATION:
                    patched = _applied(request, version, document, value)
                else:
                    patched = _patched(document, value)
                request = request.replaced(request.decoded(patched, version))
            except EvaluationError as error:
                raise MutationFailed(error.message) from None
            except ApiError as error:
                raise MutationFailed(f"error applying patch: {error.message}") from None
        return request

    def _refusal(self, request: AdmissionRequest, why: str) -> PolicyDenied:
        kind = request.kind
        message = f"policy '{self.policy.name}' with binding '{self.binding.name}' denied request: {why}"
        details = {"name": request.name, "group": kind.group, "kind": kind.plural, "causes": [{"message": message}]}
        return PolicyDenied(message, details={key: value for key, value in details.items() if value})


# What expressions give ------------------------------------------------------------------------------------------------


def _patched(document: dict[str, Any], value: Any) -> dict[str, Any]:
    """Raises: MutationFailed, ApiError, EvaluationError."""
    operations = []
    for one in value:
        if not isinstance(one, StructValue) or one.name != PATCH_TYPE.name:
            raise MutationFailed("type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch")
        if isinstance(made := one.members.get("value"), StructValue):
            _check_names(made, made.name)
        operations.append(document_of(one))
    try:
        return json_patch(document, operations)
    except TestFailed:
        return document
    except ApiError as error:
        raise MutationFailed(f"JSON Patch: {error.message}") from None


def _applied(request: AdmissionRequest, version: str, document: dict[str, Any], value: Any) -> dict[str, Any]:
    """Raises: MutationFailed, ApiError, EvaluationError."""
    if not isinstance(value, StructValue):
        raise MutationFailed("unsupported return type from ApplyConfiguration expression")
    _check_names(value, OBJECT_TYPE.name)
    applied = document_of(value)
    served = registry.served_as(request.kind, version)
    if served is None or request.body_kind != request.kind.kind:
        shape = managed_fields.struct(type(request.write.new))
    else:
        head = {"apiVersion": served.api_version, "kind": served.kind.kind}
        applied = {**applied, **head}
        if unknown := decode_document(served, applied, strictness="Warn").warnings:
            told = ", ".join(f".{text.partition(chr(34))[2].rstrip(chr(34))}" for text in unknown)
            raise MutationFailed(
                "error applying patch: failed to convert patch object to typed object: "
                f"{told}: field not declared in schema"
            )
        shape = served.kind.splitting or managed_fields.struct(served.shape)
    if atomic := list(_atomic(applied, shape, "")):
        raise MutationFailed(
            "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: "
            + ", ".join(atomic)
        )
    patched: dict[str, Any] = merge(document, applied, shape)
    return patched


def _check_names(value: Any, path: str) -> None:
    """A structure has the type of the place where it stands. Raises: MutationFailed."""
    if isinstance(value, StructValue):
        if value.name != path:
            raise MutationFailed(
                f'type mismatch: unexpected type name "{value.name}", expected "{path}", which matches field name '
                "path from root Object type"
            )
        for name, member in value.members.items():
            _check_names(member, f"{path}.{name}")
    elif isinstance(value, list | CelMap):
        for one in value if isinstance(value, list) else value.values():
            _check_names(one, path)


def _atomic(applied: Any, shape: Splitting, path: str) -> Iterator[str]:
    """Where lists and objects would be replaced as a whole."""
    if isinstance(applied, dict | list) and shape.kind == "atomic":
        yield path
        return
    for element, item, inner in managed_fields.children(applied, shape):
        yield from _atomic(
            item, inner, f"{path}.{element[2:]}" if element.startswith("f:") else f"{path}[{element[2:]}]"
        )
