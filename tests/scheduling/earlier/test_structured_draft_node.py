"""The example of the KEP-4381 draft on a node: what is published by the node, prepared by the driver's plugin with the
structured handles, and runs. The node's agent is the real one; it asks the API within this process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from claims.kinds.resource_claims import ResourceClaim
from manciple.wire import codec
from nodeagent.drivers.protocol import ClaimIdentity, Failed, Prepared, PreparedDevice
from tests.manciple.api.conftest import api
from tests.manciple.api.requests import Api
from tests.scheduling.cluster import Cluster
from tests.scheduling.earlier.structured_draft import (
    DRIVER,
    NODE,
    V1ALPHA2,
    DraftCluster,
    card,
    example,
    named,
    node_slice,
)
from tests.scheduling.local_agent import LocalAgent, PublishesNothing, token_of, trust_the_api
from tests.scheduling.test_feature_gates import restarted_with

__all__ = ["api"]
APPLY = "application/apply-patch+yaml"


class CardsPlugin(PublishesNothing):
    """The driver's part on the node: it has its two cards, publishes them in the draft's form, and is told of claims by
    handles.
    """

    name, wants_handles = DRIVER, True

    def __init__(self) -> None:
        self.available = {"gpu-0", "gpu-1"}
        #: uid of a claim -> the handles that it was prepared with
        self.prepared: dict[str, Any] = {}

    def prepare(self, claims: Sequence[ResourceClaim]) -> Mapping[str, Prepared | Failed]:
        return {claim.metadata.uid: self._prepare(claim) for claim in claims}

    def _prepare(self, claim: ResourceClaim) -> Prepared | Failed:
        (handle,) = claim.status.allocation.resource_handles if claim.status.allocation is not None else ()
        told = codec.to_builtins(handle)["structuredData"]
        ids = [one["id"] for one in told["namedResourcesWithAttributes"]["resources"]]
        if missing := set(ids) - self.available:
            return Failed(f"{', '.join(sorted(missing))} is not available any more")
        self.prepared[claim.metadata.uid] = told
        devices = tuple(PreparedDevice(requests=(), pool=NODE, device=one, cdi_device_ids=()) for one in ids)
        return Prepared(devices=devices, spec=None)

    def unprepare(self, claims: Sequence[ClaimIdentity]) -> Mapping[str, Failed | None]:
        return {claim.uid: None for claim in claims if self.prepared.pop(claim.uid, None) or True}


class DraftNode(LocalAgent):
    """worker-1: its agent and the plugin."""

    def __init__(self, folder: Path) -> None:
        self.plugin = CardsPlugin()
        super().__init__(NODE, [self.plugin], folder)
        self.register()


@pytest.fixture
def draft(api: Api, cluster: Cluster) -> Iterator[DraftCluster]:
    with restarted_with(cluster, DRAStructuredParametersDraft=True):
        yield DraftCluster(cluster, api)


@pytest.fixture
def worker(draft: DraftCluster, tmp_path: Path) -> DraftNode:
    trust_the_api(draft.api)
    return DraftNode(tmp_path)


def ready(draft: DraftCluster, name: str = "with-card") -> str:
    conditions = draft.get("Pod", name).get("status", {}).get("conditions", [])
    return next((one["status"] for one in conditions if one["type"] == "Ready"), "")


def test_the_example_of_the_draft_runs_to_a_ready_pod(draft: DraftCluster, worker: DraftNode) -> None:
    documents = example()
    published = documents.pop("NodeResourceSlice")
    worker.api.made(f"{V1ALPHA2}/noderesourceslices", published)  # the node's own part
    draft.apply(*documents.values())
    for _ in range(3):
        worker.look()
    assert ready(draft) == "True", worker.failures
    uid = draft.claim()["metadata"]["uid"]
    assert worker.plugin.prepared == {
        uid: {
            "vendorClaimParameters": documents["ResourceClaimParameters"]["vendorParameters"],
            "nodeName": NODE,
            "namedResourcesWithAttributes": {"resources": [{"id": "gpu-1"}]},
        }
    }
    draft.delete("Pod", "with-card")
    worker.look()
    assert (worker.plugin.prepared, draft.given()) == ({}, [])


def test_the_plugin_must_double_check_that_what_is_allocated_is_still_available(
    draft: DraftCluster, worker: DraftNode
) -> None:
    """If not, the pod cannot start until the resource comes back."""
    worker.plugin.available = {"gpu-0"}
    draft.apply(*example().values())
    worker.look()
    assert (draft.node_of("with-card"), ready(draft), worker.plugin.prepared) == (NODE, "False", {})
    (event, *_) = draft.cluster.events("FailedPrepareDynamicResources")
    assert "gpu-1 is not available any more" in event.message
    worker.plugin.available.add("gpu-1")
    for _ in range(3):
        worker.look()
    assert ready(draft) == "True"


# Publishing node resources --------------------------------------------------------------------------------------------


def test_the_kubelet_of_one_node_is_not_allowed_to_create_or_modify_slices_of_another(
    draft: DraftCluster, worker: DraftNode
) -> None:
    path, other = f"{V1ALPHA2}/noderesourceslices", Api(token_of("worker-2"))
    answer = other.post(path, node_slice(name="theirs"))
    assert (answer.code, "can only create NodeResourceSlice with the same NodeName" in answer.message) == (403, True)
    mine = worker.api.made(path, node_slice(name="mine"))
    assert worker.api.put(f"{path}/mine", mine).code == 200
    assert [other.get(f"{path}/mine").code, other.put(f"{path}/mine", mine).code] == [403, 403]
    assert other.delete(f"{path}/mine").code == 403
    assert worker.api.delete(f"{path}/mine").code == 200


def test_a_field_selector_can_be_used_to_list_slices_of_a_node_or_a_driver(
    draft: DraftCluster, worker: DraftNode
) -> None:
    path = f"{V1ALPHA2}/noderesourceslices"
    draft.apply(node_slice(name="a"), node_slice(name="b", driver="nics.example.com"), node_slice(name="c", node="w2"))

    def names(api: Api, selector: str) -> list[str]:
        answer = api.get(f"{path}?fieldSelector={selector}")
        assert answer.code == 200, answer.text
        return [one["metadata"]["name"] for one in answer.json["items"]]

    assert names(draft.api, f"spec.nodeName={NODE}") == ["a", "b"]
    assert names(draft.api, f"spec.driverName={DRIVER}") == ["a", "c"]
    assert names(worker.api, f"spec.nodeName={NODE},spec.driverName={DRIVER}") == ["a"]
    assert worker.api.get(path).code == 403


def test_all_list_types_are_atomic_and_have_one_owner(draft: DraftCluster) -> None:
    path = f"{V1ALPHA2}/noderesourceslices/cards?fieldManager="
    for who, code in (("kubelet", 201), ("another", 409)):
        answer = draft.api.patch(path + who, node_slice(card(who)), content_type=APPLY)
        assert answer.code == code, answer.text
    assert [one["field"] for one in answer.json["details"]["causes"]] == [".spec.namedResourcesWithAttributes"]


def test_vendor_parameters_are_applied_as_a_whole_and_patched_by_field(draft: DraftCluster) -> None:
    path = f"{V1ALPHA2}/namespaces/default/resourceclassparameters/p?fieldManager=test"
    for vendor, code in (({"any": "object"}, 201), ({"another": 1}, 200)):
        document = named("ResourceClassParameters", "p", vendorParameters=vendor)
        answer = draft.api.patch(path, document, content_type=APPLY)
        assert (answer.code, answer.json.get("vendorParameters")) == (code, vendor), answer.text
    patched = draft.api.patch(path, {"vendorParameters": {"more": True}}).json
    assert patched["vendorParameters"] == {"another": 1, "more": True}
