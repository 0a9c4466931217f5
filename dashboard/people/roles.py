"""`/roles`: what roles allow and who has them, for whoever may list them; `/roles/NAME` shows one, a Role with `?ns=`.

Forms make a role, give one to somebody and take it away; each can be undone for a while. Roles and bindings are read as
far as the person may list them, in five queries for any number of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple, TypeVar, cast

from django import forms
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_safe
from msgspec import structs

from dashboard.kit import undo
from dashboard.kit.forms import code_input, plain, posted_from
from dashboard.kit.guards import authorizes, demand_copied
from dashboard.kit.lists import Filter, ListColumn, ListQuery, Table, parameter, sorted_by
from dashboard.kit.preferences import opens_as_usual
from dashboard.kit.rendering import ListContext, PageContext, render_page, show_list
from dashboard.kit.suggestions import NamingForm, did_you_mean
from dashboard.people import known_names
from dashboard.templatetags.kit import access_url, joined, role_url, yaml_url
from manciple.access.kinds import default_roles, roles
from manciple.access.kinds.policy_rules import ALL
from manciple.access.kinds.roles import (
    AnyBinding,
    AnyRole,
    ClusterRole,
    ClusterRoleBinding,
    PolicyRule,
    Role,
    RoleBinding,
    RoleRef,
    Subject,
)
from manciple.access.rbac import MEMBERS_ROLE
from manciple.api import verbs
from manciple.people import Person, demand, person_of
from manciple.store import objects
from manciple.store.event_log import latest_revision
from manciple.store.objects import listed
from manciple.wire.base import ApiObject, LabelSelector, ObjectMeta
from manciple.wire.errors import ApiError, NotFound
from manciple.wire.identity import service_account_name
from manciple.wire.registry import Kind, registry
from manciple.wire.resources import NAMESPACES, kind
from manciple.wire.selectors import as_label_selector

#: Verbs that read, and those of them that a person means by it.
READING = ("get", "list", "watch")
#: Verbs that write.
WRITING = ("create", "update", "patch", "delete")
#: Names of people, and of groups, that are offered.
OFFERED = 200
#: Resources that are named where there are more.
NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleLine:
    """One rule as a row of a table. verbs: in words; exact: as the rule has them."""

    verbs: str
    exact: str
    resources: tuple[str, ...]
    groups: tuple[str, ...]
    names: tuple[str, ...]
    paths: tuple[str, ...]

    @classmethod
    def of(cls, rule: PolicyRule) -> RuleLine:
        return cls(
            verbs=verbs_in_words(rule.verbs),
            exact=", ".join(rule.verbs),
            resources=tuple("everything" if one == ALL else one for one in rule.resources),
            groups=tuple({"": "core", ALL: "any"}.get(one, one) for one in rule.api_groups),
            names=rule.resource_names,
            paths=rule.non_resource_urls,
        )


def verbs_in_words(verbs: Sequence[str]) -> str:
    """`read, write`, `read, impersonate`, `get, list`: verbs that belong together under one word."""
    if ALL in verbs:
        return "do anything"
    words, left = [], list(dict.fromkeys(verbs))
    for word, needed in (("read", READING), ("write", WRITING)):
        if set(needed) <= set(left):
            words.append(word)
            together = {*needed, "deletecollection"} if word == "write" else set(needed)
            left = [one for one in left if one not in together]
    return ", ".join((*words, *left))


def in_short(rules: Sequence[PolicyRule]) -> str:
    """What rules allow, in a sentence: `Writes pods and secrets; reads nodes and 4 more`."""
    if any(ALL in one.verbs and ALL in one.resources and ALL in one.api_groups for one in rules):
        return "Everything"
    written = _resources(one for one in rules if set(one.verbs) - set(READING))
    read = [one for one in _resources(rules) if one not in written]
    paths = list(dict.fromkeys(path for one in rules for path in one.non_resource_urls))
    told = (("writes ", written), ("reads ", read), ("asks for ", paths))
    sentence = "; ".join(verb + joined(what, NAMED) for verb, what in told if what)
    return sentence[:1].upper() + sentence[1:] or "Nothing"


def _resources(rules: Iterable[PolicyRule]) -> list[str]:
    """Those below an object count as the object's."""
    named = (resource.partition("/")[0] for one in rules for resource in one.resources)
    return list(dict.fromkeys("all resources" if one == ALL else one for one in named))


