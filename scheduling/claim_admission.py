"""What admission policies and webhooks say of the claims that are about to be made from templates.

Nobody gets around a rule about claims by writing a template and a pod: upstream the controller that makes such a claim
is a client like any other. Here it writes in this process, so they are asked ahead of its transaction, in its name:

    verdicts = ask_about(keys, identity)                 # no transaction; webhooks may take their time
    verdicts.demand(pod, entry, template)                # in the transaction, before the claim is made

Where nobody has a say about new claims that is one look-up, and no verdict is demanded.
"""

from __future__ import annotations

import time
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass

from claims.kinds.pods import Pod, PodResourceClaim
from claims.kinds.resource_claims import ResourceClaim, ResourceClaimTemplate
from manciple.admission import door
from manciple.store import objects
from manciple.store.hooks import Write
from manciple.wire.errors import ApiError
from manciple.wire.identity import Identity
from scheduling.pod_claims import claim_for, claim_names, is_done, references
from scheduling.resources import CLAIMS, PODS, TEMPLATES, Key, decoded, key_of, kind

#: Seconds of asking after which the rest waits for its next turn: a webhook that is down holds up no others' pods.
PATIENCE = 5.0

#: (uid of a pod, name of its entry, revision of the template)
Asked = tuple[str, str, str]


class NotAsked(Exception):
    """A claim is wanted that nobody was asked about: its template has changed, or time was up. Next time, then."""


@dataclass(frozen=True, slots=True)
class Verdicts:
    """said: why a claim must not be made, None where it may. None instead of all: nobody has a say."""

    said: Mapping[Asked, ApiError | None] | None

    def demand(self, pod: Pod, entry: PodResourceClaim, template: ResourceClaimTemplate) -> None:
        """Raises: ApiError, what a policy or webhook says; NotAsked."""
        if self.said is None:
            return
        question = _question(pod, entry, template)
        if question not in self.said:
            raise NotAsked(entry.name)
        if (refusal := self.said[question]) is not None:
            raise refusal


def ask_about(keys: Sequence[Key], identity: Identity) -> Verdicts:
    """Ask about every claim that these pods lack, one after the other."""
    if not door.concerned(Write(operation="CREATE", kind=kind(CLAIMS), identity=identity, verb="create")):
        return Verdicts(None)
    said: dict[Asked, ApiError | None] = {}
    until = time.monotonic() + PATIENCE
    for pod, entry, template in _wanted(keys):
        if time.monotonic() > until:
            break
        said[_question(pod, entry, template)] = _refusal(claim_for(pod, entry, template), identity)
    return Verdicts(said)


def _question(pod: Pod, entry: PodResourceClaim, template: ResourceClaimTemplate) -> Asked:
    return pod.metadata.uid, entry.name, template.metadata.resource_version


def _refusal(claim: ResourceClaim, identity: Identity) -> ApiError | None:
    claim_kind = kind(CLAIMS)
    write = Write(
        operation="CREATE", kind=claim_kind, new=claim_kind.prepare_create(claim), identity=identity, verb="create"
    )
    try:
        door.check(write)
    except ApiError as error:
        return error
    return None


def _wanted(keys: Sequence[Key]) -> Iterator[tuple[Pod, PodResourceClaim, ResourceClaimTemplate]]:
    """Each entry that lacks its claim, with the template that it names, as far as that exists."""
    pods = [decoded(stored, Pod) for stored in objects.get_many(kind(PODS), keys)]
    recorded = [(pod.metadata.namespace, name) for pod in pods for name in claim_names(pod)]
    living = {(stored.namespace, stored.name) for stored in objects.get_many(kind(CLAIMS), recorded)}
    lacking = [(pod, entry) for pod in pods if not is_done(pod) for entry in _lacking(pod, living)]
    named = {(pod.metadata.namespace, entry.resource_claim_template_name or "") for pod, entry in lacking}
    found = (decoded(stored, ResourceClaimTemplate) for stored in objects.get_many(kind(TEMPLATES), named))
    templates = {key_of(template): template for template in found}
    for pod, entry in lacking:
        template = templates.get((pod.metadata.namespace, entry.resource_claim_template_name or ""))
        if template is not None:
            yield pod, entry, template


def _lacking(pod: Pod, living: Container[Key]) -> Iterator[PodResourceClaim]:
    for entry, reference in zip(pod.spec.resource_claims, references(pod), strict=True):
        if not entry.resource_claim_template_name or not reference.needed:
            continue
        if reference.claim is None or (pod.metadata.namespace, reference.claim) not in living:
            yield entry
