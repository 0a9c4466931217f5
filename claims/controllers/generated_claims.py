"""Makes the claims that pods ask for by template, and writes their names into the pods' status.

For every living pod with an entry that names a template: the claim recorded in its status is kept while it exists and
belongs to the pod; else one that was made for this entry before is taken up; else one is made. Claims and status are
written in one transaction, so a crash leaves both or neither; taking up covers claims that somebody else made.
A pod whose claim cannot be made gets an event that says why, and is looked at again when its template appears.

Pods that were bound by somebody else's scheduler, while their claims were allocated already, get their reservations
here (upstream: pkg/controller/resourceclaim/controller.go, syncPod).
"""

from __future__ import annotations

import math
import time
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import cast

from django.db.models import Q
from msgspec import structs

from claims import event_recorder, models
from claims.causes.causes import QuotaUsedUp
from claims.kinds.pod_groups import CLAIMS_GATE, PodGroup, group_name, made_claim, shares
from claims.kinds.pods import Pod, PodResourceClaim, PodResourceClaimStatus
from claims.kinds.quota_usage import CLAIMS_OF_CLASS, COUNT, DEVICES, NONE, REQUESTS, parsed
from claims.kinds.quotas import RESOURCE_CLAIMS, ResourceQuota
from claims.kinds.resource_claims import POD_CLAIM_ANNOTATION, ResourceClaim, ResourceClaimTemplate, wants_admin_access
from claims.pod_claims import (
    can_be_reserved,
    claim_for,
    claim_names,
    controller_of,
    is_done,
    is_for_pod,
    references,
    reserved,
)
from claims.quotas import QuotaExceeded
from inventory.kinds import gates
from manciple.admission import door
from manciple.controllers.coordination import NOBODY, CursorFollower, looked_after, utc_now
from manciple.controllers.declaration import Controller, batches
from manciple.store import event_log, objects, sql
from manciple.store.hooks import Write
from manciple.store.objects import Writer, decoded, to_read
from manciple.store.records import EventRecord
from manciple.telemetry import metrics, traces
from manciple.telemetry.logs import about
from manciple.wire.errors import ApiError, Invalid, NotFound
from manciple.wire.identity import Identity, controller
from manciple.wire.resources import CLAIMS, FINISHED_PHASES, NAMESPACES, POD_GROUPS, PODS, QUOTAS, TEMPLATES, Key, kind
from manciple.wire.validation import claim_generate_name

#: Who writes (upstream: the service account of that name in kube-controller-manager).
IDENTITY = controller("resource-claim-controller")

# By kube-controller-manager's names (pkg/controller/resourceclaim/metrics), and KEP-4381's, which has two more.
CREATES = metrics.counter(
    "resourceclaim_controller_creates_total",
    "Claims created from templates, and failures to create them.",
    "status",
    "admin_access",
)
CREATE = metrics.one_counter(
    "resourceclaim_controller_create_total", "Attempts to create claims from templates (KEP-4381's name)."
)
CREATE_FAILURES = metrics.one_counter(
    "resourceclaim_controller_create_failures_total",
    "Failed attempts to create claims from templates (KEP-4381's name).",
)
#: Pods in one transaction.
BATCH = 100
#: Documents read in one query.
READ_AT_ONCE = 500
#: Seconds for which new pods wait while others are placed, so that all that come meanwhile get their claims in one
#: transaction. A slow search keeps them no longer.
GATHERING = 0.15
#: Pods changed in one sweep.
MOST = 2000
#: Pods whose claims were refused that are looked at again when a quota has room.
RETRIED = 20
#: What the controller that makes claims does next by itself.
LOOKING = frozenset({"sync_claims", "schedule"})
#: The source of the controller's events, as upstream names it.
COMPONENT = "resource_claim"


