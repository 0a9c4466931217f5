"""The DeviceClass pages: the list, the workbench, a class's history, and its end.

- `/classes`: every class, how many devices match and in which state they are, who uses it.
- `/classes/new`, `/classes/c/NAME`: the workbench; `?tab=yaml`, `?tab=history`. What is typed and not saved
  stands in the address too (`class_draft`). Saving goes the way of `kubectl apply`: prepare, validate, admit, store.
- `/classes/verdicts`: the verdicts for what stands in the form now; nothing is stored.
- `/classes/c/NAME/delete`: what deleting would mean, and the deed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from claims.devices.cache import read_devices
from claims.devices.pools import DeviceSnapshot
from dashboard.inventory.classes import users as class_claims
from dashboard.inventory.classes.diagnostics import Finding
from dashboard.inventory.classes.form import ClassForm, SelectorRow, complain, from_class, to_class
from dashboard.inventory.classes.manifest import manifest
from dashboard.inventory.classes.verdicts import ClassVerdicts, judge
from dashboard.inventory.classes.workbench import (
    Bench,
    Palette,
    class_kind,
    evaluate,
    expressions_of,
    palette,
    pressed,
    published_devices,
)
from dashboard.inventory.devices.words import bar_of, how_many, in_words
from dashboard.kit.links import claim_url, class_url, template_url
from dashboard.kit.lists import Filter, ListColumn, ListQuery, Table, bulk_acts, parameter, sorted_by
from dashboard.kit.previews import ActionEffect, ActionPreview, Consequence, not_changed, only_with, show_preview
from dashboard.kit.rendering import ListContext, PageContext, TemplateContext, render_page, show_list
from dashboard.kit.rights import listing
from dashboard.kit.saved_views import opens_as_usual
from dashboard.tools.objects import ShownHistory, history_of
from insight.capacity import waiting_by_class
from insight.how_many_fit import NOTHING, Count, count
from insight.selector_matches import judged_devices
from inventory.kinds.devices import DeviceClass
from manciple.api import verbs
from manciple.people import Person, demand, person_of
from manciple.store import objects
from manciple.store.event_log import latest_revision
from manciple.wire import codec
from manciple.wire.errors import ApiError
from manciple.wire.identity import Identity
from manciple.wire.resources import CLASSES, SLICES
from scheduling.models import QueuedPod

#: Claims that are named where only a few of them matter.
NAMED = 8


# The list ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassRow:
    """One class in the list. waiting: pods that ask for it; pending: claims that have no devices."""

    name: str
    extended: str
    selectors: tuple[str, ...]
    verdicts: ClassVerdicts
    count: Count
    waiting: int = 0
    pending: int = 0
    holding: int = 0
    templates: int = 0

    @property
    def bar(self) -> list[tuple[str, int]]:
        """(state, devices that match), without zeros."""
        return bar_of(self.count.by_state)

    @property
    def fits(self) -> str:
        return how_many(self.count.fits)

    @property
    def label(self) -> str:
        return in_words(self.count.by_state)

    @property
    def users(self) -> int:
        return self.holding + self.pending + self.templates


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassQuery(ListQuery):
    """What the list's address asks for."""

    text: str = parameter("q")

    def admits(self, device_class: DeviceClass) -> bool:
        said = (
            device_class.metadata.name,
            device_class.spec.extended_resource_name or "",
            *expressions_of(device_class),
        )
        return any(self.text.casefold() in one.casefold() for one in said)


