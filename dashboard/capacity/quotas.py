"""Quotas: what each namespace may have and has, and the pods that a quota keeps waiting; other limits to try.

`/quotas` lists those that the person may list; `/quotas/NAMESPACE/NAME` is one. `?try=1&hard.KEY=AMOUNT` tells what
these limits would refuse and writes nothing; only the button under that, for people who may update the quota, sets
them. Limits take nothing away: what is used already stays, also above them. They refuse what is made from then on. Of
the pods that wait, some lack a claim that is still to be made, and get it or are refused; the others are counted
already, and would be refused if somebody made them again (a Job does, when one fails).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, cast
from urllib.parse import urlencode

from django import forms
from django.conf import settings
from django.core.exceptions import ValidationError
from django.db.models import Case, Count, F, Max, OrderBy, OuterRef, QuerySet, Subquery, When
from django.db.models.functions import Coalesce
from django.forms.boundfield import BoundField
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods, require_safe
from msgspec import structs

from claims import models
from claims.causes import causes
from claims.causes.causes import NoNodeFits, QuotaUsedUp
from claims.controllers.generated_claims import wants_attention
from claims.kinds.allocated_usage import CAPACITY, AllocatedKey, is_allocated_key, read_key
from claims.kinds.pods import Pod
from claims.kinds.quotas import RESOURCE_CLAIMS, RESOURCE_QUOTA, ResourceQuota, ResourceQuotaSpec
from claims.kinds.resource_claims import ResourceClaim, ResourceClaimTemplate
from claims.kinds.resource_usage import (
    ALIASES,
    CLAIMS_OF_CLASS,
    COUNT,
    DEVICES,
    NONE,
    ExtendedNames,
    QuotaLimits,
    Usage,
    minus,
    parsed,
    plus,
    usage_of,
)
from claims.pod_claims import claim_for, is_for_pod, references, requested_classes
from claims.quotas import count_for, extended_names
from dashboard.kit import undo
from dashboard.kit.forms import PageForm, code_input, posted_from
from dashboard.kit.guards import namespaced
from dashboard.kit.lists import Filter, ListColumn, ListQuery, PageOfRows, Table, giving_way, parameter
from dashboard.kit.preferences import opens_as_usual
from dashboard.kit.rendering import ListContext, PageContext, render_page, show_list
from dashboard.kit.suggestions import NamingForm, did_you_mean
from dashboard.templatetags.kit import page_url, pod_url, quota_url, yaml_url
from dashboard.tools.events import WARNING, EventQuery, ShownEvent, find
from dashboard.tools.objects import HistoryPage, asked, show_history
from inventory.kinds.devices import DeviceClass
from manciple.api import verbs
from manciple.controllers.coordination import utc_now
from manciple.people import Person, demand, demand_sight, person_of
from manciple.store import objects, sql
from manciple.store.event_log import latest_revision
from manciple.store.objects import decoded, listed
from manciple.wire.base import ObjectMeta
from manciple.wire.errors import ApiError
from manciple.wire.machinery import Namespace
from manciple.wire.quantity import Quantity
from manciple.wire.registry import registry
from manciple.wire.resources import CLAIMS, CLASSES, NAMESPACES, NEW_PHASES, PODS, QUOTAS, TEMPLATES, Key, kind
from scheduling.models import QueuedPod
from scheduling.queue.reasons import Reason
from scheduling.rehearsal.quota_refusals import RaisedLimit, with_limits
from scheduling.state.fair_share import sampled_sizes, weight_of
from scheduling.state.quota_room import least

#: What a refusal says, with the quota's name (`claims.quotas`).
_EXCEEDED = re.compile(r"exceeded quota: (?P<name>[^,]+),")
#: Events that are looked for; waiting pods that are read, the first by name.
EVENTS_READ, PODS_READ = 200, 1000
#: Documents read in one query.
READ_AT_ONCE = 500
_WORDS = {
    "pods": "Pods that have not ended",
    RESOURCE_CLAIMS: "ResourceClaims",
    "cpu": "CPU requested",
    "requests.cpu": "CPU requested",
    "limits.cpu": "CPU limits",
    "memory": "Memory requested",
    "requests.memory": "Memory requested",
    "limits.memory": "Memory limits",
}
WHOLE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaLimit:
    """One key of a quota. used: None where it is not counted yet."""

    key: str
    hard: Quantity
    used: Quantity | None

    @property
    def allocated(self) -> AllocatedKey | None:
        """The key taken apart, where it is one of ours; None for one that says nothing, of an older version's quota."""
        with suppress(ValueError):
            return read_key(self.key) if is_allocated_key(self.key) else None
        return None

    @property
    def device_class(self) -> str:
        """Of which class it counts devices, or something of devices; "" for what is no class's."""
        if self.allocated is not None:
            return self.allocated.device_class
        return self.key.removesuffix(DEVICES) if self.key.endswith(DEVICES) else ""

    @property
    def around_class(self) -> tuple[str, str]:
        """The words before and after the name of the class."""
        allocated = self.allocated
        if allocated is None:
            return "Devices of", ""
        if not allocated.measure:
            return "Devices of", "held"
        name = f"{allocated.domain}/{allocated.name}" if allocated.domain else allocated.name
        return f"{name} of", "held in shares" if allocated.measure == CAPACITY else "drawn from counters"

    @property
    def words(self) -> str:
        if self.device_class:
            before, after = self.around_class
            return f"{before} {self.device_class} {after}".rstrip()
        if self.key.startswith(COUNT):
            resource = self.key.removeprefix(COUNT)
            found = next((one.kind for one in registry if one.resource == resource), "")
            return f"{found}s" if found else self.key
        for suffix in chain.from_iterable(CLAIMS_OF_CLASS.values()):
            if self.key.endswith(suffix):
                return f"Claims of {self.key.removesuffix(suffix)}"
        return _WORDS.get(self.key, self.key)

    @property
    def percent(self) -> int:
        used = self.used or NONE
        return WHOLE * used.nanos // self.hard.nanos if self.hard.nanos else WHOLE

    @property
    def drawn(self) -> int:
        """The bar's length, in hundredths."""
        return min(self.percent, WHOLE)

    @property
    def is_over(self) -> bool:
        return self.used is not None and self.used > self.hard

    @property
    def is_full(self) -> bool:
        return self.used is not None and self.used == self.hard


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldPod:
    """A pod that the quota keeps without devices, and why."""

    name: str
    url: str
    cause: QuotaUsedUp


