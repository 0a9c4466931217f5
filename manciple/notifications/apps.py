"""The Django app `manciple.notifications`."""

from __future__ import annotations

from django.apps import AppConfig


class NotificationsConfig(AppConfig):
    name = "manciple.notifications"
    label = "notifications"

    def ready(self) -> None:
        # Models can be imported from here on only.
        from manciple.live import notices  # noqa: PLC0415
        from manciple.notifications import addresses, browser  # noqa: PLC0415
        from manciple.store import resealing  # noqa: PLC0415

        notices.take_from(browser.fresh)
        resealing.also("secrets of webhooks", addresses.reseal)
