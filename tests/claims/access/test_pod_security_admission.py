"""Pod security admission: what a namespace allows its pods, whoever writes them; and what is said beside."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from claims import admission
from claims.kinds.pods import Pod
from claims.kinds.registration import POD
from manciple.store import hooks, objects, records
from manciple.wire.errors import Forbidden
from manciple.wire.identity import SYSTEM, controller
from tests.builders import make_pod
from tests.manciple.api.conftest import api
from tests.manciple.api.requests import NAMESPACES, PODS, STRATEGIC, Api, pod

__all__ = ["api"]

PREFIX = "pod-security.kubernetes.io/"
HOST_NETWORK = 'violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true)'


def asking(name: str = "p", **spec: Any) -> dict[str, Any]:
    """A pod that asks for something."""
    document = pod(name)
    document["spec"] = {**document["spec"], **(spec or {"hostNetwork": True})}
    return document


def labels(**modes: str) -> dict[str, Any]:
    return {"metadata": {"labels": {PREFIX + mode.replace("_", "-"): level for mode, level in modes.items()}}}


def make_namespace(api: Api, name: str, **modes: str) -> str:
    """The path of its pods."""
    api.made(NAMESPACES, {"metadata": {"name": name, **labels(**modes)["metadata"]}})
    return f"{NAMESPACES}/{name}/pods"


def warnings(header: str) -> list[str]:
    return [one.replace('\\"', '"') for one in re.findall(r'299 - "((?:[^"\\]|\\.)*)"', header)]


def container(**context: Any) -> dict[str, Any]:
    return {"containers": [{"name": "a", "image": "b", "securityContext": context}]}


BEYOND_BASELINE: dict[str, dict[str, Any]] = {
    "privileged": container(privileged=True),
    "hostPath": {"volumes": [{"name": "h", "hostPath": {"path": "/"}}]},
    "hostNetwork": {"hostNetwork": True},
    "hostPID": {"hostPID": True},
    "hostIPC": {"hostIPC": True},
    "added capabilities": container(capabilities={"add": ["SYS_ADMIN"]}),
    "no seccomp": {"securityContext": {"seccompProfile": {"type": "Unconfined"}}},
    "a sysctl of the node": {"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}},
}


@pytest.mark.parametrize("case", BEYOND_BASELINE)
def test_without_labels_a_pod_cannot_take_its_node(api: Api, case: str) -> None:
    answer = api.post(PODS, asking(**BEYOND_BASELINE[case]))
    assert (answer.code, answer.reason) == (403, "Forbidden")
    assert answer.message.startswith('pods "p" is forbidden: violates PodSecurity "baseline:latest": ')
    assert answer.json["details"] == {"name": "p", "kind": "pods"}
    privileged = make_namespace(api, "drivers", enforce="privileged")
    assert api.post(privileged, asking(**BEYOND_BASELINE[case])).code == 201


def test_kube_system_is_exempt(api: Api) -> None:
    assert api.post(f"{NAMESPACES}/kube-system/pods", asking()).code == 201


def test_the_level_of_namespaces_without_labels_is_a_setting(api: Api, settings: Any) -> None:
    settings.POD_SECURITY = "enforce=restricted"
    assert 'violates PodSecurity "restricted:latest"' in api.post(PODS, pod()).message
    settings.POD_SECURITY, settings.POD_SECURITY_EXEMPT_NAMESPACES = "enforce=restricted", ["default"]
    assert api.post(PODS, asking()).code == 201


def test_a_setting_that_makes_no_sense_stops_the_start(settings: Any) -> None:
    settings.POD_SECURITY = "baseline"
    with pytest.raises(ImproperlyConfigured, match="MANCIPLE_POD_SECURITY"):
        admission.register_pod_security()


def test_a_dry_run_is_refused_as_well(api: Api) -> None:
    assert api.post(f"{PODS}?dryRun=All", asking()).message.startswith(f'pods "p" is forbidden: {HOST_NETWORK}')


def test_where_the_default_refuses_a_pod_the_label_is_named_that_admits_it(api: Api, settings: Any) -> None:
    def advice(document: Any) -> str:
        return api.post(PODS, document).message.partition("; ")[2]

    label = "label its namespace pod-security.kubernetes.io/enforce={} to admit it".format
    assert advice(asking()) == label("privileged")
    settings.POD_SECURITY = "enforce=restricted"
    assert advice(pod()) == label("baseline")
    assert advice(asking()) == label("privileged")
    api.patch("/api/v1/namespaces/default", {"metadata": {"labels": {f"{PREFIX}enforce": "baseline"}}})
    assert advice(asking()) == ""  # whoever labelled it knows the label


@pytest.mark.parametrize("identity", [SYSTEM, controller("job-controller").let_in()], ids=["system", "controller"])
@pytest.mark.usefixtures("api")
def test_nobody_gets_round_it(identity: Any) -> None:
    """Whoever writes, by whatever path: a controller made to create a pod in somebody's name is no way past."""
    wanted: Pod = POD.prepare_create(make_pod("p", namespace="default", host_network=True))
    with pytest.raises(Forbidden, match="host namespaces"), objects.writing(identity=identity) as writer:
        writer.create(POD, wanted)


