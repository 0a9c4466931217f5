"""Acting on devices, many at once: what an act would do, doing it, taking it back, and who may."""

from __future__ import annotations

import csv
import io
import re
from typing import Any
from urllib.parse import urlencode

import pytest
from django.http import QueryDict
from django.test import Client

from claims.devices.cache import read_devices
from dashboard.inventory.devices.queries import Chosen, read_chosen
from inventory.kinds.devices import DeviceTaintRule
from manciple.api import verbs
from manciple.wire.errors import Invalid
from tests.builders import (
    DRIVER,
    make_class,
    make_device_taint,
    make_devices,
    make_node,
    make_slice,
    make_taint_rule,
)
from tests.dashboard import texts
from tests.dashboard.browsing import admin, signed_in, undo, viewer, words
from tests.dashboard.claim_scene import wants
from tests.scheduling.cluster import Cluster

__all__ = ["admin", "viewer"]


def at(*places: str) -> str:
    return "\n".join(f"{DRIVER}/{place}" for place in places)


def rules(cluster: Cluster) -> list[tuple[str | None, str | None, str, str]]:
    found = [(rule.spec.device_selector, rule.spec.taint) for rule in cluster.all(DeviceTaintRule)]
    return sorted((one.pool, one.device, taint.key, taint.effect) for one, taint in found if one)


# Draining, cordoning, tainting ---------------------------------------------------------------------------------------


def test_a_drain_tells_who_is_evicted_and_where_they_would_fit_then_does_it_and_is_undone(
    admin: Client, cluster: Cluster
) -> None:
    cluster.with_gpus("node-1", "node-2", each=1)
    wants(cluster, "first")
    wants(cluster, "second")
    wants(cluster, "late")
    assert cluster.devices(cluster.claim("second")) == ["node-2/gpu-0"]
    text = words(admin, f"/devices/act/drain?at={at('node-1/gpu-0')}")
    assert "Drain node-1/gpu-0?" in text
    assert texts.EVICTED_AT_ONCE("1 pod", "default/first") in text
    assert texts.WOULD_WAIT_IF_CREATED_AGAIN("1 pod", "default/first") in text
    assert rules(cluster) == []
    form = {"at": at("node-1/gpu-0"), "sure": "1", "value": "fan", "back": "/nodes/node-1"}
    assert admin.post("/devices/act/drain", form).headers["Location"] == "/nodes/node-1"
    assert rules(cluster) == [("node-1", "gpu-0", "manciple.dev/drain", "NoExecute")]
    done = texts.EVICTED_FOR_GOOD(texts.DEVICES_DRAINED("node-1/gpu-0"))
    assert done in words(admin, "/nodes/node-1")
    assert texts.UNDONE("1 change", done) in undo(admin, "/nodes/node-1")
    assert rules(cluster) == []
    assert "Undo" not in words(admin, "/nodes/node-1")


