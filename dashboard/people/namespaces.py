"""The namespaces: `/namespaces`, and `/namespaces/NS` with what one holds: claims, pods, quotas, budgets, accounts.

Administrators create them, open them to admin access and delete them; what a deletion takes along is counted first
(`?delete=1`), and only the button below the counts deletes. Tokens of service accounts are shown in the answer to the
button that made them, and never again.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar
from urllib.parse import urlencode

from django import forms
from django.contrib import messages
from django.contrib.auth import get_user_model
from django.core.exceptions import PermissionDenied
from django.db.models import Count, Model, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe
from msgspec import structs

from claims.admission import ADMIN_ACCESS_LABEL, is_admin_namespace
from claims.causes.causes import decode
from claims.causes.next_steps import Topic, topic_of
from claims.kinds.disruption_budgets import DISRUPTION_ALLOWED, SYNC_FAILED, PodDisruptionBudget
from claims.models import AllocatedDevice, Claim, Pod
from dashboard.capacity.quotas import QuotaLine, may_read, read_quotas
from dashboard.kit.forms import PageForm, code_input, plain, posted_from
from dashboard.kit.guards import namespaced
from dashboard.kit.lists import Filter, ListColumn, ListQuery, Table, parameter, sorted_by
from dashboard.kit.meters import MeterCharts, asked_window, draw
from dashboard.kit.preferences import opens_as_usual
from dashboard.kit.rendering import ListContext, PageContext, render_page, show_list
from dashboard.people.roles import GivenRole, may_ask, roles_of_accounts
from dashboard.templatetags.kit import access_url, counted, namespace_url, page_url, person_url, yaml_url
from dashboard.tools.objects import HistoryPage, asked, show_history
from dashboard.workloads.claims import queries as claim_queries
from dashboard.workloads.workloads.queries import workload_states
from insight.meters import HELD
from insight.start_estimates import QueuePlace, read_queue
from inventory.meters import history
from inventory.models import MeterBlock
from inventory.reachability import lost_nodes
from manciple.access.kinds.service_accounts import SERVICE_ACCOUNT, ServiceAccount, TokenRequest, TokenRequestSpec
from manciple.api import service_account_tokens, verbs
from manciple.api.auditing import page_write
from manciple.api.namespaces import IMMORTAL_NAMESPACES
from manciple.api.requests import ResourcePath, WriteOptions
from manciple.gaps import lacking
from manciple.people import Person, demand, demand_sight, person_of
from manciple.store import objects, sql
from manciple.store.event_log import latest_revision
from manciple.store.objects import listed
from manciple.wire import codec
from manciple.wire.base import ObjectMeta, condition_of
from manciple.wire.errors import ApiError
from manciple.wire.identity import NAMESPACE_GROUP, service_account_name
from manciple.wire.machinery import Namespace
from manciple.wire.registry import registry
from manciple.wire.resources import BUDGETS, FINISHED_PHASES, NAMESPACES, NEW_PHASES, kind
from scheduling.models import QueuedPod

T = TypeVar("T")
#: Pods in the order in which they are told.
POD_STATES = ("Waiting", "Starting", "Running", "Unreachable", "Deleting", "Succeeded", "Failed", "Unknown")
#: Waiting pods that a namespace's page lists, the first in the queue.
QUEUED = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceHoldings:
    """What one namespace holds."""

    name: str
    exists: bool = True
    ending: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    devices: Mapping[str, int] = field(default_factory=dict)  # class -> devices held
    claims: Mapping[str, int] = field(default_factory=dict)
    pods: Mapping[str, int] = field(default_factory=dict)
    causes: tuple[tuple[Topic, int], ...] = ()  # why its pods wait, and how many for that, the most first

    @property
    def device_count(self) -> int:
        return sum(self.devices.values())

    @property
    def claim_count(self) -> int:
        return sum(self.claims.values())

    @property
    def pod_count(self) -> int:
        return sum(self.pods.values())

    @property
    def waiting(self) -> int:
        return self.pods.get("Waiting", 0)

    @property
    def devices_by_class(self) -> str:
        return ", ".join(f"{name} {count:,}" for name, count in self.devices.items())

    @property
    def claims_by_state(self) -> str:
        return ", ".join(f"{count:,} {state.lower()}" for state, count in self.claims.items())

    @property
    def pods_by_state(self) -> str:
        """Of those that do not wait, behind these."""
        counts = [f"{count:,} {state.lower()}" for state, count in self.pods.items() if state != "Waiting"]
        return (", " if self.waiting and counts else "") + ", ".join(counts)

    @property
    def ends(self) -> str:
        """What a deletion ends."""
        running = self.pods.get("Running", 0)
        told = counted(running, "running pod") if running else "No running pod"
        return f"{told}, and {counted(self.waiting, 'that waits', 'that wait')}." if self.waiting else f"{told}."

    @property
    def frees(self) -> str:
        """What a deletion frees."""
        by_class = ", ".join(f"{count:,} of {name}" for name, count in self.devices.items())
        return f"{counted(self.device_count, 'device')}: {by_class}." if self.device_count else "No device."

    @property
    def admin_access(self) -> bool:
        return is_admin_namespace(self.labels)

    @property
    def immortal(self) -> bool:
        return self.name in IMMORTAL_NAMESPACES


def read_namespaces(person: Person, *, name: str = "") -> list[NamespaceHoldings]:
    """Those that `person` sees, or only `name`; ones that hold something without existing are told too."""
    stored = objects.list(kind(NAMESPACES)).items if not name else [objects.get(kind(NAMESPACES), "", name)]
    found = {one.name: one for one in stored if one is not None and person.sees(one.name)}
    chosen = {"namespace": name} if name else {}
    now = datetime.now(UTC)
    pods = _pods(Pod.objects.restrict(person).filter(**chosen), now)
    claims = claim_queries.count_states_by_namespace(Claim.objects.restrict(person).filter(**chosen), now=now)
    given = AllocatedDevice.objects.restrict(person).filter(admin_access=False)
    given = given.filter(claim__namespace=name) if name else given
    by_class = _counted(given, "claim__namespace", "device_class")
    devices = _by_namespace((space, class_name or "no class", count) for space, class_name, count in by_class)
    waiting = QueuedPod.objects.waiting().restrict(person).filter(**chosen).exclude(cause="")
    by_cause = _counted(waiting, "namespace", "cause")
    causes = _by_namespace((space, topic_of(decode(cause)), count) for space, cause, count in by_cause)
    return [
        NamespaceHoldings(
            name=one,
            exists=one in found or bool(lacking(NAMESPACES)),
            ending=one in found and found[one].deleting,
            labels=dict(sorted(found[one].labels.items())) if one in found else {},
            devices=dict(sorted(devices[one].items(), key=lambda held: (-held[1], held[0]))),
            claims={title: claims[one][state] for state, title in claim_queries.STATES.items() if claims[one][state]},
            pods={state: pods[one][state] for state in POD_STATES if pods[one][state]},
            causes=tuple(sorted(causes[one].items(), key=lambda cause: (-cause[1], cause[0].title))),
        )
        for one in sorted({*found, *pods, *claims, *devices})
    ]


def _counted(found: QuerySet[Model], *columns: str) -> Iterable[tuple[Any, ...]]:
    """(values of the columns, rows with them)."""
    counted: Iterable[tuple[Any, ...]] = found.order_by().values_list(*columns).annotate(count=Count("pk"))
    return counted


def _pods(found: QuerySet[Pod], now: datetime) -> dict[str, Counter[str]]:
    pods: dict[str, Counter[str]] = defaultdict(Counter)
    lost = found.filter(node_name__in=lost_nodes(now))
    for rows, new, old in (
        (found.exclude(node_name="").exclude(pk__in=lost.values("pk")), "Starting", ""),
        (found.filter(node_name=""), "Waiting", ""),
        (lost, "Unreachable", "Unreachable"),
    ):
        for namespace, phase, deleting, count in _counted(rows, "namespace", "phase", "deleting"):
            known = phase if phase in POD_STATES else "Unknown"
            state = new if phase in NEW_PHASES else known if phase in FINISHED_PHASES else old or known
            pods[namespace]["Deleting" if deleting else state] += count
    return pods


def _by_namespace(rows: Iterable[tuple[str, T, int]]) -> dict[str, Counter[T]]:
    """(namespace, what, how many) together."""
    found: dict[str, Counter[T]] = defaultdict(Counter)
    for namespace, what, count in rows:
        found[namespace][what] += count
    return found


def contents(person: Person, name: str) -> list[tuple[str, int]]:
    """(kind, how many objects of it) that would go with the namespace, most first; what `person` may list."""
    found = [
        (one.kind, sql.count(one.resource, namespace=name))
        for one in registry
        if one.namespaced and person.may("list", one.resource, name)
    ]
    return sorted(((title, count) for title, count in found if count), key=lambda one: (-one[1], one[0]))


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceAccount:
    """One service account. url: of what it may do and why, "" for who may not ask."""

    name: str
    url: str
    roles: Sequence[GivenRole]
    has_token: bool
    pull_secrets: Sequence[str]


def read_accounts(person: Person, namespace: str) -> list[NamespaceAccount] | None:
    """None for who may not list them."""
    if not person.may("list", SERVICE_ACCOUNT.resource, namespace):
        return None
    _, found = listed(SERVICE_ACCOUNT.resource, ServiceAccount, namespace=namespace)
    given, asks = roles_of_accounts(person, namespace), may_ask(person)
    return [
        NamespaceAccount(
            name=one.metadata.name,
            url=access_url(service_account_name(namespace, one.metadata.name)) if asks else "",
            roles=given.get(one.metadata.name, ()),
            has_token=one.automount_service_account_token is not False,
            pull_secrets=[secret.name for secret in one.image_pull_secrets],
        )
        for one in found
    ]


@dataclass(frozen=True, slots=True)
class BudgetLine:
    """One budget in words."""

    budget: PodDisruptionBudget

    @property
    def url(self) -> str:
        return yaml_url(BUDGETS, *self.budget.key)

    @property
    def asks(self) -> str:
        spec = self.budget.spec
        if spec.max_unavailable is not None:
            return f"at most {spec.max_unavailable} away"
        return "nothing" if spec.min_available is None else f"at least {spec.min_available} ready"

    @property
    def failed(self) -> str:
        """Why it is not known what it lets go; "" where it is."""
        condition = condition_of(self.budget.status.conditions, DISRUPTION_ALLOWED)
        return condition.message if condition is not None and condition.reason == SYNC_FAILED else ""


def read_budgets(person: Person, namespace: str) -> Sequence[BudgetLine] | None:
    """None for who may not list them."""
    if not person.may("list", BUDGETS, namespace):
        return None
    return [*map(BudgetLine, listed(BUDGETS, PodDisruptionBudget, namespace=namespace)[1])]


#: What asking for one takes the right to create.
TOKENS = f"{SERVICE_ACCOUNT.resource}/token"
HOUR = 3600
#: Seconds to choose from, and their words.
LIFETIMES = (
    (HOUR, "1 hour"), (8 * HOUR, "8 hours"), (24 * HOUR, "1 day"), (7 * 24 * HOUR, "7 days"),
    (30 * 24 * HOUR, "30 days"), (365 * 24 * HOUR, "1 year"),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountToken:
    """expires: when, as the API writes moments."""

    account: str
    text: str
    expires: str


class TokenForm(PageForm):
    """accounts: those of which the person may have tokens."""

    ids = "account-%s"

    account = forms.ChoiceField(
        widget=forms.Select({"class": "input"}),
        error_messages={"invalid_choice": "%(value)s does not exist, or you may not create its tokens."},
    )
    lifetime = forms.TypedChoiceField(
        coerce=int, choices=LIFETIMES, initial=8 * HOUR, widget=forms.Select({"class": "input"})
    )

    def __init__(self, accounts: Sequence[str], data: Any = None) -> None:
        super().__init__(data)
        field: Any = self.fields["account"]
        field.choices = [(name, name) for name in accounts]


def issue(person: Person, namespace: str, account: str, *, seconds: int) -> AccountToken:
    """As `kubectl create token` gets one. Raises: ApiError."""
    asked = TokenRequest(
        api_version="authentication.k8s.io/v1", kind="TokenRequest", spec=TokenRequestSpec(expiration_seconds=seconds)
    )
    target: dict[str, Any] = {"namespace": namespace, "name": account, "subresource": "token"}
    where = ResourcePath(group="", version="v1", plural=SERVICE_ACCOUNT.plural, **target)
    with page_write("create", SERVICE_ACCOUNT, identity=person.identity, **target):
        answer = service_account_tokens.request_token(
            SERVICE_ACCOUNT,
            where,
            codec.encode(asked),
            content_type="application/json",
            identity=person.identity,
            options=WriteOptions(),
        )
    status = answer["status"]
    return AccountToken(account=account, text=status["token"], expires=status["expirationTimestamp"])


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceQuery(ListQuery):
    text: str = parameter("q")


class NewNamespaceForm(PageForm):
    name = forms.CharField(required=False, widget=code_input("new-namespace", required=True))


#: What the list tells of a namespace.
COLUMNS = (
    ListColumn[NamespaceHoldings](
        title="Namespace", sort="name", key=lambda held: held.name, text=lambda held: held.name
    ),
    ListColumn[NamespaceHoldings](
        title="Devices in claims",
        sort="devices",
        key=lambda held: -held.device_count,
        text=lambda held: held.device_count,
    ),
    ListColumn[NamespaceHoldings](
        title="Claims", sort="claims", key=lambda held: -held.claim_count, text=lambda held: held.claim_count
    ),
    ListColumn[NamespaceHoldings](
        title="Pods", sort="pods", key=lambda held: -held.pod_count, text=lambda held: held.pod_count
    ),
    ListColumn[NamespaceHoldings](
        title="Waiting",
        css="num",
        sort="wait",
        extra=True,
        key=lambda held: held.waiting,
        text=lambda held: held.waiting,
    ),
    ListColumn[NamespaceHoldings](
        title="Why its pods wait",
        sort="waiting",
        key=lambda held: -held.waiting,
        text=lambda held: "; ".join(topic.title.replace("`", "") for topic, _ in held.causes),
    ),
)


@namespaced()
@require_http_methods(["GET", "HEAD", "POST"])
@opens_as_usual
def list_namespaces(request: HttpRequest) -> HttpResponse:
    """The list; a POST makes a namespace."""
    return _create(request) if request.method == "POST" else _draw_list(request)


def _create(request: HttpRequest) -> HttpResponse:
    person = demand(request, "create namespaces", "create", NAMESPACES)
    form = NewNamespaceForm(request.POST)
    if form.is_valid():
        name = form.cleaned_data["name"]
        try:
            verbs.create(kind(NAMESPACES), Namespace(metadata=ObjectMeta(name=name)), identity=person.identity)
        except ApiError as refusal:
            form.add_error("name", _explained(refusal, name))
    if form.errors:
        return _draw_list(request, form)
    messages.success(request, f"Created namespace {name}.")
    return redirect(namespace_url(name))


def _explained(refusal: ApiError, name: str) -> str:
    if refusal.reason == "AlreadyExists":
        return f"Namespace {name} already exists. Choose another name."
    causes = (refusal.details or {}).get("causes") or []
    said = next((str(cause.get("message", "")) for cause in causes), refusal.message)
    return f"Invalid name: {said.removeprefix(f'Invalid value: {json.dumps(name)}: ')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespacesContext(ListContext):
    """total: namespaces that the person sees, whatever the filter."""

    query: NamespaceQuery
    total: int
    may_edit: bool
    form: NewNamespaceForm


def _draw_list(request: HttpRequest, form: NewNamespaceForm | None = None) -> HttpResponse:
    revision, person = latest_revision(), person_of(request)
    query = NamespaceQuery.read(request)
    found = read_namespaces(person)
    chosen = [one for one in found if query.text.lower() in one.name.lower()]
    table = Table(
        id="namespaces",
        topics="namespaces pods: claims: pool:",
        title="Namespaces",
        query=query,
        columns=COLUMNS,
        read=sorted_by(COLUMNS, query.sort, chosen).__getitem__,
        filters=(Filter("q", "Name", query.text, hint="Name"),),
    )
    context = NamespacesContext(
        place="namespaces",
        revision=revision,
        query=query,
        table=table,
        total=len(found),
        may_edit=person.may("create", NAMESPACES),
        form=form or NewNamespaceForm(),
    )
    return show_list(request, "people/namespaces/list.html", context, status=422 if form else 200)


@namespaced()
@require_safe
def show_namespace(request: HttpRequest, name: str) -> HttpResponse:
    """One namespace; with `?delete=1` what a deletion would take along, with `?admin=1` what opening it means."""
    person = demand_sight(request, name, f"Namespace {name}")
    if asked(request):
        return _show_history(request, name)
    deleting = "delete" in request.GET and person.may("delete", NAMESPACES)
    return _draw(request, name, deleting=deleting, opening="admin" in request.GET)


def _show_history(request: HttpRequest, name: str) -> HttpResponse:
    stored = objects.get(kind(NAMESPACES), "", name)
    if stored is None:
        raise Http404(f"Namespace {name} does not exist.")
    page = HistoryPage(
        place="namespaces",
        crumbs=((reverse("namespaces"), "Namespaces"),),
        word="Namespace",
        name=name,
        url=namespace_url(name),
        topics="namespaces",
        yaml=yaml_url("namespaces", "", name),
    )
    return show_history(request, page, [stored.uid], namespace=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceContext(PageContext):
    """deleting, opening: what is asked about. accounts, quotas, budgets: None for who may not list them. members:
    people of the namespace's group, with links; None for who does not look after people.
    """

    held: NamespaceHoldings
    name: str
    may_edit: bool
    complaint: str
    deleting: bool
    opening: bool
    contents: Sequence[tuple[str, int]]  # (kind, how many objects)
    members: Sequence[tuple[str, str]] | None
    accounts: Sequence[NamespaceAccount] | None
    quotas: Sequence[QuotaLine] | None
    budgets: Sequence[BudgetLine] | None
    token_form: TokenForm | None  # None for who may have a token of none of the accounts
    token: AccountToken | None  # that was just made
    meters: MeterCharts | None
    invite_url: str
    workloads: Sequence[tuple[str, int]]  # (state, how many)
    workload_count: int
    queue: Sequence[QueuePlace]
    more_queued: int
    label: str = ADMIN_ACCESS_LABEL


def _draw(
    request: HttpRequest,
    name: str,
    *,
    deleting: bool = False,
    opening: bool = False,
    complaint: str = "",
    token_form: TokenForm | None = None,
    token: AccountToken | None = None,
) -> HttpResponse:
    revision, person = latest_revision(), person_of(request)
    found = read_namespaces(person, name=name)
    if not found:
        raise Http404(f"Namespace {name} does not exist.")
    accounts = read_accounts(person, name)
    workloads = workload_states(person, name)
    queue = [place for place in read_queue(datetime.now(UTC)).values() if place.namespace == name]
    context = NamespaceContext(
        place="namespaces",
        revision=revision,
        held=found[0],
        name=name,
        may_edit=person.may("create", NAMESPACES),
        complaint=complaint,
        deleting=deleting,
        opening=opening and person.may("update", NAMESPACES),
        contents=contents(person, name),
        members=_read_members(name) if person.administers else None,
        accounts=accounts,
        quotas=read_quotas(person, namespace=name) if may_read(person, name) else None,
        budgets=read_budgets(person, name),
        token_form=token_form or _token_form(person, name, accounts),
        token=token,
        meters=_meters(request, name),
        invite_url=f"{page_url('people')}?{urlencode({'group': NAMESPACE_GROUP + name})}",
        workloads=workloads,
        workload_count=sum(count for _, count in workloads),
        queue=queue[:QUEUED],
        more_queued=max(len(queue) - QUEUED, 0),
    )
    refused = complaint or (token_form is not None and token_form.errors)
    return render_page(request, "people/namespaces/page.html", context, status=422 if refused else 200)


def _read_members(name: str) -> list[tuple[str, str]]:
    found = get_user_model()._default_manager.filter(groups__name=f"{NAMESPACE_GROUP}{name}", is_active=True)
    return [(one, person_url(one)) for one in found.order_by("username").values_list("username", flat=True)]


def _meters(request: HttpRequest, name: str) -> MeterCharts | None:
    window = asked_window(request.GET, datetime.now(UTC))
    read = history(MeterBlock.Owner.NAMESPACE, [name], since=window.begin, until=window.end)
    return draw([read.get((name, HELD), ())], request.GET, window)


def _token_form(
    person: Person, namespace: str, accounts: Iterable[NamespaceAccount] | None, data: Any = None
) -> TokenForm | None:
    names = [one.name for one in accounts or () if person.may("create", TOKENS, namespace, one.name)]
    return TokenForm(names, data) if names else None


@namespaced()
@never_cache
@posted_from("namespace")
def make_token(request: HttpRequest, name: str) -> HttpResponse:
    """A token of a service account, shown this once."""
    person = demand_sight(request, name, f"Namespace {name}")
    if (form := _token_form(person, name, read_accounts(person, name), request.POST)) is None:
        refusal = f"You may not create tokens of service accounts in the namespace {name}."
        raise PermissionDenied(f"{refusal} Ask an administrator for a role.")
    if not form.is_valid():
        return _draw(request, name, token_form=form)
    try:
        token = issue(person, name, form.cleaned_data["account"], seconds=form.cleaned_data["lifetime"])
    except ApiError as refusal:
        return _refused(request, name, refusal)
    return _draw(request, name, token=token)


@namespaced()
@posted_from("namespace")
def change_namespace(request: HttpRequest, name: str) -> HttpResponse:
    """Open it to admin access, or close it."""
    person = demand(request, "open namespaces to admin access", "update", NAMESPACES)
    opens = request.POST.get("admin_access") == "true"

    def relabelled(old: Any) -> Any:
        labels = {key: value for key, value in old.metadata.labels.items() if key != ADMIN_ACCESS_LABEL}
        wanted = {**labels, ADMIN_ACCESS_LABEL: "true"} if opens else labels
        return structs.replace(old, metadata=structs.replace(old.metadata, labels=wanted))

    try:
        verbs.modify(kind(NAMESPACES), relabelled, name=name, identity=person.identity)
    except ApiError as refusal:
        return _refused(request, name, refusal)
    told = "Open to admin access." if opens else "Closed to admin access."
    messages.success(request, told)
    return redirect(namespace_url(name))


@namespaced()
@posted_from("namespace")
def delete_namespace(request: HttpRequest, name: str) -> HttpResponse:
    """Delete it and what is in it, as `kubectl delete namespace` does."""
    person = demand(request, "delete namespaces", "delete", NAMESPACES)
    try:
        deletion = verbs.delete(kind(NAMESPACES), name=name, identity=person.identity)
    except ApiError as refusal:
        return _refused(request, name, refusal)
    if deletion.gone or not read_namespaces(person, name=name):
        messages.success(request, f"Namespace {name} is deleted.")
        return redirect("namespaces")
    messages.success(request, f"Namespace {name} is being deleted; it goes with its last pod.")
    return redirect(namespace_url(name))


def _refused(request: HttpRequest, name: str, refusal: ApiError) -> HttpResponse:
    if refusal.reason == "NotFound":
        raise Http404(refusal.message)
    return _draw(request, name, complaint=plain(refusal.message))
