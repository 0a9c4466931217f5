"""Claims that are reserved for something besides a pod: every page says what it is, and links pods alone."""

from __future__ import annotations

import re

import pytest
from django.test import Client
from msgspec import structs

from claims.devices.cache import read_devices
from claims.kinds.resource_claims import ResourceClaim, ResourceClaimConsumerReference
from claims.models import Reservation
from manciple.per_process import reset_all
from tests.builders import make_node
from tests.claims.devices.scene import DRIVER, hold, publish, put, run, signed_in
from tests.dashboard import texts

pytestmark = pytest.mark.django_db

AT = f"{DRIVER}/node-1/gpu-0"
JOB = ResourceClaimConsumerReference(api_group="batch", resource="jobs", name="train", uid="job-1")


def hold_for_a_job(*, pods: tuple[str, ...] = ()) -> ResourceClaim:
    claim = hold(pods=[run(pod) for pod in pods])
    users = (*claim.status.reserved_for, JOB)
    return put(structs.replace(claim, status=structs.replace(claim.status, reserved_for=users)))


def seen(client: Client, path: str) -> tuple[str, str]:
    """(the page's markup, its words)."""
    answer = client.get(path)
    assert answer.status_code == 200
    markup = answer.content.decode().partition("<main")[2]
    return markup, re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", markup))


def test_a_device_its_claim_and_a_pod_say_that_a_job_uses_the_claim() -> None:
    put(make_node("node-1"))
    publish()
    hold_for_a_job()
    put(run("web", claims={"gpu": "training"}))
    expected = {
        f"/devices/d/{AT}": ("jobs.batch train", texts.FREE_AGAIN_DECIDED_BY_CONTROLLER("jobs.batch train")),
        "/claims/lab/training": (
            texts.HELD_FOR_A_PARTY("jobs.batch train"),
            texts.HELD_FOR_A_PARTY_WITHOUT_PODS("jobs.batch train"),
            texts.ONLY_ITS_OWNER_KNOWS_WHEN,
        ),
        "/pods/lab/web": (texts.CLAIM_USED_BY_OTHERS_TOO("jobs.batch train"),),
    }
    client = signed_in("admin", staff=True)
    for path, sentences in expected.items():
        markup, words = seen(client, path)
        assert [one for one in sentences if one not in words] == [], path
        assert "/pods/lab/train" not in markup, path
        assert texts.CLAIM_USED_BY_NO_POD not in words, path


def test_what_is_listed_the_log_and_the_index_tell_the_same() -> None:
    publish()
    read_devices()
    hold_for_a_job(pods=("web",))
    by_log = read_devices().held_by((DRIVER, "node-1", "gpu-0", "node-1"))
    reset_all()
    by_listing = read_devices().held_by((DRIVER, "node-1", "gpu-0", "node-1"))
    assert by_log == by_listing
    assert by_log[0].pods == ("web",)
    assert by_log[0].label == "lab/web, jobs.batch train"
    assert set(Reservation.objects.values_list("resource", flat=True)) == {"pods", "jobs.batch"}


def test_no_page_takes_a_job_for_a_pod_or_gives_advice_while_a_pod_uses_the_claim() -> None:
    put(make_node("node-1"))
    publish()
    hold_for_a_job(pods=("web",))
    client = signed_in("admin", staff=True)
    for path in ("/claims/lab/training", f"/drivers/{DRIVER}", "/timeline?view=table&range=24h", "/nodes/node-1"):
        markup, words = seen(client, path)
        assert "/pods/lab/train" not in markup, path
        assert "Pod train" not in words, path
        assert texts.ONLY_ITS_OWNER_KNOWS not in words, path
