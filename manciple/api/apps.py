"""The Django app `manciple.api`."""

from django.apps import AppConfig

from manciple.wire.machinery import KINDS
from manciple.wire.registry import registry


class ApiConfig(AppConfig):
    name = "manciple.api"
    label = "api"

    def ready(self) -> None:
        # Models can be imported from here on only.
        from manciple.access import rbac  # noqa: PLC0415
        from manciple.api import certificate_requests, first_stage, namespaces, service_account_tokens  # noqa: PLC0415

        for kind in KINDS:
            registry.register(kind)
        first_stage.register_check(first_stage.refuse_unserved, first=True)
        namespaces.register()
        certificate_requests.register()
        first_stage.register_check(rbac.check_owners)
        first_stage.register_check(first_stage.warn_of_finalizers)
        service_account_tokens.register()
