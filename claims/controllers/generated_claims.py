"""Creates the claims that pods request by template, and writes their names into the pods' status.

Most claims are created by the scheduler, which decides about a new pod at once and creates its claims with the verdict
(`scheduling.claims.readiness`), by `create` and in the name of this controller. All others are created here: those
of pods that the scheduler does not try, or not yet, and those that could not be created with a verdict.

For every active pod with an entry that names a template: the claim recorded in its status is kept while it exists and
belongs to the pod; else a claim that was created for this entry before is adopted; else one is created. Claims and
status are written in one transaction, so a crash leaves both or neither; adopting covers claims of other creators.
A pod whose claim cannot be created gets an event with the reason, and is retried when its template appears.

Pods that another scheduler bound while their claims were allocated already get their reservations here (upstream:
pkg/controller/resourceclaim/controller.go, syncPod).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import cast

from msgspec import structs

from claims import event_recorder, models
from claims.causes.causes import QuotaUsedUp
from claims.kinds.pod_groups import CLAIMS_GATE, POD_GROUP, PodGroup, group_name, made_claim, shares
from claims.kinds.pods import Pod, PodResourceClaim, PodResourceClaimStatus
from claims.kinds.quotas import RESOURCE_CLAIMS, ResourceQuota
from claims.kinds.registration import POD, RESOURCE_CLAIM, RESOURCE_CLAIM_TEMPLATE
from claims.kinds.resource_claims import POD_CLAIM_ANNOTATION, ResourceClaim, ResourceClaimTemplate, wants_admin_access
from claims.kinds.resource_usage import CLAIMS_OF_CLASS, COUNT, DEVICES, NONE, REQUESTS, parsed
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
from manciple.controllers.coordination import CursorFollower, Tasks, looked_after, utc_now
from manciple.controllers.declaration import Controller, batches
from manciple.store import event_log, objects, sql
from manciple.store.hooks import Write
from manciple.store.objects import Writer, decoded, to_read
from manciple.store.records import EventRecord
from manciple.telemetry import metrics, traces
from manciple.telemetry.logs import about
from manciple.wire.base import RANDOM
from manciple.wire.errors import ApiError, Invalid, NotFound
from manciple.wire.identity import Identity, controller
from manciple.wire.resources import (
    CLAIMS,
    FINISHED_PHASES,
    NAMESPACES,
    NEW_PHASES,
    PODS,
    QUOTAS,
    TEMPLATES,
    Key,
    kind,
)
from manciple.wire.validation import claim_generate_name

#: The author of the writes (upstream: the service account of that name in kube-controller-manager).
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
#: Pods changed in one sweep.
MOST = 2000
#: Pods with refused claims that are retried at once when a quota has room.
RETRIED = 20
#: The task that follows this controller's own writes without being woken by them.
LOOKING: Tasks = frozenset({"sync_claims"})
#: The source of the controller's events, as upstream names it.
COMPONENT = "resource_claim"


#: Those of some pods whose claims are made with their placement, by uid.
Spared = Callable[[Collection[Pod]], Collection[str]]


def handle(records: Sequence[EventRecord], spared: Spared = lambda _pods: ()) -> int:
    """Sync the pods that `records` concern: new ones, owners of deleted claims, those that wait for a template or a
    quota.

    spared: the pods that are left alone.
    """
    keys, pods, quotas = list[Key](), dict[Key, Pod](), dict[Key, EventRecord]()
    freed = {one.namespace for one in records if one.resource == CLAIMS and one.type == "DELETED"}
    for namespace in {one.namespace for one in records if one.resource == TEMPLATES and one.type == "ADDED"}:
        keys += wanting(namespace)
    for one in event_log.with_documents(filter(_is_worth_reading, records)):
        if one.resource == QUOTAS:
            quotas[one.namespace, one.name] = one
        elif one.resource == CLAIMS:
            owner = controller_of(decoded(one, ResourceClaim).metadata)
            keys += [(one.namespace, owner[0])] if owner else []
        elif wants_attention(pod := decoded(one, Pod)):
            pods[pod.key] = pod
    left_alone = spared(pods.values()) if pods else ()
    keys += [key for key, pod in pods.items() if pod.metadata.uid not in left_alone]
    roomy = {
        one.namespace
        for one in quotas.values()
        if one.type == "DELETED" or leaves_room(decoded(one, ResourceQuota), freed=one.namespace in freed)
    }
    return sum(map(_retry, sorted(roomy))) + sync(keys, pods)


def sweep(now: datetime, *, most: float = MOST) -> int:  # noqa: ARG001 - every controller is swept at a time
    """Sync every pod that could lack a claim. Returns how many pods were changed, at most about `most`."""
    changed = 0
    for batch in batches(wanting(), BATCH):
        changed += sync(batch)
        if changed >= most:
            break
    return changed


def wanting(namespace: str = "") -> Iterator[Key]:
    """The pods that may lack a claim: of those without a node, and of those that are starting. Of pods that the index
    shows to have all that they need, however many there are, no document is read.
    """
    within = " AND p.namespace = %s" if namespace else ""
    keys = sql.fetch(f"{_LACKING}{within} ORDER BY p.namespace, p.name", [namespace] if namespace else [])
    for chunk in sql.chunks(keys, READ_AT_ONCE):
        pods = (decoded(stored, Pod) for stored in objects.get_many(POD, chunk))
        yield from (pod.key for pod in pods if wants_attention(pod))


def _one_of(phases: Iterable[str]) -> str:
    return f"({', '.join(repr(phase) for phase in sorted(phases))})"


#: The pods of which the index shows a template without a claim, or, on a node, a claim that is not reserved for them;
#: one that is reserved for their group is looked at by its document.
_LACKING = (
    f"SELECT p.namespace, p.name FROM claims_pod p WHERE NOT p.deleting AND p.phase NOT IN {_one_of(FINISHED_PHASES)} "  # noqa: S608 - constants only
    f"AND (p.node_name = '' OR p.phase IN {_one_of(NEW_PHASES)}) AND EXISTS ("
    "SELECT 1 FROM claims_podclaim c WHERE c.pod_id = p.uid AND ("
    "(c.claim = '' AND NOT EXISTS (SELECT 1 FROM claims_podclaim made "
    "WHERE made.pod_id = p.uid AND made.template = c.template AND made.claim <> '')) "
    "OR (c.claim <> '' AND p.node_name <> '' AND NOT EXISTS (SELECT 1 FROM claims_claim k "
    "JOIN claims_reservation r ON r.claim_id = k.uid "
    "WHERE k.namespace = c.namespace AND k.name = c.claim AND r.uid = p.uid))))"
)


def _is_worth_reading(record: EventRecord) -> bool:
    """Skip most changes of pods: of running ones, and those that these controllers have just written."""
    if record.resource != PODS:
        return record.resource == QUOTAS or (record.resource == CLAIMS and record.type == "DELETED")
    node, phase = record.fields.get("spec.nodeName"), record.fields.get("status.phase")
    runs = node and phase not in NEW_PHASES
    return record.type != "DELETED" and not runs and not looked_after.value.by(record.revision)


def leaves_room(quota: ResourceQuota, *, freed: bool) -> bool:
    """Whether claims that it refused may fit now. A quota that limits no claims keeps none away.

    freed: a claim went, so any limit that is not used up is worth a try; else none may be, or each claim that is made
    would retry those that are refused because of another limit.
    """
    used, hard = parsed(quota.status.used), parsed(quota.spec.hard)
    own, suffixes = (f"{COUNT}{CLAIMS}", RESOURCE_CLAIMS), (DEVICES, *CLAIMS_OF_CLASS[CLAIMS])
    limited = [key for key in hard if key.startswith(REQUESTS) or key.endswith(suffixes) or key in own]
    enough = any if freed else all
    return bool(limited) and enough(used.get(key, NONE) < hard[key] for key in limited)


def _retry(namespace: str) -> int:
    """Retry claims that may have been refused, a few pods at a time, until one is refused again."""
    changed = 0
    while keys := _refused(namespace):
        synced = sync(keys)
        changed += synced
        if synced < len(keys):
            break
    return changed


def _refused(namespace: str) -> list[Key]:
    """A few of the pods whose claims may have been refused, the oldest first."""
    without = models.Pod.objects.filter(namespace=namespace, node_name="", deleting=False, claim_names=[])
    keys = list(without.order_by("name").values_list("namespace", "name")[:READ_AT_ONCE])
    pods = (decoded(stored, Pod) for stored in objects.get_many(POD, keys))
    lacking = sorted(filter(wants_attention, pods), key=lambda pod: pod.metadata.creation_timestamp or "")
    return [pod.key for pod in lacking[:RETRIED]]


def wants_attention(pod: Pod) -> bool:
    """Whether a claim of `pod` may be missing, or a reservation, by the pod alone."""
    if not pod.spec.resource_claims or not is_active(pod):
        return False
    if pod.spec.node_name:
        return not pod.status.phase or pod.status.phase == "Pending"
    return any(reference.needed and reference.claim is None for reference in references(pod))


def sync(keys: Iterable[Key], known: Mapping[Key, Pod] = {}, *, looking: Tasks = LOOKING) -> int:
    """Create the missing claims of these pods. Returns how many pods were changed; none while the feature is off.

    known: pods that the caller has read; those that are still current are not read again.
    looking: the tasks that look at what is written without being woken.
    """
    if not gates.enabled(gates.DYNAMIC_RESOURCE_ALLOCATION):
        return 0
    return sum(_sync_batch(batch, known, looking) for batch in sql.chunks(dict.fromkeys(keys), BATCH))


def _sync_batch(keys: Sequence[Key], known: Mapping[Key, Pod], looking: Tasks) -> int:
    began = time.time()
    verdicts = ask_about(keys, IDENTITY)
    # The rules ask for the namespaces.
    reads = to_read((POD, keys), (kind(NAMESPACES), [("", namespace) for namespace, _ in keys]))
    reads |= {(PODS, *key): (POD, objects.known(POD, known[key])) for key in keys if key in known}
    with objects.writing(identity=IDENTITY, reads=reads) as writer, looked_after.value.noted(writer, looking):
        stored = (cast("Pod | None", writer.get(POD, *key)) for key in keys)
        pods = [pod for pod in stored if pod is not None and is_active(pod)]
        made_before = objects.dependents([pod.metadata.uid for pod in pods], RESOURCE_CLAIM)
        missing = [one for pod in pods for one in _missing(pod)]
        claims = [key for made in made_before.values() for key in made]
        claims += ((pod.metadata.namespace, name) for pod in pods for name in claim_names(pod))
        groups = (POD_GROUP, filter(None, map(_group_key, pods)))
        beside = to_read(
            (RESOURCE_CLAIM, claims), (RESOURCE_CLAIM_TEMPLATE, (template for _, template in missing)), groups
        )
        writer.draw_names(RESOURCE_CLAIM, [base for base, _ in missing], beside=beside)
        changed = [pod for pod in pods if _sync_pod(writer, pod, made_before.get(pod.metadata.uid, ()), verdicts)]
    if traces.recorder.value:
        for pod in changed:
            traces.tell(pod.metadata.uid, "make claims", began=began, attributes={"manciple.pods": len(pods)})
    return len(changed)


def is_active(pod: Pod) -> bool:
    """Whether the pod has not ended and is not being deleted."""
    return pod.metadata.deletion_timestamp is None and not is_done(pod)


def _missing(pod: Pod) -> Iterable[tuple[Key, Key]]:
    """(namespace, generateName) and template of the claims that are missing by the pod alone."""
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
        _complain(writer, pod, message, counted_as=message.replace(why.drawn_name, ""), cause=why.quota_used_up)
        return False
    except ApiError as error:
        _complain(writer, pod, error.message)
        return False


class _NotMade(Exception):
    """The claim of an entry of the pod could not be created."""

    def __init__(self, entry: str, error: ApiError) -> None:
        super().__init__(entry, error)
        self.entry, self.error = entry, error

    @property
    def quota_used_up(self) -> QuotaUsedUp | None:
        """The cause that pages explain; None for any other error."""
        if not isinstance(self.error, QuotaExceeded):
            return None
        _, quota, key, requested, used, hard = self.error.excess
        return QuotaUsedUp(quota=quota, key=key, requested=requested, used=used, hard=hard, entry=self.entry)

    @property
    def drawn_name(self) -> str:
        """The generated name of the refused claim, as the refusal quotes it; it differs in each attempt."""
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
    following = pod
    if made:
        statuses = [status for status in pod.status.resource_claim_statuses if status.name not in made]
        statuses += (PodResourceClaimStatus(name=entry, resource_claim_name=name) for entry, name in made.items())
        statuses.sort(key=lambda status: status.name)
        status = structs.replace(pod.status, resource_claim_statuses=tuple(statuses))
        following = structs.replace(pod, status=status)
        writer.update(POD, following, subresource="status")
    reserved = reserve(writer, following) if pod.spec.node_name else False
    return following is not pod or reserved


def _claim_to_record(
    writer: Writer, pod: Pod, entry: PodResourceClaim, owned: Sequence[Key], verdicts: Verdicts
) -> str:
    """The name of the claim that now serves `entry`; "" if the pod's status is right."""
    (reference,) = (reference for reference in references(pod) if reference.entry == entry.name)
    if not reference.needed:
        return ""
    if reference.claim is not None:
        claim = _claim(writer, pod, reference.claim)
        if claim is not None and is_for_pod(claim, pod):
            return ""
    group = _group_of(writer, pod)
    if group is not None and shares(group, entry):
        return made_claim(group, entry.name)  # the group's own controller creates it
    return _made_before(writer, pod, entry, owned) or _make(writer, pod, entry, verdicts)


