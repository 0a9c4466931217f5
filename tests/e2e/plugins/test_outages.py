"""kill -9 of the driver and of the agent, one after the other: what every page says, compared with what is so.

With short intervals here; with those of an installation, and the other parts, in `production/test_outages.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.outages import Pages, Subject, driver_lost, node_lost, well
from tests.e2e.plugins.cluster import NODE, System, start_system
from tests.e2e.plugins.scene import Scene
from tests.e2e.processes import wait_for

pytestmark = pytest.mark.e2e

#: Seconds without a renewed Lease, between renewals, and without a driver.
GRACE, RENEWALS, DRIVER_GRACE = 5.0, 1.0, 3.0


@pytest.fixture
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    system = start_system(
        tmp_path_factory.mktemp("o"),
        env={"MANCIPLE_NODE_GRACE_SECONDS": str(GRACE)},
        options=("--lease-seconds", str(RENEWALS)),
        grace=DRIVER_GRACE,
    )
    yield system
    if system.agent.process.running:
        system.agent.stop()
    assert system.up.process.stop() == 0


def test_every_page_follows_a_driver_and_an_agent_that_die(
    impatient: System, tmp_path: Path, drivers_folder: Path
) -> None:
    scene = Scene(impatient, tmp_path)
    driver = scene.driver(options=("--descriptors", str(drivers_folder / "descriptors"))).registered()
    scene.published(driver)
    scene.pod_using("train", driver)
    scene.runs("train")
    subject = Subject(
        namespace=scene.namespace, pod="train", claim="train", node=NODE, driver=driver.name, pool=NODE,
        device="gpu-0", devices=2,
    )  # fmt: skip
    pages = Pages(impatient.up.web, impatient.up.first_link)
    pages.agree("all is well", well(subject))

    driver.kill()
    wait_for("the slices to be removed", lambda: not scene.slices(driver))
    pages.agree("the driver has gone", driver_lost(subject), looks=2, every=2.0)
    driver.start().registered()
    scene.published(driver)
    pages.agree("the driver is back", well(subject))

    impatient.agent.kill()
    pages.agree("the agent has gone", node_lost(subject), looks=3, every=2.0)
    impatient.agent.start(grace=DRIVER_GRACE)
    pages.agree("the agent is back", well(subject))
