"""What roles and bindings allow, with the reason; how what is known of them follows what is written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from manciple.access import rbac
from manciple.access.authorization import Attributes, Decision
from manciple.access.bootstrap import ensure_roles
from manciple.access.kinds import roles
from manciple.access.kinds.policy_rules import CompiledRules, described, places_of, uncovered
from manciple.access.kinds.roles import ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject
from manciple.store import objects
from manciple.wire.base import ApiObject, ObjectMeta
from manciple.wire.identity import SYSTEM, Identity, service_account
from manciple.wire.registry import registry

ALICE = Identity("alice", ("team", "system:authenticated"))
PLUGIN = service_account("drivers", "plugin")


def rule(verbs: str, resources: str = "", *, groups: str = "core", names: str = "", urls: str = "") -> PolicyRule:
    return PolicyRule(
        verbs=tuple(verbs.split()),
        api_groups=tuple("" if one == "core" else one for one in groups.split()) if resources else (),
        resources=tuple(resources.split()),
        resource_names=tuple(names.split()),
        non_resource_urls=tuple(urls.split()),
    )


def on(
    verb: str, resource: str = "", *, group: str = "", namespace: str = "", name: str = "", path: str = ""
) -> Attributes:
    plural, _, subresource = resource.partition("/")
    return Attributes(
        verb=verb, group=group, resource=plural, subresource=subresource, namespace=namespace, name=name, path=path
    )


# Single rules.


ALLOWED = {
    "the verb on the resource": (rule("get", "pods"), on("get", "pods"), True),
    "another verb": (rule("get", "pods"), on("list", "pods"), False),
    "another resource": (rule("get", "pods"), on("get", "nodes"), False),
    "another group": (rule("get", "pods"), on("get", "pods", group="apps"), False),
    "any verb": (rule("*", "pods"), on("evict", "pods"), True),
    "any resource": (rule("get", "*"), on("get", "nodes"), True),
    "any resource is also what is below one": (rule("get", "*"), on("get", "nodes/status"), True),
    "any group": (rule("get", "pods", groups="*"), on("get", "pods", group="apps"), True),
    "what is below is not in its resource": (rule("get", "pods"), on("get", "pods/log"), False),
    "the resource is not in what is below": (rule("get", "pods/log"), on("get", "pods"), False),
    "one below of any resource": (rule("get", "*/status"), on("get", "nodes/status"), True),
    "another below of any resource": (rule("get", "*/status"), on("get", "nodes/scale"), False),
    "one below of any resource is not the resource": (rule("get", "*/status"), on("get", "nodes"), False),
    "a named object": (rule("get", "pods", names="a b"), on("get", "pods", name="b"), True),
    "another object": (rule("get", "pods", names="a b"), on("get", "pods", name="c"), False),
    "all objects where some are named": (rule("list", "pods", names="a"), on("list", "pods"), False),
    "a path": (rule("get", urls="/version"), on("get", path="/version"), True),
    "another path": (rule("get", urls="/version"), on("get", path="/versions"), False),
    "a path below": (rule("get", urls="/api/*"), on("get", path="/api/v1"), True),
    "what a pattern is below": (rule("get", urls="/api/*"), on("get", path="/api"), False),
    "any path": (rule("get", urls="*"), on("get", path="/metrics"), True),
    "a path by a rule of resources": (rule("*", "*", groups="*"), on("get", path="/metrics"), False),
    "a resource by a rule of paths": (rule("*", urls="*"), on("get", "pods"), False),
}


@pytest.mark.parametrize(("allows", "wanted", "expected"), ALLOWED.values(), ids=ALLOWED.keys())
def test_a_rule_allows_what_it_says(allows: PolicyRule, wanted: Attributes, expected: bool) -> None:
    assert CompiledRules([allows]).allow(wanted, places_of(wanted)) is expected


COVERED: dict[str, tuple[list[PolicyRule], PolicyRule, list[str]]] = {
    "the same": ([rule("get list", "pods")], rule("get list", "pods"), []),
    "by several": ([rule("get", "pods"), rule("list", "pods")], rule("get list", "pods"), []),
    "by any verb": ([rule("*", "pods")], rule("get", "pods"), []),
    "any verb by some": (
        [rule("get list", "pods")],
        rule("*", "pods"),
        ['{APIGroups:[""], Resources:["pods"], Verbs:["*"]}'],
    ),
    "what is below by any below": ([rule("get", "*/status")], rule("get", "pods/status"), []),
    "one object by all": ([rule("get", "pods")], rule("get", "pods", names="a"), []),
    "all objects by one": (
        [rule("get", "pods", names="a")],
        rule("get", "pods"),
        ['{APIGroups:[""], Resources:["pods"], Verbs:["get"]}'],
    ),
    "one object of two": (
        [rule("get", "pods", names="a")],
        rule("get list", "pods", names="a b"),
        [
            '{APIGroups:[""], Resources:["pods"], ResourceNames:["a"], Verbs:["list"]}',
            '{APIGroups:[""], Resources:["pods"], ResourceNames:["b"], Verbs:["get" "list"]}',
        ],
    ),
    "a path by a pattern": ([rule("get", urls="/api/*")], rule("get", urls="/api/v1 /api/*"), []),
    "a pattern by a path": (
        [rule("get", urls="/api/v1")],
        rule("get", urls="/api/*"),
        ['{NonResourceURLs:["/api/*"], Verbs:["get"]}'],
    ),
}


@pytest.mark.parametrize(("owned", "wanted", "missing"), COVERED.values(), ids=COVERED.keys())
def test_rules_cover_others_or_say_what_is_missing(
    owned: list[PolicyRule], wanted: PolicyRule, missing: list[str]
) -> None:
    assert described(uncovered(owned, [wanted])) == missing


# Stored ones.


def meta(name: str, namespace: str = "") -> ObjectMeta:
    return ObjectMeta(name=name, namespace=namespace)


def user(name: str) -> Subject:
    return Subject(kind="User", api_group=roles.GROUP, name=name)


def group(name: str) -> Subject:
    return Subject(kind="Group", api_group=roles.GROUP, name=name)


def account(name: str, namespace: str = "") -> Subject:
    return Subject(kind="ServiceAccount", name=name, namespace=namespace)


def ref(kind: str, name: str) -> RoleRef:
    return RoleRef(api_group=roles.GROUP, kind=kind, name=name)


def write(*made: ApiObject) -> None:
    with objects.writing(identity=SYSTEM) as writer:
        for one in made:
            kind = registry.by_resource(f"{type(one).__name__.lower()}s.{roles.GROUP}")
            writer.create(kind, one)


def remove(kind: str, name: str, namespace: str = "") -> None:
    with objects.writing(identity=SYSTEM) as writer:
        writer.delete(registry.by_resource(f"{kind}.{roles.GROUP}"), namespace, name)


def decide(identity: Identity, wanted: Attributes) -> Decision:
    return rbac.authorize(identity, wanted)


@pytest.fixture
def started(db: None) -> None:
    ensure_roles()


READS_PODS = ClusterRole(metadata=meta("reads-pods"), rules=(rule("get list watch", "pods"),))


def bound(*subjects: Subject, role: str = "reads-pods") -> ClusterRoleBinding:
    return ClusterRoleBinding(metadata=meta("readers"), role_ref=ref("ClusterRole", role), subjects=subjects)


REASONS: dict[str, tuple[list[ApiObject], Identity, str]] = {
    "a user everywhere": (
        [READS_PODS, bound(user("alice"))],
        ALICE,
        'RBAC: allowed by ClusterRoleBinding "readers" of ClusterRole "reads-pods" to User "alice"',
    ),
    "a group everywhere": (
        [READS_PODS, bound(user("bob"), group("team"))],
        ALICE,
        'RBAC: allowed by ClusterRoleBinding "readers" of ClusterRole "reads-pods" to Group "team"',
    ),
    "a cluster role in one namespace": (
        [
            READS_PODS,
            RoleBinding(metadata=meta("r", "ns"), role_ref=ref("ClusterRole", "reads-pods"), subjects=(user("alice"),)),
        ],
        ALICE,
        'RBAC: allowed by RoleBinding "r/ns" of ClusterRole "reads-pods" to User "alice"',
    ),
    "a role of the namespace": (
        [
            Role(metadata=meta("mine", "ns"), rules=(rule("get", "pods", names="p"),)),
            RoleBinding(metadata=meta("r", "ns"), role_ref=ref("Role", "mine"), subjects=(user("alice"),)),
        ],
        ALICE,
        'RBAC: allowed by RoleBinding "r/ns" of Role "mine" to User "alice"',
    ),
    "a service account": (
        [READS_PODS, bound(account("plugin", "drivers"))],
        PLUGIN,
        'RBAC: allowed by ClusterRoleBinding "readers" of ClusterRole "reads-pods" to ServiceAccount "plugin/drivers"',
    ),
    "a service account of the binding's namespace": (
        [
            READS_PODS,
            RoleBinding(metadata=meta("r", "ns"), role_ref=ref("ClusterRole", "reads-pods"), subjects=(account("a"),)),
        ],
        service_account("ns", "a"),
        'RBAC: allowed by RoleBinding "r/ns" of ClusterRole "reads-pods" to ServiceAccount "a/ns"',
    ),
}


@pytest.mark.usefixtures("started")
@pytest.mark.parametrize(("made", "who", "reason"), REASONS.values(), ids=REASONS.keys())
def test_a_decision_tells_the_binding_that_allows(made: list[ApiObject], who: Identity, reason: str) -> None:
    wanted = on("get", "pods", namespace="ns", name="p")
    assert decide(who, wanted) == Decision(False)
    write(*made)
    assert decide(who, wanted) == Decision(True, reason)
    assert decide(Identity("charlie"), wanted) == Decision(False)


@pytest.mark.usefixtures("started")
def test_a_binding_in_a_namespace_says_nothing_of_others_or_of_the_cluster() -> None:
    everything = ClusterRole(metadata=meta("all"), rules=(rule("*", "*", groups="*"), rule("*", urls="*")))
    here = RoleBinding(metadata=meta("r", "ns"), role_ref=ref("ClusterRole", "all"), subjects=(user("alice"),))
    write(everything, here)
    assert decide(ALICE, on("delete", "pods", namespace="ns")).allowed
    assert not decide(ALICE, on("delete", "pods", namespace="other")).allowed
    assert not decide(ALICE, on("delete", "pods")).allowed
    assert not decide(ALICE, on("delete", "nodes")).allowed
    assert not decide(ALICE, on("get", path="/metrics")).allowed


@pytest.mark.usefixtures("started")
def test_a_role_that_is_missing_is_told_and_the_next_binding_asked() -> None:
    write(bound(user("alice"), role="gone"))
    wanted = on("get", "pods")
    missing = f'clusterrole.{roles.GROUP} "gone" not found'
    assert decide(ALICE, wanted) == Decision(False, f"RBAC: {missing}")
    assert rbac.known_rules(ALICE, "").error == missing
    write(ClusterRole(metadata=meta("gone"), rules=(rule("get", "pods"),)))
    assert decide(ALICE, wanted).allowed
    assert rbac.known_rules(ALICE, "").error == ""


@pytest.mark.usefixtures("started")
def test_what_was_remembered_goes_with_every_change() -> None:
    wanted = on("get", "pods", name="p")
    write(READS_PODS, bound(user("alice")))
    assert decide(ALICE, wanted).allowed
    remove("clusterroles", "reads-pods")
    assert not decide(ALICE, wanted).allowed
    write(READS_PODS)
    assert decide(ALICE, wanted).allowed
    remove("clusterrolebindings", "readers")
    assert not decide(ALICE, wanted).allowed


@pytest.mark.usefixtures("started")
def test_names_are_told_apart_where_a_role_names_some() -> None:
    write(ClusterRole(metadata=meta("reads-pods"), rules=(rule("get", "pods", names="p"),)), bound(user("alice")))
    for _ in range(2):  # the second time from memory
        assert [decide(ALICE, on("get", "pods", name=name)).allowed for name in "pqp"] == [True, False, True]


@pytest.mark.usefixtures("started")
def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rbac, "REMEMBERED", 3)
    for number in range(20):
        decide(ALICE, on("get", f"things{number}"))
    assert len(rbac.policy().decided) <= 4


@pytest.mark.django_db
def test_before_the_first_start_the_default_roles_hold() -> None:
    wanted = on("get", path="/apis")
    assert decide(ALICE, wanted).allowed
    assert not decide(Identity("nobody"), wanted).allowed
    write(READS_PODS, bound(user("alice")))
    assert decide(ALICE, on("get", "pods")).allowed
    assert decide(ALICE, wanted).allowed
    ensure_roles()
    assert decide(ALICE, wanted).allowed
    remove("clusterrolebindings", "system:discovery")
    assert not decide(ALICE, wanted).allowed


@pytest.mark.django_db
def test_a_decision_asks_the_database_for_nothing_that_it_knows(django_assert_num_queries: Any) -> None:
    ensure_roles()
    decide(ALICE, on("get", "pods"))
    with django_assert_num_queries(0):
        for namespace in ("a", "b"):
            decide(ALICE, on("get", "pods", namespace=namespace))


def known_to(identity: Identity, namespace: str) -> Sequence[PolicyRule]:
    return rbac.known_rules(identity, namespace).rules


@pytest.mark.usefixtures("started")
def test_the_rules_of_somebody_are_those_of_all_that_they_are_granted() -> None:
    write(
        READS_PODS,
        RoleBinding(metadata=meta("r", "ns"), role_ref=ref("ClusterRole", "reads-pods"), subjects=(user("alice"),)),
    )
    here, there = known_to(ALICE, "ns"), known_to(ALICE, "other")
    assert set(here) - set(there) == set(READS_PODS.rules)
    assert rule("create", "selfsubjectreviews", groups="authentication.k8s.io") in there


@pytest.mark.usefixtures("started")
def test_many_grants_of_one_subject_allow_what_each_of_them_does(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[ApiObject] = []
    for number in range(12):
        made.append(Role(metadata=meta(f"r{number}", "ns"), rules=(rule("get", f"things{number}"),)))
        made.append(
            RoleBinding(
                metadata=meta(f"b{number}", "ns"), role_ref=ref("Role", f"r{number}"), subjects=(user("alice"),)
            )
        )
    named = Role(metadata=meta("named", "ns"), rules=(rule("delete", "pods/log", names="p"), rule("*", "*/scale")))
    gone = RoleBinding(metadata=meta("gone", "ns"), role_ref=ref("Role", "gone"), subjects=(user("alice"),))
    bound_too = RoleBinding(metadata=meta("named", "ns"), role_ref=ref("Role", "named"), subjects=(user("alice"),))
    paths = ClusterRole(metadata=meta("reads-pods"), rules=(rule("get", urls="/metrics"),))
    write(*made, named, gone, bound_too, paths, bound(user("alice")))
    asked = [
        *(on("get", f"things{number}", namespace="ns") for number in range(13)),
        on("list", "things1", namespace="ns"),
        on("get", "things1", namespace="other"),
        *(on("delete", "pods/log", namespace="ns", name=name) for name in "pqp"),
        on("patch", "things1/scale", namespace="ns"),
        on("get", path="/metrics"),
        on("get", path="/other"),
    ]
    apart = [decide(ALICE, wanted) for wanted in asked]
    assert sum(one.allowed for one in apart) == 12 + 2 + 1 + 1
    monkeypatch.setattr(rbac, "MANY", 0)
    rbac.policy().decided = {}
    assert [decide(ALICE, wanted) for wanted in asked] == apart
    remove("rolebindings", "b3", "ns")
    assert not decide(ALICE, asked[3]).allowed
    assert decide(ALICE, asked[4]).allowed
