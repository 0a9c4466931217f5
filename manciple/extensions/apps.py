"""The Django app `manciple.extensions`."""

from django.apps import AppConfig

from manciple.extensions.registration import DEFINITION
from manciple.wire.registry import registry


class ExtensionsConfig(AppConfig):
    name = "manciple.extensions"
    label = "extensions"

    def ready(self) -> None:
        # The store can be imported from here on only.
        from manciple.extensions import catalogue  # noqa: PLC0415

        registry.register(DEFINITION)
        catalogue.register()
