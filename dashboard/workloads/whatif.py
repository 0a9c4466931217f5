"""What if: `/what-if`. Where replicas of a pod or claim would land, and what would have to change. Nothing is written.

`?pod=NAMESPACE/NAME`, `?claim=`, `?template=` name the subject; `?replicas=`, `?shape=NODE&nodes=N` and the changes of
`changes.changes_of` describe the rehearsal. Pasted text is sent by POST; the address of the same question has it
compressed as `?yaml=`, unless it is too long for that. `run=NAME` names the rehearsal, so that the page can ask
`/what-if/progress?run=NAME` how far it is (GET), or stop it (POST).
"""

from __future__ import annotations

import base64
import threading
import zlib
from collections import OrderedDict, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_http_methods
from msgspec import structs

from claims.causes.messages import clause
from claims.devices.cache import read_devices
from claims.devices.published import CandidateDevice
from claims.devices.states import DeviceState
from claims.kinds.pods import PodResourceClaim
from claims.kinds.resource_claims import ResourceClaim, ResourceClaimSpec
from dashboard.kit.differences import Finding, dump
from dashboard.kit.forms import plain
from dashboard.kit.guards import begin_costly, listing
from dashboard.kit.previews import Link
from dashboard.kit.rendering import ValueContext, render_page
from dashboard.templatetags.kit import claim_url, counted, page_url, pod_url, template_url
from dashboard.workloads.changes import QueryValues, as_query, changes_of, meant
from dashboard.workloads.moves import ShownPlan, shown_plan
from dashboard.workloads.pods import forms
from dashboard.workloads.pods.forms import free_name, manifest
from dashboard.workloads.pods.why import (
    DeviceMark,
    FunnelNodes,
    FunnelSection,
    eviction_words,
    left_out_of,
    node_table,
    sections,
)
from insight.advice import Subject, advise, in_words
from inventory.models import DeviceClass, Node
from manciple.gaps import demand
from manciple.people import Person, demand_sight, person_of
from manciple.per_process import PerProcess
from manciple.store import objects
from manciple.store.event_log import latest_revision
from manciple.wire import codec
from manciple.wire.errors import ApiError
from manciple.wire.quantity import whole
from manciple.wire.resources import CLAIMS, CLASSES, NODES, PODS, SLICES, TEMPLATES, kind
from manciple.wire.validation import natural
from scheduling.allocator.problem import MAX_RESULTS
from scheduling.judgement import TO_REHEARSE
from scheduling.rehearsal.simulation import (
    MOST_NODES,
    MOST_REPLICAS,
    TIMEOUT,
    GangPreview,
    Missing,
    Placed,
    Question,
    SimulationAnswer,
    simulate,
)
from scheduling.rehearsal.workload import (
    IMAGINED,
    ONLY,
    Changes,
    NotRehearsable,
    Workload,
    of_documents,
    spoken,
    stored_claim,
    stored_pod,
    stored_template,
    written_anew,
)

#: Characters of an address that every browser, proxy and chat takes; and of a text that is read from one.
LONGEST_LINK, LONGEST_TEXT = 6_000, 256 * 1024
#: Nodes and classes in the form's choices.
LISTED = 1_000
#: Characters that are shown of a text that should be a number.
LONGEST_NUMBER = 20
#: Nodes of the answer, replicas on them, devices that are drawn of a node, topology domains.
SHOWN_NODES, SHOWN_REPLICAS, DRAWN, DOMAINS = 60, 200, 16, 12
#: Pods that are written, at most.
WRITTEN = 20
#: Rehearsals whose progress is kept; of more, the oldest are dropped.
REMEMBERED = 200


#: parameter of the address -> how its subject is read
SUBJECTS = {"pod": stored_pod, "claim": stored_claim, "template": stored_template}
_PAGES = {"pod": pod_url, "claim": claim_url, "template": template_url}