@dataclass(frozen=True, slots=True, kw_only=True)
class WeighedShare:
    """What of the devices of `device_class` a namespace holds, in hundredths: the class of which it holds most."""

    weight: int
    percent: int
    device_class: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaLine:
    """One quota, with what its namespace holds and waits for.

    refused: pods that it keeps without a claim. held_back: those that it keeps without devices. share: None where
    namespaces do not take turns.
    """

    quota: ResourceQuota
    held: Mapping[str, int]
    waiting: int
    refused: Sequence[ShownEvent]
    held_back: Sequence[HeldPod] = ()
    share: WeighedShare | None = None

    @property
    def kept_waiting(self) -> int:
        return len(self.refused) + len(self.held_back)

    @property
    def namespace(self) -> str:
        return self.quota.metadata.namespace

    @property
    def name(self) -> str:
        return self.quota.metadata.name

    @property
    def url(self) -> str:
        return quota_url(self.namespace, self.name)

    @property
    def limits(self) -> list[QuotaLimit]:
        """Of devices first."""
        return limits_of(self.quota)

    @property
    def scopes(self) -> list[str]:
        selector = self.quota.spec.scope_selector
        wanted = selector.match_expressions if selector else ()
        told = (f"{one.scope_name} {one.operator} {' '.join(one.values)}".strip() for one in wanted)
        return [*self.quota.spec.scopes, *told]


def limits_of(quota: ResourceQuota) -> list[QuotaLimit]:
    """Every limit, those of devices first."""
    hard, used = parsed(quota.spec.hard), parsed(quota.status.used)
    found = [QuotaLimit(key=key, hard=amount, used=used.get(key)) for key, amount in hard.items()]
    return sorted(found, key=lambda limit: (not limit.device_class, limit.key))


def try_url(quota: ResourceQuota, raised: Iterable[RaisedLimit]) -> str:
    """The page of the quota with these limits filled in, and what they would mean."""
    limits = {f"{_LIMIT}{key}": amount for key, amount in with_limits(quota, raised).spec.hard.items()}
    return f"{quota_url(*quota.key)}?{urlencode({'try': '1', **limits})}"


def may_read(person: Person, namespace: str) -> bool:
    return person.sees(namespace) and person.may("list", QUOTAS, namespace)


def read_quotas(person: Person, *, namespace: str) -> list[QuotaLine]:
    """Those of a namespace that `person` may list, by name."""
    return quota_lines(person, models.Quota.objects.restrict(person).filter(namespace=namespace).order_by("name"))


def quota_lines(person: Person, quotas: Iterable[models.Quota]) -> list[QuotaLine]:
    """In the same order; as many queries for a thousand as for one."""
    rows = list(quotas)
    if not rows:
        return []
    stored = objects.get_many(kind(QUOTAS), {(row.namespace, row.name) for row in rows})
    documents = {(one.namespace, one.name): decoded(one, ResourceQuota) for one in stored}
    spaces = {row.namespace for row in rows}
    held, waiting, shares = held_by_class(spaces), _waiting(spaces), _shares(spaces)
    refused = _refusals(person, next(iter(spaces)) if len(spaces) == 1 else "")
    held_back = _held_back(spaces)
    return [
        QuotaLine(
            quota=documents[row.namespace, row.name],
            held=dict(held[row.namespace].most_common()),
            waiting=waiting[row.namespace],
            refused=refused.get((row.namespace, row.name), ()),
            held_back=held_back.get((row.namespace, row.name), ()),
            share=shares.get(row.namespace),
        )
        for row in giving_way(rows)
        if (row.namespace, row.name) in documents
    ]


