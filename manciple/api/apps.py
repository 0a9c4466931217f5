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
        from manciple.api import certificate_requests, namespaces, service_account_tokens  # noqa: PLC0415
        from manciple.store import hooks  # noqa: PLC0415

        for kind in KINDS:
            registry.register(kind)
        hooks.register_check(hooks.refuse_unserved, first=True)
        namespaces.register()
        certificate_requests.register()
        hooks.register_check(rbac.check_owners)
        hooks.register_check(hooks.warn_of_finalizers)
        service_account_tokens.register()
