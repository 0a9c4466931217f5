"""Claims of cdi.k8s.io, the first draft of KEP-3063: plugins allocate, and negotiate in the status of each claim.

`claims.drafts.cdi.negotiation` decides what comes next for a pod and its claims. The scheduler (`DraftNegotiator`) asks
it before it searches devices for the pod, and writes the answer. A controller (`reconcile`) does the rest:

    a pod's entry has a template, and the claim POD-ENTRY does not exist   it is created, with the pod as its owner
    an immediate claim waits, and its class exists                         its plugin's name is set: it may allocate
    a pod that uses a claim has ended or is gone                           it is removed from usedBy
    a pod was bound by another scheduler                                   negotiated for its node alone, then in usedBy

The garbage collector deletes generated claims with their pods; the plugin's finalizer keeps a claim until its resource
is freed. What remains while the gate is off is in `scheduling.claims.kept`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, ClassVar

from claims import event_recorder
from claims.causes.causes import AwaitingDrivers, NobodyAllocates
from claims.controllers.generated_claims import COMPONENT
from claims.drafts.cdi.negotiation import next_step, used_by
from claims.drafts.cdi.rules import is_owned_by, with_defaults
from claims.drafts.cdi.values import (
    ALLOCATED,
    IMMEDIATE,
    PENDING,
    ResourceClaim,
    ResourceClaimStatus,
    ResourceClass,
    spec_of,
    with_status,
)
from claims.event_recorder import EventNote
from claims.kinds.listed_claims import NODE_LABEL, NODE_LABEL_VALUE, PodResource, PodResourceTemplate
from claims.kinds.pods import Pod, claim_of, listed_resources
from claims.kinds.resource_claims import ResourceClaim as DeviceClaim
from claims.pod_claims import controlled_by, is_done
from inventory.kinds import gates
from inventory.kinds.nodes import Node
from manciple.controllers.declaration import BOUND, FINISHED, Controller
from manciple.store.event_log import Follower, ObjectsView
from manciple.store.objects import Writer
from manciple.wire.base import ApiObject, ObjectMeta
from manciple.wire.errors import ApiError
from manciple.wire.resources import (
    ADDED,
    DELETED,
    DRAFT_CLAIMS,
    DRAFT_CLASSES,
    MODIFIED,
    NEW_PHASES,
    NODES,
    PODS,
    Key,
    kind,
)
from scheduling.claims import kept
from scheduling.claims.negotiation import Negotiation, NegotiationWrite, NegotiationWrites, StillNegotiating
from scheduling.queue.hints import About, Wake
from scheduling.queue.reasons import Hold, Reason
from scheduling.state.extensions import Extension
from scheduling.state.nodes import NOT_HERE, FilterResult, NodeTable

WAITING = "waiting for resource plugin"


# One pod --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftNegotiation(Negotiation):
    """The negotiation about one pod, as its claims say. While it goes on, no device is searched for the pod."""

    pod: Pod
    #: by name, each once
    claims: Mapping[str, ResourceClaim]
    #: class -> its plugin
    plugins: Mapping[str, str]

    def restricted(self, filtered: FilterResult, nodes: NodeTable) -> FilterResult | StillNegotiating:
        if not filtered.fitting:
            return filtered
        able = [node for node in filtered.fitting if node.labels.get(NODE_LABEL) == NODE_LABEL_VALUE]
        if not able:
            text = f"no node that would do has the label {NODE_LABEL}={NODE_LABEL_VALUE}"
            return StillNegotiating(hold=Hold(reasons=Reason.NODE, cause=AwaitingDrivers(text)))
        labels = {node.name: node.labels for node in able}
        claims = tuple(self.claims.values())
        step = next_step(self.pod, claims, labels, exists=nodes.__contains__, plugins=self.plugins)
        if step.waits:
            hold = _hold(self.pod, step.waits)
            if step.rests:
                hold = replace(hold, reasons=hold.reasons | Reason.NODE)
            return StillNegotiating(hold=hold, writes=self._writes(step.writes))
        fitting = tuple(node for node in able if node.name in step.nodes)
        elsewhere = dict.fromkeys({node.name for node in filtered.fitting} - step.nodes, (NOT_HERE,))
        return replace(filtered, fitting=fitting, refused={**filtered.refused, **elsewhere})

    def next(self, _node: str, _possible: object) -> NegotiationWrites:
        """The pod becomes a user of its claims."""
        return self._writes(used_by(claim, self.pod) for claim in self.claims.values())

    def _writes(self, changed: Iterable[ResourceClaim]) -> NegotiationWrites:
        pairs = ((self.claims[claim.metadata.name], claim) for claim in changed)
        return tuple(
            NegotiationWrite(resource=DRAFT_CLAIMS, before=before, after=after, subresource="status")
            for before, after in pairs
            if after is not before
        )


# The extension of the scheduler ---------------------------------------------------------------------------------------


def draft_claim_key(namespace: str, name: str) -> str:
    """What a pod awaits when it waits for one claim of cdi.k8s.io."""
    return f"draft-claim:{namespace}/{name}"


def draft_class_key(name: str) -> str:
    """What a pod awaits when it waits for a class of cdi.k8s.io."""
    return f"draft-class:{name}"


def _claim_changed(about: About, _seen: Any) -> Iterable[Wake]:
    yield Wake(reasons=Reason.NEGOTIATION, key=draft_claim_key(about.namespace, about.name))


def _class_added(about: About, _seen: Any) -> Iterable[Wake]:
    yield Wake(reasons=Reason.CLASS_MISSING, key=draft_class_key(about.name))


@dataclass(slots=True, eq=False, repr=False)
class DraftNegotiator(Extension):
    """The claims and classes of cdi.k8s.io; over the claims lie those that the batch assumes."""

    follows: ClassVar = (DRAFT_CLASSES, DRAFT_CLAIMS)
    wakes: ClassVar = {
        (DRAFT_CLAIMS, ADDED): _claim_changed,
        (DRAFT_CLAIMS, MODIFIED): _claim_changed,
        (DRAFT_CLAIMS, DELETED): _claim_changed,
        (DRAFT_CLASSES, ADDED): _class_added,
    }
    invariants: ClassVar = kept.INVARIANTS[gates.CLAIMS_DRAFT]

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

    def reserve(self, writes: NegotiationWrites) -> Mapping[Key, ResourceClaim | None]:
        claims = {write.after.key: write.after for write in writes if isinstance(write.after, ResourceClaim)}
        before = {key: self._assumed.get(key) for key in claims}
        self._assumed |= claims
        return before

    def unreserve(self, before: Mapping[Key, ResourceClaim | None]) -> None:
        for key, claim in before.items():
            if self._assumed.pop(key, None) is not None and claim is not None:
                self._assumed[key] = claim

    def negotiation(self, pod: Pod, _claims: object) -> DraftNegotiation | Hold | None:
        if not isinstance(pod.spec.resources, tuple):
            return None
        claims = self._claims_of(pod)
        return claims if isinstance(claims, Hold) else DraftNegotiation(pod=pod, claims=claims, plugins=self.plugins)

    def undecided(self, pod: Pod, claims: Sequence[DeviceClaim]) -> Hold | None:
        """The claims of an imagined pod do not exist: its templates count."""
        plugins = {self._deciding(pod, entry) for entry in listed_resources(pod)} - {""}
        if plugins:
            return _hold(pod, WAITING, tuple(sorted(plugins)))
        negotiation = self.negotiation(pod, claims)
        return negotiation if isinstance(negotiation, Hold) else None

    def _deciding(self, pod: Pod, entry: PodResource) -> str:
        """The plugin that has yet to allocate the entry; "" where it is allocated, or no plugin would."""
        claim = self.claim(pod.metadata.namespace, claim_of(pod, entry))
        if claim is not None:
            spec = None if claim.status.phase == ALLOCATED else claim.spec
        else:
            spec = None if entry.template is None else spec_of(entry.template)
        return "" if spec is None else self.plugins.get(spec.resource_class_name, "")

    def _claims_of(self, pod: Pod) -> Mapping[str, ResourceClaim] | Hold:
        """The pod's claims by name, each once; or why the pod cannot have them."""
        claims: dict[str, ResourceClaim] = {}
        for entry in listed_resources(pod):
            name = claim_of(pod, entry)
            claim = self.claim(pod.metadata.namespace, name)
            if claim is None:
                return _hold(pod, f'resourceclaim.cdi.k8s.io "{name}" not found')
            if entry.template is not None and not is_owned_by(claim, pod):
                text = f'resourceclaim.cdi.k8s.io "{name}" exists and was not made for the pod: '
                return _hold(pod, text + "remove it, or make the pod its owner")
            class_name = claim.spec.resource_class_name
            if claim.status.phase != ALLOCATED and class_name not in self.plugins:
                cause = NobodyAllocates(f'resourceclass.cdi.k8s.io "{class_name}" not found')
                awaited = frozenset({draft_class_key(class_name)})
                return Hold(reasons=Reason.CLASS_MISSING, awaited=awaited, cause=cause)
            claims[name] = claim
        return claims


