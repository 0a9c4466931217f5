"""Django on an empty database in memory: for benchmarks of pages, to be imported before any model."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "manciple.settings")

import django
from django.conf import settings

settings.DATABASES["default"]["NAME"] = ":memory:"
settings.ALLOWED_HOSTS.append("testserver")
django.setup()
