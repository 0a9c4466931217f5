"""What one tenant sends costs the others little: the largest documents, selectors, roles and lists there may be."""

from __future__ import annotations

import asyncio
import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import pytest
from django.contrib.auth import get_user_model
from msgspec import convert

from claims.kinds.pod_rules import MOST_NODE_REQUIREMENTS, MOST_POD_TERMS, MOST_VALUES, validate_size
from claims.kinds.pods import Pod, PodSpec
from dashboard.kit import preferences
from dashboard.kit.preferences import ViewRefused, change_view, save_view
from dashboard.models import SavedView
from inventory.kinds.nodes import Node
from manciple.access import rbac
from manciple.access.authentication import tokens
from manciple.access.authorization import Attributes
from manciple.access.bootstrap import ensure_roles
from manciple.access.kinds.roles import GROUP, MOST_PARTS, RoleBinding, RoleRef, Subject
from manciple.api import requests
from manciple.api.answers import wanted_form
from manciple.api.flow_control import LARGE_ANSWER, MOST_UNSENT, FairQueues, FlowLimits, Overflow, flow_of
from manciple.store import objects
from manciple.store.writer import LARGEST
from manciple.wire import patch, selectors, validation
from manciple.wire.apply import Manager, apply_patch
from manciple.wire.base import ObjectMeta
from manciple.wire.errors import ApiError, Conflict, NotAcceptable
from manciple.wire.identity import Identity, controller, service_account
from manciple.wire.limits import time_limit
from manciple.wire.managed_fields import struct
from manciple.wire.quantity import Quantity
from manciple.wire.registry import registry
from manciple.wire.selectors import MOST_REQUIREMENTS, parse_label_selector
from scheduling.state import node_fit
from scheduling.state.node_fit import Neighbours
from tests.manciple.api.conftest import api
from tests.manciple.api.requests import JSON_PATCH, PODS, Api, pod

__all__ = ["api"]

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles"
BINDINGS = ROLES.replace("roles", "rolebindings")
APPLY = "application/apply-patch+yaml"
#: CPU seconds that a request with a body of half a megabyte may take, on a slow machine beside others.
SECONDS = 2.0


def config_map(name: str = "m", **more: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **more.pop("metadata", {})}, **more}


