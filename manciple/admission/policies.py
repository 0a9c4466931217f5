"""ValidatingAdmissionPolicies at work: what each binding of a policy says of a request.

    policy = CompiledPolicy(document)
    for verdict in judge(policy, bindings, request): ...

Expressions are compiled when a policy is first asked. What they say is a value: `Denial`; what a binding does with it
(refuse, warn, note) is decided by whoever asked (`door`).
Sources: apiserver/pkg/admission/plugin/policy/validating/{dispatcher,validator}.go; .../generic/policy_dispatcher.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, TypeVar

from manciple.admission import environment
from manciple.admission.expressions import (
    BOOLEAN,
    CONDITION_BUDGET,
    TEXT,
    TEXT_OR_NULL,
    VALIDATION_BUDGET,
    Composition,
    Evaluation,
    EvaluationFailed,
    OutOfBudget,
    Program,
)
from manciple.admission.kinds.bindings import DENY, ParamRef, ValidatingAdmissionPolicyBinding
from manciple.admission.kinds.mutating_policies import MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding
from manciple.admission.kinds.policies import AuditAnnotation, ParamKind, ValidatingAdmissionPolicy, Validation
from manciple.admission.kinds.rules import IGNORE, MatchCondition, MatchResources
from manciple.admission.matching import Matcher
from manciple.admission.requests import AdmissionRequest, Document, served_kind
from manciple.cel.errors import CompileError
from manciple.cel.functions import Environment
from manciple.cel.operators import type_name
from manciple.store import objects
from manciple.wire import codec
from manciple.wire.registry import Served
from manciple.wire.selectors import as_label_selector

#: Bytes of a message that an expression makes (MaxEvaluatedMessageExpressionSizeBytes), of an annotation's value.
MESSAGE_MAX, ANNOTATION_MAX = 5 * 1024, 10 * 1024

Compiled = Program | CompileError
Values = Mapping[str, Callable[[], Any]]

# What is said ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Denial:
    """Something that is not as it should be.

    binding: None where the policy itself cannot be asked. reason: "" where nothing was found false, but something went
    wrong. index: of the validation. configured: the policy or binding is at fault, whatever the binding's actions.
    """

    policy: str
    binding: ValidatingAdmissionPolicyBinding | None
    message: str
    reason: str = ""
    index: int = 0
    configured: bool = False

    @property
    def binding_name(self) -> str:
        return "" if self.binding is None else self.binding.metadata.name

    @property
    def actions(self) -> Sequence[str]:
        """What the binding does with it."""
        return () if self.configured or self.binding is None else self.binding.spec.validation_actions

    @property
    def refuses(self) -> bool:
        return self.configured or self.binding is None or DENY in self.actions


@dataclass(slots=True)
class Verdict:
    """What a policy's bindings say of one request. annotations: key -> values, each once."""

    denials: list[Denial] = field(default_factory=list)
    annotations: dict[str, list[str]] = field(default_factory=dict)

    def note(self, key: str, value: str) -> None:
        values = self.annotations.setdefault(key, [])
        if value not in values:
            values.append(value)


class ConfigurationError(Exception):
    """A policy or binding cannot be asked; failurePolicy decides what that means."""


# A policy, compiled ---------------------------------------------------------------------------------------------------


PolicyT = TypeVar("PolicyT", ValidatingAdmissionPolicy, MutatingAdmissionPolicy)


class AnyCompiledPolicy(Generic[PolicyT]):
    """A policy with its expressions ready to run: what validating and mutating ones have in common."""

    def __init__(self, policy: PolicyT) -> None:
        self.policy: PolicyT = policy
        self.name = policy.metadata.name
        self.matcher = Matcher.of(policy.spec.match_constraints or MatchResources())
        self.ignores_errors = policy.spec.failure_policy == IGNORE

    @cached_property
    def composition(self) -> Composition:
        spec = self.policy.spec
        variables = [(variable.name, variable.expression) for variable in spec.variables]
        return Composition(variables, params=spec.param_kind is not None, typed=self.typed)

    @staticmethod
    def typed(environment: Environment) -> Environment:
        return environment

    @cached_property
    def conditions(self) -> list[tuple[MatchCondition, Compiled]]:
        return [(one, self._compiled(one.expression, BOOLEAN)) for one in self.policy.spec.match_conditions]

    def _compiled(self, expression: str, returns: Any, *, authorizer: bool = True) -> Compiled:
        try:
            return self.composition.compile(expression, returns, authorizer=authorizer)
        except CompileError as error:
            return error


