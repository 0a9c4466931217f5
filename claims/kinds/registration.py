"""The kinds of the claims, as the API server serves them: ResourceClaim, ResourceClaimTemplate and Pod."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import structs

from claims.kinds import claim_preparation, claim_rules, pod_preparation, pod_rules
from claims.kinds.claim_columns import CLAIM_COLUMNS
from claims.kinds.conversion import CLAIM_VERSIONS, TEMPLATE_VERSIONS
from claims.kinds.pod_columns import POD_COLUMNS
from claims.kinds.pods import Pod, PodSpec
from claims.kinds.resource_claims import ResourceClaim, ResourceClaimTemplate
from manciple.wire.registry import Kind, Subresource
from manciple.wire.tables import DEFAULT_COLUMNS

GROUP, VERSION = "resource.k8s.io", "v1"

RESOURCE_CLAIM = Kind(
    group=GROUP,
    version=VERSION,
    kind="ResourceClaim",
    plural="resourceclaims",
    singular="resourceclaim",
    type=ResourceClaim,
    prepare_create=claim_preparation.create_claim,
    prepare_update=claim_preparation.update_claim,
    validate_create=claim_rules.validate_claim,
    validate_update=claim_rules.validate_claim_update,
    subresources={
        "status": Subresource(
            name="status",
            prepare_update=claim_preparation.update_claim_status,
            validate_update=claim_rules.validate_claim_status_update,
        )
    },
    columns=CLAIM_COLUMNS,
    served_versions=CLAIM_VERSIONS,
    description="A request for devices, and once it is met, the devices.",
)

RESOURCE_CLAIM_TEMPLATE = Kind(
    group=GROUP,
    version=VERSION,
    kind="ResourceClaimTemplate",
    plural="resourceclaimtemplates",
    singular="resourceclaimtemplate",
    type=ResourceClaimTemplate,
    prepare_create=claim_preparation.create_template,
    prepare_update=claim_preparation.update_template,
    validate_create=claim_rules.validate_template,
    validate_update=claim_rules.validate_template_update,
    columns=DEFAULT_COLUMNS,
    served_versions=TEMPLATE_VERSIONS,
    description="The mould from which each pod that names it gets a claim of its own.",
)


def selectable_pod(pod: Pod) -> Mapping[str, str]:
    """The fields by which pods can be listed and watched (upstream: pod strategy, ToSelectableFields)."""
    addresses = pod.status.pod_ips
    return {
        "spec.nodeName": pod.spec.node_name,
        "spec.restartPolicy": pod.spec.restart_policy,
        "spec.schedulerName": pod.spec.scheduler_name,
        "spec.serviceAccountName": pod.spec.service_account_name,
        "spec.hostNetwork": "true" if pod.spec.host_network else "false",
        "status.phase": pod.status.phase,
        "status.podIP": addresses[0].ip if addresses else pod.status.pod_ip,
        "status.nominatedNodeName": pod.status.nominated_node_name,
    }


def what_pods_ask(pod: Pod) -> PodSpec:
    """What a pod's generation counts the changes of. Binding it to a node is not one: conditions that were written for
    the first generation stay current, and `kubectl wait` believes them (upstream: pods run at generation 1)."""
    return structs.replace(pod.spec, node_name="")


POD = Kind(
    group="",
    version="v1",
    kind="Pod",
    plural="pods",
    singular="pod",
    short_names=("po",),
    categories=("all",),
    type=Pod,
    prepare_create=pod_preparation.create_pod,
    prepare_update=pod_preparation.update_pod,
    validate_create=pod_rules.validate_pod,
    validate_update=pod_rules.validate_pod_update,
    subresources={
        "status": Subresource(
            name="status",
            prepare_update=pod_preparation.update_pod_status,
            validate_update=pod_rules.validate_pod_status_update,
        )
    },
    selectable=selectable_pod,
    columns=POD_COLUMNS,
    generation_of=what_pods_ask,
    grace_seconds=pod_preparation.grace_seconds,
    description="Containers that run together on one node.",
)

KINDS: tuple[Kind, ...] = (RESOURCE_CLAIM, RESOURCE_CLAIM_TEMPLATE, POD)