def _group_of(writer: Writer, pod: Pod) -> PodGroup | None:
    """The group that may share claims with the pod."""
    key = _group_key(pod)
    return None if key is None else cast("PodGroup | None", writer.get(POD_GROUP, *key))


def _group_key(pod: Pod) -> Key | None:
    grouped = pod.spec.scheduling_group is not None and gates.enabled(CLAIMS_GATE)
    return (pod.metadata.namespace, group_name(pod)) if grouped else None


def _claim(writer: Writer, pod: Pod, name: str) -> ResourceClaim | None:
    return cast("ResourceClaim | None", writer.get(RESOURCE_CLAIM, pod.metadata.namespace, name))


def _made_before(writer: Writer, pod: Pod, entry: PodResourceClaim, owned: Sequence[Key]) -> str:
    """A claim created for this entry that the status does not name. Any claim may name the pod as its owner."""
    for key in owned:
        claim = cast("ResourceClaim | None", writer.get(RESOURCE_CLAIM, *key))
        if claim is None or not is_for_pod(claim, pod):
            continue
        if claim.metadata.annotations.get(POD_CLAIM_ANNOTATION) == entry.name:
            return claim.metadata.name
    return ""


def _make(writer: Writer, pod: Pod, entry: PodResourceClaim, verdicts: Verdicts) -> str:
    name = entry.resource_claim_template_name or ""
    template = cast("ResourceClaimTemplate | None", writer.get(RESOURCE_CLAIM_TEMPLATE, pod.metadata.namespace, name))
    if template is None:
        raise template_missing(name)
    return create(writer, verdicts.demand(pod, entry, template))


