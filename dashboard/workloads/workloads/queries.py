"""Reads workloads: the rows of the list, and of one workload its pods, its revisions and why it waits."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Case, CharField, Count, F, IntegerField, OuterRef, Q, QuerySet, Subquery, Value, When
from django.db.models.functions import Coalesce

from claims.causes.causes import decode
from claims.causes.messages import brief
from claims.models import AllocatedDevice, Pod, Reservation
from claims.pod_troubles import NOT_READY
from dashboard.kit.differences import DiffLine, difference, dump
from dashboard.kit.lists import ListColumn, ListQuery, Natural, parameter
from dashboard.kit.previews import Link
from dashboard.templatetags.kit import counted, device_url
from dashboard.workloads.owners import WORDS
from dashboard.workloads.pods.queries import HELD, IS_WAITING, PodLine, read_lines
from dashboard.workloads.workloads.refusals import last_refusals
from insight.start_estimates import end_of, never_started
from manciple.durations import moment
from manciple.people import Person
from manciple.store import objects
from manciple.store.objects import decoded
from manciple.wire import codec
from manciple.wire.resources import FINISHED_PHASES
from scheduling.models import QueuedPod
from workloads.kinds import cron_schedules
from workloads.kinds.controller_revisions import CONTROLLER_REVISION, ControllerRevision
from workloads.kinds.cron_schedules import BadSchedule
from workloads.kinds.replica_sets import REPLICA_SET, ReplicaSet
from workloads.kinds.summaries import SUMMARIES, State, meaning
from workloads.kinds.templates import without_label
from workloads.models import Workload
from workloads.rollouts import HASH, revision_of

#: `Deployment` -> `deployments.apps`, of the kinds that the list has
RESOURCES: Mapping[str, str] = {WORDS[resource]: resource for resource in SUMMARIES}
#: state -> its icon
ICONS: Mapping[str, str] = {
    State.STUCK: "i-alert",
    State.FAILED: "i-alert",
    State.UPDATING: "i-time",
    State.UNREADY: "i-alert",
    State.STARTING: "i-wait",
    State.RUNNING: "i-ok",
    State.READY: "i-ok",
    State.PAUSED: "i-time",
    State.SUSPENDED: "i-time",
    State.SCHEDULED: "i-time",
    State.EMPTY: "i-x",
    State.COMPLETE: "i-ok",
    State.DELETING: "i-x",
}
#: States in which something may be wrong with its pods; of a CronJob, with those of its Jobs.
UNSETTLED = (State.STUCK, State.UPDATING, State.UNREADY, State.STARTING, State.RUNNING, State.SCHEDULED)

_BY_STATE = Case(
    *(When(state=state, then=Value(place)) for place, state in enumerate(State)), output_field=IntegerField()
)


def _of_own_pods() -> QuerySet[Pod]:
    """The pods that the row of an outer query controls, two queries further in."""
    return Pod.objects.filter(controller_uid=OuterRef(OuterRef("uid")))


def _of_sets_pods() -> QuerySet[Pod]:
    """The same of what it controls: of a Deployment its ReplicaSets' pods."""
    controlled = Workload.objects.filter(controller_uid=OuterRef(OuterRef(OuterRef("uid")))).values("uid")
    return Pod.objects.filter(controller_uid__in=controlled)


def _held(pods: QuerySet[Pod]) -> Coalesce:
    reserved = Reservation.objects.filter(uid__in=pods.values("uid")).order_by().annotate(one=Value(1)).values("one")
    number = reserved.annotate(held=HELD).values("held")
    return Coalesce(Subquery(number, output_field=IntegerField()), 0)


#: The same as subqueries of that row.
_OWN_PODS = Pod.objects.filter(controller_uid=OuterRef("uid"))
_SETS_PODS = Pod.objects.filter(
    controller_uid__in=Workload.objects.filter(controller_uid=OuterRef(OuterRef("uid"))).values("uid")
)


def _waiting(pods: QuerySet[Pod]) -> Coalesce:
    """How many of them wait."""
    found = pods.filter(IS_WAITING).order_by().annotate(one=Value(1)).values("one")
    return Coalesce(Subquery(found.annotate(number=Count("uid")).values("number"), output_field=IntegerField()), 0)


