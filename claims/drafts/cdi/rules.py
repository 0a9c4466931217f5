"""Rules of cdi.k8s.io/v1alpha1, and of the pods that use its claims: what may be created, and how a claim may change.

The phases of a claim are a state machine; `MOVES` is its table. The scheduler and the plugin both write the status:

    Pending     --(plugin: allocated)-->  Allocated  --(scheduler: wanted elsewhere)-->  Reallocate
    Reallocate  --(plugin: freed)------>  Pending

Source: KEP-3063, first draft, "API". What it leaves open is said where it is decided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from msgspec.structs import replace

from claims.drafts.cdi.values import (
    ALLOCATED,
    DELAYED,
    IMMEDIATE,
    PENDING,
    REALLOCATE,
    UNLIMITED,
    ResourceClaim,
    ResourceClaimStatus,
    ResourceClass,
    ResourcePlugin,
    spec_of,
    written_directly,
)
from claims.kinds.containers import Container
from claims.kinds.listed_claims import PodResource, PodResourceTemplate, ResourceClaimSpec
from claims.kinds.pods import Pod, claim_name, listed_resources
from claims.kinds.resource_claims import validate_template_meta
from inventory.kinds import gates
from inventory.kinds.device_rules import validate_driver_name
from inventory.kinds.node_rules import validate_node_selector
from manciple.wire.base import OwnerReference, Raw, status_metadata
from manciple.wire.errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_found,
    not_supported,
    required,
    too_many,
)
from manciple.wire.validation import (
    METADATA,
    SPEC,
    STATUS,
    Path,
    check_dns_label,
    check_dns_subdomain,
    each,
    required_or,
    validate_immutable,
    validate_object_meta,
    validate_object_meta_update,
    validate_set,
)

GATE = gates.CLAIMS_DRAFT
ALLOCATION_MODES = (DELAYED, IMMEDIATE)
#: phase -> the phases that may follow it
MOVES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"": (PENDING,), PENDING: (ALLOCATED,), ALLOCATED: (REALLOCATE,), REALLOCATE: (PENDING,)}
)

Errors = list[FieldError]


# Plugins and classes --------------------------------------------------------------------------------------------------


def validate_plugin(plugin: ResourcePlugin) -> Errors:
    """The name of the object is the plugin's."""
    found = validate_object_meta(plugin.metadata, namespaced=False)
    if plugin.metadata.name:
        found += validate_driver_name(plugin.metadata.name, METADATA.child("name"))
    return found + _validate_features(plugin)


def validate_plugin_update(new: ResourcePlugin, old: ResourcePlugin) -> Errors:
    return validate_object_meta_update(new.metadata, old.metadata) + _validate_features(new)


def _validate_features(plugin: ResourcePlugin) -> Errors:
    """Any name will do: "new features may be added over time and must be ignored by code that does not know them"."""
    return validate_set(
        plugin.features,
        Path("features"),
        lambda feature, path: (
            ([] if feature.name else [required(path.child("name"))])
            + _validate_parameters(feature.parameters, path.child("parameters"))
        ),
        key=lambda feature: feature.name,
    )


def validate_class(new: ResourceClass) -> Errors:
    found = validate_object_meta(new.metadata, namespaced=False)
    found += validate_driver_name(new.plugin_name, Path("pluginName"))
    return found + _validate_parameters(new.parameters, Path("parameters"))


def validate_class_update(new: ResourceClass, old: ResourceClass) -> Errors:
    found = validate_object_meta_update(new.metadata, old.metadata)
    found += validate_driver_name(new.plugin_name, Path("pluginName"))
    return found + _validate_parameters(new.parameters, Path("parameters"))


def _validate_parameters(parameters: Raw, path: Path) -> Errors:
    if parameters is None or isinstance(parameters, dict):
        return []
    return [invalid(path, parameters, "must be an object")]


# Claims ---------------------------------------------------------------------------------------------------------------


def with_defaults(spec: ResourceClaimSpec) -> ResourceClaimSpec:
    """Waiting for a pod is the default."""
    return replace(spec, allocation_mode=spec.allocation_mode or DELAYED)


