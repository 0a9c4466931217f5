"""Claims that are reserved for something besides a pod: every page says what it is, and links pods alone."""

from __future__ import annotations

import re

import pytest
from msgspec import structs

from claims.devices.cache import read_devices
from claims.kinds.resource_claims import ResourceClaim, ResourceClaimConsumerReference
from claims.models import Reservation
from manciple.store import follower
from tests.builders import make_node
from tests.claims.devices.scene import DRIVER, hold, publish, put, run, signed_in
from tests.scheduling.pages import texts

pytestmark = pytest.mark.django_db

AT = f"{DRIVER}/node-1/gpu-0"
JOB = ResourceClaimConsumerReference(api_group="batch", resource="jobs", name="train", uid="job-1")


def hold_for_a_job(*, pods: tuple[str, ...] = ()) -> ResourceClaim:
    claim = hold(pods=[run(pod) for pod in pods])
    users = (*claim.status.reserved_for, JOB)
    return put(structs.replace(claim, status=structs.replace(claim.status, reserved_for=users)))


def seen(path: str) -> tuple[str, str]:
    """(the page's markup, its words)."""
    answer = signed_in("admin", staff=True).get(path)
    assert answer.status_code == 200
    markup = answer.content.decode().partition("<main")[2]
    return markup, re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", markup))


def test_a_device_says_that_a_job_uses_its_claim() -> None:
    publish()
    hold_for_a_job()
    markup, words = seen(f"/devices/d/{AT}")
    assert "jobs.batch train" in words
    assert texts.FREE_AGAIN_DECIDED_BY_CONTROLLER("jobs.batch train") in words
    assert "/pods/lab/train" not in markup
    assert texts.CLAIM_USED_BY_NO_POD not in words


def test_what_is_listed_the_log_and_the_index_tell_the_same() -> None:
    publish()
    read_devices()
    hold_for_a_job(pods=("web",))
    by_log = read_devices().held_by((DRIVER, "node-1", "gpu-0", "node-1"))
    follower.forget()
    by_listing = read_devices().held_by((DRIVER, "node-1", "gpu-0", "node-1"))
    assert by_log == by_listing
    assert by_log[0].pods == ("web",)
    assert by_log[0].label == "lab/web, jobs.batch train"
    assert set(Reservation.objects.values_list("resource", flat=True)) == {"pods", "jobs.batch"}


@pytest.mark.parametrize(
    "path", ["/claims/lab/training", f"/drivers/{DRIVER}", "/timeline?view=table&range=24h", "/nodes/node-1"]
)
def test_no_page_takes_a_job_for_a_pod(path: str) -> None:
    put(make_node("node-1"))
    publish()
    hold_for_a_job(pods=("web",))
    markup, words = seen(path)
    assert "/pods/lab/train" not in markup
    assert "Pod train" not in words


def test_a_pod_says_who_else_uses_its_claim() -> None:
    publish()
    hold_for_a_job()
    put(run("web", claims={"gpu": "training"}))
    markup, words = seen("/pods/lab/web")
    assert texts.CLAIM_USED_BY_OTHERS_TOO("jobs.batch train") in words
    assert "/pods/lab/train" not in markup


def test_a_step_says_what_the_claim_was_reserved_for() -> None:
    publish()
    hold_for_a_job()
    _, words = seen("/claims/lab/training")
    assert texts.HELD_FOR_A_PARTY("jobs.batch train") in words


def test_a_claim_that_only_a_job_uses_says_who_can_give_it_back() -> None:
    put(make_node("node-1"))
    publish()
    hold_for_a_job()
    _, words = seen("/claims/lab/training")
    assert texts.HELD_FOR_A_PARTY_WITHOUT_PODS("jobs.batch train") in words
    assert texts.ONLY_ITS_OWNER_KNOWS_WHEN in words


def test_a_claim_that_a_pod_uses_too_needs_no_advice() -> None:
    put(make_node("node-1"))
    publish()
    hold_for_a_job(pods=("web",))
    _, words = seen("/claims/lab/training")
    assert texts.ONLY_ITS_OWNER_KNOWS not in words
