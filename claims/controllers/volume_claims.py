"""Binds PersistentVolumeClaims to PersistentVolumes, makes volumes that are folders of nodes, and lets go of both.

    claim Pending, a volume fits                       -> both Bound, in one transaction
    claim Pending, its class is served by folders      -> a volume on the node of its first pod, both Bound
    claim Pending, nothing serves it                   -> an event says why
    claim deleted                                      -> gone once no pod that has a node uses it
    its volume is gone                                 -> claim Lost
    claim Bound to a folder, asks for more             -> both are that large
    volume Bound, its claim is gone                    -> Released; with the policy Delete it is deleted
    the same, and it is no folder of this project's    -> Failed: nothing here can remove it
    volume deleted                                     -> gone once its node has removed the folder
    volume deleted, its node is not ready              -> an event says so
    volume deleted, its node is gone                   -> gone

A pod whose claim waits for its first consumer is bound to a node like any other, which decides about the claim; the
scheduler sends further pods of the claim to the same node (`scheduling.state.volumes`). Upstream binds the claim first.

Source: pkg/controller/volume/{persistentvolume,pvcprotection,pvprotection} of Kubernetes 1.36.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, ClassVar, Literal

from msgspec.structs import replace

from claims import event_recorder
from claims.event_recorder import EventNote
from claims.kinds import persistent_volumes, volume_claims
from claims.kinds.persistent_volumes import (
    AVAILABLE,
    DELETE,
    FAILED,
    FOLDER_FINALIZER,
    RELEASED,
    RETAIN,
    VOLUME,
    VOLUMES,
    PersistentVolume,
)
from claims.kinds.pods import Pod
from claims.kinds.storage_classes import STORAGE_CLASSES, StorageClass
from claims.kinds.volume_binding import (
    bound_together,
    is_bound,
    is_for,
    keys_of_claims,
    provisioned,
    satisfies,
    size_of,
    unclassified,
    unprovisionable,
)
from claims.kinds.volume_claims import LOST, PENDING, STORAGE, VOLUME_CLAIM, PersistentVolumeClaim
from claims.kinds.volumes import VOLUME_CLAIMS
from inventory.kinds.nodes import Node
from manciple.controllers.declaration import BOUND, FINISHED, Controller
from manciple.controllers.turns import Failed, Rest, attempt
from manciple.store import objects, sql
from manciple.store.event_log import Follower, View
from manciple.store.objects import Writer
from manciple.store.records import Written
from manciple.wire.base import ApiObject, condition_of, timestamp
from manciple.wire.errors import ApiError, Conflict
from manciple.wire.identity import controller
from manciple.wire.registry import Kind
from manciple.wire.resources import ADDED, DELETED, FINISHED_PHASES, MODIFIED, NODES, PODS, Key
from manciple.wire.selectors import node_selector_matches

IDENTITY = controller("persistent-volume-binder")
COMPONENT = "persistentvolume-controller"
#: Claims and volumes in one turn.
MOST = 200
#: After which an event about a claim that still waits is written again.
REPEAT = timedelta(minutes=30)
#: Whether there is anything to look after.
_CONDITION, _PARAMETERS = sql.any_of((VOLUME_CLAIMS, VOLUMES))
ANY: sql.Query = (f"SELECT {_CONDITION}", _PARAMETERS)


@dataclass(frozen=True, slots=True)
class Step:
    """What is done about one claim or volume: one transaction, which fails if an object in `writes` has changed.

    writes: (kind, the object before, or None to create it; the object afterwards, or None to delete it). The event is
    about the first of them, or about `regarding`.
    """

    writes: tuple[tuple[Kind, Any, Any], ...] = ()
    regarding: ApiObject | None = None
    type: Literal["Normal", "Warning"] = "Normal"
    reason: str = ""
    message: str = ""


class VolumeView(View):
    """Claims, volumes and classes, and which pods with a node use which claims; and what has changed since."""

    resources: ClassVar[Sequence[str]] = (NODES, STORAGE_CLASSES, VOLUMES, VOLUME_CLAIMS, PODS)

    def __init__(self) -> None:
        self.claims: dict[Key, PersistentVolumeClaim] = {}
        self.volumes: dict[str, PersistentVolume] = {}
        #: of these, those for any claim, by class; and those for one
        self.free: dict[str, dict[str, PersistentVolume]] = {}
        self.kept: dict[Key, dict[str, PersistentVolume]] = {}
        self.classes: dict[str, StorageClass] = {}
        self.nodes: dict[str, Node] = {}
        #: claim -> uid of a pod -> its node; the first pod first
        self.users: dict[Key, dict[str, str]] = {}
        self._claims_of: dict[str, tuple[Key, ...]] = {}
        self.changed_claims: dict[Key, None] = {}
        self.changed_volumes: dict[str, None] = {}
        #: when claims that wait are looked at though nothing has changed
        self.next_look: datetime | None = None

    def fill(self, resource: str, objects: Iterable[ApiObject]) -> None:  # noqa: ARG002 - its objects say which
        for obj in objects:
            self._put(obj)

    def apply(self, changes: Sequence[Written]) -> None:
        for change in changes:
            if change.type == DELETED:
                self._remove(change.object)
            else:
                self._put(change.object)

    def _put(self, obj: Any) -> None:
        if isinstance(obj, Pod):
            self._use(obj, obj.spec.node_name if obj.status.phase not in FINISHED_PHASES else "")
        elif isinstance(obj, PersistentVolumeClaim):
            self.claims[obj.key] = obj
            self._look_at_claim(obj.key)
        elif isinstance(obj, PersistentVolume):
            self._remove_volume(obj.metadata.name)
            self.volumes[obj.metadata.name] = self._alike(obj)[obj.metadata.name] = obj
            self._look_at_volume(obj)
        elif isinstance(obj, StorageClass):
            self.classes[obj.metadata.name] = obj
            self.look_at_waiting()
        elif isinstance(obj, Node):
            before = self.nodes.get(obj.metadata.name)
            self.nodes[obj.metadata.name] = obj
            if before is not None and _is_ready(before) and not _is_ready(obj):
                self._look_at_going(obj.metadata.name)

    def _remove(self, obj: Any) -> None:
        if isinstance(obj, Pod):
            self._use(obj, "")
        elif isinstance(obj, PersistentVolumeClaim):
            self.claims.pop(obj.key, None)
            self._look_at_claim(obj.key, obj.spec.volume_name)
        elif isinstance(obj, PersistentVolume):
            self._remove_volume(obj.metadata.name)
            self._look_at_volume(obj)
        elif isinstance(obj, StorageClass):
            self.classes.pop(obj.metadata.name, None)
            self.look_at_waiting()
        elif isinstance(obj, Node):
            self.nodes.pop(obj.metadata.name, None)
            self._look_at_going(obj.metadata.name)

    def _alike(self, volume: PersistentVolume) -> dict[str, PersistentVolume]:
        """Where it is found."""
        reference = volume.spec.claim_ref
        if reference is None:
            return self.free.setdefault(volume.spec.storage_class_name, {})
        return self.kept.setdefault((reference.namespace, reference.name), {})

    def _remove_volume(self, name: str) -> None:
        if (volume := self.volumes.pop(name, None)) is not None:
            self._alike(volume).pop(name)
            reference = volume.spec.claim_ref
            if reference is not None and not self.kept[reference.namespace, reference.name]:
                del self.kept[reference.namespace, reference.name]

    def _use(self, pod: Pod, node: str) -> None:
        """node: "" where it uses nothing (yet, or any more)."""
        uid = pod.metadata.uid
        for key in self._claims_of.pop(uid, ()):
            users = self.users.get(key, {})
            users.pop(uid, None)
            if not users:
                self.users.pop(key, None)
            self.changed_claims[key] = None
        keys = keys_of_claims(pod) if node else ()
        if keys:
            self._claims_of[uid] = keys
        for key in keys:
            self.users.setdefault(key, {})[uid] = node
            self.changed_claims[key] = None

    def _look_at_claim(self, key: Key, volume: str = "") -> None:
        claim = self.claims.get(key)
        self.changed_claims[key] = None
        if name := volume or (claim.spec.volume_name if claim is not None else ""):
            self.changed_volumes[name] = None

    def _look_at_volume(self, volume: PersistentVolume) -> None:
        reference = volume.spec.claim_ref
        self.changed_volumes[volume.metadata.name] = None
        if reference is not None:
            self.changed_claims[reference.namespace, reference.name] = None
        else:
            self.look_at_waiting()

    def _look_at_going(self, node: str) -> None:
        for name, volume in self.volumes.items():
            if volume.metadata.deletion_timestamp is not None and volume.node == node:
                self.changed_volumes[name] = None

    def look_at_waiting(self) -> None:
        waiting = (key for key, claim in self.claims.items() if claim.status.phase == PENDING)
        self.changed_claims.update((key, None) for key in waiting)


_follower = Follower(VolumeView)
_rest = Rest(VolumeView.resources)


@contextmanager
def current() -> Iterator[VolumeView | None]:
    """The view, up to date; None as long as there are no claims and no volumes."""
    if sql.fetch(*ANY)[0][0]:
        with _follower.view() as view:
            yield view
        return
    if _follower.place != ("", 0):
        _follower.reset()
    yield None


def reconcile(now: datetime) -> int:
    began = time.monotonic()
    with current() as view:
        if view is None:
            return 0
        if view.next_look is None or now >= view.next_look:
            view.next_look = now + REPEAT
            view.look_at_waiting()
        claims, volumes = list(view.changed_claims)[:MOST], list(view.changed_volumes)[:MOST]
        taken = set[str]()
        # What goes wrong here must not cost the view, which all of them share.
        steps = {
            (VOLUME_CLAIMS, key): attempt(VOLUME_CLAIMS, key, partial(of_claim, view, view.claims[key], taken))
            for key in claims
            if key in view.claims
        } | {
            (VOLUMES, ("", name)): attempt(VOLUMES, ("", name), partial(of_volume, view, view.volumes[name], now))
            for name in volumes
            if name in view.volumes
        }
        for key in claims:
            del view.changed_claims[key]
        for name in volumes:
            del view.changed_volumes[name]
        revision, is_left = view.revision, view.changed_claims or view.changed_volumes
        next_look = 0.0 if is_left else view.next_look.timestamp()
    changed, again = 0, set(steps)  # whatever cuts this off, none is lost
    try:
        for (resource, key), step in steps.items():
            done = attempt(resource, key, partial(_carry_out, step, now)) if isinstance(step, Step) else step
            if not isinstance(done, Failed):
                changed += done or 0
                again.discard((resource, key))
            elif isinstance(step, Step) and isinstance(done.error, ApiError):
                attempt(resource, key, partial(_tell_of_failure, step, done.error, now))
    finally:
        if again:
            _look_again(again)
    _rest.note(began, revision, 0.0 if again else next_look)
    return changed


def _look_again(again: Iterable[tuple[str, Key]]) -> None:
    with current() as view:
        if view is None:
            return
        for resource, key in again:
            if resource == VOLUMES:
                view.changed_volumes[key[1]] = None
            else:
                view.changed_claims[key] = None


# What is to be done: values only --------------------------------------------------------------------------------------


def of_claim(view: VolumeView, claim: PersistentVolumeClaim, taken: set[str]) -> Step | None:
    """taken: volumes that other claims get in this turn."""
    if claim.metadata.deletion_timestamp is not None:
        return _let_go(view, claim)
    if claim.spec.volume_name:
        return _of_claim_with_volume(view, claim)
    storage = view.classes.get(claim.storage_class or "")
    node = next(iter(view.users.get(claim.key, {}).values()), "")
    waits = storage is not None and storage.waits and not node
    kept = next((one for one in view.kept.get(claim.key, {}).values() if is_for(one, claim)), None)
    best = kept or (None if waits else _smallest(view, claim, node, taken))
    if best is not None:
        taken.add(best.metadata.name)
        return _binding(best, claim)
    return _provisioning(view, claim, storage, node)


def _provisioning(view: VolumeView, claim: PersistentVolumeClaim, storage: StorageClass | None, node: str) -> Step:
    """No volume is there for the claim."""
    if storage is None:
        why = unclassified(claim)
        return (
            _failed(claim, why) if claim.storage_class else Step(regarding=claim, reason="FailedBinding", message=why)
        )
    if why := unprovisionable(claim, storage):
        return _failed(claim, why)
    if not node:
        message = "waiting for first consumer to be created before binding"
        return Step(regarding=claim, reason="WaitForFirstConsumer", message=message)
    volume = provisioned(claim, storage, node, _labels(view, node))
    _, bound = bound_together(volume, claim)
    message = f"Successfully provisioned volume {volume.metadata.name}"
    writes = ((VOLUME_CLAIM, claim, bound), (VOLUME, None, volume))
    return Step(writes=writes, reason="ProvisioningSucceeded", message=message)


def _let_go(view: VolumeView, claim: PersistentVolumeClaim) -> Step | None:
    meta = claim.metadata
    if volume_claims.PROTECTION not in meta.finalizers or view.users.get(claim.key):
        return None
    left = tuple(one for one in meta.finalizers if one != volume_claims.PROTECTION)
    return Step(writes=((VOLUME_CLAIM, claim, replace(claim, metadata=replace(meta, finalizers=left))),))


def _of_claim_with_volume(view: VolumeView, claim: PersistentVolumeClaim) -> Step | None:
    name, phase = claim.spec.volume_name, claim.status.phase
    volume = view.volumes.get(name)
    if volume is None or (volume.spec.claim_ref is not None and not is_for(volume, claim)):
        return _without_volume(claim, volume)
    if is_bound(volume, claim):
        return _growth(volume, claim)
    if phase == LOST:
        return None
    # A claim that names its volume may have it whatever its selector says.
    anything = replace(claim, spec=replace(claim.spec, selector=None))
    if volume.spec.claim_ref is None and not satisfies(volume, anything):
        message = f'Cannot bind to requested volume "{name}": it does not suit the claim'
        return Step(regarding=claim, type="Warning", reason="VolumeMismatch", message=message)
    return _binding(volume, claim)


def _without_volume(claim: PersistentVolumeClaim, volume: PersistentVolume | None) -> Step | None:
    """volume: that it names, and that is another claim's; None where there is none."""
    if claim.status.phase == volume_claims.BOUND:
        lost = replace(claim, status=replace(claim.status, phase=LOST))
        message = "Bound claim has lost its PersistentVolume. Data on the volume is lost!"
        return Step(((VOLUME_CLAIM, claim, lost),), type="Warning", reason="ClaimLost", message=message)
    if claim.status.phase != PENDING:
        return None
    why = "not found" if volume is None else "already bound to a different claim."
    return _failed(claim, f'volume "{claim.spec.volume_name}" {why}', reason="FailedBinding")


