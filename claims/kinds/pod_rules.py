"""Rules of Pods: new ones, updates, resizes, ephemeral containers, and the statuses that node agents report.

Containers are in `container_rules`, volumes in `volume_rules`, affinity and spreading in `placement_rules`. Source:
pkg/apis/core/validation (ValidatePodSpec, validatePodDNSConfig, ValidateHostAliases, ValidatePodUpdate,
ValidatePodResize, ValidatePodEphemeralContainersUpdate, ValidatePodStatusUpdate) of Kubernetes 1.36.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from ipaddress import IPv6Address, ip_address

import msgspec
from msgspec.structs import replace

from claims.kinds.container_rules import Surroundings, validate_containers
from claims.kinds.containers import Container, EphemeralContainer, ResourceRequirements
from claims.kinds.early import validate_listed_resources
from claims.kinds.placement_rules import validate_affinity, validate_narrowed, validate_spreading, with_node_affinity_of
from claims.kinds.pod_groups import GANG_ANNOTATIONS, validate_gang, validate_gang_update
from claims.kinds.pod_security import (
    has_profile_annotations,
    is_app_armor,
    is_for_windows,
    validate_ids,
    validate_pod_security,
    validate_profile_annotations,
    validate_profiles_match,
    validate_system,
)
from claims.kinds.pod_strategy import uses_draft, with_defaults
from claims.kinds.pods import (
    MIRROR,
    Affinity,
    ContainerExtendedResourceRequest,
    ContainerStatus,
    ImageVolumeStatus,
    LinuxContainerUser,
    NodeAffinity,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodAntiAffinity,
    PodDNSConfig,
    PodResourceClaim,
    PodSpec,
    PodStatus,
    Toleration,
)
from claims.kinds.resource_usage import (
    RESIZED,
    is_sidecar,
    qos_class,
    resources_of,
    validate_node_charges,
    validate_pod_resources,
    validate_resources,
)
from claims.kinds.volume_rules import validate_volumes
from inventory.kinds import gates
from inventory.kinds.node_rules import TAINT_EFFECTS
from inventory.kinds.nodes import NodeSelectorTerm
from manciple.wire.base import LabelSelector, ObjectMeta
from manciple.wire.errors import (
    FieldError,
    duplicate,
    forbidden,
    immutable,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
)
from manciple.wire.selectors import MOST_REQUIREMENTS
from manciple.wire.validation import (
    METADATA,
    SPEC,
    STATUS,
    Messages,
    Path,
    check_dns_label,
    check_dns_subdomain,
    check_label_key,
    check_label_value,
    each,
    is_device_resource_name,
    regex_message,
    required_or,
    too_long_message,
    validate_labels,
    validate_list,
    validate_object_meta,
    validate_object_meta_update,
    validate_set,
)

Errors = list[FieldError]

# New pods -------------------------------------------------------------------------------------------------------------


RESTART_POLICIES = ("Always", "OnFailure", "Never")
DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
PREEMPTION_POLICIES = ("Never", "PreemptLowerPriority")
TOLERATION_OPERATORS = ("Equal", "Exists")
SECONDS_MAX = 2**31 - 1
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"


def validate_pod(pod: Pod) -> Errors:
    if too_large := validate_size(pod.spec):
        return too_large
    found = validate_object_meta(pod.metadata, namespaced=True) + validate_spec(pod.spec, pod.metadata)
    if pod.spec.ephemeral_containers:
        found.append(forbidden(SPEC.child("ephemeralContainers"), "cannot be set on create"))
    if pod.spec.scheduling_gates and pod.spec.node_name:
        found.append(forbidden(SPEC.child("nodeName"), "cannot be set until all schedulingGates have been cleared"))
    if pod.metadata.annotations:
        found += _validate_annotations(pod)
        if has_profile_annotations(pod.metadata.annotations):
            found += validate_profiles_match(pod.metadata.annotations, pod.spec)
    if not GANG_ANNOTATIONS.isdisjoint(pod.metadata.annotations):
        found += validate_gang(pod.metadata)
    return found + validate_listed_resources(pod) if uses_draft(pod.spec) else found


def _validate_annotations(pod: Pod) -> Errors:
    path, annotations = METADATA.child("annotations"), pod.metadata.annotations
    found: Errors = []
    if MIRROR in annotations and not pod.spec.node_name:
        message = "must set spec.nodeName if mirror pod annotation is set"
        found.append(invalid(path.key(MIRROR), annotations[MIRROR], message))
    if not _is_cost(annotations.get(DELETION_COST, "0")):
        found.append(invalid(path.key(DELETION_COST), annotations[DELETION_COST], "must be a 32bit integer"))
    if has_profile_annotations(annotations):
        found += validate_profile_annotations(annotations, pod.spec)
    return found


def _is_cost(text: str) -> bool:
    return re.fullmatch(r"0|-?[1-9][0-9]{0,9}", text) is not None and -(2**31) <= int(text) < 2**31


def validate_spec(spec: PodSpec, metadata: ObjectMeta) -> Errors:
    volumes, found = validate_volumes(spec, metadata)
    claim_names = frozenset(claim.name for claim in spec.resource_claims if claim.name)
    found += _validate_claims(spec.resource_claims)
    named = {volume.name: volume for volume in spec.volumes}
    found += validate_containers(Surroundings(spec=spec, claim_names=claim_names, volumes=volumes, any_volumes=named))
    if (resources := resources_of(spec)) is not None and not is_for_windows(spec):
        found += validate_pod_resources(spec, resources, claim_names)
    found += _validate_choices(spec)
    found += validate_network(spec)
    found += validate_pod_security(spec)
    found += validate_system(spec)
    found += _validate_names(spec)
    if spec.scheduling_gates or spec.readiness_gates:
        found += _validate_gates(spec)
    if spec.affinity is not None:
        found += validate_affinity(spec.affinity, SPEC.child("affinity"))
    found += validate_tolerations(spec.tolerations, SPEC.child("tolerations"))
    if spec.topology_spread_constraints:
        found += validate_spreading(spec.topology_spread_constraints, SPEC.child("topologySpreadConstraints"))
    if spec.overhead:
        found += validate_resources(ResourceRequirements(limits=spec.overhead), SPEC.child("overhead"), claim_names)
    if spec.scheduling_group is not None and gates.enabled("GenericWorkload"):
        # While the gate is off, admission drops the field from new pods, and stored ones passed this check before.
        path, name = SPEC.child("schedulingGroup", "podGroupName"), spec.scheduling_group.pod_group_name
        if name is None:
            found.append(invalid(path, None, "must specify one of: `podGroupName`"))
        else:
            found += each(check_dns_subdomain(name), path, name)
    deadline = spec.active_deadline_seconds
    if deadline is not None and not 1 <= deadline <= SECONDS_MAX:
        message = f"must be between 1 and {SECONDS_MAX}, inclusive"
        found.append(invalid(SPEC.child("activeDeadlineSeconds"), deadline, message))
    return found


def validate_tolerations(tolerations: Sequence[Toleration], path: Path) -> Errors:
    return validate_list(tolerations, path, _validate_toleration)


def _validate_toleration(toleration: Toleration, path: Path) -> Errors:
    key, operator, value, effect = toleration.key, toleration.operator, toleration.value, toleration.effect
    found: Errors = []
    if key and (messages := check_label_key(key)):
        found += each(messages, path.child("key"), key)
    if not key and operator != "Exists":
        message = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        found.append(invalid(path.child("operator"), operator, message))
    if toleration.toleration_seconds is not None and effect != "NoExecute":
        message = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        found.append(invalid(path.child("effect"), effect, message))
    if operator in ("", "Equal"):
        if messages := check_label_value(value):
            found += each(messages, path.child("operator"), value)
    elif operator != "Exists":
        found.append(not_supported(path.child("operator"), operator, TOLERATION_OPERATORS))
    elif value:
        found.append(invalid(path.child("operator"), toleration, "value must be empty when `operator` is 'Exists'"))
    if effect and effect not in TAINT_EFFECTS:
        found.append(not_supported(path.child("effect"), effect, TAINT_EFFECTS))
    return found


def _validate_claims(claims: Sequence[PodResourceClaim]) -> Errors:
    seen: set[str] = set()

    def validate_claim(claim: PodResourceClaim, path: Path) -> Errors:
        at = path.child("name")
        if claim.name in seen:
            return [duplicate(at, claim.name), *_validate_claim_source(claim, path)]
        seen.add(claim.name)
        found = required_or(check_dns_label, claim.name, at)
        return found + _validate_claim_source(claim, path)

    return validate_list(claims, SPEC.child("resourceClaims"), validate_claim)


def _validate_claim_source(claim: PodResourceClaim, path: Path) -> Errors:
    claim_name, template_name = claim.resource_claim_name, claim.resource_claim_template_name
    found: Errors = []
    if claim_name is not None and template_name is not None:
        message = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
        found.append(invalid(path, claim, message))
    if claim_name is None and template_name is None:
        found.append(invalid(path, claim, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"))
    for field, name in (("resourceClaimName", claim_name), ("resourceClaimTemplateName", template_name)):
        if name is not None and (messages := check_dns_subdomain(name)):
            found += each(messages, path.child(field), name)
    return found


def _validate_choices(spec: PodSpec) -> Errors:
    choices: tuple[tuple[str, str | None, Sequence[str]], ...] = (
        ("restartPolicy", spec.restart_policy, RESTART_POLICIES),
        ("dnsPolicy", spec.dns_policy, DNS_POLICIES),
        ("preemptionPolicy", spec.preemption_policy, PREEMPTION_POLICIES),
    )
    return [
        not_supported(SPEC.child(field), value, supported) if value else required(SPEC.child(field))
        for field, value, supported in choices
        if value is not None and value not in supported
    ]


def _validate_names(spec: PodSpec) -> Errors:
    subdomains = (
        ("serviceAccountName", spec.service_account_name),
        ("nodeName", spec.node_name),
        ("priorityClassName", spec.priority_class_name),
        ("runtimeClassName", spec.runtime_class_name or ""),
    )
    found: Errors = []
    for field, name in subdomains:
        if name and (messages := check_dns_subdomain(name)):
            found += each(messages, SPEC.child(field), name)
    return found + validate_labels(spec.node_selector, SPEC.child("nodeSelector")) if spec.node_selector else found


def _validate_gates(spec: PodSpec) -> Errors:
    def validate_gate(name: str, path: Path) -> Errors:
        return each(check_label_key(name), path, name)

    gates = tuple(gate.name for gate in spec.scheduling_gates)
    conditions = spec.readiness_gates
    found = validate_set(gates, SPEC.child("schedulingGates"), validate_gate, key=str)
    return found + validate_list(
        conditions,
        SPEC.child("readinessGates"),
        lambda gate, path: validate_gate(gate.condition_type, path.child("conditionType")),
    )


def validate_pod_meta_update(new: Pod, old: Pod) -> Errors:
    """A pod cannot become a mirror pod, which drains skip, and its AppArmor annotations cannot change."""
    found = validate_object_meta_update(new.metadata, old.metadata)
    before, after = old.metadata.annotations, new.metadata.annotations
    if before == after:
        return found
    for key in sorted(before.keys() | after.keys()):
        what = "add" if key not in before else "remove or update"
        kind = "mirror pod annotation" if key == MIRROR else "AppArmor annotations" if is_app_armor(key) else ""
        if kind and before.get(key) != after.get(key):
            found.append(forbidden(METADATA.child("annotations").key(key), f"may not {what} {kind}"))
    if not _is_cost(before.get(DELETION_COST, "0")):  # stored before updates were checked
        kept = {key: value for key, value in after.items() if key != DELETION_COST}
        new = replace(new, metadata=replace(new.metadata, annotations=kept))
    return found + _validate_annotations(new)


# Hostnames, addresses and DNS -----------------------------------------------------------------------------------------


NAMESERVERS_MAX, SEARCHES_MAX, SEARCH_LIST_MAX = 3, 32, 2048
OVERRIDE_MAX = 64

_SEARCH_MAX = 253
_SEARCH = r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*"
_SEARCH_MESSAGE = regex_message(
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must "
    "start and end with an alphanumeric character",
    _SEARCH,
    "example.com",
)


def check_address(text: str) -> Messages:
    """An IPv4 or IPv6 address in a form that all parsers read alike."""
    if re.fullmatch(r"[0-9]+(\.[0-9]+){3}", text) and any(len(one) > 1 and one[0] == "0" for one in text.split(".")):
        return ("must not have leading 0s",)
    try:
        address = ip_address(text if "%" not in text else "")
    except ValueError:
        return ("must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",)
    if isinstance(address, IPv6Address) and (address.ipv4_mapped is not None):
        return ("must not be an IPv4-mapped IPv6 address",)
    return ()


def validate_network(spec: PodSpec) -> Errors:
    found = _validate_hostnames(spec) if spec.hostname_override is not None else []
    for field, name in (("hostname", spec.hostname), ("subdomain", spec.subdomain)):
        found += each(check_dns_label(name), SPEC.child(field), name) if name else []
    for position, alias in enumerate(spec.host_aliases):
        at = SPEC.child("hostAliases").at(position)
        found += each(check_address(alias.ip), at.child("ip"), alias.ip)
        for place, name in enumerate(alias.hostnames):
            found += each(check_dns_subdomain(name), at.child("hostnames").at(place), name)
    if spec.host_network:
        found += _validate_host_ports(spec)
    return found + _validate_resolver(spec.dns_config, policy=spec.dns_policy)


def _validate_hostnames(spec: PodSpec) -> Errors:
    path, name = SPEC.child("hostnameOverride"), spec.hostname_override or ""
    found = each(check_dns_subdomain(name), path, name)
    if len(name) > OVERRIDE_MAX:
        found.append(too_long(path, OVERRIDE_MAX))
    if spec.host_network:
        found.append(forbidden(path, "may not be specified when hostNetwork is true"))
    if spec.set_hostname_as_fqdn:
        found.append(forbidden(path, "may not be specified when setHostnameAsFQDN is true"))
    return found


def _validate_host_ports(spec: PodSpec) -> Errors:
    path, message = SPEC.child("containers"), "must match `containerPort` when `hostNetwork` is true"
    return [
        invalid(path.at(place).child("ports").at(position).child("hostPort"), port.host_port, message)
        for place, container in enumerate(spec.containers)
        for position, port in enumerate(container.ports)
        if port.host_port != port.container_port
    ]


def _validate_resolver(config: PodDNSConfig | None, *, policy: str) -> Errors:
    if config is None and policy != "None":
        return []
    path = SPEC.child("dnsConfig")
    if config is None:
        return [required(path, "must provide `dnsConfig` when `dnsPolicy` is None")]
    if policy == "None" and not config.nameservers:
        message = "must provide at least one DNS nameserver when `dnsPolicy` is None"
        return [required(path.child("nameservers"), message)]
    found: Errors = []
    at, servers, searches = path.child("nameservers"), config.nameservers, config.searches
    if len(servers) > NAMESERVERS_MAX:
        found.append(invalid(at, servers, f"must not have more than {NAMESERVERS_MAX} nameservers"))
    for position, server in enumerate(servers):
        found += each(check_address(server), at.at(position), server)
    at = path.child("searches")
    if len(searches) > SEARCHES_MAX:
        found.append(invalid(at, searches, f"must not have more than {SEARCHES_MAX} search paths"))
    if len(" ".join(searches)) > SEARCH_LIST_MAX:
        message = f"must not have more than {SEARCH_LIST_MAX} characters (including spaces) in the search list"
        found.append(invalid(at, searches, message))
    for position, search in enumerate(searches):
        found += each(_check_search(search), at.at(position), search)
    at = path.child("options")
    return found + [
        required(at.at(position), "must not be empty")
        for position, option in enumerate(config.options)
        if not option.name
    ]


def _check_search(text: str) -> Messages:
    if text == ".":
        return ()
    text = text.removesuffix(".")
    found = [] if len(text) <= _SEARCH_MAX else [too_long_message(_SEARCH_MAX)]
    return (*found, *(() if re.fullmatch(_SEARCH, text) else (_SEARCH_MESSAGE,)))


# Size -----------------------------------------------------------------------------------------------------------------

# Limits on what the scheduler reads again for every node, or for every other pod. Upstream only limits the size of an
# object (etcd's 1.5 MiB), and a spec of that size keeps our scheduler busy for minutes on a few thousand nodes, while
# no other tenant's pod is placed. Every worker also keeps pods in memory, where many short values take about ten times
# the size of their text. The limits are far above what real pods list. They hold for new pods and for updates of the
# spec; stored pods stay as they are.

#: Of each kind of container.
MOST_CONTAINERS = 256
#: Resources named by the containers: each is compared with the free amount of each node.
MOST_RESOURCES = 100
#: ResourceClaims: each may be generated from a template.
MOST_CLAIMS = 128
MOST_TOLERATIONS = 256
MOST_SPREAD_CONSTRAINTS = 32
#: Required or preferred terms of pod affinity or anti-affinity: each is matched with other tenants' pods.
MOST_POD_TERMS = 100
#: Requirements in all required terms of node affinity, and in all preferred ones; an empty term counts as one.
MOST_NODE_REQUIREMENTS = 500
#: Values in all requirements and terms of an affinity.
MOST_VALUES = 5_000
#: Bytes of JSON of an affinity, a node selector, tolerations and spread constraints together.
MOST_TEXT = 128 * 1024


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def validate_size(spec: PodSpec) -> Errors:
    """One error for each list that is too long, or else one if they are too much text together."""
    if found := [too_many(SPEC.child(*field), count, most) for field, count, most in _counts(spec) if count > most]:
        return found
    parts = {
        "affinity": spec.affinity,
        "nodeSelector": spec.node_selector,
        "tolerations": spec.tolerations,
        "topologySpreadConstraints": spec.topology_spread_constraints,
    }
    sizes = {name: len(msgspec.json.encode(part)) for name, part in parts.items() if part}
    return (
        [too_long(SPEC.child(max(sizes, key=sizes.__getitem__)), MOST_TEXT)] if sum(sizes.values()) > MOST_TEXT else []
    )


#: (field, below the spec; count; maximum)
Count = tuple[tuple[str, ...], int, int]


def _counts(spec: PodSpec) -> Iterator[Count]:
    yield ("containers",), len(spec.containers), MOST_CONTAINERS
    yield ("initContainers",), len(spec.init_containers), MOST_CONTAINERS
    yield ("ephemeralContainers",), len(spec.ephemeral_containers), MOST_CONTAINERS
    containers = (*spec.containers, *spec.init_containers)
    resources = {name for one in containers for name in (*one.resources.requests, *one.resources.limits)}
    yield ("containers", "resources"), len(resources), MOST_RESOURCES
    yield ("resourceClaims",), len(spec.resource_claims), MOST_CLAIMS
    yield ("tolerations",), len(spec.tolerations), MOST_TOLERATIONS
    yield ("nodeSelector",), len(spec.node_selector), MOST_REQUIREMENTS
    constraints = spec.topology_spread_constraints
    yield ("topologySpreadConstraints",), len(constraints), MOST_SPREAD_CONSTRAINTS
    if (affinity := spec.affinity) is None:
        return
    yield ("affinity",), _values(affinity), MOST_VALUES
    if affinity.node_affinity is not None:
        yield from _node_counts(affinity.node_affinity)
    if affinity.pod_affinity is not None:
        yield from _pod_counts(affinity.pod_affinity, "podAffinity")
    if affinity.pod_anti_affinity is not None:
        yield from _pod_counts(affinity.pod_anti_affinity, "podAntiAffinity")


def _node_counts(affinity: NodeAffinity) -> Iterator[Count]:
    required = affinity.required_during_scheduling_ignored_during_execution
    terms = required.node_selector_terms if required is not None else ()
    preferred = [one.preference for one in affinity.preferred_during_scheduling_ignored_during_execution]
    yield ("affinity", "nodeAffinity", _REQUIRED), sum(map(_requirements, terms)), MOST_NODE_REQUIREMENTS
    yield ("affinity", "nodeAffinity", _PREFERRED), sum(map(_requirements, preferred)), MOST_NODE_REQUIREMENTS


def _requirements(term: NodeSelectorTerm) -> int:
    return max(1, len(term.match_expressions) + len(term.match_fields))


def _pod_counts(affinity: PodAffinity | PodAntiAffinity, name: str) -> Iterator[Count]:
    required = affinity.required_during_scheduling_ignored_during_execution
    preferred = affinity.preferred_during_scheduling_ignored_during_execution
    yield ("affinity", name, _REQUIRED), len(required), MOST_POD_TERMS
    yield ("affinity", name, _PREFERRED), len(preferred), MOST_POD_TERMS


def _values(affinity: Affinity) -> int:
    found = 0
    if nodes := affinity.node_affinity:
        required = nodes.required_during_scheduling_ignored_during_execution
        terms = [one.preference for one in nodes.preferred_during_scheduling_ignored_during_execution]
        for term in (*terms, *(required.node_selector_terms if required else ())):
            found += sum(len(one.values) for one in (*term.match_expressions, *term.match_fields))
    for pods in (affinity.pod_affinity, affinity.pod_anti_affinity):
        for one in _pod_terms(pods) if pods else ():
            found += len(one.namespaces) + len(one.match_label_keys) + len(one.mismatch_label_keys)
            found += _selector_values(one.label_selector) + _selector_values(one.namespace_selector)
    return found


def _pod_terms(affinity: PodAffinity | PodAntiAffinity) -> Iterator[PodAffinityTerm]:
    yield from affinity.required_during_scheduling_ignored_during_execution
    for one in affinity.preferred_during_scheduling_ignored_during_execution:
        yield one.pod_affinity_term


def _selector_values(selector: LabelSelector | None) -> int:
    if selector is None:
        return 0
    return len(selector.match_labels) + sum(len(one.values) for one in selector.match_expressions)


# Updates --------------------------------------------------------------------------------------------------------------


_UPDATE_RULE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def validate_pod_update(new: Pod, old: Pod) -> Errors:
    """Mutable: images, the deadline (shorter), tolerations (additions), scheduling gates (removals)."""
    if new.spec != old.spec and (too_large := validate_size(new.spec)):
        return too_large
    found = validate_pod_meta_update(new, old)
    if not GANG_ANNOTATIONS.isdisjoint({*new.metadata.annotations, *old.metadata.annotations}):
        found += validate_gang_update(new.metadata, old.metadata)
    old = replace(old, spec=with_defaults(old.spec))
    if new.spec == old.spec:  # an unchanged spec passed the rules when it was written
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
    fields = zip(PodSpec.__struct_fields__, PodSpec.__struct_encode_fields__, strict=True)
    frozen = _with_mutable_fields_of(old.spec, new.spec)
    if changed := [shown for name, shown in fields if getattr(frozen, name) != getattr(old.spec, name)]:
        found.append(forbidden(SPEC, f"{_UPDATE_RULE}; changed: {', '.join(changed)}"))
    return found


def _with_mutable_fields_of(old: PodSpec, new: PodSpec) -> PodSpec:
    """`new` with every mutable field set as in `old`: whatever still differs must not change."""
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
    """The number of containers must not change. If it does, that is the only error."""
    counts = (
        ("containers", len(new.containers), len(old.containers)),
        ("initContainers", len(new.init_containers), len(old.init_containers)),
    )
    for field, after, before in counts:
        if after != before:
            return [forbidden(SPEC.child(field), "pod updates may not add or remove containers")]
    return []


def _validate_tolerations_update(new: PodSpec, old: PodSpec) -> Errors:
    """Tolerations may be added, and tolerationSeconds changed."""

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
    """A new gate that is listed twice is reported once, at its last position."""
    known = {gate.name for gate in old.scheduling_gates}
    path, message = SPEC.child("schedulingGates"), "only deletion is allowed, but found new scheduling gate"
    added = {gate.name: position for position, gate in enumerate(new.scheduling_gates) if gate.name not in known}
    return [forbidden(path.at(position).child("name"), f"{message} '{name}'") for name, position in added.items()]


def _validate_node_selector_update(new: PodSpec, old: PodSpec) -> Errors:
    """Entries may be added while the pod has scheduling gates."""
    if not old.scheduling_gates or old.node_selector.items() <= new.node_selector.items():
        return []
    message = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
    return [invalid(SPEC.child("nodeSelector"), new.node_selector or None, message)]


# Resizes --------------------------------------------------------------------------------------------------------------

#: The path of errors for which the reference names no field.
_WHOLE = Path("[]")


def validate_resize(new: Pod, old: Pod) -> Errors:
    """Only cpu and memory may change, and not the QoS class."""
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


# Ephemeral containers -------------------------------------------------------------------------------------------------


def validate_added_containers(new: Pod, old: Pod) -> Errors:
    """Ephemeral containers may be added, not changed or removed."""
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


# Statuses -------------------------------------------------------------------------------------------------------------


HEALTHS = ("Healthy", "Unhealthy", "Unknown")
HEALTH_MESSAGE_MAX = 1024
IMAGE_MAX = 256


def validate_pod_status_update(new: Pod, old: Pod) -> Errors:
    """Statuses name claims of the pod, and no terminated container runs again unless its restart policy allows it."""
    found = validate_pod_meta_update(new, old)
    status = new.status
    if status.observed_generation < 0:
        at = STATUS.child("observedGeneration")
        found.append(invalid(at, status.observed_generation, "must be a non-negative integer"))
    for position, condition in enumerate(status.conditions):
        wrong_type = check_label_key(condition.type)
        if condition.observed_generation >= 0 and not wrong_type:
            continue
        at = STATUS.child("conditions").at(position)
        if condition.observed_generation < 0:
            message = "must be a non-negative integer"
            found.append(invalid(at.child("observedGeneration"), condition.observed_generation, message))
        found += each(wrong_type, at.child("Type"), condition.type)
    found += _validate_all_addresses(status, old.status)
    found += _validate_nomination(new, old)
    if old.status.qos_class and status.qos_class != old.status.qos_class:
        found.append(immutable(STATUS.child("qosClass"), status.qos_class))
    if status.resource_claim_statuses:
        found += _validate_claim_statuses(new)
    found += _validate_extended(new, old)
    if status.node_allocatable_resource_claim_statuses:
        found += validate_node_charges(new)
    return found + _validate_container_statuses(new, old)


def _validate_nomination(new: Pod, old: Pod) -> Errors:
    node = new.status.nominated_node_name
    if not node or node == old.status.nominated_node_name:
        return []
    path = STATUS.child("nominatedNodeName")
    found = each(check_dns_subdomain(node), path, node)
    if old.spec.node_name:
        found.append(forbidden(path, "may not be set on pods that are already bound to a node"))
    return found


# Addresses in statuses ------------------------------------------------------------------------------------------------


def _validate_all_addresses(new: PodStatus, old: PodStatus) -> Errors:
    found: Errors = []
    for field, after, before in (
        ("podIPs", [one.ip for one in new.pod_ips], [one.ip for one in old.pod_ips]),
        ("hostIPs", [one.ip for one in new.host_ips], [one.ip for one in old.host_ips]),
    ):
        if after != before:
            found += _validate_addresses(after, STATUS.child(field), known=before)
    if new.host_ips and new.host_ips[0].ip != new.host_ip:
        at = STATUS.child("hostIPs").at(0).child("ip")
        found.append(invalid(at, new.host_ips[0].ip, "must be equal to `hostIP`"))
    return found


def _validate_addresses(addresses: Sequence[str], path: Path, *, known: Collection[str]) -> Errors:
    """Each address is valid or `known`, and there is at most one of each IP family."""
    found = [
        error
        for place, one in enumerate(addresses)
        if one not in known
        for error in each(check_address(one), path.at(place), one)
    ]
    if len(addresses) < 2:  # noqa: PLR2004 - one of each family
        return found
    if found:
        found.append(FieldError(type="InternalError", field=path, detail="failed to check for dual stack"))
    if found or len(addresses) != len({":" in one for one in addresses}):
        shown = [{"IP": one} for one in addresses]
        found.append(invalid(path, shown, "may specify no more than one IP for each IP family"))
    return found


# Claims in statuses ---------------------------------------------------------------------------------------------------


def _validate_extended(pod: Pod, before: Pod) -> Errors:
    """Each mapping names an extended resource that a container of the pod requests.

    The reference accepts any resource that the container requests, and changes once the pod is bound.
    """
    status, known = pod.status.extended_resource_claim_status, before.status.extended_resource_claim_status
    if status is None and known is None:
        return []
    path = STATUS.child("extendedResourceClaimStatus")
    if before.spec.node_name and known is not None and status != known:
        return [immutable(path, status)]
    if status is None:
        return []
    mappings = path.child("requestMappings")
    found = [] if status.request_mappings else [required(mappings, "at least one request mapping is required")]
    containers = {one.name: one for one in (*pod.spec.init_containers, *pod.spec.containers)}
    seen: set[ContainerExtendedResourceRequest] = set()
    for position, one in enumerate(status.request_mappings):
        at = mappings.at(position)
        container = containers.get(one.container_name)
        if container is None:
            message = "must match the name of an entry in spec.initContainers.name or spec.containers.name"
            found.append(invalid(at.child("containerName"), one.container_name, message))
        elif one.resource_name not in container.resources.requests or not is_device_resource_name(one.resource_name):
            message = (
                "must match the extended resource name of an entry in spec.initContainers.resources.requests or "
                "spec.containers.resources.requests"
            )
            found.append(invalid(at.child("resourceName"), one.resource_name, message))
        # The reference names the field without its position.
        found += each(check_dns_label(one.request_name), path.child("requestName"), one.request_name)
        if one in seen:
            found += [
                duplicate(at.child("containerName"), one.container_name),
                duplicate(at.child("resourceName"), one.resource_name),
                duplicate(at.child("requestName"), one.request_name),
            ]
        seen.add(one)
    return found + required_or(check_dns_subdomain, status.resource_claim_name, path.child("resourceClaimName"))


def _validate_claim_statuses(pod: Pod) -> Errors:
    names = {claim.name for claim in pod.spec.resource_claims}
    path = STATUS.child("resourceClaimStatuses")
    found: Errors = []
    for position, status in enumerate(pod.status.resource_claim_statuses):
        at, claim = path.at(position), status.resource_claim_name
        if status.name not in names:
            message = "must match the name of an entry in `spec.resourceClaims`"
            found.append(invalid(at.child("name"), status.name, message))
        if claim is not None and (messages := check_dns_subdomain(claim)):
            found += each(messages, at.child("resourceClaimName"), claim)
    seen: set[str] = set()
    for position, status in enumerate(pod.status.resource_claim_statuses):
        if status.name in seen:
            found.append(duplicate(path.at(position).child("name"), status.name))
        seen.add(status.name)
    return found


# Container statuses ---------------------------------------------------------------------------------------------------


def _validate_container_statuses(new: Pod, old: Pod) -> Errors:
    found: Errors = []
    spec = old.spec
    for field, containers, after, before in (
        ("containerStatuses", spec.containers, new.status.container_statuses, old.status.container_statuses),
        (
            "initContainerStatuses",
            spec.init_containers,
            new.status.init_container_statuses,
            old.status.init_container_statuses,
        ),
        (
            "ephemeralContainerStatuses",
            spec.ephemeral_containers,
            new.status.ephemeral_container_statuses,
            old.status.ephemeral_container_statuses,
        ),
    ):
        if not after:  # then no container in it can run again
            continue
        path = STATUS.child(field)
        found += _validate_endings(after, before, path, spec=spec, containers=containers)
        for position, status in enumerate(after):
            at = path.at(position)
            if status.user is not None and status.user.linux is not None:
                found += _validate_user(status.user.linux, at.child("user", "linux"), spec)
            for place, mount in enumerate(status.volume_mounts):
                if mount.volume_status is not None and mount.volume_status.image is not None:
                    image_at = at.child("volumeMounts").at(place).child("volumeStatus", "imageVolumeStatus")
                    found += _validate_image(mount.volume_status.image, image_at)
            if status.allocated_resources_status:
                at = at.child("allocatedResourcesStatus")
                if field == "ephemeralContainerStatuses":
                    found.append(forbidden(at, "must not be specified in container status"))
                else:
                    container = next((one for one in containers if one.name == status.name), None)
                    found += _validate_device_health(status, container, at)
    return found


def _validate_user(user: LinuxContainerUser, path: Path, spec: PodSpec) -> Errors:
    if is_for_windows(spec):
        return [forbidden(path, "cannot be set for a windows pod")]
    ids = [("uid", user.uid), ("gid", user.gid)]
    ids += [(f"supplementalGroups[{position}]", group) for position, group in enumerate(user.supplemental_groups)]
    return validate_ids(ids, path)


def _validate_image(image: ImageVolumeStatus, path: Path) -> Errors:
    at = path.child("imageRef")
    if not image.image_ref:
        return [required(at, "imageRef must not be empty")]
    return [too_long(at, IMAGE_MAX)] if len(image.image_ref) > IMAGE_MAX else []


def _validate_device_health(status: ContainerStatus, container: Container | None, path: Path) -> Errors:
    """Each resource belongs to the container. No resource, and no device of a resource, is listed twice."""
    seen: set[str] = set()
    found: Errors = []
    for place, one in enumerate(status.allocated_resources_status):
        at = path.at(place)
        if one.name in seen:
            found.append(duplicate(at.child("name"), one.name))
        seen.add(one.name)
        if container is not None and (why := _why_foreign(one.name, container)):
            found.append(invalid(at.child("name"), one.name, why))
        devices: set[str] = set()
        for index, device in enumerate(one.resources):
            device_at = at.child("resources").at(index)
            if device.health not in HEALTHS:
                found.append(not_supported(device_at.child("health"), device.health, HEALTHS))
            if device.message == "":
                found.append(required(device_at.child("message"), "must be non-empty if specified"))
            elif device.message is not None and len(device.message) > HEALTH_MESSAGE_MAX:
                found.append(too_long(device_at.child("message"), HEALTH_MESSAGE_MAX))
            if device.resource_id in devices:
                found.append(duplicate(device_at.child("resourceID"), device.resource_id))
            devices.add(device.resource_id)
    return found


def _why_foreign(name: str, container: Container) -> str:
    """The error if the container has no such resource, or "". A container that uses a whole claim has all its parts."""
    if not name.startswith("claim:"):
        known = name in container.resources.requests
        return "" if known else "must match one of the container's resource requests"
    used = container.resources.claims
    names = {f"claim:{use.name}/{use.request}" if use.request else f"claim:{use.name}" for use in used}
    names |= {f"claim:{one}" for one in container.pod_resources}
    if name in names or name.partition("/")[0] in names:
        return ""
    return (
        "must match one of the container's resource claims in a format 'claim:<claimName>/<request>' or "
        "'claim:<claimName>' if request is empty"
    )


def _validate_endings(
    new: Sequence[ContainerStatus],
    old: Sequence[ContainerStatus],
    path: Path,
    *,
    spec: PodSpec,
    containers: Sequence[Container],
) -> Errors:
    """A container that is not restarted stays terminated (upstream: ValidateContainerStateTransition)."""
    known = {one.name: one for one in containers}
    running = {one.name for one in new if one.state.terminated is None}
    message = "may not be transitioned to non-terminated state"
    rules = (rule for one in (*spec.init_containers, *spec.containers) for rule in one.restart_policy_rules)
    all_restart = any(rule.action == "RestartAllContainers" for rule in rules)
    return [
        forbidden(path.at(position).child("state"), message)
        for position, status in enumerate(old)
        if status.state.terminated is not None
        and status.name in running
        and not _restarts(
            known.get(status.name), status.state.terminated.exit_code, spec.restart_policy, all_restart=all_restart
        )
    ]


def _restarts(container: Container | None, exit_code: int, policy_of_pod: str, *, all_restart: bool) -> bool:
    """Whether a container that exited with `exit_code` is restarted: by a rule, its own policy, or the pod's.

    all_restart: some container has a rule that restarts all of them.
    """
    if isinstance(container, EphemeralContainer):
        return False
    if all_restart:
        return True
    if container is None:
        return False
    for rule in container.restart_policy_rules:
        codes = rule.exit_codes
        if codes is not None and (exit_code in codes.values) == (codes.operator == "In"):
            return True
    policy = container.restart_policy or policy_of_pod
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)
