"""Admission of pods, claims, priority classes, quotas and pod groups: rules of the writer, and checks before it.

    admin access         to devices needs a label on the namespace. Checked when a claim or template is created, also by
                         a controller, and when an allocation with admin access is written, also by the scheduler
    extended resources   only the scheduler writes the annotation of their claims
    priorities           a pod's priority is that of its PriorityClass, or of the default class, or 0. A priority in the
                         spec must be the same: otherwise users could choose their own
    limit ranges         fill in what the containers of a namespace leave out, before a new pod is validated, and limit
                         what pods and volumes ask for
    quotas               limit the sum of a namespace's objects (`claims.quotas`); without quotas this costs nothing
    warnings             about fields without effect
    unserved features    are refused at creation, so that no pod waits in vain: a pod with a RuntimeClass; a PodGroup of
                         a missing template. While the gate GenericWorkload is off, a pod's scheduling group is dropped
                         with a warning (upstream: without one)
    service accounts     every pod runs as an account of its namespace, and gets its token
    pod security         pods may only have the powers that the labels of their namespace allow

Upstream: pkg/registry/resource/utils.go (AuthorizedForAdmin, AuthorizedForAdminStatus),
plugin/pkg/admission/{priority,runtimeclass,podgroup,serviceaccount}/admission.go,
pkg/registry/scheduling/priorityclass/storage, pkg/api/pod/util.go (dropDisabledFields),
k8s.io/pod-security-admission/admission.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any, ClassVar

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from msgspec import structs
from msgspec.structs import replace

from claims import quotas
from claims.access.node_rights import CONFIG_MAPS, SECRETS, node_of, references
from claims.kinds import limit_ranges
from claims.kinds.containers import Container, KeyToPath, ObjectFieldSelector, VolumeMount
from claims.kinds.limit_ranges import LIMIT_RANGE, LimitRange
from claims.kinds.pod_groups import POD_GROUP, WORKLOAD, PodGroup, PodWorkload
from claims.kinds.pod_security import (
    LEVELS,
    PREFIX,
    LevelVersion,
    PodSecurityPolicy,
    describe,
    is_significant_update,
    parse_policy,
    policy_of,
    reasons,
    violations,
)
from claims.kinds.pod_strategy import warnings_of
from claims.kinds.pods import MIRROR, Pod
from claims.kinds.priority_classes import DEFAULT_PREEMPTION_POLICY, PRIORITY_CLASS, SYSTEM_CLASSES, PriorityClass
from claims.kinds.quotas import RESOURCE_QUOTA
from claims.kinds.resource_claims import EXTENDED_CLAIM_ANNOTATION, DeviceRequest, ResourceClaim, ResourceClaimTemplate
from claims.kinds.resource_usage import parsed
from claims.kinds.runtime_classes import RUNTIME_CLASS
from claims.kinds.storage_classes import LOCAL, STORAGE_CLASS, StorageClass
from claims.kinds.volume_binding import size_of
from claims.kinds.volume_claims import PersistentVolumeClaim
from claims.kinds.volumes import (
    VOLUME_CLAIMS,
    ConfigMapProjection,
    DownwardAPIProjection,
    DownwardAPIVolumeFile,
    ProjectedVolumeSource,
    ServiceAccountTokenProjection,
    Volume,
    VolumeProjection,
)
from inventory.kinds import gates
from manciple.access.kinds.service_accounts import DEFAULT_NAME, ServiceAccount
from manciple.access.namespace_defaults import AUTHORITY_KEY, ROOT_CA, SERVICE_ACCOUNTS
from manciple.store import hooks, objects, records
from manciple.store.event_log import POLL_INTERVAL, Follower, View
from manciple.store.hooks import Write
from manciple.store.objects import Writer
from manciple.store.records import Stored, Written
from manciple.wire import codec
from manciple.wire.base import RANDOM, ApiObject, LocalObjectReference
from manciple.wire.errors import FieldError, Forbidden, Invalid, forbidden
from manciple.wire.identity import MASTERS, SCHEDULER, SYSTEM, SYSTEM_NAMESPACE, Identity
from manciple.wire.registry import registry
from manciple.wire.resources import NAMESPACES, PODS
from manciple.wire.validation import generate_name

#: The maximum of warnings about one pod: pairs of ports are quadratic, and a Warning header has a limit.
MOST_WARNINGS = 100
CLAIMS_AND_TEMPLATES = frozenset({"resourceclaims.resource.k8s.io", "resourceclaimtemplates.resource.k8s.io"})


def register() -> None:
    hooks.register_rule(
        check_admin_access,
        operations={"CREATE", "UPDATE"},
        resources=CLAIMS_AND_TEMPLATES,
    )
    hooks.register_precedence("pods", refuse_classes)
    hooks.register_check(warn_of_dropped_claims, resources={"pods"}, first=True)
    hooks.register_check(warn_of_pod, resources={"pods"})
    hooks.register_rule(resolve_priority, operations={"CREATE"}, resources={"pods"})
    hooks.register_rule(check_limited_priority, operations={"CREATE"}, resources={"pods"})
    hooks.register_rule(refuse_unserved, operations={"CREATE"}, resources={"pods"})
    hooks.register_rule(find_template, operations={"CREATE"}, resources={POD_GROUP.resource})
    hooks.register_rule(check_limits, operations={"CREATE", "UPDATE"}, resources={PODS, VOLUME_CLAIMS})
    hooks.register_rule(check_default, operations={"CREATE", "UPDATE"}, resources={PRIORITY_CLASS.resource})
    hooks.register_rule(charge_quotas, operations={"CREATE", "UPDATE", "DELETE"})
    hooks.register_rule(keep_extended_claims, operations={"CREATE", "UPDATE"}, resources=CLAIMS_AND_TEMPLATES)
    hooks.register_rule(count_new_quota, operations={"CREATE", "UPDATE"}, resources={RESOURCE_QUOTA.resource})
    hooks.register_finisher(settle_quotas)
    hooks.register_completion(VOLUME_CLAIMS, with_default_class)
    hooks.register_rule(check_growth, operations={"UPDATE"}, resources={VOLUME_CLAIMS})
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


# Limit ranges ---------------------------------------------------------------------------------------------------------


LIMITS: hooks.PolicyCache[tuple[LimitRange, ...]]
LIMITS = hooks.PolicyCache(LIMIT_RANGE.resource, lambda found: found, nothing=())


def with_limits(write: Write) -> Pod:
    """The new pod with the requests and limits that its namespace gives to containers without."""
    pod: Pod = write.new
    with _following.view(within=POLL_INTERVAL) as known:
        ranges = known.limits.get(pod.metadata.namespace)
    return limit_ranges.with_defaults(pod, [ranges[name] for name in sorted(ranges)]) if ranges else pod


def check_limits(writer: Writer, write: Write) -> None:
    """Raises: Forbidden for a new or resized pod, or a volume, beyond the limits of its namespace."""
    is_pod = write.kind.resource == PODS
    changed = "resize" if is_pod and write.operation == "UPDATE" else ""  # what changes its requests and limits
    if write.subresource != changed:
        return
    if ranges := LIMITS.of(writer, write.new.metadata.namespace):
        type_ = limit_ranges.POD if is_pod else limit_ranges.VOLUME_CLAIM
        if found := limit_ranges.violations(write.new, type_, ranges):
            text = found[0] if len(found) == 1 else f"[{', '.join(found)}]"
            raise Forbidden.of(write.kind.resource, write.new.metadata.name, text)


# Storage classes ------------------------------------------------------------------------------------------------------


def ensure_storage_class() -> None:
    """Create the class of folders, unless there is one of its name."""
    with objects.writing(identity=SYSTEM) as writer:
        if writer.get(STORAGE_CLASS, "", LOCAL.metadata.name) is None:
            writer.create(STORAGE_CLASS, LOCAL)


def with_default_class(write: Write) -> PersistentVolumeClaim:
    """The new claim; of the default class where it names none (upstream: admission plugin DefaultStorageClass)."""
    claim: PersistentVolumeClaim = write.new
    if claim.storage_class is not None:
        return claim
    classes = (objects.decoded(one, StorageClass) for one in objects.list(STORAGE_CLASS).items)
    defaults = [one.metadata for one in classes if one.is_default]
    if not defaults:
        return claim
    newest = max(one.creation_timestamp or "" for one in defaults)
    name = min(one.name for one in defaults if (one.creation_timestamp or "") == newest)
    return replace(claim, spec=replace(claim.spec, storage_class_name=name))


def check_growth(writer: Writer, write: Write) -> None:
    """Raises: Forbidden for a claim that asks for more than its class can add (PersistentVolumeClaimResize)."""
    sizes = (size_of(one.spec.resources.requests) for one in (write.new, write.old))
    if write.subresource or next(sizes) <= next(sizes):
        return
    storage = writer.get(STORAGE_CLASS, "", write.old.storage_class or "")
    if not isinstance(storage, StorageClass) or not storage.allow_volume_expansion:
        why = (
            "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support "
            "resize"
        )
        raise Forbidden.of(write.kind.resource, write.new.metadata.name, why)


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
        records.warn("spec.resourceClaims is dropped: the feature gate DynamicResourceAllocation is off")


def warn_of_pod(write: Write) -> None:
    """Warn the author of a new pod of fields without effect."""
    if write.operation == "CREATE" and not write.subresource:
        for text in islice(warnings_of(write.new), MOST_WARNINGS):
            records.warn(text)


# Features that are not served -----------------------------------------------------------------------------------------


def refuse_unserved(writer: Writer, write: Write) -> Pod | None:
    """The new pod without dropped fields. Raises: Forbidden."""
    pod: Pod = write.new
    if name := pod.spec.runtime_class_name:
        known: Any = writer.get(RUNTIME_CLASS, "", name)
        why = "not found" if known is None else f"has the handler {known.handler}"
        raise _rejected(pod, f'RuntimeClass "{name}" {why} (none is served here)')
    if pod.spec.overhead:
        raise _rejected(pod, "Pod Overhead set without corresponding RuntimeClass defined Overhead")
    if pod.spec.scheduling_group is None or gates.enabled("GenericWorkload"):
        return None
    records.warn("spec.schedulingGroup is dropped: the feature gate GenericWorkload is off")
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


# Service accounts -----------------------------------------------------------------------------------------------------

# Admission of every pod that a client creates. Its account is `default` if it names none, and must exist. Unless pod or
# account opt out (automountServiceAccountToken), every container gets the account's token, the API's CA and the
# namespace as files, in a projected volume that the node's agent refreshes. A container with a mount of its own at that
# path keeps it.
#
# Accounts and limit ranges are cached by following the log, so a pod costs no query. They may be half a second old if
# an announcement was lost; before a pod is refused, the log is read.


#: The path at which programs expect their token.
MOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
VOLUME_PREFIX = "kube-api-access-"
#: The lifetime of tokens in seconds; the agent renews them long before. The seven beyond the hour distinguish them from
#: tokens that users request (upstream: WarnOnlyBoundTokenExpirationPeriod).
TOKEN_SECONDS = 60 * 60 + 7
FILE_MODE = 0o644


def register_completions() -> None:
    hooks.register_completion(PODS, with_limits)
    hooks.register_completion(PODS, with_service_account)


@dataclass(frozen=True, slots=True)
class _Account:
    """The fields of an account that its pods use."""

    automounts: bool
    image_pull_secrets: tuple[LocalObjectReference, ...]


class PodDefaults(View):
    """What new pods take over from their namespace.

    accounts: by (namespace, name). limits: namespace -> its limit ranges, by name.
    """

    resources: ClassVar[Sequence[str]] = (SERVICE_ACCOUNTS, LIMIT_RANGE.resource)

    def __init__(self) -> None:
        self.accounts: dict[tuple[str, str], _Account] = {}
        self.limits: dict[str, dict[str, LimitRange]] = {}

    def fill(self, resource: str, objects: Iterable[ApiObject]) -> None:  # noqa: ARG002 - an object says what it is
        for obj in objects:
            self._add(obj)

    def apply(self, changes: Sequence[Written]) -> None:
        for change in changes:
            namespace, name = change.object.key
            if change.type != "DELETED":
                self._add(change.object)
            elif change.resource == SERVICE_ACCOUNTS:
                self.accounts.pop((namespace, name), None)
            elif (ranges := self.limits.get(namespace)) is not None:
                ranges.pop(name, None)
                if not ranges:
                    del self.limits[namespace]

    def _add(self, obj: ApiObject) -> None:
        if isinstance(obj, ServiceAccount):
            found = _Account(obj.automount_service_account_token is not False, obj.image_pull_secrets)
            self.accounts[obj.key] = found
        elif isinstance(obj, LimitRange):
            self.limits.setdefault(obj.metadata.namespace, {})[obj.metadata.name] = obj


_following = Follower(PodDefaults)


def _account(namespace: str, name: str) -> _Account | None:
    with _following.view(within=POLL_INTERVAL) as known:
        found = known.accounts.get((namespace, name))
    if found is None:
        with _following.view() as known:
            found = known.accounts.get((namespace, name))
    return found


def with_service_account(write: Write) -> Pod:
    """The pod with its account and token. Raises: Forbidden."""
    pod: Pod = write.new
    if MIRROR in pod.metadata.annotations:
        return _checked_mirror(pod, write.identity)
    name = pod.spec.service_account_name or pod.spec.service_account or DEFAULT_NAME
    namespace = pod.metadata.namespace
    account = _account(namespace, name)
    if account is None:
        missing = f'serviceaccount "{name}" not found'
        raise _account_refusal(pod, f"error looking up service account {namespace}/{name}: {missing}")
    spec = replace(
        pod.spec,
        service_account_name=name,
        service_account=name,
        image_pull_secrets=pod.spec.image_pull_secrets or account.image_pull_secrets,
    )
    wanted = spec.automount_service_account_token
    pod = replace(pod, spec=spec)
    return _with_token(pod) if (account.automounts if wanted is None else wanted) else pod


def _checked_mirror(pod: Pod, identity: Identity) -> Pod:
    """A mirror pod shows a static pod of a node, and must not use objects of the API. Raises: Forbidden.

    Drains skip mirror pods, so only nodes and administrators may create them. (In Kubernetes everybody may.)
    """
    if not node_of(identity) and MASTERS not in identity.groups:
        raise _account_refusal(pod, f'only nodes can create mirror pods (annotation "{MIRROR}")')
    spec = pod.spec
    if spec.service_account_name or spec.service_account:
        raise _account_refusal(pod, "a mirror pod may not reference service accounts")
    if any(reference.resource == SECRETS for reference in references(pod)):
        raise _account_refusal(pod, "a mirror pod may not reference secrets")
    if any(reference.resource == CONFIG_MAPS for reference in references(pod)):
        raise _account_refusal(pod, "a mirror pod may not reference configmaps")
    if spec.resource_claims or isinstance(spec.resources, tuple):
        raise _account_refusal(pod, "a mirror pod may not reference resourceclaims")
    sources = (source for volume in spec.volumes if volume.projected for source in volume.projected.sources)
    if any(source.service_account_token is not None for source in sources):
        raise _account_refusal(pod, "a mirror pod may not use ServiceAccountToken volume projections")
    return pod


def _account_refusal(pod: Pod, why: str) -> Forbidden:
    name = pod.metadata.name or pod.metadata.generate_name or "Unknown"
    return Forbidden(f'pods "{name}" is forbidden: {why}', details={"name": name, "kind": PODS})


#: The same for all pods.
_TOKEN_VOLUME = ProjectedVolumeSource(
    default_mode=FILE_MODE,
    sources=(
        VolumeProjection(
            service_account_token=ServiceAccountTokenProjection(expiration_seconds=TOKEN_SECONDS, path="token")
        ),
        VolumeProjection(
            config_map=ConfigMapProjection(name=ROOT_CA, items=(KeyToPath(key=AUTHORITY_KEY, path=AUTHORITY_KEY),))
        ),
        VolumeProjection(
            downward_api=DownwardAPIProjection(
                items=(
                    DownwardAPIVolumeFile(
                        path="namespace",
                        field_ref=ObjectFieldSelector(api_version="v1", field_path="metadata.namespace"),
                    ),
                )
            )
        ),
    ),
)


def _with_token(pod: Pod) -> Pod:
    """Add the token's volume, and its mount to every container that has no mount at that path."""
    spec = pod.spec
    known = next((volume.name for volume in spec.volumes if volume.name.startswith(VOLUME_PREFIX)), "")
    name = known or generate_name(VOLUME_PREFIX, RANDOM.value)
    mount = VolumeMount(name=name, read_only=True, mount_path=MOUNT_PATH)
    containers, init_containers = _mounting(spec.containers, mount), _mounting(spec.init_containers, mount)
    changed = containers != spec.containers or init_containers != spec.init_containers
    added = (Volume(name=name, projected=_TOKEN_VOLUME),) if changed and not known else ()
    return replace(
        pod,
        spec=replace(spec, containers=containers, init_containers=init_containers, volumes=(*spec.volumes, *added)),
    )


