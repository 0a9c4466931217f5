"""The Django app `manciple.live`."""

from django.apps import AppConfig


class LiveConfig(AppConfig):
    name = "manciple.live"
    label = "live"
