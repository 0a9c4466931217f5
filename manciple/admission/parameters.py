"""Whoever lets a policy read parameters may read them himself: else its messages would tell him what is in them.

A check of the first stage for the policies and bindings themselves, asked after their validation.
Sources: pkg/registry/admissionregistration/{validatingadmissionpolicy,validatingadmissionpolicybinding}/authz.go.
"""

from __future__ import annotations

from typing import cast

from manciple.access.authorization import Attributes, decide
from manciple.admission.kinds.bindings import BINDING, ParamRef, ValidatingAdmissionPolicyBindingSpec
from manciple.admission.kinds.mutating_policies import (
    MUTATING_BINDING,
    MUTATING_POLICY,
    MutatingAdmissionPolicy,
    MutatingAdmissionPolicyBindingSpec,
)
from manciple.admission.kinds.policies import POLICY, ParamKind, ValidatingAdmissionPolicy
from manciple.admission.requests import served_kind
from manciple.store import objects
from manciple.store.hooks import Write
from manciple.wire.errors import Invalid, forbidden
from manciple.wire.identity import Identity
from manciple.wire.registry import Kind

AnyBindingSpec = ValidatingAdmissionPolicyBindingSpec | MutatingAdmissionPolicyBindingSpec

CHECKED = tuple(kind.resource for kind in (POLICY, BINDING, MUTATING_POLICY, MUTATING_BINDING))
_POLICY_OF = {BINDING.resource: POLICY, MUTATING_BINDING.resource: MUTATING_POLICY}


def check(write: Write) -> None:
    """Raises: Invalid, 422 as upstream, whose strategies ask this while they validate."""
    if write.new is None or write.subresource:
        return
    if write.kind in (POLICY, MUTATING_POLICY):
        field, why = "spec.paramKind", _of_policy(write)
    else:
        field, why = "spec.paramRef", _of_binding(write)
    if why:
        kind, name = write.kind, write.new.metadata.name
        raise Invalid.of(kind=kind.kind, group=kind.group, name=name, errors=[forbidden(field, why)])


def _of_policy(write: Write) -> str:
    """Why not; "" where nothing speaks against it."""
    wanted: ParamKind | None = write.new.spec.param_kind
    before = None if write.old is None else write.old.spec.param_kind
    if wanted is None or wanted == before:
        return ""
    group, version, resource = _resource(wanted)
    reading = Attributes(verb="get", group=group, version=version, resource=resource, namespace="*", name="*")
    if decide(write.identity, reading).allowed:
        return ""
    return (
        f'user {_written(write.identity)} must have "get" permission on all objects of the referenced paramKind '
        f"(kind={wanted.kind}, apiVersion={wanted.api_version})"
    )


def _of_binding(write: Write) -> str:
    """Why not; "" where nothing speaks against it."""
    spec: AnyBindingSpec = write.new.spec
    reference = spec.param_ref
    if reference is None or (write.old is not None and _references(write.old.spec) == _references(spec)):
        return ""
    policy = _policy(_POLICY_OF[write.kind.resource], spec.policy_name)
    kind = None if policy is None else policy.spec.param_kind
    group, version, resource = ("*", "*", "*") if kind is None else _resource(kind)
    verb = "get" if reference.name else "list"
    reading = Attributes(
        verb=verb,
        group=group,
        version=version,
        resource=resource,
        namespace=reference.namespace,
        name=reference.name,
    )
    if decide(write.identity, reading).allowed:
        return ""
    user = _written(write.identity)
    everything = f'user {user} does not have "{verb}" permission for all groups, versions and resources'
    if policy is None:
        return f"unable to get policy {spec.policy_name} to determine minimum required permissions and {everything}"
    if kind is not None and resource == "*":
        unknown = f"&ParamKind{{APIVersion:{kind.api_version},Kind:{kind.kind},}}"
        return f"unable to resolve paramKind {unknown} to determine minimum required permissions and {everything}"
    return f'user {user} does not have "{verb}" permission on the object referenced by paramRef'


def _references(spec: AnyBindingSpec) -> tuple[str, ParamRef | None]:
    return spec.policy_name, spec.param_ref


def _policy(kind: Kind, name: str) -> ValidatingAdmissionPolicy | MutatingAdmissionPolicy | None:
    stored = objects.get(kind, "", name)
    return None if stored is None else cast("ValidatingAdmissionPolicy", objects.decode(kind, stored.text))


def _resource(kind: ParamKind) -> tuple[str, str, str]:
    """(group, version, resource) to be read; resource "*" where nothing is served as the kind."""
    group, _, version = kind.api_version.rpartition("/")
    served = served_kind(kind.api_version, kind.kind)
    return group, version, "*" if served is None else served.kind.plural


def _written(identity: Identity) -> str:
    """As the reference writes somebody."""
    extra = " ".join(f"{key}:[{' '.join(values)}]" for key, values in sorted(identity.extra))
    return f"&{{{identity.name} {identity.uid} [{' '.join(identity.groups)}] map[{extra}]}}"
