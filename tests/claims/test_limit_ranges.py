"""LimitRanges: as Kubernetes 1.36 answers, and at work on the pods of a namespace, whoever makes them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from claims.kinds.limit_ranges import LimitRange, LimitRangeItem, LimitRangeSpec, violations
from tests.manciple.api.requests import Api
from tests.manciple.api.test_reference_answers import assert_answered_alike, cases

CASES = cases("limit_range_cases.jsonl")


@pytest.mark.parametrize("group", CASES)
def test_answers_are_those_of_the_reference(api: Api, group: str) -> None:
    assert_answered_alike(api, CASES[group], {})


# At work --------------------------------------------------------------------------------------------------------------


PODS = "/api/v1/namespaces/default/pods"
RANGES = "/api/v1/namespaces/default/limitranges"


def make_range(*limits: dict[str, object]) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"}, "spec": {"limits": list(limits)}}


def make_pod(name: str = "p", **container: object) -> dict[str, object]:
    spec = {"containers": [{"name": "c", "image": "i", **container}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def test_a_new_limit_counts_for_the_next_pod_and_a_deleted_one_no_more(api: Api) -> None:
    assert api.post(PODS, make_pod("before")).code == 201
    made = api.post(RANGES, make_range({"type": "Container", "max": {"cpu": "1"}}))
    assert made.code == 201
    limited = api.post(PODS, make_pod("limited"))
    assert limited.json["spec"]["containers"][0]["resources"] == {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}
    refused = api.post(PODS, make_pod("large", resources={"limits": {"cpu": "2"}}))
    assert (refused.code, refused.reason) == (403, "Forbidden")
    assert api.delete(f"{RANGES}/l").code == 200
    free = api.post(PODS, make_pod("free", resources={"limits": {"cpu": "2"}}))
    assert free.json["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "2"}


def test_a_pod_that_is_there_already_is_left_alone(api: Api) -> None:
    api.post(PODS, make_pod("p", resources={"limits": {"cpu": "2"}}))
    api.post(RANGES, make_range({"type": "Container", "max": {"cpu": "1"}}))
    change = {"metadata": {"labels": {"a": "b"}}}
    assert api.patch(f"{PODS}/p", change, content_type="application/merge-patch+json").code == 200


def test_all_that_is_wrong_is_told(api: Api) -> None:
    api.post(RANGES, make_range({"type": "Container", "max": {"cpu": "1"}, "min": {"memory": "1Gi"}}))
    refused = api.post(
        PODS, make_pod("p", resources={"requests": {"cpu": "2", "memory": "1Mi"}, "limits": {"cpu": "2"}})
    )
    assert "maximum cpu usage per Container is 1, but limit is 2" in refused.message
    assert "minimum memory usage per Container is 1Gi, but request is 1Mi" in refused.message


def test_a_volume_is_as_large_as_its_namespace_says() -> None:
    limits = LimitRangeItem(type="PersistentVolumeClaim", min={"storage": "1Gi"}, max={"storage": "10Gi"})
    ranges = [LimitRange(spec=LimitRangeSpec(limits=(limits,)))]

    def wrong(size: str) -> list[str]:
        claim = SimpleNamespace(spec=SimpleNamespace(resources=SimpleNamespace(requests={"storage": size})))
        return violations(claim, "PersistentVolumeClaim", ranges)

    assert wrong("5Gi") == []
    assert wrong("1Mi") == ["minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 1Mi"]
    assert wrong("1Ti") == ["maximum storage usage per PersistentVolumeClaim is 10Gi, but request is 1Ti"]


def test_an_amount_beyond_all_measure_is_refused_and_breaks_nothing(api: Api) -> None:
    item: dict[str, object] = {
        "type": "Pod",
        "max": {"cpu": "1e400"},
        "min": {"cpu": "1n"},
        "maxLimitRequestRatio": {"cpu": "1e399"},
    }
    assert api.post(RANGES, make_range(item)).code in (201, 422)


def test_limits_cost_a_pod_no_statement_of_their_own(api: Api) -> None:
    """They come with what follows the accounts, and from the cache of policies."""
    made = make_range({"type": "Container", "max": {"cpu": "1"}})
    for ranges in ((), (RANGES,)):
        for path in ranges:
            api.post(path, made)
        api.post(PODS, make_pod(f"warm-{len(ranges)}"))
        with CaptureQueriesContext(connection) as statements:
            api.post(PODS, make_pod(f"counted-{len(ranges)}"))
        assert all("serviceaccounts" in one["sql"] for one in statements if "limitranges" in one["sql"])
