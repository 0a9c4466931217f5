"""The pages of quotas: what they tell, to whom, and what other limits would refuse."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import urlencode

from django.test import Client
from pytest_django.fixtures import Settings

from claims.kinds.pods import Pod
from claims.kinds.quotas import ResourceQuota
from dashboard.capacity.quotas import PodOutcome
from manciple.access.kinds.roles import PolicyRule
from scheduling.models import UsageSample
from scheduling.state.fair_share import WEIGHT
from tests.builders import CLASS, make_class, make_namespace, make_pod, make_quota, make_request, make_template
from tests.dashboard import texts
from tests.dashboard.browsing import admin, said, signed_in, viewer, words
from tests.dashboard.people.test_roles import bind, make_role, user
from tests.scheduling.cluster import Cluster

__all__ = ["admin", "viewer"]

DEVICES = f"{CLASS}.deviceclass.resource.k8s.io/devices"
PAGE = "/quotas/lab/most"


def fill(cluster: Cluster, most: str = "2") -> None:
    """Of two devices that the quota allows one is held, one waited for; a pod comes too late for its claim."""
    cluster.with_gpus("node-1", each=1)
    cluster.create(make_namespace("lab"))
    cluster.create(make_quota({DEVICES: most, "pods": "5"}, namespace="lab"))
    cluster.create(make_template("one-gpu", namespace="lab", requests=[make_request()]))
    for name in ("first", "second", "late"):
        cluster.create(make_pod(name, namespace="lab", templates={"gpu": "one-gpu"}))
        cluster.settle()
        cluster.later(1)


def tried(**hard: str) -> str:
    return f"{PAGE}?{urlencode({'try': '1', **hard})}"


def pods_of(outcomes: Sequence[PodOutcome]) -> list[str]:
    return [one.waiting.pod.metadata.name for one in outcomes]


def limits(devices: str, pods: str = "5") -> dict[str, str]:
    return {f"hard.{DEVICES}": devices, "hard.pods": pods}


def test_a_quota_is_shown_with_what_is_used_held_and_refused_where_one_looks_for_it(
    viewer: Client, cluster: Cluster
) -> None:
    fill(cluster)
    text = words(viewer, "/quotas")
    assert texts.QUOTA_ROW("most lab", f"{CLASS} 2 of 2", f"3 of 5 {CLASS} 1 2 pods 1 pod") in text
    assert "most" in words(viewer, "/quotas?ns=lab")
    assert texts.NO_QUOTA_IN("elsewhere", 1) in words(viewer, "/quotas?ns=elsewhere")

    # its own page
    text = words(viewer, PAGE)
    assert texts.QUOTA_CLASSES(f"{CLASS} 1 1 2 2") in text
    _, refused = viewer.get(PAGE).content.decode().split('id="refused"')
    assert "FailedResourceClaimCreation" in refused
    assert re.search(f"most.* 2 of 2 .*{DEVICES}", refused, re.DOTALL)
    assert 'href="/pods/lab/late"' in refused
    assert "/pods/lab/second" not in refused
    assert "most" in words(viewer, f"{PAGE}?tab=history")

    # where it refuses
    assert f'href="{PAGE}"' in viewer.get("/namespaces/lab").content.decode()
    assert "most refuses 1 pod" in words(viewer, "/namespaces/lab")
    assert texts.REFUSED_BY_QUOTA_NAMED("most") in words(viewer, "/pods/lab/late")
    assert texts.REFUSED_BY_QUOTA not in words(viewer, "/pods/lab/second")
    assert f'href="{PAGE}"' in viewer.get("/find?q=mos").content.decode()

    # once it has its claim
    cluster.delete(cluster.get(Pod, "second", "lab"))
    cluster.settle()
    assert texts.QUOTA_REFUSES_NONE in words(viewer, PAGE)


def test_of_other_namespaces_nothing_is_told(cluster: Cluster) -> None:
    fill(cluster)
    cluster.create(make_namespace("other"))
    nora, mia = signed_in("nora", "namespace:other"), signed_in("mia", "namespace:lab")
    assert "most" not in words(nora, "/quotas")
    assert nora.get("/find?q=most").context["total"] == 0
    assert nora.get(PAGE).status_code == 404
    assert nora.get("/quotas/other/none").status_code == 404
    assert "most lab" in words(mia, "/quotas")
    assert mia.get(PAGE).status_code == 200


# What other limits would mean -----------------------------------------------------------------------------------------


def test_other_limits_tell_what_is_above_them_who_would_be_refused_and_who_gets_a_claim(
    viewer: Client, cluster: Cluster
) -> None:
    fill(cluster)
    page = viewer.get(tried(**limits("1", "")))
    text, rehearsal = said(page.content.decode()), page.context["rehearsal"]
    assert f"{CLASS}: 2 → 1" in text
    assert ": 5 → no limit" in text
    assert texts.QUOTA_EXCEEDED_NOW(f"{CLASS}: 2 of 1") in text
    assert pods_of(rehearsal.refused) == ["late"]
    assert texts.QUOTA_WOULD_REFUSE(f"late Devices of {CLASS}", 1, "2 of 1") in text
    assert pods_of(rehearsal.again) == ["second"]
    assert texts.QUOTA_WOULD_REFUSE(f"second Devices of {CLASS}", 1, "1 of 1") in text
    assert cluster.get(ResourceQuota, "most", "lab").spec.hard == {DEVICES: "2", "pods": "5"}

    # higher ones
    text = words(viewer, tried(**limits("3")))
    assert texts.QUOTA_CHANGE_HARMLESS("late") in text
    assert texts.QUOTA_UNCHANGED in words(viewer, tried(**limits("2")))

    # a further one
    claims = "count/resourceclaims.resource.k8s.io"
    text = words(viewer, tried(**limits("9"), key=claims, value="1"))
    assert "ResourceClaims: no limit → 1" in text
    assert "ResourceClaims: 2 of 1" in text
    assert texts.QUOTA_WOULD_REFUSE("late ResourceClaims", 1, "2 of 1") in text


def test_what_one_may_not_list_is_not_counted_for_them(admin: Client, viewer: Client, cluster: Cluster) -> None:
    cluster.create(make_quota({DEVICES: "2", "pods": "5"}, namespace="lab"))
    asked = tried(**limits("2"), key="count/secrets", value="0")
    assert texts.QUOTA_MAY_NOT_LIST in words(viewer, asked)
    assert texts.QUOTA_MAY_NOT_LIST not in words(admin, asked)


WRONG = {
    "never": (limits("never"), "write an amount such as"),
    "less than nothing": (limits("-1"), "must be greater than or equal to 0"),
    "no such key": ({**limits("2"), "key": "devices", "value": "1"}, "must be a standard resource for quota"),
    "no amount": ({**limits("2"), "key": "pods"}, "Enter an amount"),
    "no key": ({**limits("2"), "value": "1"}, "Enter what is limited"),
}


def test_what_is_wrong_stands_at_its_input(admin: Client, cluster: Cluster) -> None:
    cluster.create(make_quota({DEVICES: "2", "pods": "5"}, namespace="lab"))
    for case, (typed, why) in WRONG.items():
        rehearsed, answer = admin.get(tried(**typed)).content.decode(), admin.post(f"{PAGE}/change", typed)
        assert why in said(rehearsed), case
        assert f'action="{PAGE}/change"' not in rehearsed.partition('id="rehearsal"')[2], case
        assert answer.status_code == 422, case
        assert why in said(answer.content.decode()), case


def test_who_may_update_quotas_sets_them_and_the_waiting_pod_gets_its_claim(admin: Client, cluster: Cluster) -> None:
    fill(cluster)
    assert f'action="{PAGE}/change"' in admin.get(tried(**limits("3"))).content.decode().partition('id="rehearsal"')[2]
    assert admin.post(f"{PAGE}/change", limits("3")).headers["Location"] == PAGE
    assert texts.QUOTA_SET("most") in words(admin, PAGE)
    assert cluster.get(ResourceQuota, "most", "lab").spec.hard == {DEVICES: "3", "pods": "5"}
    cluster.settle()
    assert f"Devices of {CLASS} 3 of 3" in words(admin, PAGE)
    assert admin.get(f"{PAGE}/change").headers["Location"] == PAGE


def test_a_role_in_the_namespace_alone_allows_it(cluster: Cluster) -> None:
    cluster.create(make_quota({DEVICES: "2", "pods": "5"}, namespace="lab"))
    mia = signed_in("mia", "namespace:lab")
    rule = PolicyRule(verbs=("update",), api_groups=("",), resources=("resourcequotas",))
    make_role("quotas", "lab", rule)
    bind("quotas", "lab", user("mia"), to="Role")
    assert mia.post(f"{PAGE}/change", limits("3")).status_code == 302
    assert cluster.get(ResourceQuota, "most", "lab").spec.hard[DEVICES] == "3"


# What is held ---------------------------------------------------------------------------------------------------------


HELD = f"manciple.dev/allocated.{CLASS}"


def crowd(cluster: Cluster, **hard: str) -> None:
    """Three pods want a device each, and the quota lets one be held."""
    cluster.with_gpus("node-1", each=4)
    cluster.create(make_namespace("lab", labels={WEIGHT: "3"}))
    cluster.create(make_quota({HELD: "1", **hard}, namespace="lab"))
    cluster.create(make_template("one-gpu", namespace="lab", requests=[make_request()]))
    for name in ("first", "second", "third"):
        cluster.create(make_pod(name, namespace="lab", templates={"gpu": "one-gpu"}))
        cluster.settle()
        cluster.later(1)


def test_what_may_be_held_is_shown_with_who_waits_for_it_and_would_wait_with_other_limits(
    viewer: Client, cluster: Cluster, settings: Settings
) -> None:
    crowd(cluster, **{f"{HELD}_capacity.memory": "40Gi", f"{HELD}_counter.slices": "7"})
    text = words(viewer, "/quotas")
    assert texts.QUOTA_OF_DEVICES(CLASS, "1 of 1") in text
    assert texts.QUOTA_OF_CAPACITY(CLASS, "0 of 40Gi") in text
    assert texts.QUOTA_OF_COUNTERS(CLASS, "0 of 7") in text
    assert "2 pods 2 pods" in text
    text = words(viewer, PAGE)
    assert texts.QUOTA_REFUSED_PODS("2 second", f"{HELD} 1 of 1", 1) in text
    assert "weighs" not in text
    verdict = viewer.get("/pods/lab/second").context["why"].verdict
    assert re.search(rf"`most`.* 1 of 1 `{HELD}`", verdict.title + verdict.text)

    # with other limits
    page = viewer.get(tried(**{f"hard.{HELD}": "2"}))
    assert pods_of(page.context["rehearsal"].held) == ["third"]
    assert texts.WOULD_WAIT_FOR_DEVICES in said(page.content.decode())
    assert viewer.get(tried(**{f"hard.{HELD}": "3"})).context["rehearsal"].held == []
    text = words(viewer, tried(**{f"hard.{HELD}": "1", "key": f"{HELD}_memory", "value": "1"}))
    assert "must be manciple.dev/allocated.CLASS" in text

    # with fair share
    settings.SCHEDULER_FAIR_SHARE = True
    UsageSample.objects.create(at=cluster.now, device_class=CLASS, counts={"free": 3, "reserved": 1}, waiting=0)
    assert "lab weighs 3, holds 25%" in words(viewer, "/quotas")
    assert texts.FAIR_SHARE("lab", 3, f"25% of {CLASS}") in words(viewer, PAGE)


def test_a_quota_is_made_for_the_devices_of_a_class(admin: Client, cluster: Cluster) -> None:
    cluster.create(make_namespace("team-a"))
    cluster.create(make_class("gpu"))
    asked = {"namespace": "team-a", "name": "gpus", "device_class": "gpu", "devices": "8"}
    assert 'href="/quotas?ns=team-a#new"' in admin.get("/namespaces/team-a").content.decode()
    assert admin.post("/quotas", asked)["Location"] == "/quotas/team-a/gpus"
    assert "gpus" in words(admin, "/quotas?ns=team-a")
    refused = admin.post("/quotas", asked | {"name": "more", "devices": "many"})
    assert refused.status_code == 422
    assert "aria-invalid" in refused.content.decode()
    taken = admin.post("/quotas", asked)
    assert taken.status_code == 422
    assert "already exists" in taken.content.decode()


def test_a_new_quota_is_for_a_namespace_and_a_class_that_there_are(admin: Client, cluster: Cluster) -> None:
    cluster.create(make_namespace("team-a"))
    cluster.create(make_class("gpu-hopper"))
    asked = {"namespace": "team-a", "name": "gpus", "device_class": "gpu-hopper", "devices": "8"}
    for field, wrong, meant in (("namespace", "teem-a", "team-a"), ("device_class", "gpu-hoper", "gpu-hopper")):
        answer = admin.post("/quotas", asked | {field: wrong})
        assert answer.status_code == 422
        assert f"Did you mean {meant}?" in answer.context["form"].errors[field][0]
    assert admin.post("/quotas", asked | {"device_class": "later", "sure": "on"}).status_code == 302
