"""Workloads with devices, for the tests of their pages: a Deployment whose pods ask for a GPU each."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from claims.kinds.pods import Pod, PodCondition, PodResourceClaim
from manciple.access.kinds.roles import GROUP, ROLE, ROLE_BINDING, PolicyRule, Role, RoleBinding, RoleRef, Subject
from manciple.store import objects
from manciple.wire.base import ObjectMeta
from tests.builders import make_request, make_template
from tests.scheduling.cluster import Cluster
from tests.workloads.cluster import CONTROLLERS, make_deployment, make_pod_template
from workloads.kinds.deployments import Deployment
from workloads.kinds.templates import PodTemplateSpec


def gpu_template(image: str = "app:1", *, template: str = "gpu") -> PodTemplateSpec:
    """A pod with one claim from this template."""
    plain = make_pod_template(image)
    entry = PodResourceClaim(name="gpu", resource_claim_template_name=template)
    return replace(plain, spec=replace(plain.spec, resource_claims=(entry,)))


def deploys(cluster: Cluster, name: str = "web", *, replicas: int = 2, gpus: int = 0, **spec: Any) -> Deployment:
    """gpus: of each pod; without any it asks for none."""
    if gpus:
        cluster.create(make_template(name, requests=[make_request(count=gpus)]))
        spec["template"] = gpu_template(template=name)
    made = cluster.create(make_deployment(name, replicas=replicas, **spec))
    work(cluster)
    return made


def work(cluster: Cluster) -> None:
    """Let the controllers of workloads and all others do what they have to do now."""
    while sum(reconcile(cluster.now) for reconcile in CONTROLLERS):
        cluster.settle()
    cluster.settle()


def let_run(cluster: Cluster) -> None:
    """Pods with a node run, and are ready."""
    ready = PodCondition(type="Ready", status="True")
    for pod in cluster.all(Pod):
        if pod.spec.node_name and pod.status.phase == "Pending":
            cluster.update(replace(pod, status=replace(pod.status, phase="Running", conditions=(ready,))))
    work(cluster)


def grant(group: str, *rules: tuple[str, str], namespace: str = "default") -> None:
    """A role of this name, for the people of this group. rules: (verbs, plural.group)."""
    meta = ObjectMeta(name=group, namespace=namespace)
    granted = []
    for verbs, resource in rules:
        plural, _, api_group = resource.partition(".")
        api_group, _, part = api_group.partition("/")
        resources = (f"{plural}/{part}" if part else plural,)
        granted.append(PolicyRule(verbs=tuple(verbs.split()), api_groups=(api_group,), resources=resources))
    role = Role(api_version=ROLE.api_version, kind="Role", metadata=meta, rules=tuple(granted))
    binding = RoleBinding(
        api_version=ROLE_BINDING.api_version,
        kind="RoleBinding",
        metadata=meta,
        subjects=(Subject(kind="Group", api_group=GROUP, name=group),),
        role_ref=RoleRef(api_group=GROUP, kind="Role", name=group),
    )
    with objects.writing() as writer:
        writer.create(ROLE, role)
        writer.create(ROLE_BINDING, binding)
