"""The Django app `manciple.api`."""

from django.apps import AppConfig


class ApiConfig(AppConfig):
    name = "manciple.api"
    label = "api"
