"""The Django app `manciple.embedded`."""

from django.apps import AppConfig


class EmbeddedConfig(AppConfig):
    name = "manciple.embedded"
    label = "embedded"