def handle(records: Sequence[EventRecord]) -> int:
    """Look at the pods that `records` point to: new ones, owners of deleted claims, those that wait for a template, or
    for room in a quota."""
    keys, pods, quotas = list[Key](), dict[Key, Pod](), dict[str, EventRecord]()
    for namespace in {one.namespace for one in records if one.resource == TEMPLATES and one.type == "ADDED"}:
        keys += wanting(namespace)
    for one in event_log.with_documents(filter(_is_worth_reading, records)):
        if one.resource == QUOTAS:
            quotas[one.namespace] = one
        elif one.resource == CLAIMS:
            owner = controller_of(decoded(one, ResourceClaim).metadata)
            keys += [(one.namespace, owner[0])] if owner else []
        elif wants_attention(pod := decoded(one, Pod)):
            keys.append(pod.key)
            pods[pod.key] = pod
    roomy = [one for one in quotas.values() if one.type == "DELETED" or leaves_room(decoded(one, ResourceQuota))]
    return sum(_retry(one.namespace) for one in roomy) + sync(keys, pods)


def sweep(now: datetime, *, most: float = MOST) -> int:  # noqa: ARG001 - every controller is swept at a time
    """Look at every pod that could lack a claim. Returns how many pods were changed, at most about `most`."""
    changed = 0
    for batch in batches(wanting(), BATCH):
        changed += sync(batch)
        if changed >= most:
            break
    return changed


def wanting(namespace: str = "") -> Iterator[Key]:
    """The pods that may lack a claim: of those without a node, and of those that are starting."""
    starting = models.Pod.objects.filter(Q(node_name="") | Q(phase__in=("", "Pending")), deleting=False)
    starting = starting.exclude(phase__in=FINISHED_PHASES)
    if namespace:
        starting = starting.filter(namespace=namespace)
    keys = list(starting.order_by("namespace", "name").values_list("namespace", "name"))
    for chunk in sql.chunks(keys, READ_AT_ONCE):
        pods = (decoded(stored, Pod) for stored in objects.get_many(kind(PODS), chunk))
        yield from (pod.key for pod in pods if wants_attention(pod))


def _is_worth_reading(record: EventRecord) -> bool:
    """Most of what happens to pods happens to those that run, or is what the controllers here have just written."""
    if record.resource != PODS:
        return record.resource == QUOTAS or (record.resource == CLAIMS and record.type == "DELETED")
    node, phase = record.fields.get("spec.nodeName"), record.fields.get("status.phase")
    runs = node and phase not in ("", "Pending")
    return record.type != "DELETED" and not runs and not looked_after.value.by(record.revision)


def leaves_room(quota: ResourceQuota) -> bool:
    """Whether no limit on claims is used up. A quota that limits no claims keeps none away."""
    used, hard = parsed(quota.status.used), parsed(quota.spec.hard)
    own, suffixes = (f"{COUNT}{CLAIMS}", RESOURCE_CLAIMS), (DEVICES, *CLAIMS_OF_CLASS[CLAIMS])
    limited = [key for key in hard if key.startswith(REQUESTS) or key.endswith(suffixes) or key in own]
    return bool(limited) and all(used.get(key, NONE) < hard[key] for key in limited)


def _retry(namespace: str) -> int:
    """Make claims that may have been refused, a few pods at a time, until one is refused again."""
    changed = 0
    while keys := _refused(namespace):
        made = sync(keys)
        changed += made
        if made < len(keys):
            break
    return changed


def _refused(namespace: str) -> list[Key]:
    """A few of the pods whose claims may have been refused, the oldest first."""
    without = models.Pod.objects.filter(namespace=namespace, node_name="", deleting=False, claim_names=[])
    keys = list(without.order_by("name").values_list("namespace", "name")[:READ_AT_ONCE])
    pods = (decoded(stored, Pod) for stored in objects.get_many(kind(PODS), keys))
    lacking = sorted(filter(wants_attention, pods), key=lambda pod: pod.metadata.creation_timestamp or "")
    return [pod.key for pod in lacking[:RETRIED]]