def _growth(volume: PersistentVolume, claim: PersistentVolumeClaim) -> Step | None:
    """A folder is as large as is asked for: nothing enforces sizes."""
    wanted = claim.spec.resources.requests
    if not volume.is_folder or size_of(wanted) <= size_of(volume.spec.capacity):
        return None
    capacity = {STORAGE: wanted[STORAGE]}
    larger = replace(volume, spec=replace(volume.spec, capacity=capacity))
    grown = replace(claim, status=replace(claim.status, capacity=capacity))
    writes = ((VOLUME_CLAIM, claim, grown), (VOLUME, volume, larger))
    return Step(writes, reason="VolumeResizeSuccessful", message=f"Resize volume {volume.metadata.name} succeeded")


def _binding(volume: PersistentVolume, claim: PersistentVolumeClaim) -> Step | None:
    if is_bound(volume, claim):
        return None
    its_claim, its_volume = bound_together(volume, claim)
    return Step(writes=((VOLUME_CLAIM, claim, its_volume), (VOLUME, volume, its_claim)))


def _smallest(view: VolumeView, claim: PersistentVolumeClaim, node: str, taken: set[str]) -> PersistentVolume | None:
    """Of the volumes that would do, and that the node reaches, where one is named."""
    fitting = [
        one
        for name, one in view.free.get(claim.storage_class or "", {}).items()
        if name not in taken and satisfies(one, claim) and (not node or _reaches(view, node, one))
    ]
    return min(fitting, key=lambda one: (size_of(one.spec.capacity).nanos, one.metadata.name), default=None)