def _mounting(containers: tuple[Container, ...], mount: VolumeMount) -> tuple[Container, ...]:
    return tuple(
        one
        if any(own.mount_path == mount.mount_path for own in one.volume_mounts)
        else replace(one, volume_mounts=(*one.volume_mounts, mount))
        for one in containers
    )


# Pod security ---------------------------------------------------------------------------------------------------------

# A rule of the writer refuses pods that violate the enforced level, whoever creates them. Violations of the `warn`
# level become a Warning header, those of the `audit` level an annotation of the audit event. Namespaces without labels
# have the levels of MANCIPLE_POD_SECURITY; those in MANCIPLE_POD_SECURITY_EXEMPT_NAMESPACES are not checked. Everybody
# who may write a namespace may label it.
#
# Another rule refuses invalid labels. A write that raises the level of a namespace gets a warning about its pods that
# violate the new level: they are checked before the transaction, within the limits below.


#: Subresources that do not change a pod's security.
IGNORED = frozenset({"exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status"})
#: The maximum of pods, and of seconds, that are checked when the level of their namespace is raised.
MOST_CHECKED_PODS, MOST_CHECK_SECONDS = 3000, 1.0


@dataclass(frozen=True, slots=True)
class PodSecurity:
    """The settings. exempt: namespaces whose pods are not checked."""

    default: PodSecurityPolicy
    exempt: frozenset[str]

    @classmethod
    def current(cls) -> PodSecurity:
        """Raises: ImproperlyConfigured."""
        return _configured(settings.POD_SECURITY, tuple(settings.POD_SECURITY_EXEMPT_NAMESPACES))


