"""The Django app `claims`."""

from django.apps import AppConfig


class ClaimsConfig(AppConfig):
    name = "claims"
    label = "claims"

    def ready(self) -> None:
        # Models can be imported from here on only.
        from claims import projectors  # noqa: PLC0415

        projectors.register()
