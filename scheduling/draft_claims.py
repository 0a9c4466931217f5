"""The claims of cdi.k8s.io (KEP-3063, first draft) as the scheduler knows them, and what it does about those of a pod.

A `ClusterState` has `DraftClaims` while the gate DRAClaimsDraft is on, and follows their resources only then. The cycle
asks `negotiate` between the filters and the search for devices; what it answers is written with the decision
(`ClaimWrite`). What is said is decided in `claims.drafts.cdi.negotiation`. PURE.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from claims.drafts.cdi.negotiation import next_step, used_by
from claims.drafts.cdi.registration import CLAIMS, CLASSES
from claims.drafts.cdi.rules import GATE, claim_of, is_owned_by, listed_resources
from claims.drafts.cdi.values import ALLOCATED, NODE_LABEL, NODE_LABEL_VALUE, PodResource, ResourceClaim, ResourceClass
from claims.kinds.pods import Pod
from inventory.kinds import gates
from scheduling.allocator import NodeView
from scheduling.causes import DraftClaimsAwaited, Hold, Reason
from scheduling.hints import draft_claim_key, draft_class_key

#: What the scheduler follows for them.
RESOURCES = (CLASSES, CLAIMS)
#: (namespace, name)
Key = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimWrite:
    """A claim as it was when that was decided, and as it shall be; it is not written if it has changed meanwhile."""

    known: ResourceClaim
    wanted: ResourceClaim


@dataclass(frozen=True, slots=True, kw_only=True)
class Negotiated:
    """hold: why the pod waits; None where it may be bound to one of `nodes`. writes: belong to either."""

    hold: Hold | None = None
    nodes: tuple[NodeView, ...] = ()
    writes: tuple[ClaimWrite, ...] = ()


@dataclass(slots=True)
class DraftClaims:
    """Claims and classes as they are, and over them what the cycle assumes."""

    _claims: dict[Key, ResourceClaim] = field(default_factory=dict)
    #: class -> its plugin
    plugins: dict[str, str] = field(default_factory=dict)
    _assumed: dict[Key, ResourceClaim] = field(default_factory=dict)

    def put_claim(self, claim: ResourceClaim) -> None:
        self._claims[claim.key] = claim
        self._assumed.pop(claim.key, None)

    def remove_claim(self, claim: ResourceClaim) -> None:
        self._claims.pop(claim.key, None)
        self._assumed.pop(claim.key, None)

    def put_class(self, one: ResourceClass) -> None:
        self.plugins[one.metadata.name] = one.plugin_name

    def remove_class(self, one: ResourceClass) -> None:
        self.plugins.pop(one.metadata.name, None)

    def copied(self) -> DraftClaims:
        return DraftClaims(dict(self._claims), dict(self.plugins), dict(self._assumed))

    def claim(self, namespace: str, name: str) -> ResourceClaim | None:
        """With what is assumed of it."""
        return self._assumed.get((namespace, name)) or self._claims.get((namespace, name))

    def assume(self, writes: Iterable[ClaimWrite]) -> None:
        """The next pod of the batch finds these claims as they will be."""
        self._assumed |= {write.wanted.key: write.wanted for write in writes}

    def drop_assumptions(self) -> None:
        self._assumed.clear()

    def negotiate(self, pod: Pod, fitting: Sequence[NodeView], *, exists: Callable[[str], bool]) -> Negotiated:
        """fitting: the nodes on which the pod could run but for these claims. exists: whether there is such a node."""
        found = self._claims_of(pod)
        if isinstance(found, Hold):
            return Negotiated(hold=found)
        able = [node for node in fitting if node.labels.get(NODE_LABEL) == NODE_LABEL_VALUE]
        if not able:
            return Negotiated(hold=_waits(pod, f"no node that would do has the label {NODE_LABEL}={NODE_LABEL_VALUE}"))
        claims = tuple(found.values())
        labels = {node.name: node.labels for node in able}
        step = next_step(pod, claims, labels, exists=exists, plugins=self.plugins)
        if step.waits:
            return Negotiated(hold=_waits(pod, step.waits), writes=_writes(found, step.writes))
        entered = _writes(found, [used_by(claim, pod) for claim in claims])
        return Negotiated(nodes=tuple(node for node in able if node.name in step.nodes), writes=entered)

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


class DraftedState:
    """What a `ClusterState` has of them."""

    #: None while they are no feature
    drafts: DraftClaims | None = None
    resources: ClassVar[Sequence[str]]
    _applying: dict[str, Callable[[Any], None]]
    _forgetting: dict[str, Callable[[Any], None]]

    def _follow_drafts(self, known: DraftClaims | None = None) -> None:
        """known: by the state of which this one is a copy."""
        if not gates.enabled(GATE):
            return
        self.drafts = drafts = DraftClaims() if known is None else known.copied()
        self.resources = tuple(dict.fromkeys((*RESOURCES, *self.resources)))  # type: ignore[misc]  # while they are a feature
        self._applying |= dict(zip(RESOURCES, (drafts.put_class, drafts.put_claim), strict=True))
        self._forgetting |= dict(zip(RESOURCES, (drafts.remove_class, drafts.remove_claim), strict=True))


def _waits(pod: Pod, detail: str) -> Hold:
    namespace = pod.metadata.namespace
    awaited = frozenset(draft_claim_key(namespace, claim_of(pod, entry)) for entry in listed_resources(pod))
    return Hold(reasons=Reason.CLAIM_BUSY | Reason.NODE, awaited=awaited, cause=DraftClaimsAwaited(detail))


def _without_class(name: str) -> Hold:
    cause = DraftClaimsAwaited(f'resourceclass.cdi.k8s.io "{name}" not found')
    return Hold(reasons=Reason.CLASS_MISSING, awaited=frozenset({draft_class_key(name)}), cause=cause)


def _writes(known: Mapping[str, ResourceClaim], wanted: Iterable[ResourceClaim]) -> tuple[ClaimWrite, ...]:
    pairs = ((known[claim.metadata.name], claim) for claim in wanted)
    return tuple(ClaimWrite(known=before, wanted=after) for before, after in pairs if after is not before)


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


#: While the gate is off: what a pod is told that was created while it was on.
OFF = Negotiated(
    hold=Hold(
        reasons=Reason.ERROR,
        cause=DraftClaimsAwaited("the feature gate DRAClaimsDraft is off: nobody allocates what spec.resources lists"),
    )
)
