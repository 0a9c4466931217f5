"""What `manciple why` says about pods and claims of another cluster."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from claims.causes import causes
from claims.causes.causes import Cause, NoNodeFits
from manciple.mirror import explaining
from manciple.mirror.commands import command_of
from manciple.mirror.failures import RemoteFailure
from manciple.mirror.sources import CLAIM
from tests.manciple.mirror.clusters import (
    NAMESPACE,
    Objects,
    claim,
    cluster,
    explained,
    holding,
    node,
    pod,
    quota,
    slice_of,
    template,
)

pytestmark = pytest.mark.django_db

EVERY_DEVICE = ("n1/gpu-0", "n1/gpu-1", "n2/gpu-0", "n2/gpu-1")


def train(**asked: object) -> tuple[tuple[str, dict[str, object]], ...]:
    return ("resourceclaims", claim("gpus", **asked)), ("pods", pod("train", "gpus"))  # type: ignore[arg-type]


#: phrase -> (the cluster, the cause, what its next step speaks of)
SCENARIOS: dict[str, tuple[Callable[[], Objects], type[Cause], str]] = {
    "every device is held": (lambda: cluster(*holding(*EVERY_DEVICE), *train()), causes.DevicesInUse, "Wait until"),
    "it needs more than a node has": (lambda: cluster(*train(count=3)), causes.NotVisible, "Ask for 2"),
    "no device passes its selector": (
        lambda: cluster(*train(selector='device.attributes["gpu.example.com"].model == "B200"')),
        causes.NotSelected,
        "selector",
    ),
    "its class does not exist": (lambda: cluster(*train(of_class="tpu")), causes.ClassMissing, "Use class `gpu`"),
    "its claim does not exist": (
        lambda: cluster(("pods", pod("train", "gpus"))),
        causes.ClaimNotFound,
        "Create claim `gpus`",
    ),
    "its template does not exist": (
        lambda: cluster(("pods", pod("train", template="one-gpu"))),
        causes.ClaimNotCreated,
        "Create template `one-gpu`",
    ),
    "a quota refuses its claim": (
        lambda: cluster(
            ("resourceclaimtemplates", template("one-gpu")),
            ("resourcequotas", quota("few", claims=1)),
            ("resourceclaims", claim("other", pod="other")),
            ("pods", pod("train", template="one-gpu")),
        ),
        causes.QuotaUsedUp,
        "Raise `count/resourceclaims.resource.k8s.io` of quota `few` to 2",
    ),
    "it has a scheduling gate": (
        lambda: cluster(("pods", pod("train", schedulingGates=[{"name": "example.com/wait"}]))),
        causes.Gated,
        "Remove gate `example.com/wait`",
    ),
    "it has several scheduling gates": (
        lambda: cluster(("pods", pod("train", schedulingGates=[{"name": "a.com/one"}, {"name": "b.com/two"}]))),
        causes.Gated,
        "Remove gates `a.com/one` and `b.com/two`",
    ),
    "no node has enough cpu": (lambda: cluster(("pods", pod("train", cpu="100"))), NoNodeFits, ""),
    "other pods take the cpu": (
        lambda: cluster(
            *(("pods", pod(f"busy-{one}", on=one, cpu="60", namespace="team-b")) for one in ("n1", "n2")),
            ("pods", pod("train", cpu="10")),
        ),
        NoNodeFits,
        "Wait until",
    ),
    "every node is cordoned": (
        lambda: {**cluster(*train()), "nodes": [node("n1", unschedulable=True), node("n2", unschedulable=True)]},
        NoNodeFits,
        "Uncordon",
    ),
    "its devices are tainted": (
        lambda: {
            **cluster(*train()),
            "resourceslices": [
                slice_of("n1", 2, taints=[{"key": "example.com/broken", "value": "yes", "effect": "NoSchedule"}])
            ],
        },
        causes.Tainted,
        "",
    ),
}


@pytest.mark.parametrize("phrase", SCENARIOS)
def test_it_says_why_a_pod_waits_and_what_to_do(phrase: str) -> None:
    objects, cause, step = SCENARIOS[phrase]
    judged, _ = explained(objects())
    assert not judged.unknown
    assert judged.explained.state == "Waiting"
    assert isinstance(judged.explained.cause, cause)
    assert step in explaining.next_step(judged)
    text = "\n".join(explaining.lines(judged))
    assert explaining.reason(judged) in text
    assert "0/2 nodes" in text  # what the cluster's own scheduler says


@pytest.mark.parametrize("phrase", SCENARIOS)
def test_what_a_command_keeps_in_memory_is_explained_as_what_the_log_has(phrase: str) -> None:
    objects, _, _ = SCENARIOS[phrase]
    answers = [explained(objects(), kept=one)[0] for one in (True, False)]
    kept, read = map(explaining.document, answers)
    for one in (kept, read):
        one["scheduler"].pop("seconds")
    assert kept == read


def test_nothing_is_advised_that_only_manciple_has() -> None:
    for objects, _, _ in SCENARIOS.values():
        judged, _ = explained(objects())
        text = "\n".join(explaining.lines(judged))
        for ours in ("What if", "node agent", "the page of", "manciple", "manage.py"):
            assert ours not in text


def test_offers_are_listed_with_where_the_pod_would_start() -> None:
    judged, _ = explained(cluster(*holding("n1/gpu-0", "n2/gpu-0"), *train(count=2)))
    assert isinstance(judged.explained.cause, causes.DevicesInUse)
    assert [step.node != "" for step in judged.advice.steps] == [True, True, True]
    text = "\n".join(explaining.lines(judged))
    assert "Ask for 1 device" in text
    assert "Create claim `gpus` and the pod again" in text
    assert "class selector 1: device.driver" in text
    assert "team-b/holder-0" in text
    assert "4  published" in text
    assert "2  free" in text


def test_a_pod_that_fits_was_not_placed_by_its_scheduler() -> None:
    judged, _ = explained(cluster(*train()))
    said = explaining.reason(judged)
    assert judged.explained.state == "Schedulable"
    assert "It fits on `n1`, `n2`; `default-scheduler` has not placed it for" in said
    assert "default-scheduler" in explaining.next_step(judged)


def test_pods_of_another_scheduler_are_explained_and_its_name_is_told() -> None:
    objects = cluster(
        ("resourceclaims", claim("gpus", count=3)), ("pods", pod("train", "gpus", schedulerName="volcano"))
    )
    judged, _ = explained(objects)
    text = "\n".join(explaining.lines(judged))
    assert isinstance(judged.explained.cause, causes.NotVisible)
    assert "`volcano` places it" in text
    assert "volcano says" in text
    assert explaining.document(judged)["scheduler"]["name"] == "volcano"


def test_a_running_pod_says_where_and_with_what() -> None:
    judged, _ = explained(cluster(*holding("n1/gpu-1", namespace=NAMESPACE)), "holder-0")
    text = "\n".join(explaining.lines(judged))
    assert judged.explained.state == "Bound"
    assert "`n1`" in text
    assert f"{'gpu.example.com'}/n1/gpu-1" in text
    assert "scheduler" not in explaining.document(judged)


def test_a_bound_pod_says_what_its_containers_wait_for() -> None:
    objects = cluster(*holding("n1/gpu-1", namespace=NAMESPACE))
    waiting = {"reason": "CreateContainerError", "message": "no such device\x1b[2J"}
    objects["pods"][0]["status"] = {
        "phase": "Pending",
        "containerStatuses": [{"name": "c", "ready": False, "state": {"waiting": waiting}}],
    }
    judged, _ = explained(objects, "holder-0")
    assert "Container c: CreateContainerError: no such device" in "\n".join(explaining.lines(judged))


@pytest.mark.parametrize(("count", "state"), [(1, "Schedulable"), (3, "Waiting")])
def test_a_claim_is_explained_too(count: int, state: str) -> None:
    judged, _ = explained(cluster(("resourceclaims", claim("gpus", count=count))), "gpus", source=CLAIM)
    assert judged.explained.state == state
    assert explaining.lines(judged)


def test_a_claim_that_holds_devices_says_for_whom() -> None:
    judged, _ = explained(cluster(*holding("n1/gpu-0", namespace=NAMESPACE)), "holder-0", source=CLAIM)
    assert "holder-0" in explaining.reason(judged)
    assert judged.explained.state == "Allocated"


def test_what_does_not_exist_is_an_error() -> None:
    with pytest.raises(RemoteFailure, match='"train" not found'):
        explained(cluster())


def test_a_device_that_two_claims_hold_is_held() -> None:
    """Kubernetes' API does not refuse it."""
    twice = [*holding("n1/gpu-0"), ("resourceclaims", claim("second", "n1/gpu-0", namespace="team-c"))]
    judged, _ = explained(cluster(*twice, *holding("n2/gpu-0", "n2/gpu-1", namespace="team-d"), *train(count=2)))
    assert isinstance(judged.explained.cause, causes.DevicesInUse)


