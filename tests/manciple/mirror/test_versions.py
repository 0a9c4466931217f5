"""Recorded lists of a Kubernetes 1.36 API server, in every version from 1.31 on, and with fields nobody knows yet."""

from __future__ import annotations

import json
import random
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from claims.causes import causes
from manciple.mirror import listing, received
from manciple.mirror.sources import COPIED, POD, WHY
from manciple.wire.registry import registry
from tests.manciple.mirror.clusters import device_class, devices_of, explained
from tests.manciple.mirror.replay import Document

pytestmark = pytest.mark.django_db

RECORDED = Path(__file__).parents[2] / "conformance_data" / "remote_lists.json"
VERSIONS = ("v1", "v1beta2", "v1beta1", "v1alpha3")


@cache
def recorded() -> Document:
    document: Document = json.loads(RECORDED.read_text())
    return document


def lists(version: str) -> dict[str, list[Document]]:
    """v1beta2 has the shape of v1; in v1alpha3 a capacity was an amount by itself, all else is as in v1beta1."""
    shape = "v1" if version in ("v1", "v1beta2") else "v1beta1"
    found = deepcopy(recorded())
    for plural in ("resourceslices", "resourceclaims"):
        found[plural] = found[plural][shape]
    if version == "v1alpha3":
        for one in found["resourceslices"]:
            for device in one["spec"]["devices"]:
                capacity = device["basic"]["capacity"]
                device["basic"]["capacity"] = {name: value["value"] for name, value in capacity.items()}
    found["deviceclasses"] = [device_class("gpu.example.com")]
    found["namespaces"] = [{"metadata": {"name": "team-a", "uid": "team-a"}}]
    return found


@pytest.mark.parametrize("aggregated", [True, False], ids=["aggregated discovery", "discovery one by one"])
@pytest.mark.parametrize("version", VERSIONS)
def test_the_answer_is_the_same_in_every_version(version: str, aggregated: bool) -> None:
    judged, found = explained(lists(version), "big-0", dra=version, aggregated=aggregated)
    assert found.states["resourceclaims.resource.k8s.io"].version == version
    assert not judged.gaps
    cause = judged.explained.cause
    assert isinstance(cause, causes.NotSelected)
    assert (cause.before, cause.left) == (4, 0)
    assert cause.operand is not None
    assert cause.operand.values == (("80Gi", 4),)


@pytest.mark.parametrize("version", VERSIONS)
def test_devices_are_the_same_in_every_version(version: str) -> None:
    table = devices_of(lists(version), dra=version)
    assert [(one.node, one.name, one.model, one.state, one.classes) for one in table.devices] == [
        ("gpu-000", "gpu-0", "H100", "free", ("gpu.example.com",)),
        ("gpu-000", "gpu-1", "H100", "free", ("gpu.example.com",)),
        ("gpu-001", "gpu-0", "A100", "free", ("gpu.example.com",)),
        ("gpu-001", "gpu-1", "A100", "free", ("gpu.example.com",)),
    ]


def test_every_version_that_is_read_can_be_converted() -> None:
    for source in COPIED:
        kind = registry.by_resource(source.resource)
        assert (kind.group, kind.plural, kind.namespaced) == (source.group, source.plural, source.namespaced)
        for version in source.versions:
            own = version == kind.version or version in kind.served_versions
            assert own or (source.resource, version) in received._MORE_CONVERSIONS


def test_no_secret_and_no_config_map_is_ever_read() -> None:
    assert not {"secrets", "configmaps"} & {source.plural for source in COPIED}
    assert POD.path("v1", namespace="a", name="b") == "/api/v1/namespaces/a/pods/b"


# Fields that nobody knows ---------------------------------------------------------------------------------------------

_VALUES: tuple[Any, ...] = (None, True, 7, 0.5, "text", [], {}, [{"a": None}], {"b": [1, "2"]}, "é\u2028")


def sprinkled(part: Any, chance: random.Random, *, inside: bool = False) -> Any:
    """With unknown fields in every object, and null for some of the lists that are empty. Maps of names stay."""
    if isinstance(part, list):
        return [sprinkled(one, chance, inside=inside) for one in part]
    if not isinstance(part, dict):
        return part
    maps = ("labels", "annotations", "attributes", "capacity", "allocatable", "requests", "limits", "parameters")
    made = {
        name: value if name in maps or name.startswith("f:") else sprinkled(value, chance, inside=True)
        for name, value in part.items()
    }
    for number in range(chance.randint(0, 2)):
        made[f"xUnknown{number}"] = deepcopy(chance.choice(_VALUES))
    if inside and "managedFields" not in part and chance.random() < 0.5:
        for name in ("finalizers", "ownerReferences", "tolerations", "taints", "conditions", "initContainers"):
            made.setdefault(name, None)
    return made


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_unknown_fields_and_nulls_change_nothing(version: str, seed: int) -> None:
    chance = random.Random(seed)
    plain = lists(version)
    strange = {
        plural: [{**sprinkled(one, chance), "xTop": {"unknown": True}} for one in those]
        for plural, those in plain.items()
    }
    judged, _ = explained(strange, "big-0", dra=version)
    assert not judged.gaps
    assert judged.explained.cause == explained(plain, "big-0", dra=version)[0].explained.cause


def test_nothing_secret_is_kept() -> None:
    """Values of environment variables, managedFields and lists of images stay where they are."""
    from manciple.store.models import Event
    from tests.manciple.mirror.clusters import in_store, remote_of
    from tests.manciple.mirror.replay import Replay

    objects = lists("v1")
    objects["pods"][0]["spec"]["containers"][0]["env"] = [{"name": "KEY", "value": "hunter2"}]
    objects["nodes"][0]["status"]["images"] = [{"names": ["registry/image:1"], "sizeBytes": 1}]
    with Replay(objects) as server:
        found = listing.read(remote_of(server), WHY, namespace="team-a")
        assert not [path for path in server.asked if "secrets" in path or "configmaps" in path]
    with in_store(found):
        texts = "".join(Event.objects.values_list("document", flat=True))
    assert "big-0" in texts
    for kept in ("hunter2", "managedFields", "registry/image"):
        assert kept not in texts
