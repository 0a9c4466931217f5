"""Taint rules: `/taint-rules`, one rule, creating, changing and deleting one, each with a preview of its effects.

People write rules by hand, so there are few: the list reads all of them. A rule of effect None is a dry run: its status
says once how many pods effect NoExecute would evict.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import Any

from django import forms
from django.forms.boundfield import BoundField
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_safe
from msgspec import structs

from claims.controllers.taint_eviction import CONDITION
from claims.device_taints import NO_EXECUTE, Survey, ThreatenedPod
from claims.devices.cache import DeviceSnapshot, read_devices
from claims.devices.published import DeviceKey, pool_of
from claims.devices.states import DeviceState
from claims.kinds.pods import Pod
from dashboard.kit import undo
from dashboard.kit.evictions import Leaving, told_of
from dashboard.kit.forms import PageForm, code_input
from dashboard.kit.guards import listing
from dashboard.kit.lists import Filter, ListColumn, ListQuery, Table, bulk_acts, parameter, sorted_by
from dashboard.kit.preferences import opens_as_usual
from dashboard.kit.previews import ActionEffect, ActionPreview, Consequence, not_changed, only_with, show_preview
from dashboard.kit.rendering import ListContext, PageContext, render_page, show_list
from dashboard.kit.suggestions import did_you_mean
from dashboard.templatetags.kit import counted, device_url, listed, taint_rule_url, yaml_url
from dashboard.tools.objects import HistoryPage, asked, show_history
from inventory.kinds import gates
from inventory.kinds.device_rules import TAINT_EFFECTS
from inventory.kinds.devices import DeviceTaint, DeviceTaintRule, DeviceTaintRuleSpec, DeviceTaintSelector
from inventory.kinds.pools import PoolKey
from inventory.kinds.taint_rules import GATE, TaintRules, place_of
from manciple.api import verbs
from manciple.people import Person, demand
from manciple.store import objects
from manciple.store.event_log import latest_revision
from manciple.store.objects import decoded
from manciple.wire.base import Condition, ObjectMeta, condition_of
from manciple.wire.errors import ApiError
from manciple.wire.resources import PODS, TAINT_RULES, kind
from manciple.wire.validation import natural
from scheduling.rehearsal.changes import Imagined, what_if_changed

#: What a device may not be called in an object's name.
_FOREIGN = re.compile(r"[^a-z0-9]+")
#: Characters of a rule's name before the five that the server adds.
_LONGEST = 57


def rules_for(
    chosen: Collection[DeviceKey], taint: DeviceTaint, pools: Mapping[PoolKey, Collection[DeviceKey]], *, word: str
) -> tuple[DeviceTaintRule, ...]:
    """One rule for a pool of which everything is chosen, else one for each device.

    pools: the published devices of each pool. word: what the rules' names begin with. The server completes the names.
    """
    by_pool: dict[PoolKey, list[DeviceKey]] = defaultdict(list)
    for key in sorted(set(chosen)):
        by_pool[pool_of(key)].append(key)
    found = list[DeviceTaintRule]()
    for pool, keys in by_pool.items():
        # A rule without a device is for the pools of all nodes with that name.
        namesakes = (published for other, published in pools.items() if other[:2] == pool[:2])
        whole = len(keys) > 1 and set(chosen).issuperset(chain.from_iterable(namesakes))
        found += [_rule(word, taint, *pool[:2])] if whole else [_rule(word, taint, *key[:3]) for key in keys]
    return tuple({rule.spec.device_selector: rule for rule in found}.values())


def _rule(word: str, taint: DeviceTaint, driver: str, pool: str, device: str | None = None) -> DeviceTaintRule:
    name = _FOREIGN.sub("-", "-".join(filter(None, (word, pool, device))).lower())[:_LONGEST].strip("-")
    selector = DeviceTaintSelector(driver=driver, pool=pool, device=device)
    return DeviceTaintRule(
        api_version="resource.k8s.io/v1beta2",
        kind="DeviceTaintRule",
        metadata=ObjectMeta(generate_name=f"{name}-"),
        spec=DeviceTaintRuleSpec(device_selector=selector, taint=taint),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Untaint:
    """What takes the taints of the chosen devices away.

    removed: rules that taint nothing else that is published. wider: (rule, how many other devices it taints), which
    stay. published: taints that the drivers themselves publish, which only they can take away.
    """

    removed: tuple[DeviceTaintRule, ...]
    wider: tuple[tuple[DeviceTaintRule, int], ...]
    published: tuple[tuple[DeviceKey, DeviceTaint], ...]


def untainting(
    chosen: Collection[DeviceKey],
    rules: Iterable[DeviceTaintRule],
    published: Mapping[DeviceKey, Sequence[DeviceTaint]],
) -> Untaint:
    """published: every published device, with the taints of its driver."""
    wanted, known = set(chosen), TaintRules(rules)
    touched = {rule.metadata.name: rule for key in sorted(wanted) for rule in known.of(*key[:3])}
    others = {name: sum(selects(rule, key) for key in published.keys() - wanted) for name, rule in touched.items()}
    return Untaint(
        removed=tuple(rule for name, rule in sorted(touched.items()) if not others[name]),
        wider=tuple((rule, others[name]) for name, rule in sorted(touched.items()) if others[name]),
        published=tuple((key, taint) for key in sorted(wanted) for taint in published.get(key, ())),
    )


def selects(rule: DeviceTaintRule, key: DeviceKey) -> bool:
    """Whether the rule's selector names the device."""
    place = place_of(rule)
    return place is not None and all(wanted in (None, is_) for wanted, is_ in zip(place, key[:3], strict=True))