class CompiledPolicy(AnyCompiledPolicy[ValidatingAdmissionPolicy]):
    """A validating policy."""

    @cached_property
    def validations(self) -> list[tuple[Validation, Compiled, Compiled | None]]:
        """(validation, its expression, its message's expression where it has one)."""
        return [
            (one, self._compiled(one.expression, BOOLEAN), self._message(one.message_expression))
            for one in self.policy.spec.validations
        ]

    @cached_property
    def annotations(self) -> list[tuple[AuditAnnotation, Compiled]]:
        return [
            (one, self._compiled(one.value_expression.strip(), TEXT_OR_NULL))
            for one in self.policy.spec.audit_annotations
        ]

    def _message(self, expression: str) -> Compiled | None:
        return self._compiled(expression, TEXT, authorizer=False) if expression else None


Binding = ValidatingAdmissionPolicyBinding
BindingT = TypeVar("BindingT", ValidatingAdmissionPolicyBinding, MutatingAdmissionPolicyBinding)


class CompiledBinding(Generic[BindingT]):
    """A binding, and what it narrows its policy to."""

    def __init__(self, binding: BindingT) -> None:
        self.binding: BindingT = binding
        self.name = binding.metadata.name
        match = binding.spec.match_resources
        self.matcher = None if match is None else Matcher.of(match)

    def matches(self, request: AdmissionRequest) -> bool:
        return self.matcher is None or self.matcher.version(request) is not None


# Asking one -----------------------------------------------------------------------------------------------------------


def judge(policy: CompiledPolicy, bindings: Sequence[CompiledBinding[Binding]], request: AdmissionRequest) -> Verdict:
    """What the policy and each of its bindings that match say of the request."""
    verdict = Verdict()
    version = policy.matcher.version(request)
    if version is None:
        return verdict
    try:
        params_of = parameters_of(policy.policy.spec.param_kind)
    except ConfigurationError as error:
        _blame(verdict, policy, None, f"failed to configure policy: {error}")
        return verdict
    for binding in bindings:
        if not binding.matches(request):
            continue
        try:
            found = params_of(binding.binding.spec.param_ref, request.namespace)
        except ConfigurationError as error:
            _blame(verdict, policy, binding.binding, f"failed to configure binding: {error}")
            continue
        for params in found:
            _Judgement(policy, binding.binding, request.values(version, params=params), verdict).run()
    return verdict


def _blame(verdict: Verdict, policy: CompiledPolicy, binding: Binding | None, message: str) -> None:
    if not policy.ignores_errors:
        verdict.denials.append(Denial(policy=policy.name, binding=binding, message=message, configured=True))


class _Judgement:
    """One policy, one binding, and one request with one parameter object."""

    def __init__(
        self,
        policy: CompiledPolicy,
        binding: ValidatingAdmissionPolicyBinding,
        values: Values,
        verdict: Verdict,
    ) -> None:
        self._policy, self._binding, self._values, self._verdict = policy, binding, values, verdict

    def run(self) -> None:
        try:
            if not self._conditions_hold():
                return
            self._validate()
            self._annotate()
        except EvaluationFailed as error:
            self._fail(error.message)

    def _conditions_hold(self) -> bool:
        return conditions_hold(self._policy.composition, self._policy.conditions, self._values)

    def _validate(self) -> None:
        evaluation = Evaluation(self._policy.composition, self._values, budget=VALIDATION_BUDGET)
        outcomes = [_outcome(evaluation, program) for _, program, _ in self._policy.validations]
        messages = Evaluation(self._policy.composition, self._values, budget=evaluation.budget)
        for index, ((validation, _, program), outcome) in enumerate(
            zip(self._policy.validations, outcomes, strict=True)
        ):
            if isinstance(outcome, EvaluationFailed):
                self._fail(outcome.message, index=index)
            elif outcome is not True:
                self._violated(validation, messages, program, index)

    def _violated(self, validation: Validation, messages: Evaluation, program: Compiled | None, index: int) -> None:
        try:
            text = _outcome(messages, program)
        except OutOfBudget as error:
            self._fail(f"failed messageExpression: {error.message}", index=index)
        else:
            self._deny(_told(validation, text), validation.reason or "Invalid", index)

    def _annotate(self) -> None:
        evaluation = Evaluation(self._policy.composition, self._values, budget=VALIDATION_BUDGET)
        for annotation, program in self._policy.annotations:
            value = _outcome(evaluation, program)
            if isinstance(value, EvaluationFailed):
                self._fail(value.message, configured=True)
            elif isinstance(value, str):
                if value.strip():
                    self._verdict.note(annotation.key, value.strip()[:ANNOTATION_MAX])
            elif value is not None:
                self._fail(
                    f"valueExpression '{annotation.value_expression}' resulted in unsupported return type: "
                    f"{type_name(value)}. Return type must be either string or null.",
                    configured=True,
                )

    def _fail(self, message: str, *, index: int = 0, configured: bool = False) -> None:
        if not self._policy.ignores_errors:
            self._deny(message, "", index, configured=configured)

    def _deny(self, message: str, reason: str, index: int, *, configured: bool = False) -> None:
        denial = Denial(
            policy=self._policy.name,
            binding=self._binding,
            message=message,
            reason=reason,
            index=index,
            configured=configured,
        )
        self._verdict.denials.append(denial)