@lru_cache(maxsize=8)
def _configured(default: str, exempt: tuple[str, ...]) -> PodSecurity:
    try:
        return PodSecurity(parse_policy(default), frozenset(exempt))
    except ValueError as error:
        raise ImproperlyConfigured(f"MANCIPLE_POD_SECURITY: {error}") from error


def register_pod_security() -> None:
    """Raises: ImproperlyConfigured."""
    PodSecurity.current()
    hooks.register_rule(check_pod, operations={"CREATE", "UPDATE"}, resources={PODS})
    hooks.register_rule(check_labels, operations={"CREATE", "UPDATE"}, resources={NAMESPACES})
    hooks.register_check(warn_of_pods)


def check_pod(writer: Writer, write: Write) -> None:
    """Raises: Forbidden for a pod that violates the enforced level of its namespace."""
    pod: Pod = write.new
    if write.subresource in IGNORED:
        return
    if write.old is not None and not is_significant_update(pod.spec, write.old.spec):
        return
    security = PodSecurity.current()
    if pod.metadata.namespace in security.exempt:
        records.annotate(f"{PREFIX}exempt", "namespace")
        return
    namespace = writer.get(registry.by_resource(NAMESPACES), "", pod.metadata.namespace)
    policy, wrong = policy_of(namespace.metadata.labels if namespace is not None else {}, security.default)
    if wrong:
        records.annotate(f"{PREFIX}error", f"Failed to parse policy: {'; '.join(map(str, wrong))}")
    records.annotate(f"{PREFIX}enforce-policy", str(policy.enforce))
    is_default = namespace is None or f"{PREFIX}enforce" not in namespace.metadata.labels
    _judge(pod, policy, is_default=is_default)


