"""The Django app `manciple.mirror`."""

from django.apps import AppConfig

from manciple.access import mirrored
from manciple.mirror.sources import BY_RESOURCE


class MirrorConfig(AppConfig):
    name = "manciple.mirror"
    label = "mirror"

    def ready(self) -> None:
        mirrored.copy_only(BY_RESOURCE)