#: What the list tells of a class.
COLUMNS = (
    ListColumn[ClassRow](title="Class", sort="name", key=lambda row: row.name, text=lambda row: row.name),
    ListColumn[ClassRow](title="Selectors", text=lambda row: " && ".join(row.selectors)),
    ListColumn[ClassRow](title="Devices that match", text=lambda row: row.label),
    ListColumn[ClassRow](
        title="Match",
        css="num",
        sort="match",
        key=lambda row: row.verdicts.matched,
        text=lambda row: f"{row.verdicts.matched}{' (incomplete)' if row.verdicts.unjudged else ''}",
    ),
    ListColumn[ClassRow](
        title="Free", css="num", sort="free", key=lambda row: row.count.free, text=lambda row: row.count.free
    ),
    ListColumn[ClassRow](
        title="Fits", css="num", sort="fits", key=lambda row: row.count.fits, text=lambda row: row.count.fits
    ),
    ListColumn[ClassRow](
        title="Waiting", css="num", sort="waiting", key=lambda row: row.waiting, text=lambda row: row.waiting
    ),
    ListColumn[ClassRow](title="Used by", sort="used", key=lambda row: -row.users, text=lambda row: row.users),
)


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
    """The list. A handful of queries, whatever the size of the cluster."""
    revision = latest_revision()
    person = person_of(request)
    snapshot = read_devices()
    classes = [codec.decode_text(DeviceClass, stored.text) for stored in objects.list(class_kind()).items]
    uses = class_claims.counts(person, [one.metadata.name for one in classes])
    waiting = waiting_by_class(QueuedPod.objects.waiting().restrict(person))
    query = ClassQuery.read(request)
    rows = [
        _row(one, snapshot, uses[one.metadata.name], waiting[one.metadata.name]) for one in classes if query.admits(one)
    ]
    table = Table(
        id="classes",
        topics="classes slices pool: claims: template: nodes pods:",
        title="Device classes",
        css="stack class-list",
        query=query,
        columns=COLUMNS,
        rows=sorted_by(COLUMNS, query.sort, rows),
        filters=(Filter("q", "Name or selector", query.text, hint="Name, selector"),),
        acts=bulk_acts(CLASSES, "delete") if person.may("delete", CLASSES) else (),
    )
    total = len(snapshot.candidates)
    context = ClassesContext(
        place="classes",
        revision=revision,
        query=query,
        table=table,
        any=bool(classes),
        total=total,
        may_edit=person.may("update", CLASSES),
    )
    return show_list(request, "inventory/classes/list.html", context)


def _row(device_class: DeviceClass, snapshot: DeviceSnapshot, uses: tuple[int, int, int], waiting: int) -> ClassRow:
    expressions = expressions_of(device_class)
    verdicts = judge(expressions, judged_devices(snapshot.published), reasons=False)
    pending, holding, templates = uses
    return ClassRow(
        name=device_class.metadata.name,
        extended=device_class.spec.extended_resource_name or "",
        selectors=expressions,
        verdicts=verdicts,
        count=NOTHING if verdicts.unjudged or not verdicts.compiles else count(snapshot, expressions),
        waiting=waiting,
        pending=pending,
        holding=holding,
        templates=templates,
    )


# The workbench -------------------------------------------------------------------------------------------------------


@listing(CLASSES, SLICES)
@require_http_methods(["GET", "HEAD", "POST"])
def new_class(request: HttpRequest) -> HttpResponse:
    """The workbench for a class that does not exist yet."""
    if request.method == "POST":
        return _answer_post(request, existing=None)
    demand(request, "change device classes", "update", CLASSES)
    return show_bench(request, ClassForm().with_query(request.GET), existing=None)


@listing(CLASSES, SLICES)
@require_http_methods(["GET", "HEAD", "POST"])
def edit_class(request: HttpRequest, name: str) -> HttpResponse:
    """The workbench for an existing class, and its other tabs."""
    existing = stored_class(name)
    if request.method == "POST":
        return _answer_post(request, existing=existing)
    tab = request.GET.get("tab", "")
    if tab == "yaml":
        return show_yaml(request, existing)
    if tab == "history":
        return _show_history(request, existing)
    return show_bench(request, from_class(existing).with_query(request.GET), existing=existing)


@listing(CLASSES, SLICES)
@require_POST
def check_class(request: HttpRequest) -> HttpResponse:
    """The workbench for the form as it stands; nothing is saved. Where those with read-only access send it."""
    form = ClassForm(request.POST)
    return show_bench(request, pressed(form, request.POST) or form, existing=_edited(request))


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictsContext(TemplateContext):
    bench: Bench
    may_edit: bool