def _admitting_label(pod: Pod, policy: PodSecurityPolicy) -> str:
    """Of a namespace without a label of its own: the strictest that would admit the pod."""
    admitting = (level for level in reversed(LEVELS) if not violations(LevelVersion(level, policy.enforce.minor), pod))
    return f"; label its namespace {PREFIX}enforce={next(admitting)} to admit it"


def _judge(pod: Pod, policy: PodSecurityPolicy, *, is_default: bool) -> None:
    """is_default: a label of the namespace would change what is enforced. Raises: Forbidden."""
    found = violations(policy.enforce, pod)
    audited = found if policy.audit == policy.enforce else violations(policy.audit, pod)
    if audited:
        records.annotate(
            f"{PREFIX}audit-violations", f'would violate PodSecurity "{policy.audit}": {describe(audited)}'
        )
    if found:
        advice = _admitting_label(pod, policy) if is_default else ""
        name, why = pod.metadata.name, f'violates PodSecurity "{policy.enforce}": {describe(found)}{advice}'
        raise Forbidden(f'pods "{name}" is forbidden: {why}', details={"name": name, "kind": PODS})
    if warned := violations(policy.warn, pod):
        records.warn(f'would violate PodSecurity "{policy.warn}": {describe(warned)}')


def check_labels(_writer: Writer, write: Write) -> None:
    """Raises: Invalid for invalid labels, unless the namespace had the same errors before."""
    if write.subresource:
        return
    default = PodSecurity.current().default
    wrong = policy_of(write.new.metadata.labels, default)[1]
    if wrong and (write.old is None or wrong != policy_of(write.old.metadata.labels, default)[1]):
        raise Invalid.of(kind="Namespace", group="", name=write.new.metadata.name, errors=wrong)


