"""The Django app `manciple.processes`."""

from django.apps import AppConfig


class ProcessesConfig(AppConfig):
    name = "manciple.processes"
    label = "processes"
