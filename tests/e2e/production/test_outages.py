"""kill -9 of agent, workers, API, Redis and PostgreSQL, one after the other, each for two minutes: every page, every
10 s, compared with what is so.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.api_client import Hands
from tests.e2e.outages import Case, Pages, Subject, no_redis, no_worker, node_lost, well
from tests.e2e.processes import wait_for
from tests.e2e.production.installation import NODES, Installation
from tests.e2e.production.scene import Scene
from tests.services import Server

pytestmark = [pytest.mark.e2e, pytest.mark.postgres, pytest.mark.long]

#: How often, and how many times, the pages are looked at during each outage.
EVERY, LOOKS = 10.0, 12
#: Seconds within which they must say so: the grace period of a Lease, and a sweep; a worker's heartbeat.
WITHIN = 90.0


@pytest.fixture
def pages(installation: Installation) -> Iterator[Pages]:
    """Read without TLS."""
    own = installation.env
    installation.env = {**own, "MANCIPLE_SECURE_COOKIES": "0"}
    installation.restart_control_plane()
    told = installation.manage("invite", "watcher", "--administrator", "--url", f"http://{installation.web}")
    yield Pages(f"http://{installation.web}", next(word for word in told.split() if "/welcome/" in word))
    installation.env = own
    installation.restart_control_plane()


@pytest.fixture
def subject(scene: Scene, api: Hands) -> Subject:
    """A pod on the first node, which runs with a GPU of its own."""
    scene.claim("train")
    scene.pod("train", "train", node_selector={"kubernetes.io/hostname": NODES[0]})
    api.wait_pods("Ready", scene.namespace, "train")
    claim = api.found("ResourceClaim", "train", scene.namespace)
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    slices = api.listed("/apis/resource.k8s.io/v1/resourceslices", fieldSelector=f"spec.nodeName={NODES[0]}")
    return Subject(
        namespace=scene.namespace, pod="train", claim="train", node=NODES[0], driver=result["driver"],
        pool=result["pool"], device=result["device"], devices=sum(len(one["spec"]["devices"]) for one in slices),
    )  # fmt: skip


def test_every_page_says_what_is_so_while_each_part_is_away(
    installation: Installation, postgresql: Server, redis_server: Server, pages: Pages, subject: Subject
) -> None:
    pages.agree("all is well", well(subject))
    parts: dict[str, tuple[tuple[str, ...], Case]] = {
        "the agent": ((NODES[0],), node_lost(subject)),
        "the workers": (("worker-1", "worker-2"), no_worker(subject)),
    }
    for what, (names, case) in parts.items():
        for name in names:
            installation.processes[name].kill()
        pages.agree(f"{what} has gone", case, within=WITHIN, looks=LOOKS, every=EVERY)
        for name in names:
            installation.start(name, list(installation.processes[name].command))
        pages.agree(f"{what} is back", well(subject), within=WITHIN)

    redis_server.kill()
    pages.agree("Redis has gone", no_redis(subject), within=WITHIN, looks=LOOKS, every=EVERY)
    redis_server.start()
    pages.agree("Redis is back", well(subject), within=WITHIN)

    installation.processes["api"].kill()
    for _ in range(LOOKS):
        assert not pages.answer()
    installation.start("api", list(installation.processes["api"].command))
    installation.wait_for_the_api()
    pages.agree("the API is back", well(subject), within=WITHIN)

    postgresql.kill()
    wait_for("no page to be shown without the database", lambda: not pages.answer())
    postgresql.start()
    pages.agree("PostgreSQL is back", well(subject), within=WITHIN)
