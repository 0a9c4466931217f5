"""The pages of DeviceClasses: the list, the workbench, YAML, history, deletion.

- `/classes`: every class, how many devices match and in which state they are, and what uses it.
- `/classes/new`, `/classes/c/NAME`: the workbench; `?tab=yaml`, `?tab=history`. What is typed and not saved is in the
  address too (`forms.draft_of`). A POST saves as `kubectl apply` does: prepare, validate, admit, store.
- `/classes/verdicts`, `/classes/completions`, `/classes/diagnostics/…`: what editors ask while a person types; nothing
  is stored.
- `/classes/c/NAME/delete`: GET says what deleting would do; POST does it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.db.models import Func, Q, QuerySet, TextField, Value
from django.db.models.functions import Cast, Replace
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe
from msgspec import structs

from claims.devices.cache import DeviceSnapshot, read_devices
from dashboard.inventory.classes.forms import (
    ClassForm,
    SelectorRow,
    Unreadable,
    complain,
    from_class,
    manifest,
    of_class,
    of_expression,
    of_parameters,
    parse,
    refusals,
    to_class,
)
from dashboard.inventory.classes.queries import ClassRequest, ClassVerdicts, counts, judge, users_of
from dashboard.inventory.classes.workbench import Bench, cel_table, evaluate, pressed, published_devices
from dashboard.inventory.devices.grid import bar_of, in_words
from dashboard.kit import undo
from dashboard.kit.differences import Finding, difference, finding
from dashboard.kit.forms import plain, posted_from
from dashboard.kit.guards import listing
from dashboard.kit.lists import Filter, ListColumn, ListQuery, PageOfRows, Table, bulk_acts, parameter, sorted_by
from dashboard.kit.preferences import opens_as_usual
from dashboard.kit.previews import ActionEffect, ActionPreview, Consequence, not_changed, only_with, show_preview
from dashboard.kit.rendering import ListContext, PageContext, render_page, show_list
from dashboard.templatetags.kit import claim_url, class_url, counted, pod_url, template_url
from dashboard.tools.objects import ShownHistory, history_of
from insight.capacity import expressions_of, waiting_by_class
from insight.how_many_fit import NOT_KNOWN, NOTHING, Count, count, how_many
from insight.selector_matches import judged_devices
from inventory import models
from inventory.kinds.devices import DeviceClass
from manciple.api import verbs
from manciple.people import Person, demand, person_of
from manciple.store import objects
from manciple.store.event_log import latest_revision
from manciple.wire import codec
from manciple.wire.errors import ApiError, Conflict
from manciple.wire.resources import CLASSES, SLICES, Key, kind
from scheduling.cel import CelFeatures
from scheduling.models import QueuedPod
from scheduling.rehearsal.changes import Imagined, what_if_changed

#: Classes on a page of the list.
ROWS = 100
#: Claims and templates that are named before a class is deleted.
NAMED = 8
PAGE, PART = "inventory/classes/page.html", "inventory/classes/answer.html"


@dataclass(frozen=True, slots=True)
class ClassRow:
    """waiting: pods that ask for it; uses: claims that hold devices, claims that wait, templates."""

    name: str
    extended: str
    selectors: tuple[str, ...]
    verdicts: ClassVerdicts
    count: Count
    waiting: int
    uses: tuple[int, int, int]

    @property
    def matched(self) -> int:
        """No claim gets a device through a class with a selector that does not compile."""
        return self.verdicts.matched if self.verdicts.compiles else 0

    @property
    def bar(self) -> list[tuple[str, int]]:
        """(state, devices that match), without zeros."""
        return bar_of(self.count.by_state)

    @property
    def fits(self) -> str:
        return how_many(self.count.fits)

    @property
    def label(self) -> str:
        return self.fits if self.count.fits == NOT_KNOWN and not self.count.devices else in_words(self.count.by_state)

    @property
    def users(self) -> int:
        return sum(self.uses)

    @property
    def used_by(self) -> str:
        """`3 claims, 1 pending claim`."""
        named = zip(self.uses, ("claim", "pending claim", "template"), strict=True)
        return ", ".join(counted(number, noun) for number, noun in named if number)

    @property
    def problems(self) -> list[tuple[str, str]]:
        """(severity, what is wrong with the selectors)."""
        verdicts, problems = self.verdicts, list[tuple[str, str]]()
        if not verdicts.compiles:
            problems.append(("err", "does not compile"))
        if verdicts.failed:
            problems.append(("err", f"errs on {verdicts.failed}"))
        if verdicts.unjudged:
            devices = f"{verdicts.judged:,} of {verdicts.total:,} devices evaluated"
            problems.append(("warn", f"incomplete: {devices}, the selectors take too long"))
        return problems


#: What stands around the expressions of the index, as SQLite and PostgreSQL write JSON.
_AROUND = ('{"cel":{"expression":', '{"cel": {"expression": ', "}}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassQuery(ListQuery):
    """text: a part of the name, the extended resource or an expression."""

    text: str = parameter("q")

    def classes(self) -> QuerySet[models.DeviceClass]:
        classes = models.DeviceClass.objects.all()
        if not self.text:
            return classes
        expressions: Func = Cast("selectors", TextField())
        for around in _AROUND:
            expressions = Replace(expressions, Value(around), Value(""), output_field=TextField())
        matches = Q(name__icontains=self.text) | Q(extended_resource_name__icontains=self.text)
        matches |= Q(expressions__icontains=json.dumps(self.text, ensure_ascii=False)[1:-1])
        return classes.annotate(expressions=expressions).filter(matches)


def _number(title: str, of: Callable[[ClassRow], int]) -> ListColumn[ClassRow]:
    return ListColumn(title=title, css="num", sort=title.lower(), key=of, text=of)


COLUMNS = (
    ListColumn[ClassRow](title="Class", sort="name", key=lambda row: row.name, text=lambda row: row.name),
    ListColumn[ClassRow](title="Selectors", text=lambda row: " && ".join(row.selectors)),
    ListColumn[ClassRow](title="Devices that match", text=lambda row: row.label),
    ListColumn[ClassRow](
        title="Match",
        css="num",
        sort="match",
        key=lambda row: row.matched,
        text=lambda row: f"{row.matched}{' (incomplete)' if row.verdicts.unjudged else ''}",
    ),
    _number("Free", lambda row: row.count.free),
    _number("Fits", lambda row: row.count.fits),
    _number("Waiting", lambda row: row.waiting),
    ListColumn[ClassRow](title="Used by", sort="used", key=lambda row: -row.users, text=lambda row: row.users),
)
#: Sorting by anything else needs all rows: it follows from CEL, the devices and the claims of the moment.
_IN_SQL = {"": "name", "name": "name", "-name": "-name"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassesContext(ListContext):
    """any: whether there is a class at all; total: devices that are published."""

    query: ClassQuery
    any: bool
    total: int
    may_edit: bool


@listing(CLASSES, SLICES)
@require_safe
@opens_as_usual
def list_classes(request: HttpRequest) -> HttpResponse:
    """A handful of queries, whatever the size of the cluster."""
    snapshot = read_devices()
    person, query = person_of(request), ClassQuery.read(request)
    classes = query.classes()
    total = classes.count()
    page = PageOfRows(total, ROWS, query.page) if total > ROWS else PageOfRows()
    order = _IN_SQL.get(query.sort)

    def read(part: slice) -> list[ClassRow]:
        if order:
            return _rows(classes.order_by(order)[part], snapshot, person)
        return sorted_by(COLUMNS, query.sort, _rows(classes.order_by("name"), snapshot, person))[part]

    table = Table(
        id="classes",
        topics="classes slices pool: claims: template: nodes pods:",
        title="Device classes",
        css="stack class-list",
        query=query,
        columns=COLUMNS,
        read=read,
        page=page,
        filters=(Filter("q", "Name or selector", query.text, hint="Name, selector"),),
        acts=bulk_acts(CLASSES, "delete") if person.may("delete", CLASSES) else (),
    )
    context = ClassesContext(
        place="classes",
        revision=snapshot.revision,
        query=query,
        table=table,
        any=total > 0 or (query.narrows and models.DeviceClass.objects.exists()),
        total=len(snapshot.candidates),
        may_edit=person.may("update", CLASSES),
    )
    return show_list(request, "inventory/classes/list.html", context)


def _rows(classes: QuerySet[models.DeviceClass], snapshot: DeviceSnapshot, person: Person) -> list[ClassRow]:
    stored = list(classes.values_list("name", "extended_resource_name", "selectors"))
    uses = counts(person, [name for name, _, _ in stored])
    waiting = waiting_by_class(QueuedPod.objects.waiting().restrict(person)) if stored else {}
    rows = list[ClassRow]()
    for name, extended, selectors in stored:
        texts = expressions_of(selectors)
        verdicts = judge(texts, judged_devices(snapshot.published), reasons=False)
        capacity = NOTHING if verdicts.unjudged or not verdicts.compiles else count(snapshot, texts)
        rows.append(ClassRow(name, extended, texts, verdicts, capacity, waiting.get(name, 0), uses[name]))
    return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassContext(PageContext):
    """Every tab. existing, name: None and "" for a new class; layout: of the page, or of the parts that a script asks
    for.
    """

    place: str = "classes"
    existing: DeviceClass | None
    name: str
    tab: str
    may_edit: bool
    layout: str = PAGE


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchContext(ClassContext):
    """blank_selector: what a script copies; refused: the form could not be saved; outdated: because somebody else saved
    the class since it was opened.
    """

    bench: Bench
    blank_selector: SelectorRow
    refused: bool = False
    outdated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassYamlContext(ClassContext):
    """text: the YAML as typed, if it has errors; else as stored."""

    text: str
    findings: Sequence[Finding]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassHistoryContext(ClassContext):
    history: ShownHistory


@listing(CLASSES, SLICES)
@require_http_methods(["GET", "HEAD", "POST"])
def new_class(request: HttpRequest) -> HttpResponse:
    """The workbench for a class that does not exist yet."""
    if request.method == "POST":
        return _answer_post(request, existing=None)
    demand(request, "change device classes", "update", CLASSES)
    return _show_bench(request, ClassForm().with_query(request.GET), existing=None)


@listing(CLASSES, SLICES)
@require_http_methods(["GET", "HEAD", "POST"])
def edit_class(request: HttpRequest, name: str) -> HttpResponse:
    """The workbench for an existing class, and its other tabs."""
    existing = _stored_class(name)
    if request.method == "POST":
        return _answer_post(request, existing=existing)
    tab = request.GET.get("tab", "")
    if tab == "yaml":
        return _show_yaml(request, existing)
    if tab != "history":
        return _show_bench(request, from_class(existing).with_query(request.GET), existing=existing)
    history = history_of(request, [existing.metadata.uid])
    context = ClassHistoryContext(**_shown(request, existing, tab), history=history)
    return render_page(request, "inventory/classes/history.html", context)


@listing(CLASSES, SLICES)
@require_POST
def check_class(request: HttpRequest) -> HttpResponse:
    """The workbench for the form as it stands; nothing is saved. Pages of people with read-only access send it here."""
    form, existing = ClassForm(request.POST), _find_class(request.POST.get("editing", ""))
    return _show_bench(request, pressed(form, request.POST) or form, existing=existing)


@listing(CLASSES, SLICES)
@require_POST
def show_verdicts(request: HttpRequest) -> HttpResponse:
    """What the page shows around its editors for the form as it stands."""
    existing = _find_class(request.POST.get("editing", ""))
    return _show_bench(request, ClassForm(request.POST), existing=existing, layout=PART)


@listing(CLASSES, SLICES)
@require_safe
def show_completions(_request: HttpRequest) -> JsonResponse:
    """What may follow in an expression, from the published devices: the same for everybody."""
    return JsonResponse({"after": cel_table(published_devices())})


@listing(CLASSES, SLICES)
@require_POST
def show_diagnostics(request: HttpRequest, what: str) -> JsonResponse:
    """What is wrong with `text`, and where."""
    text = request.POST.get("text", "").replace("\r\n", "\n")
    if what == "cel":
        return JsonResponse(of_expression(text, CelFeatures.from_gates()), safe=False)
    if what == "parameters":
        return JsonResponse(of_parameters(text), safe=False)
    if what == "class":
        return JsonResponse(of_class(text, request.POST.get("editing", "")), safe=False)
    raise Http404(what)


@listing(CLASSES, SLICES)
@posted_from("class-edit")
def save_yaml(request: HttpRequest, name: str) -> HttpResponse:
    """Replace the class by what the text describes."""
    person = demand(request, "change device classes", "update", CLASSES)
    existing = _stored_class(name)
    text = request.POST.get("yaml", "").replace("\r\n", "\n")
    try:
        verbs.update(kind(CLASSES), parse(text, name=name), name=name, identity=person.identity)
    except Unreadable as problem:
        return _show_yaml(request, existing, text=text, findings=problem.findings)
    except ApiError as refusal:
        causes = (refusal.details or {}).get("causes")
        said = finding(0, 0, _explained(refusal))
        return _show_yaml(request, existing, text=text, findings=refusals(text, refusal) if causes else [said])
    messages.success(request, f"Saved class {name}.")
    return redirect(f"{class_url(name)}?tab=yaml")


def _find_class(name: str) -> DeviceClass | None:
    stored = objects.get(kind(CLASSES), "", name)
    return codec.decode_text(DeviceClass, stored.text) if stored else None


def _stored_class(name: str) -> DeviceClass:
    """Raises: Http404."""
    existing = _find_class(name)
    if existing is None:
        raise Http404(f"DeviceClass {name} does not exist.")
    return existing


def _shown(request: HttpRequest, existing: DeviceClass | None, tab: str) -> dict[str, Any]:
    """The fields of a ClassContext. The revision is read before what it is about."""
    name, may_edit = existing.metadata.name if existing else "", person_of(request).may("update", CLASSES)
    return {"revision": latest_revision(), "existing": existing, "name": name, "tab": tab, "may_edit": may_edit}


def _show_bench(
    request: HttpRequest, form: ClassForm, *, existing: DeviceClass | None, refused: bool = False, layout: str = PAGE
) -> HttpResponse:
    """refused: the form could not be saved."""
    newest = existing.metadata.resource_version if existing else ""
    context = BenchContext(
        **_shown(request, existing, "workbench"),
        layout=layout,
        bench=evaluate(form, existing=existing, person=person_of(request), refused=refused),
        blank_selector=SelectorRow("__index__", selector=""),
        refused=refused,
        outdated=refused and form.text("resource_version") != newest,
    )
    return render_page(request, "inventory/classes/form.html", context, status=422 if refused else 200)


def _show_yaml(
    request: HttpRequest, existing: DeviceClass, *, text: str = "", findings: Sequence[Finding] = ()
) -> HttpResponse:
    shown = text or manifest(existing, server=True)
    context = ClassYamlContext(**_shown(request, existing, "yaml"), text=shown, findings=findings)
    return render_page(request, "inventory/classes/yaml.html", context, status=422 if findings else 200)


def _answer_post(request: HttpRequest, *, existing: DeviceClass | None) -> HttpResponse:
    """Save; or, if another button was pressed, show the form with what that button does to it."""
    form = ClassForm(request.POST)
    changed = pressed(form, request.POST)
    if changed is None or existing is None:
        demand(request, "change device classes", "update", CLASSES)
    if changed is not None:
        return _show_bench(request, changed, existing=existing)
    edited = to_class(form, existing=existing)
    if not form.wrong:
        identity = person_of(request).identity
        try:
            if existing is None:
                verbs.create(kind(CLASSES), edited, identity=identity)
            else:
                verbs.update(kind(CLASSES), edited, name=existing.metadata.name, identity=identity)
        except ApiError as refusal:
            causes = (refusal.details or {}).get("causes")
            complain(form, causes or [{"field": "", "message": _explained(refusal)}])
    if form.wrong:
        return _show_bench(request, form, existing=existing, refused=True)
    messages.success(request, f"{'Saved' if existing else 'Created'} class {edited.metadata.name}.")
    return redirect(class_url(edited.metadata.name))


def _explained(refusal: ApiError) -> str:
    """A refusal that concerns no single field, with what to do next."""
    if refusal.reason == "Conflict":
        return "Somebody else changed this class. Open it again to compare."
    if refusal.reason == "AlreadyExists":
        return f"{refusal.message}. Choose another name, or edit that class."
    return refusal.message


@dataclass(frozen=True, slots=True, kw_only=True)
class ServePreview(ActionPreview):
    resource: str

    @property
    def question(self) -> str:
        return f"Serve {self.resource} with class {self.name}?"

    @property
    def button(self) -> str:
        return "Set the name"


@listing(CLASSES, SLICES)
@require_http_methods(["GET", "HEAD", "POST"])
def serve_resource(request: HttpRequest, name: str) -> HttpResponse:
    """`?resource=nvidia.com/gpu`: containers that ask for it get devices of this class. A GET shows who would start."""
    person = demand(request, "change device classes", "update", CLASSES)
    revision, existing, resource = latest_revision(), _stored_class(name), request.GET.get("resource", "").strip()
    serving = structs.replace(existing, spec=structs.replace(existing.spec, extended_resource_name=resource))
    refused, error = "", ""
    if existing.spec.extended_resource_name not in (None, "", resource):
        refused = f"it serves {existing.spec.extended_resource_name} already"
    elif not resource:
        refused = "the link names no extended resource"
    try:
        if request.method == "POST" and not refused:
            if request.POST.get("uid", "") != existing.metadata.uid:
                raise Conflict("another class now has this name")
            made = verbs.update(kind(CLASSES), serving, name=name, identity=person.identity)
            step = undo.UndoStep.of(kind(CLASSES), existing, made.object)
            undo.offer(request, f"Class {name} serves {resource}.", [step])
            return redirect(class_url(name))
        verbs.update(kind(CLASSES), serving, name=name, identity=person.identity, dry_run=True)
    except ApiError as refusal:
        error = not_changed(refusal, noun="class") if request.method == "POST" else ""
        refused = refused or plain(refusal.message).rstrip(".")
    started = () if refused else what_if_changed([Imagined(resource=CLASSES, before=existing, after=serving)]).started
    seen = [one for one in started if person.sees(one.namespace)]
    links = tuple((f"{one.namespace}/{one.name}", pod_url(one.namespace, one.name)) for one in seen[:NAMED])
    then = f"{counted(len(started), 'waiting pod starts', 'waiting pods start')}." if started else (
        "No waiting pod starts by that."
    )  # fmt: skip
    serves = f"Containers that ask for {resource} get devices of class {name}."
    effect = ActionEffect(
        consequences=(
            *([Consequence(term="Serves", sentences=(serves,))] if resource else []),
            Consequence(term="Then", sentences=(then,), links=links, more=len(started) - len(links)),
        ),
        differences=(("Class", difference(manifest(existing), manifest(serving))),),
        refused=refused,
    )
    preview = ServePreview(
        resource=resource,
        action="Serve",
        noun="class",
        uid=existing.metadata.uid,
        above=(("Classes", reverse("classes")), (name, class_url(name))),
        effect=effect,
        error=error,
        query=f"?{urlencode({'resource': resource})}",
    )
    return show_preview(request, preview, place="classes", revision=revision)


@listing(CLASSES, SLICES)
@require_http_methods(["GET", "HEAD", "POST"])
def delete_class(request: HttpRequest, name: str) -> HttpResponse:
    person = demand(request, "change device classes", "update", CLASSES)
    revision = latest_revision()
    existing = _stored_class(name)
    if request.method == "POST":
        options = only_with(request.POST.get("uid", ""))
        try:
            verbs.delete(kind(CLASSES), name=name, identity=person.identity, options=options)
        except ApiError as refusal:
            messages.error(request, not_changed(refusal, noun="class"))
            return redirect(class_url(name))
        messages.success(request, f"Deleted class {name}.")
        return redirect("classes")
    preview = ActionPreview(
        action="Delete",
        noun="class",
        uid=existing.metadata.uid,
        above=(("Classes", reverse("classes")), (name, class_url(name))),
        effect=effect_of_deletion(existing, person),
        topics="claims: template:",
    )
    return show_preview(request, preview, place="classes", revision=revision)


def effect_of_deletion(existing: DeviceClass, person: Person) -> ActionEffect:
    users = users_of(existing.metadata.name, person, extended=existing.spec.extended_resource_name)

    def concerned(
        term: str, those: Sequence[Key], follows: str, url: Callable[[str, str], str], none: str
    ) -> Consequence:
        sentence = f"{len(those):,} {follows}:" if those else none
        links = tuple((f"{namespace}/{name}", url(namespace, name)) for namespace, name in those[:NAMED])
        return Consequence(term=term, sentences=(sentence,), links=links, more=max(0, len(those) - NAMED))

    holding = len(users.holding)
    keep = "keeps its devices until it ends" if holding == 1 else "keep their devices until they end"
    held = f"{holding:,} {keep}." if holding else "None."
    lost, blocked = "could not be allocated", "would create claims that wait"
    consequences = [
        concerned("Claims that wait", _keys(users.waiting), lost, claim_url, "None."),
        concerned("Templates", _keys(users.templates), blocked, template_url, "None."),
        Consequence(term="Claims that hold", sentences=(held,)),
    ]
    if users.unserved:
        without = "could not start"
        consequences.append(concerned("Pods that wait", users.unserved, without, pod_url, ""))
    if users.served:
        again = "keep their devices, but could not be created again"
        consequences.append(concerned("Pods with devices", users.served, again, pod_url, ""))
    if resource := existing.spec.extended_resource_name:
        sentence = f"Containers that ask for {resource} would get no devices."
        consequences.append(Consequence(term="Extended resource", sentences=(sentence,)))
    if person.namespaces is not None:
        sentence = "Only namespaces that you see count."
        consequences.append(Consequence(term="Elsewhere", sentences=(sentence,)))
    summary = "Claims for it wait until a class of this name exists again."
    return ActionEffect(summary=summary, consequences=tuple(consequences))


def _keys(those: Iterable[ClassRequest]) -> list[Key]:
    return [(one.namespace, one.name) for one in those]