@listing(CLASSES, SLICES)
@require_POST
def show_verdicts(request: HttpRequest) -> HttpResponse:
    """What the page shows around its editors for the form as it stands."""
    person = person_of(request)
    bench = evaluate(ClassForm(request.POST), existing=_edited(request), person=person)
    return render_page(
        request, "inventory/classes/answer.html", VerdictsContext(bench=bench, may_edit=person.may("update", CLASSES))
    )


def _edited(request: HttpRequest) -> DeviceClass | None:
    """The class that the form's `editing` names, where it exists."""
    stored = objects.get(class_kind(), "", request.POST.get("editing", ""))
    return codec.decode_text(DeviceClass, stored.text) if stored else None


def stored_class(name: str) -> DeviceClass:
    """Raises: Http404."""
    stored = objects.get(class_kind(), "", name)
    if stored is None:
        raise Http404(f"DeviceClass {name} does not exist.")
    return codec.decode_text(DeviceClass, stored.text)


def show_bench(
    request: HttpRequest, form: ClassForm, *, existing: DeviceClass | None, refused: bool = False
) -> HttpResponse:
    """The page. refused: the form could not be saved."""
    revision = latest_revision()
    person = person_of(request)
    bench = evaluate(form, existing=existing, person=person, refused=refused)
    newest = existing.metadata.resource_version if existing else ""
    context = BenchContext(
        place="classes",
        revision=revision,
        head=ClassHead.of(existing, "workbench", person),
        bench=bench,
        palette=palette(published_devices()),
        blank_selector=SelectorRow("__index__", selector=""),
        refused=refused,
        outdated=refused and form.text("resource_version") != newest,
    )
    return render_page(request, "inventory/classes/form.html", context, status=422 if refused else 200)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassHead:
    """The head of every tab. existing: None for a class that is still to be made."""

    existing: DeviceClass | None
    tab: str
    may_edit: bool

    @classmethod
    def of(cls, existing: DeviceClass | None, tab: str, person: Person) -> ClassHead:
        return cls(existing=existing, tab=tab, may_edit=person.may("update", CLASSES))

    @property
    def name(self) -> str:
        return self.existing.metadata.name if self.existing else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchContext(PageContext):
    """The workbench. blank_selector: what a script copies for a new one; refused: the form could not be saved;
    outdated: because somebody else has saved the class since it was opened.
    """

    head: ClassHead
    bench: Bench
    palette: Palette
    blank_selector: SelectorRow
    refused: bool
    outdated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassYamlContext(PageContext):
    """text: as it was typed, with what is wrong with it, or as it is stored."""

    head: ClassHead
    text: str
    findings: Sequence[Finding]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassHistoryContext(PageContext):
    head: ClassHead
    history: ShownHistory


def show_yaml(
    request: HttpRequest, existing: DeviceClass, *, text: str = "", findings: Sequence[Finding] = ()
) -> HttpResponse:
    """The whole object. text: as it was typed, with what is wrong with it."""
    context = ClassYamlContext(
        place="classes",
        revision=latest_revision(),
        head=ClassHead.of(existing, "yaml", person_of(request)),
        text=text or manifest(existing, server=True),
        findings=findings,
    )
    return render_page(request, "inventory/classes/yaml.html", context, status=422 if findings else 200)


def _show_history(request: HttpRequest, existing: DeviceClass) -> HttpResponse:
    context = ClassHistoryContext(
        place="classes",
        revision=latest_revision(),
        head=ClassHead.of(existing, "history", person_of(request)),
        history=history_of(request, [existing.metadata.uid]),
    )
    return render_page(request, "inventory/classes/history.html", context)


