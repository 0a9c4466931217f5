"""Why a pod waits, as its page tells it: the sentence, the funnels, the nodes, who holds the devices; and a rehearsal.
Why one that is being deleted is there still.

Each offer was rehearsed and starts it (`insight.offers`). With `?without=ENTRY/REQUEST:N` and the like in the
address the pod is rehearsed so, and the same parts show what the scheduler would find then; nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlencode

from claims.causes.causes import ClassMissing, NoNodeFits
from claims.causes.messages import clause, preemption_clause, sentence
from claims.causes.next_steps import next_step
from claims.kinds.pods import Pod
from dashboard.capacity.overview import begun, said_of
from dashboard.kit import links
from dashboard.workloads.claims.queries import PATIENCE
from dashboard.workloads.funnels import FunnelNodes, FunnelSection, LeftOut, held_devices, node_table, sections
from dashboard.workloads.pods.holders import NOBODY, HeldDevices, read_held
from dashboard.workloads.pods.reading import ClaimLine, Moment
from dashboard.workloads.pods.replacing import replace_url, why_not
from dashboard.workloads.whatif.query import as_query, in_words, joined, meant
from insight.offers import COUNTED, Offer, offers
from manciple.durations import duration, moment
from manciple.people import Person
from manciple.wire.errors import NotFound
from scheduling.cycle.post_filter import eviction_cause
from scheduling.rehearsal.explanations.documents import Explanation
from scheduling.rehearsal.explanations.report import Report
from scheduling.rehearsal.repairs import read_mendings
from scheduling.rehearsal.simulation import Question, SimulationAnswer, simulate
from scheduling.rehearsal.workload import Changes, Workload, entry_of, of_pod
from scheduling.state.nodes import PlannedEviction

#: The event of a node that cannot take back what a pod had.
NOT_GIVEN_BACK = "FailedUnprepareDynamicResources"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodVerdict:
    """The sentence at the top. `try_url`, `try_word`: the way back from a rehearsal; do_url: where that is done.

    do_url is "" for who may not. offers: what would start it.
    """

    good: bool
    title: str
    text: str
    next_step: str
    try_word: str = ""
    try_url: str = ""
    do_url: str = ""
    rehearsed: bool = False
    #: (word, address) of what can be done without asking the node
    forced: tuple[tuple[str, str], ...] = ()
    offers: tuple[OfferLine, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferLine:
    """What could be asked for instead, and what follows. do_url: where it is done, "" for who may not."""

    word: str
    follows: str
    try_url: str
    do_url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """All of it. held: who has the devices that the decisive request accepts."""

    verdict: PodVerdict
    sections: tuple[FunnelSection, ...]
    nodes: FunnelNodes | None
    held: HeldDevices


def waits(explained: Explanation) -> bool:
    return explained.state in ("Waiting", "Schedulable")


def read_stay(
    pod: Pod, claims: Sequence[ClaimLine], moments: Sequence[Moment], now: datetime, person: Person
) -> PodVerdict | None:
    """What keeps a pod which is being deleted: what its node says of it, or that it says nothing; None in good time."""
    ends = moment(pod.metadata.deletion_timestamp)
    if ends is None:
        return None
    told = next((one.text for one in reversed(moments) if one.reason == NOT_GIVEN_BACK), "")
    node = f"node `{pod.spec.node_name}`" if pod.spec.node_name else "its node"
    if told:
        title, text = "It stays until its devices are released, and that fails.", f"{told}."
        step = f"Start the driver's plugin on {node}; if a feature gate is off, turn it on."
    elif now > ends + PATIENCE:
        title = f"It should have ended {duration((now - ends).total_seconds())} ago."
        text = f"The agent on {node} has not confirmed that its containers ended and its devices are unprepared."
        step = "Check that agent. Use force only if the machine is off, or nothing of the pod runs there any more."
    else:
        return None
    forced = tuple(_by_force(pod, claims, person))
    return PodVerdict(good=False, title=title, text=text, next_step=step, forced=forced)


def _by_force(pod: Pod, claims: Sequence[ClaimLine], person: Person) -> Iterator[tuple[str, str]]:
    """Releasing what it alone holds, which administrators may; ending it."""
    namespace = pod.metadata.namespace
    for one in claims:
        if person.administers and one.devices and not one.others:
            yield f"Release {one.name} by force", f"{links.claim_url(namespace, one.name)}/release"
    if person.may_edit(namespace):
        yield "Delete by force", f"{links.pod_url(namespace, pod.metadata.name)}/delete?force=1"


def read_why(explained: Explanation, person: Person, changes: Changes) -> Why:
    """explained: a pod that waits. changes: what is tried instead, if anything."""
    pod = explained.about
    assert isinstance(pod, Pod)  # noqa: S101 - only pods are asked about
    if changes.any and (tried := _rehearsed(pod, changes)) is not None:
        workload, answer, changed = tried
        report = answer.first
        verdict = _rehearsal_verdict(pod, workload, answer, changed, may_replace=_may_replace(pod, person))
        left_out = left_out_of(workload, changed, report)
    else:
        report, left_out = explained.report, {}
        verdict = _verdict(explained, pod, person)
    return Why(
        verdict=verdict,
        sections=sections(report, left_out) if report else (),
        nodes=node_table(report) if report and report.nodes else None,
        held=_held(report, person),
    )


def _held(report: Report | None, person: Person) -> HeldDevices:
    if report is None:
        return NOBODY
    return read_held({(one.key.driver, one.key.name, one.name, one.key.node) for one in held_devices(report)}, person)


def _evictions(explained: Explanation, person: Person) -> Iterator[str]:
    """Told where the pod has a priority, and might evict somebody."""
    found, pod = explained.preemption, explained.about
    if isinstance(found, PlannedEviction):
        yield f"{sentence(preemption_clause(eviction_cause(found, sees=person.sees)))}."
    elif found is not None and isinstance(pod, Pod) and (pod.spec.priority or 0) > 0:
        yield f"{sentence(preemption_clause(found))}."


def _verdict(explained: Explanation, pod: Pod, person: Person) -> PodVerdict:
    if explained.state == "Schedulable":
        return PodVerdict(good=True, title="A node fits; the pod is being scheduled.", text="", next_step="")
    notes = explained.report.notes if explained.report else ()
    offered = tuple(_offered(explained, pod, person))
    return PodVerdict(
        good=False,
        title=f"It waits because {explained.reason}.",
        text=" ".join((*notes, *_mending(pod, person), *_evictions(explained, person))),
        next_step=explained.next_step,
        offers=offered,
    )


def _mending(pod: Pod, person: Person) -> Iterator[str]:
    """Told where something could be mended that this very pod would start by."""
    mending = read_mendings().of(pod.metadata.uid)
    if mending is not None:
        title, step, _ = said_of(mending.trouble, person.sees)
        yield f"It would start if this were fixed: {begun(title)}. {step}"


# What would start it -------------------------------------------------------------------------------------------------


#: Offers that are shown.
OFFERED = 5


def _offered(explained: Explanation, pod: Pod, person: Person) -> Iterator[OfferLine]:
    cause = explained.cause.because if isinstance(explained.cause, NoNodeFits) else explained.cause
    if explained.report is None and not isinstance(cause, ClassMissing):
        return  # what it asks for does not matter yet
    try:
        workload = of_pod(pod)
    except NotFound:
        return
    requests = _requests(workload)
    may_replace = _may_replace(pod, person)
    for one in offers(workload, explained.report, explained.cause)[:OFFERED]:
        yield OfferLine(
            word=offer_words(one, requests=requests),
            follows=f"starts on `{one.node}`" + (f", {_counted(one)} like it fit" if one.fits > 1 else ""),
            try_url=f"?{urlencode(as_query(one.changes), safe='/:')}",
            do_url=replace_url(pod, one.changes) if may_replace else "",
        )


def _counted(offer: Offer) -> str:
    return f"{offer.fits} or more" if offer.fits >= COUNTED else str(offer.fits)


def offer_words(offer: Offer, *, requests: int) -> str:
    """`Ask for 2 devices`, `Use class gpu-hopper`, `Without selector 1`."""
    words = in_words(offer.changes, requests=requests)
    if offer.changes.counts:
        return f"Ask for {words.removeprefix('with ')}"
    if offer.changes.classes:
        return f"Use {words.removeprefix('with ')}"
    return f"{words[:1].upper()}{words[1:]}"


def _requests(workload: Workload) -> int:
    return sum(len(one.spec.devices.requests) for one in workload.claims.values())


def _may_replace(pod: Pod, person: Person) -> bool:
    return person.may_edit(pod.metadata.namespace) and not why_not(pod)


# A rehearsal ---------------------------------------------------------------------------------------------------------


def _rehearsed(pod: Pod, changes: Changes) -> tuple[Workload, SimulationAnswer, Changes] | None:
    """None where there is nothing to rehearse: nothing is changed, or a claim is not there."""
    try:
        workload = of_pod(pod)
    except NotFound:
        return None
    changed = meant(changes, workload.claims)
    if not changed.any:
        return None
    return workload, simulate(Question(workload=workload, changes=changed, with_first=True)), changed


def _rehearsal_verdict(
    pod: Pod, workload: Workload, answer: SimulationAnswer, changes: Changes, *, may_replace: bool
) -> PodVerdict:
    words = in_words(changes, requests=_requests(workload))
    tried = f"{words[:1].upper()}{words[1:]}"
    back = {"try_word": "Back to as written", "try_url": "?tab=why", "rehearsed": True}
    if answer.placed:
        placed = answer.placed[0]
        devices = joined([f"`{one.device}`" for one in placed.devices])
        return PodVerdict(
            good=True,
            title=f"{tried} it would start now on `{placed.node}`{f', with {devices}' if devices else ''}.",
            text="A rehearsal: nothing has changed in the cluster.",
            next_step="" if may_replace else _how(pod, changes, words),
            do_url=replace_url(pod, changes) if may_replace else "",
            **back,  # type: ignore[arg-type]  # words and a flag
        )
    cause = answer.cause
    return PodVerdict(
        good=False,
        title=f"{tried} it would still wait{f' because {clause(cause)}' if cause else ''}.",
        text="A rehearsal: nothing has changed in the cluster.",
        next_step=next_step(cause) if cause else "",
        **back,  # type: ignore[arg-type]  # as above
    )


def _how(pod: Pod, changes: Changes, words: str) -> str:
    """What to do to have it so: the spec of a claim never changes, so it is made anew."""
    touched = {
        key.partition("/")[0] for key in (*(key for key, _ in changes.without), *changes.classes, *changes.counts)
    }
    steps = []
    for entry in pod.spec.resource_claims:
        if entry.name in touched and entry.resource_claim_template_name:
            steps.append(f"template `{entry.resource_claim_template_name}`")
        elif entry.name in touched:
            steps.append(f"claim `{entry.resource_claim_name}`")
    if not steps:
        return ""
    return f"Recreate {joined(steps)} {words}, then recreate the pod: the requests of a claim cannot be changed."


def left_out_of(workload: Workload, changes: Changes, report: Report | None) -> LeftOut:
    """By the names that the replica's claims have: which selectors are left out, and what they say."""
    found: dict[tuple[str, str], Mapping[int, str]] = {}
    for request in report.requests if report else ():
        entry = entry_of(request.plan.claim, workload)
        key = f"{entry}/{request.plan.full_name}"
        texts = {
            index: text
            for name, index in changes.without
            if name == key and (text := _expression(workload, entry, request.plan.name, index))
        }
        if texts:
            found[request.plan.claim, request.plan.full_name] = texts
    return found


def _expression(workload: Workload, entry: str, request: str, index: int) -> str:
    for one in workload.claims[entry].spec.devices.requests if entry in workload.claims else ():
        if one.name == request and one.exactly is not None and index < len(one.exactly.selectors):
            cel = one.exactly.selectors[index].cel
            return cel.expression if cel else ""
    return ""


def what_if_url(pod: Pod, changes: Changes) -> str:
    """The what-if page for this pod, with what is tried here."""
    about = f"{pod.metadata.namespace}/{pod.metadata.name}"
    return f"/what-if?{urlencode([('pod', about), *as_query(changes)], safe='/:')}"
