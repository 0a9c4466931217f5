"""What a driver's answers mean to the agent; an answer that is no good becomes a failure that says why. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from nodeagent.cdi.rules import DEVICE_NAME, KIND
from nodeagent.checkpoint import PreparedDevice
from nodeagent.drivers.protocol import Failed, Prepared
from nodeagent.plugins.messages import Device, PreparedClaim, UnpreparedClaim

LEFT_OUT = Failed("its answer leaves this claim out")


def prepared(answer: PreparedClaim | None) -> Prepared | Failed:
    """Of one claim; None where the answer does not name it. The driver wrote its CDI files itself."""
    if answer is None:
        return LEFT_OUT
    if answer.error:
        return Failed(answer.error)
    if problems := [problem for index, device in enumerate(answer.devices) for problem in _problems(index, device)]:
        return Failed(f"its answer cannot be used: {'; '.join(problems)}")
    return Prepared(devices=tuple(_device(device) for device in answer.devices), spec=None)


def unprepared(answer: UnpreparedClaim | None) -> Failed | None:
    """Of one claim; None for success."""
    if answer is None:
        return LEFT_OUT
    return Failed(answer.error) if answer.error else None


def _device(device: Device) -> PreparedDevice:
    return PreparedDevice(
        requests=device.request_names,
        pool=device.pool_name,
        device=device.device_name,
        cdi_device_ids=device.cdi_device_ids,
    )


def _problems(index: int, device: Device) -> Iterator[str]:
    """A device without a name or a pool is fine: the protocol asks for both, but kubelet takes what has neither, and
    drivers of Kubernetes answer so. What they stand for, the health of the device, is then unknown."""
    name = f"device {device.device_name}" if device.device_name else f"device number {index + 1}"
    for one in device.cdi_device_ids:
        kind, equals, device_name = one.partition("=")
        if not equals or not KIND.fullmatch(kind) or not DEVICE_NAME.fullmatch(device_name):
            yield f"{name}: {one!r} is no CDI device id (vendor.example.com/class=name)"
