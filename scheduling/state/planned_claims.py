"""The claims that waiting pods request by template and do not have yet, planned in memory.

A new pod is decided about at once, without waiting for the controller that makes claims: each claim that it lacks is
planned here, with the name and the uid that it will have, and the state shows the pod with that name in its status. So
nothing tells a planned claim from a stored one until the commit makes it, together with the verdict
(`scheduling.cycle.commit`). Watchers see the events that they would see of the controller.

    the pod lacks claims, all templates exist          -> planned; again the same while pod and templates stay the same
    a template is missing, or of a ResourceClass       -> not planned: the pod waits for the controller
    a claim exists that was made for an entry before   -> not planned: the controller adopts it
    a claim could not be made                          -> not planned any more
    scheduling gates; a group shares claims with it    -> not planned
    a webhook is asked about new claims                -> nothing is planned

The controller (`claims.controllers.generated_claims`) makes the claims of all pods that have none planned. `left` are
those of which the log does not tell it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from msgspec import structs

from claims.kinds.pods import Pod, PodResourceClaim, PodResourceClaimStatus
from claims.kinds.registration import RESOURCE_CLAIM
from claims.kinds.resource_claims import POD_CLAIM_ANNOTATION, ResourceClaim, ResourceClaimTemplate
from claims.pod_claims import claim_for, controller_of, references, shares_claims
from manciple.wire.base import RANDOM, new_uid
from manciple.wire.errors import ApiError
from manciple.wire.resources import NEW_PHASES, TEMPLATES, Key
from manciple.wire.validation import generate_name
from scheduling.state.part import Part


class ClaimsNotMade(ApiError):
    """A planned claim could not be made: the pod is left to the controller, which says why."""

    code, reason = 403, "Forbidden"

    def __init__(self, message: str, entry: str) -> None:
        super().__init__(message)
        self.entry = entry


@dataclass(frozen=True, slots=True)
class PlannedClaim:
    """claim: as it will be made."""

    entry: PodResourceClaim
    template: ResourceClaimTemplate
    claim: ResourceClaim

    @property
    def status(self) -> PodResourceClaimStatus:
        return PodResourceClaimStatus(name=self.entry.name, resource_claim_name=self.claim.metadata.name)


@dataclass(frozen=True, slots=True)
class LackingPod:
    """A waiting pod that lacks claims. planned: all of these, or none.

    stored, shown: the pod as it is, and with the planned claims in its status.
    """

    stored: Pod
    shown: Pod
    planned: tuple[PlannedClaim, ...]


@dataclass(slots=True, eq=False, repr=False)
class PlannedClaims(Part):
    """See the module's docstring."""

    follows: ClassVar[tuple[str, ...]] = (TEMPLATES,)

    #: whether claims are planned at all: whoever asks for webhooks sets it, before a cycle
    enabled: bool = True
    #: the planned claims; read directly, for each claim that a pod names
    by_key: dict[Key, ResourceClaim] = field(default_factory=dict)
    #: pods that the controller has to look at, of which the log does not tell it
    left: dict[Key, None] = field(default_factory=dict)
    #: by uid
    _lacking: dict[str, LackingPod] = field(default_factory=dict)
    _templates: dict[Key, ResourceClaimTemplate] = field(default_factory=dict)
    #: template -> uids of waiting pods that request a claim of it, and lack it
    _users: dict[Key, set[str]] = field(default_factory=dict)
    #: pod uid -> (claim, the entry for which it was made) of each claim that there is
    _made: dict[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    #: uids of pods whose claims could not be made
    _refused: set[str] = field(default_factory=set)

    def put(self, template: ResourceClaimTemplate) -> None:
        self._templates[template.key] = template

    def remove(self, template: ResourceClaimTemplate) -> None:
        self._templates.pop(template.key, None)

    # Claims ----------------------------------------------------------------------------------------------------------

    def put_claim(self, claim: ResourceClaim) -> str:
        """Returns the uid of the pod whose plan is not right any more: the controller may adopt this claim; else ""."""
        owner, entry = controller_of(claim.metadata), claim.metadata.annotations.get(POD_CLAIM_ANNOTATION)
        if owner is None or entry is None:
            return ""
        _, uid = owner
        made, known = (claim.metadata.name, entry), self._made.get(uid, ())
        if made in known:
            return ""
        self._made[uid] = (*known, made)
        return uid if uid in self._lacking and claim.key not in self.by_key else ""

    def remove_claim(self, claim: ResourceClaim) -> None:
        owner = controller_of(claim.metadata)
        if owner is None or owner[1] not in self._made:
            return
        left = tuple(made for made in self._made[owner[1]] if made[0] != claim.metadata.name)
        if left:
            self._made[owner[1]] = left
        else:
            del self._made[owner[1]]

    # Pods ------------------------------------------------------------------------------------------------------------

    def of(self, uid: str) -> tuple[PlannedClaim, ...]:
        """The claims that are planned for a pod."""
        lacking = self._lacking.get(uid)
        return () if lacking is None else lacking.planned

    def could_not_be_made(self, uid: str) -> bool:
        return uid in self._refused

    def refuse(self, uid: str) -> None:
        """The claims of a pod could not be made: none are planned for it from now on."""
        self._refused.add(uid)

    def take_left(self) -> Collection[Key]:
        """Those of `left`, which is empty then."""
        taken = tuple(self.left)
        self.left.clear()
        return taken

    def waiting(self, pod: Pod) -> Pod:
        """A pod that waits for a node, as the state shows it."""
        uid = pod.metadata.uid
        before = self._forget(uid)
        lacking = tuple(lacking_entries(pod))
        if not lacking:
            self._refused.discard(uid)
            self.left.pop(pod.key, None)
            return pod
        if pod.spec.scheduling_gates or shares_claims(pod):
            return pod
        known = () if before is None else before.planned
        planned = tuple(self._plan(pod, lacking, {one.entry.name: one for one in known}))
        if known and not planned:
            self.left[pod.key] = None
        shown = pod
        if planned:
            statuses = with_names(pod, (one.status for one in planned))
            shown = structs.replace(pod, status=structs.replace(pod.status, resource_claim_statuses=statuses))
        self._lacking[uid] = LackingPod(pod, shown, planned)
        self.by_key.update((one.claim.key, one.claim) for one in planned)
        for entry in lacking:
            self._users.setdefault(_template_key(pod, entry), set()).add(uid)
        return shown

    def again(self, uid: str) -> Pod | None:
        """Plan for a pod anew; returns the pod as the state shows it, None where it lacks no claims."""
        lacking = self._lacking.get(uid)
        return None if lacking is None else self.waiting(lacking.stored)

    def shown(self, pod: Pod) -> Pod:
        """The same pod as the state shows it now."""
        lacking = self._lacking.get(pod.metadata.uid)
        return pod if lacking is None else lacking.shown

    def waits_no_more(self, pod: Pod) -> None:
        """A pod that has a node, has ended, or is for another scheduler. Who bound it by hand may not have waited for
        its claims.
        """
        self.forget(pod.metadata.uid)
        starts = pod.spec.node_name and pod.status.phase in NEW_PHASES and pod.metadata.deletion_timestamp is None
        if starts and any(lacking_entries(pod)):
            self.left[pod.key] = None
        else:
            self.left.pop(pod.key, None)

    def forget(self, uid: str) -> None:
        """A pod that is gone."""
        self._forget(uid)
        self._refused.discard(uid)

    def users(self, template: Key) -> Collection[str]:
        """The uids of the pods that lack a claim of the template."""
        return tuple(self._users.get(template, ()))

    @property
    def pods(self) -> Collection[str]:
        """The uids of all that lack claims."""
        return tuple(self._lacking)

    def _forget(self, uid: str) -> LackingPod | None:
        before = self._lacking.pop(uid, None)
        if before is None:
            return None
        for one in before.planned:
            self.by_key.pop(one.claim.key, None)
        for entry in lacking_entries(before.stored):
            key = _template_key(before.stored, entry)
            users = self._users.get(key, set())
            users.discard(uid)
            if not users:
                self._users.pop(key, None)
        return before

    def _plan(
        self, pod: Pod, lacking: Collection[PodResourceClaim], known: Mapping[str, PlannedClaim]
    ) -> Iterable[PlannedClaim]:
        """A claim for each of the entries, or none. known: by the names of the entries, what was planned before."""
        uid = pod.metadata.uid
        made = {entry for _, entry in self._made.get(uid, ())}
        if not self.enabled or uid in self._refused or any(entry.name in made for entry in lacking):
            return ()
        planned = list[PlannedClaim]()
        for entry in lacking:
            template = self._templates.get(_template_key(pod, entry))
            if template is None or template.spec.spec.resource_class_name:
                return ()
            before = known.get(entry.name)
            if before is None or before.template.spec != template.spec:
                planned.append(PlannedClaim(entry, template, _drawn(claim_for(pod, entry, template))))
            else:
                planned.append(before)
        return planned


def lacking_entries(pod: Pod) -> Iterable[PodResourceClaim]:
    """The entries whose claims are still to be made from templates, by the pod alone."""
    if not pod.spec.resource_claims:
        return
    for entry, reference in zip(pod.spec.resource_claims, references(pod), strict=True):
        if entry.resource_claim_template_name and reference.needed and reference.claim is None:
            yield entry


def with_names(pod: Pod, statuses: Iterable[PodResourceClaimStatus]) -> tuple[PodResourceClaimStatus, ...]:
    """status.resourceClaimStatuses of `pod` with these as well, in the order in which they are written."""
    return tuple(sorted((*pod.status.resource_claim_statuses, *statuses), key=lambda one: one.name))


def _template_key(pod: Pod, entry: PodResourceClaim) -> Key:
    return pod.metadata.namespace, entry.resource_claim_template_name or ""


def _drawn(claim: ResourceClaim) -> ResourceClaim:
    """`claim` with defaults, a name and a uid."""
    fresh = RESOURCE_CLAIM.prepare_create(claim)
    name = generate_name(claim.metadata.generate_name, RANDOM.value)
    drawn: ResourceClaim = structs.replace(fresh, metadata=structs.replace(fresh.metadata, name=name, uid=new_uid()))
    return drawn
