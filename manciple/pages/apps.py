"""The Django app `manciple.pages`."""

from __future__ import annotations

from django.apps import AppConfig


class PagesConfig(AppConfig):
    name = "manciple.pages"
    label = "pages"

    def ready(self) -> None:
        from manciple.access import passwords  # noqa: PLC0415 - models are there only now
        from manciple.live import topics  # noqa: PLC0415
        from manciple.pages.listening import heard_in  # noqa: PLC0415

        topics.show_only(heard_in)
        passwords.READ_WITH.add("preferences")
