"""Manciple's settings and, as the last app, the one that takes guards out."""

from manciple import settings as ours
from manciple.settings import *  # noqa: F403 - Django's own way of building upon settings

INSTALLED_APPS = [*ours.INSTALLED_APPS, "without"]
