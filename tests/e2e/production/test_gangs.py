"""Gangs by annotation, in production mode."""

from __future__ import annotations

import pytest

from claims.causes.causes import GroupDoesNotFit
from claims.causes.messages import message
from claims.kinds.pod_groups import GANG, GANG_SIZE, REQUIRED_TOPOLOGY
from tests.builders import make_devices, make_pod
from tests.e2e.production.scene import Scene

pytestmark = [pytest.mark.e2e, pytest.mark.postgres]

HOST = "kubernetes.io/hostname"


def test_a_gang_that_fits_whole_nowhere_holds_nothing_until_one_node_holds_all_of_it(scene: Scene) -> None:
    scene.device_class()
    scene.template("one", scene.request())
    for node in ("node-1", "node-2"):
        scene.publish(*make_devices(2), node=node)
    said = {GANG: "train", GANG_SIZE: "3", REQUIRED_TOPOLOGY: HOST}
    for at in range(3):
        scene.make(make_pod(f"w-{at}", templates={"gpu": "one"}, meta={"annotations": said}))
    fits = GroupDoesNotFit("train", placed=2, wanted=3, annotated=True, where=f"{HOST}=node-")
    scene.waits("w-0", message(fits))
    scene.claim("late", scene.request())
    scene.pod("late", "late")
    scene.bound("late")  # it is in nobody's way
    assert [scene.node_of(f"w-{at}") for at in range(3)] == ["", "", ""]
    scene.publish(*make_devices(3), node="node-3")
    scene.bound("w-0", "w-1", "w-2")
    assert {scene.node_of(f"w-{at}") for at in range(3)} == {"node-3"}
