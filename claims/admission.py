"""Admission of claims, pods, priority classes, quotas and pod groups: rules of the writer and checks before it.

Quotas limit the sum of the objects of a namespace (`claims.quotas`). Without quotas this costs nothing.

Admin access to devices needs a label on the namespace. It is checked when a claim or template is created, also by a
controller, and when an allocation with admin access is written, also by the scheduler.

Only the scheduler writes the annotation of claims for extended resources.

A pod's priority is that of its PriorityClass, or of the default class, or 0. A priority in the pod's spec must be the
same: otherwise users could choose their own.

Features that are not served here are refused at creation, so that no pod waits in vain. A RuntimeClass restricts a
pod's nodes and adds overhead; none is served, so a pod that names one is refused as if the class did not exist. While
the gate GenericWorkload is off, a pod's scheduling group is dropped with a warning (upstream: without one). A PodGroup
that names a template is refused if the template does not exist.

Upstream: pkg/registry/resource/utils.go (AuthorizedForAdmin, AuthorizedForAdminStatus),
plugin/pkg/admission/priority/admission.go, pkg/registry/scheduling/priorityclass/storage,
plugin/pkg/admission/{runtimeclass,podgroup}/admission.go, pkg/api/pod/util.go (dropDisabledFields).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from django.conf import settings
from msgspec import structs

from claims import quotas
from claims.kinds.pod_group_rules import POD_GROUP, WORKLOAD
from claims.kinds.pod_groups import PodGroup, PodWorkload
from claims.kinds.pod_strategy import warnings_of
from claims.kinds.pods import Pod
from claims.kinds.priority_classes import (
    DEFAULT_PREEMPTION_POLICY,
    PRIORITY_CLASS,
    SYSTEM_CLASSES,
    PriorityClass,
)
from claims.kinds.quota_usage import parsed
from claims.kinds.quotas import RESOURCE_QUOTA
from claims.kinds.resource_claims import (
    EXTENDED_CLAIM_ANNOTATION,
    DeviceRequest,
    ResourceClaim,
    ResourceClaimTemplate,
)
from inventory.kinds import gates
from manciple.api import first_stage
from manciple.store import hooks, objects
from manciple.store.hooks import Write
from manciple.store.objects import Writer
from manciple.wire.base import ApiObject
from manciple.wire.errors import FieldError, Forbidden, Invalid, forbidden
from manciple.wire.identity import SCHEDULER, SYSTEM, SYSTEM_NAMESPACE
from manciple.wire.registry import registry

#: The maximum of warnings about one pod: pairs of ports are quadratic, and a Warning header has a limit.
MOST_WARNINGS = 100
CLAIMS_AND_TEMPLATES = frozenset({"resourceclaims.resource.k8s.io", "resourceclaimtemplates.resource.k8s.io"})


def register() -> None:
    hooks.register_rule(
        check_admin_access,
        operations={"CREATE", "UPDATE"},
        resources=CLAIMS_AND_TEMPLATES,
    )
    first_stage.register_precedence("pods", refuse_classes)
    first_stage.register_check(warn_of_dropped_claims, resources={"pods"}, first=True)
    first_stage.register_check(warn_of_pod, resources={"pods"})
    hooks.register_rule(resolve_priority, operations={"CREATE"}, resources={"pods"})
    hooks.register_rule(check_limited_priority, operations={"CREATE"}, resources={"pods"})
    hooks.register_rule(refuse_unserved, operations={"CREATE"}, resources={"pods"})
    hooks.register_rule(find_template, operations={"CREATE"}, resources={POD_GROUP.resource})
    hooks.register_rule(check_default, operations={"CREATE", "UPDATE"}, resources={PRIORITY_CLASS.resource})
    hooks.register_rule(charge_quotas, operations={"CREATE", "UPDATE", "DELETE"})
    hooks.register_rule(keep_extended_claims, operations={"CREATE", "UPDATE"}, resources=CLAIMS_AND_TEMPLATES)
    hooks.register_rule(count_new_quota, operations={"CREATE", "UPDATE"}, resources={RESOURCE_QUOTA.resource})
    hooks.register_finisher(settle_quotas)
    hooks.register_rule(keep_system_classes, operations={"DELETE"}, resources={PRIORITY_CLASS.resource})


# Admin access ---------------------------------------------------------------------------------------------------------


ADMIN_ACCESS_LABEL = "resource.kubernetes.io/admin-access"
REFUSAL = f"admin access to devices requires the `{ADMIN_ACCESS_LABEL}: true` label on the containing namespace"


def check_admin_access(writer: Writer, write: Write) -> None:
    """Raises: Invalid if `write` adds admin access in a namespace without the label."""
    errors = refusals(write.new, write.old)
    if errors and not is_admin_namespace(_labels_of(writer, write.new.metadata.namespace)):
        kind, name = write.kind, write.new.metadata.name
        raise Invalid.of(kind=kind.kind, group=kind.group, name=name, errors=errors)


def refusals(new: ResourceClaim | ResourceClaimTemplate, old: object = None) -> list[FieldError]:
    """The error for the first field of `new` that adds admin access, for namespaces without the label.

    The reference names a request's field without "exactly", and a template's like a claim's.
    """
    if isinstance(new, ResourceClaimTemplate):
        return [] if old is not None else _requested(new.spec.spec.devices.requests)
    if old is None and (found := _requested(new.spec.devices.requests)):
        return found
    if new.status.allocation != (old.status.allocation if isinstance(old, ResourceClaim) else None):
        return _given(new)
    return []


def _requested(requests: Sequence[DeviceRequest]) -> list[FieldError]:
    wanted = (
        forbidden(f"spec.devices.requests[{position}].adminAccess", REFUSAL)
        for position, request in enumerate(requests)
        if request.exactly is not None and request.exactly.admin_access
    )
    return list(islice(wanted, 1))


def _given(claim: ResourceClaim) -> list[FieldError]:
    results = claim.status.allocation.devices.results if claim.status.allocation else ()
    given = (
        forbidden(f"status.allocation.devices.results[{position}].adminAccess", REFUSAL)
        for position, result in enumerate(results)
        if result.admin_access
    )
    return list(islice(given, 1))


def is_admin_namespace(labels: Mapping[str, str]) -> bool:
    return labels.get(ADMIN_ACCESS_LABEL) == "true"


def _labels_of(writer: Writer, namespace: str) -> Mapping[str, str]:
    """The namespace's labels; none when it does not exist."""
    found = writer.get(registry.by_resource("namespaces"), "", namespace)
    return {} if found is None else found.metadata.labels


