"""The rules that taint devices: `/taint-rules`, one, a new one, changing and deleting one, each with what it would do.

A rule of effect None is a dry run: its status says once how many pods effect NoExecute would evict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from django import forms
from django.core.exceptions import NON_FIELD_ERRORS
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods, require_safe
from msgspec import structs

from claims.controllers.taint_eviction import CONDITION
from claims.devices.cache import read_devices
from claims.devices.pools import DeviceSnapshot
from dashboard.inventory.taint_rules.effects import MEANINGS, OFF, RuleChange, effect_of
from dashboard.inventory.taint_rules.rules import selected_in_words, selects, taint_in_words
from dashboard.kit import links, undo
from dashboard.kit.forms import PageForm, code_input
from dashboard.kit.lists import Filter, ListColumn, ListQuery, Table, bulk_acts, parameter, sorted_by
from dashboard.kit.previews import ActionEffect, ActionPreview, Link, not_changed, only_with, show_preview
from dashboard.kit.rendering import ListContext, PageContext, render_page, show_list
from dashboard.kit.rights import listing
from dashboard.kit.saved_views import opens_as_usual
from dashboard.tools.objects import HistoryPage, asked, show_history
from inventory.kinds import gates
from inventory.kinds.device_rules import TAINT_EFFECTS
from inventory.kinds.devices import DeviceTaint, DeviceTaintRule, DeviceTaintRuleSpec, DeviceTaintSelector
from inventory.kinds.taint_rules import GATE
from manciple.api import verbs
from manciple.people import Person, demand
from manciple.store import objects
from manciple.store.event_log import latest_revision
from manciple.store.objects import decoded
from manciple.wire.base import Condition, ObjectMeta, condition_of
from manciple.wire.errors import ApiError
from manciple.wire.resources import TAINT_RULES, kind
from manciple.wire.validation import natural

#: Devices that the page of a rule names.
NAMED = 200
ABOVE: tuple[Link, ...] = (("Taint rules", "/taint-rules"),)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleQuery(ListQuery):
    """What the list's address asks for."""

    text: str = parameter("q")
    effect: str = parameter("effect", known=TAINT_EFFECTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleRow:
    """One rule. selected: published devices that it taints; held: those of them that a claim holds."""

    rule: DeviceTaintRule
    selected: int
    held: int

    @property
    def name(self) -> str:
        return self.rule.metadata.name

    @property
    def taint(self) -> str:
        return taint_in_words(self.rule.spec.taint)

    @property
    def devices(self) -> str:
        return selected_in_words(self.rule)

    @property
    def meaning(self) -> str:
        return MEANINGS.get(self.rule.spec.taint.effect, "")

    @property
    def progress(self) -> Condition | None:
        """What the controller that evicts says of it; None while it has not come to it."""
        return condition_of(self.rule.status.conditions, CONDITION)

    @property
    def told(self) -> str:
        return self.progress.message if self.progress else ""


COLUMNS = (
    ListColumn[RuleRow](title="Rule", sort="name", key=lambda row: natural(row.name), text=lambda row: row.name),
    ListColumn[RuleRow](title="Taints", sort="devices", key=lambda row: row.devices, text=lambda row: row.devices),
    ListColumn[RuleRow](title="With", sort="taint", key=lambda row: row.taint, text=lambda row: row.taint),
    ListColumn[RuleRow](
        title="Devices", css="num", sort="selected", key=lambda row: row.selected, text=lambda row: row.selected
    ),
    ListColumn[RuleRow](title="Held", css="num", sort="held", key=lambda row: row.held, text=lambda row: row.held),
    ListColumn[RuleRow](title="Status", sort="status", key=lambda row: row.told, text=lambda row: row.told),
    ListColumn[RuleRow](
        title="Age",
        css="num",
        sort="age",
        key=lambda row: row.rule.metadata.creation_timestamp or "",
        text=lambda row: row.rule.metadata.creation_timestamp or "",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesContext(ListContext):
    """total: rules, whatever the filter; off: why they have no effect now."""

    query: RuleQuery
    total: int
    off: str
    may_create: bool


@listing(TAINT_RULES)
@require_safe
@opens_as_usual
def list_rules(request: HttpRequest) -> HttpResponse:
    """The list."""
    revision, snapshot = latest_revision(), read_devices()
    person = demand(request, "list taint rules", "list", TAINT_RULES)
    query = RuleQuery.read(request)
    rows = [_row(decoded(stored, DeviceTaintRule), snapshot) for stored in objects.list(kind(TAINT_RULES)).items]
    found = [row for row in rows if query.text in f"{row.name} {row.devices} {row.taint}"]
    found = [row for row in found if query.effect in ("", row.rule.spec.taint.effect)]
    table = Table(
        id="taint-rules",
        topics="slices pool: claims:",
        title="Taint rules",
        query=query,
        columns=COLUMNS,
        rows=sorted_by(COLUMNS, query.sort or "name", found),
        filters=(
            Filter("q", "Name, device or taint", query.text, hint="Name, pool, taint"),
            Filter("effect", "Effect", query.effect, every="Every effect", options=TAINT_EFFECTS),
        ),
        acts=bulk_acts(TAINT_RULES, "delete") if person.may("delete", TAINT_RULES) else (),
    )
    context = RulesContext(
        place="devices",
        revision=revision,
        query=query,
        table=table,
        total=len(rows),
        off=_off(),
        may_create=person.may("create", TAINT_RULES),
    )
    return show_list(request, "inventory/taint_rules/list.html", context)


def _off() -> str:
    """Why rules have no effect; "" while they have one."""
    return "" if gates.enabled(GATE) else OFF


def _row(rule: DeviceTaintRule, snapshot: DeviceSnapshot) -> RuleRow:
    keys = [one.key for one in snapshot.candidates if selects(rule, one.key)]
    return RuleRow(rule=rule, selected=len(keys), held=sum(bool(snapshot.held_by(key)) for key in keys))


class TaintedDevice(NamedTuple):
    url: str
    title: str
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleContext(PageContext):
    """devices: the first that it taints; more: how many others there are. off: why it has no effect now."""

    row: RuleRow
    rule: DeviceTaintRule
    url: str
    off: str
    devices: Sequence[TaintedDevice]
    more: int
    may_update: bool
    may_delete: bool
    word: str = "Taint rule"


@listing(TAINT_RULES)
@require_safe
def show_rule(request: HttpRequest, name: str) -> HttpResponse:
    """One rule; with `?tab=history` its history."""
    revision, snapshot = latest_revision(), read_devices()
    person = demand(request, "see taint rules", "get", TAINT_RULES)
    rule = _read(name)
    if asked(request):
        page = HistoryPage(
            place="devices",
            crumbs=(("/taint-rules", "Taint rules"),),
            word="Taint rule",
            name=name,
            url=links.taint_rule_url(name),
            topics="slices",
            yaml=links.yaml_url(TAINT_RULES, "", name),
        )
        return show_history(request, page, [rule.metadata.uid])
    keys = [one.key for one in snapshot.candidates if selects(rule, one.key)]
    context = RuleContext(
        place="devices",
        revision=revision,
        row=_row(rule, snapshot),
        rule=rule,
        url=links.taint_rule_url(name),
        off=_off(),
        devices=[
            TaintedDevice(links.device_url(*key), f"{key[1]} / {key[2]}", snapshot.state(key)) for key in keys[:NAMED]
        ],
        more=max(0, len(keys) - NAMED),
        may_update=person.may("update", TAINT_RULES),
        may_delete=person.may("delete", TAINT_RULES),
    )
    return render_page(request, "inventory/taint_rules/page.html", context)


def _read(name: str) -> DeviceTaintRule:
    stored = objects.get(kind(TAINT_RULES), "", name)
    if stored is None:
        raise Http404(f"Taint rule {name} does not exist.")
    return decoded(stored, DeviceTaintRule)


# Making and changing -------------------------------------------------------------------------------------------------


class RuleForm(PageForm):
    """A rule as it is typed. version: of the rule that is changed, as it was looked at."""

    ids = "r-%s"
    name = forms.CharField(required=False, widget=code_input("maintenance-rack-7"))
    driver = forms.CharField(required=False, widget=code_input("any driver", list="r-drivers"))
    pool = forms.CharField(required=False, widget=code_input("any pool", list="r-pools"))
    device = forms.CharField(required=False, widget=code_input("any device"))
    key = forms.CharField(required=False, widget=code_input("example.com/maintenance"))
    value = forms.CharField(required=False, widget=code_input("may be empty"))
    effect = forms.CharField(required=False)
    version = forms.CharField(required=False)

    @classmethod
    def of(cls, rule: DeviceTaintRule) -> RuleForm:
        """Filled in with a rule that exists."""
        selector, taint = rule.spec.device_selector or DeviceTaintSelector(), rule.spec.taint
        return cls(
            {
                "name": rule.metadata.name,
                "driver": selector.driver or "",
                "pool": selector.pool or "",
                "device": selector.device or "",
                "key": taint.key,
                "value": taint.value,
                "effect": taint.effect,
                "version": rule.metadata.resource_version,
            }
        )

    def rule(self, before: DeviceTaintRule | None) -> DeviceTaintRule:
        """What the form asks for, in place of `before`."""
        place = {name: self.text(name) or None for name in ("driver", "pool", "device")}
        taint = DeviceTaint(key=self.text("key"), value=self.text("value"), effect=self.text("effect") or "NoSchedule")
        spec = DeviceTaintRuleSpec(device_selector=DeviceTaintSelector(**place), taint=taint)
        if before is None:
            version, meta = kind(TAINT_RULES).api_version, ObjectMeta(name=self.text("name"))
            return DeviceTaintRule(api_version=version, kind="DeviceTaintRule", metadata=meta, spec=spec)
        if taint == structs.replace(before.spec.taint, time_added=None):
            spec = structs.replace(spec, taint=before.spec.taint)
        meta = structs.replace(before.metadata, resource_version=self.text("version"))
        return structs.replace(before, metadata=meta, spec=spec)

    def write(self, before: DeviceTaintRule | None, person: Person, *, dry_run: bool) -> Any:
        """The rule as stored; None where the API refuses it, which then stands at the fields."""
        self.is_valid()
        try:
            if before is None:
                return verbs.create(kind(TAINT_RULES), self.rule(None), identity=person.identity, dry_run=dry_run)
            return verbs.update(
                kind(TAINT_RULES),
                self.rule(before),
                name=before.metadata.name,
                identity=person.identity,
                dry_run=dry_run,
            ).object
        except ApiError as refusal:
            for cause in (refusal.details or {}).get("causes") or [{"message": not_changed(refusal, noun="rule")}]:
                end = str(cause.get("field", "")).rpartition(".")[2]
                self.add_error(end if end in self.fields else NON_FIELD_ERRORS, str(cause.get("message", "")))
            return None


@listing(TAINT_RULES)
@require_http_methods(["GET", "HEAD", "POST"])
def new_rule(request: HttpRequest) -> HttpResponse:
    """A form; with something typed, what the rule would do; a POST makes it."""
    person = demand(request, "create taint rules", "create", TAINT_RULES)
    return _edit(request, person, None)


@listing(TAINT_RULES)
@require_http_methods(["GET", "HEAD", "POST"])
def change_rule(request: HttpRequest, name: str) -> HttpResponse:
    """The same for a rule that exists."""
    person = demand(request, "change taint rules", "update", TAINT_RULES)
    return _edit(request, person, _read(name))


def _edit(request: HttpRequest, person: Person, before: DeviceTaintRule | None) -> HttpResponse:
    data = request.POST if request.method == "POST" else request.GET
    typed = {name: data[name] for name in RuleForm.base_fields if name in data}
    begins = before is None and not {"key", "effect", "name"} & typed.keys()
    form = RuleForm(typed) if typed or before is None else RuleForm.of(before)
    effect = None
    if not begins and form.write(before, person, dry_run=True) is not None:
        if request.method == "POST" and (made := form.write(before, person, dry_run=False)) is not None:
            word = "created" if before is None else "changed"
            said = f"Taint rule {made.metadata.name} is {word}."
            undo.offer(request, said, [undo.UndoStep.of(kind(TAINT_RULES), before, made)])
            return redirect(links.taint_rule_url(made.metadata.name))
        changes = [RuleChange(before=before, after=form.rule(before))]
        effect = effect_of(changes, person, read_devices(), datetime.now(UTC))
    context = _form_context(form, before, effect)
    return render_page(request, "inventory/taint_rules/form.html", context, status=422 if form.errors else 200)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleFormContext(PageContext):
    """before: the rule that is changed; None for a new one. effect: what it would do; effects: with what each means."""

    form: RuleForm
    before: DeviceTaintRule | None
    back: str
    effect: ActionEffect | None
    effects: Mapping[str, str]
    chosen_effect: str
    drivers: Sequence[str]
    pools: Sequence[str]


def _form_context(form: RuleForm, before: DeviceTaintRule | None, effect: ActionEffect | None) -> RuleFormContext:
    pools = sorted(read_devices().pools)
    return RuleFormContext(
        place="devices",
        revision=latest_revision(),
        form=form,
        before=before,
        back=links.taint_rule_url(before.metadata.name) if before else "/taint-rules",
        effect=effect,
        effects={effect: MEANINGS[effect] for effect in reversed(TAINT_EFFECTS)},
        chosen_effect=form.text("effect") or "NoSchedule",
        drivers=sorted({pool.driver for pool in pools}),
        pools=sorted({pool.name for pool in pools}, key=natural),
    )


@listing(TAINT_RULES)
@require_http_methods(["GET", "HEAD", "POST"])
def delete_rule(request: HttpRequest, name: str) -> HttpResponse:
    """What would follow; a POST does it."""
    person = demand(request, "delete taint rules", "delete", TAINT_RULES)
    revision, rule, error = latest_revision(), _read(name), ""
    if request.method == "POST":
        options = only_with(request.POST.get("uid", ""))
        try:
            verbs.delete(kind(TAINT_RULES), name=name, identity=person.identity, options=options)
        except ApiError as refusal:
            error = not_changed(refusal, noun="rule")
        else:
            undo.offer(request, f"Taint rule {name} is deleted.", [undo.UndoStep.of(kind(TAINT_RULES), rule, None)])
            return redirect("/taint-rules")
    preview = ActionPreview(
        action="Delete",
        noun="taint rule",
        uid=rule.metadata.uid,
        above=(*ABOVE, (name, links.taint_rule_url(name))),
        effect=effect_of([RuleChange(before=rule)], person, read_devices(), datetime.now(UTC)),
        topics="slices",
        error=error,
    )
    return show_preview(request, preview, place="devices", revision=revision)
