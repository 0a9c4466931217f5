"""The Django app `manciple.store`."""

from django.apps import AppConfig


class StoreConfig(AppConfig):
    name = "manciple.store"
    label = "store"
