"""`authorizer` in expressions: asks whether somebody may do something. PURE.

    authorizer.group("").resource("pods").namespace("team-a").check("create").allowed()
    authorizer.serviceAccount("team-a", "builder").path("/metrics").check("get").reason()
    authorizer.requestResource.check("use").allowed()

The values are immutable, and each step makes a new one; `check` asks the decider that the values carry.
Source: apiserver/pkg/cel/library/authz.go and cost.go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from manciple.access.authorization import ANY_FIELDS, ANY_LABELS, Attributes, Decision
from manciple.cel.costs import LIST_CREATE, STRUCT_CREATE, TRAVERSAL, CallEstimate, CostRule, Range, fixed, size_of
from manciple.cel.errors import EvaluationError
from manciple.cel.types import CelType, TypeKind
from manciple.cel.values import EnvironmentValue
from manciple.wire.identity import Identity, service_account
from manciple.wire.selectors import FieldSelector, ParsedLabelSelector, parse_field_selector, parse_label_selector
from manciple.wire.validation import check_namespace_name, check_object_name

Decide: TypeAlias = Callable[[Identity, Attributes], Decision]


def _type(name: str) -> CelType:
    return CelType(TypeKind.STRUCT, f"kubernetes.authorization.{name}")


AUTHORIZER, RESOURCE_CHECK = _type("Authorizer"), _type("ResourceCheck")


@dataclass(frozen=True, slots=True)
class AuthorizerValue(EnvironmentValue):
    """Asks for one identity."""

    TYPE = AUTHORIZER

    identity: Identity
    decide: Decide

    def of_service_account(self, namespace: str, name: str) -> AuthorizerValue:
        if check_object_name(name):
            raise EvaluationError("Invalid service account name")
        if check_namespace_name(namespace):
            raise EvaluationError("Invalid service account namespace")
        return replace(self, identity=service_account(namespace, name))

    def path(self, path: str) -> PathCheck:
        if not path.strip():
            raise EvaluationError("path must not be empty")
        return PathCheck(self, path)

    def group(self, group: str) -> GroupCheck:
        return GroupCheck(self, group)


@dataclass(frozen=True, slots=True)
class PathCheck(EnvironmentValue):
    TYPE = _type("PathCheck")

    authorizer: AuthorizerValue
    path: str

    def check(self, verb: str) -> DecisionValue:
        return DecisionValue(self.authorizer.decide(self.authorizer.identity, Attributes(verb=verb, path=self.path)))


@dataclass(frozen=True, slots=True)
class GroupCheck(EnvironmentValue):
    TYPE = _type("GroupCheck")

    authorizer: AuthorizerValue
    group: str

    def resource(self, resource: str) -> ResourceCheck:
        if not resource.strip():
            raise EvaluationError("resource must not be empty")
        return ResourceCheck(self.authorizer, Attributes(verb="", group=self.group, version="*", resource=resource))


@dataclass(frozen=True, slots=True)
class ResourceCheck(EnvironmentValue):
    """What may be asked, but for the verb."""

    TYPE = RESOURCE_CHECK

    authorizer: AuthorizerValue
    wanted: Attributes

    def narrowed(self, **changes: Any) -> ResourceCheck:
        return replace(self, wanted=replace(self.wanted, **changes))

    def check(self, verb: str) -> DecisionValue:
        return DecisionValue(self.authorizer.decide(self.authorizer.identity, replace(self.wanted, verb=verb)))


@dataclass(frozen=True, slots=True)
class DecisionValue(EnvironmentValue):
    TYPE = _type("Decision")

    decision: Decision


def _fields(text: str) -> FieldSelector:
    """A selector that cannot be read restricts nothing, as upstream."""
    try:
        return parse_field_selector(text)
    except ValueError:
        return ANY_FIELDS


def _labels(text: str) -> ParsedLabelSelector:
    try:
        return parse_label_selector(text)
    except ValueError:
        return ANY_LABELS


IMPLEMENTATIONS: Mapping[str, Callable[..., Any]] = {
    "authorizer_path": AuthorizerValue.path,
    "authorizer_group": AuthorizerValue.group,
    "authorizer_serviceaccount": AuthorizerValue.of_service_account,
    "groupcheck_resource": GroupCheck.resource,
    "resourcecheck_subresource": lambda check, text: check.narrowed(subresource=text),
    "resourcecheck_namespace": lambda check, text: check.narrowed(namespace=text),
    "resourcecheck_name": lambda check, text: check.narrowed(name=text),
    "authorizer_fieldselector": lambda check, text: check.narrowed(fields=_fields(text)),
    "authorizer_labelselector": lambda check, text: check.narrowed(labels=_labels(text)),
    "pathcheck_check": PathCheck.check,
    "resourcecheck_check": ResourceCheck.check,
    "decision_allowed": lambda value: value.decision.allowed,
    "decision_reason": lambda value: value.decision.reason,
    # Our authorizers decide or fail the request as a whole: none gives an error beside its decision.
    "decision_errored": lambda _value: False,
    "decision_error": lambda _value: "",
}

#: Two checks fit into one expression.
CHECK_COST = 350_000


#: A selector has a requirement, a struct and a list, for each so many characters.
_REQUIREMENTS_PER_CHARACTER, _REQUIREMENT_COST = 0.5, LIST_CREATE + STRUCT_CREATE


def _estimated_selector(size: Range) -> Range:
    requirements = size.times(_REQUIREMENTS_PER_CHARACTER).times(_REQUIREMENT_COST)
    return fixed(LIST_CREATE) + size.times(TRAVERSAL) + requirements


def _selector_cost(args: Sequence[Any], _result: Any) -> int:
    return _estimated_selector(fixed(size_of(args[1]))).max


COSTS: Mapping[str, CostRule] = {
    "check": CostRule(lambda _operands: CallEstimate(fixed(CHECK_COST)), lambda _args, _result: CHECK_COST),
    **dict.fromkeys(
        ("fieldSelector", "labelSelector"),
        CostRule(lambda operands: CallEstimate(_estimated_selector(operands[1].size)), _selector_cost),
    ),
}
