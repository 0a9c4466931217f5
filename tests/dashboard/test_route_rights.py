"""Every route, file and live topic as each kind of person: a pinned table, beside what the views declare.

The table is written by hand: a new route needs a line here, and a changed right shows as a changed line.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.test import Client, RequestFactory
from django.urls import get_resolver, path

from dashboard.inventory.nodes import views
from dashboard.kit.guards import DeclaredRightsOnly, public
from dashboard.kit.lists import list_files
from dashboard.kit.live import MIRROR, NAMESPACED, NAMESPACES, SHARED, Hearing
from manciple.access.authorization import ViewRights, demand_declarations, rights_of, routes
from manciple.access.bootstrap import ensure_roles
from manciple.access.kinds.roles import CLUSTER_ROLE_BINDING, ClusterRoleBinding
from manciple.api.views import ApiView
from manciple.live import topics
from manciple.people import person_of_user
from manciple.store import objects
from manciple.wire.identity import VIEWERS
from tests.builders import make_class, make_namespace, make_node, make_pod
from tests.scheduling.cluster import Cluster

ROOT = Path(__file__).resolve().parents[2]
#: An outsider has no role where people may not list the inventory; the editor works in one namespace.
IDENTITIES = ("anonymous", "outsider", "no-roles", "viewer", "editor", "administrator")
PARAMETERS = {
    "namespace": "default", "name": "web", "resource": "pods", "act": "delete", "driver": "d", "pool": "p",
    "device": "g", "what": "selectors", "token": "x", "uidb64": "MQ", "key": "default/web", "at": "apis/x/v1",
    "object_id": "1", "content_type_id": "1", "app_label": "claims", "url": "nowhere", "rest": "pods",
}  # fmt: skip

# For each identity: r(edirect to sign in), 2 (served), 3 (redirect), 4 (not found, or gone), 5 (method not allowed),
# 0 (refused). In the order of IDENTITIES.
PUBLIC_ROUTES = {
    "": "333333", "favicon.ico": "333333", "login": "233333", "logout": "555555", "login/oidc": "444444",
    "login/oidc/return": "444444", "enter": "444444", "welcome/<uidb64>/<token>": "444444",
    "api/inventory": "333333", "api/inventory/<path:rest>": "333333",
    "notifications/confirm/<str:token>": "222222", "notifications/unsubscribe/<str:token>": "222222",
}  # fmt: skip
OWN = {
    "views": "r22222", "views/save": "r33333", "views/<str:name>": "r44444", "views/<str:name>/change": "r33333",
    "account": "r22222", "account/tokens": "r33333", "account/tokens/revoke": "r33333", "account/password": "r33333",
    "account/zone": "r33333", "account/tour": "r55555", "account/sessions": "r33333", "notifications": "r22222",
    "notifications/rules": "r33333", "notifications/rules/delete": "r33333", "notifications/webhook": "r33333",
    "notifications/email": "r33333", "notifications/test": "r33333", "manual": "r33333",
    "mirror": "r22222", "mirror/other": "r33333",
    "manual/<str:name>": "r44444", "keys": "r22222",
}  # fmt: skip
INVENTORY = {
    "devices": "r02222", "devices/lines": "r02222", "devices/matches": "r02222", "devices/panel": "r02222",
    "devices/window": "r02222", "devices/d/<str:driver>/<path:pool>/<str:device>": "r04444",
    "devices/act/<str:act>": "r04444",
    "devices.csv": "r02222", "classes": "r02222", "classes.csv": "r02222", "classes/new": "r00002",
    "classes/check": "r05555", "classes/verdicts": "r05555", "classes/completions": "r02222",
    "classes/diagnostics/<str:what>": "r05555", "classes/c/<str:name>": "r04444", "classes/c/<str:name>/yaml": "r03333",
    "classes/c/<str:name>/delete": "r00004", "classes/c/<str:name>/serve": "r00004",
    "drivers": "r02222", "drivers.csv": "r02222",
    "drivers/<str:name>": "r04444", "incidents": "r02222", "incidents.csv": "r02222",
    "incidents/acknowledge": "r03333", "incidents/<str:name>": "r04444", "incidents/<str:name>/acknowledge": "r03333",
    "incidents/<str:name>/handle": "r03333", "incidents/<str:name>/comment": "r03333",
    "nodes": "r02222", "nodes.csv": "r02222", "nodes/<str:name>": "r04444", "nodes/<str:name>/change": "r03333",
    "overview": "r00222", "timeline": "r02222", "timeline.csv": "r02222", "usage": "r02222", "usage.csv": "r02222",
    "wallboard": "r02222", "what-if": "r02222", "what-if/progress": "r02222", "taint-rules": "r02222",
    "taint-rules.csv": "r02222", "taint-rules/new": "r00002", "taint-rules/<str:name>": "r04444",
    "taint-rules/<str:name>/change": "r00004", "taint-rules/<str:name>/delete": "r00004",
}  # fmt: skip
IN_NAMESPACES = {
    "claims": "r00222", "claims.csv": "r00222", "claims/<str:namespace>/<str:name>": "r00444",
    "claims/<str:namespace>/<str:name>/delete": "r00044", "claims/<str:namespace>/<str:name>/release": "r00004",
    "ended": "r00222", "ended.csv": "r00222", "ended/<str:name>": "r00444",
    "templates": "r00222", "templates.csv": "r00222", "templates/<str:namespace>/<str:name>": "r00444",
    "templates/<str:namespace>/<str:name>/delete": "r00044", "events": "r00222", "events.csv": "r00222",
    "namespaces": "r00222", "namespaces.csv": "r00222", "namespaces/<str:name>": "r00444",
    "namespaces/<str:name>/change": "r00333", "namespaces/<str:name>/tokens": "r00333",
    "namespaces/<str:name>/delete": "r00333", "quotas": "r00222", "quotas.csv": "r00222",
    "quotas/<str:namespace>/<str:name>": "r00444", "quotas/<str:namespace>/<str:name>/change": "r00333",
    "pods": "r00222", "pods.csv": "r00222", "pods/new": "r00022", "pods/new/completions": "r00222",
    "pods/new/diagnostics": "r00555", "pods/new/made": "r00555", "pods/<str:namespace>/<str:name>": "r00222",
    "pods/<str:namespace>/<str:name>/delete": "r00022", "pods/<str:namespace>/<str:name>/move": "r00222",
    "pods/<str:namespace>/<str:name>/replace": "r00022",
    "autoscalers": "r00222", "autoscalers.csv": "r00222", "autoscalers/<str:namespace>/<str:name>": "r00444",
    "workloads": "r00222", "workloads.csv": "r00222",
    "workloads/<str:resource>/<str:namespace>/<str:name>": "r00444",
    "workloads/<str:resource>/<str:namespace>/<str:name>/<str:act>": "r00444",
}  # fmt: skip
ASKED_FOR_EACH = {
    "people": "r00002", "people.csv": "r00002", "people/invite": "r00003", "people/change": "r00003",
    "people/revoke": "r00003", "roles": "r00002", "roles.csv": "r00002", "roles/new/make": "r33333",
    "roles/<str:name>": "r00004", "roles/<str:name>/give": "r33333", "roles/<str:name>/take": "r33333",
    "access": "r00002", "audit": "r00002", "audit.csv": "r00002", "audit.jsonl": "r00002",
    "bulk/<str:resource>/<str:act>": "r00033", "undo": "r33333", "yaml/<str:resource>/<str:name>": "r44444",
    "kit": "r00002", "find": "r22222", "find/suggestions": "r22222",
    "api/docs": "r22222", "api/docs/documents/<path:at>": "r44444",
}  # fmt: skip
#: Without a session a program is told to show a token ("401"): it cannot sign in on a page.
REST = {
    "": "222222", "schema/": "222222",
    **{f"{name}/": "202222" for name in ("pools", "devices", "classes", "nodes")},
    **{f"{name}/<path:key>/": "404444" for name in ("pools", "devices")},
    "classes/<str:name>/": "404444", "nodes/<str:name>/": "404444",
    **{f"{name}/": "222222" for name in ("claims", "pods", "quotas")},
    **{f"{name}/<object:key>/": "444444" for name in ("claims", "quotas")},
    "claims/<object:key>/explain/": "444444",
    "pods/<object:key>/": "444222", "pods/<object:key>/explain/": "444222",
}  # fmt: skip
TABLE: Mapping[str, str] = {
    **PUBLIC_ROUTES, **OWN, **INVENTORY, **IN_NAMESPACES, **ASKED_FOR_EACH,
    **{f"{name}.json": ({**INVENTORY, **IN_NAMESPACES, **ASKED_FOR_EACH})[f"{name}.csv"] for name in list_files()},
    **{f"api/inventory/{route}": f"401{row[1:]}" for route, row in REST.items()},
}  # fmt: skip
#: What a page and a REST resource answer whoever is not signed in.
NOT_SIGNED_IN = ("r", "401")
#: Django's admin has six routes for each table.
ADMIN = "admin/"


def pages() -> dict[str, Any]:
    """Every route that is a page's, with its view."""
    found = routes(get_resolver().url_patterns)
    return {route: one for route, one in found if not _is_api(one.callback) and not route.startswith(ADMIN)}


