"""The Django app `claims`."""

from django.apps import AppConfig

from claims.kinds.registration import KINDS
from manciple.wire.registry import registry


class ClaimsConfig(AppConfig):
    name = "claims"
    label = "claims"

    def ready(self) -> None:
        # Models can be imported from here on only.
        from claims import projectors  # noqa: PLC0415

        for kind in KINDS:
            registry.register(kind)
        projectors.register()