def _reaches(view: VolumeView, node: str, volume: PersistentVolume) -> bool:
    selector = volume.selector
    return selector is None or node_selector_matches(selector, node, _labels(view, node))


def _labels(view: VolumeView, node: str) -> dict[str, str]:
    return view.nodes[node].metadata.labels if node in view.nodes else {}


def _failed(claim: PersistentVolumeClaim, why: str, *, reason: str = "ProvisioningFailed") -> Step:
    return Step(regarding=claim, type="Warning", reason=reason, message=why)


def of_volume(view: VolumeView, volume: PersistentVolume, now: datetime) -> Step | None:
    spec, reference = volume.spec, volume.spec.claim_ref
    claim = view.claims.get((reference.namespace, reference.name)) if reference is not None else None
    if claim is not None and is_for(volume, claim):
        return None  # what is to be done about both, the claim says
    phase = AVAILABLE if reference is None or not reference.uid else RELEASED
    if volume.status.phase != phase and (phase, volume.status.phase) != (RELEASED, FAILED):
        return Step(writes=((VOLUME, volume, _in_phase(volume, phase, now)),))
    if volume.metadata.deletion_timestamp is not None:
        return _remove_finalizers(view, volume)
    if volume.status.phase == RELEASED and spec.persistent_volume_reclaim_policy != RETAIN:
        if volume.is_folder and spec.persistent_volume_reclaim_policy == DELETE:
            return Step(writes=((VOLUME, volume, None),))
        return _not_reclaimed(volume, now)
    return None


