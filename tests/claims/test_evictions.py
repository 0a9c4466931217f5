"""`pods/NAME/eviction` asks the pod's disruption budget, and counts on it."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from claims.controllers import disruption
from claims.kinds.disruption_budgets import POD_DISRUPTION_BUDGET, PodDisruptionBudget
from claims.kinds.pods import Pod
from claims.kinds.registration import POD
from manciple.access.authentication import tokens
from manciple.access.bootstrap import ensure_roles
from manciple.store import objects
from manciple.store.objects import Writer, decoded
from manciple.wire.base import LabelSelector
from tests.builders import make_budget, make_pod, make_running
from tests.manciple.api.conftest import api
from tests.manciple.api.requests import PODS, Answer, Api
from tests.scheduling.cluster import in_threads

__all__ = ["api"]

BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
WEB = {"app": "web"}


def run(*names: str, ready: bool = True, phase: str = "Running") -> None:
    """Pods of the application `web`."""
    for name in names:
        with objects.writing() as writer:
            made = writer.create(POD, POD.prepare_create(make_pod(name, meta={"labels": WEB}, node="n1")))
            assert isinstance(made, Pod)
            running = make_running(made, ready=ready)
            writer.update(POD, replace(running, status=replace(running.status, phase=phase)), subresource="status")


def protect(name: str = "web", **spec: Any) -> None:
    with objects.writing() as writer:
        writer.create(POD_DISRUPTION_BUDGET, POD_DISRUPTION_BUDGET.prepare_create(make_budget(name, **spec)))
    count()


def count() -> None:
    disruption.sweep(datetime.now(UTC))


def budget(name: str = "web") -> PodDisruptionBudget:
    stored = objects.get(POD_DISRUPTION_BUDGET, "default", name)
    assert stored is not None
    return decoded(stored, PodDisruptionBudget)


def evict(api: Api, name: str, query: str = "", **options: Any) -> Answer:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "default"}}
    return api.post(f"{PODS}/{name}/eviction{query}", body | ({"deleteOptions": options} if options else {}))


def is_going(name: str) -> bool:
    stored = objects.get(POD, "default", name)
    return stored is None or stored.deleting


def test_all_writers_do_not_wait_while_the_budgets_of_a_namespace_are_read(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("a", "b")
    protect(min_available=1)
    for number in range(5):
        protect(f"other-{number}", min_available=1, selector=LabelSelector(match_labels={"app": "other"}))

    def listed(*values: object, **named: object) -> None:
        raise AssertionError(f"a list in the transaction: {values} {named}")

    monkeypatch.setattr(Writer, "list", listed)
    assert [evict(api, name).code for name in ("a", "b")] == [201, 429]


def test_as_many_go_as_the_budget_allows(api: Api) -> None:
    run("a", "b", "c")
    protect(min_available=2)
    assert evict(api, "a").code == 201
    refused = evict(api, "b")
    assert (refused.code, refused.reason) == (429, "TooManyRequests")
    assert refused.message == "Cannot evict pod as it would violate the pod's disruption budget."
    said = "The disruption budget web needs 2 healthy pods and has 3 currently"
    assert refused.json["details"] == {"causes": [{"reason": "DisruptionBudget", "message": said}]}
    assert (is_going("a"), is_going("b")) == (True, False)


def test_the_budget_counts_in_the_transaction_of_the_deletion(api: Api) -> None:
    run("a", "b", "c")
    protect(min_available=1)
    assert evict(api, "a").code == 201
    status = budget().status
    assert (status.disruptions_allowed, list(status.disrupted_pods)) == (1, ["a"])
    count()
    assert (budget().status.disruptions_allowed, budget().status.disrupted_pods) == (1, {})


def test_an_evicted_pod_says_why_it_goes(api: Api) -> None:
    run("a")
    before = api.get(f"{PODS}/a").json["metadata"]
    assert evict(api, "a", preconditions={"resourceVersion": before["resourceVersion"]}).code == 201
    told = next(one for one in api.get(f"{PODS}/a").json["status"]["conditions"] if one["type"] == "DisruptionTarget")
    assert (told["status"], told["reason"], told["message"]) == (
        "True",
        "EvictionByEvictionAPI",
        "Eviction API: evicting",
    )


def test_a_pod_that_has_changed_since_is_not_evicted(api: Api) -> None:
    run("a")
    assert evict(api, "a", preconditions={"resourceVersion": "1"}).code == 409
    assert "DisruptionTarget" not in [one["type"] for one in api.get(f"{PODS}/a").json["status"]["conditions"]]


def test_a_budget_is_replaced_only_by_who_names_its_revision(api: Api) -> None:
    protect(min_available=1)
    document = api.get(f"{BUDGETS}/web").json
    del document["metadata"]["resourceVersion"]
    refused = api.put(f"{BUDGETS}/web", document)
    assert (refused.code, refused.json["details"]["causes"][0]["field"]) == (422, "metadata.resourceVersion")


def test_what_is_refused_for_another_reason_does_not_count(api: Api) -> None:
    run("a", "b")
    protect(min_available=1)
    assert evict(api, "a", preconditions={"uid": "another"}).code == 409
    assert evict(api, "a", "?dryRun=All").code == 201
    assert evict(api, "a", dryRun=["All"]).code == 201
    assert (budget().status.disruptions_allowed, budget().status.disrupted_pods) == (1, {})
    assert not is_going("a")


def test_a_dry_run_is_refused_like_the_eviction(api: Api) -> None:
    run("a")
    protect(min_available=1)
    assert evict(api, "a", "?dryRun=All").code == 429


def test_pods_of_no_budget_go(api: Api) -> None:
    run("a")
    protect(min_available=1, selector=None)
    assert evict(api, "a").code == 201


def test_of_several_budgets_nobody_knows_which_counts(api: Api) -> None:
    run("a", "b")
    protect("one", min_available=0)
    protect("two", min_available=0)
    answer = evict(api, "a")
    assert answer.code == 500
    assert answer.message == (
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
    )
    assert not is_going("a")


@pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed"])
def test_pods_that_do_not_run_go_without_asking(api: Api, phase: str) -> None:
    run("a", "b")
    run("c", phase=phase, ready=False)
    protect(min_available=2)
    assert evict(api, "c").code == 201
    assert budget().status.disrupted_pods == {}


def test_a_pod_that_is_deleted_already_is_no_disruption(api: Api) -> None:
    run("a")
    protect(min_available=1)
    assert api.delete(f"{PODS}/a").code in (200, 202)
    if objects.get(POD, "default", "a") is not None:
        assert evict(api, "a").code == 201


@pytest.mark.parametrize(
    ("policy", "ready", "code"),
    [
        (None, ("a", "b"), 201),  # enough others are ready
        ("IfHealthyBudget", ("a", "b"), 201),
        ("IfHealthyBudget", ("a",), 429),
        (None, ("a",), 429),
        ("AlwaysAllow", ("a",), 201),
    ],
)
def test_who_is_not_ready_goes_by_the_budgets_policy(
    api: Api, policy: str | None, ready: tuple[str, ...], code: int
) -> None:
    run(*ready)
    run("sick", ready=False)
    protect(min_available=2, unhealthy_pod_eviction_policy=policy)
    assert evict(api, "sick").code == code
    assert (budget().status.disruptions_allowed, budget().status.disrupted_pods) == (0, {})


def test_a_budget_that_is_not_counted_yet_lets_nobody_go(api: Api) -> None:
    run("a", "b")
    with objects.writing() as writer:
        writer.create(POD_DISRUPTION_BUDGET, POD_DISRUPTION_BUDGET.prepare_create(make_budget(min_available=1)))
    refused = evict(api, "a")
    assert (refused.code, refused.header("Retry-After")) == (429, "10")
    assert refused.json["details"]["retryAfterSeconds"] == 10
    said = "The disruption budget web is still being processed by the server."
    assert [cause["message"] for cause in refused.json["details"]["causes"]] == [said]


def test_who_may_evict_needs_no_right_to_write_budgets(api: Api) -> None:
    ensure_roles()
    run("a", "b")
    protect(min_available=1)
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "evictor"}}
    rule = {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]}
    path = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
    assert api.post(f"{path}/roles", role | {"rules": [rule]}).code == 201
    binding = role | {"kind": "RoleBinding", "subjects": [{"kind": "User", "name": "eve"}]}
    binding["subjects"][0]["apiGroup"] = "rbac.authorization.k8s.io"  # type: ignore[index]
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "evictor"}
    assert api.post(f"{path}/rolebindings", binding | {"roleRef": reference}).code == 201
    eve = Api(tokens.issue("eve", []))
    assert evict(eve, "a").code == 201
    assert evict(eve, "b").code == 429


@pytest.mark.django_db(transaction=True)
def test_of_many_evictions_at_once_no_more_succeed_than_are_allowed(api: Api) -> None:
    names = [f"p{at}" for at in range(8)]
    run(*names)
    protect(min_available=5)
    codes: list[int] = []
    in_threads(*[partial(lambda name: codes.append(evict(api, name).code), name) for name in names])
    assert sorted(codes) == [201] * 3 + [429] * 5
    assert sum(map(is_going, names)) == 3