def test_a_pool_of_which_all_is_chosen_is_one_rule_and_says_so(admin: Client, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", "node-2", each=3)
    tiles = "&".join(f"tile={DRIVER}/node-1/gpu-{number}" for number in range(3))
    text = words(admin, f"/devices/act/cordon?{tiles}&tile={DRIVER}/node-2/gpu-1")
    assert "2 DeviceTaintRules are made" in text
    assert texts.LATER_DEVICES_TAINTED_TOO("node-1") in text
    assert texts.FREE_DEVICES_CLOSED("4 devices") in text
    text = at(*(f"node-1/gpu-{number}" for number in range(3)), "node-2/gpu-1")
    admin.post("/devices/act/cordon", {"at": text, "sure": "1"})
    assert rules(cluster) == [
        ("node-1", None, "manciple.dev/cordon", "NoSchedule"),
        ("node-2", "gpu-1", "manciple.dev/cordon", "NoSchedule"),
    ] or rules(cluster)[1][:2] == ("node-2", "gpu-1")


WRONG = {
    "a key that is none": ({"key": "no blanks", "effect": "NoSchedule"}, "t-key-error"),
    "a value that is none": ({"key": "fine", "value": "no blanks", "effect": "NoSchedule"}, "t-value-error"),
    "an effect that is none": ({"key": "fine", "effect": "Sometimes"}, "t-effect-error"),
}


def test_what_is_wrong_with_the_taint_stands_at_its_field(admin: Client, cluster: Cluster) -> None:
    cluster.with_gpus()
    for phrase, (typed, place) in WRONG.items():
        answer = admin.post("/devices/act/taint", {"at": at("node-1/gpu-0"), "sure": "1", **typed})
        assert answer.status_code == 422, phrase
        assert set(re.findall(r'id="(t-\w+-error)"', answer.content.decode())) == {place}, phrase
    assert rules(cluster) == []


def test_rules_created_before_a_refused_one_are_taken_back(
    admin: Client, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.with_gpus("node-1", each=3)
    create, written = verbs.create, list[object]()

    def create_one(*arguments: Any, dry_run: bool, **options: Any) -> Any:
        if written and not dry_run:
            raise Invalid("no more")
        made = create(*arguments, dry_run=dry_run, **options)
        written.extend([] if dry_run else [made])
        return made

    monkeypatch.setattr(verbs, "create", create_one)
    form = {"at": at("node-1/gpu-0", "node-1/gpu-1"), "sure": "1"}
    assert admin.post("/devices/act/cordon", form).status_code == 422
    assert len(written) == 1
    assert rules(cluster) == []


# Who may, and what they may know -------------------------------------------------------------------------------------


# Untainting ----------------------------------------------------------------------------------------------------------


def test_untaint_deletes_the_rules_of_the_chosen_alone_and_tells_what_stays(admin: Client, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=2)
    cluster.create(make_taint_rule("narrow", device="gpu-0"))
    cluster.create(make_taint_rule("wide", driver=DRIVER))
    wants(cluster, "waiting")
    text = words(admin, f"/devices/act/untaint?at={at('node-1/gpu-0')}")
    assert texts.RULES_DELETED("1 rule", "narrow") in text
    assert texts.RULE_TAINTS_OTHERS("1 other device", "wide") in text
    assert "would start" not in text, "the other rule stays"
    admin.post("/devices/act/untaint", {"at": at("node-1/gpu-0"), "sure": "1"})
    assert [rule.metadata.name for rule in cluster.all(DeviceTaintRule)] == ["wide"]
    text = words(admin, f"/devices/act/untaint?at={at('node-1/gpu-0')}&at={at('node-1/gpu-1')}")
    assert texts.WOULD_START_NOW("1 pod", "default/waiting") in text
    undo(admin, "/devices")
    assert {rule.metadata.name for rule in cluster.all(DeviceTaintRule)} == {"narrow", "wide"}


def test_a_drivers_own_taint_cannot_be_taken_off_and_without_devices_nothing_is_asked(
    admin: Client, cluster: Cluster
) -> None:
    cluster.create(make_class())
    cluster.create(make_node())
    tainted = make_device_taint(key="example.com/hot")
    cluster.create(make_slice(devices=make_devices(1, taints=(tainted,))))
    text = words(admin, f"/devices/act/untaint?at={at('node-1/gpu-0')}")
    assert texts.TAINTED_BY_DRIVER in text
    assert texts.NOT_POSSIBLE_WITHOUT_OWN_RULES in text
    answer = admin.get("/devices/act/drain?at=gpu.example.com/node-1/none", follow=True)
    assert texts.NO_DEVICE_CHOSEN in answer.content.decode()
    assert admin.get("/devices/act/dance").status_code == 404


# Taking back ---------------------------------------------------------------------------------------------------------


def test_what_somebody_changed_since_is_not_taken_back(admin: Client, cluster: Cluster) -> None:
    cluster.with_gpus()
    admin.post("/devices/act/cordon", {"at": at("node-1/gpu-0"), "sure": "1"})
    page = admin.get("/devices").content.decode()
    (offer,) = re.findall(r'name="offer" value="([^"]+)"', page)
    (rule,) = cluster.all(DeviceTaintRule)
    other = signed_in("olga", staff=True)
    form = {
        "driver": DRIVER,
        "key": "example.com/mine",
        "effect": "NoSchedule",
        "version": rule.metadata.resource_version,
    }
    assert other.post(f"/taint-rules/{rule.metadata.name}/change", form).status_code == 302
    answer = admin.post("/undo", {"offer": offer, "back": "/devices"}, follow=True)
    assert texts.NOT_UNDONE in answer.content.decode()
    assert len(cluster.all(DeviceTaintRule)) == 1
    assert 'name="offer"' not in admin.get("/devices").content.decode()
    form = {"at": at("node-1/gpu-1"), "sure": "1", "back": "https://elsewhere.example/"}
    assert admin.post("/devices/act/cordon", form).headers["Location"] == "/devices", "a forged address leads nowhere"
    admin.post("/undo", {"dismiss": "1", "back": "/devices"})
    assert 'name="offer"' not in admin.get("/devices").content.decode(), "an offer that is dismissed is gone"
    assert len(cluster.all(DeviceTaintRule)) == 2


# Selector and file ---------------------------------------------------------------------------------------------------


def test_the_file_has_a_line_for_each_device_and_no_formula(admin: Client, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=2)
    wants(cluster, "first")
    rows = list(csv.DictReader(io.StringIO(admin.get("/devices.csv").content.decode())))
    assert [row["device"] for row in rows] == ["gpu-0", "gpu-1"]
    assert (rows[0]["claim"], rows[0]["pods"], rows[1]["state"]) == ("first", "first", "Free")
    (row,) = csv.DictReader(io.StringIO(admin.post("/devices.csv", {"at": at("node-1/gpu-1")}).content.decode()))
    assert row["device"] == "gpu-1"
    listed = words(admin, "/devices/act/list?matching=state%3Dfree")
    assert ("node-1 / gpu-0" in listed, "node-1 / gpu-1" in listed) == (False, True), "filters choose too"
    snapshot = read_devices()
    chosen = Chosen(snapshot=snapshot, keys=tuple(one.key for one in snapshot.candidates))
    again = read_chosen(QueryDict(urlencode({"at": chosen.text})), snapshot, {})
    assert (again.keys, again.gone) == (chosen.keys, ()), "the preview sends addresses that are known again"
    assert 'device.driver == "gpu.example.com"' in words(admin, f"/devices/act/selector?at={at('node-1/gpu-0')}")