def warn_of_pods(write: Write) -> None:
    """Warn about labels without effect, or about existing pods that violate a stricter level."""
    if write.kind.resource != NAMESPACES or write.operation == "DELETE" or write.subresource:
        return
    security, name, labels = PodSecurity.current(), write.new.metadata.name, write.new.metadata.labels
    policy, wrong = policy_of(labels, security.default)
    if wrong:
        return
    old = None if write.old is None else policy_of(write.old.metadata.labels, security.default)[0]
    if old is not None and not _is_raised(policy.enforce, old.enforce):
        return
    if name in security.exempt:
        _warn_of_exemption(name, labels, policy, security.default)
    elif old is not None:
        for text in _evaluated(name, policy.enforce):
            records.warn(text)


def _is_raised(new: LevelVersion, old: LevelVersion) -> bool:
    """Whether pods that the old level allowed may violate the new one."""
    if new == old or new.level == "privileged":
        return False
    return new.minor != old.minor or new.strictness > old.strictness


def _warn_of_exemption(
    name: str, labels: Mapping[str, str], policy: PodSecurityPolicy, default: PodSecurityPolicy
) -> None:
    if policy.allows_everything or policy == default:
        return
    said = [
        f"{mode}={asked}"
        for mode, asked in policy._asdict().items()
        if asked.level != "privileged" and {f"{PREFIX}{mode}", f"{PREFIX}{mode}-version"} & labels.keys()
    ]
    records.warn(f'namespace "{name}" is exempt from Pod Security, and the policy ({", ".join(said)}) will be ignored')


