"""What can be rehearsed, from what is stored or written by hand: a pod with its claims, a claim, a template.

What a document names is looked for among the other documents first, then in the cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import structs

from claims.kinds.pods import Pod, PodResourceClaim
from claims.kinds.resource_claims import ResourceClaim, ResourceClaimStatus, ResourceClaimTemplate
from manciple.store import objects
from manciple.wire.base import ApiObject
from manciple.wire.errors import NotFound
from scheduling.pod_claims import claim_for, references
from scheduling.resources import CLAIMS, PODS, TEMPLATES, decoded, kind
from scheduling.simulation_moulds import Mould, of_claim


class NotRehearsable(Exception):
    """What was given cannot be rehearsed; the text says why, and what to do."""


def stored_pod(namespace: str, name: str) -> Mould:
    """Raises: NotFound for a pod, template or claim that does not exist."""
    stored = objects.get(kind(PODS), namespace, name)
    if stored is None:
        raise NotFound.of(PODS, name)
    return of_pod(decoded(stored, Pod))


def stored_claim(namespace: str, name: str) -> Mould:
    """A claim like this one, whether it has devices by now or not. Raises: NotFound."""
    stored = objects.get(kind(CLAIMS), namespace, name)
    if stored is None:
        raise NotFound.of(CLAIMS, name)
    return of_claim(structs.replace(decoded(stored, ResourceClaim), status=ResourceClaimStatus()))


def stored_template(namespace: str, name: str) -> Mould:
    """Raises: NotFound."""
    stored = objects.get(kind(TEMPLATES), namespace, name)
    if stored is None:
        raise NotFound.of(TEMPLATES, name)
    return of_template(decoded(stored, ResourceClaimTemplate))


def of_template(template: ResourceClaimTemplate) -> Mould:
    """A claim as it would be made from the template."""
    meta = template.metadata
    claim = ResourceClaim(api_version="resource.k8s.io/v1", kind="ResourceClaim", spec=template.spec.spec)
    return of_claim(structs.replace(claim, metadata=structs.replace(meta, uid="", resource_version="")))


def of_pod(pod: Pod, beside: Sequence[ApiObject] = ()) -> Mould:
    """beside: documents that come with it. Raises: NotFound for a claim or template that is nowhere."""
    own: dict[str, ResourceClaim] = {}
    shared: dict[str, ResourceClaim] = {}
    made = {one.entry: one.claim for one in references(pod) if one.claim and one.generated}
    for entry in pod.spec.resource_claims:
        if entry.resource_claim_name:
            shared[entry.name] = _claim(pod.metadata.namespace, entry.resource_claim_name, beside)
        elif entry.resource_claim_template_name:
            own[entry.name] = _made(pod, entry, made.get(entry.name), beside)
    return Mould(pod=pod, own=own, shared=shared)


def of_documents(documents: Iterable[ApiObject]) -> Mould:
    """The pod among them with the claims it names; without one, the only claim or template.

    Raises: NotRehearsable, NotFound.
    """
    found = list(documents)
    pods = [one for one in found if isinstance(one, Pod)]
    if len(pods) > 1:
        raise NotRehearsable("Rehearse one pod at a time: choose how many replicas of it beside the text.")
    if pods:
        return of_pod(pods[0], found)
    claims = [one for one in found if isinstance(one, ResourceClaim | ResourceClaimTemplate)]
    if len(claims) != 1:
        text = "Rehearse one claim at a time, or write the pod that uses them all." if claims else ""
        raise NotRehearsable(text or "Write a Pod, a ResourceClaim or a ResourceClaimTemplate.")
    only = claims[0]
    return of_claim(only) if isinstance(only, ResourceClaim) else of_template(only)


def _claim(namespace: str, name: str, beside: Sequence[ApiObject]) -> ResourceClaim:
    for one in beside:
        if isinstance(one, ResourceClaim) and one.metadata.name == name:
            meta = structs.replace(one.metadata, namespace=namespace, uid=one.metadata.uid or f"{name}~")
            return structs.replace(one, metadata=meta)
    stored = objects.get(kind(CLAIMS), namespace, name)
    if stored is None:
        raise NotFound.of(CLAIMS, name)
    return decoded(stored, ResourceClaim)


def _made(pod: Pod, entry: PodResourceClaim, made: str | None, beside: Sequence[ApiObject]) -> ResourceClaim:
    """The claim that is made for an entry; where one was made already, one like it: its template may be another now."""
    namespace, wanted = pod.metadata.namespace, entry.resource_claim_template_name or ""
    if made and (stored := objects.get(kind(CLAIMS), namespace, made)) is not None:
        return decoded(stored, ResourceClaim)
    for one in beside:
        if isinstance(one, ResourceClaimTemplate) and one.metadata.name == wanted:
            return claim_for(pod, entry, one)
    template = objects.get(kind(TEMPLATES), namespace, wanted)
    if template is None:
        raise NotFound.of(TEMPLATES, wanted)
    return claim_for(pod, entry, decoded(template, ResourceClaimTemplate))