def _is_api(view: Any) -> bool:
    return isinstance(getattr(view, "view_class", None), type) and issubclass(view.view_class, ApiView)


def address(route: str) -> str:
    return "/" + re.sub(r"<(?:\w+:)?(\w+)>", lambda found: PARAMETERS[found[1]], route)


def user(name: str, *groups: str, staff: bool = False) -> User:
    made = User.objects.create_user(name, is_staff=staff)
    made.groups.set([Group.objects.get_or_create(name=group)[0] for group in groups])
    return made


@pytest.fixture
def people(cluster: Cluster) -> dict[str, User | None]:
    ensure_roles()
    cluster.create(make_namespace("theirs"))
    cluster.create(make_class())
    cluster.create(make_node("node-1"))
    cluster.create(make_pod("web"))
    cluster.create(make_pod("secret-one", namespace="theirs"))
    return {
        "anonymous": None,
        "outsider": user("outsider"),
        "no-roles": user("no-roles"),
        "viewer": user("viewer", VIEWERS),
        "editor": user("editor", "namespace:default"),
        "administrator": user("administrator", staff=True),
    }


def without_inventory() -> None:
    """Nobody but administrators may list nodes, devices and classes."""
    with objects.writing() as writer:
        binding = writer.get(CLUSTER_ROLE_BINDING, "", "manciple:people")
        assert isinstance(binding, ClusterRoleBinding)
        writer.delete(CLUSTER_ROLE_BINDING, "", "manciple:people")


