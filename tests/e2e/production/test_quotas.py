"""Quotas hold for clients and controllers at once, also where processes are killed meanwhile.

The large version of this is the case `quotas` of bench/end_to_end.py.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial

import httpx
import pytest

from manciple.wire.base import ApiObject
from tests.builders import make_claim, make_pod, make_quota, make_request
from tests.e2e.api_client import Hands
from tests.e2e.processes import wait_for
from tests.e2e.production.installation import Installation
from tests.e2e.production.scene import GPU, Scene

pytestmark = [pytest.mark.e2e, pytest.mark.postgres]

CLIENTS = 12
CLAIMS, HELD = "count/resourceclaims.resource.k8s.io", f"manciple.dev/allocated.{GPU}"
ASKED = f"{GPU}.deviceclass.resource.k8s.io/devices"
LIMITS = {CLAIMS: "25", ASKED: "20", HELD: "2"}


def wishes() -> Iterator[ApiObject]:
    """More than the quota allows: claims, and pods for which the controller makes some."""
    for number in range(36):
        if number % 3:
            yield make_claim(f"claim-{number}", requests=[make_request(device_class=GPU)])
        else:
            yield pod(f"pod-{number}")


def pod(name: str) -> ApiObject:
    return make_pod(name, templates={"gpu": "one"}, termination_grace_period_seconds=0)


def make(installation: Installation, scene: Scene, wish: ApiObject) -> int:
    """Until it certainly is there, or refused; the status that says so."""
    api, in_doubt = Hands(installation.home / "kubeconfig"), False
    while True:
        try:
            answer = api.attempt(scene.place(wish.kind), scene.document(wish))
        except httpx.TransportError:
            in_doubt = True
        else:
            if answer.status_code == httpx.codes.CONFLICT and in_doubt:
                return 201
            if answer.status_code not in (429, 503, 504):
                return answer.status_code
            in_doubt = in_doubt or answer.status_code == 504
        time.sleep(0.1)


def within_limits(scene: Scene) -> dict[str, int]:
    """What the quota says is used."""
    status = scene.find("ResourceQuota", "most")["status"]
    used = {key: int(amount) for key, amount in status["used"].items()}
    assert all(used[key] <= int(LIMITS[key]) for key in used), status
    return used


def counted(scene: Scene) -> dict[str, int]:
    """The same by what there is."""
    claims = scene.all("ResourceClaim")
    held = [one for one in claims if one.get("status", {}).get("allocation")]
    return {CLAIMS: len(claims), ASKED: len(claims), HELD: len(held)}


@pytest.mark.long
def test_many_clients_and_controllers_exceed_no_quota_while_processes_are_killed(
    installation: Installation, scene: Scene
) -> None:
    scene.template("one", make_request(device_class=GPU))
    scene.make(make_quota(LIMITS), pod("first"), pod("second"))
    scene.runs("first", "second")
    with ThreadPoolExecutor(CLIENTS) as clients:
        making = [clients.submit(make, installation, scene, wish) for wish in wishes()]
        for number, done in enumerate(as_completed(making)):
            done.result()
            if number == 8:
                installation.processes["api"].kill()
                installation.processes["worker-1"].kill()
                installation.processes["worker-1"].start()
                installation.processes["api"].start()
    answers = Counter(done.result() for done in making)
    assert answers.keys() == {201, 403}, answers
    wait_for("the API to be back", partial(_answers, scene))
    full = {CLAIMS: 20, ASKED: 20, HELD: 2}
    scene.until("the quota to be used up", lambda: within_limits(scene) == full)
    assert counted(scene) == full
    # Room is given back: of those that were refused, and of those that wait for devices, one each gets its turn.
    scene.delete("Pod", "first")
    scene.gone("Pod", "first")
    scene.until("others to have its place", lambda: within_limits(scene) == full and counted(scene) == full)


def _answers(scene: Scene) -> bool:
    try:
        return bool(scene.find("ResourceQuota", "most"))
    except httpx.TransportError:
        return False
