"""What was rehearsed as YAML, for who wants to create it: the pod with what it names, as often as was asked for.

Names that are taken get a number. A template that exists and is not changed is named, not written again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import structs

from claims.kinds.pods import Pod, PodResourceClaim
from claims.kinds.resource_claims import ResourceClaim, ResourceClaimSpec
from dashboard.kit.differences import dump
from dashboard.workloads.pods.manifest import free_name, manifest
from dashboard.workloads.whatif.query import Asked
from manciple.store import objects
from manciple.wire import codec
from manciple.wire.resources import CLAIMS, PODS, TEMPLATES, kind
from scheduling.rehearsal.workload import ONLY, Workload, written_anew

#: Pods that are written, at most.
MOST = 20


def text_of(asked: Asked) -> str:
    """Documents, in the order in which they are created; "" where nothing was rehearsed."""
    if asked.workload is None:
        return ""
    if asked.about == "text" and not asked.changes.any and asked.replicas == 1:
        return asked.text
    found = _of_pod(asked, asked.workload) if _is_pod(asked.workload) else _of_claim(asked, asked.workload)
    return "\n---\n".join(map(dump, found)) + "\n"


def _is_pod(workload: Workload) -> bool:
    """Whether there is more than a pod that was made up for a claim."""
    entries = workload.pod.spec.resource_claims
    return not (len(entries) == 1 and entries[0].name == entries[0].resource_claim_name == ONLY)


def _of_claim(asked: Asked, workload: Workload) -> Iterator[dict[str, Any]]:
    claim = workload.own[ONLY]
    name = claim.metadata.name or claim.metadata.generate_name.rstrip("-") or ONLY
    yield _claim(claim, _free(CLAIMS, claim.metadata.namespace, name), written_anew(claim, ONLY, asked.changes))


def _of_pod(asked: Asked, workload: Workload) -> Iterator[dict[str, Any]]:
    pod, entries = workload.pod, []
    for entry in pod.spec.resource_claims:
        written, named = _entry(asked, workload, entry)
        entries.append(named)
        if written is not None:
            yield written
    document = manifest(structs.replace(pod, spec=structs.replace(pod.spec, resource_claims=tuple(entries))))
    if asked.changes.tolerate_nodes:
        document["spec"].setdefault("tolerations", []).append({"operator": "Exists"})
    yield from _pods(document, pod, min(asked.replicas, MOST))


def _pods(document: dict[str, Any], pod: Pod, number: int) -> Iterator[dict[str, Any]]:
    meta = pod.metadata
    taken = {one.name for one in objects.list(kind(PODS), namespace=meta.namespace).items}
    for _ in range(number):
        name = free_name(meta.name or meta.generate_name.rstrip("-"), taken)
        taken.add(name)
        yield {**document, "metadata": {**document["metadata"], "name": name}}


def _entry(asked: Asked, workload: Workload, entry: PodResourceClaim) -> tuple[dict[str, Any] | None, PodResourceClaim]:
    """(what has to be written for it, the entry of the new pod)."""
    claim = workload.claims.get(entry.name)
    if claim is None or not (asked.about == "text" or asked.changes.concern(entry.name)):
        return None, entry
    spec, namespace = written_anew(claim, entry.name, asked.changes), workload.pod.metadata.namespace
    if entry.resource_claim_template_name:
        name = _free(TEMPLATES, namespace, entry.resource_claim_template_name)
        document = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"spec": codec.to_builtins(spec)},
        }
        return document, structs.replace(entry, resource_claim_template_name=name)
    name = _free(CLAIMS, namespace, entry.resource_claim_name or ONLY)
    return _claim(claim, name, spec), structs.replace(entry, resource_claim_name=name)


def _claim(claim: ResourceClaim, name: str, spec: ResourceClaimSpec) -> dict[str, Any]:
    document = manifest(structs.replace(claim, spec=spec))
    return {**document, "metadata": {"name": name, "namespace": claim.metadata.namespace}}


def _free(resource: str, namespace: str, name: str) -> str:
    return free_name(name, {one.name for one in objects.list(kind(resource), namespace=namespace).items})
