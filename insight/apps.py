"""The Django app `insight`."""

from django.apps import AppConfig


class InsightConfig(AppConfig):
    name = "insight"
    label = "insight"
    controllers = ("insight.usage", "insight.meters", "insight.notifications")

    def ready(self) -> None:
        # Their metrics are registered by the import. Models can be imported from here on only.
        from insight import advice, cluster_metrics, resource_metrics, usage_metrics  # noqa: F401, PLC0415
        from scheduling.rehearsal import explanations  # noqa: PLC0415

        explanations.next_steps.append(advice.next_step_of)
        usage_metrics.register()