def wants_attention(pod: Pod) -> bool:
    """Whether a claim of `pod` may be missing, or a reservation, as far as the pod alone tells."""
    if not pod.spec.resource_claims or is_done(pod) or pod.metadata.deletion_timestamp is not None:
        return False
    if pod.spec.node_name:
        return not pod.status.phase or pod.status.phase == "Pending"
    return any(reference.needed and reference.claim is None for reference in references(pod))


def sync(keys: Iterable[Key], known: Mapping[Key, Pod] = {}) -> int:
    """Bring the claims of these pods into being. Returns how many pods were changed; none while the feature is off.

    known: pods as the caller has read them, which are not read again where they are current still.
    """
    if not gates.enabled(gates.DYNAMIC_RESOURCE_ALLOCATION):
        return 0
    return sum(_sync_batch(batch, known) for batch in sql.chunks(dict.fromkeys(keys), BATCH))


def _sync_batch(keys: Sequence[Key], known: Mapping[Key, Pod]) -> int:
    # A full batch is one of many: others may schedule its pods while this worker goes on.
    began, looking = time.time(), NOBODY if len(keys) == BATCH else LOOKING
    verdicts = ask_about(keys, IDENTITY)
    # The rules ask for the namespaces.
    reads = to_read((kind(PODS), keys), (kind(NAMESPACES), [("", namespace) for namespace, _ in keys]))
    reads |= {(PODS, *key): (kind(PODS), objects.known(kind(PODS), known[key])) for key in keys if key in known}
    with objects.writing(identity=IDENTITY, reads=reads) as writer, looked_after.value.noted(writer, looking):
        pods = [pod for key in keys if (pod := _living(writer, key)) is not None]
        made_before = objects.dependents([pod.metadata.uid for pod in pods], kind(CLAIMS))
        missing = [one for pod in pods for one in _missing(pod)]
        claims = [key for made in made_before.values() for key in made]
        claims += ((pod.metadata.namespace, name) for pod in pods for name in claim_names(pod))
        groups = (kind(POD_GROUPS), filter(None, map(_group_key, pods)))
        beside = to_read((kind(CLAIMS), claims), (kind(TEMPLATES), (template for _, template in missing)), groups)
        writer.draw_names(kind(CLAIMS), [base for base, _ in missing], beside=beside)
        changed = [pod for pod in pods if _sync_pod(writer, pod, made_before.get(pod.metadata.uid, ()), verdicts)]
    if traces.recorder.value:
        for pod in changed:
            traces.tell(pod.metadata.uid, "make claims", began=began, attributes={"manciple.pods": len(pods)})
    return len(changed)


def _living(writer: Writer, key: Key) -> Pod | None:
    pod = writer.get(kind(PODS), *key)
    if not isinstance(pod, Pod) or pod.metadata.deletion_timestamp is not None or is_done(pod):
        return None
    return pod


def _missing(pod: Pod) -> Iterable[tuple[Key, Key]]:
    """(namespace, generateName) and template of the claims that `pod` alone tells are missing."""
    namespace, name = pod.key
    for entry, reference in zip(pod.spec.resource_claims, references(pod), strict=True):
        if reference.needed and reference.claim is None:
            template = entry.resource_claim_template_name or ""
            yield (namespace, claim_generate_name(name, entry.name)), (namespace, template)


def _sync_pod(writer: Writer, pod: Pod, owned: Sequence[Key], verdicts: Verdicts) -> bool:
    """owned: the claims that name the pod as their owner."""
    try:
        with about(pod), writer.savepoint():
            return _complete(writer, pod, owned, verdicts)
    except NotAsked:
        return False
    except _NotMade as why:
        message = f"PodResourceClaim {why.entry}: {why.error.message}"
        told = message.replace(why.drawn_name, "")
        _complain(writer, pod, message, counted_as=told, cause=why.quota_used_up)
        return False
    except ApiError as error:
        _complain(writer, pod, error.message)
        return False


