"""What to do about a pod or a claim that waits: steps that were rehearsed, the same for every page and for the API.

    advice = advice_of(explain_pod(namespace, name))
    advice.steps       # what would start it, or what has to be done first: the first is the one to take
    advice.sentence()  # the first step with what follows; without one, what only people outside can do

A step is shown only after the code that schedules has taken it on a copy of the state: a repair in the cluster
(`scheduling.rehearsal.repairs`), other requests (`insight.offers`), a class that is missing or does not have the name
of an extended resource yet, higher limits of a quota, pods that have to end first, one more node. What cannot be
imagined, such as a driver that is to be started, is told as a fact about its cause (`claims.causes.next_steps`).

Answers are kept while nothing changes; a page with many pods may use an older one for a moment (`advise_within`).
"""

from __future__ import annotations

import math
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial

from django.db import connections
from msgspec import structs

from claims.causes.causes import (
    AnyCause,
    ClaimNotCreated,
    ClaimNotFound,
    ClassMissing,
    Gated,
    NodeRefusal,
    NoNodeFits,
    OfOthers,
    QuotaUsedUp,
)
from claims.causes.next_steps import NO_SINGLE_CHANGE, NOT_REHEARSED, UNKNOWN, outside
from claims.devices.cache import read_devices
from claims.kinds.pods import Pod
from claims.kinds.quotas import ResourceQuota
from claims.kinds.resource_claims import ResourceClaim
from claims.models import Pod as PodRow
from claims.models import PodClaim
from claims.pod_claims import claim_names, has_group, is_done
from insight.offers import BUDGET, COUNTED, Busy, offers, rehearsing
from inventory.kinds.devices import DeviceClass, DeviceClassSpec
from manciple.gaps import Gap, gaps, lacking
from manciple.per_process import PerProcess
from manciple.store import objects
from manciple.store.event_log import latest_revision
from manciple.store.objects import decoded
from manciple.wire.base import ObjectMeta
from manciple.wire.errors import ApiError, NotFound
from manciple.wire.limits import TimeLimitExceeded
from manciple.wire.resources import CLAIMS, CLASSES, FINISHED_PHASES, PODS, QUOTAS, TEMPLATES, kind
from scheduling.allocator import Deadline
from scheduling.allocator.outcome import DeviceSet
from scheduling.cycle.gangs import need_of
from scheduling.judgement import TO_REHEARSE, lacking_for
from scheduling.models import QueuedPod
from scheduling.queue.verdicts import Placement
from scheduling.rehearsal.decisions import WaitingPods
from scheduling.rehearsal.departures import queue_order
from scheduling.rehearsal.explanations import Apart, Explanation, NodeReport, Report, cluster, explain_pod
from scheduling.rehearsal.quota_refusals import RaisedLimit, limit_on_new, raises_for, with_limits
from scheduling.rehearsal.rehearsal import Rehearsal
from scheduling.rehearsal.repairs import (
    SMALL,
    ClosedNode,
    ForgottenClaim,
    IncompletePool,
    Mended,
    TaintedDevices,
    TaintingRule,
    Trouble,
    known_mendings,
    read_mendings,
)
from scheduling.rehearsal.simulation import shape_of
from scheduling.rehearsal.workload import Changes, Workload, asked_of, known_claim, of_claim, of_pod, spoken
from scheduling.state.cluster import ClusterState

#: Nodes whose pods are imagined gone; classes that are imagined to serve a resource; pods that a sentence names.
NODES_TRIED, CLASSES_TRIED, NAMED = 12, 12, 3
#: Pods that wait before it, and are served before it in what is imagined.
AHEAD = 100
#: Subjects whose advice is kept.
REMEMBERED = 128


# What a step does -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Request:
    """The pod is created again with other requests."""

    changes: Changes


@dataclass(frozen=True, slots=True)
class Repair:
    trouble: Trouble


@dataclass(frozen=True, slots=True)
class CreateClass:
    """A class that the pod names. What it selects is for its author to say; it was rehearsed with every device."""

    name: str


@dataclass(frozen=True, slots=True)
class CreateClaim:
    """A claim that the pod names, or (`template`) the template of one."""

    namespace: str
    name: str
    template: bool = False