def template_missing(name: str) -> NotFound:
    """In the words of an informer, which uses the singular of the kind."""
    missing = NotFound.of(TEMPLATES.replace("templates.", "template.", 1), name)
    return NotFound(f'resource claim template "{name}": {missing.message}')


def create(writer: Writer, requested: ResourceClaim) -> str:
    """Write a claim generated from a template, under the name and uid that were drawn for it, if any. Returns its name.

    Raises: ApiError.
    """
    claim = RESOURCE_CLAIM.prepare_create(requested)
    admin_access = "true" if wants_admin_access(claim) else "false"
    try:
        if errors := RESOURCE_CLAIM.validate_create(claim):
            name = claim.metadata.name
            raise Invalid.of(kind=RESOURCE_CLAIM.kind, group=RESOURCE_CLAIM.group, name=name, errors=errors)
        name = writer.create(RESOURCE_CLAIM, claim, uid=claim.metadata.uid).metadata.name
    except ApiError:
        CREATE.inc()
        CREATE_FAILURES.inc()
        CREATES["failure", admin_access].inc()
        raise
    CREATE.inc()
    CREATES["success", admin_access].inc()
    return name


def reserve(writer: Writer, pod: Pod) -> bool:
    """Reserve the allocated claims of a bound pod for it."""
    changed, group = False, _group_of(writer, pod)
    for reference in references(pod):
        claim = _claim(writer, pod, reference.claim) if reference.claim else None
        if claim is None or claim.status.allocation is None or (following := reserved(claim, pod, group)) is claim:
            continue
        if can_be_reserved(claim) and (not reference.generated or is_for_pod(claim, pod)):
            writer.update(RESOURCE_CLAIM, following)
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
    in_mirror=False,
    reconcile=sweep,
    every=60,
    most_per_turn=MOST,
)