class _NotMade(Exception):
    """The claim of an entry of the pod could not be made."""

    def __init__(self, entry: str, error: ApiError) -> None:
        super().__init__(entry, error)
        self.entry, self.error = entry, error

    @property
    def quota_used_up(self) -> QuotaUsedUp | None:
        """What pages tell in plain words; None where it is something else."""
        if not isinstance(self.error, QuotaExceeded):
            return None
        _, quota, key, requested, used, hard = self.error.excess
        return QuotaUsedUp(quota=quota, key=key, requested=requested, used=used, hard=hard, entry=self.entry)

    @property
    def drawn_name(self) -> str:
        """The name that the claim would have had this time, as the refusal quotes it."""
        return f'"{(self.error.details or {}).get("name", "")}"'


def _complete(writer: Writer, pod: Pod, owned: Sequence[Key], verdicts: Verdicts) -> bool:
    made = {}
    for entry in pod.spec.resource_claims:
        if not entry.resource_claim_template_name:
            continue
        try:
            name = _claim_to_record(writer, pod, entry, owned, verdicts)
        except ApiError as error:
            raise _NotMade(entry.name, error) from error
        if name:
            made[entry.name] = name
    following = _with_statuses(pod, made)
    if following is not pod:
        writer.update(kind(PODS), following, subresource="status")
    reserved = reserve(writer, following) if pod.spec.node_name else False
    return following is not pod or reserved


def _claim_to_record(
    writer: Writer, pod: Pod, entry: PodResourceClaim, owned: Sequence[Key], verdicts: Verdicts
) -> str:
    """The name of the claim that now serves `entry`; "" where the pod's status is right as it is."""
    (reference,) = (reference for reference in references(pod) if reference.entry == entry.name)
    if not reference.needed:
        return ""
    if reference.claim is not None:
        claim = _claim(writer, pod, reference.claim)
        if claim is not None and is_for_pod(claim, pod):
            return ""
    group = _group_of(writer, pod)
    if group is not None and shares(group, entry):
        return made_claim(group, entry.name)  # the group's own controller makes it
    return _made_before(writer, pod, entry, owned) or _make(writer, pod, entry, verdicts)


def _group_of(writer: Writer, pod: Pod) -> PodGroup | None:
    """The group that may share claims with the pod."""
    key = _group_key(pod)
    return None if key is None else cast("PodGroup | None", writer.get(kind(POD_GROUPS), *key))


def _group_key(pod: Pod) -> Key | None:
    grouped = pod.spec.scheduling_group is not None and gates.enabled(CLAIMS_GATE)
    return (pod.metadata.namespace, group_name(pod)) if grouped else None


def _claim(writer: Writer, pod: Pod, name: str) -> ResourceClaim | None:
    return cast("ResourceClaim | None", writer.get(kind(CLAIMS), pod.metadata.namespace, name))


def _made_before(writer: Writer, pod: Pod, entry: PodResourceClaim, owned: Sequence[Key]) -> str:
    """A claim made for this entry that the status does not tell of. A stranger's may name the pod as its owner too."""
    for key in owned:
        claim = cast("ResourceClaim | None", writer.get(kind(CLAIMS), *key))
        if claim is None or not is_for_pod(claim, pod):
            continue
        if claim.metadata.annotations.get(POD_CLAIM_ANNOTATION) == entry.name:
            return claim.metadata.name
    return ""


def _make(writer: Writer, pod: Pod, entry: PodResourceClaim, verdicts: Verdicts) -> str:
    name = entry.resource_claim_template_name or ""
    template = cast("ResourceClaimTemplate | None", writer.get(kind(TEMPLATES), pod.metadata.namespace, name))
    if template is None:
        raise template_missing(name)
    verdicts.demand(pod, entry, template)
    return create(writer, claim_for(pod, entry, template))