def packed(text: str) -> str:
    """A text as a parameter of an address: compressed, in letters that need no escaping."""
    return base64.urlsafe_b64encode(zlib.compress(text.encode(), 9)).decode().rstrip("=")


def unpacked(value: str) -> str:
    """The text; "" if it cannot be read, or is too long."""
    try:
        data = base64.urlsafe_b64decode(value + "=" * (-len(value) % 4))
        text = zlib.decompressobj().decompress(data, LONGEST_TEXT + 1)
        return text.decode() if len(text) <= LONGEST_TEXT else ""
    except (ValueError, zlib.error):
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is to be rehearsed. findings, error: why it cannot be. typed: parameter -> text that is no number for it."""

    about: str = ""  # "pod", "claim", "template", "text" or ""
    name: str = ""
    text: str = ""
    workload: Workload | None = None
    changes: Changes = field(default_factory=Changes)
    replicas: int = 1
    shape: str = ""
    nodes: int = 0
    error: str = ""
    findings: tuple[Finding, ...] = ()
    typed: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_too_long(self) -> bool:
        """Whether the text does not fit into an address."""
        return self.about == "text" and len(packed(self.text)) > LONGEST_LINK

    @property
    def create_url(self) -> str:
        """Where what was rehearsed is created; "" if an address cannot name it."""
        new = f"{page_url('pod-new')}?rehearsed=1&"
        return "" if self.is_too_long else self.url().replace(f"{page_url('what-if')}?", new, 1)

    @property
    def subject_url(self) -> str:
        return _PAGES[self.about](*self.name.partition("/")[::2]) if self.about in _PAGES else ""

    def url(self, **changes: str) -> str:
        """The address of the same question, without a text that is too long for an address (`is_too_long`)."""
        single = {self.about: self.name} if self.about in SUBJECTS else {}
        if self.about == "text" and not self.is_too_long:
            single["yaml"] = packed(self.text)
        single |= {"replicas": str(self.replicas), "shape": self.shape, "nodes": str(self.nodes or "")}
        pairs = as_query(self.changes)
        many = [pair for pair in pairs if pair[0] in ("without", "tolerate")]
        single |= {**{name: value for name, value in pairs if (name, value) not in many}, **changes}
        given = [(name, value) for name, value in single.items() if value]
        return f"{page_url('what-if')}?{urlencode([*given, *many], safe='/:')}"


def asked_of(request: HttpRequest, person: Person) -> Asked:
    """The question of a request, as far as the person may ask it."""
    query: QueryValues = request.POST if request.method == "POST" else request.GET
    wrong = dict(_no_numbers(query))
    asked = Asked(
        replicas=1 if "replicas" in wrong else whole(query.get("replicas", "").strip()) or 1,
        nodes=0 if "nodes" in wrong else whole(query.get("nodes", "").strip()) or 0,
        shape=query.get("shape", "").strip(),
        error=" ".join(wrong.values()),
        typed={name: query.get(name, "").strip() for name in wrong},
    )
    sent = query.get("yaml", "")
    text = sent.replace("\r\n", "\n") if request.method == "POST" else unpacked(sent)
    if text.strip():
        return _of_text(replace(asked, about="text", text=text), person, changes_of(query))
    about = next((name for name in SUBJECTS if query.get(name, "")), "")
    if not about:
        return asked
    asked = replace(asked, about=about, name=query.get(about, ""))
    namespace, _, short = asked.name.partition("/")
    demand_sight(request, namespace, f"{about} {asked.name}")
    try:
        demand(*TO_REHEARSE, consequence="nothing can be rehearsed")  # what is not found may be there all the same
        workload = SUBJECTS[about](namespace, short)
    except ApiError as refusal:
        return replace(asked, error=_sentence(refusal.message))
    return replace(asked, workload=workload, changes=meant(changes_of(query), workload.claims))


def _of_text(asked: Asked, person: Person, changes: Changes) -> Asked:
    namespace = "default" if person.sees("default") else min(person.namespaces or {"default"})
    reading = forms.read(asked.text, namespace=namespace)
    forms.validate(reading)
    if reading.problems:
        return replace(asked, findings=tuple(reading.findings))
    unseen = next((one for one in reading.objects if not person.sees(one.metadata.namespace)), None)
    if unseen is not None:
        hidden = unseen.metadata.namespace
        return replace(asked, error=f"You do not see namespace {hidden}, so nothing can be rehearsed in it.")
    try:
        workload = of_documents(reading.rehearsable)
    except NotRehearsable as problem:
        return replace(asked, error=str(problem))
    except ApiError as refusal:
        return replace(asked, error=_sentence(refusal.message))
    return replace(asked, workload=workload, changes=meant(changes, workload.claims))


def _no_numbers(query: QueryValues) -> Iterator[tuple[str, str]]:
    """(parameter, what is wrong with it)"""
    for name in query:
        word, _, key = name.partition(".")
        label, least, most = {
            "replicas": ("Replicas", 1, MOST_REPLICAS),
            "nodes": ("More nodes", 0, MOST_NODES),
            "count": (f"Devices of {key}", 1, MAX_RESULTS),
        }.get(word, ("", 0, 0))
        text = query.get(name, "").strip()
        number = whole(text)
        if label and text and (number is None or not least <= number <= most):
            yield name, f"{label}: {text[:LONGEST_NUMBER]} is not a whole number from {least} to {most:,}."


def _sentence(text: str) -> str:
    text = plain(text)
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LandingNode:
    """One node with the replicas that land there. marks: its devices, `wanted` if the replicas get them."""

    name: str
    model: str  # the node that a new one is like; "" for one that exists
    replicas: int
    devices: int
    marks: tuple[DeviceMark, ...]
    first: tuple[tuple[int, str], ...]  # (number of the replica, its devices in words)
    more: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MustLeave:
    """The holders that would have to leave: (claim, its page, pods with links). hidden: those that the person does
    not see."""

    node: str
    holders: list[tuple[str, str, list[Link]]]
    hidden: int
    devices: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The answer as the page draws it."""

    good: bool
    title: str
    text: str
    next_step: str
    asked: int  # replicas, or pods that the gang lacks
    fits: str
    left: int
    domains: tuple[tuple[str, int], ...]  # that were tried for a gang, and how many of its pods fit there
    wanted: int  # of a gang
    nodes: tuple[LandingNode, ...]
    more_nodes: int
    sections: tuple[FunnelSection, ...]
    table: FunnelNodes | None
    leaving: MustLeave | None
    moves: ShownPlan | None
    missing: Missing | None
    missing_url: str

    @property
    def figures(self) -> list[tuple[str, int | str]]:
        return [("Asked for", self.asked), ("Fit in all", self.fits), ("Would wait", self.left)]


