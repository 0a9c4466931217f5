"""Rules of what may change of a pod: by an update, by a resize, by adding containers for debugging.

Source: pkg/apis/core/validation (ValidatePodUpdate, ValidatePodResize, ValidatePodEphemeralContainersUpdate) of
Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from claims.kinds.containers import Container, ResourceRequirements
from claims.kinds.gangs import ANNOTATIONS, validate_gang_update
from claims.kinds.placement_rules import validate_narrowed, with_node_affinity_of
from claims.kinds.pod_limits import validate_size
from claims.kinds.pod_resources import RESIZED, is_sidecar, qos_class, resources_of
from claims.kinds.pod_rules import SECONDS_MAX, validate_pod_meta_update, validate_spec
from claims.kinds.pod_strategy import with_defaults
from claims.kinds.pods import Pod, PodSpec, Toleration
from claims.kinds.references import MIRROR
from claims.kinds.security_context_rules import is_for_windows
from manciple.wire.errors import FieldError, forbidden, invalid
from manciple.wire.validation import SPEC, Path

Errors = list[FieldError]

_UPDATE_RULE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)

# Updates -------------------------------------------------------------------------------------------------------------


def validate_pod_update(new: Pod, old: Pod) -> Errors:
    """Little of a pod may change: images, more tolerations, a shorter deadline, fewer scheduling gates."""
    if new.spec != old.spec and (too_large := validate_size(new.spec)):
        return too_large
    found = validate_pod_meta_update(new, old)
    if not ANNOTATIONS.isdisjoint({*new.metadata.annotations, *old.metadata.annotations}):
        found += validate_gang_update(new.metadata, old.metadata)
    old = replace(old, spec=with_defaults(old.spec))
    if new.spec == old.spec:  # it was let in by the rules of its time
        return found
    found += validate_spec(new.spec, new.metadata)
    if containers := _validate_same_containers(new.spec, old.spec):
        return found + containers
    if (deadline := _validate_deadline_update(new.spec, old.spec)) and new.spec.active_deadline_seconds is not None:
        return found + deadline
    found += deadline
    found += _validate_gates_update(new.spec, old.spec)
    found += _validate_node_selector_update(new.spec, old.spec)
    found += _validate_tolerations_update(new.spec, old.spec)
    if old.spec.scheduling_gates:
        before, after = (one.affinity.node_affinity if one.affinity else None for one in (old.spec, new.spec))
        found += validate_narrowed(after, before, SPEC.child("affinity").child("nodeAffinity"))
    changed = _changed_fields(_with_liberties(new.spec, old.spec), old.spec)
    if changed:
        found.append(forbidden(SPEC, f"{_UPDATE_RULE}; changed: {', '.join(changed)}"))
    return found


def _changed_fields(new: PodSpec, old: PodSpec) -> list[str]:
    """Field names as they stand in JSON."""
    pairs = zip(PodSpec.__struct_fields__, PodSpec.__struct_encode_fields__, strict=True)
    return [shown for name, shown in pairs if getattr(new, name) != getattr(old, name)]


def _with_liberties(new: PodSpec, old: PodSpec) -> PodSpec:
    """`new` with the values of `old` in every field that may change; what still differs is forbidden."""
    same = replace(
        new,
        containers=_with_images(new.containers, old.containers),
        init_containers=_with_images(new.init_containers, old.init_containers),
        active_deadline_seconds=old.active_deadline_seconds,
        scheduling_gates=old.scheduling_gates,
        tolerations=old.tolerations,
    )
    if old.scheduling_gates:  # a gated pod may still be directed to fewer nodes
        same = replace(same, node_selector=old.node_selector)
        same = replace(same, affinity=with_node_affinity_of(old.affinity, new.affinity))
    return same


def _with_images(new: Sequence[Container], old: Sequence[Container]) -> tuple[Container, ...]:
    return tuple(replace(after, image=before.image) for after, before in zip(new, old, strict=True))


def _validate_same_containers(new: PodSpec, old: PodSpec) -> Errors:
    """As many as before; where not, nothing else that changed is worth telling."""
    counts = (
        ("containers", len(new.containers), len(old.containers)),
        ("initContainers", len(new.init_containers), len(old.init_containers)),
    )
    for field, after, before in counts:
        if after != before:
            return [forbidden(SPEC.child(field), "pod updates may not add or remove containers")]
    return []


def _validate_tolerations_update(new: PodSpec, old: PodSpec) -> Errors:
    """More may come, and those that are there may last for another time."""

    def untimed(spec: PodSpec) -> set[Toleration]:
        return {replace(toleration, toleration_seconds=None) for toleration in spec.tolerations}

    if untimed(old) <= untimed(new):
        return []
    message = "existing toleration can not be modified except its tolerationSeconds"
    return [forbidden(SPEC.child("tolerations"), message)]


def _validate_deadline_update(new: PodSpec, old: PodSpec) -> Errors:
    path, before, after = SPEC.child("activeDeadlineSeconds"), old.active_deadline_seconds, new.active_deadline_seconds
    if before == after:
        return []
    if after is not None and not 0 <= after <= SECONDS_MAX:
        return [invalid(path, after, f"must be between 0 and {SECONDS_MAX}, inclusive")]
    if before is None:
        return []
    if after is None:
        return [invalid(path, after, "must not update from a positive integer to nil value")]
    if after > before:
        return [invalid(path, after, "must be less than or equal to previous value")]
    return []


def _validate_gates_update(new: PodSpec, old: PodSpec) -> Errors:
    """A new name that is repeated is reported once, at its last position."""
    known = {gate.name for gate in old.scheduling_gates}
    path, message = SPEC.child("schedulingGates"), "only deletion is allowed, but found new scheduling gate"
    added = {gate.name: position for position, gate in enumerate(new.scheduling_gates) if gate.name not in known}
    return [forbidden(path.at(position).child("name"), f"{message} '{name}'") for name, position in added.items()]


def _validate_node_selector_update(new: PodSpec, old: PodSpec) -> Errors:
    """Of a gated pod it may grow."""
    if not old.scheduling_gates or old.node_selector.items() <= new.node_selector.items():
        return []
    message = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
    return [invalid(SPEC.child("nodeSelector"), new.node_selector or None, message)]


# Resizes --------------------------------------------------------------------------------------------------------------

#: Where the reference names no field.
_WHOLE = Path("[]")


def validate_resize(new: Pod, old: Pod) -> Errors:
    """Only cpu and memory, of a pod that stays in its class of service."""
    if MIRROR in old.metadata.annotations:
        return [forbidden(_WHOLE, "static pods cannot be resized")]
    if is_for_windows(old.spec):
        return [forbidden(_WHOLE, "windows pods cannot be resized")]
    found = validate_pod_meta_update(new, old) + validate_spec(new.spec, new.metadata)
    before = old.status.qos_class or qos_class(old.spec)
    if qos_class(new.spec) != before:
        found.append(invalid(SPEC, before, "Pod QOS Class may not change as a result of resizing"))
    running = next((one for one in old.status.container_statuses if one.state.running is not None), None)
    if running is not None and running.resources is None:
        found.append(forbidden(SPEC, "Pod running on node without support for resize"))
    old = replace(old, spec=with_defaults(old.spec))
    level, old_level = resources_of(new.spec), resources_of(old.spec)
    has_amounts = any(one is not None and (one.requests or one.limits) for one in (level, old_level))
    if has_amounts:
        found += _validate_level_resize(level, old_level)
    if old.status.node_allocatable_resource_claim_statuses:
        found.append(forbidden(SPEC, "pods with node allocatable resource claims cannot be resized"))
    found += _validate_order(new.spec, old.spec) or _validate_container_resizes(new.spec, old.spec)
    if not found and not has_amounts and level != old_level:
        found.append(forbidden(SPEC, "only cpu and memory resources are mutable"))
    return found


def _validate_level_resize(new: ResourceRequirements | None, old: ResourceRequirements | None) -> Errors:
    path = SPEC.child("resources")
    if old is not None and new is None:
        return [forbidden(path, "pod-level resources cannot be removed")]
    found = _validate_kept(new or _NOTHING, old or _NOTHING, path, of="pod-level resource")
    if _without_resized(new or _NOTHING) != _without_resized(old or _NOTHING):
        found.append(forbidden(SPEC, "only cpu and memory resources are mutable at pod-level"))
    return found


def _validate_order(new: PodSpec, old: PodSpec) -> Errors:
    """The containers are the same, in the same order."""
    found: Errors = []
    for field, after, before in (
        ("containers", new.containers, old.containers),
        ("initContainers", new.init_containers, old.init_containers),
    ):
        if len(after) != len(before):
            found.append(forbidden(SPEC.child(field), f"{field} may not be added or removed on resize"))
            continue
        found += [
            forbidden(
                SPEC.child(field).at(position).child("name"), f"{field} may not be renamed or reordered on resize"
            )
            for position, (container, known) in enumerate(zip(after, before, strict=True))
            if container.name != known.name
        ]
    return found


def _validate_container_resizes(new: PodSpec, old: PodSpec) -> Errors:
    found: Errors = []
    for position, (after, before) in enumerate(zip(new.init_containers, old.init_containers, strict=True)):
        at = SPEC.child("initContainers").at(position)
        found += _validate_kept(after.resources, before.resources, at.child("resources"))
        if _without_amounts(after) != _without_amounts(before):
            message = "only cpu and memory resources for init or sidecar containers are mutable"
            found.append(forbidden(at, message))
        restarts = any(one.restart_policy == "RestartContainer" for one in after.resize_policy)
        if after != before and restarts and not is_sidecar(after):
            message = "non-sidecar init containers with a resize policy of RestartContainer cannot be resized"
            found.append(forbidden(at, message))
    for position, (after, before) in enumerate(zip(new.containers, old.containers, strict=True)):
        at = SPEC.child("containers").at(position)
        found += _validate_kept(after.resources, before.resources, at.child("resources"))
        if _without_amounts(after) != _without_amounts(before):
            found.append(forbidden(SPEC, "only cpu and memory resources are mutable"))
    return found


_NOTHING = ResourceRequirements()


def _validate_kept(new: ResourceRequirements, old: ResourceRequirements, path: Path, *, of: str = "resource") -> Errors:
    """Amounts may change, and not go."""
    return [
        forbidden(path.child(which), f"{of} {which} cannot be removed")
        for which, after, before in (("requests", new.requests, old.requests), ("limits", new.limits, old.limits))
        if not before.keys() <= after.keys()
    ]


def _without_amounts(container: Container) -> Container:
    return replace(container, resources=_without_resized(container.resources))


def _without_resized(resources: ResourceRequirements) -> ResourceRequirements:
    limits = {name: text for name, text in resources.limits.items() if name not in RESIZED}
    requests = {name: text for name, text in resources.requests.items() if name not in RESIZED}
    return replace(resources, limits=limits, requests=requests)


# Containers for debugging ---------------------------------------------------------------------------------------------


def validate_added_containers(new: Pod, old: Pod) -> Errors:
    """Containers come, and neither change nor go."""
    if too_large := validate_size(new.spec):
        return too_large
    if MIRROR in old.metadata.annotations:
        return [forbidden(_WHOLE, "static pods do not support ephemeral containers")]
    found = validate_pod_meta_update(new, old) + validate_spec(new.spec, new.metadata)
    after = {container.name: container for container in new.spec.ephemeral_containers}
    for container in old.spec.ephemeral_containers:
        what = "removed" if container.name not in after else "changed" if after[container.name] != container else ""
        if what:
            message = f'existing ephemeral containers "{container.name}" may not be {what}\n'
            found.append(forbidden(SPEC.child("ephemeralContainers"), message))
    return found
