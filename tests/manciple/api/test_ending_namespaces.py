"""Namespaces that are missing or on their way out: what is refused first, and what their status says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from manciple.api import namespaces
from manciple.store import hooks, objects
from manciple.store.hooks import Write
from manciple.store.objects import Writer
from manciple.wire.errors import Forbidden, TooLarge
from manciple.wire.registry import Kind
from tests.manciple.api.requests import NAMESPACES, Api, namespace, pod

CLAIM_SPEC = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]}}
OBJECTS: dict[str, dict[str, Any]] = {
    "pods": pod("late"),
    "configmaps": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "late"}},
    "secrets": {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "late"}},
    "serviceaccounts": {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "late"}},
    "resourceclaims": {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "late"},
        "spec": CLAIM_SPEC,
    },
    "resourceclaimtemplates": {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "late"},
        "spec": {"spec": CLAIM_SPEC},
    },
    "roles": {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "late"}, "rules": []},
    "leases": {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "late"}},
}
BODIES_BELOW = {
    "pods/late/binding": {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "late"}, "target": {"name": "n"}},
    "pods/late/eviction": {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "late"}},
    "serviceaccounts/late/token": {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}},
}


def address(plural: str, inside: str) -> str:
    version = OBJECTS[plural]["apiVersion"]
    return f"/{'apis' if '/' in version else 'api'}/{version}/namespaces/{inside}/{plural}"


# Missing --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plural", OBJECTS)
@pytest.mark.parametrize("way", ["create", "generateName", "dry run", "apply"])
def test_whatever_is_created_in_a_missing_namespace_the_namespace_is_not_found(api: Api, plural: str, way: str) -> None:
    path, body = address(plural, "nowhere"), OBJECTS[plural]
    if way == "apply":
        answer = api.patch(f"{path}/late?fieldManager=m", body, content_type="application/apply-patch+yaml")
    elif way == "generateName":
        answer = api.post(path, {**body, "metadata": {"generateName": "late-"}})
    else:
        answer = api.post(f"{path}?dryRun=All" if way == "dry run" else path, body)
    assert (answer.code, answer.reason, answer.message) == (404, "NotFound", 'namespaces "nowhere" not found')
    assert answer.json["details"] == {"name": "nowhere", "kind": "namespaces"}


@pytest.mark.parametrize("below", BODIES_BELOW)
def test_what_is_posted_below_an_object_of_a_missing_namespace_says_so_too(api: Api, below: str) -> None:
    answer = api.post(f"/api/v1/namespaces/nowhere/{below}", BODIES_BELOW[below])
    assert (answer.code, answer.message) == (404, 'namespaces "nowhere" not found')


@pytest.mark.parametrize("plural", ["leases", "roles"])
def test_a_put_that_would_create_the_object_does_not_find_the_namespace_either(api: Api, plural: str) -> None:
    answer = api.put(f"{address(plural, 'nowhere')}/late", OBJECTS[plural])
    assert (answer.code, answer.message) == (404, 'namespaces "nowhere" not found')


def test_an_invalid_object_in_a_missing_namespace_is_not_judged(api: Api) -> None:
    broken = {**pod("late"), "spec": {"containers": []}}
    answer = api.post(address("pods", "nowhere"), broken)
    assert (answer.code, answer.message) == (404, 'namespaces "nowhere" not found')


def test_reading_and_changing_in_a_missing_namespace_is_as_without_the_object(api: Api) -> None:
    path = address("pods", "nowhere")
    assert api.get(path).json["items"] == []
    for answer in (api.get(f"{path}/late"), api.delete(f"{path}/late"), api.put(f"{path}/late", pod("late"))):
        assert (answer.code, answer.message) == (404, 'pods "late" not found')


@pytest.mark.parametrize("plural", OBJECTS)
def test_nothing_is_judged_that_comes_into_a_terminating_namespace(api: Api, plural: str) -> None:
    end(api, "leaving")
    answer = api.post(address(plural, "leaving"), {**OBJECTS[plural], "metadata": {"generateName": "late-"}})
    group = OBJECTS[plural]["apiVersion"].rpartition("/")[0]
    resource = f"{plural}.{group}" if group else plural
    assert (answer.code, answer.reason) == (403, "Forbidden")
    assert answer.message == (
        f'{resource} "late-" is forbidden: unable to create new content in namespace leaving '
        "because it is being terminated"
    )
    (cause,) = answer.json["details"]["causes"]
    assert (cause["reason"], cause["field"]) == ("NamespaceTerminating", "metadata.namespace")


def test_a_namespace_that_was_made_a_moment_ago_is_found(api: Api) -> None:
    assert api.post(address("configmaps", "fresh"), OBJECTS["configmaps"]).code == 404
    api.made(NAMESPACES, namespace("fresh"))
    assert api.post(address("configmaps", "fresh"), OBJECTS["configmaps"]).code == 201


# What holds one -------------------------------------------------------------------------------------------------------


def end(api: Api, name: str, *, finalizers: tuple[str, ...] = ("acme.test/hold",)) -> None:
    """A namespace that a ConfigMap holds."""
    api.made(NAMESPACES, namespace(name))
    metadata = {"name": "hold", "finalizers": list(finalizers)}
    api.made(address("configmaps", name), {**OBJECTS["configmaps"], "metadata": metadata})
    assert api.delete(f"{NAMESPACES}/{name}").code == 200


def sweep(*, patience: float = namespaces.PATIENCE.total_seconds()) -> int:
    return namespaces.sweep(datetime.now(UTC) + timedelta(seconds=patience))


def conditions(api: Api, name: str) -> dict[str, tuple[str, str, str]]:
    """type -> status, reason, message."""
    found = api.get(f"{NAMESPACES}/{name}").json["status"].get("conditions", [])
    assert all(one["lastTransitionTime"] for one in found)
    return {one["type"]: (one["status"], one["reason"], one["message"]) for one in found}


FINE = {
    "NamespaceDeletionDiscoveryFailure": ("False", "ResourcesDiscovered", "All resources successfully discovered"),
    "NamespaceDeletionGroupVersionParsingFailure": (
        "False",
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    "NamespaceDeletionContentFailure": (
        "False",
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    "NamespaceContentRemaining": ("False", "ContentRemoved", "All content successfully removed"),
    "NamespaceFinalizersRemaining": (
        "False",
        "ContentHasNoFinalizers",
        "All content-preserving finalizers finished",
    ),
}


def test_a_held_namespace_says_what_holds_it(api: Api) -> None:
    end(api, "leaving", finalizers=("acme.test/hold", "acme.test/other"))
    sweep()
    assert conditions(api, "leaving") == FINE | {
        "NamespaceContentRemaining": (
            "True",
            "SomeResourcesRemain",
            "Some resources are remaining: configmaps. has 1 resource instances",
        ),
        "NamespaceFinalizersRemaining": (
            "True",
            "SomeFinalizersRemain",
            "Some content in the namespace has finalizers remaining: "
            "acme.test/hold in 1 resource instances, acme.test/other in 1 resource instances",
        ),
    }


def test_thousands_of_finalizers_are_not_all_named_and_keep_no_other_namespace(api: Api) -> None:
    many = [f"acme.test/{number:05}{'x' * 50}" for number in range(20_000)]
    api.made(NAMESPACES, namespace("crowded"))
    for part in range(4):
        metadata = {"name": f"m{part}", "finalizers": many[part::4]}
        api.made(address("configmaps", "crowded"), {**OBJECTS["configmaps"], "metadata": metadata})
    assert api.delete(f"{NAMESPACES}/crowded").code == 200
    end(api, "other", finalizers=())
    assert sweep() == 1
    status, _, message = conditions(api, "crowded")["NamespaceFinalizersRemaining"]
    assert status == "True"
    assert message.startswith(f"Some content in the namespace has finalizers remaining: {many[0]} in 1 ")
    assert message.endswith(", and 19950 more")


def test_a_namespace_whose_status_is_refused_keeps_no_other_one(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise TooLarge("too large")

    end(api, "a-refused")
    end(api, "other", finalizers=())
    monkeypatch.setattr(namespaces, "_report", refuse)
    assert sweep() == 1
    assert api.get(f"{NAMESPACES}/other").code == 404


def test_what_holds_it_is_known_before_anything_is_deleted(api: Api) -> None:
    end(api, "leaving")
    sweep(patience=0)
    found = conditions(api, "leaving")
    assert found.keys() == {"NamespaceContentRemaining", "NamespaceFinalizersRemaining"}
    assert found["NamespaceFinalizersRemaining"][2].endswith(": acme.test/hold in 1 resource instances")


def test_the_counts_follow_what_is_left(api: Api) -> None:
    end(api, "leaving", finalizers=("acme.test/hold", "acme.test/last"))
    api_path = address("configmaps", "leaving")
    sweep()
    before = api.get(f"{NAMESPACES}/leaving").json
    sweep()
    assert api.get(f"{NAMESPACES}/leaving").json == before  # nothing changed, and nothing is written
    api.patch(f"{api_path}/hold", {"metadata": {"finalizers": ["acme.test/last"]}})
    sweep()
    assert conditions(api, "leaving")["NamespaceFinalizersRemaining"][2].endswith(
        ": acme.test/last in 1 resource instances"
    )
    api.patch(f"{api_path}/hold", {"metadata": {"finalizers": None}})
    assert sweep() == 1
    assert api.get(f"{NAMESPACES}/leaving").code == 404


def test_objects_are_counted_by_their_kind_and_finalizers_over_all_kinds(api: Api) -> None:
    api.made(NAMESPACES, namespace("leaving"))
    for plural, count in (("configmaps", 2), ("resourceclaims", 1)):
        for number in range(count):
            metadata = {"name": f"hold-{number}", "finalizers": ["acme.test/hold"]}
            api.made(address(plural, "leaving"), {**OBJECTS[plural], "metadata": metadata})
    api.delete(f"{NAMESPACES}/leaving")
    sweep()
    found = conditions(api, "leaving")
    assert found["NamespaceContentRemaining"][2] == (
        "Some resources are remaining: configmaps. has 2 resource instances, "
        "resourceclaims.resource.k8s.io has 1 resource instances"
    )
    assert found["NamespaceFinalizersRemaining"][2].endswith("acme.test/hold in 3 resource instances")


def test_a_turn_reads_few_of_the_objects_that_are_held(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespaces, "MOST_READ", 2)
    monkeypatch.setattr(objects, "PAGE", 3)
    api.made(NAMESPACES, namespace("leaving"))
    for number in range(7):
        metadata = {"name": f"hold-{number}", "finalizers": ["acme.test/hold"]}
        api.made(address("configmaps", "leaving"), {**OBJECTS["configmaps"], "metadata": metadata})
    api.delete(f"{NAMESPACES}/leaving")
    sweep(patience=0)
    assert "configmaps. has 7 resource" in conditions(api, "leaving")["NamespaceContentRemaining"][2]
    sweep()
    loaded: list[Kind] = []
    monkeypatch.setattr(Writer, "load", lambda _writer, kind, _keys: loaded.append(kind))
    sweep()
    assert loaded == []
    found = conditions(api, "leaving")
    assert found["NamespaceContentRemaining"][2].endswith(": configmaps. has 7 resource instances")
    assert found["NamespaceFinalizersRemaining"][2].endswith(": acme.test/hold in 2 resource instances")


def test_a_namespace_that_was_created_again_meanwhile_is_left_alone(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look at which are terminating and the reading of these."""
    account, get_many = f"{address('serviceaccounts', 'leaving')}/default", objects.get_many

    def get_later(*given: Any) -> Any:
        monkeypatch.setattr(objects, "get_many", get_many)
        sweep()
        assert api.get(f"{NAMESPACES}/leaving").code == 404
        api.made(NAMESPACES, namespace("leaving"))
        return get_many(*given)

    api.made(NAMESPACES, namespace("leaving"))
    api.made(address("configmaps", "leaving"), OBJECTS["configmaps"])
    api.delete(f"{NAMESPACES}/leaving")
    monkeypatch.setattr(objects, "get_many", get_later)
    sweep()
    assert api.get(account).code == 200
    assert conditions(api, "leaving") == {}


