"""The claims of cdi.k8s.io (KEP-3063, first draft) as the scheduler knows them, and what it does about those of a pod.

A form of `scheduling.claims.negotiation`: what is said stands in the status of each claim, and what comes next is
decided in `claims.drafts.cdi.negotiation`. A pod waits for its plugins before any device is searched for it. PURE.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from claims.causes.causes import AwaitingDrivers, NobodyAllocates
from claims.drafts.cdi.negotiation import next_step, used_by
from claims.drafts.cdi.registration import CLAIMS, CLASSES
from claims.drafts.cdi.rules import GATE, is_owned_by
from claims.drafts.cdi.values import ALLOCATED, ResourceClaim, ResourceClass, spec_of
from claims.kinds.listed_claims import NODE_LABEL, NODE_LABEL_VALUE, PodResource
from claims.kinds.pods import Pod, claim_of, listed_resources
from claims.kinds.resource_claims import ResourceClaim as DeviceClaim
from scheduling.allocator import NodeView
from scheduling.claims.negotiation import NegotiationWrite, NegotiationWrites, Negotiator, StillNegotiating
from scheduling.queue.hints import draft_claim_key, draft_class_key
from scheduling.queue.reasons import Hold, Reason
from scheduling.state.nodes import NOT_HERE, FilterResult, NodeTable

#: (namespace, name)
Key = tuple[str, str]

WAITING = "waiting for resource plugin"


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftNegotiation:
    """One pod's, as it stands (`scheduling.claims.negotiation.Negotiation`)."""

    pod: Pod
    #: by their names, each once
    claims: Mapping[str, ResourceClaim]
    #: class -> its plugin
    plugins: Mapping[str, str]

    @property
    def awaited(self) -> frozenset[str]:
        """Nothing: nobody is asked about a pod that no node takes."""
        return frozenset()

    def left(self, wanting: Iterable[DeviceClaim]) -> tuple[DeviceClaim, ...]:
        """All: claims of cdi.k8s.io are not among them."""
        return tuple(wanting)

    def restricted(self, found: FilterResult, nodes: NodeTable) -> FilterResult | StillNegotiating:
        if not found.fitting:
            return found
        able = [node for node in found.fitting if node.labels.get(NODE_LABEL) == NODE_LABEL_VALUE]
        if not able:
            text = f"no node that would do has the label {NODE_LABEL}={NODE_LABEL_VALUE}"
            return StillNegotiating(hold=Hold(reasons=Reason.NODE, cause=AwaitingDrivers(text)))
        labels = {node.name: node.labels for node in able}
        claims = tuple(self.claims.values())
        step = next_step(self.pod, claims, labels, exists=nodes.__contains__, plugins=self.plugins)
        if step.waits:
            hold = _waits(self.pod, step.waits)
            if step.rests:
                hold = replace(hold, reasons=hold.reasons | Reason.NODE)
            return StillNegotiating(hold=hold, writes=self._writes(step.writes))
        fitting = tuple(node for node in able if node.name in step.nodes)
        elsewhere = dict.fromkeys({node.name for node in found.fitting} - step.nodes, (NOT_HERE,))
        return replace(found, fitting=fitting, refused={**found.refused, **elsewhere})

    def preferred(self, fitting: tuple[NodeView, ...]) -> tuple[NodeView, ...]:
        return fitting

    def next(self, _node: str, _possible: object) -> NegotiationWrites:
        """The pod is entered among the users."""
        return self._writes(used_by(claim, self.pod) for claim in self.claims.values())

    def giving_back(self, _claims: object) -> NegotiationWrites:
        return ()

    def _writes(self, wanted: Iterable[ResourceClaim]) -> NegotiationWrites:
        pairs = ((self.claims[claim.metadata.name], claim) for claim in wanted)
        return tuple(
            NegotiationWrite(resource=CLAIMS, known=before, wanted=after, subresource="status")
            for before, after in pairs
            if after is not before
        )


