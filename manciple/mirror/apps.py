"""The Django app `manciple.mirror`."""

from django.apps import AppConfig
from django.conf import settings

from manciple.access import mirrored
from manciple.mirror.sources import BY_RESOURCE


class MirrorConfig(AppConfig):
    name = "manciple.mirror"
    label = "mirror"

    def ready(self) -> None:
        from manciple.gaps import learn_from  # noqa: PLC0415 - models can be imported from here on only
        from manciple.mirror.judgement import gaps_of_mirror  # noqa: PLC0415

        if settings.MIRROR:
            from manciple.mirror import cluster_metrics  # noqa: F401, PLC0415 - it registers metrics

            learn_from(gaps_of_mirror)
        mirrored.copy_only(BY_RESOURCE)