def read_answer(answer: SimulationAnswer, asked: Asked, person: Person) -> Result:
    """One query, if nothing changed."""
    by_node: dict[str, list[Placed]] = {}
    for placed in answer.placed:
        by_node.setdefault(placed.node, []).append(placed)
    report, gang, missing = answer.report, answer.gang, answer.missing
    left_out = left_out_of(asked.workload, asked.changes, report) if asked.workload else {}
    evictions = eviction_words(answer.preemption, asked.workload.pod, person) if asked.workload else ""
    leaving = moves = None
    if answer.departure:
        seen = [holder for holder in answer.departure.holders if person.sees(holder.key[0])]
        leaving = MustLeave(
            node=answer.departure.node,
            holders=[
                (holder.key[1], claim_url(*holder.key), [("/".join(pod.key), pod_url(*pod.key)) for pod in holder.pods])
                for holder in seen
            ],
            hidden=len(answer.departure.holders) - len(seen),
            devices=answer.departure.devices,
        )
    if answer.moves is not None:  # they can be made for a pod that waits, as it is
        real = asked.about == "pod" and not asked.changes.any and asked.replicas == 1 and not asked.nodes
        url = page_url("pod-move", *asked.name.partition("/")[::2]) if real else ""
        moves = shown_plan(answer.moves, person, url=url)
    return Result(
        good=not answer.left and bool(answer.placed) and not _on_new_nodes(answer),
        title=_title(answer) if gang is None else _gang_title(answer, gang),
        text=f"{_text(answer)} {evictions}".strip(),
        next_step=_next_step(answer, asked, person),
        asked=answer.replicas,
        fits=f"{answer.fits}" if answer.counted_all else f"at least {answer.fits}",
        left=answer.left,
        domains=gang.tried[:DOMAINS] if gang and len(gang.tried) > 1 else (),
        wanted=gang.wanted if gang else 0,
        nodes=_landing_nodes(by_node),
        more_nodes=max(len(by_node) - SHOWN_NODES, 0),
        sections=sections(report, left_out) if report else (),
        table=node_table(report) if report and report.nodes else None,
        leaving=leaving,
        moves=moves,
        missing=missing,
        missing_url=asked.url(shape=missing.shape, nodes=str(asked.nodes + missing.nodes))
        if missing and missing.nodes and not asked.is_too_long
        else "",
    )


