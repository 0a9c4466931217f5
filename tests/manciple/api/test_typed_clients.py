"""Clients that decode into Kubernetes' Go types can read every pod, whatever KEP-3063's first draft put into it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from inventory.kinds import gates
from tests.manciple.api.requests import PODS, STRATEGIC, Api

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p"},
    "spec": {
        "containers": [{"name": "main", "image": "x", "podResources": ["gpu"]}],
        "resources": [{"name": "gpu", "resourceClaimName": "shared"}],
    },
}
TYPED = [
    "application/json, */*",
    "application/vnd.kubernetes.protobuf,application/json",
    "application/vnd.kubernetes.protobuf, */*",
]
UNTYPED = ["application/json", "*/*", "", "application/json, text/plain, */*", "application/json;as=x,application/json"]


@pytest.fixture
def draft(api: Api) -> Iterator[Api]:
    with gates.using(DRAControlPlaneController=True, DRAClaimsDraft=True):
        api.made(PODS, POD)
        yield api


def read(api: Api, accept: str) -> list[dict[str, Any]]:
    """The pod by itself, in a list, and as the answer to a patch."""
    patched = api.send("patch", f"{PODS}/p", body={}, content_type=STRATEGIC, accept=accept)
    one, several = api.get(f"{PODS}/p", accept=accept), api.get(PODS, accept=accept)
    assert (patched.code, one.code, several.code) == (200, 200, 200)
    return [one.json, several.json["items"][0], patched.json]


@pytest.mark.parametrize("accept", TYPED)
def test_a_typed_client_does_not_see_the_list(draft: Api, accept: str) -> None:
    for pod in read(draft, accept):
        assert "resources" not in pod["spec"]
        assert pod["spec"]["containers"][0]["image"] == "x"


@pytest.mark.parametrize("accept", UNTYPED)
def test_other_clients_see_it(draft: Api, accept: str) -> None:
    for pod in read(draft, accept):
        assert pod["spec"]["resources"] == POD["spec"]["resources"]  # type: ignore[index]


def test_what_a_typed_client_writes_back_keeps_what_it_could_not_see(draft: Api) -> None:
    pod = draft.get(f"{PODS}/p", accept=TYPED[0]).json
    pod["metadata"]["labels"] = {"a": "b"}
    pod["spec"]["containers"][0] |= {"image": "y"}
    del pod["spec"]["containers"][0]["podResources"]  # Go drops what its types do not know
    assert draft.put(f"{PODS}/p", pod).code == 200
    spec = draft.get(f"{PODS}/p").json["spec"]
    assert spec["resources"] == POD["spec"]["resources"]  # type: ignore[index]
    assert (spec["containers"][0]["image"], spec["containers"][0]["podResources"]) == ("y", ["gpu"])


def test_the_resources_of_todays_pods_are_shown_to_everybody(draft: Api) -> None:
    level = {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}
    document = POD | {
        "metadata": {"name": "q"},
        "spec": {"containers": [{"name": "c", "image": "x"}], "resources": level},
    }
    draft.made(PODS, document)
    for accept in (*TYPED, *UNTYPED):
        assert draft.get(f"{PODS}/q", accept=accept).json["spec"]["resources"] == level
