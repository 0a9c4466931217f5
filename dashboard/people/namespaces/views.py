"""The namespaces: `/namespaces`, and `/namespaces/NS` with what one holds.

Administrators make them, open them to admin access and delete them; what a deletion takes along is counted first
(`?delete=1`), and only the button under the counts deletes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe
from msgspec import structs

from claims.admission import ADMIN_ACCESS_LABEL
from dashboard.capacity.quotas import QuotaLine, may_read, read_quotas
from dashboard.kit import links
from dashboard.kit.forms import PageForm, code_input, posted_from
from dashboard.kit.lists import Filter, ListColumn, ListQuery, Table, parameter, sorted_by
from dashboard.kit.rendering import ListContext, PageContext, render_page, show_list
from dashboard.kit.rights import namespaced
from dashboard.kit.saved_views import opens_as_usual
from dashboard.people.namespaces.accounts import NamespaceAccount, read_accounts
from dashboard.people.namespaces.budgets import BudgetLine, read_budgets
from dashboard.people.namespaces.reading import NamespaceHoldings, contents, read_namespaces
from dashboard.people.namespaces.tokens import AccountToken, TokenForm, issue, may_have
from dashboard.tools.history.views import HistoryPage, asked, show_history
from manciple.api import verbs
from manciple.people import Person, demand, demand_sight, person_of
from manciple.store import objects
from manciple.store.event_log import latest_revision
from manciple.wire.base import ObjectMeta
from manciple.wire.errors import ApiError
from manciple.wire.machinery import Namespace
from manciple.wire.resources import NAMESPACES, kind


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
        title="Devices held",
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
    return redirect(links.namespace_url(name))


def _explained(refusal: ApiError, name: str) -> str:
    if refusal.reason == "AlreadyExists":
        return f"Namespace {name} already exists. Choose another name."
    causes = (refusal.details or {}).get("causes") or []
    said = next((str(cause.get("message", "")) for cause in causes), refusal.message)
    return f"Invalid name: {said}"


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
        rows=sorted_by(COLUMNS, query.sort, chosen),
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
    return _draw(
        request,
        name,
        deleting="delete" in request.GET and person.may("delete", NAMESPACES),
        opening="admin" in request.GET,
    )


def _show_history(request: HttpRequest, name: str) -> HttpResponse:
    stored = objects.get(kind(NAMESPACES), "", name)
    if stored is None:
        raise Http404(f"Namespace {name} does not exist.")
    page = HistoryPage(
        place="namespaces",
        crumbs=(("/namespaces", "Namespaces"),),
        word="Namespace",
        name=name,
        url=links.namespace_url(name),
        topics="namespaces",
        yaml=links.yaml_url("namespaces", "", name),
    )
    return show_history(request, page, [stored.uid], namespace=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceContext(PageContext):
    """deleting, opening: what is asked about. accounts, quotas, budgets: None for who may not list them."""

    held: NamespaceHoldings
    name: str
    may_edit: bool
    labels: Sequence[tuple[str, str]]
    complaint: str
    deleting: bool
    opening: bool
    contents: Sequence[tuple[str, int]]  # (kind, how many objects)
    accounts: Sequence[NamespaceAccount] | None
    quotas: Sequence[QuotaLine] | None
    budgets: Sequence[BudgetLine] | None
    token_form: TokenForm | None  # None for who may have a token of none of the accounts
    token: AccountToken | None  # that was just made
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
    context = NamespaceContext(
        place="namespaces",
        revision=revision,
        held=found[0],
        name=name,
        may_edit=person.may("create", NAMESPACES),
        labels=sorted(found[0].labels.items()),
        complaint=complaint,
        deleting=deleting,
        opening=opening and person.may("update", NAMESPACES),
        contents=contents(person, name),
        accounts=read_accounts(person, name),
        quotas=read_quotas(person, namespace=name) if may_read(person, name) else None,
        budgets=read_budgets(person, name),
        token_form=token_form or _token_form(person, name),
        token=token,
    )
    refused = complaint or (token_form is not None and token_form.errors)
    return render_page(request, "people/namespaces/page.html", context, status=422 if refused else 200)


def _token_form(person: Person, namespace: str, data: Any = None) -> TokenForm | None:
    accounts = [one.name for one in read_accounts(person, namespace) or () if may_have(person, namespace, one.name)]
    return TokenForm(accounts, data) if accounts else None


@namespaced()
@never_cache
@posted_from("namespace")
def make_token(request: HttpRequest, name: str) -> HttpResponse:
    """A token of a service account, shown this once."""
    person = demand_sight(request, name, f"Namespace {name}")
    form = _token_form(person, name, request.POST)
    if form is None:
        raise PermissionDenied(
            f"You may not create tokens of service accounts in the namespace {name}. Ask an administrator for a role "
            "that allows it."
        )
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
    told = "Claims in it may ask for admin access now." if opens else "New claims in it may not ask for admin access."
    messages.success(request, told)
    return redirect(links.namespace_url(name))


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
    messages.success(request, f"Namespace {name} is being emptied; it is removed when its pods have ended.")
    return redirect(links.namespace_url(name))


def _refused(request: HttpRequest, name: str, refusal: ApiError) -> HttpResponse:
    if refusal.reason == "NotFound":
        raise Http404(refusal.message)
    return _draw(request, name, deleting=False, opening=False, complaint=refusal.message)