def template_missing(name: str) -> NotFound:
    """In the words of an informer, which names the kind of one object."""
    missing = NotFound.of(TEMPLATES.replace("templates.", "template.", 1), name)
    return NotFound(f'resource claim template "{name}": {missing.message}')


def create(writer: Writer, wanted: ResourceClaim) -> str:
    """Write a claim made from a template. Returns its name. Raises: ApiError."""
    claim_kind = kind(CLAIMS)
    claim = claim_kind.prepare_create(wanted)
    admin_access = "true" if wants_admin_access(claim) else "false"
    try:
        errors = claim_kind.validate_create(claim)
        if errors:
            raise Invalid.of(kind=claim_kind.kind, group=claim_kind.group, name=claim.metadata.name, errors=errors)
        made = writer.create(claim_kind, claim).metadata.name
    except ApiError:
        CREATE.inc()
        CREATE_FAILURES.inc()
        CREATES["failure", admin_access].inc()
        raise
    CREATE.inc()
    CREATES["success", admin_access].inc()
    return made


def _with_statuses(pod: Pod, made: dict[str, str]) -> Pod:
    """`pod` with the names of the claims just made in its status; the same value when there are none."""
    if not made:
        return pod
    kept = [status for status in pod.status.resource_claim_statuses if status.name not in made]
    new = [PodResourceClaimStatus(name=entry, resource_claim_name=name) for entry, name in made.items()]
    status = structs.replace(pod.status, resource_claim_statuses=tuple(sorted([*kept, *new], key=lambda s: s.name)))
    return structs.replace(pod, status=status)


def reserve(writer: Writer, pod: Pod) -> bool:
    """Reserve the allocated claims of a bound pod for it."""
    changed, group = False, _group_of(writer, pod)
    for reference in references(pod):
        claim = _claim(writer, pod, reference.claim) if reference.claim else None
        if claim is None or claim.status.allocation is None or (following := reserved(claim, pod, group)) is claim:
            continue
        if can_be_reserved(claim) and (not reference.generated or is_for_pod(claim, pod)):
            writer.update(kind(CLAIMS), following)
            changed = True
    return changed


def _complain(
    writer: Writer, pod: Pod, message: str, *, counted_as: str = "", cause: QuotaUsedUp | None = None
) -> None:
    event_recorder.record(
        writer,
        event_recorder.EventNote(
            regarding=pod,
            type="Warning",
            reason="FailedResourceClaimCreation",
            message=message,
            component=COMPONENT,
            counted_as=counted_as,
            cause=cause,
        ),
        now=utc_now(),
    )


FOLLOWER = CursorFollower(
    name="claims",
    resources=frozenset({PODS, CLAIMS, TEMPLATES, QUOTAS}),
    handle=handle,
    sweep=partial(sweep, most=math.inf),
)


RESYNC = Controller(
    name="resync_claims",
    does="checks all pods for missing claims, whatever the log said",
    reconcile=sweep,
    every=60,
    most_per_turn=MOST,
)


# What admission policies and webhooks say ----------------------------------------------------------------------------

# Nobody gets around a rule about claims by writing a template and a pod: upstream the controller that makes such a
# claim is a client like any other. Here it writes in this process, so they are asked ahead of its transaction, in its
# name (webhooks may take their time), and in the transaction their verdict is demanded before the claim is made. Where
# nobody has a say about new claims that is one look-up, and no verdict is demanded.


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
        said[_question(pod, entry, template)] = refusal_of(claim_for(pod, entry, template), identity)
    return Verdicts(said)


def _question(pod: Pod, entry: PodResourceClaim, template: ResourceClaimTemplate) -> Asked:
    return pod.metadata.uid, entry.name, template.metadata.resource_version


def refusal_of(claim: ResourceClaim, identity: Identity) -> ApiError | None:
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
    templates = {template.key: template for template in found}
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
