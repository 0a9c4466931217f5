"""The Django app `scheduling`."""

from __future__ import annotations

from collections.abc import Callable

from django.apps import AppConfig

from inventory.kinds import device_rules
from scheduling.cel import CelFeatures, CompileError, compile_new_selector


class SchedulingConfig(AppConfig):
    name = "scheduling"
    label = "scheduling"

    @property
    def controllers(self) -> tuple[str, ...]:
        """The modules that declare controllers, those of extensions while their gates are on."""
        from scheduling.state import extensions  # noqa: PLC0415

        own = ("scheduling.cycle.scheduler", "scheduling.rehearsal.moving", "scheduling.claims.kept")
        return (*own, *extensions.modules())

    def ready(self) -> None:
        # Validation of selectors asks the environment that will evaluate them.
        device_rules.set_checker(checker(CelFeatures.from_gates()))
        # Models can be imported from here on only.
        from scheduling.placement import policies  # noqa: PLC0415
        from scheduling.rehearsal import explanations  # noqa: PLC0415
        from scheduling.rehearsal.autoscaling import endpoints  # noqa: PLC0415

        explanations.register()
        endpoints.register()
        policies.register()


def checker(features: CelFeatures) -> Callable[[str], tuple[str, int]]:
    """Compiles a new or changed CEL expression; returns the error, "" for none, and the estimated cost."""

    def problem_of(expression: str) -> tuple[str, int]:
        try:
            selector = compile_new_selector(expression, features)
        except CompileError as error:
            return error.message, 0
        return device_rules.TOO_COMPLEX if selector.exceeds_cost_limit else "", selector.estimated_max_cost

    return problem_of