def _hold(pod: Pod, detail: str, plugins: tuple[str, ...] = ()) -> Hold:
    namespace = pod.metadata.namespace
    awaited = frozenset(draft_claim_key(namespace, claim_of(pod, entry)) for entry in listed_resources(pod))
    return Hold(reasons=Reason.NEGOTIATION, awaited=awaited, cause=AwaitingDrivers(detail, plugins))


# The controller -------------------------------------------------------------------------------------------------------


class DraftClaims(ObjectsView):
    """All claims, and the pods that list resources and have not ended."""

    resources: ClassVar[Sequence[str]] = (DRAFT_CLAIMS, PODS)

    def keeps(self, obj: ApiObject) -> bool:
        return not isinstance(obj, Pod) or (bool(listed_resources(obj)) and not is_done(obj))


following = Follower(DraftClaims)


def reconcile(now: datetime) -> int:
    """Returns how many objects were changed."""
    with following.view() as view:
        pods, claims = view.all(Pod), {claim.key: claim for claim in view.all(ResourceClaim)}
    living = {pod.metadata.uid for pod in pods}
    left = [
        key
        for key, claim in claims.items()
        if any(kept.is_pod(user) and user.uid not in living for user in claim.status.used_by)
    ]
    pending = [pod.key for pod in pods if _needs_claims(pod, claims)]
    starting = [key for key, claim in claims.items() if _is_to_start(claim)]
    released = kept.with_each(DRAFT_CLAIMS, left, kept.release)
    served = kept.with_each(PODS, pending, partial(_serve, now=now))
    return released + served + kept.with_each(DRAFT_CLAIMS, starting, _start)


