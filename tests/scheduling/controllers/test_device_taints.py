"""NoExecute taints of devices evict who does not tolerate them: when, told how, and what rules say of it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from msgspec import structs

from claims import device_taints as taints
from claims.controllers import taint_eviction
from claims.controllers.taint_eviction import CONDITION
from claims.device_taints import end_of_patience
from claims.kinds.pods import Pod
from inventory.kinds.devices import DeviceTaint, DeviceTaintRule, DeviceToleration
from inventory.kinds.taint_rules import TaintRules
from manciple.store.event_log import latest_revision
from manciple.wire.base import condition_of, timestamp
from tests.builders import (
    make_claim,
    make_device,
    make_device_taint,
    make_pod,
    make_request,
    make_slice,
    make_taint_rule,
    make_template,
)
from tests.scheduling.cluster import Cluster, with_spec

KEY = "example.com/broken"
FOR_EVER = DeviceToleration(key=KEY, operator="Exists", effect="NoExecute")
NOW = datetime.fromisoformat("2026-11-23T10:00:00+00:00")


def for_seconds(seconds: int, **fields: Any) -> DeviceToleration:
    return structs.replace(FOR_EVER, toleration_seconds=seconds, **fields)


@pytest.mark.parametrize(
    ("tolerations", "seconds"),
    {
        "none": ((), 0),
        "for ever": ((FOR_EVER,), None),
        "for a while": ((for_seconds(5),), 5),
        "less than no time": ((for_seconds(-5),), 0),
        "the shortest counts": ((for_seconds(50), for_seconds(5)), 5),
        "for a while, and for ever": ((for_seconds(5), FOR_EVER), None),
        "of another key": ((for_seconds(5, key="other"),), 0),
        "of another effect": ((structs.replace(FOR_EVER, effect="NoSchedule"),), 0),
        "everything, whatever its effect": ((DeviceToleration(operator="Exists"),), None),
        "seconds count for NoExecute only": ((for_seconds(5, effect=""),), None),
        "beyond all dates": ((for_seconds(2**62),), 100 * 365 * 86400),
    }.values(),
)
def test_how_long_a_taint_is_tolerated(tolerations: tuple[DeviceToleration, ...], seconds: int | None) -> None:
    taint = DeviceTaint(key=KEY, value="x", effect="NoExecute", time_added="2026-11-23T09:59:00Z")
    since = NOW - timedelta(minutes=1)
    expected = None if seconds is None else since + timedelta(seconds=seconds)
    assert end_of_patience(taint, tolerations, NOW) == expected


# In a cluster ---------------------------------------------------------------------------------------------------------


def run(cluster: Cluster, name: str, **request: Any) -> Pod:
    """A pod that runs, with a claim of its own for one device."""
    cluster.create(make_claim(name, requests=[make_request(**request)]))
    cluster.create(make_pod(name, claims={"gpu": name}))
    cluster.settle()
    pod = cluster.pod(name)
    assert pod.spec.node_name
    return cluster.update(structs.replace(pod, status=structs.replace(pod.status, phase="Running")))


def taint_now(cluster: Cluster, name: str = "repair", effect: str = "NoExecute", **selector: str) -> DeviceTaintRule:
    return cluster.create(make_taint_rule(name, effect=effect, time_added=timestamp(cluster.now), **selector))


def evict(cluster: Cluster) -> None:
    """What the controller does now, and all that follows from it."""
    taint_eviction.reconcile(cluster.now)
    cluster.settle()


def leaving(cluster: Cluster) -> set[str]:
    return {pod.metadata.name for pod in cluster.all(Pod) if pod.metadata.deletion_timestamp is not None}


def told(cluster: Cluster, name: str = "repair") -> tuple[str, str, str]:
    condition = condition_of(cluster.get(DeviceTaintRule, name).status.conditions, CONDITION)
    assert condition is not None
    return condition.status, condition.reason, condition.message


def test_a_pod_leaves_with_a_condition_and_an_event(cluster: Cluster) -> None:
    cluster.with_gpus()
    run(cluster, "web")
    taint_now(cluster)
    evict(cluster)
    pod = cluster.pod("web")
    assert pod.metadata.deletion_grace_period_seconds == 30
    (disruption,) = (one for one in pod.status.conditions if one.type == "DisruptionTarget")
    assert (disruption.status, disruption.reason, disruption.message) == (
        "True",
        "DeletionByDeviceTaintManager",
        "Device Taint manager: deleting due to NoExecute taint",
    )
    (event,) = cluster.events("DeviceTaintManagerEviction")
    assert (event.type, event.message, event.source.component) == (
        "Normal",
        "Marking for deletion",
        "device-taint-eviction-controller",
    )
    before = latest_revision()
    taint_eviction.reconcile(cluster.now)
    assert latest_revision() == before


def test_a_pod_without_grace_is_gone_and_its_claim_free(cluster: Cluster) -> None:
    cluster.with_gpus()
    cluster.create(make_claim("web"))
    cluster.create(make_pod("web", claims={"gpu": "web"}, termination_grace_period_seconds=0))
    cluster.settle()
    taint_now(cluster)
    evict(cluster)
    assert cluster.find(Pod, "web") is None
    assert cluster.claim("web").status.allocation is None


def test_a_taint_that_the_driver_publishes_evicts_as_well(cluster: Cluster) -> None:
    cluster.with_gpus()
    for name in ("one", "two"):
        run(cluster, name)
    broken = make_device("gpu-0", taints=[make_device_taint(effect="NoExecute"), make_device_taint("a", effect="None")])
    cluster.update(with_spec(cluster.slice(), devices=(broken, make_device("gpu-1"))))
    evict(cluster)
    assert leaving(cluster) == {"one"}


def test_who_tolerates_a_taint_for_a_while_stays_so_long(cluster: Cluster) -> None:
    cluster.with_gpus(each=3)
    run(cluster, "impatient")
    run(cluster, "patient", tolerations=(for_seconds(60),))
    run(cluster, "stubborn", tolerations=(FOR_EVER,))
    taint_now(cluster)
    evict(cluster)
    assert leaving(cluster) == {"impatient"}
    cluster.later(59)
    evict(cluster)
    assert leaving(cluster) == {"impatient"}
    cluster.later(1)
    evict(cluster)
    assert leaving(cluster) == {"impatient", "patient"}


@pytest.mark.parametrize("effect", ["NoSchedule", "None"])
def test_other_effects_evict_nobody(cluster: Cluster, effect: str) -> None:
    cluster.with_gpus()
    run(cluster, "web")
    taint_now(cluster, effect=effect)
    evict(cluster)
    assert leaving(cluster) == set()


def test_a_rule_that_goes_in_time_evicts_nobody(cluster: Cluster) -> None:
    cluster.with_gpus()
    run(cluster, "web", tolerations=(for_seconds(5),))
    rule = taint_now(cluster)
    evict(cluster)
    cluster.delete(rule)
    cluster.later(10)
    evict(cluster)
    assert leaving(cluster) == set()


def test_who_may_stay_after_all_is_told_so_once(cluster: Cluster) -> None:
    cluster.with_gpus(each=3)
    for name in ("web", "done", "deleted"):
        run(cluster, name, tolerations=(for_seconds(60),))
    rule = taint_now(cluster)
    evict(cluster)
    other = taint_eviction.Evictions()  # of a worker that saw it, and has its turn later
    other.sentenced = dict(taint_eviction.evictions.value.sentenced)
    cluster.finish("done")
    cluster.delete(cluster.pod("deleted"))
    cluster.delete(rule)
    cluster.later(2)
    evict(cluster)
    (event,) = cluster.events("DeviceTaintManagerEviction")
    assert (event.involved_object.name, event.type, event.message) == ("web", "Normal", "Cancelling deletion")
    taint_eviction.evictions.value.sentenced = other.sentenced
    before = latest_revision()
    for _ in range(2):
        cluster.later(2)
        evict(cluster)
    assert latest_revision() == before


def test_a_rule_that_goes_between_look_and_eviction_evicts_nobody(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.with_gpus()
    run(cluster, "web")
    rule = taint_now(cluster)
    tell = taint_eviction._tell

    def meanwhile(*args: Any, **kwargs: Any) -> int:
        found = tell(*args, **kwargs)
        cluster.delete(rule)
        return found

    monkeypatch.setattr(taint_eviction, "_tell", meanwhile)
    evict(cluster)
    assert leaving(cluster) == set()


def test_every_pod_of_a_shared_claim_leaves_and_no_other(cluster: Cluster) -> None:
    cluster.with_gpus(each=2)
    run(cluster, "web")
    run(cluster, "other")
    cluster.create(make_pod("mate", claims={"gpu": "web"}))
    cluster.create(make_pod("waits", claims={"gpu": "nope"}))
    cluster.settle()
    cluster.finish("other")
    cluster.settle()
    taint_now(cluster, device="gpu-0")
    taint_now(cluster, "again", device="gpu-0")
    evict(cluster)
    assert leaving(cluster) == {"web", "mate"}


def test_pods_are_evicted_from_claims_that_were_made_for_them(cluster: Cluster) -> None:
    cluster.with_gpus()
    cluster.create(make_template("one-gpu"))
    cluster.create(make_pod("web", templates={"gpu": "one-gpu"}))
    cluster.settle()
    taint_now(cluster, pool="node-1")
    evict(cluster)
    assert leaving(cluster) == {"web"}


# What rules say of it -------------------------------------------------------------------------------------------------


def test_a_rule_tells_how_far_it_is(cluster: Cluster) -> None:
    cluster.with_gpus()
    run(cluster, "one")
    run(cluster, "two", tolerations=(for_seconds(5),))
    rule = taint_now(cluster)
    evict(cluster)
    assert told(cluster) == ("True", "PodsPendingEviction", "2 pods need to be evicted in 1 namespace.")
    assert rule.metadata.generation == 1
    cluster.later(6)
    evict(cluster)
    assert told(cluster)[2] == "2 pods need to be evicted in 1 namespace."
    cluster.later(4)
    evict(cluster)
    assert told(cluster) == ("False", "Completed", "2 pods evicted since starting the controller.")


def test_what_was_evicted_is_still_counted_after_a_restart(cluster: Cluster) -> None:
    cluster.with_gpus()
    run(cluster, "one")
    taint_now(cluster)
    evict(cluster)
    cluster.later(10)
    evict(cluster)
    taint_eviction.evictions.reset()
    cluster.delete(cluster.pod("one"))
    run(cluster, "two", tolerations=(for_seconds(60),))
    cluster.later(10)
    evict(cluster)
    assert told(cluster) == (
        "True",
        "PodsPendingEviction",
        "1 pod needs to be evicted in 1 namespace. 1 pod evicted since starting the controller.",
    )


def test_a_rule_that_has_nothing_to_do_says_so_and_is_left_alone(cluster: Cluster) -> None:
    taint_now(cluster)
    taint_now(cluster, "softly", effect="NoSchedule")
    before = latest_revision()
    evict(cluster)
    assert latest_revision() == before, "who made the rule may go on with what the API answered"
    cluster.later(3)
    evict(cluster)
    assert told(cluster) == ("False", "NotStarted", "")
    assert told(cluster, "softly") == ("False", "OtherEffect", "Eviction only happens for the NoExecute effect.")
    before = latest_revision()
    for _ in range(3):
        cluster.later(60)
        evict(cluster)
    assert latest_revision() == before


def test_a_rule_without_effect_tells_what_it_would_do(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", "node-2")
    cluster.label_namespace("team-b", {})
    for name in ("one", "two"):
        run(cluster, name)
    cluster.create(make_claim("three", namespace="team-b"))
    cluster.create(make_pod("three", namespace="team-b", claims={"gpu": "three"}))
    run(cluster, "four", tolerations=(FOR_EVER,))
    taint_now(cluster, effect="None")
    cluster.later(3)
    evict(cluster)
    status, reason, message = told(cluster)
    assert (status, reason) == ("False", "NoEffect")
    assert message == (
        "4 published devices selected. 4 allocated devices selected. 3 pods would be evicted in 2 different "
        "namespaces if the effect was NoExecute. This information will not be updated again. Recreate the "
        "DeviceTaintRule to trigger an update."
    )
    assert leaving(cluster) == set()


def test_a_rule_whose_effect_changes_is_told_anew(cluster: Cluster) -> None:
    cluster.with_gpus()
    run(cluster, "one")
    rule = taint_now(cluster, effect="NoSchedule")
    evict(cluster)
    taint = structs.replace(rule.spec.taint, effect="NoExecute")
    cluster.update(with_spec(cluster.get(DeviceTaintRule, "repair"), taint=taint))
    evict(cluster)
    assert told(cluster) == ("True", "PodsPendingEviction", "1 pod needs to be evicted in 1 namespace.")
    condition = condition_of(cluster.get(DeviceTaintRule, "repair").status.conditions, CONDITION)
    assert condition is not None
    assert condition.observed_generation == 2
    assert leaving(cluster) == {"one"}


# What it costs --------------------------------------------------------------------------------------------------------


def test_many_rules_are_asked_about_together(cluster: Cluster) -> None:
    cluster.with_gpus(each=8)
    for number in range(8):
        run(cluster, f"pod-{number}", tolerations=(FOR_EVER,))
    counts = []
    for number in range(8):
        taint_now(cluster, f"rule-{number}", driver="gpu.example.com", pool="node-1", device=f"gpu-{number}")
        evict(cluster)
        with CaptureQueriesContext(connection) as queries:
            taint_eviction.reconcile(cluster.now)
        counts.append(len(queries))
    assert counts[7] == counts[1] <= 6


def test_without_taints_it_costs_next_to_nothing(cluster: Cluster) -> None:
    cluster.with_gpus()
    run(cluster, "web")
    evict(cluster)
    with CaptureQueriesContext(connection) as queries:
        taint_eviction.reconcile(cluster.now)
    assert len(queries) <= 2


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What all pods were asked about; from two tainted devices on, that happens less often than the controller runs."""
    monkeypatch.setattr(taints, "ASKED_ABOUT_A_SECOND", 1)
    asked: list[object] = []
    ask = taints.Survey._all_threatened

    def counted(survey: taints.Survey, rules: TaintRules, now: datetime) -> list[taints.ThreatenedPod]:
        asked.append(rules)
        return ask(survey, rules, now)

    monkeypatch.setattr(taints.Survey, "_all_threatened", counted)
    return asked


