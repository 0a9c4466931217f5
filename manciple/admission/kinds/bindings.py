"""ValidatingAdmissionPolicyBinding, as the API server serves it. PURE.

Sources: k8s.io/api/admissionregistration/v1; pkg/apis/admissionregistration/{v1/defaults.go,validation/validation.go}.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

from msgspec.structs import replace

from manciple.admission.kinds.rules import (
    GROUP,
    VERSION,
    MatchResources,
    validate_match,
    with_defaults,
)
from manciple.wire.base import ApiObject, LabelSelector, Value, always, pb
from manciple.wire.errors import duplicate, forbidden, invalid, not_supported, required
from manciple.wire.registry import Column, Kind
from manciple.wire.selectors import validate_label_selector
from manciple.wire.tables import AGE_COLUMN, NAME_COLUMN
from manciple.wire.validation import (
    SPEC,
    Errors,
    Path,
    check_object_name,
    check_path_segment,
    each,
    validate_object_meta,
    validate_object_meta_update,
)

PACKAGE = "io.k8s.api.admissionregistration.v1"

#: What a violation leads to.
DENY, WARN, AUDIT = "Deny", "Warn", "Audit"
ACTIONS = (AUDIT, DENY, WARN)
#: What becomes of requests without parameters: DENY or this.
ALLOW = "Allow"

# Types ----------------------------------------------------------------------------------------------------------------


class ParamRef(Value):
    """The parameters that a policy is bound with.

    name: of one object; or selector. namespace: where the parameters are; the request's own where it is empty.
    selector: the labels of several objects, with each of which the policy is evaluated. parameter_not_found_action:
    what becomes of requests when there are none: Allow or Deny.
    """

    ATOMIC: ClassVar = True

    name: Annotated[str, pb(1)] = ""
    namespace: Annotated[str, pb(2)] = ""
    selector: Annotated[LabelSelector | None, pb(3)] = None
    parameter_not_found_action: Annotated[str | None, pb(4)] = None


class ValidatingAdmissionPolicyBindingSpec(Value):
    """Which policy, with which parameters, for which requests, and what a violation leads to.

    policy_name: of the policy. param_ref: its parameters. match_resources: narrows what the policy matches.
    validation_actions: Deny refuses the request, Warn tells the client, Audit tells the audit trail.
    """

    policy_name: Annotated[str, pb(1)] = ""
    param_ref: Annotated[ParamRef | None, pb(2)] = None
    match_resources: Annotated[MatchResources | None, pb(3)] = None
    validation_actions: Annotated[tuple[str, ...], pb(4, merge_key="*")] = ()


class ValidatingAdmissionPolicyBinding(ApiObject):
    """Puts a policy into effect. Cluster scoped."""

    spec: Annotated[ValidatingAdmissionPolicyBindingSpec, pb(2)] = always(ValidatingAdmissionPolicyBindingSpec())


# Defaults, and what is wrong ------------------------------------------------------------------------------------------


def prepare_binding(new: ValidatingAdmissionPolicyBinding) -> ValidatingAdmissionPolicyBinding:
    match = new.spec.match_resources
    return new if match is None else replace(new, spec=replace(new.spec, match_resources=with_defaults(match)))


def validate_binding(binding: ValidatingAdmissionPolicyBinding) -> Errors:
    return validate_object_meta(binding.metadata, namespaced=False, any_finalizers=True) + _validate_binding_spec(
        binding.spec
    )


def validate_binding_update(new: ValidatingAdmissionPolicyBinding, old: ValidatingAdmissionPolicyBinding) -> Errors:
    return validate_object_meta_update(new.metadata, old.metadata, any_finalizers=True) + _validate_binding_spec(
        new.spec
    )


def _validate_binding_spec(spec: ValidatingAdmissionPolicyBindingSpec) -> Errors:
    found = validate_reference(spec.policy_name, spec.param_ref)
    if spec.match_resources is not None:
        found += validate_match(spec.match_resources, SPEC.child("matchResources"))
    return found + _validate_actions(spec.validation_actions, SPEC.child("validationActions"))


def validate_reference(policy: str, params: ParamRef | None) -> Errors:
    """What a binding names."""
    path = SPEC.child("policyName")
    found = each(check_object_name(policy), path, policy) if policy else [required(path)]
    return found if params is None else found + _validate_param_ref(params, SPEC.child("paramRef"))


def _validate_param_ref(reference: ParamRef, path: Path) -> Errors:
    exclusive = "name and selector are mutually exclusive"
    both = bool(reference.name) and reference.selector is not None
    found = each(check_path_segment(reference.name), path.child("name"), reference.name)
    found += [forbidden(path.child("name"), exclusive)] if both else []
    found += validate_label_selector(reference.selector, path.child("selector"))
    found += [forbidden(path.child("selector"), exclusive)] if both else []
    if not reference.name and reference.selector is None:
        found.append(required(path, "one of name or selector must be specified"))
    action, at = reference.parameter_not_found_action, path.child("parameterNotFoundAction")
    if not action:
        found.append(required(at))
    elif action not in (DENY, ALLOW):
        found.append(not_supported(at, action, (DENY, ALLOW)))
    return found


def _validate_actions(actions: Sequence[str], path: Path) -> Errors:
    found: Errors = []
    for position, action in enumerate(actions):
        if action not in ACTIONS:
            found.append(not_supported(path.at(position), action, ACTIONS))
        if action in actions[:position]:
            found.append(duplicate(path.at(position), action))
    if DENY in actions and WARN in actions:
        message = (
            "must not contain both Deny and Warn (repeating the same validation failure information in the API "
            "response and headers serves no purpose)"
        )
        found.append(invalid(path, actions, message))
    return found if actions else [*found, required(path, "at least one validation action is required")]


# Kind -----------------------------------------------------------------------------------------------------------------


def param_ref_cell(binding: Any, _now: float) -> str:
    reference = binding.spec.param_ref
    if reference is None:
        return "<unset>"
    if reference.name:
        return f"{reference.namespace or '*'}/{reference.name}"
    return "<unset>" if reference.selector is None else _selector_text(reference.selector)


def _selector_text(selector: LabelSelector) -> str:
    """As Go prints one."""
    labels = "".join(f"{key}: {value}," for key, value in sorted(selector.match_labels.items()))
    requirements = "".join(
        f"LabelSelectorRequirement{{Key:{one.key},Operator:{one.operator},Values:[{' '.join(one.values)}],}},"
        for one in selector.match_expressions
    )
    return (
        f"&LabelSelector{{MatchLabels:map[string]string{{{labels}}},"
        f"MatchExpressions:[]LabelSelectorRequirement{{{requirements}}},}}"
    )


BINDING = Kind(
    group=GROUP,
    version=VERSION,
    plural="validatingadmissionpolicybindings",
    categories=("api-extensions",),
    namespaced=False,
    type=ValidatingAdmissionPolicyBinding,
    prepare_create=prepare_binding,
    prepare_update=lambda new, _old: prepare_binding(new),
    validate_create=validate_binding,
    validate_update=validate_binding_update,
    columns=(
        NAME_COLUMN,
        Column(
            name="PolicyName",
            description="The policy that is put into effect",
            cell=lambda binding, _now: binding.spec.policy_name,
        ),
        Column(name="ParamRef", description="Its parameters", cell=param_ref_cell),
        AGE_COLUMN,
    ),
    generation_of=lambda binding: binding.spec,
    description="Puts a policy into effect.",
)
