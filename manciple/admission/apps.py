"""The Django app `manciple.admission`."""

from django.apps import AppConfig

from manciple.admission.kinds.registration import KINDS
from manciple.wire.registry import registry


class AdmissionConfig(AppConfig):
    name = "manciple.admission"
    label = "admission"

    def ready(self) -> None:
        # The store can be imported from here on only.
        from manciple.admission import door, parameters  # noqa: PLC0415
        from manciple.store import hooks  # noqa: PLC0415

        for kind in KINDS:
            registry.register(kind)
        hooks.register_check(parameters.check, resources=parameters.CHECKED)
        hooks.register_mutation(door.mutate)
        hooks.register_check(door.check)