def _next_step(answer: SimulationAnswer, asked: Asked, person: Person) -> str:
    """Of one replica in the cluster as it is; for more of them, and with more nodes, the page says what is missing."""
    if answer.cause is None or not answer.left or asked.workload is None or asked.nodes or answer.replicas != 1:
        return ""
    workload = asked.workload.changed(asked.changes)
    subject = Subject(
        namespace=workload.pod.metadata.namespace, workload=workload, cause=answer.cause, report=answer.report
    )
    return advise(subject).sentence(person.sees)


def _title(answer: SimulationAnswer) -> str:
    wanted, fits, because, new = answer.replicas, answer.fits, _because(answer), _on_new_nodes(answer)
    if not answer.counted_all and fits < wanted:
        return f"{fits} of {wanted} were placed in the rehearsal's time."
    if not answer.placed:
        return f"It would wait{because}." if wanted == 1 else f"None of the {wanted} would start{because}."
    if wanted == 1:
        only = f"only on a node that does not exist yet: {spoken(new[0].node)}" if new else ""
        return f"It would start {only or f'now on `{answer.placed[0].node}`'}."
    rest = f"; {answer.left} would wait{because}" if answer.left else ""
    if new:
        nodes = counted(len({one.node for one in new}), "node that does not exist yet", "nodes that do not exist yet")
        now = len(answer.placed) - len(new)
        return f"{now or 'None'} of {wanted} would start now, {len(new)} only with {nodes}{rest}."
    some = f"{fits} of {wanted}" if answer.left else f"All {wanted}"
    return f"{some} would start now, on {_nodes(answer)}{rest}."


def _on_new_nodes(answer: SimulationAnswer) -> list[Placed]:
    return [one for one in answer.placed if one.on_new_node]


def _gang_title(answer: SimulationAnswer, gang: GangPreview) -> str:
    best = f" (the best of {gang.domains})" if gang.domains > 1 and not gang.whole else ""
    where = f" on `{gang.where}`{best}" if gang.where else ""
    running = f" ({gang.placed} placed already)" if gang.placed else ""
    if gang.whole:
        where = f"{where}, {_nodes(answer)}" if where else f" on {_nodes(answer)}"
        when = "with the nodes that do not exist yet" if _on_new_nodes(answer) else "now"
        return f"Gang `{gang.name}` fits whole{where}: its {gang.wanted} pods would start {when}{running}."
    return f"Gang `{gang.name}` would not start: {gang.fits} of its {gang.wanted} pods fit at once{where}{running}."


def _because(answer: SimulationAnswer) -> str:
    return f" because {spoken(clause(answer.cause))}" if answer.cause else ""


def _nodes(answer: SimulationAnswer) -> str:
    return counted(len({one.node for one in answer.placed}), "node")