def _not_reclaimed(volume: PersistentVolume, now: datetime) -> Step:
    policy = volume.spec.persistent_volume_reclaim_policy
    message = (
        f"{policy} is served here for volumes of the class local only: remove what is in this one, then the "
        "PersistentVolume, or its claimRef to have it used again"
    )
    failed = _in_phase(volume, FAILED, now)
    failed = replace(failed, status=replace(failed.status, message=message))
    return Step(((VOLUME, volume, failed),), type="Warning", reason=f"VolumeFailed{policy}", message=message)


def _remove_finalizers(view: VolumeView, volume: PersistentVolume) -> Step | None:
    going, node = {persistent_volumes.PROTECTION}, view.nodes.get(volume.node)
    if node is None:
        going.add(FOLDER_FINALIZER)  # the folder is gone with its node
    left = tuple(one for one in volume.metadata.finalizers if one not in going)
    changed = replace(volume, metadata=replace(volume.metadata, finalizers=left))
    writes = () if left == volume.metadata.finalizers else ((VOLUME, volume, changed),)
    if FOLDER_FINALIZER not in left or node is None or _is_ready(node):
        return Step(writes) if writes else None
    message = (
        f"node {volume.node}, which has the folder, is not ready: it removes the folder once it is back. If it never "
        "will be, delete the Node"
    )
    return Step(writes, regarding=volume, type="Warning", reason="VolumeFailedDelete", message=message)


