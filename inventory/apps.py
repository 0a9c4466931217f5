"""The Django app `inventory`."""

from django.apps import AppConfig

from inventory.kinds.registration import KINDS
from manciple.wire.registry import registry


class InventoryConfig(AppConfig):
    name = "inventory"
    label = "inventory"

    def ready(self) -> None:
        # Models can be imported from here on only.
        from inventory import projectors  # noqa: PLC0415

        for kind in KINDS:
            registry.register(kind)
        projectors.register()
