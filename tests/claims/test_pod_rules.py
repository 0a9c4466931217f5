"""Pods: what `test_recorded_rules.py` does not ask about."""

from __future__ import annotations

from typing import Any

import pytest

from claims.kinds.containers import Container, Lifecycle
from claims.kinds.pods import Affinity, Pod, PodAffinity, PodAffinityTerm, PodOS, TopologySpreadConstraint
from claims.kinds.registration import POD
from manciple.wire.base import LabelSelector
from tests.builders import make_pod


def wrong(pod: Pod) -> list[str]:
    """What is wrong with a pod as it would be stored, without the path to its spec."""
    return [str(error).removeprefix("spec.") for error in POD.validate_create(POD.prepare_create(pod))]


def assert_begins(found: list[str], expected: list[str]) -> None:
    assert [text[: len(start)] for text, start in zip(found, expected, strict=True)] == expected


def test_a_pod_with_claims_is_valid() -> None:
    assert wrong(make_pod(claims={"gpu": "mine"}, templates={"nic": "one"})) == []


NEAR = "affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution"


def spread(action: str = "DoNotSchedule", **fields: Any) -> TopologySpreadConstraint:
    fields.setdefault("label_selector", LabelSelector(match_labels={"part": "of"}))
    return TopologySpreadConstraint(max_skew=1, topology_key="zone", when_unsatisfiable=action, **fields)


def near(*terms: PodAffinityTerm) -> Affinity:
    return Affinity(pod_affinity=PodAffinity(required_during_scheduling_ignored_during_execution=terms))


@pytest.mark.parametrize(
    ("spec", "expected"),
    {
        "spreading that nobody could do": (
            {
                "topology_spread_constraints": (
                    spread("ScheduleAnyway", min_domains=2, node_affinity_policy="Maybe", node_taints_policy="Ignore"),
                    spread("ScheduleAnyway", match_label_keys=("app",), label_selector=None),
                    spread(
                        match_label_keys=("app", "bad key"), label_selector=LabelSelector(match_labels={"app": "a"})
                    ),
                )
            },
            [
                "topologySpreadConstraints[0].minDomains: Invalid value: 2: can only use minDomains if",
                'topologySpreadConstraints[0].nodeAffinityPolicy: Unsupported value: "Maybe"',
                "topologySpreadConstraints[1].matchLabelKeys: Forbidden: must not be specified when labelSelector is",
                'topologySpreadConstraints[2].matchLabelKeys[1]: Invalid value: "bad key"',
                'topologySpreadConstraints[2][0]: Invalid value: "app": exists in both',
                "topologySpreadConstraints[0].{topologyKey, whenUnsatisfiable}: Duplicate value",
            ],
        ),
        "pods that are meant by contradicting label keys": (
            {
                "affinity": near(
                    PodAffinityTerm(
                        topology_key="zone",
                        label_selector=LabelSelector(match_labels={"app": "web"}),
                        match_label_keys=("app", "tier"),
                        mismatch_label_keys=("tier", "bad key"),
                    ),
                    PodAffinityTerm(topology_key="zone", mismatch_label_keys=("tier",)),
                )
            },
            [
                f'{NEAR}[0].mismatchLabelKeys[1]: Invalid value: "bad key"',
                f'{NEAR}[0][0]: Invalid value: "app": exists in both matchLabelKeys and labelSelector',
                f'{NEAR}[0].matchLabelKeys[1]: Invalid value: "tier": exists in both matchLabelKeys and mismatch',
                f"{NEAR}[1].mismatchLabelKeys: Forbidden: must not be specified when labelSelector is not set",
            ],
        ),
        "containers without names": (
            {"containers": (Container(image="a"), Container(image="b"))},
            [
                "containers[0].name: Required value",
                "containers[1].name: Required value",
                'containers[1].name: Duplicate value: ""',
            ],
        ),
    }.values(),
)
def test_wrong_fields_of_a_pod(spec: dict[str, Any], expected: list[str]) -> None:
    assert_begins(wrong(make_pod(meta={"labels": {"app": "web"}}, **spec)), expected)


#: (spec.os.name, the container's signal) -> how the error begins; "" for none
SIGNALS: dict[str, tuple[str, str, str]] = {
    "one of Linux": ("linux", "SIGUSR1", ""),
    "one for real time": ("linux", "SIGRTMIN+15", ""),
    "one counted from the last": ("linux", "SIGRTMAX-14", ""),
    "none that there is": ("linux", "SIGNOPE", 'Unsupported value: "SIGNOPE": supported values: "SIGABRT", "SIGALRM"'),
    "by a short name": ("linux", "TERM", 'Unsupported value: "TERM"'),
    "by its number": ("linux", "15", 'Unsupported value: "15"'),
    "empty": ("linux", "", 'Unsupported value: ""'),
    "without a system": ("", "SIGTERM", "Forbidden: may not be set for containers with empty `spec.os.name`"),
    "one of Windows": ("windows", "SIGKILL", ""),
    "one that Windows lacks": (
        "windows",
        "SIGUSR1",
        'Unsupported value: "SIGUSR1": supported values: "SIGKILL"',
    ),
}


@pytest.mark.parametrize("case", SIGNALS)
def test_the_signal_that_stops_a_container_is_one_of_its_system(case: str) -> None:
    system, sent, expected = SIGNALS[case]
    hook = Lifecycle(stop_signal=sent)
    pod = make_pod(
        containers=(Container(name="main", image="i", lifecycle=hook),),
        init_containers=(Container(name="side", image="i", lifecycle=hook, restart_policy="Always"),),
        os=PodOS(name=system) if system else None,
    )
    places = ("containers[0]", "initContainers[0]")
    assert_begins(wrong(pod), [f"{place}.lifecycle.stopSignal: {expected}" for place in places if expected])


def test_an_init_container_that_ends_by_itself_has_no_lifecycle() -> None:
    init = Container(name="init", image="i", lifecycle=Lifecycle(stop_signal="SIGTERM"))
    found = wrong(make_pod(init_containers=(init,), os=PodOS(name="linux")))
    assert_begins(found, ["initContainers[0].lifecycle: Forbidden: may not be set for init containers without"])