class quickly:  # noqa: N801 - reads as a statement
    """Fails where its block takes more CPU."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds

    def __enter__(self) -> None:
        self._began = time.process_time()

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            assert time.process_time() - self._began < self._seconds


# Memory ---------------------------------------------------------------------------------------------------------------


def _asked(text: str) -> None:
    held = rbac.Policy()
    rbac.decide(held, Identity("mallory"), Attributes(verb=text, resource="pods"))
    assert not held.decided


READERS: dict[str, Callable[[str], object]] = {
    "a label key": validation.check_label_key,
    "a label value": validation.check_label_value,
    "a name": validation.check_dns_subdomain,
    "a namespace": validation.check_dns_label,
    "a label selector": selectors.parse_label_selector,
    "a field selector": lambda text: selectors.parse_field_selector(f"metadata.name={text}"),
    "an amount": Quantity.parse,
    "a path": lambda text: requests.parse_path(f"/api/v1/namespaces/{text}/pods"),
    "Accept": lambda text: wanted_form(f"{text}, application/json", {}),
    "an access review": _asked,
}


@pytest.mark.parametrize("what", READERS)
def test_no_cache_keeps_the_long_texts_of_clients(what: str) -> None:
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(20):
            with suppress(ApiError, ValueError):
                READERS[what](f"{number}{'a' * 200_000}")
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 1_000_000


def test_a_flow_with_large_answers_has_one_seat_and_is_refused_while_it_reads_none() -> None:
    async def story() -> tuple[list[bool], str, bool]:
        queues = FairQueues(FlowLimits(seats=8))
        first = queues.enter("workload", "mallory")
        with queues.sending(first, LARGE_ANSWER + 1):
            queues.leave(first)
            seated = [queues.enter("workload", "mallory").seated for _ in range(3)]
        with queues.sending(first, MOST_UNSENT + 1):
            try:
                queues.enter("workload", "mallory")
            except Overflow as refused:
                why = refused.why
        return seated, why, queues.enter("workload", "alice").seated

    assert asyncio.run(story()) == ([True, False, False], "answers-not-read", True)


def test_a_large_list_is_not_written_as_yaml(api: Api) -> None:
    for number in range(5):
        api.made(CONFIG_MAPS, config_map(f"m{number}", data={"k": "x" * 1_000_000}))
    assert api.get(CONFIG_MAPS, accept="application/yaml").code == NotAcceptable.code
    assert api.get(f"{CONFIG_MAPS}?limit=1", accept="application/yaml").code == 200
    assert api.get(CONFIG_MAPS).code == 200


def test_service_accounts_of_a_namespace_are_one_sender() -> None:
    assert flow_of(service_account("team", "a")) == flow_of(service_account("team", "b"))
    assert flow_of(service_account("team", "a")) != flow_of(service_account("other", "a"))
    assert flow_of(controller("a")) != flow_of(controller("b"))
    assert flow_of(Identity("alice")) == "alice"


# Objects --------------------------------------------------------------------------------------------------------------


def test_many_wrong_values_are_shown_in_a_short_answer(api: Api) -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "controller": True}
    owners = [{**owner, "name": f"x{i}", "uid": f"u{i}"} for i in range(5_000)]
    with quickly():
        answer = api.post(CONFIG_MAPS, config_map(metadata={"ownerReferences": owners}))
    assert answer.code == 422
    assert "and 4998 more" in answer.message
    assert len(answer.text) < 2_000_000


def test_objects_do_not_grow_beyond_the_limit_and_can_be_made_smaller(api: Api) -> None:
    large = config_map(data={"k": "x" * (LARGEST // 2)})
    api.made(CONFIG_MAPS, large)
    values = {f"example.com/k{i}": "v" * 60_000 for i in range(4)}
    data = {f"{i:k<100}": "v" for i in range(1000)}
    applied = {**config_map(metadata={"annotations": values}), "data": data}
    codes: list[int] = []
    while (not codes or codes[-1] == 200) and len(codes) < 20:  # each manager is noted with every field
        path = f"{CONFIG_MAPS}/m?force=true&fieldManager=m{len(codes)}"
        codes.append(api.patch(path, applied, content_type=APPLY).code)
    assert codes[0] == 200
    assert codes[-1] == 413
    assert api.patch(f"{CONFIG_MAPS}/m", {"data": {"k": None}}).code == 200


def test_the_texts_of_events_are_short(api: Api) -> None:
    about = {"kind": "Node", "name": "n1", "namespace": "default"}
    event = {"metadata": {"name": "e"}, "involvedObject": about, "message": "m" * 8192, "reason": "r" * 1024}
    assert api.post("/api/v1/namespaces/default/events", event).code == 201
    for longer in ({"message": "m" * 8193}, {"reason": "r" * 1025}, {"involvedObject": {**about, "name": "n" * 1025}}):
        answer = api.post("/api/v1/namespaces/default/events", {**event, "metadata": {"name": "f"}, **longer})
        assert answer.code == 422, longer
        assert "Too long" in answer.message


def test_a_person_has_a_limited_number_of_saved_views(db: None) -> None:
    owner = get_user_model().objects.create(username="mallory")
    SavedView.objects.bulk_create(
        SavedView(id=f"v{i}", owner=owner, path="/pods", name=f"v{i}", query="a=b") for i in range(preferences.MOST)
    )
    with pytest.raises(ViewRefused):
        save_view(owner, "/pods", "one more", "a=b", shared=False, usual=False)


def test_a_person_puts_a_limited_number_of_views_into_everybodys_menu(db: None) -> None:
    owner = get_user_model().objects.create(username="mallory")

    def save(name: str, *, shared: bool) -> SavedView:
        return save_view(owner, "/pods", name, "a=b", shared=shared, usual=False)

    for number in range(preferences.MOST_SHARED):
        save(f"v{number}", shared=True)
    own = save("own", shared=False)
    with pytest.raises(ViewRefused):
        save("one more", shared=True)
    with pytest.raises(ViewRefused):
        change_view(own, name="own", shared=True, usual=False)
    change_view(save("v0", shared=True), name="renamed", shared=True, usual=False)
    assert SavedView.objects.filter(shared=True).count() == preferences.MOST_SHARED


def test_an_index_of_thousands_of_digits_is_no_index(api: Api) -> None:
    api.made(CONFIG_MAPS, config_map(metadata={"finalizers": ["example.com/a"]}))
    operation = {"op": "test", "path": f"/metadata/finalizers/{'9' * 5000}", "value": "a"}
    assert api.patch(f"{CONFIG_MAPS}/m", [operation], content_type=JSON_PATCH).code == 422


def test_fields_to_retain_are_looked_up() -> None:
    names = [f"k{i}" for i in range(60_000)]
    with quickly():
        patch.strategic_merge_patch({}, {"$retainKeys": names, **dict.fromkeys(names, "v")}, ObjectMeta)


def test_a_conflict_names_some_of_its_fields() -> None:
    live: dict[str, Any] | None = None
    shape = struct(ObjectMeta)
    for number in range(4):
        manager = Manager(name=f"m{number}", operation="Apply", api_version="v1")
        applied = {"labels": {f"k{i}": "v" for i in range(2000)}}
        live = apply_patch(live, applied, manager=manager, force=True, shape=shape, now="2026-01-01T00:00:00Z")
    other = Manager(name="other", operation="Apply", api_version="v1")
    applied = {"labels": {f"k{i}": "w" for i in range(2000)}}
    with quickly(), pytest.raises(Conflict) as refused:
        apply_patch(live, applied, manager=other, force=False, shape=shape, now="2026-01-01T00:00:00Z")
    assert "conflict with 8000" in refused.value.message or "with 8000 conflicts" in refused.value.message
    assert "and 7500 more" in refused.value.message


# Selectors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query",
    [
        f"labelSelector={quote(','.join(f'!k{i}' for i in range(MOST_REQUIREMENTS + 1)))}",
        f"fieldSelector={quote(','.join(f'metadata.name!=k{i}' for i in range(MOST_REQUIREMENTS + 1)))}",
    ],
)
def test_a_selector_has_a_limited_number_of_requirements(api: Api, query: str) -> None:
    assert (answer := api.get(f"{CONFIG_MAPS}?{query}")).code == 400
    assert "at most 100 requirements" in answer.message


def test_a_list_that_searches_many_objects_gives_way_to_others(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks at its time, where it pauses for other requests, at least once for so many objects."""

    class Looks:
        next_look, count = 0.0, 0

        @property
        def has_passed(self) -> bool:
            self.count += 1
            return False

    for number in range(6):
        api.made(CONFIG_MAPS, config_map(f"m{number}"))
    monkeypatch.setattr(objects, "SEARCHED_AT_ONCE", 2)
    looks = Looks()
    with time_limit(looks):
        found = objects.list(registry.by_resource("configmaps"), labels=parse_label_selector("zz=1"))
    assert found.items == ()
    assert looks.count >= 3


