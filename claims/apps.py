"""The Django app `claims`."""

from django.apps import AppConfig


class ClaimsConfig(AppConfig):
    name = "claims"
    label = "claims"
