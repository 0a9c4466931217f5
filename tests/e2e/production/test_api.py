"""The API of resource.k8s.io as clients and drivers use it. Names as in Kubernetes' e2e and integration cases."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from inventory.kinds.devices import DeviceTaint
from manciple.wire.base import ApiObject
from tests.builders import (
    CREATED,
    make_claim,
    make_class,
    make_container,
    make_device,
    make_quota,
    make_request,
    make_slice,
    make_template,
)
from tests.e2e.api_client import Api, Document
from tests.e2e.plugins.cluster import let_drivers_in
from tests.e2e.production.installation import Installation
from tests.e2e.production.scene import GPU, Scene

pytestmark = [pytest.mark.e2e, pytest.mark.postgres]


def make_slice_of_nobody(name: str) -> ApiObject:
    """Whose driver does not run, and so puts nothing right."""
    return make_slice(name, driver="nobody.example.com")


@pytest.mark.parametrize("make", [make_class, make_claim, make_template, make_slice_of_nobody])
def test_crud_of(scene: Scene, make: Callable[[str], ApiObject]) -> None:
    """DeviceClass, ResourceClaim, ResourceClaimTemplate and ResourceSlice: made, read, listed, changed, deleted."""
    obj = make(f"{scene.name}-one")
    name, kind = obj.metadata.name, obj.kind
    made = scene.make(obj)
    assert scene.find(kind, name) == made
    assert "already exists" in scene.refused(obj)
    replaced = scene.api.put(scene.place(kind, name), {**made, "metadata": {**made["metadata"], "labels": {"a": "b"}}})
    assert replaced["metadata"]["uid"] == made["metadata"]["uid"]
    stale = scene.api.refused("PUT", scene.place(kind, name), made)
    assert stale["reason"] == "Conflict"
    merged = scene.change(kind, name, {"metadata": {"labels": {"c": "d"}}})
    assert merged["metadata"]["labels"] == {"a": "b", "c": "d"}
    assert [one["metadata"]["name"] for one in scene.api.listed(scene.place(kind), labelSelector="a=b,c")] == [name]
    scene.delete(kind, name)
    scene.gone(kind, name)
    assert scene.api.listed(scene.place(kind), labelSelector="a=b") == []


def test_validate_admin_access_of_claims_and_templates(scene: Scene) -> None:
    """In a namespace that says so, and nowhere else; who has it takes no device away."""
    watching = make_request(device_class=GPU, all_devices=True, admin_access=True)
    scene.template("gpu")
    scene.pod("web", templates=["gpu"])
    scene.claim("watch", watching)
    scene.pod("monitor", "watch")
    scene.runs("web", "monitor")
    assert len(scene.devices("watch")) == 8

    scene.api.patch(
        f"/api/v1/namespaces/{scene.namespace}", {"metadata": {"labels": {"resource.kubernetes.io/admin-access": None}}}
    )
    for obj in (make_claim("more", requests=[watching]), make_template("more", requests=[watching])):
        assert "resource.kubernetes.io/admin-access: true" in scene.refused(obj)


@pytest.mark.long
def test_truncates_the_name_of_a_generated_resource_claim(scene: Scene) -> None:
    pod, entry = "p" * 63, "c" * 63
    scene.template(entry)
    scene.pod(pod, templates=[entry])
    scene.runs(pod)
    (name,) = scene.made_for(pod)
    assert name.startswith(f"{'p' * 28}-{'c' * 28}")
    assert len(name) <= 63


def test_supports_count_resourceclaims_quota(scene: Scene) -> None:
    scene.make(make_quota({"count/resourceclaims.resource.k8s.io": "1"}, name="claims"))
    scene.claim("first")
    refused = scene.refused(make_claim("second"))
    assert "exceeded quota: claims, requested: count/resourceclaims.resource.k8s.io=1" in refused
    scene.delete("ResourceClaim", "first")
    scene.until("room for another", lambda: scene.find("ResourceQuota", "claims")["status"]["used"].popitem()[1] == "0")
    scene.claim("second")
    scene.delete("ResourceQuota", "claims")


@pytest.fixture(scope="module")
def driver_of_node_1(installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> Api:
    """A service account with a token bound to a pod on node-1 and the rights of drivers (docs/how-to/drivers.md)."""
    admin, folder = installation.home / "kubeconfig", tmp_path_factory.mktemp("driver")
    return Api(let_drivers_in(Api(admin), admin, folder, node="node-1"))


@pytest.fixture
def on_each_node(scene: Scene) -> Scene:
    """A device, and a claim that got it, on either node."""
    scene.device_class()
    for node in ("node-1", "node-2"):
        scene.publish(make_device(node), node=node)
        scene.claim(node, scene.request())
    return scene


def test_driver_may_update_status_devices_once_allocated(on_each_node: Scene, driver_of_node_1: Api) -> None:
    """Of claims on its node, and of no others."""
    scene, place = on_each_node, f"{on_each_node.place('ResourceClaim', 'node-1')}/status"
    condition = {"type": "Ready", "status": "True", "reason": "Ok", "message": "", "lastTransitionTime": CREATED}
    device = {"driver": scene.driver, "pool": f"{scene.name}-node-1", "device": "node-1", "conditions": [condition]}
    report = {"status": {"devices": [device]}}
    early = scene.api.refused("PATCH", place, report)
    assert "must be an allocated device in the claim" in early["message"]

    for node in ("node-1", "node-2"):
        scene.pod(node, node, node_selector={"kubernetes.io/hostname": node})
    scene.bound("node-1", "node-2")
    driver_of_node_1.patch(place, report)
    assert scene.find("ResourceClaim", "node-1")["status"]["devices"] == [device]

    other = {**device, "pool": f"{scene.name}-node-2", "device": "node-2"}
    place = f"{scene.place('ResourceClaim', 'node-2')}/status"
    refused = driver_of_node_1.refused("PATCH", place, {"status": {"devices": [other]}})
    assert (refused["reason"], "only access claims of its node's pods" in refused["message"]) == ("Forbidden", True)


def test_applies_per_node_permission_checks(scene: Scene, installation: Installation) -> None:
    """An agent publishes for its own node and touches nothing of others."""
    agent = Api(installation.home / "nodes" / "node-1" / "kubeconfig")
    others = scene.publish(make_device(), node="node-2")["metadata"]["name"]
    for node, allowed in {"node-1": True, "node-2": False}.items():
        document = scene.document(make_slice(f"{scene.name}-by-agent", node=node, driver=scene.driver))
        if allowed:
            made = agent.made(scene.place("ResourceSlice"), document)
            agent.delete(scene.place("ResourceSlice", made["metadata"]["name"]))
        else:
            assert agent.refused("POST", scene.place("ResourceSlice"), document)["reason"] == "Forbidden"
    for method, body in (("DELETE", {}), ("PUT", scene.find("ResourceSlice", others))):
        assert agent.refused(method, scene.place("ResourceSlice", others), body)["reason"] == "Forbidden"
    assert scene.find("ResourceSlice", others)


BETA: dict[str, Document] = {
    "v1beta1": {"name": "gpu", "deviceClassName": GPU},
    "v1beta2": {"name": "gpu", "exactly": {"deviceClassName": GPU}},
}


def in_version(scene: Scene, version: str, name: str, *requests: Document) -> str:
    """Make a claim through an older version of the API; where claims are in that version."""
    place = scene.place("ResourceClaim").replace("/v1/", f"/{version}/")
    spec = {"devices": {"requests": list(requests)}}
    document = {"apiVersion": f"resource.k8s.io/{version}", "kind": "ResourceClaim", "metadata": {"name": name}}
    scene.api.made(place, {**document, "spec": spec})
    return place


@pytest.mark.parametrize("version", BETA)
def test_supports_simple_claims_and_requests_with_alternatives(scene: Scene, version: str) -> None:
    """Written in v1beta1 or v1beta2."""
    counts = {"many": 99, "one": 1}
    alternatives = [{"name": name, "deviceClassName": GPU, "count": count} for name, count in counts.items()]
    in_version(scene, version, "simple", BETA[version])
    in_version(scene, version, "listed", {"name": "gpu", "firstAvailable": alternatives})
    scene.pod("web", "simple", "listed")
    scene.runs("web")
    assert [device.split()[0] for device in scene.devices("listed")] == ["gpu/one"]


def test_convert(scene: Scene) -> None:
    """One object, whichever version it was written in and is read in."""
    place = in_version(scene, "v1beta1", "training", BETA["v1beta1"])
    found = {
        version: scene.api.find(f"{place.replace('/v1beta1/', f'/{version}/')}/training") or {}
        for version in ("v1", "v1beta1", "v1beta2")
    }
    assert len({one["metadata"]["uid"] for one in found.values()}) == 1
    shown = {version: one["spec"]["devices"]["requests"][0] for version, one in found.items()}
    given = {"deviceClassName": GPU, "allocationMode": "ExactCount", "count": 1}
    exact = {"name": "gpu", "exactly": given}
    assert shown == {"v1": exact, "v1beta2": exact, "v1beta1": {"name": "gpu", **given}}


@pytest.mark.long
def test_max_resource_slice(scene: Scene) -> None:
    """As many devices with as many and as long properties as there may be; its last device can be had."""
    scene.device_class()
    texts = {f"{'n' * 30}{number:02}": "v" * 64 for number in range(30)}
    devices = [make_device(f"{number:03}{'d' * 60}", attributes={**texts, "number": number}) for number in range(128)]
    made = scene.publish(*devices)
    assert len(made["spec"]["devices"]) == 128
    one_more = make_slice("more", devices=[*devices, make_device("one-more")])
    assert "Too many: 129: must have at most 128 items" in scene.refused(one_more)
    taint = DeviceTaint(key="example.com/t", effect="None")
    advanced = make_slice("advanced", devices=[replace(device, taints=(taint,)) for device in devices[:65]])
    assert "must have at most 64 items" in scene.refused(advanced)

    scene.claim("last", scene.request(expressions=[f"device.attributes['{scene.driver}'].number == 127"]))
    scene.pod("web", "last")
    scene.bound("web")


@pytest.mark.long
def test_invalid_resource_slices(scene: Scene) -> None:
    """A pool that is not whole, or has a device twice, gives nothing out; once it is mended, it does."""
    scene.device_class()
    scene.claim("training", scene.request(count=2))
    pool = f"{scene.name}-node-1"
    scene.publish(make_device("a"), slices=2)
    scene.pod("web", "training", containers=[make_container(claims=["training"])])
    scene.waits("web", "cannot allocate all claims")
    twice = scene.publish(make_device("a"), slices=2, name=f"{pool}-1", pool=pool)
    scene.waits("web", "invalid resource pools")
    scene.change("ResourceSlice", twice["metadata"]["name"], {"spec": {"devices": [{"name": "b"}]}})
    assert scene.bound("web") == "node-1"
