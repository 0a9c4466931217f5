"""The Django app `scheduling`."""

from django.apps import AppConfig
from django.conf import settings

from inventory.kinds import device_rules
from scheduling.expressions import checker


class SchedulingConfig(AppConfig):
    name = "scheduling"
    label = "scheduling"

    def ready(self) -> None:
        # Validation of selectors asks the environment that will evaluate them.
        device_rules.set_checker(checker(settings.FEATURE_GATES))
        # Models can be imported from here on only.
        from scheduling import live  # noqa: PLC0415
        from scheduling.explanations import current  # noqa: PLC0415

        current.register()
        live.register()
