"""The worked example of the documentation: short, whole, and it does what the text says, inside the agent too."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from claims.kinds.resource_claims import ResourceClaim
from nodeagent.drivers.protocol import ClaimIdentity, Driver, Failed
from nodeagent.node.catalog import DriverEntry, create_driver
from tests.nodeagent.machine import Machine
from tests.nodeagent.objects import NODE, claim, opaque, pod

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "docs" / "examples" / "scratch_driver.py"
NAME = "scratch.example.com"


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    monkeypatch.syspath_prepend(str(EXAMPLE.parent))
    settings = {"root": str(tmp_path / "scratch"), "slots": 2}
    yield create_driver(DriverEntry(driver="scratch_driver:ScratchDriver", settings=settings), node_name=NODE)
    sys.modules.pop("scratch_driver", None)


def test_the_example_is_short_and_stands_in_the_documentation_word_for_word() -> None:
    text = EXAMPLE.read_text()

    assert len(text.splitlines()) < 60
    assert f"```python\n{text}```" in (ROOT / "docs" / "how-to" / "drivers.md").read_text()


def test_its_devices_are_published_under_the_node(driver: Driver) -> None:
    (pool,) = driver.pools()

    assert (driver.name, pool.name, [device.name for device in pool.devices]) == (NAME, NODE, ["slot-0", "slot-1"])


def test_a_pod_gets_its_directory_and_what_it_may_read_of_it(driver: Driver, tmp_path: Path) -> None:
    machine = Machine(tmp_path / "node", drivers=[driver])
    machine.start()
    config = (opaque("FromClaim", {"mountPath": "/data"}, driver=NAME),)
    machine.api.put("resourceclaims", claim("of-p", "slot-1", pods=("uid-p",), driver=NAME, config=config))
    machine.api.put("pods", pod("p", claims={"gpus": "of-p"}))
    machine.settle()

    place = tmp_path / "scratch" / "slot-1" / "claim-of-p"
    assert place.is_dir()
    assert machine.environment("p")["SCRATCH_DIR"] == "/data"
    files = machine.cdi_files()
    mounts = [
        mount for file in files.values() for d in file["devices"] for mount in d["containerEdits"].get("mounts", ())
    ]
    assert {"hostPath": str(place), "containerPath": "/data", "options": ["rbind", "rw"]} in mounts
    (told,) = [mount["hostPath"] for mount in mounts if mount["containerPath"] != "/data"]
    objects = [msgspec.json.decode(line) for line in Path(told).read_text().splitlines()]
    assert objects[0]["requests"][0]["devices"][0]["attributes"] == {"medium": {"string": "disk"}}

    machine.api.delete("pods", "p", grace=0)
    machine.settle()

    assert machine.cdi_files() == {}
    assert not place.exists()
    assert not Path(told).exists()


def test_a_restart_of_the_agent_keeps_what_the_pod_has(driver: Driver, tmp_path: Path) -> None:
    machine = Machine(tmp_path / "node", drivers=[driver])
    machine.start()
    machine.api.put("resourceclaims", claim("of-p", "slot-0", pods=("uid-p",), driver=NAME))
    machine.api.put("pods", pod("p", claims={"gpus": "of-p"}))
    machine.settle()
    before = machine.cdi_files()

    machine.restart()
    machine.settle()

    assert machine.cdi_files() == before
    assert len(before) == 2


def prepared(driver: Driver, **fields: object) -> object:
    one = msgspec.convert(claim("c", "slot-0", driver=NAME, **fields), ResourceClaim)  # type: ignore[arg-type]  # a table's
    return driver.prepare([one])["claim-c"]


def test_a_configuration_that_it_cannot_read_is_refused_with_the_reason(driver: Driver) -> None:
    answer = prepared(driver, config=(opaque("FromClaim", {"mountpath": "/x"}, driver=NAME),))

    assert answer == Failed("its configuration is not valid: Object contains unknown field `mountpath`")


def test_a_device_that_is_gone_is_refused(driver: Driver) -> None:
    one = msgspec.convert(claim("c", "slot-7", driver=NAME), ResourceClaim)

    assert driver.prepare([one]) == {"claim-c": Failed(f"device {NODE}/slot-7 no longer exists on this node")}


def test_a_disk_that_refuses_fails_the_claim_only(driver: Driver, tmp_path: Path) -> None:
    (tmp_path / "scratch").write_text("no directory")

    answer = prepared(driver)

    assert isinstance(answer, Failed)
    assert "Not a directory" in answer.reason


def test_it_says_when_its_disk_is_missing(driver: Driver, tmp_path: Path) -> None:
    assert {one.health for one in driver.health()} == {"Unhealthy"}
    (tmp_path / "scratch").mkdir()
    assert {one.health for one in driver.health()} == {"Healthy"}


def test_giving_back_what_was_never_prepared_is_fine(driver: Driver) -> None:
    assert driver.unprepare([ClaimIdentity("nobody", "default", "c")]) == {"nobody": None}