def selected_by(rule: DeviceTaintRule, snapshot: DeviceSnapshot) -> list[DeviceKey]:
    """The published devices that its selector names."""
    place = place_of(rule)
    return [one.key for one in snapshot.named(*(part or "" for part in place))] if place is not None else []


def selected_in_words(rule: DeviceTaintRule) -> str:
    """Which devices it taints: `gpu-3 of pool gpu-a17, driver gpu.nvidia.com`."""
    place = place_of(rule)
    if place is None:
        return "No device: it has no selector"
    driver, pool, device = place
    first = f"device {device}" if device else "every device"
    rest = (f", pool {pool}" if pool else "") + (f", driver {driver}" if driver else "")
    return f"{first[0].upper()}{first[1:]}{rest}"


def taint_in_words(taint: DeviceTaint) -> str:
    """As `kubectl taint` writes it."""
    return f"{taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}"


#: What each effect means for claims without a toleration.
EFFECT_MEANINGS = {
    "None": "only counts what NoExecute would evict",
    "NoSchedule": "no new claim gets the device",
    "NoExecute": "no new claim gets the device, and its pods are evicted",
}
#: Devices that one line names.
NAMED_IN_EFFECT = 8
OFF = f"feature gate {GATE} is off: rules have no effect"


def irrevocable(rules: Iterable[DeviceTaintRule], keys: Iterable[DeviceKey], snapshot: DeviceSnapshot) -> str:
    """To be appended to what was done, where deleting the rules again leaves something undone."""
    evicts = any(rule.spec.taint.effect == NO_EXECUTE for rule in rules) and gates.enabled(GATE)
    return " Undo brings no evicted pod back." if evicts and any(map(snapshot.held_by, keys)) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleChange:
    """One rule: before, None where it is new; after, None where it goes."""

    before: DeviceTaintRule | None = None
    after: DeviceTaintRule | None = None


def effect_of(
    changes: Sequence[RuleChange], person: Person, snapshot: DeviceSnapshot, now: datetime, *, summary: str = ""
) -> ActionEffect:
    """What all of them together would do now."""
    changes = [_named(change, number) for number, change in enumerate(changes)]
    coming = TaintRules(one.after for one in changes if one.after is not None)
    going = TaintRules(one.before for one in changes if one.before is not None)
    evicting = [rule for rule in coming if rule.spec.taint.effect == NO_EXECUTE]
    leaving = read_leaving(Survey().evicted_by(evicting, now), now) if gates.enabled(GATE) else []
    imagined = [Imagined(resource=TAINT_RULES, before=one.before, after=one.after) for one in changes]
    found = what_if_changed(imagined, [one.pod for one in leaving])
    touched = tuple(one.key for one in snapshot.candidates if coming.of(*one.key[:3]) or going.of(*one.key[:3]))
    lines = (*_of_devices(touched, coming, snapshot), *_dry_run(coming, now, person), *told_of(leaving, found, person))
    return ActionEffect(summary=summary, consequences=lines, warning="" if gates.enabled(GATE) else f"The {OFF}.")