OUTCOMES = {200: "2", 301: "3", 302: "3", 403: "0", 404: "4", 405: "5", 410: "4"}


def outcome(answer: Any) -> str:
    if answer.status_code == 302 and answer.headers["Location"].startswith("/login?next="):
        return "r"
    return OUTCOMES.get(answer.status_code, str(answer.status_code))


def test_every_route_answers_each_identity_as_the_table_says_and_tells_nothing_of_other_namespaces(
    people: dict[str, User | None],
) -> None:
    """Files included."""
    found: dict[str, dict[str, str]] = {route: {} for route in pages()}
    for who in (*(one for one in IDENTITIES if one != "outsider"), "outsider"):
        if who == "outsider":
            without_inventory()
        client = client_of(people[who])
        for route, row in found.items():
            answer: Any = client.get(address(route), {"q": "secret"})
            row[who] = outcome(answer)
            is_read_whole = not getattr(answer, "is_async", False)  # not the file of the timeline
            if who in ("no-roles", "editor") and is_read_whole:
                assert b"secret-one" not in answer.getvalue(), (who, route)
    assert {route: "".join(row[who] for who in IDENTITIES) for route, row in found.items()} == dict(TABLE)


def test_only_administrators_come_into_the_admin(people: dict[str, User | None]) -> None:
    served = [route for route, _ in routes(get_resolver().url_patterns) if route.startswith(ADMIN)]
    assert len(served) > len(IDENTITIES)
    strangers = {who: client_of(person) for who, person in people.items() if who != "administrator"}
    for route in served:
        path = address(re.sub(r"\(\?P<(\w+)>[^)]*\)|\$", lambda found: f"<{found[1]}>" if found[1] else "", route))
        found = {who: outcome(client.get(path)) for who, client in strangers.items()}
        assert found == {who: "r" if who == "anonymous" else "0" for who in found}, route


def client_of(person: User | None) -> Client:
    client = Client()
    if person is not None:
        client.force_login(person)
    return client


def test_the_table_is_what_the_views_declare() -> None:
    """Public pages are for everybody, and no other page is for anybody who is not signed in or lacks what it needs."""
    for route, one in pages().items():
        rights, row = rights_of(one.callback), TABLE[route]
        assert rights is not None
        assert (route in PUBLIC_ROUTES) == rights.public
        assert rights.public or row.startswith(NOT_SIGNED_IN), route
        if rights.lists or rights.namespaced or rights.administers:
            assert row[1] == "0", route
        if rights.namespaced:
            assert row[2] == "0", route
        if rights.administers:
            assert row[1:5] == "0000", route


