"""The Django app `manciple.audit`."""

from django.apps import AppConfig


class AuditConfig(AppConfig):
    name = "manciple.audit"
    label = "audit"

    def ready(self) -> None:
        # Models can be imported from here on only.
        from manciple.audit import recording, sign_ins  # noqa: PLC0415
        from manciple.store import space  # noqa: PLC0415

        space.register_reader(recording.catch_up)
        sign_ins.watch()
