"""MutatingAdmissionPolicy and its binding, as the API server serves them. PURE.

Sources: k8s.io/api/admissionregistration/v1; pkg/apis/admissionregistration/{v1/defaults.go,validation/validation.go}.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated

from msgspec.structs import replace

from manciple.admission.environment import OBJECT_TYPE, PATCH_TYPE, mutating
from manciple.admission.expressions import Composition, Returns
from manciple.admission.kinds.bindings import ParamRef, param_ref_cell, validate_reference
from manciple.admission.kinds.policies import (
    ParamKind,
    Variable,
    param_kind_cell,
    validate_constraints,
    validate_param_kind,
    validate_variable,
)
from manciple.admission.kinds.rules import (
    ALL,
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
from manciple.admission.kinds.webhooks import REINVOCATION_POLICIES
from manciple.cel.types import list_of
from manciple.wire.base import ApiObject, Value, always, pb
from manciple.wire.errors import invalid, not_supported, required
from manciple.wire.registry import Column, Conversion, Kind
from manciple.wire.tables import AGE_COLUMN, NAME_COLUMN
from manciple.wire.validation import (
    SPEC,
    Errors,
    Path,
    validate_list,
    validate_object_meta,
    validate_object_meta_update,
)

PACKAGE = "io.k8s.api.admissionregistration.v1"

APPLY_CONFIGURATION, JSON_PATCH = "ApplyConfiguration", "JSONPatch"
PATCH_TYPES = (APPLY_CONFIGURATION, JSON_PATCH)
#: A deletion has no object to be changed.
OPERATIONS = (ALL, "CONNECT", "CREATE", "UPDATE")
#: What the expression of a patch gives, by its type.
RETURNS: dict[str, Returns] = {APPLY_CONFIGURATION: (OBJECT_TYPE,), JSON_PATCH: (list_of(PATCH_TYPE),)}

# Types ----------------------------------------------------------------------------------------------------------------


class ApplyConfiguration(Value):
    """What the object is merged with, as by server-side apply.

    expression: CEL that gives an Object{}; knows object, oldObject, request, params, namespaceObject, variables,
    authorizer and authorizer.requestResource.
    """

    expression: Annotated[str, pb(1)] = ""


class JSONPatch(Value):
    """Operations on the object.

    expression: CEL that gives a list of JSONPatch{}; knows object, oldObject, request, params, namespaceObject,
    variables, authorizer and authorizer.requestResource.
    """

    expression: Annotated[str, pb(1)] = ""


class Mutation(Value):
    """One change.

    patch_type: ApplyConfiguration or JSONPatch. apply_configuration: for the former. json_patch: for the latter.
    """

    patch_type: Annotated[str, pb(2)] = always("")
    apply_configuration: Annotated[ApplyConfiguration | None, pb(3)] = None
    json_patch: Annotated[JSONPatch | None, pb(4)] = None

    @property
    def expression(self) -> str:
        patch = self.apply_configuration if self.patch_type == APPLY_CONFIGURATION else self.json_patch
        return "" if patch is None else patch.expression.strip()


class MutatingAdmissionPolicySpec(Value):
    """What a policy changes in which requests.

    param_kind: of the objects that bindings may name as parameters. match_constraints: the requests it is asked about.
    variables: values that the expressions share. mutations: the changes, in order. failure_policy: whether an error
    refuses the request (Fail, the default) or not (Ignore). match_conditions: further conditions on requests.
    reinvocation_policy: whether it is asked again where others have changed the object after it (IfNeeded) or not
    (Never).
    """

    param_kind: Annotated[ParamKind | None, pb(1)] = None
    match_constraints: Annotated[MatchResources | None, pb(2)] = None
    variables: Annotated[tuple[Variable, ...], pb(3, merge_key="name")] = ()
    mutations: Annotated[tuple[Mutation, ...], pb(4)] = ()
    failure_policy: Annotated[str | None, pb(5)] = None
    match_conditions: Annotated[tuple[MatchCondition, ...], pb(6, merge_key="name")] = ()
    reinvocation_policy: Annotated[str, pb(7)] = ""


class MutatingAdmissionPolicy(ApiObject):
    """Changes that are made to requests, in CEL. Does nothing without a binding. Cluster scoped."""

    spec: Annotated[MutatingAdmissionPolicySpec, pb(2)] = always(MutatingAdmissionPolicySpec())


class MutatingAdmissionPolicyBindingSpec(Value):
    """Which policy, with which parameters, for which requests.

    policy_name: of the policy. param_ref: its parameters. match_resources: narrows what the policy matches.
    """

    policy_name: Annotated[str, pb(1)] = ""
    param_ref: Annotated[ParamRef | None, pb(2)] = None
    match_resources: Annotated[MatchResources | None, pb(3)] = None


class MutatingAdmissionPolicyBinding(ApiObject):
    """Puts a mutating policy into effect. Cluster scoped."""

    spec: Annotated[MutatingAdmissionPolicyBindingSpec, pb(2)] = always(MutatingAdmissionPolicyBindingSpec())


# Defaults -------------------------------------------------------------------------------------------------------------


def prepare_policy(new: MutatingAdmissionPolicy) -> MutatingAdmissionPolicy:
    spec, match = new.spec, new.spec.match_constraints
    completed = replace(
        spec,
        failure_policy=FAIL if spec.failure_policy is None else spec.failure_policy,
        match_constraints=None if match is None else with_defaults(match),
    )
    return replace(new, spec=completed)


def prepare_binding(new: MutatingAdmissionPolicyBinding) -> MutatingAdmissionPolicyBinding:
    match = new.spec.match_resources
    return new if match is None else replace(new, spec=replace(new.spec, match_resources=with_defaults(match)))


# What is wrong --------------------------------------------------------------------------------------------------------


def validate_policy(policy: MutatingAdmissionPolicy) -> Errors:
    return validate_object_meta(policy.metadata, namespaced=False, any_finalizers=True) + _validate_spec(policy.spec)


def validate_policy_update(new: MutatingAdmissionPolicy, old: MutatingAdmissionPolicy) -> Errors:
    found = validate_object_meta_update(new.metadata, old.metadata, any_finalizers=True)
    # What could be stored once is no reason to refuse changes of something else.
    judged = (new.spec.param_kind, new.spec.match_conditions) != (old.spec.param_kind, old.spec.match_conditions)
    return found + _validate_spec(new.spec, conditions=judged)


def _validate_spec(spec: MutatingAdmissionPolicySpec, *, conditions: bool = True) -> Errors:
    has_params = spec.param_kind is not None
    found = validate_choice(spec.failure_policy, SPEC.child("failurePolicy"), FAILURE_POLICIES)
    if spec.param_kind is not None:
        found += validate_param_kind(spec.param_kind, SPEC.child("paramKind"))
    found += validate_constraints(spec.match_constraints, SPEC.child("matchConstraints"))
    found += _validate_operations(spec.match_constraints, SPEC.child("matchConstraints"))
    if conditions:
        found += validate_match_conditions(spec.match_conditions, SPEC.child("matchConditions"), params=has_params)
    composition = Composition(params=has_params, composed=bool(spec.variables), typed=mutating)
    found += validate_list(spec.variables, SPEC.child("variables"), partial(validate_variable, composition))
    if not spec.mutations:
        found.append(required(SPEC.child("mutations"), "mutations must contain at least one item"))
    found += validate_list(spec.mutations, SPEC.child("mutations"), partial(_validate_mutation, composition))
    if not spec.reinvocation_policy:
        return [*found, required(SPEC.child("reinvocationPolicy"))]
    return found + validate_choice(spec.reinvocation_policy, SPEC.child("reinvocationPolicy"), REINVOCATION_POLICIES)


def _validate_operations(match: MatchResources | None, path: Path) -> Errors:
    rules: Sequence[MatchResources | object] = () if match is None else match.resource_rules
    where = path.child("resourceRules", "operations")
    given = (operation for rule in rules for operation in getattr(rule, "operations", ()))
    return [not_supported(where, operation, OPERATIONS) for operation in given if operation not in OPERATIONS]


def _validate_mutation(composition: Composition, mutation: Mutation, path: Path) -> Errors:
    if not mutation.patch_type:
        return [required(path.child("patchType"))]
    if mutation.patch_type not in PATCH_TYPES:
        return [not_supported(path.child("patchType"), mutation.patch_type, PATCH_TYPES)]
    patches = {"applyConfiguration": mutation.apply_configuration, "jsonPatch": mutation.json_patch}
    own, other = patches if mutation.patch_type == APPLY_CONFIGURATION else reversed(patches)
    found: Errors = []
    if patches[own] is None:
        found.append(required(path.child(own), f"must be specified when patchType is {mutation.patch_type}"))
    else:
        found += validate_expression(
            mutation.expression,
            path.child(own, "expression"),
            lambda text: composition.compile(text, RETURNS[mutation.patch_type]),
            shown=mutation.expression,
        )
    if patches[other] is not None:
        message = f"must not be specified when patchType is {mutation.patch_type}"
        found.append(invalid(path.child(other), f"{{{other}}}", message))
    return found


def validate_binding(binding: MutatingAdmissionPolicyBinding) -> Errors:
    found = validate_object_meta(binding.metadata, namespaced=False, any_finalizers=True)
    return found + _validate_binding_spec(binding.spec)


def validate_binding_update(new: MutatingAdmissionPolicyBinding, old: MutatingAdmissionPolicyBinding) -> Errors:
    found = validate_object_meta_update(new.metadata, old.metadata, any_finalizers=True)
    return found + _validate_binding_spec(new.spec)


def _validate_binding_spec(spec: MutatingAdmissionPolicyBindingSpec) -> Errors:
    found = validate_reference(spec.policy_name, spec.param_ref)
    path = SPEC.child("matchResources")
    if spec.match_resources is not None:
        found += validate_match(spec.match_resources, path)
    return found + _validate_operations(spec.match_resources, path)


# Kinds ----------------------------------------------------------------------------------------------------------------


def _same(version: str) -> Conversion:
    """A version that differs from the stored one in its name alone."""
    return Conversion(
        to_storage=lambda document: {**document, "apiVersion": f"{GROUP}/{VERSION}"},
        from_storage=lambda document: {**document, "apiVersion": f"{GROUP}/{version}"},
    )


_VERSIONS = {version: _same(version) for version in ("v1beta1", "v1alpha1")}

MUTATING_POLICY = Kind(
    group=GROUP,
    version=VERSION,
    plural="mutatingadmissionpolicies",
    categories=("api-extensions",),
    namespaced=False,
    type=MutatingAdmissionPolicy,
    prepare_create=prepare_policy,
    prepare_update=lambda new, _old: prepare_policy(new),
    validate_create=validate_policy,
    validate_update=validate_policy_update,
    columns=(
        NAME_COLUMN,
        Column(
            name="Mutations",
            type="integer",
            description="How many changes the policy makes",
            cell=lambda policy, _now: len(policy.spec.mutations),
        ),
        Column(name="ParamKind", description="The kind of its parameters", cell=param_kind_cell),
        AGE_COLUMN,
    ),
    generation_of=lambda policy: policy.spec,
    served_versions=_VERSIONS,
    description="Changes that are made to requests, in CEL.",
)

MUTATING_BINDING = Kind(
    group=GROUP,
    version=VERSION,
    plural="mutatingadmissionpolicybindings",
    categories=("api-extensions",),
    namespaced=False,
    type=MutatingAdmissionPolicyBinding,
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
    served_versions=_VERSIONS,
    description="Puts a mutating policy into effect.",
)
