"""The pages of pods: the list, a pod in tabs, creating one, deleting and replacing it."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from urllib.parse import urlencode

import yaml
from django.conf import settings
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from claims.causes.causes import OfOthers
from claims.causes.messages import clause
from claims.devices.cache import read_devices
from claims.kinds import pod_groups
from claims.kinds.pods import Pod
from claims.kinds.resource_claims import ResourceClaimTemplate, ResourceClaimTemplateSpec
from claims.models import Pod as PodRow
from claims.pod_claims import has_group
from dashboard.capacity.quotas import quotas_refusing
from dashboard.kit.differences import dump
from dashboard.kit.guards import namespaced
from dashboard.kit.lists import Filter, PageOfRows, Table, bulk_acts, is_file, state_tabs
from dashboard.kit.meters import IdleList, MeterCharts, read_idle
from dashboard.kit.notifying import notify_url
from dashboard.kit.preferences import opens_as_usual
from dashboard.kit.previews import ActionPreview, show_preview
from dashboard.kit.rendering import ListContext, PageContext, TemplateContext, ValueContext, render_page, show_list
from dashboard.templatetags.kit import claim_url, counted, page_url, pod_url, template_url, workload_url
from dashboard.tools.objects import TAB, ShownHistory, history_of
from dashboard.workloads import whatif
from dashboard.workloads.changes import as_query, as_text, changes_of, meant
from dashboard.workloads.owners import Owner, may_extend, owner_of
from dashboard.workloads.pods import actions, forms, queries
from dashboard.workloads.pods.actions import pages_above, pods_url, stored_pod
from dashboard.workloads.pods.composer import FIELDS, JOB, compose
from dashboard.workloads.pods.forms import Example, PodForm, Reading
from dashboard.workloads.pods.queries import (
    STATES,
    ClaimLine,
    ContainerLine,
    Conversation,
    Log,
    Moment,
    PodLine,
    PodQuery,
    Terminal,
)
from dashboard.workloads.pods.why import PodVerdict, Why, read_stay, read_why
from insight.advice import Subject, advise
from insight.class_summary import ClassStock, read_stock
from insight.class_traits import traits_of
from insight.start_estimates import QueuePlace, end_of, estimate_new, limit_warning, read_queue
from inventory.models import DeviceClass
from inventory.reachability import lost_nodes
from manciple.api.auditing import only_checks
from manciple.durations import moment
from manciple.gaps import NotEnoughKnown
from manciple.mirror.steering.telling import SteeringTold, told_of
from manciple.notifications.models import Happening
from manciple.people import Person, demand_edit, demand_sight, denied, person_of
from manciple.store import objects, sql
from manciple.store.event_log import latest_revision
from manciple.store.objects import decoded
from manciple.wire import codec
from manciple.wire.base import ApiObject
from manciple.wire.errors import ApiError, NotFound
from manciple.wire.resources import CLAIMS, PODS, TEMPLATES, kind
from scheduling.models import QueuedPod
from scheduling.rehearsal.departures import what_if_gone
from scheduling.rehearsal.explanations import explain_pod
from scheduling.rehearsal.quota_refusals import refused
from scheduling.rehearsal.repairs import UNKNOWN, read_mendings
from scheduling.rehearsal.simulation import Placed, try_one
from scheduling.rehearsal.workload import NotRehearsable, Workload, of_documents, of_pod, spoken
from workloads.kinds.jobs import Job

#: Pods on one page of the list.
PAGE = 100
#: Rows that a CSV file reads at a time.
BATCH = 1000
#: Events beside the reasons; the tab has all of them.
SHOWN_BESIDE = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class PodsContext(ListContext):
    """waits_for: what the pods that are shown wait for, if the address names it; of_workload: what made them, if it
    names that; waiting: how many wait.
    """

    query: PodQuery
    waits_for: str
    of_workload: str
    waiting: str
    may_create: bool


@namespaced()
@require_safe
@opens_as_usual
def list_pods(request: HttpRequest) -> HttpResponse:
    revision, query, person = latest_revision(), PodQuery.read(request), person_of(request)
    seen = PodRow.objects.restrict(person)
    mended = read_mendings() if query.reason else UNKNOWN
    in_every_state = query.in_every_state(seen, mended)
    unreachable = lost_nodes(datetime.now(UTC))
    counts = queries.count_states(in_every_state, unreachable)
    page = PageOfRows(counts.get(query.state, 0) if query.state else sum(counts.values()), PAGE, query.page)
    rows = query.in_order(in_every_state, unreachable)
    places = read_queue(datetime.now(UTC)) if queries.OF_QUEUE & {*query.cols} else {}
    namespaces = seen.order_by("namespace").values_list("namespace", flat=True).distinct()
    table = Table[PodLine](
        id="pods-list",
        topics="pods: nodes",
        title="Pods",
        css="stack pods",
        query=query,
        columns=queries.COLUMNS if is_file(request) else queries.columns_of(query.state),
        read=lambda part: (
            line
            for some in sql.chunks(rows.iterator(BATCH) if part == slice(None) else rows[part], BATCH)
            for line in queries.read_lines(some, unreachable, person, places)
        ),
        acts=bulk_acts(PODS, "delete") if person.may_somewhere("delete", PODS) else (),
        page=page,
        filters=(
            Filter("q", "Name", query.text, hint="A part of the name"),
            Filter.of_namespaces(query.namespace, namespaces),
            Filter("node", "Node", query.node, hint="On node"),
        ),
        tabs=state_tabs(query, {}, [state for state in STATES if counts.get(state) or state == query.state], counts),
    )
    waiting = counts.get("Waiting", 0)
    context = PodsContext(
        place="pods",
        revision=revision,
        query=query,
        waits_for=query.in_common(mended, person),
        of_workload=query.workload,
        table=table,
        waiting=f", {waiting} {'waits' if waiting == 1 else 'wait'}" if waiting else "",
        may_create=may_create(person),
    )
    return show_list(request, "workloads/pods/list.html", context)


def may_create(person: Person) -> bool:
    """Whether there is a namespace in which they may create pods."""
    return person.may_somewhere("create", PODS)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodContext(PageContext):
    """refusing: quotas that keep it without claims; latest: the last of `moments`; placement: why its node was chosen.
    steered: what this mirror did for its placement.

    extend_url: where the time limit of its Job is extended, "" for who may not.
    tabs: (name, word, number beside it or ""). conversation, why, log, terminal, text, history: of the `tab` that shows
    them. verdict: why it waits, or why it still exists.
    """

    pod: Pod
    namespace: str
    name: str
    state: str
    icon: str
    waits: bool
    gang: str
    owner: Owner | None
    queue_place: QueuePlace | None
    extend_url: str
    placement: str
    steered: SteeringTold | None
    unreachable: bool
    tried: str
    queued: QueuedPod | None
    tabs: Sequence[tuple[str, str, str]]
    tab: str
    claims: Sequence[ClaimLine]
    refusing: Sequence[str]
    containers: Sequence[ContainerLine]
    moments: Sequence[Moment]
    latest: Sequence[Moment]
    verdict: PodVerdict | None
    may_edit: bool
    what_if_url: str
    notify_url: str  # "" of a pod that does not wait, and for who is notified already
    topics: str
    conversation: Conversation | None
    why: Why | None
    log: Log | None
    terminal: Terminal | None
    text: str
    history: ShownHistory | None
    meters: MeterCharts | None
    idle: IdleList | None


@namespaced()
@require_safe
def show_pod(request: HttpRequest, namespace: str, name: str) -> HttpResponse:
    """`/pods/NAMESPACE/NAME`, in parts that `?tab=` names.

    why: why it waits, with a rehearsal if the address has changes (`changes_of`); only while it waits
    claims: its claims and their devices, its containers with the devices that they see
    events, logs, terminal, yaml, history
    """
    person = demand_sight(request, namespace, f"Pod {name}")
    try:
        explained = explain_pod(namespace, name)
    except NotFound as missing:
        raise Http404(f"Pod {name} does not exist in namespace {namespace}.") from missing
    pod = explained.about
    assert isinstance(pod, Pod)  # noqa: S101 - explain_pod explains pods
    now = datetime.now(UTC)
    unreachable = bool(pod.spec.node_name) and pod.spec.node_name in lost_nodes(now)
    claims = queries.read_claims(pod, explained.extended, unreachable=unreachable)
    moments = queries.read_moments(pod, [claim.name for claim in claims])
    waits = explained.waits
    tabs = [
        *([("why", "Why it waits", "")] if waits else []),
        ("claims", "Claims" if waits else "Claims and containers", str(len(claims) or "")),
        ("events", "Events", str(len(moments))),
        *([("logs", "Logs", "")] if person.may("get", "pods/log", namespace, name) else []),
        *([("terminal", "Terminal", "")] if pod.spec.node_name and _may_enter(person, namespace, name) else []),
        ("yaml", "YAML", ""),
        (TAB, "History", ""),
    ]
    tab = next((one for one, _, _ in tabs if one == request.GET.get("tab")), tabs[0][0])
    changes, by_others = changes_of(request.GET), isinstance(explained.cause, OfOthers)
    why = read_why(explained, person, changes) if tab == "why" else None
    if explained.state == "Schedulable" and explained.cause is None:
        state = "Being scheduled"
    elif waits or explained.state == "Deleting":
        state = "Waiting" if waits else explained.state
    else:
        state = queries.state_of(
            deleting=False, phase=pod.status.phase, node=pod.spec.node_name, unreachable=unreachable
        )
    queued = QueuedPod.objects.filter(uid=pod.metadata.uid).first()
    question = [("pod", f"{namespace}/{name}"), *as_query(changes)]
    # In a mirror the attempts are ours, not those of its scheduler.
    attempts = queued.attempts if queued is not None and waits and not settings.MIRROR else 0
    topics = f"pod:{namespace}/{name} claims:{namespace} events:{namespace}"
    if pod.spec.node_name:
        topics += f" node:{pod.spec.node_name}"
    owner = owner_of(pod, person) if pod.metadata.owner_references else None
    context = PodContext(
        place="pods",
        revision=explained.revision,
        pod=pod,
        namespace=namespace,
        name=name,
        state=state,
        icon=STATES.get(state, "i-wait"),
        waits=waits,
        gang=_gang(pod),
        owner=owner,
        queue_place=read_queue(now).get(pod.metadata.uid) if waits and not by_others else None,
        extend_url=f"{owner.url}/extend" if owner is not None and may_extend(person, owner) else "",
        placement=explained.placement,
        steered=told_of(pod) if settings.MIRROR else None,
        unreachable=unreachable,
        tried={0: "", 1: "once"}.get(attempts, f"{attempts} times"),
        queued=queued,
        tabs=tabs,
        tab=tab,
        claims=claims,
        refusing=quotas_refusing(person, namespace, name) if any(not claim.name for claim in claims) else (),
        containers=queries.container_lines(pod, claims, unreachable=unreachable),
        moments=moments,
        latest=[one for one in moments if moment(one.at)][-SHOWN_BESIDE:],
        verdict=why.verdict if why else read_stay(pod, claims, moments, now, person, unreachable=unreachable),
        may_edit=person.may_edit(namespace),
        notify_url=notify_url(person, Happening.POD_STARTED, namespace) if waits else "",
        what_if_url=f"{page_url('what-if')}?{urlencode(question, safe='/:')}",
        topics=f"{topics} pool: slices classes nodes" if waits else topics,  # almost anything may help a waiting pod
        conversation=queries.read_conversation(pod, claims) if tab in ("why", "claims") else None,
        why=why,
        log=queries.read_log(pod, request.GET) if tab == "logs" else None,
        terminal=queries.read_terminal(pod, request.GET) if tab == "terminal" else None,
        text=_as_yaml(pod) if tab == "yaml" else "",
        history=history_of(request, [pod.metadata.uid], namespace=namespace) if tab == TAB else None,
        meters=queries.read_meters(namespace, [claim.name for claim in claims], request.GET)
        if tab == "claims"
        else None,
        idle=_idle(person, namespace, name) if pod.spec.node_name else None,
    )
    return render_page(request, "workloads/pods/page.html", context)


def _may_enter(person: Person, namespace: str, name: str) -> bool:
    """Whether the API would let them run commands in it: a WebSocket takes both verbs."""
    return all(person.may(verb, "pods/exec", namespace, name) for verb in ("create", "get"))


def _idle(person: Person, namespace: str, name: str) -> IdleList | None:
    """Of the claims that are reserved for it."""
    where = {"claim__namespace": namespace, "claim__reservations__name": name, "claim__reservations__resource": PODS}
    return read_idle(person, datetime.now(UTC), most=SHOWN_BESIDE, **where)


def _gang(pod: Pod) -> str:
    """`gang train of 4`, `group train`: what it is placed together with; "" for a pod by itself."""
    if not has_group(pod):
        return ""
    name = pod_groups.shown_name(pod_groups.gang_name(pod))
    if pod.spec.scheduling_group or not name:
        return name and f"group {name}"
    return f"gang {name} of {pod.metadata.annotations.get(pod_groups.GANG_SIZE, '')}"


def _as_yaml(pod: Pod) -> str:
    """The object as `kubectl get -o yaml` shows it: without managedFields, with fields that our types do not know."""
    stored = objects.get(kind(PODS), *pod.key)
    document = json.loads(stored.text) if stored is not None else codec.to_builtins(pod)
    document.get("metadata", {}).pop("managedFields", None)
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=10_000)


@namespaced()
@require_http_methods(["GET", "HEAD", "POST"])
def delete_pod(request: HttpRequest, namespace: str, name: str) -> HttpResponse:
    """A GET shows what would follow, also in a dialog on the pod's page; a POST deletes it.

    With `?force=1` it is deleted at once, without waiting for its node.
    """
    demand_sight(request, namespace, f"Pod {name}")
    person = demand_edit(request, f"delete pods in namespace {namespace}", namespace, resource=PODS)
    revision, pod = latest_revision(), stored_pod(namespace, name)
    error, by_force = "", request.GET.get("force", "") == "1"
    if request.method == "POST":
        error = actions.delete(pod, request.POST.get("uid", ""), person, by_force=by_force)
        if not error:
            stays = pod.spec.node_name and not by_force
            messages.success(request, f"Pod {name} is being deleted." if stays else f"Deleted pod {name}.")
            return redirect(pods_url(namespace))  # its own page may be gone already
    preview = ActionPreview(
        action="Delete",
        noun="pod",
        uid=pod.metadata.uid,
        above=pages_above(namespace, name),
        effect=actions.effect_of_deletion([pod], what_if_gone(pod), person, by_force=by_force),
        error=error,
        by_force=by_force,
        query="?force=1" if by_force else "",
    )
    return show_preview(request, preview, place="pods", revision=revision)


@namespaced()
@require_http_methods(["GET", "HEAD", "POST"])
def replace_pod(request: HttpRequest, namespace: str, name: str) -> HttpResponse:
    """`/pods/NAMESPACE/NAME/replace?count....=...`: a waiting pod, created anew with changes (`changes_of`).

    A GET shows the differences and where the pod would start, a POST does it.
    """
    demand_sight(request, namespace, f"Pod {name}")
    person = demand_edit(request, f"replace pods in namespace {namespace}", namespace, resource=PODS)
    revision, pod, error = latest_revision(), stored_pod(namespace, name), ""
    try:
        workload = of_pod(pod)
        changes = meant(changes_of(request.GET), workload.claims)
        found = actions.replacement(pod, workload, changes)
        if request.method == "POST":
            error = actions.replace(pod, request.POST.get("uid", ""), found, person)
            if not error:
                messages.success(request, f"Replaced pod {name}.")
                return redirect(pod_url(namespace, name))
        effect = actions.effect_of_replacement(pod, workload, changes, found, person)
    except ApiError as refusal:
        raise Http404(refusal.message) from refusal
    preview = ActionPreview(
        action="Replace",
        noun="pod",
        uid=pod.metadata.uid,
        above=pages_above(namespace, name),
        effect=effect,
        error=error,
        query=f"?{as_text(changes)}",
    )
    return show_preview(request, preview, place="pods", revision=revision)


@dataclass(frozen=True, kw_only=True)
class NewPodPage:
    """Pods by a form with its YAML, or (`text`) as YAML alone. namespaces: in which the person may create; reading: of
    what was sent."""

    from_form: bool
    form: PodForm
    namespaces: Sequence[str]
    namespace: str
    text: str
    reading: Reading | None
    started: PodVerdict | None
    examples: Sequence[Example] = forms.EXAMPLES

    @cached_property
    def stock(self) -> Sequence[ClassStock]:
        return read_stock(datetime.now(UTC))

    @property
    def checked(self) -> str:
        """How many objects passed a dry run; "" if anything is wrong, or nothing was tried."""
        return counted(len(self.reading.documents), "object") if self.reading and not self.reading.problems else ""

    @property
    def title(self) -> str:
        """What is created: a what-if and an editor also lead here with claims that no pod uses yet."""
        if self.from_form and self.form.text("kind") == JOB:
            return "New Job"
        written = self.reading or forms.read(self.text, namespace=self.namespace)
        kinds = {one.kind for one in written.objects}
        if "Job" in kinds:
            return "New Job"
        if "Pod" in kinds or not kinds:
            return "New pod"
        return "New claim" if "ResourceClaim" in kinds else "New claim template"

    @property
    def written(self) -> str:
        return forms.as_yaml(self.form)

    @property
    def unlisted_class(self) -> str:
        """The chosen class, if it is not among those that can be chosen."""
        chosen = self.form.text("device_class")
        return "" if chosen in {one.name for one in self.stock} else chosen


@namespaced()
@require_http_methods(["GET", "HEAD", "POST"])
def new_pod(request: HttpRequest) -> HttpResponse:
    """`/pods/new`, by a form with its YAML, or as YAML alone (`?from=yaml`); `?ns=` and `?kind=` preset it.

    The text, which then is alone unless `?from=form` asks for both, is filled by `?example=NAME`, by
    `?like=NAMESPACE/NAME`, a pod to duplicate, and by `?rehearsed=1` with the question of a what-if. Checking goes all
    the way of creating, in a transaction that is rolled back; creating checks first, so that of several documents all
    are created or none, unless somebody else is faster.
    """
    person = _creator(request)
    if request.method != "POST":
        return _show_new(request, person, text=_first_text(request, person))
    form, namespace = _posted_form(request, person), request.POST.get("namespace", "")
    from_form, action = request.POST.get("from") == "form", request.POST.get("action", "create")
    text = forms.as_yaml(form) if from_form else _sent_text(request, "yaml")
    if from_form and action == "yaml":
        return _show_new(request, person, text=text, namespace=form.text("namespace"))
    if from_form and action == "apply":
        return _show_new(request, person, form=form)
    wrong = from_form and form.follows and not form.is_valid()
    reading = forms.check(text, namespace, person)
    if not wrong and not reading.problems and action == "create":
        created, reading.problems = forms.create_all(reading.documents, person)
        names = ", ".join(f"{one.kind} {one.metadata.name}" for one in created)
        if not reading.problems:
            messages.success(request, f"Created {names}.")
            return redirect(_page_of(created))
        if created:
            messages.warning(request, f"Only {names} {'was' if len(created) == 1 else 'were'} created.")
    status = 422 if wrong or reading.problems else 200
    if from_form:
        if form.follows:
            forms.complain(form, reading.problems)
        return _show_new(request, person, form=form, reading=None if wrong else reading, status=status)
    return _show_new(request, person, text=text, reading=reading, status=status, namespace=namespace)


@namespaced()
@require_safe
def show_completions(request: HttpRequest) -> JsonResponse:
    return JsonResponse(forms.completions(person_of(request)))


@namespaced()
@require_POST
def show_diagnostics(request: HttpRequest) -> JsonResponse:
    """What is wrong with `text`: all that creating it would say, or (`?for=what-if`) that its kinds' rules say."""
    only_checks()
    text = request.POST.get("text", "").replace("\r\n", "\n")
    if request.GET.get("for") == "what-if":
        reading = forms.read(text, namespace="default")
        forms.validate(reading)
    else:
        reading = forms.check(text, request.POST.get("namespace", ""), person_of(request))
    return JsonResponse(reading.findings, safe=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenContext(TemplateContext):
    """started: where the pod would start; form: with the YAML that both sides give."""

    started: PodVerdict | None
    form: PodForm


@namespaced()
@require_POST
def show_written(request: HttpRequest) -> HttpResponse:
    """The form and its YAML in step, and where the pod would start, as somebody changes either."""
    person = _creator(request)
    form = _posted_form(request, person)
    context = WrittenContext(started=_start_of_form(form, person), form=form)
    return render_page(request, "workloads/pods/written.html", context)


def _creator(request: HttpRequest) -> Person:
    person = person_of(request)
    if not may_create(person):
        raise denied(request, "create pods", "create", PODS)
    return person


def _posted_form(request: HttpRequest, person: Person) -> PodForm:
    return _composed_form(person, forms.sent(request.POST), _sent_text(request, "yaml"), _sent_text(request, "base"))


def _sent_text(request: HttpRequest, name: str) -> str:
    return request.POST.get(name, "").replace("\r\n", "\n")


def _composed_form(person: Person, values: dict[str, str], text: str, base: str, *, bound: bool = True) -> PodForm:
    """The form in step with its YAML (`composer`)."""
    traits, existing = traits_of(read_devices()), dict[str, ResourceClaimTemplateSpec]()
    if values.get("model") and not values.get("device_class"):
        classes = DeviceClass.objects.values_list("name", flat=True)
        values["device_class"] = forms.class_of_model(values["model"], traits, classes)
    namespace = values.get("namespace", "")
    if values.get("devices") == "class" and namespace in forms.editable_namespaces(person):
        _, stored = objects.listed(TEMPLATES, ResourceClaimTemplate, namespace=namespace)
        existing = {one.metadata.name: one.spec for one in stored}
    composed = compose(
        values, text, base, traits=traits, settle=lambda template: forms.settle_template(template, existing)[0]
    )
    form = PodForm.of(composed, bound=bound)
    form.traits = traits
    form.reuses_template = bool(composed.template and forms.settle_template(composed.template, existing)[1])
    return form


def _filled_in(form: PodForm, person: Person) -> PodForm:
    """The same with a free name and an image where these are still blank: for a preview."""
    blank = {"name": f"new-{secrets.token_hex(4)}", "image": "example.com/image"}
    filled = {name: value for name, value in blank.items() if not form.text(name)}
    if not filled:
        return form
    text = forms.as_yaml(form)
    return _composed_form(person, {name: form.text(name) for name in FIELDS} | filled, text, text)


def _start_of_form(form: PodForm, person: Person) -> PodVerdict | None:
    """For the values as they stand: where its pod would start, or all that is wrong with them.

    Name and image may still be blank. None before the source of the devices is chosen.
    """
    source = {"class": "device_class", "resource": "resource", "template": "template"}.get(form.text("devices"))
    if source and not form.text(source):
        return None
    only_checks()
    if not form.follows:
        return _start(forms.check(forms.as_yaml(form), form.text("namespace"), person), person)
    filled = _filled_in(form, person)
    filled.full_clean()
    reading = forms.check(forms.as_yaml(filled), "", person)
    forms.complain(filled, reading.problems)
    wrong = tuple(
        f"{filled[name].label}: {text}" if name in filled.fields else str(text)
        for name, texts in filled.errors.items()
        for text in texts
    )
    if wrong or reading.problems:
        return PodVerdict(good=False, title="It cannot be created.", problems=wrong)
    return _start(reading, person)


def _start(reading: Reading, person: Person) -> PodVerdict | None:
    """What the scheduler would do with the pod now, or with a Job's first. None without either."""
    if reading.problems or any(not person.sees(one.metadata.namespace) for one in reading.objects):
        return None
    documents = reading.rehearsable
    if not any(isinstance(one, Pod) for one in documents):
        return None
    try:
        workload = of_documents(documents)
        answer = refused(workload) or try_one(workload)
    except (NotRehearsable, NotEnoughKnown) as why:
        return PodVerdict(good=False, title="Where it would start is unknown.", text=str(why))
    except ApiError as refusal:
        return PodVerdict(good=False, title=f"It would wait because {refusal.message.rstrip('.')}.")
    if isinstance(answer, Placed):
        devices = ", ".join(f"`{one.device}`" for one in answer.devices)
        return PodVerdict(good=True, title=f"Starts now on `{answer.node}`{f', with {devices}' if devices else ''}.")
    because = f" because {spoken(clause(answer))}" if answer else ""
    subject = Subject(namespace=workload.pod.metadata.namespace, workload=workload, cause=answer)
    return PodVerdict(
        good=False,
        title=f"It would wait{because}.",
        text=_limit_warning(reading, workload),
        next_step=advise(subject).sentence(person.sees),
    )


def _limit_warning(reading: Reading, workload: Workload) -> str:
    """That the time limit of the Job that somebody writes would end before, or soon after, its first pod starts."""
    limit = next((one.spec.active_deadline_seconds for one in reading.objects if isinstance(one, Job)), None)
    if limit is None:
        return ""
    now = datetime.now(UTC)
    starts_at = estimate_new(workload.pod, workload.claims.values(), now)
    return limit_warning(limit, end_of(now, limit), starts_at, now)


def _first_text(request: HttpRequest, person: Person) -> str:
    if like := request.GET.get("like", ""):
        namespace, _, name = like.partition("/")
        stored = objects.get(kind(PODS), namespace, name) if person.sees(namespace) else None
        if stored is None:
            return ""
        document = forms.manifest(decoded(stored, Pod))
        taken = PodRow.objects.filter(namespace=namespace).values_list("name", flat=True)
        document["metadata"]["name"] = forms.free_name(name, set(taken))
        return f"{dump(document)}\n"
    if request.GET.get("rehearsed", ""):
        return whatif.text_of(whatif.asked_of(request, person))
    for resource, name in ((CLAIMS, request.GET.get("claim", "")), (TEMPLATES, request.GET.get("template", ""))):
        if name:
            class_name = DeviceClass.objects.order_by("name").values_list("name", flat=True).first() or "CLASS"
            namespace = _namespace(request, forms.editable_namespaces(person))
            return forms.document_of(kind(resource).kind, name, namespace=namespace, device_class=class_name)
    name = request.GET.get("example", "")
    example = next((one for one in forms.EXAMPLES if one.name == name), None)
    if example is None:
        return ""
    class_name = DeviceClass.objects.order_by("name").values_list("name", flat=True).first() or "CLASS"
    return example.text(namespace=_namespace(request, forms.editable_namespaces(person)), device_class=class_name)


def _namespace(request: HttpRequest, editable: Sequence[str], preferred: str = "") -> str:
    """The requested namespace, if the person may create in it; else the first such."""
    wanted = (preferred, request.POST.get("namespace", "") or request.GET.get("ns", ""))
    return next((one for one in (*wanted, *editable) if one in editable), "")


def _show_new(
    request: HttpRequest,
    person: Person,
    *,
    text: str = "",
    form: PodForm | None = None,
    reading: Reading | None = None,
    namespace: str = "",
    status: int = 200,
) -> HttpResponse:
    revision = latest_revision()
    source = request.GET.get("from") or ("yaml" if text else "form")
    from_form = form is not None or (request.method != "POST" and source != "yaml")
    editable = forms.editable_namespaces(person)
    chosen = _namespace(request, editable, namespace)
    given = {} if text else {"kind": request.GET.get("kind", ""), "namespace": chosen, "devices": "class"}
    shown = form or _composed_form(person, given, text if from_form else "", "", bound=False)
    if from_form:
        classes = dict(DeviceClass.objects.values_list("name", "extended_resource_name"))
        shown.offer(forms.read_offers(person, shown.traits, classes))
    started = None
    if from_form and shown.is_bound:
        started = _start_of_form(shown, person)
    elif reading is not None:
        started = _start(reading, person)
    page = NewPodPage(
        from_form=from_form,
        form=shown,
        namespaces=editable,
        namespace=chosen,
        text=text,
        reading=reading,
        started=started,
    )
    context = ValueContext(place="pods", revision=revision, page=page)
    return render_page(request, "workloads/pods/new.html", context, status=status)


def _page_of(created: Sequence[ApiObject]) -> str:
    """The page of a Job, or of the only pod; of several, the list; of none, the claim or template."""
    for job in (one.metadata for one in created if isinstance(one, Job)):
        return workload_url("jobs", job.namespace, job.name)
    pods = [one.metadata for one in created if isinstance(one, Pod)]
    if len(pods) == 1:
        return pod_url(pods[0].namespace, pods[0].name)
    if pods:
        return pods_url(pods[0].namespace)
    last = created[-1]
    address = claim_url if last.kind == "ResourceClaim" else template_url
    return address(last.metadata.namespace, last.metadata.name)
