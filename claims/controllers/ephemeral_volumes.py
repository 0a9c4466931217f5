"""Makes the PersistentVolumeClaims of ephemeral volumes, which are called POD-VOLUME and go with their pod.

    the claim is missing          -> it is made from the volume's template, and the pod owns it
    it is another's               -> an event says so; the pod waits until the claim is gone
    it cannot be made             -> an event says why; tried again, as quotas and policies change

Pods that have started keep what they have: a claim in use is not deleted. The garbage collector removes the claim after
the pod. Source: pkg/controller/volume/ephemeral/controller.go of Kubernetes 1.36.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import Any

from msgspec import structs

from claims import event_recorder
from claims.event_recorder import EventNote
from claims.kinds.pods import Pod, is_made_for, not_made_for, volume_claim_of
from claims.kinds.volume_claims import VOLUME_CLAIM, PersistentVolumeClaim
from claims.kinds.volumes import VOLUME_CLAIMS
from claims.pod_claims import controlled_by, is_done
from manciple.api import verbs
from manciple.controllers.declaration import Controller
from manciple.controllers.turns import Failed, attempt
from manciple.store import objects, sql
from manciple.store.objects import decoded
from manciple.wire.base import RANDOM, ObjectMeta
from manciple.wire.errors import AlreadyExists, ApiError
from manciple.wire.identity import controller
from manciple.wire.resources import ADDED, DELETED, PODS, Key, kind

IDENTITY = controller("ephemeral-volume-controller")
COMPONENT = "ephemeral_volume"
#: Pods in one turn.
MOST = 200
#: After which an event about a claim that cannot be made is written again.
REPEAT = timedelta(minutes=5)
_LACKING = (
    "FROM claims_ephemeralvolume v WHERE NOT EXISTS (SELECT 1 FROM store_ownerlink l "
    "JOIN store_storedobject o ON o.uid = l.object_id "
    "WHERE l.owner_uid = v.pod_id AND o.resource = %s AND o.name = v.claim)"
)
#: Whether a pod lacks one.
ANY: sql.Query = (f"SELECT EXISTS (SELECT 1 {_LACKING})", (VOLUME_CLAIMS,))


def reconcile(now: datetime) -> int:
    found = sql.fetch(f"SELECT DISTINCT v.namespace, v.name {_LACKING}", (VOLUME_CLAIMS,))
    keys: list[Key] = [(namespace, name) for namespace, name in found]
    # Those of one namespace that cannot be made must not keep the others from their turn.
    turn = RANDOM.value.sample(keys, min(len(keys), MOST))
    done = [attempt(PODS, key, partial(_complete, key, now)) for key in turn]
    return sum(made for made in done if not isinstance(made, Failed))


def _complete(key: Key, now: datetime) -> int:
    """Returns how many claims were made."""
    stored = objects.get(kind(PODS), *key)
    pod = decoded(stored, Pod) if stored is not None else None
    if pod is None or pod.metadata.deletion_timestamp is not None or is_done(pod):
        return 0
    volumes: tuple[Any, ...] = pod.spec.volumes
    made = 0
    for volume in volumes:
        if volume.ephemeral is None:
            continue
        try:
            made += _make(pod, volume)
        except ApiError as error:
            _tell(pod, f"ephemeral volume {volume.name}: {error.message}", now)
            break  # as upstream: what is wrong with one is put right first
    return made


def _make(pod: Pod, volume: Any) -> bool:
    """Whether the claim was made; not where it is there. Raises: ApiError."""
    name, namespace = volume_claim_of(pod, volume), pod.metadata.namespace
    stored = objects.get(VOLUME_CLAIM, namespace, name)
    if stored is not None:
        if not is_made_for(decoded(stored, PersistentVolumeClaim).metadata, pod):
            raise ApiError(not_made_for(name, pod))
        return False
    template = volume.ephemeral.volumeClaimTemplate
    wanted = PersistentVolumeClaim(
        api_version="v1",
        kind="PersistentVolumeClaim",
        metadata=ObjectMeta(
            name=name,
            namespace=namespace,
            labels=template.metadata.labels,
            annotations=template.metadata.annotations,
            owner_references=(structs.replace(controlled_by(pod), block_owner_deletion=True),),
        ),
        spec=template.spec,
    )
    try:
        # Policies and webhooks are asked before the transaction: they may be slow.
        _, admitted, uid = verbs.admitted_creation(VOLUME_CLAIM, wanted, identity=IDENTITY, dry_run=False)
        with objects.writing(identity=IDENTITY) as writer:
            current = writer.get(kind(PODS), *pod.key)
            if current is None or current.metadata.uid != pod.metadata.uid:
                return False
            writer.create(VOLUME_CLAIM, admitted, uid=uid)
    except AlreadyExists:
        return False  # somebody was faster; the next turn sees whose it is
    except ApiError as error:
        raise ApiError(f"create PVC {name}: {error.message}") from error
    return True


def _tell(pod: Pod, message: str, now: datetime) -> None:
    note = EventNote(regarding=pod, type="Warning", reason="FailedBinding", message=message, component=COMPONENT)
    with objects.writing(identity=IDENTITY) as writer:
        if not event_recorder.was_recorded(writer, note, since=now - REPEAT + timedelta(seconds=1)):
            event_recorder.record(writer, note, now=now)


CONTROLLER = Controller(
    name="make_ephemeral_volumes",
    does="makes the PersistentVolumeClaims of ephemeral volumes",
    in_mirror=False,
    reconcile=reconcile,
    every=10,
    wakes_on=frozenset({(PODS, ADDED), (VOLUME_CLAIMS, DELETED)}),
    has_work=ANY,
    rests_without_work=True,
    most_per_turn=MOST,
    queue_name=COMPONENT,
)
