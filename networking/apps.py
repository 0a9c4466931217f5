"""The Django app `networking`: Services, and where their pods are reached."""

from django.apps import AppConfig

from manciple.wire.registry import registry
from networking.kinds.registration import KINDS


class NetworkingConfig(AppConfig):
    name = "networking"
    label = "networking"
    controllers = ("networking.controllers",)

    def ready(self) -> None:
        from networking import addresses, warnings  # noqa: PLC0415 - models can be imported from here on only

        for kind in KINDS:
            registry.register(kind)
        addresses.register()
        warnings.register()