# Verdicts of admission policies and webhooks --------------------------------------------------------------------------

# A rule about claims cannot be evaded by a template and a pod: upstream the controller that creates such a claim is a
# client like any other. Here it writes in this process, so policies and webhooks are asked before its transaction, in
# its name (webhooks may be slow), and the transaction demands their verdict before it creates the claim. If none of
# them concerns new claims, this is one look-up, and no verdict is demanded.


#: Seconds of asking after which the rest waits for its next turn: a webhook that is down must not delay other pods.
PATIENCE = 5.0

#: (uid of a pod, name of its entry, revision of the template)
Asked = tuple[str, str, str]


class NotAsked(Exception):
    """There is no verdict on a claim: its template has changed, or the time was up. It is retried."""


@dataclass(frozen=True, slots=True)
class Verdicts:
    """said: each claim as policies and webhooks want it, or its refusal. None: none of them concerns claims."""

    said: Mapping[Asked, ResourceClaim | ApiError] | None

    def demand(self, pod: Pod, entry: PodResourceClaim, template: ResourceClaimTemplate) -> ResourceClaim:
        """The claim to be made. Raises: ApiError, the refusal of a policy or webhook; NotAsked."""
        if self.said is None:
            return claim_for(pod, entry, template)
        question = _question(pod, entry, template)
        if question not in self.said:
            raise NotAsked(entry.name)
        answer = self.said[question]
        if isinstance(answer, ApiError):
            raise answer
        return answer


