"""The Django app `manciple.access`."""

from django.apps import AppConfig


class AccessConfig(AppConfig):
    name = "manciple.access"
    label = "access"
