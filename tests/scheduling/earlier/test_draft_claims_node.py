"""KEP-3063, first draft, from the API to a Ready pod: the stories are posted, the plugin's controller writes through
the API, and the node's agent is the real one with the rights of its node; it asks the API within this process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from claims.drafts.cdi.registration import CLAIM
from claims.drafts.cdi.values import ResourceClaim
from claims.kinds.resource_claims import ResourceClaim as ClaimOfToday
from manciple.controllers import housekeeping
from manciple.wire import codec, documents
from nodeagent.drivers.protocol import ClaimIdentity, Failed, Prepared, PreparedDevice
from scheduling.earlier import draft_claims
from tests.claims.drafts.acme import CLASS_OF_THE_STORY, PLUGIN, POD_OF_THE_STORY, AcmePlugin
from tests.manciple.api.conftest import api
from tests.manciple.api.requests import Api
from tests.scheduling.cluster import Cluster
from tests.scheduling.local_agent import LocalAgent, PublishesNothing, token_of, trust_the_api
from tests.scheduling.test_feature_gates import restarted_with

__all__ = ["api"]

NODE = "worker-1"
CDI = "/apis/cdi.k8s.io/v1alpha1"
CLAIMS, PODS = f"{CDI}/namespaces/default/resourceclaims", "/api/v1/namespaces/default/pods"
APPLY = "application/apply-patch+yaml"


class GpusOfTheNode(PublishesNothing):
    """ACME's part on the node: it is told a claim's uid, and answers with its devices."""

    name = PLUGIN

    def __init__(self) -> None:
        self.prepared: set[str] = set()

    def prepare(self, claims: Sequence[ClaimOfToday]) -> Mapping[str, Prepared | Failed]:
        self.prepared |= {claim.metadata.uid for claim in claims}
        device = PreparedDevice(requests=(), pool="", device="", cdi_device_ids=())
        return {claim.metadata.uid: Prepared(devices=(device,), spec=None) for claim in claims}

    def unprepare(self, claims: Sequence[ClaimIdentity]) -> Mapping[str, Failed | None]:
        self.prepared -= {claim.uid for claim in claims}
        return {claim.uid: None for claim in claims}


class World:
    """A cluster with one node, its agent, and both parts of the plugin."""

    def __init__(self, cluster: Cluster, api: Api, folder: Path) -> None:
        self.cluster, self.api, self.folder = cluster, api, folder
        self.controller, self.gpus = AcmePlugin(memory={NODE: 4}), GpusOfTheNode()
        trust_the_api(api)
        self.start_agent()
        self.agent.register()
        api.made(f"{CDI}/resourceclasses", read(CLASS_OF_THE_STORY))

    def start_agent(self) -> None:
        """Whatever the last one left on the disk is there."""
        self.agent = LocalAgent(NODE, [self.gpus], self.folder)

    def goes_on(self, rounds: int = 10) -> None:
        """Everybody does what there is to do."""
        for _ in range(rounds):
            draft_claims.reconcile(self.cluster.now)
            self.cluster.later(11)
            self.cluster.worker.run()
            self.allocate()
            housekeeping.collect_garbage(self.cluster.now)
            self.agent.look()

    def allocate(self) -> None:
        """The plugin's controller, through the API: finalizers and the status are written apart."""
        answer = self.api.get(CLAIMS).json["items"]
        known: list[ResourceClaim] = [codec.decode_value(ResourceClaim, one) for one in answer]
        for one in known:
            if (new := self.controller.answer(one, known)) is not None:
                below = "/status" if new.status != one.status else ""
                body = msgspec.json.decode(codec.encode(new))
                written = self.api.put(f"{CLAIMS}/{one.metadata.name}{below}", body)
                assert written.code == 200, written.text

    def is_ready(self, pod: str) -> bool:
        conditions = self.api.get(f"{PODS}/{pod}").json["status"]["conditions"]
        return any((one["type"], one["status"]) == ("Ready", "True") for one in conditions)


def read(text: str) -> Any:
    return documents.parse(text.encode(), media="application/yaml")


@pytest.fixture
def world(api: Api, cluster: Cluster, tmp_path: Path) -> Iterator[World]:
    with restarted_with(cluster, DRAControlPlaneController=True, DRAClaimsDraft=True):
        yield World(cluster, api, tmp_path)


def test_the_stories_run_from_their_yaml_to_a_ready_pod_and_nothing_is_left(world: World) -> None:
    world.api.made(PODS, read(POD_OF_THE_STORY))
    world.goes_on()
    assert world.is_ready("device-consumer"), world.agent.failures
    claim = world.api.get(f"{CLAIMS}/device-consumer-gpu").json
    assert world.gpus.prepared == {claim["metadata"]["uid"]}
    world.start_agent()
    assert world.api.delete(f"{PODS}/device-consumer").code == 200
    world.goes_on()
    assert (world.gpus.prepared, world.api.get(CLAIMS).json["items"]) == (set(), [])


def test_a_pod_with_the_list_is_applied_patched_and_read_back_as_it_was_written(world: World) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", **read(POD_OF_THE_STORY)}
    where = f"{PODS}/device-consumer?fieldManager=me"
    assert world.api.patch(where, pod, content_type=APPLY).code == 201
    again = world.api.patch(where, pod, content_type=APPLY)
    assert (again.code, again.json["spec"]["resources"]) == (200, pod["spec"]["resources"])
    labelled = world.api.patch(where, {"metadata": {"labels": {"a": "b"}}})
    assert (labelled.code, labelled.json["spec"]["resources"]) == (200, pod["spec"]["resources"])
    changed = world.api.patch(where, {"spec": {"resources": []}})
    assert (changed.code, "pod updates may not change fields" in changed.message) == (422, True)
    spec = {"containers": [{"name": "c", "image": "i"}], "resources": {"requests": {"cpu": "1"}}}
    level = {**pod, "metadata": {"name": "today"}, "spec": spec}
    assert world.api.made(PODS, level)["spec"]["resources"] == {"requests": {"cpu": "1"}}


def test_the_agent_of_another_node_may_not_read_the_claim(world: World) -> None:
    world.api.made(PODS, read(POD_OF_THE_STORY))
    world.goes_on()
    stranger = Api(token_of("other"))
    assert stranger.get(f"{CLAIMS}/device-consumer-gpu").code == 403


def test_with_the_gate_off_discovery_and_addresses_are_as_before(api: Api) -> None:
    groups = [one["name"] for one in api.get("/apis").json["groups"]]
    assert CLAIM.group not in groups
    assert api.get(CLAIMS).code == 404
    assert "podResources" not in api.get("/openapi/v3/api/v1").text
    refused = api.post(PODS, {"apiVersion": "v1", "kind": "Pod", **read(POD_OF_THE_STORY)})
    assert (refused.code, refused.json["reason"]) == (400, "BadRequest")
    assert "spec.resources" in refused.message


def test_with_the_gate_on_the_group_stands_behind_todays(world: World) -> None:
    groups = [one["name"] for one in world.api.get("/apis").json["groups"]]
    assert groups.index("resource.k8s.io") < groups.index("cdi.k8s.io")
    told = world.api.get(CDI).json["resources"]
    assert {"resourceplugins", "resourceclasses", "resourceclaims", "resourceclaims/status"} == {
        one["name"] for one in told
    }