def test_pods_go_before_anything_else(api: Api) -> None:
    api.made(NAMESPACES, namespace("leaving"))
    metadata = {"name": "last", "finalizers": ["acme.test/hold"]}
    api.made(address("pods", "leaving"), {**pod(), "metadata": metadata})
    api.made(address("configmaps", "leaving"), OBJECTS["configmaps"])
    api.delete(f"{NAMESPACES}/leaving")
    sweep()
    found = conditions(api, "leaving")
    assert found["NamespaceContentRemaining"][2] == "Some resources are remaining: pods. has 1 resource instances"
    assert api.get(f"{address('configmaps', 'leaving')}/late").code == 200
    api.patch(f"{address('pods', 'leaving')}/last", {"metadata": {"finalizers": None}})
    assert sweep() == 1


def test_a_namespace_that_others_hold_says_that_its_content_is_gone(api: Api) -> None:
    api.made(NAMESPACES, {**namespace("leaving"), "spec": {"finalizers": ["acme.test/ours"]}})
    api.made(address("configmaps", "leaving"), OBJECTS["configmaps"])
    api.delete(f"{NAMESPACES}/leaving")
    assert sweep() == 0
    assert conditions(api, "leaving") == FINE
    assert api.get(f"{NAMESPACES}/leaving").json["spec"]["finalizers"] == ["acme.test/ours"]


def test_an_object_that_may_not_be_deleted_keeps_no_other_namespace(api: Api) -> None:
    def keep(_writer: Writer, write: Write) -> None:
        if write.old.metadata.name == "kept":
            raise Forbidden('configmaps "kept" is forbidden: it stays')

    api.made(NAMESPACES, namespace("other"))
    api.made(address("configmaps", "other"), OBJECTS["configmaps"])
    hooks.register_rule(keep, operations={"DELETE"}, resources={"configmaps"})
    try:
        api.made(NAMESPACES, namespace("blocked"))
        metadata = {"name": "kept"}
        api.made(address("configmaps", "blocked"), {**OBJECTS["configmaps"], "metadata": metadata})
        for name in ("blocked", "other"):
            api.delete(f"{NAMESPACES}/{name}")
        assert sweep() == 1
    finally:
        hooks.unregister_rule(keep)
    assert api.get(f"{NAMESPACES}/other").code == 404
    assert conditions(api, "blocked")["NamespaceDeletionContentFailure"] == (
        "True",
        "ContentDeletionFailed",
        'Failed to delete all resource types, 1 remaining: configmaps "kept" is forbidden: it stays',
    )
    assert sweep() == 1
