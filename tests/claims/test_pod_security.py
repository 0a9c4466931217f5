"""Pod security: what each level says of a pod, as the reference says it; and how a namespace's labels are read."""

from __future__ import annotations

import json
import time
from functools import cache
from typing import Any

import pytest
from msgspec.structs import replace

from claims.kinds import pod_security
from claims.kinds.containers import SecurityContext
from claims.kinds.pod_security import (
    LATEST,
    LevelVersion,
    PodSecurityPolicy,
    describe,
    is_plain,
    is_significant_update,
    parse_policy,
    policy_of,
    safe_sysctls,
    violations,
)
from claims.kinds.pods import Pod
from claims.kinds.registration import POD
from manciple.wire import codec
from tests import conformance
from tests.builders import make_container, make_pod

PREFIX = "pod-security.kubernetes.io/"
BASELINE, RESTRICTED = LevelVersion("baseline"), LevelVersion("restricted")


@cache
def recorded() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(conformance.read("pod_security_cases.json"))
    return document


@cache
def recorded_pods() -> dict[str, Pod]:
    return {name: POD.prepare_create(codec.decode_value(Pod, pod)) for name, pod in recorded()["pods"].items()}


@pytest.mark.sample(15)
@pytest.mark.parametrize("level", sorted(recorded()["answers"]))
def test_every_recorded_answer_is_given(level: str) -> None:
    asked = parse_policy(f"enforce={level}").enforce
    answers = recorded()["answers"][level]
    assert len(answers) > 290
    assert {name: describe(violations(asked, recorded_pods()[name])) for name in answers} == answers


def test_privileged_allows_everything() -> None:
    assert not any(violations(LevelVersion("privileged"), pod) for pod in recorded_pods().values())


def test_a_privileged_container_is_beyond_baseline() -> None:
    root = make_container("a", security_context=SecurityContext(privileged=True))
    pod = make_pod("p", containers=[root, replace(root, name="b")])
    assert describe(violations(BASELINE, pod)) == (
        'privileged (containers "a", "b" must not set securityContext.privileged=true)'
    )


def test_an_app_armor_annotation_is_beyond_baseline() -> None:
    plain = make_pod("p")
    annotations = {"container.apparmor.security.beta.kubernetes.io/a": "unconfined"}
    pod = replace(plain, metadata=replace(plain.metadata, annotations=annotations))
    assert describe(violations(BASELINE, pod)).startswith("forbidden AppArmor profile (annotation must not set")


def test_what_is_plain_is_within_baseline(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = [pod for pod in recorded_pods().values() if is_plain(pod)]
    assert len(plain) > 10
    monkeypatch.setattr(pod_security, "is_plain", lambda _pod: False)
    assert not any(violations(BASELINE, pod) for pod in plain)


def test_a_plain_pod_costs_next_to_nothing() -> None:
    pod, labels = POD.prepare_create(make_pod("p")), {"kubernetes.io/metadata.name": "default"}
    default = parse_policy("enforce=baseline")

    def judge() -> None:
        policy, _ = policy_of(labels, default)
        assert not violations(policy.enforce, pod)

    best = min(_timed(judge) for _ in range(5))
    assert best < 10e-6  # seconds


def _timed(work: Any) -> float:
    began = time.process_time()
    for _ in range(1000):
        work()
    return (time.process_time() - began) / 1000


def test_the_sysctls_that_are_safe_grew_over_time() -> None:
    assert "net.ipv4.tcp_rmem" in safe_sysctls() - safe_sysctls(31)
    assert "kernel.msgmax" not in safe_sysctls()


UPDATES = {
    "nothing": (("a:1", "b:1"), False),
    "an image": (("a:2", "b:1"), True),
    "a container less": (("a:1",), True),
}


@pytest.mark.parametrize("case", UPDATES)
def test_a_pod_is_judged_anew_when_what_runs_in_it_changes(case: str) -> None:
    images, significant = UPDATES[case]

    def spec(*images: str) -> Any:
        return make_pod("p", containers=[make_container(one[0], image=one) for one in images]).spec

    assert is_significant_update(spec(*images), spec("a:1", "b:1")) is significant


# Labels.

POLICIES: dict[str, tuple[dict[str, str], str, list[str]]] = {
    "none": ({}, "enforce=baseline", []),
    "others": ({"team": "a"}, "enforce=baseline", []),
    "privileged": ({"enforce": "privileged"}, "enforce=privileged", []),
    "a stricter level is warned of": ({"enforce": "restricted"}, "enforce=restricted,warn=restricted", []),
    "in its version": (
        {"enforce": "restricted", "enforce-version": "v1.30"},
        "enforce=restricted:v1.30,warn=restricted:v1.30",
        [],
    ),
    "unless it is said what to warn of": (
        {"enforce": "restricted", "warn": "baseline", "warn-version": "v1.0"},
        "enforce=restricted,warn=baseline:v1.0",
        [],
    ),
    "a version alone": ({"enforce-version": "v1.22"}, "enforce=baseline:v1.22", []),
    "what cannot be read is restricted to enforce and nothing else": (
        {"enforce": "x", "audit": "Baseline", "warn": ""},
        "enforce=restricted",
        ["enforce", "audit", "warn"],
    ),
    "a version that cannot be read is the latest": (
        {"audit": "baseline", "audit-version": "1.22", "warn-version": "v1.01", "enforce-version": "v2.0"},
        "enforce=baseline,audit=baseline",
        ["enforce-version", "audit-version", "warn-version"],
    ),
}


@pytest.mark.parametrize("case", POLICIES)
def test_labels_are_read(case: str) -> None:
    labels, expected, wrong = POLICIES[case]
    prefixed = {key if key == "team" else PREFIX + key: value for key, value in labels.items()}
    policy, errors = policy_of(prefixed, parse_policy("enforce=baseline"))
    assert policy == parse_policy(expected)
    assert [str(error.field) for error in errors] == [f"metadata.labels[{PREFIX}{name}]" for name in wrong]


def test_a_policy_is_read_from_text() -> None:
    assert parse_policy(" enforce=restricted:v1.30 , warn=baseline") == PodSecurityPolicy(
        enforce=LevelVersion("restricted", 30), warn=LevelVersion("baseline", LATEST)
    )
    assert parse_policy("").allows_everything


@pytest.mark.parametrize("text", ["baseline", "enforce=strict", "enforce=baseline:1.30", "deny=baseline", "enforce="])
def test_a_policy_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="MODE=LEVEL"):
        parse_policy(text)