# Claims for extended resources ----------------------------------------------------------------------------------------


def keep_extended_claims(_writer: Writer, write: Write) -> None:
    """The scheduler reuses and deletes claims with the annotation as its own, so no other writer may set it.

    No update may change it: only the creator needs to write it. The reference lets everybody write it.

    Raises: Forbidden.
    """
    written, known = _extended_annotation(write.new), _extended_annotation(write.old)
    makes_claim = write.operation == "CREATE" and isinstance(write.new, ResourceClaim)
    if written != known and not (makes_claim and write.identity.name in (SCHEDULER.name, SYSTEM.name)):
        why = f"only the scheduler may set the annotation {EXTENDED_CLAIM_ANNOTATION}, when it creates a claim"
        raise Forbidden.of(write.kind.resource, write.new.metadata.name, why)


def _extended_annotation(obj: ResourceClaim | ResourceClaimTemplate | None) -> str | None:
    """The annotation of the claim, or of the claims that the template generates."""
    if obj is None:
        return None
    metadata = obj.spec.metadata if isinstance(obj, ResourceClaimTemplate) else obj.metadata
    return metadata.annotations.get(EXTENDED_CLAIM_ANNOTATION)


# Priorities -----------------------------------------------------------------------------------------------------------


#: The priority of pods without a class if there is no default class.
NO_CLASS = PriorityClass(value=0, preemption_policy=DEFAULT_PREEMPTION_POLICY)