def test_a_stored_selector_has_a_limited_number_of_requirements(api: Api) -> None:
    expressions = [{"key": f"k{i}", "operator": "Exists"} for i in range(MOST_REQUIREMENTS + 1)]
    budget = {"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchExpressions": expressions}}}
    answer = api.post("/apis/policy/v1/namespaces/default/poddisruptionbudgets", budget)
    assert answer.code == 422
    assert answer.causes == {("FieldValueTooMany", "spec.selector")}


def test_a_selector_with_many_values_is_as_quick_as_one_with_few() -> None:
    parsed = selectors.parse_label_selector(f"a in ({','.join(f'v{i}' for i in range(10_000))})")
    with quickly():
        assert not any(parsed.matches({"a": f"w{i}"}) for i in range(100_000))


# Pods -----------------------------------------------------------------------------------------------------------------

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def spread(number: int) -> dict[str, Any]:
    return {"maxSkew": 1, "topologyKey": f"k{number}", "whenUnsatisfiable": "DoNotSchedule"}


def node_terms(number: int) -> dict[str, Any]:
    terms = [{"matchExpressions": [{"key": f"k{i}", "operator": "Exists"}]} for i in range(number)]
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}


def pod_terms(number: int, **more: Any) -> dict[str, Any]:
    terms = [{"topologyKey": "zone", "labelSelector": {"matchLabels": {f"k{i}": "v"}}, **more} for i in range(number)]
    return {"podAntiAffinity": {REQUIRED: terms}}