@dataclass(slots=True)
class _Violators:
    """Pods that violate a level for the same reasons. name: the first of them."""

    name: str
    count: int = 0

    def __str__(self) -> str:
        if self.count == 1:
            return self.name
        return f"{self.name} (and {self.count - 1} other pod{'s' if self.count > 2 else ''})"  # noqa: PLR2004


def _evaluated(namespace: str, enforce: LevelVersion) -> Iterator[str]:
    """The warnings: a line for each set of reasons, with the number of pods."""
    deadline = time.monotonic() + MOST_CHECK_SECONDS
    page = objects.list(registry.by_resource(PODS), namespace=namespace, limit=MOST_CHECKED_PODS)
    checked, by_reason = 0, dict[str, _Violators]()
    for pod in _one_of_each_owner_first(page.items):
        checked += 1
        if found := violations(enforce, pod):
            violators = by_reason.setdefault(reasons(found), _Violators(pod.metadata.name))
            violators.name = min(violators.name, pod.metadata.name)
            violators.count += 1
        if time.monotonic() > deadline:
            break
    total = len(page.items) + (page.remaining or 0)
    if checked < total:
        yield f"new PodSecurity enforce level only checked against the first {checked} of {total} existing pods"
    if by_reason:
        yield f'existing pods in namespace "{namespace}" violate the new PodSecurity enforce level "{enforce}"'
    yield from sorted(f"{violators}: {reason}" for reason, violators in by_reason.items())


def _one_of_each_owner_first(items: Sequence[Stored]) -> Iterator[Pod]:
    """Pods of the same owner usually have the same violations."""
    owners: set[str] = set()
    later: list[Pod] = []
    for item in items:
        pod = codec.decode_text(Pod, item.text)
        owner = next((one.uid for one in pod.metadata.owner_references if one.controller), "")
        if owner in owners:
            later.append(pod)
            continue
        if owner:
            owners.add(owner)
        yield pod
    yield from later