def test_without_dynamic_resource_allocation_pods_are_explained_as_their_scheduler_sees_them() -> None:
    judged, found = explained(cluster(("pods", pod("train", "gpus", cpu="100"))), dra="")
    assert isinstance(judged.explained.cause, NoNodeFits)
    assert not judged.gaps
    assert found.states["resourceclaims.resource.k8s.io"].reach == "absent"


def test_what_the_server_has_off_is_not_advised() -> None:
    """kube-scheduler evicts pods for devices from 1.37 on."""
    objects = cluster(
        *holding(*EVERY_DEVICE), ("resourceclaims", claim("gpus")), ("pods", pod("train", "gpus", priority=1000))
    )
    texts = {
        version: "\n".join(explaining.lines(explained(objects, git_version=version)[0]))
        for version in ("v1.36.4", "v1.37.0-eks-1")
    }
    assert "evict" not in texts["v1.36.4"]
    assert "evict" in texts["v1.37.0-eks-1"]
    metrics = 'apiserver_x 1\nkubernetes_feature_enabled{name="DRAPreemption",stage="BETA"} 1\n'
    said = "\n".join(explaining.lines(explained(objects, git_version="v1.36.4", metrics=metrics)[0]))
    assert "evict" in said


def test_resources_that_a_class_serves_need_no_version() -> None:
    """Before 1.36 the feature is off unless somebody turned it on; then classes have the field."""
    objects = cluster(("pods", pod("train")))
    objects["pods"][0]["spec"]["containers"][0]["resources"] = {
        "requests": {"example.com/gpu": "1"},
        "limits": {"example.com/gpu": "1"},
    }
    judged, _ = explained(objects, git_version="v1.34.0")
    assert isinstance(judged.explained.cause, NoNodeFits)
    objects["deviceclasses"][0]["spec"]["extendedResourceName"] = "example.com/gpu"
    judged, _ = explained(objects, git_version="v1.34.0")
    assert judged.explained.state == "Schedulable"


def test_the_document_has_what_the_text_says() -> None:
    judged, _ = explained(cluster(*holding("n1/gpu-0", "n2/gpu-0"), *train(count=2)))
    document = explaining.document(judged)
    assert document["kind"] == "Explanation"
    assert document["cause"]["code"] == "devices-in-use"
    assert document["steps"][0]["text"] == document["nextStep"]
    assert document["scheduler"]["message"] == "0/2 nodes"
    assert "resourceVersion" not in document["metadata"]
    assert "notReadable" not in document


def test_commands_quote_what_others_wrote() -> None:
    judged, _ = explained(SCENARIOS["it has a scheduling gate"][0]())
    (step,) = judged.advice.steps
    typed = command_of(step.act, judged.explained.about)
    assert typed.startswith("kubectl patch pod -n team-a train --type=json -p '[")