def test_thousands_who_stay_are_asked_about_less_often_while_no_taint_changes(
    cluster: Cluster, asked: list[object]
) -> None:
    cluster.with_gpus(each=4)
    for name, seconds in {"one": 2, "two": 600, "three": 600}.items():
        run(cluster, name, tolerations=(for_seconds(seconds),))
    taint_now(cluster)
    evict(cluster)
    assert len(asked) == 1
    cluster.create(make_pod("unconcerned"))
    cluster.create(make_slice(node="node-2", devices=[make_device("gpu-0")]))
    cluster.later(2)
    evict(cluster)
    assert len(asked) == 1
    assert leaving(cluster) == {"one"}
    evict(cluster)
    assert len(asked) == 2  # who has left is not tried again and again
    evict(cluster)
    assert len(asked) == 2
    cluster.later(2)
    evict(cluster)
    assert len(asked) == 3


def device_of(cluster: Cluster, name: str) -> str:
    (device,) = cluster.devices(cluster.claim(name))
    return device.rpartition("/")[2]


@pytest.mark.parametrize("by", ["driver", "rule"])
def test_a_new_taint_is_noticed_at_once_however_many_are_there(cluster: Cluster, asked: list[object], by: str) -> None:
    cluster.with_gpus(each=4)
    for name in ("one", "two", "three"):
        run(cluster, name, tolerations=(for_seconds(600),))
        taint_now(cluster, name, device=device_of(cluster, name))
    run(cluster, "healthy")
    device = device_of(cluster, "healthy")
    evict(cluster)
    assert not leaving(cluster)
    if by == "rule":
        taint_now(cluster, "new", device=device)
    else:
        published = cluster.slice()
        taint = make_device_taint(effect="NoExecute")
        broken = (
            structs.replace(one, taints=(taint,)) if one.name == device else one for one in published.spec.devices
        )
        cluster.update(with_spec(published, devices=tuple(broken)))
    evict(cluster)
    assert leaving(cluster) == {"healthy"}
    assert len(asked) == 2