def _text(answer: SimulationAnswer) -> str:
    parts, gang = list[str](), answer.gang
    if gang is not None:
        parts.append("Its pods start together or not at all.")
        stand_ins = gang.wanted - gang.placed - gang.waiting
        if stand_ins > 0:
            parts.append(f"Replicas stand in for {stand_ins} missing pods.")
        if gang.preferred and gang.whole and not gang.where.startswith(f"{gang.preferred}="):
            parts.append(f"No value of `{gang.preferred}`, its preferred topology, has room for all.")
    elif answer.counted_all and not answer.left:
        more = answer.fits - answer.replicas
        room = f"{more} more would fit" if more else f"no other like it would fit{_because(answer)}"
        parts.append(f"After that, {room}.")
    return " ".join(parts)


def _landing_nodes(by_node: Mapping[str, Sequence[Placed]]) -> tuple[LandingNode, ...]:
    """In the order in which they are used. A new node has the devices of its model, all of them free."""
    snapshot, placed = read_devices(), [one for replicas in by_node.values() for one in replicas]
    given = {(one.node, d.driver, d.pool.partition(IMAGINED)[0], d.device) for one in placed for d in one.devices}
    drivers = {driver for _, driver, _, _ in given}
    devices: dict[str, list[CandidateDevice]] = defaultdict(list)
    for pool in snapshot.pools.values() if drivers else ():
        for candidate in pool.candidates if pool.pool.key[0] in drivers else ():
            devices[candidate.node].append(candidate)
    nodes = []
    for name, replicas in list(by_node.items())[:SHOWN_NODES]:
        model, imagined, number = name.partition(IMAGINED)
        marks = tuple(
            DeviceMark(
                one.name, DeviceState.FREE if imagined else snapshot.state_of(one), (name, *one.key[:3]) in given
            )
            for one in sorted(devices.get(model, ()), key=lambda one: natural(one.address))
        )
        if len(marks) > DRAWN:
            marks = tuple(mark for mark in marks if mark.wanted)[:DRAWN]
        shown = replicas[: max(SHOWN_REPLICAS // SHOWN_NODES, 3)]
        nodes.append(
            LandingNode(
                name=f"new node {number}" if imagined else name,
                model=model if imagined else "",
                replicas=len(replicas),
                devices=sum(len(one.devices) for one in replicas),
                marks=marks,
                first=tuple((one.number, ", ".join(device.device for device in one.devices)) for one in shown),
                more=len(replicas) - len(shown),
            )
        )
    return tuple(nodes)


def text_of(asked: Asked) -> str:
    """Documents, in the order in which they are created; "" if nothing was rehearsed.

    Names that are taken get a number. A template that exists and is not changed is named, not written again.
    """
    if asked.workload is None:
        return ""
    if asked.about == "text" and not asked.changes.any and asked.replicas == 1:
        return asked.text
    return "\n---\n".join(map(dump, _written(asked, asked.workload))) + "\n"


def _written(asked: Asked, workload: Workload) -> Iterator[dict[str, Any]]:
    entries = workload.pod.spec.resource_claims
    if [(one.name, one.resource_claim_name) for one in entries] == [(ONLY, ONLY)]:  # the pod was made up for a claim
        only = workload.own[ONLY]
        name = only.metadata.name or only.metadata.generate_name.rstrip("-") or ONLY
        yield _claim(only, _free(CLAIMS, only.metadata.namespace, name), written_anew(only, ONLY, asked.changes))
        return
    new_entries = list[PodResourceClaim]()
    for entry in entries:
        claim, namespace = workload.claims.get(entry.name), workload.pod.metadata.namespace
        if claim is None or not (asked.about == "text" or asked.changes.concern(entry.name)):
            new_entries.append(entry)
            continue
        spec = written_anew(claim, entry.name, asked.changes)
        if entry.resource_claim_template_name:
            name = _free(TEMPLATES, namespace, entry.resource_claim_template_name)
            yield {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaimTemplate",
                "metadata": {"name": name, "namespace": namespace},
                "spec": {"spec": codec.to_builtins(spec)},
            }
            new_entries.append(structs.replace(entry, resource_claim_template_name=name))
        else:
            name = _free(CLAIMS, namespace, entry.resource_claim_name or ONLY)
            yield _claim(claim, name, spec)
            new_entries.append(structs.replace(entry, resource_claim_name=name))
    pod = workload.changed(asked.changes).pod  # with its tolerations
    document = manifest(structs.replace(pod, spec=structs.replace(pod.spec, resource_claims=tuple(new_entries))))
    taken = {one.name for one in objects.list(kind(PODS), namespace=pod.metadata.namespace).items}
    for _ in range(min(asked.replicas, WRITTEN)):
        name = free_name(pod.metadata.name or pod.metadata.generate_name.rstrip("-"), taken)
        taken.add(name)
        yield {**document, "metadata": {**document["metadata"], "name": name}}


def _claim(claim: ResourceClaim, name: str, spec: ResourceClaimSpec) -> dict[str, Any]:
    document = manifest(structs.replace(claim, spec=spec))
    return {**document, "metadata": {"name": name, "namespace": claim.metadata.namespace}}


def _free(resource: str, namespace: str, name: str) -> str:
    return free_name(name, {one.name for one in objects.list(kind(resource), namespace=namespace).items})


#: (the person, the name that the page gave it)
Run = tuple[str, str]


class Stopped(Exception):
    """The person does not want the answer any more."""


class Progress:
    """The rehearsals of this process that a page waits for; any thread may ask.

    A rehearsal of another process is unknown here, and its page shows that it goes on without saying how far.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._placed: OrderedDict[Run, int] = OrderedDict()
        self._stopped: set[Run] = set()

    def begin(self, run: Run) -> None:
        with self._lock:
            self._placed[run] = 0
            while len(self._placed) > REMEMBERED:
                self._stopped.discard(self._placed.popitem(last=False)[0])

    def tell(self, run: Run, placed: int) -> None:
        """Raises: Stopped."""
        with self._lock:
            if run in self._placed:
                self._placed[run] = placed
                if run in self._stopped:
                    raise Stopped

    def stop(self, run: Run) -> None:
        """It ends the next time it tells how far it is."""
        with self._lock:
            if run in self._placed:
                self._stopped.add(run)

    def placed(self, run: Run) -> int | None:
        """None if the run is unknown."""
        with self._lock:
            return self._placed.get(run)

    def end(self, run: Run) -> None:
        with self._lock:
            self._placed.pop(run, None)
            self._stopped.discard(run)


progress = PerProcess(Progress)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOption:
    """One request as the form changes it. selectors: (number, expression, whether it is left out)."""

    key: str
    entry: str
    name: str
    device_class: str
    count: int
    everything: bool
    selectors: tuple[tuple[int, str, bool], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsalPage:
    """The form as it was sent, with the answer. error: why there is none; shapes: nodes that new ones may be like."""

    asked: Asked
    error: str
    classes: tuple[str, ...]
    shapes: tuple[str, ...]
    result: Result | None
    may_create: bool = False
    most_replicas: int = MOST_REPLICAS
    most_nodes: int = MOST_NODES

    @property
    def of_text(self) -> bool:
        """Whether the subject is typed here; otherwise the address names it."""
        return self.asked.about in ("", "text")

    @property
    def shares_claims(self) -> bool:
        """Whether all replicas would use a claim by its name."""
        workload = self.asked.workload
        return workload is not None and any(one.resource_claim_name for one in workload.pod.spec.resource_claims)

    @property
    def clear_url(self) -> str:
        named = "" if self.of_text else f"?{urlencode({self.asked.about: self.asked.name}, safe='/')}"
        return f"{page_url('what-if')}{named}"

    @property
    def tried(self) -> str:
        return in_words(self.asked.changes, self.asked.workload.claims if self.asked.workload else {})

    @property
    def requests(self) -> Sequence[RequestOption]:
        """The requests that can be changed: of claims without devices."""
        changes = self.asked.changes
        return [
            RequestOption(
                key=(key := f"{entry}/{request.name}"),
                entry=entry,
                name=request.name,
                device_class=changes.classes.get(key, exactly.device_class_name),
                count=changes.counts.get(key, max(exactly.count, 1)),
                everything=exactly.allocation_mode == "All" and key not in changes.counts,
                selectors=tuple(
                    (index + 1, one.cel.expression if one.cel else "", (key, index) in changes.without)
                    for index, one in enumerate(exactly.selectors)
                ),
            )
            for entry, claim in (self.asked.workload.claims if self.asked.workload else {}).items()
            if claim.status.allocation is None
            for request in claim.spec.devices.requests
            if (exactly := request.exactly) is not None
        ]


@listing(NODES, SLICES, CLASSES)
@require_http_methods(["GET", "HEAD", "POST"])
def what_if(request: HttpRequest) -> HttpResponse:
    revision, person = latest_revision(), person_of(request)
    asked = asked_of(request, person)
    answer, error = None, asked.error
    if (workload := asked.workload) is not None and not error:
        begin_costly(request, seconds=TIMEOUT)
        try:
            if asked.nodes and not asked.shape:
                asked = replace(asked, shape=_helpful_shape(asked, workload))
            if asked.nodes and not asked.shape:
                error = "No node here has what it takes, so one more like them would not help."
            else:
                answer = _simulated(asked, workload, _run(request, person))
        except ApiError as refusal:
            error = _sentence(refusal.message)
        except Stopped:
            error = "The rehearsal was stopped."
    page = RehearsalPage(
        asked=asked,
        error=error,
        classes=tuple(DeviceClass.objects.order_by("name").values_list("name", flat=True)[:LISTED]),
        shapes=tuple(Node.objects.order_by("name").values_list("name", flat=True)[:LISTED]),
        result=read_answer(answer, asked, person) if answer else None,
        may_create=person.may_edit(asked.workload.pod.metadata.namespace) if asked.workload else False,
    )
    status = 422 if asked.findings or (error and asked.about) else 200
    context = ValueContext(place="what-if", revision=answer.revision if answer else revision, page=page)
    return render_page(request, "workloads/whatif/page.html", context, status=status)


def _helpful_shape(asked: Asked, workload: Workload) -> str:
    """The node that new ones should be like; "" where one more of none would help. Raises: ApiError."""
    answer = simulate(Question(workload=workload, changes=asked.changes, replicas=asked.replicas), timeout=TIMEOUT / 2)
    if answer.missing is not None and answer.missing.nodes:
        return answer.missing.shape
    if answer.placed and not answer.left:
        return answer.placed[-1].node
    return ""


def _simulated(asked: Asked, workload: Workload, run: Run) -> SimulationAnswer:
    """Raises: ApiError, Stopped."""
    question = Question(
        workload=workload, changes=asked.changes, replicas=asked.replicas, shape=asked.shape, more_nodes=asked.nodes
    )
    if not run[1]:
        return simulate(question)
    progress.value.begin(run)
    try:
        return simulate(question, progress=lambda placed: progress.value.tell(run, placed))
    finally:
        progress.value.end(run)


def _run(request: HttpRequest, person: Person) -> Run:
    return person.name, (request.POST.get("run", "") or request.GET.get("run", ""))[:64]


@listing(NODES, SLICES, CLASSES)
@require_http_methods(["GET", "POST"])
def show_progress(request: HttpRequest) -> JsonResponse:
    """How many replicas of one's own rehearsal are placed by now; null if it is unknown."""
    run = _run(request, person_of(request))
    if request.method == "POST":
        progress.value.stop(run)
    return JsonResponse({"placed": progress.value.placed(run)})