def find_kind(named: str) -> Kind | None:
    """The kind that is served under a plural, a singular or a short name, with or without its group."""
    plural, _, group = named.lower().partition(".")
    for one in registry:
        if plural in (one.plural, one.singular, *one.short_names) and group in ("", one.group):
            return one
    return None


def may_ask(person: Person) -> bool:
    """Whether they may ask what somebody else may do."""
    return person.may("create", "subjectaccessreviews.authorization.k8s.io")


T = TypeVar("T", bound=ApiObject)
#: ("", name) of a ClusterRole, (namespace, name) of a Role
RoleKey = tuple[str, str]
#: How names begin that belong to the system.
SYSTEM_PREFIX = "system:"
_WORDS = {roles.USER: "user", roles.GROUP_KIND: "group", roles.SERVICE_ACCOUNT: "service account"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleHolder:
    """Somebody to whom a binding gives a role. where: the namespace, "" for everywhere."""

    subject: Subject
    binding: str
    where: str

    @property
    def word(self) -> str:
        return _WORDS.get(self.subject.kind, self.subject.kind)

    @property
    def account_namespace(self) -> str:
        """Of a service account; "" for others."""
        return (self.subject.namespace or self.where) if self.subject.kind == roles.SERVICE_ACCOUNT else ""

    @property
    def binding_url(self) -> str:
        """The binding, as YAML."""
        kind = roles.ROLE_BINDING if self.where else roles.CLUSTER_ROLE_BINDING
        return yaml_url(kind.resource, self.where, self.binding)

    @property
    def url(self) -> str:
        """What they may do; "" for groups, which nobody signs in as."""
        if self.subject.kind == roles.USER:
            return access_url(self.subject.name)
        if self.account_namespace:
            return access_url(service_account_name(self.account_namespace, self.subject.name))
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldRole:
    """A role and who has it."""

    role: AnyRole
    holders: Sequence[RoleHolder] = ()

    @property
    def name(self) -> str:
        return self.role.metadata.name

    @property
    def namespace(self) -> str:
        return self.role.metadata.namespace

    @property
    def url(self) -> str:
        return role_url(self.name, self.namespace)

    @property
    def is_system(self) -> bool:
        return self.name.startswith(SYSTEM_PREFIX)

    @property
    def is_default(self) -> bool:
        return isinstance(self.role, ClusterRole) and default_roles.is_default(self.role)

    @property
    def is_for_members(self) -> bool:
        """Whether members of a group `namespace:NAME` have it there, without any binding."""
        return not self.namespace and self.name == MEMBERS_ROLE

    @property
    def short(self) -> str:
        return in_short(self.role.rules)

    @property
    def lines(self) -> list[RuleLine]:
        return [RuleLine.of(rule) for rule in self.role.rules]

    @property
    def subjects(self) -> int:
        """How many have it, each counted once wherever they have it."""
        return len({(one.subject.kind, one.account_namespace, one.subject.name) for one in self.holders})

    @property
    def selectors(self) -> list[str]:
        """The labels of the roles whose rules it gathers; empty where it has its own."""
        rule = self.role.aggregation_rule if isinstance(self.role, ClusterRole) else None
        return [_told(one) for one in rule.cluster_role_selectors] if rule else []


def _told(selector: LabelSelector) -> str:
    expressions = (f"{one.key} {one.operator} {' '.join(one.values)}".strip() for one in selector.match_expressions)
    return ", ".join((*(f"{key}={value}" for key, value in selector.match_labels.items()), *expressions))


def read_roles(person: Person) -> list[HeldRole]:
    """Those that `person` may list, ClusterRoles first; of their holders, those that bindings they may list name."""
    holders = _holders(person)
    found: list[AnyRole] = [*_seen(person, roles.CLUSTER_ROLE, _cluster_roles()), *_listed(person, roles.ROLE, Role)]
    return [HeldRole(role=one, holders=holders.get((one.metadata.namespace, one.metadata.name), ())) for one in found]


class GivenRole(NamedTuple):
    """A role that somebody has by a binding. everywhere: in all namespaces."""

    name: str
    url: str
    everywhere: bool


def roles_of_accounts(person: Person, namespace: str) -> dict[str, list[GivenRole]]:
    """By the name of a service account there: what bindings that `person` may list give to it itself."""
    found: dict[str, list[GivenRole]] = defaultdict(list)
    for (where, name), holders in sorted(_holders(person).items()):
        for one in holders:
            if one.account_namespace == namespace:
                found[one.subject.name].append(GivenRole(name, role_url(name, where), not one.where))
    return found


def gathered_from(role: AnyRole, others: Iterable[HeldRole]) -> list[HeldRole]:
    """The ClusterRoles whose rules `role` gathers."""
    rule = role.aggregation_rule if isinstance(role, ClusterRole) else None
    selectors = [as_label_selector(one) for one in rule.cluster_role_selectors] if rule else []
    return [
        other
        for other in others
        if isinstance(other.role, ClusterRole)
        and other.name != role.metadata.name
        and any(one.matches(other.role.metadata.labels) for one in selectors)
    ]


def _cluster_roles() -> list[ClusterRole]:
    """With the default roles where the installation has not been started: they hold (`manciple.access.rbac`)."""
    _, stored = listed(roles.CLUSTER_ROLE.resource, ClusterRole)
    return list(stored) if _is_started(stored) else _with(stored, default_roles.gathered())


def _cluster_bindings() -> list[ClusterRoleBinding]:
    """Likewise."""
    _, stored = listed(roles.CLUSTER_ROLE_BINDING.resource, ClusterRoleBinding)
    _, started = listed(roles.CLUSTER_ROLE.resource, ClusterRole)
    return list(stored) if _is_started(started) else _with(stored, default_roles.BINDINGS)


def _is_started(stored: Iterable[ClusterRole]) -> bool:
    return any(map(default_roles.is_default, stored))


def _with(stored: Iterable[T], defaults: Iterable[T]) -> list[T]:
    """By name; what is stored goes before a default of the same name."""
    found = {one.metadata.name: one for one in (*defaults, *stored)}
    return [found[name] for name in sorted(found)]


def _holders(person: Person) -> dict[RoleKey, list[RoleHolder]]:
    bindings: list[AnyBinding] = [
        *_seen(person, roles.CLUSTER_ROLE_BINDING, _cluster_bindings()),
        *_listed(person, roles.ROLE_BINDING, RoleBinding),
    ]
    found: dict[RoleKey, list[RoleHolder]] = defaultdict(list)
    for binding in bindings:
        meta, reference = binding.metadata, binding.role_ref
        key = (meta.namespace if reference.kind == roles.ROLE_KIND else "", reference.name)
        for subject in binding.subjects:
            found[key].append(RoleHolder(subject=subject, binding=meta.name, where=meta.namespace))
    return found


def _listed(person: Person, kind: Kind, type_: type[T]) -> list[T]:
    _, found = listed(kind.resource, type_)
    return _seen(person, kind, found)


def _seen(person: Person, kind: Kind, found: Iterable[T]) -> list[T]:
    """Those in the namespaces where `person` may list them."""
    found = list(found)
    namespaces = {one.metadata.namespace for one in found}
    open_ = {one for one in namespaces if person.may("list", kind.resource, one)}
    return [one for one in found if one.metadata.namespace in open_]


#: what a rule allows -> its verbs
VERBS = {"read": READING, "write": (*READING, *WRITING, "deletecollection")}
EVERYWHERE = ""


class _RolesForm(NamingForm):
    """A form that makes an object somewhere."""

    namespace = forms.CharField(required=False, widget=forms.Select({"class": "input"}))

    def __init__(self, data: Mapping[str, Any] | None = None, *, namespaces: Iterable[str] = ()) -> None:
        super().__init__(data)
        choices = [(one, f"in {one}" if one else "everywhere") for one in namespaces]
        cast("forms.Select", self.fields["namespace"].widget).choices = choices

    def create(self, kind: Kind, wanted: T, person: Person) -> T | None:
        """What was made; None, with the reason at the name, which it is mostly about, where the API refuses."""
        try:
            made: T = verbs.create(kind, wanted, namespace=wanted.metadata.namespace, identity=person.identity)
        except ApiError as refusal:
            for cause in (refusal.details or {}).get("causes") or [{"message": refusal.message}]:
                self.add_error("name", str(cause.get("message", "")))
            return None
        return made


class NewRoleForm(_RolesForm):
    """A role with one rule for each API group; more is written as YAML."""

    ids = "new-role-%s"
    name = forms.CharField(max_length=253, widget=code_input("gpu-operators", required=True))
    verbs = forms.ChoiceField(
        choices=(("read", "read"), ("write", "read and write")), widget=forms.Select({"class": "input"})
    )
    resources = forms.CharField(
        max_length=2000, widget=code_input("pods, pods/log, resourceclaims", list="role-resources", required=True)
    )

    def clean_resources(self) -> Sequence[tuple[str, str]]:
        """(API group, resource) of each."""
        found, unknown = list[tuple[str, str]](), list[str]()
        for one in self.cleaned_data["resources"].replace(",", " ").split():
            named, slash, below = one.partition("/")
            kind = find_kind(named)
            if kind is None:
                unknown.append(named)
            else:
                found.append((kind.group, f"{kind.plural}{slash}{below}"))
        if unknown:
            meant = did_you_mean(unknown[0], (one.plural for one in registry)) or " Write plurals, such as pods."
            raise ValidationError(f"There is no resource {', '.join(unknown)}.{meant}")
        return found

    def role(self) -> AnyRole:
        """What a form without errors asks for."""
        asked, groups = self.cleaned_data, dict[str, list[str]]()
        for group, resource in asked["resources"]:
            groups.setdefault(group, []).append(resource)
        rules = tuple(
            PolicyRule(verbs=VERBS[asked["verbs"]], api_groups=(group,), resources=tuple(named))
            for group, named in groups.items()
        )
        kind, type_ = (roles.ROLE, Role) if asked["namespace"] else (roles.CLUSTER_ROLE, ClusterRole)
        meta = ObjectMeta(name=asked["name"], namespace=asked["namespace"])
        return type_(api_version=kind.api_version, kind=kind.kind, metadata=meta, rules=rules)


class GiveForm(_RolesForm):
    """Who is to have a role, and where."""

    ids = "give-%s"
    to = forms.ChoiceField(
        choices=((roles.USER, "a person"), (roles.GROUP_KIND, "a group"), (roles.SERVICE_ACCOUNT, "a service account")),
        widget=forms.Select({"class": "input"}),
    )
    name = forms.CharField(max_length=253, widget=code_input("ada", required=True, list="give-names"))

    #: whether whoever fills it in may know who there is
    checks: bool = False

    def clean(self) -> dict[str, Any]:
        found = self.cleaned_data
        name, to = str(found.get("name", "")), found.get("to")
        namespace, colon, account = name.partition(":")
        if to == roles.SERVICE_ACCOUNT and not (namespace and colon and account):
            self.add_error("name", "Write a service account as NAMESPACE:NAME.")
        elif self.checks and name:
            if to == roles.SERVICE_ACCOUNT:
                self.refuse("name", known_names.unknown_account(namespace, account))
            elif to:
                unknown = known_names.unknown_user if to == roles.USER else known_names.unknown_group
                self.refuse("name", unknown(name))
        return found

    @property
    def names(self) -> Sequence[str]:
        """To choose from."""
        return [*islice(known_names.people(), OFFERED), *known_names.groups()[:OFFERED]] if self.checks else []

    def subject(self) -> Subject:
        """Of a valid form."""
        asked = self.cleaned_data
        if asked["to"] != roles.SERVICE_ACCOUNT:
            return Subject(kind=asked["to"], api_group=roles.GROUP, name=asked["name"])
        namespace, _, name = asked["name"].partition(":")
        return Subject(kind=asked["to"], name=name, namespace=namespace)

    def binding(self, role: AnyRole) -> AnyBinding:
        """Of a valid form."""
        namespace = self.cleaned_data["namespace"]
        kind, type_ = (
            (roles.ROLE_BINDING, RoleBinding) if namespace else (roles.CLUSTER_ROLE_BINDING, ClusterRoleBinding)
        )
        reference = roles.CLUSTER_ROLE_KIND if isinstance(role, ClusterRole) else roles.ROLE_KIND
        return type_(
            api_version=kind.api_version,
            kind=kind.kind,
            metadata=ObjectMeta(generate_name=f"{role.metadata.name}-", namespace=namespace),
            subjects=(self.subject(),),
            role_ref=RoleRef(api_group=roles.GROUP, kind=reference, name=role.metadata.name),
        )


EVERY_NAMESPACE = "Everywhere"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleQuery(ListQuery):
    """`?system=1` shows also the roles of the system's own parts."""

    text: str = parameter("q")
    namespace: str = parameter("ns")
    system: str = parameter("system", known=("1",))

    def lets(self, held: HeldRole) -> bool:
        wanted = "" if self.namespace == EVERY_NAMESPACE else self.namespace
        return (
            self.text.lower() in held.name.lower()
            and (not self.namespace or held.namespace == wanted)
            and bool(self.system or self.text or not held.is_system)
        )


COLUMNS = (
    ListColumn[HeldRole](
        title="Role", sort="name", key=lambda held: (held.name, held.namespace), text=lambda held: held.name
    ),
    ListColumn[HeldRole](
        title="Defined",
        sort="ns",
        key=lambda held: (held.namespace, held.name),
        text=lambda held: held.namespace or EVERY_NAMESPACE,
    ),
    ListColumn[HeldRole](title="Allows", text=lambda held: held.short),
    ListColumn[HeldRole](
        title="Held by", css="num", sort="held", key=lambda held: held.subjects, text=lambda held: held.subjects
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RolesContext(ListContext):
    """asks: whether the person may ask what others may do; system_url: with or without the system's own roles.
    form: of a new role, None for who may make none; resources: that it may name."""

    query: RoleQuery
    asks: bool
    form: NewRoleForm | None
    resources: Sequence[str]
    system_url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleContext(PageContext):
    """sources: the roles whose rules it gathers. form: None for who may give it nowhere. yaml: "" of a role that is
    not stored. complaint: why it was not taken away from somebody."""

    held: HeldRole
    sources: Sequence[HeldRole]
    asks: bool
    form: GiveForm | None
    yaml: str
    complaint: str


@authorizes
@require_safe
@opens_as_usual
def list_roles(request: HttpRequest) -> HttpResponse:
    """The list."""
    return draw_list(request)


def draw_list(request: HttpRequest, form: NewRoleForm | None = None) -> HttpResponse:
    """form: that was refused."""
    revision, person = latest_revision(), person_of(request)
    query, found = RoleQuery.read(request), _read(person)
    namespaces = sorted({held.namespace for held in found if held.namespace})
    table = Table(
        id="roles",
        topics="",
        title="Roles",
        query=query,
        columns=COLUMNS,
        read=sorted_by(COLUMNS, query.sort, (held for held in found if query.lets(held))).__getitem__,
        filters=(
            Filter("q", "Name", query.text, hint="Name"),
            Filter(
                "ns", "Defined in", query.namespace, every="Defined anywhere", options=(EVERY_NAMESPACE, *namespaces)
            ),
        ),
    )
    context = RolesContext(
        place="roles",
        revision=revision,
        query=query,
        table=table,
        asks=may_ask(person),
        system_url=query.url(system="" if query.system else "1"),
        form=form or new_form(person),
        resources=sorted({one.plural for one in registry}),
    )
    return show_list(request, "people/roles/list.html", context, status=422 if form else 200)


@authorizes
@require_safe
def show_role(request: HttpRequest, name: str) -> HttpResponse:
    """One."""
    return draw_role(request, name)


def draw_role(request: HttpRequest, name: str, form: GiveForm | None = None, complaint: str = "") -> HttpResponse:
    """form: that was refused."""
    revision, person = latest_revision(), person_of(request)
    held, known = find_role(request, name)
    of = roles.ROLE if held.namespace else roles.CLUSTER_ROLE
    stored = objects.get(of, held.namespace, name)
    context = RoleContext(
        place="roles",
        revision=revision,
        held=held,
        sources=gathered_from(held.role, known),
        asks=may_ask(person),
        form=form or give_form(person, held),
        yaml=yaml_url(of.resource, held.namespace, name) if stored else "",
        complaint=complaint,
    )
    return render_page(request, "people/roles/page.html", context, status=422 if form or complaint else 200)


def find_role(request: HttpRequest, name: str) -> tuple[HeldRole, Sequence[HeldRole]]:
    """That of the address, and all. Raises: Http404."""
    namespace, known = request.GET.get("ns", ""), _read(person_of(request))
    held = next((one for one in known if (one.namespace, one.name) == (namespace, name)), None)
    if held is None:
        where = f" in namespace {namespace}" if namespace else ""
        raise Http404(f"Role {name} does not exist{where}.")
    return held, known


def new_form(person: Person, data: Mapping[str, Any] | None = None) -> NewRoleForm | None:
    """None for who may make no role."""
    open_ = _places(person, roles.CLUSTER_ROLE.resource, roles.ROLE.resource)
    return NewRoleForm(data, namespaces=open_) if open_ else None


def give_form(person: Person, held: HeldRole, data: Mapping[str, Any] | None = None) -> GiveForm | None:
    """None for who may give it nowhere: a Role is given in its own namespace alone."""
    open_ = _places(person, roles.CLUSTER_ROLE_BINDING.resource, roles.ROLE_BINDING.resource)
    if held.namespace:
        open_ = [one for one in open_ if one == held.namespace]
    form = GiveForm(data, namespaces=open_)
    form.checks = may_ask(person)
    return form if open_ else None


def _places(person: Person, everywhere: str, inside: str) -> list[str]:
    """Where the person may create one: "" for everywhere, and namespaces."""
    names = [one.name for one in objects.list(kind(NAMESPACES)).items if person.sees(one.name)]
    within = [name for name in names if person.may("create", inside, name)]
    return ["", *within] if person.may("create", everywhere) else within


def _read(person: Person) -> list[HeldRole]:
    """Raises: PermissionDenied for whoever may list none."""
    demand_copied("roles")
    found = read_roles(person)
    if not found and not person.may("list", roles.CLUSTER_ROLE.resource):
        raise PermissionDenied("You may not list roles: ask an administrator for one that may.")
    return found


@authorizes
@posted_from("roles")
def make_role(request: HttpRequest) -> HttpResponse:
    namespace = request.POST.get("namespace", "")
    kind = roles.ROLE if namespace else roles.CLUSTER_ROLE
    person = demand(request, "create roles", "create", kind.resource, namespace)
    form = new_form(person, request.POST)
    if form is None or not form.is_valid() or (made := form.create(kind, form.role(), person)) is None:
        return draw_list(request, form)
    name = made.metadata.name
    undo.offer(request, f"Role {name} is created. Nobody has it yet.", [undo.UndoStep.of(kind, None, made)])
    return redirect(role_url(name, namespace))


@authorizes
@posted_from("role")
def give_role(request: HttpRequest, name: str) -> HttpResponse:
    """To one more; `?ns=` as of the role's page."""
    namespace = request.POST.get("namespace", "")
    kind = roles.ROLE_BINDING if namespace else roles.CLUSTER_ROLE_BINDING
    person = demand(request, "create bindings", "create", kind.resource, namespace)
    held, _ = find_role(request, name)
    form = give_form(person, held, request.POST)
    if form is None or not form.is_valid() or (made := form.create(kind, form.binding(held.role), person)) is None:
        return draw_role(request, name, form)
    where = f"in {namespace}" if namespace else "everywhere"
    said = f"{form.cleaned_data['name']} has {name} {where}."
    undo.offer(request, said, [undo.UndoStep.of(kind, None, made)])
    return redirect(held.url)


@authorizes
@posted_from("role")
def take_role(request: HttpRequest, name: str) -> HttpResponse:
    """From one whom `binding` names; a binding that names nobody else is deleted."""
    where, binding = request.POST.get("where", ""), request.POST.get("binding", "")
    kind = roles.ROLE_BINDING if where else roles.CLUSTER_ROLE_BINDING
    person = demand(request, "delete bindings", "delete", kind.resource, where)
    held, _ = find_role(request, name)
    taken = Subject(
        kind=request.POST.get("kind", ""), name=request.POST.get("name", ""), namespace=request.POST.get("account", "")
    )
    try:
        step = _take(kind, where, binding, taken, person)
    except NotFound as gone:
        raise Http404(f"{taken.name} no longer has {name} by {binding}.") from gone
    except ApiError as refusal:
        return draw_role(request, name, None, plain(refusal.message))
    undo.offer(request, f"{name} was removed from {taken.name}.", [step])
    return redirect(held.url)


def _take(kind: Kind, namespace: str, name: str, taken: Subject, person: Person) -> undo.UndoStep:
    """Raises: ApiError."""
    before: AnyBinding = verbs.current(kind, namespace, name)
    rest = tuple(one for one in before.subjects if structs.replace(one, api_group="") != taken)
    if len(rest) == len(before.subjects):
        raise NotFound.of(kind.resource, name)
    if not rest:
        verbs.delete(kind, namespace=namespace, name=name, identity=person.identity)
        return undo.UndoStep.of(kind, before, None)

    modified = verbs.modify(
        kind, lambda now: structs.replace(now, subjects=rest), namespace=namespace, name=name, identity=person.identity
    )
    return undo.UndoStep.of(kind, before, modified.object)