def test_a_pod_that_is_there_lives_on_and_cannot_get_another_image(api: Api) -> None:
    path = make_namespace(api, "team", enforce="privileged")
    api.made(path, asking())
    assert api.patch(f"{NAMESPACES}/team", labels(enforce="baseline")).code == 200
    assert api.patch(f"{path}/p", {"metadata": {"labels": {"a": "b"}}}).code == 200
    assert api.patch(f"{path}/p/status", {"status": {"phase": "Running"}}).code == 200
    other_image = {"spec": {"containers": [{"name": "main", "image": "x"}]}}
    answer = api.patch(f"{path}/p", other_image, content_type=STRATEGIC)
    assert (answer.code, answer.message) == (403, f'pods "p" is forbidden: {HOST_NETWORK}')


def test_a_client_is_warned_of_a_stricter_level(api: Api) -> None:
    path = make_namespace(api, "team", warn="restricted")
    (warned,) = warnings(api.post(path, pod()).header("Warning"))
    assert warned.startswith('would violate PodSecurity "restricted:latest": allowPrivilegeEscalation != false (')


def test_what_is_refused_is_not_warned_of(api: Api) -> None:
    path = make_namespace(api, "team", enforce="restricted")
    answer = api.post(path, pod())
    assert (answer.code, answer.header("Warning")) == (403, "")


def test_the_audit_trail_is_told_which_level_was_enforced_and_what_violates_another(api: Api) -> None:
    make_namespace(api, "team", audit="restricted")
    wanted: Pod = POD.prepare_create(make_pod("p", namespace="team"))
    with records.collecting() as told, objects.writing() as writer:
        writer.create(POD, wanted)
    assert told.annotations[f"{PREFIX}enforce-policy"] == "baseline:latest"
    violated = told.annotations[f"{PREFIX}audit-violations"]
    assert violated.startswith('would violate PodSecurity "restricted:latest": ')
    assert told.warnings == ()


# The labels.


def test_labels_that_cannot_be_read_are_refused(api: Api) -> None:
    body = {"metadata": {"name": "team", **labels(enforce="strict", warn_version="1.2")["metadata"]}}
    answer = api.post(NAMESPACES, body)
    assert (answer.code, answer.reason) == (422, "Invalid")
    assert [(cause["field"], cause["message"]) for cause in answer.json["details"]["causes"]] == [
        (
            f"metadata.labels[{PREFIX}enforce]",
            'Invalid value: "strict": must be one of privileged, baseline, restricted',
        ),
        (f"metadata.labels[{PREFIX}warn-version]", 'Invalid value: "1.2": must be "latest" or "v1.x"'),
    ]


def test_a_label_that_was_wrong_before_keeps_nobody_from_changing_others(api: Api) -> None:
    hooks.unregister_rule(admission.check_labels)
    make_namespace(api, "team", enforce="strict")
    admission.register_pod_security()
    assert api.patch(f"{NAMESPACES}/team", {"metadata": {"labels": {"a": "b"}}}).code == 200
    assert api.patch(f"{NAMESPACES}/team", labels(enforce="stricter")).code == 422
    assert 'violates PodSecurity "restricted:latest"' in api.post(f"{NAMESPACES}/team/pods", pod()).message


def test_whoever_raises_the_level_is_warned_of_the_pods_that_are_there(api: Api) -> None:
    path = make_namespace(api, "team", enforce="privileged")
    for name in ("c", "b", "d"):
        api.made(path, asking(name))
    api.made(path, pod("plain"))
    assert warnings(api.patch(f"{NAMESPACES}/team", labels(enforce="baseline")).header("Warning")) == [
        'existing pods in namespace "team" violate the new PodSecurity enforce level "baseline:latest"',
        "b (and 2 other pods): host namespaces",
    ]
    assert api.patch(f"{NAMESPACES}/team", labels(enforce="privileged")).header("Warning") == ""
    tightened = warnings(api.patch(f"{NAMESPACES}/team", labels(enforce="restricted")).header("Warning"))
    assert [text.partition(":")[0] for text in tightened[1:]] == ["b (and 2 other pods)", "plain"]


def test_no_more_pods_are_looked_at_than_takes_a_moment(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_namespace(api, "team", enforce="privileged")
    for name in ("a", "b", "c"):
        api.made(path, asking(name))
    monkeypatch.setattr(admission, "MOST_CHECKED_PODS", 2)
    told = warnings(api.patch(f"{NAMESPACES}/team", labels(enforce="baseline")).header("Warning"))
    assert told[0].startswith("new PodSecurity enforce level only checked against the first 2 of 3 existing pods")
    monkeypatch.setattr(admission, "MOST_CHECK_SECONDS", -1)
    told = warnings(api.patch(f"{NAMESPACES}/team", labels(enforce_version="v1.30")).header("Warning"))
    assert told[0].startswith("new PodSecurity enforce level only checked against the first 1 of 3 existing pods")


def test_labels_on_an_exempt_namespace_do_nothing_and_that_is_said(api: Api) -> None:
    (told,) = warnings(api.patch(f"{NAMESPACES}/kube-system", labels(enforce="restricted")).header("Warning"))
    assert told == (
        'namespace "kube-system" is exempt from Pod Security, and the policy '
        "(enforce=restricted:latest) will be ignored"
    )
