"""ValidatingAdmissionPolicy, as the API server serves it. PURE.

Whether the expressions of a policy can work is found out at the door: they are compiled as they will be evaluated,
variables in their order, and what the compiler says becomes the cause.
Sources: k8s.io/api/admissionregistration/v1; pkg/apis/admissionregistration/{v1/defaults.go,validation/validation.go};
pkg/registry/admissionregistration/validatingadmissionpolicy/strategy.go.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, ClassVar

from msgspec.structs import replace

from manciple.admission.expressions import BOOLEAN, TEXT, TEXT_OR_NULL, Composition
from manciple.admission.kinds.rules import (
    FAIL,
    FAILURE_POLICIES,
    GROUP,
    VERSION,
    MatchCondition,
    MatchResources,
    validate_choice,
    validate_expression,
    validate_match,
    validate_match_conditions,
    with_defaults,
)
from manciple.wire.base import (
    ApiObject,
    Condition,
    Int64,
    ObjectMeta,
    Value,
    always,
    pb,
    status_metadata,
)
from manciple.wire.errors import duplicate, invalid, not_supported, required
from manciple.wire.registry import Column, Kind, Subresource
from manciple.wire.tables import AGE_COLUMN, NAME_COLUMN
from manciple.wire.validation import (
    SPEC,
    STATUS,
    Errors,
    Path,
    check_dns_1035_label,
    check_dns_subdomain,
    check_label_key,
    each,
    validate_conditions,
    validate_list,
    validate_object_meta,
    validate_object_meta_update,
)

PACKAGE = "io.k8s.api.admissionregistration.v1"

REASONS = ("Forbidden", "Invalid", "RequestEntityTooLarge")
ANNOTATIONS_MAX = 20
#: of an audit annotation's expression, in characters
VALUE_EXPRESSION_MAX = 5 * 1024

_IDENTIFIER = re.compile("[_a-zA-Z][_a-zA-Z0-9]*", re.ASCII)
#: that CEL keeps for itself
_RESERVED = (
    *("true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import"),
    *("let", "loop", "package", "namespace", "return", "var", "void", "while"),
)

# Types ----------------------------------------------------------------------------------------------------------------


class ParamKind(Value):
    """The kind of the objects that parameterize a policy.

    api_version: GROUP/VERSION. kind: of the objects.
    """

    ATOMIC: ClassVar = True

    api_version: Annotated[str, pb(1)] = ""
    kind: Annotated[str, pb(2)] = ""


class Validation(Value):
    """One thing that must be true.

    expression: CEL, gives a bool; knows object, oldObject, request, params, namespaceObject, variables, authorizer and
    authorizer.requestResource. message: the answer where it is false. reason: Invalid (the default), Forbidden or
    RequestEntityTooLarge; decides the HTTP code. message_expression: CEL that gives the message; knows all but the
    authorizer.
    """

    expression: Annotated[str, pb(1)] = always("")
    message: Annotated[str, pb(2)] = ""
    reason: Annotated[str | None, pb(3)] = None
    message_expression: Annotated[str, pb(4)] = ""


class AuditAnnotation(Value):
    """What the audit event of a request is given.

    key: stands there as POLICY/KEY. value_expression: CEL that gives the value; nothing is noted where it gives null.
    """

    key: Annotated[str, pb(1)] = always("")
    value_expression: Annotated[str, pb(2)] = always("")


class Variable(Value):
    """A value that expressions below it share.

    name: as variables.NAME. expression: CEL; worked out when it is first asked for.
    """

    name: Annotated[str, pb(1)] = always("")
    expression: Annotated[str, pb(2)] = always("")


class ValidatingAdmissionPolicySpec(Value):
    """What a policy asks of which requests.

    param_kind: of the objects that bindings may name as parameters. match_constraints: the requests it is asked about.
    validations: what must be true. failure_policy: whether an error refuses the request (Fail, the default) or not
    (Ignore). audit_annotations: additions to the audit event. match_conditions: further conditions on requests.
    variables: values that the expressions share.
    """

    param_kind: Annotated[ParamKind | None, pb(1)] = None
    match_constraints: Annotated[MatchResources | None, pb(2)] = None
    validations: Annotated[tuple[Validation, ...], pb(3)] = ()
    failure_policy: Annotated[str | None, pb(4)] = None
    audit_annotations: Annotated[tuple[AuditAnnotation, ...], pb(5)] = ()
    match_conditions: Annotated[tuple[MatchCondition, ...], pb(6, merge_key="name")] = ()
    variables: Annotated[tuple[Variable, ...], pb(7, merge_key="name")] = ()


class ExpressionWarning(Value):
    """An expression that cannot work on the kinds that the policy matches.

    field_ref: where it stands. warning: the kind, and what the compiler says of it.
    """

    field_ref: Annotated[str, pb(2)] = always("")
    warning: Annotated[str, pb(3)] = always("")


class TypeChecking(Value):
    """Whether the expressions fit the kinds that the policy matches.

    expression_warnings: those that do not.
    """

    expression_warnings: Annotated[tuple[ExpressionWarning, ...], pb(1)] = ()


class ValidatingAdmissionPolicyStatus(Value):
    """What a controller found out about the policy.

    observed_generation: of the spec that it looked at. type_checking: set once that is done. conditions: nobody sets
    any.
    """

    observed_generation: Annotated[Int64, pb(1)] = 0
    type_checking: Annotated[TypeChecking | None, pb(2)] = None
    conditions: Annotated[tuple[Condition, ...], pb(3, list_keys="type")] = ()


class ValidatingAdmissionPolicy(ApiObject):
    """What must be true of requests, in CEL. Does nothing without a binding. Cluster scoped."""

    spec: Annotated[ValidatingAdmissionPolicySpec, pb(2)] = always(ValidatingAdmissionPolicySpec())
    status: Annotated[ValidatingAdmissionPolicyStatus, pb(3)] = always(ValidatingAdmissionPolicyStatus())


# Defaults ---------------------------------------------------------------------------------------------------


def prepare_policy(new: ValidatingAdmissionPolicy) -> ValidatingAdmissionPolicy:
    return replace(new, spec=_policy_defaults(new.spec), status=ValidatingAdmissionPolicyStatus())


def prepare_policy_update(new: ValidatingAdmissionPolicy, old: ValidatingAdmissionPolicy) -> ValidatingAdmissionPolicy:
    return replace(new, spec=_policy_defaults(new.spec), status=old.status)


def _policy_defaults(spec: ValidatingAdmissionPolicySpec) -> ValidatingAdmissionPolicySpec:
    match = spec.match_constraints
    return replace(
        spec,
        failure_policy=FAIL if spec.failure_policy is None else spec.failure_policy,
        match_constraints=None if match is None else with_defaults(match),
    )


def prepare_policy_status(new: ValidatingAdmissionPolicy, old: ValidatingAdmissionPolicy) -> ValidatingAdmissionPolicy:
    return replace(old, metadata=status_metadata(new.metadata, old.metadata), status=new.status)


# What is wrong ----------------------------------------------------------------------------------------------


def validate_policy(policy: ValidatingAdmissionPolicy) -> Errors:
    found = validate_object_meta(policy.metadata, namespaced=False, any_finalizers=True)
    return found + _validate_policy_spec(policy.metadata, policy.spec)


def validate_policy_update(new: ValidatingAdmissionPolicy, old: ValidatingAdmissionPolicy) -> Errors:
    found = validate_object_meta_update(new.metadata, old.metadata, any_finalizers=True)
    # What could be stored once is no reason to refuse changes of something else.
    judged = (new.spec.param_kind, new.spec.match_conditions) != (old.spec.param_kind, old.spec.match_conditions)
    return found + _validate_policy_spec(new.metadata, new.spec, conditions=judged)


def _validate_policy_spec(
    metadata: ObjectMeta, spec: ValidatingAdmissionPolicySpec, *, conditions: bool = True
) -> Errors:
    has_params = spec.param_kind is not None
    found = validate_choice(spec.failure_policy, SPEC.child("failurePolicy"), FAILURE_POLICIES)
    if spec.param_kind is not None:
        found += validate_param_kind(spec.param_kind, SPEC.child("paramKind"))
    found += validate_constraints(spec.match_constraints, SPEC.child("matchConstraints"))
    if conditions:
        found += validate_match_conditions(spec.match_conditions, SPEC.child("matchConditions"), params=has_params)
    composition = Composition(params=has_params, composed=bool(spec.variables))
    found += validate_list(spec.variables, SPEC.child("variables"), partial(validate_variable, composition))
    if not spec.validations and not spec.audit_annotations:
        message = "validations or auditAnnotations must contain at least one item"
        return [*found, required(SPEC.child("validations"), message), required(SPEC.child("auditAnnotations"), message)]
    found += validate_list(spec.validations, SPEC.child("validations"), partial(_validate_validation, composition))
    return found + _validate_annotations(metadata.name, spec, composition)


def validate_constraints(match: MatchResources | None, path: Path) -> Errors:
    if match is None:
        return [required(path)]
    found = validate_match(match, path)
    return found if match.resource_rules else [*found, required(path.child("resourceRules"))]


def validate_param_kind(kind: ParamKind, path: Path) -> Errors:
    found = _validate_api_version(kind.api_version, path.child("apiVersion"))
    if not kind.kind:
        return [*found, required(path.child("kind"))]
    messages = check_dns_1035_label(kind.kind.lower())
    if messages:
        detail = f"may have mixed case, but should otherwise match: {','.join(messages)}"
        found.append(invalid(path.child("kind"), kind.kind, detail))
    return found


def _validate_api_version(text: str, path: Path) -> Errors:
    if not text:
        return [required(path)]
    if text.count("/") > 1:
        return [invalid(path, text, f"unexpected GroupVersion string: {text}")]
    group, _, version = text.rpartition("/")
    found = [
        invalid(path, group, ",".join(messages)) for messages in [check_dns_subdomain(group)] if group and messages
    ]
    if not version:
        return [*found, invalid(path, text, "version must be specified")]
    messages = check_dns_1035_label(version)
    return [*found, invalid(path, version, ",".join(messages))] if messages else found


def validate_variable(composition: Composition, variable: Variable, path: Path) -> Errors:
    found: Errors = []
    name = path.child("name")
    if not variable.name.strip():
        found.append(required(name, "name is not specified"))
    elif not _IDENTIFIER.fullmatch(variable.name) or variable.name in _RESERVED:
        found.append(invalid(name, variable.name, "must be a valid CEL identifier"))

    return found + validate_expression(
        variable.expression,
        path.child("expression"),
        partial(composition.add, variable.name),
        shown=variable.expression,
        missing="expression is not specified",
    )


def _validate_validation(composition: Composition, validation: Validation, path: Path) -> Errors:
    found = validate_expression(
        validation.expression,
        path.child("expression"),
        lambda text: composition.compile(text, BOOLEAN),
        shown=validation.expression,
        missing="expression is not specified",
    )
    found += _validate_message_expression(composition, validation.message_expression, path.child("messageExpression"))
    message, at = validation.message, path.child("message")
    if message and not message.strip():
        found.append(invalid(at, message, "must be non-empty if specified"))
    elif re.search(r"[\n\r]", message.strip()):
        found.append(invalid(at, message, "must not contain line breaks"))
    if validation.reason is not None and validation.reason not in REASONS:
        found.append(not_supported(path.child("reason"), validation.reason, REASONS))
    return found


def _validate_message_expression(composition: Composition, expression: str, path: Path) -> Errors:
    if not expression:
        return []
    if not expression.strip():
        return [invalid(path, expression, "must be non-empty if specified")]
    return validate_expression(
        expression, path, lambda text: composition.compile(text, TEXT, authorizer=False), shown=expression
    )


def _validate_annotations(name: str, spec: ValidatingAdmissionPolicySpec, composition: Composition) -> Errors:
    path, annotations = SPEC.child("auditAnnotations"), spec.audit_annotations
    found: Errors = []
    if len(annotations) > ANNOTATIONS_MAX:
        found.append(invalid(path, annotations, f"must not have more than {ANNOTATIONS_MAX} auditAnnotations"))
    for position, annotation in enumerate(annotations):
        found += _validate_annotation(name, annotation, composition, path.at(position))
        if annotation.key in [other.key for other in annotations[:position]]:
            found.append(duplicate(path.at(position).child("key"), annotation.key))
    return found


def _validate_annotation(name: str, annotation: AuditAnnotation, composition: Composition, path: Path) -> Errors:
    key, at = path.child("key"), path.child("valueExpression")
    if name:
        qualified = f"{name}/{annotation.key}"
        found = each(check_label_key(qualified), key, qualified)
    else:
        found = [invalid(key, annotation.key, "requires metadata.name be non-empty")]
    expression = annotation.value_expression
    if len(expression.strip()) > VALUE_EXPRESSION_MAX:
        return [*found, required(at, f"must not exceed {VALUE_EXPRESSION_MAX} bytes in length")]
    return found + validate_expression(
        expression.strip(),
        at,
        lambda text: composition.compile(text, TEXT_OR_NULL),
        shown=expression,
        missing="valueExpression is not specified",
    )


def validate_policy_status(new: ValidatingAdmissionPolicy, _old: ValidatingAdmissionPolicy) -> Errors:
    checking, path = new.status.type_checking, STATUS.child("typeChecking", "expressionWarnings")
    warnings: Sequence[ExpressionWarning] = checking.expression_warnings if checking is not None else ()
    found = validate_list(warnings, path, _validate_warning)
    return found + validate_conditions(new.status.conditions, STATUS.child("conditions"))


def _validate_warning(warning: ExpressionWarning, path: Path) -> Errors:
    texts = {"warning": warning.warning, "fieldRef": warning.field_ref.strip()}
    return [required(path.child(name)) for name, text in texts.items() if not text]


# Kind -----------------------------------------------------------------------------------------------------------------


def param_kind_cell(policy: Any, _now: float) -> str:
    kind = policy.spec.param_kind
    return "<unset>" if kind is None else f"{kind.api_version}/{kind.kind}"


POLICY = Kind(
    group=GROUP,
    version=VERSION,
    plural="validatingadmissionpolicies",
    categories=("api-extensions",),
    namespaced=False,
    type=ValidatingAdmissionPolicy,
    prepare_create=prepare_policy,
    prepare_update=prepare_policy_update,
    validate_create=validate_policy,
    validate_update=validate_policy_update,
    subresources={"status": Subresource(prepare_update=prepare_policy_status, validate_update=validate_policy_status)},
    columns=(
        NAME_COLUMN,
        Column(
            name="Validations",
            type="integer",
            description="How many validations the policy has",
            cell=lambda policy, _now: len(policy.spec.validations),
        ),
        Column(name="ParamKind", description="The kind of its parameters", cell=param_kind_cell),
        AGE_COLUMN,
    ),
    generation_of=lambda policy: policy.spec,
    description="Conditions that requests must meet, in CEL.",
)
