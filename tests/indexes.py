"""Index rows as plain values, to compare what projectors wrote with what `reindex` writes."""

from __future__ import annotations

from typing import Any

from django.db import models

from claims.models import AllocatedDevice, Claim, Pod, PodClaim, Reservation
from inventory.models import Device, DeviceClass, Node, PublishedSlice
from inventory.models import Pool as PoolIndex
from manciple.store.models import OwnerLink
from manciple.store.objects import reindex

MODELS: tuple[type[models.Model], ...] = (
    PublishedSlice,
    PoolIndex,
    Device,
    DeviceClass,
    Node,
    Claim,
    Reservation,
    AllocatedDevice,
    Pod,
    PodClaim,
    OwnerLink,
)


def rows_of(model: type[models.Model]) -> list[dict[str, Any]]:
    """Every row, without generated keys, in an order of its own."""
    columns = [field.attname for field in model._meta.concrete_fields if not isinstance(field, models.AutoField)]
    return sorted(model._default_manager.values(*columns), key=repr)


def all_rows() -> dict[str, list[dict[str, Any]]]:
    return {model.__name__: rows_of(model) for model in MODELS}


def assert_rebuilt_the_same() -> None:
    """The index rows are what `reindex` makes of the documents."""
    before = all_rows()
    reindex()
    assert all_rows() == before