def _in_phase(volume: PersistentVolume, phase: str, now: datetime) -> PersistentVolume:
    status = replace(volume.status, phase=phase, message="", last_phase_transition_time=timestamp(now))
    return replace(volume, status=status)


def _is_ready(node: Node) -> bool:
    ready = condition_of(node.status.conditions, "Ready")
    return ready is not None and ready.status == "True"


# Writing --------------------------------------------------------------------------------------------------------------


def _carry_out(step: Step, now: datetime) -> int:
    """Raises: Conflict where an object has changed since it was looked at; ApiError."""
    with objects.writing(identity=IDENTITY) as writer:
        before = writer.revision
        for kind, old, new in step.writes:
            _write(writer, kind, old, new)
        if step.reason:
            _tell(writer, step, now)
        return writer.revision - before if step.writes else 0


def _write(writer: Writer, kind: Kind, old: Any, new: Any) -> None:
    if old is None:
        writer.create(kind, new)
        return
    stored = writer.get(kind, *old.key)
    if stored is None or stored.metadata.resource_version != old.metadata.resource_version:
        raise Conflict.of(kind.resource, old.metadata.name)
    if new is None:
        writer.delete(kind, *old.key, uid=old.metadata.uid)
    else:
        writer.update(kind, new)


def _tell(writer: Writer, step: Step, now: datetime) -> None:
    note = EventNote(
        regarding=step.regarding or step.writes[0][1],
        type=step.type,
        reason=step.reason,
        message=step.message,
        component=COMPONENT,
    )
    if step.writes or not event_recorder.was_recorded(writer, note, since=now - REPEAT + timedelta(seconds=1)):
        event_recorder.record(writer, note, now=now)


def _tell_of_failure(step: Step, error: ApiError, now: datetime) -> None:
    about = step.regarding or step.writes[0][1]
    with objects.writing(identity=IDENTITY) as writer:
        failure = Step(regarding=about, type="Warning", reason="ProvisioningFailed", message=error.message)
        _tell(writer, failure, now)


CONTROLLER = Controller(
    name="bind_volume_claims",
    does="binds PersistentVolumeClaims to volumes, and makes volumes of the class local",
    reconcile=reconcile,
    every=5,
    wakes_on=frozenset(
        {
            (VOLUME_CLAIMS, ADDED),
            (VOLUME_CLAIMS, MODIFIED),
            (VOLUME_CLAIMS, DELETED),
            (VOLUMES, ADDED),
            (VOLUMES, MODIFIED),
            (VOLUMES, DELETED),
            (STORAGE_CLASSES, ADDED),
            (NODES, DELETED),
            (PODS, BOUND),
            (PODS, FINISHED),
            (PODS, DELETED),
        }
    ),
    has_work=ANY,
    is_work=frozenset({(VOLUME_CLAIMS, ADDED), (VOLUMES, ADDED)}),
    rests_without_work=True,
    rests_until=_rest.until,
    most_per_turn=MOST,
    queue_name="persistentvolume",
)