@dataclass(frozen=True, slots=True)
class ServeResource:
    """The class gets the name of the extended resource."""

    device_class: str
    resource: str


@dataclass(frozen=True, slots=True)
class RaiseQuota:
    namespace: str
    limits: tuple[RaisedLimit, ...]


@dataclass(frozen=True, slots=True)
class RemoveGates:
    """The pod's scheduling gates, which are others' reasons to wait: each by its name."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Await:
    """These pods on `node` have to end, and these claims, which no pod uses, to be released. (namespace, name)."""

    node: str
    pods: tuple[tuple[str, str], ...]
    claims: tuple[tuple[str, str], ...] = ()
    devices: int = 0


@dataclass(frozen=True, slots=True)
class AddNode:
    """One more node like this one."""

    like: str


Act = Request | Repair | CreateClass | CreateClaim | ServeResource | RaiseQuota | RemoveGates | Await | AddNode


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """node: where the subject starts after `act`; "" where it does not start by that alone (`then` says why).

    fits: as many like it would start, counted up to `COUNTED`.
    """

    act: Act
    node: str = ""
    fits: int = 0
    then: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is advised about. uid: of a pod in the queue, ""; report: where the explanation has one."""

    namespace: str
    workload: Workload | None
    cause: AnyCause | None
    report: Report | None = None
    pod: Pod | None = None
    key: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """steps: those by which it starts before those that alone do not do. outside: what else is to be said."""

    subject: Subject | None = None
    steps: tuple[Step, ...] = ()
    outside: str = ""

    @property
    def claims(self) -> Mapping[str, ResourceClaim]:
        return self.subject.workload.claims if self.subject and self.subject.workload else {}

    def sentence(self, sees: Callable[[str], bool] = lambda _namespace: True) -> str:
        """The next step, for somebody who sees these namespaces."""
        for step in self.steps:
            return f"{told(step, self.claims, sees)}: {follows(step)}."
        return self.outside


NONE = Advice()