def test_no_form_of_a_page_is_open_to_who_may_not_open_the_page(people: dict[str, User | None]) -> None:
    without_inventory()
    strangers = {who: client_of(people[who]) for who in ("anonymous", "outsider")}
    for route, one in pages().items():
        rights = rights_of(one.callback)
        assert rights is not None
        if not rights.public:
            assert outcome(strangers["anonymous"].post(address(route))) in NOT_SIGNED_IN, route
        if rights.lists or rights.namespaced or rights.administers:
            assert outcome(strangers["outsider"].post(address(route))) in ("0", "5"), route


# Views that declare nothing -------------------------------------------------------------------------------------------


def undeclared(_request: HttpRequest) -> HttpResponse:
    return HttpResponse("everything")


def test_a_view_without_rights_ends_the_start_and_is_never_served() -> None:
    with pytest.raises(ImproperlyConfigured, match=r"declare no rights: devices/all \(.*undeclared\)"):
        demand_declarations([path("devices/all", undeclared), path("fine", public(undeclared))])
    middleware = DeclaredRightsOnly(lambda _: HttpResponse())
    request = RequestFactory().get("/devices/all")
    with pytest.raises(PermissionDenied):
        middleware.process_view(request, undeclared, (), {})
    middleware.process_view(request, public(undeclared), (), {})


def test_a_process_with_such_a_view_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """The application is loaded as at a start, after the declaration was taken off a view."""
    monkeypatch.delattr(views.list_nodes, "rights")
    monkeypatch.delitem(sys.modules, "manciple.urls", raising=False)
    with pytest.raises(ImproperlyConfigured, match=r"dashboard\.inventory\.nodes\.views\.list_nodes"):
        run_path(str(ROOT / "manciple" / "asgi.py"))


def test_every_view_of_the_api_asks_the_authorizer_or_says_that_it_is_public() -> None:
    for route, one in routes(get_resolver().url_patterns):
        if _is_api(one.callback):
            view: Any = one.callback.view_class  # type: ignore[attr-defined]  # as Django sets it
            assert isinstance(view.rights, ViewRights)
            assert bool(view.permission_classes) == view.rights.authorizes, route
            assert view.rights.public == route.startswith(("healthz", "livez", "readyz")) or "/<" in route


# Live topics ----------------------------------------------------------------------------------------------------------


#: Topics -> who hears them: o(utsider), n(o roles), v(iewer), e(ditor), a(dministrator).
HEARD = {
    "pods:default pod:default/web claims:default claim:default/c template:default/t events:default": "vea",
    "accounts:default quotas:default budgets:default node-pods:node-1:default": "vea",
    "pods:theirs pod:theirs/secret-one claims:theirs template:theirs/t events:theirs quotas:theirs": "va",
    "node-pods:node-1:theirs": "va",
    "node:node-1 nodes pool:d/p slices class:gpu classes": "nvea",
    "namespaces mirror": "onvea",
    "pods: pod:/web events: node-pods:node-1: secrets:default unknown": "",
}


def test_every_live_topic_is_heard_by_whom_the_table_says(people: dict[str, User | None]) -> None:
    told: dict[str, str] = {topic: "" for row in HEARD for topic in row.split()}
    for who in (*(one for one in IDENTITIES if one != "outsider"), "outsider"):
        if who == "outsider":
            without_inventory()
        person = people[who]
        if person is not None:
            for topic in Hearing.of(person_of_user(person))(told):
                told[topic] += who[0]
    assert {topic: "".join(sorted(who)) for topic, who in told.items()} == {
        topic: "".join(sorted(who)) for row, who in HEARD.items() for topic in row.split()
    }


def test_every_topic_that_is_told_has_rights(db: None) -> None:
    """Topics without any are heard by nobody, which leaves a page out of date."""
    record: Any = SimpleNamespace(
        namespace="default", name="x", type="ADDED", resource="", revision=1,
        object={"spec": {"driver": "d", "pool": {"name": "p"}, "nodeName": "n"}},
        previous_object=None, document="{}", text="{}", labels={}, fields={}, previous_fields={},
    )  # fmt: skip
    kinds = {
        "pods", "pod", "claims", "claim", "template", "events", "accounts", "quotas", "budgets", "node-pods", "node",
        "nodes", "pool", "slices", "class", "classes", "namespaces", "workloads", "autoscalers", "mirror",
    }  # fmt: skip
    assert set(NAMESPACED) | set(SHARED) | {NAMESPACES, MIRROR} == kinds
    for resource, functions in topics._registered.items():
        for function in functions:
            record.resource = resource
            try:
                found = list(function(record))
            except (AttributeError, KeyError, TypeError):
                continue  # it looks at more of the object than is there
            assert {topic.partition(":")[0] for topic in found} <= kinds, resource
