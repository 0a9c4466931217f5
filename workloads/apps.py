"""The Django app `workloads`: Deployments, Jobs and the like, which make pods."""

from django.apps import AppConfig

from manciple.wire.registry import registry
from workloads.kinds.registration import KINDS


class WorkloadsConfig(AppConfig):
    name = "workloads"
    label = "workloads"
    controllers = ("workloads.controllers",)

    def ready(self) -> None:
        from workloads import job_tracking, projectors, warnings  # noqa: PLC0415 - models can be imported from here on

        for kind in KINDS:
            registry.register(kind)
        projectors.register()
        warnings.register()
        job_tracking.register()
