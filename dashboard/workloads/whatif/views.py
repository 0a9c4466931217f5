"""What if: `/what-if`. Where replicas of a pod or claim would land, and what would have to change. Nothing is written.

`?pod=NAMESPACE/NAME`, `?claim=`, `?template=` say what is rehearsed, `?replicas=`, `?shape=NODE&nodes=N` and what
`whatif_query` reads say how. Text that is pasted is sent by POST; the address of the same question has it compressed as
`?yaml=`, unless it is too long for that. `run=NAME` names the rehearsal, so that the page can
ask `/what-if/progress?run=NAME` how far it is (GET), or stop it (POST).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_http_methods

from claims.kinds.resource_claims import ResourceClaim
from dashboard.kit.middleware import begin_costly
from dashboard.kit.rendering import ValueContext, render_page
from dashboard.kit.rights import listing
from dashboard.workloads.pods import documents as pod_documents
from dashboard.workloads.whatif.answer import Result, read_answer
from dashboard.workloads.whatif.progress import Run, Stopped, progress
from dashboard.workloads.whatif.query import SUBJECTS, Asked, QueryValues, changes_of, in_words, meant, unpacked
from inventory.models import DeviceClass, Node
from manciple.people import Person, demand_sight, person_of
from manciple.store.event_log import latest_revision
from manciple.wire.errors import ApiError
from manciple.wire.quantity import whole
from manciple.wire.resources import CLASSES, NODES, SLICES
from scheduling.rehearsal.simulation import MOST_NODES, MOST_REPLICAS, TIMEOUT, SimulationAnswer, simulate
from scheduling.rehearsal.workload import Changes, NotRehearsable, of_documents

#: Nodes and classes that are listed.
LISTED = 1_000


@listing(NODES, SLICES, CLASSES)
@require_http_methods(["GET", "HEAD", "POST"])
def what_if(request: HttpRequest) -> HttpResponse:
    """See the module's docstring."""
    revision = latest_revision()
    person = person_of(request)
    asked = asked_of(request, person)
    answer, error = None, asked.error
    if asked.workload is not None:
        begin_costly(request, seconds=TIMEOUT)
        try:
            answer = _simulated(asked, _run(request, person))
        except ApiError as refusal:
            error = _sentence(refusal.message)
        except Stopped:
            error = "The rehearsal was stopped."
    page = RehearsalPage(
        asked=asked,
        error=error,
        requests=tuple(_request_options(asked)),
        classes=tuple(DeviceClass.objects.order_by("name").values_list("name", flat=True)[:LISTED]),
        shapes=tuple(Node.objects.order_by("name").values_list("name", flat=True)[:LISTED]),
        result=read_answer(answer, asked, person) if answer else None,
        may_create=person.may_edit(asked.workload.pod.metadata.namespace) if asked.workload else False,
    )
    status = 422 if asked.findings or (error and asked.about) else 200
    context = ValueContext(place="what-if", revision=answer.revision if answer else revision, page=page)
    return render_page(request, "workloads/whatif/page.html", context, status=status)


@listing(NODES, SLICES, CLASSES)
@require_http_methods(["GET", "POST"])
def show_progress(request: HttpRequest) -> JsonResponse:
    """How many replicas of one's own rehearsal are placed by now; null where nothing is known of it."""
    run = _run(request, person_of(request))
    if request.method == "POST":
        progress.value.stop(run)
    return JsonResponse({"placed": progress.value.placed(run)})


def _run(request: HttpRequest, person: Person) -> Run:
    named = request.POST.get("run", "") or request.GET.get("run", "")
    return person.name, named[:64]


def _simulated(asked: Asked, run: Run) -> SimulationAnswer:
    """Raises: ApiError, Stopped."""
    if not run[1]:
        return simulate(asked.question)
    progress.value.begin(run)
    try:
        return simulate(asked.question, progress=lambda placed: progress.value.tell(run, placed))
    finally:
        progress.value.end(run)


# The question --------------------------------------------------------------------------------------------------------