@dataclass(frozen=True, slots=True)
class KnownPriorities:
    """by_name: every class. default: what pods without a class get."""

    by_name: Mapping[str, PriorityClass]
    default: PriorityClass

    @classmethod
    def read(cls, classes: Sequence[PriorityClass]) -> KnownPriorities:
        """Of several defaults, which only a restored database can have, the lowest counts."""
        defaults = sorted((one for one in classes if one.global_default), key=lambda one: one.value)
        return cls({one.metadata.name: one for one in classes}, defaults[0] if defaults else NO_CLASS)


PRIORITIES = hooks.PolicyCache(PRIORITY_CLASS.resource, KnownPriorities.read)


def ensure_priority_classes() -> None:
    """Create the system classes that are missing."""
    with objects.writing(identity=SYSTEM) as writer:
        for one in SYSTEM_CLASSES:
            if writer.get(PRIORITY_CLASS, "", one.metadata.name) is None:
                writer.create(PRIORITY_CLASS, PRIORITY_CLASS.prepare_create(one))


def resolve_priority(writer: Writer, write: Write) -> Pod:
    """The new pod with its class, priority and preemption policy. Raises: Forbidden."""
    pod: Pod = write.new
    try:
        return with_priority(pod, PRIORITIES.of(writer))
    except ValueError as error:
        name = pod.metadata.name
        raise Forbidden(f'pods "{name}" is forbidden: {error}', details={"name": name, "kind": "pods"}) from error


def refuse_classes(write: Write) -> None:
    """Raises: Forbidden if a new pod's classes are refused. This comes before its validation errors."""

    def work(writer: Writer) -> None:
        resolve_priority(writer, write)
        refuse_unserved(writer, write)

    objects.write(work, identity=write.identity, dry_run=True)


def with_priority(pod: Pod, known: KnownPriorities) -> Pod:
    """Raises: ValueError if the pod's class is unknown, or the pod sets another priority than that of its class."""
    spec = pod.spec
    wanted = known.by_name.get(spec.priority_class_name) if spec.priority_class_name else known.default
    if wanted is None:
        raise ValueError(f"no PriorityClass with name {spec.priority_class_name} was found")
    for what, given, computed in (
        ("the integer value of priority", spec.priority, wanted.value),
        ("the string value of PreemptionPolicy", spec.preemption_policy, wanted.preemption_policy),
    ):
        if given is not None and given != computed:
            raise ValueError(
                f"{what} ({given}) must not be provided in pod spec; priority admission controller computed {computed} "
                "from the given PriorityClass name"
            )
    resolved = structs.replace(
        spec,
        priority_class_name=wanted.metadata.name,
        priority=wanted.value,
        preemption_policy=wanted.preemption_policy,
    )
    return structs.replace(pod, spec=resolved)


def check_limited_priority(writer: Writer, write: Write) -> None:
    """Raises: Forbidden for a pod with a limited class that no quota of its namespace allows.

    As the reference with `limitedResources` in the configuration of ResourceQuota, except that a quota for classes
    `NotIn` some list allows none.
    """
    pod: Pod = write.new
    name, namespace, limited = pod.spec.priority_class_name, pod.metadata.namespace, settings.LIMITED_PRIORITY_CLASSES
    if name not in limited or namespace == SYSTEM_NAMESPACE or write.identity == SYSTEM:
        return
    for quota in quotas.LIMITS.of(writer, namespace):
        named = any(one.scope_name == "PriorityClass" and one.operator in ("In", "Exists") for one in quota.scopes)
        if named and quota.concerns("pods", pod):
            return
    scope = f"{{PriorityClass In [{' '.join(limited)}]}}"
    raise Forbidden.of("pods", pod.metadata.name, f"insufficient quota to match these scopes: [{scope}]")


def check_default(writer: Writer, write: Write) -> None:
    """Raises: Forbidden for a second default."""
    new: PriorityClass = write.new
    default = PRIORITIES.of(writer).default.metadata.name
    if new.global_default and default and (write.operation == "CREATE" or default != new.metadata.name):
        raise _forbidden(new, f"PriorityClass {default} is already marked as default. Only one default can exist")


def keep_system_classes(_writer: Writer, write: Write) -> None:
    """Raises: Forbidden."""
    if write.old.metadata.name in {one.metadata.name for one in SYSTEM_CLASSES}:
        raise _forbidden(write.old, "this is a system priority class and cannot be deleted")


