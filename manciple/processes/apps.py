"""The Django app `manciple.processes`, the last one: what needs all kinds to be registered."""

from django.apps import AppConfig
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from manciple.api import runtime_config
from manciple.wire.registry import registry


class ProcessesConfig(AppConfig):
    name = "manciple.processes"
    label = "processes"

    def ready(self) -> None:
        """Raises: ImproperlyConfigured where MANCIPLE_RUNTIME_CONFIG names an API that does not exist."""
        from manciple.api.computed import COMPUTED  # noqa: PLC0415 - apps can be imported from here on only
        from manciple.api.reviews import REVIEWS  # noqa: PLC0415

        config = runtime_config.parse(settings.RUNTIME_CONFIG)
        try:
            config.check({*(one.place for one in registry.registered()), *REVIEWS, *COMPUTED})
        except ValueError as error:
            raise ImproperlyConfigured(f"MANCIPLE_RUNTIME_CONFIG: {error}") from None
        runtime_config.use(config)
        registry.restrict(runtime_config.serves)
