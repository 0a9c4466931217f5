"""The Django app `manciple.mirror`."""

from django.apps import AppConfig


class MirrorConfig(AppConfig):
    name = "manciple.mirror"
    label = "mirror"
