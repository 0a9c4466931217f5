"""A store in memory, which ends with the process: no file, no server, no setting of an installation is needed.

Django is set up for that here, so nothing of it may be imported before.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import Final

from manciple.declared_settings import HOME, PREFIX
from manciple.mirror.listing import Found

SETTINGS: Final = "manciple.mirror.throwaway_settings"


def prepare() -> None:
    """Set Django up, and make the tables. Once a process."""
    gc.disable()  # the process ends before there is much to collect
    # Settings of an installation on this machine do not apply to this command.
    for name in [name for name in os.environ if name.startswith(PREFIX)]:
        del os.environ[name]
    os.environ[HOME.name] = os.devnull  # nothing is looked for there
    os.environ["DJANGO_SETTINGS_MODULE"] = SETTINGS
    import django  # noqa: PLC0415 - the environment says by which settings

    django.setup()
    from django.apps import apps  # noqa: PLC0415 - as above
    from django.db import connection  # noqa: PLC0415 - as above

    # The tables as the models have them: migrations are for databases that exist.
    with connection.schema_editor() as editor:
        for model in apps.get_models():
            editor.create_model(model)


def fill(found: Found) -> None:
    """With what the cluster has, as it comes. Once a process. Raises: RemoteFailure where nothing could be listed."""
    from manciple.cel import parser  # noqa: PLC0415 - imported while lists are on their way
    from manciple.mirror import copying  # noqa: PLC0415 - Django is set up by now
    from manciple.store.event_log import LOG  # noqa: PLC0415 - as above

    parser.prepare()
    LOG.keep(copying.copy(found))


def end(status: int) -> None:
    """End the process, if it has such a store: to take that apart, as Python does, would take a sixth of the time."""
    if os.environ.get("DJANGO_SETTINGS_MODULE") == SETTINGS:
        sys.stderr.flush()
        os._exit(status)
