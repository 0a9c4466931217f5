"""The pages of taint rules: the list, one, making, changing and deleting them."""

from __future__ import annotations

import re

import pytest
from django.test import Client
from msgspec import structs

from inventory.kinds.devices import DeviceTaintRule
from tests.builders import DRIVER, make_taint_rule
from tests.dashboard import texts
from tests.dashboard.browsing import admin, linked, undo, viewer, words
from tests.dashboard.claim_scene import wants
from tests.scheduling.cluster import Cluster

__all__ = ["admin", "viewer"]


def test_the_list_tells_what_each_rule_taints_and_how_far_it_is(viewer: Client, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=2)
    wants(cluster, "web")
    cluster.create(make_taint_rule("repair", pool="node-1"))
    cluster.create(make_taint_rule("nothing-yet", device="gpu-9", effect="None"))
    text = words(viewer, "/taint-rules")
    assert texts.TAINT_RULE_ROW("repair", "node-1 example.com/broken:NoSchedule 2 1") in text
    assert "nothing-yet Device gpu-9 example.com/broken:None 0 0" in text
    assert "nothing-yet" not in words(viewer, "/taint-rules?effect=NoSchedule")
    assert "repair" in words(viewer, "/taint-rules?q=pool+node-1")


def test_a_dry_run_says_whom_it_would_evict_and_is_then_made_real_and_taken_back(
    admin: Client, cluster: Cluster
) -> None:
    cluster.with_gpus("node-1", each=1)
    wants(cluster, "web")
    query = {
        "name": "repair",
        "pool": "node-1",
        "key": "example.com/broken",
        "effect": "None",
        "driver": "",
        "device": "",
    }
    text = said_by(admin, "/taint-rules/new", query)
    assert texts.TAINT_RULE_ONLY_COUNTS("1 pod") in text
    assert cluster.all(DeviceTaintRule) == []
    assert admin.post("/taint-rules/new", query).headers["Location"] == "/taint-rules/repair"
    assert texts.TAINT_RULE_CREATED("repair") in words(admin, "/taint-rules/repair")
    made = cluster.get(DeviceTaintRule, "repair")
    change = query | {"effect": "NoExecute", "version": made.metadata.resource_version}
    effect = admin.get("/taint-rules/repair/change", change).context["effect"]
    assert linked(effect.consequences)[0] == ["default/web"]
    admin.post("/taint-rules/repair/change", change)
    assert cluster.get(DeviceTaintRule, "repair").spec.taint.effect == "NoExecute"
    undo(admin, "/taint-rules/repair")
    assert cluster.get(DeviceTaintRule, "repair").spec.taint.effect == "None"


def said_by(client: Client, path: str, query: dict[str, str]) -> str:
    return words(client, f"{path}?{'&'.join(f'{name}={value}' for name, value in query.items())}")


NEAR = {"driver": ("gpu.exmaple.com", "gpu.example.com"), "pool": ("nod-1", "node-1"), "device": ("gpu0", "gpu-0")}


@pytest.mark.parametrize("word", NEAR)
def test_a_rule_that_names_nothing_says_what_was_probably_meant(admin: Client, cluster: Cluster, word: str) -> None:
    cluster.with_gpus("node-1", each=1)
    written, meant = NEAR[word]
    form = {"name": "repair", "key": "example.com/broken", "effect": "NoExecute", word: written}
    (line,) = admin.get("/taint-rules/new", form).context["effect"].consequences
    assert any(written in one and one.endswith(f"{meant}?") for one in line.sentences)
    (line, *_) = admin.get("/taint-rules/new", form | {word: meant}).context["effect"].consequences
    assert line.sentences == ("1 device: node-1/gpu-0.",)


def test_a_rule_that_is_wrong_or_was_changed_meanwhile_is_not_written(admin: Client, cluster: Cluster) -> None:
    form = {"name": "No Name", "key": "no blanks", "effect": "NoSchedule", "device": "UPPER"}
    page = admin.post("/taint-rules/new", form).content.decode()
    assert set(re.findall(r'id="(r-\w+-error)"', page)) >= {"r-key-error", "r-name-error"}
    assert cluster.all(DeviceTaintRule) == []
    made = cluster.create(make_taint_rule("repair", pool="node-1"))
    taint = structs.replace(made.spec.taint, value="theirs")
    cluster.update(structs.replace(made, spec=structs.replace(made.spec, taint=taint)))
    form = {"pool": "node-1", "key": "example.com/broken", "value": "mine", "effect": "NoSchedule"}
    answer = admin.post("/taint-rules/repair/change", form | {"version": made.metadata.resource_version})
    assert answer.status_code == 422
    assert "Nothing was changed" in answer.content.decode()
    assert cluster.get(DeviceTaintRule, "repair").spec.taint.value == "theirs"


def test_a_rule_is_deleted_after_a_preview_and_comes_back(admin: Client, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=1)
    made = cluster.create(make_taint_rule("repair", driver=DRIVER))
    wants(cluster, "web")
    effect = admin.get("/taint-rules/repair/delete").context["preview"].effect
    assert linked(effect.consequences)[-1] == ["default/web"]
    assert admin.post("/taint-rules/repair/delete", {"uid": "another"}).status_code == 409
    admin.post("/taint-rules/repair/delete", {"uid": made.metadata.uid})
    assert cluster.all(DeviceTaintRule) == []
    undo(admin, "/taint-rules")
    back = cluster.get(DeviceTaintRule, "repair")
    assert back.spec.device_selector == made.spec.device_selector
    assert back.metadata.uid != made.metadata.uid
