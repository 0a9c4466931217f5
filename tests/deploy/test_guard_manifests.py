"""The overlay that puts a guard beside a mirror: what it configures is what the guard is started with."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from manciple.admission import environment
from manciple.admission.expressions import BOOLEAN, CONDITION_BUDGET, Composition, Evaluation
from manciple.admission.kinds.webhooks import WEBHOOKS
from manciple.cel.documents import value_of
from manciple.mirror.guard.judging import ANSWERED_WITHIN
from manciple.mirror.guard.options import AUDIT, PATH, GuardOptions
from manciple.processes import mirror
from manciple.wire import codec
from manciple.wire.patch import json_patch
from tests.deploy.test_manifests import wrong

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes" / "mirror-guard"
SERVICE, CONFIGURATION = yaml.safe_load_all((FOLDER / "guard.yaml").read_text())
PATCH = yaml.safe_load((FOLDER / "deployment.yaml").read_text())
OVERLAY = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())


def added(path: str) -> list[Any]:
    return [one["value"] for one in PATCH if one["op"] == "add" and one["path"].endswith(f"{path}/-")]


def test_every_field_is_one_of_kubernetes() -> None:
    assert list(wrong(SERVICE, "V1Service", "service")) == []
    assert list(wrong(CONFIGURATION, "V1ValidatingWebhookConfiguration", "configuration")) == []
    assert list(wrong({"volumes": added("/volumes")}, "V1PodSpec", "pod")) == []
    container = {"name": "mirror", "ports": added("/ports"), "volumeMounts": added("/volumeMounts")}
    assert list(wrong(container, "V1Container", "container")) == []


def test_the_configuration_is_valid_and_leads_to_the_guard() -> None:
    made = codec.decode_document(WEBHOOKS, CONFIGURATION, strictness="Strict").object
    made = WEBHOOKS.prepare_create(made)
    assert list(WEBHOOKS.validate_create(made)) == []
    (hook,) = CONFIGURATION["webhooks"]
    service = hook["clientConfig"]["service"]
    assert (service["name"], service["namespace"]) == (SERVICE["metadata"]["name"], OVERLAY["namespace"])
    assert service["path"].rpartition("/")[0] == PATH
    (port,) = SERVICE["spec"]["ports"]
    assert (service["port"], port["targetPort"]) == (port["port"], added("/ports")[0]["name"])
    assert hook["timeoutSeconds"] > ANSWERED_WITHIN


def test_it_watches_and_its_arguments_are_those_of_the_command() -> None:
    options = GuardOptions.of(mirror.parser().parse_args(added("/args")))
    assert options.mode == AUDIT
    assert int(options.listen.rpartition(":")[2]) == added("/ports")[0]["containerPort"]
    mounts = {one["name"]: one["mountPath"] for one in added("/volumeMounts")}
    assert mounts.keys() == {one["name"] for one in added("/volumes")}
    files = (options.certificate, options.key, options.token)
    assert {str(one.parent) for one in files if one is not None} == set(mounts.values())


ALLOCATION = {"devices": {"results": [{"request": "r", "driver": "d", "pool": "p", "device": "x"}]}}
WRITES: dict[str, tuple[dict[str, Any], dict[str, Any], bool]] = {
    "allocates": ({}, {"status": {"allocation": ALLOCATION}}, True),
    "allocates after a status": ({"status": {}}, {"status": {"allocation": ALLOCATION}}, True),
    "changes an allocation": (
        {"status": {"allocation": ALLOCATION}},
        {"status": {"allocation": {**ALLOCATION, "nodeSelector": {}}}},
        True,
    ),
    "reserves": (
        {"status": {"allocation": ALLOCATION}},
        {"status": {"allocation": ALLOCATION, "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]}},
        False,
    ),
    "deallocates": ({"status": {"allocation": ALLOCATION}}, {"status": {}}, False),
    "has no status": ({}, {}, False),
}


@pytest.mark.parametrize(("old", "new", "comes"), WRITES.values(), ids=WRITES.keys())
def test_only_writes_that_give_devices_come(old: dict[str, Any], new: dict[str, Any], comes: bool) -> None:
    (condition,) = CONFIGURATION["webhooks"][0]["matchConditions"]
    composition = Composition(composed=False)
    values = {environment.OBJECT: lambda: value_of(new), environment.OLD_OBJECT: lambda: value_of(old)}
    evaluation = Evaluation(composition, values, budget=CONDITION_BUDGET)
    assert evaluation.run(composition.compile(condition["expression"], BOOLEAN)) is comes


MIRROR = {one["kind"]: one for one in yaml.safe_load_all((FOLDER.parent / "mirror" / "mirror.yaml").read_text())}


def test_it_is_added_to_the_mirror_and_leaves_it_as_it_was() -> None:
    deployment = MIRROR["Deployment"]
    patched = json_patch(deepcopy(deployment), PATCH)
    (before,), (after,) = (one["spec"]["template"]["spec"]["containers"] for one in (deployment, patched))
    assert after["args"][: len(before["args"])] == before["args"]
    options = mirror.parser().parse_args(after["args"][1:])
    assert (options.in_cluster, options.guard) == (True, AUDIT)
    for names in ([one["name"] for one in after["ports"]], [one["mountPath"] for one in after["volumeMounts"]]):
        assert len(names) == len(set(names))
    assert SERVICE["spec"]["selector"].items() <= patched["spec"]["template"]["metadata"]["labels"].items()
    (ingress,) = yaml.safe_load(OVERLAY["patches"][1]["patch"])
    policy = json_patch(deepcopy(MIRROR["NetworkPolicy"]), [ingress])
    assert policy["spec"]["ingress"][-1] == {"ports": [{"port": after["ports"][-1]["name"]}]}
    for patch in OVERLAY["patches"]:
        assert MIRROR[patch["target"]["kind"]]["metadata"]["name"] == patch["target"]["name"]
    assert (
        yaml.safe_load((FOLDER.parent / "mirror" / "kustomization.yaml").read_text())["namespace"]
        == OVERLAY["namespace"]
    )
