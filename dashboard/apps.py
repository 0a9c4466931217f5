"""The Django app `dashboard`."""

from __future__ import annotations

from django.apps import AppConfig


class DashboardConfig(AppConfig):
    name = "dashboard"
    #: The tables and migrations of databases that exist have this name.
    label = "pages"

    def ready(self) -> None:
        from dashboard.kit import live  # noqa: PLC0415 - models can be imported from here on only
        from manciple.access import people  # noqa: PLC0415

        live.register()
        people.READ_WITH.add("preferences")