def create_claim(new: ResourceClaim) -> ResourceClaim:
    """A new claim waits for its plugin; one pod may use it, until the plugin says otherwise."""
    return replace(new, spec=with_defaults(new.spec), status=ResourceClaimStatus(phase=PENDING, user_limit=1))


def update_claim(new: ResourceClaim, old: ResourceClaim) -> ResourceClaim:
    return replace(new, spec=with_defaults(new.spec), status=old.status)


def update_claim_status(new: ResourceClaim, old: ResourceClaim) -> ResourceClaim:
    """Spec and metadata stay. Of a resource that was freed nothing is left; nobody needs to clear it."""
    status = replace(new.status, phase=new.status.phase or PENDING, user_limit=new.status.user_limit or 1)
    if old.status.phase == REALLOCATE and status.phase == PENDING:
        status = replace(status, selected_node="", available_on_nodes=None, attributes={}, user_limit=1)
    if status.phase == ALLOCATED:
        status = replace(status, potential_nodes=(), suitable_nodes=())
    return replace(old, metadata=status_metadata(new.metadata, old.metadata), status=status)


def validate_claim(claim: ResourceClaim) -> Errors:
    return validate_object_meta(claim.metadata, namespaced=True) + validate_claim_spec(claim.spec, SPEC)


def validate_claim_update(new: ResourceClaim, old: ResourceClaim) -> Errors:
    found = validate_object_meta_update(new.metadata, old.metadata)
    return found + validate_immutable(new.spec, old.spec, SPEC)


def validate_claim_spec(spec: ResourceClaimSpec, path: Path) -> Errors:
    """The class need not exist: a plugin may ask for that at the door."""
    found = required_or(check_dns_subdomain, spec.resource_class_name, path.child("resourceClassName"))
    if spec.allocation_mode not in ("", *ALLOCATION_MODES):
        found.append(not_supported(path.child("allocationMode"), spec.allocation_mode, ALLOCATION_MODES))
    return found + _validate_parameters(spec.parameters, path.child("parameters"))


def validate_claim_status_update(new: ResourceClaim, old: ResourceClaim) -> Errors:
    """The phases in their order, users within the limit, and nothing taken away from users."""
    found = validate_object_meta_update(new.metadata, old.metadata)
    found += _validate_move(new, old)
    found += _validate_nodes(new.status)
    found += _validate_users(new, old)
    return found + _validate_plugin(new.status, old.status)


def _validate_move(new: ResourceClaim, old: ResourceClaim) -> Errors:
    path, before, after = STATUS.child("phase"), old.status.phase, new.status.phase
    if after not in MOVES:
        return [not_supported(path, after, [phase for phase in MOVES if phase])]
    if after == before:
        return []
    if after not in MOVES[before]:
        return [invalid(path, after, f"may follow {before} only by way of {MOVES[before][0]}")]
    if after == REALLOCATE and old.status.used_by:
        return [forbidden(path, "the claim is being used and must stay allocated")]
    if after == ALLOCATED:
        return _validate_start(new)
    return []


def _validate_start(claim: ResourceClaim) -> Errors:
    """A delayed claim is allocated for the node that the scheduler has selected."""
    found: Errors = []
    if claim.spec.allocation_mode != IMMEDIATE and not claim.status.selected_node:
        found.append(required(STATUS.child("selectedNode"), "must be set before a delayed claim can be allocated"))
    if not claim.status.plugin_name:
        found.append(required(STATUS.child("pluginName"), "must be set when the claim is allocated"))
    return found


def _validate_nodes(status: ResourceClaimStatus) -> Errors:
    found: Errors = []
    if status.selected_node:
        found += each(check_dns_subdomain(status.selected_node), STATUS.child("selectedNode"), status.selected_node)
    for names, path in (
        (status.potential_nodes, STATUS.child("potentialNodes")),
        (status.suitable_nodes, STATUS.child("suitableNodes")),
    ):
        found += validate_set(
            names, path, lambda name, at: each(check_dns_subdomain(name), at, name), key=lambda name: name
        )
    if status.available_on_nodes is not None:
        found += validate_node_selector(status.available_on_nodes, STATUS.child("availableOnNodes"))
    return found


