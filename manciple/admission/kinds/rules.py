"""Which requests a policy, a binding or a webhook is asked about: types, defaults, and what is wrong with them. PURE.

Sources: k8s.io/api/admissionregistration/v1; pkg/apis/admissionregistration/validation/validation.go.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Annotated, ClassVar, TypeVar

from msgspec.structs import replace

from manciple.admission.expressions import compile_condition
from manciple.cel.errors import CompileError
from manciple.wire.base import LabelSelector, Value, always, pb
from manciple.wire.errors import duplicate, invalid, not_supported, required, too_many
from manciple.wire.limits import check_time
from manciple.wire.selectors import validate_label_selector
from manciple.wire.validation import Errors, Path, check_label_key, check_path_segment, each, required_or, validate_list

GROUP, VERSION = "admissionregistration.k8s.io", "v1"
PACKAGE = f"io.k8s.api.admissionregistration.{VERSION}"

ALL = "*"
FAIL, IGNORE = "Fail", "Ignore"
EXACT, EQUIVALENT = "Exact", "Equivalent"
CLUSTER, NAMESPACED = "Cluster", "Namespaced"
OPERATIONS = (ALL, "CONNECT", "CREATE", "DELETE", "UPDATE")
FAILURE_POLICIES = (FAIL, IGNORE)
MATCH_POLICIES = (EQUIVALENT, EXACT)
SCOPES = (ALL, CLUSTER, NAMESPACED)

EVERYTHING = LabelSelector()

# Types ----------------------------------------------------------------------------------------------------------------


class AdmissionRule(Value):
    """Resources: in all groups, versions and scopes named here.

    api_groups: of the resources; "*" is all. api_versions: in which they are written; "*" is all. resources: plural
    names; "pods/status" is a subresource, "pods/*" all of them, "*" all resources without subresources, "*/*" all with
    them. scope: Cluster, Namespaced, or "*" for both.
    """

    SCHEMA: ClassVar = f"{PACKAGE}.Rule"

    api_groups: Annotated[tuple[str, ...], pb(1)] = ()
    api_versions: Annotated[tuple[str, ...], pb(2)] = ()
    resources: Annotated[tuple[str, ...], pb(3)] = ()
    scope: Annotated[str | None, pb(4)] = None


class RuleWithOperations(AdmissionRule):
    """What is done to which resources.

    operations: CREATE, UPDATE, DELETE, CONNECT, or "*" for all.
    """

    EMBEDS: ClassVar = (AdmissionRule, 2)

    operations: Annotated[tuple[str, ...], pb(1)] = ()


class NamedRuleWithOperations(RuleWithOperations):
    """What is done to which objects.

    resource_names: of single objects; none means all.
    """

    EMBEDS: ClassVar = (RuleWithOperations, 2)
    ATOMIC: ClassVar = True

    resource_names: Annotated[tuple[str, ...], pb(1)] = ()


class MatchResources(Value):
    """Requests: all conditions must hold.

    namespace_selector: the labels of the object's namespace, or of a namespace itself; objects of the cluster match
    always. object_selector: the labels of the object before or after. resource_rules: one of them must match.
    exclude_resource_rules: none of them may. match_policy: Equivalent looks at every version in which the object can be
    written, Exact only at the one of the request.
    """

    ATOMIC: ClassVar = True

    namespace_selector: Annotated[LabelSelector | None, pb(1)] = None
    object_selector: Annotated[LabelSelector | None, pb(2)] = None
    resource_rules: Annotated[tuple[NamedRuleWithOperations, ...], pb(3)] = ()
    exclude_resource_rules: Annotated[tuple[NamedRuleWithOperations, ...], pb(4)] = ()
    match_policy: Annotated[str | None, pb(7)] = None


class MatchCondition(Value):
    """A condition in CEL on requests that the rules matched.

    name: tells conditions apart. expression: CEL, gives a bool; knows object, oldObject, request and authorizer.
    """

    name: Annotated[str, pb(1)] = always("")
    expression: Annotated[str, pb(2)] = always("")


# Defaults -------------------------------------------------------------------------------------------------------------


Rule = TypeVar("Rule", bound=AdmissionRule)


def with_scope(rule: Rule) -> Rule:
    return rule if rule.scope is not None else replace(rule, scope=ALL)


def with_defaults(match: MatchResources) -> MatchResources:
    return replace(
        match,
        namespace_selector=EVERYTHING if match.namespace_selector is None else match.namespace_selector,
        object_selector=EVERYTHING if match.object_selector is None else match.object_selector,
        resource_rules=tuple(map(with_scope, match.resource_rules)),
        exclude_resource_rules=tuple(map(with_scope, match.exclude_resource_rules)),
        match_policy=EQUIVALENT if match.match_policy is None else match.match_policy,
    )


# What is wrong --------------------------------------------------------------------------------------------------------


def validate_choice(value: str | None, path: Path, choices: Collection[str]) -> Errors:
    """A field that has a default, and therefore a value."""
    if value is None:
        return [required(path)]
    return [] if value in choices else [not_supported(path, value, choices)]


def validate_match(match: MatchResources, path: Path) -> Errors:
    found = validate_choice(match.match_policy, path.child("matchPolicy"), MATCH_POLICIES)
    found += validate_label_selector(match.namespace_selector, path.child("namespaceSelector"))
    found += validate_label_selector(match.object_selector, path.child("objectSelector"))
    found += validate_list(match.resource_rules, path.child("resourceRules"), _validate_named_rule)
    return found + validate_list(match.exclude_resource_rules, path.child("excludeResourceRules"), _validate_named_rule)


def _validate_named_rule(rule: NamedRuleWithOperations, path: Path) -> Errors:
    names = path.child("resourceNames")
    found: Errors = []
    for position, name in enumerate(rule.resource_names):
        found += each(check_path_segment(name), names.at(position), name)
        if name in rule.resource_names[:position]:
            found.append(duplicate(names.at(position), name))
    return found + validate_rule(rule, path)


def validate_rule(rule: RuleWithOperations, path: Path) -> Errors:
    found = _validate_names(rule.operations, path.child("operations"), "operations")
    for position, operation in enumerate(rule.operations):
        if operation not in OPERATIONS:
            found.append(not_supported(path.child("operations").at(position), operation, OPERATIONS))
    found += _validate_names(rule.api_groups, path.child("apiGroups"), "API groups")
    found += _validate_names(rule.api_versions, path.child("apiVersions"), "API versions")
    found += [
        required(path.child("apiVersions").at(position))
        for position, version in enumerate(rule.api_versions)
        if not version
    ]
    found += _validate_resources(rule.resources, path.child("resources"))
    if rule.scope is not None and rule.scope not in SCOPES:
        found.append(not_supported(path.child("scope"), rule.scope, SCOPES))
    return found


def _validate_names(names: tuple[str, ...], path: Path, what: str) -> Errors:
    if not names:
        return [required(path)]
    if len(names) > 1 and ALL in names:
        return [invalid(path, names, f"if '*' is present, must not specify other {what}")]
    return []


def _validate_resources(resources: tuple[str, ...], path: Path) -> Errors:
    found: Errors = [] if resources else [required(path)]
    whole: set[str] = set()  # resources of which all subresources are named
    everywhere: set[str] = set()  # subresources that are named for all resources
    for position, text in enumerate(resources):
        resource, slash, subresource = text.partition("/")
        if not text:
            found.append(required(path.at(position)))
        if not slash:
            continue
        if resource in whole:
            found.append(invalid(path.at(position), text, f"if '{resource}/*' is present, must not specify {text}"))
        if subresource in everywhere:
            found.append(invalid(path.at(position), text, f"if '*/{subresource}' is present, must not specify {text}"))
        whole |= {resource} if subresource == ALL else set()
        everywhere |= {subresource} if resource == ALL else set()
    return found + _validate_wildcards(resources, path)


def _validate_wildcards(resources: tuple[str, ...], path: Path) -> Errors:
    found: Errors = []
    if len(resources) > 1 and "*/*" in resources:
        found.append(invalid(path, resources, "if '*/*' is present, must not specify other resources"))
    plain = [text for text in resources if text and "/" not in text]
    # The last one without a subresource decides, as upstream.
    if ALL in plain and plain[-1] != ALL:
        message = "if '*' is present, must not specify other resources without subresources"
        found.append(invalid(path, resources, message))
    return found


#: of one policy or webhook
CONDITIONS_MAX = 64


def validate_match_conditions(conditions: Sequence[MatchCondition], path: Path, *, params: bool) -> Errors:
    """params: whether they may name params."""
    found: Errors = []
    if len(conditions) > CONDITIONS_MAX:
        found.append(too_many(path, len(conditions), CONDITIONS_MAX))
    for position, condition in enumerate(conditions):
        at = path.at(position)
        expression = condition.expression.strip()
        found += validate_expression(
            expression, at.child("expression"), lambda text: compile_condition(text, params=params), shown=expression
        )
        found += required_or(check_label_key, condition.name, at.child("name"))
        if condition.name and condition.name in [other.name for other in conditions[:position]]:
            found.append(duplicate(at.child("name"), condition.name))
    return found


def validate_expression(
    expression: str, path: Path, compile_: Callable[[str], object], *, shown: str, missing: str = ""
) -> Errors:
    """shown: the expression as the error shows it. missing: what is said of an empty one. Raises: TimeLimitExceeded."""
    check_time()
    if not expression.strip():
        return [required(path, missing)]
    try:
        compile_(expression)
    except CompileError as error:
        return [invalid(path, shown, error.message)]
    return []