def _named(change: RuleChange, number: int) -> RuleChange:
    """New rules have no name yet; imagined ones need one each."""
    new = change.after
    if new is None or new.metadata.name:
        return change
    name = f"{new.metadata.generate_name}{number}"
    meta = structs.replace(new.metadata, name=name, uid=name)
    return RuleChange(before=change.before, after=structs.replace(new, metadata=meta))


def read_leaving(threatened: Sequence[ThreatenedPod], now: datetime) -> list[Leaving]:
    """The pods, the first to go first."""
    until = {one.uid: one.threat.until for one in threatened}
    stored = objects.get_many(kind(PODS), [one.key for one in threatened])
    pods = [pod for pod in (decoded(one, Pod) for one in stored) if pod.metadata.uid in until]
    found = [Leaving(pod=pod, seconds=max(0.0, (until[pod.metadata.uid] - now).total_seconds())) for pod in pods]
    return sorted(found, key=lambda one: (one.seconds, one.pod.key))


def _of_devices(keys: Sequence[DeviceKey], coming: TaintRules, snapshot: DeviceSnapshot) -> Iterator[Consequence]:
    if not keys:
        sentences = ("No device is selected now.", *_unpublished(coming, snapshot))
        yield Consequence(term="Devices", sentences=sentences)
        return
    names = listed([f"{pool}/{device}" for _, pool, device, _ in keys], NAMED_IN_EFFECT)
    yield Consequence(term="Devices", sentences=(f"{counted(len(keys), 'device')}: {names}.",))
    fencing = [key for key in keys if any(rule.spec.taint.effect != "None" for rule in coming.of(*key[:3]))]
    if free := sum(snapshot.state(key) == DeviceState.FREE for key in fencing):
        are = counted(free, "device is", "devices are")
        said = f"{are} free now; then only with a toleration."
        yield Consequence(term="Free", sentences=(said,))
    if held := sum(bool(snapshot.held_by(key)) for key in keys):
        evicts = any(rule.spec.taint.effect == NO_EXECUTE for rule in coming)
        pods = "its pods" if held == 1 else "their pods"
        then = f"released with {pods}" if evicts else "kept"
        said = f"{counted(held, 'device is', 'devices are')} held, and {then}."
        yield Consequence(term="Held", sentences=(said,))


def _unpublished(coming: TaintRules, snapshot: DeviceSnapshot) -> Iterator[str]:
    """Names in the rules that nobody publishes, and what was probably meant."""
    published = [one.key for one in snapshot.candidates]
    for rule in coming:
        for index, (word, name) in enumerate(zip(("driver", "pool", "device"), place_of(rule) or (), strict=False)):
            known = {key[index] for key in published}
            if name and name not in known:
                yield f"No {word} is called {name}.{did_you_mean(name, sorted(known))}"


def _dry_run(coming: TaintRules, now: datetime, person: Person) -> Iterator[Consequence]:
    harmless = [rule for rule in coming if rule.spec.taint.effect == "None"]
    if harmless:
        evicted = Survey().evicted_by(harmless, now, as_if=NO_EXECUTE)
        seen = sum(person.sees(one.namespace) for one in evicted)
        others = f", {len(evicted) - seen} of them in namespaces that you do not see" if seen < len(evicted) else ""
        said = f"{counted(len(evicted), 'pod')} would be evicted with effect NoExecute{others}."
        yield Consequence(term="Dry run", sentences=(said,))


#: Devices that the page of a rule names.
NAMED = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleQuery(ListQuery):
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
        return EFFECT_MEANINGS.get(self.rule.spec.taint.effect, "")

    #: the eviction controller's condition; None until it has processed the rule
    @property
    def progress(self) -> Condition | None:
        return condition_of(self.rule.status.conditions, CONDITION)

    @property
    def status(self) -> str:
        return self.progress.message if self.progress else ""

    @property
    def created(self) -> str:
        return self.rule.metadata.creation_timestamp or ""


Column = ListColumn[RuleRow]
COLUMNS = (
    Column(title="Rule", sort="name", key=lambda row: natural(row.name), text=lambda row: row.name),
    Column(title="Taints", sort="devices", key=lambda row: row.devices, text=lambda row: row.devices),
    Column(title="With", sort="taint", key=lambda row: row.taint, text=lambda row: row.taint),
    Column(title="Devices", css="num", sort="selected", key=lambda row: row.selected, text=lambda row: row.selected),
    Column(title="Held", css="num", sort="held", key=lambda row: row.held, text=lambda row: row.held),
    Column(title="Status", sort="status", key=lambda row: row.status, text=lambda row: row.status),
    Column(title="Age", css="num", sort="age", key=lambda row: row.created, text=lambda row: row.created),
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
        read=sorted_by(COLUMNS, query.sort or "name", found).__getitem__,
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
        off="" if gates.enabled(GATE) else OFF,
        may_create=person.may("create", TAINT_RULES),
    )
    return show_list(request, "inventory/taint_rules/list.html", context)