# In words ------------------------------------------------------------------------------------------------------------


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _joined(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def told(step: Step, claims: Mapping[str, ResourceClaim], sees: Callable[[str], bool]) -> str:
    """What is to be done, without a final stop."""
    match step.act:
        case Request(changes=changes):
            words = _as_request(changes, claims)
        case Repair(trouble=trouble):
            words = words_of(trouble, sees)[1]
        case CreateClass(name=name):
            words = f"Create class `{name}` for such devices"
        case CreateClaim():
            words = f"Create {_named(step.act)}"
        case ServeResource(device_class=device_class, resource=resource):
            words = f"Let class `{device_class}` serve `{resource}`"
        case RaiseQuota(limits=limits):
            words = f"Raise {_joined([f'`{one.key}` of quota `{one.quota}` to {one.to}' for one in limits])}"
        case RemoveGates(names=names):
            what = f"gate{'s' if len(names) > 1 else ''} {_joined([f'`{name}`' for name in names])}"
            words = f"Remove {what if names else 'the gates'} from `spec.schedulingGates`"
        case Await():
            words = _awaited(step.act, sees)
        case AddNode(like=node):
            words = f"Add a node like `{node}`"
    return words


def _as_request(changes: Changes, claims: Mapping[str, ResourceClaim]) -> str:
    words = in_words(changes, claims)
    if changes.counts:
        return f"Ask for {words.removeprefix('with ')}"
    if changes.classes or changes.attributes:
        return f"Use {words.removeprefix('with ')}"
    return f"{words[:1].upper()}{words[1:]}"


def in_words(changes: Changes, claims: Mapping[str, ResourceClaim]) -> str:
    """`without selector 2, with class `h100``. claims: of several requests in them, each change names its own."""
    several = sum(len(list(asked_of(claim, entry))) for entry, claim in claims.items()) > 1

    def of(key: str) -> str:
        return f" of request `{key.partition('/')[2]}`" if several else ""

    def constraint(entry: str, index: int) -> str:
        constraints = claims[entry].spec.devices.constraints if entry in claims else ()
        if index >= len(constraints):
            return f"constraint {index + 1}"
        one = constraints[index]
        return f"the constraint on `{one.match_attribute or one.distinct_attribute}`"

    tolerated = ("devices",) * changes.tolerate_devices + ("nodes",) * changes.tolerate_nodes
    return _joined(
        [
            *(f"without selector {index + 1}{of(key)}" for key, index in sorted(changes.without)),
            *(f"without {constraint(entry, index)}" for entry, index in sorted(changes.unconstrained)),
            *(f"with attribute `{name}` in {constraint(*key)}" for key, name in sorted(changes.attributes.items())),
            *(f"with class `{name}`{of(key)}" for key, name in sorted(changes.classes.items())),
            *(f"with {_counted(count, 'device')}{of(key)}" for key, count in sorted(changes.counts.items())),
            *([f"tolerating every taint of {' and '.join(tolerated)}"] if tolerated else []),
            *(["without its node selector and affinity"] if changes.anywhere else []),
        ]
    )


def _awaited(act: Await, sees: Callable[[str], bool]) -> str:
    seen = [f"`{namespace}/{name}`" for namespace, name in act.pods if sees(namespace)]
    named = seen[:NAMED]
    if more := len(act.pods) - len(named):
        named.append(_counted(more, "other pod") if named else _counted(more, "pod"))
    parts = [f"{_joined(named)} on `{act.node}` {'ends' if len(act.pods) == 1 else 'end'}"] if act.pods else []
    if act.claims:
        claims = [f"`{namespace}/{name}`" for namespace, name in act.claims if sees(namespace)][:NAMED]
        which = f"claim {_joined(claims)}" if claims else _counted(len(act.claims), "claim")
        parts.append(f"{which}, which no pod uses, {'is' if len(act.claims) == 1 else 'are'} released")
    held = f" ({_counted(act.devices, 'device')})" if act.devices else ""
    return f"Wait until {_joined(parts)}{held}"


def _named(act: CreateClaim) -> str:
    return f"{'template' if act.template else 'claim'} `{act.name}`"


def follows(step: Step) -> str:
    """What was found to happen then."""
    if not step.node:
        return step.then
    more = ""
    if step.fits > 1:
        more = f", {step.fits}{' or more' if step.fits >= COUNTED else ''} like it fit"
    node = spoken(step.node) if isinstance(step.act, AddNode) else f"`{step.node}`"
    return f"starts on {node}{more}"


def words_of(trouble: Trouble, sees: Callable[[str], bool]) -> tuple[str, str]:
    """(what is wrong, what to do)."""
    match trouble:
        case IncompletePool(driver=driver, node=node):
            lacks = trouble.expected - trouble.seen
            title = f"Pool `{trouble.pool}` is "
            many = _counted(abs(lacks), "slice")
            title += f"{many} short" if lacks > 0 else f"published with {many} too many"
            whole = f"then {_counted(trouble.devices, 'device')} can be allocated again"
            step = f"Restart driver `{driver}`{f' on `{node}`' if node else ''}; {whole}"
        case TaintedDevices(devices=count):
            are, them = ("is", "it") if count == 1 else ("are", "them")
            value = f"={trouble.value}" if trouble.value else ""
            title = f"tainted by the driver (`{trouble.taint}{value}`)"
            step = f"End what keeps {them} away, or tolerate the taint"
            if trouble.unhealthy:
                title = f"unhealthy (`{trouble.taint}`)"
                step = f"Repair or replace {them}; the driver then removes the taint"
            title = f"{_counted(count, 'device')} {are} {title}"
        case TaintingRule(name=name):
            title = f"Rule `{name}` taints devices (`{trouble.taint}`)"
            step = f"Delete rule `{name}` once it is no longer needed"
        case ClosedNode(node=node):
            title = f"Node `{node}` {'is cordoned' if trouble.cordoned else 'does not report'}"
            step = f"Uncordon node `{node}`" if trouble.cordoned else f"Bring node `{node}` back"
        case ForgottenClaim(namespace=namespace, claim=claim):
            held = f"holds {_counted(trouble.devices, 'device')} that nobody uses"
            title = f"Claim `{namespace}/{claim}` {held}" if sees(namespace) else f"A claim of another namespace {held}"
            step = f"Release claim `{namespace}/{claim}`" if sees(namespace) else "Ask an administrator to release it"
    return title, step


# What is advised -----------------------------------------------------------------------------------------------------


def next_step_of(explained: Explanation) -> str:
    """For the API: of other namespaces nothing is named."""
    about = explained.about
    found = advice_of(explained)
    return found.sentence(about.metadata.namespace.__eq__) if found.subject else explained.advice


def advice_of(explained: Explanation) -> Advice:
    """Of a pod; of a claim that of the first pod that waits with it, or its own where none does."""
    about = explained.about
    if isinstance(about, ResourceClaim) and about.status.allocation is None:
        pods = PodClaim.objects.filter(namespace=about.metadata.namespace, claim=about.metadata.name).values("pod")
        name = QueuedPod.objects.waiting().filter(uid__in=pods).order_by("created_at").values_list("name", flat=True)
        with suppress(NotFound):
            explained = next((explain_pod(about.metadata.namespace, one) for one in name[:1]), explained)
    return NONE if explained.cause is None else advise(_subject_of(explained))


#: Seconds that a page with many pods waits for advice; for how long an older one does, in multiples of what it took.
PATIENCE, REST, REST_AT_LEAST = 0.3, 10, 3.0


@dataclass(frozen=True, slots=True)
class _Recent:
    """revision: what it is about."""

    revision: int
    at: float
    cost: float
    advice: Advice


#: (uid, namespace, name) of a pod
PodKey = tuple[str, str, str]


def advise_within(pods: Sequence[PodKey]) -> Mapping[str, Advice]:
    """By uid, for a page that shows several: what is known now, some of it a moment old. Who is left out is advised the
    next time. In a large cluster, where one pod takes longer than a page may, this is found out in the background.
    """
    recent = _recent.value
    if len(read_devices().candidates) <= SMALL:
        recent.look_at(pods, within=PATIENCE)
    elif any(recent.is_old(uid) for uid, _, _ in pods) and recent.working.acquire(blocking=False):
        threading.Thread(target=recent.finish, args=(pods,), name="advice", daemon=True).start()
    return {uid: recent.known[uid].advice for uid, _, _ in pods if uid in recent.known}


@dataclass(slots=True)
class _RecentAdvice:
    """What was advised last in this process. known: by uid of a pod."""

    known: OrderedDict[str, _Recent] = field(default_factory=OrderedDict)
    working: threading.Lock = field(default_factory=threading.Lock)

    def is_old(self, uid: str) -> bool:
        found = self.known.get(uid)
        return found is None or time.monotonic() - found.at > max(REST * found.cost, REST_AT_LEAST)

    def look_at(self, pods: Sequence[PodKey], *, within: float = math.inf) -> None:
        began, revision = time.monotonic(), latest_revision()
        for uid, namespace, name in pods:
            found = self.known.get(uid)
            if found and found.revision == revision and found.advice.sentence() not in ("", UNKNOWN):
                continue  # nothing has happened since
            now = time.monotonic()
            if now - began > within:
                return
            with suppress(NotFound):
                advice = advice_of(explain_pod(namespace, name))
                self.known[uid] = _Recent(revision, time.monotonic(), time.monotonic() - now, advice)
                self.known.move_to_end(uid)
                while len(self.known) > REMEMBERED:
                    self.known.popitem(last=False)

    def finish(self, pods: Sequence[PodKey]) -> None:
        try:
            self.look_at([one for one in pods if self.is_old(one[0])])
        finally:
            self.working.release()
            connections.close_all()


_recent = PerProcess(_RecentAdvice)


def _subject_of(explained: Explanation) -> Subject:
    """Of a pod or a claim that waits."""
    about = explained.about
    pod = about if isinstance(about, Pod) else None
    workload: Workload | None = None
    with suppress(NotFound):  # a claim or template that it names: there is nothing to rehearse
        if pod is not None:
            workload = of_pod(pod)
        elif isinstance(about, ResourceClaim):
            workload = of_claim(about)
    meta = about.metadata
    claims = workload.claims.values() if workload else ()
    return Subject(
        namespace=meta.namespace,
        workload=workload,
        cause=explained.cause,
        report=explained.report,
        pod=pod,
        key=(meta.uid, meta.resource_version, *(one.metadata.resource_version for one in claims)),
    )


@dataclass(frozen=True, slots=True)
class _Known:
    """report: that of the explanation, which is the same object for as long as nothing changes."""

    of: weakref.ref[ClusterState]
    revision: int
    report: Report | None
    advice: Advice


_known = PerProcess(OrderedDict[tuple[str, ...], _Known])


def advise(subject: Subject) -> Advice:
    """Nothing where it does not wait; the same as before while nothing has changed."""
    if subject.cause is None:
        return NONE
    if isinstance(subject.cause, OfOthers) or _missing(subject):
        return _without_rehearsal(subject)
    known = _known.value.get(_key_of(subject, known_mendings()))
    if known is not None and known.report is not None and known.report is subject.report:
        return known.advice  # nobody who rehearses is waited for
    mended = read_mendings()
    repair = mended.of(subject.pod.metadata.uid) if subject.pod else None
    key = _key_of(subject, mended)
    with cluster() as state:
        known = _known.value.get(key)
        if known is not None and known.of() is state and state.news_after(known.revision) == []:
            return known.advice
        revision, of = state.revision, weakref.ref(state)
        is_gang = subject.pod is not None and has_group(subject.pod) and need_of(state, subject.pod) is not None
    steps = [Step(act=Repair(repair.trouble), then="it starts then")] if repair else []
    if not is_gang:  # it starts with the others of its gang, who ask for the same or for something else
        try:
            steps += _steps(subject)
        except (Busy, ApiError):  # not now: nothing is said of what was not tried, and nothing kept
            return Advice(subject=subject, steps=tuple(steps), outside=UNKNOWN)
    # What starts it comes first, and of that what can be done now.
    first = sorted(
        steps,
        key=lambda one: (not one.node and not isinstance(one.act, Repair), isinstance(one.act, (Await, AddNode))),
    )
    advice = Advice(subject=subject, steps=tuple(first), outside=outside(subject.cause))
    if key:
        cache = _known.value
        cache[key] = _Known(of, revision, subject.report, advice)
        while len(cache) > REMEMBERED:
            cache.popitem(last=False)
    return advice


def _missing(subject: Subject) -> Sequence[Gap]:
    """What is not known of the cluster and would have to be for a rehearsal."""
    if not gaps():
        return ()
    about = subject.pod or (subject.workload.pod if subject.workload else None)
    return lacking(*TO_REHEARSE) or (lacking_for(about) if about is not None else ())


def _without_rehearsal(subject: Subject) -> Advice:
    """What has to be done in any case; what follows is not known."""
    assert subject.cause is not None  # noqa: S101 - nothing is advised about what does not wait
    cause, steps, missing = _because(subject.cause), list[Step](), _missing(subject)
    if isinstance(cause, Gated):
        steps.append(Step(act=_removing_gates(subject.pod), then="what follows cannot be told"))
    elif isinstance(cause, (ClaimNotFound, ClaimNotCreated)):
        templates = any(one.resource == TEMPLATES and one.but_for != subject.namespace for one in gaps())
        if isinstance(cause, ClaimNotFound) or not templates:
            steps += _creating_what_is_missing(subject, cause)
    said = outside(subject.cause)
    if said == NO_SINGLE_CHANGE:
        said = NOT_REHEARSED.format("; ".join(one.why for one in missing))
    return Advice(subject=subject, steps=tuple(steps), outside=said)


def _key_of(subject: Subject, mended: Mended) -> tuple[str, ...]:
    repair = mended.of(subject.pod.metadata.uid) if subject.pod else None
    return (*subject.key, repair.trouble.key if repair else "") if subject.key else ()


def _because(cause: AnyCause) -> AnyCause:
    return cause.because if isinstance(cause, NoNodeFits) and cause.because is not None else cause


def _steps(subject: Subject) -> Iterator[Step]:
    assert subject.cause is not None  # noqa: S101 - nothing is advised about what does not wait
    cause, workload = _because(subject.cause), subject.workload
    yield from _creating_what_is_missing(subject, cause)
    if workload is None:
        return
    if isinstance(cause, QuotaUsedUp):
        yield from _with_higher_limits(workload, cause)
    if isinstance(cause, Gated):
        yield from _without_gates(workload)
    resource = _unserved(subject.cause)
    if resource:
        yield from _serving(workload, resource)
    if _asks_otherwise(cause):
        offered = offers(workload, subject.cause)
        yield from (Step(act=Request(one.changes), node=one.node, fits=one.fits) for one in offered)
    if isinstance(cause, ClassMissing):
        yield from _with_class(workload, cause.name)
    if subject.report is not None:
        yield from _with_room(workload, subject.report)


def _creating_what_is_missing(subject: Subject, cause: AnyCause) -> Iterator[Step]:
    if isinstance(cause, ClaimNotFound):
        yield _creating(CreateClaim(subject.namespace, cause.name), "the pod cannot be tried without it")
    if isinstance(cause, ClaimNotCreated) and subject.pod is not None:
        missing = _missing_template(subject.pod, cause.entry)
        if missing:
            yield _creating(
                CreateClaim(subject.namespace, missing, template=True), "its claim cannot be made without it"
            )


def _creating(act: CreateClaim, then: str) -> Step:
    limit = limit_on_new(act.namespace, TEMPLATES if act.template else CLAIMS)
    if limit is None:
        return Step(act=act, then=then)
    return Step(act=RaiseQuota(act.namespace, (limit,)), then=f"{_named(act)} can then be created")


def _missing_template(pod: Pod, entry: str) -> str:
    names = (one.resource_claim_template_name for one in pod.spec.resource_claims if one.name == entry)
    name = next(names, "") or ""
    return name if name and objects.get(kind(TEMPLATES), pod.metadata.namespace, name) is None else ""


#: Causes that no other request would change.
_NOT_OF_REQUESTS = (ClaimNotFound, ClaimNotCreated, Gated)


def _asks_otherwise(cause: AnyCause) -> bool:
    return not isinstance(cause, _NOT_OF_REQUESTS)


def _unserved(cause: AnyCause) -> str:
    """The extended resource that no node advertises enough of, and no class serves."""
    refused = cause.refused if isinstance(cause, NoNodeFits) else ()
    for one, _ in refused:
        if isinstance(one, NodeRefusal) and one.plugin == "NodeResourcesFit" and "/" in one.key:
            return one.key
    return ""


@dataclass(frozen=True, slots=True)
class _Imagining:
    """Replicas of the workload, tried on a copy of the state on which something is imagined: whoever waits before it is
    served first.
    """

    copy: Apart
    workload: Workload
    deadline: Deadline
    ahead: tuple[Pod, ...]

    def starts(self, imagine: Callable[[Rehearsal], None] = lambda _: None, *, most: int = 1) -> tuple[str, int]:
        """(node, how many): where it starts, "" where it does not, and how many like it do."""
        rehearsal = Rehearsal(self.copy, self.workload)
        node, fits = "", 0
        with rehearsal.overlay.undone():
            rehearsal.share(known_claim)
            imagine(rehearsal)
            others = WaitingPods(state=self.copy.state, give_way=self.copy.give_way)
            for pod in self.ahead:
                if self.deadline.has_passed:
                    return "", 0
                others.decide(pod)
            while fits < most and (not fits or not self.deadline.has_passed):
                verdict = rehearsal.place_next(briefly=True)
                if not isinstance(verdict, Placement):
                    break
                node, fits = node or verdict.node, fits + 1
        return node, fits


@contextmanager
def _imagining(workload: Workload) -> Iterator[_Imagining]:
    """What selectors that take too long leave undone is not advised."""
    with suppress(TimeLimitExceeded), rehearsing() as copy:
        meta, pending = workload.pod.metadata, copy.state.pending
        before = [
            one for one in pending.values() if one.metadata.uid != meta.uid and not one.metadata.deletion_timestamp
        ]
        if meta.uid in pending:
            mine = queue_order(workload.pod)
            before = [one for one in before if queue_order(one) < mine]
        ahead = tuple(sorted(before, key=queue_order)[:AHEAD])
        yield _Imagining(copy, workload, Deadline.after_work(BUDGET), ahead)


def _without_gates(workload: Workload) -> Iterator[Step]:
    with _imagining(workload) as imagining:
        node, _ = imagining.starts()
        yield Step(act=_removing_gates(workload.pod), node=node, then="it is then tried, and waits for a node")


def _removing_gates(pod: Pod | None) -> RemoveGates:
    return RemoveGates(names=tuple(gate.name for gate in pod.spec.scheduling_gates) if pod is not None else ())


def _with_higher_limits(workload: Workload, cause: QuotaUsedUp) -> Iterator[Step]:
    namespace, mine = workload.pod.metadata.namespace, workload.pod.key
    with cluster() as state:
        others = [pod.key for pod in state.pending.values() if pod.metadata.namespace == namespace and pod.key != mine]
    limits = raises_for(workload, cause, others)
    if not limits:
        return

    def imagine(rehearsal: Rehearsal) -> None:
        for name in sorted({one.quota for one in limits}):
            stored = objects.get(kind(QUOTAS), namespace, name)
            if stored is not None:
                quota = decoded(stored, ResourceQuota)
                rehearsal.overlay.imagine(QUOTAS, with_limits(quota, limits), instead_of=quota)

    with _imagining(workload) as imagining:
        node, _ = imagining.starts(imagine)
        yield Step(act=RaiseQuota(namespace, limits), node=node, then="it is then tried, and waits for devices")


def _serving(workload: Workload, resource: str) -> Iterator[Step]:
    """The class whose name is most like that of the resource first."""
    _, classes = objects.listed(CLASSES, DeviceClass)
    if any(one.spec.extended_resource_name == resource for one in classes):
        return
    domain, _, word = resource.partition("/")
    unnamed = [one for one in classes if not one.spec.extended_resource_name]
    unnamed.sort(key=lambda one: (word not in one.metadata.name, domain not in one.metadata.name, one.metadata.name))
    with _imagining(workload) as imagining:
        for one in unnamed[:CLASSES_TRIED]:
            serving = structs.replace(one, spec=structs.replace(one.spec, extended_resource_name=resource))
            act = ServeResource(one.metadata.name, resource)
            node, fits = imagining.starts(partial(_imagine_class, serving, one), most=COUNTED)
            if node:
                yield Step(act=act, node=node, fits=fits)
            if imagining.deadline.has_passed:
                break


def _imagine_class(imagined: DeviceClass, before: DeviceClass | None, rehearsal: Rehearsal) -> None:
    rehearsal.overlay.imagine(CLASSES, imagined, instead_of=before)


def _with_class(workload: Workload, name: str) -> Iterator[Step]:
    """Of a class that every device passes."""
    meta = ObjectMeta(name=name, uid=name)
    made = DeviceClass(api_version="resource.k8s.io/v1", kind="DeviceClass", metadata=meta, spec=DeviceClassSpec())
    wanted = {one.device_class_name for entry, claim in workload.claims.items() for _, one in asked_of(claim, entry)}
    missing = sorted(wanted - {name, *(one.metadata.name for one in objects.listed(CLASSES, DeviceClass)[1])})
    with _imagining(workload) as imagining:
        node, _ = imagining.starts(partial(_imagine_class, made, None))
        then = f"class `{missing[0]}` is then still missing" if missing else "it is then tried, and waits for devices"
        yield Step(act=CreateClass(name), node=node, then=then)


# Room that others make ------------------------------------------------------------------------------------------------


def _with_room(workload: Workload, report: Report) -> Iterator[Step]:
    """Which pods have to end, and whether one more node would do."""
    with _imagining(workload) as imagining:
        found: list[Step] = []
        for node, pods, claims in _occupied(workload, report):
            found.extend(_least(imagining, node, pods, claims))
            if imagining.deadline.has_passed:
                break
        yield from sorted(found, key=lambda one: _cost(one.act))[:1]
        able = [one.name for one in report.nodes if _has_devices(one)]
        if able:
            new = shape_of(min(able))(1)
            node, _ = imagining.starts(lambda rehearsal: new.imagine(rehearsal.overlay))
            if node:
                yield Step(act=AddNode(min(able)), node=node)


def _cost(act: Act) -> tuple[int, int, str]:
    assert isinstance(act, Await)  # noqa: S101 - the only one that has a cost
    return len(act.pods) + len(act.claims), act.devices, act.node


def _has_devices(node: NodeReport) -> bool:
    """Whether it would have enough for each request if nobody held any."""
    return all(one.funnel[-2].left >= one.wanted for one in node.examination.requests if not one.plan.parent)


def _occupied(workload: Workload, report: Report) -> Iterator[tuple[str, list[Pod], list[ResourceClaim]]]:
    """Nodes with the pods on them, and the claims that hold what the requests could have there."""
    able = [one for one in report.nodes if all(refusal.resolvable for refusal in one.refusals) and _has_devices(one)]
    able = able[:NODES_TRIED]
    own = {claim.metadata.uid for claim in workload.claims.values()}
    rows = PodRow.objects.filter(node_name__in=[one.name for one in able]).exclude(phase__in=FINISHED_PHASES)
    keys = list(rows.order_by("namespace", "name").values_list("namespace", "name"))
    on_node: dict[str, list[Pod]] = {}
    for pod in (decoded(stored, Pod) for stored in objects.get_many(kind(PODS), keys)):
        on_node.setdefault(pod.spec.node_name, []).append(pod)
    devices = read_devices()
    for one in able:
        contested = DeviceSet.union(
            request.funnel[-2].devices - request.funnel[-1].devices for request in one.examination.requests
        )
        holders = {
            (holder.namespace, holder.claim)
            for device in contested
            for holder in devices.held_by((device.key.driver, device.key.name, device.name, device.key.node))
        }
        pods = {pod.metadata.uid: pod for pod in on_node.get(one.name, ()) if not is_done(pod)}
        holders |= {(pod.metadata.namespace, name) for pod in pods.values() for name in claim_names(pod)}
        claims = [decoded(stored, ResourceClaim) for stored in objects.get_many(kind(CLAIMS), holders)]
        users = {(claim.metadata.namespace, user.name) for claim in claims for user in claim.status.reserved_for}
        for pod in (decoded(stored, Pod) for stored in objects.get_many(kind(PODS), users)):
            if not is_done(pod):
                pods.setdefault(pod.metadata.uid, pod)
        held = [claim for claim in claims if claim.status.allocation is not None and claim.metadata.uid not in own]
        if pods or held:
            yield one.name, list(pods.values()), held


def _released(pods: Iterable[Pod], claims: Iterable[ResourceClaim]) -> list[ResourceClaim]:
    """The claims that nobody uses once these pods are gone."""
    gone = {pod.metadata.uid for pod in pods}
    return [claim for claim in claims if all(user.uid in gone for user in claim.status.reserved_for)]


def _least(imagining: _Imagining, node: str, pods: Sequence[Pod], claims: Sequence[ResourceClaim]) -> Iterator[Step]:
    """Fewest pods first: those are left out without which it starts as well. Claims that nobody uses go last."""
    used = [claim for claim in claims if claim.status.reserved_for]

    def starts(leaving: Sequence[Pod], those: Sequence[ResourceClaim]) -> str:
        return imagining.starts(partial(_leave, leaving, _released(leaving, those)))[0]

    those = next((some for some in (used, claims) if starts(pods, some)), None)
    if those is None:
        return
    leaving = list(pods)
    for pod in sorted(pods, key=lambda one: (-(one.spec.priority or 0), one.key)):
        fewer = [one for one in leaving if one is not pod]
        if not imagining.deadline.has_passed and starts(fewer, those):
            leaving = fewer
    released = _released(leaving, those)
    act = Await(
        node=node,
        pods=tuple(pod.key for pod in leaving),
        claims=tuple(one.key for one in released if not one.status.reserved_for),
        devices=sum(len(one.status.allocation.devices.results) for one in released if one.status.allocation),
    )
    yield Step(act=act, node=starts(leaving, those))


def _leave(pods: Iterable[Pod], claims: Iterable[ResourceClaim], rehearsal: Rehearsal) -> None:
    for pod in pods:
        rehearsal.overlay.leave_out(PODS, pod)
    for claim in claims:
        rehearsal.overlay.leave_out(CLAIMS, claim)
