"""The Django app `dashboard`."""

from django.apps import AppConfig


class DashboardConfig(AppConfig):
    name = "dashboard"
    label = "dashboard"

    def ready(self) -> None:
        # Models can be imported from here on only.
        from dashboard import live  # noqa: PLC0415

        live.register()
