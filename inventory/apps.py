"""The Django app `inventory`."""

from django.apps import AppConfig

from inventory.kinds.registration import KINDS
from manciple.wire.registry import registry


class InventoryConfig(AppConfig):
    name = "inventory"
    label = "inventory"

    def ready(self) -> None:
        for kind in KINDS:
            registry.register(kind)