def _answer_post(request: HttpRequest, *, existing: DeviceClass | None) -> HttpResponse:
    """Save; or, where another button was pressed, show the form with what that button does to it."""
    form = ClassForm(request.POST)
    changed = pressed(form, request.POST)
    if changed is None or existing is None:
        demand(request, "change device classes", "update", CLASSES)
    if changed is not None:
        return show_bench(request, changed, existing=existing)
    wanted = to_class(form, existing=existing)
    if not form.wrong:
        _save(wanted, form, existing=existing, identity=person_of(request).identity)
    if form.wrong:
        return show_bench(request, form, existing=existing, refused=True)
    messages.success(request, f"{'Saved' if existing else 'Created'} class {wanted.metadata.name}.")
    return redirect(class_url(wanted.metadata.name))


def _save(wanted: DeviceClass, form: ClassForm, *, existing: DeviceClass | None, identity: Identity) -> None:
    """Write the class; what the API says against it goes to the form's fields."""
    try:
        if existing is None:
            verbs.create(class_kind(), wanted, identity=identity)
        else:
            verbs.update(class_kind(), wanted, name=existing.metadata.name, identity=identity)
    except ApiError as refusal:
        causes = (refusal.details or {}).get("causes")
        complain(form, causes or [{"field": "", "message": explained(refusal)}])


def explained(refusal: ApiError) -> str:
    """A refusal that concerns no single field, with what to do next."""
    if refusal.reason == "Conflict":
        return (
            "Somebody else changed this class while you edited it. Open it again with what you wrote: the bar below "
            "then shows how that differs from theirs."
        )
    if refusal.reason == "AlreadyExists":
        return f"{refusal.message}. Choose another name, or edit that class."
    return refusal.message


# The end of a class --------------------------------------------------------------------------------------------------


@listing(CLASSES, SLICES)
@require_http_methods(["GET", "HEAD", "POST"])
def delete_class(request: HttpRequest, name: str) -> HttpResponse:
    """GET says what would happen; POST does it."""
    person = demand(request, "change device classes", "update", CLASSES)
    revision = latest_revision()
    existing = stored_class(name)
    if request.method == "POST":
        options = only_with(request.POST.get("uid", ""))
        try:
            verbs.delete(class_kind(), name=name, identity=person.identity, options=options)
        except ApiError as refusal:
            messages.error(request, not_changed(refusal, noun="class"))
            return redirect(class_url(name))
        messages.success(request, f"Deleted class {name}.")
        return redirect("classes")
    preview = ActionPreview(
        action="Delete",
        noun="class",
        uid=existing.metadata.uid,
        above=(("Classes", "/classes"), (name, class_url(name))),
        effect=effect_of_deletion(existing, class_claims.users_of(name, person)),
        topics="claims: template:",
    )
    return show_preview(request, preview, place="classes", revision=revision)


def effect_of_deletion(existing: DeviceClass, users: class_claims.Users) -> ActionEffect:
    """What deleting the class would do."""
    holding = len(users.holding)
    keep = "keeps its devices until it ends" if holding == 1 else "keep their devices until they end"
    held = f"{holding} {keep}." if holding else "None holds devices through it."
    found = [
        _concerned(
            "Claims that wait",
            users.waiting,
            "could not be allocated any more",
            claim_url,
            "None waits for this class.",
        ),
        _concerned(
            "Templates", users.templates, "would create claims that wait", template_url, "None names this class."
        ),
        Consequence(term="Claims that hold", sentences=(held,)),
    ]
    if resource := existing.spec.extended_resource_name:
        sentence = f"Containers that ask for {resource} would get no devices."
        found.append(Consequence(term="Extended resource", sentences=(sentence,)))
    return ActionEffect(
        summary="It is removed immediately. Claims that wait for it wait until a class of this name exists again.",
        consequences=tuple(found),
    )


def _concerned(
    term: str, those: Sequence[class_claims.ClassRequest], happens: str, url: Callable[[str, str], str], nobody: str
) -> Consequence:
    """nobody: what is said where there are none."""
    return Consequence(
        term=term,
        sentences=(f"{len(those)} {happens}:" if those else nobody,),
        links=tuple((f"{one.namespace}/{one.name}", url(one.namespace, one.name)) for one in those[:NAMED]),
        more=max(0, len(those) - NAMED),
    )