def _validate_users(new: ResourceClaim, old: ResourceClaim) -> Errors:
    path, status = STATUS.child("usedBy"), new.status
    found = validate_set(status.used_by, path, _validate_user, key=lambda user: user.uid)
    known = {user.uid for user in old.status.used_by}
    added = [user for user in status.used_by if user.uid not in known]
    if status.used_by and status.phase != ALLOCATED:
        found.append(forbidden(path, "only an allocated claim may be used"))
    if added and old.metadata.deletion_timestamp is not None:
        found.append(forbidden(path, "the claim is being deleted"))
    limit = status.user_limit
    if limit != UNLIMITED and limit < 1:
        found.append(invalid(STATUS.child("userLimit"), limit, "must be positive, or -1 for any number of users"))
    elif added and limit != UNLIMITED and len(status.used_by) > limit:
        found.append(too_many(path, len(status.used_by), limit))
    return found


def _validate_user(user: OwnerReference, path: Path) -> Errors:
    missing = [name for name in ("api_version", "kind", "name", "uid") if not getattr(user, name)]
    shown = {"api_version": "apiVersion"}
    return [required(path.child(shown.get(name, name))) for name in missing]


def _validate_plugin(new: ResourceClaimStatus, old: ResourceClaimStatus) -> Errors:
    """Whoever allocated it must free it: the class may be gone, or another plugin's by now."""
    path = STATUS.child("pluginName")
    if new.plugin_name == old.plugin_name:
        return []
    if old.phase in (ALLOCATED, REALLOCATE):
        return [forbidden(path, "the plugin that allocated the claim must stay")]
    return validate_driver_name(new.plugin_name, path)


def can_be_used(claim: ResourceClaim) -> bool:
    """Whether there is room for one more user."""
    limit = claim.status.user_limit
    return limit == UNLIMITED or len(claim.status.used_by) < limit


# Pods -----------------------------------------------------------------------------------------------------------------


RESOURCES = SPEC.child("resources")


def is_owned_by(claim: ResourceClaim, pod: Pod) -> bool:
    """An existing claim of the right name serves for a template only if the pod owns it."""
    return any(one.uid == pod.metadata.uid for one in claim.metadata.owner_references)


def validate_pod_resources(pod: Pod) -> Errors:
    """Of a new pod: its list, the names of the claims that are made of it, and what containers say of it."""
    spec = pod.spec
    entries = listed_resources(pod)
    found = validate_set(
        entries,
        RESOURCES,
        lambda entry, path: _validate_entry(entry, path, pod.metadata.name),
        key=lambda entry: entry.name,
    )
    taken = {one.name for one in spec.resource_claims}
    found += [
        duplicate(RESOURCES.at(at).child("name"), one.name) for at, one in enumerate(entries) if one.name in taken
    ]
    names = {one.name for one in entries}
    for field, containers in (("containers", spec.containers), ("initContainers", spec.init_containers)):
        found += _validate_uses(containers, SPEC.child(field), names)
    return found


def _validate_entry(entry: PodResource, path: Path, pod: str) -> Errors:
    found = required_or(check_dns_label, entry.name, path.child("name"))
    if (entry.resource_claim_name is None) == (entry.template is None):
        return [*found, invalid(path, entry.name, "must specify exactly one of: `resourceClaimName`, `template`")]
    if entry.template is None:
        name = entry.resource_claim_name or ""
        return found + required_or(check_dns_subdomain, name, path.child("resourceClaimName"))
    if pod and not found:
        final = claim_name(pod, entry.name)
        message = "final ResourceClaim name: "
        found += [invalid(path.child("name"), final, message + one) for one in check_dns_subdomain(final)]
    return found + _validate_template(entry.template, path.child("template"))


def _validate_template(template: PodResourceTemplate, path: Path) -> Errors:
    found = validate_template_meta(template.metadata, path.child("metadata"))
    if template.spec is not None and written_directly(template):
        return [*found, forbidden(path, "a template has a spec or the fields of one, not both")]
    at = path if template.spec is None else path.child("spec")
    return found + validate_claim_spec(spec_of(template), at)


def _validate_uses(containers: Sequence[Container], path: Path, names: set[str]) -> Errors:
    return [
        not_found(path.at(at).child("podResources").at(position), name)
        for at, container in enumerate(containers)
        for position, name in enumerate(container.pod_resources)
        if name not in names
    ]