def _needs_claims(pod: Pod, claims: Mapping[Key, ResourceClaim]) -> bool:
    """Whether it may lack a claim or, if another scheduler bound it, may not be among the users of one."""
    if pod.metadata.deletion_timestamp is not None or pod.status.phase not in NEW_PHASES:
        return False
    entries = {(pod.metadata.namespace, claim_of(pod, entry)): entry for entry in listed_resources(pod)}
    if any(entry.template is not None and key not in claims for key, entry in entries.items()):
        return True
    existing = [claims[key] for key in entries.keys() & claims.keys()]
    return bool(pod.spec.node_name) and not _uses_all(pod, existing)


def _serve(writer: Writer, pod: Pod, *, now: datetime) -> int:
    if is_done(pod) or pod.metadata.deletion_timestamp is not None:
        return 0
    created = sum(_create_claim(writer, pod, entry, now) for entry in listed_resources(pod))
    return created + (_negotiate_for_node(writer, pod) if pod.spec.node_name else 0)


def _create_claim(writer: Writer, pod: Pod, entry: PodResource, now: datetime) -> int:
    """A claim of another owner in its place is left alone: the scheduler says so to the pod."""
    name = claim_of(pod, entry)
    if entry.template is None or writer.get(kind(DRAFT_CLAIMS), pod.metadata.namespace, name):
        return 0
    try:
        with writer.savepoint():
            writer.create(kind(DRAFT_CLAIMS), claim_for(pod, name, entry.template))
    except ApiError as error:
        note = EventNote(
            regarding=pod,
            type="Warning",
            reason="FailedResourceClaimCreation",
            message=f"PodResource {entry.name}: the claim cannot be made: {error.message}",
            component=COMPONENT,
        )
        event_recorder.record(writer, note, now=now)
        return 0
    return 1


