"""The Django app `manciple.access`."""

from django.apps import AppConfig

from manciple.access.kinds.registration import KINDS
from manciple.wire.registry import registry


class AccessConfig(AppConfig):
    name = "manciple.access"
    label = "access"

    def ready(self) -> None:
        for kind in KINDS:
            registry.register(kind)
