"""The Django app `scheduling`."""

from django.apps import AppConfig

from inventory.kinds import expressions
from scheduling.expressions import problem_of


class SchedulingConfig(AppConfig):
    name = "scheduling"
    label = "scheduling"

    def ready(self) -> None:
        # Validation of selectors asks the environment that will evaluate them.
        expressions.set_checker(problem_of)