def claim_for(pod: Pod, name: str, template: PodResourceTemplate) -> ResourceClaim:
    """Labels, annotations and spec are the template's, the pod is its owner."""
    return ResourceClaim(
        api_version=kind(DRAFT_CLAIMS).api_version,
        kind=kind(DRAFT_CLAIMS).kind,
        metadata=ObjectMeta(
            namespace=pod.metadata.namespace,
            name=name,
            labels=template.metadata.labels,
            annotations=template.metadata.annotations,
            owner_references=(controlled_by(pod),),
        ),
        spec=with_defaults(spec_of(template)),
        status=ResourceClaimStatus(phase=PENDING, user_limit=1),
    )


def _negotiate_for_node(writer: Writer, pod: Pod) -> int:
    """Do for the pod's node what the scheduler does for all nodes."""
    names = dict.fromkeys(claim_of(pod, entry) for entry in listed_resources(pod))
    stored = [writer.get(kind(DRAFT_CLAIMS), pod.metadata.namespace, name) for name in names]
    claims = [claim for claim in stored if isinstance(claim, ResourceClaim)]
    node = writer.get(kind(NODES), "", pod.spec.node_name)
    if len(claims) < len(names) or not isinstance(node, Node) or _uses_all(pod, claims):
        return 0
    if node.metadata.labels.get(NODE_LABEL) != NODE_LABEL_VALUE:
        return 0
    classes = {claim.spec.resource_class_name for claim in claims}
    plugins = {name: plugin for name in classes if (plugin := _plugin_of(writer, name))}
    if any(claim.status.phase == PENDING and claim.spec.resource_class_name not in plugins for claim in claims):
        return 0
    nodes = {node.metadata.name: node.metadata.labels}
    step = next_step(pod, claims, nodes, exists=lambda name: name in nodes, plugins=plugins)
    writes = step.writes if step.waits else [used_by(claim, pod) for claim in claims]
    for claim in writes:
        writer.update(kind(DRAFT_CLAIMS), claim, subresource="status")
    return len(writes)


def _uses_all(pod: Pod, claims: Iterable[ResourceClaim]) -> bool:
    return all(any(user.uid == pod.metadata.uid for user in claim.status.used_by) for claim in claims)


def _is_to_start(claim: ResourceClaim) -> bool:
    status = claim.status
    return claim.spec.allocation_mode == IMMEDIATE and status.phase == PENDING and not status.plugin_name


def _start(writer: Writer, claim: ResourceClaim) -> int:
    """An immediate claim is its plugin's to allocate once its class exists."""
    plugin = _plugin_of(writer, claim.spec.resource_class_name)
    if not plugin or not _is_to_start(claim):
        return 0
    writer.update(kind(DRAFT_CLAIMS), with_status(claim, plugin_name=plugin), subresource="status")
    return 1


def _plugin_of(writer: Writer, class_name: str) -> str:
    resource_class = writer.get(kind(DRAFT_CLASSES), "", class_name)
    return resource_class.plugin_name if isinstance(resource_class, ResourceClass) else ""


CONTROLLER = Controller(
    name="draft_claims",
    does="creates the claims of cdi.k8s.io that pods list, and releases those of finished pods",
    in_mirror=False,
    reconcile=reconcile,
    every=5,
    wakes_on=frozenset(
        {
            *((PODS, change) for change in (ADDED, BOUND, FINISHED, DELETED)),
            *((DRAFT_CLAIMS, change) for change in (ADDED, MODIFIED, DELETED)),
            (DRAFT_CLASSES, ADDED),
        }
    ),
    gate=gates.CLAIMS_DRAFT,
)
