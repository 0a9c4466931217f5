"""The kubelet's calls to a served driver: what it is asked, what it answers, what lies on the disk afterwards."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import httpx
import pytest

from claims.kinds.resource_claims import ResourceClaim
from nodeagent.drivers.protocol import ClaimIdentity, Failed, Prepared
from nodeagent.storage import Disk
from tests.nodeagent.machine import RecordingDriver
from tests.nodeagent.objects import DRIVER, NODE
from tests.nodeagent.serving.conftest import SECONDS, Node

FILE = f"k8s.{DRIVER}-claim_claim-c.json"


def test_it_registers_as_kubernetes_own_library_does(node: Node) -> None:
    kubelet = node.serve()

    assert (kubelet.info.type, kubelet.info.name) == ("DRAPlugin", DRIVER)
    assert kubelet.info.endpoint == str(node.plugin_dir / "dra.sock")
    assert [path.name for path in node.registrar_dir.iterdir()] == [f"{DRIVER}-reg.sock"]
    assert set(kubelet.info.supported_versions) >= {
        "v1.DRAPlugin",
        "v1beta1.DRAPlugin",
        "v1.DRAResourceHealth",
        "v1alpha1.DRAResourceHealth",
    }


def test_it_hears_how_its_registration_went(node: Node) -> None:
    kubelet = node.serve()
    (plugin,) = node.plugins

    kubelet.notify(registered=True)
    assert plugin.registered.is_set()
    kubelet.notify(registered=False, error="unsupported version")
    assert not plugin.registered.is_set()


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_a_claim_is_prepared_and_given_back(node: Node, version: str) -> None:
    node.claim("c", "gpu-0", "gpu-1")
    kubelet = node.serve()

    answer = kubelet.prepare("c", version=version)["claim-c"]

    assert answer.error == ""
    assert [(list(d.request_names), d.pool_name, d.device_name) for d in answer.devices] == [
        (["gpu0"], NODE, "gpu-0"),
        (["gpu1"], NODE, "gpu-1"),
    ]
    assert node.files() == [FILE]
    spec = json.loads((node.cdi_dir / FILE).read_text())
    named = [f"{spec['kind']}={device['name']}" for device in spec["devices"]]
    assert [name for device in answer.devices for name in device.cdi_device_ids] == named
    assert node.driver.held == {"claim-c"}

    assert kubelet.unprepare("c", version=version) == {"claim-c": ""}
    assert node.files() == []
    assert node.driver.held == set()


def test_the_request_is_named_without_the_subrequest(node: Node) -> None:
    node.claim("c", "gpu-0", request="gpu/large")

    answer = node.serve().prepare("c")["claim-c"]

    assert [list(device.request_names) for device in answer.devices] == [["gpu"]]


def test_each_share_of_a_device_is_told_by_its_id(node: Node) -> None:
    """Who asks a kubelet for a pod's devices finds there which share is the pod's."""
    shared = node.claim("c", "gpu-0", "gpu-0", "gpu-1")
    results = shared["status"]["allocation"]["devices"]["results"]
    for result, share in zip(results, ("share-a", "share-b"), strict=False):
        result["shareID"] = share
    node.api.put("resourceclaims", shared)

    answer = node.serve().prepare("c")["claim-c"]

    assert [(d.device_name, d.HasField("share_id"), d.share_id) for d in answer.devices] == [
        ("gpu-0", True, "share-a"),
        ("gpu-0", True, "share-b"),
        ("gpu-1", False, ""),
    ]


def test_asking_again_changes_nothing(node: Node) -> None:
    node.claim("c", "gpu-0")
    kubelet = node.serve()
    first = kubelet.prepare("c")["claim-c"]
    written = (node.cdi_dir / FILE).stat().st_ino

    assert kubelet.prepare("c")["claim-c"] == first
    assert (node.cdi_dir / FILE).stat().st_ino == written
    assert [kubelet.unprepare("c"), kubelet.unprepare("c")] == [{"claim-c": ""}, {"claim-c": ""}]


WRONG = {
    "it does not exist": ("missing", "claim-missing", "retrieve claim default/missing: "),
    "it is not allocated": ("unallocated", "claim-unallocated", "claim default/unallocated not allocated"),
    "another one has its name": ("c", "older", "claim default/c got replaced"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_claim_that_is_not_in_order_fails_and_the_others_are_prepared(node: Node, case: str) -> None:
    name, uid, reason = WRONG[case]
    node.claim("c", "gpu-0")
    node.claim("good", "gpu-1")
    unallocated = node.claim("unallocated")
    node.api.put("resourceclaims", {**unallocated, "status": {}})

    answers = node.serve().prepare(name, "good", **{name: uid})

    assert answers[uid].error.startswith(reason)
    assert answers["claim-good"].error == ""
    assert node.driver.held == {"claim-good"}


def test_an_api_that_is_away_fails_the_call_until_it_is_back(node: Node) -> None:
    node.claim("c", "gpu-0")
    kubelet = node.serve()

    def refuse(request: httpx.Request) -> None:
        raise httpx.ConnectError("connection refused", request=request)

    node.api.before = refuse
    assert "connection refused" in kubelet.prepare("c")["claim-c"].error
    node.api.before = lambda _request: None
    assert kubelet.prepare("c")["claim-c"].error == ""


def test_a_driver_that_fails_is_quoted(node: Node) -> None:
    node.claim("c", "gpu-0")
    kubelet = node.serve()
    node.driver.fail("prepare", times=1, reason="the fan is stuck")
    node.driver.fail("unprepare", times=1, reason="it is hot")

    assert kubelet.prepare("c")["claim-c"].error == "the fan is stuck"
    assert node.files() == []
    assert kubelet.prepare("c")["claim-c"].error == ""
    assert kubelet.unprepare("c") == {"claim-c": "it is hot"}
    assert node.files() == [FILE]
    assert kubelet.unprepare("c") == {"claim-c": ""}


class Careless(RecordingDriver):
    """Raises, or forgets a claim."""

    forgets = False

    def prepare(self, claims: Sequence[ResourceClaim]) -> Mapping[str, Prepared | Failed]:
        if not self.forgets:
            raise RuntimeError("out of order")
        return {}

    def unprepare(self, claims: Sequence[ClaimIdentity]) -> Mapping[str, Failed | None]:
        if not self.forgets:
            raise RuntimeError("out of order")
        return {}


def test_a_driver_that_raises_or_forgets_a_claim_has_failed(node: Node) -> None:
    node.claim("c", "gpu-0")
    driver = Careless()
    kubelet = node.serve(driver)

    assert kubelet.prepare("c")["claim-c"].error == "prepare resource claims: out of order"
    assert kubelet.unprepare("c") == {"claim-c": "unprepare resource claims: out of order"}
    driver.forgets = True
    assert kubelet.prepare("c")["claim-c"].error == "the driver did not answer for this claim"
    assert kubelet.unprepare("c") == {"claim-c": kubelet.prepare("c")["claim-c"].error}


class FullDisk(Disk):
    """Refuses to write while it is full."""

    full = True

    def fill(self, path: Path, content: bytes, *, flushed: bool, mode: int | None = None) -> None:
        if self.full:
            raise OSError(28, "No space left on device")
        super().fill(path, content, flushed=flushed, mode=mode)


def test_a_full_disk_fails_the_claim_until_there_is_room(node: Node) -> None:
    node.claim("c", "gpu-0")
    disk = FullDisk()
    kubelet = node.serve(disk=disk)

    assert "No space left on device" in kubelet.prepare("c")["claim-c"].error
    disk.full = False
    assert kubelet.prepare("c")["claim-c"].error == ""


def test_a_driver_started_anew_gives_back_what_the_one_before_prepared(node: Node) -> None:
    """It remembers nothing, and its claim is gone from the API: the file's name carries the uid."""
    node.claim("c", "gpu-0")
    node.serve().prepare("c")
    node.stop()
    node.api.delete("resourceclaims", "c")

    kubelet = node.serve(RecordingDriver())

    assert node.files() == [FILE]
    assert kubelet.unprepare("c") == {"claim-c": ""}
    assert node.files() == []