#: (what a pod's spec says of so many, how many there may be)
LISTS: dict[str, tuple[Callable[[int], dict[str, Any]], int]] = {
    "containers": (lambda n: {"containers": [{"name": f"c{i}", "image": "x"} for i in range(n)]}, 256),
    "resources": (
        lambda n: {
            "containers": [
                {"name": "c", "image": "x", "resources": {"limits": {f"a.example/r{i}": "1" for i in range(n)}}}
            ]
        },
        100,
    ),
    "claims": (lambda n: {"resourceClaims": [{"name": f"c{i}", "resourceClaimName": "x"} for i in range(n)]}, 128),
    "tolerations": (lambda n: {"tolerations": [{"key": f"k{i}", "operator": "Exists"} for i in range(n)]}, 256),
    "spread constraints": (lambda n: {"topologySpreadConstraints": [spread(i) for i in range(n)]}, 32),
    "a node selector": (lambda n: {"nodeSelector": {f"k{i}": "v" for i in range(n)}}, 100),
    "node affinity": (lambda n: {"affinity": node_terms(n)}, MOST_NODE_REQUIREMENTS),
    "pod anti-affinity": (lambda n: {"affinity": pod_terms(n)}, MOST_POD_TERMS),
}


@pytest.mark.parametrize("what", LISTS)
def test_a_pod_lists_no_more_than_the_scheduler_can_look_at(api: Api, what: str) -> None:
    make, most = LISTS[what]
    assert validate_size(convert(make(most), PodSpec)) == []
    document = pod("p")
    document["spec"] |= make(20 * most)
    with quickly():
        answer = api.post(PODS, document)
    assert answer.code == 422
    assert {reason for reason, _ in answer.causes} == {"FieldValueTooMany"}


def node_values(number: int) -> dict[str, Any]:
    expression = {"key": "zone", "operator": "In", "values": [f"v{i}" for i in range(number)]}
    return {"matchExpressions": [expression]}


#: Where an affinity has values: what it is with so many.
VALUES: dict[str, Callable[[int], dict[str, Any]]] = {
    "required nodes": lambda n: {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [node_values(n)]}}},
    "preferred nodes": lambda n: {"nodeAffinity": {PREFERRED: [{"weight": 1, "preference": node_values(n)}]}},
    "required pods": lambda n: pod_terms(1, labelSelector=node_values(n)),
    "preferred pods": lambda n: {
        "podAffinity": {
            PREFERRED: [{"weight": 1, "podAffinityTerm": {"topologyKey": "zone", "labelSelector": node_values(n)}}]
        }
    },
    "namespaces": lambda n: pod_terms(1, namespaces=[f"n{i}" for i in range(n)]),
    "selected namespaces": lambda n: pod_terms(1, namespaceSelector=node_values(n)),
}


@pytest.mark.parametrize("where", VALUES)
def test_an_affinity_has_a_limited_number_of_values(api: Api, where: str) -> None:
    # One less: the terms of `pod_terms` have a label beside.
    assert validate_size(convert({"affinity": VALUES[where](MOST_VALUES - 1)}, PodSpec)) == []
    document = pod("p")
    document["spec"]["affinity"] = VALUES[where](MOST_VALUES + 1)
    answer = api.post(PODS, document)
    assert answer.code == 422
    assert ("FieldValueTooMany", "spec.affinity") in answer.causes


def test_what_a_pod_says_of_its_place_is_a_limited_text(api: Api) -> None:
    document = pod("p")
    long = [{"key": "k", "operator": "Equal", "value": "v" * 1000, "effect": "NoSchedule"}] * 150
    document["spec"]["tolerations"] = long
    answer = api.post(PODS, document)
    assert answer.code == 422
    assert ("FieldValueTooLong", "spec.tolerations") in answer.causes