def held_by_class(namespaces: Iterable[str]) -> dict[str, Counter[str]]:
    """namespace -> class -> devices held; a look with admin access holds nothing."""
    held: dict[str, Counter[str]] = defaultdict(Counter)
    rows = models.AllocatedDevice.objects.filter(admin_access=False, claim__namespace__in=list(namespaces))
    counted = rows.order_by().values_list("claim__namespace", "device_class").annotate(count=Count("pk"))
    for namespace, device_class, count in counted:
        held[namespace][device_class or "no class"] += count
    return held


def _waiting(namespaces: Iterable[str]) -> Counter[str]:
    """namespace -> pods without a node."""
    rows = _unbound().filter(namespace__in=list(namespaces)).order_by()
    return Counter(dict(rows.values_list("namespace").annotate(count=Count("pk"))))


def _unbound() -> QuerySet[models.Pod]:
    return models.Pod.objects.filter(node_name="", deleting=False, phase__in=NEW_PHASES)


def _refusals(person: Person, namespace: str) -> dict[Key, list[ShownEvent]]:
    """(namespace, quota) -> what was last said of each pod that still lacks the claim that was refused."""
    query = EventQuery(namespace=namespace, type=WARNING, kind="Pod", text="exceeded quota: ")
    said: dict[Key, ShownEvent] = {}
    for event in find(query, person, shown=EVENTS_READ).events:
        said.setdefault((event.namespace, event.name), event)
    refused: dict[Key, list[ShownEvent]] = defaultdict(list)
    for stored in objects.get_many(kind(PODS), list(said)):
        event = said[stored.namespace, stored.name]
        exceeded = _EXCEEDED.search(event.message)
        if exceeded and wants_attention(decoded(stored, Pod)):
            refused[event.namespace, exceeded["name"]].append(event)
    return refused


def _held_back(namespaces: Iterable[str]) -> dict[Key, list[HeldPod]]:
    """(namespace, quota) -> the pods that wait for room in it, the oldest first."""
    found: dict[Key, list[HeldPod]] = defaultdict(list)
    rows = QueuedPod.objects.alias(quota=F("held_by").bitand(int(Reason.QUOTA))).filter(quota__gt=0)
    for row in rows.filter(namespace__in=list(namespaces)).order_by("created_at", "revision")[:PODS_READ]:
        cause = causes.decode(row.cause)
        because = cause.because if isinstance(cause, NoNodeFits) else cause
        if isinstance(because, QuotaUsedUp):
            pod = HeldPod(name=row.name, url=pod_url(row.namespace, row.name), cause=because)
            found[row.namespace, because.quota].append(pod)
    return found