def test_what_a_kill_left_half_written_is_swept_and_what_others_write_is_not(node: Node) -> None:
    node.cdi_dir.mkdir()
    (node.cdi_dir / f".{FILE}.tmp").write_text("{")
    (node.cdi_dir / ".other.json.tmp").write_text("{")

    node.serve()

    assert node.files() == [".other.json.tmp"]


class Slow(RecordingDriver):
    """Waits in `prepare` until as many calls are in it as `together` says, or for a moment."""

    def __init__(self, together: int) -> None:
        super().__init__()
        self.inside = 0
        self.most = 0
        self.condition = threading.Condition()
        self.together = together

    def prepare(self, claims: Sequence[ResourceClaim]) -> Mapping[str, Prepared | Failed]:
        with self.condition:
            self.inside += 1
            self.most = max(self.most, self.inside)
            self.condition.notify_all()
            self.condition.wait_for(lambda: self.most >= self.together, SECONDS if self.together > 1 else 0.05)
            self.inside -= 1
        return super().prepare(claims)


@pytest.mark.parametrize(("serialize", "together"), [(True, 1), (False, 2)])
def test_calls_come_one_after_another_unless_the_driver_wants_them_side_by_side(
    node: Node, serialize: bool, together: int
) -> None:
    for name in ("a", "b", "c"):
        node.claim(name, "gpu-0")
    driver = Slow(together)
    kubelet = node.serve(driver, serialize=serialize)

    threads = [threading.Thread(target=kubelet.prepare, args=(name,)) for name in ("a", "b", "c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)

    assert (driver.most == 1) is serialize
    assert driver.held == {"claim-a", "claim-b", "claim-c"}
