"""The Django app `manciple.pages`."""

from __future__ import annotations

from django.apps import AppConfig


class PagesConfig(AppConfig):
    name = "manciple.pages"
    label = "pages"

    def ready(self) -> None:
        from manciple.access import passwords  # noqa: PLC0415 - models are there only now
        from manciple.live import topics  # noqa: PLC0415
        from manciple.notifications import sight  # noqa: PLC0415
        from manciple.pages.listening import heard_in  # noqa: PLC0415
        from manciple.pages.notified import may_tell  # noqa: PLC0415

        topics.show_only(heard_in)
        sight.ask(may_tell)
        passwords.READ_WITH.add("preferences")