def _shares(namespaces: Iterable[str]) -> dict[str, WeighedShare]:
    """By namespace; nothing where they do not take turns (`scheduling.state.fair_share`)."""
    wanted = sorted(namespaces)
    if not settings.SCHEDULER_FAIR_SHARE or not wanted:
        return {}
    everybody = models.AllocatedDevice.objects.filter(admin_access=False).order_by()
    all_held = dict(everybody.values_list("device_class").annotate(count=Count("pk")))
    sizes, held = sampled_sizes(utc_now()), held_by_class(wanted)
    stored = objects.get_many(kind(NAMESPACES), [("", name) for name in wanted])
    weights = {one.name: weight_of(decoded(one, Namespace).metadata.labels) for one in stored}
    shares = {}
    for name in wanted:
        parts = {one: count * WHOLE // (sizes.get(one) or all_held.get(one) or 1) for one, count in held[name].items()}
        most = max(parts, key=lambda one: parts[one], default="")
        shares[name] = WeighedShare(weight=weights.get(name, 1), percent=parts.get(most, 0), device_class=most)
    return shares


def quotas_refusing(person: Person, namespace: str, pod: str) -> list[str]:
    """The names of the quotas that keep a pod without a claim, of those that `person` may read."""
    if not may_read(person, namespace):
        return []
    return [name for (_, name), said in _refusals(person, namespace).items() if any(one.name == pod for one in said)]


# One namespace --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class UnplacedPod:
    """A pod without a node. lacking: claims that are still to be made for it; made: those that it has."""

    pod: Pod
    lacking: Sequence[ResourceClaim] = ()
    made: Sequence[ResourceClaim] = ()

    @property
    def url(self) -> str:
        return pod_url(*self.pod.key)

    @property
    def classes(self) -> set[str]:
        """The classes that its claims without devices ask for."""
        pending = (one for one in (*self.lacking, *self.made) if one.status.allocation is None)
        return {name for claim in pending for _, name in requested_classes(claim)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassUse:
    """What a namespace has of a class: devices in its claims, devices that claims without any ask for at most (a quota
    counts both), claims and pods that wait for some.
    """

    name: str
    held: int
    asked: int
    claims: int
    pods: int


def read_waiting(namespace: str) -> list[UnplacedPod]:
    """The pods without a node, the oldest first: the first thousand of them by name."""
    keys = list(_unbound().filter(namespace=namespace).order_by("name").values_list("namespace", "name")[:PODS_READ])
    stored = (one for chunk in sql.chunks(keys, READ_AT_ONCE) for one in objects.get_many(kind(PODS), chunk))
    pods = [decoded(one, Pod) for one in stored]
    named = {(namespace, one.claim) for pod in pods for one in references(pod) if one.claim}
    claims = _claims(sorted(named))
    templates: dict[str, ResourceClaimTemplate] = {}
    if any(wants_attention(pod) for pod in pods):
        found = listed(TEMPLATES, ResourceClaimTemplate, namespace=namespace)[1]
        templates = {one.metadata.name: one for one in found}
    pods.sort(key=lambda pod: (pod.metadata.creation_timestamp or "", pod.metadata.name))
    return [_waiting_pod(pod, claims, templates) for pod in pods]


def _claims(keys: Iterable[Key]) -> dict[str, ResourceClaim]:
    chunks = sql.chunks(list(keys), READ_AT_ONCE)
    found = (decoded(one, ResourceClaim) for chunk in chunks for one in objects.get_many(kind(CLAIMS), chunk))
    return {one.metadata.name: one for one in found}


def _waiting_pod(
    pod: Pod, claims: Mapping[str, ResourceClaim], templates: Mapping[str, ResourceClaimTemplate]
) -> UnplacedPod:
    entries = {entry.name: entry for entry in pod.spec.resource_claims}
    wanted = [one for one in references(pod) if one.needed]
    lacking = [
        claim_for(pod, entry, template)
        for one in wanted
        if one.claim is None
        and (entry := entries[one.entry])
        and (template := templates.get(entry.resource_claim_template_name or ""))
    ]
    made = [claim for one in wanted if (claim := claims.get(one.claim or ""))]
    return UnplacedPod(pod=pod, lacking=tuple(lacking), made=tuple(made))


def read_class_use(namespace: str, quotas: Iterable[ResourceQuota], waiting: Iterable[UnplacedPod]) -> list[ClassUse]:
    """Every class that the namespace holds devices of, waits for, or is limited in."""
    held, pods, claims = held_by_class([namespace])[namespace], Counter[str](), Counter[str]()
    for one in waiting:
        pods.update(one.classes)
        claims.update(name for claim in one.lacking for name in {name for _, name in requested_classes(claim)})
    asked = Counter[str]()
    for claim in _pending_claims(namespace):
        claims.update({name for _, name in requested_classes(claim)})
        asked.update(_devices_counted(usage_of(CLAIMS, claim, classes={})))
    limited = {limit.device_class for quota in quotas for limit in limits_of(quota)} - {""}
    return [
        ClassUse(name=name, held=held[name], asked=asked[name], claims=claims[name], pods=pods[name])
        for name in sorted({*held, *pods, *claims, *asked, *limited})
    ]


def _devices_counted(usage: Usage) -> dict[str, int]:
    """class -> devices that a quota counts."""
    return {key.removesuffix(DEVICES): amount.as_int64_ceil() for key, amount in usage.items() if key.endswith(DEVICES)}


def _pending_claims(namespace: str) -> Iterable[ResourceClaim]:
    """Those without devices, the first thousand by name."""
    rows = models.Claim.objects.filter(namespace=namespace, allocated=False, deleting=False)
    keys = cast("list[Key]", list(rows.order_by("name").values_list("namespace", "name")[:PODS_READ]))
    return _claims(keys).values()


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitChange:
    """A key with another limit. before, after: None for none."""

    limit: QuotaLimit
    before: Quantity | None
    after: Quantity | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a quota refuses: it wants so much of a key, of which so much is used."""

    quota: str
    limit: QuotaLimit
    wanted: Quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class PodOutcome:
    """The effect on a waiting pod. refusal: None if its claims would be created."""

    waiting: UnplacedPod
    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsRehearsal:
    """changes: of the limits; above: limits that are below the usage; the others: affected pods."""

    changes: Sequence[LimitChange]
    above: Sequence[QuotaLimit]
    given: Sequence[PodOutcome]  # their claims would be created
    refused: Sequence[PodOutcome]  # their claims would be refused
    again: Sequence[PodOutcome]  # they keep running, but would be refused if created again
    held: Sequence[PodOutcome]  # their claims would get no devices, even free ones


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedQuota:
    """A quota's limits with what is used of them."""

    limits: QuotaLimits
    used: Usage


def rehearse(
    before: Mapping[str, str],
    tried: CountedQuota,
    others: Iterable[CountedQuota],
    waiting: Sequence[UnplacedPod],
    classes: ExtendedNames,
) -> LimitsRehearsal:
    """before: the limits that `tried` replaces; others: the namespace's other quotas, which refuse as they do now."""
    found = [
        QuotaLimit(key=key, hard=hard, used=tried.used.get(key)) for key, hard in sorted(tried.limits.hard.items())
    ]
    quotas = sorted((tried, *others), key=lambda one: one.limits.name)
    made = [*_to_be_made(quotas, waiting, classes)]
    was, after = parsed(before), tried.limits.hard
    return LimitsRehearsal(
        changes=[
            LimitChange(
                limit=QuotaLimit(key=key, hard=after.get(key, NONE), used=tried.used.get(key)),
                before=was.get(key),
                after=after.get(key),
            )
            for key in sorted({*was, *after})
            if was.get(key) != after.get(key)
        ],
        above=[one for one in found if one.is_over],
        given=[one for one in made if not one.refusal],
        refused=[one for one in made if one.refusal],
        again=[*_made_anew(tried, waiting, classes)],
        held=[*_held(tried, waiting)],
    )


def _to_be_made(
    quotas: Sequence[CountedQuota], waiting: Iterable[UnplacedPod], classes: ExtendedNames
) -> Iterable[PodOutcome]:
    """On the pods that lack claims, in the order in which these are made."""
    used = {one.limits.name: one.used for one in quotas}
    for one in waiting:
        if not one.lacking:
            continue
        wanted = {quota.limits.name: _claims_share(quota.limits, one.lacking, classes) for quota in quotas}
        refusals = (_refusal(quota.limits, wanted[quota.limits.name], used[quota.limits.name]) for quota in quotas)
        refusal = next((found for found in refusals if found), None)
        if refusal is None:
            used = {name: plus(amounts, wanted[name]) for name, amounts in used.items()}
        yield PodOutcome(waiting=one, refusal=refusal)


def _made_anew(tried: CountedQuota, waiting: Iterable[UnplacedPod], classes: ExtendedNames) -> Iterable[PodOutcome]:
    """On the pods that are counted and would not be let in again, after all that does not wait."""
    shares = [(one, _share(tried.limits, one, classes)) for one in waiting if not one.lacking]
    used = tried.used
    for _, share in shares:
        used = minus(used, share)
    for one, share in shares:
        refusal = _refusal(tried.limits, share, used)
        if refusal is not None:
            yield PodOutcome(waiting=one, refusal=refusal)
        else:
            used = plus(used, share)


def _held(tried: CountedQuota, waiting: Iterable[UnplacedPod]) -> Iterable[PodOutcome]:
    """On the pods that would get no devices, by the least that they ask for; those before them get theirs."""
    used = tried.used
    for one in waiting:
        wanted: Usage = {}
        for claim in (*one.lacking, *one.made):
            of_pod = one.pod if claim in one.lacking or is_for_pod(claim, one.pod) else None
            if claim.status.allocation is None and tried.limits.concerns(CLAIMS, claim, of_pod):
                wanted = plus(wanted, {key: n for key, n in least(claim).items() if key in tried.limits.hard})
        refusal = _refusal(tried.limits, wanted, used)
        if refusal is not None:
            yield PodOutcome(waiting=one, refusal=refusal)
        else:
            used = plus(used, wanted)


def _share(limits: QuotaLimits, one: UnplacedPod, classes: ExtendedNames) -> Usage:
    """What the pod counts, and the claims that were made for it alone."""
    own = limits.share(PODS, one.pod, usage_of(PODS, one.pod, classes=classes), classes)
    uid = one.pod.metadata.uid
    made = [claim for claim in one.made if any(owner.uid == uid for owner in claim.metadata.owner_references)]
    return plus(own, _claims_share(limits, made, classes))


def _claims_share(limits: QuotaLimits, claims: Iterable[ResourceClaim], classes: ExtendedNames) -> Usage:
    total: Usage = {}
    for claim in claims:
        total = plus(total, limits.share(CLAIMS, claim, usage_of(CLAIMS, claim, classes=classes), classes))
    return total


def _refusal(limits: QuotaLimits, wanted: Usage, used: Usage) -> Refusal | None:
    """As the writer judges it (`claims.quotas`): what is not counted limits nothing."""
    for key, amount in sorted(wanted.items()):
        if amount.sign > 0 and key in used and used[key] + amount > limits.hard[key]:
            limit = QuotaLimit(key=key, hard=limits.hard[key], used=used[key])
            return Refusal(quota=limits.name, limit=limit, wanted=amount)
    return None


#: How the inputs of limits are called: with the limit's key behind it.
_LIMIT = "hard."
_REQUIRED_VALUE = "Enter an amount, for example `8`."


class NewQuotaForm(NamingForm):
    """A quota for devices of one class; whatever else it is to limit is added on its page."""

    ids = "new-quota-%s"
    namespace = forms.CharField(widget=code_input("team-a", list="quota-namespaces", required=True))
    name = forms.CharField(widget=code_input("gpus", required=True))
    device_class = forms.CharField(widget=code_input("gpu-hopper", list="quota-classes", required=True))
    devices = forms.CharField(widget=code_input("8", required=True, inputmode="numeric"))

    def clean_namespace(self) -> str:
        name: str = self.cleaned_data["namespace"]
        known = [one.name for one in objects.list(kind(NAMESPACES)).items]
        if name not in known:
            raise ValidationError(f"Namespace {name} does not exist.{did_you_mean(name, known)}", code="missing")
        return name

    def clean(self) -> None:
        name, known = self.text("device_class"), [one.name for one in objects.list(kind(CLASSES)).items]
        if name and name not in known:
            self.refuse("device_class", f"No class is called {name}.{did_you_mean(name, known)}")

    def quota(self) -> ResourceQuota:
        """What the form asks for; of a valid form."""
        asked = self.cleaned_data
        meta = ObjectMeta(namespace=asked["namespace"], name=asked["name"])
        hard = {f"{asked['device_class']}{DEVICES}": asked["devices"]}
        spec = ResourceQuotaSpec(hard=hard)
        return ResourceQuota(api_version=RESOURCE_QUOTA.api_version, kind="ResourceQuota", metadata=meta, spec=spec)

    def complain(self, refusal: ApiError) -> None:
        """What the API says, at the field that it is about."""
        for cause in (refusal.details or {}).get("causes") or [{"message": refusal.message}]:
            field = str(cause.get("field", ""))
            place = "devices" if "hard" in field else field.rpartition(".")[2]
            self.add_error(place if place in self.fields else "name", str(cause.get("message", "")))


class LimitsForm(PageForm):
    """An input for each limit, empty for none, and one for a further limit."""

    ids = "quota-%s"
    key = forms.CharField(required=False, max_length=400, widget=code_input("gpu.deviceclass.resource.k8s.io/devices"))
    value = forms.CharField(required=False, max_length=60, widget=code_input("8"))

    def __init__(self, quota: ResourceQuota, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(data)
        self._quota, self._limits = quota, limits_of(quota)
        for limit in self._limits:
            self.fields[f"{_LIMIT}{limit.key}"] = forms.CharField(
                required=False, max_length=60, initial=quota.spec.hard[limit.key], widget=code_input("no limit")
            )

    @property
    def limits(self) -> list[tuple[QuotaLimit, BoundField]]:
        return [(limit, self[f"{_LIMIT}{limit.key}"]) for limit in self._limits]

    @property
    def typed(self) -> list[tuple[str, str]]:
        """(name, value) of all inputs, to be sent again."""
        return [(name, self.data.get(name, "")) for name in self.fields]

    @property
    def hard(self) -> dict[str, str]:
        """The limits that are wanted; of a valid form."""
        found = {limit.key: self.cleaned_data.get(f"{_LIMIT}{limit.key}", "") for limit in self._limits}
        if key := self.cleaned_data.get("key"):
            found[key] = self.cleaned_data.get("value", "")
        return {key: text for key, text in found.items() if text}

    def clean(self) -> None:
        if self.cleaned_data.get("key") and not self.cleaned_data.get("value"):
            self.add_error("value", _REQUIRED_VALUE)
        if self.cleaned_data.get("value") and not self.cleaned_data.get("key"):
            self.add_error("key", "Enter what is limited, for example `pods`.")
        for wrong in RESOURCE_QUOTA.validate_update(self.wanted(self._quota), self._quota):
            self.blame(wrong.field, wrong.body)

    def wanted(self, quota: ResourceQuota) -> ResourceQuota:
        """`quota` with the limits of the form."""
        return structs.replace(quota, spec=structs.replace(quota.spec, hard=self.hard))

    def blame(self, path: str, message: str) -> None:
        """Say what the API has against the field at `path` ("spec.hard[pods]") where it was typed."""
        key = path.removeprefix("spec.hard[").removesuffix("]")
        if f"{_LIMIT}{key}" in self.fields:
            self.add_error(f"{_LIMIT}{key}", message)
        else:
            self.add_error("key" if key == self.cleaned_data.get("key") else None, message)

    def refuse(self, error: ApiError) -> None:
        causes = (error.details or {}).get("causes") or []
        for cause in causes:
            self.blame(str(cause.get("field", "")), str(cause.get("message", "")))
        if not causes:
            self.add_error(None, error.message)


#: Pods that are named.
NAMED = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaQuery(ListQuery):
    namespace: str = parameter("ns")


#: What the list tells of a quota; `_sorting` says by what the database sorts it.
COLUMNS = (
    ListColumn[QuotaLine](title="Quota", sort="name", text=lambda line: line.name),
    ListColumn[QuotaLine](title="Namespace", sort="namespace", text=lambda line: line.namespace),
    ListColumn[QuotaLine](
        title="Used of its limits",
        sort="used",
        text=lambda line: "; ".join(f"{one.key} {one.used or NONE} of {one.hard}" for one in line.limits),
    ),
    ListColumn[QuotaLine](
        title="Devices in claims",
        sort="held",
        text=lambda line: "; ".join(f"{name} {count}" for name, count in line.held.items()),
    ),
    ListColumn[QuotaLine](title="Waiting", css="num", sort="waiting", text=lambda line: line.waiting),
    ListColumn[QuotaLine](title="Kept waiting", css="num", sort="refused", text=lambda line: line.kept_waiting),
)


def _sorting(column: str, person: Person, spaces: QuerySet[Any, Any]) -> Any:
    """By what a column sorts, None where the address names none. spaces: the namespaces that are shown."""

    def count(rows: QuerySet[Any, Any], space: str) -> Coalesce:
        of_space = rows.filter(**{space: OuterRef("namespace")}).order_by().values(space)
        return Coalesce(Subquery(of_space.values(number=Count("pk"))), 0)

    match column:
        case "name" | "namespace":
            return F(column)
        case "used":  # the fullest first
            limits = models.QuotaLimit.objects.filter(quota=OuterRef("uid")).order_by().values("quota")
            return -Coalesce(Subquery(limits.values(most=Max("fraction"))), 0.0)
        case "held":
            return -count(models.AllocatedDevice.objects.filter(admin_access=False), "claim__namespace")
        case "waiting":
            return count(_unbound(), "namespace")
        case "refused":
            kept = Counter[Key]()
            for found in (_refusals(person, ""), _held_back(spaces)):
                kept.update({key: len(pods) for key, pods in found.items()})
            return Case(*(When(namespace=key[0], name=key[1], then=number) for key, number in kept.items()), default=0)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotasContext(ListContext):
    """total: quotas that the person may read, whatever the filter; form: of a new one, None for who may make none."""

    query: QuotaQuery
    total: int
    form: NewQuotaForm | None
    namespaces: Sequence[str]
    classes: Sequence[str]


@namespaced()
@require_http_methods(["GET", "HEAD", "POST"])
@opens_as_usual
def list_quotas(request: HttpRequest) -> HttpResponse:
    """The list; a POST makes a quota."""
    return _create(request) if request.method == "POST" else _draw_list(request)


def _create(request: HttpRequest) -> HttpResponse:
    namespace = request.POST.get("namespace", "").strip()
    person = demand(request, "create quotas", "create", QUOTAS, namespace)
    form = NewQuotaForm(request.POST)
    if form.is_valid():
        wanted = form.quota()
        try:
            made = verbs.create(RESOURCE_QUOTA, wanted, namespace=namespace, identity=person.identity)
        except ApiError as refusal:
            form.complain(refusal)
        else:
            step = undo.UndoStep.of(RESOURCE_QUOTA, None, made)
            undo.offer(request, f"Created quota {made.metadata.name}.", [step])
            return redirect(quota_url(namespace, made.metadata.name))
    return _draw_list(request, form)


def _draw_list(request: HttpRequest, form: NewQuotaForm | None = None) -> HttpResponse:
    revision, person = latest_revision(), person_of(request)
    query = QuotaQuery.read(request)
    seen = models.Quota.objects.restrict(person)
    chosen = seen.filter(namespace=query.namespace) if query.namespace else seen
    page = PageOfRows.unless_few(chosen.count(), query.page)
    spaces = seen.order_by().values_list("namespace", flat=True).distinct()
    sorting = _sorting(query.sort.removeprefix("-"), person, spaces)
    first = [] if sorting is None else [OrderBy(sorting, descending=query.sort.startswith("-"))]
    ordered = chosen.order_by(*first, "namespace", "name")
    table = Table(
        id="quotas",
        topics="quotas: pods: claims: events:",
        title="Quotas",
        query=query,
        columns=COLUMNS,
        read=lambda part: quota_lines(person, ordered[part]),
        page=page,
        filters=(Filter.of_namespaces(query.namespace, spaces),),
    )
    may_create, blank = person.may_somewhere("create", QUOTAS), NewQuotaForm()
    blank.initial = {"namespace": query.namespace}
    context = QuotasContext(
        place="quotas",
        revision=revision,
        query=query,
        table=table,
        total=seen.count() if query.namespace else page.total,
        form=(form or blank) if may_create else None,
        namespaces=[one.name for one in objects.list(kind(NAMESPACES)).items if person.sees(one.name)],
        classes=[one.name for one in objects.list(kind(CLASSES)).items],
    )
    return show_list(request, "capacity/quotas/list.html", context, status=422 if form else 200)


@namespaced()
@require_safe
def show_quota(request: HttpRequest, namespace: str, name: str) -> HttpResponse:
    """One quota; with `?try=1` what other limits would refuse."""
    quota = _quota(request, namespace, name)
    if asked(request):
        return _show_history(request, quota)
    return _draw(request, quota, LimitsForm(quota, request.GET if "try" in request.GET else None))


def _quota(request: HttpRequest, namespace: str, name: str) -> ResourceQuota:
    """Raises: Http404, also for who may not read it."""
    person = demand_sight(request, namespace, f"ResourceQuota {name}")
    stored = objects.get(RESOURCE_QUOTA, namespace, name) if may_read(person, namespace) else None
    if stored is None:
        raise Http404(f"ResourceQuota {name} does not exist.")
    return cast("ResourceQuota", objects.decode(RESOURCE_QUOTA, stored.text))


def _show_history(request: HttpRequest, quota: ResourceQuota) -> HttpResponse:
    namespace, name = quota.metadata.namespace, quota.metadata.name
    page = HistoryPage(
        place="quotas",
        crumbs=((page_url("quotas"), "Quotas"), (f"{page_url('quotas')}?ns={namespace}", namespace)),
        word="Quota",
        name=name,
        url=quota_url(namespace, name),
        topics=f"quotas:{namespace}",
        yaml=yaml_url("resourcequotas", namespace, name),
    )
    return show_history(request, page, [quota.metadata.uid], namespace=namespace)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaContext(PageContext):
    """rehearsal: what the limits in the form would refuse; None where none are tried. named: pods that are named."""

    line: QuotaLine
    namespace: str
    classes: Sequence[ClassUse]
    form: LimitsForm
    rehearsal: LimitsRehearsal | None
    may_edit: bool
    named: int = NAMED


def _draw(request: HttpRequest, quota: ResourceQuota, form: LimitsForm) -> HttpResponse:
    revision, person, namespace = latest_revision(), person_of(request), quota.metadata.namespace
    lines = read_quotas(person, namespace=namespace)
    line = next((one for one in lines if one.name == quota.metadata.name), None)
    if line is None:
        raise Http404(f"ResourceQuota {quota.metadata.name} does not exist.")
    waiting = read_waiting(namespace)
    context = QuotaContext(
        place="quotas",
        revision=revision,
        line=line,
        namespace=namespace,
        classes=read_class_use(namespace, [quota], waiting),
        form=form,
        rehearsal=_rehearsed(person, quota, form, lines, waiting) if form.is_bound and form.is_valid() else None,
        may_edit=person.may("update", QUOTAS, namespace),
    )
    return render_page(request, "capacity/quotas/page.html", context, status=422 if request.method == "POST" else 200)


def _rehearsed(
    person: Person, quota: ResourceQuota, form: LimitsForm, lines: list[QuotaLine], waiting: list[UnplacedPod]
) -> LimitsRehearsal:
    limits = QuotaLimits.of(form.wanted(quota))
    tried = CountedQuota(limits=limits, used=_used(person, quota, limits))
    others = [
        CountedQuota(limits=QuotaLimits.of(one.quota), used=parsed(one.quota.status.used))
        for one in lines
        if one.name != quota.metadata.name
    ]
    return rehearse(quota.spec.hard, tried, others, waiting, extended_names(listed(CLASSES, DeviceClass)[1]))


def _used(person: Person, quota: ResourceQuota, limits: QuotaLimits) -> Usage:
    """What the quota's status tells. What it does not tell of is counted, where `person` could count it themselves."""
    namespace, told = quota.metadata.namespace, parsed(quota.status.used)
    missing = {}
    for key, amount in limits.hard.items():
        resource = key.removeprefix(COUNT) if key.startswith(COUNT) else ALIASES.get(key, "")
        if key not in told and (not resource or person.may("list", resource, namespace)):
            missing[key] = amount
    counted = count_for(namespace, replace(limits, hard=missing)) if missing else {}
    return {key: amount for key, amount in {**counted, **told}.items() if key in limits.hard}


@namespaced()
@posted_from("quota")
def change_quota(request: HttpRequest, namespace: str, name: str) -> HttpResponse:
    """Set the limits that were tried."""
    quota = _quota(request, namespace, name)
    person = demand(request, "change quotas", "update", QUOTAS, namespace)
    form = LimitsForm(quota, request.POST)
    if not form.is_valid():
        return _draw(request, quota, form)
    try:
        made = verbs.modify(
            RESOURCE_QUOTA, form.wanted, namespace=namespace, name=name, identity=person.identity, verb="update"
        )
    except ApiError as refusal:
        form.refuse(refusal)
        return _draw(request, quota, form)
    step = undo.UndoStep.of(RESOURCE_QUOTA, quota, made.object)
    undo.offer(request, f"The limits of quota {name} are set.", [step])
    return redirect(quota_url(namespace, name))