def test_terms_about_a_tenants_own_pods_are_not_asked_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    means = node_fit.Term.means
    monkeypatch.setattr(node_fit.Term, "means", lambda *them: asked.append("") or means(*them))  # type: ignore[func-returns-value]  # append() is None
    around = Neighbours()

    def placed(namespace: str, number: int, **term: Any) -> Pod:
        spec = convert({"affinity": pod_terms(10, **term)}, PodSpec)
        meta = ObjectMeta(
            name=f"p{number}", namespace=namespace, uid=f"{namespace}-{number}", labels={"n": f"{number}"}
        )
        return Pod(metadata=meta, spec=spec)

    for number in range(20):
        around.place(placed("tenant", number), "n1")
    nodes = {"n1": Node(metadata=ObjectMeta(name="n1", labels={"zone": "a"}))}
    assert around.rules_for(Pod(metadata=ObjectMeta(name="v", namespace="victim")), nodes) is not None
    assert asked == []
    around.place(placed("tenant", 20, namespaceSelector={}), "n1")
    around.rules_for(Pod(metadata=ObjectMeta(name="v", namespace="victim")), nodes)
    assert len(asked) == 10


# Roles ----------------------------------------------------------------------------------------------------------------


def listing(number: int) -> dict[str, Any]:
    texts = [f"x{i}" for i in range(number)]
    rule = {"apiGroups": texts, "resources": texts, "verbs": texts, "resourceNames": texts}
    return {"metadata": {"name": f"r{number}"}, "rules": [rule]}


@pytest.fixture
def mallory(api: Api) -> Api:
    """Administers the namespace default."""
    ensure_roles()
    give(api, "admin", "mallory")
    return Api(tokens.issue("mallory", []))


def give(api: Api, role: str, binding: str) -> None:
    subjects = [{"kind": "User", "name": "mallory"}]
    reference = {"kind": "ClusterRole", "name": role}
    api.made(BINDINGS, {"metadata": {"name": binding}, "roleRef": reference, "subjects": subjects})


def test_a_role_lists_a_limited_number_of_combinations(mallory: Api) -> None:
    with quickly(0.5):
        answer = mallory.post(ROLES, listing(100))
    assert answer.code == 422
    assert str(MOST_PARTS) in answer.message
    with quickly():
        assert mallory.post(ROLES, listing(10)).code == 403


class CountedName(str):
    """A binding's name, and how often such names were compared."""

    __slots__ = ()
    compared = 0

    def __lt__(self, other: str) -> bool:
        CountedName.compared += 1
        return str.__lt__(self, other)


def bound(name: str, subjects: int) -> RoleBinding:
    return RoleBinding(
        metadata=ObjectMeta(namespace="attacker", name=name),
        role_ref=RoleRef(api_group=GROUP, kind="ClusterRole", name="view"),
        subjects=tuple(Subject(kind="User", api_group=GROUP, name=f"user-{number}") for number in range(subjects)),
    )


def test_bindings_of_the_same_subjects_are_kept_in_order_without_sorting_them_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(CountedName, "compared", 0)
    policy, bindings = rbac.Policy(), [bound(CountedName(f"b-{number:03}"), 5) for number in range(400)]
    for binding in reversed(bindings):
        policy.add(binding)
    for binding in bindings[::2]:
        policy.remove(binding)
        policy.add(binding)
    left = [name for name, _ in policy.granted(("attacker", "User", "user-1"))]
    assert left == sorted(left)
    assert len(left) == 400
    assert CountedName.compared < 800 * 5 * 12
    for binding in bindings:
        policy.remove(binding)
    assert (policy.grants, policy.places) == ({}, {})


class NeverReadThrough(dict[Any, Any]):
    """A table that is too large to be gone through for one question."""

    def __iter__(self) -> Any:
        raise AssertionError("all grants were read for one person")


def test_whose_namespaces_are_asked_costs_nothing_for_what_bindings_name_others() -> None:
    policy = rbac.Policy()
    policy.add(bound("many", 1_000))
    policy.grants = NeverReadThrough(policy.grants)
    assert policy.namespaces_of(Identity("user-7")) == {"attacker"}
    assert policy.names("user-7")
    assert policy.namespaces_of(Identity("mallory", groups=("namespace:theirs",))) == {"theirs"}
    assert not policy.names("mallory")


def test_the_rules_of_a_role_are_read_once_however_many_bindings_give_it(api: Api, mallory: Api) -> None:
    before = rbac.known_rules(Identity("mallory"), "default").rules
    for number in range(30):
        give(api, "admin", f"again-{number}")
    assert rbac.known_rules(Identity("mallory"), "default").rules == before
    assert mallory.get(f"{CONFIG_MAPS}/x").code == 404
