"""Requests for what the agents' simulated drivers have. The scene's class must let all of it in: `EVERYTHING`."""

from __future__ import annotations

from claims.kinds.resource_claims import CapacityRequirements, DeviceRequest
from tests.e2e.production.scene import GPU, Scene

MIG, NIC = "mig.example.com", "nic.example.com"
#: What a class says that has all of them.
EVERYTHING = f"device.driver in ['{GPU}', '{MIG}', '{NIC}']"


def gpu(scene: Scene, *indices: int) -> DeviceRequest:
    """One of these GPUs, of any node."""
    return scene.request(
        expressions=[f"device.driver == '{GPU}'", f"device.attributes['{GPU}'].index in {list(indices)}"]
    )


def share(scene: Scene, amount: str) -> DeviceRequest:
    """Bandwidth of the first network interface, which has 100G."""
    expressions = [f"device.driver == '{NIC}'", f"device.attributes['{NIC}'].index == 0"]
    return scene.request(expressions=expressions, capacity=CapacityRequirements(requests={"bandwidth": amount}))


def whole(scene: Scene) -> DeviceRequest:
    """The first GPU that can be cut, uncut."""
    return _of_mig(scene, f"type == 'gpu' && {{0}}.uuid == '{_uuid(scene)}'")


def half(scene: Scene) -> DeviceRequest:
    """A half of it."""
    return _of_mig(scene, f"type == 'mig' && {{0}}.parentUUID == '{_uuid(scene)}' && {{0}}.profile == '3g.40gb'")


def _of_mig(scene: Scene, what: str) -> DeviceRequest:
    """what: of the attributes, which are {0} where more than the first is looked at."""
    attributes = f"device.attributes['{MIG}']"
    return scene.request(expressions=[f"device.driver == '{MIG}' && {attributes}.{what.format(attributes)}"])


def _uuid(scene: Scene) -> str:
    def published() -> str | None:
        slices = scene.api.listed(scene.place("ResourceSlice"), fieldSelector=f"spec.driver={MIG}")
        devices = (device["attributes"] for one in slices for device in one["spec"].get("devices", ()))
        return next((one["uuid"]["string"] for one in devices if one["type"]["string"] == "gpu"), None)

    return str(scene.until("a GPU that can be cut", published))  # an agent that has just started publishes it anew