def _outcome(evaluation: Evaluation, program: Compiled | None) -> Any:
    """The value, or why there is none. Raises: OutOfBudget."""
    if program is None:
        return None
    try:
        return evaluation.run(program)
    except OutOfBudget:
        raise
    except EvaluationFailed as error:
        return error


def _told(validation: Validation, text: Any) -> str:
    """The message of a validation that is false: the expression's, where it is one line, else the fixed one."""
    if isinstance(text, str) and (line := text.strip()) and len(line.encode()) <= MESSAGE_MAX and "\n" not in line:
        return line
    return validation.message.strip() or f"failed expression: {validation.expression.strip()}"


def conditions_hold(
    composition: Composition,
    conditions: Sequence[tuple[MatchCondition, Compiled]],
    values: Values,
) -> bool:
    """Whether all are true. One that is false decides; without one, errors fail. Raises: EvaluationFailed."""
    if not conditions:
        return True
    # Upstream does not tell match conditions of the namespace.
    evaluation = Evaluation(composition, {**values, environment.NAMESPACE: lambda: None}, budget=CONDITION_BUDGET)
    failures: dict[str, None] = {}
    for _, program in conditions:
        value = _outcome(evaluation, program)
        if value is False:
            return False
        if isinstance(value, EvaluationFailed):
            failures[value.message] = None
    if failures:
        raise EvaluationFailed(next(iter(failures)) if len(failures) == 1 else f"[{', '.join(failures)}]")
    return True


# Parameters -----------------------------------------------------------------------------------------------------------


ParamsOf = Callable[[ParamRef | None, str], Sequence[Document | None]]


def parameters_of(kind: ParamKind | None) -> ParamsOf:
    """Finds the parameters of a binding. kind: of a policy. Raises: ConfigurationError where it is not served."""
    if kind is None:
        return lambda _reference, _namespace: (None,)
    served = served_kind(kind.api_version, kind.kind)
    if served is None:
        group, _, version = kind.api_version.rpartition("/")
        named = f"{group}/{version}, Kind={kind.kind}"
        raise ConfigurationError(f"failed to find resource referenced by paramKind: '{named}'")
    return lambda reference, namespace: _found(served, reference, namespace)


def _found(served: Served, reference: ParamRef | None, namespace: str) -> Sequence[Document | None]:
    """Raises: ConfigurationError."""
    if reference is None:
        return (None,)
    where = _param_namespace(served, reference, namespace)
    found = list(_read(served, reference, where))
    if not found and reference.parameter_not_found_action == DENY:
        raise ConfigurationError("no params found for policy binding with `Deny` parameterNotFoundAction")
    return found


def _param_namespace(served: Served, reference: ParamRef, namespace: str) -> str:
    if not served.kind.namespaced:
        if reference.namespace:
            raise ConfigurationError("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
        return ""
    where = reference.namespace or namespace
    if not where:
        raise ConfigurationError(
            "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
        )
    return where


def _read(served: Served, reference: ParamRef, namespace: str) -> Iterator[Document]:
    if reference.name:
        stored = objects.get(served.kind, namespace, reference.name)
        texts = [] if stored is None else [stored.text]
    else:
        labels = as_label_selector(reference.selector)
        page = objects.list(served.kind, namespace=namespace, labels=None if labels.empty else labels)
        texts = [item.text for item in page.items]
    yield from (served.document(codec.to_builtins(objects.decode(served.kind, text))) for text in texts)