def _trouble(pods: QuerySet[Pod], column: str) -> Subquery:
    """Of the trouble that most of the pods have: the text (`trouble`), or how many have it (`number`)."""
    groups = pods.exclude(trouble="").order_by().values("trouble").annotate(number=Count("uid"))
    return Subquery(groups.order_by("-number", "trouble").values(column)[:1])


def _cause(pods: QuerySet[Pod]) -> Subquery:
    queued = QueuedPod.objects.filter(uid__in=pods.filter(IS_WAITING).values("uid")).exclude(cause="")
    return Subquery(queued.values("cause")[:1], output_field=CharField())


#: Devices that its pods' claims hold.
_DEVICES = _held(_of_own_pods()) + _held(_of_sets_pods())
#: Why one of its waiting pods waits.
_CAUSE = Coalesce(_cause(_of_own_pods()), _cause(_of_sets_pods()), Value(""))
#: What its row says of its pods.
_OF_PODS: Mapping[str, Any] = {
    "devices": _DEVICES,
    "cause": _CAUSE,
    "waiting": _waiting(_OWN_PODS) + _waiting(_SETS_PODS),
    "trouble": Coalesce(_trouble(_OWN_PODS, "trouble"), _trouble(_SETS_PODS, "trouble"), Value("")),
    "troubled": Coalesce(_trouble(_OWN_PODS, "number"), _trouble(_SETS_PODS, "number"), 0),
}
#: `sort` in the address -> what the database sorts by
_ORDERS: Mapping[str, Any] = {
    "name": Natural("name"),
    "namespace": F("namespace"),
    "kind": F("resource"),
    "state": _BY_STATE,
    "ready": F("ready"),
    "devices": _DEVICES,
    "age": F("created_at"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadQuery(ListQuery):
    """The filters of the list, and its order: what needs somebody comes first."""

    namespace: str = parameter("ns")
    state: str = parameter("state", known=tuple(State))
    kind: str = parameter("kind", known=RESOURCES)
    text: str = parameter("q")  # a part of the name

    def in_every_state(self, rows: QuerySet[Workload]) -> QuerySet[Workload]:
        """A Deployment stands for its ReplicaSets, unless these are asked for."""
        wanted = {"namespace": self.namespace, "resource": RESOURCES.get(self.kind, ""), "name__contains": self.text}
        rows = rows.filter(**{name: value for name, value in wanted.items() if value})
        return rows if self.kind else rows.exclude(Q(resource=REPLICA_SET.resource) & ~Q(controller_uid=""))

    def in_order(self, rows: QuerySet[Workload]) -> QuerySet[Workload]:
        if self.state:
            rows = rows.filter(state=self.state)
        order = _ORDERS.get(self.sort.removeprefix("-"))
        if order is None:
            return rows.order_by(_BY_STATE, "-created_at", "namespace", "name", "resource")
        first = order.desc() if self.sort.startswith("-") else order.asc()
        return rows.order_by(first, "namespace", "name", "resource")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadLine:
    """One row of the list. why: it is stuck, or one of its pods waits; "" where all is well."""

    row: Workload
    devices: int
    why: str

    @property
    def kind(self) -> str:
        return WORDS[self.row.resource]

    @property
    def icon(self) -> str:
        return ICONS.get(self.row.state, "i-pod")

    @property
    def counted(self) -> str:
        """`2/3`; of a Job, completions; of a CronJob, Jobs that run."""
        if self.kind == "CronJob":
            return f"{self.row.ready:,}"
        return f"{self.row.ready:,}/{self.row.wanted:,}"


COLUMNS = (
    ListColumn[WorkloadLine](title="Workload", sort="name", text=lambda line: line.row.name),
    ListColumn[WorkloadLine](title="Kind", sort="kind", text=lambda line: line.kind),
    ListColumn[WorkloadLine](title="Namespace", sort="namespace", text=lambda line: line.row.namespace),
    ListColumn[WorkloadLine](title="State", sort="state", text=lambda line: line.row.state),
    ListColumn[WorkloadLine](title="Ready", css="num", sort="ready", text=lambda line: line.counted),
    ListColumn[WorkloadLine](title="Devices", css="num", sort="devices", text=lambda line: line.devices),
    ListColumn[WorkloadLine](
        title="Age", css="num", sort="age", text=lambda line: f"{line.row.created_at:%Y-%m-%dT%H:%M:%SZ}"
    ),
    ListColumn[WorkloadLine](title="Why not ready", text=lambda line: line.why.replace("`", "")),
)


def read_workloads(rows: QuerySet[Workload]) -> Iterator[WorkloadLine]:
    """Four queries, and more where pods are refused or time limits ran out. rows: in their order, sliced."""
    uids = list(rows.values_list("uid", flat=True))
    found: dict[str, Any] = {row.uid: row for row in Workload.objects.filter(uid__in=uids).annotate(**_OF_PODS)}
    unsettled = [uid for uid, row in found.items() if row.state in UNSETTLED]
    refusals = last_refusals(unsettled) if unsettled else {}
    waited = never_started(found.values())
    for uid in uids:
        if (row := found.get(uid)) is not None:
            why = waited.get(uid) or why_not_ready(row, refusals.get(uid, ""))
            yield WorkloadLine(row=row, devices=row.devices, why=why)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What is wrong with `number` pods, as a sentence. waits: they wait for a node. refused: they are not created. pod:
    (uid, namespace, name) of one of them. lost: its node, if that is unreachable.
    """

    number: int
    text: str
    waits: bool = False
    refused: bool = False
    pod: tuple[str, str, str] | None = None
    lost: str = ""

    @property
    def sentence(self) -> str:
        """With their number; `3 pods: ...`, `1 pod waits: ...`."""
        if self.refused:
            return self.text
        words = ("pod waits", "pods wait") if self.waits else ("pod", "pods")
        return f"{counted(self.number, *words)}: {self.text}"

    @property
    def alone(self) -> str:
        """Of a workload of one pod."""
        return f"Waits: {self.text}" if self.waits else self.text


def worst_first(problems: Iterable[Problem]) -> list[Problem]:
    """What fails, waits or is refused comes before what runs and is not ready, then what most pods have."""
    return sorted(problems, key=lambda one: (one.text.startswith(NOT_READY), -one.number, one.text))


def why_not_ready(row: Any, refusal: str) -> str:
    """What is wrong with most of its pods, or else what its conditions say. refusal: of its next pod."""
    if row.state not in UNSETTLED:
        return str(row.reason)
    found = [Problem(number=row.troubled, text=row.trouble)] if row.trouble else []
    if row.cause and row.waiting:
        cause = brief(decode(row.cause), names_claim=False)
        found.append(Problem(number=row.waiting, text=cause, waits=True))
    if refusal:
        found.append(Problem(number=max(row.wanted - row.ready, 1), text=refusal, refused=True))
    if not found:
        return str(row.reason)
    worst = worst_first(found)[0]
    return worst.sentence if row.wanted > 1 else worst.alone


def workload_states(person: Person, namespace: str) -> list[tuple[str, int]]:
    """(state, how many) of the workloads of a namespace that the person may list, in the order of the tabs."""
    query = WorkloadQuery(namespace=namespace)
    rows = query.in_every_state(Workload.objects.restrict(person)).order_by()
    counts: dict[str, int] = dict(rows.values_list("state").annotate(Count("pk")))
    return [(state.value, counts[state]) for state in State if counts.get(state)]


# One workload --------------------------------------------------------------------------------------------------------


#: Pods that a workload's page lists, and devices of each that it names.
SHOWN, NAMED = 50, 4
#: Coming runs of a CronJob that its page lists.
NEXT_RUNS = 5


def pods_of(uid: str) -> QuerySet[Pod]:
    """Those of what it controls among them."""
    makers = [uid, *Workload.objects.filter(controller_uid=uid).values_list("uid", flat=True)]
    return Pod.objects.filter(controller_uid__in=makers)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedPod:
    """One of its pods. devices: those that it names; more: how many it holds besides."""

    line: PodLine
    devices: Sequence[Link]
    more: int


def read_pods(pods: QuerySet[Pod], unreachable: Collection[str], person: Person) -> list[OwnedPod]:
    """The first `SHOWN`: what waits, then what runs, the oldest first. unreachable: nodes."""
    waits = Case(When(IS_WAITING, then=0), When(phase__in=FINISHED_PHASES, then=2), default=1)
    rows = list(pods.order_by(waits, Natural("name"))[:SHOWN])
    lines = read_lines(rows, unreachable, person)
    reserved = Reservation.objects.filter(uid__in=[line.uid for line in lines if line.devices])
    claims: dict[str, str] = dict(reserved.values_list("claim_id", "uid"))
    named: dict[str, list[Link]] = {}
    held = AllocatedDevice.objects.filter(claim__in=claims, admin_access=False).order_by("pool", "device")
    for claim, driver, pool, device, node in held.values_list("claim_id", "driver", "pool", "device", "node")[
        : SHOWN * NAMED * NAMED
    ]:
        devices = named.setdefault(claims[claim], [])
        if len(devices) < NAMED:
            devices.append((device, device_url(driver, pool, device, node)))
    return [
        OwnedPod(line=line, devices=(own := named.get(line.uid, [])), more=max(line.devices - len(own), 0))
        for line in lines
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProgress:
    """How far a Job is. completions: None where any success is enough. indexes: such as "0,2-4", of an Indexed Job.

    limit: seconds, None for none; ends_at: when it is stopped at the latest; left: seconds until then.
    """

    completions: int | None
    parallelism: int
    succeeded: int
    failed: int
    active: int
    succeeded_indexes: str
    failed_indexes: str
    started_at: datetime | None
    limit: int | None
    ends_at: datetime | None
    left: float | None

    @property
    def parts(self) -> list[tuple[str, str, int]]:
        """Of a bar: (mark, word, pods)."""
        rest = max((self.completions or 1) - self.succeeded - self.active, 0)
        parts = [
            ("alloc", "succeeded", self.succeeded),
            ("prep", "running or waiting", self.active),
            ("bad", "failed", self.failed),
            ("free", "to come", rest),
        ]
        return [part for part in parts if part[-1]]


def read_progress(job: Any, now: datetime) -> JobProgress | None:
    """None of what is no Job."""
    if job.kind != "Job":
        return None
    spec, status = job.spec, job.status
    started, limit = moment(status.start_time), spec.active_deadline_seconds
    ends_at = None if status.is_finished else end_of(started, limit)
    return JobProgress(
        completions=spec.completions,
        parallelism=spec.parallelism or 0,
        succeeded=status.succeeded,
        failed=status.failed,
        active=status.active,
        succeeded_indexes=status.completed_indexes,
        failed_indexes=status.failed_indexes or "",
        started_at=started,
        limit=limit,
        ends_at=ends_at,
        left=(ends_at - now).total_seconds() if ends_at else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CronRuns:
    """When a CronJob makes its Jobs. following: the next times, the soonest first; none while it is suspended."""

    schedule: str
    zone: str
    last: datetime | None
    last_success: datetime | None
    following: Sequence[datetime]


def read_runs(cron_job: Any, now: datetime) -> CronRuns | None:
    """None of what is no CronJob."""
    if cron_job.kind != "CronJob":
        return None
    spec, status = cron_job.spec, cron_job.status
    following = list[datetime]()
    if not spec.suspend:
        last = moment(status.last_schedule_time) or moment(cron_job.metadata.creation_timestamp) or now
        try:
            schedule = cron_schedules.parse(spec.schedule, spec.time_zone or "")
            at = cron_schedules.next_due(schedule, last, now)
        except BadSchedule:
            at = None
        while at is not None and len(following) < NEXT_RUNS:
            following.append(at)
            at = schedule.next(at)
    return CronRuns(
        schedule=spec.schedule,
        zone=spec.time_zone or "UTC",
        last=moment(status.last_schedule_time),
        last_success=moment(status.last_successful_time),
        following=following,
    )


def read_children(workload: Any, person: Person) -> list[WorkloadLine]:
    """The newest Jobs of a CronJob."""
    if workload.kind != "CronJob":
        return []
    rows = Workload.objects.restrict(person).filter(controller_uid=workload.metadata.uid)
    return list(read_workloads(rows.order_by("-created_at")[:SHOWN]))


@dataclass(frozen=True, slots=True, kw_only=True)
class RevisionLine:
    """A template that it has had. number: of the revision; cause: what somebody noted of it; ready, wanted: pods, of a
    Deployment; lines: how it differs from the one before; current: it has this template now.
    """

    number: int
    name: str
    created: str | None
    template: Any
    cause: str
    lines: Sequence[DiffLine]
    current: bool
    ready: int | None = None
    wanted: int | None = None


#: Revisions that are shown.
MOST_REVISIONS = 20
CHANGE_CAUSE = "kubernetes.io/change-cause"
#: Kinds whose past templates are kept.
REVISED = frozenset({"Deployment", "DaemonSet", "StatefulSet"})


def read_revisions(workload: Any) -> list[RevisionLine]:
    """The newest first; of a kind without revisions none."""
    if workload.kind not in REVISED:
        return []
    kept = sorted(_of_sets(workload) if workload.kind == "Deployment" else _of_kept(workload), key=lambda one: one[0])
    now = codec.to_builtins(workload.spec.template)
    lines = list[RevisionLine]()
    before: Any = None
    for number, keeper, template in kept[-MOST_REVISIONS:]:
        is_set = isinstance(keeper, ReplicaSet)
        lines.append(
            RevisionLine(
                number=number,
                name=keeper.metadata.name,
                created=keeper.metadata.creation_timestamp,
                template=template,
                cause=keeper.metadata.annotations.get(CHANGE_CAUSE, ""),
                lines=difference(dump(before), dump(template)) if before is not None else (),
                current=template == now,
                ready=keeper.status.ready_replicas if is_set else None,
                wanted=(keeper.spec.replicas or 0) if is_set else None,
            )
        )
        before = template
    return lines[::-1]


#: (revision, the object that keeps it, its template as a document)
_Kept = tuple[int, Any, dict[str, Any]]


def _of_sets(deployment: Any) -> Iterator[_Kept]:
    rows = Workload.objects.filter(controller_uid=deployment.metadata.uid, resource=REPLICA_SET.resource)
    keys = list(rows.order_by("-created_at").values_list("namespace", "name")[: 2 * MOST_REVISIONS])
    for stored in objects.get_many(REPLICA_SET, keys):
        one = decoded(stored, ReplicaSet)
        yield revision_of(one.metadata.annotations), one, codec.to_builtins(without_label(one.spec.template, HASH))


def _of_kept(workload: Any) -> Iterator[_Kept]:
    """Its ControllerRevisions. What is in them clients may have written."""
    owner = Workload.objects.filter(uid=workload.metadata.uid).values("uid")
    keys = objects.controlled_by(owner, CONTROLLER_REVISION)[: 2 * MOST_REVISIONS]
    for stored in objects.get_many(CONTROLLER_REVISION, keys):
        one = decoded(stored, ControllerRevision)
        spec = one.data.get("spec") if isinstance(one.data, dict) else None
        template = spec.get("template") if isinstance(spec, dict) else None
        if isinstance(template, dict):
            yield one.revision, one, {name: value for name, value in template.items() if name != "$patch"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionLine:
    """word: what it is about; text: what it says; good: whether that is as it should be."""

    word: str
    text: str
    since: str | None
    good: bool


#: type -> (what it is about, the status when all is well)
_CONDITIONS: Mapping[str, tuple[str, str]] = {
    "Available": ("Availability", "True"),
    "Progressing": ("Update", "True"),
    "ReplicaFailure": ("Making pods", "False"),
    "Complete": ("End", "True"),
    "Failed": ("End", "False"),
    "Suspended": ("Suspension", "False"),
    "SuccessCriteriaMet": ("Success", "True"),
    "FailureTarget": ("Failure", "False"),
}


#: Conditions that announce an end, and the one that replaces them once it has come.
_ANNOUNCED: Mapping[str, str] = {"SuccessCriteriaMet": "Complete", "FailureTarget": "Failed"}


def condition_lines(workload: Any) -> list[ConditionLine]:
    lines = []
    conditions = getattr(workload.status, "conditions", ())
    true = {one.type for one in conditions if one.status == "True"}
    for one in conditions:
        if _ANNOUNCED.get(one.type) in true:
            continue
        word, good = _CONDITIONS.get(one.type, (one.type, one.status))
        text = meaning(one) or f"{one.type} is {one.status.lower()}."
        lines.append(ConditionLine(word=word, text=text, since=one.last_transition_time, good=one.status == good))
    return lines
