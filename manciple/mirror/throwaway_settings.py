"""Django's settings of a command that keeps nothing: the store is in memory. Every other value is a default."""

from __future__ import annotations

from manciple.settings import *  # noqa: F403 - that is what a default is
from manciple.settings import INSTALLED_APPS as _EVERY_APP

#: Pages, sign-in and processes are of no use without a server, nor are kinds that are not read; and each takes time.
_LEFT_OUT = frozenset(
    {
        "django.contrib.admin.apps.SimpleAdminConfig",
        "django.contrib.messages",
        "django.contrib.staticfiles",
        "django_filters",
        "drf_spectacular_sidecar",
        "rest_framework",
        "channels",
        "dashboard",
        "networking",
        "workloads",
        "manciple.admission",
        "manciple.extensions",
        "manciple.live",
        "manciple.notifications",
        "manciple.processes",
    }
)
INSTALLED_APPS = [name for name in _EVERY_APP if name not in _LEFT_OUT]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": ":memory:",
        # Documents are most of it: a page has room for several, which makes copying a tenth faster.
        "OPTIONS": {"init_command": "PRAGMA page_size=16384"},
    }
}
#: Others place the pods, and they are explained.
MIRROR = True
SCHEDULER_NAMES = None
#: Nobody else waits.
EXPLANATION_PATIENCE = 10.0