def _forbidden(one: PriorityClass, why: str) -> Forbidden:
    name, kind = one.metadata.name, PRIORITY_CLASS
    details = {"name": name, "group": kind.group, "kind": kind.plural}
    return Forbidden(f'{kind.resource} "{name}" is forbidden: {why}', details=details)


# Quotas ---------------------------------------------------------------------------------------------------------------


def charge_quotas(writer: Writer, write: Write) -> None:
    """Raises: QuotaExceeded, Forbidden."""
    obj = write.old if write.new is None else write.new
    namespace = obj.metadata.namespace
    if namespace and (limits := quotas.LIMITS.of(writer, namespace)):
        quotas.charge(writer, write, limits)


def count_new_quota(writer: Writer, write: Write) -> ApiObject | None:
    """A new quota, or one with new limits, with its usage, if there are few objects to count."""
    new, old = write.new, write.old
    if write.subresource or (old is not None and old.spec == new.spec):
        return None
    same_scope = old is not None and old.spec.scope_selector == new.spec.scope_selector
    return quotas.counted_at_once(writer, new, known=parsed(old.status.used) if same_scope else {})


def settle_quotas(writer: Writer) -> None:
    if writer.noted(quotas.TOUCHED):
        quotas.settle(writer)


# Warnings -------------------------------------------------------------------------------------------------------------


def warn_of_dropped_claims(write: Write) -> None:
    """While DRA is off, spec.resourceClaims is dropped. (Upstream does not warn.)"""
    dropped = write.operation == "CREATE" and not write.subresource and write.new.spec.resource_claims
    if dropped and not gates.enabled(gates.DYNAMIC_RESOURCE_ALLOCATION):
        hooks.warn("spec.resourceClaims is dropped: the feature gate DynamicResourceAllocation is off")


def warn_of_pod(write: Write) -> None:
    """Warn the author of a new pod of fields without effect."""
    if write.operation == "CREATE" and not write.subresource:
        for text in islice(warnings_of(write.new), MOST_WARNINGS):
            hooks.warn(text)


# Features that are not served -----------------------------------------------------------------------------------------


def refuse_unserved(_writer: Writer, write: Write) -> Pod | None:
    """The new pod without dropped fields. Raises: Forbidden."""
    pod: Pod = write.new
    if pod.spec.runtime_class_name:
        raise _rejected(pod, f'RuntimeClass "{pod.spec.runtime_class_name}" not found (none is served here)')
    if pod.spec.overhead:
        raise _rejected(pod, "Pod Overhead set without corresponding RuntimeClass defined Overhead")
    if pod.spec.scheduling_group is None or gates.enabled("GenericWorkload"):
        return None
    hooks.warn("spec.schedulingGroup is dropped: the feature gate GenericWorkload is off")
    return structs.replace(pod, spec=structs.replace(pod.spec, scheduling_group=None))


def find_template(writer: Writer, write: Write) -> None:
    """Raises: Forbidden for a PodGroup of a template that does not exist."""
    group: PodGroup = write.new
    reference = group.spec.pod_group_template_ref
    if reference is None or reference.workload is None:
        return
    workload, template = reference.workload.workload_name, reference.workload.pod_group_template_name
    found = writer.get(WORKLOAD, group.metadata.namespace, workload)
    why = ""
    if not isinstance(found, PodWorkload):
        why = f'Workload "{workload}" not found'
    elif found.metadata.deletion_timestamp is not None:
        why = f'Workload "{workload}" is being deleted'
    elif all(one.name != template for one in found.spec.pod_group_templates):
        why = f'PodGroupTemplate "{template}" not found in Workload "{workload}"'
    if why:
        name, details = (
            group.metadata.name,
            {"name": group.metadata.name, "group": POD_GROUP.group, "kind": "podgroups"},
        )
        raise Forbidden(f'{POD_GROUP.resource} "{name}" is forbidden: PodGroup rejected: {why}', details=details)


def _rejected(pod: Pod, why: str) -> Forbidden:
    name = pod.metadata.name
    return Forbidden(f'pods "{name}" is forbidden: pod rejected: {why}', details={"name": name, "kind": "pods"})