def _row(rule: DeviceTaintRule, snapshot: DeviceSnapshot) -> RuleRow:
    keys = selected_by(rule, snapshot)
    return RuleRow(rule=rule, selected=len(keys), held=sum(bool(snapshot.held_by(key)) for key in keys))


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleContext(PageContext):
    """devices: the first that it taints; more: how many others there are. off: why it has no effect now."""

    row: RuleRow
    off: str
    devices: Sequence[tuple[str, str, str]]  # address, title, state
    more: int
    may_update: bool
    may_delete: bool


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
            crumbs=((reverse("taint-rules"), "Taint rules"),),
            word="Taint rule",
            name=name,
            url=taint_rule_url(name),
            topics="slices",
            yaml=yaml_url(TAINT_RULES, "", name),
        )
        return show_history(request, page, [rule.metadata.uid])
    keys = selected_by(rule, snapshot)
    context = RuleContext(
        place="devices",
        revision=revision,
        row=_row(rule, snapshot),
        off="" if gates.enabled(GATE) else OFF,
        devices=[(device_url(*key), f"{key[1]} / {key[2]}", snapshot.state(key)) for key in keys[:NAMED]],
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

    @property
    def devices(self) -> list[BoundField]:
        return [self["driver"], self["pool"], self["device"]]

    @classmethod
    def of(cls, rule: DeviceTaintRule) -> RuleForm:
        """Filled in with a rule that exists."""
        selector, taint = rule.spec.device_selector or DeviceTaintSelector(), rule.spec.taint
        devices = {name: getattr(selector, name) or "" for name in ("driver", "pool", "device")}
        typed = {"key": taint.key, "value": taint.value, "effect": taint.effect}
        return cls({"name": rule.metadata.name, **devices, **typed, "version": rule.metadata.resource_version})

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
        rules, rule, identity = kind(TAINT_RULES), self.rule(before), person.identity
        try:
            if before is None:
                return verbs.create(rules, rule, identity=identity, dry_run=dry_run)
            return verbs.update(rules, rule, name=before.metadata.name, identity=identity, dry_run=dry_run).object
        except ApiError as refusal:
            self.add_refusal(refusal, not_changed(refusal, noun="rule"))
            return None


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


@listing(TAINT_RULES)
@require_http_methods(["GET", "HEAD", "POST"])
def new_rule(request: HttpRequest) -> HttpResponse:
    """A form; with something typed, what the rule would do; a POST makes it."""
    return _edit(request, demand(request, "create taint rules", "create", TAINT_RULES), None)


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
            snapshot = read_devices()
            stays = irrevocable([made], selected_by(made, snapshot), snapshot)
            said = f"Taint rule {made.metadata.name} is {word}.{stays}"
            undo.offer(request, said, [undo.UndoStep.of(kind(TAINT_RULES), before, made)])
            return redirect(taint_rule_url(made.metadata.name))
        change = RuleChange(before=before, after=form.rule(before))
        effect = effect_of([change], person, read_devices(), datetime.now(UTC))
    pools = sorted(read_devices().pools)
    context = RuleFormContext(
        place="devices",
        revision=latest_revision(),
        form=form,
        before=before,
        back=taint_rule_url(before.metadata.name) if before else reverse("taint-rules"),
        effect=effect,
        effects=EFFECT_MEANINGS,
        chosen_effect=form.text("effect") or "NoSchedule",
        drivers=sorted({pool.driver for pool in pools}),
        pools=sorted({pool.name for pool in pools}, key=natural),
    )
    return render_page(request, "inventory/taint_rules/form.html", context, status=422 if form.errors else 200)


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
            return redirect(reverse("taint-rules"))
    preview = ActionPreview(
        action="Delete",
        noun="taint rule",
        uid=rule.metadata.uid,
        above=(("Taint rules", reverse("taint-rules")), (name, taint_rule_url(name))),
        effect=effect_of([RuleChange(before=rule)], person, read_devices(), datetime.now(UTC)),
        topics="slices",
        error=error,
    )
    return show_preview(request, preview, place="devices", revision=revision)
