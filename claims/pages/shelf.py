"""Reads the device grid from the index tables: five queries, whatever the size of the cluster."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from django.db.models import TextField
from django.db.models.functions import Cast

from claims.models import AllocatedDevice, Reservation
from claims.pages.grid import DeviceKey, Group, Holder, PublishedDevice, build_groups
from inventory.models import Device, Pool
from manciple.store.tail import latest_revision

#: Effects that keep claims without a toleration away (None only informs).
FENCING = {"NoSchedule", "NoExecute"}
#: Attributes that drivers use for the model, best first.
MODEL_ATTRIBUTES = ("productName", "model")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shelf:
    """The grid, and the revision that it is at least as new as."""

    revision: int
    groups: tuple[Group, ...]


def read_shelf() -> Shelf:
    """The whole grid. The revision is read first: events after it are sent to the page again, never missed."""
    revision = latest_revision()
    holders = read_holders()
    devices = list(_published())
    known = {device.key for device in devices}
    withdrawn = _withdrawn(key for key in holders if key not in known)
    return Shelf(revision=revision, groups=tuple(build_groups([*devices, *withdrawn], holders)))


def read_holders(devices: Collection[DeviceKey] | None = None) -> dict[DeviceKey, list[Holder]]:
    """Who holds each device (admin access looks on and holds nothing); all devices, or only those named."""
    rows = AllocatedDevice.objects.filter(admin_access=False)
    if devices is not None:
        rows = rows.filter(device__in={name for _, _, name in devices})
    pods = _reservations()
    found: dict[DeviceKey, list[Holder]] = defaultdict(list)
    columns = ("driver", "pool", "device", "share_id", "claim_id", "claim__namespace", "claim__name")
    for driver, pool, device, share, claim, namespace, name in rows.values_list(*columns):
        key = (driver, pool, device)
        if devices is None or key in devices:
            holder = Holder(
                claim_uid=claim, namespace=namespace, claim=name, pods=tuple(pods.get(claim, ())), shared=bool(share)
            )
            found[key].append(holder)
    return found


def _reservations() -> dict[Any, list[str]]:
    """claim -> names of what it is reserved for."""
    pods: dict[Any, list[str]] = defaultdict(list)
    for claim, name in Reservation.objects.order_by("name").values_list("claim_id", "name"):
        pods[claim].append(name)
    return pods


def _published() -> Iterable[PublishedDevice]:
    complete = set(Pool.objects.filter(complete=True).values_list("driver", "name"))
    # As text, because a column of JSON is decoded far slower, and most devices have no taints to decode at all.
    rows = Device.objects.in_pool_order().values_list(
        "driver", "pool", "name", "node_name", Cast("attributes", TextField()), Cast("taints", TextField())
    )
    for driver, pool, name, node, attributes, taints in rows:
        yield PublishedDevice(
            driver=driver,
            pool=pool,
            name=name,
            node=node,
            model=model_of(driver, orjson.loads(attributes)),
            tainted=taints != "[]" and is_fenced(orjson.loads(taints)),
            complete=(driver, pool) in complete,
        )


def is_fenced(taints: Iterable[dict[str, Any]]) -> bool:
    """Whether a device's taints keep claims away that do not tolerate them."""
    return any(taint.get("effect") in FENCING for taint in taints)


def _withdrawn(keys: Iterable[DeviceKey]) -> Iterable[PublishedDevice]:
    """Devices that a claim still holds though nobody publishes them any more."""
    nodes = {(driver, pool): node for driver, pool, node in Pool.objects.values_list("driver", "name", "node_name")}
    for driver, pool, name in sorted(keys):
        node = nodes.get((driver, pool), "")
        yield PublishedDevice(
            driver=driver, pool=pool, name=name, node=node, model=driver, tainted=False, complete=False
        )


def model_of(driver: str, attributes: dict[str, Any]) -> str:
    """What to call this kind of device: its model attribute, else its driver's name."""
    for name in MODEL_ATTRIBUTES:
        value = attributes.get(name) or attributes.get(f"{driver}/{name}") or {}
        if text := value.get("string"):
            return str(text)
    return driver


def lines_with(groups: Sequence[Group], topics: Collection[str]) -> list[tuple[Group, int]]:
    """The lines (group, index) that show anything of `topics`."""
    return [
        (group, index)
        for group in groups
        for index, line in enumerate(group.lines)
        if not set(topics).isdisjoint(line.topics)
    ]