def asked_of(request: HttpRequest, person: Person) -> Asked:
    """What the request asks for, as far as the person may ask."""
    query: QueryValues = request.POST if request.method == "POST" else request.GET
    asked = Asked(
        replicas=_number(query.get("replicas", ""), 1, 1, MOST_REPLICAS),
        nodes=_number(query.get("nodes", ""), 0, 0, MOST_NODES),
        shape=query.get("shape", "").strip(),
    )
    sent = query.get("yaml", "")
    text = sent.replace("\r\n", "\n") if request.method == "POST" else unpacked(sent)
    if text.strip():
        return _of_text(replace(asked, about="text", text=text), person, changes_of(query))
    about = next((name for name in SUBJECTS if query.get(name, "")), "")
    if not about:
        return asked
    name = query.get(about, "")
    asked = replace(asked, about=about, name=name)
    namespace, _, short = name.partition("/")
    demand_sight(request, namespace, f"{about} {name}")
    try:
        workload = SUBJECTS[about](namespace, short)
    except ApiError as refusal:
        return replace(asked, error=_sentence(refusal.message))
    return replace(asked, workload=workload, changes=meant(changes_of(query), workload.claims))


def _of_text(asked: Asked, person: Person, changes: Changes) -> Asked:
    reading = pod_documents.read(asked.text, namespace=_namespace(person))
    pod_documents.validate(reading)
    if reading.problems:
        return replace(asked, findings=tuple(reading.findings))
    unseen = next((one for one in reading.objects if not person.sees(one.metadata.namespace)), None)
    if unseen is not None:
        hidden = unseen.metadata.namespace
        return replace(asked, error=f"You do not see namespace {hidden}, so nothing can be rehearsed in it.")
    try:
        workload = of_documents([one.kind.prepare_create(one.object) for one in reading.documents])
    except NotRehearsable as problem:
        return replace(asked, error=str(problem))
    except ApiError as refusal:
        return replace(asked, error=_sentence(refusal.message))
    return replace(asked, workload=workload, changes=meant(changes, workload.claims))


def _namespace(person: Person) -> str:
    """Of what names none: one that they see."""
    return "default" if person.sees("default") else min(person.namespaces or {"default"})


def _number(text: str, default: int, least: int, most: int) -> int:
    number = whole(text)
    return default if number is None else min(max(number, least), most)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"


# The page ------------------------------------------------------------------------------------------------------------


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
    """The form as it was asked, with the answer. error: why there is none."""

    asked: Asked
    error: str
    requests: tuple[RequestOption, ...]
    classes: tuple[str, ...]
    shapes: tuple[str, ...]  # nodes that new ones may be like
    result: Result | None
    may_create: bool = False
    most_replicas: int = MOST_REPLICAS
    most_nodes: int = MOST_NODES

    @property
    def of_text(self) -> bool:
        """Whether what is rehearsed is typed here; otherwise the address names it."""
        return self.asked.about in ("", "text")

    @property
    def clear_url(self) -> str:
        return "/what-if" if self.of_text else f"/what-if?{self.asked.about}={self.asked.name}"

    @property
    def tried(self) -> str:
        """What is changed about it, in words."""
        claims = self.asked.workload.claims if self.asked.workload else {}
        return in_words(self.asked.changes, requests=sum(len(one.spec.devices.requests) for one in claims.values()))


def _request_options(asked: Asked) -> list[RequestOption]:
    found = []
    for entry, claim in (asked.workload.claims if asked.workload else {}).items():
        if claim.status.allocation is None:
            found += _options_of(entry, claim, asked.changes)
    return found


def _options_of(entry: str, claim: ResourceClaim, changes: Changes) -> list[RequestOption]:
    found = []
    for request in claim.spec.devices.requests:
        if (exactly := request.exactly) is None:
            continue
        key = f"{entry}/{request.name}"
        everything = exactly.allocation_mode == "All" and key not in changes.counts
        found.append(
            RequestOption(
                key=key,
                entry=entry,
                name=request.name,
                device_class=changes.classes.get(key, exactly.device_class_name),
                count=changes.counts.get(key, max(exactly.count, 1)),
                everything=everything,
                selectors=tuple(
                    (index + 1, one.cel.expression if one.cel else "", (key, index) in changes.without)
                    for index, one in enumerate(exactly.selectors)
                ),
            )
        )
    return found
