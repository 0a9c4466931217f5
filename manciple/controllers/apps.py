"""The Django app `manciple.controllers`."""

from django.apps import AppConfig


class ControllersConfig(AppConfig):
    name = "manciple.controllers"
    label = "controllers"
    controllers = ("manciple.controllers.housekeeping", "manciple.controllers.certificate_requests")