@dataclass(slots=True, eq=False, repr=False)
class DraftNegotiator(Negotiator):
    """The claims and classes of cdi.k8s.io, and over them the claims that the cycle assumes."""

    gate: ClassVar[str] = GATE
    follows: ClassVar[tuple[str, ...]] = (CLASSES, CLAIMS)

    _claims: dict[Key, ResourceClaim] = field(default_factory=dict)
    #: class -> its plugin
    plugins: dict[str, str] = field(default_factory=dict)
    _assumed: dict[Key, ResourceClaim] = field(default_factory=dict)

    def put(self, obj: ResourceClaim | ResourceClass) -> None:
        self.remove(obj)
        if isinstance(obj, ResourceClaim):
            self._claims[obj.key] = obj
        else:
            self.plugins[obj.metadata.name] = obj.plugin_name

    def remove(self, obj: ResourceClaim | ResourceClass) -> None:
        if isinstance(obj, ResourceClaim):
            self._claims.pop(obj.key, None)
            self._assumed.pop(obj.key, None)
        else:
            self.plugins.pop(obj.metadata.name, None)

    def claim(self, namespace: str, name: str) -> ResourceClaim | None:
        """With what is assumed of it."""
        return self._assumed.get((namespace, name)) or self._claims.get((namespace, name))

    def reserve(self, writes: Iterable[NegotiationWrite]) -> Mapping[Key, ResourceClaim | None]:
        claims = {one.wanted.key: one.wanted for one in writes if isinstance(one.wanted, ResourceClaim)}
        before = {key: self._assumed.get(key) for key in claims}
        self._assumed |= claims
        return before

    def unreserve(self, before: Mapping[Key, ResourceClaim | None]) -> None:
        for key, claim in before.items():
            if self._assumed.pop(key, None) is not None and claim is not None:
                self._assumed[key] = claim

    def of(self, pod: Pod, _claims: object) -> DraftNegotiation | Hold | None:
        if not isinstance(pod.spec.resources, tuple):
            return None
        found = self._claims_of(pod)
        return found if isinstance(found, Hold) else DraftNegotiation(pod=pod, claims=found, plugins=self.plugins)

    @staticmethod
    def while_off(pod: Pod, _claims: object) -> Hold | None:
        """Of a pod that was created while the gate was on."""
        if not isinstance(pod.spec.resources, tuple):
            return None
        text = f"the feature gate {GATE} is off: nobody allocates what spec.resources lists"
        return Hold(reasons=Reason.ERROR, cause=NobodyAllocates(text))

    @staticmethod
    def tell_of_kept(_claims: object) -> None:
        """An event of each pod tells (`scheduling.earlier.draft_claim_controller`)."""

    def undecided(self, pod: Pod, claims: object) -> Hold | None:
        """Also of a pod that is only imagined, whose claims nobody has made."""
        plugins = {self._undecided(pod, entry) for entry in listed_resources(pod)} - {""}
        if plugins:
            return _waits(pod, WAITING, tuple(sorted(plugins)))
        found = self.of(pod, claims)
        return found if isinstance(found, Hold) else None

    def _undecided(self, pod: Pod, entry: PodResource) -> str:
        """The plugin that has yet to allocate it; "" where it is allocated, or nobody would."""
        claim = self.claim(pod.metadata.namespace, claim_of(pod, entry))
        if claim is not None:
            spec = None if claim.status.phase == ALLOCATED else claim.spec
        else:
            spec = None if entry.template is None else spec_of(entry.template)
        return "" if spec is None else self.plugins.get(spec.resource_class_name, "")

    def _claims_of(self, pod: Pod) -> Mapping[str, ResourceClaim] | Hold:
        """The pod's claims by their names, each once; else why it cannot have them."""
        found: dict[str, ResourceClaim] = {}
        for entry in listed_resources(pod):
            name = claim_of(pod, entry)
            claim = self.claim(pod.metadata.namespace, name)
            if claim is None or (why := self._unfit(pod, entry, claim)):
                missing = f'resourceclaim.cdi.k8s.io "{name}" not found'
                return _waits(pod, missing if claim is None else why)
            if claim.status.phase != ALLOCATED and claim.spec.resource_class_name not in self.plugins:
                return _without_class(claim.spec.resource_class_name)
            found[name] = claim
        return found

    def _unfit(self, pod: Pod, entry: PodResource, claim: ResourceClaim) -> str:
        if entry.template is None or is_owned_by(claim, pod):
            return ""
        return (
            f'resourceclaim.cdi.k8s.io "{claim.metadata.name}" exists and was not made for the pod: '
            "remove it, or make the pod its owner"
        )


def _waits(pod: Pod, detail: str, plugins: tuple[str, ...] = ()) -> Hold:
    namespace = pod.metadata.namespace
    awaited = frozenset(draft_claim_key(namespace, claim_of(pod, entry)) for entry in listed_resources(pod))
    return Hold(reasons=Reason.NEGOTIATION, awaited=awaited, cause=AwaitingDrivers(detail, plugins))


def _without_class(name: str) -> Hold:
    cause = NobodyAllocates(f'resourceclass.cdi.k8s.io "{name}" not found')
    return Hold(reasons=Reason.CLASS_MISSING, awaited=frozenset({draft_class_key(name)}), cause=cause)


def broken(claims: Iterable[ResourceClaim]) -> Iterator[str]:
    """What must hold of every claim of cdi.k8s.io at any moment, and does not."""
    for claim in claims:
        status, name = claim.status, f"{claim.metadata.namespace}/{claim.metadata.name}"
        if status.used_by and status.phase != ALLOCATED:
            yield f"claim {name} of cdi.k8s.io is used and not allocated"
        if 0 <= status.user_limit < len(status.used_by):
            yield f"claim {name} of cdi.k8s.io has {len(status.used_by)} users of {status.user_limit}"
        if sum(bool(owner.controller) for owner in claim.metadata.owner_references) > 1:
            yield f"claim {name} of cdi.k8s.io has two owners"