def ask_about(keys: Sequence[Key], identity: Identity) -> Verdicts:
    """Ask about every claim that these pods lack, one after the other; in another order of pods each time, so that the
    same pods are not late again and again.
    """
    if not concerned(identity):
        return Verdicts(None)
    said: dict[Asked, ResourceClaim | ApiError] = {}
    until = time.monotonic() + PATIENCE
    for pod, entry, template in wanted_claims(RANDOM.value.sample(keys, len(keys))):
        if time.monotonic() > until:
            break
        said[_question(pod, entry, template)] = admitted(claim_for(pod, entry, template), identity)
    return Verdicts(said)


def concerned(identity: Identity = IDENTITY) -> door.Concerned:
    """The policies and webhooks that new claims concern."""
    return door.concerned(Write(operation="CREATE", kind=RESOURCE_CLAIM, identity=identity, verb="create"))


def _question(pod: Pod, entry: PodResourceClaim, template: ResourceClaimTemplate) -> Asked:
    return pod.metadata.uid, entry.name, template.metadata.resource_version


def admitted(claim: ResourceClaim, identity: Identity) -> ResourceClaim | ApiError:
    """The claim as policies and webhooks want it, or their refusal."""
    prepare = RESOURCE_CLAIM.prepare_create
    write = Write(operation="CREATE", kind=RESOURCE_CLAIM, new=prepare(claim), identity=identity, verb="create")
    try:
        new = door.mutate(write, prepare)
        door.check(structs.replace(write, new=new))
    except ApiError as error:
        return error
    return claim if new is write.new else cast("ResourceClaim", new)


def wanted_claims(keys: Sequence[Key]) -> Iterator[tuple[Pod, PodResourceClaim, ResourceClaimTemplate]]:
    """Each entry that lacks its claim, with the template that it names, as far as that exists; pods as in `keys`."""
    stored_pods = {(stored.namespace, stored.name): stored for stored in objects.get_many(POD, keys)}
    pods = [decoded(stored_pods[key], Pod) for key in keys if key in stored_pods]
    recorded = [(pod.metadata.namespace, name) for pod in pods for name in claim_names(pod)]
    living = {(stored.namespace, stored.name) for stored in objects.get_many(RESOURCE_CLAIM, recorded)}
    lacking = [(pod, entry) for pod in pods if not is_done(pod) for entry in _lacking(pod, living)]
    named = {(pod.metadata.namespace, entry.resource_claim_template_name or "") for pod, entry in lacking}
    found = (decoded(stored, ResourceClaimTemplate) for stored in objects.get_many(RESOURCE_CLAIM_TEMPLATE, named))
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
