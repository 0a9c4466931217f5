"""Looks after PodGroups: makes the claims that they share, takes back what they held, lets go of those no longer used.

    an entry names a template, and its claim is not there  -> made, owned by the group; its name in the group's status
    a claim is reserved for a group that is gone           -> the reservation goes; with the last one, the devices
    a deleted group is named by no pod that still runs     -> its finalizer goes, and so does the group

The names of the claims reach the pods by the controller that makes the claims of pods (`claims`). The first two are
done with the gate DRAWorkloadResourceClaims only, the last one always: who turns a gate off can still clean up.
Upstream: pkg/controller/resourceclaim/controller.go (syncPodGroup, syncClaim),
pkg/controller/scheduling/podgroupprotection.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from typing import ClassVar

from msgspec import structs

from claims import event_recorder, models
from claims.controllers import generated_claims
from claims.controllers.reservations import deallocated
from claims.kinds.pod_groups import (
    CLAIMS_GATE,
    PROTECTION,
    PodGroup,
    PodGroupResourceClaim,
    PodGroupResourceClaimStatus,
    group_name,
    is_group,
    made_claim,
)
from claims.kinds.pods import Pod
from claims.kinds.resource_claims import POD_CLAIM_ANNOTATION, ResourceClaim, ResourceClaimTemplate
from claims.pod_claims import claim_for
from inventory.kinds import gates
from manciple.admission import door
from manciple.controllers.coordination import utc_now
from manciple.controllers.declaration import DELETING, Controller, batches
from manciple.store import objects, sql
from manciple.store.event_log import Follower, ObjectsView
from manciple.store.hooks import Write
from manciple.store.objects import Writer, decoded, to_read
from manciple.wire.errors import ApiError
from manciple.wire.identity import controller
from manciple.wire.resources import (
    ADDED,
    CLAIMS,
    DELETED,
    FINISHED_PHASES,
    NAMESPACES,
    POD_GROUPS,
    PODS,
    TEMPLATES,
    Key,
    kind,
)

_KEY = ("namespace", "name")
#: Who lets go of groups (upstream: the service account of that name in kube-controller-manager).
IDENTITY = controller("podgroup-protection-controller")
#: Claims in one transaction.
BATCH = 100


def reconcile(_now: datetime) -> int:
    """Returns how many objects were changed."""
    with following.view() as view:
        groups = view.all(PodGroup)
    leaving = [group for group in groups if group.metadata.deletion_timestamp is not None]
    used = _named_by_pods({group.metadata.namespace for group in leaving})
    changed = sum(_let_go(group) for group in leaving if group.key not in used)
    if gates.enabled(CLAIMS_GATE):
        completed = {group.metadata.namespace for group in _lacking(groups) if _make_claims(group)}
        changed += sum(generated_claims.sync(generated_claims.wanting(namespace)) for namespace in sorted(completed))
        changed += len(completed) + _release({group.metadata.uid for group in groups})
    return changed


class PodGroups(ObjectsView):
    """All of them, as this process follows them: a turn that has nothing to do reads none."""

    resources: ClassVar[Sequence[str]] = (POD_GROUPS,)


following = Follower(PodGroups)


# The group itself -----------------------------------------------------------------------------------------------------


def _let_go(group: PodGroup) -> bool:
    if PROTECTION not in group.metadata.finalizers:
        return False
    with objects.writing(identity=IDENTITY) as writer:
        current = _current(writer, group)
        if current is None or PROTECTION not in current.metadata.finalizers:
            return False
        kept = tuple(one for one in current.metadata.finalizers if one != PROTECTION)
        metadata = structs.replace(current.metadata, finalizers=kept)
        writer.update(kind(POD_GROUPS), structs.replace(current, metadata=metadata))
    return True


def _named_by_pods(namespaces: Collection[str]) -> set[Key]:
    """The groups in these namespaces that pods name which have not ended: each pod is read once for all of them."""
    living = models.Pod.objects.filter(namespace__in=namespaces).exclude(phase__in=FINISHED_PHASES)
    keys = list(living.values_list("namespace", "name")) if namespaces else []
    pods = (decoded(one, Pod) for one in objects.get_many(kind(PODS), keys))
    return {(pod.metadata.namespace, name) for pod in pods if (name := group_name(pod))}


def _current(writer: Writer, group: PodGroup) -> PodGroup | None:
    found = writer.get(kind(POD_GROUPS), *group.key)
    return found if isinstance(found, PodGroup) and found.metadata.uid == group.metadata.uid else None


# Its claims -----------------------------------------------------------------------------------------------------------


def _make_claims(group: PodGroup) -> bool:
    """Whether its status tells of more claims than before."""
    wanted = _from_templates(group)
    answers = {entry.name: _admitted(group, entry) for entry in wanted}
    namespace = group.metadata.namespace
    reads = to_read(
        (kind(POD_GROUPS), [group.key]),
        (kind(NAMESPACES), [("", namespace)]),
        (kind(TEMPLATES), ((namespace, entry.resource_claim_template_name or "") for entry in wanted)),
    )
    with objects.writing(identity=generated_claims.IDENTITY, reads=reads) as writer:
        current = _current(writer, group)
        if current is None or current.metadata.deletion_timestamp is not None:
            return False
        owned, made = _owned(writer, current), {}
        for entry in wanted:
            try:
                with writer.savepoint():
                    answer = answers[entry.name]
                    if isinstance(answer, ApiError) and not made_claim(current, entry.name):
                        raise answer
                    made[entry.name] = _claim_for(writer, current, entry, owned, answer)
            except ApiError as error:
                _complain(writer, current, f"PodGroupResourceClaim {entry.name}: {error.message}")
        following = _with_statuses(current, made)
        if following is not current:
            writer.update(kind(POD_GROUPS), following, subresource="status")
    return following is not current


def _from_templates(group: PodGroup) -> list[PodGroupResourceClaim]:
    return [entry for entry in group.spec.resource_claims if entry.resource_claim_template_name]


def _lacking(groups: Iterable[PodGroup]) -> list[PodGroup]:
    """Those that want a claim which is not there; one query for all of them, none where none wants any."""
    wanted: dict[Key, list[Key]] = {}
    for group in groups:
        if group.metadata.deletion_timestamp is None and (entries := _from_templates(group)):
            wanted[group.key] = [(group.metadata.namespace, made_claim(group, entry.name)) for entry in entries]
    named = {key for keys in wanted.values() for key in keys}
    living = {tuple(row) for row in sql.select(models.Claim, _KEY, _KEY, named)} if named else set()
    return [group for group in groups if any(key not in living for key in wanted.get(group.key, ()))]


def _admitted(group: PodGroup, entry: PodGroupResourceClaim) -> ResourceClaim | ApiError | None:
    """The claim as admission policies and webhooks want it, or their refusal, asked before the transaction; None where
    they are not concerned.
    """
    found = objects.get(kind(TEMPLATES), group.metadata.namespace, entry.resource_claim_template_name or "")
    write = Write(operation="CREATE", kind=kind(CLAIMS), identity=generated_claims.IDENTITY, verb="create")
    if found is None or not door.concerned(write):
        return None
    return generated_claims.admitted(
        claim_for(group, entry, decoded(found, ResourceClaimTemplate)), generated_claims.IDENTITY
    )


def _claim_for(
    writer: Writer,
    group: PodGroup,
    entry: PodGroupResourceClaim,
    owned: Sequence[ResourceClaim],
    admitted: ResourceClaim | ApiError | None,
) -> str:
    """The name of the claim that serves the entry, which is made where there is none. Raises: ApiError."""
    for claim in owned:
        if claim.metadata.annotations.get(POD_CLAIM_ANNOTATION) == entry.name:
            return claim.metadata.name
    name = entry.resource_claim_template_name or ""
    template = writer.get(kind(TEMPLATES), group.metadata.namespace, name)
    if not isinstance(template, ResourceClaimTemplate):
        raise generated_claims.template_missing(name)
    fresh = admitted if isinstance(admitted, ResourceClaim) else claim_for(group, entry, template)
    return generated_claims.create(writer, fresh)


def _owned(writer: Writer, group: PodGroup) -> list[ResourceClaim]:
    """The claims that name the group as their owner."""
    uid = group.metadata.uid
    keys = objects.dependents([uid], kind(CLAIMS)).get(uid, ())
    writer.load(kind(CLAIMS), keys)
    return [claim for key in keys if isinstance(claim := writer.get(kind(CLAIMS), *key), ResourceClaim)]


def _with_statuses(group: PodGroup, made: dict[str, str]) -> PodGroup:
    """`group` with the names of its claims; the same value where it tells of them."""
    kept = [one for one in group.status.resource_claim_statuses if one.name not in made]
    new = [PodGroupResourceClaimStatus(name=entry, resource_claim_name=name) for entry, name in made.items()]
    statuses = tuple(sorted([*kept, *new], key=lambda one: one.name))
    if statuses == group.status.resource_claim_statuses:
        return group
    return structs.replace(group, status=structs.replace(group.status, resource_claim_statuses=statuses))


def _complain(writer: Writer, group: PodGroup, message: str) -> None:
    note = event_recorder.EventNote(
        regarding=group,
        type="Warning",
        reason="FailedResourceClaimCreation",
        message=message,
        component=generated_claims.COMPONENT,
    )
    event_recorder.record(writer, note, now=utc_now())


# What they held -------------------------------------------------------------------------------------------------------


def _release(living: Collection[str]) -> int:
    """Take back the reservations of groups that are gone. Nobody is kept from writing while there are none.

    living: the uids of those that there are; the transaction looks again.
    """
    if not (keys := list(_reserved_for_gone(living))):
        return 0
    return sum(_release_batch(batch) for batch in batches(keys, BATCH))


def _release_batch(keys: Sequence[Key]) -> int:
    with objects.writing(identity=generated_claims.IDENTITY, reads=to_read((kind(CLAIMS), keys))) as writer:
        found = [claim for key in keys if isinstance(claim := writer.get(kind(CLAIMS), *key), ResourceClaim)]
        groups = [
            (one.metadata.namespace, user.name) for one in found for user in one.status.reserved_for if is_group(user)
        ]
        writer.load(kind(POD_GROUPS), groups)
        return sum(_release_claim(writer, claim) for claim in found)


def _reserved_for_gone(living: Collection[str]) -> Iterator[Key]:
    """(namespace, name) of claims; the index tells, the transaction decides."""
    rows = models.Reservation.objects.filter(resource=POD_GROUPS)
    found = {
        (namespace, name, group)
        for namespace, name, group in rows.values_list("claim__namespace", "claim__name", "uid")
    }
    yield from sorted({(namespace, name) for namespace, name, group in found if group not in living})


def _release_claim(writer: Writer, claim: ResourceClaim) -> bool:
    namespace, users = claim.metadata.namespace, claim.status.reserved_for
    left = tuple(one for one in users if not is_group(one) or _exists(writer, namespace, one.name, one.uid))
    if len(left) == len(users):
        return False
    kept = structs.replace(claim, status=structs.replace(claim.status, reserved_for=left))
    writer.update(kind(CLAIMS), kept if left else deallocated(claim))
    return True


def _exists(writer: Writer, namespace: str, name: str, uid: str) -> bool:
    found = writer.get(kind(POD_GROUPS), namespace, name)
    return found is not None and found.metadata.uid == uid


CONTROLLER = Controller(
    name="look_after_pod_groups",
    does="creates the claims that pod groups share, releases those of deleted groups, removes unused deleted groups",
    in_mirror=False,
    reconcile=reconcile,
    # No pod that ends wakes it, nor does a template: groups are few, and a pod's end is not to cost another message.
    every=5,
    wakes_on=frozenset({(POD_GROUPS, ADDED), (POD_GROUPS, DELETING), (POD_GROUPS, DELETED)}),
    queue_name="podgroup_protection",
)
